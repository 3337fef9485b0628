//! noeqd's protocol: answers the requests of a connection.
//!
//! A request is one byte, the number of ids from 1 to 255. The answer is that many ids of 8 bytes each, most significant byte
//! first (<https://github.com/bmizerany/noeqd>). If the server has a token, a connection begins with `0`, the length of the
//! token as a byte, and the token. The protocol has no errors: the server closes the connection.
//!
//! All ids come from one namespace, whose ids must be plain numbers.

use std::io;
use std::num::NonZeroU8;
use std::sync::Arc;

use snowmint::error::Snippet;
use snowmint_cluster::NamespaceName;
use tokio::time::Instant;

use crate::access::Identity;
use crate::access_log::{self, OK};
use crate::connection::{Broken, Dialogue, Wire};
use crate::listener::Listener;
use crate::mint::{MintError, Minted, Taken};
use crate::protocol::Protocol;
use crate::request_record::{self, RequestKind, RequestRecord};
use crate::state::ServerState;
use crate::status::ErrorKind;

/// The open port of noeqd's protocol, and the namespace that it serves.
#[derive(Debug)]
pub struct NoeqdListener {
    /// The port.
    pub listener: Listener,
    /// The namespace whose ids clients get.
    pub namespace: NamespaceName,
}

/// How requests of HTTP begin. A web page can send one to any port, or a handshake of TLS, and each of its
/// bytes would take ids.
const HTTP: [&[u8]; 5] = [b"POST /", b"GET /", b"HEAD /", b"OPTIONS ", b"PRI * HTTP"];

