//! Records as rows of one PostgreSQL table, each written by a single statement. Each message sets the
//! settings that it depends on, so that a commit is on disk before it is acknowledged, whatever the server's
//! defaults.

mod connect;
mod error;
mod session;

use std::num::NonZeroU64;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{FromRow, Row};

use self::session::{PostgresSession, bytes, name};
use crate::error::Effect;
use crate::net::Confirmation;
use crate::net::url::Password;
use crate::sql::pool::Pool;
use crate::sql::table;
use crate::store::{SkippedRecords, add};
use crate::{Expected, Key, OpenError, Revision, Store, StoreError, Swap, UrlError, Versioned};

/// The settings of a session. They may contain the password, so they are never shown.
struct PostgresSettings {
    options: PgConnectOptions,
    password: Password,
    /// The name on the server of all sessions whose calls have the same limit.
    sessions: String,
    limit: Duration,
    /// Whether to refuse a server that does not sync to its disk.
    must_keep: bool,
}

/// The fence of a read: one row, and a commit that waits for the synchronous standbys if there are any.
///
/// A write becomes visible on the primary when its wait for the standbys ends, even if it ends because its
/// session was terminated or cancelled, or the server restarted. A read would then show rows that a promoted
/// standby lacks. So a read writes a message to the write-ahead log (WAL), which has no effect on data, and
/// commits. A snapshot shows only rows whose commits are already in the log; the commit of the message comes
/// after them; and a standby confirms the log up to a position. So a read whose commit is confirmed has shown
/// only rows that the standbys have.
///
/// Writes need no fence: each replaces, under the row's lock, a version whose commit is earlier in the log
/// than its own, so the confirmation of the later commit covers the earlier one. A conflict needs none, since
/// its caller may only load.
///
/// The join is an outer join, since a missing record needs the fence too: otherwise a primary that its
/// standby has replaced would keep reporting it as missing. The same statement reads the setting. The first
/// read after standbys were required covers the writes from before.
const FENCE: &str = "(SELECT CASE WHEN current_setting('synchronous_standby_names') <> '' \
    THEN pg_logical_emit_message(true, 'snowmint', ''::text) END AS place) AS fence";

/// The table, for the node or a DBA to create.
const TABLE: &str = r#"CREATE TABLE snowmint_records (
    name text COLLATE "C" PRIMARY KEY,
    revision bigint NOT NULL,
    value bytea NOT NULL
)"#;

const UNIX_MS: &str = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// A store in a PostgreSQL database, version 12 or later.
///
/// Records are rows of the table `snowmint_records`, which is created when the store is first opened. A user
/// who may not create tables needs `SELECT`, `INSERT` and `UPDATE` on an existing one;
/// [`schema`](crate::schema) shows it.
///
/// An open store stays with the table that the `search_path` of its user found first. A `search_path` with
/// two such tables is refused, since other nodes may have found the other one.
///
/// Each write is one statement and one commit, with `synchronous_commit` on. A hot standby is refused.
///
/// # Failover
///
/// If `synchronous_standby_names` is set, each write and each read waits until the standbys have confirmed
/// it. So a node never relies on a row that a promoted standby lacks. This holds even if the session that
/// wrote it was cancelled or terminated while it waited, or if the primary restarted. A read then costs a
/// commit, about as much as a write; without synchronous standbys it costs none. While a required standby is
/// away, reads fail as writes do. Requirements:
///
/// - Every commit waits for each standby that may be promoted: `FIRST 1 (s1)` with one standby,
///   `ANY 2 (s1, s2)` with two. With fewer, such as `ANY 1 (s1, s2)`, the failover has to choose the standby
///   that has received most, and stop the old primary first.
/// - An operator who empties `synchronous_standby_names` while a standby is away does not promote that
///   standby.
/// - PostgreSQL 13.21, 14.18, 15.13, 16.9, 17.5 or later: earlier versions may acknowledge without the
///   standby just after a restart.
/// - A pooler in between, such as `PgBouncer`, pools sessions (`pool_mode = session`). If it pools
///   transactions, calls fail, since the next session may be on another server. The store leaves a shared
///   session unchanged.
///
/// With asynchronous standbys, a failover loses the newest writes: state how much as
/// [`may_lose`](Store::may_lose).
///
/// A failover should stop the old primary. If the old primary returns, two servers accept writes. So with
/// several hosts in the URL, the store asks all of them whenever it connects, and at least every 10 s; if two
/// accept writes, it uses none and the error names both. A server on a lower timeline than this store has
/// seen, or with another database, is refused. A process that starts and reaches only the old primary has
/// seen neither and cannot detect this.
///
/// A call takes at most `timeout_ms`, including connecting. Up to 4 statements run at once, each on a
/// connection of its own; the next call replaces a broken connection.
///
/// # URL
///
/// `postgres://USER:PASSWORD@HOST:PORT,HOST/DATABASE?NAME=VALUE&...`; the default port is 5432. Of several
/// hosts, the store uses the primary.
///
/// | parameter | meaning |
/// |---|---|
/// | `password_file` | a file whose first line is the password; read for each connection |
/// | `sslmode` | `disable`, `allow`, `prefer` (the default), `require`, `verify-ca` or `verify-full` |
/// | `sslrootcert` | a PEM file with authorities to trust besides the system's; without `sslmode` it means `verify-full`, with `require` it means `verify-ca` |
/// | `sslcert`, `sslkey` | PEM files with a client certificate and its key |
/// | `socket` | the folder of a local socket to use instead of a host; its name includes the port |
/// | `may_lose` | how much of the newest writes a failover may lose, such as `2s`; default 0; see [`Store::may_lose`] |
/// | `durable` | `no` accepts a server with `fsync` off, which is refused otherwise |
/// | `timeout_ms` | the limit of a call, default 5000 |
///
/// # Cancel safety
///
/// A dropped [`compare_and_set`](Store::compare_and_set) closes its connection. The server may still execute
/// a statement that was sent.
///
/// # Logs
///
/// The store needs the server's warnings, which `sqlx` reports only through `tracing`. So opening a store
/// fails in a build with the feature `max_level_off` or `max_level_error` of `tracing` (or their `release_`
/// forms).
pub struct PostgresStore {
    pool: Pool<PostgresSettings>,
    /// The table with its schema: the `search_path` may change while the store is open.
    table: String,
    skipped: SkippedRecords,
}

