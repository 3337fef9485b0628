//! The errors of the mint, each with its value, its limit and a remedy.
//! No protocol appears here: the table in `status.rs` maps each error to the protocols.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::num::NonZeroU64;
use std::time::Duration;

use snowmint::GenerateError;
use snowmint::codec::ParseIdError;
use snowmint::error::Snippet;
use snowmint::layout::{LayoutParseError, SplitError};
use snowmint_cluster::NextIdError;
use snowmint_cluster::namespace::InspectError;

use crate::limits::{MAX_CLOCK_RETRY, MAX_WAIT};
use crate::status::ErrorKind;

/// Why the mint rejects a request. `Display` does not repeat the cause, which [`source`](Error::source)
/// returns; [`answer`](Self::answer) has both.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MintError {
    /// The name is valid, but no namespace of this server has it. Nothing was created.
    #[error(
        "unknown namespace {name}: this server has {known}; add it with `snowmint ns add` or --namespaces; if it was just added, retry \
         after the poll interval (--namespaces-poll)"
    )]
    UnknownNamespace {
        /// The requested name.
        name: Snippet,
        /// The names that exist, as text.
        known: String,
    },
    /// This server creates unknown namespaces, and has reached the limit.
    #[error(
        "namespace {name} not created: the store has {limit} namespaces or more, the limit; drop one, or raise `at_most`"
    )]
    TooManyNamespaces {
        /// The requested name.
        name: Snippet,
        /// The maximum number of namespaces.
        limit: usize,
    },
    /// The text is not a valid namespace name.
    #[error(
        "invalid namespace name {name}: expected 1 to 64 letters, digits, `.`, `_`, `-` or `:`, not only `.` or `..`"
    )]
    BadNamespace {
        /// The given text.
        name: Snippet,
    },
    /// The count is not a number, or out of range.
    #[error("invalid count {}: expected 1 to {limit}", Count(value))]
    BadCount {
        /// The given text.
        value: Snippet,
        /// The maximum count.
        limit: usize,
    },
    /// INCR and INCRBY need plain numbers that increase by 1.
    #[error("cannot increment namespace {name}: {why}; use ID.NEXT")]
    NotCounting {
        /// The namespace.
        name: Snippet,
        /// The reason.
        why: &'static str,
    },
    /// INTEGER was requested of ids that are not plain numbers.
    #[error("the ids of namespace {name} are not integers: {why}; omit INTEGER")]
    NotIntegers {
        /// The namespace.
        name: Snippet,
        /// The reason.
        why: &'static str,
    },
    /// Ranges were requested of ids that are not plain numbers.
    #[error("the ids of namespace {name} have no ranges: {why}; use /v1/ids or ID.NEXT")]
    NoRanges {
        /// The namespace.
        name: Snippet,
        /// The reason.
        why: &'static str,
    },
    /// The counter of a namespace does not give this many consecutive numbers.
    #[error("cannot take {count} consecutive numbers: the counter gives {given} at once; use ID.NEXT")]
    RunTooLong {
        /// The requested count.
        count: u64,
        /// The number that the counter gives at once.
        given: u64,
    },
    /// More numbers were requested at once than are left.
    #[error(
        "namespace {name} has at most {left} numbers left up to its maximum {maximum}: request fewer at once"
    )]
    TooFewLeft {
        /// The namespace.
        name: Snippet,
        /// At most this many are left.
        left: u64,
        /// The greatest number of the namespace.
        maximum: u64,
    },
    /// Each Leaf path serves the plain numbers of one scheme.
    #[error("namespace {name} is not {what}: use /v1/ids")]
    WrongScheme {
        /// The namespace.
        name: Snippet,
        /// The kind of namespace that the path serves.
        what: &'static str,
    },
    /// The requested form holds only plain 64-bit numbers.
    #[error("the ids of namespace {name} are not plain 64-bit numbers: request FORMAT_TEXTS")]
    NotNumbers {
        /// The namespace.
        name: Snippet,
    },
    /// The ids of the namespace do not sort by time.
    #[error("the ids of namespace {name} do not sort by time: {why}")]
    NotByTime {
        /// The namespace.
        name: Snippet,
        /// The reason.
        why: &'static str,
    },
    /// The start of a time range is not before its end.
    #[error(
        "invalid time range {from_unix_ms} to {until_unix_ms}: expected a start before the end, in unix milliseconds"
    )]
    BadTimeRange {
        /// The given start.
        from_unix_ms: u64,
        /// The given end.
        until_unix_ms: u64,
    },
    /// An instant is outside the time of a layout.
    #[error(
        "invalid instant {unix_ms}: the layout of namespace {name} has ids from {begin_unix_ms} until {end_unix_ms} (unix milliseconds)"
    )]
    OutsideLayout {
        /// The namespace.
        name: Snippet,
        /// The given instant.
        unix_ms: u64,
        /// The first instant of the layout.
        begin_unix_ms: u64,
        /// The instant at which the layout ends.
        end_unix_ms: u64,
    },
    /// The namespace has used all its numbers.
    #[error(
        "namespace {name} has used all numbers up to its maximum ({maximum}): raise it with `snowmint ns set NAME --maximum N`, or \
         use another namespace"
    )]
    NumbersEnded {
        /// The namespace.
        name: Snippet,
        /// Its maximum.
        maximum: u64,
    },
    /// The text is not an id of the given namespace.
    #[error("{text} is not an id of namespace {name}")]
    NotOfNamespace {
        /// The given text.
        text: Snippet,
        /// The namespace.
        name: Snippet,
        /// What is wrong with the text.
        #[source]
        why: InspectError,
    },
    /// The text is neither the name of a layout nor a list of its fields.
    #[error("invalid layout {layout}")]
    BadLayout {
        /// The given text.
        layout: Snippet,
        /// What is wrong with the text.
        #[source]
        why: Box<LayoutParseError>,
    },
    /// The text is not an id, or not one of this layout.
    #[error("invalid id {text}")]
    BadId {
        /// The given text.
        text: Snippet,
        /// What is wrong with the text.
        #[source]
        why: InvalidIdError,
    },
    /// The node holds no lease, or its store does not answer.
    #[error("no ids can be made now: {why}")]
    NotReady {
        /// The reason, and what would help.
        why: String,
    },
    /// The clock went back further than the rule allows, or is before the start of the lease.
    #[error("no ids can be made now")]
    ClockBehind {
        /// The error of the generator.
        #[source]
        refusal: GenerateError,
    },
    /// The ids could not be made in time.
    #[error(
        "{count} ids could not be made within {within:?}: one worker of this layout makes {ids_per_second} a second; retry, or \
         request fewer ids at once"
    )]
    Busy {
        /// The requested count.
        count: usize,
        /// How long the request could wait.
        within: Duration,
        /// The ids that one worker can make in a second.
        ids_per_second: u64,
    },
    /// The client has sent no valid token.
    #[error("{why}")]
    Unauthorized {
        /// The reason, and what would help.
        why: String,
    },
    /// The token of the client does not allow it.
    #[error("{why}")]
    Forbidden {
        /// The reason, and what would help.
        why: String,
    },
    /// The request concerns all namespaces, and the token of the client does not cover all of them.
    #[error("{why}")]
    NotForAll {
        /// The reason, and what would help.
        why: String,
    },
    /// The token of the client has used up a quota for now.
    #[error("token {token} has used up its quota of {quota} on this node: retry after {retry_after:?}")]
    OverQuota {
        /// The name of the token.
        token: Snippet,
        /// The quota.
        quota: Quota,
        /// The time after which the request fits.
        retry_after: Duration,
    },
    /// The request is larger than a quota of the token.
    #[error("invalid count {count}: token {token} may take {quota}; request at most {} at once", quota.limit())]
    TooManyAtOnce {
        /// The name of the token.
        token: Snippet,
        /// The requested count.
        count: u64,
        /// The quota.
        quota: Quota,
    },
    /// The layout has no timestamps left.
    #[error("no more ids can be made")]
    LayoutEnded {
        /// The error of the generator.
        #[source]
        refusal: GenerateError,
    },
}

