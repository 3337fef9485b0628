//! Counters: callers reserve whole numbers from them before they use them, each number for one caller.
//! A counter is a record of a [`Store`], or a table or key of another system.

pub(crate) mod claims;

use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep, sleep_until};

use self::claims::{Claims, Mark, Refused, Sightings};
use crate::error::Retries;
use crate::store::add;
use crate::{Expected, Key, MAX_NUMBER, Store, StoreError, StoreErrorKind, Swap, Versioned};

/// The name of the call in errors.
const RESERVE: &str = "reserve";
const FIND: &str = "find";
/// The prefix of the records with claims.
const CLAIMS: &str = "claims/";

/// The numbers that one caller has reserved: `count` of them, from `first` on, each `step` more than the one
/// before.
///
/// The last one is at most [`MAX_NUMBER`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Segment {
    first: u64,
    step: NonZeroU64,
    count: NonZeroU64,
}

impl Segment {
    /// Returns a segment, or `None` if its last number would exceed [`MAX_NUMBER`].
    pub fn new(first: u64, step: NonZeroU64, count: NonZeroU64) -> Option<Self> {
        let last = (count.get() - 1).checked_mul(step.get())?.checked_add(first)?;
        (last <= MAX_NUMBER).then_some(Self { first, step, count })
    }

    /// Returns the smallest number.
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// Returns the greatest number.
    pub const fn last(&self) -> u64 {
        self.first + (self.count.get() - 1) * self.step.get()
    }

    /// Returns the difference between two neighbouring numbers.
    pub const fn step(&self) -> NonZeroU64 {
        self.step
    }

    /// Returns how many numbers the segment has.
    pub const fn count(&self) -> NonZeroU64 {
        self.count
    }
}

/// A source of whole numbers, from which callers reserve segments.
///
/// # Contract
///
/// 1. A segment that [`reserve`](Self::reserve) returned is durable, and none of its numbers is in any other
///    segment that this counter ever returned, to any caller. If [`may_lose`](Self::may_lose) is not zero,
///    this holds only for a segment of [`reserve_marked`](Self::reserve_marked) that has settled.
/// 2. A `reserve` that starts after another has returned gets greater numbers, even if the callers differ.
///
/// A future may be dropped at any await; the numbers it would have returned are then lost.
#[async_trait]
pub trait Counter: Send + Sync + fmt::Debug + 'static {
    /// Reserves `count` numbers, or fewer (but at least 1) if the counter does not give more in one call.
    ///
    /// # Errors
    ///
    /// Errors of the store. [`StoreErrorKind::Full`] when the numbers up to [`MAX_NUMBER`] are used up.
    async fn reserve(&self, count: NonZeroU64) -> Result<Segment, StoreError>;

    /// Returns the time span of the newest acknowledged reservations that this counter may lose.
    ///
    /// See [`Store::may_lose`]. If it is not zero, use only numbers of
    /// [`reserve_marked`](Self::reserve_marked), and only once they have settled: [`holds`](Self::holds),
    /// called at least this long after the answer arrived, returned true.
    fn may_lose(&self) -> Duration {
        Duration::ZERO
    }

    /// Reserves numbers and writes a mark by which [`holds`](Self::holds) finds the reservation again.
    ///
    /// If the mark is not found, the numbers are lost: do not use any of them.
    ///
    /// # Errors
    ///
    /// As for [`reserve`](Self::reserve). Also [`StoreErrorKind::Unavailable`]:
    ///
    /// - if newer reservations settled before this one was marked;
    /// - if other reservations show that the counter went back; it has been raised above them, so the next
    ///   call gets other numbers;
    /// - if too many reservations of all nodes have not settled; larger segments need fewer reservations.
    async fn reserve_marked(&self, count: NonZeroU64) -> Result<(Segment, Mark), StoreError> {
        let _ = count;
        let cause = "this counter writes no marks, so nothing shows that a reservation has settled";
        Err(StoreError::new(StoreErrorKind::Other, RESERVE, self.describe(), cause))
    }

    /// Returns whether the counter still holds the reservation of a mark.
    ///
    /// If not, the store lost it, or this call came too late: a store keeps the newest few hundred marks, and
    /// older ones only until they have settled.
    ///
    /// # Errors
    ///
    /// Errors of the store; it is safe to retry.
    async fn holds(&self, mark: Mark) -> Result<bool, StoreError> {
        let _ = mark;
        Ok(false)
    }

    /// Returns the number that the next reservation would begin with, as a segment of one number, without a
    /// reservation; `None` if the counter cannot tell.
    ///
    /// The counter may be further already: others reserve at the same time, and the read may be stale.
    ///
    /// # Errors
    ///
    /// Errors of the store; it is safe to retry.
    async fn peek(&self) -> Result<Option<Segment>, StoreError> {
        Ok(None)
    }

    /// Raises the counter, so that all later reservations are greater than `number`. Returns whether this
    /// counter can do that.
    ///
    /// If the counter is already above `number`, it never repeats a number, but may skip some: it may have to
    /// write to prove that its server was not replaced by one with a lower counter.
    ///
    /// # Errors
    ///
    /// Errors of the store; it is safe to retry.
    async fn raise_above(&self, number: u64) -> Result<bool, StoreError> {
        let _ = number;
        Ok(false)
    }

    /// Gives the upper end of a segment, `unused`, back to the counter if nobody has reserved since. Returns
    /// whether the counter took it back.
    ///
    /// # Errors
    ///
    /// Errors of the store. The numbers are then lost or will be reserved again; no number is returned twice.
    async fn give_back(&self, unused: Segment) -> Result<bool, StoreError> {
        let _ = unused;
        Ok(false)
    }

    /// Returns how many numbers to reserve at first, if an operator of that counter has set it.
    fn suggested_count(&self) -> Option<NonZeroU64> {
        None
    }

    /// Returns the identity of the server that counts; see [`Store::server`].
    fn server(&self) -> Option<String> {
        None
    }

    /// Returns the kind and the place of this counter for logs and errors, without any password.
    fn describe(&self) -> String;
}

