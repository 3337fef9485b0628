//! The Redis store against real servers: the suite, crashes, bad networks, replicas, memory, clusters, TLS.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use snowmint_store::{Expected, Store, StoreError, StoreErrorKind, Swap, conformance};
use snowmint_test_servers::{Proxy, Redis, Server};
use tokio::time::{Instant, sleep};

use crate::support::outages;
use crate::support::traffic::load_again;
use crate::support::{SECRET, eventually, key, open, put, refused};

fn url(server: &Server) -> String {
    format!("redis://{}", server.address())
}

/// Queries the server itself, without the store.
fn cli(address: SocketAddr, command: &[&str]) -> String {
    cli_bytes(address, &command.iter().map(|it| it.as_bytes()).collect::<Vec<_>>())
}

fn cli_bytes(address: SocketAddr, command: &[&[u8]]) -> String {
    let mut cli = Command::new("redis-cli");
    cli.args(["-h", "127.0.0.1", "-p", &address.port().to_string()]);
    cli.args(command.iter().map(|it| OsStr::from_bytes(it)));
    let output = cli.output().expect("redis-cli: apt-get install redis-tools");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract() {
    let server = Redis::start();
    let url = url(&server);
    conformance::run(async || open(&url).await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_survives_crashes_pauses_and_bad_networks() {
    let server = Redis::start();
    let direct = open(&url(&server)).await;
    let proxy = Proxy::start(server.address());
    let store = open(&format!("redis://{}?timeout_ms=1000", proxy.address())).await;
    outages::survives_a_bad_network(store, Arc::clone(&direct), &proxy).await;
    let store = open(&format!("{}?timeout_ms=1000", url(&server))).await;
    outages::survives_a_pause(Arc::clone(&store), &server).await;
    outages::survives_a_crash(store, &server).await;
    drop(direct);
}

#[tokio::test]
async fn it_tells_the_time_and_its_names() {
    let server = Redis::start();
    let url = format!("{}/3?prefix=team", url(&server));
    let store = open(&url).await;
    outages::tells_the_time(&*store).await;
    outages::opens_in_a_race(&url).await;
    assert_eq!(store.describe(), format!("redis://{}/3?prefix=team", server.address()));
    let keys = cli(server.address(), &["-n", "3", "KEYS", "{team}:record:race/1*"]);
    assert_eq!(keys.lines().count(), 3, "{keys}");
    assert_eq!(cli(server.address(), &["-n", "3", "ZCARD", "{team}:index"]), "12");
    let schema = snowmint_store::schema(&url).unwrap();
    assert!(schema.contains("{team}:record:KEY") && schema.contains("~{team}:*"), "{schema}");
}

/// Goal: a user with the permissions that `schema` shows, and no others, can do everything. Method: create
/// that user.
#[tokio::test]
async fn passwords_and_rights() {
    let server = Redis::start();
    let schema = snowmint_store::schema(&url(&server)).unwrap();
    let rights = schema.lines().find_map(|line| line.strip_prefix("ACL SETUSER ... on >... ")).unwrap();
    let password = format!(">{SECRET}");
    let acl = ["ACL", "SETUSER", "node", "on", &password];
    let acl: Vec<&str> = acl.into_iter().chain(rights.split_whitespace()).collect();
    assert_eq!(cli(server.address(), &acl), "OK");
    assert_eq!(cli(server.address(), &["CONFIG", "SET", "requirepass", SECRET]), "OK");

    let address = server.address();
    let store = open(&format!("redis://node:{SECRET}@{address}")).await;
    put(&*store, "a", b"1").await;
    assert_eq!(store.list("").await.unwrap().len(), 1);
    store.unix_ms().await.unwrap();
    assert!(!format!("{store:?} {}", store.describe()).contains(SECRET));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    let store = open(&format!("redis://{address}?password_file={}", file.display())).await;
    // A new password is read from the file for the next connection.
    let admin = |password, command: &[&str]| {
        cli(server.address(), &[&["-a", password, "--no-auth-warning"], command].concat())
    };
    assert_eq!(admin(SECRET, &["CONFIG", "SET", "requirepass", "another"]), "OK");
    std::fs::write(&file, "another\n").unwrap();
    assert_ne!(admin("another", &["CLIENT", "KILL", "TYPE", "normal"]), "0");
    while let Err(error) = store.load(&key("a")).await {
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    }
    assert_eq!(admin("another", &["CONFIG", "SET", "requirepass", SECRET]), "OK");

    for (login, says) in [
        (String::new(), "NOAUTH"),
        (format!("node:{SECRET}x@"), "check user and password"),
        (format!(":{SECRET}x@"), "check user and password"),
    ] {
        let (kind, error) = refused(&format!("redis://{login}{address}")).await;
        assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
        assert!(error.contains(says), "{error}");
    }
    let (kind, error) = refused(&format!("redis://node:{SECRET}@{address}?prefix=other")).await;
    assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
    assert!(error.contains("NOPERM"), "{error}");
}

#[tokio::test]
async fn a_server_that_would_forget_is_refused() {
    let server = Redis::with(&["--appendonly", "no"]);
    let (kind, error) = refused(&url(&server)).await;
    assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
    assert!(error.contains("appendonly yes") && error.contains("durable=no"), "{error}");
    open(&format!("{}?durable=no", url(&server))).await;

    let server = Redis::with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let (_, error) = refused(&url(&server)).await;
    assert!(error.contains("noeviction"), "{error}");
}

#[tokio::test]
async fn what_a_server_refuses_has_a_kind() {
    let server = Redis::start();
    let store = open(&url(&server)).await;
    let revision = put(&*store, "a", b"1").await.revision;
    let swap = async || store.compare_and_set(&key("a"), Expected::Revision(revision), b"2").await;

    // Out of memory: the server can be read but not written.
    cli(server.address(), &["CONFIG", "SET", "maxmemory", "1"]);
    let error = swap().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Full, "{error}");
    assert_eq!(store.load(&key("a")).await.unwrap().unwrap().value, b"1");
    cli(server.address(), &["CONFIG", "SET", "maxmemory", "0"]);

    // Too few replicas: it may be a primary that was replaced, and must not even be read.
    cli(server.address(), &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let error = swap().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert_eq!(store.load(&key("a")).await.unwrap_err().kind(), StoreErrorKind::Unavailable);
    cli(server.address(), &["CONFIG", "SET", "min-replicas-to-write", "0"]);

    // A foreign value under our name.
    cli(server.address(), &["SET", "{snowmint}:record:b", "text"]);
    let error = store.load(&key("b")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
    let error = store.compare_and_set(&key("b"), Expected::Absent, b"").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");

    // It does not hide the other records, and neither does an invalid key.
    cli(server.address(), &["ZADD", "{snowmint}:index", "0", "b", "0", "what is this?"]);
    cli(server.address(), &["HINCRBY", "{snowmint}:count", "n", "2"]);
    assert_eq!(store.list("").await.unwrap().len(), 1);
    let skipped = store.skipped();
    assert!(skipped.iter().any(|it| it.contains(":record:b`")), "{skipped:?}");
    assert!(skipped.len() == 2 && skipped.iter().any(|it| it.contains("what is this?")), "{skipped:?}");

    // A server that has lost all scripts gets them again.
    cli(server.address(), &["SCRIPT", "FLUSH"]);
    assert_ne!(swap().await.unwrap(), Swap::Conflict);
}

/// Goal: a name that is not UTF-8 stops no list, no start and no survey, with the index and without it.
/// Method: names of other programs among the records, and an index that has to be rebuilt from them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_other_programs_are_skipped_and_told() {
    let server = Redis::start();
    let put_foreign = async |name: &[u8]| {
        let record = [b"{snowmint}:record:", name].concat();
        cli_bytes(server.address(), &[b"HSET", &record, b"r", b"1"]) == "1"
    };
    let url = url(&server);
    conformance::skips_foreign_names(
        async || {
            let store = open(&url).await;
            cli(server.address(), &["DEL", "{snowmint}:index", "{snowmint}:count"]);
            store
        },
        put_foreign,
    )
    .await
    .unwrap();
    cli_bytes(server.address(), &[b"SET", b"seq:\xff", b"7"]);
    cli(server.address(), &["SET", "seq:a", "5"]);
    let survey = snowmint_store::survey(&format!("redis-counter:{url}?counter=seq:*")).await.unwrap();
    assert_eq!(survey.counters.len(), 1, "{survey:?}");
    assert!(survey.rejected[0].name.contains("seq:\\xff"), "{survey:?}");
    // A revision that is not UTF-8.
    let store = open(&url).await;
    put(&*store, "workers/x", b"1").await;
    cli_bytes(server.address(), &[b"HSET", b"{snowmint}:record:workers/x", b"r", b"\xff"]);
    assert!(store.list("workers/").await.unwrap().is_empty());
}

/// Goal: a record that lost its revision does not count as a free key. Method: delete each field without the
/// store, and claim the key like a caller that finds it missing in a list.
#[tokio::test]
async fn a_damaged_record_is_not_overwritten() {
    let server = Redis::start();
    let store = open(&url(&server)).await;
    for field in ["r", "v"] {
        put(&*store, field, b"held").await;
        let record = format!("{{snowmint}}:record:{field}");
        assert_eq!(cli(server.address(), &["HDEL", &record, field]), "1");
        assert!(store.list("").await.unwrap().is_empty(), "it is skipped");
        let left = cli(server.address(), &["HGETALL", &record]);
        let swap = store.compare_and_set(&key(field), Expected::Absent, b"mine").await;
        assert_eq!(swap.unwrap(), Swap::Conflict, "without {field}");
        assert_eq!(cli(server.address(), &["HGETALL", &record]), left, "without {field}");
        assert_eq!(store.load(&key(field)).await.unwrap_err().kind(), StoreErrorKind::Corrupt);
    }
}

#[tokio::test]
async fn a_replica_is_refused_and_the_primary_found() {
    let primary = Redis::start();
    let replica = Redis::replica_of(&primary, &[]);
    let (kind, error) = refused(&url(&replica)).await;
    assert_eq!(kind, Some(StoreErrorKind::ReadOnly), "{error}");
    assert!(error.contains("is a read-only replica"), "{error}");

    let store = open(&format!("redis://{},{}?timeout_ms=2000", replica.address(), primary.address())).await;
    let before = put(&*store, "a", b"1").await.revision;
    // Roles change while the connection is open: neither a read nor a write may go to the old primary.
    eventually("the servers", || cli(replica.address(), &["HGET", "{snowmint}:record:a", "v"]) == "1").await;
    replica.promote();
    primary.follow(&replica);
    primary.wait_connected();
    let found = match store.load(&key("a")).await {
        // All hosts had to be asked before this call.
        Ok(found) => found.unwrap(),
        Err(error) => {
            // Another host may have been promoted: worth a retry.
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
            store.load(&key("a")).await.unwrap().unwrap()
        }
    };
    assert_eq!((found.revision, &*found.value), (before, &b"1"[..]));
    put(&*store, "a", b"2").await;
    assert_eq!(cli(replica.address(), &["HGET", "{snowmint}:record:a", "v"]), "2");
}

#[tokio::test]
async fn wait_replicas_waits_for_copies() {
    let primary = Redis::start();
    let url = format!("{}?wait_replicas=1&wait_ms=500", url(&primary));
    let (kind, error) = refused(&url).await;
    assert_eq!(kind, Some(StoreErrorKind::Unavailable), "{error}");
    assert!(error.contains("0 replicas have confirmed"), "{error}");

    let replica = Redis::replica_of(&primary, &[]);
    // A new replica confirms nothing while it loads the data.
    let started = Instant::now();
    let store = loop {
        if let Ok(store) = snowmint_store::open_backend(&url).await
            && store.load(&key("a")).await.is_ok()
        {
            break store;
        }
        assert!(started.elapsed() < Duration::from_mins(1), "the replica confirms nothing");
    };
    let first = put(&*store, "a", b"1").await.revision;
    assert_eq!(cli(replica.address(), &["HGET", "{snowmint}:record:a", "v"]), "1");

    replica.pause();
    let error = store.compare_and_set(&key("a"), Expected::Revision(first), b"2").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error}");
    // The write is there, but a read may not show it before a replica has it.
    let error = store.load(&key("a")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    replica.resume();
    let started = Instant::now();
    let found = loop {
        match store.load(&key("a")).await {
            Ok(found) => break found,
            Err(error) => assert!(started.elapsed() < Duration::from_mins(1), "still: {error}"),
        }
    };
    assert_eq!(found.unwrap().value, b"2");

    // A write that happened but whose wait failed does not count as refused.
    cli(primary.address(), &["ACL", "SETUSER", "default", "-wait"]);
    let error = store.compare_and_set(&key("b"), Expected::Absent, b"3").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error}");
    assert!(error.to_string().contains("did not wait for replicas"), "{error}");
    assert_eq!(cli(primary.address(), &["HGET", "{snowmint}:record:b", "v"]), "3");
}

/// Goal: a list is complete whatever happened to its index. Method: delete parts of the index, in every
/// combination, also while others write; a prefix full of characters that are special in a pattern.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_deleted_index_is_rebuilt() {
    const RECORDS: usize = 450;
    let server = Redis::start();
    let store = open(&format!("{}?prefix=te[a]m*?", url(&server))).await;
    // A key that is not ours.
    server.command(&["HSET", "{team*?}:record:a", "r", "1", "v", "foreign"]);
    assert!(store.list("").await.unwrap().is_empty());
    for nth in 0..RECORDS {
        put(&*store, &format!("rebuilt/{nth}"), b"1").await;
    }
    let (index, count) = ("{te[a]m*?}:index", "{te[a]m*?}:count");
    let complete = async |trouble: &str| {
        assert_eq!(store.list("rebuilt/").await.unwrap().len(), RECORDS, "{trouble}");
        let kept = [server.command(&["ZCARD", index]), server.command(&["HGET", count, "n"])];
        assert_eq!(kept, [RECORDS, RECORDS].map(|it| it.to_string()), "{trouble}");
    };
    for keys in [&[index][..], &[count], &[index, count]] {
        server.command(&[&["DEL"], keys].concat());
        complete(&format!("without {keys:?}")).await;
        server.command(&[&["DEL"], keys].concat());
        put(&*store, "rebuilt/7", b"2").await;
        store.add(&key("rebuilt/8"), std::num::NonZeroU64::MIN).await.unwrap();
        complete(&format!("with writes after {keys:?} went")).await;
    }
    server.command(&["ZREM", index, "rebuilt/44", "rebuilt/9"]);
    complete("without two").await;
    server.command(&["DEL", index]);
    let writer = async {
        for nth in 0..100 {
            put(&*store, &format!("more/{nth}"), b"1").await;
        }
    };
    let (listed, ()) = tokio::join!(store.list("rebuilt/"), writer);
    assert_eq!(listed.unwrap().len(), RECORDS);
    assert_eq!(store.list("").await.unwrap().len(), RECORDS + 100);
}

/// Goal: settings that change while a server is in use count as much as settings from before.
#[tokio::test]
async fn settings_that_change_are_noticed() {
    let server = Redis::start();
    let store = open(&url(&server)).await;
    let first = put(&*store, "a", b"1").await.revision;
    for (wrong, right, says) in [
        (["appendonly", "no"], ["appendonly", "yes"], "set appendonly yes"),
        (
            ["maxmemory-policy", "allkeys-lru"],
            ["maxmemory-policy", "noeviction"],
            "set maxmemory-policy noeviction",
        ),
    ] {
        server.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
        server.command(&["CONFIG", "SET", wrong[0], wrong[1]]);
        let error = until_it_fails(&*store).await;
        assert_eq!(error.kind(), StoreErrorKind::Other, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        let error = store.compare_and_set(&key("a"), Expected::Revision(first), b"2").await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Other, "{error}");
        server.command(&["CONFIG", "SET", right[0], right[1]]);
        assert_eq!(store.load(&key("a")).await.unwrap().unwrap().value, b"1");
    }
}

/// Goal: a cluster stays usable if the nodes that the URL names die. Method: the named node dies, then the
/// owner, and a replica that is not in the URL takes over.
#[tokio::test]
async fn a_cluster_is_followed_beyond_the_nodes_of_the_url() {
    let settings =
        ["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no", "--repl-diskless-sync", "no"];
    let [seed, owner, heir] = [(); 3].map(|()| Redis::with(&settings));
    owner.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    for node in [&seed, &heir] {
        node.command(&["CLUSTER", "MEET", "127.0.0.1", &owner.port().to_string()]);
        eventually("the servers", || node.command(&["GET", "x"]).starts_with("MOVED")).await;
    }
    let id = owner.command(&["CLUSTER", "MYID"]);
    eventually("the servers", || heir.command(&["CLUSTER", "REPLICATE", &id]) == "OK").await;
    heir.wait_connected();
    eventually("the servers", || owner.command(&["CLUSTER", "SLOTS"]).contains(&heir.port().to_string()))
        .await;
    let store = open(&format!("{}?may_lose=246s", url(&seed))).await;
    put(&*store, "a", b"1").await;
    seed.kill9();
    put(&*store, "a", b"2").await;
    heir.wait_synced(&owner);
    owner.kill9();
    assert_eq!(heir.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]), "OK");
    let started = Instant::now();
    let found = loop {
        match store.load(&key("a")).await {
            Ok(found) => break found,
            Err(error) => assert!(started.elapsed() < Duration::from_mins(1), "still: {error}"),
        }
    };
    assert_eq!(found.unwrap().value, b"2");
    put(&*store, "a", b"3").await;
    assert_eq!(heir.command(&["HGET", "{snowmint}:record:a", "v"]), "3");
}

