//! Goal: the bounds and waits of the protocol have their documented values.
//! Method: the last value inside and the first one outside; waits within the documented random part.
//!
//! Goal: a clock that jumped forward grants nothing without confirmation, and a correct clock is followed.
//! Method: as in the parent module; a machine with a lease is stepped by a clock that differs from boot time.

use super::*;

fn only(worker: u32) -> LeaseProtocol {
    let mut protocol = LeaseProtocol::new(settings(WorkerChoice::Only(WorkerId(worker))), 7);
    protocol.step(at(NOW), LeaseInput::Wake);
    protocol
}

fn seeking() -> LeaseProtocol {
    let mut protocol = protocol();
    protocol.step(at(NOW), LeaseInput::Wake);
    protocol
}

/// All workers, granted to other nodes until an instant.
fn all_taken(until: u64) -> Vec<WorkerEntry> {
    (0..32).map(|worker| entry(worker, "other", until, 1)).collect()
}

#[track_caller]
fn waits(turn: &LeaseTurn, ms: u64) {
    assert!(
        matches!(turn.next, LeaseNext::Wait(waited) if (ms - ms / 8..=ms).contains(&waited)),
        "{turn:?}, not {ms}"
    );
}

/// Checks for the wait after a failure: at least half of it.
#[track_caller]
fn backs_off(turn: &LeaseTurn, ms: u64) {
    assert!(
        matches!(turn.next, LeaseNext::Wait(waited) if (ms - ms / 2..=ms).contains(&waited)),
        "{turn:?}, not {ms}"
    );
}

/// Checks for the wait for a worker that becomes free: never too short.
#[track_caller]
fn waits_out(turn: &LeaseTurn, ms: u64) {
    assert!(
        matches!(turn.next, LeaseNext::Wait(waited) if (ms..=ms + ms / 8).contains(&waited)),
        "{turn:?}, not {ms}"
    );
}

#[test]
fn a_clock_as_far_ahead_as_it_may_be_takes_a_lease() {
    let listing = |store| LeaseInput::Looked(Ok(Listing { entries: vec![], store_unix_ms: Some(store) }));
    swap_of(&seeking().step(at(NOW), listing(NOW - 30_000)));
    waits(&seeking().step(at(NOW), listing(NOW - 30_001)), WINDOW / 12);
}

#[test]
fn where_none_is_free_it_looks_again_when_the_first_is_and_soon_anyway() {
    waits_out(&seeking().step(at(NOW), listed(all_taken(NOW + 8))), 8);
    waits_out(&seeking().step(at(NOW), listed(all_taken(NOW + 8000))), WINDOW / 12);
    waits_out(&only(3).step(at(NOW), listed(all_taken(NOW + 8))), 8);
    waits_out(&only(3).step(at(NOW), listed(all_taken(NOW + 8000))), WINDOW / 12);
}

#[test]
fn a_grant_of_more_than_two_windows_is_no_leftover_of_a_crash() {
    let event = |until| only(3).step(at(NOW), listed(vec![entry(3, "other", until, 1)])).events.pop();
    assert!(matches!(event(NOW + 2 * WINDOW), Some(LeaseEvent::Awaited { .. })));
    assert!(matches!(event(NOW + 2 * WINDOW + 1), Some(LeaseEvent::Taken { .. })));
}

#[test]
fn a_worker_seen_twice_at_one_revision_is_still_awaited() {
    let mut protocol = only(3);
    for now in [NOW, NOW + 700, NOW + 1400] {
        let turn = protocol.step(at(now), listed(vec![entry(3, "other", NOW + 5000, 1)]));
        assert!(matches!(turn.events[..], [LeaseEvent::Awaited { .. }]), "{turn:?}");
        protocol.step(at(now), LeaseInput::Wake);
    }
}

#[test]
fn a_record_of_two_windows_ahead_is_as_it_should_be() {
    let events = |until| seeking().step(at(NOW), listed(vec![entry(3, "other", until, 1)])).events;
    assert_eq!(events(NOW + 2 * WINDOW), []);
    assert!(
        matches!(events(NOW + 2 * WINDOW + 1)[..], [LeaseEvent::RecordsAhead { ahead_ms, .. }] if ahead_ms == WINDOW + 1)
    );
}

