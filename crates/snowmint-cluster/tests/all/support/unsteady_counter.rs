//! Shared by the tests of segments: a counter that is slow, fails or loses answers on demand, a store that
//! loses its newest writes, clocks by tokio's time, and a captured log.

use std::fmt;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use snowmint::Clock;
use snowmint_store::{
    Counter, Expected, Key, Mark, MemoryStore, Segment, Store, StoreCounter, StoreError, StoreErrorKind,
    Swap, Versioned,
};
use tokio::time::{Instant, sleep};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;

/// A counter in front of another one, with faults.
#[derive(Debug)]
pub(crate) struct Unsteady {
    counter: StoreCounter,
    calls: AtomicU64,
    delay: Mutex<Duration>,
    failure: Mutex<Option<StoreErrorKind>>,
    /// One call in this many is done and its answer lost; 0 for none.
    loses_every: AtomicU64,
    down: Arc<AtomicBool>,
    may_lose: Duration,
}

impl Unsteady {
    pub(crate) fn new(counter: StoreCounter) -> Self {
        Self {
            counter,
            calls: AtomicU64::new(0),
            delay: Mutex::new(Duration::ZERO),
            failure: Mutex::new(None),
            loses_every: AtomicU64::new(0),
            down: Arc::new(AtomicBool::new(false)),
            may_lose: Duration::ZERO,
        }
    }

    /// Makes the counter claim that it may lose writes up to this age.
    pub(crate) fn may_lose(mut self, may_lose: Duration) -> Self {
        self.may_lose = may_lose;
        self
    }

    /// Makes calls fail while this is true.
    pub(crate) fn down_while(mut self, down: Arc<AtomicBool>) -> Self {
        self.down = down;
        self
    }

    pub(crate) fn answers_after(&self, delay: Duration) {
        *self.delay.lock().unwrap() = delay;
    }

    pub(crate) fn fails_with(&self, failure: Option<StoreErrorKind>) {
        *self.failure.lock().unwrap() = failure;
    }

    pub(crate) fn loses_every(&self, calls: u64) {
        self.loses_every.store(calls, Ordering::SeqCst);
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Runs before a call is made; returns the number of the call.
    async fn begin(&self) -> Result<u64, StoreError> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let delay = *self.delay.lock().unwrap();
        if delay > Duration::ZERO {
            sleep(delay).await;
        }
        let down = self.down.load(Ordering::SeqCst).then_some(StoreErrorKind::Unavailable);
        match self.failure.lock().unwrap().or(down) {
            Some(kind) => Err(self.error(kind)),
            None => Ok(call),
        }
    }

    /// Runs after a call was made.
    fn end<T>(&self, call: u64, answer: T) -> Result<T, StoreError> {
        match self.loses_every.load(Ordering::SeqCst) {
            every @ 1.. if call.is_multiple_of(every) => Err(self.error(StoreErrorKind::OutcomeUnknown)),
            _ => Ok(answer),
        }
    }

    fn error(&self, kind: StoreErrorKind) -> StoreError {
        StoreError::new(kind, "add", self.describe(), "unplugged")
    }
}

#[async_trait::async_trait]
impl Counter for Unsteady {
    async fn reserve(&self, count: NonZeroU64) -> Result<Segment, StoreError> {
        let call = self.begin().await?;
        let answer = self.counter.reserve(count).await?;
        self.end(call, answer)
    }

    async fn peek(&self) -> Result<Option<Segment>, StoreError> {
        let call = self.begin().await?;
        let answer = self.counter.peek().await?;
        self.end(call, answer)
    }

    async fn raise_above(&self, number: u64) -> Result<bool, StoreError> {
        let call = self.begin().await?;
        let answer = self.counter.raise_above(number).await?;
        self.end(call, answer)
    }

    fn may_lose(&self) -> Duration {
        self.may_lose
    }

    async fn reserve_marked(&self, count: NonZeroU64) -> Result<(Segment, Mark), StoreError> {
        let call = self.begin().await?;
        let answer = self.counter.reserve_marked(count).await?;
        self.end(call, answer)
    }

