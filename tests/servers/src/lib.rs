//! The harness of the tests: it starts real servers and does to them what the world does.
//!
//! - The servers that stores are tested against ([`Redis`], [`Postgres`], …), on free loopback ports and in folders of their
//!   own, with kills, pauses, restarts, and (by a [`Proxy`]) every fault of a network. Each keeps what it acknowledged
//!   through a `kill -9`.
//! - The built `snowmint` itself ([`snowmint`]), with clients, stepped clocks and full disks. The harness links none of our
//!   crates, so that a mistake in them cannot hide itself here.
//!
//! Each server dies with the test process, however that ends, and takes its folder with it when it is dropped. A missing
//! program is a panic that says how to install it, never a skip.
//!
//! # Examples
//!
//! ```no_run
//! use snowmint_test_servers::{Proxy, Redis};
//!
//! let redis = Redis::start();
//! let proxy = Proxy::start(redis.address());
//! println!("clients go to {}", proxy.address());
//! redis.kill9();
//! redis.restart(); // the same data and the same port
//! proxy.cut();
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "this is test code: a panic is how a test fails, and figures go to the test's output"
)]

mod certificates;
mod etcd;
mod mariadb;
pub mod port;
mod postgres;
mod process;
mod proxy;
mod redis;
mod server;
pub mod snowmint;
pub mod time;
mod zookeeper;

pub use certificates::Certificates;
pub use etcd::{Etcd, EtcdCluster};
pub use mariadb::{GaleraPair, MariaDb, MariaDbPair};
pub use postgres::{PgBouncer, Postgres};
pub use proxy::Proxy;
pub use redis::{Redis, RedisSentinels};
pub use server::Server;
pub use zookeeper::{ZooKeeper, ZooKeeperEnsemble};
