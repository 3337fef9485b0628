//! The driver of the Rust client.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use snowmint_client::{Client, ClientError, Id, Ids, ServerOrder};
use snowmint_test_servers::time;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// The options of `open`; what is absent has the default of the client.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::option_option, reason = "absent and `null` differ")]
struct Options {
    servers: Vec<String>,
    order: Option<String>,
    token: Option<String>,
    token_file: Option<String>,
    ca_file: Option<String>,
    client_certificate: Option<(String, String)>,
    store: Option<String>,
    timeout_ms: Option<u64>,
    #[serde(default, deserialize_with = "some")]
    hedge_after_ms: Option<Option<u64>>,
    #[serde(default, deserialize_with = "some")]
    max_age_ms: Option<Option<u64>>,
    #[serde(default)]
    namespace_max_age_ms: HashMap<String, Option<u64>>,
    buffer: Option<(usize, usize)>,
}

/// Reads a member that may be `null`, unlike one that is absent.
fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// Returns a time; without one, there is no limit.
fn ms(ms: Option<u64>) -> Duration {
    ms.map_or(Duration::MAX, Duration::from_millis)
}

impl Options {
    fn build(self) -> Result<Client, String> {
        let mut builder = Client::builder().servers(self.servers);
        match self.order.as_deref() {
            None | Some("shuffled") => {}
            Some("as_listed") => builder = builder.order(ServerOrder::AsListed),
            Some(other) => return Err(format!("invalid order {other:?}: expected shuffled or as_listed")),
        }
        if let Some(token) = self.token {
            builder = builder.token(token);
        }
        if let Some(path) = self.token_file {
            builder = builder.token_file(path);
        }
        if let Some(path) = self.ca_file {
            builder = builder.ca_file(path);
        }
        if let Some((certificate, key)) = self.client_certificate {
            builder = builder.client_certificate(certificate, key);
        }
        if let Some(store) = self.store {
            builder = builder.store(store);
        }
        if let Some(timeout) = self.timeout_ms {
            builder = builder.timeout(Duration::from_millis(timeout));
        }
        if let Some(after) = self.hedge_after_ms {
            builder = builder.hedge_after(ms(after));
        }
        if let Some(age) = self.max_age_ms {
            builder = builder.max_age(ms(age));
        }
        for (namespace, age) in self.namespace_max_age_ms {
            builder = builder.namespace_max_age(namespace, ms(age));
        }
        if let Some((least, most)) = self.buffer {
            builder = builder.buffer(least..=most);
        }
        builder.build().map_err(|error| snowmint_error(&error))
    }
}