/// Three members of a cluster: the owner of all slots but one, its replica, and one that has that slot.
async fn cluster() -> [Redis; 3] {
    let members = [(); 3].map(|()| Redis::with(&["--cluster-enabled", "yes", "--repl-diskless-sync", "no"]));
    let [owner, heir, witness] = &members;
    owner.command(&["CLUSTER", "ADDSLOTSRANGE", "1", "16383"]);
    witness.command(&["CLUSTER", "ADDSLOTS", "0"]);
    for node in [heir, witness] {
        node.command(&["CLUSTER", "MEET", "127.0.0.1", &owner.port().to_string()]);
    }
    let ids = members.each_ref().map(|it| it.command(&["CLUSTER", "MYID"]));
    let all_know_all =
        || members.iter().all(|it| ids.iter().all(|id| it.command(&["CLUSTER", "NODES"]).contains(id)));
    eventually("that all know all", all_know_all).await;
    eventually("the servers", || heir.command(&["CLUSTER", "REPLICATE", &ids[0]]) == "OK").await;
    heir.wait_connected();
    let follows = format!("slave {}", ids[0]);
    for node in &members {
        eventually("the servers", || node.command(&["CLUSTER", "INFO"]).contains("cluster_state:ok")).await;
        eventually("the servers", || node.command(&["CLUSTER", "NODES"]).contains(&follows)).await;
    }
    members
}

