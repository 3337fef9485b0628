//! Goal: over a store that may lose its newest writes, no grant is used before it has settled; and a node detects that a store
//! forgot, or that a copy of the node is running. Method: as in the parent module, with different clocks.

use super::*;

const LOSES: u64 = 2_000;

/// An instant with a steady clock that is independent of the other one.
fn then(unix_ms: u64, steady_ms: u64) -> Now {
    Now { unix_ms, unstepped_unix_ms: unix_ms, steady_ms }
}

fn done(revision: u64) -> LeaseInput {
    LeaseInput::Swapped(Ok(Swap::Done(Revision(revision))))
}

fn found(worker: WorkerId, revision: u64, record: &Record) -> LeaseInput {
    let record = Some(record.clone());
    LeaseInput::Loaded(Ok(Some(WorkerEntry { worker, revision: Revision(revision), record })))
}

fn careful() -> LeaseProtocol {
    LeaseProtocol::new(LeaseSettings { may_lose_ms: LOSES, ..settings(WorkerChoice::Any) }, 7 << 64)
}

/// A machine whose claim was acknowledged at 100 by the steady clock, and its record.
fn claimed() -> (LeaseProtocol, WorkerId, Record) {
    let mut protocol = careful();
    protocol.step(then(NOW, 0), LeaseInput::Wake);
    let (worker, _, record) = swap_of(&protocol.step(then(NOW, 0), listed(vec![])));
    let turn = protocol.step(then(NOW, 100), done(1));
    assert_eq!(
        turn.events,
        [LeaseEvent::Claimed { worker, settles_in_ms: LOSES }],
        "nobody mints under it yet"
    );
    assert_eq!(turn.next, LeaseNext::Wait(LOSES));
    (protocol, worker, record)
}

/// A machine whose claim settled at 2100, and its renewal, which was acknowledged at 2200.
fn settled() -> (LeaseProtocol, WorkerId, Record) {
    let (mut protocol, worker, _) = claimed();
    let turn = protocol.step(then(NOW + 2000, 2100), LeaseInput::Wake);
    let (_, expected, renewal) = swap_of(&turn);
    assert_eq!((expected, renewal.until_unix_ms), (Expected::Revision(Revision(1)), NOW + 2000 + WINDOW));
    let turn = protocol.step(then(NOW + 2000, 2200), done(2));
    let lease = Lease { worker, from_unix_ms: NOW, until_unix_ms: NOW + WINDOW };
    assert_eq!(granted(&turn.events), [lease], "the claim, not yet the renewal");
    (protocol, worker, renewal)
}

#[test]
fn a_claim_is_used_once_it_has_settled_and_each_renewal_settles_the_one_before() {
    let (mut protocol, ..) = settled();
    assert_eq!(protocol.settled_lease().map(|held| held.until_unix_ms), Some(NOW + WINDOW));
    protocol.step(then(NOW + 4200, 4300), LeaseInput::Wake);
    let turn = protocol.step(then(NOW + 4200, 4300), done(3));
    assert_eq!(extended(&turn.events), [NOW + 2000 + WINDOW]);
    // Twice as frequent as over other stores, to survive an outage of the same length; never before it can settle anything.
    assert!(matches!(turn.next, LeaseNext::Wait(2000..=2250)), "{turn:?}");
}

