//! Why an operation of an operator failed.

use std::fmt::Display;
use std::time::Duration;

use snowmint_cluster::NamespaceError;
use snowmint_cluster::audit::{AuditError, ChangeFailure};
use snowmint_cluster::namespace::{ChangeError, DefinitionError};
use snowmint_store::{OpenError, StoreError, StoreErrorKind};

use crate::format::thousands;
use crate::limits::{MAX_OWN_NAMESPACES, RETRY_AFTER};
use crate::node_reports::NodeError;

/// Why an operation of an operator failed. Texts name settings and fields of a request in backticks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// A setting or field is missing, surplus or invalid.
    #[error("{setting}: {why}")]
    Setting {
        /// The setting or field.
        setting: &'static str,
        /// The reason, and what to do.
        why: String,
    },
    /// A setting that this client may not use.
    #[error("{setting}: {why}")]
    Forbidden {
        /// The setting or field.
        setting: &'static str,
        /// The reason, and what to do.
        why: String,
    },
    /// A token for some namespaces has reached its limit of namespaces.
    #[error(
        "{found} records of namespaces in the patterns of token `{token}`, dropped ones included: the limit is {}; a token for \
         all namespaces (*) can add more",
        thousands(MAX_OWN_NAMESPACES as u64)
    )]
    TooManyOwn {
        /// The name of the token.
        token: String,
        /// The records.
        found: usize,
    },
    /// The limit of namespaces in the store is reached: only a token for all namespaces may add another one.
    #[error(
        "{found} namespaces in the store, of at most {limit} that a token for some namespaces can add to: use a token for all \
         namespaces (*)"
    )]
    TooManyInAll {
        /// The namespaces.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// The node does not have what the operation needs.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The request as a whole is invalid.
    #[error("{0}")]
    Request(String),
    /// The definition is invalid.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// A setting belongs to another scheme than that of the namespace.
    #[error(transparent)]
    OtherScheme(DefinitionError),
    /// The registry of namespaces rejected the operation, or its store failed.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The namespace exists, and the request only adds a new one.
    #[error(
        "namespace {name} already exists{}: nothing was written; omit If-None-Match to {}",
        if *dropped { " as a dropped one" } else { "" },
        if *dropped { "resume it" } else { "see its definition, or change it with PATCH" }
    )]
    NotNew {
        /// The namespace.
        name: String,
        /// Whether it was dropped.
        dropped: bool,
    },
    /// A dropped namespace would have to start over.
    #[error(
        "{0}; `start_over` repeats earlier ids, and new ids are unique only once every node has seen the drop or is stopped: see \
         `snowmint ns add --help`"
    )]
    OnlyOver(ChangeError),
    /// A node still gives the numbers of a namespace that is to start over.
    #[error(
        "node {node} still serves {name}, so it would continue to give the old numbers: wait until it rejects {name}, or stop \
         it and remove it from `nodes`"
    )]
    StillServed {
        /// The node.
        node: String,
        /// The namespace.
        name: String,
    },
    /// A node that may still give the old numbers did not answer.
    #[error("{0}; it may continue to give the old numbers: stop it for good, then remove it from `nodes`")]
    Unanswered(NodeError),
    /// The store has no record of the worker.
    #[error("unknown worker {worker}: this store has no record of it; `snowmint workers` lists all records")]
    UnknownWorker {
        /// The worker.
        worker: u32,
    },
    /// Several pools have the worker.
    #[error("worker {worker} is in several pools, {one} and {other}: name one with `pool`")]
    SeveralPools {
        /// The worker.
        worker: u32,
        /// The first pool.
        one: String,
        /// The second pool.
        other: String,
    },
    /// The record of the worker is unreadable.
    #[error(
        "unreadable record of worker {worker} in {pool}: repair it by hand, or leave it; no node takes this worker"
    )]
    UnreadableWorker {
        /// The worker.
        worker: u32,
        /// The pool.
        pool: String,
    },
    /// A node holds the worker.
    #[error(
        "worker {worker} is held by {holder} until {until}, and free then unless that node renews its lease: add `force` to stop \
         renewals"
    )]
    Held {
        /// The worker.
        worker: u32,
        /// The holder.
        holder: String,
        /// The end of its lease, in UTC.
        until: String,
    },
    /// Another node than the named one holds the worker.
    #[error("worker {worker} is held by {holder}, not by {named}: list the workers again")]
    OtherHolder {
        /// The worker.
        worker: u32,
        /// The holder.
        holder: String,
        /// The holder that the request names.
        named: String,
    },
    /// The record of the worker changed at the same time.
    #[error("worker {worker} was renewed or taken at the same time: retry")]
    WorkerChanged {
        /// The worker.
        worker: u32,
    },
    /// The store lost a write before it had settled.
    #[error(
        "{store} lost {key} after acknowledging it (may_lose={may_lose:?}), or somebody else changed it since: run this command \
         again"
    )]
    Lost {
        /// The store.
        store: String,
        /// The key of the record.
        key: String,
        /// How long the store may lose a write.
        may_lose: Duration,
    },
    /// The audit log cannot be written, so nothing was changed.
    #[error("{0}; nothing was changed")]
    Audit(#[from] AuditError),
    /// A store or counter did not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store call failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Too many operations are running, so this one was not started.
    #[error("other admin requests are running: this one did not begin within {within:?}; retry")]
    Busy {
        /// The time limit.
        within: Duration,
    },
    /// The store did not answer in time.
    #[error("the store did not answer within {within:?}; retry")]
    Late {
        /// The time limit.
        within: Duration,
    },
    /// The store did not answer a change in time.
    #[error(
        "the store did not answer within {within:?}; the change may still take place: check the current state before you retry"
    )]
    LateChange {
        /// The time limit.
        within: Duration,
    },
    /// Another failure, for which a retry may help.
    #[error("{0}")]
    Failed(String),
}

