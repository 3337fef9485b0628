//! The calls to a counter that the tasks share: reserve, wait until it has settled, raise.
//! Time is tokio's, which stands still while the machine sleeps: a wait can then only be longer than asked for.

use std::num::NonZeroU64;
use std::time::Duration;

use snowmint_store::{Counter, Mark, Segment, StoreError, StoreErrorKind};
use tokio::time::{Instant, sleep, sleep_until};

use crate::segment::protocol::{Failure, Input};

/// How often a look at a reservation is tried, and how long after another.
const LOOKS: u32 = 5;
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Numbers that were reserved.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reserved {
    /// They may be used.
    Settled(Segment),
    /// They may be used once they have settled.
    Marked { segment: Segment, mark: Mark, settle: Duration },
}

impl Reserved {
    /// As the protocol takes it.
    pub(super) fn input(answer: Result<Self, Failure>) -> Input {
        match answer {
            Ok(Self::Settled(segment)) => Input::Reserved(Ok(segment)),
            Ok(Self::Marked { segment, mark, settle }) => {
                Input::ReservedMarked { segment, mark, settle_ms: whole_ms(settle) }
            }
            Err(failure) => Input::Reserved(Err(failure)),
        }
    }
}

/// Reserves numbers, with a mark where the counter may lose them.
pub(super) async fn reserve(counter: &dyn Counter, count: NonZeroU64) -> Result<Reserved, StoreError> {
    let settle = counter.may_lose();
    if settle.is_zero() {
        let segment = counter.reserve(count).await?;
        // A source that was opened in this very moment may lose what it has just acknowledged.
        return if counter.may_lose().is_zero() {
            Ok(Reserved::Settled(segment))
        } else {
            Err(lost(counter, segment))
        };
    }
    let (segment, mark) = counter.reserve_marked(count).await?;
    Ok(Reserved::Marked { segment, mark, settle })
}

/// Reserves numbers and waits until they have settled.
pub(super) async fn reserve_settled(counter: &dyn Counter, count: NonZeroU64) -> Result<Segment, StoreError> {
    let (segment, mark, settle) = match reserve(counter, count).await? {
        Reserved::Settled(segment) => return Ok(segment),
        Reserved::Marked { segment, mark, settle } => (segment, mark, settle),
    };
    sleep_until(Instant::now() + settle).await;
    let mut looks = 1;
    loop {
        match counter.holds(mark).await {
            Ok(true) => return Ok(segment),
            Ok(false) => return Err(lost(counter, segment)),
            Err(error) if looks == LOOKS => return Err(error),
            Err(_) => sleep(LOOK_AGAIN).await,
        }
        looks += 1;
    }
}

fn lost(counter: &dyn Counter, segment: Segment) -> StoreError {
    let cause = format!(
        "the store lost the reservation of {} to {} after it had acknowledged it; none of these numbers is used",
        segment.first(),
        segment.last()
    );
    StoreError::new(StoreErrorKind::Unavailable, "reserve", counter.describe(), cause)
}

/// In whole milliseconds, rounded up.
pub(super) fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
