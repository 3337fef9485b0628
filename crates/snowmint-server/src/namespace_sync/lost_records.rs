//! Records that the store has lost or that went back to an older version. A missing record is not a drop: a
//! drop leaves a record behind. The namespace stays served as it was, and is pinned again if this node is
//! configured to serve it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use snowmint_cluster::NamespaceName;
use snowmint_cluster::namespace::{Definition, NamespaceError, NamespaceRecord, ServedBy, registry};
use tokio::time::Instant;

use super::NamespaceSync;
use super::config::Desired;
use crate::mint::{Backend, Namespace};

/// Interval between two log lines about a loss that lasts.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The last words of the reason why a namespace is unavailable whose record conflicts with this node's
/// configuration.
const CONFLICT: &str =
    "its record conflicts with the flags or the namespace file of this node; correct one of them";

/// The records that this node has seen, and those that the store has lost.
#[derive(Debug, Default)]
pub(super) struct LostRecords {
    /// Lost records that have not been found again unchanged.
    names: BTreeSet<NamespaceName>,
    /// The newest record of each namespace that is served or was dropped.
    seen: BTreeMap<NamespaceName, NamespaceRecord>,
    logged: Option<Instant>,
}

/// What to do with the record of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordAction {
    /// Serve the namespace as the record says.
    Follow,
    /// Keep serving the namespace as it is: the record is older.
    Ignore,
}

impl LostRecords {
    /// Records that this record of a namespace is valid, even if an earlier one was newer.
    pub(super) fn note(&mut self, name: &NamespaceName, record: Option<&NamespaceRecord>) {
        if let Some(record) = record {
            self.seen.insert(name.clone(), record.clone());
        }
    }
}

impl NamespaceSync {
    /// Returns the served namespaces without a record in the store, in the form in which they must be served.
    pub(super) async fn without_record(&mut self, desired: &Desired) -> Vec<Arc<Namespace>> {
        let served = self.mint.table();
        let mut next = Vec::new();
        let (mut unrecorded, mut again, mut newly_lost) = (Vec::new(), Vec::new(), 0);
        for namespace in served.namespaces() {
            let name = namespace.name();
            let is_configured = self.config.names(name);
            let is_for_all = self.lost.seen.get(name).is_some_and(|it| it.served_by == ServedBy::EveryNode);
            if desired.recorded.contains(name.as_str()) || !(is_configured || is_for_all) {
                continue;
            }
            newly_lost += u64::from(self.lost.names.insert(name.clone()));
            match self.pin_again(namespace).await {
                Ok(()) if is_configured => again.push(name.clone()),
                Ok(()) | Err(NamespaceError::Store(_)) => unrecorded.push(name.clone()),
                Err(error) => {
                    next.push(self.stopped(namespace, &error));
                    continue;
                }
            }
            next.push(Arc::clone(namespace));
        }
        // A recorded namespace is compared with the record seen before; a lost record may come back.
        let is_needed = |name: &NamespaceName| {
            desired.records.contains_key(name)
                || desired.dropped.contains_key(name)
                || desired.unreadable.iter().any(|(unreadable, _)| unreadable == name.as_str())
                || !desired.recorded.contains(name.as_str())
                    && served.namespaces().iter().any(|it| it.name() == name)
        };
        self.lost.seen.retain(|name, _| is_needed(name));
        self.log_lost(&unrecorded, &again);
        self.mint.note_unrecorded(unrecorded, newly_lost);
        next
    }

    /// Writes the last seen record of a namespace back, if this node is configured to serve it.
    async fn pin_again(&mut self, namespace: &Namespace) -> Result<(), NamespaceError> {
        let name = namespace.name();
        if !self.config.names(name) {
            return Ok(());
        }
        let as_served = || NamespaceRecord::new(namespace.definition().clone(), ServedBy::ConfiguredNodes);
        let seen = self.lost.seen.get(name).cloned().unwrap_or_else(as_served);
        let record = registry::put_back(&*self.options.store, name, &seen).await?;
        self.lost.seen.insert(name.clone(), record);
        Ok(())
    }

