//! Servers of two stores: together they return duplicates, so the client takes the ids of one store only.

use snowmint_client::{ErrorKind, ServerOrder};
use snowmint_test_servers::snowmint::{Serve, Server};

use super::{PATIENCE, client};

/// Returns servers of two stores, with the identity of each.
fn servers(root: &std::path::Path) -> [(Server, String); 2] {
    ["one", "other"].map(|name| {
        let folder = root.join(name);
        std::fs::create_dir(&folder).unwrap();
        // The same worker, as a machine with its own file takes it.
        let server = Serve::new(&folder).args(["--worker", "5"]).start();
        let id = server.get("/readyz").header("snowmint-store").unwrap().to_owned();
        (server, id)
    })
}

/// Goal: the client returns no id of a second store; while the first one answers, callers see no error, and
/// then one that names both servers. Method: two servers with one worker; then the first one stops.
#[test]
fn ids_of_a_second_store_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let [(mut one, id), (other, another)] = servers(root.path());
    let builder = client(&[&one, &other]).buffer(0..=0).timeout(std::time::Duration::from_secs(3));
    let client = builder.order(ServerOrder::AsListed).build().unwrap();
    assert_eq!(client.store(), None);
    let ids = client.namespace("default").unwrap();
    ids.blocking_next_id().unwrap();
    assert_eq!(client.store(), Some(id.clone()));
    for _ in 0..100 {
        ids.blocking_next_id().unwrap();
    }
    one.kill();
    let before = other.metric("snowmint_ids_issued_total");
    let error = ids.blocking_next_id().unwrap_err();
    assert!(other.metric("snowmint_ids_issued_total") > before, "it was asked");
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::AnotherStore, "{text}");
    for part in [&id, &another, &format!("http://{}", one.http()), &format!("http://{}", other.http())] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!error.is_temporary());
}

/// Goal: a client with a configured store takes no id of any other, not even as the first. Method: the right
/// one is listed last; then it is not listed at all.
#[test]
fn a_configured_store_is_the_only_one() {
    let root = tempfile::tempdir().unwrap();
    let [(one, id), (other, another)] = servers(root.path());
    let both = client(&[&other, &one]).store(&id).build().unwrap();
    both.namespace("default").unwrap().blocking_next_ids(1000).unwrap();
    assert_eq!(both.store(), Some(id.clone()));
    let wrong = client(&[&other]).store(&id).build().unwrap();
    let began = snowmint_test_servers::time::now();
    let error = wrong.namespace("default").unwrap().blocking_next_id().unwrap_err();
    assert!(began.elapsed() < PATIENCE, "no retry helps");
    assert_eq!(error.kind(), ErrorKind::AnotherStore);
    let text = error.to_string();
    assert!(text.contains(&another) && text.contains("as set with ClientBuilder::store"), "{text}");
}
