//! Tokens over real sockets, in HTTP and RESP; those of gRPC are in `grpc`. A test changes the file of tokens
//! and waits for an answer that shows the change.

use std::path::PathBuf;
use std::sync::Arc;

use snowmint::ManualClock;
use snowmint_server::access::TokensSource;
use snowmint_server::access::secret::{Secret, TokenName};
use snowmint_server::{Access, Settings, SharedClock};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::support::running_service::{Client, Running, settings};
use crate::support::test_source::START_UNIX_MS;

/// A running service with a file of tokens.
pub(crate) struct Tokens {
    pub(crate) running: Running,
    pub(crate) clock: Arc<ManualClock>,
    file: PathBuf,
    reload: Arc<Notify>,
    following: JoinHandle<()>,
    _folder: TempDir,
}

impl Drop for Tokens {
    fn drop(&mut self) {
        self.following.abort();
    }
}

/// Returns a row of the file, and the secret of its token.
pub(crate) fn row(name: &str, rest: &str) -> (String, String) {
    let secret = Secret::generate(&TokenName::new(name).unwrap()).unwrap();
    (format!("[tokens.{name}]\nsha256 = '{}'\n{rest}\n", secret.digest()), secret.as_str().to_owned())
}

impl Tokens {
    pub(crate) async fn start(rows: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens.toml");
        std::fs::write(&file, rows).unwrap();
        let clock = Arc::new(ManualClock::at_unix_ms(START_UNIX_MS));
        let access =
            Access::load(TokensSource::File(file.clone()), Arc::clone(&clock) as SharedClock).unwrap();
        let access = Arc::new(access);
        let running = Running::with(Settings { access: Some(Arc::clone(&access)), ..settings() }).await;
        let reload = Arc::new(Notify::new());
        let asked = Arc::clone(&reload);
        let following = tokio::spawn(async move { access.follow(&asked).await });
        Self { running, clock, file, reload, following, _folder: folder }
    }

    pub(crate) fn change(&self, rows: &str) {
        std::fs::write(&self.file, rows).unwrap();
        self.reload.notify_one();
    }

    /// Sends a request with this header; returns the head and the body.
    async fn get(&self, path: &str, header: &str) -> (String, String) {
        let (head, body) = self.running.request(&format!("GET {path} HTTP/1.1\r\n{header}")).await;
        (head, String::from_utf8(body).unwrap())
    }

    async fn status(&self, path: &str, secret: &str) -> (u16, String) {
        let (head, body) = self.get(path, &format!("authorization: Bearer {secret}")).await;
        (head[9..12].parse().unwrap(), body)
    }

    async fn log_in(&self, secret: &str) -> Client {
        let mut client = self.running.resp().await;
        assert_eq!(client.ask(&format!("AUTH {secret}")).await, "+OK");
        client
    }
}

#[tokio::test]
async fn http_requires_a_token_but_for_probes() {
    let (rows, secret) = row("web", "namespaces = ['default']");
    let tokens = Tokens::start(&rows).await;
    let (wrong, unknown) = (row("web", "").1, row("other", "").1);
    for path in [
        "/v1/ids/default",
        "/v1/ranges/default",
        "/v1/inspect/1541815603606036480",
        "/v1/inspect/1541815603606036480?namespace=default",
        "/api/snowflake/get/default",
        "/decodeSnowflakeId?snowflakeId=1541815603606036480",
    ] {
        assert_eq!(tokens.status(path, &secret).await.0, 200, "{path}");
        for header in [
            "x: y".to_owned(),
            format!("authorization: Bearer {wrong}"),
            format!("authorization: Bearer {unknown}"),
            format!("authorization: Basic {secret}"),
            format!("authorization: {secret}"),
            format!("authorization: Bearer {secret}\r\nauthorization: Bearer {secret}"),
        ] {
            let (head, body) = tokens.get(path, &header).await;
            assert!(head.starts_with("http/1.1 401 "), "{path} {header}: {head}");
            assert!(head.contains("www-authenticate: bearer"), "{head}");
            assert!(body.contains("\"type\":\"urn:snowmint:unauthorized\""), "{body}");
            assert!(!body.contains(&secret), "{body}");
        }
    }
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        assert!(tokens.get(path, "x: y").await.0.starts_with("http/1.1 200 "), "{path}");
    }
}

