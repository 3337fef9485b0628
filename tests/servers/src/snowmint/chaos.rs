//! Shared by the chaos tests: repeatable randomness, clients that draw ids, their results, and nodes that
//! suffer faults. Each test decides which faults strike, how often, and what must hold afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::http::Http;
use super::resp::command;
use super::{FakeClock, Ids, Resp, Serve, Server, ids};
use crate::time;

/// A generator of random numbers that is good enough for random choices.
///
/// # Source
///
/// `SplitMix64`, Guy Steele, Doug Lea, Christine Flood: "Fast splittable pseudorandom number generators",
/// 2014.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Starts a sequence that is the same for each seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Uses the seed in `$SNOWMINT_SEED`, or a new one. Print it.
    ///
    /// # Panics
    ///
    /// If the variable is not a number.
    pub fn seed() -> u64 {
        std::env::var("SNOWMINT_SEED").map_or_else(
            |_| time::unix_ms() ^ (u64::from(std::process::id()) << 44),
            |text| text.parse().expect("SNOWMINT_SEED is a number"),
        )
    }

    /// Any number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `low..=high`.
    pub const fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// A number in `0.0..1.0`.
    ///
    /// # Panics
    ///
    /// Never: 16 bits fit.
    pub fn fraction(&mut self) -> f64 {
        f64::from(u16::try_from(self.next() >> 48).expect("16 bits")) / 65_536.0
    }

    /// An index below `len`, which must not be 0.
    ///
    /// # Panics
    ///
    /// If `len` is 0.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.next() % len as u64).expect("below a usize")
    }
}

/// The load on the nodes.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Number of clients.
    pub clients: usize,
    /// A segment namespace that half of their connections draw from.
    pub numbers: Option<&'static str>,
    /// Target rate of each client: low enough that faults have time to strike and the machine is not
    /// saturated.
    pub ids_a_second: u64,
}

/// Counts the ids drawn so far, for a test that waits for enough.
#[derive(Debug, Default)]
pub struct Drawn {
    ids: AtomicUsize,
    numbers: AtomicUsize,
}

impl Drawn {
    /// The number of ids.
    pub fn ids(&self) -> usize {
        self.ids.load(Ordering::Relaxed)
    }

    /// The number of numbers.
    pub fn numbers(&self) -> usize {
        self.numbers.load(Ordering::Relaxed)
    }
}

/// Lets clients draw from nodes at these addresses (HTTP, RESP) while `during` runs.
///
/// # Panics
///
/// If ids do not increase on a connection, or an answer is not the requested one.
pub fn draw_while(
    addresses: &[(SocketAddrV4, SocketAddrV4)],
    load: Load,
    random: &mut SplitMix64,
    during: impl FnOnce(&mut SplitMix64, &Drawn),
) -> Harvest {
    let (drawn, over) = (Drawn::default(), AtomicBool::new(false));
    let began = time::now();
    let mut all = Harvest::new(began);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..load.clients)
            .map(|_| {
                let random = SplitMix64::new(random.next());
                let client = Client { random, addresses, load, harvest: Harvest::new(began) };
                let (drawn, over) = (&drawn, &over);
                scope.spawn(move || client.draw_until(drawn, over))
            })
            .collect();
        {
            // The clients must end even if this block panics, or the scope would wait forever.
            let _ends = SetOnDrop(&over);
            during(random, &drawn);
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

/// A client that moves from node to node.
struct Client<'a> {
    random: SplitMix64,
    addresses: &'a [(SocketAddrV4, SocketAddrV4)],
    load: Load,
    harvest: Harvest,
}

