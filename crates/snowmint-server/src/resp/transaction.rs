//! `MULTI` to `EXEC`: commands that are kept as they came, and then done in a row.
//! Ids know no rollback: what was drawn is used up, also where a later command of the transaction fails, as in Redis.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::resp::{MAX_QUEUED, MAX_QUEUED_IN_ALL};
use crate::resp::command::{Call, Flow};
use crate::resp::reply;
use crate::resp::table::{Name, Spec};
use crate::status::ErrorKind;

/// The transaction of a connection, if it is in one.
#[derive(Debug, Default)]
pub(super) enum Transaction {
    #[default]
    None,
    Open(Queued),
    /// A command could not be queued: nothing will be done.
    Failed,
}

/// Commands that wait for `EXEC`.
#[derive(Debug, Default)]
pub(super) struct Queued {
    /// As they came, one behind the other.
    pub(super) bytes: Vec<u8>,
    pub(super) commands: usize,
}

impl Transaction {
    /// Ends it, and gives back its part of what all connections may queue.
    pub(super) fn end(&mut self, queued: &AtomicUsize) -> Self {
        let ended = std::mem::take(self);
        if let Self::Open(it) = &ended {
            queued.fetch_sub(it.bytes.len(), Ordering::Relaxed);
        }
        ended
    }
}

impl Call<'_> {
    pub(super) fn multi(&mut self) -> Flow {
        self.session.transaction = Transaction::Open(Queued::default());
        self.ok()
    }

    pub(super) fn exec(&mut self) -> Flow {
        match self.session.transaction.end(&self.server.queued) {
            Transaction::None => self.fail(ErrorKind::BadRequest, "EXEC without MULTI"),
            Transaction::Failed => self.fail_as(
                ErrorKind::BadRequest,
                "EXECABORT",
                "Transaction discarded because of previous errors.",
            ),
            Transaction::Open(queued) => {
                self.tally.succeeded += 1;
                Flow::Execute(queued)
            }
        }
    }

    pub(super) fn discard(&mut self) -> Flow {
        match self.session.transaction.end(&self.server.queued) {
            Transaction::None => self.fail(ErrorKind::BadRequest, "DISCARD without MULTI"),
            _ => self.ok(),
        }
    }

    /// A watch that never fails would be a promise that is not kept, so there is none.
    pub(super) fn watch(&mut self) -> Flow {
        self.fail(
            ErrorKind::BadRequest,
            "WATCH is not supported: namespaces have no value that could be watched; leave it out",
        )
    }

    /// What a command does between `MULTI` and `EXEC`.
    #[cold]
    pub(super) fn in_transaction(&mut self, spec: &Spec) -> Flow {
        match spec.name {
            Name::Exec => self.exec(),
            Name::Discard => self.discard(),
            Name::Reset => self.reset(),
            Name::Quit => self.quit(),
            Name::Multi => self.fail(ErrorKind::BadRequest, "MULTI calls can not be nested"),
            Name::Watch => self.fail(ErrorKind::BadRequest, "WATCH inside MULTI is not allowed"),
            _ => self.queue(),
        }
    }

    fn queue(&mut self) -> Flow {
        if let Transaction::Open(queued) = &mut self.session.transaction {
            let more = self.bytes.len();
            let in_all = self.server.queued.fetch_add(more, Ordering::Relaxed) + more;
            if queued.bytes.len() + more > MAX_QUEUED || in_all > MAX_QUEUED_IN_ALL {
                self.server.queued.fetch_sub(more, Ordering::Relaxed);
                self.fail_transaction();
                let text = format!(
                    "transaction too large: expected at most {MAX_QUEUED} bytes of commands between MULTI and EXEC; use a \
                     pipeline without MULTI, or COUNT"
                );
                return self.fail(ErrorKind::BadRequest, &text);
            }
            queued.bytes.extend_from_slice(self.bytes);
            queued.commands += 1;
        }
        reply::simple(self.out, "QUEUED");
        Flow::Done
    }

    /// A command of a transaction cannot be done: `EXEC` does none of them.
    #[cold]
    pub(super) fn fail_transaction(&mut self) {
        if !matches!(self.session.transaction, Transaction::None) {
            self.session.transaction.end(&self.server.queued);
            self.session.transaction = Transaction::Failed;
        }
    }
}
