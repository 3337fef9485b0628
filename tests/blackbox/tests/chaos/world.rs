//! The servers, and what is done to them.

use std::net::SocketAddrV4;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use snowmint_blackbox::resp::command;
use snowmint_blackbox::{Dice, FakeClock, Serve, Server, ids, proc, time};

use crate::client::Harvest;
use crate::{CLOCK_SLACK_MS, Plan, SERVERS};

/// What the issue promises: the service answers again so soon after a restart.
const FIRST_ID_WITHIN: Duration = Duration::from_secs(2);
const OFFSETS: [&str; 3] = ["+0", "+1h", "-1h"];

pub(crate) struct World<'a> {
    plan: &'a Plan,
    nodes: Vec<Node>,
    faults: Faults,
    harvest: Harvest,
}

struct Node {
    serve: Serve,
    server: Server,
    clock: FakeClock,
    offset: usize,
    paused: Option<Pause>,
}

struct Pause {
    until: Instant,
    /// It stands in the middle of a write: until it goes on, no process can write to an SQLite file.
    holds_lock: bool,
}

/// What was done so far, and what came of it.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) first_ids: Vec<Duration>,
    pub(crate) pauses: u32,
    pub(crate) pauses_with_lock: u32,
    pub(crate) fresh_after_pause: u32,
    pub(crate) errors_after_pause: u32,
    pub(crate) steps: u32,
    pub(crate) steps_seen: usize,
}

impl<'a> World<'a> {
    pub(crate) fn start(folder: &Path, plan: &'a Plan) -> Self {
        let window = format!("{}ms", plan.window.as_millis());
        let nodes = (0..SERVERS).map(|_| {
            let clock = FakeClock::new(folder, OFFSETS[0]);
            let serve = Serve::new(folder).args(["--layout", plan.layout, "--window", &window]).clock(&clock);
            let server = serve.start();
            let serve = serve.ports(server.http(), server.resp());
            Node { serve, server, clock, offset: 0, paused: None }
        });
        let (faults, harvest) = <_>::default();
        Self { plan, nodes: nodes.collect(), faults, harvest }
    }

    pub(crate) fn addresses(&self) -> Vec<(SocketAddrV4, SocketAddrV4)> {
        self.nodes.iter().map(|node| (node.server.http(), node.server.resp())).collect()
    }

    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    pub(crate) fn had_enough(&self) -> bool {
        let Faults { first_ids, pauses, steps, .. } = &self.faults;
        let restarts = u32::try_from(first_ids.len()).unwrap();
        *[restarts, *pauses, *steps].iter().min().unwrap() >= self.plan.least_faults
    }

    pub(crate) fn one_more_fault(&mut self, dice: &mut Dice) {
        thread::sleep(self.plan.between_faults.mul_f64(0.2 + 0.8 * dice.fraction()));
        self.resume_those_due();
        let running: Vec<usize> = (0..SERVERS).filter(|&i| self.nodes[i].paused.is_none()).collect();
        let locked = self.nodes.iter().any(|node| node.paused.as_ref().is_some_and(|pause| pause.holds_lock));
        // Two of four keep running, so that clients always find one.
        match dice.within(0, 9) {
            0..=3 if running.len() > 1 && !locked => {
                self.kill_and_restart(running[dice.index(running.len())]);
            }
            4..=6 if running.len() > 2 => {
                let longer = Duration::from_millis(dice.within(200, 1500));
                self.pause(running[dice.index(running.len())], self.plan.window + longer);
            }
            _ => self.step_clock(dice.index(SERVERS), dice),
        }
    }

    fn kill_and_restart(&mut self, i: usize) {
        let node = &mut self.nodes[i];
        node.server.kill();
        self.faults.steps_seen += steps_seen(&node.server);
        // A clock that is wrong at the start is another test's matter.
        node.clock.step(OFFSETS[0]);
        node.offset = 0;
        node.server = if self.plan.new_names {
            let name = format!("node-{i}-start-{}", self.faults.first_ids.len());
            node.serve.clone().args(["--holder", &name]).spawn()
        } else {
            node.serve.spawn()
        };
        let (after, id) = node.server.first_id();
        self.harvest.ids.add(&[id]);
        assert!(
            after < FIRST_ID_WITHIN,
            "the first id came {after:?} after the start:\n{}",
            node.server.log()
        );
        self.faults.first_ids.push(after);
    }

    fn pause(&mut self, i: usize, time: Duration) {
        let node = &mut self.nodes[i];
        node.server.pause();
        let holds_lock = proc::holds_write_lock(node.server.pid());
        node.paused = Some(Pause { until: time::now() + time, holds_lock });
        self.faults.pauses += 1;
        self.faults.pauses_with_lock += u32::from(holds_lock);
    }

    fn step_clock(&mut self, i: usize, dice: &mut Dice) {
        let node = &mut self.nodes[i];
        node.offset = (node.offset + 1 + dice.index(OFFSETS.len() - 1)) % OFFSETS.len();
        node.clock.step(OFFSETS[node.offset]);
        self.faults.steps += 1;
    }

    fn resume_those_due(&mut self) {
        for node in &mut self.nodes {
            if node.paused.as_ref().is_some_and(|pause| pause.until <= time::now()) {
                node.paused = None;
                resume(&node.server, &mut self.faults, &mut self.harvest);
            }
        }
    }

    /// Lets all go on and ends them in good order.
    pub(crate) fn end(mut self) -> (Faults, Harvest) {
        for node in self.nodes {
            if node.paused.is_some() {
                resume(&node.server, &mut self.faults, &mut self.harvest);
            }
            self.faults.steps_seen += steps_seen(&node.server);
            node.server.stop();
        }
        assert!(self.faults.steps_seen > 0, "no server saw its clock jump: libfaketime does not work here");
        (self.faults, self.harvest)
    }
}

/// Lets a paused server go on, with a burst of requests before it from the first instant: each answer must be an
/// error or ids of now, never any from before the pause, nor under a lease that another has by now.
fn resume(server: &Server, faults: &mut Faults, harvest: &mut Harvest) {
    const BURST: usize = 20;
    let mut client = server.client();
    client.write(&command(&["ID.NEXT", "default", "COUNT", "1000"]).repeat(BURST)).unwrap();
    let resumed_unix_ms = time::unix_ms();
    server.resume();
    for _ in 0..BURST {
        match client.read().unwrap().ids() {
            Ok(fresh) => {
                let made = ids::unix_ms(fresh[0]);
                assert!(
                    made + CLOCK_SLACK_MS >= resumed_unix_ms,
                    "an id of {made} after a pause until {resumed_unix_ms}"
                );
                harvest.ids.add(&fresh);
                faults.fresh_after_pause += 1;
            }
            Err(error) => {
                assert!(error.starts_with("NOTREADY "), "{error}");
                faults.errors_after_pause += 1;
            }
        }
    }
}

fn steps_seen(server: &Server) -> usize {
    server.log().matches("the wall clock was stepped").count()
}
