//! Compares the clock of this machine with that of a store.

use snowmint::{Clock as _, WallClock};
use snowmint_store::{Store, StoreError};

/// How far the clock of this machine is ahead of the store's, as bounds: the store read its clock at some
/// moment of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    least_ms: i64,
    most_ms: i64,
}

impl ClockOffset {
    /// Asks a store for its clock; `None` if it has none.
    ///
    /// # Errors
    ///
    /// The error of the store.
    pub async fn measure(store: &dyn Store) -> Result<Option<Self>, StoreError> {
        let before_ms = WallClock.unix_ms();
        let store_ms = store.unix_ms().await?;
        let error_ms = i64::try_from(store.clock_error().as_millis()).unwrap_or(i64::MAX);
        Ok(store_ms.map(|store_ms| Self::of(before_ms, store_ms, WallClock.unix_ms()).widened(error_ms)))
    }

    /// Returns the bounds for a store's clock that was read with this error, either way.
    const fn widened(self, error_ms: i64) -> Self {
        Self {
            least_ms: self.least_ms.saturating_sub(error_ms),
            most_ms: self.most_ms.saturating_add(error_ms),
        }
    }

    /// Returns the bounds for a call that lasted from `before_ms` to `after_ms`.
    pub fn of(before_ms: u64, store_ms: u64, after_ms: u64) -> Self {
        let ahead = |unix_ms: u64| unix_ms.cast_signed() - store_ms.cast_signed();
        // This clock may be set back during the call.
        let (one, other) = (ahead(before_ms), ahead(after_ms));
        Self { least_ms: one.min(other), most_ms: one.max(other) }
    }

    /// Returns how far this clock is ahead at least; negative if it is behind, and 0 if the clocks may be
    /// equal.
    pub fn certain_ms(self) -> i64 {
        if self.least_ms > 0 { self.least_ms } else { self.most_ms.min(0) }
    }

    /// Returns the time of the store's clock at a time of this one.
    pub fn of_store(self, unix_ms: u64) -> u64 {
        unix_ms.saturating_add_signed(self.certain_ms().saturating_neg())
    }

    /// Returns how exact the bounds are.
    pub const fn within_ms(self) -> u64 {
        self.most_ms.abs_diff(self.least_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a slow call alone is no difference. Method: calls of 250 ms, during which the store reads its
    /// clock at any time, by clocks that agree and by clocks that do not.
    #[test]
    fn the_time_of_the_call_is_no_difference() {
        for read_after in [0, 100, 250] {
            let offset = ClockOffset::of(1_000_000, 1_000_000 + read_after, 1_000_250);
            assert_eq!((offset.certain_ms(), offset.within_ms()), (0, 250), "{read_after}");
        }
        assert_eq!(ClockOffset::of(1_000_000, 998_000, 1_000_250).certain_ms(), 2000);
        assert_eq!(ClockOffset::of(1_000_000, 1_002_250, 1_000_250).certain_ms(), -2000);
        assert_eq!(ClockOffset::of(1_000_250, 1_000_000, 1_000_000).certain_ms(), 0);
        assert_eq!(ClockOffset::of(1_000_000, 998_000, 1_000_250).of_store(1_000_000), 998_000);
        let by_seconds = ClockOffset::of(1_000_000, 998_000, 1_000_250).widened(500);
        assert_eq!((by_seconds.certain_ms(), by_seconds.within_ms()), (1500, 1250));
    }
}
