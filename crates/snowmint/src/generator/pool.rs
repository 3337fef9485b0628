//! Several generators of one layout behind one interface, for more ids per tick than one worker has.
//! Callers share only a list of generators, which changes when a generator is added or removed.

use core::cmp::Ordering as Order;
use core::fmt;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::shared::{Floor, NextStart, Skip};
use super::{Batch, Generator, sleep_for};
use crate::cursor::Cursor;
use crate::fork::ForkMark;
use crate::{Clock, GenerateError, Id, Layout};

/// The generators of a pool, in the order in which they were added.
type Members<C> = Arc<[Arc<Generator<C>>]>;

/// Generators of one layout, each with its own worker, that can be added and removed while ids are made.
///
/// Each thread or connection takes ids through its own [`PoolHandle`]. The ids of one handle strictly
/// increase, whichever generators they come from (if those of one [`Generator`] do). Two handles never return
/// the same id; their ids are ordered only by timestamp. The pool remembers the last timestamp of each
/// removed worker: a generator with the same worker has to begin after it.
///
/// The pool spreads handles over the generators, so that they share no cursor while the load allows it. If a
/// handle's generator has used up its tick, the handle continues with the other generators, smallest id
/// first. A single handle can therefore take the ids of all generators. That needs a layout with the worker
/// above the sequence, such as [`Layout::TWITTER`]. With the worker below, as in `sonyflake`, the ids of one
/// generator lie between those of another: a single handle then gets the ids of one generator, and several
/// handles together get all.
///
/// A clone refers to the same pool.
///
/// # Examples
///
/// ```
/// use snowmint::generator::GeneratorPool;
/// use snowmint::{Generator, Layout, ManualClock, WorkerId};
/// use std::sync::Arc;
///
/// let clock = ManualClock::at_unix_ms(1_700_000_000_000);
/// let generator = |worker| Generator::builder(Layout::TWITTER).worker(WorkerId(worker)).build(&clock).map(Arc::new);
/// let pool = GeneratorPool::new(Layout::TWITTER);
/// pool.add(generator(1)?)?;
/// let mut handle = pool.handle();
/// let last = handle.try_take(4096)?.last();
/// assert!(handle.try_next_id().is_err(), "all 4096 of this millisecond are used");
///
/// pool.add(generator(2)?)?;
/// assert!(handle.try_next_id().ok() > last, "the same millisecond of another worker");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct GeneratorPool<C> {
    shared: Arc<PoolShared<C>>,
}

struct PoolShared<C> {
    layout: Layout,
    listed: RwLock<PoolList<C>>,
    /// Grows after each change of the members, so that handles reload the list only then.
    version: AtomicU64,
    /// The number of handles so far: each one starts with the next generator.
    seats: AtomicUsize,
}

struct PoolList<C> {
    members: Members<C>,
    /// For each removed datacenter and worker, the first unused cursor. At most one entry per worker of the
    /// layout.
    used: BTreeMap<u64, Cursor>,
    /// The borrowed ticks of the removed generators.
    borrowed: u64,
}

impl<C: Clock> PoolList<C> {
    /// Returns whether the generator could repeat an id of another one, or another one could repeat its ids.
    fn may_repeat(&self, new: &Generator<C>) -> bool {
        self.used.get(&new.node()).is_some_and(|used| new.begins_before(*used))
            || self.members.iter().any(|member| member.overlaps(new))
    }

    /// Remembers what a removed generator has used.
    fn remember(&mut self, old: &Generator<C>) {
        let used = self.used.entry(old.node()).or_default();
        *used = old.span_end().max(*used);
        self.borrowed += old.borrowed_ticks();
    }
}

impl<C: Clock> GeneratorPool<C> {
    /// Makes an empty pool. All of its generators must have this layout.
    pub fn new(layout: Layout) -> Self {
        let (version, seats) = (AtomicU64::new(0), AtomicUsize::new(0));
        let listed = RwLock::new(PoolList { members: Arc::new([]), used: BTreeMap::new(), borrowed: 0 });
        Self { shared: Arc::new(PoolShared { layout, listed, version, seats }) }
    }

    /// Adds a generator. Handles that need more ids find it immediately, the others in the next millisecond.
    ///
    /// # Errors
    ///
    /// [`PoolError`] for another layout, or for a worker and timestamps that a generator of the pool has or
    /// had.
    pub fn add(&self, generator: Arc<Generator<C>>) -> Result<(), PoolError> {
        self.put(generator, None)
    }

