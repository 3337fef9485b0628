//! Records as rows of one `InnoDB` table of MySQL or MariaDB, each written by a single statement. Every
//! statement also checks whether the server still accepts writes: answers of a demoted primary do not count,
//! and neither do those of a server that may lose writes in a crash.

pub(crate) mod connect;
pub(crate) mod error;
mod flush_watch;
mod group;
pub(crate) mod history;
mod left;
pub(crate) mod session;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::mysql::MySqlConnectOptions;

use self::flush_watch::FlushWatch;
use self::left::LeftSessions;
use self::session::{CrashLoss, MySqlSession, may_write, on_checked_server, writable};
use crate::error::Effect;
use crate::net::url::Password;
use crate::sql::failure::SqlFailure;
use crate::sql::pool::Pool;
use crate::sql::{exactly_one, table};
use crate::store::{SkippedRecords, add};
use crate::{
    Expected, Key, OpenError, Revision, Store, StoreError, StoreErrorKind, Swap, UrlError, Versioned,
};

/// The settings of a session. They may contain the password, so they are never shown.
pub(crate) struct MySqlSettings {
    options: MySqlConnectOptions,
    password: Password,
    limit: Duration,
    may_lose: Duration,
    /// Shared by all sessions.
    flushes: Arc<FlushWatch>,
    left: Arc<LeftSessions>,
    crashes: CrashLoss,
}

/// The table, for the node or a DBA to create. Names compare by bytes; a BLOB would be 1 byte too short for
/// the longest value.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS snowmint_records (
    name VARBINARY(200) NOT NULL PRIMARY KEY,
    revision BIGINT NOT NULL,
    value MEDIUMBLOB NOT NULL
) ENGINE = InnoDB";
/// Always returns one row, which also says whether the server is the checked one and accepts writes.
const LOAD: &str = concat!(
    "SELECT CAST(",
    on_checked_server!(),
    " AND ",
    writable!(),
    " AS SIGNED), r.revision, r.value FROM (SELECT 1) one LEFT JOIN snowmint_records r ON r.name = ?"
);
const LIST: &str = concat!(
    "SELECT CAST(",
    on_checked_server!(),
    " AND ",
    writable!(),
    " AS SIGNED), r.name, r.revision, r.value \
    FROM (SELECT 1) one LEFT JOIN snowmint_records r ON r.name >= ? AND r.name < ? ORDER BY r.name"
);
const INSERT: &str = concat!(
    "INSERT INTO snowmint_records (revision, value, name) SELECT ?, ?, ? FROM (SELECT 1) one WHERE ",
    may_write!()
);
const UPDATE: &str = concat!(
    "UPDATE snowmint_records SET revision = ?, value = ? WHERE name = ? AND revision = ? AND ",
    may_write!()
);
/// Adds to a number of at most the last parameter, and returns the number before as the insert id of the
/// answer. The digits are checked in hexadecimal, which does not depend on the character set, line ends or
/// mode of the server. Uses CASE because the order of conditions joined by AND is not fixed.
const ADD: &str = concat!(
    "UPDATE snowmint_records SET revision = revision + ?, \
    value = CAST(LAST_INSERT_ID(CAST(value AS UNSIGNED)) + ? AS CHAR) \
    WHERE name = ? AND CASE WHEN HEX(value) REGEXP '^(30|3[1-9](3[0-9]){0,18})$' \
        THEN CAST(value AS UNSIGNED) <= ? ELSE FALSE END AND ",
    may_write!()
);
const UNIX_MS: &str = "SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)";

