//! What may be set when the service starts, with values that suit without being set.
//! The bounds that may not be set are in `limits.rs`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use snowmint::{Clock, WallClock};

use crate::limits;

/// A clock of the service. The rest of a lease, the uptime and the time in ids of 96 and 128 bits are told by the node's; the
/// day of a text and the period of a number by the wall clock. No 64-bit id depends on it.
pub type SharedClock = Arc<dyn Clock + Send + Sync>;

/// The clock of the service, as it is kept in what can be shown.
#[derive(Clone)]
pub struct ServiceClock(pub SharedClock);

impl Clock for ServiceClock {
    fn unix_ms(&self) -> u64 {
        self.0.unix_ms()
    }
}

impl fmt::Debug for ServiceClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServiceClock")
    }
}

/// Settings of the service.
#[derive(Clone)]
pub struct Settings {
    /// Connections at once, over all protocols.
    pub max_connections: usize,
    /// How long requests in flight may take to finish once the service was told to end.
    pub drain: Duration,
    /// How long requests are still served after the service was told to end, while `/readyz` answers 503: what a load
    /// balancer needs to notice. Zero ends at once.
    pub drain_delay: Duration,
    /// The clock to tell the rest of a lease by: best the one of the keeper.
    pub clock: SharedClock,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_connections: limits::MAX_CONNECTIONS,
            drain: limits::DRAIN,
            drain_delay: Duration::ZERO,
            clock: Arc::new(WallClock),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("max_connections", &self.max_connections)
            .field("drain", &self.drain)
            .field("drain_delay", &self.drain_delay)
            .finish_non_exhaustive()
    }
}