impl PostgresStore {
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
    /// - [`OpenError::Store`], [`ReadOnly`](crate::StoreErrorKind::ReadOnly): only standbys were found, or
    ///   the table is missing and the user may not create it.
    /// - [`OpenError::Store`], [`SplitBrain`](crate::StoreErrorKind::SplitBrain): two servers accept writes.
    /// - [`OpenError::Store`], [`Other`](crate::StoreErrorKind::Other): wrong password, no such database, an
    ///   untrusted certificate, a table of another program, or two tables of that name in the `search_path`.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let pool = PostgresSettings::parse(url)?;
        let table = connect::prepare_table(&pool).await?;
        Ok(Self { pool, table, skipped: SkippedRecords::default() })
    }

    /// Adds in one statement, unless the sum is out of range. Returns `None` if the record holds no number,
    /// or a number that is too large.
    async fn add_once(&self, key: &Key, addend: i64) -> Result<Option<u64>, StoreError> {
        let (name, step, first) =
            (name(key.as_str()), Revision::random_step(), bytes(addend.to_string().as_bytes()));
        let table = &self.table;
        // Uses CASE because the order of conditions joined by AND is not fixed.
        let add = format!(
            "INSERT INTO {table} AS old (name, revision, value) VALUES ({name}, {step}, {first}) \
             ON CONFLICT (name) DO UPDATE SET revision = old.revision + {step}, \
                 value = convert_to((encode(old.value, 'escape')::bigint + {addend})::text, 'UTF8') \
             WHERE CASE WHEN encode(old.value, 'escape') ~ '^(0|[1-9][0-9]{{0,18}})$' \
                 THEN encode(old.value, 'escape')::numeric + {addend} <= 9223372036854775807 ELSE false END \
             RETURNING encode(value, 'escape')::bigint - {addend}"
        );
        let before = rows::<(i64,)>(&self.pool, add::OPERATION, Effect::Writes, &add).await?;
        Ok(before.first().map(|row| row.0.cast_unsigned()))
    }

    /// Returns the rows of a fenced read. The first column says whether the server has standbys to wait for.
    async fn fenced<T>(&self, operation: &'static str, what: &str) -> Result<Vec<T>, StoreError>
    where
        T: for<'r> FromRow<'r, PgRow> + Send,
    {
        let statement = format!("SELECT place IS NOT NULL, {what}");
        let ask = async |mut session: PostgresSession| {
            let rows = session.rows(&statement).await?;
            let fenced = rows.first().map(|row| row.try_get::<bool, _>(0)).transpose()?;
            let rows = rows.iter().map(T::from_row).collect::<Result<_, _>>()?;
            session.confirmation = fenced.map(confirmation);
            Ok((rows, session))
        };
        self.pool.call(operation, Effect::Reads, ask).await
    }
}

