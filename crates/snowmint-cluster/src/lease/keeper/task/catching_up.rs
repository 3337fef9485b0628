//! How a clock that fell behind is brought forward: a virtual machine was paused, or the wall clock was set after the start.
//! Its leases are counted by the wall clock until one is granted, and the clock moves with that grant.
//!
//! Nothing that was issued can be issued again by this: a grant begins at `max(now, old.until)` whatever the clock, and the
//! clock only moves forward. A wall clock that is wrong could take a worker's future with it, so it is believed only by the
//! rules of [`jumps`].

use std::time::Duration;

use snowmint::utc::Utc;
use snowmint::{Clock, WallClock};
use tokio::time::timeout;

use super::Task;
use crate::lease::protocol::Input;
use crate::lease::protocol::jumps::{self, LEAST_JUMP_MS};

/// Whether leases are counted by the wall clock in place of the node's, which is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByWall {
    No,
    /// For the step that was judged and its answer: the wall clock may be stepped again meanwhile, so time goes on by the
    /// node's clock.
    Yes {
        /// How far the node's clock was behind the wall clock when that was believed.
        ahead_ms: u64,
        /// The time that the last step was taken by, in unix milliseconds.
        unix_ms: u64,
    },
}

/// What a lease is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    /// None is held.
    Sought,
    /// The one that is held has ended and is to be renewed.
    Ended,
    /// The one that is held lasts.
    Lasts,
}

/// How long the wall clock has been ahead by the same.
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
    /// `None` for a store without a clock.
    store: Option<u64>,
    /// What the clock of another node showed that wrote one of the records, in the record that is nearest to the wall clock;
    /// `None` if there is none, or they were not read.
    other: Option<u64>,
    lasting: Lasting,
}

impl Clocks {
    /// Whether a lease may be counted by the wall clock.
    fn trust_wall(self, occasion: Occasion, max_skew_ms: u64) -> bool {
        let agrees = |other: u64| self.wall <= other.saturating_add(max_skew_ms);
        match (occasion, self.store) {
            (Occasion::Sought | Occasion::Ended, Some(store)) => agrees(store),
            (Occasion::Lasts, Some(store)) => agrees(store) && self.node.saturating_add(max_skew_ms) < store,
            // One that is far ahead shows a clock that was wrong, not that this one is right.
            (_, None) => {
                self.other.is_some_and(|other| other.abs_diff(self.wall) <= max_skew_ms)
                    || self.lasting == Lasting::LongEnough
            }
        }
    }
}

impl Task {
    /// Decides, before a step, which clock leases are counted by.
    pub(super) async fn look_at_wall(&mut self, input: &Input) {
        let ahead_ms = self.clock.wall_ahead_ms();
        self.jumped.look(ahead_ms, self.quiet.steady_ms(), self.protocol.settings().window_ms);
        if ahead_ms <= LEAST_JUMP_MS {
            self.by_wall = ByWall::No;
            return;
        }
        match input {
            Input::Listed(Ok(listing)) => {
                let wall = WallClock.unix_ms();
                let other = jumps::clock_of_another(self.protocol.settings(), &listing.entries, wall);
                self.judge_wall(Occasion::Sought, listing.store_unix_ms, other);
            }
            Input::Wake => {
                // What was answered before says nothing of the wall clock of now.
                self.by_wall = ByWall::No;
                let Some(held) = self.protocol.held() else { return };
                let occasion = if held.until_unix_ms <= self.clock.unix_ms() {
                    Occasion::Ended
                } else {
                    Occasion::Lasts
                };
                if occasion == Occasion::Lasts && ahead_ms <= self.protocol.settings().max_skew_ms {
                    return;
                }
                // A store that does not answer is asked again at the next renewal, and must not hold up this one.
                let patience = self.config.call_timeout() / 4;
                if let Ok(Ok(store_unix_ms)) = timeout(patience, self.store.unix_ms()).await {
                    self.judge_wall(occasion, store_unix_ms, None);
                }
            }
            _ => {}
        }
    }

    fn judge_wall(&mut self, occasion: Occasion, store: Option<u64>, other: Option<u64>) {
        let settings = self.protocol.settings();
        let lasting =
            if self.jumped.left_ms(settings.window_ms) == 0 { Lasting::LongEnough } else { Lasting::Briefly };
        let clocks = Clocks { node: self.clock.unix_ms(), wall: WallClock.unix_ms(), store, other, lasting };
        self.by_wall = if clocks.trust_wall(occasion, settings.max_skew_ms) {
            ByWall::Yes { ahead_ms: clocks.wall.saturating_sub(clocks.node), unix_ms: clocks.wall }
        } else {
            ByWall::No
        };
    }

    /// The time to count leases by, in unix milliseconds.
    pub(super) fn count_by(&mut self) -> u64 {
        let now = self.clock.unix_ms();
        match &mut self.by_wall {
            ByWall::No => now,
            ByWall::Yes { ahead_ms, unix_ms } => {
                *unix_ms = now.saturating_add(*ahead_ms);
                *unix_ms
            }
        }
    }

    /// A lease was granted or renewed: the clock goes on by the time that it was counted by, if what may be used of the lease
    /// reaches beyond that. Over a store that may lose writes, what a renewal granted is of use only after the next one.
    pub(super) fn catch_up(&mut self) {
        let ByWall::Yes { unix_ms, .. } = self.by_wall else { return };
        if self.protocol.held().is_none_or(|held| held.until_unix_ms <= unix_ms) {
            return;
        }
        self.by_wall = ByWall::No;
        let by_ms = self.clock.advance_to(unix_ms);
        if by_ms > 0 {
            // Its own lease needs no renewal for that.
            self.jumps.borrow_and_update();
            let by = Duration::from_millis(by_ms);
            tracing::warn!(?by, now = %Utc(unix_ms), "this node's clock was behind the wall clock and was brought forward");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000;
    const HOUR: u64 = 3_600_000;
    const SKEW: u64 = 30_000;

    #[test]
    fn a_wall_clock_that_is_ahead_is_believed_where_the_store_or_another_node_agrees() {
        use Occasion::{Ended, Lasts, Sought};
        for (store, other, sought, ended, lasts) in [
            // Nobody else knows the time, or all that is known is like the node's.
            (None, None, false, false, false),
            (None, Some(NOW), false, false, false),
            // Another node's clock shows what the wall clock does.
            (None, Some(NOW + HOUR - SKEW), true, true, true),
            (None, Some(NOW + HOUR + SKEW), true, true, true),
            // It was wrong itself, by a day.
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
            let clocks = Clocks { node: NOW, wall: NOW + HOUR, store, other, lasting: Lasting::Briefly };
            let trusts = [Sought, Ended, Lasts].map(|occasion| clocks.trust_wall(occasion, SKEW));
            assert_eq!(trusts, [sought, ended, lasts], "{store:?} {other:?}");
            // One that lasts is believed unless the store has a clock, which shows that it is wrong.
            let lasting = Clocks { lasting: Lasting::LongEnough, ..clocks };
            for (occasion, trusts) in [Sought, Ended, Lasts].into_iter().zip(trusts) {
                assert_eq!(
                    lasting.trust_wall(occasion, SKEW),
                    trusts || store.is_none(),
                    "{store:?} {other:?}"
                );
            }
        }
        let (wall, store, lasting) = (NOW + 20_000, Some(NOW + SKEW), Lasting::LongEnough);
        let near = Clocks { node: NOW, wall, store, other: None, lasting };
        assert!(
            near.trust_wall(Ended, SKEW) && !near.trust_wall(Lasts, SKEW),
            "clocks may differ by so much"
        );
    }
}
