//! From cursors to ids: an id is a pure function of its cursor, in a few shifts.
//! A batch of ids is a range of cursors: an id is computed only when it is requested.

use core::iter::FusedIterator;

use crate::cursor::Cursor;
use crate::field::Field;
use crate::fork::ForkMark;
use crate::sequence_start::{Start, random_start};
use crate::{DatacenterId, Id, Layout, WorkerId};

/// Turns a cursor into an id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Composer {
    node_bits: u64,
    sequence_bits: u32,
    sequence_shift: u32,
    timestamp_shift: u32,
    generation_shift: u32,
    /// The bound of a random start; 0 for other starts.
    start_bound: u32,
    /// Makes two workers start at different values.
    start_seed: u64,
}

impl Composer {
    /// The composer of an empty batch.
    const NONE: Self = Self {
        node_bits: 0,
        sequence_bits: 0,
        sequence_shift: 0,
        timestamp_shift: 0,
        generation_shift: 0,
        start_bound: 0,
        start_seed: 0,
    };

    pub(crate) fn new(layout: &Layout, datacenter: DatacenterId, worker: WorkerId, start: Start) -> Self {
        let bound = if let Start::Random { bound } = start { bound.get() } else { 0 };
        let sequences = layout.max(Field::Sequence) + 1;
        let node_bits = u64::from(datacenter.0) << layout.shift(Field::Datacenter)
            | u64::from(worker.0) << layout.shift(Field::Worker);
        Self {
            node_bits,
            sequence_bits: layout.width(Field::Sequence),
            sequence_shift: layout.shift(Field::Sequence),
            timestamp_shift: layout.shift(Field::Timestamp),
            generation_shift: layout.shift(Field::Generation),
            start_bound: u32::try_from(u64::from(bound).min(sequences)).unwrap_or(u32::MAX),
            start_seed: node_bits,
        }
    }

    /// Returns the composer of another generation; 0 is the initial one.
    #[inline]
    pub(crate) const fn in_generation(mut self, generation: u32) -> Self {
        self.node_bits |= (generation as u64) << self.generation_shift;
        self
    }

    /// Returns whether, within a tick, a greater cursor has the greater id.
    #[cfg(feature = "std")]
    pub(super) const fn keeps_order(&self) -> bool {
        self.start_bound == 0
    }

    /// Returns the bits of the datacenter and the worker.
    #[cfg(feature = "std")]
    pub(super) const fn node_bits(&self) -> u64 {
        self.node_bits
    }

    const fn sequence_mask(&self) -> u64 {
        (1 << self.sequence_bits) - 1
    }

    /// The sequence field of a cursor.
    const fn sequence(&self, cursor: Cursor) -> u64 {
        let mut sequence = cursor & self.sequence_mask();
        if self.start_bound != 0 {
            sequence += random_start(cursor >> self.sequence_bits, self.start_bound, self.start_seed);
        }
        sequence & self.sequence_mask()
    }

    #[inline]
    pub(crate) const fn id(&self, cursor: Cursor) -> Id {
        let timestamp = cursor >> self.sequence_bits;
        let sequence = self.sequence(cursor);
        Id::from_layout(timestamp << self.timestamp_shift | sequence << self.sequence_shift | self.node_bits)
    }

    /// Returns the number of cursors at the start of `[start, end)` whose ids increase by one step each: up
    /// to the end of the tick, or to where a random start wraps.
    fn run_length(&self, start: Cursor, end: Cursor) -> u64 {
        let left_in_tick = self.sequence_mask() - (start & self.sequence_mask()) + 1;
        let left_before_wrap = self.sequence_mask() - self.sequence(start) + 1;
        left_in_tick.min(left_before_wrap).min(end - start)
    }

    const fn step(&self) -> u64 {
        1 << self.sequence_shift
    }
}