/// The kind of a failure. Its name and status are those of the answer over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminErrorKind {
    /// The request is invalid.
    BadRequest,
    /// The store has no record of the namespace.
    UnknownNamespace,
    /// The store has no record of the worker.
    UnknownWorker,
    /// The client may not do this.
    Forbidden,
    /// A limit of namespaces is reached.
    TooManyNamespaces,
    /// The operation conflicts with the records in the store, and a retry would conflict too.
    Conflict,
    /// A node still uses what the operation would take away.
    InUse,
    /// The record to change was changed in the meantime.
    Changed,
    /// A record of the store is unreadable.
    Unreadable,
    /// The store is read-only or full until an operator changes that. Nothing was changed.
    StoreNotWritable,
    /// The store does not answer, or too many operations are running.
    NotReady,
    /// The change may have taken place: the store did not answer in time.
    OutcomeUnknown,
}

impl AdminErrorKind {
    /// Returns the name, the last part of the problem type's URN, and the status code.
    pub const fn status(self) -> (&'static str, u16) {
        match self {
            Self::BadRequest => ("bad-request", 400),
            Self::UnknownNamespace => ("unknown-namespace", 404),
            Self::UnknownWorker => ("unknown-worker", 404),
            Self::Forbidden => ("forbidden", 403),
            Self::TooManyNamespaces => ("too-many-namespaces", 403),
            Self::Conflict => ("conflict", 409),
            Self::InUse => ("in-use", 409),
            Self::Changed => ("changed", 412),
            Self::Unreadable => ("unreadable", 500),
            Self::StoreNotWritable => ("store-not-writable", 500),
            Self::NotReady => ("not-ready", 503),
            Self::OutcomeUnknown => ("outcome-unknown", 504),
        }
    }
}

impl AdminError {
    /// Returns the error for a setting or field.
    pub fn setting(setting: &'static str, why: impl Display) -> Self {
        Self::Setting { setting, why: format!("{why}") }
    }

    /// Returns the kind of the failure.
    pub const fn kind(&self) -> AdminErrorKind {
        match self {
            Self::Setting { .. } | Self::Request(_) | Self::Definition(_) | Self::SeveralPools { .. } => {
                AdminErrorKind::BadRequest
            }
            Self::Namespace(error) => match error {
                NamespaceError::Missing { .. } => AdminErrorKind::UnknownNamespace,
                NamespaceError::Unreadable { .. } => AdminErrorKind::Unreadable,
                NamespaceError::Store(error) => kind_of(error),
                NamespaceError::Edition { .. } => AdminErrorKind::Changed,
                NamespaceError::TooMany { .. } => AdminErrorKind::TooManyNamespaces,
                _ => AdminErrorKind::Conflict,
            },
            Self::Forbidden { .. } => AdminErrorKind::Forbidden,
            Self::TooManyOwn { .. } | Self::TooManyInAll { .. } => AdminErrorKind::TooManyNamespaces,
            Self::OnlyOver(_) | Self::OtherScheme(_) => AdminErrorKind::Conflict,
            Self::StillServed { .. } | Self::Unanswered(_) | Self::Held { .. } => AdminErrorKind::InUse,
            Self::WorkerChanged { .. } | Self::OtherHolder { .. } | Self::NotNew { .. } => {
                AdminErrorKind::Changed
            }
            Self::UnknownWorker { .. } => AdminErrorKind::UnknownWorker,
            Self::UnreadableWorker { .. } | Self::Audit(AuditError::Unreadable { .. }) => {
                AdminErrorKind::Unreadable
            }
            Self::Store(error) | Self::Open(OpenError::Store(error)) => kind_of(error),
            Self::Audit(AuditError::Store(error)) => match kind_of(error) {
                // That of the entry: the change itself did not begin.
                AdminErrorKind::OutcomeUnknown => AdminErrorKind::NotReady,
                kind => kind,
            },
            Self::Lost { .. } | Self::LateChange { .. } => AdminErrorKind::OutcomeUnknown,
            Self::Audit(_)
            | Self::Open(_)
            | Self::Busy { .. }
            | Self::Late { .. }
            | Self::Unsupported(_)
            | Self::Failed(_) => AdminErrorKind::NotReady,
        }
    }

