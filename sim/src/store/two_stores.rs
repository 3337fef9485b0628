//! Two stores where one is meant: the address of a node leads to one of them, and at times to the other.
//!
//! Each process looks at the identity with the shipped rule, as `IdentifiedStore` does over a store that does
//! not tell its server: before a call if its last look is a second old, and after each write.

use std::collections::BTreeMap;
use std::time::Duration;

use snowmint_cluster::lease::protocol::{CallFailure, LeaseCall};
use snowmint_store::{KnownIdentity, StoreId};
use tokio::time::Instant;

use super::records::{self, Records, failed};
use super::{Reply, SimStore, Visit};

/// As in `IdentifiedStore`.
const LOOK_EVERY_MS: u64 = 1_000;

#[derive(Debug)]
pub(super) struct TwoStores {
    stores: [Records; 2],
    /// The store to which the address of each node leads. At first, to each for half of the nodes.
    leads_to: BTreeMap<usize, usize>,
    /// What each process knows of the identity, and the time of its last look.
    known: BTreeMap<(usize, u32), (KnownIdentity, u64)>,
    began: Instant,
}

impl Default for TwoStores {
    fn default() -> Self {
        let (stores, leads_to, known) = Default::default();
        Self { stores, leads_to, known, began: Instant::now() }
    }
}

impl TwoStores {
    fn leads_to(&self, client: usize) -> usize {
        self.leads_to.get(&client).copied().unwrap_or(client % 2)
    }

    /// Looks at the identity of the store to which the address leads. Returns whether it is the process's
    /// own.
    fn look(&mut self, visit: &Visit<'_>) -> bool {
        let shown = Some(StoreId::new(self.leads_to(visit.client) as u128));
        // Only differences between instants matter.
        let now = self.began + Duration::from_millis(visit.now_ms % (1 << 40));
        let (known, looked_ms) = self.known.entry((visit.client, visit.process)).or_default();
        *known = std::mem::take(known).after(shown, now, now, Duration::ZERO);
        *looked_ms = visit.now_ms;
        known.identity().is_some_and(|identity| identity.another.is_none())
    }

    /// Returns whether the last look of a process found its own store, and counts still.
    fn has_looked(&self, visit: &Visit<'_>) -> bool {
        self.known.get(&(visit.client, visit.process)).is_some_and(|(known, looked_ms)| {
            let is_own = known.identity().is_some_and(|identity| identity.another.is_none());
            is_own && visit.now_ms < looked_ms + LOOK_EVERY_MS
        })
    }
}

impl SimStore for TwoStores {
    fn call(&mut self, visit: &mut Visit<'_>, call: LeaseCall) -> Reply {
        if !self.has_looked(visit) && !self.look(visit) {
            return Reply::Now(failed(&call, CallFailure::NotDone));
        }
        let store = self.leads_to(visit.client);
        if let Some(input) = self.stores[store].read(&call, visit.store_unix_ms) {
            return Reply::Now(input);
        }
        let unknown = failed(&call, CallFailure::Unknown);
        let written = self.stores[store].swap(call, visit.rng);
        let input = records::swapped(written.as_ref());
        if let Some(written) = written {
            self.stores[store].put(written);
        }
        Reply::Now(if self.look(visit) { input } else { unknown })
    }

    /// The address of a node, or of two, leads to the other store from now on.
    fn fail(&mut self, visit: &mut Visit<'_>) {
        for _ in 0..visit.rng.usize(1..=2) {
            let client = visit.rng.usize(..6);
            let other = 1 - self.leads_to(client);
            self.leads_to.insert(client, other);
        }
    }

    fn named_by(&self, client: usize, process: u32) -> Option<StoreId> {
        Some(self.known.get(&(client, process))?.0.identity()?.id)
    }
}
