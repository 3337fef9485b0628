//! The stores of the simulated world: how each kind of real store handles a call, and how it fails.
//! The world adds the faults between a node and its store.

mod failover;
pub(crate) mod records;
mod two_stores;

use std::fmt;

use fastrand::Rng;
use snowmint_cluster::lease::protocol::{LeaseCall, LeaseInput};
use snowmint_store::StoreId;

use crate::Scenario;
use failover::{Failover, Losing};
use records::{Log, Records};
use two_stores::TwoStores;

/// The context of a call: its time, its client, and the random numbers of the world.
pub(crate) struct Visit<'a> {
    pub(crate) now_ms: u64,
    /// The reading of the store's own clock, if it has one.
    pub(crate) store_unix_ms: Option<u64>,
    pub(crate) client: usize,
    /// The process of the client, which grows at each restart.
    pub(crate) process: u32,
    pub(crate) rng: &'a mut Rng,
}

/// The reply of a store to a call.
#[derive(Debug)]
pub(crate) enum Reply {
    /// An immediate reply.
    Now(LeaseInput),
    /// The reply after copies have confirmed it; unknown if the term of the primary has ended by then.
    Confirmed { after_ms: u64, term: u64, input: LeaseInput },
    /// Copies did not confirm it in time: a write may stay or be lost.
    Unconfirmed { after_ms: u64 },
}

/// Counts of contract violations of a store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lapses {
    /// Reads that showed an older state than the newest.
    pub(crate) stale_reads: u64,
    /// Acknowledged writes that a failover undid.
    pub(crate) forgotten_writes: u64,
}

/// A store; it gets the calls of all nodes in the order of their arrival.
pub(crate) trait SimStore: fmt::Debug {
    /// Executes a call at one instant.
    fn call(&mut self, visit: &mut Visit<'_>, call: LeaseCall) -> Reply;

    /// Causes a failure of its own, other than an outage.
    fn fail(&mut self, visit: &mut Visit<'_>);

    /// Returns the term of the current primary; calls that it has not confirmed are lost with it.
    fn term(&self) -> u64 {
        0
    }

    /// Returns whether a request that was sent in that term is lost.
    fn drops_requests_of(&self, _term: u64) -> bool {
        false
    }

    fn lapses(&self) -> Lapses {
        Lapses::default()
    }

    /// Returns the identity that answers of this process name, if there are several stores.
    fn named_by(&self, _client: usize, _process: u32) -> Option<StoreId> {
        None
    }
}

/// `redis-losing-more` loses this many times what its nodes expect.
const TIMES_MORE: u64 = 4;

/// Returns the model of a scenario's store. Its copies lag by up to two windows if no call waits for them.
pub(crate) fn of(scenario: &Scenario) -> Box<dyn SimStore> {
    let Scenario { store, window_ms, may_lose_ms, .. } = *scenario;
    let replicas = |wanted| Box::new(Failover::new(window_ms / 2, wanted, Losing::Anything));
    let losing = |most_ms| Box::new(Failover::new(window_ms / 2, 0, Losing::Within { most_ms, killed: 0 }));
    match store {
        StoreProfile::Linearizable | StoreProfile::OneServer | StoreProfile::Kubernetes => {
            Box::new(OneCopy::default())
        }
        StoreProfile::StaleReads => Box::new(Follower::new(window_ms * 2)),
        StoreProfile::RedisForgetting => replicas(0),
        StoreProfile::RedisWaitingForOne => replicas(1),
        StoreProfile::RedisWaiting => replicas(failover::REPLICAS),
        StoreProfile::Redis => losing(may_lose_ms),
        StoreProfile::RedisLosingMore => losing(may_lose_ms * TIMES_MORE),
        StoreProfile::AsyncStandby => {
            let losing = Losing::Within { most_ms: may_lose_ms, killed: 50 };
            Box::new(Failover::new(may_lose_ms.max(1), 0, losing))
        }
        StoreProfile::Restored => Box::new(Restored::new(window_ms * 3)),
        StoreProfile::TwoStores | StoreProfile::TwoStoresUnnoticed => Box::new(TwoStores::default()),
    }
}

/// A kind of store, by how it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum StoreProfile {
    /// etcd, PostgreSQL, MySQL: one linear history; answers are lost, writes come late, leaders are elected.
    Linearizable,
    /// A follower of ZooKeeper or etcd that is read without a sync: reads show older states of any age;
    /// conditional writes compare with the newest.
    StaleReads,
    /// `SQLite`, or a single server: it loses nothing in a crash, but is down often and for long.
    OneServer,
    /// Kubernetes: throttled and slow; other programs touch an object without changing its record; a proxy
    /// sends a request twice, so that the answer to a successful write is a conflict.
    Kubernetes,
    /// Redis with two replicas and `wait_replicas=2`: writes that all copies have confirmed survive any
    /// failover.
    RedisWaiting,
    /// Redis with two replicas and `wait_replicas=1`, with a failover to either replica: not safe.
    RedisWaitingForOne,
    /// Redis with two replicas and no `wait_replicas`: a failover loses the writes that the next primary has
    /// not received, and the old primary continues for clients that do not know of it. The nodes do not
    /// expect any loss.
    RedisForgetting,
    /// The same, but it loses only writes of the last `may_lose`, and the nodes expect that: leases settle.
    Redis,
    /// The same, but it loses four times as much as the nodes expect.
    RedisLosingMore,
    /// PostgreSQL or MySQL with an asynchronous standby: the primary is killed, or fenced late, and the
    /// standby is promoted without the newest writes. The nodes know the limit of that loss.
    AsyncStandby,
    /// A store that keeps acknowledged writes, but is restored from a backup of up to three windows ago while
    /// nodes run.
    Restored,
    /// Two stores. The address of each node leads to one of them, and to the other one for a while. A client
    /// of all nodes takes the ids of the store that it saw first.
    TwoStores,
    /// The same with a client that takes all ids.
    TwoStoresUnnoticed,
}

impl StoreProfile {
    /// The kinds with one store; seeds take them in turn.
    pub const ALL: [Self; 11] = [
        Self::Linearizable,
        Self::StaleReads,
        Self::OneServer,
        Self::Kubernetes,
        Self::RedisWaiting,
        Self::RedisWaitingForOne,
        Self::RedisForgetting,
        Self::Redis,
        Self::RedisLosingMore,
        Self::AsyncStandby,
        Self::Restored,
    ];

