//! HTTP/2: the preface that distinguishes it from HTTP/1.1, its frames, and the answers of a connection. Both
//! HTTP and gRPC use it.
//!
//! All answers run in the task of their connection. So a client with thousands of requests in flight gets no
//! more turns than one with a single request. Limits of streams, headers, resets and control frames are h2's
//! own, with the values below.

use std::convert::Infallible;
use std::error::Error as _;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hyper::body::{Body, Incoming};
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::{HttpService, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::limits::http2::{
    CONNECTION_WINDOW, MAX_FAULTS, MAX_HEAD, MAX_RESETS, MAX_SEND_BUFFER, MAX_STREAMS, STREAM_WINDOW,
};
use crate::limits::unread::READ_SOON;
use crate::limits::{LAST_REQUESTS, LINGER};
use crate::load::answer_memory::ConnectionAnswers;
use crate::load::fairness::Turn;
use crate::protocol::Admission;
use crate::settings::Timeouts;
use crate::state::shutdown::ShutdownListener;
use crate::wire::http_timeouts::{ClientTimer, DeliveredBody, Delivery, Making};
use crate::wire::stream::Stream;

/// The first bytes of every HTTP/2 connection (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Length, type, flags and stream of a frame.
const FRAME_HEAD: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Bytes of a turn that a request uses, besides those of its answer.
const REQUEST_COST: usize = 256;
/// How many bytes of a turn one byte of input uses: a frame of 9 bytes costs as much work as many bytes of an
/// answer.
const READ_COST: usize = 4;

/// The client of a connection: its turn, its time limits, and how long it is served.
pub(crate) struct Peer<'a> {
    pub(crate) turn: &'a Turn,
    pub(crate) timer: ClientTimer,
    pub(crate) shutdown: ShutdownListener,
    pub(crate) admission: Admission,
    pub(crate) answers: ConnectionAnswers,
}

impl<'a> Peer<'a> {
    pub(crate) fn new(
        turn: &'a Turn,
        timeouts: Timeouts,
        shutdown: ShutdownListener,
        admission: Admission,
        answers: ConnectionAnswers,
    ) -> Self {
        let timeouts = match admission {
            Admission::Client | Admission::Probe => timeouts,
            Admission::Reserved => Timeouts { request: timeouts.request.min(LINGER), ..timeouts },
        };
        Self { turn, timer: ClientTimer::new(timeouts), shutdown, admission, answers }
    }

    /// Returns `true` if the client should send its next request on another connection.
    pub(crate) fn is_leaving(&self) -> bool {
        (self.shutdown.is_leaving() || self.admission == Admission::Reserved) && !self.timer.is_fresh()
    }

    /// Returns once the service ends. A client that was just accepted gets more time: its first request may
    /// be on its way.
    pub(crate) async fn ended(&self) {
        self.shutdown.clone().ended().await;
        if self.timer.is_fresh() {
            sleep(LAST_REQUESTS).await;
        }
    }
}

/// How a connection of HTTP/2 ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By either side, or because it failed.
    Closed,
    /// By input that is not HTTP/2, or a request that did not end in time.
    Broken,
}

/// Serves one connection of HTTP/2. `preface` holds the bytes already read from it.
pub(crate) async fn serve<T, F, R, B>(stream: T, preface: Preface, peer: &Peer<'_>, answer: F) -> Ended
where
    T: AsyncRead + AsyncWrite + Unpin,
    F: Fn(Request<Incoming>, Arc<Delivery>) -> R,
    R: Future<Output = Response<B>> + Send,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let new = NewAnswers::default();
    let service = service_fn(|request| {
        // Requests are small and may come by the hundred in one packet.
        peer.turn.spend(REQUEST_COST);
        let delivery = new.begin(&peer.timer);
        let (making, response) = (Making::of(&delivery), answer(request, delivery));
        async move { Ok::<_, Infallible>(response.await.map(|body| DeliveredBody::new(body, making))) }
    });
    let builder = http2::Builder::new(new.starter())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD)
        // Clients that open streams and reset them at once are disconnected.
        .max_pending_accept_reset_streams(MAX_RESETS)
        .max_local_error_reset_streams(MAX_FAULTS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(MAX_SEND_BUFFER)
        .clone();
    let stream = PeerStream::http2(preface.before(stream), peer);
    let connection = Box::pin(builder.serve_connection(TokioIo::new(stream), service));
    let mut connection = pin!(Http2Connection {
        connection,
        new: &new,
        running: FuturesUnordered::new(),
        tails: Vec::new(),
        timer: None,
        peer,
        phase: Phase::Open,
    });
    let is_late = tokio::select! {
        biased;
        ended = connection.as_mut() => return ended,
        () = peer.timer.exceeded() => true,
        () = peer.ended() => false,
    };
    let mut ended = Ended::Closed;
    if is_late {
        tracing::debug!("HTTP client disconnected; time limit exceeded");
        if peer.timer.is_within_request() {
            ended = Ended::Broken;
        }
        if peer.timer.is_fresh() {
            return ended;
        }
    }
    // Takes no new requests, and ends when the requests in flight are answered.
    connection.as_mut().finish();
    let rested = async { if is_late { sleep(LINGER).await } else { peer.timer.rested().await } };
    tokio::select! {
        biased;
        _ = connection.as_mut() => return ended,
        // A client that does not confirm would otherwise hold its connection.
        () = rested => {}
    }
    peer.timer.hang_up();
    connection.await;
    ended
}

