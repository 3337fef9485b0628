//! Records in one SQLite file that several processes of a machine may share.
//! Each write is one statement, so a process can die at any instant and leave the old record or the new one.

mod connect;
mod error;
mod files;

use std::num::NonZeroU64;
use std::path::Path;

use async_trait::async_trait;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::{Mutex, MutexGuard};

use self::error::{SqliteCause, store_error};
use self::files::Files;
use crate::error::Effect;
use crate::store::{SkippedRecords, add};
use crate::{Expected, Key, Revision, Store, StoreError, StoreErrorKind, Swap, Versioned, Visibility, sql};

const LOAD: &str = "SELECT revision, value FROM snowmint_records WHERE key = ?1";
const LIST: &str = "SELECT CAST(key AS BLOB), revision, value FROM snowmint_records WHERE key >= ?1 AND key < ?2 ORDER BY key";
const INSERT: &str =
    "INSERT INTO snowmint_records (key, revision, value) VALUES (?1, ?2, ?3) ON CONFLICT (key) DO NOTHING";
const UPDATE: &str = "UPDATE snowmint_records SET revision = ?2, value = ?3 WHERE key = ?1 AND revision = ?4";
/// Adds ?2 to a number of at most ?3. A value is a number if converting it to INTEGER and back does not
/// change it.
const ADD: &str = "INSERT INTO snowmint_records (key, revision, value) VALUES (?1, ?4, CAST(CAST(?2 AS TEXT) AS BLOB)) \
    ON CONFLICT (key) DO UPDATE SET revision = revision + ?4, \
        value = CAST(CAST(CAST(CAST(value AS TEXT) AS INTEGER) + ?2 AS TEXT) AS BLOB) \
    WHERE CAST(CAST(CAST(CAST(value AS TEXT) AS INTEGER) AS TEXT) AS BLOB) = value \
        AND CAST(CAST(value AS TEXT) AS INTEGER) BETWEEN 0 AND ?3 \
    RETURNING CAST(CAST(value AS TEXT) AS INTEGER) - ?2";

/// A store in one SQLite file.
///
/// Several processes of one machine may use the file at once, and so may containers that share its *folder*:
/// SQLite keeps a `-wal` and a `-shm` file beside it, so never mount or copy the file alone while it is in
/// use. Network file systems are not supported.
///
/// One connection serves all calls in turn; each is short. A call waits up to 5 s for other processes.
///
/// If the file or one of its two companions is moved, deleted or replaced while it is open, every call fails
/// until the same files are back: no other process would see what SQLite writes to the old ones. The same
/// applies while this process may not look whether they are there.
///
/// # Cancel safety
///
/// Statements run on a thread of their own and are not interrupted when a future is dropped: a dropped
/// [`compare_and_set`](Store::compare_and_set) may still write, a moment later, the whole record or nothing.
/// The next call runs after it.
#[derive(Debug)]
pub struct SqliteStore {
    files: Files,
    connection: Mutex<SqliteConnection>,
    skipped: SkippedRecords,
}

