//! Processes that start with a wrong clock, on a store whose records show another time.

use std::time::Duration;

use snowmint_test_servers::snowmint::ids::{self, increase};
use snowmint_test_servers::snowmint::{FakeClock, Ids, Serve, Server};
use snowmint_test_servers::{Etcd, snowmint, time};

const HOUR_MS: u64 = 3_600_000;
const SLACK_MS: u64 = 60_000;

/// Draws ids and checks that they increase and were made about `offset_ms` from now, by one worker. Returns
/// that worker.
fn take(server: &Server, offset_ms: i64, ids: &mut Ids) -> u64 {
    let taken = server.take(5000);
    assert!(increase(&taken));
    let expected = time::unix_ms().saturating_add_signed(offset_ms);
    for &id in &taken {
        let off = ids::unix_ms(id).abs_diff(expected);
        assert!(off < SLACK_MS, "made {off} ms from where the clock of its server stands:\n{}", server.log());
    }
    ids.add(&taken);
    ids::worker(taken[0])
}

/// Goal: a clock an hour behind the records costs a warning, nothing else. Its node may be granted the time
/// before the first grant of a worker. Method: a normal server makes ids and ends; one that starts an hour
/// behind finds its record, and others beside it continue.
#[test]
fn an_hour_behind_repeats_no_id_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::new(folder.path());
    let mut ids = Ids::new();
    let normal = serve.start();
    let worker = take(&normal, 0, &mut ids);
    assert!(normal.metric("snowmint_records_ahead_seconds").abs() < 0.001);
    let (http, resp) = (normal.http(), normal.resp());
    normal.stop();

    // On the same ports it is the same node, which prefers its previous worker.
    let clock = FakeClock::new(folder.path(), "-1h");
    let behind = serve.clone().clock(&clock).ports(http, resp).start();
    take(&behind, -(HOUR_MS.cast_signed()), &mut ids);
    let log = behind.log_with("records reach further ahead than this clock", Duration::from_secs(5));
    let line = log.lines().find(|line| line.contains("records reach further ahead")).unwrap();
    let ahead_ms: u64 = figure(line, "ahead_ms");
    assert!((HOUR_MS - SLACK_MS..HOUR_MS + SLACK_MS).contains(&ahead_ms), "{line}");
    assert!(line.contains("WARN") && line.contains(&format!("worker={worker}")), "{line}");
    let metric = behind.metric("snowmint_records_ahead_seconds");
    assert!((3540.0..3660.0).contains(&metric), "{metric}");

    // Over a store without a clock, the clock of a node that lives counts.
    serve.refused().assert_says(&["ahead of that of", "which renews worker"]);
    let beside = serve.clone().args(["--max-skew", "2h"]).start();
    for _ in 0..10 {
        take(&behind, -(HOUR_MS.cast_signed()), &mut ids);
        take(&beside, 0, &mut ids);
    }
    behind.stop();
    // The same clock again, and the correct one: all of them continue from the records in the store.
    take(&serve.clone().clock(&clock).start(), -(HOUR_MS.cast_signed()), &mut ids);
    take(&serve.start(), 0, &mut ids);
    ids.assert_unique();
}

/// Goal: a clock that is 1 h ahead produces no duplicate, not even on the worker whose future it has used,
/// and takes none beside a server that lives. Method: one such server between normal ones, with a limit that
/// allows it; it is killed, and one that exits cleanly follows it.
#[test]
fn an_hour_ahead_makes_no_duplicate_beside_normal_servers() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::new(folder.path());
    let hour = HOUR_MS.cast_signed();
    let mut ids = Ids::new();
    let first = serve.start();
    take(&first, 0, &mut ids);

    let clock = FakeClock::new(folder.path(), "+1h");
    serve.clone().clock(&clock).refused().assert_says(&["ahead of that of", "which renews worker"]);
    let ahead = serve.clone().clock(&clock).args(["--max-skew", "2h"]);
    let mut killed = ahead.start();
    let worker = take(&killed, hour, &mut ids);
    for _ in 0..10 {
        take(&killed, hour, &mut ids);
        take(&first, 0, &mut ids);
    }
    killed.kill();
    let (http, resp) = (killed.http(), killed.resp());
    let stopped = ahead.start();
    take(&stopped, hour, &mut ids);
    stopped.stop();

    // The same node with a correct clock: its own record now lies in the future.
    let late = serve.clone().ports(http, resp).start();
    assert_ne!(take(&late, 0, &mut ids), worker, "an hour of that worker's timestamps is taken");
    let metric = late.metric("snowmint_records_ahead_seconds");
    assert!((3540.0..3660.0).contains(&metric), "{metric}");
    take(&first, 0, &mut ids);
    ids.assert_unique();
}

