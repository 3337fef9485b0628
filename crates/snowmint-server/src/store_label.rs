//! The identity of the node's store, which every answer shows: a client that gets answers of two stores
//! notices it. Also what is wrong with the store.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use snowmint_admin::node_reports::STORE_HEADER;
use snowmint_store::{Identity, Store};

/// The header, and the metadata of gRPC, with the identity of the store behind an answer.
pub(crate) const STORE: HeaderName = HeaderName::from_static(STORE_HEADER);

/// What shows the store of a node.
#[derive(Debug, Default)]
pub(crate) struct StoreLabel {
    store: Option<Arc<dyn Store>>,
    /// A process uses one store, so the header is built once.
    header: OnceLock<HeaderValue>,
    peers: ArcSwap<PeerTroubles>,
}

/// What is wrong with the stores of the peers of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeerTroubles {
    /// One text for each peer that uses another store.
    pub(crate) other_stores: Vec<String>,
    /// One text for each peer that holds a worker of this node.
    pub(crate) same_workers: Vec<String>,
}

impl StoreLabel {
    pub(crate) fn new(store: Option<Arc<dyn Store>>) -> Self {
        Self { store, ..Self::default() }
    }

    /// Returns the identity of the store, once it is known.
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.store.as_ref()?.identity()
    }

    /// Returns the identity as text, once it is known.
    pub(crate) fn text(&self) -> Option<&str> {
        self.header().and_then(|header| header.to_str().ok())
    }

    /// Marks an answer.
    pub(crate) fn mark(&self, headers: &mut HeaderMap) {
        if let Some(header) = self.header() {
            headers.insert(STORE, header.clone());
        }
    }

    fn header(&self) -> Option<&HeaderValue> {
        self.header.get().or_else(|| self.learn())
    }

    #[cold]
    fn learn(&self) -> Option<&HeaderValue> {
        let header = HeaderValue::try_from(self.identity()?.id.to_string()).ok()?;
        Some(self.header.get_or_init(|| header))
    }

    /// Stores what the peers reported.
    pub(crate) fn note_peers(&self, troubles: PeerTroubles) {
        self.peers.store(Arc::new(troubles));
    }

    pub(crate) fn peers(&self) -> Arc<PeerTroubles> {
        self.peers.load_full()
    }

    /// Returns everything that shows a second store.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let peers = self.peers();
        let of_peers = peers.other_stores.iter().chain(&peers.same_workers).cloned();
        self.replaced().into_iter().chain(of_peers).collect()
    }

    /// Returns what is wrong if another store answers in place of the own one.
    fn replaced(&self) -> Option<String> {
        let Identity { id, another } = self.identity()?;
        let place = self.store.as_ref()?.describe();
        another.map(|another| {
            format!(
                "another store answers at {place}: {another}, and this node uses {id}; it claims and renews nothing there, and makes \
                 ids until its lease ends"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use async_trait::async_trait;
    use snowmint_store::{Expected, Key, MemoryStore, StoreError, StoreId, Swap, Versioned};

    use super::*;

    /// A store whose place another one took.
    #[derive(Debug)]
    struct Replaced(MemoryStore);

    #[async_trait]
    impl Store for Replaced {
        async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
            self.0.load(key).await
        }

        async fn compare_and_set(&self, key: &Key, at: Expected, value: &[u8]) -> Result<Swap, StoreError> {
            self.0.compare_and_set(key, at, value).await
        }

        async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
            self.0.list(prefix).await
        }

        async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
            self.0.add(key, count).await
        }

        fn identity(&self) -> Option<Identity> {
            Some(Identity { id: StoreId::new(1), another: Some(StoreId::new(2)) })
        }

        fn describe(&self) -> String {
            "etcd://a".to_owned()
        }
    }

    #[test]
    fn every_second_store_is_named() {
        let label = StoreLabel::default();
        assert_eq!((label.text(), label.troubles()), (None, vec![]));
        let label = StoreLabel::new(Some(Arc::new(Replaced(MemoryStore::new()))));
        label.note_peers(PeerTroubles {
            other_stores: vec!["peer a".to_owned()],
            same_workers: vec!["peer b".to_owned()],
        });
        let [own, one, two] = &*label.troubles() else { panic!("{:?}", label.troubles()) };
        assert!(own.contains(&StoreId::new(2).to_string()) && own.contains(label.text().unwrap()), "{own}");
        assert_eq!((&**one, &**two), ("peer a", "peer b"));
        let mut headers = HeaderMap::new();
        label.mark(&mut headers);
        assert_eq!(headers[STORE], StoreId::new(1).to_string());
    }
}
