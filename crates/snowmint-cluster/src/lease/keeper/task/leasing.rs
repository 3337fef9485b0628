//! What a task does when a lease begins, goes on and ends: the generator under it, and the file in which it is saved.
//! A generator that follows another begins after it; one that is saved goes no further than its file says.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use snowmint::utc::Utc;
use snowmint::{Clock, Generator, Lease, WorkerId};
use tokio::time::{sleep, timeout};

use super::Task;
use super::telling::Reason;
use crate::Holder;
use crate::lease::keeper::LeasedGenerator;
use crate::lease::protocol::{Held, Input, Protocol, WorkerChoice};

/// Between two looks at the store while a saved lease cannot be used yet.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The generator that callers draw from, and the begin of the lease that it was made for.
pub(super) struct Mounted {
    generator: Arc<LeasedGenerator>,
    worker: WorkerId,
    from_unix_ms: u64,
}

impl Mounted {
    /// A renewal moves only the end of a lease.
    fn is_under(&self, held: Held) -> bool {
        (self.worker, self.from_unix_ms) == (held.worker, held.from_unix_ms)
    }
}

impl Task {
    pub(super) async fn granted(&mut self, lease: Lease) {
        // The machine that tells of a grant holds it.
        let Some(held) = self.protocol.held() else { return };
        if self.mount_under(held).await {
            let pool = self.protocol.settings().pool;
            tracing::info!(worker = %lease.worker, until = %Utc(lease.until_unix_ms), %pool, "lease granted");
        }
    }

    /// Puts a generator under a lease in the place of the one before. Gives whether ids can be made; if not, none is
    /// mounted.
    async fn mount_under(&mut self, held: Held) -> bool {
        let Held { worker, from_unix_ms, mut until_unix_ms, .. } = held;
        if let Some(saver) = &self.saver {
            until_unix_ms = saver.begin(held).await;
        }
        if until_unix_ms <= from_unix_ms {
            let why = format!("the lease of worker {worker} can neither be saved nor its file removed");
            self.waiting(Reason::Unsaved, why);
            self.unmount();
            return false;
        }
        // The one before is ended first and the next begins after its last timestamp: ids go on increasing.
        self.end_mounted();
        self.catch_up();
        let pool = self.protocol.settings().pool;
        let built = Generator::builder(*pool.layout())
            .datacenter(pool.datacenter())
            .lease(Lease { worker, from_unix_ms, until_unix_ms })
            .not_before_unix_ms(self.used_until_unix_ms)
            .rule(self.config.generator_rule())
            .start(self.config.generator_start())
            .build(self.clock.clone());
        let generator = match built {
            Ok(generator) => Arc::new(generator),
            // Checked when the keeper was configured; were it to happen, no id is made.
            Err(error) => {
                tracing::error!(%error, "no generator can be made under the lease");
                self.unmount();
                return false;
            }
        };
        let old = self.mounted.as_ref().map(|mounted| &mounted.generator);
        self.mount.put(old, Some(Arc::clone(&generator)));
        // Before anything is waited for: whoever ends the task there ends this generator.
        self.mounted = Some(Mounted { generator: Arc::clone(&generator), worker, from_unix_ms });
        if let Some(saver) = &self.saver {
            saver.attach(generator).await;
        }
        self.clock_confirmed();
        self.said = None;
        self.status.send_modify(|status| {
            status.worker = Some(worker);
            status.until_unix_ms = Some(held.until_unix_ms);
            (status.waiting, status.trouble, status.failure) = (None, None, None);
        });
        true
    }

    pub(super) async fn extended(&mut self, until_unix_ms: u64) {
        // The machine that tells of a renewal holds the lease.
        let Some(held) = self.protocol.held() else { return };
        let usable = match self.mounted.as_ref().filter(|mounted| mounted.is_under(held)) {
            // The lease could not be saved when it was granted.
            None => self.mount_under(held).await,
            Some(mounted) => {
                if self.saver.is_none() {
                    mounted.generator.extend_lease(until_unix_ms);
                }
                self.catch_up();
                if let Some(saver) = &self.saver {
                    saver.extended(held).await;
                }
                true
            }
        };
        // An error was logged when it ended.
        let had_ended = self.status.borrow().until_unix_ms.is_some_and(|until| until <= self.clock.unix_ms());
        if usable && had_ended {
            let worker = held.worker;
            tracing::info!(%worker, until = %Utc(until_unix_ms), "lease renewed after it had ended; ids are made again");
        } else {
            tracing::debug!(until = %Utc(until_unix_ms), "lease renewed");
        }
        self.clock_confirmed();
        self.status.send_modify(|status| {
            status.renewals += 1;
            if usable {
                status.until_unix_ms = Some(until_unix_ms);
                (status.waiting, status.trouble, status.failure) = (None, None, None);
            }
        });
    }

