//! The workers of one layout, from which several namespaces may make ids; and what a refusal there means to who asked.

use std::time::Duration;

use snowmint::{Layout, Refusal};
use snowmint_cluster::{LeaseStatus, NoId};

use super::error::MintError;
use super::source::Source;

/// The workers of one layout, from which several namespaces may make ids.
#[derive(Debug)]
pub struct Pool<S> {
    pub(super) source: S,
    pub(super) layout: Layout,
    /// Where a caller keeps its state with this source.
    pub(super) slot: usize,
}

impl<S: Source> Pool<S> {
    /// How its lease stands.
    pub fn status(&self) -> LeaseStatus {
        self.source.status()
    }

    /// Makes no more ids and gives the lease back, within `patience`.
    pub async fn release(&self, patience: Duration) {
        self.source.release(patience).await;
    }

    /// The layout of its ids.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    #[cold]
    pub(super) fn worth_waiting(&self, no_id: NoId, count: usize) -> Result<(), MintError> {
        match no_id {
            NoId::Refused(refusal) if refusal.retry_after_ms().is_some() => Ok(()),
            // The generator of a lease that ended; the one that follows it is about to be there.
            NoId::Refused(Refusal::Ended) => Ok(()),
            no_id => Err(self.refused(no_id, count)),
        }
    }

    pub(super) fn refused(&self, no_id: NoId, count: usize) -> MintError {
        MintError::from_no_id(no_id, count, self.layout.ids_per_second_per_worker())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use async_trait::async_trait;
    use snowmint::{AnchoredClock, DatacenterId};
    use snowmint_cluster::{Holder, KeeperConfig, Keepers, NamespaceName, Workers};
    use snowmint_store::{Expected, Key, MemoryStore, Store, StoreError, StoreErrorKind, Swap, Versioned};
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::mint::Mint;

    /// A store that can go away.
    #[derive(Debug, Default)]
    struct Away {
        store: MemoryStore,
        is_away: AtomicBool,
    }

    impl Away {
        fn check(&self) -> Result<(), StoreError> {
            let error = || StoreError::new(StoreErrorKind::Unavailable, "call", "store", "unplugged");
            if self.is_away.load(Ordering::Relaxed) { Err(error()) } else { Ok(()) }
        }
    }

    #[async_trait]
    impl Store for Away {
        async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
            self.check()?;
            self.store.load(key).await
        }

        async fn compare_and_set(
            &self,
            key: &Key,
            expected: Expected,
            value: &[u8],
        ) -> Result<Swap, StoreError> {
            self.check()?;
            self.store.compare_and_set(key, expected, value).await
        }

        async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
            self.check()?;
            self.store.list(prefix).await
        }

        fn describe(&self) -> String {
            "store".to_owned()
        }
    }

    /// Goal: a node is not ready once all its leases have ended, whichever was the last. Method: two leases of 600 ms, apart
    /// by then; a store that goes away.
    #[tokio::test]
    async fn a_node_whose_leases_have_all_ended_is_not_ready() {
        let store = Arc::new(Away::default());
        let pool = snowmint_cluster::Pool::new(Layout::TWITTER, DatacenterId(0));
        let window = Duration::from_millis(600);
        let config = KeeperConfig::new(pool, Holder::new("me").unwrap()).window(window);
        let (shared, clock) = (Arc::clone(&store) as Arc<dyn Store>, Arc::new(AnchoredClock::new()));
        let keepers = Keepers::start(shared, config, Workers::new(2, 2).unwrap(), clock).unwrap();
        let apart = || match keepers.leases().as_slice() {
            [first, second] => {
                first.until_unix_ms.is_some_and(|until| Some(until + 5) < second.until_unix_ms)
            }
            _ => false,
        };
        while !apart() {
            sleep(Duration::from_millis(1)).await;
        }
        let name = NamespaceName::new("orders").unwrap();
        let mint = Mint::new([name], keepers.clone(), Layout::TWITTER, DatacenterId(0));
        assert!(mint.check_ready().is_ok());
        store.is_away.store(true, Ordering::Relaxed);
        let patience = Instant::now() + Duration::from_secs(10);
        let error = loop {
            match mint.check_ready() {
                Err(error) => break error.to_string(),
                Ok(()) => assert!(Instant::now() < patience, "it is ready for ever"),
            }
            sleep(Duration::from_millis(10)).await;
        };
        assert!(error.contains("the lease ended at") && error.contains("unplugged"), "{error}");
    }
}
