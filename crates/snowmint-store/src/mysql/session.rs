//! A session on a primary: what the server reports at the start, and the checks in each statement after that.
//! A server may be demoted, or lose its replicas, at any time, so each write is conditional and must be
//! confirmed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Row;
use sqlx::mysql::{MySql, MySqlArguments, MySqlConnection, MySqlQueryResult};
use sqlx::query::Query;
use tokio::time::Instant;

use super::MySqlSettings;
use super::error;
use super::flush_watch::{FlushWatch, RedoLog};
use super::group;
use super::history::{ClusterHistory, GaleraView, GtidHistory, STATUS, no_member};
use super::left::{LeftSessions, OpenSession};
use crate::StoreErrorKind;
use crate::error::{chain, random_below};
use crate::net::{Confirmation, HostRefusal, Standing};
use crate::sql::exactly_one;
use crate::sql::failure::{SqlFailure, refusal};

/// SQL: what tells a server from any other, as hexadecimal digits, which compare alike whatever the character
/// set of the session is. The server's UUID exists only in MySQL; MariaDB reads that part as a comment.
macro_rules! server_name {
    () => {
        "HEX(CONCAT_WS(' ', @@global.server_id, @@hostname, @@port, @@datadir /*!80000 , @@server_uuid */))"
    };
}

/// SQL condition: the session is on the server that was checked at its start, which has set the variable to a
/// text. A proxy that moves the session to another server sets it there to the same text, or not at all.
macro_rules! on_checked_server {
    () => {
        concat!("COALESCE(@snowmint_server = ", $crate::mysql::session::server_name!(), ", FALSE)")
    };
}
pub(crate) use {on_checked_server, server_name};

/// SQL condition for writing statements: true only if the server accepts writes. A user with `SUPER` or
/// `READ ONLY ADMIN` may write despite `read_only`, so the server itself does not reject writes of such a
/// user.
///
/// `SET GLOBAL read_only` waits for running writes and blocks new ones until it has changed the value: a
/// statement that found the server writable has committed before `SET GLOBAL` returns. `super_read_only` of
/// MySQL sets `read_only` too. Compares text, since later versions have more than two values, and a word
/// would count as 0.
macro_rules! writable {
    () => {
        "CAST(@@global.read_only AS CHAR) IN ('0', 'OFF') AND CAST(@@global.innodb_read_only AS CHAR) IN ('0', 'OFF')"
    };
}
pub(crate) use writable;

/// Condition in a writing statement: the session is [`on_checked_server!`], which is [`writable!`] and syncs
/// each commit before it answers. An operator may change either at any time.
///
/// With `innodb_flush_log_at_trx_commit` at 1, or at 3 in MariaDB, the engine keeps the commits that it
/// acknowledged; with a binary log, only if `sync_binlog` is 1. Otherwise a crash loses a little more than
/// `innodb_flush_log_at_timeout` seconds, and `@snowmint_accepts` must exceed that. The start of a session
/// sets it, see [`CrashLoss::accepted`].
macro_rules! may_write {
    () => {
        concat!(
            $crate::mysql::session::on_checked_server!(),
            " AND ",
            $crate::mysql::session::writable!(),
            " AND (@@global.innodb_flush_log_at_trx_commit IN (1, 3) \
                AND (CAST(@@global.log_bin AS CHAR) IN ('0', 'OFF') OR @@global.sync_binlog = 1) \
            OR @@global.innodb_flush_log_at_timeout < @snowmint_accepts)"
        )
    };
}
pub(crate) use may_write;

const READ_ONLY: &str = "the server is read-only: it is a replica, or was just demoted; use the primary, or name several hosts, separated by \
    commas";
const FELL_BACK: &str = "semi-synchronous replication is enabled, but this server does not wait for a replica now: a failover may lose \
    what it commits; connect a replica and let it catch up, or set may_lose";
const MOVED: &str = "a proxy has moved the session to another server, which was not checked, and nothing counts that was done there; \
    the next call opens a new session";
const UNCONFIRMED: &str = "the server committed without the confirmation of a replica, although semi-synchronous replication is enabled; a \
    failover may lose the write";

