//! At the start, over a store without a clock: whether a node that lives has a clock far behind this one.
//!
//! Leases that ended long ago belong to nodes that died, or to nodes that live by a clock far behind. Those renew their leases. If
//! this node took a lease beside them, and its clock is the one that is wrong, each restart would block another worker until the
//! time of that clock. So it looks again after longer than a renewal takes. Leases that nobody renewed are marked as released, so
//! that the next start does not wait for them.

use std::time::Duration;

use snowmint_store::{StoreError, StoreErrorKind};
use tokio::time::{sleep, timeout};

use super::{LOOK_AGAIN, LeaseTask, random_seed};
use crate::lease::admin::{self, LeaseEntry};
use crate::lease::protocol::LeaseSettings;
use crate::lease::protocol::seek::unrenewed_ms;
use crate::lease::record::Tag;

/// The longest wait for a renewal. A node with a window of more than 17 s may renew later, and is then taken for dead.
const LONGEST_WATCH_MS: u64 = 10_000;

/// How often a comparison that the store failed is tried again.
const TRIES: u32 = 3;

/// Returns the leases of other nodes that ended longer ago than clocks may differ.
fn ended_long_ago(settings: &LeaseSettings, entries: Vec<LeaseEntry>, now_unix_ms: u64) -> Vec<LeaseEntry> {
    let is_one = |entry: &LeaseEntry| {
        entry.record.as_ref().is_ok_and(|record| {
            !record.released
                && record.until_unix_ms.saturating_add(settings.max_skew_ms) < now_unix_ms
                && !settings.holder.is_same_node(&record.holder)
        })
    };
    entries.into_iter().filter(is_one).collect()
}

/// Returns the first of these leases that was renewed since, as it is now.
fn renewed<'a>(before: &[LeaseEntry], now: &'a [LeaseEntry]) -> Option<&'a LeaseEntry> {
    now.iter().find(|entry| {
        before.iter().any(|seen| seen.worker == entry.worker && seen.revision != entry.revision)
    })
}

impl LeaseTask {
    /// Waits until no other node contradicts this clock. A store that has a clock decides instead, at each claim. If the store fails,
    /// nothing is compared.
    pub(super) async fn compare_with_other_nodes(&mut self) {
        if self.current.is_some() {
            return;
        }
        let node = std::sync::Arc::clone(&self.node);
        let mut compared = node.clock_compared.lock().await;
        let mut failures = 0;
        while !*compared {
            match self.look_for_nodes_behind().await {
                Ok(Some((entry, ahead_ms))) => {
                    self.ahead_of_node(entry.worker, holder_of(&entry), ahead_ms);
                    sleep(LOOK_AGAIN).await;
                }
                Ok(None) => *compared = true,
                Err(_) if failures < TRIES => {
                    failures += 1;
                    sleep(LOOK_AGAIN).await;
                }
                // The search for a worker reports it. Each lease that is started later compares again.
                Err(_) => return,
            }
        }
    }

    /// Returns a node that renews its lease by a clock far behind this one, and how far it is behind.
    async fn look_for_nodes_behind(&mut self) -> Result<Option<(LeaseEntry, u64)>, StoreError> {
        if self.has_clock().await? {
            return Ok(None);
        }
        let window_ms = self.node.settings().window_ms;
        let before = self.ended_long_ago().await?;
        if before.is_empty() {
            return Ok(None);
        }
        let watch_ms = unrenewed_ms(window_ms).min(LONGEST_WATCH_MS);
        let why = format!(
            "{} leases ended longer ago than clocks may differ: waiting {watch_ms} ms to see whether their nodes renew them by \
             another clock",
            before.len()
        );
        tracing::info!("{why}");
        self.status.send_modify(|status| status.wait(why));
        sleep(Duration::from_millis(watch_ms)).await;
        let mut now = self.ended_long_ago().await?;
        if let Some(worker) = renewed(&before, &now).map(|entry| entry.worker) {
            now.retain(|entry| entry.worker == worker);
            let clock = |entry: &LeaseEntry| entry.record.as_ref().map_or(0, |record| record.until_unix_ms);
            let found = now.into_iter().next();
            return Ok(found.map(|entry| {
                let ahead_ms = self.node.clock_unix_ms().saturating_sub(clock(&entry));
                (entry, ahead_ms)
            }));
        }
        let marking = async {
            for entry in &before {
                // A holder that lives after all loses its worker, and no id.
                if let Ok(seed) = random_seed() {
                    let _ = admin::evict(&*self.node.store, entry, Tag(seed)).await;
                }
            }
        };
        // Whatever comes of it: the next start looks again.
        let _ = timeout(self.node.config.call_timeout(), marking).await;
        Ok(None)
    }

    async fn has_clock(&mut self) -> Result<bool, StoreError> {
        Ok(self.in_time("unix_ms", self.node.store.unix_ms()).await?.is_some())
    }

    async fn ended_long_ago(&mut self) -> Result<Vec<LeaseEntry>, StoreError> {
        let settings = self.node.settings();
        let pool = settings.pool.to_string();
        let mut entries = self.in_time("list", admin::leases(&*self.node.store)).await?;
        entries.retain(|entry| entry.pool == pool);
        Ok(ended_long_ago(settings, entries, self.node.clock_unix_ms()))
    }
}

impl LeaseTask {
    /// A call that takes too long has failed: a check that was not made is not one that found nothing.
    async fn in_time<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let patience = self.node.config.call_timeout();
        timeout(patience, call).await.unwrap_or_else(|_| {
            let cause = format!("no answer within {} ms", patience.as_millis());
            Err(StoreError::new(StoreErrorKind::Unavailable, operation, self.node.store.describe(), cause))
        })
    }
}

fn holder_of(entry: &LeaseEntry) -> String {
    entry.record.as_ref().map_or_else(|_| String::new(), |record| record.holder.to_string())
}
