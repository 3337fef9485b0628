//! The event loop: virtual time, calls to the counters and their answers, faults. One thread, one seed.
//! Each event is an entry of one queue, ordered by time and then by creation.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;

use fastrand::Rng;
use snowmint_cluster::segment::Unused;
use snowmint_cluster::segment::cached_protocol::{
    CounterCall, CounterEvent, CounterFailure, Memory, SegmentInput, SegmentNext, SegmentProtocol,
    SegmentSettings,
};
use snowmint_cluster::segment::direct_protocol::{Batching, DirectNext, Order, RequestId, RequestOutcome};
use snowmint_cluster::segment::high_water_mark::{HighWaterMark, NumberRange};
use snowmint_store::{Mark, Segment};

use super::counter::{SimCounter, WriteBack};
use super::{History, Planted, SegmentReport, SegmentScenario};

/// Poll interval of an idle protocol.
const LOOK_EVERY_MS: u64 = 1000;
/// Limit on how often a store loses its newest writes.
const LOSES_EVERY_MS: u64 = 6000;

/// A request from a node to a counter.
#[derive(Clone, Copy, Debug)]
enum Request {
    Reserve(NonZeroU64),
    Claim(Mark, Segment),
    Confirm(Mark),
    Raise(u64),
    Peek,
    Look(Segment),
    Write { unused: Segment, write: WriteBack },
}

/// The answer of a counter.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Reserved(Result<Segment, CounterFailure>),
    Marked(Mark, Segment),
    Confirmed(Result<bool, CounterFailure>),
    Peeked(Result<Option<Segment>, CounterFailure>),
    Raised(Result<bool, CounterFailure>),
    GaveBack(Result<bool, CounterFailure>),
}

#[derive(Clone, Copy, Debug)]
enum Happening {
    Wake { wake: u64 },
    Reaches { call: u64, counter: usize, request: Request, answer_lost: bool },
    Answered { call: u64, answer: Answer },
    Draw,
    Fault,
    Lose,
    Restore,
}

pub(crate) struct World<'a> {
    scenario: &'a SegmentScenario,
    direct: bool,
    rng: Rng,
    now_ms: u64,
    queue: BTreeMap<(u64, u64), (usize, u32, Happening)>,
    created: u64,
    calls: u64,
    counters: Vec<SimCounter>,
    nodes: Vec<Node>,
    history: History,
}

impl<'a> World<'a> {
    pub(crate) fn new(scenario: &'a SegmentScenario) -> Self {
        let mut rng = Rng::with_seed(scenario.seed ^ 0x5e6);
        let of = NonZeroU64::new(scenario.counters as u64).unwrap_or(NonZeroU64::MIN);
        let counters = (1..=of.get()).map(|index| SimCounter::stripe(index, of)).collect();
        let nodes = (0..scenario.nodes).map(|_| Node::new(scenario, rng.u64(..))).collect();
        let mut world = Self {
            scenario,
            direct: scenario.direct && scenario.planted != Planted::DirectFromMemory,
            rng,
            now_ms: 0,
            queue: BTreeMap::new(),
            created: 0,
            calls: 0,
            counters,
            nodes,
            history: History::default(),
        };
        for node in 0..scenario.nodes {
            world.begin(node);
        }
        if !scenario.restored {
            world.after(1, 0, Happening::Fault);
        }
        if scenario.loses_ms > 0 {
            world.after(LOSES_EVERY_MS, 0, Happening::Lose);
        }
        if scenario.restored {
            world.after(scenario.lasts_ms / 2, 0, Happening::Restore);
        }
        world
    }

    pub(crate) fn run(mut self) -> SegmentReport {
        while let Some(((at_ms, _), (node, process, happening))) = self.queue.pop_first() {
            if at_ms > self.scenario.lasts_ms {
                break;
            }
            self.now_ms = at_ms;
            self.history.trace(at_ms ^ node as u64);
            self.happen(node, process, happening);
        }
        let report = &mut self.history.report;
        report.seed = self.scenario.seed;
        // Numbers of several stripes need not grow.
        if self.scenario.counters == 1 {
            report.disorder = self.nodes.iter().map(|node| node.disorder).sum();
        }
        self.history.judged(self.scenario)
    }

    fn begin(&mut self, index: usize) {
        let wait = self.rng.u64(1..1000);
        self.after(wait, index, Happening::Wake { wake: 0 });
        self.after(wait + 1, index, Happening::Draw);
    }

