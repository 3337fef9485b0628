//! From a definition to what makes its ids: stores and counters are opened, segments and generators started.

use std::sync::Arc;
use std::time::Duration;

use snowmint_cluster::namespace::{
    CounterSource, Definition, NumberSource, Numbers, NumbersError, Scheme, SegmentScheme,
};
use snowmint_cluster::segment::{CountersOf, Period};
use snowmint_cluster::{NamespaceName, Segments};
use snowmint_store::{Counter, Key, OpenError, Store};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::Instrument as _;

use super::claims::Claims;
use super::places::{Others, Place, PlaceError, Unopened};
use crate::mint::ReceivedNumbers;
use crate::settings::{ServiceClock, SharedClock};

/// How long the other stores of a namespace may take to answer before it is served without those that have not.
const OPEN_WITHIN: Duration = Duration::from_secs(5);

/// Opens stores and counters, each store once; clones share them.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    store: Arc<dyn Store>,
    wall: ServiceClock,
    others: Arc<Others>,
    received: Arc<ReceivedNumbers>,
}

/// Numbers that were started, and what their sources may give where there are several.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) segments: Segments,
    pub(super) claims: Option<Arc<Claims>>,
}

impl Opening {
    pub(super) fn new(store: Arc<dyn Store>, wall: SharedClock, received: Arc<ReceivedNumbers>) -> Self {
        Self { store, wall: ServiceClock(wall), others: Arc::default(), received }
    }

    /// Starts the segments of a namespace, whose name stands in every line that they log; the reason where that
    /// cannot be now. Waits for nothing where the numbers are in the store of the service.
    pub(super) async fn segments(
        &self,
        name: &NamespaceName,
        scheme: &SegmentScheme,
    ) -> Result<Started, String> {
        // Of the highest level: a span that a filter leaves out names nothing in the lines that stay.
        self.start(name, scheme).instrument(tracing::error_span!("numbers", namespace = %name)).await
    }

    async fn start(&self, name: &NamespaceName, scheme: &SegmentScheme) -> Result<Started, String> {
        // Also of a record that was written before this was checked.
        scheme.check_sources(self.store.reach()).map_err(|error| error.to_string())?;
        let (places, claims) = match &scheme.source {
            NumberSource::Own(stripe) => {
                (vec![Place::Store { store: Arc::clone(&self.store), stripe: *stripe }], None)
            }
            NumberSource::Other(sources) => {
                let claims = (sources.len() > 1).then(|| {
                    let wanted = Definition { scheme: Scheme::Segment(scheme.clone()), text: None };
                    Arc::new(Claims::new(Arc::clone(&self.store), name.clone(), wanted))
                });
                (self.places(sources, claims.as_ref()).await?, claims)
            }
        };
        let counters = Counters { places, base: scheme.counter_key(name) };
        let received = self.received.of(&counters.base, &scheme.source);
        let clock = self.wall.clone();
        let started = match scheme.reset {
            None => Segments::start_after(received, counters.at(None)?, scheme.config(), clock),
            Some(reset) => {
                // The keys of all periods are as long.
                counters.at(Some(Period::at(reset, 0)))?;
                let of: CountersOf = Arc::new(move |period| counters.at(Some(period)).unwrap_or_default());
                Segments::start_anew_each_after(received, reset, of, scheme.config(), clock)
            }
        };
        let segments = started.map_err(|error| error.to_string())?;
        Ok(Started { segments, claims })
    }

    /// How long a source that answered may take until it is open: what it gives settles in the store of the service first,
    /// and a second time where the claim of another source came in between.
    fn claim_within(&self) -> Duration {
        OPEN_WITHIN + 2 * self.store.may_lose()
    }

    /// Opens all sources at the same time, once what is known of them shows no number that two of them give.
    async fn places(
        &self,
        sources: &[CounterSource],
        claims: Option<&Arc<Claims>>,
    ) -> Result<Vec<Place>, String> {
        let unopened = |(nth, source): (usize, &CounterSource)| Unopened {
            nth,
            source: source.clone(),
            others: Arc::clone(&self.others),
            claims: claims.map(Arc::clone),
        };
        let all: Vec<Unopened> = sources.iter().enumerate().map(unopened).collect();
        let mut errors = Vec::new();
        let survey =
            |it: Unopened| (it.source.clone(), async move { it.survey().await.map(|found| (it, found)) });
        let found = at_once(all.iter().cloned().map(survey), OPEN_WITHIN, &mut errors).await?;
        // Before anything is remembered: which of two is to be mended is for the operator to say.
        let numbers = found.iter().filter_map(|(it, found)| Some((it, (*found)?)));
        for (at, (one, theirs)) in numbers.clone().enumerate() {
            if let Some((other, ours)) = numbers.clone().skip(at + 1).find(|(_, ours)| ours.overlaps(theirs))
            {
                return Err(NumbersError::Overlap {
                    one: one.source.to_string(),
                    one_numbers: theirs,
                    other: other.source.to_string(),
                    other_numbers: ours,
                }
                .to_string());
            }
        }
        let open = |(it, found): (Unopened, Option<Numbers>)| {
            (it.source.clone(), async move { it.open_found(found).await.map(|place| (it.nth, place)) })
        };
        let opened = at_once(found.into_iter().map(open), self.claim_within(), &mut errors).await?;
        if opened.is_empty() {
            return Err(errors.into_iter().next().unwrap_or_default());
        }
        let mut places: Vec<Place> = all.into_iter().map(Place::Unopened).collect();
        for (nth, place) in opened {
            places[nth] = place;
        }
        // One of several that is down must not keep the others from serving.
        for error in errors {
            tracing::warn!(%error, "numbers come from the other sources until this one is there");
        }
        Ok(places)
    }
}

