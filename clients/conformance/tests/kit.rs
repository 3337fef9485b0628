//! Goal: the Rust client, the model of all others, passes every scenario, and the scenarios find faults.
//! Method: the drivers of this package. The reference client passes most scenarios; with a fault, one of these fails.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeSet;

use snowmint_conformance::{run, scenario};

const RUST: &str = env!("CARGO_BIN_EXE_rust-driver");
const REFERENCE: &str = env!("CARGO_BIN_EXE_reference-driver");

/// Each fault of the reference client, with a scenario that finds it.
const FAULTS: [(&str, &str); 22] = [
    ("uses-a-range-twice", "several-ranges"),
    ("uses-only-the-first-range", "several-ranges"),
    ("sorts-ranges", "several-ranges"),
    ("rounds-ids", "largest-id"),
    ("uses-part-of-an-answer", "too-few-ids"),
    ("retries-final-errors", "error-forbidden"),
    ("follows-redirects", "redirect-to-ids"),
    ("repeats-requests", "connection-closed-instead-of-an-answer"),
    ("takes-any-store", "another-store"),
    ("takes-any-store", "store-that-was-set"),
    ("ignores-retry-after", "retry-after-of-the-only-server"),
    ("keeps-old-ids", "ids-become-too-old"),
    ("keeps-discarded-ids", "discard"),
    ("shows-the-token", "refused-token"),
    ("sends-get", "one-id"),
    ("takes-any-answer", "answer-to-another-request"),
    ("shows-what-servers-repeat", "token-in-a-refusal"),
    ("sorts-ranges", "texts-in-order"),
    ("takes-a-text-twice", "repeated-text"),
    ("uses-part-of-an-answer", "part-of-the-texts"),
    ("keeps-discarded-ids", "texts-are-discarded"),
    ("keeps-old-ids", "texts-become-too-old"),
];

/// Runs these scenarios; returns what failed.
fn failed(driver: &[&str], names: Option<&[&str]>) -> Vec<run::Outcome> {
    let command: Vec<_> = driver.iter().map(|&word| word.to_owned()).collect();
    let mut scenarios = scenario::all().unwrap();
    scenarios.retain(|it| names.is_none_or(|names| names.contains(&&*it.name)));
    assert!(!scenarios.is_empty(), "{names:?}");
    let mut outcomes = run::run(&command, &scenarios, 6, run::print);
    assert_eq!(outcomes.len(), scenarios.len());
    outcomes.retain(|it| !it.problems.is_empty());
    outcomes
}

#[test]
fn the_rust_client_passes() {
    let failed = failed(&[RUST], None);
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn scenarios_have_names_of_their_own() {
    let all = scenario::all().unwrap();
    let names: BTreeSet<_> = all.iter().map(|it| &it.name).collect();
    assert_eq!(names.len(), all.len());
    assert!(all.len() >= 180, "{} scenarios", all.len());
}

#[test]
fn each_fault_is_found() {
    let names: BTreeSet<_> = FAULTS.iter().map(|(_, name)| *name).collect();
    let without = failed(&[REFERENCE], Some(&names.into_iter().collect::<Vec<_>>()));
    assert!(without.is_empty(), "the reference client has no fault: {without:#?}");
    for (fault, name) in FAULTS {
        assert_eq!(failed(&[REFERENCE, fault], Some(&[name])).len(), 1, "{name} does not find {fault}");
    }
}

/// Goal: a driver that ends or does not start is an error, not a hang.
#[test]
fn a_driver_that_ends_fails() {
    let ended = failed(&["true"], Some(&["one-id"]));
    assert!(ended[0].problems[0].contains("has ended"), "{ended:?}");
    let missing = failed(&["/nowhere/driver"], Some(&["one-id"]));
    assert!(missing[0].problems[0].contains("does not start"), "{missing:?}");
}
