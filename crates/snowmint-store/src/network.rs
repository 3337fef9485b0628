//! What stores behind a connection of their own have in common: hosts that are tried in turn, and limits in time.
//! Whether a failed call can have written anything is decided by how far it came.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

pub(crate) use crate::effect::{Effect, chain};
use crate::location::{Host, Location};
use crate::{StoreErrorKind, UrlError};

/// How long a call may take in all, with connecting, unless `timeout_ms` says otherwise.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A connection that was not used for so long is asked whether it still stands before it carries anything: a write
/// that is lost on a dead one would have an unknown outcome.
pub(crate) const IDLE: Duration = Duration::from_millis(500);

/// Why there is no connection. Nothing was sent on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) kind: StoreErrorKind,
    pub(crate) text: String,
}

impl Refusal {
    pub(crate) fn new(kind: StoreErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub(crate) fn late(limit: Duration) -> Self {
        Self::new(StoreErrorKind::Unavailable, format!("no answer within {} ms", limit.as_millis()))
    }
}

/// The hosts of a store, one of which is the one to talk to.
#[derive(Debug)]
pub(crate) struct Hosts {
    all: Vec<Host>,
    /// The one that did last.
    first: AtomicUsize,
}

impl Hosts {
    pub(crate) const fn new(all: Vec<Host>) -> Self {
        Self { all, first: AtomicUsize::new(0) }
    }

