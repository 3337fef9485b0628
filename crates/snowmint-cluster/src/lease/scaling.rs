//! When a node takes another lease and when it gives one back, and the task that does so.
//! One change at a time: the next decision waits until the last change is done and has had an effect.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use snowmint::{Clock, Layout};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::config::{LeaseConfigError, WorkerCount};
use super::status::LeaseStatus;
use super::task::{LeaseNode, RunningLease};

/// The interval between two looks at the demand, which spans at least [`MIN_TICKS`].
const LOOK_EVERY: Duration = Duration::from_secs(1);
const MIN_TICKS: u32 = 10;
/// Sequences ran out if callers met a used-up tick in one of this many ticks. A caller that sleeps until the next tick meets at
/// most every second one.
const BUSY_ONE_IN: u64 = 10;
/// A lease is given back after this many windows in which it was not needed.
const IDLE_WINDOWS: u32 = 3;

/// The demand of callers since the start, counted where they take ids: the ids they got, and the ticks that had none left.
///
/// A handle adds up its own ids first, so that taking an id touches no cache line that all handles share.
#[derive(Debug, Default)]
pub(super) struct IdDemand {
    ids: AtomicU64,
    exhausted_ticks: AtomicU64,
    last_exhausted_tick: AtomicU64,
}

impl IdDemand {
    pub(super) fn add_ids(&self, ids: u64) {
        self.ids.fetch_add(ids, Ordering::Relaxed);
    }