type AnswerTask<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// An answer that hyper makes and sends.
struct Running<'a> {
    delivery: Arc<Delivery>,
    task: AnswerTask<'a>,
}

impl Future for Running<'_> {
    /// The answer, of which some bytes may be unsent.
    type Output = Arc<Delivery>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Arc<Delivery>> {
        ready!(self.task.as_mut().poll(cx));
        Poll::Ready(Arc::clone(&self.delivery))
    }
}

/// The answers that hyper has begun since the connection was last polled.
#[derive(Default)]
struct NewAnswers<'a>(Arc<Mutex<Begun<'a>>>);

/// Receives the tasks of hyper. Each task holds a starter, so the reference is weak: it must not keep the
/// tasks alive.
#[derive(Clone)]
struct Starter<'a>(Weak<Mutex<Begun<'a>>>);

#[derive(Default)]
struct Begun<'a> {
    /// The delivery of the request for which hyper makes a task next.
    next: Option<Arc<Delivery>>,
    running: Vec<Running<'a>>,
}

impl<'a> NewAnswers<'a> {
    fn starter(&self) -> Starter<'a> {
        Starter(Arc::downgrade(&self.0))
    }

    /// Begins the answer to a request that has arrived.
    fn begin(&self, timer: &ClientTimer) -> Arc<Delivery> {
        timer.requested();
        let delivery = Delivery::new(timer.clone());
        self.lock().next = Some(Arc::clone(&delivery));
        delivery
    }

    fn drain(&self) -> Vec<Running<'a>> {
        std::mem::take(&mut self.lock().running)
    }

    fn lock(&self) -> MutexGuard<'_, Begun<'a>> {
        // A panic elsewhere leaves the list consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a, F: Future<Output = ()> + Send + 'a> Executor<F> for Starter<'a> {
    fn execute(&self, task: F) {
        let Some(begun) = self.0.upgrade() else { return };
        let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
        // hyper makes one task for each request; it would make another one for a tunnel, which no request
        // gets.
        if let Some(delivery) = begun.next.take() {
            begun.running.push(Running { delivery, task: Box::pin(task) });
        }
    }
}

/// A connection of HTTP/2 with its answers.
struct Http2Connection<'a, 'p, I, S>
where
    S: HttpService<Incoming>,
{
    connection: Pin<Box<http2::Connection<I, S, Starter<'a>>>>,
    new: &'p NewAnswers<'a>,
    /// Answers that wait for ids, or for the client to read.
    running: FuturesUnordered<Running<'a>>,
    /// Answers whose last bytes wait for the client to read.
    tails: Vec<Arc<Delivery>>,
    timer: Option<Timer>,
    peer: &'p Peer<'p>,
    phase: Phase,
}