    /// Returns the text of the answer to an operator: the error, and what to do if the error does not say it.
    pub fn answer(&self) -> String {
        match self {
            error if error.kind() == AdminErrorKind::StoreNotWritable => format!(
                "{error}; a retry does not help until the store accepts writes again: `snowmint doctor` checks it, `snowmint \
                 explain store-not-writable` says what to do"
            ),
            error => error.to_string(),
        }
    }

    /// Returns the setting or field that is wrong.
    pub const fn setting_name(&self) -> Option<&'static str> {
        match self {
            Self::Setting { setting, .. } | Self::Forbidden { setting, .. } => Some(setting),
            _ => None,
        }
    }

    /// Returns the time after which a retry may help. `None` after an unknown outcome, since the client must
    /// read the current state first, and for a store that an operator has to mend.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Store(error)
            | Self::Namespace(NamespaceError::Store(error))
            | Self::Audit(AuditError::Store(error))
            | Self::Open(OpenError::Store(error))
                if !error.is_temporary() =>
            {
                None
            }
            Self::Open(OpenError::Url(_)) => None,
            error => (error.kind() == AdminErrorKind::NotReady).then_some(RETRY_AFTER),
        }
    }
}

/// Returns the kind of a failed store call.
const fn kind_of(error: &StoreError) -> AdminErrorKind {
    match error.kind() {
        StoreErrorKind::OutcomeUnknown => AdminErrorKind::OutcomeUnknown,
        StoreErrorKind::Corrupt => AdminErrorKind::Unreadable,
        StoreErrorKind::ReadOnly | StoreErrorKind::Full => AdminErrorKind::StoreNotWritable,
        _ => AdminErrorKind::NotReady,
    }
}

impl From<&AdminError> for ChangeFailure {
    fn from(error: &AdminError) -> Self {
        let why = error.to_string();
        match error.kind() {
            AdminErrorKind::OutcomeUnknown => Self::Unknown(why),
            AdminErrorKind::NotReady | AdminErrorKind::StoreNotWritable => Self::Failed(why),
            // The store call failed, so nobody decided against the change.
            AdminErrorKind::Unreadable if matches!(error, AdminError::Store(_) | AdminError::Open(_)) => {
                Self::Failed(why)
            }
            _ => match error {
                AdminError::Namespace(error) => Self::from(error),
                _ => Self::Refused(why),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a client retries only a call that may succeed without an operator.
    #[test]
    fn a_store_that_an_operator_has_to_mend_gives_no_retry_advice() {
        for (kind, answer, is_retried) in [
            (StoreErrorKind::Unavailable, AdminErrorKind::NotReady, true),
            (StoreErrorKind::SplitBrain, AdminErrorKind::NotReady, true),
            (StoreErrorKind::AnotherStore, AdminErrorKind::NotReady, true),
            (StoreErrorKind::OutcomeUnknown, AdminErrorKind::OutcomeUnknown, false),
            (StoreErrorKind::ReadOnly, AdminErrorKind::StoreNotWritable, false),
            (StoreErrorKind::Full, AdminErrorKind::StoreNotWritable, false),
            (StoreErrorKind::Corrupt, AdminErrorKind::Unreadable, false),
            (StoreErrorKind::Other, AdminErrorKind::NotReady, false),
        ] {
            let error = || StoreError::new(kind, "load", "redis://h", "why");
            for error in [
                AdminError::from(error()),
                AdminError::from(OpenError::from(error())),
                AdminError::Namespace(NamespaceError::Store(error())),
            ] {
                assert_eq!((error.kind(), error.retry_after().is_some()), (answer, is_retried), "{error:?}");
                let is_advised = error.answer() != error.to_string();
                assert_eq!(is_advised, answer == AdminErrorKind::StoreNotWritable, "{}", error.answer());
            }
            // The change did not begin, so its outcome is known.
            let of_entry = AdminError::from(AuditError::from(error()));
            let answer =
                if answer == AdminErrorKind::OutcomeUnknown { AdminErrorKind::NotReady } else { answer };
            let is_retried = answer == AdminErrorKind::NotReady && kind != StoreErrorKind::Other;
            assert_eq!((of_entry.kind(), of_entry.retry_after().is_some()), (answer, is_retried), "{kind:?}");
        }
    }
}
