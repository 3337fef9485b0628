//! Keeps the file of one lease ahead of the generator that mints under it: the driver of `ahead`.
//! It writes a few times a second, off the threads that serve.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use snowmint::Clock;
use tokio::sync::{Mutex, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::ahead::Ahead;
use super::file::{LeaseFile, SavedLease};
use super::places::Place;
use super::{SavedLeases, SavedPlaceError, Unusable};
use crate::NodeClock;
use crate::lease::keeper::{LeaseStatus, LeasedGenerator};
use crate::lease::protocol::{Held, Settings};

/// How far the file is ahead of the clock: after a crash so long no id can be made, and a disk may stall for as long.
const MAX_AHEAD_MS: u64 = 2_000;

/// The file of one lease, and what is saved in it.
#[derive(Debug)]
pub(in crate::lease) struct Saver {
    file: LeaseFile,
    settings: Settings,
    clock: NodeClock,
    status: watch::Sender<LeaseStatus>,
    active: Arc<Mutex<Option<Active>>>,
    _place: Place,
    // Dropped last: who waits for that may take the place.
    _lives: watch::Sender<()>,
}

#[derive(Debug)]
struct Active {
    ahead: Ahead,
    generator: Option<Arc<LeasedGenerator>>,
}

impl Saver {
    /// One at a time for each place of a folder, until it is dropped; then `lives` is closed.
    pub(in crate::lease) fn new(
        saved: &SavedLeases,
        place: usize,
        settings: Settings,
        clock: NodeClock,
        status: watch::Sender<LeaseStatus>,
        lives: watch::Sender<()>,
    ) -> Result<Self, SavedPlaceError> {
        let (file, place) = (saved.file(place), saved.place(place)?);
        let active = Arc::new(Mutex::new(None));
        Ok(Self { file, settings, clock, status, active, _place: place, _lives: lives })
    }

    /// What was saved by the process before this one, if it can be used now.
    pub(in crate::lease) fn read(&self) -> Result<Option<SavedLease>, Unusable> {
        let saved = self.file.read(&self.settings.pool, &self.settings.holder)?;
        saved.map(|saved| saved.check(self.clock.unix_ms()).map(|()| saved)).transpose()
    }

    /// A fifth of the window at most, and two ticks at least: a tick that is granted in part is not used.
    fn ahead_ms(&self) -> u64 {
        let tick_ms = u64::try_from(self.settings.pool.layout().tick().as_millis()).unwrap_or(u64::MAX);
        (self.settings.window_ms / 5).min(MAX_AHEAD_MS).max(2 * tick_ms)
    }

    /// Saves a lease that was granted; gives the first instant that its generator may not use yet, in unix milliseconds,
    /// which is the begin of the lease where the disk lets nothing be promised.
    pub(in crate::lease) async fn begin(self: &Arc<Self>, held: Held) -> u64 {
        let begun = self.on_disk(move |saver, active| {
            let begun = active.insert(Active { ahead: Ahead::new(held, saver.ahead_ms()), generator: None });
            saver.save(begun);
            begun.ahead.limit_unix_ms()
        });
        begun.await.unwrap_or(held.from_unix_ms)
    }

    /// The generator that goes on as far as is saved.
    pub(in crate::lease) async fn attach(&self, generator: Arc<LeasedGenerator>) {
        if let Some(active) = &mut *self.active.lock().await {
            active.generator = Some(generator);
        }
    }

    /// The store confirmed a later end.
    pub(in crate::lease) async fn extended(self: &Arc<Self>, held: Held) {
        let extended = self.on_disk(move |saver, active| {
            if let Some(active) = active {
                active.ahead.extended(held);
                saver.save(active);
            }
        });
        // It fails only where the process ends.
        let _ = extended.await;
    }

    /// Before a lease is given back early: nothing may be saved of it.
    pub(in crate::lease) async fn remove(self: &Arc<Self>) -> io::Result<()> {
        let removed = self.on_disk(|saver, active| {
            *active = None;
            saver.file.remove()
        });
        removed.await?
    }

    /// Saves again and again, well before what was saved is used up. Runs until it is aborted.
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

    /// Off the threads that serve. The lock goes with what is done, also when nobody waits for it any more: a write that
    /// was begun must not end after the file was removed.
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
                if self.tell(None) {
                    tracing::info!("the lease is saved again");
                }
            }
            Err(error) => self.could_not_save(active, &error),
        }
        if let Some(generator) = &active.generator {
            generator.extend_lease(active.ahead.limit_unix_ms());
        }
    }

    /// Without a file, no process goes on under the lease after this one, and nothing has to be written ahead.
    fn could_not_save(&self, active: &mut Active, error: &io::Error) {
        let file = self.file.path().display();
        match self.file.remove() {
            Ok(()) => {
                active.ahead.removed();
                let why = format!("the lease cannot be saved in {file}: {error}");
                if self.tell(Some(why.clone())) {
                    tracing::warn!("{why}; ids go on, but not after a restart while the store is down");
                }
            }
            Err(and) => {
                let why =
                    format!("the lease can neither be saved in {file} nor the file removed: {error}; {and}");
                if self.tell(Some(why.clone())) {
                    tracing::error!("{why}; ids end where it was saved until");
                }
            }
        }
    }

    /// Gives whether that is new.
    fn tell(&self, unsaved: Option<String>) -> bool {
        self.status.send_if_modified(|status| {
            let new = status.unsaved != unsaved;
            status.unsaved = unsaved;
            new
        })
    }
}

/// Goal: what is written is over before the file is removed, though nobody waits for the write any more.
/// Method: the write goes to a pipe that nobody reads, and stands still until somebody does.
#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use snowmint::{DatacenterId, Layout, WorkerId};
    use snowmint_store::Revision;
    use tokio::time::timeout;

    use super::*;
    use crate::Holder;
    use crate::lease::pool::Pool;
    use crate::lease::protocol::WorkerChoice;
    use crate::lease::record::Tag;

    fn saver(folder: &Path) -> Arc<Saver> {
        let settings = Settings {
            pool: Pool::new(Layout::TWITTER, DatacenterId(0)),
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
        assert!(timeout(short, saver.begin(held)).await.is_err(), "it stands still");
        let removing = saver.remove();
        tokio::pin!(removing);
        let early = timeout(short, &mut removing).await;
        // Let go in any case: the test's end waits for the write.
        std::fs::read(&pipe).unwrap();
        assert!(early.is_err(), "the write was still to come");
        removing.await.unwrap();
        assert!(!folder.path().join("lease-1.json").exists());
    }
}
