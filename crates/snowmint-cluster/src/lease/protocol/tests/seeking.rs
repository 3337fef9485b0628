//! Goal: in a large pool, a node finds a worker with a few looks, and its own worker after a restart. It
//! never reads the whole pool in one call, and a claim never begins before the end of the record that it saw.
//! Method: as in the parent module, in a pool of 1,024 workers whose records the test chooses.
//!
//! Goal for fleets: 1,000 nodes that start at the same instant get their leases within seconds, from a store
//! where a list costs as much as loading each record. Method: virtual time; a server that processes one call
//! after the other, and nodes that abandon a call after a quarter of a window, as the driver does.
//!
//! One test shows that a fleet which lists its pool collapses there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::*;

const WORKERS: u32 = 1024;

fn large(holder: &str, seed: u128) -> LeaseProtocol {
    let layout: Layout = "time:41@1ms worker:10 sequence:12 epoch:2020-01-01".parse().unwrap();
    let pool = WorkerPool::new(layout, DatacenterId(0));
    let holder = Holder::new(holder).unwrap();
    LeaseProtocol::new(LeaseSettings { pool, holder, ..settings(WorkerChoice::Any) }, seed << 64)
}

/// A store, and the looks at it.
#[derive(Default)]
struct Pretend {
    entries: BTreeMap<u32, WorkerEntry>,
    looks: Vec<LookScope>,
    times: usize,
}

impl Pretend {
    /// Makes a store in which other nodes hold every worker until an instant.
    fn full(until_unix_ms: u64) -> Self {
        let entries = (0..WORKERS).map(|worker| (worker, entry(worker, "other", until_unix_ms, 1)));
        Self { entries: entries.collect(), ..Self::default() }
    }

    /// Answers looks until the machine does something else.
    fn lead(&mut self, protocol: &mut LeaseProtocol, now: Now) -> LeaseTurn {
        let mut turn = protocol.step(now, LeaseInput::Wake);
        while let LeaseNext::Call(LeaseCall::Look { scope, time }) = turn.next {
            self.looks.push(scope);
            self.times += usize::from(time == StoreTime::Wanted);
            let store_unix_ms = Some(now.unix_ms).filter(|_| time == StoreTime::Wanted);
            let entries = self.entries.range(scope.range(WORKERS)).map(|(_, entry)| entry.clone());
            let listing = Listing { entries: entries.collect(), store_unix_ms };
            let events = std::mem::take(&mut turn.events);
            turn = protocol.step(now, LeaseInput::Looked(Ok(listing)));
            turn.events.splice(0..0, events);
        }
        turn
    }

    /// Takes the sizes of the looks so far.
    fn sizes(&mut self) -> Vec<usize> {
        let looks = std::mem::take(&mut self.looks);
        looks.into_iter().map(|scope| scope.range(u32::MAX).len()).collect()
    }
}

#[test]
fn a_node_looks_where_its_name_leads_claims_what_is_free_and_finds_it_again() {
    let mut homes = std::collections::BTreeSet::new();
    for number in 0..200_u128 {
        let name = format!("node-{number}:8080");
        let (mut store, mut protocol) = (Pretend::default(), large(&name, number));
        let (worker, expected, record) = swap_of(&store.lead(&mut protocol, at(NOW)));
        assert_eq!((expected, &store.looks[..]), (Expected::Absent, &[LookScope::Worker(worker)][..]));
        homes.insert(worker);
        // Another process of that name starts after the end of the lease; then the clock goes back.
        store.entries.insert(worker.0, WorkerEntry { worker, revision: Revision(5), record: Some(record) });
        let mut protocol = large(&name, 1000 + number);
        let (again, expected, record) = swap_of(&store.lead(&mut protocol, at(NOW + WINDOW - 2)));
        assert_eq!((again, expected), (worker, Expected::Revision(Revision(5))));
        assert_eq!(record.from_unix_ms, Some(NOW + WINDOW), "where the record ends");
    }
    assert!(homes.len() > 170, "names are spread: {}", homes.len());
}

