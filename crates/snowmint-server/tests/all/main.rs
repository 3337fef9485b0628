//! HTTP, RESP and gRPC over real sockets, and readiness over real leases.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic is how a test fails")]

mod admin;
#[path = "../../../snowmint-cluster/tests/all/cut_off_store.rs"]
mod cut_off_store;
mod grpc;
mod http;
mod http2;
mod readiness;
mod resp;
mod running_service;
mod test_source;
mod tokens;
