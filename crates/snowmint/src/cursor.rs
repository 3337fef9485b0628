//! The rule that makes ids: from cursor, clock and limits to the next cursors, or the reason why there are
//! none. Pure arithmetic without atomics or clock readings, so that tests and the simulation can drive it.

use core::num::NonZeroU64;
use core::time::Duration;

use crate::Layout;
use crate::error::{GenerateError, Wait};
use crate::field::Field;
use crate::rule::{Decision, Rule};
use crate::sequence_start::{Start, rolled};

/// `tick << sequence_bits | sequence` of the next id: one integer that only grows.
///
/// Adding 1 leads through the sequences of a tick and then into the next tick, so a batch is a range.
pub(crate) type Cursor = u64;

/// The cursor of an ended generator is this or more. No layout reaches it, since ids have 63 bits.
pub(crate) const ENDED: Cursor = 1 << 63;

/// The bounds of the cursor, fixed when a generator is built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) sequence_bits: u32,
    tick_ms: u64,
    epoch_unix_ms: u64,
    /// The first cursor that the layout has no timestamp for.
    layout_end: Cursor,
    max_ahead_ticks: u64,
    max_behind_ticks: u64,
    rule: Rule,
    rolling: bool,
}

/// The state of a generator at a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub(crate) cursor: Cursor,
    /// The first cursor beyond the lease.
    pub(crate) lease_end: Cursor,
    /// The highest tick the clock has shown.
    pub(crate) highest_tick: u64,
    /// The tick after the last one that is used up; 0 if none is.
    pub(crate) after_full_tick: u64,
    pub(crate) now_unix_ms: u64,
}

/// The cursors `[start, end)`, at least one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: Cursor,
    pub(crate) end: Cursor,
    pub(crate) now_tick: u64,
    /// The generation to enter for it; `None` to stay in the current one.
    pub(crate) enter: Option<u32>,
}

impl Limits {
    pub(crate) fn new(
        layout: &Layout,
        rule: Rule,
        start: Start,
        max_behind: Duration,
        generation_bits: u32,
    ) -> Self {
        let tick_ms = layout.tick_ms();
        let sequence_bits = layout.width(Field::Sequence);
        // No bound exceeds the duration of the layout, so that sums and shifts of ticks do not overflow.
        let all_ticks = layout.max(Field::Timestamp) + 1;
        let ticks = |bound: Duration| {
            u64::try_from(bound.as_millis()).map_or(all_ticks, |ms| (ms / tick_ms).min(all_ticks))
        };
        // The cursor shares its word with the generation and with the mark of an ended generator. If the
        // timestamp and the sequence leave no bit for that, the last tick is not used.
        let word_end = 1 << (63 - generation_bits);
        let layout_end = all_ticks << sequence_bits;
        let layout_end = if layout_end < word_end { layout_end } else { word_end - (1 << sequence_bits) };
        Self {
            sequence_bits,
            tick_ms,
            epoch_unix_ms: layout.epoch_unix_ms(),
            layout_end,
            max_ahead_ticks: ticks(rule.max_ahead()),
            max_behind_ticks: ticks(max_behind),
            rule: rule.in_ticks_of(tick_ms),
            rolling: start == Start::Rolling,
        }
    }

    /// Returns the first cursor whose tick begins at or after an instant.
    pub(crate) fn cursor_from(&self, unix_ms: u64) -> Cursor {
        let tick = unix_ms.saturating_sub(self.epoch_unix_ms).div_ceil(self.tick_ms);
        self.start_of(tick)
    }

    /// Returns the first cursor whose tick does not end by an instant. A tick that a lease covers in part is
    /// not used, since the rest may belong to another holder.
    pub(crate) fn cursor_until(&self, unix_ms: u64) -> Cursor {
        self.start_of(unix_ms.saturating_sub(self.epoch_unix_ms) / self.tick_ms)
    }

    fn start_of(&self, tick: u64) -> Cursor {
        tick.min(self.layout_end >> self.sequence_bits) << self.sequence_bits
    }

    /// Returns the first tick without a cursor below `cursor`.
    pub(crate) fn first_unused_tick(&self, cursor: Cursor) -> u64 {
        (cursor >> self.sequence_bits) + u64::from(cursor.trailing_zeros() < self.sequence_bits)
    }

    /// Returns the start of a tick, in unix milliseconds.
    pub(crate) fn unix_ms(&self, tick: u64) -> u64 {
        self.epoch_unix_ms.saturating_add(tick.saturating_mul(self.tick_ms))
    }

    /// Returns the first cursor after the tick of `cursor`.
    pub(crate) fn next_boundary(&self, cursor: Cursor) -> Cursor {
        ((cursor >> self.sequence_bits) + 1) << self.sequence_bits
    }

    /// Returns the lowest tick that the clock can have shown if the cursor before `end` was used.
    #[cfg(feature = "std")]
    pub(crate) const fn min_clock_tick(&self, end: Cursor) -> u64 {
        (end.saturating_sub(1) >> self.sequence_bits).saturating_sub(self.max_ahead_ticks)
    }

    /// Returns how far the cursor may trail the clock, in milliseconds: always whole ticks.
    pub(crate) const fn max_behind_ms(&self) -> u64 {
        self.max_behind_ticks * self.tick_ms
    }

    /// Returns the first cursor that is further ahead of the clock than the rule allows.
    pub(crate) fn reach(&self, now_tick: u64) -> Cursor {
        let tick = now_tick + self.max_ahead_ticks + 1;
        tick.min(self.layout_end >> self.sequence_bits) << self.sequence_bits
    }

