//! HTTP/2: the preface that tells it from HTTP/1.1, its frames, and the streams of a connection.
//!
//! All streams run in the task of their connection. So a client with thousands of requests in flight gets no more turns than
//! one with a single request. Limits of streams, headers, resets and control frames are h2's own, with the values below.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::HttpService;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use crate::http::response::Body;
use crate::http::timer::{ClientTimer, GuardedBody};
use crate::limits::http::{CHUNK, MAX_HEAD};
use crate::limits::http2::{MAX_FAULTS, MAX_RESETS, MAX_SEND_BUFFER, MAX_STREAMS, STREAM_WINDOW};
use crate::turns::Turn;

/// The first bytes of every HTTP/2 connection (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Length, type, flags and stream of a frame.
const FRAME_HEAD: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// The part of a turn that a request uses, besides the bytes of its answer.
pub(super) const REQUEST_COST: usize = 256;
/// How many bytes of a turn one byte of input uses: a frame of 9 bytes costs as much work as many bytes of an answer.
const READ_COST: usize = 4;

/// The first bytes of a connection, which are a part of its input.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Preface {
    bytes: [u8; PREFACE.len()],
    len: u8,
}

/// Reads until the first bytes are those of HTTP/2, or differ from them.
pub(super) async fn read_preface(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Preface> {
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
    pub(super) fn is_http2(&self) -> bool {
        self.bytes() == PREFACE
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Returns the stream with these bytes before it.
    pub(super) const fn before<S>(self, stream: S) -> Prefaced<S> {
        Prefaced { preface: self, replayed: 0, stream }
    }
}

/// A stream whose first bytes were read before.
#[derive(Debug)]
pub(super) struct Prefaced<S> {
    preface: Preface,
    replayed: u8,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefaced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.replayed < self.preface.len {
            let rest = &self.preface.bytes()[usize::from(self.replayed)..];
            let rest = &rest[..rest.len().min(buffer.remaining())];
            buffer.put_slice(rest);
            // At most 24 bytes.
            self.replayed += u8::try_from(rest.len()).unwrap_or(u8::MAX);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefaced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
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
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }
}

/// A stream that follows the frames of its input. A request that begins and does not arrive has the time limit of a request;
/// pings and settings do not.
#[derive(Debug)]
pub(super) struct FrameStream<'a, S> {
    stream: S,
    frames: Frames,
    timer: ClientTimer,
    turn: &'a Turn,
}

impl<'a, S> FrameStream<'a, S> {
    pub(super) fn new(stream: S, timer: ClientTimer, turn: &'a Turn) -> Self {
        Self { stream, frames: Frames::default(), timer, turn }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FrameStream<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let known = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let this = self.get_mut();
        let read = &buffer.filled()[known..];
        this.turn.spend(read.len() * READ_COST);
        this.frames.read(read);
        this.timer.received(this.frames.is_incomplete());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FrameStream<'_, S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
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
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }
}

/// The position in the frames of a connection.
#[derive(Debug)]
struct Frames {
    head: [u8; FRAME_HEAD],
    /// Bytes of `head` that have arrived.
    in_head: usize,
    /// Bytes of the payload that are still to come. The preface counts as one.
    payload_left: usize,
    /// Whether the headers of a request are to be continued.
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

type StreamTask<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The streams that hyper has started since the connection was last polled.
#[derive(Clone, Default)]
struct NewStreams<'a>(Arc<Mutex<Vec<StreamTask<'a>>>>);

impl<'a, F: Future<Output = ()> + Send + 'a> Executor<F> for NewStreams<'a> {
    fn execute(&self, stream: F) {
        // A panic elsewhere leaves the list whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(stream));
    }
}

impl<'a> NewStreams<'a> {
    fn drain(&self) -> Vec<StreamTask<'a>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A connection of HTTP/2 with its streams.
pub(super) struct Http2Connection<'a, I, S, L>
where
    S: HttpService<Incoming>,
{
    connection: Pin<Box<http2::Connection<I, S, NewStreams<'a>>>>,
    new: NewStreams<'a>,
    /// Streams that wait for ids, or for the client to read.
    streams: Vec<StreamTask<'a>>,
    is_leaving: L,
    is_finishing: bool,
}

impl<'a, I, S, L> Http2Connection<'a, I, S, L>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S: HttpService<Incoming, ResBody = GuardedBody<Body>>,
    S::Future: Send + 'a,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    L: Fn() -> bool,
{
    /// `is_leaving` says whether the client should send its next requests on another connection.
    pub(super) fn new(stream: I, service: S, is_leaving: L) -> Self {
        let new = NewStreams::default();
        let connection = http2::Builder::new(new.clone())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX))
            // Clients that open streams and reset them at once are disconnected.
            .max_pending_accept_reset_streams(MAX_RESETS)
            .max_local_error_reset_streams(MAX_FAULTS)
            // Requests have no bodies.
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(2 * STREAM_WINDOW)
            .max_frame_size(u32::try_from(CHUNK).unwrap_or(u32::MAX))
            .max_send_buf_size(MAX_SEND_BUFFER)
            .serve_connection(stream, service);
        Self { connection: Box::pin(connection), new, streams: Vec::new(), is_leaving, is_finishing: false }
    }

    /// Takes no new streams, and ends when the present ones are answered.
    pub(super) fn graceful_shutdown(mut self: Pin<&mut Self>)
    where
        L: Unpin,
    {
        self.is_finishing = true;
        self.connection.as_mut().graceful_shutdown();
    }
}

impl<'a, I, S, L> Future for Http2Connection<'a, I, S, L>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S: HttpService<Incoming, ResBody = GuardedBody<Body>>,
    S::Future: Send + 'a,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    L: Fn() -> bool + Unpin,
{
    type Output = hyper::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        let this = &mut *self;
        this.streams.retain_mut(|stream| stream.as_mut().poll(cx).is_pending());
        loop {
            if let Poll::Ready(ended) = this.connection.as_mut().poll(cx) {
                return Poll::Ready(ended);
            }
            let new = this.new.drain();
            if !this.is_finishing && (this.is_leaving)() {
                this.is_finishing = true;
                this.connection.as_mut().graceful_shutdown();
            } else if new.is_empty() {
                return Poll::Pending;
            }
            // Most end at once; the connection then sends their answers together.
            let waiting = new.into_iter().filter_map(|mut stream| {
                let is_pending = stream.as_mut().poll(cx).is_pending();
                is_pending.then_some(stream)
            });
            this.streams.extend(waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::TURN;

    /// Goal: a client that sends frames without end, and reads nothing, does not occupy a thread: its turn ends by what it sends.
    #[tokio::test]
    async fn input_uses_up_the_turn() {
        let (turn, timer) = (Turn::default(), ClientTimer::new(crate::Settings::default().timeouts));
        let endless = tokio::io::join(tokio::io::repeat(0), tokio::io::sink());
        let mut stream = FrameStream::new(endless, timer, &turn);
        let mut room = [0; 1024];
        for _ in 0..TURN / READ_COST / room.len() {
            assert!(turn.poll_pass(&mut Context::from_waker(std::task::Waker::noop())).is_ready());
            assert_eq!(stream.read(&mut room).await.unwrap(), room.len());
        }
        assert!(turn.poll_pass(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
    }

    /// Goal: wherever the input is cut, it is incomplete exactly within a frame and within the headers of a request.
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
