//! From the text of `--store` to a store.
//! A new backend is one line in [`KNOWN`] and one arm in [`open`].

use std::fmt;
use std::sync::Arc;

use crate::{Store, StoreError};

/// The forms this build takes, as an error shows them.
const KNOWN: &[&str] = &[
    #[cfg(feature = "memory")]
    "memory:",
    #[cfg(feature = "sqlite")]
    "sqlite:PATH",
    #[cfg(feature = "redis")]
    "redis://HOST",
    #[cfg(feature = "postgres")]
    "postgres://HOST/DATABASE",
    #[cfg(feature = "mysql")]
    "mysql://HOST/DATABASE",
    #[cfg(feature = "etcd")]
    "etcd://HOST,HOST,HOST",
    #[cfg(feature = "zookeeper")]
    "zookeeper://HOST,HOST,HOST",
    #[cfg(feature = "kubernetes")]
    "kubernetes:NAMESPACE",
];

/// Opens the store that a URL names: `memory:`, `sqlite:PATH`, `etcd://HOST,HOST` and so on.
///
/// `sqlite:` is followed by the path as it is, absolute or from the working directory, with nothing escaped;
/// `sqlite://PATH` means the same. `memory:` makes a new, empty store at each call. What the URL of another store may
/// hold stands on the page of its type.
///
/// # Errors
///
/// [`OpenError::Url`] for a text that names no store of this build, [`OpenError::Store`] for a store that could not
/// be opened.
///
/// # Cancel safety
///
/// A dropped future leaves at most an empty store behind, which the next call takes.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = snowmint_store::open("memory:").await.unwrap();
/// assert_eq!(store.describe(), "memory:");
/// # });
/// ```
#[allow(clippy::unused_async, reason = "a build without sqlite has nothing to wait for")]
pub async fn open(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    #[allow(unused_variables, reason = "a build without stores looks at the scheme alone")]
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(UrlError::NoScheme { text: url.to_owned() }.into());
    };
    match scheme {
        #[cfg(feature = "memory")]
        "memory" => open_memory(rest),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Arc::new(crate::SqliteStore::open(sqlite_path(rest)?).await?)),
        #[cfg(feature = "redis")]
        "redis" | "rediss" => Ok(Arc::new(crate::RedisStore::open(url).await?)),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Arc::new(crate::PostgresStore::open(url).await?)),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Ok(Arc::new(crate::MySqlStore::open(url).await?)),
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => Ok(Arc::new(crate::EtcdStore::open(url).await?)),
        #[cfg(feature = "zookeeper")]
        "zookeeper" => Ok(Arc::new(crate::ZooKeeperStore::open(url).await?)),
        #[cfg(feature = "kubernetes")]
        "kubernetes" => Ok(Arc::new(crate::KubernetesStore::open(url).await?)),
        _ => Err(UrlError::UnknownScheme { scheme: scheme.to_owned() }.into()),
    }
}

/// Opens a store to look at it. An SQLite file is opened even if it cannot be written; every write then fails with
/// [`StoreErrorKind::ReadOnly`](crate::StoreErrorKind::ReadOnly).
///
/// # Errors
///
/// As for [`open`].
///
/// # Cancel safety
///
/// As for [`open`].
pub async fn open_to_read(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    match open(url).await {
        #[cfg(feature = "sqlite")]
        Err(OpenError::Store(error)) if error.kind() == crate::StoreErrorKind::ReadOnly => {
            match url.strip_prefix("sqlite:") {
                Some(rest) => Ok(Arc::new(crate::SqliteStore::open_to_read(sqlite_path(rest)?).await?)),
                None => Err(OpenError::Store(error)),
            }
        }
        opened => opened,
    }
}

/// Says what a store creates when it is first used: statements for a DBA, or the names of keys.
///
/// Looks at the URL and at the files it names, and connects to nothing.
///
/// # Errors
///
/// As for the text of a URL in [`open`].
///
/// # Examples
///
/// ```
/// assert_eq!(snowmint_store::schema("memory:").unwrap(), "# Nothing: records are in the memory of the process.\n");
/// ```
pub fn schema(url: &str) -> Result<String, UrlError> {
    #[allow(unused_variables, reason = "a build without stores looks at the scheme alone")]
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(UrlError::NoScheme { text: url.to_owned() });
    };
    match scheme {
        #[cfg(feature = "memory")]
        "memory" => Ok("# Nothing: records are in the memory of the process.\n".to_owned()),
        #[cfg(feature = "sqlite")]
        "sqlite" => crate::sqlite::schema(sqlite_path(rest)?),
        #[cfg(feature = "redis")]
        "redis" | "rediss" => crate::redis::schema(url),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => crate::postgres::schema(url),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => crate::mysql::schema(url),
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => crate::etcd::schema(url),
        #[cfg(feature = "zookeeper")]
        "zookeeper" => crate::zookeeper::schema(url),
        #[cfg(feature = "kubernetes")]
        "kubernetes" => crate::kubernetes::schema(url),
        _ => Err(UrlError::UnknownScheme { scheme: scheme.to_owned() }),
    }
}

