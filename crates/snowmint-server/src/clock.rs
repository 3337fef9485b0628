//! The clocks of the service; tests replace them.

use std::fmt;
use std::sync::Arc;

use snowmint::Clock;

/// A clock of the service.
///
/// The node's clock measures the remaining lease and the uptime, and gives the time in ids of 96 and 128
/// bits. The wall clock gives the date in text forms and the period of numbers. No 64-bit id depends on
/// either.
pub type SharedClock = Arc<dyn Clock + Send + Sync>;

/// A [`SharedClock`] that implements `Debug`.
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
