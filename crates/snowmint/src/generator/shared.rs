//! The generator that threads share: one atomic cursor, no lock.
//! Budget of `try_next_id` while a millisecond lasts: one look at the cycle counter and one `fetch_add`.
//!
//! Of the callers that wait for the next tick, every second one waits 1 ms longer. Callers that wake together
//! would compete for the same cache line, finish together and wake together again.

use core::time::Duration;

use super::batch::Composer;
use super::builder::Setup;
use super::generations::Generations;
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

// # Memory ordering
//
// Everything rests on one word, `cursor`. The other words say how far a thread may go and how fresh an id is.
//
// No id is made twice, whatever the orderings. A thread takes cursors only by an atomic read-modify-write of
// `cursor`, and all such steps on one word have one order, even relaxed ones. The word goes back in two
// places, `undo_overshoot` and `give_back`. Both exchange exactly the value that their own step left: the
// word has that value only while no other thread holds a cursor above it. Both give back only cursors that no
// id was made from.
//
// No id leaves the lease, and none is further ahead than the rule allows. A claim checks its own cursors
// before it takes them. The fast path takes first and then compares with `limit`. Each limit lies within the
// end of the lease, which only grows, and within the reach of a clock reading that this generator took. So a
// relaxed load may return any of them: an old limit sends the thread to a claim too early, and a limit that
// belongs to a newer hold is as good as its own.
//
// An id of the fast path is as fresh as the reading under which it is made. `publish` stores `limit`, then
// `hold` with Release. A thread that loads that hold with Acquire comes after the claim that published it, so
// its step on `cursor` comes after the claim's step and takes a cursor of that reading or a later one. While
// the hold lasts, the clock shows the same millisecond.
//
// A clock that only goes forward never looks like one that went back. `note_clock` raises `highest_tick` with
// Release; a claim loads it with Acquire and reads the clock afterwards, so it reads a clock that is at least
// as far.
//
// A claim enters a generation only above every tick that was used in it. `leave` raises its mark with Release
// before the exchange of `cursor` with AcqRel. A claim loads `cursor` with Acquire, so it sees every mark
// that was raised before the word it found; if another thread changes the word in between, the claim's
// exchange fails and it looks again.
//
// After `end` no thread makes an id of a cursor it takes. The swap with AcqRel puts `cursor` at `ENDED` or
// above, where no limit reaches and where a claim is refused; every cursor taken before the swap is below the
// value that the swap returned.
//
// `after_full_tick` and `lease_end` are relaxed: an old value makes an id less fresh or ends the lease early,
// and changes nothing above. The loom tests (`tests/loom` in the workspace) check these statements under
// every interleaving of two and three threads within loom's bound on preemptions.

/// Makes ids of one worker, shared by any number of threads without a lock.
///
/// Ids strictly increase over all threads: if one call returns before another begins, its id is the smaller
/// one. That holds for layouts with the timestamp on top and the sequence below it, a start that is not
/// random, and a rule without generations.
///
/// A generator is neither `Clone` nor `Copy`, since a copy would repeat its ids. Share it by reference or in
/// an `Arc`.
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

/// The cursor, on cache lines of its own: threads that draw write nothing else. [`ENDED`] or above once the
/// generator has ended.
#[derive(Debug)]
#[repr(align(128))]
struct Hot(AtomicU64);

/// Written about once a millisecond and read for every id.
#[derive(Debug)]
#[repr(align(128))]
struct PerTick {
    /// While this holds, cursors below `limit` may be handed out without another look at anything.
    hold: AtomicU64,
    limit: AtomicU64,
    /// The first cursor beyond the lease; only grows.
    lease_end: AtomicU64,
    /// The start of the first unused tick, once the generator has ended; all ones before.
    used_end: AtomicU64,
    /// The highest tick that the clock has shown: distinguishes a clock that went back from a used-up tick.
    highest_tick: AtomicU64,
    /// The tick after the last one that was used up, from which the cursor may trail the clock.
    after_full_tick: AtomicU64,
    /// Ticks that lay ahead of the clock when their first id was made.
    borrowed: AtomicU64,
    first_cursor: u64,
}

