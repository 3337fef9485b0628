//! Opens a file and checks it: whether the file is Snowmint's, whether it is intact, and which process
//! creates it when many start at once. The files of other programs are only read.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteLockingMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

use super::error::{RESTORE, SqliteCause, describe, is_busy, read_only_advice, store_error};
use super::files::{
    FileIdentity, Files, NotInPlace, behind_links, beside, create_private_folder, cut_length, has_log,
    identity, lacks_index, names, sync_log, user, write_problem,
};
use crate::error::Effect;
use crate::sql::exactly_one;
use crate::{StoreError, StoreErrorKind};

/// Marks a file as Snowmint's in SQLite's header: "Snmt".
pub(super) const APPLICATION_ID: i32 = 0x536e_6d74;
/// The schema version.
const SCHEMA: i32 = 1;
pub(super) const TABLE: &str = "CREATE TABLE snowmint_records (
    key TEXT NOT NULL PRIMARY KEY,
    revision INTEGER NOT NULL,
    value BLOB NOT NULL
) WITHOUT ROWID, STRICT";

const OPERATION: &str = "open";
/// One page of the smallest size.
const SMALLEST_FILE: u64 = 512;
/// Time that SQLite itself waits for another process within one statement.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The limit for opening, including retries where SQLite itself does not wait.
const OPEN_WITHIN: Duration = Duration::from_secs(10);
/// The pause after the first collision with another process; it doubles up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(32);

const MISSING: &str = "put the file back beside its log; if it is lost, first stop every node that used it and wait until their leases \
    have expired (one lease window), then restore a backup, or move the log away to start with a new file";

/// The reason why a file was not opened.
enum OpenFailure {
    Sqlite(sqlx::Error),
    Refused(StoreErrorKind, SqliteCause),
}

impl From<sqlx::Error> for OpenFailure {
    fn from(error: sqlx::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl OpenFailure {
    fn into_store_error(self, path: &Path) -> StoreError {
        match self {
            Self::Sqlite(error) => store_error(path, OPERATION, Effect::Reads, &error),
            Self::Refused(kind, cause) => StoreError::new(kind, OPERATION, describe(path), cause),
        }
    }
}

/// Opens the file; creates it and the folders above it if they are missing.
pub(super) async fn open(path: &Path) -> Result<(Files, SqliteConnection), StoreError> {
    let path = prepare(path).map_err(|failure| failure.into_store_error(path))?;
    let before = identity(&path).ok();
    let connection = match tokio::time::timeout(OPEN_WITHIN, connect_patiently(&path)).await {
        Ok(connection) => connection,
        Err(_) => {
            let found = format!("other processes have kept the file locked for {} s", OPEN_WITHIN.as_secs());
            refuse(StoreErrorKind::Unavailable, found, "`fuser -v` on the file shows which")
        }
    };
    let connection = connection.map_err(|failure| failure.into_store_error(&path))?;
    let files = Files::note(path.clone())
        .map_err(|error| OpenFailure::Sqlite(error.into()).into_store_error(&path))?;
    refuse_replaced(before, &files).map_err(|failure| failure.into_store_error(&path))?;
    Ok((files, connection))
}

/// Refuses a file that took the place of the one that SQLite has opened, while that was checked.
fn refuse_replaced(before: Option<FileIdentity>, files: &Files) -> Result<(), OpenFailure> {
    match (before, files.watched.first()) {
        (Some(before), Some((_, now))) if before != *now => {
            Err(OpenFailure::Refused(StoreErrorKind::Other, NotInPlace::Moved.into()))
        }
        _ => Ok(()),
    }
}

/// Opens the file for reading, and changes nothing.
pub(super) async fn open_to_read(path: &Path) -> Result<(Files, SqliteConnection), StoreError> {
    let opened = async {
        let path = std::path::absolute(path).map_err(sqlx::Error::from)?;
        let connection = connect_to_read(&path).await?;
        let files = Files::note_what_is_there(path).map_err(sqlx::Error::from)?;
        Ok((files, connection))
    };
    opened.await.map_err(|failure: OpenFailure| failure.into_store_error(path))
}

async fn connect_to_read(path: &Path) -> Result<SqliteConnection, OpenFailure> {
    let options = options(path).create_if_missing(false).read_only(true);
    // Without a log no process has the file open, so it can be read without locks.
    let options = if !has_log(path) {
        options.immutable(true)
    } else if lacks_index(path) {
        // SQLite then makes the index in memory. No process has the file open, and on close this one can
        // change nothing.
        options.vfs("unix-none").locking_mode(SqliteLockingMode::Exclusive)
    } else {
        options
    };
    let mut connection = options.connect().await?;
    let header = SqliteHeader::read(&mut connection).await?;
    header.check()?;
    check_sound(path, header.page_bytes, &mut connection).await?;
    Ok(connection)
}

/// Checks the file from outside, where the reason for a refusal is still clear.
fn prepare(path: &Path) -> Result<PathBuf, OpenFailure> {
    // SQLite interprets some relative names itself, such as `:memory:` and `file:x`.
    let path = std::path::absolute(path).map_err(sqlx::Error::from)?;
    if path.is_dir() {
        let found = format!("{} is a folder", path.display());
        let advice = format!("name a file, such as {}", path.join("leases.db").display());
        return refuse(StoreErrorKind::Other, found, advice);
    }
    if let Some(folder) = path.parent().filter(|it| !it.is_dir()) {
        create_folder(folder)?;
    }
    refuse_fragment(&path)?;
    refuse_log_alone(&path)?;
    refuse_second_name(&path)?;
    match write_problem(&path) {
        Some(found) => refuse(StoreErrorKind::ReadOnly, found, read_only_advice(&path)),
        None => Ok(path),
    }
}

/// SQLite treats a file shorter than its header as empty, and overwrites it.
fn refuse_fragment(path: &Path) -> Result<(), OpenFailure> {
    match path.metadata().map(|it| it.len()) {
        Ok(bytes @ 1..SMALLEST_FILE) => {
            let found = format!("the file has only {bytes} bytes, expected at least {SMALLEST_FILE}");
            refuse(StoreErrorKind::Corrupt, found, RESTORE)
        }
        _ => Ok(()),
    }
}

/// Beside a missing or empty file, SQLite deletes the write-ahead log, with acknowledged writes in it.
fn refuse_log_alone(path: &Path) -> Result<(), OpenFailure> {
    // The log first: a process that creates the file at this moment writes the file before it makes a log.
    if !has_log(path) {
        return Ok(());
    }
    let what = match path.metadata() {
        Ok(file) if file.len() == 0 => "empty",
        Err(error) if error.kind() == io::ErrorKind::NotFound => "missing",
        _ => return Ok(()),
    };
    let log = beside(&behind_links(path), "-wal");
    let found = format!("the file is {what}, but its log {} has writes", log.display());
    refuse(StoreErrorKind::Corrupt, found, MISSING)
}

/// SQLite names the log after the file. Two names of one file would have two logs, and processes that see
/// nothing of each other.
fn refuse_second_name(path: &Path) -> Result<(), OpenFailure> {
    match names(path) {
        Ok(names @ 2..) => {
            let found = format!("the file has {names} names (hard links)");
            let advice = "remove the others: processes that open different names would repeat ids";
            refuse(StoreErrorKind::Other, found, advice)
        }
        _ => Ok(()),
    }
}

fn create_folder(folder: &Path) -> Result<(), OpenFailure> {
    use std::io::ErrorKind;
    let Err(error) = create_private_folder(folder) else {
        return Ok(());
    };
    let found = format!("cannot create the missing folder {}: {error}", folder.display());
    let (kind, advice) = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            (StoreErrorKind::ReadOnly, format!("create it for {}, or use another --data", user()))
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            (StoreErrorKind::Full, "free space on that disk".to_owned())
        }
        _ => (StoreErrorKind::Other, "create it, or use another --data".to_owned()),
    };
    refuse(kind, found, advice)
}

