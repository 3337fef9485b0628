//! A pooler (`PgBouncer`) in front of a PostgreSQL, for the user `postgres`, in any of its modes.

use std::fs;
use std::ops::Deref;

use crate::port::Port;
use crate::postgres::Postgres;
use crate::probe;
use crate::program::{User, find, mortal};
use crate::server::{Server, folder};

const PACKAGE: &str = "pgbouncer";

/// A connection pooler.
#[derive(Debug)]
pub struct PgBouncer {
    server: Server,
}

impl PgBouncer {
    /// Starts a pooler in a mode, `session`, `transaction` or `statement`, with so many sessions on the server at most. It adds
    /// the address of its client to the names of sessions.
    ///
    /// # Panics
    ///
    /// If `PgBouncer` is not installed, or with its log if it does not come up.
    pub fn start(target: &Postgres, mode: &str, sessions: u32) -> Self {
        Server::start(|| Self::make(target, mode, sessions), |it| it.server.up())
    }

    fn make(target: &Postgres, mode: &str, sessions: u32) -> Self {
        // It refuses to run as root, and Debian runs it as this user.
        let user = User::unless_own("postgres", "postgresql");
        let (program, port, folder) = (find("pgbouncer", PACKAGE), Port::reserve(), folder("pgbouncer"));
        User::own(user.as_ref(), folder.path());
        fs::write(folder.path().join("users"), "\"postgres\" \"\"\n").unwrap();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n\
             auth_type = trust\nauth_file = users\nunix_socket_dir =\npool_mode = {mode}\ndefault_pool_size = {sessions}\n\
             application_name_add_host = 1\n",
            target.port(),
            port.number()
        );
        fs::write(folder.path().join("settings.ini"), settings).unwrap();
        let address = port.address();
        let command = move || {
            let mut command = mortal(user.as_ref(), &program);
            command.arg("settings.ini");
            command
        };
        Self {
            server: Server::new("pgbouncer", vec![port], folder, command, move || probe::postgres(address)),
        }
    }
}

impl Deref for PgBouncer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}
