//! Stripes: each of several independent stores hands out its own share of the numbers, so that none is handed
//! out twice. Flickr's two ticket servers use MySQL's `auto_increment_offset` and `auto_increment_increment`
//! for this.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

use snowmint_store::{Key, Store, StoreCounter};

/// Stripe `index` of `of`: the numbers congruent to `index` modulo `of`. Stripe 1 of 2 is 1, 3, 5 and so on.
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

/// An invalid stripe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StripeError {
    /// The index is 0 or greater than the number of stripes.
    #[error("invalid stripe {index}/{of}: expected 1/{n} to {n}/{n}", n = .of.max(&1))]
    OutOfRange {
        /// The index, from 1.
        index: u32,
        /// The number of stripes.
        of: u32,
    },
    /// The text does not have the form `1/2`.
    #[error("invalid stripe {}: expected a form such as 1/2, the first of two", snowmint::error::Snippet::of(.text))]
    Malformed {
        /// The text.
        text: String,
    },
}

impl Stripe {
    /// All numbers: stripe 1 of 1.
    pub const WHOLE: Self = Self { index: NonZeroU32::MIN, of: NonZeroU32::MIN };

    /// Returns stripe `index` of `of`, counted from 1.
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

    /// Returns the index, from 1.
    pub const fn index(self) -> u32 {
        self.index.get()
    }

    /// Returns the number of stripes.
    pub const fn of(self) -> u32 {
        self.of.get()
    }

    /// Returns the counter at a key of a store that hands out this stripe's numbers, none below `first`.
    ///
    /// Always open a key with the same stripe and `first`: another number of stripes, or a smaller `first`,
    /// would hand out numbers again.
    pub fn counter(self, store: Arc<dyn Store>, key: Key, first: u64) -> StoreCounter {
        StoreCounter::new(store, key, self.first_from(first), NonZeroU64::from(self.of))
    }

    /// Returns the smallest number of the stripe that is at least `first`.
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
    fn an_invalid_stripe_is_rejected_with_the_valid_ones() {
        for (text, words) in
            [("3/2", "1/2 to 2/2"), ("0/2", "1/2 to 2/2"), ("0/0", "1/1 to 1/1"), ("1/0", "1/1 to 1/1")]
        {
            let error = text.parse::<Stripe>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        for text in ["", "1", "1/", "/2", "-1/2", "1/2/3", "a/b", "1/4294967296"] {
            assert!(matches!(text.parse::<Stripe>(), Err(StripeError::Malformed { .. })), "{text}");
        }
        assert_eq!("2/2".parse::<Stripe>().unwrap().to_string(), "2/2");
    }

    #[test]
    fn each_number_is_in_exactly_one_stripe() {
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
