//! One PostgreSQL, which syncs every commit before it answers; user and database `postgres`. Supports any
//! server settings and login rules, TLS, streaming standbys and promotions. Also `PgBouncer`, a pooler in
//! front of it.

use std::fs::{self, Permissions};
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::Certificates;
use crate::port::Port;
use crate::process::{User, find, missing, mortal, root, run};
use crate::server::{Server, folder, probe_postgres};
use crate::time::holds_within;

const PACKAGE: &str = "postgresql";
/// Time limit for a standby to catch up, and for a setting to take effect.
const FOLLOWS_WITHIN: Duration = Duration::from_mins(1);

/// A PostgreSQL server.
#[derive(Debug)]
pub struct Postgres {
    server: Server,
    /// The settings of its command line, which its standbys get too: some settings must be equal.
    settings: Vec<String>,
}

impl Postgres {
    /// Starts a server on which the user `postgres` needs no password.
    ///
    /// # Panics
    ///
    /// If PostgreSQL is not installed, or with its log if it does not come up.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with more settings: `["max_connections=5"]`.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    pub fn with(settings: &[&str]) -> Self {
        Server::start(|| Self::make(settings, None), |it| it.server.up())
    }

    /// Starts a server that accepts TLS too.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    pub fn with_tls(certificates: &Certificates, settings: &[&str]) -> Self {
        Server::start(|| Self::make(settings, Some(certificates)), |it| it.server.up())
    }

    /// Starts a read-only hot standby of a running server.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start), and if the copy cannot be made.
    pub fn standby_of(primary: &Self) -> Self {
        Self::standby_named(primary, "standby")
    }

    /// Starts a hot standby with a name, and waits until it streams.
    ///
    /// It is synchronous if `synchronous_standby_names` of the primary has its name. Set that with
    /// [`with`](Self::with) or [`set`](Self::set). It takes over the other settings of the primary's command
    /// line.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use snowmint_test_servers::Postgres;
    ///
    /// let primary = Postgres::with(&["synchronous_standby_names=FIRST 1 (s1)"]);
    /// let standby = Postgres::standby_named(&primary, "s1");
    /// standby.kill9(); // from here on, each commit on the primary waits
    /// standby.restart();
    /// primary.kill9();
    /// standby.promote();
    /// primary.restart(); // the old primary as it was: two servers take writes
    /// ```
    ///
    /// # Panics
    ///
    /// As for [`standby_of`](Self::standby_of), and if it does not stream within a minute.
    pub fn standby_named(primary: &Self, name: &str) -> Self {
        let make = || {
            let (user, folder) = (user(), owned_folder());
            copy(primary, name, user.as_ref(), folder.path());
            let other = |it: &&String| !it.starts_with("synchronous_standby_names") && !it.starts_with("ssl");
            Self::from_data(folder, user, primary.settings.iter().filter(other).cloned().collect())
        };
        let standby = Server::start(make, |it| it.server.up());
        primary.await_standby(name);
        standby
    }

    /// Waits until a standby of this name streams from this server.
    ///
    /// # Panics
    ///
    /// If that takes more than a minute.
    pub fn await_standby(&self, name: &str) {
        // Before its first answer, a standby does not count as synchronous.
        let streams = format!(
            "SELECT count(*) FROM pg_stat_replication \
             WHERE application_name = '{name}' AND state = 'streaming' AND flush_lsn IS NOT NULL"
        );
        let found = holds_within(FOLLOWS_WITHIN, || self.sql(&streams) == "1");
        assert!(found, "no standby {name} streams from {self:?}: {}", self.log());
    }

    /// Promotes a standby: it ends its recovery, starts a new timeline and accepts writes.
    ///
    /// # Panics
    ///
    /// If the server is not a standby, or is not a primary within a minute.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote()"), "t", "{}", self.log());
    }

    /// Changes a setting while the server runs, and returns when sessions see it. It survives a restart, but
    /// a setting of the same name in [`with`](Self::with) has priority.
    ///
    /// # Panics
    ///
    /// If the server refuses the setting.
    pub fn set(&self, name: &str, value: &str) {
        self.sql(&format!("ALTER SYSTEM SET {name} = {}", quoted(value)));
        self.sql("SELECT pg_reload_conf()");
        let shown = format!("SELECT current_setting('{name}') = {}", quoted(value));
        assert!(holds_within(FOLLOWS_WITHIN, || self.sql(&shown) == "t"), "{name} is not {value}");
        // The checkpointer decides whether commits wait for standbys, and nothing shows when it has read the
        // setting.
        std::thread::sleep(Duration::from_millis(200));
    }

    /// Stops the server and ends its sessions (`pg_ctl stop -m fast`); streaming standbys get everything that
    /// it wrote.
    ///
    /// Standbys have to be up or killed: the server waits for a paused one. Returns whether it stopped within
    /// 5 s; otherwise it may still stop later.
    ///
    /// # Panics
    ///
    /// If `pg_ctl` cannot be run.
    pub fn stop_fast(&self) -> bool {
        let mut stop = mortal(user().as_ref(), program("pg_ctl"));
        let stop = stop.current_dir(self.folder()).args(["stop", "-D", "data", "-m", "fast", "-t", "5"]);
        stop.output().unwrap().status.success()
    }

    /// As [`stop_fast`](Self::stop_fast), and starts it again.
    ///
    /// # Panics
    ///
    /// If it does not stop, or with its log if it does not come up.
    pub fn restart_fast(&self) {
        assert!(self.stop_fast(), "{self:?} does not stop: {}", self.log());
        self.restart();
    }

    /// Deletes the data of the server and makes it a named standby on the same port; returns when it streams.
    ///
    /// # Panics
    ///
    /// As for [`standby_named`](Self::standby_named).
    pub fn rejoin(&self, primary: &Self, name: &str) {
        self.kill9();
        fs::remove_dir_all(self.folder().join("data")).unwrap();
        copy(primary, name, user().as_ref(), self.folder());
        self.restart();
        primary.await_standby(name);
    }

    /// Makes a base backup (`pg_basebackup`) in a folder that does not exist yet.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn back_up(&self, folder: &Path) {
        let from = format!("host=127.0.0.1 port={} user=postgres", self.port());
        let mut copy = mortal(None, program("pg_basebackup"));
        run(copy.args(["--no-sync", "--checkpoint=fast", "--dbname", &from, "--pgdata"]).arg(folder));
    }

    /// Sets who may log in, as lines of `pg_hba.conf`, from the next connection on.
    ///
    /// # Panics
    ///
    /// If the server refuses.
    pub fn set_logins(&self, rules: &str) {
        // Tests keep access through local connections.
        fs::write(self.folder().join("data/pg_hba.conf"), format!("local all all trust\n{rules}\n")).unwrap();
        self.sql("SELECT pg_reload_conf()");
        // Reloading is asynchronous, so wait a moment.
        std::thread::sleep(Duration::from_millis(200));
    }

    /// Runs SQL by `psql`, as the user `postgres` over a local socket, and returns the rows as text.
    ///
    /// # Panics
    ///
    /// With the error of the server.
    pub fn sql(&self, sql: &str) -> String {
        self.sql_in("postgres", sql)
    }

    /// Runs SQL in another database, as [`sql`](Self::sql) does.
    ///
    /// # Panics
    ///
    /// With the error of the server.
    pub fn sql_in(&self, database: &str, sql: &str) -> String {
        let mut psql = Command::new(find("psql", PACKAGE));
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database, "-c", sql]);
        psql.arg("-h").arg(self.folder()).arg("-p").arg(self.port().to_string());
        let output = run(psql.env_remove("PGPASSWORD"));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    fn make(settings: &[&str], certificates: Option<&Certificates>) -> Self {
        let (user, folder) = (user(), owned_folder());
        let mut initdb = mortal(user.as_ref(), program("initdb"));
        initdb.current_dir(folder.path()).args(["-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8"]);
        // Not synced here: no test cuts the power.
        run(initdb.args(["--locale=C", "--no-sync", "--no-instructions"]));
        let mut settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        if let Some(made) = certificates {
            settings.extend(tls_settings(made, folder.path(), user.as_ref()));
        }
        Self::from_data(folder, user, settings)
    }

    fn from_data(folder: TempDir, user: Option<User>, settings: Vec<String>) -> Self {
        let (port, program, shared) = (Port::reserve(), program("postgres"), settings.clone());
        let (address, number, path) = (port.address(), port.number(), folder.path().to_owned());
        let command = move || {
            let mut command = mortal(user.as_ref(), &program);
            command.args(["-D", "data", "-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=16MB"]);
            command.arg("-c").arg(format!("port={number}"));
            command.arg("-c").arg(format!("unix_socket_directories={}", path.display()));
            // A later setting replaces an earlier one.
            for setting in &settings {
                command.arg("-c").arg(setting);
            }
            command
        };
        let ready = move || probe_postgres(address);
        Self { server: Server::new("postgres", vec![port], folder, command, ready), settings: shared }
    }
}

