//! Shared by the tests of leases: a store that can be cut off or stop answering, and a wait for an event.

#![allow(dead_code, reason = "no test uses all of it")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use snowmint_store::{Expected, Key, MemoryStore, Store, StoreError, StoreErrorKind, Swap, Versioned};

/// Waits until `look` finds something.
pub(crate) async fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..3000 {
        if let Some(found) = look() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not happen within 30 s");
}

/// A store that can be cut off: calls then fail as if the network were down.
#[derive(Debug, Default)]
pub(crate) struct CutOff {
    store: MemoryStore,
    failure: Mutex<Option<StoreErrorKind>>,
    silent: AtomicBool,
    may_lose: Duration,
}

impl CutOff {
    /// Makes a store that claims to lose writes up to this age.
    pub(crate) fn losing(may_lose: Duration) -> Self {
        Self { may_lose, ..Self::default() }
    }

    pub(crate) fn cut(&self, cut: bool) {
        self.fails_with(cut.then_some(StoreErrorKind::Unavailable));
    }

    pub(crate) fn fails_with(&self, failure: Option<StoreErrorKind>) {
        *self.failure.lock().unwrap() = failure;
    }

    /// Stops answering calls.
    pub(crate) fn fall_silent(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }

    async fn check(&self) -> Result<(), StoreError> {
        if self.silent.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        match *self.failure.lock().unwrap() {
            Some(kind) => Err(StoreError::new(kind, "call", "cut off", "unplugged")),
            None => Ok(()),
        }
    }
}

#[async_trait::async_trait]
impl Store for CutOff {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        self.check().await?;
        self.store.load(key).await
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        self.check().await?;
        self.store.compare_and_set(key, expected, value).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        self.check().await?;
        self.store.list(prefix).await
    }

    fn may_lose(&self) -> Duration {
        self.may_lose
    }

    fn describe(&self) -> String {
        "cut off".to_owned()
    }
}