/// Cursors that a thread has taken, with what it needs to make ids from them.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) run: Run,
    pub(super) generation: u32,
    pub(super) hold: Hold,
}

impl Generator<()> {
    /// Starts to build a generator for a layout.
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
                // A clock that shows an earlier tick than the one before the lease is behind.
                highest_tick: AtomicU64::new(first_tick.saturating_sub(1)),
                after_full_tick: AtomicU64::new(0),
                borrowed: AtomicU64::new(0),
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

    /// Returns the next id, or the reason why there is none now. Never waits and never allocates.
    ///
    /// # Errors
    ///
    /// [`GenerateError`]. A failed call uses up no id, and a retry is always safe.
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint::{Generator, Layout, ManualClock, GenerateError, WorkerId};
    /// let clock = ManualClock::at_unix_ms(1_700_000_000_000);
    /// let generator = Generator::builder(Layout::TWITTER).worker(WorkerId(0)).build(&clock)?;
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

    /// Takes up to `count` ids at once, with one clock reading and one atomic step.
    ///
    /// Returns at least one id unless `count` is 0, and fewer than `count` if the tick, the borrowing or the
    /// lease ends first.
    ///
    /// # Errors
    ///
    /// [`GenerateError`]. A failed call uses up no id, and a retry is always safe.
    pub fn try_take(&self, count: usize) -> Result<Batch, GenerateError> {
        if count == 0 {
            return Ok(Batch::empty(self.fork));
        }
        Ok(self.try_take_held(count as u64)?.0)
    }

    /// Takes at least one id. Also returns the hold of the clock reading.
    #[inline]
    pub(super) fn try_take_held(&self, wanted: u64) -> Result<(Batch, Hold), GenerateError> {
        if let Some(taken) = self.rest_of_tick(wanted) {
            return Ok(taken);
        }
        let claim = self.claim(wanted)?;
        self.note_used(&claim.run, claim.run.end);
        self.publish(&claim);
        Ok((self.batch(&claim), claim.hold))
    }

