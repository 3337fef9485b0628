//! Load over many connections from one thread: as fast as answers come (closed loop), or at a fixed rate
//! (open loop).
//!
//! In the open loop, the time of a request begins when it was due, not when it was sent: if a server stalls,
//! later requests wait too, and each of them counts.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;

use crate::server::{Outcome, PATIENCE};
use crate::wire::{Dialogue, Wire};

/// Bytes to read at once.
const READ: usize = 256 * 1024;

/// The results of a load.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The number of answered requests.
    pub answered: u64,
    /// The total time.
    pub elapsed: Duration,
    /// Time from the due time of each request to its answer, in milliseconds. Empty in the closed loop.
    pub ms: Vec<f64>,
}

impl Loaded {
    /// Returns the answers per second.
    pub fn per_second(&self) -> f64 {
        self.answered as f64 / self.elapsed.as_secs_f64()
    }
}

/// The connections of a load.
#[derive(Debug)]
pub struct Load {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    dialogue: Dialogue,
    out: Vec<u8>,
    /// Number of bytes of the output that were sent.
    sent: usize,
    /// An incomplete response.
    part: Vec<u8>,
    /// The due time of each unanswered request.
    due: VecDeque<Instant>,
    unanswered: usize,
}

impl Load {
    /// Connects. Sends `first` on each connection, such as an `AUTH`, and reads its answer before anything
    /// else.
    ///
    /// # Errors
    ///
    /// The server does not answer.
    pub fn connect(address: SocketAddr, wire: &Wire, connections: usize, first: &[u8]) -> Outcome<Self> {
        // Makes timers of the open loop fire on time, not up to 50 µs late.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let connect = |nth: usize| -> Outcome<Connection> {
            let mut stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            if !first.is_empty() {
                stream.write_all(first)?;
                let mut answer = [0; 512];
                let read = stream.read(&mut answer)?;
                if !answer[..read].starts_with(b"+OK") {
                    return Err(String::from_utf8_lossy(&answer[..read]).into());
                }
            }
            stream.write_all(&wire.greeting())?;
            stream.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(nth as u64);
            epoll::add(&epoll, &stream, data, epoll::EventFlags::IN)?;
            Ok(Connection {
                stream,
                dialogue: Dialogue::new(wire.clone()),
                out: Vec::new(),
                sent: 0,
                part: Vec::new(),
                due: VecDeque::new(),
                unanswered: 0,
            })
        };
        let connections = (0..connections).map(connect).collect::<Outcome<Vec<_>>>()?;
        Ok(Self { epoll, connections, scratch: vec![0; READ] })
    }

    /// Keeps `pipeline` requests in flight on each connection: the next batch is sent when all are answered.
    ///
    /// # Errors
    ///
    /// A request fails, or the server stops answering.
    pub fn closed(&mut self, pipeline: usize, time: Duration) -> Outcome<Loaded> {
        let began = Instant::now();
        let mut answered = 0;
        for connection in &mut self.connections {
            connection.ask(pipeline)?;
        }
        let mut open = self.connections.len();
        while open > 0 {
            for nth in self.wait(Some(PATIENCE))? {
                let connection = &mut self.connections[nth];
                answered += connection.read(&mut self.scratch)? as u64;
                if connection.unanswered == 0 {
                    if began.elapsed() < time {
                        connection.ask(pipeline)?;
                    } else {
                        open -= 1;
                    }
                }
            }
        }
        Ok(Loaded { answered, elapsed: began.elapsed(), ms: Vec::new() })
    }

    /// Sends `rate` requests per second, each on the next connection, however long the answers take.
    ///
    /// # Errors
    ///
    /// As [`closed`](Self::closed).
    pub fn open(&mut self, rate: u32, time: Duration) -> Outcome<Loaded> {
        let (gap, began) = (Duration::from_secs(1) / rate, Instant::now());
        let mut loaded = Loaded::default();
        let (mut next, mut turn, mut unanswered) = (began, 0, 0);
        while next < began + time || unanswered > 0 {
            while next <= Instant::now() && next < began + time {
                let connection = &mut self.connections[turn];
                connection.due.push_back(next);
                connection.ask(1)?;
                (next, unanswered) = (next + gap, unanswered + 1);
                turn = (turn + 1) % self.connections.len();
            }
            let until =
                if next < began + time { next.saturating_duration_since(Instant::now()) } else { PATIENCE };
            for nth in self.wait(Some(until))? {
                let connection = &mut self.connections[nth];
                let answers = connection.read(&mut self.scratch)?;
                let now = Instant::now();
                for due in connection.due.drain(..answers) {
                    loaded.ms.push((now - due).as_secs_f64() * 1e3);
                }
                unanswered -= answers;
            }
            if next >= began + time && began.elapsed() > time + PATIENCE {
                return Err(format!("{unanswered} requests have no answer").into());
            }
        }
        (loaded.answered, loaded.elapsed) = (loaded.ms.len() as u64, began.elapsed());
        Ok(loaded)
    }

    /// Waits for answers. Returns the connections that have some.
    fn wait(&mut self, within: Option<Duration>) -> Outcome<Vec<usize>> {
        let within = within.map(Timespec::try_from).transpose()?;
        let mut events = Vec::with_capacity(64);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), within.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(events.iter().map(|event: &epoll::Event| event.data.u64() as usize).collect())
    }
}

impl Connection {
    fn ask(&mut self, requests: usize) -> Outcome<()> {
        for _ in 0..requests {
            self.dialogue.ask(&mut self.out);
        }
        self.unanswered += requests;
        self.send()
    }

    /// Sends as much as possible without blocking. Requests are short, so the rest follows with the next
    /// answers at the latest.
    fn send(&mut self) -> Outcome<()> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads what has arrived. Returns the number of answers.
    fn read(&mut self, scratch: &mut [u8]) -> Outcome<usize> {
        let read = match self.stream.read(scratch) {
            Ok(0) => return Err("the server closed a connection".into()),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        let answers = if self.part.is_empty() {
            let (done, answers) = self.dialogue.read(&scratch[..read], &mut self.out)?;
            self.part.extend_from_slice(&scratch[done..read]);
            answers
        } else {
            self.part.extend_from_slice(&scratch[..read]);
            let (done, answers) = self.dialogue.read(&self.part, &mut self.out)?;
            self.part.drain(..done);
            answers
        };
        self.unanswered = self.unanswered.checked_sub(answers).ok_or("more answers than requests")?;
        self.send()?;
        Ok(answers)
    }
}
