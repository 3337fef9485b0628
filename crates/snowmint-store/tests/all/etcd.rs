//! The etcd store against real servers: the suite, crashes, a cluster whose leader fails, a bad network,
//! logins, TLS, and a full disk.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use snowmint_store::{EtcdStore, Expected, OpenError, Store, StoreErrorKind, Swap, conformance};
use snowmint_test_servers::{Certificates, Etcd, EtcdCluster, Proxy, time};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use crate::support::traffic;
use crate::support::traffic::{
    Traffic, add_five, cut_off_it_answers_nothing, fails_for_now, load_again, under_trouble,
};
use crate::support::{key, put};

async fn open(url: &str) -> Arc<dyn Store> {
    snowmint_store::open_backend(url).await.unwrap()
}

async fn handles(url: &str, count: usize) -> Vec<Arc<dyn Store>> {
    let mut handles = Vec::new();
    for _ in 0..count {
        handles.push(open(url).await);
    }
    handles
}

fn url(etcd: &Etcd) -> String {
    format!("etcd://{}", etcd.address())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract() {
    let etcd = Etcd::start();
    conformance::run(async || open(&url(&etcd)).await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract_on_a_cluster() {
    let cluster = EtcdCluster::start(3);
    let addresses = cluster.addresses();
    let next = std::sync::atomic::AtomicUsize::new(0);
    // Each handle uses a different member.
    let opened = async || {
        let nth = next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        open(&format!("etcd://{}", addresses[nth % addresses.len()])).await
    };
    conformance::run(opened).await.unwrap();
}

/// Goal: a URL that names members of two clusters is refused, since after a failover it would be another
/// store. Method: two clusters of one member; then one of them is down, and cannot be checked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_two_clusters_are_refused() {
    let (one, other) = (Etcd::start(), Etcd::start());
    let both = format!("{},{}", url(&one), other.address());
    let OpenError::Store(error) = snowmint_store::open_backend(&both).await.unwrap_err() else { panic!() };
    assert_eq!(error.kind(), StoreErrorKind::Other, "{error}");
    for host in [one.address(), other.address()] {
        assert!(error.to_string().contains(&host.to_string()), "{error}");
    }
    other.kill9();
    open(&both).await;
}

/// Goal: records are where the docs say, so that an operator finds them. Method: `etcdctl`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_plain_keys() {
    let etcd = Etcd::start();
    let store = open(&url(&etcd)).await;
    let other = open(&format!("{}?prefix=/team", url(&etcd))).await;
    put(&*store, "workers/a/1", b"ours").await;
    put(&*other, "workers/a/1", b"theirs").await;
    assert_eq!(etcdctl(&etcd, &["get", "snowmint/workers/a/1", "--print-value-only"]), "ours\n");
    assert_eq!(etcdctl(&etcd, &["get", "/team/workers/a/1", "--print-value-only"]), "theirs\n");
    assert_eq!(store.list("").await.unwrap().len(), 1);
    assert_eq!(store.describe(), format!("etcd://{}/snowmint/", etcd.address()));
    let schema = snowmint_store::schema("etcd://h?prefix=/team").unwrap();
    assert!(schema.contains("readwrite --prefix=true /team/\n"), "{schema}");

    // Keys of another program do not hide the records, and are reported.
    etcdctl(&etcd, &["put", "snowmint/what is this?", "x"]);
    assert_eq!(store.list("").await.unwrap().len(), 1);
    let skipped = store.skipped();
    assert!(
        matches!(&skipped[..], [it] if it.contains("what is this?") && it.contains("not a Snowmint key")),
        "{skipped:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_other_programs_are_skipped_and_told() {
    let etcd = Etcd::start();
    let url = url(&etcd);
    let put = async |name: &[u8]| {
        let mut etcdctl = Command::new("etcdctl");
        etcdctl.env("ETCDCTL_API", "3").arg(format!("--endpoints=http://{}", etcd.address()));
        etcdctl.arg("put").arg(OsStr::from_bytes(&[b"snowmint/", name].concat())).arg("x");
        etcdctl.output().unwrap().status.success()
    };
    conformance::skips_foreign_names(async || open(&url).await, put).await.unwrap();
}

/// Replaces the password of the user `snow`.
fn etcd_password(etcd: &Etcd, password: &str) {
    let mut passwd = Command::new("etcdctl");
    passwd.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", etcd.address()));
    passwd.args(["--user=root:hunter2", "user", "passwd", "snow", "--interactive=false"]);
    let mut passwd = passwd.stdin(std::process::Stdio::piped()).spawn().unwrap();
    writeln!(passwd.stdin.take().unwrap(), "{password}").unwrap();
    assert!(passwd.wait().unwrap().success());
}

fn etcdctl(etcd: &Etcd, arguments: &[&str]) -> String {
    let output = Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .arg(format!("--endpoints=http://{}", etcd.address()))
        .args(arguments)
        .output()
        .expect("this test needs `etcdctl` of etcd-client");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_loses_nothing_and_the_handle_recovers() {
    let etcd = Etcd::start();
    let store = open(&url(&etcd)).await;
    let record = put(&*store, "a", b"value").await;
    assert_eq!(add_five(&*store).await, 0);
    etcd.kill9();
    fails_for_now(&*store, "a", Expected::Revision(record.revision)).await;
    fails_for_now(&*store, "a", Expected::Revision(record.revision)).await;
    let error = EtcdStore::open(&url(&etcd)).await.unwrap_err();
    assert!(matches!(&error, OpenError::Store(it) if it.kind() == StoreErrorKind::Unavailable), "{error}");
    etcd.restart();
    assert_eq!(load_again(&*store, "a").await, Some(record));
    put(&*store, "a", b"after").await;
    assert!(add_five(&*store).await >= 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_costs_bounded_time() {
    let etcd = Etcd::start();
    let store = open(&url(&etcd)).await;
    let record = put(&*store, "a", b"value").await;
    etcd.pause();
    fails_for_now(&*store, "a", Expected::Revision(record.revision)).await;
    etcd.resume();
    // The write that was sent while it hung may have happened.
    let found = load_again(&*store, "a").await.unwrap();
    assert!(found == record || found.value == b"while down", "{found:?}");
}

/// Goal: one history while the leader dies, comes back, and hangs. Method: compare-and-set traffic meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_leader_that_fails_forks_no_history() {
    let cluster = EtcdCluster::start(3);
    let hosts: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    let handles = handles(&format!("etcd://{}", hosts.join(",")), 4).await;
    let trouble = async |traffic: &Traffic| {
        for round in 0..3 {
            traffic.goes_on(30).await;
            let leader = leader(&cluster).await;
            println!("round {round}: the leader is {leader}");
            cluster.nodes()[leader].kill9();
            traffic.goes_on(30).await;
            cluster.nodes()[leader].restart();
            traffic.goes_on(30).await;
            let leader = self::leader(&cluster).await;
            cluster.nodes()[leader].pause();
            traffic.goes_on(30).await;
            cluster.nodes()[leader].resume();
        }
        traffic.goes_on(30).await;
    };
    under_trouble(handles, trouble).await;
}

/// Goal: a member that is cut off from the others, and lacks what they wrote, neither answers a read nor
/// acknowledges a write. Method: it sleeps while they write, and wakes up when they sleep; once the leader,
/// once a follower.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_member_that_is_cut_off_answers_nothing() {
    let cluster = EtcdCluster::start(3);
    for round in 0..2 {
        let cut_off = (leader(&cluster).await + round) % 3;
        cut_off_it_answers_nothing("etcd", cluster.nodes(), cut_off, |address| {
            println!("without the others it would answer {:?}", serializable(address, "snowmint/a"));
        })
        .await;
    }
}

/// Checks that the store's clock is this machine's, within the error that it states.
async fn tells_the_time(store: &dyn Store) {
    let error_ms = u64::try_from(store.clock_error().as_millis()).unwrap();
    assert_eq!(error_ms, 500);
    let before = time::unix_ms();
    let told = store.unix_ms().await.unwrap().expect("etcd has a clock");
    let after = time::unix_ms();
    assert!((before - error_ms..=after + error_ms).contains(&told), "{told} between {before} and {after}");
    assert_eq!(store.clock_missing(), None);
}

/// Goal: etcd shows its time as long as one member answers. If none answers, the store is not taken for one
/// without a clock. Method: three members, killed and paused one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_member_tells_its_time() {
    let cluster = EtcdCluster::start(3);
    let hosts: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    let store = open(&format!("etcd://{}", hosts.join(","))).await;
    tells_the_time(&*store).await;
    cluster.nodes()[0].kill9();
    cluster.nodes()[1].pause();
    let told = store.unix_ms().await.unwrap();
    assert!(told.is_some_and(|told| told.abs_diff(time::unix_ms()) < 5000), "{told:?}");
    cluster.nodes()[2].kill9();
    let error = store.unix_ms().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    cluster.nodes()[1].resume();
    tells_the_time(&*store).await;
}

/// Goal: behind a port that answers gRPC alone, the store works, has no clock and says why. Method: a port
/// that ends every connection that begins with an HTTP/1 request, as grpc-go does, and passes on the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_for_grpc_alone_has_no_clock() {
    let etcd = Etcd::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, target) = (listener.local_addr().unwrap(), etcd.address());
    let passing = tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut first = [0; 3];
                if client.peek(&mut first).await.is_ok() && &first != b"GET" {
                    let mut server = TcpStream::connect(target).await.unwrap();
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
    });
    let store = open(&format!("etcd://{address}")).await;
    assert_eq!(store.clock_missing(), None, "nobody asked");
    assert_eq!(store.unix_ms().await.unwrap(), None);
    let why = store.clock_missing().unwrap();
    assert!(why.contains(&address.to_string()) && why.contains("shows no time over HTTP"), "{why}");
    put(&*store, "a", b"value").await;
    passing.abort();
}

