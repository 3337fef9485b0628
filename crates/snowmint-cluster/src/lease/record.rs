//! The records of leases in the store: one per worker of a pool, and their keys.
//! A record is JSON, so that an operator can read it with the store's own tools.

use std::error::Error;
use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use snowmint::error::Snippet;
use snowmint::field::Field;
use snowmint::{DatacenterId, Layout, WorkerId};
use snowmint_store::{Key, KeyError};

use crate::Holder;

/// The workers of one layout in one datacenter, for which leases are granted.
///
/// Each layout has its own pool, so that timestamps of different layouts are never compared. A layout without a datacenter
/// field converts into its only pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkerPool {
    layout: Layout,
    datacenter: DatacenterId,
}

impl WorkerPool {
    /// Returns the pool of a layout in a datacenter.
    pub const fn new(layout: Layout, datacenter: DatacenterId) -> Self {
        Self { layout, datacenter }
    }

    /// Returns the layout.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the datacenter.
    pub const fn datacenter(&self) -> DatacenterId {
        self.datacenter
    }

    /// Returns the number of workers.
    pub const fn workers(&self) -> u32 {
        // A worker field has at most 31 bits.
        1 << self.layout.width(Field::Worker)
    }

    /// Returns the prefix of the keys of all records of the pool.
    pub fn prefix(&self) -> String {
        format!("workers/{self}/")
    }

    /// Returns the key of a worker's record.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the layout's fingerprint is longer than a key may be. No layout has such a fingerprint.
    pub fn key(&self, worker: WorkerId) -> Result<Key, KeyError> {
        // Ten digits, so that a store lists workers in numeric order.
        Key::new(format!("workers/{self}/{:010}", worker.0))
    }

    /// Returns the prefix of the keys of the records of a block.
    pub fn prefix_of(&self, block: Block) -> String {
        format!("workers/{self}/{}", block.digits())
    }

    /// Returns the worker whose record has this key, or `None` if the key does not belong to the pool.
    pub fn worker_of(&self, key: &Key) -> Option<WorkerId> {
        let worker = key.as_str().strip_prefix(&self.prefix())?.parse().ok()?;
        (worker < self.workers()).then_some(WorkerId(worker))
    }
}

impl From<Layout> for WorkerPool {
    /// Takes datacenter 0, which is the only one of a layout without a datacenter field.
    fn from(layout: Layout) -> Self {
        Self::new(layout, DatacenterId(0))
    }
}

impl fmt::Display for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.layout.fingerprint())?;
        if self.layout.width(Field::Datacenter) > 0 {
            write!(f, ".in{}", self.datacenter)?;
        }
        Ok(())
    }
}

/// Workers whose numbers differ only in the last digits, so that one key prefix lists their records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    number: u32,
    size: BlockSize,
}

/// The number of workers in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockSize {
    /// 10 workers.
    Ten,
    /// 100 workers.
    Hundred,
}

impl BlockSize {
    /// Returns the number of workers.
    pub const fn workers(self) -> u32 {
        match self {
            Self::Ten => 10,
            Self::Hundred => 100,
        }
    }
}

impl Block {
    /// Returns the block of this size that contains a worker.
    pub const fn of(worker: WorkerId, size: BlockSize) -> Self {
        Self { number: worker.0 / size.workers(), size }
    }

    /// Returns the size.
    pub const fn size(self) -> BlockSize {
        self.size
    }

    /// Returns the numbers of the block's workers. The pool may have fewer.
    pub const fn range(self) -> Range<u32> {
        let first = self.number * self.size.workers();
        first..first.saturating_add(self.size.workers())
    }

    /// Returns the leading digits that the keys of all its workers share.
    fn digits(self) -> String {
        match self.size {
            BlockSize::Ten => format!("{:09}", self.number),
            BlockSize::Hundred => format!("{:08}", self.number),
        }
    }
}

/// The mark of one write attempt. A record with a tag that this process made belongs to it, whatever holder the record shows.
///
/// A process starts with 128 random bits. The lower half counts up with each attempt, in random steps. A process that resumes
/// a saved lease keeps the upper half of the process before it: the *line* of its tags.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(pub u128);

impl Tag {
    /// Returns the upper half, with zeros below.
    pub(super) const fn line(self) -> u128 {
        self.0 & !(u64::MAX as u128)
    }

    /// Returns the number of the attempt within the line.
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    pub(super) const fn number(self) -> u64 {
        self.0 as u64
    }

    /// Returns a later tag of the same line, which skips `skipped` tags.
    pub(super) const fn after(self, skipped: u8) -> Self {
        Self(self.line() | self.number().wrapping_add(1 + skipped as u64) as u128)
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({:032x})", self.0)
    }
}