    fn after(&mut self, ms: u64, index: usize, happening: Happening) {
        self.queue_for(ms, index, self.nodes[index].process, happening);
    }

    fn queue_for(&mut self, ms: u64, index: usize, process: u32, happening: Happening) {
        self.created += 1;
        self.queue.insert((self.now_ms + ms, self.created), (index, process, happening));
    }

    fn happen(&mut self, index: usize, process: u32, happening: Happening) {
        match happening {
            Happening::Reaches { call, counter, request, answer_lost } => {
                self.reaches(index, process, call, counter, request, answer_lost);
            }
            Happening::Fault => self.fault(),
            Happening::Lose => self.lose(),
            Happening::Restore => {
                let counter = self.rng.usize(..self.scenario.counters);
                self.counters[counter].go_back_to(self.now_ms / 2);
                self.history.report.losses += 1;
            }
            // Its process is gone.
            _ if self.nodes[index].process != process => {}
            Happening::Draw => {
                self.draw(index);
                let wait = 1 + self.rng.u64(..40);
                self.after(wait, index, Happening::Draw);
            }
            Happening::Wake { wake } if self.nodes[index].wake == wake => self.woken(index),
            Happening::Wake { .. } => {}
            Happening::Answered { call, answer } => {
                if self.nodes[index].pending == Some(call) {
                    self.nodes[index].pending = None;
                    self.answered(index, answer);
                }
            }
        }
    }

    fn woken(&mut self, index: usize) {
        if self.direct { self.serve(index) } else { self.step(index, SegmentInput::Wake) }
    }

    fn answered(&mut self, index: usize, answer: Answer) {
        match answer {
            Answer::Peeked(answer) => {
                self.nodes[index].batching.peeked(self.now_ms, answer);
                self.serve(index);
            }
            Answer::Raised(answer) if self.direct => {
                self.nodes[index].batching.raised(self.now_ms, answer);
                self.serve(index);
            }
            Answer::Reserved(answer) if self.direct => {
                let (outcomes, events) = self.nodes[index].batching.answered(self.now_ms, answer);
                let went_back = events.iter().any(|event| matches!(event, CounterEvent::WentBack { .. }));
                self.history.report.went_back += u64::from(went_back);
                self.hand_out(index, outcomes);
                self.serve(index);
            }
            Answer::Reserved(answer) => self.step(index, SegmentInput::Reserved(self.as_taken(answer))),
            Answer::Marked(_, segment) if self.scenario.planted == Planted::UseUnsettled => {
                self.step(index, SegmentInput::Reserved(Ok(segment)));
            }
            Answer::Marked(mark, segment) => {
                let settle_ms = self.scenario.may_lose_ms;
                self.step(index, SegmentInput::ReservedMarked { segment, mark, settle_ms });
            }
            Answer::Confirmed(answer) => self.step(index, SegmentInput::Confirmed(answer)),
            Answer::Raised(answer) => self.step(index, SegmentInput::Raised(answer)),
            Answer::GaveBack(answer) => self.step(index, SegmentInput::GaveBack(answer)),
        }
    }

    /// Returns the answer that the node sees; a node with a planted mistake invents one.
    fn as_taken(&self, answer: Result<Segment, CounterFailure>) -> Result<Segment, CounterFailure> {
        match answer {
            Err(CounterFailure::TimedOut) if self.scenario.planted == Planted::LostAnswerUsed => {
                let mut guessed = self.counters[0].clone();
                Ok(guessed.reserve(NonZeroU64::MIN))
            }
            answer => answer,
        }
    }

    fn draw(&mut self, index: usize) {
        let Some(count) = NonZeroU64::new(self.rng.u64(1..8)) else { return };
        if self.direct {
            let now_ms = self.now_ms;
            let node = &mut self.nodes[index];
            let caller = node.caller(now_ms);
            let order = if count.get() > 4 { Order::Consecutive } else { Order::Any };
            node.batching.request(caller, count, order);
            self.serve(index);
            return;
        }
        match self.nodes[index].draw(count) {
            Some(drawn) => self.history.got(self.now_ms, self.now_ms, drawn),
            None => self.history.report.misses += 1,
        }
        if self.nodes[index].keep.is_some_and(|keep| self.nodes[index].left() < keep) {
            self.step(index, SegmentInput::Wake);
        }
    }

