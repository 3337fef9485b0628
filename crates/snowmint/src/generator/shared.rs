//! The generator that threads share: one atomic cursor, no lock.
//! Budget of `try_next_id` while a millisecond lasts: one look at the cycle counter and one `fetch_add`.

use super::batch::Composer;
use super::builder::Setup;
use super::generations::Generations;
use super::waiting::Waiting;
use super::{Batch, GeneratorBuilder};
use crate::clock::Hold;
#[cfg(feature = "std")]
use crate::cursor::Cursor;
use crate::cursor::{ENDED, Limits, Position, Run};
#[cfg(feature = "std")]
use crate::field::Field;
use crate::fork::ForkMark;
use crate::sync::{AtomicU64, Ordering};
use crate::{Clock, GenerateError, Id, Layout};

/// Makes ids of one worker, shared by any number of threads without a lock.
///
/// Ids strictly increase: an id that was returned before another was asked for is the smaller one, over all
/// threads (where the layout's timestamp is on top and its sequence below it, with a start that is not random and a
/// rule without generations). It is neither `Clone` nor `Copy`: a copy would make the same ids again. Share it by
/// reference or in an `Arc`.
#[derive(Debug)]
pub struct Generator<C> {
    cursor: Hot,
    tick: PerTick,
    generations: Generations,
    pub(super) waiting: Waiting,
    limits: Limits,
    composer: Composer,
    fork: ForkMark,
    layout: Layout,
    clock: C,
}

/// The cursor on cache lines of its own: threads that draw write nothing else.
///
/// Each cursor is handed out by one successful atomic step on this one word; nothing else is published through it
/// but the marks of generations. [`ENDED`] and above once the generator was ended.
#[derive(Debug)]
#[repr(align(128))]
struct Hot(AtomicU64);

/// What is written about once a millisecond and read for every id.
#[derive(Debug)]
#[repr(align(128))]
struct PerTick {
    /// While this holds, cursors below `limit` may be handed out without another look at anything.
    hold: AtomicU64,
    limit: AtomicU64,
    /// The first cursor beyond the lease; only grows.
    lease_end: AtomicU64,
    /// The first cursor of the ticks after all that was used, once the generator was ended; all ones before.
    used_end: AtomicU64,
    /// The two below only tell a clock that went back from a tick that was used up, and how far the cursor may
    /// trail: a stale value costs freshness, never uniqueness.
    highest_tick: AtomicU64,
    after_full_tick: AtomicU64,
    first_cursor: u64,
}

/// Cursors that were taken, with what is needed to hand them out.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) run: Run,
    pub(super) generation: u32,
    pub(super) hold: Hold,
}

impl Generator<()> {
    /// Starts to build a generator of a layout.
    pub fn builder(layout: Layout) -> GeneratorBuilder {
        GeneratorBuilder::new(layout)
    }
}

impl<C: Clock> Generator<C> {
    pub(super) fn new(setup: &Setup, clock: C) -> Self {
        let Setup { layout, limits, composer, first_cursor, lease_end, rule } = *setup;
        let first_tick = first_cursor >> limits.sequence_bits;
        Self {
            cursor: Hot(AtomicU64::new(first_cursor)),
            tick: PerTick {
                hold: AtomicU64::new(Hold::NONE.0),
                limit: AtomicU64::new(0),
                lease_end: AtomicU64::new(lease_end),
                used_end: AtomicU64::new(u64::MAX),
                // A clock further behind the lease's begin than its first tick is a clock that is behind.
                highest_tick: AtomicU64::new(first_tick.saturating_sub(1)),
                after_full_tick: AtomicU64::new(0),
                first_cursor,
            },
            generations: Generations::new(&layout, &rule, first_tick),
            waiting: Waiting::new(limits.max_behind_ms()),
            limits,
            composer,
            fork: ForkMark::of_this_process(),
            layout,
            clock,
        }
    }