/// A record of a store as a counter of slots: slot `s` is the number `first + s * step`.
///
/// With `first` = i and `step` = n this is stripe i of n: only numbers congruent to i modulo n.
#[derive(Clone, Debug)]
pub struct StoreCounter {
    store: Arc<dyn Store>,
    key: Key,
    first: u64,
    step: NonZeroU64,
    /// Shared by all clones.
    seen: Arc<Sightings>,
}

impl StoreCounter {
    /// Returns the counter at a key. Its first number is `first`, and every other is `step` more than the one
    /// before.
    pub fn new(store: Arc<dyn Store>, key: Key, first: u64, step: NonZeroU64) -> Self {
        Self { store, key, first, step, seen: Arc::default() }
    }

    /// Returns the slot of a segment's first number, or `None` for a segment of another counter.
    fn slot_of(&self, segment: Segment) -> Option<u64> {
        let offset = segment.first.checked_sub(self.first)?;
        let ours = segment.step == self.step && offset.is_multiple_of(self.step.get());
        ours.then(|| offset / self.step.get())
    }

    /// Returns the key of the claims of this counter.
    fn claims_key(&self, operation: &'static str) -> Result<Key, StoreError> {
        Key::new(format!("{CLAIMS}{}", self.key))
            .map_err(|error| StoreError::new(StoreErrorKind::Other, operation, self.describe(), error))
    }

    fn claims(
        &self,
        operation: &'static str,
        key: &Key,
        record: Option<&Versioned>,
    ) -> Result<Claims, StoreError> {
        let claims = match record {
            None => Claims::default(),
            Some(record) => Claims::parse(&record.value).ok_or_else(|| {
                let cause =
                    format!("invalid claims: the record {key} holds something else; it was not changed");
                StoreError::new(StoreErrorKind::Corrupt, operation, self.store.describe(), cause)
            })?,
        };
        self.seen.saw(claims.marks());
        Ok(claims)
    }

