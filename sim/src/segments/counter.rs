//! A counter of the simulated world: linearizable, as the contract of a real store requires.
//! Giving numbers back is a read and then a conditional write, and either may come late.
//! A counter that forgets returns to an earlier state, with everything in its store.

use std::num::NonZeroU64;

use snowmint_store::{Claims, Mark, Refused, Segment};

#[derive(Clone, Debug)]
pub(crate) struct SimCounter {
    stripe: u64,
    of: NonZeroU64,
    now: State,
    /// Its state after each write, oldest first, if it can lose writes.
    before: Vec<(u64, State)>,
    /// Time until which it refuses calls.
    pub(crate) down_until_ms: u64,
}

#[derive(Clone, Debug, Default)]
struct State {
    slots: u64,
    revision: u64,
    claims: Claims,
    /// Number of marks written without a check for others: a planted fault.
    bare_marks: u64,
}

/// A write that gives numbers back, if nothing was written since the look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteBack {
    revision: u64,
    slots: u64,
}

impl SimCounter {
    pub(crate) fn stripe(index: u64, of: NonZeroU64) -> Self {
        Self { stripe: index, of, now: State::default(), before: Vec::new(), down_until_ms: 0 }
    }

    #[expect(clippy::expect_used, reason = "no world reserves 2^63 numbers")]
    pub(crate) fn reserve(&mut self, count: NonZeroU64) -> Segment {
        let first = self.stripe + self.now.slots * self.of.get();
        self.now.slots += count.get();
        self.now.revision += 1;
        Segment::new(first, self.of, count).expect("few numbers")
    }

    /// Returns its next number, as a segment of one number.
    pub(crate) fn peek(&self) -> Segment {
        self.clone().reserve(NonZeroU64::MIN)
    }

    /// Returns the write that gives numbers back; `None` if another node reserved after them.
    pub(crate) fn look(&self, unused: Segment) -> Option<WriteBack> {
        let slots = self.slot_of(unused);
        let is_last = slots + unused.count().get() == self.now.slots;
        is_last.then_some(WriteBack { revision: self.now.revision, slots })
    }

    pub(crate) fn write(&mut self, write: WriteBack) -> bool {
        let unchanged = self.now.revision == write.revision;
        if unchanged {
            self.overwrite(write);
        }
        unchanged
    }

    /// Does the same even if another node reserved meanwhile: a planted fault.
    pub(crate) fn overwrite(&mut self, write: WriteBack) {
        self.now.slots = write.slots;
        self.now.revision += 1;
    }

    fn slot_of(&self, segment: Segment) -> u64 {
        (segment.first() - self.stripe) / self.of.get()
    }

    /// Claims a segment under a mark. Returns whether no other claim overlaps it; otherwise raises the
    /// counter, as the real one does.
    pub(crate) fn claim(&mut self, mark: Mark, segment: Segment) -> bool {
        let first = self.slot_of(segment);
        // Every claim counts as settled, so that old claims leave the record as early as possible.
        match self.now.claims.claim(mark, first, first + segment.count().get(), |_| true) {
            Ok(()) => true,
            Err(Refused::Full) => false,
            Err(Refused::Overlaps { end } | Refused::Late { end }) => {
                self.now.slots = self.now.slots.max(end);
                self.now.revision += 1;
                false
            }
        }
    }

    /// Writes a mark that does not contain the numbers: a planted mistake.
    pub(crate) fn mark_alone(&mut self, mark: Mark) {
        let unique = self.now.bare_marks;
        self.now.bare_marks += 1;
        // Each reservation is beyond the one before.
        let _ = self.now.claims.claim(mark, unique, unique + 1, |_| true);
    }

    pub(crate) fn holds(&self, mark: Mark) -> bool {
        self.now.claims.holds(mark)
    }

    pub(crate) fn raise_above(&mut self, number: u64) {
        let slots = number.checked_sub(self.stripe).map_or(0, |it| it / self.of.get() + 1);
        if slots > self.now.slots {
            self.now.slots = slots;
            self.now.revision += 1;
        }
    }

    /// Saves the current state, after a write.
    pub(crate) fn remember(&mut self, now_ms: u64) {
        self.before.push((now_ms, self.now.clone()));
    }

    /// Returns to its state at that time. Writes in that millisecond are kept.
    pub(crate) fn go_back_to(&mut self, then_ms: u64) {
        while self.before.last().is_some_and(|(at_ms, _)| *at_ms > then_ms) {
            self.before.pop();
        }
        // Revisions do not return: the steps between them are random.
        let revision = self.now.revision + 1;
        self.now = self.before.last().map(|(_, state)| state.clone()).unwrap_or_default();
        self.now.revision = revision;
    }
}
