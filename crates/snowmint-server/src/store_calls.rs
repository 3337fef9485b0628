//! The calls of this node to its store: how long each took, by operation and result. A call waits for a
//! disk or the network, beside which that costs nothing.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use snowmint_store::{Expected, Key, Store, StoreError, Swap, Versioned};
use tokio::time::Instant;

use crate::histogram::Histogram;

/// The upper bounds of the time of a call, in microseconds: from memory to the limit of a caller.
const BOUNDS_US: [u64; 14] = [
    500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000,
];

/// What a call does, under the names of [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Load,
    CompareAndSet,
    List,
    Add,
    UnixMs,
}

impl Operation {
    const ALL: [(Self, &str); 5] = [
        (Self::Load, "load"),
        (Self::CompareAndSet, "compare_and_set"),
        (Self::List, "list"),
        (Self::Add, "add"),
        (Self::UnixMs, "unix_ms"),
    ];
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallResult {
    Ok,
    /// Another node was faster.
    Conflict,
    Error,
    /// The caller did not wait any longer.
    Timeout,
}

impl CallResult {
    const ALL: [(Self, &str); 4] =
        [(Self::Ok, "ok"), (Self::Conflict, "conflict"), (Self::Error, "error"), (Self::Timeout, "timeout")];
}

/// The times of all calls since the start.
#[derive(Debug)]
pub struct StoreCalls {
    histograms: [[Histogram; CallResult::ALL.len()]; Operation::ALL.len()],
    slowest_us: AtomicU64,
}

/// The calls that took place so far, all operations together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallTotals {
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) took_us: u64,
}

impl CallTotals {
    /// Returns the calls since an earlier instant.
    pub(crate) const fn since(self, before: Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(before.calls),
            failed: self.failed.saturating_sub(before.failed),
            took_us: self.took_us.saturating_sub(before.took_us),
        }
    }
}

impl Default for StoreCalls {
    fn default() -> Self {
        let of_operation = |_| CallResult::ALL.map(|_| Histogram::new(&BOUNDS_US));
        Self { histograms: Operation::ALL.map(of_operation), slowest_us: AtomicU64::default() }
    }
}

impl StoreCalls {
    fn record(&self, operation: Operation, result: CallResult, took: Duration) {
        self.histograms[operation as usize][result as usize].record(1, took);
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.slowest_us.fetch_max(us, Ordering::Relaxed);
    }

    /// Returns each histogram, with the names of its operation and result.
    pub(crate) fn histograms(&self) -> impl Iterator<Item = (&'static str, &'static str, &Histogram)> {
        let of_operation = Operation::ALL.iter().zip(&self.histograms);
        of_operation.flat_map(|((_, operation), all)| {
            CallResult::ALL.iter().zip(all).map(move |((_, result), it)| (*operation, *result, it))
        })
    }

    /// Returns the sums of all calls.
    pub(crate) fn totals(&self) -> CallTotals {
        let mut totals = CallTotals::default();
        for all in &self.histograms {
            for ((result, _), histogram) in CallResult::ALL.iter().zip(all) {
                let (calls, took_us) = histogram.totals();
                totals.calls += calls;
                totals.took_us = totals.took_us.saturating_add(took_us);
                if matches!(result, CallResult::Error | CallResult::Timeout) {
                    totals.failed += calls;
                }
            }
        }
        totals
    }

    /// Returns the time of the slowest call since the last time this was asked, in microseconds.
    pub(crate) fn take_slowest_us(&self) -> u64 {
        self.slowest_us.swap(0, Ordering::Relaxed)
    }
}

/// A store whose calls are timed, as their callers see them.
#[derive(Debug)]
pub struct TimedStore {
    inner: Arc<dyn Store>,
    calls: Arc<StoreCalls>,
}

impl TimedStore {
    /// Wraps a store.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, calls: Arc::default() }
    }

    /// Returns the times of its calls.
    pub fn calls(&self) -> Arc<StoreCalls> {
        Arc::clone(&self.calls)
    }

    async fn time<T>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, StoreError>>,
        result_of: impl FnOnce(&T) -> CallResult,
    ) -> Result<T, StoreError> {
        let mut timed =
            Timed { calls: &self.calls, operation, began: Instant::now(), result: CallResult::Timeout };
        let answer = call.await;
        timed.result = answer.as_ref().map_or(CallResult::Error, result_of);
        answer
    }
}