    /// Returns the marks of the claims that may leave the record.
    fn settled(&self) -> HashSet<Mark> {
        self.seen.settled(self.may_lose()).into_iter().collect()
    }

    /// Records that these slots are reserved, unless another claim overlaps them. `found` is the record as
    /// last read.
    async fn claim(
        &self,
        mut found: Option<Versioned>,
        mark: Mark,
        (first, end): (u64, u64),
    ) -> Result<Result<(), Refused>, StoreError> {
        let (key, mut retries) = (self.claims_key(RESERVE)?, Retries::new());
        loop {
            let mut claims = self.claims(RESERVE, &key, found.as_ref())?;
            let settled = self.settled();
            if let Err(refused) = claims.claim(mark, first, end, |mark| settled.contains(&mark)) {
                return Ok(Err(refused));
            }
            let expected = found.map_or(Expected::Absent, |record| Expected::Revision(record.revision));
            let swap = self.store.compare_and_set(&key, expected, claims.to_text().as_bytes()).await?;
            if let Swap::Done(_) = swap {
                return Ok(Ok(()));
            }
            add::pause_before_retry(&mut retries, &*self.store, &key).await?;
            found = self.store.load(&key).await?;
        }
    }

    fn full(&self) -> StoreError {
        claims::full(self.key.as_str(), &self.store.describe(), self.may_lose())
    }
}

#[async_trait]
impl Counter for StoreCounter {
    async fn reserve(&self, count: NonZeroU64) -> Result<Segment, StoreError> {
        let slot = self.store.add(&self.key, count).await?;
        let first = slot.checked_mul(self.step.get()).and_then(|offset| offset.checked_add(self.first));
        first.and_then(|first| Segment::new(first, self.step, count)).ok_or_else(|| {
            let cause = format!(
                "the counter {} is at slot {slot}: {count} more numbers, {} apart, would exceed {MAX_NUMBER}",
                self.key, self.step
            );
            StoreError::new(StoreErrorKind::Full, add::OPERATION, self.store.describe(), cause)
        })
    }

    fn may_lose(&self) -> Duration {
        self.store.may_lose()
    }

    async fn reserve_marked(&self, count: NonZeroU64) -> Result<(Segment, Mark), StoreError> {
        // Check for room before the addition, so that a full record wastes no numbers.
        let key = self.claims_key(RESERVE)?;
        let found = self.store.load(&key).await?;
        let (claims, settled) = (self.claims(RESERVE, &key, found.as_ref())?, self.settled());
        if !claims.have_room(|mark| settled.contains(&mark)) {
            return Err(self.full());
        }
        let (segment, mark) = (self.reserve(count).await?, Mark::fresh());
        // The segment belongs to this counter, and the sum of its slots fits.
        let first = self.slot_of(segment).unwrap_or_default();
        match self.claim(found, mark, (first, first.saturating_add(count.get()))).await? {
            Ok(()) => Ok((segment, mark)),
            Err(Refused::Full) => Err(self.full()),
            Err(refused @ (Refused::Overlaps { end } | Refused::Late { end })) => {
                let held = add::raise_to(&*self.store, &self.key, end).await?;
                let key = &self.key;
                let cause = match refused {
                    // The claims of these slots may have left the record, or the slots are new. If the
                    // counter is behind, it went back.
                    Refused::Late { .. } if held >= end => format!(
                        "the claim of the slots from {first} at {key} came after claims up to {end} that have settled: the store \
                         was slow or has lost additions; none of these numbers is used"
                    ),
                    _ => format!(
                        "the store has lost additions to {key}: it gave slot {first} again, and slots up to {end} are taken; \
                         the counter was raised to {end}, and none of these numbers is used"
                    ),
                };
                Err(StoreError::new(StoreErrorKind::Unavailable, RESERVE, self.store.describe(), cause))
            }
        }
    }

    async fn holds(&self, mark: Mark) -> Result<bool, StoreError> {
        let key = self.claims_key(FIND)?;
        let found = self.store.load(&key).await?;
        Ok(self.claims(FIND, &key, found.as_ref())?.holds(mark))
    }

