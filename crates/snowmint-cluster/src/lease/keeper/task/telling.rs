//! What a task tells of the store and of why there is no lease: into the status each time, into the log when it is new.
//! While a worker is sought the records are read many times a second.

use std::sync::Arc;

use snowmint::utc::Utc;
use snowmint::{Clock, WorkerId};
use snowmint_store::{StoreError, StoreErrorKind};

use super::Task;
use crate::lease::keeper::LeaseFailure;
use crate::lease::keeper::outage::{Access, Tell};
use crate::lease::protocol::{Failure, Listing, Scope, Settings, WorkerChoice};
use crate::segment::protocol::Forgot;

/// Between two words about one reason, whose figures change.
const AGAIN_MS: u64 = 60_000;

/// Why a lease is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    NoneFree,
    Awaited,
    ClockAhead,
    ClockJumped,
    Taken,
    Unreadable,
    Unsaved,
}

/// What was told last, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    reason: Reason,
    unix_ms: u64,
}

impl Task {
    /// Counts and tells failures. A call that the node gave up itself says so; whether a write happened is then unknown.
    pub(super) fn judged<T>(
        &mut self,
        answer: Result<Result<T, StoreError>, tokio::time::error::Elapsed>,
        operation: &'static str,
    ) -> Result<T, Failure> {
        let now = self.clock.unix_ms();
        let access = if operation == "compare_and_set" { Access::Writes } else { Access::Reads };
        let error = match answer {
            Ok(Ok(value)) => {
                if let Some((ms, failed_calls)) = self.outage.succeeded(now, access) {
                    tracing::info!(after_ms = ms, failed_calls, "the store answers again");
                }
                return Ok(value);
            }
            Ok(Err(error)) => error,
            Err(_) => {
                let kind = match access {
                    Access::Reads => StoreErrorKind::Unavailable,
                    Access::Writes => StoreErrorKind::OutcomeUnknown,
                };
                let limit = self.config.call_timeout().as_millis();
                let text = format!("no answer within {limit} ms, this node's limit for a call");
                StoreError::new(kind, operation, self.store.describe(), text)
            }
        };
        // A store that could not be reached is there again when a read succeeds; one that refuses writes is not.
        let failed = if error.kind() == StoreErrorKind::Unavailable { Access::Reads } else { access };
        match self.outage.failed(now, failed) {
            Tell::Begins => tracing::warn!(%error, "store call failed; retrying"),
            Tell::Lasts { ms, failed_calls } => {
                tracing::warn!(%error, for_ms = ms, failed_calls, "store calls still fail; retrying");
            }
            Tell::Nothing => tracing::debug!(%error, "store call failed"),
        }
        let (worker, until) = {
            let status = self.status.borrow();
            (status.worker, status.until_unix_ms)
        };
        if let (Some(worker), Some(until)) = (worker, until)
            && self.outage.outlasted(now, until)
        {
            tracing::error!(
                %worker, until = %Utc(until),
                "the lease has ended; no ids under it until the store can be written"
            );
        }
        let failure = match error.kind() {
            StoreErrorKind::OutcomeUnknown => Failure::Unknown,
            _ => Failure::NotDone,
        };
        self.status.send_modify(|status| {
            status.store_errors += 1;
            if !error.is_temporary() {
                status.failure = Some(LeaseFailure::Store(Arc::new(error)));
            } else if status.worker.is_none() {
                status.waiting = Some(error.to_string());
            } else {
                status.trouble = Some(error.to_string());
            }
        });
        Err(failure)
    }

    /// A start is not hurried by this, so it is no warning.
    pub(super) fn claimed(&self, worker: WorkerId, settles_in_ms: u64) {
        tracing::info!(%worker, settles_in_ms, "worker claimed; the lease is used once the store can no longer lose it");
        let why = format!(
            "worker {worker} was claimed; its lease is used once it has settled, {settles_in_ms} ms after that (may_lose of the store)"
        );
        self.status.send_modify(|status| status.waiting = Some(why));
    }