    /// Replaces a generator by another and ends the old one if it has not ended yet.
    ///
    /// Use this when a new lease follows an old one: end the old generator, build the new one
    /// [`not before`](super::GeneratorBuilder::not_before_unix_ms) the instant that `end` returned, and
    /// replace it. If the old generator is not in the pool, the new one is added.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add), also if the new generator would begin before the old one's last timestamp. The
    /// pool then stays as it is, but the old generator has ended.
    pub fn replace(&self, old: &Arc<Generator<C>>, new: Arc<Generator<C>>) -> Result<(), PoolError> {
        old.end();
        self.put(new, Some(old))
    }

    /// Ends and removes a generator. Its handles continue with another one, above their last ids.
    ///
    /// Returns the first instant after every used timestamp, like [`Generator::end`].
    pub fn remove(&self, generator: &Arc<Generator<C>>) -> Option<u64> {
        // Ended first: a handle that still sees the generator gets no id from it after this.
        let used_until = generator.end();
        let mut listed = self.shared.listed.write().unwrap_or_else(PoisonError::into_inner);
        let (gone, staying): (Vec<_>, Vec<_>) =
            listed.members.iter().cloned().partition(|member| Arc::ptr_eq(member, generator));
        for old in &gone {
            listed.remember(old);
        }
        listed.members = staying.into();
        self.shared.version.fetch_add(1, Ordering::Release);
        used_until
    }

    fn put(&self, new: Arc<Generator<C>>, old: Option<&Arc<Generator<C>>>) -> Result<(), PoolError> {
        if *new.layout() != self.shared.layout {
            return Err(PoolError::Layout { pool: self.shared.layout, generator: *new.layout() });
        }
        let mut listed = self.shared.listed.write().unwrap_or_else(PoisonError::into_inner);
        if listed.may_repeat(&new) {
            return Err(PoolError::SameWorker);
        }
        let mut changed = listed.members.to_vec();
        match old.and_then(|old| changed.iter().position(|member| Arc::ptr_eq(member, old))) {
            Some(place) => {
                let old = std::mem::replace(&mut changed[place], new);
                listed.remember(&old);
            }
            None => changed.push(new),
        }
        listed.members = changed.into();
        self.shared.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Returns the current generators.
    pub fn generators(&self) -> Arc<[Arc<Generator<C>>]> {
        self.shared.members()
    }

    /// Returns the number of [borrowed ticks](Generator::borrowed_ticks) of all generators, removed ones
    /// included.
    pub fn borrowed_ticks(&self) -> u64 {
        let listed = self.shared.listed.read().unwrap_or_else(PoisonError::into_inner);
        listed.borrowed + listed.members.iter().map(|member| member.borrowed_ticks()).sum::<u64>()
    }

    /// Returns the layout of the ids.
    pub fn layout(&self) -> &Layout {
        &self.shared.layout
    }

    /// Checks that the pool can make an id now. Makes none: no later id differs.
    ///
    /// # Errors
    ///
    /// [`GenerateError`], as [`PoolHandle::try_take`] of a new handle.
    pub fn check_ready(&self) -> Result<(), GenerateError> {
        // It takes no seat, which would change the generators of later handles.
        PoolHandle::new(Arc::clone(&self.shared), 0).choose().map(|_| ())
    }

    /// Returns a handle through which one thread or connection takes ids.
    pub fn handle(&self) -> PoolHandle<C> {
        let seat = self.shared.seats.fetch_add(1, Ordering::Relaxed);
        PoolHandle::new(Arc::clone(&self.shared), seat)
    }
}

impl<C> PoolShared<C> {
    fn members(&self) -> Members<C> {
        Arc::clone(&self.listed.read().unwrap_or_else(PoisonError::into_inner).members)
    }
}

impl<C> Clone for GeneratorPool<C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<C> fmt::Debug for GeneratorPool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generators = self.shared.members().len();
        f.debug_struct("GeneratorPool")
            .field("layout", &self.shared.layout.to_string())
            .field("generators", &generators)
            .finish_non_exhaustive()
    }
}

