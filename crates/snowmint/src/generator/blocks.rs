//! A thread's own blocks of a shared generator: one atomic step for many ids.
//! What is left of a block when the millisecond ends is dropped, so that no timestamp gets older than that.

use core::num::NonZeroU32;
use core::ops::Deref;

use super::{Batch, Generator};
use crate::clock::Hold;
use crate::{Clock, GenerateError, Id};

/// Draws from a shared [`Generator`] in blocks: for a thread that makes many ids.
///
/// Ids of one `BlockGenerator` strictly increase; those of two interleave within a block. A timestamp is at most
/// one millisecond older than the shared generator's would be (with a
/// [`CachedClock`](crate::clock::CachedClock), than that clock's), since a block is only used while the reading under which
/// it was taken holds. Where no reading holds (see [`Clock::holds`]), every id takes a block of its own: then use
/// the shared generator.
///
/// # Examples
///
/// ```
/// use snowmint::generator::BlockGenerator;
/// use snowmint::{Generator, Layout, ManualClock};
/// use std::num::NonZeroU32;
/// let clock = ManualClock::at_unix_ms(1_700_000_000_000);
/// let shared = Generator::builder(Layout::TWITTER).build(&clock)?;
/// let mut mine = BlockGenerator::new(&shared, NonZeroU32::new(64).unwrap());
/// let mut yours = BlockGenerator::new(&shared, NonZeroU32::new(64).unwrap());
/// assert_ne!(mine.try_next_id()?, yours.try_next_id()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It has cache lines of its own: two that lie side by side, in a `Vec` of them, don't slow each other down.
#[derive(Debug)]
#[repr(align(128))]
pub struct BlockGenerator<G> {
    batch: Batch,
    hold: Hold,
    size: NonZeroU32,
    shared: G,
}

impl<C: Clock, G: Deref<Target = Generator<C>>> BlockGenerator<G> {
    /// Draws from `shared` (a reference or an `Arc`) in blocks of up to `size` ids; 64 is a good size.
    pub fn new(shared: G, size: NonZeroU32) -> Self {
        Self { batch: Batch::empty(shared.fork_mark()), hold: Hold::NONE, size, shared }
    }

    /// Returns the next id, or why there is none now. Never waits, never allocates.
    ///
    /// # Errors
    ///
    /// [`GenerateError`]; nothing was used up, and asking again is always safe.
    #[inline]
    pub fn try_next_id(&mut self) -> Result<Id, GenerateError> {
        if self.shared.may_go_on(self.hold)
            && let Some(id) = self.batch.next_unchecked()
        {
            return Ok(id);
        }
        self.next_of_block()
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
                Err(error) => self.shared.waiting.sleep(error)?,
                id => return id,
            }
        }
    }

    #[cold]
    fn next_of_block(&mut self) -> Result<Id, GenerateError> {
        // Dropped first: a child that was forked must not go on with it, whatever follows.
        self.batch = Batch::empty(self.shared.fork_mark());
        (self.batch, self.hold) = self.shared.try_take_held(self.size.get().into())?;
        // What was taken has at least one id.
        self.batch.next_unchecked().ok_or(GenerateError::Ended)
    }
}
