//! Generations: each has its own high-water mark, and a generator enters one only above its mark. A
//! generation field above the sequence is the "stepped base sequence" of the literature; above the worker it
//! is the "backup worker id". The published algorithms enter a generation without checking its mark, and
//! therefore repeat ids.

use crate::cursor::{Cursor, ENDED};
use crate::field::Field;
use crate::sync::{AtomicU64, Ordering};
use crate::{Layout, Rule};

/// More than 16 generations would help only if a clock goes back that often within one lease.
const MAX_BITS: u32 = 4;

/// The marks of a generator's generations, and how a generation is packed into the word of its cursor.
#[derive(Debug)]
pub(super) struct Generations {
    /// 0 if the rule does not use generations.
    bits: u32,
    /// For each generation, its first unused tick.
    marks: [AtomicU64; 1 << MAX_BITS],
}

impl Generations {
    pub(super) fn new(layout: &Layout, rule: &Rule, first_tick: u64) -> Self {
        let bits = Self::bits_of(layout, rule);
        Self { bits, marks: [(); 1 << MAX_BITS].map(|()| AtomicU64::new(first_tick)) }
    }

    /// Returns the number of bits that a rule needs for generations in the cursor's word.
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

    /// Returns the generation and the cursor of a word. The word of an ended generator stays above [`ENDED`].
    #[inline]
    pub(super) fn unpack(&self, word: u64) -> (u32, Cursor) {
        if self.bits == 0 || word >= ENDED {
            return (0, word);
        }
        // At most `MAX_BITS` bits are left after the shift.
        let generation = u32::try_from(word >> self.shift()).unwrap_or(0);
        (generation, word & ((1 << self.shift()) - 1))
    }

    /// Returns a generation other than `current` whose ids all lie before a tick.
    pub(super) fn fitting(&self, current: u32, tick: u64) -> Option<u32> {
        (0..1 << self.bits).find(|&generation| generation != current && self.mark(generation) <= tick)
    }

    fn mark(&self, generation: u32) -> u64 {
        self.marks[generation as usize].load(Ordering::Acquire)
    }

    /// Raises the mark of a generation before the generator leaves it. Call it before the exchange of the
    /// word: a thread that sees the new word then sees the mark.
    pub(super) fn leave(&self, generation: u32, first_unused_tick: u64) {
        self.marks[generation as usize].fetch_max(first_unused_tick, Ordering::Release);
    }

    /// Returns the first unused tick over all generations that the generator has left.
    pub(super) fn highest_mark(&self) -> u64 {
        let marks = self.marks[..1 << self.bits].iter().map(|mark| mark.load(Ordering::Acquire));
        marks.max().unwrap_or(0)
    }
}
