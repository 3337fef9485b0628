//! How far a generator may go, by what its file says: pure, so that a test can let it die between any two steps.
//! `saver` performs what is decided here.

use super::file::SavedLease;
use crate::lease::protocol::Held;

/// A lease that is being saved, and the end of what its generator may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    held: Held,
    reach_ms: u64,
    limit_unix_ms: u64,
}

impl Ahead {
    /// Of a lease under which nothing was used yet; what is saved reaches so far beyond the clock.
    pub(super) const fn new(held: Held, reach_ms: u64) -> Self {
        Self { held, reach_ms, limit_unix_ms: held.from_unix_ms }
    }

    /// The store confirmed a later end.
    pub(super) const fn extended(&mut self, held: Held) {
        self.held = held;
    }

    /// What has to be on the disk before the generator may go on.
    pub(super) fn next(&self, now_unix_ms: u64) -> SavedLease {
        let Held { worker, revision, tag, from_unix_ms, until_unix_ms } = self.held;
        let wanted = now_unix_ms.max(from_unix_ms).saturating_add(self.reach_ms);
        // Never below what the generator may use already.
        let mark_unix_ms = wanted.max(self.limit_unix_ms).min(until_unix_ms);
        SavedLease { worker, revision, tag, mark_unix_ms, until_unix_ms }
    }

    /// It is on the disk.
    pub(super) const fn written(&mut self, saved: &SavedLease) {
        self.limit_unix_ms = saved.mark_unix_ms;
    }

    /// Nothing is saved any more, and that is on the disk: no other process will ever use what is left.
    pub(super) const fn removed(&mut self) {
        self.limit_unix_ms = self.held.until_unix_ms;
    }

    /// The first instant that the generator may not use, in unix milliseconds.
    pub(super) const fn limit_unix_ms(&self) -> u64 {
        self.limit_unix_ms
    }
}

