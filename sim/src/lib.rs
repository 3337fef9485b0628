//! Deterministic simulation of Snowmint nodes: skewed, drifting and stepped clocks, pauses, crashes,
//! operators, and stores of every kind with their failures. One seed, one trace.
//!
//! It drives the lease protocol and the generator that ship under virtual time, and keeps every id of every
//! node: no id may be a duplicate, and the ids of one process must increase.

mod history;
mod node;
mod scale;
mod scenario;
mod segments;
mod store;
mod world;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

pub use history::{Count, Duplicate, Figures, Maker, Report, Sum, Sums};
pub use scale::{Cost, Cut, Fleet, FleetScenario, GivenUp, Outage, Rest, StoreSpeed, Waits};
pub use scenario::{Scenario, Starts, Wish};
pub use segments::{Planted, SegmentReport, SegmentScenario, run_segments};
use snowmint_cluster::lease::protocol::{AfterLastGrant, Begin};
pub use store::StoreProfile;

/// Runs the world of a scenario, with the shipped rule.
pub fn run(scenario: &Scenario) -> Report {
    run_with::<AfterLastGrant>(scenario)
}

/// Runs a scenario with another rule for the start of grants, to show that the simulation finds a planted
/// fault.
pub fn run_with<B: Begin>(scenario: &Scenario) -> Report {
    world::World::<B>::new(scenario).run()
}

/// Runs the worlds of many seeds on all processors, and passes each report to `each`, in any order.
pub fn for_each_seed(from: u64, seeds: u64, run: impl Fn(u64) -> Report + Sync, each: impl FnMut(Report)) {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let next = AtomicU64::new(0);
    let (reports, received) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (run, next, reports) = (&run, &next, reports.clone());
            scope.spawn(move || {
                let seed = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < seeds);
                while let Some(n) = seed() {
                    // Sending fails if `each` has panicked.
                    if reports.send(run(from.wrapping_add(n))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(reports);
        received.into_iter().for_each(each);
    });
}
