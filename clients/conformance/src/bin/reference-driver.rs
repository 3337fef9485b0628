//! A simple client, with faults that can be switched on: `reference-driver FAULT`. It shows that the scenarios find these faults.
//! Blocking, one connection a request, no hedging, no background refill.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use snowmint_test_servers::time;

/// Ids from `first`, `count` of them, `step` apart, until they are too old. With `is_text` they are indexes of texts.
#[derive(Clone, Copy)]
struct Range {
    is_text: bool,
    first: u64,
    count: u64,
    step: u64,
    from: Instant,
}

struct Client {
    fault: String,
    servers: Vec<String>,
    token: Option<String>,
    store: Option<String>,
    timeout: Duration,
    max_age: Option<Duration>,
    buffer: u64,
    /// By namespace, of numbers and of texts.
    memory: HashMap<(String, bool), VecDeque<Range>>,
    /// All texts so far.
    texts: Vec<String>,
    /// Before this time a server gets no request.
    not_before: HashMap<String, Instant>,
    requests: u64,
    failed: u64,
}

/// The number of requests so far, which names the next one.
static SENT: AtomicU64 = AtomicU64::new(0);

/// A failure, and whether to retry it: `never`, `fewer` or `elsewhere`.
struct Failure {
    error: Value,
    retry: &'static str,
}

/// The answer to a request over HTTP.
struct Reply {
    status: u16,
    headers: HashMap<String, String>,
    body: String,
}

fn error(kind: &str, server: &str, status: Option<u16>, detail: &str) -> Value {
    let temporary = ["Unavailable", "OverQuota"].contains(&kind);
    let message = format!("{server}: {detail}");
    json!({"kind": kind, "temporary": temporary, "server": server, "status": status, "retry_after_ms": null, "message": message})
}

