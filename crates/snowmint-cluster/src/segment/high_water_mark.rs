//! Checks whether the numbers of an answer count: they are cut to the range, and must lie above the high-water mark. The mark
//! shows that a counter went back, because its store was restored or lost writes.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use snowmint_store::Segment;

/// The numbers that may be handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberRange {
    /// The smallest number to hand out.
    pub first: u64,
    /// The greatest number to hand out.
    pub maximum: u64,
}

/// The part of a segment within the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Within {
    /// These numbers.
    Some(Segment),
    /// None: the counter is below the first number by this many steps.
    Below { missing: u64 },
    /// None: all are above the maximum.
    Above,
}

impl NumberRange {
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

    /// Returns how many numbers a counter has left within the range if this is its next one.
    pub(crate) fn left_from(self, next: u64, step: NonZeroU64) -> u64 {
        let skipped = self.first.saturating_sub(next).div_ceil(step.get());
        self.left_at_most(skipped.saturating_mul(step.get()).saturating_add(next), step)
    }

    /// Returns how many numbers a counter has left within the range at most, if its next one is `least` or above.
    pub(crate) fn left_at_most(self, least: u64, step: NonZeroU64) -> u64 {
        self.maximum.checked_sub(least.max(self.first)).map_or(0, |room| room / step + 1)
    }

    /// Returns whether nine tenths of the numbers are used, if those up to `highest` are.
    pub(crate) fn is_nearly_exhausted(self, highest: u64) -> bool {
        let all = self.maximum - self.first + 1;
        (highest + 1).saturating_sub(self.first) >= all - all / 10
    }

    /// Returns the share of the numbers up to `highest`, from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "a part, for people")]
    pub(crate) fn used(self, highest: u64) -> f64 {
        let all = self.maximum - self.first + 1;
        (highest + 1).saturating_sub(self.first).min(all) as f64 / all as f64
    }
}

/// The ends of the numbers received from one counter, and of those that may be in use. Clones share the mark.
///
/// A counter returns greater numbers to a call that begins after another one has returned. So a segment that begins below
/// the numbers received before its call was made shows that the counter went back. If it begins above all that had settled,
/// the store lost no more than `may_lose` allows, and no number in use.
#[derive(Clone, Debug, Default)]
pub struct HighWaterMark(Arc<Ends>);

#[derive(Debug, Default)]
struct Ends {
    received: AtomicU64,
    settled: AtomicU64,
    /// The end of what was received before the counter went back, 0 if it never did.
    doubtful: AtomicU64,
}

/// Which reservations a store has lost after it acknowledged them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Forgot {
    /// Only reservations that had not settled: none of their numbers was used.
    Unsettled,
    /// Reservations whose numbers may be in use.
    Settled,
}

impl HighWaterMark {
    /// Returns the smallest number that the answer to a call may begin with, if the call is made now.
    pub fn end(&self) -> u64 {
        self.0.received.load(Ordering::SeqCst)
    }

    /// Returns the greatest number received, 0 for none.
    pub fn highest(&self) -> u64 {
        self.end().saturating_sub(1)
    }

    /// Returns the smallest number that no settled segment has passed.
    pub(super) fn settled_end(&self) -> u64 {
        self.0.settled.load(Ordering::SeqCst)
    }

    /// Records a segment that was received. It may not be used before it has settled.
    pub fn received(&self, segment: Segment) {
        // At most 2^63.
        self.0.received.fetch_max(segment.last() + 1, Ordering::SeqCst);
    }

    /// Records that a received segment has settled: it may be used.
    pub fn settled(&self, segment: Segment) {
        self.0.settled.fetch_max(segment.last() + 1, Ordering::SeqCst);
    }

