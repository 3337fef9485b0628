//! Buffers ids in memory; any number of threads draw them without a lock. Budget of a draw: one
//! compare-and-swap, one reading of the cycle counter, and loads of words that are seldom written.
//!
//! ```text
//!  cursor = turn 7, index 3          stock, under a lock
//!  slot 7 % 2: [ids of one range]    [range] [range] [range] ...
//!  slot 8 % 2: free
//! ```
//!
//! - The cursor names the next id: the turn of a range, and an index in it. A draw moves it by
//!   compare-and-swap, so that each pair of turn and index is drawn once.
//! - A range is in slot `turn % 2`. Only the lock holder begins a turn, and it fills the other slot first. If
//!   a thread sleeps in between and reads a mix of both, its compare-and-swap fails, because the turn has
//!   changed.
//! - The turn number wraps: a thread that sleeps for exactly 2^32 turns would not notice the change.
//!
//! Ids older than the maximum age are dropped. The cycle counter shows whether the last clock reading still
//! holds, so most draws read no clock.

use std::collections::VecDeque;
use std::sync::PoisonError;

use snowmint::clock::Hold;
use snowmint::{Clock, Id};

use super::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

/// The bits of the cursor that hold the index.
const INDEX_BITS: u32 = 32;
const INDEX: u64 = (1 << INDEX_BITS) - 1;

/// Ids that increase by one step each, all below 2^63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferedRange {
    first: u64,
    count: u64,
    step: u64,
}

impl BufferedRange {
    /// The maximum number of ids in a range.
    pub(crate) const MAX_COUNT: u64 = 1 << 24;

    /// Returns a range, or `None` if it is empty or too long, repeats an id, or exceeds 2^63 - 1.
    pub(crate) fn new(first: u64, count: u64, step: u64) -> Option<Self> {
        if count == 0 || count > Self::MAX_COUNT || (step == 0 && count > 1) {
            return None;
        }
        let last = step.checked_mul(count - 1)?.checked_add(first)?;
        Id::new(last).ok()?;
        Some(Self { first, count, step })
    }

    /// The number of ids.
    pub(crate) const fn count(self) -> u64 {
        self.count
    }

    /// Every id of the range.
    pub(crate) fn ids(self) -> impl Iterator<Item = Id> {
        // All ids of a range were checked.
        (0..self.count).filter_map(move |index| Id::new(self.first + index * self.step).ok())
    }

    /// Splits off the first `count` ids, at least 1, or the whole range if it has no more.
    pub(crate) fn split(self, count: u64) -> (Self, Option<Self>) {
        if count >= self.count {
            return (self, None);
        }
        let count = count.max(1);
        let rest = Self { first: self.first + count * self.step, count: self.count - count, ..self };
        (Self { count, ..self }, Some(rest))
    }
}

/// A range of the current turn, or of the one before.
#[derive(Debug)]
struct RangeSlot {
    first: AtomicU64,
    count: AtomicU64,
    step: AtomicU64,
    /// When the ids become too old, in unix milliseconds of the buffer's clock.
    until_ms: AtomicU64,
    /// While this clock reading holds, the ids are young enough.
    hold: AtomicU64,
    /// The draw that passes this index reports that few ids are left.
    mark: AtomicU64,
}

/// An atomic on its own cache lines, since drawing threads write nothing else.
#[derive(Debug)]
#[repr(align(128))]
struct PaddedCursor(AtomicU64);

/// The ranges whose turn has not come yet.
#[derive(Debug)]
struct Stock {
    ranges: VecDeque<Aging>,
    /// The number of ids in `ranges`.
    waiting: u64,
    /// Below this number of ids, the buffer is low.
    low: u64,
    /// The number of ids added so far, and of those dropped without a draw.
    put: u64,
    dropped: u64,
}

/// Ids that may be returned until `until_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aging {
    pub(crate) range: BufferedRange,
    pub(crate) until_ms: u64,
}

/// Ids that a draw returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DrawnIds {
    pub(crate) range: BufferedRange,
    /// When the ids become too old, in unix milliseconds of the buffer's clock.
    pub(crate) until_ms: u64,
    /// Whether this draw took the buffer below its low mark.
    pub(crate) is_low: bool,
}