    /// Tries the hosts in turn, beginning with the one that did last. Each gets its share of the time, so that one
    /// that swallows everything leaves some for the others.
    pub(crate) async fn connect<C, F>(
        &self,
        deadline: Instant,
        connect: impl Fn(Host) -> F,
    ) -> Result<C, Refusal>
    where
        F: Future<Output = Result<C, Refusal>>,
    {
        let (count, first) = (self.all.len(), self.first.load(Ordering::Relaxed));
        let mut refusals = Vec::with_capacity(count);
        for nth in 0..count {
            let at = (first + nth) % count;
            let host = self.all[at].clone();
            let left = deadline.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(count - nth).unwrap_or(u32::MAX);
            let connected = timeout_at(Instant::now() + share, connect(host.clone())).await;
            match connected.unwrap_or_else(|_| Err(Refusal::late(share))) {
                Ok(connection) => {
                    self.first.store(at, Ordering::Relaxed);
                    return Ok(connection);
                }
                Err(Refusal { kind, text }) => {
                    refusals.push(Refusal { kind, text: format!("{host}: {text}") });
                }
            }
        }
        Err(all_of(&refusals))
    }
}

/// Says what every host said. While one of them cannot be reached it may be the right one, so a later try may help.
fn all_of(refusals: &[Refusal]) -> Refusal {
    let temporary = refusals.iter().any(|it| it.kind == StoreErrorKind::Unavailable);
    let kind = match refusals.first() {
        Some(first) if !temporary => first.kind,
        _ => StoreErrorKind::Unavailable,
    };
    Refusal::new(kind, refusals.iter().map(|it| &*it.text).collect::<Vec<_>>().join("; "))
}

/// The limit of a call: `timeout_ms`, from 100 ms to a minute.
pub(crate) fn timeout(location: &mut Location) -> Result<Duration, UrlError> {
    let limit = take_number(location, "timeout_ms", 100..=60_000)?;
    Ok(limit.map_or(TIMEOUT, Duration::from_millis))
}

/// A parameter that is a number in a range.
pub(crate) fn take_number(
    location: &mut Location,
    name: &str,
    range: std::ops::RangeInclusive<u64>,
) -> Result<Option<u64>, UrlError> {
    let Some(text) = location.take(name) else {
        return Ok(None);
    };
    match text.parse() {
        Ok(number) if range.contains(&number) => Ok(Some(number)),
        _ => {
            let (from, to) = range.into_inner();
            Err(location.malformed(&format!("{name}= is a number from {from} to {to}")))
        }
    }
}

/// The longest loss that `may_lose` may state.
const MAX_LOSS: Duration = Duration::from_secs(300);

/// How much of its newest writes a failover may cost the store: `may_lose`, such as `2s`, `500ms` or `0`.
pub(crate) fn may_lose(location: &mut Location, default: Duration) -> Result<Duration, UrlError> {
    let Some(text) = location.take("may_lose") else {
        return Ok(default);
    };
    let (digits, unit_ms) = match text.strip_suffix("ms") {
        Some(digits) => (digits, 1),
        None => text.strip_suffix('s').map_or((&*text, 0), |digits| (digits, 1000)),
    };
    let number = digits.bytes().all(|it| it.is_ascii_digit()).then(|| digits.parse::<u64>().ok()).flatten();
    match number
        .and_then(|number| if unit_ms == 0 && number > 0 { None } else { number.checked_mul(unit_ms) })
    {
        Some(ms) if Duration::from_millis(ms) <= MAX_LOSS => Ok(Duration::from_millis(ms)),
        _ => Err(location.malformed("invalid may_lose: expected a time from 0 to 300s, such as 2s or 500ms")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(rest: &str) -> Hosts {
        Hosts::new(Location::parse("redis", rest, 1).unwrap().hosts)
    }

    async fn connect(hosts: &Hosts, good: &str, limit: Duration) -> Result<String, Refusal> {
        let attempt = async |host: Host| match host.to_string() {
            host if host == good => Ok(host),
            host if host.starts_with("silent") => std::future::pending().await,
            host if host.starts_with("copy") => Err(Refusal::new(StoreErrorKind::ReadOnly, "a copy")),
            _ => Err(Refusal::new(StoreErrorKind::Unavailable, "refused")),
        };
        hosts.connect(Instant::now() + limit, attempt).await
    }

    #[tokio::test(start_paused = true)]
    async fn hosts_are_tried_in_turn_from_the_one_that_did_last() {
        let hosts = hosts("//a,silent,c");
        let limit = Duration::from_secs(3);
        assert_eq!(connect(&hosts, "c:1", limit).await.unwrap(), "c:1");
        assert_eq!(hosts.first.load(Ordering::Relaxed), 2);
        assert_eq!(connect(&hosts, "a:1", limit).await.unwrap(), "a:1");
        let refusal = connect(&hosts, "none", limit).await.unwrap_err();
        assert_eq!(refusal.text, "a:1: refused; silent:1: no answer within 1500 ms; c:1: refused");
    }

    #[tokio::test]
    async fn a_host_that_may_come_back_makes_a_refusal_temporary() {
        let limit = Duration::from_secs(1);
        let refused = async |rest| connect(&hosts(rest), "none", limit).await.unwrap_err().kind;
        assert_eq!(refused("//copy1,copy2").await, StoreErrorKind::ReadOnly);
        assert_eq!(refused("//copy1,b").await, StoreErrorKind::Unavailable);
    }

    #[test]
    fn a_loss_is_a_time_with_its_unit() {
        let may_lose = |rest: &str| {
            may_lose(&mut Location::parse("redis", rest, 1).unwrap(), Duration::from_secs(2))
                .map(|it| it.as_millis())
        };
        for (rest, ms) in [("//h", 2000), ("//h?may_lose=0", 0), ("//h?may_lose=0s", 0)] {
            assert_eq!(may_lose(rest).unwrap(), ms, "{rest}");
        }
        for (rest, ms) in [("//h?may_lose=500ms", 500), ("//h?may_lose=300s", 300_000)] {
            assert_eq!(may_lose(rest).unwrap(), ms, "{rest}");
        }
        for bad in
            ["2", "", "s", "ms", "+1s", "-1s", "1.5s", "301s", "300001ms", "18446744073709551615s", "2m"]
        {
            let rest = format!("//h?may_lose={bad}");
            let error = may_lose(&rest).unwrap_err().to_string();
            assert!(error.contains("such as 2s or 500ms"), "{bad}: {error}");
        }
    }

    #[test]
    fn a_time_limit_is_in_bounds() {
        let timeout = |rest| timeout(&mut Location::parse("redis", rest, 1).unwrap());
        assert_eq!(timeout("//h").unwrap(), TIMEOUT);
        assert_eq!(timeout("//h?timeout_ms=250").unwrap(), Duration::from_millis(250));
        for bad in ["//h?timeout_ms=0", "//h?timeout_ms=60001", "//h?timeout_ms=1s", "//h?timeout_ms"] {
            assert!(timeout(bad).unwrap_err().to_string().contains("from 100 to 60000"), "{bad}");
        }
    }
}
