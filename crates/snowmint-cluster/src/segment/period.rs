//! Periods after which numbers restart (a day, a month or a year), and the counters of each.
//!
//! A period is a date. Its clock may show the date of another time zone than UTC: then begin and end are
//! local milliseconds too.
//!
//! Each period has counters of its own, so nodes whose clocks differ cannot mix up the numbers of two
//! periods.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use snowmint::utc::{self, MAX_UNIX_MS, UtcDate};
use snowmint_store::Counter;

use super::high_water_mark::HighWaterMark;

const MS_PER_DAY: u64 = 86_400_000;

/// How often numbers restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reset {
    /// Each day, at midnight.
    Daily,
    /// Each month, at midnight of its first day.
    Monthly,
    /// Each year, at midnight of 1 January.
    Yearly,
}

/// What distinguishes one kind of period from the others.
struct PeriodKind {
    name: &'static str,
    /// The length of a period's text, a prefix of `2026-11-21`.
    text_len: usize,
    /// What follows that text in the date of its first day.
    first_day: &'static str,
    /// The length of the longest period.
    longest_days: u64,
}

impl Reset {
    const ALL: [Self; 3] = [Self::Daily, Self::Monthly, Self::Yearly];

    const fn kind(self) -> PeriodKind {
        let (name, text_len, first_day, longest_days) = match self {
            Self::Daily => ("daily", 10, "", 1),
            Self::Monthly => ("monthly", 7, "-01", 31),
            Self::Yearly => ("yearly", 4, "-01-01", 366),
        };
        PeriodKind { name, text_len, first_day, longest_days }
    }

    /// Returns the length of the longest period of this kind, in milliseconds.
    const fn longest_ms(self) -> u64 {
        self.kind().longest_days * MS_PER_DAY
    }
}

/// A text that is not a reset period.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid reset period {}: expected `daily`, `monthly` or `yearly`", snowmint::error::Snippet::of(.text))]
pub struct ResetError {
    /// The text.
    pub text: String,
}

impl std::str::FromStr for Reset {
    type Err = ResetError;

    fn from_str(text: &str) -> Result<Self, ResetError> {
        let named = Self::ALL.into_iter().find(|reset| reset.kind().name == text);
        named.ok_or_else(|| ResetError { text: text.to_owned() })
    }
}

impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().name)
    }
}

/// A day, a month or a year, within which a number is unique if numbers restart.
///
/// Its text, `2026-11-21`, `2026-11` or `2026`, is valid in a key of a store.
///
/// # Examples
///
/// ```
/// use snowmint_cluster::segment::{Period, Reset};
/// let period = Period::at(Reset::Monthly, 1_795_219_200_000);
/// assert_eq!(period.to_string(), "2026-11");
/// assert_eq!(period.next().to_string(), "2026-12");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period {
    reset: Reset,
    begin_unix_ms: u64,
}

impl Period {
    /// Returns the period that contains an instant in unix milliseconds; the last period for an instant after
    /// the year 9999.
    pub fn at(reset: Reset, unix_ms: u64) -> Self {
        let unix_ms = unix_ms.min(MAX_UNIX_MS);
        let day_ms = unix_ms - unix_ms % MS_PER_DAY;
        if reset == Reset::Daily {
            return Self { reset, begin_unix_ms: day_ms };
        }
        let (date, kind) = (UtcDate(day_ms).to_string(), reset.kind());
        let first_day = format!("{date:.len$}{}", kind.first_day, len = kind.text_len);
        // The first day of a month is always a valid date.
        Self { reset, begin_unix_ms: utc::parse(&first_day).unwrap_or(day_ms) }
    }

    /// Returns the next period.
    #[must_use]
    pub fn next(self) -> Self {
        // The longest length from its start lies beyond its end, and within the next period.
        Self::at(self.reset, self.begin_unix_ms + self.reset.longest_ms())
    }

