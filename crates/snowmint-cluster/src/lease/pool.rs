//! The workers that one layout has in one datacenter, and their keys in the store.
//! Another layout is another pool, so that its timestamps are never mixed up with these.

use std::fmt;

use snowmint::field::Field;
use snowmint::{DatacenterId, Layout, WorkerId};
use snowmint_store::{Key, KeyError};

use super::protocol::Block;

/// A layout in a datacenter: the workers that leases are granted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool {
    layout: Layout,
    datacenter: DatacenterId,
}

impl Pool {
    /// The pool of a layout in a datacenter.
    pub const fn new(layout: Layout, datacenter: DatacenterId) -> Self {
        Self { layout, datacenter }
    }

    /// The layout.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The datacenter.
    pub const fn datacenter(&self) -> DatacenterId {
        self.datacenter
    }

    /// How many workers there are.
    pub const fn workers(&self) -> u32 {
        // A worker field has at most 31 bits.
        1 << self.layout.width(Field::Worker)
    }

    /// What the keys of all its records begin with.
    pub fn prefix(&self) -> String {
        format!("workers/{self}/")
    }

    /// The key of one worker's record.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the layout's fingerprint were longer than a key may be; no layout's is.
    pub fn key(&self, worker: WorkerId) -> Result<Key, KeyError> {
        // Ten digits, so that a store lists workers in their order.
        Key::new(format!("workers/{self}/{:010}", worker.0))
    }

    /// What the keys of the records of a block begin with.
    pub fn prefix_of(&self, block: Block) -> String {
        format!("workers/{self}/{}", block.digits())
    }

    /// The worker whose record a key names; `None` for a key that is none of this pool's.
    pub fn worker_of(&self, key: &Key) -> Option<WorkerId> {
        let worker = key.as_str().strip_prefix(&self.prefix())?.parse().ok()?;
        (worker < self.workers()).then_some(WorkerId(worker))
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.layout.fingerprint())?;
        if self.layout.width(Field::Datacenter) > 0 {
            write!(f, ".in{}", self.datacenter)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::protocol::BlockSize;

    #[test]
    fn a_block_has_the_prefix_of_its_workers_and_of_no_other() {
        let layout: Layout = "time:41@1ms worker:12 sequence:10 epoch:2020-01-01".parse().unwrap();
        let pool = Pool::new(layout, DatacenterId(0));
        for size in [BlockSize::Ten, BlockSize::Hundred] {
            for worker in [0, 9, 10, 99, 100, 1023, 1999, 2000, 4095].map(WorkerId) {
                let block = Block::of(worker, size);
                assert_eq!(block.range().len(), size.workers() as usize);
                for other in 0..pool.workers() {
                    let key = pool.key(WorkerId(other)).unwrap();
                    let inside = key.as_str().starts_with(&pool.prefix_of(block));
                    assert_eq!(inside, block.range().contains(&other), "{worker} {size:?} {other}");
                }
                assert!(block.range().contains(&worker.0));
            }
        }
    }

    #[test]
    fn keys_read_back_and_pools_differ() {
        let pool = Pool::new(Layout::TWITTER, DatacenterId(3));
        let key = pool.key(WorkerId(31)).unwrap();
        assert_eq!(
            key.as_str(),
            "workers/time41@1ms.datacenter5.worker5.sequence12.1288834974657.in3/0000000031"
        );
        assert_eq!(pool.worker_of(&key), Some(WorkerId(31)));
        assert_eq!(pool.worker_of(&pool.key(WorkerId(32)).unwrap()), None, "the layout has no worker 32");
        assert_eq!(Pool::new(Layout::TWITTER, DatacenterId(4)).worker_of(&key), None);
    }
}