/// A count in an error: a plain number as it is, any other text quoted.
struct Count<'a>(&'a Snippet);

impl fmt::Display for Count<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value) = self;
        match value.as_str().parse::<i128>() {
            Ok(number) if number.to_string() == value.as_str() => number.fmt(f),
            _ => value.fmt(f),
        }
    }
}

/// Why a text is not an id that this server may have given. The library's [`ParseIdError`] judges the text
/// alone; this error adds what a layout and the namespaces of a server say about the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidIdError {
    /// The text is not a decimal number below 2^63.
    #[error(transparent)]
    Text(#[from] ParseIdError),
    /// The number has bits that the layout does not have.
    #[error(transparent)]
    Layout(#[from] SplitError),
    /// The number matches nothing that is known.
    #[error("it matches no namespace of this server, no layout and no scheme")]
    Nothing,
}

impl MintError {
    /// Returns the text of the answer to a client: the error and its causes.
    pub fn answer(&self) -> String {
        let (mut text, mut cause) = (self.to_string(), self.source());
        while let Some(error) = cause {
            // Writing to a String never fails.
            let _ = write!(text, ": {error}");
            cause = error.source();
        }
        text
    }

    /// Returns the row of the table in `status.rs`.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::UnknownNamespace { .. } => ErrorKind::UnknownNamespace,
            Self::TooManyNamespaces { .. } => ErrorKind::TooManyNamespaces,
            Self::NotCounting { .. } | Self::NotIntegers { .. } | Self::NoRanges { .. } => {
                ErrorKind::NotCounting
            }
            Self::WrongScheme { .. } | Self::NotNumbers { .. } | Self::NotByTime { .. } => {
                ErrorKind::WrongScheme
            }
            Self::NumbersEnded { .. } => ErrorKind::NumbersEnded,
            Self::BadNamespace { .. } => ErrorKind::BadNamespace,
            Self::BadCount { .. }
            | Self::RunTooLong { .. }
            | Self::TooFewLeft { .. }
            | Self::TooManyAtOnce { .. } => ErrorKind::BadCount,
            Self::Unauthorized { .. } => ErrorKind::Unauthorized,
            Self::Forbidden { .. } | Self::NotForAll { .. } => ErrorKind::Forbidden,
            Self::OverQuota { .. } => ErrorKind::OverQuota,
            Self::BadId { .. } | Self::NotOfNamespace { .. } => ErrorKind::BadId,
            Self::BadLayout { .. } | Self::BadTimeRange { .. } | Self::OutsideLayout { .. } => {
                ErrorKind::BadRequest
            }
            Self::NotReady { .. } => ErrorKind::NotReady,
            Self::ClockBehind { .. } => ErrorKind::ClockBehind,
            Self::Busy { .. } => ErrorKind::Busy,
            Self::LayoutEnded { .. } => ErrorKind::LayoutEnded,
        }
    }

    /// Returns how long a client should wait before it retries; `None` if a retry does not help.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NotReady { .. } | Self::Busy { .. } => Some(Duration::from_secs(1)),
            Self::OverQuota { retry_after, .. } => Some(*retry_after),
            Self::ClockBehind { refusal: GenerateError::ClockBehind { behind_ms, .. } } => {
                Some(clock_retry(behind_ms.get()))
            }
            Self::ClockBehind { refusal: GenerateError::NotBegun { from_unix_ms, now_unix_ms } } => {
                Some(clock_retry(from_unix_ms.saturating_sub(*now_unix_ms)))
            }
            _ => None,
        }
    }

    /// Converts the error of a generator. `count` and `ids_per_second` are for the error that it took too
    /// long.
    #[cold]
    pub(crate) fn from_no_id(no_id: NextIdError, count: usize, ids_per_second: u64) -> Self {
        match no_id {
            NextIdError::Refused(
                refusal @ (GenerateError::ClockBehind { .. } | GenerateError::NotBegun { .. }),
            ) => Self::ClockBehind { refusal },
            NextIdError::Refused(refusal @ GenerateError::TimestampOverflow { .. }) => {
                Self::LayoutEnded { refusal }
            }
            NextIdError::Refused(GenerateError::Exhausted { .. }) => {
                Self::Busy { count, within: MAX_WAIT, ids_per_second }
            }
            other => Self::NotReady { why: other.to_string() },
        }
    }
}

