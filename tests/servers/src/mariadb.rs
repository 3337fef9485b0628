//! MariaDB: one server, a primary with its replica, and a Galera cluster. Every commit is synced before it is
//! acknowledged. With `SNOWMINT_TEST_SERVERS=mysql`, MySQL takes its place, but for Galera: names of settings
//! and SQL are translated.

use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use crate::Certificates;
use crate::hanging_disk::{self, Disk};
use crate::port::Port;
use crate::process::{User, find, find_file, find_server, is_replaced_by, mortal, root, run};
use crate::server::{Server, folder, probe_mariadb};
use crate::time::holds_within;

const PACKAGE: &str = "mariadb-server";

/// Returns whether MySQL takes the place of MariaDB.
pub fn is_mysql() -> bool {
    is_replaced_by("mysql")
}

/// Names and SQL of MariaDB, and what MySQL has instead.
const MYSQL_NAMES: [(&str, &str); 19] = [
    ("SET GLOBAL gtid_slave_pos = ''; ", ""),
    ("STOP SLAVE; RESET SLAVE ALL", "STOP REPLICA; RESET REPLICA ALL"),
    ("START SLAVE", "START REPLICA"),
    ("STOP SLAVE", "STOP REPLICA"),
    ("RESET MASTER", "RESET BINARY LOGS AND GTIDS"),
    ("MASTER_GTID_WAIT", "WAIT_FOR_EXECUTED_GTID_SET"),
    ("@@gtid_binlog_pos", "@@gtid_executed"),
    ("@@gtid_slave_pos", "@@gtid_executed"),
    ("@@gtid_current_pos", "@@gtid_executed"),
    ("information_schema.global_status", "performance_schema.global_status"),
    ("Slave has read all relay log", "Replica has read all relay log"),
    ("wait_no_slave", "wait_no_replica"),
    ("wait-no-slave", "wait-no-replica"),
    ("rpl_semi_sync_master", "rpl_semi_sync_source"),
    ("rpl-semi-sync-master", "rpl-semi-sync-source"),
    ("rpl-semi-sync-slave", "rpl-semi-sync-replica"),
    ("log-slave-updates", "log-replica-updates"),
    ("slave-net-timeout", "replica-net-timeout"),
    ("gtid-strict-mode=1", "gtid-mode=ON"),
];

/// Returns a setting or SQL as the server in use has it.
fn translated(text: &str) -> String {
    if !is_mysql() {
        return text.to_owned();
    }
    MYSQL_NAMES.iter().fold(text.to_owned(), |text, (name, other)| text.replace(name, other))
}

/// A MariaDB server.
#[derive(Debug)]
pub struct MariaDb {
    server: Server,
}