/// The number of the session, and the name of its server.
const SESSION: &str = concat!("SELECT CAST(CONNECTION_ID() AS UNSIGNED), ", server_name!());
/// What [`may_write!`] depends on.
const SETTINGS: &str = concat!(
    "SELECT CAST(",
    on_checked_server!(),
    " AS SIGNED), CAST(",
    writable!(),
    " AS SIGNED), CAST(@@global.innodb_flush_log_at_trx_commit AS CHAR), CAST(@@global.log_bin AS CHAR), \
    CAST(@@global.sync_binlog AS CHAR), CAST(@@global.innodb_flush_log_at_timeout AS CHAR)"
);
const VARIABLES: &str = "SHOW VARIABLES WHERE Variable_name IN ('read_only', 'super_read_only', 'innodb_read_only', \
    'log_bin', 'sync_binlog', 'binlog_format', 'wsrep_on', 'wsrep_provider', 'server_uuid', 'server_uid', 'server_id', 'hostname', 'port', 'datadir', \
    'version', 'log_slave_updates', 'log_replica_updates', 'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled', \
    'gtid_binlog_state', 'gtid_executed', 'group_replication_group_name', 'innodb_flush_log_at_trx_commit', 'innodb_flush_log_at_timeout', \
    'innodb_flush_method', 'debug_no_sync')";
/// Queried separately, because SHOW VARIABLES truncates long values.
const MARIADB_HISTORY: &str = "SELECT CONCAT_WS(',', @@global.gtid_binlog_state, @@global.gtid_slave_pos)";
const MYSQL_HISTORY: &str = "SELECT @@global.gtid_executed";
/// Bounds the memory for what was seen: a server is used only if it has all of that, so it never exceeds a
/// few sets of this size.
const LONGEST_HISTORY: usize = 1024 * 1024;
/// How commits wait for replicas. One statement, so that all parts are from the same instant.
const MARIADB_REPLICATION: &str = concat!(
    "SELECT variable_name, variable_value FROM information_schema.global_status \
    WHERE variable_name IN ('rpl_semi_sync_master_status', 'rpl_semi_sync_master_no_tx', 'rpl_semi_sync_master_no_times') \
    UNION ALL SELECT 'rpl_semi_sync_master_enabled', CAST(@@global.rpl_semi_sync_master_enabled AS CHAR) \
    UNION ALL SELECT '~on_checked_server', IF(",
    on_checked_server!(),
    ", 'ON', 'OFF')"
);
/// MySQL has the newer names since 8.0.26, with the plugin of the same name, and no variables without a
/// plugin. SHOW reads the same tables: they exist without the performance schema, and for every user.
const MYSQL_REPLICATION: &str = concat!(
    "SELECT variable_name, variable_value FROM performance_schema.global_status \
    WHERE variable_name IN ('rpl_semi_sync_master_status', 'rpl_semi_sync_source_status', \
        'rpl_semi_sync_master_no_tx', 'rpl_semi_sync_source_no_tx', \
        'rpl_semi_sync_master_no_times', 'rpl_semi_sync_source_no_times') \
    UNION ALL SELECT variable_name, variable_value FROM performance_schema.global_variables \
    WHERE variable_name IN ('rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled') \
    UNION ALL SELECT '~on_checked_server', IF(",
    on_checked_server!(),
    ", 'ON', 'OFF')"
);

/// The ends of the redo log: `MariaDB`'s names, and those of MySQL since 8.0.30.
const REDO_LOG: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_lsn_current', 'Innodb_lsn_flushed', \
    'Innodb_redo_log_current_lsn', 'Innodb_redo_log_flushed_to_disk_lsn')";

/// Rows that no list shows, since no key begins with `~`. There are several, so that readers do not wait for
/// each other.
const FENCES: u64 = 16;
const FENCE: &str =
    concat!("UPDATE snowmint_records SET revision = revision + 1 WHERE name = ? AND ", may_write!());
/// Makes all of them at once, when the first is missing.
const NEW_FENCES: &str = concat!(
    "INSERT INTO snowmint_records (name, revision, value) SELECT CONCAT('~fence/', a.n + b.n), 1, '' \
    FROM (SELECT 0 n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) a, \
        (SELECT 0 n UNION ALL SELECT 4 UNION ALL SELECT 8 UNION ALL SELECT 12) b WHERE ",
    may_write!(),
    " ON DUPLICATE KEY UPDATE revision = snowmint_records.revision + 1"
);
/// Attempts to commit a fence. In a Galera cluster, two that meet in one row end in a deadlock.
const FENCE_ATTEMPTS: usize = 3;

/// A session on a server that accepts writes.
pub(crate) struct MySqlSession {
    pub(crate) sql: MySqlConnection,
    /// How the server waits for replicas, if it has to.
    watch: Option<ReplicationWatch>,
    /// Whether a failover may still lose what the server had when the session began. A primary shows
    /// transactions that wait for a replica, and transactions whose wait was killed. Replicas get commits in
    /// order, so the first confirmed commit of this session confirms all of them.
    pub(super) standing: Standing,
    /// Whether replicas confirm commits, as the server said last; `None` once the caller has taken it.
    pub(super) confirmation: Option<Confirmation>,
    losses: Losses,
    /// Equal for two hosts only if they are one server, or one Galera cluster.
    pub(super) server: String,
    flushes: Arc<FlushWatch>,
    /// Counts as left once the session is dropped.
    _open: OpenSession,
}

