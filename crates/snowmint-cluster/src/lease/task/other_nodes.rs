//! At the start, over a store without a clock: whether a running node has a clock far behind this one.
//!
//! A lease that ended long ago belongs to a node that died, or to a running node whose clock is far behind:
//! that one renews its lease. If this clock is the wrong one, each lease of this node would block another
//! worker until the time of this clock. So the node looks again after the time of a renewal. It marks leases
//! that nobody renewed as released: the next start does not wait for them.

use std::sync::Arc;
use std::time::Duration;

use snowmint::Clock as _;
use snowmint::random::SplitMix64;
use tokio::time::{Instant, sleep, timeout};

use super::report::StoreAccess;
use super::{LOOK_AGAIN_MS, LeaseTask, random_seed};
use crate::lease::admin::{self, LeaseEntry};
use crate::lease::protocol::seek::unrenewed_ms;
use crate::lease::protocol::{CallFailure, LeaseSettings};
use crate::lease::record::Tag;

/// The longest wait for a renewal. A node with a window of more than 17 s may renew later, and is then taken
/// for dead.
const LONGEST_WATCH_MS: u64 = 10_000;
/// A look that failed after this time got no answer. The longest pause while the store refuses calls.
const LONGEST_PAUSE_MS: u64 = 2_000;

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
    /// Waits until no other node contradicts this clock. A store that has a clock decides instead, at each
    /// claim.
    pub(super) async fn compare_with_other_nodes(&mut self) {
        if self.current.is_some() {
            return;
        }
        let node = Arc::clone(&self.node);
        let mut compared = node.clock_compared.lock().await;
        let mut unanswered = 0;
        while !*compared {
            let began = Instant::now();
            match self.look_for_nodes_behind().await {
                Ok(None) => *compared = true,
                Ok(Some((entry, ahead_ms))) => {
                    unanswered = 0;
                    self.ahead_of_node(entry.worker, holder_of(&entry), ahead_ms);
                    sleep(Duration::from_millis(LOOK_AGAIN_MS)).await;
                }
                // A check that was not made is not one that found nothing.
                Err(_) => {
                    let is_unanswered = began.elapsed() >= Duration::from_millis(LONGEST_PAUSE_MS);
                    unanswered = if is_unanswered { unanswered + 1 } else { 0 };
                    sleep(self.pause_after(unanswered)).await;
                }
            }
        }
    }

    /// Returns the pause after this number of looks in a row without an answer. It grows, so that nodes that
    /// start together do not keep a slow store busy with lists.
    fn pause_after(&self, unanswered: u32) -> Duration {
        let longest_ms = LONGEST_PAUSE_MS.max(self.node.settings().window_ms / 4);
        let pause_ms = (LOOK_AGAIN_MS << unanswered.min(16)).min(longest_ms);
        // Without random numbers, it is the longest.
        let seed = random_seed().map(|seed| SplitMix64::of((seed >> 64) as u64));
        Duration::from_millis(pause_ms - seed.map_or(0, |mut random| random.below(pause_ms / 2 + 1)))
    }

    /// Returns a node that renews its lease by a clock far behind this one, and how far it is behind.
    async fn look_for_nodes_behind(&mut self) -> Result<Option<(LeaseEntry, u64)>, CallFailure> {
        let patience = self.node.config.call_timeout();
        let time = timeout(patience, self.node.store.unix_ms()).await;
        if self.outcome(time, "unix_ms", StoreAccess::Reads)?.is_some() {
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
                let ahead_ms = self.node.clock.unix_ms().saturating_sub(clock(&entry));
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
        let _ = timeout(patience, marking).await;
        Ok(None)
    }

    async fn ended_long_ago(&mut self) -> Result<Vec<LeaseEntry>, CallFailure> {
        let prefix = self.node.settings().pool.prefix();
        let listed = admin::leases_below(&*self.node.store, &prefix);
        let listed = timeout(self.node.config.call_timeout(), listed).await;
        let entries = self.outcome(listed, "list", StoreAccess::Reads)?;
        let settings = self.node.settings();
        Ok(ended_long_ago(settings, entries, self.node.clock.unix_ms()))
    }
}

fn holder_of(entry: &LeaseEntry) -> String {
    entry.record.as_ref().map_or_else(|_| String::new(), |record| record.holder.to_string())
}