/// The namespace of a connection.
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
                Some(namespace) if self.random.within(0, 1) == 0 => Source::Numbers(namespace),
                _ => Source::Ids,
            };
            // Ids must increase while a connection talks to one process.
            let mut last = 0;
            for _ in 0..self.random.within(5, 60) {
                match self.draw(&mut connection, source, &mut last, drawn) {
                    Ok(0) => {
                        thread::sleep(Duration::from_millis(20));
                        // Most clients then go to another node, some stay until ids return.
                        if self.random.within(0, 3) > 0 {
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
        let (http, resp) = self.addresses[self.random.index(self.addresses.len())];
        // Some clients leave a paused server, some wait for it.
        let patience = Duration::from_millis([300, 300, 300, 300, 8000][self.random.index(5)]);
        let connected = if self.random.within(0, 3) == 0 {
            Http::connect(http, patience).map(Connection::Http)
        } else {
            Resp::connect(resp, patience).map(Connection::Resp)
        };
        connected.map_err(|error| self.harvest.failed(&format!("no connection, {}", in_words(&error)), 1))
    }

    /// Sends one request. Returns the number of ids, or that the connection is lost.
    fn draw(
        &mut self,
        connection: &mut Connection,
        source: Source,
        last: &mut u64,
        drawn: &Drawn,
    ) -> Result<u64, ()> {
        let count = usize::try_from(self.random.within(1, 1000)).unwrap();
        let mut got = 0;
        let mut missing = 1;
        let harvest = &mut self.harvest;
        // Ids count once they are read, even if the connection breaks in the next reply.
        let mut take = |answer: Result<&[u64], &str>, how: &str| match answer {
            Ok(ids) => {
                for &id in ids {
                    // Numbers need not increase if the store went back.
                    assert!(
                        id > *last || matches!(source, Source::Numbers(_)),
                        "{id} follows {last} on one connection"
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

/// Returns the kind of a failure; a timeout has two names in Rust.
fn in_words(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "no answer in time".to_owned(),
        kind => format!("{kind:?}"),
    }
}

/// Resolution of the times with answers.
const SLICE: Duration = Duration::from_millis(100);

/// The results of one or several clients.
#[derive(Debug)]
pub struct Harvest {
    /// The ids of every answer.
    pub ids: Ids,
    /// The numbers of every answer.
    pub numbers: Ids,
    began: Instant,
    /// Answers and failures, by kind.
    said: BTreeMap<String, u64>,
    requests: u64,
    answered: u64,
    slices_with_answers: BTreeSet<u128>,
    slices: u128,
}

impl Harvest {
    /// Creates an empty result; `began` is when the first client began.
    pub const fn new(began: Instant) -> Self {
        Self {
            ids: Ids::new(),
            numbers: Ids::new(),
            began,
            said: BTreeMap::new(),
            requests: 0,
            answered: 0,
            slices_with_answers: BTreeSet::new(),
            slices: 0,
        }
    }

    /// Adds the result of another client.
    pub fn add(&mut self, other: Self) {
        self.ids.append(other.ids);
        self.numbers.append(other.numbers);
        for (what, count) in other.said {
            *self.said.entry(what).or_default() += count;
        }
        self.requests += other.requests;
        self.answered += other.answered;
        self.slices_with_answers.extend(other.slices_with_answers);
    }

    /// Records a request that was answered with ids or numbers.
    fn answered(&mut self, how: &str) {
        self.note(how);
        self.requests += 1;
        self.answered += 1;
        self.slices_with_answers.insert(slice(self.began));
    }

    /// Ends the measured time: later answers do not count.
    fn over(&mut self) {
        self.slices = slice(self.began);
    }

    /// Records requests that one event left without ids.
    fn failed(&mut self, why: &str, requests: u64) {
        self.note(why);
        self.requests += requests;
    }

    fn note(&mut self, what: &str) {
        *self.said.entry(what.to_owned()).or_default() += 1;
    }

    /// Describes how many requests were answered, for which part of the time, and how the others ended.
    pub fn shares(&self) -> String {
        let (slices, with_answers) = (self.slices, self.slices_with_answers.range(..self.slices).count());
        let mut text = format!(
            "requests answered: {} of {}; some node answered in {} of {slices} slices of {SLICE:?}",
            percent(self.answered.into(), self.requests.into()),
            self.requests,
            percent(with_answers as u128, slices),
        );
        for (what, count) in &self.said {
            let _ = write!(text, "\nclients saw: {what} {count}");
        }
        text
    }
}

fn slice(began: Instant) -> u128 {
    time::now().duration_since(began).as_millis() / SLICE.as_millis()
}

/// Formats a percentage, rounded down, so that 100 % means all.
fn percent(part: u128, whole: u128) -> String {
    let tenths = part * 1000 / whole.max(1);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// Limit on the distance of an id from the real time: the errors of two readings, and the slew of the
/// servers' clocks.
pub const CLOCK_SLACK_MS: u64 = 100;

/// The error of a node's wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// Correct.
    None,
    /// An hour ahead.
    Ahead,
    /// An hour behind.
    Behind,
}

impl Offset {
    const ALL: [Self; 3] = [Self::None, Self::Ahead, Self::Behind];
    const HOUR_MS: i64 = 3_600_000;

    /// The offset in the form of libfaketime.
    const fn text(self) -> &'static str {
        match self {
            Self::None => "+0",
            Self::Ahead => "+1h",
            Self::Behind => "-1h",
        }
    }

    const fn ms(self) -> i64 {
        match self {
            Self::None => 0,
            Self::Ahead => Self::HOUR_MS,
            Self::Behind => -Self::HOUR_MS,
        }
    }

    /// Returns one of the two others.
    fn other(self, random: &mut SplitMix64) -> Self {
        let others: Vec<Self> = Self::ALL.into_iter().filter(|it| *it != self).collect();
        others[random.index(others.len())]
    }
}

/// A node of a chaos test.
#[derive(Debug)]
pub struct Node {
    serve: Serve,
    server: Server,
    clock: FakeClock,
    offset: Offset,
    /// The offset at the start: the node's ids follow it, whatever happens to the wall clock later.
    started_with: Offset,
    paused_until: Option<Instant>,
    steps_seen: usize,
}

/// The answers of a node to a burst of requests that waited for the end of its pause.
#[derive(Debug, Default)]
pub struct AfterPause {
    /// The ids of all answers.
    pub ids: Vec<u64>,
    /// Answers with ids.
    pub fresh: u32,
    /// Answers without ids.
    pub errors: u32,
}

impl Node {
    /// Starts a node with its own clock in `folder`, and waits until it is ready.
    ///
    /// # Panics
    ///
    /// As [`Serve::start`].
    pub fn start(folder: &Path, serve: &Serve) -> Self {
        let clock = FakeClock::new(folder, Offset::None.text());
        let serve = serve.clone().clock(&clock);
        let server = serve.start();
        let serve = serve.ports(server.http(), server.resp());
        let (offset, started_with) = (Offset::None, Offset::None);
        Self { serve, server, clock, offset, started_with, paused_until: None, steps_seen: 0 }
    }

    /// Its process.
    pub const fn server(&self) -> &Server {
        &self.server
    }

    /// As [`Server::first_id`].
    ///
    /// # Panics
    ///
    /// As [`Server::first_id`].
    pub fn first_id(&mut self) -> (Duration, u64) {
        self.server.first_id()
    }

    /// Returns its log if it has ended by itself.
    ///
    /// # Panics
    ///
    /// If the system reports an error.
    pub fn last_words(&mut self) -> Option<String> {
        self.server.exit_status().map(|_| self.server.log())
    }

    /// Its addresses for HTTP and RESP, which restarts do not change.
    pub const fn addresses(&self) -> (SocketAddrV4, SocketAddrV4) {
        (self.server.http(), self.server.resp())
    }

    /// Kills the server and starts it again with extra arguments and a clock offset. Returns before it is
    /// ready.
    ///
    /// # Panics
    ///
    /// If the process cannot be ended or started.
    pub fn kill_and_restart(&mut self, args: &[&str], offset: Offset) {
        self.server.kill();
        self.steps_seen += steps_seen(&self.server);
        self.paused_until = None;
        self.clock.step(offset.text());
        (self.offset, self.started_with) = (offset, offset);
        self.server = self.serve.clone().args(args).spawn();
    }

    /// Steps its wall clock by an hour or two.
    ///
    /// # Panics
    ///
    /// If its file cannot be written.
    pub fn step_clock(&mut self, random: &mut SplitMix64) {
        self.step_to(self.offset.other(random));
    }

    /// Steps its wall clock to an offset.
    ///
    /// # Panics
    ///
    /// If its file cannot be written.
    pub fn step_to(&mut self, offset: Offset) {
        self.offset = offset;
        self.clock.step(offset.text());
    }

    /// Returns how often its log says that the wall clock was stepped.
    pub fn steps_seen(&self) -> usize {
        self.steps_seen + steps_seen(&self.server)
    }

    /// Pauses it for this long.
    ///
    /// # Panics
    ///
    /// If it does not stop.
    pub fn pause(&mut self, time: Duration) {
        self.server.pause();
        self.paused_until = Some(time::now() + time);
    }

    /// Whether it is paused.
    pub const fn is_paused(&self) -> bool {
        self.paused_until.is_some()
    }

    /// Returns whether its pause has lasted as long as it should.
    pub fn is_due(&self) -> bool {
        self.paused_until.is_some_and(|until| until <= time::now())
    }

    /// Resumes it with a burst of requests waiting for it. Each answer must be an error or new ids: none with
    /// a timestamp from before the pause, and none under a lease that another node has taken.
    ///
    /// # Panics
    ///
    /// If an answer is neither.
    pub fn resume(&mut self) -> AfterPause {
        const BURST: usize = 20;
        self.paused_until = None;
        let mut client = self.server.client();
        client.write(&command(&["ID.NEXT", "default", "COUNT", "1000"]).repeat(BURST)).unwrap();
        let resumed_unix_ms = time::unix_ms();
        let not_before = resumed_unix_ms.saturating_add_signed(self.started_with.ms());
        self.server.resume();
        let mut after = AfterPause::default();
        for _ in 0..BURST {
            match client.read().unwrap().ids() {
                Ok(fresh) => {
                    let made = ids::unix_ms(fresh[0]);
                    assert!(
                        made + CLOCK_SLACK_MS >= not_before,
                        "an id of {made} after a pause until {not_before}"
                    );
                    after.ids.extend(fresh);
                    after.fresh += 1;
                }
                Err(error) => {
                    assert!(error.starts_with("NOTREADY "), "{error}");
                    after.errors += 1;
                }
            }
        }
        after
    }

    /// Stops it cleanly.
    ///
    /// # Panics
    ///
    /// If it does not stop.
    pub fn stop(self) {
        self.server.stop();
    }
}

fn steps_seen(server: &Server) -> usize {
    server.log().matches("the wall clock was stepped").count()
}