impl SqliteStore {
    /// Opens the file, or creates it with the missing folders above it (mode 0700).
    ///
    /// A file of length 0 counts as new. Any number of processes may open a new file at the same instant.
    /// Takes a few milliseconds; waits up to 10 s while other processes hold the file locked. Needs a Tokio
    /// runtime with its timer enabled.
    ///
    /// # Errors
    ///
    /// - [`StoreErrorKind::Corrupt`]: not an SQLite file, or a damaged one.
    /// - [`StoreErrorKind::Other`]: the file of another program or of a newer Snowmint, which is not changed;
    ///   a folder in place of the file; a file system on which processes cannot share it.
    /// - [`StoreErrorKind::ReadOnly`], [`StoreErrorKind::Full`], [`StoreErrorKind::Unavailable`]: as their
    ///   names say.
    ///
    /// # Cancel safety
    ///
    /// A dropped future leaves at most an empty file behind, which the next call uses.
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint_store::{SqliteStore, Store};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let folder = tempfile::tempdir()?;
    /// let store = SqliteStore::open(&folder.path().join("leases.db")).await?;
    /// assert!(store.list("").await?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        connect::open(path).await.map(Self::of)
    }

    /// Opens a file for reading, even if it is read-only: every write then fails with
    /// [`StoreErrorKind::ReadOnly`]. Creates and changes nothing.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open); also if the file has a write-ahead log that cannot be shared without
    /// writing.
    pub async fn open_to_read(path: &Path) -> Result<Self, StoreError> {
        connect::open_to_read(path).await.map(Self::of)
    }

    fn of((files, connection): (Files, SqliteConnection)) -> Self {
        Self { files, connection: Mutex::new(connection), skipped: SkippedRecords::default() }
    }

    /// Locks the connection, unless other processes would open different files by now.
    async fn connection(
        &self,
        operation: &'static str,
    ) -> Result<MutexGuard<'_, SqliteConnection>, StoreError> {
        let connection = self.connection.lock().await;
        self.check_in_place(operation, StoreErrorKind::Other)?;
        Ok(connection)
    }

    fn check_in_place(&self, operation: &'static str, kind: StoreErrorKind) -> Result<(), StoreError> {
        let checked = self.files.check_in_place();
        checked.map_err(|why| StoreError::new(kind, operation, self.describe(), SqliteCause::from(why)))
    }

    fn error(&self, operation: &'static str, effect: Effect, error: &sqlx::Error) -> StoreError {
        store_error(self.files.path(), operation, effect, error)
    }

    /// Adds in one statement. Returns `None` if the record holds no number, or a number that is too large.
    async fn add_once(&self, key: &Key, addend: i64) -> Result<Option<u64>, StoreError> {
        let mut connection = self.connection(add::OPERATION).await?;
        let query = sqlx::query_scalar::<_, i64>(ADD).bind(key.as_str()).bind(addend).bind(i64::MAX - addend);
        let query = query.bind(Revision::random_step());
        let before = sql::at_most_one(query.fetch_all(&mut *connection)).await;
        let before = before.map_err(|error| self.error(add::OPERATION, Effect::Writes, &error))?;
        self.check_in_place(add::OPERATION, StoreErrorKind::OutcomeUnknown)?;
        Ok(before.map(i64::cast_unsigned))
    }

    /// Builds a record from a row. SQLite has checked its types but not its ranges.
    fn record(
        &self,
        operation: &'static str,
        revision: i64,
        value: Vec<u8>,
    ) -> Result<Versioned, StoreError> {
        match Revision::from_database(revision) {
            Some(revision) => Ok(Versioned { value, revision }),
            None => Err(self.invalid_row(operation, format!("a record has revision {revision}"))),
        }
    }

    fn invalid_row(&self, operation: &'static str, found: String) -> StoreError {
        let cause = SqliteCause::new(found, error::RESTORE);
        StoreError::new(StoreErrorKind::Corrupt, operation, self.describe(), cause)
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        const OPERATION: &str = "load";
        let mut connection = self.connection(OPERATION).await?;
        let query = sqlx::query_as::<_, (i64, Vec<u8>)>(LOAD).bind(key.as_str());
        let row = sql::at_most_one(query.fetch_all(&mut *connection)).await;
        self.check_in_place(OPERATION, StoreErrorKind::Other)?;
        let row = row.map_err(|error| self.error(OPERATION, Effect::Reads, &error))?;
        row.map(|(revision, value)| self.record(OPERATION, revision, value)).transpose()
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        const OPERATION: &str = "compare_and_set";
        let Some((statement, before, after)) = write_statement(expected) else {
            return Ok(Swap::Conflict);
        };
        let mut connection = self.connection(OPERATION).await?;
        let query = sqlx::query(statement).bind(key.as_str()).bind(after).bind(value);
        let query = if before == 0 { query } else { query.bind(before) };
        let done = query.execute(&mut *connection).await;
        let done = done.map_err(|error| self.error(OPERATION, Effect::Writes, &error))?;
        // Check after the write too: only then is it certain that the write went to the file that others
        // read.
        self.check_in_place(OPERATION, StoreErrorKind::OutcomeUnknown)?;
        Ok(if done.rows_affected() == 1 {
            Swap::Done(Revision(after.cast_unsigned()))
        } else {
            Swap::Conflict
        })
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        const OPERATION: &str = "list";
        let mut connection = self.connection(OPERATION).await?;
        let query = sqlx::query_as::<_, (Vec<u8>, i64, Vec<u8>)>(LIST).bind(prefix).bind(Key::end_of(prefix));
        let rows = query.fetch_all(&mut *connection).await;
        self.check_in_place(OPERATION, StoreErrorKind::Other)?;
        let rows = rows.map_err(|error| self.error(OPERATION, Effect::Reads, &error))?;
        let mut records = Vec::with_capacity(rows.len());
        for (name, revision, value) in rows {
            let key = Key::of_bytes(&name).map_err(|error| self.invalid_row(OPERATION, error.to_string()));
            match key.and_then(|key| Ok((key, self.record(OPERATION, revision, value)?))) {
                Ok(record) => records.push(record),
                Err(error) => self.skipped.note(&name, &error.to_string()),
            }
        }
        Ok(records)
    }

    async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
        add::in_one_step(self, key, count, |addend| self.add_once(key, addend)).await
    }

    async fn checkpoint(&self) -> Result<(), StoreError> {
        const OPERATION: &str = "checkpoint";
        let mut connection = self.connection(OPERATION).await?;
        let query = sqlx::query_as::<_, (i64, i64, i64)>("PRAGMA wal_checkpoint(TRUNCATE)");
        let done = sql::exactly_one(query.fetch_all(&mut *connection)).await;
        let (busy, ..) = done.map_err(|error| self.error(OPERATION, Effect::Reads, &error))?;
        if busy == 0 {
            return Ok(());
        }
        let cause = SqliteCause::new("another process uses the file", "stop every process that uses it");
        Err(StoreError::new(StoreErrorKind::Unavailable, OPERATION, self.describe(), cause))
    }

    fn visibility(&self) -> Visibility {
        Visibility::Machine
    }

    fn skipped(&self) -> Vec<String> {
        self.skipped.all()
    }

    fn describe(&self) -> String {
        error::describe(self.files.path())
    }

    fn place(&self) -> String {
        let path = self.files.path();
        error::describe(&path.canonicalize().unwrap_or_else(|_| path.to_owned()))
    }
}

