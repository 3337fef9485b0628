//! Goal: a node is not ready once all its leases have ended, whichever was the last.
//! Method: two leases that end at different times; a store that is cut off.

use std::sync::Arc;
use std::time::Duration;

use snowmint::{DatacenterId, Layout};
use snowmint_cluster::{Holder, LeaseConfig, Leases, NamespaceName, WorkerCount};
use snowmint_server::Mint;
use snowmint_store::Store;

use crate::support::cut_off_store::{CutOff, until};

#[tokio::test]
async fn a_node_whose_leases_have_all_ended_is_not_ready() {
    let cut_off = Arc::new(CutOff::default());
    let config = LeaseConfig::new(Layout::TWITTER, Holder::new("me").unwrap())
        .worker_count(WorkerCount::new(2, 2).unwrap())
        .window(Duration::from_secs(2));
    let leases = Leases::start(Arc::clone(&cut_off) as Arc<dyn Store>, config).unwrap();
    until(|| match leases.statuses().as_slice() {
        [first, second] => (first.until_unix_ms? + 5 < second.until_unix_ms?).then_some(()),
        _ => None,
    })
    .await;
    let name = NamespaceName::new("orders").unwrap();
    let mint = Mint::new([name], leases.clone(), Layout::TWITTER, DatacenterId(0));
    assert!(mint.check_ready().is_ok());
    cut_off.cut(true);
    let error = until(|| mint.check_ready().err()).await.to_string();
    assert!(error.contains("the lease ended at") && error.contains("unplugged"), "{error}");
}
