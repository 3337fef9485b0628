//! How many workers a node may hold at once: `2`, or `1..8`.
//! More than eight gain nothing that a layout with more sequence bits would not give for less.

use std::fmt;
use std::str::FromStr;

use snowmint::error::Snippet;

const MAX: u32 = 8;

/// How many leases a node holds: at least `min`, and up to `max` while it needs them.
///
/// # Examples
///
/// ```
/// use snowmint_cluster::Workers;
/// let workers: Workers = "1..8".parse()?;
/// assert_eq!((workers.min(), workers.max()), (1, 8));
/// assert_eq!("2".parse(), Workers::new(2, 2));
/// assert!("8..1".parse::<Workers>().is_err());
/// # Ok::<(), snowmint_cluster::WorkersError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    min: u32,
    max: u32,
}

/// Why a text or two numbers are not a number of workers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text} is no number of workers: give one from 1 to {MAX}, or the least and the most, such as 1..{MAX}"
)]
pub struct WorkersError {
    /// What was given.
    pub text: Snippet,
}

impl Workers {
    /// One, always.
    pub const ONE: Self = Self { min: 1, max: 1 };

    /// From `min` to `max`, both from 1 to 8.
    ///
    /// # Errors
    ///
    /// [`WorkersError`] for numbers out of range, or in the wrong order.
    pub fn new(min: u32, max: u32) -> Result<Self, WorkersError> {
        if min >= 1 && min <= max && max <= MAX {
            Ok(Self { min, max })
        } else {
            Err(WorkersError { text: Snippet::of(&format!("{min}..{max}")) })
        }
    }

    /// How many are held whatever the load.
    pub const fn min(&self) -> u32 {
        self.min
    }

    /// How many are held at most.
    pub const fn max(&self) -> u32 {
        self.max
    }
}

impl FromStr for Workers {
    type Err = WorkersError;

    fn from_str(text: &str) -> Result<Self, WorkersError> {
        let refused = || WorkersError { text: Snippet::of(text) };
        let number = |digits: &str| {
            let plain = digits.bytes().all(|b| b.is_ascii_digit());
            digits.parse().ok().filter(|_| plain).ok_or_else(refused)
        };
        let (min, max) = text.split_once("..").unwrap_or((text, text));
        Self::new(number(min)?, number(max)?).map_err(|_| refused())
    }
}

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max { write!(f, "{}", self.min) } else { write!(f, "{}..{}", self.min, self.max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_read_back_and_others_are_refused() {
        for text in ["1", "8", "1..8", "2..3"] {
            assert_eq!(text.parse::<Workers>().unwrap().to_string(), text);
        }
        assert_eq!("3..3".parse::<Workers>().unwrap().to_string(), "3");
        for bad in
            ["", "0", "9", "0..1", "1..9", "3..2", "1..", "..8", "1..=8", "+1", "-1", "a", "1...8", "1..8..9"]
        {
            let refused = bad.parse::<Workers>().unwrap_err().to_string();
            assert!(refused.contains("1..8"), "{bad}: {refused}");
        }
    }
}
