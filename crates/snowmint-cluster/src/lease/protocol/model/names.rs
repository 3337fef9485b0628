//! Which states are equal. Tags and revisions are only compared for equality, so their values do not matter. Waits have any
//! length, so the random numbers behind them do not matter either.

use std::collections::BTreeSet;

use snowmint_store::{Expected, Revision};

use super::super::*;
use super::Rule;
use super::moment::{Doing, Moment, STEADY_MS};
use crate::split_mix::SplitMix64;

/// A name in a state.
enum Name<'a> {
    Tag(&'a mut Tag),
    Revision(&'a mut Revision),
}

/// The seed of a new process: a line of its own, until it is renamed.
pub(super) const FRESH: u128 = 1 << 127;
/// Above the numbers of all tags that are in use.
const NEXT: u128 = 1 << 40;

/// Numbers the lines of tags and the revisions from 1 in the order in which they appear, and the tags of a line from 1 in their
/// order.
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

impl<B: Rule> Moment<B> {
    /// Makes states equal that behave alike: see the module.
    ///
    /// Forgets attempts that are neither in the store nor on their way, because no machine can recognize them any more. A machine
    /// itself forgets only after sixteen.
    pub(super) fn forget_names(&mut self, has_lines: bool) {
        let at = self.newest.as_ref().map_or(Expected::Absent, |(revision, _)| Expected::Revision(*revision));
        let back_to = self.before.as_ref().map(|version| {
            version.as_ref().map_or(Expected::Absent, |(revision, _)| Expected::Revision(*revision))
        });
        // A call that can only conflict is as good as lost.
        self.late.retain(|call| {
            matches!(call, Call::Swap { expected, .. } if *expected == at || Some(*expected) == back_to)
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
            protocol.abandoned.retain(|(_, attempt)| alive.contains(&attempt.tag));
            if let Some(write) = write_of(&mut protocol.state) {
                write.attempts.retain(|attempt| alive.contains(&attempt.tag));
            }
            protocol.drawn.retain(|tag| has_lines && alive.contains(tag));
            if protocol.next_tag & FRESH > 0 || !has_lines {
                // Not the line that the other node begins in the same step.
                protocol.next_tag = FRESH | (index as u128) << 64;
            }
            place(&mut renaming.lines, Tag(protocol.next_tag).line());
            if let (false, Some(holding)) = (has_lines, &mut protocol.held) {
                holding.resumed = false;
                holding.resumed_from = None;
            }
            forget_times(protocol);
            protocol.failures = 0;
            protocol.random = SplitMix64::of(0);
        }
        self.each_name_outside(&mut |name| renaming.learn(name));
        for node in &mut self.nodes {
            each_name_inside(&mut node.protocol, &mut |name| renaming.learn(name));
            each_name_of_held(node.saved.as_mut(), &mut |name| renaming.learn(name));
        }
        for node in &mut self.nodes {
            // Above every name in use.
            let line = renaming.line(Tag(node.protocol.next_tag).line());
            node.protocol.next_tag = line | NEXT;
        }
        self.each_name_outside(&mut |name| renaming.rename(name));
        for node in &mut self.nodes {
            each_name_inside(&mut node.protocol, &mut |name| renaming.rename(name));
            each_name_of_held(node.saved.as_mut(), &mut |name| renaming.rename(name));
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

fn each_name_of_call(call: &mut Call, each: &mut dyn FnMut(Name<'_>)) {
    if let Call::Swap { expected, record, .. } = call {
        each_name_of_expected(expected, each);
        each(Name::Tag(&mut record.tag));
    }
}

fn each_name_of_expected(expected: &mut Expected, each: &mut dyn FnMut(Name<'_>)) {
    if let Expected::Revision(revision) = expected {
        each(Name::Revision(revision));
    }
}

fn each_name_of_held(held: Option<&mut Held>, each: &mut dyn FnMut(Name<'_>)) {
    if let Some(held) = held {
        each(Name::Revision(&mut held.revision));
        each(Name::Tag(&mut held.tag));
    }
}

/// The names that a machine remembers. All fields are listed, so that nobody overlooks a new one.
fn each_name_inside<B>(protocol: &mut Protocol<B>, each: &mut dyn FnMut(Name<'_>)) {
    let Protocol {
        state,
        held,
        candidates,
        abandoned,
        watched,
        probing: _,
        sent_steady_ms: _,
        claim_nothing_before_steady_ms: _,
        // No clock of the model jumps: it has no boot time.
        confirmed_ahead_ms: _,
        jumped: _,
        settings: _,
        release: _,
        failures: _,
        next_tag: _,
        drawn,
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
    if let Some(holding) = held {
        each_name_of_held(Some(&mut holding.held), each);
        holding.resumed_from.iter_mut().for_each(|tag| each(Name::Tag(tag)));
    }
    for candidate in candidates {
        each_name_of_expected(&mut candidate.expected, each);
    }
    for (_, attempt) in abandoned {
        each(Name::Tag(&mut attempt.tag));
    }
    for tag in drawn {
        each(Name::Tag(tag));
    }
    if let Some(revision) = watched {
        each(Name::Revision(revision));
    }
}

fn write_of(state: &mut State) -> Option<&mut Write> {
    match state {
        State::AwaitSwap(write)
        | State::MustLoad(write)
        | State::AwaitLoad(write)
        | State::ClockDoubted(write)
        | State::AwaitTime(write) => Some(write),
        State::Seek | State::BetweenLooks | State::AwaitList(_) | State::Hold | State::Stopped => None,
    }
}

/// Four facts of the steady clock matter: whether a call sent now can settle the newest grant, whether the current call does, and
/// whether claims and looks have to wait.
fn forget_times<B>(protocol: &mut Protocol<B>) {
    if let (0, Some(holding)) = (protocol.settings.may_lose_ms, &mut protocol.held) {
        holding.acknowledged_steady_ms = None;
    }
    let sent_ms = std::mem::take(&mut protocol.sent_steady_ms);
    if let Some(Holding { acknowledged_steady_ms: Some(at), .. }) = &mut protocol.held {
        let settles_it = sent_ms > *at;
        *at = (*at).clamp(STEADY_MS - 1, STEADY_MS);
        protocol.sent_steady_ms = if settles_it { STEADY_MS } else { *at };
    }
    let quiet = protocol.claim_nothing_before_steady_ms > STEADY_MS;
    protocol.claim_nothing_before_steady_ms = if quiet { STEADY_MS + 1 } else { 0 };
    let probing = &mut protocol.probing;
    let put_off = probing.hundred_from_steady_ms > STEADY_MS;
    probing.hundred_from_steady_ms = if put_off { STEADY_MS + 1 } else { 0 };
    // There is one worker, and waits have any length.
    probing.frees_first = None;
    probing.in_vain = 0;
    probing.outrun = 0;
}
