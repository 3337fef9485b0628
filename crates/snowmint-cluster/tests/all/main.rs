//! The tests of leases and segments through the public interface, in one binary: each module states its goal
//! and its method. `segment_loom.rs` is separate, because it explores the interleavings of threads.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod audit;
mod errors;
mod leases;
mod saved_leases;
mod segments;
mod segments_stores;
mod support;
