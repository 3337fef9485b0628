//! Whether the standbys confirmed a commit. A server whose wait for them was cancelled (`pg_cancel_backend`) answers as
//! if they had, and sends a warning before; sqlx passes warnings to `tracing` alone, so they are heard there.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::LazyLock;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, dispatcher, span};

use super::cause;
use crate::StoreErrorKind;
use crate::network::Refusal;

/// Where sqlx sends what the server says besides its answers.
const TARGET: &str = "sqlx::postgres::notice";

/// A commit that the server acknowledged with a warning.
#[derive(Debug)]
pub(super) struct Unconfirmed {
    warning: String,
}

impl Unconfirmed {
    /// What is inside an error from [`confirmed`], if it is this.
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

/// Runs a statement; its answer counts only if no warning came with it.
///
/// The text of a warning may be in any language, and sqlx hides its code, so any warning counts. The exception is one
/// with a figure in it: it tells after how many transactions to vacuum, and may come with every write for days.
pub(super) async fn confirmed<T>(
    statement: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let (answer, warning) = with_warning(statement).await;
    match warning {
        Some(warning) if answer.is_ok() => Err(sqlx::Error::Io(io::Error::other(Unconfirmed { warning }))),
        _ => answer,
    }
}

/// Runs what begins a session and ends with a warning. It is not heard if the program was built with `tracing` silenced.
pub(super) async fn hearing<T>(opening: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, Refusal> {
    match with_warning(opening).await {
        (Err(error), _) => Err(cause::refusal(&error)),
        (Ok(answer), Some(_)) => Ok(answer),
        (Ok(_), None) => {
            let text = "warnings of PostgreSQL do not reach this program, so it could not tell if a standby has \
                confirmed a commit; build it without the features max_level_* and release_max_level_* of tracing";
            Err(Refusal::new(StoreErrorKind::Other, text))
        }
    }
}

/// Runs a future and returns with its output the first warning that came meanwhile.
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
    /// What was heard while this thread polled a statement.
    static HEARD: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// One for all statements, as each that is made is made known to every place that logs.
static LISTENER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Listener));

/// Hears the warnings of sqlx and nothing else.
struct Listener;

impl Subscriber for Listener {
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
        let mut text = Text::default();
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

/// The words of an event.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
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
        // In any language, but not what only counts down.
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

    /// Goal: warnings are heard whatever the program logs. Method: it logs nothing, and has met the warning before.
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

    /// Goal: a program that cannot hear warnings opens no store. Method: an opening without the warning.
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

    /// Goal: nothing heard is taken for another statement's. Method: two that are polled in turn by one thread.
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
}
