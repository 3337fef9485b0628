//! Generations: each keeps its own high-water mark, and is entered only above it.
//! On top of the sequence they are the stepped base sequence, on top of the worker the backup worker id; entered
//! without a proof that the old time is passed, both repeat ids in their published form.

use crate::cursor::{Cursor, ENDED};
use crate::field::Field;
use crate::sync::{AtomicU64, Ordering};
use crate::{Layout, Rule};

/// More than sixteen would help only a clock that goes back that often within one lease.
const MAX_BITS: u32 = 4;

/// The marks of a generator's generations, and how a generation is packed into the word of its cursor.
#[derive(Debug)]
pub(super) struct Generations {
    /// 0 where the rule does not use them.
    bits: u32,
    /// For each generation, the first tick after all that were used in it.
    marks: [AtomicU64; 1 << MAX_BITS],
}

impl Generations {
    pub(super) fn new(layout: &Layout, rule: &Rule, first_tick: u64) -> Self {
        let bits = Self::bits_of(layout, rule);
        Self { bits, marks: [(); 1 << MAX_BITS].map(|()| AtomicU64::new(first_tick)) }
    }

    /// How many bits of the cursor's word a rule needs for generations.
    pub(super) fn bits_of(layout: &Layout, rule: &Rule) -> u32 {
        if rule.uses_generations() { layout.width(Field::Generation).min(MAX_BITS) } else { 0 }
    }

    pub(super) const fn in_use(&self) -> bool {
        self.bits > 0
    }

    /// Timestamp, sequence and generation of a layout have 63 bits together at most, so they share one word.
    const fn shift(&self) -> u32 {
        63 - self.bits
    }

    pub(super) const fn pack(&self, generation: u32, cursor: Cursor) -> u64 {
        if self.bits == 0 { cursor } else { (generation as u64) << self.shift() | cursor }
    }

    /// The generation and the cursor of a word; one that was ended stays above [`ENDED`].
    #[inline]
    pub(super) fn unpack(&self, word: u64) -> (u32, Cursor) {
        if self.bits == 0 || word >= ENDED {
            return (0, word);
        }
        // At most `MAX_BITS` bits are left after the shift.
        let generation = u32::try_from(word >> self.shift()).unwrap_or(0);
        (generation, word & ((1 << self.shift()) - 1))
    }

    /// A generation other than `current` whose every id lies before a tick.
    pub(super) fn fitting(&self, current: u32, tick: u64) -> Option<u32> {
        (0..1 << self.bits).find(|&generation| generation != current && self.mark(generation) <= tick)
    }

    fn mark(&self, generation: u32) -> u64 {
        self.marks[generation as usize].load(Ordering::Acquire)
    }

    /// Raises the mark of a generation that is about to be left. To be called before the word is exchanged: whoever
    /// sees the exchange then sees the mark.
    pub(super) fn leave(&self, generation: u32, first_unused_tick: u64) {
        self.marks[generation as usize].fetch_max(first_unused_tick, Ordering::Release);
    }

    /// The first tick after all that were used in any generation that was left.
    pub(super) fn highest_mark(&self) -> u64 {
        let marks = self.marks[..1 << self.bits].iter().map(|mark| mark.load(Ordering::Acquire));
        marks.max().unwrap_or(0)
    }
}
