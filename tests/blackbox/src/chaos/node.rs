//! A node that is killed, paused and started again on the same ports, with a clock that jumps.
//! What must hold after a pause whatever the store does is checked here.

use std::net::SocketAddrV4;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::resp::command;
use crate::{Dice, FakeClock, Serve, Server, ids, time};

/// How far an id may be from the real time: readings on two sides, and what the servers' clocks were drawn aside.
pub const CLOCK_SLACK_MS: u64 = 100;

/// How a node's wall clock stands to the real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// Right.
    None,
    /// An hour ahead.
    Ahead,
    /// An hour behind.
    Behind,
}

impl Offset {
    const ALL: [Self; 3] = [Self::None, Self::Ahead, Self::Behind];
    const HOUR_MS: i64 = 3_600_000;

    /// As libfaketime has it.
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

    /// One of the two others.
    fn other(self, dice: &mut Dice) -> Self {
        let others: Vec<Self> = Self::ALL.into_iter().filter(|it| *it != self).collect();
        others[dice.index(others.len())]
    }
}

/// A node of a chaos test.
#[derive(Debug)]
pub struct Node {
    serve: Serve,
    server: Server,
    clock: FakeClock,
    offset: Offset,
    /// The offset at the start: the node's ids go by it, whatever is done to the wall clock later.
    started_with: Offset,
    paused_until: Option<Instant>,
    steps_seen: usize,
}

/// What a node answered to a burst of requests that waited for the end of its pause.
#[derive(Debug, Default)]
pub struct AfterPause {
    /// The ids of all answers.
    pub ids: Vec<u64>,
    /// Answers with ids.
    pub fresh: u32,
    /// Answers that there are none now.
    pub errors: u32,
}

impl Node {
    /// Starts a node with a clock of its own in `folder`, and waits until it is ready.
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

    /// What it wrote, if it has ended by itself.
    ///
    /// # Panics
    ///
    /// If the system does not know.
    pub fn last_words(&mut self) -> Option<String> {
        self.server.exit_status().map(|_| self.server.log())
    }

    /// Where it speaks HTTP and RESP, before and after each restart.
    pub const fn addresses(&self) -> (SocketAddrV4, SocketAddrV4) {
        (self.server.http(), self.server.resp())
    }

    /// Kills it and starts it again with more arguments, its clock set to an offset; does not wait for it.
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
    pub fn step_clock(&mut self, dice: &mut Dice) {
        self.step_to(self.offset.other(dice));
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

    /// How often its log says that the wall clock was stepped.
    pub fn steps_seen(&self) -> usize {
        self.steps_seen + steps_seen(&self.server)
    }

    /// Stops it for so long.
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

    /// Whether it is paused and has been for as long as it should.
    pub fn is_due(&self) -> bool {
        self.paused_until.is_some_and(|until| until <= time::now())
    }

    /// Lets it go on, with a burst of requests before it from the first instant: each answer must be an error or ids
    /// of now, never any from before the pause, nor under a lease that another has by now.
    ///
    /// # Panics
    ///
    /// If it is not so.
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

    /// Ends it in good order.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn stop(self) {
        self.server.stop();
    }
}

fn steps_seen(server: &Server) -> usize {
    server.log().matches("the wall clock was stepped").count()
}