/// Goal: a primary that is cut off from the other members of its cluster is abandoned for its successor,
/// whether it knows that it is cut off or not. Method: tell it to forget the others, which lasts 1 minute;
/// with full coverage it then refuses all calls, and without it continues to accept them.
#[tokio::test]
async fn a_member_that_is_cut_off_is_left_for_its_heir() {
    for coverage in ["yes", "no"] {
        let [owner, heir, witness] = cluster().await;
        let hosts = format!("redis://{},{}?may_lose=246s&timeout_ms=2000", owner.address(), heir.address());
        let store = open(&hosts).await;
        put(&*store, "a", b"1").await;
        heir.wait_synced(&owner);
        owner.command(&["CONFIG", "SET", "cluster-require-full-coverage", coverage]);
        // Valkey tells other members what one forgets: the heir forgets the owner of another slot.
        heir.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
        for other in [&heir, &witness] {
            let id = other.command(&["CLUSTER", "MYID"]);
            assert_eq!(owner.command(&["CLUSTER", "FORGET", &id]), "OK");
        }
        let state = if coverage == "yes" { "cluster_state:fail" } else { "cluster_state:ok" };
        eventually("the servers", || owner.command(&["CLUSTER", "INFO"]).contains(state)).await;
        assert_eq!(heir.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]), "OK");
        let started = Instant::now();
        let mut writes = 2;
        // Until a later number is there: a new primary may refuse reads for a moment.
        let written = || heir.command(&["HGET", "{snowmint}:record:a", "v"]).parse::<u64>();
        while !written().is_ok_and(|it| it > 1) {
            assert!(started.elapsed() < Duration::from_secs(30), "coverage {coverage}: the heir is not used");
            let Ok(Some(found)) = store.load(&key("a")).await else { continue };
            let next = writes.to_string();
            store.compare_and_set(&key("a"), Expected::Revision(found.revision), next.as_bytes()).await.ok();
            writes += 1;
        }
        println!("coverage {coverage}: the heir is used after {:?}", started.elapsed());
        assert_eq!(owner.info("role"), "master", "the cut has healed");
        // The old one is not used either when no other is up.
        heir.pause();
        let error = store.load(&key("a")).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        heir.resume();
    }
}