/// Goal: a token learns nothing about namespaces that it may not use. Method: one that exists and one that
/// does not, in every request that names one.
#[tokio::test]
async fn a_forbidden_namespace_and_an_unknown_one_get_the_same_answer() {
    let (rows, secret) = row("web", "namespaces = ['default', 'mine-*']");
    let tokens = Tokens::start(&rows).await;
    for path in [
        "/v1/ids/@",
        "/v1/ids/@?count=0",
        "/v1/ranges/@?count=x",
        "/v1/inspect/7?namespace=@",
        "/api/segment/get/@",
        "/api/snowflake/get/@",
    ] {
        let forbidden = tokens.status(&path.replace('@', "orders"), &secret).await;
        let unknown = tokens.status(&path.replace('@', "nobody"), &secret).await;
        assert_eq!(forbidden.0, 403, "{path}: {}", forbidden.1);
        assert_eq!((forbidden.0, forbidden.1.replace("orders", "nobody")), unknown, "{path}");
    }
    let mut client = tokens.log_in(&secret).await;
    for line in [
        "ID.NEXT @",
        "ID.NEXT @ COUNT 0",
        "ID.NEXT @ nonsense",
        "ID.RANGE @ COUNT 0",
        "INCR @",
        "INCRBY @ x",
        "ID.INSPECT 7 NAMESPACE @",
    ] {
        let forbidden = client.ask(&line.replace('@', "orders")).await;
        assert!(
            forbidden.starts_with("-NOPERM token `web` does not cover namespace `orders`"),
            "{line}: {forbidden}"
        );
        let unknown = client.ask(&line.replace('@', "nobody")).await;
        assert_eq!(forbidden.replace("orders", "nobody"), unknown, "{line}");
    }
    // Its own unknown names get the usual error, with its own known names.
    let (status, body) = tokens.status("/v1/ids/mine-1", &secret).await;
    assert!(status == 404 && body.contains("this server has default;") && !body.contains("orders"), "{body}");
    let unknown = client.ask("ID.NEXT mine-1").await;
    assert!(unknown.starts_with("-NONAMESPACE ") && !unknown.contains("orders"), "{unknown}");
    let (_, body) = tokens.status("/v1/inspect/1541815603606036480", &secret).await;
    assert!(body.contains("default") && !body.contains("orders"), "{body}");
}

#[tokio::test]
async fn rights_are_checked_one_by_one() {
    let (mint, minter) = row("minter", "namespaces = ['*']\nrights = ['mint']");
    let (inspect, inspector) = row("inspector", "namespaces = ['*']\nrights = ['inspect']");
    let tokens = Tokens::start(&(mint + &inspect)).await;
    let (ids, inspect) = ("/v1/ids/default", "/v1/inspect/1541815603606036480");
    for (secret, path, status) in
        [(&minter, ids, 200), (&minter, inspect, 403), (&inspector, ids, 403), (&inspector, inspect, 200)]
    {
        assert_eq!(tokens.status(path, secret).await.0, status, "{path}");
    }
    let mut client = tokens.log_in(&inspector).await;
    assert!(
        client
            .ask("ID.NEXT default")
            .await
            .starts_with("-NOPERM token `inspector` does not have the right mint")
    );
}

/// Goal: Redis clients recognise each answer. Method: the commands that they send, in the order in which they
/// send them.
#[tokio::test]
async fn resp_answers_as_redis_with_a_password() {
    let (rows, secret) = row("web", "namespaces = ['*']");
    let tokens = Tokens::start(&rows).await;
    let wrong = row("web", "").1;
    let mut client = tokens.running.resp().await;
    for line in
        ["PING", "ID.NEXT default", "ID.NEXT default COUNT 2", "INFO", "CLIENT ID", "MULTI", "COMMAND COUNT"]
    {
        let refused = client.ask(line).await;
        assert!(refused.starts_with("-NOAUTH Authentication required"), "{line}: {refused}");
    }
    assert!(
        client
            .ask("HELLO 3")
            .await
            .starts_with("-NOAUTH HELLO must be called with the client already authenticated")
    );
    for line in [
        format!("AUTH {wrong}"),
        format!("AUTH {}", &secret[..secret.len() - 1]),
        "AUTH password".to_owned(),
        format!("AUTH other {secret}"),
        format!("HELLO 3 AUTH default {wrong}"),
        format!("HELLO 3 AUTH other {secret}"),
    ] {
        let refused = client.ask(&line).await;
        assert!(refused.starts_with("-WRONGPASS ") && !refused.contains(&secret), "{line}: {refused}");
    }
    assert!(client.ask("PING").await.starts_with("-NOAUTH "));
    for user in ["", "default ", "web "] {
        assert_eq!(client.ask(&format!("AUTH {user}{secret}")).await, "+OK");
        assert_eq!(client.ask("PING").await, "+PONG");
        assert!(client.ask(&format!("AUTH {wrong}")).await.starts_with("-WRONGPASS "));
        assert_eq!(client.ask("PING").await, "+PONG", "a wrong token changes nothing");
        assert_eq!(client.ask("RESET").await, "+RESET");
        assert!(client.ask("PING").await.starts_with("-NOAUTH "));
    }
    let mut client = tokens.running.resp().await;
    assert_eq!(client.ask(&format!("HELLO 3 AUTH web {secret} SETNAME app")).await, "%7");
    let mut other = tokens.running.resp().await;
    // A pipeline: the commands before AUTH are rejected, and no others.
    other.send(format!("PING\r\nAUTH {secret}\r\nPING\r\n").as_bytes()).await;
    assert!(other.line().await.starts_with("-NOAUTH "));
    assert_eq!((other.line().await, other.line().await), ("+OK".to_owned(), "+PONG".to_owned()));
}

