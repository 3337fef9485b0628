//! Wall clocks that are stepped while a node runs: a node that fell behind, dates and periods, and `--clock
//! wall`, where the rule decides. libfaketime steps the clock; each test takes 2 to 30 s, mostly waiting for
//! leases.

use std::path::Path;
use std::time::Duration;

use snowmint_test_servers::Redis;
use snowmint_test_servers::snowmint::ids::{self, increase};
use snowmint_test_servers::snowmint::{self, FakeClock, Ids, Serve, Server, SplitMix64};
use snowmint_test_servers::time;

const PATIENCE: Duration = Duration::from_secs(30);
const HOUR_MS: i64 = 3_600_000;
const EIGHT_HOURS_MS: i64 = 8 * HOUR_MS;
const FIVE_MINUTES_MS: i64 = 5 * 60_000;
const SLACK_MS: u64 = 60_000;
/// Two workers for all nodes.
const TWO_WORKERS: &str = "time:41@1ms worker:1 sequence:21 epoch:2010-11-04T01:42:54.657Z";
/// Generations on top of the worker: backup worker ids.
const BACKUP: &str = "time:41@1ms generation:2 worker:8 sequence:12 epoch:2010-11-04T01:42:54.657Z";
/// Generations on top of the sequence: stepped base sequences.
const STEPPED: &str = "time:41@1ms worker:8 generation:2 sequence:12 epoch:2010-11-04T01:42:54.657Z";

/// Returns whether an id was made about `offset_ms` from now.
fn is_of(id: u64, offset_ms: i64) -> bool {
    ids::unix_ms(id).abs_diff(time::unix_ms().saturating_add_signed(offset_ms)) < SLACK_MS
}

/// Draws ids, which must have been made about `offset_ms` from now.
fn take(server: &Server, offset_ms: i64, ids: &mut Ids) {
    let taken = server.take(1000);
    assert!(increase(&taken) && is_of(taken[0], offset_ms), "{}", server.log());
    ids.add(&taken);
}

/// Sends requests until an id is made about `offset_ms` from now, or until `unless` returns an error.
fn wait_for_ids_of(server: &Server, offset_ms: i64, ids: &mut Ids) {
    time::eventually("ids of the wall clock's time", PATIENCE, || {
        let (_, id) = server.ask_once()?;
        ids.add(&[id]);
        is_of(id, offset_ms).then_some(())
    });
}

fn step_and_wait(server: &Server, clock: &FakeClock, offset: &str) {
    let steps = server.metric("snowmint_clock_steps_total");
    clock.step(offset);
    time::eventually("the step is seen", PATIENCE, || {
        (server.metric("snowmint_clock_steps_total") > steps).then_some(())
    });
}

/// Goal: the node does not follow an unconfirmed step, even after its lease has ended: a wrong wall clock
/// must not take a worker's future. Method: a single node on a file; its clock is stepped by an hour, and the
/// process is paused beyond its lease.
#[test]
fn a_step_that_nobody_confirms_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let clock = FakeClock::new(folder.path(), "+0");
    let server = Serve::new(folder.path()).args(["--window", "1s"]).clock(&clock).start();
    let mut ids = Ids::new();
    take(&server, 0, &mut ids);
    step_and_wait(&server, &clock, "+1h");
    take(&server, 0, &mut ids);
    server.pause();
    std::thread::sleep(Duration::from_millis(1500));
    server.resume();
    time::eventually("ids again", PATIENCE, || server.ask_once());
    take(&server, 0, &mut ids);
    ids.assert_unique();
}

/// Goal: a node that is behind and lost its worker looks for another by the wall clock; by its own clock,
/// every worker is taken for hours. Method: there are two workers; others take the free one and the node's
/// own, which is free by their clocks; one of them is killed.
#[test]
fn a_node_that_is_behind_seeks_a_lease_by_the_wall_clock() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::new(folder.path()).args(["--layout", TWO_WORKERS, "--window", "1s"]);
    let clock = FakeClock::new(folder.path(), "-8h");
    let behind = serve.clone().clock(&clock).start();
    let mut ids = Ids::new();
    take(&behind, -EIGHT_HOURS_MS, &mut ids);
    step_and_wait(&behind, &clock, "+0");
    // A node that lives by a clock far behind has to be allowed.
    let correct = serve.args(["--max-skew", "9h"]);
    let (others, mut taker) = (correct.start(), correct.start());
    behind.log_with("took this worker", PATIENCE);
    take(&taker, 0, &mut ids);
    taker.kill();
    wait_for_ids_of(&behind, 0, &mut ids);
    take(&behind, 0, &mut ids);
    take(&others, 0, &mut ids);
    ids.assert_unique();
}

