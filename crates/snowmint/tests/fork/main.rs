//! What a forked child may do with its parent's generators: real forks, separate from the tests that run
//! threads.

// Miri cannot fork.
#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod generators;
#[cfg(feature = "schemes")]
mod schemes;
