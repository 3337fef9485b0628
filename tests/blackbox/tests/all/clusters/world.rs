//! Six nodes and the coordinators behind them, and the faults that strike both.
//! Every fault heals by itself after a while. The test does not wait for that, so faults overlap.

use std::fs;
use std::net::SocketAddrV4;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use snowmint_test_servers::snowmint::chaos::{AfterPause, Drawn, Node, Offset};
use snowmint_test_servers::snowmint::{Ids, Serve, Server, SplitMix64};
use snowmint_test_servers::time;

use super::Plan;
use super::coordinators::{Coordinators, Links, Trouble};
use super::faults::Faults;
use super::switchovers::{Replicated, Switch, Switched};

const NODES: usize = 6;
/// Interval at which due actions are carried out.
const STEP: Duration = Duration::from_millis(10);
/// Number of workers that no node can take, so that there are as many workers as nodes. A node that starts
/// must wait for a worker that another had a moment ago, and may think it still has.
const TAKEN_FOR_THE_DAY: usize = 2;
/// Minimum time between two changes of the primary.
const SETTLING: Duration = Duration::from_millis(700);
/// Limit of numbers that a node reserves: low, so that the newest writes always include a reservation.
const MOST_NUMBERS: u64 = 20_000;
/// After all faults end, every node must serve within this time, however slow the machine is.
const WELL_WITHIN: Duration = Duration::from_mins(2);

pub(crate) struct World<'a> {
    plan: &'a Plan,
    coordinators: Coordinators,
    /// Which coordinators are down or paused, and until when.
    away: Vec<Option<(Absence, Instant)>>,
    /// No fault strikes the coordinators until this time.
    rest_until: Instant,
    members: Vec<Member>,
    faults: Faults,
    /// Ids from the faults themselves; the clients keep their own.
    ids: Ids,
    numbers: Ids,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absence {
    Killed,
    Paused,
    /// Another server is the primary now.
    Replaced,
}

/// A node and its connection to the store.
struct Member {
    node: Node,
    links: Links,
    trouble: Option<(Trouble, Instant)>,
    /// Whether it has ended by itself since its start.
    ended: bool,
    /// Whether it has made an id since its start.
    serves: bool,
    started: Instant,
    /// The offset of its clock at the start.
    offset: Offset,
}

impl<'a> World<'a> {
    pub(crate) fn start(folder: &Path, plan: &'a Plan) -> Self {
        let coordinators = Coordinators::start(plan.store);
        let window = format!("{}ms", plan.window.as_millis());
        take_for_the_day(folder, &coordinators, plan.layout);
        let member = |nth: usize| {
            let links = Links::to(&coordinators);
            let first = format!("node-{nth}-start-0");
            let serve = Serve::new(folder).args(["--layout", plan.layout, "--window", &window]);
            let serve = serve.args(["--store", links.url()]).env("SNOWMINT_HOLDER", first);
            let serve = plan.load.numbers.iter().fold(serve, |serve, name| {
                let file = folder.join("namespaces.toml");
                fs::write(
                    &file,
                    format!("[namespaces.{name}]\nscheme = \"segment\"\nsize_max = {MOST_NUMBERS}\n"),
                )
                .unwrap();
                serve.args([Path::new("--namespaces-file"), &file])
            });
            let node = Node::start(folder, &serve);
            Member {
                node,
                links,
                trouble: None,
                ended: false,
                serves: true,
                started: time::now(),
                offset: Offset::None,
            }
        };
        let members = (0..NODES).map(member).collect();
        let away = coordinators.servers().iter().map(|_| None).collect();
        let (mut faults, ids) = (Faults::default(), Ids::new());
        let switches = coordinators.replicated().map_or(&[][..], Replicated::switches);
        faults.switches = switches.iter().map(|switch| (*switch, 0)).collect();
        Self { plan, coordinators, away, rest_until: time::now(), members, faults, ids, numbers: Ids::new() }
    }

    pub(crate) fn addresses(&self) -> Vec<(SocketAddrV4, SocketAddrV4)> {
        self.members.iter().map(|member| member.node.addresses()).collect()
    }

