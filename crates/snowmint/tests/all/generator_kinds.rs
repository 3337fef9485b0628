//! Goal: every form of the generator makes the same kind of ids: unique, within bounds, and without needless
//! losses. Method: the owned and the block form next to the shared one on one clock; fills against single
//! draws.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use snowmint::clock::CachedClock;
use snowmint::generator::{Batch, BlockGenerator, GeneratorBuilder, OwnedGenerator, PoolHandle};
use snowmint::{
    Clock, GenerateError, Generator, Id, Layout, Lease, ManualClock, Rule, Start, WallClock, WorkerId,
};

const T0: u64 = 1_700_000_000_000;
const BLOCK: NonZeroU32 = NonZeroU32::new(64).unwrap();

fn instant(id: Id) -> u64 {
    Layout::TWITTER.unix_ms(Layout::TWITTER.split(id).unwrap().timestamp)
}

fn owned(clock: &ManualClock, rule: Rule) -> OwnedGenerator<&ManualClock> {
    Generator::builder(Layout::TWITTER).worker(WorkerId(0)).rule(rule).build_owned(clock).unwrap()
}

/// Compiles only for types that are not `Clone`: for others, `is_not` is ambiguous between two traits.
macro_rules! is_not_clone {
    ($($kind:ty),*) => {
        $({
            trait Unless<Marker> {
                fn is_not() {}
            }
            impl<T> Unless<()> for T {}
            struct IsClone;
            impl<T: Clone> Unless<IsClone> for T {}
            <$kind as Unless<_>>::is_not();
        })*
    };
}

#[test]
fn a_fill_goes_on_where_single_reads_stopped_and_stops_where_the_slice_does() {
    let layout: Layout = "time:41@1ms sequence:2 epoch:2020-01-01".parse().unwrap();
    let clock = ManualClock::at_unix_ms(T0);
    let builder =
        || Generator::builder(layout).worker(WorkerId(0)).rule(Rule::borrow(Duration::from_millis(5)));
    let single = builder().build(&clock).unwrap();
    let expected: Vec<Id> = (0..9).map(|_| single.try_next_id().unwrap()).collect();
    let generator = builder().build(&clock).unwrap();
    let mut batch = generator.try_take(9).unwrap();
    assert_eq!(batch.next(), Some(expected[0]));
    // Three of the first tick, two of the next.
    let mut five = [Id::MIN; 5];
    assert_eq!((batch.fill(&mut five), five.as_slice()), (5, &expected[1..6]));
    let mut rest = [Id::MIN; 9];
    assert_eq!((batch.fill(&mut rest), &rest[..3]), (3, &expected[6..]));
}

#[test]
fn nothing_that_holds_ids_can_be_copied() {
    is_not_clone!(
        Generator<ManualClock>,
        GeneratorBuilder,
        OwnedGenerator<ManualClock>,
        BlockGenerator<&'static Generator<ManualClock>>,
        Batch,
        PoolHandle<ManualClock>
    );
}

#[test]
fn blocks_that_lie_side_by_side_share_no_cache_line() {
    assert_eq!(align_of::<BlockGenerator<&Generator<ManualClock>>>() % 128, 0);
}

#[test]
fn the_owned_form_is_fresh_in_every_tick_and_uses_all_of_it() {
    let clock = ManualClock::at_unix_ms(T0);
    let mut generator = owned(&clock, Rule::REJECT);
    for ms in 0..5 {
        clock.set_unix_ms(T0 + ms * 7);
        for sequence in 0..3 {
            let id = generator.try_next_id().unwrap();
            assert_eq!(
                (instant(id), id.get() % 4096),
                (T0 + ms * 7, sequence),
                "what was left of a tick is not used"
            );
        }
    }
    assert_eq!(
        generator.try_take(10_000).unwrap().len(),
        4093,
        "what was claimed and not used is given back"
    );
    assert!(matches!(generator.try_next_id(), Err(GenerateError::Exhausted { .. })));
    clock.advance_ms(3);
    assert_eq!(instant(generator.try_next_id().unwrap()), T0 + 29, "a used-up tick may be followed late");
    assert_eq!(generator.end(), Some(T0 + 30));
}

