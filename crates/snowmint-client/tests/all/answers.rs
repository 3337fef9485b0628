//! Answers that no server should send, and those that a real one rarely sends, from a listener of the test.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use snowmint_client::{Client, ErrorKind};
use snowmint_test_servers::time;

use super::PATIENCE;

/// When a request arrived, and its lines.
type Asked = (Instant, Vec<String>);

/// Makes an answer from the number, namespace and count of a request.
type Script = dyn Fn(usize, &str, u64) -> String + Send + Sync;

/// A listener that answers by a script.
struct Scripted {
    url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Scripted {
    /// Starts a listener that answers each request by its number and count.
    fn start(answer: impl Fn(usize, u64) -> String + Send + Sync + 'static) -> Self {
        Self::by_namespace(move |nth, _, count| answer(nth, count))
    }

    /// Starts a listener that answers each request by its number, namespace and count.
    fn by_namespace(answer: impl Fn(usize, &str, u64) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (asked, answer) = (Arc::new(Mutex::new(Vec::new())), Arc::new(answer));
        let noted = Arc::clone(&asked);
        // The thread ends with the test process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (noted, answer) = (Arc::clone(&noted), Arc::clone(&answer));
                thread::spawn(move || serve(stream, &noted, &*answer));
            }
        });
        Self { url, asked }
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, asked: &Mutex<Vec<Asked>>, answer: &Script) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    loop {
        let head: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let Some(first) = head.first() else { return };
        let (namespace, query) = first.split_once("/v1/ranges/").unwrap().1.split_once("?count=").unwrap();
        let (namespace, count) = (namespace.to_owned(), query.split('&').next().unwrap().parse().unwrap());
        let nth = {
            let mut asked = asked.lock().unwrap();
            asked.push((time::now(), head));
            asked.len()
        };
        if stream.write_all(answer(nth, &namespace, count).as_bytes()).is_err() {
            return;
        }
    }
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

