//! The quota of a token: ids a second and ids a UTC day, for each node.
//!
//! Each is a count in one atomic number. Ids are counted before they are made, and given back if no client
//! gets them. So concurrent requests cannot exceed a quota together, and retries during an outage do not use
//! up the daily quota.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::mint::Quota;
use crate::status::ErrorKind;

const MS_PER_DAY: u64 = 86_400_000;
/// The largest rate, in ids a second. At this rate, a count of all ids since 1970 fits an atomic number until
/// the year 2500.
pub(super) const MAX_RATE: u64 = 1_000_000_000;
/// The largest daily quota: the count has 40 bits, the day the other 24.
pub(super) const MAX_PER_DAY: u64 = 1_000_000_000_000;
const DAY_BITS: u32 = 40;

/// The quotas of a token; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Ids a second. After a second without a request, this many may be taken at once.
    pub rate: Option<NonZeroU64>,
    /// Ids a UTC day.
    pub per_day: Option<NonZeroU64>,
}

/// Why ids are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exceeded {
    /// A request for this many ids never fits.
    Always(Quota),
    /// The request fits after this time.
    Now(Quota, Duration),
}

/// When ids were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    at_unix_ms: u64,
    /// The day that they were counted for, which may be later than that of the clock; 0 without a daily
    /// quota.
    day: u64,
}

/// What a token has used. It outlives changes of the token, so that a reload of the file refills nothing.
#[derive(Debug)]
pub struct Usage {
    /// Ids counted towards the rate, on the scale of [`allowance`].
    spent: AtomicU64,
    /// The day since 1970 and the ids of that day.
    day: AtomicU64,
    issued: AtomicU64,
    succeeded: AtomicU64,
    failed: [AtomicU64; ErrorKind::ALL.len()],
}

impl Default for Usage {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            spent: zero(),
            day: zero(),
            issued: zero(),
            succeeded: zero(),
            failed: ErrorKind::ALL.map(|_| zero()),
        }
    }
}

impl Usage {
    /// Counts ids towards the quotas before they are made.
    pub(super) fn spend(&self, quotas: &Quotas, count: u64, now_unix_ms: u64) -> Result<Counted, Exceeded> {
        let limits = [quotas.rate.map(Quota::Rate), quotas.per_day.map(Quota::PerDay)];
        if let Some(quota) = limits.into_iter().flatten().find(|quota| count > quota.limit()) {
            return Err(Exceeded::Always(quota));
        }
        if let Some(rate) = quotas.rate {
            self.spend_rate(rate, count, now_unix_ms)?;
        }
        let mut counted = Counted { at_unix_ms: now_unix_ms, day: 0 };
        if let Some(per_day) = quotas.per_day {
            counted.day = self.spend_day(per_day, count, now_unix_ms).inspect_err(|_| {
                let quotas = Quotas { per_day: None, ..*quotas };
                self.give_back(&quotas, count, counted, now_unix_ms);
            })?;
        }
        Ok(counted)
    }

    fn spend_rate(&self, rate: NonZeroU64, count: u64, now_unix_ms: u64) -> Result<(), Exceeded> {
        let allowance = allowance(rate, now_unix_ms);
        let limit = allowance.saturating_add(rate.get());
        let mut missing = 0;
        // Only the sum matters, so no ordering is needed.
        let spend = |spent: u64| {
            // An unused rate is kept for at most one second. After the clock went back or the rate was
            // lowered, the count is above the limit: then the quota refills from now on, even if this request
            // is rejected.
            let spent = spent.clamp(allowance, limit);
            missing = spent.saturating_add(count).saturating_sub(limit);
            if missing == 0 { spent + count } else { spent }
        };
        update(&self.spent, spend);
        if missing == 0 {
            return Ok(());
        }
        let ms = missing.saturating_mul(1000).div_ceil(rate.get());
        Err(Exceeded::Now(Quota::Rate(rate), Duration::from_millis(ms)))
    }

