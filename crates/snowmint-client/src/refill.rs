//! Fills the buffer of one namespace, and serves callers that found it empty, first come first served. One
//! request is in flight at a time. It runs in the client's background thread, independent of the callers'
//! runtimes.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use snowmint::fork::ForkMark;
use snowmint::{AnchoredClock, Clock as _};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::buffer::{Aging, BufferedRange, IdBuffer};
use crate::buffer_target::BufferTarget;
use crate::error::ClientError;
use crate::fetcher::{ClientNamespace, FetchedIds, Fetcher, Unfilled, lock};

/// For this time after a rejection, ids are requested only for waiting callers.
const AFTER_REJECTION: Duration = Duration::from_secs(1);

/// The buffer settings of a namespace.
#[derive(Clone, Debug)]
pub(crate) struct BufferSettings {
    /// The minimum and maximum number of buffered ids.
    pub(crate) sizes: RangeInclusive<u64>,
    pub(crate) max_age: Duration,
    /// How long a caller waits.
    pub(crate) timeout: Duration,
}

/// The ids of one namespace, shared by callers and the background task.
#[derive(Debug)]
pub(crate) struct NamespaceIds {
    pub(crate) namespace: Arc<ClientNamespace>,
    pub(crate) mark: ForkMark,
    pub(crate) buffer: IdBuffer<Arc<AnchoredClock>>,
    pub(crate) settings: BufferSettings,
    line: Mutex<WaitingLine>,
    wake: Notify,
}

/// The waiting callers, and what else triggers a request.
#[derive(Debug, Default)]
struct WaitingLine {
    waiters: VecDeque<Waiter>,
    /// Whether a draw that does not wait found no id.
    was_empty: bool,
    generation: Generation,
    /// The generation of the last draw that found no id. Prefetching waits for one in the current generation.
    drawn_in: Generation,
    /// Whether the background task has ended.
    is_closed: bool,
}

/// The number of times that the buffered ids were discarded. Answers to requests of an earlier generation are
/// dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Generation(u64);

#[derive(Debug)]
struct Waiter {
    missing: u64,
    got: Vec<Aging>,
    /// Whether ids that became too old were dropped before; that happens once.
    is_renewed: bool,
    deadline: Instant,
    sender: oneshot::Sender<Result<Vec<Aging>, ClientError>>,
}

impl Waiter {
    /// Drops the ids that became too old while the caller waits for others. Only once, because a call whose
    /// answers take longer than the maximum age would never end.
    fn drop_old(&mut self, now_ms: u64) {
        if self.is_renewed {
            return;
        }
        for old in self.got.extract_if(.., |got| got.is_old(now_ms)) {
            self.missing += old.range.count();
            self.is_renewed = true;
        }
    }
}

impl WaitingLine {
    /// Removes callers that left. Returns how many ids the others are waiting for.
    fn wanted(&mut self, now_ms: u64) -> u64 {
        self.waiters.retain(|waiter| !waiter.sender.is_closed());
        self.waiters.iter_mut().for_each(|waiter| waiter.drop_old(now_ms));
        self.waiters.iter().fold(0, |sum, waiter| waiter.missing.saturating_add(sum))
    }

    /// Divides ids among the waiting callers. Returns those that have all of their ids.
    fn serve(&mut self, ranges: &mut VecDeque<Aging>, now_ms: u64) -> Vec<Waiter> {
        let mut served = Vec::new();
        while let Some(mut waiter) = self.waiters.pop_front() {
            // Only ids of earlier answers: this answer is used however long it took, because the caller had
            // to wait for it.
            waiter.drop_old(now_ms);
            while waiter.missing > 0
                && let Some(Aging { range, until_ms }) = ranges.pop_front()
            {
                let (given, rest) = range.split(waiter.missing);
                waiter.missing -= given.count();
                waiter.got.push(Aging { range: given, until_ms });
                if let Some(range) = rest {
                    ranges.push_front(Aging { range, until_ms });
                }
            }
            if waiter.missing > 0 {
                self.waiters.push_front(waiter);
                break;
            }
            served.push(waiter);
        }
        served
    }
}

