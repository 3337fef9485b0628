//! A thread's own blocks of a shared generator: one atomic step for many ids.
//! When the millisecond ends, the rest of a block is dropped, so that no timestamp gets older than that.

use core::num::NonZeroU32;
use core::ops::Deref;

use super::{Batch, Generator};
use crate::clock::Hold;
use crate::{Clock, GenerateError, Id};

/// Takes ids from a shared [`Generator`] in blocks: for a thread that makes many ids.
///
/// The ids of one `BlockGenerator` strictly increase; those of two interleave by blocks. A block is used only
/// while the clock reading under which it was taken holds, so a timestamp is at most 1 ms older than the
/// shared generator's would be (with a [`CachedClock`](crate::clock::CachedClock), than that clock's). If the
/// clock's readings never hold (see [`Clock::holds`]), every id takes a block of its own: use the shared
/// generator instead.
///
/// # Examples
///
/// ```
/// use snowmint::generator::BlockGenerator;
/// use snowmint::{Generator, Layout, ManualClock, WorkerId};
/// use std::num::NonZeroU32;
/// let clock = ManualClock::at_unix_ms(1_700_000_000_000);
/// let shared = Generator::builder(Layout::TWITTER).worker(WorkerId(0)).build(&clock)?;
/// let mut mine = BlockGenerator::new(&shared, NonZeroU32::new(64).unwrap());
/// let mut yours = BlockGenerator::new(&shared, NonZeroU32::new(64).unwrap());
/// assert_ne!(mine.try_next_id()?, yours.try_next_id()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It has cache lines of its own, so neighbours in a `Vec` do not slow each other down.
#[derive(Debug)]
#[repr(align(128))]
pub struct BlockGenerator<G> {
    batch: Batch,
    hold: Hold,
    size: NonZeroU32,
    shared: G,
}

impl<C: Clock, G: Deref<Target = Generator<C>>> BlockGenerator<G> {
    /// Takes blocks of up to `size` ids from `shared`, a reference or an `Arc`; 64 is a good size.
    pub fn new(shared: G, size: NonZeroU32) -> Self {
        Self { batch: Batch::empty(shared.fork_mark()), hold: Hold::NONE, size, shared }
    }

    /// Returns the next id, or the reason why there is none now. Never waits and never allocates.
    ///
    /// # Errors
    ///
    /// [`GenerateError`]. A failed call uses up no id, and a retry is always safe.
    #[inline]
    pub fn try_next_id(&mut self) -> Result<Id, GenerateError> {
        if self.shared.may_go_on(self.hold)
            && let Some(id) = self.batch.next_unchecked()
        {
            return Ok(id);
        }
        self.next_of_block()
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
                Err(error) => self.shared.waiting.sleep(error)?,
                id => return id,
            }
        }
    }

    #[cold]
    fn next_of_block(&mut self) -> Result<Id, GenerateError> {
        // Dropped first, because a forked child must never continue with it.
        self.batch = Batch::empty(self.shared.fork_mark());
        (self.batch, self.hold) = self.shared.try_take_held(self.size.get().into())?;
        // A block has at least one id.
        self.batch.next_unchecked().ok_or(GenerateError::Ended)
    }
}
