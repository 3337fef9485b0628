//! What a task does when a lease begins, goes on and ends: the generator under it, and the file in which it is saved.
//! A generator that follows another begins after it; one that is saved goes no further than its file says.

use std::sync::Arc;
use std::time::Duration;

use snowmint::utc::Utc;
use snowmint::{Clock, Generator, Lease};
use tokio::time::{sleep, timeout};

use super::Task;
use super::telling::Reason;
use crate::lease::protocol::{Held, Input, Protocol, WorkerChoice};

impl Task {
    pub(super) async fn granted(&mut self, lease: Lease) {
        // The machine that tells of a grant holds it.
        let Some(held) = self.protocol.held() else { return };
        if self.mount_under(held).await {
            let pool = self.protocol.settings().pool;
            tracing::info!(worker = %lease.worker, until = %Utc(lease.until_unix_ms), %pool, "lease granted");
        }
    }

    /// Puts a generator under a lease in the place of the one before. Gives whether ids can be made.
    async fn mount_under(&mut self, held: Held) -> bool {
        let Held { worker, from_unix_ms, mut until_unix_ms, .. } = held;
        if let Some(saver) = &self.saver {
            until_unix_ms = saver.begin(held).await;
        }
        if until_unix_ms <= from_unix_ms {
            let why = format!("the lease of worker {worker} can neither be saved nor its file removed");
            self.waiting(Reason::Unsaved, why);
            return false;
        }
        // The one before is ended first and the next begins after its last timestamp: ids go on increasing.
        let used_until = self.generator.as_ref().and_then(|generator| generator.end()).unwrap_or(0);
        let pool = self.protocol.settings().pool;
        let built = Generator::builder(*pool.layout())
            .datacenter(pool.datacenter())
            .lease(Lease { worker, from_unix_ms, until_unix_ms })
            .not_before_unix_ms(used_until)
            .rule(self.config.generator_rule())
            .build(Arc::clone(&self.clock));
        let generator = match built {
            Ok(generator) => Arc::new(generator),
            // Checked when the keeper was configured; were it to happen, no id is made.
            Err(error) => {
                self.end_generator();
                tracing::error!(%error, "no generator can be made under the lease");
                return false;
            }
        };
        self.mount.put(self.generator.as_ref(), Some(Arc::clone(&generator)));
        if let Some(saver) = &self.saver {
            saver.attach(Arc::clone(&generator)).await;
        }
        self.generator = Some(generator);
        self.said = None;
        self.status.send_modify(|status| {
            status.worker = Some(worker);
            status.until_unix_ms = Some(held.until_unix_ms);
            (status.waiting, status.trouble, status.failure) = (None, None, None);
        });
        true
    }

    pub(super) async fn extended(&mut self, until_unix_ms: u64) {
        match (&self.saver, &self.generator, self.protocol.held()) {
            (Some(_), None, Some(held)) => {
                self.mount_under(held).await;
            }
            (Some(saver), Some(_), Some(held)) => saver.extended(held).await,
            (None, Some(generator), _) => generator.extend_lease(until_unix_ms),
            _ => {}
        }
        tracing::debug!(until = %Utc(until_unix_ms), "lease renewed");
        self.status.send_modify(|status| {
            status.until_unix_ms = Some(until_unix_ms);
            status.renewals += 1;
            (status.trouble, status.failure) = (None, None);
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
        let wait_ms = saved.mark_unix_ms.saturating_sub(self.clock.unix_ms());
        // A new lease can be used at once.
        let store_answers =
            wait_ms > 0 && matches!(timeout(self.config.call_timeout(), self.list()).await, Ok(Ok(_)));
        if store_answers {
            tracing::info!(
                "the saved lease is not used: the store is there, and another lease begins earlier"
            );
            return;
        }
        self.status.send_modify(|status| {
            let from = Utc(saved.mark_unix_ms);
            status.waiting = Some(format!(
                "the saved lease is used from {from} on, before that the last process may have used it"
            ));
        });
        sleep(Duration::from_millis(wait_ms)).await;
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

    /// Ends the generator; gives what the store is to be told.
    ///
    /// That is 0 where nothing was made, and the end of the lease where the generator cannot tell, or where the lease
    /// is still saved: then another process may use the rest.
    pub(super) async fn release(&mut self) -> Input {
        let used_until_unix_ms = self.end_generator();
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

    pub(super) fn end_generator(&mut self) -> u64 {
        let Some(generator) = self.generator.take() else { return 0 };
        let used_until = generator.end();
        self.mount.put(Some(&generator), None);
        used_until.unwrap_or(u64::MAX)
    }
}