    async fn peek(&self) -> Result<Option<Segment>, StoreError> {
        let slot = add::held(&*self.store, &self.key, self.store.load(&self.key).await?.as_ref())?;
        let first = slot.checked_mul(self.step.get()).and_then(|offset| offset.checked_add(self.first));
        Ok(first.and_then(|first| Segment::new(first, self.step, NonZeroU64::MIN)))
    }

    async fn raise_above(&self, number: u64) -> Result<bool, StoreError> {
        let below = number.checked_sub(self.first).map(|offset| offset / self.step.get());
        let slots = below.map_or(0, |slot| slot.saturating_add(1)).min(MAX_NUMBER);
        add::raise_to(&*self.store, &self.key, slots).await?;
        Ok(true)
    }

    /// A store that may lose writes takes no numbers back, because their claims stay.
    async fn give_back(&self, unused: Segment) -> Result<bool, StoreError> {
        if self.may_lose() > Duration::ZERO {
            return Ok(false);
        }
        let Some(first_unused) = self.slot_of(unused) else { return Ok(false) };
        let Some(record) = self.store.load(&self.key).await? else { return Ok(false) };
        let slots = add::held(&*self.store, &self.key, Some(&record))?;
        if first_unused.checked_add(unused.count.get()) != Some(slots) {
            return Ok(false);
        }
        let (expected, value) = (Expected::Revision(record.revision), first_unused.to_string());
        let swap = self.store.compare_and_set(&self.key, expected, value.as_bytes()).await?;
        Ok(matches!(swap, Swap::Done(_)))
    }

    fn server(&self) -> Option<String> {
        self.store.server()
    }

    fn describe(&self) -> String {
        format!("{} in {}", self.key, self.store.describe())
    }
}

/// Number of tries to find a reservation if calls fail, and the pause between two tries.
const LOOKS: u32 = 5;
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Numbers that a caller has reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "numbers that are not used are lost"]
pub enum Reserved {
    /// The numbers may be used.
    Settled(Segment),
    /// The numbers may be used once [`Counter::holds`] finds the mark, `settle` after this answer or later.
    Marked {
        /// The numbers.
        segment: Segment,
        /// The mark that finds the reservation again.
        mark: Mark,
        /// The time span of the newest reservations that the counter may lose.
        settle: Duration,
    },
}

/// Reserves numbers, with a mark if the counter may lose them.
///
/// # Errors
///
/// As for [`Counter::reserve`].
pub async fn reserve(counter: &dyn Counter, count: NonZeroU64) -> Result<Reserved, StoreError> {
    let settle = counter.may_lose();
    if settle.is_zero() {
        let segment = counter.reserve(count).await?;
        // A source that this call opened may lose what it has just acknowledged.
        return if counter.may_lose().is_zero() {
            Ok(Reserved::Settled(segment))
        } else {
            let cause = format!(
                "the counter was just opened and may lose what it acknowledged, so the numbers {} to {} are not used; \
                 the next reservation waits until it has settled",
                segment.first(),
                segment.last()
            );
            Err(StoreError::new(StoreErrorKind::Unavailable, "reserve", counter.describe(), cause))
        };
    }
    let (segment, mark) = counter.reserve_marked(count).await?;
    Ok(Reserved::Marked { segment, mark, settle })
}

/// Reserves numbers and waits until they may be used.
///
/// # Errors
///
/// As for [`Counter::reserve`] and [`Counter::holds`]; [`StoreErrorKind::Unavailable`] if the reservation is
/// not found again. None of its numbers may be used then.
///
/// # Examples
///
/// ```
/// # use std::num::NonZeroU64;
/// # use std::sync::Arc;
/// # use snowmint_store::{Key, MemoryStore, StoreCounter, reserve_settled};
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let key = Key::new("counters/orders")?;
/// let counter = StoreCounter::new(Arc::new(MemoryStore::new()), key, 1, NonZeroU64::MIN);
/// let segment = reserve_settled(&counter, NonZeroU64::MIN).await?;
/// assert_eq!(segment.first(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn reserve_settled(counter: &dyn Counter, count: NonZeroU64) -> Result<Segment, StoreError> {
    reserve(counter, count).await?.settle(counter).await
}