/// What a crash of the server may undo.
#[derive(Clone, Copy)]
struct Losses {
    may_lose: Duration,
    crashes: CrashLoss,
    /// Whether the server acknowledges commits before it syncs them, and is used only because other members
    /// of its Galera cluster keep them. Each write then has to check that there are other members.
    kept_by_others: bool,
    /// Whether other members may keep what this server loses; the next session checks that.
    is_member: bool,
}

impl Losses {
    /// Returns whether the server may be used although it acknowledges commits before it syncs them, as long
    /// as it syncs them in time.
    const fn are_bounded_by_flushes(self) -> bool {
        matches!(self.crashes, CrashLoss::AsStated) && !self.may_lose.is_zero() && !self.kept_by_others
    }
}

/// How a server waits for replicas. An operator may enable semi-synchronous replication at any time, so every
/// write and every read checks this.
#[derive(Clone, Copy)]
struct ReplicationWatch {
    statement: &'static str,
    /// The last answer of the server.
    seen: Replication,
}

/// What a server reports about semi-synchronous replication.
#[derive(Clone, Copy)]
struct Replication {
    on_checked_server: bool,
    enabled: bool,
    /// Whether commits wait for a replica now.
    waits: bool,
    /// Number of commits that did not wait until a replica had them, and of times that the server stopped
    /// waiting: MySQL counts a commit as confirmed if semi-synchronous replication was disabled while it
    /// waited, and enabled again at once.
    unconfirmed: u64,
}

impl Replication {
    const fn confirmation(self) -> Confirmation {
        if self.enabled { Confirmation::ByReplicas } else { Confirmation::Nobody }
    }
}

/// What a crash of a server or its machine may undo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CrashLoss {
    /// At most the time that `may_lose` states.
    AsStated,
    /// Nothing; the URL cannot state a loss, as for the table of another system.
    Nothing,
    /// Anything: the user accepts any loss.
    Anything,
    /// Irrelevant: nothing is written, and reads need not be durable.
    Unused,
}

/// Value of `@snowmint_accepts` that exceeds any loss that a server reports.
const ANYTHING: u64 = 1_000_000;

impl CrashLoss {
    /// Returns whether a crash must keep what reads have shown. A user who accepts any loss, and a tool that
    /// only looks, need no durable reads.
    const fn must_be_survived(self) -> bool {
        matches!(self, Self::AsStated | Self::Nothing)
    }

    /// Returns the accepted loss in seconds of commits, for [`may_write!`].
    pub(super) const fn accepted(self, may_lose: Duration) -> u64 {
        match self {
            Self::AsStated | Self::Nothing => may_lose.as_secs(),
            Self::Anything => ANYTHING,
            Self::Unused => 0,
        }
    }
}

/// The settings that decide when a server syncs its commits.
struct Syncing {
    flush: String,
    /// When the binary log is synced, if there is one.
    sync_binlog: Option<String>,
    every_seconds: u64,
}

impl Syncing {
    fn new(flush: &str, log_bin: &str, sync_binlog: &str, every_seconds: &str) -> Self {
        let sync_binlog = is_on(log_bin).then(|| sync_binlog.to_owned());
        Self { flush: flush.to_owned(), sync_binlog, every_seconds: every_seconds.parse().unwrap_or(1) }
    }

    /// Refuses a server that acknowledges commits before they are durable, unless the user accepts that.
    fn check(&self, may_lose: Duration, crashes: CrashLoss) -> Result<(), HostRefusal> {
        if matches!(crashes, CrashLoss::Anything | CrashLoss::Unused) {
            return Ok(());
        }
        self.check_flush(may_lose, crashes)?;
        self.check_binlog_sync(may_lose, crashes)
    }

    /// Refuses a server that acknowledges commits before they are on its disk, unless the user has stated the
    /// loss. With 0, any end of the server process loses the commits of the last seconds; with 2, any end of
    /// the machine does. 1 and `MariaDB`'s 3 lose none.
    fn check_flush(&self, may_lose: Duration, crashes: CrashLoss) -> Result<(), HostRefusal> {
        let ends = match &*self.flush {
            "0" => "server",
            "2" => "machine",
            _ => return Ok(()),
        };
        self.check_loss("innodb_flush_log_at_trx_commit", &self.flush, ends, may_lose, crashes)
    }

