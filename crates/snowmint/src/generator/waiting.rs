//! Callers that wait for a generator's next tick: every second one waits 1 ms longer.
//! Callers that wake together would compete for the same cache line, finish together and wake together again.

use core::time::Duration;

use crate::GenerateError;
use crate::sync::{AtomicU64, Ordering};

/// The extra wait of every second caller.
const EXTRA_MS: u64 = 1;

/// The callers that are waiting.
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
    /// The extra wait uses part of `max_behind`. If that left nothing for a late wake-up, ids would be lost, so there is no extra
    /// wait.
    pub(super) fn new(max_behind_ms: u64) -> Self {
        let extra_ms = if max_behind_ms >= 2 * EXTRA_MS { EXTRA_MS } else { 0 };
        Self { count: AtomicU64::new(0), extra_ms }
    }

    /// Starts a wait as long as the error advises; returns the error if waiting does not help.
    pub(super) fn begin(&self, error: GenerateError) -> Result<Wait<'_>, GenerateError> {
        let ms = error.retry_after_ms().ok_or(error)?.get();
        let others = self.count.fetch_add(1, Ordering::Relaxed);
        Ok(Wait { waiting: self, ms: ms + others % 2 * self.extra_ms })
    }

    /// Sleeps as long as the error advises.
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
