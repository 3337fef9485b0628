//! `snowmint workers` and `snowmint doctor`.

use crate::run::{Bench, json};

#[test]
fn a_store_without_leases_and_one_that_is_not_there() {
    let bench = Bench::new();
    for command in ["workers", "doctor"] {
        let told = bench.refused(&[command], 1);
        assert!(told.contains("not found") && told.contains("--data"), "{told}");
    }
    assert!(!bench.path("snowmint-data").exists(), "looking makes nothing");
}

#[test]
fn a_lease_that_was_given_back_is_shown_and_need_not_be_released() {
    let bench = Bench::new();
    bench.out(&["new", "--worker", "7"]);
    let row = json(&bench.out(&["workers", "--json"]));
    assert_eq!((row["worker"].as_u64(), row["state"].as_str()), (Some(7), Some("free")));
    assert!(row["holder"].as_str().is_some_and(|holder| holder.ends_with(":cli")), "{row}");
    assert!(bench.out(&["workers", "release", "7"]).starts_with("worker 7 is free"));
    let told = bench.refused(&["workers", "release", "8"], 2);
    assert!(told.contains("unknown worker 8"), "{told}");
}

#[test]
fn the_doctor_looks_at_everything_and_finds_a_healthy_store_healthy() {
    let bench = Bench::new();
    bench.out(&["new"]);
    let out = bench.out(&["doctor"]);
    for check in ["store", "clock", "leases", "workers"] {
        assert!(out.lines().any(|line| line.starts_with("ok ") && line.contains(check)), "{check}: {out}");
    }
    assert!(out.contains("32 of 32 workers") || out.contains("31 of 32 workers"), "{out}");
}

/// Goal: a worker is taken from a running node only by force, and never before what it was granted has ended.
#[test]
fn a_held_worker_is_released_only_by_force_and_what_was_granted_is_not_shortened() {
    let bench = Bench::new();
    let mut server = bench.serve(&["--worker", "5", "--window", "1h"]);
    let until = server.ready("until");
    let told = bench.refused(&["workers", "release", "5"], 1);
    assert!(told.contains("is held by") && told.contains("--force"), "{told}");
    let out = bench.out(&["workers", "release", "5", "--force"]);
    assert!(out.contains(&format!("it is free from {until} on")), "{out}");
    assert_eq!(server.http("/v1/ids/default").0, 200, "what was granted stays usable");
    let row = json(&bench.out(&["workers", "--json"]));
    assert_eq!((row["state"].as_str(), row["until"].as_str()), (Some("held"), Some(until.as_str())));
    let doctor = bench.run(&["doctor"]);
    assert!(
        doctor.code == 1 && doctor.out.contains("LOOK    leases"),
        "an hour ahead is worth a look: {}",
        doctor.out
    );
}
