//! One Redis, which syncs every write to its file before it answers.
//! More of them can be its copies; with certificates it also takes TLS, on a port of its own.

use std::net::SocketAddr;
use std::ops::Deref;
use std::process::Command;

use crate::port::Port;
use crate::server::{Server, folder};
use crate::{Certificates, probe, program};

/// A Redis server.
#[derive(Debug)]
pub struct Redis {
    server: Server,
    tls: SocketAddr,
}

impl Redis {
    /// Starts a server without a password that appends every write to its file, synced, before it answers.
    ///
    /// # Panics
    ///
    /// If `redis-server` is not installed, or with its log if it does not come up.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with more settings: `["--requirepass", "secret"]`, `["--appendfsync", "no"]`.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    pub fn with(settings: &[&str]) -> Self {
        Self::launch(settings, None)
    }

    /// Starts a server that also takes TLS, on [`tls_address`](Self::tls_address).
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    pub fn with_tls(certificates: &Certificates, settings: &[&str]) -> Self {
        Self::launch(settings, Some(certificates))
    }

    /// Starts a server that copies all that another writes, and can itself not be written.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    pub fn replica_of(primary: &Self, settings: &[&str]) -> Self {
        let of = format!("127.0.0.1 {}", primary.port());
        Self::with(&[&["--replicaof", &of], settings].concat())
    }

    /// Where clients connect with TLS; nobody listens there unless the server has certificates.
    pub fn tls_address(&self) -> SocketAddr {
        self.tls
    }

    fn launch(settings: &[&str], certificates: Option<&Certificates>) -> Self {
        let start = || Self::make(settings, certificates);
        Server::start(start, |redis| redis.server.up())
    }

    fn make(settings: &[&str], certificates: Option<&Certificates>) -> Self {
        let program = program::find("redis-server", "redis-server");
        let (port, tls) = (Port::reserve(), Port::reserve());
        let (address, tls_address) = (port.address(), tls.address());
        let mut arguments = words(&format!(
            "--bind 127.0.0.1 --port {} --daemonize no --protected-mode no --loglevel notice \
             --appendonly yes --appendfsync always --repl-diskless-sync-delay 0",
            port.number()
        ));
        arguments.extend(["--save".to_owned(), String::new()]);
        if let Some(made) = certificates {
            arguments.extend(words(&format!("--tls-port {} --tls-auth-clients no", tls.number())));
            let files = [("cert", made.certificate()), ("key", made.key()), ("ca-cert", made.authority())];
            for (option, path) in files {
                arguments.extend([format!("--tls-{option}-file"), path.display().to_string()]);
            }
        }
        arguments.extend(settings.iter().map(ToString::to_string));
        let command = move || -> Command {
            let mut command = program::mortal(None, &program);
            command.args(&arguments);
            command
        };
        let ready = move || probe::redis(address);
        let server = Server::new("redis", vec![port, tls], folder("redis"), command, ready);
        Self { server, tls: tls_address }
    }
}

impl Deref for Redis {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