/// After its generator's tick was used up, a handle chooses among all generators for this number of slow
/// calls, then returns to its own.
const ROAMING_TURNS: u32 = 16;

/// Takes ids from a [`GeneratorPool`], each greater than the one before: for one thread or one connection.
///
/// It is cheap to make and to drop. It is not `Clone`, because the ids of two handles do not have one order.
///
/// While a millisecond lasts, [`try_take`](Self::try_take) costs one store more than the generator's own.
pub struct PoolHandle<C> {
    shared: Arc<PoolShared<C>>,
    members: Members<C>,
    version: u64,
    /// The index of its own generator, modulo the number of members.
    seat: usize,
    current: usize,
    last: LastId,
    roaming: u32,
}

/// The last id that a handle returned.
#[derive(Clone, Copy)]
enum LastId {
    /// None so far.
    None,
    /// The one before this cursor of the current generator, whose next ids are greater anyway.
    Before(u64),
    /// One of another generator.
    Of(Id),
}

impl<C: Clock> PoolHandle<C> {
    fn new(shared: Arc<PoolShared<C>>, seat: usize) -> Self {
        // The order matters: members newer than the version are merely loaded again, and older ones are never
        // kept.
        let version = shared.version.load(Ordering::Acquire);
        let members = shared.members();
        let current = seat % members.len().max(1);
        Self { shared, members, version, seat, current, last: LastId::None, roaming: 0 }
    }

    /// Returns the next id, or the reason why there is none now. Never waits.
    ///
    /// # Errors
    ///
    /// As [`try_take`](Self::try_take).
    #[inline]
    pub fn try_next_id(&mut self) -> Result<Id, GenerateError> {
        // A batch that is not empty has a first id.
        self.try_take(1)?.next().ok_or(GenerateError::Ended)
    }

    /// Takes up to `count` ids at once.
    ///
    /// Returns at least one id unless `count` is 0, and fewer than `count` if the tick, the borrowing or the
    /// lease ends first. The next call continues in the next tick, or with another generator.
    ///
    /// # Errors
    ///
    /// [`GenerateError`] if no generator has an id above the last one: the error with the shortest wait.
    /// [`GenerateError::Ended`] for a pool without generators. A failed call uses up no id, and a retry is
    /// always safe.
    #[inline]
    pub fn try_take(&mut self, count: usize) -> Result<Batch, GenerateError> {
        if let Some(generator) = self.members.get(self.current)
            && let LastId::Before(_) = self.last
            && let Some((batch, _)) = generator.rest_of_tick(count as u64)
        {
            self.last = LastId::Before(batch.end_cursor());
            return Ok(batch);
        }
        self.take_from_chosen(count)
    }

    /// Returns the next id. Sleeps while all ticks are used up or the rule says to wait; it never spins.
    ///
    /// # Errors
    ///
    /// [`GenerateError`] if waiting does not help.
    #[inline]
    pub fn next_id(&mut self) -> Result<Id, GenerateError> {
        loop {
            match self.try_next_id() {
                Err(error) => sleep_for(error)?,
                id => return id,
            }
        }
    }

    /// The slow path: the millisecond, the tick or the generator has ended, or this is the first call.
    #[cold]
    fn take_from_chosen(&mut self, count: usize) -> Result<Batch, GenerateError> {
        if count == 0 {
            return Ok(Batch::empty(ForkMark::of_this_process()));
        }
        self.refresh_members();
        if let ([only], LastId::Before(_)) = (&*self.members, self.last) {
            let batch = only.try_take(count)?;
            self.last = LastId::Before(batch.end_cursor());
            return Ok(batch);
        }
        // Another handle may take the chosen ids first: then choose again.
        loop {
            let chosen = self.choose()?;
            let generator = &self.members[chosen];
            if let Ok(batch) = generator.try_take_from(self.floor(chosen, generator), count) {
                self.current = chosen;
                self.last = LastId::Before(batch.end_cursor());
                return Ok(batch);
            }
        }
    }