    /// Refuses a server that syncs its binary log later. With a binary log, only that sync makes a commit
    /// durable, since `InnoDB` rolls back transactions that the log lacks. Transactions that `InnoDB` has
    /// flushed as committed stay.
    fn check_binlog_sync(&self, may_lose: Duration, crashes: CrashLoss) -> Result<(), HostRefusal> {
        match self.sync_binlog.as_deref() {
            None | Some("1") => Ok(()),
            Some(sync) => self.check_loss("sync_binlog", sync, "machine", may_lose, crashes),
        }
    }

    fn check_loss(
        &self,
        setting: &str,
        value: &str,
        ends: &str,
        may_lose: Duration,
        crashes: CrashLoss,
    ) -> Result<(), HostRefusal> {
        let loss = self.loss();
        if may_lose >= loss {
            return Ok(());
        }
        let accept = match crashes {
            CrashLoss::AsStated => format!("may_lose={}s", loss.as_secs()),
            CrashLoss::Nothing | CrashLoss::Anything | CrashLoss::Unused => "durable=no".to_owned(),
        };
        let text = format!(
            "{setting} is {value}: a crash of the {ends} loses about the last {} s of commits and may cause duplicates; SET GLOBAL \
             {setting} = 1, or accept the loss with {accept}",
            self.every_seconds
        );
        Err(HostRefusal::new(StoreErrorKind::Other, text))
    }

    /// Returns how much of the newest commits a crash may undo, if the server syncs them later: it begins to
    /// at each interval, and takes some time.
    const fn loss(&self) -> Duration {
        Duration::from_secs(self.every_seconds + 1)
    }

    /// Returns whether the server syncs each commit before it acknowledges it.
    fn is_at_commit(&self) -> bool {
        self.check(Duration::ZERO, CrashLoss::AsStated).is_ok()
    }
}

/// Returns the ends of the redo log.
async fn redo_log(sql: &mut MySqlConnection) -> Result<RedoLog, HostRefusal> {
    let status = named(sql, REDO_LOG).await.map_err(|error| unavailable(&error))?;
    let value = |names: [&str; 2]| names.iter().find_map(|name| status.get(*name)?.parse().ok());
    let written = value(["innodb_lsn_current", "innodb_redo_log_current_lsn"]);
    let flushed = value(["innodb_lsn_flushed", "innodb_redo_log_flushed_to_disk_lsn"]);
    let (Some(written), Some(flushed)) = (written, flushed) else {
        let text = "the server acknowledges commits before they are on its disk, and does not say when they are \
            (Innodb_redo_log_flushed_to_disk_lsn, MySQL 8.0.30 or later): SET GLOBAL innodb_flush_log_at_trx_commit = 1 and \
            sync_binlog = 1";
        return Err(HostRefusal::new(StoreErrorKind::Other, text));
    };
    Ok(RedoLog { written, flushed })
}

/// Queries the server's state, and refuses a server that must not be used; `may_lose` is the loss that the
/// user has stated.
pub(super) async fn begin(
    mut sql: MySqlConnection,
    may_lose: Duration,
    crashes: CrashLoss,
    flushes: Arc<FlushWatch>,
    left: Arc<LeftSessions>,
) -> Result<(MySqlSession, ClusterHistory), HostRefusal> {
    let open = claim(&mut sql, left).await?;
    let variables = Variables(named(&mut sql, VARIABLES).await.map_err(refused)?);
    variables.check(crashes)?;
    let view = variables.galera_view(&mut sql).await?;
    if !variables.value("group_replication_group_name").is_empty() {
        group::check(&mut sql).await?;
    }
    let losses = variables.losses(&mut sql, view.as_ref(), may_lose, crashes).await?;
    if view.is_some() {
        // Before reads, updates and inserts, wait for the commits of other members.
        sqlx::raw_sql("SET SESSION wsrep_sync_wait = 7").execute(&mut sql).await.map_err(refused)?;
    }
    let server = if let Some(view) = &view {
        view.server()
    } else {
        // None of these alone exists on every server and differs between any two.
        let of = ["server_uuid", "server_uid", "server_id", "hostname", "port", "datadir"];
        of.map(|name| variables.value(name)).join(" ")
    };
    let keeps = may_lose.is_zero();
    // Each member of a Galera cluster numbers transactions itself, and the cluster keeps what it has
    // confirmed.
    let history =
        if keeps && view.is_none() { variables.history(&mut sql).await? } else { GtidHistory::default() };
    // Without a binary log there are no replicas, and a running server cannot enable one.
    let watch = if keeps && variables.is_on("log_bin") && crashes != CrashLoss::Unused {
        Some(variables.replication(&mut sql).await?)
    } else {
        None
    };
    // The members of a Galera cluster confirm each other's commits.
    let confirmation = if view.is_some() {
        Confirmation::ByReplicas
    } else {
        watch.map_or(Confirmation::Nobody, |it| it.seen.confirmation())
    };
    let waits = watch.is_some_and(|watch| watch.seen.enabled);
    let standing = if waits { Standing::Unconfirmed } else { Standing::Kept };
    let confirmation = Some(confirmation);
    let session = MySqlSession { sql, watch, standing, confirmation, losses, server, flushes, _open: open };
    Ok((session, ClusterHistory { history, view }))
}

