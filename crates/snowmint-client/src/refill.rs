//! Fills the buffer of one namespace, and serves the callers that found it empty: in the order in which they came.
//! One request is in flight at a time. It runs in the background thread of the client, whatever the callers' runtimes do.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use snowmint::fork::ForkMark;
use snowmint::{AnchoredClock, Clock};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::buffer::{Buffer, IdRange};
use crate::error::{ClientError, Failure};
use crate::link::{Answer, Link, Unfilled, lock};
use crate::pace::Pace;
use crate::wire::Ask;

/// After a rejection, ids are requested again for callers only, until this time has passed.
const AFTER_REJECTION: Duration = Duration::from_secs(1);

/// How a namespace is buffered.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The least and the greatest number of ids that are kept.
    pub(crate) sizes: RangeInclusive<u64>,
    pub(crate) max_age: Duration,
    /// How long a caller waits.
    pub(crate) timeout: Duration,
}

/// The ids of one namespace: what callers and the background share.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) namespace: String,
    pub(crate) mark: ForkMark,
    pub(crate) buffer: Buffer<Arc<AnchoredClock>>,
    pub(crate) settings: Settings,
    line: Mutex<Line>,
    wake: Notify,
    /// A draw that does not wait found no id.
    was_empty: AtomicBool,
    last_failure: Mutex<Option<Failure>>,
}

/// Callers that wait.
#[derive(Debug, Default)]
struct Line {
    waiters: VecDeque<Waiter>,
    /// Nobody serves the line any more.
    is_closed: bool,
}

#[derive(Debug)]
struct Waiter {
    missing: u64,
    got: Vec<IdRange>,
    deadline: Instant,
    sender: oneshot::Sender<Result<Vec<IdRange>, ClientError>>,
}

impl Source {
    pub(crate) fn new(
        namespace: &str,
        mark: ForkMark,
        clock: Arc<AnchoredClock>,
        settings: Settings,
    ) -> Self {
        Self {
            namespace: namespace.to_owned(),
            mark,
            buffer: Buffer::new(clock),
            settings,
            line: Mutex::default(),
            wake: Notify::new(),
            was_empty: AtomicBool::new(false),
            last_failure: Mutex::default(),
        }
    }

    /// Has the buffer filled in the background because it is low.
    #[cold]
    pub(crate) fn refill(&self) {
        self.wake.notify_one();
    }

