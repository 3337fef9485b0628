//! Which counters numbers come from now: the same for ever, or those of a period.

use std::sync::Arc;

use snowmint_store::Counter;

use crate::segment::{Period, Reset};

/// The counters of a period, where numbers begin anew: each period has its own, the same on every node.
pub type CountersOf = Arc<dyn Fn(Period) -> Vec<Arc<dyn Counter>> + Send + Sync>;

/// A clock that went back by less than this over the beginning of a period is not followed: it would only come again.
const HOLD_MS: u64 = 1000;

/// The counters of now.
#[derive(Clone)]
pub(super) struct Periods {
    counters: Vec<Arc<dyn Counter>>,
    each: Option<(Period, CountersOf)>,
}

impl Periods {
    pub(super) const fn one(counters: Vec<Arc<dyn Counter>>) -> Self {
        Self { counters, each: None }
    }

    pub(super) fn each(reset: Reset, counters_of: CountersOf, now_unix_ms: u64) -> Self {
        let period = Period::at(reset, now_unix_ms);
        Self { counters: counters_of(period), each: Some((period, counters_of)) }
    }

    pub(super) fn counters(&self) -> &[Arc<dyn Counter>] {
        &self.counters
    }

    /// The period of these counters.
    pub(super) fn period(&self) -> Option<Period> {
        self.each.as_ref().map(|(period, _)| *period)
    }

    /// The counters that an instant calls for, if they are others.
    pub(super) fn changed(&self, now_unix_ms: u64) -> Option<Self> {
        let (period, counters_of) = self.each.as_ref()?;
        let back = now_unix_ms < period.begin_unix_ms();
        if back && now_unix_ms + HOLD_MS >= period.begin_unix_ms() {
            return None;
        }
        let now = Period::at(period.reset(), now_unix_ms);
        (now != *period)
            .then(|| Self { counters: counters_of(now), each: Some((now, Arc::clone(counters_of))) })
    }

    /// The counters of the period after this one.
    pub(super) fn next(&self) -> Option<Self> {
        let (period, counters_of) = self.each.as_ref()?;
        let next = period.next();
        Some(Self { counters: counters_of(next), each: Some((next, Arc::clone(counters_of))) })
    }

    /// How long this period goes on, in milliseconds.
    pub(super) fn left_ms(&self, now_unix_ms: u64) -> Option<u64> {
        let (period, _) = self.each.as_ref()?;
        Some(period.next().begin_unix_ms().saturating_sub(now_unix_ms))
    }
}