/// Ties the statements of a session to its server, unless too many others hang there.
async fn claim(sql: &mut MySqlConnection, left: Arc<LeftSessions>) -> Result<OpenSession, HostRefusal> {
    let session = exactly_one(sqlx::query_as::<_, (u64, String)>(SESSION).fetch_all(&mut *sql)).await;
    let (id, server) = session.map_err(refused)?;
    left.check(sql, &server).await?;
    // Hexadecimal digits.
    let set = format!("SET @snowmint_server = '{server}'");
    sqlx::raw_sql(sqlx::AssertSqlSafe(set)).execute(&mut *sql).await.map_err(refused)?;
    Ok(OpenSession { all: left, server, id })
}

#[allow(clippy::needless_pass_by_value, reason = "as map_err passes it")]
fn refused(error: sqlx::Error) -> HostRefusal {
    refusal::<MySqlSettings>(&error)
}

/// The variables of a server at the start of a session.
struct Variables(BTreeMap<String, String>);

impl Variables {
    fn value(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |it| &**it)
    }

    fn is_on(&self, name: &str) -> bool {
        is_on(self.value(name))
    }

    fn is_mariadb(&self) -> bool {
        self.0.contains_key("gtid_binlog_state")
    }

    /// Refuses a server that accepts no writes, or may lose any of them.
    fn check(&self, crashes: CrashLoss) -> Result<(), HostRefusal> {
        if ["read_only", "super_read_only", "innodb_read_only"].into_iter().any(|name| self.is_on(name)) {
            let text = READ_ONLY.to_owned() + &self.waits_for_replicas();
            return Err(HostRefusal::new(StoreErrorKind::ReadOnly, text));
        }
        if self.is_on("log_bin") && self.value("binlog_format") == "STATEMENT" {
            let text = "the server has binlog_format=STATEMENT, with which a replica would skip writes that depend on read_only; \
                set binlog_format to MIXED or ROW";
            return Err(HostRefusal::new(StoreErrorKind::Other, text));
        }
        let never_syncs = match self.value("innodb_flush_method").to_lowercase() {
            method if matches!(&*method, "nosync" | "littlesync") => Some(("innodb_flush_method", method)),
            _ if self.is_on("debug_no_sync") => Some(("debug_no_sync", "ON".to_owned())),
            _ => None,
        };
        match never_syncs {
            Some((setting, value)) if crashes.must_be_survived() => {
                let text = format!(
                    "{setting} is {value}: a crash of the machine may lose any commit and cause duplicates; remove the \
                     setting from the configuration of the server, and restart it"
                );
                Err(HostRefusal::new(StoreErrorKind::Other, text))
            }
            _ => Ok(()),
        }
    }

    /// Returns a hint about a replica that waits for a replica of its own before it applies a transaction,
    /// but most likely has none. A failover to it would lose the transactions that it has received and not
    /// applied.
    fn waits_for_replicas(&self) -> String {
        let on = |names: [&'static str; 2]| names.into_iter().find(|name| self.is_on(name));
        let logs = on(["log_slave_updates", "log_replica_updates"]);
        match (logs, on(["rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled"])) {
            (Some(_), Some(setting)) => format!(
                "; as a replica it waits for a replica of its own before it applies a transaction: SET GLOBAL {setting} = OFF \
                 until it is promoted"
            ),
            _ => String::new(),
        }
    }

    /// Returns the server's view of its Galera cluster; `None` outside of clusters.
    async fn galera_view(&self, sql: &mut MySqlConnection) -> Result<Option<GaleraView>, HostRefusal> {
        if !self.is_on("wsrep_on") {
            return Ok(None);
        }
        let status = named(sql, STATUS).await.map_err(refused)?;
        let view = GaleraView::parse(&status);
        // The setting alone does not make a cluster: the provider may be missing.
        if view.is_none() && !matches!(self.value("wsrep_provider"), "" | "none") {
            return Err(no_member(&status));
        }
        Ok(view)
    }

    /// Refuses a server of which a crash may undo more than the user accepts.
    async fn losses(
        &self,
        sql: &mut MySqlConnection,
        view: Option<&GaleraView>,
        may_lose: Duration,
        crashes: CrashLoss,
    ) -> Result<Losses, HostRefusal> {
        let sync = Syncing::new(
            self.value("innodb_flush_log_at_trx_commit"),
            self.value("log_bin"),
            self.value("sync_binlog"),
            self.value("innodb_flush_log_at_timeout"),
        );
        let mut losses = Losses { may_lose, crashes, kept_by_others: false, is_member: view.is_some() };
        if let Err(refusal) = sync.check(may_lose, crashes) {
            losses.kept_by_others = view.is_some_and(GaleraView::is_shared);
            if !losses.kept_by_others {
                return Err(refusal);
            }
            let accept = format!("SET @snowmint_accepts = {ANYTHING}");
            sqlx::raw_sql(sqlx::AssertSqlSafe(accept)).execute(&mut *sql).await.map_err(refused)?;
        } else if losses.are_bounded_by_flushes() && !sync.is_at_commit() {
            redo_log(sql).await?;
        }
        Ok(losses)
    }

    /// Returns the transactions that the server has; none if it has no GTIDs.
    async fn history(&self, sql: &mut MySqlConnection) -> Result<GtidHistory, HostRefusal> {
        if !self.is_mariadb() && !self.0.contains_key("gtid_executed") {
            return Ok(GtidHistory::default());
        }
        let statement = if self.is_mariadb() { MARIADB_HISTORY } else { MYSQL_HISTORY };
        let row = exactly_one(sqlx::query(statement).fetch_all(&mut *sql)).await.map_err(refused)?;
        let text = row.try_get_unchecked::<String, _>(0).map_err(refused)?;
        if text.len() > LONGEST_HISTORY {
            let text = format!(
                "the server has a list of GTIDs of {} bytes, and nodes compare at most {LONGEST_HISTORY}: stop all nodes, and \
                 empty it on all servers (RESET BINARY LOGS AND GTIDS, or RESET MASTER)",
                text.len()
            );
            return Err(HostRefusal::new(StoreErrorKind::Other, text));
        }
        Ok(GtidHistory::parse(&text))
    }

    /// Returns how commits wait for replicas. Refuses a server that should wait for one, and does not now.
    async fn replication(&self, sql: &mut MySqlConnection) -> Result<ReplicationWatch, HostRefusal> {
        let statement = if self.is_mariadb() { MARIADB_REPLICATION } else { MYSQL_REPLICATION };
        let seen = replication(sql, statement).await.map_err(refused)?;
        if seen.enabled && !seen.waits {
            return Err(HostRefusal::new(StoreErrorKind::Unavailable, FELL_BACK));
        }
        Ok(ReplicationWatch { statement, seen })
    }
}

