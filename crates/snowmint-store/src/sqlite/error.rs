//! The meaning of an SQLite error for a record, and advice for the operator.
//! A kind that says "nothing was written" is used only if SQLite has certainly rolled the statement back.

use std::io;
use std::path::Path;

use super::files::{self, NotInPlace};
use crate::error::Effect;
use crate::{StoreError, StoreErrorKind};

/// Advice for an invalid file.
pub(super) const RESTORE: &str = "the file is damaged or is not a Snowmint data file; first stop every node that used it and wait until their leases have \
    expired (one lease window), since a backup and a new file both lack the latest leases and would cause duplicates; then \
    restore a backup, or move the file away together with its -wal and -shm files to start with a new one";

/// The cause and the advice of a [`StoreError`] of this backend. The text has all that SQLite said.
#[derive(Debug, thiserror::Error)]
#[error("{found}; {advice}")]
pub(super) struct SqliteCause {
    found: String,
    advice: String,
}

impl SqliteCause {
    pub(super) fn new(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { found: found.into(), advice: advice.into() }
    }
}

impl From<NotInPlace> for SqliteCause {
    fn from(why: NotInPlace) -> Self {
        let NotInPlace::Unknown { path, error } = why else {
            return Self::new(
                "the file, its -wal or its -shm was moved, deleted or replaced while in use",
                "put the same files back, or stop every node that used them, wait until their leases have expired \
                 (one lease window), and restart",
            );
        };
        let found = format!("cannot check whether {} is still the file in use: {error}", path.display());
        let folder = path.parent().unwrap_or(&path).display();
        let advice = if error.kind() == io::ErrorKind::PermissionDenied {
            format!("give {} access to {folder} again; no restart is needed", files::user())
        } else {
            format!("check the disk that holds {folder}")
        };
        Self::new(found, advice)
    }
}

/// Returns the name of this store in logs and errors.
pub(super) fn describe(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

/// Turns an error of SQLite, or of the thread that runs it, into one of a store.
pub(super) fn store_error(
    path: &Path,
    operation: &'static str,
    effect: Effect,
    error: &sqlx::Error,
) -> StoreError {
    let kind = kind(error, effect, path);
    let found = match error.as_database_error() {
        Some(said) => {
            format!("SQLite says \"{}\" (code {})", said.message(), code(error).unwrap_or_default())
        }
        None => error.to_string(),
    };
    let cause = SqliteCause { found, advice: advice(kind, path) };
    StoreError::new(kind, operation, describe(path), cause)
}

/// Returns whether another process held the file, so that a retry may succeed a moment later.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(primary(error), Some(primary::BUSY | primary::LOCKED | primary::PROTOCOL))
}

/// The primary result codes that are distinguished: <https://www.sqlite.org/rescode.html>.
mod primary {
    pub(super) const PERM: i32 = 3;
    pub(super) const BUSY: i32 = 5;
    pub(super) const LOCKED: i32 = 6;
    pub(super) const NOMEM: i32 = 7;
    pub(super) const READONLY: i32 = 8;
    pub(super) const IOERR: i32 = 10;
    pub(super) const CORRUPT: i32 = 11;
    pub(super) const FULL: i32 = 13;
    pub(super) const CANTOPEN: i32 = 14;
    pub(super) const PROTOCOL: i32 = 15;
    pub(super) const NOTADB: i32 = 26;
}

/// No space for the shared memory beside the file: 19 as the second byte of an I/O error.
const IOERR_SHMSIZE: i32 = primary::IOERR | (19 << 8);

/// The extended result code.
fn code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}

fn primary(error: &sqlx::Error) -> Option<i32> {
    code(error).map(|it| it & 0xff)
}

fn kind(error: &sqlx::Error, effect: Effect, path: &Path) -> StoreErrorKind {
    let Some(primary) = primary(error) else {
        return kind_without_code(error, effect);
    };
    match primary {
        // Also at a commit: SQLite reports it while it writes to the log, and those frames count only with
        // the last one, which is then missing or torn. A failed sync of a complete log is IOERR.
        primary::FULL => StoreErrorKind::Full,
        primary::CORRUPT | primary::NOTADB => StoreErrorKind::Corrupt,
        primary::READONLY | primary::PERM => StoreErrorKind::ReadOnly,
        primary::CANTOPEN if files::write_problem(path).is_some() => StoreErrorKind::ReadOnly,
        // These two can happen between the log on disk and its index in memory: a commit that no process sees
        // now becomes visible when the log is next recovered.
        primary::IOERR | primary::NOMEM if effect == Effect::Writes => StoreErrorKind::OutcomeUnknown,
        primary::IOERR if code(error) == Some(IOERR_SHMSIZE) => StoreErrorKind::Full,
        primary::BUSY
        | primary::LOCKED
        | primary::PROTOCOL
        | primary::CANTOPEN
        | primary::IOERR
        | primary::NOMEM => StoreErrorKind::Unavailable,
        _ => StoreErrorKind::Other,
    }
}

/// Returns the kind of errors of the layer above SQLite: the thread that runs the statements, and decoding of
/// its rows.
fn kind_without_code(error: &sqlx::Error, effect: Effect) -> StoreErrorKind {
    match error {
        // A write whose row cannot be decoded has still happened.
        _ if effect == Effect::Writes => StoreErrorKind::OutcomeUnknown,
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => StoreErrorKind::Corrupt,
        _ => StoreErrorKind::Other,
    }
}

fn advice(kind: StoreErrorKind, path: &Path) -> String {
    let file = path;
    let folder = path.parent().unwrap_or(path).display();
    let path = path.display();
    match kind {
        StoreErrorKind::Unavailable => {
            format!("retry; `fuser -v {path}` shows which processes use the file")
        }
        StoreErrorKind::OutcomeUnknown => format!("check the disk that holds {folder}"),
        StoreErrorKind::ReadOnly => read_only_advice(file),
        StoreErrorKind::Full => format!("free space on the disk that holds {folder}"),
        StoreErrorKind::Corrupt => RESTORE.to_owned(),
        // A file has no second server.
        StoreErrorKind::SplitBrain | StoreErrorKind::AnotherStore | StoreErrorKind::Other => {
            format!("check that {path} is a file that this process can use")
        }
    }
}

/// Returns advice for a read-only file. It names another owner first, since that user's nodes may be fine.
pub(super) fn read_only_advice(path: &Path) -> String {
    let user = files::user();
    let rights = format!("make the file and its folder writable for {user}, or use another --data");
    match files::owner_with_more_rights(path) {
        Some(owner) => format!("run this as the owner, {owner}; or {rights}"),
        None => rights,
    }
}