/// Goal: the task counts a lease by one clock from the claim to its grant. Method: a claim whose answer comes, or was lost, with
/// and without time to settle, until it is granted or given up.
#[test]
fn a_claim_is_on_its_way_until_it_is_granted_or_given_up() {
    for may_lose_ms in [0, LOSES] {
        let only = settings(WorkerChoice::Only(WorkerId(3)));
        let mut protocol = LeaseProtocol::new(LeaseSettings { may_lose_ms, ..only }, 7 << 64);
        protocol.step(then(NOW, 0), LeaseInput::Wake);
        assert!(!protocol.is_claiming(), "it seeks");
        let (worker, _, record) = swap_of(&protocol.step(then(NOW, 0), listed(vec![])));
        assert!(protocol.is_claiming(), "the claim is sent");
        protocol.step(then(NOW, 0), LeaseInput::Swapped(Err(CallFailure::Unknown)));
        assert!(protocol.is_claiming(), "its answer was lost");
        assert_eq!(
            protocol.step(then(NOW, 50), LeaseInput::Wake).next,
            LeaseNext::Call(LeaseCall::Load(worker))
        );
        assert!(protocol.is_claiming(), "its outcome is awaited");
        let mut given_up = protocol.clone();
        protocol.step(then(NOW, 100), found(worker, 1, &record));
        assert_eq!(protocol.is_claiming(), may_lose_ms > 0, "without time to settle, it is granted");
        given_up.step(then(NOW, 100), LeaseInput::Loaded(Ok(None)));
        assert!(!given_up.is_claiming(), "nothing was written");
    }
    let (mut protocol, worker, _) = claimed();
    protocol.step(then(NOW + 2000, 2100), LeaseInput::Wake);
    assert!(protocol.is_claiming(), "the renewal that settles it is sent");
    let mut lost = protocol.clone();
    protocol.step(then(NOW + 2000, 2200), done(2));
    assert!(!protocol.is_claiming(), "granted");
    protocol.step(then(NOW + 4200, 4300), LeaseInput::Wake);
    assert!(!protocol.is_claiming(), "a renewal of a granted lease is sent");
    lost.step(then(NOW + 2000, 2200), LeaseInput::Swapped(Ok(Swap::Conflict)));
    assert!(lost.is_claiming(), "another write may be its own");
    lost.step(
        then(NOW + 2000, 2200),
        LeaseInput::Loaded(Ok(Some(entry(worker.0, "other", NOW + WINDOW, 9 << 64)))),
    );
    assert!(!lost.is_claiming(), "another node has it");
}

#[test]
fn nothing_is_sent_before_it_could_settle_what_went_before() {
    let (mut protocol, ..) = claimed();
    for (steady_ms, left_ms) in [(100, 2000), (2099, 1)] {
        // Hours have passed by the other clock.
        let turn = protocol.step(then(NOW + 8_000_000, steady_ms), LeaseInput::Wake);
        assert_eq!((turn.events, turn.next), (vec![], LeaseNext::Wait(left_ms)));
    }
    swap_of(&protocol.step(then(NOW - 8_000_000, 2100), LeaseInput::Wake));
}

#[test]
fn what_counts_is_when_the_confirming_call_was_sent_not_when_it_was_answered() {
    let (mut protocol, worker, _) = settled();
    let renewal = swap_of(&protocol.step(then(NOW + 4200, 4200), LeaseInput::Wake)).2;
    protocol.step(then(NOW + 4200, 4200), LeaseInput::Swapped(Err(CallFailure::Unknown)));
    let turn = protocol.step(then(NOW + 4300, 4300), LeaseInput::Wake);
    assert_eq!(turn.next, LeaseNext::Call(LeaseCall::Load(worker)));
    // The load finds the doubtful renewal: it is acknowledged now, and settles the grant before it.
    let turn = protocol.step(then(NOW + 9000, 9000), found(worker, 3, &renewal));
    assert_eq!(extended(&turn.events), [NOW + 2000 + WINDOW]);
    // Sent 1999 after: too early.
    let turn = protocol.step(then(NOW + 9000, 10_999), LeaseInput::Wake);
    assert_eq!((turn.events, turn.next), (vec![], LeaseNext::Wait(1)));
    // Sent in time, answered much later.
    protocol.step(then(NOW + 9000, 11_000), LeaseInput::Wake);
    let turn = protocol.step(then(NOW + 9000, 99_000), done(4));
    assert_eq!(extended(&turn.events), [renewal.until_unix_ms]);
}

