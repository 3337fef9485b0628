//! HTTP/1.1 and HTTP/2 on one port: serves one connection with hyper. `request` parses, `handler` asks the mint through
//! `client`, `response` writes, `timer` enforces the time limits, `http2` runs the streams of a connection.
//!
//! A client of HTTP/2 begins with a fixed preface, with or without TLS. So the first bytes decide, and no upgrade is needed.

mod client;
mod handler;
mod http2;
mod leaf;
mod request;
mod response;
mod timer;
mod tinyid;

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

use crate::accept::Admission;
use crate::http::client::Client;
use crate::http::http2::{FrameStream, Http2Connection, Preface};
use crate::http::response::Body;
use crate::http::timer::{ClientTimer, GuardedBody, TimedStream};
use crate::limits::http::{MAX_HEAD, MAX_HEADERS};
use crate::limits::{HEAR_OUT, LINGER};
use crate::settings::Timeouts;
use crate::shutdown::ShutdownListener;
use crate::state::ServerState;
use crate::stream::Stream;
use crate::tls::Accepted;
use crate::turns::Turn;

/// The versions that TLS clients may choose, best first.
pub(crate) const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Returns `true` if path and query parse as a route, for fuzzing.
#[doc(hidden)]
pub fn reads_route(path: &str, query: Option<&str>) -> bool {
    request::route(path, query).is_ok()
}

/// Serves one connection until the client leaves, a time limit passes, or the service ends.
pub(crate) async fn serve(
    server: Arc<ServerState>,
    accepted: Accepted,
    admission: Admission,
    shutdown: ShutdownListener,
) {
    let Some(stream) = accepted.establish(&server, &shutdown).await else { return };
    let turn = Turn::default();
    let timeouts = match admission {
        Admission::Client => server.timeouts,
        Admission::Reserved => Timeouts { request: server.timeouts.request.min(LINGER), ..server.timeouts },
    };
    let serving = Serving {
        server: &server,
        admission,
        shutdown,
        turn: &turn,
        timer: ClientTimer::new(timeouts),
        client: Client::new(&server.mint),
    };
    server.turns.take(&turn, serving.run(stream)).await;
}

/// Everything that the requests of one connection share.
struct Serving<'a> {
    server: &'a ServerState,
    admission: Admission,
    shutdown: ShutdownListener,
    turn: &'a Turn,
    timer: ClientTimer,
    client: Client,
}

impl Serving<'_> {
    async fn run(&self, mut stream: Stream) {
        let reading = http2::read_preface(&mut stream);
        let ending = async {
            self.shutdown.clone().ended().await;
            // It was just accepted; its first request may be on its way.
            tokio::time::sleep(HEAR_OUT).await;
        };
        let preface = tokio::select! {
            biased;
            read = reading => match read {
                Ok(preface) => preface,
                Err(error) => return tracing::debug!(%error, "HTTP connection failed"),
            },
            () = self.timer.exceeded() => return tracing::debug!("HTTP client disconnected; no request in time"),
            () = ending => return,
        };
        if preface.is_http2() {
            // Boxed, since it is larger than a connection of HTTP/1.1, which is the usual one.
            Box::pin(self.serve_http2(stream, preface)).await;
        } else {
            self.serve_http1(stream, preface).await;
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<GuardedBody<Body>>, Infallible> {
        let mut guard = self.timer.request();
        let response = handler::handle(self, &request).await;
        guard.begin_answer();
        Ok(response.map(|body| GuardedBody::new(body, guard)))
    }

    async fn serve_http1(&self, stream: Stream, preface: Preface) {
        let has_write_limit = stream.has_write_limit();
        let stalled = async {
            if has_write_limit {
                std::future::pending::<()>().await;
            } else {
                // Boxed, since most connections do not need it.
                Box::pin(self.timer.stalled()).await;
            }
        };
        let stream = TokioIo::new(preface.before(stream));
        let connection = http1::Builder::new()
            // This limit would apply to idle connections too: `ClientTimer` has one for each.
            .header_read_timeout(None)
            .max_buf_size(MAX_HEAD)
            .max_headers(MAX_HEADERS)
            // No `pipeline_flush`: with it, hyper holds back all answers while requests are queued.
            .serve_connection(
                TimedStream { stream, timer: self.timer.clone(), turn: self.turn },
                service_fn(|request| self.answer(request)),
            );
        let connection = pin!(connection);
        tokio::select! {
            () = self.until_ended(connection, http1::Connection::graceful_shutdown) => {}
            () = stalled => tracing::debug!("HTTP client disconnected; it reads nothing"),
        }
    }

    async fn serve_http2(&self, stream: Stream, preface: Preface) {
        self.timer.count_frames();
        let stream = FrameStream::new(preface.before(stream), self.timer.clone(), self.turn);
        let stream = TimedStream { stream: TokioIo::new(stream), timer: self.timer.clone(), turn: self.turn };
        let service = service_fn(|request| {
            // Requests are small and may come by the hundred in one packet.
            self.turn.spend(http2::REQUEST_COST);
            self.answer(request)
        });
        let connection = pin!(Http2Connection::new(stream, service, || self.is_leaving()));
        tokio::select! {
            () = self.until_ended(connection, Http2Connection::graceful_shutdown) => {}
            () = self.timer.stalled() => tracing::debug!("HTTP client disconnected; it reads nothing"),
        }
    }

    /// Returns `true` if the client should send its next request on another connection.
    fn is_leaving(&self) -> bool {
        (self.shutdown.is_leaving() || self.admission == Admission::Reserved) && !self.timer.is_fresh()
    }

    async fn until_ended<C>(&self, mut connection: Pin<&mut C>, finish: impl FnOnce(Pin<&mut C>))
    where
        C: Future<Output = hyper::Result<()>>,
    {
        let (mut ends, exceeded) = (pin!(self.shutdown.clone().ended()), pin!(self.timer.exceeded()));
        let ended = tokio::select! {
            biased;
            ended = &mut connection => ended,
            () = exceeded => {
                tracing::debug!("HTTP client disconnected; time limit exceeded");
                return;
            }
            () = &mut ends => {
                if self.timer.is_fresh() {
                    // It was just accepted; its first request may be on its way.
                    let ended = tokio::time::timeout(HEAR_OUT, connection.as_mut()).await;
                    if ended.is_ok() {
                        return;
                    }
                }
                // Finishes the requests in flight, or closes an idle connection.
                finish(connection.as_mut());
                tokio::select! {
                    biased;
                    ended = connection => ended,
                    // Only of HTTP/2, where a client that does not confirm would hold its connection.
                    () = self.timer.rested() => return,
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "HTTP connection failed");
        }
    }
}
