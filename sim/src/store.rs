//! The store of the simulated world: linearizable, as the contract of a real one says.
//! What goes wrong on the way to it and back is the world's doing.

use std::collections::BTreeMap;

use snowmint::WorkerId;
use snowmint_cluster::lease::Record;
use snowmint_cluster::lease::protocol::{Call, Entry, Input, Listing, Swapped};
use snowmint_store::{Expected, Revision};

#[derive(Debug, Default)]
pub(crate) struct SimStore {
    records: BTreeMap<WorkerId, (Revision, Record)>,
    last: u64,
}

impl SimStore {
    /// Does what a call asks, at one instant, and gives its answer.
    pub(crate) fn apply(&mut self, call: Call) -> Input {
        match call {
            Call::List => Input::Listed(Ok(Listing {
                entries: self.records.keys().filter_map(|worker| self.entry(*worker)).collect(),
                store_unix_ms: None,
            })),
            Call::Load(worker) => Input::Loaded(Ok(self.entry(worker))),
            Call::Swap { worker, expected, record } => {
                let found = match self.records.get(&worker) {
                    Some((revision, _)) => Expected::Revision(*revision),
                    None => Expected::Absent,
                };
                if found != expected {
                    return Input::Swapped(Ok(Swapped::Conflict));
                }
                self.last += 1;
                let revision = Revision(self.last);
                self.records.insert(worker, (revision, record));
                Input::Swapped(Ok(Swapped::Done(revision)))
            }
        }
    }

    fn entry(&self, worker: WorkerId) -> Option<Entry> {
        let (revision, record) = self.records.get(&worker)?;
        Some(Entry { worker, revision: *revision, record: Some(record.clone()) })
    }
}
