//! HTTP, RESP and gRPC over real sockets, and readiness over real leases.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic is how a test fails")]

mod admin;
mod grpc;
mod http;
mod http2;
mod readiness;
mod resp;
mod support;
mod tokens;
