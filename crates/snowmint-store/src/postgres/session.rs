//! A session on a primary. Each message sets its settings for its own transaction only, so a session that a
//! pooler shares stays unchanged. An answer counts only if the server sent no warning with it.

use std::cell::RefCell;
use std::fmt::{self, Write};
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::LazyLock;
use std::time::Duration;

use sqlx::postgres::{PgConnection, PgQueryResult, PgRow};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, dispatcher, span};

use super::PostgresSettings;
use super::error::Unconfirmed;
use crate::StoreErrorKind;
use crate::net::{Confirmation, HostRefusal};
use crate::sql::failure::refusal;

/// Returns the settings that a statement depends on.
///
/// A commit waits for the disk, and for the synchronous standbys if there are any; `remote_apply` waits for
/// more. At a stricter isolation level, colliding statements would fail instead of waiting for each other.
/// The server cancels a statement a little before our own limit, which proves that nothing was written; its
/// limit does not include the wait for standbys. Warnings arrive whatever the user's default is: see
/// [`confirmed`].
fn settings(synchronous_commit: &str, limit: Duration) -> String {
    let commit = if synchronous_commit == "remote_apply" { "remote_apply" } else { "on" };
    format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = {commit}; \
         SET LOCAL client_min_messages = warning; SET LOCAL bytea_output = hex; \
         SET LOCAL statement_timeout = {}; ",
        (limit * 9 / 10).as_millis()
    )
}

/// The time when the server started, in microseconds since 1970: no two servers start in the same
/// microsecond. A number, since the text form of a time depends on session settings.
pub(super) const STARTED: &str = "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint";

/// Conditions that must still hold when a statement runs.
#[derive(Clone, Copy)]
pub(super) struct Guard {
    /// The process of the session.
    pub(super) process: i32,
    /// [`STARTED`] of its server: two servers may have processes with the same number.
    pub(super) started: i64,
    /// Whether the server has to sync its commits.
    pub(super) must_keep: bool,
}

impl Guard {
    /// Returns a statement without rows that fails in any session but the one that was checked: a pooler of
    /// transactions may use a session of another server. It also fails if `fsync` was turned off meanwhile.
    /// The failing expression is computed from a function result, so that the planner does not evaluate it.
    fn statement(self) -> String {
        let Self { process, started, must_keep } = self;
        format!(
            "SELECT WHERE CASE WHEN pg_backend_pid() <> {process} OR {STARTED} <> {started} \
                 THEN ('session ' || pg_backend_pid())::boolean \
             WHEN {must_keep} AND current_setting('fsync') <> 'on' \
                 THEN ('fsync is ' || current_setting('fsync'))::boolean \
             ELSE false END; "
        )
    }
}

/// A session on a server that accepts writes.
pub(super) struct PostgresSession {
    pub(super) sql: PgConnection,
    /// The text before each statement, in one message and so in one transaction with it.
    prelude: String,
    /// Whether standbys confirm commits, as the server said last; `None` once the caller has taken it.
    pub(super) confirmation: Option<Confirmation>,
}

impl PostgresSession {
    /// Returns a session whose calls have this limit.
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

    /// Executes a statement. Its answer counts only if no warning came with it.
    pub(super) async fn execute(&mut self, statement: &str) -> Result<PgQueryResult, sqlx::Error> {
        let message = self.message(statement);
        confirmed(sqlx::raw_sql(message).execute(&mut self.sql)).await
    }

    /// Returns the rows of a statement after the statement has ended: rows arrive before the commit.
    pub(super) async fn rows(&mut self, statement: &str) -> Result<Vec<PgRow>, sqlx::Error> {
        let message = self.message(statement);
        confirmed(sqlx::raw_sql(message).fetch_all(&mut self.sql)).await
    }

    fn message(&self, statement: &str) -> sqlx::AssertSqlSafe<String> {
        sqlx::AssertSqlSafe(format!("{}{statement}", self.prelude))
    }
}

/// Returns a key, or the beginning of one, as a literal. No character in it needs escaping.
pub(super) fn name(text: &str) -> String {
    debug_assert!(!text.contains(['\'', '\\']), "{text}");
    format!("'{text}'")
}

/// Returns bytes as an expression that does not depend on how the server reads a backslash.
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

/// The target of the `tracing` events through which sqlx reports warnings.
const TARGET: &str = "sqlx::postgres::notice";

/// Runs a statement. Its answer counts only if no warning came with it.
///
/// A server whose wait for standbys was cancelled (`pg_cancel_backend`) answers as if they had confirmed, but
/// sends a warning first; sqlx reports warnings only through `tracing`. The text of a warning may be in any
/// language, and sqlx hides its code, so any warning counts. The exception is a warning with a digit: it says
/// after how many transactions to vacuum, and may come with every write for days.
pub(super) async fn confirmed<T>(
    statement: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let (answer, warning) = with_warning(statement).await;
    match warning {
        Some(warning) if answer.is_ok() => Err(sqlx::Error::Io(io::Error::other(Unconfirmed::new(warning)))),
        _ => answer,
    }
}

