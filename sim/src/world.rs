//! The event loop: virtual time, messages to and from the store, faults. One thread, one seed.
//! Everything that happens is an entry of one queue, taken in order of time and then of creation.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::BinaryHeap;

use fastrand::Rng;
use snowmint_cluster::lease::protocol::{Begin, Call, Event, Failure, Input, Next};

use crate::history::{History, Maker};
use crate::node::Node;
use crate::store::SimStore;
use crate::{Report, Scenario};

/// The world begins here, in unix milliseconds; clocks that are off by hours still show a time after 2020.
const BEGIN_MS: u64 = 1_750_000_000_000;

#[derive(Debug)]
enum Happening {
    /// The node's wait is over.
    Wake,
    /// A request reaches the store; the answer goes to the process that asked.
    Request { call: u64, sent: Call, answer_lost: bool },
    /// An answer, a failure or a time-out reaches the node.
    Answer { call: u64, input: Input },
    /// The node is asked for ids.
    Draw,
    /// Something goes wrong somewhere.
    Fault,
}

pub(crate) struct World<'a, B> {
    scenario: &'a Scenario,
    rng: Rng,
    now_ms: u64,
    /// Keys order the queue by time and then by creation; the values are who it happens to, and what.
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    happenings: BTreeMap<u64, (usize, u32, Happening)>,
    created: u64,
    calls: u64,
    store: SimStore,
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
            queue: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            created: 0,
            calls: 0,
            store: SimStore::default(),
            nodes,
            history: History::default(),
        };
        for node in 0..scenario.nodes {
            let wait = world.rng.u64(..1000);
            world.after(wait, node, Happening::Wake);
            world.after(wait + 1, node, Happening::Draw);
        }
        world.after(1, 0, Happening::Fault);
        world
    }

    pub(crate) fn run(mut self) -> Report {
        let end_ms = BEGIN_MS + self.scenario.lasts_ms;
        while let Some(Reverse((at_ms, created))) = self.queue.pop() {
            if at_ms > end_ms {
                break;
            }
            self.now_ms = at_ms;
            if let Some((node, process, happening)) = self.happenings.remove(&created) {
                self.happen(node, process, happening);
            }
        }
        self.history.report.seed = self.scenario.seed;
        self.history.judged()
    }

    fn after(&mut self, ms: u64, node: usize, happening: Happening) {
        let process = self.nodes[node].process;
        self.queue_for(ms, node, process, happening);
    }

    fn queue_for(&mut self, ms: u64, node: usize, process: u32, happening: Happening) {
        self.created += 1;
        self.queue.push(Reverse((self.now_ms + ms, self.created)));
        self.happenings.insert(self.created, (node, process, happening));
    }

    fn happen(&mut self, index: usize, process: u32, happening: Happening) {
        self.history.trace(self.now_ms ^ index as u64);
        match happening {
            Happening::Request { call, sent, answer_lost } => {
                self.reaches_store(index, process, call, sent, answer_lost);
            }
            Happening::Fault => self.fault(),
            // The process it was meant for is gone.
            _ if self.nodes[index].process != process => {}
            // A paused process notices nothing until it goes on.
            happening if self.nodes[index].paused_until_ms > self.now_ms => {
                let rest = self.nodes[index].paused_until_ms - self.now_ms;
                self.after(rest, index, happening);
            }
            Happening::Draw => {
                self.draw(index, self.now_ms);
                let wait = 1 + self.rng.u64(..300);
                self.after(wait, index, Happening::Draw);
            }
            Happening::Wake => {
                let release = std::mem::take(&mut self.nodes[index].wants_release);
                let input = if release {
                    Input::Release { used_until_unix_ms: self.nodes[index].end_generator() }
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

    fn reaches_store(&mut self, index: usize, process: u32, call: u64, sent: Call, answer_lost: bool) {
        let still_waiting = self.nodes[index].process == process && self.nodes[index].pending == Some(call);
        if !still_waiting && matches!(sent, Call::Swap { .. }) {
            self.history.report.late_writes += 1;
        }
        let input = self.store.apply(sent);
        if !answer_lost {
            let delay = self.rng.u64(..20);
            self.queue_for(delay, index, process, Happening::Answer { call, input });
        }
    }

    fn draw(&mut self, index: usize, read_at_ms: u64) {
        let count = 1 + self.rng.usize(..24);
        let (ids, disorder) = self.nodes[index].draw(read_at_ms, count);
        self.history.report.disorder += disorder;
        let maker = Maker { node: index, process: self.nodes[index].process, at_ms: self.now_ms };
        for id in ids {
            self.history.made(id, maker);
        }
    }

    fn step(&mut self, index: usize, input: Input) {
        let now_ms = self.nodes[index].now_ms(self.now_ms);
        let turn = self.nodes[index].protocol.step(now_ms, input);
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
        let report = &mut self.history.report;
        match *event {
            Event::Granted(lease) => {
                report.grants += 1;
                self.nodes[index].granted(lease, self.scenario);
            }
            Event::Extended { until_unix_ms } => {
                report.renewals += 1;
                self.nodes[index].extended(until_unix_ms);
            }
            Event::Lost { .. } => report.losses += 1,
            Event::Released => report.releases += 1,
            Event::RecordsAhead { .. }
            | Event::ClockAhead { .. }
            | Event::NoneFree { .. }
            | Event::Awaited { .. }
            | Event::Taken { .. } => report.refusals += 1,
        }
    }

    /// Sends a call on its way: it may be refused, or its request or answer may be lost or come late.
    fn send(&mut self, index: usize, sent: Call) {
        self.calls += 1;
        let call = self.calls;
        self.nodes[index].pending = Some(call);
        let timeout = self.scenario.window_ms / 4;
        let given_up = timed_out(&sent);
        self.after(timeout, index, Happening::Answer { call, input: given_up });
        let faulty = self.rng.u64(..1000) < self.scenario.store_faults_per_mille;
        let delay = self.rng.u64(1..30);
        let kind = if faulty { self.rng.u8(1..5) } else { 0 };
        // Refused calls are known to have done nothing.
        self.history.report.unknown_outcomes += u64::from(faulty && kind != 3);
        match kind {
            0 => self.after(delay, index, Happening::Request { call, sent, answer_lost: false }),
            1 => self.after(delay, index, Happening::Request { call, sent, answer_lost: true }),
            2 => {
                let late = timeout + self.rng.u64(..self.scenario.window_ms * 3);
                self.after(late, index, Happening::Request { call, sent, answer_lost: false });
            }
            3 => self.after(delay, index, Happening::Answer { call, input: refused(&sent) }),
            // The request is lost: only the time-out comes.
            _ => {}
        }
    }

    fn fault(&mut self) {
        let wait = 1 + self.rng.u64(..self.scenario.fault_every_ms * 2);
        self.after(wait, 0, Happening::Fault);
        let index = self.rng.usize(..self.scenario.nodes);
        match self.rng.u8(..10) {
            0..=2 => {
                self.history.report.crashes += 1;
                self.restart(index);
            }
            3..=5 => self.pause(index),
            6 => self.nodes[index].wants_release = true,
            _ if self.scenario.step_ms > 0 => {
                self.history.report.steps += 1;
                self.nodes[index].step_clock(self.scenario, &mut self.rng);
            }
            _ => {}
        }
    }

    fn restart(&mut self, index: usize) {
        self.nodes[index].restart(index, self.scenario, &mut self.rng);
        let wait = self.rng.u64(..self.scenario.window_ms);
        self.after(wait, index, Happening::Wake);
        self.after(wait + 1, index, Happening::Draw);
    }

    /// Stops a node for up to three windows. The first thing it does after is to take ids by the clock it had
    /// read before.
    fn pause(&mut self, index: usize) {
        self.history.report.pauses += 1;
        let now_ms = self.now_ms;
        let lasts = self.rng.u64(..self.scenario.window_ms * 3);
        let node = &mut self.nodes[index];
        node.paused_until_ms = node.paused_until_ms.max(now_ms + lasts);
        let until_ms = node.paused_until_ms;
        self.now_ms = until_ms;
        self.draw(index, now_ms);
        self.now_ms = now_ms;
    }
}

/// What a node concludes when no answer came in time.
fn timed_out(call: &Call) -> Input {
    failed(call, Failure::Unknown)
}

fn refused(call: &Call) -> Input {
    failed(call, Failure::NotDone)
}

fn failed(call: &Call, failure: Failure) -> Input {
    match call {
        Call::List => Input::Listed(Err(failure)),
        Call::Load(_) => Input::Loaded(Err(failure)),
        Call::Swap { .. } => Input::Swapped(Err(failure)),
    }
}
