//! One ZooKeeper, or an ensemble of them, synced to disk as in production; a tick is 200 ms.
//! Plain `java` runs it, because the scripts of the package need a service.

use std::fs;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::process::{Child, Stdio};

use crate::Certificates;
use crate::etcd::start_all;
use crate::port::Port;
use crate::process::{find_file, find_server, kill, mortal, spawn};
use crate::server::{Server, folder, zookeeper_mode};

const JAR: &str = "/usr/share/java/zookeeper.jar";
/// The jars beside it that TLS needs and the package does not name.
const TLS_JARS: [&str; 3] = ["netty-codec", "netty-resolver", "netty-transport-native-unix-common"];
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

    /// Starts a server that accepts clients over TLS at [`secure_address`](Self::secure_address), and without at
    /// its other port.
    ///
    /// With `["ssl.clientAuth=need"]` clients have to show [`Certificates::client_certificate`].
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    pub fn with_tls(certificates: &Certificates, settings: &[&str]) -> Self {
        let both = [certificates.key(), certificates.certificate()].map(|it| fs::read(it).unwrap()).concat();
        let identity = certificates.folder().join("identity.pem");
        fs::write(&identity, both).unwrap();
        let make = || {
            let ports = vec![Port::reserve(), Port::reserve()];
            let tls = format!(
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                 secureClientPort={}\nsecureClientPortAddress=127.0.0.1\n\
                 ssl.keyStore.type=PEM\nssl.keyStore.location={}\n\
                 ssl.trustStore.type=PEM\nssl.trustStore.location={}",
                ports[1].number(),
                identity.display(),
                certificates.authority().display()
            );
            Self { server: node(0, &[], ports, &[&[&*tls], settings].concat()) }
        };
        Server::start(make, |it| it.server.up())
    }

    /// The address for clients that use TLS.
    pub fn secure_address(&self) -> SocketAddr {
        self.server.side_address()
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

/// ZooKeeper's own command line, with a session on one server.
#[derive(Debug)]
pub struct ZooKeeperCli {
    child: Child,
    output: BufReader<PipeReader>,
}

impl ZooKeeperCli {
    /// Opens a session.
    ///
    /// # Panics
    ///
    /// If `java` or ZooKeeper is not installed.
    pub fn connect(address: SocketAddr) -> Self {
        let (output, writer) = std::io::pipe().unwrap();
        let mut command = mortal(None, find_server("java", "default-jre-headless"));
        command.args(JVM).arg("-cp").arg(find_file(JAR, "zookeeper"));
        command.args(["org.apache.zookeeper.ZooKeeperMain", "-waitforconnection", "-server"]);
        command.arg(address.to_string()).stdin(Stdio::piped());
        command.stdout(writer.try_clone().unwrap()).stderr(writer);
        Self { child: spawn(command).unwrap(), output: BufReader::new(output) }
    }

    /// Sends a command, such as `get -s /a`.
    ///
    /// # Panics
    ///
    /// If the program has ended.
    pub fn send(&mut self, command: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        // It prints its version at the end of the answer.
        input.write_all(format!("{command}\nversion\n").as_bytes()).unwrap();
    }

    /// Returns what it has printed since the answer to the command before.
    ///
    /// # Panics
    ///
    /// If the program ends.
    pub fn answer(&mut self) -> String {
        let mut answer = String::new();
        loop {
            let mut line = String::new();
            assert!(
                self.output.read_line(&mut line).unwrap() > 0,
                "ZooKeeper's command line ended: {answer}"
            );
            if line.contains("ZooKeeper CLI version") {
                return answer;
            }
            answer.push_str(&line);
        }
    }

    /// Runs a command and returns what it prints.
    ///
    /// # Panics
    ///
    /// If the program ends.
    pub fn run(&mut self, command: &str) -> String {
        self.send(command);
        self.answer()
    }
}

impl Drop for ZooKeeperCli {
    fn drop(&mut self) {
        kill(&mut self.child);
    }
}

fn node(nth: usize, members: &[String], ports: Vec<Port>, settings: &[&str]) -> Server {
    let (java, jar, folder) =
        (find_server("java", "default-jre-headless"), find_file(JAR, "zookeeper"), folder("zookeeper"));
    let jars = TLS_JARS.map(|it| jar.with_file_name(format!("{it}.jar")).display().to_string());
    let path = folder.path().display().to_string();
    // Of an ensemble, the further ports are for followers and elections; of a lone server, for TLS.
    let clients = if members.is_empty() { &ports[..] } else { &ports[..1] };
    let clients: Vec<SocketAddr> = clients.iter().map(Port::address).collect();
    fs::create_dir(folder.path().join("data")).unwrap();
    fs::write(folder.path().join("data/myid"), (nth + 1).to_string()).unwrap();
    fs::write(folder.path().join("log4j.properties"), LOG).unwrap();
    let own = format!("dataDir={path}/data\nclientPort={}\n", ports[0].number());
    let all = format!("{SETTINGS}{own}{}\n{}\n", members.join("\n"), settings.join("\n"));
    fs::write(folder.path().join("zoo.cfg"), all).unwrap();
    let main = if members.is_empty() { "ZooKeeperServerMain" } else { "quorum.QuorumPeerMain" };
    let command = move || {
        let mut command = mortal(None, &java);
        command.args(JVM).arg("-cp").arg(format!("{path}:{}:{}", jar.display(), jars.join(":")));
        command.arg(format!("org.apache.zookeeper.server.{main}")).arg("zoo.cfg");
        command
    };
    // It opens the port for TLS last, when it serves the other one already.
    let ready = move || {
        zookeeper_mode(clients[0]).is_some() && clients.iter().all(|it| TcpStream::connect(it).is_ok())
    };
    Server::new("zookeeper", ports, folder, command, ready)
}
