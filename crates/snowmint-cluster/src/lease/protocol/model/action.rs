//! What can happen in the model, one thing at a time. Times are in units.

/// Which version a read shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shows {
    Newest,
    Before,
}

/// What becomes of a request whose node stops waiting for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Lost,
    Late,
}

/// What follows when a call has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The answer reaches the node.
    Answer {
        now: u64,
    },
    /// The answer is lost; the node gives up.
    TimesOut {
        now: u64,
    },
    Crash,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A wait is over.
    Wake { node: usize, now: u64 },
    /// A node gives its lease back; its last id was made just before `used_until`.
    Release { node: usize, used_until: u64 },
    /// A write is on its way, and will arrive.
    Sent { node: usize },
    /// It is refused: known to have done nothing.
    Refused { node: usize, now: u64 },
    /// The node gives up waiting for it.
    TimesOut { node: usize, now: u64, request: Fate },
    /// A process dies, and another begins in its place.
    Crash { node: usize, request: Fate },
    /// A process dies, and the next goes on under its lease: what was used of it lies before `mark`.
    Resume { node: usize, mark: u64, request: Fate },
    /// A call takes effect at the store.
    Done { node: usize, shows: Shows, then: Then },
    /// A write that its node gave up takes effect.
    LateWrite { index: usize },
    /// The store loses its last write.
    Forgets,
    /// So much time passes by every steady clock as the store may lose: what is written stays.
    Ages,
}