    /// Counts a tick that had no id left for a caller; several callers in one tick count once.
    pub(super) fn exhausted(&self, tick: u64) {
        if self.last_exhausted_tick.fetch_max(tick, Ordering::Relaxed) < tick {
            self.exhausted_ticks.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Decides how many leases a node needs, from the recent demand of callers.
#[derive(Debug)]
pub(super) struct ScalingPolicy {
    workers: WorkerCount,
    tick_ms: u64,
    ids_per_second: u64,
    idle_ms: u64,
    last: Option<Look>,
    idle_since_unix_ms: Option<u64>,
}

/// The demand and the leases at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    now_unix_ms: u64,
    /// Ids that callers got since the start.
    ids: u64,
    /// Ticks since the start that had no id left for a caller.
    exhausted_ticks: u64,
    /// The number of leases that are held.
    held: u32,
    /// The number of leases that are held, sought or being released.
    slots: u32,
    /// The number of leases that would still be held after one is given back; `None` if none may be given back.
    held_without_one: Option<u32>,
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseChange {
    /// Seek another lease.
    Take,
    /// Release a lease, or stop seeking one.
    GiveBack,
}

impl ScalingPolicy {
    pub(super) fn new(workers: WorkerCount, layout: &Layout, window: Duration) -> Self {
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

    /// Compares a look with the last one.
    ///
    /// ```text
    /// take:      callers met used-up ticks in 1/10 of the time, and got more than half of the ids of all leases
    /// give back: for three windows in a row, the other leases had twice the ids that callers got, and used-up ticks were
    ///            half as frequent
    /// ```
    fn decide(&mut self, look: Look) -> Option<LeaseChange> {
        let last = self.last.replace(look)?;
        let changed = (last.held, last.slots) != (look.held, look.slots);
        let elapsed_ms = look.now_unix_ms.saturating_sub(last.now_unix_ms);
        if elapsed_ms == 0 {
            return None;
        }
        let ticks = (elapsed_ms / self.tick_ms).max(1);
        let (ids, exhausted) = (look.ids - last.ids, look.exhausted_ticks - last.exhausted_ticks);
        let capacity_of = |leases: u32| {
            u128::from(self.ids_per_second) * u128::from(elapsed_ms) * u128::from(leases) / 1000
        };
        let busy = exhausted * BUSY_ONE_IN >= ticks && u128::from(ids) * 2 > capacity_of(look.held);
        let idle = exhausted * BUSY_ONE_IN * 2 < ticks
            && look.held_without_one.is_some_and(|others| u128::from(ids) * 2 <= capacity_of(others));
        let settled = look.held == look.slots && !changed;

        let idle_since = if idle { Some(self.idle_since_unix_ms.unwrap_or(last.now_unix_ms)) } else { None };
        self.idle_since_unix_ms = idle_since;
        let idle_for_ms = idle_since.map_or(0, |since| look.now_unix_ms.saturating_sub(since));
        if idle && idle_for_ms >= self.idle_ms {
            self.idle_since_unix_ms = None;
            return Some(LeaseChange::GiveBack);
        }
        (settled && busy && look.slots < self.workers.max()).then_some(LeaseChange::Take)
    }
}

/// What a lease of a node is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Seeking,
    Holding,
    Releasing,
}

/// Returns which lease to give back: one that is only sought if there is one, otherwise the newest. The first one stays, since
/// it watches the wall clock for all. At least `least` leases stay, and no held one is given back below that number.
fn to_give_back(leases: &[Doing], least: u32) -> Option<usize> {
    let least = least as usize;
    let count = |doing| leases.iter().filter(|lease| **lease == doing).count();
    let (seeking, holding) = (count(Doing::Seeking), count(Doing::Holding));
    if seeking + holding <= least {
        return None;
    }
    let newest = |doing| leases.iter().rposition(|lease| *lease == doing).filter(|index| *index > 0);
    newest(Doing::Seeking).or_else(|| newest(Doing::Holding).filter(|_| holding > least))
}

/// The states of all leases of a node, shared with everything that reports them.
#[derive(Clone, Debug, Default)]
pub(super) struct Statuses(Arc<Mutex<StatusList>>);

#[derive(Debug, Default)]
struct StatusList {
    leases: Vec<watch::Receiver<LeaseStatus>>,
    /// The counts of released leases.
    past: LeaseStatus,
}

impl Statuses {
    fn change(&self, change: impl FnOnce(&mut StatusList)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn each(&self) -> Vec<LeaseStatus> {
        self.read().0
    }

    /// Returns the leases, and the counts of released ones. One lock covers both, so a lease that is released is in exactly one
    /// of them.
    fn read(&self) -> (Vec<LeaseStatus>, LeaseStatus) {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (list.leases.iter().map(|status| status.borrow().clone()).collect(), list.past.clone())
    }

    pub(super) fn as_one(&self) -> LeaseStatus {
        let (all, past) = self.read();
        let mut held = all.iter().filter(|status| status.worker.is_some());
        let mut one = held.next().or(all.first()).cloned().unwrap_or_default();
        one.until_unix_ms = all.iter().filter_map(|status| status.until_unix_ms).max();
        (one.renewals, one.lost, one.store_errors) = (past.renewals, past.lost, past.store_errors);
        (one.store_forgot, one.overlaps) = (past.store_forgot, past.overlaps);
        for status in &all {
            one.add_counts(status);
        }
        // The first lease watches the wall clock for all.
        if let Some(first) = all.first() {
            (one.wall_ahead_ms, one.clock_steps) = (first.wall_ahead_ms, first.clock_steps);
        }
        one.trouble = all.iter().find_map(|status| status.trouble.clone());
        one.clock_ahead_ms = all.iter().map(|status| status.clock_ahead_ms).max().unwrap_or_default();
        one.records_ahead_ms = all.iter().map(|status| status.records_ahead_ms).max().unwrap_or_default();
        one
    }
}

/// Starts and releases the leases of a node as the policy decides, and releases all of them at the end.
pub(super) struct LeaseScaler {
    node: Arc<LeaseNode>,
    workers: WorkerCount,
    /// `None` if the number of leases is fixed.
    policy: Option<(ScalingPolicy, Arc<IdDemand>)>,
    /// In the order in which they were started.
    slots: Vec<LeaseSlot>,
    statuses: Statuses,
}

/// A lease with its number, which decides its name and its file.
struct LeaseSlot {
    number: usize,
    lease: RunningLease,
    /// When its release began.
    releasing_since: Option<Instant>,
}

impl LeaseSlot {
    fn doing(&self) -> Doing {
        if self.lease.is_releasing() {
            Doing::Releasing
        } else if self.lease.is_held() {
            Doing::Holding
        } else {
            Doing::Seeking
        }
    }
}

impl LeaseScaler {
    /// Starts the minimum number of leases.
    pub(super) fn start(
        node: Arc<LeaseNode>,
        workers: WorkerCount,
        policy: Option<(ScalingPolicy, Arc<IdDemand>)>,
    ) -> Result<Self, LeaseConfigError> {
        let mut scaler = Self { node, workers, policy, slots: Vec::new(), statuses: Statuses::default() };
        for _ in 0..workers.min() {
            scaler.take()?;
        }
        Ok(scaler)
    }

    /// Returns the state of the first lease, which is released last.
    pub(super) fn first(&self) -> watch::Receiver<LeaseStatus> {
        // There is at least one.
        let first = self.slots.first().map(|first| first.lease.status());
        first.unwrap_or_else(|| watch::channel(LeaseStatus::default()).1)
    }

    pub(super) fn statuses(&self) -> Statuses {
        self.statuses.clone()
    }

    /// Runs until `release` sends the patience for a release of all leases, or is dropped.
    pub(super) async fn run(mut self, mut release: oneshot::Receiver<Duration>) {
        let layout = self.node.settings().pool.layout();
        let mut looks = interval(LOOK_EVERY.max(layout.tick() * MIN_TICKS));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                asked = &mut release => {
                    // Without a release, leases are kept until they expire.
                    if let Ok(patience) = asked {
                        self.release_all(patience).await;
                    }
                    return;
                }
                _ = looks.tick(), if self.policy.is_some() => self.look(),
            }
        }
    }

    fn look(&mut self) {
        self.forget_gone();
        let Some((policy, demand)) = &mut self.policy else { return };
        let count = |leases: usize| u32::try_from(leases).unwrap_or(u32::MAX);
        let leases: Vec<Doing> = self.slots.iter().map(LeaseSlot::doing).collect();
        let held = count(leases.iter().filter(|lease| **lease == Doing::Holding).count());
        let unneeded = to_give_back(&leases, self.workers.min());
        let held_without_one = unneeded.map(|index| held - u32::from(leases[index] == Doing::Holding));
        let look = Look {
            now_unix_ms: self.node.clock().unix_ms(),
            ids: demand.ids.load(Ordering::Relaxed),
            exhausted_ticks: demand.exhausted_ticks.load(Ordering::Relaxed),
            held,
            slots: count(self.slots.len()),
            held_without_one,
        };
        match policy.decide(look) {
            Some(LeaseChange::Take) => {
                tracing::info!(leases = held, "sequences ran out; taking another worker");
                if let Err(error) = self.take() {
                    tracing::warn!(%error, "another worker cannot be taken now");
                }
            }
            Some(LeaseChange::GiveBack) => {
                if let Some(unneeded) = unneeded {
                    let leases = leases.len() - 1;
                    tracing::info!(leases, "a worker was not needed for three windows; releasing it");
                    self.slots[unneeded].lease.release();
                    self.slots[unneeded].releasing_since = Some(Instant::now());
                }
            }
            None => {}
        }
    }

    fn take(&mut self) -> Result<(), LeaseConfigError> {
        // The lowest free number, so that names and files are reused.
        let free = |number: &usize| self.slots.iter().all(|slot| slot.number != *number);
        let number = (0..=self.slots.len()).find(free).unwrap_or_default();
        let lease = self.node.start(number)?;
        self.statuses.change(|list| list.leases.push(lease.status()));
        self.slots.push(LeaseSlot { number, lease, releasing_since: None });
        Ok(())
    }

    fn forget_gone(&mut self) {
        let window = Duration::from_millis(self.node.settings().window_ms);
        for LeaseSlot { lease, releasing_since, .. } in &self.slots {
            if !lease.is_gone() && releasing_since.is_some_and(|since| since.elapsed() > window) {
                lease.abandon();
            }
        }
        for index in (0..self.slots.len()).rev() {
            if self.slots[index].lease.is_releasing() && self.slots[index].lease.is_gone() {
                let gone = self.slots.remove(index).lease.status();
                self.statuses.change(|list| {
                    list.leases.remove(index);
                    list.past.add_counts(&gone.borrow());
                });
            }
        }
    }

    async fn release_all(&mut self, patience: Duration) {
        for slot in &mut self.slots {
            slot.lease.release();
        }
        let until = Instant::now() + patience;
        for slot in &mut self.slots {
            slot.lease.gone(until.saturating_duration_since(Instant::now())).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const T0: u64 = 1_700_000_000_000;

    /// A node that gets each lease it requests one look later, and serves as much of the load as it can.
    struct SimulatedNode {
        policy: ScalingPolicy,
        look: Look,
    }

    impl SimulatedNode {
        fn new(workers: &str) -> Self {
            // 16,000 ids a second for each worker.
            let layout: Layout = "time:41@1ms worker:10 sequence:4 epoch:2020-01-01".parse().unwrap();
            let workers: WorkerCount = workers.parse().unwrap();
            let policy = ScalingPolicy::new(workers, &layout, Duration::from_secs(10));
            let (held, slots) = (workers.min(), workers.min());
            let look =
                Look { now_unix_ms: T0, ids: 0, exhausted_ticks: 0, held, slots, held_without_one: None };
            Self { policy, look }
        }

        /// Lets seconds pass under a load of ids per second; returns the number of leases at the end of each.
        fn load(&mut self, ids_per_second: u64, seconds: u64) -> Vec<u32> {
            (0..seconds).map(|_| self.second(ids_per_second)).collect()
        }

        fn second(&mut self, ids: u64) -> u32 {
            let most = u64::from(self.look.held) * 16_000;
            self.look.now_unix_ms += 1000;
            self.look.ids += ids.min(most);
            self.look.exhausted_ticks += if ids > most { 400 } else { 0 };
            let Look { held, slots, .. } = self.look;
            self.look.held_without_one =
                (slots > self.policy.workers.min()).then(|| if held < slots { held } else { slots - 1 });
            match self.policy.decide(self.look) {
                Some(LeaseChange::Take) => self.look.slots += 1,
                Some(LeaseChange::GiveBack) => {
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
        let mut node = SimulatedNode::new("1..8");
        assert_eq!(node.load(10_000, 20), [1; 20]);
        let grown = node.load(60_000, 60);
        assert!(grown.windows(2).all(|two| two[1] - two[0] <= 1), "{grown:?}");
        let second_at_4 = grown.iter().position(|slots| *slots == 4).unwrap();
        assert!(second_at_4 <= 12, "{grown:?}");
        assert_eq!(grown.last(), Some(&4));
    }

    #[test]
    fn it_gives_back_after_three_windows_one_at_a_time_and_keeps_the_least() {
        let mut node = SimulatedNode::new("2..8");
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
        let mut node = SimulatedNode::new("1..8");
        node.load(60_000, 30);
        assert_eq!(node.load(25_000, 300), [4; 300], "three have 48,000");
        assert_eq!(node.load(20_000, 300).last(), Some(&3), "three have 48,000, two 32,000");
        assert_eq!(node.load(10_000, 300).last(), Some(&2));
    }

    #[test]
    fn a_lease_that_cannot_be_had_is_sought_no_more_once_it_is_not_needed() {
        let mut node = SimulatedNode::new("1..2");
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

    /// The ids of one handle come from one worker, whatever the node holds: see the pool.
    #[test]
    fn ticks_that_are_used_up_while_most_ids_are_not_call_for_nothing() {
        let mut node = SimulatedNode::new("1..8");
        for _ in 0..100 {
            node.look.now_unix_ms += 1000;
            node.look.ids += 8_000;
            node.look.exhausted_ticks += 900;
            assert_eq!(node.policy.decide(node.look), None);
        }
    }

    /// Goal: a node whose first lease was taken from it keeps the one that it still holds, however small the load is.
    #[test]
    fn the_only_held_lease_is_never_given_back() {
        use Doing::{Holding as H, Releasing as R, Seeking as S};
        for (leases, least, wanted) in [
            (&[S, H][..], 1, None),
            (&[H, S], 1, Some(1)),
            (&[H, H], 1, Some(1)),
            (&[H, H], 2, None),
            (&[S, H, H], 1, Some(2)),
            (&[H, S, H], 1, Some(1)),
            (&[S, S, H], 1, Some(1)),
            (&[H, S, H], 2, Some(1)),
            (&[S, H, H], 2, None),
            (&[H, R], 1, None),
            (&[H, H, R], 1, Some(1)),
            (&[H], 1, None),
            (&[], 1, None),
        ] {
            assert_eq!(to_give_back(leases, least), wanted, "{leases:?}, at least {least}");
        }
    }

    proptest! {
        /// Goal: a release leaves the least number of leases, and takes no held one below it. Method: any leases.
        #[test]
        fn what_is_given_back_leaves_enough(
            leases in prop::collection::vec(prop_oneof![Just(Doing::Seeking), Just(Doing::Holding), Just(Doing::Releasing)], 0..9),
            least in 1..9_u32,
        ) {
            if let Some(index) = to_give_back(&leases, least) {
                let given = leases[index];
                let rest = leases.iter().enumerate().filter(|(other, it)| *other != index && **it != Doing::Releasing);
                let held = rest.clone().filter(|(_, it)| **it == Doing::Holding).count();
                prop_assert!(index > 0 && given != Doing::Releasing && rest.count() >= least as usize);
                prop_assert!(given == Doing::Seeking || held >= least as usize);
            }
        }

        #[test]
        fn it_never_leaves_its_bounds(
            min in 1..4_u32,
            more in 0..4_u32,
            loads in prop::collection::vec((0..200_000_u64, 1..120_u64), 1..20),
        ) {
            let mut node = SimulatedNode::new(&format!("{min}..{}", min + more));
            for (load, seconds) in loads {
                for slots in node.load(load, seconds) {
                    prop_assert!((min..=min + more).contains(&slots));
                }
            }
        }
    }
}