#[test]
fn ones_own_worker_is_taken_early_by_five_milliseconds_at_most() {
    let worker = |until| {
        let mut entries = all_taken(NOW + 5000);
        entries[9] = entry(9, "me", until, 1);
        seeking().step(at(NOW), listed(entries))
    };
    assert_eq!(swap_of(&worker(NOW + 5)).0, WorkerId(9));
    assert!(matches!(worker(NOW + 6).events[..], [LeaseEvent::NoneFree { .. }]));
}

#[test]
fn anothers_worker_is_free_from_its_end_on_and_not_before() {
    let claims = |now| {
        let turn = only(3).step(at(now), listed(vec![entry(3, "other", NOW, 1)]));
        matches!(turn.next, LeaseNext::Call(LeaseCall::Swap { .. }))
    };
    assert!(claims(NOW) && !claims(NOW - 1));
}

#[test]
fn four_of_each_kind_are_tried_before_looking_again() {
    let mut entries = all_taken(NOW - 1);
    entries.truncate(20);
    let mut firsts = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let mut protocol = LeaseProtocol::new(settings(WorkerChoice::Any), seed);
        protocol.step(at(NOW), LeaseInput::Wake);
        let mut turn = protocol.step(at(NOW), listed(entries.clone()));
        let mut tried = Vec::new();
        while let LeaseNext::Call(LeaseCall::Swap { worker, expected, .. }) = turn.next {
            tried.push((worker.0, expected == Expected::Absent));
            turn = protocol.step(at(NOW), LeaseInput::Swapped(Ok(Swap::Conflict)));
        }
        backs_off(&turn, WINDOW / 200 + 1);
        let (free, lapsed) = tried.split_at(4);
        assert!(free.iter().all(|(worker, absent)| *worker >= 20 && *absent), "{tried:?}");
        let first = lapsed[0].0;
        assert_eq!(lapsed, [0, 1, 2, 3].map(|nth| (first + nth, false)));
        firsts.insert(first);
    }
    assert_eq!(firsts, (0..=6).collect(), "of the ten that lapsed first, each node prefers others");
}

#[test]
fn each_failure_doubles_the_wait_and_a_success_ends_the_row() {
    let mut protocol = protocol();
    for _ in 0..2 {
        for wait in [46, 92, 184, 368, 736, 1472, 1500, 1500] {
            protocol.step(at(NOW), LeaseInput::Wake);
            backs_off(&protocol.step(at(NOW), LeaseInput::Looked(Err(CallFailure::NotDone))), wait);
        }
        protocol.step(at(NOW), LeaseInput::Wake);
        let turn = protocol.step(at(NOW), listed(all_taken(NOW + 8000)));
        waits_out(&turn, WINDOW / 12);
    }
}

#[test]
fn a_claim_that_arrives_after_the_end_of_its_grant_is_repeated() {
    let mut protocol = only(7);
    let claim = swap_of(&protocol.step(at(NOW), listed(vec![]))).2;
    protocol.step(at(NOW), LeaseInput::Swapped(Err(CallFailure::Unknown)));
    protocol.step(at(NOW), LeaseInput::Wake);
    protocol.step(at(NOW), LeaseInput::Loaded(Ok(None)));
    let late = NOW + WINDOW;
    protocol.step(at(late), LeaseInput::Wake);
    let landed = WorkerEntry { worker: WorkerId(7), revision: Revision(3), record: Some(claim) };
    let turn = protocol.step(at(late), listed(vec![landed]));
    assert_eq!(turn.events, [], "nothing of it is left");
    let (worker, expected, record) = swap_of(&turn);
    assert_eq!((worker, expected), (WorkerId(7), Expected::Revision(Revision(3))));
    assert_eq!(record.until_unix_ms, late + WINDOW);
}

#[test]
fn after_a_failed_claim_only_a_record_with_its_tag_is_ours() {
    let mut protocol = only(7);
    let claim = swap_of(&protocol.step(at(NOW), listed(vec![]))).2;
    protocol.step(at(NOW), LeaseInput::Swapped(Err(CallFailure::Unknown)));
    protocol.step(at(NOW), LeaseInput::Wake);
    protocol.step(at(NOW), LeaseInput::Loaded(Ok(None)));
    protocol.step(at(NOW + 400), LeaseInput::Wake);
    let turn = protocol.step(at(NOW + 400), listed(vec![entry(7, "me", NOW + WINDOW, claim.tag.0 + 1)]));
    assert!(matches!(turn.events[..], [LeaseEvent::Awaited { .. }]), "a name proves nothing: {turn:?}");
}

