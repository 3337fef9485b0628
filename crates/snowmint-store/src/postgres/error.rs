//! The meaning of a PostgreSQL error for a record, and advice for the operator.
//! An ERROR undoes its statement; a FATAL error, or a broken connection, may come after the commit.

use std::fmt;

use sqlx::postgres::{PgDatabaseError, PgSeverity};

use super::{PostgresSettings, TABLE};
use crate::StoreErrorKind;
use crate::error::Effect;
use crate::sql::failure::{ServerErrors, server_error};

/// The loss has no time limit, so no `may_lose` covers it.
pub(super) const FSYNC_OFF: &str = "does not wait for its disk (fsync off): a crash of the machine may lose any committed write and cause \
    duplicates; set fsync on, or accept the loss with durable=no";

/// The error text of a statement's guard on a server that no longer syncs its commits.
const NOT_SYNCED: &str = "\"fsync is off\"";

/// Returns whether the server lacks a function, or the user the right to call it.
pub(super) fn is_not_offered(error: &sqlx::Error) -> bool {
    server_error::<PostgresSettings>(error)
        .is_some_and(|said| matches!(said.code(), "42501" | "42883" | "0A000"))
}

/// The server lacks a function.
const UNKNOWN_FUNCTION: &str = "42883";
/// The server lacks a setting.
const UNKNOWN_SETTING: &str = "42704";
/// A standby, or a session that is set to read only.
const READ_ONLY: &str = "25006";

/// SQLSTATE codes: <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
impl ServerErrors for PostgresSettings {
    type Error = PgDatabaseError;
    const TABLE: &str = TABLE;
    const CA: &str = "sslrootcert";
    /// A hanging server and one that waits for a standby look the same from here.
    const LATE: &str = "; check that the server and its synchronous standbys run";

    /// A refused login is usually FATAL; the code shows which refusals may end without an operator.
    fn login_kind(error: &PgDatabaseError) -> StoreErrorKind {
        match error.code() {
            // Class 28: wrong password, no rule for this user. 3D000: no such database.
            // No such function or setting: another database that speaks the protocol.
            "3D000" | "42501" | "0A000" | UNKNOWN_FUNCTION | UNKNOWN_SETTING => StoreErrorKind::Other,
            code if code.starts_with("28") => StoreErrorKind::Other,
            _ => StoreErrorKind::Unavailable,
        }
    }

    fn statement_kind(error: &PgDatabaseError, effect: Effect) -> StoreErrorKind {
        if matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic) {
            return effect.unanswered();
        }
        match error.code() {
            "53100" => StoreErrorKind::Full,
            READ_ONLY => StoreErrorKind::ReadOnly,
            "42501" if effect == Effect::Writes => StoreErrorKind::ReadOnly,
            "XX001" | "XX002" => StoreErrorKind::Corrupt,
            // Serialization, deadlock, lock not available, cancelled by the time limit, out of resources,
            // starting up.
            "40001" | "40P01" | "55P03" | "57014" | "57P03" => StoreErrorKind::Unavailable,
            code if code.starts_with("53") => StoreErrorKind::Unavailable,
            _ => StoreErrorKind::Other,
        }
    }

    fn advice(error: &PgDatabaseError) -> &'static str {
        match error.code() {
            "28P01" => "check user and password",
            "28000" => "check the user, and pg_hba.conf of the server",
            "3D000" => "create the database, or use another",
            UNKNOWN_FUNCTION | UNKNOWN_SETTING => {
                "this server is not PostgreSQL, and lacks what nodes need; use another store"
            }
            "42501" => "grant SELECT, INSERT and UPDATE on snowmint_records to the user",
            "42P01" => {
                "the table was dropped or renamed while this node ran: rename it back, or stop every node, wait \
                 for one lease window, and restore a backup"
            }
            READ_ONLY => "use the primary, or make the server writable",
            "53100" => "free space on the disk of the server",
            "53300" => "raise max_connections of the server; a node uses up to 4",
            // From the guard of a statement.
            "22P02" => {
                "this is another session than the one that was checked: a pooler in between pools transactions or \
                 statements; let it pool sessions (pool_mode = session of PgBouncer), or use the server directly"
            }
            "XX001" | "XX002" => {
                "stop every node, wait until their leases have expired (one lease window), and restore a backup; \
                 it lacks the latest leases"
            }
            _ => "",
        }
    }

    fn is_read_only(error: &PgDatabaseError) -> bool {
        error.code() == READ_ONLY
    }

    fn may_not_create(error: &PgDatabaseError) -> bool {
        error.code() == "42501"
    }

    fn quote(error: &PgDatabaseError) -> String {
        format!("PostgreSQL error \"{}\" ({})", error.message(), error.code())
    }

    fn special_meaning(error: &sqlx::Error, effect: Effect) -> Option<(StoreErrorKind, String)> {
        match server_error::<Self>(error) {
            // The guard failed, so the statement was not executed.
            Some(said) if said.code() == "22P02" && said.message().contains(NOT_SYNCED) => {
                Some((StoreErrorKind::Other, format!("the server {FSYNC_OFF}")))
            }
            Some(_) => None,
            None => Some((effect.unanswered(), Unconfirmed::within(error)?.to_string())),
        }
    }
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