#[test]
fn a_load_that_finds_the_grant_settles_it_though_the_renewal_failed() {
    let (mut protocol, worker, record) = claimed();
    protocol.step(then(NOW + 2000, 2100), LeaseInput::Wake);
    protocol.step(then(NOW + 2000, 2100), LeaseInput::Swapped(Err(CallFailure::NotDone)));
    protocol.step(then(NOW + 2100, 2200), LeaseInput::Wake);
    let turn = protocol.step(then(NOW + 2100, 2200), found(worker, 1, &record));
    let lease = Lease { worker, from_unix_ms: NOW, until_unix_ms: NOW + WINDOW };
    assert_eq!(granted(&turn.events), [lease]);
    swap_of(&turn);
}

#[test]
fn a_claim_that_arrived_after_all_settles_from_when_it_was_seen() {
    let mut protocol = careful();
    protocol.step(then(NOW, 0), LeaseInput::Wake);
    let (worker, _, claim) = swap_of(&protocol.step(then(NOW, 0), listed(vec![])));
    protocol.step(then(NOW, 0), LeaseInput::Swapped(Err(CallFailure::Unknown)));
    protocol.step(then(NOW, 50), LeaseInput::Wake);
    let turn = protocol.step(then(NOW, 60), LeaseInput::Loaded(Ok(None)));
    // The node's claims of the other free workers conflict.
    let mut turn = turn;
    while let LeaseNext::Call(LeaseCall::Swap { .. }) = turn.next {
        turn = protocol.step(then(NOW, 60), LeaseInput::Swapped(Ok(Swap::Conflict)));
    }
    protocol.step(then(NOW, 5000), LeaseInput::Wake);
    let landed = WorkerEntry { worker, revision: Revision(3), record: Some(claim) };
    let turn = protocol.step(then(NOW, 5000), listed(vec![landed]));
    assert_eq!(turn.events, [LeaseEvent::Claimed { worker, settles_in_ms: LOSES }]);
    let turn = protocol.step(then(NOW, 6999), LeaseInput::Wake);
    assert_eq!(turn.next, LeaseNext::Wait(1));
}

#[test]
fn a_renewal_that_was_forgotten_is_never_used_and_is_written_again() {
    let (mut protocol, worker, lost) = settled();
    let claim_until = NOW + WINDOW;
    protocol.step(then(NOW + 4200, 4200), LeaseInput::Wake);
    let turn = protocol.step(then(NOW + 4200, 4200), LeaseInput::Swapped(Ok(Swap::Conflict)));
    assert_eq!(turn.next, LeaseNext::Call(LeaseCall::Load(worker)), "whose record is it?");
    // The claim, which is of the same line.
    let granted = Granted::up_to(claim_until);
    let claim = Record { until_unix_ms: claim_until, tag: Tag(lost.tag.0 - 1), granted, ..lost.clone() };
    let turn = protocol.step(then(NOW + 4200, 4200), found(worker, 1, &claim));
    assert_eq!(
        turn.events,
        [LeaseEvent::StoreForgot {
            worker,
            acknowledged_until_unix_ms: lost.until_unix_ms,
            found_until_unix_ms: Some(claim_until),
            forgot: Forgot::Unsettled,
        }]
    );
    let (_, expected, again) = swap_of(&turn);
    assert_eq!((expected, again.until_unix_ms), (Expected::Revision(Revision(1)), NOW + 4200 + WINDOW));
    let turn = protocol.step(then(NOW + 4200, 4300), done(9));
    assert_eq!(turn.events, [], "it settles first, by itself");
    assert_eq!(protocol.settled_lease().map(|held| held.until_unix_ms), Some(claim_until));
    protocol.step(then(NOW + 6300, 6300), LeaseInput::Wake);
    let turn = protocol.step(then(NOW + 6300, 6300), done(10));
    assert_eq!(extended(&turn.events), [NOW + 4200 + WINDOW]);
}