/// A proxy sent a renewal twice, so the store wrote it although it reported a failure. The grant was not
/// reported, and the store forgot nothing.
#[test]
fn a_write_that_surely_did_not_happen_and_did_is_ours_and_no_sign_of_a_store_that_forgot() {
    for clock_back_ms in [0, 60_000] {
        let (mut protocol, worker) = lease();
        let refused = swap_of(&protocol.step(at(NOW + 3000), LeaseInput::Wake)).2;
        backs_off(
            &protocol.step(at(NOW + 3000), LeaseInput::Swapped(Err(CallFailure::NotDone))),
            WINDOW / 200 + 1,
        );
        protocol.step(at(NOW + 3100), LeaseInput::Wake);
        let found = WorkerEntry { worker, revision: Revision(2), record: Some(refused.clone()) };
        let now = NOW + 3100 - clock_back_ms;
        let turn = protocol.step(at(now), LeaseInput::Loaded(Ok(Some(found))));
        assert_eq!(turn.events, []);
        let (again, expected, record) = swap_of(&turn);
        assert_eq!((again, expected), (worker, Expected::Revision(Revision(2))));
        assert_eq!(record.until_unix_ms, refused.until_unix_ms.max(now + WINDOW), "it never shortens");
        let turn = protocol.step(at(now), LeaseInput::Swapped(Ok(Swap::Done(Revision(3)))));
        assert_eq!(extended(&turn.events), [record.until_unix_ms]);
    }
}

#[test]
fn a_release_gives_back_no_less_than_was_used_and_no_more_than_was_granted() {
    for (used, until) in [(0, NOW), (NOW + 90, NOW + 90), (NOW + WINDOW + 1, NOW + WINDOW)] {
        let (mut protocol, _) = lease();
        let turn = protocol.step(at(NOW + 100), LeaseInput::Release { used_until_unix_ms: used });
        assert_eq!(swap_of(&turn).2.until_unix_ms, until);
        let turn = protocol.step(at(NOW + 100), LeaseInput::Swapped(Ok(Swap::Done(Revision(2)))));
        assert_eq!((turn.events.as_slice(), turn.next), ([LeaseEvent::Released].as_slice(), LeaseNext::Stop));
    }
}

#[test]
fn the_wait_after_a_failure_is_a_quarter_at_most_of_what_is_left_of_a_lease() {
    let (mut protocol, _) = lease();
    for (now, wait) in [
        (3000, 46),
        (3000, 92),
        (3000, 184),
        (3000, 368),
        (3000, 736),
        (3000, 1472),
        (3000, 1500),
        (7000, 500),
        (8800, 50),
        (8840, 46),
        (8999, 46),
        (9000, 1500),
        (20_000, 1500),
    ] {
        let failed = match protocol.step(at(NOW + now), LeaseInput::Wake).next {
            LeaseNext::Call(LeaseCall::Swap { .. }) => LeaseInput::Swapped(Err(CallFailure::NotDone)),
            _ => LeaseInput::Loaded(Err(CallFailure::NotDone)),
        };
        backs_off(&protocol.step(at(NOW + now), failed), wait);
    }
}

/// Goal: an outage of two thirds of the window, less two retries, has no effect. Method: the store fails at
/// the worst moment, right before a renewal; 100 seeds each.
#[test]
fn an_outage_of_two_thirds_of_the_window_is_bridged() {
    for seed in 0..100_u128 {
        let mut protocol = LeaseProtocol::new(settings(WorkerChoice::Any), seed << 64 | seed);
        protocol.step(at(NOW), LeaseInput::Wake);
        let (worker, _, granted) = swap_of(&protocol.step(at(NOW), listed(vec![])));
        protocol.step(at(NOW), LeaseInput::Swapped(Ok(Swap::Done(Revision(1)))));
        let (mut now, back) = (NOW + 3000, NOW + 3000 + 5900);
        let mut turn = protocol.step(at(now), LeaseInput::Wake);
        while turn.events.is_empty() {
            let input = match turn.next {
                LeaseNext::Wait(ms) => {
                    now += ms;
                    LeaseInput::Wake
                }
                LeaseNext::Call(LeaseCall::Swap { .. }) if now < back => {
                    LeaseInput::Swapped(Err(CallFailure::NotDone))
                }
                LeaseNext::Call(LeaseCall::Load(_)) if now < back => {
                    LeaseInput::Loaded(Err(CallFailure::NotDone))
                }
                LeaseNext::Call(LeaseCall::Swap { .. }) => LeaseInput::Swapped(Ok(Swap::Done(Revision(2)))),
                LeaseNext::Call(LeaseCall::Load(_)) => {
                    let (revision, record) = (Revision(1), Some(granted.clone()));
                    LeaseInput::Loaded(Ok(Some(WorkerEntry { worker, revision, record })))
                }
                other => panic!("{other:?}"),
            };
            turn = protocol.step(at(now), input);
        }
        assert!(matches!(turn.events[..], [LeaseEvent::Extended(_)]), "{turn:?}");
        assert!(now < NOW + WINDOW, "{seed}: {} ms after its end", now - NOW - WINDOW);
    }
}