#[tokio::test]
async fn tinyid_takes_its_own_parameter() {
    let (rows, secret) = row("web", "namespaces = ['default']");
    let tokens = Tokens::start(&rows).await;
    let get = async |path: String| tokens.get(&path, "x: y").await;
    let wrong = "{\"data\":null,\"code\":5,\"message\":\"token is error\"}";
    let (head, body) = get(format!("/tinyid/id/nextId?bizType=default&token={secret}")).await;
    assert!(head.starts_with("http/1.1 200 ") && body.contains("\"code\":200"), "{body}");
    for path in [
        "/tinyid/id/nextId?bizType=default&token=x".to_owned(),
        format!("/tinyid/id/nextId?bizType=orders&token={secret}"),
        format!("/tinyid/id/nextId?bizType=nobody&token={secret}"),
    ] {
        let (head, body) = get(path).await;
        assert!(head.starts_with("http/1.1 200 ") && body == wrong, "{head} {body}");
    }
    assert_eq!(get("/tinyid/id/nextIdSimple?bizType=default&token=x".to_owned()).await.1, "");
}

/// Goal: a change of the file takes effect at the next request of open connections, and an invalid file
/// changes nothing.
#[tokio::test]
async fn open_connections_notice_a_revoked_token() {
    let (one, first) = row("one", "namespaces = ['*']");
    let (two, second) = row("two", "namespaces = ['*']");
    let tokens = Tokens::start(&format!("{one}{two}")).await;
    let (mut revoked, mut kept) = (tokens.log_in(&first).await, tokens.log_in(&second).await);
    let mut http = tokens.running.http().await;
    let request =
        format!("GET /v1/ids/default HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {first}\r\n\r\n");
    http.send(request.as_bytes()).await;
    assert!(http.line().await.starts_with("HTTP/1.1 200 "));
    tokens.change("[tokens.one]\nsha256 = 'invalid'\n");
    tokens.change(&two);
    // The reload runs in the background.
    while revoked.ask("PING").await == "+PONG" {}
    let refused = revoked.ask("ID.NEXT default").await;
    assert!(refused.starts_with("-NOAUTH invalid token: this server does not know it"), "{refused}");
    assert!(revoked.ask(&format!("AUTH {first}")).await.starts_with("-WRONGPASS "));
    http.send(request.as_bytes()).await;
    // The body before it does not end its line.
    while !http.line().await.contains("HTTP/1.1 401 ") {}
    assert_eq!(tokens.status("/v1/ids/default", &first).await.0, 401);
    assert_eq!(kept.ask("PING").await, "+PONG");
    assert_eq!(tokens.status("/v1/ids/default", &second).await.0, 200);
}

