//! The hosts of a store on the network: which one to use, and when all are asked again.
//! Of several hosts, the store uses the one that accepts writes. It refuses two that both accept writes.

#[cfg(feature = "_https")]
pub(crate) mod https;
#[cfg(feature = "_tls")]
pub(crate) mod tls;
pub(crate) mod trust;
pub(crate) mod url;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use self::url::Host;
use crate::StoreErrorKind;

/// A connection that was idle for this long is probed before it carries a call: a write that is lost on a
/// dead connection would have an unknown outcome.
pub(crate) const IDLE: Duration = Duration::from_millis(500);
/// Time that the other hosts have to answer once one has accepted.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time that the members of a cluster may need to learn that another one joined or left.
const VIEW_CHANGE: Duration = Duration::from_millis(500);

/// The reason why there is no connection. No call was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HostRefusal {
    pub(crate) kind: StoreErrorKind,
    pub(crate) text: String,
}

impl HostRefusal {
    pub(crate) fn new(kind: StoreErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub(crate) fn late(limit: Duration) -> Self {
        Self::new(StoreErrorKind::Unavailable, format!("no answer within {} ms", limit.as_millis()))
    }
}

/// A server that accepts writes.
#[derive(Debug)]
pub(crate) struct Writable<C, M> {
    pub(crate) connection: C,
    /// Equal for two hosts only if both are names of one server, or members of a cluster that all accept
    /// writes. `None` is not compared: for clusters whose members each hold other keys.
    pub(crate) server: Option<String>,
    /// The extent of its history.
    pub(crate) history: M,
    pub(crate) standing: Standing,
}

/// Whether a failover may still lose the history that a server shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// It cannot, so no later server may lack it.
    Kept,
    /// It can, until a later commit is confirmed: a replica that lacks it is a valid new primary.
    Unconfirmed,
}

/// Who confirms the writes that a server acknowledges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Confirmation {
    /// Each commit waits until the replicas have confirmed it.
    ByReplicas,
    /// No commit waits.
    Nobody,
}

/// The server that was chosen among the hosts.
#[derive(Debug)]
pub(crate) struct Chosen<C, M> {
    pub(crate) connection: C,
    pub(crate) server: Option<String>,
    /// Its history while that is [`Standing::Unconfirmed`], for [`Hosts::remember`] once it is confirmed.
    pub(crate) unconfirmed: Option<M>,
}

/// The result of connecting to a host.
pub(crate) type HostAnswer<C, M> = Result<Writable<C, M>, HostRefusal>;

/// The extent of a server's history: a timeline, an epoch, or a set of transactions.
pub(crate) trait ServerHistory: Default {
    /// Returns the part of the history `seen` that this history lacks, as text after "the server "; `None` if
    /// it lacks nothing.
    fn lacks(&self, seen: &Self) -> Option<String>;

    /// Extends this history by another.
    fn merge(&mut self, other: Self);

    /// Returns why servers that all accept writes and claim to be members of one cluster are not one, as text
    /// after "h1 and h2 both accept writes, "; `None` if they are.
    fn split(_histories: &[&Self]) -> Option<String> {
        None
    }
}

impl ServerHistory for () {
    fn lacks(&self, (): &Self) -> Option<String> {
        None
    }

    fn merge(&mut self, (): Self) {}
}

/// The hosts of a store, one of which is used.
#[derive(Debug)]
pub(crate) struct Hosts<M = ()> {
    all: Vec<Host>,
    /// The index of the host that was used last.
    first: AtomicUsize,
    /// The history that no server may lack.
    seen: Mutex<M>,
}

impl<M: ServerHistory> Hosts<M> {
    pub(crate) fn new(all: Vec<Host>) -> Self {
        Self { all, first: AtomicUsize::new(0), seen: Mutex::new(M::default()) }
    }

    pub(crate) fn all(&self) -> &[Host] {
        &self.all
    }

    /// Returns whether there is more than one host, so that more than one may accept writes.
    pub(crate) const fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// Returns the host that was used last.
    pub(crate) fn last(&self) -> &Host {
        &self.all[self.first.load(Ordering::Relaxed)]
    }

    /// Remembers a history that a failover can no longer lose, so that a later server that lacks it is
    /// refused.
    pub(crate) fn remember(&self, history: M) {
        self.seen().merge(history);
    }

