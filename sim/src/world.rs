//! The event loop: virtual time, and what happens to nodes. One thread, one seed.
//! Everything that happens is an entry of one queue, taken in order of time and then of creation.

mod calls;
mod faults;
mod queue;

use fastrand::Rng;
use snowmint::Lease;
use snowmint_cluster::lease::protocol::{Begin, Event, Input, Next};

use crate::history::{History, Maker};
use crate::node::Node;
use crate::store::{self, SimStore, Visit};
use crate::{Count, Report, Scenario};
use queue::{Due, Happening, Queue};

/// The world begins here, in unix milliseconds; clocks that are off by hours still show a time after 2020.
pub(crate) const BEGIN_MS: u64 = 1_750_000_000_000;

pub(crate) struct World<'a, B> {
    scenario: &'a Scenario,
    rng: Rng,
    now_ms: u64,
    queue: Queue,
    calls: u64,
    store: Box<dyn SimStore>,
    store_down_until_ms: u64,
    nodes: Vec<Node<B>>,
    history: History,
}

impl<'a, B: Begin> World<'a, B> {
    pub(crate) fn new(scenario: &'a Scenario) -> Self {
        let mut rng = Rng::with_seed(scenario.seed ^ 0x5eed);
        let nodes = (0..scenario.nodes).map(|index| Node::new(index, scenario, &mut rng)).collect();
        let mut world = Self {
            scenario,
            rng,
            now_ms: BEGIN_MS,
            queue: Queue::default(),
            calls: 0,
            store: store::of(scenario),
            store_down_until_ms: 0,
            nodes,
            history: History::default(),
        };
        for node in 0..scenario.nodes {
            let wait_ms = world.rng.u64(..1000);
            world.after(wait_ms, node, Happening::Wake);
            world.after(wait_ms + 1, node, Happening::Draw);
        }
        world.after(1, 0, Happening::Fault);
        world.after(1, 0, Happening::StoreFault);
        world
    }

    pub(crate) fn run(mut self) -> Report {
        let end_ms = BEGIN_MS + self.scenario.lasts_ms;
        while let Some(due) = self.queue.pop().filter(|due| due.at_ms <= end_ms) {
            self.now_ms = due.at_ms;
            self.happen(due);
        }
        let lapses = self.store.lapses();
        let figures = &mut self.history.figures;
        figures[Count::StaleReads] = lapses.stale_reads;
        figures[Count::ForgottenWrites] = lapses.forgotten_writes;
        self.history.judged(self.scenario.seed, self.scenario.store)
    }

    fn after(&mut self, ms: u64, node: usize, happening: Happening) {
        let process = self.nodes[node].process;
        self.queue_for(ms, node, process, happening);
    }

    fn queue_for(&mut self, ms: u64, node: usize, process: u32, happening: Happening) {
        self.queue.push(self.now_ms + ms, node, process, happening);
    }

    /// Lets somebody do something at the store, at this instant.
    fn visit<T>(&mut self, client: usize, does: impl FnOnce(&mut dyn SimStore, &mut Visit<'_>) -> T) -> T {
        let store_unix_ms = self.scenario.store_tells_time.then_some(self.now_ms);
        let mut visit = Visit { now_ms: self.now_ms, store_unix_ms, client, rng: &mut self.rng };
        does(self.store.as_mut(), &mut visit)
    }

    fn happen(&mut self, due: Due) {
        let Due { node: index, process, happening, .. } = due;
        self.history.trace(self.now_ms ^ index as u64);
        match happening {
            Happening::Request { call, sent, answer, term } => {
                if !self.store.drops_requests_of(term) {
                    self.reaches_store(index, process, call, sent, answer);
                }
            }
            Happening::Confirmed { call, input, unknown, term } => {
                let input = if self.store.term() == term { input } else { unknown };
                self.queue_for(0, index, process, Happening::Answer { call, input });
            }
            Happening::Fault => self.fault(),
            Happening::StoreFault => self.store_fault(),
            // The process it was meant for is gone.
            _ if self.nodes[index].process != process => {}
            // A paused process notices nothing until it goes on.
            happening if self.nodes[index].paused_until_ms > self.now_ms => {
                let rest_ms = self.nodes[index].paused_until_ms - self.now_ms;
                self.after(rest_ms, index, happening);
            }
            Happening::Draw => {
                self.draw(index, self.now_ms);
                let wait_ms = 1 + self.rng.u64(..self.scenario.window_ms / 10);
                self.after(wait_ms, index, Happening::Draw);
            }
            Happening::Wake => {
                let release = std::mem::take(&mut self.nodes[index].wants_release);
                let input = if release {
                    Input::Release { used_until_unix_ms: self.nodes[index].release() }
                } else {
                    Input::Wake
                };
                self.step(index, input);
            }
            Happening::Answer { call, input } => {
                if self.nodes[index].pending == Some(call) {
                    self.nodes[index].pending = None;
                    self.step(index, input);
                }
            }
        }
    }

    /// What a node's clock shows at an instant of the world's time.
    fn reading_ms(&mut self, index: usize, at_ms: u64) -> u64 {
        self.nodes[index].now_ms(at_ms, self.scenario, &mut self.rng)
    }

    fn draw(&mut self, index: usize, read_at_ms: u64) {
        let count = 1 + self.rng.usize(..24);
        let reading_ms = self.reading_ms(index, read_at_ms);
        let (ids, disorder) = self.nodes[index].draw(reading_ms, count);
        self.history.figures[Count::Disorder] += disorder;
        let maker = Maker { node: index, process: self.nodes[index].process, at_ms: self.now_ms };
        for id in ids {
            self.history.made(id, maker);
        }
    }

    fn step(&mut self, index: usize, input: Input) {
        let now = self.nodes[index].now(self.now_ms, self.scenario, &mut self.rng);
        let turn = self.nodes[index].protocol.step(now, input);
        for event in turn.events {
            self.apply(index, &event);
        }
        match turn.next {
            Next::Call(call) => self.send(index, call),
            Next::Wait(ms) => self.after(ms.max(1), index, Happening::Wake),
            Next::Stop => self.restart(index),
        }
    }

    fn apply(&mut self, index: usize, event: &Event) {
        let figures = &mut self.history.figures;
        if let Event::Granted(Lease { until_unix_ms, .. }) | Event::Extended { until_unix_ms } = *event {
            figures[Count::FutureTaken] += u64::from(until_unix_ms > self.now_ms + self.scenario.reach_ms());
        }
        match *event {
            Event::Granted(lease) => {
                figures[Count::Grants] += 1;
                self.nodes[index].granted(lease, self.scenario);
                self.nodes[index].save(self.scenario, &mut self.rng);
            }
            Event::Extended { until_unix_ms } => {
                figures[Count::Renewals] += 1;
                self.nodes[index].extended(until_unix_ms);
                self.nodes[index].save(self.scenario, &mut self.rng);
            }
            Event::StoreForgot { .. } => figures[Count::Forgotten] += 1,
            Event::Overlap { .. } => {
                figures[Count::Overlaps] += 1;
                self.nodes[index].overlap();
            }
            Event::Claimed { .. } => {}
            Event::Lost { .. } => figures[Count::Losses] += 1,
            Event::Released => figures[Count::Releases] += 1,
            Event::RecordsAhead { .. }
            | Event::ClockAhead { .. }
            | Event::ClockJumped { .. }
            | Event::NoneFree { .. }
            | Event::Awaited { .. }
            | Event::Taken { .. } => figures[Count::Refusals] += 1,
        }
    }
}
