//! A client of the Snowmint id service: async and blocking, with ids buffered in memory, so that most draws
//! take nanoseconds.
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
//! - **Prefetch**: it requests ids in the background, about as many as the caller uses in half a second, and
//!   requests more when half of them are left. A caller that needs few ids gets them one by one, so that none
//!   are wasted.
//! - **Fail-over**: a failed request goes to the next server immediately. A server that failed is tried last
//!   for 100 ms, then longer, up to 10 s. `Retry-After` is honoured. A failure of one namespace does not
//!   affect the others.
//! - **Hedging**: if a server has not answered within 50 ms, a second one gets the same request. The first
//!   answer wins.
//! - **Deadlines**: a caller gets ids or an error within the timeout. Errors that a retry cannot fix are
//!   returned immediately.
//!
//! If a server dies, the others answer, and the caller sees no error.
//!
//! # What uniqueness depends on
//!
//! All servers of one client must share one store. Then no id is returned twice, by this client or any other.
//! Each answer names its store: the client drops ids of a second one, and reports both servers
//! ([`ErrorKind::AnotherStore`]). The client uses each answer once; a retried or hedged request only skips
//! ids. A truncated or invalid answer is rejected as a whole.
//!
//! Ids in memory must not be copied:
//!
//! - **Forks**: a forked child gets [`ErrorKind::Forked`], never its parent's ids. Build a client in each
//!   process.
//! - **Snapshots of machines**: nothing detects that the memory of a virtual machine, container or process
//!   was copied. If both copies continue, both return the ids in the buffer. Call [`Ids::discard_buffered`]
//!   before such a snapshot, or set [`buffer(0..=0)`](ClientBuilder::buffer), so that each call is a request.
//!   In both cases no call may be in progress.
//!
//! # After `snowmint ns add --start-over`
//!
//! `snowmint ns add --start-over` begins a new series of numbers. Buffered numbers belong to the earlier
//! series, and the client does not notice: restart each client that buffers ids, or call
//! [`Ids::discard_buffered`] in it. A call in progress may still return a number of the earlier series.
//!
//! # How old ids are
//!
//! A time-ordered id in memory has the time of its request, not of its use. Buffered ids that are older than
//! [`max_age`](ClientBuilder::max_age), 1 s by default, are dropped. A call that has to wait may return ids
//! that are older by its waiting time. So ids sort by time only up to that age, even those of one client,
//! which may change the server at any time. Boot time measures the age: it ignores steps of the wall clock
//! and, on Linux, includes suspension.
//!
//! Numbers of segments carry no time: set [`namespace_max_age`](ClientBuilder::namespace_max_age) to
//! `Duration::MAX` for them, so that none are dropped while the program runs.
//!
//! # Which namespaces
//!
//! Those whose ids are plain numbers: snowflake layouts and segments, without a text form. For other
//! namespaces the client returns [`ErrorKind::Rejected`].
//!
//! # Features
//!
//! - `tls` (default): `https://` servers, with rustls.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod buffer;
mod buffer_target;
#[cfg(test)]
mod buffer_tests;
mod builder;
mod client;
mod connect;
mod error;
mod fetcher;
mod refill;
mod server_choice;
mod wire;

pub use builder::{ClientBuilder, ServerOrder};
pub use client::{Client, Ids};
pub use error::{BuildError, ClientError, ErrorKind};
pub use fetcher::Stats;
#[doc(no_inline)]
pub use snowmint::Id;
#[doc(hidden)]
pub use wire::{error_meaning, read_answer};

/// The atomics and the lock of the buffer. The loom tests replace them.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use std::sync::{Mutex, MutexGuard};
}

/// Compiles the example in this crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
