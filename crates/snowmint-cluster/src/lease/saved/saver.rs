//! Keeps the file of one lease ahead of the generator that uses the lease.
//! It writes a few times a second, on threads that serve no request.
//!
//! The file is JSON, written completely or not at all, and on the disk before it counts.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use serde::{Deserialize, Serialize};
use snowmint::{Clock, Generator, WorkerId};
use snowmint_store::Revision;
use tokio::sync::{Mutex, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::{LockedDirectory, ResumeError, SavedLeases, SavedSlotError, SlotGuard};
use crate::lease::protocol::{LeaseSettings, SettledLease};
use crate::lease::record::{Tag, WorkerPool};
use crate::lease::status::LeaseStatus;
use crate::{Holder, NodeClock};

/// How far the file is ahead of the clock, in milliseconds. After a crash the next process waits this long, and a disk may hang
/// this long.
const MAX_AHEAD_MS: u64 = 2_000;

/// Saves one lease.
#[derive(Debug)]
pub(in crate::lease) struct Saver {
    file: LeaseFile,
    settings: LeaseSettings,
    clock: NodeClock,
    status: watch::Sender<LeaseStatus>,
    active: Arc<Mutex<Option<Active>>>,
    _slot: SlotGuard,
    // Dropped last: a lease that waits for this may then take the slot.
    _lives: watch::Sender<()>,
}

#[derive(Debug)]
struct Active {
    ahead: Ahead,
    generator: Option<Arc<Generator<NodeClock>>>,
}

impl Saver {
    /// Takes a slot of a directory until the saver is dropped; then `lives` is closed.
    pub(in crate::lease) fn new(
        saved: &SavedLeases,
        slot: usize,
        settings: LeaseSettings,
        clock: NodeClock,
        status: watch::Sender<LeaseStatus>,
        lives: watch::Sender<()>,
    ) -> Result<Self, SavedSlotError> {
        let (file, slot) = (saved.file(slot), saved.slot(slot)?);
        let active = Arc::new(Mutex::new(None));
        Ok(Self { file, settings, clock, status, active, _slot: slot, _lives: lives })
    }

    /// Reads the lease of the previous process, if this process can resume it now.
    pub(in crate::lease) async fn read(self: &Arc<Self>) -> Result<Option<SavedLease>, ResumeError> {
        let this = Arc::clone(self);
        // A disk may hang.
        let reading = spawn_blocking(move || this.file.read(&this.settings.pool, &this.settings.holder));
        let saved = reading.await.unwrap_or_else(|error| Err(self.file.damaged(error.to_string())))?;
        saved.map(|saved| saved.check(self.clock.unix_ms()).map(|()| saved)).transpose()
    }

    /// Returns at most a fifth of the window, and at least two ticks, because a generator uses no tick that is granted in part.
    fn ahead_ms(&self) -> u64 {
        let tick_ms = u64::try_from(self.settings.pool.layout().tick().as_millis()).unwrap_or(u64::MAX);
        (self.settings.window_ms / 5).min(MAX_AHEAD_MS).max(2 * tick_ms)
    }

    /// Saves a granted lease. Returns the first instant that its generator may not use yet, in unix milliseconds: the beginning of
    /// the lease if the disk fails.
    pub(in crate::lease) async fn begin(self: &Arc<Self>, held: SettledLease) -> u64 {
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
    pub(in crate::lease) async fn extended(self: &Arc<Self>, held: SettledLease) {
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
            // It fails only if the process ends.
            let _ = saved.await;
        }
    }

    /// Runs a disk operation on a blocking thread. The lock moves with it, so that a write that nobody awaits any more still ends
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

    /// Without a file, no later process resumes the lease, and nothing has to be written ahead.
    fn could_not_save(&self, active: &mut Active, error: &io::Error) {
        let file = self.file.path().display();
        match self.file.remove() {
            Ok(()) => {
                active.ahead.removed();
                let why = format!("the lease cannot be saved in {file}: {error}");
                if self.report(Some(why.clone())) {
                    tracing::warn!("{why}; ids continue, but not after a restart while the store is down");
                }
            }
            Err(and) => {
                let why =
                    format!("the lease can neither be saved in {file} nor the file removed: {error}; {and}");
                if self.report(Some(why.clone())) {
                    tracing::error!("{why}; ids stop at the mark in the file");
                }
            }
        }
    }

    /// Records why the lease is not saved. Returns whether the reason is new.
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
    held: SettledLease,
    reach_ms: u64,
    limit_unix_ms: u64,
}

impl Ahead {
    /// Starts with an unused lease, whose mark should be this far ahead of the clock.
    const fn new(held: SettledLease, reach_ms: u64) -> Self {
        Self { held, reach_ms, limit_unix_ms: held.from_unix_ms }
    }

    /// Records a later end, which the store has confirmed.
    const fn extended(&mut self, held: SettledLease) {
        self.held = held;
    }

    /// Returns what has to be on the disk before the generator may continue.
    fn next(&self, now_unix_ms: u64) -> SavedLease {
        let SettledLease { worker, revision, tag, from_unix_ms, until_unix_ms, .. } = self.held;
        let wanted = now_unix_ms.max(from_unix_ms).saturating_add(self.reach_ms);
        // Never below what the generator may already use.
        let mark_unix_ms = wanted.max(self.limit_unix_ms).min(until_unix_ms);
        SavedLease { worker, revision, tag, mark_unix_ms, until_unix_ms }
    }

    /// Records that it is on the disk.
    const fn written(&mut self, saved: &SavedLease) {
        self.limit_unix_ms = saved.mark_unix_ms;
    }

    /// Records that the file is removed, and that the removal is on the disk: no other process will use the rest.
    const fn removed(&mut self) {
        self.limit_unix_ms = self.held.until_unix_ms;
    }

    /// Returns the first instant that the generator may not use, in unix milliseconds.
    const fn limit_unix_ms(&self) -> u64 {
        self.limit_unix_ms
    }
}

/// How far the clock may be behind the mark: a dead process left the mark a few seconds ahead at most.
const MAX_BEHIND_MS: u64 = 60_000;

/// The rest of a lease: the timestamps `[mark, until)` of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lease) struct SavedLease {
    pub(in crate::lease) worker: WorkerId,
    pub(in crate::lease) revision: Revision,
    pub(in crate::lease) tag: Tag,
    /// The first unused instant, in unix milliseconds.
    pub(in crate::lease) mark_unix_ms: u64,
    /// The end of the lease, in unix milliseconds.
    pub(in crate::lease) until_unix_ms: u64,
}