    /// Returns the previous period; `None` for the first.
    #[must_use]
    pub fn previous(self) -> Option<Self> {
        Some(Self::at(self.reset, self.begin_unix_ms.checked_sub(1)?))
    }

    /// Parses the text of a period; `None` if it is not one.
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint_cluster::segment::{Period, Reset};
    /// let period = Period::parse(Reset::Monthly, "2026-11").unwrap();
    /// assert_eq!(period, Period::at(Reset::Monthly, 1_795_219_200_000));
    /// assert_eq!(Period::parse(Reset::Daily, "2026-11"), None);
    /// ```
    pub fn parse(reset: Reset, text: &str) -> Option<Self> {
        let period = Self::at(reset, utc::parse(&format!("{text}{}", reset.kind().first_day)).ok()?);
        (period.to_string() == text).then_some(period)
    }

    /// Returns whether a period of the same kind that ends at this instant is a later one.
    #[inline]
    pub(super) const fn is_before_one_that_ends_at(self, ends_unix_ms: u64) -> bool {
        // From the start of this one, a later end is more than one period away.
        ends_unix_ms.saturating_sub(self.begin_unix_ms) > self.reset.longest_ms()
    }

    /// Returns its first instant, in unix milliseconds if its clock shows UTC.
    pub const fn begin_unix_ms(self) -> u64 {
        self.begin_unix_ms
    }

    /// Returns the kind of the period.
    pub const fn reset(self) -> Reset {
        self.reset
    }

    /// Packs a period into one word that threads can share; 0 for none. A day begins at a multiple of 4 ms,
    /// which leaves 2 bits for the kind.
    pub(super) fn to_bits(period: Option<Self>) -> u64 {
        period.map_or(0, |Self { reset, begin_unix_ms }| {
            let bits = match reset {
                Reset::Daily => 1,
                Reset::Monthly => 2,
                Reset::Yearly => 3,
            };
            begin_unix_ms | bits
        })
    }

    /// Unpacks what [`to_bits`](Self::to_bits) packed.
    #[inline]
    pub(super) const fn from_bits(bits: u64) -> Option<Self> {
        let reset = match bits & 3 {
            0 => return None,
            1 => Reset::Daily,
            2 => Reset::Monthly,
            _ => Reset::Yearly,
        };
        Some(Self { reset, begin_unix_ms: bits & !3 })
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let date = UtcDate(self.begin_unix_ms).to_string();
        f.write_str(date.get(..self.reset.kind().text_len).unwrap_or(&date))
    }
}

/// Returns the counters of a period: separate ones for each period, and the same on every node.
pub type CountersOf = Arc<dyn Fn(Period) -> Vec<Arc<dyn Counter>> + Send + Sync>;

/// A clock that went back over the start of a period by less than this is not followed: it soon reaches the
/// start again.
const HOLD_MS: u64 = 1000;
/// The number of periods whose high-water marks are kept.
const REMEMBERED: usize = 8;

/// The greatest number received from one counter, for each period if numbers restart.
///
/// Pass it to every [`Segments`](super::Segments) of a process that uses the counter. A later one then
/// detects if the counter went back to numbers that an earlier one received. The marks live as long as their
/// clones.
#[derive(Clone, Debug, Default)]
pub struct HighWaterMarks(Arc<Mutex<BTreeMap<Option<Period>, HighWaterMark>>>);

impl HighWaterMarks {
    /// Returns the mark of a period, or the only one if numbers never restart.
    fn of(&self, period: Option<Period>) -> HighWaterMark {
        // Each change is one insertion or removal: a panic elsewhere leaves the map intact.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = all.entry(period).or_default().clone();
        while all.len() > REMEMBERED {
            // A clock may step to any period and back, so the period furthest from the current one is
            // removed.
            let now = period.map_or(0, Period::begin_unix_ms);
            let furthest = all.keys().copied().flatten().max_by_key(|it| it.begin_unix_ms().abs_diff(now));
            let Some(furthest) = furthest else { break };
            all.remove(&Some(furthest));
        }
        mark
    }

