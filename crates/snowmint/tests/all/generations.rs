//! Goal: when the clock goes back, generations repeat no id; the published algorithm does. Method: scripted
//! clocks against the rule and against the published stepped base sequence, and proptest over arbitrary clocks
//! for both places of the field.

use std::cmp::Ordering;
use std::collections::HashSet;

use proptest::prelude::*;
use snowmint::generator::BuildError;
use snowmint::{Clock, GenerateError, Generator, Layout, Lease, ManualClock, Rule, WorkerId};

const T0: u64 = 1_700_000_000_000;
/// The stepped base sequence as a field: four bases of 1024 sequences each.
const STEPPED: &str =
    "time:41@1ms datacenter:5 worker:5 generation:2 sequence:10 epoch:2010-11-04T01:42:54.657Z";
/// The backup worker id: id and id + 512.
const BACKUP: &str = "time:41@1ms generation:1 worker:9 sequence:12 epoch:2010-11-04T01:42:54.657Z";

fn generator<'a>(clock: &'a ManualClock, layout: &str, rule: &str) -> Generator<&'a ManualClock> {
    let layout: Layout = layout.parse().unwrap();
    Generator::builder(layout).worker(WorkerId(3)).rule(rule.parse().unwrap()).build(clock).unwrap()
}

/// The algorithm as published: each step back starts the sequence 1024 higher, and wraps after the fourth.
struct Published {
    last_ms: u64,
    sequence: u64,
    base: u64,
}

impl Published {
    fn next(&mut self, now_ms: u64) -> u64 {
        match now_ms.cmp(&self.last_ms) {
            Ordering::Less => {
                self.base = (self.base + 1024) % 4096;
                self.sequence = self.base;
            }
            Ordering::Equal => self.sequence = (self.sequence + 1) & 4095,
            Ordering::Greater => self.sequence = self.base,
        }
        self.last_ms = now_ms;
        now_ms << 12 | self.sequence
    }
}

/// Returns clock readings that come back to one instant `times` times, with `each` ids a time: a clock that
/// is set back repeatedly.
fn returns_to_one_instant(times: u64, each: u64) -> Vec<u64> {
    (0..times).flat_map(|_| (0..each).map(|_| T0).chain([T0 + 50])).collect()
}

#[test]
#[cfg_attr(miri, ignore = "thousands of ids one by one: minutes")]
fn the_published_stepped_sequence_repeats_ids_and_the_rule_does_not() {
    // Under load a turn runs past its quarter; at a low rate the fourth step back wraps to the first base.
    for (times, each) in [(2, 1500), (6, 3)] {
        let script = returns_to_one_instant(times, each);
        let mut published = Published { last_ms: 0, sequence: 0, base: 0 };
        let ids: Vec<u64> = script.iter().map(|ms| published.next(*ms)).collect();
        let distinct: HashSet<u64> = ids.iter().copied().collect();
        assert!(distinct.len() < ids.len(), "the published version repeats ids in {times} turns of {each}");

        let clock = ManualClock::at_unix_ms(T0);
        let ours = generator(&clock, STEPPED, "generation");
        let mut seen = HashSet::new();
        let mut refused = 0;
        for ms in script {
            clock.set_unix_ms(ms);
            match ours.try_next_id() {
                Ok(id) => assert!(seen.insert(id), "{id} twice"),
                Err(_) => refused += 1,
            }
        }
        assert!(seen.len() as u64 > each && refused > 0, "what cannot be unique is refused: {refused}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of ids one by one: minutes")]
fn three_returns_to_one_instant_survive_and_the_fourth_is_refused_with_how_far() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(&clock, STEPPED, "generation");
    let mut seen = HashSet::new();
    for turn in 0..4 {
        clock.set_unix_ms(T0);
        for _ in 0..1024 {
            let id = generator.try_next_id().unwrap();
            assert_eq!(generator.layout().split(id).unwrap().generation.0, turn);
            assert!(seen.insert(id));
        }
        assert!(
            matches!(generator.try_next_id(), Err(GenerateError::Exhausted { .. })),
            "a tick is used up, not entered again"
        );
        clock.advance_ms(50);
        assert!(seen.insert(generator.try_next_id().unwrap()));
    }
    clock.set_unix_ms(T0);
    let error = generator.try_next_id().unwrap_err();
    assert!(
        matches!(error, GenerateError::ClockBehind { behind_ms, .. } if behind_ms.get() == 50),
        "{error:?}"
    );
    clock.set_unix_ms(T0 + 51);
    assert!(seen.insert(generator.try_next_id().unwrap()), "once the clock is past a mark, it goes on");
}

