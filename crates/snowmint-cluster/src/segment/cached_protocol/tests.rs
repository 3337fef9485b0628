//! Tests of the state machine, step by step: which calls it requests, how it treats answers, and what it never does.

use super::*;
use crate::segment::high_water_mark::Forgot;

fn settings() -> SegmentSettings {
    SegmentSettings {
        counters: 1,
        sizes: 10..=1000,
        first_size: 10,
        target_ms: 10_000,
        reserve_ms: 0,
        settle_ms: 0,
        range: NumberRange { first: 1, maximum: snowmint_store::MAX_NUMBER },
    }
}

fn numbers(first: u64, count: u64) -> Segment {
    striped(first, 1, count)
}

fn striped(first: u64, step: u64, count: u64) -> Segment {
    Segment::new(first, NonZeroU64::new(step).unwrap(), NonZeroU64::new(count).unwrap()).unwrap()
}

fn left(left: u64) -> Memory {
    Memory { left, ..Memory::default() }
}

#[track_caller]
fn asked(turn: &SegmentTurn) -> (usize, u64) {
    match turn.next {
        SegmentNext::Call(CounterCall::Reserve { counter, count, .. }) => (counter, count.get()),
        other => panic!("{other:?}"),
    }
}

/// Answers a call with numbers from `first` on, and returns the output.
#[track_caller]
fn answer(
    protocol: &mut SegmentProtocol,
    now_ms: u64,
    memory: Memory,
    turn: &SegmentTurn,
    first: u64,
) -> SegmentTurn {
    let (_, count) = asked(turn);
    protocol.step(now_ms, memory, SegmentInput::Reserved(Ok(numbers(first, count))))
}

#[test]
fn it_keeps_one_segment_besides_the_one_in_use() {
    let mut protocol = SegmentProtocol::new(&settings(), 1);
    let turn = protocol.step(0, left(0), SegmentInput::Wake);
    assert_eq!(asked(&turn), (0, 10));
    let turn = answer(&mut protocol, 5, left(0), &turn, 1);
    assert_eq!(turn.events, [CounterEvent::Reserved { counter: 0, segment: numbers(1, 10) }]);
    assert_eq!(turn.next, SegmentNext::Idle { keep: 10 });
    let turn = protocol.step(50, left(9), SegmentInput::Wake);
    assert_eq!(asked(&turn), (0, 10), "as soon as the first is touched");
    let turn = answer(&mut protocol, 60, left(5), &turn, 11);
    assert_eq!(turn.next, SegmentNext::Idle { keep: 10 });
}

#[test]
fn at_most_one_call_is_under_way() {
    let mut protocol = SegmentProtocol::new(&settings(), 1);
    let turn = protocol.step(0, left(0), SegmentInput::Wake);
    asked(&turn);
    for now_ms in 1..10 {
        assert_eq!(protocol.step(now_ms, left(0), SegmentInput::Wake).next, SegmentNext::Await);
    }
}

#[test]
fn a_lost_answer_costs_its_numbers_and_is_asked_again_later_and_later() {
    let mut protocol = SegmentProtocol::new(&settings(), 1);
    let mut now_ms = 0;
    let mut turn = protocol.step(now_ms, left(0), SegmentInput::Wake);
    let mut events = Vec::new();
    for _ in 0..6 {
        asked(&turn);
        turn = protocol.step(now_ms, left(0), SegmentInput::Reserved(Err(CounterFailure::TimedOut)));
        events.append(&mut turn.events);
        let SegmentNext::Wait(ms) = turn.next else { panic!("{turn:?}") };
        assert!(matches!(
            protocol.step(now_ms + ms - 1, left(0), SegmentInput::Wake).next,
            SegmentNext::Wait(1)
        ));
        now_ms += ms;
        turn = protocol.step(now_ms, left(0), SegmentInput::Wake);
    }
    assert_eq!(events, [CounterEvent::Failing { counter: 0 }], "reported once");
    let turn = answer(&mut protocol, now_ms, left(0), &turn, 61);
    let recovered = CounterEvent::Recovered { counter: 0, failures: 6 };
    assert_eq!(turn.events, [recovered, CounterEvent::Reserved { counter: 0, segment: numbers(61, 10) }]);
}

