//! The time limits of an HTTP client: for its first request, for the rest of a request, and between two requests.
//! hyper has one limit for all three, which would close idle connections as early as incomplete requests.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::time::Instant;

use crate::settings::Timeouts;
use crate::turns::Turn;

/// No deadline, since a request is being answered.
const NONE: u64 = u64::MAX;
/// The flag of a deadline until the first byte of a request.
const IDLE: u64 = 1 << 63;
/// The latest deadline. With the flag it still differs from [`NONE`].
const LATEST: u64 = IDLE - 2;

/// The deadline of a client. Only the task of its connection writes it; it is atomic because tasks move between threads.
#[derive(Clone, Debug)]
pub(super) struct ClientTimer(Arc<TimerState>);

#[derive(Debug)]
struct TimerState {
    began: Instant,
    timeouts: Timeouts,
    /// In milliseconds since the connection began, with the flag [`IDLE`].
    deadline: AtomicU64,
    requests: AtomicU64,
}

impl ClientTimer {
    pub(super) fn new(timeouts: Timeouts) -> Self {
        let state = TimerState {
            began: Instant::now(),
            timeouts,
            deadline: AtomicU64::new(IDLE | whole_ms(timeouts.request)),
            requests: AtomicU64::new(0),
        };
        Self(Arc::new(state))
    }

    /// Returns `true` if no request has arrived yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.0.requests.load(Ordering::Relaxed) == 0
    }

    /// Notes that a request has arrived completely. There is no deadline until the guard is dropped.
    pub(super) fn request(&self) -> AnswerGuard {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        self.0.deadline.store(NONE, Ordering::Relaxed);
        AnswerGuard(self.clone())
    }

    fn read(&self) {
        if self.0.deadline.load(Ordering::Relaxed) & IDLE != 0 && !self.is_answering() {
            self.set(self.0.timeouts.request, 0);
        }
    }

    fn is_answering(&self) -> bool {
        self.0.deadline.load(Ordering::Relaxed) == NONE
    }

    fn set(&self, within: Duration, flag: u64) {
        let deadline = whole_ms(self.0.began.elapsed().saturating_add(within));
        self.0.deadline.store(flag | deadline, Ordering::Relaxed);
    }

    fn answered(&self) {
        match self.0.timeouts.idle {
            Some(idle) => self.set(idle, IDLE),
            None => self.0.deadline.store(IDLE | LATEST, Ordering::Relaxed),
        }
    }

    /// Returns once the deadline has passed. Sleeps from deadline to deadline, so that a request needs no timer of its own.
    pub(super) async fn exceeded(&self) {
        /// Interval between two checks without a deadline.
        const CHECK_INTERVAL: Duration = Duration::from_secs(1);
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

/// Suspends the deadline while a request is being answered.
#[derive(Debug)]
pub(super) struct AnswerGuard(ClientTimer);

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        self.0.answered();
    }
}

/// A body that suspends the deadline until it is sent.
#[derive(Debug)]
pub(super) struct GuardedBody<B> {
    body: B,
    _guard: AnswerGuard,
}

impl<B> GuardedBody<B> {
    pub(super) const fn new(body: B, guard: AnswerGuard) -> Self {
        Self { body, _guard: guard }
    }
}

impl<B: Body + Unpin> Body for GuardedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
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
