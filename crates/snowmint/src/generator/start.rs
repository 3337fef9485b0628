//! Where the sequence of a fresh tick starts. A tick that always starts at 0 makes only even ids when ids are
//! rare, and sends most of them to one shard.

use crate::cursor::Cursor;

/// Where the sequence of a fresh tick starts.
///
/// | start | rare ids, modulo n | order inside a tick | ids a tick |
/// |---|---|---|---|
/// | `Zero` | skewed: the sequence is mostly 0 | increasing | all |
/// | `Random` | even | increasing until the sequence wraps | all |
/// | `Rolling` | even, also for consumers that draw in turn | increasing | at least half in a tick that follows an idle one, all under load |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// At 0, as Twitter's.
    #[default]
    Zero,
    /// At a random value below `bound`, another one in each tick; the sequence wraps inside its tick, so that none
    /// is lost. A bound of at least the sequences of a tick means any of them.
    Random {
        /// The first value that is not taken.
        bound: u32,
        /// Makes the values of two generators differ: take it from the system's randomness.
        seed: u64,
    },
    /// Where the sequence of the tick before stopped, while that is in the lower half.
    Rolling,
}

/// The random start of one tick: a pure function, so that an id stays a pure function of its cursor.
///
/// # Source
///
/// The finalizer of `SplitMix64`: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
pub(crate) const fn random_start(tick: u64, bound: u32, seed: u64) -> u64 {
    let mut z = tick.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (((z ^ (z >> 31)) >> 32) * bound as u64) >> 32
}

/// The first cursor of a fresh tick that rolls on from the last one used.
pub(crate) const fn rolled(fresh: Cursor, last: Cursor, sequence_mask: u64) -> Cursor {
    let next = last & sequence_mask;
    if next <= sequence_mask / 2 { fresh | next } else { fresh }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_starts_are_those_of_split_mix_64() {
        // Its first outputs for seed 0, from Sebastiano Vigna's `splitmix64.c`: their upper half, halved by the bound.
        for (tick, output) in [(1, 0xe220_a839_u64), (2, 0x6e78_9e6a), (3, 0x06c4_5d18)] {
            assert_eq!(random_start(tick, 1 << 31, 0), output >> 1);
        }
        assert_ne!(random_start(1, 4096, 0), random_start(1, 4096, 1), "two generators differ");
    }

    #[test]
    fn rolling_goes_on_in_the_lower_half_and_begins_anew_in_the_upper() {
        let rolled_from = |sequence: u64| rolled(5 << 4, 3 << 4 | sequence, 15);
        assert_eq!((rolled_from(0), rolled_from(7), rolled_from(8)), (5 << 4, 5 << 4 | 7, 5 << 4));
    }
}
