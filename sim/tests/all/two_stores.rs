//! Goal: with nodes on two stores, a client that compares identities gets no duplicate, and one that does not
//! gets some. Method: the address of each node leads to one store, and from time to time to the other one.
//! Nodes compare with the shipped rule; a client draws from all of them.

use snowmint_sim::{Count, Scenario, StoreProfile, Sums, for_each_seed, run};

const SEEDS: u64 = 80;

#[test]
fn a_client_that_compares_gets_no_duplicate_of_two_stores() {
    let mut sums = Sums::default();
    for store in [StoreProfile::TwoStores, StoreProfile::TwoStoresUnnoticed] {
        let world = |seed| run(&Scenario::with_store(seed, store));
        for_each_seed(0, SEEDS, world, |report| {
            let fine = report.figures.promise_kept() || !store.loses_no_more_than_told();
            assert!(fine, "{}\n{report}", Scenario::with_store(report.seed, store));
            sums.add(&report);
        });
    }
    println!("{sums}");
    let compared = sums.of(StoreProfile::TwoStores);
    assert_eq!(compared.broken, 0, "{compared}");
    assert!(
        compared.figures[Count::Ids] > 1_000_000 && compared.figures[Count::OfAnotherStore] > 1_000_000,
        "{compared}"
    );
    let taken_all = sums.of(StoreProfile::TwoStoresUnnoticed);
    assert!(taken_all.broken > SEEDS / 4, "the worlds have duplicates to find: {taken_all}");
}