/// The content of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// The number of ids left.
    pub(crate) left: u64,
    /// The number of ids drawn since the client was built.
    pub(crate) drawn: u64,
    /// Whether the buffer needs a refill.
    pub(crate) is_low: bool,
}

/// A buffer of ids. The clock `C` measures their age.
#[derive(Debug)]
pub(crate) struct IdBuffer<C> {
    cursor: PaddedCursor,
    slots: [RangeSlot; 2],
    stock: Mutex<Stock>,
    clock: C,
}

const fn turn(cursor: u64) -> u64 {
    cursor >> INDEX_BITS
}

/// Returns the cursor at the beginning of the next turn.
const fn next_turn(cursor: u64) -> u64 {
    (cursor & !INDEX).wrapping_add(1 << INDEX_BITS)
}

impl RangeSlot {
    fn empty() -> Self {
        let zero = || AtomicU64::new(0);
        Self { first: zero(), count: zero(), step: zero(), until_ms: zero(), hold: zero(), mark: zero() }
    }

    fn put(&self, Aging { range, until_ms }: Aging, mark: u64) {
        self.first.store(range.first, Ordering::Relaxed);
        self.count.store(range.count, Ordering::Relaxed);
        self.step.store(range.step, Ordering::Relaxed);
        self.until_ms.store(until_ms, Ordering::Relaxed);
        self.hold.store(Hold::NONE.0, Ordering::Relaxed);
        self.mark.store(mark, Ordering::Relaxed);
    }
}

impl Aging {
    /// Returns whether the ids are too old to return.
    pub(crate) const fn is_old(&self, now_ms: u64) -> bool {
        self.until_ms <= now_ms
    }
}

impl From<DrawnIds> for Aging {
    fn from(DrawnIds { range, until_ms, .. }: DrawnIds) -> Self {
        Self { range, until_ms }
    }
}

impl<C: Clock> IdBuffer<C> {
    /// Makes an empty buffer.
    pub(crate) fn new(clock: C) -> Self {
        let stock = Stock { ranges: VecDeque::new(), waiting: 0, low: 0, put: 0, dropped: 0 };
        Self {
            cursor: PaddedCursor(AtomicU64::new(0)),
            slots: [RangeSlot::empty(), RangeSlot::empty()],
            stock: Mutex::new(stock),
            clock,
        }
    }

    /// Returns the clock that measures the age of ids.
    pub(crate) const fn clock(&self) -> &C {
        &self.clock
    }

