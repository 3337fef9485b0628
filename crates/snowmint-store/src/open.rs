//! Opens a store by its URL. A new backend is a variant of [`StoreScheme`]: it does not compile without its
//! properties there and here. ARCHITECTURE.md, "How to add", lists the places outside of this crate.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::identity::IdentifiedStore;
use crate::url_scheme::StoreScheme;
use crate::{OpenError, Store, StoreId, UrlError};

/// A future on the heap, which may be sent to another thread.
///
/// The body of a function that returns one is compiled once, in its own crate. Each crate that awaits an
/// `async fn` compiles it again, with everything that it awaits: the clients of all stores.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Opens the store of a URL, such as `memory:`, `sqlite:PATH` or `etcd://HOST,HOST`.
///
/// `sqlite:` is followed by a path, absolute or relative to the working directory, without escapes;
/// `sqlite://PATH` means the same. `memory:` creates a new, empty store at each call. The page of each other
/// store type describes its URL.
///
/// A URL without a password takes it from the environment variable `SNOWMINT_STORE_PASSWORD`. With the
/// parameter `environment=no` it does not, for a URL that somebody else wrote.
///
/// The first call writes the identity of the store, if it has none: see [`Store::identity`].
///
/// # Errors
///
/// [`OpenError::Url`] if the URL is invalid or names a store that this build lacks. [`OpenError::Store`] if
/// the store could not be opened.
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
    Box::pin(async move { Ok(Arc::new(IdentifiedStore::new(open_store(url).await?)) as Arc<dyn Store>) })
}

/// Opens the store of a URL if it has this identity.
///
/// # Errors
///
/// As for [`open`], and [`OpenError::AnotherStore`] if the store has another identity, or none.
///
/// # Cancel safety
///
/// As for [`open`].
pub fn open_expecting(url: &str, id: StoreId) -> BoxFuture<'_, Result<Arc<dyn Store>, OpenError>> {
    Box::pin(async move {
        Ok(Arc::new(IdentifiedStore::expecting(open_store(url).await?, id).await?) as Arc<dyn Store>)
    })
}

/// Opens a store that holds exactly the records that its callers write, without an identity: for tests of
/// backends.
///
/// # Errors
///
/// As for [`open`].
#[doc(hidden)]
pub fn open_backend(url: &str) -> BoxFuture<'_, Result<Arc<dyn Store>, OpenError>> {
    Box::pin(open_store(url))
}

/// Returns the value if this build has the store, and [`UrlError::UnknownScheme`] otherwise.
macro_rules! built {
    ($feature:tt, $url:ident, $value:expr) => {{
        #[cfg(feature = $feature)]
        let value = $value;
        #[cfg(not(feature = $feature))]
        let value = return Err(unknown($url).into());
        value
    }};
}

async fn open_store(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    Ok(match scheme(url)? {
        StoreScheme::Memory => built!("memory", url, {
            memory(url)?;
            Arc::new(crate::MemoryStore::new())
        }),
        StoreScheme::Sqlite => {
            built!("sqlite", url, Arc::new(crate::SqliteStore::open(sqlite_path(url)?).await?))
        }
        StoreScheme::Redis => built!("redis", url, Arc::new(crate::RedisStore::open(url).await?)),
        StoreScheme::Postgres => built!("postgres", url, Arc::new(crate::PostgresStore::open(url).await?)),
        StoreScheme::MySql => built!("mysql", url, Arc::new(crate::MySqlStore::open(url).await?)),
        StoreScheme::Etcd => built!("etcd", url, Arc::new(crate::EtcdStore::open(url).await?)),
        StoreScheme::ZooKeeper => built!("zookeeper", url, Arc::new(crate::ZooKeeperStore::open(url).await?)),
        StoreScheme::Kubernetes => {
            built!("kubernetes", url, Arc::new(crate::KubernetesStore::open(url).await?))
        }
    })
}

fn scheme(url: &str) -> Result<StoreScheme, UrlError> {
    StoreScheme::of_url(url).ok_or_else(|| unknown(url))
}

/// Returns the error for a URL whose scheme is missing, unknown, or not in this build.
fn unknown(url: &str) -> UrlError {
    match url.split_once(':') {
        Some((scheme, _)) => UrlError::UnknownScheme { scheme: scheme.to_owned() },
        None => UrlError::NoScheme { text: url.to_owned() },
    }
}