impl MySqlSession {
    /// Returns whether a statement that changed nothing proves nothing: what it has seen may not be on the
    /// disk, or not on a replica, until another commit.
    pub(crate) fn needs_a_commit(&self) -> bool {
        self.losses.crashes.must_be_survived() || self.watch.is_some_and(|watch| watch.seen.enabled)
    }

    /// Executes a write that has [`may_write!`] as a condition. If it changed nothing, checks whether that
    /// condition is the reason; if it changed something, checks that a replica has it.
    pub(crate) async fn write(
        &mut self,
        statement: Query<'_, MySql, MySqlArguments>,
    ) -> Result<MySqlQueryResult, SqlFailure> {
        let done = statement.execute(&mut self.sql).await;
        self.settle(done, |done| done.rows_affected() > 0).await
    }

    /// As [`write`](Self::write), for a write that was already executed.
    pub(crate) async fn settle<T>(
        &mut self,
        done: Result<T, sqlx::Error>,
        wrote: impl Fn(&T) -> bool,
    ) -> Result<T, SqlFailure> {
        let done = done?;
        if wrote(&done) {
            self.confirm().await?;
        } else {
            self.check_settings().await?;
        }
        Ok(done)
    }

    /// Returns why the server refused a write by [`may_write!`]; nothing was written.
    pub(crate) async fn refusal(&mut self) -> SqlFailure {
        let text = "the settings of the server changed during the call, and nothing was written";
        let changed = SqlFailure::refused(StoreErrorKind::Unavailable, text);
        self.check_settings().await.err().unwrap_or(changed)
    }

    /// Returns the rows of a read if its server was the checked one, accepted writes at that time, and can no
    /// longer lose the rows.
    pub(super) async fn trust<T>(
        &mut self,
        shown: Result<T, sqlx::Error>,
        trusted: impl Fn(&T) -> i64,
    ) -> Result<T, SqlFailure> {
        let shown = shown?;
        if trusted(&shown) == 0 {
            return Err(self.refusal().await);
        }
        self.fence().await?;
        Ok(shown)
    }

