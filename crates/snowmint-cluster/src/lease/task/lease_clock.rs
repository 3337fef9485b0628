//! How a clock that fell behind the wall clock catches up, and what is reported about the wall clock.
//!
//! An anchored clock falls behind when a virtual machine is paused, or when the wall clock is set after the
//! start. The node then counts its leases by the wall clock until one is granted, and the clock moves forward
//! with that grant.
//!
//! This cannot repeat an id: a grant begins at `max(now, old.until)` whatever the clock, and the clock only
//! moves forward. A wrong wall clock could block the worker for other nodes, so the node trusts it only by
//! the rules of [`clock_jumps`].

use std::time::Duration;

use snowmint::utc::Utc;
use snowmint::{Clock, WallClock};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::LeaseTask;
use crate::NodeClock;
use crate::lease::protocol::clock_jumps::{self, LEAST_JUMP_MS};
use crate::lease::protocol::{LeaseInput, SettledLease};
use crate::lease::status::LeaseStatus;

const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Watches the wall clock and the node's clock: follows slow corrections and reports steps. Runs until it is
/// aborted.
pub(super) async fn watch_wall(clock: NodeClock, status: watch::Sender<LeaseStatus>) {
    let mut ticks = interval(WATCH_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let report = clock.watch();
        if report.stepped_ms != 0 {
            tracing::warn!(
                stepped_ms = report.stepped_ms,
                wall_ahead_ms = report.wall_ahead_ms,
                "the wall clock was stepped; {}",
                clock.on_step()
            );
        }
        status.send_if_modified(|status| {
            status.wall_ahead_ms = report.wall_ahead_ms;
            // Several nodes of a process may watch one clock: only one of them sees a step, and all of them
            // count it.
            status.clock_steps = report.steps;
            false
        });
    }
}

/// The clock by which the node counts its leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountedBy {
    NodeClock,
    /// The wall clock, for one call of the protocol and its answer, and until a claim is granted or given up.
    /// The wall clock may be stepped again, so the node's clock measures the time since that call.
    WallClock {
        /// How far the node's clock was behind the wall clock when the node trusted the wall clock.
        ahead_ms: u64,
        /// The time of the last step, in unix milliseconds.
        unix_ms: u64,
    },
}

impl CountedBy {
    /// Returns the same, at most as far ahead of the node's clock as the wall clock is now: the node's clock
    /// may have been brought forward for another lease, or the wall clock corrected.
    fn at_most(self, wall_ahead_ms: u64) -> Self {
        match self {
            Self::WallClock { ahead_ms, unix_ms } => {
                Self::WallClock { ahead_ms: ahead_ms.min(wall_ahead_ms), unix_ms }
            }
            Self::NodeClock => self,
        }
    }
}

/// What the node wants a lease for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    /// The node holds no lease.
    Sought,
    /// It makes no ids under its lease, which has ended by the node's clock or has not begun. A renewal is
    /// due.
    Unusable,
    /// Its lease lasts.
    Lasts,
}

impl Occasion {
    /// The occasion at a renewal, by the node's clock.
    const fn to_renew(held: SettledLease, unix_ms: u64) -> Self {
        if held.from_unix_ms <= unix_ms && unix_ms < held.until_unix_ms {
            Self::Lasts
        } else {
            Self::Unusable
        }
    }
}

/// For how long the wall clock has been ahead by the same amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lasting {
    Briefly,
    LongEnough,
}

/// The clocks at one instant, in unix milliseconds.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    node: u64,
    wall: u64,
    /// The latest time that the store's clock can show; `None` for a store without a clock.
    store: Option<u64>,
    /// How much earlier its time may be.
    store_within_ms: u64,
    /// The clock of the node whose record is nearest to the wall clock; `None` without such a record, or if
    /// none was read.
    other: Option<u64>,
    lasting: Lasting,
}

impl Clocks {
    /// Returns whether the node may count a lease by the wall clock.
    fn trust_wall(self, occasion: Occasion, max_skew_ms: u64) -> bool {
        let agrees = |other: u64| self.wall <= other.saturating_add(max_skew_ms);
        match (occasion, self.store) {
            (Occasion::Sought | Occasion::Unusable, Some(store)) => agrees(store),
            (Occasion::Lasts, Some(store)) => {
                let earliest = store.saturating_sub(self.store_within_ms);
                agrees(store) && self.node.saturating_add(max_skew_ms) < earliest
            }
            // A record that is far ahead shows that its clock was wrong, not that this one is right.
            (_, None) => {
                self.other.is_some_and(|other| other.abs_diff(self.wall) <= max_skew_ms)
                    || self.lasting == Lasting::LongEnough
            }
        }
    }
}

