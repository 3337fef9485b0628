//! Keeps the file of one lease ahead of the generator that uses the lease.
//! It writes a few times a second, on threads that serve no request.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use snowmint::{Clock, Generator};
use tokio::sync::{Mutex, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::file::{LeaseFile, SavedLease};
use super::{ResumeError, SavedLeases, SavedSlotError, SlotGuard};
use crate::NodeClock;
use crate::lease::protocol::{Held, Settings};
use crate::lease::status::LeaseStatus;

/// How far the file is ahead of the clock, in milliseconds. After a crash the next process waits this long, and a disk may hang for
/// as long.
const MAX_AHEAD_MS: u64 = 2_000;

/// Saves one lease.
#[derive(Debug)]
pub(in crate::lease) struct Saver {
    file: LeaseFile,
    settings: Settings,
    clock: NodeClock,
    status: watch::Sender<LeaseStatus>,
    active: Arc<Mutex<Option<Active>>>,
    _slot: SlotGuard,
    // Dropped last: a lease that waits for this may take the slot.
    _lives: watch::Sender<()>,
}

#[derive(Debug)]
struct Active {
    ahead: Ahead,
    generator: Option<Arc<Generator<NodeClock>>>,
}

impl Saver {
    /// Takes a slot of a directory until it is dropped; then `lives` is closed.
    pub(in crate::lease) fn new(
        saved: &SavedLeases,
        slot: usize,
        settings: Settings,
        clock: NodeClock,
        status: watch::Sender<LeaseStatus>,
        lives: watch::Sender<()>,
    ) -> Result<Self, SavedSlotError> {
        let (file, slot) = (saved.file(slot), saved.slot(slot)?);
        let active = Arc::new(Mutex::new(None));
        Ok(Self { file, settings, clock, status, active, _slot: slot, _lives: lives })
    }

    /// Reads the lease of the process before this one, if this process can resume it now.
    pub(in crate::lease) async fn read(self: &Arc<Self>) -> Result<Option<SavedLease>, ResumeError> {
        let this = Arc::clone(self);
        // A disk may hang.
        let reading = spawn_blocking(move || this.file.read(&this.settings.pool, &this.settings.holder));
        let saved = reading.await.unwrap_or_else(|error| Err(self.file.damaged(error.to_string())))?;
        saved.map(|saved| saved.check(self.clock.unix_ms()).map(|()| saved)).transpose()
    }

    /// At most a fifth of the window, and at least two ticks, because a generator uses no tick that is granted in part.
    fn ahead_ms(&self) -> u64 {
        let tick_ms = u64::try_from(self.settings.pool.layout().tick().as_millis()).unwrap_or(u64::MAX);
        (self.settings.window_ms / 5).min(MAX_AHEAD_MS).max(2 * tick_ms)
    }

    /// Saves a granted lease. Returns the first instant that its generator may not use yet, in unix milliseconds: the beginning of
    /// the lease if the disk fails.
    pub(in crate::lease) async fn begin(self: &Arc<Self>, held: Held) -> u64 {
        let begun = self.on_disk(move |saver, active| {
            let begun = active.insert(Active { ahead: Ahead::new(held, saver.ahead_ms()), generator: None });
            saver.save(begun);
            begun.ahead.limit_unix_ms()
        });
        begun.await.unwrap_or(held.from_unix_ms)
    }

    /// Sets the generator, which may use the lease as far as it is saved.
    pub(in crate::lease) async fn attach(&self, generator: Arc<Generator<NodeClock>>) {
        if let Some(active) = &mut *self.active.lock().await {
            active.generator = Some(generator);
        }
    }

    /// Saves a later end, which the store has confirmed.
    pub(in crate::lease) async fn extended(self: &Arc<Self>, held: Held) {
        let extended = self.on_disk(move |saver, active| {
            if let Some(active) = active {
                active.ahead.extended(held);
                saver.save(active);
            }
        });
        // It fails only if the process ends.
        let _ = extended.await;
    }

    /// Removes the file, before the lease is released early.
    pub(in crate::lease) async fn remove(self: &Arc<Self>) -> io::Result<()> {
        let removed = self.on_disk(|saver, active| {
            *active = None;
            saver.file.remove()
        });
        removed.await?
    }

    /// Saves in intervals, well before the generator reaches the mark. Runs until it is aborted.
    pub(in crate::lease) async fn run(self: &Arc<Self>) {
        loop {
            sleep(Duration::from_millis(self.ahead_ms() / 4 + 1)).await;
            let saved = self.on_disk(|saver, active| {
                if let Some(active) = active {
                    saver.save(active);
                }
            });
            // As above.
            let _ = saved.await;
        }
    }

    /// Runs a disk operation on a blocking thread. The lock moves with it, so that a write that nobody waits for any more still ends
    /// before the file is removed.
    async fn on_disk<T: Send + 'static>(
        self: &Arc<Self>,
        does: impl FnOnce(&Self, &mut Option<Active>) -> T + Send + 'static,
    ) -> io::Result<T> {
        let mut active = Arc::clone(&self.active).lock_owned().await;
        let saver = Arc::clone(self);
        spawn_blocking(move || does(&saver, &mut active)).await.map_err(io::Error::other)
    }

    fn save(&self, active: &mut Active) {
        let next = active.ahead.next(self.clock.unix_ms());
        match self.file.write(&self.settings.pool, &self.settings.holder, &next) {
            Ok(()) => {
                active.ahead.written(&next);
                if self.report(None) {
                    tracing::info!("the lease is saved again");
                }
            }
            Err(error) => self.could_not_save(active, &error),
        }
        if let Some(generator) = &active.generator {
            generator.extend_lease(active.ahead.limit_unix_ms());
        }
    }

    /// Without a file, no process resumes the lease after this one, and nothing has to be written ahead.
    fn could_not_save(&self, active: &mut Active, error: &io::Error) {
        let file = self.file.path().display();
        match self.file.remove() {
            Ok(()) => {
                active.ahead.removed();
                let why = format!("the lease cannot be saved in {file}: {error}");
                if self.report(Some(why.clone())) {
                    tracing::warn!("{why}; ids go on, but not after a restart while the store is down");
                }
            }
            Err(and) => {
                let why =
                    format!("the lease can neither be saved in {file} nor the file removed: {error}; {and}");
                if self.report(Some(why.clone())) {
                    tracing::error!("{why}; ids end at the mark in the file");
                }
            }
        }
    }

    /// Notes why the lease is not saved. Returns whether that is new.
    fn report(&self, unsaved: Option<String>) -> bool {
        self.status.send_if_modified(|status| {
            let new = status.unsaved != unsaved;
            status.unsaved = unsaved;
            new
        })
    }
}