/// Raises a counter above a number and waits until that has settled. Returns whether this counter can be
/// raised.
///
/// If the counter may lose acknowledged writes, this function reserves a number after the raise and discards
/// it. Once that reservation has settled, everything written before it has settled too.
///
/// # Errors
///
/// As for [`Counter::raise_above`] and [`reserve_settled`]; [`StoreErrorKind::Unavailable`] if the counter
/// lost the raise. It is safe to retry.
pub async fn raise_settled(counter: &dyn Counter, number: u64) -> Result<bool, StoreError> {
    if !counter.raise_above(number).await? {
        return Ok(false);
    }
    if counter.may_lose().is_zero() {
        return Ok(true);
    }
    let next = reserve_settled(counter, NonZeroU64::MIN).await?.first();
    if next > number {
        return Ok(true);
    }
    let cause = format!(
        "the store lost the raise above {number} after it had acknowledged it: the next number was {next}; retry"
    );
    Err(StoreError::new(StoreErrorKind::Unavailable, "raise", counter.describe(), cause))
}

impl Reserved {
    /// Waits until numbers that were just reserved may be used.
    ///
    /// # Errors
    ///
    /// As for [`reserve_settled`].
    pub async fn settle(self, counter: &dyn Counter) -> Result<Segment, StoreError> {
        let (segment, mark, settle) = match self {
            Self::Settled(segment) => return Ok(segment),
            Self::Marked { segment, mark, settle } => (segment, mark, settle),
        };
        sleep_until(Instant::now() + settle).await;
        let mut looks = 1;
        loop {
            match counter.holds(mark).await {
                Ok(true) => return Ok(segment),
                Ok(false) => return Err(not_found(counter, segment)),
                Err(error) if looks == LOOKS => return Err(error),
                Err(_) => sleep(LOOK_AGAIN).await,
            }
            looks += 1;
        }
    }
}

fn not_found(counter: &dyn Counter, segment: Segment) -> StoreError {
    let cause = format!(
        "the reservation of {} to {} was not found again: the store lost it before it had settled, or the read came too \
         late; none of these numbers is used",
        segment.first(),
        segment.last()
    );
    StoreError::new(StoreErrorKind::Unavailable, "reserve", counter.describe(), cause)
}

