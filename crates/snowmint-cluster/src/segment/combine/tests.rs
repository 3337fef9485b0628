//! Callers, answers, and what each caller gets.

use super::*;

fn n(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

fn numbers(first: u64, count: u64) -> Segment {
    Segment::new(first, NonZeroU64::MIN, n(count)).unwrap()
}

fn combiner() -> Combiner {
    Combiner::new(Range { first: 1, maximum: 1000 }, 1)
}

fn reserve(combiner: &mut Combiner) -> u64 {
    match combiner.next(0) {
        Task::Reserve { count, .. } => count.get(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn callers_that_wait_share_a_call_in_the_order_they_came() {
    let mut combiner = combiner();
    assert_eq!(combiner.next(0), Task::Idle);
    for (caller, count) in [(1, 2), (2, 1), (3, 5)] {
        combiner.ask(Caller(caller), n(count), Order::Consecutive);
    }
    assert_eq!(reserve(&mut combiner), 8);
    let (given, _) = combiner.answered(1, Ok(numbers(10, 8)));
    let expected = [(1, numbers(10, 2)), (2, numbers(12, 1)), (3, numbers(13, 5))];
    assert_eq!(given, expected.map(|(caller, part)| (Caller(caller), Outcome::Done(part))));
    assert_eq!(combiner.next(0), Task::Idle);
}

#[test]
fn who_asks_while_a_call_is_under_way_gets_nothing_from_it() {
    let mut combiner = combiner();
    combiner.ask(Caller(1), n(1), Order::Any);
    assert_eq!(reserve(&mut combiner), 1);
    combiner.ask(Caller(2), n(1), Order::Any);
    assert_eq!(combiner.next(0), Task::Idle, "one call at a time");
    // The counter gave more than was asked for: the rest is nobody's.
    let (given, _) = combiner.answered(1, Ok(numbers(10, 5)));
    assert_eq!(given, [(Caller(1), Outcome::Done(numbers(10, 1)))]);
    assert_eq!(reserve(&mut combiner), 1);
}

#[test]
fn a_lost_answer_is_asked_again_for_everybody_who_still_waits() {
    let mut combiner = combiner();
    combiner.ask(Caller(1), n(1), Order::Any);
    combiner.ask(Caller(2), n(2), Order::Any);
    assert_eq!(reserve(&mut combiner), 3);
    assert_eq!(combiner.answered(0, Err(Failure::TimedOut)), (vec![], Some(Health::Failing)));
    combiner.ask(Caller(3), n(4), Order::Any);
    combiner.keep(|caller| caller != Caller(2));
    let Task::Wait(ms) = combiner.next(0) else { panic!() };
    let Task::Reserve { count, timeout_ms } = combiner.next(ms) else { panic!() };
    assert_eq!((count.get(), timeout_ms), (5, 2000));
    let (given, health) = combiner.answered(ms, Ok(numbers(4, 5)));
    assert_eq!(given.len(), 2);
    assert_eq!(health, Some(Health::Recovered { failures: 1 }));
}

#[test]
fn a_counter_that_gives_fewer_is_asked_again_for_the_rest() {
    let mut combiner = combiner();
    combiner.ask(Caller(1), n(3), Order::Any);
    combiner.ask(Caller(2), n(3), Order::Any);
    combiner.ask(Caller(3), n(3), Order::Any);
    assert_eq!(reserve(&mut combiner), 9);
    let (given, _) = combiner.answered(0, Ok(numbers(1, 4)));
    let expected = [(1, Outcome::Done(numbers(1, 3))), (2, Outcome::Part(numbers(4, 1)))];
    assert_eq!(given, expected.map(|(caller, outcome)| (Caller(caller), outcome)));
    assert_eq!(reserve(&mut combiner), 5);
    let (given, _) = combiner.answered(0, Ok(numbers(5, 5)));
    let expected = [(2, numbers(5, 2)), (3, numbers(7, 3))];
    assert_eq!(given, expected.map(|(caller, part)| (Caller(caller), Outcome::Done(part))));
}

#[test]
fn what_cannot_be_consecutive_is_refused() {
    let mut combiner = combiner();
    combiner.ask(Caller(1), n(3), Order::Consecutive);
    reserve(&mut combiner);
    let (given, _) = combiner.answered(0, Ok(numbers(1, 2)));
    assert_eq!(given, [(Caller(1), Outcome::TooMany { given: 2 })]);
    combiner.ask(Caller(2), n(2), Order::Consecutive);
    combiner.ask(Caller(3), n(1), Order::Consecutive);
    reserve(&mut combiner);
    let (given, _) = combiner.answered(0, Ok(Segment::new(3, n(2), n(3)).unwrap()));
    let one = Segment::new(3, n(2), n(1)).unwrap();
    assert_eq!(given, [(Caller(2), Outcome::Apart { step: n(2) }), (Caller(3), Outcome::Done(one))]);
}

#[test]
fn beyond_the_maximum_there_is_nothing() {
    let mut combiner = combiner();
    for caller in 1..=3 {
        combiner.ask(Caller(caller), n(2), Order::Any);
    }
    reserve(&mut combiner);
    let (given, _) = combiner.answered(0, Ok(numbers(998, 6)));
    let last = Outcome::Part(numbers(1000, 1));
    let first = Outcome::Done(numbers(998, 2));
    let expected = [(1, first), (2, last), (2, Outcome::Exhausted), (3, Outcome::Exhausted)];
    assert_eq!(given, expected.map(|(caller, outcome)| (Caller(caller), outcome)));
    combiner.ask(Caller(4), n(1), Order::Any);
    assert_eq!(combiner.next(0), Task::Refuse(Caller(4)), "without another call");
    assert_eq!(combiner.next(0), Task::Idle);
}

#[test]
fn one_that_asks_for_more_than_there_is_does_not_harm_the_others() {
    let mut combiner = combiner();
    combiner.ask(Caller(1), n(1), Order::Any);
    combiner.ask(Caller(2), n(MOST - 1), Order::Any);
    assert_eq!(reserve(&mut combiner), MOST);
    assert_eq!(combiner.answered(0, Err(Failure::Full)).0, []);
    assert_eq!(reserve(&mut combiner), 1);
    assert_eq!(combiner.answered(0, Ok(numbers(1, 1))).0, [(Caller(1), Outcome::Done(numbers(1, 1)))]);
    assert_eq!(reserve(&mut combiner), MOST - 1);
    assert_eq!(combiner.answered(0, Err(Failure::Full)).0, [(Caller(2), Outcome::NoRoom)]);
}

#[test]
fn a_counter_below_the_first_number_is_moved_on() {
    let mut combiner = Combiner::new(Range { first: 500, maximum: 1000 }, 1);
    combiner.ask(Caller(1), n(1), Order::Any);
    reserve(&mut combiner);
    assert_eq!(combiner.answered(0, Ok(numbers(1, 1))).0, []);
    let Task::Raise { above: 499, .. } = combiner.next(0) else { panic!() };
    assert_eq!(combiner.next(0), Task::Idle);
    assert_eq!(combiner.raised(0, Ok(true)), None);
    assert_eq!(reserve(&mut combiner), 1);
    let (given, _) = combiner.answered(0, Ok(numbers(500, 1)));
    assert_eq!(given, [(Caller(1), Outcome::Done(numbers(500, 1)))]);
}

#[test]
fn a_counter_that_cannot_be_raised_to_the_first_number_is_moved_on_by_addition() {
    let mut combiner = Combiner::new(Range { first: 500, maximum: 1000 }, 1);
    combiner.ask(Caller(1), n(1), Order::Any);
    reserve(&mut combiner);
    combiner.answered(0, Ok(numbers(1, 1)));
    combiner.next(0);
    combiner.raised(0, Ok(false));
    assert_eq!(reserve(&mut combiner), 1);
    combiner.answered(0, Ok(numbers(2, 1)));
    assert_eq!(reserve(&mut combiner), 498);
    let (given, _) = combiner.answered(0, Ok(numbers(3, 498)));
    assert_eq!(given, [(Caller(1), Outcome::Done(numbers(500, 1)))]);
}

#[test]
fn from_a_counter_that_went_back_nobody_gets_a_number() {
    let mut combiner = combiner();
    combiner.ask(Caller(1), n(2), Order::Any);
    reserve(&mut combiner);
    combiner.answered(0, Ok(numbers(100, 2)));
    combiner.ask(Caller(2), n(2), Order::Any);
    reserve(&mut combiner);
    let forgot = Forgot::Settled;
    let went_back = Health::WentBack { segment: numbers(101, 2), highest: 101, forgot };
    assert_eq!(combiner.answered(0, Ok(numbers(101, 2))), (vec![], Some(went_back)));
    let Task::Raise { above: 101, .. } = combiner.next(0) else { panic!() };
    assert_eq!(combiner.raised(0, Ok(true)), Some(Health::Raised { above: 101 }));
    assert_eq!(reserve(&mut combiner), 2);
    let (given, _) = combiner.answered(0, Ok(numbers(102, 2)));
    assert_eq!(given, [(Caller(2), Outcome::Done(numbers(102, 2)))]);
}

#[test]
fn who_asks_a_counter_that_went_back_and_cannot_be_raised_is_told() {
    let mut combiner = combiner();
    combiner.ask(Caller(1), n(2), Order::Any);
    reserve(&mut combiner);
    combiner.answered(0, Ok(numbers(100, 2)));
    combiner.ask(Caller(2), n(2), Order::Any);
    reserve(&mut combiner);
    combiner.answered(0, Ok(numbers(1, 2)));
    combiner.next(0);
    assert_eq!(combiner.raised(0, Ok(false)), Some(Health::Stuck { highest: 101 }));
    assert_eq!(combiner.next(0), Task::GiveUp { caller: Caller(2), highest: 101 });
    assert_eq!(combiner.next(0), Task::Idle);
}
