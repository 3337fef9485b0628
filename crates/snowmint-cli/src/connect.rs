//! Connects a command to its store, waits until its writes have settled, and waits for a lease.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use snowmint_cluster::audit;
use snowmint_cluster::lease::{Record, Tag};
use snowmint_cluster::{LeaseError, LeaseStatus, Leases};
use snowmint_store::{
    Expected, Key, OpenError, Store, StoreError, StoreErrorKind, Swap, Versioned, Visibility,
};

use crate::error::{Failure, report};
use crate::flags;

/// The flags that name the store.
#[derive(Debug, clap::Args)]
pub(crate) struct StoreArgs {
    /// Store; default: the file snowmint.db in the data directory
    #[arg(long, value_name = "URL", env = "SNOWMINT_STORE", hide_env_values = true, global = true)]
    store: Option<String>,
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = "./snowmint-data", env = "SNOWMINT_DATA", global = true)]
    data: String,
}

impl StoreArgs {
    pub(crate) fn url(&self) -> String {
        flags::store_url(self.store.as_deref(), &self.data)
    }

    /// Checks the flags without opening the store.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        flags::check_data(self.store.as_deref(), &self.data)
    }

    /// Opens the store, runs `change`, and returns its result once everything that it wrote has settled.
    pub(crate) async fn change<T>(
        &self,
        change: impl AsyncFnOnce(Arc<dyn Store>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let store = Arc::new(TrackedStore::new(self.open().await?));
        let changed = change(Arc::clone(&store) as _).await?;
        store.settle().await?;
        Ok(changed)
    }

    /// Like [`change`](Self::change), but rejects a store that does not outlive this process.
    pub(crate) async fn change_persistent<T>(
        &self,
        change: impl AsyncFnOnce(Arc<dyn Store>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if self.url().starts_with("memory:") {
            let why = "memory: does not outlive this command: name a store that keeps its records";
            return Err(Failure::flag("--store", why));
        }
        self.change(change).await
    }

    /// Opens the store, but does not create a missing SQLite file.
    pub(crate) async fn open(&self) -> Result<Arc<dyn Store>, Failure> {
        open(&self.url_of_store()?).await
    }

    /// Like [`open`](Self::open), but also opens a store that is read-only.
    pub(crate) async fn open_read_only(&self) -> Result<Arc<dyn Store>, Failure> {
        open_read_only(&self.url_of_store()?).await
    }

    fn url_of_store(&self) -> Result<String, Failure> {
        let url = self.url();
        self.check()?;
        if let Some(path) = url.strip_prefix("sqlite:")
            && !std::path::Path::new(path.trim_start_matches("//")).exists()
        {
            return Err(Failure::runtime(format!(
                "data file {path} not found: name the store with --store or --data, or create it with `snowmint store init`"
            )));
        }
        Ok(url)
    }
}

/// Opens the store of a URL.
pub(crate) async fn open(url: &str) -> Result<Arc<dyn Store>, Failure> {
    snowmint_store::open(url).await.map_err(open_failure)
}

/// Opens the store of a URL to read it, even if it cannot be written.
async fn open_read_only(url: &str) -> Result<Arc<dyn Store>, Failure> {
    snowmint_store::open_to_read(url).await.map_err(open_failure)
}

/// An invalid URL is a usage error; a store that does not open is a runtime error.
pub(crate) fn open_failure(error: OpenError) -> Failure {
    match error {
        OpenError::Url(error) => Failure::flag("--store", error),
        error => Failure::runtime(error),
    }
}

/// A store that remembers what a command wrote, so that the command can wait until it has settled.
///
/// A failover can take back a write that has not settled, so a command reports success only after [`settle`](Self::settle).
#[derive(Debug)]
pub(crate) struct TrackedStore {
    store: Arc<dyn Store>,
    /// The value that must be found again, by key.
    written: Mutex<BTreeMap<Key, Vec<u8>>>,
}

impl TrackedStore {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, written: Mutex::default() }
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<Key, Vec<u8>>> {
        // Each change is one insertion: a panic elsewhere leaves the map whole.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything that was written has settled. Returns at once if the store loses no acknowledged writes.
    pub(crate) async fn settle(&self) -> Result<(), Failure> {
        let written = std::mem::take(&mut *self.written());
        let may_lose = self.store.may_lose();
        if may_lose.is_zero() || written.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(may_lose).await;
        for (key, value) in written {
            let found = self.store.load(&key).await.map_err(Failure::runtime)?;
            if !found.is_some_and(|found| follows(&key, &value, &found.value)) {
                return Err(Failure::runtime(format!(
                    "{} lost {key} after acknowledging it (may_lose={may_lose:?}), or somebody else changed it since: run this \
                     command again",
                    self.store.describe()
                )));
            }
        }
        Ok(())
    }
}

/// Returns whether `found` shows that `written` was not lost: it is the same value, or a later one.
fn follows(key: &Key, written: &[u8], found: &[u8]) -> bool {
    let number = |value| std::str::from_utf8(value).ok()?.parse::<u64>().ok();
    let folder = key.as_str().split_once('/').map_or("", |(folder, _)| folder);
    found == written
        || match folder {
            "segments" => number(found) >= number(written),
            // A lease that another node took since begins where the written one ends.
            "workers" => match (Record::from_bytes(written), Record::from_bytes(found)) {
                (Ok(written), Ok(found)) => {
                    found.from_unix_ms.is_some_and(|from| from >= written.until_unix_ms)
                }
                _ => false,
            },
            "audit" => audit::follows(written, found),
            // A hint only: nodes find the change without it too.
            "versions" => true,
            _ => false,
        }
}

#[async_trait]
impl Store for TrackedStore {
    /// Remembers namespaces that are only read, too: another command may have written them a moment ago.
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        let found = self.store.load(key).await?;
        if let Some(found) = &found
            && key.as_str().starts_with("namespaces/")
        {
            self.written().insert(key.clone(), found.value.clone());
        }
        Ok(found)
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        let swap = self.store.compare_and_set(key, expected, value).await;
        let unknown = |error: &StoreError| error.kind() == StoreErrorKind::OutcomeUnknown;
        if matches!(swap, Ok(Swap::Done(_))) || swap.as_ref().is_err_and(unknown) {
            self.written().insert(key.clone(), value.to_vec());
        }
        swap
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        self.store.list(prefix).await
    }

    async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
        let before = self.store.add(key, count).await?;
        self.written().insert(key.clone(), before.saturating_add(count.get()).to_string().into_bytes());
        Ok(before)
    }

    async fn unix_ms(&self) -> Result<Option<u64>, StoreError> {
        self.store.unix_ms().await
    }

    fn skipped(&self) -> Vec<String> {
        self.store.skipped()
    }

    fn may_lose(&self) -> Duration {
        self.store.may_lose()
    }

    async fn checkpoint(&self) -> Result<(), StoreError> {
        self.store.checkpoint().await
    }

    fn server(&self) -> Option<String> {
        self.store.server()
    }

    fn visibility(&self) -> Visibility {
        self.store.visibility()
    }

    fn describe(&self) -> String {
        self.store.describe()
    }
}