/// A store in a database of MariaDB (10.5 or later) or MySQL (8.0 or later).
///
/// Records are rows of the table `snowmint_records`, which is created when the store is first opened. A user
/// who may not create tables needs `SELECT`, `INSERT` and `UPDATE` on an existing one;
/// [`schema`](crate::schema) shows it.
///
/// Each write is one statement and one commit. The store refuses:
///
/// - a server with `innodb_flush_log_at_trx_commit` at 0 or 2, since a crash of the server (0) or of the
///   machine (2) loses its last second, unless `may_lose` states that loss; a server whose disk hangs for
///   that long is not used then (MySQL: 8.0.30 or later);
/// - a server with a binary log and `sync_binlog` other than 1, for crashes of the machine, likewise;
/// - a server with `read_only` on, which counts as a replica.
///
/// `InnoDB` shows a commit to other sessions before it is on the disk, unless the commit goes through the
/// binary log. So each read commits a row of its own, and returns once that is flushed: a crash then keeps
/// what the read has shown.
///
/// In a Galera cluster of two or more members, the other members keep the writes that one loses. Every write
/// is conditional on all these settings, since they may change at any time, and a user with `SUPER` or
/// `READ ONLY ADMIN` could write despite `read_only`.
///
/// A failover to a replica loses the writes that the replica had not received, including leases that nodes
/// still hold. Semi-synchronous and group replication prevent that; asynchronous replication does not and
/// needs `may_lose`. If semi-synchronous replication is enabled and `may_lose` is 0, a write counts only when
/// a replica has confirmed it, and a read commits a row of its own, so that a replica also has the records
/// that it returns. In a Galera cluster every session waits for the commits of other nodes
/// (`wsrep_sync_wait`).
///
/// A call takes at most `timeout_ms`, including connecting. Up to 4 statements run at once, each on a
/// connection of its own; the next call replaces a broken connection.
///
/// # URL
///
/// `mysql://USER:PASSWORD@HOST:PORT,HOST/DATABASE?NAME=VALUE&...`; the default port is 3306; `mariadb://`
/// means the same. Of several hosts, the store uses the one that accepts writes. It refuses two that accept
/// writes, unless they are members of one Galera cluster with the same view of it. Until the process
/// restarts, it also refuses a server that lacks GTIDs which it has seen when it connected earlier; not one
/// that lacks only later ones. A member of a MySQL group must be its primary and reach a majority of it.
///
/// | parameter | meaning |
/// |---|---|
/// | `password_file` | a file whose first line is the password; read for each connection |
/// | `ssl-mode` | `disabled`, `preferred` (the default), `required`, `verify_ca` or `verify_identity` |
/// | `ssl-ca` | a PEM file with authorities to trust besides the system's; without `ssl-mode` it means `verify_identity` |
/// | `ssl-cert`, `ssl-key` | PEM files with a client certificate and its key |
/// | `socket` | the path of a local socket to use instead of a host |
/// | `may_lose` | how much of the newest writes a failover may lose, such as `2s`; default 0; see [`Store::may_lose`] |
/// | `timeout_ms` | the limit of a call, default 5000 |
///
/// MySQL's `caching_sha2_password` needs TLS, also over a local socket. `MariaDB`'s `ed25519` and `parsec`
/// are not supported.
///
/// # Cancel safety
///
/// A dropped [`compare_and_set`](Store::compare_and_set) closes its connection. The server may still execute
/// a statement that was sent.
pub struct MySqlStore {
    pool: Pool<MySqlSettings>,
    skipped: SkippedRecords,
    /// Why a node would not use the server, if it was opened all the same.
    refused: Option<StoreError>,
}

impl MySqlStore {
    /// Parses the URL, connects, and creates the table if it is missing.
    ///
    /// Needs a Tokio runtime with its I/O and timer enabled. Any number of nodes may open it at the same
    /// instant.
    ///
    /// # Errors
    ///
    /// - [`OpenError::Url`]: a mistake in the URL, or a password file that is not readable.
    /// - [`OpenError::Store`], [`Unavailable`](crate::StoreErrorKind::Unavailable): no server is reachable; a
    ///   retry may succeed.
    /// - [`OpenError::Store`], [`ReadOnly`](crate::StoreErrorKind::ReadOnly): only read-only servers were
    ///   found, or the table is missing and the user may not create it.
    /// - [`OpenError::Store`], [`SplitBrain`](crate::StoreErrorKind::SplitBrain): two servers accept writes.
    /// - [`OpenError::Store`], [`Other`](crate::StoreErrorKind::Other): wrong password, no such database, an
    ///   untrusted certificate, a table of another program, a statement-based binary log, or a server that
    ///   lacks transactions which were seen elsewhere.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let store = Self::parse(url, CrashLoss::AsStated)?;
        connect::prepare_table(&store.pool).await?;
        connect::warn_of_cached_password(&store.pool).await;
        Ok(store)
    }

    /// Connects for a tool that only looks: for a user without the right to write, or while the disk of the
    /// server hangs. What it reads may be undone by a crash. `refused` is why a node would not use it.
    pub(crate) async fn open_to_read(url: &str, refused: StoreError) -> Result<Self, OpenError> {
        let mut store = Self::parse(url, CrashLoss::Unused)?;
        if connect::check_table(&store.pool).await.is_err() {
            return Err(OpenError::Store(refused));
        }
        // That a user or a server may not write shows in a write.
        store.refused = Some(refused)
            .filter(|it| it.kind() != StoreErrorKind::ReadOnly && !it.cause().is::<error::MissingRight>());
        Ok(store)
    }

    fn parse(url: &str, crashes: CrashLoss) -> Result<Self, UrlError> {
        let pool = MySqlSettings::parse(url, crashes)?;
        Ok(Self { pool, skipped: SkippedRecords::default(), refused: None })
    }

    /// Adds in one statement, or inserts if there is no record yet. Returns `None` if the record holds no
    /// number, or a number that is too large.
    async fn add_once(&self, key: &Key, addend: i64) -> Result<Option<u64>, StoreError> {
        let step = Revision::random_step();
        let ask = async |mut session: MySqlSession| {
            let query = sqlx::query(ADD).bind(step).bind(addend).bind(key.as_str().as_bytes());
            Ok((session.write(query.bind(i64::MAX - addend)).await?, session))
        };
        let done = self.pool.call(add::OPERATION, Effect::Writes, ask).await?;
        if done.rows_affected() == 1 {
            return Ok(Some(done.last_insert_id()));
        }
        let inserted = self.write(add::OPERATION, key, 0, step, addend.to_string().as_bytes()).await?;
        Ok(inserted.then_some(0))
    }

    /// Writes a record whose revision is `before`, or 0 for a missing one. Returns whether the record had
    /// that revision.
    async fn write(
        &self,
        operation: &'static str,
        key: &Key,
        before: i64,
        after: i64,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        let ask = async |mut session: MySqlSession| {
            let query = sqlx::query(if before == 0 { INSERT } else { UPDATE });
            let query = query.bind(after).bind(value).bind(key.as_str().as_bytes());
            let query = if before == 0 { query } else { query.bind(before) };
            let done = match session.write(query).await {
                // An INSERT IGNORE would look the same whether it wrote or not: sqlx makes the server count
                // found rows, not changed ones. So an existing row is an error, and only that error means a
                // conflict.
                Err(SqlFailure::Sql(error)) if error::is_duplicate(&error) => 0,
                done => done?.rows_affected(),
            };
            Ok((done, session))
        };
        Ok(self.pool.call(operation, Effect::Writes, ask).await? == 1)
    }
}