    /// Lets faults strike until the plan is fulfilled, then heals everything and waits until every node
    /// serves.
    pub(crate) fn run(&mut self, random: &mut SplitMix64, drawn: &Drawn) {
        let began = time::now();
        let mut next_fault = began;
        let Plan { length, ids, least_faults, numbers, .. } = *self.plan;
        let enough = |faults: &Faults| {
            let drawn_enough = drawn.ids() >= ids && drawn.numbers() >= numbers;
            drawn_enough && faults.least() >= least_faults && faults.least_switches() >= least_faults
        };
        // The few steps of a short run may all strike nodes that are killed before they look.
        let seen = |members: &[Member]| members.iter().any(|member| member.node.steps_seen() > 0);
        while began.elapsed() < length || !enough(&self.faults) || !seen(&self.members) {
            let state = (drawn.ids(), drawn.numbers(), &self.faults);
            assert!(began.elapsed() < length * 8 + WELL_WITHIN, "ids and faults so far: {state:?}");
            thread::sleep(STEP);
            self.see_to_what_is_due(time::now());
            if next_fault <= time::now() {
                self.one_more_fault(random);
                next_fault = time::now() + self.plan.between_faults.mul_f64(0.3 + 1.4 * random.fraction());
            }
        }
        self.heal();
    }

    fn one_more_fault(&mut self, random: &mut SplitMix64) {
        let well: Vec<usize> = (0..NODES).filter(|&i| self.members[i].is_well()).collect();
        let stuck = (0..NODES).find(|&i| self.members[i].is_stuck(self.plan.window));
        let any = |random: &mut SplitMix64| well[random.index(well.len())];
        // Half of the nodes are left to serve, if the coordinators are up.
        let kinds = if self.coordinators.replicated().is_some() { 17 } else { 11 };
        match random.within(0, kinds) {
            0..=2 if stuck.is_some() || well.len() > NODES / 2 => {
                let i = stuck.unwrap_or_else(|| any(random));
                self.kill_and_restart(i, random);
            }
            3..=4 if well.len() > NODES / 2 => {
                let longer = Duration::from_millis(random.within(200, 1500));
                self.members[any(random)].node.pause(self.plan.window + longer);
                self.faults.node_pauses += 1;
            }
            5..=6 if well.len() > NODES / 2 => {
                let (i, trouble) = (any(random), Trouble::ALL[random.index(Trouble::ALL.len())]);
                self.members[i].links.strike(trouble);
                self.members[i].trouble = Some((trouble, self.in_windows(0.1, 1.6, random)));
                *self.faults.troubles.entry(trouble).or_default() += 1;
            }
            // Changes of the primary alternate with other faults, which have more kinds.
            7..=9 if self.faults.least_of_coordinators() > self.faults.least_switches() => {
                self.change_primary(random);
            }
            7..=9 => self.hit_coordinator(random),
            12..=17 => self.change_primary(random),
            _ => self.step_clock(random),
        }
    }

    /// Returns the instant that is a number of windows from now.
    fn in_windows(&self, least: f64, most: f64, random: &mut SplitMix64) -> Instant {
        time::now() + self.plan.window.mul_f64(least + (most - least) * random.fraction())
    }

    fn hit_coordinator(&mut self, random: &mut SplitMix64) {
        let present: Vec<usize> = (0..self.away.len()).filter(|&i| self.away[i].is_none()).collect();
        let majority_stays = present.len() > 1 && present.len() > self.away.len() / 2 + 1;
        // Without a majority, the store is down for every node: rarely, and never for long.
        let outage = !majority_stays;
        let replicated = self.coordinators.replicated();
        // A server that comes back as a replica needs its primary.
        let one_is_away = present.len() < self.away.len();
        let unwanted = if replicated.is_some() { one_is_away } else { outage && random.within(0, 2) > 0 };
        if present.is_empty() || time::now() < self.rest_until || unwanted {
            return;
        }
        let leader = self.coordinators.leader().filter(|it| present.contains(it) && random.within(0, 1) == 0);
        let i = leader.unwrap_or_else(|| present[random.index(present.len())]);
        // While the primary changes, no other fault may last long.
        let most = if replicated.is_some() {
            0.6
        } else if outage {
            1.5
        } else {
            2.5
        };
        let until = self.in_windows(0.2, most, random);
        let server = self.coordinators.servers()[i];
        let rather_killed = self.faults.coordinator_kills.cmp(&self.faults.coordinator_pauses);
        let absence = if rather_killed.then(random.within(0, 1).cmp(&1)).is_lt() {
            server.kill9();
            self.faults.coordinator_kills += 1;
            Absence::Killed
        } else {
            server.pause();
            self.faults.coordinator_pauses += 1;
            Absence::Paused
        };
        self.away[i] = Some((absence, until));
        self.faults.leaders_hit += u32::from(leader.is_some());
        self.faults.outages += u32::from(outage);
        if outage {
            self.rest_until = until + if replicated.is_some() { SETTLING } else { self.plan.window };
        }
    }

