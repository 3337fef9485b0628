//! A counter of the simulated world: linearizable, as the contract of a real store says.
//! Giving back is a look and then a conditional write, and either may come late.

use std::num::NonZeroU64;

use snowmint_store::Segment;

#[derive(Clone, Copy, Debug)]
pub(crate) struct SimCounter {
    stripe: u64,
    of: NonZeroU64,
    slots: u64,
    revision: u64,
    /// It refuses calls until then.
    pub(crate) down_until_ms: u64,
}

/// A write that gives numbers back, if nothing was written since the look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteBack {
    revision: u64,
    slots: u64,
}

impl SimCounter {
    pub(crate) fn stripe(index: u64, of: NonZeroU64) -> Self {
        Self { stripe: index, of, slots: 0, revision: 0, down_until_ms: 0 }
    }

    #[expect(clippy::expect_used, reason = "no world reserves 2^63 numbers")]
    pub(crate) fn reserve(&mut self, count: NonZeroU64) -> Segment {
        let first = self.stripe + self.slots * self.of.get();
        self.slots += count.get();
        self.revision += 1;
        Segment::new(first, self.of, count).expect("few numbers")
    }

    /// The write that gives numbers back; `None` where somebody reserved after them.
    pub(crate) fn look(&self, unused: Segment) -> Option<WriteBack> {
        let slots = (unused.first() - self.stripe) / self.of.get();
        (slots + unused.count().get() == self.slots).then_some(WriteBack { revision: self.revision, slots })
    }

    pub(crate) fn write(&mut self, write: WriteBack) -> bool {
        let unchanged = self.revision == write.revision;
        if unchanged {
            self.slots = write.slots;
            self.revision += 1;
        }
        unchanged
    }

    /// The same, whoever reserved meanwhile: a mistake.
    pub(crate) fn overwrite(&mut self, write: WriteBack) {
        self.slots = write.slots;
        self.revision += 1;
    }
}
