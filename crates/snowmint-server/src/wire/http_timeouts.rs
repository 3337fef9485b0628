//! The time limits of an HTTP client, and its answers on their way to it.
//!
//! A client has a limit for its first request, for the rest of a request, and between two requests. hyper has
//! one limit for all three, which would close idle connections as early as incomplete requests. An answer has
//! a limit too: HTTP/2 has a window for each answer, so a client may read one answer and never read the
//! others. Therefore each answer counts its own bytes.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, sleep};

use crate::limits::{FIRST_REST, LAST_REQUESTS, REST};
use crate::settings::Timeouts;

/// No deadline.
const NEVER: u64 = u64::MAX;

/// The time limits of a client. Only the task of its connection writes them; they are atomic because tasks
/// move between threads.
#[derive(Clone, Debug)]
pub(crate) struct ClientTimer(Arc<TimerState>);

/// Deadlines are in milliseconds since the connection began.
#[derive(Debug)]
struct TimerState {
    began: Instant,
    timeouts: Timeouts,
    /// The deadline for an idle client to send something.
    idle_until: AtomicU64,
    requests: Requests,
    answers: Answers,
    is_hung_up: AtomicBool,
    keeps_socket: AtomicBool,
}

/// What has arrived from the client.
#[derive(Debug)]
struct Requests {
    count: AtomicU64,
    /// Whether the input ends within a request.
    is_incomplete: AtomicBool,
    /// The deadline for the rest of a request that has begun to arrive.
    arrives_until: AtomicU64,
    /// When the next request began to arrive, in nanoseconds since the connection began, if the clock was
    /// read then.
    arrived_ns: AtomicU64,
}

/// The answers on their way to the client.
#[derive(Debug)]
struct Answers {
    /// Those that are being made or sent. Only HTTP/2 has several.
    busy: AtomicU32,
    /// When a byte of any of them was last sent. Only for HTTP/2.
    moved: AtomicU64,
    /// Whether the system currently takes no more bytes of them.
    is_blocked: AtomicBool,
    /// When the one that is being sent was made, if that is the current time.
    made: AtomicU64,
}

/// Why the server stops or pauses serving an HTTP/1.1 client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// A time limit has passed.
    Exceeded,
    /// It has sent nothing for a while, and has all its answers.
    Rests,
}

impl ClientTimer {
    pub(crate) fn new(timeouts: Timeouts) -> Self {
        let state = TimerState {
            began: Instant::now(),
            timeouts,
            idle_until: AtomicU64::new(whole_ms(timeouts.request)),
            requests: Requests {
                count: AtomicU64::new(0),
                is_incomplete: AtomicBool::new(false),
                arrives_until: AtomicU64::new(NEVER),
                arrived_ns: AtomicU64::new(NEVER),
            },
            answers: Answers {
                busy: AtomicU32::new(0),
                moved: AtomicU64::new(0),
                is_blocked: AtomicBool::new(false),
                made: AtomicU64::new(NEVER),
            },
            is_hung_up: AtomicBool::new(false),
            keeps_socket: AtomicBool::new(false),
        };
        Self(Arc::new(state))
    }

    pub(crate) fn timeouts(&self) -> &Timeouts {
        &self.0.timeouts
    }

    /// Returns `true` if no request has arrived yet.
    pub(crate) fn is_fresh(&self) -> bool {
        self.0.requests.count.load(Ordering::Relaxed) == 0
    }

