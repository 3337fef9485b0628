//! Shared by all tests: keys, writes, waiting, and the log lines of a store.

pub(crate) mod child_process;
pub(crate) mod cut_connection;
pub(crate) mod outages;
pub(crate) mod traffic;

use std::io::{self, Write};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use snowmint_store::{Expected, Key, OpenError, Store, StoreErrorKind, Swap, Versioned};
use tokio::time::{Instant, sleep, timeout};

/// Time limit for a condition on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// Time limit for a store to refuse a URL.
const BOUND: Duration = Duration::from_secs(8);
/// A password that must not appear anywhere.
pub(crate) const SECRET: &str = "hunter2-s3cret";

pub(crate) fn key(text: impl Into<String>) -> Key {
    Key::new(text).unwrap()
}

pub(crate) async fn open(url: &str) -> Arc<dyn Store> {
    snowmint_store::open_backend(url).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Opens a store that must not open. Returns the error, which must never contain the password.
pub(crate) async fn refused(url: &str) -> (Option<StoreErrorKind>, String) {
    let error = match timeout(BOUND, snowmint_store::open_backend(url)).await.expect("in bounded time") {
        Ok(store) => panic!("{store:?} opened"),
        Err(error) => error,
    };
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(SECRET), "{shown}");
    let kind = match &error {
        OpenError::Store(error) => Some(error.kind()),
        _ => None,
    };
    (kind, error.to_string())
}

/// Writes the record, whatever it holds, for tests with one writer.
pub(crate) async fn put(store: &dyn Store, name: &str, value: &[u8]) -> Versioned {
    let found = store.load(&key(name)).await.unwrap();
    let expected = found.map_or(Expected::Absent, |it| Expected::Revision(it.revision));
    match store.compare_and_set(&key(name), expected, value).await.unwrap() {
        Swap::Done(revision) => Versioned { value: value.to_vec(), revision },
        Swap::Conflict => panic!("{name}: an unexpected conflict"),
    }
}

/// Waits until a condition holds, with a limit for a busy machine.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "timed out waiting for {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// The lines that a store logs about its servers. Other tests in the same process may log too.
pub(crate) struct Log {
    servers: Vec<String>,
}

/// All lines of this process.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

static LINES: OnceLock<Lines> = OnceLock::new();

impl Log {
    /// Starts to collect the lines about the servers of a URL.
    pub(crate) fn listen(url: &str) -> Self {
        LINES.get_or_init(|| {
            let lines = Lines::default();
            let writer = lines.clone();
            let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
            tracing::subscriber::set_global_default(log).unwrap();
            lines
        });
        let (_, hosts) = url.split_once("://").unwrap();
        let hosts = hosts.split(['/', '?']).next().unwrap();
        let hosts = hosts.rsplit_once('@').map_or(hosts, |(_, hosts)| hosts);
        Self { servers: hosts.split(',').map(ToOwned::to_owned).collect() }
    }

    /// Returns the lines that contain these words.
    pub(crate) fn lines(&self, words: &str) -> Vec<String> {
        let all = String::from_utf8(LINES.get().unwrap().0.lock().unwrap().clone()).unwrap();
        let is_ours = |line: &&str| line.contains(words) && self.servers.iter().any(|it| line.contains(it));
        all.lines().filter(is_ours).map(ToOwned::to_owned).collect()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
