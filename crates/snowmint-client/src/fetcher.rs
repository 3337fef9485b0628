//! Fetches ids from several servers: from one after the other, or from a second one while the first is slow.
//!
//! Each answer is used once. If nobody awaits an answer any more, its ids are lost.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use snowmint::foreign::{Most, shown};
use snowmint::{AnchoredClock, Clock};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::buffer::IdRange;
use crate::connect::Connections;
use crate::error::{About, ErrorKind, RequestFailure, Retry, RetryAfter};
use crate::server_choice::{OfNamespace, ServerChange, ServerChoice};
use crate::wire::{Ask, Received, Server, Token};

/// The timeout for one request to one server; shorter if the caller's timeout is, so that there is time for another server.
const ATTEMPT: Duration = Duration::from_secs(2);
/// The part of that timeout that the server may spend on making ids, in percent.
const TO_MAKE: u32 = 80;

/// Request counts since the client was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Requests sent to servers, including hedged ones.
    pub requests: u64,
    /// Hedged requests: sent to a second server because the first had not answered yet.
    pub hedged: u64,
    /// Requests that failed, were rejected, or were abandoned.
    pub failed: u64,
}

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    hedged: AtomicU64,
    failed: AtomicU64,
}

/// The store whose ids a client returns.
#[derive(Debug)]
pub(crate) struct OwnStore {
    id: String,
    /// The server that named it first; `None` if the program set it.
    named_by: Option<Arc<str>>,
}

impl OwnStore {
    /// A store that the program set.
    pub(crate) const fn set(id: String) -> Self {
        Self { id, named_by: None }
    }
}

impl fmt::Display for OwnStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.named_by {
            Some(server) => write!(f, "{}, the store of {server}", self.id),
            None => write!(f, "{}, as set with ClientBuilder::store", self.id),
        }
    }
}

/// All servers and their states.
#[derive(Debug)]
pub(crate) struct Fetcher {
    servers: Vec<Server>,
    states: Mutex<ServerChoice>,
    connections: Connections,
    token: Option<Token>,
    /// Measures the age of ids. Unlike the runtime's clock, it includes suspension on Linux.
    pub(crate) clock: Arc<AnchoredClock>,
    hedge_after: Duration,
    /// The timeout for one request to one server.
    attempt: Duration,
    counters: Counters,
    store: Mutex<Option<OwnStore>>,
}

/// A namespace and the state of its requests. Other namespaces do not change it.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) name: String,
    pub(crate) last_failure: Mutex<Option<RequestFailure>>,
    states: Mutex<OfNamespace>,
}

impl Namespace {
    /// Returns a namespace of `servers` servers before its first request.
    pub(crate) fn new(name: &str, servers: usize) -> Self {
        let states = Mutex::new(OfNamespace::new(servers));
        Self { name: name.to_owned(), last_failure: Mutex::default(), states }
    }

    /// Returns whether the next request for it has to respect a failure.
    pub(crate) fn is_restricted(&self) -> bool {
        lock(&self.states).is_restricted(Instant::now())
    }
}

/// The timeouts of a fetcher.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// How long to wait for one server before a second one gets the request.
    pub(crate) hedge_after: Duration,
    /// How long a caller waits in total.
    pub(crate) timeout: Duration,
}

/// Why a fetch returned no ids.
#[derive(Debug)]
pub(crate) enum Unfilled {
    /// A server rejected the request.
    Rejected(RequestFailure),
    /// No server returns this many ids at once.
    TooMany,
    /// The deadline has passed.
    Late(RequestFailure),
    /// Every server asked to retry later than the deadline.
    Closed(RequestFailure),
}

/// Ids that a server returned.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) ranges: Vec<IdRange>,
    /// When the ids were requested, by the fetcher's clock; none is older.
    pub(crate) sent_ms: u64,
}

impl Fetcher {
    pub(crate) fn new(
        servers: Vec<Server>,
        connections: Connections,
        token: Option<Token>,
        Times { hedge_after, timeout }: Times,
        seed: u64,
        store: Option<OwnStore>,
    ) -> Self {
        let states = Mutex::new(ServerChoice::new(servers.len(), seed));
        let attempt = ATTEMPT.min(timeout / 2);
        let (clock, counters) = (Arc::new(AnchoredClock::new()), Counters::default());
        let store = Mutex::new(store);
        Self { servers, states, connections, token, clock, hedge_after, attempt, counters, store }
    }

    pub(crate) fn stats(&self) -> Stats {
        let Counters { requests, hedged, failed } = &self.counters;
        let [requests, hedged, failed] = [requests, hedged, failed].map(|it| it.load(Ordering::Relaxed));
        Stats { requests, hedged, failed }
    }

    /// Returns a namespace whose ids this fetcher requests.
    pub(crate) fn namespace(&self, name: &str) -> Namespace {
        Namespace::new(name, self.servers.len())
    }

