//! Tokens of a real server: none, a wrong one, one for another namespace, and one with a quota.

use std::ffi::OsStr;
use std::path::Path;

use snowmint_client::ErrorKind;
use snowmint_test_servers::snowmint::ids::Ids as Collected;
use snowmint_test_servers::snowmint::{self, Serve};

use super::{client, ids_of, numbers};

/// Creates a token and returns it.
fn create(folder: &Path, name: &str, args: &[&str]) -> String {
    let words = [&["token", "create", name, "--file", "tokens.toml", "--json"], args].concat();
    let made = snowmint::run(folder, &words);
    let text = snowmint::text(&made);
    assert!(made.status.success(), "{text}");
    let said: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    said["token"].as_str().unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// Goal: each token allows what it should, and otherwise the error says why not.
#[test]
fn tokens_of_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let allowed = create(folder.path(), "app", &["--namespaces", "default"]);
    let limited = create(folder.path(), "load", &["--namespaces", "*", "--rate", "1000/s"]);
    let others = create(folder.path(), "orders", &["--namespaces", "orders"]);
    let file = folder.path().join("tokens.toml");
    let server = Serve::new(folder.path()).args([OsStr::new("--tokens-file"), file.as_os_str()]).start();

    let mut all = Collected::new();
    all.add(&numbers(
        &ids_of(client(&[&server]).token(&allowed), "default").blocking_next_ids(5000).unwrap(),
    ));
    // One call for more than the quota of a second.
    all.add(&numbers(
        &ids_of(client(&[&server]).token(&limited), "default").blocking_next_ids(2500).unwrap(),
    ));
    all.assert_unique();

    let wrong = format!("{allowed}x");
    for (token, kind, status) in [
        (None, ErrorKind::Unauthorized, 401),
        (Some(&wrong), ErrorKind::Unauthorized, 401),
        (Some(&others), ErrorKind::Forbidden, 403),
    ] {
        let builder = client(&[&server]);
        let builder = if let Some(token) = token { builder.token(token) } else { builder };
        let error = ids_of(builder, "default").blocking_next_id().unwrap_err();
        assert_eq!((error.kind(), error.status()), (kind, Some(status)), "{error}");
        assert!(!error.is_temporary() && error.to_string().contains("token"), "{error}");
        assert!(
            [&allowed, &limited, &others].iter().all(|token| !error.to_string().contains(*token)),
            "{error}"
        );
    }
}
