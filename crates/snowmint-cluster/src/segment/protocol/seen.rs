//! The greatest number that was received from a counter: whatever comes later has to be greater.
//! Shared by all in a process who ask one counter for numbers of one namespace.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use snowmint_store::Segment;

/// The end of what was received from one counter.
///
/// A counter gives greater numbers to a call that begins after another has returned. So a segment that begins below what
/// was received before its call was made shows that the counter went back: a store that was restored, or that lost more
/// than it said.
#[derive(Clone, Debug, Default)]
pub struct Seen(Arc<AtomicU64>);

impl Seen {
    /// The smallest number that the answer to a call may begin with, if the call is made now.
    pub fn end(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// A segment was received.
    pub fn saw(&self, segment: Segment) {
        // At most 2^63.
        self.0.fetch_max(segment.last() + 1, Ordering::SeqCst);
    }
}
