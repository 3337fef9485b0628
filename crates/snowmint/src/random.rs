//! Pseudo-random numbers for the crates of this workspace: for choices that no promise depends on. Not part
//! of the public interface.
//!
//! # Source
//!
//! `SplitMix64`: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A sequence of random numbers derived from a seed. It is fast, and no secret may depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Returns the sequence of a seed.
    #[must_use]
    pub const fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        mix(self.0)
    }

    /// Returns the next number below `bound`; 0 for a bound of 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        let number = self.draw();
        if bound == 0 { 0 } else { number % bound }
    }
}

/// Returns the number at a position of a sequence: of the seed 0, the one that [`draw`](SplitMix64::draw)
/// returns at the `index`-th call.
pub(crate) const fn at(index: u64, seed: u64) -> u64 {
    mix(index.wrapping_mul(GOLDEN_GAMMA) ^ seed)
}

const fn mix(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference_implementation() {
        // The first outputs for seed 0 of Sebastiano Vigna's `splitmix64.c`: their upper half.
        let mut random = SplitMix64::of(0);
        for (index, upper) in [(1, 0xe220_a839), (2, 0x6e78_9e6a), (3, 0x06c4_5d18)] {
            assert_eq!(random.clone().below(u64::MAX) >> 32, upper);
            assert_eq!(random.draw() >> 32, upper);
            assert_eq!(at(index, 0) >> 32, upper);
        }
        assert_eq!((random.below(0), random.below(1)), (0, 0));
    }
}