/// Retries while other processes block the file: SQLite does not wait in every case, such as while one of
/// them switches a new file to its write-ahead log.
async fn connect_patiently(path: &Path) -> Result<SqliteConnection, OpenFailure> {
    let mut pause = FIRST_PAUSE;
    loop {
        match connect(path).await {
            Err(OpenFailure::Sqlite(error)) if is_busy(&error) => tokio::time::sleep(pause).await,
            other => return other,
        }
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

async fn connect(path: &Path) -> Result<SqliteConnection, OpenFailure> {
    let mut connection = options(path).connect().await?;
    match settle(path, &mut connection).await {
        Ok(()) => Ok(connection),
        Err(failure) => {
            // Wait until the file is closed, so that no file of ours stays beside a file that is refused.
            connection.close().await.ok();
            Err(failure)
        }
    }
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .busy_timeout(BUSY_TIMEOUT)
        // The write-ahead log is synced at each commit: a lease is on disk before it is used.
        .synchronous(SqliteSynchronous::Full)
        // On macOS a plain sync leaves data in the cache of the drive; elsewhere this does nothing.
        .pragma("fullfsync", "ON")
        // Detects damage when a page is read, before it leads to a wrong answer.
        .pragma("cell_size_check", "ON")
        // 512 KiB hold thousands of leases.
        .pragma("cache_size", "-512")
        .statement_cache_capacity(8)
        .thread_name(|_| "snowmint-sqlite".to_owned())
        .disable_statement_logging()
}

/// Checks that the file is Snowmint's and of a known version, shares it by a write-ahead log, and checks that
/// it is intact.
async fn settle(path: &Path, connection: &mut SqliteConnection) -> Result<(), OpenFailure> {
    let header = SqliteHeader::read(connection).await?;
    if header.is_blank() {
        create(connection).await?;
    } else {
        header.check()?;
    }
    if header.journal_mode != "wal" {
        use_write_ahead_log(connection).await?;
    }
    // From now on the log shows writes that a process did not sync before it died: sync them, so that a power
    // loss cannot undo them.
    sync_log(path).map_err(sqlx::Error::from)?;
    check_sound(path, header.page_bytes, connection).await
}

/// The header of a file.
struct SqliteHeader {
    application_id: i32,
    user_version: i32,
    journal_mode: String,
    page_bytes: u32,
    /// Number of tables, indexes and other objects.
    objects: i64,
    /// Number of tables with the name of ours: 0 or 1.
    records: i64,
}

impl SqliteHeader {
    /// Reads everything in one statement and so in one snapshot: a file that is being created is seen as
    /// blank or as finished.
    async fn read(connection: &mut SqliteConnection) -> Result<Self, sqlx::Error> {
        let query = sqlx::query_as(
            "SELECT (SELECT application_id FROM pragma_application_id), \
             (SELECT user_version FROM pragma_user_version), (SELECT journal_mode FROM pragma_journal_mode), \
             (SELECT page_size FROM pragma_page_size), \
             count(*), count(*) FILTER (WHERE type = 'table' AND name = 'snowmint_records') FROM sqlite_schema",
        );
        let row = exactly_one(query.fetch_all(connection)).await?;
        let (application_id, user_version, journal_mode, page_bytes, objects, records) = row;
        Ok(Self { application_id, user_version, journal_mode, page_bytes, objects, records })
    }

    const fn is_blank(&self) -> bool {
        self.application_id == 0 && self.user_version == 0 && self.objects == 0
    }

    fn check(&self) -> Result<(), OpenFailure> {
        let Self { application_id, user_version, objects, records, .. } = self;
        if *application_id != APPLICATION_ID {
            let found = format!(
                "this is an SQLite file of another program (application id {application_id:#x}, \
                 version {user_version}, {objects} tables and indexes)"
            );
            return refuse(StoreErrorKind::Other, found, "it was not changed; use another --data or --store");
        }
        if *user_version > SCHEMA {
            let found = format!(
                "a newer Snowmint wrote this file (version {user_version}, expected at most {SCHEMA})"
            );
            return refuse(
                StoreErrorKind::Other,
                found,
                "it was not changed; run that release, or use another file",
            );
        }
        if *user_version < 1 || *records != 1 {
            let found =
                format!("the file has version {user_version} and {records} tables of records, expected 1");
            return refuse(StoreErrorKind::Corrupt, found, RESTORE);
        }
        Ok(())
    }
}

fn refuse<T>(kind: StoreErrorKind, found: String, advice: impl Into<String>) -> Result<T, OpenFailure> {
    Err(OpenFailure::Refused(kind, SqliteCause::new(found, advice)))
}

/// Creates the table, unless another process was faster: the file is checked again under the write lock.
async fn create(connection: &mut SqliteConnection) -> Result<(), OpenFailure> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let header = SqliteHeader::read(&mut transaction).await?;
    if !header.is_blank() {
        transaction.rollback().await?;
        return header.check();
    }
    // One transaction, so that a crash leaves a blank file or a finished one.
    let marks = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA}");
    sqlx::query(TABLE).execute(&mut *transaction).await?;
    sqlx::raw_sql(AssertSqlSafe(marks)).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(())
}

