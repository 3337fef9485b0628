//! The harness of the black-box tests: it starts the built `snowmint`, talks to it over sockets, and does to it
//! what the world does: kills, pauses, stepped clocks, full disks, rude clients.
//!
//! It links none of our crates, so that a mistake in them cannot hide itself here. A tool that is missing is a
//! failure that says how to install it, never a skip.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "this is test code: a panic is how a test fails, and figures go to the test's output"
)]

pub mod balancer;
pub mod binary;
pub mod chaos;
pub mod dice;
pub mod disk;
pub mod external;
pub mod faketime;
pub mod figures;
pub mod http;
pub mod ids;
pub mod port;
pub mod proc;
pub mod resp;
pub mod server;
pub mod time;

pub use binary::{snowmint, workspace};
pub use dice::Dice;
pub use disk::Disk;
pub use faketime::FakeClock;
pub use ids::Ids;
pub use resp::{Reply, Resp};
pub use rustix::process::Signal;
pub use server::{Ended, Serve, Server};
