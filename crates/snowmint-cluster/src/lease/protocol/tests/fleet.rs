//! Goal: 1,000 nodes that start at the same instant get their leases within seconds, from a store where a list costs as much as
//! loading each record. Method: virtual time; a server that processes one call after the other, and nodes that give up a call
//! after a quarter of a window, as the driver does.
//!
//! One test shows that a fleet which lists its pool collapses there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::*;

const NODES: usize = 1000;
/// The server's time for a call, and for each record of a list, in microseconds.
const CALL_US: u64 = 250;
const RECORD_US: u64 = 40;
/// The latency from a node to the server.
const WAY_US: u64 = 300;

#[derive(Debug)]
enum Due {
    Wake,
    Served { call: u64, asked: Call },
    Answer { call: u64, input: Input },
}

struct Fleet {
    now_us: u64,
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    due: BTreeMap<u64, Due>,
    server_free_us: u64,
    records: BTreeMap<u32, (Revision, Record)>,
    revision: u64,
    nodes: Vec<Protocol>,
    pending: Vec<u64>,
    calls: Vec<u64>,
    records_read: u64,
    created: u64,
}

/// The result of a start.
#[derive(Debug)]
struct Start {
    all_within_ms: u64,
    calls: u64,
    most_calls: u64,
    records_a_node: u64,
}

impl Fleet {
    fn after(&mut self, us: u64, node: usize, due: Due) {
        self.created += 1;
        self.queue.push(Reverse((self.now_us + us, self.created, node)));
        self.due.insert(self.created, due);
    }

    /// Starts nodes over these records and runs until each of them holds a lease.
    fn start(
        records: BTreeMap<u32, (Revision, Record)>,
        small_pool: u32,
        generation: u128,
        name: impl Fn(usize) -> String,
    ) -> (Self, Start) {
        let layout: Layout = "time:41@1ms worker:10 sequence:12 epoch:2020-01-01".parse().unwrap();
        let pool = WorkerPool::new(layout, DatacenterId(0));
        let node = |number: usize| {
            let holder = Holder::new(name(number)).unwrap();
            let settings =
                Settings { pool, holder, small_pool, window_ms: 10_000, ..settings(WorkerChoice::Any) };
            Protocol::new(settings, (generation * 1000 + number as u128 + 1) << 64)
        };
        let begin_us = records.values().map(|(_, record)| record.from_unix_ms.unwrap()).max().unwrap_or(NOW);
        let mut fleet = Self {
            now_us: begin_us * 1000,
            queue: BinaryHeap::new(),
            due: BTreeMap::new(),
            server_free_us: 0,
            revision: records.len() as u64,
            records,
            nodes: (0..NODES).map(node).collect(),
            pending: vec![0; NODES],
            calls: vec![0; NODES],
            records_read: 0,
            created: 0,
        };
        for node in 0..NODES {
            fleet.after(node as u64 * 100, node, Due::Wake);
        }
        let started_us = fleet.now_us;
        let mut missing = NODES;
        while missing > 0 && fleet.now_us < started_us + 120_000_000 {
            missing -= fleet.happen();
        }
        let start = Start {
            all_within_ms: if missing > 0 { u64::MAX } else { (fleet.now_us - started_us) / 1000 },
            calls: fleet.calls.iter().sum(),
            most_calls: *fleet.calls.iter().max().unwrap(),
            records_a_node: fleet.records_read / NODES as u64,
        };
        println!("pools of up to {small_pool} listed at once, {missing} without a lease: {start:?}");
        (fleet, start)
    }

    /// Processes the next event; returns the number of nodes that were granted a lease.
    fn happen(&mut self) -> usize {
        let Reverse((at_us, id, node)) = self.queue.pop().unwrap();
        self.now_us = at_us;
        match self.due.remove(&id).unwrap() {
            Due::Wake => self.step(node, Input::Wake),
            Due::Served { call, asked } => {
                let input = self.serve(&asked);
                self.after(WAY_US, node, Due::Answer { call, input });
                0
            }
            Due::Answer { call, input } if self.pending[node] == call => {
                self.pending[node] = 0;
                self.step(node, input)
            }
            Due::Answer { .. } => 0,
        }
    }