    /// Returns the refusal of a server that was demoted; nothing was written there.
    fn read_only() -> SqlFailure {
        SqlFailure::refused(StoreErrorKind::ReadOnly, READ_ONLY)
    }

    /// Refuses a server that was demoted, or that may lose writes in a crash; the statement before has
    /// changed nothing.
    async fn check_settings(&mut self) -> Result<(), SqlFailure> {
        let Settings { on_checked_server, writable, sync } =
            settings(&mut self.sql).await.map_err(|error| SqlFailure::Refused(unavailable(&error)))?;
        if !on_checked_server {
            return Err(SqlFailure::refused(StoreErrorKind::Unavailable, MOVED));
        }
        if !writable {
            return Err(Self::read_only());
        }
        let Losses { may_lose, crashes, kept_by_others, is_member } = self.losses;
        if kept_by_others {
            return Ok(());
        }
        sync.check(may_lose, crashes).map_err(|HostRefusal { kind, text }| {
            // This session ends with the error, and the next one checks the other members.
            let kind = if is_member { StoreErrorKind::Unavailable } else { kind };
            SqlFailure::refused(kind, text)
        })
    }

    /// Checks that other members of the cluster have the write, if this member may lose it.
    async fn check_others(&mut self) -> Result<(), SqlFailure> {
        let Losses { may_lose, crashes, kept_by_others: true, .. } = self.losses else { return Ok(()) };
        let status = named(&mut self.sql, STATUS).await.map_err(|error| unknown(chain(&error)))?;
        if GaleraView::parse(&status).is_some_and(|view| view.is_shared() && view.server() == self.server) {
            return Ok(());
        }
        let sync = self.syncing().await?;
        sync.check(may_lose, crashes).map_err(|refusal| unknown(refusal.text))
    }

    /// Returns when the server syncs its commits, after a write.
    async fn syncing(&mut self) -> Result<Syncing, SqlFailure> {
        let settings = settings(&mut self.sql).await.map_err(|error| unknown(chain(&error)))?;
        if settings.on_checked_server { Ok(settings.sync) } else { Err(unknown(MOVED)) }
    }

    /// Checks that a server that acknowledges commits before it syncs them syncs them in time.
    async fn check_flushes(&mut self) -> Result<(), SqlFailure> {
        if !self.losses.are_bounded_by_flushes() {
            return Ok(());
        }
        if self.syncing().await?.is_at_commit() {
            return Ok(());
        }
        let asked = Instant::now();
        let log = redo_log(&mut self.sql).await.map_err(|refusal| unknown(refusal.text))?;
        self.flushes.check(&self.server, asked, log).map_err(|late| {
            unknown(format!(
                "a commit is not on the disk after {} ms (Innodb_lsn_flushed), so a crash may lose more than may_lose: the disk \
                 hangs or is too slow",
                late.as_millis()
            ))
        })
    }

    /// Checks that a replica has confirmed the last commit, if one has to. A commit whose wait timed out or
    /// was killed looks like any other; only the counters of [`Replication::unconfirmed`] show it.
    async fn confirm(&mut self) -> Result<(), SqlFailure> {
        self.check_others().await?;
        self.check_flushes().await?;
        let Some(ReplicationWatch { statement, seen }) = self.watch else { return Ok(()) };
        let text = match replication(&mut self.sql, statement).await {
            Ok(now) if !now.on_checked_server => MOVED.to_owned(),
            Ok(now) if !seen.enabled && !now.enabled => {
                self.watch = Some(ReplicationWatch { statement, seen: now });
                return Ok(());
            }
            // If waiting was enabled meanwhile, the commit may have come before that without waiting.
            Ok(now) if seen.enabled && now.enabled && now.waits && now.unconfirmed == seen.unconfirmed => {
                self.standing = Standing::Kept;
                self.confirmation = Some(Confirmation::ByReplicas);
                return Ok(());
            }
            Ok(_) => UNCONFIRMED.to_owned(),
            Err(error) => chain(&error),
        };
        Err(unknown(text))
    }

