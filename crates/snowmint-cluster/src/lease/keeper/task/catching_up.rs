//! How a clock that fell behind is brought forward: a virtual machine was paused, or the wall clock was set after the start.
//! Its leases are counted by the wall clock until one is granted, and the clock moves with that grant.
//!
//! Nothing that was issued can be issued again by this: a grant begins at `max(now, old.until)` whatever the clock, and the
//! clock only moves forward. A wall clock that is wrong could take a worker's future with it, so it is believed only
//! where somebody else agrees: the store's own clock or, where it has none, another node's record.

use std::time::Duration;

use snowmint::utc::Utc;
use snowmint::{Clock, WallClock};
use tokio::time::timeout;

use super::Task;
use crate::lease::protocol::Input;

/// What is less is left to the slow correction.
const LEAST_MS: u64 = 1000;

/// Whether leases are counted by the wall clock in place of the node's, which is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByWall {
    No,
    /// The time that the last step was taken by, in unix milliseconds.
    Yes {
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

/// Three clocks at one instant, in unix milliseconds.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    node: u64,
    wall: u64,
    /// `None` for a store without a clock.
    store: Option<u64>,
    /// What the clock of a node showed at least that wrote one of the records; 0 if they were not read.
    records: u64,
}

impl Clocks {
    /// Whether a lease may be counted by the wall clock.
    fn trust_wall(self, occasion: Occasion, max_skew_ms: u64) -> bool {
        let agrees = |other: u64| self.wall <= other.saturating_add(max_skew_ms);
        match (occasion, self.store) {
            (Occasion::Sought | Occasion::Ended, Some(store)) => agrees(store),
            (Occasion::Lasts, Some(store)) => agrees(store) && self.node.saturating_add(max_skew_ms) < store,
            (_, None) => agrees(self.records),
        }
    }
}

impl Task {
    /// Decides, before a step, which clock leases are counted by.
    pub(super) async fn look_at_wall(&mut self, input: &Input) {
        let ahead_ms = self.clock.wall_ahead_ms();
        if ahead_ms < LEAST_MS {
            self.by_wall = ByWall::No;
            return;
        }
        match input {
            Input::Listed(Ok(listing)) => {
                let ends =
                    listing.entries.iter().filter_map(|entry| Some(entry.record.as_ref()?.until_unix_ms));
                // A record reaches a window beyond the clock of the node that wrote it.
                let records = ends.max().unwrap_or(0).saturating_sub(self.protocol.settings().window_ms);
                self.judge_wall(Occasion::Sought, listing.store_unix_ms, records);
            }
            Input::Wake => {
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
                    self.judge_wall(occasion, store_unix_ms, 0);
                }
            }
            _ => {}
        }
    }

    fn judge_wall(&mut self, occasion: Occasion, store: Option<u64>, records: u64) {
        let clocks = Clocks { node: self.clock.unix_ms(), wall: WallClock.unix_ms(), store, records };
        self.by_wall = if clocks.trust_wall(occasion, self.protocol.settings().max_skew_ms) {
            ByWall::Yes { unix_ms: clocks.wall }
        } else {
            ByWall::No
        };
    }

    /// The time to count leases by, in unix milliseconds.
    pub(super) fn count_by(&mut self) -> u64 {
        let now = self.clock.unix_ms();
        match &mut self.by_wall {
            ByWall::No => now,
            ByWall::Yes { unix_ms } => {
                *unix_ms = now.max(WallClock.unix_ms());
                *unix_ms
            }
        }
    }

    /// A lease was granted or renewed: the clock goes on by the time that it was counted by, if what may be used of the lease
    /// reaches beyond that. Over a store that may lose writes, what a renewal granted is of use only after the next one.
    pub(super) fn catch_up(&mut self) {
        let ByWall::Yes { unix_ms } = self.by_wall else { return };
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
        for (store, records, sought, ended, lasts) in [
            // Nobody else knows the time, or all that is known is like the node's.
            (None, 0, false, false, false),
            (None, NOW, false, false, false),
            // Another node's clock shows what the wall clock does.
            (None, NOW + HOUR - SKEW, true, true, true),
            // The wall clock is wrong, the node's is right; records do not count where the store has a clock.
            (Some(NOW), NOW + HOUR, false, false, false),
            (Some(NOW + SKEW), 0, false, false, false),
            // The node's clock is wrong, by more than clocks may differ.
            (Some(NOW + HOUR), 0, true, true, true),
            (Some(NOW + HOUR - SKEW), 0, true, true, true),
            (Some(NOW + 2 * HOUR), 0, true, true, true),
        ] {
            let clocks = Clocks { node: NOW, wall: NOW + HOUR, store, records };
            let trusts = [Sought, Ended, Lasts].map(|occasion| clocks.trust_wall(occasion, SKEW));
            assert_eq!(trusts, [sought, ended, lasts], "{store:?} {records}");
        }
        let near = Clocks { node: NOW, wall: NOW + 20_000, store: Some(NOW + SKEW), records: 0 };
        assert!(
            near.trust_wall(Ended, SKEW) && !near.trust_wall(Lasts, SKEW),
            "clocks may differ by so much"
        );
    }
}
