//! Simulation of a large fleet on one store that executes a limited number of calls a second. It shows what
//! a start of all nodes, their renewals, an outage and a region that is cut off cost the store, and how long
//! the nodes wait. One seed, one trace.
//!
//! Nodes run the shipped lease protocol. The store has one queue for reads and one for writes; a call waits
//! in it as long as others are before it. Nothing else fails.

mod store;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::ops::Range;

use fastrand::Rng;
use snowmint::{DatacenterId, Layout};
use snowmint_cluster::lease::protocol::{
    CallFailure, LeaseCall, LeaseEvent, LeaseInput, LeaseNext, LeaseProtocol, LeaseSettings, Now,
    SettledLease, WorkerChoice,
};
use snowmint_cluster::{Holder, WorkerPool};

use crate::scenario::{BEGIN_MS, MAX_SKEW_MS};
use crate::store::records::failed;
use store::{BusyStore, Stage};
pub use store::{GivenUp, StoreSpeed};

/// Nanoseconds of a millisecond and of a second.
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// The processes of a start begin within this time.
const START_WITHIN: u64 = 100 * MS;
/// The clocks of the nodes differ by up to this much.
const CLOCK_ERROR_MS: u64 = 20;
/// The limit for a start or a recovery.
const PATIENCE: u64 = 1_800 * SECOND;
/// As in `LeaseConfig`.
const SMALL_POOL: u32 = 64;
/// As in `IdentifiedStore`: how long a look at the identity of the store counts.
const LOOK_COUNTS: u64 = SECOND;

/// A fleet, its window and its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetScenario {
    /// The seed of all random numbers.
    pub seed: u64,
    /// Number of nodes, each with one worker.
    pub nodes: u32,
    /// Their window, in milliseconds.
    pub window_ms: u64,
    /// The calls a second that the store executes.
    pub store: StoreSpeed,
    /// What the store does with a call whose node does not wait any longer.
    pub given_up: GivenUp,
}

impl FleetScenario {
    /// Returns the number of workers of the layout: a power of two, and at least a quarter more than nodes.
    pub const fn workers(&self) -> u32 {
        (self.nodes + self.nodes / 4).next_power_of_two()
    }

    /// Returns the number of renewals a second by the formula of `docs/scale.md`, 3.2 a window: a node waits
    /// for a third of the window, less 1/16 on average.
    pub const fn renewals_per_second(&self) -> u64 {
        self.nodes as u64 * 3_200 / self.window_ms
    }

    #[expect(clippy::unwrap_used, reason = "41 bits of time and 22 bits of worker and sequence are a layout")]
    fn pool(&self) -> WorkerPool {
        let bits = self.workers().ilog2();
        let layout = format!("time:41 worker:{bits} sequence:{} epoch:2020-01-01", 22 - bits);
        WorkerPool::new(layout.parse::<Layout>().unwrap(), DatacenterId(0))
    }

    /// Returns the limit of a call, as in `LeaseConfig`.
    fn call_timeout(&self) -> u64 {
        (self.window_ms * MS / 4).min(6 * SECOND)
    }
}

/// How calls fail while nodes are cut off from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// They are refused at once.
    Refused,
    /// No answer comes.
    Unanswered,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Refused => "refused",
            Self::Unanswered => "unanswered",
        })
    }
}

/// What a phase cost the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Reads that the store executed, also those of its identity and its time.
    pub reads: u64,
    /// Writes that it executed, also those that conflict.
    pub writes: u64,
    /// Writes that found another record than expected.
    pub conflicts: u64,
    /// Calls for which a node did not wait any longer.
    pub timeouts: u64,
    /// The longest wait in a queue of the store, in milliseconds.
    pub longest_queue_ms: u64,
    /// The most writes in one second.
    pub most_writes_a_second: u64,
    /// Times that two nodes could use one worker at one time: must be 0.
    pub shared_workers: u64,
    /// Leases that a node lost to another one.
    pub lost_leases: u64,
}

/// How long nodes waited for their leases, from the begin of a start or the end of a cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Nodes without a lease at the end: 0 unless the limit of half an hour was reached.
    pub lacking: usize,
    /// Until half of the nodes had one, in milliseconds.
    pub half_ms: u64,
    /// Until 99 of 100 had one.
    pub most_ms: u64,
    /// Until all had one.
    pub all_ms: u64,
    /// The cost meanwhile.
    pub cost: Cost,
}

/// The renewals of a fleet at rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// Writes a second on average.
    pub writes_per_second: u64,
    /// Nodes without a lease at the end.
    pub lacking: usize,
    /// The cost meanwhile.
    pub cost: Cost,
}

