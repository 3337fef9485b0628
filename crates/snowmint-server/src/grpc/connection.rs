//! One connection of HTTP/2, with hyper: its calls run inside its own task, so that a connection has one turn for all of them.
//! `CallTimer` enforces the time limits.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::{Services, Session};
use crate::accept::Admission;
use crate::limits::grpc::{CALL_WINDOW, CHUNK, CONNECTION_WINDOW, MAX_CALLS, MAX_HEADERS};
use crate::limits::{HEAR_OUT, LINGER};
use crate::settings::Timeouts;
use crate::shutdown::ShutdownListener;
use crate::state::ServerState;
use crate::stream::Stream;
use crate::tls::Accepted;
use crate::turns::Turn;

/// Serves one connection until the client leaves, a time limit passes, or the service ends.
pub(crate) async fn serve(
    server: Arc<ServerState>,
    accepted: Accepted,
    admission: Admission,
    shutdown: ShutdownListener,
    services: Arc<Services>,
) {
    let Some(stream) = accepted.establish(&server, &shutdown).await else { return };
    let turn = Turn::default();
    let connection = serve_in_turns(&server, stream, admission, shutdown, services, &turn);
    server.turns.take(&turn, connection).await;
}

async fn serve_in_turns(
    server: &Arc<ServerState>,
    stream: Stream,
    admission: Admission,
    shutdown: ShutdownListener,
    services: Arc<Services>,
    turn: &Turn,
) {
    let timeouts = match admission {
        Admission::Client => server.timeouts,
        Admission::Reserved => Timeouts { request: server.timeouts.request.min(LINGER), ..server.timeouts },
    };
    let timer = CallTimer::new(timeouts);
    let session = Arc::new(Session {
        server: Arc::clone(server),
        services,
        shutdown: shutdown.clone(),
        admission,
        timer: timer.clone(),
        states: Mutex::default(),
    });
    let calls = Calls::default();
    let service = service_fn(|request| Arc::clone(&session).call(request));
    let connection = http2::Builder::new(calls.clone())
        .auto_date_header(false)
        .max_concurrent_streams(MAX_CALLS)
        .max_header_list_size(MAX_HEADERS)
        .initial_stream_window_size(CALL_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(CHUNK)
        .serve_connection(TokioIo::new(TurnStream { stream, turn, lingers: None }), service);
    let (mut connection, mut running) = (pin!(connection), FuturesUnordered::new());
    let (mut ends, mut exceeded) = (pin!(shutdown.ended()), pin!(timer.exceeded()));
    let mut phase = Phase::Serving;
    let ended = poll_fn(|cx| {
        // Requests that have arrived are answered before anything ends.
        loop {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended);
            }
            let started = calls.take();
            let mut any = !started.is_empty();
            running.extend(started);
            while let Poll::Ready(Some(())) = running.poll_next_unpin(cx) {
                any = true;
            }
            if any {
                // It sends what the calls have answered.
                continue;
            }
            let closes = match &mut phase {
                Phase::Serving if ends.as_mut().poll(cx).is_ready() => {
                    phase = Phase::HearingOut(Box::pin(sleep(HEAR_OUT)));
                    continue;
                }
                Phase::Serving => timer.is_closing(),
                // It was just accepted; its first request may be on its way.
                Phase::HearingOut(ending) => !timer.is_fresh() || ending.as_mut().poll(cx).is_ready(),
                Phase::Closing => false,
                Phase::Cutting(within) => {
                    ready!(within.as_mut().poll(cx));
                    return Poll::Ready(Ok(()));
                }
            };
            if closes {
                // It refuses new calls, and ends when the others have ended.
                connection.as_mut().graceful_shutdown();
                phase = Phase::Closing;
                continue;
            }
            ready!(exceeded.as_mut().poll(cx));
            tracing::debug!("gRPC client disconnected; time limit exceeded");
            if timer.is_fresh() {
                return Poll::Ready(Ok(()));
            }
            connection.as_mut().graceful_shutdown();
            phase = Phase::Cutting(Box::pin(sleep(LINGER)));
        }
    })
    .await;
    if let Err(error) = ended {
        tracing::debug!(%error, "gRPC connection failed");
    }
}

