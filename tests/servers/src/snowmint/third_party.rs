//! Third-party programs: clients (redis-cli, redis-benchmark, redis-py, node-redis, ioredis, curl) and load
//! balancers. If a program is missing, the test fails with the command that installs it; no test is skipped.

use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use super::server::{Server, spawn_bound_to_this_thread};
use crate::{port, time};

/// How to install each tool.
const TOOLS: [(&str, &str); 21] = [
    ("haproxy", "apt-get install haproxy"),
    ("nginx", "apt-get install nginx libnginx-mod-stream"),
    ("redis-cli", "apt-get install redis-tools"),
    ("redis-benchmark", "apt-get install redis-tools"),
    ("sqlite3", "apt-get install sqlite3"),
    ("etcdctl", "apt-get install etcd-client"),
    ("pg_dump", "apt-get install postgresql-client"),
    ("psql", "apt-get install postgresql-client"),
    ("mariadb-dump", "apt-get install mariadb-client"),
    ("curl", "apt-get install curl"),
    ("python3", "apt-get install python3"),
    ("node", "apt-get install nodejs npm"),
    ("thrift", "apt-get install thrift-compiler"),
    ("unshare", "apt-get install util-linux"),
    ("nsenter", "apt-get install util-linux"),
    ("mount", "apt-get install mount"),
    ("strip", "apt-get install binutils"),
    ("sh", "apt-get install dash"),
    ("env", "apt-get install coreutils"),
    ("systemd-analyze", "apt-get install systemd"),
    ("date", "apt-get install coreutils"),
];

/// Runs a tool to its end.
///
/// # Panics
///
/// If it is not installed; the message says how to install it.
pub fn run(tool: &str, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    run_with_input(tool, args, "")
}

/// Runs a tool to its end, with a text on its standard input.
///
/// # Panics
///
/// If it is not installed; the message says how to install it.
pub fn run_with_input(tool: &str, args: impl IntoIterator<Item = impl AsRef<OsStr>>, input: &str) -> Output {
    let started = Command::new(tool)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match started {
        Err(error) if error.kind() == ErrorKind::NotFound => panic!("{}", missing(tool)),
        started => started.unwrap(),
    };
    // A tool that ignores its input may have closed it.
    child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
    child.wait_with_output().unwrap()
}

/// Runs a tool that must succeed, and returns what it wrote to its standard output.
///
/// # Panics
///
/// If it is not installed, or did not succeed.
pub fn output(tool: &str, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
    succeeded(tool, &run(tool, args))
}

/// Runs a Python script that uses a module of the Python package index, and returns its standard output.
///
/// # Panics
///
/// If Python or the module is not installed, or the script failed.
pub fn python(module: &str, script: &str, args: &[&str]) -> String {
    let check = run("python3", ["-c", &format!("import {module}")]);
    assert!(
        check.status.success(),
        "the Python module {module} is missing: install it with `./check tools`, or `pip install {module}`\n{}",
        String::from_utf8_lossy(&check.stderr)
    );
    let args = ["-c", script].into_iter().chain(args.iter().copied());
    output("python3", args)
}

/// Runs a Node.js script that uses node-redis or ioredis, and returns its standard output.
///
/// # Panics
///
/// If Node.js or one of the two is not installed, or the script failed.
pub fn node(script: &str, args: &[&str]) -> String {
    let modules = super::workspace().join("target/node");
    let folder = modules.display().to_string();
    assert!(
        modules.join("node_modules/redis").is_dir() && modules.join("node_modules/ioredis").is_dir(),
        "node-redis or ioredis is missing: install them with `./check tools`, or `npm install --prefix {folder} redis ioredis`"
    );
    // Node.js looks for modules in the working directory.
    let words = ["-c", "cd \"$0\" && exec node -e \"$@\"", &folder, script, "--"];
    output("sh", words.into_iter().chain(args.iter().copied()))
}

