//! HTTP/1.1: serves one connection with hyper. `request` parses, `handler` asks the mint, `response` writes, `timer` enforces
//! the time limits.

mod handler;
mod leaf;
mod request;
mod response;
mod timer;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::accept::Admission;
use crate::http::timer::{ClientTimer, GuardedBody, TimedStream};
use crate::limits::http::{MAX_HEAD, MAX_HEADERS};
use crate::limits::{HEAR_OUT, LINGER};
use crate::settings::Timeouts;
use crate::shutdown::ShutdownListener;
use crate::state::ServerState;
use crate::turns::Turn;

/// Returns `true` if path and query parse as a route, for fuzzing.
#[doc(hidden)]
pub fn reads_route(path: &str, query: Option<&str>) -> bool {
    request::route(path, query).is_ok()
}

/// Serves one connection until the client leaves, a time limit passes, or the service ends.
pub(crate) async fn serve(
    server: Arc<ServerState>,
    stream: TcpStream,
    admission: Admission,
    shutdown: ShutdownListener,
) {
    let turn = Turn::default();
    let connection = serve_in_turns(&server, stream, admission, shutdown, &turn);
    server.turns.take(&turn, connection).await;
}

async fn serve_in_turns(
    server: &ServerState,
    stream: TcpStream,
    admission: Admission,
    shutdown: ShutdownListener,
    turn: &Turn,
) {
    let ends = shutdown.clone().ended();
    let timeouts = match admission {
        Admission::Client => server.timeouts,
        Admission::Reserved => Timeouts { request: server.timeouts.request.min(LINGER), ..server.timeouts },
    };
    let timer = ClientTimer::new(timeouts);
    // hyper handles one request at a time, so this lock is always free.
    let state = Mutex::new(server.mint.connection_state());
    let service = service_fn(|request| {
        let (shutdown, state, guard) = (&shutdown, &state, timer.request());
        async move {
            let mut state = state.lock().await;
            let response = handler::handle(server, &mut state, shutdown, admission, &request).await;
            Ok::<_, Infallible>(response.map(|body| GuardedBody::new(body, guard)))
        }
    });
    let connection = http1::Builder::new()
        // This limit would apply to idle connections too: `ClientTimer` has one for each.
        .header_read_timeout(None)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        // No `pipeline_flush`: with it, hyper holds back all answers while requests are queued.
        .serve_connection(TimedStream { stream: TokioIo::new(stream), timer: timer.clone(), turn }, service);
    let (mut connection, mut ends, exceeded) = (pin!(connection), pin!(ends), pin!(timer.exceeded()));
    let ended = tokio::select! {
        biased;
        ended = &mut connection => ended,
        () = exceeded => {
            tracing::debug!("HTTP client disconnected; time limit exceeded");
            return;
        }
        () = &mut ends => {
            if timer.is_fresh() {
                // It was just accepted; its first request may be on its way.
                let ended = tokio::time::timeout(HEAR_OUT, connection.as_mut()).await;
                if ended.is_ok() {
                    return;
                }
            }
            // Finishes the request in flight, or closes an idle connection.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "HTTP connection failed");
    }
}
