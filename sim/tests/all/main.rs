//! The simulations of leases and of segments, in one binary: each module states its goal and its method.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic is how a test fails")]

mod leases;
mod segments;
mod two_stores;