#[test]
fn with_several_counters_one_that_fails_is_passed_over_at_once() {
    let mut protocol = SegmentProtocol::new(&SegmentSettings { counters: 2, ..settings() }, 1);
    let turn = protocol.step(0, left(0), SegmentInput::Wake);
    let (first, _) = asked(&turn);
    let turn = protocol.step(0, left(0), SegmentInput::Reserved(Err(CounterFailure::Failed)));
    assert_eq!(turn.events, [CounterEvent::Failing { counter: first }]);
    let (second, count) = asked(&turn);
    assert_ne!(first, second);
    let turn = protocol.step(0, left(0), SegmentInput::Reserved(Ok(striped(second as u64 + 1, 2, count))));
    assert_eq!(turn.next, SegmentNext::Idle { keep: 10 });
    assert_eq!(protocol.failing(), 1);
}

#[test]
fn sizes_grow_while_segments_are_spent_fast_and_the_reserve_outlasts_an_outage() {
    let settings = SegmentSettings { reserve_ms: 20_000, ..settings() };
    let mut protocol = SegmentProtocol::new(&settings, 1);
    let (mut now_ms, mut in_memory, mut reserved) = (0_u64, 0_u64, 0_u64);
    let mut turn = protocol.step(now_ms, left(0), SegmentInput::Wake);
    let mut step = |protocol: &mut SegmentProtocol, turn: &SegmentTurn, now_ms: u64, in_memory: &mut u64| {
        match turn.next {
            SegmentNext::Call(CounterCall::Reserve { count, .. }) => {
                let segment = numbers(1 + reserved, count.get());
                reserved += count.get();
                let turn = protocol.step(now_ms, left(*in_memory), SegmentInput::Reserved(Ok(segment)));
                *in_memory += count.get();
                turn
            }
            _ => protocol.step(now_ms, left(*in_memory), SegmentInput::Wake),
        }
    };
    // 100 a second, in steps of 10 ms.
    for _ in 0..10_000 {
        turn = step(&mut protocol, &turn, now_ms, &mut in_memory);
        now_ms += 10;
        in_memory = in_memory.saturating_sub(1);
    }
    assert_eq!(protocol.demand_per_second(), 100);
    assert!((500..=1000).contains(&protocol.size()), "about 10 s of it: {}", protocol.size());
    while !matches!(turn.next, SegmentNext::Idle { .. }) {
        turn = step(&mut protocol, &turn, now_ms, &mut in_memory);
    }
    assert!(in_memory >= 2000, "20 s of it: {in_memory}");
    assert!(protocol.lasts_ms(in_memory) >= Some(20_000));
}

#[test]
fn nothing_is_reserved_that_there_is_no_room_for() {
    let mut protocol = SegmentProtocol::new(&settings(), 1);
    // The task is woken once about one of the queued segments is drawn, not before.
    for (left, keep) in [(1, 1), (9, 9)] {
        let full = Memory { left, room: MemoryRoom::Full, ..Memory::default() };
        assert_eq!(protocol.step(0, full, SegmentInput::Wake).next, SegmentNext::Idle { keep });
    }
    asked(&protocol.step(10, left(0), SegmentInput::Wake));
}

#[test]
fn numbers_end_at_the_maximum_and_the_end_is_reported_ahead() {
    let range = NumberRange { first: 1, maximum: 100 };
    let mut protocol = SegmentProtocol::new(&SegmentSettings { range, sizes: 10..=10, ..settings() }, 1);
    let (mut next, mut given, mut events) = (1, 0, Vec::new());
    let mut turn = protocol.step(0, left(0), SegmentInput::Wake);
    while let SegmentNext::Call(CounterCall::Reserve { count, .. }) = turn.next {
        turn = protocol.step(0, left(0), SegmentInput::Reserved(Ok(numbers(next, count.get()))));
        next += count.get();
        for event in &turn.events {
            match event {
                CounterEvent::Reserved { segment, .. } => given = segment.last(),
                other => events.push((given, *other)),
            }
        }
        if matches!(turn.next, SegmentNext::Idle { keep: 1.. }) {
            turn = protocol.step(0, left(0), SegmentInput::Wake);
        }
    }
    assert_eq!(given, 100);
    assert_eq!(events, [(80, CounterEvent::NearlyExhausted { highest: 90 }), (100, CounterEvent::Exhausted)]);
    assert_eq!(turn.next, SegmentNext::Idle { keep: 0 });
    assert_eq!(next, 102, "the counter does not run away: one call beyond the end, for one number");
}

