//! The stores of the simulated world: what each kind of real store does with a call, its own failures included.
//! What goes wrong on the way to a store and back is the world's doing.

mod failover;
mod follower;
mod one_copy;
mod profile;
mod records;
mod restored;

use std::fmt;

use fastrand::Rng;
use snowmint_cluster::lease::protocol::{Call, Input};

use crate::Scenario;
use failover::{Failover, Losing};
use follower::Follower;
use one_copy::OneCopy;
pub use profile::StoreProfile;
pub(crate) use profile::{CallFault, StoreFault};
use restored::Restored;

/// A call's visit to a store: when, from whom, and the dice of the world.
pub(crate) struct Visit<'a> {
    pub(crate) now_ms: u64,
    /// What the store's own clock shows, if it has one.
    pub(crate) store_unix_ms: Option<u64>,
    pub(crate) client: usize,
    pub(crate) rng: &'a mut Rng,
}

/// What a store says to a call.
#[derive(Debug)]
pub(crate) enum Reply {
    /// This, at once.
    Now(Input),
    /// This, once copies have confirmed it; if the term of the primary has ended by then, nobody knows.
    Confirmed { after_ms: u64, term: u64, input: Input },
    /// Copies did not confirm it in time: a write may stay or be forgotten.
    Unconfirmed { after_ms: u64 },
}

/// How often a store did what the contract of a store forbids.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lapses {
    /// Reads that showed an older state than the newest.
    pub(crate) stale_reads: u64,
    /// Writes, answered with success, that a failover undid.
    pub(crate) forgotten_writes: u64,
}

/// A store, all nodes' calls on it in the order in which they arrive.
pub(crate) trait SimStore: fmt::Debug {
    /// Does what a call asks, at one instant.
    fn call(&mut self, visit: &mut Visit<'_>, call: Call) -> Reply;

    /// A failure of its own, other than being down.
    fn fail(&mut self, visit: &mut Visit<'_>);

    /// Which primary rules; calls that it has not confirmed when it falls are lost with it.
    fn term(&self) -> u64 {
        0
    }

    /// Whether a request that was sent in that term never arrives.
    fn drops_requests_of(&self, _term: u64) -> bool {
        false
    }

    fn lapses(&self) -> Lapses {
        Lapses::default()
    }
}

/// How many times what was told `redis-losing-more` may lose.
const TIMES_MORE: u64 = 4;

/// The model of the store of a scenario; its copies lag by as much as two windows where nobody waits for them.
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
    }
}
