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

/// The timestamps of a worker that were ever granted: all before an end, except a few gaps.
///
/// A clock that is ahead takes a lease in the future, and leaves a gap that nobody was granted. A node with a correct clock may be
/// granted a part of it, so that the worker is not blocked until the time of the wrong clock. To forget a gap is always safe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Granted {
    until_unix_ms: u64,
    /// Ascending, disjoint and before the end; empty ones last.
    gaps: [(u64, u64); GAPS],
}

/// The number of gaps to remember. Long stops, wrong clocks of several distances, and leases in gaps make one each.
const GAPS: usize = 8;
/// The number of gaps that a record may have: a later version may remember more.
const MOST_GAPS: usize = 64;
/// A gap is forgotten once the grants after it span a tenth of its length, and at least this time: the clock was correct, or is
/// trusted by now.
const PAST_MS: u64 = 600_000;
/// The gap before the first grant of a worker begins at 0, and counts as this long.
const FIRST_GAP_MS: u64 = 86_400_000;

impl Granted {
    /// Returns everything before an instant, without gaps.
    pub const fn up_to(until_unix_ms: u64) -> Self {
        Self { until_unix_ms, gaps: [(0, 0); GAPS] }
    }

    /// Returns the first instant after every grant, in unix milliseconds.
    pub const fn until_unix_ms(&self) -> u64 {
        self.until_unix_ms
    }

    /// Returns the gaps, in order.
    pub fn gaps(&self) -> impl Iterator<Item = Range<u64>> {
        self.gaps.into_iter().filter(|(from, until)| from < until).map(|(from, until)| from..until)
    }

    /// Returns the same after a grant.
    #[must_use]
    pub fn and(&self, grant: Range<u64>) -> Self {
        if grant.is_empty() {
            return *self;
        }
        let before = (self.until_unix_ms < grant.start).then_some(self.until_unix_ms..grant.start);
        let parts =
            |gap: Range<u64>| [gap.start..gap.end.min(grant.start), gap.start.max(grant.end)..gap.end];
        let gaps = self.gaps().flat_map(parts).chain(before).filter(|gap| !gap.is_empty()).collect();
        Self::of(self.until_unix_ms.max(grant.end), gaps, grant.end)
    }

    /// Returns the same without the end of a grant that nobody used, and nobody will.
    #[must_use]
    pub fn without(&self, unused: Range<u64>) -> Self {
        if unused.is_empty() {
            return *self;
        }
        // A release that is repeated may find a part of it given back already.
        let all = self.and(unused.clone());
        if unused.end >= all.until_unix_ms {
            return Self { until_unix_ms: unused.start, ..all };
        }
        let mut gaps: Vec<Range<u64>> = all.gaps().collect();
        gaps.push(unused.clone());
        gaps.sort_by_key(|gap| gap.start);
        Self::of(all.until_unix_ms, gaps, unused.start)
    }

    /// Returns the same, with an end that is not before this instant.
    #[must_use]
    pub fn at_least(&self, until_unix_ms: u64) -> Self {
        Self { until_unix_ms: self.until_unix_ms.max(until_unix_ms), ..*self }
    }

    /// Returns how far a lease that ends at this instant can be extended: to the next grant, or without a limit.
    pub fn limit_of(&self, until_unix_ms: u64) -> u64 {
        if until_unix_ms >= self.until_unix_ms {
            return u64::MAX;
        }
        self.gaps().find(|gap| gap.start == until_unix_ms).map_or(until_unix_ms, |gap| gap.end)
    }

    /// Returns the gap around an instant, if this much of it is left.
    pub fn gap_at(&self, unix_ms: u64, least_ms: u64) -> Option<Range<u64>> {
        self.gaps().find(|gap| gap.start <= unix_ms && unix_ms.saturating_add(least_ms) <= gap.end)
    }

