//! One simulated node: a clock that may be wrong, the protocol, and the generator under its lease.
//! A process ends with a crash; its requests to the store may still arrive.

use std::sync::Arc;

use fastrand::Rng;
use snowmint::{Generator, Id, Lease, ManualClock, WorkerId};
use snowmint_cluster::Holder;
use snowmint_cluster::WorkerPool;
use snowmint_cluster::lease::protocol::{
    Begin, LeaseProtocol, LeaseSettings, Now, SettledLease, WorkerChoice,
};

use crate::scenario::{BEGIN_MS, MAX_SKEW_MS, Scenario, Starts, Wish};

/// A clock that is off, drifts and is stepped: local time is a linear function of the world's time, and each reading differs
/// from it by some jitter.
#[derive(Clone, Copy, Debug)]
struct Wrong {
    offset_ms: i64,
    drift_ppm: i64,
    /// The sum of its steps since the process began, which boot time does not show.
    stepped_ms: i64,
}

impl Wrong {
    fn at(self, world_ms: u64, jitter_ms: i64) -> u64 {
        let since_begin = i128::from(world_ms) - i128::from(BEGIN_MS);
        let drifted = since_begin * i128::from(self.drift_ppm) / 1_000_000;
        let local = i128::from(world_ms) + i128::from(self.offset_ms) + drifted + i128::from(jitter_ms);
        u64::try_from(local).unwrap_or(0)
    }
}

#[derive(Debug)]
pub(crate) struct Node<B> {
    wrong: Wrong,
    /// The clock of the generator; set before every use.
    clock: Arc<ManualClock>,
    pub(crate) process: u32,
    pub(crate) protocol: LeaseProtocol<B>,
    generator: Option<Generator<Arc<ManualClock>>>,
    /// Whether the generator has made no id.
    unused: bool,
    /// The last timestamp of a generator whose lease ended at once.
    used_until_unix_ms: u64,
    /// The lease as last saved.
    saved: Option<SettledLease>,
    last_id: Option<Id>,
    /// The call whose answer the process waits for.
    pub(crate) pending: Option<u64>,
    pub(crate) paused_until_ms: u64,
    pub(crate) wants_release: bool,
}

const TWENTY_YEARS_MS: i64 = 20 * 8_766 * 3_600_000;

/// Returns a random number around 0.
fn either_way(rng: &mut Rng, bound: u64) -> i64 {
    let bound = bound.cast_signed();
    rng.i64(-bound..=bound)
}

impl<B: Begin> Node<B> {
    pub(crate) fn new(index: usize, world_ms: u64, scenario: &Scenario, rng: &mut Rng) -> Self {
        Self {
            wrong: Wrong { offset_ms: 0, drift_ppm: 0, stepped_ms: 0 },
            clock: Arc::new(ManualClock::at_unix_ms(0)),
            process: 0,
            protocol: LeaseProtocol::with_begin(Self::settings(index, scenario), rng.u128(..)),
            generator: None,
            unused: true,
            used_until_unix_ms: 0,
            saved: None,
            last_id: None,
            pending: None,
            paused_until_ms: 0,
            wants_release: false,
        }
        .with_fresh_clock(world_ms, scenario, rng)
    }

    fn with_fresh_clock(mut self, world_ms: u64, scenario: &Scenario, rng: &mut Rng) -> Self {
        let ahead_ms = match scenario.starts {
            Starts::Near => 0,
            Starts::YearsAhead => match rng.u8(..8) {
                0 | 1 => TWENTY_YEARS_MS,
                // The same date at each start.
                2 | 3 => TWENTY_YEARS_MS - (world_ms - BEGIN_MS).cast_signed(),
                _ => 0,
            },
        };
        self.wrong = Wrong {
            offset_ms: ahead_ms + either_way(rng, scenario.skew_ms),
            drift_ppm: either_way(rng, scenario.drift_ppm),
            stepped_ms: 0,
        };
        self
    }

    #[expect(clippy::unwrap_used, reason = "the names below are constants that are allowed")]
    #[expect(clippy::cast_possible_truncation, reason = "there are a handful of nodes")]
    fn settings(index: usize, scenario: &Scenario) -> LeaseSettings {
        let name = if scenario.same_name { "node".to_owned() } else { format!("node-{index}") };
        let pool = WorkerPool::new(scenario.layout, snowmint::DatacenterId(0));
        let choice = match scenario.wish {
            Wish::Any => WorkerChoice::Any,
            Wish::Fixed => WorkerChoice::Only(WorkerId(index as u32 % pool.workers())),
        };
        LeaseSettings {
            pool,
            choice,
            holder: Holder::new(name).unwrap(),
            window_ms: scenario.window_ms,
            max_skew_ms: MAX_SKEW_MS,
            may_lose_ms: scenario.may_lose_ms,
            small_pool: scenario.small_pool,
        }
    }

