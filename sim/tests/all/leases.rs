//! Goal: no fault of clocks, processes, operators or stores produces a duplicate, as long as the store loses
//! no more acknowledged writes than the nodes expect; if it loses more, the simulation finds the duplicates.
//! Method: hundreds of seeded worlds run the shipped code over models of each kind of store, and compare
//! every id of every node. A planted fault shows that the comparison works.

use snowmint_cluster::lease::protocol::Begin;
use snowmint_sim::{Count, Report, Scenario, StoreProfile, Sums, for_each_seed, run, run_with};

/// Seeds of the default run: together more than a million grants, renewals, losses and releases.
const SEEDS: u64 = 880;

#[test]
fn no_id_comes_twice_and_each_process_counts_up() {
    let mut sums = Sums::default();
    for_each_seed(
        0,
        SEEDS,
        |seed| run(&Scenario::of(seed)),
        |report| {
            let scenario = Scenario::of(report.seed);
            let fine = report.figures.promise_kept() || !report.store.loses_no_more_than_told();
            assert!(fine, "{scenario}\n{report}");
            assert!(report.figures[Count::Grants] > 0, "nothing happened: {scenario}\n{report}");
            sums.add(&report);
        },
    );
    println!("{sums}");
    for store in StoreProfile::ALL {
        let sum = sums.of(store);
        assert!(sum.figures.lease_events() > 100_000, "{store}: {sum}");
        let broken_as_told = (sum.broken == 0) == store.loses_no_more_than_told();
        assert!(
            broken_as_told,
            "only a store that loses more than the nodes expect may produce duplicates, and it must: {store}: {sum}"
        );
    }
    let kept = sums.of_those_that_lose_no_more();
    assert!(kept.figures.lease_events() >= 1_000_000, "{kept}");
    for often in [Count::Losses, Count::UnknownOutcomes, Count::LateWrites, Count::Evictions, Count::Resumed]
    {
        assert!(kept.figures[often] > 1000, "a fault that did not happen: {often:?}: {kept}");
    }
}

/// Goal: over a store with a clock, a clock that is stepped forward uses up no worker's future. Method:
/// clocks that are stepped by up to an hour either way and do not drift, over every kind of store; the test
/// measures how far each grant reaches.
#[test]
fn a_clock_that_is_stepped_forward_takes_no_future() {
    let scenario = |seed| {
        let stepped =
            Scenario { store_tells_time: true, drift_ppm: 0, step_ms: 3_600_000, ..Scenario::of(seed) };
        Scenario { lasts_ms: stepped.lasts_ms / 4, ..stepped }
    };
    let mut sums = Sums::default();
    for_each_seed(
        0,
        220,
        |seed| run(&scenario(seed)),
        |report| {
            assert_eq!(report.figures[Count::FutureTaken], 0, "{}\n{report}", scenario(report.seed));
            sums.add(&report);
        },
    );
    let kept = sums.of_those_that_lose_no_more().figures;
    assert!(kept[Count::Steps] > 1000 && kept[Count::Refusals] > 1000, "{kept}");
    assert!(kept[Count::Renewals] > 10_000, "nodes continue: {kept}");
}

/// Goal: clocks years ahead, back, and ahead again repeat no id and block no worker: once all clocks are
/// correct, each node has a lease. Method: processes that start 20 years ahead, or at one date in 20 years,
/// beside others, with all faults; for the last tenth of each world, all clocks are correct and nothing
/// fails.
#[test]
fn clocks_years_ahead_repeat_no_id_and_block_no_worker() {
    let mut sums = Sums::default();
    for_each_seed(
        0,
        330,
        |seed| run(&Scenario::of(seed).with_years_ahead()),
        |report| {
            let scenario = Scenario::of(report.seed).with_years_ahead();
            if report.store.loses_no_more_than_told() {
                assert!(report.figures.promise_kept(), "{scenario}\n{report}");
                // A process that resumes a saved lease forgets the gaps of its record.
                let stranded = report.figures[Count::Stranded];
                assert!(stranded == 0 || scenario.saves, "{scenario}\n{report}");
            }
            sums.add(&report);
        },
    );
    let kept = sums.of_those_that_lose_no_more().figures;
    println!("{kept}");
    assert!(kept[Count::GrantsInGaps] > 1000 && kept[Count::GapEnds] > 0, "{kept}");
}