impl NamespaceIds {
    pub(crate) fn new(
        namespace: Arc<ClientNamespace>,
        mark: ForkMark,
        clock: Arc<AnchoredClock>,
        settings: BufferSettings,
    ) -> Self {
        Self {
            namespace,
            mark,
            buffer: IdBuffer::new(clock),
            settings,
            line: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Requests a refill in the background because the buffer is low.
    #[cold]
    pub(crate) fn refill(&self) {
        self.wake.notify_one();
    }

    /// Requests ids in the background although no caller is waiting.
    #[cold]
    pub(crate) fn refill_empty(&self) {
        if self.keeps_none() {
            return;
        }
        {
            let mut line = lock(&self.line);
            line.was_empty = true;
            line.drawn_in = line.generation;
        }
        self.wake.notify_one();
    }

    /// Drops every buffered id, and those requested for the buffer. No more are requested until the next
    /// draw.
    pub(crate) fn discard(&self) {
        let mut line = lock(&self.line);
        line.generation.0 += 1;
        line.was_empty = false;
        for waiter in &mut line.waiters {
            waiter.missing += waiter.got.drain(..).map(|got| got.range.count()).sum::<u64>();
        }
        // Under the lock, so that no earlier answer is added afterwards.
        self.buffer.clear();
    }

    /// Returns whether the buffer may hold no ids.
    fn keeps_none(&self) -> bool {
        *self.settings.sizes.end() == 0
    }

    /// Waits for `missing` ids in addition to those that the caller `got` from the buffer, and returns all of
    /// them. The background task enforces the timeout, so that no runtime is needed here.
    pub(crate) async fn wait(
        &self,
        got: Vec<Aging>,
        missing: u64,
    ) -> Result<Vec<BufferedRange>, ClientError> {
        let (sender, receiver) = oneshot::channel();
        let deadline = Instant::now() + self.settings.timeout;
        {
            let mut line = lock(&self.line);
            if line.is_closed {
                return Err(ClientError::closed(&self.namespace.name));
            }
            line.drawn_in = line.generation;
            line.waiters.push_back(Waiter { missing, got, is_renewed: false, deadline, sender });
        }
        self.wake.notify_one();
        let mut receiver = pin!(receiver);
        poll_fn(|context| {
            // The process was forked during the wait: the answer belongs to the parent, and the child has no
            // task that would send one.
            if !self.mark.is_same_process() {
                return Poll::Ready(Err(ClientError::forked(&self.namespace.name)));
            }
            let polled = receiver.as_mut().poll(context);
            polled.map(|sent| match sent {
                Ok(sent) => sent.map(|got| got.into_iter().map(|it| it.range).collect()),
                Err(_) => Err(ClientError::closed(&self.namespace.name)),
            })
        })
        .await
    }

    /// Returns the deadline of the caller that has waited longest.
    fn first_deadline(&self) -> Option<Instant> {
        lock(&self.line).waiters.front().map(|waiter| waiter.deadline)
    }

    /// Hands ids to the waiting callers, and the rest to the buffer. Drops all of them if the buffer was
    /// discarded since the request.
    fn deliver(&self, FetchedIds { ranges, sent_ms }: FetchedIds, requested_in: Generation) {
        let max_age_ms = u64::try_from(self.settings.max_age.as_millis()).unwrap_or(u64::MAX);
        let until_ms = sent_ms.saturating_add(max_age_ms);
        let mut ranges: VecDeque<_> = ranges.into_iter().map(|range| Aging { range, until_ms }).collect();
        let served = {
            let mut line = lock(&self.line);
            if line.generation != requested_in {
                return;
            }
            let served = line.serve(&mut ranges, self.now_ms());
            // Before the callers wake, so that they see an up-to-date buffer.
            self.keep(&line, ranges, requested_in);
            served
        };
        for waiter in served {
            if let Err(Ok(unused)) = waiter.sender.send(Ok(waiter.got)) {
                // The caller left, and nobody else has seen these ids.
                self.keep(&lock(&self.line), unused, requested_in);
            }
        }
    }

    /// Adds ids to the buffer, unless it was discarded since their request or may hold none.
    fn keep(&self, line: &WaitingLine, ranges: impl IntoIterator<Item = Aging>, requested_in: Generation) {
        if line.generation == requested_in && !self.keeps_none() {
            self.buffer.put_all(ranges);
        }
    }

    fn now_ms(&self) -> u64 {
        self.buffer.clock().unix_ms()
    }

    /// Serves callers from the buffer if they found it empty just before it was filled.
    fn serve_from_buffer(&self) {
        let mut line = lock(&self.line);
        let now_ms = self.now_ms();
        let mut missing = line.wanted(now_ms);
        let mut ranges = VecDeque::new();
        while missing > 0
            && let Some(drawn) = self.buffer.draw(missing)
        {
            missing -= drawn.range.count();
            ranges.push_back(drawn.into());
        }
        let served = line.serve(&mut ranges, now_ms);
        drop(line);
        for waiter in served {
            // If the caller has just left, its ids are lost.
            waiter.sender.send(Ok(waiter.got)).ok();
        }
    }

    /// Returns an error to every waiting caller.
    fn reject(&self, error: &ClientError) {
        let waiters = std::mem::take(&mut lock(&self.line).waiters);
        for waiter in waiters {
            // A caller that left needs no error.
            waiter.sender.send(Err(error.clone())).ok();
        }
    }

    /// Returns an error to each caller whose deadline has passed.
    fn time_out(&self, now: Instant) {
        let failure = lock(&self.namespace.last_failure).clone();
        let mut line = lock(&self.line);
        while let Some(waiter) = line.waiters.pop_front_if(|waiter| waiter.deadline <= now) {
            let error = ClientError::timed_out(&self.namespace.name, self.settings.timeout, failure.as_ref());
            waiter.sender.send(Err(error)).ok();
        }
    }
}

/// Rejects all callers when the task ends, even by a panic, so that none waits forever.
struct Closes(Arc<NamespaceIds>);

impl Drop for Closes {
    fn drop(&mut self) {
        lock(&self.0.line).is_closed = true;
        self.0.reject(&ClientError::closed(&self.0.namespace.name));
    }
}

/// Fills the buffer whenever it is low, and serves the waiting callers.
pub(crate) async fn run(source: Arc<NamespaceIds>, fetcher: Arc<Fetcher>) {
    let closes = Closes(source);
    let source = &*closes.0;
    let mut target = BufferTarget::new(source.settings.sizes.clone(), source.settings.max_age);
    let mut rejected_at: Option<Instant> = None;
    loop {
        source.wake.notified().await;
        while let Some((count, generation)) = to_request(source, &mut target, rejected_at) {
            match fetch(source, &fetcher, count).await {
                Ok(answer) => {
                    target.fitted();
                    rejected_at = None;
                    *lock(&source.namespace.last_failure) = None;
                    source.deliver(answer, generation);
                }
                Err(Unfilled::TooMany) => target.too_many(count),
                Err(Unfilled::Rejected(failure)) => {
                    rejected_at = Some(Instant::now());
                    source.reject(&ClientError::rejected(&source.namespace.name, &failure));
                }
                Err(Unfilled::Closed(failure)) => {
                    source.reject(&ClientError::rejected(&source.namespace.name, &failure));
                    // The next caller restarts it.
                    break;
                }
                Err(Unfilled::Late(failure)) => {
                    *lock(&source.namespace.last_failure) = Some(failure);
                    source.time_out(Instant::now());
                    if source.first_deadline().is_none() {
                        break;
                    }
                }
            }
        }
    }
}

/// Returns how many ids to request now, and in which generation; `None` if no caller is waiting and the
/// buffer has enough.
fn to_request(
    source: &NamespaceIds,
    target: &mut BufferTarget,
    rejected_at: Option<Instant>,
) -> Option<(u64, Generation)> {
    source.serve_from_buffer();
    let rests = rejected_at.is_some_and(|at| at.elapsed() < AFTER_REJECTION);
    let (wanted, level, generation) = {
        let mut line = lock(&source.line);
        let (wanted, level) = (line.wanted(source.now_ms()), source.buffer.level());
        let is_empty = level.left == 0 && std::mem::take(&mut line.was_empty);
        let is_low = level.is_low && line.drawn_in == line.generation;
        if wanted == 0 && (rests || !(is_low || is_empty)) {
            return None;
        }
        (wanted, level, line.generation)
    };
    target.adapt(Instant::now(), level.drawn, wanted > 0);
    source.buffer.set_low(target.low());
    Some((target.request(wanted, level.left), generation))
}

/// Requests ids. Meanwhile, returns errors to callers whose deadline has passed.
async fn fetch(source: &NamespaceIds, fetcher: &Fetcher, count: u64) -> Result<FetchedIds, Unfilled> {
    let deadline = Instant::now() + source.settings.timeout;
    let mut fetching = std::pin::pin!(fetcher.fetch(&source.namespace, count, deadline));
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

    fn source() -> NamespaceIds {
        let settings =
            BufferSettings { sizes: 0..=100, max_age: Duration::MAX, timeout: Duration::from_secs(5) };
        let (namespace, clock) = (Arc::new(ClientNamespace::new("a", 1)), Arc::new(AnchoredClock::new()));
        NamespaceIds::new(namespace, ForkMark::of_this_process(), clock, settings)
    }

    fn range(first: u64, count: u64) -> BufferedRange {
        BufferedRange::new(first, count, 1).unwrap()
    }

    fn answer(source: &NamespaceIds, ranges: &[BufferedRange]) -> FetchedIds {
        FetchedIds { ranges: ranges.to_vec(), sent_ms: source.buffer.clock().unix_ms() }
    }

    /// Polls a future without a runtime.
    macro_rules! poll {
        ($future:expr) => {
            $future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
    }

    /// Returns the ids that a caller got, as numbers.
    fn numbers(polled: Poll<Result<Vec<BufferedRange>, ClientError>>) -> Vec<u64> {
        let Poll::Ready(Ok(ranges)) = polled else { panic!("{polled:?}") };
        ranges.into_iter().flat_map(BufferedRange::ids).map(snowmint::Id::get).collect()
    }

    #[test]
    fn callers_are_served_in_line_and_the_rest_is_kept() {
        let source = source();
        let (mut first, mut second) = (pin!(source.wait(Vec::new(), 3)), pin!(source.wait(Vec::new(), 4)));
        assert!(poll!(first).is_pending() && poll!(second).is_pending());
        assert_eq!(lock(&source.line).wanted(0), 7);
        source.deliver(answer(&source, &[range(10, 2), range(20, 3)]), Generation(0));
        assert_eq!(numbers(poll!(first)), [10, 11, 20]);
        assert!(poll!(second).is_pending());
        assert_eq!(lock(&source.line).wanted(0), 2);
        source.deliver(answer(&source, &[range(30, 5)]), Generation(0));
        assert_eq!(numbers(poll!(second)), [21, 22, 30, 31]);
        assert_eq!(source.buffer.draw(9).unwrap().range, range(32, 3));
        assert!(source.first_deadline().is_none());
    }

    #[test]
    fn the_ids_of_a_caller_that_left_go_to_the_next() {
        let source = source();
        {
            let mut left = pin!(source.wait(Vec::new(), 2));
            assert!(poll!(left).is_pending());
        }
        let mut next = pin!(source.wait(Vec::new(), 1));
        assert!(poll!(next).is_pending());
        source.deliver(answer(&source, &[range(10, 4)]), Generation(0));
        assert_eq!(numbers(poll!(next)), [12]);
        let kept = std::iter::from_fn(|| source.buffer.draw(9)).flat_map(|drawn| drawn.range.ids());
        let mut kept: Vec<_> = kept.map(snowmint::Id::get).collect();
        kept.sort_unstable();
        assert_eq!(kept, [10, 11, 13]);
    }

    #[test]
    fn a_caller_that_just_missed_an_answer_gets_its_ids_without_a_request() {
        let source = source();
        source.deliver(answer(&source, &[range(10, 50)]), Generation(0));
        let mut late = pin!(source.wait(Vec::new(), 2));
        assert!(poll!(late).is_pending());
        let mut target = BufferTarget::new(0..=100, Duration::MAX);
        assert_eq!(to_request(&source, &mut target, None), None);
        assert_eq!(numbers(poll!(late)), [10, 11]);
    }

    #[test]
    fn a_discard_drops_what_is_on_its_way_and_nothing_is_requested_until_the_next_draw() {
        let source = source();
        let mut target = BufferTarget::new(100..=100, Duration::MAX);
        // One caller gets a part and leaves; one that stays gets its ids only from later answers.
        let mut stays = pin!(source.wait(Vec::new(), 3));
        assert!(poll!(stays).is_pending());
        source.deliver(answer(&source, &[range(10, 2)]), Generation(0));
        let (_, earlier) = to_request(&source, &mut target, None).unwrap();
        source.discard();
        source.deliver(answer(&source, &[range(20, 50)]), earlier);
        assert!(poll!(stays).is_pending());
        let (count, generation) = to_request(&source, &mut target, None).unwrap();
        assert_eq!((count, generation), (103, Generation(1)));
        source.deliver(answer(&source, &[range(80, 103)]), generation);
        assert_eq!(numbers(poll!(stays)), [80, 81, 82]);
        assert_eq!(source.buffer.level().left, 100);
        source.refill_empty();
        source.discard();
        assert!(source.buffer.level().is_low);
        assert_eq!(to_request(&source, &mut target, None), None);
        source.refill_empty();
        assert_eq!(to_request(&source, &mut target, None), Some((100, Generation(2))));
    }

    #[test]
    fn the_age_of_ids_counts_from_their_request_by_the_clock_of_the_buffer() {
        let mut source = source();
        source.settings.max_age = Duration::from_secs(1);
        let now_ms = || source.buffer.clock().unix_ms();
        let suspended = |ms: u64| source.buffer.clock().advance_to(now_ms() + ms);
        let answer = answer(&source, &[range(10, 5)]);
        suspended(2000);
        source.deliver(answer, Generation(0));
        assert_eq!(source.buffer.level().left, 0, "requested before the machine was suspended");
    }

    #[test]
    fn ids_of_an_earlier_answer_do_not_become_younger() {
        let mut source = source();
        source.settings.max_age = Duration::from_secs(1);
        {
            let mut left = pin!(source.wait(Vec::new(), 3));
            assert!(poll!(left).is_pending());
            source.deliver(answer(&source, &[range(10, 2)]), Generation(0));
        }
        source.buffer.clock().advance_to(source.buffer.clock().unix_ms() + 2000);
        source.deliver(answer(&source, &[range(20, 3)]), Generation(0));
        assert_eq!(source.buffer.draw(9).unwrap().range, range(20, 3));
        assert_eq!(source.buffer.draw(9), None);
    }

    /// Goal: a caller that waits for the rest of its ids gets none that became too old in the meantime,
    /// whatever their source.
    #[test]
    fn ids_that_become_too_old_while_a_caller_waits_are_replaced() {
        let mut source = source();
        source.settings.max_age = Duration::from_mins(1);
        let mut target = BufferTarget::new(0..=0, Duration::MAX);
        let now_ms = source.now_ms();
        let drawn = [(range(1, 2), now_ms + 60_000), (range(5, 1), now_ms + 300_000)];
        let drawn = drawn.map(|(range, until_ms)| Aging { range, until_ms }).to_vec();
        let mut waits = pin!(source.wait(drawn, 3));
        assert!(poll!(waits).is_pending());
        source.deliver(answer(&source, &[range(10, 2)]), Generation(0));
        assert!(poll!(waits).is_pending());
        assert_eq!(lock(&source.line).wanted(source.now_ms()), 1);
        source.buffer.clock().advance_to(now_ms + 120_000);
        assert_eq!(
            to_request(&source, &mut target, None),
            Some((5, Generation(0))),
            "1 is missing, and 4 are too old"
        );
        // A slow answer is used: its caller waited for it.
        let mut slow = answer(&source, &[range(20, 4), range(30, 1)]);
        slow.sent_ms -= 90_000;
        source.deliver(slow, Generation(0));
        assert_eq!(numbers(poll!(waits)), [5, 20, 21, 22, 23, 30]);
    }

    /// Goal: a call ends although all its ids together take longer than their maximum age. Method: 50 ids in
    /// answers of 10, one every 400 ms, with a maximum age of 1 s.
    #[test]
    fn a_call_ends_although_its_ids_take_longer_than_their_maximum_age() {
        let mut source = source();
        source.settings.max_age = Duration::from_secs(1);
        let mut waits = pin!(source.wait(Vec::new(), 50));
        assert!(poll!(waits).is_pending());
        let began_ms = source.now_ms();
        for nth in 0..100 {
            source.buffer.clock().advance_to(began_ms + 400 * nth);
            source.deliver(answer(&source, &[range(1 + 10 * nth, 10)]), Generation(0));
            if let Poll::Ready(ids) = poll!(waits) {
                let ids = numbers(Poll::Ready(ids));
                assert_eq!((ids.len(), ids[0]), (50, 11), "the ids of the first answer became too old");
                return;
            }
        }
        panic!("the call got 1,000 ids and has not ended");
    }

    #[test]
    fn an_error_goes_to_those_that_waited_for_long_enough() {
        let source = source();
        let mut early = pin!(source.wait(Vec::new(), 1));
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
        let mut waiting = pin!(source.wait(Vec::new(), 1));
        assert!(poll!(waiting).is_pending());
        drop(Closes(Arc::clone(&source)));
        for mut polled in [waiting, pin!(source.wait(Vec::new(), 1))] {
            let Poll::Ready(Err(error)) = poll!(polled) else { panic!("no error") };
            assert_eq!(error.kind(), ErrorKind::Closed);
        }
    }
}
