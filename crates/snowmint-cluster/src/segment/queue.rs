//! Numbers in memory: a queue of segments that any number of threads draw from without a lock.
//! Budget of a draw: one `fetch_add` and a few loads of fields that are rarely written; no clock, no allocation.
//!
//! ```text
//!  current = turn 7                  turn 8                    turn 9      the producer's next turn is 10
//!  [ used |used|....free....] ──▶ [........free........] ──▶ [...free...]
//!              ▲ cursor
//! ```
//!
//! The segment of turn `t` is in slot `t % ROOM`. A slot is reused once `current` has left its turn.
//!
//! - A draw moves the cursor of a segment up, by one atomic step on one word: no number is drawn twice.
//! - A draw counts only if the slot still has the turn that was current. A thread that slept while its slot was reused finds
//!   another turn there and starts over; the numbers that its step took from the later segment are lost.
//! - A forked child draws nothing: it has the same numbers in memory as its parent.
//! - `current` only grows, and leaves a turn only once its cursor has passed the end. So a draw that begins after another one
//!   returned finds the same segment further on, or a later one: numbers increase as long as those of the segments do.
//!
//! An `ArcSwap` of the current segment would be simpler, but takes 21 ns a draw instead of 7 ns.

use std::num::NonZeroU64;
use std::sync::Arc;

use snowmint::fork::ForkMark;
use snowmint_store::Segment;

use super::sync::{AtomicU64, Ordering, ROOM, fence};

/// The cursor of an ended segment: beyond every length, with room for 2^22 threads that draw 2^40 numbers each.
const ENDED: u64 = 1 << 63;
/// A mark that no draw passes.
const NO_MARK: u64 = u64::MAX;
/// The turn of a slot while its segment is replaced.
const NO_TURN: u64 = u64::MAX;

/// A place for one segment after another, each for its turn.
#[derive(Debug)]
struct SegmentSlot {
    /// How many numbers were drawn; more than all of them once the segment is spent.
    cursor: Padded,
    segment: Content,
}

/// A word on its own cache lines, since drawing threads write nothing else.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(AtomicU64);

/// The fields that only the producer writes, rarely, and every draw reads.
#[derive(Debug)]
#[repr(align(128))]
struct Content {
    /// The turn of this segment. A draw reads it before and after the other fields.
    turn: AtomicU64,
    first: AtomicU64,
    step: AtomicU64,
    len: AtomicU64,
    /// The label of its numbers.
    label: AtomicU64,
    /// The counter that returned it.
    counter: AtomicU64,
    /// The draw that passes this position wakes the producer.
    mark: AtomicU64,
}

/// The result of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DrawnNumbers {
    pub(super) segment: Segment,
    /// The label that the segment was put with.
    pub(super) label: u64,
    /// Whether few numbers are left, so that the caller has to wake the producer.
    pub(super) wakes_producer: bool,
}

/// Reserved numbers that nobody drew, and the counter that returned them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unused {
    /// The index of the counter, from 0.
    pub counter: usize,
    /// The numbers.
    pub segment: Segment,
}

/// The result of a draw from one slot.
enum Draw {
    Drawn(DrawnNumbers),
    /// All numbers of the turn are drawn.
    Spent,
    /// The segment has fewer numbers left than were requested in one piece.
    TooFew,
    /// The slot has no segment of this turn yet, or no longer.
    Absent,
}