/// Whether the server is the checked one and accepts writes; then name, revision and value, all empty if
/// there is no record.
type ListRow = (i64, Option<Vec<u8>>, Option<i64>, Option<Vec<u8>>);

/// Returns the `may_lose` of a URL without connecting.
pub(crate) fn may_lose(url: &str) -> Result<Duration, UrlError> {
    MySqlSettings::parse(url, CrashLoss::AsStated).map(|pool| pool.may_lose)
}

/// Returns the SQL that a DBA runs for a store of this URL.
pub(crate) fn schema(url: &str) -> Result<String, UrlError> {
    MySqlSettings::parse(url, CrashLoss::AsStated)?;
    Ok(format!(
        "{TABLE};\n-- and for the user of the nodes, which needs neither SUPER nor READ ONLY ADMIN:\n\
         -- GRANT SELECT, INSERT, UPDATE ON snowmint_records TO ...;\n"
    ))
}

#[async_trait]
impl Store for MySqlStore {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        const OPERATION: &str = "load";
        let ask = async |mut session: MySqlSession| {
            let query = sqlx::query_as::<_, (i64, Option<i64>, Option<Vec<u8>>)>(LOAD);
            let row = exactly_one(query.bind(key.as_str().as_bytes()).fetch_all(&mut session.sql)).await;
            Ok((session.trust(row, |row| row.0).await?, session))
        };
        let (_, revision, value) = self.pool.call(OPERATION, Effect::Reads, ask).await?;
        let found = revision.zip(value);
        found.map(|(revision, value)| table::record(&self.pool.name, OPERATION, revision, value)).transpose()
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        let Some((before, after)) = expected.before_and_after() else {
            return Ok(Swap::Conflict);
        };
        let done = self.write("compare_and_set", key, before, after, value).await?;
        Ok(if done { Swap::Done(Revision(after.cast_unsigned())) } else { Swap::Conflict })
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        const OPERATION: &str = "list";
        let Some((from, to)) = table::bounds(prefix) else {
            return Ok(Vec::new());
        };
        let ask = async |mut session: MySqlSession| {
            let query = sqlx::query_as::<_, ListRow>(LIST).bind(from.as_bytes()).bind(to.as_bytes());
            let rows = query.fetch_all(&mut session.sql).await;
            Ok((session.trust(rows, |rows: &Vec<ListRow>| rows.first().map_or(1, |it| it.0)).await?, session))
        };
        let rows = self.pool.call(OPERATION, Effect::Reads, ask).await?;
        let rows = rows.into_iter().map(|(_, name, revision, value)| (name, revision, value));
        Ok(table::records(&self.pool.name, OPERATION, &self.skipped, rows))
    }

    async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
        add::in_one_step(self, key, count, |addend| self.add_once(key, addend)).await
    }

    async fn unix_ms(&self) -> Result<Option<u64>, StoreError> {
        let ask = async |mut session: MySqlSession| {
            let query = sqlx::query_scalar::<_, i64>(UNIX_MS);
            Ok((exactly_one(query.fetch_all(&mut session.sql)).await?, session))
        };
        Ok(u64::try_from(self.pool.call("unix_ms", Effect::Reads, ask).await?).ok())
    }

    fn may_lose(&self) -> Duration {
        self.pool.may_lose
    }

    fn skipped(&self) -> Vec<String> {
        self.skipped.all()
    }

    fn server(&self) -> Option<String> {
        self.pool.server()
    }

    async fn warnings(&self) -> Vec<String> {
        let said = self.refused.iter().map(|why| {
            if why.is_temporary() {
                format!("a node with this URL could not have opened the store just now: {why}")
            } else {
                format!("a node with this URL would not start: {why}")
            }
        });
        said.collect()
    }

    fn describe(&self) -> String {
        self.pool.name.clone()
    }
}

impl std::fmt::Debug for MySqlStore {
    /// Omits the settings, which contain a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MySqlStore({})", self.pool.name)
    }
}
