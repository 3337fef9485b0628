//! A state of the model: two machines, the record, the calls in flight, and what was granted. Also which actions are possible
//! next, and the state after each.

use std::fmt;

use snowmint_store::{Expected, Revision};

use super::super::*;
use super::FRESH;
use super::{Rule, StoreModel, UNIT_MS, World};

/// The steady clock at each step. When time passes, earlier readings move back instead, as far as needed.
pub(super) const STEADY_MS: u64 = 10;

/// A set of instants, one bit per unit.
pub(super) type Instants = u64;

fn instants(from_unix_ms: u64, until_unix_ms: u64) -> Instants {
    (from_unix_ms / UNIT_MS..until_unix_ms / UNIT_MS).fold(0, |bits, unit| bits | 1 << unit)
}

/// Which version a read shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shows {
    Newest,
    Before,
}

/// What happens to a request whose node stops waiting for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Lost,
    Late,
}

/// What follows when a call has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The answer reaches the node.
    Answer {
        now: u64,
    },
    /// The answer is lost; the node gives up.
    TimesOut {
        now: u64,
    },
    Crash,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A wait is over.
    Wake { node: usize, now: u64 },
    /// A node gives its lease back; its last id was made just before `used_until`.
    Release { node: usize, used_until: u64 },
    /// A write is in flight, and will arrive.
    Sent { node: usize },
    /// A call is rejected: it certainly did nothing.
    Refused { node: usize, now: u64 },
    /// The node stops waiting for a call.
    TimesOut { node: usize, now: u64, request: Fate },
    /// A process dies, and another one starts in its place.
    Crash { node: usize, request: Fate },
    /// A process dies, and the next one continues under its lease. All used timestamps lie before `mark`.
    Resume { node: usize, mark: u64, request: Fate },
    /// A call takes effect at the store.
    Done { node: usize, shows: Shows, then: Then },
    /// A write that its node abandoned takes effect.
    LateWrite { index: usize },
    /// The store loses its last write.
    Forgets,
    /// Every steady clock advances by what the store may lose, so everything written so far stays.
    Ages,
}

/// The record and its revision after a write.
pub(super) type Version = Option<(Revision, Record)>;

/// What a node waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Doing {
    /// The end of a wait.
    Waits,
    /// A write that may be lost.
    Asks(LeaseCall),
    /// A call that will take effect. A failed read changes nothing and is repeated, so reads never fail here.
    Sent(LeaseCall),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node<B> {
    pub(super) protocol: LeaseProtocol<B>,
    pub(super) doing: Doing,
    /// The lease in use, `[from, until)`.
    lease: Option<(u64, u64)>,
    /// The lease that the next process may resume.
    pub(super) saved: Option<SettledLease>,
}

