//! Where the numbers of a source are reserved: stores and counters of other systems, each opened once.
//! One of several that is not there yet is opened by the draw that needs it.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use snowmint_cluster::namespace::{CounterSource, NamespaceError, Numbers};
use snowmint_cluster::segment::Stripe;
use snowmint_store::{Counter, Key, Mark, OpenError, Segment, Store, StoreError, StoreErrorKind};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::claims::{Bound, Claims};

/// The stores that are not the service's own, by their URLs. The lock is held to find one, never while it is opened: one
/// that hangs must not keep the others from being opened.
#[derive(Debug, Default)]
pub(super) struct Others(Mutex<HashMap<String, Opened>>);

/// A store once it is open.
type Opened = Arc<OnceCell<Arc<dyn Store>>>;

/// Where the numbers of one source are reserved.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Store { store: Arc<dyn Store>, stripe: Stripe },
    Counter(Arc<dyn Counter>),
    Unopened(Unopened),
}

/// A source that is not open yet, and what the others of its namespace give.
#[derive(Clone, Debug)]
pub(super) struct Unopened {
    /// Its place among the sources of its namespace.
    pub(super) nth: usize,
    pub(super) source: CounterSource,
    pub(super) others: Arc<Others>,
    /// `None` for the only source of a namespace.
    pub(super) claims: Option<Arc<Claims>>,
}

/// Why a source is not opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlaceError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Claim(#[from] NamespaceError),
}

impl PlaceError {
    /// Whether waiting may help.
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            Self::Open(OpenError::Store(error)) | Self::Claim(NamespaceError::Store(error)) => {
                error.is_temporary()
            }
            _ => false,
        }
    }
}

impl Unopened {
    /// Opens the source, unless it can give numbers of another source of its namespace.
    pub(super) async fn open(&self) -> Result<Place, PlaceError> {
        let found = self.survey().await?;
        self.open_found(found).await
    }

    /// Which numbers it gives, where another source could give them too. Nothing is claimed yet.
    pub(super) async fn survey(&self) -> Result<Option<Numbers>, PlaceError> {
        // Of stores the stripes say it.
        if !self.source.is_takeover() || self.claims.is_none() {
            return Ok(None);
        }
        let url = self.source.url();
        if let Some(numbers) = snowmint_store::survey(url).await?.first() {
            return Ok(Some(Numbers::of(numbers)));
        }
        // Says what is missing there.
        let counter = snowmint_store::open_counter(url).await?;
        let gone = StoreError::new(StoreErrorKind::Other, "survey", counter.describe(), "it is gone again");
        Err(OpenError::Store(gone).into())
    }

    /// Opens the source that was found to give these numbers. Its connections are made after the survey's, so that they have
    /// no older settings of the server.
    pub(super) async fn open_found(&self, found: Option<Numbers>) -> Result<Place, PlaceError> {
        if !self.source.is_takeover() {
            return Ok(self.others.store(&self.source).await?);
        }
        let numbers = match (&self.claims, found) {
            (Some(claims), Some(found)) => Some((claims, claims.claim(self.nth, found).await?)),
            _ => None,
        };
        let counter = snowmint_store::open_counter(self.source.url()).await?;
        Ok(Place::Counter(match numbers {
            Some((claims, numbers)) => Arc::new(Bound { counter, numbers, claims: Arc::clone(claims) }),
            None => counter,
        }))
    }
}

impl Others {
    /// Opens a store, once.
    async fn store(&self, source: &CounterSource) -> Result<Place, OpenError> {
        let url = source.url();
        let stripe = source.stripe().unwrap_or(Stripe::WHOLE);
        let store = Arc::clone(self.cell(url).get_or_try_init(|| snowmint_store::open(url)).await?);
        Ok(Place::Store { store, stripe })
    }

    fn cell(&self, url: &str) -> Opened {
        // Each change is one insertion: a panic elsewhere leaves the map whole.
        let mut others = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(others.entry(url.to_owned()).or_default())
    }
}

