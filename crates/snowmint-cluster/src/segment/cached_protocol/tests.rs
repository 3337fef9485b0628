//! Tests of the state machine, step by step: which calls it requests, how it treats answers, and what it never does.

use super::*;

fn settings() -> SegmentSettings {
    SegmentSettings {
        counters: 1,
        sizes: 10..=1000,
        first_size: 10,
        target_ms: 10_000,
        reserve_ms: 0,
        settle_ms: 0,
        range: Range { first: 1, maximum: snowmint_store::MAX_NUMBER },
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
fn asked(turn: &Output) -> (usize, u64) {
    match turn.next {
        Next::Call(Call::Reserve { counter, count, .. }) => (counter, count.get()),
        other => panic!("{other:?}"),
    }
}

/// Answers a call with numbers from `first` on, and returns the output.
#[track_caller]
fn answer(protocol: &mut Protocol, now_ms: u64, memory: Memory, turn: &Output, first: u64) -> Output {
    let (_, count) = asked(turn);
    protocol.step(now_ms, memory, Input::Reserved(Ok(numbers(first, count))))
}

#[test]
fn it_keeps_one_segment_besides_the_one_in_use() {
    let mut protocol = Protocol::new(&settings(), 1);
    let turn = protocol.step(0, left(0), Input::Wake);
    assert_eq!(asked(&turn), (0, 10));
    let turn = answer(&mut protocol, 5, left(0), &turn, 1);
    assert_eq!(turn.events, [Event::Reserved { counter: 0, segment: numbers(1, 10) }]);
    assert_eq!(turn.next, Next::Idle { keep: 10 });
    let turn = protocol.step(50, left(9), Input::Wake);
    assert_eq!(asked(&turn), (0, 10), "as soon as the first is touched");
    let turn = answer(&mut protocol, 60, left(5), &turn, 11);
    assert_eq!(turn.next, Next::Idle { keep: 10 });
}

#[test]
fn at_most_one_call_is_under_way() {
    let mut protocol = Protocol::new(&settings(), 1);
    let turn = protocol.step(0, left(0), Input::Wake);
    asked(&turn);
    for now_ms in 1..10 {
        assert_eq!(protocol.step(now_ms, left(0), Input::Wake).next, Next::Await);
    }
}

#[test]
fn a_lost_answer_costs_its_numbers_and_is_asked_again_later_and_later() {
    let mut protocol = Protocol::new(&settings(), 1);
    let mut now_ms = 0;
    let mut turn = protocol.step(now_ms, left(0), Input::Wake);
    let mut events = Vec::new();
    for _ in 0..6 {
        asked(&turn);
        turn = protocol.step(now_ms, left(0), Input::Reserved(Err(CounterFailure::TimedOut)));
        events.append(&mut turn.events);
        let Next::Wait(ms) = turn.next else { panic!("{turn:?}") };
        assert!(matches!(protocol.step(now_ms + ms - 1, left(0), Input::Wake).next, Next::Wait(1)));
        now_ms += ms;
        turn = protocol.step(now_ms, left(0), Input::Wake);
    }
    assert_eq!(events, [Event::Failing { counter: 0 }], "reported once");
    let turn = answer(&mut protocol, now_ms, left(0), &turn, 61);
    let recovered = Event::Recovered { counter: 0, failures: 6 };
    assert_eq!(turn.events, [recovered, Event::Reserved { counter: 0, segment: numbers(61, 10) }]);
}

#[test]
fn with_several_counters_one_that_fails_is_passed_over_at_once() {
    let mut protocol = Protocol::new(&SegmentSettings { counters: 2, ..settings() }, 1);
    let turn = protocol.step(0, left(0), Input::Wake);
    let (first, _) = asked(&turn);
    let turn = protocol.step(0, left(0), Input::Reserved(Err(CounterFailure::Failed)));
    assert_eq!(turn.events, [Event::Failing { counter: first }]);
    let (second, count) = asked(&turn);
    assert_ne!(first, second);
    let turn = protocol.step(0, left(0), Input::Reserved(Ok(striped(second as u64 + 1, 2, count))));
    assert_eq!(turn.next, Next::Idle { keep: 10 });
    assert_eq!(protocol.failing(), 1);
}

#[test]
fn sizes_grow_while_segments_are_spent_fast_and_the_reserve_outlasts_an_outage() {
    let settings = SegmentSettings { reserve_ms: 20_000, ..settings() };
    let mut protocol = Protocol::new(&settings, 1);
    let (mut now_ms, mut in_memory, mut reserved) = (0_u64, 0_u64, 0_u64);
    let mut turn = protocol.step(now_ms, left(0), Input::Wake);
    let mut step = |protocol: &mut Protocol, turn: &Output, now_ms: u64, in_memory: &mut u64| match turn.next
    {
        Next::Call(Call::Reserve { count, .. }) => {
            let segment = numbers(1 + reserved, count.get());
            reserved += count.get();
            let turn = protocol.step(now_ms, left(*in_memory), Input::Reserved(Ok(segment)));
            *in_memory += count.get();
            turn
        }
        _ => protocol.step(now_ms, left(*in_memory), Input::Wake),
    };
    // 100 a second, in steps of 10 ms.
    for _ in 0..10_000 {
        turn = step(&mut protocol, &turn, now_ms, &mut in_memory);
        now_ms += 10;
        in_memory = in_memory.saturating_sub(1);
    }
    assert_eq!(protocol.demand_per_second(), 100);
    assert!((500..=1000).contains(&protocol.size()), "about 10 s of it: {}", protocol.size());
    while !matches!(turn.next, Next::Idle { .. }) {
        turn = step(&mut protocol, &turn, now_ms, &mut in_memory);
    }
    assert!(in_memory >= 2000, "20 s of it: {in_memory}");
    assert!(protocol.lasts_ms(in_memory) >= Some(20_000));
}

#[test]
fn nothing_is_reserved_that_there_is_no_room_for() {
    let mut protocol = Protocol::new(&settings(), 1);
    // The task is woken once about one of the queued segments is drawn, not before.
    for (left, keep) in [(1, 1), (9, 9)] {
        let full = Memory { left, room: Room::Full, ..Memory::default() };
        assert_eq!(protocol.step(0, full, Input::Wake).next, Next::Idle { keep });
    }
    asked(&protocol.step(10, left(0), Input::Wake));
}

#[test]
fn numbers_end_at_the_maximum_and_the_end_is_reported_ahead() {
    let range = Range { first: 1, maximum: 100 };
    let mut protocol = Protocol::new(&SegmentSettings { range, sizes: 10..=10, ..settings() }, 1);
    let (mut next, mut given, mut events) = (1, 0, Vec::new());
    let mut turn = protocol.step(0, left(0), Input::Wake);
    while let Next::Call(Call::Reserve { count, .. }) = turn.next {
        turn = protocol.step(0, left(0), Input::Reserved(Ok(numbers(next, count.get()))));
        next += count.get();
        for event in &turn.events {
            match event {
                Event::Reserved { segment, .. } => given = segment.last(),
                other => events.push((given, *other)),
            }
        }
        if matches!(turn.next, Next::Idle { keep: 1.. }) {
            turn = protocol.step(0, left(0), Input::Wake);
        }
    }
    assert_eq!(given, 100);
    assert_eq!(events, [(80, Event::NearlyExhausted { highest: 90 }), (100, Event::Exhausted)]);
    assert_eq!(turn.next, Next::Idle { keep: 0 });
    assert_eq!(next, 102, "the counter does not run away: one call beyond the end, for one number");
}

#[test]
fn close_to_the_last_number_there_is_it_asks_for_fewer_until_they_fit() {
    let mut protocol = Protocol::new(&settings(), 1);
    let last = snowmint_store::MAX_NUMBER;
    let mut turn = protocol.step(0, left(0), Input::Wake);
    let mut counts = Vec::new();
    let mut next = last - 2;
    while let Next::Call(Call::Reserve { count, .. }) = turn.next {
        counts.push(count.get());
        let answer = if next + count.get() <= last + 1 {
            next += count.get();
            Ok(numbers(next - count.get(), count.get()))
        } else {
            Err(CounterFailure::Full)
        };
        turn = protocol.step(0, left(0), Input::Reserved(answer));
        if turn.next == (Next::Idle { keep: 10 }) {
            turn = protocol.step(0, left(0), Input::Wake);
        }
    }
    assert_eq!(counts, [10, 5, 2, 1, 1]);
    assert_eq!(turn.events, [Event::Exhausted]);
}

#[test]
fn a_store_without_room_is_not_taken_for_the_end_of_numbers() {
    let mut protocol = Protocol::new(&SegmentSettings { sizes: 1..=1, ..settings() }, 1);
    protocol.step(0, left(0), Input::Wake);
    let turn = protocol.step(0, left(0), Input::Reserved(Err(CounterFailure::Full)));
    assert_eq!(turn.events, [Event::Failing { counter: 0 }]);
    assert!(matches!(turn.next, Next::Wait(_)));
}

#[test]
fn a_counter_below_the_first_number_is_moved_on_in_one_call() {
    let range = Range { first: 1_000_000, maximum: 2_000_000 };
    let mut protocol = Protocol::new(&SegmentSettings { range, ..settings() }, 1);
    let turn = protocol.step(0, left(0), Input::Wake);
    let turn = answer(&mut protocol, 0, left(0), &turn, 1);
    assert_eq!((&turn.events[..], raises(&turn)), (&[][..], 999_999));
    // Another node was faster, and has taken some.
    let turn = protocol.step(0, left(0), Input::Raised(Ok(true)));
    let turn = answer(&mut protocol, 0, left(0), &turn, 1_000_010);
    assert_eq!(turn.events, [Event::Reserved { counter: 0, segment: numbers(1_000_010, 10) }]);
}

#[test]
fn a_counter_that_cannot_be_raised_to_the_first_number_is_moved_on_by_no_more_than_the_largest_size() {
    let range = Range { first: 2500, maximum: 3000 };
    let mut protocol = Protocol::new(&SegmentSettings { range, ..settings() }, 1);
    let turn = protocol.step(0, left(0), Input::Wake);
    let turn = answer(&mut protocol, 0, left(0), &turn, 1);
    raises(&turn);
    let (mut turn, mut next) = (protocol.step(0, left(0), Input::Raised(Ok(false))), 11);
    let mut counts = Vec::new();
    while turn.events.is_empty() {
        let (_, count) = asked(&turn);
        counts.push(count);
        turn = protocol.step(0, left(0), Input::Reserved(Ok(numbers(next, count))));
        next += count;
    }
    assert_eq!(counts, [10, 1000, 1000, 489]);
    assert_eq!(turn.events, [Event::Reserved { counter: 0, segment: numbers(2500, 10) }]);
}

#[track_caller]
fn raises(turn: &Output) -> u64 {
    match turn.next {
        Next::Call(Call::Raise { above, .. }) => above,
        other => panic!("{other:?}"),
    }
}

#[test]
fn of_a_segment_from_a_counter_that_went_back_no_number_is_used() {
    let mut protocol = Protocol::new(&SegmentSettings { sizes: 10..=10, ..settings() }, 1);
    let turn = protocol.step(0, left(0), Input::Wake);
    answer(&mut protocol, 0, left(0), &turn, 101);
    // The last number was 110.
    for first in [1, 91, 101, 105, 110] {
        let turn = protocol.step(0, left(0), Input::Wake);
        let turn = answer(&mut protocol, 0, left(0), &turn, first);
        let segment = numbers(first, 10);
        assert_eq!(
            turn.events,
            [Event::WentBack { counter: 0, segment, highest: 110, forgot: Forgot::Settled }]
        );
        assert_eq!(raises(&turn), 110);
        let turn = protocol.step(0, left(0), Input::Raised(Err(CounterFailure::Failed)));
        let Next::Wait(ms) = turn.next else { panic!("{turn:?}") };
        assert_eq!(raises(&protocol.step(ms, left(0), Input::Wake)), 110, "again, before anything else");
        let turn = protocol.step(ms, left(10), Input::Raised(Ok(true)));
        let recovered = Event::Recovered { counter: 0, failures: 1 };
        assert_eq!(turn.events, [recovered, Event::Raised { counter: 0, above: 110 }]);
    }
    let turn = protocol.step(0, left(0), Input::Wake);
    let turn = answer(&mut protocol, 0, left(0), &turn, 111);
    assert_eq!(turn.events, [Event::Reserved { counter: 0, segment: numbers(111, 10) }]);
}

#[test]
fn what_others_in_the_process_received_counts_too_but_not_what_came_after_the_call() {
    let seen = [HighWaterMark::default()];
    let mut protocol = Protocol::new(&SegmentSettings { sizes: 10..=10, ..settings() }, 1).sharing(&seen);
    let turn = protocol.step(0, left(0), Input::Wake);
    // Another call was sent later, and was answered first.
    seen[0].received(numbers(11, 10));
    let turn = answer(&mut protocol, 0, left(0), &turn, 1);
    assert_eq!(turn.events, [Event::Reserved { counter: 0, segment: numbers(1, 10) }]);
    let turn = protocol.step(0, left(0), Input::Wake);
    let turn = answer(&mut protocol, 0, left(0), &turn, 11);
    let (segment, forgot) = (numbers(11, 10), Forgot::Unsettled);
    assert_eq!(turn.events, [Event::WentBack { counter: 0, segment, highest: 20, forgot }]);
}

#[test]
fn a_counter_that_went_back_and_cannot_be_raised_is_not_asked_again() {
    let mut protocol = Protocol::new(&settings(), 1);
    let turn = protocol.step(0, left(0), Input::Wake);
    answer(&mut protocol, 0, left(0), &turn, 101);
    let turn = protocol.step(0, left(0), Input::Wake);
    let turn = answer(&mut protocol, 0, left(0), &turn, 1);
    raises(&turn);
    let turn = protocol.step(0, left(0), Input::Raised(Ok(false)));
    assert_eq!(turn.events, [Event::Stuck { counter: 0, highest: 110 }]);
    assert_eq!(turn.next, Next::Idle { keep: 0 });
}

/// Answers a call with numbers that have to settle for 2 s.
#[track_caller]
fn marked(protocol: &mut Protocol, now_ms: u64, memory: Memory, turn: &Output, first: u64) -> Output {
    let segment = numbers(first, asked(turn).1);
    let answer = Input::ReservedMarked { segment, mark: Mark(first), settle_ms: 2000 };
    protocol.step(now_ms, memory, answer)
}

fn confirms(turn: &Output) -> Option<u64> {
    match turn.next {
        Next::Call(Call::Confirm { mark, .. }) => Some(mark.0),
        _ => None,
    }
}

#[test]
fn numbers_are_used_once_they_have_settled_and_in_order() {
    let mut protocol = Protocol::new(&SegmentSettings { sizes: 10..=10, ..settings() }, 1);
    let turn = protocol.step(0, left(0), Input::Wake);
    let turn = marked(&mut protocol, 100, left(0), &turn, 1);
    assert_eq!((&turn.events[..], turn.next), (&[][..], Next::Wait(100)), "they are on their way");
    for now_ms in [200, 2099, 2100] {
        assert_eq!(confirms(&protocol.step(now_ms, left(0), Input::Wake)), None, "{now_ms}");
    }
    assert_eq!(confirms(&protocol.step(2101, left(0), Input::Wake)), Some(1));
    let turn = protocol.step(2102, left(0), Input::Confirmed(Err(CounterFailure::TimedOut)));
    assert_eq!((&turn.events[..], confirms(&turn)), (&[][..], None));
    assert_eq!(confirms(&protocol.step(2302, left(0), Input::Wake)), Some(1), "tried again");
    let turn = protocol.step(2302, left(0), Input::Confirmed(Ok(true)));
    assert_eq!(turn.events, [Event::Reserved { counter: 0, segment: numbers(1, 10) }]);
}

#[test]
fn of_a_reservation_that_the_store_lost_no_number_is_used() {
    let mut protocol = Protocol::new(&settings(), 1);
    let turn = protocol.step(0, left(0), Input::Wake);
    marked(&mut protocol, 0, left(0), &turn, 1);
    assert_eq!(confirms(&protocol.step(2001, left(0), Input::Wake)), Some(1));
    let turn = protocol.step(2001, left(0), Input::Confirmed(Ok(false)));
    assert_eq!(turn.events, [Event::Lost { counter: 0, segment: numbers(1, 10) }]);
    // The next reservation shows whether the counter lost only that one, or more.
    let turn = marked(&mut protocol, 2001, left(0), &turn, 1);
    let (segment, forgot) = (numbers(1, 10), Forgot::Unsettled);
    assert_eq!(turn.events, [Event::WentBack { counter: 0, segment, highest: 10, forgot }]);
    assert_eq!(raises(&turn), 10);
    let turn = protocol.step(2001, left(0), Input::Release { unused: Vec::new() });
    assert_eq!(turn.next, Next::Await);
    let turn = protocol.step(2001, left(0), Input::Raised(Ok(true)));
    assert_eq!((turn.events, turn.next), (vec![Event::Raised { counter: 0, above: 10 }], Next::Stop));
}

fn unused(first: u64, count: u64) -> Unused {
    Unused { counter: 0, segment: numbers(first, count) }
}

#[track_caller]
fn given_back(turn: &Output) -> Unused {
    match turn.next {
        Next::Call(Call::GiveBack { unused, .. }) => unused,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_release_gives_back_the_newest_first_and_each_once() {
    let mut protocol = Protocol::new(&settings(), 1);
    protocol.step(0, left(0), Input::Wake);
    protocol.step(0, left(0), Input::Reserved(Ok(numbers(1, 10))));
    let release = Input::Release { unused: vec![unused(5, 6), unused(11, 10)] };
    let turn = protocol.step(0, left(0), release);
    assert_eq!(given_back(&turn), unused(11, 10));
    let turn = protocol.step(0, left(0), Input::GaveBack(Ok(true)));
    assert_eq!(turn.events, [Event::GivenBack { count: 10 }]);
    assert_eq!(given_back(&turn), unused(5, 6));
    let turn = protocol.step(0, left(0), Input::GaveBack(Ok(true)));
    assert_eq!(turn.next, Next::Stop);
    assert_eq!(protocol.step(0, left(0), Input::Wake).next, Next::Stop);
}

#[test]
fn what_may_have_been_given_back_is_not_given_back_again() {
    for answer in
        [Ok(false), Err(CounterFailure::Failed), Err(CounterFailure::TimedOut), Err(CounterFailure::Full)]
    {
        let mut protocol = Protocol::new(&settings(), 1);
        let release = Input::Release { unused: vec![unused(5, 6), unused(11, 10)] };
        let turn = protocol.step(0, left(0), release);
        assert_eq!(given_back(&turn), unused(11, 10));
        let turn = protocol.step(0, left(0), Input::GaveBack(answer));
        assert_eq!((turn.events, turn.next), (vec![], Next::Stop), "{answer:?}: nor are the older ones");
    }
}

/// Goal: numbers that were given back may return without an alarm. Method: a counter that took them, and one that did not.
#[test]
fn what_was_given_back_is_no_longer_counted_as_received() {
    for (answer, end) in [(Ok(true), 5), (Ok(false), 11), (Err(CounterFailure::TimedOut), 5)] {
        let seen = [HighWaterMark::default()];
        let mut protocol = Protocol::new(&settings(), 1).sharing(&seen);
        let turn = protocol.step(0, left(0), Input::Wake);
        self::answer(&mut protocol, 0, left(0), &turn, 1);
        protocol.step(0, left(0), Input::Release { unused: vec![unused(5, 6)] });
        protocol.step(0, left(0), Input::GaveBack(answer));
        assert_eq!(seen[0].end(), end, "{answer:?}");
    }
}

#[test]
fn numbers_that_come_after_the_end_are_given_back_and_handed_to_nobody() {
    let mut protocol = Protocol::new(&settings(), 1);
    protocol.step(0, left(0), Input::Wake);
    let turn = protocol.step(0, left(0), Input::Release { unused: vec![unused(5, 6)] });
    assert_eq!(turn.next, Next::Await);
    let turn = protocol.step(0, left(0), Input::Reserved(Ok(numbers(11, 10))));
    assert_eq!(turn.events, []);
    assert_eq!(given_back(&turn), unused(11, 10));
}
