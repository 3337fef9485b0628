//! The records of one copy of a store, and a history of them that can be read at any point.
//! Revisions grow by random steps, as in the stores that count revisions themselves.

use std::collections::{BTreeMap, VecDeque};

use fastrand::Rng;
use snowmint::WorkerId;
use snowmint_cluster::lease::Record;
use snowmint_cluster::lease::protocol::{
    CallFailure, LeaseCall, LeaseInput, Listing, StoreTime, WorkerEntry,
};
use snowmint_store::{Expected, Revision, Swap};

/// The maximum step between revisions: two branches of history practically never share a revision.
const STEP: u64 = 1 << 20;

/// One executed write.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) worker: WorkerId,
    pub(crate) revision: Revision,
    pub(crate) record: Record,
}

/// One copy: each worker's record and its revision.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records(BTreeMap<WorkerId, (Revision, Record)>);

impl Records {
    pub(crate) fn put(&mut self, written: Written) {
        self.0.insert(written.worker, (written.revision, written.record));
    }

    /// Returns the result of a read of this copy; `None` for a write.
    pub(crate) fn read(&self, call: &LeaseCall, store_unix_ms: Option<u64>) -> Option<LeaseInput> {
        match call {
            LeaseCall::Look { scope, time } => {
                let all = scope.range(u32::MAX);
                let inside = self.0.range(WorkerId(all.start)..WorkerId(all.end)).map(|(worker, _)| *worker);
                let store_unix_ms = store_unix_ms.filter(|_| *time == StoreTime::Wanted);
                let entries = inside.filter_map(|worker| self.entry(worker)).collect();
                Some(LeaseInput::Looked(Ok(Listing { entries, store_unix_ms })))
            }
            LeaseCall::Load(worker) => Some(LeaseInput::Loaded(Ok(self.entry(*worker)))),
            LeaseCall::Swap { .. } => None,
        }
    }

    /// Returns the write of a swap; `None` for a conflict, and for a read.
    pub(crate) fn swap(&self, call: LeaseCall, rng: &mut Rng) -> Option<Written> {
        let LeaseCall::Swap { worker, expected, record } = call else { return None };
        let at = self.0.get(&worker).map(|(revision, _)| *revision);
        if at.map_or(Expected::Absent, Expected::Revision) != expected {
            return None;
        }
        let revision = Revision(at.map_or(0, |revision| revision.0) + rng.u64(1..=STEP));
        Some(Written { worker, revision, record })
    }

    /// Gives a record a new revision without a change.
    pub(crate) fn touch(&mut self, rng: &mut Rng) {
        if let Some((revision, _)) = rng.choice(self.0.values_mut()) {
            revision.0 += rng.u64(1..=STEP);
        }
    }

    fn entry(&self, worker: WorkerId) -> Option<WorkerEntry> {
        let (revision, record) = self.0.get(&worker)?;
        Some(WorkerEntry { worker, revision: *revision, record: Some(record.clone()) })
    }
}

/// Returns the answer to a swap: done, or a conflict.
pub(crate) fn swapped(written: Option<&Written>) -> LeaseInput {
    LeaseInput::Swapped(Ok(written.map_or(Swap::Conflict, |written| Swap::Done(written.revision))))
}

/// Returns the failure of a call of that kind.
pub(crate) fn failed(call: &LeaseCall, failure: CallFailure) -> LeaseInput {
    match call {
        LeaseCall::Look { .. } => LeaseInput::Looked(Err(failure)),
        LeaseCall::Load(_) => LeaseInput::Loaded(Err(failure)),
        LeaseCall::Swap { .. } => LeaseInput::Swapped(Err(failure)),
    }
}

/// The newest records, and the writes that led to them. `T` is what a model records for each write.
#[derive(Debug)]
pub(crate) struct Log<T> {
    newest: Records,
    /// The records before the first of the steps.
    oldest: Records,
    steps: VecDeque<(T, Written)>,
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self { newest: Records::default(), oldest: Records::default(), steps: VecDeque::new() }
    }
}

impl<T> Log<T> {
    pub(crate) fn newest(&self) -> &Records {
        &self.newest
    }

    pub(crate) fn last(&self) -> Option<&T> {
        self.steps.back().map(|(of_step, _)| of_step)
    }

    pub(crate) fn push(&mut self, of_step: T, written: Written) {
        self.newest.put(written.clone());
        self.steps.push_back((of_step, written));
    }

    /// Returns the number of steps before the first that does not match.
    pub(crate) fn steps_while(&self, so: impl Fn(&T) -> bool) -> usize {
        self.steps.iter().take_while(|(of_step, _)| so(of_step)).count()
    }

    pub(crate) fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Returns the records after a number of steps.
    pub(crate) fn after(&self, steps: usize) -> Records {
        let mut records = self.oldest.clone();
        for (_, written) in self.steps.iter().take(steps) {
            records.put(written.clone());
        }
        records
    }

    /// Merges the first steps into the initial state.
    pub(crate) fn settle(&mut self, steps: usize) {
        for (_, written) in self.steps.drain(..steps) {
            self.oldest.put(written);
        }
    }

    /// Removes everything after a number of steps, and returns it.
    pub(crate) fn forget_after(&mut self, steps: usize) -> VecDeque<(T, Written)> {
        self.newest = self.after(steps);
        self.steps.split_off(steps)
    }
}
