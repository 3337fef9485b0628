//! Records who changes a store, and lists these changes.

use std::fmt::Display;

use serde::{Deserialize, Serialize};
use snowmint::utc::Utc;
use snowmint::{Clock as _, WallClock};
use snowmint_cluster::NamespaceName;
use snowmint_cluster::audit::{self, Action, AuthorRights, ChangeFailure, Entry, Listed, Logged};
use snowmint_store::Store;

use crate::{AdminError, warnings_of_skipped};

/// Who changes a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// The user or token.
    pub who: String,
    /// The host or address.
    pub from: String,
    /// What it may change.
    pub rights: AuthorRights,
}

impl Author {
    /// Makes a change and records it in the audit log. Returns the outcome of the change.
    ///
    /// # Errors
    ///
    /// The log cannot be written, and the change was not started.
    pub async fn record<T, E>(
        &self,
        store: &dyn Store,
        action: Action,
        subject: impl Display,
        details: impl Display,
        change: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>, AdminError>
    where
        for<'a> ChangeFailure: From<&'a E>,
    {
        let entry = Entry {
            at_unix_ms: WallClock.unix_ms(),
            who: self.who.clone(),
            from: self.from.clone(),
            action,
            subject: subject.to_string(),
            details: details.to_string(),
            rights: self.rights,
        };
        Ok(audit::around(store, entry, change).await?)
    }
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ChangeOutcome {
    /// It took place: no failure was recorded.
    #[default]
    Made,
    /// It was rejected, and nothing was changed.
    Refused,
    /// The store failed, and nothing was changed.
    Failed,
    /// It may have taken place.
    Unknown,
}

impl ChangeOutcome {
    /// Every outcome.
    pub const ALL: [Self; 4] = [Self::Made, Self::Refused, Self::Failed, Self::Unknown];

    /// Returns its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Made => "made",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

impl From<&ChangeFailure> for ChangeOutcome {
    fn from(failure: &ChangeFailure) -> Self {
        match failure {
            ChangeFailure::Refused(_) => Self::Refused,
            ChangeFailure::Failed(_) => Self::Failed,
            ChangeFailure::Unknown(_) => Self::Unknown,
        }
    }
}

/// A line of the log as `snowmint audit --json` and the admin API show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AuditLine {
    /// A change.
    Entry {
        /// When it was made, in UTC.
        at: String,
        /// The same in unix milliseconds.
        at_unix_ms: u64,
        /// The user or token.
        who: String,
        /// The host or address.
        from: String,
        /// What was done.
        action: String,
        /// The namespace, worker or node that was changed.
        subject: String,
        /// The new settings.
        details: String,
        /// The outcome of the change. Nodes of earlier versions do not record it.
        #[serde(default)]
        outcome: ChangeOutcome,
        /// Why it was refused or failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
        /// Why it is unknown whether it took place.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        possibly_made: Option<String>,
    },
    /// A record that this version cannot read.
    Unreadable {
        /// The key of the record.
        record: String,
        /// The reason.
        unreadable: String,
    },
}

const fn is_unknown(failure: &ChangeFailure) -> bool {
    matches!(failure, ChangeFailure::Unknown(_))
}

impl From<Listed> for AuditLine {
    fn from(listed: Listed) -> Self {
        match listed {
            Listed::Entry(Logged { entry, failure }) => Self::Entry {
                outcome: failure.as_ref().map_or(ChangeOutcome::Made, ChangeOutcome::from),
                failed: failure.as_ref().filter(|it| !is_unknown(it)).map(|it| it.why().to_owned()),
                possibly_made: failure.as_ref().filter(|it| is_unknown(it)).map(|it| it.why().to_owned()),
                at: Utc(entry.at_unix_ms).to_string(),
                at_unix_ms: entry.at_unix_ms,
                action: entry.action.name().to_owned(),
                who: entry.who,
                from: entry.from,
                subject: entry.subject,
                details: entry.details,
            },
            Listed::Unreadable { record, why } => Self::Unreadable { record, unreadable: why },
        }
    }
}

/// The newest lines of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLog {
    /// The lines, newest first.
    pub changes: Vec<AuditLine>,
    /// The records that were skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Lists the newest changes of a store, or of one of its namespaces. For one namespace, it reports nothing
/// about other records.
///
/// # Errors
///
/// The error of the store.
pub async fn list(
    store: &dyn Store,
    limit: usize,
    namespace: Option<&NamespaceName>,
) -> Result<AuditLog, AdminError> {
    let listed = audit::list(store, if namespace.is_some() { usize::MAX } else { limit }).await?;
    let is_shown = |listed: &Listed| match (listed, namespace) {
        (Listed::Entry(Logged { entry, .. }), Some(name)) => {
            entry.action.is_of_namespace() && entry.subject == name.as_str()
        }
        (_, of) => of.is_none(),
    };
    let changes = listed.into_iter().filter(is_shown).take(limit).map(AuditLine::from).collect();
    let warnings = if namespace.is_none() { warnings_of_skipped(store) } else { Vec::new() };
    Ok(AuditLog { changes, warnings })
}