    /// Remembers the record of a namespace. If an earlier record was newer, or had more text forms, writes
    /// that one back: a record that went back is never followed.
    ///
    /// # Errors
    ///
    /// The difference, if two records differ and neither is newer.
    pub(super) async fn put_back_if_older(
        &mut self,
        name: &NamespaceName,
        record: &NamespaceRecord,
    ) -> Result<RecordAction, NamespaceError> {
        let Some(seen) = self.lost.seen.get(name).cloned() else {
            self.lost.seen.insert(name.clone(), record.clone());
            return Ok(RecordAction::Follow);
        };
        let is_older = record.is_older_than(&seen);
        // Old versions wrote no edition: all their records have edition 1.
        if record.edition == seen.edition && seen.edition > 1 {
            seen.definition.may_become(&record.definition, name)?;
        }
        let is_dropped = record.dropped_unix_ms.is_some();
        if !is_older && (is_dropped || record.brought_up_to(&seen).is_none()) {
            self.lost.seen.insert(name.clone(), record.clone());
            return Ok(RecordAction::Follow);
        }
        match registry::put_back(&*self.options.store, name, &seen).await {
            Ok(record) => {
                self.warn_once(&format!(
                    "the store had an older record of namespace {name} than this node; wrote the newer one back as edition {}",
                    record.edition
                ));
                self.lost.seen.insert(name.clone(), record);
                Ok(RecordAction::Ignore)
            }
            Err(NamespaceError::Store(_)) => Ok(RecordAction::Ignore),
            // Another node was faster, or the store rejected the record: the next poll shows the current one.
            Err(error) if is_older => {
                self.warn_once(&format!(
                    "the store has an older record of namespace {name} than this node; serving the newer one: {error}"
                ));
                Ok(RecordAction::Ignore)
            }
            // It is another namespace now, or dropped: `found_again` decides if this node may serve it.
            Err(_) => {
                self.lost.seen.insert(name.clone(), record.clone());
                Ok(RecordAction::Follow)
            }
        }
    }

    /// Checks a record that was lost and is back, or a namespace that this node is configured to serve.
    /// Returns an unavailable namespace if ids by the record could duplicate earlier ones, else `None`.
    ///
    /// A namespace that only the store names may change completely: an operator made it start over, and was
    /// warned.
    pub(super) fn found_again(
        &mut self,
        before: Option<&Arc<Namespace>>,
        name: &NamespaceName,
        definition: &Definition,
        record: &NamespaceRecord,
    ) -> Option<Arc<Namespace>> {
        if !self.lost.names.contains(name) && !self.config.names(name) {
            return None;
        }
        // A namespace with a conflict is checked again: this node never served its definition.
        let conflicts = |it: &&Arc<Namespace>| matches!(it.backend(), Backend::Unavailable(why) if why.ends_with(CONFLICT));
        let Some(before) = before.filter(|it| !conflicts(it)) else {
            let Err(error) = self.config.check_record(name, record) else {
                self.lost.names.remove(name);
                return None;
            };
            let why = format!("{error}; {CONFLICT}");
            self.warn_once(&format!("namespace {name} is unavailable: {why}"));
            let (definition, backend) =
                (record.definition.clone(), Backend::Unavailable(why.as_str().into()));
            let same = before.filter(|it| matches!(it.backend(), Backend::Unavailable(it) if **it == *why));
            let fresh = || Arc::new(Namespace::new(name.clone(), definition, backend, &self.options.wall));
            return Some(same.map_or_else(fresh, Arc::clone));
        };
        match before.definition().may_become(definition, name) {
            Ok(()) => {
                self.lost.names.remove(name);
                None
            }
            Err(error) => Some(self.stopped(before, &error.into())),
        }
    }

    /// Returns the namespace without a backend.
    pub(super) fn stopped(&mut self, before: &Arc<Namespace>, error: &NamespaceError) -> Arc<Namespace> {
        let why = format!(
            "its record in the store was lost or replaced: {error}; decide which definition is valid, then restart this node"
        );
        if matches!(before.backend(), Backend::Unavailable(it) if **it == *why) {
            return Arc::clone(before);
        }
        self.warn_once(&format!("namespace {} is now unavailable: {why}", before.name()));
        Arc::new(before.changed(before.definition().clone(), Backend::Unavailable(why.into())))
    }

    fn log_lost(&mut self, unrecorded: &[NamespaceName], again: &[NamespaceName]) {
        if unrecorded.is_empty() && again.is_empty() {
            return;
        }
        let now = Instant::now();
        if self.lost.logged.is_some_and(|logged| now.duration_since(logged) < LOG_INTERVAL) {
            return;
        }
        self.lost.logged = Some(now);
        let list =
            |names: &[NamespaceName]| names.iter().map(NamespaceName::as_str).collect::<Vec<_>>().join(", ");
        if !again.is_empty() {
            tracing::warn!(
                namespaces = list(again),
                "the store lost the records of these namespaces; pinned again. Leases and counters may be lost too: compare the \
                 store with its backup"
            );
        }
        if !unrecorded.is_empty() {
            tracing::warn!(
                namespaces = list(unrecorded),
                "the store lost the records of these namespaces; this node serves them until it stops. Restore the store, or add \
                 them again with `snowmint ns add`"
            );
        }
    }
}