    /// Replaces the process with a new one, often with another clock error. It continues under the lease that the old one
    /// saved, if that exists. Returns whether it does.
    pub(crate) fn restart(
        &mut self,
        index: usize,
        world_ms: u64,
        scenario: &Scenario,
        rng: &mut Rng,
    ) -> bool {
        // The mark is ahead of use: no timestamp from the mark on was used.
        let mark_unix_ms = self.generator.take().and_then(|generator| generator.end());
        let saved = self.saved.take().filter(|_| rng.bool());
        let process = self.process + 1;
        let wrong = self.wrong;
        *self = Self::new(index, world_ms, scenario, rng);
        self.process = process;
        if rng.bool() {
            self.wrong = Wrong { stepped_ms: 0, ..wrong };
        }
        let (Some(saved), Some(mark_unix_ms)) = (saved, mark_unix_ms) else { return false };
        let from_unix_ms = mark_unix_ms.max(saved.from_unix_ms) + rng.u64(..scenario.window_ms / 8);
        if from_unix_ms >= saved.until_unix_ms {
            return false;
        }
        let held = SettledLease { from_unix_ms, ..saved };
        self.protocol = LeaseProtocol::resume_with_begin(Self::settings(index, scenario), rng.u128(..), held);
        self.granted(held, scenario);
        self.saved = Some(held);
        true
    }

    /// Replaces the process with one that has a correct clock and no saved lease.
    pub(crate) fn mend(&mut self, index: usize, world_ms: u64, scenario: &Scenario, rng: &mut Rng) {
        self.saved = None;
        self.restart(index, world_ms, scenario, rng);
        self.wrong = Wrong { offset_ms: 0, drift_ppm: 0, stepped_ms: 0 };
    }

    /// Saves the lease, or fails and leaves an older one.
    pub(crate) fn save(&mut self, held: SettledLease, scenario: &Scenario, rng: &mut Rng) {
        if scenario.saves && rng.u8(..4) > 0 {
            self.saved = Some(held).filter(|held| !held.is_in_gap);
        }
    }

    /// Steps the clock, forward or back.
    pub(crate) fn step_clock(&mut self, scenario: &Scenario, rng: &mut Rng) {
        let by_ms = either_way(rng, scenario.step_ms);
        self.wrong.offset_ms += by_ms;
        self.wrong.stepped_ms += by_ms;
    }

    /// Returns a reading of the node's clock.
    pub(crate) fn now_ms(&self, world_ms: u64, scenario: &Scenario, rng: &mut Rng) -> u64 {
        self.wrong.at(world_ms, either_way(rng, scenario.jitter_ms))
    }

    /// Returns the clocks of the node: the one that may be wrong, the same without its steps, and the steady one.
    pub(crate) fn now(&self, world_ms: u64, scenario: &Scenario, rng: &mut Rng) -> Now {
        let unix_ms = self.now_ms(world_ms, scenario, rng);
        let unstepped_unix_ms = unix_ms.saturating_add_signed(-self.wrong.stepped_ms);
        Now { unix_ms, unstepped_unix_ms, steady_ms: world_ms - BEGIN_MS }
    }

    /// Starts a generator under a new lease. As in the shipped driver, the previous generator ends first, and the previously
    /// saved lease becomes invalid.
    pub(crate) fn granted(&mut self, held: SettledLease, scenario: &Scenario) {
        let SettledLease { worker, from_unix_ms, until_unix_ms, .. } = held;
        let used_until = self.end_generator().max(self.used_until_unix_ms);
        let built = Generator::builder(scenario.layout)
            .lease(Lease { worker, from_unix_ms, until_unix_ms })
            .not_before_unix_ms(used_until)
            .rule(scenario.rule)
            .build(Arc::clone(&self.clock));
        self.generator = built.ok();
        self.unused = true;
        self.saved = None;
    }

    pub(crate) fn extended(&mut self, until_unix_ms: u64) {
        if let Some(generator) = &self.generator {
            generator.extend_lease(until_unix_ms);
        }
    }

    /// Stops the generator, because another node has the same lease.
    pub(crate) fn overlap(&mut self) {
        self.saved = None;
        self.used_until_unix_ms = self.end_generator().max(self.used_until_unix_ms);
    }

    /// Ends the generator. Returns the first instant after every timestamp that it used.
    fn end_generator(&mut self) -> u64 {
        self.generator.take().and_then(|generator| generator.end()).unwrap_or(0)
    }

    /// Ends the generator in order to release the lease, and removes the saved lease first. Returns 0 if no id was made.
    pub(crate) fn release(&mut self) -> u64 {
        self.saved = None;
        let used_until = self.end_generator();
        if self.unused { 0 } else { used_until }
    }

    /// Draws up to `count` ids by a clock reading that may be old: a thread can be paused between reading the clock and taking
    /// its ids. Returns the ids, and how many of them were not larger than the one before.
    pub(crate) fn draw(&mut self, reading_ms: u64, count: usize) -> (Vec<Id>, u64) {
        self.clock.set_unix_ms(reading_ms);
        let Some(generator) = &self.generator else { return (Vec::new(), 0) };
        // Draw one by one as often as in one call: single ids can get ahead of the clock while its reading stays the same.
        let ids: Vec<Id> = if count.is_multiple_of(2) {
            generator.try_take(count).into_iter().flatten().collect()
        } else {
            (0..count).map_while(|_| generator.try_next_id().ok()).collect()
        };
        self.unused &= ids.is_empty();
        let mut disorder = 0;
        for id in &ids {
            disorder += u64::from(self.last_id.is_some_and(|last| last >= *id));
            self.last_id = Some(*id);
        }
        (ids, disorder)
    }
}
