//! The Kubernetes store on real API servers and a real etcd, with the rights that the manifests grant:
//! `./check kubernetes` runs these tests.

use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use snowmint_store::{Expected, KubernetesStore, Store, StoreError, StoreErrorKind, Swap, conformance};
use snowmint_test_servers::{Kubernetes, Proxy};
use tempfile::TempDir;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{Instant, sleep};

use crate::support::traffic::{
    LONGEST_CALL, Traffic, add_five, fails_for_now, load_again, put_again, under_trouble,
};
use crate::support::{PATIENCE, eventually, key, open, put};

const NAMESPACE: &str = "ids";
/// Enough for three pages of a list.
const RECORDS: usize = 1_200;

/// A cluster with a namespace for the store, and an account with a token.
struct Cluster {
    kubernetes: Kubernetes,
    folder: TempDir,
}

impl Cluster {
    fn start() -> Self {
        Self::with(1, &[])
    }

    fn with(servers: usize, flags: &[&str]) -> Self {
        let cluster =
            Self { kubernetes: Kubernetes::with(servers, flags), folder: tempfile::tempdir().unwrap() };
        cluster.kubernetes.add_namespace(NAMESPACE);
        cluster.kubernetes.write_token(NAMESPACE, "1h", &cluster.token());
        cluster
    }