/// A time without the store, and the recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outage {
    /// The most nodes without a lease at one time, among all.
    pub most_lacking: usize,
    /// Until all had one again, after the end.
    pub recovery: Waits,
}

#[derive(Debug)]
struct FleetNode {
    protocol: LeaseProtocol,
    process: u32,
    clock_error_ms: i64,
    /// The number of the call whose answer the process waits for.
    pending: Option<u64>,
    /// The last look at the identity of the store.
    looked: Option<u64>,
    lease: Option<SettledLease>,
    /// When this process got its first lease.
    granted: Option<u64>,
}

/// A call on its way through the store.
#[derive(Debug)]
struct Call {
    number: u64,
    node: u32,
    process: u32,
    sent: LeaseCall,
    deadline: u64,
    /// What is still to be executed, the next one last.
    stages: Vec<Stage>,
    answer: Option<LeaseInput>,
    /// Whether the node was promised an answer, or learns at the deadline that none comes.
    is_late: bool,
}

#[derive(Debug)]
enum Happening {
    Wake,
    /// The next stage of a call reaches the store.
    Arrive(Box<Call>),
    /// The store executes it.
    Execute(Box<Call>),
    Answer(u64, Box<LeaseInput>),
}

#[derive(Debug)]
struct Due {
    at: u64,
    created: u64,
    node: u32,
    process: u32,
    happening: Happening,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.created == other.created
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.created).cmp(&(other.at, other.created))
    }
}

/// A fleet in its virtual time.
#[derive(Debug)]
pub struct Fleet {
    scenario: FleetScenario,
    pool: WorkerPool,
    rng: Rng,
    /// Nanoseconds since the begin.
    now: u64,
    queue: BinaryHeap<Reverse<Due>>,
    created: u64,
    calls: u64,
    store: BusyStore,
    nodes: Vec<FleetNode>,
    /// Who may use each worker, and until when.
    users: Vec<Option<(u32, u32, u64)>>,
    /// The nodes that are cut off.
    cut: Option<(Range<u32>, Cut)>,
    cost: Cost,
    writes_in_second: (u64, u64),
}

impl Fleet {
    /// Makes a fleet of which no node has started.
    pub fn new(scenario: FleetScenario) -> Self {
        let mut rng = Rng::with_seed(scenario.seed);
        let pool = scenario.pool();
        let mut fleet = Self {
            scenario,
            pool,
            now: 0,
            queue: BinaryHeap::new(),
            created: 0,
            calls: 0,
            store: BusyStore::new(scenario.store, scenario.given_up, Rng::with_seed(rng.u64(..))),
            nodes: Vec::new(),
            users: vec![None; pool.workers() as usize],
            cut: None,
            cost: Cost::default(),
            writes_in_second: (0, 0),
            rng,
        };
        fleet.nodes = (0..scenario.nodes).map(|index| fleet.process(index, 0)).collect();
        fleet
    }

    #[expect(clippy::unwrap_used, reason = "the name below is allowed")]
    fn process(&mut self, index: u32, process: u32) -> FleetNode {
        let settings = LeaseSettings {
            pool: self.pool,
            choice: WorkerChoice::Any,
            holder: Holder::new(format!("web-{index}:8080")).unwrap(),
            window_ms: self.scenario.window_ms,
            max_skew_ms: MAX_SKEW_MS,
            may_lose_ms: 0,
            small_pool: SMALL_POOL,
        };
        let error_ms = CLOCK_ERROR_MS.cast_signed();
        FleetNode {
            protocol: LeaseProtocol::new(settings, self.rng.u128(..)),
            process,
            clock_error_ms: self.rng.i64(-error_ms..=error_ms),
            pending: None,
            looked: None,
            lease: None,
            granted: None,
        }
    }

    /// Starts all nodes at once, with new processes: those that ran were killed before. Returns when all have
    /// a lease.
    pub fn start(&mut self) -> Waits {
        let began = self.now;
        for index in 0..self.scenario.nodes {
            let process = self.nodes[index as usize].process + 1;
            self.nodes[index as usize] = self.process(index, process);
            let at = began + self.rng.u64(..START_WITHIN);
            self.push(at, index, process, Happening::Wake);
        }
        self.until_all_hold(began)
    }

    /// Lets the fleet renew its leases.
    pub fn rest(&mut self, lasts_ms: u64) -> Rest {
        self.measure();
        let began = self.now;
        self.advance(began + lasts_ms * MS);
        let cost = self.cost;
        let writes_per_second = cost.writes * SECOND / (self.now - began).max(1);
        Rest { writes_per_second, lacking: self.lacking(), cost }
    }

