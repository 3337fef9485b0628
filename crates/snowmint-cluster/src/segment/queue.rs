//! Numbers in memory: segments in a queue, drawn from by any number of threads without a lock.
//! Budget of a draw: one `fetch_add` and a few loads of what is seldom written; no clock, no allocation.
//!
//! ```text
//!  current = turn 7                  turn 8                    turn 9      the next one is put at turn 10
//!  [ used |used|....free....] ──▶ [........free........] ──▶ [...free...]
//!              ▲ cursor
//! ```
//!
//! The segment of turn `t` is in slot `t % ROOM`. A slot is used again once `current` has left its turn.
//!
//! - Whoever draws only ever moves a cursor up, by an atomic step on that one word: no number is drawn twice.
//! - A draw counts only if the slot is still of the turn that was current. A thread that slept while its slot was
//!   used again finds another turn there, and tries anew: what its step took from the later segment is lost.
//! - `current` only grows, and leaves a turn only once its cursor has passed the end. So whoever draws after another
//!   draw returned finds the same segment further on, or a later one: numbers grow as long as the segments' do.

use std::num::NonZeroU64;
use std::sync::Arc;

use snowmint_store::Segment;

use super::sync::{AtomicU64, Ordering, ROOM, fence};

/// The cursor of a segment that was ended: beyond every length, with room for 2^22 threads that draw 2^40 at once.
const ENDED: u64 = 1 << 63;
/// A mark that no draw passes.
const NO_MARK: u64 = u64::MAX;
/// The turn of a slot whose segment is being put.
const NO_TURN: u64 = u64::MAX;

/// Where one segment after another is, each for its turn.
#[derive(Debug)]
struct Slot {
    /// How many numbers are drawn, or more once they all are.
    cursor: Padded,
    segment: Content,
}

/// On cache lines of its own: threads that draw write nothing else.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(AtomicU64);

/// What is written by the driver alone, seldom, and read for every draw.
#[derive(Debug)]
#[repr(align(128))]
struct Content {
    /// Which segment this is. Looked at before and after the rest is read.
    turn: AtomicU64,
    first: AtomicU64,
    step: AtomicU64,
    len: AtomicU64,
    /// What comes with each number.
    label: AtomicU64,
    /// Which counter it is from.
    counter: AtomicU64,
    /// Whoever draws past it wakes the driver.
    mark: AtomicU64,
}

/// What was drawn, and whether the driver is to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drawn {
    pub(super) segment: Segment,
    /// What was put with it.
    pub(super) label: u64,
    pub(super) wakes_producer: bool,
}

/// Numbers that nobody drew, and the counter they are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unused {
    /// Which counter, from 0.
    pub counter: usize,
    /// The numbers.
    pub segment: Segment,
}

/// What a draw came to.
enum Draw {
    Drawn(Drawn),
    /// All numbers of the turn are drawn.
    Spent,
    /// The turn's segment has fewer left than have to follow one another.
    TooFew,
    /// There is no segment of this turn, not yet or no more.
    Absent,
}

impl Slot {
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

    /// Up to `count` numbers of a turn.
    #[inline]
    fn draw(&self, turn: u64, count: NonZeroU64) -> Draw {
        if !self.is_of(turn) {
            return Draw::Absent;
        }
        let len = self.len();
        // No further past the end than this, so that the cursor does not run over.
        let count = count.get().min(len);
        let index = self.cursor.0.fetch_add(count, Ordering::AcqRel);
        let left = len.saturating_sub(index);
        self.drawn(turn, index, count.min(left)).unwrap_or(Draw::Spent)
    }

    /// Exactly `count` numbers of a turn that follow one another.
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

    /// The numbers that a step of the cursor took, if the slot is of this turn; `None` for 0 of them.
    #[inline]
    fn drawn(&self, turn: u64, index: u64, count: u64) -> Option<Draw> {
        let drawn = self.part(index, count).map(|segment| {
            let label = self.segment.label.load(Ordering::Relaxed);
            let mark = self.segment.mark.load(Ordering::Relaxed);
            Draw::Drawn(Drawn { segment, label, wakes_producer: index < mark && mark <= index + count })
        });
        // What was read above was of this turn if the turn is still the same.
        fence(Ordering::Acquire);
        if self.segment.turn.load(Ordering::Relaxed) == turn { drawn } else { Some(Draw::Absent) }
    }

    #[inline]
    fn part(&self, index: u64, count: u64) -> Option<Segment> {
        let (count, step) = (NonZeroU64::new(count)?, NonZeroU64::new(self.step())?);
        let first = self.segment.first.load(Ordering::Relaxed);
        // Wrapping, for the numbers of a thread that slept, which are thrown away.
        Segment::new(index.wrapping_mul(step.get()).wrapping_add(first), step, count)
    }

