//! When a node takes another lease and when it gives one back: pure, from what callers needed lately.
//! One change at a time: nothing is decided until the one before is done and has shown its effect.

use std::time::Duration;

use snowmint::Layout;

use super::Workers;

/// Looks are this far apart, and at least so many ticks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const MIN_TICKS: u32 = 10;
/// Sequences ran out where callers met a used-up tick in one of so many: one that sleeps until the next tick meets at
/// most every second one.
const BUSY_ONE_IN: u64 = 10;
/// A lease is given back after so many windows in which it was not needed.
const IDLE_WINDOWS: u32 = 3;

/// Decides over the number of a node's leases.
#[derive(Debug)]
pub(super) struct Capacity {
    workers: Workers,
    tick_ms: u64,
    ids_per_second: u64,
    idle_ms: u64,
    last: Option<Look>,
    idle_since_unix_ms: Option<u64>,
}

/// What is seen at one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) now_unix_ms: u64,
    /// Ids that callers got since the start.
    pub(super) ids: u64,
    /// Ticks since the start in which callers found none left.
    pub(super) exhausted_ticks: u64,
    /// Leases that are held.
    pub(super) held: u32,
    /// Leases that are held, sought or being given back.
    pub(super) slots: u32,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Seek another lease.
    Take,
    /// Give the last one back, or stop seeking it.
    GiveBack,
}

