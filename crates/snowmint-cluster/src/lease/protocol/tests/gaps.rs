//! Goal: a clock that was ahead blocks no worker, and no timestamp is granted twice. Method: as in the parent module, with records
//! that show a gap below a grant in the future.

use super::*;

const HOUR: u64 = 3_600_000;
const WORKER: WorkerId = WorkerId(7);

/// The record of a node whose clock was ahead: a grant that begins at `from`, above a gap that begins before now.
fn ahead(revision: u64, from: u64) -> WorkerEntry {
    let mut entry = entry(WORKER.0, "ahead", from + WINDOW, 1);
    entry.revision = Revision(revision);
    let record = entry.record.as_mut().unwrap();
    record.granted = Granted::up_to(NOW - 1000).and(from..from + WINDOW);
    entry
}

fn wanting() -> LeaseProtocol {
    LeaseProtocol::new(settings(WorkerChoice::Only(WORKER)), 7)
}

/// A machine with a lease `[NOW + 5500, NOW + 5500 + WINDOW)` in a gap that ends at `gap_end`.
fn lease_in_gap(gap_end: u64) -> LeaseProtocol {
    let mut protocol = wanting();
    protocol.step(at(NOW), LeaseInput::Wake);
    let turn = protocol.step(at(NOW), listed(vec![ahead(5, gap_end)]));
    assert!(
        matches!(&turn.events[..], [.., LeaseEvent::Awaited { .. }]),
        "its holder may live and renew it: {turn:?}"
    );
    protocol.step(at(NOW + 5500), LeaseInput::Wake);
    let turn = protocol.step(at(NOW + 5500), listed(vec![ahead(5, gap_end)]));
    let (_, expected, record) = swap_of(&turn);
    assert_eq!(expected, Expected::Revision(Revision(5)));
    assert_eq!((record.from_unix_ms, record.until_unix_ms), (Some(NOW + 5500), NOW + 5500 + WINDOW));
    assert_eq!(record.granted.until_unix_ms(), gap_end + WINDOW, "what an earlier version reads as the end");
    let turn = protocol.step(at(NOW + 5500), LeaseInput::Swapped(Ok(Swap::Done(Revision(6)))));
    assert!(matches!(turn.events[..], [LeaseEvent::Granted(SettledLease { is_in_gap: true, .. })]));
    protocol
}

#[test]
fn a_gap_is_granted_once_nobody_renews_the_lease_above_it_and_renewed_up_to_that() {
    let gap_end = NOW + 5500 + WINDOW + 2500;
    let mut protocol = lease_in_gap(gap_end);
    let turn = protocol.step(at(NOW + 8500), LeaseInput::Wake);
    assert_eq!(swap_of(&turn).2.until_unix_ms, gap_end, "not NOW + 8500 + WINDOW");
    let turn = protocol.step(at(NOW + 8500), LeaseInput::Swapped(Ok(Swap::Done(Revision(7)))));
    assert_eq!(extended(&turn.events), [gap_end]);
    let turn = protocol.step(at(NOW + 11_500), LeaseInput::Wake);
    assert_eq!(turn.events, [LeaseEvent::GapEnds { worker: WORKER, until_unix_ms: gap_end }]);
    assert!(
        matches!(turn.next, LeaseNext::Call(LeaseCall::Look { .. })),
        "another worker, before the lease ends"
    );
}

#[test]
fn a_node_that_renews_by_a_clock_ahead_keeps_its_worker() {
    let mut protocol = wanting();
    protocol.step(at(NOW), LeaseInput::Wake);
    protocol.step(at(NOW), listed(vec![ahead(5, NOW + HOUR)]));
    protocol.step(at(NOW + 5500), LeaseInput::Wake);
    let turn = protocol.step(at(NOW + 5500), listed(vec![ahead(6, NOW + HOUR)]));
    assert!(matches!(&turn.events[..], [.., LeaseEvent::Taken { .. }]), "{turn:?}");
    assert!(matches!(turn.next, LeaseNext::Wait(_)));
}

#[test]
fn a_released_lease_in_the_future_leaves_its_gap_at_once() {
    let mut released = ahead(5, NOW + HOUR);
    released.record.as_mut().unwrap().released = true;
    let mut protocol = wanting();
    protocol.step(at(NOW), LeaseInput::Wake);
    let turn = protocol.step(at(NOW), listed(vec![released]));
    assert_eq!(swap_of(&turn).2.until_unix_ms, NOW + WINDOW);
}

#[test]
fn a_release_gives_the_rest_of_the_gap_back() {
    let mut protocol = lease_in_gap(NOW + HOUR);
    let record =
        swap_of(&protocol.step(at(NOW + 5800), LeaseInput::Release { used_until_unix_ms: NOW + 6000 })).2;
    assert!(record.released && record.is_in_gap());
    assert_eq!(record.until_unix_ms, NOW + 6000);
    assert_eq!(record.granted.gap_at(NOW + 6000, 1), Some(NOW + 6000..NOW + HOUR));
    assert_eq!(record.granted.until_unix_ms(), NOW + HOUR + WINDOW);
}

/// Goal: the holder of a lease in the future that loses the worker to a lease in the gap does not take this for an overlap.
#[test]
fn a_lease_in_the_gap_below_is_no_overlap() {
    let (mut protocol, worker) = lease();
    protocol.step(at(NOW + 3000), LeaseInput::Wake);
    protocol.step(at(NOW + 3000), LeaseInput::Swapped(Ok(Swap::Conflict)));
    let mut below = entry(worker.0, "other", NOW - HOUR + WINDOW, 1 << 100);
    let record = below.record.as_mut().unwrap();
    record.from_unix_ms = Some(NOW - HOUR);
    record.granted = Granted::up_to(0).and(NOW..NOW + WINDOW).and(NOW - HOUR..NOW - HOUR + WINDOW);
    let turn = protocol.step(at(NOW + 3000), LeaseInput::Loaded(Ok(Some(below))));
    assert_eq!(turn.events, [LeaseEvent::Lost { worker, until_unix_ms: NOW + WINDOW }]);
}

/// Goal: a node whose worker is blocked by a grant above an ended gap waits as long as for any other worker.
#[test]
fn a_worker_blocked_above_an_ended_gap_is_looked_at_seldom() {
    let mut blocked = ahead(5, NOW - 1000);
    let record = blocked.record.as_mut().unwrap();
    (record.from_unix_ms, record.until_unix_ms) = (Some(NOW - 5000), NOW - 1000);
    record.granted = Granted::up_to(NOW - HOUR).and(NOW - 1000..NOW + 60_000).and(NOW - 5000..NOW - 1000);
    let mut protocol = wanting();
    protocol.step(at(NOW), LeaseInput::Wake);
    let turn = protocol.step(at(NOW), listed(vec![blocked]));
    assert!(matches!(turn.next, LeaseNext::Wait(ms) if ms >= WINDOW / 12), "{turn:?}");
    assert!(
        matches!(turn.events[..], [.., LeaseEvent::Taken { until_unix_ms, .. }] if until_unix_ms == NOW + 60_000),
        "{turn:?}"
    );
}