/// What a connection of HTTP/2 waits for besides its client.
enum Timer {
    /// The next check for answers that the client does not read.
    Check(Pin<Box<Sleep>>),
    /// The end of the connection, with answers unsent, because the client has ended its input.
    Close(Pin<Box<Sleep>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// No new requests are taken.
    Leaving,
    /// The endless answers must be ended.
    Ending,
    /// The endless answers were ended.
    Ended,
}

impl<'a, I, S, B> Http2Connection<'a, '_, I, S>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S: HttpService<Incoming, ResBody = B>,
    S::Future: Send + 'a,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn finish(mut self: Pin<&mut Self>) {
        self.phase = Phase::Ending;
        self.connection.as_mut().graceful_shutdown();
    }

    /// Ends endless answers, such as a health watch. Each ends by itself in one step unless its client does
    /// not read it. Then its stream is reset, since it would hold the connection for the write time limit.
    #[cold]
    fn end_endless(&mut self, cx: &mut Context<'_>) {
        for mut running in std::mem::take(&mut self.running) {
            match Pin::new(&mut running).poll(cx) {
                Poll::Ready(ended) => self.tails.push(ended),
                // Dropping the task resets its stream.
                Poll::Pending if running.delivery.is_endless() => {}
                Poll::Pending => self.running.push(running),
            }
        }
    }

    /// Runs the answers, and returns `true` if any has ended.
    fn poll_running(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while let Poll::Ready(Some(ended)) = self.running.poll_next_unpin(cx) {
            self.tails.push(ended);
            any = true;
        }
        for mut begun in self.new.drain() {
            any = true;
            // Most end at once; the connection then sends their answers together.
            match Pin::new(&mut begun).poll(cx) {
                Poll::Ready(ended) => self.tails.push(ended),
                Poll::Pending => self.running.push(begun),
            }
        }
        any
    }

    /// Resets answers of which the client has read no byte for the write time limit, or for a few seconds if
    /// others need their memory. The connection ends if the client has read nothing of the other answers
    /// either, or if hyper has the last bytes of such an answer: then it can no longer be reset. Returns once
    /// anything has changed.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.tails.retain(|tail| tail.is_unsent());
        if self.peer.timer.is_hung_up() {
            return Poll::Pending;
        }
        if self.tails.is_empty() && self.running.is_empty() {
            self.timer = None;
            return Poll::Pending;
        }
        let write = self.peer.timer.timeouts().write;
        loop {
            let timer = self.timer.get_or_insert_with(|| Timer::Check(Box::pin(sleep(write))));
            let Timer::Check(check) = timer else { return Poll::Pending };
            let limit = if self.peer.answers.hinders_others() { write.min(READ_SOON) } else { write };
            // What hinders nobody now may do so at the next check.
            if self.peer.answers.is_sharing() {
                let soon = Instant::now() + READ_SOON;
                if check.deadline() > soon {
                    check.as_mut().reset(soon);
                }
            }
            ready!(check.as_mut().poll(cx));
            let is_stalled = |delivery: &Delivery| delivery.left(limit) == Some(Duration::ZERO);
            let deliveries = || self.running.iter().map(|it| &it.delivery).chain(&self.tails);
            let any_stalled = deliveries().any(|it| is_stalled(it));
            let next = deliveries().filter_map(|it| it.left(limit)).filter(|left| !left.is_zero()).min();
            check.as_mut().reset(Instant::now() + next.unwrap_or(limit).min(limit));
            if any_stalled {
                tracing::debug!("HTTP answer reset; the client does not read it");
                if self.peer.timer.reads_nothing_for(limit) || self.tails.iter().any(|tail| is_stalled(tail))
                {
                    self.peer.timer.hang_up();
                }
                // Dropping the task resets its stream.
                let running = std::mem::take(&mut self.running);
                self.running = running.into_iter().filter(|it| !is_stalled(&it.delivery)).collect();
                return Poll::Ready(());
            }
        }
    }

    /// Runs the connection and its answers until both have ended.
    fn poll_served(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        loop {
            self.poll_running(cx);
            if self.phase == Phase::Ending {
                self.phase = Phase::Ended;
                self.end_endless(cx);
            }
            if let Poll::Ready(ended) = self.connection.as_mut().poll(cx) {
                let Err(error) = ended else { return Poll::Ready(Ended::Closed) };
                tracing::debug!(%error, "HTTP connection failed");
                return Poll::Ready(if is_protocol_error(&error) { Ended::Broken } else { Ended::Closed });
            }
            if self.phase == Phase::Open && self.peer.is_leaving() {
                self.phase = Phase::Leaving;
                self.connection.as_mut().graceful_shutdown();
            } else if !self.poll_running(cx) {
                ready!(self.poll_stalled(cx));
            }
        }
    }
}