/// Goal: a member that has our keys because they were moved there is used, although it once was a replica of
/// the one that gave them away, and left its line before what has settled. Method: a replica that becomes a
/// separate shard.
#[tokio::test]
async fn a_replica_that_became_a_shard_is_used() {
    let [owner, heir, _witness] = cluster().await;
    let ids = [&owner, &heir].map(|it| it.command(&["CLUSTER", "MYID"]));
    assert_eq!(heir.command(&["CLUSTER", "RESET", "SOFT"]), "OK");
    heir.command(&["CLUSTER", "MEET", "127.0.0.1", &owner.port().to_string()]);
    let nodes = |server: &Redis| server.command(&["CLUSTER", "NODES"]);
    eventually("the servers", || nodes(&heir).contains(&ids[0]) && !nodes(&owner).contains("slave")).await;
    eventually("the servers", || heir.command(&["CLUSTER", "INFO"]).contains("cluster_state:ok")).await;
    let store = open(&url(&owner)).await;
    put(&*store, "a", b"1").await;
    let started = Instant::now();
    while started.elapsed() < store.may_lose() + Duration::from_secs(3) {
        put(&*store, "a", b"1").await;
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(heir.info("master_replid2"), owner.info("master_replid"));

    let slot = owner.command(&["CLUSTER", "KEYSLOT", "{snowmint}"]);
    heir.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]);
    owner.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]);
    let keys = owner.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
    let port = heir.port().to_string();
    let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
    migrate.extend(keys.split_whitespace());
    assert_eq!(owner.command(&migrate), "OK");
    for node in [&heir, &owner] {
        assert_eq!(node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &ids[1]]), "OK");
    }
    let started = Instant::now();
    let found = loop {
        match store.load(&key("a")).await {
            Ok(found) => break found,
            Err(error) => assert!(
                error.kind() != StoreErrorKind::Other && started.elapsed() < Duration::from_secs(20),
                "{error}"
            ),
        }
        sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(found.unwrap().value, b"1");
    put(&*store, "a", b"2").await;
    assert_eq!(heir.command(&["HGET", "{snowmint}:record:a", "v"]), "2");
}

