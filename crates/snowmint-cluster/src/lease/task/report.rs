//! What the task of a lease reports about the store, the clock and its waiting: always in the status, in the log if it is new.
//! While the node looks for a worker it reads records many times a second, so the log limits how often a line repeats.

use std::sync::Arc;

use snowmint::utc::Utc;
use snowmint::{Clock, WorkerId};
use snowmint_store::{StoreError, StoreErrorKind};

use super::LeaseTask;
use crate::lease::protocol::{LeaseEvent, LeaseSettings, Listing, LookScope, WorkerChoice};
use crate::lease::status::LeaseError;
use crate::segment::high_water_mark::Forgot;

/// The interval between two log lines about the same outage or the same reason.
const REPEAT_MS: u64 = 60_000;

/// Why the task waits for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    NoneFree,
    Awaited,
    ClockAhead,
    ClockJumped,
    Taken,
    Unreadable,
    Unsaved,
    Refused,
}

impl Reason {
    /// Returns whether other nodes hold every worker that this one may have.
    const fn is_none_free(self) -> bool {
        matches!(self, Self::NoneFree | Self::Taken)
    }

    /// Returns whether both are the same problem: another node holds what this one waits for. They alternate
    /// with each of its renewals.
    fn is_same_problem(self, other: Self) -> bool {
        let is_of_others = |reason| matches!(reason, Self::NoneFree | Self::Awaited | Self::Taken);
        self == other || is_of_others(self) && is_of_others(other)
    }
}

/// The reasons logged since a lease was last granted, and when.
#[derive(Debug, Default)]
pub(super) struct Reported(Vec<(Reason, u64)>);

impl Reported {
    /// Returns whether to log a reason: the first time, and then each problem once a minute.
    fn is_due(&mut self, reason: Reason, now_unix_ms: u64) -> bool {
        let is_known = self.0.iter().any(|(logged, _)| *logged == reason);
        let lately = self.0.iter().any(|(logged, unix_ms)| {
            logged.is_same_problem(reason) && now_unix_ms.saturating_sub(*unix_ms) < REPEAT_MS
        });
        if is_known && lately {
            return false;
        }
        self.0.retain(|(logged, _)| *logged != reason);
        self.0.push((reason, now_unix_ms));
        true
    }

    /// Forgets all reasons once this node waits no more.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl LeaseTask {
    /// Reports an event of the protocol that changes neither the generator nor the saved lease.
    pub(super) fn report(&mut self, event: LeaseEvent) {
        match event {
            // The task applies these.
            LeaseEvent::Granted(_) | LeaseEvent::Extended(_) | LeaseEvent::Overlap { .. } | LeaseEvent::Copied { .. } => {}
            LeaseEvent::Claimed { worker, settles_in_ms } => self.report_claim(worker, settles_in_ms),
            LeaseEvent::StoreForgot { worker, acknowledged_until_unix_ms, found_until_unix_ms, forgot } => {
                self.report_loss(worker, acknowledged_until_unix_ms, found_until_unix_ms, forgot);
            }
            LeaseEvent::Lost { worker, until_unix_ms } => {
                tracing::warn!(
                    %worker,
                    until = %Utc(until_unix_ms),
                    "another node, `snowmint workers release` or `snowmint store recover` took this worker; ids continue until the \
                     lease ends, and this node looks for another worker"
                );
                self.status.send_modify(|status| status.lost += 1);
            }
            LeaseEvent::GapEnds { worker, until_unix_ms } => tracing::info!(
                %worker,
                until = %Utc(until_unix_ms),
                "the next timestamps of this worker were granted to a node whose clock was ahead; ids continue until the lease ends, \
                 and this node looks for another worker"
            ),
            LeaseEvent::RecordsAhead { worker, holder, ahead_ms } => {
                self.report_records_ahead(worker, holder.as_str(), ahead_ms);
            }
            LeaseEvent::NoneFree { first } => self.wait_for_any(first.map(|(worker, holder, until)| {
                format!(
                    "no worker is free; worker {worker} frees first, at {}, if {holder} does not renew it",
                    Utc(until)
                )
            })),
            LeaseEvent::Awaited { worker, holder, until_unix_ms } => self.wait_for(
                Reason::Awaited,
                format!(
                    "worker {worker} is granted to {holder} until {}: waiting to see whether {holder} renews it",
                    Utc(until_unix_ms)
                ),
            ),
            LeaseEvent::ClockAhead { ahead_ms, max_skew_ms } => {
                self.fail(Reason::ClockAhead, LeaseError::ClockAhead { ahead_ms, max_skew_ms });
                self.report_clock_ahead(ahead_ms);
            }
            LeaseEvent::ClockJumped { by_ms, followed_in_ms } => {
                let why = format!(
                    "this clock jumped forward by {by_ms} ms, and neither the store nor another node confirms that: this node \
                     renews no lease by it for another {followed_in_ms} ms; correct the clock, or if it is right, wait or \
                     restart this node"
                );
                self.wait_for(Reason::ClockJumped, why);
                self.report_clock_ahead(by_ms);
            }
            LeaseEvent::Taken { worker, holder, until_unix_ms } => {
                let holder = holder.to_string();
                self.fail(Reason::Taken, LeaseError::Taken { worker, holder, until_unix_ms });
            }
            LeaseEvent::Released => {
                tracing::info!(worker = self.released.map(tracing::field::display), "lease released");
            }
        }
    }

