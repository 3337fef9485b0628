//! Goal: no fault of clocks, processes or the way to the store makes two equal ids.
//! Method: hundreds of seeded worlds run the code that ships; every id of every node is compared. That the
//! comparison would find a fault is shown by planting one.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use snowmint_cluster::lease::protocol::Begin;
use snowmint_sim::{Report, Scenario, run, run_with};

/// Seeds of the default run: together more than a million grants, renewals, losses and releases.
const SEEDS: u64 = 800;

/// Runs every seed, on as many threads as there are processors, and gives the reports.
fn run_all() -> Vec<Report> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let run_share = |first: usize| (first as u64..SEEDS).step_by(threads).map(run).collect::<Vec<_>>();
        let shares: Vec<_> = (0..threads).map(|first| scope.spawn(move || run_share(first))).collect();
        shares.into_iter().flat_map(|share| share.join().unwrap()).collect()
    })
}

#[test]
fn no_id_comes_twice_and_each_process_counts_up() {
    let reports = run_all();
    for report in &reports {
        let fine = report.duplicates.is_empty() && report.disorder == 0;
        assert!(fine, "{}\n{report}", Scenario::of(report.seed));
        assert!(
            report.grants > 0 && report.ids > 0,
            "nothing happened: {}\n{report}",
            Scenario::of(report.seed)
        );
    }
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    let (ids, events, losses) = (sum(|r| r.ids), sum(Report::lease_events), sum(|r| r.losses));
    let (late, unknown) = (sum(|r| r.late_writes), sum(|r| r.unknown_outcomes));
    println!(
        "{} seeds: {ids} ids, {events} lease events, {losses} losses, {late} late writes, {unknown} unknown outcomes",
        reports.len()
    );
    assert!(events >= 1_000_000, "only {events} lease events");
    assert!(
        late > 1000 && unknown > 1000 && losses > 1000,
        "the faults did not happen: {late} {unknown} {losses}"
    );
}

#[test]
fn one_seed_is_one_trace() {
    for seed in [3, 77] {
        assert_eq!(run(seed), run(seed));
        assert_ne!(run(seed).trace, run(seed + 1).trace);
    }
}

/// The fault to plant: a grant begins by the clock alone, whatever was granted before.
#[derive(Debug)]
struct ByTheClockAlone;

impl Begin for ByTheClockAlone {
    fn begin(now_unix_ms: u64, _granted_until_unix_ms: u64) -> u64 {
        now_unix_ms
    }
}

#[test]
fn a_planted_fault_is_found() {
    let found: Vec<Report> = (0..SEEDS)
        .map(|seed| run_with::<ByTheClockAlone>(&Scenario::of(seed)))
        .filter(|report| !report.duplicates.is_empty())
        .take(3)
        .collect();
    assert_eq!(found.len(), 3, "skipping max(now, old.until) must make duplicates that are found");
    println!("found: {}", found[0]);
}
