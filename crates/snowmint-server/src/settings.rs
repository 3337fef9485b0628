//! What may be set when the service starts, with values that suit without being set.
//! The bounds that may not be set are in `limits.rs`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use snowmint::{Clock, WallClock};

use crate::http::AllowedHosts;
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

/// How long a client may take before it is disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Between two requests; `None` for ever.
    pub idle: Option<Duration>,
    /// For a request to arrive as a whole once it has begun; over HTTP also for the first request to begin.
    pub request: Duration,
    /// While it takes nothing of its answer.
    pub write: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            idle: Some(limits::IDLE_TIMEOUT),
            request: limits::REQUEST_TIMEOUT,
            write: limits::WRITE_TIMEOUT,
        }
    }
}

impl Settings {
    /// Lowers the number of connections to what fits into `limit` open files; `false` if it fits already.
    ///
    /// Without it the system refuses connections before the service does, health checks among them.
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint_server::Settings;
    /// let mut settings = Settings::default();
    /// assert!(!settings.fit_open_files(1_048_576));
    /// assert!(settings.fit_open_files(1024));
    /// assert_eq!((settings.max_connections, settings.reserved_connections), (864, 64));
    /// ```
    pub fn fit_open_files(&mut self, limit: u64) -> bool {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let reserved = limits::RESERVED.min(limit / 8).max(1);
        let fits = limit.saturating_sub(2 * reserved + limits::OTHER_FILES).max(limit / 4).max(1);
        let lowers = self.max_connections > fits;
        self.max_connections = self.max_connections.min(fits);
        self.reserved_connections = self.reserved_connections.min(reserved);
        lowers
    }
}

/// Settings of the service.
#[derive(Clone)]
pub struct Settings {
    /// Connections at once, over all protocols.
    pub max_connections: usize,
    /// Connections of each protocol beyond those: see [`limits::RESERVED`].
    pub reserved_connections: usize,
    /// How long clients may take.
    pub timeouts: Timeouts,
    /// Whom HTTP requests may be addressed to.
    pub allowed_hosts: AllowedHosts,
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
            reserved_connections: limits::RESERVED,
            timeouts: Timeouts::default(),
            allowed_hosts: AllowedHosts::Any,
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
            .field("reserved_connections", &self.reserved_connections)
            .field("timeouts", &self.timeouts)
            .field("allowed_hosts", &self.allowed_hosts)
            .field("drain", &self.drain)
            .field("drain_delay", &self.drain_delay)
            .finish_non_exhaustive()
    }
}