/// Goal: over a store that may lose writes, a node that is behind by less than `--max-skew` and claims a
/// worker by the wall clock makes ids as soon as the claim has settled: its clock moves forward with the
/// grant. Method: Redis; the node starts 20 s behind, its clock is put right, and another node takes its
/// worker, which is free by the right time. No request is refused because of the clock.
#[test]
fn a_claim_by_the_wall_clock_that_has_to_settle_moves_the_clock_too() {
    let (folder, redis) = (tempfile::tempdir().unwrap(), Redis::start());
    let url = format!("redis://{}", redis.address());
    let serve = Serve::new(folder.path()).args(["--store", &url]);
    let clock = FakeClock::new(folder.path(), "-20s");
    let behind = serve.clone().clock(&clock).start();
    let mut ids = Ids::new();
    take(&behind, -20_000, &mut ids);
    let worker = ids::worker(behind.take(1)[0]);
    step_and_wait(&behind, &clock, "+0");
    let taker = serve.data(&folder.path().join("taker")).args(["--worker", &worker.to_string()]).start();
    behind.log_with("took this worker", PATIENCE);
    take(&taker, 0, &mut ids);
    time::eventually("ids of another worker", PATIENCE, || {
        match behind.client().next("default", 1).unwrap() {
            Ok(drawn) => {
                ids.add(&drawn);
                (ids::worker(drawn[0]) != worker).then_some(())
            }
            Err(refused) => {
                assert!(!refused.starts_with("CLOCKBEHIND"), "{refused}: {}", behind.log());
                None
            }
        }
    });
    take(&behind, 0, &mut ids);
    take(&taker, 0, &mut ids);
    behind.log_with("was brought forward", PATIENCE);
    ids.assert_unique();
}

/// Goal: if the store has a clock, a node that is behind catches up without interruption, and does not follow
/// a wrong wall clock. Method: Redis; the node starts eight hours behind, its clock is put right, then wrong
/// by a day.
#[test]
fn the_store_s_clock_tells_which_clock_is_wrong() {
    let (folder, redis) = (tempfile::tempdir().unwrap(), Redis::start());
    let url = format!("redis://{}", redis.address());
    let clock = FakeClock::new(folder.path(), "-8h");
    let server = Serve::new(folder.path()).args(["--store", &url]).clock(&clock).start();
    let mut ids = Ids::new();
    take(&server, -EIGHT_HOURS_MS, &mut ids);
    clock.step("+0");
    let mut last = 0;
    time::eventually("ids of the wall clock's time", PATIENCE, || {
        let taken = server.take(10);
        assert!(increase(&taken) && taken[0] > last);
        last = taken[9];
        ids.add(&taken);
        is_of(last, 0).then_some(())
    });
    step_and_wait(&server, &clock, "+24h");
    let renewals = server.metric("snowmint_lease_renewals_total");
    time::eventually("two renewals", PATIENCE, || {
        take(&server, 0, &mut ids);
        (server.metric("snowmint_lease_renewals_total") > renewals + 1.5).then_some(())
    });
    take(&server, 0, &mut ids);
    ids.assert_unique();
}

/// Returns the text of one id.
fn text(server: &Server, namespace: &str) -> String {
    let ids = server.get(&format!("/v1/ids/{namespace}")).body;
    let quoted = ids.split('"').find(|part| part.contains('-'));
    quoted.unwrap_or_else(|| panic!("no dated id in {ids}")).to_owned()
}

/// Goal: the day in a text and the period of a number follow the wall clock. Method: a node starts a day
/// behind; its clock is put right while it runs.
#[test]
fn dates_and_periods_follow_the_wall_clock() {
    let folder = tempfile::tempdir().unwrap();
    let ran = snowmint::run(folder.path(), ["store", "init", "--data", "data"]);
    assert!(ran.status.success(), "{}", snowmint::text(&ran));
    let add = |name: &str, more: &[&str]| {
        let args = ["ns", "add", name, "--scheme", "segment", "--text", "{date}-{number}", "--data", "data"];
        let ran = snowmint::run(folder.path(), [&args[..], more].concat());
        assert!(ran.status.success(), "{}", snowmint::text(&ran));
    };
    add("plain", &[]);
    add("daily", &["--reset", "daily"]);
    let clock = FakeClock::new(folder.path(), "-24h");
    let server = Serve::new(folder.path()).clock(&clock).start();
    let (plain, daily) = (text(&server, "plain"), text(&server, "daily"));
    let day = |text: &str| text[..8].parse::<u32>().unwrap();
    assert!(plain.ends_with("-1") && daily.ends_with("-1"), "{plain} {daily}");
    clock.step("+0");
    time::eventually("today's text", PATIENCE, || (day(&text(&server, "plain")) > day(&plain)).then_some(()));
    let today = time::eventually("today's numbers", PATIENCE, || {
        Some(text(&server, "daily")).filter(|text| day(text) > day(&daily))
    });
    assert!(today.ends_with("-1"), "the first number of a day: {today}");
}

