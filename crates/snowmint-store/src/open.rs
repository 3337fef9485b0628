//! Opens a store by its URL.
//! A new backend is one line in [`KNOWN`] and one arm each in [`open`] and [`schema`].
//!
//! The URL also shows which processes see the records of the store, and so are coordinated by it.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::{Store, StoreError};

/// A future on the heap, which may be sent to another thread.
///
/// The body of a function that returns one is compiled once, in its own crate. Each crate that awaits an `async fn` compiles it
/// again, with everything that it awaits: the clients of all stores.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The URL forms that this build accepts, as an error lists them.
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

/// Opens the store of a URL, such as `memory:`, `sqlite:PATH` or `etcd://HOST,HOST`.
///
/// `sqlite:` is followed by a path, absolute or relative to the working directory, without escapes; `sqlite://PATH` means the
/// same. `memory:` creates a new, empty store at each call. The page of each other store type describes its URL.
///
/// # Errors
///
/// [`OpenError::Url`] if the URL is invalid or names a store that this build lacks. [`OpenError::Store`] if the store could not
/// be opened.
///
/// # Cancel safety
///
/// A dropped future leaves at most an empty store behind, which the next call uses.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = snowmint_store::open("memory:").await.unwrap();
/// assert_eq!(store.describe(), "memory:");
/// # });
/// ```
pub fn open(url: &str) -> BoxFuture<'_, Result<Arc<dyn Store>, OpenError>> {
    Box::pin(open_store(url))
}

#[allow(clippy::unused_async, reason = "a build without sqlite has nothing to wait for")]
async fn open_store(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    #[allow(unused_variables, reason = "a build without stores uses the scheme alone")]
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(UrlError::NoScheme { text: url.to_owned() }.into());
    };
    match scheme {
        #[cfg(feature = "memory")]
        "memory" => {
            memory(rest)?;
            Ok(Arc::new(crate::MemoryStore::new()))
        }
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

/// Opens a store for reading. An SQLite file is opened even if it is read-only; every write then fails with
/// [`StoreErrorKind::ReadOnly`](crate::StoreErrorKind::ReadOnly).
///
/// # Errors
///
/// As for [`open`].
///
/// # Cancel safety
///
/// As for [`open`].
pub fn open_to_read(url: &str) -> BoxFuture<'_, Result<Arc<dyn Store>, OpenError>> {
    Box::pin(open_store_to_read(url))
}

async fn open_store_to_read(url: &str) -> Result<Arc<dyn Store>, OpenError> {
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

/// Returns the objects that a store creates when it is first used: SQL statements for a DBA, or the names of keys.
///
/// Reads the URL and the files that it names; does not connect.
///
/// # Errors
///
/// [`UrlError`] for a URL that [`open`] would reject.
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
        "memory" => {
            memory(rest).map(|()| "# Nothing: records are in the memory of the process.\n".to_owned())
        }
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

/// Returns the time span of its newest writes that a store may lose: the value of [`Store::may_lose`] once it is open.
///
/// Reads the URL and the files that it names; does not connect.
///
/// # Errors
///
/// [`UrlError`] for a URL that [`open`] would reject.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// assert_eq!(snowmint_store::may_lose("memory:"), Ok(Duration::ZERO));
/// ```
#[allow(clippy::match_single_binding, reason = "a build without these stores has one arm")]
pub fn may_lose(url: &str) -> Result<Duration, UrlError> {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        #[cfg(feature = "redis")]
        Some("redis" | "rediss") => crate::redis::may_lose(url),
        #[cfg(feature = "postgres")]
        Some("postgres" | "postgresql") => crate::postgres::may_lose(url),
        #[cfg(feature = "mysql")]
        Some("mysql" | "mariadb") => crate::mysql::may_lose(url),
        // All other stores keep every acknowledged write.
        _ => schema(url).map(|_| Duration::ZERO),
    }
}

#[cfg(feature = "memory")]
fn memory(rest: &str) -> Result<(), UrlError> {
    if rest.trim_matches('/').is_empty() {
        Ok(())
    } else {
        Err(UrlError::MemoryTakesNothing { rest: rest.to_owned() })
    }
}

