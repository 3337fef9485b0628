//! What the peers of this node said of themselves.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use snowmint::{Clock as _, WallClock};
use snowmint_admin::node_reports::NodeStore;
use tokio::time::Instant;

/// A rate is measured over as long at least.
const MEASURED_FOR: Duration = Duration::from_secs(2);

/// What the peers said of themselves when they last answered: a node that was killed cannot say its name.
#[derive(Debug, Default)]
pub(crate) struct KnownPeers(Mutex<HashMap<String, KnownPeer>>);

/// What a peer said of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownPeer {
    pub(crate) name: Option<String>,
    pub(crate) version: Option<String>,
    /// A text of its process alone.
    pub(crate) instance: Option<String>,
    /// When it last answered; 0 if it never did.
    pub(crate) seen_unix_ms: u64,
    /// Its ids until an instant, and its ids a second before that.
    issued: Option<(Instant, u64)>,
    pub(crate) ids_per_second: Option<u64>,
}

impl KnownPeers {
    /// Notes an answer of a peer.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
    pub(crate) fn note(&self, address: &str, store: &NodeStore) {
        // Each change replaces whole values.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry(address.to_owned()).or_default();
        known.seen_unix_ms = WallClock.unix_ms();
        // A node that makes no ids says only why.
        known.name = store.name.clone().or(known.name.take());
        known.version = store.version.clone().or(known.version.take());
        known.instance = store.instance.clone().or(known.instance.take());
        let now = Instant::now();
        match (store.issued, known.issued) {
            (Some(issued), Some((since, before))) if now.duration_since(since) >= MEASURED_FOR => {
                let seconds = now.duration_since(since).as_secs_f64();
                known.ids_per_second = Some(whole(issued.saturating_sub(before) as f64 / seconds));
                known.issued = Some((now, issued));
            }
            (Some(issued), None) => known.issued = Some((now, issued)),
            (Some(_), Some(_)) => {}
            (None, _) => (known.issued, known.ids_per_second) = (None, None),
        }
    }

    /// Returns what is known of a peer.
    pub(crate) fn get(&self, address: &str) -> KnownPeer {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(address).cloned().unwrap_or_default()
    }
}

/// A rate needs no fractions beside the names of nodes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is positive and below 2^63"
)]
pub(crate) fn whole(rate: f64) -> u64 {
    rate.round().max(0.0) as u64
}