    fn token(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    /// The URL of the store through the API server of this number.
    fn url(&self, nth: usize) -> String {
        self.url_by(self.kubernetes.servers()[nth].port())
    }

    fn url_by(&self, port: u16) -> String {
        self.kubernetes.store_url(NAMESPACE, &self.token(), port)
    }

    fn kubectl(&self, args: &[&str]) -> String {
        self.kubernetes.kubectl(&[&["--namespace", NAMESPACE], args].concat())
    }

    fn apply(&self, object: &Value) {
        let file = self.folder.path().join("object.json");
        fs::write(&file, object.to_string()).unwrap();
        self.kubectl(&["apply", "--filename", file.to_str().unwrap()]);
    }

    /// The only Lease, as `kubectl` shows it.
    fn lease(&self) -> Value {
        let mut found: Value =
            serde_json::from_str(&self.kubectl(&["get", "leases", "--output", "json"])).unwrap();
        let leases = found["items"].as_array_mut().unwrap();
        assert_eq!(leases.len(), 1, "{leases:?}");
        leases.remove(0)
    }
}

/// Waits until a call fails, and returns its error. The API server takes a moment to see a change of rights.
async fn until_refused<T>(call: impl AsyncFn() -> Result<T, StoreError>) -> StoreError {
    let started = Instant::now();
    loop {
        match call().await {
            Err(error) => return error,
            Ok(_) => assert!(started.elapsed() < PATIENCE, "it is still allowed"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Goal: the contract holds with no more rights than the manifests grant, whichever API server a node uses. Method:
/// the suite, whose handles alternate between two.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs a real API server: see ./check kubernetes"]
async fn it_keeps_the_contract() {
    let cluster = Cluster::with(2, &[]);
    let opened = AtomicUsize::new(0);
    let open_next = async || open(&cluster.url(opened.fetch_add(1, Ordering::SeqCst) % 2)).await;
    conformance::run(open_next).await.unwrap();
    assert!(opened.load(Ordering::SeqCst) > 2);
}

/// Goal: the manifests grant no right that the store does not need, and a missing one is named. Method: the role
/// without each of its verbs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real API server: see ./check kubernetes"]
async fn each_right_of_the_role_is_needed() {
    let cluster = Cluster::start();
    let store = open(&cluster.url(0)).await;
    let role: Value =
        serde_json::from_str(&cluster.kubectl(&["get", "role", "snowmint", "--output", "json"])).unwrap();
    let verbs: Vec<String> = serde_json::from_value(role["rules"][0]["verbs"].clone()).unwrap();
    let set = |verbs: &[String]| {
        let mut role = role.clone();
        role["rules"][0]["verbs"] = verbs.into();
        role["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        cluster.apply(&role);
    };
    for (nth, missing) in verbs.iter().enumerate() {
        let name = format!("record-{nth}");
        put_again(&*store, &name, b"1").await;
        set(&verbs.iter().filter(|it| *it != missing).cloned().collect::<Vec<_>>());
        let every_call = async || {
            let found = store.load(&key(&*name)).await?.unwrap();
            store.list("").await?;
            let swapped =
                store.compare_and_set(&key(&*name), Expected::Revision(found.revision), b"2").await?;
            assert!(matches!(swapped, Swap::Done(_)));
            let next = format!("{name}-{}", found.revision);
            store.compare_and_set(&key(next), Expected::Absent, b"").await
        };
        let error = until_refused(every_call).await;
        let kind = if matches!(&**missing, "create" | "patch") {
            StoreErrorKind::ReadOnly
        } else {
            StoreErrorKind::Other
        };
        assert_eq!(error.kind(), kind, "without {missing}: {error}");
        assert!(
            error.to_string().contains("grant the account the verbs get, list, create and patch"),
            "{error}"
        );
        set(&verbs);
        let started = Instant::now();
        while let Err(error) = every_call().await {
            assert!(started.elapsed() < PATIENCE, "with all verbs: {error}");
        }
    }
}

/// Goal: what other programs change in a Lease is a conflict and stays, and operators can read a record. Method:
/// `kubectl` reads, annotates and deletes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real API server: see ./check kubernetes"]
async fn changes_by_others_are_conflicts() {
    let cluster = Cluster::start();
    let store = open(&cluster.url(0)).await;
    let value = br#"{"holder":"web-1","until":1790000000000}"#;
    let record = put(&*store, "workers/a/1", value).await;
    let lease = cluster.lease();
    assert_eq!(lease["metadata"]["resourceVersion"], record.revision.to_string());
    assert_eq!(lease["metadata"]["annotations"]["snowmint.dev/record"], str::from_utf8(value).unwrap());
    assert_eq!(lease["spec"]["holderIdentity"], "web-1");
    let name = lease["metadata"]["name"].as_str().unwrap();

    // The server makes no write that changes nothing.
    let same = put(&*store, "workers/a/1", value).await;
    assert!(same.revision > record.revision);
    cluster.kubectl(&["annotate", "lease", name, "example.com/note=kept"]);
    let write = async |expected, value: &[u8]| {
        store.compare_and_set(&key("workers/a/1"), Expected::Revision(expected), value).await.unwrap()
    };
    assert_eq!(write(same.revision, b"lost").await, Swap::Conflict);
    // A binary record leaves nothing of the text record before it.
    put(&*store, "workers/a/1", b"\xff").await;
    let lease = cluster.lease();
    let annotations = lease["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(annotations["example.com/note"], "kept");
    assert_eq!(annotations["snowmint.dev/record-base64"], "/w==");
    assert!(!annotations.contains_key("snowmint.dev/record"), "{lease}");
    assert!(lease["spec"].get("holderIdentity").is_none(), "{lease}");

    let found = store.load(&key("workers/a/1")).await.unwrap().unwrap();
    cluster.kubectl(&["delete", "lease", name]);
    assert_eq!(write(found.revision, b"lost").await, Swap::Conflict);
    assert_eq!(store.load(&key("workers/a/1")).await.unwrap(), None);
    let again = put(&*store, "workers/a/1", b"again").await;
    assert!(again.revision > found.revision);
}

/// Goal: each refusal of the namespace has its own meaning. Method: a quota, a namespace that is being deleted, and one that
/// does not exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real API server: see ./check kubernetes"]
async fn refusals_of_the_namespace_are_told_apart() {
    let cluster = Cluster::start();
    let store = open(&cluster.url(0)).await;
    put(&*store, "a", b"1").await;
    let create = async |name: &str| store.compare_and_set(&key(name), Expected::Absent, b"").await;
    let hard = serde_json::json!({"count/leases.coordination.k8s.io": "1"});
    cluster.apply(&serde_json::json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": {"hard": hard},
    }));
    // A controller would write it, and none runs here.
    let status = serde_json::json!({"status": {"hard": hard, "used": hard}}).to_string();
    cluster.kubectl(&[
        "patch",
        "resourcequota",
        "small",
        "--subresource",
        "status",
        "--type",
        "merge",
        "--patch",
        &status,
    ]);
    let count = AtomicUsize::new(0);
    let error =
        until_refused(async || create(&format!("b-{}", count.fetch_add(1, Ordering::SeqCst))).await).await;
    assert_eq!(error.kind(), StoreErrorKind::Full, "{error}");
    put(&*store, "a", b"2").await;
    cluster.kubectl(&["delete", "resourcequota", "small"]);

    cluster.kubectl(&["delete", "namespace", NAMESPACE, "--wait=false"]);
    let count = AtomicUsize::new(0);
    let error =
        until_refused(async || create(&format!("c-{}", count.fetch_add(1, Ordering::SeqCst))).await).await;
    assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
    assert!(error.to_string().contains("is being terminated"), "{error}");
    assert!(!error.to_string().contains("grant"), "the rights are not at fault: {error}");
}

/// Goal: a list whose pages expire begins again, and gives up in the end. Method: an API server without a cache,
/// behind a slow network, while etcd is compacted all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs a real API server: see ./check kubernetes"]
async fn a_list_whose_pages_expire_begins_again() {
    let cluster = Cluster::with(1, &["--watch-cache=false"]);
    let store = open(&cluster.url(0)).await;
    fill(&store).await;
    let proxy = Proxy::start(cluster.kubernetes.server().address());
    let slow = open(&cluster.url_by(proxy.address().port())).await;
    assert_eq!(slow.list("many/").await.unwrap().len(), RECORDS);
    proxy.delay(Duration::from_millis(30));
    let mut compacting = JoinSet::new();
    let etcd = cluster.kubernetes.etcd().address().to_string();
    compacting.spawn(async move {
        loop {
            let revision = put(&*store, "newest", b"").await.revision;
            let mut command = etcdctl(&etcd, &["compact", &revision.to_string()]);
            let said = block_in_place(|| command.output()).unwrap();
            assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
            tokio::task::yield_now().await;
        }
    });
    let started = Instant::now();
    let error = slow.list("many/").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("the server forgot the one before"), "{error}");
    println!("the list gave up after {:?}", started.elapsed());
    compacting.shutdown().await;
    assert_eq!(slow.list("many/").await.unwrap().len(), RECORDS);
}

fn etcdctl(etcd: &str, args: &[&str]) -> Command {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").arg(format!("--endpoints={etcd}")).args(args);
    command
}

/// Goal: as many nodes as a large fleet has are no burden. Method: 1,200 records by 16 writers, and the time of each
/// call.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs a real API server: see ./check kubernetes"]
async fn a_thousand_leases_are_listed() {
    let cluster = Cluster::start();
    let store = open(&cluster.url(0)).await;
    let mut times = fill(&store).await;
    let listed = Instant::now();
    let found = store.list("many/").await.unwrap();
    let list = listed.elapsed();
    let mut names: Vec<String> = (0..RECORDS).map(|nth| format!("many/{nth}")).collect();
    names.sort_unstable();
    assert!(found.iter().map(|(key, _)| key.as_str()).eq(names.iter().map(String::as_str)));
    times.sort_unstable();
    let at = |share: usize| times[times.len() * share / 100];
    println!("{RECORDS} writes by 16: median {:?}, 99 % {:?}; list {list:?}", at(50), at(99));
    assert!(times.last().unwrap() < &LONGEST_CALL);
}

/// Writes the records; returns the time of each write.
async fn fill(store: &Arc<dyn Store>) -> Vec<Duration> {
    let mut writers = JoinSet::new();
    for first in 0..16 {
        let store = Arc::clone(store);
        writers.spawn(async move {
            let mut times = Vec::new();
            for nth in (first..RECORDS).step_by(16) {
                let started = Instant::now();
                let swap = store.compare_and_set(&key(format!("many/{nth}")), Expected::Absent, b"1").await;
                assert!(matches!(swap, Ok(Swap::Done(_))), "{swap:?}");
                times.push(started.elapsed());
            }
            times
        });
    }
    writers.join_all().await.concat()
}

/// Goal: a token that the kubelet replaces is used at once, and one that is no longer valid is reported. Method: tokens
/// bound to a Secret, which is deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real API server: see ./check kubernetes"]
async fn tokens_are_replaced_while_the_store_is_open() {
    let cluster = Cluster::start();
    cluster.kubectl(&["create", "secret", "generic", "first"]);
    let bound = ["--bound-object-kind", "Secret", "--bound-object-name", "first"];
    let token = cluster.kubectl(&[&["create", "token", "snowmint"][..], &bound].concat());
    let old = cluster.folder.path().join("old");
    for file in [&old, &cluster.token()] {
        fs::write(file, token.trim()).unwrap();
    }
    let (store, behind) = (open(&cluster.url(0)).await, open(&url_of_token(&cluster, &old)).await);
    put(&*store, "a", b"1").await;
    put(&*behind, "b", b"1").await;

    cluster.kubernetes.write_token(NAMESPACE, "1h", &cluster.token());
    cluster.kubectl(&["delete", "secret", "first"]);
    // The server remembers for 10 s that a token was valid.
    let error = until_refused(async || behind.load(&key("b")).await).await;
    assert_eq!(error.kind(), StoreErrorKind::Other, "{error}");
    assert!(error.to_string().contains("token or certificate rejected"), "{error}");
    let write = behind.compare_and_set(&key("c"), Expected::Absent, b"").await.unwrap_err();
    assert_eq!(write.kind(), StoreErrorKind::Other, "{write}");
    assert!(!format!("{error} {write:?}").contains(token.trim()));
    put(&*store, "a", b"2").await;
    let refused = KubernetesStore::open(&url_of_token(&cluster, &old)).await.unwrap_err();
    assert!(refused.to_string().contains("token or certificate rejected"), "{refused}");

    fs::copy(cluster.token(), &old).unwrap();
    put(&*behind, "b", b"2").await;
}

fn url_of_token(cluster: &Cluster, token: &Path) -> String {
    cluster.kubernetes.store_url(NAMESPACE, token, cluster.kubernetes.server().port())
}

/// Goal: calls that the server's flow control rejects wait as it asks, and fail as "nothing was written" if it lasts.
/// Method: a priority level with one call of this account at a time, and one that waits for a paused etcd.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real API server: see ./check kubernetes"]
async fn rejected_calls_wait_and_write_nothing() {
    let cluster = Cluster::start();
    let store = open(&cluster.url(0)).await;
    let record = put(&*store, "a", b"1").await;
    let expected = Expected::Revision(record.revision);
    one_call_at_a_time(&cluster);
    cluster.kubernetes.etcd().pause();
    let holder = Curl::create_a_lease(&cluster);
    let executing =
        r#"apiserver_flowcontrol_current_executing_seats{flow_schema="ids",priority_level="ids"} 1"#;
    let metrics = || cluster.kubernetes.kubectl(&["get", "--raw", "/metrics"]);
    eventually("the call of the other program", || block_in_place(metrics).contains(executing)).await;
    let load = store.load(&key("a")).await.unwrap_err();
    assert_eq!(load.kind(), StoreErrorKind::Unavailable, "{load}");
    assert!(load.to_string().contains("429"), "{load}");
    println!("{load}");
    let started = Instant::now();
    let write = store.compare_and_set(&key("a"), expected, b"lost").await.unwrap_err();
    assert_eq!(write.kind(), StoreErrorKind::Unavailable, "{write}");
    assert!(write.to_string().contains("429"), "{write}");
    // The server says `Retry-After: 1`.
    assert!((Duration::from_secs(1)..LONGEST_CALL).contains(&started.elapsed()), "{:?}", started.elapsed());
    cluster.kubernetes.etcd().resume();
    drop(holder);
    assert_eq!(load_again(&*store, "a").await, Some(record));
    put_again(&*store, "a", b"2").await;
}

/// A call that lasts while etcd is paused.
struct Curl(Child);

impl Curl {
    fn create_a_lease(cluster: &Cluster) -> Self {
        let lease = r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"theirs"}}"#;
        let mut command = curl(cluster);
        command.args(["--header", "Content-Type: application/json", "--data", lease]).stdout(Stdio::null());
        Self(command.spawn().expect("this test needs curl"))
    }
}

impl Drop for Curl {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Gives the account a priority level without a share of the server: it admits a call only if there is no other.
fn one_call_at_a_time(cluster: &Cluster) {
    let limited = serde_json::json!({
        "nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"},
    });
    cluster.apply(&serde_json::json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "ids"}, "spec": {"type": "Limited", "limited": limited},
    }));
    let subject = serde_json::json!({
        "kind": "ServiceAccount", "serviceAccount": {"name": "snowmint", "namespace": NAMESPACE},
    });
    let all =
        serde_json::json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]});
    cluster.apply(&serde_json::json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "ids"},
        "spec": {
            "matchingPrecedence": 2,
            "priorityLevelConfiguration": {"name": "ids"},
            "rules": [{"subjects": [subject], "resourceRules": [all]}],
        },
    }));
    let level = ["get", "prioritylevelconfiguration", "ids", "--output", "jsonpath={.metadata.uid}"];
    let uid = cluster.kubectl(&level);
    // The server takes a moment to use it.
    while !headers(cluster).contains(&uid) {
        thread::sleep(Duration::from_millis(50));
    }
}

