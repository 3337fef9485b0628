//! Several generators of one layout behind one face, for more ids a tick than one worker has.
//! What is shared is a list that changes when a generator comes or goes; ids are drawn past it, by callers.

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

/// Generators of one layout, each under a worker of its own, that may come and go while ids are drawn.
///
/// Ids are drawn through a [`PoolHandle`], of which each thread or connection has its own. The ids of one caller strictly
/// increase, whichever generators they come from (where those of one [`Generator`] do). Ids of two callers are never
/// equal, and are ordered only by their timestamps. The pool remembers the last timestamp of each worker that was
/// removed: a generator that comes back with the same worker has to begin after it.
///
/// Callers are spread over the generators and share no cursor while the load lets them. One whose generator has used
/// up its tick goes on with those that have sequences left, the smallest id first, so that a caller alone can draw
/// what all of them have. That needs a layout with the worker above the sequence, as [`Layout::TWITTER`]; where it
/// stands below, as in `sonyflake`, the ids of one generator lie between those of another, and a single caller in
/// order gets what one generator has, several callers what all have.
///
/// Cloning it gives another handle on the same pool.
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
    shared: Arc<Shared<C>>,
}

struct Shared<C> {
    layout: Layout,
    listed: RwLock<Listed<C>>,
    /// Grows after each change of the members, so that callers look again only when there is something to see.
    version: AtomicU64,
    /// How many callers there were: each gets another generator to start with.
    seats: AtomicUsize,
}

struct Listed<C> {
    members: Members<C>,
    /// For each datacenter and worker that was taken out, the first cursor after all that were used. No larger than the
    /// layout's number of nodes.
    used: BTreeMap<u64, Cursor>,
}

impl<C: Clock> Listed<C> {
    /// Whether an id of the generator was made before, or may be made by another.
    fn may_repeat(&self, new: &Generator<C>) -> bool {
        self.used.get(&new.node()).is_some_and(|used| new.begins_before(*used))
            || self.members.iter().any(|member| member.overlaps(new))
    }

    /// Remembers a generator that was ended and is taken out.
    fn remember(&mut self, old: &Generator<C>) {
        let used = self.used.entry(old.node()).or_default();
        *used = old.span_end().max(*used);
    }
}

impl<C: Clock> GeneratorPool<C> {
    /// A pool without generators, of a layout that all of them must have.
    pub fn new(layout: Layout) -> Self {
        let (version, seats) = (AtomicU64::new(0), AtomicUsize::new(0));
        let listed = RwLock::new(Listed { members: Arc::new([]), used: BTreeMap::new() });
        Self { shared: Arc::new(Shared { layout, listed, version, seats }) }
    }

    /// Adds a generator: callers that need more than they have find it at once, the others in the next millisecond.
    ///
    /// # Errors
    ///
    /// [`PoolError`] for another layout, or a worker and timestamps that a generator of the pool has or had.
    pub fn add(&self, generator: Arc<Generator<C>>) -> Result<(), PoolError> {
        self.put(generator, None)
    }

    /// Puts a generator in the place of another, which has ended or is ended by this.
    ///
    /// For a lease that follows on another: end the old generator, build the new one
    /// [`not before`](super::GeneratorBuilder::not_before_unix_ms) what that returned, and replace it. Where the old one is
    /// not in the pool, the new one is added.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add), also where the new one would begin before the old one's last timestamp; then nothing has
    /// changed, but the old one has ended.
    pub fn replace(&self, old: &Arc<Generator<C>>, new: Arc<Generator<C>>) -> Result<(), PoolError> {
        old.end();
        self.put(new, Some(old))
    }

    /// Ends a generator and takes it out: its callers go on with another one, above their last ids.
    ///
    /// Returns the first instant after every timestamp that was used, as [`Generator::end`].
    pub fn remove(&self, generator: &Arc<Generator<C>>) -> Option<u64> {
        // Ended first: a caller that still sees it then gets no id after this.
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

    /// The generators of now.
    pub fn generators(&self) -> Arc<[Arc<Generator<C>>]> {
        self.shared.members()
    }

    /// The layout of the ids.
    pub fn layout(&self) -> &Layout {
        &self.shared.layout
    }

    /// A handle for one thread or one connection to draw ids through.
    pub fn handle(&self) -> PoolHandle<C> {
        let seat = self.shared.seats.fetch_add(1, Ordering::Relaxed);
        PoolHandle::new(Arc::clone(&self.shared), seat)
    }
}

impl<C> Shared<C> {
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

/// How many turns past the fast path a caller whose tick was used up chooses among all generators, before it goes back
/// to its own.
const ROAMING_TURNS: u32 = 16;

/// Draws ids from a [`GeneratorPool`], each greater than the last one it drew.
///
/// For one thread or one connection; it is cheap to make and to drop. It is not `Clone`: the ids of two callers are not
/// in one order.
pub struct PoolHandle<C> {
    shared: Arc<Shared<C>>,
    members: Members<C>,
    version: u64,
    /// Which of the members is its own, modulo how many there are.
    seat: usize,
    current: usize,
    last: Last,
    roaming: u32,
}

/// The last id that was drawn.
#[derive(Clone, Copy)]
enum Last {
    /// None so far, or none that bounds the next.
    None,
    /// The one before this cursor of the current generator, whose next ids are greater anyway.
    Before(u64),
    /// One of another generator.
    Of(Id),
}

impl<C: Clock> PoolHandle<C> {
    fn new(shared: Arc<Shared<C>>, seat: usize) -> Self {
        // In this order: members that are newer than the version are looked at once more, older ones never kept.
        let version = shared.version.load(Ordering::Acquire);
        let members = shared.members();
        let current = seat % members.len().max(1);
        Self { shared, members, version, seat, current, last: Last::None, roaming: 0 }
    }