/// Returns a member's own data, without asking the others.
fn serializable(member: std::net::SocketAddr, key: &str) -> String {
    let endpoint = format!("--endpoints=http://{member}");
    let output = Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args([&endpoint, "get", key, "--print-value-only", "--consistency=s"])
        .output()
        .expect("this test needs `etcdctl` of etcd-client");
    String::from_utf8(output.stdout).unwrap()
}

async fn leader(cluster: &EtcdCluster) -> usize {
    for _ in 0..6000 {
        if let Some(leader) = cluster.leader() {
            return leader;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("no leader");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_connection_that_breaks_leaves_no_doubt_in_the_end() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(etcd.address());
    let handles = handles(&format!("etcd://{}", proxy.address()), 4).await;
    let trouble = async |traffic: &Traffic| {
        for _ in 0..40 {
            sleep(Duration::from_millis(50)).await;
            proxy.cut();
        }
        traffic.goes_on(20).await;
        // Writes happen, but their answers are lost.
        traffic::lose_answers(&proxy, traffic).await;
        proxy.refuse();
        traffic.fails().await;
        proxy.accept();
        traffic.goes_on(20).await;
        proxy.freeze();
        // Wait until no call waits for an answer any more.
        sleep(Duration::from_secs(6)).await;
        proxy.thaw();
        traffic.goes_on(20).await;
    };
    let report = under_trouble(handles, trouble).await;
    assert!(report.failed_reads > 0 && report.unknown_but_written > 0, "{report:?}");
}

/// Goal: the outcome of a write that was never sent is known. Method: the server is gone, on a channel that
/// was open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_without_a_connection_was_not_written() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(etcd.address());
    let store = open(&format!("etcd://{}", proxy.address())).await;
    let record = put(&*store, "a", b"value").await;
    proxy.refuse();
    traffic::notices(&*store).await;
    let expected = Expected::Revision(record.revision);
    let error = store.compare_and_set(&key("a"), expected, b"lost").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    proxy.accept();
    assert_eq!(load_again(&*store, "a").await, Some(record));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_is_checked_renewed_and_not_shown() {
    let etcd = Etcd::with(&["--auth-token-ttl=1"]);
    for arguments in [
        &["user", "add", "root:hunter2"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "snow:s/e@cret"],
        &["role", "add", "snow"],
        &["role", "grant-permission", "snow", "readwrite", "--prefix=true", "snowmint/"],
        &["user", "grant-role", "snow", "snow"],
        &["auth", "enable"],
    ] {
        if arguments == ["user", "grant-role", "root", "root"] {
            etcdctl(&etcd, &["role", "add", "root"]);
        }
        etcdctl(&etcd, arguments);
    }
    let host = etcd.address();
    for (url, password) in [
        (format!("etcd://{host}"), "none"),
        (format!("etcd://snow:wrong-one@{host}"), "wrong-one"),
        (format!("etcd://nobody:wrong-one@{host}"), "wrong-one"),
        (format!("etcd://snow:s%2Fe%40cret@{host}?prefix=other"), "s/e@cret"),
    ] {
        let error = EtcdStore::open(&url).await.unwrap_err();
        let OpenError::Store(failed) = &error else { panic!("{error}") };
        assert_eq!(failed.kind(), StoreErrorKind::Other, "{error}");
        assert!(
            !error.to_string().contains(password) && !format!("{error:?}").contains(password),
            "{error:?}"
        );
        println!("{error}");
    }
    let store = EtcdStore::open(&format!("etcd://snow:s%2Fe%40cret@{host}")).await.unwrap();
    assert!(!format!("{store:?} {}", store.describe()).contains("cret"));
    put(&store, "a", b"1").await;
    // Long enough for the token to expire.
    sleep(Duration::from_secs(3)).await;
    put(&store, "a", b"2").await;
    // A new password ends the tokens of its user; it is read from the file for the next one.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "s/e@cret\n").unwrap();
    let rotated =
        EtcdStore::open(&format!("etcd://snow@{host}?password_file={}", file.display())).await.unwrap();
    std::fs::write(&file, "another\n").unwrap();
    etcd_password(&etcd, "another");
    put(&rotated, "a", b"rotated").await;
    etcd_password(&etcd, "s/e@cret");
    // A change of users makes older tokens invalid for writes.
    etcdctl(&etcd, &["--user=root:hunter2", "role", "add", "another"]);
    let found = store.load(&key("a")).await.unwrap().unwrap();
    let swapped = store.compare_and_set(&key("a"), Expected::Revision(found.revision), b"3").await.unwrap();
    assert!(matches!(swapped, Swap::Done(_)));
    etcd.restart();
    assert_eq!(load_again(&store, "a").await.unwrap().value, b"3");
    put(&store, "a", b"4").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_checked_on_both_sides() {
    use StoreErrorKind::{Other, Unavailable};
    let certificates = Certificates::make();
    let authority = certificates.authority().display().to_string();
    let etcd =
        Etcd::with_tls(&certificates, &["--client-cert-auth", &format!("--trusted-ca-file={authority}")]);
    let (cert, key_file) = (certificates.client_certificate().display(), certificates.client_key().display());
    let host = etcd.address();
    let store = open(&format!("etcds://{host}?ca={authority}&cert={cert}&key={key_file}")).await;
    put(&*store, "a", b"value").await;
    tells_the_time(&*store).await;
    let plain = Etcd::start();
    for (url, why, kind, says) in [
        (format!("etcd://{host}"), "no TLS", Unavailable, "etcd accepts only TLS, use etcds://"),
        (format!("etcds://{host}"), "an authority nobody trusts", Other, "name its file with ca="),
        (
            format!("etcds://{host}?ca={authority}"),
            "no client certificate",
            Unavailable,
            "add cert= and key=",
        ),
        (
            format!("etcds://{}?ca={authority}", plain.address()),
            "TLS to a server without",
            Unavailable,
            "etcd uses no TLS there",
        ),
    ] {
        let started = Instant::now();
        let error = EtcdStore::open(&url).await.expect_err(why);
        println!("{why}: {error}");
        assert!(matches!(&error, OpenError::Store(it) if it.kind() == kind), "{error}");
        assert!(error.to_string().contains(says), "{why}: {error}");
        assert!(started.elapsed() < traffic::LONGEST_CALL, "{why}: {:?}", started.elapsed());
    }
}

/// Goal: a write that etcd refuses for lack of space is `Full` only if it did not happen. Method: a small
/// quota, and a read of the record after every refusal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_is_told_and_reads_go_on() {
    let etcd = Etcd::with(&["--quota-backend-bytes=4194304"]);
    let store = open(&url(&etcd)).await;
    let (mut value, mut now) = (vec![0; 64 * 1024], put(&*store, "a", b"").await);
    assert_eq!(store.warnings().await, [""; 0]);
    let mut refusals = Vec::new();
    for nth in 0..200_u8 {
        value[0] = nth;
        match store.compare_and_set(&key("a"), Expected::Revision(now.revision), &value).await {
            Ok(Swap::Done(_)) => {}
            Ok(Swap::Conflict) => panic!("an unexpected conflict"),
            Err(error) => {
                let found = store.load(&key("a")).await.unwrap().unwrap();
                if error.kind() == StoreErrorKind::Full {
                    assert_eq!(found, now, "{error}, and yet it was written");
                } else {
                    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error}");
                }
                refusals.push(error);
            }
        }
        now = store.load(&key("a")).await.unwrap().unwrap();
        if refusals.len() == 3 {
            break;
        }
    }
    let last = refusals.last().expect("a quota of 4 MiB holds no 12 MiB");
    assert_eq!(last.kind(), StoreErrorKind::Full, "{last}");
    assert!(last.to_string().contains("etcdctl alarm disarm"), "{last}");
    assert_eq!(store.list("").await.unwrap().len(), 1);
    let warnings = store.warnings().await;
    assert!(warnings.len() == 1 && warnings[0].contains("alarm:NOSPACE"), "{warnings:?}");
}
