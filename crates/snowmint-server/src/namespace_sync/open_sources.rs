//! Gets the numbers of a namespace from its definition: opens stores and counters, checks which numbers each
//! source may give, and starts the segments.
//!
//! A namespace may have several sources. They are opened together; one that is down is opened by the draw
//! that needs it. The store of the service remembers which numbers each source gives: two sources that
//! overlap are never used together, and a source that leaves its numbers is not used any more.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use snowmint_cluster::namespace::registry::{self, Claimed, Recorded};
use snowmint_cluster::namespace::{
    CounterSource, Definition, Logins, NamespaceError, NumberSource, Numbers, NumbersError, SegmentScheme,
    SourceRefusal, SourceUrl,
};
use snowmint_cluster::segment::{CountersOf, Period, Stripe};
use snowmint_cluster::{NamespaceName, Segments};
use snowmint_store::{Counter, Key, Mark, OpenError, Segment, Store, StoreError, StoreErrorKind};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::Instrument as _;

use crate::clock::{ServiceClock, SharedClock};
use crate::mint::ReceivedNumbers;

/// Time limit for sources to answer. A namespace is served without those that take longer.
const OPEN_WITHIN: Duration = Duration::from_secs(5);

/// Opens stores and counters, and each store only once. Clones share the stores.
#[derive(Clone, Debug)]
pub(super) struct SourceOpener {
    store: Arc<dyn Store>,
    wall: ServiceClock,
    stores: Arc<StoreCache>,
    received: Arc<ReceivedNumbers>,
    logins: Arc<Logins>,
}

/// Started segments, and the claimed numbers of their sources if there are several.
#[derive(Debug)]
pub(super) struct OpenedSegments {
    pub(super) segments: Segments,
    pub(super) claims: Option<Arc<NumberClaims>>,
}

impl SourceOpener {
    pub(super) fn new(store: Arc<dyn Store>, wall: SharedClock, received: Arc<ReceivedNumbers>) -> Self {
        Self { store, wall: ServiceClock(wall), stores: Arc::default(), received, logins: Arc::default() }
    }

    /// Uses these logins for the sources that it opens from now on.
    pub(super) fn set_logins(&mut self, logins: Arc<Logins>) {
        self.logins = logins;
    }

    /// Starts the segments of a namespace. Returns the reason if that is not possible now. Does not wait if
    /// the numbers are in the store of the service.
    pub(super) async fn segments(
        &self,
        name: &NamespaceName,
        definition: &Definition,
        scheme: &SegmentScheme,
    ) -> Result<OpenedSegments, String> {
        // At the highest level, so that no filter drops the span: it puts the name of the namespace into
        // every log line.
        self.start(name, definition, scheme)
            .instrument(tracing::error_span!("numbers", namespace = %name))
            .await
    }

    async fn start(
        &self,
        name: &NamespaceName,
        definition: &Definition,
        scheme: &SegmentScheme,
    ) -> Result<OpenedSegments, String> {
        // The record may be older than this check.
        scheme.check_sources(self.store.visibility()).map_err(|error| error.to_string())?;
        let (connections, claims) = match &scheme.source {
            NumberSource::Own(stripe) => {
                (vec![SourceConnection::Store { store: Arc::clone(&self.store), stripe: *stripe }], None)
            }
            NumberSource::Other(sources) => {
                let claims = (sources.len() > 1).then(|| {
                    let (store, definition) = (Arc::clone(&self.store), definition.clone());
                    Arc::new(NumberClaims::new(store, name.clone(), definition))
                });
                (self.connections(sources, claims.as_ref()).await?, claims)
            }
        };
        let counters = CounterSet { connections, base: scheme.counter_key(name) };
        let received = self.received.of(&counters.base, &scheme.source);
        let clock = definition.time_zone.clone().clock(self.wall.clone());
        let started = match scheme.reset {
            None => Segments::start_after(received, counters.at(None)?, scheme.config(), clock),
            Some(reset) => {
                // Checked once: the keys of all periods are equally long.
                counters.at(Some(Period::at(reset, 0)))?;
                let of: CountersOf = Arc::new(move |period| counters.at(Some(period)).unwrap_or_default());
                Segments::start_periodic_after(received, reset, of, scheme.config(), clock)
            }
        };
        let segments = started.map_err(|error| error.to_string())?;
        Ok(OpenedSegments { segments, claims })
    }

