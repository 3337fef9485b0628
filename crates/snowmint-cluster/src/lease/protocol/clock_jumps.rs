//! When the node trusts a clock that jumped forward: its own clock, or the wall clock.
//!
//! 1. *A wrong clock cannot repeat an id.* A grant begins at `max(now, old.until)` whatever the clock, and generators only count
//!    up.
//! 2. *It can block a worker.* The grant reaches to the time that the clock shows, and no other node gets the worker until then.
//!    So a jump against boot time has to be confirmed. Only steps cause one: slewing moves both clocks.
//! 3. *A store with a clock decides.* A node whose clock is ahead of it by more than `max_skew` grants itself nothing.
//! 4. *Otherwise another node decides*, if its record, read now, was written by a clock that shows the same within `max_skew`.
//! 5. *Without either, time decides.* The node trusts the jump once the clock has kept the same distance to boot time for six
//!    windows and for a hundredth of the jump: 1 min for an hour (window 10 s), 5 min for 8 h, 3.7 days for a year. So a clock that
//!    is wrong for a shorter time blocks nothing, and a clock that was corrected is followed within that time. A clock that stays
//!    wrong blocks a worker for at most 100 times as long as it was wrong.
//! 6. *Time between looks proves nothing.* Each look counts for one window at most, and the steady clock stands still while the
//!    machine is suspended. A second jump restarts the time.
//! 7. *Small jumps pass.* Over a store without a clock, a jump of at most `max_skew` does not wait, because clocks may differ by
//!    that much. It is not confirmed by that: several jumps together get no more, until rule 4 or 5 confirms them.

use super::{
    Begin, CallFailure, LeaseEvent, LeaseNext, LeaseProtocol, LeaseSettings, Listing, Now, PendingWrite,
    State, WorkerEntry, WritePurpose,
};

/// Smaller jumps are left to slewing, in milliseconds.
pub(in crate::lease) const LEAST_JUMP_MS: u64 = 1000;
/// A jump has to last for this number of windows.
const WINDOWS: u64 = 6;
/// A jump has to last for its own size divided by this number.
const PART: u64 = 100;
/// From one look to the next, the distance may change by this much.
const EVEN_MS: u64 = 250;
/// It may also change by the time between the looks divided by this number: an anchored clock is slewed by half as much.
const EVEN_PART: u64 = 1000;

/// How long a clock has been ahead by the same amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::lease) struct Jumped(Option<LastLook>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_field_names, reason = "the unit is part of each name")]
struct LastLook {
    ahead_ms: u64,
    even_ms: u64,
    /// The time of the last look, by the steady clock.
    steady_ms: u64,
}

impl Jumped {
    /// Records how far the clock is ahead.
    pub(in crate::lease) fn look(&mut self, ahead_ms: u64, steady_ms: u64, window_ms: u64) {
        let even_ms = self.0.map_or(0, |seen| {
            let passed_ms = steady_ms.saturating_sub(seen.steady_ms);
            let is_even = ahead_ms.abs_diff(seen.ahead_ms) <= EVEN_MS + passed_ms / EVEN_PART;
            if is_even { seen.even_ms.saturating_add(passed_ms.min(window_ms)) } else { 0 }
        });
        self.0 = (ahead_ms > LEAST_JUMP_MS).then_some(LastLook { ahead_ms, even_ms, steady_ms });
    }

    /// Returns how much longer the jump has to last until it is trusted, in milliseconds.
    pub(in crate::lease) fn left_ms(&self, window_ms: u64) -> u64 {
        self.0.map_or(u64::MAX, |seen| {
            let wanted_ms = window_ms.saturating_mul(WINDOWS).max(seen.ahead_ms / PART);
            wanted_ms.saturating_sub(seen.even_ms)
        })
    }
}

/// Returns the clock of another node, in unix milliseconds, by the record that is nearest to this instant.
pub(in crate::lease) fn clock_of_another(
    settings: &LeaseSettings,
    entries: &[WorkerEntry],
    unix_ms: u64,
) -> Option<u64> {
    let others = entries.iter().filter_map(|entry| entry.record.as_ref());
    let others = others.filter(|record| !record.released && !settings.holder.is_same_node(&record.holder));
    // A record reaches a window beyond the clock of the node that wrote it.
    let clocks = others.map(|record| record.until_unix_ms.saturating_sub(settings.window_ms));
    clocks.min_by_key(|other| other.abs_diff(unix_ms))
}

impl<B: Begin> LeaseProtocol<B> {
    /// Returns how far the clock is ahead of what was last confirmed, in milliseconds.
    pub(super) const fn jump_ms(&self, now: Now) -> u64 {
        let confirmed_unix_ms = now.unstepped_unix_ms.saturating_add_signed(self.confirmed_ahead_ms);
        now.unix_ms.saturating_sub(confirmed_unix_ms)
    }

