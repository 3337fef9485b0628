//! Starts the real servers that stores are tested against, on free loopback ports and in folders of their own, and
//! does to them what the world does: kills, pauses, restarts, and (by a [`Proxy`]) all that a network can do.
//!
//! Every server here keeps what it acknowledged through a `kill -9`. Each dies with the test process, however that
//! ends, and takes its folder with it when it is dropped. A program that is missing is a panic that says how to
//! install it, never a skip.
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
    reason = "this is test code: a panic is how a test fails, and every public function says when it does"
)]

mod certificates;
mod etcd;
mod galera;
mod mariadb;
mod mariadb_pair;
mod pgbouncer;
mod port;
mod postgres;
mod probe;
mod process;
mod program;
mod proxy;
mod redis;
mod server;
mod time;
mod zookeeper;

pub use certificates::Certificates;
pub use etcd::{Etcd, EtcdCluster};
pub use galera::GaleraPair;
pub use mariadb::MariaDb;
pub use mariadb_pair::MariaDbPair;
pub use pgbouncer::PgBouncer;
pub use postgres::Postgres;
pub use proxy::Proxy;
pub use redis::{Redis, RedisSentinels};
pub use server::Server;
pub use zookeeper::{ZooKeeper, ZooKeeperEnsemble};
