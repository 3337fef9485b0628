//! What every connection of every protocol shares.
//! One of it exists for each service; it holds no connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::http::AllowedHosts;
use crate::memory::Crowd;
use crate::metrics::Metrics;
use crate::mint::Mint;
use crate::settings::{Settings, SharedClock, Timeouts};
use crate::turns::Turns;

/// The mint and everything around it.
pub(crate) struct Server {
    pub(crate) mint: Arc<Mint>,
    pub(crate) metrics: Metrics,
    pub(crate) clock: SharedClock,
    pub(crate) started_unix_ms: u64,
    pub(crate) max_connections: usize,
    pub(crate) timeouts: Timeouts,
    pub(crate) allowed_hosts: AllowedHosts,
    /// Bytes of commands between `MULTI` and `EXEC`, over all connections.
    pub(crate) queued: AtomicUsize,
    pub(crate) crowd: Arc<Crowd>,
    pub(crate) turns: Turns,
    clients: AtomicU64,
}

impl Server {
    pub(crate) fn new(mint: Arc<Mint>, settings: &Settings) -> Self {
        let metrics = Metrics::new(&mint, &settings.clock);
        Self {
            mint,
            metrics,
            clock: Arc::clone(&settings.clock),
            started_unix_ms: settings.clock.unix_ms(),
            max_connections: settings.max_connections,
            timeouts: settings.timeouts,
            allowed_hosts: settings.allowed_hosts.clone(),
            queued: AtomicUsize::new(0),
            crowd: Arc::default(),
            turns: Turns::new(),
            clients: AtomicU64::new(0),
        }
    }

    /// A number for a new RESP connection, from 1 on.
    pub(crate) fn next_client(&self) -> u64 {
        // Only that no two are equal matters.
        self.clients.fetch_add(1, Ordering::Relaxed) + 1
    }
}
