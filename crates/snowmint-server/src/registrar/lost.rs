//! Namespaces whose records the store has lost: a record that is missing is not a drop, which leaves one behind.
//! They are served on as they were, and pinned again where this node is told of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use snowmint_cluster::NamespaceName;
use snowmint_cluster::namespace::{Definition, NamespaceError, NamespaceRecord, Reach, registry};
use tokio::time::Instant;

use super::Registrar;
use super::told::Wanted;
use crate::mint::{Maker, Namespace};

/// At most so often a lasting loss is told.
const TOLD_EACH: Duration = Duration::from_mins(1);

/// How the reason ends why a namespace is not served whose record says otherwise than this node's flags or file.
const TOLD_OTHERWISE: &str = "this node's flags or file name it, so the store must have it as they say";

/// What this node knows of records that the store has lost.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Those that have not been found again, as they were.
    names: BTreeSet<NamespaceName>,
    /// The newest record of each that is served, or was dropped.
    seen: BTreeMap<NamespaceName, NamespaceRecord>,
    told: Option<Instant>,
}

/// Whether what is served becomes what a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Followed {
    Yes,
    /// The record is not to be followed: what is served stays as it is.
    No,
}

impl Lost {
    /// Notes the record of a namespace as the one that holds, also where an earlier one was newer.
    pub(super) fn note(&mut self, name: &NamespaceName, record: Option<&NamespaceRecord>) {
        if let Some(record) = record {
            self.seen.insert(name.clone(), record.clone());
        }
    }
}

impl Registrar {
    /// The namespaces that are served and that the store no longer has a record of, as they are to be served.
    pub(super) async fn without_record(&mut self, wanted: &Wanted) -> Vec<Arc<Namespace>> {
        let served = self.mint.served();
        let mut next = Vec::new();
        let (mut unrecorded, mut again, mut newly_lost) = (Vec::new(), Vec::new(), 0);
        for namespace in served.namespaces() {
            let name = namespace.name();
            let is_told = self.told.tells(name);
            let is_for_all = self.lost.seen.get(name).is_some_and(|it| it.reach == Reach::Everywhere);
            if wanted.recorded.contains(name.as_str()) || !(is_told || is_for_all) {
                continue;
            }
            newly_lost += u64::from(self.lost.names.insert(name.clone()));
            match self.pin_again(namespace).await {
                Ok(()) if is_told => again.push(name.clone()),
                Ok(()) | Err(NamespaceError::Store(_)) => unrecorded.push(name.clone()),
                Err(error) => {
                    next.push(self.stopped(namespace, &error));
                    continue;
                }
            }
            next.push(Arc::clone(namespace));
        }
        // What is recorded is compared with what was seen; the rest may come again.
        let goes_on = |name: &NamespaceName| {
            wanted.records.contains_key(name)
                || wanted.dropped.contains_key(name)
                || wanted.unreadable.iter().any(|(unreadable, _)| unreadable == name.as_str())
                || !wanted.recorded.contains(name.as_str())
                    && served.namespaces().iter().any(|it| it.name() == name)
        };
        self.lost.seen.retain(|name, _| goes_on(name));
        self.tell_of_lost(&unrecorded, &again);
        self.mint.note_unrecorded(unrecorded, newly_lost);
        next
    }

    /// Writes the record of a namespace back as it was last seen, where a flag or the file names it.
    async fn pin_again(&mut self, namespace: &Namespace) -> Result<(), NamespaceError> {
        let name = namespace.name();
        if !self.told.tells(name) {
            return Ok(());
        }
        let as_served = || NamespaceRecord::new(namespace.definition().clone(), Reach::Named);
        let seen = self.lost.seen.get(name).cloned().unwrap_or_else(as_served);
        let record = registry::put_back(&*self.config.store, name, &seen).await?;
        self.lost.seen.insert(name.clone(), record);
        Ok(())
    }