/// Returns the rows of a statement.
async fn rows<T>(
    pool: &Pool<PostgresSettings>,
    operation: &'static str,
    effect: Effect,
    statement: &str,
) -> Result<Vec<T>, StoreError>
where
    T: for<'r> FromRow<'r, PgRow> + Send,
{
    let ask = async |mut session: PostgresSession| {
        let rows = session.rows(statement).await?;
        Ok((rows.iter().map(T::from_row).collect::<Result<_, _>>()?, session))
    };
    pool.call(operation, effect, ask).await
}

/// Returns whether standbys confirm commits.
const fn confirmation(has_synchronous_standbys: bool) -> Confirmation {
    if has_synchronous_standbys { Confirmation::ByReplicas } else { Confirmation::Nobody }
}

/// Whether the read is fenced; then name, revision and value, all empty if there is no record.
type ListRow = (bool, Option<Vec<u8>>, Option<i64>, Option<Vec<u8>>);

/// Returns the `may_lose` of a URL without connecting.
pub(crate) fn may_lose(url: &str) -> Result<Duration, UrlError> {
    PostgresSettings::parse(url).map(|pool| pool.may_lose)
}

/// Returns the SQL that a DBA runs for a store of this URL.
pub(crate) fn schema(url: &str) -> Result<String, UrlError> {
    PostgresSettings::parse(url)?;
    Ok(format!(
        "{TABLE};\n-- and for the user of the nodes:\n-- GRANT SELECT, INSERT, UPDATE ON snowmint_records TO ...;\n"
    ))
}

#[async_trait]
impl Store for PostgresStore {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        const OPERATION: &str = "load";
        let load =
            format!("revision, value FROM {FENCE} LEFT JOIN {} ON name = {}", self.table, name(key.as_str()));
        let rows = self.fenced::<(bool, Option<i64>, Option<Vec<u8>>)>(OPERATION, &load).await?;
        let row = rows.into_iter().next().and_then(|(_, revision, value)| revision.zip(value));
        row.map(|(revision, value)| table::record(&self.pool.name, OPERATION, revision, value)).transpose()
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        let Some((before, after)) = expected.before_and_after() else {
            return Ok(Swap::Conflict);
        };
        let (table, name, value) = (&self.table, name(key.as_str()), bytes(value));
        let write = if before == 0 {
            format!(
                "INSERT INTO {table} (name, revision, value) VALUES ({name}, {after}, {value}) \
                 ON CONFLICT (name) DO NOTHING"
            )
        } else {
            format!(
                "UPDATE {table} SET revision = {after}, value = {value} \
                 WHERE name = {name} AND revision = {before}"
            )
        };
        let ask = async |mut session: PostgresSession| Ok((session.execute(&write).await?, session));
        let done = self.pool.call("compare_and_set", Effect::Writes, ask).await?;
        Ok(if done.rows_affected() == 1 {
            Swap::Done(Revision(after.cast_unsigned()))
        } else {
            Swap::Conflict
        })
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        const OPERATION: &str = "list";
        let Some((from, to)) = table::bounds(prefix) else {
            return Ok(Vec::new());
        };
        // Bytes, since a server without an encoding (SQL_ASCII) refuses to send a name that is not UTF-8.
        let list = format!(
            "convert_to(name, 'SQL_ASCII'), revision, value FROM {FENCE} LEFT JOIN {} ON name >= {} AND name < {} ORDER BY name",
            self.table,
            name(&from),
            name(&to)
        );
        let rows = self.fenced::<ListRow>(OPERATION, &list).await?;
        let rows = rows.into_iter().map(|(_, name, revision, value)| (name, revision, value));
        Ok(table::records(&self.pool.name, OPERATION, &self.skipped, rows))
    }

    async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
        add::in_one_step(self, key, count, |addend| self.add_once(key, addend)).await
    }

    async fn unix_ms(&self) -> Result<Option<u64>, StoreError> {
        let time = rows::<(i64,)>(&self.pool, "unix_ms", Effect::Reads, UNIX_MS).await?;
        Ok(time.first().and_then(|row| u64::try_from(row.0).ok()))
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

    fn describe(&self) -> String {
        self.pool.name.clone()
    }

    /// Also shows the schema that the `search_path` leads to.
    fn place(&self) -> String {
        format!("{}?table={}", self.pool.name, self.table)
    }
}

impl std::fmt::Debug for PostgresStore {
    /// Omits the settings, which contain a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PostgresStore({})", self.pool.name)
    }
}