impl Place {
    /// The counter there, at a key where the place is a store.
    pub(super) fn counter(&self, key: &Key) -> Arc<dyn Counter> {
        match self {
            Self::Counter(counter) => Arc::clone(counter),
            // From 1, whatever the start: a counter that is below that is moved on.
            Self::Store { store, stripe } => Arc::new(stripe.counter(Arc::clone(store), key.clone(), 1)),
            Self::Unopened(place) => {
                let (opened, opening) = (OnceCell::new(), tokio::sync::Mutex::default());
                Arc::new(LateCounter { place: place.clone(), key: key.clone(), opened, opening })
            }
        }
    }
}

/// A counter that was not there when its namespace was opened.
#[derive(Debug)]
struct LateCounter {
    place: Unopened,
    key: Key,
    opened: OnceCell<Arc<dyn Counter>>,
    /// At most one that opens it.
    opening: tokio::sync::Mutex<JoinSet<Result<Place, PlaceError>>>,
}

impl LateCounter {
    /// Opens it by a task, which goes on where the call that asked is given up: that has less time than a store may need to
    /// keep what the source gives.
    async fn open(&self) -> Result<Arc<dyn Counter>, StoreError> {
        let mut opening = self.opening.lock().await;
        if opening.is_empty() {
            let place = self.place.clone();
            opening.spawn(async move { place.open().await }.in_current_span());
        }
        let opened = match opening.join_next().await {
            Some(Ok(opened)) => opened,
            ended => {
                let cause = format!("opening it ended early: {ended:?}");
                return Err(StoreError::new(StoreErrorKind::Unavailable, "open", self.describe(), cause));
            }
        };
        match opened {
            Ok(place) => Ok(place.counter(&self.key)),
            Err(
                PlaceError::Open(OpenError::Store(error)) | PlaceError::Claim(NamespaceError::Store(error)),
            ) => Err(error),
            Err(error) => {
                Err(StoreError::new(StoreErrorKind::Other, "open", self.place.source.to_string(), error))
            }
        }
    }
}

#[async_trait]
impl Counter for LateCounter {
    async fn reserve(&self, count: NonZeroU64) -> Result<Segment, StoreError> {
        let was_opened = self.opened.initialized();
        let counter = self.opened.get_or_try_init(|| self.open()).await?;
        if !was_opened && counter.may_lose() > Duration::ZERO {
            // Whoever asked did not know yet that these numbers have to settle.
            let cause =
                "the source was opened just now and may lose reservations; the next call waits for them";
            return Err(StoreError::new(StoreErrorKind::Unavailable, "reserve", self.describe(), cause));
        }
        counter.reserve(count).await
    }

    fn may_lose(&self) -> Duration {
        self.opened.get().map_or(Duration::ZERO, |counter| counter.may_lose())
    }

    async fn reserve_marked(&self, count: NonZeroU64) -> Result<(Segment, Mark), StoreError> {
        self.opened.get_or_try_init(|| self.open()).await?.reserve_marked(count).await
    }

    async fn holds(&self, mark: Mark) -> Result<bool, StoreError> {
        self.opened.get_or_try_init(|| self.open()).await?.holds(mark).await
    }

    async fn raise_above(&self, number: u64) -> Result<bool, StoreError> {
        self.opened.get_or_try_init(|| self.open()).await?.raise_above(number).await
    }

    async fn give_back(&self, unused: Segment) -> Result<bool, StoreError> {
        match self.opened.get() {
            Some(counter) => counter.give_back(unused).await,
            None => Ok(false),
        }
    }

    fn server(&self) -> Option<String> {
        self.opened.get().and_then(|counter| counter.server())
    }

    fn describe(&self) -> String {
        self.opened.get().map_or_else(|| self.place.source.to_string(), |counter| counter.describe())
    }
}