/// Goal: writes that a member acknowledges while it is cut off are within `may_lose`. Method: values below
/// and above, and a member that stops by itself without its replica.
#[tokio::test]
async fn a_cluster_needs_a_loss_that_covers_a_cut() {
    let [owner, heir, _witness] = cluster().await;
    let hosts = format!("redis://{},{}", owner.address(), heir.address());
    let may_lose = |loss: &str| format!("{hosts}?may_lose={loss}");
    for url in [hosts.clone(), may_lose("245s")] {
        let (kind, error) = refused(&url).await;
        assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
        assert!(error.contains("cluster-node-timeout") && error.contains("at least 245500ms"), "{error}");
    }
    open(&may_lose("246s")).await;
    for (node, expected) in [(&owner, false), (&heir, true)] {
        assert_eq!(node.command(&["CONFIG", "SET", "cluster-replica-validity-factor", "1"]), "OK");
        assert_eq!(
            snowmint_store::open_backend(&may_lose("111s")).await.is_ok(),
            expected,
            "a replica goes by its own settings"
        );
    }
    open(&format!("{hosts}?wait_replicas=1")).await;
    for (setting, value) in [("min-replicas-to-write", "1"), ("min-replicas-max-lag", "1")] {
        assert_eq!(owner.command(&["CONFIG", "SET", setting, value]), "OK");
    }
    refused(&hosts).await;
    let store = open(&may_lose("3s")).await;
    owner.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    assert_eq!(until_it_fails(&*store).await.kind(), StoreErrorKind::Other);
}

