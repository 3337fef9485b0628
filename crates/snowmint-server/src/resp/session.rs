//! The state of one RESP connection: what the client has set, and its transaction.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::access::Identity;
use crate::resp::log;
use crate::resp::reply::Version;

/// What the client has set on its connection.
#[derive(Debug)]
pub(super) struct Session {
    /// The number of the connection; the first is 1.
    pub(super) id: u64,
    pub(super) identity: Identity,
    pub(super) version: Version,
    pub(super) name: String,
    pub(super) library: String,
    pub(super) library_version: String,
    pub(super) transaction: Transaction,
}

impl Session {
    pub(super) const fn new(id: u64, identity: Identity) -> Self {
        Self {
            id,
            identity,
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

    /// Ends the transaction without running its commands.
    pub(super) fn discard(&mut self, queued: &AtomicUsize) -> Self {
        let ended = self.end(queued);
        if let Self::Open(queued) = &ended {
            log::discarded(&queued.bytes);
        }
        ended
    }
}
