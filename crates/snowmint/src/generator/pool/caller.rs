//! What one thread or connection draws through: it knows its last id, and chooses where the next ones come from.
//! Budget of `try_take` while a millisecond lasts: what the generator's own costs, and one store.

use core::cmp::Ordering as Order;
use core::fmt;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use super::super::batch::Batch;
use super::super::shared::{Floor, NextStart, Skip};
use super::super::{Generator, sleep_for};
use super::{Members, Shared};
use crate::fork::ForkMark;
use crate::{Clock, GenerateError, Id};

/// How many turns past the fast path a caller whose tick was used up chooses among all generators, before it goes back
/// to its own.
const ROAMING_TURNS: u32 = 16;

/// Draws ids from a [`GeneratorPool`](super::GeneratorPool), each greater than the last one it drew.
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
    pub(super) fn new(shared: Arc<Shared<C>>, seat: usize) -> Self {
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
    pub fn try_next(&mut self) -> Result<Id, GenerateError> {
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
    #[expect(clippy::should_implement_trait, reason = "an iterator could not say why there is no id")]
    pub fn next(&mut self) -> Result<Id, GenerateError> {
        loop {
            match self.try_next() {
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