impl SavedLease {
    /// Checks whether a part of the lease is left.
    pub(super) fn check(&self, now_unix_ms: u64) -> Result<(), ResumeError> {
        let Self { mark_unix_ms, until_unix_ms, .. } = *self;
        if until_unix_ms <= now_unix_ms {
            Err(ResumeError::Lapsed { until_unix_ms })
        } else if until_unix_ms <= mark_unix_ms {
            Err(ResumeError::NothingLeft { until_unix_ms })
        } else if mark_unix_ms > now_unix_ms + MAX_BEHIND_MS {
            Err(ResumeError::ClockBehind { mark_unix_ms, now_unix_ms })
        } else {
            Ok(())
        }
    }

    /// Returns the lease that the next process holds. The time before the mark belongs to the dead process.
    pub(in crate::lease) fn settled(&self) -> SettledLease {
        SettledLease {
            worker: self.worker,
            revision: self.revision,
            tag: self.tag,
            from_unix_ms: self.mark_unix_ms,
            until_unix_ms: self.until_unix_ms,
            is_in_gap: false,
        }
    }
}

/// The file of one slot of a directory.
#[derive(Clone, Debug)]
pub(in crate::lease) struct LeaseFile {
    directory: Arc<LockedDirectory>,
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedLeaseWire {
    pool: String,
    worker: u32,
    holder: String,
    until: u64,
    mark: u64,
    revision: u64,
    tag: String,
    origin: String,
    folder: String,
}

impl LeaseFile {
    pub(super) fn new(directory: Arc<LockedDirectory>, slot: usize) -> Self {
        let path = directory.path.join(format!("lease-{}.json", slot + 1));
        Self { directory, path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the error for an unreadable file.
    pub(super) fn damaged(&self, reason: String) -> ResumeError {
        ResumeError::Damaged { path: self.path.display().to_string(), reason }
    }

    /// Reads the saved lease, if it belongs to this node.
    pub(in crate::lease) fn read(
        &self,
        pool: &WorkerPool,
        holder: &Holder,
    ) -> Result<Option<SavedLease>, ResumeError> {
        let damaged = |reason: String| self.damaged(reason);
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(damaged(error.to_string())),
        };
        let wire: SavedLeaseWire =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        let tag = u128::from_str_radix(&wire.tag, 16).map_err(|error| damaged(format!("tag: {error}")))?;
        if wire.folder != self.directory.identity {
            return Err(ResumeError::Copied);
        }
        let same = |what, saved: String, wanted: &str| {
            let other = saved != wanted;
            if other { Err(ResumeError::Other { what, saved, wanted: wanted.to_owned() }) } else { Ok(()) }
        };
        same("pool", wire.pool, &pool.to_string())?;
        same("holder", wire.holder, holder.as_str())?;
        same("origin", wire.origin, &self.directory.origin)?;
        if wire.worker >= pool.workers() {
            return Err(damaged(format!("the layout has no worker {}", wire.worker)));
        }
        Ok(Some(SavedLease {
            worker: WorkerId(wire.worker),
            revision: Revision(wire.revision),
            tag: Tag(tag),
            mark_unix_ms: wire.mark,
            until_unix_ms: wire.until,
        }))
    }

    /// Replaces the saved lease. When it returns, the new lease is on the disk; when it fails, either one may be.
    pub(super) fn write(&self, pool: &WorkerPool, holder: &Holder, lease: &SavedLease) -> io::Result<()> {
        let wire = SavedLeaseWire {
            pool: pool.to_string(),
            worker: lease.worker.0,
            holder: holder.as_str().to_owned(),
            until: lease.until_unix_ms,
            mark: lease.mark_unix_ms,
            revision: lease.revision.0,
            tag: format!("{:032x}", lease.tag.0),
            origin: self.directory.origin.clone(),
            folder: self.directory.identity.clone(),
        };
        replace(&self.path, &serde_json::to_vec(&wire)?)
    }

    /// Removes the saved lease. When it returns, the removal is on the disk.
    pub(super) fn remove(&self) -> io::Result<()> {
        remove(&self.path)
    }
}

/// Replaces a whole file. When it returns, the new bytes are on the disk; when it fails, either version may be.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("json.new");
    let mut file = File::create(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    sync_directory_of(path)
}

/// Removes a file, if it exists. When it returns, the removal is on the disk.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => sync_directory_of(path),
    }
}