#[cfg(feature = "sqlite")]
fn sqlite_path(rest: &str) -> Result<&std::path::Path, UrlError> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    match path {
        "" => Err(UrlError::NoPath),
        ":memory:" => Err(UrlError::SqliteInMemory),
        // Other SQLite clients would read parameters after the `?`.
        _ if path.contains('?') => Err(UrlError::Parameters { path: path.to_owned() }),
        _ => Ok(std::path::Path::new(path)),
    }
}

/// The reason why [`open`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL is invalid: a mistake in the settings.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The URL is valid, and the store could not be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The error in the URL of a store. No variant contains a password.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// There is no `:` and so no scheme.
    #[error("invalid store `{text}`: expected one of {}; for a file, use sqlite:{text}", Known)]
    NoScheme {
        /// The whole text.
        text: String,
    },
    /// This build has no store with that scheme.
    #[error("unknown store `{scheme}:`: this build has {}", Known)]
    UnknownScheme {
        /// The text before the first `:`.
        scheme: String,
    },
    /// This build has no counter of that kind.
    #[error("unknown counter `{source_name}:`: this build has {known}")]
    UnknownCounter {
        /// The text before the first `:`.
        source_name: String,
        /// The forms that this build accepts.
        known: String,
    },
    /// `sqlite:` alone.
    #[error("sqlite: missing path: expected a file, such as sqlite:/var/lib/snowmint/leases.db")]
    NoPath,
    /// `sqlite::memory:`.
    #[error("sqlite::memory: keeps nothing after the process ends; use memory: if that is intended")]
    SqliteInMemory,
    /// A `?` in the path of a file.
    #[error(
        "sqlite: invalid path `{path}`: expected a path without parameters; remove the `?` and the text after it"
    )]
    Parameters {
        /// The text after the scheme.
        path: String,
    },
    /// The file of `password_file` contains no password.
    #[error("password_file {path}: {problem}")]
    PasswordFile {
        /// The file.
        path: String,
        /// What is wrong with it, without its content.
        problem: String,
    },
    /// A part of the URL of a store on the network is missing, invalid or unknown.
    #[error("{scheme}: {problem}")]
    Malformed {
        /// The text before the first `:`.
        scheme: String,
        /// What is wrong and what is expected, without anything that may be a password.
        problem: String,
    },
    /// Text after `memory:`.
    #[error("invalid store `memory:{rest}`: expected memory: alone")]
    MemoryTakesNothing {
        /// The text after it.
        rest: String,
    },
}

/// Displays the forms of [`KNOWN`].
struct Known;

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&if KNOWN.is_empty() { "none".to_owned() } else { KNOWN.join(", ") })
    }
}

/// The processes that see the records of a store. Ids are unique among those, and only among those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Visibility {
    /// This process alone.
    Process,
    /// The processes of one machine: a file.
    Machine,
    /// The URL names a loopback address or a Unix socket. That may be a separate server on each machine, or one server behind a
    /// proxy on each machine; the URL does not show which.
    Loopback,
    /// Every node that uses the store.
    Network,
}

impl Visibility {
    /// Returns the visibility of the store, or of the counter of another system, that a URL names.
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint_store::Visibility;
    /// assert_eq!(Visibility::of_url("sqlite:/var/lib/snowmint/leases.db"), Visibility::Machine);
    /// assert_eq!(Visibility::of_url("etcd://a,b,c"), Visibility::Network);
    /// assert_eq!(Visibility::of_url("tickets:mysql://localhost/ids"), Visibility::Loopback);
    /// ```
    pub fn of_url(url: &str) -> Self {
        match url.split_once(':') {
            Some(("memory", _)) => Self::Process,
            Some(("sqlite", _)) => Self::Machine,
            _ if leads_here(url) => Self::Loopback,
            _ => Self::Network,
        }
    }
}

/// Returns whether a URL names a host that is a different server on each machine.
fn leads_here(url: &str) -> bool {
    let (url, query) = url.split_once('?').unwrap_or((url, ""));
    if query.split('&').any(|parameter| parameter.starts_with("socket=")) {
        return true;
    }
    let Some((_, rest)) = url.split_once("//") else { return false };
    let authority = rest.split('/').next().unwrap_or(rest);
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    hosts.split(',').any(is_loopback)
}

