//! gRPC over real sockets: calls, errors, deadlines, limits and shutdown.
//! Clients of other languages are in the black-box tests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use hyper::{HeaderMap, Request, StatusCode};
use prost::Message;
use snowmint::{DatacenterId, Layout};
use snowmint_cluster::{Holder, LeaseConfig, Leases, NamespaceName, WorkerCount};
use snowmint_server::grpc_messages::{
    Format, InspectRequest, InspectResponse, NamespacesRequest, NamespacesResponse, NextRequest,
    NextResponse, TimeBoundsRequest, TimeBoundsResponse, inspect_request::By,
};
use snowmint_server::{AllowedHosts, Listeners, Mint, Settings, Timeouts, bind, serve};
use snowmint_store::MemoryStore;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::support::running_service::{Client as Http, Running, settings};
use crate::support::test_source::{TestSource, mint_of};
use crate::tokens::{Tokens, row};

const NEXT: &str = "/snowmint.v1.Snowmint/Next";
const STREAM: &str = "/snowmint.v1.Snowmint/Stream";
const CHECK: &str = "/grpc.health.v1.Health/Check";

/// A connection. Its calls run at the same time.
#[derive(Clone)]
struct Client(SendRequest<Bytes>);

/// How a call ended: the status, and the trailers.
#[derive(Debug)]
struct Ended {
    messages: Vec<Bytes>,
    trailers: HeaderMap,
}

impl Ended {
    fn code(&self) -> &str {
        self.trailers["grpc-status"].to_str().unwrap()
    }

    fn kind(&self) -> &str {
        self.trailers["snowmint-error"].to_str().unwrap()
    }

    fn text(&self) -> String {
        percent_encoding::percent_decode(self.trailers["grpc-message"].as_bytes()).decode_utf8_lossy().into()
    }

    fn message<M: Message + Default>(&self) -> M {
        assert_eq!((self.code(), self.messages.len()), ("0", 1), "{self:?}");
        M::decode(self.messages[0].clone()).unwrap()
    }
}

/// A call that is open.
struct Call {
    send: SendStream<Bytes>,
    response: Option<ResponseFuture>,
    body: Option<RecvStream>,
    buffer: BytesMut,
}

impl Client {
    async fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (send, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self(send)
    }

    async fn open(&self, path: &str, headers: &[(&str, &str)]) -> Call {
        self.open_at(&format!("http://localhost{path}"), headers).await
    }

    async fn open_at(&self, url: &str, headers: &[(&str, &str)]) -> Call {
        let mut request = Request::post(url).header("te", "trailers");
        if !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/grpc");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut ready = self.0.clone().ready().await.unwrap();
        let (response, send) = ready.send_request(request.body(()).unwrap(), false).unwrap();
        Call { send, response: Some(response), body: None, buffer: BytesMut::new() }
    }

    async fn call(&self, path: &str, headers: &[(&str, &str)], message: &impl Message) -> Ended {
        let mut call = self.open(path, headers).await;
        call.send(message);
        call.end().await
    }

    async fn next(&self, request: &NextRequest) -> Ended {
        self.call(NEXT, &[], request).await
    }
}

impl Call {
    fn send(&mut self, message: &impl Message) {
        let message = message.encode_to_vec();
        let mut framed = vec![0];
        framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        framed.extend(message);
        self.send.send_data(framed.into(), false).unwrap();
    }

    async fn body(&mut self) -> &mut RecvStream {
        if let Some(response) = self.response.take() {
            self.body = Some(response.await.unwrap().into_body());
        }
        self.body.as_mut().unwrap()
    }

    /// Reads the next message; `None` after the last.
    async fn read(&mut self) -> Option<Bytes> {
        loop {
            if let Some((&[0, a, b, c, d], _)) = self.buffer.split_first_chunk::<5>() {
                let len = u32::from_be_bytes([a, b, c, d]) as usize;
                if self.buffer.len() >= 5 + len {
                    self.buffer.advance(5);
                    return Some(self.buffer.split_to(len).freeze());
                }
            }
            let body = self.body().await;
            let data = body.data().await?.unwrap();
            body.flow_control().release_capacity(data.len()).unwrap();
            self.buffer.extend_from_slice(&data);
        }
    }

    /// Ends the requests and reads to the end.
    async fn end(mut self) -> Ended {
        let _ = self.send.send_data(Bytes::new(), true);
        self.rest().await
    }

    async fn rest(mut self) -> Ended {
        let mut headers = HeaderMap::new();
        if let Some(response) = self.response.take() {
            let response = response.await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            headers = response.headers().clone();
            self.body = Some(response.into_body());
        }
        let mut messages = Vec::new();
        while let Some(message) = self.read().await {
            messages.push(message);
        }
        assert!(self.buffer.is_empty());
        let trailers = self.body().await.trailers().await.unwrap();
        Ended { messages, trailers: trailers.unwrap_or(headers) }
    }
}

