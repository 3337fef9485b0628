//! Counters: where whole numbers are reserved, each for one caller and before it is used.
//! A record of a [`Store`] is one; a table or a key that another system left is another.

use std::fmt;
use std::num::NonZeroU64;
use std::str;
use std::sync::Arc;

use async_trait::async_trait;

use crate::{Expected, Key, Store, StoreError, StoreErrorKind, Swap, Versioned};

/// The greatest number: what a signed 64-bit column holds.
pub const MAX_NUMBER: u64 = i64::MAX as u64;

/// Numbers reserved for one caller: `first`, `first + step` and so on, `count` of them.
///
/// The last one is at most [`MAX_NUMBER`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Segment {
    first: u64,
    step: NonZeroU64,
    count: NonZeroU64,
}

impl Segment {
    /// A segment, or `None` where its last number would be beyond [`MAX_NUMBER`].
    pub fn new(first: u64, step: NonZeroU64, count: NonZeroU64) -> Option<Self> {
        let last = (count.get() - 1).checked_mul(step.get())?.checked_add(first)?;
        (last <= MAX_NUMBER).then_some(Self { first, step, count })
    }

    /// The smallest number.
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// The greatest number.
    pub const fn last(&self) -> u64 {
        self.first + (self.count.get() - 1) * self.step.get()
    }

    /// From one number to the next.
    pub const fn step(&self) -> NonZeroU64 {
        self.step
    }

    /// How many numbers there are.
    pub const fn count(&self) -> NonZeroU64 {
        self.count
    }
}

/// Where numbers are reserved.
///
/// # Contract
///
/// 1. A segment that [`reserve`](Self::reserve) returned is durable, and no number of it is in any other segment that
///    this counter ever returned, to anybody.
/// 2. A `reserve` that starts after another has returned gets greater numbers, whoever calls.
/// 3. An error, whatever its kind, costs at most numbers that nobody gets: it is always safe to call again.
///
/// A future may be dropped at any await; the numbers it would have got are then lost.
#[async_trait]
pub trait Counter: Send + Sync + fmt::Debug + 'static {
    /// Reserves `count` numbers, or fewer (but one at least) where the counter gives no more at once.
    ///
    /// # Errors
    ///
    /// The store's; [`StoreErrorKind::Full`] when the numbers up to [`MAX_NUMBER`] are used up.
    async fn reserve(&self, count: NonZeroU64) -> Result<Segment, StoreError>;

    /// Gives back the upper end of a segment, `unused`, if nobody reserved after it: whether it was taken back.
    ///
    /// # Errors
    ///
    /// The store's; the numbers are then lost, or will be reserved again, but no number twice.
    async fn give_back(&self, unused: Segment) -> Result<bool, StoreError> {
        let _ = unused;
        Ok(false)
    }

    /// What and where this counter is, for logs and errors. Never a password.
    fn describe(&self) -> String;
}

/// What [`Store::add`] is where a store has no better way: load, and compare-and-set until nobody was in between.
///
/// An absent record counts as 0. A lost answer costs the numbers, so an unknown outcome is the caller's error.
pub(crate) async fn add_by_compare_and_set<S: Store + ?Sized>(
    store: &S,
    key: &Key,
    count: NonZeroU64,
) -> Result<u64, StoreError> {
    loop {
        let found = store.load(key).await?;
        let (before, expected) = match &found {
            None => (0, Expected::Absent),
            Some(record) => (count_of(store, key, record)?, Expected::Revision(record.revision)),
        };
        let after = sum(store, key, before, count)?;
        if let Swap::Done(_) = store.compare_and_set(key, expected, after.to_string().as_bytes()).await? {
            return Ok(before);
        }
    }
}

/// What a counter's record holds: a number in decimal.
pub(crate) fn count_of<S: Store + ?Sized>(
    store: &S,
    key: &Key,
    record: &Versioned,
) -> Result<u64, StoreError> {
    let text = str::from_utf8(&record.value).ok();
    let number = text.and_then(|text| text.parse().ok()).filter(|number| *number <= MAX_NUMBER);
    number.ok_or_else(|| not_a_number(store, key, &record.value))
}

/// The error for a record that holds something else than a number.
pub(crate) fn not_a_number<S: Store + ?Sized>(store: &S, key: &Key, value: &[u8]) -> StoreError {
    let text: String = String::from_utf8_lossy(value).chars().take(40).collect();
    let cause = format!(
        "the record of {key} holds {text:?}, which is no number from 0 to {MAX_NUMBER}: it is no counter, take another key"
    );
    StoreError::new(StoreErrorKind::Corrupt, "add", store.describe(), cause)
}

/// `before + count`, if it is still a number.
pub(crate) fn sum<S: Store + ?Sized>(
    store: &S,
    key: &Key,
    before: u64,
    count: NonZeroU64,
) -> Result<u64, StoreError> {
    before.checked_add(count.get()).filter(|after| *after <= MAX_NUMBER).ok_or_else(|| {
        let cause = format!("counter {key} is at {before}, and {count} more would go beyond {MAX_NUMBER}");
        StoreError::new(StoreErrorKind::Full, "add", store.describe(), cause)
    })
}

/// A record of a store as a counter of slots: slot `s` stands for the number `first + s * step`.
///
/// With `first` = i and `step` = n this is stripe i of n: only numbers congruent to i modulo n.
#[derive(Clone, Debug)]
pub struct StoreCounter {
    store: Arc<dyn Store>,
    key: Key,
    first: u64,
    step: NonZeroU64,
}

impl StoreCounter {
    /// The counter at a key, whose first number is `first` and every other `step` more than the one before.
    pub fn new(store: Arc<dyn Store>, key: Key, first: u64, step: NonZeroU64) -> Self {
        Self { store, key, first, step }
    }
}

#[async_trait]
impl Counter for StoreCounter {
    async fn reserve(&self, count: NonZeroU64) -> Result<Segment, StoreError> {
        let slot = self.store.add(&self.key, count).await?;
        let first = slot.checked_mul(self.step.get()).and_then(|offset| offset.checked_add(self.first));
        first.and_then(|first| Segment::new(first, self.step, count)).ok_or_else(|| {
            let cause = format!(
                "counter {} is at slot {slot}: {count} more, {} apart, would go beyond {MAX_NUMBER}",
                self.key, self.step
            );
            StoreError::new(StoreErrorKind::Full, "add", self.store.describe(), cause)
        })
    }

    async fn give_back(&self, unused: Segment) -> Result<bool, StoreError> {
        let Some(record) = self.store.load(&self.key).await? else { return Ok(false) };
        let slots = count_of(&*self.store, &self.key, &record)?;
        let first_unused = (unused.first - self.first) / self.step.get();
        if first_unused + unused.count.get() != slots {
            return Ok(false);
        }
        let value = first_unused.to_string();
        let swap = self
            .store
            .compare_and_set(&self.key, Expected::Revision(record.revision), value.as_bytes())
            .await?;
        Ok(matches!(swap, Swap::Done(_)))
    }

    fn describe(&self) -> String {
        format!("{} in {}", self.key, self.store.describe())
    }
}
