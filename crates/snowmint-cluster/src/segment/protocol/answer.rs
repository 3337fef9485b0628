//! Which numbers of a counter's answer may be used: those within the range, unless the counter went back.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use snowmint_store::Segment;

/// The first number and the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The smallest number to hand out.
    pub first: u64,
    /// The greatest number to hand out.
    pub maximum: u64,
}

/// What a segment has within the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Within {
    /// These numbers.
    Some(Segment),
    /// None: the counter is below the first number, by this many steps.
    Below { missing: u64 },
    /// None: all are above the greatest number.
    Above,
}

impl Range {
    pub(crate) fn cut(self, segment: Segment) -> Within {
        let step = segment.step().get();
        if segment.first() > self.maximum {
            return Within::Above;
        }
        let skipped = self.first.saturating_sub(segment.first()).div_ceil(step);
        if skipped >= segment.count().get() {
            return Within::Below { missing: skipped - segment.count().get() };
        }
        let first = segment.first() + skipped * step;
        let Some(room) = self.maximum.checked_sub(first) else { return Within::Above };
        let count = (segment.count().get() - skipped).min(room / step + 1);
        let cut = NonZeroU64::new(count).and_then(|count| Segment::new(first, segment.step(), count));
        cut.map_or(Within::Above, Within::Some)
    }

    /// Whether nine tenths of the numbers are used up to `highest`.
    pub(crate) fn is_nearly_exhausted(self, highest: u64) -> bool {
        let all = self.maximum - self.first + 1;
        (highest + 1).saturating_sub(self.first) >= all - all / 10
    }

    /// The part of the numbers up to `highest`, from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "a part, for people")]
    pub(crate) fn used(self, highest: u64) -> f64 {
        let all = self.maximum - self.first + 1;
        (highest + 1).saturating_sub(self.first).min(all) as f64 / all as f64
    }
}

/// The end of what was received from one counter, and of what may be in use.
///
/// A counter gives greater numbers to a call that begins after another has returned. So a segment that begins below what
/// was received before its call was made shows that the counter went back: a store that was restored, or that lost
/// writes. Where it begins above all that had settled, the store lost no more than it may, and no number in use.
#[derive(Clone, Debug, Default)]
pub struct HighWaterMark(Arc<Ends>);

#[derive(Debug, Default)]
struct Ends {
    received: AtomicU64,
    settled: AtomicU64,
}

/// What a store has forgotten of what it acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Forgot {
    /// Only what had not settled: none of it was used.
    Unsettled,
    /// What may be in use.
    Settled,
}

impl HighWaterMark {
    /// The smallest number that the answer to a call may begin with, if the call is made now.
    pub fn end(&self) -> u64 {
        self.0.received.load(Ordering::SeqCst)
    }

    /// A segment was received; it may not be used before it has settled.
    pub fn received(&self, segment: Segment) {
        // At most 2^63.
        self.0.received.fetch_max(segment.last() + 1, Ordering::SeqCst);
    }

    /// A segment that was received may be used.
    pub fn settled(&self, segment: Segment) {
        self.0.settled.fetch_max(segment.last() + 1, Ordering::SeqCst);
    }

    /// A segment that nobody used is about to be given back: the counter may go back to its begin.
    pub fn giving_back(&self, segment: Segment) {
        for end in [&self.0.settled, &self.0.received] {
            // Where more was received since, the counter is beyond it and takes nothing back.
            let (last, first) = (segment.last() + 1, segment.first());
            let _ = end.compare_exchange(last, first, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Whether a segment, the answer to a call that was made when [`end`](Self::end) was `least`, shows that the counter
    /// went back.
    pub fn forgot(&self, segment: Segment, least: u64) -> Option<Forgot> {
        // What was given back while the call was under way may come again.
        let least = least.min(self.end());
        let settled = self.0.settled.load(Ordering::SeqCst);
        (segment.first() < least)
            .then(|| if segment.first() < settled { Forgot::Settled } else { Forgot::Unsettled })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(first: u64, step: u64, count: u64) -> Segment {
        Segment::new(first, NonZeroU64::new(step).unwrap(), NonZeroU64::new(count).unwrap()).unwrap()
    }

    #[test]
    fn a_segment_is_cut_to_the_range() {
        let range = Range { first: 10, maximum: 20 };
        for (given, cut) in [
            (segment(10, 1, 11), Within::Some(segment(10, 1, 11))),
            (segment(0, 1, 100), Within::Some(segment(10, 1, 11))),
            (segment(1, 3, 5), Within::Some(segment(10, 3, 2))),
            (segment(12, 3, 50), Within::Some(segment(12, 3, 3))),
            (segment(20, 7, 1), Within::Some(segment(20, 7, 1))),
            (segment(21, 1, 1), Within::Above),
            (segment(0, 1, 10), Within::Below { missing: 0 }),
            (segment(0, 1, 9), Within::Below { missing: 1 }),
            (segment(1, 3, 1), Within::Below { missing: 2 }),
            (segment(5, 100, 2), Within::Above),
        ] {
            assert_eq!(range.cut(given), cut, "{given:?}");
        }
    }

    #[test]
    fn nine_tenths_are_told_from_the_first_number_on() {
        let range = Range { first: 1000, maximum: 2000 };
        assert!(!range.is_nearly_exhausted(1899) && range.is_nearly_exhausted(1900));
        assert!(!range.is_nearly_exhausted(0));
        let whole = Range { first: 1, maximum: snowmint_store::MAX_NUMBER };
        assert!(!whole.is_nearly_exhausted(7 << 60) && whole.is_nearly_exhausted(u64::MAX >> 1));
    }

    fn numbers(first: u64, count: u64) -> Segment {
        Segment::new(first, NonZeroU64::MIN, NonZeroU64::new(count).unwrap()).unwrap()
    }

    #[test]
    fn what_was_given_back_may_come_again_and_nothing_else() {
        let seen = HighWaterMark::default();
        for segment in [numbers(1, 10), numbers(11, 10)] {
            seen.received(segment);
            seen.settled(segment);
        }
        let least = seen.end();
        seen.giving_back(numbers(1, 10));
        assert_eq!(seen.end(), 21, "more was received since");
        seen.giving_back(numbers(15, 6));
        assert_eq!(seen.end(), 15);
        // A call from before it was given back is answered after.
        assert_eq!(seen.forgot(numbers(15, 3), least), None);
        assert_eq!(seen.forgot(numbers(14, 3), least), Some(Forgot::Settled));
        // It was not taken back after all.
        seen.received(numbers(15, 6));
        assert_eq!(
            seen.forgot(numbers(15, 3), seen.end()),
            Some(Forgot::Unsettled),
            "none of these was used"
        );
    }

    #[test]
    fn what_had_not_settled_is_told_from_what_had() {
        let seen = HighWaterMark::default();
        seen.received(numbers(1, 10));
        seen.settled(numbers(1, 10));
        seen.received(numbers(11, 10));
        for (first, forgot) in [
            (21, None),
            (20, Some(Forgot::Unsettled)),
            (11, Some(Forgot::Unsettled)),
            (10, Some(Forgot::Settled)),
            (1, Some(Forgot::Settled)),
        ] {
            assert_eq!(seen.forgot(numbers(first, 5), seen.end()), forgot, "{first}");
        }
    }
}