fn next(count: u32, format: Format) -> NextRequest {
    NextRequest { namespace: "default".to_owned(), count: Some(count), format: format.into() }
}

fn ids(ended: &Ended) -> Vec<u64> {
    ended.message::<NextResponse>().ids
}

#[tokio::test]
async fn ids_increase_over_calls_forms_and_chunks() {
    let running = Running::start().await;
    let client = Client::to(running.grpc).await;
    let mut last = 0;
    let mut check = |ids: &[u64]| {
        for id in ids {
            assert!(*id > last, "{id} after {last}");
            last = *id;
        }
    };
    let one = client.next(&NextRequest { namespace: "default".to_owned(), ..NextRequest::default() }).await;
    assert_eq!(ids(&one).len(), 1);
    check(&ids(&one));
    for count in [1, 2, 2047, 2048, 4096, 100_000] {
        let all = ids(&client.next(&next(count, Format::Numbers)).await);
        assert_eq!(all.len(), count as usize);
        check(&all);
    }
    let ranges = client.next(&next(10_000, Format::Ranges)).await.message::<NextResponse>().ranges;
    assert!((3..=5).contains(&ranges.len()), "4096 ids a tick: {ranges:?}");
    let listed: Vec<u64> = ranges
        .iter()
        .flat_map(|range| (0..u64::from(range.count)).map(move |nth| range.first + nth * range.step))
        .collect();
    assert_eq!(listed.len(), 10_000);
    check(&listed);
    let million = client.next(&next(1_000_000, Format::Ranges)).await.message::<NextResponse>().ranges;
    assert_eq!(million.iter().map(|range| range.count).sum::<u32>(), 1_000_000);
    assert!(million.len() <= 246 && million.iter().all(|range| range.step == 1), "{}", million.len());
    check(&million.iter().map(|range| range.first).collect::<Vec<_>>());
    let texts = client.next(&next(1000, Format::Texts)).await.message::<NextResponse>().texts;
    let numbers: Vec<u64> = texts.iter().map(|text| text.parse().unwrap()).collect();
    assert_eq!(numbers.len(), 1000);
    check(&numbers);
    let (_, metrics) = running.get("/metrics").await;
    let issued: u32 = 1 + 1 + 2 + 2047 + 2048 + 4096 + 100_000 + 10_000 + 1_000_000 + 1000;
    assert!(
        metrics.contains(&format!("snowmint_ids_issued_total{{namespace=\"default\"}} {issued}\n")),
        "{metrics}"
    );
    assert!(metrics.contains("snowmint_requests_total{protocol=\"grpc\",outcome=\"ok\"} 10\n"), "{metrics}");
    assert!(metrics.contains("snowmint_request_duration_seconds_count{protocol=\"grpc\"} 10\n"), "{metrics}");
}

/// Goal: each failure has its code, kind and reason, is counted under its kind, and takes no id.
#[tokio::test]
async fn errors_name_what_is_wrong() {
    let running = Running::start().await;
    let client = Client::to(running.grpc).await;
    let named = |namespace: &str| NextRequest { namespace: namespace.to_owned(), ..NextRequest::default() };
    let unknown_format = NextRequest { format: 9, ..next(1, Format::Numbers) };
    for (request, code, kind, words) in [
        (named("nope"), "5", "unknown-namespace", "this server has default, orders"),
        (named("no pe"), "3", "bad-namespace", "expected 1 to 64 letters"),
        (named(""), "3", "bad-namespace", "invalid namespace name"),
        (next(0, Format::Numbers), "3", "bad-count", "invalid count 0: expected 1 to 100000"),
        (next(100_001, Format::Numbers), "3", "bad-count", "invalid count 100001: expected 1 to 100000"),
        (next(1_000_001, Format::Ranges), "3", "bad-count", "invalid count 1000001: expected 1 to 1000000"),
        (next(1001, Format::Texts), "3", "bad-count", "expected 1 to 1000"),
        (unknown_format, "3", "bad-request", "invalid format 9: expected FORMAT_NUMBERS (1)"),
    ] {
        let ended = client.next(&request).await;
        assert_eq!((ended.code(), ended.kind()), (code, kind), "{ended:?}");
        assert!(ended.text().contains(words), "{ended:?}");
        assert!(ended.messages.is_empty() && !ended.trailers.contains_key("retry-after-ms"));
    }
    for (path, headers, code, words) in [
        ("/snowmint.v1.Snowmint/Nxet", &[][..], "12", "with Next, Stream"),
        ("/other.Service/Next", &[], "12", "unknown method"),
        (NEXT, &[("grpc-encoding", "gzip")], "12", "identity only"),
        (NEXT, &[("grpc-timeout", "1h")], "3", "invalid grpc-timeout"),
        (NEXT, &[("grpc-timeout", "123456789n")], "3", "1 to 8 digits"),
    ] {
        let ended = client.call(path, headers, &next(1, Format::Numbers)).await;
        assert_eq!(ended.code(), code, "{ended:?}");
        assert!(ended.text().contains(words), "{ended:?}");
    }
    let raw = |bytes: &'static [u8]| {
        let client = client.clone();
        async move {
            let mut call = client.open(NEXT, &[]).await;
            call.send.send_data(Bytes::from_static(bytes), false).unwrap();
            call.end().await
        }
    };
    for (bytes, code, words) in [
        (&b""[..], "3", "no message: expected one message"),
        (b"\0\0\0\0\0\0\0\0\0\0", "3", "more than one message"),
        (b"\0\0\0\0\x09abc", "3", "incomplete message"),
        (b"\0\0\0\x10\x01", "3", "message of 4097 bytes: expected at most 4096"),
        (b"\x01\0\0\0\0", "12", "compressed message"),
        (b"\0\0\0\0\x02\xff\xff", "3", "invalid message"),
    ] {
        let ended = raw(bytes).await;
        assert_eq!(ended.code(), code, "{ended:?}");
        assert!(ended.text().contains(words), "{ended:?}");
    }
    let mut json = client.open(NEXT, &[("content-type", "application/json")]).await;
    let response = json.response.take().unwrap().await.unwrap();
    assert_eq!(response.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let (_, metrics) = running.get("/metrics").await;
    assert!(
        metrics.contains("snowmint_requests_total{protocol=\"grpc\",outcome=\"bad-count\"} 4\n"),
        "{metrics}"
    );
    assert!(metrics.contains("snowmint_ids_issued_total{namespace=\"default\"} 0\n"), "{metrics}");
}

