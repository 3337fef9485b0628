//! Records who changes a store, and lists that.

use std::fmt::Display;

use serde::{Deserialize, Serialize};
use snowmint::utc::Utc;
use snowmint::{Clock as _, WallClock};
use snowmint_cluster::NamespaceName;
use snowmint_cluster::audit::{self, Action, Entry, Listed, Logged};
use snowmint_store::Store;

use super::{AdminError, warnings_of_skipped};

/// Who changes a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// The user or token.
    pub who: String,
    /// The host or address.
    pub from: String,
}

impl Author {
    /// Makes a change with its entry in the audit log. Returns the outcome of the change.
    ///
    /// # Errors
    ///
    /// The log cannot be written, and the change was not started.
    pub async fn record<T, E: Display>(
        &self,
        store: &dyn Store,
        action: Action,
        subject: impl Display,
        details: impl Display,
        change: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>, AdminError> {
        let entry = Entry {
            at_unix_ms: WallClock.unix_ms(),
            who: self.who.clone(),
            from: self.from.clone(),
            action,
            subject: subject.to_string(),
            details: details.to_string(),
        };
        Ok(audit::around(store, entry, change).await?)
    }
}

/// A line of the log as `snowmint audit --json` and the admin API show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LogLine {
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
        /// The namespace or worker that it was done to.
        subject: String,
        /// The new settings.
        details: String,
        /// Why it failed; `None` if no failure was recorded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
    },
    /// A record that this version cannot read.
    Unreadable {
        /// The key of the record.
        record: String,
        /// The reason.
        unreadable: String,
    },
}

impl From<Listed> for LogLine {
    fn from(listed: Listed) -> Self {
        match listed {
            Listed::Entry(Logged { entry, failed }) => Self::Entry {
                at: Utc(entry.at_unix_ms).to_string(),
                at_unix_ms: entry.at_unix_ms,
                action: entry.action.name().to_owned(),
                who: entry.who,
                from: entry.from,
                subject: entry.subject,
                details: entry.details,
                failed,
            },
            Listed::Unreadable { record, why } => Self::Unreadable { record, unreadable: why },
        }
    }
}

/// The newest lines of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// The lines, newest first.
    pub changes: Vec<LogLine>,
    /// The records that were skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Lists the newest changes of a store, or of one of its namespaces.
///
/// # Errors
///
/// The store's.
pub async fn list(
    store: &dyn Store,
    limit: usize,
    namespace: Option<&NamespaceName>,
) -> Result<Log, AdminError> {
    let listed = audit::list(store, if namespace.is_some() { usize::MAX } else { limit }).await?;
    let is_shown = |listed: &Listed| match (listed, namespace) {
        (Listed::Entry(Logged { entry, .. }), Some(name)) => {
            entry.action.is_of_namespace() && entry.subject == name.as_str()
        }
        _ => true,
    };
    let changes = listed.into_iter().filter(is_shown).take(limit).map(LogLine::from).collect();
    Ok(Log { changes, warnings: warnings_of_skipped(store) })
}