/// Goal: nodes do not keep a slow store busy with calls that they have given up, and come back soon if it was
/// down. Method: failures in a row, of calls that end at the driver's limit or at once; in pools of 1,024 and
/// 8,192 workers, with windows of 24 s and 5 min.
#[test]
fn calls_without_an_answer_are_followed_by_longer_waits_in_larger_pools() {
    const LIMIT: u64 = 6_000;
    let pool = |bits: u32| {
        let layout = format!("time:41 worker:{bits} sequence:{} epoch:2020-01-01", 22 - bits);
        WorkerPool::new(layout.parse().unwrap(), DatacenterId(0))
    };
    let waits = |bits, window_ms, seed, calls: &[u64]| {
        let settings = LeaseSettings { window_ms, pool: pool(bits), ..settings(WorkerChoice::Any) };
        let (mut protocol, mut now) = (LeaseProtocol::new(settings, seed), NOW);
        let wait_after = |took: &u64| {
            protocol.step(at(now), LeaseInput::Wake);
            now += took;
            let turn = protocol.step(at(now), LeaseInput::Looked(Err(CallFailure::NotDone)));
            let LeaseNext::Wait(ms) = turn.next else { panic!("{turn:?}") };
            now += ms;
            ms
        };
        calls.iter().map(wait_after).collect::<Vec<_>>()
    };
    for seed in 0..100 {
        for (bits, window, longest) in [(10, 300_000, 10_240), (13, 300_000, 81_920), (13, 24_000, 6_000)] {
            for (ms, nth) in waits(bits, window, seed, &[LIMIT; 9]).into_iter().zip(0..) {
                let most = if nth == 0 { window / 200 + 1 } else { (1_000 << nth).min(longest) };
                assert!((most / 2..=most).contains(&ms), "{ms} after {nth} others, window {window}");
            }
            // What is refused is asked again soon, also if calls had no answer before, or have none after.
            let mixed = [&[LIMIT; 5][..], &[50; 9], &[LIMIT]].concat();
            assert!(waits(bits, window, seed, &mixed)[5..].iter().all(|ms| *ms <= LONGEST_WAIT_MS));
        }
    }
}

/// Goal: the same if only writes hang. Method: looks find a free worker, and the claims get no answer.
#[test]
fn writes_without_an_answer_are_counted_although_reads_are_answered() {
    let settings = LeaseSettings { window_ms: 300_000, ..settings(WorkerChoice::Any) };
    let (mut protocol, mut now) = (LeaseProtocol::new(settings, 7), NOW);
    let waits = [(); 6].map(|()| {
        let mut turn = protocol.step(at(now), LeaseInput::Wake);
        loop {
            turn = match turn.next {
                LeaseNext::Call(LeaseCall::Look { .. }) => protocol.step(at(now), listed(vec![])),
                LeaseNext::Call(LeaseCall::Load(_)) => protocol.step(at(now), LeaseInput::Loaded(Ok(None))),
                LeaseNext::Call(LeaseCall::Swap { .. }) => {
                    now += 6_000;
                    let turn = protocol.step(at(now), LeaseInput::Swapped(Err(CallFailure::Unknown)));
                    let LeaseNext::Wait(ms) = turn.next else { panic!("{turn:?}") };
                    now += ms;
                    return ms;
                }
                LeaseNext::Wait(ms) => {
                    now += ms;
                    protocol.step(at(now), LeaseInput::Wake)
                }
                LeaseNext::Stop => panic!("{turn:?}"),
            };
        }
    });
    assert!(waits[5] >= 5_000, "{waits:?}");
    // A store that refuses calls is asked again soon.
    let refused = protocol.step(at(now), LeaseInput::Wake);
    assert!(matches!(refused.next, LeaseNext::Call(LeaseCall::Load(_))), "{refused:?}");
    let turn = protocol.step(at(now + 50), LeaseInput::Loaded(Err(CallFailure::NotDone)));
    assert!(matches!(turn.next, LeaseNext::Wait(..=LONGEST_WAIT_MS)), "{turn:?}");
}