fn succeeded(tool: &str, output: &Output) -> String {
    assert!(output.status.success(), "{tool} failed: {}\n{}", output.status, super::text(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns the message for a tool that is not installed.
pub(super) fn missing(tool: &str) -> String {
    let how = TOOLS.iter().find(|(name, _)| *name == tool).map_or("your package manager", |(_, how)| how);
    format!("{tool} is missing: install it with `{how}`")
}

/// A running load balancer.
#[derive(Debug)]
pub struct Balancer {
    child: Child,
    http: SocketAddrV4,
    resp: SocketAddrV4,
}

impl Balancer {
    /// Starts HAProxy: HTTP in HTTP mode and RESP in TCP mode. Nodes whose `/readyz` does not answer 200 get
    /// no clients in either mode.
    ///
    /// # Panics
    ///
    /// If it is not installed, or does not start.
    pub fn haproxy(folder: &Path, nodes: &[Server]) -> Self {
        let (http, resp) = (port::free(), port::free());
        let servers = |address: fn(&Server) -> SocketAddrV4| -> String {
            let line = |(i, node): (usize, &Server)| {
                format!("    server node{i} {} check port {}\n", address(node), node.http().port())
            };
            nodes.iter().enumerate().map(line).collect()
        };
        let config = format!(
            "defaults
    timeout connect 2s
    timeout client 1m
    timeout server 1m
    option redispatch
    default-server inter 200ms fall 2 rise 2
    option httpchk
    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host localhost
listen ids
    mode http
    bind {http}
{}listen redis
    mode tcp
    bind {resp}
{}",
            servers(Server::http),
            servers(Server::resp)
        );
        let path = folder.join("haproxy.cfg");
        fs::write(&path, config).expect("the folder can be written");
        let mut command = Command::new("haproxy");
        command.args(["-db", "-f"]).arg(&path);
        Self::start(command, folder, http, resp)
    }

    /// Starts nginx, which only forwards bytes: it skips a node that refuses connections, and checks nothing
    /// else.
    ///
    /// # Panics
    ///
    /// If it is not installed, or does not start.
    pub fn nginx(folder: &Path, nodes: &[Server]) -> Self {
        let (http, resp) = (port::free(), port::free());
        let servers = |address: fn(&Server) -> SocketAddrV4| -> String {
            let line = |node| format!("server {} max_fails=1 fail_timeout=1s;", address(node));
            nodes.iter().map(line).collect::<Vec<_>>().join(" ")
        };
        let folder_text = folder.display();
        let config = format!(
            "load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off;
master_process off;
pid {folder_text}/nginx.pid;
error_log {folder_text}/nginx.log;
events {{ worker_connections 1024; }}
stream {{
    proxy_connect_timeout 2s;
    upstream ids {{ {} }}
    upstream redis {{ {} }}
    server {{ listen {http}; proxy_pass ids; }}
    server {{ listen {resp}; proxy_pass redis; }}
}}
",
            servers(Server::http),
            servers(Server::resp)
        );
        let path = folder.join("nginx.conf");
        fs::write(&path, config).expect("the folder can be written");
        let mut command = Command::new("nginx");
        command.arg("-p").arg(folder).arg("-c").arg(&path);
        Self::start(command, folder, http, resp)
    }

    fn start(mut command: Command, folder: &Path, http: SocketAddrV4, resp: SocketAddrV4) -> Self {
        let log = fs::File::create(folder.join("balancer.log")).expect("the folder can be written");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file can be shared")).stderr(log);
        let child = spawn_bound_to_this_thread(&mut command);
        let balancer = Self { child, http, resp };
        time::eventually("the balancer listens", Duration::from_secs(20), || {
            TcpStream::connect(balancer.http).and_then(|_| TcpStream::connect(balancer.resp)).ok()
        });
        balancer
    }

    /// Its address for HTTP.
    pub const fn http(&self) -> SocketAddrV4 {
        self.http
    }

    /// Its address for RESP.
    pub const fn resp(&self) -> SocketAddrV4 {
        self.resp
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        // Its workers notice the end of their control channel, and exit too.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