impl MariaDb {
    /// Starts a server with an empty database `test`, on which the user `root` needs no password.
    ///
    /// # Panics
    ///
    /// If MariaDB is not installed, or with its log if it does not come up.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with more settings: `["--max-connections=5"]`. After `--read-only` only `root` can
    /// write.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    pub fn with(settings: &[&str]) -> Self {
        Self::launch(settings, None)
    }

    /// Starts a server whose disk can [hang](Self::hang_disk).
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start), and if there is no C compiler.
    pub fn with_disk_that_hangs(settings: &[&str]) -> Self {
        // The server writes statistics by itself, under a lock that every statement takes when it opens a
        // table.
        let settings: Vec<&str> = settings.iter().copied().chain(["--innodb-stats-persistent=OFF"]).collect();
        let server = Self::run(&settings, None, Disk::MayHang);
        server.create_database();
        server
    }

    /// From now on, the writes and syncs of the server's logs wait. Statements that only read are answered.
    pub fn hang_disk(&self) {
        hanging_disk::hang(self.folder());
    }

    /// As [`hang_disk`](Self::hang_disk), but only syncs wait: a crash of the server keeps what was written.
    pub fn hang_syncs(&self) {
        hanging_disk::hang_syncs(self.folder());
    }

    /// Ends [`hang_disk`](Self::hang_disk) and [`hang_syncs`](Self::hang_syncs).
    pub fn free_disk(&self) {
        hanging_disk::free(self.folder());
    }

    /// Starts a server that accepts TLS too.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    pub fn with_tls(certificates: &Certificates, settings: &[&str]) -> Self {
        Self::launch(settings, Some(certificates))
    }

    /// Runs SQL with the client `mariadb`, as `root`, and returns the rows as text, with tabs between fields.
    ///
    /// # Panics
    ///
    /// With the error of the server.
    pub fn sql(&self, sql: &str) -> String {
        let output = run(&mut self.client(&translated(sql)));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// Ends all sessions of a user.
    ///
    /// # Panics
    ///
    /// If the server is down.
    pub fn end_sessions(&self, user: &str) {
        for id in
            self.sql(&format!("SELECT id FROM information_schema.processlist WHERE user = '{user}'")).lines()
        {
            // An error means that the session has ended meanwhile.
            self.client(&format!("KILL {id}")).output().unwrap();
        }
    }

    /// The command of the client that runs SQL.
    pub(crate) fn client(&self, sql: &str) -> Command {
        let mut client = Command::new(find("mariadb", "mariadb-client"));
        client.args(["--no-defaults", "--batch", "--skip-column-names", "--user=root", "--execute", sql]);
        client.arg(format!("--socket={}", self.folder().join("socket").display()));
        if is_mysql() {
            // Its sets of GTIDs have line ends.
            client.arg("--raw");
        }
        client
    }

    fn launch(settings: &[&str], certificates: Option<&Certificates>) -> Self {
        let server = Self::run(settings, certificates, Disk::Sound);
        server.create_database();
        server
    }

    fn create_database(&self) {
        if is_mysql() {
            // MariaDB has this user from the start. Empty passwords need no TLS.
            self.sql("SET sql_log_bin = 0; CREATE USER root@'127.0.0.1'; GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION");
        }
        self.sql("CREATE DATABASE IF NOT EXISTS test");
    }

    /// Starts a member of a Galera cluster, which accepts statements only when it has caught up.
    pub(crate) fn member(settings: &[&str]) -> Self {
        let server = Self::run(settings, None, Disk::Sound);
        server.wait_until(
            "being a member",
            "SHOW GLOBAL STATUS WHERE variable_name = 'wsrep_ready' AND value = 'ON'",
        );
        server.sql("CREATE DATABASE IF NOT EXISTS test");
        server
    }

    fn run(settings: &[&str], certificates: Option<&Certificates>, disk: Disk) -> Self {
        Server::start(|| Self::make(settings, certificates, disk), |it| it.server.up())
    }

    /// Waits until a query returns 1, such as `SELECT COUNT(*) FROM ...`, or a `SHOW ... WHERE ...` returns
    /// anything.
    ///
    /// # Panics
    ///
    /// If that takes more than a minute; `what` says what the test waits for.
    pub fn wait_until(&self, what: &str, sql: &str) {
        let shows = sql.starts_with("SHOW ");
        let holds = holds_within(Duration::from_mins(1), || match &*self.sql(sql) {
            "1" => true,
            rows => shows && !rows.is_empty(),
        });
        assert!(holds, "{what} on {:?}: {sql} gives {}", self.server, self.sql(sql));
    }

    fn make(settings: &[&str], certificates: Option<&Certificates>, disk: Disk) -> Self {
        let (name, package) =
            if is_mysql() { ("mysqld", "mysql-server-core") } else { ("mariadbd", PACKAGE) };
        let program = find_server(name, package);
        let (port, folder, user) = (Port::reserve(), folder("mariadb"), User::unless_own("mysql", PACKAGE));
        User::own(user.as_ref(), folder.path());
        let path = folder.path().display().to_string();
        install(folder.path(), user.as_ref(), &program, settings);

        let mut arguments = vec![format!("--datadir={path}/data"), format!("--socket={path}/socket")];
        arguments.extend([format!("--pid-file={path}/pid"), format!("--tmpdir={path}")]);
        arguments.extend([format!("--port={}", port.number()), "--bind-address=127.0.0.1".to_owned()]);
        if let Some(made) = certificates {
            // A folder that the user of the server can read.
            let key = folder.path().join("server.key");
            fs::copy(made.key(), &key).unwrap();
            User::own(user.as_ref(), &key);
            arguments.push(format!("--ssl-key={}", key.display()));
            arguments.push(format!("--ssl-cert={}", made.certificate().display()));
            arguments.push(format!("--ssl-ca={}", made.authority().display()));
        }
        arguments.extend(elsewhere());
        arguments.extend(settings.iter().map(|setting| translated(setting)));
        if is_mysql() {
            arguments.push("--enforce-gtid-consistency=ON".to_owned());
        }
        let address = port.address();
        let hangs = (disk == Disk::MayHang).then(|| hanging_disk::variables(folder.path()));
        let command = move || {
            let mut command = match &hangs {
                // A command with another user resets the environment, so the server gets it from `env`.
                Some(variables) => {
                    let mut command = mortal(user.as_ref(), find_server("env", "coreutils"));
                    command.args(variables).arg(&program);
                    command
                }
                None => mortal(user.as_ref(), &program),
            };
            command.args(["--no-defaults", "--innodb-buffer-pool-size=16M"]);
            command.args(if is_mysql() { MYSQL_SETTINGS } else { MARIADB_SETTINGS });
            command.args(["--innodb-flush-log-at-trx-commit=1", "--skip-log-bin", "--skip-name-resolve"]);
            command.args(["--performance-schema=OFF", "--sync-binlog=1"]).args(&arguments);
            command
        };
        Self { server: Server::new("mariadb", vec![port], folder, command, move || probe_mariadb(address)) }
    }
}