    /// Records that an unused segment is about to be given back: the counter may go back to its start.
    pub fn giving_back(&self, segment: Segment) {
        for end in [&self.0.settled, &self.0.received] {
            // If more was received in the meantime, the counter is beyond the segment and does not take it back.
            let (last, first) = (segment.last() + 1, segment.first());
            let _ = end.compare_exchange(last, first, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Returns what the store forgot, if a segment shows that the counter went back. `least` is what [`end`](Self::end) returned
    /// when the call was made.
    pub fn forgot(&self, segment: Segment, least: u64) -> Option<Forgot> {
        // Numbers that were given back while the call was in flight may return.
        let least = least.min(self.end());
        let settled = self.0.settled.load(Ordering::SeqCst);
        (segment.first() < least).then(|| {
            self.0.doubtful.fetch_max(self.end(), Ordering::SeqCst);
            if segment.first() < settled { Forgot::Settled } else { Forgot::Unsettled }
        })
    }

    /// Returns whether an unused segment may be given back. Not if the counter went back since: other nodes may have reserved its
    /// numbers too, and the counter may have come to its end again.
    pub(super) fn may_give_back(&self, unused: Segment) -> bool {
        unused.first() >= self.0.doubtful.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(first: u64, step: u64, count: u64) -> Segment {
        Segment::new(first, NonZeroU64::new(step).unwrap(), NonZeroU64::new(count).unwrap()).unwrap()
    }

    #[test]
    fn what_is_left_is_counted_in_steps() {
        let (range, n) = (NumberRange { first: 10, maximum: 20 }, |step| NonZeroU64::new(step).unwrap());
        for (next, step, left) in [
            (1, 1, 11),
            (11, 1, 10),
            (20, 1, 1),
            (21, 1, 0),
            (1, 3, 4),
            (2, 3, 4),
            (13, 3, 3),
            (u64::MAX, 3, 0),
        ] {
            assert_eq!(range.left_from(next, n(step)), left, "{next} {step}");
        }
        // Without the next number, one more may fit.
        for (least, step, most) in [(0, 1, 11), (0, 3, 4), (11, 3, 4), (12, 3, 3), (21, 3, 0)] {
            assert_eq!(range.left_at_most(least, n(step)), most, "{least} {step}");
        }
    }

    #[test]
    fn a_segment_is_cut_to_the_range() {
        let range = NumberRange { first: 10, maximum: 20 };
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
    fn nine_tenths_count_from_the_first_number_on() {
        let range = NumberRange { first: 1000, maximum: 2000 };
        assert!(!range.is_nearly_exhausted(1899) && range.is_nearly_exhausted(1900));
        assert!(!range.is_nearly_exhausted(0));
        let whole = NumberRange { first: 1, maximum: snowmint_store::MAX_NUMBER };
        assert!(!whole.is_nearly_exhausted(7 << 60) && whole.is_nearly_exhausted(u64::MAX >> 1));
    }

    fn numbers(first: u64, count: u64) -> Segment {
        Segment::new(first, NonZeroU64::MIN, NonZeroU64::new(count).unwrap()).unwrap()
    }

    #[test]
    fn only_numbers_that_were_given_back_may_return() {
        let mark = HighWaterMark::default();
        for segment in [numbers(1, 10), numbers(11, 10)] {
            mark.received(segment);
            mark.settled(segment);
        }
        let least = mark.end();
        mark.giving_back(numbers(1, 10));
        assert_eq!(mark.end(), 21, "more was received since");
        mark.giving_back(numbers(15, 6));
        assert_eq!(mark.end(), 15);
        // A call from before the numbers were given back is answered afterwards.
        assert_eq!(mark.forgot(numbers(15, 3), least), None);
        assert_eq!(mark.forgot(numbers(14, 3), least), Some(Forgot::Settled));
        // The counter did not take them back.
        mark.received(numbers(15, 6));
        assert_eq!(
            mark.forgot(numbers(15, 3), mark.end()),
            Some(Forgot::Unsettled),
            "none of these was used"
        );
    }

    #[test]
    fn unsettled_reservations_are_told_from_settled_ones() {
        let mark = HighWaterMark::default();
        mark.received(numbers(1, 10));
        mark.settled(numbers(1, 10));
        mark.received(numbers(11, 10));
        for (first, forgot) in [
            (21, None),
            (20, Some(Forgot::Unsettled)),
            (11, Some(Forgot::Unsettled)),
            (10, Some(Forgot::Settled)),
            (1, Some(Forgot::Settled)),
        ] {
            assert_eq!(mark.forgot(numbers(first, 5), mark.end()), forgot, "{first}");
        }
    }
}