impl<B: Rule> Node<B> {
    fn new(settings: LeaseSettings) -> Self {
        Self {
            protocol: LeaseProtocol::with_begin(settings, FRESH),
            doing: Doing::Waits,
            lease: None,
            saved: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModelState<B> {
    pub(super) newest: Version,
    /// The version before, if the model needs it.
    pub(super) before: Option<Version>,
    pub(super) nodes: [Node<B>; 2],
    pub(super) late: Vec<LeaseCall>,
    /// All instants that were granted and not released unused.
    granted: Instants,
    /// Whether an instant was granted that had been granted before.
    granted_twice: bool,
}

impl<B: Rule> ModelState<B> {
    pub(super) fn first(settings: [LeaseSettings; 2], has_lines: bool) -> Self {
        let mut first = Self {
            newest: None,
            before: None,
            nodes: settings.map(Node::new),
            late: Vec::new(),
            granted: 0,
            granted_twice: false,
        };
        first.forget_names(has_lines);
        first
    }

    pub(super) fn granted_twice(&self) -> bool {
        self.granted_twice
    }

    /// Returns whether an abandoned write was done after all, and its node may still find the tag.
    pub(super) fn late_write_is_found(&self) -> bool {
        let bears = |tag: Tag| self.newest.as_ref().is_some_and(|(_, record)| record.tag == tag);
        self.nodes
            .iter()
            .any(|node| node.protocol.abandoned_claims.iter().any(|(_, attempt)| bears(attempt.tag)))
    }

    /// Returns whether one node has lost the worker without knowing, and the other one holds it.
    pub(super) fn both_were_granted(&self) -> bool {
        self.nodes.iter().all(|node| node.lease.is_some())
    }

    /// Tries what happens to a node first, and then what happens at the store. A node cannot see the other one, and its clock
    /// shows any time, so the order makes no difference.
    pub(super) fn actions(&self, world: &World<B>, actions: &mut Vec<Action>) {
        if world.store == StoreModel::ForgetsTheNewest {
            // Here the order matters: time passes for the store and for the nodes.
            actions.push(Action::Ages);
            (0..2).for_each(|node| self.actions_of_node(world, node, actions));
            self.actions_of_store(world, actions);
            return;
        }
        let on_its_way = |node: &Node<B>| matches!(node.doing, Doing::Sent(_));
        if let Some(node) = self.nodes.iter().position(|node| !on_its_way(node)) {
            self.actions_of_node(world, node, actions);
        } else {
            self.actions_of_store(world, actions);
        }
    }

    fn actions_of_node(&self, world: &World<B>, node: usize, actions: &mut Vec<Action>) {
        let clock = 0..=world.clock_units;
        if let Doing::Waits = self.nodes[node].doing {
            actions.extend(clock.map(|now| Action::Wake { node, now }));
            if !world.ends {
                return;
            }
            let (from, until) = self.nodes[node].lease.unwrap_or_default();
            // 0 if no id was made.
            let used_until = (from / UNIT_MS..=until / UNIT_MS).chain([0]);
            actions.extend(used_until.map(|used_until| Action::Release { node, used_until }));
            self.deaths(node, Fate::Lost, actions);
            return;
        }
        if let Doing::Sent(_) = self.nodes[node].doing {
            return;
        }
        actions.push(Action::Sent { node });
        actions.extend(clock.clone().map(|now| Action::Refused { node, now }));
        let late = (self.late.len() < world.late_writes).then_some(Fate::Late);
        for request in [Fate::Lost].into_iter().chain(late) {
            actions.extend(clock.clone().map(|now| Action::TimesOut { node, now, request }));
            if world.ends {
                self.deaths(node, request, actions);
            }
        }
    }

    fn deaths(&self, node: usize, request: Fate, actions: &mut Vec<Action>) {
        actions.push(Action::Crash { node, request });
        if let (Some(saved), Some((from, _))) = (self.nodes[node].saved, self.nodes[node].lease) {
            let marks = from / UNIT_MS..saved.until_unix_ms / UNIT_MS;
            actions.extend(marks.map(|mark| Action::Resume { node, mark, request }));
        }
    }

    fn actions_of_store(&self, world: &World<B>, actions: &mut Vec<Action>) {
        let stale = world.store == StoreModel::StaleReads && self.before.is_some();
        for (node, of_node) in self.nodes.iter().enumerate() {
            if !matches!(of_node.doing, Doing::Sent(_)) {
                continue;
            }
            let mut done = |shows, then| actions.push(Action::Done { node, shows, then });
            let writes = matches!(of_node.doing, Doing::Sent(LeaseCall::Swap { .. }));
            for now in 0..=world.clock_units {
                done(Shows::Newest, Then::Answer { now });
                if writes {
                    done(Shows::Newest, Then::TimesOut { now });
                } else if stale {
                    done(Shows::Before, Then::Answer { now });
                }
            }
            if world.ends {
                done(Shows::Newest, Then::Crash);
            }
        }
        actions.extend((0..self.late.len()).map(|index| Action::LateWrite { index }));
        let forgets = matches!(world.store, StoreModel::Forgets | StoreModel::ForgetsTheNewest);
        if forgets && self.before.is_some() {
            actions.push(Action::Forgets);
        }
    }

    pub(super) fn happen(&mut self, world: &World<B>, action: Action) {
        match action {
            Action::Wake { node, now } => self.step(world, node, now, LeaseInput::Wake),
            Action::Release { node, used_until } => {
                let used_until_unix_ms = used_until * UNIT_MS;
                self.nodes[node].saved = None;
                if let Some((from, until)) = self.nodes[node].lease.take() {
                    self.granted &= !instants(used_until_unix_ms.max(from), until);
                }
                self.step(world, node, 0, LeaseInput::Release { used_until_unix_ms });
            }
            Action::Sent { node } => {
                let call = self.take_call(node);
                self.nodes[node].doing = Doing::Sent(call);
            }
            Action::Refused { node, now } => {
                self.step(world, node, now, LeaseInput::Swapped(Err(CallFailure::NotDone)));
            }
            Action::TimesOut { node, now, request } => {
                self.give_up(node, request);
                self.step(world, node, now, LeaseInput::Swapped(Err(CallFailure::Unknown)));
            }
            Action::Crash { node, request } => {
                self.give_up(node, request);
                self.restart(world, node);
            }
            Action::Resume { node, mark, request } => {
                self.give_up(node, request);
                if let Some(saved) = self.nodes[node].saved {
                    self.resume(world, node, SettledLease { from_unix_ms: mark * UNIT_MS, ..saved });
                }
            }
            Action::Done { node, shows, then } => {
                let call = self.take_call(node);
                let input = self.takes_effect(world, call, shows);
                match then {
                    Then::Answer { now } => self.step(world, node, now, input),
                    Then::TimesOut { now } => {
                        self.step(world, node, now, LeaseInput::Swapped(Err(CallFailure::Unknown)));
                    }
                    Then::Crash => self.restart(world, node),
                }
            }
            Action::LateWrite { index } => {
                let call = self.late.remove(index);
                self.takes_effect(world, call, Shows::Newest);
            }
            Action::Forgets => self.newest = self.before.take().flatten(),
            Action::Ages => {
                self.before = None;
                self.nodes.iter_mut().for_each(|node| time_passes(&mut node.protocol));
            }
        }
    }

    fn resume(&mut self, world: &World<B>, node: usize, held: SettledLease) {
        self.nodes[node] = Node {
            protocol: LeaseProtocol::resume_with_begin(world.settings(node), FRESH, held),
            doing: Doing::Waits,
            lease: Some((held.from_unix_ms, held.until_unix_ms)),
            saved: Some(held),
        };
    }

    /// Takes the call that a node waits for.
    fn take_call(&mut self, node: usize) -> LeaseCall {
        match std::mem::replace(&mut self.nodes[node].doing, Doing::Waits) {
            Doing::Asks(call) | Doing::Sent(call) => call,
            Doing::Waits => panic!("only a node that waits for a call is asked for it"),
        }
    }

    /// Abandons a call, which may still take effect.
    fn give_up(&mut self, node: usize, request: Fate) {
        if request == Fate::Late {
            let call = self.take_call(node);
            self.late.push(call);
        }
    }

    fn restart(&mut self, world: &World<B>, node: usize) {
        self.nodes[node] = Node::new(world.settings(node));
    }

    fn takes_effect(&mut self, world: &World<B>, call: LeaseCall, shows: Shows) -> LeaseInput {
        let seen = match shows {
            Shows::Newest => &self.newest,
            Shows::Before => self.before.as_ref().unwrap_or(&self.newest),
        };
        let entry = seen.as_ref().map(|(revision, record)| WorkerEntry {
            worker: WorkerId(0),
            revision: *revision,
            record: Some(record.clone()),
        });
        match call {
            LeaseCall::Look { .. } => {
                let entries = entry.into_iter().collect();
                LeaseInput::Looked(Ok(Listing { entries, store_unix_ms: None }))
            }
            LeaseCall::Load(_) => LeaseInput::Loaded(Ok(entry)),
            LeaseCall::Swap { expected, record, .. } => {
                let at = self.newest.as_ref().map(|(revision, _)| *revision);
                if at.map_or(Expected::Absent, Expected::Revision) != expected {
                    return LeaseInput::Swapped(Ok(Swap::Conflict));
                }
                // Revisions in use are renamed after each step, and are smaller.
                let revision = Revision(u64::MAX);
                let before = self.newest.replace((revision, record));
                self.before = (world.store != StoreModel::Linearizable).then_some(before);
                LeaseInput::Swapped(Ok(Swap::Done(revision)))
            }
        }
    }

    fn step(&mut self, world: &World<B>, index: usize, now: u64, input: LeaseInput) {
        let unix_ms = now * UNIT_MS;
        let now = Now { unix_ms, unstepped_unix_ms: unix_ms, steady_ms: STEADY_MS };
        let turn = self.nodes[index].protocol.step(now, input);
        for event in turn.events {
            self.apply(world, index, &event);
        }
        match turn.next {
            LeaseNext::Call(LeaseCall::Swap { worker, expected, mut record }) => {
                // Leases must never overlap, so safety must not depend on detecting an overlap.
                record.from_unix_ms = None;
                self.nodes[index].doing = Doing::Asks(LeaseCall::Swap { worker, expected, record });
            }
            LeaseNext::Call(read) => self.nodes[index].doing = Doing::Sent(read),
            LeaseNext::Wait(_) => self.nodes[index].doing = Doing::Waits,
            LeaseNext::Stop => self.restart(world, index),
        }
    }

    fn apply(&mut self, world: &World<B>, index: usize, event: &LeaseEvent) {
        let Node { lease, saved, .. } = &mut self.nodes[index];
        if let LeaseEvent::Granted(held) | LeaseEvent::Extended(held) = *event
            && world.saves
        {
            let is_used = lease.is_some() || matches!(event, LeaseEvent::Granted(_));
            *saved = Some(held).filter(|held| is_used && !held.is_in_gap);
        }
        let new = match *event {
            LeaseEvent::Granted(SettledLease { from_unix_ms, until_unix_ms, .. }) => {
                *lease = Some((from_unix_ms, until_unix_ms));
                instants(from_unix_ms, until_unix_ms)
            }
            LeaseEvent::Extended(SettledLease { until_unix_ms, .. }) => match lease {
                Some((_, until)) => {
                    instants(std::mem::replace(until, until_unix_ms.max(*until)), until_unix_ms)
                }
                // The generator has ended.
                None => 0,
            },
            _ => 0,
        };
        self.granted_twice |= self.granted & new != 0;
        self.granted |= new;
    }
}

/// Moves everything that a machine remembers of the steady clock back by one.
fn time_passes<B>(protocol: &mut LeaseProtocol<B>) {
    let earlier = |steady_ms: &mut u64| *steady_ms = steady_ms.saturating_sub(1);
    earlier(&mut protocol.sent_steady_ms);
    earlier(&mut protocol.claim_nothing_before_steady_ms);
    if let Some(RecordedLease { acknowledged_steady_ms: Some(at), .. }) = &mut protocol.lease {
        earlier(at);
    }
}

impl<B> fmt::Display for ModelState<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = self.newest.as_ref().map_or(0, |(_, record)| record.until_unix_ms);
        write!(f, "record until {until}")?;
        for (index, node) in self.nodes.iter().enumerate() {
            if let Some((from, until)) = node.lease {
                write!(f, ", node {index} may use {from}..{until}")?;
            }
        }
        Ok(())
    }
}