    /// Returns the greatest number received in each period; the period is `None` if numbers never restart.
    /// Only the 8 periods nearest to the current one are remembered.
    pub fn highest_by_period(&self) -> Vec<(Option<Period>, u64)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let highest = all.iter().map(|(period, mark)| (*period, mark.highest()));
        highest.filter(|(_, highest)| *highest > 0).collect()
    }

    /// Returns the smallest number that no settled segment of a period has passed, 0 if it has none.
    pub(super) fn settled_end(&self, period: Option<Period>) -> u64 {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&period).map_or(0, HighWaterMark::settled_end)
    }

    /// Returns the greatest number received in a period, 0 for none.
    pub(super) fn highest(&self, period: Option<Period>) -> u64 {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&period).map_or(0, HighWaterMark::highest)
    }
}

/// The current counters: always the same, or those of the current period.
#[derive(Clone)]
pub(super) struct PeriodCounters {
    counters: Vec<Arc<dyn Counter>>,
    each: Option<(Period, CountersOf)>,
    /// One for each counter, of this period.
    high_water_marks: Vec<HighWaterMark>,
    /// One for each counter, of all periods.
    received: Vec<HighWaterMarks>,
}

impl PeriodCounters {
    pub(super) fn without_reset(counters: Vec<Arc<dyn Counter>>, received: Vec<HighWaterMarks>) -> Self {
        Self::at(counters, None, received)
    }

    pub(super) fn of(period: Period, counters_of: CountersOf, received: Vec<HighWaterMarks>) -> Self {
        Self::at(counters_of(period), Some((period, counters_of)), received)
    }

    fn at(
        counters: Vec<Arc<dyn Counter>>,
        each: Option<(Period, CountersOf)>,
        mut received: Vec<HighWaterMarks>,
    ) -> Self {
        received.resize_with(received.len().max(counters.len()), HighWaterMarks::default);
        let period = each.as_ref().map(|(period, _)| *period);
        let high_water_marks =
            received.iter().take(counters.len()).map(|received| received.of(period)).collect();
        Self { counters, each, high_water_marks, received }
    }

    /// Returns the greatest number that was received before from one of these counters, 0 for none.
    pub(super) fn highest(&self) -> u64 {
        self.high_water_marks.iter().map(HighWaterMark::highest).max().unwrap_or(0)
    }

    /// Returns the high-water mark of each counter in this period.
    pub(super) fn high_water_marks(&self) -> &[HighWaterMark] {
        &self.high_water_marks
    }

    /// Returns the high-water marks of each counter in every period.
    pub(super) fn received(&self) -> &[HighWaterMarks] {
        &self.received[..self.counters.len()]
    }

    pub(super) fn counters(&self) -> &[Arc<dyn Counter>] {
        &self.counters
    }

    /// Returns the period of these counters, if numbers restart.
    pub(super) fn period(&self) -> Option<Period> {
        self.each.as_ref().map(|(period, _)| *period)
    }

    /// Returns the counters of an instant, if they differ from these.
    pub(super) fn changed(&self, now_unix_ms: u64) -> Option<Self> {
        let (period, counters_of) = self.each.as_ref()?;
        let back = now_unix_ms < period.begin_unix_ms();
        if back && now_unix_ms + HOLD_MS >= period.begin_unix_ms() {
            return None;
        }
        let now = Period::at(period.reset(), now_unix_ms);
        (now != *period).then(|| Self::of(now, Arc::clone(counters_of), self.received.clone()))
    }

    /// Returns the counters of the next period.
    pub(super) fn next(&self) -> Option<Self> {
        let (period, counters_of) = self.each.as_ref()?;
        Some(Self::of(period.next(), Arc::clone(counters_of), self.received.clone()))
    }

