//! Unique, time-ordered 64-bit ids: layouts, clocks, generators and text forms.
//!
//! An id is a positive `i64`. Its bits hold a timestamp on top, then the worker that made the id, then a
//! sequence:
//!
//! ```text
//! 1541815603606036480  layout `twitter`, from the top bit down
//! 0 00101010110010110100001000111110110001000 01011 11010 000000000000
//! │ └ timestamp, 41 bits: ms since 2010-11-04 │     │     └ sequence, 12 bits: 0
//! └ always 0: fits a signed BIGINT            │     └ worker, 5 bits: 26
//!                                             └ datacenter, 5 bits: 11
//! ```
//!
//! # Make, print, parse and explain an id
//!
//! In `Cargo.toml`:
//!
//! ```toml
//! [dependencies]
//! snowmint = { git = "https://github.com/snowmint/snowmint" }
//! ```
//!
//! ```
//! use snowmint::{Generator, Id, Layout, WallClock, WorkerId, utc::Utc};
//!
//! let layout = Layout::TWITTER;
//! let generator = Generator::builder(layout).worker(WorkerId(7)).build(WallClock)?;
//! let id = generator.next_id()?;
//! let text = id.to_string();
//! assert_eq!(text.parse::<Id>()?, id);
//! let parts = layout.split(id)?;
//! println!("{text}: worker {}, sequence {}, {}", parts.worker, parts.sequence, Utc::from(layout.time_of(id)?));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Find ids by time
//!
//! Ids sort by time, so a range of ids is a range of time. [`first_id_at`](Layout::first_id_at) and
//! [`last_id_at`](Layout::last_id_at) return its bounds, for `WHERE id BETWEEN $1 AND $2`:
//!
//! ```
//! use snowmint::Layout;
//! use std::time::{Duration, SystemTime};
//!
//! let now = SystemTime::now();
//! let hour_ago = now - Duration::from_secs(3600);
//! let first = Layout::TWITTER.first_id_at(hour_ago).ok_or("before the epoch")?;
//! let last = Layout::TWITTER.last_id_at(now).ok_or("after the layout's end")?;
//! assert!(first < last);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What uniqueness depends on
//!
//! Two generators never make the same id if no two of them hold the same worker for the same timestamps. A
//! [`Lease`] states that right: one worker, and the timestamps `[from, until)` it may use. The crate
//! `snowmint-cluster` takes leases from a store. If you set a worker by hand, you have to make sure that no
//! other generator uses it.
//!
//! Within one generator the cursor only grows, whatever the clock does.
//!
//! # Where to find what
//!
//! | you want to | see |
//! |---|---|
//! | choose the bits of an id, or a layout in use elsewhere | [`Layout`], [`layout::PRESETS`] |
//! | make ids in one thread, in several, or under several workers | [`generator`] |
//! | decide what happens when the clock goes back | [`Rule`] |
//! | avoid ids that are all even | [`Start`] |
//! | write ids as base62, base58, base32, hex or bytes | [`codec`] |
//! | say what an unknown id may be | `inspect`, `guess` |
//! | hide how many ids you make | `hide` (feature `hide`) |
//! | keep ids in memory, safe from forks | [`fork`] |
//! | make UUIDs, ULIDs or `ObjectId`s | `scheme` (feature `schemes`) |
//!
//! # Glossary
//!
//! | term | meaning |
//! |---|---|
//! | id | a number in `0..2^63`, so that it fits a signed 64-bit column |
//! | layout | which bits of an id hold which field; also its tick and its epoch |
//! | tick | the unit of the timestamp field, such as 1 ms or 1 s |
//! | epoch | the instant of timestamp 0 |
//! | timestamp | the field that counts ticks since the epoch |
//! | worker, datacenter | the fields that name the generator; many layouts have only a worker |
//! | sequence | the field that counts ids within one tick |
//! | generation | an optional field that changes when the clock goes back |
//! | cursor | timestamp and sequence as one number that only grows: the whole state of a generator |
//! | lease | the right to use one worker for the timestamps `[from, until)` |
//! | rule | what a generator does when the clock goes back, or when a tick is used up |
//! | borrow | to use timestamps ahead of the clock, up to a bound |
//! | start | the sequence at which a new tick begins |
//! | pool | several generators of one layout that serve the same callers |
//! | text form | how an id is written: decimal, base62, Crockford's base32 and others |
//! | scheme | a kind of id other than a 64-bit layout: UUID, ULID, `ObjectId` |
//!
//! # Features
//!
//! - `std` (default): wall and anchored clocks, waiting generators, pools, `inspect`. Without it the crate is
//!   `no_std`.
//! - `hide`: `hide::Hider`, which encrypts ids for the public.
//! - `schemes`: `scheme`, ids that are not 64-bit layouts: `ObjectId`, UUID v4 and v7, ULID.
//! - `serde`: [`Id`] as a string in human-readable formats and a number in binary ones; `serde_as_number` for
//!   a number in all.
//! - `sqlx`: [`Id`] as a `BIGINT` of every database that sqlx supports.
//! - `sqlx-postgres`: arrays of ids in PostgreSQL.

#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(docsrs, feature(doc_cfg))]

/// Defines methods of a builder, each of which sets the field of its name.
#[doc(hidden)]
#[macro_export]
macro_rules! __setters {
    ($($(#[$doc:meta])* $field:ident: $type:ty;)*) => {
        $(
            $(#[$doc])*
            pub const fn $field(mut self, $field: $type) -> Self {
                self.$field = $field;
                self
            }
        )*
    };
}

#[cfg(feature = "std")]
mod cell;
pub mod clock;
pub mod codec;
mod cursor;
#[cfg(feature = "std")]
mod decoded;
pub mod error;
pub mod field;
#[cfg(feature = "std")]
pub mod foreign;
pub mod fork;
pub mod generator;
#[cfg(feature = "std")]
pub mod guess;
#[cfg(feature = "hide")]
pub mod hide;
pub mod id;
#[cfg(feature = "std")]
pub mod inspect;
pub mod layout;
#[doc(hidden)]
pub mod random;
pub mod rule;
#[cfg(feature = "schemes")]
pub mod scheme;
pub mod sequence_start;
mod snippet;
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
pub use sequence_start::Start;

/// The atomics of `core`, or those of loom, so that the model checker runs the production code. All others
/// import them from here.
mod sync {
    #[cfg(not(snowmint_loom))]
    pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
    #[cfg(snowmint_loom)]
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
}

/// Compiles and runs the example in this crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