    /// Notes the record of a namespace. Where an earlier one was newer, or knew more text forms, it is written back: a
    /// record that went back is never followed, whatever it says.
    ///
    /// # Errors
    ///
    /// Where two records say different things and neither is the newer: what differs.
    pub(super) async fn put_back_if_older(
        &mut self,
        name: &NamespaceName,
        record: &NamespaceRecord,
    ) -> Result<Followed, NamespaceError> {
        let Some(seen) = self.lost.seen.get(name).cloned() else {
            self.lost.seen.insert(name.clone(), record.clone());
            return Ok(Followed::Yes);
        };
        let is_older = record.is_older_than(&seen);
        // Versions that wrote no edition left all records at the first.
        if record.edition == seen.edition && seen.edition > 1 {
            seen.definition.may_become(&record.definition, name)?;
        }
        let is_dropped = record.dropped_unix_ms.is_some();
        if !is_older && (is_dropped || record.brought_up_to(&seen).is_none()) {
            self.lost.seen.insert(name.clone(), record.clone());
            return Ok(Followed::Yes);
        }
        match registry::put_back(&*self.config.store, name, &seen).await {
            Ok(record) => {
                self.complain(&format!(
                    "the store had an older record of namespace {name} than this node: it is as it was last seen again, in \
                     edition {}",
                    record.edition
                ));
                self.lost.seen.insert(name.clone(), record);
                Ok(Followed::No)
            }
            Err(NamespaceError::Store(_)) => Ok(Followed::No),
            // Another was faster, or it cannot be written: the next look shows what is there now.
            Err(error) if is_older => {
                self.complain(&format!(
                    "the store has an older record of namespace {name} than this node, which stays with what it saw: {error}"
                ));
                Ok(Followed::No)
            }
            // It is another namespace now, or none: what that means depends on who names it.
            Err(_) => {
                self.lost.seen.insert(name.clone(), record.clone());
                Ok(Followed::Yes)
            }
        }
    }

    /// A namespace whose record was lost and is there again, or is named by this node: as it is to be served where ids by
    /// the record could be equal to earlier ones, else `None`.
    ///
    /// What only the store names may become anything: somebody had it start over, and was told what that means.
    pub(super) fn found_again(
        &mut self,
        before: Option<&Arc<Namespace>>,
        name: &NamespaceName,
        definition: &Definition,
        record: &NamespaceRecord,
    ) -> Option<Arc<Namespace>> {
        if !self.lost.names.contains(name) && !self.told.tells(name) {
            return None;
        }
        // One that was refused before is judged afresh: its definition is none that this node served.
        let refused =
            |it: &&Arc<Namespace>| matches!(it.maker(), Maker::Missing(why) if why.ends_with(TOLD_OTHERWISE));
        let Some(before) = before.filter(|it| !refused(it)) else {
            let Err(error) = self.told.check_record(name, record) else {
                self.lost.names.remove(name);
                return None;
            };
            let why = format!("{error}; {TOLD_OTHERWISE}");
            self.complain(&format!("namespace {name} is not served: {why}"));
            let (definition, maker) = (record.definition.clone(), Maker::Missing(why.as_str().into()));
            let same = before.filter(|it| matches!(it.maker(), Maker::Missing(it) if **it == *why));
            let fresh = || Arc::new(Namespace::new(name.clone(), definition, maker, &self.config.wall));
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

    /// The namespace without anything that makes ids.
    pub(super) fn stopped(&mut self, before: &Arc<Namespace>, error: &NamespaceError) -> Arc<Namespace> {
        let why = format!(
            "its record in the store was lost or replaced by another: {error}; restart this node once it is settled which one \
             holds"
        );
        if matches!(before.maker(), Maker::Missing(it) if **it == *why) {
            return Arc::clone(before);
        }
        self.complain(&format!("namespace {} is no longer served: {why}", before.name()));
        Arc::new(before.changed(before.definition().clone(), Maker::Missing(why.into())))
    }

    fn tell_of_lost(&mut self, unrecorded: &[NamespaceName], again: &[NamespaceName]) {
        if unrecorded.is_empty() && again.is_empty() {
            return;
        }
        let now = Instant::now();
        if self.lost.told.is_some_and(|told| now.duration_since(told) < TOLD_EACH) {
            return;
        }
        self.lost.told = Some(now);
        let list =
            |names: &[NamespaceName]| names.iter().map(NamespaceName::as_str).collect::<Vec<_>>().join(", ");
        if !again.is_empty() {
            tracing::warn!(
                namespaces = list(again),
                "the store lost the records of these namespaces; they were pinned again. Leases and counters may be lost \
                 too: compare the store with its backup"
            );
        }
        if !unrecorded.is_empty() {
            tracing::warn!(
                namespaces = list(unrecorded),
                "the store lost the records of these namespaces; this node serves them until it ends. Restore the store, or \
                 add them again with `snowmint ns add`"
            );
        }
    }
}