/// The record `workers/<pool>/<worker>`: who holds the worker, until when, and by which write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The holder's name, for people to read. It proves nothing: two processes may share a name.
    pub holder: Holder,
    /// The first instant of the lease, in unix milliseconds. A node detects with it that another lease overlaps its own. `None`
    /// in records of an earlier version.
    pub from_unix_ms: Option<u64>,
    /// The first instant after the lease, in unix milliseconds.
    pub until_unix_ms: u64,
    /// The mark of the write.
    pub tag: Tag,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    holder: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    until: u64,
    tag: String,
}

/// The reason why a record is unreadable.
#[derive(Debug, thiserror::Error)]
#[error("not a lease record")]
pub struct RecordError(#[source] Box<dyn Error + Send + Sync>);

impl Record {
    /// Returns the record as JSON:
    /// `{"holder":"web-3:8080","from":1790000000000,"until":1790000010000,"tag":"32 hexadecimal digits"}`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let wire = Wire {
            holder: self.holder.as_str().to_owned(),
            from: self.from_unix_ms,
            until: self.until_unix_ms,
            tag: format!("{:032x}", self.tag.0),
        };
        // Strings and numbers always serialize.
        serde_json::to_vec(&wire).unwrap_or_default()
    }

    /// Reads a record that [`to_bytes`](Self::to_bytes) wrote, or one of an earlier or later version.
    ///
    /// # Errors
    ///
    /// [`RecordError`] with the reason.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        let wire: Wire = serde_json::from_slice(bytes).map_err(|error| RecordError(error.into()))?;
        let holder = Holder::new(wire.holder).map_err(|error| RecordError(error.into()))?;
        let tag = u128::from_str_radix(&wire.tag, 16).map_err(|error| {
            RecordError(format!("invalid tag {}: {error}", Snippet::of(&wire.tag)).into())
        })?;
        Ok(Self { holder, from_unix_ms: wire.from, until_unix_ms: wire.until, tag: Tag(tag) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_the_prefix_of_its_workers_and_of_no_other() {
        let layout: Layout = "time:41@1ms worker:12 sequence:10 epoch:2020-01-01".parse().unwrap();
        let pool = WorkerPool::new(layout, DatacenterId(0));
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
        let pool = WorkerPool::new(Layout::TWITTER, DatacenterId(3));
        let key = pool.key(WorkerId(31)).unwrap();
        assert_eq!(
            key.as_str(),
            "workers/time41@1ms.datacenter5.worker5.sequence12.1288834974657.in3/0000000031"
        );
        assert_eq!(pool.worker_of(&key), Some(WorkerId(31)));
        assert_eq!(pool.worker_of(&pool.key(WorkerId(32)).unwrap()), None, "the layout has no worker 32");
        assert_eq!(WorkerPool::new(Layout::TWITTER, DatacenterId(4)).worker_of(&key), None);
    }

    #[test]
    fn a_record_reads_back_and_is_plain_json() {
        let record = Record {
            holder: Holder::new("a:1").unwrap(),
            from_unix_ms: Some(1_790_000_000_000),
            until_unix_ms: 1_790_000_010_000,
            tag: Tag(0xab),
        };
        let bytes = record.to_bytes();
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            r#"{"holder":"a:1","from":1790000000000,"until":1790000010000,"tag":"000000000000000000000000000000ab"}"#
        );
        assert_eq!(Record::from_bytes(&bytes).unwrap(), record);
    }

    #[test]
    fn a_record_of_an_earlier_version_names_no_begin_and_one_of_a_later_version_is_read() {
        let earlier = br#"{"holder":"a","until":7,"tag":"0"}"#;
        assert_eq!(Record::from_bytes(earlier).unwrap().from_unix_ms, None);
        let later = br#"{"holder":"a","from":3,"until":7,"tag":"0","more":[]}"#;
        assert_eq!(Record::from_bytes(later).unwrap().from_unix_ms, Some(3));
    }

    #[test]
    fn tags_count_up_within_their_line() {
        let last = Tag(7 << 64 | u128::from(u64::MAX));
        assert_eq!((last.after(0), last.after(0).after(2)), (Tag(7 << 64), Tag(7 << 64 | 3)));
        assert_eq!((last.line(), last.number()), (7 << 64, u64::MAX));
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for bad in [
            "",
            "{}",
            "7",
            r#"{"holder":"a b","until":1,"tag":"0"}"#,
            r#"{"holder":"a","until":-1,"tag":"0"}"#,
            r#"{"holder":"a","until":1,"tag":"x"}"#,
        ] {
            assert!(Record::from_bytes(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