    /// Returns the time limit for opening a source that has answered. Its claim has to settle in the store of
    /// the service, and a second time if the claim of another source came in between.
    fn claim_within(&self) -> Duration {
        OPEN_WITHIN + 2 * self.store.may_lose()
    }

    /// Opens all sources together, after checking that no two of them give the same number.
    async fn connections(
        &self,
        sources: &[CounterSource],
        claims: Option<&Arc<NumberClaims>>,
    ) -> Result<Vec<SourceConnection>, String> {
        let unopened = |(nth, source): (usize, &CounterSource)| UnopenedSource {
            nth,
            source: source.clone(),
            stores: Arc::clone(&self.stores),
            logins: Arc::clone(&self.logins),
            claims: claims.map(Arc::clone),
        };
        let all: Vec<UnopenedSource> = sources.iter().enumerate().map(unopened).collect();
        let mut errors = Vec::new();
        let survey = |it: UnopenedSource| {
            (it.source.clone(), async move { it.survey().await.map(|found| (it, found)) })
        };
        let found = at_once(all.iter().cloned().map(survey), OPEN_WITHIN, &mut errors).await?;
        // Before anything is recorded: the operator decides which of the two to correct.
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
        let open = |(it, found): (UnopenedSource, Option<Numbers>)| {
            (
                it.source.clone(),
                async move { it.open_found(found).await.map(|connection| (it.nth, connection)) },
            )
        };
        let opened = at_once(found.into_iter().map(open), self.claim_within(), &mut errors).await?;
        if opened.is_empty() {
            return Err(errors.into_iter().next().unwrap_or_default());
        }
        let mut connections: Vec<SourceConnection> =
            all.into_iter().map(SourceConnection::Unopened).collect();
        for (nth, connection) in opened {
            connections[nth] = connection;
        }
        // The other sources serve while one is down.
        for error in errors {
            tracing::warn!(%error, "source unavailable; using the other sources until it is back");
        }
        Ok(connections)
    }
}

/// Asks all sources at once and returns the answers that came in time. Temporary failures go to `errors`.
///
/// # Errors
///
/// A configuration error, which does not go away by itself.
async fn at_once<T, F>(
    requests: impl IntoIterator<Item = (CounterSource, F)>,
    within: Duration,
    errors: &mut Vec<String>,
) -> Result<Vec<T>, String>
where
    T: Send + 'static,
    F: Future<Output = Result<T, OpenSourceError>> + Send + 'static,
{
    let mut asking = JoinSet::new();
    for (source, answer) in requests {
        asking.spawn(async move { (source, timeout(within, answer).await) });
    }
    let mut answers = Vec::new();
    while let Some(answer) = asking.join_next().await {
        let (source, answer) = answer.map_err(|error| error.to_string())?;
        match answer {
            Ok(Ok(answer)) => answers.push(answer),
            Ok(Err(error)) if error.is_temporary() => errors.push(error.to_string()),
            Ok(Err(error @ (OpenSourceError::NoLogin(..) | OpenSourceError::Open(OpenError::Store(_))))) => {
                errors.push(error.to_string());
            }
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => {
                errors.push(format!("{source} did not answer within {within:?}; retrying"));
            }
        }
    }
    Ok(answers)
}

/// The counters of one namespace, over all its sources.
#[derive(Debug)]
struct CounterSet {
    connections: Vec<SourceConnection>,
    base: String,
}

impl CounterSet {
    /// Returns the counters of a period, or those without one.
    fn at(&self, period: Option<Period>) -> Result<Vec<Arc<dyn Counter>>, String> {
        let key = match period {
            None => self.base.clone(),
            Some(period) => format!("{}/{period}", self.base),
        };
        let key = Key::new(key).map_err(|error| error.to_string())?;
        Ok(self.connections.iter().map(|connection| connection.counter(&key)).collect())
    }
}

/// The stores besides that of the service, by URL. The lock is held to find a store, never while it is
/// opened: a store that hangs must not block the others.
#[derive(Debug, Default)]
pub(super) struct StoreCache(Mutex<HashMap<SourceUrl, StoreCell>>);

/// A store, once it is open.
type StoreCell = Arc<OnceCell<Arc<dyn Store>>>;