    /// Goes on under the lease that the process before this one saved, if there is one.
    pub(super) async fn resume(&mut self) {
        let Some(file) = self.saver.clone() else { return };
        let saved = match file.read() {
            Ok(Some(lease)) => lease,
            Ok(None) => return,
            Err(why) => {
                tracing::debug!("the saved lease is not used: {why}");
                return;
            }
        };
        let settings = self.protocol.settings().clone();
        if matches!(settings.choice, WorkerChoice::Only(worker) if worker != saved.worker) {
            tracing::info!(worker = %saved.worker, "the saved lease is not used: it is of another worker");
            return;
        }
        if self.store_answers_before(saved.worker, saved.mark_unix_ms).await {
            tracing::info!(
                "the saved lease is not used: the store is there, and another lease begins earlier"
            );
            return;
        }
        let held = saved.held();
        if self.mount_under(held).await {
            tracing::warn!(
                worker = %held.worker,
                until = %Utc(held.until_unix_ms),
                "going on under the lease that was saved; it ends then, unless the store renews it"
            );
            // The machine before it was not asked anything yet: no tag of the seed is used.
            self.protocol = Protocol::resume(settings, self.seed, held);
        }
    }

    /// Waits for the begin of what is left of a saved lease; gives whether the store was there first: a new lease can be
    /// used at once.
    async fn store_answers_before(&self, worker: WorkerId, mark_unix_ms: u64) -> bool {
        let why = format!(
            "the saved lease is used from {} on, before that the last process may have used it",
            Utc(mark_unix_ms)
        );
        loop {
            let left = Duration::from_millis(mark_unix_ms.saturating_sub(self.clock.unix_ms()));
            if left.is_zero() {
                return false;
            }
            if matches!(timeout(self.config.call_timeout().min(left), self.load(worker)).await, Ok(Ok(_))) {
                return true;
            }
            self.status.send_modify(|status| status.waiting = Some(why.clone()));
            let left = Duration::from_millis(mark_unix_ms.saturating_sub(self.clock.unix_ms()));
            sleep(left.min(LOOK_AGAIN)).await;
        }
    }

    /// Ends the generator; gives what the store is to be told.
    ///
    /// That is 0 where nothing was made, and the end of the lease where the generator cannot tell, or where the lease
    /// is still saved: then another process may use the rest.
    pub(super) async fn release(&mut self) -> Input {
        self.released = self.mounted.as_ref().map(|mounted| mounted.worker);
        let used_until_unix_ms = self.unmount();
        let removed = match &self.saver {
            Some(saver) => saver.remove().await,
            None => Ok(()),
        };
        match removed {
            Ok(()) => Input::Release { used_until_unix_ms },
            Err(error) => {
                tracing::warn!(%error, "the saved lease could not be removed: the lease is kept until it runs out");
                Input::Release { used_until_unix_ms: u64::MAX }
            }
        }
    }

    /// Another node was granted what this lease covers: not one more id is made of it, and nobody goes on under it.
    pub(super) async fn overlap(&mut self, worker: WorkerId, holder: &Holder, both: Range<u64>) {
        let used_until_unix_ms = self.unmount();
        let (from, until) = (Utc(both.start), Utc(both.end));
        if used_until_unix_ms > both.start {
            tracing::error!(
                %worker, %holder, %from, until = %Utc(used_until_unix_ms.min(both.end)),
                "duplicate ids are possible: the store forgot this node's lease and granted its worker to another node; \
                 check ids of this worker with timestamps between these instants; this node stopped using the worker"
            );
        } else {
            tracing::error!(
                %worker, %holder, %from, %until,
                "the store forgot this node's lease and granted its worker to another node; this node stopped using the \
                 worker before that grant began: no id was made twice"
            );
        }
        if let Some(saver) = &self.saver
            && let Err(error) = saver.remove().await
        {
            tracing::error!(%error, "the file of a lease that another node holds cannot be removed: remove it before the next start");
        }
        self.status.send_modify(|status| {
            status.overlaps += 1;
            status.waiting = Some(format!(
                "the store forgot the lease of worker {worker} and granted it to {holder}; no other worker is claimed for one \
                 window"
            ));
        });
    }

    /// Ends the generator and takes it out; gives the first instant after what it used, in unix milliseconds, 0 where
    /// there was none.
    pub(super) fn unmount(&mut self) -> u64 {
        let used_until = self.end_mounted();
        let Some(Mounted { generator, .. }) = self.mounted.take() else { return 0 };
        self.mount.put(Some(&generator), None);
        self.status.send_modify(|status| (status.worker, status.until_unix_ms) = (None, None));
        used_until.unwrap_or(u64::MAX)
    }

    /// Ends the generator, which stays where it is until another takes its place.
    fn end_mounted(&mut self) -> Option<u64> {
        let used_until = self.mounted.as_ref()?.generator.end();
        self.used_until_unix_ms = self.used_until_unix_ms.max(used_until.unwrap_or_default());
        used_until
    }
}
