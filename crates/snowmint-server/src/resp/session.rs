//! The state of one RESP connection: what the client has set, and its transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::access::Identity;
use crate::limits::resp::{MAX_QUEUED, MAX_QUEUED_IN_ALL};
use crate::resp::reply::Version;
use crate::resp::request_log;

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

    /// Ends the transaction without running its commands.
    pub(super) fn discard(&mut self) -> Transaction {
        let ended = std::mem::take(&mut self.transaction);
        if let Transaction::Open(queued) = &ended {
            request_log::discarded(&self.identity, queued.bytes());
        }
        ended
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

/// The commands between `MULTI` and `EXEC`. Their bytes count for all connections until they are dropped:
/// also while the client reads its answers.
#[derive(Debug)]
pub(super) struct Queued {
    /// The commands as they arrived, one after the other.
    bytes: Vec<u8>,
    commands: usize,
    in_all: Arc<AtomicUsize>,
}

/// A command was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum QueueError {
    #[error(
        "transaction too large: expected at most {MAX_QUEUED} bytes of commands between MULTI and EXEC; use a pipeline without \
         MULTI, or COUNT"
    )]
    Transaction,
    #[error(
        "transactions of all clients too large: expected at most {MAX_QUEUED_IN_ALL} bytes of queued commands; retry later, or use a \
         pipeline without MULTI"
    )]
    All,
}

impl Queued {
    /// Begins a transaction. `in_all` counts the bytes of all connections.
    pub(super) fn new(in_all: &Arc<AtomicUsize>) -> Self {
        Self { bytes: Vec::new(), commands: 0, in_all: Arc::clone(in_all) }
    }

    /// Adds a command.
    pub(super) fn push(&mut self, command: &[u8]) -> Result<(), QueueError> {
        let more = command.len();
        if self.bytes.len() + more > MAX_QUEUED {
            return Err(QueueError::Transaction);
        }
        if self.in_all.fetch_add(more, Ordering::Relaxed) + more > MAX_QUEUED_IN_ALL {
            self.in_all.fetch_sub(more, Ordering::Relaxed);
            return Err(QueueError::All);
        }
        self.bytes.extend_from_slice(command);
        self.commands += 1;
        Ok(())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of commands.
    pub(super) const fn commands(&self) -> usize {
        self.commands
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.in_all.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}
