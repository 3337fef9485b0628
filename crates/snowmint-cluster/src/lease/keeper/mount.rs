//! Where the generator of a lease is put, for callers to draw from.
//! A keeper of one lease has one place, a keeper of several a pool.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use snowmint::generator::GeneratorPool;

use super::LeasedGenerator;
use crate::NodeClock;

/// A place for generators.
pub(in crate::lease) trait Mount: Send + Sync {
    /// Puts `new` in the place of `old`, which has ended; without `new`, the place is empty.
    fn put(&self, old: Option<&Arc<LeasedGenerator>>, new: Option<Arc<LeasedGenerator>>);
}

impl Mount for ArcSwapOption<LeasedGenerator> {
    fn put(&self, _old: Option<&Arc<LeasedGenerator>>, new: Option<Arc<LeasedGenerator>>) {
        self.store(new);
    }
}

impl Mount for GeneratorPool<NodeClock> {
    fn put(&self, old: Option<&Arc<LeasedGenerator>>, new: Option<Arc<LeasedGenerator>>) {
        let put = match (old, new) {
            (Some(old), Some(new)) => self.replace(old, new),
            (None, Some(new)) => self.add(new),
            (Some(old), None) => {
                self.remove(old);
                Ok(())
            }
            (None, None) => Ok(()),
        };
        if let Err(error) = put {
            // Leases of one worker never overlap; were they to, no id is made under the second.
            tracing::error!(%error, "a generator cannot be drawn from");
        }
    }
}