/// Goal: whatever instant a process dies at, and whatever the clock of the next one shows, no timestamp is used twice.
/// Method: proptest over writes, renewals, uses, steps of the clock, deaths before and after each write, and disks that
/// fail with or without having written. Nothing of a process but its file survives it. Takes half a second.
#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use snowmint::WorkerId;
    use snowmint_store::Revision;

    use super::*;
    use crate::lease::record::Tag;

    const T0: u64 = 10_000;
    const AHEAD_MS: u64 = 20;

    #[derive(Clone, Copy, Debug)]
    enum Disk {
        Writes,
        FailsBefore,
        FailsAfter,
        /// Nor can the file be removed.
        IsGone {
            wrote: bool,
        },
        DiesBefore,
        DiesAfter,
    }

    #[derive(Clone, Copy, Debug)]
    enum Act {
        Save(Disk),
        Renew(u64),
        Use(u64),
        Step(i64),
        Die,
        GiveBack { told: bool },
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let disk = prop::sample::select(vec![
            Disk::Writes,
            Disk::Writes,
            Disk::FailsBefore,
            Disk::FailsAfter,
            Disk::IsGone { wrote: false },
            Disk::IsGone { wrote: true },
            Disk::DiesBefore,
            Disk::DiesAfter,
        ]);
        let act = prop_oneof![
            6 => disk.prop_map(Act::Save),
            3 => (60..140_u64).prop_map(Act::Renew),
            6 => (1..9_u64).prop_map(Act::Use),
            4 => (-30..30_i64).prop_map(Act::Step),
            2 => Just(Act::Die),
            1 => any::<bool>().prop_map(|told| Act::GiveBack { told }),
        ];
        prop::collection::vec(act, 1..80)
    }

    /// One worker, its record in the store, one folder, and the process that has it.
    struct World {
        now: u64,
        /// The end of what the store granted, to whomever.
        granted_until: u64,
        file: Option<SavedLease>,
        process: Option<(Ahead, u64)>,
        used: BTreeSet<u64>,
    }

    impl World {
        /// A process goes on under what was saved, or is granted what follows.
        fn start(&mut self) {
            let held = match self.file {
                Some(saved) if saved.check(self.now).is_ok() => saved.held(),
                _ => self.grant(),
            };
            self.process = Some((Ahead::new(held, AHEAD_MS), held.from_unix_ms));
        }

        fn grant(&mut self) -> Held {
            let from_unix_ms = self.now.max(self.granted_until);
            self.granted_until = from_unix_ms + 100;
            let (worker, revision, tag) = (WorkerId(1), Revision(1), Tag(1));
            Held { worker, revision, tag, from_unix_ms, until_unix_ms: self.granted_until }
        }

        fn save(&mut self, disk: Disk) {
            let Some((ahead, _)) = &mut self.process else { return };
            let next = ahead.next(self.now);
            let wrote = !matches!(disk, Disk::FailsBefore | Disk::DiesBefore | Disk::IsGone { wrote: false });
            if wrote {
                self.file = Some(next);
            }
            match disk {
                Disk::Writes => ahead.written(&next),
                Disk::FailsBefore | Disk::FailsAfter => {
                    self.file = None;
                    ahead.removed();
                }
                Disk::IsGone { .. } => {}
                Disk::DiesBefore | Disk::DiesAfter => self.process = None,
            }
        }

        /// What a generator does: its next timestamp is at or after the last and the clock, and below its limit.
        fn make(&mut self, count: u64) {
            let Some((ahead, next)) = &mut self.process else { return };
            for _ in 0..count {
                let at = self.now.max(*next);
                if at >= ahead.limit_unix_ms() {
                    return;
                }
                assert!(self.used.insert(at), "{at} was used twice");
                *next = at + 1;
            }
        }

        /// The file goes first; then the store is told, if the process lives and its record is as it knows it.
        fn give_back(&mut self, told: bool) {
            let Some((ahead, next)) = self.process.take() else { return };
            self.file = None;
            if told && ahead.held.until_unix_ms == self.granted_until {
                self.granted_until = next.min(self.granted_until);
            }
        }
    }

    #[test]
    fn nothing_is_used_before_it_is_saved() {
        let (worker, revision, tag) = (WorkerId(1), Revision(1), Tag(1));
        let held = Held { worker, revision, tag, from_unix_ms: T0, until_unix_ms: T0 + 100 };
        let mut ahead = Ahead::new(held, AHEAD_MS);
        assert_eq!(ahead.limit_unix_ms(), T0);
        let next = ahead.next(T0 + 10);
        assert_eq!((next.mark_unix_ms, next.until_unix_ms), (T0 + 30, T0 + 100));
        ahead.written(&next);
        assert_eq!(ahead.limit_unix_ms(), T0 + 30);
        assert_eq!(ahead.next(T0 + 95).mark_unix_ms, T0 + 100, "never beyond the lease");
        ahead.extended(Held { until_unix_ms: T0 + 500, ..held });
        assert_eq!(ahead.limit_unix_ms(), T0 + 30, "a later end is of use once it is saved");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn no_timestamp_is_used_twice(acts in acts()) {
            let (file, process, used) = (None, None, BTreeSet::new());
            let mut world = World { now: T0, granted_until: 0, file, process, used };
            for act in acts {
                if world.process.is_none() {
                    world.start();
                }
                match act {
                    Act::Save(disk) => world.save(disk),
                    Act::Renew(ms) => {
                        let World { now, granted_until, process: Some((ahead, _)), .. } = &mut world else { continue };
                        // Renewed as long as the record is as this process knows it.
                        if ahead.held.until_unix_ms == *granted_until {
                            *granted_until = (*now + ms).max(*granted_until);
                            ahead.extended(Held { until_unix_ms: *granted_until, ..ahead.held });
                        }
                    }
                    Act::Use(count) => world.make(count),
                    Act::Step(ms) => world.now = world.now.saturating_add_signed(ms),
                    Act::Die => world.process = None,
                    Act::GiveBack { told } => world.give_back(told),
                }
            }
        }
    }
}