    /// Requests ids until a server returns them, a server rejects the request, or the deadline passes. Stores each failure in
    /// `namespace`.
    pub(crate) async fn fetch(
        &self,
        namespace: &Namespace,
        count: u64,
        deadline: Instant,
    ) -> Result<Answer, Unfilled> {
        let within = deadline - Instant::now();
        let rounds = async {
            let mut round: u32 = 0;
            loop {
                if let Some(answer) = self.round(namespace, count, deadline).await? {
                    return Ok(answer);
                }
                let now = Instant::now();
                let closed_for = self.states().closed_for(&lock(&namespace.states), now);
                if closed_for > deadline - now {
                    let said = lock(&namespace.last_failure)
                        .clone()
                        .filter(|last| matches!(last.retry, Retry::After(_)));
                    let failure = said.unwrap_or_else(|| self.servers[0].closed());
                    let retry = Retry::After(RetryAfter::capped(closed_for));
                    return Err(Unfilled::Closed(RequestFailure { retry, ..failure }));
                }
                let pause = self.states().pause(&lock(&namespace.states), round, now);
                sleep(pause).await;
                round = round.saturating_add(1);
            }
        };
        timeout_at(deadline, rounds).await.unwrap_or_else(|_| {
            let failure =
                lock(&namespace.last_failure).clone().unwrap_or_else(|| self.servers[0].timed_out(within));
            Err(Unfilled::Late(failure))
        })
    }

    /// Sends the request to each server at most once. Returns `None` if none of them returned ids.
    async fn round(
        &self,
        namespace: &Namespace,
        count: u64,
        deadline: Instant,
    ) -> Result<Option<Answer>, Unfilled> {
        let ask = Ask { namespace: &namespace.name, count };
        let mut rest = self.states().order(&lock(&namespace.states), Instant::now()).into_iter();
        let mut next = rest.next();
        if next.is_some() {
            self.states().requested();
        }
        let mut round = Round::new(self, namespace, count, deadline);
        let mut attempts = FuturesUnordered::new();
        let mut hedge_at = None;
        loop {
            if let Some(server) = next {
                round.waiting.push((server, Instant::now()));
                attempts.push(self.attempt(server, ask, deadline));
                hedge_at = Instant::now().checked_add(self.hedge_after);
            } else if attempts.is_empty() {
                // The remaining quota may suffice for fewer ids.
                return if round.is_over_quota && count > 1 { Err(Unfilled::TooMany) } else { Ok(None) };
            }
            let hedges = hedge_at.is_some() && rest.len() > 0;
            let continues = tokio::select! {
                biased;
                Some((server, settled)) = attempts.next() => match round.settled(server, settled)? {
                    Some(answer) => return Ok(Some(answer)),
                    None => true,
                },
                () = sleep_until(hedge_at.unwrap_or(deadline)), if hedges => {
                    let may_hedge = self.states().may_hedge();
                    self.counters.hedged.fetch_add(u64::from(may_hedge), Ordering::Relaxed);
                    may_hedge
                }
            };
            (next, hedge_at) = if continues { (rest.next(), hedge_at) } else { (None, None) };
        }
    }

    async fn attempt(
        &self,
        index: usize,
        ask: Ask<'_>,
        deadline: Instant,
    ) -> (usize, Result<Answer, RequestFailure>) {
        let (server, sent) = (&self.servers[index], Instant::now());
        let sent_ms = self.clock.unix_ms();
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        let limit = self.attempt.min(deadline - sent);
        let request = server.request(&self.connections, self.token.as_ref(), ask, limit * TO_MAKE / 100);
        let settled = timeout(limit, request).await.unwrap_or_else(|_| Err(server.timed_out(limit)));
        let settled = settled.and_then(|Received { ranges, store }| {
            self.check_store(server, store)?;
            Ok(Answer { ranges, sent_ms })
        });
        (index, settled)
    }

    /// Rejects an answer of another store. The first store that an answer names is the one of this client, unless one was set.
    fn check_store(&self, server: &Server, named: Option<String>) -> Result<(), RequestFailure> {
        let mut own = lock(&self.store);
        let detail = match (&*own, named) {
            // A server of an earlier version, or behind a proxy that removes headers.
            (None | Some(OwnStore { named_by: Some(_), .. }), None) => return Ok(()),
            (None, Some(id)) => {
                *own = Some(OwnStore { id, named_by: Some(Arc::clone(&server.url)) });
                return Ok(());
            }
            (Some(own), Some(named)) if own.id == named => return Ok(()),
            (Some(own), None) => format!("the answer names no store: expected {own}"),
            (Some(own), Some(named)) => {
                let named = shown(&named, Most::Name);
                format!("the ids are of another store, {named}: expected {own}")
            }
        };
        Err(server.of_another_store(detail))
    }

    /// Returns the identity of the store of this client, once it is known.
    pub(crate) fn store(&self) -> Option<String> {
        lock(&self.store).as_ref().map(|own| own.id.clone())
    }

