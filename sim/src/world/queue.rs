//! What is going to happen, in order of time and then of creation.
//! The order of creation makes one seed one trace.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use snowmint_cluster::lease::protocol::{Call, Input};

#[derive(Debug)]
pub(super) enum Happening {
    /// The node's wait is over.
    Wake,
    /// A request of this term reaches the store; the answer goes to the process that asked.
    Request { call: u64, sent: Call, answer: Answer, term: u64 },
    /// The store's copies have confirmed what it answered in this term.
    Confirmed { call: u64, input: Input, unknown: Input, term: u64 },
    /// An answer, a failure or a time-out reaches the node.
    Answer { call: u64, input: Input },
    /// The node is asked for ids.
    Draw,
    /// Something goes wrong with a node.
    Fault,
    /// Something goes wrong with the store.
    StoreFault,
}

/// What becomes of the answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Arrives,
    Lost,
}

/// A happening, to whom and when.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) at_ms: u64,
    created: u64,
    pub(super) node: usize,
    /// The node's process that it is meant for.
    pub(super) process: u32,
    pub(super) happening: Happening,
}

impl Due {
    fn order(&self) -> (u64, u64) {
        (self.at_ms, self.created)
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    due: BinaryHeap<Reverse<Due>>,
    created: u64,
}

impl Queue {
    pub(super) fn push(&mut self, at_ms: u64, node: usize, process: u32, happening: Happening) {
        self.created += 1;
        self.due.push(Reverse(Due { at_ms, created: self.created, node, process, happening }));
    }

    pub(super) fn pop(&mut self) -> Option<Due> {
        self.due.pop().map(|Reverse(due)| due)
    }
}