    /// Returns the day for which the ids are counted.
    fn spend_day(&self, per_day: NonZeroU64, count: u64, now_unix_ms: u64) -> Result<u64, Exceeded> {
        let today = now_unix_ms / MS_PER_DAY;
        // If the clock went back over midnight, the later day continues. A day beyond tomorrow came from a
        // wrong clock.
        let day_after = |day: u64| if today > day || day > today + 1 { today } else { day };
        let before = self.day.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |packed| {
            let (day, spent) = unpacked(packed);
            let spent = if day_after(day) == day { spent } else { 0 };
            (spent + count <= per_day.get()).then_some(day_after(day) << DAY_BITS | (spent + count))
        });
        before.map(|packed| day_after(unpacked(packed).0)).map_err(|_| {
            let ms = (today + 1) * MS_PER_DAY - now_unix_ms;
            Exceeded::Now(Quota::PerDay(per_day), Duration::from_millis(ms))
        })
    }

    /// Gives back ids that no client gets, to the time in which they were counted: to their day if it has not
    /// ended, and as much of the rate as has not refilled since. Otherwise requests that failed late could be
    /// followed by a second helping.
    pub(super) fn give_back(&self, quotas: &Quotas, count: u64, counted: Counted, now_unix_ms: u64) {
        // If the clock went back, the quota refills from then on whatever was counted before.
        if let Some(rate) = quotas.rate.filter(|_| now_unix_ms >= counted.at_unix_ms) {
            let refilled = allowance(rate, now_unix_ms).saturating_sub(allowance(rate, counted.at_unix_ms));
            update(&self.spent, |spent| spent.saturating_sub(count.saturating_sub(refilled)));
        }
        if quotas.per_day.is_some() {
            update(&self.day, |packed| match unpacked(packed) {
                (day, spent) if day == counted.day => day << DAY_BITS | spent.saturating_sub(count),
                _ => packed,
            });
        }
    }

    /// Counts successful requests.
    pub(crate) fn succeeded(&self, requests: u64) {
        self.succeeded.fetch_add(requests, Ordering::Relaxed);
    }

    /// Counts a failed request.
    pub(crate) fn failed(&self, kind: ErrorKind) {
        self.failed[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts ids that were given to the client.
    pub(crate) fn issued(&self, ids: u64) {
        self.issued.fetch_add(ids, Ordering::Relaxed);
    }

    /// Returns the number of ids that were given to clients.
    pub(crate) fn ids(&self) -> u64 {
        self.issued.load(Ordering::Relaxed)
    }

    /// Returns the requests of each outcome that occurred, `ok` first.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let ok = ("ok", self.succeeded.load(Ordering::Relaxed));
        let failed = ErrorKind::ALL
            .into_iter()
            .map(|kind| (kind.status().name, self.failed[kind as usize].load(Ordering::Relaxed)));
        std::iter::once(ok).chain(failed.filter(|(_, requests)| *requests > 0))
    }
}

/// Returns the number of ids that a rate allows from 1970 until now. The count of a token that uses its full
/// rate grows at the same pace.
fn allowance(rate: NonZeroU64, now_unix_ms: u64) -> u64 {
    let rate = rate.get();
    rate.saturating_mul(now_unix_ms / 1000).saturating_add(rate * (now_unix_ms % 1000) / 1000)
}

const fn unpacked(packed: u64) -> (u64, u64) {
    (packed >> DAY_BITS, packed & ((1 << DAY_BITS) - 1))
}

