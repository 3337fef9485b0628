//! What one connection or thread draws through: the pool's caller, and a count of what it got.
//! The count is added up once in a while, and where the number of leases is fixed not kept at all.

use std::fmt;
use std::sync::Arc;

use snowmint::GenerateError;
use snowmint::generator::Batch;

use super::demand::{COUNTED_ALONE, Demand};
use crate::NodeClock;

/// Draws ids of a node's leases, each greater than the last one it drew; see [`Keepers`](super::Keepers).
pub struct Caller {
    pool: snowmint::generator::PoolHandle<NodeClock>,
    demand: Option<Arc<Demand>>,
    uncounted: u64,
}

impl Caller {
    pub(super) fn new(pool: snowmint::generator::PoolHandle<NodeClock>, demand: Option<Arc<Demand>>) -> Self {
        Self { pool, demand, uncounted: 0 }
    }

    #[inline]
    pub(super) fn try_take(&mut self, count: usize) -> Result<Batch, GenerateError> {
        let taken = self.pool.try_take(count);
        if let (Some(_), Ok(batch)) = (&self.demand, &taken) {
            self.uncounted += batch.len() as u64;
            if self.uncounted >= COUNTED_ALONE {
                self.count();
            }
        }
        taken
    }

    #[cold]
    fn count(&mut self) {
        if let Some(demand) = &self.demand {
            demand.add_ids(std::mem::take(&mut self.uncounted));
        }
    }
}

/// Connections that ask for little count, too.
impl Drop for Caller {
    fn drop(&mut self) {
        self.count();
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}