impl Client {
    fn open(options: &Value, fault: &str) -> Self {
        let text = |name: &str| options[name].as_str().map(str::to_owned);
        let servers = options["servers"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let max_age = options.get("max_age_ms").map_or(Some(1000), Value::as_u64);
        Self {
            fault: fault.to_owned(),
            servers: servers.map(|url| url.trim_end_matches('/').to_owned()).collect(),
            token: text("token"),
            store: text("store"),
            timeout: Duration::from_millis(options["timeout_ms"].as_u64().unwrap_or(5000)),
            max_age: max_age.map(Duration::from_millis),
            buffer: options["buffer"].as_array().map_or(16, |bounds| {
                bounds[1].as_u64().unwrap_or(0).min(bounds[0].as_u64().unwrap_or(0).max(16))
            }),
            memory: HashMap::new(),
            texts: Vec::new(),
            not_before: HashMap::new(),
            requests: 0,
            failed: 0,
        }
    }

    fn has(&self, fault: &str) -> bool {
        self.fault == fault
    }

    fn next(&mut self, namespace: &str, is_text: bool, count: u64) -> Result<Vec<String>, Value> {
        if !(1..=1_000_000).contains(&count) {
            return Err(error("InvalidCount", "", None, "expected 1 to 1000000"));
        }
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
        if !(1..=64).contains(&namespace.len()) || !namespace.bytes().all(valid) {
            return Err(error("InvalidNamespace", "", None, "expected 1 to 64 letters"));
        }
        let (max_age, keeps_old) = (self.max_age, self.has("keeps-old-ids"));
        let key = (namespace.to_owned(), is_text);
        let memory = self.memory.entry(key.clone()).or_default();
        if !keeps_old && let Some(age) = max_age {
            memory.retain(|range| range.from.elapsed() <= age);
        }
        let deadline = time::now() + self.timeout;
        let (mut ids, mut most) = (Vec::new(), if is_text { 100_000 } else { 1_000_000 });
        loop {
            self.take(&key, count, &mut ids);
            let missing = count - ids.len() as u64;
            if missing == 0 {
                return Ok(ids);
            }
            let asked = (missing + self.buffer).min(most);
            match self.fetch(namespace, is_text, asked, deadline) {
                Ok(ranges) => {
                    most *= 2;
                    self.memory.entry(key.clone()).or_default().extend(ranges);
                }
                Err(failure) if failure.retry == "fewer" && asked > 1 => most = (asked / 4).max(1),
                Err(failure) => return Err(failure.error),
            }
        }
    }

    /// Moves ids from memory to a call.
    fn take(&mut self, key: &(String, bool), count: u64, ids: &mut Vec<String>) {
        let (twice, rounds) = (self.has("uses-a-range-twice"), self.has("rounds-ids"));
        let Some(memory) = self.memory.get_mut(key) else { return };
        while (ids.len() as u64) < count
            && let Some(range) = memory.front_mut()
        {
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "that is the fault"
            )]
            let rounded = range.first as f64 as u64;
            ids.push(if range.is_text {
                usize::try_from(range.first)
                    .ok()
                    .and_then(|at| self.texts.get(at))
                    .cloned()
                    .unwrap_or_default()
            } else {
                if rounds { rounded } else { range.first }.to_string()
            });
            range.first = range.first.wrapping_add(range.step);
            range.count -= 1;
            if range.count == 0 {
                let used = memory.pop_front();
                if twice && let Some(used) = used {
                    memory.push_front(Range { first: used.first - used.step, count: 1, ..used });
                }
            }
        }
    }

    fn fetch(
        &mut self,
        namespace: &str,
        is_text: bool,
        count: u64,
        deadline: Instant,
    ) -> Result<Vec<Range>, Failure> {
        let mut last = None;
        loop {
            let mut distrusted = 0;
            for server in self.servers.clone() {
                if self.closed(&server, namespace) > Duration::ZERO {
                    continue;
                }
                self.requests += 1;
                let limit = Duration::from_secs(2).min(deadline.saturating_duration_since(time::now()));
                let failure = match self.request(&server, (namespace, is_text), count, limit) {
                    Ok(ranges) => return Ok(ranges),
                    Err(failure) => failure,
                };
                self.failed += 1;
                if (failure.retry == "never" && !self.has("retries-final-errors")) || failure.retry == "fewer"
                {
                    return Err(failure);
                }
                distrusted += usize::from(failure.error["kind"] == "AnotherStore");
                last = Some(failure);
            }
            let closed =
                self.servers.iter().map(|server| self.closed(server, namespace)).min().unwrap_or_default();
            let left = deadline.saturating_duration_since(time::now());
            if left.is_zero() || closed > left || distrusted == self.servers.len() {
                let unavailable = || error("Unavailable", "", None, "all servers asked to retry later");
                let mut error = last.map_or_else(unavailable, |failure| failure.error);
                if !closed.is_zero() {
                    error["retry_after_ms"] = u64::try_from(closed.as_millis()).unwrap_or(u64::MAX).into();
                }
                return Err(Failure { error, retry: "never" });
            }
            thread::sleep(closed.max(Duration::from_millis(20)).min(left));
        }
    }

    /// Returns for how long a server gets no request.
    fn closed(&self, server: &str, namespace: &str) -> Duration {
        let until = [server.to_owned(), format!("{server} {namespace}")]
            .map(|key| self.not_before.get(&key).copied());
        let until = until.into_iter().flatten().max();
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(time::now()))
    }

    fn request(
        &mut self,
        server: &str,
        (namespace, is_text): (&str, bool),
        count: u64,
        limit: Duration,
    ) -> Result<Vec<Range>, Failure> {
        let unavailable =
            |detail: &str| Failure { error: error("Unavailable", server, None, detail), retry: "elsewhere" };
        let from = time::now();
        let wait = limit.as_secs_f64() * 0.8;
        let form = if is_text { "ids" } else { "ranges" };
        let path = format!("/v1/{form}/{namespace}?count={count}&wait={wait:.3}");
        let mut reply = self.http(server, &path, limit);
        if reply.is_err() && self.has("repeats-requests") {
            reply = self.http(server, &path, limit);
        }
        let mut reply = reply.map_err(|error| unavailable(&error.to_string()))?;
        if (300..400).contains(&reply.status) && self.has("follows-redirects") {
            let location = reply.headers.get("location").cloned().unwrap_or_default();
            reply = self.http(server, &location, limit).map_err(|error| unavailable(&error.to_string()))?;
        }
        if reply.status != 200 {
            return Err(self.refused(server, namespace, &reply));
        }
        let read =
            if is_text { self.read_texts(&reply, count, from) } else { self.read(&reply, count, from) };
        let ranges = read.ok_or_else(|| unavailable("invalid answer"))?;
        let named = reply.headers.get("snowmint-store");
        let own = self.store.get_or_insert_with(|| named.cloned().unwrap_or_default());
        if Some(&*own) != named && self.fault != "takes-any-store" {
            let detail = format!("the ids are of another store, {named:?}: expected {own}");
            return Err(Failure {
                error: error("AnotherStore", server, Some(200), &detail),
                retry: "elsewhere",
            });
        }
        Ok(ranges)
    }

    fn refused(&mut self, server: &str, namespace: &str, reply: &Reply) -> Failure {
        let problem: Value = serde_json::from_str(&reply.body).unwrap_or_default();
        let name =
            problem["type"].as_str().and_then(|it| it.strip_prefix("urn:snowmint:")).unwrap_or_default();
        let after = reply.headers.get("retry-after").and_then(|text| text.parse::<u64>().ok());
        let (kind, retry, concerns) = snowmint_client::error_meaning(reply.status, name)
            .map_or(("Rejected".to_owned(), "never", "server"), |it| (format!("{:?}", it.0), it.1, it.2));
        if let Some(after) = after.filter(|_| retry == "elsewhere" && !self.has("ignores-retry-after")) {
            let key = if concerns == "server" { server.to_owned() } else { format!("{server} {namespace}") };
            self.not_before.insert(key, time::now() + Duration::from_secs(after.min(60)));
        }
        let mut detail = problem["detail"].as_str().unwrap_or("no detail").to_owned();
        match &self.token {
            Some(token) if self.has("shows-the-token") => detail = format!("{detail} (token {token})"),
            Some(token) if !self.has("shows-what-servers-repeat") => {
                detail = detail.replace(&**token, "(token)");
            }
            _ => {}
        }
        Failure { error: error(&kind, server, Some(reply.status), &detail), retry }
    }

    /// Reads a valid answer.
    fn read(&self, reply: &Reply, count: u64, from: Instant) -> Option<Vec<Range>> {
        let answer: Value = serde_json::from_str(&reply.body).ok()?;
        let digits = |value: &Value| -> Option<u64> {
            let text = value.as_str()?;
            text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
        };
        let mut ranges = Vec::new();
        for range in answer["ranges"].as_array()? {
            let (first, count, step) =
                (digits(&range["first"])?, range["count"].as_u64()?, digits(&range["step"])?);
            let last = step.checked_mul(count.checked_sub(1)?)?.checked_add(first)?;
            if last > i64::MAX.cast_unsigned() || (step == 0 && count > 1) {
                return None;
            }
            ranges.push(Range { is_text: false, first, count, step, from });
        }
        let sum: u64 = ranges.iter().map(|range| range.count).sum();
        if sum != count && !self.has("uses-part-of-an-answer") {
            return None;
        }
        if self.has("uses-only-the-first-range") {
            ranges.truncate(1);
        }
        if self.has("sorts-ranges") {
            ranges.sort_unstable_by_key(|range| range.first);
        }
        Some(ranges)
    }

    /// Reads a valid answer of texts.
    fn read_texts(&mut self, reply: &Reply, count: u64, from: Instant) -> Option<Vec<Range>> {
        // `Value` would merge members that are there twice.
        #[derive(serde::Deserialize)]
        struct Answer {
            ids: Vec<String>,
        }
        let mut texts = serde_json::from_str::<Answer>(&reply.body).ok()?.ids;
        let has_part = texts.len() as u64 != count && !self.has("uses-part-of-an-answer");
        if has_part || texts.iter().any(String::is_empty) {
            return None;
        }
        let different: HashSet<_> = texts.iter().collect();
        if different.len() < texts.len() && !self.has("takes-a-text-twice") {
            return None;
        }
        if self.has("sorts-ranges") {
            texts.sort_unstable();
        }
        let (first, count) = (self.texts.len() as u64, texts.len() as u64);
        self.texts.extend(texts);
        Some(vec![Range { is_text: true, first, count, step: 1, from }])
    }

    fn http(&self, server: &str, path: &str, limit: Duration) -> std::io::Result<Reply> {
        let invalid = || std::io::Error::from(std::io::ErrorKind::InvalidData);
        let address = server.strip_prefix("http://").ok_or_else(invalid)?;
        let (host, base) = address
            .split_once('/')
            .map_or((address, String::new()), |(host, base)| (host, format!("/{base}")));
        let id = SENT.fetch_add(1, Ordering::Relaxed).to_string();
        let mut socket = TcpStream::connect(host)?;
        socket.set_read_timeout(Some(limit.max(Duration::from_millis(1))))?;
        let method = if self.has("sends-get") { "GET" } else { "POST" };
        let token =
            self.token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        write!(
            socket,
            "{method} {base}{path} HTTP/1.1\r\nHost: {host}\r\nSnowmint-Request: {id}\r\nConnection: close\r\nContent-Length: 0\r\n{token}\r\n"
        )?;
        let mut received = Vec::new();
        let mut buffer = [0; 4096];
        // The connection stays open: the length of the body says where it ends.
        loop {
            if let Some(reply) = parse(&received) {
                let is_other = reply.headers.get("snowmint-request").is_some_and(|other| *other != id);
                return if is_other && !self.has("takes-any-answer") { Err(invalid()) } else { Ok(reply) };
            }
            let read = socket.read(&mut buffer)?;
            if read == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            received.extend_from_slice(&buffer[..read]);
        }
    }
}

