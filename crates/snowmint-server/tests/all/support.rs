//! A running service, and what it runs on in tests.

#[path = "../../../snowmint-cluster/tests/all/support/cut_off_store.rs"]
pub(crate) mod cut_off_store;
pub(crate) mod running_service;
pub(crate) mod test_source;
