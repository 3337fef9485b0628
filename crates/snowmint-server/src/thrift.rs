//! Twitter's Snowflake service over Apache Thrift: answers the calls of a connection. `codec` parses and
//! writes messages.
//!
//! The interface is that of `snowflake.thrift`, on the framed transport and the binary protocol, as the
//! original server had them (<https://github.com/twitter-archive/snowflake>). An unframed message is
//! recognised and answered unframed.
//!
//! All ids come from one namespace, whose ids must be plain numbers. The user agent is checked as the
//! original server did, and not recorded.

pub mod codec;

use std::io;
use std::sync::Arc;

use snowmint::error::Snippet;
use snowmint::{Clock as _, WallClock};
use snowmint_cluster::NamespaceName;
use tokio::time::Instant;

use crate::access::secret::TokenName;
use crate::access::{Identity, Right};
use crate::limits::MAX_REPEATS;
use crate::mint::{Backend, ConnectionState, MintError, Minted, Namespace, Taken};
use crate::protocol::Protocol;
use crate::request_record::{self, RequestKind, RequestRecord};
use crate::status::ErrorKind;
use crate::telemetry::access_log::{self, OK};
use crate::wire::listener::Listener;
use crate::wire::{Dialogue, End, Wire};
use codec::{ApplicationError, Declared, Request, parse};

/// The open port of the Thrift service, and the namespace that it serves.
#[derive(Debug)]
pub struct ThriftListener {
    /// The port.
    pub listener: Listener,
    /// The namespace whose ids clients get.
    pub namespace: NamespaceName,
    /// How clients learn of an invalid user agent or clock.
    pub exceptions: ThriftExceptions,
    /// The token whose rights and quotas all clients use, since they cannot send one. If the server has
    /// tokens, clients get no ids without it.
    pub token: Option<TokenName>,
}

/// How Thrift clients learn of an invalid user agent and of a clock that went back.
///
/// Twitter's `snowflake.thrift` has exceptions for both, but does not declare them for `get_id`: a client
/// generated from it reads a declared exception as an answer without a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThriftExceptions {
    /// As a `TApplicationException` with the reason, which every client raises.
    #[default]
    Application,
    /// As `InvalidUserAgentError` and `InvalidSystemClock`, for clients generated from an interface whose
    /// `get_id` has `throws (1: InvalidUserAgentError agent, 2: InvalidSystemClock clock)`.
    Declared,
}

/// Answers the calls of one connection.
pub(crate) struct Thrift {
    wire: Wire,
    namespace: Arc<NamespaceName>,
    exceptions: ThriftExceptions,
    /// The token whose rights the client has.
    token: Option<TokenName>,
    identity: Identity,
}

impl Thrift {
    pub(crate) const fn new(
        wire: Wire,
        namespace: Arc<NamespaceName>,
        exceptions: ThriftExceptions,
        token: Option<TokenName>,
        identity: Identity,
    ) -> Self {
        Self { wire, namespace, exceptions, token, identity }
    }
}

/// The methods of the service.
const METHODS: [&[u8]; 4] = [b"get_id", b"get_worker_id", b"get_datacenter_id", b"get_timestamp"];

/// The outcome of a request.
enum Failure {
    /// The user agent of the request is invalid.
    UserAgent(String),
    /// The method does not exist.
    Method(String),
    Mint(MintError),
}

impl From<MintError> for Failure {
    fn from(error: MintError) -> Self {
        Self::Mint(error)
    }
}

impl Dialogue for Thrift {
    const PROTOCOL: Protocol = Protocol::Thrift;

    fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    async fn answer(&mut self, input: &mut Vec<u8>) -> io::Result<Result<u64, End>> {
        let (mut start, mut requests) = (0, 0);
        self.identity.refresh();
        if self.identity.is_anonymous() {
            // The token was not valid when the client connected.
            self.identity = self.wire.server.identity_of(self.token.as_ref());
        }
        self.wire.counts.count_for(&self.wire.server.metrics, self.identity.usage());
        let is_recorded = request_record::is_observed(&self.wire.server);
        let outcome = loop {
            match parse(&input[start..]) {
                Ok(Some((request, len))) => {
                    if !is_recorded && let Some(calls) = self.ids_at_once(&request, &input[start..], len) {
                        (start, requests) = (start + calls * len, requests + calls as u64);
                        self.flush_full().await?;
                        continue;
                    }
                    let began = is_recorded.then(Instant::now);
                    let outcome = self.call(&request).await?;
                    if let Some(began) = began {
                        self.log(&request, outcome, began);
                        self.wire.logged += 1;
                    }
                    (start, requests) = (start + len, requests + 1);
                }
                Ok(None) => break Ok(requests),
                Err(error) => {
                    tracing::debug!(protocol = "thrift", %error, "client disconnected");
                    self.refuse_input();
                    break Err(End::AfterReply);
                }
            }
            self.flush_full().await?;
        };
        input.drain(..start);
        Ok(outcome)
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.wire.flush(self.identity.name()).await
    }