const MARIADB_SETTINGS: &[&str] = &["--innodb-log-file-size=8M"];
/// Semi-synchronous replication is a plugin there, which does nothing until it is enabled.
const MYSQL_SETTINGS: &[&str] = &[
    "--innodb-redo-log-capacity=8M",
    "--mysqlx=OFF",
    "--secure-file-priv=",
    "--plugin-load-add=semisync_source.so",
    "--plugin-load-add=semisync_replica.so",
];

/// Returns the settings of a server that does not lie where it was built for.
fn elsewhere() -> Vec<String> {
    match root().filter(|_| !is_mysql()) {
        Some(root) => {
            let base = root.join("mdb/usr");
            let plugins = base.join("lib/mysql/plugin");
            vec![format!("--basedir={}", base.display()), format!("--plugin-dir={}", plugins.display())]
        }
        None => Vec::new(),
    }
}

/// Makes the data folder of a server. Not synced, since syncs take most of the time: no test cuts the power.
fn install(folder: &Path, user: Option<&User>, program: &Path, settings: &[&str]) {
    let data = format!("--datadir={}/data", folder.display());
    let mut install = if is_mysql() {
        let mut install = mortal(user, program);
        install.args([
            "--no-defaults",
            "--initialize-insecure",
            "--innodb-flush-method=nosync",
            "--skip-log-bin",
        ]);
        install.args(["--innodb-redo-log-capacity=8M", "--performance-schema=OFF", "--secure-file-priv="]);
        // Cannot change afterwards.
        install.args(settings.iter().filter(|it| it.starts_with("--lower-case-table-names=")));
        install
    } else {
        let mut install = mortal(None, find_server("mariadb-install-db", PACKAGE));
        install.args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal"]);
        install.args(["--innodb-log-file-size=8M", "--debug-no-sync"]);
        // The program switches to that user itself.
        install.args(user.map(|_| "--user=mysql"));
        install.args(elsewhere().first());
        install
    };
    // The server's user may have no access to the temporary folder of the user who runs the test.
    run(install.current_dir(folder).env("TMPDIR", folder).arg(data));
}

impl Deref for MariaDb {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// A primary and its replica, with the settings that docs/stores.md requires. Both start read-only, so that a
/// restarted server is not a second primary.
#[derive(Debug)]
pub struct MariaDbPair {
    servers: [MariaDb; 2],
    primary: AtomicUsize,
    /// The next server id: an emptied server needs a new one, or it would skip its own earlier writes.
    next_id: AtomicU32,
}

impl MariaDbPair {
    /// Starts both servers with the database `test`, and a user `node` without a password that cannot write
    /// to a read-only server. Returns when the replica confirms commits.
    ///
    /// # Panics
    ///
    /// If MariaDB is not installed, or with its log if it does not come up.
    pub fn start() -> Self {
        let servers = [1, 2].map(|id| {
            let id = format!("--server-id={id}");
            let server = MariaDb::with(&[
                &id,
                "--log-bin=binlog",
                "--binlog-format=MIXED",
                "--sync-binlog=1",
                "--log-slave-updates=1",
                "--gtid-strict-mode=1",
                "--read-only=1",
                "--rpl-semi-sync-slave-enabled=1",
                // Only on the primary: `confirm` enables it there.
                "--rpl-semi-sync-master-enabled=0",
                "--rpl-semi-sync-master-timeout=4294967295",
                "--rpl-semi-sync-master-wait-no-slave=1",
                "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
                "--slave-net-timeout=5",
            ]);
            server.sql(
                "CREATE USER node@'%'; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON test.* TO node@'%'",
            );
            server.sql("RESET MASTER");
            server
        });
        let pair = Self { servers, primary: AtomicUsize::new(0), next_id: AtomicU32::new(3) };
        pair.follow(pair.replica(), pair.primary());
        pair.confirm();
        pair.primary().sql("SET GLOBAL read_only = 0");
        pair
    }

    /// The server that accepts writes, or was the last to do so.
    pub fn primary(&self) -> &MariaDb {
        &self.servers[self.primary.load(Ordering::SeqCst)]
    }