/// Opens a store for a tool that only looks. An SQLite file is opened even if it is read-only, and MySQL for
/// a user who may only read, or while its disk hangs: what it then shows may be undone by a crash. Writes
/// fail with [`StoreErrorKind::ReadOnly`](crate::StoreErrorKind::ReadOnly). No identity is written.
///
/// # Errors
///
/// As for [`open`].
///
/// # Cancel safety
///
/// As for [`open`].
pub fn open_to_read(url: &str) -> BoxFuture<'_, Result<Arc<dyn Store>, OpenError>> {
    Box::pin(async move {
        Ok(Arc::new(IdentifiedStore::to_read(open_store_to_read(url).await?)) as Arc<dyn Store>)
    })
}

async fn open_store_to_read(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    match open_store(url).await {
        Err(OpenError::Store(error)) => match scheme(url)? {
            #[cfg(feature = "sqlite")]
            StoreScheme::Sqlite if error.kind() == crate::StoreErrorKind::ReadOnly => {
                Ok(Arc::new(crate::SqliteStore::open_to_read(sqlite_path(url)?).await?))
            }
            // Opening commits a row, for which the user may lack the right, or the server the disk.
            #[cfg(feature = "mysql")]
            StoreScheme::MySql => Ok(Arc::new(crate::MySqlStore::open_to_read(url, error).await?)),
            _ => Err(OpenError::Store(error)),
        },
        opened => opened,
    }
}

/// Returns the objects that a store creates when it is first used: SQL statements for a DBA, or the names of
/// keys.
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
    Ok(match scheme(url)? {
        StoreScheme::Memory => built!("memory", url, {
            memory(url)?;
            "# Nothing: records are in the memory of the process.\n".to_owned()
        }),
        StoreScheme::Sqlite => built!("sqlite", url, crate::sqlite::schema(sqlite_path(url)?)?),
        StoreScheme::Redis => built!("redis", url, crate::redis::schema(url)?),
        StoreScheme::Postgres => built!("postgres", url, crate::postgres::schema(url)?),
        StoreScheme::MySql => built!("mysql", url, crate::mysql::schema(url)?),
        StoreScheme::Etcd => built!("etcd", url, crate::etcd::schema(url)?),
        StoreScheme::ZooKeeper => built!("zookeeper", url, crate::zookeeper::schema(url)?),
        StoreScheme::Kubernetes => built!("kubernetes", url, crate::kubernetes::schema(url)?),
    })
}

/// Returns the time span of its newest writes that a store may lose: the value of [`Store::may_lose`] once it
/// is open.
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
pub fn may_lose(url: &str) -> Result<Duration, UrlError> {
    Ok(match scheme(url)? {
        StoreScheme::Redis => built!("redis", url, crate::redis::may_lose(url)?),
        StoreScheme::Postgres => built!("postgres", url, crate::postgres::may_lose(url)?),
        StoreScheme::MySql => built!("mysql", url, crate::mysql::may_lose(url)?),
        // These keep every acknowledged write. The schema checks the URL.
        StoreScheme::Memory
        | StoreScheme::Sqlite
        | StoreScheme::Etcd
        | StoreScheme::ZooKeeper
        | StoreScheme::Kubernetes => schema(url).map(|_| Duration::ZERO)?,
    })
}

#[cfg(any(feature = "memory", feature = "sqlite"))]
fn after_scheme(url: &str) -> &str {
    url.split_once(':').map_or("", |(_, rest)| rest)
}

#[cfg(feature = "memory")]
fn memory(url: &str) -> Result<(), UrlError> {
    let rest = after_scheme(url);
    if rest.trim_matches('/').is_empty() {
        Ok(())
    } else {
        Err(UrlError::MemoryTakesNothing { rest: rest.to_owned() })
    }
}

#[cfg(feature = "sqlite")]
fn sqlite_path(url: &str) -> Result<&std::path::Path, UrlError> {
    let rest = after_scheme(url);
    let path = rest.strip_prefix("//").unwrap_or(rest);
    match path {
        "" => Err(UrlError::NoPath),
        ":memory:" => Err(UrlError::SqliteInMemory),
        // Other SQLite clients would read parameters after the `?`.
        _ if path.contains('?') => Err(UrlError::Parameters { path: path.to_owned() }),
        _ => Ok(std::path::Path::new(path)),
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
            ("valkey://h", 2000),
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