/// Ids taken together: an iterator over them, in the order of their cursors.
///
/// Dropping it loses the remaining ids; no other caller gets them. It is not `Clone`, since a copy would
/// repeat the ids. In a forked child it is empty, since its ids belong to the parent.
#[derive(Debug)]
#[must_use = "ids that are not read are lost"]
pub struct Batch {
    /// The next id, and the number of ids from it on that increase by one step each: the hot path is an
    /// addition.
    next_id: u64,
    left_in_run: u64,
    step: u64,
    /// The cursors after that run.
    rest: Cursor,
    end: Cursor,
    composer: Composer,
    fork: ForkMark,
}

impl Batch {
    pub(super) const fn new(composer: Composer, fork: ForkMark, start: Cursor, end: Cursor) -> Self {
        Self { next_id: 0, left_in_run: 0, step: composer.step(), rest: start, end, composer, fork }
    }

    /// Returns a batch without ids.
    pub(super) const fn empty(fork: ForkMark) -> Self {
        Self::new(Composer::NONE, fork, 0, 0)
    }

    /// The first cursor after those of this batch.
    #[cfg(feature = "std")]
    pub(super) const fn end_cursor(&self) -> Cursor {
        self.end
    }

    /// Returns the number of remaining ids.
    pub(super) const fn left(&self) -> u64 {
        self.left_in_run + (self.end - self.rest)
    }

    /// Starts the next run, in which ids increase by one step each.
    #[cold]
    fn start_run(&mut self) -> bool {
        if self.rest >= self.end {
            return false;
        }
        self.left_in_run = self.composer.run_length(self.rest, self.end);
        self.next_id = self.composer.id(self.rest).get();
        self.rest += self.left_in_run;
        true
    }

    /// Takes the next ids that increase by one step each: at most to the end of a tick. It costs one addition
    /// per run, however long the run is.
    pub fn next_run(&mut self) -> Option<IdRun> {
        self.forget_if_forked();
        if self.left_in_run == 0 && !self.start_run() {
            return None;
        }
        let run = IdRun { first: Id::from_layout(self.next_id), count: self.left_in_run, step: self.step };
        self.left_in_run = 0;
        Some(run)
    }

    /// Drops the ids in a forked child: they belong to its parent.
    #[inline]
    fn forget_if_forked(&mut self) {
        if !self.fork.is_same_process() {
            self.left_in_run = 0;
            self.rest = self.end;
        }
    }

    /// Returns the next id, without checking for a fork.
    #[inline]
    pub(super) fn next_unchecked(&mut self) -> Option<Id> {
        if self.left_in_run == 0 && !self.start_run() {
            return None;
        }
        let id = Id::from_layout(self.next_id);
        self.next_id += self.step;
        self.left_in_run -= 1;
        Some(id)
    }

    /// Writes ids to the start of `out` until it is full or the batch is empty; returns their number.
    pub fn fill(&mut self, out: &mut [Id]) -> usize {
        let mut filled = 0;
        self.forget_if_forked();
        while filled < out.len() && (self.left_in_run > 0 || self.start_run()) {
            let len = usize::try_from(self.left_in_run).unwrap_or(usize::MAX).min(out.len() - filled);
            // One addition for each id, which compilers turn into vectors.
            let mut id = self.next_id;
            for slot in &mut out[filled..filled + len] {
                *slot = Id::from_layout(id);
                id = id.wrapping_add(self.step);
            }
            self.next_id = id;
            filled += len;
            self.left_in_run -= len as u64;
        }
        filled
    }
}

/// Ids that increase by one step each: `first`, `first + step` and so on, `count` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRun {
    /// The smallest id.
    pub first: Id,
    /// The number of ids, at least 1.
    pub count: u64,
    /// The distance from one id to the next.
    pub step: u64,
}

impl Iterator for Batch {
    type Item = Id;

    #[inline]
    fn next(&mut self) -> Option<Id> {
        self.forget_if_forked();
        self.next_unchecked()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // The length fits, since a `usize` requested it. In a forked child the ids belong to the parent.
        let left = if self.fork.is_same_process() { self.left() } else { 0 };
        let len = usize::try_from(left).unwrap_or(usize::MAX);
        (len, Some(len))
    }
}

impl ExactSizeIterator for Batch {}
impl FusedIterator for Batch {}
