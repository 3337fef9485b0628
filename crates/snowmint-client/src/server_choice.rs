//! Chooses the next server to try. Pure: time is an argument, and randomness comes from a seed.
//!
//! Servers are tried in the order of the list. One that failed is tried last for a while: longer after each
//! failure in a row, with jitter, so that clients do not return together. A server that sent `Retry-After`
//! gets no request before that time.
//!
//! A failure that concerns one namespace counts for that namespace only; requests for other namespaces
//! continue.

use std::time::Duration;

use snowmint::random::SplitMix64;
use tokio::time::Instant;

use crate::error::{FailureScope, RetryAfter};

/// How long a server is tried last after its first failure; doubled after each further one.
const LEFT_OUT: Duration = Duration::from_millis(100);
const LONGEST_LEFT_OUT: Duration = Duration::from_secs(10);
/// The pause after every server failed; doubled after each further round.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How many hedged requests may follow each other. Every `REQUESTS_PER_HEDGE` requests allow one more, so
/// that hedging does not double the load when all servers are slow.
const HEDGES: u32 = 10;
const REQUESTS_PER_HEDGE: u32 = 10;

/// Returns a duration between half of `most` and `most`.
fn jitter(most: Duration, random: &mut SplitMix64) -> Duration {
    let half_ns = most.as_nanos() / 2;
    let part_ns = (half_ns * u128::from(random.draw() >> 32)) >> 32;
    Duration::from_nanos(u64::try_from(half_ns + part_ns).unwrap_or(u64::MAX))
}

/// Shuffles a list.
pub(crate) fn shuffle<T>(list: &mut [T], seed: u64) {
    let mut random = SplitMix64::of(seed);
    for index in (1..list.len()).rev() {
        let other = random.below(index as u64 + 1);
        list.swap(index, usize::try_from(other).unwrap_or(index));
    }
}

/// The state of one server, or of one namespace at one server.
#[derive(Clone, Copy, Debug, Default)]
struct ServerHealth {
    /// Failures since the last success.
    failures: u32,
    /// Until then, other servers are tried first.
    left_out_until: Option<Instant>,
    /// Until then, the server gets no requests (`Retry-After`).
    not_before: Option<Instant>,
}

impl ServerHealth {
    /// Clears the failures.
    fn succeeded(&mut self) -> ServerChange {
        let before = std::mem::take(self);
        if before.failures == 0 { ServerChange::None } else { ServerChange::Recovered(before.failures) }
    }

    fn failed(
        &mut self,
        now: Instant,
        retry_after: Option<RetryAfter>,
        random: &mut SplitMix64,
    ) -> ServerChange {
        let doubled = LEFT_OUT.saturating_mul(1 << self.failures.min(16)).min(LONGEST_LEFT_OUT);
        self.failures = self.failures.saturating_add(1);
        self.left_out_until = Some(now + jitter(doubled, random));
        // A later failure that names no time, such as of a request that was on its way, ends no earlier wait.
        self.not_before = self.not_before.max(retry_after.map(|after| now + after.get()));
        if self.failures == 1 { ServerChange::BeganToFail } else { ServerChange::None }
    }
}

/// The state of each server for one namespace.
#[derive(Debug)]
pub(crate) struct NamespaceStates(Vec<ServerHealth>);

impl NamespaceStates {
    /// Returns the state of `count` servers before the first request for the namespace.
    pub(crate) fn new(count: usize) -> Self {
        Self(vec![ServerHealth::default(); count])
    }

    /// Returns whether a server asked for a later retry, or is tried last.
    pub(crate) fn is_restricted(&self, now: Instant) -> bool {
        let is_later = |at: Option<Instant>| at.is_some_and(|at| at > now);
        self.0.iter().any(|state| is_later(state.not_before) || is_later(state.left_out_until))
    }
}

/// What a success or a failure changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerChange {
    /// It failed for the first time.
    BeganToFail,
    /// It returned ids again after this many failures.
    Recovered(u32),
    /// No change.
    None,
}

/// The state of all servers that applies to every namespace.
#[derive(Debug)]
pub(crate) struct ServerChoice {
    states: Vec<ServerHealth>,
    random: SplitMix64,
    /// Credit for hedged requests, in requests.
    hedge_credit: u32,
}

impl ServerChoice {
    /// Returns the state of `count` servers before their first request.
    pub(crate) fn new(count: usize, seed: u64) -> Self {
        Self {
            states: vec![ServerHealth::default(); count],
            random: SplitMix64::of(seed),
            hedge_credit: HEDGES * REQUESTS_PER_HEDGE,
        }
    }