    /// Reports a call that succeeded, if it ends an outage.
    pub(super) fn call_succeeded(&mut self, access: StoreAccess) {
        if let Some((ms, failed_calls)) = self.outage.succeeded(self.node.clock.unix_ms(), access) {
            tracing::info!(after_ms = ms, failed_calls, "the store answers again");
        }
    }

    /// Counts and reports a call that failed, and the end of the lease if it comes before the store answers again.
    pub(super) fn call_failed(&mut self, access: StoreAccess, error: StoreError) {
        let now = self.node.clock.unix_ms();
        // If the store was unreachable, a successful read ends the outage; if it rejects writes, only a write does.
        let failed = if error.kind() == StoreErrorKind::Unavailable { StoreAccess::Reads } else { access };
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
        self.status.send_modify(|status| {
            status.store_errors += 1;
            status.failure = None;
            if status.worker.is_some() {
                status.trouble = Some(error.to_string());
            } else if error.is_temporary() {
                // Whether a worker is free is as unknown as before.
                status.waiting = Some(error.to_string());
            }
            if !error.is_temporary() {
                status.failure = Some(LeaseError::Store(Arc::new(error)));
            }
        });
    }

    /// Every start over such a store waits for this, so it is not a warning.
    fn report_claim(&self, worker: WorkerId, settles_in_ms: u64) {
        tracing::info!(%worker, settles_in_ms, "worker claimed; the lease is used once the store can no longer lose it");
        let why = format!(
            "worker {worker} was claimed; its lease is used once it has settled, {settles_in_ms} ms after that (may_lose of the store)"
        );
        self.status.send_modify(|status| {
            status.wait(why);
            status.failure = None;
        });
    }

    fn report_loss(
        &self,
        worker: WorkerId,
        acknowledged_until: u64,
        found_until: Option<u64>,
        forgot: Forgot,
    ) {
        let acknowledged_until = Utc(acknowledged_until);
        let found_until = found_until.map(|until| tracing::field::display(Utc(until)));
        let store = self.node.store.describe();
        match forgot {
            Forgot::Unsettled => tracing::warn!(
                %worker, %acknowledged_until, found_until, store,
                "the store lost a grant of this lease before it had settled, as may_lose allows: nothing of it was used, no \
                 id is affected; this node claims no other worker for one window"
            ),
            Forgot::Settled => tracing::error!(
                %worker, %acknowledged_until, found_until, store,
                "the store lost writes that it had acknowledged: it was restored, or lost more than may_lose; this node \
                 claims no other worker for one window"
            ),
        }
        self.status.send_modify(|status| status.store_forgot += 1);
    }

    /// Without a record that shows when a worker frees, no record is readable.
    fn wait_for_any(&mut self, first: Option<String>) {
        let LeaseSettings { choice, pool, .. } = *self.protocol.settings();
        match (first, choice) {
            (Some(why), _) => self.wait_for(Reason::NoneFree, why),
            (None, WorkerChoice::Only(worker)) => {
                let key = pool.key(worker).map(|key| key.to_string()).unwrap_or_default();
                self.fail(Reason::Unreadable, LeaseError::Unreadable { worker, key });
            }
            (None, WorkerChoice::Any) => {
                let why = "no worker is free, and no record of this pool can be read";
                self.wait_for(Reason::Unreadable, why.to_owned());
            }
        }
    }

    fn report_records_ahead(&self, worker: WorkerId, holder: &str, ahead_ms: u64) {
        let reported = self.status.borrow().records_ahead_ms;
        // Logged again only if it grows.
        if reported == 0 || ahead_ms > reported + 60_000 {
            tracing::warn!(
                %worker,
                holder,
                ahead_ms,
                "records reach further ahead than this clock: either it is behind or that node's was ahead"
            );
        }
        self.status.send_modify(|status| status.records_ahead_ms = ahead_ms);
    }

