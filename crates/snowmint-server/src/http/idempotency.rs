//! `Idempotency-Key`: a repeated POST gets the ids of the first one.
//!
//! A client that got no answer does not know whether its request took ids. It may send the request again with
//! the same key: the node keeps the answer in memory for a while. Other nodes do not have the answer, nor
//! does this one if its memory for answers is full. Then the retry takes new ids, and the ids of the lost
//! answer are a gap. A kept answer is given only for the same key of the same token (without a token, of the
//! same address), and only while the namespace has the same definition.
//!
//! # Source
//!
//! draft-ietf-httpapi-idempotency-key-header: 400 for an invalid key, 409 while the first request runs, 422
//! if the first request was a different one.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Request, Response};
use sha2::{Digest as _, Sha256};
use snowmint::error::Snippet;
use snowmint_cluster::namespace::Definition;
use tokio::time::Instant;

use crate::access::secret::TokenName;
use crate::http::Serving;
use crate::http::response::{Body, IdsFormat, Problem, failure, ok};
use crate::http::routes::Route;
use crate::limits::http::{KEEP, MAX_KEPT, MAX_KEY, MAX_KEYED_COUNT};
use crate::mint::{Ids, MintError};
use crate::status::ErrorKind;

pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Marks an answer that was kept.
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Bytes that an entry uses besides those of its answer.
const OVERHEAD: usize = 256;

/// Reads the key of a request. Only a POST for ids or ranges may have one: elsewhere it would have no effect.
pub(super) fn key<'r, B>(request: &'r Request<B>, route: &Route<'_>) -> Result<Option<&'r [u8]>, Problem> {
    let bad = |detail: String| Err(Problem::new(ErrorKind::BadRequest, detail));
    let mut keys = request.headers().get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = keys.next() else { return Ok(None) };
    if request.method() != Method::POST || !matches!(route, Route::Ids { .. }) {
        return bad("unexpected Idempotency-Key: send it with POST to /v1/ids or /v1/ranges".to_owned());
    }
    let key = key.as_bytes();
    let is_valid = (1..=MAX_KEY).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic);
    if !is_valid || keys.next().is_some() {
        let text = Snippet::of(&String::from_utf8_lossy(key));
        return bad(format!(
            "invalid Idempotency-Key {text}: expected one of 1 to {MAX_KEY} visible ASCII characters, such as a UUID"
        ));
    }
    Ok(Some(key))
}

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller<'a> {
    /// `None` over a Unix socket.
    pub(super) address: Option<IpAddr>,
    /// The token that was verified. A header that nobody verified says nothing about who sent it.
    pub(super) token: Option<&'a TokenName>,
}

/// A request with a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyedRequest {
    /// The digest of caller, namespace and key.
    scope: [u8; 32],
    parameters: Parameters,
}

/// What a repeated request has in common with the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parameters {
    count: usize,
    format: IdsFormat,
}

impl KeyedRequest {
    /// Returns the request with its key.
    ///
    /// # Errors
    ///
    /// The answer would be too large to be kept.
    pub(super) fn new(
        caller: Caller<'_>,
        namespace: &str,
        definition: &Definition,
        key: &[u8],
        count: usize,
        format: IdsFormat,
    ) -> Result<Self, Problem> {
        if count > MAX_KEYED_COUNT && format != IdsFormat::Ranges {
            let value = Snippet::of(&count.to_string());
            let mut problem = Problem::from(MintError::BadCount { value, limit: MAX_KEYED_COUNT });
            problem.detail.push_str(" with Idempotency-Key; use /v1/ranges for more");
            return Err(problem);
        }
        // The same token is the same caller, even from another address.
        let caller = match (caller.token, caller.address) {
            // The name of a token has no `.` and no `:`, so it is no address.
            (Some(token), _) => token.to_string(),
            (None, Some(address)) => address.to_string(),
            (None, None) => String::new(),
        };
        // A namespace that was started over gives the same ids to others.
        let definition = definition.to_string();
        let mut digest = Sha256::new();
        for part in [caller.as_bytes(), namespace.as_bytes(), definition.as_bytes(), key] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Ok(Self { scope: digest.finalize().into(), parameters: Parameters { count, format } })
    }
}

/// Answers with ids in this format. With a key, repeats the kept answer if there is one.
pub(super) async fn answer(
    serving: &Serving<'_>,
    keyed: Option<KeyedRequest>,
    format: IdsFormat,
    draw: Pin<&mut impl Future<Output = Result<Ids, MintError>>>,
) -> Result<Response<Body>, Problem> {
    let Some(keyed) = keyed else {
        let body = Body::ids(draw.await?, format).map_err(|error| failure(&error))?;
        return Ok(ok(format.media_type(), body));
    };
    let place = match serving.services.kept_answers.begin(keyed)? {
        Begun::Kept(bytes) => {
            let mut response = ok(format.media_type(), Body::whole(bytes));
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            return Ok(response);
        }
        Begun::New(place) => place,
    };
    let bytes = Body::all_ids(draw.await?, format).map_err(|error| failure(&error))?;
    // The whole answer is made at once, not while the client reads it.
    serving.peer.turn.spend(bytes.len());
    place.keep(bytes.clone());
    Ok(ok(format.media_type(), Body::whole(bytes)))
}