impl Deref for Postgres {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// Copies the data of a server, with the settings of a standby that follows it under a name.
fn copy(primary: &Postgres, name: &str, user: Option<&User>, folder: &Path) {
    let from = format!("host=127.0.0.1 port={} user=postgres application_name={name}", primary.port());
    let mut copy = mortal(user, program("pg_basebackup"));
    copy.current_dir(folder);
    copy.args(["--write-recovery-conf", "--no-sync", "--checkpoint=fast", "--pgdata=data", "--dbname"]);
    run(copy.arg(from));
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

/// PostgreSQL refuses to run as root.
fn user() -> Option<User> {
    User::unless_own("postgres", PACKAGE)
}

fn owned_folder() -> TempDir {
    let folder = folder("postgres");
    User::own(user().as_ref(), folder.path());
    folder
}

/// The programs of the newest installed version; Debian does not put them in the path.
fn program(name: &str) -> PathBuf {
    let all = root().unwrap_or(Path::new("/")).join("usr/lib/postgresql");
    let versions = fs::read_dir(&all).into_iter().flatten().flatten();
    let newest = versions.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok()).max();
    let path = newest.map(|it| all.join(format!("{it}/bin/{name}")));
    path.filter(|it| it.is_file()).unwrap_or_else(|| panic!("{}", missing(name, PACKAGE)))
}

/// Returns the settings for TLS. The server rejects a key that others can read.
fn tls_settings(made: &Certificates, folder: &Path, user: Option<&User>) -> [String; 3] {
    let key = folder.join("server.key");
    fs::copy(made.key(), &key).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    User::own(user, &key);
    let setting = |name: &str, path: &Path| format!("ssl_{name}_file={}", path.display());
    ["ssl=on".to_owned(), setting("cert", made.certificate()), setting("key", &key)]
}

const POOLER: &str = "pgbouncer";

/// A connection pooler.
#[derive(Debug)]
pub struct PgBouncer {
    server: Server,
}

impl PgBouncer {
    /// Starts a pooler in the mode `session`, `transaction` or `statement`, with a limit of sessions on the
    /// server. It adds the address of its client to the names of sessions.
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
        let (program, port, folder) = (find("pgbouncer", POOLER), Port::reserve(), folder("pgbouncer"));
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
            server: Server::new("pgbouncer", vec![port], folder, command, move || probe_postgres(address)),
        }
    }
}

impl Deref for PgBouncer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}
