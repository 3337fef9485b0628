//! The clocks of the machine: the wall clock with all its steps, and a clock that ignores them.
//!
//! The anchored clock is boot time counted from an anchor on the wall clock. It includes suspended time and
//! moves towards the wall clock at a small rate. It steps only forward, and only on request. With the wall
//! clock, a rule decides what happens when it goes back.

use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use super::cycles::boot_ns;
use super::{Clock, Hold, Reading, cycles};
use crate::sync::{AtomicU64, Ordering};

const NS_PER_MS: u64 = 1_000_000;
/// The longest time for which one call corrects the clock.
const MOST_ELAPSED_NS: u64 = 2_000_000_000;
/// The largest correction: 500 µs per second, the maximum rate of NTP.
const SLEW_PER_MILLION: u64 = 500;
/// A larger change of the distance to the wall clock between two checks is a step, not drift.
const STEP_MS: u64 = 250;

/// A clock that ignores steps of the wall clock: the wall clock's time when it was made, plus boot time
/// since.
///
/// A reading costs as much as a reading of the wall clock. Call [`follow_wall`](Self::follow_wall) about once
/// a second, so that the clock follows slow corrections.
///
/// On Linux it includes the time the machine was suspended (`CLOCK_BOOTTIME`); elsewhere it uses the
/// monotonic clock of the standard library.
#[derive(Debug)]
pub struct AnchoredClock {
    /// Nanoseconds to add to boot time, as a wrapping number.
    offset_ns: AtomicU64,
    last_check: Mutex<Check>,
}

#[derive(Debug, Clone, Copy)]
struct Check {
    boot_ns: u64,
    wall_ahead_ms: i64,
    steps: u64,
}

/// The result of [`AnchoredClock::follow_wall`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReport {
    /// How far the wall clock is ahead of this clock, in milliseconds; negative if it is behind.
    pub wall_ahead_ms: i64,
    /// The step of the wall clock since the last check, in milliseconds; 0 if there was none.
    pub stepped_ms: i64,
    /// The number of steps since the clock was made, over all callers.
    pub steps: u64,
}

impl AnchoredClock {
    /// Makes a clock with the wall clock's current time.
    pub fn new() -> Self {
        Self::anchored(boot_ns(), WallClock.unix_ms())
    }

    fn anchored(boot_ns: u64, wall_ms: u64) -> Self {
        let offset_ns = wall_ms.wrapping_mul(NS_PER_MS).wrapping_sub(boot_ns);
        Self {
            offset_ns: AtomicU64::new(offset_ns),
            last_check: Mutex::new(Check { boot_ns, wall_ahead_ms: 0, steps: 0 }),
        }
    }

    fn at(&self, boot_ns: u64) -> u64 {
        boot_ns.wrapping_add(self.offset_ns.load(Ordering::Relaxed)) / NS_PER_MS
    }

    /// Compares this clock with the wall clock and moves it towards the wall clock, by at most 0.5 ms for
    /// each second since the last call and 1 ms per call. Reports a step of the wall clock, and follows it no
    /// faster than that.
    ///
    /// While the clock moves back, it does not show an earlier millisecond again, except to a thread that was
    /// interrupted during its reading.
    pub fn follow_wall(&self) -> ClockReport {
        self.follow(boot_ns(), WallClock.unix_ms())
    }

    /// Moves this clock forward to an instant, in unix milliseconds; never back. Returns how far it moved, in
    /// milliseconds.
    ///
    /// This clock stays behind the wall clock after a pause of a virtual machine, which stops boot time, and
    /// if the program started before the wall clock was set. Call this method where a jump does no harm, for
    /// instance after the store has granted a lease at the later time.
    pub fn advance_to(&self, unix_ms: u64) -> u64 {
        self.advance(boot_ns(), unix_ms)
    }

    fn advance(&self, boot_ns: u64, unix_ms: u64) -> u64 {
        let mut last = self.last_check.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let behind_ms = unix_ms.min(u64::MAX / NS_PER_MS).saturating_sub(self.at(boot_ns));
        self.offset_ns.fetch_add(behind_ms * NS_PER_MS, Ordering::Relaxed);
        // The next check must not report this as a step of the wall clock.
        last.wall_ahead_ms = last.wall_ahead_ms.saturating_sub_unsigned(behind_ms);
        behind_ms
    }

    fn follow(&self, boot_ns: u64, wall_ms: u64) -> ClockReport {
        // A panic under this lock leaves a complete `Check`: plain numbers, assigned last.
        let mut last = self.last_check.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let wall_ahead_ms = wall_ms.cast_signed() - self.at(boot_ns).cast_signed();
        let stepped_ms = match wall_ahead_ms - last.wall_ahead_ms {
            change if change.unsigned_abs() > STEP_MS => change,
            _ => 0,
        };
        // No more after a gap, such as a suspended machine: that would be the step that this clock avoids.
        let elapsed_ns = boot_ns.saturating_sub(last.boot_ns).min(MOST_ELAPSED_NS);
        let most_ns = elapsed_ns / 1_000_000 * SLEW_PER_MILLION;
        let wanted_ns = wall_ahead_ms.unsigned_abs().saturating_mul(NS_PER_MS).min(most_ns);
        let moved = if wall_ahead_ms < 0 {
            // At most back to the start of this millisecond, so that the clock shows no earlier one again.
            let into_ms = boot_ns.wrapping_add(self.offset_ns.load(Ordering::Relaxed)) % NS_PER_MS;
            wanted_ns.min(into_ms).wrapping_neg()
        } else {
            wanted_ns
        };
        self.offset_ns.fetch_add(moved, Ordering::Relaxed);
        let steps = last.steps + u64::from(stepped_ms != 0);
        *last = Check { boot_ns, wall_ahead_ms, steps };
        ClockReport { wall_ahead_ms, stepped_ms, steps }
    }
}