    /// Takes all of `wanted` from the tick that another thread opened, without a clock reading; `None` if too
    /// few are left.
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
                // Another thread took ids first. Its reading still holds; a claim would read the clock again
                // and write words that all threads read.
                Err(drawn) => start = drawn,
            }
        }
    }

    /// Fills `out` from its start with the next ids, without waiting; returns their number, at least 1 unless
    /// `out` is empty.
    ///
    /// # Errors
    ///
    /// As [`try_take`](Self::try_take).
    pub fn try_fill(&self, out: &mut [Id]) -> Result<usize, GenerateError> {
        Ok(self.try_take(out.len())?.fill(out))
    }

    /// Fills `out` with the next ids. Sleeps while a tick is used up or the rule says to wait.
    ///
    /// Returns the number of ids at the start of `out`: its whole length, or fewer if waiting no longer
    /// helps. In that case the next call returns the reason.
    ///
    /// # Errors
    ///
    /// As [`next_id`](Self::next_id), if the call made no id.
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint::{Generator, Id, Layout, WallClock, WorkerId};
    /// let generator = Generator::builder(Layout::TWITTER).worker(WorkerId(0)).build(WallClock)?;
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

    /// Returns the next id. Sleeps while the tick is used up or the rule says to wait; it never spins.
    ///
    /// While several callers wait, every second one waits 1 ms more, so that they take turns. It does so only
    /// if that loses no id (see [`GeneratorBuilder::max_behind`]).
    ///
    /// # Errors
    ///
    /// [`GenerateError`] if waiting does not help: the lease has ended, the clock went back further than the
    /// rule allows, or the layout has no timestamps left.
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

    /// Returns the next id. Waits on the caller's own timer while the tick is used up or the rule says to
    /// wait.
    ///
    /// # Errors
    ///
    /// As [`next_id`](Self::next_id).
    ///
    /// # Cancel safety
    ///
    /// A cancelled call loses no id.
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
        sleep: impl Fn(Duration) -> S,
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

    /// The slow path: the millisecond or the tick has ended, or this is the first call.
    #[cold]
    fn next_of_claim(&self) -> Result<Id, GenerateError> {
        let claim = self.claim(1)?;
        self.note_used(&claim.run, claim.run.end);
        self.publish(&claim);
        Ok(self.composer.in_generation(claim.generation).id(claim.run.start))
    }

    pub(super) fn batch(&self, claim: &Claim) -> Batch {
        Batch::new(self.composer.in_generation(claim.generation), self.fork, claim.run.start, claim.run.end)
    }

    /// Gives back a cursor beyond the limit, if no thread has taken another one since.
    #[cold]
    fn undo_overshoot(&self, cursor: u64, limit: u64) {
        let back = self.cursor.0.compare_exchange(cursor + 1, cursor, Ordering::Relaxed, Ordering::Relaxed);
        if back.is_err() {
            // Every limit is the end of a tick, and other threads continue from there.
            self.tick.after_full_tick.fetch_max(limit >> self.limits.sequence_bits, Ordering::Relaxed);
        }
    }

    /// Takes one run of cursors, with a fresh reading of the clock.
    pub(super) fn claim(&self, wanted: u64) -> Result<Claim, GenerateError> {
        self.claim_by(|position, generation| {
            self.limits.plan(position, wanted, |tick| self.generations.fitting(generation, tick))
        })
    }

    /// Takes the run that `plan` returns for the generator's position and generation.
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
            // Read the clock last. Otherwise, a later reading that another thread stored in the meantime
            // would look like a clock that went back.
            let reading = self.clock.read();
            position.now_unix_ms = reading.unix_ms;
            let run = plan(&position, generation)?;
            if run.enter.is_some() {
                self.generations.leave(generation, self.limits.first_unused_tick(cursor));
            }
            let generation = run.enter.unwrap_or(generation);
            let next = self.generations.pack(generation, run.end);
            // Not the weak form: a spurious failure would cost another reading of the clock.
            let taken = self.cursor.0.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_ok() {
                self.note_clock(&run, position.highest_tick);
                return Ok(Claim { run, generation, hold: reading.hold });
            }
        }
    }

    /// Returns the generator's position without the time. The caller reads the clock afterwards.
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

    /// Returns the tick after the last one that is used up. The fast path leaves the cursor at a boundary
    /// without storing that.
    fn after_full_tick(&self, cursor: u64) -> u64 {
        let bits = self.limits.sequence_bits;
        let tick = cursor >> bits;
        let at_boundary = tick << bits == cursor && cursor < ENDED && cursor != self.tick.first_cursor;
        if at_boundary {
            self.tick.after_full_tick.fetch_max(tick, Ordering::Relaxed);
        }
        self.tick.after_full_tick.load(Ordering::Relaxed)
    }

    /// Stores the highest tick that the clock has shown.
    fn note_clock(&self, run: &Run, highest_tick: u64) {
        if run.enter.is_some() {
            // In the new generation, the clock has never shown a later tick.
            self.tick.highest_tick.store(run.now_tick, Ordering::Relaxed);
            self.tick.after_full_tick.store(0, Ordering::Relaxed);
        } else if run.now_tick > highest_tick {
            // A thread that loads this value afterwards reads a clock that shows at least this tick.
            self.tick.highest_tick.fetch_max(run.now_tick, Ordering::Release);
        }
    }

    /// Stores which tick is used up, if the used cursors reach into the next one, and counts the ticks ahead
    /// of the clock. `end` is the end of the cursors of the run that were used.
    pub(super) fn note_used(&self, run: &Run, end: u64) {
        let bits = self.limits.sequence_bits;
        let end_tick = end >> bits;
        if end_tick > run.start >> bits {
            self.tick.after_full_tick.fetch_max(end_tick, Ordering::Relaxed);
        }
        if end_tick > run.now_tick {
            self.note_borrowed(run.start, end, run.now_tick);
        }
    }

    /// Counts the ticks ahead of the clock in which cursors from `start` to `end` were used. A run that ends
    /// with the clock's tick has none.
    #[cold]
    fn note_borrowed(&self, start: u64, end: u64, now_tick: u64) {
        // An earlier run may have begun the first one, and counted it.
        let first = self.limits.first_unused_tick(start).max(now_tick + 1);
        let unused = self.limits.first_unused_tick(end);
        self.tick.borrowed.fetch_add(unused.saturating_sub(first), Ordering::Relaxed);
    }

    /// Lets other threads take ids of this tick without a clock reading, while the reading holds.
    ///
    /// The limit never lies beyond the tick of the cursor, so that the end of each tick leads to a claim, and
    /// never beyond the lease. With generations, a cursor alone does not determine its limit, so every id
    /// needs a claim.
    fn publish(&self, claim: &Claim) {
        if self.generations.in_use() {
            return;
        }
        let reach = self.limits.reach(claim.run.now_tick).min(self.tick.lease_end.load(Ordering::Relaxed));
        let limit = self.limits.next_boundary(claim.run.end - 1).min(reach);
        self.tick.limit.store(limit, Ordering::Relaxed);
        self.tick.hold.store(claim.hold.0, Ordering::Release);
    }

    /// Gives back the cursors of a claim from `unused` on, if no thread has taken any since.
    pub(super) fn give_back(&self, claim: &Claim, unused: u64) {
        let from = self.generations.pack(claim.generation, claim.run.end);
        let to = self.generations.pack(claim.generation, unused);
        // If that fails, the ids are lost, not repeated.
        let _ = self.cursor.0.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(super) const fn fork_mark(&self) -> ForkMark {
        self.fork
    }

    #[inline]
    pub(super) fn may_go_on(&self, hold: Hold) -> bool {
        self.clock.holds(hold) && self.fork.is_same_process()
    }

    /// Moves the end of the lease to a later instant; an earlier one changes nothing.
    pub fn extend_lease(&self, until_unix_ms: u64) {
        self.tick.lease_end.fetch_max(self.limits.cursor_until(until_unix_ms), Ordering::Relaxed);
    }

    /// Ends the generator for all threads, immediately and for good.
    ///
    /// Returns the first instant after every used timestamp, in unix milliseconds: the lease may be shortened
    /// to it, and the next generator may begin there. Returns `None` if the generator has already ended, and
    /// in a forked child, whose parent continues.
    ///
    /// A [`BlockGenerator`](crate::generator::BlockGenerator) may still return the rest of its current block;
    /// those ids count as used.
    pub fn end(&self) -> Option<u64> {
        if !self.fork.is_same_process() {
            return None;
        }
        let last = self.cursor.0.swap(ENDED, Ordering::AcqRel);
        if last >= ENDED {
            return None;
        }
        let (_, cursor) = self.generations.unpack(last);
        // Cursors beyond the lease were taken, but no id was made from them.
        let cursor = cursor.min(self.tick.lease_end.load(Ordering::Relaxed)).max(self.tick.first_cursor);
        let tick = self.limits.first_unused_tick(cursor).max(self.generations.highest_mark());
        self.tick.used_end.store(tick << self.limits.sequence_bits, Ordering::Relaxed);
        Some(self.limits.unix_ms(tick))
    }

    /// Returns the end of the lease, in unix milliseconds: no id has this timestamp or a later one.
    pub fn lease_until_unix_ms(&self) -> u64 {
        self.limits.unix_ms(self.tick.lease_end.load(Ordering::Relaxed) >> self.limits.sequence_bits)
    }

    /// Returns the number of ticks that lay ahead of the clock when their first id was made.
    ///
    /// It grows if the rule lets the generator [borrow](crate::Rule) ticks: while callers take more ids than
    /// a tick has, or after the clock went back.
    pub fn borrowed_ticks(&self) -> u64 {
        self.tick.borrowed.load(Ordering::Relaxed)
    }

    /// Returns the layout of the ids.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the clock that the generator reads.
    pub fn clock(&self) -> &C {
        &self.clock
    }
}

