//! Repeatable randomness: one seed decides everything that a test leaves to chance.

/// A generator of random numbers that is good enough for choices.
///
/// # Source
///
/// `SplitMix64`, Guy Steele, Doug Lea, Christine Flood: "Fast splittable pseudorandom number generators", 2014.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice that always fall the same way for one seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed in `$SNOWMINT_SEED`, else a fresh one. Print it.
    ///
    /// # Panics
    ///
    /// If the variable is no number.
    pub fn seed() -> u64 {
        std::env::var("SNOWMINT_SEED").map_or_else(
            |_| crate::time::unix_ms() ^ (u64::from(std::process::id()) << 44),
            |text| text.parse().expect("SNOWMINT_SEED is a number"),
        )
    }

    /// Any number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `low..=high`.
    pub const fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// A number in `0.0..1.0`.
    ///
    /// # Panics
    ///
    /// Never: 16 bits fit.
    pub fn fraction(&mut self) -> f64 {
        f64::from(u16::try_from(self.next() >> 48).expect("16 bits")) / 65_536.0
    }

    /// An index below `len`, which must not be 0.
    ///
    /// # Panics
    ///
    /// If `len` is 0.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.next() % len as u64).expect("below a usize")
    }
}
