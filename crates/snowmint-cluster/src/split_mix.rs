//! Repeatable random numbers for choices that no promise depends on: what to try first, and how long to wait.
//! The lease and segment protocols share them; tags and keys take theirs from the operating system.

/// A sequence of random numbers that follows from a seed.
///
/// # Source
///
/// `SplitMix64`: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    pub(crate) const fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number below `bound`; 0 for a bound of 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference_implementation() {
        // The first outputs for seed 0 of Sebastiano Vigna's `splitmix64.c`: their upper half.
        let mut random = SplitMix64::of(0);
        for upper in [0xe220_a839, 0x6e78_9e6a, 0x06c4_5d18] {
            assert_eq!(random.below(u64::MAX) >> 32, upper);
        }
    }
}
