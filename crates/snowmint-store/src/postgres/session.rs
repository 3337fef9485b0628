//! A session on a primary. Statements share nothing by it: what a statement depends on is set in the same message and
//! for its transaction alone, so a session that a pooler gives to others is left as it was.

use std::fmt::Write;
use std::time::Duration;

use sqlx::postgres::{PgConnection, PgQueryResult, PgRow};

use super::confirmed::confirmed;
use crate::network::Confirmation;

/// What a statement depends on.
///
/// A commit waits for the disk, and for the synchronous standbys where there are any; `remote_apply` asks for more. At a
/// stricter isolation than this, statements that meet fail instead of waiting for each other. The server gives
/// a statement up a little before we do, so that we hear that nothing was written; its limit does not count the wait for
/// standbys. Warnings are heard whatever the user's default is: see [`confirmed`].
fn settings(synchronous_commit: &str, limit: Duration) -> String {
    let commit = if synchronous_commit == "remote_apply" { "remote_apply" } else { "on" };
    format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = {commit}; \
         SET LOCAL client_min_messages = warning; SET LOCAL bytea_output = hex; \
         SET LOCAL statement_timeout = {}; ",
        (limit * 9 / 10).as_millis()
    )
}

/// What must still be so when a statement is carried out.
#[derive(Clone, Copy)]
pub(super) struct Guard {
    /// The process of the session.
    pub(super) process: i32,
    /// Whether the server has to sync its commits.
    pub(super) must_keep: bool,
}

/// What PostgreSQL says of a session whose server does not sync its commits any more; see [`Guard::statement`].
pub(super) const NOT_SYNCED: &str = "\"fsync is off\"";

impl Guard {
    /// No row, and an error in another session than the one whose server was examined: a pooler which gives each transaction
    /// to another session may give it to another server. An error too where `fsync` was turned off meanwhile. What fails
    /// is computed from the answer, so not when the server plans.
    fn statement(self) -> String {
        let Self { process, must_keep } = self;
        format!(
            "SELECT WHERE CASE WHEN pg_backend_pid() <> {process} THEN ('session ' || pg_backend_pid())::boolean \
             WHEN {must_keep} AND current_setting('fsync') <> 'on' \
                 THEN ('fsync is ' || current_setting('fsync'))::boolean \
             ELSE false END; "
        )
    }
}

/// A session on a server that accepts writes.
pub(super) struct Session {
    pub(super) sql: PgConnection,
    /// What goes before each statement, in one message and so in one transaction with it.
    prelude: String,
    /// Whether standbys confirm commits, as the server told last, until that is passed on.
    pub(super) confirmation: Option<Confirmation>,
}

impl Session {
    /// A session, whose calls may take so long.
    pub(super) fn new(
        sql: PgConnection,
        guard: Guard,
        synchronous_commit: &str,
        limit: Duration,
        confirmation: Confirmation,
    ) -> Self {
        let prelude = settings(synchronous_commit, limit) + &guard.statement();
        Self { sql, prelude, confirmation: Some(confirmation) }
    }

    /// Carries out a statement; its answer counts only if no warning came with it.
    pub(super) async fn execute(&mut self, statement: &str) -> Result<PgQueryResult, sqlx::Error> {
        let message = self.message(statement);
        confirmed(sqlx::raw_sql(message).execute(&mut self.sql)).await
    }

    /// The rows of a statement, after its end: a row comes before the commit.
    pub(super) async fn rows(&mut self, statement: &str) -> Result<Vec<PgRow>, sqlx::Error> {
        let message = self.message(statement);
        confirmed(sqlx::raw_sql(message).fetch_all(&mut self.sql)).await
    }

    fn message(&self, statement: &str) -> sqlx::AssertSqlSafe<String> {
        sqlx::AssertSqlSafe(format!("{}{statement}", self.prelude))
    }
}

/// A key, or the beginning of one, as a literal. It has no character that needs to be escaped.
pub(super) fn name(text: &str) -> String {
    debug_assert!(!text.contains(['\'', '\\']), "{text}");
    format!("'{text}'")
}

/// Bytes as an expression, whatever the server takes a backslash for.
pub(super) fn bytes(value: &[u8]) -> String {
    let mut text = String::with_capacity(value.len() * 2 + 16);
    text.push_str("decode('");
    for byte in value {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.push_str("', 'hex')");
    text
}