    /// Has ids requested in the background although nobody waits for them.
    #[cold]
    pub(crate) fn refill_empty(&self) {
        self.was_empty.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Waits for ids. The timeout is the background's, so that no runtime is needed here.
    pub(crate) async fn wait(&self, count: u64) -> Result<Vec<IdRange>, ClientError> {
        let (sender, receiver) = oneshot::channel();
        let deadline = Instant::now() + self.settings.timeout;
        {
            let mut line = lock(&self.line);
            if line.is_closed {
                return Err(ClientError::closed(&self.namespace));
            }
            line.waiters.push_back(Waiter { missing: count, got: Vec::new(), deadline, sender });
        }
        self.wake.notify_one();
        receiver.await.unwrap_or_else(|_| Err(ClientError::closed(&self.namespace)))
    }

    /// Forgets callers that left. Returns how many ids the others wait for.
    fn wanted(&self) -> u64 {
        let mut line = lock(&self.line);
        line.waiters.retain(|waiter| !waiter.sender.is_closed());
        line.waiters.iter().fold(0, |sum, waiter| waiter.missing.saturating_add(sum))
    }

    /// When the first caller has waited for long enough.
    fn first_deadline(&self) -> Option<Instant> {
        lock(&self.line).waiters.front().map(|waiter| waiter.deadline)
    }

    /// Gives ids to the callers in line, and the rest to the buffer.
    fn deliver(&self, Answer { ranges, sent }: Answer) {
        let age_ms = u64::try_from(sent.elapsed().as_millis()).unwrap_or(u64::MAX);
        let max_age_ms = u64::try_from(self.settings.max_age.as_millis()).unwrap_or(u64::MAX);
        let until_ms = self.buffer.clock().unix_ms().saturating_sub(age_ms).saturating_add(max_age_ms);
        let mut ranges = VecDeque::from(ranges);
        let served = self.serve(&mut ranges);
        // Before the callers wake: what they see of the buffer is then up to date.
        self.buffer.put(ranges, until_ms);
        for waiter in served {
            if let Err(Ok(unused)) = waiter.sender.send(Ok(waiter.got)) {
                // The caller left, and nobody else has seen them.
                self.buffer.put(unused, until_ms);
            }
        }
    }

    /// Divides ids among the callers in line. Returns those that have all of theirs.
    fn serve(&self, ranges: &mut VecDeque<IdRange>) -> Vec<Waiter> {
        let mut served = Vec::new();
        let mut line = lock(&self.line);
        while let Some(mut waiter) = line.waiters.pop_front() {
            while waiter.missing > 0
                && let Some(range) = ranges.pop_front()
            {
                let (given, rest) = range.split(waiter.missing);
                waiter.missing -= given.count();
                waiter.got.push(given);
                if let Some(rest) = rest {
                    ranges.push_front(rest);
                }
            }
            if waiter.missing > 0 {
                line.waiters.push_front(waiter);
                break;
            }
            served.push(waiter);
        }
        served
    }

    /// Returns an error to every caller in line.
    fn reject(&self, error: &ClientError) {
        let waiters = std::mem::take(&mut lock(&self.line).waiters);
        for waiter in waiters {
            // A caller that left needs no error.
            waiter.sender.send(Err(error.clone())).ok();
        }
    }

    /// Returns an error to each caller that has waited for long enough.
    fn time_out(&self, now: Instant) {
        let failure = lock(&self.last_failure).clone();
        let mut line = lock(&self.line);
        while let Some(waiter) = line.waiters.pop_front_if(|waiter| waiter.deadline <= now) {
            let error = ClientError::timed_out(&self.namespace, self.settings.timeout, failure.as_ref());
            waiter.sender.send(Err(error)).ok();
        }
    }
}

/// Closes the line when the task ends, also by a panic: nobody waits for ever.
struct Closes(Arc<Source>);

impl Drop for Closes {
    fn drop(&mut self) {
        lock(&self.0.line).is_closed = true;
        self.0.reject(&ClientError::closed(&self.0.namespace));
    }
}

/// Fills the buffer whenever it is low, and serves the line.
pub(crate) async fn run(source: Arc<Source>, link: Arc<Link>) {
    let closes = Closes(source);
    let source = &*closes.0;
    let mut pace = Pace::new(source.settings.sizes.clone(), source.settings.max_age);
    let mut rejected_at: Option<Instant> = None;
    loop {
        source.wake.notified().await;
        while let Some(count) = to_request(source, &mut pace, rejected_at) {
            match fetch(source, &link, count).await {
                Ok(answer) => {
                    pace.fitted();
                    rejected_at = None;
                    *lock(&source.last_failure) = None;
                    source.deliver(answer);
                }
                Err(Unfilled::TooMany) => pace.too_many(count),
                Err(Unfilled::Rejected(failure)) => {
                    rejected_at = Some(Instant::now());
                    source.reject(&ClientError::rejected(&source.namespace, &failure));
                }
                Err(Unfilled::Closed(failure)) => {
                    source.reject(&ClientError::rejected(&source.namespace, &failure));
                    // The next caller starts it again.
                    break;
                }
                Err(Unfilled::Late(failure)) => {
                    *lock(&source.last_failure) = Some(failure);
                    source.time_out(Instant::now());
                    if source.first_deadline().is_none() {
                        break;
                    }
                }
            }
        }
    }
}

/// Returns how many ids to request now; `None` if nobody waits and the buffer has enough.
fn to_request(source: &Source, pace: &mut Pace, rejected_at: Option<Instant>) -> Option<u64> {
    let (wanted, level) = (source.wanted(), source.buffer.level());
    let rests = rejected_at.is_some_and(|at| at.elapsed() < AFTER_REJECTION);
    let is_empty = level.left == 0 && source.was_empty.swap(false, Ordering::Relaxed);
    if wanted == 0 && (rests || !(level.is_low || is_empty)) {
        return None;
    }
    pace.adapt(Instant::now(), level.drawn, wanted > 0);
    source.buffer.set_low(pace.low());
    Some(pace.request(wanted, level.left))
}

/// Requests ids, and meanwhile returns errors to the callers that have waited for long enough.
async fn fetch(source: &Source, link: &Link, count: u64) -> Result<Answer, Unfilled> {
    let ask = Ask { namespace: &source.namespace, count };
    let deadline = Instant::now() + source.settings.timeout;
    let mut fetching = std::pin::pin!(link.fetch(ask, deadline, &source.last_failure));
    loop {
        let first = source.first_deadline();
        tokio::select! {
            settled = &mut fetching => return settled,
            () = sleep_until(first.unwrap_or(deadline)), if first.is_some() => source.time_out(Instant::now()),
            () = source.wake.notified() => {}
        }
    }
}