impl<'a, I, S, B> Future for Http2Connection<'a, '_, I, S>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S: HttpService<Incoming, ResBody = B>,
    S::Future: Send + 'a,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let this = &mut *self;
        if let Poll::Ready(ended) = this.poll_served(cx) {
            return Poll::Ready(ended);
        }
        if !this.peer.timer.is_hung_up() {
            return Poll::Pending;
        }
        // h2 sends everything it has before it ends, so a client that does not read would make it wait
        // forever.
        if !matches!(this.timer, Some(Timer::Close(_))) {
            this.timer = Some(Timer::Close(Box::pin(sleep(2 * LINGER))));
        }
        let Some(Timer::Close(close)) = &mut this.timer else { return Poll::Pending };
        close.as_mut().poll(cx).map(|()| Ended::Closed)
    }
}

/// Returns `true` if the client broke the rules of HTTP/2, for which h2 ended the connection.
fn is_protocol_error(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|error| error.is_go_away() && error.is_library())
}

/// The first bytes of a connection, which are a part of its input.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Preface {
    bytes: [u8; PREFACE.len()],
    len: u8,
}

/// Waits, without a buffer, for the first bytes of a connection, or of a request after a rest. Returns `None`
/// if the client has left or exceeded a time limit, or the service ends.
pub(crate) async fn wait_for_bytes(stream: &mut Stream, peer: &Peer<'_>) -> Option<Preface> {
    tokio::select! {
        // Requests that have arrived are answered even at shutdown.
        biased;
        read = read_preface(stream) => match read {
            Ok(preface) => Some(preface).filter(|it| !it.bytes().is_empty()),
            Err(error) => {
                tracing::debug!(%error, "HTTP connection failed");
                None
            }
        },
        () = peer.timer.exceeded() => {
            tracing::debug!("HTTP client disconnected; no request in time");
            None
        }
        () = peer.ended() => None,
    }
}

/// Reads until the first bytes are those of HTTP/2, or differ from them.
async fn read_preface(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Preface> {
    let mut preface = Preface::default();
    while !preface.is_http2() {
        let len = usize::from(preface.len);
        let read = stream.read(&mut preface.bytes[len..]).await?;
        // At most 24 bytes were read.
        preface.len += u8::try_from(read).unwrap_or(0);
        if read == 0 || !PREFACE.starts_with(preface.bytes()) {
            break;
        }
    }
    Ok(preface)
}

impl Preface {
    pub(crate) fn is_http2(&self) -> bool {
        self.bytes() == PREFACE
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Returns the stream with these bytes before it.
    pub(crate) fn before<T>(&self, stream: T) -> Prefaced<T> {
        Prefaced { first: Bytes::copy_from_slice(self.bytes()), stream }
    }
}

/// A stream whose first bytes were already read.
#[derive(Debug)]
pub(crate) struct Prefaced<T> {
    pub(crate) first: Bytes,
    pub(crate) stream: T,
}

impl<T: AsyncRead + Unpin> Prefaced<T> {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            buffer.put_slice(&self.first.split_to(self.first.len().min(buffer.remaining())));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

/// The stream of a client. It is neither read nor written after the connection's turn: a client that sends
/// and reads as fast as the server would never make the server wait. It tells the timer when a request
/// begins: with its first byte, or with a frame.
pub(crate) struct PeerStream<'a, T> {
    inner: Prefaced<T>,
    /// Only for HTTP/2.
    frames: Option<Frames>,
    timer: ClientTimer,
    turn: &'a Turn,
    lingers: Option<Pin<Box<Sleep>>>,
}

impl<'a, T> PeerStream<'a, T> {
    pub(crate) fn http1(inner: Prefaced<T>, peer: &Peer<'a>) -> Self {
        Self { inner, frames: None, timer: peer.timer.clone(), turn: peer.turn, lingers: None }
    }

    fn http2(inner: Prefaced<T>, peer: &Peer<'a>) -> Self {
        Self { frames: Some(Frames::default()), ..Self::http1(inner, peer) }
    }

    /// Returns the stream, and the first bytes that were not consumed.
    pub(crate) fn into_inner(self) -> Prefaced<T> {
        self.inner
    }
}

impl<T: AsyncWrite + Unpin> PeerStream<'_, T> {
    fn write_in_turn(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.turn.poll_pass(cx));
        let written = write(Pin::new(&mut self.inner.stream), cx);
        self.timer.wrote(written.is_pending());
        let written = ready!(written)?;
        self.turn.spend(written);
        Poll::Ready(Ok(written))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for PeerStream<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.turn.poll_pass(cx));
        if self.timer.is_hung_up() {
            return Poll::Ready(Ok(()));
        }
        let known = buffer.filled().len();
        ready!(self.inner.poll_read(cx, buffer))?;
        let this = self.get_mut();
        let read = &buffer.filled()[known..];
        match &mut this.frames {
            Some(frames) => {
                this.turn.spend(read.len() * READ_COST);
                frames.read(read);
                this.timer.received(frames.is_incomplete());
            }
            None if read.is_empty() => {}
            None => this.timer.received(true),
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for PeerStream<'_, T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write_in_turn(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS accepts bytes that the system has not taken yet. Only a flush shows whether it has.
        let flushed = Pin::new(&mut self.inner.stream).poll_flush(cx);
        self.timer.wrote(flushed.is_pending());
        flushed
    }

    /// A connection of HTTP/2 is read until the client closes it: closing with unread input would discard the
    /// last answers.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.timer.keeps_socket() {
            return Poll::Ready(Ok(()));
        }
        let Self { inner: Prefaced { stream, .. }, lingers, frames, timer, .. } = &mut *self;
        if frames.is_none() {
            // It does not rest any more.
            timer.wrote(true);
        }
        if lingers.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
        }
        if frames.is_none() {
            return Poll::Ready(Ok(()));
        }
        let lingers = lingers.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let mut ignored = [0; 1024];
        loop {
            // Also checked here, since a client that sends without end never lets the timer run.
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
        self.inner.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut room = [0; JOINED];
        if let Some(bytes) = join(slices, &mut room) {
            return self.write_in_turn(cx, |stream, cx| stream.poll_write(cx, bytes));
        }
        self.write_in_turn(cx, |stream, cx| stream.poll_write_vectored(cx, slices))
    }
}

