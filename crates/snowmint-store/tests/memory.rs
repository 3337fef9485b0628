//! The memory store against the suite, and what sharing means for it.

use std::sync::Arc;

use snowmint_store::{Expected, Key, MemoryStore, Store, conformance};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract() {
    let store = MemoryStore::new();
    conformance::run(async || Arc::new(store.clone()) as Arc<dyn Store>).await.unwrap();
}

#[tokio::test]
async fn clones_share_records_and_new_stores_do_not() {
    let store = MemoryStore::new();
    let key = Key::new("a").unwrap();
    let _ = store.compare_and_set(&key, Expected::Absent, b"value").await.unwrap();
    assert_eq!(store.clone().load(&key).await.unwrap().unwrap().value, b"value");
    assert_eq!(MemoryStore::new().load(&key).await.unwrap(), None);
    assert_eq!(store.describe(), "memory:");
}