    /// Asks all hosts at once and uses the one that accepts writes. In a cluster with several such members it
    /// uses the one that was used last. It refuses two separate servers that both accept writes, because one
    /// of them is an outdated primary. It also refuses a server that lacks a part of the history that this
    /// node has seen.
    ///
    /// Once one host has accepted, the others have a short time left, so that an unresponsive host delays
    /// nobody for long.
    pub(crate) async fn connect<C, F>(
        &self,
        deadline: Instant,
        connect: impl Fn(Host) -> F,
    ) -> Result<Chosen<C, M>, HostRefusal>
    where
        F: Future<Output = HostAnswer<C, M>>,
    {
        let mut answers = self.ask(deadline, &connect).await;
        if self.split(&answers).is_some() {
            // The members may still be learning that another one joined or left: ask once more.
            drop(answers);
            let left = deadline.saturating_duration_since(Instant::now());
            sleep(VIEW_CHANGE.min(left / 4)).await;
            answers = self.ask(deadline, &connect).await;
        }
        self.choose(answers)
    }

    /// Asks all hosts at once. Returns the answer of each.
    async fn ask<C, F>(
        &self,
        deadline: Instant,
        connect: impl Fn(Host) -> F,
    ) -> Vec<(usize, HostAnswer<C, M>)>
    where
        F: Future<Output = HostAnswer<C, M>>,
    {
        let started = Instant::now();
        let left = deadline.saturating_duration_since(started);
        let (count, first) = (self.all.len(), self.first.load(Ordering::Relaxed));
        let order = || (0..count).map(|nth| (first + nth) % count);
        let mut asked: Vec<_> = order().map(|at| (Box::pin(connect(self.all[at].clone())), None)).collect();
        if timeout_at(deadline, answers(&mut asked, Result::is_ok)).await.is_ok() {
            let patience = Instant::now() + (left / 4).min(PATIENCE);
            // A host that takes longer counts as unreachable.
            timeout_at(patience.min(deadline), answers(&mut asked, |_| false)).await.ok();
        }
        let silent = || Err(HostRefusal::late(started.elapsed()));
        order().zip(asked).map(|(at, (_, answer))| (at, answer.unwrap_or_else(silent))).collect()
    }

    /// Returns why the servers that accept writes are not one cluster, although they claim to be.
    fn split<C>(&self, answers: &[(usize, HostAnswer<C, M>)]) -> Option<String> {
        let writable = answers.iter().filter_map(|(at, answer)| Some((*at, &answer.as_ref().ok()?.history)));
        let (at, histories): (Vec<_>, Vec<_>) = writable.unzip();
        let why = M::split(&histories)?;
        let hosts: Vec<_> = at.into_iter().map(|at| self.all[at].to_string()).collect();
        Some(format!("{} accept writes, {why}", hosts.join(" and ")))
    }

    /// Returns the first of the answers that can be trusted.
    fn choose<C>(&self, answers: Vec<(usize, HostAnswer<C, M>)>) -> Result<Chosen<C, M>, HostRefusal> {
        let servers =
            answers.iter().filter_map(|(at, answer)| Some((at, answer.as_ref().ok()?.server.as_ref()?)));
        let servers: Vec<_> = servers.collect();
        if let Some((one, server)) = servers.first()
            && let Some((other, _)) = servers.iter().find(|it| it.1 != *server)
        {
            let text = format!(
                "{} and {} both accept writes: one of them was replaced by the other and would produce duplicates; \
                 stop the replaced one or make it read-only",
                self.all[**one], self.all[**other]
            );
            return Err(HostRefusal::new(StoreErrorKind::SplitBrain, text));
        }
        if let Some(text) = self.split(&answers) {
            // A member that lags behind shows the previous view for a while.
            return Err(HostRefusal::new(StoreErrorKind::Unavailable, text));
        }
        let mut refusals = Vec::with_capacity(answers.len());
        let mut seen = self.seen();
        for (at, answer) in answers {
            let refusal = match answer {
                Ok(Writable { connection, server, history, standing }) => match history.lacks(&seen) {
                    None => {
                        self.first.store(at, Ordering::Relaxed);
                        let unconfirmed = match standing {
                            Standing::Unconfirmed => Some(history),
                            Standing::Kept => {
                                seen.merge(history);
                                None
                            }
                        };
                        return Ok(Chosen { connection, server, unconfirmed });
                    }
                    Some(lack) => {
                        let text = format!(
                            "the server {lack}: it was restored from a backup or lost writes in a failover; return to the \
                             server that has them, or run `snowmint store recover` before you restart nodes"
                        );
                        HostRefusal::new(StoreErrorKind::Other, text)
                    }
                },
                Err(refusal) => refusal,
            };
            let text = format!("{}: {}", self.all[at], refusal.text);
            refusals.push(HostRefusal { text, ..refusal });
        }
        Err(all_of(&refusals))
    }