impl LeaseTask {
    /// Decides, before a step, by which clock to count leases.
    pub(super) async fn look_at_wall(&mut self, input: &LeaseInput) {
        let ahead_ms = self.node.clock.wall_ahead_ms();
        self.wall_jumped.look(ahead_ms, self.node.steady_ms(), self.protocol.settings().window_ms);
        if ahead_ms <= LEAST_JUMP_MS {
            self.counted_by = CountedBy::NodeClock;
            return;
        }
        match input {
            LeaseInput::Looked(Ok(listing)) => {
                let wall = WallClock.unix_ms();
                let other = clock_jumps::clock_of_another(self.protocol.settings(), &listing.entries, wall);
                self.judge_wall(Occasion::Sought, listing.store_unix_ms, other);
            }
            // The grant has to move the clock forward, so it is counted as the claim was: otherwise the lease
            // would begin in the future of this node's clock.
            LeaseInput::Wake if self.protocol.is_claiming() => {
                self.counted_by = self.counted_by.at_most(ahead_ms);
            }
            LeaseInput::Wake => {
                // An older answer says nothing about the wall clock now.
                self.counted_by = CountedBy::NodeClock;
                let Some(held) = self.protocol.settled_lease() else { return };
                let occasion = Occasion::to_renew(held, self.node.clock.unix_ms());
                if occasion == Occasion::Lasts && ahead_ms <= self.protocol.settings().max_skew_ms {
                    return;
                }
                // A store that does not answer must not delay this renewal; the next one tries again.
                let patience = self.node.config.call_timeout() / 4;
                if let Ok(Ok(store_unix_ms)) = timeout(patience, self.node.latest_store_unix_ms()).await {
                    self.judge_wall(occasion, store_unix_ms, None);
                }
            }
            _ => {}
        }
    }

    fn judge_wall(&mut self, occasion: Occasion, store: Option<u64>, other: Option<u64>) {
        let settings = self.protocol.settings();
        let lasting = if self.wall_jumped.left_ms(settings.window_ms) == 0 {
            Lasting::LongEnough
        } else {
            Lasting::Briefly
        };
        let (node, wall) = (self.node.clock.unix_ms(), WallClock.unix_ms());
        let store_within_ms = self.node.store_clock_error_ms().saturating_mul(2);
        let clocks = Clocks { node, wall, store, store_within_ms, other, lasting };
        self.counted_by = if clocks.trust_wall(occasion, settings.max_skew_ms) {
            CountedBy::WallClock { ahead_ms: clocks.wall.saturating_sub(clocks.node), unix_ms: clocks.wall }
        } else {
            CountedBy::NodeClock
        };
    }

    /// Returns the time by which to count leases, in unix milliseconds.
    pub(super) fn count_by(&mut self) -> u64 {
        let now = self.node.clock.unix_ms();
        match &mut self.counted_by {
            CountedBy::NodeClock => now,
            CountedBy::WallClock { ahead_ms, unix_ms } => {
                *unix_ms = now.saturating_add(*ahead_ms);
                *unix_ms
            }
        }
    }

    /// After a grant or a renewal, moves the clock forward to the time by which it was counted, if the usable
    /// part of the lease reaches beyond that. Over a store that may lose writes, a renewal is usable only
    /// after the next one.
    pub(super) fn advance_clock(&mut self, held: SettledLease) {
        let CountedBy::WallClock { unix_ms, .. } = self.counted_by else { return };
        if held.until_unix_ms <= unix_ms {
            return;
        }
        self.counted_by = CountedBy::NodeClock;
        let by_ms = self.node.clock.advance_to(unix_ms);
        if by_ms > 0 {
            // This lease needs no renewal because of that.
            self.clock_jumps.borrow_and_update();
            let by = Duration::from_millis(by_ms);
            tracing::warn!(?by, now = %Utc(unix_ms), "this node's clock was behind the wall clock and was brought forward");
        }
    }
}

#[cfg(test)]
mod tests {
    use snowmint::WorkerId;
    use snowmint_store::Revision;

    use super::*;
    use crate::lease::record::Tag;

