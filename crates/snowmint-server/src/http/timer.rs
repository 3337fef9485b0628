//! The time limits of an HTTP client: for its first request, for the rest of a request, and between two requests.
//! hyper has one limit for all three, which would close idle connections as early as incomplete requests.
//! HTTP/2 has one more, for a client that reads nothing of its answers: there the kernel does not notice.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::time::Instant;

use crate::limits::HEAR_OUT;
use crate::settings::Timeouts;
use crate::turns::Turn;

/// No deadline, since a request is being answered.
const NONE: u64 = u64::MAX;
/// The flag of a deadline until the first byte of a request.
const IDLE: u64 = 1 << 63;
/// The latest deadline. With the flag it still differs from [`NONE`].
const LATEST: u64 = IDLE - 2;

/// Interval between two checks without a deadline.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The deadline of a client. Only the task of its connection writes it; it is atomic because tasks move between threads.
#[derive(Clone, Debug)]
pub(super) struct ClientTimer(Arc<TimerState>);

#[derive(Debug)]
struct TimerState {
    began: Instant,
    timeouts: Timeouts,
    /// In milliseconds since the connection began, with the flag [`IDLE`].
    deadline: AtomicU64,
    /// The deadline of an idle connection, while a request is arriving.
    idle: AtomicU64,
    requests: AtomicU64,
    /// Requests that have arrived and are not answered yet. Only HTTP/2 has several.
    in_flight: AtomicU32,
    /// Those of them whose answers have not begun.
    preparing: AtomicU32,
    /// Whether a request begins with a frame instead of a byte.
    in_frames: AtomicBool,
    /// Whether the client has sent a request, or read of an answer, since the last check.
    progress: AtomicBool,
}

impl ClientTimer {
    pub(super) fn new(timeouts: Timeouts) -> Self {
        let first = IDLE | whole_ms(timeouts.request);
        let state = TimerState {
            began: Instant::now(),
            timeouts,
            deadline: AtomicU64::new(first),
            idle: AtomicU64::new(first),
            requests: AtomicU64::new(0),
            in_flight: AtomicU32::new(0),
            preparing: AtomicU32::new(0),
            in_frames: AtomicBool::new(false),
            progress: AtomicBool::new(false),
        };
        Self(Arc::new(state))
    }

