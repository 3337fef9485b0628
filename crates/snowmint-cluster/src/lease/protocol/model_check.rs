//! Goal: no instant is granted twice to two nodes that share one worker, whatever happens and in whatever
//! order. Method: stateright explores every state that two machines, their store and the calls between them
//! can reach. Planted faults show that it would find a real one.
//!
//! The model tries everything within the bounds of a [`World`]. At each step a clock shows any of a few
//! times, so clocks stop, jump and go back, and waits have any length. Calls succeed, are rejected, get lost
//! before or after they take effect, or take effect after their node abandoned them. Nodes crash, restart,
//! resume saved leases and release theirs, at any moment and any number of times. Runs have no maximum
//! length.
//!
//! `Renaming` decides which states are equal. Tags and revisions are only compared for equality, so their
//! values do not matter. Waits have any length, so the random numbers behind them do not matter either.

mod state;

use std::collections::BTreeSet;
use std::time::Instant;

use snowmint::DatacenterId;
use snowmint_store::{Expected, Revision};
use stateright::{Checker, HasDiscoveries, Model, Property};

use self::state::{Action, Doing, ModelState, STEADY_MS};
use super::*;
use snowmint::random::SplitMix64;

/// The step of the clock, and the time before its end at which a node's own record counts as lapsed.
const UNIT_MS: u64 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreModel {
    Linearizable,
    /// Reads may show the record before its last write.
    StaleReads,
    /// The last write may be undone, whatever its age.
    Forgets,
    /// The last write may be undone while it is younger than what the store may lose.
    ForgetsTheNewest,
}

/// The bounds of a model.
#[derive(Clone, Debug)]
struct World<B> {
    store: StoreModel,
    names: [&'static str; 2],
    choice: WorkerChoice,
    tick_ms: u64,
    window_ms: u64,
    /// Clocks show 0 to this many units.
    clock_units: u64,
    /// What the nodes expect the store to lose at most, in steps of the steady clock.
    may_lose_ms: u64,
    /// Decides whether a node lists the only worker, or looks at it first.
    small_pool: u32,
    /// The maximum number of abandoned writes in flight.
    late_writes: usize,
    /// Whether nodes save their leases.
    saves: bool,
    /// Whether a node recognizes its own older records. If neither reads nor writes go back, it never sees
    /// one.
    has_lines: bool,
    /// Whether nodes crash and release their leases.
    ends: bool,
    begin: PhantomData<fn() -> B>,
}

impl<B> World<B> {
    /// A world small enough for every run of the tests.
    fn over(store: StoreModel) -> Self {
        Self {
            store,
            names: ["a", "b"],
            choice: WorkerChoice::Any,
            tick_ms: UNIT_MS,
            window_ms: UNIT_MS,
            clock_units: 1,
            may_lose_ms: 0,
            small_pool: 1,
            late_writes: 1,
            saves: true,
            has_lines: false,
            ends: true,
            begin: PhantomData,
        }
    }

    fn settings(&self, node: usize) -> LeaseSettings {
        let layout = format!("time:41@{}ms sequence:1 epoch:1970-01-01", self.tick_ms);
        LeaseSettings {
            pool: WorkerPool::new(layout.parse().unwrap(), DatacenterId(0)),
            choice: self.choice,
            holder: Holder::new(self.names[node]).unwrap(),
            window_ms: self.window_ms,
            max_skew_ms: 0,
            may_lose_ms: self.may_lose_ms,
            small_pool: self.small_pool,
        }
    }
}

/// A rule that can be part of a state's type.
trait Rule: Begin + Clone + PartialEq + Eq + std::hash::Hash + Send + Sync + 'static {}
impl<B: Begin + Clone + PartialEq + Eq + std::hash::Hash + Send + Sync + 'static> Rule for B {}

const ONCE: &str = "no instant is granted twice";

impl<B: Rule> Model for World<B> {
    type State = ModelState<B>;
    type Action = Action;

    fn init_states(&self) -> Vec<ModelState<B>> {
        vec![ModelState::first([0, 1].map(|node| self.settings(node)), self.has_lines)]
    }

