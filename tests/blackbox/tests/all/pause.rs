//! A process that was paused beyond its lease, while another took its worker, makes no more ids with that
//! worker.

use std::time::Duration;

use snowmint_test_servers::snowmint::ids::increase;
use snowmint_test_servers::snowmint::{Ids, Serve};
use snowmint_test_servers::time;

/// Two workers in total: a third node must take the worker of another.
const TWO_WORKERS: &str = "time:41@1ms worker:1 sequence:12 epoch:2010-11-04T01:42:54.657Z";
const WINDOW: Duration = Duration::from_secs(3);

/// Goal: the lease alone stops a paused process. Method: two workers, held by A and B; A is paused until C
/// has its worker, then resumed. It must refuse on old and new connections while both workers are taken, and
/// continue once one is free.
#[test]
fn a_paused_process_makes_no_id_with_a_worker_that_another_took() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::new(folder.path()).args(["--layout", TWO_WORKERS, "--window", "3s"]);
    let a = serve.start();
    let b = serve.start();
    let mut ids = Ids::new();
    let before = a.take(1000);
    ids.add(&before);
    ids.add(&b.take(1000));
    let mut connected_before = a.client();

    a.pause();
    let mut c = serve.start();
    let taken_over = c.take(1000);
    ids.add(&taken_over);
    let worker = |id: u64| (id >> 12) & 1;
    assert_eq!(worker(before[0]), worker(taken_over[0]), "C has the worker that A had");

    a.resume();
    let resumed = time::now();
    let mut refused = 0;
    while resumed.elapsed() < WINDOW / 3 {
        for client in [&mut connected_before, &mut a.client()] {
            let answer = client.next("default", 100).unwrap();
            let error = answer.expect_err("both workers are held and renewed by others");
            assert!(error.starts_with("NOTREADY "), "{error}");
            refused += 1;
        }
        ids.add(&b.take(100));
        ids.add(&c.take(100));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(a.get("/readyz").status, 503);
    assert!(refused > 10, "only {refused} requests were made");

    c.kill();
    let again = time::eventually("A has a worker again", WINDOW * 4, || {
        connected_before.next("default", 1000).unwrap().ok()
    });
    assert!(increase(&before) && increase(&again) && before.last() < again.first());
    ids.add(&again);
    ids.add(&b.take(1000));
    ids.assert_unique();
}
