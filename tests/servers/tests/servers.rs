//! Every server starts, keeps its data through a kill -9, and stops answering while it is paused.
//! The effect of the proxy on a connection is checked byte by byte.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails"
)]

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::Duration;

use snowmint_test_servers::{
    Certificates, Etcd, EtcdCluster, MariaDb, Postgres, Proxy, Redis, RedisSentinels, Server, ZooKeeper,
    ZooKeeperEnsemble,
};

fn redis(address: SocketAddr, command: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Returns whether the server closes a connection within a second after invalid input: a paused one does not.
fn reacts(server: &Server) -> bool {
    let Ok(mut stream) = TcpStream::connect(server.address()) else {
        return false;
    };
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok();
    stream.read(&mut [0; 64]).is_ok()
}

fn comes_and_goes(server: &Server) {
    assert!(server.is_running() && reacts(server), "{server:?}");
    server.pause();
    assert!(!reacts(server), "{server:?} is paused");
    server.resume();
    assert!(reacts(server), "{server:?} goes on");
    server.kill9();
    assert!(!server.is_running() && TcpStream::connect(server.address()).is_err(), "{server:?} is down");
    server.restart();
    assert!(reacts(server), "{server:?} is up again");
}

#[test]
fn redis_keeps_what_it_was_told() {
    let server = Redis::start();
    assert_eq!(redis(server.address(), "SET a 1"), "+OK\r\n+OK\r\n");
    comes_and_goes(&server);
    assert_eq!(redis(server.address(), "GET a"), "$1\r\n1\r\n+OK\r\n");
    let copy = Redis::replica_of(&server, &[]);
    assert!(redis(copy.address(), "SET a 2").starts_with("-READONLY"));
    drop(Redis::with_tls(&Certificates::make(), &["--requirepass", "secret"]));
}

#[test]
fn redis_changes_roles() {
    let (first, second) = (Redis::start(), Redis::start());
    second.follow(&first);
    assert_eq!(first.command(&["SET", "a", "1"]), "OK");
    second.wait_synced(&first);
    second.promote();
    first.follow(&second);
    first.wait_connected();
    first.kill9();
    first.restart();
    assert_eq!([&first, &second].map(|it| it.info("role")), ["slave", "master"]);
    assert_eq!(second.command(&["GET", "a"]), "1");
}

#[test]
fn sentinels_promote_a_replica() {
    let first = Redis::start();
    let second = Redis::replica_of(&first, &[]);
    second.wait_connected();
    let sentinels = RedisSentinels::start(3, &first);
    assert_eq!((sentinels.nodes().len(), sentinels.primary()), (3, Some(first.address())));
    assert_eq!(first.command(&["SET", "a", "1"]), "OK");
    second.wait_synced(&first);
    first.kill9();
    assert_eq!(sentinels.wait_replaced(&first), second.address());
    assert_eq!(second.command(&["GET", "a"]), "1");
    sentinels.wait_agreed(&second);
    // The old primary returns as a primary, until the Sentinels make it a replica of the new one; then it
    // stays one.
    first.restart();
    first.wait_connected();
    first.restart();
    assert_eq!(first.info("role"), "slave");
    assert_eq!(sentinels.replace(&second), first.address());
}

#[test]
fn postgres_keeps_what_it_was_told() {
    let server = Postgres::start();
    server.sql("CREATE TABLE a AS SELECT 1 AS n");
    comes_and_goes(&server);
    assert_eq!(server.sql("SELECT n FROM a"), "1");
    assert_eq!(Postgres::standby_of(&server).sql("SELECT n FROM a"), "1");
    assert_eq!(Postgres::with_tls(&Certificates::make(), &[]).sql("SHOW ssl"), "on");
}

/// Goal: a synchronous standby has every acknowledged write, and the harness can create two primaries.
/// Method: promote, restart.
#[test]
fn a_standby_of_postgres_takes_over() {
    let primary = Postgres::with(&["synchronous_standby_names=FIRST 1 (s1)", "max_connections=30"]);
    let standby = Postgres::standby_named(&primary, "s1");
    assert_eq!(primary.sql("SELECT sync_state FROM pg_stat_replication"), "sync");
    primary.sql("CREATE TABLE a AS SELECT 1 AS n");
    standby.kill9();
    primary.restart_fast();
    standby.restart();
    primary.await_standby("s1");
    primary.sql("INSERT INTO a VALUES (2)");
    primary.kill9();
    standby.promote();
    assert_eq!(standby.sql("SELECT sum(n) FROM a"), "3");
    primary.restart();
    let mark = "SELECT pg_is_in_recovery(), left(pg_walfile_name(pg_current_wal_lsn()), 8)";
    assert_eq!((primary.sql(mark), standby.sql(mark)), ("f|00000001".to_owned(), "f|00000002".to_owned()));
    let other = Postgres::start();
    other.set("synchronous_standby_names", "s1");
    assert_eq!(other.sql("SHOW synchronous_standby_names"), "s1");
    other.set("synchronous_standby_names", "");
    other.sql("CREATE TABLE a AS SELECT 1 AS n");
}

#[test]
fn mariadb_keeps_what_it_was_told() {
    let server = MariaDb::start();
    server.sql("CREATE TABLE test.a AS SELECT 1 AS n");
    comes_and_goes(&server);
    assert_eq!(server.sql("SELECT n FROM test.a"), "1");
    assert_eq!(MariaDb::with_tls(&Certificates::make(), &[]).sql("SELECT @@have_ssl"), "YES");
}

#[test]
fn etcd_comes_and_goes() {
    comes_and_goes(&Etcd::start());
    drop(Etcd::with_tls(&Certificates::make(), &[]));
}

#[test]
fn zookeeper_comes_and_goes() {
    comes_and_goes(&ZooKeeper::start());
}

#[test]
fn another_leads_when_the_leader_is_killed() {
    let etcd = EtcdCluster::start(3);
    changes_leader(etcd.nodes(), || etcd.leader());
    let zookeeper = ZooKeeperEnsemble::start(3);
    changes_leader(zookeeper.nodes(), || zookeeper.leader());
}

fn changes_leader(nodes: &[Server], leader: impl Fn() -> Option<usize>) {
    let first = leader().expect("a leader");
    nodes[first].kill9();
    let other = (0..1000).find_map(|_| {
        thread::sleep(Duration::from_millis(10));
        leader().filter(|it| *it != first)
    });
    assert!(other.is_some(), "no node leads after {first}");
    nodes[first].restart();
}

#[test]
fn servers_started_from_a_thread_outlive_it() {
    let server = thread::spawn(Redis::start).join().unwrap();
    thread::sleep(Duration::from_millis(100));
    assert!(server.is_running());
}

/// An echo server on a thread.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
        }
    });
    address
}