fn ranges(ranges: &str) -> String {
    answer("200 OK", "", &format!(r#"{{"ranges":[{ranges}]}}"#))
}

/// Goal: an answer with anything wrong is not used, not even in part, and the next server gets the request.
#[test]
fn an_invalid_answer_is_not_used() {
    let good = Scripted::start(|nth, count| {
        ranges(&format!(r#"{{"first":"{nth}000000","count":{count},"step":"1"}}"#))
    });
    let bad: [fn(u64) -> String; 6] = [
        |count| ranges(&format!(r#"{{"first":"77","count":{},"step":"1"}}"#, count + 1)),
        |count| ranges(&format!(r#"{{"first":"9223372036854775800","count":{count},"step":"1"}}"#)),
        |count| ranges(&format!(r#"{{"first":77,"count":{count},"step":"1"}}"#)),
        |count| ranges(&format!(r#"{{"first":"77","count":{count},"step":"1"}}{}"#, " ".repeat(100_000))),
        |count| ranges(&format!(r#"{{"first":"77","count":{count},"step":"1"}}"#)).replace("]}", "]"),
        |_| answer("200 OK", "", "<html>77</html>"),
    ];
    for bad in bad {
        let bad = Scripted::start(move |_, count| bad(count));
        let urls = [bad.url.clone(), good.url.clone()];
        let client =
            Client::builder().servers(urls).order(snowmint_client::ServerOrder::AsListed).timeout(PATIENCE);
        let ids = client.buffer(20..=20).build().unwrap().namespace("a").unwrap();
        assert!(ids.blocking_next_id().unwrap().get() >= 1_000_000);
        assert_eq!(bad.asked().len(), 1);

        let alone = Client::builder().server(&bad.url).timeout(Duration::from_millis(300)).buffer(20..=20);
        let error = alone.build().unwrap().namespace("a").unwrap().blocking_next_id().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("answer"), "{error}");
    }
    assert!(good.asked()[0].1[0].starts_with("POST /v1/ranges/a?count="), "{:?}", good.asked()[0]);
}

/// Goal: a server that sent `Retry-After` gets no request before that time; meanwhile the next one does.
#[test]
fn retry_after_is_honoured() {
    let busy = Scripted::start(|nth, count| match nth {
        1 => answer(
            "503 Service Unavailable",
            "retry-after: 1\r\n",
            r#"{"type":"urn:snowmint:not-ready","detail":"no lease"}"#,
        ),
        _ => ranges(&format!(r#"{{"first":"{nth}000","count":{count},"step":"1"}}"#)),
    });
    let ids = |urls: &[&String]| {
        let client = Client::builder().servers(urls.iter().copied()).timeout(PATIENCE);
        client
            .order(snowmint_client::ServerOrder::AsListed)
            .buffer(0..=0)
            .build()
            .unwrap()
            .namespace("a")
            .unwrap()
    };
    assert_eq!(ids(&[&busy.url]).blocking_next_id().unwrap().get(), 2000);
    let asked = busy.asked();
    assert!(asked[1].0 - asked[0].0 >= Duration::from_secs(1));

    let (busy, other) = (
        Scripted::start(|_, _| answer("429 Too Many Requests", "retry-after: 600\r\n", "")),
        Scripted::start(|nth, count| {
            ranges(&format!(r#"{{"first":"{nth}000","count":{count},"step":"1"}}"#))
        }),
    );
    let both = ids(&[&busy.url, &other.url]);
    for expected in [1000, 2000, 3000] {
        assert_eq!(both.blocking_next_id().unwrap().get(), expected);
        // Longer than a server is tried last after one failure.
        thread::sleep(Duration::from_millis(150));
    }
    assert_eq!(busy.asked().len(), 1);
}

/// Goal: if every server asks to retry later than the timeout, callers get the reason immediately, and the
/// servers get no request.
#[test]
fn nobody_waits_for_servers_that_are_closed_for_longer() {
    let over = Scripted::start(|_, _| {
        answer("429 Too Many Requests", "retry-after: 50\r\n", r#"{"detail":"5000 ids a day"}"#)
    });
    let ids = Client::builder().server(&over.url).timeout(PATIENCE).build().unwrap().namespace("a").unwrap();
    let (began, mut counts) = (time::now(), Vec::new());
    for _ in 0..3 {
        let error = ids.blocking_next_id().unwrap_err();
        counts.push(over.asked().len());
        assert_eq!((error.kind(), error.status()), (ErrorKind::OverQuota, Some(429)));
        assert!(error.is_temporary() && error.to_string().contains("5000 ids a day"), "{error}");
        let wait = error.retry_after().unwrap();
        assert!(wait > Duration::from_secs(20) && wait <= Duration::from_secs(50), "{wait:?}");
    }
    assert!(began.elapsed() < PATIENCE);
    // For fewer ids each time, down to the one that the caller wants; then none.
    assert_eq!(counts, [3; 3]);
    // Another namespace does not know the reason, only how long to wait.
    let error = ids.client().namespace("b").unwrap().blocking_next_id().unwrap_err();
    assert!(error.retry_after() > Some(Duration::from_secs(20)), "{error}");
    assert_eq!(over.asked().len(), 3);
}

/// Goal: a failure that concerns one namespace closes the server for that namespace only; one that concerns
/// the server or the token closes it for all. Method: each kind of failure with a `Retry-After` far beyond
/// the timeout, then a call for a namespace that the server can serve.
#[test]
fn only_the_namespace_that_a_failure_is_about_waits() {
    let kinds = [
        ("503 Service Unavailable", "urn:snowmint:not-ready", false),
        ("503 Service Unavailable", "urn:snowmint:clock-behind", false),
        ("504 Gateway Timeout", "urn:snowmint:expired", false),
        ("503 Service Unavailable", "urn:snowmint:of-a-later-version", false),
        ("503 Service Unavailable", "urn:snowmint:too-many-clients", true),
        ("429 Too Many Requests", "urn:snowmint:over-quota", true),
        ("429 Too Many Requests", "about:blank", true),
        ("503 Service Unavailable", "about:blank", true),
        ("408 Request Timeout", "", true),
    ];
    for (status, kind, closes_all) in kinds {
        let server = Scripted::by_namespace(move |nth, namespace, count| match namespace {
            "invoices" => answer(status, "retry-after: 50\r\n", &format!(r#"{{"type":"{kind}"}}"#)),
            _ => ranges(&format!(r#"{{"first":"{nth}000","count":{count},"step":"1"}}"#)),
        });
        let client = Client::builder().server(&server.url).timeout(PATIENCE).buffer(0..=0).build().unwrap();
        let [orders, invoices] = ["orders", "invoices"].map(|name| client.namespace(name).unwrap());
        orders.blocking_next_id().unwrap();
        let error = invoices.blocking_next_id().unwrap_err();
        assert!(error.retry_after() > Some(Duration::from_secs(20)), "{status} {kind}: {error}");
        let after = orders.blocking_next_id();
        assert_eq!(after.is_err(), closes_all, "{status} {kind}: {after:?}");
        // Ids of another namespace do not reopen it, nor does a new handle after the last one is gone.
        invoices.blocking_next_id().unwrap_err();
        drop(invoices);
        client.namespace("invoices").unwrap().blocking_next_id().unwrap_err();
        assert_eq!(server.asked().len(), if closes_all { 2 } else { 3 }, "{status} {kind}");
    }
}

/// Goal: if a server cannot make that many ids in time, or the token's quota is too small, the client
/// requests fewer, and callers get their ids over several requests.
#[test]
fn fewer_ids_are_requested_where_many_are_refused() {
    let refusals = [
        ("503 Service Unavailable", "retry-after: 1\r\n", "busy"),
        ("429 Too Many Requests", "retry-after: 0\r\n", "over-quota"),
        ("400 Bad Request", "", "bad-count"),
    ];
    for (status, headers, name) in refusals {
        let slow = Scripted::start(move |nth, count| {
            if count > 100 {
                return answer(status, headers, &format!(r#"{{"type":"urn:snowmint:{name}"}}"#));
            }
            ranges(&format!(r#"{{"first":"{nth}000","count":{count},"step":"1"}}"#))
        });
        let ids =
            Client::builder().server(&slow.url).timeout(PATIENCE).build().unwrap().namespace("a").unwrap();
        let mut drawn: Vec<_> = ids.blocking_next_ids(1000).unwrap().iter().map(|id| id.get()).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 1000, "{name}");
    }
}

/// Goal: a hedged request uses only the ids of the first answer.
#[test]
fn both_answers_of_a_hedged_request_are_used_once_at_most() {
    let slow = Scripted::start(|nth, count| {
        thread::sleep(Duration::from_millis(150));
        ranges(&format!(r#"{{"first":"1{nth:03}00","count":{count},"step":"1"}}"#))
    });
    let quick = Scripted::start(|nth, count| {
        ranges(&format!(r#"{{"first":"2{nth:03}00","count":{count},"step":"1"}}"#))
    });
    let urls = [slow.url.clone(), quick.url.clone()];
    let client = Client::builder().servers(urls).order(snowmint_client::ServerOrder::AsListed);
    let client =
        client.timeout(PATIENCE).hedge_after(Duration::from_millis(10)).buffer(0..=10).build().unwrap();
    let ids = client.namespace("a").unwrap();
    let mut drawn: Vec<_> = (0..100).map(|_| ids.blocking_next_id().unwrap().get()).collect();
    assert!(client.stats().hedged > 0 && drawn.iter().any(|id| *id >= 200_000));
    drawn.sort_unstable();
    drawn.dedup();
    assert_eq!(drawn.len(), 100);
}

/// Goal: the next request uses a new token in the file, each kind of rejection has its error, and no error
/// shows a token. Goal: a caller gets one of the last ids of a daily quota, although a refill asks for more.
/// Method: a server that refuses more than 10 ids until tomorrow.
#[test]
fn the_last_ids_of_a_daily_quota_are_reachable() {
    let server = Scripted::start(|nth, count| {
        if count <= 10 {
            return ranges(&format!(r#"{{"first":"{nth}000","count":{count},"step":"1"}}"#));
        }
        let detail = r#"{"type":"urn:snowmint:over-quota","detail":"10M ids a day"}"#;
        answer("429 Too Many Requests", "retry-after: 3600\r\n", detail)
    });
    let client = Client::builder().server(&server.url).timeout(PATIENCE).build().unwrap();
    client.namespace("a").unwrap().blocking_next_id().unwrap();
}

/// Goal: a caller gets an error within its timeout, also if the file system of the token hangs. Method: a
/// FIFO that nobody writes.
#[test]
fn a_token_file_that_hangs_does_not_outlast_the_timeout() {
    let server = Scripted::start(|nth, count| {
        ranges(&format!(r#"{{"first":"{nth}000","count":{count},"step":"1"}}"#))
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let builder = Client::builder().server(&server.url).token_file(&file).timeout(Duration::from_millis(500));
    let client = builder.build().unwrap();
    for _ in 0..2 {
        let error = client.namespace("a").unwrap().blocking_next_id().unwrap_err();
        assert!(error.to_string().contains("token file"), "{error}");
    }
}

#[test]
fn a_token_is_sent_and_read_again() {
    let picky = Scripted::start(|nth, count| match nth {
        2 => answer(
            "401 Unauthorized",
            "",
            r#"{"type":"urn:snowmint:unauthorized","detail":"the token has expired"}"#,
        ),
        4 => answer(
            "403 Forbidden",
            "",
            r#"{"type":"urn:snowmint:forbidden","detail":"not of this namespace"}"#,
        ),
        _ => ranges(&format!(r#"{{"first":"{nth}000","count":{count},"step":"1"}}"#)),
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let write = |token: &str| std::fs::write(&file, token).unwrap();
    write("hunter1\n");
    let builder = Client::builder().server(&picky.url).token_file(&file).timeout(PATIENCE).buffer(0..=0);
    let client = builder.build().unwrap();
    let ids = client.namespace("a").unwrap();
    ids.blocking_next_id().unwrap();
    let refused = ids.blocking_next_id().unwrap_err();
    assert_eq!((refused.kind(), refused.status()), (ErrorKind::Unauthorized, Some(401)));
    let said = refused.to_string();
    assert!(said.contains("the token has expired") && said.contains("ClientBuilder::token"), "{said}");
    write("hunter2");
    ids.blocking_next_id().unwrap();
    let forbidden = ids.blocking_next_id().unwrap_err();
    assert_eq!((forbidden.kind(), forbidden.status()), (ErrorKind::Forbidden, Some(403)));
    assert!(forbidden.to_string().contains("`a`"), "{forbidden}");
    std::fs::remove_file(&file).unwrap();
    let missing = ids.blocking_next_id().unwrap_err();
    assert!(
        missing.kind() == ErrorKind::Unauthorized && missing.to_string().contains("token file"),
        "{missing}"
    );
    let sent: Vec<_> = picky.asked().iter().flat_map(|(_, head)| head.clone()).collect();
    let tokens: Vec<_> = sent.iter().filter_map(|line| line.strip_prefix("authorization: ")).collect();
    assert_eq!(tokens, ["Bearer hunter1", "Bearer hunter1", "Bearer hunter2", "Bearer hunter2"]);
    assert!(!format!("{client:?} {refused:?} {forbidden:?} {said}").contains("hunter"));
}