#[cfg(feature = "memory")]
fn open_memory(rest: &str) -> Result<Arc<dyn Store>, OpenError> {
    if rest.trim_matches('/').is_empty() {
        Ok(Arc::new(crate::MemoryStore::new()))
    } else {
        Err(UrlError::MemoryTakesNothing { rest: rest.to_owned() }.into())
    }
}

#[cfg(feature = "sqlite")]
fn sqlite_path(rest: &str) -> Result<&std::path::Path, UrlError> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    match path {
        "" => Err(UrlError::NoPath),
        ":memory:" => Err(UrlError::SqliteInMemory),
        // Other programs read parameters there; a file of that name would be a surprise.
        _ if path.contains('?') => Err(UrlError::Parameters { path: path.to_owned() }),
        _ => Ok(std::path::Path::new(path)),
    }
}

/// Why [`open`] gave no store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The text names no store of this build: a mistake in the settings.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The store is named but could not be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What is wrong with the URL of a store. No variant holds more of the URL than can be shown: never a password.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// There is no `:` and so no scheme.
    #[error("`{text}` names no store, which is one of {}; for a file say sqlite:{text}", Known)]
    NoScheme {
        /// The whole text.
        text: String,
    },
    /// No store of this build has that scheme.
    #[error("this build has no store `{scheme}:`, only {}", Known)]
    UnknownScheme {
        /// What stands before the first `:`.
        scheme: String,
    },
    /// No counter of this build has that name.
    #[error("this build takes over no counter from `{source_name}:`, only from {known}")]
    UnknownCounter {
        /// What stands before the first `:`.
        source_name: String,
        /// The forms that this build takes.
        known: String,
    },
    /// `sqlite:` alone.
    #[error("sqlite: needs the path of a file, such as sqlite:/var/lib/snowmint/leases.db")]
    NoPath,
    /// `sqlite::memory:`.
    #[error(
        "sqlite::memory: would be forgotten at the end of the process; say memory: if that is what you want"
    )]
    SqliteInMemory,
    /// A `?` in the path of a file.
    #[error("sqlite: takes a path and no parameters; take the `?` and what follows out of `{path}`")]
    Parameters {
        /// What stands after the scheme.
        path: String,
    },
    /// The file that should hold the password does not.
    #[error("password_file {path}: {problem}")]
    PasswordFile {
        /// The file.
        path: String,
        /// What is wrong with it; nothing of what it holds.
        problem: String,
    },
    /// A part of the URL of a store on the network is missing, wrong or unknown.
    #[error("{scheme}: {problem}")]
    Malformed {
        /// What stands before the first `:`.
        scheme: String,
        /// What is wrong and what would be right; nothing of what may be a password.
        problem: String,
    },
    /// Something after `memory:`.
    #[error("memory: takes nothing after it, found `{rest}`")]
    MemoryTakesNothing {
        /// What stands there.
        rest: String,
    },
}

/// Writes the forms of [`KNOWN`].
struct Known;

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&if KNOWN.is_empty() { "no store at all".to_owned() } else { KNOWN.join(", ") })
    }
}

#[cfg(all(test, feature = "memory", feature = "sqlite"))]
mod tests {
    use super::*;

    async fn refused(url: &str) -> String {
        match open(url).await {
            Err(error @ OpenError::Url(_)) => error.to_string(),
            other => panic!("{url}: {other:?}"),
        }
    }

    #[tokio::test]
    async fn a_url_that_names_no_store_says_what_would() {
        let unknown = refused("mongodb://root:secret@host/db").await;
        assert!(
            unknown.starts_with("this build has no store `mongodb:`, only memory:, sqlite:PATH"),
            "{unknown}"
        );
        assert!(!unknown.contains("secret"), "{unknown}");
        assert!(refused("leases.db").await.ends_with("for a file say sqlite:leases.db"));
        assert!(refused("sqlite:").await.contains("needs the path"));
        assert!(refused("sqlite://").await.contains("needs the path"));
        assert!(refused("sqlite::memory:").await.contains("say memory:"));
        assert!(refused("sqlite:a.db?mode=ro").await.contains("no parameters"));
        assert!(refused("memory:7").await.contains("found `7`"));
    }

    #[tokio::test]
    async fn both_spellings_of_a_path_open_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        for url in [format!("sqlite:{}", path.display()), format!("sqlite://{}", path.display())] {
            assert_eq!(open(&url).await.unwrap().describe(), format!("sqlite:{}", path.display()));
        }
        assert_eq!(open("memory:").await.unwrap().describe(), "memory:");
    }

    #[tokio::test]
    async fn a_store_that_cannot_be_opened_is_no_fault_of_the_url() {
        let folder = tempfile::tempdir().unwrap();
        let opened = open(&format!("sqlite:{}", folder.path().display())).await;
        assert!(matches!(opened, Err(OpenError::Store(_))), "{opened:?}");
    }
}
