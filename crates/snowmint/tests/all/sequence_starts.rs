//! Goal: ids spread evenly over shards however rarely they are drawn, and no start costs uniqueness. Method:
//! a chi-squared test of `id % n` for n below 64, for one consumer and for two and three that draw in turn
//! from one generator, and the share of each class for n up to 1,024; the skew of a start at zero shows that
//! both tests can fail.

use std::collections::HashSet;

use snowmint::{Clock as _, Generator, Id, Layout, ManualClock, Start, WorkerId};

const T0: u64 = 1_700_000_000_000;
const DRAWS: usize = 40_000;
const EVEN: [Start; 2] = [Start::RANDOM, Start::Rolling];

/// Draws ids at a low rate: `burst` at once, at irregular intervals.
fn drawn(start: Start, burst: usize) -> Vec<Id> {
    draw(start, burst, DRAWS)
}

fn draw(start: Start, burst: usize, count: usize) -> Vec<Id> {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(start, &clock);
    let mut ids = Vec::new();
    let mut dice = 1_u64;
    for _ in 0..count / burst {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        clock.advance_ms(1 + (dice >> 33) % 30);
        ids.extend((0..burst).map(|_| generator.try_next_id().unwrap()));
    }
    ids
}

/// Returns whether the ids fall evenly into n classes: chi-squared within five standard deviations of the
/// expected value.
fn is_even(ids: &[Id], n: u64) -> bool {
    let mut counts = vec![0_u32; usize::try_from(n).unwrap()];
    for id in ids {
        counts[usize::try_from(id.get() % n).unwrap()] += 1;
    }
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let (expected, freedom) = (ids.len() as f64 / n as f64, (n - 1) as f64);
    let chi: f64 = counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
    chi < freedom + 5.0 * (2.0 * freedom).sqrt() + 5.0
}

fn uneven(ids: &[Id], most: u64) -> Vec<u64> {
    (2..=most).filter(|n| !is_even(ids, *n)).collect()
}

/// Returns for which n up to 1,024 some class gets less than half or more than one and a half of its fair
/// share.
fn unfair(ids: &[Id]) -> Vec<u64> {
    let mut counts = Vec::new();
    let is_unfair = |n: &u64| {
        counts.clear();
        counts.resize(usize::try_from(*n).unwrap(), 0_usize);
        for id in ids {
            counts[usize::try_from(id.get() % n).unwrap()] += 1;
        }
        let fair = ids.len() / counts.len();
        counts.iter().any(|count| !(fair / 2..=fair + fair / 2).contains(count))
    };
    (2..=1024).filter(is_unfair).collect()
}

fn generator(start: Start, clock: &ManualClock) -> Generator<&ManualClock> {
    Generator::builder(Layout::TWITTER).worker(WorkerId(0)).start(start).build(clock).unwrap()
}

#[test]
#[cfg_attr(miri, ignore = "statistics: tens of thousands of ids")]
fn a_start_at_zero_skews_shards() {
    let ids = drawn(Start::Zero, 1);
    assert!(ids.iter().all(|id| id.get() % 4096 == 0));
    assert!(!is_even(&ids, 2) && !is_even(&ids, 64), "or the test could not fail");
    let unfair = unfair(&ids);
    assert!((1..=10).all(|bits| unfair.contains(&(1 << bits))), "or the test could not fail: {unfair:?}");
}

#[test]
#[cfg_attr(miri, ignore = "statistics: tens of thousands of ids")]
fn random_and_rolling_starts_do_not() {
    for start in EVEN {
        assert_eq!(uneven(&drawn(start, 1), 63), [] as [u64; 0], "{start:?}");
        // Rolling ids are not independent of each other, so for a large n only their shares are compared.
        assert_eq!(unfair(&draw(start, 1, 10 * DRAWS)), [] as [u64; 0], "{start:?}");
    }
}