/// A lease that is being saved, and how far its generator may go. It does no I/O, so that a test can let the process die between
/// any two steps.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    held: Held,
    reach_ms: u64,
    limit_unix_ms: u64,
}

impl Ahead {
    /// Starts with an unused lease, whose mark is to be this far ahead of the clock.
    const fn new(held: Held, reach_ms: u64) -> Self {
        Self { held, reach_ms, limit_unix_ms: held.from_unix_ms }
    }

    /// Notes a later end, which the store has confirmed.
    const fn extended(&mut self, held: Held) {
        self.held = held;
    }

    /// What has to be on the disk before the generator may go on.
    fn next(&self, now_unix_ms: u64) -> SavedLease {
        let Held { worker, revision, tag, from_unix_ms, until_unix_ms } = self.held;
        let wanted = now_unix_ms.max(from_unix_ms).saturating_add(self.reach_ms);
        // Never below what the generator may already use.
        let mark_unix_ms = wanted.max(self.limit_unix_ms).min(until_unix_ms);
        SavedLease { worker, revision, tag, mark_unix_ms, until_unix_ms }
    }

    /// Notes that it is on the disk.
    const fn written(&mut self, saved: &SavedLease) {
        self.limit_unix_ms = saved.mark_unix_ms;
    }

    /// Notes that the file is removed, and the removal is on the disk: no other process will use the rest.
    const fn removed(&mut self) {
        self.limit_unix_ms = self.held.until_unix_ms;
    }

    /// The first instant that the generator may not use, in unix milliseconds.
    const fn limit_unix_ms(&self) -> u64 {
        self.limit_unix_ms
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    #[cfg(unix)]
    use std::{path::Path, process::Command};

    use proptest::prelude::*;
    use snowmint::WorkerId;
    #[cfg(unix)]
    use snowmint::{DatacenterId, Layout};
    use snowmint_store::Revision;
    #[cfg(unix)]
    use tokio::time::timeout;

    use super::*;
    use crate::lease::record::Tag;
    #[cfg(unix)]
    use crate::{
        Holder,
        lease::{protocol::WorkerChoice, record::WorkerPool},
    };

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
        /// The end of the last grant.
        granted_until: u64,
        file: Option<SavedLease>,
        process: Option<(Ahead, u64)>,
        used: BTreeSet<u64>,
    }

    impl World {
        /// A process resumes the saved lease, or is granted a new one.
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

        /// The file is removed first. Then the lease is released in the store, if the process lives and knows the newest record.
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

        /// Goal: whatever instant a process dies at, and whatever the clock of the next one shows, no timestamp is used twice.
        /// Method: writes, renewals, uses, steps of the clock, deaths before and after each write, and disks that fail with or
        /// without having written. Only the file of a process survives it. Takes half a second.
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

    #[cfg(unix)]
    fn saver(folder: &Path) -> Arc<Saver> {
        let settings = Settings {
            pool: WorkerPool::new(Layout::TWITTER, DatacenterId(0)),
            choice: WorkerChoice::Any,
            holder: Holder::new("me").unwrap(),
            window_ms: 10_000,
            max_skew_ms: 30_000,
            may_lose_ms: 0,
            small_pool: 64,
        };
        let saved = SavedLeases::open(folder, "o").unwrap();
        let (status, lives) = (watch::channel(LeaseStatus::default()).0, watch::channel(()).0);
        Arc::new(Saver::new(&saved, 0, settings, NodeClock::wall(), status, lives).unwrap())
    }

    /// Goal: a write ends before the file is removed, also if nobody waits for the write any more. Method: the write goes to a pipe
    /// that nobody reads, and hangs until somebody does.
    #[cfg(unix)]
    #[tokio::test]
    async fn a_write_that_nobody_waits_for_ends_before_the_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let saver = saver(folder.path());
        let pipe = folder.path().join("lease-1.json.new");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let held = Held {
            worker: WorkerId(1),
            revision: Revision(1),
            tag: Tag(1),
            from_unix_ms: 1_790_000_000_000,
            until_unix_ms: 1_790_000_010_000,
        };
        let short = Duration::from_millis(100);
        assert!(timeout(short, saver.begin(held)).await.is_err(), "it hangs");
        let removing = saver.remove();
        tokio::pin!(removing);
        let early = timeout(short, &mut removing).await;
        // In any case let the write end: the test waits for it.
        std::fs::read(&pipe).unwrap();
        assert!(early.is_err(), "the write was still to come");
        removing.await.unwrap();
        assert!(!folder.path().join("lease-1.json").exists());
    }
}