/// The headers of an answer to the account, which name the priority level of the call.
fn headers(cluster: &Cluster) -> String {
    let output = curl(cluster).args(["--head", "--request", "GET"]).output().expect("this test needs curl");
    String::from_utf8(output.stdout).unwrap()
}

/// A call of the Leases by another program with the token of the account.
fn curl(cluster: &Cluster) -> Command {
    let address = cluster.kubernetes.server().address();
    let token = fs::read_to_string(cluster.token()).unwrap();
    let mut command = Command::new("curl");
    command.args(["--silent", "--cacert"]).arg(cluster.kubernetes.authority());
    command.arg("--header").arg(format!("Authorization: Bearer {token}"));
    command.arg(format!("https://{address}/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"));
    command
}

/// Goal: a restart of etcd under the API server costs bounded time and no write. Method: calls before, during and
/// after a kill -9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real API server: see ./check kubernetes"]
async fn a_restart_of_etcd_loses_nothing() {
    let cluster = Cluster::start();
    let store = open(&cluster.url(0)).await;
    let record = put(&*store, "a", b"value").await;
    assert_eq!(add_five(&*store).await, 0);
    block_in_place(|| cluster.kubernetes.etcd().kill9());
    fails_for_now(&*store, "a", Expected::Revision(record.revision)).await;
    block_in_place(|| cluster.kubernetes.etcd().restart());
    assert_eq!(load_again(&*store, "a").await, Some(record));
    put_again(&*store, "a", b"after").await;
    let started = Instant::now();
    let again = loop {
        match store.add(&key("traffic/sum"), NonZeroU64::new(5).unwrap()).await {
            Ok(before) => break before,
            Err(error) => assert!(error.is_temporary() && started.elapsed() < PATIENCE, "{error}"),
        }
    };
    assert!(again >= 5);
}