    /// Keeps the gaps in which the correct time may still be: it has to be before the grants that follow, and those are the less
    /// likely to be wrong, the longer they went on. A gap that begins where the newest grant ended is kept whatever others there
    /// are: that grant's node may renew into it.
    fn of(until_unix_ms: u64, ascending: Vec<Range<u64>>, newest_end_unix_ms: u64) -> Self {
        let mut gaps: Vec<Range<u64>> = Vec::with_capacity(ascending.len());
        for gap in ascending {
            match gaps.last_mut().filter(|last| last.end == gap.start) {
                Some(last) => last.end = gap.end,
                None => gaps.push(gap),
            }
        }
        let ends = |gaps: &[Range<u64>], nth: usize| gaps.get(nth + 1).map_or(until_unix_ms, |gap| gap.start);
        let length = |gap: &Range<u64>| match gap.start {
            0 => gap.end.min(FIRST_GAP_MS),
            start => gap.end - start,
        };
        let mut nth = 0;
        while let Some(gap) = gaps.get(nth) {
            let spans_ms = ends(&gaps, nth) - gap.end;
            if gap.start != newest_end_unix_ms && spans_ms >= PAST_MS && spans_ms >= length(gap) / 10 {
                gaps.remove(nth);
            } else {
                nth += 1;
            }
        }
        while gaps.len() > GAPS {
            // The longest span for its length, in parts per million.
            let weight = |nth: usize| {
                let spans_ms = u128::from(ends(&gaps, nth) - gaps[nth].end);
                spans_ms * 1_000_000 / u128::from(length(&gaps[nth]).max(1))
            };
            let may_go = |nth: &usize| gaps[*nth].start != newest_end_unix_ms;
            let Some(nth) = (0..gaps.len()).filter(may_go).max_by_key(|nth| weight(*nth)) else { break };
            gaps.remove(nth);
        }
        let mut granted = Self::up_to(until_unix_ms);
        for (place, gap) in granted.gaps.iter_mut().zip(gaps) {
            *place = (gap.start, gap.end);
        }
        granted
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
    /// Every grant of the worker, this lease among them. A lease in a gap ends before the last of them.
    pub granted: Granted,
    /// Whether the holder gave the worker back, or an operator took it: nobody renews this lease.
    pub released: bool,
}

/// An earlier version reads `until` as the end of the lease, and takes the worker no earlier. A lease in a gap has no `from`, which
/// an earlier version would take for an overlap with its own lease.
#[derive(Serialize, Deserialize)]
struct RecordWire {
    holder: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    until: u64,
    tag: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease: Option<[u64; 2]>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unused: Vec<[u64; 2]>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    released: bool,
}

/// The reason why a record is unreadable.
#[derive(Debug, thiserror::Error)]
#[error("not a lease record")]
pub struct RecordError(#[source] Box<dyn Error + Send + Sync>);

impl Record {
    /// Returns whether the lease lies in a gap: below a grant to another clock.
    pub const fn is_in_gap(&self) -> bool {
        self.until_unix_ms < self.granted.until_unix_ms
    }

    /// Returns whether an operator took the worker: the record grants nothing.
    pub fn is_evicted(&self) -> bool {
        self.released && self.from_unix_ms == Some(self.until_unix_ms)
    }

    /// Returns whether a node holds the worker at this time, or nobody may: the time was granted. In a gap, a lease in the future
    /// counts until it is released.
    pub fn is_held_at(&self, unix_ms: u64) -> bool {
        match self.granted.gap_at(unix_ms, 1) {
            Some(_) => self.until_unix_ms > unix_ms && !self.released,
            None => self.granted.until_unix_ms.max(self.until_unix_ms) > unix_ms,
        }
    }

    /// Returns when another node may take the worker if nobody renews this lease: at its end, or if this much is not left of a gap
    /// there, after all grants.
    pub fn frees_unix_ms(&self, now_unix_ms: u64, least_ms: u64) -> u64 {
        match self.granted.gap_at(self.until_unix_ms.max(now_unix_ms), least_ms) {
            Some(_) => self.until_unix_ms,
            None => self.granted.until_unix_ms.max(self.until_unix_ms),
        }
    }

    /// Returns the record as JSON:
    /// `{"holder":"web-3:8080","from":1790000000000,"until":1790000010000,"tag":"32 hexadecimal digits"}`.
    ///
    /// `until` is the end of all grants. `unused` has the gaps, `lease` the lease if it lies in one of them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let lease =
            self.is_in_gap().then(|| [self.from_unix_ms.unwrap_or(self.until_unix_ms), self.until_unix_ms]);
        let wire = RecordWire {
            holder: self.holder.as_str().to_owned(),
            from: self.from_unix_ms.filter(|_| lease.is_none()),
            until: self.granted.until_unix_ms.max(self.until_unix_ms),
            tag: format!("{:032x}", self.tag.0),
            lease,
            unused: self.granted.gaps().map(|gap| [gap.start, gap.end]).collect(),
            released: self.released,
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
        let wire: RecordWire = serde_json::from_slice(bytes).map_err(|error| RecordError(error.into()))?;
        let holder = Holder::new(wire.holder).map_err(|error| RecordError(error.into()))?;
        let tag = u128::from_str_radix(&wire.tag, 16).map_err(|error| {
            RecordError(format!("invalid tag {}: {error}", Snippet::of(&wire.tag)).into())
        })?;
        let (from_unix_ms, until_unix_ms) = match wire.lease {
            Some([from, until]) if from <= until && until <= wire.until => (Some(from), until),
            Some(lease) => return Err(RecordError(format!("invalid lease {lease:?}").into())),
            None => (wire.from, wire.until),
        };
        let bounds = wire.unused.as_flattened();
        if wire.unused.len() > MOST_GAPS {
            let text = format!("{} gaps in unused, the limit is {MOST_GAPS}", wire.unused.len());
            return Err(RecordError(text.into()));
        }
        if !bounds.is_sorted() || bounds.last().is_some_and(|last| *last > wire.until) {
            return Err(RecordError(format!("invalid unused {:?}", wire.unused).into()));
        }
        let gaps = wire.unused.iter().map(|[from, until]| *from..*until).filter(|gap| !gap.is_empty());
        let granted = Granted::of(wire.until, gaps.collect(), until_unix_ms);
        // Whatever another program wrote: nobody else is granted a part of this lease.
        let granted = from_unix_ms.map_or(granted, |from| granted.and(from..until_unix_ms));
        Ok(Self { holder, from_unix_ms, until_unix_ms, tag: Tag(tag), granted, released: wire.released })
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
            granted: Granted::up_to(1_790_000_010_000),
            released: false,
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

    /// Goal: an earlier version takes no worker before the end of all grants, and no lease in a gap for an overlap.
    #[test]
    fn a_lease_in_a_gap_shows_an_earlier_version_the_end_of_all_grants() {
        let record = Record {
            holder: Holder::new("a").unwrap(),
            from_unix_ms: Some(20),
            until_unix_ms: 30,
            tag: Tag(1),
            granted: Granted::up_to(10).and(1000..1010).and(20..30),
            released: true,
        };
        let bytes = record.to_bytes();
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            r#"{"holder":"a","until":1010,"tag":"00000000000000000000000000000001","lease":[20,30],"unused":[[10,20],[30,1000]],"released":true}"#
        );
        assert_eq!(Record::from_bytes(&bytes).unwrap(), record);
    }

    #[test]
    fn a_grant_in_the_future_leaves_a_gap_for_a_correct_clock() {
        let ahead = Granted::up_to(10).and(1000..1010);
        assert!(ahead.gaps().eq(std::iter::once(10..1000)), "{ahead:?}");
        assert_eq!(
            (ahead.gap_at(20, 980), ahead.gap_at(20, 981), ahead.gap_at(9, 1)),
            (Some(10..1000), None, None)
        );
        assert_eq!((ahead.limit_of(10), ahead.limit_of(1010), ahead.limit_of(20)), (1000, u64::MAX, 20));
        let inside = ahead.and(20..30);
        assert_eq!(inside.gaps().collect::<Vec<_>>(), [10..20, 30..1000]);
        assert_eq!((inside.until_unix_ms(), inside.limit_of(30)), (1010, 1000));
        // Renewed, up to the grant above it.
        assert!(inside.and(20..1000).gaps().eq(std::iter::once(10..20)));
        // Released.
        assert_eq!(inside.without(25..30).gaps().collect::<Vec<_>>(), [10..20, 25..1000]);
        assert_eq!(inside.and(20..1000).without(25..1000).gaps().collect::<Vec<_>>(), [10..20, 25..1000]);
        assert_eq!(ahead.without(1005..1010), Granted::up_to(10).and(1000..1005));
        // Twice, and with a part of it that was given back before.
        assert_eq!(inside.without(25..30).without(22..30).gaps().collect::<Vec<_>>(), [10..20, 22..1000]);
    }

    /// Goal: of many gaps, the one in which the correct time is stays. Method: a long stop, then a clock an hour ahead whose node
    /// crashes once a minute; then one 20 years ahead.
    #[test]
    fn the_gap_below_a_wrong_clock_outlasts_others() {
        const HOUR: u64 = 3_600_000;
        let (day, year) = (24 * HOUR, 8_766 * HOUR);
        let now = 55 * year;
        let mut granted = Granted::default().and(now - 10 * day..now - 3 * day).and(now - HOUR / 2..now);
        for ahead in [HOUR, 20 * year] {
            for minute in 0..9 {
                let from = now + ahead + minute * 60_000;
                granted = granted.and(from..from + 10_000);
            }
            assert_eq!(granted.gap_at(now, HOUR).unwrap().start, now, "{ahead}: {granted:?}");
        }
        let two = granted.gap_at(now + 2 * HOUR, HOUR);
        assert!(two.is_some_and(|gap| gap.end == now + 20 * year), "{granted:?}");
    }

    /// Goal: a clock that is correct leaves no gaps in a record.
    #[test]
    fn a_gap_is_forgotten_once_its_node_has_gone_on() {
        let granted = Granted::up_to(1_000_000).and(5_000_000..5_000_000 + PAST_MS - 1);
        assert_eq!(granted.gaps().count(), 1);
        assert_eq!(granted.and(5_000_000..5_000_000 + PAST_MS).gaps().count(), 0);
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
            r#"{"holder":"a","until":9,"tag":"0","lease":[5,10]}"#,
            r#"{"holder":"a","until":9,"tag":"0","lease":[5,4]}"#,
            r#"{"holder":"a","until":9,"tag":"0","unused":[[5,10]]}"#,
            r#"{"holder":"a","until":9,"tag":"0","unused":[[3,5],[4,6]]}"#,
        ] {
            assert!(Record::from_bytes(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    /// Goal: short stays in a long gap do not push it out. Method: a clock that was a day ahead for 9 min, then hourly restarts.
    #[test]
    fn the_gap_around_the_correct_time_is_kept_over_many_restarts() {
        const HOUR: u64 = 3_600_000;
        let now = 1_790_000_000_000;
        let mut granted = Granted::up_to(now).and(now + 24 * HOUR..now + 24 * HOUR + 540_000);
        for nth in 1..24 {
            let begins = now + nth * HOUR - 60_000;
            let gap = granted.gap_at(begins, 10_000).unwrap_or_else(|| panic!("restart {nth}: {granted:?}"));
            assert!(gap.end > now + 24 * HOUR - 1, "{granted:?}");
            granted = granted.and(begins..begins + nth * 1000);
            assert_eq!(granted.limit_of(begins + nth * 1000), now + 24 * HOUR);
        }
    }

    /// Goal: a lease in a gap is renewed up to the next grant, however short the rest of the gap is for the grants after it.
    #[test]
    fn a_lease_in_a_gap_does_not_push_out_the_rest_of_it() {
        const MINUTE: u64 = 60_000;
        let now = 1_790_000_000_000;
        for (ahead, lasted) in [(120 * MINUTE, 11 * MINUTE), (30 * 1440 * MINUTE, 1440 * MINUTE)] {
            // The claim, and renewals.
            let mut granted = Granted::up_to(now - MINUTE).and(now + ahead..now + ahead + lasted);
            let mut until = now;
            while until < now + ahead {
                let next = (until + ahead / 50).min(now + ahead);
                granted = granted.and(now..next);
                until = next;
                let limit = if until == now + ahead { until } else { now + ahead };
                assert_eq!(granted.limit_of(until), limit, "{granted:?}");
            }
        }
    }

    #[test]
    fn what_is_given_back_joins_the_gaps_on_both_sides() {
        let granted = Granted::up_to(10).and(100..200).and(20..30).without(20..30);
        assert!(granted.gaps().eq(std::iter::once(10..100)), "{granted:?}");
    }

    /// Goal: while a gap has ended and the grants above it have not, the worker is held, until those end.
    #[test]
    fn a_worker_is_held_up_to_the_last_grant_once_its_gap_has_ended() {
        let record = Record {
            holder: Holder::new("a:1").unwrap(),
            from_unix_ms: Some(990),
            until_unix_ms: 1000,
            tag: Tag(1),
            granted: Granted::up_to(10).and(1000..1900).and(990..1000),
            released: false,
        };
        assert_eq!(record.frees_unix_ms(1005, 1), 1900);
        assert!(record.is_held_at(1005) && !record.is_held_at(1900));
        let in_gap = Record { from_unix_ms: Some(490), until_unix_ms: 500, ..record };
        assert_eq!((in_gap.frees_unix_ms(495, 10), in_gap.frees_unix_ms(985, 10)), (500, 1900));
    }

    #[test]
    fn a_record_cannot_call_a_part_of_its_own_lease_unused_nor_have_many_gaps() {
        let read = |text: &str| Record::from_bytes(text.as_bytes());
        let own = read(r#"{"holder":"a","until":90,"tag":"0","lease":[20,40],"unused":[[10,60]]}"#).unwrap();
        assert_eq!(own.granted.gaps().collect::<Vec<_>>(), [10..20, 40..60]);
        let gaps: Vec<[u64; 2]> = (0..65).map(|nth| [2 * nth, 2 * nth + 1]).collect();
        let many = format!(
            r#"{{"holder":"a","until":200,"tag":"0","unused":{}}}"#,
            serde_json::to_string(&gaps).unwrap()
        );
        let error = read(&many).unwrap_err();
        assert!(Error::source(&error).unwrap().to_string().contains("65 gaps"), "{error:?}");
    }
}