/// The connection to one source: a store, a counter of another system, or none yet.
#[derive(Clone, Debug)]
pub(super) enum SourceConnection {
    Store { store: Arc<dyn Store>, stripe: Stripe },
    Counter(Arc<dyn Counter>),
    Unopened(UnopenedSource),
}

/// A source that is not open yet.
#[derive(Clone, Debug)]
pub(super) struct UnopenedSource {
    /// The position among the sources of the namespace.
    pub(super) nth: usize,
    pub(super) source: CounterSource,
    pub(super) stores: Arc<StoreCache>,
    pub(super) logins: Arc<Logins>,
    /// The claimed numbers; `None` if the namespace has only one source.
    pub(super) claims: Option<Arc<NumberClaims>>,
}

/// A source cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenSourceError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Claim(#[from] NamespaceError),
    /// The server seems to require a password.
    #[error("{0}; {1}")]
    NoLogin(StoreError, &'static str),
    #[error(transparent)]
    Refused(#[from] SourceRefusal),
}

impl OpenSourceError {
    /// Returns `true` if waiting may help.
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            Self::Open(error) => error.is_temporary(),
            Self::Claim(NamespaceError::Store(error)) | Self::NoLogin(error, _) => error.is_temporary(),
            Self::Claim(_) | Self::Refused(_) => false,
        }
    }
}

impl UnopenedSource {
    fn url(&self) -> Result<SourceUrl, SourceRefusal> {
        self.logins.url(&self.source)
    }

    /// Returns an error that names the remedy if the server may have refused a source without a password.
    fn explained(&self, error: OpenError) -> OpenSourceError {
        match error {
            OpenError::Store(refusal) => match self.source.missing_login(&refusal) {
                Some(remedy) => OpenSourceError::NoLogin(refusal, remedy),
                None => OpenError::Store(refusal).into(),
            },
            error => error.into(),
        }
    }

    /// Opens the source, unless it may give numbers of another source of its namespace.
    pub(super) async fn open(&self) -> Result<SourceConnection, OpenSourceError> {
        let found = self.survey().await?;
        self.open_found(found).await
    }

    /// Returns the numbers that the source gives; `None` if no other source could give them. Claims nothing.
    pub(super) async fn survey(&self) -> Result<Option<Numbers>, OpenSourceError> {
        // The stripes of stores keep them apart.
        if !self.source.is_takeover() || self.claims.is_none() {
            return Ok(None);
        }
        let url = self.url()?;
        let surveyed = snowmint_store::survey(url.as_str()).await.map_err(|error| self.explained(error))?;
        if let Some(numbers) = surveyed.counters.first() {
            return Ok(Some(Numbers::of(numbers)));
        }
        // This error names what is missing.
        let counter = snowmint_store::open_counter(url.as_str()).await?;
        let gone = StoreError::new(
            StoreErrorKind::Other,
            "survey",
            counter.describe(),
            "it disappeared while it was opened",
        );
        Err(OpenError::Store(gone).into())
    }

    /// Opens the source after a survey found these numbers. Connects after the survey, so that no connection
    /// has older settings of the server.
    pub(super) async fn open_found(
        &self,
        found: Option<Numbers>,
    ) -> Result<SourceConnection, OpenSourceError> {
        let url = self.url()?;
        if !self.source.is_takeover() {
            let opened = self.stores.open(&self.source, &url).await;
            return opened.map_err(|error| self.explained(error));
        }
        let numbers = match (&self.claims, found) {
            (Some(claims), Some(found)) => Some((claims, claims.claim(self.nth, found).await?)),
            _ => None,
        };
        let opened = snowmint_store::open_counter(url.as_str()).await;
        let counter = opened.map_err(|error| self.explained(error))?;
        Ok(SourceConnection::Counter(match numbers {
            Some((claims, numbers)) => {
                Arc::new(ClaimedCounter { counter, numbers, claims: Arc::clone(claims) })
            }
            None => counter,
        }))
    }
}

impl StoreCache {
    /// Opens a store, once.
    async fn open(&self, source: &CounterSource, url: &SourceUrl) -> Result<SourceConnection, OpenError> {
        let stripe = source.stripe().unwrap_or(Stripe::WHOLE);
        let store = Arc::clone(self.cell(url).get_or_try_init(|| snowmint_store::open(url.as_str())).await?);
        Ok(SourceConnection::Store { store, stripe })
    }

