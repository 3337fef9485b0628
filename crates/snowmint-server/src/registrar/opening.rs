//! From a definition to what makes its ids: stores and counters are opened, segments and generators started.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use snowmint_cluster::namespace::{CounterSource, NumberSource, SegmentScheme};
use snowmint_cluster::segment::{CountersOf, Period, Stripe};
use snowmint_cluster::{NamespaceName, Segments};
use snowmint_store::{Counter, Key, Store};
use tokio::sync::Mutex;

use crate::settings::{ServiceClock, SharedClock};

/// How long another store may take to be opened before its namespaces are served without it and it is tried again.
const OPEN_WITHIN: Duration = Duration::from_secs(5);

/// Opens stores and counters, each store once.
#[derive(Debug)]
pub(super) struct Opening {
    store: Arc<dyn Store>,
    clock: ServiceClock,
    others: Mutex<HashMap<String, Arc<dyn Store>>>,
}

/// Where the numbers of one source are reserved.
#[derive(Clone, Debug)]
enum Place {
    Store { store: Arc<dyn Store>, stripe: Stripe },
    Counter(Arc<dyn Counter>),
}

impl Opening {
    pub(super) fn new(store: Arc<dyn Store>, clock: SharedClock) -> Self {
        Self { store, clock: ServiceClock(clock), others: Mutex::new(HashMap::new()) }
    }

    /// Starts the segments of a namespace; the reason where that cannot be now.
    pub(super) async fn segments(
        &self,
        name: &NamespaceName,
        scheme: &SegmentScheme,
    ) -> Result<Segments, String> {
        let places = match tokio::time::timeout(OPEN_WITHIN, self.places(&scheme.source)).await {
            Ok(places) => places?,
            Err(_) => {
                return Err(format!("its store did not answer within {OPEN_WITHIN:?}; it is tried again"));
            }
        };
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
        let mut places = Vec::with_capacity(sources.len());
        let (mut missing, mut first_error) = (0, None);
        for source in sources {
            match self.place(source).await {
                Ok(place) => places.push(place),
                Err(error) => {
                    missing += 1;
                    first_error.get_or_insert(error);
                }
            }
        }
        match first_error {
            None => Ok(places),
            // One of several that is down must not keep the others from serving.
            Some(error) if !places.is_empty() => {
                tracing::warn!(%error, missing, "numbers come from the other sources until this one is there");
                Ok(places)
            }
            Some(error) => Err(error),
        }
    }

    async fn place(&self, source: &CounterSource) -> Result<Place, String> {
        let url = source.url();
        if source.is_takeover() {
            let counter = snowmint_store::open_counter(url).await;
            return counter.map(Place::Counter).map_err(|error| error.to_string());
        }
        let stripe = source.stripe().unwrap_or(Stripe::WHOLE);
        let mut others = self.others.lock().await;
        if let Some(store) = others.get(url) {
            return Ok(Place::Store { store: Arc::clone(store), stripe });
        }
        let store = snowmint_store::open(url).await.map_err(|error| error.to_string())?;
        others.insert(url.to_owned(), Arc::clone(&store));
        Ok(Place::Store { store, stripe })
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
        let counter = |place: &Place| -> Result<Arc<dyn Counter>, String> {
            match place {
                Place::Counter(counter) => Ok(Arc::clone(counter)),
                Place::Store { store, stripe } => {
                    let key = Key::new(key.clone()).map_err(|error| error.to_string())?;
                    // From 1, whatever the start: a counter that is below that is moved on.
                    Ok(Arc::new(stripe.counter(Arc::clone(store), key, 1)))
                }
            }
        };
        self.places.iter().map(counter).collect()
    }
}
