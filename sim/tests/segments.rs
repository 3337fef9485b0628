//! Goal: no loss or delay of calls, no crash, restart or return of numbers makes a number come twice or out of order.
//! Method: hundreds of seeded worlds run the code that ships; every number of every node is compared. That the
//! comparison would find a mistake is shown by planting some.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic is how a test fails")]

use snowmint_sim::{Planted, SegmentReport, SegmentScenario, run_segments};

const SEEDS: u64 = 400;

/// Runs every seed, on as many threads as there are processors, and gives the reports.
fn run_all(scenario: impl Fn(u64) -> SegmentScenario + Sync) -> Vec<SegmentReport> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let scenario = &scenario;
        let run = move |seed| run_segments(&scenario(seed));
        let share = move |first: usize| (first as u64..SEEDS).step_by(threads).map(run).collect::<Vec<_>>();
        let shares: Vec<_> = (0..threads).map(|first| scope.spawn(move || share(first))).collect();
        shares.into_iter().flat_map(|share| share.join().unwrap()).collect()
    })
}

#[test]
fn no_number_comes_twice_and_all_are_in_order() {
    let reports = run_all(SegmentScenario::of);
    for report in &reports {
        assert!(report.promise_kept(), "{:?}\n{report}", SegmentScenario::of(report.seed));
        assert!(report.numbers > 0, "nothing happened: {:?}\n{report}", SegmentScenario::of(report.seed));
    }
    let sum = |of: fn(&SegmentReport) -> u64| reports.iter().map(of).sum::<u64>();
    let (numbers, reserved, given_back) = (sum(|r| r.numbers), sum(|r| r.reserved), sum(|r| r.given_back));
    let (unknown, late, crashes) = (sum(|r| r.unknown_outcomes), sum(|r| r.late_calls), sum(|r| r.crashes));
    println!(
        "{} seeds: {numbers} numbers, {reserved} segments, {given_back} given back, {unknown} unknown outcomes, \
         {late} late calls, {crashes} crashes",
        reports.len()
    );
    let all = [numbers / 1000, reserved, given_back, unknown, late, crashes];
    assert!(all.into_iter().all(|count| count > 1000), "the faults did not happen: {all:?}");
}

#[test]
fn one_seed_is_one_trace() {
    for seed in [3, 77] {
        assert_eq!(run_segments(&SegmentScenario::of(seed)), run_segments(&SegmentScenario::of(seed)));
        let other = run_segments(&SegmentScenario::of(seed + 1));
        assert_ne!(run_segments(&SegmentScenario::of(seed)).trace, other.trace);
    }
}

#[test]
fn planted_mistakes_are_found() {
    for planted in [
        Planted::GiveBackWithoutCompare,
        Planted::GiveBackAgain,
        Planted::LostAnswerUsed,
        Planted::DirectFromMemory,
    ] {
        // Where much goes wrong anyway.
        let bad = |seed| SegmentScenario {
            faulty_per_mille: 300,
            fault_every_ms: 300,
            ..SegmentScenario::of(seed)
        };
        let found = (0..SEEDS)
            .map(|seed| run_segments(&bad(seed).with(planted)))
            .filter(|report| !report.promise_kept());
        let found: Vec<SegmentReport> = found.take(3).collect();
        assert_eq!(found.len(), 3, "{planted:?} must be found");
        println!(
            "{planted:?}: found at seeds {:?}",
            found.iter().map(|report| report.seed).collect::<Vec<u64>>()
        );
    }
}