/// The answers to requests with a key, for [`KEEP`] and up to [`MAX_KEPT`] bytes; the oldest go first.
#[derive(Debug, Default)]
pub(super) struct KeptAnswers(Mutex<Answers>);

#[derive(Debug, Default)]
struct Answers {
    entries: HashMap<[u8; 32], Entry>,
    /// The entries by their number.
    oldest_first: BTreeMap<u64, [u8; 32]>,
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    began: Instant,
    parameters: Parameters,
    /// `None` while the first request runs.
    answer: Option<Bytes>,
}

/// How a request with a key is answered.
#[derive(Debug)]
enum Begun<'a> {
    /// It was answered before.
    Kept(Bytes),
    /// It is the first one with its key.
    New(Place<'a>),
}

impl KeptAnswers {
    fn lock(&self) -> MutexGuard<'_, Answers> {
        // A panic between two changes leaves an entry that is dropped later, or bytes that are counted too
        // often.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, keyed: KeyedRequest) -> Result<Begun<'_>, Problem> {
        let KeyedRequest { scope, parameters } = keyed;
        let began = Instant::now();
        let mut answers = self.lock();
        answers.forget(began);
        match answers.entries.get(&scope) {
            Some(entry) if entry.parameters != parameters => {
                let detail = "this Idempotency-Key was sent with another count, format or path: use a new key for each request";
                Err(Problem::new(ErrorKind::KeyReused, detail.to_owned()))
            }
            Some(Entry { answer: Some(answer), .. }) => Ok(Begun::Kept(answer.clone())),
            Some(_) => {
                let detail = "the first request with this Idempotency-Key is still running: retry later";
                let problem = Problem::new(ErrorKind::KeyInUse, detail.to_owned());
                Err(problem.retry_after(Duration::from_secs(1)))
            }
            None => {
                let number = answers.next;
                answers.next += 1;
                answers.bytes += OVERHEAD;
                answers.oldest_first.insert(number, scope);
                answers.entries.insert(scope, Entry { number, began, parameters, answer: None });
                Ok(Begun::New(Place { kept: self, scope, number }))
            }
        }
    }
}

impl Answers {
    /// Drops answers that are too old, and the oldest ones beyond the limit.
    fn forget(&mut self, now: Instant) {
        while let Some((_, scope)) = self.oldest_first.first_key_value() {
            let scope = *scope;
            let is_old = self.entries.get(&scope).is_none_or(|entry| now.duration_since(entry.began) >= KEEP);
            if !is_old && self.bytes <= MAX_KEPT {
                return;
            }
            self.remove(&scope);
        }
    }

    fn remove(&mut self, scope: &[u8; 32]) {
        if let Some(entry) = self.entries.remove(scope) {
            self.oldest_first.remove(&entry.number);
            let bytes = OVERHEAD + entry.answer.map_or(0, |answer| answer.len());
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }
}

/// The reserved place of an answer. If no answer comes, because the request failed or its client left, the
/// next request with the key counts as the first one.
#[derive(Debug)]
struct Place<'a> {
    kept: &'a KeptAnswers,
    scope: [u8; 32],
    number: u64,
}

impl Place<'_> {
    fn keep(self, answer: Bytes) {
        let mut answers = self.kept.lock();
        let entry = answers.entries.get_mut(&self.scope).filter(|entry| entry.number == self.number);
        if let Some(entry) = entry {
            let len = answer.len();
            entry.answer = Some(answer);
            answers.bytes += len;
            answers.forget(Instant::now());
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut answers = self.kept.lock();
        let entry = answers.entries.get(&self.scope).filter(|entry| entry.number == self.number);
        if entry.is_some_and(|entry| entry.answer.is_none()) {
            answers.remove(&self.scope);
        }
    }
}

#[cfg(test)]
mod tests {
    use snowmint::Layout;
    use snowmint_cluster::namespace::{Scheme, SegmentScheme};

    use super::*;

    fn keyed_for(definition: &Definition, caller: Caller<'_>, key: &str, count: usize) -> KeyedRequest {
        KeyedRequest::new(caller, "orders", definition, key.as_bytes(), count, IdsFormat::Json).unwrap()
    }

    fn keyed(token: &'static str, namespace: &str, key: &str, count: usize) -> KeyedRequest {
        let token = TokenName::new(token).unwrap();
        let caller = Caller { address: None, token: Some(&token) };
        let definition = Definition {
            scheme: Scheme::Segment(SegmentScheme::new()),
            ..Definition::snowflake(Layout::TWITTER)
        };
        KeyedRequest::new(caller, namespace, &definition, key.as_bytes(), count, IdsFormat::Json).unwrap()
    }