/// A call in progress. It is recorded when it ends, or when its caller drops it.
struct Timed<'a> {
    calls: &'a StoreCalls,
    operation: Operation,
    began: Instant,
    result: CallResult,
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        self.calls.record(self.operation, self.result, self.began.elapsed());
    }
}

const fn ok<T>(_: &T) -> CallResult {
    CallResult::Ok
}

#[async_trait]
impl Store for TimedStore {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        self.time(Operation::Load, self.inner.load(key), ok).await
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        let call = self.inner.compare_and_set(key, expected, value);
        self.time(Operation::CompareAndSet, call, |swap| match swap {
            Swap::Done(_) => CallResult::Ok,
            Swap::Conflict => CallResult::Conflict,
        })
        .await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        self.time(Operation::List, self.inner.list(prefix), ok).await
    }

    async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
        self.time(Operation::Add, self.inner.add(key, count), ok).await
    }

    async fn unix_ms(&self) -> Result<Option<u64>, StoreError> {
        self.time(Operation::UnixMs, self.inner.unix_ms(), ok).await
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&*self.inner)
    }
}

#[cfg(test)]
mod tests {
    use snowmint_store::{MemoryStore, StoreErrorKind, Visibility};

    use super::*;

    /// A store that answers after a second, and fails for the key `bad`.
    #[derive(Debug)]
    struct Slow(MemoryStore);

    #[async_trait]
    impl Store for Slow {
        async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if key.as_str() == "bad" {
                return Err(StoreError::new(StoreErrorKind::Other, "load", self.describe(), "planted"));
            }
            self.0.load(key).await
        }

        async fn compare_and_set(&self, key: &Key, of: Expected, value: &[u8]) -> Result<Swap, StoreError> {
            self.0.compare_and_set(key, of, value).await
        }

        async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
            self.0.list(prefix).await
        }

        fn describe(&self) -> String {
            self.0.describe()
        }

        fn inner(&self) -> Option<&dyn Store> {
            Some(&self.0)
        }
    }

    /// Goal: every call counts once, with its result and its time, also one that its caller gave up; the rest
    /// of the store is as it was. Method: calls of each result on a slow store, under the clock of the
    /// runtime.
    #[tokio::test(start_paused = true)]
    async fn each_call_counts_once_by_operation_and_result() {
        let store = TimedStore::new(Arc::new(Slow(MemoryStore::new())));
        let (calls, good, bad) = (store.calls(), Key::new("good").unwrap(), Key::new("bad").unwrap());
        store.load(&good).await.unwrap();
        store.load(&bad).await.unwrap_err();
        tokio::time::timeout(Duration::from_millis(300), store.load(&good)).await.unwrap_err();
        let set = async || store.compare_and_set(&good, Expected::Absent, b"1").await.unwrap();
        assert!(matches!([set().await, set().await], [Swap::Done(_), Swap::Conflict]));
        assert_eq!(store.add(&good, NonZeroU64::MIN).await.unwrap(), 1);
        store.list("").await.unwrap();
        store.unix_ms().await.unwrap();
        let all = calls.histograms().map(|(operation, result, it)| (operation, result, it.snapshot()));
        let some = all.map(|(operation, result, (seconds, count, _))| (operation, result, count, seconds));
        let some: Vec<_> = some.filter(|(.., count, _)| *count > 0).collect();
        let wanted = [
            ("load", "ok", 1, 1.0),
            ("load", "error", 1, 1.0),
            ("load", "timeout", 1, 0.3),
            ("compare_and_set", "ok", 1, 0.0),
            ("compare_and_set", "conflict", 1, 0.0),
            ("list", "ok", 1, 0.0),
            ("add", "ok", 1, 1.0),
            ("unix_ms", "ok", 1, 0.0),
        ];
        assert_eq!(some, wanted);
        assert_eq!(calls.totals(), CallTotals { calls: 8, failed: 2, took_us: 3_300_000 });
        assert_eq!((calls.take_slowest_us(), calls.take_slowest_us()), (1_000_000, 0));
        assert_eq!(store.visibility(), Visibility::Process);
    }
}