#[test]
fn a_forgotten_claim_is_written_again_and_was_never_used() {
    let (mut protocol, worker, _) = claimed();
    protocol.step(then(NOW + 2000, 2100), LeaseInput::Wake);
    protocol.step(then(NOW + 2000, 2100), LeaseInput::Swapped(Ok(Swap::Conflict)));
    let turn = protocol.step(then(NOW + 2000, 2100), LeaseInput::Loaded(Ok(None)));
    let acknowledged_until_unix_ms = NOW + WINDOW;
    let (found_until_unix_ms, forgot) = (None, Forgot::Unsettled);
    let forgot = LeaseEvent::StoreForgot { worker, acknowledged_until_unix_ms, found_until_unix_ms, forgot };
    assert_eq!(turn.events, [forgot]);
    assert_eq!(swap_of(&turn).1, Expected::Absent);
    assert_eq!(protocol.settled_lease(), None);
}

/// A store that keeps everything it acknowledges is restored from a backup: revisions go back, too.
#[test]
fn a_restored_store_is_noticed_and_the_lease_is_written_again_at_once() {
    for gone in [true, false] {
        let (mut protocol, worker) = lease();
        let renewal = swap_of(&protocol.step(at(NOW + 3000), LeaseInput::Wake)).2;
        protocol.step(at(NOW + 3000), done(9));
        protocol.step(at(NOW + 6000), LeaseInput::Wake);
        protocol.step(at(NOW + 6000), LeaseInput::Swapped(Ok(Swap::Conflict)));
        // A record of the same process from hours ago.
        let (until_unix_ms, tag) = (NOW - 5_000_000, Tag(renewal.tag.0 - 1));
        let old = Record { until_unix_ms, tag, granted: Granted::up_to(until_unix_ms), ..renewal };
        let answer = if gone { LeaseInput::Loaded(Ok(None)) } else { found(worker, 3, &old) };
        let turn = protocol.step(at(NOW + 6000), answer);
        assert!(
            matches!(turn.events[..], [LeaseEvent::StoreForgot { forgot: Forgot::Settled, .. }]),
            "{turn:?}"
        );
        let expected = if gone { Expected::Absent } else { Expected::Revision(Revision(3)) };
        assert_eq!(swap_of(&turn).1, expected);
        let turn = protocol.step(at(NOW + 6000), done(4));
        assert_eq!(extended(&turn.events), [NOW + 6000 + WINDOW]);
        // It claims no other worker for one window, although it loses this one.
        protocol.step(at(NOW + 9000), LeaseInput::Wake);
        protocol.step(at(NOW + 9000), LeaseInput::Swapped(Ok(Swap::Conflict)));
        let other = entry(worker.0, "other", NOW + 90_000, 1 << 64).record.unwrap();
        let turn = protocol.step(at(NOW + 9000), found(worker, 7, &other));
        assert!(matches!(turn.events[..], [LeaseEvent::Lost { .. }]), "it names no begin: {turn:?}");
        assert_eq!(turn.next, LeaseNext::Wait(WINDOW - 3000));
        let turn = protocol.step(at(NOW + 15_000), LeaseInput::Wake);
        assert_eq!(turn.next, LeaseNext::Call(LIST));
    }
}

/// Goal: an overlapping grant of another node ends the lease immediately; a grant that begins at its end does not.
#[test]
fn anothers_grant_that_overlaps_ends_the_lease() {
    for (from, overlaps) in [(NOW + WINDOW - 1, true), (NOW + WINDOW, false)] {
        let (mut protocol, worker) = lease();
        protocol.step(at(NOW + 3000), LeaseInput::Wake);
        protocol.step(at(NOW + 3000), LeaseInput::Swapped(Ok(Swap::Conflict)));
        let other = entry(worker.0, "other", NOW + 90_000, 1 << 64).record.unwrap();
        let turn =
            protocol.step(at(NOW + 3000), found(worker, 7, &Record { from_unix_ms: Some(from), ..other }));
        let ended = turn.events.iter().any(|event| matches!(event, LeaseEvent::Overlap { .. }));
        assert_eq!(ended, overlaps, "{turn:?}");
        assert_eq!(matches!(turn.events[..], [LeaseEvent::Lost { .. }]), !overlaps, "{turn:?}");
        assert_eq!(protocol.settled_lease(), None);
        assert_eq!(turn.next == LeaseNext::Wait(WINDOW), overlaps, "{turn:?}");
    }
}

