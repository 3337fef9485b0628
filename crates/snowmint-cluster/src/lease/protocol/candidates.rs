//! Which workers to try, from some records of a pool: the one this holder had, then free ones, then lapsed ones.
//! Pure choice; whether it succeeds is decided by compare-and-set.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use snowmint::WorkerId;
use snowmint_store::{Expected, Revision};

use super::{Dice, Entry, Event, Record, Scope, Settings, WorkerChoice};
use crate::Holder;

/// How many of each kind to try before looking again.
const TRIES: usize = 4;
/// A record of one's own is as good as lapsed when it ends within so many milliseconds: a node that gave its lease
/// back in this very millisecond and starts again keeps its worker. The grant begins where the record ends.
const OWN_SLACK_MS: u64 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Candidate {
    pub(super) worker: WorkerId,
    pub(super) expected: Expected,
    /// The end of what was granted before; 0 for a worker that never was.
    pub(super) granted_until_unix_ms: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Try these in order; at least one.
    Claim(VecDeque<Candidate>),
    /// Nothing to claim now.
    NoneFree { first: Option<(WorkerId, Holder, u64)> },
    /// The only worker wanted is granted to someone.
    Watch { worker: WorkerId, revision: Revision, holder: Holder, until_unix_ms: u64 },
}

/// What one record says of its worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// There is none: nobody ever had the worker.
    Free(Candidate),
    /// This holder had it, and its lease has ended.
    Own(Candidate),
    /// Another had it, and its lease has ended.
    Lapsed(Candidate),
    /// It is granted.
    Taken { until_unix_ms: u64 },
    /// Nobody can tell.
    Unreadable,
}

/// What a worker's record says; `None` where it has none.
pub(super) fn find(settings: &Settings, worker: WorkerId, entry: Option<&Entry>, now: u64) -> Found {
    let Some(entry) = entry else { return Found::Free(free(worker)) };
    let Some(record) = &entry.record else { return Found::Unreadable };
    let is_own = record.holder == settings.holder;
    match lapsed(entry, if is_own { now + OWN_SLACK_MS } else { now }) {
        Some(candidate) if is_own => Found::Own(candidate),
        Some(candidate) => Found::Lapsed(candidate),
        None => Found::Taken { until_unix_ms: record.until_unix_ms },
    }
}

/// Of the workers of a scope, whose records these are.
pub(super) fn choose(
    settings: &Settings,
    scope: Scope,
    entries: &[Entry],
    now: u64,
    dice: &mut Dice,
) -> Choice {
    match settings.choice {
        WorkerChoice::Any => choose_any(settings, scope, entries, now, dice),
        WorkerChoice::Only(worker) => choose_only(worker, entries, now),
    }
}

fn choose_only(worker: WorkerId, entries: &[Entry], now: u64) -> Choice {
    let Some(entry) = entries.iter().find(|entry| entry.worker == worker) else {
        return Choice::Claim([free(worker)].into());
    };
    match (lapsed(entry, now), &entry.record) {
        (Some(candidate), _) => Choice::Claim([candidate].into()),
        (None, Some(record)) => Choice::Watch {
            worker,
            revision: entry.revision,
            holder: record.holder.clone(),
            until_unix_ms: record.until_unix_ms,
        },
        (None, None) => Choice::NoneFree { first: None },
    }
}

fn choose_any(settings: &Settings, scope: Scope, entries: &[Entry], now: u64, dice: &mut Dice) -> Choice {
    let mut lapsed: Vec<(bool, u64, Candidate)> = entries
        .iter()
        .filter_map(|entry| {
            let (mine, candidate) = match find(settings, entry.worker, Some(entry), now) {
                Found::Own(candidate) => (true, candidate),
                Found::Lapsed(candidate) => (false, candidate),
                Found::Free(_) | Found::Taken { .. } | Found::Unreadable => return None,
            };
            Some((mine, candidate.granted_until_unix_ms, candidate))
        })
        .collect();
    lapsed.sort_by_key(|(_, until, candidate)| (*until, candidate.worker));
    let of =
        |mine: bool| lapsed.iter().filter(move |(own, ..)| *own == mine).map(|(.., candidate)| *candidate);
    let mut candidates: VecDeque<Candidate> = of(true).take(TRIES).collect();
    candidates.extend(free_workers(scope.range(settings.pool.workers()), entries, dice));
    candidates.extend(of(false).take(TRIES));
    if candidates.is_empty() {
        Choice::NoneFree { first: frees_first(entries) }
    } else {
        Choice::Claim(candidates)
    }
}

const fn free(worker: WorkerId) -> Candidate {
    Candidate { worker, expected: Expected::Absent, granted_until_unix_ms: 0 }
}

fn lapsed(entry: &Entry, now: u64) -> Option<Candidate> {
    let until = entry.record.as_ref()?.until_unix_ms;
    (until <= now).then_some(Candidate {
        worker: entry.worker,
        expected: Expected::Revision(entry.revision),
        granted_until_unix_ms: until,
    })
}

/// A few workers without a record, from a random one on: nodes that start together want different ones.
fn free_workers(workers: Range<u32>, entries: &[Entry], dice: &mut Dice) -> Vec<Candidate> {
    let taken: BTreeSet<u32> = entries.iter().map(|entry| entry.worker.0).collect();
    let count = u64::from(workers.end - workers.start);
    let start = dice.below(count);
    (0..count)
        .filter_map(|i| Some(workers.start + u32::try_from((start + i) % count).ok()?))
        .filter(|worker| !taken.contains(worker))
        .take(TRIES)
        .map(|worker| free(WorkerId(worker)))
        .collect()
}

fn frees_first(entries: &[Entry]) -> Option<(WorkerId, Holder, u64)> {
    let records = entries.iter().filter_map(|entry| Some((entry.worker, entry.record.as_ref()?)));
    let (worker, record): (WorkerId, &Record) = records.min_by_key(|(_, record)| record.until_unix_ms)?;
    Some((worker, record.holder.clone(), record.until_unix_ms))
}

/// A record that reaches more than two windows ahead was not written by a clock like ours.
pub(super) fn records_ahead(entries: &[Entry], now: u64, window_ms: u64) -> Option<Event> {
    let records = entries.iter().filter_map(|entry| Some((entry.worker, entry.record.as_ref()?)));
    let (worker, record) = records.max_by_key(|(_, record)| record.until_unix_ms)?;
    let ahead_ms = record.until_unix_ms.saturating_sub(now + window_ms);
    (ahead_ms > window_ms).then(|| Event::RecordsAhead { worker, holder: record.holder.clone(), ahead_ms })
}