    /// Cuts these nodes off from the store for a time; all of them, if the store is down. Returns when all
    /// have a lease again.
    pub fn cut_off(&mut self, nodes: Range<u32>, cut: Cut, lasts_ms: u64) -> Outage {
        self.measure();
        self.cut = Some((nodes, cut));
        let end = self.now + lasts_ms * MS;
        let mut most_lacking = 0;
        while self.now < end {
            self.advance((self.now + SECOND).min(end));
            most_lacking = most_lacking.max(self.lacking());
        }
        self.cut = None;
        self.measure();
        for node in &mut self.nodes {
            let unix_ms = (self.now / MS + BEGIN_MS).saturating_add_signed(node.clock_error_ms);
            node.granted = node.lease.filter(|lease| unix_ms < lease.until_unix_ms).map(|_| self.now);
        }
        let recovery = self.until_all_hold(end);
        Outage { most_lacking: most_lacking.max(recovery.lacking), recovery }
    }

    /// Loses all records, as no store may: to show that the simulation finds workers that two nodes share.
    pub fn lose_records(&mut self) {
        self.store.lose_records();
    }

    fn until_all_hold(&mut self, began: u64) -> Waits {
        self.measure();
        let holds_late = |node: &FleetNode| node.granted.is_none();
        while self.nodes.iter().any(holds_late) && self.now < began + PATIENCE {
            self.advance(self.now + SECOND / 10);
        }
        let mut after: Vec<u64> = self.nodes.iter().map(|node| node.granted.unwrap_or(self.now)).collect();
        after.sort_unstable();
        let after_ms = |percent: usize| {
            let nth = (after.len() * percent).div_ceil(100).clamp(1, after.len()) - 1;
            (after[nth] - began) / MS
        };
        Waits {
            lacking: self.nodes.iter().filter(|node| holds_late(node)).count(),
            half_ms: after_ms(50),
            most_ms: after_ms(99),
            all_ms: after_ms(100),
            cost: self.cost,
        }
    }

    /// Begins to count from 0.
    fn measure(&mut self) {
        self.cost = Cost::default();
        self.writes_in_second = (self.now, 0);
    }

    /// Returns the number of nodes without a lease now.
    fn lacking(&self) -> usize {
        let lacks = |node: &&FleetNode| {
            let unix_ms = (self.now / MS + BEGIN_MS).saturating_add_signed(node.clock_error_ms);
            node.lease.is_none_or(|lease| lease.until_unix_ms <= unix_ms)
        };
        self.nodes.iter().filter(lacks).count()
    }

    fn advance(&mut self, until: u64) {
        while self.queue.peek().is_some_and(|Reverse(due)| due.at <= until) {
            if let Some(Reverse(due)) = self.queue.pop() {
                self.now = due.at;
                self.happen(due);
            }
        }
        self.now = until;
    }

    fn push(&mut self, at: u64, node: u32, process: u32, happening: Happening) {
        self.created += 1;
        self.queue.push(Reverse(Due { at, created: self.created, node, process, happening }));
    }

    fn happen(&mut self, due: Due) {
        let is_current = self.nodes[due.node as usize].process == due.process;
        match due.happening {
            Happening::Wake if is_current => self.step(due.node, LeaseInput::Wake),
            Happening::Answer(call, input)
                if is_current && self.nodes[due.node as usize].pending == Some(call) =>
            {
                self.nodes[due.node as usize].pending = None;
                self.step(due.node, *input);
            }
            // Its process was killed.
            Happening::Wake | Happening::Answer(..) => {}
            Happening::Arrive(call) => self.arrive(call),
            Happening::Execute(call) => self.execute(call),
        }
    }

    fn step(&mut self, index: u32, input: LeaseInput) {
        let node = &mut self.nodes[index as usize];
        let unix_ms = (self.now / MS + BEGIN_MS).saturating_add_signed(node.clock_error_ms);
        let now = Now { unix_ms, unstepped_unix_ms: unix_ms, steady_ms: self.now / MS };
        let turn = node.protocol.step(now, input);
        for event in turn.events {
            self.apply(index, &event);
        }
        let process = self.nodes[index as usize].process;
        match turn.next {
            LeaseNext::Call(call) => self.send(index, call),
            LeaseNext::Wait(ms) => self.push(self.now + ms.max(1) * MS, index, process, Happening::Wake),
            // Only a release stops, and nobody asks for one.
            LeaseNext::Stop => {}
        }
    }