impl Default for AnchoredClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for AnchoredClock {
    #[inline]
    fn unix_ms(&self) -> u64 {
        self.at(boot_ns())
    }

    #[inline]
    fn read(&self) -> Reading {
        let (ns, hold) =
            cycles::hold_until_ms_ends(|| boot_ns().wrapping_add(self.offset_ns.load(Ordering::Relaxed)));
        Reading { unix_ms: ns / NS_PER_MS, hold }
    }

    #[inline]
    fn holds(&self, hold: Hold) -> bool {
        cycles::holds(hold)
    }
}

/// The system's wall clock.
///
/// A generator notices a step when the millisecond in which it happens has ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl WallClock {
    /// Nanoseconds since 1970; 64 bits last until the year 2554.
    #[expect(clippy::disallowed_methods, reason = "this type is the clock of all other code")]
    fn unix_ns() -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Not `as_nanos`: its u128 arithmetic would cost half as much again as the reading itself.
        since.as_secs().wrapping_mul(1_000_000_000).wrapping_add(u64::from(since.subsec_nanos()))
    }
}

impl Clock for WallClock {
    #[inline]
    fn unix_ms(&self) -> u64 {
        Self::unix_ns() / NS_PER_MS
    }

    #[inline]
    fn read(&self) -> Reading {
        let (ns, hold) = cycles::hold_until_ms_ends(Self::unix_ns);
        Reading { unix_ms: ns / NS_PER_MS, hold }
    }

    #[inline]
    fn holds(&self, hold: Hold) -> bool {
        cycles::holds(hold)
    }
}

#[cfg(all(test, not(snowmint_loom)))]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const WALL: u64 = 1_700_000_000_000;

    #[test]
    fn a_step_of_the_wall_is_reported_and_not_followed_at_once() {
        for step in [3_600_000_i64, -3_600_000] {
            let clock = AnchoredClock::anchored(5 * S, WALL);
            let stepped = WALL.wrapping_add_signed(1000 + step);
            let report = clock.follow(6 * S, stepped);
            assert_eq!(report, ClockReport { wall_ahead_ms: step, stepped_ms: step, steps: 1 });
            assert_eq!(clock.at(6 * S), WALL + 1000);
            let again = clock.follow(7 * S, stepped + 1000);
            assert_eq!(
                (again.stepped_ms, again.steps),
                (0, 1),
                "one step is reported once, and counted for all"
            );
        }
    }

    #[test]
    fn drift_is_followed_at_half_a_millisecond_a_second() {
        let clock = AnchoredClock::anchored(0, WALL);
        for second in 1..=100 {
            let report = clock.follow(second * S, WALL + second * 1000 + 40);
            assert_eq!(report.stepped_ms, 0);
        }
        assert_eq!(clock.at(100 * S), WALL + 100_000 + 40, "caught up after 80 s");
    }

    #[test]
    fn slewing_back_never_shows_an_earlier_millisecond() {
        let clock = AnchoredClock::anchored(0, WALL);
        let mut last = 0;
        for tenth in 0..200_000 {
            let boot_ns = tenth * NS_PER_MS / 10;
            let before = clock.at(boot_ns);
            assert!(before >= last);
            if tenth % 10_007 == 0 {
                clock.follow(boot_ns, WALL - 100_000);
            }
            last = clock.at(boot_ns);
            assert_eq!(last, before, "no reading is taken back");
        }
        let behind_ms = WALL + 19_999 - last;
        assert!((5..=10).contains(&behind_ms), "{behind_ms} ms in twenty seconds");
    }

    #[test]
    fn a_gap_is_not_made_up_for_at_once() {
        for step in [3_600_000_i64, -3_600_000] {
            let clock = AnchoredClock::anchored(0, WALL);
            clock.follow(S, WALL.wrapping_add_signed(1000 + step));
            // Suspended for ten hours.
            let boot_ns = 36_000 * S + NS_PER_MS / 2;
            let before = clock.at(boot_ns);
            clock.follow(boot_ns, (WALL + 36_000_000).wrapping_add_signed(step));
            assert!(clock.at(boot_ns).abs_diff(before) <= 1);
        }
    }

    #[test]
    fn it_is_brought_forward_and_never_back_and_that_is_no_step_of_the_wall() {
        let (clock, hours_ms) = (AnchoredClock::anchored(0, WALL), 8 * 3_600_000);
        clock.follow(S, WALL + 1000 + hours_ms);
        assert_eq!(clock.advance(2 * S, WALL + 2000 + hours_ms), hours_ms);
        assert_eq!(clock.at(2 * S), WALL + 2000 + hours_ms);
        for earlier in [0, WALL, WALL + 2000 + hours_ms] {
            assert_eq!(clock.advance(2 * S, earlier), 0);
            assert_eq!(clock.at(2 * S), WALL + 2000 + hours_ms);
        }
        let report = clock.follow(3 * S, WALL + 3000 + hours_ms);
        assert_eq!(report, ClockReport { wall_ahead_ms: 0, stepped_ms: 0, steps: 1 });
        assert_eq!(clock.at(3 * S), WALL + 3000 + hours_ms);
        clock.advance(3 * S, u64::MAX);
        assert_eq!(clock.at(3 * S), u64::MAX / NS_PER_MS, "no reading runs over");
    }

    #[test]
    fn it_shows_the_wall_clocks_time() {
        let clock = AnchoredClock::new();
        assert!(clock.unix_ms().abs_diff(WallClock.unix_ms()) < 1000);
    }
}
