//! The state of the fleet over HTTP: once as JSON, or live as server-sent events.
//!
//! A stream begins with the current state and ends when the service shuts down, or when its token is no
//! longer valid. Browsers read it with `fetch`, since an `EventSource` cannot send a token.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream::unfold;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Response};

use crate::access::{Identity, Right};
use crate::fleet::watch::{TooManyViewers, Viewer};
use crate::http::Serving;
use crate::http::operator::Operator;
use crate::http::response::{Body, EventStream, JSON, Problem, ok};
use crate::limits::fleet::WITHIN;
use crate::load::answer_memory::ConnectionAnswers;
use crate::mint::MintError;
use crate::state::shutdown::ShutdownListener;
use crate::status::ErrorKind;

const EVENT_STREAM: &str = "text/event-stream";
/// Tells nginx to send each event at once.
const NO_BUFFERING: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// Answers with the current state, with each state from now on if `path` is that of the events, or with what
/// this node remembers if it is that of the history.
pub(super) async fn answer(
    serving: &Serving<'_>,
    operator: &Operator<'_>,
    method: &Method,
    path: &str,
) -> Result<Response<Body>, Problem> {
    if path == "history" {
        let server = serving.server;
        let json = server.history.json(server.settings.clock.unix_ms());
        return Ok(ok(JSON, Body::whole(if *method == Method::HEAD { Vec::new() } else { json })));
    }
    let is_live = path == "events";
    let media_type = if is_live { EVENT_STREAM } else { JSON };
    let body = if *method == Method::HEAD {
        Body::whole("")
    } else {
        let server = serving.server;
        let viewer = serving.services.fleet.view(server, operator.admin())?;
        if is_live {
            let identity = operator.identity().clone();
            let (shutdown, answers) = (server.shutdown.listener(), serving.peer.answers.clone());
            Body::Events(stream(Watching { viewer, identity, shutdown, answers }))
        } else {
            current(viewer).await?
        }
    };
    let mut response = ok(media_type, body);
    if is_live {
        let (name, value) = NO_BUFFERING;
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

async fn current(mut viewer: Viewer) -> Result<Body, Problem> {
    // A read takes at most twice `WITHIN`: workers, then namespaces.
    match tokio::time::timeout(3 * WITHIN, viewer.next()).await {
        Ok(Some(json)) => Ok(Body::whole(json)),
        _ => Err(Problem::new(ErrorKind::NotReady, "the store did not answer in time".to_owned())),
    }
}

impl From<TooManyViewers> for Problem {
    fn from(error: TooManyViewers) -> Self {
        Self::new(ErrorKind::TooManyClients, error.to_string()).retry_after(Duration::from_secs(10))
    }
}

/// The phase of a stream.
enum Phase {
    Begin(Watching),
    Watch(Watching),
    Ended,
}

struct Watching {
    viewer: Viewer,
    identity: Identity,
    shutdown: ShutdownListener,
    answers: ConnectionAnswers,
}

/// Returns the stream of events that a viewer gets.
fn stream(watching: Watching) -> EventStream {
    EventStream(Box::pin(unfold(Phase::Begin(watching), |phase| async move {
        match phase {
            // At once, so that the client knows that it is connected.
            Phase::Begin(watching) => Some((Bytes::from_static(b"retry: 2000\n\n"), Phase::Watch(watching))),
            Phase::Watch(watching) => Some(watching.next().await),
            Phase::Ended => None,
        }
    })))
}

impl Watching {
    async fn next(mut self) -> (Bytes, Phase) {
        let state = tokio::select! {
            biased;
            () = self.shutdown.clone().ended() => None,
            state = self.viewer.next() => state,
        };
        let Some(state) = state else {
            return (event("end", b"\"this node is shutting down\""), Phase::Ended);
        };
        if let Err(error) = self.may_watch() {
            return (end(&error.to_string()), Phase::Ended);
        }
        let event = event("fleet", &state);
        match self.answers.hold(event.len()) {
            Ok(held) => (Arc::new(held).of(event), Phase::Watch(self)),
            Err(full) => (end(&full.to_string()), Phase::Ended),
        }
    }

    /// A token may be revoked or expire while its holder watches.
    fn may_watch(&mut self) -> Result<(), MintError> {
        self.identity.refresh();
        self.identity.may_everywhere(Right::Admin)
    }
}

/// Returns the last event, with the reason.
fn end(why: &str) -> Bytes {
    // A text always serializes.
    event("end", &serde_json::to_vec(why).unwrap_or_default())
}

/// Returns an event. The JSON has no line breaks.
fn event(name: &str, json: &[u8]) -> Bytes {
    let mut event = BytesMut::with_capacity(name.len() + json.len() + 20);
    for part in [b"event: ", name.as_bytes(), b"\ndata: ", json, b"\n\n"] {
        event.put_slice(part);
    }
    event.freeze()
}