#[test]
fn close_to_the_last_number_there_is_it_asks_for_fewer_until_they_fit() {
    let mut protocol = SegmentProtocol::new(&settings(), 1);
    let last = snowmint_store::MAX_NUMBER;
    let mut turn = protocol.step(0, left(0), SegmentInput::Wake);
    let mut counts = Vec::new();
    let mut next = last - 2;
    while let SegmentNext::Call(CounterCall::Reserve { count, .. }) = turn.next {
        counts.push(count.get());
        let answer = if next + count.get() <= last + 1 {
            next += count.get();
            Ok(numbers(next - count.get(), count.get()))
        } else {
            Err(CounterFailure::Full)
        };
        turn = protocol.step(0, left(0), SegmentInput::Reserved(answer));
        if turn.next == (SegmentNext::Idle { keep: 10 }) {
            turn = protocol.step(0, left(0), SegmentInput::Wake);
        }
    }
    assert_eq!(counts, [10, 5, 2, 1, 1]);
    assert_eq!(turn.events, [CounterEvent::Exhausted]);
}

#[test]
fn a_store_without_room_is_not_taken_for_the_end_of_numbers() {
    let mut protocol = SegmentProtocol::new(&SegmentSettings { sizes: 1..=1, ..settings() }, 1);
    protocol.step(0, left(0), SegmentInput::Wake);
    let turn = protocol.step(0, left(0), SegmentInput::Reserved(Err(CounterFailure::Full)));
    assert_eq!(turn.events, [CounterEvent::Failing { counter: 0 }]);
    assert!(matches!(turn.next, SegmentNext::Wait(_)));
}

#[test]
fn a_counter_below_the_first_number_is_moved_on_in_one_call() {
    let range = NumberRange { first: 1_000_000, maximum: 2_000_000 };
    let mut protocol = SegmentProtocol::new(&SegmentSettings { range, ..settings() }, 1);
    let turn = protocol.step(0, left(0), SegmentInput::Wake);
    let turn = answer(&mut protocol, 0, left(0), &turn, 1);
    assert_eq!((&turn.events[..], raises(&turn)), (&[][..], 999_999));
    // Another node was faster, and has taken some.
    let turn = protocol.step(0, left(0), SegmentInput::Raised(Ok(true)));
    let turn = answer(&mut protocol, 0, left(0), &turn, 1_000_010);
    assert_eq!(turn.events, [CounterEvent::Reserved { counter: 0, segment: numbers(1_000_010, 10) }]);
}

#[test]
fn a_counter_that_cannot_be_raised_to_the_first_number_is_moved_on_by_no_more_than_the_largest_size() {
    let range = NumberRange { first: 2500, maximum: 3000 };
    let mut protocol = SegmentProtocol::new(&SegmentSettings { range, ..settings() }, 1);
    let turn = protocol.step(0, left(0), SegmentInput::Wake);
    let turn = answer(&mut protocol, 0, left(0), &turn, 1);
    raises(&turn);
    let (mut turn, mut next) = (protocol.step(0, left(0), SegmentInput::Raised(Ok(false))), 11);
    let mut counts = Vec::new();
    while turn.events.is_empty() {
        let (_, count) = asked(&turn);
        counts.push(count);
        turn = protocol.step(0, left(0), SegmentInput::Reserved(Ok(numbers(next, count))));
        next += count;
    }
    assert_eq!(counts, [10, 1000, 1000, 489]);
    assert_eq!(turn.events, [CounterEvent::Reserved { counter: 0, segment: numbers(2500, 10) }]);
}

#[track_caller]
fn raises(turn: &SegmentTurn) -> u64 {
    match turn.next {
        SegmentNext::Call(CounterCall::Raise { above, .. }) => above,
        other => panic!("{other:?}"),
    }
}

#[test]
fn of_a_segment_from_a_counter_that_went_back_no_number_is_used() {
    let mut protocol = SegmentProtocol::new(&SegmentSettings { sizes: 10..=10, ..settings() }, 1);
    let turn = protocol.step(0, left(0), SegmentInput::Wake);
    answer(&mut protocol, 0, left(0), &turn, 101);
    // The last number was 110.
    for first in [1, 91, 101, 105, 110] {
        let turn = protocol.step(0, left(0), SegmentInput::Wake);
        let turn = answer(&mut protocol, 0, left(0), &turn, first);
        let segment = numbers(first, 10);
        assert_eq!(
            turn.events,
            [CounterEvent::WentBack { counter: 0, segment, highest: 110, forgot: Forgot::Settled }]
        );
        assert_eq!(raises(&turn), 110);
        let turn = protocol.step(0, left(0), SegmentInput::Raised(Err(CounterFailure::Failed)));
        let SegmentNext::Wait(ms) = turn.next else { panic!("{turn:?}") };
        assert_eq!(
            raises(&protocol.step(ms, left(0), SegmentInput::Wake)),
            110,
            "again, before anything else"
        );
        let turn = protocol.step(ms, left(10), SegmentInput::Raised(Ok(true)));
        let recovered = CounterEvent::Recovered { counter: 0, failures: 1 };
        assert_eq!(turn.events, [recovered, CounterEvent::Raised { counter: 0, above: 110 }]);
    }
    let turn = protocol.step(0, left(0), SegmentInput::Wake);
    let turn = answer(&mut protocol, 0, left(0), &turn, 111);
    assert_eq!(turn.events, [CounterEvent::Reserved { counter: 0, segment: numbers(111, 10) }]);
}

