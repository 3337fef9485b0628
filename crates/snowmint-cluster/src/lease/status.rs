//! What a node reports about its leases, for readiness, metrics and people; and why there is no lease or no
//! id.

use std::sync::Arc;
use std::time::Duration;

use snowmint::utc::Utc;
use snowmint::{GenerateError, WorkerId};
use snowmint_store::StoreError;
use tokio::sync::watch;

use super::record::WorkerPool;

/// The state of a lease, and what has happened to it since the start.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LeaseStatus {
    /// The worker of the current ids; `None` before the first lease and after the last.
    pub worker: Option<WorkerId>,
    /// The end of the lease, in unix milliseconds.
    pub until_unix_ms: Option<u64>,
    /// The pool, as in the store's keys.
    pub pool: String,
    /// How often the lease was renewed.
    pub renewals: u64,
    /// How often another node took the worker.
    pub lost: u64,
    /// How often the store had lost acknowledged writes of the lease.
    pub store_forgot: u64,
    /// How often the lease ended immediately: another node was granted time that it covered, because the
    /// store had lost writes, or a copy of this process renewed it.
    pub overlaps: u64,
    /// The number of failed store calls.
    pub store_errors: u64,
    /// How far the store's records are ahead of what this node's clock would write, in milliseconds; 0 if
    /// they are not. Either this clock is behind, or another one was ahead.
    pub records_ahead_ms: u64,
    /// While no lease is granted or renewed because of the clock: how far it is ahead of the store's clock,
    /// or has jumped forward without confirmation, in milliseconds. Otherwise 0.
    pub clock_ahead_ms: u64,
    /// How far the wall clock is ahead of the clock of the ids, in milliseconds.
    pub wall_ahead_ms: i64,
    /// How often the wall clock was stepped.
    pub clock_steps: u64,
    /// Why there is no lease, while the node seeks one.
    pub waiting: Option<String>,
    /// Whether other nodes held every worker that this one may have, when it last looked: nothing is wrong
    /// with this node.
    pub none_free: bool,
    /// The last error of the store since the lease was last granted or renewed.
    pub trouble: Option<String>,
    /// Why the lease is not saved, if it should be.
    pub unsaved: Option<String>,
    /// Why waiting for a lease does not help.
    pub failure: Option<LeaseError>,
}

impl LeaseStatus {
    pub(super) fn seeking(pool: &WorkerPool) -> Self {
        let waiting = Some("this node is looking for a free worker".to_owned());
        Self { pool: pool.to_string(), waiting, ..Self::default() }
    }

    /// Sets why the node waits for a lease.
    pub(super) fn wait(&mut self, why: String) {
        (self.waiting, self.none_free) = (Some(why), false);
    }

    /// Records that the lease was granted or renewed.
    pub(super) fn clear(&mut self) {
        (self.waiting, self.none_free, self.trouble, self.failure) = (None, false, None, None);
    }

    /// Waits until a lease is held, or until it is certain that waiting does not help.
    pub(super) async fn settled(mut status: watch::Receiver<Self>) -> Result<Self, LeaseError> {
        let settled = status.wait_for(|status| status.worker.is_some() || status.failure.is_some()).await;
        let Ok(status) = settled else {
            return Err(LeaseError::Released);
        };
        match (&status.worker, &status.failure) {
            (None, Some(failure)) => Err(failure.clone()),
            _ => Ok(status.clone()),
        }
    }

    /// Returns the worker and the end of the lease, in unix milliseconds, if the lease is valid at an
    /// instant. The status also shows a lease that has expired, since it may be renewed.
    pub fn held_at(&self, unix_ms: u64) -> Option<(WorkerId, u64)> {
        let until_unix_ms = self.until_unix_ms.filter(|until| *until > unix_ms)?;
        Some((self.worker?, until_unix_ms))
    }

    /// Adds the counts of another lease.
    pub(super) fn add_counts(&mut self, other: &Self) {
        self.renewals += other.renewals;
        self.lost += other.lost;
        self.store_forgot += other.store_forgot;
        self.overlaps += other.overlaps;
        self.store_errors += other.store_errors;
    }

    /// Returns why there is no lease, or no renewal.
    pub(super) fn why_none(&self) -> Option<String> {
        let failure = self.failure.as_ref().map(ToString::to_string);
        failure.or_else(|| self.waiting.clone()).or_else(|| self.trouble.clone())
    }
}

