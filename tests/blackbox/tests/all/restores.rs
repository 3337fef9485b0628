//! Stores that are restored from a backup while nodes run and clients draw ids and numbers: the guarantees
//! without an operator, and no duplicates with the procedure of `docs/restore.md`.

mod stores;
mod world;

use std::time::Duration;

use snowmint_test_servers::snowmint::{self, FakeClock, Ids, Serve, Server, third_party};
use snowmint_test_servers::time;
use snowmint_test_servers::{Etcd, MariaDb, Postgres, Redis, ZooKeeper};

use stores::{Backed, Dumped, File};
use world::{World, by_the_procedure, under_running_nodes};

/// Goal: without an operator, running nodes repeat no id, nor does a node that joins once they have noticed;
/// no node repeats a number that it returned itself. Method: see [`under_running_nodes`].
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

/// Goal: with the procedure, no id and no number is a duplicate over all nodes, before and after. Method: see
/// [`by_the_procedure`].
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

/// Goal: nodes that crashed report nothing, so a stated margin covers what they received. Method: every node
/// is killed before the restore.
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

/// Goal: numbers that a node reserved in advance for the next day are not returned again after a restore.
/// Method: 20 s before midnight a node reserves them; the store goes back to an earlier state and is
/// recovered from the report of the node; then the node and another one on the restored store draw after
/// midnight.
#[test]
fn numbers_reserved_for_the_next_period_are_not_given_again() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        let output = snowmint::run(folder.path(), words);
        assert!(output.status.success(), "{words:?}: {}", snowmint::text(&output));
        snowmint::text(&output)
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

/// The change of the namespace `tickets` after the backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Since {
    Added,
    StartedOver,
    Dropped,
}

/// Two nodes on a store that is backed up. Then a namespace changes, the nodes draw from it, and the first of
/// them crashes unless it can report everything. The backup is recovered from the reports of the others and
/// with a margin; the operator repeats the change; a node on the restored store draws.
fn restored_to_before(since: Since) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let run = |words: &[&str]| {
        let output = snowmint::run(folder.path(), words);
        assert!(output.status.success(), "{words:?}: {}", snowmint::text(&output));
        snowmint::text(&output)
    };
    let [old, new] = ["old", "new"].map(|name| format!("sqlite:{}", path(name)));
    let sizes = ["--scheme", "segment", "--size-min", "100", "--size-max", "100"];
    let add = |store: &str, more: &[&str]| {
        run(&[&["ns", "add", "tickets", "--store", store][..], &sizes, more].concat());
    };
    let serve = |store: &str, holder: &str| {
        std::fs::create_dir(path(holder)).unwrap();
        let args = ["--store", store, "--window", "2s", "--holder", holder, "--namespaces-poll", "100ms"];
        Serve::new(&folder.path().join(holder)).args(args).start()
    };
    let rejected_by = |nodes: [&Server; 2]| {
        time::eventually("nodes reject what was dropped", Duration::from_secs(30), || {
            nodes.iter().all(|it| it.get("/v1/ids/tickets").status == 404).then_some(())
        });
    };
    let mut numbers = Ids::new();
    let mut draw = |server: &Server, times: usize| {
        for _ in 0..times {
            let drawn = time::eventually("numbers", Duration::from_secs(30), || plain_numbers_of(server));
            numbers.add(&drawn);
        }
    };
    run(&["store", "init", "--store", &old]);
    if since != Since::Added {
        add(&old, &[]);
    }
    let (first, second) = (serve(&old, "first"), serve(&old, "second"));
    if since == Since::Dropped {
        draw(&first, 3);
    }
    third_party::output(
        "sqlite3",
        [path("old"), ".timeout 5000".to_owned(), format!(".backup {}", path("new"))],
    );
    match since {
        Since::Added => add(&old, &[]),
        Since::Dropped => {}
        Since::StartedOver => {
            run(&["ns", "drop", "tickets", "--store", &old]);
            rejected_by([&first, &second]);
            add(&old, &["--start-over"]);
        }
    }
    draw(&second, 1);
    draw(&first, 40);
    let mut nodes = format!("http://{}", second.http());
    if since == Since::Dropped {
        nodes = format!("{nodes},http://{}", first.http());
        run(&["ns", "drop", "tickets", "--store", &old]);
        rejected_by([&first, &second]);
    } else {
        drop(first);
    }
    let recover = ["store", "recover", "--store", &new, "--nodes", &nodes, "--window", "1s", "--yes"];
    let margin = if since == Since::Dropped { "0" } else { "10000" };
    run(&[&recover[..], &["--add", margin]].concat());
    match since {
        Since::Added => add(&new, &[]),
        Since::Dropped => {}
        Since::StartedOver => {
            run(&["ns", "drop", "tickets", "--store", &new]);
            add(&new, &["--start-over"]);
        }
    }
    let restored = serve(&new, "third");
    draw(&restored, 60);
    numbers.assert_unique();
}

/// Goal: a namespace that is newer than the backup repeats no number, not even one that a crashed node
/// received. Method: see [`restored_to_before`].
#[test]
fn a_namespace_that_was_added_since_the_backup_repeats_nothing() {
    restored_to_before(Since::Added);
}

/// Goal: the same for a namespace that started over after the backup.
#[test]
fn a_namespace_that_was_started_over_since_the_backup_repeats_nothing() {
    restored_to_before(Since::StartedOver);
}

/// Goal: nodes report the numbers that they received from a namespace even after it was dropped.
#[test]
fn a_namespace_that_was_dropped_since_the_backup_repeats_nothing() {
    restored_to_before(Since::Dropped);
}

/// Returns fifty plain numbers.
fn plain_numbers_of(server: &Server) -> Option<Vec<u64>> {
    let answer = server.get("/v1/ids/tickets?count=50");
    if answer.status != 200 {
        return None;
    }
    answer.json()["ids"].as_array()?.iter().map(|number| number.as_str()?.parse().ok()).collect()
}

/// Returns the numbers in texts such as `2026-11-21-7`.
fn numbers_of(server: &Server) -> Option<Vec<u64>> {
    let answer = server.get("/v1/ids/tickets?count=50");
    if answer.status != 200 {
        return None;
    }
    let texts = answer.json()["ids"].as_array()?.clone();
    texts.iter().map(|text| text.as_str()?.rsplit_once('-')?.1.parse().ok()).collect()
}