/// Returns whether a host, with or without a port, is this machine. Connections to the unspecified address reach it too.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, _)) => name,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    match name.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(address) => address.is_loopback() || address.is_unspecified(),
        // Only the resolver takes `127.1` for an address.
        Err(_) => name == "localhost" || name.ends_with(".localhost") || name.starts_with("127."),
    }
}

impl fmt::Display for Visibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "this process only",
            Self::Machine | Self::Loopback => "the processes of this machine that use this store",
            Self::Network => "every node that uses this store",
        })
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
    async fn an_invalid_url_says_what_is_expected() {
        let unknown = refused("mongodb://root:secret@host/db").await;
        assert!(
            unknown.starts_with("unknown store `mongodb:`: this build has memory:, sqlite:PATH"),
            "{unknown}"
        );
        assert!(!unknown.contains("secret"), "{unknown}");
        assert!(refused("leases.db").await.ends_with("for a file, use sqlite:leases.db"));
        assert!(refused("sqlite:").await.contains("missing path"));
        assert!(refused("sqlite://").await.contains("missing path"));
        assert!(refused("sqlite::memory:").await.contains("use memory:"));
        assert!(refused("sqlite:a.db?mode=ro").await.contains("without parameters"));
        assert!(refused("memory:7").await.contains("`memory:7`"));
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

    #[cfg(all(feature = "redis", feature = "postgres", feature = "mysql", feature = "etcd"))]
    #[test]
    fn a_url_says_what_its_store_may_lose() {
        for (url, ms) in [
            ("memory:", 0),
            ("sqlite:a.db", 0),
            ("etcd://a:2379", 0),
            ("redis://h", 2000),
            ("rediss://h?may_lose=500ms", 500),
            ("postgres://h/db?may_lose=3s", 3000),
            ("mysql://h/db", 0),
            ("mariadb://h/db?may_lose=1s", 1000),
        ] {
            assert_eq!(may_lose(url), Ok(Duration::from_millis(ms)), "{url}");
        }
        for bad in
            ["leases.db", "mongodb://h", "redis://", "postgres://h/db?may_lose=2", "etcd://", "memory:7"]
        {
            assert!(may_lose(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_store_that_does_not_open_is_not_a_url_error() {
        let folder = tempfile::tempdir().unwrap();
        let opened = open(&format!("sqlite:{}", folder.path().display())).await;
        assert!(matches!(opened, Err(OpenError::Store(_))), "{opened:?}");
    }
}

#[cfg(test)]
mod visibility_tests {
    use super::*;

    #[test]
    fn a_loopback_address_is_visible_to_one_machine() {
        for here in [
            "mysql://localhost/ids",
            "mysql://u@LOCALHOST.:3307/ids",
            "postgres://127.8.0.1/ids",
            "etcd://[::1]:2379",
            "redis://[::ffff:127.0.0.1]:6379/0",
            "redis://0.0.0.0:6379",
            "tickets:mysql://root@127.0.0.1:3306/test?stub=a",
            "leaf:mysql://db.localhost/leaf?tag=x",
            "mysql://a,localhost/ids",
            "redis://127.1/0",
            "tinyid:mysql:///ids?biz_type=a&socket=/run/mysqld/mysqld.sock",
        ] {
            assert_eq!(Visibility::of_url(here), Visibility::Loopback, "{here}");
        }
        assert_eq!(Visibility::of_url("sqlite:/a.db"), Visibility::Machine);
        for network in [
            "mysql://db/ids",
            "mysql://localhost@db/ids",
            "mysql://a:3306,b:3306/localhost",
            "redis-counter:redis://10.0.0.1/0?counter=//localhost",
            "etcd://[fd00::1]:2379",
            "kubernetes:mint?server=https://localhost:6443",
            "zookeeper://localhost.example/x",
        ] {
            assert_eq!(Visibility::of_url(network), Visibility::Network, "{network}");
        }
        assert_eq!(Visibility::of_url("memory:"), Visibility::Process);
    }
}
