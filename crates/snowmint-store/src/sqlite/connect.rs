//! From a path to a connection: whose file it is, whether it is sound, and who creates it when many processes start at once.
//! A file that is not Snowmint's is only read.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

use super::error::{Cause, RESTORE, describe, is_busy, read_only_advice, store_error};
use super::file::{self, Files};
use crate::error::Effect;
use crate::sql::exactly_one;
use crate::{StoreError, StoreErrorKind};

/// Marks a file as ours in SQLite's header: "Snmt".
pub(super) const APPLICATION_ID: i32 = 0x536e_6d74;
/// The version of the table below.
const SCHEMA: i32 = 1;
pub(super) const TABLE: &str = "CREATE TABLE snowmint_records (
    key TEXT NOT NULL PRIMARY KEY,
    revision INTEGER NOT NULL,
    value BLOB NOT NULL
) WITHOUT ROWID, STRICT";

const OPERATION: &str = "open";
/// One page of the smallest size.
const SMALLEST_FILE: u64 = 512;
/// How long SQLite itself waits for another process inside one statement.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long opening may take in all, including retries where SQLite itself does not wait.
const OPEN_WITHIN: Duration = Duration::from_secs(10);
/// The pause after the first collision with another process; it doubles up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(32);

/// Why a file was not opened.
enum Failure {
    Sqlite(sqlx::Error),
    Refused(StoreErrorKind, Cause),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl Failure {
    fn into_store_error(self, path: &Path) -> StoreError {
        match self {
            Self::Sqlite(error) => store_error(path, OPERATION, Effect::Reads, error),
            Self::Refused(kind, cause) => StoreError::new(kind, OPERATION, describe(path), cause),
        }
    }
}

/// Opens the file; creates it and the folders above it if they are missing.
pub(super) async fn open(path: &Path) -> Result<(Files, SqliteConnection), StoreError> {
    let path = prepare(path).map_err(|failure| failure.into_store_error(path))?;
    let connection = match tokio::time::timeout(OPEN_WITHIN, connect_patiently(&path)).await {
        Ok(connection) => connection,
        Err(_) => Err(still_locked()),
    };
    let connection = connection.map_err(|failure| failure.into_store_error(&path))?;
    let files =
        Files::note(path.clone()).map_err(|error| Failure::Sqlite(error.into()).into_store_error(&path))?;
    Ok((files, connection))
}

/// Opens the file to read it, and changes nothing.
pub(super) async fn open_to_read(path: &Path) -> Result<(Files, SqliteConnection), StoreError> {
    let opened = async {
        let path = std::path::absolute(path).map_err(sqlx::Error::from)?;
        let connection = connect_to_read(&path).await?;
        let files = Files::note_what_is_there(path).map_err(sqlx::Error::from)?;
        Ok((files, connection))
    };
    opened.await.map_err(|failure: Failure| failure.into_store_error(path))
}

async fn connect_to_read(path: &Path) -> Result<SqliteConnection, Failure> {
    let options = options(path).create_if_missing(false).read_only(true);
    // Without a log no process has the file open, so it is read as it is.
    let options = options.immutable(!file::has_log(path));
    let mut connection = options.connect().await?;
    let header = Header::read(&mut connection).await?;
    header.check()?;
    check_sound(path, header.page_bytes, &mut connection).await?;
    Ok(connection)
}

/// Checks what can be seen from outside, where the reason for a refusal is still clear.
fn prepare(path: &Path) -> Result<PathBuf, Failure> {
    // SQLite gives a meaning of its own to relative names such as `:memory:` and `file:x`.
    let path = std::path::absolute(path).map_err(sqlx::Error::from)?;
    if path.is_dir() {
        let found = format!("{} is a folder", path.display());
        let advice = format!("name a file, such as {}", path.join("leases.db").display());
        return Err(Failure::Refused(StoreErrorKind::Other, Cause::new(found, advice)));
    }
    if let Some(folder) = path.parent().filter(|it| !it.is_dir()) {
        create_folder(folder)?;
    }
    refuse_fragment(&path)?;
    match file::write_problem(&path) {
        Some(found) => Err(Failure::Refused(StoreErrorKind::ReadOnly, Cause::new(found, read_only_advice()))),
        None => Ok(path),
    }
}

/// SQLite takes a file shorter than its header for an empty one, and overwrites it.
fn refuse_fragment(path: &Path) -> Result<(), Failure> {
    match path.metadata().map(|it| it.len()) {
        Ok(bytes @ 1..SMALLEST_FILE) => {
            let found = format!("the file has only {bytes} bytes, expected at least {SMALLEST_FILE}");
            refuse(StoreErrorKind::Corrupt, found, RESTORE)
        }
        _ => Ok(()),
    }
}

fn create_folder(folder: &Path) -> Result<(), Failure> {
    use std::io::ErrorKind;
    let Err(error) = file::create_folder(folder) else {
        return Ok(());
    };
    let found = format!("cannot create the missing folder {}: {error}", folder.display());
    let (kind, advice) = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            (StoreErrorKind::ReadOnly, format!("create it for {}, or use another --data", file::user()))
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            (StoreErrorKind::Full, "free space on that disk".to_owned())
        }
        _ => (StoreErrorKind::Other, "create it, or use another --data".to_owned()),
    };
    Err(Failure::Refused(kind, Cause::new(found, advice)))
}