/// Over a store that may lose writes: what had not settled was not used, so another node may have it.
#[test]
fn anothers_grant_after_what_has_settled_ends_nothing() {
    let (mut protocol, worker, renewal) = settled();
    protocol.step(then(NOW + 4200, 4200), LeaseInput::Wake);
    protocol.step(then(NOW + 4200, 4200), LeaseInput::Swapped(Ok(Swap::Conflict)));
    let from_unix_ms = Some(NOW + WINDOW);
    let granted = Granted::up_to(NOW + 2 * WINDOW);
    let other = Record { from_unix_ms, until_unix_ms: NOW + 2 * WINDOW, tag: Tag(1), granted, ..renewal };
    let turn = protocol.step(then(NOW + 4200, 4200), found(worker, 7, &other));
    let [LeaseEvent::StoreForgot { forgot, .. }, LeaseEvent::Lost { .. }] = turn.events[..] else {
        panic!("{turn:?}")
    };
    assert_eq!(forgot, Forgot::Unsettled);
}

/// The revision changed but not the record, for example because somebody labelled a Kubernetes object.
#[test]
fn ones_own_record_at_another_revision_is_renewed_from_there() {
    let (mut protocol, worker) = lease();
    let renewal = swap_of(&protocol.step(at(NOW + 3000), LeaseInput::Wake)).2;
    protocol.step(at(NOW + 3000), done(2));
    protocol.step(at(NOW + 6000), LeaseInput::Wake);
    protocol.step(at(NOW + 6000), LeaseInput::Swapped(Ok(Swap::Conflict)));
    let turn = protocol.step(at(NOW + 6000), found(worker, 5, &renewal));
    assert_eq!(turn.events, []);
    assert_eq!(swap_of(&turn).1, Expected::Revision(Revision(5)));
}

/// A process that resumes a lease recognizes the tags of the previous process. An older tag means that the store forgot, and a
/// newer one that the previous process renewed after it saved. After the first renewal, only a copy can have written a newer one,
/// unless the store lost writes and found them again.
#[test]
fn a_resumed_lease_tells_older_from_newer_tags_of_its_line() {
    let line = 5 << 64;
    let held = SettledLease {
        worker: WorkerId(9),
        revision: Revision(4),
        tag: Tag(line + 70),
        from_unix_ms: NOW,
        until_unix_ms: NOW + 5000,
        is_in_gap: false,
    };
    let own = 1 << 50;
    for (number, renewed, forgot) in [
        (69, false, true),
        (71, false, false),
        (1 << 60, false, false),
        (69, true, true),
        (70, true, true),
        (own + 1, true, true),
        (71, true, false),
        (1 << 60, true, false),
    ] {
        let mut protocol = LeaseProtocol::resume(settings(WorkerChoice::Any), 7 << 64 | own, held);
        protocol.step(at(NOW), LeaseInput::Wake);
        let tag = swap_of(&protocol.step(at(NOW), listed(vec![]))).2.tag;
        assert_eq!((tag.line(), tag.number()), (line, (1 << 50) + 1), "its own place in the same line");
        if renewed {
            protocol.step(at(NOW), done(5));
            protocol.step(at(NOW), LeaseInput::Wake);
            protocol.step(at(NOW), done(6));
            protocol.step(at(NOW), LeaseInput::Wake);
        }
        protocol.step(at(NOW), LeaseInput::Swapped(Ok(Swap::Conflict)));
        let found = WorkerEntry { revision: Revision(3), ..entry(9, "me", NOW + 4000, line | number) };
        let turn = protocol.step(at(NOW), LeaseInput::Loaded(Ok(Some(found))));
        let case = format!("{number}, renewed: {renewed}: {turn:?}");
        assert_eq!(matches!(turn.events[..], [LeaseEvent::StoreForgot { .. }]), forgot, "{case}");
        // Before the first renewal, the previous process may have written. After it, only a copy can have, if the store lost
        // nothing.
        let lost = matches!(turn.events[..], [LeaseEvent::Lost { .. }]);
        let copied = matches!(turn.events[..], [LeaseEvent::Copied { .. }]);
        assert_eq!((lost, copied), (!forgot && !renewed, !forgot && renewed), "{case}");
    }
}

