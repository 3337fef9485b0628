//! One etcd, or a cluster of them, synced to disk as in production, with quick elections. Readiness is probed
//! on a second port without TLS.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;

use crate::Certificates;
use crate::port::Port;
use crate::process::{find_server, mortal};
use crate::server::{NotReady, Server, folder, get};

const PACKAGE: &str = "etcd-server";

/// A single etcd.
#[derive(Debug)]
pub struct Etcd {
    server: Server,
}

impl Etcd {
    /// Starts a server.
    ///
    /// # Panics
    ///
    /// If `etcd` is not installed, or with its log if it does not come up.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with more flags: `["--quota-backend-bytes=16777216"]`.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    pub fn with(flags: &[&str]) -> Self {
        Self::launch(None, flags)
    }

    /// Starts a server that accepts clients only over TLS.
    ///
    /// With `["--client-cert-auth", "--trusted-ca-file=..."]` clients have to show
    /// [`Certificates::client_certificate`].
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    pub fn with_tls(certificates: &Certificates, flags: &[&str]) -> Self {
        Self::launch(Some(certificates), flags)
    }

    fn launch(certificates: Option<&Certificates>, flags: &[&str]) -> Self {
        Self::launch_program(&find_server("etcd", PACKAGE), certificates, flags)
    }

    /// Starts a server of a program that is not the system's.
    pub(crate) fn of(program: &Path) -> Self {
        Self::launch_program(program, None, &[])
    }

    fn launch_program(program: &Path, certificates: Option<&Certificates>, flags: &[&str]) -> Self {
        let make = || {
            let ports = NodePorts::reserve();
            let peers = vec![ports.peer.number()];
            Self { server: node(program, 0, &peers, ports, certificates, flags) }
        };
        Server::start(make, |it| it.server.up())
    }
}

impl Deref for Etcd {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// A cluster of etcd nodes, each of which can be killed, paused and restarted.
#[derive(Debug)]
pub struct EtcdCluster {
    nodes: Vec<Server>,
}

impl EtcdCluster {
    /// Starts a cluster of that many nodes and waits until all of them are ready.
    ///
    /// # Panics
    ///
    /// If `etcd` is not installed, or with the log of a node that does not come up.
    pub fn start(count: usize) -> Self {
        let program = find_server("etcd", PACKAGE);
        let make = || {
            let ports: Vec<NodePorts> = (0..count).map(|_| NodePorts::reserve()).collect();
            let peers: Vec<u16> = ports.iter().map(|it| it.peer.number()).collect();
            let nodes = ports.into_iter().enumerate();
            Self { nodes: nodes.map(|(nth, ports)| node(&program, nth, &peers, ports, None, &[])).collect() }
        };
        Server::start(make, |cluster| start_all(&cluster.nodes))
    }

    /// The nodes, also those that are down.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// The client addresses, by node.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Server::address).collect()
    }

    /// The index of the node that claims to lead. A paused node does not answer, so it is not found.
    pub fn leader(&self) -> Option<usize> {
        self.nodes.iter().position(|node| {
            let metrics = get(node.side_address(), "/metrics").unwrap_or_default();
            metrics.lines().any(|line| line == "etcd_server_is_leader 1")
        })
    }
}

/// Starts all nodes before it waits, because none is ready alone.
pub(crate) fn start_all(nodes: &[Server]) -> Result<(), NotReady> {
    nodes.iter().for_each(Server::spawn);
    nodes.iter().try_for_each(Server::await_ready)
}

struct NodePorts {
    client: Port,
    /// The address of its health check.
    side: Port,
    peer: Port,
}

impl NodePorts {
    fn reserve() -> Self {
        Self { client: Port::reserve(), side: Port::reserve(), peer: Port::reserve() }
    }
}

fn node(
    program: &Path,
    nth: usize,
    peers: &[u16],
    ports: NodePorts,
    certificates: Option<&Certificates>,
    flags: &[&str],
) -> Server {
    let (program, folder) = (program.to_owned(), folder("etcd"));
    let scheme = if certificates.is_some() { "https" } else { "http" };
    let client = format!("{scheme}://{}", ports.client.address());
    let peer = format!("http://{}", ports.peer.address());
    let members: Vec<String> =
        peers.iter().enumerate().map(|(nth, port)| format!("n{nth}=http://127.0.0.1:{port}")).collect();
    let mut arguments = vec![
        format!("--name=n{nth}"),
        "--data-dir=data".to_owned(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster={}", members.join(",")),
        format!("--initial-cluster-token=t{}", peers[0]),
        format!("--listen-metrics-urls=http://{}", ports.side.address()),
        "--heartbeat-interval=50".to_owned(),
        "--election-timeout=500".to_owned(),
        "--logger=zap".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    if let Some(made) = certificates {
        arguments.push(format!("--cert-file={}", made.certificate().display()));
        arguments.push(format!("--key-file={}", made.key().display()));
    }
    arguments.extend(flags.iter().map(ToString::to_string));
    let command = move || {
        let mut command = mortal(None, &program);
        command.args(&arguments);
        command
    };
    let side = ports.side.address();
    let ready = move || get(side, "/health").is_some_and(|it| it.contains(r#""health":"true""#));
    Server::new("etcd", vec![ports.client, ports.side, ports.peer], folder, command, ready)
}