/// Goal: a copy outside of the cluster does not stand in for its replica, for which WAIT counts it. Method:
/// such a copy beside the replica, and alone.
#[tokio::test]
async fn a_copy_outside_of_the_cluster_is_no_replica() {
    let [owner, heir, _witness] = cluster().await;
    let url = |copies| format!("redis://{}?may_lose=0&wait_replicas={copies}", owner.address());
    open(&url(1)).await;
    let _copy = Redis::replica_of(&owner, &[]);
    let online = || owner.command(&["INFO", "replication"]).matches("state=online").count();
    eventually("the copy", || online() == 2).await;
    let is_refused = async || {
        let (kind, error) = refused(&url(1)).await;
        assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
        assert!(error.contains("with wait_replicas=2"), "{error}");
    };
    is_refused().await;
    open(&url(2)).await;
    heir.kill9();
    eventually("that the replica is gone", || owner.info("connected_slaves") == "1").await;
    is_refused().await;
}

/// Goal: a new member that is given our keys is found, and keys that are about to move stay usable. Method: a
/// member joins after the store was opened; the slot is opened for a move, and moved later.
#[tokio::test]
async fn a_member_that_joins_later_and_gets_the_keys_is_found() {
    let settings = ["--cluster-enabled", "yes"];
    let [owner, witness, late] = [(); 3].map(|()| Redis::with(&settings));
    owner.command(&["CLUSTER", "ADDSLOTSRANGE", "1", "16383"]);
    witness.command(&["CLUSTER", "ADDSLOTS", "0"]);
    let meet = async |node: &Redis| {
        node.command(&["CLUSTER", "MEET", "127.0.0.1", &owner.port().to_string()]);
        let knows = |one: &Redis, other: &Redis| {
            one.command(&["CLUSTER", "NODES"]).contains(&other.command(&["CLUSTER", "MYID"]))
        };
        eventually("that they know each other", || knows(&owner, node) && knows(node, &owner)).await;
    };
    meet(&witness).await;
    for node in [&owner, &witness] {
        eventually("the cluster", || node.command(&["CLUSTER", "INFO"]).contains("cluster_state:ok")).await;
    }
    let store = open(&url(&owner)).await;
    let mut revision = put(&*store, "a", b"1").await.revision;
    meet(&late).await;
    eventually("the cluster", || late.command(&["CLUSTER", "INFO"]).contains("cluster_state:ok")).await;

    let slot = owner.command(&["CLUSTER", "KEYSLOT", "{snowmint}"]);
    let ids = [&owner, &late].map(|it| it.command(&["CLUSTER", "MYID"]));
    late.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]);
    owner.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]);
    for _ in 0..3 {
        match store.compare_and_set(&key("a"), Expected::Revision(revision), b"2").await.unwrap() {
            Swap::Done(next) => revision = next,
            Swap::Conflict => panic!("an unexpected conflict"),
        }
    }
    let error = store.compare_and_set(&key("new"), Expected::Absent, b"1").await.unwrap_err();
    assert!(error.to_string().contains("the cluster is moving these keys"), "{error}");
    let keys = owner.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
    let port = late.port().to_string();
    let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
    migrate.extend(keys.split_whitespace());
    assert_eq!(owner.command(&migrate), "OK");
    for node in [&late, &owner, &witness] {
        assert_eq!(node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &ids[1]]), "OK");
    }
    // A store relies on an answer for less than this, so that no member redirects it.
    sleep(Duration::from_millis(1500)).await;
    load_again(&*store, "a").await;
    put(&*store, "a", b"3").await;
    assert_eq!(late.command(&["HGET", "{snowmint}:record:a", "v"]), "3");
}

