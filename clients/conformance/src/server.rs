//! The scripted servers: small HTTP/1.1 servers on loopback that log each request and reply by their script.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use snowmint_test_servers::{Certificates, port, time};

use crate::scenario::{Reply, ServerScript};

/// The store of all servers of a scenario that do not name another one.
pub(crate) const STORE: &str = "smst_00000000000000000000000001";

/// How far the ids of two servers are apart.
const APART: u64 = 1_000_000_000_000;

/// One request, as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) at: Instant,
    pub(crate) method: String,
    /// The path up to the query.
    pub(crate) path: String,
    pub(crate) namespace: String,
    /// Whether it asks for `/v1/ids`.
    pub(crate) is_for_texts: bool,
    pub(crate) count: Option<u64>,
    pub(crate) wait_ms: Option<u64>,
    pub(crate) authorization: Option<String>,
    /// Its `Snowmint-Request`.
    pub(crate) own_id: Option<String>,
    /// How many requests were on their way at this server, with this one.
    pub(crate) at_once: u64,
    /// A `Retry-After` that this request did not respect.
    pub(crate) too_early: Option<Duration>,
}

/// What the servers of a scenario have seen and given.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) requests: BTreeMap<String, Vec<Request>>,
    /// The place of each id that a client may return: the number of its answer, and its index.
    pub(crate) given: HashMap<String, (usize, usize)>,
    /// Ids that no client may return.
    pub(crate) bad: HashSet<String>,
    answers: usize,
    /// Until when a server asked for no requests: for all namespaces, or for one.
    closed: HashMap<(String, Option<String>), Instant>,
    in_flight: HashMap<String, u64>,
}

impl Log {
    pub(crate) fn of(&self, server: &str) -> &[Request] {
        self.requests.get(server).map_or(&[], Vec::as_slice)
    }
}

/// The servers of one scenario.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) log: Arc<Mutex<Log>>,
    pub(crate) urls: BTreeMap<String, String>,
    stop: Arc<AtomicBool>,
    addresses: Vec<SocketAddrV4>,
}

/// What each connection of a server needs.
struct Shared {
    name: String,
    replies: Vec<Reply>,
    tls: Option<Arc<ServerConfig>>,
    log: Arc<Mutex<Log>>,
    stop: Arc<AtomicBool>,
    /// The next id, and the number of requests so far.
    state: Mutex<(u64, usize)>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the server that gave an id, a number or a text that ends with one.
pub(crate) fn server_of<'a>(id: &str, names: &'a BTreeMap<String, String>) -> Option<&'a str> {
    let id: u64 = id.trim_start_matches(|sign: char| !sign.is_ascii_digit()).parse().ok()?;
    let index = usize::try_from((id / APART).checked_sub(1)?).ok()?;
    names.keys().nth(index).map(String::as_str)
}

impl Servers {
    /// Starts the servers of a scenario.
    pub(crate) fn start(
        scripts: &BTreeMap<String, ServerScript>,
        certificates: &Certificates,
    ) -> io::Result<Self> {
        let (log, stop) = (Arc::<Mutex<Log>>::default(), Arc::<AtomicBool>::default());
        let mut servers = Self { log, urls: BTreeMap::new(), stop, addresses: Vec::new() };
        for (index, (name, script)) in (1..).zip(scripts) {
            let (replies, tls) = match script {
                ServerScript::Plain(replies) => (replies, None),
                ServerScript::Tls { tls } => (tls, Some(tls_config(certificates)?)),
                ServerScript::Dead(_) => {
                    servers.urls.insert(name.clone(), format!("http://{}", port::free()));
                    continue;
                }
            };
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr()?.port());
            let url = if tls.is_some() {
                format!("https://localhost:{}", address.port())
            } else {
                format!("http://{address}")
            };
            servers.urls.insert(name.clone(), url);
            servers.addresses.push(address);
            let shared = Arc::new(Shared {
                name: name.clone(),
                replies: replies.clone(),
                tls,
                log: Arc::clone(&servers.log),
                stop: Arc::clone(&servers.stop),
                state: Mutex::new((index * APART, 0)),
            });
            thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    if shared.stop.load(Ordering::Acquire) {
                        return;
                    }
                    let shared = Arc::clone(&shared);
                    // A broken connection concerns its client only.
                    thread::spawn(move || shared.serve(&stream).ok());
                }
            });
        }
        Ok(servers)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for address in &self.addresses {
            // Wakes the thread that accepts connections.
            TcpStream::connect(address).ok();
        }
    }
}

fn tls_config(certificates: &Certificates) -> io::Result<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_file_iter(certificates.certificate()).map_err(io::Error::other)?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_file(certificates.key()).map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = versions.and_then(|it| it.with_no_client_auth().with_single_cert(chain, key));
    config.map(Arc::new).map_err(io::Error::other)
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// Counts a request as on its way until it is dropped.
struct InFlight<'a>(&'a Shared);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut log = lock(&self.0.log);
        let number = log.in_flight.entry(self.0.name.clone()).or_default();
        *number = number.saturating_sub(1);
    }
}