    /// Puts a segment here. Nobody draws from the one before it any more, but for threads that slept.
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
        // A thread that slept and steps on it from here on sees that the turn is another.
        self.cursor.0.store(0, Ordering::Release);
        shown.turn.store(turn, Ordering::Release);
    }

    /// How many numbers are not drawn. An atomic step and no load: whoever draws after it sees every mark that was
    /// set before it.
    fn left(&self) -> u64 {
        self.len().saturating_sub(self.cursor.0.fetch_add(0, Ordering::AcqRel))
    }

    /// Ends it for every thread: what nobody drew, and nobody will.
    fn end(&self) -> Option<Unused> {
        let len = self.len();
        let index = self.cursor.0.swap(ENDED, Ordering::AcqRel).min(len);
        let segment = self.part(index, len - index)?;
        let counter = usize::try_from(self.segment.counter.load(Ordering::Relaxed)).unwrap_or(0);
        Some(Unused { counter, segment })
    }

    /// Whether it has, or had, so many numbers that follow one another.
    fn is_whole(&self, turn: u64, count: NonZeroU64) -> bool {
        self.is_of(turn) && self.len() >= count.get() && self.step() == 1
    }

    fn step(&self) -> u64 {
        self.segment.step.load(Ordering::Relaxed)
    }

    fn label(&self) -> u64 {
        self.segment.label.load(Ordering::Relaxed)
    }

    /// The greatest of its numbers, drawn or not.
    fn last(&self) -> Option<u64> {
        Some(self.part(0, self.len())?.last())
    }
}

/// The end of a line that numbers are drawn from.
#[derive(Debug)]
pub(super) struct SegmentQueue {
    current: Padded,
    slots: Vec<Slot>,
}

/// The end of a line where segments are put; there is one for a line.
#[derive(Debug)]
pub(super) struct Producer {
    queue: Arc<SegmentQueue>,
    /// The turn of the next segment.
    next: u64,
}

impl SegmentQueue {
    /// A line without numbers, and its end.
    pub(super) fn open() -> (Arc<Self>, Producer) {
        let slots = (0..ROOM).map(|_| Slot::new()).collect();
        let queue = Arc::new(Self { current: Padded(AtomicU64::new(0)), slots });
        (Arc::clone(&queue), Producer { queue, next: 0 })
    }

    #[inline]
    fn current(&self) -> u64 {
        self.current.0.load(Ordering::Acquire)
    }

    #[inline]
    fn slot(&self, turn: u64) -> &Slot {
        &self.slots[(turn % ROOM) as usize]
    }

    /// Up to `count` numbers of one segment, or `None` where there are none.
    #[inline]
    pub(super) fn draw(&self, count: NonZeroU64) -> Option<Drawn> {
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

    /// Exactly `count` consecutive numbers, or `None` where they are not in memory. The rest of a segment in which
    /// they are not is left behind only where a whole segment is longer than they are.
    pub(super) fn draw_whole(&self, count: NonZeroU64) -> Option<Drawn> {
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
                    // All that is left, and no more than that: the cursor only moves up.
                    let _ = slot.draw(turn, NonZeroU64::MAX);
                }
                Draw::Absent if self.current() == turn => return None,
                Draw::Absent => {}
            }
        }
    }

    /// From one number to the next in the segment of now; `None` where there is none.
    pub(super) fn step(&self) -> Option<NonZeroU64> {
        let turn = self.current();
        let slot = self.slot(turn);
        if slot.is_of(turn) { NonZeroU64::new(slot.step()) } else { None }
    }

    /// Goes on from a segment that is spent, to the next one or to where it will be.
    #[cold]
    fn leave(&self, turn: u64) {
        // Whoever else was first has done it.
        let _ = self.current.0.compare_exchange(turn, turn + 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The slots of the segments from the current one on.
    fn ahead(&self) -> impl DoubleEndedIterator<Item = &Slot> {
        let turns = self.current()..;
        let slots: Vec<&Slot> =
            turns.map_while(|turn| Some(self.slot(turn)).filter(|it| it.is_of(turn))).collect();
        slots.into_iter()
    }

    /// How many numbers are in memory.
    pub(super) fn left(&self) -> u64 {
        self.ahead().map(Slot::left).sum()
    }

    /// Ends the segments whose numbers all lie below one, of those with this label: how many were left of them. Whoever
    /// draws after it gets greater numbers. Not while a segment is being put.
    pub(super) fn end_below(&self, label: u64, number: u64) -> u64 {
        let below = |slot: &&Slot| slot.label() == label && slot.last().is_some_and(|last| last < number);
        let ended = self.ahead().filter(below).filter_map(Slot::end);
        ended.map(|unused| unused.segment.count().get()).sum()
    }

    /// Ends the segments for every thread: what was left, oldest first. Not while a segment is being put.
    pub(super) fn end(&self) -> Vec<Unused> {
        // The newest first: a number of it that was drawn after an older one has ended would keep that from being
        // given back.
        let mut unused: Vec<Unused> = self.ahead().rev().filter_map(Slot::end).collect();
        unused.reverse();
        unused
    }
}

impl Producer {
    /// For how many segments there is room.
    pub(super) fn room(&self) -> u64 {
        // Nobody goes beyond the turn of the next segment.
        ROOM - (self.next - self.queue.current())
    }

    /// Puts a segment at the end of the queue, with a word that comes with each of its numbers; without room the
    /// numbers are lost.
    pub(super) fn put(&mut self, unused: Unused, label: u64) {
        if self.room() > 0 {
            self.queue.slot(self.next).put(self.next, unused, label);
            self.next += 1;
        }
    }

    /// Has the driver woken once fewer than `keep` numbers are left, and tells how many are. Where that is fewer,
    /// nobody may wake it.
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

    /// Ends the line's segments and goes on with none: what was left, oldest first.
    pub(super) fn restart(&mut self) -> Vec<Unused> {
        let unused = self.queue.end();
        self.queue.current.0.fetch_max(self.next, Ordering::AcqRel);
        unused
    }
}
