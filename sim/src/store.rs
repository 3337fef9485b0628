//! The stores of the simulated world: what each kind of real store does with a call, its own failures included.
//! What goes wrong on the way to a store and back is the world's doing.

mod failover;
mod follower;
mod one_copy;
mod profile;
mod records;

use std::fmt;

use fastrand::Rng;
use snowmint_cluster::lease::protocol::{Call, Input};

use failover::Failover;
use follower::Follower;
use one_copy::OneCopy;
pub use profile::StoreProfile;
pub(crate) use profile::{CallFault, StoreFault};

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

    fn lapses(&self) -> Lapses {
        Lapses::default()
    }
}

/// The model of a kind of store; its copies lag by as much as two windows where nobody waits for them.
pub(crate) fn of(profile: StoreProfile, window_ms: u64) -> Box<dyn SimStore> {
    let replicas = |wanted| Box::new(Failover::new(window_ms / 2, wanted));
    match profile {
        StoreProfile::Linearizable | StoreProfile::OneServer | StoreProfile::Kubernetes => {
            Box::new(OneCopy::default())
        }
        StoreProfile::StaleReads => Box::new(Follower::new(window_ms * 2)),
        StoreProfile::RedisForgetting => replicas(0),
        StoreProfile::RedisWaitingForOne => replicas(1),
        StoreProfile::RedisWaiting => replicas(failover::REPLICAS),
    }
}
