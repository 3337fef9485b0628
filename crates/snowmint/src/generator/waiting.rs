//! Callers of one generator that wait for its next tick: every second one lets that tick go by.
//! Callers that woke together would draw together, each id at the price of a cache line that goes to and fro, and
//! would be done together, to wake together again.

use core::time::Duration;

use crate::GenerateError;
use crate::sync::{AtomicU64, Ordering};

/// What every second caller waits beside.
const EXTRA_MS: u64 = 1;

/// The callers that wait now.
#[derive(Debug)]
pub(super) struct Waiting {
    count: AtomicU64,
    extra_ms: u64,
}

/// One caller's wait; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Wait<'a> {
    waiting: &'a Waiting,
    ms: u64,
}

impl Waiting {
    /// The extra wait comes out of how far the cursor may trail the clock: where that leaves nothing for a late
    /// wake-up, ids would be lost, and nobody waits longer.
    pub(super) fn new(max_behind_ms: u64) -> Self {
        let extra_ms = if max_behind_ms >= 2 * EXTRA_MS { EXTRA_MS } else { 0 };
        Self { count: AtomicU64::new(0), extra_ms }
    }

    /// Begins to wait as the error advises; gives it back where waiting is no answer.
    pub(super) fn begin(&self, error: GenerateError) -> Result<Wait<'_>, GenerateError> {
        let ms = error.retry_after_ms().ok_or(error)?.get();
        let others = self.count.fetch_add(1, Ordering::Relaxed);
        Ok(Wait { waiting: self, ms: ms + others % 2 * self.extra_ms })
    }

    /// Waits, asleep.
    #[cfg(feature = "std")]
    #[cold]
    pub(super) fn sleep(&self, error: GenerateError) -> Result<(), GenerateError> {
        let wait = self.begin(error)?;
        std::thread::sleep(wait.time());
        Ok(())
    }
}

impl Wait<'_> {
    pub(super) const fn time(&self) -> Duration {
        Duration::from_millis(self.ms)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.waiting.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use core::num::NonZeroU64;

    use super::*;

    const REFUSAL: GenerateError = GenerateError::Exhausted { retry_after_ms: NonZeroU64::new(7).unwrap() };

    fn ms(wait: &Wait<'_>) -> u128 {
        wait.time().as_millis()
    }

    #[test]
    fn every_second_of_those_who_wait_waits_longer() {
        let waiting = Waiting::new(2);
        let (first, second, third) = (
            waiting.begin(REFUSAL).unwrap(),
            waiting.begin(REFUSAL).unwrap(),
            waiting.begin(REFUSAL).unwrap(),
        );
        assert_eq!((ms(&first), ms(&second), ms(&third)), (7, 8, 7));
        drop((first, second, third));
        assert_eq!(ms(&waiting.begin(REFUSAL).unwrap()), 7, "who waits alone waits as advised");
        assert_eq!(ms(&waiting.begin(REFUSAL).unwrap()), 7, "and so does who comes after");
    }

    #[test]
    fn nobody_waits_longer_than_ticks_can_be_spent_late() {
        let waiting = Waiting::new(1);
        let _first = waiting.begin(REFUSAL).unwrap();
        assert_eq!(ms(&waiting.begin(REFUSAL).unwrap()), 7);
    }

    #[test]
    fn where_waiting_is_no_answer_nobody_waits() {
        let waiting = Waiting::new(4);
        assert_eq!(waiting.begin(GenerateError::Ended).unwrap_err(), GenerateError::Ended);
        assert_eq!(waiting.count.load(Ordering::Relaxed), 0);
    }
}
