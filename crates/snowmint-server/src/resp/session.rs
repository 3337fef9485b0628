//! The state of one RESP connection: what the client has set, its transaction, and counts that are not added up yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::metrics::{Metrics, Protocol};
use crate::mint::Namespace;
use crate::resp::reply::Version;

/// What the client has set on its connection.
#[derive(Debug)]
pub(super) struct Session {
    /// The number of the connection; the first is 1.
    pub(super) id: u64,
    pub(super) version: Version,
    pub(super) name: String,
    pub(super) library: String,
    pub(super) library_version: String,
    pub(super) transaction: Transaction,
}

impl Session {
    pub(super) const fn new(id: u64) -> Self {
        Self {
            id,
            version: Version::Resp2,
            name: String::new(),
            library: String::new(),
            library_version: String::new(),
            transaction: Transaction::None,
        }
    }
}

/// The transaction of a connection.
#[derive(Debug, Default)]
pub(super) enum Transaction {
    #[default]
    None,
    Open(Queued),
    /// A command could not be queued: `EXEC` will run nothing.
    Failed,
}

/// The commands between `MULTI` and `EXEC`.
#[derive(Debug, Default)]
pub(super) struct Queued {
    /// The commands as they arrived, one after the other.
    pub(super) bytes: Vec<u8>,
    pub(super) commands: usize,
}

impl Transaction {
    /// Ends the transaction, and releases its share of the memory that all connections may queue.
    pub(super) fn end(&mut self, queued: &AtomicUsize) -> Self {
        let ended = std::mem::take(self);
        if let Self::Open(it) = &ended {
            queued.fetch_sub(it.bytes.len(), Ordering::Relaxed);
        }
        ended
    }
}

/// The counts of a connection since its last write. Adding them up for every command would cost more than parsing.
#[derive(Debug, Default)]
pub(super) struct PendingCounts {
    pub(super) succeeded: u64,
    issued: u64,
    namespace: Option<Arc<Namespace>>,
}

impl PendingCounts {
    #[inline]
    pub(super) fn issued(&mut self, metrics: &Metrics, namespace: &Arc<Namespace>, ids: u64) {
        if self.namespace.as_ref().is_none_or(|last| !Arc::ptr_eq(last, namespace)) {
            self.add_up(metrics);
            self.namespace = Some(Arc::clone(namespace));
        }
        self.issued += ids;
        self.succeeded += 1;
    }

    pub(super) fn add_up(&mut self, metrics: &Metrics) {
        if self.succeeded > 0 {
            metrics.succeeded(Protocol::Resp, std::mem::take(&mut self.succeeded));
        }
        if let (1.., Some(namespace)) = (self.issued, &self.namespace) {
            namespace.add_issued(std::mem::take(&mut self.issued));
        }
    }
}
