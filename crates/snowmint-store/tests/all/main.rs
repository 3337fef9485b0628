//! The stores and counters against real servers, files and processes.
//!
//! One test program, so that it is linked once. `cargo nextest` runs each test as a separate process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails"
)]

mod conformance;
mod etcd;
mod failing;
mod id_in_columns;
mod kubernetes;
mod kubernetes_cluster;
mod mysql;
mod mysql_failover;
mod mysql_only;
mod postgres;
mod postgres_standby;
mod redis;
mod redis_failover;
mod sqlite;
mod sqlite_processes;
mod support;
mod takeover;
mod zookeeper;