    /// The other server.
    pub fn replica(&self) -> &MariaDb {
        &self.servers[1 - self.primary.load(Ordering::SeqCst)]
    }

    /// A URL of both servers, always in the same order: `mysql://root@HOST,HOST/test`.
    pub fn url(&self, user: &str) -> String {
        format!("mysql://{user}@{},{}/test", self.servers[0].address(), self.servers[1].address())
    }

    /// Changes the roles as an operator would: the primary becomes read-only, the replica catches up and is
    /// promoted.
    ///
    /// # Panics
    ///
    /// If a server is down, or the replica does not catch up.
    pub fn switch_over(&self) {
        let (old, new) = (self.primary(), self.replica());
        old.sql("SET GLOBAL read_only = 1");
        let position = old.sql("SELECT @@gtid_binlog_pos");
        new.wait_until("catching up", &format!("SELECT MASTER_GTID_WAIT('{position}', 60) = 0"));
        new.sql("STOP SLAVE; RESET SLAVE ALL");
        old.sql("SET GLOBAL rpl_semi_sync_master_enabled = 0");
        self.follow(old, new);
        self.swap();
        self.confirm();
        new.sql("SET GLOBAL read_only = 0");
    }

    /// Stops the replica from receiving and confirming, so that commits on the primary wait. Returns when the
    /// replica has applied everything that it confirmed.
    ///
    /// Killing a MariaDB replica instead would discard what it has confirmed and not applied, and it would
    /// fetch that again.
    ///
    /// # Panics
    ///
    /// If the replica is down.
    pub fn cut_replica(&self) {
        let replica = self.replica();
        replica.sql("STOP SLAVE IO_THREAD");
        replica.wait_until(
            "applying what was received",
            "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Slave has read all relay log%'",
        );
    }

    /// Ends the waits of all commits for the replica: the primary then shows rows that the replica lacks.
    ///
    /// # Panics
    ///
    /// If the primary is down.
    pub fn end_waits(&self) {
        if is_mysql() {
            // A wait there goes on after a KILL.
            let enable = "SET GLOBAL rpl_semi_sync_source_enabled = ";
            self.primary().sql(&format!("{enable} 0; {enable} 1"));
            return;
        }
        let waiting =
            "SELECT id FROM information_schema.processlist WHERE state LIKE 'Waiting for semi-sync ACK%'";
        for id in self.primary().sql(waiting).lines() {
            // An error means that the session has ended meanwhile.
            self.primary().client(&format!("KILL QUERY {id}")).output().unwrap();
        }
    }

    /// Kills the primary and promotes the replica, which first applies what it received. It then has no
    /// replica of its own.
    ///
    /// # Panics
    ///
    /// If the replica is down.
    pub fn fail_over(&self) {
        self.primary().kill9();
        self.promote_replica();
    }

    /// Promotes the replica and leaves the primary as it is: if that is running, both accept writes.
    ///
    /// # Panics
    ///
    /// If the replica is down.
    pub fn promote_replica(&self) {
        self.cut_replica();
        let new = self.replica();
        new.sql("STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0");
        self.swap();
    }

    /// Starts the other server again, deletes its data, and makes it a replica that confirms commits.
    ///
    /// # Panics
    ///
    /// If it does not come up.
    pub fn rejoin(&self) {
        let (new, old) = (self.primary(), self.replica());
        old.restart();
        let id = self.next_id.fetch_add(1, Ordering::SeqCst);
        old.sql(&format!(
            "SET GLOBAL rpl_semi_sync_master_enabled = 0; SET GLOBAL server_id = {id}; DROP DATABASE test; \
             RESET MASTER; SET GLOBAL gtid_slave_pos = ''; SET sql_log_bin = 0; CREATE DATABASE test; USE test"
        ));
        self.follow(old, new);
        self.confirm();
    }

    fn swap(&self) {
        self.primary.fetch_xor(1, Ordering::SeqCst);
    }

    #[expect(clippy::unused_self, reason = "both are of this pair")]
    fn follow(&self, replica: &MariaDb, primary: &MariaDb) {
        let port = primary.port();
        replica.sql(&if is_mysql() {
            format!(
                "CHANGE REPLICATION SOURCE TO source_host = '127.0.0.1', source_port = {port}, source_user = 'root', \
                 source_connect_retry = 1, source_auto_position = 1; START REPLICA"
            )
        } else {
            format!(
                "CHANGE MASTER TO master_host = '127.0.0.1', master_port = {port}, master_user = 'root', \
                 master_connect_retry = 1, master_use_gtid = current_pos; START SLAVE"
            )
        });
    }

