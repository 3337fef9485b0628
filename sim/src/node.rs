//! One simulated node: a clock that may be wrong, the protocol, and the generator under its lease.
//! A process ends with a crash; what it had sent to the store may still arrive.

use std::sync::Arc;

use fastrand::Rng;
use snowmint::{Generator, Id, Lease, ManualClock};
use snowmint_cluster::Holder;
use snowmint_cluster::lease::Pool;
use snowmint_cluster::lease::protocol::{Begin, Protocol, Settings, WorkerChoice};

use crate::Scenario;

/// A clock that is off, drifts and is stepped: local time is a line over the world's time.
#[derive(Clone, Copy, Debug)]
struct Wrong {
    offset_ms: i64,
    drift_ppm: i64,
}

impl Wrong {
    fn at(self, world_ms: u64) -> u64 {
        let drifted = i128::from(world_ms) * i128::from(self.drift_ppm) / 1_000_000;
        let local = i128::from(world_ms) + i128::from(self.offset_ms) + drifted;
        u64::try_from(local).unwrap_or(0)
    }
}

#[derive(Debug)]
pub(crate) struct Node<B> {
    wrong: Wrong,
    /// What the generator reads; set before every use of it.
    clock: Arc<ManualClock>,
    pub(crate) process: u32,
    pub(crate) protocol: Protocol<B>,
    generator: Option<Generator<Arc<ManualClock>>>,
    last_id: Option<Id>,
    /// The call whose answer the process waits for.
    pub(crate) pending: Option<u64>,
    pub(crate) paused_until_ms: u64,
    pub(crate) wants_release: bool,
}

/// A number either way of 0.
fn either_way(rng: &mut Rng, bound: u64) -> i64 {
    let bound = bound.cast_signed();
    rng.i64(-bound..=bound)
}

impl<B: Begin> Node<B> {
    pub(crate) fn new(index: usize, scenario: &Scenario, rng: &mut Rng) -> Self {
        Self {
            wrong: Wrong { offset_ms: 0, drift_ppm: 0 },
            clock: Arc::new(ManualClock::at_unix_ms(0)),
            process: 0,
            protocol: Self::protocol(index, scenario, rng),
            generator: None,
            last_id: None,
            pending: None,
            paused_until_ms: 0,
            wants_release: false,
        }
        .with_fresh_clock(scenario, rng)
    }

    fn with_fresh_clock(mut self, scenario: &Scenario, rng: &mut Rng) -> Self {
        self.wrong = Wrong {
            offset_ms: either_way(rng, scenario.skew_ms),
            drift_ppm: either_way(rng, scenario.drift_ppm),
        };
        self
    }

    #[expect(clippy::unwrap_used, reason = "the names below are constants that are allowed")]
    fn protocol(index: usize, scenario: &Scenario, rng: &mut Rng) -> Protocol<B> {
        let name = if scenario.same_name { "node".to_owned() } else { format!("node-{index}") };
        let settings = Settings {
            pool: Pool::new(scenario.layout, snowmint::DatacenterId(0)),
            choice: WorkerChoice::Any,
            holder: Holder::new(name).unwrap(),
            window_ms: scenario.window_ms,
            max_skew_ms: 30_000,
        };
        Protocol::with_begin(settings, rng.u128(..))
    }

    /// A new process in the place of the old one, often with another clock error.
    pub(crate) fn restart(&mut self, index: usize, scenario: &Scenario, rng: &mut Rng) {
        let process = self.process + 1;
        let wrong = self.wrong;
        *self = Self::new(index, scenario, rng);
        self.process = process;
        if rng.bool() {
            self.wrong = wrong;
        }
    }

    /// Steps the clock, forward or back.
    pub(crate) fn step_clock(&mut self, scenario: &Scenario, rng: &mut Rng) {
        self.wrong.offset_ms += either_way(rng, scenario.step_ms);
    }

    pub(crate) fn now_ms(&self, world_ms: u64) -> u64 {
        self.wrong.at(world_ms)
    }

    /// A lease was granted: the generator before is ended first, as the driver that ships does.
    pub(crate) fn granted(&mut self, lease: Lease, scenario: &Scenario) {
        let used_until = self.end_generator();
        let built = Generator::builder(scenario.layout)
            .lease(lease)
            .not_before_unix_ms(used_until)
            .rule(scenario.rule)
            .build(Arc::clone(&self.clock));
        self.generator = built.ok();
    }

    pub(crate) fn extended(&mut self, until_unix_ms: u64) {
        if let Some(generator) = &self.generator {
            generator.extend_lease(until_unix_ms);
        }
    }

    /// The first instant after every timestamp used.
    pub(crate) fn end_generator(&mut self) -> u64 {
        self.generator.take().and_then(|generator| generator.end()).unwrap_or(0)
    }

    /// Draws up to `count` ids by a clock reading of `read_at_ms` of the world's time, which may be long ago: a
    /// thread can be paused between reading the clock and taking its ids. Gives the ids, and how many of them
    /// were not larger than the one before.
    pub(crate) fn draw(&mut self, read_at_ms: u64, count: usize) -> (Vec<Id>, u64) {
        self.clock.set_unix_ms(self.wrong.at(read_at_ms));
        let Some(generator) = &self.generator else { return (Vec::new(), 0) };
        // One by one as often as together: the first goes past the clock while its reading holds.
        let ids: Vec<Id> = if count.is_multiple_of(2) {
            generator.try_take(count).into_iter().flatten().collect()
        } else {
            (0..count).map_while(|_| generator.try_next().ok()).collect()
        };
        let mut disorder = 0;
        for id in &ids {
            disorder += u64::from(self.last_id.is_some_and(|last| last >= *id));
            self.last_id = Some(*id);
        }
        (ids, disorder)
    }
}