    /// Returns the next id, or why there is none now. Never waits.
    ///
    /// # Errors
    ///
    /// As [`try_take`](Self::try_take).
    #[inline]
    pub fn try_next_id(&mut self) -> Result<Id, GenerateError> {
        // A batch that is not empty has a first id.
        self.try_take(1)?.next().ok_or(GenerateError::Ended)
    }

    /// Takes up to `count` ids at once, at least one unless `count` is 0. Fewer come where the tick, the borrowing
    /// or the lease ends: the next call goes on in the next tick, or with another generator.
    ///
    /// # Errors
    ///
    /// The [`GenerateError`] that waiting helps soonest, where no generator has an id above the last one;
    /// [`GenerateError::Ended`] for a pool without generators. Nothing was used up, and asking again is always safe.
    #[inline]
    pub fn try_take(&mut self, count: usize) -> Result<Batch, GenerateError> {
        if let Some(generator) = self.members.get(self.current)
            && let Last::Before(_) = self.last
            && let Some((batch, _)) = generator.rest_of_tick(count as u64)
        {
            self.last = Last::Before(batch.end_cursor());
            return Ok(batch);
        }
        self.take_from_chosen(count)
    }

    /// Returns the next id; waits while all ticks are used up or the rule asks for it, asleep, not spinning.
    ///
    /// # Errors
    ///
    /// [`GenerateError`] when waiting is no answer.
    #[inline]
    pub fn next_id(&mut self) -> Result<Id, GenerateError> {
        loop {
            match self.try_next_id() {
                Err(error) => sleep_for(error)?,
                id => return id,
            }
        }
    }

    /// Past the fast path: the millisecond or the tick ended, the generator did, or nothing was drawn before.
    #[cold]
    fn take_from_chosen(&mut self, count: usize) -> Result<Batch, GenerateError> {
        if count == 0 {
            return Ok(Batch::empty(ForkMark::of_this_process()));
        }
        self.refresh_members();
        if let ([only], Last::Before(_)) = (&*self.members, self.last) {
            let batch = only.try_take(count)?;
            self.last = Last::Before(batch.end_cursor());
            return Ok(batch);
        }
        // Others may take what was chosen before it is taken: then they went on, and it is chosen anew.
        loop {
            let chosen = self.choose()?;
            let generator = &self.members[chosen];
            if let Ok(batch) = generator.try_take_from(self.floor(chosen, generator), count) {
                self.current = chosen;
                self.last = Last::Before(batch.end_cursor());
                return Ok(batch);
            }
        }
    }

    /// Its own generator while that has ids of the clock's tick; else, and for a while after, the one with the
    /// smallest id above the last.
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

    /// What the next ids of a generator have to be above.
    fn floor(&self, index: usize, generator: &Generator<C>) -> Floor {
        let above = || self.last_id().map_or(0, |last| generator.floor_above(last));
        match self.last {
            // Its own cursor is there already.
            Last::Before(_) if index == self.current => Floor { cursor: 0, skip: Skip::Leftovers },
            // Its own generator has more in the next tick: that other callers lose ids of this one is not worth it.
            Last::Before(_) => Floor { cursor: above(), skip: Skip::Leftovers },
            Last::None | Last::Of(_) => Floor { cursor: above(), skip: Skip::Anything },
        }
    }

    fn last_id(&self) -> Option<Id> {
        match self.last {
            Last::None => None,
            Last::Before(end) => self.members.get(self.current).map(|generator| generator.id_before(end)),
            Last::Of(id) => Some(id),
        }
    }

    /// Takes notice of generators that came or went.
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
            self.last = last.map_or(Last::None, Last::Of);
        }
        (self.members, self.version) = (members, version);
    }
}

/// What is skipped is lost to all callers: better a generator that needs not skip.
fn comes_first(begin: &NextStart, least: &NextStart) -> bool {
    (begin.skips, begin.id) < (least.skips, least.id)
}

/// The error that says more about when there are ids again; of leases that ended, the one that ended last.
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

/// Why a generator cannot be in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolError {
    /// It has another layout.
    Layout {
        /// The pool's.
        pool: Layout,
        /// The generator's.
        generator: Layout,
    },
    /// A generator of the pool has, or had, its datacenter and worker, and timestamps of its lease: both would produce
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