/// How far a connection has come.
enum Phase {
    Serving,
    /// The service ends, and no call has arrived yet.
    HearingOut(Pin<Box<Sleep>>),
    /// It ends with its last call.
    Closing,
    /// It ends with its last call, or by this time.
    Cutting(Pin<Box<Sleep>>),
}

type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The calls that hyper has started since the connection last took them over.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<VecDeque<Call>>>);

impl Calls {
    fn take(&self) -> VecDeque<Call> {
        // Each change is one push or take, so a panic elsewhere leaves the queue consistent.
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Calls {
    fn execute(&self, call: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(Box::pin(call));
    }
}

/// What the server waits for in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// The next request of the client.
    Waiting,
    /// The ids.
    Answering,
    /// The client reads the answer.
    Writing,
}

/// The time limits of a connection: for its first call to arrive, between two calls, and for a client that reads nothing.
/// Only the task of its connection writes it; it is atomic because tasks move between threads.
#[derive(Clone, Debug)]
pub(super) struct CallTimer(Arc<TimerState>);

#[derive(Debug)]
struct TimerState {
    began: Instant,
    timeouts: Timeouts,
    calls: AtomicU64,
    answering: AtomicUsize,
    writing: AtomicUsize,
    /// When a call last began, ended or went on, in milliseconds since the connection began.
    active_ms: AtomicU64,
    /// When a client last took a part of an answer.
    progress_ms: AtomicU64,
    closing: AtomicBool,
}

impl CallTimer {
    fn new(timeouts: Timeouts) -> Self {
        Self(Arc::new(TimerState {
            began: Instant::now(),
            timeouts,
            calls: AtomicU64::new(0),
            answering: AtomicUsize::new(0),
            writing: AtomicUsize::new(0),
            active_ms: AtomicU64::new(0),
            progress_ms: AtomicU64::new(0),
            closing: AtomicBool::new(false),
        }))
    }

    /// Notes that a call has begun, and that it ends when the guard is dropped.
    pub(super) fn call(&self) -> CallGuard {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        let guard = CallGuard { timer: self.clone(), activity: Mutex::new(Activity::Waiting) };
        guard.set(Activity::Answering);
        guard
    }

    /// Closes the connection when its calls have ended.
    pub(super) fn close(&self) {
        self.0.closing.store(true, Ordering::Relaxed);
    }

    fn is_closing(&self) -> bool {
        self.0.closing.load(Ordering::Relaxed)
    }

    fn is_fresh(&self) -> bool {
        self.0.calls.load(Ordering::Relaxed) == 0
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the time left; `None` if no limit applies now.
    fn left(&self) -> Option<Duration> {
        let state = &*self.0;
        let since = |ms: &AtomicU64| {
            state.began.elapsed().saturating_sub(Duration::from_millis(ms.load(Ordering::Relaxed)))
        };
        if self.is_fresh() {
            return Some(state.timeouts.request.saturating_sub(state.began.elapsed()));
        }
        if state.writing.load(Ordering::Relaxed) > 0 {
            return Some(state.timeouts.write.saturating_sub(since(&state.progress_ms)));
        }
        if state.answering.load(Ordering::Relaxed) > 0 {
            return None;
        }
        state.timeouts.idle.map(|idle| idle.saturating_sub(since(&state.active_ms)))
    }

    /// Returns once a limit has passed. Sleeps from deadline to deadline, so that a call needs no timer of its own.
    async fn exceeded(&self) {
        /// Interval between two checks: another limit may apply meanwhile.
        const CHECK_INTERVAL: Duration = Duration::from_secs(1);
        loop {
            match self.left() {
                Some(Duration::ZERO) => return,
                left => sleep(left.unwrap_or(CHECK_INTERVAL).min(CHECK_INTERVAL)).await,
            }
        }
    }
}

/// A running call.
#[derive(Debug)]
pub(super) struct CallGuard {
    timer: CallTimer,
    activity: Mutex<Activity>,
}

impl CallGuard {
    pub(super) fn set(&self, activity: Activity) {
        let state = &*self.timer.0;
        let counter = |activity| match activity {
            Activity::Waiting => None,
            Activity::Answering => Some(&state.answering),
            Activity::Writing => Some(&state.writing),
        };
        let mut current = self.activity.lock().unwrap_or_else(PoisonError::into_inner);
        let previous = std::mem::replace(&mut *current, activity);
        if previous == activity {
            return;
        }
        if let Some(counter) = counter(previous) {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
        let now_ms = self.timer.now_ms();
        if activity == Activity::Writing && state.writing.load(Ordering::Relaxed) == 0 {
            state.progress_ms.store(now_ms, Ordering::Relaxed);
        }
        if let Some(counter) = counter(activity) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        state.active_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Notes that the client has taken a part of the answer.
    pub(super) fn progressed(&self) {
        self.timer.0.progress_ms.store(self.timer.now_ms(), Ordering::Relaxed);
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.set(Activity::Waiting);
    }
}

/// A stream that neither reads nor writes after the connection's turn. Before it closes it reads what the client still sends:
/// closing with unread input would discard the last answers.
struct TurnStream<'a, T> {
    stream: T,
    turn: &'a Turn,
    lingers: Option<Pin<Box<Sleep>>>,
}

impl<T: AsyncWrite + Unpin> TurnStream<'_, T> {
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

impl<T: AsyncRead + Unpin> AsyncRead for TurnStream<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.turn.poll_pass(cx));
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.turn.spend(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TurnStream<'_, T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write_in_turn(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, lingers, .. } = &mut *self;
        if lingers.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
        }
        let lingers = lingers.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let mut ignored = [0; 1024];
        loop {
            // Looked at here as well, since a client that sends without end leaves the timer no turn.
            if Instant::now() >= lingers.deadline() {
                return Poll::Ready(Ok(()));
            }
            let mut buffer = ReadBuf::new(&mut ignored);
            match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                // A client that does not close in time is closed.
                Poll::Pending => return lingers.as_mut().poll(cx).map(Ok),
            }
        }
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
    use super::*;
    use crate::limits::TURN;