    /// Records input, and whether it ends within a request. Input that completes no request, such as a ping,
    /// does not extend the deadline of an idle connection.
    pub(crate) fn received(&self, is_incomplete: bool) {
        self.0.requests.is_incomplete.store(is_incomplete, Ordering::Relaxed);
        if !is_incomplete {
            self.0.requests.arrives_until.store(NEVER, Ordering::Relaxed);
        } else if !self.is_busy() && self.0.requests.arrives_until.load(Ordering::Relaxed) == NEVER {
            let now = self.0.began.elapsed();
            let until = whole_ms(now.saturating_add(self.0.timeouts.request));
            self.0.requests.arrives_until.store(until, Ordering::Relaxed);
            self.0
                .requests
                .arrived_ns
                .store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Returns when the request that has just arrived began to arrive; the current time if it came together
    /// with others. Only for HTTP/1.1.
    pub(crate) fn arrival(&self) -> Instant {
        match self.0.requests.arrived_ns.load(Ordering::Relaxed) {
            NEVER => Instant::now(),
            ns => {
                self.0.requests.arrived_ns.store(NEVER, Ordering::Relaxed);
                self.0.began + Duration::from_nanos(ns)
            }
        }
    }

    /// Records that a whole answer was made `now` and is sent next, so that its end needs no clock. Only for
    /// HTTP/1.1.
    pub(crate) fn made(&self, now: Instant) {
        self.0.answers.made.store(whole_ms(now - self.0.began), Ordering::Relaxed);
    }

    /// Returns `true` if the input ends within a request.
    pub(crate) fn is_within_request(&self) -> bool {
        self.0.requests.is_incomplete.load(Ordering::Relaxed)
    }

    /// Records that a request has arrived completely.
    pub(crate) fn requested(&self) {
        // Only this task writes it.
        self.0.requests.count.store(self.0.requests.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.0.requests.arrives_until.store(NEVER, Ordering::Relaxed);
    }

    /// Records whether the system takes bytes of answers.
    pub(crate) fn wrote(&self, is_blocked: bool) {
        self.0.answers.is_blocked.store(is_blocked, Ordering::Relaxed);
        if is_blocked {
            self.0.answers.made.store(NEVER, Ordering::Relaxed);
        }
    }

    /// Returns `true` if the client has read no byte of any answer for this time. Only for HTTP/2.
    pub(crate) fn reads_nothing_for(&self, limit: Duration) -> bool {
        self.unmoved_since(&self.0.answers.moved) >= limit
    }

    fn unmoved_since(&self, moved: &AtomicU64) -> Duration {
        Duration::from_millis(self.now().saturating_sub(moved.load(Ordering::Relaxed)))
    }

    /// Ends the input: nothing more is read from this client.
    pub(crate) fn hang_up(&self) {
        self.0.is_hung_up.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_hung_up(&self) -> bool {
        self.0.is_hung_up.load(Ordering::Relaxed)
    }

    /// Sets whether the socket outlives hyper's current connection, which then does not close it.
    pub(crate) fn keep_socket(&self, keeps: bool) {
        self.0.keeps_socket.store(keeps, Ordering::Relaxed);
    }

    pub(crate) fn keeps_socket(&self) -> bool {
        self.0.keeps_socket.load(Ordering::Relaxed)
    }

    fn is_busy(&self) -> bool {
        self.0.answers.busy.load(Ordering::Relaxed) > 0
    }

    fn now(&self) -> u64 {
        whole_ms(self.0.began.elapsed())
    }

    fn work_begins(&self) {
        self.0.answers.busy.store(self.0.answers.busy.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn work_ends(&self) {
        let left = self.0.answers.busy.load(Ordering::Relaxed).saturating_sub(1);
        self.0.answers.busy.store(left, Ordering::Relaxed);
        if left == 0 {
            let now = match self.0.answers.made.load(Ordering::Relaxed) {
                NEVER => self.now(),
                made => made,
            };
            self.0.answers.made.store(NEVER, Ordering::Relaxed);
            let until = self.0.timeouts.idle.map_or(NEVER, |idle| now.saturating_add(whole_ms(idle)));
            self.0.idle_until.store(until, Ordering::Relaxed);
            if self.0.requests.is_incomplete.load(Ordering::Relaxed) {
                self.received(true);
            }
        }
    }

    /// Returns the time left for the client to send; `None` if no limit applies now.
    fn left(&self) -> Option<Duration> {
        if self.is_busy() {
            return None;
        }
        let until = match self.0.requests.arrives_until.load(Ordering::Relaxed) {
            NEVER => self.0.idle_until.load(Ordering::Relaxed),
            until => until,
        };
        (until != NEVER).then(|| Duration::from_millis(until).saturating_sub(self.0.began.elapsed()))
    }

    /// Returns once a time limit has passed. Sleeps from deadline to deadline, so that a request needs no
    /// timer of its own.
    pub(crate) async fn exceeded(&self) {
        let Timeouts { idle, request, .. } = self.0.timeouts;
        // No deadline that starts later is earlier than this.
        let shortest = idle.map_or(request, |idle| idle.min(request));
        loop {
            match self.left() {
                Some(Duration::ZERO) => return,
                left => sleep(left.unwrap_or(shortest).min(shortest)).await,
            }
        }
    }

    /// Returns once a time limit has passed, or once the HTTP/1.1 request that has begun to arrive is
    /// answered and the client rests. Sleeps like [`exceeded`](Self::exceeded).
    pub(crate) fn pauses(&self) -> impl Future<Output = Pause> {
        // Counts the request that has begun; it may be answered before the first poll.
        let mut requests = self.requests() + 1;
        let mut rest = if self.is_fresh() { FIRST_REST } else { REST };
        async move {
            loop {
                let left = self.left();
                if left == Some(Duration::ZERO) {
                    return Pause::Exceeded;
                }
                sleep(left.unwrap_or(rest).min(rest)).await;
                let is_incomplete = self.0.requests.arrives_until.load(Ordering::Relaxed) != NEVER;
                if self.is_done_since(requests) && !is_incomplete {
                    return Pause::Rests;
                }
                (requests, rest) = (self.requests(), REST);
            }
        }
    }

    /// Returns once nothing was left to do for an HTTP/2 client for [`LAST_REQUESTS`].
    pub(crate) async fn rested(&self) {
        loop {
            let requests = self.requests();
            sleep(LAST_REQUESTS).await;
            if self.is_done_since(requests) {
                return;
            }
        }
    }

    fn requests(&self) -> u64 {
        self.0.requests.count.load(Ordering::Relaxed)
    }

    /// Returns `true` if no further request has arrived, and the system has all answers.
    fn is_done_since(&self, requests: u64) -> bool {
        self.requests() == requests && !self.is_busy() && !self.0.answers.is_blocked.load(Ordering::Relaxed)
    }
}

/// Rounds up, so that no client is closed early.
fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(NEVER).saturating_add(1)
}

/// One answer, from the request to the last byte that is sent. The connection is busy with it while it is
/// being made or sent.
#[derive(Debug)]
pub(crate) struct Delivery {
    timer: ClientTimer,
    is_making: AtomicBool,
    /// Whether the answer is endless, so that the service must end it.
    is_endless: AtomicBool,
    /// Bytes that hyper has and the system has not.
    unsent: AtomicUsize,
    /// When a byte was last sent, or the first one was ready. `None` where the system closes a client that
    /// reads nothing.
    moved: Option<AtomicU64>,
}

impl Delivery {
    pub(crate) fn new(timer: ClientTimer) -> Arc<Self> {
        Self::of(timer, Some(AtomicU64::new(0)))
    }

    /// Returns a delivery over a connection that the system closes if its client reads nothing: it needs no
    /// time limit, and so no clock.
    pub(crate) fn limited_by_the_system(timer: ClientTimer) -> Arc<Self> {
        Self::of(timer, None)
    }

    fn of(timer: ClientTimer, moved: Option<AtomicU64>) -> Arc<Self> {
        Arc::new(Self {
            timer,
            is_making: AtomicBool::new(false),
            is_endless: AtomicBool::new(false),
            unsent: AtomicUsize::new(0),
            moved,
        })
    }

    /// Records that the answer is being made.
    pub(crate) fn make(&self) {
        self.update(|| self.is_making.store(true, Ordering::Relaxed));
    }

    /// Records that the answer is made, or that it waits for the client's next message.
    pub(crate) fn wait(&self) {
        self.update(|| self.is_making.store(false, Ordering::Relaxed));
    }

    /// Records that the answer continues until the client or the service ends it.
    pub(crate) fn set_endless(&self) {
        self.is_endless.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_endless(&self) -> bool {
        self.is_endless.load(Ordering::Relaxed)
    }

    fn offer(&self, bytes: usize) {
        if let Some(moved) = &self.moved
            && !self.is_unsent()
        {
            moved.store(self.timer.now(), Ordering::Relaxed);
        }
        self.update(|| self.unsent.store(self.unsent.load(Ordering::Relaxed) + bytes, Ordering::Relaxed));
    }

    fn withdraw(&self, bytes: usize) {
        let left = self.unsent.load(Ordering::Relaxed).saturating_sub(bytes);
        self.update(|| self.unsent.store(left, Ordering::Relaxed));
    }

    fn sent(&self, bytes: usize) {
        if let Some(moved) = &self.moved {
            let now = self.timer.now();
            moved.store(now, Ordering::Relaxed);
            self.timer.0.answers.moved.store(now, Ordering::Relaxed);
        }
        self.withdraw(bytes);
    }

    /// Returns `true` if bytes wait for the client to read.
    pub(crate) fn is_unsent(&self) -> bool {
        self.unsent.load(Ordering::Relaxed) > 0
    }

    fn is_busy(&self) -> bool {
        self.is_making.load(Ordering::Relaxed) || self.is_unsent()
    }

    fn update(&self, change: impl FnOnce()) {
        let was_busy = self.is_busy();
        change();
        match (was_busy, self.is_busy()) {
            (false, true) => self.timer.work_begins(),
            (true, false) => self.timer.work_ends(),
            _ => {}
        }
    }

    /// Returns the time left of `limit` for the client to read a byte of the answer; `None` if no limit
    /// applies now.
    pub(crate) fn left(&self, limit: Duration) -> Option<Duration> {
        let moved = self.moved.as_ref()?;
        self.is_unsent().then(|| limit.saturating_sub(self.timer.unmoved_since(moved)))
    }

    /// Returns once the client has read no byte of the answer for the write time limit.
    pub(crate) async fn stalled(&self) {
        let write = self.timer.0.timeouts.write;
        loop {
            match self.left(write) {
                Some(Duration::ZERO) => return,
                left => sleep(left.unwrap_or(write)).await,
            }
        }
    }
}

/// Ends the making of an answer when it is dropped.
#[derive(Debug)]
pub(crate) struct Making(Arc<Delivery>);

impl Making {
    pub(crate) fn of(delivery: &Arc<Delivery>) -> Self {
        delivery.make();
        Self(Arc::clone(delivery))
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.0.wait();
    }
}

/// A body whose bytes are tracked until they are sent.
#[derive(Debug)]
pub(crate) struct DeliveredBody<B> {
    body: B,
    making: Making,
}

impl<B> DeliveredBody<B> {
    pub(crate) const fn new(body: B, making: Making) -> Self {
        Self { body, making }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for DeliveredBody<B> {
    type Data = DeliveredBytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<DeliveredBytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let followed = |bytes| DeliveredBytes::new(bytes, &self.making.0);
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(followed))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes of an answer, which count as unsent until they are written or dropped.
#[derive(Debug)]
pub(crate) struct DeliveredBytes {
    bytes: Bytes,
    delivery: Arc<Delivery>,
}

impl DeliveredBytes {
    fn new(bytes: Bytes, delivery: &Arc<Delivery>) -> Self {
        delivery.offer(bytes.len());
        Self { bytes, delivery: Arc::clone(delivery) }
    }
}

impl Buf for DeliveredBytes {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, sent: usize) {
        self.bytes.advance(sent);
        self.delivery.sent(sent);
    }
}

impl Drop for DeliveredBytes {
    fn drop(&mut self) {
        self.delivery.withdraw(self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUTS: Timeouts = Timeouts {
        idle: Some(Duration::from_secs(20)),
        request: Duration::from_secs(3),
        write: Duration::from_secs(7),
    };

    async fn advance(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    /// Checks the time left, which is rounded up to milliseconds.
    fn assert_left(left: Option<Duration>, seconds: u64) {
        let left = left.expect("a limit applies");
        let wanted = Duration::from_secs(seconds);
        assert!(left.abs_diff(wanted) <= Duration::from_millis(2), "{left:?} and not {wanted:?}");
    }

    /// Goal: each limit applies in its phase, and none while ids are made.
    #[tokio::test(start_paused = true)]
    async fn time_limits_of_a_client() {
        let timer = ClientTimer::new(TIMEOUTS);
        assert_left(timer.left(), 3);
        advance(2).await;
        timer.received(true);
        assert_left(timer.left(), 3);
        timer.requested();
        let (call, other) = (Delivery::new(timer.clone()), Delivery::new(timer.clone()));
        let making = Making::of(&call);
        timer.received(false);
        advance(30).await;
        assert_eq!((timer.left(), call.left(TIMEOUTS.write)), (None, None));
        let making_other = Making::of(&other);
        drop(making);
        assert_eq!(timer.left(), None, "the other one");
        other.wait();
        assert_left(timer.left(), 20);
        advance(5).await;
        timer.received(true);
        assert_left(timer.left(), 3);
        timer.received(false);
        assert_left(timer.left(), 15);
        other.make();
        timer.received(true);
        advance(5).await;
        drop(making_other);
        assert_left(timer.left(), 3);
        advance(4).await;
        timer.exceeded().await;
    }

    /// Goal: a new client rests soon after its only request, any other client after a second, and none within
    /// a request.
    #[tokio::test(start_paused = true)]
    async fn clients_rest() {
        let timer = ClientTimer::new(TIMEOUTS);
        let delivery = Delivery::new(timer.clone());
        let request = || {
            timer.requested();
            drop(Making::of(&delivery));
        };
        let rests = async |pauses| {
            let began = Instant::now();
            assert_eq!(Pin::from(pauses).await, Pause::Rests);
            began.elapsed()
        };
        let boxed = || -> Box<dyn Future<Output = Pause>> { Box::new(timer.pauses()) };
        let pauses = boxed();
        request();
        assert_eq!(rests(pauses).await, FIRST_REST, "the only request");
        let pauses = boxed();
        request();
        assert_eq!(rests(pauses).await, REST, "the second request");
        let pauses = boxed();
        request();
        request();
        assert_eq!(rests(pauses).await, 2 * REST, "more requests");
        timer.received(true);
        let began = Instant::now();
        assert_eq!(timer.pauses().await, Pause::Exceeded, "within a request");
        assert_eq!(began.elapsed().as_secs(), TIMEOUTS.request.as_secs());
    }

    /// Goal: progress of one answer does not count for another, and an answer lasts until its last byte is
    /// written.
    #[tokio::test(start_paused = true)]
    async fn each_answer_has_its_own_progress() {
        let timer = ClientTimer::new(TIMEOUTS);
        let (stalled, read) = (Delivery::new(timer.clone()), Delivery::new(timer.clone()));
        let bytes = |delivery| DeliveredBytes::new(Bytes::from_static(&[0; 100]), delivery);
        let (unread, mut taken) = (bytes(&stalled), bytes(&read));
        assert_eq!(
            (stalled.left(TIMEOUTS.write), read.left(TIMEOUTS.write)),
            (Some(TIMEOUTS.write), Some(TIMEOUTS.write))
        );
        for _ in 0..6 {
            advance(1).await;
            taken.advance(10);
        }
        assert_left(stalled.left(TIMEOUTS.write), 1);
        assert_left(stalled.left(Duration::from_secs(6)), 0);
        assert_left(read.left(TIMEOUTS.write), 7);
        advance(2).await;
        stalled.stalled().await;
        assert_left(read.left(TIMEOUTS.write), 5);
        taken.advance(40);
        assert_eq!((read.left(TIMEOUTS.write), timer.left()), (None, None), "the other one is unsent");
        assert!(!timer.reads_nothing_for(TIMEOUTS.write), "it has read of the other one");
        advance(7).await;
        assert!(timer.reads_nothing_for(TIMEOUTS.write));
        drop(unread);
        assert!(!stalled.is_unsent());
        assert_left(timer.left(), 20);
    }
}
