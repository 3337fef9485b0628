//! Which numbers a source gives: those that are one remainder modulo the number of sources that share them.
//! A record remembers it for each source of its namespace, so that two are compared even if they are never there at once.

use std::fmt;
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};
use snowmint_store::Surveyed;

/// The numbers that are `remainder` modulo `delta`; 0 modulo 1 is every number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, try_from = "Unchecked")]
pub struct Numbers {
    remainder: u64,
    delta: NonZeroU64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    remainder: u64,
    delta: NonZeroU64,
}

impl TryFrom<Unchecked> for Numbers {
    type Error = String;

    fn try_from(Unchecked { remainder, delta }: Unchecked) -> Result<Self, String> {
        if remainder < delta.get() {
            return Ok(Self { remainder, delta });
        }
        Err(format!("invalid remainder {remainder}: expected 0 to {} for delta {delta}", delta.get() - 1))
    }
}

/// Why a source is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NumbersError {
    /// Another source of the namespace gives some of its numbers.
    #[error(
        "sources {one} (numbers that are {one_numbers}) and {other} ({other_numbers}) overlap, so numbers would be given twice: \
         give them numbers of their own (remainder and delta of TinyID, auto_increment_offset and auto_increment_increment of \
         ticket servers), or take one of them out"
    )]
    Overlap {
        /// The source that came first.
        one: String,
        /// What it gives.
        one_numbers: Numbers,
        /// The source that is not used.
        other: String,
        /// What it gives.
        other_numbers: Numbers,
    },
    /// It gives other numbers than at first.
    #[error(
        "source {source_text} gives numbers that are {found}, and gave those that are {recorded} when it was first used: another \
         source may give the others; set its remainder and delta, or auto_increment_offset and auto_increment_increment, back"
    )]
    Changed {
        /// The source.
        source_text: String,
        /// What the record says.
        recorded: Numbers,
        /// What it gives now.
        found: Numbers,
    },
}

impl Numbers {
    /// What was found at a source.
    pub const fn of(found: &Surveyed) -> Self {
        Self { remainder: found.remainder % found.delta.get(), delta: found.delta }
    }

    /// The same as a survey tells it.
    pub const fn surveyed(self) -> Surveyed {
        Surveyed::numbers(self.remainder, self.delta)
    }

    /// Whether some number is in both.
    pub fn overlaps(self, other: Self) -> bool {
        self.surveyed().overlaps(&other.surveyed())
    }

    /// Whether all of the other are among these.
    pub const fn contains(self, other: Self) -> bool {
        other.delta.get().is_multiple_of(self.delta.get())
            && other.remainder % self.delta.get() == self.remainder
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} modulo {}", self.remainder, self.delta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(remainder: u64, delta: u64) -> Numbers {
        Numbers::of(&Surveyed::numbers(remainder, NonZeroU64::new(delta).unwrap()))
    }

    /// Goal: what is remembered of a source decides as its numbers would. Method: all small sets, number by number.
    #[test]
    fn sets_are_compared_by_their_numbers() {
        let all = || (1..=6_u64).flat_map(|delta| (0..delta).map(move |remainder| (remainder, delta)));
        for ((a, by_a), (b, by_b)) in all().flat_map(|one| all().map(move |other| (one, other))) {
            let mut in_b = (0..120_u64).filter(|it| it % by_b == b);
            let in_a = |it: u64| it % by_a == a;
            assert_eq!(of(a, by_a).overlaps(of(b, by_b)), in_b.clone().any(in_a), "{a}/{by_a} {b}/{by_b}");
            assert_eq!(of(a, by_a).contains(of(b, by_b)), in_b.all(in_a), "{a}/{by_a} {b}/{by_b}");
        }
    }

    #[test]
    fn they_read_back_and_no_other_is_read() {
        let text = serde_json::to_string(&of(1, 2)).unwrap();
        assert_eq!(text, r#"{"remainder":1,"delta":2}"#);
        assert_eq!(serde_json::from_str::<Numbers>(&text).unwrap(), of(1, 2));
        for bad in [r#"{"remainder":2,"delta":2}"#, r#"{"remainder":0,"delta":0}"#, r#"{"remainder":0}"#] {
            assert!(serde_json::from_str::<Numbers>(bad).is_err(), "{bad}");
        }
    }
}
