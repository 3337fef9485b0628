//! One call of `Stream`: reads requests, draws, and writes responses in order. It reads a request only when
//! all earlier responses are written, so a client that reads nothing draws nothing.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::Frame;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::draw::{self, Drawn};
use super::message::{Answer, MessageReader};
use super::{BodyFrame, Deadline, Failure, SERVICE, Session, decode_next, end, set_outcome, succeeded};
use crate::access::Identity;
use crate::limits::LAST_REQUESTS;
use crate::limits::grpc::CHUNK;
use crate::limits::unread::{LONG, SMALL};
use crate::load::answer_memory::Held;
use crate::protocol::Protocol;
use crate::request_record::{RequestKind, RequestRecord};
use crate::wire::http_timeouts::Delivery;

/// A running call.
pub(crate) struct StreamCall {
    session: Arc<Session>,
    identity: Identity,
    reader: MessageReader,
    deadline: Deadline,
    delivery: Arc<Delivery>,
    phase: Phase,
    /// Completes with the reason to end the call although the client continues.
    ends: Pin<Box<dyn Future<Output = Failure> + Send>>,
    /// When the shutdown began.
    ending: Option<Instant>,
    /// The record of the current request, which has no span; `None` between two requests.
    record: Option<RequestRecord>,
    /// The record of the call, which has no line.
    call: RequestRecord,
    /// The memory of the chunk that is being made.
    held: Option<Arc<Held>>,
}

enum Phase {
    Reading,
    /// One task, which ends with the call. hyper polls this body only while the client takes data, and the
    /// wait for ids holds a place in line that others wait for.
    Drawing(JoinSet<Outcome>),
    Writing(Answer),
    Ending(Option<Failure>),
    Ended,
}

/// The outcome of a request that waited, with its arrival.
type Outcome = (Instant, Result<Answer, Failure>);

