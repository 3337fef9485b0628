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

    /// Gives ids of the buffer to callers that found it empty just before it was filled.
    fn serve_from_buffer(&self) {
        let mut missing = self.wanted();
        let mut ranges = VecDeque::new();
        while missing > 0
            && let Some(drawn) = self.buffer.draw(missing)
        {
            missing -= drawn.range.count();
            ranges.push_back(drawn.range);
        }
        for waiter in self.serve(&mut ranges) {
            // The ids of a caller that has just left are lost.
            waiter.sender.send(Ok(waiter.got)).ok();
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
    source.serve_from_buffer();
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

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::error::ErrorKind;

    fn source() -> Source {
        let settings = Settings { sizes: 0..=100, max_age: Duration::MAX, timeout: Duration::from_secs(5) };
        Source::new("a", ForkMark::of_this_process(), Arc::new(AnchoredClock::new()), settings)
    }

    fn range(first: u64, count: u64) -> IdRange {
        IdRange::new(first, count, 1).unwrap()
    }

    fn answer(ranges: &[IdRange]) -> Answer {
        Answer { ranges: ranges.to_vec(), sent: Instant::now() }
    }

    /// Polls a future that no runtime drives.
    macro_rules! poll {
        ($future:expr) => {
            $future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
    }

    /// What a caller got, as numbers.
    fn numbers(polled: Poll<Result<Vec<IdRange>, ClientError>>) -> Vec<u64> {
        let Poll::Ready(Ok(ranges)) = polled else { panic!("{polled:?}") };
        ranges.into_iter().flat_map(IdRange::ids).map(snowmint::Id::get).collect()
    }

    #[test]
    fn callers_are_served_in_line_and_the_rest_is_kept() {
        let source = source();
        let (mut first, mut second) = (pin!(source.wait(3)), pin!(source.wait(4)));
        assert!(poll!(first).is_pending() && poll!(second).is_pending());
        assert_eq!(source.wanted(), 7);
        source.deliver(answer(&[range(10, 2), range(20, 3)]));
        assert_eq!(numbers(poll!(first)), [10, 11, 20]);
        assert!(poll!(second).is_pending());
        assert_eq!(source.wanted(), 2);
        source.deliver(answer(&[range(30, 5)]));
        assert_eq!(numbers(poll!(second)), [21, 22, 30, 31]);
        assert_eq!(source.buffer.draw(9).unwrap().range, range(32, 3));
        assert!(source.first_deadline().is_none());
    }

    #[test]
    fn the_ids_of_a_caller_that_left_go_to_the_next() {
        let source = source();
        {
            let mut left = pin!(source.wait(2));
            assert!(poll!(left).is_pending());
        }
        let mut next = pin!(source.wait(1));
        assert!(poll!(next).is_pending());
        source.deliver(answer(&[range(10, 4)]));
        assert_eq!(numbers(poll!(next)), [12]);
        let kept = std::iter::from_fn(|| source.buffer.draw(9)).flat_map(|drawn| drawn.range.ids());
        let mut kept: Vec<_> = kept.map(snowmint::Id::get).collect();
        kept.sort_unstable();
        assert_eq!(kept, [10, 11, 13]);
    }

    #[test]
    fn a_caller_that_just_missed_an_answer_gets_its_ids_without_a_request() {
        let source = source();
        source.deliver(answer(&[range(10, 50)]));
        let mut late = pin!(source.wait(2));
        assert!(poll!(late).is_pending());
        let mut pace = Pace::new(0..=100, Duration::MAX);
        assert_eq!(to_request(&source, &mut pace, None), None);
        assert_eq!(numbers(poll!(late)), [10, 11]);
    }

    #[test]
    fn an_error_goes_to_those_that_waited_for_long_enough() {
        let source = source();
        let mut early = pin!(source.wait(1));
        assert!(poll!(early).is_pending());
        source.time_out(Instant::now());
        assert!(poll!(early).is_pending(), "not before its deadline");
        source.time_out(Instant::now() + Duration::from_secs(5));
        let Poll::Ready(Err(error)) = poll!(early) else { panic!("no error") };
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("no ids of namespace `a` within 5s"), "{error}");
    }

    #[test]
    fn nobody_waits_for_a_task_that_has_ended() {
        let source = Arc::new(source());
        let mut waiting = pin!(source.wait(1));
        assert!(poll!(waiting).is_pending());
        drop(Closes(Arc::clone(&source)));
        for mut polled in [waiting, pin!(source.wait(1))] {
            let Poll::Ready(Err(error)) = poll!(polled) else { panic!("no error") };
            assert_eq!(error.kind(), ErrorKind::Closed);
        }
    }
}