fn update(number: &AtomicU64, mut change: impl FnMut(u64) -> u64) {
    // The closure never returns `None`, so this cannot fail.
    let _ = number.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |value| Some(change(value)));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: u64 = 1_700_000_000_123;

    fn rate(rate: u64) -> Quotas {
        Quotas { rate: NonZeroU64::new(rate), per_day: None }
    }

    fn per_day(per_day: u64) -> Quotas {
        Quotas { rate: None, per_day: NonZeroU64::new(per_day) }
    }

    fn wait(refused: Result<Counted, Exceeded>) -> u64 {
        match refused {
            Err(Exceeded::Now(_, after)) => u64::try_from(after.as_millis()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_second_of_the_rate_may_be_taken_at_once_and_refills_evenly() {
        let (usage, quotas) = (Usage::default(), rate(1000));
        assert!(usage.spend(&quotas, 1000, NOW).is_ok());
        assert_eq!(wait(usage.spend(&quotas, 1, NOW)), 1);
        assert_eq!(wait(usage.spend(&quotas, 250, NOW)), 250);
        assert!(usage.spend(&quotas, 250, NOW + 250).is_ok());
        assert_eq!(wait(usage.spend(&quotas, 1, NOW + 250)), 1);
        // An unused rate is not kept beyond one second.
        assert!(usage.spend(&quotas, 1000, NOW + 60_000).is_ok());
        assert_eq!(wait(usage.spend(&quotas, 1, NOW + 60_000)), 1);
    }

    #[test]
    fn a_request_above_the_quota_is_refused_for_good() {
        let usage = Usage::default();
        let always = |quota| Err(Exceeded::Always(quota));
        let (ten, five) = (NonZeroU64::new(10).unwrap(), NonZeroU64::new(5).unwrap());
        assert_eq!(usage.spend(&rate(10), 11, NOW), always(Quota::Rate(ten)));
        assert_eq!(usage.spend(&per_day(5), 6, NOW), always(Quota::PerDay(five)));
        assert!(usage.spend(&Quotas::default(), u64::MAX, NOW).is_ok());
    }

    #[test]
    fn a_day_ends_at_midnight_utc_and_never_begins_twice() {
        let (usage, quotas) = (Usage::default(), per_day(10));
        let midnight = (NOW / MS_PER_DAY + 1) * MS_PER_DAY;
        assert!(usage.spend(&quotas, 7, midnight - 1000).is_ok());
        assert_eq!(wait(usage.spend(&quotas, 4, midnight - 1000)), 1000);
        assert!(usage.spend(&quotas, 3, midnight - 1).is_ok());
        assert!(usage.spend(&quotas, 9, midnight).is_ok());
        assert_eq!(wait(usage.spend(&quotas, 2, midnight - 1000)), 1000, "the clock went back");
        assert!(usage.spend(&quotas, 1, midnight).is_ok());
        // For a moment, the clock was years ahead.
        assert!(usage.spend(&quotas, 10, midnight + 9000 * MS_PER_DAY).is_ok());
        assert!(usage.spend(&quotas, 10, midnight).is_ok());
        assert!(usage.spend(&quotas, 1, midnight).is_err());
    }

    #[test]
    fn ids_that_were_not_made_are_given_back() {
        let usage = Usage::default();
        let both = Quotas { rate: NonZeroU64::new(10), per_day: NonZeroU64::new(10) };
        for _ in 0..5 {
            let counted = usage.spend(&both, 10, NOW).unwrap();
            usage.give_back(&both, 10, counted, NOW);
        }
        assert!(usage.spend(&both, 10, NOW).is_ok());
        // The daily quota rejects the request, which must not use up the rate.
        assert!(usage.spend(&both, 10, NOW + 1000).is_err());
        let day = Quotas { per_day: NonZeroU64::new(20), ..both };
        let counted = usage.spend(&day, 10, NOW + 1000).unwrap();
        usage.give_back(&both, u64::MAX, counted, NOW + 1000);
    }

    /// Goal: ids are given back to the day in which they were counted, and not to another one.
    #[test]
    fn ids_are_given_back_to_their_day() {
        let (usage, quotas) = (Usage::default(), per_day(10));
        let midnight = (NOW / MS_PER_DAY + 1) * MS_PER_DAY;
        let yesterday = usage.spend(&quotas, 10, midnight - 1).unwrap();
        let today = usage.spend(&quotas, 10, midnight).unwrap();
        usage.give_back(&quotas, 10, yesterday, midnight + 1);
        assert!(usage.spend(&quotas, 1, midnight + 1).is_err(), "another day's");
        usage.give_back(&quotas, 10, today, midnight + 1);
        // The clock went back: the later day continues, and these ids are counted for it.
        let late = usage.spend(&quotas, 10, midnight - 1).unwrap();
        assert!(usage.spend(&quotas, 1, midnight).is_err());
        usage.give_back(&quotas, 10, late, midnight - 1);
        assert!(usage.spend(&quotas, 10, midnight).is_ok());
    }

    /// Goal: what the rate has refilled is not given back as well.
    #[test]
    fn a_rate_is_given_back_as_far_as_it_has_not_refilled() {
        let (usage, quotas) = (Usage::default(), rate(10));
        let first = usage.spend(&quotas, 10, NOW).unwrap();
        assert!(usage.spend(&quotas, 5, NOW + 500).is_ok());
        usage.give_back(&quotas, 10, first, NOW + 500);
        assert!(usage.spend(&quotas, 5, NOW + 500).is_ok());
        assert!(usage.spend(&quotas, 1, NOW + 500).is_err());
        let late = usage.spend(&quotas, 10, NOW + 10_000).unwrap();
        assert!(usage.spend(&quotas, 10, NOW + 60_000).is_ok());
        usage.give_back(&quotas, 10, late, NOW + 60_000);
        assert!(usage.spend(&quotas, 1, NOW + 60_000).is_err());
        // The clock went back, and the quota refilled since.
        let early = NOW + 5_000;
        assert!(usage.spend(&quotas, 10, early).is_err());
        assert!(usage.spend(&quotas, 10, early + 1000).is_ok());
        usage.give_back(&quotas, 10, late, early + 1000);
        assert!(usage.spend(&quotas, 1, early + 1000).is_err());
    }

    /// Goal: a clock that goes back or a changed rate never blocks a token for longer than a second.
    #[test]
    fn the_quota_recovers_from_clock_steps_and_changed_rates() {
        let usage = Usage::default();
        assert!(usage.spend(&rate(100), 100, NOW).is_ok());
        let back = NOW - 3_600_000;
        assert_eq!(wait(usage.spend(&rate(100), 100, back)), 1000);
        assert!(usage.spend(&rate(100), 100, back + 1000).is_ok());
        assert_eq!(wait(usage.spend(&rate(10), 10, back + 1000)), 1000, "a lower rate");
        assert!(usage.spend(&rate(10), 10, back + 2000).is_ok());
        assert!(usage.spend(&rate(MAX_RATE), MAX_RATE, back + 2000).is_ok(), "a higher rate");
    }

    #[test]
    fn threads_cannot_exceed_a_quota_together() {
        let usage = Usage::default();
        let quotas = Quotas { rate: NonZeroU64::new(5000), per_day: NonZeroU64::new(4000) };
        let taken: usize = std::thread::scope(|scope| {
            let take = || (0..3000).filter(|_| usage.spend(&quotas, 1, NOW).is_ok()).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 4000);
    }

    proptest! {
        /// Goal: in any time span, a token gets at most its rate times the span, plus one second's worth.
        /// Method: random requests at random times, some of which fail during the next ones.
        #[test]
        fn the_rate_holds_over_every_span(
            rate_of in 1_u64..50,
            requests in proptest::collection::vec((0_u64..400, 1_u64..60, 0_usize..6), 1..60),
        ) {
            let (usage, quotas, mut now) = (Usage::default(), rate(rate_of), NOW);
            let (mut taken, mut failing) = (Vec::new(), Vec::new());
            for (pause, count, fails_after) in requests {
                now += pause;
                failing.retain_mut(|(count, counted, after): &mut (u64, Counted, usize)| {
                    *after -= 1;
                    if *after == 0 {
                        usage.give_back(&quotas, *count, *counted, now);
                    }
                    *after > 0
                });
                match usage.spend(&quotas, count, now) {
                    Ok(_) if fails_after == 0 => taken.push((now, count)),
                    Ok(counted) => failing.push((count, counted, fails_after)),
                    Err(_) => {}
                }
            }
            for (first, (begin, _)) in taken.iter().enumerate() {
                let mut sum = 0;
                for (end, count) in &taken[first..] {
                    sum += count;
                    let allowed = rate_of * (end - begin) / 1000 + 1 + rate_of;
                    prop_assert!(sum <= allowed, "{} ids in {} ms", sum, end - begin);
                }
            }
        }
    }
}
