//! The servers, and the faults that strike them.

use std::net::SocketAddrV4;
use std::path::Path;
use std::thread;
use std::time::Duration;

use snowmint_test_servers::snowmint::chaos::{Node, Offset};
use snowmint_test_servers::snowmint::{Ids, Serve, SplitMix64, server};

use super::{Plan, SERVERS};

/// Time limit for the service to answer after a restart: shorter than a hang, longer than a busy machine
/// takes.
const FIRST_ID_WITHIN: Duration = Duration::from_secs(20);

pub(crate) struct World<'a> {
    plan: &'a Plan,
    nodes: Vec<Node>,
    /// The server that is paused in the middle of a write: until it resumes, no process can write to the
    /// SQLite file.
    holds_lock: Option<usize>,
    faults: Faults,
    /// Ids from the faults themselves; the clients keep their own.
    ids: Ids,
}

/// The faults so far, and their results.
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
        let serve = Serve::new(folder).args(["--layout", plan.layout, "--window", &window]);
        let nodes = (0..SERVERS).map(|_| Node::start(folder, &serve)).collect();
        Self { plan, nodes, holds_lock: None, faults: Faults::default(), ids: Ids::new() }
    }

    pub(crate) fn addresses(&self) -> Vec<(SocketAddrV4, SocketAddrV4)> {
        self.nodes.iter().map(Node::addresses).collect()
    }

    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    pub(crate) fn had_enough(&self) -> bool {
        let Faults { first_ids, pauses, steps, .. } = &self.faults;
        let restarts = u32::try_from(first_ids.len()).unwrap();
        *[restarts, *pauses, *steps].iter().min().unwrap() >= self.plan.least_faults
    }

    pub(crate) fn one_more_fault(&mut self, random: &mut SplitMix64) {
        thread::sleep(self.plan.between_faults.mul_f64(0.2 + 0.8 * random.fraction()));
        self.resume_those_due();
        let running: Vec<usize> = (0..SERVERS).filter(|&i| !self.nodes[i].is_paused()).collect();
        // Two of four keep running, so that a server is always available to clients.
        match random.within(0, 9) {
            0..=3 if running.len() > 1 && self.holds_lock.is_none() => {
                self.kill_and_restart(running[random.index(running.len())]);
            }
            4..=6 if running.len() > 2 => {
                let longer = Duration::from_millis(random.within(200, 1500));
                self.pause(running[random.index(running.len())], self.plan.window + longer);
            }
            _ => {
                let i = random.index(SERVERS);
                self.nodes[i].step_clock(random);
                self.faults.steps += 1;
            }
        }
    }

    fn kill_and_restart(&mut self, i: usize) {
        let node = &mut self.nodes[i];
        let name = format!("node-{i}-start-{}", self.faults.first_ids.len());
        let args = ["--holder", &name];
        // Another test covers wrong clocks at the start.
        node.kill_and_restart(if self.plan.new_names { &args } else { &[] }, Offset::None);
        let (after, id) = node.first_id();
        self.ids.add(&[id]);
        assert!(
            after < FIRST_ID_WITHIN,
            "the first id came {after:?} after the start:\n{}",
            node.server().log()
        );
        self.faults.first_ids.push(after);
    }

    fn pause(&mut self, i: usize, time: Duration) {
        let node = &mut self.nodes[i];
        node.pause(time);
        self.faults.pauses += 1;
        if server::holds_write_lock(node.server().pid()) {
            self.holds_lock = Some(i);
            self.faults.pauses_with_lock += 1;
        }
    }

    fn resume_those_due(&mut self) {
        for i in 0..SERVERS {
            if self.nodes[i].is_due() {
                self.resume(i);
            }
        }
    }

    fn resume(&mut self, i: usize) {
        let after = self.nodes[i].resume();
        self.holds_lock = self.holds_lock.filter(|it| *it != i);
        self.ids.add(&after.ids);
        self.faults.fresh_after_pause += after.fresh;
        self.faults.errors_after_pause += after.errors;
    }

    /// Resumes all servers and stops them in order.
    pub(crate) fn end(mut self) -> (Faults, Ids) {
        for i in 0..SERVERS {
            if self.nodes[i].is_paused() {
                self.resume(i);
            }
        }
        self.faults.steps_seen = self.nodes.iter().map(Node::steps_seen).sum();
        assert!(self.faults.steps_seen > 0, "no server saw its clock jump: libfaketime does not work here");
        self.nodes.into_iter().for_each(Node::stop);
        (self.faults, self.ids)
    }
}