/// Each id comes from a generator of its own, as with one process per id: in a later tick than the one it was
/// built in, or in the first tick that it may use.
#[test]
#[cfg_attr(miri, ignore = "statistics: tens of thousands of ids")]
fn first_ids_of_new_generators_are_even() {
    let clock = ManualClock::at_unix_ms(T0);
    for (start, wait_ms) in EVEN.into_iter().flat_map(|start| [(start, 0), (start, 3)]) {
        let first = || {
            let next_tick_unix_ms = clock.unix_ms() + 1;
            let builder = Generator::builder(Layout::TWITTER).worker(WorkerId(0)).start(start);
            let generator = builder.not_before_unix_ms(next_tick_unix_ms).build(&clock).unwrap();
            clock.advance_ms(1 + wait_ms);
            generator.try_next_id().unwrap()
        };
        let ids: Vec<Id> = std::iter::repeat_with(first).take(DRAWS).collect();
        assert!(ids.is_sorted_by(|a, b| a < b));
        assert_eq!(uneven(&ids, 1024), [] as [u64; 0], "{start}, {wait_ms} ms");
    }
}

#[test]
#[cfg_attr(miri, ignore = "statistics: tens of thousands of ids")]
fn each_of_two_and_three_consumers_in_turn_gets_an_even_share() {
    for (start, consumers) in EVEN.into_iter().flat_map(|start| [(start, 2), (start, 3)]) {
        // Each draw in a tick of its own, and all of a round in one.
        for burst in [1, consumers] {
            let ids = drawn(start, burst);
            for consumer in 0..consumers {
                let mine: Vec<Id> = ids.iter().copied().skip(consumer).step_by(consumers).collect();
                let uneven = uneven(&mine, 63);
                assert_eq!(
                    uneven,
                    [] as [u64; 0],
                    "{start}, consumer {consumer} of {consumers}, {burst} a tick"
                );
            }
        }
    }
}

#[test]
fn a_random_start_wraps_inside_its_tick_and_loses_nothing() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(Start::RANDOM, &clock);
    let mut seen = HashSet::new();
    let ticks = if cfg!(miri) { 1 } else { 20 };
    for ms in 0..ticks {
        let one = generator.try_next_id().unwrap();
        let rest: Vec<Id> = generator.try_take(10_000).unwrap().collect();
        assert_eq!(rest.len(), 4095, "every sequence of the tick");
        for id in rest.into_iter().chain([one]) {
            assert!(seen.insert(id));
            let parts = Layout::TWITTER.split(id).unwrap();
            assert_eq!((Layout::TWITTER.unix_ms(parts.timestamp), parts.worker.0), (T0 + ms, 0));
        }
        clock.advance_ms(1);
    }
    assert_eq!(seen.len() as u64, ticks * 4096);
}

#[test]
#[cfg_attr(miri, ignore = "statistics: tens of thousands of ids")]
fn a_bound_keeps_the_start_below_it() {
    let bounded = drawn("random(100)".parse().unwrap(), 1);
    let starts: HashSet<u64> = bounded.iter().map(|id| id.get() % 4096).collect();
    assert!(starts.iter().all(|start| *start < 100) && starts.len() == 100);
}

#[test]
#[cfg_attr(miri, ignore = "statistics: tens of thousands of ids")]
fn rolling_goes_on_from_the_last_value_and_ids_increase() {
    let ids = drawn(Start::Rolling, 3);
    assert!(ids.is_sorted_by(|a, b| a < b));
    let sequences: Vec<u64> = ids.iter().map(|id| id.get() % 4096).collect();
    for round in sequences.windows(6).step_by(3) {
        let gap = round[3].checked_sub(round[2] + 1);
        assert!(gap.is_some_and(|gap| gap < 8) || (round[2] >= 2047 && round[3] < 8), "{round:?}");
    }
    assert!(
        *sequences.iter().max().unwrap() <= 2047 + 7 + 2,
        "a tick that starts anew has at least half its sequences"
    );
}

#[test]
fn under_load_a_rolling_start_uses_every_sequence_in_order() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(Start::Rolling, &clock);
    let mut last = generator.try_next_id().unwrap();
    for ms in 0..if cfg!(miri) { 3 } else { 100 } {
        let mut made = 0;
        while let Ok(batch) = generator.try_take(1000) {
            for id in batch {
                assert!(last < id);
                assert_eq!(Layout::TWITTER.unix_ms(Layout::TWITTER.split(id).unwrap().timestamp), T0 + ms);
                (last, made) = (id, made + 1);
            }
        }
        if ms == 0 {
            assert!((2048 - 1..4096).contains(&made), "{made}: at least the upper half of the first tick");
        } else {
            assert_eq!(made, 4096, "all of a tick after a full one");
        }
        clock.advance_ms(1);
    }
}