    pub(super) fn store_forgot(
        &self,
        worker: WorkerId,
        acknowledged_until: u64,
        found_until: Option<u64>,
        forgot: Forgot,
    ) {
        let acknowledged_until = Utc(acknowledged_until);
        let found_until = found_until.map(|until| tracing::field::display(Utc(until)));
        let store = self.store.describe();
        match forgot {
            Forgot::Unsettled => tracing::warn!(
                %worker, %acknowledged_until, found_until, store,
                "the store lost a grant of this lease before it had settled, as may_lose allows: none of it was used, no id \
                 is affected; this node claims no other worker for one window"
            ),
            Forgot::Settled => tracing::error!(
                %worker, %acknowledged_until, found_until, store,
                "the store lost writes that it had acknowledged: it was restored, or lost more than it may; this node \
                 claims no other worker for one window"
            ),
        }
        self.status.send_modify(|status| status.store_forgot += 1);
    }

    /// Without a record that tells when a worker frees, there is none that can be read.
    pub(super) fn none_free(&mut self, first: Option<String>) {
        let Settings { choice, pool, .. } = *self.protocol.settings();
        match (first, choice) {
            (Some(why), _) => self.waiting(Reason::NoneFree, why),
            (None, WorkerChoice::Only(worker)) => {
                let key = pool.key(worker).map(|key| key.to_string()).unwrap_or_default();
                self.failed(Reason::Unreadable, LeaseFailure::Unreadable { worker, key });
            }
            (None, WorkerChoice::Any) => {
                let why = "no worker is free, and no record of this pool can be read";
                self.waiting(Reason::Unreadable, why.to_owned());
            }
        }
    }

    pub(super) fn records_ahead(&self, worker: WorkerId, holder: &str, ahead_ms: u64) {
        let told = self.status.borrow().records_ahead_ms;
        // Told again only when it grows: while no worker is free the records are read many times a second.
        if told == 0 || ahead_ms > told + 60_000 {
            tracing::warn!(
                %worker,
                holder,
                ahead_ms,
                "records reach further ahead than this clock: either it is behind or that node's was ahead; \
                 taking another worker"
            );
        }
        self.status.send_modify(|status| status.records_ahead_ms = ahead_ms);
    }

    /// Tells that waiting alone does not help, and goes on trying: somebody may mend it.
    pub(super) fn failed(&mut self, reason: Reason, failure: LeaseFailure) {
        self.waiting(reason, failure.to_string());
        self.status.send_modify(|status| status.failure = Some(failure));
    }

    /// A lease that is held is not renewed meanwhile: that is said where one looks for it.
    pub(super) fn clock_ahead(&self, ahead_ms: u64) {
        self.status.send_modify(|status| {
            status.clock_ahead_ms = ahead_ms;
            if status.worker.is_some() {
                status.trouble.clone_from(&status.waiting);
            }
        });
    }

    /// A lease was granted or renewed: the clock was not ahead, or is confirmed now.
    pub(super) fn clock_confirmed(&mut self) {
        let ahead_ms = self.status.borrow().clock_ahead_ms;
        if ahead_ms > 0 {
            tracing::info!(ahead_ms, "the clock is right again, or confirmed: leases are renewed by it");
            self.said = None;
        }
        self.status.send_modify(|status| status.clock_ahead_ms = 0);
    }

    /// Told once: while a worker is sought the records are read many times a second.
    pub(super) fn tell_unreadable(&mut self, scope: Scope, listing: &Listing) {
        let unreadable =
            listing.entries.iter().find(|entry| entry.record.is_none()).map(|entry| entry.worker);
        if self.unreadable != unreadable
            && let Some(worker) = unreadable
        {
            tracing::warn!(%worker, "this worker's record cannot be read; the worker is left alone");
        }
        // Of the others nothing was seen.
        if unreadable.is_some() || scope == Scope::Pool {
            self.unreadable = unreadable;
        }
    }

    pub(super) fn waiting(&mut self, reason: Reason, why: String) {
        let now = self.clock.unix_ms();
        let lately = |said: Said| said.reason == reason && now.saturating_sub(said.unix_ms) < AGAIN_MS;
        if !self.said.is_some_and(lately) {
            tracing::warn!("{why}");
            self.said = Some(Said { reason, unix_ms: now });
        }
        self.status.send_modify(|status| status.waiting = Some(why));
    }
}