    /// Draws up to `count` ids, at least 1, from one range; `None` if the buffer is empty.
    #[inline]
    pub(crate) fn draw(&self, count: u64) -> Option<DrawnIds> {
        loop {
            let cursor = self.cursor.0.load(Ordering::Acquire);
            let (slot, index) = (self.slot(cursor), cursor & INDEX);
            let total = slot.count.load(Ordering::Relaxed);
            if index >= total || !self.is_young(slot) {
                if self.begin_turn() {
                    continue;
                }
                return None;
            }
            let count = count.clamp(1, total - index);
            let first = slot.first.load(Ordering::Relaxed);
            let step = slot.step.load(Ordering::Relaxed);
            let mark = slot.mark.load(Ordering::Relaxed);
            let until_ms = slot.until_ms.load(Ordering::Relaxed);
            let moved = self.cursor.0.compare_exchange_weak(
                cursor,
                cursor + count,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            // The turn has not changed since the first load, so the values read above belong to its range.
            if moved.is_ok() {
                let range = BufferedRange { first: first + index * step, count, step };
                return Some(DrawnIds { range, until_ms, is_low: index <= mark && mark < index + count });
            }
        }
    }

    #[inline]
    fn slot(&self, cursor: u64) -> &RangeSlot {
        &self.slots[(turn(cursor) % 2) as usize]
    }

    /// Returns whether the ids of a slot are young enough to draw.
    #[inline]
    fn is_young(&self, slot: &RangeSlot) -> bool {
        self.clock.holds(Hold(slot.hold.load(Ordering::Relaxed))) || self.look_at_clock(slot)
    }

    #[cold]
    fn look_at_clock(&self, slot: &RangeSlot) -> bool {
        let reading = self.clock.read();
        if reading.unix_ms >= slot.until_ms.load(Ordering::Relaxed) {
            return false;
        }
        // A thread that sleeps here may store this in a later turn: there it holds until the end of this
        // millisecond at most.
        slot.hold.store(reading.hold.0, Ordering::Relaxed);
        true
    }

    /// Begins the turn of the next range if the current one has no ids. Returns whether there are ids now.
    #[cold]
    fn begin_turn(&self) -> bool {
        let mut stock = self.stock();
        let cursor = self.cursor.0.load(Ordering::Acquire);
        let (slot, index) = (self.slot(cursor), cursor & INDEX);
        if index < slot.count.load(Ordering::Relaxed) && self.is_young(slot) {
            // Another thread began it.
            return true;
        }
        stock.drop_old(self.clock.unix_ms());
        let Some(next) = stock.ranges.pop_front() else {
            if index < slot.count.load(Ordering::Relaxed) {
                self.end_turn(&mut stock);
            }
            return false;
        };
        stock.waiting -= next.range.count;
        let mark = (next.range.count + stock.waiting).saturating_sub(stock.low);
        self.turn_to(&mut stock, next, mark);
        true
    }

    /// Ends the current turn. Its remaining ids are never drawn.
    fn end_turn(&self, stock: &mut Stock) {
        let nothing = BufferedRange { first: 0, count: 0, step: 0 };
        self.turn_to(stock, Aging { range: nothing, until_ms: 0 }, 0);
    }

    fn turn_to(&self, stock: &mut Stock, next: Aging, mark: u64) {
        let cursor = self.cursor.0.load(Ordering::Acquire);
        let (current, begin) = (self.slot(cursor), next_turn(cursor));
        self.slot(begin).put(next, mark);
        // Other threads may draw from the current turn until this swap.
        let last = self.cursor.0.swap(begin, Ordering::AcqRel);
        stock.dropped += current.count.load(Ordering::Relaxed) - (last & INDEX);
    }

    /// Adds ids that may be drawn until `until_ms`.
    #[cfg(test)]
    pub(crate) fn put(&self, ranges: impl IntoIterator<Item = BufferedRange>, until_ms: u64) {
        self.put_all(ranges.into_iter().map(|range| Aging { range, until_ms }));
    }

    /// Adds ids, each range with its own `until_ms`.
    pub(crate) fn put_all(&self, ranges: impl IntoIterator<Item = Aging>) {
        let mut stock = self.stock();
        for Aging { range, until_ms } in ranges {
            stock.ranges.push_back(Aging { range, until_ms });
            stock.waiting += range.count;
            stock.put += range.count;
        }
    }

    /// Sets the number of ids below which the buffer is low. Applies from the next turn on.
    pub(crate) fn set_low(&self, low: u64) {
        self.stock().low = low;
    }

    /// Drops every id.
    pub(crate) fn clear(&self) {
        let mut stock = self.stock();
        stock.drop_old(u64::MAX);
        self.end_turn(&mut stock);
    }

    /// Returns the number of ids left and drawn.
    pub(crate) fn level(&self) -> Level {
        let mut stock = self.stock();
        let now_ms = self.clock.unix_ms();
        stock.drop_old(now_ms);
        let cursor = self.cursor.0.load(Ordering::Acquire);
        let slot = self.slot(cursor);
        let in_slot = slot.count.load(Ordering::Relaxed).saturating_sub(cursor & INDEX);
        let is_old = slot.until_ms.load(Ordering::Relaxed) <= now_ms;
        let left = stock.waiting + if is_old { 0 } else { in_slot };
        let drawn = stock.put - stock.dropped - stock.waiting - in_slot;
        Level { left, drawn, is_low: left < stock.low }
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        // A panic under this lock may lose ids, but duplicates none.
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stock {
    /// Drops the ranges that are too old.
    fn drop_old(&mut self, now_ms: u64) {
        while let Some(oldest) = self.ranges.pop_front_if(|oldest| oldest.is_old(now_ms)) {
            self.waiting -= oldest.range.count;
            self.dropped += oldest.range.count;
        }
    }
}