    fn cell(&self, url: &SourceUrl) -> StoreCell {
        // Each change is one insertion, so a panic elsewhere leaves the map consistent.
        let mut stores = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(stores.entry(url.clone()).or_default())
    }
}

impl SourceConnection {
    /// Returns the counter; in a store, the one at `key`.
    pub(super) fn counter(&self, key: &Key) -> Arc<dyn Counter> {
        match self {
            Self::Counter(counter) => Arc::clone(counter),
            // From 1, whatever the configured start: the segments move a lower counter forward.
            Self::Store { store, stripe } => Arc::new(stripe.counter(Arc::clone(store), key.clone(), 1)),
            Self::Unopened(source) => {
                let (opened, opening) = (OnceCell::new(), tokio::sync::Mutex::default());
                Arc::new(LazyCounter { source: source.clone(), key: key.clone(), opened, opening })
            }
        }
    }
}

/// A counter of a source that was down when its namespace was opened. The first call opens it.
#[derive(Debug)]
struct LazyCounter {
    source: UnopenedSource,
    key: Key,
    opened: OnceCell<Arc<dyn Counter>>,
    /// The task that opens it, at most one.
    opening: tokio::sync::Mutex<JoinSet<Result<SourceConnection, OpenSourceError>>>,
}

impl LazyCounter {
    /// Opens it in a task, which continues if the caller gives up: a caller waits for less time than a claim
    /// may need to settle.
    async fn open(&self) -> Result<Arc<dyn Counter>, StoreError> {
        let mut opening = self.opening.lock().await;
        if opening.is_empty() {
            let source = self.source.clone();
            opening.spawn(async move { source.open().await }.in_current_span());
        }
        let opened = match opening.join_next().await {
            Some(Ok(opened)) => opened,
            ended => {
                let cause = format!("the task that opens it failed: {ended:?}");
                return Err(StoreError::new(StoreErrorKind::Unavailable, "open", self.describe(), cause));
            }
        };
        match opened {
            Ok(connection) => Ok(connection.counter(&self.key)),
            Err(
                OpenSourceError::Open(OpenError::Store(error))
                | OpenSourceError::NoLogin(error, _)
                | OpenSourceError::Claim(NamespaceError::Store(error)),
            ) => Err(error),
            Err(error) => {
                Err(StoreError::new(StoreErrorKind::Other, "open", self.source.source.to_string(), error))
            }
        }
    }
}

