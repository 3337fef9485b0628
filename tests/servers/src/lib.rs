//! The test harness: starts real servers and causes real-world faults.
//!
//! - The servers that stores are tested against ([`Redis`], [`Postgres`], …), on free loopback ports and in
//!   separate folders, with kills, pauses, restarts, and (with a [`Proxy`]) every fault of a network. Each
//!   keeps acknowledged writes through a `kill -9`.
//! - The built `snowmint` itself ([`snowmint`]), with clients, stepped clocks and full disks. The harness
//!   links none of our crates, so it cannot share their mistakes.
//!
//! Each server dies with the test process, however that ends, and its folder is deleted when it is dropped.
//! If a program is missing, the test panics with the command that installs it; no test is skipped.
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
mod hanging_disk;
mod kubernetes;
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
pub use kubernetes::Kubernetes;
pub use mariadb::{GaleraPair, MariaDb, MariaDbPair, is_mysql};
pub use postgres::{PgBouncer, Postgres};
pub use proxy::Proxy;
pub use redis::{Redis, RedisSentinels, SLOW_REWRITES};
pub use server::Server;
pub use zookeeper::{ZooKeeper, ZooKeeperCli, ZooKeeperEnsemble};