#[test]
fn workers_of_others_are_taken_after_a_look_at_ten_those_that_ended_first_before() {
    let mut store = Pretend::full(NOW);
    for (worker, entry) in &mut store.entries {
        end_at(entry.record.as_mut().unwrap(), NOW - u64::from(*worker));
    }
    let mut protocol = large("me", 1);
    let mut turn = store.lead(&mut protocol, at(NOW));
    assert_eq!(store.times, 1, "one clock reading of the store for all looks");
    let (looks, sizes) = (store.looks.clone(), store.sizes());
    assert_eq!(sizes, [1, 10]);
    let mut tried = Vec::new();
    while let LeaseNext::Call(LeaseCall::Swap { worker, .. }) = turn.next {
        tried.push(worker.0);
        turn = protocol.step(at(NOW), LeaseInput::Swapped(Ok(Swap::Conflict)));
    }
    let ten = looks[1].range(WORKERS).rev().take(4);
    assert_eq!(tried, ten.chain(looks[0].range(WORKERS)).collect::<Vec<_>>());
    assert!(matches!(turn.next, LeaseNext::Wait(..=256)), "{turn:?}");
}

#[test]
fn a_node_finds_its_own_among_the_lapsed_workers_of_others() {
    let mut store = Pretend::full(NOW);
    let mut protocol = large("me", 1);
    store.lead(&mut protocol, at(NOW));
    let ten = store.looks[1].range(WORKERS);
    store.entries.insert(ten.start + 3, entry(ten.start + 3, "me", NOW + 1, 1));
    let (worker, ..) = swap_of(&store.lead(&mut large("me", 2), at(NOW)));
    assert_eq!(worker, WorkerId(ten.start + 3));
}

#[test]
fn a_worker_that_is_snatched_away_is_followed_by_the_next_look() {
    let (mut store, mut protocol) = (Pretend::default(), large("me", 1));
    let (first, ..) = swap_of(&store.lead(&mut protocol, at(NOW)));
    let turn = protocol.step(at(NOW), LeaseInput::Swapped(Ok(Swap::Conflict)));
    assert!(matches!(turn.next, LeaseNext::Wait(..=256)), "not together with the other: {turn:?}");
    let turn = protocol.step(at(NOW), LeaseInput::Wake);
    let LeaseNext::Call(LeaseCall::Look { scope: scope @ LookScope::Block(_), time: StoreTime::Known }) =
        turn.next
    else {
        panic!("{turn:?}")
    };
    let turn = protocol.step(at(NOW), listed(vec![entry(first.0, "other", NOW + WINDOW, 1)]));
    let second = swap_of(&turn).0;
    assert_ne!(first, second);
    assert!(scope.range(WORKERS).contains(&second.0), "{second:?} in {scope:?}");
}

/// If no worker is free, the node looks at a hundred after a short random delay. Then it waits for the worker
/// that frees first, looks at it, and looks at another hundred after a pause, which grows once the node has
/// seen them all.
#[test]
fn a_full_pool_is_looked_through_a_hundred_at_a_time() {
    let mut store = Pretend::full(NOW + 600_000);
    let mut protocol = large("me", 1);
    store.lead(&mut protocol, at(NOW));
    assert_eq!(store.sizes(), [1, 10]);
    let (mut now, mut seen) = (NOW, std::collections::BTreeSet::new());
    let pauses = std::iter::repeat_n(200, 11).chain([400, 800, 1_600, 1_600, 1_600]);
    for (look, pause) in pauses.enumerate() {
        let turn = store.lead(&mut protocol, at(now));
        let fresh = seen.insert(store.looks[0].range(u32::MAX).start);
        assert_eq!(fresh, look < 11, "each of them once, then again: {look}");
        assert_eq!(store.sizes(), [100]);
        assert!(matches!(turn.events[..], [.., LeaseEvent::NoneFree { .. }]), "{turn:?}");
        let LeaseNext::Wait(ms) = turn.next else { panic!("{turn:?}") };
        assert!((pause..=pause * 3 / 2).contains(&ms), "{ms}, not {pause}");
        now += ms;
    }
}