    fn step(&mut self, node: usize, input: Input) -> usize {
        let turn = self.nodes[node].step(at(self.now_us / 1000), input);
        let granted = turn.events.iter().filter(|event| matches!(event, Event::Granted(_))).count();
        match turn.next {
            Next::Wait(ms) => self.after(ms * 1000, node, Due::Wake),
            Next::Stop => {}
            Next::Call(asked) => {
                let (calls, records) = match asked {
                    Call::Look { scope, time } => {
                        let records = self.records.range(scope.range(u32::MAX)).count() as u64;
                        self.records_read += records;
                        (1 + u64::from(time == StoreTime::Wanted), records)
                    }
                    Call::Load(_) | Call::Swap { .. } => (1, 1),
                };
                let work_us = calls * CALL_US + records * RECORD_US;
                // Without the renewals of nodes that wait for the others.
                if self.nodes[node].held().is_none() {
                    self.calls[node] += calls;
                }
                let call = self.created + 1;
                self.pending[node] = call;
                let failed = match asked {
                    Call::Look { .. } => Input::Listed(Err(Failure::Unknown)),
                    Call::Load(_) => Input::Loaded(Err(Failure::Unknown)),
                    Call::Swap { .. } => Input::Swapped(Err(Failure::Unknown)),
                };
                self.server_free_us = self.server_free_us.max(self.now_us + WAY_US) + work_us;
                self.after(self.server_free_us - self.now_us, node, Due::Served { call, asked });
                self.after(2_500_000, node, Due::Answer { call, input: failed });
            }
        }
        granted
    }

    fn serve(&mut self, asked: &Call) -> Input {
        let entry = |records: &BTreeMap<u32, (Revision, Record)>, worker: u32| {
            let (revision, record) = records.get(&worker)?;
            Some(Entry { worker: WorkerId(worker), revision: *revision, record: Some(record.clone()) })
        };
        let store_unix_ms = Some(self.now_us / 1000);
        match asked {
            Call::Look { scope, time } => {
                let inside = self.records.range(scope.range(u32::MAX)).map(|(worker, _)| *worker);
                let entries = inside.filter_map(|worker| entry(&self.records, worker)).collect();
                let store_unix_ms = store_unix_ms.filter(|_| *time == StoreTime::Wanted);
                Input::Listed(Ok(Listing { entries, store_unix_ms }))
            }
            Call::Load(worker) => Input::Loaded(Ok(entry(&self.records, worker.0))),
            Call::Swap { worker, expected, record } => {
                let at = self.records.get(&worker.0).map(|(revision, _)| *revision);
                if at.map_or(Expected::Absent, Expected::Revision) != *expected {
                    return Input::Swapped(Ok(Swapped::Conflict));
                }
                self.revision += 1;
                self.records.insert(worker.0, (Revision(self.revision), record.clone()));
                Input::Swapped(Ok(Swapped::Done(Revision(self.revision))))
            }
        }
    }

    /// The records after an orderly stop: all leases are released.
    fn given_back(mut self) -> BTreeMap<u32, (Revision, Record)> {
        let now = self.now_us / 1000;
        for (_, record) in self.records.values_mut() {
            (record.from_unix_ms, record.until_unix_ms) = (Some(now), now);
        }
        self.records
    }
}

#[test]
fn a_thousand_nodes_start_and_start_again() {
    let own = |number: usize| format!("web-{number}:8080");
    let (first, started) = Fleet::start(BTreeMap::new(), 64, 1, own);
    let workers: BTreeMap<u32, Holder> =
        first.records.iter().map(|(worker, (_, record))| (*worker, record.holder.clone())).collect();
    let (again, started_again) = Fleet::start(first.given_back(), 64, 2, own);
    for start in [started, started_again] {
        assert!(start.all_within_ms < 5_000 && start.calls <= 5 * NODES as u64, "{start:?}");
        assert!(start.most_calls <= 20 && start.records_a_node <= 50, "{start:?}");
    }
    let kept =
        again.records.iter().filter(|(worker, (_, it))| workers.get(worker) == Some(&it.holder)).count();
    assert!(kept > NODES * 3 / 4, "most have the worker that they had: {kept}");
}

/// Their records last for at most a window of 10 s. The last nodes have to find the last free workers.
#[test]
fn a_thousand_nodes_crash_and_come_back() {
    let (first, _) = Fleet::start(BTreeMap::new(), 64, 1, |number| format!("web-{number}:8080"));
    let (again, same) = Fleet::start(first.records, 64, 2, |number| format!("web-{number}:8080"));
    // With other names, like pods.
    let (_, other) = Fleet::start(again.records, 64, 3, |number| format!("pod-{number:x}-x"));
    for start in [same, other] {
        assert!(start.all_within_ms < 30_000 && start.calls < 20 * NODES as u64, "{start:?}");
    }
}

#[test]
fn a_thousand_nodes_of_one_name_start_all_the_same() {
    let (_, start) = Fleet::start(BTreeMap::new(), 64, 1, |_| "web:8080".to_owned());
    assert!(start.all_within_ms < 10_000, "{start:?}");
}

#[test]
fn a_fleet_that_lists_its_pool_collapses() {
    let (first, _) = Fleet::start(BTreeMap::new(), 64, 1, |number| format!("web-{number}"));
    let (_, start) = Fleet::start(first.given_back(), u32::MAX, 2, |number| format!("web-{number}"));
    assert!(start.all_within_ms > 30_000, "{start:?}");
}