#[tokio::test]
async fn without_a_lease_a_retry_is_worth_it() {
    let running = Running::start().await;
    let client = Client::to(running.grpc).await;
    assert_eq!(
        client.call(CHECK, &[], &NamespacesRequest::default()).await.messages[0].as_ref(),
        b"\x08\x01"
    );
    running.source.set_lease(false);
    let ended = client.next(&next(1, Format::Numbers)).await;
    assert_eq!((ended.code(), ended.kind()), ("14", "not-ready"));
    assert!(ended.text().contains("the store does not answer"), "{ended:?}");
    for name in ["retry-after-ms", "grpc-retry-pushback-ms"] {
        assert_eq!(ended.trailers[name], "1000");
    }
    assert_eq!(
        client.call(CHECK, &[], &NamespacesRequest::default()).await.messages[0].as_ref(),
        b"\x08\x02"
    );
}

/// Goal: the deadline bounds the wait, an expired call takes nothing, and a call that waits delays no other
/// of its connection.
#[tokio::test]
async fn a_deadline_bounds_the_wait() {
    let running = Running::start().await;
    let client = Client::to(running.grpc).await;
    running.source.set_stuck(true);
    let mut call = client.open(NEXT, &[("grpc-timeout", "200m")]).await;
    call.send(&next(5000, Format::Numbers));
    let waiting = tokio::spawn(call.end());
    running.source.waiting(1).await;
    let others = Client::inspect(&client, "1541815603606036480", None).await;
    assert_eq!(others.message::<InspectResponse>().name, "twitter");
    let ended = waiting.await.unwrap();
    assert_eq!((ended.code(), ended.kind()), ("4", "expired"), "{ended:?}");
    assert!(ended.text().contains("the deadline of the call has passed"));

    running.source.set_stuck(false);
    let issued = || async {
        let (_, metrics) = running.get("/metrics").await;
        let line =
            metrics.lines().find(|line| line.starts_with("snowmint_ids_issued_total{namespace=\"default\""));
        line.unwrap().rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let first = ids(&client.next(&next(1, Format::Numbers)).await)[0];
    let before = issued().await;
    for timeout in ["0n", "0S"] {
        let ended = client.call(NEXT, &[("grpc-timeout", timeout)], &next(1, Format::Numbers)).await;
        assert_eq!(ended.code(), "4", "{timeout}");
    }
    assert_eq!(issued().await, before);
    let second = ids(&client.call(NEXT, &[("grpc-timeout", "1M")], &next(1, Format::Numbers)).await)[0];
    assert_eq!(second, first + 1, "the clock stands still, and the expired calls took nothing");
}

impl Client {
    async fn inspect(&self, id: &str, by: Option<By>) -> Ended {
        let request = InspectRequest { id: id.to_owned(), by };
        self.call("/snowmint.v1.Snowmint/Inspect", &[], &request).await
    }

    async fn bounds(&self, namespace: &str, from_unix_ms: u64, until_unix_ms: u64) -> Ended {
        let request = TimeBoundsRequest { namespace: namespace.to_owned(), from_unix_ms, until_unix_ms };
        self.call("/snowmint.v1.Snowmint/TimeBounds", &[], &request).await
    }
}

#[tokio::test]
async fn inspect_bounds_and_namespaces() {
    let running = Running::start().await;
    let client = Client::to(running.grpc).await;
    let id = ids(&client.next(&next(1, Format::Numbers)).await)[0];
    let layout = By::Layout("twitter".to_owned());
    for by in [None, Some(By::Namespace("orders".to_owned())), Some(layout)] {
        let guessed = by.is_none();
        let inspected: InspectResponse = client.inspect(&id.to_string(), by).await.message();
        assert_eq!((&*inspected.name, &*inspected.form), ("twitter", "decimal"));
        assert_eq!(inspected.unix_ms, Some(1_700_000_000_000));
        assert_eq!(inspected.guesses.is_empty(), !guessed);
        let names: Vec<_> = inspected.fields.iter().map(|field| field.name.as_str()).collect();
        let wanted =
            ["id", "layout", "timestamp", "unix_ms", "utc", "datacenter", "worker", "sequence", "binary"];
        assert_eq!(names, wanted);
    }
    for (ended, kind) in [
        (client.inspect("x", None).await, "bad-id"),
        (client.inspect("1", Some(By::Namespace("nope".to_owned()))).await, "unknown-namespace"),
        (client.inspect("1", Some(By::Layout("nope".to_owned()))).await, "bad-request"),
    ] {
        assert_eq!(ended.kind(), kind, "{ended:?}");
    }

    let day = 1_700_000_000_000;
    let bounds: TimeBoundsResponse = client.bounds("default", day, day + 1).await.message();
    assert!((bounds.first..=bounds.last).contains(&id) && bounds.last - bounds.first == (1 << 22) - 1);
    let before: TimeBoundsResponse = client.bounds("default", day - 1000, day).await.message();
    assert_eq!(before.last + 1, bounds.first);
    for (from, until, words) in [
        (day, day, "expected a start before the end"),
        (5, day, "invalid instant 5: the layout of namespace `default` has ids from 1288834974657"),
        (day, u64::MAX, "invalid instant 18446744073709551615"),
    ] {
        let ended = client.bounds("default", from, until).await;
        assert_eq!((ended.code(), ended.kind()), ("3", "bad-request"), "{ended:?}");
        assert!(ended.text().contains(words), "{ended:?}");
    }

    let path = "/snowmint.v1.Snowmint/Namespaces";
    let page = |page_size, page_token: &str| {
        let (client, page_token) = (client.clone(), page_token.to_owned());
        async move { client.call(path, &[], &NamespacesRequest { page_size, page_token }).await }
    };
    let all: NamespacesResponse = page(0, "").await.message();
    let names: Vec<_> = all.namespaces.iter().map(|it| (&*it.name, &*it.scheme, it.numbers)).collect();
    assert_eq!(names, [("default", "snowflake", true), ("orders", "snowflake", true)]);
    assert!(all.namespaces[0].layout.contains("worker:5") && all.next_page_token.is_empty(), "{all:?}");
    let first: NamespacesResponse = page(1, "").await.message();
    assert_eq!((first.namespaces.len(), &*first.next_page_token), (1, "default"));
    let second: NamespacesResponse = page(1, &first.next_page_token).await.message();
    assert_eq!((&*second.namespaces[0].name, &*second.next_page_token), ("orders", ""));
    assert_eq!(page(1001, "").await.kind(), "bad-request");
}

/// Goal: a stream answers each request in order, also those that wait, and its first failure ends it.
#[tokio::test]
async fn a_stream_answers_at_the_pace_of_its_client() {
    let running = Running::start().await;
    let client = Client::to(running.grpc).await;
    let mut call = client.open(STREAM, &[]).await;
    let mut last = 0;
    for count in [1, 10, 5000, 100_000, 1] {
        call.send(&next(count, Format::Numbers));
        let ids = NextResponse::decode(call.read().await.unwrap()).unwrap().ids;
        assert!(ids.len() == count as usize && ids.is_sorted() && ids[0] > last);
        last = ids[ids.len() - 1];
    }
    // Many at once, and then an end.
    for _ in 0..300 {
        call.send(&next(2, Format::Numbers));
    }
    let ended = call.end().await;
    assert_eq!((ended.code(), ended.messages.len()), ("0", 300));
    for message in &ended.messages {
        let ids = NextResponse::decode(message.clone()).unwrap().ids;
        assert!(ids.len() == 2 && ids[0] > last && ids[1] > ids[0]);
        last = ids[1];
    }

    let mut call = client.open(STREAM, &[]).await;
    call.send(&next(1, Format::Numbers));
    call.send(&next(0, Format::Numbers));
    call.send(&next(1, Format::Numbers));
    let ended = call.rest().await;
    assert_eq!((ended.messages.len(), ended.code(), ended.kind()), (1, "3", "bad-count"));

    running.source.set_stuck(true);
    let mut call = client.open(STREAM, &[("grpc-timeout", "100m")]).await;
    call.send(&next(5000, Format::Numbers));
    assert_eq!(call.rest().await.code(), "4");
    let idle = client.open(STREAM, &[("grpc-timeout", "100m")]).await;
    assert_eq!(idle.rest().await.code(), "4", "also without a request");
}

/// Goal: a stream that is not read keeps no place in the line of its connection: other calls of the channel
/// are answered. Method: requests that fill the window and have to wait for ticks.
#[tokio::test]
async fn a_stream_that_is_not_read_delays_no_other_call() {
    let config = LeaseConfig::new(Layout::TWITTER, Holder::new("me").unwrap());
    let address = serve_leases(config, 1).await;
    for nth in 0..20 {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut client = h2::client::Builder::new();
        // The window of the stream is smaller.
        client.initial_connection_window_size(1 << 20);
        let (send, connection) = client.handshake::<_, Bytes>(stream).await.unwrap();
        tokio::spawn(connection);
        let client = Client(send);
        let mut stream = client.open(STREAM, &[]).await;
        for _ in 0..60 {
            stream.send(&next(500 + 175 * nth, Format::Numbers));
        }
        sleep(Duration::from_millis(20)).await;
        let other = client.next(&next(1, Format::Numbers)).await;
        assert_eq!(other.code(), "0", "{nth}: {:?}", other.trailers);
    }
}

/// Goal: the ids of one connection increase over all leases of its node. Method: two leases, an open stream,
/// and calls in turn with requests of the stream; each begins when the one before is answered.
#[tokio::test]
async fn the_ids_of_a_connection_increase_over_two_leases() {
    let config = LeaseConfig::new(Layout::TWITTER, Holder::new("me").unwrap());
    let config = config.worker_count(WorkerCount::new(2, 2).unwrap());
    let address = serve_leases(config, 2).await;
    let client = Client::to(address).await;
    let mut stream = client.open(STREAM, &[]).await;
    let mut all = Vec::new();
    for nth in 0..1000 {
        // Now and then, both have to wait for ticks, in line.
        let request = next(if nth % 100 == 99 { 20_000 } else { 1 }, Format::Numbers);
        stream.send(&request);
        let response = NextResponse::decode(stream.read().await.unwrap()).unwrap();
        all.extend(response.ids);
        all.extend(ids(&client.next(&request).await));
    }
    assert!(all.is_sorted_by(|one, next| one < next));
}

/// Serves leases of a store in memory over gRPC, once `count` of them are held.
async fn serve_leases(config: LeaseConfig, count: usize) -> SocketAddr {
    let leases = Leases::start(Arc::new(MemoryStore::new()), config).unwrap();
    while leases.statuses().iter().filter(|it| it.worker.is_some()).count() < count {
        sleep(Duration::from_millis(10)).await;
    }
    let name = NamespaceName::new("default").unwrap();
    let mint = Arc::new(Mint::new([name], leases, Layout::TWITTER, DatacenterId(0)));
    let grpc = bind("127.0.0.1:0", "--grpc").await.unwrap();
    let address = grpc.address().parse().unwrap();
    let listeners = Listeners { grpc: Some(grpc), ..Listeners::default() };
    tokio::spawn(serve(mint, listeners, settings(), Box::pin(std::future::pending())));
    address
}

/// Goal: a client that does not read its stream keeps nobody else from getting ids. Method: two requests in
/// one frame, 1 id and then more than a tick has, and a window that is closed, or closes with the first
/// answer; hyper polls no body then.
#[tokio::test]
async fn a_stream_that_is_not_read_delays_no_other_client() {
    let config = LeaseConfig::new(Layout::TWITTER, Holder::new("me").unwrap());
    let address = serve_leases(config, 1).await;
    let both = [next(1, Format::Numbers), next(100_000, Format::Numbers)].map(|request| {
        let message = request.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap();
        [&[0], &length.to_be_bytes()[..], &message].concat()
    });
    for window in [0, 15] {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut client = h2::client::Builder::new();
        let (send, connection) =
            client.initial_window_size(window).handshake::<_, Bytes>(stream).await.unwrap();
        tokio::spawn(connection);
        let mut call = Client(send).open(STREAM, &[]).await;
        call.send.send_data(both.concat().into(), false).unwrap();
        let _ = call.body().await;
        // A request that has to wait for ticks.
        let other = Client::to(address).await.next(&next(50_000, Format::Numbers)).await;
        assert_eq!((other.code(), ids(&other).len()), ("0", 50_000), "{window}: {:?}", other.trailers);
    }
}

/// Goal: at shutdown calls that wait get their ids, streams end with a reason, and no connection is cut.
#[tokio::test]
async fn a_shutdown_loses_no_call() {
    let running = Running::start().await;
    let client = Client::to(running.grpc).await;
    let fresh = Client::to(running.grpc).await;
    let mut stream = client.open(STREAM, &[]).await;
    stream.send(&next(1, Format::Texts));
    assert!(stream.read().await.is_some());
    running.source.set_stuck(true);
    let mut call = client.open(NEXT, &[]).await;
    call.send(&next(5000, Format::Numbers));
    let waiting = tokio::spawn(call.end());
    let mut watch = client.open("/grpc.health.v1.Health/Watch", &[]).await;
    watch.send(&NamespacesRequest::default());
    watch.send.send_data(Bytes::new(), true).unwrap();
    assert_eq!(watch.read().await.unwrap().as_ref(), b"\x08\x01");
    running.source.waiting(1).await;
    let source = running.source.clone();
    let ended = running.end();
    assert_eq!(watch.rest().await.code(), "14");
    let stream = stream.rest().await;
    assert_eq!((stream.code(), stream.kind()), ("14", "not-ready"));
    assert!(stream.text().contains("shutting down"), "{stream:?}");
    source.set_stuck(false);
    // A connection that was just accepted gets more time.
    assert_eq!(fresh.next(&next(1, Format::Numbers)).await.messages.len(), 1);
    assert_eq!(ids(&waiting.await.unwrap()).len(), 5000);
    assert_eq!(ended.await.unwrap().cut, 0);
}

/// Goal: beyond the connection limit, health is answered and a call for ids learns the reason.
#[tokio::test]
async fn beyond_the_connection_limit() {
    let running = Running::with(Settings { max_connections: 1, ..settings() }).await;
    let client = Client::to(running.grpc).await;
    assert_eq!(ids(&client.next(&next(1, Format::Numbers)).await).len(), 1);
    let health = Client::to(running.grpc).await;
    assert_eq!(
        health.call(CHECK, &[], &NamespacesRequest::default()).await.messages[0].as_ref(),
        b"\x08\x01"
    );
    let refused = Client::to(running.grpc).await.next(&next(1, Format::Numbers)).await;
    assert_eq!((refused.code(), refused.kind()), ("14", "too-many-clients"));
    assert!(refused.text().contains("connection limit (1) reached"), "{refused:?}");
    assert_eq!(ids(&client.next(&next(1, Format::Numbers)).await).len(), 1);
}

/// Goal: a connection without a call, an idle one and one that reads nothing are closed.
#[tokio::test]
async fn time_limits_close_connections() {
    let short = Duration::from_millis(100);
    let long = Duration::from_mins(10);
    let started = |idle, request, write| async move {
        Running::with(Settings { timeouts: Timeouts { idle, request, write }, ..settings() }).await
    };
    let running = started(Some(long), short, long).await;
    let mut silent = crate::support::running_service::Client::at(running.grpc).await;
    // It gets the settings of the server, and then the end.
    silent.rest().await;

    let running = started(Some(short), long, long).await;
    let client = Client::to(running.grpc).await;
    assert_eq!(ids(&client.next(&next(1, Format::Numbers)).await).len(), 1);
    let mut idle = client.open(STREAM, &[]).await;
    assert!(idle.body().await.data().await.is_none_or(|data| data.is_err()));

    let running = started(Some(long), long, short).await;
    let client = Client::to(running.grpc).await;
    let mut deaf = client.open(NEXT, &[]).await;
    deaf.send(&next(100_000, Format::Numbers));
    deaf.send.send_data(Bytes::new(), true).unwrap();
    let body = deaf.body().await;
    let cut = loop {
        // What arrives is not released, so the window closes.
        match body.data().await {
            Some(Ok(_)) => {}
            ended => break ended,
        }
    };
    assert!(matches!(cut, Some(Err(_))), "{cut:?}");
}

/// Goal: health needs no token, so its calls hold no connection: neither one without its message nor a watch,
/// which ends when the connection is idle for its limit. Method: paused time.
#[tokio::test(start_paused = true)]
async fn health_calls_hold_no_connection() {
    const WATCH: &str = "/grpc.health.v1.Health/Watch";
    let (idle, request) = (Duration::from_mins(10), Duration::from_secs(30));
    let timeouts = Timeouts { idle: Some(idle), request, ..Timeouts::default() };
    let running = Running::with(Settings { timeouts, ..settings() }).await;
    let near = |began: Instant, within: Duration| {
        let took = began.elapsed();
        assert!(took >= within && took < within + Duration::from_secs(3), "{took:?} of {within:?}");
    };
    for path in [CHECK, WATCH] {
        let began = Instant::now();
        let silent = Client::to(running.grpc).await.open(path, &[]).await;
        let ended = timeout(Duration::from_hours(1), silent.rest()).await.expect("the call does not end");
        assert_eq!((ended.code(), ended.text().as_str()), ("3", "incomplete request after 30s"));
        near(began, request);
    }

    let mut watch = Client::to(running.grpc).await.open(WATCH, &[]).await;
    watch.send(&NamespacesRequest::default());
    watch.send.send_data(Bytes::new(), true).unwrap();
    assert_eq!(watch.read().await.unwrap().as_ref(), b"\x08\x01");
    let began = Instant::now();
    let rest = timeout(Duration::from_hours(1), watch.body().await.data()).await;
    assert!(rest.expect("the server does not close").is_none_or(|data| data.is_err()));
    near(began, idle);
}

/// Goal: a health call that waits for its message does not delay a shutdown. Method: paused time.
#[tokio::test(start_paused = true)]
async fn health_calls_hold_no_shutdown() {
    let timeouts = Timeouts { request: Duration::from_hours(1), ..Timeouts::default() };
    let running = Running::with(Settings { timeouts, ..settings() }).await;
    let client = Client::to(running.grpc).await;
    let _silent = client.open(CHECK, &[]).await;
    assert_eq!(client.call(CHECK, &[], &NamespacesRequest::default()).await.code(), "0");
    let began = Instant::now();
    assert_eq!(running.end().await.unwrap().cut, 0);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

/// Goal: a watch whose client reads nothing does not delay a shutdown, which would take the time limit of a
/// write. Method: a client that gives its streams no window; paused time.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_not_read_holds_no_shutdown() {
    for windows in [0, 3] {
        let running = Running::with(Settings { drain: Duration::from_hours(1), ..settings() }).await;
        let stream = TcpStream::connect(running.grpc).await.unwrap();
        let connecting = h2::client::Builder::new().initial_window_size(windows).handshake(stream);
        let (send, connection) = connecting.await.unwrap();
        let connection = tokio::spawn(connection);
        let client = Client(send);
        let mut watch = client.open("/grpc.health.v1.Health/Watch", &[]).await;
        watch.send(&NamespacesRequest::default());
        watch.send.send_data(Bytes::new(), true).unwrap();
        watch.body().await;
        let began = Instant::now();
        assert_eq!(running.end().await.unwrap().cut, 0);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        drop((watch, client));
        let _ = connection.await.unwrap();
    }
}

/// Goal: the HTTP port answers calls beside requests of HTTP/2, on one connection, counts them as gRPC, and
/// checks their host.
#[tokio::test]
async fn the_http_port_answers_calls_too() {
    let allowed_hosts = AllowedHosts::new(["ids.example", "test"]).unwrap();
    let running = Running::with(Settings { allowed_hosts, ..settings() }).await;
    let client = Client::to(running.http).await;
    let first = ids(&client.next(&next(3, Format::Numbers)).await);
    assert_eq!(first.len(), 3);
    let mut ready = client.0.clone().ready().await.unwrap();
    let request = Request::get("http://localhost/v1/ids/default?format=text").body(()).unwrap();
    let (response, _) = ready.send_request(request, true).unwrap();
    let mut body = response.await.unwrap().into_body();
    let text = body.data().await.unwrap().unwrap();
    assert_eq!(text, format!("{}\n", first[2] + 1), "from the same stream of ids");
    let mut call = client.open(STREAM, &[]).await;
    for _ in 0..3 {
        call.send(&next(2, Format::Numbers));
        assert!(call.read().await.is_some());
    }
    assert_eq!(call.end().await.code(), "0");
    let health = client.call(CHECK, &[], &NamespacesRequest::default()).await;
    assert_eq!(health.messages[0].as_ref(), b"\x08\x01");
    for (host, headers, kind) in [
        ("ids.example", &[][..], None),
        ("evil.example", &[], Some("unknown-host")),
        ("ids.example", &[("sec-fetch-site", "cross-site")], Some("cross-site")),
    ] {
        let mut call = client.open_at(&format!("http://{host}{NEXT}"), headers).await;
        call.send(&next(1, Format::Numbers));
        let ended = call.end().await;
        assert_eq!(ended.code(), if kind.is_some() { "7" } else { "0" }, "{ended:?}");
        assert_eq!(kind, kind.and(ended.trailers.get("snowmint-error")).map(|it| it.to_str().unwrap()));
    }
    // Over HTTP/1.1 it is a request like any other.
    let (head, _) = running.request(&format!("POST {NEXT} HTTP/1.1\r\ncontent-type: application/grpc")).await;
    assert!(head.starts_with("http/1.1 404 "), "{head}");
    let (_, metrics) = running.get("/metrics").await;
    for line in [
        "snowmint_requests_total{protocol=\"grpc\",outcome=\"ok\"} 6\n",
        "snowmint_requests_total{protocol=\"grpc\",outcome=\"unknown-host\"} 1\n",
        "snowmint_requests_total{protocol=\"http\",outcome=\"ok\"} 1\n",
        "snowmint_connections{protocol=\"grpc\"} 0\n",
        "snowmint_ids_issued_total{namespace=\"default\"} 11\n",
    ] {
        assert!(metrics.contains(line), "{line} {metrics}");
    }
}

/// Goal: an alert on failed calls sees the first one, also if only the HTTP port answers calls: a rate needs two
/// samples, so the rows are there before the first call. Other protocols, which no port speaks, have none.
#[tokio::test]
async fn the_http_port_shows_its_calls_before_the_first() {
    let mint = mint_of(TestSource::new(Layout::TWITTER), Layout::TWITTER);
    let http = bind("127.0.0.1:0", "--http").await.unwrap();
    let address: SocketAddr = http.address().parse().unwrap();
    let listeners = Listeners { http: Some(http), ..Listeners::default() };
    let running = tokio::spawn(serve(mint.into(), listeners, settings(), Box::pin(std::future::pending())));
    let mut client = Http::at(address).await;
    client.send(b"GET /metrics HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await;
    let metrics = String::from_utf8(client.rest().await).unwrap();
    for line in [
        "snowmint_requests_total{protocol=\"grpc\",outcome=\"ok\"} 0",
        "snowmint_requests_total{protocol=\"grpc\",outcome=\"not-ready\"} 0",
        "snowmint_connections{protocol=\"grpc\"} 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
    assert!(!metrics.contains("protocol=\"resp\"") && !metrics.contains("protocol=\"thrift\""), "{metrics}");
    running.abort();
}

/// Goal: a client that resets its calls takes no further ids, and the connection continues.
#[tokio::test]
async fn a_reset_call_is_dropped() {
    let running = Running::start().await;
    let client = Client::to(running.grpc).await;
    running.source.set_stuck(true);
    for nth in 1..=10 {
        let mut call = client.open(NEXT, &[]).await;
        call.send(&next(5000, Format::Numbers));
        call.send.send_data(Bytes::new(), true).unwrap();
        running.source.waiting(nth).await;
        call.send.send_reset(h2::Reason::CANCEL);
    }
    // The answer to this call shows that the server has read the resets.
    assert_eq!(client.inspect("1541815603606036480", None).await.code(), "0");
    running.source.set_stuck(false);
    assert_eq!(ids(&client.next(&next(1, Format::Numbers)).await).len(), 1);
    let (_, metrics) = running.get("/metrics").await;
    let issued = "snowmint_ids_issued_total{namespace=\"default\"} 1\n";
    assert!(metrics.contains(issued), "{metrics}");
}

/// Goal: every call checks the token, a stream at each of its requests; health checks need none.
#[tokio::test]
async fn calls_require_a_token() {
    let (rows, secret) = row("web", "namespaces = ['default']\nrate = 100");
    let tokens = Tokens::start(&rows).await;
    let client = Client::to(tokens.running.grpc).await;
    let bearer = format!("Bearer {secret}");
    let right = [("authorization", bearer.as_str())];
    let id = "1541815603606036480".to_owned();
    let bounds = TimeBoundsRequest { namespace: "orders".to_owned(), from_unix_ms: 1, until_unix_ms: 2 };
    for headers in [&[][..], &[("authorization", "Bearer x")]] {
        for ended in [
            client.call(NEXT, headers, &next(1, Format::Numbers)).await,
            client.call(STREAM, headers, &next(1, Format::Numbers)).await,
            client.call("/snowmint.v1.Snowmint/Namespaces", headers, &NamespacesRequest::default()).await,
            client
                .call("/snowmint.v1.Snowmint/Inspect", headers, &InspectRequest { id: id.clone(), by: None })
                .await,
            client.call("/snowmint.v1.Snowmint/TimeBounds", headers, &bounds).await,
        ] {
            assert_eq!((ended.code(), ended.kind()), ("16", "unauthorized"), "{ended:?}");
        }
    }
    assert_eq!(client.call(CHECK, &[], &NamespacesRequest::default()).await.code(), "0");
    assert_eq!(ids(&client.call(NEXT, &right, &next(60, Format::Numbers)).await).len(), 60);
    let over = client.call(NEXT, &right, &next(50, Format::Numbers)).await;
    assert_eq!(
        (over.code(), over.kind(), over.trailers["retry-after-ms"].to_str().unwrap()),
        ("8", "over-quota", "100")
    );
    let listed: NamespacesResponse = client
        .call("/snowmint.v1.Snowmint/Namespaces", &right, &NamespacesRequest::default())
        .await
        .message();
    assert_eq!(listed.namespaces.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["default"]);
    for name in ["orders", "nobody"] {
        let request = NextRequest { namespace: name.to_owned(), ..NextRequest::default() };
        assert_eq!(client.call(NEXT, &right, &request).await.kind(), "forbidden");
        let request = TimeBoundsRequest { namespace: name.to_owned(), ..bounds.clone() };
        assert_eq!(
            client.call("/snowmint.v1.Snowmint/TimeBounds", &right, &request).await.kind(),
            "forbidden"
        );
    }
    let mut stream = client.open(STREAM, &right).await;
    stream.send(&next(1, Format::Numbers));
    assert!(stream.read().await.is_some());
    tokens.change("# end of tokens\n");
    let ended = loop {
        stream.send(&next(1, Format::Numbers));
        if stream.read().await.is_none() {
            break stream.rest().await;
        }
        tokens.clock.advance_ms(1000);
    };
    assert_eq!((ended.code(), ended.kind()), ("16", "unauthorized"), "{ended:?}");
}
