//! What a pool asks of a generator: ids above one that another generator made.
//! A generator alone never needs it: its own ids are above its own last one.

use super::super::batch::Batch;
use super::{Generator, Position, Run};
use crate::cursor::Cursor;
use crate::sync::Ordering;
use crate::{Clock, Field, GenerateError, Id};

/// What the next ids have to be above.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Floor {
    /// The lowest cursor that will do.
    pub(in super::super) cursor: Cursor,
    pub(in super::super) skip: Skip,
}

/// What may be lost, if the generator's cursor is below the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Skip {
    /// What was left over when the clock's tick began.
    Leftovers,
    /// Ids of the clock's tick, too.
    Anything,
}

/// Where the next ids of a generator would begin.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct NextStart {
    pub(in super::super) id: Id,
    /// Whether they lie in the clock's own tick: nothing is left over from the one before, nothing borrowed.
    pub(in super::super) is_now: bool,
    /// Whether ids would be lost, those between the generator's cursor and the floor.
    pub(in super::super) skips: bool,
}

impl<C: Clock> Generator<C> {
    /// The first cursor with a greater id than one of the same layout, or, with a random start, with a timestamp that is
    /// no smaller; 0 where ids of one generator do not increase either.
    pub(in super::super) fn floor_above(&self, last: Id) -> Cursor {
        if !self.layout.sorts_by_time() || self.generations.in_use() {
            return 0;
        }
        let field = |field| last.get() >> self.layout.shift(field) & self.layout.max(field);
        let tick = field(Field::Timestamp) << self.limits.sequence_bits;
        if !self.composer.keeps_order() {
            return tick;
        }
        let same = tick | field(Field::Sequence);
        // A node above the sequence makes the whole tick greater or none of it; a sequence above the node is passed
        // at the same value or at the next.
        let candidates = [tick, same, same + 1];
        let first = candidates.into_iter().find(|cursor| self.composer.id(*cursor) > last);
        first.unwrap_or_else(|| self.limits.next_boundary(tick))
    }

    /// Takes up to `count` ids, at least one, of one tick and none below a floor.
    pub(in super::super) fn try_take_from(&self, floor: Floor, count: usize) -> Result<Batch, GenerateError> {
        let wanted = count as u64;
        let plan = |position: &Position, generation| self.plan_from(floor, position, generation, wanted);
        let claim = self.claim_by(|position, generation| Ok(plan(position, generation)?.0))?;
        self.note_used(claim.run.start, claim.run.end);
        self.publish(&claim);
        Ok(self.batch(&claim))
    }

    /// Where [`try_take_from`](Self::try_take_from) would begin now.
    pub(in super::super) fn next_start(&self, floor: Floor) -> Result<NextStart, GenerateError> {
        if !self.fork.is_same_process() {
            return Err(GenerateError::Forked);
        }
        let (generation, cursor) = self.generations.unpack(self.cursor.0.load(Ordering::Acquire));
        let mut position = self.position(cursor);
        position.now_unix_ms = self.clock.read().unix_ms;
        let (run, skips) = self.plan_from(floor, &position, generation, 1)?;
        let is_now = run.start >> self.limits.sequence_bits == run.now_tick;
        Ok(NextStart { id: self.composer.id(run.start), is_now, skips })
    }

    /// A run of one tick from the floor on, and whether ids are lost for it.
    fn plan_from(
        &self,
        floor: Floor,
        position: &Position,
        generation: u32,
        wanted: u64,
    ) -> Result<(Run, bool), GenerateError> {
        let plan = |at| self.limits.plan(at, wanted, |tick| self.generations.fitting(generation, tick));
        let of_one_tick = |run: Run| Run { end: run.end.min(self.limits.next_boundary(run.start)), ..run };
        let of_itself = plan(position)?;
        if of_itself.start >= floor.cursor {
            return Ok((of_one_tick(of_itself), false));
        }
        // What made the id below the floor saw a clock so far at least: behind that, the clock went back.
        let highest_tick = self.limits.min_clock_tick(floor.cursor).max(position.highest_tick);
        let run = plan(&Position { cursor: floor.cursor, highest_tick, ..*position })?;
        let loses_now = of_itself.start >> self.limits.sequence_bits >= run.now_tick;
        if loses_now && floor.skip == Skip::Leftovers {
            let retry_after_ms = self.limits.ms_until(run.now_tick + 1, position);
            return Err(GenerateError::Exhausted { retry_after_ms });
        }
        Ok((of_one_tick(run), true))
    }

    /// The id before a cursor.
    pub(in super::super) fn id_before(&self, end: Cursor) -> Id {
        self.composer.id(end.saturating_sub(1))
    }

    /// The datacenter and the worker of its ids, as they stand in them.
    pub(in super::super) const fn node(&self) -> u64 {
        self.composer.node_bits()
    }

    /// The first cursor after all that it may use. Of one that was ended, what it used counts; while its end is not known
    /// yet, all of its lease.
    pub(in super::super) fn span_end(&self) -> Cursor {
        let lease_end = self.tick.lease_end.load(Ordering::Relaxed);
        lease_end.min(self.tick.used_end.load(Ordering::Relaxed))
    }

    /// Whether it may use, or has used, cursors before one of the same layout.
    pub(in super::super) const fn begins_before(&self, cursor: Cursor) -> bool {
        self.tick.first_cursor < cursor
    }

    /// Whether both may make, or have made, an id of one worker and one timestamp.
    pub(in super::super) fn overlaps(&self, other: &Self) -> bool {
        self.node() == other.node()
            && self.begins_before(other.span_end())
            && other.begins_before(self.span_end())
    }
}