#[test]
fn the_owned_form_refuses_a_clock_that_went_back() {
    let clock = ManualClock::at_unix_ms(T0);
    let mut generator = owned(&clock, Rule::REJECT);
    generator.try_next_id().unwrap();
    clock.set_unix_ms(T0 - 1);
    assert!(matches!(generator.try_next_id(), Err(GenerateError::ClockBehind { .. })));
    clock.set_unix_ms(T0);
    assert_eq!(generator.try_next_id().unwrap().get() % 4096, 1);
}

#[test]
fn borrowing_ahead_is_not_claimed_ahead() {
    let clock = ManualClock::at_unix_ms(T0);
    let mut generator = owned(&clock, Rule::borrow(Duration::from_millis(100)));
    for ms in 0..10 {
        clock.set_unix_ms(T0 + ms);
        assert_eq!(instant(generator.try_next_id().unwrap()), T0 + ms);
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of ids one by one: minutes")]
fn a_fill_goes_over_ticks_as_far_as_there_are_ids() {
    let clock = ManualClock::at_unix_ms(T0);
    let builder = || {
        Generator::builder(Layout::TWITTER).worker(WorkerId(0)).rule(Rule::borrow(Duration::from_millis(2)))
    };
    let shared = builder().build(&clock).unwrap();
    let mut owned = builder().build_owned(&clock).unwrap();
    let first = builder().build(&clock).unwrap().try_next_id().unwrap().get();
    let (mut by_shared, mut by_owned) = (vec![Id::MAX; 3 * 4096 + 1], vec![Id::MAX; 3 * 4096 + 1]);
    assert_eq!(shared.try_fill(&mut by_shared), Ok(3 * 4096), "this tick and two ahead");
    assert_eq!(owned.try_fill(&mut by_owned), Ok(3 * 4096));
    assert_eq!(by_shared, by_owned);
    for (n, id) in by_shared[..3 * 4096].iter().enumerate() {
        let (tick, sequence) = (n as u64 / 4096, n as u64 % 4096);
        assert_eq!(id.get(), first + (tick << 22) + sequence);
    }
    assert_eq!(by_shared[3 * 4096], Id::MAX, "what was not filled is not touched");
}

/// Goal: a fill that waits returns the same ids as single draws, and stops early if waiting does not help.
/// Method: a lease with fewer ids than the slice; a system clock, so that ticks pass.
#[test]
fn a_fill_that_waits_fills_all_or_says_why_the_next_time() {
    let shared = Generator::builder(Layout::TWITTER).worker(WorkerId(0)).build(WallClock).unwrap();
    let mut owned = Generator::builder(Layout::TWITTER).worker(WorkerId(0)).build_owned(WallClock).unwrap();
    let (mut by_shared, mut by_owned) = (vec![Id::MIN; 10_000], vec![Id::MIN; 10_000]);
    assert_eq!((shared.fill(&mut by_shared), owned.fill(&mut by_owned)), (Ok(10_000), Ok(10_000)));
    assert!(by_shared.is_sorted_by(|one, next| one < next) && by_owned.is_sorted_by(|one, next| one < next));
    let clock = ManualClock::at_unix_ms(T0);
    let lease = Lease { worker: WorkerId(1), from_unix_ms: T0, until_unix_ms: T0 + 1 };
    let shared = Generator::builder(Layout::TWITTER).lease(lease).build(&clock).unwrap();
    let mut owned = Generator::builder(Layout::TWITTER).lease(lease).build_owned(&clock).unwrap();
    let ended = Err(GenerateError::LeaseEnded { until_unix_ms: T0 + 1 });
    assert_eq!((shared.fill(&mut by_shared), owned.fill(&mut by_owned)), (Ok(4096), Ok(4096)));
    assert_eq!((shared.fill(&mut by_shared), owned.fill(&mut by_owned)), (ended, ended));
    assert_eq!((shared.fill(&mut []), owned.fill(&mut [])), (Ok(0), Ok(0)));
}

#[test]
#[cfg_attr(miri, ignore = "thousands of ids one by one: minutes")]
fn blocks_share_a_tick_and_never_outlive_it() {
    let clock = ManualClock::at_unix_ms(T0);
    let shared = Arc::new(Generator::builder(Layout::TWITTER).worker(WorkerId(0)).build(&clock).unwrap());
    let mut blocks: Vec<_> = (0..3).map(|_| BlockGenerator::new(Arc::clone(&shared), BLOCK)).collect();
    let mut seen = HashSet::new();
    for ms in 0..20 {
        clock.set_unix_ms(T0 + ms * 2);
        for (i, block) in blocks.iter_mut().enumerate() {
            for _ in 0..i * 50 {
                let id = block.try_next_id().unwrap();
                assert!(seen.insert(id));
                assert_eq!(instant(id), T0 + ms * 2, "no timestamp is older than the reading");
            }
        }
        assert!(seen.insert(shared.try_next_id().unwrap()));
    }
}

#[test]
fn blocks_stop_where_the_shared_generator_stops() {
    let clock = ManualClock::at_unix_ms(T0);
    let lease = Lease { worker: WorkerId(1), from_unix_ms: T0, until_unix_ms: T0 + 1 };
    let shared = Generator::builder(Layout::TWITTER).lease(lease).build(&clock).unwrap();
    let mut block = BlockGenerator::new(&shared, NonZeroU32::new(5000).unwrap());
    for _ in 0..4096 {
        block.try_next_id().unwrap();
    }
    assert!(matches!(block.try_next_id(), Err(GenerateError::LeaseEnded { .. })));
}

#[test]
fn what_a_block_may_still_hand_out_counts_as_used() {
    let clock = ManualClock::at_unix_ms(T0);
    let shared = Generator::builder(Layout::TWITTER).worker(WorkerId(0)).build(&clock).unwrap();
    let mut block = BlockGenerator::new(&shared, BLOCK);
    block.try_next_id().unwrap();
    let used_until = shared.end().unwrap();
    while let Ok(id) = block.try_next_id() {
        assert!(instant(id) < used_until);
    }
}

#[test]
fn threads_with_blocks_make_no_duplicates() {
    const EACH: usize = if cfg!(miri) { 200 } else { 50_000 };
    let shared = Generator::builder(Layout::TWITTER)
        .worker(WorkerId(0))
        .build(CachedClock::start(WallClock).unwrap())
        .unwrap();
    let mut all: Vec<Id> = std::thread::scope(|scope| {
        let draw = || {
            let mut block = BlockGenerator::new(&shared, BLOCK);
            (0..EACH).map(|_| block.next_id().unwrap()).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(draw)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 3 * EACH);
}

#[test]
fn a_clock_under_an_arc_keeps_its_cheap_path() {
    let clock = Arc::new(ManualClock::at_unix_ms(T0));
    let reading = clock.read();
    assert!(clock.holds(reading.hold));
    clock.advance_ms(1);
    assert!(!clock.holds(reading.hold));
}

proptest! {
    /// Compares the fast ways with the slow, obvious one: one id at a time from the shared form, on the same
    /// clock.
    #[test]
    fn fills_and_batches_are_what_single_draws_would_be(
        draws in prop::collection::vec((0_u64..3, 1_usize..if cfg!(miri) { 90 } else { 9000 }), 1..20),
        start in prop_oneof![Just(Start::Zero), Just(Start::RANDOM), Just(Start::Rolling)],
        layout in prop_oneof![Just("twitter"), Just("sonyflake"), Just("worker:3 time:41@1ms sequence:5 epoch:2020-01-01")],
    ) {
        let layout: Layout = layout.parse().unwrap();
        let (fast_clock, slow_clock) = (ManualClock::at_unix_ms(T0), ManualClock::at_unix_ms(T0));
        let build = || Generator::builder(layout).worker(WorkerId(0)).start(start).rule(Rule::borrow(Duration::from_millis(50)));
        let fast = build().build(&fast_clock).unwrap();
        let slow = build().build(&slow_clock).unwrap();
        let mut owned = build().build_owned(&slow_clock).unwrap();
        for (step, count) in draws {
            fast_clock.advance_ms(step);
            slow_clock.advance_ms(step);
            let mut buffer = vec![Id::MIN; count];
            let filled = fast.try_fill(&mut buffer).unwrap_or(0);
            for id in &buffer[..filled] {
                prop_assert_eq!(slow.try_next_id(), Ok(*id));
                prop_assert_eq!(owned.try_next_id(), Ok(*id));
            }
        }
    }
}
