//! Goal: a large fleet costs its store what `docs/scale.md` says, in no bursts, and no two nodes share a
//! worker. Method: 2,000 nodes with the shipped protocol over a store that executes 1,000 writes a second;
//! all start at once, rest, lose the store for a minute, and are killed.

use snowmint_sim::{Cut, Fleet, FleetScenario, GivenUp, Rest, StoreSpeed};

const SCENARIO: FleetScenario = FleetScenario {
    seed: 1,
    nodes: 2_000,
    window_ms: 30_000,
    store: StoreSpeed { writes_per_second: 1_000, reads_per_second: 4_000, ..StoreSpeed::ETCD },
    given_up: GivenUp::Executed,
};

/// A call without an answer and the longest wait after it, and the two seconds of 2,000 writes.
const BACK_MS: u64 = SCENARIO.window_ms / 2 + 2_000;

/// Checks that the renewals are those of the formula, and that no second has much more than the average one.
#[track_caller]
fn is_even(rest: &Rest) {
    let (formula, busiest) = (SCENARIO.renewals_per_second(), rest.cost.most_writes_a_second);
    assert!((90..115).contains(&(rest.writes_per_second * 100 / formula)), "{rest:?}, not {formula}");
    assert!(busiest * 2 < formula * 3, "{rest:?}: a burst beside {formula} on average");
    assert_eq!((rest.lacking, rest.cost.lost_leases, rest.cost.shared_workers), (0, 0, 0), "{rest:?}");
}

#[test]
fn a_fleet_that_starts_at_once_renews_evenly() {
    let mut fleet = Fleet::new(SCENARIO);
    let start = fleet.start();
    assert_eq!((start.lacking, start.cost.shared_workers), (0, 0), "{start:?}");
    // Two seconds for the claims, as long as nodes look for a worker, and some conflicts.
    assert!(start.all_ms < 8_000, "{start:?}");
    fleet.rest(SCENARIO.window_ms / 3);
    is_even(&fleet.rest(3 * SCENARIO.window_ms));
}

#[test]
fn a_fleet_whose_store_comes_back_renews_evenly() {
    for cut in [Cut::Refused, Cut::Unanswered] {
        let mut fleet = Fleet::new(SCENARIO);
        fleet.start();
        fleet.rest(SCENARIO.window_ms);
        let outage = fleet.cut_off(0..SCENARIO.nodes, cut, 60_000);
        let recovery = outage.recovery;
        assert_eq!(outage.most_lacking, SCENARIO.nodes as usize, "no lease lasts so long: {outage:?}");
        assert_eq!((recovery.lacking, recovery.cost.shared_workers), (0, 0), "{outage:?}");
        assert!(recovery.all_ms < BACK_MS, "{outage:?}");
        fleet.rest(SCENARIO.window_ms / 3);
        is_even(&fleet.rest(3 * SCENARIO.window_ms));
    }
}

#[test]
fn a_fleet_that_was_killed_starts_again_within_a_window() {
    let mut fleet = Fleet::new(SCENARIO);
    fleet.start();
    fleet.rest(SCENARIO.window_ms);
    let start = fleet.start();
    assert_eq!((start.lacking, start.cost.shared_workers), (0, 0), "{start:?}");
    assert!(start.all_ms < SCENARIO.window_ms + 2_000, "{start:?}");
    // Each claim that another node was faster to make costs a write.
    assert!(start.cost.conflicts < u64::from(SCENARIO.nodes), "{start:?}");
}

/// Goal: calls that nodes have given up never keep a store busy for good. Method: fleets that their store
/// bears at rest, and whose start takes it several times the limit of a call; a store that executes what was
/// given up, with more reads than writes and with fewer; a start, an outage, and a crash of all.
#[test]
fn a_store_that_is_slower_than_the_start_of_its_fleet_gets_through_it() {
    for (nodes, window_ms, writes_per_second, reads_per_second, store) in
        [(4_000, 300_000, 160, 640, StoreSpeed::ETCD), (10_000, 60_000, 1_831, 1_332, StoreSpeed::POSTGRES)]
    {
        let store = StoreSpeed { writes_per_second, reads_per_second, ..store };
        let scenario = FleetScenario { nodes, window_ms, store, ..SCENARIO };
        let mut fleet = Fleet::new(scenario);
        let start = fleet.start();
        assert_eq!((start.lacking, start.cost.shared_workers), (0, 0), "{scenario:?} {start:?}");
        fleet.rest(window_ms);
        let outage = fleet.cut_off(0..nodes, Cut::Refused, 60_000);
        assert_eq!(outage.recovery.lacking, 0, "{scenario:?} {outage:?}");
        let rest = fleet.rest(3 * window_ms);
        assert_eq!((rest.lacking, rest.cost.shared_workers), (0, 0), "{scenario:?} {rest:?}");
        let start = fleet.start();
        assert_eq!((start.lacking, start.cost.shared_workers), (0, 0), "{scenario:?} {start:?}");
    }
}

/// Goal: a region that is cut off for an hour costs the others nothing, and returns. Method: a quarter of the
/// nodes gets no answer; the others renew.
#[test]
fn a_region_that_was_cut_off_comes_back_and_costs_the_others_nothing() {
    let region = SCENARIO.nodes / 4;
    let mut fleet = Fleet::new(SCENARIO);
    fleet.start();
    fleet.rest(SCENARIO.window_ms);
    let outage = fleet.cut_off(0..region, Cut::Unanswered, 3_600_000);
    assert_eq!(outage.most_lacking, region as usize, "{outage:?}");
    assert_eq!(outage.recovery.lacking, 0, "{outage:?}");
    assert!(outage.recovery.all_ms < BACK_MS, "{outage:?}");
    is_even(&fleet.rest(3 * SCENARIO.window_ms));
}

/// Goal: the simulation sees two nodes with one worker. Method: a store that loses its records while all
/// nodes are killed.
#[test]
fn a_store_that_lost_its_records_gives_workers_twice() {
    let mut fleet = Fleet::new(SCENARIO);
    fleet.start();
    fleet.lose_records();
    assert!(fleet.start().cost.shared_workers > 100);
}

#[test]
fn one_seed_is_one_trace() {
    let start = |seed| Fleet::new(FleetScenario { seed, ..SCENARIO }).start();
    assert_eq!(start(3), start(3));
    assert_ne!(start(3), start(4));
}
