//! Goal: every arrow of the protocol's diagram, and every outcome of a write.
//! Method: the tests pass answers to the machine and compare its calls.

mod bounds;
mod gaps;
mod seeking;
mod settling;

use super::*;
use snowmint::{DatacenterId, Layout, Lease};

const NOW: u64 = 1_700_000_000_000;
const WINDOW: u64 = 9_000;
/// The first call of a node in a small pool.
const LIST: LeaseCall = LeaseCall::Look { scope: LookScope::Pool, time: StoreTime::Wanted };

fn settings(choice: WorkerChoice) -> LeaseSettings {
    LeaseSettings {
        pool: WorkerPool::new(Layout::TWITTER, DatacenterId(0)),
        choice,
        holder: Holder::new("me").unwrap(),
        window_ms: WINDOW,
        max_skew_ms: 30_000,
        may_lose_ms: 0,
        small_pool: 64,
    }
}

/// An instant at which all clocks agree.
fn at(unix_ms: u64) -> Now {
    Now { unix_ms, unstepped_unix_ms: unix_ms, steady_ms: unix_ms }
}

fn listed(entries: Vec<WorkerEntry>) -> LeaseInput {
    LeaseInput::Looked(Ok(Listing { entries, store_unix_ms: None }))
}

fn protocol() -> LeaseProtocol {
    LeaseProtocol::new(settings(WorkerChoice::Any), 7)
}

fn entry(worker: u32, holder: &str, until: u64, tag: u128) -> WorkerEntry {
    let record = Record {
        holder: Holder::new(holder).unwrap(),
        from_unix_ms: None,
        until_unix_ms: until,
        tag: Tag(tag),
        granted: Granted::up_to(until),
        released: false,
    };
    WorkerEntry { worker: WorkerId(worker), revision: Revision(5), record: Some(record) }
}

/// Lets the lease of a record, and its last grant, end at this time.
fn end_at(record: &mut Record, until_unix_ms: u64) {
    record.until_unix_ms = until_unix_ms;
    record.granted = Granted::up_to(until_unix_ms);
}

/// The leases that were granted; nothing else happened.
#[track_caller]
fn granted(events: &[LeaseEvent]) -> Vec<Lease> {
    let lease = |event: &LeaseEvent| match *event {
        LeaseEvent::Granted(SettledLease { worker, from_unix_ms, until_unix_ms, .. }) => {
            Lease { worker, from_unix_ms, until_unix_ms }
        }
        ref other => panic!("{other:?}"),
    };
    events.iter().map(lease).collect()
}

/// The ends to which the lease was extended; nothing else happened.
#[track_caller]
fn extended(events: &[LeaseEvent]) -> Vec<u64> {
    let end = |event: &LeaseEvent| match event {
        LeaseEvent::Extended(held) => held.until_unix_ms,
        other => panic!("{other:?}"),
    };
    events.iter().map(end).collect()
}

fn swap_of(turn: &LeaseTurn) -> (WorkerId, Expected, Record) {
    match &turn.next {
        LeaseNext::Call(LeaseCall::Swap { worker, expected, record }) => (*worker, *expected, record.clone()),
        other => panic!("expected a swap, got {other:?}"),
    }
}

/// A machine that holds a lease until `NOW + WINDOW`.
fn lease() -> (LeaseProtocol, WorkerId) {
    let mut protocol = protocol();
    protocol.step(at(NOW), LeaseInput::Wake);
    let turn = protocol.step(at(NOW), listed(vec![]));
    let (worker, expected, record) = swap_of(&turn);
    assert_eq!((expected, record.until_unix_ms), (Expected::Absent, NOW + WINDOW));
    let turn = protocol.step(at(NOW), LeaseInput::Swapped(Ok(Swap::Done(Revision(1)))));
    let lease = Lease { worker, from_unix_ms: NOW, until_unix_ms: NOW + WINDOW };
    assert_eq!(granted(&turn.events), [lease]);
    assert!(matches!(turn.next, LeaseNext::Wait(ms) if (1..=WINDOW / 3).contains(&ms)));
    (protocol, worker)
}

