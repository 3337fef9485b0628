//! Waits for a lease, and says why when that takes more than a moment.

use std::time::Duration;

use snowmint_cluster::{Keepers, LeaseFailure, LeaseStatus};

/// Longer than this and whoever waits wants to know why.
pub(crate) const MOMENT: Duration = Duration::from_secs(1);
/// How often to say it again.
const AGAIN: Duration = Duration::from_secs(5);

/// Waits until a lease is held, however long; `tell` hears every few seconds for how long it was waited, and why.
pub(crate) async fn wait(
    keepers: &Keepers,
    tell: impl Fn(Duration, &str),
) -> Result<LeaseStatus, LeaseFailure> {
    let mut waited = Duration::ZERO;
    loop {
        let patience = if waited.is_zero() { MOMENT } else { AGAIN };
        match tokio::time::timeout(patience, keepers.ready()).await {
            Ok(settled) => return settled,
            Err(_) => waited += patience,
        }
        tell(waited, &why(keepers));
    }
}

/// Why there is no lease yet.
pub(crate) fn why(keepers: &Keepers) -> String {
    let waiting = keepers.status().waiting;
    waiting.unwrap_or_else(|| "the store has not answered yet".to_owned())
}