/// Runs the statements that begin a session and end with a warning. The warning does not arrive if the
/// program was built with `tracing` disabled.
pub(super) async fn hearing<T>(
    opening: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, HostRefusal> {
    match with_warning(opening).await {
        (Err(error), _) => Err(refusal::<PostgresSettings>(&error)),
        (Ok(answer), Some(_)) => Ok(answer),
        (Ok(_), None) => {
            let text = "this program does not receive the warnings of PostgreSQL, so it cannot know if a standby has \
                confirmed a commit; build it without the features max_level_* and release_max_level_* of tracing";
            Err(HostRefusal::new(StoreErrorKind::Other, text))
        }
    }
}

/// Runs a future. Returns its output, and the first warning that arrived meanwhile.
async fn with_warning<T>(statement: impl Future<Output = T>) -> (T, Option<String>) {
    let mut statement = pin!(statement);
    let mut first = None;
    let answer = poll_fn(|context| {
        HEARD.take();
        let polled = dispatcher::with_default(&LISTENER, || statement.as_mut().poll(context));
        first = first.take().or_else(|| HEARD.take());
        polled
    });
    (answer.await, first)
}

thread_local! {
    /// The warning that came while this thread polled a statement.
    static HEARD: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// One for all statements: `tracing` registers each new dispatcher with every callsite.
static LISTENER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(WarningListener));

/// Receives the warnings of sqlx and nothing else.
struct WarningListener;

impl Subscriber for WarningListener {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == TARGET && *metadata.level() <= Level::WARN
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = EventText::default();
        event.record(&mut text);
        if !has_figure(&text.0) {
            HEARD.with_borrow_mut(|heard| _ = heard.get_or_insert(text.0));
        }
    }

    // There are no spans, since none is enabled.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The text of an event.
#[derive(Default)]
struct EventText(String);

impl Visit for EventText {
    fn record_str(&mut self, _: &Field, value: &str) {
        value.clone_into(&mut self.0);
    }

    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        self.0 = format!("{value:?}");
    }
}

fn has_figure(text: &str) -> bool {
    text.bytes().any(|it| it.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection, FromRow};

    use super::*;

    const CANCELLED: &str = "canceling wait for synchronous replication due to user request";

    async fn warned(text: &str) -> Result<u8, sqlx::Error> {
        confirmed(async {
            tokio::task::yield_now().await;
            tracing::warn!(target: TARGET, message = text);
            tokio::task::yield_now().await;
            Ok(7)
        })
        .await
    }

    #[tokio::test]
    async fn a_warning_makes_a_commit_unconfirmed() {
        let error = warned(CANCELLED).await.unwrap_err();
        assert!(Unconfirmed::within(&error).unwrap().to_string().contains(CANCELLED), "{error}");
        // In any language, but not the countdown to a vacuum.
        warned("\u{540c}\u{671f}").await.unwrap_err();
        warned("").await.unwrap_err();
        assert_eq!(warned("database \"a\" must be vacuumed within 39 transactions").await.unwrap(), 7);
        let quiet = confirmed(async {
            tracing::info!(target: TARGET, "a notice");
            tracing::warn!("another's");
            Ok(7)
        });
        assert_eq!(quiet.await.unwrap(), 7);
    }

    /// Goal: warnings arrive whatever the program logs. Method: it logs nothing, and has met the warning
    /// before.
    #[tokio::test]
    async fn a_program_that_logs_nothing_hears_warnings() {
        tracing::subscriber::set_global_default(tracing::subscriber::NoSubscriber::new()).unwrap();
        let warn = || tracing::warn!(target: TARGET, message = CANCELLED);
        warn();
        let answer = confirmed(async {
            warn();
            Ok(7)
        });
        assert!(answer.await.is_err());
    }

    /// Goal: a program that cannot receive warnings opens no store. Method: an opening without the warning.
    #[tokio::test]
    async fn a_session_without_its_warning_is_refused() {
        let refusal = hearing(async { Ok(7) }).await.unwrap_err();
        assert!(refusal.text.contains("release_max_level_"), "{refusal:?}");
        let opening = async {
            tracing::warn!(target: TARGET, "there is no transaction in progress");
            Ok(7)
        };
        assert_eq!(hearing(opening).await.unwrap(), 7);
    }

    /// Goal: a warning counts only for its own statement. Method: two statements that one thread polls in
    /// turn.
    #[tokio::test]
    async fn each_statement_hears_its_own_warnings() {
        let quiet = confirmed(async {
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            Ok(7)
        });
        let (warned, quiet) = tokio::join!(warned(CANCELLED), quiet);
        assert!(warned.is_err() && quiet.is_ok());
    }

    /// Goal: a session is identified by its server too, not only by its process number, which another server
    /// may also use. Method: a guard with the start time of another server.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_session_on_another_server_is_refused() {
        let server = snowmint_test_servers::Postgres::start();
        let url = format!("postgres://postgres@{}/postgres", server.address());
        for (later, is_same) in [(0, true), (1, false)] {
            let mut sql = PgConnection::connect(&url).await.unwrap();
            let ask = format!("SELECT pg_backend_pid(), {STARTED}");
            let told = sqlx::raw_sql(sqlx::AssertSqlSafe(ask)).fetch_all(&mut sql).await.unwrap();
            let (process, started) = <(i32, i64)>::from_row(&told[0]).unwrap();
            let guard = Guard { process, started: started + later, must_keep: true };
            let mut session =
                PostgresSession::new(sql, guard, "on", Duration::from_secs(5), Confirmation::Nobody);
            let answer = session.execute("CREATE TABLE IF NOT EXISTS guarded (a int)").await;
            let code = answer.err().and_then(|it| Some(it.as_database_error()?.code()?.into_owned()));
            assert_eq!(code.as_deref(), (!is_same).then_some("22P02"), "{code:?}");
        }
    }
}
