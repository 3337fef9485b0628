//! Decides whether the calls of many writers on one record are linearizable.
//! Each write has a revision, so the order of the versions is known and the decision is cheap.

use std::collections::BTreeMap;

use crate::{Expected, Revision, Versioned};

/// One call, with the ticks at which it began and ended: a call that begins at a later tick came after it.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) seen: Seen,
}

/// The result of a call.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    /// A load and its answer.
    Read(Option<Versioned>),
    /// A swap that happened.
    Swapped { expected: Expected, wrote: Versioned },
    /// A swap that met a conflict.
    Refused { expected: Expected },
}

/// A call with the version it read or made: 0 for "no record", then 1, 2, 3 in the order of the revisions.
struct Placed<'a> {
    event: &'a Event,
    version: usize,
    writes: bool,
}

/// Checks that some order of the calls explains all results; otherwise returns the part that no order
/// explains.
pub(super) fn check(events: &[Event]) -> Result<(), String> {
    let versions = one_line(events)?;
    let mut placed = place(events, &versions)?;
    in_real_time(&mut placed)?;
    no_false_conflict(events, &versions, &placed)
}

/// An addition: `count` numbers from `first` on, reserved between two ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Added {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) first: u64,
    pub(super) count: u64,
}

/// Checks that the additions start at 0, leave no gap, and grow in real time. Returns their sum.
pub(super) fn check_additions(added: &[Added]) -> Result<u64, String> {
    let mut in_order: Vec<_> = added.iter().collect();
    in_order.sort_unstable_by_key(|it| it.first);
    let (mut sum, mut began_last) = (0, None::<&Added>);
    for next in in_order {
        if next.first != sum {
            return Err(format!("{next:?} does not start at {sum}, the end of the additions before it"));
        }
        sum += next.count;
        if let Some(before) = began_last.filter(|it| it.start > next.end) {
            return Err(format!("{before:?} began after {next:?} had ended, and has smaller numbers"));
        }
        if began_last.is_none_or(|it| it.start < next.start) {
            began_last = Some(next);
        }
    }
    Ok(sum)
}

/// Checks that each write expected the version that the write before it made. Returns the versions by
/// revision.
fn one_line(events: &[Event]) -> Result<BTreeMap<Revision, (usize, &[u8])>, String> {
    let mut writes: Vec<_> = events
        .iter()
        .filter_map(|it| {
            if let Seen::Swapped { expected, wrote } = &it.seen { Some((expected, wrote)) } else { None }
        })
        .collect();
    writes.sort_by_key(|(_, wrote)| wrote.revision);
    let mut before = Expected::Absent;
    for (expected, wrote) in &writes {
        if **expected != before {
            return Err(format!(
                "{} replaced {before:?}, but its writer expected {expected:?}",
                wrote.revision
            ));
        }
        before = Expected::Revision(wrote.revision);
    }
    Ok((1..).zip(writes).map(|(version, (_, wrote))| (wrote.revision, (version, &*wrote.value))).collect())
}

fn place<'a>(
    events: &'a [Event],
    versions: &BTreeMap<Revision, (usize, &[u8])>,
) -> Result<Vec<Placed<'a>>, String> {
    let version = |found: &Versioned| match versions.get(&found.revision) {
        Some((version, value)) if *value == found.value => Ok(*version),
        _ => Err(format!("a read found {found:?}, which nobody wrote")),
    };
    let mut placed = Vec::new();
    for event in events {
        let (version, writes) = match &event.seen {
            Seen::Read(None) => (0, false),
            Seen::Read(Some(found)) => (version(found)?, false),
            Seen::Swapped { wrote, .. } => (version(wrote)?, true),
            Seen::Refused { .. } => continue,
        };
        placed.push(Placed { event, version, writes });
    }
    Ok(placed)
}