    /// Makes sure that neither a crash nor a failover loses what earlier reads have shown, by one more
    /// commit, which confirms all commits before it: the redo log is flushed in order, and replicas get
    /// commits in order.
    ///
    /// The primary shows rows that are not on its disk: `InnoDB` shows a commit and unlocks its rows before
    /// it flushes the redo log, unless the commit goes through the binary log, which depends on more than
    /// `log_bin` (`binlog_ignore_db`, `sql_log_bin`, what a replica applied). If the disk hangs, that lasts
    /// as long as it hangs. It also shows rows that no replica has: while a commit waits (`AFTER_COMMIT`),
    /// and after a wait that was killed or ended by a crash.
    pub(super) async fn fence(&mut self) -> Result<(), SqlFailure> {
        if !self.follow_replication().await? && !self.losses.crashes.must_be_survived() {
            return Ok(());
        }
        let mut fenced = self.commit_fence().await;
        for _ in 1..FENCE_ATTEMPTS {
            if fenced.as_ref().is_err_and(error::is_deadlock) {
                fenced = self.commit_fence().await;
            }
        }
        fenced.map_err(|failure| match failure {
            // Nothing that the caller wanted was written.
            SqlFailure::Refused(HostRefusal { kind: StoreErrorKind::OutcomeUnknown, text }) => {
                SqlFailure::refused(StoreErrorKind::Unavailable, text)
            }
            failure => failure,
        })
    }

    /// Returns whether commits wait for a replica: as the session knows, or as the server says if it did not
    /// wait before.
    async fn follow_replication(&mut self) -> Result<bool, SqlFailure> {
        let Some(ReplicationWatch { statement, seen }) = self.watch else { return Ok(false) };
        if seen.enabled {
            return Ok(true);
        }
        let now = replication(&mut self.sql, statement).await;
        let now = now.map_err(|error| SqlFailure::Refused(unavailable(&error)))?;
        if !now.on_checked_server {
            return Err(SqlFailure::refused(StoreErrorKind::Unavailable, MOVED));
        }
        self.watch = Some(ReplicationWatch { statement, seen: now });
        if now.enabled && !now.waits {
            return Err(SqlFailure::refused(StoreErrorKind::Unavailable, FELL_BACK));
        }
        Ok(now.enabled)
    }

    /// Commits a row that no list shows.
    async fn commit_fence(&mut self) -> Result<(), SqlFailure> {
        let name = format!("~fence/{}", random_below(FENCES));
        if self.write(sqlx::query(FENCE).bind(name.as_bytes())).await?.rows_affected() == 0
            && self.write(sqlx::query(NEW_FENCES)).await?.rows_affected() == 0
        {
            return Err(self.refusal().await);
        }
        Ok(())
    }
}

/// Returns rows of name and value, with the names in lower case.
async fn named(
    sql: &mut MySqlConnection,
    statement: &'static str,
) -> Result<BTreeMap<String, String>, sqlx::Error> {
    let rows = sqlx::query(statement).fetch_all(sql).await?;
    let pair = |row: &sqlx::mysql::MySqlRow| {
        let name: String = row.try_get_unchecked(0)?;
        Ok((name.to_lowercase(), row.try_get_unchecked(1)?))
    };
    rows.iter().map(pair).collect()
}

/// What a server says during a session.
struct Settings {
    on_checked_server: bool,
    writable: bool,
    sync: Syncing,
}

async fn settings(sql: &mut MySqlConnection) -> Result<Settings, sqlx::Error> {
    let query = sqlx::query_as::<_, (i64, i64, String, String, String, String)>(SETTINGS);
    let (checked, writable, flush, log_bin, sync_binlog, every_seconds) =
        exactly_one(query.fetch_all(sql)).await?;
    let sync = Syncing::new(&flush, &log_bin, &sync_binlog, &every_seconds);
    Ok(Settings { on_checked_server: checked != 0, writable: writable != 0, sync })
}

fn unavailable(error: &sqlx::Error) -> HostRefusal {
    HostRefusal::new(StoreErrorKind::Unavailable, chain(error))
}

/// Returns the failure of a check after a write, which may have happened.
fn unknown(text: impl Into<String>) -> SqlFailure {
    SqlFailure::refused(StoreErrorKind::OutcomeUnknown, text)
}

/// Returns how commits wait for replicas.
async fn replication(sql: &mut MySqlConnection, statement: &'static str) -> Result<Replication, sqlx::Error> {
    let status = named(sql, statement).await?;
    let any_is_on = |end: &str| status.iter().any(|(name, value)| name.ends_with(end) && is_on(value));
    let unconfirmed =
        status.iter().filter(|(name, _)| name.ends_with("_no_tx") || name.ends_with("_no_times"));
    Ok(Replication {
        on_checked_server: status.get("~on_checked_server").is_some_and(|it| is_on(it)),
        enabled: any_is_on("_enabled"),
        waits: any_is_on("_status"),
        unconfirmed: unconfirmed.filter_map(|(_, value)| value.parse::<u64>().ok()).sum(),
    })
}

fn is_on(value: &str) -> bool {
    !matches!(value, "OFF" | "0" | "")
}
