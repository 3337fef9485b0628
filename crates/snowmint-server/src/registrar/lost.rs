//! Namespaces whose records the store has lost: a record that is missing is not a drop, which leaves one behind.
//! They are served on as they were, and pinned again where this node is told of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use snowmint_cluster::NamespaceName;
use snowmint_cluster::namespace::registry::{self, Again};
use snowmint_cluster::namespace::{Definition, NamespaceError};
use tokio::time::Instant;

use super::Registrar;
use super::told::Wanted;
use crate::mint::{Maker, Namespace, Source};

/// At most so often a lasting loss is told.
const TOLD_EACH: Duration = Duration::from_mins(1);

/// What this node knows of records that the store has lost.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Those that have not been found again, as they were.
    names: BTreeSet<NamespaceName>,
    /// Those that every node served when their records were last seen.
    everywhere: BTreeSet<NamespaceName>,
    told: Option<Instant>,
}

impl<S: Source> Registrar<S> {
    /// The namespaces that are served and that the store no longer has a record of, as they are to be served.
    pub(super) async fn without_record(&mut self, wanted: &Wanted) -> Vec<Arc<Namespace<S>>> {
        let served = self.mint.served();
        let mut next = Vec::new();
        let (mut unrecorded, mut again, mut newly_lost) = (Vec::new(), Vec::new(), 0);
        for namespace in served.namespaces() {
            let name = namespace.name();
            let is_told = self.told.tells(name);
            if wanted.recorded.contains(name.as_str()) || !(is_told || self.lost.everywhere.contains(name)) {
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
        self.lost.everywhere = &wanted.everywhere | &unrecorded.iter().cloned().collect();
        self.tell_of_lost(&unrecorded, &again);
        self.mint.note_unrecorded(unrecorded, newly_lost);
        next
    }

    /// Pins a namespace to what it was served as, where a flag or the file names it.
    async fn pin_again(&self, namespace: &Namespace<S>) -> Result<(), NamespaceError> {
        let name = namespace.name();
        if !self.told.tells(name) {
            return Ok(());
        }
        let store = &*self.config.store;
        if self.lost.everywhere.contains(name) {
            // Nodes that do not name it served it too, and must go on.
            match registry::add(store, name, namespace.definition(), Again::Never).await {
                Ok(_) => return Ok(()),
                // Another node was first: what it wrote is compared below.
                Err(NamespaceError::Exists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        registry::pin(store, name, namespace.definition()).await.map(drop)
    }

    /// A namespace whose record was lost and is there again, or is named by this node: as it is to be served where ids by
    /// the record could be equal to earlier ones, else `None`.
    ///
    /// What only the store names may become anything: somebody had it start over, and was told what that means.
    pub(super) fn found_again(
        &mut self,
        before: Option<&Arc<Namespace<S>>>,
        name: &NamespaceName,
        definition: &Definition,
    ) -> Option<Arc<Namespace<S>>> {
        if !self.lost.names.contains(name) && !self.told.tells(name) {
            return None;
        }
        let Some(before) = before else {
            self.lost.names.remove(name);
            return None;
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
    fn stopped(&mut self, before: &Arc<Namespace<S>>, error: &NamespaceError) -> Arc<Namespace<S>> {
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