#[async_trait]
impl Counter for LazyCounter {
    async fn reserve(&self, count: NonZeroU64) -> Result<Segment, StoreError> {
        let was_opened = self.opened.initialized();
        let counter = self.opened.get_or_try_init(|| self.open()).await?;
        if !was_opened && counter.may_lose() > Duration::ZERO {
            // The caller did not know that these numbers have to settle.
            let cause =
                "the source was just opened and may lose reservations; the next call waits until they settle";
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

    async fn peek(&self) -> Result<Option<Segment>, StoreError> {
        self.opened.get_or_try_init(|| self.open()).await?.peek().await
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
        self.opened.get().map_or_else(|| self.source.source.to_string(), |counter| counter.describe())
    }
}

/// The numbers that this node uses of each source of one namespace.
#[derive(Debug)]
pub(super) struct NumberClaims {
    store: Arc<dyn Store>,
    name: NamespaceName,
    definition: Definition,
    held: Mutex<ClaimState>,
}

#[derive(Debug, Default)]
struct ClaimState {
    /// The claimed numbers, by the position of their source in the definition.
    numbers: BTreeMap<usize, Numbers>,
    /// The reason why no source is used any more.
    refused: Option<String>,
}

impl NumberClaims {
    pub(super) fn new(store: Arc<dyn Store>, name: NamespaceName, definition: Definition) -> Self {
        Self { store, name, definition, held: Mutex::default() }
    }

    /// Claims the numbers of a source. Returns what the source may give, once every node can see the claim.
    pub(super) async fn claim(&self, nth: usize, found: Numbers) -> Result<Numbers, NamespaceError> {
        Ok(self.record(nth, found).await?.numbers)
    }

    async fn record(&self, nth: usize, found: Numbers) -> Result<Claimed, NamespaceError> {
        let claimed = registry::claim_numbers(&*self.store, &self.name, &self.definition, nth, found).await?;
        self.held().numbers.insert(nth, claimed.numbers);
        Ok(claimed)
    }

    /// Returns `true` if the record has all claims of this node and no other claim that overlaps them.
    /// Otherwise the store lost a claim.
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

    /// Claims the numbers that this node uses again. If another node has claimed some of them, this node
    /// stops using all sources.
    pub(super) async fn claim_again(&self) {
        let numbers = self.held().numbers.clone();
        for (nth, numbers) in numbers {
            match self.record(nth, numbers).await {
                // The record was read before the claim was written.
                Ok(Claimed { was: Recorded::Before, .. }) => {}
                Ok(Claimed { was: Recorded::Now, .. }) => {
                    tracing::warn!(nth, %numbers, "the store lost the claimed numbers of a source; written again");
                }
                Err(error @ NamespaceError::Numbers { .. }) => {
                    tracing::error!(%error, "another source claimed the same numbers; no source of this namespace is used any more");
                    self.held().refused = Some(error.to_string());
                }
                // The next poll tries again.
                Err(error) => tracing::debug!(%error, "cannot claim the numbers of a source again; retrying"),
            }
        }
    }

    /// Returns the reason why no source is used any more.
    pub(super) fn refused(&self) -> Option<String> {
        self.held().refused.clone()
    }

    fn held(&self) -> MutexGuard<'_, ClaimState> {
        // Each change is one insertion, so a panic elsewhere leaves the state consistent.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A counter that may only give the numbers that were claimed: the settings of its server may change later.
#[derive(Debug)]
pub(super) struct ClaimedCounter {
    pub(super) counter: Arc<dyn Counter>,
    pub(super) numbers: Numbers,
    pub(super) claims: Arc<NumberClaims>,
}

impl ClaimedCounter {
    fn check(&self, segment: Segment) -> Result<Segment, StoreError> {
        let found = if let Some(why) = self.claims.refused() {
            why
        } else if self.numbers.surveyed().holds(segment) {
            return Ok(segment);
        } else {
            format!(
                "it gave {} in steps of {}, but only numbers that are {} when it was first used: another source may give the others; \
                 restore its remainder and delta, or auto_increment_offset and auto_increment_increment",
                segment.first(),
                segment.step(),
                self.numbers
            )
        };
        Err(StoreError::new(StoreErrorKind::Corrupt, "reserve", self.describe(), found))
    }
}

#[async_trait]
impl Counter for ClaimedCounter {
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

    async fn peek(&self) -> Result<Option<Segment>, StoreError> {
        self.counter.peek().await
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

#[cfg(test)]
mod tests {
    use snowmint::{Layout, WallClock};
    use snowmint_cluster::namespace::Fields;
    use snowmint_cluster::namespace::registry::IfDropped;
    use snowmint_store::{Expected, MemoryStore, Swap, Versioned};

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

    /// Goal: sources are used although their claims settle more slowly than a source may answer. Method:
    /// paused time, a store that may lose 10 s, and two concurrent claims, so that one of them settles twice.
    #[tokio::test(start_paused = true)]
    async fn claims_have_time_to_settle() {
        let store: Arc<dyn Store> = Arc::new(Forgetful(MemoryStore::new()));
        let name = NamespaceName::new("n").unwrap();
        let sources = ["tickets:mysql://a/t", "tickets:mysql://b/t"].map(|it| it.parse().unwrap());
        let fields =
            Fields { scheme: "segment".to_owned(), sources: Some(sources.to_vec()), ..Fields::default() };
        let definition = fields.define(&Layout::TWITTER).unwrap();
        registry::add(&*store, &name, &definition, IfDropped::Resume).await.unwrap();
        let opening = SourceOpener::new(Arc::clone(&store), Arc::new(WallClock), Arc::default());
        let claims = Arc::new(NumberClaims::new(store, name, definition));
        let claim = |(nth, source): (usize, CounterSource)| {
            let claims = Arc::clone(&claims);
            let found = serde_json::from_str(&format!(r#"{{"remainder":{nth},"delta":2}}"#)).unwrap();
            (source, async move {
                claims.claim(nth, found).await.map_err(|error: NamespaceError| OpenSourceError::from(error))
            })
        };
        let mut errors = Vec::new();
        let requests = sources.into_iter().enumerate().map(claim);
        let claimed = at_once(requests, opening.claim_within(), &mut errors).await.unwrap();
        assert_eq!((claimed.len(), errors), (2, Vec::new()));
    }
}
