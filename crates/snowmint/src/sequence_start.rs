//! Where the sequence of a new tick starts. If every tick starts at 0, ids at a low rate are all even, and
//! most go to one shard.

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

use crate::error::Snippet;
use crate::random;

/// Where the sequence of a new tick starts.
///
/// | start | text | ids at a low rate, modulo n | order inside a tick | ids a tick |
/// |---|---|---|---|---|
/// | `Zero` | `zero` | skewed: the sequence is mostly 0 | increasing | all |
/// | `Random` | `random`, `random(100)` | evenly spread if n is small compared with the bound | increasing until the sequence wraps | all |
/// | `Rolling` | `rolling` | evenly spread for n up to half of the sequence | increasing | at least about half after an idle tick, all under load |
///
/// `Rolling` spreads ids evenly for a modulus n up to half of the sequence's values. For a larger n some
/// remainders never occur: a tick starts in the lower half of the sequence or a few values above. For ids
/// modulo 4096 under `twitter`, about half of the remainders stay empty while the rate is low. Use `Random`
/// for such a modulus.
///
/// The ids are also evenly spread for each of several consumers that take turns: none of them gets only even
/// ids, for instance. The start is a function of the tick and the worker. It needs no source of randomness
/// and is no secret.
///
/// # Source
///
/// Leaf starts a new millisecond at `random(100)`; `CosId` continues from the last value. `ShardingSphere`
/// issue 31901 describes what consumers in turn get from an alternating start.
///
/// # Examples
///
/// ```
/// use snowmint::{Generator, Layout, ManualClock, Start, WorkerId};
/// let clock = ManualClock::at_unix_ms(1_700_000_000_000);
/// let builder = Generator::builder(Layout::TWITTER).worker(WorkerId(0)).start("random(100)".parse()?);
/// let generator = builder.build(&clock)?;
/// assert!(generator.try_next_id()?.get() % 4096 < 100);
/// assert_eq!(Start::RANDOM.to_string(), "random");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Start {
    /// At 0, like Twitter Snowflake.
    #[default]
    Zero,
    /// At a value below `bound` that looks random and differs from tick to tick. The sequence wraps within
    /// its tick, so no id is lost. A bound as large as the sequence allows any value.
    Random {
        /// The exclusive upper bound.
        bound: NonZeroU32,
    },
    /// At 0 to 7 values after the end of the last tick's sequence if that is in the lower half, otherwise at
    /// one of the first 8 values. A sequence of less than 6 bits skips none, and consumers in turn may get
    /// uneven shares. The first tick of a generator starts anywhere in the lower half.
    Rolling,
}

impl Start {
    /// At any value of the sequence.
    pub const RANDOM: Self = Self::Random { bound: NonZeroU32::MAX };
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Zero => f.write_str("zero"),
            Self::RANDOM => f.write_str("random"),
            Self::Random { bound } => write!(f, "random({bound})"),
            Self::Rolling => f.write_str("rolling"),
        }
    }
}

impl FromStr for Start {
    type Err = StartError;

    fn from_str(text: &str) -> Result<Self, StartError> {
        let bound = || text.strip_prefix("random(")?.strip_suffix(')');
        match text {
            "zero" => Ok(Self::Zero),
            "random" => Ok(Self::RANDOM),
            "rolling" => Ok(Self::Rolling),
            _ => bound()
                .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|digits| digits.parse().ok())
                .map(|bound| Self::Random { bound })
                .ok_or(StartError { text: Snippet::of(text) }),
        }
    }
}

/// A text is not a valid start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartError {
    /// The text.
    pub text: Snippet,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "invalid sequence start {}: expected zero, random, random(N) with N from 1 to {}, or rolling",
            self.text,
            u32::MAX
        )
    }
}

impl core::error::Error for StartError {}

/// Returns the random start of a tick: a pure function, so that an id stays a pure function of its cursor.
pub(crate) const fn random_start(tick: u64, bound: u32, seed: u64) -> u64 {
    ((random::at(tick, seed) >> 32) * bound as u64) >> 32
}