/// Why waiting for a lease does not help.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// Another node holds the required worker.
    #[error(
        "worker {worker} is held by {holder} until {}, and waiting does not help: choose another worker, stop that \
         node, or start without a fixed worker", Utc(*.until_unix_ms)
    )]
    Taken {
        /// The worker.
        worker: WorkerId,
        /// Its holder.
        holder: String,
        /// The end of the holder's lease, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// The record of the required worker is unreadable.
    #[error(
        "the record of worker {worker}, {key}, cannot be read, so its holder and the end of its lease are unknown: choose \
         another worker, or remove the record with the store's own tools once no node uses the worker"
    )]
    Unreadable {
        /// The worker.
        worker: WorkerId,
        /// The record's key in the store.
        key: String,
    },
    /// The clock is too far ahead of the store's.
    #[error(
        "this clock is {ahead_ms} ms ahead of the store's, more than the {max_skew_ms} ms allowed: a lease would block its \
         worker for other nodes until that time; correct the clock, or allow more skew"
    )]
    ClockAhead {
        /// How far the clock is ahead, in milliseconds.
        ahead_ms: u64,
        /// The limit, in milliseconds.
        max_skew_ms: u64,
    },
    /// The clock is too far ahead of the clock of a node that renews its lease. The store has no clock.
    #[error(
        "this clock is {ahead_ms} ms ahead of that of {holder}, which renews worker {worker}: more than the {max_skew_ms} ms \
         allowed, and a lease would block its worker until that time; correct the clock that is wrong, or allow more skew; if \
         all clocks are correct now, restart {holder}: it still counts by the clock that it started with"
    )]
    AheadOfNode {
        /// The worker of the other node.
        worker: WorkerId,
        /// The other node.
        holder: String,
        /// How far this clock is ahead at least, in milliseconds.
        ahead_ms: u64,
        /// The limit, in milliseconds.
        max_skew_ms: u64,
    },
    /// The store is unusable.
    #[error(transparent)]
    Store(Arc<StoreError>),
    /// The leases were released.
    #[error("the lease was released")]
    Released,
    /// This process is a forked child of the one that holds or seeks the leases.
    #[error(
        "this process was forked from the one the leases belong to: start leases of its own after the fork"
    )]
    Forked,
}

/// Why there is no id now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NextIdError {
    /// The generator has no id now.
    #[error(transparent)]
    Refused(GenerateError),
    /// The node holds no lease.
    #[error("no lease is held: {why}")]
    NoLease {
        /// The reason.
        why: String,
    },
}

impl NextIdError {
    /// Returns the error if the leases of all generators have ended; `ended` describes the last of them.
    ///
    /// Waiting helps only if one of the leases was granted beyond that end, and beyond the clock. An end that
    /// has passed does not show a renewal, whichever lease it belongs to.
    pub(super) fn of_ended(ended: GenerateError, leases: &[LeaseStatus], now_unix_ms: u64) -> Self {
        let GenerateError::LeaseEnded { until_unix_ms } = ended else { return Self::Refused(ended) };
        let lasts_ms = until_unix_ms.max(now_unix_ms);
        let lasting = || leases.iter().filter(|lease| lease.until_unix_ms > Some(lasts_ms));
        if lasting().any(|lease| lease.unsaved.is_none()) {
            // The lease is about to be saved, before it may be used.
            return Self::Refused(GenerateError::Ended);
        }
        if let Some(why) = lasting().find_map(|lease| lease.unsaved.clone()) {
            return Self::NoLease { why };
        }
        match leases.iter().find_map(LeaseStatus::why_none) {
            Some(why) => Self::NoLease { why: format!("{ended}; {why}") },
            None => Self::Refused(ended),
        }
    }

    /// Returns how long to sleep before the next attempt, or the error itself if waiting does not help.
    pub(super) fn retry_after(self) -> Result<Duration, Self> {
        match &self {
            Self::Refused(GenerateError::Ended) => Ok(Duration::from_millis(1)),
            Self::Refused(refusal) => match refusal.retry_after_ms() {
                Some(ms) => Ok(Duration::from_millis(ms.get())),
                None => Err(self),
            },
            Self::NoLease { .. } => Err(self),
        }
    }
}
