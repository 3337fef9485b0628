//! Stores that are restored from a backup while nodes run and clients draw ids and numbers: what holds without the
//! operator, and that nothing is given twice by the procedure of `docs/operations.md`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic is how a test fails")]

mod stores;
mod world;

use std::time::Duration;

use snowmint_blackbox::{FakeClock, Ids, Serve, Server, binary, time};
use snowmint_test_servers::{Etcd, MariaDb, Postgres, Redis, ZooKeeper};

use stores::{Backed, Dumped, File};
use world::{World, by_the_procedure, under_running_nodes};

/// Goal: without the operator no id is given twice by nodes that were running, nor after another joins that starts once
/// they have noticed; no node gives a number again that it gave itself. Method: as [`under_running_nodes`] says.
#[test]
fn an_sqlite_file_is_restored_under_running_nodes() {
    under_running_nodes(&File::new());
}

#[test]
fn an_etcd_is_restored_under_running_nodes() {
    under_running_nodes(&Backed::<Etcd>::start());
}

#[test]
fn a_postgres_is_restored_under_running_nodes() {
    under_running_nodes(&Backed::<Postgres>::start());
}

#[test]
fn a_redis_is_restored_under_running_nodes() {
    under_running_nodes(&Backed::<Redis>::start());
}

#[test]
fn a_mariadb_is_restored_under_running_nodes() {
    under_running_nodes(&Backed::<MariaDb>::start());
}

#[test]
fn a_zookeeper_is_restored_under_running_nodes() {
    under_running_nodes(&Backed::<ZooKeeper>::start());
}

/// Goal: by the procedure no id and no number is given twice by any node, before and after. Method: as
/// [`by_the_procedure`] says.
#[test]
fn an_sqlite_file_is_restored_by_the_procedure() {
    by_the_procedure(&File::new());
}

#[test]
fn an_etcd_is_restored_by_the_procedure() {
    by_the_procedure(&Backed::<Etcd>::start());
}

#[test]
fn a_postgres_is_restored_by_the_procedure() {
    by_the_procedure(&Backed::<Postgres>::start());
}

#[test]
fn a_dump_of_postgres_is_restored_by_the_procedure() {
    by_the_procedure(&Dumped::start());
}

#[test]
fn a_redis_is_restored_by_the_procedure() {
    by_the_procedure(&Backed::<Redis>::start());
}

#[test]
fn a_mariadb_is_restored_by_the_procedure() {
    by_the_procedure(&Backed::<MariaDb>::start());
}

#[test]
fn a_zookeeper_is_restored_by_the_procedure() {
    by_the_procedure(&Backed::<ZooKeeper>::start());
}

/// Goal: nodes that crashed tell nothing, and a stated margin stands for what they received. Method: every node is
/// killed before the restore.
#[test]
fn a_margin_stands_for_nodes_that_crashed() {
    let store = Backed::<Etcd>::start();
    let mut world = World::start(&store, "3s");
    world.back_up();
    world.kill_all();
    world.restore_by(&["--add", "100000"]);
    world.start_all();
    world.draw_from_all();
    world.check_ids_and_numbers();
}

/// Goal: numbers that a node reserved for the next day, before it begins, are not given again after a restore. Method: a
/// node 20 s before midnight reserves them; the store goes back to before, and is recovered by what the node tells; both
/// the node and one on the restored store then draw after midnight.
#[test]
fn numbers_reserved_for_the_next_period_are_not_given_again() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        let output = binary::run(folder.path(), words);
        assert!(output.status.success(), "{words:?}: {}", binary::text(&output));
        binary::text(&output)
    };
    let [old, new] = ["old", "new"].map(|name| format!("sqlite:{}", folder.path().join(name).display()));
    let add =
        ["ns", "add", "tickets", "--scheme", "segment", "--reset", "daily", "--text", "{date}-{number}"];
    let sizes = ["--size-min", "100", "--size-max", "100"];
    for store in [&old, &new] {
        run(&["store", "init", "--store", store]);
        run(&[&add[..], &sizes, &["--store", store]].concat());
    }
    let left = 86_400 - time::unix_ms() / 1000 % 86_400;
    let clock = FakeClock::new(folder.path(), &format!("+{}s", left + 86_400 - 20));
    let serve = |store: &str| {
        Serve::new(folder.path()).args(["--store", store, "--window", "30s"]).clock(&clock).start()
    };
    let node = serve(&old);
    let told = "snowmint_numbers_highest_of_period{namespace=\"tickets\",period=";
    time::eventually("numbers are reserved for the next day", Duration::from_secs(15), || {
        let metrics = node.get("/metrics").body;
        (metrics.matches(told).count() == 2).then_some(())
    });
    let address = format!("http://{}", node.http());
    run(&["store", "recover", "--store", &new, "--nodes", &address, "--window", "1s", "--yes"]);
    clock.step(&format!("+{}s", left + 86_400 + 60));
    let other = serve(&new);
    let mut numbers = Ids::new();
    for server in [&node, &other] {
        let drawn = time::eventually("numbers of the next day", Duration::from_secs(30), || {
            numbers_of(server).filter(|drawn| drawn.len() == 50)
        });
        numbers.add(&drawn);
    }
    numbers.assert_unique();
}

/// The numbers in texts such as `2026-11-21-7`.
fn numbers_of(server: &Server) -> Option<Vec<u64>> {
    let answer = server.get("/v1/ids/tickets?count=50");
    if answer.status != 200 {
        return None;
    }
    let texts = answer.json()["ids"].as_array()?.clone();
    texts.iter().map(|text| text.as_str()?.rsplit_once('-')?.1.parse().ok()).collect()
}