/// Goal: nodes that start together, or whose store comes back, renew apart from each other; those of a store
/// that fails now and then do not renew more often. Method: the wait after the first grant, after a renewal, and
/// after one that failed at first, once and until it is an outage, by a hundred nodes.
#[test]
fn the_first_renewal_after_a_claim_or_an_outage_comes_at_any_time() {
    let third = WINDOW / 3;
    let mut waits = [(); 4].map(|()| Vec::new());
    for seed in 0..100 {
        for (nth, failures) in [(2, 1), (3, OUTAGE)] {
            let mut protocol = LeaseProtocol::new(settings(WorkerChoice::Any), seed);
            protocol.step(at(NOW), LeaseInput::Wake);
            protocol.step(at(NOW), listed(vec![]));
            let done = |revision| LeaseInput::Swapped(Ok(Swap::Done(Revision(revision))));
            let mut waited = |nth: usize, turn: LeaseTurn| match turn.next {
                LeaseNext::Wait(ms) => waits[nth].push(ms),
                LeaseNext::Call(_) | LeaseNext::Stop => panic!("{turn:?}"),
            };
            waited(0, protocol.step(at(NOW), done(1)));
            swap_of(&protocol.step(at(NOW + third), LeaseInput::Wake));
            waited(1, protocol.step(at(NOW + third), done(2)));
            swap_of(&protocol.step(at(NOW + 2 * third), LeaseInput::Wake));
            protocol.step(at(NOW + 2 * third), LeaseInput::Swapped(Err(CallFailure::NotDone)));
            let (worker, now) = (protocol.settled_lease().unwrap().worker, at(NOW + 2 * third + 100));
            for _ in 1..failures {
                protocol.step(now, LeaseInput::Wake);
                protocol.step(now, LeaseInput::Loaded(Err(CallFailure::NotDone)));
            }
            protocol.step(now, LeaseInput::Wake);
            let mut found = entry(worker.0, "me", NOW + third + WINDOW, 0);
            (found.revision, found.record.as_mut().unwrap().tag) =
                (Revision(2), protocol.settled_lease().unwrap().tag);
            swap_of(&protocol.step(now, LeaseInput::Loaded(Ok(Some(found)))));
            waited(nth, protocol.step(now, done(3)));
        }
    }
    for waits in &mut waits {
        waits.sort_unstable();
    }
    let [claimed, renewed, failed, after_outage] = waits;
    for steady in [renewed, failed] {
        assert!(steady[0] >= third * 7 / 8 && steady.iter().all(|ms| *ms <= third), "{steady:?}");
    }
    for any in [claimed, after_outage] {
        let part = any.len() / 20;
        let (low, high) = (any[part], any[any.len() - 1 - part]);
        assert!(low < third / 4 && high > third * 3 / 4 && any.iter().all(|ms| *ms <= third), "{any:?}");
    }
}

#[test]
fn a_lease_is_renewed_at_a_third_of_the_window_and_only_reaches_further() {
    let (mut protocol, worker) = lease();
    let turn = protocol.step(at(NOW + 3000), LeaseInput::Wake);
    let (renewed, expected, record) = swap_of(&turn);
    assert_eq!((renewed, expected), (worker, Expected::Revision(Revision(1))));
    assert_eq!(record.until_unix_ms, NOW + 3000 + WINDOW);
    let turn = protocol.step(at(NOW + 3000), LeaseInput::Swapped(Ok(Swap::Done(Revision(2)))));
    assert_eq!(extended(&turn.events), [NOW + 3000 + WINDOW]);
    // The clock goes back an hour: the lease keeps its end.
    let turn = protocol.step(at(NOW - 3_600_000), LeaseInput::Wake);
    assert_eq!(swap_of(&turn).2.until_unix_ms, NOW + 3000 + WINDOW);
}