    /// Returns the first instant after this period, in unix milliseconds; `u64::MAX` if numbers never
    /// restart.
    pub(super) fn ends_unix_ms(&self) -> u64 {
        self.period().map_or(u64::MAX, |period| period.next().begin_unix_ms())
    }

    /// Returns how long this period still lasts, in milliseconds.
    pub(super) fn left_ms(&self, now_unix_ms: u64) -> Option<u64> {
        let (period, _) = self.each.as_ref()?;
        Some(period.next().begin_unix_ms().saturating_sub(now_unix_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(reset: Reset, date: &str) -> Period {
        Period::at(reset, utc::parse(date).unwrap())
    }

    #[test]
    fn a_period_ends_at_midnight_in_utc() {
        for (reset, last, text, first) in [
            (Reset::Daily, "2026-11-21T23:59:59.999Z", "2026-11-21", "2026-11-22"),
            (Reset::Daily, "2024-02-28T23:59:59.999Z", "2024-02-28", "2024-02-29"),
            (Reset::Monthly, "2026-02-28T23:59:59.999Z", "2026-02", "2026-03-01"),
            (Reset::Monthly, "2026-12-31T23:59:59.999Z", "2026-12", "2027-01-01"),
            (Reset::Yearly, "2024-12-31T23:59:59.999Z", "2024", "2025-01-01"),
        ] {
            let period = at(reset, last);
            assert_eq!(period.to_string(), text);
            assert_eq!(period.next(), at(reset, first));
            assert_eq!(period.next().begin_unix_ms(), utc::parse(first).unwrap());
        }
    }

    #[test]
    fn periods_follow_one_another_without_a_gap_for_a_century() {
        for reset in [Reset::Daily, Reset::Monthly, Reset::Yearly] {
            let mut period = at(reset, "2000-01-01");
            while period < at(reset, "2100-01-01") {
                let next = period.next();
                assert_eq!(Period::at(reset, next.begin_unix_ms() - 1), period);
                assert_eq!(next.previous(), Some(period));
                assert_eq!(Period::parse(reset, &next.to_string()), Some(next));
                assert_eq!(Period::at(reset, next.begin_unix_ms()), next);
                assert_eq!(Period::from_bits(Period::to_bits(Some(next))), Some(next));
                period = next;
            }
        }
    }

    #[test]
    fn a_later_period_is_recognized_by_its_end() {
        for reset in [Reset::Daily, Reset::Monthly, Reset::Yearly] {
            let mut period = at(reset, "2000-01-01");
            while period < at(reset, "2030-01-01") {
                let next = period.next();
                let ends = [period, next, next.next()].map(|it| it.next().begin_unix_ms());
                assert_eq!(ends.map(|ends| period.is_before_one_that_ends_at(ends)), [false, true, true]);
                assert!(!next.is_before_one_that_ends_at(ends[0]), "the clock went back");
                period = next;
            }
        }
    }

    #[test]
    fn only_the_text_of_a_period_is_parsed() {
        for (reset, text) in [
            (Reset::Daily, "2026-11"),
            (Reset::Daily, "2026-02-30"),
            (Reset::Daily, "2026-11-21T00:00:01Z"),
            (Reset::Monthly, "2026-13"),
            (Reset::Monthly, "2026"),
            (Reset::Yearly, "2026-11"),
            (Reset::Yearly, ""),
        ] {
            assert_eq!(Period::parse(reset, text), None, "{text}");
        }
        assert_eq!(Period::at(Reset::Daily, 5).previous(), None);
    }

    #[test]
    fn the_kinds_are_parsed_back() {
        for reset in [Reset::Daily, Reset::Monthly, Reset::Yearly] {
            assert_eq!(reset.to_string().parse(), Ok(reset));
        }
        assert!("weekly".parse::<Reset>().unwrap_err().to_string().contains("weekly"));
    }
}
