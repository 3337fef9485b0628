//! The numbers that may be handed out: what a segment has below the first or above the greatest is cut off.

use std::num::NonZeroU64;

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
}
