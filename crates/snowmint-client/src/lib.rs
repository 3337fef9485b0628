//! A client of the Snowmint id service: async and blocking, with ids in memory, so that most draws take nanoseconds.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use snowmint_client::Client;
//!
//! let client = Client::builder().server("http://ids-1:8080").server("http://ids-2:8080").build()?;
//! let orders = client.namespace("orders")?; // once, then clone it
//! println!("{}", orders.next_id().await?);
//! println!("{}", orders.blocking_next_id()?); // without async
//! # Ok(())
//! # }
//! ```
//!
//! # What it does
//!
//! - **Prefetch**: it requests ranges of ids in the background, as many as the caller uses in about half a second, and a new range
//!   when half of one is left. A rare caller gets its ids one by one, so that none is dropped.
//! - **Fail-over**: a request that fails goes to the next server at once. A server that failed is left out for 100 ms, then
//!   longer, up to 10 s. `Retry-After` is honoured.
//! - **Hedging**: if a server has not answered within 50 ms, a second one gets the same request. The first answer wins.
//! - **Deadlines**: a caller gets ids or an error within the timeout. Errors that a retry cannot mend are returned at once.
//!
//! If a server dies, the others answer, and the caller sees no error.
//!
//! # What uniqueness depends on
//!
//! The servers of one client must share one store; then no id is returned twice, by this client or another one. The client uses
//! each answer once, and a retried or hedged request only costs ids. An answer that is cut or invalid is rejected as a whole.
//!
//! Ids in memory must not be copied:
//!
//! - **Forks**: a forked child gets [`ErrorKind::Forked`], never its parent's ids. Build a client in each process.
//! - **Snapshots of machines**: nothing detects a virtual machine, container or process whose memory is copied and continues twice:
//!   both return the ids that were in the buffer. Call [`Ids::discard_buffered`] before such a snapshot, or set
//!   [`buffer(0..=0)`](ClientBuilder::buffer), so that each id is a request.
//!
//! # After a namespace was started over
//!
//! `snowmint ns add --start-over` begins a new series of numbers. Those in the memory of clients belong to the earlier one, and a
//! client does not notice: restart each client that keeps ids, or call [`Ids::discard_buffered`] in it. A call that is in progress
//! may still return a number of the earlier series.
//!
//! # How old ids are
//!
//! A time-ordered id in memory has the time of its request, not of its use. Ids in the buffer that are older than
//! [`max_age`](ClientBuilder::max_age), 1 s by default, are dropped. A call that has to wait
//! may return ids that are older by the time it waited. So ids are in the order of time up to that age, also those of one client:
//! it may change the server at any time. The age is measured by boot time, which ignores steps of the wall clock and, on Linux,
//! includes time for which the machine was suspended.
//!
//! Numbers of segments have no time: set [`namespace_max_age`](ClientBuilder::namespace_max_age) to `Duration::MAX` for them, so
//! that none is dropped while the program runs.
//!
//! # Which namespaces
//!
//! Those whose ids are plain numbers: snowflake layouts and segments, without a text form. For others the server returns an
//! error of the kind [`ErrorKind::Rejected`].
//!
//! # Features
//!
//! - `tls` (default): `https://` servers, by rustls.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod buffer;
#[cfg(test)]
mod buffer_tests;
mod builder;
mod client;
mod connect;
mod error;
mod link;
mod pace;
mod refill;
mod servers;
mod wire;

pub use builder::{ClientBuilder, ServerOrder};
pub use client::{Client, Ids};
pub use error::{BuildError, ClientError, ErrorKind};
pub use link::Stats;
#[doc(no_inline)]
pub use snowmint::Id;
#[doc(hidden)]
pub use wire::read_answer;

/// The atomics and the lock of the buffer, which its tests with loom replace.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use std::sync::{Mutex, MutexGuard};
}

/// The example of this crate's README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