#[cfg(all(test, feature = "memory"))]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;
    use crate::MemoryStore;

    fn some(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }

    fn counter(store: &Arc<dyn Store>, first: u64, step: u64) -> StoreCounter {
        StoreCounter::new(Arc::clone(store), Key::new("counters/orders").unwrap(), first, some(step))
    }

    fn store() -> Arc<dyn Store> {
        Arc::new(MemoryStore::new())
    }

    #[test]
    fn a_segment_ends_where_numbers_end() {
        let segment = Segment::new(10, some(3), some(4)).unwrap();
        assert_eq!(
            (segment.first(), segment.last(), segment.step(), segment.count()),
            (10, 19, some(3), some(4))
        );
        assert!(Segment::new(MAX_NUMBER, some(1), some(1)).is_some());
        for (first, step, count) in
            [(MAX_NUMBER, 1, 2), (MAX_NUMBER + 1, 1, 1), (0, 2, 1 << 63), (1, u64::MAX, 3), (0, 1, u64::MAX)]
        {
            assert_eq!(Segment::new(first, some(step), some(count)), None, "{first} {step} {count}");
        }
    }

    #[tokio::test]
    async fn stripes_follow_one_another() {
        let store = store();
        let stripe = counter(&store, 2, 5);
        let segments = [stripe.reserve(some(3)).await.unwrap(), stripe.reserve(some(1)).await.unwrap()];
        assert_eq!(segments.map(|it| (it.first(), it.last())), [(2, 12), (17, 17)]);
        assert_eq!(stripe.describe(), "counters/orders in memory:");
    }

    #[tokio::test]
    async fn what_nobody_reserved_after_can_be_given_back() {
        let store = store();
        let counter = counter(&store, 1, 2);
        let segment = counter.reserve(some(10)).await.unwrap();
        let unused = Segment::new(segment.first() + 8, some(2), some(6)).unwrap();
        assert!(counter.give_back(unused).await.unwrap());
        let next = counter.reserve(some(1)).await.unwrap();
        assert_eq!(next.first(), unused.first());
        assert!(!counter.give_back(unused).await.unwrap(), "another has reserved since");
    }

    /// Goal: numbers that this counter cannot have returned change nothing. Method: segments of other
    /// counters, at the edges.
    #[tokio::test]
    async fn what_is_not_of_this_counter_is_not_taken_back() {
        let store = store();
        let counter = counter(&store, 4, 2);
        let segment = |first, step, count| Segment::new(first, some(step), some(count)).unwrap();
        assert!(!counter.give_back(segment(4, 2, 1)).await.unwrap(), "nothing was reserved yet");
        assert_eq!(counter.peek().await.unwrap(), Some(segment(4, 2, 1)));
        counter.reserve(some(3)).await.unwrap();
        assert_eq!(counter.peek().await.unwrap(), Some(segment(10, 2, 1)));
        for other in [
            segment(0, 2, 5),
            segment(2, 2, 4),
            segment(5, 2, 3),
            segment(4, 1, 3),
            segment(4, 2, 2),
            segment(4, 2, 4),
            segment(MAX_NUMBER - 1, 2, 1),
        ] {
            assert!(!counter.give_back(other).await.unwrap(), "{other:?}");
        }
        assert_eq!(store.load(&counter.key).await.unwrap().unwrap().value, b"3");
    }

    #[tokio::test]
    async fn a_counter_is_raised_to_its_next_number_above_and_never_lowered() {
        let store = store();
        for (first, step) in [(1, 1), (4, 3), (100, 7)] {
            let counter = StoreCounter::new(
                Arc::clone(&store),
                Key::new(format!("c/{first}")).unwrap(),
                first,
                some(step),
            );
            let mut highest = 0;
            for number in [0, 1, 3, 4, 5, 99, 100, 101, 3, 1000, 998, 0] {
                assert!(counter.raise_above(number).await.unwrap());
                let reserved = counter.reserve(some(1)).await.unwrap();
                assert!(reserved.first() > number && reserved.first() > highest, "{first} {step} {number}");
                let most = first.max(number + step).max(highest + step);
                assert!(reserved.first() <= most, "no further than needed: {first} {step} {number}");
                highest = reserved.last();
            }
        }
    }

    /// Goal: of two reservations of one number, one is claimed. Method: the counter goes back as in a
    /// failover; the claims stay.
    #[tokio::test]
    async fn a_counter_behind_its_claims_gives_no_number_again() {
        let store = store();
        let counter = counter(&store, 1, 1);
        let (segment, mark) = counter.reserve_marked(some(10)).await.unwrap();
        assert_eq!((segment.first(), counter.holds(mark).await.unwrap()), (1, true));
        assert!(!counter.holds(Mark::fresh()).await.unwrap());
        let record = store.load(&counter.key).await.unwrap().unwrap();
        let back = store.compare_and_set(&counter.key, Expected::Revision(record.revision), b"5").await;
        assert!(matches!(back.unwrap(), Swap::Done(_)));
        let error = counter.reserve_marked(some(3)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(
            error.to_string().contains("slot 5 again") && error.to_string().contains("raised to 10"),
            "{error}"
        );
        let (next, _) = counter.reserve_marked(some(3)).await.unwrap();
        assert_eq!((next.first(), counter.holds(mark).await.unwrap()), (11, true));
    }

    /// Goal: unsettled reservations are never dropped for a new one: the new one is rejected, costs no
    /// number, and succeeds once the others have settled. Method: as many reservations at once as a record
    /// holds.
    #[tokio::test(start_paused = true)]
    async fn a_full_record_of_claims_holds_the_next_reservation_back() {
        let store = store();
        let (counter, other) = (counter(&store, 1, 1), counter(&store, 1, 1));
        let mut marks = Vec::new();
        for _ in 0..claims::MOST {
            marks.push(counter.reserve_marked(some(2)).await.unwrap().1);
        }
        for counter in [&counter, &other] {
            let error = counter.reserve_marked(some(2)).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Unavailable);
            assert!(
                error.to_string().contains("1024 reservations of counters/orders have not settled"),
                "{error}"
            );
        }
        assert_eq!(store.load(&counter.key).await.unwrap().unwrap().value, b"2048");
        assert!(counter.holds(marks[0]).await.unwrap());
        tokio::time::advance(Duration::from_secs(1)).await;
        // The other node has known these claims as long as this one, since it read the record.
        let (segment, mark) = other.reserve_marked(some(2)).await.unwrap();
        assert_eq!((segment.first(), other.holds(mark).await.unwrap()), (2049, true));
        assert!(!counter.holds(marks[0]).await.unwrap(), "it has settled long ago");
        assert!(counter.holds(marks[claims::MOST - 1]).await.unwrap(), "the newest stay in any case");
    }

    /// A store that delays the answer of an addition until the test releases it.
    #[derive(Debug)]
    struct SlowToAdd(Arc<dyn Store>, tokio::sync::Notify);

    #[async_trait]
    impl Store for SlowToAdd {
        async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
            self.0.load(key).await
        }

        async fn compare_and_set(&self, key: &Key, at: Expected, value: &[u8]) -> Result<Swap, StoreError> {
            self.0.compare_and_set(key, at, value).await
        }

        async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
            let before = self.0.add(key, count).await;
            self.1.notified().await;
            before
        }

        async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
            self.0.list(prefix).await
        }

        fn describe(&self) -> String {
            "slow".to_owned()
        }
    }

    /// Goal: numbers of a late claim are not used, and the error does not claim that the store lost writes,
    /// which is uncertain. Method: while an addition is answered, another node makes enough reservations for
    /// claims above it to settle and leave the record.
    #[tokio::test(start_paused = true)]
    async fn a_late_claim_is_not_called_lost() {
        let store = store();
        let slow = Arc::new(SlowToAdd(Arc::clone(&store), tokio::sync::Notify::new()));
        let late = counter(&(Arc::clone(&slow) as Arc<dyn Store>), 1, 1);
        let late = tokio::spawn(async move { late.reserve_marked(some(10)).await });
        tokio::task::yield_now().await;
        let other = counter(&store, 1, 1);
        for _ in 0..claims::KEPT {
            other.reserve_marked(some(2)).await.unwrap();
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        let newest = other.reserve_marked(some(2)).await.unwrap().0.last();
        assert_eq!(newest, 10 + 2 * claims::KEPT as u64 + 2, "the late one was first to add");
        slow.1.notify_one();
        let error = late.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        let text = error.to_string();
        assert!(
            text.contains("claim of the slots from 0 at") && text.contains("the store was slow or"),
            "{text}"
        );
        assert!(!text.contains("raised"), "{text}");
        assert_eq!(other.reserve(some(1)).await.unwrap().first(), newest + 1, "the counter is as it was");
    }

    #[tokio::test]
    async fn slots_beyond_the_last_number_are_refused() {
        let store = store();
        let counter = counter(&store, 0, 1 << 62);
        assert_eq!(counter.reserve(some(2)).await.unwrap().last(), 1 << 62);
        let error = counter.reserve(some(1)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Full, "{error}");
        assert!(error.to_string().contains("slot 2") && error.to_string().contains("apart"), "{error}");
    }

    /// A counter that learns `may_lose` with its first reservation, like a source that is opened by its first
    /// call.
    #[derive(Debug, Default)]
    struct Late {
        opened: AtomicBool,
        next: AtomicU64,
        /// Number of numbers that a failover takes back before the next call.
        goes_back: AtomicU64,
        /// Number of calls of `holds` that fail before one succeeds.
        silent_looks: AtomicU64,
        lost: AtomicBool,
    }

    impl Late {
        fn give(&self, count: NonZeroU64) -> Segment {
            let first = self.next.fetch_add(count.get(), Ordering::SeqCst);
            Segment::new(first, NonZeroU64::MIN, count).unwrap()
        }
    }

    #[async_trait]
    impl Counter for Late {
        async fn reserve(&self, count: NonZeroU64) -> Result<Segment, StoreError> {
            self.opened.store(true, Ordering::SeqCst);
            Ok(self.give(count))
        }

        fn may_lose(&self) -> Duration {
            if self.opened.load(Ordering::SeqCst) { Duration::from_secs(2) } else { Duration::ZERO }
        }

        async fn reserve_marked(&self, count: NonZeroU64) -> Result<(Segment, Mark), StoreError> {
            self.next.fetch_sub(self.goes_back.swap(0, Ordering::SeqCst), Ordering::SeqCst);
            Ok((self.give(count), Mark(7)))
        }

        async fn holds(&self, _: Mark) -> Result<bool, StoreError> {
            let silent = self.silent_looks.load(Ordering::SeqCst);
            if silent > 0 {
                self.silent_looks.store(silent - 1, Ordering::SeqCst);
                return Err(StoreError::new(StoreErrorKind::Unavailable, "find", "late", "away"));
            }
            Ok(!self.lost.load(Ordering::SeqCst))
        }

        async fn raise_above(&self, number: u64) -> Result<bool, StoreError> {
            self.next.fetch_max(number + 1, Ordering::SeqCst);
            Ok(true)
        }

        fn describe(&self) -> String {
            "late".to_owned()
        }
    }

    /// Goal: numbers that a source acknowledged while it was being opened are not used, since it may lose
    /// them.
    #[tokio::test(start_paused = true)]
    async fn what_was_acknowledged_before_the_counter_told_what_it_may_lose_is_not_used() {
        let counter = Late::default();
        let error = reserve(&counter, NonZeroU64::MIN).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(error.to_string().contains("0 to 0 are not used"), "{error}");
        let began = Instant::now();
        assert_eq!(reserve_settled(&counter, NonZeroU64::MIN).await.unwrap().first(), 1);
        assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    }

    /// Goal: a raise succeeds only once it has settled; if a failover takes it back, the call fails. Method:
    /// the counter goes back before the reservation that follows the raise; then it loses that reservation,
    /// and then nothing.
    #[tokio::test(start_paused = true)]
    async fn a_raise_is_done_once_it_has_settled() {
        let counter = Late { opened: true.into(), goes_back: 5.into(), ..Late::default() };
        let error = raise_settled(&counter, 100).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(
            error.to_string().contains("lost the raise above 100") && error.to_string().contains("was 96")
        );
        counter.lost.store(true, Ordering::SeqCst);
        raise_settled(&counter, 100).await.unwrap_err();
        counter.lost.store(false, Ordering::SeqCst);
        let began = Instant::now();
        assert!(raise_settled(&counter, 100).await.unwrap());
        assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
        assert!(counter.next.load(Ordering::SeqCst) > 100);
        let certain = Late::default();
        assert!(raise_settled(&certain, 7).await.unwrap());
        assert_eq!(certain.next.load(Ordering::SeqCst), 8, "nothing is reserved where nothing can be lost");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_fails_is_repeated_and_a_reservation_that_is_gone_is_not_used() {
        let counter =
            Late { opened: true.into(), silent_looks: u64::from(LOOKS - 1).into(), ..Late::default() };
        assert_eq!(reserve_settled(&counter, NonZeroU64::MIN).await.unwrap().first(), 0);
        counter.silent_looks.store(u64::from(LOOKS), Ordering::SeqCst);
        let error = reserve_settled(&counter, NonZeroU64::MIN).await.unwrap_err();
        assert!(error.to_string().contains("away"), "{error}");
        counter.lost.store(true, Ordering::SeqCst);
        let error = reserve_settled(&counter, NonZeroU64::MIN).await.unwrap_err();
        assert!(error.to_string().contains("reservation of 2 to 2 was not found"), "{error}");
    }
}
