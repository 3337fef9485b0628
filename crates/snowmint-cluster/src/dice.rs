//! Repeatable randomness for choices on which no promise rests: who is asked first, and how long to wait.

/// A sequence of numbers that one seed decides.
///
/// # Source
///
/// `SplitMix64`, Guy Steele, Doug Lea, Christine Flood: "Fast splittable pseudorandom number generators", 2014.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// Below `bound`; 0 for a bound of 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}