/// The lower bound of the next ids.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug)]
pub(super) struct Floor {
    /// The lowest acceptable cursor.
    pub(super) cursor: Cursor,
    pub(super) skip: Skip,
}

/// Which ids a pool may skip if the generator's cursor is below the floor.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skip {
    /// Those left over from before the clock's tick.
    Leftovers,
    /// Also those of the clock's tick.
    Anything,
}

/// Where the next ids of a generator would begin.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug)]
pub(super) struct NextStart {
    pub(super) id: Id,
    /// Whether they lie in the clock's tick: none is left over from an earlier tick, none borrowed.
    pub(super) is_now: bool,
    /// Whether the ids between the generator's cursor and the floor would be lost.
    pub(super) skips: bool,
}

/// For pools: ids above one that another generator made. A generator alone never needs this, since its own
/// ids increase.
#[cfg(feature = "std")]
impl<C: Clock> Generator<C> {
    /// Returns the first cursor whose id is greater than `last`, an id of the same layout. With a random
    /// start, the first one whose timestamp is not smaller; 0 if the ids of one generator do not increase
    /// either.
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
        // If the worker lies above the sequence, either all ids of the tick are greater or none. If the
        // sequence lies above the worker, the first greater id has the same sequence or the next one.
        let candidates = [tick, same, same + 1];
        let first = candidates.into_iter().find(|cursor| self.composer.id(*cursor) > last);
        first.unwrap_or_else(|| self.limits.next_boundary(tick))
    }

    /// Takes up to `count` ids of one tick, at least one, and none below a floor.
    pub(super) fn try_take_from(&self, floor: Floor, count: usize) -> Result<Batch, GenerateError> {
        let wanted = count as u64;
        let plan = |position: &Position, generation| self.plan_from(floor, position, generation, wanted);
        let claim = self.claim_by(|position, generation| Ok(plan(position, generation)?.0))?;
        self.note_used(&claim.run, claim.run.end);
        self.publish(&claim);
        Ok(self.batch(&claim))
    }

    /// Returns where [`try_take_from`](Self::try_take_from) would begin now.
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

    /// Plans a run of one tick from the floor on; also returns whether that loses ids.
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
        // The generator that made the id below the floor saw its clock at this tick or later. An earlier
        // reading means that the clock went back.
        let highest_tick = self.limits.min_clock_tick(floor.cursor).max(position.highest_tick);
        let run = plan(&Position { cursor: floor.cursor, highest_tick, ..*position })?;
        let loses_now = of_itself.start >> self.limits.sequence_bits >= run.now_tick;
        if loses_now && floor.skip == Skip::Leftovers {
            let retry_after_ms = self.limits.ms_until(run.now_tick + 1, position);
            return Err(GenerateError::Exhausted { retry_after_ms });
        }
        Ok((of_one_tick(run), true))
    }

    /// Returns the id before a cursor.
    pub(super) fn id_before(&self, end: Cursor) -> Id {
        self.composer.id(end.saturating_sub(1))
    }

    /// Returns the datacenter and worker bits of its ids.
    pub(super) const fn node(&self) -> u64 {
        self.composer.node_bits()
    }

    /// Returns the first cursor that the generator will not use: the end of its lease, or once it has ended,
    /// the end of its used cursors.
    pub(super) fn span_end(&self) -> Cursor {
        let lease_end = self.tick.lease_end.load(Ordering::Relaxed);
        lease_end.min(self.tick.used_end.load(Ordering::Relaxed))
    }

    /// Returns whether the generator may use, or has used, cursors before this one.
    pub(super) const fn begins_before(&self, cursor: Cursor) -> bool {
        self.tick.first_cursor < cursor
    }

    /// Returns whether both generators may make, or have made, ids of the same worker and timestamp.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.node() == other.node()
            && self.begins_before(other.span_end())
            && other.begins_before(self.span_end())
    }
}

