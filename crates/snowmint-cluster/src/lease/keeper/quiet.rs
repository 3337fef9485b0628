//! What the leases of one node tell each other: one of them found that the store forgot, so none claims a worker for a while.
//! It keeps the steady clock by which grants settle.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

/// A steady clock, and an instant of it before which no worker is claimed.
#[derive(Debug)]
pub(super) struct Quiet {
    began: Instant,
    until_steady_ms: AtomicU64,
}

impl Quiet {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), until_steady_ms: AtomicU64::new(0) }
    }

    /// Milliseconds that have passed at least. The time during which the machine is suspended may be missing.
    pub(super) fn steady_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn until_steady_ms(&self) -> u64 {
        self.until_steady_ms.load(Ordering::Relaxed)
    }

    /// For every lease of the node.
    pub(super) fn until(&self, steady_ms: u64) {
        self.until_steady_ms.fetch_max(steady_ms, Ordering::Relaxed);
    }
}