    /// Returns the servers in the order in which to try them for a namespace: first those that work, then
    /// those left out, by when they return.
    pub(crate) fn order(&self, own: &NamespaceStates, now: Instant) -> Vec<usize> {
        let may_be_asked = |index: &usize| self.not_before(own, *index).is_none_or(|at| at <= now);
        let mut order: Vec<_> = (0..self.states.len()).filter(may_be_asked).collect();
        let left_out_until =
            |index: usize| self.states[index].left_out_until.max(own.0[index].left_out_until);
        // The sort is stable: servers that work keep the order of the list.
        order.sort_by_key(|index| left_out_until(*index).filter(|until| *until > now));
        order
    }

    /// Records that a server returned ids. Returns the change for the server, and for the namespace at this
    /// server.
    pub(crate) fn succeeded(
        &mut self,
        own: &mut NamespaceStates,
        server: usize,
    ) -> (ServerChange, ServerChange) {
        (self.states[server].succeeded(), own.0[server].succeeded())
    }

    /// Records a failure, and when the server allows a retry.
    pub(crate) fn failed(
        &mut self,
        own: &mut NamespaceStates,
        server: usize,
        about: FailureScope,
        now: Instant,
        retry_after: Option<RetryAfter>,
    ) -> ServerChange {
        let state = match about {
            FailureScope::Server => &mut self.states[server],
            FailureScope::Namespace => &mut own.0[server],
        };
        state.failed(now, retry_after, &mut self.random)
    }

    /// Returns how long to pause after `round` rounds in which no server returned ids of the namespace.
    pub(crate) fn pause(&mut self, own: &NamespaceStates, round: u32, now: Instant) -> Duration {
        let doubled = PAUSE.saturating_mul(1 << round.min(16)).min(LONGEST_PAUSE);
        jitter(doubled, &mut self.random).max(self.closed_for(own, now))
    }

    /// Returns how long it takes until some server accepts requests for the namespace again.
    pub(crate) fn closed_for(&self, own: &NamespaceStates, now: Instant) -> Duration {
        let wait = |index| self.not_before(own, index).map_or(Duration::ZERO, |at| at - now);
        (0..self.states.len()).map(wait).min().unwrap_or_default()
    }

    /// Returns the time before which a server gets no requests for the namespace (`Retry-After`).
    fn not_before(&self, own: &NamespaceStates, server: usize) -> Option<Instant> {
        self.states[server].not_before.max(own.0[server].not_before)
    }

    /// Records a request that is not hedged.
    pub(crate) fn requested(&mut self) {
        self.hedge_credit = (self.hedge_credit + 1).min(HEDGES * REQUESTS_PER_HEDGE);
    }

