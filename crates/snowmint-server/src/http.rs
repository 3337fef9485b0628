//! HTTP/1.1: one service for a connection, matched by hand since there are few paths.
//! JSON unless plain text is asked for; failures are problem documents (RFC 9457).

mod accept;
mod answer;
mod body;
mod hosts;
mod leaf;
mod pace;
mod problem;
mod request;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::accept::Place;
use crate::http::pace::{Answered, Pace, Paced};
use crate::limits::http::{MAX_HEAD, MAX_HEADERS};
use crate::limits::{HEAR_OUT, LINGER};
use crate::server::Server;
use crate::settings::Timeouts;
use crate::shutdown::Draining;
use crate::turns::Turn;

pub(crate) use accept::Exposition;
pub use hosts::{AllowedHosts, HostError};

/// Whether path and query are read as a route.
#[doc(hidden)]
pub fn reads_route(path: &str, query: Option<&str>) -> bool {
    request::route(path, query).is_ok()
}

/// Serves one connection until the client leaves or takes too long, or the service ends.
pub(crate) async fn serve(server: Arc<Server>, stream: TcpStream, place: Place, draining: Draining) {
    let turn = Turn::default();
    let connection = serve_in_turns(&server, stream, place, draining, &turn);
    server.turns.take(&turn, connection).await;
}

async fn serve_in_turns(server: &Server, stream: TcpStream, place: Place, draining: Draining, turn: &Turn) {
    let ends = draining.clone().begun();
    let timeouts = match place {
        Place::Client => server.timeouts,
        Place::Reserved => Timeouts { request: server.timeouts.request.min(LINGER), ..server.timeouts },
    };
    let client = Pace::new(timeouts);
    // One request at a time is answered, so nobody ever waits for it.
    let caller = Mutex::new(server.mint.caller());
    let service = service_fn(|request| {
        let (draining, caller, answering) = (&draining, &caller, client.request());
        async move {
            let mut caller = caller.lock().await;
            let answer = answer::answer(server, &mut caller, draining, place, &request).await;
            Ok::<_, Infallible>(answer.map(|body| Answered::new(body, answering)))
        }
    });
    let connection = http1::Builder::new()
        // Its one limit is for idle connections too: see `client`.
        .header_read_timeout(None)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        // Not `pipeline_flush`: while requests are queued, hyper then holds back every answer, however long.
        .serve_connection(Paced { stream: TokioIo::new(stream), pace: client.clone(), turn }, service);
    let (mut connection, mut ends, exceeded) = (pin!(connection), pin!(ends), pin!(client.exceeded()));
    let ended = tokio::select! {
        biased;
        ended = &mut connection => ended,
        () = exceeded => {
            tracing::debug!("HTTP client took too long");
            return;
        }
        () = &mut ends => {
            if client.is_fresh() {
                // It was let in a moment ago, and its first request may be under way.
                let ended = tokio::time::timeout(HEAR_OUT, connection.as_mut()).await;
                if ended.is_ok() {
                    return;
                }
            }
            // The request in flight is finished, an idle connection closed.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "HTTP connection broke");
    }
}
