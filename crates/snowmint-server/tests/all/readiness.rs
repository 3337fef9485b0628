//! Goal: a node is not ready once all its leases have ended, whichever was the last.
//! Method: two leases that end at different times; a store that is cut off.

use std::sync::Arc;
use std::time::Duration;

use snowmint::{AnchoredClock, DatacenterId, Layout};
use snowmint_cluster::{Holder, KeeperConfig, Keepers, NamespaceName, Pool, Workers};
use snowmint_server::Mint;
use snowmint_store::Store;

use crate::cut_off::{CutOff, until};

#[tokio::test]
async fn a_node_whose_leases_have_all_ended_is_not_ready() {
    let cut_off = Arc::new(CutOff::default());
    let pool = Pool::new(Layout::TWITTER, DatacenterId(0));
    let config = KeeperConfig::new(pool, Holder::new("me").unwrap()).window(Duration::from_secs(2));
    let (store, clock) = (Arc::clone(&cut_off) as Arc<dyn Store>, Arc::new(AnchoredClock::new()));
    let keepers = Keepers::start(store, config, Workers::new(2, 2).unwrap(), clock).unwrap();
    until(|| match keepers.leases().as_slice() {
        [first, second] => (first.until_unix_ms? + 5 < second.until_unix_ms?).then_some(()),
        _ => None,
    })
    .await;
    let name = NamespaceName::new("orders").unwrap();
    let mint = Mint::new([name], keepers.clone(), Layout::TWITTER, DatacenterId(0));
    assert!(mint.check_ready().is_ok());
    cut_off.cut(true);
    let error = until(|| mint.check_ready().err()).await.to_string();
    assert!(error.contains("the lease ended at") && error.contains("unplugged"), "{error}");
}
