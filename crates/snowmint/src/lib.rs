//! Unique, time-ordered 64-bit ids: layouts, clocks, generators and text forms.
//!
//! An id is one positive `i64`. Its bits hold a timestamp on top, then who made it, then a sequence:
//!
//! ```text
//! 1541815603606036480  layout `twitter`, from the top bit down
//! 0 00101010110010110100001000111110110001000 01011 11010 000000000000
//! │ └ timestamp 41: ms since 2010-11-04       │     │     └ sequence 12
//! └ always 0: fits a signed BIGINT            │     └ worker 5
//!                                             └ datacenter 5
//! ```
//!
//! # What uniqueness depends on
//!
//! Two generators never produce duplicates while no two of them hold the same worker for the same timestamps.
//! That is what a [`Lease`] says: one worker, and the timestamps `[from, until)` it may use. The crate
//! `snowmint-cluster` takes such leases from a store; a worker set by hand has no such proof behind it.
//! Within one generator the cursor only grows, whatever the clock does.
//!
//! # Examples
//!
//! ```
//! use snowmint::{Generator, Layout, ManualClock, WorkerId};
//!
//! let clock = ManualClock::at_unix_ms(1_656_432_460_105);
//! let generator = Generator::builder(Layout::TWITTER).worker(WorkerId(26)).build(&clock)?;
//! let id = generator.try_next_id()?;
//! let parts = Layout::TWITTER.split(id)?;
//! assert_eq!((parts.worker, parts.sequence.0), (WorkerId(26), 0));
//! assert_eq!(Layout::TWITTER.unix_ms(parts.timestamp), 1_656_432_460_105);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! - `std` (default): wall and anchored clocks, `Generator::next` that waits.
//! - `hide`: `hide::Hider`, ids for the public that tell neither time nor number.
//! - `schemes`: `scheme`, the ids that are not 64-bit layouts: `ObjectId`, UUID v4 and v7, ULID.
//! - `async`: `Generator::next_with`, for async tasks: `next` that waits on the runtime's timer, not by blocking a thread.
//! - `serde`: [`Id`] as a string in human-readable formats, a number in binary ones; `serde_as_number` for a number in all.
//! - `sqlx`: [`Id`] as a `BIGINT` of every database that sqlx speaks to.

#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod clock;
pub mod codec;
mod cursor;
pub mod error;
pub mod field;
mod fork;
pub mod generator;
#[cfg(feature = "std")]
pub mod guess;
#[cfg(feature = "hide")]
pub mod hide;
pub mod id;
#[cfg(feature = "std")]
pub mod inspect;
pub mod layout;
pub mod rule;
#[cfg(feature = "schemes")]
pub mod scheme;
pub mod start;
mod sync;
pub mod utc;

#[cfg(feature = "std")]
pub use clock::{AnchoredClock, WallClock};
pub use clock::{Clock, ManualClock};
pub use codec::ParseIdError;
pub use error::GenerateError;
pub use field::{DatacenterId, Parts, WorkerId};
pub use generator::{Generator, Lease};
pub use id::Id;
#[cfg(feature = "serde")]
pub use id::serde_as_number;
pub use layout::Layout;
pub use rule::Rule;
pub use start::Start;
