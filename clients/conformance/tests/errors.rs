//! Goal: `clients/errors.json` has what the server sends and what the Rust client makes of it.
//! Method: the table is made from both. `SNOWMINT_UPDATE=1` writes the file.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeSet;

use serde_json::{Value, json};
use snowmint_client::error_meaning;
use snowmint_server::status::ErrorKind;

/// Statuses of proxies and of other programs, which have no problem type.
const BARE: [u16; 24] = [
    204, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 408, 409, 413, 414, 421, 425, 429, 431, 500, 501,
    502, 503, 504,
];

fn row(status: u16, problem: Option<&str>) -> Value {
    let (kind, retry, concerns) = error_meaning(status, problem.unwrap_or_default()).unwrap();
    json!({"problem": problem, "status": status, "kind": format!("{kind:?}"), "retry": retry, "concerns": concerns})
}

#[test]
fn the_table_is_up_to_date() {
    let mut rows: Vec<_> = ErrorKind::ALL
        .iter()
        .map(|kind| {
            let status = kind.status();
            row(status.http, Some(status.name))
        })
        .collect();
    rows.extend(BARE.map(|status| row(status, None)));
    let rows: Vec<_> = rows.iter().map(|row| format!("  {row}")).collect();
    let about = "What an error answer means. `problem` is the last part of its type, urn:snowmint:PROBLEM; null: it has no such type, \
                 and the status decides. `retry`: never; fewer: with fewer ids; elsewhere: at the next server, and at this one after \
                 its Retry-After. Generated from the server and the Rust client.";
    let made = format!("{{\"about\": {},\n \"errors\": [\n{}\n]}}\n", json!(about), rows.join(",\n"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../errors.json");
    if std::env::var_os("SNOWMINT_UPDATE").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    let says =
        "run `SNOWMINT_UPDATE=1 cargo test -p snowmint-conformance --test errors` and review the difference";
    assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), made, "{says}");
}

/// Goal: a problem type of a later server is handled by its status.
#[test]
fn an_unknown_problem_type_counts_like_its_status() {
    for status in BARE {
        let (bare, unknown) = (error_meaning(status, ""), error_meaning(status, "of-a-later-version"));
        assert_eq!(bare.map(|it| (it.0, it.1)), unknown.map(|it| (it.0, it.1)), "{status}");
    }
    let names: BTreeSet<_> = ErrorKind::ALL.iter().map(|kind| kind.status().name).collect();
    assert!(!names.contains("of-a-later-version"));
}
