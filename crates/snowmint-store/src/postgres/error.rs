//! The meaning of a PostgreSQL error for a record, and advice for the operator.
//! An ERROR undoes its statement; a FATAL error, or a broken connection, may come after the commit.

use std::fmt;
use std::time::Duration;

use sqlx::postgres::{PgDatabaseError, PgSeverity};

use super::TABLE;
use crate::error::{Effect, chain};
use crate::net::HostRefusal;
use crate::sql::{SqlFailure, connection_error_kind};
use crate::{StoreError, StoreErrorKind};

/// The loss has no time limit, so no `may_lose` covers it.
pub(super) const FSYNC_OFF: &str = "does not wait for its disk (fsync off): a crash of the machine may lose any committed write and cause \
    duplicates; set fsync on, or accept the loss with durable=no";

/// The error text of a statement's guard on a server that no longer syncs its commits.
pub(super) const NOT_SYNCED: &str = "\"fsync is off\"";

/// Turns a failed statement into the error of a store.
pub(super) fn store_error(
    store: &str,
    operation: &'static str,
    effect: Effect,
    failure: SqlFailure,
) -> StoreError {
    let (kind, text) = match failure {
        SqlFailure::NotSent(HostRefusal { kind, text }) | SqlFailure::Refused(HostRefusal { kind, text }) => {
            (kind, text)
        }
        SqlFailure::Late(limit) => (effect.unanswered(), late(limit)),
        SqlFailure::Sql(error) => match database_error(&error) {
            // The guard failed, so the statement was not executed.
            Some(said) if said.code() == "22P02" && said.message().contains(NOT_SYNCED) => {
                (StoreErrorKind::Other, format!("the server {FSYNC_OFF}"))
            }
            Some(said) => (statement_kind(said, effect), quote(said, advice(said.code()))),
            None => match Unconfirmed::within(&error) {
                Some(unconfirmed) => (effect.unanswered(), unconfirmed.to_string()),
                None => (connection_error_kind(&error, effect), chain(&error)),
            },
        },
    };
    StoreError::new(kind, operation, store, text)
}

/// Returns the error for a missing table that the user may not create, with the SQL that a DBA has to run.
pub(super) fn table_is_missing(store: &str, failure: SqlFailure) -> StoreError {
    if let SqlFailure::Sql(error) = &failure
        && let Some(said) = database_error(error).filter(|it| it.code() == "42501")
    {
        let table = TABLE.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = quote(said, &format!("let a user with that right run: {table}"));
        return StoreError::new(StoreErrorKind::ReadOnly, "open", store, text);
    }
    store_error(store, "open", Effect::Reads, failure)
}

/// Turns an error before the first statement into the reason why there is no connection.
pub(super) fn refusal(error: &sqlx::Error) -> HostRefusal {
    match database_error(error) {
        Some(said) => HostRefusal::new(login_kind(said.code()), quote(said, advice(said.code()))),
        None => HostRefusal::new(connection_error_kind(error, Effect::Reads), chain(error)),
    }
}

/// Returns the text for a timeout. A hanging server and one that waits for a standby look the same from here.
fn late(limit: Duration) -> String {
    let limit = limit.as_millis();
    format!("no answer within {limit} ms; check that the server and its synchronous standbys run")
}

/// Returns whether the server lacks a function, or the user the right to call it.
pub(super) fn is_not_offered(error: &sqlx::Error) -> bool {
    database_error(error).is_some_and(|said| matches!(said.code(), "42501" | "42883" | "0A000"))
}

/// Returns whether a server refused a statement because it accepts no writes.
pub(super) fn is_demoted(failure: &SqlFailure) -> bool {
    matches!(failure, SqlFailure::Sql(error) if database_error(error).is_some_and(|said| said.code() == READ_ONLY))
}

fn database_error(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// Returns the kind of a refused login. It is usually FATAL; the code shows which refusals may end without an operator.
fn login_kind(code: &str) -> StoreErrorKind {
    match code {
        // Class 28: wrong password, no rule for this user. 3D000: no such database.
        "3D000" | "42501" | "0A000" => StoreErrorKind::Other,
        _ if code.starts_with("28") => StoreErrorKind::Other,
        _ => StoreErrorKind::Unavailable,
    }
}

/// A standby, or a session that is set to read only.
const READ_ONLY: &str = "25006";

/// SQLSTATE codes: <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
fn statement_kind(said: &PgDatabaseError, effect: Effect) -> StoreErrorKind {
    if matches!(said.severity(), PgSeverity::Fatal | PgSeverity::Panic) {
        return effect.unanswered();
    }
    match said.code() {
        "53100" => StoreErrorKind::Full,
        READ_ONLY => StoreErrorKind::ReadOnly,
        "42501" if effect == Effect::Writes => StoreErrorKind::ReadOnly,
        "XX001" | "XX002" => StoreErrorKind::Corrupt,
        // Serialization, deadlock, lock not available, cancelled by the time limit, out of resources, starting up.
        "40001" | "40P01" | "55P03" | "57014" | "57P03" => StoreErrorKind::Unavailable,
        code if code.starts_with("53") => StoreErrorKind::Unavailable,
        _ => StoreErrorKind::Other,
    }
}

fn advice(code: &str) -> &'static str {
    match code {
        "28P01" => "check user and password",
        "28000" => "check the user, and pg_hba.conf of the server",
        "3D000" => "create the database, or use another",
        "42501" => "grant SELECT, INSERT and UPDATE on snowmint_records to the user",
        "42P01" => {
            "the table was dropped or renamed while this node ran: rename it back, or stop every node, wait for one lease window, and restore a backup"
        }
        "25006" => "use the primary, or make the server writable",
        "53100" => "free space on the disk of the server",
        "53300" => "raise max_connections of the server; a node uses up to 4",
        // From the guard of a statement.
        "22P02" => {
            "this is another session than the one that was checked: a pooler in between pools transactions or statements; let it \
             pool sessions (pool_mode = session of PgBouncer), or use the server directly"
        }
        "XX001" | "XX002" => {
            "stop every node, wait until their leases have expired (one lease window), and restore a backup; it lacks the \
             latest leases"
        }
        _ => "",
    }
}

fn quote(said: &PgDatabaseError, advice: &str) -> String {
    let found = format!("PostgreSQL error \"{}\" ({})", said.message(), said.code());
    if advice.is_empty() { found } else { format!("{found}; {advice}") }
}

/// A commit that the server acknowledged with a warning.
#[derive(Debug)]
pub(super) struct Unconfirmed {
    warning: String,
}

impl Unconfirmed {
    pub(super) const fn new(warning: String) -> Self {
        Self { warning }
    }

    /// Returns the unconfirmed commit inside an error, if it is one.
    pub(super) fn within(error: &sqlx::Error) -> Option<&Self> {
        let sqlx::Error::Io(error) = error else { return None };
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for Unconfirmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let warning = &self.warning;
        write!(f, "PostgreSQL warned {warning:?}: its standbys may not have confirmed the commit")
    }
}

impl std::error::Error for Unconfirmed {}