    async fn holds(&self, mark: Mark) -> Result<bool, StoreError> {
        let call = self.begin().await?;
        let answer = self.counter.holds(mark).await?;
        self.end(call, answer)
    }

    async fn give_back(&self, unused: Segment) -> Result<bool, StoreError> {
        let call = self.begin().await?;
        let answer = self.counter.give_back(unused).await?;
        self.end(call, answer)
    }

    fn describe(&self) -> String {
        self.counter.describe()
    }
}

/// Tokio's time, which a test may pause.
#[derive(Debug)]
pub(crate) struct TokioClock {
    begin: Instant,
    begin_unix_ms: u64,
}

impl TokioClock {
    pub(crate) fn at(unix_ms: u64) -> Self {
        Self { begin: Instant::now(), begin_unix_ms: unix_ms }
    }
}

impl Clock for TokioClock {
    fn unix_ms(&self) -> u64 {
        self.begin_unix_ms + u64::try_from(self.begin.elapsed().as_millis()).unwrap()
    }
}

/// Tokio's time with steps.
#[derive(Clone, Debug)]
pub(crate) struct SteppedClock {
    clock: Arc<TokioClock>,
    ahead_ms: Arc<AtomicU64>,
}

impl SteppedClock {
    pub(crate) fn at(unix_ms: u64) -> Self {
        Self { clock: Arc::new(TokioClock::at(unix_ms)), ahead_ms: Arc::default() }
    }

    pub(crate) fn is_ahead_by(&self, ms: u64) {
        self.ahead_ms.store(ms, Ordering::SeqCst);
    }
}

impl Clock for SteppedClock {
    fn unix_ms(&self) -> u64 {
        self.clock.unix_ms() + self.ahead_ms.load(Ordering::SeqCst)
    }
}

/// A store in memory that can lose its newest writes, with a stated limit.
#[derive(Debug, Default)]
pub(crate) struct Losing {
    now: MemoryStore,
    may_lose: Duration,
    writes: Mutex<Vec<Written>>,
}

/// The time of an acknowledged write, its key, and the value before it.
type Written = (Instant, Key, Option<Vec<u8>>);

impl Losing {
    pub(crate) fn up_to(may_lose: Duration) -> Arc<Self> {
        Arc::new(Self { may_lose, ..Self::default() })
    }

    /// Takes back the writes of this last span of time. Counters and claims that did not exist before become
    /// empty.
    pub(crate) async fn fail_over(&self, lost: Duration) {
        let from = Instant::now().checked_sub(lost).unwrap();
        let mut writes = std::mem::take(&mut *self.writes.lock().unwrap());
        while let Some((at, key, before)) = writes.pop_if(|(at, ..)| *at > from) {
            assert!(at > from);
            let found = self.now.load(&key).await.unwrap().unwrap();
            let expected = Expected::Revision(found.revision);
            let before = before.unwrap_or_else(|| b"0".to_vec());
            assert!(matches!(self.now.compare_and_set(&key, expected, &before).await, Ok(Swap::Done(_))));
        }
        *self.writes.lock().unwrap() = writes;
    }
}

#[async_trait::async_trait]
impl Store for Losing {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        self.now.load(key).await
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        // Neither call waits for anything, so no other task runs in between.
        let before = self.now.load(key).await?.map(|found| found.value);
        let swap = self.now.compare_and_set(key, expected, value).await?;
        if let Swap::Done(_) = swap {
            self.writes.lock().unwrap().push((Instant::now(), key.clone(), before));
        }
        Ok(swap)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        self.now.list(prefix).await
    }

    fn may_lose(&self) -> Duration {
        self.may_lose
    }

    fn describe(&self) -> String {
        "losing:".to_owned()
    }
}

/// The log of this thread, from level `info` on.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn capture(&self) -> DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::INFO)
            .with_ansi(false)
            .with_writer(move || log.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.0.lock().unwrap()).lines().map(ToOwned::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lines()).finish()
    }
}
