//! Which moments are one: tags and revisions are only ever compared for equality, so their values do not matter, and
//! waits are of any length, so what they are drawn from does not matter either.

use snowmint_store::{Expected, Revision};

use super::super::*;
use super::Rule;
use super::moment::{Doing, Moment};
use crate::dice::Dice;

/// A name that stands in a moment.
enum Name<'a> {
    Tag(&'a mut Tag),
    Revision(&'a mut Revision),
}

/// Gives the first of each kind of name the number 0, the second 1, and so on.
#[derive(Default)]
struct Renaming {
    tags: Vec<Tag>,
    revisions: Vec<Revision>,
}

impl Renaming {
    fn rename(&mut self, name: Name<'_>) {
        match name {
            Name::Tag(tag) => *tag = Tag(place(&mut self.tags, *tag) as u128),
            Name::Revision(revision) => *revision = Revision(place(&mut self.revisions, *revision) as u64),
        }
    }
}

fn place<T: PartialEq>(seen: &mut Vec<T>, it: T) -> usize {
    seen.iter().position(|known| *known == it).unwrap_or_else(|| {
        seen.push(it);
        seen.len() - 1
    })
}

impl<B: Rule> Moment<B> {
    /// Makes moments equal that behave alike: see the module's page.
    ///
    /// An attempt that is neither in the store nor on its way there can never be recognised and is forgotten; the
    /// machine itself forgets claims only after sixteen.
    pub(super) fn forget_names(&mut self) {
        let at = self.newest.as_ref().map_or(Expected::Absent, |(revision, _)| Expected::Revision(*revision));
        let back_to = self.before.as_ref().map(|version| {
            version.as_ref().map_or(Expected::Absent, |(revision, _)| Expected::Revision(*revision))
        });
        // What can only meet a conflict is as good as lost.
        self.late.retain(|call| {
            matches!(call, Call::Swap { expected, .. } if *expected == at || Some(*expected) == back_to)
        });
        let mut alive = Vec::new();
        self.each_name_outside(&mut |name| {
            if let Name::Tag(tag) = name {
                alive.push(*tag);
            }
        });
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let protocol = &mut node.protocol;
            protocol.abandoned.retain(|(_, attempt)| alive.contains(&attempt.tag));
            if let State::Swapping(write) | State::Settle(write) | State::Settling(write) =
                &mut protocol.state
            {
                write.attempts.retain(|attempt| alive.contains(&attempt.tag));
            }
            // Above every name that is in use, and apart from those that the other node will give.
            protocol.next_tag = (index as u128 + 1) << 64;
            protocol.failures = 0;
            protocol.dice = Dice::of(0);
        }
        let mut renaming = Renaming::default();
        self.each_name_outside(&mut |name| renaming.rename(name));
        for node in &mut self.nodes {
            each_name_inside(&mut node.protocol, &mut |name| renaming.rename(name));
            each_name_of_held(&mut node.saved, &mut |name| renaming.rename(name));
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

fn each_name_of_held(held: &mut Option<Held>, each: &mut dyn FnMut(Name<'_>)) {
    if let Some(held) = held {
        each(Name::Revision(&mut held.revision));
        each(Name::Tag(&mut held.tag));
    }
}

/// The names that a machine remembers. All fields are named, so that a new one is not overlooked.
fn each_name_inside<B>(protocol: &mut Protocol<B>, each: &mut dyn FnMut(Name<'_>)) {
    let Protocol {
        state,
        held,
        candidates,
        abandoned,
        watched,
        settings: _,
        release: _,
        failures: _,
        next_tag: _,
        dice: _,
        events: _,
        begin: _,
    } = protocol;
    if let State::Swapping(write) | State::Settle(write) | State::Settling(write) = state {
        each_name_of_expected(&mut write.expected, each);
        write.attempts.iter_mut().for_each(|attempt| each(Name::Tag(&mut attempt.tag)));
    }
    each_name_of_held(held, each);
    for candidate in candidates {
        each_name_of_expected(&mut candidate.expected, each);
    }
    for (_, attempt) in abandoned {
        each(Name::Tag(&mut attempt.tag));
    }
    if let Some(revision) = watched {
        each(Name::Revision(revision));
    }
}