#[test]
fn what_others_in_the_process_received_counts_too_but_not_what_came_after_the_call() {
    let seen = [HighWaterMark::default()];
    let mut protocol =
        SegmentProtocol::new(&SegmentSettings { sizes: 10..=10, ..settings() }, 1).sharing(&seen);
    let turn = protocol.step(0, left(0), SegmentInput::Wake);
    // Another call was sent later, and was answered first.
    seen[0].received(numbers(11, 10));
    let turn = answer(&mut protocol, 0, left(0), &turn, 1);
    assert_eq!(turn.events, [CounterEvent::Reserved { counter: 0, segment: numbers(1, 10) }]);
    let turn = protocol.step(0, left(0), SegmentInput::Wake);
    let turn = answer(&mut protocol, 0, left(0), &turn, 11);
    let (segment, forgot) = (numbers(11, 10), Forgot::Unsettled);
    assert_eq!(turn.events, [CounterEvent::WentBack { counter: 0, segment, highest: 20, forgot }]);
}

#[test]
fn a_counter_that_went_back_and_cannot_be_raised_is_not_asked_again() {
    let mut protocol = SegmentProtocol::new(&settings(), 1);
    let turn = protocol.step(0, left(0), SegmentInput::Wake);
    answer(&mut protocol, 0, left(0), &turn, 101);
    let turn = protocol.step(0, left(0), SegmentInput::Wake);
    let turn = answer(&mut protocol, 0, left(0), &turn, 1);
    raises(&turn);
    let turn = protocol.step(0, left(0), SegmentInput::Raised(Ok(false)));
    assert_eq!(turn.events, [CounterEvent::Stuck { counter: 0, highest: 110 }]);
    assert_eq!(turn.next, SegmentNext::Idle { keep: 0 });
}

/// Answers a call with numbers that have to settle for 2 s.
#[track_caller]
fn marked(
    protocol: &mut SegmentProtocol,
    now_ms: u64,
    memory: Memory,
    turn: &SegmentTurn,
    first: u64,
) -> SegmentTurn {
    let segment = numbers(first, asked(turn).1);
    let answer = SegmentInput::ReservedMarked { segment, mark: Mark(first), settle_ms: 2000 };
    protocol.step(now_ms, memory, answer)
}

fn confirms(turn: &SegmentTurn) -> Option<u64> {
    match turn.next {
        SegmentNext::Call(CounterCall::Confirm { mark, .. }) => Some(mark.0),
        _ => None,
    }
}

#[test]
fn numbers_are_used_once_they_have_settled_and_in_order() {
    let mut protocol = SegmentProtocol::new(&SegmentSettings { sizes: 10..=10, ..settings() }, 1);
    let turn = protocol.step(0, left(0), SegmentInput::Wake);
    let turn = marked(&mut protocol, 100, left(0), &turn, 1);
    assert_eq!((&turn.events[..], turn.next), (&[][..], SegmentNext::Wait(100)), "they are on their way");
    for now_ms in [200, 2099, 2100] {
        assert_eq!(confirms(&protocol.step(now_ms, left(0), SegmentInput::Wake)), None, "{now_ms}");
    }
    assert_eq!(confirms(&protocol.step(2101, left(0), SegmentInput::Wake)), Some(1));
    let turn = protocol.step(2102, left(0), SegmentInput::Confirmed(Err(CounterFailure::TimedOut)));
    assert_eq!((&turn.events[..], confirms(&turn)), (&[][..], None));
    assert_eq!(confirms(&protocol.step(2302, left(0), SegmentInput::Wake)), Some(1), "tried again");
    let turn = protocol.step(2302, left(0), SegmentInput::Confirmed(Ok(true)));
    assert_eq!(turn.events, [CounterEvent::Reserved { counter: 0, segment: numbers(1, 10) }]);
}

