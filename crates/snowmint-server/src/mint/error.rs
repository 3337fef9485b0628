//! Why the mint does not do what it was asked, in words that say what to do about it.
//! No protocol appears here; how each one says it is the table in `status.rs`.

use std::fmt;
use std::time::Duration;

use snowmint::GenerateError;
use snowmint::codec::ParseIdError;
use snowmint::error::Snippet;
use snowmint::layout::{LayoutParseError, SplitError};
use snowmint_cluster::NoId;
use snowmint_cluster::namespace::InspectError;

use crate::limits::MAX_WAIT;
use crate::status::Kind;

/// Why there are no ids, or nothing to say of one.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MintError {
    /// The name is one, but not of a namespace of this server. Nothing was created.
    #[error(
        "this server has no namespace {name}, it has {known}: correct the name, make it with `snowmint ns add`, or name it in --namespaces"
    )]
    UnknownNamespace {
        /// What was asked for.
        name: Snippet,
        /// Those that exist, as text.
        known: String,
    },
    /// Unknown names become namespaces here, and there are as many as may be.
    #[error(
        "namespace {name} is not made: there are {limit} already, as many as may be; drop one, or raise `at_most`"
    )]
    TooManyNamespaces {
        /// What was asked for.
        name: Snippet,
        /// How many there may be.
        limit: usize,
    },
    /// The text cannot be the name of any namespace.
    #[error("{name} is not the name of a namespace: give 1 to 64 letters, digits, `.`, `_`, `-` or `:`")]
    BadNamespace {
        /// What was given.
        name: Snippet,
    },
    /// The count is no number, or out of range.
    #[error("invalid count {}: expected 1 to {limit}", Count(value))]
    BadCount {
        /// What was given.
        value: Snippet,
        /// The most that may be asked for.
        limit: usize,
    },
    /// Redis' counters are plain numbers that count by one.
    #[error("namespace {name} cannot be incremented, {why}: ask for its ids with ID.NEXT")]
    NotCounting {
        /// The namespace.
        name: Snippet,
        /// Why not.
        why: &'static str,
    },
    /// Ids that are not plain numbers have no integer to answer.
    #[error("the ids of namespace {name} are no integers, {why}: leave INTEGER out")]
    NotIntegers {
        /// The namespace.
        name: Snippet,
        /// Why not.
        why: &'static str,
    },
    /// The counter behind a namespace does not give so many numbers in a row.
    #[error(
        "{count} numbers in a row cannot be had of this namespace, its counter gives {given} at once: ask for them with ID.NEXT"
    )]
    RunTooLong {
        /// How many were asked for.
        count: u64,
        /// How many it gives.
        given: u64,
    },
    /// Leaf's paths serve plain numbers of one scheme each.
    #[error("namespace {name} is not {what}: ask for its ids at /v1/ids")]
    WrongScheme {
        /// The namespace.
        name: Snippet,
        /// What it would have to be.
        what: &'static str,
    },
    /// Every number of a namespace is used up.
    #[error(
        "namespace {name} has used every number up to its maximum of {maximum}: raise it with `snowmint ns set NAME --maximum N`, \
         or take a new namespace"
    )]
    NumbersEnded {
        /// The namespace.
        name: Snippet,
        /// Its maximum.
        maximum: u64,
    },
    /// The text is not an id of the namespace that was named.
    #[error("{text} is not an id of namespace {name}: {why}")]
    NotOfNamespace {
        /// What was given.
        text: Snippet,
        /// The namespace.
        name: Snippet,
        /// What is wrong with it.
        why: InspectError,
    },
    /// The text is neither the name nor the fields of a layout.
    #[error("invalid layout {layout}: {why}")]
    BadLayout {
        /// What was given.
        layout: Snippet,
        /// What is wrong with it.
        why: Box<LayoutParseError>,
    },
    /// The text is not an id, or not one of this layout.
    #[error("{text} is not an id of this server: {why}")]
    BadId {
        /// What was given.
        text: Snippet,
        /// What is wrong with it.
        why: NotAnId,
    },
    /// There is no lease under which ids could be made now.
    #[error("no ids can be made now: {why}")]
    NotReady {
        /// Why there is no lease, and what would help.
        why: String,
    },
    /// The clock went back further than the rule bridges, or shows a time before what may be used.
    #[error("no ids can be made now: {refusal}")]
    ClockBehind {
        /// What the generator said.
        refusal: GenerateError,
    },
    /// More ids were asked for than could be made while a request may wait.
    #[error(
        "{count} ids could not be made within {MAX_WAIT:?}, a worker of this layout makes {ids_per_second} a second: \
         ask again, or for fewer at once"
    )]
    Busy {
        /// How many were asked for.
        count: usize,
        /// How many one worker can make in a second.
        ids_per_second: u64,
    },
    /// The layout has no timestamps left.
    #[error("no ids can be made any more: {refusal}")]
    LayoutEnded {
        /// What the generator said.
        refusal: GenerateError,
    },
}

