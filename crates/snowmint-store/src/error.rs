//! The errors of store calls: why a call failed, and when to retry it.
//! The kind tells a program what to do next, and the text tells an operator.
//!
//! A write that lost against another is retried after random pauses, each up to twice as long as the one
//! before. A call that always loses gives up after some seconds.

use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use snowmint::foreign::{Most, shown};
use tokio::time::{Instant, sleep};

/// The kind of a [`StoreError`], as far as a caller can act on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store is busy or unreachable. Nothing was written. A retry may succeed.
    Unavailable,
    /// The write may have happened, may still happen, or never will. Load the record before the next step.
    OutcomeUnknown,
    /// Two servers accept writes, and one of them was replaced without knowing it. Nothing was written. A
    /// failover ends like that for a moment, so a retry may succeed; if it lasts, an operator has to stop one
    /// of them.
    SplitBrain,
    /// Another store answers at the address of this one: its [identity](crate::Store::identity) differs.
    /// Nothing was written. It ends when the own store is back; if it lasts, an operator has to correct the
    /// address.
    AnotherStore,
    /// The store accepts no writes until an operator changes that. Nothing was written.
    ReadOnly,
    /// There is no room left. Nothing was written.
    Full,
    /// The data is damaged, or is not a store at all. Nothing was written.
    Corrupt,
    /// Any other failure, described by the text. Nothing was written.
    Other,
}

impl StoreErrorKind {
    /// Returns the part of the text that depends on the kind; empty if the cause is enough.
    const fn phrase(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable, nothing was written: ",
            Self::OutcomeUnknown => "the write may have happened, read the record again: ",
            Self::ReadOnly => "read-only, nothing was written: ",
            Self::Full => "no space left, nothing was written: ",
            Self::Corrupt => "invalid data: ",
            Self::AnotherStore => "another store answers there: ",
            Self::SplitBrain | Self::Other => "",
        }
    }
}

/// A failed call on a store.
///
/// The text is one line for an operator: the call, the store, what was found, and what to do about it.
///
/// # Examples
///
/// ```
/// use snowmint_store::{StoreError, StoreErrorKind};
/// let error = StoreError::new(StoreErrorKind::Unavailable, "load", "etcd://10.0.0.7:2379", "connection refused");
/// assert!(error.is_temporary());
/// assert_eq!(
///     error.to_string(),
///     "load failed on etcd://10.0.0.7:2379: unavailable, nothing was written: connection refused"
/// );
/// ```
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    operation: &'static str,
    store: String,
    cause: Box<dyn Error + Send + Sync>,
}

impl StoreError {
    /// Builds an error from its kind, the call that failed, the store as
    /// [`Store::describe`](crate::Store::describe) names it (no password), and the cause with what an
    /// operator can do.
    pub fn new(
        kind: StoreErrorKind,
        operation: &'static str,
        store: impl Into<String>,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { kind, operation, store: store.into(), cause: cause.into() }
    }

    /// Returns the kind of failure.
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Returns whether the same call may succeed later without an operator.
    ///
    /// True for [`StoreErrorKind::Unavailable`], [`StoreErrorKind::SplitBrain`],
    /// [`StoreErrorKind::AnotherStore`] and [`StoreErrorKind::OutcomeUnknown`]; after the last, load first.
    pub const fn is_temporary(&self) -> bool {
        use StoreErrorKind::{AnotherStore, OutcomeUnknown, SplitBrain, Unavailable};
        matches!(self.kind, Unavailable | SplitBrain | AnotherStore | OutcomeUnknown)
    }

    /// Returns the call that failed: `open`, `load`, `compare_and_set`, `list`, `add`, `unix_ms`, or
    /// `reserve` of a counter.
    pub const fn operation(&self) -> &'static str {
        self.operation
    }

    /// Returns the cause, which the text ends with.
    pub fn cause(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.cause
    }

    /// Returns the store it failed on, as [`Store::describe`](crate::Store::describe) names it.
    pub fn store(&self) -> &str {
        &self.store
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, operation, store, cause } = self;
        // It may quote a server, or keys of other programs.
        let cause = cause.to_string();
        write!(f, "{operation} failed on {store}: {}{}", kind.phrase(), shown(&cause, Most::Message))
    }
}

impl Error for StoreError {
    /// Returns what comes after the [cause](Self::cause), whose text is a part of this error's.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.source()
    }
}

/// The effect of a call on records: whether a failed call may have changed something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    Reads,
    Writes,
}

impl Effect {
    /// Returns the kind of error for a call that was sent and got no answer.
    pub(crate) const fn unanswered(self) -> StoreErrorKind {
        match self {
            Self::Reads => StoreErrorKind::Unavailable,
            Self::Writes => StoreErrorKind::OutcomeUnknown,
        }
    }
}

