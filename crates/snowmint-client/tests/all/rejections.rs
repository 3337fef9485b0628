//! Requests that a retry cannot fix: the caller gets the reason immediately.

use snowmint_client::{Client, ErrorKind};
use snowmint_test_servers::snowmint::{self, Serve};
use snowmint_test_servers::time;

use super::{PATIENCE, client};

/// Goal: each rejection has its kind, server, status and message, and is not retried.
#[test]
fn a_rejection_is_returned_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Serve::new(folder.path()).start();
    let add = ["ns", "add", "sessions", "--scheme", "uuid7", "--data", data.to_str().unwrap()];
    let added = snowmint::run(folder.path(), add);
    assert!(added.status.success(), "{}", snowmint::text(&added));
    time::eventually("the namespace", PATIENCE, || {
        (server.get("/v1/ids/sessions").status == 200).then_some(())
    });
    // No hedging: on a busy machine it would be a second request.
    let client = client(&[&server, &server]).hedge_after(std::time::Duration::MAX).build().unwrap();
    let url = format!("http://{}", server.http());
    for (namespace, kind, status, said) in [
        ("nope", ErrorKind::UnknownNamespace, 404, "unknown namespace `nope`"),
        ("sessions", ErrorKind::Rejected, 400, "`sessions`"),
    ] {
        let began = time::now();
        let before = client.stats().requests;
        let error = client.namespace(namespace).unwrap().blocking_next_id().unwrap_err();
        assert_eq!(
            (error.kind(), error.status(), error.server()),
            (kind, Some(status), Some(&*url)),
            "{error}"
        );
        assert!(!error.is_temporary() && error.to_string().contains(said), "{error}");
        assert_eq!(client.stats().requests, before + 1);
        assert!(began.elapsed() < PATIENCE);
    }
    // The client still works.
    client.namespace("default").unwrap().blocking_next_id().unwrap();
}

/// Goal: an invalid name or count is rejected without a request.
#[test]
fn invalid_names_and_counts_are_rejected() {
    let client = Client::builder().server("http://localhost:1").build().unwrap();
    for name in ["", "a/b", "a b", "ä", &"x".repeat(65)] {
        let error = client.namespace(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidNamespace);
        assert!(error.to_string().contains("expected 1 to 64 letters"), "{error}");
    }
    let ids = client.namespace(&"x".repeat(64)).unwrap();
    for count in [0, 1_000_001, usize::MAX] {
        let error = ids.blocking_next_ids(count).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidCount);
        assert_eq!(error.to_string(), format!("invalid count {count}: expected 1 to 1000000"));
    }
    assert_eq!(client.stats().requests, 0);
}