fn still_locked() -> Failure {
    let found = format!("other processes have kept the file locked for {} s", OPEN_WITHIN.as_secs());
    Failure::Refused(StoreErrorKind::Unavailable, Cause::new(found, "`fuser -v` on the file shows which"))
}

/// Retries while other processes are in the way: SQLite does not wait in all places, such as while one of them switches a
/// new file to its write-ahead log.
async fn connect_patiently(path: &Path) -> Result<SqliteConnection, Failure> {
    let mut pause = FIRST_PAUSE;
    loop {
        match connect(path).await {
            Err(Failure::Sqlite(error)) if is_busy(&error) => tokio::time::sleep(pause).await,
            other => return other,
        }
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

async fn connect(path: &Path) -> Result<SqliteConnection, Failure> {
    let mut connection = options(path).connect().await?;
    match settle(path, &mut connection).await {
        Ok(()) => Ok(connection),
        Err(failure) => {
            // Waits until the file is closed, so that nothing of ours stays beside a file that is refused.
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
        // Finds damage when a page is read, before a wrong answer is made from it.
        .pragma("cell_size_check", "ON")
        // 512 KiB hold thousands of leases.
        .pragma("cache_size", "-512")
        .statement_cache_capacity(8)
        .thread_name(|_| "snowmint-sqlite".to_owned())
        .disable_statement_logging()
}

/// Checks that the file is ours and of a known version, shares it by a write-ahead log, and checks that it is sound.
async fn settle(path: &Path, connection: &mut SqliteConnection) -> Result<(), Failure> {
    let header = Header::read(connection).await?;
    if header.is_blank() {
        create(connection).await?;
    } else {
        header.check()?;
    }
    if header.journal_mode != "wal" {
        use_write_ahead_log(connection).await?;
    }
    // From now on this shows what a process wrote and did not sync before it died: a power loss must not undo it.
    file::sync_log(path).map_err(sqlx::Error::from)?;
    check_sound(path, header.page_bytes, connection).await
}

/// The header of a file.
struct Header {
    application_id: i32,
    user_version: i32,
    journal_mode: String,
    page_bytes: u32,
    /// Tables, indexes and the like.
    objects: i64,
    /// Those of them that are our table: 0 or 1.
    records: i64,
}

impl Header {
    /// One statement, so that one snapshot answers all: a file that is being created is seen as blank or as finished.
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

    fn check(&self) -> Result<(), Failure> {
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

fn refuse(kind: StoreErrorKind, found: String, advice: &str) -> Result<(), Failure> {
    Err(Failure::Refused(kind, Cause::new(found, advice)))
}

/// Creates the table, unless another process was faster: the file is checked again under the lock for writers.
async fn create(connection: &mut SqliteConnection) -> Result<(), Failure> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let header = Header::read(&mut transaction).await?;
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
async fn use_write_ahead_log(connection: &mut SqliteConnection) -> Result<(), Failure> {
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
async fn check_sound(path: &Path, page_bytes: u32, connection: &mut SqliteConnection) -> Result<(), Failure> {
    if let Some(length) = file::cut_length(path, page_bytes.into()) {
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