    /// Chooses its own generator while that has ids of the clock's tick. Otherwise, and for a while
    /// afterwards, the generator with the smallest id above the last.
    fn choose(&mut self) -> Result<usize, GenerateError> {
        let home = self.seat % self.members.len().max(1);
        let home_lasts = matches!(self.begin(home), Some(Ok(NextStart { is_now: true, skips: false, .. })));
        if home_lasts && self.roaming == 0 {
            return Ok(home);
        }
        self.roaming = if home_lasts { self.roaming - 1 } else { ROAMING_TURNS };
        let mut error = GenerateError::Ended;
        let mut first: Option<(usize, NextStart)> = None;
        for index in 0..self.members.len() {
            match self.begin(index) {
                Some(Ok(begin)) if first.is_none_or(|(_, least)| comes_first(&begin, &least)) => {
                    first = Some((index, begin));
                }
                Some(Err(other)) => error = more_useful(error, other),
                _ => {}
            }
        }
        first.map(|(index, _)| index).ok_or(error)
    }

    fn begin(&self, index: usize) -> Option<Result<NextStart, GenerateError>> {
        let generator = self.members.get(index)?;
        Some(generator.next_start(self.floor(index, generator)))
    }

    /// Returns the lower bound of a generator's next ids.
    fn floor(&self, index: usize, generator: &Generator<C>) -> Floor {
        let above = || self.last_id().map_or(0, |last| generator.floor_above(last));
        match self.last {
            // Its own cursor is already there.
            LastId::Before(_) if index == self.current => Floor { cursor: 0, skip: Skip::Leftovers },
            // Its own generator has ids in the next tick: do not cost other handles their ids of this tick.
            LastId::Before(_) => Floor { cursor: above(), skip: Skip::Leftovers },
            LastId::None | LastId::Of(_) => Floor { cursor: above(), skip: Skip::Anything },
        }
    }

    fn last_id(&self) -> Option<Id> {
        match self.last {
            LastId::None => None,
            LastId::Before(end) => self.members.get(self.current).map(|generator| generator.id_before(end)),
            LastId::Of(id) => Some(id),
        }
    }

    /// Reloads the members if generators were added or removed.
    fn refresh_members(&mut self) {
        let version = self.shared.version.load(Ordering::Acquire);
        if version == self.version {
            return;
        }
        let last = self.last_id();
        let members = self.shared.members();
        let current = self.members.get(self.current);
        let kept = current.and_then(|current| members.iter().position(|member| Arc::ptr_eq(member, current)));
        self.current = kept.unwrap_or(self.seat % members.len().max(1));
        if kept.is_none() {
            self.last = last.map_or(LastId::None, LastId::Of);
        }
        (self.members, self.version) = (members, version);
    }
}

/// Skipped ids are lost to all handles, so a generator without skips comes first.
fn comes_first(begin: &NextStart, least: &NextStart) -> bool {
    (begin.skips, begin.id) < (least.skips, least.id)
}

/// Returns the error that says more about when ids are available again; of two ended leases, the one that
/// ended last.
fn more_useful(a: GenerateError, b: GenerateError) -> GenerateError {
    if let (GenerateError::LeaseEnded { until_unix_ms: a }, GenerateError::LeaseEnded { until_unix_ms: b }) =
        (a, b)
    {
        return GenerateError::LeaseEnded { until_unix_ms: a.max(b) };
    }
    let rank = |error: GenerateError| match error {
        GenerateError::LeaseEnded { .. } => 2,
        GenerateError::Ended => 3,
        error if error.retry_after_ms().is_some() => 0,
        _ => 1,
    };
    match rank(a).cmp(&rank(b)).then(a.retry_after_ms().cmp(&b.retry_after_ms())) {
        Order::Greater => b,
        _ => a,
    }
}

impl<C> fmt::Debug for PoolHandle<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolHandle").field("seat", &self.seat).finish_non_exhaustive()
    }
}

/// Why a pool rejects a generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolError {
    /// The generator has another layout.
    Layout {
        /// The layout of the pool.
        pool: Layout,
        /// The layout of the generator.
        generator: Layout,
    },
    /// A generator of the pool has, or had, the same datacenter, worker and timestamps: both would produce
    /// duplicates.
    SameWorker,
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout { pool, generator } => write!(
                f,
                "the pool's ids have the layout `{pool}`, the generator's `{generator}`: make a pool for each layout"
            ),
            Self::SameWorker => f.write_str(
                "a generator of the pool has, or had, this datacenter and worker for some of the same timestamps: both \
                 would produce duplicates; give each generator a worker or a lease of its own, or begin after the other's end",
            ),
        }
    }
}

impl core::error::Error for PoolError {}