    /// A panic cannot leave a history half changed, so a poisoned lock is safe to use.
    fn seen(&self) -> MutexGuard<'_, M> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns how old the answers of all hosts may be when a call begins: at most `longest`.
///
/// A primary that was replaced acknowledges writes that its successor lacks: those since the promotion, and
/// those just before it that replication had not passed on. Hosts that are asked after the promotion name
/// both. So a call goes to the old one only if it began within this time after the promotion, and it confirms
/// only what was acknowledged `may_lose` before it began. With half of `may_lose`, that is older than the
/// promotion by the other half, which is left for the lag of replication.
pub(crate) fn ask_every(longest: Duration, may_lose: Duration) -> Duration {
    // Without a loss there is nothing to confirm.
    if may_lose.is_zero() { longest } else { longest.min(may_lose / 2) }
}

/// Asks the hosts in the background before their last answers are too old, so that no call waits for an
/// unresponsive host.
#[derive(Default)]
pub(crate) struct Refresher(Mutex<Refreshes>);

#[derive(Default)]
struct Refreshes {
    /// At most one.
    tasks: JoinSet<()>,
    began: Option<Instant>,
}

impl Refresher {
    /// Starts a refresh if the hosts were last asked this long ago, or never, and no refresh runs; while it
    /// fails, not at each call.
    pub(crate) fn refresh<F>(
        &self,
        asked: impl FnOnce() -> Option<Instant>,
        after: Duration,
        refresh: impl FnOnce() -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        // A panic cannot leave the tasks half changed, so a poisoned lock is safe to use.
        let mut refreshes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Refreshes { tasks, began } = &mut *refreshes;
        while tasks.try_join_next().is_some() {}
        // Read under the lock: the last refresh may just have stored it.
        let is_due = asked().is_none_or(|it| it.elapsed() >= after)
            && began.is_none_or(|it| it.elapsed() >= after / 2);
        if tasks.is_empty() && is_due {
            *began = Some(Instant::now());
            tasks.spawn(refresh());
        }
    }
}

/// Polls all hosts that have not answered, until one answer is enough or all have answered.
async fn answers<F: Future + Unpin>(
    asked: &mut [(F, Option<F::Output>)],
    enough: impl Fn(&F::Output) -> bool,
) {
    poll_fn(|context| {
        let mut done = true;
        for (future, answer) in &mut *asked {
            if answer.is_none()
                && let Poll::Ready(ready) = Pin::new(future).poll(context)
            {
                *answer = Some(ready);
            }
            match answer {
                Some(answer) if enough(answer) => return Poll::Ready(()),
                Some(_) => {}
                None => done = false,
            }
        }
        if done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Combines the refusals of all hosts. A retry may help while a host is unreachable, since it may be the
/// primary, and while all of several hosts are read-only, since one of them may be promoted.
pub(crate) fn all_of(refusals: &[HostRefusal]) -> HostRefusal {
    let any = |kind| refusals.iter().any(|it| it.kind == kind);
    let temporary = any(StoreErrorKind::Unavailable) || (refusals.len() > 1 && any(StoreErrorKind::ReadOnly));
    let kind = match refusals.first() {
        Some(first) if !temporary => first.kind,
        _ => StoreErrorKind::Unavailable,
    };
    HostRefusal::new(kind, refusals.iter().map(|it| &*it.text).collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::url::StoreUrl;
    use super::*;

    /// The answers of the hosts are in their names: `copy`, `silent`, `slow`, and `up` with the server and
    /// its history.
    async fn connect(hosts: &Hosts<u64>, limit: Duration) -> Result<String, HostRefusal> {
        let attempt = async |host: Host| {
            let name = host.to_string();
            let mut words = name.split([':', '-']);
            match words.next().unwrap() {
                "silent" => std::future::pending().await,
                "copy" => return Err(HostRefusal::new(StoreErrorKind::ReadOnly, "a copy")),
                "slow" => sleep(Duration::from_millis(200)).await,
                "up" => {}
                _ => return Err(HostRefusal::new(StoreErrorKind::Unavailable, "refused")),
            }
            let server = words.next().filter(|it| *it != "any").map(ToOwned::to_owned);
            let history = words.next().map_or(0, |it| it.parse().unwrap());
            Ok(Writable { connection: name.clone(), server, history, standing: Standing::Kept })
        };
        hosts.connect(Instant::now() + limit, attempt).await.map(|it| it.connection)
    }

    impl ServerHistory for u64 {
        fn lacks(&self, seen: &Self) -> Option<String> {
            (self < seen).then(|| format!("is in epoch {self}, and {seen} was seen"))
        }

        fn merge(&mut self, other: Self) {
            *self = other.max(*self);
        }
    }

    fn hosts(rest: &str) -> Hosts<u64> {
        Hosts::new(StoreUrl::parse("redis", rest, 1).unwrap().hosts)
    }

    #[tokio::test(start_paused = true)]
    async fn the_host_that_accepts_writes_is_taken() {
        let limit = Duration::from_secs(3);
        let started = Instant::now();
        assert_eq!(connect(&hosts("//copy,a,up-a-1"), limit).await.unwrap(), "up-a-1:1");
        assert_eq!(started.elapsed(), Duration::ZERO, "nobody is waited for once all have answered");
        let refusal = connect(&hosts("//a,silent,c"), limit).await.unwrap_err();
        assert_eq!(refusal.text, "a:1: refused; silent:1: no answer within 3000 ms; c:1: refused");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_host_blocks_nobody() {
        let hosts = hosts("//silent,up-a-1");
        let started = Instant::now();
        assert_eq!(connect(&hosts, Duration::from_secs(2)).await.unwrap(), "up-a-1:1");
        assert_eq!(started.elapsed(), Duration::from_millis(500));
        connect(&hosts, Duration::from_mins(1)).await.unwrap();
        assert_eq!(started.elapsed(), Duration::from_millis(1500));
    }

    /// Goal: a replaced primary that still accepts writes is never used, whichever answers first. Method: all
    /// orders, and names of one server or one cluster, which are not a second primary.
    #[tokio::test(start_paused = true)]
    async fn two_that_accept_writes_are_refused() {
        let limit = Duration::from_secs(3);
        for rest in
            ["//up-a-1,up-b-2", "//up-b-2,up-a-1", "//slow-a-1,up-b-2", "//up-any-1,copy,up-a-1,slow-b-1"]
        {
            let refusal = connect(&hosts(rest), limit).await.unwrap_err();
            assert_eq!(refusal.kind, StoreErrorKind::SplitBrain, "{rest}");
            assert!(
                refusal.text.contains("both accept writes") && refusal.text.contains("-b-"),
                "{rest}: {refusal:?}"
            );
        }
        let refusal = connect(&hosts("//a,up-a-1,up-b-1"), limit).await.unwrap_err();
        assert_eq!(
            refusal.kind,
            StoreErrorKind::SplitBrain,
            "a host that is down does not make it pass by itself"
        );
        assert!(refusal.text.starts_with("up-a-1:1 and up-b-1:1 both accept writes"), "{refusal:?}");
        for rest in ["//up-a-1,up-a-2", "//up-a-1,up-any-2", "//up-a-1,slow-a-1,copy"] {
            assert_eq!(connect(&hosts(rest), limit).await.unwrap(), "up-a-1:1", "{rest}");
        }
        assert_eq!(connect(&hosts("//up-any-1,up-any-2"), limit).await.unwrap(), "up-any-1:1");
    }

    /// Goal: in a cluster whose members all accept writes, the store keeps using the same member.
    #[tokio::test(start_paused = true)]
    async fn of_several_the_one_that_did_last_is_taken() {
        let hosts = hosts("//slow-a-1,up-a-1,silent");
        let limit = Duration::from_secs(3);
        for (first, taken) in [(1, "up-a-1:1"), (0, "slow-a-1:1"), (2, "slow-a-1:1")] {
            hosts.first.store(first, Ordering::Relaxed);
            assert_eq!(connect(&hosts, limit).await.unwrap(), taken);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_lacks_what_was_seen_is_refused() {
        let hosts = hosts("//a,up-a-5");
        let limit = Duration::from_secs(3);
        connect(&hosts, limit).await.unwrap();
        hosts.remember(6);
        hosts.remember(4);
        let refusal = connect(&hosts, limit).await.unwrap_err();
        assert_eq!(
            refusal.kind,
            StoreErrorKind::Unavailable,
            "the host that is down may be the one that has it"
        );
        assert!(refusal.text.contains("up-a-5:1: the server is in epoch 5, and 6 was seen"), "{refusal:?}");
    }

    /// Goal: the next server need not have history that a failover may still lose. Method: a history that is
    /// not confirmed.
    #[tokio::test(start_paused = true)]
    async fn a_history_counts_once_it_is_confirmed() {
        let limit = Duration::from_secs(3);
        let hosts = hosts("//h");
        let connected = async |history, standing| {
            let answer = async |_| Ok(Writable { connection: (), server: None, history, standing });
            hosts.connect(Instant::now() + limit, answer).await.map(|it| it.unconfirmed)
        };
        assert_eq!(connected(7, Standing::Unconfirmed).await.unwrap(), Some(7));
        assert_eq!(connected(5, Standing::Kept).await.unwrap(), None);
        connected(4, Standing::Unconfirmed).await.unwrap_err();
        hosts.remember(7);
        connected(6, Standing::Kept).await.unwrap_err();
    }

    #[tokio::test]
    async fn a_host_that_may_come_back_makes_a_refusal_temporary() {
        let limit = Duration::from_secs(1);
        let refused = async |rest| connect(&hosts(rest), limit).await.unwrap_err().kind;
        assert_eq!(refused("//copy-1").await, StoreErrorKind::ReadOnly);
        assert_eq!(refused("//copy-1,copy-2").await, StoreErrorKind::Unavailable, "one may be promoted");
        assert_eq!(refused("//copy-1,b").await, StoreErrorKind::Unavailable);
    }
}