#[test]
fn a_lease_that_is_resumed_is_renewed_first_and_given_back_no_further_than_its_begin() {
    let held = SettledLease {
        worker: WorkerId(9),
        revision: Revision(4),
        tag: Tag(1),
        from_unix_ms: NOW + 500,
        until_unix_ms: NOW + 5000,
        is_in_gap: false,
    };
    let mut protocol = LeaseProtocol::resume(settings(WorkerChoice::Any), 7, held);
    // It has not compared its clock with anything yet.
    assert_eq!(protocol.step(at(NOW), LeaseInput::Wake).next, LeaseNext::Call(LIST));
    let (worker, expected, record) = swap_of(&protocol.step(at(NOW), listed(vec![])));
    assert_eq!((worker, expected), (WorkerId(9), Expected::Revision(Revision(4))));
    assert_eq!(record.until_unix_ms, NOW + WINDOW);
    let turn = protocol.step(at(NOW), LeaseInput::Swapped(Ok(Swap::Done(Revision(5)))));
    assert_eq!(extended(&turn.events), [NOW + WINDOW]);
    let turn = protocol.step(at(NOW), LeaseInput::Release { used_until_unix_ms: 0 });
    assert_eq!(swap_of(&turn).2.until_unix_ms, NOW + 500, "the time before belongs to the dead process");

    let mut protocol = LeaseProtocol::resume(settings(WorkerChoice::Any), 7, held);
    protocol.step(at(NOW), LeaseInput::Wake);
    protocol.step(at(NOW), listed(vec![]));
    protocol.step(at(NOW), LeaseInput::Swapped(Ok(Swap::Conflict)));
    let turn = protocol.step(at(NOW), LeaseInput::Loaded(Ok(Some(entry(9, "other", NOW + 9000, 1 << 64)))));
    assert_eq!(turn.events, [LeaseEvent::Lost { worker: WorkerId(9), until_unix_ms: NOW + 5000 }]);
}

/// Two leases of one process differ in name and tags, so each treats the other's record like that of another
/// node.
#[test]
fn a_second_lease_of_a_process_neither_adopts_nor_prefers_the_record_of_the_first() {
    let second = LeaseSettings { holder: Holder::new("me/2").unwrap(), ..settings(WorkerChoice::Any) };
    // With the same name, the second lease would prefer the lapsed record of the first, and the first would
    // lose it.
    for until in [NOW + 3, NOW - 1] {
        let mut protocol = LeaseProtocol::new(second.clone(), 1 << 64);
        protocol.step(at(NOW), LeaseInput::Wake);
        let turn = protocol.step(at(NOW), listed(vec![entry(9, "me", until, 8)]));
        assert_eq!(swap_of(&turn).1, Expected::Absent, "a worker that nobody has");
    }
}

#[test]
fn a_lapsed_worker_is_granted_from_where_it_ended_and_ones_own_comes_first() {
    let workers = |mine: &str| -> Vec<WorkerEntry> {
        (0..32).map(|w| entry(w, if w == 9 { mine } else { "other" }, NOW - u64::from(w), 1)).collect()
    };
    let mut protocol = protocol();
    protocol.step(at(NOW), LeaseInput::Wake);
    let turn = protocol.step(at(NOW), listed(workers("me")));
    assert_eq!(swap_of(&turn).0, WorkerId(9));
    let turn = protocol.step(at(NOW), LeaseInput::Swapped(Ok(Swap::Conflict)));
    assert_eq!(swap_of(&turn).0, WorkerId(31), "then the one that lapsed first");
    let turn = protocol.step(at(NOW - 100), LeaseInput::Swapped(Ok(Swap::Conflict)));
    let (worker, _, record) = swap_of(&turn);
    assert_eq!(worker, WorkerId(30));
    assert_eq!(record.until_unix_ms, NOW - 30 + WINDOW, "the clock went back: max(now, old.until) + window");
    let turn = protocol.step(at(NOW - 100), LeaseInput::Swapped(Ok(Swap::Done(Revision(6)))));
    let lease = Lease { worker, from_unix_ms: NOW - 30, until_unix_ms: NOW - 30 + WINDOW };
    assert_eq!(granted(&turn.events), [lease]);
}

