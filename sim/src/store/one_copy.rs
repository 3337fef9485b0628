//! A store with one line of history: each call takes effect at one instant, and what was written stays.
//! Its own fault is a record that gets a new revision though its value stays, as when somebody labels an object.

use snowmint_cluster::lease::protocol::Call;

use super::records::{self, Records};
use super::{Reply, SimStore, Visit};

#[derive(Debug, Default)]
pub(super) struct OneCopy {
    records: Records,
}

impl SimStore for OneCopy {
    fn call(&mut self, visit: &mut Visit<'_>, call: Call) -> Reply {
        if let Some(input) = self.records.read(&call, visit.store_unix_ms) {
            return Reply::Now(input);
        }
        let written = self.records.swap(call, visit.rng);
        let reply = Reply::Now(records::swapped(written.as_ref()));
        if let Some(written) = written {
            self.records.put(written);
        }
        reply
    }

    fn fail(&mut self, visit: &mut Visit<'_>) {
        self.records.touch(visit.rng);
    }
}