#[test]
fn whichever_worker_is_given_back_in_a_full_pool_it_is_found() {
    for free in [0, 99, 100, 1000, 1023] {
        let mut store = Pretend::full(NOW + 600_000);
        store.entries.insert(free, entry(free, "gone", NOW, 1));
        let (mut protocol, mut now) = (large("me", 1), NOW);
        let mut turn = store.lead(&mut protocol, at(now));
        while let LeaseNext::Wait(ms) = turn.next {
            now += ms;
            turn = store.lead(&mut protocol, at(now));
        }
        assert_eq!(swap_of(&turn).0, WorkerId(free));
        assert!(now < NOW + 120_000, "{} ms", now - NOW);
    }
}

#[test]
fn the_worker_that_frees_first_is_looked_at_when_it_does() {
    let mut store = Pretend::full(NOW + 60_000);
    let mut protocol = large("me", 1);
    for (_, entry) in store.entries.iter_mut().filter(|(worker, _)| *worker % 100 == 42) {
        end_at(entry.record.as_mut().unwrap(), NOW + 1_200);
    }
    let (mut turn, mut now) = (store.lead(&mut protocol, at(NOW)), NOW);
    while now < NOW + 1_200 {
        let LeaseNext::Wait(ms) = turn.next else { panic!("{turn:?}") };
        now = NOW + 1_200.min(now - NOW + ms);
        turn = store.lead(&mut protocol, at(now));
    }
    let (worker, expected, record) = swap_of(&turn);
    assert_eq!((worker.0 % 100, expected), (42, Expected::Revision(Revision(5))));
    assert_eq!(record.from_unix_ms, Some(NOW + 1_200));
}

#[test]
fn a_node_waits_for_the_worker_of_its_last_process_before_others() {
    let mut store = Pretend::full(NOW + 60_000);
    let mut protocol = large("me", 1);
    let own = seek::home(&protocol.settings.holder, 0, WORKERS);
    store.entries.insert(own, entry(own, "me", NOW + 90_000, 1));
    store.lead(&mut protocol, at(NOW));
    assert_eq!(protocol.probing.frees_first.unwrap().worker, WorkerId(own));
    // In the hundred that lists it, too.
    let mut protocol = large("me", 1);
    store.entries.insert(own, entry(own, "other", NOW + 60_000, 1));
    let elsewhere = (own + 500) % WORKERS;
    store.entries.insert(elsewhere, entry(elsewhere, "me", NOW + 90_000, 1));
    let mut turn = store.lead(&mut protocol, at(NOW));
    let mut now = NOW;
    while !store.looks.iter().any(|scope| scope.range(WORKERS).contains(&elsewhere)) {
        let LeaseNext::Wait(ms) = turn.next else { panic!("{turn:?}") };
        now += ms;
        turn = store.lead(&mut protocol, at(now));
    }
    assert_eq!(protocol.probing.frees_first.unwrap().worker, WorkerId(elsewhere));
}

#[test]
fn a_wide_look_that_fails_is_put_off_and_narrow_ones_go_on() {
    let mut store = Pretend::full(NOW + 60_000);
    let mut protocol = large("me", 1);
    store.lead(&mut protocol, at(NOW));
    let turn = protocol.step(at(NOW), LeaseInput::Wake);
    assert!(
        matches!(turn.next, LeaseNext::Call(LeaseCall::Look { scope: LookScope::Block(_), .. })),
        "{turn:?}"
    );
    protocol.step(at(NOW), LeaseInput::Looked(Err(CallFailure::Unknown)));
    store.sizes();
    let turn = store.lead(&mut protocol, at(NOW + 50));
    assert!(!store.sizes().contains(&100));
    assert!(matches!(turn.next, LeaseNext::Wait(150..=300)), "{turn:?}");
}

