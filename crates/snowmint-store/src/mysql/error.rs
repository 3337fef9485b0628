//! The meaning of a MySQL or MariaDB error for a record, and advice for the operator.
//! A kind that says "nothing was written" is used only for errors that are known to undo their statement.

use sqlx::mysql::MySqlDatabaseError;

use super::MySqlSettings;
use super::TABLE;
use crate::StoreErrorKind;
use crate::error::Effect;
use crate::sql::failure::{ServerErrors, SqlFailure, server_error};

/// Returns the advice for a failed statement on a table of another system; `rights` are the privileges that
/// the statement needs.
pub(crate) fn foreign_advice(error: &MySqlDatabaseError, table: &str, rights: &str) -> Option<String> {
    Some(match error.number() {
        1146 => format!("this database has no table {table}; check the name of the database"),
        1054 => format!("the table {table} has other columns than that system creates"),
        1044 | 1142 | 1143 => format!("grant the user {rights} on {table}"),
        167 | 1264 | 1467 | 1690 => {
            format!("the counting column of {table} is too narrow; make it a BIGINT")
        }
        _ => return None,
    })
}

/// Returns whether a row with this name already existed.
pub(super) fn is_duplicate(error: &sqlx::Error) -> bool {
    has_code(error, 1062)
}

/// Returns whether a sum was out of range, which makes a statement without a WHERE fail on purpose.
pub(crate) fn is_out_of_range(error: &sqlx::Error) -> bool {
    has_code(error, 1690)
}

/// Returns whether the server ended a statement in a deadlock, which undoes everything that it wrote.
pub(crate) fn is_deadlock(failure: &SqlFailure) -> bool {
    matches!(failure, SqlFailure::Sql(error) if has_code(error, 1213))
}

/// Returns whether the server refused a statement because the user has no right to it on the table.
pub(super) fn is_missing_right(failure: &SqlFailure) -> bool {
    matches!(failure, SqlFailure::Sql(error) if has_code(error, 1142) || has_code(error, 1143))
}

/// The cause of an error of a user who may not write the table, which a later write fails with too.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct MissingRight(pub(super) String);

/// Returns whether the server rejected the user or the password.
pub(super) fn is_denied(error: &sqlx::Error) -> bool {
    has_code(error, 1045)
}

fn has_code(error: &sqlx::Error, code: u16) -> bool {
    server_error::<MySqlSettings>(error).is_some_and(|error| error.number() == code)
}

/// Caused by --read-only, a global lock, a read-only transaction, or a read-only engine.
const READ_ONLY: [u16; 4] = [1290, 1223, 1792, 1836];

/// Numbers: <https://mariadb.com/kb/en/mariadb-error-code-reference/> and
/// <https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html>.
impl ServerErrors for MySqlSettings {
    type Error = MySqlDatabaseError;
    const TABLE: &str = TABLE;
    const CA: &str = "ssl-ca";

    /// Access denied, no such database, unknown authentication, host not allowed, host blocked, TLS required,
    /// password expired, account locked or blocked: permanent. Any other may be temporary.
    fn login_kind(error: &MySqlDatabaseError) -> StoreErrorKind {
        const PERMANENT: [u16; 15] =
            [1044, 1045, 1049, 1129, 1130, 1251, 1524, 1698, 1820, 1862, 3118, 3159, 3955, 4150, 4151];
        if PERMANENT.contains(&error.number()) { StoreErrorKind::Other } else { StoreErrorKind::Unavailable }
    }

    fn statement_kind(error: &MySqlDatabaseError, effect: Effect) -> StoreErrorKind {
        match error.number() {
            // Disk full, table full, a number out of the range of its column, and error 28 of the operating
            // system from the storage engine.
            167 | 1021 | 1114 | 1264 | 1467 | 1690 => StoreErrorKind::Full,
            1030 if has_number(error.message(), "28") => StoreErrorKind::Full,
            number if READ_ONLY.contains(&number) => StoreErrorKind::ReadOnly,
            1142 | 1143 if effect == Effect::Writes => StoreErrorKind::ReadOnly,
            // Lock wait timed out, deadlock, statement time limit of MariaDB and of MySQL, too many
            // connections.
            1205 | 1213 | 1969 | 3024 | 1040 | 1203 => StoreErrorKind::Unavailable,
            1194 | 1195 | 1034 | 1712 | 1877 => StoreErrorKind::Corrupt,
            // Rejected before execution: no such table or column, not allowed, bad statement, packet too
            // large.
            1044 | 1045 | 1054 | 1064 | 1142 | 1143 | 1146 | 1153 | 1364 | 1406 => StoreErrorKind::Other,
            // Not a member of its cluster, shutting down, killed, rolled back by its group: another server,
            // or this one soon, answers.
            1047 | 1053 | 1317 | 1927 | 3100 | 3101 if effect == Effect::Reads => StoreErrorKind::Unavailable,
            _ if effect == Effect::Reads => StoreErrorKind::Other,
            // Server shutting down, query killed, error at the commit: only the record shows the outcome.
            _ => StoreErrorKind::OutcomeUnknown,
        }
    }