impl SegmentSlot {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        let segment = Content {
            turn: AtomicU64::new(NO_TURN),
            first: zero(),
            step: zero(),
            len: zero(),
            label: zero(),
            counter: zero(),
            mark: zero(),
        };
        Self { cursor: Padded(zero()), segment }
    }

    fn is_of(&self, turn: u64) -> bool {
        self.segment.turn.load(Ordering::Acquire) == turn
    }

    fn len(&self) -> u64 {
        self.segment.len.load(Ordering::Relaxed)
    }

    /// Draws up to `count` numbers of a turn.
    #[inline]
    fn draw(&self, turn: u64, count: NonZeroU64) -> Draw {
        if !self.is_of(turn) {
            return Draw::Absent;
        }
        let len = self.len();
        // At most one length past the end, so that the cursor does not overflow.
        let count = count.get().min(len);
        let index = self.cursor.0.fetch_add(count, Ordering::AcqRel);
        let left = len.saturating_sub(index);
        self.drawn(turn, index, count.min(left)).unwrap_or(Draw::Spent)
    }

    /// Draws exactly `count` consecutive numbers of a turn.
    fn draw_whole(&self, turn: u64, count: NonZeroU64) -> Draw {
        if !self.is_of(turn) {
            return Draw::Absent;
        }
        let len = self.len();
        let enough = |index: u64| index.checked_add(count.get()).filter(|end| *end <= len);
        match self.cursor.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, enough) {
            Ok(index) => self.drawn(turn, index, count.get()).unwrap_or(Draw::Spent),
            Err(index) if index >= len => Draw::Spent,
            Err(_) => Draw::TooFew,
        }
    }

    /// Returns the numbers that a step of the cursor took, if the slot still has this turn; `None` for 0 numbers.
    #[inline]
    fn drawn(&self, turn: u64, index: u64, count: u64) -> Option<Draw> {
        let drawn = self.part(index, count).map(|segment| {
            let label = self.segment.label.load(Ordering::Relaxed);
            let mark = self.segment.mark.load(Ordering::Relaxed);
            Draw::Drawn(DrawnNumbers {
                segment,
                label,
                wakes_producer: index < mark && mark <= index + count,
            })
        });
        // If the turn is still the same, all fields read above belong to it.
        fence(Ordering::Acquire);
        if self.segment.turn.load(Ordering::Relaxed) == turn { drawn } else { Some(Draw::Absent) }
    }

    #[inline]
    fn part(&self, index: u64, count: u64) -> Option<Segment> {
        let (count, step) = (NonZeroU64::new(count)?, NonZeroU64::new(self.step())?);
        let first = self.segment.first.load(Ordering::Relaxed);
        // Wrapping, because a thread that slept may read mixed fields: its result is discarded.
        Segment::new(index.wrapping_mul(step.get()).wrapping_add(first), step, count)
    }

    /// Puts a segment here. Only threads that slept still try to draw from the previous one.
    fn put(&self, turn: u64, unused: Unused, label: u64) {
        let Unused { counter, segment } = unused;
        let shown = &self.segment;
        shown.turn.store(NO_TURN, Ordering::Relaxed);
        fence(Ordering::Release);
        shown.first.store(segment.first(), Ordering::Relaxed);
        shown.step.store(segment.step().get(), Ordering::Relaxed);
        shown.len.store(segment.count().get(), Ordering::Relaxed);
        shown.label.store(label, Ordering::Relaxed);
        shown.counter.store(counter as u64, Ordering::Relaxed);
        shown.mark.store(NO_MARK, Ordering::Relaxed);
        // A thread that slept and steps on the cursor after this sees another turn.
        self.cursor.0.store(0, Ordering::Release);
        shown.turn.store(turn, Ordering::Release);
    }

    /// Returns how many numbers are left. An atomic step rather than a load, so that every later draw sees the marks that were
    /// set before.
    fn left(&self) -> u64 {
        self.len().saturating_sub(self.cursor.0.fetch_add(0, Ordering::AcqRel))
    }

    /// Ends the segment for every thread; returns the numbers that nobody drew.
    fn end(&self) -> Option<Unused> {
        let len = self.len();
        let index = self.cursor.0.swap(ENDED, Ordering::AcqRel).min(len);
        let segment = self.part(index, len - index)?;
        let counter = usize::try_from(self.segment.counter.load(Ordering::Relaxed)).unwrap_or(0);
        Some(Unused { counter, segment })
    }

    /// Returns whether the segment has at least `count` numbers, and they are consecutive.
    fn is_whole(&self, turn: u64, count: NonZeroU64) -> bool {
        self.is_of(turn) && self.len() >= count.get() && self.step() == 1
    }

    fn step(&self) -> u64 {
        self.segment.step.load(Ordering::Relaxed)
    }

    fn label(&self) -> u64 {
        self.segment.label.load(Ordering::Relaxed)
    }

    /// Returns the greatest number of the segment.
    fn last(&self) -> Option<u64> {
        Some(self.part(0, self.len())?.last())
    }
}

/// The queue that threads draw from.
#[derive(Debug)]
pub(super) struct SegmentQueue {
    current: Padded,
    slots: Vec<SegmentSlot>,
    /// The process whose numbers these are.
    process: ForkMark,
}

/// The only writer of a queue, which adds segments at its end.
#[derive(Debug)]
pub(super) struct Producer {
    queue: Arc<SegmentQueue>,
    /// The turn of the next segment.
    next: u64,
}

impl SegmentQueue {
    /// Returns an empty queue and its producer.
    pub(super) fn open() -> (Arc<Self>, Producer) {
        let slots = (0..ROOM).map(|_| SegmentSlot::new()).collect();
        let process = ForkMark::of_this_process();
        let queue = Arc::new(Self { current: Padded(AtomicU64::new(0)), slots, process });
        (Arc::clone(&queue), Producer { queue, next: 0 })
    }

    /// The process that may draw.
    #[inline]
    pub(super) const fn process(&self) -> ForkMark {
        self.process
    }

    #[inline]
    fn current(&self) -> u64 {
        self.current.0.load(Ordering::Acquire)
    }

    #[inline]
    fn slot(&self, turn: u64) -> &SegmentSlot {
        &self.slots[(turn % ROOM) as usize]
    }

