//! Simulation of number segments: nodes that reserve, crash, restart and give back at counters that lose answers and
//! do late what nobody waits for any more. One seed, one trace.
//!
//! It drives the segment protocol and the combiner of direct calls that ship. No number may come twice, the numbers of
//! one process grow at a single counter, and direct ones grow over all nodes in real time.

mod counter;
mod history;
mod node;
mod scenario;
mod world;

pub use history::SegmentReport;
pub use scenario::{Planted, SegmentScenario};

/// Runs the world of a scenario.
pub fn run_segments(scenario: &SegmentScenario) -> SegmentReport {
    world::World::new(scenario).run()
}