#[test]
fn the_backup_worker_is_taken_and_given_back() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(&clock, BACKUP, "wait(10ms) then generation");
    let generation = |id| generator.layout().split(id).unwrap().generation.0;
    assert_eq!(generation(generator.try_next_id().unwrap()), 0);
    clock.set_unix_ms(T0 - 5);
    assert!(generator.try_next_id().unwrap_err().retry_after_ms().is_some(), "a short step is waited for");
    clock.set_unix_ms(T0 - 3_600_000);
    let next = generator.try_next_id();
    assert_eq!(next.map(generation), Ok(1), "an hour back");
    clock.set_unix_ms(T0 + 1000);
    assert_eq!(generation(generator.try_next_id().unwrap()), 1);
    clock.set_unix_ms(T0 + 500);
    assert_eq!(generation(generator.try_next_id().unwrap()), 0, "its mark lies before");
    clock.set_unix_ms(T0 - 1);
    assert!(generator.try_next_id().is_err(), "both are ahead");
}

#[test]
fn when_no_generation_fits_the_next_rule_decides() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(&clock, BACKUP, "generation then borrow(1s)");
    for step in [0, 100, 200] {
        clock.set_unix_ms(T0 - step);
        generator.try_next_id().unwrap();
    }
    assert!(generator.try_next_id().is_ok(), "100 ms ahead of the clock, borrowed");
    clock.set_unix_ms(T0 - 2000);
    assert!(generator.try_next_id().is_err());
}

#[test]
fn a_generation_is_entered_from_the_tick_after_its_last_on_and_not_before() {
    for (back_to, fits) in [(1, true), (0, false)] {
        let clock = ManualClock::at_unix_ms(T0);
        let generator = generator(&clock, BACKUP, "generation");
        let next_at = |ms| {
            clock.set_unix_ms(ms);
            generator.try_next_id()
        };
        next_at(T0).unwrap();
        next_at(T0 - 100).unwrap();
        next_at(T0 + 100).unwrap();
        assert_eq!(next_at(T0 + back_to).is_ok(), fits, "the first generation was used up to the end of T0");
    }
}

#[test]
fn a_tick_used_up_in_one_generation_is_none_to_trail_in_another() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(&clock, BACKUP, "generation");
    assert_eq!(generator.try_take(4096).unwrap().len(), 4096);
    for ms in [T0 - 100, T0 - 50] {
        clock.set_unix_ms(ms);
        let parts = generator.layout().split(generator.try_next_id().unwrap()).unwrap();
        assert_eq!(
            (generator.layout().unix_ms(parts.timestamp), parts.generation.0),
            (ms, 1),
            "fresh at once"
        );
    }
}

#[test]
fn ending_counts_every_generation() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(&clock, STEPPED, "generation");
    generator.try_next_id().unwrap();
    clock.set_unix_ms(T0 - 1000);
    generator.try_next_id().unwrap();
    assert_eq!(generator.end(), Some(T0 + 1), "the highest timestamp is in the generation that was left");
}

#[test]
fn what_was_ended_stays_ended_in_every_generation() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(&clock, STEPPED, "generation");
    generator.try_next_id().unwrap();
    clock.set_unix_ms(T0 - 50);
    generator.try_next_id().unwrap();
    assert_eq!(generator.end(), Some(T0 + 1));
    for ms in [0, 1, 100] {
        clock.set_unix_ms(T0 + ms);
        assert_eq!(generator.try_next_id(), Err(GenerateError::Ended));
        assert!(matches!(generator.try_take(3), Err(GenerateError::Ended)));
        assert_eq!(generator.end(), None);
    }
}

#[test]
fn a_layout_without_generations_refuses_the_rule() {
    let built = Generator::builder(Layout::TWITTER)
        .worker(WorkerId(0))
        .rule(Rule::generation())
        .build(ManualClock::at_unix_ms(0));
    assert_eq!(built.unwrap_err(), BuildError::NoGenerations);
}

proptest! {
    #[test]
    fn no_id_comes_twice_under_any_clock(
        steps in prop::collection::vec((-3000_i64..2000, 0_usize..30), 1..300),
        layout in prop_oneof![
            Just("time:41@1ms generation:2 worker:3 sequence:3 epoch:2020-01-01"),
            Just("time:41@10ms worker:3 generation:1 sequence:2 epoch:2020-01-01"),
            Just("generation:3 time:41@1ms sequence:1 epoch:2020-01-01"),
        ],
        rule in prop_oneof![Just("generation"), Just("wait(5ms) then generation then borrow(50ms)")],
        lease_ms in 1000_u64..100_000,
    ) {
        let clock = ManualClock::at_unix_ms(T0 + 500);
        let layout: Layout = layout.parse().unwrap();
        let lease = Lease { worker: WorkerId(0), from_unix_ms: T0, until_unix_ms: T0 + lease_ms };
        let builder = Generator::builder(layout).lease(lease).rule(rule.parse().unwrap());
        let generator = builder.build(&clock).unwrap();
        let mut seen = HashSet::new();
        for (step, count) in steps {
            clock.set_unix_ms(clock.unix_ms().saturating_add_signed(step));
            if let Ok(batch) = generator.try_take(count) {
                for id in batch {
                    let at = layout.unix_ms(layout.split(id).unwrap().timestamp);
                    prop_assert!(seen.insert(id), "{id} twice");
                    prop_assert!(at >= T0 && at < T0 + lease_ms, "outside the lease");
                    prop_assert!(at <= clock.unix_ms() + 50, "too far ahead");
                }
            }
        }
    }
}