/// Goal: ids return soon after the store does, however long the window. Method: in virtual time, the store is
/// down for longer than the lease lasts, at every phase of the waits; 100 seeds each.
#[test]
fn ids_are_back_two_seconds_after_the_store_however_long_the_window() {
    for (window_ms, seed) in [9_000, 600_000, 86_400_000].into_iter().zip([0..100_u128, 100..200, 200..300]) {
        for seed in seed {
            let settings = LeaseSettings { window_ms, ..settings(WorkerChoice::Any) };
            let mut protocol = LeaseProtocol::new(settings, seed << 64 | seed);
            protocol.step(at(NOW), LeaseInput::Wake);
            let (worker, _, granted) = swap_of(&protocol.step(at(NOW), listed(vec![])));
            protocol.step(at(NOW), LeaseInput::Swapped(Ok(Swap::Done(Revision(1)))));
            let (mut now, back) =
                (NOW + window_ms / 3, NOW + 2 * window_ms + u64::try_from(seed).unwrap() * 777);
            let mut turn = protocol.step(at(now), LeaseInput::Wake);
            while turn.events.is_empty() {
                let input = match turn.next {
                    LeaseNext::Wait(ms) => {
                        now += ms;
                        LeaseInput::Wake
                    }
                    LeaseNext::Call(LeaseCall::Swap { .. }) if now < back => {
                        LeaseInput::Swapped(Err(CallFailure::Unknown))
                    }
                    LeaseNext::Call(LeaseCall::Load(_)) if now < back => {
                        LeaseInput::Loaded(Err(CallFailure::NotDone))
                    }
                    LeaseNext::Call(LeaseCall::Swap { .. }) => {
                        LeaseInput::Swapped(Ok(Swap::Done(Revision(2))))
                    }
                    LeaseNext::Call(LeaseCall::Load(_)) => {
                        let (revision, record) = (Revision(1), Some(granted.clone()));
                        LeaseInput::Loaded(Ok(Some(WorkerEntry { worker, revision, record })))
                    }
                    other => panic!("{other:?}"),
                };
                turn = protocol.step(at(now), input);
            }
            assert!(matches!(turn.events[..], [LeaseEvent::Extended(_)]), "{turn:?}");
            assert!(now <= back + 2000, "window {window_ms}, seed {seed}: {} ms after the store", now - back);
        }
    }
}

const HOUR: u64 = 3_600_000;

/// Returns an instant this long after the grant, by a clock that was stepped forward in the meantime.
fn stepped(after_ms: u64, by_ms: u64) -> Now {
    let unstepped_unix_ms = NOW + after_ms;
    Now { unix_ms: unstepped_unix_ms + by_ms, unstepped_unix_ms, steady_ms: unstepped_unix_ms }
}

fn told(store_unix_ms: Option<u64>, entries: Vec<WorkerEntry>) -> LeaseInput {
    LeaseInput::Looked(Ok(Listing { entries, store_unix_ms }))
}

fn done(revision: u64) -> LeaseInput {
    LeaseInput::Swapped(Ok(Swap::Done(Revision(revision))))
}

