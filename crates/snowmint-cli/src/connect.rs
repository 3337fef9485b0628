//! The store that a command works on, and the wait for a lease in it.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use snowmint_cluster::lease::{Record, Tag};
use snowmint_cluster::{Keepers, LeaseFailure, LeaseStatus};
use snowmint_store::{
    Expected, Key, OpenError, Store, StoreError, StoreErrorKind, StoreReach, Swap, Versioned,
};

use crate::error::{Failure, tell};
use crate::flags;

/// Where leases are recorded.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// The store; without it the file snowmint.db in the data directory
    #[arg(long, value_name = "URL", env = "SNOWMINT_STORE", global = true)]
    store: Option<String>,
    /// The data directory
    #[arg(long, value_name = "DIR", default_value = "./snowmint-data", env = "SNOWMINT_DATA", global = true)]
    data: String,
}

impl Place {
    /// The store's URL.
    pub(crate) fn url(&self) -> String {
        flags::store_url(self.store.as_deref(), &self.data)
    }

    /// Checks what is known before anything is opened.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        flags::check_data(self.store.as_deref(), &self.data)
    }

    /// Opens the store for a command that changes it: returns what `change` did, once all of that has settled.
    pub(crate) async fn change<T>(
        &self,
        change: impl AsyncFnOnce(Arc<dyn Store>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let store = Arc::new(Changing::new(self.open().await?));
        let changed = change(Arc::clone(&store) as _).await?;
        store.settle().await?;
        Ok(changed)
    }

    /// As [`change`](Self::change), of what nodes are to find there.
    pub(crate) async fn change_for_nodes<T>(
        &self,
        change: impl AsyncFnOnce(Arc<dyn Store>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if self.url().starts_with("memory:") {
            let why = "memory: is forgotten when this command ends: name a store that keeps its records";
            return Err(Failure::flag("--store", why));
        }
        self.change(change).await
    }

    /// Opens the store; a file that is not there is not made by looking at it.
    pub(crate) async fn open(&self) -> Result<Arc<dyn Store>, Failure> {
        open(&self.url_of_store()?).await
    }

    /// As [`open`](Self::open), also where the store cannot be written.
    pub(crate) async fn open_to_read(&self) -> Result<Arc<dyn Store>, Failure> {
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

/// Opens the store of a URL to look at it, also where it cannot be written.
pub(crate) async fn open_read_only(url: &str) -> Result<Arc<dyn Store>, Failure> {
    snowmint_store::open_to_read(url).await.map_err(open_failure)
}

/// A URL that names no store is a mistake in the settings; a store that cannot be opened is the world's fault.
pub(crate) fn open_failure(error: OpenError) -> Failure {
    match error {
        OpenError::Url(error) => Failure::flag("--store", error),
        error => Failure::runtime(error),
    }
}

/// A store that notes what is written to it.
#[derive(Debug)]
pub(crate) struct Changing {
    store: Arc<dyn Store>,
    /// By key, the value that must be found again.
    written: Mutex<BTreeMap<Key, Vec<u8>>>,
}

impl Changing {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, written: Mutex::default() }
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<Key, Vec<u8>>> {
        // Each change is one insertion: a panic elsewhere leaves the map whole.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all that was written has settled. Returns at once for a store that keeps what it acknowledges.
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
                    "{} lost {key} after it had acknowledged it (may_lose={may_lose:?}), or another change followed: run this \
                     command again",
                    self.store.describe()
                )));
            }
        }
        Ok(())
    }
}

/// Whether a value shows that `written` was not lost: it is that, or was written over it.
fn follows(key: &Key, written: &[u8], found: &[u8]) -> bool {
    let number = |value| std::str::from_utf8(value).ok()?.parse::<u64>().ok();
    let folder = key.as_str().split_once('/').map_or("", |(folder, _)| folder);
    found == written
        || match folder {
            "segments" => number(found) >= number(written),
            // A lease that another node took begins where the one that was written ends.
            "workers" => match (Record::from_bytes(written), Record::from_bytes(found)) {
                (Ok(written), Ok(found)) => {
                    found.from_unix_ms.is_some_and(|from| from >= written.until_unix_ms)
                }
                _ => false,
            },
            // It tells nodes earlier of a change that they find anyway.
            "versions" => true,
            _ => false,
        }
}

#[async_trait]
impl Store for Changing {
    /// What a namespace is may be all that a command looks for: another one may have written it just now.
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

    fn reach(&self) -> StoreReach {
        self.store.reach()
    }

    fn describe(&self) -> String {
        self.store.describe()
    }
}

/// Longer than this and whoever waits wants to know why.
pub(crate) const MOMENT: Duration = Duration::from_secs(1);
/// How often to say it again.
const AGAIN: Duration = Duration::from_secs(5);

/// Waits until a lease is held, however long; `tell` hears every few seconds for how long it was waited, and why.
pub(crate) async fn wait_for_lease(
    keepers: &Keepers,
    tell: impl Fn(Duration, &str),
) -> Result<LeaseStatus, LeaseFailure> {
    let mut waited = Duration::ZERO;
    loop {
        let patience = if waited.is_zero() { MOMENT } else { AGAIN };
        match tokio::time::timeout(patience, keepers.ready()).await {
            Ok(settled) => return settled,
            Err(_) => waited += patience,
        }
        tell(waited, &why_no_lease(keepers));
    }
}

/// Why there is no lease yet.
pub(crate) fn why_no_lease(keepers: &Keepers) -> String {
    let waiting = keepers.status().waiting;
    waiting.unwrap_or_else(|| "the store has not answered yet".to_owned())
}

/// Says on standard error what lists of the store left out.
pub(crate) fn warn_of_skipped(store: &dyn Store) {
    for what in store.skipped() {
        tell("warning", &format!("skipped {what}"));
    }
}

/// A tag that nobody wrote before: 128 bits of the standard library's seeded hasher.
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

    /// Goal: a command is done once what it wrote has settled, and what a failover takes back is an error. Method: each kind of
    /// record is written, and is then as it was written, older, and written over by a node.
    #[tokio::test]
    async fn what_a_failover_takes_back_is_not_acknowledged() {
        let written = lease(2, 5000, 5000);
        for (key, value, older, over) in [
            ("segments/n", &b"70"[..], &b"69"[..], Some(&b"90"[..])),
            ("namespaces/n", b"new", b"old", None),
            ("workers/p/0000000001", &written, &lease(1, 4000, 5000), Some(&lease(3, 5000, 9000))),
            // The holder renewed the lease that was to be taken from it.
            ("workers/p/0000000001", &written, &lease(1, 4500, 9000), None),
        ] {
            let inner: Arc<dyn Store> = Arc::new(Forgetful(MemoryStore::new(), MAY_LOSE));
            let store = Changing::new(Arc::clone(&inner));
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

    /// Goal: nothing waits where nothing was written, or where nothing can be lost.
    #[tokio::test]
    async fn only_what_may_be_lost_is_waited_for() {
        // The test does not end before as much time has passed.
        let forgetful = Forgetful(MemoryStore::new(), Duration::MAX);
        Changing::new(Arc::new(forgetful)).settle().await.unwrap();
        let store = Changing::new(Arc::new(MemoryStore::new()));
        put(&store, &Key::new("segments/n").unwrap(), b"7").await;
        store.settle().await.unwrap();
    }
}
