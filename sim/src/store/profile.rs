//! The kinds of store that are simulated, and which faults belong to each.
//! What they have in common with real ones is said beside each.

use std::fmt;

/// A kind of store, by how it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum StoreProfile {
    /// etcd, PostgreSQL, MySQL: one line of history; answers are lost, writes come late, leaders are elected.
    Linearizable,
    /// A follower of ZooKeeper or etcd that is read without a sync: reads show older states, each as old as it likes;
    /// writes are compared with the newest.
    StaleReads,
    /// `SQLite`, or a single server: loses nothing when it crashes, but is down often and for long.
    OneServer,
    /// Kubernetes: throttled and slow; others touch an object without changing its record; a proxy sends a request
    /// twice, so that the answer to one that was written is a conflict.
    Kubernetes,
    /// Redis with two replicas and `wait_replicas=2`: what all copies have confirmed survives any failover.
    RedisWaiting,
    /// Redis with two replicas and `wait_replicas=1`, whose failover takes either: not enough.
    RedisWaitingForOne,
    /// Redis with two replicas and no `wait_replicas`: a failover forgets what the next primary has not received, and
    /// the old primary goes on for clients that have not heard of it. The nodes do not know that it may lose anything.
    RedisForgetting,
    /// The same, but what it loses it acknowledged within `may_lose`, and the nodes know that: leases settle.
    Redis,
    /// The same, but it loses four times as much as the nodes were told.
    RedisLosingMore,
    /// PostgreSQL or MySQL with an asynchronous standby: the primary is killed, or fenced late, and the standby promoted
    /// without the newest writes. The nodes know how many that may be.
    AsyncStandby,
    /// A store that keeps what it acknowledges, restored from a backup of up to three windows ago while nodes run.
    Restored,
}

impl StoreProfile {
    /// Every kind; seeds take them in turn.
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

    /// Whether it loses no more than its nodes were told: then no id may come twice. Else they do, and must be found.
    pub const fn loses_no_more_than_told(self) -> bool {
        use StoreProfile::{RedisForgetting, RedisLosingMore, RedisWaitingForOne, Restored};
        !matches!(self, RedisForgetting | RedisLosingMore | RedisWaitingForOne | Restored)
    }

    /// Whether it loses writes that it acknowledged.
    pub const fn forgets(self) -> bool {
        use StoreProfile::{AsyncStandby, Redis};
        !self.loses_no_more_than_told() || matches!(self, Redis | AsyncStandby)
    }

    /// Whether nodes are told that it may lose its newest writes.
    pub(crate) const fn tells_its_loss(self) -> bool {
        matches!(self, Self::Redis | Self::RedisLosingMore | Self::AsyncStandby)
    }

    /// What happens to calls on the way to it and back.
    pub(crate) const fn call_faults(self) -> &'static [CallFault] {
        use CallFault::{AnswerLost, Late, Refused, RequestLost, SentTwice, Slow};
        match self {
            Self::Kubernetes => &[AnswerLost, Late, Refused, RequestLost, Slow, Slow, SentTwice, SentTwice],
            _ => &[AnswerLost, Late, Refused, RequestLost, Slow],
        }
    }

    /// What happens to itself.
    pub(crate) const fn own_faults(self) -> &'static [StoreFault] {
        use StoreFault::{Down, Own};
        match self {
            // Followers lag as they like, all the time.
            Self::Linearizable | Self::OneServer | Self::StaleReads => &[Down],
            Self::Kubernetes => &[Down, Own, Own, Own],
            Self::Restored => &[Down, Own],
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
        })
    }
}

/// What can go wrong with one call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallFault {
    /// It is done; the answer never comes.
    AnswerLost,
    /// It is done long after its node has given up.
    Late,
    /// It is known to have done nothing.
    Refused,
    /// It never arrives.
    RequestLost,
    /// It takes about as long as its node waits.
    Slow,
    /// It arrives twice, and the second answer is the one that is seen.
    SentTwice,
}

/// What can go wrong with a store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StoreFault {
    /// It is down for a while, and forgets nothing.
    Down,
    /// What its model says.
    Own,
}