/// Returns `true` if the input begins a request of HTTP, or a handshake of TLS with its type and version of
/// records.
fn is_of_a_browser(input: &[u8]) -> bool {
    HTTP.iter().any(|begin| input.starts_with(begin)) || matches!(input, [22, 3, 0..=4, _, _, 1, ..])
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request<'a> {
    Ids(NonZeroU8),
    Token(&'a [u8]),
}

/// Parses the request at the start of the input. Returns it and its length; `None` if it is incomplete. No input is invalid.
fn parse(input: &[u8]) -> Option<(Request<'_>, usize)> {
    let (&first, rest) = input.split_first()?;
    if let Some(count) = NonZeroU8::new(first) {
        return Some((Request::Ids(count), 1));
    }
    let (&len, rest) = rest.split_first()?;
    let token = rest.get(..usize::from(len))?;
    Some((Request::Token(token), 2 + token.len()))
}

/// Checks, for fuzzing, that the requests of an input do not depend on the pieces in which it arrives.
///
/// # Panics
///
/// If they do.
#[doc(hidden)]
pub fn check_split(input: &[u8]) {
    let requests = |input: &[u8]| {
        let (mut rest, mut lens) = (input, Vec::new());
        while let Some((request, len)) = parse(rest) {
            let shown = match request {
                Request::Ids(count) => usize::from(count.get()),
                Request::Token(token) => 1000 + token.len(),
            };
            lens.push((shown, len));
            rest = &rest[len..];
        }
        (lens, rest.to_vec())
    };
    let (whole, rest) = requests(input);
    assert!(rest.len() < 2 + 255, "what is left is less than a request");
    for split in 0..=input.len() {
        let (mut first, left) = requests(&input[..split]);
        let (second, left) = requests(&[&left, &input[split..]].concat());
        first.extend(second);
        assert!(first == whole && left == rest, "split at {split}");
    }
}

/// Answers the requests of one connection.
pub(crate) struct Noeqd {
    namespace: Arc<NamespaceName>,
    identity: Identity,
    /// Whether nothing was requested yet.
    is_fresh: bool,
}

impl Noeqd {
    /// `identity` is that of a client that has not sent a token.
    pub(crate) const fn new(namespace: Arc<NamespaceName>, identity: Identity) -> Self {
        Self { namespace, identity, is_fresh: true }
    }

    /// Takes the token with which a connection begins if the server has tokens. Otherwise the token is invalid, as in noeqd.
    fn authenticate(&mut self, wire: &mut Wire, token: &[u8]) -> Result<(), Broken> {
        let invalid = |why: &str| Broken { kind: ErrorKind::BadRequest, why: why.to_owned() };
        let access = wire.server.settings.access.as_ref();
        let access = access.ok_or_else(|| invalid("unexpected token: this server has none"))?;
        if !self.identity.is_anonymous() {
            return Err(invalid("unexpected token: the connection has one"));
        }
        self.identity = access.authenticate(token).map_err(Broken::from)?;
        wire.counts.count_for(&wire.server.metrics, self.identity.usage());
        wire.counts.succeeded += 1;
        Ok(())
    }

    /// Answers one request for ids. Earlier answers are sent before it waits.
    async fn ids(&self, wire: &mut Wire, count: NonZeroU8) -> io::Result<Result<(), MintError>> {
        let found = wire.state.find(self.namespace.as_str().as_bytes());
        let (namespace, handles) = match found {
            Ok((namespace, handles)) => (Arc::clone(namespace), handles),
            Err(error) => return Ok(Err(error)),
        };
        let wrong_scheme = || MintError::WrongScheme {
            name: Snippet::of(namespace.name().as_str()),
            what: "one of plain 64-bit numbers, which noeqd's protocol needs",
        };
        // Before anything is taken: a refused request must not use up a number.
        if !namespace.definition().is_plain_number() {
            return Ok(Err(wrong_scheme()));
        }
        let wanted = u64::from(count.get());
        let spent = match self.identity.spend(self.namespace.as_str().as_bytes(), wanted) {
            Ok(spent) => spent,
            Err(error) => return Ok(Err(error)),
        };
        let ids = match namespace.try_take(handles, usize::from(count.get())) {
            Ok(Taken::All(ids)) => Ok(ids),
            Ok(Taken::Partial(part)) => {
                wire.flush().await?;
                wire.state.wait(&namespace, part).await
            }
            Err(error) => Err(error),
        };
        let ids = match ids {
            Ok(ids) => ids,
            Err(error) => return Ok(Err(error)),
        };
        for id in ids {
            let Minted::Number(id) = id else { return Ok(Err(wrong_scheme())) };
            wire.out.extend_from_slice(&id.to_be_bytes());
        }
        spent.keep();
        wire.counts.issued(&wire.server.metrics, &namespace, wanted);
        Ok(Ok(()))
    }
}

impl Noeqd {
    /// Writes the line and the span of a request. A request with a token has no count, and the token is not written.
    #[cold]
    fn log(
        &self,
        server: &Arc<ServerState>,
        count: Option<NonZeroU8>,
        failed: Option<ErrorKind>,
        began: Instant,
    ) {
        let request = if count.is_some() { "ids" } else { "token" };
        let request = (RequestKind::Command { is_known: true }, request.to_owned());
        let mut record = RequestRecord::of_command(server, Protocol::Noeqd, request, began);
        record.sent_by(&self.identity);
        record.asks(count.map(|_| self.namespace.as_str()), count.map(|count| count.get().into()));
        record.ended(failed.map_or(OK, |kind| kind.status().name));
    }
}

impl Dialogue for Noeqd {
    const PROTOCOL: Protocol = Protocol::Noeqd;

    async fn answer(&mut self, wire: &mut Wire, input: &mut Vec<u8>) -> io::Result<Result<u64, Broken>> {
        let (mut start, mut requests) = (0, 0);
        self.identity.refresh();
        if std::mem::take(&mut self.is_fresh) && is_of_a_browser(input) {
            let kind = ErrorKind::BadRequest;
            access_log::refused(Protocol::Noeqd, kind.status().name);
            let why = "a request of HTTP or TLS: this port speaks noeqd's protocol".to_owned();
            return Ok(Err(Broken { kind, why }));
        }
        let is_recorded = request_record::is_observed(&wire.server);
        let outcome = loop {
            let Some((request, len)) = parse(&input[start..]) else { break Ok(requests) };
            let began = is_recorded.then(Instant::now);
            let (count, answered) = match request {
                Request::Ids(count) => (Some(count), self.ids(wire, count).await?.map_err(Broken::from)),
                Request::Token(token) => (None, self.authenticate(wire, token)),
            };
            if let Some(began) = began {
                self.log(&wire.server, count, answered.as_ref().err().map(|broken| broken.kind), began);
                wire.logged += 1;
            }
            if let Err(broken) = answered {
                break Err(broken);
            }
            (start, requests) = (start + len, requests + 1);
            wire.flush_full().await?;
        };
        input.drain(..start);
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a request whose client leaves while it waits costs no quota.
    #[cfg(unix)]
    #[tokio::test]
    async fn a_dropped_request_gives_its_ids_back() {
        use futures_util::FutureExt as _;
        use snowmint::Layout;

        use crate::access::tests::limited;
        use crate::testing::{TestSource, mint_of};

        let source = TestSource::new(Layout::TWITTER);
        source.set_stuck(true);
        let server = ServerState::for_tests(mint_of(source, Layout::TWITTER));
        let (mut wire, _client) = Wire::for_tests(server, Protocol::Noeqd);
        let noeqd = Noeqd::new(Arc::new(NamespaceName::new("default").unwrap()), limited(255));
        wire.exhaust();
        assert!(noeqd.ids(&mut wire, NonZeroU8::MAX).now_or_never().is_none(), "it waits");
        noeqd.identity.spend(b"default", 255).unwrap().keep();
        assert!(noeqd.identity.spend(b"default", 1).is_err());
    }

    #[test]
    fn requests_are_told_from_tokens() {
        let ids = |count| Request::Ids(NonZeroU8::new(count).unwrap());
        for (input, wanted) in [
            (&b""[..], None),
            (b"\x01", Some((ids(1), 1))),
            (b"\xff\x01", Some((ids(255), 1))),
            // TLS would begin like this.
            (b"\x16\x03\x01", Some((ids(22), 1))),
            (b"\0", None),
            (b"\0\x03ab", None),
            (b"\0\x03abc\x01", Some((Request::Token(b"abc"), 5))),
            (b"\0\0\x01", Some((Request::Token(b""), 2))),
        ] {
            assert_eq!(parse(input), wanted, "{input:?}");
            check_split(input);
        }
    }
}