    /// Plans up to `wanted` cursors from the next one on; fewer if the tick, the borrowing or the lease ends
    /// first. `generation_at` returns a generation whose ids all lie before a tick.
    ///
    /// ```text
    /// start = max(cursor, now)   unless the tick before is used up: then the cursor may trail the clock
    /// start <  lease end         fencing: timestamps that were not granted are never used
    /// start <= now + max_ahead   overflow into ticks ahead of the clock is borrowing
    /// ```
    #[inline]
    pub(crate) fn plan(
        &self,
        at: &Position,
        wanted: u64,
        generation_at: impl FnOnce(u64) -> Option<u32>,
    ) -> Result<Run, GenerateError> {
        let Some(since_epoch) = at.now_unix_ms.checked_sub(self.epoch_unix_ms) else {
            return Err(self.not_begun_error(at));
        };
        let clock_tick = if self.tick_ms == 1 { since_epoch } else { since_epoch / self.tick_ms };
        let trails = at.after_full_tick > 0 && clock_tick <= at.after_full_tick + self.max_behind_ticks;
        // Far beyond any layout's end; keeps the shift below from losing bits.
        let now_tick = clock_tick.min(self.layout_end >> self.sequence_bits);
        let fresh = now_tick << self.sequence_bits;
        let mut start = if at.cursor > fresh || trails { at.cursor } else { self.fresh(fresh, at.cursor) };
        if start >= at.lease_end {
            return Err(self.end_error(at, start));
        }
        let (mut reach, mut enter) = (self.reach(now_tick), None);
        if at.highest_tick > now_tick || start >> self.sequence_bits > now_tick {
            (start, reach, enter) = self.plan_off_clock(at, start, now_tick, generation_at)?;
        }
        let end = start.saturating_add(wanted).min(at.lease_end).min(reach);
        debug_assert!(start < end, "a run has at least one cursor");
        Ok(Run { start, end, now_tick, enter })
    }

    #[inline]
    fn fresh(&self, fresh: Cursor, next: Cursor) -> Cursor {
        if self.rolling { rolled(fresh, next, self.sequence_bits) } else { fresh }
    }

    /// Returns start, reach and generation of a run if the clock went back or its tick is used up.
    #[cold]
    fn plan_off_clock(
        &self,
        at: &Position,
        start: Cursor,
        now_tick: u64,
        generation_at: impl FnOnce(u64) -> Option<u32>,
    ) -> Result<(Cursor, Cursor, Option<u32>), GenerateError> {
        let (fresh, tick) = (now_tick << self.sequence_bits, start >> self.sequence_bits);
        if tick <= now_tick {
            // The run ends with the clock's tick: if the clock went back, the rule decides in the next call.
            return Ok((start, self.next_boundary(fresh), None));
        }
        let enter = self.ahead_of_clock(at, tick, now_tick, generation_at)?;
        Ok((if enter.is_some() { fresh } else { start }, self.reach(now_tick), enter))
    }

    /// Returns the generation to enter, or an error if the rule does not let the next id's tick lie ahead of
    /// the clock.
    fn ahead_of_clock(
        &self,
        at: &Position,
        tick: u64,
        now_tick: u64,
        generation_at: impl FnOnce(u64) -> Option<u32>,
    ) -> Result<Option<u32>, GenerateError> {
        let in_reach = tick <= now_tick + self.max_ahead_ticks;
        let too_far_ahead =
            || GenerateError::Exhausted { retry_after_ms: self.ms_until(tick - self.max_ahead_ticks, at) };
        if at.highest_tick > now_tick {
            // How far the clock went back. A cursor that borrowed is even further ahead.
            let behind_ms = self.ms_until(tick.min(at.highest_tick), at);
            let behind = Duration::from_millis(behind_ms.get());
            let generation = if self.rule.uses_generations() { generation_at(now_tick) } else { None };
            return match self.rule.decide(behind, generation.is_some()) {
                Decision::NextGeneration => Ok(generation),
                Decision::GoOn if in_reach => Ok(None),
                Decision::GoOn => Err(too_far_ahead()),
                Decision::Wait => Err(GenerateError::ClockBehind { behind_ms, wait: Wait::UntilCaughtUp }),
                Decision::Refuse => Err(GenerateError::ClockBehind { behind_ms, wait: Wait::Refused }),
            };
        }
        if in_reach { Ok(None) } else { Err(too_far_ahead()) }
    }

    /// Returns the time from the clock's reading to the start of a later tick.
    pub(crate) fn ms_until(&self, tick: u64, at: &Position) -> NonZeroU64 {
        NonZeroU64::new(self.unix_ms(tick).saturating_sub(at.now_unix_ms)).unwrap_or(NonZeroU64::MIN)
    }

    #[cold]
    fn not_begun_error(&self, at: &Position) -> GenerateError {
        if at.cursor >= ENDED {
            return GenerateError::Ended;
        }
        GenerateError::NotBegun { from_unix_ms: self.epoch_unix_ms, now_unix_ms: at.now_unix_ms }
    }

    #[cold]
    fn end_error(&self, at: &Position, start: Cursor) -> GenerateError {
        if at.cursor >= ENDED {
            GenerateError::Ended
        } else if start >= self.layout_end {
            GenerateError::TimestampOverflow {
                ended_unix_ms: self.unix_ms(self.layout_end >> self.sequence_bits),
            }
        } else {
            GenerateError::LeaseEnded { until_unix_ms: self.unix_ms(at.lease_end >> self.sequence_bits) }
        }
    }
}