    /// Waits until the replica has caught up, then makes commits on the primary wait for it.
    fn confirm(&self) {
        let (primary, replica) = (self.primary(), self.replica());
        let position = primary.sql("SELECT @@gtid_binlog_pos");
        // A former primary has it already, but not from another primary.
        let caught_up =
            format!("SELECT @@gtid_current_pos = '{position}' OR MASTER_GTID_WAIT('{position}', 1) = 0");
        replica.wait_until("catching up", &caught_up);
        primary.sql("SET GLOBAL rpl_semi_sync_master_enabled = 1");
        let confirms = "SELECT variable_value > 0 FROM information_schema.global_status \
            WHERE variable_name = 'rpl_semi_sync_master_clients'";
        // A replica states at the start of its session whether it will confirm, and the session may be older.
        replica.sql("STOP SLAVE IO_THREAD; START SLAVE IO_THREAD");
        primary.wait_until("a replica that confirms", confirms);
    }
}

/// Two members of a Galera cluster. If their connection is cut, the first continues and the second, which has
/// less weight, stops.
#[derive(Debug)]
pub struct GaleraPair {
    servers: [MariaDb; 2],
    /// The proxies between the members.
    _ports: [[Port; 3]; 2],
}

impl GaleraPair {
    /// Starts both servers, with more settings; returns when both are in the cluster.
    ///
    /// # Panics
    ///
    /// If MariaDB or Galera is not installed, or with the log of a server that does not come up.
    pub fn start(settings: &[&str]) -> Self {
        let library = find_file("/usr/lib/galera/libgalera_smm.so", "galera-4");
        find("rsync", "rsync");
        let ports = [0, 1].map(|_| [0, 1, 2].map(|_| Port::reserve()));
        let member = |at: usize| {
            let [group, transfer, whole] = &ports[at];
            let (first, alone) =
                if at == 0 { (String::new(), 2) } else { (ports[0][0].address().to_string(), 1) };
            let mut own = vec![
                "--wsrep-on=ON".to_owned(),
                format!("--wsrep-provider={}", library.display()),
                format!("--wsrep-cluster-address=gcomm://{first}"),
                format!("--wsrep-node-address={}", group.address()),
                format!("--wsrep-sst-receive-address={}", whole.address()),
                "--wsrep-sst-method=rsync".to_owned(),
                "--binlog-format=ROW".to_owned(),
                "--innodb-autoinc-lock-mode=2".to_owned(),
                format!(
                    "--wsrep-provider-options=gmcast.listen_addr=tcp://{};ist.recv_addr={};pc.weight={alone};gcache.size=8M",
                    group.address(),
                    transfer.address()
                ),
            ];
            if at == 0 {
                own.push("--wsrep-new-cluster".to_owned());
            }
            own.extend(settings.iter().map(ToString::to_string));
            MariaDb::member(&own.iter().map(|it| &**it).collect::<Vec<_>>())
        };
        let servers = [0, 1].map(member);
        let pair = Self { servers, _ports: ports };
        for server in &pair.servers {
            server.wait_until("being two", &status("wsrep_cluster_size", "2"));
        }
        pair
    }

    /// Returns the member that continues alone after a cut.
    pub const fn first(&self) -> &MariaDb {
        &self.servers[0]
    }

    /// Returns the other member.
    pub const fn second(&self) -> &MariaDb {
        &self.servers[1]
    }

    /// A URL of both servers: `mysql://root@HOST,HOST/test`.
    pub fn url(&self) -> String {
        format!("mysql://root@{},{}/test", self.first().address(), self.second().address())
    }

    /// Cuts the connection between the members; returns when the first is a cluster of one, and the second
    /// belongs to none.
    ///
    /// # Panics
    ///
    /// If a server is down.
    pub fn part(&self) {
        self.second().sql("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'");
        self.first().wait_until("being alone", &status("wsrep_cluster_size", "1"));
        self.second().wait_until("being in no cluster", &status("wsrep_cluster_status", "non-Primary"));
    }

    /// Bootstraps a second cluster from the cut-off member, like an operator who believes that the first is
    /// lost.
    ///
    /// # Panics
    ///
    /// If the server is down.
    pub fn bootstrap_second(&self) {
        self.second().sql("SET GLOBAL wsrep_provider_options = 'pc.bootstrap=YES'");
        self.second().wait_until("being a cluster", &status("wsrep_ready", "ON"));
    }
}

/// Returns whether a Galera status has a value. Not read from a table: a server outside a cluster shows none.
fn status(name: &str, value: &str) -> String {
    format!("SHOW GLOBAL STATUS WHERE variable_name = '{name}' AND value = '{value}'")
}