    /// Used while all servers are up: the kind of switch with the lowest count.
    fn change_primary(&mut self, random: &mut SplitMix64) {
        let Some(replicated) = self.coordinators.replicated() else { return };
        if self.away.iter().any(Option::is_some) || time::now() < self.rest_until {
            return;
        }
        let least = self.faults.least_switches();
        let rare: Vec<Switch> =
            self.faults.switches.iter().filter(|(_, count)| **count == least).map(|(it, _)| *it).collect();
        let switch = rare[random.index(rare.len())];
        match replicated.switch(switch, random) {
            Switched::PutOff => {
                self.faults.put_off += 1;
                self.rest_until = time::now() + SETTLING;
                return;
            }
            Switched::Done => {}
            Switched::WithoutOld(old) => {
                let until = self.in_windows(0.0, 0.4, random);
                self.away[old] = Some((Absence::Replaced, until));
            }
        }
        *self.faults.switches.entry(switch).or_default() += 1;
        self.rest_until = time::now() + SETTLING;
    }

    /// A new name at each start, like a pod: the node finds no record of its own, and takes a worker that
    /// another had.
    fn kill_and_restart(&mut self, i: usize, random: &mut SplitMix64) {
        let offset = match random.within(0, 9) {
            0 => Offset::Behind,
            // Its store refuses it.
            1 => Offset::Ahead,
            _ => Offset::None,
        };
        self.faults.starts_ahead += u32::from(offset == Offset::Ahead);
        self.faults.starts_behind += u32::from(offset == Offset::Behind);
        self.faults.node_kills += 1;
        let name = format!("node-{i}-start-{}", self.faults.node_kills);
        let member = &mut self.members[i];
        member.node.kill_and_restart(&["--holder", &name], offset);
        (member.ended, member.serves, member.started, member.offset) = (false, false, time::now(), offset);
    }

    /// Not while a node starts: it would be unknown which clock its ids follow.
    fn step_clock(&mut self, random: &mut SplitMix64) {
        let started: Vec<usize> = (0..NODES).filter(|&i| self.members[i].serves).collect();
        if !started.is_empty() {
            self.members[started[random.index(started.len())]].node.step_clock(random);
            self.faults.clock_steps += 1;
        }
    }

    fn see_to_what_is_due(&mut self, now: Instant) {
        let replicated = self.coordinators.replicated();
        for (i, (server, away)) in self.coordinators.servers().into_iter().zip(&mut self.away).enumerate() {
            match away {
                Some((absence, until)) if *until <= now => {
                    match (absence, replicated) {
                        (Absence::Killed, Some(replicated)) => {
                            server.restart();
                            replicated.returned(i);
                        }
                        (Absence::Replaced, Some(replicated)) => replicated.rejoin(i),
                        (Absence::Paused, _) => server.resume(),
                        _ => server.restart_without_waiting(),
                    }
                    *away = None;
                }
                _ => {}
            }
        }
        for member in &mut self.members {
            if let Some((trouble, until)) = member.trouble
                && until <= now
            {
                member.links.heal(trouble);
                member.trouble = None;
            }
            if member.node.is_due() {
                let AfterPause { ids, fresh, errors } = member.node.resume();
                self.ids.add(&ids);
                self.faults.fresh_after_pause += fresh;
                self.faults.errors_after_pause += errors;
            }
            if let Some(log) = member.node.last_words() {
                // A node whose clock is ahead of the store's refuses to start; it is started again when all
                // is healed.
                assert!(log.contains("ahead of the store's"), "a node ended by itself:\n{log}");
                member.ended = true;
            } else if !member.serves
                && let Some((after, id)) = member.node.server().ask_once()
            {
                member.serves = true;
                self.ids.add(&[id]);
                self.faults.first_ids.push(after);
            }
        }
    }