    /// Reports that waiting alone does not help. The task keeps trying, because somebody may fix the cause.
    fn fail(&mut self, reason: Reason, failure: LeaseError) {
        self.wait_for(reason, failure.to_string());
        self.status.send_modify(|status| status.failure = Some(failure));
    }

    /// Reports a node that renews its lease by a clock far behind this one.
    pub(super) fn ahead_of_node(&mut self, worker: WorkerId, holder: String, ahead_ms: u64) {
        let max_skew_ms = self.node.settings().max_skew_ms;
        self.fail(Reason::ClockAhead, LeaseError::AheadOfNode { worker, holder, ahead_ms, max_skew_ms });
        self.report_clock_ahead(ahead_ms);
    }

    /// A held lease is not renewed for this reason either, so its status shows it.
    fn report_clock_ahead(&self, ahead_ms: u64) {
        self.status.send_modify(|status| {
            status.clock_ahead_ms = ahead_ms;
            if status.worker.is_some() {
                status.trouble.clone_from(&status.waiting);
            }
        });
    }

    /// Records that a lease was granted or renewed: the clock was not ahead, or is confirmed now.
    pub(super) fn clock_confirmed(&mut self) {
        let ahead_ms = self.status.borrow().clock_ahead_ms;
        if ahead_ms > 0 {
            tracing::info!(ahead_ms, "the clock is correct again or confirmed; leases are renewed by it");
            self.reported.clear();
        }
        self.status.send_modify(|status| status.clock_ahead_ms = 0);
    }

    /// Logs an unreadable record once.
    pub(super) fn report_unreadable(&mut self, scope: LookScope, listing: &Listing) {
        let unreadable =
            listing.entries.iter().find(|entry| entry.record.is_none()).map(|entry| entry.worker);
        if self.unreadable != unreadable
            && let Some(worker) = unreadable
        {
            tracing::warn!(%worker, "the record of this worker cannot be read; no node uses the worker");
        }
        // A smaller scope says nothing about the other records.
        if unreadable.is_some() || scope == LookScope::Pool {
            self.unreadable = unreadable;
        }
    }

    /// Logs why the store has no clock, once for each reason.
    pub(super) fn report_missing_clock(&mut self) {
        let why = self.node.store.clock_missing();
        if let Some(why) = &why
            && self.clock_missing.as_ref() != Some(why)
        {
            tracing::warn!("a wrong clock of this node goes unnoticed: {why}");
        }
        self.clock_missing = why;
    }

    /// Reports why the task waits for a lease.
    pub(super) fn wait_for(&mut self, reason: Reason, why: String) {
        if self.reported.is_due(reason, self.node.clock.unix_ms()) {
            tracing::warn!("{why}");
        }
        // A failure before this one has passed.
        self.status.send_modify(|status| {
            status.wait(why);
            (status.none_free, status.failure) = (reason.is_none_free(), None);
        });
    }
}

/// The kind of access of a call. A full disk rejects only writes, so a successful read does not end that outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StoreAccess {
    Reads,
    Writes,
}

/// An outage of the store, from the first failed call to the first one that shows that it is over. It decides what to log.
#[derive(Debug, Default)]
pub(super) struct Outage(Option<Ongoing>);

#[derive(Debug)]
struct Ongoing {
    since_unix_ms: u64,
    told_unix_ms: u64,
    failed_unix_ms: u64,
    failed_calls: u64,
    /// Whether writes have failed, or only reads.
    failed: StoreAccess,
    /// The end of the lease that ended during the outage.
    ended_unix_ms: Option<u64>,
}

/// What to log about a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tell {
    /// The outage begins.
    Begins,
    /// The outage continues.
    Lasts { ms: u64, failed_calls: u64 },
    /// The outage was logged recently.
    Nothing,
}

impl Outage {
    fn failed(&mut self, now_unix_ms: u64, access: StoreAccess) -> Tell {
        let Some(ongoing) = &mut self.0 else {
            self.0 = Some(Ongoing {
                since_unix_ms: now_unix_ms,
                told_unix_ms: now_unix_ms,
                failed_unix_ms: now_unix_ms,
                failed_calls: 1,
                failed: access,
                ended_unix_ms: None,
            });
            return Tell::Begins;
        };
        ongoing.failed_calls += 1;
        ongoing.failed_unix_ms = now_unix_ms;
        ongoing.failed = ongoing.failed.max(access);
        if now_unix_ms.saturating_sub(ongoing.told_unix_ms) < REPEAT_MS {
            return Tell::Nothing;
        }
        ongoing.told_unix_ms = now_unix_ms;
        let ms = now_unix_ms.saturating_sub(ongoing.since_unix_ms);
        Tell::Lasts { ms, failed_calls: ongoing.failed_calls }
    }