    /// The kind of a seed.
    pub const fn of(seed: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "a remainder of eleven")]
        let turn = (seed % Self::ALL.len() as u64) as usize;
        Self::ALL[turn]
    }

    /// Returns whether it loses no more than its nodes expect. Then there must be no duplicates; otherwise
    /// there are some, and the simulation must find them.
    pub const fn loses_no_more_than_told(self) -> bool {
        use StoreProfile::{
            RedisForgetting, RedisLosingMore, RedisWaitingForOne, Restored, TwoStoresUnnoticed,
        };
        !matches!(
            self,
            RedisForgetting | RedisLosingMore | RedisWaitingForOne | Restored | TwoStoresUnnoticed
        )
    }

    /// Returns whether it loses acknowledged writes.
    pub const fn forgets(self) -> bool {
        use StoreProfile::{AsyncStandby, Redis, TwoStoresUnnoticed};
        matches!(self, Redis | AsyncStandby)
            || !(self.loses_no_more_than_told() || matches!(self, TwoStoresUnnoticed))
    }

    /// Returns whether there are two stores.
    pub(crate) const fn has_two(self) -> bool {
        matches!(self, Self::TwoStores | Self::TwoStoresUnnoticed)
    }

    /// Returns whether the client drops ids of a second store.
    pub(crate) const fn client_compares(self) -> bool {
        matches!(self, Self::TwoStores)
    }

    /// Returns whether nodes expect that it loses its newest writes.
    pub(crate) const fn tells_its_loss(self) -> bool {
        matches!(self, Self::Redis | Self::RedisLosingMore | Self::AsyncStandby)
    }

    /// Returns the faults of calls between the nodes and the store.
    pub(crate) const fn call_faults(self) -> &'static [CallFault] {
        use CallFault::{AnswerLost, Late, Refused, RequestLost, SentTwice, Slow};
        match self {
            Self::Kubernetes => &[AnswerLost, Late, Refused, RequestLost, Slow, Slow, SentTwice, SentTwice],
            _ => &[AnswerLost, Late, Refused, RequestLost, Slow],
        }
    }

    /// Returns the faults of the store itself.
    pub(crate) const fn own_faults(self) -> &'static [StoreFault] {
        use StoreFault::{Down, Own};
        match self {
            // Followers always lag by any amount.
            Self::Linearizable | Self::OneServer | Self::StaleReads => &[Down],
            Self::Kubernetes => &[Down, Own, Own, Own],
            Self::Restored | Self::TwoStores | Self::TwoStoresUnnoticed => &[Down, Own],
            Self::RedisWaiting
            | Self::RedisWaitingForOne
            | Self::RedisForgetting
            | Self::Redis
            | Self::RedisLosingMore
            | Self::AsyncStandby => &[Down, Own, Own],
        }
    }
}

impl fmt::Display for StoreProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Linearizable => "linearizable",
            Self::StaleReads => "stale-reads",
            Self::OneServer => "one-server",
            Self::Kubernetes => "kubernetes",
            Self::RedisWaiting => "redis-waiting",
            Self::RedisWaitingForOne => "redis-waiting-for-one",
            Self::RedisForgetting => "redis-forgetting",
            Self::Redis => "redis",
            Self::RedisLosingMore => "redis-losing-more",
            Self::AsyncStandby => "async-standby",
            Self::Restored => "restored",
            Self::TwoStores => "two-stores",
            Self::TwoStoresUnnoticed => "two-stores-unnoticed",
        })
    }
}