    fn actions(&self, state: &ModelState<B>, actions: &mut Vec<Action>) {
        state.actions(self, actions);
    }

    fn next_state(&self, last: &ModelState<B>, action: Action) -> Option<ModelState<B>> {
        let mut state = last.clone();
        state.happen(self, action);
        state.forget_names(self.has_lines);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let late_write = Property::sometimes("a late write is found", |_, state: &ModelState<B>| {
            state.late_write_is_found()
        });
        let mut properties = vec![
            Property::always(ONCE, |_, state: &ModelState<B>| !state.granted_twice()),
            // Without these, the model would explore too little.
            Property::sometimes("both nodes have a lease", |_, state: &ModelState<B>| {
                state.both_were_granted()
            }),
        ];
        // To a node, its own record ends a little earlier: within these times, no window is left of its gap.
        if self.names[0] != self.names[1] {
            properties.push(Property::sometimes("a lease lies in a gap", |_, state: &ModelState<B>| {
                state.newest.as_ref().is_some_and(|(_, record)| record.is_in_gap())
            }));
        }
        // In other worlds, a load finds each write that was done.
        if self.late_writes > 0 || self.store == StoreModel::StaleReads {
            properties.push(late_write);
        }
        properties
    }
}

/// Explores a whole world, or up to the first failure.
#[expect(clippy::disallowed_methods, reason = "the duration is for people; a world has its own time")]
fn walk<B: Rule>(world: World<B>) -> impl Checker<World<B>> {
    let started = Instant::now();
    let shown = format!("{world:?}");
    // One thread: other tests run in parallel, and memory that another thread frees costs a tenth of the
    // time.
    let checker = world.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!(
        "{shown}: {} states, {} steps, {} deep, {:.1} s",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        started.elapsed().as_secs_f64()
    );
    checker
}

fn holds_in(world: World<AfterLastGrant>) {
    walk(world).assert_properties();
}

/// Prints the path to the instant that is granted twice.
fn fails_in<B: Rule>(world: World<B>) {
    let path = walk(world).discovery(ONCE).expect("an instant is granted twice, and that is found");
    for (state, action) in path.into_vec() {
        match action {
            Some(action) => println!("{state}\n  {action:?}"),
            None => println!("{state}: granted twice"),
        }
    }
}

#[test]
fn no_instant_is_granted_twice() {
    holds_in(World::over(StoreModel::Linearizable));
}

/// As in a large pool: the node looks at one worker, then at all.
#[test]
#[ignore = "a minute of CPU: `./check model`"]
fn no_overlap_if_one_worker_is_tried_before_the_list() {
    holds_in(World { small_pool: 0, saves: false, ..World::over(StoreModel::Linearizable) });
}

/// A node prefers its own record, and takes it a little before it ends.
#[test]
fn nor_to_two_nodes_of_one_name() {
    holds_in(World { names: ["a", "a"], ..World::over(StoreModel::Linearizable) });
}

#[test]
fn nor_where_both_want_the_same_worker() {
    let choice = WorkerChoice::Only(WorkerId(0));
    holds_in(World { choice, ..World::over(StoreModel::Linearizable) });
}

#[test]
fn nor_where_a_tick_is_longer_than_a_reading_of_the_clock() {
    let (tick_ms, window_ms) = (2 * UNIT_MS, 2 * UNIT_MS);
    let world = World::over(StoreModel::Linearizable);
    holds_in(World { tick_ms, window_ms, clock_units: 2, saves: false, ..world });
}

/// Stale reads cost time, never safety: a write is compared with the newest record.
#[test]
fn nor_where_reads_are_stale() {
    let stale = World { late_writes: 0, ..World::over(StoreModel::StaleReads) };
    holds_in(World { saves: false, ends: false, has_lines: true, ..stale });
}

#[test]
#[ignore = "a minute of CPU: `./check model`"]
fn nor_where_reads_are_stale_and_nodes_end() {
    holds_in(World { late_writes: 0, ..World::over(StoreModel::StaleReads) });
}

/// A grant that the store may lose is not used before it has settled.
#[test]
fn nor_where_a_store_forgets_what_has_not_settled() {
    holds_in(forgetful(1));
}

fn forgetful(may_lose_ms: u64) -> World<AfterLastGrant> {
    let world = World::over(StoreModel::ForgetsTheNewest);
    World { may_lose_ms, late_writes: 0, saves: false, has_lines: true, ends: false, ..world }
}

#[test]
#[ignore = "many minutes and some gigabytes: for changes of the protocol"]
fn nor_in_a_wider_world() {
    holds_in(World { clock_units: 2, saves: false, ..World::over(StoreModel::Linearizable) });
    holds_in(World { clock_units: 2, ..World::over(StoreModel::Linearizable) });
    holds_in(World { clock_units: 2, saves: false, ..World::over(StoreModel::StaleReads) });
}

/// A planted fault: a grant begins by the clock alone, whatever was granted before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ByTheClockAlone;

impl Begin for ByTheClockAlone {
    fn begin(now_unix_ms: u64, _granted_until_unix_ms: u64) -> u64 {
        now_unix_ms
    }
}

#[test]
fn a_planted_fault_is_found() {
    fails_in(World::<ByTheClockAlone>::over(StoreModel::Linearizable));
}

/// A planted fault: a lease in a gap reaches over the next grant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OverTheNextGrant;

impl Begin for OverTheNextGrant {
    fn begin(now_unix_ms: u64, granted_until_unix_ms: u64) -> u64 {
        AfterLastGrant::begin(now_unix_ms, granted_until_unix_ms)
    }

