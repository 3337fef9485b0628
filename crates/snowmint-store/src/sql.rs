//! Runs SQL statements to their end before their answer is used, and classifies failures.
//!
//! A row is not an acknowledgement. SQLite returns the rows of a statement before it commits, and PostgreSQL sends them before it
//! commits and before it waits for a synchronous standby; a read can fail after its first row. Only the end of the statement
//! counts, so `clippy.toml` disallows `fetch_one`, `fetch_optional` and `fetch` of sqlx, which may stop before it.

#[cfg(any(feature = "postgres", feature = "mysql"))]
mod pool;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) mod table;

#[cfg(any(feature = "postgres", feature = "mysql"))]
use std::io;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use std::time::Duration;

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) use self::pool::{Connect, Connected, Pool};
#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::StoreErrorKind;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::error::Effect;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::net::HostRefusal;

/// Returns the first row of a statement, if any, after the statement has ended without an error.
pub(crate) async fn at_most_one<T>(
    rows: impl Future<Output = Result<Vec<T>, sqlx::Error>>,
) -> Result<Option<T>, sqlx::Error> {
    rows.await.map(|rows| rows.into_iter().next())
}

/// Returns the first row of a statement that always returns one, after the statement has ended without an error.
pub(crate) async fn exactly_one<T>(
    rows: impl Future<Output = Result<Vec<T>, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    at_most_one(rows).await?.ok_or(sqlx::Error::RowNotFound)
}

/// The reason why a statement failed.
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[derive(Debug)]
pub(crate) enum SqlFailure {
    /// The statement was not sent.
    NotSent(HostRefusal),
    /// The statement was sent; the database or the connection failed it.
    Sql(sqlx::Error),
    /// The statement was sent, and its answer shows that the server must not be used any more.
    #[cfg_attr(not(feature = "mysql"), allow(dead_code, reason = "PostgreSQL says so by an error"))]
    Refused(HostRefusal),
    /// The statement was sent, and no answer came in time.
    Late(Duration),
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
impl From<sqlx::Error> for SqlFailure {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

/// Returns the kind of an error of the connection, or of the rows in its answer.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn connection_error_kind(error: &sqlx::Error, effect: Effect) -> StoreErrorKind {
    match (effect, error) {
        (Effect::Reads, sqlx::Error::Tls(_) | sqlx::Error::Configuration(_)) => StoreErrorKind::Other,
        // An untrusted certificate.
        (Effect::Reads, sqlx::Error::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
            StoreErrorKind::Other
        }
        (Effect::Reads, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)) => StoreErrorKind::Corrupt,
        _ => effect.unanswered(),
    }
}