/// A fault of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallFault {
    /// It is executed; the answer never arrives.
    AnswerLost,
    /// It is executed long after its node has given up.
    Late,
    /// It is refused, certainly without effect.
    Refused,
    /// It never arrives.
    RequestLost,
    /// It takes about as long as its node waits.
    Slow,
    /// It arrives twice, and the node sees the second answer.
    SentTwice,
}

/// A fault of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StoreFault {
    /// It is down for a while, but loses nothing.
    Down,
    /// The failure that is specific to its model.
    Own,
}

#[derive(Debug, Default)]
struct OneCopy {
    records: Records,
}

impl SimStore for OneCopy {
    fn call(&mut self, visit: &mut Visit<'_>, call: LeaseCall) -> Reply {
        if let Some(input) = self.records.read(&call, visit.store_unix_ms) {
            return Reply::Now(input);
        }
        let written = self.records.swap(call, visit.rng);
        let reply = Reply::Now(records::swapped(written.as_ref()));
        if let Some(written) = written {
            self.records.put(written);
        }
        reply
    }

    fn fail(&mut self, visit: &mut Visit<'_>) {
        self.records.touch(visit.rng);
    }
}

/// Limit on the number of writes by which a follower lags.
const LONGEST: usize = 24;

#[derive(Debug)]
struct Follower {
    /// The world's time of each write.
    log: Log<u64>,
    longest_lag_ms: u64,
    stale_reads: u64,
}

impl Follower {
    fn new(longest_lag_ms: u64) -> Self {
        Self { log: Log::default(), longest_lag_ms, stale_reads: 0 }
    }
}

impl SimStore for Follower {
    fn call(&mut self, visit: &mut Visit<'_>, call: LeaseCall) -> Reply {
        if matches!(call, LeaseCall::Swap { .. }) {
            let written = self.log.newest().swap(call, visit.rng);
            let reply = Reply::Now(records::swapped(written.as_ref()));
            if let Some(written) = written {
                self.log.push(visit.now_ms, written);
            }
            self.log.settle(self.log.steps().saturating_sub(LONGEST));
            return reply;
        }
        let lag_ms = if visit.rng.bool() { 0 } else { visit.rng.u64(..self.longest_lag_ms) };
        let seen = self.log.steps_while(|at_ms| at_ms + lag_ms <= visit.now_ms);
        self.stale_reads += u64::from(seen < self.log.steps());
        let records = self.log.after(seen);
        // Every read has an answer, and this is a read.
        records.read(&call, visit.store_unix_ms).map_or(Reply::Unconfirmed { after_ms: 0 }, Reply::Now)
    }

    fn fail(&mut self, _visit: &mut Visit<'_>) {}

    fn lapses(&self) -> Lapses {
        Lapses { stale_reads: self.stale_reads, ..Lapses::default() }
    }
}

#[derive(Debug)]
struct Restored {
    /// The world's time of each write.
    log: Log<u64>,
    oldest_backup_ms: u64,
    term: u64,
    forgotten_writes: u64,
}

impl Restored {
    fn new(oldest_backup_ms: u64) -> Self {
        Self { log: Log::default(), oldest_backup_ms, term: 0, forgotten_writes: 0 }
    }
}

impl SimStore for Restored {
    fn call(&mut self, visit: &mut Visit<'_>, call: LeaseCall) -> Reply {
        let oldest_ms = visit.now_ms.saturating_sub(self.oldest_backup_ms);
        self.log.settle(self.log.steps_while(|at_ms| *at_ms < oldest_ms));
        if let Some(input) = self.log.newest().read(&call, visit.store_unix_ms) {
            return Reply::Now(input);
        }
        let written = self.log.newest().swap(call, visit.rng);
        let reply = Reply::Now(records::swapped(written.as_ref()));
        if let Some(written) = written {
            self.log.push(visit.now_ms, written);
        }
        reply
    }

    fn fail(&mut self, visit: &mut Visit<'_>) {
        let backup_ms = visit.now_ms.saturating_sub(visit.rng.u64(..self.oldest_backup_ms));
        let kept = self.log.steps_while(|at_ms| *at_ms <= backup_ms);
        self.forgotten_writes += self.log.forget_after(kept).len() as u64;
        self.term += 1;
    }

    fn term(&self) -> u64 {
        self.term
    }

    fn drops_requests_of(&self, term: u64) -> bool {
        term != self.term
    }

    fn lapses(&self) -> Lapses {
        Lapses { forgotten_writes: self.forgotten_writes, ..Lapses::default() }
    }
}
