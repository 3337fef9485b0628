//! Load balancers in front of servers under test, as people run them: HAProxy with health checks, nginx without.

use std::fs;
use std::net::{SocketAddrV4, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::server::{Server, spawn_bound_to_this_thread};
use crate::{port, time};

/// A running balancer.
#[derive(Debug)]
pub struct Balancer {
    child: Child,
    http: SocketAddrV4,
    resp: SocketAddrV4,
}

impl Balancer {
    /// HAProxy: HTTP in its HTTP mode and RESP in its TCP mode; of both, nodes whose `/readyz` is not 200 get no clients.
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

    /// nginx, which only passes on bytes: a node that cannot be connected to is passed over, all else it does not see.
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
pid {folder_text}/nginx.pid;
error_log {folder_text}/nginx.log;
worker_processes 1;
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

    /// Where it takes HTTP.
    pub const fn http(&self) -> SocketAddrV4 {
        self.http
    }

    /// Where it takes RESP.
    pub const fn resp(&self) -> SocketAddrV4 {
        self.resp
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        // Its workers end with it: they hear of the end of their control channel.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
