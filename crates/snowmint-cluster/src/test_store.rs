//! For unit tests: a store in memory whose writes get lost, or only their answers.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use snowmint_store::{Expected, Key, MemoryStore, Store, StoreError, StoreErrorKind, Swap, Versioned};

/// What happens to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The write does not take place, and gets no answer.
    LostBefore,
    /// The write takes place, and its answer is lost.
    LostDone,
    /// As `LostDone`; then the store is unreachable.
    LostDoneAndDown,
    /// The store is unreachable for this write.
    Refused,
}

/// A store in memory. Writes without a fate take place.
#[derive(Debug, Default)]
pub(crate) struct LostAnswers {
    pub(crate) inner: MemoryStore,
    fates: Mutex<VecDeque<Fate>>,
    is_down: AtomicBool,
}

impl LostAnswers {
    /// Sets the fates of the next writes.
    pub(crate) fn will(&self, fates: &[Fate]) {
        self.fates.lock().unwrap().extend(fates);
    }

    fn error(kind: StoreErrorKind) -> StoreError {
        StoreError::new(kind, "compare_and_set", "lost", "unplugged")
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.is_down.load(Ordering::SeqCst) {
            Err(Self::error(StoreErrorKind::Unavailable))
        } else {
            Ok(())
        }
    }
}

#[async_trait]
impl Store for LostAnswers {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        self.check()?;
        self.inner.load(key).await
    }

    async fn compare_and_set(&self, key: &Key, at: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        self.check()?;
        let fate = self.fates.lock().unwrap().pop_front();
        let lost = Err(Self::error(StoreErrorKind::OutcomeUnknown));
        match fate {
            None => self.inner.compare_and_set(key, at, value).await,
            Some(Fate::LostBefore) => lost,
            Some(Fate::LostDone) => self.inner.compare_and_set(key, at, value).await.and(lost),
            Some(Fate::LostDoneAndDown) => {
                self.is_down.store(true, Ordering::SeqCst);
                self.inner.compare_and_set(key, at, value).await.and(lost)
            }
            Some(Fate::Refused) => Err(Self::error(StoreErrorKind::Unavailable)),
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        self.check()?;
        self.inner.list(prefix).await
    }

    async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
        self.check()?;
        self.inner.add(key, count).await
    }

    fn describe(&self) -> String {
        "lost".to_owned()
    }
}
