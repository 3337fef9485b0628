//! HTTP/2 by prior knowledge over real sockets. The client writes frames by hand, so that it can also break
//! the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use snowmint::{Layout, ManualClock};
use snowmint_cluster::NamespaceName;

use snowmint_cluster::namespace::{Definition, Fields, Scheme, SegmentScheme};
use snowmint_cluster::segment::{SegmentConfig, Segments, Stripe};
use snowmint_server::limits::http2::{MAX_RESETS, MAX_STREAMS};
use snowmint_server::limits::unread::{ALL, LONG, READ_SOON};
use snowmint_server::mint::{Backend, Namespace};
use snowmint_server::{Settings, SharedClock, Timeouts};
use snowmint_store::{Counter, Key, MemoryStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::support::cut_off_store::CutOff;
use crate::support::running_service::{Running, settings};
use crate::support::test_source::{START_UNIX_MS, TestSource, mint_of};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap();
    [&len.to_be_bytes()[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The header block of a request: indexed fields and literals without Huffman coding (RFC 7541).
fn head(path: &str, authority: Option<&str>) -> Vec<u8> {
    // `:method: GET`, `:scheme: http`, then literals with the names `:path` and `:authority`.
    let mut head = vec![0x82, 0x86];
    for (name, value) in [(4, Some(path)), (1, authority)] {
        let Some(value) = value else { continue };
        assert!(value.len() < 127);
        head.extend([name, u8::try_from(value.len()).unwrap()]);
        head.extend(value.as_bytes());
    }
    head
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

#[derive(Debug, Default)]
struct Answer {
    /// The first byte of the header block: 0x88 is 200.
    status: u8,
    body: Vec<u8>,
    reset: bool,
}

struct Client {
    stream: TcpStream,
    next: u32,
    /// Whether the server has said that it takes no more streams.
    goodbye: bool,
}

impl Client {
    /// Connects over HTTP. `window` is the initial window of each stream.
    async fn connect(server: &Running, window: u32) -> Self {
        Self::connect_to(server.http, window).await
    }

    async fn connect_to(address: SocketAddr, window: u32) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // A write that waited for an acknowledgement would be late in paused time.
        stream.set_nodelay(true).unwrap();
        let setting = [&[0, 4][..], &window.to_be_bytes()].concat();
        stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &setting)].concat()).await.unwrap();
        Self { stream, next: 1, goodbye: false }
    }

    /// Returns the frame of a request, and the number of its stream.
    fn request(&mut self, path: &str) -> (u32, Vec<u8>) {
        let stream = self.next;
        self.next += 2;
        (stream, frame(HEADERS, END_STREAM | END_HEADERS, stream, &head(path, Some("test"))))
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Sends to a server that may have closed after its last answer.
    async fn reply(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Reads a frame; `None` once the server has closed.
    async fn frame(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.ok()?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; len as usize];
        self.stream.read_exact(&mut payload).await.ok()?;
        let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
        self.goodbye |= head[3] == GO_AWAY;
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// Reads until `streams` have ended, and returns their answers.
    async fn answers(&mut self, streams: usize) -> BTreeMap<u32, Answer> {
        let (mut answers, mut ended) = (BTreeMap::<u32, Answer>::new(), 0);
        while ended < streams {
            let frame = self.frame().await.expect("closed before all were answered");
            let answer = answers.entry(frame.stream).or_default();
            match frame.kind {
                HEADERS => answer.status = frame.payload[0],
                DATA => {
                    let credit = u32::try_from(frame.payload.len()).unwrap();
                    answer.body.extend(frame.payload);
                    if credit > 0 {
                        let credit = credit.to_be_bytes();
                        let both = [0, frame.stream].map(|id| self::frame(WINDOW_UPDATE, 0, id, &credit));
                        self.reply(&both.concat()).await;
                    }
                }
                RST_STREAM => answer.reset = true,
                SETTINGS if frame.flags & ACK == 0 => self.reply(&self::frame(SETTINGS, ACK, 0, &[])).await,
                PING if frame.flags & ACK == 0 => {
                    self.reply(&self::frame(PING, ACK, 0, &frame.payload)).await;
                }
                _ => {}
            }
            let ends = matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0;
            ended += usize::from(ends || frame.kind == RST_STREAM);
        }
        answers.remove(&0);
        answers
    }

    async fn get(&mut self, path: &str) -> Answer {
        let (stream, request) = self.request(path);
        self.send(&request).await;
        self.answers(1).await.remove(&stream).unwrap()
    }

    /// Sends requests and reads the heads of all answers. Returns the streams whose status is not 200.
    async fn refused(&mut self, paths: &[&str]) -> Vec<u32> {
        let requests: Vec<u8> = paths.iter().flat_map(|path| self.request(path).1).collect();
        self.send(&requests).await;
        let (mut heads, mut refused) = (0, Vec::new());
        while heads < paths.len() {
            let frame = self.frame().await.expect("closed before all were answered");
            if frame.kind == HEADERS {
                heads += 1;
                refused.extend((frame.payload[0] != OK).then_some(frame.stream));
            }
        }
        refused
    }

    /// Reads until the server closes. Returns whether it said goodbye.
    async fn closed(&mut self) -> bool {
        let reading = async {
            while let Some(frame) = self.frame().await {
                if frame.kind == PING && frame.flags & ACK == 0 {
                    let _ = self.stream.write_all(&self::frame(PING, ACK, 0, &frame.payload)).await;
                }
            }
        };
        tokio::time::timeout(Duration::from_hours(1), reading).await.expect("the server does not close");
        self.goodbye
    }
}

fn ids(body: &[u8]) -> Vec<u64> {
    let document: Value = serde_json::from_slice(body).unwrap();
    let ids = document["ids"].as_array().unwrap();
    ids.iter().map(|id| id.as_str().unwrap().parse().unwrap()).collect()
}

const WINDOW: u32 = 65_535;
const OK: u8 = 0x88;

/// Goal: many streams at once, small and large, are all answered, and the ids of the connection increase
/// stream by stream.
#[tokio::test]
async fn streams_at_once_are_all_answered() {
    let server = Running::start().await;
    let mut client = Client::connect(&server, WINDOW).await;
    let first = client.get("/v1/ids/default").await;
    assert_eq!((first.status, ids(&first.body).len()), (OK, 1));
    let mut last = ids(&first.body)[0];
    for count in [1, 20, 3000] {
        let (mut requests, mut streams) = (Vec::new(), Vec::new());
        for _ in 0..MAX_STREAMS {
            let (stream, request) = client.request(&format!("/v1/ids/default?count={count}"));
            requests.extend(request);
            streams.push(stream);
        }
        client.send(&requests).await;
        let answers = client.answers(streams.len()).await;
        assert_eq!(answers.keys().copied().collect::<Vec<_>>(), streams);
        for answer in answers.values() {
            assert_eq!(answer.status, OK);
            let ids = ids(&answer.body);
            assert_eq!(ids.len(), count);
            assert!(ids[0] > last && ids.is_sorted_by(|a, b| a < b), "{count}");
            last = *ids.last().unwrap();
        }
    }
    assert_ne!(client.get("/v1/ids/nope").await.status, OK);
}

#[tokio::test]
async fn a_request_names_its_host() {
    let server = Running::start().await;
    let mut client = Client::connect(&server, WINDOW).await;
    let bare = frame(HEADERS, END_STREAM | END_HEADERS, 1, &head("/healthz", None));
    client.send(&bare).await;
    let answers = client.answers(1).await;
    assert!(String::from_utf8_lossy(&answers[&1].body).contains("missing Host header"));
}

/// Goal: a request that waits for its ids does not delay requests of its connection that need none.
#[tokio::test]
async fn a_waiting_stream_holds_up_no_other() {
    let server = Running::start().await;
    let mut client = Client::connect(&server, WINDOW).await;
    server.source.set_stuck(true);
    let (waits, request) = client.request("/v1/ids/default?count=50000");
    client.send(&request).await;
    server.source.waiting(1).await;
    assert_eq!(client.get("/healthz").await.body, b"ok\n");
    let missing = client.get("/v1/ids/nope").await;
    assert!(String::from_utf8_lossy(&missing.body).contains("unknown namespace"));
    server.source.set_stuck(false);
    let answers = client.answers(1).await;
    assert_eq!(ids(&answers[&waits].body).len(), 50_000);
}

/// Goal: a request for numbers whose store does not answer delays no other request of its connection, not
/// even one for ids.
#[tokio::test]
async fn a_stream_that_waits_for_its_store_holds_up_no_other() {
    let store = Arc::new(CutOff::default());
    store.fall_silent();
    let counter = Stripe::WHOLE.counter(store, Key::new("n").unwrap(), 1);
    let counters: Vec<Arc<dyn Counter>> = vec![Arc::new(counter)];
    let clock = || ManualClock::at_unix_ms(START_UNIX_MS);
    let segments = Segments::start(counters, SegmentConfig::new(), clock()).unwrap();
    let scheme = Scheme::Segment(SegmentScheme::new());
    let definition = Definition { scheme, ..Definition::snowflake(Layout::TWITTER) };
    let shared: SharedClock = Arc::new(clock());
    let name = NamespaceName::new("numbers").unwrap();
    let numbers = Namespace::new(name, definition, Backend::Segment(segments), &shared);
    let source = TestSource::new(Layout::TWITTER);
    let mint = mint_of(source.clone(), Layout::TWITTER);
    mint.serve([mint.table().namespaces(), &[Arc::new(numbers)]].concat());
    let server = Running::serving(mint.into(), source, settings()).await;
    let mut client = Client::connect(&server, WINDOW).await;
    let (waits, request) = client.request("/v1/ids/numbers");
    client.send(&request).await;
    for path in ["/v1/ids/default", "/v1/ids/orders?count=5000"] {
        let (other, request) = client.request(path);
        client.send(&request).await;
        let answers = client.answers(1).await;
        assert_eq!((answers[&other].status, answers.contains_key(&waits)), (OK, false), "{path}");
    }
}

/// Goal: a request that waits for its ids delays only requests for ids of the same worker, and these stay in
/// order. Method: a pool whose waits do not end; namespaces of the same pool, of another one, and of numbers,
/// on one connection.
#[tokio::test]
async fn a_stream_that_waits_for_its_worker_holds_up_no_other_pool() {
    let source = TestSource::new(Layout::TWITTER);
    let mint = mint_of(source.clone(), Layout::TWITTER);
    let clock = || ManualClock::at_unix_ms(START_UNIX_MS);
    let shared: SharedClock = Arc::new(clock());
    let other = mint.add_pool(Box::new(TestSource::new(Layout::TWITTER)), Layout::TWITTER);
    let counters: Vec<Arc<dyn Counter>> =
        vec![Arc::new(Stripe::WHOLE.counter(Arc::new(MemoryStore::new()), Key::new("n").unwrap(), 1))];
    let segments = Segments::start(counters, SegmentConfig::new(), clock()).unwrap();
    let namespace = |name: &str, scheme: &str, backend| {
        let scheme = Fields { scheme: scheme.to_owned(), ..Fields::default() };
        let definition = scheme.define(&Layout::TWITTER).unwrap();
        Arc::new(Namespace::new(NamespaceName::new(name).unwrap(), definition, backend, &shared))
    };
    let others = [
        namespace("another", "snowflake", Backend::Snowflake(other)),
        namespace("numbers", "segment", Backend::Segment(segments)),
    ];
    mint.serve([mint.table().namespaces(), &others].concat());
    let server = Running::serving(mint.into(), source.clone(), settings()).await;
    let mut client = Client::connect(&server, WINDOW).await;
    assert_eq!(client.get("/v1/ids/numbers").await.status, OK);
    let first = ids(&client.get("/v1/ids/default").await.body)[0];
    source.set_stuck(true);
    let (waits, request) = client.request("/v1/ids/default?count=50000");
    client.send(&request).await;
    source.waiting(1).await;
    let (behind, request) = client.request("/v1/ids/orders?count=2");
    client.send(&request).await;
    for path in ["/v1/ids/another", "/v1/ids/numbers"] {
        let (answered, request) = client.request(path);
        client.send(&request).await;
        let answers = client.answers(1).await;
        assert_eq!(answers.keys().copied().collect::<Vec<_>>(), [answered], "{path}");
        assert_eq!(answers[&answered].status, OK, "{path}");
    }
    source.set_stuck(false);
    let answers = client.answers(2).await;
    let (waited, behind) = (ids(&answers[&waits].body), ids(&answers[&behind].body));
    assert!(waited.len() == 50_000 && waited[0] > first && behind[0] > waited[49_999], "out of order");
    let last = ids(&client.get("/v1/ids/default").await.body)[0];
    assert!(last > behind[1]);
}

/// Goal: a shutdown finishes streams in flight, says goodbye, and closes idle connections.
#[tokio::test]
async fn the_end_lets_streams_finish() {
    let server = Running::start().await;
    let source = server.source.clone();
    let (mut idle, mut client) =
        (Client::connect(&server, WINDOW).await, Client::connect(&server, WINDOW).await);
    assert_eq!(idle.get("/healthz").await.status, OK);
    source.set_stuck(true);
    let (stream, request) = client.request("/v1/ids/default?count=50000");
    client.send(&request).await;
    source.waiting(1).await;
    let ending = server.end();
    assert!(idle.closed().await, "no goodbye");
    source.set_stuck(false);
    let answers = client.answers(1).await;
    assert_eq!(ids(&answers[&stream].body).len(), 50_000);
    client.closed().await;
    assert_eq!(ending.await.unwrap().cut, 0);
}

/// Goal: a client that does not confirm the goodbye does not delay the shutdown. Method: paused time.
#[tokio::test(start_paused = true)]
async fn a_silent_client_is_closed_at_the_end() {
    let server = Running::start().await;
    let mut silent = Client::connect(&server, WINDOW).await;
    assert_eq!(silent.get("/healthz").await.status, OK);
    let mut of_grpc = Client::connect_to(server.grpc, WINDOW).await;
    assert_ne!(of_grpc.get("/").await.status, 0);
    assert_eq!(server.end().await.unwrap().cut, 0);
}

/// Goal: a shutdown does not cut an answer that its client reads late, not even the last bytes of it. Method:
/// paused time, and windows that hold back the whole answer or all but a few bytes.
#[tokio::test(start_paused = true)]
async fn the_end_waits_for_answers_that_are_read_late() {
    for window in [0, 10] {
        let server = Running::start().await;
        let mut late = Client::connect(&server, window).await;
        let (stream, request) = late.request("/v1/ids/default?count=100");
        late.send(&request).await;
        while late.frame().await.unwrap().kind != HEADERS {}
        let ending = server.end();
        tokio::time::sleep(Duration::from_secs(3)).await;
        late.send(&frame(WINDOW_UPDATE, 0, stream, &WINDOW.to_be_bytes())).await;
        let answers = late.answers(1).await;
        assert_eq!(ids(&answers[&stream].body).len(), 100);
        late.closed().await;
        assert_eq!(ending.await.unwrap().cut, 0);
    }
}

/// Goal: during the drain delay, a client learns that its next requests belong on another node.
#[tokio::test]
async fn a_node_that_leaves_says_goodbye() {
    let server = Running::with(Settings { drain_delay: Duration::from_hours(1), ..settings() }).await;
    let http = server.http;
    let mut client = Client::connect(&server, WINDOW).await;
    assert_eq!(client.get("/healthz").await.status, OK);
    let ending = server.end();
    while crate::support::running_service::Client::at(http).await.probe().await {}
    assert_eq!(ids(&client.get("/v1/ids/default").await.body).len(), 1);
    assert!(client.closed().await, "no goodbye");
    ending.abort();
}

/// Goal: the time limits of HTTP/1.1 hold for HTTP/2 too: for the first request, for a request that does not
/// arrive, for an idle connection whatever pings arrive, and for a client that reads nothing. Method: paused
/// time.
#[tokio::test(start_paused = true)]
async fn idle_connections_half_requests_and_stalled_answers_are_closed() {
    let (idle, request, write) = (Duration::from_mins(10), Duration::from_secs(30), Duration::from_mins(2));
    let timeouts = Timeouts { idle: Some(idle), request, write };
    let server = Running::with(Settings { timeouts, ..settings() }).await;
    let near = |what: &str, began: Instant, within: Duration| {
        let took = began.elapsed();
        assert!(took >= within && took < within + Duration::from_secs(3), "{what}: {took:?} of {within:?}");
    };

    let mut silent = Client::connect(&server, WINDOW).await;
    let began = Instant::now();
    silent.closed().await;
    near("silent", began, request);

    let mut half = Client::connect(&server, WINDOW).await;
    assert_eq!(half.get("/healthz").await.status, OK);
    let (_, bytes) = half.request("/healthz");
    half.send(&bytes[..12]).await;
    let began = Instant::now();
    half.closed().await;
    near("half", began, request);

    let mut unended = Client::connect(&server, WINDOW).await;
    assert_eq!(unended.get("/healthz").await.status, OK);
    unended.send(&frame(HEADERS, END_STREAM, 3, &head("/healthz", None))).await;
    let began = Instant::now();
    unended.closed().await;
    near("unended", began, request);

    let mut pings = Client::connect(&server, WINDOW).await;
    assert_eq!(pings.get("/healthz").await.status, OK);
    let began = Instant::now();
    while pings.stream.write_all(&frame(PING, 0, 0, &[7; 8])).await.is_ok() && began.elapsed() < idle {
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
    pings.closed().await;
    near("pings", began, idle);

    // It opens no window, so nothing can be sent.
    let mut stalled = Client::connect(&server, 0).await;
    let (_, bytes) = stalled.request("/v1/ids/default?count=1000");
    stalled.send(&bytes).await;
    let began = Instant::now();
    stalled.closed().await;
    near("stalled", began, write);
}

/// Goal: a client that reads some answers holds no others past the write time limit: each is reset, or ends
/// the connection if only its last bytes are left. Method: paused time, and small requests in between that
/// are answered.
#[tokio::test(start_paused = true)]
async fn each_answer_has_a_time_limit_of_its_own() {
    let (write, pause) = (Duration::from_mins(1), Duration::from_secs(20));
    for (window, count, ends) in [(0, 3000, false), (10, 3000, false), (10, 100, true)] {
        let timeouts = Timeouts { write, ..Timeouts::default() };
        let server = Running::with(Settings { timeouts, ..settings() }).await;
        let mut client = Client::connect(&server, window).await;
        let (stalled, request) = client.request(&format!("/v1/ids/default?count={count}"));
        client.send(&request).await;
        let began = Instant::now();
        let mut outcome = None;
        while outcome.is_none() && began.elapsed() < 10 * write {
            tokio::time::sleep(pause).await;
            let (small, request) = client.request("/healthz");
            let opens = frame(WINDOW_UPDATE, 0, small, &WINDOW.to_be_bytes());
            client.reply(&[request, opens].concat()).await;
            outcome = loop {
                match client.frame().await {
                    None => break Some(true),
                    Some(frame) if frame.kind == RST_STREAM && frame.stream == stalled => break Some(false),
                    Some(frame) if frame.stream == small && frame.flags & END_STREAM != 0 => break None,
                    Some(_) => {}
                }
            };
        }
        assert_eq!(outcome, Some(ends), "{window} {count}");
        assert!(began.elapsed() >= write && began.elapsed() <= write + 2 * pause, "{:?}", began.elapsed());
    }
}

/// Goal: a client of a gRPC stream may send as many requests as its first window holds, before it reads any
/// answer.
#[tokio::test]
async fn many_requests_of_a_grpc_stream_before_the_first_answer() {
    const REQUESTS: usize = 4600;
    let server = Running::start().await;
    let mut client = Client::connect_to(server.grpc, 0).await;
    // POST, and a literal with the name `content-type`.
    let mut head = head("/snowmint.v1.Snowmint/Stream", Some("test"));
    head[0] = 0x83;
    head.extend(b"\x0f\x10\x10application/grpc");
    let request = frame(DATA, 0, 1, b"\0\0\0\0\x09\x0a\x07default");
    client.send(&frame(HEADERS, END_HEADERS, 1, &head)).await;
    client.send(&request.repeat(REQUESTS)).await;
    client.send(&frame(DATA, END_STREAM, 1, &[])).await;
    // The answer to a ping shows that all of it was read.
    client.send(&frame(PING, 0, 0, &[7; 8])).await;
    loop {
        let frame = client.frame().await.expect("the connection goes on");
        assert_ne!(frame.kind, GO_AWAY);
        if frame.kind == PING {
            break;
        }
    }
    client.send(&frame(WINDOW_UPDATE, 0, 1, &WINDOW.to_be_bytes())).await;
    let answers = client.answers(1).await;
    // Each has a head of 5 bytes, and a field of 2 with an id of 8.
    assert_eq!(answers[&1].body.len(), REQUESTS * 15);
}

/// Goal: answers that nobody reads hold a bounded amount of memory, by connection and in all. Past it
/// requests fail with the reason, before they draw ids; clients with one request at a time are served, and
/// all of it is given back with the connections.
#[tokio::test]
async fn unread_answers_are_bounded_and_given_back() {
    let server = Running::start().await;
    let long = "/v1/ids/default?count=1000";
    let mut greedy = Vec::new();
    let mut refused = Vec::new();
    while refused.is_empty() {
        assert!(greedy.len() <= ALL / (LONG * (MAX_STREAMS as usize - 1)), "no bound");
        let mut client = Client::connect(&server, 0).await;
        refused = client.refused(&[long; MAX_STREAMS as usize]).await;
        greedy.push(client);
    }
    let last = greedy.last_mut().unwrap();
    last.send(&frame(WINDOW_UPDATE, 0, refused[0], &WINDOW.to_be_bytes())).await;
    let problem = last.answers(1).await.remove(&refused[0]).unwrap();
    let problem: Value = serde_json::from_slice(&problem.body).unwrap();
    assert_eq!((&problem["type"], &problem["status"]), (&"urn:snowmint:too-many-unread".into(), &503.into()));
    assert!(problem["detail"].as_str().unwrap().contains("12 MiB"), "{problem}");

    let mut honest = Client::connect(&server, WINDOW).await;
    for path in [long, "/metrics", "/openapi.json", "/v1/ids/default?count=500", "/readyz", "/v1/ids/default"]
    {
        assert_eq!(honest.get(path).await.status, OK, "{path}");
    }
    let (_, metrics) = server.get("/metrics").await;
    let counted = format!("outcome=\"too-many-unread\"}} {}\n", refused.len());
    assert!(metrics.contains(&counted), "{metrics}");
    drop((greedy, honest));
    let given_back = async {
        while !Client::connect(&server, 0).await.refused(&[long; MAX_STREAMS as usize]).await.is_empty() {}
    };
    tokio::time::timeout(Duration::from_mins(1), given_back).await.unwrap();
}

/// Goal: clients that read nothing do not keep others from having several long answers at once, and lose
/// theirs after seconds, not after the write time limit, but only while others need the memory. Method:
/// paused time, and twenty clients with as many requests as each may have.
#[tokio::test(start_paused = true)]
async fn unread_answers_that_hinder_others_are_reset_soon() {
    let server = Running::start().await;
    let long = "/v1/ids/default?count=100000";
    let mut greedy = Vec::new();
    for _ in 0..20 {
        let mut client = Client::connect(&server, 0).await;
        client.refused(&[long; MAX_STREAMS as usize]).await;
        greedy.push(client);
        if greedy.len() == 6 {
            let mut honest = Client::connect(&server, 0).await;
            assert_eq!(honest.refused(&[long; 8]).await, [0; 0], "each client may have some");
        }
    }
    let many = [long; 60];
    let mut honest = Client::connect(&server, 0).await;
    assert_ne!(honest.refused(&many).await, [0; 0], "not so many");
    tokio::time::sleep(3 * READ_SOON).await;
    let mut honest = Client::connect(&server, 0).await;
    assert_eq!(honest.refused(&many).await, [0; 0], "half was given back");
    drop((greedy, honest));
    tokio::time::sleep(READ_SOON).await;

    let mut alone = Client::connect(&server, 0).await;
    assert_eq!(alone.refused(&[long; MAX_STREAMS as usize]).await, [0; 0], "the memory was given back");
    tokio::time::sleep(6 * READ_SOON).await;
    alone.send(&frame(WINDOW_UPDATE, 0, 1, &WINDOW.to_be_bytes())).await;
    assert_eq!(alone.frame().await.map(|frame| (frame.kind, frame.stream)), Some((DATA, 1)));
}

/// Returns the frames of a gRPC call with one message. It is the whole request if `flags` end the stream.
fn call(stream: u32, path: &str, message: &[u8], flags: u8) -> Vec<u8> {
    // POST, and a literal with the name `content-type`.
    let mut head = head(path, Some("test"));
    head[0] = 0x83;
    head.extend(b"\x0f\x10\x10application/grpc");
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let message = [&[0], &length[..], message].concat();
    [frame(HEADERS, END_HEADERS, stream, &head), frame(DATA, flags, stream, &message)].concat()
}

/// Goal: answers of gRPC calls that nobody reads are bounded in all, single ones and those of streams.
#[tokio::test]
async fn unread_answers_of_calls_are_bounded() {
    for method in ["Next", "Stream"] {
        let server = Running::start().await;
        let mut all = Vec::new();
        loop {
            let mut client = Client::connect(&server, 0).await;
            let path = format!("/snowmint.v1.Snowmint/{method}");
            // 5,000 ids of `default`.
            let request = |nth| call(2 * nth + 1, &path, b"\x0a\x07default\x10\x88\x27", END_STREAM);
            client.send(&(0..MAX_STREAMS).flat_map(request).collect::<Vec<u8>>()).await;
            let mut heads = BTreeSet::new();
            while heads.len() < MAX_STREAMS as usize {
                let frame = client.frame().await.expect("the connection goes on");
                heads.extend((frame.kind == HEADERS).then_some(frame.stream));
            }
            all.push(client);
            let (_, metrics) = server.get("/metrics").await;
            if !metrics.contains("{protocol=\"grpc\",outcome=\"too-many-unread\"} 0\n") {
                break;
            }
            assert!(all.len() <= ALL / (LONG * (MAX_STREAMS as usize - 1)), "{method}: no bound");
        }
    }
}

/// Goal: calls of every kind end at the write time limit if their answers are never read, although the client
/// reads others. Method: paused time, a closed window, and a small request in between that is answered.
#[tokio::test(start_paused = true)]
async fn calls_on_a_closed_window_end() {
    let (write, pause) = (Duration::from_mins(1), Duration::from_secs(20));
    let list = b"\x3a\x00";
    for (path, message, flags) in [
        ("/snowmint.v1.Snowmint/Next", &b"\x0a\x07default"[..], END_STREAM),
        ("/snowmint.v1.Snowmint/Namespaces", b"", END_STREAM),
        ("/snowmint.v1.Snowmint/Stream", b"\x0a\x07default", END_STREAM),
        ("/snowmint.v1.Snowmint/Stream", b"\x0a\x07default", 0),
        ("/grpc.health.v1.Health/Check", b"", END_STREAM),
        ("/grpc.health.v1.Health/Watch", b"", END_STREAM),
        ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", list, 0),
    ] {
        let timeouts = Timeouts { write, ..Timeouts::default() };
        let server = Running::with(Settings { timeouts, ..settings() }).await;
        let mut client = Client::connect(&server, 0).await;
        let (stalled, _) = client.request("/");
        client.send(&call(stalled, path, message, flags)).await;
        let began = Instant::now();
        let mut has_ended = false;
        while !has_ended {
            assert!(began.elapsed() <= write + 2 * pause, "{path} is left");
            tokio::time::sleep(pause).await;
            let (small, request) = client.request("/healthz");
            let opens = frame(WINDOW_UPDATE, 0, small, &WINDOW.to_be_bytes());
            client.reply(&[request, opens].concat()).await;
            has_ended = loop {
                match client.frame().await {
                    None => break true,
                    Some(frame) if frame.kind == RST_STREAM && frame.stream == stalled => break true,
                    Some(frame) if frame.stream == small && frame.flags & END_STREAM != 0 => break false,
                    Some(_) => {}
                }
            };
        }
        assert!(began.elapsed() >= write, "{path}: {:?}", began.elapsed());
    }
}

/// Goal: files of the console and the OpenAPI document need no memory of their own. Method: connections that
/// read nothing, each with as many requests as it may have; four of them would need more than all answers
/// may.
#[tokio::test]
async fn files_hold_no_memory() {
    let server = Running::start().await;
    let mut all = Vec::new();
    for path in ["/openapi.json", "/console/main.js", "/openapi.json", "/console/main.js", "/openapi.json"] {
        let mut client = Client::connect(&server, 0).await;
        assert!(client.refused(&[path; MAX_STREAMS as usize]).await.is_empty(), "{path}");
        all.push(client);
    }
}

/// Goal: a connection has no more streams in flight than its limit, and one that resets streams without end
/// is closed or served in turn; an honest client is answered meanwhile.
#[tokio::test]
async fn floods_of_streams_starve_nobody() {
    let server = Running::start().await;
    server.source.set_stuck(true);
    let mut many = Client::connect(&server, WINDOW).await;
    let mut requests = Vec::new();
    for _ in 0..3 * MAX_STREAMS {
        requests.extend(many.request("/v1/ids/default?count=50000").1);
    }
    many.send(&requests).await;
    let refused = many.answers(2 * MAX_STREAMS as usize).await;
    assert_eq!(refused.values().filter(|answer| answer.reset).count(), 2 * MAX_STREAMS as usize);

    let mut resetting = Client::connect(&server, WINDOW).await;
    let mut honest = Client::connect(&server, WINDOW).await;
    let mut sent = 0;
    let mut flood = Vec::new();
    for _ in 0..2000 {
        let (stream, request) = resetting.request("/v1/ids/default?count=50000");
        flood.extend(request);
        flood.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    // What does not fit into the socket waits; the server may close, too.
    for chunk in flood.chunks(4096) {
        let Ok(Ok(())) =
            tokio::time::timeout(Duration::from_secs(5), resetting.stream.write_all(chunk)).await
        else {
            break;
        };
        sent += chunk.len();
        assert_eq!(honest.get("/healthz").await.body, b"ok\n");
    }
    assert!(sent > MAX_RESETS);
    server.source.set_stuck(false);
    assert_eq!(ids(&honest.get("/v1/ids/orders").await.body).len(), 1);
}

/// Goal: header blocks beyond the limit are rejected, and the connection of others stays usable.
#[tokio::test]
async fn heads_beyond_the_limit_are_rejected() {
    let server = Running::start().await;
    let mut client = Client::connect(&server, WINDOW).await;
    let mut long = head("/healthz", Some("test"));
    // 160 fields of 100 bytes, each a literal with a new name.
    for _ in 0..160 {
        long.extend([0, 1, b'x', 100]);
        long.extend([b'y'; 100]);
    }
    let (first, rest) = long.split_at(16_000);
    client.send(&frame(HEADERS, END_STREAM, 1, first)).await;
    client.send(&frame(9, END_HEADERS, 1, rest)).await;
    let mut rejected = false;
    while let Some(frame) = client.frame().await {
        rejected |= matches!(frame.kind, RST_STREAM | GO_AWAY);
        if frame.stream == 1 && frame.kind == HEADERS {
            assert_ne!(frame.payload[0], OK);
            rejected = true;
        }
        if rejected {
            break;
        }
    }
    assert!(rejected);
    assert_eq!(Client::connect(&server, WINDOW).await.get("/healthz").await.body, b"ok\n");
}

/// Goal: a prefix of the preface is not taken for HTTP/2, and a preface in pieces is.
#[tokio::test]
async fn the_first_bytes_tell_the_version() {
    let server = Running::start().await;
    let mut client = crate::support::running_service::Client::at(server.http).await;
    client.send(b"PRI * HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await;
    let answer = client.rest().await;
    assert!(answer.starts_with(b"HTTP/1.1 4"), "{}", answer.escape_ascii());

    let mut stream = TcpStream::connect(server.http).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for bytes in PREFACE.chunks(5) {
        stream.write_all(bytes).await.unwrap();
        tokio::task::yield_now().await;
    }
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    let mut client = Client { stream, next: 1, goodbye: false };
    assert_eq!(client.get("/healthz").await.body, b"ok\n");
}