/// A rolling start skips fewer values than this. Without a varying gap, two consumers in turn would get the
/// even and the odd ids.
const GAPS: u32 = 8;

/// Returns the first cursor of a new tick that rolls on from the next unused one.
pub(crate) const fn rolled(fresh: u64, next: u64, sequence_bits: u32) -> u64 {
    let mask = (1 << sequence_bits) - 1;
    let (tick, half) = (fresh >> sequence_bits, mask / 2);
    if next & mask == 0 {
        // No sequence to roll on from: a new generator, maybe one of many that make one id each, as processes
        // do.
        #[allow(clippy::cast_possible_truncation, reason = "below `u32::MAX`")]
        let starts = if half < u32::MAX as u64 { half as u32 + 1 } else { u32::MAX };
        return fresh | random_start(tick, starts, 0);
    }
    let from = if next & mask <= half { next & mask } else { 0 };
    // With few sequence bits, the gaps would take most of a tick.
    fresh | if GAPS as u64 <= mask / 4 { from + random_start(tick, GAPS, 0) } else { from }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_starts_are_those_of_split_mix_64() {
        // Its first outputs for seed 0, from Sebastiano Vigna's `splitmix64.c`: their upper half, halved by
        // the bound.
        for (tick, output) in [(1, 0xe220_a839_u64), (2, 0x6e78_9e6a), (3, 0x06c4_5d18)] {
            assert_eq!(random_start(tick, 1 << 31, 0), output >> 1);
        }
        assert_ne!(random_start(1, 4096, 0), random_start(1, 4096, 1), "two generators differ");
    }

    #[test]
    fn rolling_goes_on_in_the_lower_half_and_begins_anew_in_the_upper() {
        let mut gaps = [false; 8];
        for tick in 1..100 {
            let rolled_from = |sequence: u64| rolled(tick << 12, 3 << 12 | sequence, 12) - (tick << 12);
            let gap = rolled_from(2048);
            gaps[usize::try_from(gap).unwrap()] = true;
            assert_eq!((rolled_from(7), rolled_from(2047), rolled_from(4095)), (7 + gap, 2047 + gap, gap));
        }
        assert_eq!(gaps, [true; 8]);
        let bits_of_first_output = |bits: u32| 1 << 12 | 0xe220_a839 >> (32 - bits);
        assert_eq!(rolled(1 << 12, 2048, 12), bits_of_first_output(3), "one of 8 gaps");
        assert_eq!(
            rolled(1 << 12, 0, 12),
            bits_of_first_output(11),
            "without a last sequence, one of 2,048 starts"
        );
        for bits in [0, 1, 2, 40, 62] {
            let first = rolled(1 << bits, 0, bits);
            assert!((1 << bits..(1 << bits) + (1 << bits) / 2 + 1).contains(&first), "{bits}: {first}");
        }
        for sequence in 1..8 {
            let goes_on = if sequence <= 3 { sequence } else { 0 };
            assert_eq!(rolled(5 << 3, 3 << 3 | sequence, 3), 5 << 3 | goes_on, "no gaps in three bits");
        }
        assert!(
            (0..64).all(|sequence| rolled(5 << 6, 3 << 6 | sequence, 6) >> 6 == 5),
            "it stays in its tick"
        );
    }

    #[test]
    fn the_text_form_reads_back_and_nothing_else_is_read() {
        for text in ["zero", "random", "random(100)", "random(1)", "rolling"] {
            assert_eq!(text.parse::<Start>().unwrap().to_string(), text);
        }
        assert_eq!("random(4294967295)".parse(), Ok(Start::RANDOM));
        for bad in
            ["", "Zero", "random()", "random(0)", "random(4294967296)", "random(+1)", "random(1", "random 1"]
        {
            let error = bad.parse::<Start>().unwrap_err();
            assert!(error.to_string().contains("random(N)"), "{bad}: {error}");
        }
    }
}