/// Goal: each kind of store fails in its own way only.
#[test]
fn each_kind_of_store_fails_in_its_own_way() {
    let mut sums = Sums::default();
    for_each_seed(0, 110, |seed| run(&Scenario::of(seed)), |report| sums.add(&report));
    for store in StoreProfile::ALL {
        let figures = sums.of(store).figures;
        assert_eq!(figures[Count::StaleReads] > 0, store == StoreProfile::StaleReads, "{store}: {figures}");
        assert_eq!(figures[Count::ForgottenWrites] > 0, store.forgets(), "{store}: {figures}");
        assert!(figures[Count::CallsWhileDown] > 100, "{store}: {figures}");
    }
}

/// Goal: nodes notice that a store lost acknowledged writes, and never report a loss that did not happen.
/// Method: seeds of both kinds; a stale read looks like a loss, but costs only a window.
#[test]
fn a_store_that_forgot_is_noticed_and_no_other_is_blamed() {
    let mut sums = Sums::default();
    for_each_seed(0, 220, |seed| run(&Scenario::of(seed)), |report| sums.add(&report));
    for store in StoreProfile::ALL {
        let figures = sums.of(store).figures;
        let (noticed, overlaps) = (figures[Count::Forgotten], figures[Count::Overlaps]);
        let copies = figures[Count::Copies];
        assert!(noticed > 0 || !store.forgets(), "{store}: {figures}");
        if store.forgets() || store == StoreProfile::StaleReads {
            continue;
        }
        // Not even if a proxy sends a request twice, and the second answer denies the write.
        assert_eq!((noticed, overlaps, copies), (0, 0, 0), "{store}: {figures}");
    }
    assert!(sums.of(StoreProfile::Restored).figures[Count::Overlaps] > 0, "{sums}");
}

#[test]
fn one_seed_is_one_trace() {
    for store in StoreProfile::ALL {
        let run = |seed| run(&Scenario::with_store(seed, store));
        assert_eq!(run(3), run(3));
        assert_ne!(run(3).trace, run(4).trace);
    }
}

/// The planted fault: a grant begins at the clock's time, whatever was granted before.
#[derive(Debug)]
struct ByTheClockAlone;

impl Begin for ByTheClockAlone {
    fn begin(now_unix_ms: u64, _granted_until_unix_ms: u64) -> u64 {
        now_unix_ms
    }
}

/// Another one: a lease in a gap reaches over the next grant.
#[derive(Debug)]
struct OverTheNextGrant;

impl Begin for OverTheNextGrant {
    fn begin(now_unix_ms: u64, granted_until_unix_ms: u64) -> u64 {
        now_unix_ms.max(granted_until_unix_ms)
    }

    fn end(until_unix_ms: u64, _next_grant_unix_ms: u64) -> u64 {
        until_unix_ms
    }
}

#[test]
fn a_lease_that_reaches_over_the_next_grant_is_found() {
    let scenarios = (0..SEEDS).map(|seed| Scenario::with_store(seed, StoreProfile::Linearizable));
    let found = scenarios.map(|it| run_with::<OverTheNextGrant>(&it)).find(|it| !it.duplicates.is_empty());
    println!("{}", found.expect("a lease that reaches over the next grant makes duplicates"));
}

#[test]
fn a_planted_fault_is_found_whatever_the_store() {
    for store in StoreProfile::ALL.into_iter().filter(|store| store.loses_no_more_than_told()) {
        let scenarios = (0..SEEDS).map(|seed| Scenario::with_store(seed, store));
        let found: Option<Report> =
            scenarios.map(|it| run_with::<ByTheClockAlone>(&it)).find(|it| !it.duplicates.is_empty());
        let found = found.unwrap_or_else(|| panic!("{store}: skipping max(now, old.until) makes duplicates"));
        println!("found over {store}: {found}");
    }
}
