//! Defines `add` for every store: which values are numbers, which sums fit, and why a store refused an
//! addition. Also implements it by compare-and-set, for stores without an atomic addition.

use std::num::NonZeroU64;
use std::str;

use super::{Expected, Key, Store, Swap, Versioned};
use crate::error::Retries;
use crate::{StoreError, StoreErrorKind};

/// The greatest number: the maximum of a signed 64-bit column.
pub const MAX_NUMBER: u64 = i64::MAX as u64;

/// The name of the call in errors.
pub(crate) const OPERATION: &str = "add";

/// Returns the number that a value holds: digits without leading zeros, at most [`MAX_NUMBER`].
pub(crate) fn number(value: &[u8]) -> Option<u64> {
    let text = str::from_utf8(value).ok()?;
    let number: u64 = text.parse().ok()?;
    (number <= MAX_NUMBER && number.to_string() == text).then_some(number)
}

/// Returns the number in the record of a counter, and 0 if there is no record.
pub(crate) fn held<S: Store + ?Sized>(
    store: &S,
    key: &Key,
    record: Option<&Versioned>,
) -> Result<u64, StoreError> {
    let Some(record) = record else { return Ok(0) };
    number(&record.value).ok_or_else(|| {
        let text: String = String::from_utf8_lossy(&record.value).chars().take(40).collect();
        let cause = format!(
            "invalid counter: the record {key} holds {text:?}, expected a number from 0 to {MAX_NUMBER}; it was not \
             changed; use another key"
        );
        StoreError::new(StoreErrorKind::Corrupt, OPERATION, store.describe(), cause)
    })
}

/// Returns the number in the record of a counter, and that number plus `count`.
pub(crate) fn before_and_after<S: Store + ?Sized>(
    store: &S,
    key: &Key,
    record: Option<&Versioned>,
    count: NonZeroU64,
) -> Result<(u64, u64), StoreError> {
    let before = held(store, key, record)?;
    let after = before.checked_add(count.get()).filter(|after| *after <= MAX_NUMBER);
    let after = after.ok_or_else(|| {
        let cause = format!("the counter {key} is at {before}: {count} more would exceed {MAX_NUMBER}");
        StoreError::new(StoreErrorKind::Full, OPERATION, store.describe(), cause)
    })?;
    Ok((before, after))
}

/// Adds by an atomic step of the store. The step receives the addend and returns the number before, or `None`
/// if the store refused it; the record then shows why.
pub(crate) async fn in_one_step<S, F>(
    store: &S,
    key: &Key,
    count: NonZeroU64,
    step: impl Fn(i64) -> F + Send + Sync,
) -> Result<u64, StoreError>
where
    S: Store + ?Sized,
    F: Future<Output = Result<Option<u64>, StoreError>> + Send,
{
    let mut retries = Retries::new();
    loop {
        if let Ok(addend) = i64::try_from(count.get())
            && let Some(before) = step(addend).await?
        {
            return Ok(before);
        }
        let found = store.load(key).await?;
        before_and_after(store, key, found.as_ref(), count)?;
        // The record accepts the addition now, so another writer replaced it meanwhile.
        pause_before_retry(&mut retries, store, key).await?;
    }
}

/// Adds by loading and replacing the record until no other writer is faster.
pub(crate) async fn by_compare_and_set<S: Store + ?Sized>(
    store: &S,
    key: &Key,
    count: NonZeroU64,
) -> Result<u64, StoreError> {
    let mut retries = Retries::new();
    loop {
        let found = store.load(key).await?;
        let (before, after) = before_and_after(store, key, found.as_ref(), count)?;
        let expected = found.map_or(Expected::Absent, |record| Expected::Revision(record.revision));
        if let Swap::Done(_) = store.compare_and_set(key, expected, after.to_string().as_bytes()).await? {
            return Ok(before);
        }
        pause_before_retry(&mut retries, store, key).await?;
    }
}

/// Raises a counter to `least` if it holds less. Returns what it held.
pub(crate) async fn raise_to<S: Store + ?Sized>(store: &S, key: &Key, least: u64) -> Result<u64, StoreError> {
    let mut retries = Retries::new();
    loop {
        let found = store.load(key).await?;
        let before = held(store, key, found.as_ref())?;
        if before >= least {
            return Ok(before);
        }
        let expected = found.map_or(Expected::Absent, |record| Expected::Revision(record.revision));
        if let Swap::Done(_) = store.compare_and_set(key, expected, least.to_string().as_bytes()).await? {
            return Ok(before);
        }
        pause_before_retry(&mut retries, store, key).await?;
    }
}

/// Waits after another writer was faster, or fails when the call has retried for too long.
pub(crate) async fn pause_before_retry<S: Store + ?Sized>(
    retries: &mut Retries,
    store: &S,
    key: &Key,
) -> Result<(), StoreError> {
    retries.pause().await.map_err(|waited| {
        let cause = format!("other writers of {key} were faster {waited}; reserve more numbers at once, so that fewer calls collide");
        StoreError::new(StoreErrorKind::Unavailable, OPERATION, store.describe(), cause)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_numbers_are_numbers() {
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"9223372036854775807"), Some(MAX_NUMBER));
        let others: [&[u8]; 11] =
            [b"", b"-1", b"+1", b"01", b" 1", b"1 ", b"1\n", b"1\0", b"1.0", b"9223372036854775808", b"\xff"];
        for other in others {
            assert_eq!(number(other), None, "{other:?}");
        }
    }

    /// Goal: a call that always loses gives up in bounded time and says so. Method: a paused clock.
    #[tokio::test(start_paused = true)]
    async fn retries_end() {
        let (store, key) = (Losing, Key::new("counter").unwrap());
        let error = store.add(&key, NonZeroU64::MIN).await.unwrap_err();
        assert_eq!((error.kind(), error.operation()), (StoreErrorKind::Unavailable, "add"), "{error}");
        assert!(error.to_string().contains("for 5 s"), "{error}");
    }

    /// A store whose swaps all conflict.
    #[derive(Debug)]
    struct Losing;

    #[async_trait::async_trait]
    impl Store for Losing {
        async fn load(&self, _: &Key) -> Result<Option<Versioned>, StoreError> {
            Ok(None)
        }

        async fn compare_and_set(&self, _: &Key, _: Expected, _: &[u8]) -> Result<Swap, StoreError> {
            Ok(Swap::Conflict)
        }

        async fn list(&self, _: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
            Ok(Vec::new())
        }

        fn describe(&self) -> String {
            "losing:".to_owned()
        }
    }
}
