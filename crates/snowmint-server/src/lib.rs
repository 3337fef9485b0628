//! The Snowmint service: one [`Mint`] behind HTTP, the Redis protocol, Thrift and gRPC.
//!
//! A protocol only translates: it parses a request, asks the mint, and writes the answer. There is one folder
//! for each protocol (`http`, `resp`, `thrift`, `grpc`), one [`mint`], and one table of failures
//! ([`status`]). All limits are in [`limits`].
//!
//! This crate has no stable interface: any version may change it. Use the command `snowmint serve`.
//!
//! ```text
//! HTTP   1.1, and 2 by prior knowledge, on which gRPC is answered too
//!        GET /v1/ids/{namespace}?count=1   {"ids":["…"]}, or one a line with Accept: text/plain
//!        GET /v1/ranges/{namespace}?count=1   {"ranges":[{"first":"…","count":1,"step":"1"}]}
//!        GET /v1/inspect/{id}              the fields of an id; ?namespace= or ?layout= says how to decode it
//!        GET /v1/readings/{id}             every reading of an id, with its bits and text forms
//!        GET /v1/layouts, /v1/layout?spec= the named layouts, and the properties of a layout
//!        GET /api/segment/get/{key}        as Leaf answers; /api/snowflake/get/{key} and /decodeSnowflakeId too
//!        GET /tinyid/id/nextId             as TinyID answers; /tinyid/id/nextIdSimple too
//!        GET /healthz /readyz /metrics     for probes and Prometheus
//!        GET /openapi.json                 all of this as an OpenAPI 3.1 document
//!        GET / for browsers, /console      the console: a page that shows and explains all of this
//! RESP   ID.NEXT namespace [COUNT n] [INTEGER]   an id as text; with COUNT an array of ids
//!        ID.RANGE namespace COUNT n           ids as ranges of first, count and step
//!        INCR namespace, INCRBY namespace n   numbers of a segment namespace, as Redis answers
//!        ID.INSPECT id [NAMESPACE name | LAYOUT spec]   the fields of an id
//!        and the commands that Redis clients send when they connect
//! Thrift get_id(useragent) and the rest of Twitter's snowflake.thrift
//! gRPC   snowmint.v1.Snowmint: Next, Stream, Inspect, TimeBounds, Namespaces; health and reflection
//! ```
//!
//! # Terms
//!
//! - The **mint** makes ids for the served namespaces and decodes ids.
//! - A **backend** makes the ids of one namespace: leased workers, segments, or a generator of wide ids.
//! - An **id pool** makes the ids of one layout and rule under this node's leases; namespaces share it.
//! - The **namespace sync** keeps the served namespaces in step with the flags, the namespace file and the
//!   store.
//! - A **token** names a client; an **identity** is the token of a request, or none.
//! - An **unrecorded** namespace is served although the store has lost its record.
//!
//! # Examples
//!
//! ```no_run
//! # async fn run(leases: snowmint_cluster::Leases, layout: snowmint::Layout) -> Result<(), Box<dyn std::error::Error>> {
//! use snowmint_server::{Listeners, Mint, Settings, bind, serve};
//! let namespace = snowmint_cluster::NamespaceName::new("default")?;
//! let mint = Mint::new([namespace], leases, layout, snowmint::DatacenterId(0));
//! let listeners = Listeners {
//!     http: Some(bind("127.0.0.1:8080", "--http").await?),
//!     resp: Some(bind("127.0.0.1:6380", "--resp").await?),
//!     ..Listeners::default()
//! };
//! let ends = Box::pin(async { /* a signal */ });
//! serve(mint.into(), listeners, Settings::default(), ends).await;
//! # Ok(()) }
//! ```

pub mod access;
pub mod admin;
mod clock;
mod fleet;
mod grpc;
mod histogram;
mod history;
mod http;
pub mod http_client;
mod known_peers;
pub mod layout_view;
pub mod limits;
mod load;
mod metrics;
pub mod mint;
pub mod namespace_sync;
mod protocol;
mod request_record;
mod resp;
mod server;
mod settings;
mod state;
pub mod status;
mod store_calls;
mod store_label;
mod telemetry;
mod thrift;
mod tls;
mod watched_files;
mod wire;

// Unit tests and integration tests share the id source without a store, which names this crate from outside.
#[cfg(test)]
extern crate self as snowmint_server;
#[cfg(test)]
#[path = "../tests/all/support/test_source.rs"]
mod testing;

pub use access::{Access, Identity, Right};
pub use clock::SharedClock;
pub use mint::{IdHandle, IdSource, Mint, MintError};
pub use namespace_sync::NamespaceSync;
pub use server::{Ended, Listeners, serve};
pub use settings::{AllowedHosts, CorsOrigins, HostError, OriginError, Settings, Timeouts};
pub use store_calls::{StoreCalls, TimedStore};
#[cfg(feature = "otlp")]
pub use telemetry::otlp::{InvalidEndpoint, InvalidRatio, OtlpEndpoint, SampleRatio, TraceSettings};
pub use wire::listener::{BindError, Listener, bind};

pub use thrift::{ThriftExceptions, ThriftListener};
pub use tls::{Tls, TlsError, TlsFiles};

/// The parser of the Redis protocol, for fuzzing.
#[doc(hidden)]
pub use resp::codec as resp_codec;

/// The parser of Thrift, for fuzzing.
#[doc(hidden)]
pub use thrift::codec as thrift_codec;

/// The parser of gRPC messages and the messages, for clients of this workspace, fuzzing and tests.
#[doc(hidden)]
pub use grpc::{message as grpc_message, messages as grpc_messages};

/// Parses path and query of a request, for fuzzing.
#[doc(hidden)]
pub use http::reads_route as http_reads_route;

/// Compiles and runs the example of the project's README. Only `cargo test --doc` reads these files, which
/// the published crate does not contain.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod project_readme {}

/// Compiles and runs the examples of `docs`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/quick-start.md")]
#[doc = include_str!("../../../docs/clocks.md")]
#[doc = include_str!("../../../docs/recipes.md")]
mod pages {}