/// Goal: a single node on a file that fell behind catches up once the wall clock has been steady for long
/// enough. Method: it starts five minutes behind, and the clock is put right; six windows are 12 s.
#[test]
fn a_node_alone_that_is_behind_is_brought_forward_once_the_wall_clock_has_lasted() {
    let folder = tempfile::tempdir().unwrap();
    let clock = FakeClock::new(folder.path(), "-5m");
    let server = Serve::new(folder.path()).args(["--window", "2s"]).clock(&clock).start();
    let mut ids = Ids::new();
    take(&server, -FIVE_MINUTES_MS, &mut ids);
    step_and_wait(&server, &clock, "+0");
    take(&server, -FIVE_MINUTES_MS, &mut ids);
    wait_for_ids_of(&server, 0, &mut ids);
    take(&server, 0, &mut ids);
    // The log has a thread of its own, which may write a line later than ids of the new time are served.
    let log = server.log_with("was brought forward", PATIENCE);
    assert!(!log.contains("ERROR"), "{log}");
    ids.assert_unique();
}

/// Checks a node on a wall clock after an unconfirmed step forward: it refuses, and reports the reason
/// everywhere.
fn assert_refuses_the_clock(server: &Server, why: &str) {
    server.log_with(why, PATIENCE);
    let ready = time::eventually("it is not ready for this reason", PATIENCE, || {
        let ready = server.get("/readyz");
        (ready.status == 503 && ready.body.contains(why)).then_some(ready.body)
    });
    let ahead = server.metric("snowmint_clock_ahead_seconds");
    assert!((3500.0..11_000.0).contains(&ahead), "{ahead}: {ready}");
    let refused = server.client().next("default", 1).unwrap().unwrap_err();
    assert!(refused.starts_with("NOTREADY ") && refused.contains(why), "{refused}");
}

/// Checks a node whose clock was put right: ids at once, under the lease of the same worker, which reaches at
/// most a window ahead.
fn assert_took_no_future(server: &Server, worker: u64, ids: &mut Ids) {
    wait_for_ids_of(server, 0, ids);
    take(server, 0, ids);
    let remaining = server.metric("snowmint_lease_remaining_seconds");
    assert!(remaining < 60.0, "{remaining}");
    assert_eq!(ids::worker(server.take(1)[0]), worker);
    time::eventually("all is well again", PATIENCE, || {
        (server.metric("snowmint_clock_ahead_seconds").abs() < 0.001 && server.ready()).then_some(())
    });
}

/// Goal: over a store with a clock, a wrong step forward uses up nothing of a worker's future, and the node
/// reports it. Method: Redis; an hour forward for longer than a renewal, and back.
#[test]
fn by_the_wall_clock_a_step_that_the_store_contradicts_takes_no_future() {
    let (folder, redis) = (tempfile::tempdir().unwrap(), Redis::start());
    let url = format!("redis://{}", redis.address());
    let clock = FakeClock::new(folder.path(), "+0");
    let server = Serve::new(folder.path()).args(["--store", &url, "--clock", "wall"]).clock(&clock).start();
    let mut ids = Ids::new();
    take(&server, 0, &mut ids);
    let worker = ids::worker(server.take(1)[0]);
    step_and_wait(&server, &clock, "+1h");
    assert_refuses_the_clock(&server, "ahead of the store's");
    clock.step("+0");
    assert_took_no_future(&server, worker, &mut ids);
    ids.assert_unique();
}