    /// Goal: an answer goes to no other client, and not into a namespace that was started over.
    #[tokio::test]
    async fn an_answer_belongs_to_its_caller_and_to_the_definition_of_its_namespace() {
        let kept = KeptAnswers::default();
        let segment = |series| Definition {
            scheme: Scheme::Segment(SegmentScheme { series, ..SegmentScheme::new() }),
            ..Definition::snowflake(Layout::TWITTER)
        };
        let (before, after) = (segment(1), segment(2));
        let at = |last| Caller { address: Some([10, 0, 0, last].into()), token: None };
        assert_eq!(ask(&kept, keyed_for(&before, at(1), "k", 5), b"1"), Ok(None));
        assert_eq!(ask(&kept, keyed_for(&before, at(2), "k", 5), b"2"), Ok(None));
        assert_eq!(ask(&kept, keyed_for(&after, at(1), "k", 5), b"3"), Ok(None));
        let first = ask(&kept, keyed_for(&before, at(1), "k", 5), b"4");
        assert_eq!(first, Ok(Some(Bytes::from_static(b"1"))));
        let named = TokenName::new("app").unwrap();
        let holder = |last| Caller { token: Some(&named), ..at(last) };
        assert_eq!(ask(&kept, keyed_for(&before, holder(1), "k", 5), b"5"), Ok(None));
        let elsewhere = ask(&kept, keyed_for(&before, holder(2), "k", 5), b"6");
        assert_eq!(elsewhere, Ok(Some(Bytes::from_static(b"5"))));
    }

    /// Returns the kept answer; `None` if the request is the first one, which is then answered with `new`.
    fn ask(kept: &KeptAnswers, keyed: KeyedRequest, new: &[u8]) -> Result<Option<Bytes>, ErrorKind> {
        match kept.begin(keyed).map_err(|problem| problem.kind)? {
            Begun::Kept(bytes) => Ok(Some(bytes)),
            Begun::New(place) => {
                place.keep(Bytes::copy_from_slice(new));
                Ok(None)
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_kept_for_its_caller_namespace_key_and_parameters() {
        let kept = KeptAnswers::default();
        let first = keyed("a", "orders", "k", 5);
        assert_eq!(ask(&kept, first, b"1"), Ok(None));
        assert_eq!(ask(&kept, first, b"2"), Ok(Some(Bytes::from_static(b"1"))));
        assert_eq!(ask(&kept, keyed("a", "orders", "k", 6), b"2"), Err(ErrorKind::KeyReused));
        for other in
            [keyed("b", "orders", "k", 5), keyed("a", "order", "sk", 5), keyed("a", "orders", "l", 5)]
        {
            assert_eq!(ask(&kept, other, b"3"), Ok(None));
        }
        tokio::time::advance(KEEP / 2).await;
        assert_eq!(ask(&kept, first, b"2"), Ok(Some(Bytes::from_static(b"1"))));
        tokio::time::advance(KEEP / 2).await;
        assert_eq!(ask(&kept, first, b"2"), Ok(None), "it is a new request");
        let answers = kept.lock();
        assert_eq!((answers.entries.len(), answers.oldest_first.len(), answers.bytes), (1, 1, OVERHEAD + 1));
    }

    #[tokio::test]
    async fn a_request_that_runs_is_not_repeated_and_one_that_failed_is() {
        let kept = KeptAnswers::default();
        let keyed = keyed("a", "orders", "k", 1);
        let Ok(Begun::New(place)) = kept.begin(keyed) else { panic!() };
        assert_eq!(ask(&kept, keyed, b"2"), Err(ErrorKind::KeyInUse));
        drop(place);
        assert_eq!(kept.lock().bytes, 0);
        assert_eq!(ask(&kept, keyed, b"1"), Ok(None));
        assert_eq!(ask(&kept, keyed, b"2"), Ok(Some(Bytes::from_static(b"1"))));
    }

    /// Goal: memory is limited, whether many requests run or have large answers; the oldest answers are
    /// dropped.
    #[tokio::test]
    async fn kept_answers_have_a_limit_in_bytes() {
        let kept = KeptAnswers::default();
        let request = |nth: usize| keyed("a", "orders", &nth.to_string(), 1);
        let large = vec![0; 1024 * 1024];
        for nth in 0..40 {
            assert_eq!(ask(&kept, request(nth), &large), Ok(None));
            assert!(kept.lock().bytes <= MAX_KEPT);
        }
        assert!(ask(&kept, request(39), b"").unwrap().is_some());
        assert_eq!(ask(&kept, request(0), b"new"), Ok(None));
        let running: Vec<_> = (100..100_000).map(|nth| kept.begin(request(nth)).unwrap()).collect();
        assert!(kept.lock().bytes <= MAX_KEPT + OVERHEAD);
        drop(running);
        let answers = kept.lock();
        assert_eq!((answers.entries.len(), answers.oldest_first.len(), answers.bytes), (0, 0, 0));
    }
}