#[test]
fn ones_own_worker_is_kept_though_its_last_tick_has_not_ended() {
    let mut protocol = protocol();
    protocol.step(at(NOW), LeaseInput::Wake);
    let turn =
        protocol.step(at(NOW), listed(vec![entry(9, "me", NOW + 1, 1), entry(8, "other", NOW + 1, 1)]));
    assert_eq!(swap_of(&turn).0, WorkerId(9));
    let turn = protocol.step(at(NOW), LeaseInput::Swapped(Ok(Swap::Done(Revision(6)))));
    assert!(
        matches!(turn.events[..], [LeaseEvent::Granted(SettledLease { from_unix_ms, .. })] if from_unix_ms == NOW + 1)
    );
}

#[test]
fn all_workers_taken_says_which_frees_first() {
    let entries: Vec<WorkerEntry> =
        (0..32).map(|w| entry(w, "other", NOW + 5000 - u64::from(w), 1)).collect();
    let mut protocol = protocol();
    protocol.step(at(NOW), LeaseInput::Wake);
    let turn = protocol.step(at(NOW), listed(entries));
    let first = Some((WorkerId(31), Holder::new("other").unwrap(), NOW + 4969));
    assert_eq!(turn.events, [LeaseEvent::NoneFree { first }]);
    assert!(matches!(turn.next, LeaseNext::Wait(_)));
}

#[test]
fn a_lost_answer_is_settled_by_the_tag() {
    let (mut protocol, worker) = lease();
    let turn = protocol.step(at(NOW + 3000), LeaseInput::Wake);
    let written = swap_of(&turn).2;
    let turn = protocol.step(at(NOW + 5000), LeaseInput::Swapped(Err(CallFailure::Unknown)));
    assert!(matches!(turn.next, LeaseNext::Wait(_)));
    let turn = protocol.step(at(NOW + 5100), LeaseInput::Wake);
    assert_eq!(turn.next, LeaseNext::Call(LeaseCall::Load(worker)));
    let found = WorkerEntry { worker, revision: Revision(2), record: Some(written.clone()) };
    let turn = protocol.step(at(NOW + 5100), LeaseInput::Loaded(Ok(Some(found))));
    assert_eq!(extended(&turn.events), [written.until_unix_ms]);
}

/// The later the node learns of a grant, the less of it is left.
#[test]
fn a_lease_that_is_learned_of_late_is_renewed_earlier() {
    for (late_ms, most_ms) in [(100, 2900), (2900, 100), (2999, 1), (5000, 1), (17_000, 1)] {
        let (mut protocol, worker) = lease();
        let written = swap_of(&protocol.step(at(NOW + 3000), LeaseInput::Wake)).2;
        protocol.step(at(NOW + 3000), LeaseInput::Swapped(Err(CallFailure::Unknown)));
        let late = NOW + 3000 + late_ms;
        protocol.step(at(late), LeaseInput::Wake);
        let found = WorkerEntry { worker, revision: Revision(2), record: Some(written) };
        let turn = protocol.step(at(late), LeaseInput::Loaded(Ok(Some(found))));
        assert!(
            matches!(turn.next, LeaseNext::Wait(ms) if (1..=most_ms).contains(&ms)),
            "{late_ms}: {turn:?}"
        );
        let again = swap_of(&protocol.step(at(late), LeaseInput::Wake));
        assert_eq!((again.0, again.2.until_unix_ms), (worker, late + WINDOW));
    }
}