    /// Returns whether one more hedged request may be sent now, and records it.
    pub(crate) fn may_hedge(&mut self) -> bool {
        let left = self.hedge_credit.checked_sub(REQUESTS_PER_HEDGE);
        self.hedge_credit = left.unwrap_or(self.hedge_credit);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns an instant, some servers and a namespace.
    fn servers(count: usize) -> (Instant, ServerChoice, NamespaceStates) {
        (Instant::now(), ServerChoice::new(count, 7), NamespaceStates::new(count))
    }

    fn seconds(asked: u64) -> RetryAfter {
        RetryAfter::capped(Duration::from_secs(asked))
    }

    #[test]
    fn the_first_server_that_works_is_asked() {
        // The same applies to failures of the server and of the namespace.
        for about in [FailureScope::Server, FailureScope::Namespace] {
            let (now, mut servers, mut own) = servers(3);
            assert_eq!(servers.order(&own, now), [0, 1, 2]);
            assert_eq!(servers.failed(&mut own, 0, about, now, None), ServerChange::BeganToFail);
            assert_eq!(servers.order(&own, now), [1, 2, 0]);
            servers.failed(&mut own, 1, about, now + 60 * MS, None);
            assert_eq!(servers.order(&own, now + 61 * MS)[0], 2);
            assert_eq!(servers.order(&own, now + 101 * MS)[0], 0, "after 100 ms it is tried again");
            let (of_server, of_namespace) = servers.succeeded(&mut own, 0);
            assert_eq!(of_server == ServerChange::Recovered(1), about == FailureScope::Server);
            assert_eq!(of_namespace == ServerChange::Recovered(1), about == FailureScope::Namespace);
            assert_eq!(servers.succeeded(&mut own, 0), (ServerChange::None, ServerChange::None));
            assert_eq!(servers.order(&own, now + 61 * MS), [0, 2, 1]);
        }
    }

    #[test]
    fn a_server_that_keeps_failing_is_left_out_longer_up_to_a_limit() {
        let (now, mut servers, mut own) = servers(2);
        let left_out = |servers: &ServerChoice| servers.states[0].left_out_until.unwrap() - now;
        for failures in 0..40 {
            let most = (100 * MS).saturating_mul(1 << failures.min(16)).min(Duration::from_secs(10));
            let change = servers.failed(&mut own, 0, FailureScope::Server, now, None);
            assert_eq!(change == ServerChange::BeganToFail, failures == 0);
            assert!((most / 2..=most).contains(&left_out(&servers)), "{failures}: {:?}", left_out(&servers));
        }
        // Jitter: two clients do not return together.
        let [first, other] = [7, 8].map(|seed| {
            let mut servers = ServerChoice::new(2, seed);
            servers.failed(&mut own, 0, FailureScope::Server, now, None);
            left_out(&servers)
        });
        assert_ne!(other, first);
    }

    #[test]
    fn a_server_is_not_asked_before_it_wants_to_be() {
        let (now, mut servers, mut own) = servers(2);
        // The later of the two times counts: that of the server, or that of the namespace at this server.
        servers.failed(&mut own, 0, FailureScope::Server, now, Some(seconds(2)));
        servers.failed(&mut own, 0, FailureScope::Namespace, now, Some(seconds(1)));
        servers.failed(&mut own, 1, FailureScope::Namespace, now, Some(seconds(3)));
        servers.failed(&mut own, 1, FailureScope::Namespace, now, None);
        assert!(servers.order(&own, now + 1999 * MS).is_empty());
        assert!(servers.pause(&own, 0, now + 1000 * MS) >= 1000 * MS);
        assert_eq!(servers.closed_for(&own, now + 500 * MS), 1500 * MS);
        assert_eq!(servers.order(&own, now + 2000 * MS), [0]);
        assert_eq!(servers.order(&own, now + 3000 * MS), [0, 1]);
        // A server cannot turn this client off for long.
        for about in [FailureScope::Server, FailureScope::Namespace] {
            servers.failed(&mut own, 0, about, now, Some(seconds(u64::MAX)));
            assert_eq!(servers.order(&own, now + Duration::from_secs(59)), [1]);
            assert_eq!(servers.order(&own, now + Duration::from_mins(1)), [0, 1]);
        }
    }

    /// Goal: failures of one namespace do not affect another one, and ids of the other one do not clear these
    /// failures.
    #[test]
    fn the_failures_of_a_namespace_are_its_own() {
        let (now, mut servers, mut orders) = servers(2);
        let mut invoices = NamespaceStates::new(2);
        for nth in 0..5 {
            for server in [0, 1] {
                let after = Some(seconds(50));
                let change = servers.failed(&mut invoices, server, FailureScope::Namespace, now, after);
                assert_eq!(change == ServerChange::BeganToFail, nth == 0, "it is logged once");
                assert_eq!(servers.succeeded(&mut orders, server), (ServerChange::None, ServerChange::None));
            }
            assert_eq!(
                (servers.order(&orders, now), servers.closed_for(&orders, now)),
                (vec![0, 1], Duration::ZERO)
            );
            assert_eq!(
                (servers.order(&invoices, now), servers.closed_for(&invoices, now)),
                (vec![], 50_000 * MS)
            );
        }
        assert_eq!(servers.succeeded(&mut invoices, 1), (ServerChange::None, ServerChange::Recovered(5)));
        assert_eq!(servers.order(&invoices, now), [1]);
        // A failure of the server affects both namespaces.
        servers.failed(&mut invoices, 0, FailureScope::Server, now, Some(seconds(9)));
        assert_eq!(servers.order(&orders, now), [1]);
    }

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let (now, mut servers, own) = servers(2);
        for round in 0..40 {
            let most = (20 * MS).saturating_mul(1 << round.min(16)).min(Duration::from_secs(1));
            assert!((most / 2..=most).contains(&servers.pause(&own, round, now)));
        }
    }

    #[test]
    fn hedges_are_a_tenth_of_the_requests_after_the_first_ten() {
        let (_, mut servers, _) = servers(2);
        assert_eq!((0..50).filter(|_| servers.may_hedge()).count(), 10);
        let hedges = (0..1000).filter(|_| {
            servers.requested();
            servers.may_hedge()
        });
        assert_eq!(hedges.count(), 100);
    }

    #[test]
    fn a_shuffled_list_has_every_server_first_at_times() {
        let mut firsts = [0; 3];
        for seed in 0..300 {
            let mut list = [0, 1, 2];
            shuffle(&mut list, seed);
            firsts[list[0]] += 1;
            list.sort_unstable();
            assert_eq!(list, [0, 1, 2]);
        }
        assert!(firsts.iter().all(|count| *count > 70), "{firsts:?}");
    }
}
