//! What one connection keeps between its requests: which namespaces are served as it last looked, and its own state
//! with each source of ids. Looking whether the first has changed is one load of a pointer.

use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};

use super::error::MintError;
use super::namespace::Namespace;
use super::pool::Pool;
use super::served::Served;
use super::source::IdHandle;

/// What one connection keeps between its requests.
pub struct Caller {
    served: Cache<Arc<ArcSwap<Served>>, Arc<Served>>,
    /// Where the namespace was that was asked for last.
    last: usize,
    callers: Callers,
}

/// The state of a connection with each source of ids, made when it first asks there.
pub struct Callers {
    of_slot: Vec<Option<Box<dyn IdHandle>>>,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("callers", &self.callers).finish_non_exhaustive()
    }
}

impl Caller {
    pub(super) fn new(served: Arc<ArcSwap<Served>>) -> Self {
        Self { served: Cache::new(served), last: 0, callers: Callers { of_slot: Vec::new() } }
    }

    /// Finds a namespace by its name. Nothing is ever created by asking.
    ///
    /// # Errors
    ///
    /// [`MintError::UnknownNamespace`] says which exist; [`MintError::BadNamespace`] for what is no name at all.
    #[inline]
    pub fn find(&mut self, name: &[u8]) -> Result<(&Arc<Namespace>, &mut Callers), MintError> {
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
    pub(crate) const fn callers(&mut self) -> &mut Callers {
        &mut self.callers
    }
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers").field("slots", &self.of_slot.len()).finish()
    }
}

impl Callers {
    #[inline]
    pub(super) fn of(&mut self, pool: &Pool) -> &mut dyn IdHandle {
        if self.of_slot.len() <= pool.slot {
            self.grow(pool.slot);
        }
        self.of_slot[pool.slot].get_or_insert_with(|| pool.source.handle()).as_mut()
    }

    #[cold]
    fn grow(&mut self, slot: usize) {
        self.of_slot.resize_with(slot + 1, || None);
    }
}