/// Reads a reply, if all of it has arrived.
fn parse(received: &[u8]) -> Option<Reply> {
    let text = std::str::from_utf8(received).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: HashMap<_, _> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers.get("content-length")?.parse().ok()?;
    (body.len() >= length).then(|| Reply { status, headers, body: body.to_owned() })
}

/// Runs a command and returns its answer.
fn run(client: &Mutex<Option<Client>>, command: &Value, fault: &str) -> Value {
    let mut client = client.lock().unwrap_or_else(PoisonError::into_inner);
    let namespace = command["namespace"].as_str().unwrap_or_default();
    let is_text = command["texts"] == true;
    let op = command["op"].as_str().unwrap_or_default();
    if op == "open" {
        *client = Some(Client::open(&command["options"], fault));
        return json!({});
    }
    let Some(open) = &mut *client else {
        let closed = error("Closed", "", None, "the client is closed");
        return if op == "close" { json!({}) } else { json!({"error": closed}) };
    };
    match op {
        "next" => {
            match open.next(namespace, is_text, command.get("count").map_or(1, |it| it.as_u64().unwrap_or(0)))
            {
                Ok(ids) => json!({"ids": ids}),
                Err(error) => json!({"error": error}),
            }
        }
        "buffered" => {
            let memory = open.memory.get(&(namespace.to_owned(), is_text)).into_iter().flatten();
            json!({"buffered": memory.map(|range| range.count).sum::<u64>()})
        }
        "discard_buffered" => {
            if !open.has("keeps-discarded-ids") {
                open.memory.remove(&(namespace.to_owned(), is_text));
            }
            json!({})
        }
        "stats" => json!({"requests": open.requests, "hedged": 0, "failed": open.failed}),
        "store" => json!({"store": open.store}),
        "fork" => json!({"unsupported": true}),
        "close" => {
            *client = None;
            json!({})
        }
        _ => json!({"error": error("InvalidOption", "", None, "unknown command")}),
    }
}

fn main() -> std::io::Result<()> {
    let fault = std::env::args_os().nth(1).unwrap_or_default().to_string_lossy().into_owned();
    let client = Arc::new(Mutex::new(None));
    for line in std::io::stdin().lines() {
        let command: Value = serde_json::from_str(&line?)?;
        let (client, fault) = (Arc::clone(&client), fault.clone());
        thread::spawn(move || {
            let mut answer = run(&client, &command, &fault);
            answer["id"] = command["id"].clone();
            let mut output = std::io::stdout().lock();
            // Without a reader there is nobody to tell.
            writeln!(output, "{answer}").and_then(|()| output.flush()).ok();
        });
    }
    Ok(())
}