#[test]
fn of_a_reservation_that_the_store_lost_no_number_is_used() {
    let mut protocol = SegmentProtocol::new(&settings(), 1);
    let turn = protocol.step(0, left(0), SegmentInput::Wake);
    marked(&mut protocol, 0, left(0), &turn, 1);
    assert_eq!(confirms(&protocol.step(2001, left(0), SegmentInput::Wake)), Some(1));
    let turn = protocol.step(2001, left(0), SegmentInput::Confirmed(Ok(false)));
    assert_eq!(turn.events, [CounterEvent::Lost { counter: 0, segment: numbers(1, 10) }]);
    // The next reservation shows whether the counter lost only that one, or more.
    let turn = marked(&mut protocol, 2001, left(0), &turn, 1);
    let (segment, forgot) = (numbers(1, 10), Forgot::Unsettled);
    assert_eq!(turn.events, [CounterEvent::WentBack { counter: 0, segment, highest: 10, forgot }]);
    assert_eq!(raises(&turn), 10);
    let turn = protocol.step(2001, left(0), SegmentInput::Release { unused: Vec::new() });
    assert_eq!(turn.next, SegmentNext::Await);
    let turn = protocol.step(2001, left(0), SegmentInput::Raised(Ok(true)));
    assert_eq!(
        (turn.events, turn.next),
        (vec![CounterEvent::Raised { counter: 0, above: 10 }], SegmentNext::Stop)
    );
}

fn unused(first: u64, count: u64) -> Unused {
    Unused { counter: 0, segment: numbers(first, count) }
}

#[track_caller]
fn given_back(turn: &SegmentTurn) -> Unused {
    match turn.next {
        SegmentNext::Call(CounterCall::GiveBack { unused, .. }) => unused,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_release_gives_back_the_newest_first_and_each_once() {
    let mut protocol = SegmentProtocol::new(&settings(), 1);
    protocol.step(0, left(0), SegmentInput::Wake);
    protocol.step(0, left(0), SegmentInput::Reserved(Ok(numbers(1, 10))));
    let release = SegmentInput::Release { unused: vec![unused(5, 6), unused(11, 10)] };
    let turn = protocol.step(0, left(0), release);
    assert_eq!(given_back(&turn), unused(11, 10));
    let turn = protocol.step(0, left(0), SegmentInput::GaveBack(Ok(true)));
    assert_eq!(turn.events, [CounterEvent::GivenBack { count: 10 }]);
    assert_eq!(given_back(&turn), unused(5, 6));
    let turn = protocol.step(0, left(0), SegmentInput::GaveBack(Ok(true)));
    assert_eq!(turn.next, SegmentNext::Stop);
    assert_eq!(protocol.step(0, left(0), SegmentInput::Wake).next, SegmentNext::Stop);
}

#[test]
fn what_may_have_been_given_back_is_not_given_back_again() {
    for answer in
        [Ok(false), Err(CounterFailure::Failed), Err(CounterFailure::TimedOut), Err(CounterFailure::Full)]
    {
        let mut protocol = SegmentProtocol::new(&settings(), 1);
        let release = SegmentInput::Release { unused: vec![unused(5, 6), unused(11, 10)] };
        let turn = protocol.step(0, left(0), release);
        assert_eq!(given_back(&turn), unused(11, 10));
        let turn = protocol.step(0, left(0), SegmentInput::GaveBack(answer));
        assert_eq!(
            (turn.events, turn.next),
            (vec![], SegmentNext::Stop),
            "{answer:?}: nor are the older ones"
        );
    }
}

/// Goal: numbers that were given back may return without an alarm. Method: a counter that took them, and one that did not.
#[test]
fn what_was_given_back_is_no_longer_counted_as_received() {
    for (answer, end) in [(Ok(true), 5), (Ok(false), 11), (Err(CounterFailure::TimedOut), 5)] {
        let seen = [HighWaterMark::default()];
        let mut protocol = SegmentProtocol::new(&settings(), 1).sharing(&seen);
        let turn = protocol.step(0, left(0), SegmentInput::Wake);
        self::answer(&mut protocol, 0, left(0), &turn, 1);
        protocol.step(0, left(0), SegmentInput::Release { unused: vec![unused(5, 6)] });
        protocol.step(0, left(0), SegmentInput::GaveBack(answer));
        assert_eq!(seen[0].end(), end, "{answer:?}");
    }
}

#[test]
fn numbers_that_come_after_the_end_are_given_back_and_handed_to_nobody() {
    let mut protocol = SegmentProtocol::new(&settings(), 1);
    protocol.step(0, left(0), SegmentInput::Wake);
    let turn = protocol.step(0, left(0), SegmentInput::Release { unused: vec![unused(5, 6)] });
    assert_eq!(turn.next, SegmentNext::Await);
    let turn = protocol.step(0, left(0), SegmentInput::Reserved(Ok(numbers(11, 10))));
    assert_eq!(turn.events, []);
    assert_eq!(given_back(&turn), unused(11, 10));
}
