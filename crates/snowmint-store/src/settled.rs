//! How numbers are reserved at any counter: at one that may lose what it acknowledged, they are used once they have
//! settled. Time is tokio's, which stands still while the machine sleeps: a wait can then only be longer than asked for.

use std::num::NonZeroU64;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::{Counter, Mark, Segment, StoreError, StoreErrorKind};

/// How often a look at a reservation is tried, and how long after another.
const LOOKS: u32 = 5;
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Numbers that a counter gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "numbers that are not used are lost"]
pub enum Reserved {
    /// They may be used.
    Settled(Segment),
    /// They may be used once [`Counter::holds`] finds the mark, `settle` after this answer or later.
    Marked {
        /// The numbers.
        segment: Segment,
        /// What finds the reservation again.
        mark: Mark,
        /// How much the counter may lose.
        settle: Duration,
    },
}

/// Reserves numbers, with a mark where the counter may lose them.
///
/// # Errors
///
/// As for [`Counter::reserve`].
pub async fn reserve(counter: &dyn Counter, count: NonZeroU64) -> Result<Reserved, StoreError> {
    let settle = counter.may_lose();
    if settle.is_zero() {
        let segment = counter.reserve(count).await?;
        // A source that was opened in this very moment may lose what it has just acknowledged.
        return if counter.may_lose().is_zero() {
            Ok(Reserved::Settled(segment))
        } else {
            let cause = format!(
                "the counter was opened just now and may lose what it acknowledged, so the numbers from {} to {} are not \
                 used; the next reservation waits until it has settled",
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
/// As for [`Counter::reserve`] and [`Counter::holds`]; [`StoreErrorKind::Unavailable`] where the reservation
/// is not found again. None of its numbers may be used then.
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

/// Raises a counter above a number, and waits until that has settled: whether this counter can be raised.
///
/// At a counter that may lose what it acknowledged, a number is reserved after the raise, and given to nobody. Once its
/// reservation has settled, what was written before it has too.
///
/// # Errors
///
/// As for [`Counter::raise_above`] and [`reserve_settled`]; [`StoreErrorKind::Unavailable`] where the counter lost the raise.
/// It is safe to call again.
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
        "the store lost the raise above {number} after it had acknowledged it: the next number was {next}; raise it again"
    );
    Err(StoreError::new(StoreErrorKind::Unavailable, "raise", counter.describe(), cause))
}

impl Reserved {
    /// Waits until numbers that were reserved just now may be used.
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
        "the reservation of {} to {} was not found when it was read again: the store lost it before it had settled, or the \
         read came too late; none of these numbers is used",
        segment.first(),
        segment.last()
    );
    StoreError::new(StoreErrorKind::Unavailable, "reserve", counter.describe(), cause)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use async_trait::async_trait;

    use super::*;

    /// A counter that finds out what it may lose with its first reservation, as a source does that is opened then.
    #[derive(Debug, Default)]
    struct Late {
        opened: AtomicBool,
        next: AtomicU64,
        /// How many numbers a failover takes back before the next call.
        goes_back: AtomicU64,
        /// How many looks fail before one answers.
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

    /// Goal: numbers that a source acknowledged while it was opened are not used, since it may lose them.
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

    /// Goal: a raise is done once it has settled, and one that a failover takes back is an error. Method: the counter goes
    /// back before the reservation that follows the raise; then it loses that reservation, and then nothing.
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