#[test]
fn a_write_that_arrives_late_is_recognised_after_a_second_attempt() {
    let (mut protocol, worker) = lease();
    let late = swap_of(&protocol.step(at(NOW + 3000), LeaseInput::Wake)).2;
    protocol.step(at(NOW + 5000), LeaseInput::Swapped(Err(CallFailure::Unknown)));
    protocol.step(at(NOW + 5100), LeaseInput::Wake);
    // Nothing was written yet: the machine tries the same revision again with another tag.
    let before = WorkerEntry {
        worker,
        revision: Revision(1),
        record: Some(entry(0, "me", NOW + WINDOW, 8).record.unwrap()),
    };
    let turn = protocol.step(at(NOW + 5200), LeaseInput::Loaded(Ok(Some(before))));
    let (_, expected, second) = swap_of(&turn);
    assert_eq!(expected, Expected::Revision(Revision(1)));
    assert_ne!(second.tag, late.tag);
    // The first one arrived in between.
    let turn = protocol.step(at(NOW + 5300), LeaseInput::Swapped(Ok(Swap::Conflict)));
    assert_eq!(
        turn.next,
        LeaseNext::Call(LeaseCall::Load(worker)),
        "a conflict after a doubtful write proves nothing"
    );
    let found = WorkerEntry { worker, revision: Revision(2), record: Some(late.clone()) };
    let turn = protocol.step(at(NOW + 5400), LeaseInput::Loaded(Ok(Some(found))));
    assert_eq!(extended(&turn.events), [late.until_unix_ms]);
}

#[test]
fn a_record_of_another_means_lost_and_another_worker_is_sought_at_once() {
    let (mut protocol, worker) = lease();
    protocol.step(at(NOW + 3000), LeaseInput::Wake);
    let turn = protocol.step(at(NOW + 3000), LeaseInput::Swapped(Ok(Swap::Conflict)));
    assert_eq!(
        (turn.events.as_slice(), &turn.next),
        ([].as_slice(), &LeaseNext::Call(LeaseCall::Load(worker)))
    );
    let others = entry(worker.0, "other", NOW + 3 * WINDOW, 1 << 64);
    let turn = protocol.step(at(NOW + 3000), LeaseInput::Loaded(Ok(Some(others))));
    assert_eq!(turn.events, [LeaseEvent::Lost { worker, until_unix_ms: NOW + WINDOW }]);
    assert_eq!(turn.next, LeaseNext::Call(LIST));
}

#[test]
fn release_writes_the_end_of_what_was_used() {
    let (mut protocol, worker) = lease();
    let turn = protocol.step(at(NOW + 100), LeaseInput::Release { used_until_unix_ms: NOW + 90 });
    let (released, expected, record) = swap_of(&turn);
    assert_eq!(
        (released, expected, record.until_unix_ms),
        (worker, Expected::Revision(Revision(1)), NOW + 90)
    );
    let turn = protocol.step(at(NOW + 100), LeaseInput::Swapped(Ok(Swap::Done(Revision(2)))));
    assert_eq!((turn.events.as_slice(), turn.next), ([LeaseEvent::Released].as_slice(), LeaseNext::Stop));
}

#[test]
fn release_during_a_doubtful_renewal_gives_back_what_the_record_shows() {
    let (mut protocol, worker) = lease();
    let renewal = swap_of(&protocol.step(at(NOW + 3000), LeaseInput::Wake)).2;
    protocol.step(at(NOW + 5000), LeaseInput::Swapped(Err(CallFailure::Unknown)));
    let turn = protocol.step(at(NOW + 5000), LeaseInput::Release { used_until_unix_ms: NOW + 4000 });
    assert_eq!(turn.next, LeaseNext::Call(LeaseCall::Load(worker)));
    let found = WorkerEntry { worker, revision: Revision(2), record: Some(renewal) };
    let turn = protocol.step(at(NOW + 5000), LeaseInput::Loaded(Ok(Some(found))));
    let (_, expected, record) = swap_of(&turn);
    assert_eq!((expected, record.until_unix_ms), (Expected::Revision(Revision(2)), NOW + 4000));
    assert_eq!(turn.events, [], "nobody may mint under it any more");
}