/// Asks all sources at once: what came of those that answered in time. What waiting may mend goes to `errors`.
///
/// # Errors
///
/// A mistake in the settings, here or there, which no waiting mends.
async fn at_once<T, F>(
    asked: impl IntoIterator<Item = (CounterSource, F)>,
    within: Duration,
    errors: &mut Vec<String>,
) -> Result<Vec<T>, String>
where
    T: Send + 'static,
    F: Future<Output = Result<T, PlaceError>> + Send + 'static,
{
    let mut asking = JoinSet::new();
    for (source, answer) in asked {
        asking.spawn(async move { (source, timeout(within, answer).await) });
    }
    let mut answers = Vec::new();
    while let Some(answer) = asking.join_next().await {
        let (source, answer) = answer.map_err(|error| error.to_string())?;
        match answer {
            Ok(Ok(answer)) => answers.push(answer),
            Ok(Err(error)) if error.is_temporary() => errors.push(error.to_string()),
            Ok(Err(PlaceError::Open(OpenError::Store(error)))) => errors.push(error.to_string()),
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => {
                errors.push(format!("{source} did not answer within {within:?}; it is tried again"));
            }
        }
    }
    Ok(answers)
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

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use snowmint::{Layout, WallClock};
    use snowmint_cluster::namespace::registry::{self, Again};
    use snowmint_cluster::namespace::{Fields, NamespaceError};
    use snowmint_store::{Expected, MemoryStore, StoreError, Swap, Versioned};

    use super::*;

    /// A store that may lose 10 s.
    #[derive(Debug)]
    struct Forgetful(MemoryStore);

    #[async_trait]
    impl Store for Forgetful {
        async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
            self.0.load(key).await
        }

        async fn compare_and_set(
            &self,
            key: &Key,
            expected: Expected,
            value: &[u8],
        ) -> Result<Swap, StoreError> {
            self.0.compare_and_set(key, expected, value).await
        }

        async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
            self.0.list(prefix).await
        }

        fn may_lose(&self) -> Duration {
            Duration::from_secs(10)
        }

        fn describe(&self) -> String {
            self.0.describe()
        }
    }

    /// Goal: sources are used though their claims take longer to settle than a source may take to answer. Method: paused
    /// time, a store that may lose 10 s, and two claims at the same time, so that one of them settles twice.
    #[tokio::test(start_paused = true)]
    async fn claims_have_the_time_to_settle() {
        let store: Arc<dyn Store> = Arc::new(Forgetful(MemoryStore::new()));
        let name = NamespaceName::new("n").unwrap();
        let sources = ["tickets:mysql://a/t", "tickets:mysql://b/t"].map(|it| it.parse().unwrap());
        let fields =
            Fields { scheme: "segment".to_owned(), sources: Some(sources.to_vec()), ..Fields::default() };
        let wanted = fields.define(&Layout::TWITTER).unwrap();
        registry::add(&*store, &name, &wanted, Again::GoOn).await.unwrap();
        let opening = Opening::new(Arc::clone(&store), Arc::new(WallClock), Arc::default());
        let claims = Arc::new(Claims::new(store, name, wanted));
        let claim = |(nth, source): (usize, CounterSource)| {
            let claims = Arc::clone(&claims);
            let found = serde_json::from_str(&format!(r#"{{"remainder":{nth},"delta":2}}"#)).unwrap();
            (source, async move {
                claims.claim(nth, found).await.map_err(|error: NamespaceError| PlaceError::from(error))
            })
        };
        let mut errors = Vec::new();
        let asked = sources.into_iter().enumerate().map(claim);
        let claimed = at_once(asked, opening.claim_within(), &mut errors).await.unwrap();
        assert_eq!((claimed.len(), errors), (2, Vec::new()));
    }
}
