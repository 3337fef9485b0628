//! Goal: no lost or late call, crash, restart or return of numbers produces a duplicate number or a wrong
//! order. Method: hundreds of seeded worlds run the shipped code, and compare every number of every node.
//! Planted mistakes show that the comparison works.

use snowmint_sim::{Planted, SegmentReport, SegmentScenario, run_segments};

const SEEDS: u64 = 400;

/// Runs every seed, on as many threads as there are processors, and returns the reports.
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
        assert_eq!((report.went_back, report.lost), (0, 0), "a false alarm: {report}");
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

/// Goal: numbers begin and end where they should, and a request that gets none uses up none. Method: worlds
/// whose numbers end; without faults, almost all of them are handed out directly.
#[test]
fn numbers_end_at_the_maximum_and_are_not_used_up_in_vain() {
    let mut refused = 0;
    for report in run_all(|seed| SegmentScenario::of(seed).ending()) {
        assert!(report.promise_kept(), "{:?}\n{report}", SegmentScenario::of(report.seed).ending());
    }
    let quiet = |seed| {
        let scenario =
            SegmentScenario { faulty_per_mille: 0, counters: 1, direct: true, ..SegmentScenario::of(seed) };
        SegmentScenario { fault_every_ms: u64::MAX / 4, ..scenario.ending() }
    };
    for report in run_all(quiet) {
        let scenario = quiet(report.seed);
        assert!(report.promise_kept(), "{scenario:?}\n{report}");
        // Between a look and the reservation after it, another node may have taken what was left for a
        // request of up to 7.
        let (all, wasted) = (1401, 6 * (scenario.nodes as u64 - 1));
        assert!(report.numbers + wasted >= all, "{scenario:?}\n{report}");
        refused += report.refused;
    }
    assert!(refused > 1000, "{refused}");
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
    // Many faults, but no planted one.
    let bad =
        |seed| SegmentScenario { faulty_per_mille: 300, fault_every_ms: 300, ..SegmentScenario::of(seed) };
    for seed in 0..SEEDS {
        let report = run_segments(&bad(seed));
        assert!(report.promise_kept() && report.went_back == 0, "{report}");
    }
    for planted in [
        Planted::GiveBackWithoutCompare,
        Planted::GiveBackAgain,
        Planted::LostAnswerUsed,
        Planted::DirectFromMemory,
    ] {
        let found = (0..SEEDS)
            .map(|seed| run_segments(&bad(seed).with(planted)))
            // Nodes mostly notice a counter that went back before a number is repeated.
            .filter(|report| !report.promise_kept() || report.went_back > 0);
        let found: Vec<SegmentReport> = found.take(3).collect();
        assert_eq!(found.len(), 3, "{planted:?} must be found");
        println!(
            "{planted:?}: found at seeds {:?}",
            found.iter().map(|report| report.seed).collect::<Vec<u64>>()
        );
    }
}

const MAY_LOSE_MS: u64 = 2000;

/// Goal: a store whose loss is within the limit costs numbers, but produces no duplicate.
#[test]
fn over_stores_that_lose_up_to_what_they_say_no_number_comes_twice() {
    let reports = run_all(|seed| SegmentScenario::of(seed).losing(MAY_LOSE_MS, MAY_LOSE_MS));
    for report in &reports {
        assert_eq!((report.duplicates, report.disorder), (0, 0), "{report}");
    }
    let sum = |of: fn(&SegmentReport) -> u64| reports.iter().map(of).sum::<u64>();
    let (losses, lost, went_back) = (sum(|r| r.losses), sum(|r| r.lost), sum(|r| r.went_back));
    println!("{} numbers, {losses} losses, {lost} lost, {went_back} went back", sum(|r| r.numbers));
    assert!([losses, lost, went_back].into_iter().all(|count| count > 100), "nothing was lost");
}

/// Goal: the test above would find a mistake. Method: no wait, a mark without its numbers, and stores that
/// lose more than the nodes expect.
#[test]
fn duplicates_are_found_without_the_wait_without_the_claim_and_beyond_what_may_be_lost() {
    type World = fn(u64) -> SegmentScenario;
    let worlds: [(&str, World); 3] = [
        ("no wait", |seed| {
            SegmentScenario::of(seed).losing(MAY_LOSE_MS, MAY_LOSE_MS).with(Planted::UseUnsettled)
        }),
        ("a mark alone", |seed| {
            SegmentScenario::of(seed).losing(MAY_LOSE_MS, MAY_LOSE_MS).with(Planted::MarkAlone)
        }),
        ("3 L lost", |seed| SegmentScenario::of(seed).losing(MAY_LOSE_MS, 3 * MAY_LOSE_MS)),
    ];
    for (what, world) in worlds {
        let found = run_all(world).iter().filter(|report| report.duplicates > 0).count();
        println!("{what}: duplicates in {found} of {SEEDS} seeds");
        assert!(found > 2, "{what} must be found");
    }
}

/// Goal: a node notices that its counter went back, and repeats no number. Method: the counter is restored to
/// half of its time while one node runs.
#[test]
fn a_counter_that_is_restored_under_a_node_is_noticed() {
    let reports = run_all(|seed| SegmentScenario::of(seed).restored());
    for report in &reports {
        assert_eq!(report.duplicates, 0, "{:?}\n{report}", SegmentScenario::of(report.seed).restored());
    }
    let noticed = reports.iter().filter(|report| report.went_back > 0).count();
    println!("noticed in {noticed} of {SEEDS} seeds");
    assert!(noticed * 10 > reports.len() * 8, "only {noticed}");
    let forgetful = run_all(|seed| SegmentScenario::of(seed).restored().with(Planted::ForgetHighest));
    assert!(forgetful.iter().filter(|report| report.duplicates > 0).count() > 100);
}
