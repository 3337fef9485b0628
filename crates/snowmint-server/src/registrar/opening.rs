//! From a definition to what makes its ids: stores and counters are opened, segments and generators started.

use std::sync::Arc;
use std::time::Duration;

use snowmint_cluster::namespace::{NumberSource, SegmentScheme};
use snowmint_cluster::segment::{CountersOf, Period};
use snowmint_cluster::{NamespaceName, Segments};
use snowmint_store::{Counter, Key, OpenError, Store};
use tracing::Instrument as _;

use super::claims::Claims;
use super::places::{Others, Place, PlaceError, Unopened};
use crate::settings::{ServiceClock, SharedClock};

/// How long the other stores of a namespace may take to be opened before it is served without those that have not
/// answered.
const OPEN_WITHIN: Duration = Duration::from_secs(5);

/// Opens stores and counters, each store once.
#[derive(Debug)]
pub(super) struct Opening {
    store: Arc<dyn Store>,
    clock: ServiceClock,
    others: Arc<Others>,
}

impl Opening {
    pub(super) fn new(store: Arc<dyn Store>, clock: SharedClock) -> Self {
        Self { store, clock: ServiceClock(clock), others: Arc::default() }
    }

    /// Starts the segments of a namespace, whose name stands in every line that they log; the reason where that
    /// cannot be now.
    pub(super) async fn segments(
        &self,
        name: &NamespaceName,
        scheme: &SegmentScheme,
    ) -> Result<Segments, String> {
        // Of the highest level: a span that a filter leaves out names nothing in the lines that stay.
        self.start(name, scheme).instrument(tracing::error_span!("numbers", namespace = %name)).await
    }

    async fn start(&self, name: &NamespaceName, scheme: &SegmentScheme) -> Result<Segments, String> {
        // Also of a record that was written before this was checked.
        scheme.check_sources(self.store.reach()).map_err(|error| error.to_string())?;
        let places = self.places(&scheme.source).await?;
        let counters = Counters { places, base: scheme.counter_key(name) };
        let clock = self.clock.clone();
        let started = match scheme.reset {
            None => Segments::start(counters.at(None)?, scheme.config(), clock),
            Some(reset) => {
                // The keys of all periods are as long.
                counters.at(Some(Period::at(reset, 0)))?;
                let of: CountersOf = Arc::new(move |period| counters.at(Some(period)).unwrap_or_default());
                Segments::start_anew_each(reset, of, scheme.config(), clock)
            }
        };
        started.map_err(|error| error.to_string())
    }

    async fn places(&self, source: &NumberSource) -> Result<Vec<Place>, String> {
        let sources = match source {
            NumberSource::Own(stripe) => {
                return Ok(vec![Place::Store { store: Arc::clone(&self.store), stripe: *stripe }]);
            }
            NumberSource::Other(sources) => sources,
        };
        let within = OPEN_WITHIN / u32::try_from(sources.len()).unwrap_or(u32::MAX).max(1);
        let mut places = Vec::with_capacity(sources.len());
        let mut errors = Vec::new();
        let claims = (sources.len() > 1).then(Arc::<Claims>::default);
        for source in sources {
            let unopened =
                Unopened { source: source.clone(), others: Arc::clone(&self.others), claims: claims.clone() };
            let error = match tokio::time::timeout(within, unopened.open()).await {
                Ok(Ok(place)) => {
                    places.push(place);
                    continue;
                }
                Ok(Err(PlaceError::Open(OpenError::Store(error)))) => error.to_string(),
                // A mistake in the settings, here or there, which no waiting mends.
                Ok(Err(error)) => return Err(error.to_string()),
                Err(_) => format!("{} did not answer within {within:?}; it is tried again", unopened.source),
            };
            errors.push(error);
            places.push(Place::Unopened(unopened));
        }
        if errors.len() == places.len() {
            return Err(errors.swap_remove(0));
        }
        // One of several that is down must not keep the others from serving.
        for error in errors {
            tracing::warn!(%error, "numbers come from the other sources until this one is there");
        }
        Ok(places)
    }
}

/// The counters of one namespace.
#[derive(Debug)]
struct Counters {
    places: Vec<Place>,
    base: String,
}

impl Counters {
    /// Those of a period, or of all time.
    fn at(&self, period: Option<Period>) -> Result<Vec<Arc<dyn Counter>>, String> {
        let key = match period {
            None => self.base.clone(),
            Some(period) => format!("{}/{period}", self.base),
        };
        let key = Key::new(key).map_err(|error| error.to_string())?;
        Ok(self.places.iter().map(|place| place.counter(&key)).collect())
    }
}
