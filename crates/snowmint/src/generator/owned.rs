//! The generator for one owner: it needs no atomic step for an id. It claims the rest of a tick, returns its
//! ids while the clock reading holds, and gives back the remaining ones.

use super::shared::Claim;
use super::{Batch, Generator};
use crate::{Clock, GenerateError, Id, Layout};

/// Makes ids of one worker for one owner: `&mut self` instead of atomics.
///
/// It keeps the promises of [`Generator`]. An id costs one look at the cycle counter.
///
/// # Examples
///
/// ```
/// use snowmint::{Generator, Layout, ManualClock, WorkerId};
/// let clock = ManualClock::at_unix_ms(1_700_000_000_000);
/// let mut generator = Generator::builder(Layout::TWITTER).worker(WorkerId(0)).build_owned(&clock)?;
/// let (first, second) = (generator.try_next_id()?, generator.try_next_id()?);
/// assert!(first < second);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct OwnedGenerator<C> {
    batch: Batch,
    claim: Option<Claim>,
    hold: crate::clock::Hold,
    generator: Generator<C>,
}

impl<C: Clock> OwnedGenerator<C> {
    pub(super) fn new(generator: Generator<C>) -> Self {
        Self {
            batch: Batch::empty(generator.fork_mark()),
            claim: None,
            hold: crate::clock::Hold::NONE,
            generator,
        }
    }

    /// Returns the next id, or the reason why there is none now. Never waits and never allocates.
    ///
    /// # Errors
    ///
    /// [`GenerateError`]. A failed call uses up no id, and a retry is always safe.
    #[inline]
    pub fn try_next_id(&mut self) -> Result<Id, GenerateError> {
        if self.generator.may_go_on(self.hold)
            && let Some(id) = self.batch.next_unchecked()
        {
            return Ok(id);
        }
        self.refill()
    }

    /// Returns the next id. Sleeps while the tick is used up or the rule says to wait; it never spins.
    ///
    /// # Errors
    ///
    /// As [`Generator::next_id`].
    #[cfg(feature = "std")]
    #[inline]
    pub fn next_id(&mut self) -> Result<Id, GenerateError> {
        loop {
            match self.try_next_id() {
                Err(error) => super::sleep_for(error)?,
                id => return id,
            }
        }
    }

    /// Takes up to `count` ids at once, like [`Generator::try_take`].
    ///
    /// # Errors
    ///
    /// As [`try_next_id`](Self::try_next_id).
    pub fn try_take(&mut self, count: usize) -> Result<Batch, GenerateError> {
        self.give_back();
        self.generator.try_take(count)
    }

    /// Fills `out` from its start with the next ids, like [`Generator::try_fill`].
    ///
    /// # Errors
    ///
    /// As [`try_next_id`](Self::try_next_id).
    pub fn try_fill(&mut self, out: &mut [Id]) -> Result<usize, GenerateError> {
        self.give_back();
        self.generator.try_fill(out)
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
    /// let mut generator = Generator::builder(Layout::TWITTER).worker(WorkerId(0)).build_owned(WallClock)?;
    /// let mut ids = [Id::MIN; 10_000];
    /// assert_eq!(generator.fill(&mut ids)?, 10_000);
    /// assert!(ids.is_sorted_by(|one, next| one < next));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "std")]
    pub fn fill(&mut self, out: &mut [Id]) -> Result<usize, GenerateError> {
        let mut filled = 0;
        while filled < out.len() {
            match self.try_fill(&mut out[filled..]).or_else(|error| super::sleep_for(error).map(|()| 0)) {
                Ok(count) => filled += count,
                Err(error) if filled == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(filled)
    }

    #[cold]
    fn refill(&mut self) -> Result<Id, GenerateError> {
        self.give_back();
        let claim = self.generator.claim(u64::MAX)?;
        self.batch = self.generator.batch(&claim);
        self.hold = claim.hold;
        self.claim = Some(claim);
        // A claim has at least one id.
        self.batch.next_unchecked().ok_or(GenerateError::Ended)
    }

    fn give_back(&mut self) {
        if let Some(claim) = self.claim.take() {
            let unused = claim.run.end - self.batch.left();
            self.generator.give_back(&claim, unused);
            self.generator.note_used(&claim.run, unused);
            self.batch = Batch::empty(self.generator.fork_mark());
        }
    }

    /// Moves the end of the lease to a later instant; an earlier one changes nothing.
    pub fn extend_lease(&mut self, until_unix_ms: u64) {
        self.generator.extend_lease(until_unix_ms);
    }

    /// Ends the generator for good; returns the first instant after every used timestamp, like
    /// [`Generator::end`].
    pub fn end(mut self) -> Option<u64> {
        self.give_back();
        self.generator.end()
    }

    /// Returns the layout of the ids.
    pub fn layout(&self) -> &Layout {
        self.generator.layout()
    }

    /// Returns the clock that the generator reads.
    pub fn clock(&self) -> &C {
        self.generator.clock()
    }
}
