//! Goal: while one of two nodes works, callers get ids without errors, and no id twice.
//! Method: each node in turn is killed and restarted while a client draws 2 million ids in 8 threads.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic is how a test fails")]

use snowmint_conformance::black_box::kill_each_node_in_turn;

fn survives(driver: &[&str]) {
    let command: Vec<_> = driver.iter().map(|&word| word.to_owned()).collect();
    let report = kill_each_node_in_turn(&command).unwrap();
    println!("{report:?}");
    assert!(report.ids >= 2_000_000 && report.kills >= 4, "{report:?}");
    assert_eq!((report.duplicates, report.errors), (0, 0), "{report:?}");
}

#[test]
fn rust() {
    survives(&[env!("CARGO_BIN_EXE_rust-driver")]);
}