/// Goal: over a store without a clock, a wrong step forward that is corrected uses up nothing of a worker's
/// future, and the node follows one that lasts. Method: a single node on a file; three hours forward for some
/// seconds, then four minutes that stay; six windows are 6 s.
#[test]
fn by_the_wall_clock_a_step_that_nobody_confirms_is_followed_once_it_lasts() {
    let folder = tempfile::tempdir().unwrap();
    let clock = FakeClock::new(folder.path(), "+0");
    let args = ["--window", "1s", "--clock", "wall"];
    let server = Serve::new(folder.path()).args(args).clock(&clock).start();
    let mut ids = Ids::new();
    take(&server, 0, &mut ids);
    let worker = ids::worker(server.take(1)[0]);
    step_and_wait(&server, &clock, "+3h");
    assert_refuses_the_clock(&server, "jumped forward");
    clock.step("+0");
    assert_took_no_future(&server, worker, &mut ids);
    step_and_wait(&server, &clock, "+4m");
    wait_for_ids_of(&server, 4 * 60_000, &mut ids);
    take(&server, 4 * 60_000, &mut ids);
    ids.assert_unique();
}

/// Goal: a node's other lease in the same pool confirms no step: its record, written before the step, is the
/// node's own. Method: a single node on a file, with a namespace whose rule takes another worker; two steps
/// of 20 s, which nothing confirms, are together more than `--max-skew`.
#[test]
fn by_the_wall_clock_a_node_confirms_no_step_by_its_own_records() {
    let folder = tempfile::tempdir().unwrap();
    let add = ["ns", "add", "other", "--layout", "twitter", "--rule", "borrow(10ms)", "--data", "data"];
    for args in [&["store", "init", "--data", "data"][..], &add] {
        let ran = snowmint::run(folder.path(), args);
        assert!(ran.status.success(), "{}", snowmint::text(&ran));
    }
    let clock = FakeClock::new(folder.path(), "+0");
    let server = Serve::new(folder.path()).args(["--clock", "wall"]).clock(&clock).start();
    let mut ids = Ids::new();
    let begin_ms = time::unix_ms();
    let id_of = |namespace: &str, least_ms: u64| {
        time::eventually("an id of the wall clock's time", PATIENCE, || {
            let id = server.client().next(namespace, 1).unwrap().ok()?[0];
            (ids::unix_ms(id) >= least_ms).then_some(id)
        })
    };
    let both = ["default", "other"].map(|namespace| id_of(namespace, 0));
    assert_ne!(ids::worker(both[0]), ids::worker(both[1]), "two leases in one pool");
    ids.add(&both);
    step_and_wait(&server, &clock, "+20s");
    ids.add(&["default", "other"].map(|namespace| id_of(namespace, begin_ms + 20_000)));
    step_and_wait(&server, &clock, "+40s");
    server.log_with("jumped forward", PATIENCE);
    clock.step("+20s");
    ids.add(&["default", "other"].map(|namespace| id_of(namespace, begin_ms + 20_000)));
    ids.assert_unique();
}

/// A server whose ids follow each step of a wall clock at once: `--max-skew` allows the steps.
fn by_the_wall(folder: &Path, clock: &FakeClock, rule: &str, layout: &str) -> Server {
    let (skew, window) = (["--max-skew", "2h"], ["--window", "2s"]);
    let args = [&["--clock", "wall", "--rule", rule, "--layout", layout][..], &skew, &window].concat();
    Serve::new(folder).args(args).clock(clock).start()
}

/// Goal: `reject` refuses ids while the clock is behind, and says so; otherwise ids continue. Method: an hour
/// back, and right again; then an hour forward.
#[test]
fn by_the_wall_clock_reject_refuses_until_the_clock_is_right_again() {
    let folder = tempfile::tempdir().unwrap();
    let clock = FakeClock::new(folder.path(), "+0");
    let server = by_the_wall(folder.path(), &clock, "reject", "twitter");
    let mut ids = Ids::new();
    take(&server, 0, &mut ids);
    step_and_wait(&server, &clock, "-1h");
    let refused = server.client().next("default", 1).unwrap().unwrap_err();
    assert!(refused.starts_with("CLOCKBEHIND "), "{refused}");
    server.log_with("the rule decides what happens when it goes back", PATIENCE);
    step_and_wait(&server, &clock, "+0");
    take(&server, 0, &mut ids);
    clock.step("+1h");
    wait_for_ids_of(&server, HOUR_MS, &mut ids);
    take(&server, HOUR_MS, &mut ids);
    ids.assert_unique();
}