/// Goal: one history, whatever fails. Method: writers through two API servers, of which each is killed and paused,
/// as is etcd; connections that break, and answers that are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs a real API server: see ./check kubernetes"]
async fn one_history_in_spite_of_crashes() {
    let cluster = Cluster::with(2, &[]);
    let mut handles = Vec::new();
    let proxies: Vec<Proxy> =
        cluster.kubernetes.servers().iter().map(|it| Proxy::start(it.address())).collect();
    for nth in 0..4 {
        handles.push(open(&cluster.url_by(proxies[nth % 2].address().port())).await);
    }
    let trouble = async |traffic: &Traffic| {
        for _ in 0..20 {
            sleep(Duration::from_millis(30)).await;
            proxies.iter().for_each(Proxy::cut);
        }
        traffic.goes_on(20).await;
        crate::support::traffic::lose_answers(&proxies[0], traffic).await;
        for server in
            [cluster.kubernetes.server(), cluster.kubernetes.etcd(), &cluster.kubernetes.servers()[1]]
        {
            block_in_place(|| server.kill9());
            traffic.fails().await;
            block_in_place(|| server.restart());
            traffic.goes_on(20).await;
            server.pause();
            traffic.fails().await;
            server.resume();
            traffic.goes_on(20).await;
        }
    };
    let report = under_trouble(handles, trouble).await;
    println!("{report:?}");
    assert!(report.failed_reads > 0 && report.unknown_but_written > 0, "{report:?}");
}