    /// Goal: a client that reads everything and sends without end does not occupy a thread.
    #[tokio::test]
    async fn a_connection_neither_writes_nor_reads_after_its_turn() {
        for reads in [false, true] {
            let turn = Turn::default();
            let stream = tokio::io::join(tokio::io::repeat(b' '), tokio::io::sink());
            let mut stream = TurnStream { stream, turn: &turn, lingers: None };
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let mut spent = 0;
            loop {
                let mut room = [0; 16 * 1024];
                let mut buffer = ReadBuf::new(&mut room);
                let polled = if reads {
                    Pin::new(&mut stream).poll_read(&mut cx, &mut buffer).map_ok(|()| buffer.filled().len())
                } else {
                    Pin::new(&mut stream).poll_write(&mut cx, &[0; 16 * 1024])
                };
                let Poll::Ready(bytes) = polled else { break };
                spent += bytes.unwrap();
                assert!(spent <= TURN, "{spent} bytes");
            }
            assert_eq!(spent, TURN);
            let slices = [io::IoSlice::new(b"more")];
            assert!(Pin::new(&mut stream).poll_write_vectored(&mut cx, &slices).is_pending());
            let mut room = [0; 16];
            assert!(Pin::new(&mut stream).poll_read(&mut cx, &mut ReadBuf::new(&mut room)).is_pending());
        }
    }

    /// Goal: each limit applies in its phase, and none while ids are made.
    #[tokio::test(start_paused = true)]
    async fn time_limits_of_a_connection() {
        let [request, idle, write] = [3, 20, 7].map(Duration::from_secs);
        let timer = CallTimer::new(Timeouts { idle: Some(idle), request, write });
        assert_eq!(timer.left(), Some(request));
        tokio::time::advance(Duration::from_secs(2)).await;
        let call = timer.call();
        assert_eq!(timer.left(), None);
        tokio::time::advance(Duration::from_secs(30)).await;
        call.set(Activity::Writing);
        assert_eq!(timer.left(), Some(write));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(timer.left(), Some(Duration::from_secs(2)));
        call.progressed();
        assert_eq!(timer.left(), Some(write));
        let other = timer.call();
        drop(call);
        assert_eq!(timer.left(), None, "the other one");
        other.set(Activity::Waiting);
        assert_eq!(timer.left(), Some(idle), "a stream without requests is idle");
        tokio::time::advance(idle).await;
        timer.exceeded().await;
        other.set(Activity::Answering);
        drop(other);
        assert_eq!(timer.left(), Some(idle));
    }
}