    /// Ends every fault, sets every clock right, and waits until each node serves without help, but for a
    /// restart where the product asks for one.
    fn heal(&mut self) {
        let any_time = time::now() + Duration::from_hours(1);
        self.see_to_what_is_due(any_time);
        for i in 0..NODES {
            if self.members[i].node.is_paused() {
                let after = self.members[i].node.resume();
                self.ids.add(&after.ids);
            }
            if self.members[i].offset != Offset::None || self.members[i].ended {
                let name = format!("node-{i}-put-right");
                let member = &mut self.members[i];
                member.node.kill_and_restart(&["--holder", &name], Offset::None);
                (member.ended, member.serves) = (false, false);
            }
        }
        for server in self.coordinators.servers() {
            server.wait_ready();
        }
        let healed = time::now();
        for (i, member) in self.members.iter_mut().enumerate() {
            let mut put_right = false;
            let (_, id) = time::eventually("a node serves after all is well again", WELL_WITHIN, || {
                let ended = member.node.last_words();
                assert!(ended.is_none(), "a node ended by itself after all was well again:\n{ended:?}");
                let served = member.node.server().ask_once();
                if served.is_none() && !put_right && refuses_the_right_primary(member.node.server()) {
                    let name = format!("node-{i}-put-right");
                    member.node.kill_and_restart(&["--holder", &name], Offset::None);
                    self.faults.refused_successors += 1;
                    put_right = true;
                }
                served
            });
            self.ids.add(&[id]);
            if let Some(name) = self.plan.load.numbers {
                let number =
                    time::eventually("a node gives numbers after all is well again", WELL_WITHIN, || {
                        member.node.server().ask_once_of(name)
                    });
                self.numbers.add(&[number.1]);
            }
        }
        self.faults.well_after = healed.elapsed();
    }

    /// Stops the nodes cleanly.
    pub(crate) fn end(mut self) -> (Faults, Ids, Ids) {
        self.faults.steps_seen = self.members.iter().map(|member| member.node.steps_seen()).sum();
        assert!(self.faults.steps_seen > 0, "no node saw its clock jump: libfaketime does not work here");
        self.members.into_iter().for_each(|member| member.node.stop());
        (self.faults, self.ids, self.numbers)
    }
}

/// Returns whether a node stays with a primary that is gone. One that was paused, or cut off, while all
/// servers crashed never saw that the promoted one had everything, and says that it has to be restarted if
/// that is so.
fn refuses_the_right_primary(node: &Server) -> bool {
    let log = node.log();
    let last = log.lines().rev().find(|it| it.contains("redis://")).unwrap_or_default();
    last.contains("that does not continue") && last.contains("if it is the right one, restart the nodes")
}

/// Writes grants of a day for nodes that do not exist.
fn take_for_the_day(folder: &Path, coordinators: &Coordinators, layout: &str) {
    let links = Links::to(coordinators);
    for nth in 0..TAKEN_FOR_THE_DAY {
        let name = format!("gone-{nth}");
        let serve = Serve::new(folder).args(["--store", links.url(), "--layout", layout]);
        let mut server = serve.args(["--window", "24h", "--holder", &name]).start();
        server.kill();
    }
}

impl Member {
    /// Returns whether no fault strikes it now.
    fn is_well(&self) -> bool {
        self.serves && self.trouble.is_none() && !self.node.is_paused()
    }

    /// Returns whether it had enough time to serve and does not. A node with a wrong clock may never serve.
    fn is_stuck(&self, window: Duration) -> bool {
        !self.serves && self.started.elapsed() > window * 2
    }
}