    /// Asks the counter for numbers for the waiting callers.
    fn serve(&mut self, index: usize) {
        if self.nodes[index].pending.is_some() {
            return;
        }
        match self.nodes[index].batching.next(self.now_ms) {
            DirectNext::Reserve { count, timeout_ms } => {
                self.send(index, 0, Request::Reserve(count), timeout_ms);
            }
            DirectNext::Raise { above, timeout_ms } => self.send(index, 0, Request::Raise(above), timeout_ms),
            DirectNext::Wait(ms) => self.wake_after(index, ms),
            DirectNext::Peek { timeout_ms } => self.send(index, 0, Request::Peek, timeout_ms),
            DirectNext::Refuse(id, outcome) => {
                let is_too_many = matches!(outcome, RequestOutcome::TooFewLeft { .. });
                self.history.report.refused += u64::from(is_too_many);
                self.nodes[index].callers.remove(&id);
                self.serve(index);
            }
            DirectNext::Idle => {}
        }
    }

    fn hand_out(&mut self, index: usize, outcomes: Vec<(RequestId, RequestOutcome)>) {
        for (caller, outcome) in outcomes {
            let asked_ms = self.nodes[index].callers.get(&caller).copied().unwrap_or(self.now_ms);
            match outcome {
                RequestOutcome::Part(part) => self.history.got(asked_ms, self.now_ms, part),
                RequestOutcome::Done(last) => {
                    self.history.got(asked_ms, self.now_ms, last);
                    self.nodes[index].callers.remove(&caller);
                }
                _ => drop(self.nodes[index].callers.remove(&caller)),
            }
        }
    }

    fn step(&mut self, index: usize, input: SegmentInput) {
        if self.scenario.planted == Planted::ForgetHighest {
            self.nodes[index].forget_highest(self.scenario);
        }
        let node = &mut self.nodes[index];
        node.keep = None;
        let turn = node.protocol.step(self.now_ms, node.state(), input);
        for event in turn.events {
            match event {
                CounterEvent::Reserved { counter, segment } => {
                    node.memory.push_back(Unused { counter, segment });
                    self.history.report.reserved += 1;
                }
                CounterEvent::GivenBack { .. } => self.history.report.given_back += 1,
                CounterEvent::Lost { .. } => self.history.report.lost += 1,
                CounterEvent::WentBack { .. } => self.history.report.went_back += 1,
                _ => {}
            }
        }
        match turn.next {
            SegmentNext::Call(CounterCall::Reserve { counter, count, timeout_ms }) => {
                self.send(index, counter, Request::Reserve(count), timeout_ms);
            }
            SegmentNext::Call(CounterCall::Confirm { counter, mark, timeout_ms }) => {
                self.send(index, counter, Request::Confirm(mark), timeout_ms);
            }
            SegmentNext::Call(CounterCall::Raise { counter, above, timeout_ms }) => {
                self.send(index, counter, Request::Raise(above), timeout_ms);
            }
            SegmentNext::Call(CounterCall::GiveBack { unused, timeout_ms }) => {
                self.send(index, unused.counter, Request::Look(unused.segment), timeout_ms);
            }
            SegmentNext::Await => {}
            SegmentNext::Wait(ms) => self.wake_after(index, ms),
            SegmentNext::Idle { keep } => {
                self.nodes[index].keep = Some(keep);
                self.wake_after(index, LOOK_EVERY_MS);
            }
            SegmentNext::Stop => self.restart(index),
        }
    }

    fn wake_after(&mut self, index: usize, ms: u64) {
        self.nodes[index].wake += 1;
        let wake = self.nodes[index].wake;
        self.after(ms.max(1), index, Happening::Wake { wake });
    }

    /// Sends a request: it may be refused, or it or its answer may be lost or late.
    fn send(&mut self, index: usize, counter: usize, request: Request, timeout_ms: u64) {
        self.calls += 1;
        let call = self.calls;
        self.nodes[index].pending = Some(call);
        self.after(
            timeout_ms,
            index,
            Happening::Answered { call, answer: failed(request, CounterFailure::TimedOut) },
        );
        let faulty = self.rng.u64(..1000) < self.scenario.faulty_per_mille;
        let kind = if faulty { self.rng.u8(1..5) } else { 0 };
        let down = self.counters[counter].down_until_ms > self.now_ms;
        self.history.report.unknown_outcomes += u64::from(faulty && kind != 3 && !down);
        let delay = self.rng.u64(1..30);
        let reaches = |answer_lost| Happening::Reaches { call, counter, request, answer_lost };
        match kind {
            _ if down => {
                self.after(
                    delay,
                    index,
                    Happening::Answered { call, answer: failed(request, CounterFailure::Failed) },
                );
            }
            0 => self.after(delay, index, reaches(false)),
            1 => self.after(delay, index, reaches(true)),
            2 => {
                let late = timeout_ms + self.rng.u64(..20_000);
                self.after(late, index, reaches(false));
            }
            3 => self.after(
                delay,
                index,
                Happening::Answered { call, answer: failed(request, CounterFailure::Failed) },
            ),
            // The request is lost: only the timeout arrives.
            _ => {}
        }
    }

