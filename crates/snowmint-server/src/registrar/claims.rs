//! Which numbers each source of one namespace gives, as found when it was opened: two that overlap are not used
//! together, and one that leaves its numbers later is not used any more.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use snowmint_store::{Counter, Mark, Segment, StoreError, StoreErrorKind, Surveyed};

/// The numbers of the sources of one namespace that were opened.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<Vec<(String, Surveyed)>>);

/// Two sources that can give one number.
#[derive(Debug, thiserror::Error)]
#[error(
    "sources {one} (numbers that are {one_remainder} modulo {one_delta}) and {other} ({other_remainder} modulo {other_delta}) \
     overlap, so numbers would be given twice: give them numbers of their own (remainder and delta of TinyID, \
     auto_increment_offset and auto_increment_increment of ticket servers), or take one of them out"
)]
pub(super) struct Overlap {
    one: String,
    one_remainder: u64,
    one_delta: NonZeroU64,
    other: String,
    other_remainder: u64,
    other_delta: NonZeroU64,
}

impl Claims {
    /// Claims the numbers of a source, unless another has claimed some of them.
    pub(super) fn claim(&self, source: &str, numbers: &Surveyed) -> Result<(), Overlap> {
        // Each change is one insertion or removal: a panic elsewhere leaves the list whole.
        let mut claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((other, theirs)) =
            claims.iter().find(|(it, theirs)| it != source && theirs.overlaps(numbers))
        {
            return Err(Overlap {
                one: other.clone(),
                one_remainder: theirs.remainder,
                one_delta: theirs.delta,
                other: source.to_owned(),
                other_remainder: numbers.remainder,
                other_delta: numbers.delta,
            });
        }
        claims.retain(|(it, _)| it != source);
        claims.push((source.to_owned(), numbers.clone()));
        Ok(())
    }
}

/// A counter that must keep to the numbers it gave when it was opened: its server's settings may change later.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) counter: Arc<dyn Counter>,
    pub(super) numbers: Surveyed,
}

impl Bound {
    fn check(&self, segment: Segment) -> Result<Segment, StoreError> {
        if self.numbers.holds(segment) {
            return Ok(segment);
        }
        let Surveyed { remainder, delta, .. } = self.numbers;
        let found = format!(
            "it gave {} in steps of {}, and only numbers that are {remainder} modulo {delta} when it was opened: another \
             source may give the others; set its remainder and delta, or auto_increment_offset and \
             auto_increment_increment, back",
            segment.first(),
            segment.step()
        );
        Err(StoreError::new(StoreErrorKind::Corrupt, "reserve", self.describe(), found))
    }
}

#[async_trait]
impl Counter for Bound {
    async fn reserve(&self, count: NonZeroU64) -> Result<Segment, StoreError> {
        self.check(self.counter.reserve(count).await?)
    }

    fn may_lose(&self) -> Duration {
        self.counter.may_lose()
    }

    async fn reserve_marked(&self, count: NonZeroU64) -> Result<(Segment, Mark), StoreError> {
        let (segment, mark) = self.counter.reserve_marked(count).await?;
        Ok((self.check(segment)?, mark))
    }

    async fn holds(&self, mark: Mark) -> Result<bool, StoreError> {
        self.counter.holds(mark).await
    }

    async fn raise_above(&self, number: u64) -> Result<bool, StoreError> {
        self.counter.raise_above(number).await
    }

    async fn give_back(&self, unused: Segment) -> Result<bool, StoreError> {
        self.counter.give_back(unused).await
    }

    fn suggested_count(&self) -> Option<NonZeroU64> {
        self.counter.suggested_count()
    }

    fn describe(&self) -> String {
        self.counter.describe()
    }
}