    fn advice(error: &MySqlDatabaseError) -> &'static str {
        match error.number() {
            1045 | 1698 => "check user and password",
            1820 | 1862 => "the password has expired: set a new one with ALTER USER, and put it in the URL",
            3118 | 4151 => "unlock the account: ALTER USER … ACCOUNT UNLOCK",
            4150 => {
                "too many logins with a wrong password: correct it, then run FLUSH PRIVILEGES on the server"
            }
            1049 => "create the database, or use another",
            1129 => {
                "the server has blocked this machine after connections that broke off: run TRUNCATE TABLE \
                 performance_schema.host_cache on it, or FLUSH HOSTS (MariaDB)"
            }
            3159 => "the server requires TLS: remove ssl-mode=disabled from the URL",
            3955 => {
                "too many logins with a wrong password: correct it, then run ALTER USER … ACCOUNT UNLOCK on the \
                 server"
            }
            1044 => "grant the user its rights in this database",
            1142 | 1143 => "grant SELECT, INSERT and UPDATE on snowmint_records to the user",
            1146 => {
                "the table was dropped or renamed while this node ran: rename it back, or stop every node, wait \
                 for one lease window, and restore a backup"
            }
            1290 | 1223 | 1792 | 1836 => "use the primary, or make the server writable",
            1021 | 1114 | 1030 => "free space on the disk of the server",
            1040 | 1203 => "raise max_connections of the server; a node uses up to 4",
            _ => "",
        }
    }

    fn unsupported_login(error: &sqlx::Error) -> Option<String> {
        match error {
            // The client would need RSA to send the password.
            sqlx::Error::Configuration(error) if error.to_string().contains("RSA") => {
                Some(NEEDS_TLS.to_owned())
            }
            sqlx::Error::Protocol(text) => unsupported_plugin(text),
            _ => None,
        }
    }

    fn is_read_only(error: &MySqlDatabaseError) -> bool {
        READ_ONLY.contains(&error.number())
    }

    fn may_not_create(error: &MySqlDatabaseError) -> bool {
        error.number() == 1142
    }

    fn quote(error: &MySqlDatabaseError) -> String {
        format!("server error \"{}\" ({})", error.message(), error.number())
    }
}

/// Why a login fails whose plugin sends the password itself unless the server has it in its cache.
pub(super) const NEEDS_TLS: &str = "caching_sha2_password and sha256_password need TLS, also over a local socket; without it, a login succeeds only \
    while this server has the password in its cache: let every server offer TLS, and do not set ssl-mode=disabled";

/// Returns what to do about a plugin that the client does not have, from the text of its error.
fn unsupported_plugin(text: &str) -> Option<String> {
    if text.contains("unexpected packet 0x01 during authentication") {
        return Some("the server wants a password, and the URL has none; see password_file=".to_owned());
    }
    let plugin = match text.split_once("unknown authentication plugin: ") {
        Some((_, rest)) => rest.split_whitespace().next()?,
        None if text.contains("mysql_cleartext_plugin disabled") => "mysql_clear_password",
        None => return None,
    };
    Some(format!(
        "the user logs in with the plugin {plugin}, which this client does not support; create a user for the nodes with \
         caching_sha2_password (MySQL: IDENTIFIED WITH caching_sha2_password BY '...'), mysql_native_password (MariaDB: \
         IDENTIFIED VIA mysql_native_password USING PASSWORD('...')), or unix_socket over a local socket"
    ))
}

/// Returns whether a text has a number of its own, and not as a part of another one.
fn has_number(text: &str, number: &str) -> bool {
    text.split(|character: char| !character.is_ascii_digit()).any(|digits| digits == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_full_disk_is_error_28() {
        assert!(has_number("Got error 28 \"No space left on device\" from storage engine InnoDB", "28"));
        assert!(!has_number("Got error 128 \"Out of memory in engine\" from storage engine InnoDB", "28"));
    }
}