/// Checks that a call that begins after another has ended sees at least its version, and that a write makes a
/// newer one.
fn in_real_time(placed: &mut [Placed<'_>]) -> Result<(), String> {
    let mut ended: Vec<(u64, usize)> = placed.iter().map(|it| (it.event.end, it.version)).collect();
    ended.sort_unstable();
    let mut ended = ended.into_iter().peekable();
    placed.sort_by_key(|it| it.event.start);
    let mut seen_before = None;
    for call in placed {
        while let Some((_, version)) = ended.next_if(|(end, _)| *end < call.event.start) {
            seen_before = seen_before.max(Some(version));
        }
        let version = Some(call.version);
        if version < seen_before || (call.writes && version == seen_before) {
            return Err(format!("{:?} comes after version {seen_before:?} was seen", call.event));
        }
    }
    Ok(())
}

/// Checks for false conflicts: the record was as expected from before the call began until after it ended.
fn no_false_conflict(
    events: &[Event],
    versions: &BTreeMap<Revision, (usize, &[u8])>,
    placed: &[Placed<'_>],
) -> Result<(), String> {
    let mut first_seen = BTreeMap::from([(0, 0)]);
    let mut made = BTreeMap::new();
    for call in placed {
        let seen = first_seen.entry(call.version).or_insert(u64::MAX);
        *seen = call.event.end.min(*seen);
        if call.writes {
            made.insert(call.version, call.event.start);
        }
    }
    for event in events {
        let Seen::Refused { expected } = &event.seen else {
            continue;
        };
        let version = match expected {
            Expected::Absent => 0,
            Expected::Revision(revision) => match versions.get(revision) {
                Some((version, _)) => *version,
                None => continue,
            },
        };
        let there_before = version == 0 || first_seen.get(&version).is_some_and(|seen| *seen < event.start);
        let there_after = made.get(&(version + 1)).is_none_or(|start| *start > event.end);
        if there_before && there_after {
            return Err(format!("{event:?} met a conflict, but the record was as expected the whole time"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versioned(revision: u64) -> Versioned {
        Versioned { value: revision.to_be_bytes().to_vec(), revision: Revision(revision) }
    }

    fn expected(revision: u64) -> Expected {
        if revision == 0 { Expected::Absent } else { Expected::Revision(Revision(revision)) }
    }

    fn read(start: u64, end: u64, revision: u64) -> Event {
        Event { start, end, seen: Seen::Read((revision != 0).then(|| versioned(revision))) }
    }

    fn swap(start: u64, end: u64, before: u64, revision: u64) -> Event {
        Event { start, end, seen: Seen::Swapped { expected: expected(before), wrote: versioned(revision) } }
    }

    fn refused(start: u64, end: u64, before: u64) -> Event {
        Event { start, end, seen: Seen::Refused { expected: expected(before) } }
    }

    #[test]
    fn calls_that_overlap_may_see_either_version() {
        let either =
            [swap(0, 1, 0, 5), swap(10, 20, 5, 9), read(11, 12, 9), read(11, 19, 5), refused(15, 30, 5)];
        assert_eq!(check(&either), Ok(()));
        assert_eq!(check(&[]), Ok(()));
    }

    #[test]
    fn additions_that_share_skip_or_go_back_are_found() {
        let added = |start, end, first, count| Added { start, end, first, count };
        assert_eq!(check_additions(&[]), Ok(0));
        assert_eq!(check_additions(&[added(3, 9, 0, 2), added(4, 5, 5, 1), added(0, 7, 2, 3)]), Ok(6));
        let broken = [
            ("numbers shared", vec![added(0, 1, 0, 2), added(2, 3, 1, 2)]),
            ("numbers given twice", vec![added(0, 3, 0, 2), added(1, 2, 0, 2)]),
            ("numbers left out", vec![added(0, 1, 0, 2), added(2, 3, 3, 1)]),
            ("the first left out", vec![added(0, 1, 1, 2)]),
            ("smaller numbers later", vec![added(2, 3, 0, 2), added(0, 1, 2, 1)]),
            ("smaller numbers much later", vec![added(6, 7, 0, 2), added(0, 9, 2, 1), added(2, 3, 3, 1)]),
        ];
        for (name, events) in broken {
            assert!(check_additions(&events).is_err(), "{name}");
        }
    }

    /// Goal: each rule can fail. Method: the smallest history that breaks it and no other.
    #[test]
    fn a_history_that_no_order_explains_is_found() {
        let broken = [
            ("a fork", vec![swap(0, 1, 0, 1), swap(2, 3, 1, 2), swap(4, 5, 1, 3)]),
            ("two inserts", vec![swap(0, 3, 0, 1), swap(1, 2, 0, 2)]),
            ("one revision twice", vec![swap(0, 1, 0, 1), swap(2, 4, 1, 2), swap(3, 5, 1, 2)]),
            ("a lost step", vec![swap(0, 1, 0, 1), swap(4, 5, 2, 3)]),
            ("a value from nowhere", vec![swap(0, 1, 0, 1), read(2, 3, 7)]),
            ("a stale read", vec![swap(0, 1, 0, 1), swap(2, 3, 1, 2), read(4, 5, 1)]),
            ("a lost record", vec![swap(0, 1, 0, 1), read(2, 3, 0)]),
            ("reads going back", vec![swap(0, 1, 0, 1), swap(2, 9, 1, 2), read(3, 4, 2), read(5, 6, 1)]),
            ("a read of what comes later", vec![swap(0, 1, 0, 1), read(2, 3, 2), swap(4, 5, 1, 2)]),
            ("writes against time", vec![swap(0, 1, 1, 2), swap(2, 3, 0, 1)]),
            ("an unexpected conflict", vec![swap(0, 1, 0, 1), refused(2, 3, 1)]),
            ("a conflict on an absent record", vec![refused(0, 1, 0), swap(2, 3, 0, 1)]),
        ];
        for (name, events) in broken {
            assert!(check(&events).is_err(), "{name} was not found");
        }
    }
}