#[tokio::test]
async fn quotas_say_when_to_retry() {
    let (rows, secret) = row("web", "namespaces = ['*']\nrate = 100\nper_day = 250");
    let tokens = Tokens::start(&rows).await;
    let mut client = tokens.log_in(&secret).await;
    assert_eq!(client.ask("ID.NEXT default COUNT 60").await, "*60");
    client.ids(60).await;
    assert_eq!(tokens.status("/v1/ids/default?count=40", &secret).await.0, 200);
    let refused = client.ask("ID.NEXT default").await;
    assert!(
        refused.starts_with("-TRYAGAIN token `web` has used up its quota of 100 ids a second"),
        "{refused}"
    );
    let (head, body) =
        tokens.get("/v1/ranges/default?count=50", &format!("authorization: Bearer {secret}")).await;
    assert!(head.starts_with("http/1.1 429 ") && head.contains("retry-after: 1"), "{head}");
    assert!(body.contains("urn:snowmint:over-quota"), "{body}");
    let (status, body) = tokens.status("/v1/ids/default?count=101", &secret).await;
    assert!(status == 400 && body.contains("request at most 100 at once"), "{body}");
    tokens.clock.advance_ms(1000);
    // Ids that cannot be made are given back.
    tokens.running.source.set_lease(false);
    for _ in 0..5 {
        assert!(client.ask("ID.NEXT default COUNT 100").await.starts_with("-NOTREADY "));
        assert!(client.ask("ID.NEXT default").await.starts_with("-NOTREADY "));
        assert_eq!(tokens.status("/v1/ids/default?count=100", &secret).await.0, 503);
    }
    tokens.running.source.set_lease(true);
    assert_eq!(tokens.status("/v1/ids/default?count=100", &secret).await.0, 200);
    tokens.clock.advance_ms(1000);
    let refused = client.ask("ID.NEXT default COUNT 51").await;
    assert!(refused.contains("its quota of 250 ids a day"), "{refused}");
    assert_eq!(client.ask("ID.NEXT default COUNT 50").await, "*50");
    client.ids(50).await;
    let (_, metrics) = tokens.running.get("/metrics").await;
    for line in [
        "snowmint_token_ids_total{token=\"web\"} 250",
        "snowmint_token_requests_total{token=\"web\",outcome=\"over-quota\"} 3",
        "snowmint_token_requests_total{token=\"web\",outcome=\"bad-count\"} 1",
        "snowmint_token_requests_total{token=\"web\",outcome=\"not-ready\"} 15",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

#[tokio::test]
async fn tokens_expire_while_connected() {
    let (rows, secret) = row("web", &format!("namespaces = ['*']\nexpires = '{}'", START_UNIX_MS + 1000));
    let tokens = Tokens::start(&rows).await;
    let mut client = tokens.log_in(&secret).await;
    assert_eq!(client.ask("INFO nothing").await, "$0");
    client.line().await;
    tokens.clock.advance_ms(1000);
    let refused = client.ask("ID.NEXT default").await;
    assert!(refused.starts_with("-NOAUTH token `web` expired at 2023-11-14T22:13:21.000Z"), "{refused}");
}

/// Goal: guessing tokens at full speed neither finds one nor stops others. Method: four clients send wrong
/// tokens without a pause, in pipelines; an honest one takes ids beside them until all is answered. Counts
/// only, no times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_tokens_at_full_speed_leave_honest_clients_alone() {
    const GUESSES: usize = 2000;
    let (rows, secret) = row("web", "namespaces = ['*']");
    let tokens = Tokens::start(&rows).await;
    let mut honest = tokens.log_in(&secret).await;
    let mut guessing = Vec::new();
    for number in 0..4 {
        let mut client = tokens.running.resp().await;
        // Of the right form, so that each costs a hash; and of a wrong one.
        let guess = if number % 2 == 0 { row("web", "").1 } else { "x".repeat(1000) };
        guessing.push(tokio::spawn(async move {
            client.send(format!("AUTH {guess}\r\nID.NEXT default\r\n").repeat(GUESSES).as_bytes()).await;
            for _ in 0..GUESSES {
                assert!(client.line().await.starts_with("-WRONGPASS "));
                assert!(client.line().await.starts_with("-NOAUTH "));
            }
        }));
    }
    let mut last = 0;
    while !guessing.iter().all(JoinHandle::is_finished) {
        honest.send(b"ID.NEXT default\r\n").await;
        let id = honest.ids(1).await[0];
        assert!(id > last);
        last = id;
    }
    for guesser in guessing {
        guesser.await.unwrap();
    }
    assert!(last > 0, "the honest client got ids meanwhile");
    let (_, metrics) = tokens.running.get("/metrics").await;
    let failed =
        format!("snowmint_requests_total{{protocol=\"resp\",outcome=\"unauthorized\"}} {}", 4 * 2 * GUESSES);
    assert!(metrics.contains(&failed), "{metrics}");
}
