//! Tests of the built binary from outside: processes and sockets only. Each module covers one kind of fault.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::format_push_string,
    reason = "this is test code: a panic is how a test fails, and figures go to the test's output"
)]

mod abuse;
mod abuse_unread;
mod access_log;
mod bad_data_file;
mod bad_input;
mod chaos;
mod clients;
mod clock_at_start;
mod clock_steps;
mod clusters;
mod console;
mod docs;
mod examples;
mod footprint;
mod foreign_text;
mod greedy_clients;
mod grpc;
mod hand_over;
mod killed_node;
mod limits;
mod listeners;
mod logs_and_diagnosis;
mod monitoring;
mod namespaces;
mod number_sources;
mod openapi;
mod packaging;
mod pause;
mod restores;
mod rolling;
mod several_workers;
mod shutdown;
mod socket_activation;
mod start_without_store;
mod store_outage;
mod thrift;
mod tls;
mod tokens;
mod traces;
mod two_stores;