    fn end(until_unix_ms: u64, _next_grant_unix_ms: u64) -> u64 {
        until_unix_ms
    }
}

#[test]
fn a_lease_that_reaches_over_the_next_grant_is_found() {
    fails_in(World::<OverTheNextGrant> {
        clock_units: 2,
        saves: false,
        ..World::over(StoreModel::Linearizable)
    });
}

#[test]
fn a_store_that_forgets_is_found_out() {
    fails_in(World::<AfterLastGrant>::over(StoreModel::Forgets));
}

/// Settling is what makes a store that loses writes safe.
#[test]
fn using_what_has_not_settled_is_found() {
    fails_in(forgetful(0));
}

/// A name in a state.
enum Name<'a> {
    Tag(&'a mut Tag),
    Revision(&'a mut Revision),
}

/// The seed of a new process: its tags differ from all others until they are renamed.
const FRESH: u128 = 1 << 127;
/// Above the numbers of all tags that are in use.
const NEXT: u128 = 1 << 40;

/// Numbers the lines of tags and the revisions from 1 in the order in which they appear, and the tags of a
/// line from 1 in their order.
#[derive(Default)]
struct Renaming {
    has_lines: bool,
    lines: Vec<u128>,
    tags: BTreeSet<u128>,
    revisions: Vec<Revision>,
}

impl Renaming {
    fn learn(&mut self, name: Name<'_>) {
        if let (Name::Tag(tag), true) = (name, self.has_lines) {
            place(&mut self.lines, tag.line());
            self.tags.insert(tag.0);
        }
    }

    fn rename(&mut self, name: Name<'_>) {
        match name {
            // Each tag is a line of its own.
            Name::Tag(tag) if !self.has_lines => *tag = Tag(self.line(tag.0)),
            Name::Tag(tag) => {
                let number = self.tags.range(tag.line()..=tag.0).count() as u128;
                *tag = Tag(self.line(tag.line()) | number);
            }
            Name::Revision(revision) => *revision = Revision(place(&mut self.revisions, *revision) as u64),
        }
    }

    fn line(&mut self, line: u128) -> u128 {
        (place(&mut self.lines, line) as u128 + 1) << 64
    }
}

fn place<T: PartialEq>(seen: &mut Vec<T>, it: T) -> usize {
    seen.iter().position(|known| *known == it).unwrap_or_else(|| {
        seen.push(it);
        seen.len() - 1
    })
}

impl<B: Rule> ModelState<B> {
    /// Makes states equal that behave alike: see the module.
    ///
    /// Forgets attempts that are neither in the store nor in flight, because no machine can recognize them
    /// any more. A machine itself forgets only after sixteen.
    fn forget_names(&mut self, has_lines: bool) {
        let at = self.newest.as_ref().map_or(Expected::Absent, |(revision, _)| Expected::Revision(*revision));
        let back_to = self.before.as_ref().map(|version| {
            version.as_ref().map_or(Expected::Absent, |(revision, _)| Expected::Revision(*revision))
        });
        // A call that can only conflict counts as lost.
        self.late.retain(|call| {
            matches!(call, LeaseCall::Swap { expected, .. } if *expected == at || Some(*expected) == back_to)
        });
        let mut alive = Vec::new();
        self.each_name_outside(&mut |name| {
            if let Name::Tag(tag) = name {
                alive.push(*tag);
            }
        });
        let mut renaming = Renaming { has_lines, ..Renaming::default() };
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let protocol = &mut node.protocol;
            protocol.abandoned_claims.retain(|(_, attempt)| alive.contains(&attempt.tag));
            if let Some(write) = write_of(&mut protocol.state) {
                write.attempts.retain(|attempt| alive.contains(&attempt.tag));
            }
            protocol.recent_tags.retain(|tag| has_lines && alive.contains(tag));
            if protocol.next_tag & FRESH > 0 || !has_lines {
                // Not the line that the other node begins in the same step.
                protocol.next_tag = FRESH | (index as u128) << 64;
            }
            place(&mut renaming.lines, Tag(protocol.next_tag).line());
            if let (false, Some(lease)) = (has_lines, &mut protocol.lease) {
                lease.resumed = false;
                lease.resumed_from = None;
            }
            forget_times(protocol);
            protocol.failures = 0;
            protocol.unanswered_reads = 0;
            protocol.unanswered_writes = 0;
            protocol.lost_until_unix_ms = 0;
            protocol.random = SplitMix64::of(0);
        }
        self.each_name_outside(&mut |name| renaming.learn(name));
        for node in &mut self.nodes {
            each_name_inside(&mut node.protocol, &mut |name| renaming.learn(name));
            each_name_of_settled(node.saved.as_mut(), &mut |name| renaming.learn(name));
        }
        for node in &mut self.nodes {
            // Above every name in use.
            let line = renaming.line(Tag(node.protocol.next_tag).line());
            node.protocol.next_tag = line | NEXT;
        }
        self.each_name_outside(&mut |name| renaming.rename(name));
        for node in &mut self.nodes {
            each_name_inside(&mut node.protocol, &mut |name| renaming.rename(name));
            each_name_of_settled(node.saved.as_mut(), &mut |name| renaming.rename(name));
        }
    }

    /// The names in the store and in calls.
    fn each_name_outside(&mut self, each: &mut dyn FnMut(Name<'_>)) {
        for (revision, record) in
            [Some(&mut self.newest), self.before.as_mut()].into_iter().flatten().flatten()
        {
            each(Name::Revision(revision));
            each(Name::Tag(&mut record.tag));
        }
        self.late.iter_mut().for_each(|call| each_name_of_call(call, each));
        for node in &mut self.nodes {
            match &mut node.doing {
                Doing::Waits => {}
                Doing::Asks(call) | Doing::Sent(call) => each_name_of_call(call, each),
            }
        }
    }
}

fn each_name_of_call(call: &mut LeaseCall, each: &mut dyn FnMut(Name<'_>)) {
    if let LeaseCall::Swap { expected, record, .. } = call {
        each_name_of_expected(expected, each);
        each(Name::Tag(&mut record.tag));
    }
}

fn each_name_of_expected(expected: &mut Expected, each: &mut dyn FnMut(Name<'_>)) {
    if let Expected::Revision(revision) = expected {
        each(Name::Revision(revision));
    }
}

fn each_name_of_settled(lease: Option<&mut SettledLease>, each: &mut dyn FnMut(Name<'_>)) {
    if let Some(lease) = lease {
        each(Name::Revision(&mut lease.revision));
        each(Name::Tag(&mut lease.tag));
    }
}

/// The names that a machine remembers. It lists all fields, so that a new one is not overlooked.
fn each_name_inside<B>(protocol: &mut LeaseProtocol<B>, each: &mut dyn FnMut(Name<'_>)) {
    let LeaseProtocol {
        state,
        lease,
        candidates,
        abandoned_claims,
        watched,
        unrenewed,
        probing: _,
        sent_steady_ms: _,
        claim_nothing_before_steady_ms: _,
        // No clock of the model jumps: it has no boot time.
        confirmed_ahead_ms: _,
        jumped: _,
        settings: _,
        release_from_unix_ms: _,
        // Waits have any length in the model.
        failures: _,
        unanswered_reads: _,
        unanswered_writes: _,
        lost_until_unix_ms: _,
        next_tag: _,
        recent_tags,
        salt: _,
        random: _,
        events: _,
        begin: _,
    } = protocol;
    if let Some(write) = write_of(state) {
        each_name_of_expected(&mut write.expected, each);
        write.known_tag.iter_mut().for_each(|tag| each(Name::Tag(tag)));
        write.attempts.iter_mut().for_each(|attempt| each(Name::Tag(&mut attempt.tag)));
    }
    if let Some(lease) = lease {
        each_name_of_settled(Some(&mut lease.settled), each);
        lease.resumed_from.iter_mut().for_each(|tag| each(Name::Tag(tag)));
    }
    for candidate in candidates {
        each_name_of_expected(&mut candidate.expected, each);
    }
    for (_, attempt) in abandoned_claims {
        each(Name::Tag(&mut attempt.tag));
    }
    for tag in recent_tags {
        each(Name::Tag(tag));
    }
    for (revision, _) in unrenewed.values_mut() {
        each(Name::Revision(revision));
    }
    if let Some(revision) = watched {
        each(Name::Revision(revision));
    }
}

fn write_of(state: &mut State) -> Option<&mut PendingWrite> {
    match state {
        State::AwaitSwap(write)
        | State::MustLoad(write)
        | State::AwaitLoad(write)
        | State::ClockDoubted(write)
        | State::AwaitTime(write) => Some(write),
        State::Seek | State::BetweenLooks | State::AwaitLook(_) | State::Hold | State::Stopped => None,
    }
}

/// Four facts of the steady clock matter: whether a call sent now can settle the newest grant, whether the
/// current call does, and whether claims and looks have to wait.
fn forget_times<B>(protocol: &mut LeaseProtocol<B>) {
    if let (0, Some(lease)) = (protocol.settings.may_lose_ms, &mut protocol.lease) {
        lease.acknowledged_steady_ms = None;
    }
    let sent_ms = std::mem::take(&mut protocol.sent_steady_ms);
    if let Some(RecordedLease { acknowledged_steady_ms: Some(at), .. }) = &mut protocol.lease {
        let settles_it = sent_ms > *at;
        *at = (*at).clamp(STEADY_MS - 1, STEADY_MS);
        protocol.sent_steady_ms = if settles_it { STEADY_MS } else { *at };
    }
    let quiet = protocol.claim_nothing_before_steady_ms > STEADY_MS;
    protocol.claim_nothing_before_steady_ms = if quiet { STEADY_MS + 1 } else { 0 };
    // Waits have any length: a second look comes after the time of a renewal.
    let unrenewed_ms = seek::unrenewed_ms(protocol.settings.window_ms);
    for (_, since_ms) in protocol.unrenewed.values_mut() {
        *since_ms = STEADY_MS - unrenewed_ms;
    }
    let probing = &mut protocol.probing;
    let put_off = probing.hundred_from_steady_ms > STEADY_MS;
    probing.hundred_from_steady_ms = if put_off { STEADY_MS + 1 } else { 0 };
    // There is one worker, and waits have any length.
    probing.frees_first = None;
    probing.in_vain = 0;
    probing.outrun = 0;
}