/// Goal: a machine that was restored from a snapshot detects that its original renewed the lease, and stops immediately. Method:
/// the record has tags that this machine has not drawn.
#[test]
fn a_process_restored_from_its_memory_stops_when_it_notices_the_other() {
    let (restored, worker) = lease();
    let mut before = restored.clone();
    for renewal in 1..=40 {
        let now = at(NOW + renewal * 3000);
        let record = swap_of(&before.step(now, LeaseInput::Wake)).2;
        before.step(now, done(1 + renewal));
        let mut restored = restored.clone();
        restored.salt(1);
        swap_of(&restored.step(at(NOW + 3000), LeaseInput::Wake));
        restored.step(at(NOW + 3000), LeaseInput::Swapped(Ok(Swap::Conflict)));
        let turn = restored.step(at(NOW + 3000), found(worker, 1 + renewal, &record));
        let copied = [LeaseEvent::Copied { worker, until_unix_ms: NOW + WINDOW }];
        if renewal == 2 {
            // Both drew this tag, which random bits make rare: a later renewal shows the copy.
            assert!(matches!(turn.events[..], [LeaseEvent::Extended(_)]), "{turn:?}");
        } else {
            assert_eq!(turn.events, copied, "{renewal}");
            assert_eq!(restored.settled_lease(), None);
        }
    }
}

/// Returns whether one of two machines that hold one lease, whose claim is at revision 1, loses it within 60 rounds. They renew
/// in turn, each with its own random bits.
fn one_loses(mut machines: [LeaseProtocol; 2], claim: Record, random: &mut SplitMix64) -> bool {
    let worker = machines[0].settled_lease().unwrap().worker;
    let (mut record, mut revision) = (claim, 1);
    (1..=60).any(|round| {
        let now = at(NOW + round * 3000);
        machines.iter_mut().any(|machine| {
            machine.salt(u8::try_from(random.below(256)).unwrap());
            let mut turn = machine.step(now, LeaseInput::Wake);
            loop {
                if turn
                    .events
                    .iter()
                    .any(|event| matches!(event, LeaseEvent::Lost { .. } | LeaseEvent::Copied { .. }))
                {
                    return true;
                }
                let input = match turn.next {
                    LeaseNext::Call(LeaseCall::Swap { expected, record: new, .. }) => {
                        if expected == Expected::Revision(Revision(revision)) {
                            (record, revision) = (new, revision + 1);
                            done(revision)
                        } else {
                            LeaseInput::Swapped(Ok(Swap::Conflict))
                        }
                    }
                    LeaseNext::Call(LeaseCall::Load(_)) => found(worker, revision, &record),
                    // A machine that resumed compares its clock first.
                    LeaseNext::Call(LeaseCall::Look { .. }) => listed(vec![]),
                    _ => return false,
                };
                turn = machine.step(now, input);
            }
        })
    })
}

/// Goal: if two copies of one process run, one notices. Method: they renew in turn, each with its own random bits.
#[test]
fn of_two_copies_of_a_process_one_loses_the_lease() {
    for seed in 0..100 {
        let (copy, worker) = lease();
        let claim = entry(worker.0, "me", NOW + WINDOW, 8).record.unwrap();
        assert!(one_loses([copy.clone(), copy], claim, &mut SplitMix64::of(seed)), "{seed}");
    }
}

