//! Keeps the file of one lease ahead of the generator that mints under it: the driver of `ahead`.
//! It writes a few times a second, off the threads that serve.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use snowmint::{AnchoredClock, Clock};
use tokio::sync::{Mutex, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::ahead::Ahead;
use super::file::{LeaseFile, SavedLease};
use super::{SavedLeases, Unusable};
use crate::lease::keeper::{LeaseStatus, LeasedGenerator};
use crate::lease::protocol::{Held, Settings};

/// How far the file is ahead of the clock: after a crash so long no id can be made, and a disk may stall for as long.
const MAX_AHEAD_MS: u64 = 2_000;

/// The file of one lease, and what is saved in it.
#[derive(Debug)]
pub(in crate::lease) struct Saver {
    file: LeaseFile,
    settings: Settings,
    clock: Arc<AnchoredClock>,
    status: watch::Sender<LeaseStatus>,
    active: Mutex<Option<Active>>,
}

#[derive(Debug)]
struct Active {
    ahead: Ahead,
    generator: Option<Arc<LeasedGenerator>>,
}

impl Saver {
    pub(in crate::lease) fn new(
        saved: &SavedLeases,
        place: usize,
        settings: Settings,
        clock: Arc<AnchoredClock>,
        status: watch::Sender<LeaseStatus>,
    ) -> Self {
        Self { file: saved.file(place), settings, clock, status, active: Mutex::new(None) }
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
    pub(in crate::lease) async fn begin(&self, held: Held) -> u64 {
        let mut active = self.active.lock().await;
        let begun = active.insert(Active { ahead: Ahead::new(held, self.ahead_ms()), generator: None });
        self.save(begun).await;
        begun.ahead.limit_unix_ms()
    }

    /// The generator that goes on as far as is saved.
    pub(in crate::lease) async fn attach(&self, generator: Arc<LeasedGenerator>) {
        if let Some(active) = &mut *self.active.lock().await {
            active.generator = Some(generator);
        }
    }

    /// The store confirmed a later end.
    pub(in crate::lease) async fn extended(&self, held: Held) {
        if let Some(active) = &mut *self.active.lock().await {
            active.ahead.extended(held);
            self.save(active).await;
        }
    }

    /// Before a lease is given back early: nothing may be saved of it.
    pub(in crate::lease) async fn remove(&self) -> io::Result<()> {
        let mut active = self.active.lock().await;
        *active = None;
        self.on_disk(LeaseFile::remove).await
    }

    /// Saves again and again, well before what was saved is used up. Runs until it is aborted.
    pub(in crate::lease) async fn run(&self) {
        loop {
            sleep(Duration::from_millis(self.ahead_ms() / 4 + 1)).await;
            if let Some(active) = &mut *self.active.lock().await {
                self.save(active).await;
            }
        }
    }

    async fn save(&self, active: &mut Active) {
        let next = active.ahead.next(self.clock.unix_ms());
        let (pool, holder) = (self.settings.pool, self.settings.holder.clone());
        match self.on_disk(move |file| file.write(&pool, &holder, &next)).await {
            Ok(()) => {
                active.ahead.written(&next);
                if self.tell(None) {
                    tracing::info!("the lease is saved again");
                }
            }
            Err(error) => self.could_not_save(active, &error).await,
        }
        if let Some(generator) = &active.generator {
            generator.extend_lease(active.ahead.limit_unix_ms());
        }
    }

    /// Without a file, no process goes on under the lease after this one, and nothing has to be written ahead.
    async fn could_not_save(&self, active: &mut Active, error: &io::Error) {
        let file = self.file.path().display().to_string();
        match self.on_disk(LeaseFile::remove).await {
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

    async fn on_disk(
        &self,
        does: impl FnOnce(&LeaseFile) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let file = self.file.clone();
        spawn_blocking(move || does(&file)).await.map_err(io::Error::other)?
    }
}