#[test]
fn nodes_of_one_name_do_not_meet_for_ever() {
    let mut last = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let mut store = Pretend::full(NOW + 60_000);
        let mut protocol = large("same", seed);
        store.lead(&mut protocol, at(NOW));
        store.lead(&mut protocol, at(NOW));
        last.insert(store.looks[2].range(WORKERS).start);
    }
    assert!(last.len() > 8, "of eleven: {last:?}");
}

#[test]
fn a_clock_ahead_of_the_stores_takes_no_lease_by_a_look_either() {
    for choice in [WorkerChoice::Any, WorkerChoice::Only(WorkerId(3))] {
        let mut protocol = large("me", 1);
        protocol.settings.choice = choice;
        let turn = protocol.step(at(NOW), LeaseInput::Wake);
        let wanted = |next: &LeaseNext| {
            matches!(next, LeaseNext::Call(LeaseCall::Look { time: StoreTime::Wanted, .. }))
        };
        assert!(wanted(&turn.next), "{turn:?}");
        let store_unix_ms = Some(NOW - 30_001);
        let turn = protocol.step(at(NOW), LeaseInput::Looked(Ok(Listing { entries: vec![], store_unix_ms })));
        assert_eq!(turn.events, [LeaseEvent::ClockAhead { ahead_ms: 30_001, max_skew_ms: 30_000 }]);
        assert!(matches!(turn.next, LeaseNext::Wait(..=2000)));
        assert!(wanted(&protocol.step(at(NOW), LeaseInput::Wake).next), "again");
    }
}

#[test]
fn a_claim_that_landed_late_is_recognised_by_a_look() {
    let (mut store, mut protocol) = (Pretend::default(), large("me", 1));
    let (worker, _, claim) = swap_of(&store.lead(&mut protocol, at(NOW)));
    protocol.step(at(NOW + 100), LeaseInput::Swapped(Err(CallFailure::Unknown)));
    protocol.step(at(NOW + 200), LeaseInput::Wake);
    // The node abandons the claim, and the next look fails, so the search restarts.
    let turn = protocol.step(at(NOW + 300), LeaseInput::Loaded(Ok(None)));
    assert!(matches!(turn.next, LeaseNext::Wait(_)), "{turn:?}");
    let turn = protocol.step(at(NOW + 300), LeaseInput::Wake);
    assert!(matches!(turn.next, LeaseNext::Call(LeaseCall::Look { .. })), "{turn:?}");
    protocol.step(at(NOW + 300), LeaseInput::Looked(Err(CallFailure::NotDone)));
    store.entries.insert(worker.0, WorkerEntry { worker, revision: Revision(3), record: Some(claim) });
    let turn = store.lead(&mut protocol, at(NOW + 400));
    let lease = Lease { worker, from_unix_ms: NOW, until_unix_ms: NOW + WINDOW };
    assert_eq!(granted(&turn.events), [lease]);
}

const NODES: usize = 1000;
/// The server's time for a call, and for each record of a list, in microseconds.
const CALL_US: u64 = 250;
const RECORD_US: u64 = 40;
/// The latency from a node to the server.
const WAY_US: u64 = 300;

#[derive(Debug)]
enum Due {
    Wake,
    Served { call: u64, asked: LeaseCall },
    Answer { call: u64, input: LeaseInput },
}

