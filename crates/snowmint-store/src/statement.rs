//! SQL statements, each driven to its end before its answer is used.
//!
//! A row is not an acknowledgement. SQLite gives the rows of a statement before it commits, and PostgreSQL sends them
//! before it commits and before it waits for a synchronous standby; a read can fail after its first row. What counts
//! is the end of the statement, so `fetch_one`, `fetch_optional` and `fetch` of sqlx, which may stop before it, are
//! disallowed in `clippy.toml`.

/// Returns the first row of a statement, if any, after the statement has ended without an error.
pub(crate) async fn at_most_one<T>(
    rows: impl Future<Output = Result<Vec<T>, sqlx::Error>>,
) -> Result<Option<T>, sqlx::Error> {
    rows.await.map(|rows| rows.into_iter().next())
}

/// Returns the first row of a statement that always gives one, after the statement has ended without an error.
pub(crate) async fn exactly_one<T>(
    rows: impl Future<Output = Result<Vec<T>, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    at_most_one(rows).await?.ok_or(sqlx::Error::RowNotFound)
}