    /// Returns `true` if no request has arrived yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.0.requests.load(Ordering::Relaxed) == 0
    }

    /// Notes that a request has arrived completely. There is no deadline until the guard is dropped.
    pub(super) fn request(&self) -> AnswerGuard {
        let state = &*self.0;
        add(&state.in_flight);
        add(&state.preparing);
        state.requests.store(state.requests.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        state.deadline.store(NONE, Ordering::Relaxed);
        AnswerGuard { timer: self.clone(), is_preparing: true }
    }

    /// From now on [`received`](Self::received) says when a request begins, and [`stalled`](Self::stalled) works.
    pub(super) fn count_frames(&self) {
        self.0.in_frames.store(true, Ordering::Relaxed);
    }

    fn read(&self) {
        if !self.0.in_frames.load(Ordering::Relaxed) && self.is_idle() {
            self.set(self.0.timeouts.request, 0);
        }
    }

    /// Notes input of HTTP/2, and whether the rest of a frame or of a request is still to come.
    pub(super) fn received(&self, is_incomplete: bool) {
        if self.is_answering() {
            return;
        }
        if is_incomplete && self.is_idle() {
            self.set(self.0.timeouts.request, 0);
        } else if !is_incomplete && !self.is_idle() {
            // It was a ping or the like: these do not prolong the time of an idle connection.
            self.0.deadline.store(self.0.idle.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn is_idle(&self) -> bool {
        self.0.deadline.load(Ordering::Relaxed) & IDLE != 0 && !self.is_answering()
    }

    fn is_answering(&self) -> bool {
        self.0.deadline.load(Ordering::Relaxed) == NONE
    }

    fn set(&self, within: Duration, flag: u64) {
        let deadline = whole_ms(self.0.began.elapsed().saturating_add(within));
        self.0.deadline.store(flag | deadline, Ordering::Relaxed);
    }

    fn answered(&self) {
        if subtract(&self.0.in_flight) > 0 {
            return;
        }
        match self.0.timeouts.idle {
            Some(idle) => self.set(idle, IDLE),
            None => self.0.deadline.store(IDLE | LATEST, Ordering::Relaxed),
        }
        self.0.idle.store(self.0.deadline.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn progressed(&self) {
        self.0.progress.store(true, Ordering::Relaxed);
    }

    /// Returns once the client has read nothing of its answers for the time limit of a write.
    pub(super) async fn stalled(&self) {
        let interval = self.0.timeouts.write.min(CHECK_INTERVAL);
        let mut last = Instant::now();
        loop {
            tokio::time::sleep(interval).await;
            let is_sending = self.is_answering() && self.0.preparing.load(Ordering::Relaxed) == 0;
            if self.0.progress.swap(false, Ordering::Relaxed) || !is_sending {
                last = Instant::now();
            } else if last.elapsed() >= self.0.timeouts.write {
                return;
            }
        }
    }

    /// Returns once no request of HTTP/2 is in flight for [`HEAR_OUT`]; never on HTTP/1.1.
    pub(super) async fn rested(&self) {
        loop {
            let requests = self.0.requests.load(Ordering::Relaxed);
            tokio::time::sleep(HEAR_OUT).await;
            let is_same = self.0.requests.load(Ordering::Relaxed) == requests;
            if is_same && !self.is_answering() && self.0.in_frames.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Returns once the deadline has passed. Sleeps from deadline to deadline, so that a request needs no timer of its own.
    pub(super) async fn exceeded(&self) {
        loop {
            let left = if self.is_answering() {
                CHECK_INTERVAL
            } else {
                let deadline = self.0.deadline.load(Ordering::Relaxed) & !IDLE;
                let left = Duration::from_millis(deadline).saturating_sub(self.0.began.elapsed());
                if left.is_zero() {
                    return;
                }
                // A request may begin meanwhile, which has an earlier deadline.
                left.min(self.0.timeouts.request)
            };
            tokio::time::sleep(left).await;
        }
    }
}

/// Rounds up, so that no client is closed early.
fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).saturating_add(1).min(LATEST)
}

fn add(number: &AtomicU32) {
    number.store(number.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

fn subtract(number: &AtomicU32) -> u32 {
    let left = number.load(Ordering::Relaxed).saturating_sub(1);
    number.store(left, Ordering::Relaxed);
    left
}

/// Suspends the deadline while a request is being answered.
#[derive(Debug)]
pub(super) struct AnswerGuard {
    timer: ClientTimer,
    is_preparing: bool,
}

impl AnswerGuard {
    /// Notes that the answer is ready. From here on, the client has to read.
    pub(super) fn begin_answer(&mut self) {
        if std::mem::replace(&mut self.is_preparing, false) {
            subtract(&self.timer.0.preparing);
            self.timer.progressed();
        }
    }
}

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        self.begin_answer();
        self.timer.answered();
    }
}

/// A body that suspends the deadline until it is sent.
#[derive(Debug)]
pub(super) struct GuardedBody<B> {
    body: B,
    guard: AnswerGuard,
}

impl<B> GuardedBody<B> {
    pub(super) const fn new(body: B, guard: AnswerGuard) -> Self {
        Self { body, guard }
    }
}

impl<B: Body + Unpin> Body for GuardedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        // Over HTTP/2, hyper asks for more when the client has room for it.
        self.guard.timer.progressed();
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that starts the deadline of a request at its first byte, and neither reads nor writes after its turn: a client
/// that sends and reads as fast as the server would never make it wait.
#[derive(Debug)]
pub(super) struct TimedStream<'a, T> {
    pub(super) stream: T,
    pub(super) timer: ClientTimer,
    pub(super) turn: &'a Turn,
}

impl<T: Write + Unpin> TimedStream<'_, T> {
    fn write_in_turn(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.turn.poll_pass(cx));
        let written = ready!(write(Pin::new(&mut self.stream), cx))?;
        self.turn.spend(written);
        Poll::Ready(Ok(written))
    }
}

impl<T: Read + Unpin> Read for TimedStream<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.turn.poll_pass(cx));
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        self.timer.read();
        Poll::Ready(read)
    }
}

impl<T: Write + Unpin> Write for TimedStream<'_, T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write_in_turn(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write_in_turn(cx, |stream, cx| stream.poll_write_vectored(cx, buffers))
    }
}

#[cfg(test)]
mod tests {
    use hyper::rt::ReadBuf;
    use hyper_util::rt::TokioIo;

    use super::*;
    use crate::limits::TURN;

    /// Goal: a client that reads everything and sends without end does not occupy a thread. Method: a stream that is always
    /// ready.
    #[tokio::test]
    async fn a_connection_neither_writes_nor_reads_after_its_turn() {
        let timeouts = crate::Settings::default().timeouts;
        let turn = Turn::default();
        let stream = TokioIo::new(tokio::io::join(tokio::io::repeat(b' '), tokio::io::sink()));
        let mut timed = TimedStream { stream, timer: ClientTimer::new(timeouts), turn: &turn };
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut written = 0;
        while let Poll::Ready(wrote) = Pin::new(&mut timed).poll_write(&mut cx, &[0; 16 * 1024]) {
            written += wrote.unwrap();
            assert!(written <= TURN, "{written} bytes");
        }
        assert_eq!(written, TURN);
        let slices = [io::IoSlice::new(b"more")];
        assert!(Pin::new(&mut timed).poll_write_vectored(&mut cx, &slices).is_pending());
        let mut room = [0; 16];
        let mut buffer = ReadBuf::new(&mut room);
        assert!(Pin::new(&mut timed).poll_read(&mut cx, buffer.unfilled()).is_pending());
    }
}
