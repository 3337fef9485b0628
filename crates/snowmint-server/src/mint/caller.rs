//! What one connection keeps between its requests: which namespaces are served as it last looked, and its own state
//! with each source of ids. Looking whether the first has changed is one load of a pointer.

use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};

use super::error::MintError;
use super::namespace::Namespace;
use super::pool::Pool;
use super::served::Served;
use super::source::Source;

/// What one connection keeps between its requests.
pub struct Caller<S: Source> {
    served: Cache<Arc<ArcSwap<Served<S>>>, Arc<Served<S>>>,
    /// Where the namespace was that was asked for last.
    last: usize,
    callers: Callers<S>,
}

/// The state of a connection with each source of ids, made when it first asks there.
pub struct Callers<S: Source> {
    of_slot: Vec<Option<S::Caller>>,
}

impl<S: Source> fmt::Debug for Caller<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("callers", &self.callers).finish_non_exhaustive()
    }
}

impl<S: Source> Caller<S> {
    pub(super) fn new(served: Arc<ArcSwap<Served<S>>>) -> Self {
        Self { served: Cache::new(served), last: 0, callers: Callers { of_slot: Vec::new() } }
    }

    /// Finds a namespace by its name. Nothing is ever created by asking.
    ///
    /// # Errors
    ///
    /// [`MintError::UnknownNamespace`] says which exist; [`MintError::BadNamespace`] for what is no name at all.
    #[inline]
    pub fn find(&mut self, name: &[u8]) -> Result<(&Arc<Namespace<S>>, &mut Callers<S>), MintError> {
        let served = self.served.load();
        let again = served.namespaces.get(self.last).is_some_and(|it| it.name().as_str().as_bytes() == name);
        if !again {
            self.last = served.position(name)?;
        }
        match served.namespaces.get(self.last) {
            Some(namespace) => Ok((namespace, &mut self.callers)),
            None => Err(served.unknown(name)),
        }
    }

    /// Its state with the sources.
    pub(crate) const fn callers(&mut self) -> &mut Callers<S> {
        &mut self.callers
    }
}

impl<S: Source> fmt::Debug for Callers<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers").field("slots", &self.of_slot.len()).finish()
    }
}

impl<S: Source> Callers<S> {
    #[inline]
    pub(super) fn of(&mut self, pool: &Pool<S>) -> &mut S::Caller {
        if self.of_slot.len() <= pool.slot {
            self.grow(pool.slot);
        }
        self.of_slot[pool.slot].get_or_insert_with(|| pool.source.caller())
    }

    #[cold]
    fn grow(&mut self, slot: usize) {
        self.of_slot.resize_with(slot + 1, || None);
    }
}
