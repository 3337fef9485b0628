//! The event loop: virtual time, and the events of each node. One thread, one seed.
//! Each event is an entry of one queue, ordered by time and then by creation.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use fastrand::Rng;
use snowmint_cluster::lease::protocol::{
    Begin, CallFailure, LeaseCall, LeaseEvent, LeaseInput, LeaseNext, LookScope, StoreTime,
};
use snowmint_cluster::lease::{Record, Tag};
use snowmint_store::{Expected, StoreId};

use crate::history::{History, Maker};
use crate::node::Node;
use crate::scenario::BEGIN_MS;
use crate::store::records::failed;
use crate::store::{self, CallFault, Reply, SimStore, StoreFault, Visit};
use crate::{Count, Report, Scenario};

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
    /// Whether all clocks are correct, and nothing fails any more.
    mended: bool,
    /// The store whose ids the client takes: the first one that an answer named.
    client_store: Option<StoreId>,
}

impl<'a, B: Begin> World<'a, B> {
    pub(crate) fn new(scenario: &'a Scenario) -> Self {
        let mut rng = Rng::with_seed(scenario.seed ^ 0x5eed);
        let nodes = (0..scenario.nodes).map(|index| Node::new(index, BEGIN_MS, scenario, &mut rng)).collect();
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
            mended: false,
            client_store: None,
        };
        for node in 0..scenario.nodes {
            let wait_ms = world.rng.u64(..1000);
            world.after(wait_ms, node, Happening::Wake);
            world.after(wait_ms + 1, node, Happening::Draw);
        }
        world.after(1, 0, Happening::Fault);
        world.after(1, 0, Happening::StoreFault);
        if let Some(ms) = scenario.mends_at_ms() {
            world.after(ms, 0, Happening::Mend);
        }
        world
    }

    pub(crate) fn run(mut self) -> Report {
        let end_ms = BEGIN_MS + self.scenario.lasts_ms;
        while let Some(due) = self.queue.pop().filter(|due| due.at_ms <= end_ms) {
            self.now_ms = due.at_ms;
            self.happen(due);
        }
        if self.mended && self.scenario.has_workers_for_all() {
            let now_ms = self.now_ms;
            // The replicas of a store may lag behind just now.
            let lately_ms = now_ms - self.scenario.window_ms;
            let serves = |node: &&Node<B>| {
                let lease = node.protocol.settled_lease();
                lease.is_some_and(|it| it.from_unix_ms <= now_ms && lately_ms < it.until_unix_ms)
            };
            let serving = self.nodes.iter().filter(serves).count();
            self.history.figures[Count::Stranded] = (self.nodes.len() - serving) as u64;
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

    /// Performs an operation on the store at this instant.
    fn visit<T>(
        &mut self,
        (client, process): (usize, u32),
        does: impl FnOnce(&mut dyn SimStore, &mut Visit<'_>) -> T,
    ) -> T {
        let store_unix_ms = self.scenario.store_tells_time.then_some(self.now_ms);
        let mut visit = Visit { now_ms: self.now_ms, store_unix_ms, client, process, rng: &mut self.rng };
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
            Happening::Mend => self.mend(),
            // Its process is gone.
            _ if self.nodes[index].process != process => {}
            // A paused process notices nothing until it resumes.
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
                    LeaseInput::Release { used_until_unix_ms: self.nodes[index].release() }
                } else {
                    LeaseInput::Wake
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

    /// Returns the reading of a node's clock at an instant of world time.
    fn reading_ms(&mut self, index: usize, at_ms: u64) -> u64 {
        self.nodes[index].now_ms(at_ms, self.scenario, &mut self.rng)
    }

    fn draw(&mut self, index: usize, read_at_ms: u64) {
        let count = 1 + self.rng.usize(..24);
        let reading_ms = self.reading_ms(index, read_at_ms);
        let (ids, disorder) = self.nodes[index].draw(reading_ms, count);
        self.history.figures[Count::Disorder] += disorder;
        let maker = Maker { node: index, process: self.nodes[index].process, at_ms: self.now_ms };
        if ids.is_empty() || !self.client_takes(index) {
            self.history.figures[Count::OfAnotherStore] += ids.len() as u64;
            return;
        }
        for id in ids {
            self.history.made(id, maker);
        }
    }

    /// Returns whether the client takes the ids of a node now. The first store that it sees is its own.
    fn client_takes(&mut self, index: usize) -> bool {
        let named = self.store.named_by(index, self.nodes[index].process);
        self.client_store = self.client_store.or(named);
        !self.scenario.store.client_compares() || named.is_none() || self.client_store == named
    }

    fn step(&mut self, index: usize, input: LeaseInput) {
        let now = self.nodes[index].now(self.now_ms, self.scenario, &mut self.rng);
        let turn = self.nodes[index].protocol.step(now, input);
        for event in turn.events {
            self.apply(index, &event);
        }
        match turn.next {
            LeaseNext::Call(call) => self.send(index, call),
            LeaseNext::Wait(ms) => self.after(ms.max(1), index, Happening::Wake),
            LeaseNext::Stop => self.restart(index),
        }
    }

    fn apply(&mut self, index: usize, event: &LeaseEvent) {
        let figures = &mut self.history.figures;
        if let LeaseEvent::Granted(held) | LeaseEvent::Extended(held) = *event {
            figures[Count::FutureTaken] +=
                u64::from(held.until_unix_ms > self.now_ms + self.scenario.reach_ms());
        }
        match *event {
            LeaseEvent::Granted(held) => {
                figures[Count::Grants] += 1;
                figures[Count::GrantsInGaps] += u64::from(held.is_in_gap);
                self.nodes[index].granted(held, self.scenario);
                self.nodes[index].save(held, self.scenario, &mut self.rng);
            }
            LeaseEvent::Extended(held) => {
                figures[Count::Renewals] += 1;
                self.nodes[index].extended(held.until_unix_ms);
                self.nodes[index].save(held, self.scenario, &mut self.rng);
            }
            LeaseEvent::StoreForgot { .. } => figures[Count::Forgotten] += 1,
            LeaseEvent::Overlap { .. } => {
                figures[Count::Overlaps] += 1;
                self.nodes[index].overlap();
            }
            LeaseEvent::Copied { .. } => {
                figures[Count::Copies] += 1;
                self.nodes[index].overlap();
            }
            LeaseEvent::Claimed { .. } => {}
            LeaseEvent::GapEnds { .. } => figures[Count::GapEnds] += 1,
            LeaseEvent::Lost { .. } => figures[Count::Losses] += 1,
            LeaseEvent::Released => figures[Count::Releases] += 1,
            LeaseEvent::RecordsAhead { .. }
            | LeaseEvent::ClockAhead { .. }
            | LeaseEvent::ClockJumped { .. }
            | LeaseEvent::NoneFree { .. }
            | LeaseEvent::Awaited { .. }
            | LeaseEvent::Taken { .. } => figures[Count::Refusals] += 1,
        }
    }
}

impl<B: Begin> World<'_, B> {
    /// Sends a call; its node waits for a quarter of a window.
    fn send(&mut self, index: usize, sent: LeaseCall) {
        self.calls += 1;
        let call = self.calls;
        self.nodes[index].pending = Some(call);
        let timeout_ms = self.scenario.window_ms / 4;
        self.after(timeout_ms, index, Happening::Answer { call, input: failed(&sent, CallFailure::Unknown) });
        let delay_ms = self.rng.u64(1..30);
        let fault = self.drawn_fault();
        // Refused calls are known to have no effect.
        let unknown = !matches!(fault, None | Some(CallFault::Refused));
        self.history.figures[Count::UnknownOutcomes] += u64::from(unknown);
        let term = self.store.term();
        let request = |sent, answer| Happening::Request { call, sent, answer, term };
        match fault {
            None => self.after(delay_ms, index, request(sent, Answer::Arrives)),
            Some(CallFault::AnswerLost) => self.after(delay_ms, index, request(sent, Answer::Lost)),
            Some(CallFault::Late) => {
                let late_ms = timeout_ms + self.rng.u64(..self.scenario.window_ms * 3);
                self.after(late_ms, index, request(sent, Answer::Arrives));
            }
            Some(CallFault::Slow) => {
                let slow_ms = self.rng.u64(..timeout_ms * 2);
                self.after(slow_ms, index, request(sent, Answer::Arrives));
            }
            Some(CallFault::Refused) => {
                let input = failed(&sent, CallFailure::NotDone);
                self.after(delay_ms, index, Happening::Answer { call, input });
            }
            // Only the timeout arrives.
            Some(CallFault::RequestLost) => {}
            Some(CallFault::SentTwice) => {
                self.after(delay_ms, index, request(sent.clone(), Answer::Lost));
                let again_ms = delay_ms + self.rng.u64(..timeout_ms);
                self.after(again_ms, index, request(sent, Answer::Arrives));
            }
        }
    }

    fn drawn_fault(&mut self) -> Option<CallFault> {
        let faulty = !self.mended && self.rng.u64(..1000) < self.scenario.store_faults_per_mille;
        if faulty { self.rng.choice(self.scenario.store.call_faults()).copied() } else { None }
    }

    fn reaches_store(&mut self, index: usize, process: u32, call: u64, sent: LeaseCall, answer: Answer) {
        let unknown = failed(&sent, CallFailure::Unknown);
        if self.now_ms < self.store_down_until_ms {
            self.history.figures[Count::CallsWhileDown] += 1;
            // Refused, or no answer.
            if answer == Answer::Arrives && self.rng.bool() {
                let input = failed(&sent, CallFailure::NotDone);
                self.queue_for(1, index, process, Happening::Answer { call, input });
            }
            return;
        }
        let still_waiting = self.nodes[index].process == process && self.nodes[index].pending == Some(call);
        if !still_waiting && matches!(sent, LeaseCall::Swap { .. }) {
            self.history.figures[Count::LateWrites] += 1;
        }
        let reply = self.visit((index, process), |store, visit| store.call(visit, sent));
        if answer == Answer::Lost {
            return;
        }
        let (after_ms, happening) = match reply {
            Reply::Now(input) => (0, Happening::Answer { call, input }),
            Reply::Confirmed { after_ms, term, input } => {
                (after_ms, Happening::Confirmed { call, input, unknown, term })
            }
            Reply::Unconfirmed { after_ms } => (after_ms, Happening::Answer { call, input: unknown }),
        };
        let delay_ms = after_ms + self.rng.u64(..20);
        self.queue_for(delay_ms, index, process, happening);
    }
}

impl<B: Begin> World<'_, B> {
    /// Corrects all clocks, with new processes, and ends all faults.
    fn mend(&mut self) {
        self.mended = true;
        self.store_down_until_ms = 0;
        for index in 0..self.scenario.nodes {
            self.nodes[index].mend(index, self.now_ms, self.scenario, &mut self.rng);
            let wait_ms = self.rng.u64(..1000);
            self.after(wait_ms, index, Happening::Wake);
            self.after(wait_ms + 1, index, Happening::Draw);
        }
    }

    fn fault(&mut self) {
        if self.mended {
            return;
        }
        let wait_ms = 1 + self.rng.u64(..self.scenario.fault_every_ms * 2);
        self.after(wait_ms, 0, Happening::Fault);
        let index = self.rng.usize(..self.scenario.nodes);
        match self.rng.u8(..11) {
            0..=2 => {
                self.history.figures[Count::Crashes] += 1;
                self.restart(index);
            }
            3..=5 => self.pause(index),
            6 => self.nodes[index].wants_release = true,
            7 => self.evict(),
            _ if self.scenario.step_ms > 0 => {
                self.history.figures[Count::Steps] += 1;
                self.nodes[index].step_clock(self.scenario, &mut self.rng);
            }
            _ => {}
        }
    }

    fn store_fault(&mut self) {
        if self.mended {
            return;
        }
        let wait_ms = 1 + self.rng.u64(..self.scenario.store_fault_every_ms * 2);
        self.after(wait_ms, 0, Happening::StoreFault);
        self.history.figures[Count::StoreFaults] += 1;
        match self.rng.choice(self.scenario.store.own_faults()) {
            Some(StoreFault::Own) => self.visit((0, 0), |store, visit| store.fail(visit)),
            // Equally often shorter and longer than nodes can continue without it.
            Some(StoreFault::Down) => {
                let lasts_ms = self.rng.u64(..self.scenario.window_ms * 3 / 2);
                self.store_down_until_ms = self.now_ms + lasts_ms;
            }
            None => {}
        }
    }

    fn restart(&mut self, index: usize) {
        let resumed = self.nodes[index].restart(index, self.now_ms, self.scenario, &mut self.rng);
        self.history.figures[Count::Resumed] += u64::from(resumed);
        // Some restart at once, in the millisecond in which they released their lease.
        let within_ms = if self.rng.bool() { 8 } else { self.scenario.window_ms };
        let wait_ms = self.rng.u64(..within_ms);
        self.after(wait_ms, index, Happening::Wake);
        self.after(wait_ms + 1, index, Happening::Draw);
    }

    /// Stops a node for up to three windows. Afterwards it first takes ids by the clock reading from before
    /// the pause.
    fn pause(&mut self, index: usize) {
        self.history.figures[Count::Pauses] += 1;
        let now_ms = self.now_ms;
        let lasts_ms = self.rng.u64(..self.scenario.window_ms * 3);
        let node = &mut self.nodes[index];
        node.paused_until_ms = node.paused_until_ms.max(now_ms + lasts_ms);
        let until_ms = node.paused_until_ms;
        self.now_ms = until_ms;
        self.draw(index, now_ms);
        self.now_ms = now_ms;
    }

    /// An operator takes a worker from its holder: the record keeps its end, under a tag that no node wrote.
    fn evict(&mut self) {
        let operator = self.scenario.nodes;
        let all = LeaseCall::Look { scope: LookScope::Pool, time: StoreTime::Known };
        let Reply::Now(LeaseInput::Looked(Ok(listing))) =
            self.visit((operator, 0), |store, visit| store.call(visit, all))
        else {
            return;
        };
        let Some(entry) = self.rng.choice(listing.entries) else { return };
        let Some(record) = entry.record else { return };
        let from_unix_ms = Some(record.until_unix_ms);
        let record = Record { tag: Tag(self.rng.u128(..)), from_unix_ms, released: true, ..record };
        let expected = Expected::Revision(entry.revision);
        let swap = LeaseCall::Swap { worker: entry.worker, expected, record };
        self.history.figures[Count::Evictions] += 1;
        self.visit((operator, 0), |store, visit| store.call(visit, swap));
    }
}

#[expect(clippy::large_enum_variant, reason = "few wait at a time: some for each node")]
#[derive(Debug)]
enum Happening {
    /// The wait of the node is over.
    Wake,
    /// A request of this term reaches the store, which answers the process that sent it.
    Request { call: u64, sent: LeaseCall, answer: Answer, term: u64 },
    /// The copies of the store have confirmed its answer in this term.
    Confirmed { call: u64, input: LeaseInput, unknown: LeaseInput, term: u64 },
    /// An answer, a failure or a timeout reaches the node.
    Answer { call: u64, input: LeaseInput },
    /// A client asks the node for ids.
    Draw,
    /// A fault of a node occurs.
    Fault,
    /// A fault of the store occurs.
    StoreFault,
    /// All clocks are corrected, and no further fault occurs.
    Mend,
}

/// The fate of the answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Arrives,
    Lost,
}

/// An event, its node and its time.
#[derive(Debug)]
struct Due {
    at_ms: u64,
    created: u64,
    node: usize,
    /// The process of the node that the event is for.
    process: u32,
    happening: Happening,
}

impl Due {
    fn order(&self) -> (u64, u64) {
        (self.at_ms, self.created)
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

#[derive(Debug, Default)]
struct Queue {
    due: BinaryHeap<Reverse<Due>>,
    created: u64,
}

impl Queue {
    fn push(&mut self, at_ms: u64, node: usize, process: u32, happening: Happening) {
        self.created += 1;
        self.due.push(Reverse(Due { at_ms, created: self.created, node, process, happening }));
    }

    fn pop(&mut self) -> Option<Due> {
        self.due.pop().map(|Reverse(due)| due)
    }
}
