//! Clients that go from server to server and take whatever ids they get.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use snowmint_blackbox::http::Http;
use snowmint_blackbox::{Dice, Ids, Resp};

/// What a client got.
#[derive(Default)]
pub(crate) struct Harvest {
    pub(crate) ids: Ids,
    /// Answers and failures, by kind.
    pub(crate) said: BTreeMap<String, u64>,
}

impl Harvest {
    pub(crate) fn add(&mut self, other: Self) {
        self.ids.append(other.ids);
        for (what, count) in other.said {
            *self.said.entry(what).or_default() += count;
        }
    }

    fn count(&mut self, what: impl Into<String>) {
        *self.said.entry(what.into()).or_default() += 1;
    }
}

/// A client that goes from server to server.
pub(crate) struct Client<'a> {
    dice: Dice,
    addresses: &'a [(SocketAddrV4, SocketAddrV4)],
    ids_a_second: u64,
    harvest: Harvest,
}

enum Connection {
    Resp(Resp),
    Http(Http),
}

impl<'a> Client<'a> {
    pub(crate) fn new(dice: Dice, addresses: &'a [(SocketAddrV4, SocketAddrV4)], ids_a_second: u64) -> Self {
        Self { dice, addresses, ids_a_second, harvest: Harvest::default() }
    }

    pub(crate) fn draw_until(mut self, drawn: &AtomicUsize, over: &AtomicBool) -> Harvest {
        while !over.load(Ordering::Relaxed) {
            let Ok(mut connection) = self.connect() else {
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            // Ids must increase while a connection talks to one process.
            let mut last = 0;
            for _ in 0..self.dice.within(5, 60) {
                let got = self.draw(&mut connection, &mut last, drawn);
                match got {
                    Ok(0) => thread::sleep(Duration::from_millis(20)),
                    Ok(got) => thread::sleep(Duration::from_micros(1_000_000 * got / self.ids_a_second)),
                    Err(error) => {
                        self.harvest.count(format!("connection lost, {}", in_words(&error)));
                        break;
                    }
                }
                if over.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
        self.harvest
    }

    fn connect(&mut self) -> std::io::Result<Connection> {
        let (http, resp) = self.addresses[self.dice.index(self.addresses.len())];
        // Some leave a server that is paused, some wait until it goes on.
        let patience = Duration::from_millis([300, 300, 300, 300, 8000][self.dice.index(5)]);
        let connected = if self.dice.within(0, 3) == 0 {
            Http::connect(http, patience).map(Connection::Http)
        } else {
            Resp::connect(resp, patience).map(Connection::Resp)
        };
        connected.inspect_err(|error| self.harvest.count(format!("no connection, {}", in_words(error))))
    }

    /// Makes one exchange: how many ids it brought.
    fn draw(
        &mut self,
        connection: &mut Connection,
        last: &mut u64,
        drawn: &AtomicUsize,
    ) -> std::io::Result<u64> {
        let count = usize::try_from(self.dice.within(1, 1000)).unwrap();
        let mut got = 0;
        let harvest = &mut self.harvest;
        // Whatever was read counts, also where the connection breaks in the next reply.
        let mut take = |answer: Result<Vec<u64>, String>, how: &str| match answer {
            Ok(ids) => {
                for &id in &ids {
                    assert!(id > *last, "{id} after {last} on one connection");
                    *last = id;
                }
                harvest.count(how);
                harvest.ids.add(&ids);
                drawn.fetch_add(ids.len(), Ordering::Relaxed);
                got += ids.len() as u64;
            }
            Err(error) => {
                let kind: String = error.split(' ').next().unwrap_or_default().into();
                harvest.count(format!("error {kind}"));
            }
        };
        match connection {
            Connection::Http(http) => {
                let answer = http.get(&format!("/v1/ids/default?count={count}"), "")?;
                take(answer.ids(), "answers by HTTP");
            }
            Connection::Resp(resp) if count % 2 == 0 => {
                take(resp.next("default", count)?, "replies with COUNT");
            }
            Connection::Resp(resp) => {
                resp.pipeline("default", count / 10 + 1, |answer| {
                    take(answer.map(|id| vec![id]), "replies to pipelined singles");
                })?;
            }
        }
        Ok(got)
    }
}

/// The kind of a failure; a time-out has two names in Rust.
fn in_words(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "no answer in time".to_owned(),
        kind => format!("{kind:?}"),
    }
}