/// With a write-ahead log readers do not wait for a writer; the setting stays in the file.
async fn use_write_ahead_log(connection: &mut SqliteConnection) -> Result<(), OpenFailure> {
    let query = sqlx::query_scalar("PRAGMA journal_mode = WAL");
    let mode: String = exactly_one(query.fetch_all(connection)).await?;
    if mode == "wal" {
        return Ok(());
    }
    let found =
        format!("the file system cannot share a write-ahead log between processes (journal mode {mode})");
    refuse(StoreErrorKind::Other, found, "use a local disk, not a network file system")
}

/// Reads the whole file once: a record lost to damage would be a lease granted twice.
async fn check_sound(
    path: &Path,
    page_bytes: u32,
    connection: &mut SqliteConnection,
) -> Result<(), OpenFailure> {
    if let Some(length) = cut_length(path, page_bytes.into()) {
        let found = format!("the file ends inside a page, after {length} bytes");
        return refuse(StoreErrorKind::Corrupt, found, RESTORE);
    }
    let query = sqlx::query_scalar("PRAGMA quick_check(1)");
    let verdict: String = exactly_one(query.fetch_all(connection)).await?;
    if verdict == "ok" {
        return Ok(());
    }
    // The first line names the database, the last the damage.
    let damage = verdict.lines().last().unwrap_or_default();
    refuse(StoreErrorKind::Corrupt, format!("SQLite's check says \"{damage}\""), RESTORE)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// Goal: a file that is replaced while it is opened is refused; a new file, or the same one, is not.
    /// Method: rename another file over it before the files are noted.
    #[test]
    fn a_file_that_is_replaced_while_it_is_opened_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        for name in ["leases.db", "leases.db-wal", "leases.db-shm", "other.db"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let before = identity(&path).ok();
        let noted = || Files::note(path.clone()).unwrap();
        assert!(refuse_replaced(before, &noted()).is_ok());
        std::fs::rename(folder.path().join("other.db"), &path).unwrap();
        assert!(refuse_replaced(before, &noted()).is_err());
        assert!(refuse_replaced(None, &noted()).is_ok());
    }
}