    fn reaches(
        &mut self,
        index: usize,
        process: u32,
        call: u64,
        counter: usize,
        request: Request,
        answer_lost: bool,
    ) {
        let waited_for = self.nodes[index].process == process && self.nodes[index].pending == Some(call);
        self.history.report.late_calls += u64::from(!waited_for);
        let planted = self.scenario.planted;
        let at = &mut self.counters[counter];
        let lossy = self.scenario.may_lose_ms > 0;
        let answer = match request {
            Request::Reserve(count) if lossy => {
                // The addition, then the claim, which may be late.
                let (segment, mark) = (at.reserve(count), Mark(self.rng.u64(..)));
                at.remember(self.now_ms);
                let late = if self.rng.u8(..4) == 0 { self.rng.u64(..8000) } else { self.rng.u64(..30) };
                let request = Request::Claim(mark, segment);
                self.queue_for(
                    late,
                    index,
                    process,
                    Happening::Reaches { call, counter, request, answer_lost },
                );
                return;
            }
            Request::Reserve(count) => Answer::Reserved(Ok(at.reserve(count))),
            Request::Claim(mark, segment) if planted == Planted::MarkAlone => {
                at.mark_alone(mark);
                Answer::Marked(mark, segment)
            }
            Request::Claim(mark, segment) if at.claim(mark, segment) => Answer::Marked(mark, segment),
            Request::Claim(..) => {
                self.history.report.went_back += 1;
                Answer::Reserved(Err(CounterFailure::Failed))
            }
            Request::Confirm(mark) => Answer::Confirmed(Ok(at.holds(mark))),
            Request::Raise(above) => {
                at.raise_above(above);
                Answer::Raised(Ok(true))
            }
            Request::Peek => Answer::Peeked(Ok(Some(at.peek()))),
            Request::Look(_) if lossy => Answer::GaveBack(Ok(false)),
            Request::Look(unused) => match at.look(unused) {
                // The look is answered; the write may be late.
                Some(write) => {
                    let late = if self.rng.u8(..4) == 0 { self.rng.u64(..8000) } else { self.rng.u64(..30) };
                    let request = Request::Write { unused, write };
                    let write = Happening::Reaches { call, counter, request, answer_lost };
                    self.queue_for(late, index, process, write);
                    return;
                }
                None => Answer::GaveBack(Ok(false)),
            },
            Request::Write { write, .. } if planted == Planted::GiveBackWithoutCompare => {
                at.overwrite(write);
                Answer::GaveBack(Ok(true))
            }
            Request::Write { unused, write } => {
                let done = at.write(write);
                if answer_lost && planted == Planted::GiveBackAgain {
                    let late = self.rng.u64(20..400);
                    let request = Request::Look(unused);
                    let again = Happening::Reaches { call, counter, request, answer_lost: false };
                    self.queue_for(late, index, process, again);
                }
                Answer::GaveBack(Ok(done))
            }
        };
        if lossy || self.scenario.restored {
            self.counters[counter].remember(self.now_ms);
        }
        if !answer_lost {
            let delay = self.rng.u64(..20);
            self.queue_for(delay, index, process, Happening::Answered { call, answer });
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
            3..=6 => self.release(index),
            _ => {
                let counter = self.rng.usize(..self.scenario.counters);
                self.counters[counter].down_until_ms = self.now_ms + self.rng.u64(..5000);
            }
        }
    }

    /// Makes a store lose its newest writes.
    fn lose(&mut self) {
        let wait = 1 + self.rng.u64(..LOSES_EVERY_MS);
        self.after(wait, 0, Happening::Lose);
        let counter = self.rng.usize(..self.scenario.counters);
        let lost_ms = self.rng.u64(..=self.scenario.loses_ms);
        self.counters[counter].go_back_to(self.now_ms.saturating_sub(lost_ms));
        self.history.report.losses += 1;
    }

    /// Draws all remaining numbers of a node at once; the protocol gives the segments back.
    fn release(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if self.direct || std::mem::replace(&mut node.released, true) {
            return;
        }
        self.history.report.releases += 1;
        let unused: Vec<Unused> = node.memory.drain(..).collect();
        self.step(index, SegmentInput::Release { unused });
    }

