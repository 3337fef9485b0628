//! Goal: no interleaving of threads repeats an id, leaves the lease, or returns an id after the end. Method:
//! loom runs every interleaving with up to three preemptions of two threads, and two preemptions of three, on
//! the shipped generator, with loom's atomics instead of core's.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::num::NonZeroU32;
use std::sync::Arc;

use loom::thread;
use snowmint_loom::generator::BlockGenerator;
use snowmint_loom::{GenerateError, Generator, Id, Lease, ManualClock, Rule, WorkerId};

const T0: u64 = 1_700_000_000_000;
type Shared = Arc<Generator<Arc<ManualClock>>>;

fn generator(layout: &str, rule: Rule, lease_ms: u64) -> (Arc<ManualClock>, Shared) {
    let clock = Arc::new(ManualClock::at_unix_ms(T0));
    let lease = Lease { worker: WorkerId(0), from_unix_ms: T0, until_unix_ms: T0 + lease_ms };
    let builder = Generator::builder(layout.parse().unwrap()).lease(lease).rule(rule);
    let generator = Arc::new(builder.build(Arc::clone(&clock)).unwrap());
    (clock, generator)
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn all_differ(mut ids: Vec<Id>) {
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "an id is a duplicate");
}

/// Three threads at the same time, with two preemptions, so that it takes seconds.
fn explore_three(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

const TWO_A_TICK: &str = "time:41@1ms sequence:1 epoch:2020-01-01";

#[test]
fn the_fast_path_and_the_end_of_a_tick() {
    explore(|| {
        let (_, generator) = generator(TWO_A_TICK, Rule::REJECT, 1000);
        // Opens the fast path for the rest of the tick: one id is left, and two threads draw.
        let first = generator.try_next_id().unwrap();
        let draw = |generator: Shared| move || generator.try_next_id().ok();
        let other = thread::spawn(draw(Arc::clone(&generator)));
        let mine = draw(Arc::clone(&generator))();
        let theirs = other.join().unwrap();
        let ids: Vec<Id> = [Some(first), mine, theirs].into_iter().flatten().collect();
        assert_eq!(ids.len(), 2, "exactly the two ids of the tick");
        all_differ(ids);
    });
}

#[test]
fn three_draw_at_the_end_of_a_tick_while_the_next_begins() {
    explore_three(|| {
        let (clock, generator) = generator(TWO_A_TICK, Rule::REJECT, 1000);
        let first = generator.try_next_id().unwrap();
        // One thread overshoots and undoes it, one claims the next tick, one overshoots the new tick.
        let draw = || {
            let generator = Arc::clone(&generator);
            thread::spawn(move || generator.try_next_id().ok())
        };
        let (one, other) = (draw(), draw());
        clock.advance_ms(1);
        let mine = generator.try_next_id().ok();
        let theirs = [one.join().unwrap(), other.join().unwrap()];
        let ids: Vec<Id> = theirs.into_iter().flatten().chain(mine).chain([first]).collect();
        assert!(ids.len() >= 2, "the last thread finds the next tick open");
        all_differ(ids);
    });
}

#[test]
fn the_end_comes_between_two_that_draw_blocks() {
    explore_three(|| {
        let (_, generator) = generator("time:41@1ms sequence:3 epoch:2020-01-01", Rule::REJECT, 1000);
        let draw = || {
            let generator = Arc::clone(&generator);
            thread::spawn(move || {
                let mut block = BlockGenerator::new(&*generator, NonZeroU32::new(2).unwrap());
                [block.try_next_id().ok(), block.try_next_id().ok()]
            })
        };
        let (one, other) = (draw(), draw());
        let used_until = generator.end().unwrap();
        let layout = *generator.layout();
        let ids: Vec<Id> = one.join().unwrap().into_iter().chain(other.join().unwrap()).flatten().collect();
        for id in &ids {
            assert!(
                layout.unix_ms(layout.split(*id).unwrap().timestamp) < used_until,
                "used after the reported end"
            );
        }
        all_differ(ids);
    });
}

#[test]
fn a_tick_that_passes_while_two_draw_is_no_clock_that_went_back() {
    explore(|| {
        let (clock, generator) = generator(TWO_A_TICK, Rule::REJECT, 1000);
        let draw = |generator: &Shared| match generator.try_next_id() {
            Err(error @ GenerateError::ClockBehind { .. }) => {
                panic!("the clock only went forward: {error:?}")
            }
            drawn => drawn.ok(),
        };
        let mut ids = vec![draw(&generator)];
        let theirs = {
            let generator = Arc::clone(&generator);
            thread::spawn(move || [draw(&generator), draw(&generator)])
        };
        clock.advance_ms(1);
        ids.push(draw(&generator));
        ids.extend(theirs.join().unwrap());
        all_differ(ids.into_iter().flatten().collect());
    });
}

#[test]
fn a_lease_that_ends_and_is_extended_while_drawn_from() {
    explore(|| {
        let (_, generator) = generator(TWO_A_TICK, Rule::borrow(std::time::Duration::from_millis(5)), 1);
        let draw = |generator: &Shared| {
            let generator = Arc::clone(generator);
            thread::spawn(move || [generator.try_next_id().ok(), generator.try_next_id().ok()])
        };
        let theirs = draw(&generator);
        generator.extend_lease(T0 + 2);
        let mut ids: Vec<Id> = generator.try_next_id().ok().into_iter().collect();
        ids.extend(theirs.join().unwrap().into_iter().flatten());
        let layout = generator.layout();
        for id in &ids {
            assert!(layout.unix_ms(layout.split(*id).unwrap().timestamp) < T0 + 2, "beyond the lease");
        }
        all_differ(ids);
    });
}

#[test]
fn the_end_comes_once_and_counts_everything() {
    explore(|| {
        let (_, generator) = generator(TWO_A_TICK, Rule::borrow(std::time::Duration::from_millis(5)), 1000);
        let theirs = {
            let generator = Arc::clone(&generator);
            thread::spawn(move || [generator.try_next_id().ok(), generator.try_next_id().ok()])
        };
        let used_until = generator.end().unwrap();
        assert_eq!(generator.try_next_id(), Err(GenerateError::Ended));
        assert_eq!(generator.end(), None);
        let layout = *generator.layout();
        for id in theirs.join().unwrap().into_iter().flatten() {
            assert!(
                layout.unix_ms(layout.split(id).unwrap().timestamp) < used_until,
                "used after the reported end"
            );
        }
    });
}

#[test]
fn the_lease_that_follows_begins_after_all_that_was_used() {
    explore(|| {
        let (clock, old) = generator(TWO_A_TICK, Rule::borrow(std::time::Duration::from_millis(5)), 1000);
        let theirs = {
            let old = Arc::clone(&old);
            thread::spawn(move || [old.try_next_id().ok(), old.try_next_id().ok()])
        };
        let used_until = old.end().unwrap();
        let lease = Lease { worker: WorkerId(0), from_unix_ms: used_until, until_unix_ms: used_until + 10 };
        let rule = Rule::borrow(std::time::Duration::from_millis(20));
        let next =
            Generator::builder(*old.layout()).lease(lease).rule(rule).build(Arc::clone(&clock)).unwrap();
        let mut ids: Vec<Id> = (0..3).filter_map(|_| next.try_next_id().ok()).collect();
        assert!(!ids.is_empty());
        ids.extend(theirs.join().unwrap().into_iter().flatten());
        all_differ(ids);
    });
}

#[test]
fn blocks_of_two_threads_and_a_shared_draw() {
    explore(|| {
        let (_, generator) = generator("time:41@1ms sequence:2 epoch:2020-01-01", Rule::REJECT, 1000);
        let size = NonZeroU32::new(2).unwrap();
        let theirs = {
            let mut block = BlockGenerator::new(Arc::clone(&generator), size);
            thread::spawn(move || [block.try_next_id().ok(), block.try_next_id().ok()])
        };
        let mut block = BlockGenerator::new(Arc::clone(&generator), size);
        let mut ids: Vec<Id> =
            [block.try_next_id().ok(), generator.try_next_id().ok()].into_iter().flatten().collect();
        ids.extend(theirs.join().unwrap().into_iter().flatten());
        all_differ(ids);
    });
}

#[test]
fn generations_left_and_entered_by_two_threads() {
    explore(|| {
        let layout = "time:41@1ms generation:1 sequence:2 epoch:2020-01-01";
        let (clock, generator) = generator(layout, Rule::generation(), 1000);
        clock.set_unix_ms(T0 + 5);
        let mut ids = vec![generator.try_next_id().unwrap()];
        clock.set_unix_ms(T0 + 3);
        let theirs = {
            let generator = Arc::clone(&generator);
            thread::spawn(move || generator.try_next_id().ok())
        };
        ids.extend(generator.try_next_id().ok());
        clock.set_unix_ms(T0 + 6);
        ids.extend(generator.try_next_id().ok());
        clock.set_unix_ms(T0 + 4);
        ids.extend(generator.try_next_id().ok());
        ids.extend(theirs.join().unwrap());
        all_differ(ids);
    });
}

#[test]
fn a_tick_that_was_not_used_up_is_not_trailed() {
    explore(|| {
        let clock = Arc::new(ManualClock::at_unix_ms(T0));
        let layout: snowmint_loom::Layout = "time:41@1ms sequence:2 epoch:2020-01-01".parse().unwrap();
        let builder = Generator::builder(layout)
            .worker(WorkerId(0))
            .rule(Rule::REJECT)
            .max_behind(std::time::Duration::ZERO);
        let generator = Arc::new(builder.build(Arc::clone(&clock)).unwrap());
        for _ in 0..4 {
            generator.try_next_id().unwrap();
        }
        let theirs = {
            let generator = Arc::clone(&generator);
            thread::spawn(move || generator.try_next_id().is_ok())
        };
        clock.advance_ms(1);
        let _ = generator.try_next_id();
        theirs.join().unwrap();
        clock.advance_ms(1);
        let id = generator.try_next_id().unwrap();
        assert_eq!(layout.unix_ms(layout.split(id).unwrap().timestamp), T0 + 2, "an idle generator is fresh");
    });
}
