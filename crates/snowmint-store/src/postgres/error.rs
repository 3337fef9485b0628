//! What a PostgreSQL error means for a record, and what an operator can do about it.
//! An ERROR undoes its statement; what is FATAL, or cuts the connection, may come after the commit.

use std::fmt;
use std::time::Duration;

use sqlx::postgres::{PgDatabaseError, PgSeverity};

use super::TABLE;
use crate::error::{Effect, chain};
use crate::net::Refusal;
use crate::sql::{Failure, connection_error_kind};
use crate::{StoreError, StoreErrorKind};

/// No time bounds what is lost, so no `may_lose` covers it.
pub(super) const FSYNC_OFF: &str = "does not wait for its disk (fsync off), so a crash of the machine may lose any of what it committed, and \
    two nodes may then produce duplicates; set fsync on, or accept it with durable=no";

/// What PostgreSQL says of a session whose server does not sync its commits any more; see [`Guard::statement`].
pub(super) const NOT_SYNCED: &str = "\"fsync is off\"";

/// Turns a failed statement into the error of a store.
pub(super) fn store_error(
    store: &str,
    operation: &'static str,
    effect: Effect,
    failure: Failure,
) -> StoreError {
    let (kind, text) = match failure {
        Failure::NotSent(Refusal { kind, text }) | Failure::Refused(Refusal { kind, text }) => (kind, text),
        Failure::Late(limit) => (effect.unanswered(), late(limit)),
        Failure::Sql(error) => match database_error(&error) {
            // By the guard of a statement, which was not carried out.
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

/// Says what a DBA has to run when we may not.
pub(super) fn table_is_missing(store: &str, failure: Failure) -> StoreError {
    if let Failure::Sql(error) = &failure
        && let Some(said) = database_error(error).filter(|it| it.code() == "42501")
    {
        let table = TABLE.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = quote(said, &format!("let somebody who may run: {table}"));
        return StoreError::new(StoreErrorKind::ReadOnly, "open", store, text);
    }
    store_error(store, "open", Effect::Reads, failure)
}

/// Turns an error before the first statement into why there is no connection.
pub(super) fn refusal(error: &sqlx::Error) -> Refusal {
    match database_error(error) {
        Some(said) => Refusal::new(login_kind(said.code()), quote(said, advice(said.code()))),
        None => Refusal::new(connection_error_kind(error, Effect::Reads), chain(error)),
    }
}

/// A server that hangs and a server that waits for a standby look alike from here.
fn late(limit: Duration) -> String {
    let limit = limit.as_millis();
    format!("no answer within {limit} ms; if the server runs, check that its synchronous standbys do too")
}

/// Whether the server lacks a function, or the right to call it.
pub(super) fn is_not_offered(error: &sqlx::Error) -> bool {
    database_error(error).is_some_and(|said| matches!(said.code(), "42501" | "42883" | "0A000"))
}

fn database_error(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// A refused login is FATAL as a rule; what may pass by itself is told apart by its code.
fn login_kind(code: &str) -> StoreErrorKind {
    match code {
        // Of the class 28, logins: wrong password, no rule for this user; 3D000: no such database.
        "3D000" | "42501" | "0A000" => StoreErrorKind::Other,
        _ if code.starts_with("28") => StoreErrorKind::Other,
        _ => StoreErrorKind::Unavailable,
    }
}

/// SQLSTATE codes: <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
fn statement_kind(said: &PgDatabaseError, effect: Effect) -> StoreErrorKind {
    if matches!(said.severity(), PgSeverity::Fatal | PgSeverity::Panic) {
        return effect.unanswered();
    }
    match said.code() {
        "53100" => StoreErrorKind::Full,
        "25006" => StoreErrorKind::ReadOnly,
        "42501" if effect == Effect::Writes => StoreErrorKind::ReadOnly,
        "XX001" | "XX002" => StoreErrorKind::Corrupt,
        // Serialization, deadlock, lock not to be had, cancelled by the time limit, out of resources, starting up.
        "40001" | "40P01" | "55P03" | "57014" | "57P03" => StoreErrorKind::Unavailable,
        code if code.starts_with("53") => StoreErrorKind::Unavailable,
        _ => StoreErrorKind::Other,
    }
}

fn advice(code: &str) -> &'static str {
    match code {
        "28P01" => "check user and password",
        "28000" => "check the user, and pg_hba.conf of the server",
        "3D000" => "create the database, or name another",
        "42501" => "grant SELECT, INSERT and UPDATE on snowmint_records to the user",
        "42P01" => "the table was there when this node started; put it back",
        "25006" => "name the primary, or make the server writable",
        "53100" => "free space on the disk of the server",
        "53300" => "raise max_connections of the server; a node takes up to 4",
        // By the guard of a statement.
        "22P02" => {
            "this session is not the one whose server was examined, so a pooler between pools transactions or statements; let it \
             pool sessions (pool_mode = session of PgBouncer), or name the server itself"
        }
        "XX001" | "XX002" => {
            "restore it from a backup, which has no word of the latest leases: first stop every node, and wait until \
             their leases have ended (one lease window)"
        }
        _ => "",
    }
}

fn quote(said: &PgDatabaseError, advice: &str) -> String {
    let found = format!("PostgreSQL says \"{}\" ({})", said.message(), said.code());
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

    /// What is inside an error of a session, if it is this.
    pub(super) fn within(error: &sqlx::Error) -> Option<&Self> {
        let sqlx::Error::Io(error) = error else { return None };
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for Unconfirmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let warning = &self.warning;
        write!(f, "PostgreSQL warned {warning:?}, so its standbys may not have confirmed the commit")
    }
}

impl std::error::Error for Unconfirmed {}
