//! Clients that go from node to node and take whatever ids they get, by HTTP and RESP, one at a time and in batches.
//! What increases on one connection is checked as it comes.

use std::io::ErrorKind;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::Harvest;
use crate::http::Http;
use crate::{Dice, Resp, time};

/// How hard the nodes are asked.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many clients there are.
    pub clients: usize,
    /// A namespace of numbers that they draw from too, on half of their connections.
    pub numbers: Option<&'static str>,
    /// What each of them aims at, so that the faults have time to strike and the machine is not saturated.
    pub ids_a_second: u64,
}

/// How many ids were drawn so far, for whoever waits for enough.
#[derive(Debug, Default)]
pub struct Drawn {
    ids: AtomicUsize,
    numbers: AtomicUsize,
}

impl Drawn {
    /// The number.
    pub fn ids(&self) -> usize {
        self.ids.load(Ordering::Relaxed)
    }

    /// The number of numbers.
    pub fn numbers(&self) -> usize {
        self.numbers.load(Ordering::Relaxed)
    }
}

/// Lets clients draw for as long as `during` takes, from nodes at these addresses (HTTP, RESP).
///
/// # Panics
///
/// If ids do not increase on a connection, or an answer is not what was asked for.
pub fn draw_while(
    addresses: &[(SocketAddrV4, SocketAddrV4)],
    load: Load,
    dice: &mut Dice,
    during: impl FnOnce(&mut Dice, &Drawn),
) -> Harvest {
    let (drawn, over) = (Drawn::default(), AtomicBool::new(false));
    let began = time::now();
    let mut all = Harvest::new(began);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..load.clients)
            .map(|_| {
                let dice = Dice::new(dice.next());
                let client = Client { dice, addresses, load, harvest: Harvest::new(began) };
                let (drawn, over) = (&drawn, &over);
                scope.spawn(move || client.draw_until(drawn, over))
            })
            .collect();
        {
            // However this block is left, the clients must end too, or the scope would wait for ever.
            let _ends = SetOnDrop(&over);
            during(dice, &drawn);
            all.over();
        }
        for client in clients {
            all.add(client.join().unwrap());
        }
    });
    all
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client that goes from node to node.
struct Client<'a> {
    dice: Dice,
    addresses: &'a [(SocketAddrV4, SocketAddrV4)],
    load: Load,
    harvest: Harvest,
}

/// From what a connection draws.
#[derive(Clone, Copy)]
enum Source {
    Ids,
    Numbers(&'static str),
}

impl Source {
    const fn namespace(self) -> &'static str {
        match self {
            Self::Ids => "default",
            Self::Numbers(namespace) => namespace,
        }
    }
}

enum Connection {
    Resp(Resp),
    Http(Http),
}

impl Client<'_> {
    fn draw_until(mut self, drawn: &Drawn, over: &AtomicBool) -> Harvest {
        while !over.load(Ordering::Relaxed) {
            let Ok(mut connection) = self.connect() else {
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            let source = match self.load.numbers {
                Some(namespace) if self.dice.within(0, 1) == 0 => Source::Numbers(namespace),
                _ => Source::Ids,
            };
            // Ids must increase while a connection talks to one process.
            let mut last = 0;
            for _ in 0..self.dice.within(5, 60) {
                match self.draw(&mut connection, source, &mut last, drawn) {
                    Ok(0) => {
                        thread::sleep(Duration::from_millis(20));
                        // Most ask elsewhere then, some stay until there are ids again.
                        if self.dice.within(0, 3) > 0 {
                            break;
                        }
                    }
                    Ok(got) => thread::sleep(Duration::from_micros(1_000_000 * got / self.load.ids_a_second)),
                    Err(()) => break,
                }
                if over.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
        self.harvest
    }

    fn connect(&mut self) -> Result<Connection, ()> {
        let (http, resp) = self.addresses[self.dice.index(self.addresses.len())];
        // Some leave a server that is paused, some wait until it goes on.
        let patience = Duration::from_millis([300, 300, 300, 300, 8000][self.dice.index(5)]);
        let connected = if self.dice.within(0, 3) == 0 {
            Http::connect(http, patience).map(Connection::Http)
        } else {
            Resp::connect(resp, patience).map(Connection::Resp)
        };
        connected.map_err(|error| self.harvest.failed(&format!("no connection, {}", in_words(&error)), 1))
    }

    /// Makes one exchange: how many ids it brought, or that the connection is lost.
    fn draw(
        &mut self,
        connection: &mut Connection,
        source: Source,
        last: &mut u64,
        drawn: &Drawn,
    ) -> Result<u64, ()> {
        let count = usize::try_from(self.dice.within(1, 1000)).unwrap();
        let mut got = 0;
        let mut missing = 1;
        let harvest = &mut self.harvest;
        // Whatever was read counts, also where the connection breaks in the next reply.
        let mut take = |answer: Result<&[u64], &str>, how: &str| match answer {
            Ok(ids) => {
                for &id in ids {
                    // Numbers need not increase where the store went back.
                    assert!(
                        id > *last || matches!(source, Source::Numbers(_)),
                        "{id} after {last} on one connection"
                    );
                    *last = id;
                }
                harvest.answered(how);
                match source {
                    Source::Ids => {
                        harvest.ids.add(ids);
                        drawn.ids.fetch_add(ids.len(), Ordering::Relaxed);
                    }
                    Source::Numbers(_) => {
                        harvest.numbers.add(ids);
                        drawn.numbers.fetch_add(ids.len(), Ordering::Relaxed);
                    }
                }
                got += ids.len() as u64;
            }
            Err(error) => {
                harvest.failed(&format!("error {}", error.split(' ').next().unwrap_or_default()), 1);
            }
        };
        let exchanged = match connection {
            Connection::Http(http) => {
                http.get(&format!("/v1/ids/{}?count={count}", source.namespace()), "").map(|answer| {
                    take(answer.ids().as_deref().map_err(String::as_str), "answers by HTTP");
                })
            }
            Connection::Resp(resp) if count % 2 == 0 => resp.next(source.namespace(), count).map(|answer| {
                take(answer.as_deref().map_err(String::as_str), "replies with COUNT");
            }),
            Connection::Resp(resp) => {
                let singles = count / 10 + 1;
                missing = singles as u64;
                resp.pipeline(source.namespace(), singles, |answer| {
                    missing -= 1;
                    let answer = answer.as_ref().map(std::slice::from_ref).map_err(String::as_str);
                    take(answer, "replies to pipelined singles");
                })
            }
        };
        let broken = |error| harvest.failed(&format!("connection lost, {}", in_words(&error)), missing);
        exchanged.map(|()| got).map_err(broken)
    }
}

/// The kind of a failure; a time-out has two names in Rust.
fn in_words(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "no answer in time".to_owned(),
        kind => format!("{kind:?}"),
    }
}
