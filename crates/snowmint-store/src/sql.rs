//! Runs SQL statements to their end before their answer is used.
//!
//! A row is not an acknowledgement. SQLite returns the rows of a statement before it commits, and PostgreSQL
//! sends them before it commits and before it waits for a synchronous standby; a read can fail after its
//! first row. Only the end of the statement counts, so `clippy.toml` disallows `fetch_one`, `fetch_optional`
//! and `fetch` of sqlx, which may stop before it.

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) mod failure;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) mod pool;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) mod table;

/// Returns the first row of a statement, if any, after the statement has ended without an error.
pub(crate) async fn at_most_one<T>(
    rows: impl Future<Output = Result<Vec<T>, sqlx::Error>>,
) -> Result<Option<T>, sqlx::Error> {
    rows.await.map(|rows| rows.into_iter().next())
}

/// Returns the first row of a statement that always returns one, after the statement has ended without an
/// error.
pub(crate) async fn exactly_one<T>(
    rows: impl Future<Output = Result<Vec<T>, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    at_most_one(rows).await?.ok_or(sqlx::Error::RowNotFound)
}
