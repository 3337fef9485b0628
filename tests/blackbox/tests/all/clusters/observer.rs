//! A client that sends a request to a node every millisecond, and measures the longest time without an id,
//! and the errors. It stays with the node, so that every gap is caused by that node.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use snowmint_test_servers::snowmint::Resp;
use snowmint_test_servers::time;

const EVERY: Duration = Duration::from_millis(1);
/// Time limit for an answer before the client reconnects.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long it continues at the end until an id arrives: a gap is recorded when it ends.
const LAST: Duration = Duration::from_secs(30);

/// A time without ids.
#[derive(Clone, Debug)]
pub(crate) struct Gap {
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    /// The errors received instead of ids, and their counts.
    pub(crate) heard: BTreeMap<String, u32>,
}

impl Gap {
    pub(crate) fn length(&self) -> Duration {
        self.ended - self.began
    }

    /// Returns the most frequent error.
    pub(crate) fn error(&self) -> Option<&str> {
        let most = self.heard.iter().max_by_key(|(_, count)| **count);
        most.map(|(what, _)| what.as_str())
    }
}

/// A client at work.
#[derive(Debug)]
pub(crate) struct Observer {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Gap>>,
}

impl Observer {
    /// Starts to send requests to a node that makes ids.
    pub(crate) fn start(address: SocketAddrV4) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        Self { over, thread: Some(thread::spawn(move || ask(address, &stop))) }
    }

    /// Ends with one more id, and returns the longest gap.
    ///
    /// # Panics
    ///
    /// If no more ids arrive.
    pub(crate) fn longest(mut self) -> Gap {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join).expect("a thread until now").expect("ids at the end")
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        // If a test fails, nothing waits for the thread: it ends by itself.
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Sends requests until the test ends and an id arrives. Returns the longest gap.
fn ask(address: SocketAddrV4, over: &AtomicBool) -> Gap {
    let mut connection: Option<Resp> = None;
    let mut last = time::now();
    let mut longest = Gap { began: last, ended: last, heard: BTreeMap::new() };
    let mut heard = BTreeMap::new();
    let mut over_since: Option<Instant> = None;
    loop {
        let asked = time::now();
        if over_since.is_none() && over.load(Ordering::Relaxed) {
            over_since = Some(asked);
        }
        let answer = match connection.take().map_or_else(|| Resp::connect(address, PATIENCE), Ok) {
            Ok(mut resp) => resp.next("default", 1).map(|answer| {
                connection = Some(resp);
                answer.map_err(|text| text.split(' ').next().unwrap_or_default().to_owned())
            }),
            Err(error) => Err(error),
        };
        match answer.unwrap_or_else(|error| Err(in_words(error.kind()).to_owned())) {
            Ok(_) => {
                let gap = Gap { began: last, ended: time::now(), heard: std::mem::take(&mut heard) };
                last = gap.ended;
                if gap.length() > longest.length() {
                    longest = gap;
                }
                if over_since.is_some() {
                    return longest;
                }
            }
            Err(what) => *heard.entry(what).or_default() += 1,
        }
        assert!(over_since.is_none_or(|since| since.elapsed() < LAST), "no ids any more, but {heard:?}");
        thread::sleep(EVERY.saturating_sub(asked.elapsed()));
    }
}

fn in_words(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "no answer",
        ErrorKind::ConnectionRefused => "connection refused",
        _ => "connection closed",
    }
}
