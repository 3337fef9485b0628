//! The library's tests against its public interface, in one binary: each module states its goal and its
//! method. Threads are explored in `tests/loom` of the workspace, forked processes in `fork/`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic is how a test fails")]

mod clock_readings;
mod codecs;
mod generations;
mod generator;
mod generator_kinds;
#[cfg(feature = "hide")]
mod hide;
mod layout;
mod model;
mod pool;
#[cfg(feature = "schemes")]
mod published_ids;
mod sequence_starts;
#[cfg(feature = "serde")]
mod serde;
// Miri would read JSON for minutes, for arithmetic that other tests run too.
#[cfg(not(miri))]
mod vectors;
