//! Stripes: which numbers one of several independent stores hands out, so that none comes twice.
//! What Flickr's two ticket servers do, and what `auto_increment_offset` and `auto_increment_increment` are for.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

use snowmint_store::{Key, Store, StoreCounter};

/// Stripe `index` of `of`: the numbers that are congruent to `index` modulo `of`.
///
/// # Examples
///
/// ```
/// use snowmint_cluster::segment::Stripe;
/// let stripe: Stripe = "2/3".parse()?;
/// assert_eq!((stripe.index(), stripe.of()), (2, 3));
/// assert!("4/3".parse::<Stripe>().is_err());
/// # Ok::<(), snowmint_cluster::segment::StripeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stripe {
    index: NonZeroU32,
    of: NonZeroU32,
}

/// Why there is no such stripe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StripeError {
    /// There are not that many.
    #[error("there is no stripe {index} of {of}: stripes are counted from 1, so take 1/{of} to {of}/{of}", of = .of.max(&1))]
    OutOfRange {
        /// Which.
        index: u32,
        /// Of how many.
        of: u32,
    },
    /// Not of the form `1/2`.
    #[error("{} is not a stripe: write `1/2` for the first of two", snowmint::error::Snippet::of(.text))]
    Malformed {
        /// What was given.
        text: String,
    },
}

impl Stripe {
    /// All numbers: stripe 1 of 1.
    pub const WHOLE: Self = Self { index: NonZeroU32::MIN, of: NonZeroU32::MIN };

    /// Stripe `index` of `of`, counted from 1.
    ///
    /// # Errors
    ///
    /// [`StripeError::OutOfRange`] unless `1 <= index <= of`.
    pub const fn new(index: u32, of: u32) -> Result<Self, StripeError> {
        match (NonZeroU32::new(index), NonZeroU32::new(of)) {
            (Some(some_index), Some(some_of)) if index <= of => Ok(Self { index: some_index, of: some_of }),
            _ => Err(StripeError::OutOfRange { index, of }),
        }
    }

    /// Which, from 1.
    pub const fn index(self) -> u32 {
        self.index.get()
    }

    /// Of how many.
    pub const fn of(self) -> u32 {
        self.of.get()
    }

    /// The counter at a key of a store that hands out this stripe's numbers, none below `first`.
    ///
    /// A key is bound to its stripe and its `first`: another `of`, or a smaller `first`, would make numbers again.
    pub fn counter(self, store: Arc<dyn Store>, key: Key, first: u64) -> StoreCounter {
        StoreCounter::new(store, key, self.first_from(first), NonZeroU64::from(self.of))
    }

    /// The smallest number of the stripe that is at least `first`.
    fn first_from(self, first: u64) -> u64 {
        let (index, of) = (u64::from(self.index.get()), u64::from(self.of.get()));
        let ahead = (index % of + of - first % of) % of;
        first.saturating_add(ahead)
    }
}

impl fmt::Display for Stripe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl std::str::FromStr for Stripe {
    type Err = StripeError;

    fn from_str(text: &str) -> Result<Self, StripeError> {
        let parts =
            text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        let (index, of) = parts.ok_or_else(|| StripeError::Malformed { text: text.to_owned() })?;
        Self::new(index, of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_stripe_is_refused_with_what_there_is() {
        for (text, told) in
            [("3/2", "1/2 to 2/2"), ("0/2", "1/2 to 2/2"), ("0/0", "1/1 to 1/1"), ("1/0", "1/1")]
        {
            let error = text.parse::<Stripe>().unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
        for text in ["", "1", "1/", "/2", "-1/2", "1/2/3", "a/b", "1/4294967296"] {
            assert!(matches!(text.parse::<Stripe>(), Err(StripeError::Malformed { .. })), "{text}");
        }
        assert_eq!("2/2".parse::<Stripe>().unwrap().to_string(), "2/2");
    }

    #[test]
    fn each_number_is_of_exactly_one_stripe() {
        for of in 1..=5 {
            for first in 0..20 {
                let mut firsts: Vec<u64> =
                    (1..=of).map(|index| Stripe::new(index, of).unwrap().first_from(first)).collect();
                firsts.sort_unstable();
                let expected: Vec<u64> = (first..first + u64::from(of)).collect();
                assert_eq!(firsts, expected, "{of} stripes from {first}");
            }
        }
        assert_eq!(Stripe::new(2, 2).unwrap().first_from(1), 2);
        assert_eq!(Stripe::new(1, 2).unwrap().first_from(1), 1);
    }
}