/// The longest answer that is sent as one piece.
const JOINED: usize = 512;

/// Joins the head and the body of a short answer: the system takes one piece in less time than two.
fn join<'r>(slices: &[io::IoSlice<'_>], room: &'r mut [u8; JOINED]) -> Option<&'r [u8]> {
    let mut len = 0;
    for slice in slices {
        room.get_mut(len..len + slice.len())?.copy_from_slice(slice);
        len += slice.len();
    }
    Some(&room[..len])
}

/// The position in the frames of a connection.
#[derive(Debug)]
struct Frames {
    head: [u8; FRAME_HEAD],
    /// Bytes of `head` that have arrived.
    in_head: usize,
    /// Bytes of the payload that are still to come. The preface counts as one.
    payload_left: usize,
    /// Whether a request's headers are to be continued in another frame.
    in_headers: bool,
}

impl Default for Frames {
    fn default() -> Self {
        Self { head: [0; FRAME_HEAD], in_head: 0, payload_left: PREFACE.len(), in_headers: false }
    }
}

impl Frames {
    fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let skipped = self.payload_left.min(bytes.len());
                self.payload_left -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let taken = (FRAME_HEAD - self.in_head).min(bytes.len());
            self.head[self.in_head..][..taken].copy_from_slice(&bytes[..taken]);
            self.in_head += taken;
            bytes = &bytes[taken..];
            if self.in_head == FRAME_HEAD {
                self.in_head = 0;
                let [a, b, c, kind, flags, ..] = self.head;
                self.payload_left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                if matches!(kind, HEADERS | CONTINUATION) {
                    self.in_headers = flags & END_HEADERS == 0;
                }
            }
        }
    }

    /// Returns `true` within a frame, or between the frames of one request's headers.
    const fn is_incomplete(&self) -> bool {
        self.in_head > 0 || self.payload_left > 0 || self.in_headers
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::limits::TURN;
    use crate::load::answer_memory::AnswerMemory;
    use crate::state::shutdown::Shutdown;

    fn answers() -> ConnectionAnswers {
        AnswerMemory::new(Arc::default()).connection()
    }

    /// Goal: a client that reads everything and sends without end does not occupy a thread. Method: a stream
    /// that is always ready; input of HTTP/2 uses up the turn by itself.
    #[tokio::test]
    async fn a_connection_neither_writes_nor_reads_after_its_turn() {
        let (shutdown, timeouts) = (Shutdown::new(), crate::Settings::default().timeouts);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        for (is_http2, reads) in [(false, false), (true, false), (true, true)] {
            // What one task does without a pause is limited by tokio, too.
            tokio::task::yield_now().await;
            let turn = Turn::default();
            let peer = Peer::new(&turn, timeouts, shutdown.listener(), Admission::Client, answers());
            let endless = tokio::io::join(tokio::io::repeat(0), tokio::io::sink());
            let endless = Preface::default().before(endless);
            let mut stream =
                if is_http2 { PeerStream::http2(endless, &peer) } else { PeerStream::http1(endless, &peer) };
            let mut moved = 0;
            loop {
                let mut room = [0; 4096];
                let mut buffer = ReadBuf::new(&mut room);
                let polled = if reads {
                    let read = Pin::new(&mut stream).poll_read(&mut cx, &mut buffer);
                    read.map_ok(|()| buffer.filled().len() * READ_COST)
                } else {
                    Pin::new(&mut stream).poll_write(&mut cx, &[0; 4096])
                };
                let Poll::Ready(bytes) = polled else { break };
                moved += bytes.unwrap();
                assert!(moved <= TURN, "{moved} bytes");
            }
            assert_eq!(moved, TURN);
            let slices = [io::IoSlice::new(b"more")];
            assert!(Pin::new(&mut stream).poll_write_vectored(&mut cx, &slices).is_pending());
            let mut room = [0; 16];
            assert!(Pin::new(&mut stream).poll_read(&mut cx, &mut ReadBuf::new(&mut room)).is_pending());
        }
    }

    /// Goal: a client of HTTP/1.1 does not rest before the system has all its answers. Method: a stream that
    /// accepts bytes before the system does, as TLS does; paused time.
    #[tokio::test(start_paused = true)]
    async fn a_client_does_not_rest_before_its_answer_is_flushed() {
        let (turn, shutdown) = (Turn::default(), Shutdown::new());
        let timeouts = crate::Settings::default().timeouts;
        let peer = Peer::new(&turn, timeouts, shutdown.listener(), Admission::Client, answers());
        let (mut client, stream) = tokio::io::duplex(16);
        let stream = Preface::default().before(tokio::io::BufWriter::new(stream));
        let mut stream = PeerStream::http1(stream, &peer);
        stream.write_all(&[7; 100]).await.unwrap();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(&mut stream).poll_flush(&mut cx).is_pending());
        let within = 5 * crate::limits::REST;
        assert!(tokio::time::timeout(within, peer.timer.pauses()).await.is_err(), "84 bytes are unsent");
        let mut read = [0; 100];
        let (flushed, read) = tokio::join!(stream.flush(), client.read_exact(&mut read));
        assert_eq!((flushed.unwrap(), read.unwrap()), ((), 100));
        let rests = tokio::time::timeout(within, peer.timer.pauses()).await;
        assert_eq!(rests.unwrap(), crate::wire::http_timeouts::Pause::Rests);
    }

    /// Goal: requests that come by the hundred in one packet use up the turn, however small they and their
    /// answers are.
    #[tokio::test]
    async fn requests_use_up_the_turn() {
        let (turn, shutdown) = (Turn::default(), Shutdown::new());
        let timeouts = crate::Settings::default().timeouts;
        let peer = Peer::new(&turn, timeouts, shutdown.listener(), Admission::Client, answers());
        let (mut client, stream) = tokio::io::duplex(64 * 1024);
        let answer = async |_, _| Response::new(http_body_util::Empty::<Bytes>::new());
        let mut serving = pin!(serve(stream, Preface::default(), &peer, |it, to| Box::pin(answer(it, to))));
        client.write_all(&[&PREFACE[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat()).await.unwrap();
        let (mut input, mut stream) = (0, 1_u32);
        for is_over in [false, false, false, true] {
            assert!(turn.poll_pass(&mut Context::from_waker(std::task::Waker::noop())).is_ready());
            for _ in 0..60 {
                // `GET http://a/`, in indexed fields and a literal.
                let request = [
                    &[0, 0, 6, HEADERS, END_HEADERS | 1][..],
                    &stream.to_be_bytes(),
                    b"\x82\x86\x84\x01\x01a",
                ];
                client.write_all(&request.concat()).await.unwrap();
                (input, stream) = (input + 15, stream + 2);
            }
            for _ in 0..10 {
                tokio::task::yield_now().await;
                assert!(
                    serving.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending()
                );
            }
            let pass = turn.poll_pass(&mut Context::from_waker(std::task::Waker::noop()));
            assert_eq!(pass.is_pending(), is_over, "after {input} bytes");
        }
    }

    /// Goal: a client that reads nothing is closed after the write time limit, even where the system has no
    /// such limit. Method: a Unix socket, whose buffer the answers fill; paused time.
    #[cfg(unix)]
    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_closed() {
        let shutdown = Shutdown::new();
        let timeouts = crate::Settings::default().timeouts;
        for (len, within) in [(100, timeouts.idle.unwrap()), (1 << 20, timeouts.write)] {
            let turn = Turn::default();
            let peer = Peer::new(&turn, timeouts, shutdown.listener(), Admission::Client, answers());
            let (mut client, stream) = tokio::net::UnixStream::pair().unwrap();
            let answer = async |_, _| Response::new(Full::new(Bytes::from(vec![7; len])));
            let serving = serve(stream, Preface::default(), &peer, |it, to| Box::pin(answer(it, to)));
            // The largest windows, which only the socket limits.
            let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff];
            let opens = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0, 0, 0];
            client.write_all(&[&PREFACE[..], &settings, &opens].concat()).await.unwrap();
            let (reader, mut writer) = client.into_split();
            // The server may stop reading before it has all requests.
            let requests = tokio::spawn(async move {
                for stream in 0..20_000_u32 {
                    let request = [
                        &[0, 0, 6, HEADERS, END_HEADERS | 1][..],
                        &(2 * stream + 1).to_be_bytes(),
                        b"\x82\x86\x84\x01\x01a",
                    ];
                    if writer.write_all(&request.concat()).await.is_err() {
                        return writer;
                    }
                }
                writer
            });
            let (began, turns) = (Instant::now(), crate::load::fairness::Turns::new());
            let mut serving = pin!(serving);
            let closed = turns.take(&turn, serving.as_mut());
            let closed = tokio::time::timeout(within + 5 * LINGER, closed).await;
            assert!(closed.is_ok(), "answers of {len} bytes: after {:?}", began.elapsed());
            requests.abort();
            drop(reader);
        }
    }

    /// Goal: when a connection ends, answers that it has not begun are dropped with it, although each holds a
    /// handle that could start more.
    #[tokio::test]
    async fn answers_end_with_their_connection() {
        let timer = ClientTimer::new(crate::Settings::default().timeouts);
        let new = NewAnswers::default();
        let delivery = Arc::downgrade(&new.begin(&timer));
        let starter = new.starter();
        new.starter().execute(async move {
            std::future::pending::<()>().await;
            drop(starter);
        });
        assert!(delivery.upgrade().is_some());
        drop(new);
        assert!(delivery.upgrade().is_none());
    }

    /// Goal: wherever the input is cut, it is incomplete exactly within a frame and within the headers of a
    /// request.
    #[test]
    fn frames_are_followed_byte_by_byte() {
        let frame = |kind: u8, flags: u8, len: u8| {
            let head = [0, 0, len, kind, flags, 0, 0, 0, 1];
            head.into_iter().chain((0..len).map(|_| 0xff)).collect::<Vec<u8>>()
        };
        // After each of these the input is complete, or not.
        let parts = [
            (PREFACE.to_vec(), true),
            (frame(4, 0, 0), true),
            (frame(6, 0, 8), true),
            (frame(HEADERS, END_HEADERS, 20), true),
            (frame(HEADERS, 0, 20), false),
            (frame(CONTINUATION, 0, 3), false),
            (frame(CONTINUATION, END_HEADERS, 3), true),
        ];
        let mut frames = Frames::default();
        for (bytes, is_complete) in &parts {
            for byte in &bytes[..bytes.len() - 1] {
                frames.read(&[*byte]);
                assert!(frames.is_incomplete());
            }
            frames.read(&bytes[bytes.len() - 1..]);
            assert_eq!(frames.is_incomplete(), !is_complete, "{bytes:?}");
        }
        let mut at_once = Frames::default();
        at_once.read(&parts.map(|(bytes, _)| bytes).concat());
        assert!(!at_once.is_incomplete());
    }
}
