//! The simulations of leases, of segments and of large fleets, in one binary: each module states its goal and its method.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic is how a test fails")]

mod leases;
mod scale;
mod segments;
mod two_stores;