    /// Takes the store's time and other records: sends the grant, or holds it back.
    pub(super) fn looked_for_time(
        &mut self,
        now: Now,
        write: PendingWrite,
        answer: Result<Listing, CallFailure>,
    ) -> LeaseNext {
        // A claim is chosen again, because another node may have taken the worker in the meantime.
        let again = match write.purpose {
            WritePurpose::Claim => State::Seek,
            WritePurpose::Renew | WritePurpose::Release { .. } => State::ClockDoubted(write.clone()),
        };
        let Ok(listing) = answer else {
            return self.wait_after_failure(now, again);
        };
        self.failures = 0;
        if self.release_from_unix_ms.is_some() || (again == State::Seek && self.claim_pause_ms(now) > 0) {
            return self.proceed(now, again);
        }
        match self.confirm(now, &listing) {
            Ok(()) => self.send_attempt(now, write),
            Err(event) => {
                self.events.push(event);
                let wait_ms = self.look_again_ms();
                self.wait_about(again, wait_ms)
            }
        }
    }

    /// Checks whether this clock may grant a lease, by the rules of this module.
    fn confirm(&mut self, now: Now, listing: &Listing) -> Result<(), LeaseEvent> {
        let LeaseSettings { max_skew_ms, window_ms, .. } = self.settings;
        let by_ms = self.jump_ms(now);
        if let Some(store_unix_ms) = listing.store_unix_ms {
            self.compared(now, store_unix_ms)?;
        } else if clock_of_another(&self.settings, &listing.entries, now.unix_ms)
            .is_some_and(|other| other.abs_diff(now.unix_ms) <= max_skew_ms)
            || self.jumped.left_ms(window_ms) == 0
        {
            self.confirmed_ahead_ms = self.confirmed_ahead_ms.saturating_add_unsigned(by_ms);
        } else if by_ms > max_skew_ms {
            return Err(LeaseEvent::ClockJumped { by_ms, followed_in_ms: self.jumped.left_ms(window_ms) });
        }
        Ok(())
    }

    /// Compares the clock with the store's clock.
    pub(super) fn compared(&mut self, now: Now, store_unix_ms: u64) -> Result<(), LeaseEvent> {
        let max_skew_ms = self.settings.max_skew_ms;
        let ahead_ms = now.unix_ms.saturating_sub(store_unix_ms);
        if ahead_ms > max_skew_ms {
            self.probing.compared_steady_ms = None;
            return Err(LeaseEvent::ClockAhead { ahead_ms, max_skew_ms });
        }
        self.probing.compared_steady_ms = Some(now.steady_ms);
        self.confirmed_ahead_ms = now.unix_ms.cast_signed().wrapping_sub(now.unstepped_unix_ms.cast_signed());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;
    const WINDOW: u64 = 10_000;

    /// Looks every third of a window until the jump is trusted; returns how long that took, in milliseconds.
    fn believed_after(ahead_ms: u64) -> u64 {
        let (mut jumped, mut steady_ms) = (Jumped::default(), 5);
        loop {
            jumped.look(ahead_ms, steady_ms, WINDOW);
            if jumped.left_ms(WINDOW) == 0 {
                return steady_ms - 5;
            }
            steady_ms += WINDOW / 3;
        }
    }

    #[test]
    fn a_jump_is_believed_once_it_has_lasted_long_enough() {
        for (ahead_ms, after_ms) in
            [(2_000, 60_000), (HOUR, 60_000), (8 * HOUR, 288_000), (365 * 24 * HOUR, 315_360_000)]
        {
            let took_ms = believed_after(ahead_ms);
            assert!((after_ms..after_ms + WINDOW).contains(&took_ms), "{ahead_ms}: {took_ms}");
        }
    }

    /// Goal: a clock that is wrong for a short time, again and again, is never trusted. Method: it is right again, or jumps
    /// further, shortly before.
    #[test]
    fn another_step_begins_the_time_again() {
        for other_ms in [0, HOUR + 2_000, 2 * HOUR] {
            let mut jumped = Jumped::default();
            for steady_ms in (0..100 * WINDOW).step_by(1000) {
                let ahead_ms = if (steady_ms / (5 * WINDOW)).is_multiple_of(2) { HOUR } else { other_ms };
                jumped.look(ahead_ms, steady_ms, WINDOW);
                assert!(jumped.left_ms(WINDOW) > 0, "{other_ms} at {steady_ms}");
            }
        }
    }

    #[test]
    fn time_in_which_nobody_looked_counts_for_one_window() {
        let mut jumped = Jumped::default();
        for look in 0..6 {
            jumped.look(HOUR, look * 24 * HOUR, WINDOW);
            assert_eq!(jumped.left_ms(WINDOW), (6 - look) * WINDOW);
        }
    }

    #[test]
    fn a_clock_that_is_slewed_meanwhile_is_still_the_same() {
        let mut jumped = Jumped::default();
        for look in 0..100 {
            jumped.look(8 * HOUR - look * WINDOW / 2000, look * WINDOW, WINDOW);
        }
        assert_eq!(jumped.left_ms(WINDOW), 0);
        jumped.look(LEAST_JUMP_MS, 100 * WINDOW, WINDOW);
        assert_eq!(jumped.left_ms(WINDOW), u64::MAX, "no jump is left");
    }
}