/// Returns an error with its causes.
fn snowmint_error(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// An open client. The handles stay, since the last one of a namespace takes the ids in memory with it.
struct Open {
    client: Client,
    handles: Mutex<HashMap<String, Ids>>,
    /// Becomes true when the client is closed. In Rust, dropping is closing: nobody waits for what is dropped.
    closed: watch::Sender<bool>,
}

/// What a command returns: members of the answer.
type Answered = Result<Value, Value>;

fn closed() -> Value {
    error_of("Closed", "the client is closed")
}

fn error_of(kind: &str, message: &str) -> Value {
    json!({"kind": kind, "temporary": false, "server": null, "status": null, "retry_after_ms": null, "message": message})
}

fn client_error(error: &ClientError) -> Value {
    let retry_after_ms =
        error.retry_after().map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
    json!({
        "kind": format!("{:?}", error.kind()),
        "temporary": error.is_temporary(),
        "server": error.server(),
        "status": error.status(),
        "retry_after_ms": retry_after_ms,
        "message": error.to_string(),
    })
}

fn ids_of(ids: impl IntoIterator<Item = Id>) -> Value {
    json!({"ids": ids.into_iter().map(|id| id.to_string()).collect::<Vec<_>>()})
}

/// A command; each reads the members it needs.
#[derive(Debug, Deserialize)]
struct Command {
    id: u64,
    op: String,
    #[serde(default)]
    namespace: String,
    count: Option<usize>,
    /// The client has no calls for texts.
    #[serde(default)]
    texts: bool,
    #[serde(default)]
    options: Value,
    #[serde(default)]
    threads: usize,
    #[serde(default)]
    each: usize,
    #[serde(default)]
    to: String,
}

impl Open {
    fn ids(&self, namespace: &str) -> Result<Ids, Value> {
        if let Some(ids) = lock(&self.handles).get(namespace) {
            return Ok(ids.clone());
        }
        let ids = self.client.namespace(namespace).map_err(|error| client_error(&error))?;
        lock(&self.handles).insert(namespace.to_owned(), ids.clone());
        Ok(ids)
    }

    /// Waits for a call, or for the end of the client.
    async fn call<T>(&self, call: impl Future<Output = Result<T, ClientError>>) -> Result<T, Value> {
        let mut closes = self.closed.subscribe();
        tokio::select! {
            returned = call => returned.map_err(|error| client_error(&error)),
            _ = closes.wait_for(|closed| *closed) => Err(closed()),
        }
    }

    async fn run(&self, command: &Command) -> Answered {
        if command.texts {
            return Ok(json!({"unsupported": true}));
        }
        let ids = || self.ids(&command.namespace);
        match &*command.op {
            "next" => {
                let ids = ids()?;
                match command.count {
                    None => Ok(ids_of([self.call(ids.next_id()).await?])),
                    Some(count) => Ok(ids_of(self.call(ids.next_ids(count)).await?)),
                }
            }
            "try_next" => Ok(ids_of(ids()?.try_next_id().map_err(|error| client_error(&error))?)),
            "buffered" => Ok(json!({"buffered": ids()?.buffered()})),
            "discard_buffered" => {
                ids()?.discard_buffered();
                Ok(json!({}))
            }
            "stats" => {
                let stats = self.client.stats();
                Ok(json!({"requests": stats.requests, "hedged": stats.hedged, "failed": stats.failed}))
            }
            "store" => Ok(json!({"store": self.client.store()})),
            "fork" => Ok(fork(&ids()?, command.count.unwrap_or(1))),
            other => Err(error_of("InvalidOption", &format!("unknown command {other:?}"))),
        }
    }
}

/// Draws in a forked child, whose answer comes through a file.
#[expect(unsafe_code, reason = "forking is what is driven")]
fn fork(ids: &Ids, count: usize) -> Value {
    let Ok(file) = tempfile::NamedTempFile::new() else { return json!({"unsupported": true}) };
    // SAFETY: the child leaves by `_exit`. It allocates, which glibc allows after a fork, and takes no lock that another thread of
    // the parent may have held.
    unsafe {
        let pid = libc::fork();
        if pid < 0 {
            return json!({"unsupported": true});
        }
        if pid == 0 {
            libc::alarm(60);
            let answer = match ids.blocking_next_ids(count) {
                Ok(ids) => ids_of(ids),
                Err(error) => json!({"error": client_error(&error)}),
            };
            std::fs::write(file.path(), answer.to_string()).ok();
            libc::_exit(0);
        }
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
    let text = std::fs::read_to_string(file.path()).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_else(|_| json!({"error": error_of("Closed", "the child died")}))
}

/// Draws ids in threads, one a call, into a file.
fn draw(open: &Open, command: &Command) -> Answered {
    let ids = open.ids(&command.namespace)?;
    let invalid = |error: std::io::Error| error_of("InvalidOption", &format!("{}: {error}", command.to));
    let mut file = BufWriter::new(File::create(&command.to).map_err(invalid)?);
    let drawn: Vec<(Vec<u64>, u64, Option<ClientError>)> = thread::scope(|scope| {
        let drawers: Vec<_> = (0..command.threads)
            .map(|_| {
                scope.spawn(|| {
                    let (mut drawn, mut errors, mut first) = (Vec::with_capacity(command.each), 0, None);
                    for _ in 0..command.each {
                        match ids.blocking_next_id() {
                            Ok(id) => drawn.push(id.get()),
                            Err(error) => {
                                errors += 1;
                                first.get_or_insert(error);
                            }
                        }
                    }
                    (drawn, errors, first)
                })
            })
            .collect();
        drawers.into_iter().filter_map(|drawer| drawer.join().ok()).collect()
    });
    for id in drawn.iter().flat_map(|(ids, ..)| ids) {
        file.write_all(&id.to_le_bytes()).map_err(invalid)?;
    }
    file.flush().map_err(invalid)?;
    let first = drawn.iter().find_map(|(.., error)| error.as_ref());
    Ok(json!({
        "drawn": drawn.iter().map(|(ids, ..)| ids.len()).sum::<usize>(),
        "errors": drawn.iter().map(|(_, errors, _)| errors).sum::<u64>(),
        "first_error": first.map(client_error),
    }))
}

/// Measures calls for one id in one thread.
fn bench(open: &Open, command: &Command) -> Answered {
    let ids = open.ids(&command.namespace)?;
    let count = command.count.unwrap_or(1_000_000).max(1);
    // The buffer grows with the use.
    for _ in 0..count / 10 {
        ids.blocking_next_id().map_err(|error| client_error(&error))?;
    }
    let began = time::now();
    for _ in 0..count {
        ids.blocking_next_id().map_err(|error| client_error(&error))?;
    }
    let took = began.elapsed();
    let mut each: Vec<Duration> = Vec::with_capacity(count.min(100_000));
    for _ in 0..count.min(100_000) {
        let began = time::now();
        ids.blocking_next_id().map_err(|error| client_error(&error))?;
        each.push(began.elapsed());
    }
    each.sort_unstable();
    let p999 = each.get(each.len() * 999 / 1000).copied().unwrap_or_default();
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    Ok(json!({
        "ns_each": took.as_secs_f64() * 1e9 / f64::from(count),
        "p999_us": p999.as_secs_f64() * 1e6,
    }))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(id: u64, answered: Answered) {
    let mut answer = answered.unwrap_or_else(|error| json!({"error": error}));
    answer["id"] = id.into();
    let mut output = std::io::stdout().lock();
    // Without a reader there is nobody to tell.
    writeln!(output, "{answer}").and_then(|()| output.flush()).ok();
}

/// Opens a client. Returns why its options are invalid.
fn open(options: Value) -> Result<Open, Value> {
    let invalid = |why: String| error_of("InvalidOption", &why);
    let options: Options = serde_json::from_value(options).map_err(|error| invalid(error.to_string()))?;
    let client = options.build().map_err(invalid)?;
    Ok(Open { client, handles: Mutex::default(), closed: watch::Sender::new(false) })
}

fn main() -> std::io::Result<()> {
    let runtime = Runtime::new()?;
    let mut client: Option<Arc<Open>> = None;
    for line in std::io::stdin().lines() {
        let mut command: Command = serde_json::from_str(&line?)?;
        match &*command.op {
            "open" => answer(
                command.id,
                open(command.options.take()).map(|open| {
                    client = Some(Arc::new(open));
                    json!({})
                }),
            ),
            "close" => {
                if let Some(client) = client.take() {
                    client.closed.send_replace(true);
                }
                answer(command.id, Ok(json!({})));
            }
            _ => {
                let Some(open) = client.clone() else {
                    answer(command.id, Err(closed()));
                    continue;
                };
                match &*command.op {
                    "draw" => drop(thread::spawn(move || answer(command.id, draw(&open, &command)))),
                    "bench" => drop(thread::spawn(move || answer(command.id, bench(&open, &command)))),
                    _ => drop(runtime.spawn(async move { answer(command.id, open.run(&command).await) })),
                }
            }
        }
    }
    runtime.shutdown_background();
    Ok(())
}
