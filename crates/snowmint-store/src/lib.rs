//! Stores: where Snowmint records leases, namespaces and counters.
//!
//! The uniqueness of ids across nodes rests on the contract of [`Store`]: text keys, small values, one
//! conditional write. [`open`] opens a store by its URL. Whole numbers are reserved from a [`Counter`]: a
//! record of a store ([`StoreCounter`]), or the table or key of another system ([`open_counter`]).
//!
//! # Terms
//!
//! - **record**: a [`Key`] with a value and a [`Revision`]. Records are created and replaced, never deleted.
//! - **revision**: the version of a record. It grows with each write.
//! - **conditional write**: a write that happens only if the record is as its writer expects
//!   ([`Store::compare_and_set`]).
//! - **counter**: a source of whole numbers. Each number is given to one caller.
//! - **segment**: a range of numbers that one caller has reserved ([`Segment`]).
//! - **slot**: the position of a number in a [`StoreCounter`].
//! - **identity**: the random number that tells a store from every other ([`StoreId`]).
//! - **settled**: a write that the store can no longer lose. A store that may lose its newest writes says so
//!   by [`Store::may_lose`]; a write has settled when it is found again that long after it was acknowledged.
//! - **mark**: a random number that finds a reservation again ([`Mark`]).
//! - **claim**: the entry of a reservation in the record beside a counter whose store may lose writes
//!   ([`Claims`]).
//! - **fence**: a write before a read, which makes the server prove that it is still the primary.
//!
//! # Examples
//!
//! ```
//! use snowmint_store::{Expected, Key, MemoryStore, Store, Swap};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let store = MemoryStore::new();
//! let key = Key::new("workers/pool/7")?;
//! let Swap::Done(first) = store.compare_and_set(&key, Expected::Absent, b"node-a").await? else {
//!     panic!("nobody else writes here");
//! };
//! // A second writer that has not seen the record does not overwrite it.
//! assert_eq!(store.compare_and_set(&key, Expected::Absent, b"node-b").await?, Swap::Conflict);
//! assert_eq!(store.load(&key).await?.map(|record| record.revision), Some(first));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! - `memory` (default): [`MemoryStore`], for tests and for nodes that need no persistence.
//! - `sqlite` (default): [`SqliteStore`], one file that the processes of one machine may share.
//! - `redis`: [`RedisStore`], hashes in Redis, and [`RedisCounter`], plain keys that other programs count in.
//! - `postgres`: [`PostgresStore`], a table in PostgreSQL.
//! - `mysql`: [`MySqlStore`], a table in MySQL or MariaDB, and the counters of Leaf, `TinyID` and ticket
//!   tables.
//! - `tls`: TLS for the three stores above.
//! - `etcd`: [`EtcdStore`], keys of an etcd cluster.
//! - `zookeeper`: [`ZooKeeperStore`], znodes of a ZooKeeper ensemble.
//! - `kubernetes`: [`KubernetesStore`], Lease objects of a Kubernetes cluster.
//! - `conformance`: the checks that every backend must pass.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(
        feature = "memory",
        feature = "sqlite",
        feature = "redis",
        feature = "postgres",
        feature = "mysql",
        feature = "tls",
        feature = "etcd",
        feature = "zookeeper",
        feature = "kubernetes"
    )),
    allow(
        dead_code,
        unreachable_code,
        unused_imports,
        unused_variables,
        clippy::diverging_sub_expression,
        clippy::match_same_arms,
        clippy::needless_return,
        clippy::unused_async,
        clippy::useless_conversion,
        reason = "stores that this build lacks use the rest of it"
    )
)]

#[cfg(feature = "conformance")]
pub mod conformance;
mod counter;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod identity;
#[cfg(feature = "kubernetes")]
mod kubernetes;
#[cfg(feature = "memory")]
mod memory;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "_network")]
mod net;
mod open;
mod open_error;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
mod store_id;
mod takeover;
mod url_scheme;
mod visibility;
#[cfg(feature = "zookeeper")]
mod zookeeper;

#[cfg(feature = "mysql")]
pub use self::mysql::MySqlStore;
#[cfg(feature = "mysql")]
#[doc(hidden)]
pub use self::mysql::history::lacking_gtids;
#[cfg(feature = "redis")]
pub use self::redis::RedisStore;
#[cfg(feature = "zookeeper")]
#[doc(hidden)]
pub use self::zookeeper::wire::fuzzing as zookeeper_answers;
pub use counter::claims::{Claims, Mark, Refused};
pub use counter::{Counter, Reserved, Segment, StoreCounter, raise_settled, reserve, reserve_settled};
pub use error::{StoreError, StoreErrorKind};
#[cfg(feature = "etcd")]
pub use etcd::EtcdStore;
#[doc(hidden)]
pub use identity::KnownIdentity;
#[cfg(feature = "kubernetes")]
pub use kubernetes::KubernetesStore;
#[cfg(feature = "memory")]
pub use memory::MemoryStore;
#[doc(hidden)]
pub use open::open_backend;
pub use open::{BoxFuture, may_lose, open, open_expecting, open_to_read, schema};
pub use open_error::{OpenError, UrlError};
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use store::add::MAX_NUMBER;
pub use store::{Expected, Key, KeyError, Revision, Store, Swap, Versioned};
pub use store_id::{Identity, StoreId, StoreIdError};
#[cfg(feature = "redis")]
pub use takeover::RedisCounter;
#[cfg(feature = "mysql")]
pub use takeover::{LeafCounter, TicketsCounter, TinyIdCounter};
pub use takeover::{Rejected, Survey, Surveyed, open_counter, survey};
#[doc(hidden)]
pub use url_scheme::{built_stores, store_of_scheme, unescaped_login};
pub use visibility::Visibility;
#[cfg(feature = "zookeeper")]
pub use zookeeper::ZooKeeperStore;

/// Compiles the example in this crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
