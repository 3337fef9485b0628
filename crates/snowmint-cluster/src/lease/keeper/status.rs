//! What a keeper tells about its lease: for readiness, metrics and people.

use std::sync::Arc;

use snowmint::WorkerId;
use snowmint::utc::Utc;
use snowmint_store::StoreError;

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
    /// How many calls to the store failed.
    pub store_errors: u64,
    /// How far the store's records reach ahead of what a clock like ours writes, in milliseconds; 0 if they do
    /// not. Either this clock is behind or another's was ahead.
    pub records_ahead_ms: u64,
    /// How far the wall clock is ahead of the clock that ids are made by, in milliseconds.
    pub wall_ahead_ms: i64,
    /// How often the wall clock was stepped.
    pub clock_steps: u64,
    /// Why there is no lease, while one is sought.
    pub waiting: Option<String>,
    /// Why there will be none.
    pub failure: Option<LeaseFailure>,
}

impl LeaseStatus {
    pub(super) fn seeking(pool: &Pool) -> Self {
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