/// Goal: no order of right and wrong clocks produces a duplicate. Method: servers a, b, c start and end with
/// clocks an hour behind, right and an hour ahead in turn, cleanly or by force. Each keeps its ports, so it
/// finds its own records again.
#[test]
fn every_mix_of_clocks_at_start_makes_no_duplicate() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::new(folder.path()).args(["--window", "1s", "--max-skew", "3h"]);
    let offsets = [("-1h", -(HOUR_MS.cast_signed())), ("+0", 0), ("+1h", HOUR_MS.cast_signed())];
    let mut ids = Ids::new();
    let mut servers: Vec<Server> = Vec::new();
    for round in 0..9 {
        let (text, offset_ms) = offsets[(round * 2 + round / 3) % 3];
        let clock = FakeClock::new(folder.path(), text);
        let serve = serve.clone().clock(&clock);
        let server = if servers.len() < 3 {
            serve.start()
        } else {
            let old = servers.remove(0);
            let (http, resp) = (old.http(), old.resp());
            if round % 2 == 0 {
                old.stop();
            } else {
                drop(old);
            }
            serve.ports(http, resp).start()
        };
        take(&server, offset_ms, &mut ids);
        servers.push(server);
        for server in &servers {
            ids.add(&server.take(1000));
        }
    }
    ids.assert_unique();
}

/// Goal: restarts with a clock that is ahead block no worker until that time. Method: 32 workers; 40 servers
/// that crash with a clock an hour ahead, 40 that are 20 years ahead, and 40 that start at one date; after
/// each, a server with a correct clock has ids within 10 s. All of them draw ids.
#[test]
fn crashes_with_a_clock_ahead_block_no_worker() {
    const TWENTY_YEARS_MS: i64 = 20 * 365 * 24 * 3_600_000;
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::new(folder.path()).args(["--layout", "twitter"]);
    let mut ids = Ids::new();
    for (offset, offset_ms) in [
        ("+1h", Some(HOUR_MS.cast_signed())),
        ("+20y", Some(TWENTY_YEARS_MS)),
        ("@2047-01-01 00:00:00", None),
    ] {
        let clock = FakeClock::new(folder.path(), offset);
        let ahead = serve.clone().clock(&clock);
        for _ in 0..40 {
            let mut server = ahead.start();
            match offset_ms {
                Some(offset_ms) => drop(take(&server, offset_ms, &mut ids)),
                None => ids.add(&server.take(1000)),
            }
            server.kill();
        }
        let mut correct = serve.spawn();
        let (after, first) = correct.first_id();
        assert!(after < Duration::from_secs(10), "{offset}: {after:?}\n{}", correct.log());
        ids.add(&[first]);
        take(&correct, 0, &mut ids);
        println!("{offset}: the first id after {after:?}");
        correct.kill();
    }
    ids.assert_unique();
}

/// Goal: a node whose clock is years ahead takes no worker of an etcd, which has a clock. Method: 32 workers;
/// two healthy nodes, 32 starts with a clock 20 years ahead, and a third healthy node.
#[test]
fn etcd_refuses_starts_years_ahead() {
    let (folder, etcd) = (tempfile::tempdir().unwrap(), Etcd::start());
    let url = format!("etcd://{}", etcd.address());
    let serve = Serve::new(folder.path()).args(["--store", &url, "--layout", "twitter"]);
    let healthy = [serve.start(), serve.start()];
    let clock = FakeClock::new(folder.path(), "+20y");
    let ahead = serve.clone().clock(&clock);
    for _ in 0..32 {
        ahead.refused().assert_says(&["ahead of the store's, more than the 30000 ms allowed"]);
    }
    let mut ids = Ids::new();
    let third = serve.start();
    for server in healthy.iter().chain([&third]) {
        take(server, 0, &mut ids);
        assert_eq!(server.get("/metrics").status, 200);
    }
    let listed = snowmint::run(folder.path(), ["workers", "--store", &url]);
    assert!(
        listed.status.success()
            && !snowmint::text(&listed).contains("2046-")
            && !snowmint::text(&listed).contains("2047-"),
        "{}",
        snowmint::text(&listed)
    );
    let doctor = snowmint::run(folder.path(), ["doctor", "--store", &url]);
    assert!(snowmint::text(&doctor).contains("clock equals the store's"), "{}", snowmint::text(&doctor));
    ids.assert_unique();
}

/// Returns the number after `name=` in a log line.
fn figure(line: &str, name: &str) -> u64 {
    let plain = strip_colour(line);
    let rest = plain.split_once(&format!("{name}=")).unwrap_or_else(|| panic!("no {name} in {line}")).1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{name} is no number in {line}"))
}

/// A log that is not written to a terminal must have no colour.
fn strip_colour(line: &str) -> &str {
    assert!(!line.contains('\x1b'), "colour in a file: {line:?}");
    line
}