/// Returns the SQL that creates the objects in the file at this path.
#[allow(clippy::unnecessary_wraps, reason = "as for every store")]
pub(crate) fn schema(path: &Path) -> Result<String, crate::UrlError> {
    let (table, id) = (connect::TABLE, connect::APPLICATION_ID);
    Ok(format!("-- In the file {}:\n{table};\nPRAGMA application_id = {id};\n", path.display()))
}

/// Returns the statement for a write, with the revisions before and after it; before is 0 if there was no
/// record.
///
/// `None` for a revision that no record here can have, or that none can follow.
fn write_statement(expected: Expected) -> Option<(&'static str, i64, i64)> {
    let (before, after) = expected.before_and_after()?;
    Some((if before == 0 { INSERT } else { UPDATE }, before, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the settings that make a write durable and shared are in effect. Method: query the connection
    /// itself.
    #[tokio::test]
    async fn the_connection_syncs_every_commit_and_waits_for_others() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("leases.db")).await.unwrap();
        let mut connection = store.connection.lock().await;
        let ask = "SELECT (SELECT * FROM pragma_synchronous), (SELECT * FROM pragma_journal_mode), \
                   (SELECT * FROM pragma_busy_timeout), (SELECT * FROM pragma_application_id), \
                   (SELECT * FROM pragma_user_version)";
        let found: (i64, String, i64, i64, i64) =
            sql::exactly_one(sqlx::query_as(ask).fetch_all(&mut *connection)).await.unwrap();
        assert_eq!(found, (2, "wal".to_owned(), 5000, i64::from(connect::APPLICATION_ID), 1));
    }
}
