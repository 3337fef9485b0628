//! Numbers that are being made ready while the registrar goes on: one slow source delays its own namespace alone.

use std::collections::BTreeMap;

use snowmint_cluster::NamespaceName;
use snowmint_cluster::namespace::Definition;
use tokio::task::{AbortHandle, JoinSet};

use super::opening::Started;

/// What is being opened, for each namespace at most once.
#[derive(Debug, Default)]
pub(super) struct Pending {
    tasks: JoinSet<(NamespaceName, Result<Started, String>)>,
    wanted: BTreeMap<NamespaceName, Wanted>,
}

#[derive(Debug)]
struct Wanted {
    definition: Definition,
    task: AbortHandle,
}

/// What came of one.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) name: NamespaceName,
    /// What it was opened for, with the text form that is wanted by now.
    pub(super) definition: Definition,
    pub(super) started: Result<Started, String>,
}

impl Pending {
    /// Opens what a definition needs, unless that is under way; what is under way for another scheme ends.
    pub(super) fn want<F>(&mut self, name: &NamespaceName, definition: &Definition, open: impl FnOnce() -> F)
    where
        F: Future<Output = Result<Started, String>> + Send + 'static,
    {
        if let Some(wanted) = self.wanted.get_mut(name) {
            if wanted.definition.scheme == definition.scheme {
                wanted.definition = definition.clone();
                return;
            }
            wanted.task.abort();
        }
        let (open, of) = (open(), name.clone());
        let task = self.tasks.spawn(async move { (of, open.await) });
        self.wanted.insert(name.clone(), Wanted { definition: definition.clone(), task });
    }

    /// Ends what is no longer wanted.
    pub(super) fn keep(&mut self, is_wanted: impl Fn(&NamespaceName) -> bool) {
        self.wanted.retain(|name, wanted| {
            let keep = is_wanted(name);
            if !keep {
                wanted.task.abort();
            }
            keep
        });
    }

    pub(super) fn has(&self, name: &NamespaceName) -> bool {
        self.wanted.contains_key(name)
    }

    /// Waits for the next that is ready; `None` where nothing is opened.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub(super) async fn next(&mut self) -> Option<Opened> {
        loop {
            let (id, name, started) = match self.tasks.join_next_with_id().await? {
                Ok((id, (name, started))) => (id, name, started),
                Err(error) => {
                    // One that was ended is wanted no more; one that panicked is wanted again at the next look.
                    self.wanted.retain(|_, wanted| wanted.task.id() != error.id());
                    continue;
                }
            };
            if self.wanted.get(&name).is_some_and(|wanted| wanted.task.id() == id)
                && let Some(Wanted { definition, .. }) = self.wanted.remove(&name)
            {
                return Some(Opened { name, definition, started });
            }
        }
    }
}