/// A count as an error shows it: a number as it is, anything else as the text that it was.
struct Count<'a>(&'a Snippet);

impl fmt::Display for Count<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value) = self;
        match value.as_str().parse::<i128>() {
            Ok(number) => number.fmt(f),
            Err(_) => value.fmt(f),
        }
    }
}

/// What is wrong with the text of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAnId {
    /// It is not a decimal number below 2^63.
    #[error(transparent)]
    Text(#[from] ParseIdError),
    /// It has bits that the layout does not have.
    #[error(transparent)]
    Layout(#[from] SplitError),
    /// It is a number that nothing explains.
    #[error("no namespace of this server, layout or scheme explains it")]
    Nothing,
}

impl MintError {
    /// Which row of the table in `status.rs` it is.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::UnknownNamespace { .. } => Kind::UnknownNamespace,
            Self::TooManyNamespaces { .. } => Kind::TooManyNamespaces,
            Self::NotCounting { .. } | Self::NotIntegers { .. } => Kind::NotCounting,
            Self::WrongScheme { .. } => Kind::WrongScheme,
            Self::NumbersEnded { .. } => Kind::NumbersEnded,
            Self::BadNamespace { .. } => Kind::BadNamespace,
            Self::BadCount { .. } | Self::RunTooLong { .. } => Kind::BadCount,
            Self::BadId { .. } | Self::NotOfNamespace { .. } => Kind::BadId,
            Self::BadLayout { .. } => Kind::BadRequest,
            Self::NotReady { .. } => Kind::NotReady,
            Self::ClockBehind { .. } => Kind::ClockBehind,
            Self::Busy { .. } => Kind::Busy,
            Self::LayoutEnded { .. } => Kind::LayoutEnded,
        }
    }

    /// How long a client should wait before it asks again; `None` where asking again is no answer.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NotReady { .. } | Self::Busy { .. } => Some(Duration::from_secs(1)),
            Self::ClockBehind { refusal: GenerateError::ClockBehind { behind_ms, .. } } => {
                Some(Duration::from_millis(behind_ms.get()))
            }
            Self::ClockBehind { refusal: GenerateError::NotBegun { from_unix_ms, now_unix_ms } } => {
                Some(Duration::from_millis(from_unix_ms.saturating_sub(*now_unix_ms)))
            }
            _ => None,
        }
    }

    /// What a keeper's refusal means to who asked for ids; `count` and `ids_per_second` where it took too long.
    #[cold]
    pub(crate) fn from_no_id(no_id: NoId, count: usize, ids_per_second: u64) -> Self {
        match no_id {
            NoId::Refused(refusal @ (GenerateError::ClockBehind { .. } | GenerateError::NotBegun { .. })) => {
                Self::ClockBehind { refusal }
            }
            NoId::Refused(refusal @ GenerateError::TimestampOverflow { .. }) => Self::LayoutEnded { refusal },
            NoId::Refused(GenerateError::Exhausted { .. }) => Self::Busy { count, ids_per_second },
            other => Self::NotReady { why: other.to_string() },
        }
    }
}
