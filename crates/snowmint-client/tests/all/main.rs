//! The client against real servers: death, silence, rejection, TLS; and against answers that no server should
//! send.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "this is test code: a panic is how a test fails")]

mod answers;
mod callers;
mod faults;
mod rejections;
mod tls;
mod tokens;
mod two_stores;

use std::time::Duration;

use snowmint_client::{Client, ClientBuilder, Id, Ids};
use snowmint_test_servers::snowmint::Server;

/// How long a caller waits on a busy machine. Tests of the timeout itself use another value.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns a builder for these servers, in this order.
fn client(servers: &[&Server]) -> ClientBuilder {
    let urls = servers.iter().map(|server| format!("http://{}", server.http()));
    Client::builder().servers(urls).order(snowmint_client::ServerOrder::AsListed).timeout(PATIENCE)
}

fn ids_of(builder: ClientBuilder, namespace: &str) -> Ids {
    builder.build().unwrap().namespace(namespace).unwrap()
}

fn numbers(ids: &[Id]) -> Vec<u64> {
    ids.iter().map(|id| id.get()).collect()
}