    /// Draws up to `count` numbers of one segment; `None` if there are none.
    #[inline]
    pub(super) fn draw(&self, count: NonZeroU64) -> Option<DrawnNumbers> {
        if !self.process.is_same_process() {
            return None;
        }
        loop {
            let turn = self.current();
            match self.slot(turn).draw(turn, count) {
                Draw::Drawn(drawn) => return Some(drawn),
                Draw::Spent | Draw::TooFew => self.leave(turn),
                Draw::Absent if self.current() == turn => return None,
                Draw::Absent => {}
            }
        }
    }

    /// Draws exactly `count` consecutive numbers; `None` if they are not in memory.
    ///
    /// The rest of a segment that has too few left is skipped only if this segment and the next one are at least `count` long.
    pub(super) fn draw_whole(&self, count: NonZeroU64) -> Option<DrawnNumbers> {
        if !self.process.is_same_process() {
            return None;
        }
        loop {
            let turn = self.current();
            let slot = self.slot(turn);
            if slot.is_of(turn) && slot.step() > 1 && count > NonZeroU64::MIN {
                return None;
            }
            match slot.draw_whole(turn, count) {
                Draw::Drawn(drawn) => return Some(drawn),
                Draw::Spent => self.leave(turn),
                Draw::TooFew => {
                    let next_has_them = self.slot(turn + 1).is_whole(turn + 1, count);
                    if !(next_has_them && slot.is_whole(turn, count)) {
                        return None;
                    }
                    // Skips the rest: the cursor only moves up.
                    let _ = slot.draw(turn, NonZeroU64::MAX);
                }
                Draw::Absent if self.current() == turn => return None,
                Draw::Absent => {}
            }
        }
    }

    /// Returns the distance from one number to the next in the current segment; `None` if there is none.
    pub(super) fn step(&self) -> Option<NonZeroU64> {
        let turn = self.current();
        let slot = self.slot(turn);
        if slot.is_of(turn) { NonZeroU64::new(slot.step()) } else { None }
    }

    /// Moves on from a spent segment to the next turn, whether or not its segment is there.
    #[cold]
    fn leave(&self, turn: u64) {
        // If this fails, another thread has already done it.
        let _ = self.current.0.compare_exchange(turn, turn + 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Returns the slots from the current segment on.
    fn ahead(&self) -> impl DoubleEndedIterator<Item = &SegmentSlot> {
        let turns = self.current()..;
        let slots: Vec<&SegmentSlot> =
            turns.map_while(|turn| Some(self.slot(turn)).filter(|it| it.is_of(turn))).collect();
        slots.into_iter()
    }

    /// Returns how many numbers are in memory.
    pub(super) fn left(&self) -> u64 {
        self.ahead().map(SegmentSlot::left).sum()
    }

    /// Ends the segments with this label whose numbers are all below `number`; returns how many numbers they had left.
    ///
    /// Later draws get greater numbers. Do not call this while a segment is being put.
    pub(super) fn end_below(&self, label: u64, number: u64) -> u64 {
        let below =
            |slot: &&SegmentSlot| slot.label() == label && slot.last().is_some_and(|last| last < number);
        let ended = self.ahead().filter(below).filter_map(SegmentSlot::end);
        ended.map(|unused| unused.segment.count().get()).sum()
    }

    /// Ends every segment for every thread; returns the numbers left, oldest first.
    ///
    /// Do not call this while a segment is being put.
    pub(super) fn end(&self) -> Vec<Unused> {
        // The newest first. Otherwise a draw from a newer segment, after an older one has ended, would prevent the older one from
        // being given back.
        let mut unused: Vec<Unused> = self.ahead().rev().filter_map(SegmentSlot::end).collect();
        unused.reverse();
        unused
    }
}

impl Producer {
    /// Returns how many segments there is room for.
    pub(super) fn room(&self) -> u64 {
        // `current` never passes the turn of the next segment.
        ROOM - (self.next - self.queue.current())
    }

    /// Adds a segment to the queue, with a label for its numbers. Without room, the numbers are lost.
    pub(super) fn put(&mut self, unused: Unused, label: u64) {
        if self.room() > 0 {
            self.queue.slot(self.next).put(self.next, unused, label);
            self.next += 1;
        }
    }

    /// Sets marks so that a draw wakes the producer once fewer than `keep` numbers are left; returns how many are left. If fewer
    /// are left already, no draw may wake it.
    pub(super) fn wake_below(&self, keep: u64) -> u64 {
        let mut after = 0;
        for slot in self.queue.ahead().rev() {
            let mark = match (slot.len() + after + 1).saturating_sub(keep) {
                mark if mark > slot.len() => NO_MARK,
                mark => mark.max(1),
            };
            slot.segment.mark.store(mark, Ordering::Relaxed);
            after += slot.len();
        }
        self.queue.left()
    }

    /// Ends every segment and continues with an empty queue; returns the numbers left, oldest first.
    pub(super) fn restart(&mut self) -> Vec<Unused> {
        let unused = self.queue.end();
        self.queue.current.0.fetch_max(self.next, Ordering::AcqRel);
        unused
    }
}