/// Goal: `wait` answers once the clock has caught up, and rejects requests beyond its limit. Method: three
/// seconds back, then an hour.
#[test]
fn by_the_wall_clock_wait_waits_for_the_clock() {
    let folder = tempfile::tempdir().unwrap();
    let clock = FakeClock::new(folder.path(), "+0");
    let server = by_the_wall(folder.path(), &clock, "wait(9s)", "twitter");
    let mut ids = Ids::new();
    take(&server, 0, &mut ids);
    clock.step("-3s");
    let waited = server.take(1000);
    let wall_ms = time::unix_ms() - 3000;
    assert!(ids::unix_ms(waited[0]) <= wall_ms, "an id of {} at {wall_ms}", ids::unix_ms(waited[0]));
    ids.add(&waited);
    clock.step("-1h");
    let refused = server.client().next("default", 1).unwrap().unwrap_err();
    assert!(refused.starts_with("CLOCKBEHIND "), "{refused}");
    ids.assert_unique();
}

/// Goal: `borrow` continues ahead of a clock that went back. Method: an hour back, under a rule that covers
/// it.
#[test]
fn by_the_wall_clock_borrow_goes_on_ahead_of_the_clock() {
    let folder = tempfile::tempdir().unwrap();
    let clock = FakeClock::new(folder.path(), "+0");
    let server = by_the_wall(folder.path(), &clock, "borrow(7200s)", "twitter");
    let mut ids = Ids::new();
    take(&server, 0, &mut ids);
    step_and_wait(&server, &clock, "-1h");
    take(&server, 0, &mut ids);
    let log = server.log();
    assert!(!log.contains("ERROR"), "{log}");
    ids.assert_unique();
}

/// Goal: `generation` follows the clock back in another generation, as a backup worker id and as a stepped
/// base sequence. Method: a second back within the lease, under both layouts.
#[test]
fn by_the_wall_clock_a_generation_follows_the_clock_back() {
    for (layout, shift) in [(BACKUP, 20), (STEPPED, 12)] {
        let folder = tempfile::tempdir().unwrap();
        let clock = FakeClock::new(folder.path(), "+0");
        let server = by_the_wall(folder.path(), &clock, "generation", layout);
        let mut ids = Ids::new();
        let generation = |id: u64| (id >> shift) & 3;
        let first = server.take(1000);
        // No generation may use a time before the lease.
        std::thread::sleep(Duration::from_secs(3));
        let before = server.take(1000);
        clock.step("-2s");
        let after = server.take(1000);
        assert!(before.iter().all(|id| generation(*id) == 0), "{layout}");
        assert!(after.iter().all(|id| generation(*id) == 1), "{layout}: {}", generation(after[0]));
        assert!(ids::unix_ms(after[0]) < ids::unix_ms(before[999]), "{layout}: it went back with the clock");
        for taken in [first, before, after] {
            ids.add(&taken);
        }
        ids.assert_unique();
    }
}

/// Goal: no step of a wall clock repeats an id. Method: four nodes on one store with few workers, each with
/// another rule, whose clocks are stepped by up to an hour again and again while ids are drawn.
#[test]
fn no_step_of_a_wall_clock_repeats_an_id() {
    const OFFSETS: [&str; 6] = ["-1h", "-2s", "+0", "+0", "+1s", "+1h"];
    let seed = SplitMix64::seed();
    println!("SNOWMINT_SEED={seed}");
    let mut random = SplitMix64::new(seed);
    let folder = tempfile::tempdir().unwrap();
    let rules = ["reject", "wait(20ms)", "borrow(2s)", "generation then borrow(7200s)"];
    let nodes = rules.map(|rule| {
        let clock = FakeClock::new(folder.path(), "+0");
        // The same layout for all, with fewer workers than the nodes want after a step.
        let layout = "time:41@1ms generation:2 worker:3 sequence:17 epoch:2010-11-04T01:42:54.657Z";
        (by_the_wall(folder.path(), &clock, rule, layout), clock)
    });
    let (mut ids, mut refused) = (Ids::new(), 0);
    for _ in 0..120 {
        nodes[random.index(nodes.len())].1.step(OFFSETS[random.index(OFFSETS.len())]);
        for (server, _) in &nodes {
            match server.client().next("default", 50).unwrap() {
                Ok(taken) => ids.add(&taken),
                Err(error) => {
                    let temporary = error.starts_with("CLOCKBEHIND ") || error.starts_with("NOTREADY ");
                    assert!(temporary, "{error}");
                    refused += 1;
                }
            }
        }
        std::thread::sleep(Duration::from_millis(random.within(0, 100)));
    }
    println!("{} ids, {refused} requests refused", ids.len());
    assert!(ids.len() > 1000 && refused > 0);
    ids.assert_unique();
}