#[test]
fn the_proxy_does_what_networks_do() {
    let proxy = Proxy::start(echo());
    let connect = || {
        let stream = TcpStream::connect(proxy.address())?;
        stream.set_read_timeout(Some(Duration::from_millis(300)))?;
        Ok::<_, std::io::Error>(stream)
    };
    let mut stream = connect().unwrap();
    let mut ask = |byte: u8| {
        stream.write_all(&[byte])?;
        let mut answer = [0];
        stream.read_exact(&mut answer).map(|()| answer[0])
    };
    assert_eq!(ask(1).unwrap(), 1);
    proxy.freeze();
    assert!(ask(2).is_err());
    proxy.thaw();
    assert_eq!(ask(3).unwrap(), 2, "held-back data comes first");
    assert_eq!(ask(4).unwrap(), 3);
    assert_eq!(ask(5).unwrap(), 4);
    proxy.cut();
    // The answer to the last request may have passed before the cut.
    assert!(ask(6).is_err() || ask(7).is_err());
    assert!(connect().is_ok());
    proxy.refuse();
    assert!(connect().is_err());
    proxy.accept();
    let mut stream = connect().unwrap();
    proxy.lose_answers(true);
    stream.write_all(&[5]).unwrap();
    assert!(stream.read_exact(&mut [0]).is_err());
    proxy.lose_answers(false);
    stream.write_all(&[6]).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [6], "the earlier answer is lost");
    proxy.delay(Duration::from_millis(50));
    let asked = now();
    stream.write_all(&[7]).unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert!(asked.elapsed() >= Duration::from_millis(100), "{:?} there and back", asked.elapsed());
}

#[test]
fn the_proxy_cuts_behind_a_byte() {
    let proxy = Proxy::start(echo());
    let ask = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // Until the connection is closed, or for long enough that nothing follows.
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let closed = stream.read_to_end(&mut answer).is_ok();
        (answer, closed)
    };
    assert_eq!(ask(b"12345"), (b"12345".to_vec(), false));
    assert_eq!(proxy.answered(), 5);
    for passed in 0..5 {
        proxy.cut_answers_after(passed);
        assert_eq!(ask(b"12345"), (b"12345"[..passed].to_vec(), true));
    }
    assert_eq!(proxy.answered(), 5 + 10);
    proxy.cut_answers_after(5);
    assert_eq!(ask(b"12345"), (b"12345".to_vec(), false));
    proxy.pass_answers();
    assert_eq!(ask(b"12345"), (b"12345".to_vec(), false));
}

#[expect(clippy::disallowed_methods, reason = "tests measure the product by a clock of their own")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// For the test below: starts servers, one of them as another user, prints their addresses, and waits to be
/// killed.
#[test]
#[ignore = "not a separate test: another test runs it as a child process"]
fn child() {
    let (redis, mariadb) = (Redis::start(), MariaDb::start());
    println!("@{} {}", redis.address(), mariadb.address());
    thread::sleep(Duration::from_mins(1));
}

/// Goal: no server outlives its test, however that ends. Method: kill -9 of a process that has started
/// servers.
#[test]
fn servers_die_with_their_process() {
    // The child cannot clean up its files, so they are in our folder.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.env("TMPDIR", folder.path());
    command.args(["child", "--exact", "--ignored", "--nocapture"]).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let report = lines.find_map(|line| line.split_once('@').map(|it| it.1.to_owned()));
    let addresses: Vec<SocketAddr> =
        report.unwrap().split_whitespace().map(|it| it.parse().unwrap()).collect();
    assert!(addresses.len() == 2 && addresses.iter().all(|it| TcpStream::connect(it).is_ok()));
    child.kill().unwrap();
    child.wait().unwrap();
    let all_gone = (0..500).any(|_| {
        thread::sleep(Duration::from_millis(10));
        addresses.iter().all(|it| TcpStream::connect(it).is_err())
    });
    assert!(all_gone, "a server outlives its test");
}