    /// Returns whether to log that a lease has ended during the outage: once for each lease.
    fn outlasted(&mut self, now_unix_ms: u64, until_unix_ms: u64) -> bool {
        let Some(ongoing) = self.0.as_mut().filter(|_| until_unix_ms <= now_unix_ms) else { return false };
        ongoing.ended_unix_ms.replace(until_unix_ms) != Some(until_unix_ms)
    }

    /// If this call ends an outage, returns how long it lasted and the number of failed calls. A read ends an outage of writes
    /// only if no write has failed for a while, for example because no worker is free and nothing is written.
    fn succeeded(&mut self, now_unix_ms: u64, access: StoreAccess) -> Option<(u64, u64)> {
        let quiet = |it: &mut Ongoing| now_unix_ms.saturating_sub(it.failed_unix_ms) >= REPEAT_MS;
        let ended = self.0.take_if(|it| access >= it.failed || quiet(it))?;
        Some((now_unix_ms.saturating_sub(ended.since_unix_ms), ended.failed_calls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a fixed worker that another node holds is logged when it begins and once a minute. Method: the
    /// two reasons alternate with each renewal of the other node, for three minutes.
    #[test]
    fn reasons_that_alternate_are_logged_once_a_minute() {
        let (mut reported, mut logged) = (Reported::default(), Vec::new());
        for i in 0..600 {
            let now = 1_000_000 + i * 300;
            let reason = if i % 3 == 0 { Reason::Taken } else { Reason::Awaited };
            logged.extend(reported.is_due(reason, now).then_some((reason, (now - 1_000_000) / 1000)));
        }
        let seconds: Vec<u64> = logged.iter().map(|(_, second)| *second).collect();
        assert_eq!(seconds, [0, 0, 60, 120], "each reason at the beginning: {logged:?}");
        assert!(reported.is_due(Reason::ClockJumped, 1_180_001), "another problem");
        assert!(!reported.is_due(Reason::Taken, 1_180_001));
        reported.clear();
        assert!(reported.is_due(Reason::Taken, 1_180_002));
    }

    #[test]
    fn an_outage_is_logged_when_it_begins_each_minute_and_when_it_ends() {
        let mut outage = Outage::default();
        assert_eq!(outage.succeeded(0, StoreAccess::Writes), None);
        let told: Vec<Tell> =
            (0..1300).map(|i| outage.failed(1_000_000 + i * 100, StoreAccess::Reads)).collect();
        assert_eq!(told[0], Tell::Begins);
        assert_eq!(told[600], Tell::Lasts { ms: 60_000, failed_calls: 601 });
        assert_eq!(told[1200], Tell::Lasts { ms: 120_000, failed_calls: 1201 });
        assert_eq!(told.iter().filter(|tell| **tell == Tell::Nothing).count(), 1297);
        assert_eq!(outage.succeeded(1_130_000, StoreAccess::Reads), Some((130_000, 1300)));
        assert_eq!(outage.failed(1_130_001, StoreAccess::Reads), Tell::Begins);
    }

    /// Goal: a full disk, with successful reads between failing writes, is one outage.
    #[test]
    fn reads_do_not_end_an_outage_of_writes() {
        let mut outage = Outage::default();
        assert_eq!(outage.failed(1000, StoreAccess::Writes), Tell::Begins);
        for i in 1..100 {
            assert_eq!(outage.succeeded(1000 + i * 100, StoreAccess::Reads), None);
            assert_eq!(outage.failed(1050 + i * 100, StoreAccess::Writes), Tell::Nothing);
        }
        assert_eq!(outage.succeeded(20_000, StoreAccess::Writes), Some((19_000, 100)));
        assert!(!outage.outlasted(20_000, 10_000));
        outage.failed(30_000, StoreAccess::Writes);
        assert_eq!([35_000, 40_000, 41_000].map(|now| outage.outlasted(now, 40_000)), [false, true, false]);
        assert_eq!(outage.succeeded(89_999, StoreAccess::Reads), None);
        assert_eq!(outage.succeeded(90_000, StoreAccess::Reads), Some((60_000, 1)));
    }
}