    fn restart(&mut self, index: usize) {
        let seed = self.rng.u64(..);
        self.nodes[index].restart(self.scenario, seed);
        self.begin(index);
    }
}

fn failed(request: Request, failure: CounterFailure) -> Answer {
    match request {
        Request::Reserve(_) | Request::Claim(..) => Answer::Reserved(Err(failure)),
        Request::Confirm(_) => Answer::Confirmed(Err(failure)),
        Request::Peek => Answer::Peeked(Err(failure)),
        Request::Raise(_) => Answer::Raised(Err(failure)),
        Request::Look(_) | Request::Write { .. } => Answer::GaveBack(Err(failure)),
    }
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) process: u32,
    pub(crate) protocol: SegmentProtocol,
    pub(crate) batching: Batching,
    /// Oldest first.
    pub(crate) memory: VecDeque<Unused>,
    misses: u64,
    /// Wakes the protocol when fewer numbers are left; none while it waits for something else.
    pub(crate) keep: Option<u64>,
    /// The number of the wake-up that is due.
    pub(crate) wake: u64,
    /// The call whose answer the process waits for.
    pub(crate) pending: Option<u64>,
    pub(crate) released: bool,
    /// When each caller asked.
    pub(crate) callers: BTreeMap<RequestId, u64>,
    asked: u64,
    last: Option<u64>,
    pub(crate) disorder: u64,
}

impl Node {
    pub(crate) fn new(scenario: &SegmentScenario, seed: u64) -> Self {
        let (first, maximum) = scenario.range;
        let range = NumberRange { first, maximum };
        let settings = SegmentSettings {
            counters: scenario.counters,
            sizes: scenario.sizes.0..=scenario.sizes.1,
            first_size: scenario.sizes.0,
            target_ms: 500,
            reserve_ms: scenario.reserve_ms,
            settle_ms: scenario.may_lose_ms,
            range,
        };
        Self {
            process: 0,
            protocol: SegmentProtocol::new(&settings, seed),
            batching: Batching::new(range, seed),
            memory: VecDeque::new(),
            misses: 0,
            keep: None,
            wake: 0,
            pending: None,
            released: false,
            callers: BTreeMap::new(),
            asked: 0,
            last: None,
            disorder: 0,
        }
    }

    /// Replaces the process with a new one.
    pub(crate) fn restart(&mut self, scenario: &SegmentScenario, seed: u64) {
        let (process, disorder) = (self.process + 1, self.disorder);
        *self = Self::new(scenario, seed);
        (self.process, self.disorder) = (process, disorder);
    }

    /// Makes it forget which numbers the counters have returned: a planted fault.
    pub(crate) fn forget_highest(&mut self, scenario: &SegmentScenario) {
        let other = Self::new(scenario, 0);
        let seen = vec![HighWaterMark::default(); scenario.counters];
        self.protocol = std::mem::replace(&mut self.protocol, other.protocol).sharing(&seen);
        self.batching =
            std::mem::replace(&mut self.batching, other.batching).sharing(HighWaterMark::default());
    }

    pub(crate) fn left(&self) -> u64 {
        self.memory.iter().map(|unused| unused.segment.count().get()).sum()
    }

    pub(crate) fn state(&self) -> Memory {
        Memory { left: self.left(), misses: self.misses, ..Memory::default() }
    }

    /// Returns up to `count` numbers from memory, in order.
    pub(crate) fn draw(&mut self, count: NonZeroU64) -> Option<Segment> {
        let Some(Unused { counter, segment }) = self.memory.pop_front() else {
            self.misses += 1;
            return None;
        };
        let count = count.min(segment.count());
        let drawn = Segment::new(segment.first(), segment.step(), count)?;
        let rest = NonZeroU64::new(segment.count().get() - count.get());
        let first = segment.first() + count.get() * segment.step().get();
        if let Some(segment) = rest.and_then(|rest| Segment::new(first, segment.step(), rest)) {
            self.memory.push_front(Unused { counter, segment });
        }
        self.disorder += u64::from(self.last.is_some_and(|last| last >= drawn.first()));
        self.last = Some(drawn.last());
        Some(drawn)
    }

    /// Adds a caller in direct mode.
    pub(crate) fn caller(&mut self, now_ms: u64) -> RequestId {
        self.asked += 1;
        let caller = RequestId(self.asked);
        self.callers.insert(caller, now_ms);
        caller
    }
}