/// Goal: if a process resumed a saved lease while a copy of the saving process runs, one of them notices. Method: as above.
#[test]
fn of_a_resumed_process_and_the_one_before_it_one_loses_the_lease() {
    for seed in 0..100 {
        let mut random = SplitMix64::of(seed);
        let (before, worker) = lease();
        let held = before.settled_lease().unwrap();
        let claim = entry(worker.0, "me", held.until_unix_ms, held.tag.0).record.unwrap();
        let number = random.below(u64::MAX);
        let resumed = LeaseProtocol::resume(settings(WorkerChoice::Any), u128::from(number), held);
        for machines in [[resumed.clone(), before.clone()], [before.clone(), resumed.clone()]] {
            assert!(one_loses(machines, claim.clone(), &mut random), "{seed}");
        }
    }
}

/// A detected failover is undone: the newest grant is back.
#[test]
fn a_grant_that_is_back_after_it_was_forgotten_is_renewed() {
    let (mut protocol, worker) = lease();
    let renewal = swap_of(&protocol.step(at(NOW + 3000), LeaseInput::Wake)).2;
    protocol.step(at(NOW + 3000), done(2));
    protocol.step(at(NOW + 6000), LeaseInput::Wake);
    protocol.step(at(NOW + 6000), LeaseInput::Swapped(Ok(Swap::Conflict)));
    let (tag, granted) = (Tag(renewal.tag.0 - 1), Granted::up_to(NOW + WINDOW));
    let claim = Record { until_unix_ms: NOW + WINDOW, tag, granted, ..renewal.clone() };
    let turn = protocol.step(at(NOW + 6000), found(worker, 1, &claim));
    assert_eq!(swap_of(&turn).1, Expected::Revision(Revision(1)));
    protocol.step(at(NOW + 6000), LeaseInput::Swapped(Ok(Swap::Conflict)));
    let turn = protocol.step(at(NOW + 6000), found(worker, 2, &renewal));
    assert_eq!(swap_of(&turn).1, Expected::Revision(Revision(2)));
}

#[test]
fn a_release_of_a_forgotten_lease_is_written_over_what_is_there() {
    let (mut protocol, worker) = lease();
    protocol.step(at(NOW + 100), LeaseInput::Release { used_until_unix_ms: NOW + 90 });
    protocol.step(at(NOW + 100), LeaseInput::Swapped(Ok(Swap::Conflict)));
    let turn = protocol.step(at(NOW + 100), LeaseInput::Loaded(Ok(None)));
    let (released, expected, record) = swap_of(&turn);
    assert_eq!((released, expected, record.until_unix_ms), (worker, Expected::Absent, NOW + 90));
    let turn = protocol.step(at(NOW + 100), done(1));
    assert_eq!(turn.next, LeaseNext::Stop);
}

#[test]
fn another_lease_of_the_node_found_that_the_store_forgot() {
    let mut protocol = protocol();
    protocol.claim_nothing_before(NOW + 500);
    assert_eq!(protocol.step(at(NOW), LeaseInput::Wake).next, LeaseNext::Wait(500));
    protocol.step(at(NOW + 500), LeaseInput::Wake);
    protocol.claim_nothing_before(NOW + 800);
    assert_eq!(protocol.step(at(NOW + 600), listed(vec![])).next, LeaseNext::Wait(200));
}

/// Found by the simulation: the release had arrived, and another lease began at its end.
#[test]
fn a_release_that_arrived_unnoticed_makes_no_overlap() {
    let (mut protocol, worker) = lease();
    protocol.step(at(NOW + 100), LeaseInput::Release { used_until_unix_ms: NOW + 90 });
    protocol.step(at(NOW + 100), LeaseInput::Swapped(Err(CallFailure::Unknown)));
    protocol.step(at(NOW + 200), LeaseInput::Wake);
    let other = entry(worker.0, "other", NOW + 90_000, 1 << 64).record.unwrap();
    let next = Record { from_unix_ms: Some(NOW + 90), ..other };
    let turn = protocol.step(at(NOW + 200), found(worker, 7, &next));
    assert!(matches!(turn.events[..], [LeaseEvent::Lost { .. }]), "{turn:?}");
    assert_eq!(turn.next, LeaseNext::Stop);
}
