//! One MariaDB, which syncs every commit before it answers; user `root` without a password, database `test`.
//! Any settings of the server, and TLS.

use std::fs;
use std::ops::Deref;
use std::process::Command;
use std::time::Duration;

use crate::port::Port;
use crate::program::{User, find, mortal, run};
use crate::server::{Server, folder};
use crate::time::eventually;
use crate::{Certificates, probe};

const PACKAGE: &str = "mariadb-server";

/// A MariaDB server.
#[derive(Debug)]
pub struct MariaDb {
    server: Server,
}

impl MariaDb {
    /// Starts a server that lets the user `root` in without a password, with an empty database `test`.
    ///
    /// # Panics
    ///
    /// If MariaDB is not installed, or with its log if it does not come up.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with more settings: `["--max-connections=5"]`. After `--read-only` only `root` can write.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    pub fn with(settings: &[&str]) -> Self {
        Self::launch(settings, None)
    }

    /// Starts a server that takes TLS too.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    pub fn with_tls(certificates: &Certificates, settings: &[&str]) -> Self {
        Self::launch(settings, Some(certificates))
    }

    /// Runs SQL by the client `mariadb`, as `root`, and returns the rows as text, fields parted by tabs.
    ///
    /// # Panics
    ///
    /// With the error of the server.
    pub fn sql(&self, sql: &str) -> String {
        let output = run(&mut self.client(sql));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// The client, about to run SQL.
    pub(crate) fn client(&self, sql: &str) -> Command {
        let mut client = Command::new(find("mariadb", "mariadb-client"));
        client.args(["--no-defaults", "--batch", "--skip-column-names", "--user=root", "--execute", sql]);
        client.arg(format!("--socket={}", self.folder().join("socket").display()));
        client
    }

    fn launch(settings: &[&str], certificates: Option<&Certificates>) -> Self {
        let server = Self::run(settings, certificates);
        server.sql("CREATE DATABASE IF NOT EXISTS test");
        server
    }

    /// Starts a member of a Galera cluster, which takes statements only when it has what the others have.
    pub(crate) fn member(settings: &[&str]) -> Self {
        let server = Self::run(settings, None);
        server.wait_until(
            "being a member",
            "SHOW GLOBAL STATUS WHERE variable_name = 'wsrep_ready' AND value = 'ON'",
        );
        server.sql("CREATE DATABASE IF NOT EXISTS test");
        server
    }

    fn run(settings: &[&str], certificates: Option<&Certificates>) -> Self {
        Server::start(|| Self::make(settings, certificates), |it| it.server.up())
    }

    /// Waits until a query gives 1, as in `SELECT COUNT(*) FROM ...`, or a `SHOW ... WHERE ...` anything.
    ///
    /// # Panics
    ///
    /// If it does not within a minute; `what` says what was waited for.
    pub fn wait_until(&self, what: &str, sql: &str) {
        let shows = sql.starts_with("SHOW ");
        let holds = eventually(Duration::from_mins(1), || match &*self.sql(sql) {
            "1" => true,
            rows => shows && !rows.is_empty(),
        });
        assert!(holds, "{what} on {:?}: {sql} gives {}", self.server, self.sql(sql));
    }

    fn make(settings: &[&str], certificates: Option<&Certificates>) -> Self {
        let program = find("mariadbd", PACKAGE);
        let (port, folder, user) = (Port::reserve(), folder("mariadb"), User::unless_own("mysql", PACKAGE));
        User::own(user.as_ref(), folder.path());
        let path = folder.path().display().to_string();
        let mut install = mortal(None, find("mariadb-install-db", PACKAGE));
        install.current_dir(folder.path()).args(["--no-defaults", "--skip-test-db"]);
        install.args(["--auth-root-authentication-method=normal", "--innodb-log-file-size=8M"]);
        install.arg(format!("--datadir={path}/data"));
        // The folder for temporary files of whoever runs the test may be closed to the user of the server.
        install.env("TMPDIR", folder.path());
        // The program changes to that user itself.
        if user.is_some() {
            install.arg("--user=mysql");
        }
        run(&mut install);

        let mut arguments = vec![format!("--datadir={path}/data"), format!("--socket={path}/socket")];
        arguments.extend([format!("--pid-file={path}/pid"), format!("--tmpdir={path}")]);
        arguments.extend([format!("--port={}", port.number()), "--bind-address=127.0.0.1".to_owned()]);
        if let Some(made) = certificates {
            // Where the server, under its own user, can read it.
            let key = folder.path().join("server.key");
            fs::copy(made.key(), &key).unwrap();
            User::own(user.as_ref(), &key);
            arguments.push(format!("--ssl-key={}", key.display()));
            arguments.push(format!("--ssl-cert={}", made.certificate().display()));
            arguments.push(format!("--ssl-ca={}", made.authority().display()));
        }
        arguments.extend(settings.iter().map(ToString::to_string));
        let address = port.address();
        let command = move || {
            let mut command = mortal(user.as_ref(), &program);
            command.args(["--no-defaults", "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M"]);
            command.args(["--innodb-flush-log-at-trx-commit=1", "--skip-log-bin", "--skip-name-resolve"]);
            command.args(["--performance-schema=OFF", "--sync-binlog=1"]).args(&arguments);
            command
        };
        Self { server: Server::new("mariadb", vec![port], folder, command, move || probe::mariadb(address)) }
    }
}

impl Deref for MariaDb {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}