/// Syncs the directory of a file: only then is the file's name on the disk.
#[cfg(unix)]
fn sync_directory_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

/// Does nothing: other systems cannot sync a directory; their file systems order the names themselves.
#[cfg(not(unix))]
fn sync_directory_of(_path: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use snowmint::{DatacenterId, Layout};

    use super::super::SavedLeases;
    use super::*;

    #[cfg(unix)]
    use std::{path::Path, process::Command};

    #[cfg(unix)]
    #[cfg(unix)]
    use tokio::time::timeout;

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
        /// The file cannot be removed either.
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

    /// One worker, its record in the store, one folder, and the process that holds it.
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
                Some(saved) if saved.check(self.now).is_ok() => saved.settled(),
                _ => self.grant(),
            };
            self.process = Some((Ahead::new(held, AHEAD_MS), held.from_unix_ms));
        }

        fn grant(&mut self) -> SettledLease {
            let from_unix_ms = self.now.max(self.granted_until);
            self.granted_until = from_unix_ms + 100;
            let (worker, revision, tag) = (WorkerId(1), Revision(1), Tag(1));
            SettledLease {
                worker,
                revision,
                tag,
                from_unix_ms,
                until_unix_ms: self.granted_until,
                is_in_gap: false,
            }
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

        /// Acts as a generator: its next timestamp is at or after the last and the clock, and below its limit.
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

        /// Removes the file first. Then releases the lease in the store, if the process is alive and knows the newest record.
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
        let held = SettledLease {
            worker,
            revision,
            tag,
            from_unix_ms: T0,
            until_unix_ms: T0 + 100,
            is_in_gap: false,
        };
        let mut ahead = Ahead::new(held, AHEAD_MS);
        assert_eq!(ahead.limit_unix_ms(), T0);
        let next = ahead.next(T0 + 10);
        assert_eq!((next.mark_unix_ms, next.until_unix_ms), (T0 + 30, T0 + 100));
        ahead.written(&next);
        assert_eq!(ahead.limit_unix_ms(), T0 + 30);
        assert_eq!(ahead.next(T0 + 95).mark_unix_ms, T0 + 100, "never beyond the lease");
        ahead.extended(SettledLease { until_unix_ms: T0 + 500, ..held });
        assert_eq!(ahead.limit_unix_ms(), T0 + 30, "a later end is of use once it is saved");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        /// Goal: whenever a process dies, and whatever the clock of the next one shows, no timestamp is used twice.
        /// Method: writes, renewals, uses, steps of the clock, deaths before and after each write, and disks that fail with or
        /// without having written. Only the file of a process survives it. Takes 0.5 s.
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
                        // Renewed as long as the record is what this process last saw.
                        if ahead.held.until_unix_ms == *granted_until {
                            *granted_until = (*now + ms).max(*granted_until);
                            ahead.extended(SettledLease { until_unix_ms: *granted_until, ..ahead.held });
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
        let settings = LeaseSettings {
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

    /// Goal: a write ends before the file is removed, even if nobody awaits the write any more. Method: the write goes to a pipe
    /// that nobody reads, and hangs until somebody does.
    #[cfg(unix)]
    #[tokio::test]
    async fn a_write_that_nobody_waits_for_ends_before_the_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let saver = saver(folder.path());
        let pipe = folder.path().join("lease-1.json.new");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let held = SettledLease {
            worker: WorkerId(1),
            revision: Revision(1),
            tag: Tag(1),
            from_unix_ms: 1_790_000_000_000,
            until_unix_ms: 1_790_000_010_000,
            is_in_gap: false,
        };
        let short = Duration::from_millis(100);
        assert!(timeout(short, saver.begin(held)).await.is_err(), "it hangs");
        let removing = saver.remove();
        tokio::pin!(removing);
        let early = timeout(short, &mut removing).await;
        // Let the write end in any case: the test waits for it.
        fs::read(&pipe).unwrap();
        assert!(early.is_err(), "the write was still to come");
        removing.await.unwrap();
        assert!(!folder.path().join("lease-1.json").exists());
    }

    const LEASE: SavedLease = SavedLease {
        worker: WorkerId(7),
        revision: Revision(12),
        tag: Tag(0xab),
        mark_unix_ms: 1_790_000_000_000,
        until_unix_ms: 1_790_000_008_000,
    };

    fn pool() -> WorkerPool {
        WorkerPool::new(Layout::TWITTER, DatacenterId(0))
    }

    fn holder(name: &str) -> Holder {
        Holder::new(name).unwrap()
    }

    #[test]
    fn a_saved_lease_reads_back_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let saved = SavedLeases::open(folder.path(), "redis://r default").unwrap();
        let file = saved.file(0);
        assert_eq!(file.read(&pool(), &holder("me")), Ok(None));
        file.write(&pool(), &holder("me"), &LEASE).unwrap();
        assert_eq!(file.read(&pool(), &holder("me")), Ok(Some(LEASE)));
        let later = SavedLease { mark_unix_ms: LEASE.mark_unix_ms + 1, ..LEASE };
        file.write(&pool(), &holder("me"), &later).unwrap();
        assert_eq!(file.read(&pool(), &holder("me")), Ok(Some(later)));
        assert_eq!(saved.file(1).read(&pool(), &holder("me")), Ok(None), "another lease of the node");
        file.remove().unwrap();
        file.remove().unwrap();
        assert_eq!(file.read(&pool(), &holder("me")), Ok(None));
    }

    #[test]
    fn the_lease_of_another_node_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let saved = SavedLeases::open(folder.path(), "redis://r default").unwrap();
        saved.file(0).write(&pool(), &holder("me"), &LEASE).unwrap();
        let other = saved.file(0).read(&pool(), &holder("you")).unwrap_err().to_string();
        assert_eq!(other, r#"its holder is "me", this node's "you""#);
        let elsewhere = WorkerPool::new(Layout::TWITTER, DatacenterId(1));
        assert!(matches!(
            saved.file(0).read(&elsewhere, &holder("me")),
            Err(ResumeError::Other { what: "pool", .. })
        ));
        drop(saved);
        let saved = SavedLeases::open(folder.path(), "redis://other default").unwrap();
        let other = saved.file(0).read(&pool(), &holder("me"));
        assert!(matches!(other, Err(ResumeError::Other { what: "origin", .. })), "{other:?}");
    }

    #[test]
    fn a_directory_belongs_to_one_process_and_a_copy_of_it_is_rejected() {
        let (folder, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let saved = SavedLeases::open(folder.path(), "o").unwrap();
        saved.file(0).write(&pool(), &holder("me"), &LEASE).unwrap();
        let second = SavedLeases::open(folder.path(), "o").unwrap_err();
        assert!(matches!(second, super::super::SavedLeasesError::InUse { .. }), "{second}");
        for name in ["lease-1.json", "leases.lock"] {
            fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
        }
        let copied = SavedLeases::open(copy.path(), "o").unwrap();
        assert_eq!(copied.file(0).read(&pool(), &holder("me")), Err(ResumeError::Copied));
    }

    #[test]
    fn a_damaged_file_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let saved = SavedLeases::open(folder.path(), "o").unwrap();
        saved.file(0).write(&pool(), &holder("me"), &LEASE).unwrap();
        let path = folder.path().join("lease-1.json");
        let good = fs::read_to_string(&path).unwrap();
        let spoilt = [
            String::new(),
            good[..good.len() / 2].to_owned(),
            good.replace(r#""worker":7"#, r#""worker":32"#),
            good.replace("0ab", "0xx"),
            good.replace(r#"{"pool""#, r#"{"more":1,"pool""#),
            good.replace(r#""mark":"#, r#""mark":-"#),
        ];
        for text in spoilt {
            assert_ne!(text, good);
            fs::write(&path, &text).unwrap();
            let read = saved.file(0).read(&pool(), &holder("me"));
            assert!(matches!(read, Err(ResumeError::Damaged { .. })), "{text}: {read:?}");
        }
    }

    #[test]
    fn the_clock_decides_what_is_left_of_a_lease() {
        let (mark, until) = (LEASE.mark_unix_ms, LEASE.until_unix_ms);
        assert_eq!(LEASE.check(mark - 2000), Ok(()), "it waits for the mark");
        assert_eq!(LEASE.check(until - 1), Ok(()));
        assert_eq!(LEASE.check(until), Err(ResumeError::Lapsed { until_unix_ms: until }));
        let back = mark - 3_600_000;
        let behind = Err(ResumeError::ClockBehind { mark_unix_ms: mark, now_unix_ms: back });
        assert_eq!(LEASE.check(back), behind);
        let used_up = SavedLease { mark_unix_ms: until, ..LEASE };
        assert_eq!(used_up.check(mark), Err(ResumeError::NothingLeft { until_unix_ms: until }));
    }
}