impl Shared {
    fn serve(&self, socket: &TcpStream) -> io::Result<()> {
        socket.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &self.tls {
            None => Box::new(socket.try_clone()?),
            Some(config) => {
                let tls = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
                Box::new(StreamOwned::new(tls, socket.try_clone()?))
            }
        };
        let mut stream = BufReader::new(stream);
        let mut previous = Vec::new();
        while let Some(request) = read_request(&mut stream)? {
            let reply = self.reply_to(request.clone());
            let in_flight = InFlight(self);
            if !self.wait(socket, reply.delay_ms, reply.silent) || reply.close {
                break;
            }
            let (head, body) = match &reply.raw {
                Some(raw) => (raw.clone(), Vec::new()),
                None => self.write_reply(&reply, &request),
            };
            let cut = reply.cut_at_percent.map(|percent| body.len() * percent / 100);
            // Before the answer: its receiver may send the next request at once.
            drop(in_flight);
            let stream = stream.get_mut();
            if reply.again {
                stream.write_all(&previous)?;
            }
            previous = [head.as_bytes(), &body[..cut.unwrap_or(body.len())]].concat();
            stream.write_all(&previous)?;
            stream.flush()?;
            if cut.is_some() || reply.raw.is_some() {
                break;
            }
        }
        socket.shutdown(Shutdown::Both)
    }

    /// Waits for this time, or for ever. Returns false if the client or the scenario has ended.
    fn wait(&self, socket: &TcpStream, delay_ms: u64, is_silent: bool) -> bool {
        let from = time::now();
        while is_silent || from.elapsed() < Duration::from_millis(delay_ms) {
            if self.stop.load(Ordering::Acquire) {
                return false;
            }
            if is_silent && is_closed(socket) {
                return false;
            }
            thread::sleep(Duration::from_millis(if is_silent { 20 } else { 5 }));
        }
        true
    }

    /// Logs a request and returns the reply of the script.
    fn reply_to(&self, mut request: Request) -> Reply {
        let number = {
            let mut state = lock(&self.state);
            state.1 += 1;
            state.1 - 1
        };
        let mut end = 0;
        let reply = self.replies.iter().find(|reply| {
            end += reply.times;
            number < end
        });
        let reply = reply.or(self.replies.last()).cloned().unwrap_or_default();
        let mut log = lock(&self.log);
        let in_flight = log.in_flight.entry(self.name.clone()).or_default();
        *in_flight += 1;
        request.at_once = *in_flight;
        let of_namespace = [None, Some(request.namespace.clone())];
        let closed = of_namespace.into_iter().filter_map(|of| log.closed.get(&(self.name.clone(), of)));
        request.too_early = closed.max().and_then(|until| until.checked_duration_since(request.at));
        log.requests.entry(self.name.clone()).or_default().push(request);
        reply
    }

    /// Returns the head and the body of a reply, and records its ids and its `Retry-After`.
    fn write_reply(&self, reply: &Reply, request: &Request) -> (String, Vec<u8>) {
        let mut content_type = "application/json";
        let body = match (&reply.body, reply.status) {
            (Some(Value::String(text)), _) => {
                if let Ok(body) = serde_json::from_str(text) {
                    self.record(reply, ids_of(&body));
                }
                let bytes = text.split('\u{ffff}').map(str::as_bytes).collect::<Vec<_>>();
                bytes.join(&0xff)
            }
            (Some(body), _) => {
                self.record(reply, ids_of(body));
                body.to_string().into_bytes()
            }
            (None, 200) if request.is_for_texts => {
                let ranges = self.new_ranges(reply, request.count.unwrap_or(1));
                let texts: Vec<_> = numbers_of(&ranges).map(|number| format!("ORD-{number}")).collect();
                self.record(reply, texts.iter().cloned());
                json!({"ids": texts, "a_later_member": 1}).to_string().into_bytes()
            }
            (None, 200) => {
                let ranges = self.new_ranges(reply, request.count.unwrap_or(1));
                self.record(reply, numbers_of(&ranges).map(|number| number.to_string()));
                let ranges: Vec<_> = ranges
                    .into_iter()
                    .map(|(first, count, step)| {
                        json!({"first": first.to_string(), "count": count, "step": step.to_string()})
                    })
                    .collect();
                json!({"ranges": ranges, "a_later_member": 1}).to_string().into_bytes()
            }
            (None, status) => match &reply.problem {
                None => Vec::new(),
                Some(problem) => {
                    content_type = "application/problem+json";
                    let detail = reply.detail.as_deref().unwrap_or("as scripted");
                    json!({"type": format!("urn:snowmint:{problem}"), "status": status, "title": "Scripted", "detail": detail})
                        .to_string()
                        .into_bytes()
                }
            },
        };
        let mut head = format!("HTTP/1.1 {} {}\r\n", reply.status, reply.reason);
        let mut header = |name: &str, value: &str| {
            for part in [name, ": ", value, "\r\n"] {
                head.push_str(part);
            }
        };
        if !reply.headers.keys().any(|name| name.eq_ignore_ascii_case("content-type")) {
            header("content-type", content_type);
        }
        if let Some(store) = reply.store.as_ref().unwrap_or(&Some(STORE.to_owned())) {
            header("snowmint-store", store);
        }
        if let Some(id) = reply.request_id.as_ref().unwrap_or(&request.own_id) {
            header("snowmint-request", id);
        }
        header("content-length", &body.len().to_string());
        for (name, value) in &reply.headers {
            header(name, value);
        }
        head.push_str("\r\n");
        self.close_for_a_while(reply, request);
        (head, body)
    }

