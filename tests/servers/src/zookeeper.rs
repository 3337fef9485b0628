//! One ZooKeeper, or an ensemble of them, synced to disk as in production; a tick is 200 ms.
//! Plain `java` runs it, because the scripts of the package need a service.

use std::fs;
use std::net::SocketAddr;
use std::ops::Deref;

use crate::etcd::start_all;
use crate::port::Port;
use crate::process::{find_file, find_server, mortal};
use crate::server::{Server, folder, zookeeper_mode};

const JAR: &str = "/usr/share/java/zookeeper.jar";
const JVM: [&str; 7] = [
    "-Xms32m",
    "-Xmx64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Djava.awt.headless=true",
];
/// Session timeouts may be from two ticks to 1 min.
const SETTINGS: &str = "tickTime=200\nadmin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n\
    minSessionTimeout=400\nmaxSessionTimeout=60000\ninitLimit=50\nsyncLimit=10\nclientPortAddress=127.0.0.1\n";
const LOG: &str = "log4j.rootLogger=WARN, C\nlog4j.appender.C=org.apache.log4j.ConsoleAppender\n\
    log4j.appender.C.layout=org.apache.log4j.PatternLayout\n\
    log4j.appender.C.layout.ConversionPattern=%d{ISO8601} %-5p [%t:%C{1}] %m%n\n";

/// A single ZooKeeper.
#[derive(Debug)]
pub struct ZooKeeper {
    server: Server,
}

impl ZooKeeper {
    /// Starts a server.
    ///
    /// # Panics
    ///
    /// If `java` or ZooKeeper is not installed, or with its log if it does not come up.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with more settings: `["jute.maxbuffer=100000"]`.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    pub fn with(settings: &[&str]) -> Self {
        let make = || Self { server: node(0, &[], vec![Port::reserve()], settings) };
        Server::start(make, |it| it.server.up())
    }
}

impl Deref for ZooKeeper {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// An ensemble of ZooKeeper nodes, each of which can be killed, paused and restarted.
#[derive(Debug)]
pub struct ZooKeeperEnsemble {
    nodes: Vec<Server>,
}

impl ZooKeeperEnsemble {
    /// Starts an ensemble of that many nodes and waits until all of them are ready.
    ///
    /// # Panics
    ///
    /// If `java` or ZooKeeper is not installed, or with the log of a node that does not come up.
    pub fn start(count: usize) -> Self {
        let make = || {
            // Ports for clients, followers and elections.
            let ports: Vec<[Port; 3]> =
                (0..count).map(|_| [Port::reserve(), Port::reserve(), Port::reserve()]).collect();
            let members: Vec<String> = (1..)
                .zip(&ports)
                .map(|(id, [_, follow, elect])| {
                    format!("server.{id}=127.0.0.1:{}:{}", follow.number(), elect.number())
                })
                .collect();
            let nodes = ports.into_iter().enumerate();
            Self { nodes: nodes.map(|(nth, ports)| node(nth, &members, ports.into(), &[])).collect() }
        };
        Server::start(make, |ensemble| start_all(&ensemble.nodes))
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
        let leads = |node: &Server| zookeeper_mode(node.address()).as_deref() == Some("leader");
        self.nodes.iter().position(leads)
    }
}

fn node(nth: usize, members: &[String], ports: Vec<Port>, settings: &[&str]) -> Server {
    let (java, jar, folder) =
        (find_server("java", "default-jre-headless"), find_file(JAR, "zookeeper"), folder("zookeeper"));
    let (path, address) = (folder.path().display().to_string(), ports[0].address());
    fs::create_dir(folder.path().join("data")).unwrap();
    fs::write(folder.path().join("data/myid"), (nth + 1).to_string()).unwrap();
    fs::write(folder.path().join("log4j.properties"), LOG).unwrap();
    let own = format!("dataDir={path}/data\nclientPort={}\n", ports[0].number());
    let all = format!("{SETTINGS}{own}{}\n{}\n", members.join("\n"), settings.join("\n"));
    fs::write(folder.path().join("zoo.cfg"), all).unwrap();
    let main = if members.is_empty() { "ZooKeeperServerMain" } else { "quorum.QuorumPeerMain" };
    let command = move || {
        let mut command = mortal(None, &java);
        command.args(JVM).arg("-cp").arg(format!("{path}:{}", jar.display()));
        command.arg(format!("org.apache.zookeeper.server.{main}")).arg("zoo.cfg");
        command
    };
    let ready = move || zookeeper_mode(address).is_some();
    Server::new("zookeeper", ports, folder, command, ready)
}
