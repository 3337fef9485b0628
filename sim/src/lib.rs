//! Deterministic simulation of Snowmint nodes: skewed, drifting and stepping clocks, pauses, crashes, and a
//! store that loses answers and writes late. One seed, one trace.
//!
//! It drives the lease protocol and the generator that ship, under a virtual time, and keeps every id that any
//! node made: none may come twice, and the ids of one process must increase.

mod history;
mod node;
mod scenario;
mod store;
mod world;

pub use history::{Duplicate, Report};
pub use scenario::Scenario;

use snowmint_cluster::lease::protocol::{AfterLastGrant, Begin};

/// Runs the world of one seed, with the rule that ships.
pub fn run(seed: u64) -> Report {
    run_with::<AfterLastGrant>(&Scenario::of(seed))
}

/// Runs a scenario with another rule for where grants begin: how a planted fault is shown to be found.
pub fn run_with<B: Begin>(scenario: &Scenario) -> Report {
    world::World::<B>::new(scenario).run()
}