    /// Returns the next id, or why there is none now. Never waits, never allocates.
    ///
    /// # Errors
    ///
    /// [`GenerateError`]; nothing was used up, and asking again is always safe.
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint::{Generator, Layout, ManualClock, GenerateError};
    /// let clock = ManualClock::at_unix_ms(1_700_000_000_000);
    /// let generator = Generator::builder(Layout::TWITTER).build(&clock)?;
    /// for _ in 0..4096 {
    ///     generator.try_next_id()?;
    /// }
    /// assert!(matches!(generator.try_next_id(), Err(GenerateError::Exhausted { .. })), "4096 ids a millisecond");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn try_next_id(&self) -> Result<Id, GenerateError> {
        let hold = Hold(self.tick.hold.load(Ordering::Acquire));
        if self.clock.holds(hold) && self.fork.is_same_process() {
            let cursor = self.cursor.0.fetch_add(1, Ordering::Relaxed);
            let limit = self.tick.limit.load(Ordering::Relaxed);
            if cursor < limit {
                return Ok(self.composer.id(cursor));
            }
            self.undo_overshoot(cursor, limit);
        }
        self.next_of_claim()
    }

    /// Takes up to `count` ids at once, with one clock reading and one atomic step; at least one unless
    /// `count` is 0. Fewer come where the tick, the borrowing or the lease ends.
    ///
    /// # Errors
    ///
    /// [`GenerateError`]; nothing was used up, and asking again is always safe.
    pub fn try_take(&self, count: usize) -> Result<Batch, GenerateError> {
        if count == 0 {
            return Ok(Batch::empty(self.fork));
        }
        Ok(self.try_take_held(count as u64)?.0)
    }

    /// At least one id, and how long the reading holds under which they were taken.
    #[inline]
    pub(super) fn try_take_held(&self, wanted: u64) -> Result<(Batch, Hold), GenerateError> {
        if let Some(taken) = self.rest_of_tick(wanted) {
            return Ok(taken);
        }
        let claim = self.claim(wanted)?;
        self.note_used(claim.run.start, claim.run.end);
        self.publish(&claim);
        Ok((self.batch(&claim), claim.hold))
    }

    /// All of `wanted` from the tick that others opened, without a clock reading, if there are as many left.
    #[inline]
    pub(super) fn rest_of_tick(&self, wanted: u64) -> Option<(Batch, Hold)> {
        let hold = Hold(self.tick.hold.load(Ordering::Acquire));
        if !self.may_go_on(hold) {
            return None;
        }
        let mut start = self.cursor.0.load(Ordering::Relaxed);
        loop {
            let end =
                start.checked_add(wanted).filter(|end| *end <= self.tick.limit.load(Ordering::Relaxed))?;
            match self.cursor.0.compare_exchange(start, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some((Batch::new(self.composer, self.fork, start, end), hold)),
                // Another thread drew. Its reading still holds: a claim would cost one more, and write what all read.
                Err(drawn) => start = drawn,
            }
        }
    }

    /// Fills `out` from its start with the next ids; gives how many there were, at least one unless it is empty.
    ///
    /// # Errors
    ///
    /// As [`try_take`](Self::try_take).
    pub fn try_fill(&self, out: &mut [Id]) -> Result<usize, GenerateError> {
        Ok(self.try_take(out.len())?.fill(out))
    }

    /// Fills `out` with the next ids; waits while ticks are used up or the rule asks for it, asleep, not spinning.
    ///
    /// Returns how many ids stand at the start of `out`: all of it, or fewer where waiting stopped helping. The next call
    /// then returns the reason.
    ///
    /// # Errors
    ///
    /// As [`next_id`](Self::next_id), when there was no id at all.
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint::{Generator, Id, Layout, WallClock};
    /// let generator = Generator::builder(Layout::TWITTER).build(WallClock)?;
    /// let mut ids = [Id::MIN; 10_000];
    /// assert_eq!(generator.fill(&mut ids)?, 10_000);
    /// assert!(ids.is_sorted_by(|one, next| one < next));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "std")]
    pub fn fill(&self, out: &mut [Id]) -> Result<usize, GenerateError> {
        let mut filled = 0;
        while filled < out.len() {
            match self.try_fill(&mut out[filled..]).or_else(|error| self.waiting.sleep(error).map(|()| 0)) {
                Ok(count) => filled += count,
                Err(error) if filled == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(filled)
    }

    /// Returns the next id; waits while its tick or the rule asks for it, asleep, not spinning.
    ///
    /// While several callers wait, every second one waits a millisecond more, so that they draw in turn and not
    /// at once, as long as that loses no id (see [`GeneratorBuilder::max_behind`]).
    ///
    /// # Errors
    ///
    /// [`GenerateError`] when waiting is no answer: the lease ended, the clock went back further than the rule
    /// bridges, or the layout's time ran out.
    #[cfg(feature = "std")]
    #[inline]
    pub fn next_id(&self) -> Result<Id, GenerateError> {
        loop {
            match self.try_next_id() {
                Err(error) => self.waiting.sleep(error)?,
                id => return id,
            }
        }
    }

    /// Returns the next id; waits on the caller's own timer while its tick or the rule asks for it.
    ///
    /// # Errors
    ///
    /// As [`next_id`](Self::next_id).
    ///
    /// # Cancel safety
    ///
    /// No id is lost.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use snowmint::{Generator, Id, GenerateError, WallClock};
    /// # mod tokio { pub mod time { pub async fn sleep(_: std::time::Duration) {} } }
    /// async fn next_id(generator: &Generator<WallClock>) -> Result<Id, GenerateError> {
    ///     generator.next_id_with(tokio::time::sleep).await
    /// }
    /// ```
    pub async fn next_id_with<S: Future<Output = ()>>(
        &self,
        sleep: impl Fn(core::time::Duration) -> S,
    ) -> Result<Id, GenerateError> {
        loop {
            let error = match self.try_next_id() {
                Err(error) => error,
                id => return id,
            };
            let wait = self.waiting.begin(error)?;
            sleep(wait.time()).await;
        }
    }

    /// Past the fast path: the millisecond or the tick ended, or nothing was drawn before.
    #[cold]
    fn next_of_claim(&self) -> Result<Id, GenerateError> {
        let claim = self.claim(1)?;
        self.note_used(claim.run.start, claim.run.end);
        self.publish(&claim);
        Ok(self.composer.in_generation(claim.generation).id(claim.run.start))
    }

    pub(super) fn batch(&self, claim: &Claim) -> Batch {
        Batch::new(self.composer.in_generation(claim.generation), self.fork, claim.run.start, claim.run.end)
    }

    /// A cursor was taken that may not be used now: it goes back if nobody took another since.
    #[cold]
    fn undo_overshoot(&self, cursor: u64, limit: u64) {
        let back = self.cursor.0.compare_exchange(cursor + 1, cursor, Ordering::Relaxed, Ordering::Relaxed);
        if back.is_err() {
            // Every limit is the end of a tick: others draw on from there.
            self.tick.after_full_tick.fetch_max(limit >> self.limits.sequence_bits, Ordering::Relaxed);
        }
    }

    /// Takes exactly one run of cursors out of the shared one, by a fresh reading of the clock.
    pub(super) fn claim(&self, wanted: u64) -> Result<Claim, GenerateError> {
        self.claim_by(|position, generation| {
            self.limits.plan(position, wanted, |tick| self.generations.fitting(generation, tick))
        })
    }

    /// Takes the run that `plan` makes of where the generator is and of the generation it is in.
    fn claim_by(
        &self,
        plan: impl Fn(&Position, u32) -> Result<Run, GenerateError>,
    ) -> Result<Claim, GenerateError> {
        if !self.fork.is_same_process() {
            return Err(GenerateError::Forked);
        }
        loop {
            let word = self.cursor.0.load(Ordering::Acquire);
            let (generation, cursor) = self.generations.unpack(word);
            let mut position = self.position(cursor);
            // Read last: what another thread's later reading led it to write would look like a clock that went back.
            let reading = self.clock.read();
            position.now_unix_ms = reading.unix_ms;
            let run = plan(&position, generation)?;
            if run.enter.is_some() {
                self.generations.leave(generation, self.limits.first_unused_tick(cursor));
            }
            let generation = run.enter.unwrap_or(generation);
            let next = self.generations.pack(generation, run.end);
            // Not the weak form: what it saves here, a failure without cause would cost in another reading of the clock.
            let taken = self.cursor.0.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_ok() {
                self.note_clock(&run, position.highest_tick);
                return Ok(Claim { run, generation, hold: reading.hold });
            }
        }
    }

    /// What is known beside the time; the clock is to be read after it.
    #[inline]
    fn position(&self, cursor: u64) -> Position {
        Position {
            cursor,
            lease_end: self.tick.lease_end.load(Ordering::Relaxed),
            highest_tick: self.tick.highest_tick.load(Ordering::Acquire),
            after_full_tick: self.after_full_tick(cursor),
            now_unix_ms: 0,
        }
    }

    /// The tick after the last one used up: the fast path leaves the cursor at a boundary without saying so.
    fn after_full_tick(&self, cursor: u64) -> u64 {
        let bits = self.limits.sequence_bits;
        let at_boundary =
            cursor.trailing_zeros() >= bits && cursor < ENDED && cursor != self.tick.first_cursor;
        if at_boundary {
            self.tick.after_full_tick.fetch_max(cursor >> bits, Ordering::Relaxed);
        }
        self.tick.after_full_tick.load(Ordering::Relaxed)
    }

    /// Remembers how far the clock has been.
    fn note_clock(&self, run: &Run, highest_tick: u64) {
        if run.enter.is_some() {
            // In the generation that was entered, the clock has never been further.
            self.tick.highest_tick.store(run.now_tick, Ordering::Relaxed);
            self.tick.after_full_tick.store(0, Ordering::Relaxed);
        } else if run.now_tick > highest_tick {
            // Whoever sees it then reads a clock that is at least as far.
            self.tick.highest_tick.fetch_max(run.now_tick, Ordering::Release);
        }
    }

    /// Remembers which tick was used up, if cursors that were used reach into another.
    pub(super) fn note_used(&self, start: u64, end: u64) {
        let bits = self.limits.sequence_bits;
        if end >> bits > start >> bits {
            self.tick.after_full_tick.fetch_max(end >> bits, Ordering::Relaxed);
        }
    }

    /// Lets others draw from this tick without a clock reading, while the reading holds.
    ///
    /// The limit never lies beyond the tick of the cursor, so that the end of each tick comes back here, and never
    /// beyond the lease. A limit that another thread overwrites with an older one sends threads back here early; one
    /// that stands beside the hold of another millisecond is still within the lease and the reach of a reading that
    /// was taken. With generations a cursor alone does not say which limit it has to stay below: every id claims.
    fn publish(&self, claim: &Claim) {
        if self.generations.in_use() {
            return;
        }
        let reach = self.limits.reach(claim.run.now_tick).min(self.tick.lease_end.load(Ordering::Relaxed));
        let limit = self.limits.next_boundary(claim.run.end - 1).min(reach);
        self.tick.limit.store(limit, Ordering::Relaxed);
        self.tick.hold.store(claim.hold.0, Ordering::Release);
    }

    /// Gives the cursors from `unused` on of a claim back, if nobody took any since.
    pub(super) fn give_back(&self, claim: &Claim, unused: u64) {
        let from = self.generations.pack(claim.generation, claim.run.end);
        let to = self.generations.pack(claim.generation, unused);
        // Lost, not repeated, should it fail.
        let _ = self.cursor.0.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(super) const fn fork_mark(&self) -> ForkMark {
        self.fork
    }

    #[inline]
    pub(super) fn may_go_on(&self, hold: Hold) -> bool {
        self.clock.holds(hold) && self.fork.is_same_process()
    }

    /// Lets the generator go on until a later end of its lease; an earlier one changes nothing.
    pub fn extend_lease(&self, until_unix_ms: u64) {
        self.tick.lease_end.fetch_max(self.limits.cursor_until(until_unix_ms), Ordering::Relaxed);
    }

    /// Ends the generator for every thread, at once and for good.
    ///
    /// Returns the first instant after every timestamp that was used, in unix milliseconds: what the lease may
    /// be cut back to, and where a generator that follows this one may begin. `None` if it was ended before, and in a
    /// forked child, whose parent goes on. A
    /// [`BlockGenerator`](crate::generator::BlockGenerator) may hand out the rest of the block that it took before; those ids
    /// are counted as used.
    pub fn end(&self) -> Option<u64> {
        if !self.fork.is_same_process() {
            return None;
        }
        let last = self.cursor.0.swap(ENDED, Ordering::AcqRel);
        if last >= ENDED {
            return None;
        }
        let (_, cursor) = self.generations.unpack(last);
        // Beyond the lease there is only what was taken and could not be used.
        let cursor = cursor.min(self.tick.lease_end.load(Ordering::Relaxed)).max(self.tick.first_cursor);
        let tick = self.limits.first_unused_tick(cursor).max(self.generations.highest_mark());
        self.tick.used_end.store(tick << self.limits.sequence_bits, Ordering::Relaxed);
        Some(self.limits.unix_ms(tick))
    }

    /// The end of the lease, in unix milliseconds: no id has a timestamp from there on.
    pub fn lease_until_unix_ms(&self) -> u64 {
        self.limits.unix_ms(self.tick.lease_end.load(Ordering::Relaxed) >> self.limits.sequence_bits)
    }

    /// The layout of the ids.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The clock it reads.
    pub fn clock(&self) -> &C {
        &self.clock
    }
}

/// What the next ids have to be above.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug)]
pub(super) struct Floor {
    /// The lowest cursor that will do.
    pub(super) cursor: Cursor,
    pub(super) skip: Skip,
}

/// What may be lost, if the generator's cursor is below the floor.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skip {
    /// What was left over when the clock's tick began.
    Leftovers,
    /// Ids of the clock's tick, too.
    Anything,
}

/// Where the next ids of a generator would begin.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug)]
pub(super) struct NextStart {
    pub(super) id: Id,
    /// Whether they lie in the clock's own tick: nothing is left over from the one before, nothing borrowed.
    pub(super) is_now: bool,
    /// Whether ids would be lost, those between the generator's cursor and the floor.
    pub(super) skips: bool,
}

/// What a pool asks of a generator: ids above one that another generator made. A generator alone never needs it, since its
/// own ids are above its own last one.
#[cfg(feature = "std")]
impl<C: Clock> Generator<C> {
    /// The first cursor with a greater id than one of the same layout, or, with a random start, with a timestamp that is
    /// no smaller; 0 where ids of one generator do not increase either.
    pub(super) fn floor_above(&self, last: Id) -> Cursor {
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
    pub(super) fn try_take_from(&self, floor: Floor, count: usize) -> Result<Batch, GenerateError> {
        let wanted = count as u64;
        let plan = |position: &Position, generation| self.plan_from(floor, position, generation, wanted);
        let claim = self.claim_by(|position, generation| Ok(plan(position, generation)?.0))?;
        self.note_used(claim.run.start, claim.run.end);
        self.publish(&claim);
        Ok(self.batch(&claim))
    }

    /// Where [`try_take_from`](Self::try_take_from) would begin now.
    pub(super) fn next_start(&self, floor: Floor) -> Result<NextStart, GenerateError> {
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
    pub(super) fn id_before(&self, end: Cursor) -> Id {
        self.composer.id(end.saturating_sub(1))
    }

    /// The datacenter and the worker of its ids, as they stand in them.
    pub(super) const fn node(&self) -> u64 {
        self.composer.node_bits()
    }

    /// The first cursor after all that it may use. Of one that was ended, what it used counts; while its end is not known
    /// yet, all of its lease.
    pub(super) fn span_end(&self) -> Cursor {
        let lease_end = self.tick.lease_end.load(Ordering::Relaxed);
        lease_end.min(self.tick.used_end.load(Ordering::Relaxed))
    }

    /// Whether it may use, or has used, cursors before one of the same layout.
    pub(super) const fn begins_before(&self, cursor: Cursor) -> bool {
        self.tick.first_cursor < cursor
    }

    /// Whether both may make, or have made, an id of one worker and one timestamp.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.node() == other.node()
            && self.begins_before(other.span_end())
            && other.begins_before(self.span_end())
    }
}