    fn succeeded(&self, namespace: &Namespace, server: usize) {
        let (of_server, of_namespace) = self.states().succeeded(&mut lock(&namespace.states), server);
        let (url, namespace) = (&*self.servers[server].url, &*namespace.name);
        if let ServerChange::Recovered(failures) = of_server {
            tracing::info!(server = url, failures, "server returns ids again");
        }
        if let ServerChange::Recovered(failures) = of_namespace {
            tracing::info!(server = url, namespace, failures, "server returns ids of the namespace again");
        }
    }

    fn failed(&self, namespace: &Namespace, server: usize, failure: &RequestFailure) {
        let retry_after = match failure.retry {
            // The server is healthy.
            Retry::Never | Retry::Fewer => return,
            Retry::Elsewhere | Retry::OtherCertificate | Retry::OtherStore => None,
            Retry::After(after) => Some(after),
        };
        self.note_failure(namespace, server, failure.about, retry_after, &failure.detail);
    }

    fn note_failure(
        &self,
        namespace: &Namespace,
        server: usize,
        about: About,
        retry_after: Option<RetryAfter>,
        error: &str,
    ) {
        let now = Instant::now();
        let change = self.states().failed(&mut lock(&namespace.states), server, about, now, retry_after);
        if change != ServerChange::BeganToFail {
            return;
        }
        let (url, namespace) = (&*self.servers[server].url, &*namespace.name);
        match about {
            About::Server => tracing::warn!(server = url, error, "server failed"),
            About::Namespace => {
                tracing::warn!(server = url, namespace, error, "server returned no ids of the namespace");
            }
        }
    }

    fn states(&self) -> MutexGuard<'_, ServerChoice> {
        lock(&self.states)
    }
}

/// One request, as servers get it one after the other.
struct Round<'a> {
    fetcher: &'a Fetcher,
    namespace: &'a Namespace,
    count: u64,
    deadline: Instant,
    /// The servers that have not answered yet, and when the request went out. Servers still listed at the end may be too slow.
    waiting: Vec<(usize, Instant)>,
    /// Servers whose quota of the day may have fewer ids left. They get the next request only if no other returns ids.
    spent: Vec<(usize, RequestFailure)>,
    is_over_quota: bool,
    /// The number of servers whose certificate or store is another one.
    distrusted: usize,
}

impl<'a> Round<'a> {
    fn new(fetcher: &'a Fetcher, namespace: &'a Namespace, count: u64, deadline: Instant) -> Self {
        let (waiting, spent) = (Vec::new(), Vec::new());
        Self { fetcher, namespace, count, deadline, waiting, spent, is_over_quota: false, distrusted: 0 }
    }

    /// Takes what a server answered. Returns its ids; `None` if another server may return some.
    fn settled(
        &mut self,
        server: usize,
        settled: Result<Answer, RequestFailure>,
    ) -> Result<Option<Answer>, Unfilled> {
        let (fetcher, namespace) = (self.fetcher, self.namespace);
        self.waiting.retain(|(it, _)| *it != server);
        let failure = match settled {
            Ok(answer) => {
                for (spent, failure) in &self.spent {
                    fetcher.failed(namespace, *spent, failure);
                }
                fetcher.succeeded(namespace, server);
                return Ok(Some(answer));
            }
            Err(failure) => failure,
        };
        fetcher.counters.failed.fetch_add(1, Ordering::Relaxed);
        if self.count > 1 && failure.is_over_quota_beyond(self.deadline) {
            self.spent.push((server, failure.clone()));
        } else {
            fetcher.failed(namespace, server, &failure);
        }
        match failure.retry {
            Retry::Never => return Err(Unfilled::Rejected(failure)),
            Retry::Fewer if self.count > 1 => return Err(Unfilled::TooMany),
            Retry::OtherCertificate | Retry::OtherStore => {
                self.distrusted += 1;
                // No retry within the caller's timeout will help.
                if self.distrusted == fetcher.servers.len() {
                    return Err(Unfilled::Rejected(failure));
                }
            }
            Retry::Fewer | Retry::Elsewhere | Retry::After(_) => {}
        }
        self.is_over_quota |= failure.kind == ErrorKind::OverQuota;
        let mut last = lock(&namespace.last_failure);
        // A second store is what somebody has to know of, whatever else fails too.
        if failure.retry == Retry::OtherStore || last.as_ref().is_none_or(|it| it.retry != Retry::OtherStore)
        {
            *last = Some(failure);
        }
        Ok(None)
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        let patience = self.fetcher.hedge_after.min(self.fetcher.attempt);
        for (server, asked) in self.waiting.drain(..) {
            self.fetcher.counters.failed.fetch_add(1, Ordering::Relaxed);
            if asked.elapsed() >= patience {
                // The cause is unknown, so it counts for the server. Without `Retry-After`, the server is only tried last.
                self.fetcher.note_failure(self.namespace, server, About::Server, None, "no answer in time");
            }
        }
    }
}

/// Locks a mutex over plain values, which stay valid after a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
