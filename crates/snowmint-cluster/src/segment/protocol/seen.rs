//! What was received from a counter: whatever comes later has to be greater.
//! Shared by all in a process who ask one counter for numbers of one namespace.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use snowmint_store::Segment;

/// The end of what was received from one counter, and of what may be in use.
///
/// A counter gives greater numbers to a call that begins after another has returned. So a segment that begins below what
/// was received before its call was made shows that the counter went back: a store that was restored, or that lost
/// writes. Where it begins above all that had settled, the store lost no more than it may, and no number in use.
#[derive(Clone, Debug, Default)]
pub struct Seen(Arc<Ends>);

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

impl Seen {
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
    use std::num::NonZeroU64;

    use super::*;

    fn numbers(first: u64, count: u64) -> Segment {
        Segment::new(first, NonZeroU64::MIN, NonZeroU64::new(count).unwrap()).unwrap()
    }

    #[test]
    fn what_was_given_back_may_come_again_and_nothing_else() {
        let seen = Seen::default();
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
        let seen = Seen::default();
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
