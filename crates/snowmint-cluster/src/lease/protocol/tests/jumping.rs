//! Goal: a clock that jumped forward grants nothing without confirmation, and a correct clock is followed.
//! Method: as in the parent module; a machine with a lease is stepped by a clock that differs from boot time.

use super::*;

const HOUR: u64 = 3_600_000;

/// An instant this long after the grant, by a clock that was stepped forward meanwhile.
fn stepped(after_ms: u64, by_ms: u64) -> Now {
    let unstepped_unix_ms = NOW + after_ms;
    Now { unix_ms: unstepped_unix_ms + by_ms, unstepped_unix_ms, steady_ms: unstepped_unix_ms }
}

fn told(store_unix_ms: Option<u64>, entries: Vec<Entry>) -> Input {
    Input::Listed(Ok(Listing { entries, store_unix_ms }))
}

fn done(revision: u64) -> Input {
    Input::Swapped(Ok(Swapped::Done(Revision(revision))))
}

/// Renews until the renewal is refused or written; returns the events and the written end.
fn renew(
    protocol: &mut Protocol,
    now: Now,
    store_unix_ms: Option<u64>,
    entries: Vec<Entry>,
) -> (Vec<Event>, Option<u64>) {
    let turn = protocol.step(now, Input::Wake);
    let turn = match turn.next {
        Next::Call(Call::Look { time, .. }) => {
            assert_eq!(time, StoreTime::Wanted);
            protocol.step(now, told(store_unix_ms, entries))
        }
        _ => turn,
    };
    match turn.next {
        Next::Call(Call::Swap { ref record, .. }) => {
            let until_unix_ms = record.until_unix_ms;
            let events = protocol.step(now, done(now.steady_ms)).events;
            assert_eq!(events, [Event::Extended { until_unix_ms }]);
            (turn.events, Some(until_unix_ms))
        }
        Next::Wait(ms) => {
            assert!(ms <= LONGEST_WAIT_MS);
            (turn.events, None)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_renewal_by_a_clock_that_the_store_contradicts_is_not_written() {
    for by_ms in [HOUR, 365 * 24 * HOUR] {
        let (mut protocol, worker) = holding();
        let refused = |after_ms| {
            let ahead_ms = by_ms - 5;
            (vec![Event::ClockAhead { ahead_ms, max_skew_ms: 30_000 }], None::<u64>, NOW + after_ms + 5)
        };
        for after_ms in [3_000, 4_000, 8_000, 20_000] {
            let (events, written, store) = refused(after_ms);
            assert_eq!(
                renew(&mut protocol, stepped(after_ms, by_ms), Some(store), vec![]),
                (events, written)
            );
        }
        assert_eq!(protocol.held().unwrap().worker, worker);
        // The clock is corrected.
        let renewed = renew(&mut protocol, stepped(21_000, 0), None, vec![]);
        assert_eq!(renewed, (vec![], Some(NOW + 21_000 + WINDOW)));
        // The same step again; now the store shows it, too.
        let now = stepped(24_000, by_ms);
        let renewed = renew(&mut protocol, now, Some(now.unix_ms - 30_000), vec![]);
        assert_eq!(renewed, (vec![], Some(now.unix_ms + WINDOW)));
        let turn = protocol.step(stepped(27_000, by_ms), Input::Wake);
        assert!(matches!(turn.next, Next::Call(Call::Swap { .. })), "it was confirmed: {turn:?}");
    }
}

#[test]
fn a_claim_by_a_clock_that_jumped_since_it_was_compared_is_not_written() {
    let settings = Settings { small_pool: 0, ..settings(WorkerChoice::Any) };
    let mut protocol = Protocol::new(settings, 7);
    protocol.step(at(NOW), Input::Wake);
    // Both homes are lapsed, and a look at ten comes first.
    let turn = protocol.step(at(NOW), told(Some(NOW), vec![]));
    swap_of(&turn);
    let turn = protocol.step(stepped(10, 0), Input::Swapped(Err(Failure::NotDone)));
    assert!(matches!(turn.next, Next::Wait(_)));
    protocol.step(stepped(100, 0), Input::Wake);
    protocol.step(stepped(100, 0), Input::Loaded(Ok(None)));
    // The clock was compared a moment ago and is not compared by this look.
    let mut turn = protocol.step(stepped(1000, HOUR), Input::Wake);
    while let Next::Call(Call::Look { time: StoreTime::Known, .. }) = turn.next {
        turn = protocol.step(stepped(1000, HOUR), told(None, vec![]));
    }
    assert!(matches!(turn.next, Next::Call(Call::Look { time: StoreTime::Wanted, .. })), "{turn:?}");
    let turn = protocol.step(stepped(1000, HOUR), told(Some(NOW + 1000), vec![]));
    assert_eq!(turn.events, [Event::ClockAhead { ahead_ms: HOUR, max_skew_ms: 30_000 }]);
    assert!(matches!(turn.next, Next::Wait(_)), "{turn:?}");
}

/// Goal: a clock that was wrong at the start and was corrected is not believed when it makes the same error again. Method: it starts
/// an hour ahead, goes back, and an hour forward. Found by the simulation.
#[test]
fn a_clock_that_was_ahead_at_the_start_may_not_be_ahead_again() {
    let ahead = |after_ms| Now { unix_ms: NOW + after_ms + HOUR, ..stepped(after_ms, 0) };
    let at_start = |now: Now| Now { unstepped_unix_ms: now.unstepped_unix_ms + HOUR, ..now };
    let mut protocol = protocol();
    protocol.step(at_start(ahead(0)), Input::Wake);
    let turn = protocol.step(at_start(ahead(0)), told(Some(NOW), vec![]));
    assert_eq!(turn.events, [Event::ClockAhead { ahead_ms: HOUR, max_skew_ms: 30_000 }]);
    protocol.step(at_start(stepped(1000, 0)), Input::Wake);
    swap_of(&protocol.step(at_start(stepped(1000, 0)), told(Some(NOW + 1000), vec![])));
    protocol.step(at_start(stepped(1000, 0)), done(1));
    let refused = renew(&mut protocol, at_start(ahead(4000)), Some(NOW + 4000), vec![]);
    let event = Event::ClockAhead { ahead_ms: HOUR, max_skew_ms: 30_000 };
    assert_eq!(refused, (vec![event], None));
}

/// Goal: a process that resumes a saved lease compares its clock before it renews. Method: it starts with a clock that is an hour
/// ahead.
#[test]
fn a_resumed_lease_is_not_renewed_by_a_clock_that_the_store_contradicts() {
    let (tag, revision) = (Tag(1), Revision(4));
    let held =
        Held { worker: WorkerId(9), revision, tag, from_unix_ms: NOW, until_unix_ms: NOW + HOUR + WINDOW };
    let mut protocol = Protocol::resume(settings(WorkerChoice::Any), 7, held);
    let event = Event::ClockAhead { ahead_ms: HOUR, max_skew_ms: 30_000 };
    assert_eq!(renew(&mut protocol, at(NOW + HOUR), Some(NOW), vec![]), (vec![event], None));
    let renewed = renew(&mut protocol, at(NOW + 2 * HOUR), Some(NOW + 2 * HOUR), vec![]);
    assert_eq!(renewed, (vec![], Some(NOW + 2 * HOUR + WINDOW)));
}

/// The record of another node that renewed a moment ago, by a clock that shows this time.
fn another(unix_ms: u64) -> Vec<Entry> {
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
        let (mut protocol, _) = holding();
        let now = stepped(3_000, HOUR);
        let (events, written) = renew(&mut protocol, now, None, another(NOW + 3_000 + other_ms));
        assert_eq!(written, confirms.then_some(now.unix_ms + WINDOW), "{other_ms}");
        assert_eq!(events.is_empty(), confirms);
    }
    let (mut protocol, worker) = holding();
    let now = stepped(3_000, HOUR);
    let own = Entry { worker, ..entry(0, "me/2", now.unix_ms + WINDOW, 1) };
    assert_eq!(renew(&mut protocol, now, None, vec![own]).1, None, "its own records confirm nothing");
}

/// Goal: a single node follows a corrected clock within the stated time, and never a wrong one. Method: it looks as often as it
/// says until the renewal is written.
#[test]
fn alone_over_a_store_without_a_clock_a_jump_is_followed_once_it_lasts() {
    for (by_ms, after_ms) in [(30_001, 6 * WINDOW), (HOUR, 6 * WINDOW), (24 * HOUR, 864_000)] {
        let (mut protocol, _) = holding();
        let mut after = 3_000;
        let written = loop {
            let (events, written) = renew(&mut protocol, stepped(after, by_ms), None, another(NOW));
            if let Some(written) = written {
                break written;
            }
            let followed_in_ms = after_ms - (after - 3_000);
            assert_eq!(events, [Event::ClockJumped { by_ms, followed_in_ms }]);
            after += 700.min(followed_in_ms);
        };
        assert_eq!(after, 3_000 + after_ms);
        assert_eq!(written, NOW + after + by_ms + WINDOW);
    }
}

/// Goal: steps within the allowed skew do not stop a node, and many of them block no more time than one. Method: 25 s forward every
/// 3 s.
#[test]
fn small_jumps_are_followed_at_once_and_do_not_add_up() {
    let (mut protocol, _) = holding();
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
    let (mut protocol, _) = holding();
    let now = stepped(3_000, LEAST_JUMP_MS);
    swap_of(&protocol.step(now, Input::Wake));
    protocol.step(now, done(2));
    let back = Now { unix_ms: NOW - HOUR, ..stepped(6_000, 0) };
    swap_of(&protocol.step(back, Input::Wake));
    protocol.step(back, done(3));
    swap_of(&protocol.step(stepped(9_000, 0), Input::Wake));
}

#[test]
fn a_doubted_renewal_is_given_back_by_what_the_store_has() {
    for refused in [false, true] {
        let (mut protocol, worker) = holding();
        let now = stepped(3_000, HOUR);
        protocol.step(now, Input::Wake);
        if refused {
            protocol.step(now, told(Some(NOW + 3_000), vec![]));
        } else {
            protocol.step(now, Input::Listed(Err(Failure::NotDone)));
        }
        let turn = protocol.step(now, Input::Release { used_until_unix_ms: NOW + 90 });
        assert_eq!(turn.next, Next::Call(Call::Load(worker)));
        let record = Some(entry(0, "me", NOW + WINDOW, 8).record.unwrap());
        let turn =
            protocol.step(now, Input::Loaded(Ok(Some(Entry { worker, revision: Revision(1), record }))));
        let (released, expected, record) = swap_of(&turn);
        assert_eq!((released, expected), (worker, Expected::Revision(Revision(1))));
        assert_eq!(record.until_unix_ms, NOW + 90);
        assert_eq!(protocol.step(now, done(2)).next, Next::Stop);
    }
}

/// The machine does not forget a renewal with an unknown outcome while it doubts the clock.
#[test]
fn a_write_that_arrives_while_the_clock_is_doubted_is_ours() {
    let (mut protocol, worker) = holding();
    let late = swap_of(&protocol.step(stepped(3_000, 0), Input::Wake)).2;
    protocol.step(stepped(5_000, 0), Input::Swapped(Err(Failure::Unknown)));
    protocol.step(stepped(5_100, 0), Input::Wake);
    let before = Some(entry(0, "me", NOW + WINDOW, 8).record.unwrap());
    let found =
        |revision, record| Input::Loaded(Ok(Some(Entry { worker, revision: Revision(revision), record })));
    let turn = protocol.step(stepped(5_200, HOUR), found(1, before));
    assert!(matches!(turn.next, Next::Call(Call::Look { time: StoreTime::Wanted, .. })), "{turn:?}");
    protocol.step(stepped(5_300, HOUR), told(Some(NOW + 5_300), vec![]));
    // The clock is correct again, and the first attempt has arrived meanwhile.
    swap_of(&protocol.step(stepped(6_000, 0), Input::Wake));
    let turn = protocol.step(stepped(6_000, 0), Input::Swapped(Ok(Swapped::Conflict)));
    assert_eq!(turn.next, Next::Call(Call::Load(worker)));
    let turn = protocol.step(stepped(6_000, 0), found(2, Some(late.clone())));
    assert_eq!(turn.events, [Event::Extended { until_unix_ms: late.until_unix_ms }]);
}