/// The extra wait of every second caller.
const EXTRA_MS: u64 = 1;

/// The callers that are waiting.
#[derive(Debug)]
pub(super) struct Waiting {
    count: AtomicU64,
    extra_ms: u64,
}

/// One caller's wait; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Wait<'a> {
    waiting: &'a Waiting,
    ms: u64,
}

impl Waiting {
    /// The extra wait uses part of `max_behind`. If that left nothing for a late wake-up, ids would be lost,
    /// so there is no extra wait.
    pub(super) fn new(max_behind_ms: u64) -> Self {
        let extra_ms = if max_behind_ms >= 2 * EXTRA_MS { EXTRA_MS } else { 0 };
        Self { count: AtomicU64::new(0), extra_ms }
    }

    /// Starts a wait as long as the error advises; returns the error if waiting does not help.
    pub(super) fn begin(&self, error: GenerateError) -> Result<Wait<'_>, GenerateError> {
        let ms = error.retry_after_ms().ok_or(error)?.get();
        let others = self.count.fetch_add(1, Ordering::Relaxed);
        Ok(Wait { waiting: self, ms: ms + others % 2 * self.extra_ms })
    }

    /// Sleeps as long as the error advises.
    #[cfg(feature = "std")]
    #[cold]
    pub(super) fn sleep(&self, error: GenerateError) -> Result<(), GenerateError> {
        let wait = self.begin(error)?;
        std::thread::sleep(wait.time());
        Ok(())
    }
}

