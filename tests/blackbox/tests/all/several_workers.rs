//! A node with several workers. A test takes up to half a minute, mostly waiting for leases.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use snowmint_test_servers::snowmint::ids::increase;
use snowmint_test_servers::snowmint::server::assert_says;
use snowmint_test_servers::snowmint::{Ids, Serve};
use snowmint_test_servers::time;

const PATIENCE: Duration = Duration::from_mins(1);
/// Each worker makes 16 ids per millisecond; the worker is above the sequence.
const SMALL: &str = "time:41@1ms worker:5 sequence:4 epoch:2020-01-01";
const IDS_A_MS: f64 = 16.0;

/// Returns the worker of an id of that layout.
const fn worker(id: u64) -> u64 {
    (id >> 4) & 31
}

/// Goal: under a load that is too high for one worker, a node takes more workers, keeps the order of each
/// connection, and releases the extra workers afterwards. Method: four connections draw without pause until
/// they have more ids than one worker makes in that time.
#[test]
fn workers_are_taken_under_load_and_given_back() {
    let folder = tempfile::tempdir().unwrap();
    // In memory: a disk that other tests keep busy may stall for longer than a lease lasts.
    let serve = Serve::new(folder.path()).args(["--layout", SMALL, "--workers", "1..3", "--window", "4s"]);
    let serve = serve.args(["--store", "memory:"]);
    let server = serve.start();
    assert!((server.metric("snowmint_leases") - 1.0).abs() < 0.1);
    let (stop, all) = (AtomicBool::new(false), Mutex::new(Ids::new()));
    let workers = Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = server.client();
                let mut mine = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    mine.extend(client.next("default", 100).unwrap().unwrap());
                }
                assert!(increase(&mine), "the ids of a connection went back");
                workers.lock().unwrap().extend(mine.iter().map(|id| worker(*id)));
                all.lock().unwrap().add(&mine);
            });
        }
        let look = || Some(server.metric("snowmint_leases")).filter(|leases| *leases > 2.9);
        time::eventually("three leases", PATIENCE, look);
        time::eventually("more ids than one worker has", PATIENCE, || {
            let (begun, before) = (time::now(), server.metric("snowmint_ids_issued_total"));
            std::thread::sleep(Duration::from_millis(300));
            let given = server.metric("snowmint_ids_issued_total") - before;
            (given > IDS_A_MS * begun.elapsed().as_secs_f64() * 1000.0).then_some(())
        });
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(workers.into_inner().unwrap().len(), 3);
    all.into_inner().unwrap().assert_unique();
    let look = || Some(server.metric("snowmint_leases")).filter(|leases| *leases < 1.1);
    time::eventually("one lease again", PATIENCE, look);
    server.log_with("a worker was not needed for three windows; releasing it", PATIENCE);
    let ended = server.stop();
    assert_says(&ended.log, &["sequences ran out; taking another worker"]);
}

#[test]
fn several_workers_and_a_fixed_one_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |args: &[&str]| Serve::new(folder.path()).args(args).refused();
    refused(&["--worker", "3", "--workers", "1..2"])
        .assert_says(&["--worker 3 requires one worker, --workers 1..2"]);
    refused(&["--workers", "9"]).assert_says(&["--workers", "expected 1 to 8"]);
    let one_bit = "time:41 worker:1 sequence:12 epoch:2020-01-01";
    refused(&["--layout", one_bit, "--workers", "1..3"]).assert_says(&["has 2 workers in a datacenter"]);
}
