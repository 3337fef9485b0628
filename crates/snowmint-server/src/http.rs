//! HTTP/1.1: one service for a connection, matched by hand since there are few paths.
//! JSON unless plain text is asked for; failures are problem documents (RFC 9457).

mod accept;
mod answer;
mod body;
mod leaf;
mod problem;
mod request;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::limits::http::{HEAD_WITHIN, MAX_HEAD, MAX_HEADERS};
use crate::mint::Source;
use crate::server::Server;
use crate::shutdown::Draining;

/// What a client hears that finds no place.
pub(crate) const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/problem+json\r\n\
    cache-control: no-store\r\n\
    retry-after: 1\r\n\
    connection: close\r\n\
    content-length: 166\r\n\r\n\
    {\"type\":\"urn:snowmint:too-many-clients\",\"title\":\"Too many connections\",\"status\":503,\
    \"detail\":\"as many connections are open as there may be: close some, or come back\"}";

/// Whether path and query are read as a route.
#[doc(hidden)]
pub fn reads_route(path: &str, query: Option<&str>) -> bool {
    request::route(path, query).is_ok()
}

/// Serves one connection until the client leaves or the service ends.
pub(crate) async fn serve<S: Source>(server: Arc<Server<S>>, stream: TcpStream, draining: Draining) {
    let ends = draining.clone().begun();
    // One request at a time is answered, so nobody ever waits for it.
    let caller = Mutex::new(server.mint.caller());
    let service = service_fn(|request| {
        let (server, draining, caller) = (&*server, &draining, &caller);
        async move {
            let mut caller = caller.lock().await;
            Ok::<_, Infallible>(answer::answer(server, &mut caller, draining, &request).await)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        // Not `pipeline_flush`: while requests are queued, hyper then holds back every answer, however long.
        .serve_connection(TokioIo::new(stream), service);
    let (mut connection, mut ends) = (pin!(connection), pin!(ends));
    let ended = tokio::select! {
        biased;
        ended = &mut connection => ended,
        () = &mut ends => {
            // The request in flight is finished, an idle connection closed.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "HTTP connection broke");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Kind;

    #[test]
    fn the_fixed_refusal_agrees_with_itself_and_with_the_table() {
        let text = std::str::from_utf8(REFUSAL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "it has {}", body.len());
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        let status = Kind::TooManyClients.status();
        assert_eq!(problem["type"], format!("urn:snowmint:{}", status.name));
        assert_eq!((&problem["title"], &problem["status"]), (&status.title.into(), &status.http.into()));
    }
}
