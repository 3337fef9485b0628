//! What a keeper tells about its lease: for readiness, metrics and people.

use std::sync::Arc;

use snowmint::WorkerId;
use snowmint::utc::Utc;
use snowmint_store::StoreError;
use tokio::sync::watch;

use crate::lease::pool::Pool;

/// What is held, and what has happened since the start.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LeaseStatus {
    /// The worker that ids are made with; `None` before the first lease and after the last.
    pub worker: Option<WorkerId>,
    /// The end of its lease, in unix milliseconds.
    pub until_unix_ms: Option<u64>,
    /// The pool, as in the store's keys.
    pub pool: String,
    /// How often the lease was renewed.
    pub renewals: u64,
    /// How often another node took the worker.
    pub lost: u64,
    /// How often the store was found to have lost what it had acknowledged of the lease.
    pub store_forgot: u64,
    /// How often another node was granted what the lease covered, after the store forgot: the lease ended at once.
    pub overlaps: u64,
    /// How many calls to the store failed.
    pub store_errors: u64,
    /// How far the store's records reach ahead of what a clock like ours writes, in milliseconds; 0 if they do
    /// not. Either this clock is behind or another's was ahead.
    pub records_ahead_ms: u64,
    /// How far this clock is ahead of the store's, or jumped forward without a confirmation, in milliseconds, while no lease is
    /// granted or renewed for that reason; 0 otherwise.
    pub clock_ahead_ms: u64,
    /// How far the wall clock is ahead of the clock that ids are made by, in milliseconds.
    pub wall_ahead_ms: i64,
    /// How often the wall clock was stepped.
    pub clock_steps: u64,
    /// Why there is no lease, while one is sought.
    pub waiting: Option<String>,
    /// What the store said when it last failed, since the lease was last granted or renewed.
    pub trouble: Option<String>,
    /// Why the lease is not saved, where it is to be.
    pub unsaved: Option<String>,
    /// Why there will be none.
    pub failure: Option<LeaseFailure>,
}

impl LeaseStatus {
    /// Waits until a lease is held, or until it is certain that waiting does not help.
    pub(in crate::lease) async fn settled(mut status: watch::Receiver<Self>) -> Result<Self, LeaseFailure> {
        let settled = status.wait_for(|status| status.worker.is_some() || status.failure.is_some()).await;
        let Ok(status) = settled else {
            return Err(LeaseFailure::Stopped);
        };
        match (&status.worker, &status.failure) {
            (None, Some(failure)) => Err(failure.clone()),
            _ => Ok(status.clone()),
        }
    }

    /// Adds what another one counted.
    pub(in crate::lease) fn add_counts(&mut self, other: &Self) {
        self.renewals += other.renewals;
        self.lost += other.lost;
        self.store_forgot += other.store_forgot;
        self.overlaps += other.overlaps;
        self.store_errors += other.store_errors;
    }

    /// Why there is no lease, or none that lasts.
    pub(in crate::lease) fn why_none(&self) -> Option<String> {
        let failure = self.failure.as_ref().map(ToString::to_string);
        failure.or_else(|| self.waiting.clone()).or_else(|| self.trouble.clone())
    }

    pub(in crate::lease) fn seeking(pool: &Pool) -> Self {
        Self { pool: pool.to_string(), waiting: Some("it is being sought".to_owned()), ..Self::default() }
    }
}

/// Why waiting for a lease does not help.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseFailure {
    /// The only worker wanted is another's.
    #[error(
        "worker {worker} is held by {holder} until {}, and the record is kept ahead of this clock: choose another \
         worker, stop that node, or start without a fixed worker", Utc(*.until_unix_ms)
    )]
    Taken {
        /// The worker.
        worker: WorkerId,
        /// Who has it.
        holder: String,
        /// Until when, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// The record of the only worker wanted cannot be read.
    #[error(
        "the record of worker {worker}, {key}, cannot be read, so nobody can tell until when the worker is granted, or \
         to whom: choose another worker, or remove the record with the store's own tools once no node uses the worker"
    )]
    Unreadable {
        /// The worker.
        worker: WorkerId,
        /// The record's key in the store.
        key: String,
    },
    /// The clock is too far ahead of the store's.
    #[error(
        "this clock is {ahead_ms} ms ahead of the store's, more than the {max_skew_ms} ms allowed: ids would keep others \
         out of that time; correct the clock, or allow more skew"
    )]
    ClockAhead {
        /// How far, in milliseconds.
        ahead_ms: u64,
        /// How far it may be, in milliseconds.
        max_skew_ms: u64,
    },
    /// The store cannot be used.
    #[error("{0}")]
    Store(Arc<StoreError>),
    /// The keeper was stopped.
    #[error("the lease was given back")]
    Stopped,
}
