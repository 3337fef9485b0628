//! How long a client takes: for its first request, for the rest of one that has begun, and between two of them.
//! hyper has one limit for all three, which would close idle connections as early as half requests.

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

/// No deadline: a request is being answered.
const NONE: u64 = u64::MAX;
/// Set in a deadline of a connection that waits for the first byte of a request.
const IDLE: u64 = 1 << 63;
/// The latest deadline there is; with that mark it differs from none.
const LATEST: u64 = IDLE - 2;

/// When a connection's client has taken too long, kept by what happens on it. The connection's task alone writes it; it is
/// atomic since tasks move between threads.
#[derive(Clone, Debug)]
pub(super) struct Pace(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    began: Instant,
    timeouts: Timeouts,
    /// In milliseconds since it began, and whether the connection is idle.
    deadline: AtomicU64,
    requests: AtomicU64,
}

impl Pace {
    pub(super) fn new(timeouts: Timeouts) -> Self {
        let kept = Kept {
            began: Instant::now(),
            timeouts,
            deadline: AtomicU64::new(IDLE | whole_ms(timeouts.request)),
            requests: AtomicU64::new(0),
        };
        Self(Arc::new(kept))
    }

    /// Whether no request has come yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.0.requests.load(Ordering::Relaxed) == 0
    }

    /// A request has arrived as a whole. Until what this returns is dropped, the client waits for us.
    pub(super) fn request(&self) -> Answering {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        self.0.deadline.store(NONE, Ordering::Relaxed);
        Answering(self.clone())
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

    /// Returns once the client has taken too long. Sleeps from deadline to deadline, so that a request costs no timer.
    pub(super) async fn exceeded(&self) {
        /// Between two looks at a connection without a deadline.
        const LOOK: Duration = Duration::from_secs(1);
        loop {
            let left = if self.is_answering() {
                LOOK
            } else {
                let deadline = self.0.deadline.load(Ordering::Relaxed) & !IDLE;
                let left = Duration::from_millis(deadline).saturating_sub(self.0.began.elapsed());
                if left.is_zero() {
                    return;
                }
                // A request that begins while the connection is idle has an earlier deadline.
                left.min(self.0.timeouts.request)
            };
            tokio::time::sleep(left).await;
        }
    }
}

/// Rounded up, so that nobody is early.
fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).saturating_add(1).min(LATEST)
}

/// While it lives, the client waits for its answer.
#[derive(Debug)]
pub(super) struct Answering(Pace);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answered();
    }
}

/// A body until the end of which the client waits for us.
#[derive(Debug)]
pub(super) struct Answered<B> {
    body: B,
    _answering: Answering,
}

impl<B> Answered<B> {
    pub(super) const fn new(body: B, answering: Answering) -> Self {
        Self { body, _answering: answering }
    }
}

impl<B: Body + Unpin> Body for Answered<B> {
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

/// A connection whose reads are noticed, and which neither reads nor writes when its turn is over: a client that sends and
/// reads as fast as the server never makes it wait.
#[derive(Debug)]
pub(super) struct Paced<'a, T> {
    pub(super) stream: T,
    pub(super) pace: Pace,
    pub(super) turn: &'a Turn,
}

impl<T: Write + Unpin> Paced<'_, T> {
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

impl<T: Read + Unpin> Read for Paced<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.turn.poll_pass(cx));
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        self.pace.read();
        Poll::Ready(read)
    }
}

impl<T: Write + Unpin> Write for Paced<'_, T> {
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

    /// Goal: a client that takes whatever is written, and sends without end, does not keep a thread. Method: a stream that
    /// is always ready.
    #[tokio::test]
    async fn a_connection_neither_writes_nor_reads_after_its_turn() {
        let timeouts = crate::Settings::default().timeouts;
        let turn = Turn::default();
        let stream = TokioIo::new(tokio::io::join(tokio::io::repeat(b' '), tokio::io::sink()));
        let mut paced = Paced { stream, pace: Pace::new(timeouts), turn: &turn };
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut written = 0;
        while let Poll::Ready(wrote) = Pin::new(&mut paced).poll_write(&mut cx, &[0; 16 * 1024]) {
            written += wrote.unwrap();
            assert!(written <= TURN, "{written} bytes");
        }
        assert_eq!(written, TURN);
        let slices = [io::IoSlice::new(b"more")];
        assert!(Pin::new(&mut paced).poll_write_vectored(&mut cx, &slices).is_pending());
        let mut room = [0; 16];
        let mut buffer = ReadBuf::new(&mut room);
        assert!(Pin::new(&mut paced).poll_read(&mut cx, buffer.unfilled()).is_pending());
    }
}