/// Renews until the renewal is held back or written; returns the events and the written end.
fn renew(
    protocol: &mut LeaseProtocol,
    now: Now,
    store_unix_ms: Option<u64>,
    entries: Vec<WorkerEntry>,
) -> (Vec<LeaseEvent>, Option<u64>) {
    let turn = protocol.step(now, LeaseInput::Wake);
    let turn = match turn.next {
        LeaseNext::Call(LeaseCall::Look { time, .. }) => {
            assert_eq!(time, StoreTime::Wanted);
            protocol.step(now, told(store_unix_ms, entries))
        }
        _ => turn,
    };
    match turn.next {
        LeaseNext::Call(LeaseCall::Swap { ref record, .. }) => {
            let until_unix_ms = record.until_unix_ms;
            let events = protocol.step(now, done(now.steady_ms)).events;
            assert_eq!(extended(&events), [until_unix_ms]);
            (turn.events, Some(until_unix_ms))
        }
        LeaseNext::Wait(ms) => {
            assert!(ms <= LONGEST_WAIT_MS);
            (turn.events, None)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_renewal_by_a_clock_that_the_store_contradicts_is_not_written() {
    for by_ms in [HOUR, 365 * 24 * HOUR] {
        let (mut protocol, worker) = lease();
        let refused = |after_ms| {
            let ahead_ms = by_ms - 5;
            (vec![LeaseEvent::ClockAhead { ahead_ms, max_skew_ms: 30_000 }], None::<u64>, NOW + after_ms + 5)
        };
        for after_ms in [3_000, 4_000, 8_000, 20_000] {
            let (events, written, store) = refused(after_ms);
            assert_eq!(
                renew(&mut protocol, stepped(after_ms, by_ms), Some(store), vec![]),
                (events, written)
            );
        }
        assert_eq!(protocol.settled_lease().unwrap().worker, worker);
        // The clock is corrected.
        let renewed = renew(&mut protocol, stepped(21_000, 0), None, vec![]);
        assert_eq!(renewed, (vec![], Some(NOW + 21_000 + WINDOW)));
        // The same step again; now the store shows it, too.
        let now = stepped(24_000, by_ms);
        let renewed = renew(&mut protocol, now, Some(now.unix_ms - 30_000), vec![]);
        assert_eq!(renewed, (vec![], Some(now.unix_ms + WINDOW)));
        let turn = protocol.step(stepped(27_000, by_ms), LeaseInput::Wake);
        assert!(matches!(turn.next, LeaseNext::Call(LeaseCall::Swap { .. })), "it was confirmed: {turn:?}");
    }
}

#[test]
fn a_claim_by_a_clock_that_jumped_since_it_was_compared_is_not_written() {
    let settings = LeaseSettings { small_pool: 0, ..settings(WorkerChoice::Any) };
    let mut protocol = LeaseProtocol::new(settings, 7);
    protocol.step(at(NOW), LeaseInput::Wake);
    // Both home workers are lapsed, and a look at ten comes first.
    let turn = protocol.step(at(NOW), told(Some(NOW), vec![]));
    swap_of(&turn);
    let turn = protocol.step(stepped(10, 0), LeaseInput::Swapped(Err(CallFailure::NotDone)));
    assert!(matches!(turn.next, LeaseNext::Wait(_)));
    protocol.step(stepped(100, 0), LeaseInput::Wake);
    protocol.step(stepped(100, 0), LeaseInput::Loaded(Ok(None)));
    // The clock was compared a moment ago, so this look does not compare it.
    let mut turn = protocol.step(stepped(1000, HOUR), LeaseInput::Wake);
    while let LeaseNext::Call(LeaseCall::Look { time: StoreTime::Known, .. }) = turn.next {
        turn = protocol.step(stepped(1000, HOUR), told(None, vec![]));
    }
    assert!(
        matches!(turn.next, LeaseNext::Call(LeaseCall::Look { time: StoreTime::Wanted, .. })),
        "{turn:?}"
    );
    let turn = protocol.step(stepped(1000, HOUR), told(Some(NOW + 1000), vec![]));
    assert_eq!(turn.events, [LeaseEvent::ClockAhead { ahead_ms: HOUR, max_skew_ms: 30_000 }]);
    assert!(matches!(turn.next, LeaseNext::Wait(_)), "{turn:?}");
}

/// Goal: a clock that was wrong at the start and was corrected is not trusted when it makes the same error
/// again. Method: it starts an hour ahead, goes back, and then an hour forward. Found by the simulation.
#[test]
fn a_clock_that_was_ahead_at_the_start_may_not_be_ahead_again() {
    let ahead = |after_ms| Now { unix_ms: NOW + after_ms + HOUR, ..stepped(after_ms, 0) };
    let at_start = |now: Now| Now { unstepped_unix_ms: now.unstepped_unix_ms + HOUR, ..now };
    let mut protocol = protocol();
    protocol.step(at_start(ahead(0)), LeaseInput::Wake);
    let turn = protocol.step(at_start(ahead(0)), told(Some(NOW), vec![]));
    assert_eq!(turn.events, [LeaseEvent::ClockAhead { ahead_ms: HOUR, max_skew_ms: 30_000 }]);
    protocol.step(at_start(stepped(1000, 0)), LeaseInput::Wake);
    swap_of(&protocol.step(at_start(stepped(1000, 0)), told(Some(NOW + 1000), vec![])));
    protocol.step(at_start(stepped(1000, 0)), done(1));
    let refused = renew(&mut protocol, at_start(ahead(4000)), Some(NOW + 4000), vec![]);
    let event = LeaseEvent::ClockAhead { ahead_ms: HOUR, max_skew_ms: 30_000 };
    assert_eq!(refused, (vec![event], None));
}

/// Goal: a process that resumes a saved lease compares its clock before it renews. Method: it starts with a
/// clock that is an hour ahead.
#[test]
fn a_resumed_lease_is_not_renewed_by_a_clock_that_the_store_contradicts() {
    let (tag, revision) = (Tag(1), Revision(4));
    let held = SettledLease {
        worker: WorkerId(9),
        revision,
        tag,
        from_unix_ms: NOW,
        until_unix_ms: NOW + HOUR + WINDOW,
        is_in_gap: false,
    };
    let mut protocol = LeaseProtocol::resume(settings(WorkerChoice::Any), 7, held);
    let event = LeaseEvent::ClockAhead { ahead_ms: HOUR, max_skew_ms: 30_000 };
    assert_eq!(renew(&mut protocol, at(NOW + HOUR), Some(NOW), vec![]), (vec![event], None));
    let renewed = renew(&mut protocol, at(NOW + 2 * HOUR), Some(NOW + 2 * HOUR), vec![]);
    assert_eq!(renewed, (vec![], Some(NOW + 2 * HOUR + WINDOW)));
}

/// Returns the record of another node that renewed just now, when its clock showed `unix_ms`.
fn another(unix_ms: u64) -> Vec<WorkerEntry> {
    vec![entry(20, "other", unix_ms + WINDOW, 1)]
}

#[test]
fn over_a_store_without_a_clock_another_node_confirms_a_jump() {
    for (other_ms, confirms) in [
        (HOUR - 30_000, true),
        (HOUR + 30_000, true),
        (HOUR - 30_001, false),
        (HOUR + 30_001, false),
        (0, false),
    ] {
        let (mut protocol, _) = lease();
        let now = stepped(3_000, HOUR);
        let (events, written) = renew(&mut protocol, now, None, another(NOW + 3_000 + other_ms));
        assert_eq!(written, confirms.then_some(now.unix_ms + WINDOW), "{other_ms}");
        assert_eq!(events.is_empty(), confirms);
    }
    let (mut protocol, worker) = lease();
    let now = stepped(3_000, HOUR);
    let own = WorkerEntry { worker, ..entry(0, "me/2", now.unix_ms + WINDOW, 1) };
    assert_eq!(renew(&mut protocol, now, None, vec![own]).1, None, "its own records confirm nothing");
}

/// Goal: a single node follows a corrected clock within the stated time, and never a wrong one. Method: it
/// looks as often as it requests until the renewal is written.
#[test]
fn alone_over_a_store_without_a_clock_a_jump_is_followed_once_it_lasts() {
    for (by_ms, after_ms) in [(30_001, 6 * WINDOW), (HOUR, 6 * WINDOW), (24 * HOUR, 864_000)] {
        let (mut protocol, _) = lease();
        let mut after = 3_000;
        let written = loop {
            let (events, written) = renew(&mut protocol, stepped(after, by_ms), None, another(NOW));
            if let Some(written) = written {
                break written;
            }
            let followed_in_ms = after_ms - (after - 3_000);
            assert_eq!(events, [LeaseEvent::ClockJumped { by_ms, followed_in_ms }]);
            after += 700.min(followed_in_ms);
        };
        assert_eq!(after, 3_000 + after_ms);
        assert_eq!(written, NOW + after + by_ms + WINDOW);
    }
}

/// Goal: steps within the allowed skew do not stop a node, and many of them block no more time than one.
/// Method: 25 s forward every 3 s.
#[test]
fn small_jumps_are_followed_at_once_and_do_not_add_up() {
    let (mut protocol, _) = lease();
    let mut furthest = 0;
    for step in 1..100 {
        let (after_ms, by_ms) = (step * 3_000, step * 25_000);
        let (events, written) = renew(&mut protocol, stepped(after_ms, by_ms), None, vec![]);
        assert_eq!(events.is_empty(), step == 1, "{step}: {events:?}");
        furthest = furthest.max(written.unwrap_or_default());
    }
    assert_eq!(furthest, NOW + 3_000 + 25_000 + WINDOW);
}

#[test]
fn drift_is_no_jump_and_a_clock_that_went_back_may_return() {
    let (mut protocol, _) = lease();
    let now = stepped(3_000, LEAST_JUMP_MS);
    swap_of(&protocol.step(now, LeaseInput::Wake));
    protocol.step(now, done(2));
    let back = Now { unix_ms: NOW - HOUR, ..stepped(6_000, 0) };
    swap_of(&protocol.step(back, LeaseInput::Wake));
    protocol.step(back, done(3));
    swap_of(&protocol.step(stepped(9_000, 0), LeaseInput::Wake));
}

#[test]
fn a_doubted_renewal_is_given_back_by_what_the_store_has() {
    for refused in [false, true] {
        let (mut protocol, worker) = lease();
        let now = stepped(3_000, HOUR);
        protocol.step(now, LeaseInput::Wake);
        if refused {
            protocol.step(now, told(Some(NOW + 3_000), vec![]));
        } else {
            protocol.step(now, LeaseInput::Looked(Err(CallFailure::NotDone)));
        }
        let turn = protocol.step(now, LeaseInput::Release { used_until_unix_ms: NOW + 90 });
        assert_eq!(turn.next, LeaseNext::Call(LeaseCall::Load(worker)));
        let record = Some(entry(0, "me", NOW + WINDOW, 8).record.unwrap());
        let turn = protocol
            .step(now, LeaseInput::Loaded(Ok(Some(WorkerEntry { worker, revision: Revision(1), record }))));
        let (released, expected, record) = swap_of(&turn);
        assert_eq!((released, expected), (worker, Expected::Revision(Revision(1))));
        assert_eq!(record.until_unix_ms, NOW + 90);
        assert_eq!(protocol.step(now, done(2)).next, LeaseNext::Stop);
    }
}

/// The machine does not forget a renewal with an unknown outcome while it doubts the clock.
#[test]
fn a_write_that_arrives_while_the_clock_is_doubted_is_ours() {
    let (mut protocol, worker) = lease();
    let late = swap_of(&protocol.step(stepped(3_000, 0), LeaseInput::Wake)).2;
    protocol.step(stepped(5_000, 0), LeaseInput::Swapped(Err(CallFailure::Unknown)));
    protocol.step(stepped(5_100, 0), LeaseInput::Wake);
    let before = Some(entry(0, "me", NOW + WINDOW, 8).record.unwrap());
    let found = |revision, record| {
        LeaseInput::Loaded(Ok(Some(WorkerEntry { worker, revision: Revision(revision), record })))
    };
    let turn = protocol.step(stepped(5_200, HOUR), found(1, before));
    assert!(
        matches!(turn.next, LeaseNext::Call(LeaseCall::Look { time: StoreTime::Wanted, .. })),
        "{turn:?}"
    );
    protocol.step(stepped(5_300, HOUR), told(Some(NOW + 5_300), vec![]));
    // The clock is correct again, and the first attempt has arrived in the meantime.
    swap_of(&protocol.step(stepped(6_000, 0), LeaseInput::Wake));
    let turn = protocol.step(stepped(6_000, 0), LeaseInput::Swapped(Ok(Swap::Conflict)));
    assert_eq!(turn.next, LeaseNext::Call(LeaseCall::Load(worker)));
    let turn = protocol.step(stepped(6_000, 0), found(2, Some(late.clone())));
    assert_eq!(extended(&turn.events), [late.until_unix_ms]);
}