impl Wait<'_> {
    pub(super) const fn time(&self) -> Duration {
        Duration::from_millis(self.ms)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.waiting.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(snowmint_loom)))]
mod tests {
    use core::num::NonZeroU64;

    use super::*;

    const REFUSAL: GenerateError = GenerateError::Exhausted { retry_after_ms: NonZeroU64::new(7).unwrap() };

    fn ms(wait: &Wait<'_>) -> u128 {
        wait.time().as_millis()
    }

    #[test]
    fn every_second_of_those_who_wait_waits_longer() {
        let waiting = Waiting::new(2);
        let (first, second, third) = (
            waiting.begin(REFUSAL).unwrap(),
            waiting.begin(REFUSAL).unwrap(),
            waiting.begin(REFUSAL).unwrap(),
        );
        assert_eq!((ms(&first), ms(&second), ms(&third)), (7, 8, 7));
        drop((first, second, third));
        assert_eq!(ms(&waiting.begin(REFUSAL).unwrap()), 7, "who waits alone waits as advised");
        assert_eq!(ms(&waiting.begin(REFUSAL).unwrap()), 7, "and so does who comes after");
    }

    #[test]
    fn nobody_waits_longer_than_ticks_can_be_spent_late() {
        let waiting = Waiting::new(1);
        let _first = waiting.begin(REFUSAL).unwrap();
        assert_eq!(ms(&waiting.begin(REFUSAL).unwrap()), 7);
    }

    #[test]
    fn where_waiting_is_no_answer_nobody_waits() {
        let waiting = Waiting::new(4);
        assert_eq!(waiting.begin(GenerateError::Ended).unwrap_err(), GenerateError::Ended);
        assert_eq!(waiting.count.load(Ordering::Relaxed), 0);
    }
}
