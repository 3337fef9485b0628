//! Two MariaDB servers, a primary and a replica that confirms every commit before it is acknowledged (semi-synchronous
//! replication, `AFTER_SYNC`, without a timeout), and the ways in which they change roles.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::MariaDb;

/// A primary and its replica, with the settings that docs/stores.md requires. Both servers start as read-only, so that one that comes back is no second primary.
#[derive(Debug)]
pub struct MariaDbPair {
    servers: [MariaDb; 2],
    primary: AtomicUsize,
    /// The next id of a server: one that is emptied needs another, or it would leave out what it once wrote.
    next_id: AtomicU32,
}

impl MariaDbPair {
    /// Starts both servers; returns when the replica confirms commits. Database `test`, and a user `node` without a
    /// password and without the right to write to a server that is read-only.
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
                // On the primary alone: `confirm` turns it on there.
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

    /// The server that accepts writes, or did last.
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

    /// Changes the roles as an operator would: the primary becomes read-only, the replica catches up, and is promoted.
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

    /// Lets the replica receive and confirm nothing more, so that commits on the primary wait; returns when it has
    /// applied all that it has confirmed.
    ///
    /// A replica of MariaDB that is killed would throw away what it has confirmed and not applied, and get it from the
    /// primary again.
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
        let waiting =
            "SELECT id FROM information_schema.processlist WHERE state LIKE 'Waiting for semi-sync ACK%'";
        for id in self.primary().sql(waiting).lines() {
            // An error says that the session has ended meanwhile.
            self.primary().client(&format!("KILL QUERY {id}")).output().unwrap();
        }
    }

    /// Kills the primary and promotes the replica, which then has no replica of its own. What it was sent is applied
    /// first.
    ///
    /// # Panics
    ///
    /// If the replica is down.
    pub fn fail_over(&self) {
        self.primary().kill9();
        self.promote_replica();
    }

    /// Promotes the replica and leaves the primary as it is: if that runs, both accept writes.
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

    /// Starts the other server again, throws away what it has, and makes it a replica that confirms commits.
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
        replica.sql(&format!(
            "CHANGE MASTER TO master_host = '127.0.0.1', master_port = {}, master_user = 'root', \
             master_connect_retry = 1, master_use_gtid = current_pos; START SLAVE",
            primary.port()
        ));
    }

    /// Lets commits on the primary wait for the replica, from when that has caught up.
    fn confirm(&self) {
        let (primary, replica) = (self.primary(), self.replica());
        let position = primary.sql("SELECT @@gtid_binlog_pos");
        // A server that was the primary has it by itself, and not from a primary.
        let caught_up =
            format!("SELECT @@gtid_current_pos = '{position}' OR MASTER_GTID_WAIT('{position}', 1) = 0");
        replica.wait_until("catching up", &caught_up);
        primary.sql("SET GLOBAL rpl_semi_sync_master_enabled = 1");
        let confirms = "SELECT variable_value > 0 FROM information_schema.global_status \
            WHERE variable_name = 'rpl_semi_sync_master_clients'";
        // A replica says at the beginning of its session whether it will confirm, and may have begun before.
        replica.sql("STOP SLAVE IO_THREAD; START SLAVE IO_THREAD");
        primary.wait_until("a replica that confirms", confirms);
    }
}
