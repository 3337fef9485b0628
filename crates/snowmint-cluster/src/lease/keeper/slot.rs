//! One lease of a node: a task that seeks and keeps it, and what is needed to end that.
//! A node with several leases has several slots, each of them a stranger to the others in the store.

use std::sync::Arc;
use std::time::Duration;

use snowmint_store::Store;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::config::{KeeperConfig, KeeperConfigError, random_seed};
use super::mount::Mount;
use super::quiet::Quiet;
use super::task::{Parts, Task};
use super::{AbortOnDrop, LeaseStatus};
use crate::NodeClock;
use crate::lease::protocol::Settings;
use crate::lease::saved::Saver;
use crate::wall_watch::watch_wall;

/// How long the place of a saved lease may take to be free again, once its task has ended: a disk may stand still.
const PLACE_FREE_WITHIN: Duration = Duration::from_secs(1);

/// What all slots of a node have in common.
pub(in crate::lease) struct Node {
    pub(in crate::lease) store: Arc<dyn Store>,
    pub(in crate::lease) settings: Settings,
    pub(in crate::lease) config: KeeperConfig,
    pub(in crate::lease) clock: NodeClock,
    pub(in crate::lease) mount: Arc<dyn Mount>,
    quiet: Arc<Quiet>,
}

/// A lease that is sought or held, until it is given back.
#[derive(Debug)]
pub(in crate::lease) struct Slot {
    pub(in crate::lease) status: watch::Receiver<LeaseStatus>,
    release: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    /// Closed when nothing of the slot saves leases any more.
    saver_lives: watch::Receiver<()>,
}

impl Node {
    pub(in crate::lease) fn new(
        store: Arc<dyn Store>,
        settings: Settings,
        config: KeeperConfig,
        clock: NodeClock,
        mount: Arc<dyn Mount>,
    ) -> Self {
        Self { store, settings, config, clock, mount, quiet: Arc::new(Quiet::new()) }
    }

    /// Starts to seek the lease of a slot, counted from 0. Must be called on a tokio runtime.
    ///
    /// Slots share a holder's name but for a suffix, and have tags of their own: a record of one is to another like
    /// any stranger's, neither preferred nor adopted.
    pub(in crate::lease) fn start(&self, number: usize) -> Result<Slot, KeeperConfigError> {
        let settings = Settings { holder: self.settings.holder.of_slot(number), ..self.settings.clone() };
        let seed = random_seed()?;
        let (sender, status) = watch::channel(LeaseStatus::seeking(&settings.pool));
        // One watcher is enough, and the first slot lasts.
        let watcher =
            (number == 0).then(|| AbortOnDrop(tokio::spawn(watch_wall(self.clock.clone(), sender.clone()))));
        let (lives, saver_lives) = watch::channel(());
        let saver = self.config.saved_leases().map(|saved| {
            let (settings, clock) = (settings.clone(), self.clock.clone());
            Saver::new(saved, number, settings, clock, sender.clone(), lives).map(Arc::new)
        });
        let saver = saver.transpose()?;
        let task = Task::new(Parts {
            store: Arc::clone(&self.store),
            settings,
            seed,
            config: self.config.clone(),
            clock: self.clock.clone(),
            mount: Arc::clone(&self.mount),
            status: sender,
            saver,
            quiet: Arc::clone(&self.quiet),
        });
        let (release, released) = oneshot::channel();
        let task = tokio::spawn(async move {
            // Ends with the task, also when that is aborted.
            let _watching = watcher;
            task.run(released).await;
        });
        Ok(Slot { status, release: Some(release), task, saver_lives })
    }
}

impl Slot {
    /// Ends its generator and asks the store to note that; [`gone`](Self::gone) waits for it.
    pub(in crate::lease) fn give_back(&mut self) {
        if let Some(release) = self.release.take() {
            // A task that has ended holds nothing.
            let _ = release.send(());
        }
    }

    /// Whether it was asked to give its lease back.
    pub(in crate::lease) const fn is_leaving(&self) -> bool {
        self.release.is_none()
    }

    /// Whether its lease was given back, or left to run out, and another slot may save one in its place.
    pub(in crate::lease) fn is_gone(&self) -> bool {
        self.task.is_finished() && self.saver_lives.has_changed().is_err()
    }

    /// Waits until the lease was given back; after `patience` it is left to run out.
    pub(in crate::lease) async fn gone(&mut self, patience: Duration) {
        if !self.task.is_finished() && tokio::time::timeout(patience, &mut self.task).await.is_err() {
            self.leave();
            // Once it has ended, no new generator can appear behind our back. Its error says that it was aborted.
            let _ = (&mut self.task).await;
        }
        // What it began to save ends by itself. It fails when that has ended, and times out where the disk stands still.
        let _ = tokio::time::timeout(PLACE_FREE_WITHIN, self.saver_lives.changed()).await;
    }

    /// Leaves the lease to run out.
    pub(in crate::lease) fn leave(&self) {
        tracing::warn!(
            "the store did not answer in time: the lease was not given back, it runs out by itself"
        );
        self.task.abort();
    }
}