struct Fleet {
    now_us: u64,
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    due: BTreeMap<u64, Due>,
    server_free_us: u64,
    records: BTreeMap<u32, (Revision, Record)>,
    revision: u64,
    nodes: Vec<LeaseProtocol>,
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
                LeaseSettings { pool, holder, small_pool, window_ms: 10_000, ..settings(WorkerChoice::Any) };
            LeaseProtocol::new(settings, (generation * 1000 + number as u128 + 1) << 64)
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
            Due::Wake => self.step(node, LeaseInput::Wake),
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

    fn step(&mut self, node: usize, input: LeaseInput) -> usize {
        let turn = self.nodes[node].step(at(self.now_us / 1000), input);
        let granted = turn.events.iter().filter(|event| matches!(event, LeaseEvent::Granted(_))).count();
        match turn.next {
            LeaseNext::Wait(ms) => self.after(ms * 1000, node, Due::Wake),
            LeaseNext::Stop => {}
            LeaseNext::Call(asked) => {
                let (calls, records) = match asked {
                    LeaseCall::Look { scope, time } => {
                        let records = self.records.range(scope.range(u32::MAX)).count() as u64;
                        self.records_read += records;
                        (1 + u64::from(time == StoreTime::Wanted), records)
                    }
                    LeaseCall::Load(_) | LeaseCall::Swap { .. } => (1, 1),
                };
                let work_us = calls * CALL_US + records * RECORD_US;
                // Does not count renewals of nodes that wait for the others.
                if self.nodes[node].settled_lease().is_none() {
                    self.calls[node] += calls;
                }
                let call = self.created + 1;
                self.pending[node] = call;
                let failed = match asked {
                    LeaseCall::Look { .. } => LeaseInput::Looked(Err(CallFailure::Unknown)),
                    LeaseCall::Load(_) => LeaseInput::Loaded(Err(CallFailure::Unknown)),
                    LeaseCall::Swap { .. } => LeaseInput::Swapped(Err(CallFailure::Unknown)),
                };
                self.server_free_us = self.server_free_us.max(self.now_us + WAY_US) + work_us;
                self.after(self.server_free_us - self.now_us, node, Due::Served { call, asked });
                self.after(2_500_000, node, Due::Answer { call, input: failed });
            }
        }
        granted
    }

    fn serve(&mut self, asked: &LeaseCall) -> LeaseInput {
        let entry = |records: &BTreeMap<u32, (Revision, Record)>, worker: u32| {
            let (revision, record) = records.get(&worker)?;
            Some(WorkerEntry { worker: WorkerId(worker), revision: *revision, record: Some(record.clone()) })
        };
        let store_unix_ms = Some(self.now_us / 1000);
        match asked {
            LeaseCall::Look { scope, time } => {
                let inside = self.records.range(scope.range(u32::MAX)).map(|(worker, _)| *worker);
                let entries = inside.filter_map(|worker| entry(&self.records, worker)).collect();
                let store_unix_ms = store_unix_ms.filter(|_| *time == StoreTime::Wanted);
                LeaseInput::Looked(Ok(Listing { entries, store_unix_ms }))
            }
            LeaseCall::Load(worker) => LeaseInput::Loaded(Ok(entry(&self.records, worker.0))),
            LeaseCall::Swap { worker, expected, record } => {
                let at = self.records.get(&worker.0).map(|(revision, _)| *revision);
                if at.map_or(Expected::Absent, Expected::Revision) != *expected {
                    return LeaseInput::Swapped(Ok(Swap::Conflict));
                }
                self.revision += 1;
                self.records.insert(worker.0, (Revision(self.revision), record.clone()));
                LeaseInput::Swapped(Ok(Swap::Done(Revision(self.revision))))
            }
        }
    }

    /// The records after an orderly stop: all leases are released.
    fn given_back(mut self) -> BTreeMap<u32, (Revision, Record)> {
        let now = self.now_us / 1000;
        for (_, record) in self.records.values_mut() {
            record.from_unix_ms = Some(now);
            end_at(record, now);
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
    // With other names, as pods have.
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