    #[cold]
    fn end_late(&mut self) -> End {
        self.refuse_input();
        End::Quiet
    }
}

impl Thrift {
    /// Answers one call. Returns its outcome for the access log and its span.
    async fn call(&mut self, request: &Request<'_>) -> io::Result<&'static str> {
        if !request.wants_answer() {
            // Nobody would get the id.
            self.wire.counts.succeeded += 1;
            return Ok(OK);
        }
        let answer = match request.method() {
            // It is counted with its namespace.
            b"get_id" => match self.id(request.user_agent.unwrap_or_default()).await? {
                Ok(id) => {
                    codec::reply(&mut self.wire.out, request, id);
                    return Ok(OK);
                }
                Err(failure) => Err(failure),
            },
            b"get_worker_id" => self.worker().map_err(Failure::Mint),
            b"get_datacenter_id" => Ok(i64::from(self.wire.server.mint.datacenter().0)),
            b"get_timestamp" => Ok(i64::try_from(WallClock.unix_ms()).unwrap_or(i64::MAX)),
            unknown => Err(Failure::Method(Snippet::of(&String::from_utf8_lossy(unknown)).to_string())),
        };
        match answer {
            Ok(number) => {
                self.wire.counts.succeeded += 1;
                codec::reply(&mut self.wire.out, request, number);
                Ok(OK)
            }
            Err(failure) => Ok(self.refuse(request, &failure)),
        }
    }

    /// Answers this call of `get_id` and those after it that are the same, as many as there are ids. Returns
    /// their number; `None` if there is only one, or if an answer is more than an id: then calls are answered
    /// one by one.
    fn ids_at_once(&mut self, request: &Request<'_>, input: &[u8], len: usize) -> Option<usize> {
        // Most calls come alone. Others are compared only if they can be answered together.
        let may_repeat = input.len() >= 2 * len
            && request.wants_answer()
            && request.method() == b"get_id"
            && is_user_agent(request.user_agent.unwrap_or_default());
        let repeats = if may_repeat { request.repeats(input, len, MAX_REPEATS) } else { 0 };
        if repeats == 0 {
            return None;
        }
        let (name, wanted) = (self.namespace.as_str().as_bytes(), repeats + 1);
        let (namespace, handles) = self.wire.state.find(name).ok()?;
        let mut spent = self.identity.spend(name, wanted as u64).ok()?;
        let mut answered = 0;
        if let Ok(Some(ids)) = namespace.try_several(handles, wanted) {
            for (call, id) in input.chunks_exact(len).zip(ids) {
                let Minted::Number(id) = id else { break };
                codec::reply(&mut self.wire.out, &request.repeated(call), signed(id));
                answered += 1;
            }
            self.wire.counts.issued_one_each(&self.wire.server.metrics, namespace, answered as u64);
        }
        spent.reduce_to(answered as u64);
        spent.keep();
        (answered > 0).then_some(answered)
    }

    /// Writes the line and the span of a call.
    #[cold]
    fn log(&self, request: &Request<'_>, outcome: &'static str, began: Instant) {
        let takes_id = request.method() == b"get_id";
        let method = String::from_utf8_lossy(request.method()).into_owned();
        let kind = RequestKind::Command { is_known: METHODS.contains(&request.method()) };
        let mut record =
            RequestRecord::of_command(&self.wire.server, Protocol::Thrift, (kind, method), began);
        record.sent_by(&self.identity);
        record.asks(takes_id.then(|| self.namespace.as_str()), takes_id.then_some(1));
        record.ended(outcome);
    }

    /// Returns the next id. The outer error is that of the connection: earlier answers are sent before it
    /// waits.
    async fn id(&mut self, user_agent: &[u8]) -> io::Result<Result<i64, Failure>> {
        if !is_user_agent(user_agent) {
            let shown = Snippet::of(&String::from_utf8_lossy(user_agent)).to_string();
            return Ok(Err(Failure::UserAgent(shown)));
        }
        let name = self.namespace.as_str().as_bytes();
        // Cloned only to wait: a count that all connections share would cost more than the id.
        let (namespace, spent) = match self.wire.state.find(name) {
            Ok((namespace, handles)) => {
                let spent = match self.identity.spend(name, 1) {
                    Ok(spent) => spent,
                    Err(error) => return Ok(Err(error.into())),
                };
                match namespace.try_one(handles) {
                    Ok(Some(id)) => {
                        spent.keep();
                        self.wire.counts.issued(&self.wire.server.metrics, namespace, 1);
                        return Ok(Ok(signed(id)));
                    }
                    Ok(None) => (Arc::clone(namespace), spent),
                    Err(error) => return Ok(Err(error.into())),
                }
            }
            Err(error) => {
                let error = self.identity.unfound(&self.wire.server.mint, Right::Mint, name, error);
                return Ok(Err(error.into()));
            }
        };
        self.flush().await?;
        let id = wait_for_one(&namespace, &mut self.wire.state).await;
        if id.is_ok() {
            spent.keep();
            self.wire.counts.issued(&self.wire.server.metrics, &namespace, 1);
        }
        Ok(id.map(signed).map_err(Failure::from))
    }

    /// Returns the worker that makes the ids of the namespace; of several, the first.
    fn worker(&mut self) -> Result<i64, MintError> {
        self.identity.may(Right::Mint, self.namespace.as_str().as_bytes())?;
        let (namespace, _) = self.wire.state.find(self.namespace.as_str().as_bytes())?;
        let Backend::Snowflake(pool) = namespace.backend().plain() else {
            return Err(MintError::WrongScheme {
                name: Snippet::of(self.namespace.as_str()),
                what: "of the scheme snowflake, which get_worker_id needs",
            });
        };
        let status = pool.status();
        let no_lease = || MintError::NotReady { why: "this node holds no lease".to_owned() };
        status.worker.map(|worker| i64::from(worker.0)).ok_or_else(no_lease)
    }

    #[cold]
    fn refuse(&mut self, request: &Request<'_>, failure: &Failure) -> &'static str {
        let (kind, error, declared, text) = match failure {
            Failure::Method(name) => {
                let text = format!(
                    "invalid method {name}: expected get_id, get_worker_id, get_datacenter_id or get_timestamp"
                );
                (ErrorKind::Unknown, ApplicationError::UnknownMethod, None, text)
            }
            Failure::UserAgent(agent) => {
                let text =
                    format!("invalid user agent {agent}: expected a letter, then letters, digits and '-'");
                (ErrorKind::BadRequest, ApplicationError::Internal, Some(Declared::InvalidUserAgent), text)
            }
            Failure::Mint(error) => {
                let kind = error.kind();
                let text = format!("{} {}", kind.status().resp, error.answer());
                let declared = (kind == ErrorKind::ClockBehind).then_some(Declared::InvalidSystemClock);
                (kind, ApplicationError::Internal, declared, text)
            }
        };
        self.wire.counts.failed(&self.wire.server.metrics, kind);
        match (self.exceptions, declared) {
            (ThriftExceptions::Declared, Some(declared)) if request.method() == b"get_id" => {
                codec::declared(&mut self.wire.out, request, declared, &text);
            }
            _ => codec::exception(&mut self.wire.out, request, error, &text),
        }
        kind.status().name
    }

    async fn flush_full(&mut self) -> io::Result<()> {
        self.wire.flush_full(self.identity.name()).await
    }

    /// Counts and logs input that is not a call.
    fn refuse_input(&self) {
        let kind = ErrorKind::BadRequest;
        access_log::refused(Protocol::Thrift, kind.status().name);
        self.wire.counts.failed(&self.wire.server.metrics, kind);
    }
}

/// Waits for an id that was not available at once.
#[cold]
async fn wait_for_one(namespace: &Arc<Namespace>, state: &mut ConnectionState) -> Result<u64, MintError> {
    let wrong_scheme = || MintError::WrongScheme {
        name: Snippet::of(namespace.name().as_str()),
        what: "one of plain 64-bit numbers, which get_id needs",
    };
    // Before anything is taken: a refused request must not use up a number.
    if !namespace.definition().is_plain_number() {
        return Err(wrong_scheme());
    }
    let mut ids = match namespace.try_take(state.handles(), 1)? {
        Taken::All(ids) => ids,
        Taken::Partial(part) => state.wait(namespace, part).await?,
    };
    match ids.next() {
        Some(Minted::Number(id)) => Ok(id),
        _ => Err(wrong_scheme()),
    }
}

/// Returns an id as a signed number; it has at most 63 bits.
fn signed(id: u64) -> i64 {
    i64::try_from(id).unwrap_or(i64::MAX)
}

/// The rule of the original server: `[a-zA-Z][a-zA-Z\-0-9]*`.
fn is_user_agent(text: &[u8]) -> bool {
    matches!(text, [first, rest @ ..] if first.is_ascii_alphabetic()
        && rest.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-'))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use futures_util::FutureExt as _;
    use snowmint::Layout;

    use super::*;
    use crate::access::tests::limited;
    use crate::state::ServerState;
    use crate::testing::{TestSource, mint_of};

    /// Goal: a call whose client leaves while it waits costs no quota.
    #[tokio::test]
    async fn a_dropped_call_gives_its_id_back() {
        let source = TestSource::new(Layout::TWITTER);
        source.set_stuck(true);
        let server = Arc::new(ServerState::for_tests(mint_of(source, Layout::TWITTER)));
        let (mut wire, _client) = Wire::for_tests(server, Protocol::Thrift);
        let namespace = Arc::new(NamespaceName::new("default").unwrap());
        wire.exhaust();
        let mut thrift = Thrift::new(wire, namespace, ThriftExceptions::Application, None, limited(1));
        assert!(thrift.id(b"agent").now_or_never().is_none(), "it waits");
        thrift.identity.spend(b"default", 1).unwrap().keep();
        assert!(thrift.identity.spend(b"default", 1).is_err());
    }
}
