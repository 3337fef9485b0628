//! The generator that one owner draws from: no atomic step for an id.
//! It claims the rest of a tick, hands it out while the clock's reading holds, and gives back what is left.

use super::shared::Claim;
use super::{Batch, Generator};
use crate::{Clock, GenerateError, Id, Layout};

/// Makes ids of one worker for one owner: `&mut self` in place of atomics.
///
/// The same promises as [`Generator`], at the cost of a look at the cycle counter for each id.
///
/// # Examples
///
/// ```
/// use snowmint::{Generator, Layout, ManualClock};
/// let clock = ManualClock::at_unix_ms(1_700_000_000_000);
/// let mut generator = Generator::builder(Layout::TWITTER).build_owned(&clock)?;
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

    /// Returns the next id, or why there is none now. Never waits, never allocates.
    ///
    /// # Errors
    ///
    /// [`GenerateError`]; nothing was used up, and asking again is always safe.
    #[inline]
    pub fn try_next_id(&mut self) -> Result<Id, GenerateError> {
        if self.generator.may_go_on(self.hold)
            && let Some(id) = self.batch.next_unchecked()
        {
            return Ok(id);
        }
        self.refill()
    }

    /// Returns the next id; waits while its tick or the rule asks for it, asleep, not spinning.
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

    /// Takes up to `count` ids at once, as [`Generator::try_take`].
    ///
    /// # Errors
    ///
    /// As [`try_next_id`](Self::try_next_id).
    pub fn try_take(&mut self, count: usize) -> Result<Batch, GenerateError> {
        self.give_back();
        self.generator.try_take(count)
    }

    /// Fills `out` from its start with the next ids, as [`Generator::try_fill`].
    ///
    /// # Errors
    ///
    /// As [`try_next_id`](Self::try_next_id).
    pub fn try_fill(&mut self, out: &mut [Id]) -> Result<usize, GenerateError> {
        self.give_back();
        self.generator.try_fill(out)
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
    /// let mut generator = Generator::builder(Layout::TWITTER).build_owned(WallClock)?;
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
            self.generator.note_used(claim.run.start, unused);
            self.batch = Batch::empty(self.generator.fork_mark());
        }
    }

    /// Lets the generator go on until a later end of its lease; an earlier one changes nothing.
    pub fn extend_lease(&mut self, until_unix_ms: u64) {
        self.generator.extend_lease(until_unix_ms);
    }

    /// Ends the generator for good; gives the first instant after every timestamp that was used, as
    /// [`Generator::end`].
    pub fn end(mut self) -> Option<u64> {
        self.give_back();
        self.generator.end()
    }

    /// The layout of the ids.
    pub fn layout(&self) -> &Layout {
        self.generator.layout()
    }

    /// The clock it reads.
    pub fn clock(&self) -> &C {
        self.generator.clock()
    }
}
