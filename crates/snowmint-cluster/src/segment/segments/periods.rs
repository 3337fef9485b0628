//! Which counters numbers come from now: the same for ever, or those of a period.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use snowmint_store::Counter;

use crate::segment::protocol::Seen;
use crate::segment::{Period, Reset};

/// The counters of a period, where numbers restart: each period has its own, the same on every node.
pub type CountersOf = Arc<dyn Fn(Period) -> Vec<Arc<dyn Counter>> + Send + Sync>;

/// A clock that went back by less than this over the beginning of a period is not followed: it would only come again.
const HOLD_MS: u64 = 1000;
/// Of so many periods it is known what was received.
const REMEMBERED: usize = 8;

/// What was received from one counter, in each period or ever.
///
/// Shared by all [`Segments`](super::Segments) that ask the counter one after another, it shows the later ones that the counter
/// went back to what an earlier one received. Lives as long as its clones.
#[derive(Clone, Debug, Default)]
pub struct Received(Arc<Mutex<BTreeMap<Option<Period>, Seen>>>);

impl Received {
    /// What was received in a period, or ever.
    fn of(&self, period: Option<Period>) -> Seen {
        // Each change is one insertion or removal: a panic elsewhere leaves the map whole.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = all.entry(period).or_default().clone();
        while all.len() > REMEMBERED {
            // A clock may step to any period and back: the one furthest from where it is now.
            let now = period.map_or(0, Period::begin_unix_ms);
            let furthest = all.keys().copied().flatten().max_by_key(|it| it.begin_unix_ms().abs_diff(now));
            let Some(furthest) = furthest else { break };
            all.remove(&Some(furthest));
        }
        seen
    }

    /// The greatest number received, by period; that of `None` for numbers that never restart. Periods long past are forgotten.
    pub fn highest_by_period(&self) -> Vec<(Option<Period>, u64)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let highest = all.iter().map(|(period, seen)| (*period, seen.end().saturating_sub(1)));
        highest.filter(|(_, highest)| *highest > 0).collect()
    }

    /// The greatest number received in a period, or ever; 0 for none.
    pub(super) fn highest(&self, period: Option<Period>) -> u64 {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&period).map_or(0, |seen| seen.end().saturating_sub(1))
    }
}

/// The counters of now.
#[derive(Clone)]
pub(super) struct Periods {
    counters: Vec<Arc<dyn Counter>>,
    each: Option<(Period, CountersOf)>,
    seen: Vec<Seen>,
    /// By counter, as many as there are counters at least.
    received: Vec<Received>,
}

impl Periods {
    pub(super) fn one(counters: Vec<Arc<dyn Counter>>, received: Vec<Received>) -> Self {
        Self::at(counters, None, received)
    }

    pub(super) fn each(
        reset: Reset,
        counters_of: CountersOf,
        received: Vec<Received>,
        now_unix_ms: u64,
    ) -> Self {
        Self::of(Period::at(reset, now_unix_ms), counters_of, received)
    }

    fn of(period: Period, counters_of: CountersOf, received: Vec<Received>) -> Self {
        Self::at(counters_of(period), Some((period, counters_of)), received)
    }

    fn at(
        counters: Vec<Arc<dyn Counter>>,
        each: Option<(Period, CountersOf)>,
        mut received: Vec<Received>,
    ) -> Self {
        received.resize_with(received.len().max(counters.len()), Received::default);
        let period = each.as_ref().map(|(period, _)| *period);
        let seen = received.iter().take(counters.len()).map(|received| received.of(period)).collect();
        Self { counters, each, seen, received }
    }

    /// The greatest number that was received before, 0 for none.
    pub(super) fn highest(&self) -> u64 {
        self.seen.iter().map(|seen| seen.end().saturating_sub(1)).max().unwrap_or(0)
    }

    /// What was received from each counter.
    pub(super) fn seen(&self) -> &[Seen] {
        &self.seen
    }

    /// The same of every period, by counter.
    pub(super) fn received(&self) -> &[Received] {
        &self.received[..self.counters.len()]
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
        (now != *period).then(|| Self::of(now, Arc::clone(counters_of), self.received.clone()))
    }

    /// The counters of the period after this one.
    pub(super) fn next(&self) -> Option<Self> {
        let (period, counters_of) = self.each.as_ref()?;
        Some(Self::of(period.next(), Arc::clone(counters_of), self.received.clone()))
    }

    /// The first instant after this period, in unix milliseconds; none where numbers never restart.
    pub(super) fn ends_unix_ms(&self) -> u64 {
        self.period().map_or(u64::MAX, |period| period.next().begin_unix_ms())
    }

    /// How long this period goes on, in milliseconds.
    pub(super) fn left_ms(&self, now_unix_ms: u64) -> Option<u64> {
        let (period, _) = self.each.as_ref()?;
        Some(period.next().begin_unix_ms().saturating_sub(now_unix_ms))
    }
}