/// Found by the simulation: the late grant was reported and used, and then released as if it were unused.
#[test]
fn a_claim_that_is_settled_after_the_release_was_asked_for_is_given_back_unused() {
    let mut protocol = protocol();
    protocol.step(at(NOW), LeaseInput::Wake);
    let (worker, _, claim) = swap_of(&protocol.step(at(NOW), listed(vec![])));
    protocol.step(at(NOW + 100), LeaseInput::Swapped(Err(CallFailure::Unknown)));
    let turn = protocol.step(at(NOW + 200), LeaseInput::Release { used_until_unix_ms: 0 });
    assert_eq!(turn.next, LeaseNext::Call(LeaseCall::Load(worker)));
    let found = WorkerEntry { worker, revision: Revision(1), record: Some(claim) };
    let turn = protocol.step(at(NOW + 300), LeaseInput::Loaded(Ok(Some(found))));
    assert_eq!(turn.events, [], "nobody may mint under it");
    assert_eq!(swap_of(&turn).2.until_unix_ms, NOW, "back to where it began, not to where another's may lie");
    let turn = protocol.step(at(NOW + 300), LeaseInput::Swapped(Ok(Swap::Done(Revision(2)))));
    assert_eq!(turn.next, LeaseNext::Stop);
}

/// Found by the simulation: at the second request no generator was left, so the machine released used time.
#[test]
fn a_release_asked_for_twice_keeps_what_was_used() {
    let (mut protocol, worker) = lease();
    protocol.step(at(NOW + 100), LeaseInput::Release { used_until_unix_ms: NOW + 90 });
    protocol.step(at(NOW + 200), LeaseInput::Swapped(Err(CallFailure::NotDone)));
    protocol.step(at(NOW + 300), LeaseInput::Release { used_until_unix_ms: 0 });
    let before = WorkerEntry { revision: Revision(1), ..entry(worker.0, "me", NOW + WINDOW, 8) };
    let turn = protocol.step(at(NOW + 300), LeaseInput::Loaded(Ok(Some(before))));
    assert_eq!(swap_of(&turn).2.until_unix_ms, NOW + 90);
}

#[test]
fn the_only_worker_wanted_is_refused_once_another_is_seen_to_renew_it() {
    let mut protocol = LeaseProtocol::new(settings(WorkerChoice::Only(WorkerId(7))), 7);
    let holder = Holder::new("other").unwrap();
    let look = LeaseCall::Look { scope: LookScope::Worker(WorkerId(7)), time: StoreTime::Wanted };
    assert_eq!(protocol.step(at(NOW), LeaseInput::Wake).next, LeaseNext::Call(look));
    let turn = protocol.step(at(NOW), listed(vec![entry(7, "other", NOW + 5000, 1)]));
    assert!(
        matches!(turn.events[..], [LeaseEvent::Awaited { .. }]),
        "it may be a leftover of a crash: {turn:?}"
    );
    protocol.step(at(NOW + 700), LeaseInput::Wake);
    let mut renewed = entry(7, "other", NOW + 8000, 2);
    renewed.revision = Revision(6);
    let turn = protocol.step(at(NOW + 700), listed(vec![renewed]));
    assert_eq!(turn.events, [LeaseEvent::Taken { worker: WorkerId(7), holder, until_unix_ms: NOW + 8000 }]);
}

/// A claim that timed out and arrived after the load must not look like another node's.
#[test]
fn a_claim_that_lands_after_it_was_given_up_is_ours() {
    let mut protocol = LeaseProtocol::new(settings(WorkerChoice::Only(WorkerId(7))), 7);
    protocol.step(at(NOW), LeaseInput::Wake);
    let claim = swap_of(&protocol.step(at(NOW), listed(vec![]))).2;
    protocol.step(at(NOW + 100), LeaseInput::Swapped(Err(CallFailure::Unknown)));
    protocol.step(at(NOW + 200), LeaseInput::Wake);
    let turn = protocol.step(at(NOW + 300), LeaseInput::Loaded(Ok(None)));
    assert!(matches!(turn.next, LeaseNext::Wait(_)), "given up: {turn:?}");
    protocol.step(at(NOW + 400), LeaseInput::Wake);
    let landed = WorkerEntry { worker: WorkerId(7), revision: Revision(3), record: Some(claim) };
    let turn = protocol.step(at(NOW + 400), listed(vec![landed]));
    let lease = Lease { worker: WorkerId(7), from_unix_ms: NOW, until_unix_ms: NOW + WINDOW };
    assert_eq!(granted(&turn.events), [lease]);
}