/// How long to wait for a lease without a message.
pub(crate) const MOMENT: Duration = Duration::from_secs(1);
/// How often to repeat the message.
const REPEAT: Duration = Duration::from_secs(5);

/// Waits until a lease is held; `notify` receives the time waited so far and the reason, every few seconds.
pub(crate) async fn wait_for_lease(
    leases: &Leases,
    notify: impl Fn(Duration, &str),
) -> Result<LeaseStatus, LeaseError> {
    let mut waited = Duration::ZERO;
    loop {
        let patience = if waited.is_zero() { MOMENT } else { REPEAT };
        match tokio::time::timeout(patience, leases.ready()).await {
            Ok(settled) => return settled,
            Err(_) => waited += patience,
        }
        notify(waited, &why_no_lease(leases));
    }
}

/// Returns why there is no lease yet.
pub(crate) fn why_no_lease(leases: &Leases) -> String {
    let waiting = leases.status().waiting;
    waiting.unwrap_or_else(|| "the store has not answered yet".to_owned())
}

/// Returns a URL without user and password, also if it is invalid: a password may have any character that ends a part of a URL.
pub(crate) fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // A path, or what somebody took for a URL.
        let is_path = url.starts_with("sqlite:");
        return if is_path { url } else { url.rsplit_once('@').map_or(url, |(_, public)| public) }.to_owned();
    };
    let (base, query) = rest.split_once('?').map_or((rest, None), |(base, query)| (base, Some(query)));
    // A port has digits alone: anything else after the colon is a password, which may go on behind the `?`.
    let hosts = base.split('/').next().unwrap_or(base);
    let has_ports = |hosts: &str| {
        let ports = hosts.split(',').filter_map(|host| host.rsplit_once(':'));
        ports
            .into_iter()
            .all(|(_, port)| port.ends_with(']') || port.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let (base, query) = match base.rsplit_once('@') {
        Some((_, public)) => (public, query),
        None if has_ports(hosts) => (base, query),
        None => rest.rsplit_once('@').map_or((rest, None), |(_, public)| (public, None)),
    };
    let mut shown = format!("{scheme}://{base}");
    for (nth, parameter) in query.into_iter().flat_map(|query| query.split('&')).enumerate() {
        shown.push(if nth == 0 { '?' } else { '&' });
        let name = parameter.split('=').next().unwrap_or(parameter);
        let is_secret =
            ["pass", "secret", "token"].iter().any(|word| name.to_ascii_lowercase().contains(word));
        // A file that holds the password is no secret.
        if is_secret && !name.ends_with("_file") {
            shown.push_str(name);
            shown.push_str("=...");
        } else {
            shown.push_str(parameter);
        }
    }
    shown
}

/// Reports the records that lists of the store skipped.
pub(crate) fn warn_of_skipped(store: &dyn Store) {
    for what in store.skipped() {
        report("warning", &format!("skipped {what}"));
    }
}

/// Returns a fresh tag: 128 random bits of the standard library's seeded hasher.
pub(crate) fn random_tag() -> Tag {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    let half = || u128::from(RandomState::new().build_hasher().finish());
    Tag(half() << 64 | half())
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowmint_cluster::Holder;
    use snowmint_cluster::lease::Tag;
    use snowmint_store::MemoryStore;

    /// A store in memory that may lose what it acknowledged.
    #[derive(Debug)]
    struct Forgetful(MemoryStore, Duration);

    const MAY_LOSE: Duration = Duration::from_millis(20);

    #[async_trait]
    impl Store for Forgetful {
        async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
            self.0.load(key).await
        }

        async fn compare_and_set(&self, key: &Key, at: Expected, value: &[u8]) -> Result<Swap, StoreError> {
            self.0.compare_and_set(key, at, value).await
        }

        async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
            self.0.list(prefix).await
        }

        fn may_lose(&self) -> Duration {
            self.1
        }

        fn describe(&self) -> String {
            "forgetful".to_owned()
        }
    }

    fn lease(tag: u128, from_unix_ms: u64, until_unix_ms: u64) -> Vec<u8> {
        let holder = Holder::new("n").unwrap();
        Record { holder, from_unix_ms: Some(from_unix_ms), until_unix_ms, tag: Tag(tag) }.to_bytes()
    }

    async fn put(store: &dyn Store, key: &Key, value: &[u8]) {
        let at = store.load(key).await.unwrap();
        let at = at.map_or(Expected::Absent, |at| Expected::Revision(at.revision));
        assert!(matches!(store.compare_and_set(key, at, value).await.unwrap(), Swap::Done(_)));
    }

    /// Goal: a command succeeds only once its writes have settled; a write that a failover takes back is an error. Method: each
    /// kind of record is written, and is then found unchanged, older, and overwritten by a node.
    #[tokio::test]
    async fn a_write_that_a_failover_takes_back_is_an_error() {
        let written = lease(2, 5000, 5000);
        for (key, value, older, over) in [
            ("segments/n", &b"70"[..], &b"69"[..], Some(&b"90"[..])),
            ("namespaces/n", b"new", b"old", None),
            ("workers/p/0000000001", &written, &lease(1, 4000, 5000), Some(&lease(3, 5000, 9000))),
            // The holder renewed the lease that was to be taken from it.
            ("workers/p/0000000001", &written, &lease(1, 4500, 9000), None),
        ] {
            let inner: Arc<dyn Store> = Arc::new(Forgetful(MemoryStore::new(), MAY_LOSE));
            let store = TrackedStore::new(Arc::clone(&inner));
            let key = Key::new(key).unwrap();
            for (found, is_done) in [(Some(value), true), (Some(older), false), (over, true)] {
                let Some(found) = found else { continue };
                put(&store, &key, value).await;
                put(&*inner, &key, found).await;
                let began = tokio::time::Instant::now();
                let settled = store.settle().await;
                assert_eq!(settled.is_ok(), is_done, "{key} {settled:?}");
                assert!(began.elapsed() >= MAY_LOSE);
            }
        }
    }

    /// Goal: no wait if nothing was written, or if the store loses nothing.
    #[tokio::test]
    async fn only_writes_that_may_be_lost_are_waited_for() {
        // If it waited, the test would never end.
        let forgetful = Forgetful(MemoryStore::new(), Duration::MAX);
        TrackedStore::new(Arc::new(forgetful)).settle().await.unwrap();
        let store = TrackedStore::new(Arc::new(MemoryStore::new()));
        put(&store, &Key::new("segments/n").unwrap(), b"7").await;
        store.settle().await.unwrap();
    }

    #[test]
    fn no_password_is_shown() {
        for (url, expected) in [
            ("redis://user:p%40ss@host:6379/1?prefix=x", "redis://host:6379/1?prefix=x"),
            ("etcd://a:1,b:2", "etcd://a:1,b:2"),
            ("postgres://u@h?tls=on", "postgres://h?tls=on"),
            ("leaf:mysql://leaf:p@db/leaf?tag=a@b", "leaf:mysql://db/leaf?tag=a@b"),
            ("sqlite:/var/a@b.db", "sqlite:/var/a@b.db"),
            ("postgres://u:p/w@h:1/db", "postgres://h:1/db"),
            ("redis://:p?w@h", "redis://h"),
            ("redis://[::1]:6379,h", "redis://[::1]:6379,h"),
            ("mysql://h/db?password=p&tls=on", "mysql://h/db?password=...&tls=on"),
            ("me:secret@db", "db"),
        ] {
            assert_eq!(without_credentials(url), expected);
        }
    }
}
