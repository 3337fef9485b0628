//! What other systems' generators returned under a clock script, and what a correct one returns under it.
//! Ours starts each tick at 0: published sequences are compared relative to the first of their tick.

use std::time::Duration;

use snowmint::{GenerateError, Generator, Layout, ManualClock, Parts, Rule, Start, WorkerId};

use super::{Case, Kind, preset};

pub(crate) const KINDS: &[Kind] = &[
    Kind::new("sequence:max_vibration_offset", 1, one_thread),
    Kind::new("sequence:last_ms_preset", 1, clock_called_back),
    Kind::new("sequence:!clock_reads_ms_since_epoch", 1, tick_used_up),
    Kind::new("behaviour:steps", 1, twitters_clock_back),
];

fn generator(layout: Layout, clock: &ManualClock, rule: Rule) -> Generator<&ManualClock> {
    let builder = Generator::builder(layout)
        .worker(WorkerId(0))
        .rule(rule)
        .start(Start::Zero)
        .max_behind(Duration::ZERO);
    builder.build(clock).unwrap()
}

fn next(layout: &Layout, generator: &Generator<&ManualClock>) -> Result<Parts, GenerateError> {
    generator.try_next_id().map(|id| layout.split(id).unwrap())
}

/// Returns the ids of a case, split into their fields.
fn published(case: &Case<'_>, layout: &Layout) -> Vec<Parts> {
    let id = |number| snowmint::Id::new(number).unwrap();
    case.numbers("ids").into_iter().map(|number| layout.split(id(number)).unwrap()).collect()
}

/// Makes an id for each published one: the same ticks, the same distances inside a tick.
fn follow(layout: &Layout, clock: &ManualClock, generator: &Generator<&ManualClock>, published: &[Parts]) {
    for theirs in published {
        let first = published.iter().find(|other| other.timestamp == theirs.timestamp).unwrap();
        clock.set_unix_ms(layout.unix_ms(theirs.timestamp));
        let ours = next(layout, generator).unwrap();
        assert_eq!((ours.timestamp, ours.worker), (theirs.timestamp, theirs.worker));
        assert_eq!(ours.sequence.0, theirs.sequence.0 - first.sequence.0);
    }
}

fn one_thread(case: &Case<'_>) {
    let layout = preset("shardingsphere");
    let clock = ManualClock::at_unix_ms(layout.epoch_unix_ms());
    let published = published(case, &layout);
    let ticks: Vec<u64> = published.iter().map(|parts| parts.timestamp.0).collect();
    assert_eq!(ticks, case.numbers("clock_reads_ms_since_epoch"));
    let first_of_ticks = published
        .iter()
        .filter(|parts| published.iter().find(|other| other.timestamp == parts.timestamp).unwrap() == *parts);
    let offsets: Vec<u64> = first_of_ticks.map(|parts| u64::from(parts.sequence.0)).collect();
    assert_eq!(offsets.iter().max(), Some(&case.number("max_vibration_offset")), "{offsets:?}");
    assert!(published.iter().all(|parts| u64::from(parts.worker.0) == case.number("worker")));
    follow(&layout, &clock, &generator(layout, &clock, Rule::REJECT), &published);
}

/// After a tolerated sleep, theirs read the clock once and did not check that it had caught up: the first id
/// lies before one that was already made. Ours reports how long to wait, as often as necessary.
fn clock_called_back(case: &Case<'_>) {
    let layout = preset("shardingsphere");
    let at = |tick: u64| layout.epoch_unix_ms() + tick;
    let last = case.number("last_ms_preset");
    let published = published(case, &layout);
    assert!(published[0].timestamp.0 < last, "theirs is older than what was made before");
    assert!(published.iter().all(|parts| u64::from(parts.worker.0) == case.number("worker")));

    let clock = ManualClock::at_unix_ms(at(last));
    let generator = generator(layout, &clock, Rule::wait(Duration::from_millis(10)));
    let mut made = vec![next(&layout, &generator).unwrap()];
    for read in case.numbers("clock_reads_ms_since_epoch") {
        clock.set_unix_ms(at(read));
        match next(&layout, &generator) {
            Ok(parts) => made.push(parts),
            Err(error) => {
                assert_eq!(error.retry_after_ms().map(std::num::NonZero::get), Some(last - read));
            }
        }
        assert!(made.iter().all(|parts| parts.timestamp.0 >= last), "{made:?}");
        assert!(read < last || made.last().unwrap().timestamp.0 == read, "{made:?}");
    }
    assert!(made.is_sorted_by_key(|parts| (parts.timestamp, parts.sequence)), "{made:?}");
    assert!(!made.contains(&published[0]));
}

/// Uses up the first tick before the published ids begin.
fn tick_used_up(case: &Case<'_>) {
    let layout = preset("shardingsphere");
    let clock = ManualClock::at_unix_ms(layout.epoch_unix_ms());
    let generator = generator(layout, &clock, Rule::REJECT);
    assert_eq!(generator.try_take(10_000).unwrap().len(), 4096);
    assert!(matches!(generator.try_next_id(), Err(GenerateError::Exhausted { .. })));
    follow(&layout, &clock, &generator, &published(case, &layout));
}

fn twitters_clock_back(case: &Case<'_>) {
    let layout = preset("twitter");
    let clock = ManualClock::at_unix_ms(layout.epoch_unix_ms());
    let generator = generator(layout, &clock, Rule::REJECT);
    let steps = case.get("steps").unwrap().as_array().unwrap();
    assert_eq!(steps.len(), 4);
    for step in steps {
        clock.set_unix_ms(layout.epoch_unix_ms() + step["clock"].as_u64().unwrap());
        let made = next(&layout, &generator);
        let expected = &step["expect"];
        if expected.as_str().is_some_and(|text| text.starts_with("InvalidSystemClock")) {
            assert!(matches!(made, Err(GenerateError::ClockBehind { .. })), "{made:?}");
            continue;
        }
        let made = made.unwrap();
        assert_eq!(made.timestamp.0, expected["time"].as_u64().unwrap());
        assert_eq!(u64::from(made.sequence.0), expected["sequence"].as_u64().unwrap());
    }
}