#[test]
fn the_only_worker_wanted_is_taken_once_it_lapses() {
    let mut protocol = LeaseProtocol::new(settings(WorkerChoice::Only(WorkerId(7))), 7);
    protocol.step(at(NOW), LeaseInput::Wake);
    protocol.step(at(NOW), listed(vec![entry(7, "other", NOW + 5000, 1)]));
    protocol.step(at(NOW + 5000), LeaseInput::Wake);
    let turn = protocol.step(at(NOW + 5000), listed(vec![entry(7, "other", NOW + 5000, 1)]));
    assert_eq!(swap_of(&turn).0, WorkerId(7));
}

#[test]
fn records_an_hour_ahead_are_told_with_the_figures_and_left_alone() {
    let mut protocol = protocol();
    protocol.step(at(NOW), LeaseInput::Wake);
    let turn = protocol.step(at(NOW), listed(vec![entry(3, "me", NOW + 3_600_000, 1)]));
    let holder = Holder::new("me").unwrap();
    let ahead_ms = 3_600_000 - WINDOW;
    assert_eq!(turn.events, [LeaseEvent::RecordsAhead { worker: WorkerId(3), holder, ahead_ms }]);
    assert_ne!(swap_of(&turn).0, WorkerId(3));
}

#[test]
fn a_clock_far_ahead_of_the_stores_takes_no_lease_and_one_behind_does() {
    let listing = |store| LeaseInput::Looked(Ok(Listing { entries: vec![], store_unix_ms: Some(store) }));
    let mut protocol = protocol();
    protocol.step(at(NOW), LeaseInput::Wake);
    let turn = protocol.step(at(NOW), listing(NOW - 30_001));
    assert_eq!(turn.events, [LeaseEvent::ClockAhead { ahead_ms: 30_001, max_skew_ms: 30_000 }]);
    assert!(matches!(turn.next, LeaseNext::Wait(_)));
    protocol.step(at(NOW), LeaseInput::Wake);
    swap_of(&protocol.step(at(NOW), listing(NOW + 3_600_000)));
}

#[test]
fn a_failing_store_is_asked_again_after_longer_and_longer_waits() {
    let mut protocol = protocol();
    let mut waits = Vec::new();
    for _ in 0..12 {
        protocol.step(at(NOW), LeaseInput::Wake);
        match protocol.step(at(NOW), LeaseInput::Looked(Err(CallFailure::NotDone))).next {
            LeaseNext::Wait(ms) => waits.push(ms),
            other => panic!("{other:?}"),
        }
    }
    assert!(waits[0] <= 46 && waits[11] <= WINDOW / 6 && waits[11] > WINDOW / 8, "{waits:?}");
}

#[test]
fn leases_end_on_ticks_so_that_no_tick_is_shared() {
    let layout: Layout = "time:31@1s worker:20 sequence:12 epoch:2020-01-01".parse().unwrap();
    let pool = WorkerPool::new(layout, DatacenterId(0));
    let mut protocol = LeaseProtocol::new(LeaseSettings { pool, ..settings(WorkerChoice::Any) }, 1);
    protocol.step(at(NOW + 250), LeaseInput::Wake);
    let turn = protocol.step(at(NOW + 250), listed(vec![]));
    assert_eq!(swap_of(&turn).2.until_unix_ms, NOW + WINDOW, "the tick that now lies in, and a window");
    let turn = protocol.step(at(NOW + 250), LeaseInput::Swapped(Ok(Swap::Done(Revision(1)))));
    assert!(matches!(turn.events[..], [LeaseEvent::Granted(SettledLease { from_unix_ms: NOW, .. })]));
    let turn = protocol.step(at(NOW + 3250), LeaseInput::Wake);
    assert_eq!(swap_of(&turn).2.until_unix_ms, NOW + 4000 + WINDOW);
}
