//! Which numbers each source of one namespace gives, as the store remembers them: two that overlap are not used together,
//! whether they are there at the same time or not, and one that leaves its numbers is not used any more.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use snowmint_cluster::NamespaceName;
use snowmint_cluster::namespace::registry::{self, Claimed, Recorded};
use snowmint_cluster::namespace::{Definition, NamespaceError, Numbers};
use snowmint_store::{Counter, Mark, Segment, Store, StoreError, StoreErrorKind};

/// The numbers of the sources of one namespace that this node uses.
#[derive(Debug)]
pub(super) struct Claims {
    store: Arc<dyn Store>,
    name: NamespaceName,
    wanted: Definition,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// By the place of the source in the definition.
    numbers: BTreeMap<usize, Numbers>,
    /// Why no source is used any more.
    refused: Option<String>,
}

impl Claims {
    pub(super) fn new(store: Arc<dyn Store>, name: NamespaceName, wanted: Definition) -> Self {
        Self { store, name, wanted, held: Mutex::default() }
    }

    /// Claims the numbers of a source: what it may give, once every node can know it.
    pub(super) async fn claim(&self, nth: usize, found: Numbers) -> Result<Numbers, NamespaceError> {
        Ok(self.record(nth, found).await?.numbers)
    }

    async fn record(&self, nth: usize, found: Numbers) -> Result<Claimed, NamespaceError> {
        let claimed = registry::claim_numbers(&*self.store, &self.name, &self.wanted, nth, found).await?;
        self.held().numbers.insert(nth, claimed.numbers);
        Ok(claimed)
    }

    /// Whether a record remembers all that this node claimed, and nothing that overlaps it. It does not where the store lost
    /// it.
    pub(super) fn are_in(&self, recorded: &[Option<Numbers>]) -> bool {
        let overlaps = |nth: usize, numbers: Numbers| {
            let others = recorded.iter().enumerate().filter(|(at, _)| *at != nth);
            others.filter_map(|(_, it)| *it).any(|theirs| theirs.overlaps(numbers))
        };
        self.held()
            .numbers
            .iter()
            .all(|(nth, numbers)| recorded.get(*nth) == Some(&Some(*numbers)) && !overlaps(*nth, *numbers))
    }

    /// Claims again what this node uses. Where another has claimed numbers of it meanwhile, none of the sources is used
    /// any more.
    pub(super) async fn claim_again(&self) {
        let numbers = self.held().numbers.clone();
        for (nth, numbers) in numbers {
            match self.record(nth, numbers).await {
                // The record that was looked at was older than the claim.
                Ok(Claimed { was: Recorded::Before, .. }) => {}
                Ok(Claimed { was: Recorded::Now, .. }) => {
                    tracing::warn!(nth, %numbers, "the store lost which numbers a source gives; written again");
                }
                Err(error @ NamespaceError::Numbers { .. }) => {
                    tracing::error!(%error, "the sources of this namespace are not used any more");
                    self.held().refused = Some(error.to_string());
                }
                // Tried again after the next look into the store.
                Err(error) => tracing::debug!(%error, "the numbers of a source were not claimed again"),
            }
        }
    }

    /// Why none of the sources is used any more.
    pub(super) fn refused(&self) -> Option<String> {
        self.held().refused.clone()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Each change is one insertion: a panic elsewhere leaves it whole.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A counter that must keep to the numbers it gave when it was first used: its server's settings may change later.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) counter: Arc<dyn Counter>,
    pub(super) numbers: Numbers,
    pub(super) claims: Arc<Claims>,
}

impl Bound {
    fn check(&self, segment: Segment) -> Result<Segment, StoreError> {
        let found = if let Some(why) = self.claims.refused() {
            why
        } else if self.numbers.surveyed().holds(segment) {
            return Ok(segment);
        } else {
            format!(
                "it gave {} in steps of {}, and only numbers that are {} when it was first used: another source may give the \
                 others; set its remainder and delta, or auto_increment_offset and auto_increment_increment, back",
                segment.first(),
                segment.step(),
                self.numbers
            )
        };
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

    fn server(&self) -> Option<String> {
        self.counter.server()
    }

    fn describe(&self) -> String {
        self.counter.describe()
    }
}