    const NOW: u64 = 1_700_000_000_000;
    const HOUR: u64 = 3_600_000;
    const SKEW: u64 = 30_000;

    /// Goal: a claim that settles brings the node's clock no further than the wall clock is ahead when it is
    /// granted.
    #[test]
    fn a_claim_follows_the_wall_clock_no_further_than_it_is_ahead() {
        let judged = CountedBy::WallClock { ahead_ms: 20_000, unix_ms: NOW };
        for (now, expected) in [(20_000, 20_000), (25_000, 20_000), (5_000, 5_000)] {
            assert_eq!(judged.at_most(now), CountedBy::WallClock { ahead_ms: expected, unix_ms: NOW });
        }
        assert_eq!(CountedBy::NodeClock.at_most(5_000), CountedBy::NodeClock);
    }

    #[test]
    fn a_wall_clock_that_is_ahead_is_believed_if_the_store_or_another_node_agrees() {
        use Occasion::{Lasts, Sought, Unusable};
        for (store, other, sought, unusable, lasts) in [
            // Nobody else knows the time, or agrees with the node.
            (None, None, false, false, false),
            (None, Some(NOW), false, false, false),
            // Another node's clock agrees with the wall clock.
            (None, Some(NOW + HOUR - SKEW), true, true, true),
            (None, Some(NOW + HOUR + SKEW), true, true, true),
            // The other clock was wrong itself, by a day.
            (None, Some(NOW + HOUR + SKEW + 1), false, false, false),
            (None, Some(NOW + 24 * HOUR), false, false, false),
            // The wall clock is wrong, the node's is right; records do not count where the store has a clock.
            (Some(NOW), Some(NOW + HOUR), false, false, false),
            (Some(NOW + SKEW), None, false, false, false),
            // The node's clock is wrong, by more than clocks may differ.
            (Some(NOW + HOUR), None, true, true, true),
            (Some(NOW + HOUR - SKEW), None, true, true, true),
            (Some(NOW + 2 * HOUR), None, true, true, true),
        ] {
            let clocks = Clocks {
                node: NOW,
                wall: NOW + HOUR,
                store,
                store_within_ms: 0,
                other,
                lasting: Lasting::Briefly,
            };
            let trusts = [Sought, Unusable, Lasts].map(|occasion| clocks.trust_wall(occasion, SKEW));
            assert_eq!(trusts, [sought, unusable, lasts], "{store:?} {other:?}");
            // One that lasts is believed, unless the store's clock shows that it is wrong.
            let lasting = Clocks { lasting: Lasting::LongEnough, ..clocks };
            for (occasion, trusts) in [Sought, Unusable, Lasts].into_iter().zip(trusts) {
                assert_eq!(
                    lasting.trust_wall(occasion, SKEW),
                    trusts || store.is_none(),
                    "{store:?} {other:?}"
                );
            }
        }
        let (wall, store, lasting) = (NOW + 20_000, Some(NOW + SKEW), Lasting::LongEnough);
        let near = Clocks { node: NOW, wall, store, store_within_ms: 0, other: None, lasting };
        assert!(
            near.trust_wall(Unusable, SKEW) && !near.trust_wall(Lasts, SKEW),
            "clocks may differ by so much"
        );
        // By a clock of whole seconds, the difference has to exceed the limit wherever in its second the
        // clock stands.
        let (wall, store) = (NOW + SKEW + 1000, Some(NOW + SKEW + 1000));
        assert!(Clocks { wall, store, ..near }.trust_wall(Lasts, SKEW));
        assert!(!Clocks { wall, store, store_within_ms: 1000, ..near }.trust_wall(Lasts, SKEW));
    }

    #[test]
    fn a_lease_is_usable_from_its_beginning_to_its_end_by_the_node_s_clock() {
        let held = SettledLease {
            worker: WorkerId(1),
            revision: Revision(1),
            tag: Tag(1),
            from_unix_ms: NOW,
            until_unix_ms: NOW + HOUR,
            is_in_gap: false,
        };
        for (unix_ms, occasion) in [
            (NOW - 1, Occasion::Unusable),
            (NOW, Occasion::Lasts),
            (NOW + HOUR - 1, Occasion::Lasts),
            (NOW + HOUR, Occasion::Unusable),
        ] {
            assert_eq!(Occasion::to_renew(held, unix_ms), occasion, "{unix_ms}");
        }
    }
}