/// Returns how long to wait before a retry if the clock is behind by this much.
const fn clock_retry(behind_ms: u64) -> Duration {
    let behind = Duration::from_millis(behind_ms);
    // `min` is not const.
    if behind.as_nanos() < MAX_CLOCK_RETRY.as_nanos() { behind } else { MAX_CLOCK_RETRY }
}

/// Which quota a request exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Ids a second.
    Rate(NonZeroU64),
    /// Ids a UTC day.
    PerDay(NonZeroU64),
}

impl Quota {
    /// Returns the limit.
    pub const fn limit(self) -> u64 {
        match self {
            Self::Rate(limit) | Self::PerDay(limit) => limit.get(),
        }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(limit) => write!(f, "{limit} ids a second"),
            Self::PerDay(limit) => write!(f, "{limit} ids a day"),
        }
    }
}

#[cfg(test)]
mod tests {
    use snowmint::{Id, Layout};

    use super::*;

    /// Goal: who prints an error with its causes, and who sends it to a client, shows each cause once.
    /// Method: every error that has a cause.
    #[test]
    fn a_cause_is_shown_once() {
        let (text, name) = (Snippet::of("x"), Snippet::of("orders"));
        let id = "x".parse::<Id>().unwrap_err();
        let layout = "x".parse::<Layout>().unwrap_err();
        let refusal = GenerateError::NotBegun { from_unix_ms: 5, now_unix_ms: 1 };
        let ended = GenerateError::TimestampOverflow { ended_unix_ms: 0 };
        for (error, shown, cause) in [
            (MintError::BadId { text, why: id.into() }, "invalid id `x`", id.to_string()),
            (
                MintError::NotOfNamespace { text, name, why: id.into() },
                "`x` is not an id of namespace `orders`",
                id.to_string(),
            ),
            (
                MintError::BadLayout { layout: text, why: Box::new(layout) },
                "invalid layout `x`",
                layout.to_string(),
            ),
            (MintError::ClockBehind { refusal }, "no ids can be made now", refusal.to_string()),
            (MintError::LayoutEnded { refusal: ended }, "no more ids can be made", ended.to_string()),
        ] {
            assert_eq!(error.to_string(), shown);
            assert_eq!(error.source().map(ToString::to_string), Some(cause.clone()));
            assert_eq!(error.answer(), format!("{shown}: {cause}"));
        }
        let plain = MintError::NotReady { why: "no lease".to_owned() };
        assert_eq!(plain.answer(), plain.to_string());
    }
}