    fn apply(&mut self, index: u32, event: &LeaseEvent) {
        let node = &mut self.nodes[index as usize];
        let (LeaseEvent::Granted(held) | LeaseEvent::Extended(held)) = *event else {
            let is_lost = matches!(
                event,
                LeaseEvent::Lost { .. } | LeaseEvent::Overlap { .. } | LeaseEvent::StoreForgot { .. }
            );
            self.cost.lost_leases += u64::from(is_lost);
            return;
        };
        node.lease = Some(held);
        node.granted = node.granted.or(Some(self.now));
        let user = &mut self.users[held.worker.0 as usize];
        let is_shared = user.is_some_and(|(other, process, until)| {
            (other, process) != (index, node.process) && held.from_unix_ms < until
        });
        self.cost.shared_workers += u64::from(is_shared);
        *user = Some((index, node.process, held.until_unix_ms));
    }

    fn send(&mut self, index: u32, sent: LeaseCall) {
        self.calls += 1;
        let (number, deadline) = (self.calls, self.now + self.scenario.call_timeout());
        let node = &mut self.nodes[index as usize];
        node.pending = Some(number);
        let looks = node.looked.is_none_or(|looked| self.now - looked >= LOOK_COUNTS);
        let stages = self.scenario.store.stages(&sent, looks);
        let process = node.process;
        let call =
            Call { number, node: index, process, sent, deadline, stages, answer: None, is_late: false };
        self.push(self.now + store::NETWORK, index, process, Happening::Arrive(Box::new(call)));
    }

    /// Tells the node of a call that no answer comes.
    fn give_up(&mut self, call: &Call, at: u64, failure: CallFailure) {
        self.cost.timeouts += u64::from(at == call.deadline);
        let input = Box::new(failed(&call.sent, failure));
        self.push(at, call.node, call.process, Happening::Answer(call.number, input));
    }

    fn arrive(&mut self, mut call: Box<Call>) {
        match &self.cut {
            Some((nodes, Cut::Refused)) if nodes.contains(&call.node) => {
                return self.give_up(&call, self.now + store::NETWORK, CallFailure::NotDone);
            }
            Some((nodes, Cut::Unanswered)) if nodes.contains(&call.node) => {
                return self.give_up(&call, call.deadline, unanswered(&call.sent));
            }
            _ => {}
        }
        let Some(stage) = call.stages.last().copied() else { return };
        let Some(wait) = self.store.wait(self.now, stage.access(&call.sent), call.deadline) else {
            return self.give_up(&call, call.deadline, unanswered(&call.sent));
        };
        self.cost.longest_queue_ms = self.cost.longest_queue_ms.max(wait.queued / MS);
        if wait.answered > call.deadline {
            self.give_up(&call, call.deadline, unanswered(&call.sent));
            call.is_late = true;
        }
        self.push(wait.executed, call.node, call.process, Happening::Execute(call));
    }

    fn execute(&mut self, mut call: Box<Call>) {
        let Some(stage) = call.stages.pop() else { return };
        let access = stage.access(&call.sent);
        self.count(access);
        match stage {
            Stage::Identity => {
                let node = &mut self.nodes[call.node as usize];
                if node.process == call.process {
                    node.looked = Some(self.now);
                }
            }
            Stage::Call => {
                let store_unix_ms = self.now / MS + BEGIN_MS;
                let answer = self.store.execute(&call.sent, store_unix_ms);
                self.cost.conflicts += u64::from(store::is_conflict(&answer));
                call.answer = Some(answer);
            }
            Stage::Time => {}
        }
        if call.is_late {
            return;
        }
        let answered = self.now + access.answer_takes();
        if self.cut.as_ref().is_some_and(|(nodes, _)| nodes.contains(&call.node)) {
            self.give_up(&call, call.deadline, unanswered(&call.sent));
        } else if !call.stages.is_empty() {
            self.push(answered + store::NETWORK, call.node, call.process, Happening::Arrive(call));
        } else if let Some(input) = call.answer.take() {
            let answer = Happening::Answer(call.number, Box::new(input));
            self.push(answered, call.node, call.process, answer);
        }
    }

    fn count(&mut self, access: store::Access) {
        if access == store::Access::Read {
            self.cost.reads += 1;
            return;
        }
        self.cost.writes += 1;
        let (began, writes) = self.writes_in_second;
        self.writes_in_second = if self.now < began + SECOND {
            (began, writes + 1)
        } else {
            (began + (self.now - began) / SECOND * SECOND, 1)
        };
        self.cost.most_writes_a_second = self.cost.most_writes_a_second.max(self.writes_in_second.1);
    }
}

/// A read without an answer has no effect; a write may have.
const fn unanswered(sent: &LeaseCall) -> CallFailure {
    match sent {
        LeaseCall::Swap { .. } => CallFailure::Unknown,
        LeaseCall::Look { .. } | LeaseCall::Load(_) => CallFailure::NotDone,
    }
}
