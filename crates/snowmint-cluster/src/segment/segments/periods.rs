//! Which counters numbers come from now: the same for ever, or those of a period.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use snowmint_store::Counter;

use crate::segment::protocol::Seen;
use crate::segment::{Period, Reset};

/// The counters of a period, where numbers begin anew: each period has its own, the same on every node.
pub type CountersOf = Arc<dyn Fn(Period) -> Vec<Arc<dyn Counter>> + Send + Sync>;

/// A clock that went back by less than this over the beginning of a period is not followed: it would only come again.
const HOLD_MS: u64 = 1000;
/// Of so many periods it is known what was received.
const REMEMBERED: usize = 8;

/// What was received from the counters of each period, by all tasks of one source of numbers.
type SeenOf = Arc<Mutex<BTreeMap<Period, Vec<Seen>>>>;

/// The counters of now.
#[derive(Clone)]
pub(super) struct Periods {
    counters: Vec<Arc<dyn Counter>>,
    each: Option<(Period, CountersOf)>,
    seen: Vec<Seen>,
    seen_of: SeenOf,
}

impl Periods {
    pub(super) fn one(counters: Vec<Arc<dyn Counter>>) -> Self {
        let seen = counters.iter().map(|_| Seen::default()).collect();
        Self { counters, each: None, seen, seen_of: SeenOf::default() }
    }

    pub(super) fn each(reset: Reset, counters_of: CountersOf, now_unix_ms: u64) -> Self {
        Self::of(Period::at(reset, now_unix_ms), counters_of, SeenOf::default())
    }

    fn of(period: Period, counters_of: CountersOf, seen_of: SeenOf) -> Self {
        let counters = counters_of(period);
        let seen = {
            // Each change is one insertion or removal: a panic elsewhere leaves the map whole.
            let mut all = seen_of.lock().unwrap_or_else(PoisonError::into_inner);
            let seen =
                all.entry(period).or_insert_with(|| counters.iter().map(|_| Seen::default()).collect());
            let mut seen = seen.clone();
            seen.resize_with(counters.len(), Seen::default);
            while all.len() > REMEMBERED {
                // A clock may step to any period and back: the one furthest from where it is now.
                let far = |it: &Period| it.begin_unix_ms().abs_diff(period.begin_unix_ms());
                let Some(furthest) = all.keys().copied().max_by_key(far) else { break };
                all.remove(&furthest);
            }
            seen
        };
        Self { counters, each: Some((period, counters_of)), seen, seen_of }
    }

    /// What was received from each counter.
    pub(super) fn seen(&self) -> &[Seen] {
        &self.seen
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
        (now != *period).then(|| Self::of(now, Arc::clone(counters_of), Arc::clone(&self.seen_of)))
    }

    /// The counters of the period after this one.
    pub(super) fn next(&self) -> Option<Self> {
        let (period, counters_of) = self.each.as_ref()?;
        Some(Self::of(period.next(), Arc::clone(counters_of), Arc::clone(&self.seen_of)))
    }

    /// The first instant after this period, in unix milliseconds; none where numbers never begin anew.
    pub(super) fn ends_unix_ms(&self) -> u64 {
        self.period().map_or(u64::MAX, |period| period.next().begin_unix_ms())
    }

    /// How long this period goes on, in milliseconds.
    pub(super) fn left_ms(&self, now_unix_ms: u64) -> Option<u64> {
        let (period, _) = self.each.as_ref()?;
        Some(period.next().begin_unix_ms().saturating_sub(now_unix_ms))
    }
}
