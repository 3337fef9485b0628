//! The servers behind each store. The test can kill or pause each one, and find the leader.
//! Each node reaches them through its own proxies, which produce network faults.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use snowmint_test_servers::{
    EtcdCluster, Kubernetes, MariaDb, Postgres, Proxy, Redis, Server, ZooKeeperEnsemble,
};

use super::switchovers::{MariaDbs, PostgresPair, Redises, Replicated, Synchronous, hosts_of};

/// Number of members of a cluster.
const MEMBERS: usize = 3;
/// The namespace of the nodes in Kubernetes.
const NAMESPACE: &str = "ids";

/// The kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Etcd,
    ZooKeeper,
    Postgres,
    MariaDb,
    Redis,
    /// An API server and its etcd.
    Kubernetes,
    /// With a replica that confirms each commit.
    MariaDbPair,
    PostgresSynchronous,
    PostgresAsynchronous,
    /// With two replicas and three Sentinels.
    RedisSentinels,
}

/// The servers of a store.
#[derive(Debug)]
pub(crate) enum Coordinators {
    Etcd(EtcdCluster),
    ZooKeeper(ZooKeeperEnsemble),
    Postgres(Postgres),
    MariaDb(MariaDb),
    Redis(Redis),
    /// With the file of the token of the nodes.
    Kubernetes(Kubernetes, PathBuf),
    Replicated(Box<dyn Replicated>),
}

impl Coordinators {
    pub(crate) fn start(kind: Kind) -> Self {
        match kind {
            Kind::Etcd => Self::Etcd(EtcdCluster::start(MEMBERS)),
            Kind::ZooKeeper => Self::ZooKeeper(ZooKeeperEnsemble::start(MEMBERS)),
            Kind::Postgres => Self::Postgres(Postgres::start()),
            Kind::MariaDb => Self::MariaDb(MariaDb::start()),
            Kind::Redis => Self::Redis(Redis::start()),
            Kind::Kubernetes => {
                let kubernetes = Kubernetes::start();
                kubernetes.add_namespace(NAMESPACE);
                let token = kubernetes.server().folder().join("token-of-nodes");
                kubernetes.write_token(NAMESPACE, "24h", &token);
                Self::Kubernetes(kubernetes, token)
            }
            Kind::MariaDbPair => Self::Replicated(Box::new(MariaDbs::start())),
            Kind::PostgresSynchronous => Self::Replicated(Box::new(PostgresPair::start(Synchronous::Yes))),
            Kind::PostgresAsynchronous => Self::Replicated(Box::new(PostgresPair::start(Synchronous::No))),
            Kind::RedisSentinels => Self::Replicated(Box::new(Redises::start())),
        }
    }

    /// The stores whose primary can be changed.
    pub(crate) fn replicated(&self) -> Option<&dyn Replicated> {
        match self {
            Self::Replicated(replicated) => Some(&**replicated),
            _ => None,
        }
    }

    pub(crate) fn servers(&self) -> Vec<&Server> {
        match self {
            Self::Etcd(cluster) => cluster.nodes().iter().collect(),
            Self::ZooKeeper(ensemble) => ensemble.nodes().iter().collect(),
            Self::Postgres(server) => vec![server],
            Self::MariaDb(server) => vec![server],
            Self::Redis(server) => vec![server],
            Self::Kubernetes(kubernetes, _) => vec![kubernetes.server(), kubernetes.etcd()],
            Self::Replicated(replicated) => replicated.servers(),
        }
    }

    /// Returns the leader, if there are several members and one of them leads.
    pub(crate) fn leader(&self) -> Option<usize> {
        match self {
            Self::Etcd(cluster) => cluster.leader(),
            Self::ZooKeeper(ensemble) => ensemble.leader(),
            Self::Replicated(replicated) => Some(replicated.primary()),
            _ => None,
        }
    }

    /// The store URL for a node that reaches the servers at these addresses.
    fn url(&self, addresses: &[SocketAddr]) -> String {
        let hosts = hosts_of(addresses);
        match self {
            Self::Etcd(_) => format!("etcd://{hosts}"),
            Self::ZooKeeper(_) => format!("zookeeper://{hosts}/snowmint"),
            Self::Postgres(_) => format!("postgres://postgres@{hosts}/postgres"),
            Self::MariaDb(_) => format!("mysql://root@{hosts}/test"),
            Self::Redis(_) => format!("redis://{hosts}"),
            Self::Kubernetes(kubernetes, token) => {
                kubernetes.store_url(NAMESPACE, token, addresses[0].port())
            }
            Self::Replicated(replicated) => replicated.url(&hosts),
        }
    }
}

/// A fault of the network between a node and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// Every connection is closed once; new ones are accepted.
    Cut,
    /// Connections are closed and new ones refused.
    Refused,
    /// No data passes and no connection closes, as with a pulled cable.
    Frozen,
    /// Requests arrive, answers do not.
    AnswersLost,
    /// Each piece of data takes 100 ms each way.
    Slow,
}

impl Trouble {
    pub(crate) const ALL: [Self; 5] = [Self::Cut, Self::Refused, Self::Frozen, Self::AnswersLost, Self::Slow];
}

/// One node's proxies to the servers.
#[derive(Debug)]
pub(crate) struct Links {
    proxies: Vec<Proxy>,
    url: String,
}

impl Links {
    pub(crate) fn to(coordinators: &Coordinators) -> Self {
        let servers = coordinators.servers();
        let proxies: Vec<Proxy> = servers.iter().map(|server| Proxy::start(server.address())).collect();
        let hosts: Vec<SocketAddr> = proxies.iter().map(Proxy::address).collect();
        Self { url: coordinators.url(&hosts), proxies }
    }

    /// The URL for `--store`.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn strike(&self, trouble: Trouble) {
        for proxy in &self.proxies {
            match trouble {
                Trouble::Cut => proxy.cut(),
                Trouble::Refused => proxy.refuse(),
                Trouble::Frozen => proxy.freeze(),
                Trouble::AnswersLost => proxy.lose_answers(true),
                Trouble::Slow => proxy.delay(Duration::from_millis(100)),
            }
        }
    }

    pub(crate) fn heal(&self, trouble: Trouble) {
        for proxy in &self.proxies {
            match trouble {
                Trouble::Cut => {}
                Trouble::Refused => proxy.accept(),
                Trouble::Frozen => proxy.thaw(),
                Trouble::AnswersLost => {
                    proxy.lose_answers(false);
                    // The second half of an answer would not be a valid answer.
                    proxy.cut();
                }
                Trouble::Slow => proxy.delay(Duration::ZERO),
            }
        }
    }
}
