//! Stores that are restored from a backup while nodes run and clients draw ids and numbers: what holds without the
//! operator, and that nothing is given twice by the procedure of `docs/operations.md`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic is how a test fails")]

mod stores;
mod world;

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