    fn close_for_a_while(&self, reply: &Reply, request: &Request) {
        let seconds = reply.headers.get("retry-after").and_then(|text| text.parse::<u64>().ok());
        let Some(seconds) = seconds else { return };
        // A request for fewer ids may follow at once.
        let is_for_fewer = match reply.problem.as_deref() {
            Some("busy" | "bad-count") => true,
            _ => reply.status == 429 && request.count.is_some_and(|count| count > 1),
        };
        if is_for_fewer {
            return;
        }
        let is_about_namespace =
            reply.status >= 500 && reply.problem.as_deref().is_some_and(|it| it != "too-many-clients");
        let of = is_about_namespace.then(|| request.namespace.clone());
        let until = time::now() + Duration::from_secs(seconds.min(60));
        lock(&self.log).closed.insert((self.name.clone(), of), until);
    }

    /// Makes new ids: several ranges do not follow each other.
    fn new_ranges(&self, reply: &Reply, count: u64) -> Vec<(u64, u64, u64)> {
        let count = count.saturating_add_signed(reply.surplus).max(1);
        let ranges = reply.ranges.clamp(1, count);
        let mut state = lock(&self.state);
        let part = |index: u64| count / ranges + u64::from(index < count % ranges);
        (0..ranges)
            .map(|index| {
                let (first, count) = (state.0, part(index));
                state.0 += count * reply.step + 1000;
                (first, count, reply.step)
            })
            .collect()
    }

    /// Records the ids of an answer.
    fn record(&self, reply: &Reply, ids: impl IntoIterator<Item = String>) {
        let mut log = lock(&self.log);
        let number = log.answers;
        log.answers += 1;
        for (index, id) in ids.into_iter().enumerate() {
            if reply.bad || reply.status != 200 || reply.cut_at_percent.is_some() {
                log.bad.insert(id);
            } else {
                log.given.insert(id, (number, index));
            }
        }
    }
}

/// Returns the numbers of ranges.
fn numbers_of(ranges: &[(u64, u64, u64)]) -> impl Iterator<Item = u64> {
    ranges.iter().flat_map(|&(first, count, step)| {
        (0..count.min(1_000_000)).map(move |nth| first.saturating_add(nth.saturating_mul(step)))
    })
}

/// Returns the ids in a scripted body, as far as they can be read.
fn ids_of(body: &Value) -> Vec<String> {
    let number = |value: &Value| value.as_str().map_or_else(|| value.as_u64(), |text| text.parse().ok());
    let ranges = body["ranges"].as_array().into_iter().flatten();
    let ranges =
        ranges.filter_map(|it| Some((number(&it["first"])?, number(&it["count"])?, number(&it["step"])?)));
    let ranges: Vec<_> = ranges.collect();
    let texts = body["ids"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    numbers_of(&ranges).map(|number| number.to_string()).chain(texts).collect()
}

/// Returns whether the client has closed its connection.
fn is_closed(socket: &TcpStream) -> bool {
    if socket.set_nonblocking(true).is_err() {
        return true;
    }
    let peeked = socket.peek(&mut [0]);
    socket.set_nonblocking(false).ok();
    match peeked {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

/// Reads a request; `None` at the end of the connection.
fn read_request(stream: &mut BufReader<Box<dyn Stream>>) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs: HashMap<&str, &str> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
    let wait = pairs.get("wait").and_then(|text| Duration::try_from_secs_f64(text.parse().ok()?).ok());
    let mut request = Request {
        at: time::now(),
        method: method.to_owned(),
        path: path.to_owned(),
        namespace: path.rsplit('/').next().unwrap_or_default().to_owned(),
        is_for_texts: path.contains("/v1/ids/"),
        count: pairs.get("count").and_then(|text| text.parse().ok()),
        wait_ms: wait.and_then(|wait| u64::try_from(wait.as_millis()).ok()),
        authorization: None,
        own_id: None,
        at_once: 0,
        too_early: None,
    };
    let mut length = 0;
    loop {
        let mut header = String::new();
        if stream.read_line(&mut header)? == 0 {
            return Ok(None);
        }
        let Some((name, value)) = header.split_once(':') else { break };
        match &*name.to_ascii_lowercase() {
            "authorization" => request.authorization = Some(value.trim().to_owned()),
            "snowmint-request" => request.own_id = Some(value.trim().to_owned()),
            "content-length" => length = value.trim().parse().unwrap_or(0),
            _ => {}
        }
    }
    io::copy(&mut stream.take(length), &mut io::sink())?;
    Ok(Some(request))
}