impl Capacity {
    pub(super) fn new(workers: Workers, layout: &Layout, window: Duration) -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            workers,
            tick_ms: ms(layout.tick()),
            ids_per_second: layout.ids_per_second_per_worker(),
            idle_ms: ms(window * IDLE_WINDOWS),
            last: None,
            idle_since_unix_ms: None,
        }
    }

    /// How often to look.
    pub(super) fn look_every(layout: &Layout) -> Duration {
        LOOK_EVERY.max(layout.tick() * MIN_TICKS)
    }

    /// Compares a look with the one before.
    ///
    /// ```text
    /// take:      callers met used-up ticks in 1/10 of the time, and got more than half of what the leases have
    /// give back: for three windows in a row, the other leases had twice what callers got, and ran out half as often
    /// ```
    pub(super) fn look(&mut self, look: Look) -> Option<Change> {
        let last = self.last.replace(look)?;
        let changed = (last.held, last.slots) != (look.held, look.slots);
        let elapsed_ms = look.now_unix_ms.saturating_sub(last.now_unix_ms);
        if elapsed_ms == 0 {
            return None;
        }
        let ticks = (elapsed_ms / self.tick_ms).max(1);
        let (ids, exhausted) = (look.ids - last.ids, look.exhausted_ticks - last.exhausted_ticks);
        let of = |leases: u32| {
            u128::from(self.ids_per_second) * u128::from(elapsed_ms) * u128::from(leases) / 1000
        };
        let busy = exhausted * BUSY_ONE_IN >= ticks && u128::from(ids) * 2 > of(look.held);
        let others = look.slots.saturating_sub(1);
        let idle = exhausted * BUSY_ONE_IN * 2 < ticks && u128::from(ids) * 2 <= of(others.min(look.held));
        let settled = look.held == look.slots && !changed;

        let idle_since = if idle { Some(self.idle_since_unix_ms.unwrap_or(last.now_unix_ms)) } else { None };
        self.idle_since_unix_ms = idle_since;
        let idle_for_ms = idle_since.map_or(0, |since| look.now_unix_ms.saturating_sub(since));
        if look.slots > self.workers.min() && idle_for_ms >= self.idle_ms {
            self.idle_since_unix_ms = None;
            return Some(Change::GiveBack);
        }
        (settled && busy && look.slots < self.workers.max()).then_some(Change::Take)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const T0: u64 = 1_700_000_000_000;

    /// A node that gets whatever it asks for one look later, and serves what it can of a load.
    struct Node {
        capacity: Capacity,
        look: Look,
    }

    impl Node {
        fn new(workers: &str) -> Self {
            // 16,000 ids a second for each worker.
            let layout: Layout = "time:41@1ms worker:10 sequence:4 epoch:2020-01-01".parse().unwrap();
            let workers: Workers = workers.parse().unwrap();
            let capacity = Capacity::new(workers, &layout, Duration::from_secs(10));
            let (held, slots) = (workers.min(), workers.min());
            Self { capacity, look: Look { now_unix_ms: T0, ids: 0, exhausted_ticks: 0, held, slots } }
        }

        /// Lets seconds pass under a load of ids a second; gives how many leases there are at the end of each.
        fn load(&mut self, ids_per_second: u64, seconds: u64) -> Vec<u32> {
            (0..seconds).map(|_| self.second(ids_per_second)).collect()
        }

        fn second(&mut self, ids: u64) -> u32 {
            let most = u64::from(self.look.held) * 16_000;
            self.look.now_unix_ms += 1000;
            self.look.ids += ids.min(most);
            self.look.exhausted_ticks += if ids > most { 400 } else { 0 };
            match self.capacity.look(self.look) {
                Some(Change::Take) => self.look.slots += 1,
                Some(Change::GiveBack) => {
                    self.look.slots -= 1;
                    self.look.held = self.look.held.min(self.look.slots);
                }
                None => self.look.held = self.look.slots,
            }
            self.look.slots
        }
    }

    #[test]
    fn it_grows_one_at_a_time_to_what_the_load_needs_and_stays_there() {
        let mut node = Node::new("1..8");
        assert_eq!(node.load(10_000, 20), [1; 20]);
        let grown = node.load(60_000, 60);
        assert!(grown.windows(2).all(|two| two[1] - two[0] <= 1), "{grown:?}");
        let second_at_4 = grown.iter().position(|slots| *slots == 4).unwrap();
        assert!(second_at_4 <= 12, "{grown:?}");
        assert_eq!(grown.last(), Some(&4));
    }

    #[test]
    fn it_gives_back_after_three_windows_one_at_a_time_and_keeps_the_least() {
        let mut node = Node::new("2..8");
        node.load(1_000_000, 60);
        assert_eq!(node.look.slots, 8);
        let idle = node.load(0, 400);
        let at = |slots: u32| idle.iter().position(|s| *s == slots).unwrap();
        assert_eq!(at(7), 29, "thirty seconds");
        assert!(at(6) - at(7) >= 30 && at(2) - at(3) >= 30);
        assert_eq!(idle.last(), Some(&2));
    }

    #[test]
    fn what_the_others_could_not_carry_twice_over_is_kept() {
        let mut node = Node::new("1..8");
        node.load(60_000, 30);
        assert_eq!(node.load(25_000, 300), [4; 300], "three have 48,000");
        assert_eq!(node.load(20_000, 300).last(), Some(&3), "three have 48,000, two 32,000");
        assert_eq!(node.load(10_000, 300).last(), Some(&2));
    }

    #[test]
    fn a_lease_that_cannot_be_had_is_sought_no_more_once_it_is_not_needed() {
        let mut node = Node::new("1..2");
        for _ in 0..100 {
            node.second(100_000);
            node.look.held = 1;
        }
        assert_eq!(node.look.slots, 2, "one is sought, and no further one");
        for _ in 0..40 {
            node.second(0);
            node.look.held = 1;
        }
        assert_eq!(node.look.slots, 1);
    }

    /// Its ids in order are those of one worker, whatever it is given: see the pool.
    #[test]
    fn ticks_that_are_used_up_while_most_ids_are_not_call_for_nothing() {
        let mut node = Node::new("1..8");
        for _ in 0..100 {
            node.look.now_unix_ms += 1000;
            node.look.ids += 8_000;
            node.look.exhausted_ticks += 900;
            assert_eq!(node.capacity.look(node.look), None);
        }
    }

    proptest! {
        #[test]
        fn it_never_leaves_its_bounds(
            min in 1..4_u32,
            more in 0..4_u32,
            loads in prop::collection::vec((0..200_000_u64, 1..120_u64), 1..20),
        ) {
            let mut node = Node::new(&format!("{min}..{}", min + more));
            for (load, seconds) in loads {
                for slots in node.load(load, seconds) {
                    prop_assert!((min..=min + more).contains(&slots));
                }
            }
        }
    }
}