/// Goal: an import says that a pattern finds the counters of one member only. Method: a cluster of one
/// member.
#[tokio::test]
async fn a_pattern_of_counters_on_a_cluster_is_refused() {
    let owner = Redis::with(&["--cluster-enabled", "yes"]);
    owner.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    eventually("the cluster", || owner.command(&["CLUSTER", "INFO"]).contains("cluster_state:ok")).await;
    owner.command(&["SET", "seq:a", "5"]);
    let survey = async |counter: &str| {
        snowmint_store::survey(&format!("redis-counter:{}?counter={counter}", url(&owner))).await
    };
    let error = survey("seq:*").await.unwrap_err().to_string();
    assert!(error.contains("only the keys of one member"), "{error}");
    assert_eq!(survey("seq:a").await.unwrap().counters[0].highest_number, 5);
}

#[tokio::test]
async fn it_follows_a_cluster() {
    let settings = ["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"];
    let (other, owner) = (Redis::with(&settings), Redis::with(&settings));
    cli(owner.address(), &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    cli(other.address(), &["CLUSTER", "MEET", "127.0.0.1", &owner.port().to_string()]);
    eventually("the servers", || cli(other.address(), &["GET", "x"]).starts_with("MOVED")).await;
    eventually("the servers", || cli(owner.address(), &["CLUSTER", "INFO"]).contains("cluster_state:ok"))
        .await;
    let store = open(&url(&other)).await;
    put(&*store, "a", b"1").await;
    assert_eq!(cli(owner.address(), &["HGET", "{snowmint}:record:a", "v"]), "1");
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_is_checked() {
    use snowmint_test_servers::Certificates;
    let (certificates, others) = (Certificates::make(), Certificates::make());
    let server = Redis::with_tls(&certificates, &["--requirepass", SECRET]);
    let port = server.tls_address().port();
    let url = |host: &str, ca: &Certificates| {
        format!("rediss://:{SECRET}@{host}:{port}?timeout_ms=2000&ca={}", ca.authority().display())
    };
    let store = open(&url("localhost", &certificates)).await;
    put(&*store, "a", b"1").await;
    open(&url("127.0.0.1", &certificates)).await;
    for url in [url("localhost", &others), format!("rediss://:{SECRET}@localhost:{port}?timeout_ms=2000")] {
        let (kind, error) = refused(&url).await;
        assert_eq!(kind, Some(StoreErrorKind::Other), "{error}");
        assert!(error.contains("name its file with ca="), "{error}");
    }
}

/// Loads until the store refuses, which it must do within some seconds.
async fn until_it_fails(store: &dyn Store) -> StoreError {
    let started = Instant::now();
    loop {
        if let Err(error) = store.load(&key("a")).await {
            return error;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "it still answers");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Goal: a server whose disk hangs is not trusted: with `everysec` it acknowledges writes without a sync for
/// as long as the disk hangs, and a failure of its machine would lose all of them. Method: no sync ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_disk_hangs_is_not_used() {
    let server = Redis::with_disk_that_hangs(&["--appendfsync", "everysec"]);
    let store = open(&format!("redis://{}", server.address())).await;
    let mut revision = put(&*store, "a", b"1").await.revision;
    server.hang_syncs();
    let began = Instant::now();
    let error = loop {
        match store.compare_and_set(&key("a"), Expected::Revision(revision), b"2").await {
            Ok(Swap::Done(next)) => revision = next,
            Ok(Swap::Conflict) => panic!("nobody else writes"),
            Err(error) => break error,
        }
        // Redis goes on after 2 s.
        assert!(began.elapsed() < Duration::from_secs(20), "it is still used");
        sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("aof_pending_bio_fsync"), "{error}");
    server.free_disk();
    let freed = Instant::now();
    while let Err(error) = store.load(&key("a")).await {
        assert!(freed.elapsed() < Duration::from_secs(20), "{error}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Goal: `may_lose` covers what the server acknowledges before it syncs. Method: settings that sync later.
#[tokio::test]
async fn a_server_that_syncs_later_than_stated_is_refused() {
    let server = Redis::start();
    for (setting, value, least) in [
        ("appendfsync", "everysec", "2s"),
        ("appendfsync", "no", "30s"),
        ("no-appendfsync-on-rewrite", "yes", "30s"),
    ] {
        server.command(&["CONFIG", "SET", setting, value]);
        let url = |may_lose: &str| format!("redis://{}?may_lose={may_lose}", server.address());
        let (kind, error) = refused(&url("1s")).await;
        assert!(kind == Some(StoreErrorKind::Other) && error.contains(setting), "{error}");
        open(&url(least)).await;
        open(&(url("0") + "&durable=no")).await;
    }
}