impl StreamCall {
    pub(super) fn new(
        session: Arc<Session>,
        identity: Identity,
        reader: MessageReader,
        deadline: Deadline,
        delivery: Arc<Delivery>,
        call: RequestRecord,
    ) -> Self {
        let shutdown = session.shutdown.clone();
        let ends = Box::pin(async move {
            tokio::select! {
                () = deadline.passed() => Failure::expired(),
                () = shutdown.ended() => Failure::ending(),
            }
        });
        delivery.wait();
        Self {
            session,
            identity,
            reader,
            deadline,
            delivery,
            phase: Phase::Reading,
            ends,
            ending: None,
            record: None,
            call,
            held: None,
        }
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<BodyFrame> {
        let mut chunk = Vec::new();
        loop {
            match &mut self.phase {
                Phase::Writing(answer) => {
                    if let Err(cut) = answer.write(&mut chunk) {
                        return Poll::Ready(Some(Err(cut)));
                    }
                    if answer.is_written() {
                        self.phase = Phase::Reading;
                    }
                    if chunk.len() >= CHUNK - size_of::<u64>() {
                        return self.data(chunk);
                    }
                }
                Phase::Reading => match self.reader.poll_next(cx) {
                    Poll::Ready(Ok(Some(message))) => {
                        if let Err(failure) = self.draw(&message, chunk.len()) {
                            self.fail(failure);
                        }
                    }
                    Poll::Ready(Ok(None)) => {
                        set_outcome(&mut self.call, None);
                        self.phase = Phase::Ending(None);
                    }
                    Poll::Ready(Err(failure)) => self.fail(failure),
                    // Requests that have arrived are answered, even at shutdown.
                    Poll::Pending if !chunk.is_empty() => return self.data(chunk),
                    Poll::Pending => {
                        self.delivery.wait();
                        let failure = ready!(self.ends.as_mut().poll(cx));
                        self.fail(failure);
                    }
                },
                Phase::Drawing(drawing) => {
                    let drawn = match drawing.poll_join_next(cx) {
                        Poll::Ready(drawn) => drawn,
                        Poll::Pending if !chunk.is_empty() => return self.data(chunk),
                        Poll::Pending => return Poll::Pending,
                    };
                    let (came, answer) = match drawn {
                        Some(Ok(drawn)) => drawn,
                        Some(Err(error)) if error.is_panic() => resume_unwind(error.into_panic()),
                        // The runtime ends.
                        Some(Err(_)) | None => {
                            self.fail(Failure::ending());
                            continue;
                        }
                    };
                    match answer {
                        Ok(answer) => self.answer(answer, came),
                        Err(failure) => self.fail(failure),
                    }
                }
                Phase::Ending(_) if !chunk.is_empty() => return self.data(chunk),
                Phase::Ending(failure) => {
                    let trailers = failure.as_ref().map_or_else(succeeded, Failure::trailers);
                    self.phase = Phase::Ended;
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                Phase::Ended => return Poll::Ready(None),
            }
        }
    }

    /// Draws the ids of a request, or starts to wait for them. `unsent` bytes of earlier answers are in the
    /// same chunk.
    fn draw(&mut self, message: &bytes::Bytes, unsent: usize) -> Result<(), Failure> {
        let came = Instant::now();
        self.identity.refresh();
        let mut record = self.record(came);
        let request = decode_next(message, &mut record);
        self.record = Some(record);
        self.deadline.check(came)?;
        if self.session.shutdown.is_ending() && came - *self.ending.get_or_insert(came) > LAST_REQUESTS {
            return Err(Failure::ending());
        }
        self.delivery.make();
        let request = request?;
        let room = draw::room(&self.session.client, &request);
        let is_held = self.held.as_ref().is_some_and(|held| held.bytes() >= room);
        if !is_held && unsent + room > SMALL {
            let room = LONG.max(room);
            self.held = Some(Arc::new(self.session.answers.hold(room)?));
        }
        match draw::try_draw(&self.session.server, &self.identity, &self.session.client, &request) {
            Ok(Drawn::Done(answer)) => self.answer(answer, came),
            Ok(drawn) => {
                let (session, deadline) = (Arc::clone(&self.session), self.deadline);
                let identity = self.identity.clone();
                let mut drawing = JoinSet::new();
                drawing.spawn(async move {
                    let finishing =
                        draw::finish(&session.server, &identity, &session.client, &request, drawn);
                    (came, deadline.bound(finishing).await)
                });
                self.phase = Phase::Drawing(drawing);
            }
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    fn answer(&mut self, answer: Answer, came: Instant) {
        let metrics = &self.session.server.metrics;
        metrics.succeeded(Protocol::Grpc, 1);
        metrics.took(Protocol::Grpc, 1, came.elapsed());
        if let Some(usage) = self.identity.usage() {
            usage.succeeded(1);
        }
        end(self.record.take().unwrap_or_default(), None);
        self.phase = Phase::Writing(answer);
    }

    /// Returns a chunk, which holds its memory until it is sent.
    fn data(&mut self, chunk: Vec<u8>) -> Poll<BodyFrame> {
        let goes_on = matches!(self.phase, Phase::Writing(_) | Phase::Drawing(_));
        let held = if goes_on { self.held.clone() } else { self.held.take() };
        let bytes = match held.filter(|_| chunk.len() > SMALL) {
            Some(held) => held.of(chunk),
            None => chunk.into(),
        };
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn record(&self, came: Instant) -> RequestRecord {
        let request = || (RequestKind::Grpc, format!("{SERVICE}Stream"));
        let mut record = RequestRecord::of_line(Protocol::Grpc, came, request);
        record.sent_by(&self.identity);
        record.named_as(&self.call);
        record
    }

    fn fail(&mut self, failure: Failure) {
        self.session.server.metrics.failed(Protocol::Grpc, failure.kind);
        if let Some(usage) = self.identity.usage() {
            usage.failed(failure.kind);
        }
        // A stream may fail between two requests.
        let record = self.record.take().unwrap_or_else(|| self.record(Instant::now()));
        end(record, Some(failure.kind));
        set_outcome(&mut self.call, Some(failure.kind));
        self.phase = Phase::Ending(Some(failure));
    }
}