/// Returns the text of an error and of all its sources, on one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        // Many errors repeat their source.
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    without_manual(&text).replace('\n', " ")
}

/// Replaces the error of rustls about a server that ended without closing TLS, as one that was killed: it
/// ends with a link to the manual of rustls, for developers.
fn without_manual(text: &str) -> String {
    let Some((before, after)) = text.split_once("peer closed connection without sending TLS close_notify")
    else {
        return text.to_owned();
    };
    let link = after.strip_prefix(": https://docs.rs/");
    let after = link.map_or(after, |link| link.find(char::is_whitespace).map_or("", |end| &link[end..]));
    format!("{before}the server closed the connection{after}")
}

/// The time limit for the retries of one call.
const PATIENCE: Duration = Duration::from_secs(5);
/// The first pause lasts up to this long, and each later one up to twice as long as the one before.
const FIRST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(64);

/// The retries of one call.
pub(crate) struct Retries {
    started: Instant,
    longest: Duration,
    conflicts: u32,
}

/// The error of a call that has retried for too long. Displayed as `in 70 tries for 5 s`.
#[derive(Debug)]
pub(crate) struct GaveUp {
    tries: u32,
}

impl Retries {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), longest: FIRST, conflicts: 0 }
    }

    /// Waits after a conflict.
    pub(crate) async fn pause(&mut self) -> Result<(), GaveUp> {
        self.conflicts += 1;
        if self.started.elapsed() >= PATIENCE {
            return Err(GaveUp { tries: self.conflicts });
        }
        let micros = u64::try_from(self.longest.as_micros()).unwrap_or(u64::MAX);
        sleep(Duration::from_micros(random_below(micros))).await;
        self.longest = LONGEST.min(self.longest * 2);
        Ok(())
    }

    /// Waits after other writers of a counter were faster, or fails when the call has retried for too long.
    pub(crate) async fn pause_call(
        &mut self,
        operation: &'static str,
        store: &str,
        counter: &str,
    ) -> Result<(), StoreError> {
        self.pause().await.map_err(|waited| {
            let cause = format!("other writers of {counter} were faster {waited}; retry");
            StoreError::new(StoreErrorKind::Unavailable, operation, store, cause)
        })
    }
}

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in {} tries for {} s", self.tries, PATIENCE.as_secs())
    }
}

/// Returns a random number from 0 to `limit` (exclusive), and 0 if the limit is 0.
///
/// Use it for pauses and for numbers that only have to differ. The seed of a hash map is random enough: no
/// secret depends on it.
pub(crate) fn random_below(limit: u64) -> u64 {
    RandomState::new().build_hasher().finish().checked_rem(limit).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use snowmint::error::Chain;

    use super::*;

    /// Goal: a report of an error and its causes shows no text twice. Method: a cause that has a cause, as it
    /// is and as the error of opening a store.
    #[test]
    fn no_text_is_in_a_chain_twice() {
        #[derive(Debug, thiserror::Error)]
        #[error("no answer")]
        struct NoAnswer(#[source] std::io::Error);

        let cause = NoAnswer(std::io::ErrorKind::BrokenPipe.into());
        let error = StoreError::new(StoreErrorKind::Unavailable, "load", "memory:", cause);
        let report = "load failed on memory:: unavailable, nothing was written: no answer: broken pipe";
        assert_eq!(Chain(&error).to_string(), report);
        assert_eq!(Chain(&crate::OpenError::from(error)).to_string(), report);
    }

    #[test]
    fn a_text_has_no_link_for_developers() {
        let link = "https://docs.rs/rustls/latest/rustls/manual/_03_howto/index.html#unexpected-eof";
        let said = format!("peer closed connection without sending TLS close_notify: {link}");
        for (text, wanted) in [
            (said.clone(), "the server closed the connection"),
            (format!("sent: {said}\nretry"), "sent: the server closed the connection retry"),
            ("see https://docs.rs/".to_owned(), "see https://docs.rs/"),
        ] {
            assert_eq!(chain(&*Box::<dyn Error>::from(text)), wanted);
        }
    }

    #[test]
    fn only_what_may_end_by_itself_is_temporary() {
        let cases = [
            (StoreErrorKind::SplitBrain, true),
            (StoreErrorKind::AnotherStore, true),
            (StoreErrorKind::Unavailable, true),
            (StoreErrorKind::OutcomeUnknown, true),
            (StoreErrorKind::ReadOnly, false),
            (StoreErrorKind::Full, false),
            (StoreErrorKind::Corrupt, false),
            (StoreErrorKind::Other, false),
        ];
        for (kind, temporary) in cases {
            let error = StoreError::new(kind, "load", "memory:", "why");
            assert_eq!((error.kind(), error.is_temporary()), (kind, temporary));
            assert_eq!(error.cause().to_string(), "why");
        }
    }
}
