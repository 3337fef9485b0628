//! The Kubernetes store against a small API server: the suite, crashes, a bad network, tokens, TLS, and the
//! ways in which a write could go wrong.

mod api_server;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use snowmint_store::{
    Expected, KubernetesStore, OpenError, Revision, Store, StoreErrorKind, Swap, conformance,
};
use snowmint_test_servers::{Certificates, Proxy};
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;

use self::api_server::ApiServer;
use crate::support::cut_connection;
use crate::support::traffic;
use crate::support::traffic::{Traffic, add_five, fails_for_now, load_again, under_trouble};
use crate::support::{key, put};

async fn open(url: &str) -> Arc<dyn Store> {
    snowmint_store::open_backend(url).await.unwrap()
}

fn url(server: &ApiServer) -> String {
    format!("kubernetes:team-a?server=http://{}", server.address())
}

/// Queries the server itself, as `kubectl get --raw` does.
async fn raw(server: &ApiServer, path: &str) -> serde_json::Value {
    use http_body_util::BodyExt;
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .build_http::<http_body_util::Full<bytes::Bytes>>();
    let uri = format!("http://{}/apis/coordination.k8s.io/v1/namespaces/{path}", server.address());
    let body = client.get(uri.parse().unwrap()).await.unwrap().into_body().collect().await.unwrap();
    serde_json::from_slice(&body.to_bytes()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract() {
    let server = ApiServer::start(None).await;
    conformance::run(async || open(&url(&server)).await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_readable_leases() {
    let server = ApiServer::start(None).await;
    let (store, other) = (open(&url(&server)).await, open(&format!("{}&prefix=other", url(&server))).await);
    let value = br#"{"holder":"web-1","until":1790000000000,"tag":"0"}"#;
    let record = put(&*store, "workers/a/1", value).await;
    put(&*other, "workers/a/1", b"theirs").await;
    assert_eq!(store.list("").await.unwrap(), [(key("workers/a/1"), record.clone())]);
    assert_eq!(store.describe(), format!("kubernetes:team-a?server=http://{}", server.address()));

    let schema = snowmint_store::schema("kubernetes:team-a").unwrap();
    assert!(schema.contains("\n  namespace: team-a\n"), "{schema}");
    let found = raw(&server, "team-a/leases?labelSelector=snowmint.dev%2Fstore%3Dsnowmint").await;
    let lease = &found["items"][0];
    assert_eq!(lease["metadata"]["resourceVersion"], record.revision.to_string());
    assert_eq!(lease["metadata"]["annotations"]["snowmint.dev/key"], "workers/a/1");
    assert_eq!(lease["metadata"]["annotations"]["snowmint.dev/record"], str::from_utf8(value).unwrap());
    assert_eq!(lease["spec"]["holderIdentity"], "web-1");
    let name = lease["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("snowmint-workers-a-1-"), "{name}");

    // A binary record leaves nothing of the text record before it.
    put(&*store, "workers/a/1", b"\xff").await;
    let lease = raw(&server, &format!("team-a/leases/{name}")).await;
    assert_eq!(lease["metadata"]["annotations"]["snowmint.dev/record-base64"], "/w==");
    assert!(lease["metadata"]["annotations"].get("snowmint.dev/record").is_none(), "{lease}");
    assert!(lease["spec"].get("holderIdentity").is_none(), "{lease}");
}

/// Goal: two traps of the API are avoided. Method: a replace of a missing object, and a write of an equal
/// value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replace_creates_nothing_and_a_write_is_a_write() {
    let server = ApiServer::start(None).await;
    let store = open(&url(&server)).await;
    for revision in [0, 1, 1000, u64::MAX] {
        let swap =
            store.compare_and_set(&key("a"), Expected::Revision(Revision(revision)), b"x").await.unwrap();
        assert_eq!(swap, Swap::Conflict);
    }
    assert_eq!(store.load(&key("a")).await.unwrap(), None);
    let first = put(&*store, "a", b"same").await;
    let second = put(&*store, "a", b"same").await;
    let third = put(&*store, "a", b"same").await;
    assert!(first.revision < second.revision && second.revision < third.revision);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_tells_the_time_of_the_server() {
    let server = ApiServer::start(None).await;
    let store = open(&url(&server)).await;
    let before = machine_ms();
    let told = store.unix_ms().await.unwrap().unwrap();
    let after = machine_ms();
    // 0.5 s for the truncation, 1 s for the server's cached date.
    assert!((before - 2000..after + 2000).contains(&told), "{told}, between {before} and {after}");
}

#[expect(clippy::disallowed_methods, reason = "the clock of the machine, which is that of the server too")]
fn machine_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_whose_pages_expire_begins_again() {
    let server = ApiServer::start(None).await;
    let store = open(&url(&server)).await;
    for nth in 0..1200 {
        let swap = store.compare_and_set(&key(format!("many/{nth}")), Expected::Absent, b"").await.unwrap();
        assert!(matches!(swap, Swap::Done(_)));
    }
    server.state().expire = 2;
    assert_eq!(store.list("many/").await.unwrap().len(), 1200);
    server.state().expire = 9;
    assert_eq!(store.list("").await.unwrap_err().kind(), StoreErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_loses_nothing_and_the_handle_recovers() {
    let server = ApiServer::start(None).await;
    let store = open(&url(&server)).await;
    let record = put(&*store, "a", b"value").await;
    assert_eq!(add_five(&*store).await, 0);
    server.kill().await;
    fails_for_now(&*store, "a", Expected::Revision(record.revision)).await;
    let refused = store.compare_and_set(&key("a"), Expected::Revision(record.revision), b"lost").await;
    assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Unavailable, "it was never sent");
    let error = KubernetesStore::open(&url(&server)).await.unwrap_err();
    assert!(matches!(&error, OpenError::Store(it) if it.kind() == StoreErrorKind::Unavailable), "{error}");
    server.restart().await;
    assert_eq!(load_again(&*store, "a").await, Some(record));
    put(&*store, "a", b"after").await;
    assert!(add_five(&*store).await >= 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_cut_gives_nothing_twice() {
    let server = ApiServer::start(None).await;
    let proxy = Proxy::start(server.address());
    let store = open(&format!("kubernetes:team-a?server=http://{}", proxy.address())).await;
    cut_connection::cut_store(store, open(&url(&server)).await, &proxy, 40).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_connection_that_breaks_leaves_no_doubt_in_the_end() {
    let server = ApiServer::start(None).await;
    let proxy = Proxy::start(server.address());
    let mut handles = Vec::new();
    for _ in 0..4 {
        handles.push(open(&format!("kubernetes:team-a?server=http://{}", proxy.address())).await);
    }
    let trouble = async |traffic: &Traffic| {
        for _ in 0..40 {
            sleep(Duration::from_millis(30)).await;
            proxy.cut();
        }
        traffic.goes_on(20).await;
        // Writes happen, but their answers are lost.
        traffic::lose_answers(&proxy, traffic).await;
        for _ in 0..3 {
            server.kill().await;
            traffic.fails().await;
            server.restart().await;
            traffic.goes_on(20).await;
        }
        proxy.freeze();
        // Wait until no call waits for an answer any more.
        sleep(Duration::from_secs(7)).await;
        proxy.thaw();
        traffic.goes_on(20).await;
    };
    let report = under_trouble(handles, trouble).await;
    assert!(report.failed_reads > 0 && report.unknown_but_written > 0, "{report:?}");
}

/// Goal: the kind of an error shows whether the write happened. Method: each refusal, and an answer that
/// proves nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_told_apart() {
    let server = ApiServer::start(None).await;
    let store = open(&url(&server)).await;
    let record = put(&*store, "a", b"value").await;
    let expected = Expected::Revision(record.revision);
    for (status, message, kind) in [
        (403, "leases.coordination.k8s.io is forbidden: User \"x\" cannot patch", StoreErrorKind::ReadOnly),
        (403, "leases \"x\" is forbidden: exceeded quota: small", StoreErrorKind::Full),
        (409, "Operation cannot be fulfilled on resourcequotas \"small\"", StoreErrorKind::Unavailable),
        (429, "too many requests", StoreErrorKind::Unavailable),
        (503, "the server is currently unable to handle the request", StoreErrorKind::OutcomeUnknown),
    ] {
        server.state().refuse_writes = Some((status, message));
        let error = store.compare_and_set(&key("a"), expected, b"lost").await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(message), "{error}");
        println!("{error}");
    }
    server.state().refuse_writes = None;
    assert_eq!(store.load(&key("a")).await.unwrap(), Some(record));
    server.state().after_write = Some(504);
    let error = store.compare_and_set(&key("a"), expected, b"written").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error}");
    assert_eq!(store.load(&key("a")).await.unwrap().unwrap().value, b"written");

    server.state().after_write = None;
    let elsewhere = open(&format!("kubernetes:missing?server=http://{}", server.address())).await;
    assert_eq!(elsewhere.load(&key("a")).await.unwrap(), None);
    let error = elsewhere.compare_and_set(&key("a"), Expected::Absent, b"lost").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Other, "{error}");
}

/// Goal: a call that the server rejects for the moment waits as the server asks, and the same call then succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_call_waits_and_succeeds() {
    let server = ApiServer::start(None).await;
    let store = open(&url(&server)).await;
    let record = put(&*store, "a", b"1").await;
    server.state().busy = 1;
    let began = Instant::now();
    let written = store.compare_and_set(&key("a"), Expected::Revision(record.revision), b"2").await;
    assert!(matches!(written, Ok(Swap::Done(_))), "{written:?}");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    server.state().busy = 1;
    assert_eq!(store.load(&key("a")).await.unwrap().unwrap().value, b"2");
    server.state().busy = 1;
    assert_eq!(store.list("").await.unwrap().len(), 1);
}

/// Goal: a server that has just started and does not know the account yet is unavailable; its refusals say nothing
/// about the account.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_of_a_starting_server_are_temporary() {
    let server = ApiServer::start(None).await;
    let store = open(&url(&server)).await;
    let record = put(&*store, "a", b"1").await;
    // Before a server knows any rights, nobody may ask whether it is ready.
    for starting in [(401, 500), (403, 500), (403, 403)] {
        server.state().starting = Some(starting);
        let load = store.load(&key("a")).await.unwrap_err();
        assert_eq!(load.kind(), StoreErrorKind::Unavailable, "{load}");
        let write =
            store.compare_and_set(&key("a"), Expected::Revision(record.revision), b"2").await.unwrap_err();
        assert_eq!(write.kind(), StoreErrorKind::Unavailable, "{write}");
        assert!(write.to_string().contains("the API server is not ready"), "{write}");
        let open = KubernetesStore::open(&url(&server)).await.unwrap_err();
        assert!(open.is_temporary(), "{open}");
    }
    server.state().starting = None;
    assert_eq!(store.load(&key("a")).await.unwrap(), Some(record));
}

/// Goal: a right that the account lacks is no matter of time on a server that tells only accounts whether it is
/// ready, as hardened clusters do. Method: such a server, ready and starting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_right_is_permanent_on_a_hardened_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "known").unwrap();
    let server = ApiServer::start(None).await;
    server.state().token = Some("known".to_owned());
    server.state().refuse_anonymous = true;
    let store = open(&format!("{}&token_file={}", url(&server), file.display())).await;
    server.state().refuse_writes = Some((403, "leases is forbidden"));
    let write = async || store.compare_and_set(&key("a"), Expected::Absent, b"1").await.unwrap_err();
    let refused = write().await;
    assert_eq!(refused.kind(), StoreErrorKind::ReadOnly, "{refused}");
    assert!(refused.to_string().contains("grant the account the verbs"), "{refused}");
    server.state().starting = Some((403, 403));
    let early = write().await;
    assert_eq!(early.kind(), StoreErrorKind::Unavailable, "{early}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_read_anew_and_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let server = ApiServer::start(None).await;
    let url = format!("{}&token_file={}", url(&server), file.display());
    let error = KubernetesStore::open(&url).await.unwrap_err();
    assert!(error.to_string().contains("No such file"), "{error}");

    server.state().token = Some("first-token".to_owned());
    std::fs::write(&file, "wrong-token\n").unwrap();
    let error = KubernetesStore::open(&url).await.unwrap_err();
    assert!(matches!(&error, OpenError::Store(it) if it.kind() == StoreErrorKind::Other), "{error}");
    assert!(!format!("{error} {error:?}").contains("wrong-token"), "{error:?}");

    std::fs::write(&file, "first-token\n").unwrap();
    let store = KubernetesStore::open(&url).await.unwrap();
    assert!(!format!("{store:?} {}", store.describe()).contains("first-token"));
    put(&store, "a", b"1").await;
    server.state().token = Some("second-token".to_owned());
    assert_eq!(store.load(&key("a")).await.unwrap_err().kind(), StoreErrorKind::Other);
    std::fs::write(&file, "second-token").unwrap();
    put(&store, "a", b"2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_is_checked_by_its_authority() {
    let made = Certificates::make();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = vec![CertificateDer::from_pem_file(made.certificate()).unwrap()];
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(made.key()).unwrap())
        .unwrap();
    let server = ApiServer::start(Some(TlsAcceptor::from(Arc::new(config)))).await;
    let url = format!("kubernetes:team-a?server=https://{}", server.address());
    let store = open(&format!("{url}&ca={}", made.authority().display())).await;
    put(&*store, "a", b"value").await;
    let error = KubernetesStore::open(&url).await.unwrap_err();
    assert!(matches!(&error, OpenError::Store(it) if it.kind() == StoreErrorKind::Other), "{error}");
    assert!(error.to_string().contains("name its file with ca="), "{error}");
}
