//! Goal: the cursor's promises under any clock: unique, increasing, inside the lease, no further ahead or
//! behind than documented. Method: scripted clocks, and proptest against a slow model that keeps every id it
//! returned.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::time::Duration;

use proptest::prelude::*;
use snowmint::generator::{BuildError, GeneratorBuilder};
use snowmint::{
    Clock, DatacenterId, GenerateError, Generator, Id, Layout, Lease, ManualClock, Rule, WallClock, WorkerId,
};

const T0: u64 = 1_700_000_000_000;
const MS: fn(u64) -> Duration = Duration::from_millis;

fn generator(clock: &ManualClock, rule: Rule) -> Generator<&ManualClock> {
    Generator::builder(Layout::TWITTER).worker(WorkerId(3)).rule(rule).build(clock).unwrap()
}

fn instant(id: Id) -> u64 {
    Layout::TWITTER.unix_ms(Layout::TWITTER.split(id).unwrap().timestamp)
}

/// Goal: each tick ahead of the clock counts once, however its ids were taken; the clock's own ticks and
/// unused ticks do not count.
#[test]
fn borrowed_ticks_are_counted_once() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(&clock, Rule::borrow(MS(10)));
    assert_eq!(generator.try_take(4096).unwrap().len(), 4096);
    assert_eq!(generator.borrowed_ticks(), 0, "the tick of the clock");
    for _ in 0..4096 {
        generator.try_next_id().unwrap();
        assert_eq!(generator.borrowed_ticks(), 1);
    }
    // The rest of one tick and two whole ones, split anywhere.
    for (count, wanted) in [(1, 2), (4095, 2), (4000, 3), (97, 4), (4095, 4)] {
        assert_eq!(generator.try_take(count).unwrap().len(), count);
        assert_eq!(generator.borrowed_ticks(), wanted, "{count}");
    }
    assert_eq!(generator.try_take(2 * 4096 + 7).unwrap().len(), 2 * 4096 + 7);
    assert_eq!(generator.borrowed_ticks(), 7);
    clock.set_unix_ms(T0 + 20);
    let _ = generator.try_take(4096).unwrap();
    assert_eq!(generator.borrowed_ticks(), 7, "the clock has caught up");
    clock.set_unix_ms(T0 + 15);
    generator.try_next_id().unwrap();
    assert_eq!(generator.borrowed_ticks(), 8, "the clock went back");
}

#[test]
fn ids_carry_their_fields_and_count_from_zero_in_each_tick() {
    let clock = ManualClock::at_unix_ms(T0);
    let builder = Generator::builder(Layout::TWITTER).datacenter(DatacenterId(9)).worker(WorkerId(31));
    let generator = builder.build(&clock).unwrap();
    for (ms, sequence) in [(T0, 0), (T0, 1), (T0 + 5, 0), (T0 + 5, 1), (T0 + 5, 2)] {
        clock.set_unix_ms(ms);
        let id = generator.try_next_id().unwrap();
        let parts = Layout::TWITTER.split(id).unwrap();
        assert_eq!(
            (instant(id), parts.sequence.0, parts.worker.0, parts.datacenter.0),
            (ms, sequence, 31, 9)
        );
    }
}

#[test]
fn the_4097th_id_of_a_millisecond_waits_for_the_next() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(&clock, Rule::REJECT);
    assert_eq!(generator.try_take(10_000).unwrap().len(), 4096, "as many as there are");
    let error = generator.try_next_id().unwrap_err();
    assert!(matches!(error, GenerateError::Exhausted { retry_after_ms } if retry_after_ms.get() == 1));
    clock.advance_ms(1);
    assert_eq!(instant(generator.try_next_id().unwrap()), T0 + 1);
}

#[test]
fn with_ten_millisecond_ticks_the_wait_is_to_the_next_tick() {
    let sonyflake: Layout = "sonyflake".parse().unwrap();
    let clock = ManualClock::at_unix_ms(T0 + 3);
    let generator = Generator::builder(sonyflake).worker(WorkerId(0)).build(&clock).unwrap();
    assert_eq!(generator.try_take(1000).unwrap().len(), 256);
    assert_eq!(generator.try_next_id().unwrap_err().retry_after_ms().unwrap().get(), 7);
}

/// Twitter's vector `behaviour`: a step back is rejected, and changes nothing.
#[test]
fn reject_refuses_a_clock_that_went_back_and_changes_nothing() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(&clock, Rule::REJECT);
    generator.try_next_id().unwrap();
    generator.try_next_id().unwrap();
    clock.set_unix_ms(T0 - 1);
    let error = generator.try_next_id().unwrap_err();
    assert!(
        matches!(error, GenerateError::ClockBehind { behind_ms, .. } if behind_ms.get() == 1),
        "{error:?}"
    );
    assert_eq!(error.retry_after_ms(), None);
    clock.set_unix_ms(T0);
    let id = generator.try_next_id().unwrap();
    assert_eq!((instant(id), Layout::TWITTER.split(id).unwrap().sequence.0), (T0, 2));
}

#[test]
fn wait_says_how_long_within_its_bound_and_refuses_beyond() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(&clock, Rule::wait(MS(5)));
    generator.try_next_id().unwrap();
    clock.set_unix_ms(T0 - 5);
    assert_eq!(generator.try_next_id().unwrap_err().retry_after_ms().map(u64::from), Some(5));
    clock.set_unix_ms(T0 - 6);
    let error = generator.try_next_id().unwrap_err();
    assert_eq!(error.retry_after_ms(), None);
    assert!(error.to_string().contains("6 ms"), "{error}");
}

#[test]
fn borrow_goes_on_ahead_of_the_clock_and_never_further_than_it_says() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(&clock, Rule::borrow(MS(10)));
    assert_eq!(generator.try_take(1_000_000).unwrap().len(), 4096 * 11, "this tick and ten ahead");
    let error = generator.try_next_id().unwrap_err();
    assert!(
        matches!(error, GenerateError::Exhausted { retry_after_ms } if retry_after_ms.get() == 1),
        "{error:?}"
    );
    clock.advance_ms(1);
    assert_eq!(instant(generator.try_next_id().unwrap()), T0 + 11);
    clock.set_unix_ms(T0 + 2);
    clock.set_unix_ms(T0 - 5);
    // The clock is 6 ms back, which the rule covers, but 16 ms behind the next id.
    assert_eq!(generator.try_next_id().unwrap_err().retry_after_ms().map(u64::from), Some(6));
    clock.set_unix_ms(T0 - 9);
    assert_eq!(generator.try_next_id().unwrap_err().retry_after_ms().map(u64::from), Some(10));
    clock.set_unix_ms(T0 - 10);
    assert!(
        matches!(generator.try_next_id(), Err(GenerateError::ClockBehind { behind_ms, .. }) if behind_ms.get() == 11)
    );
}

#[test]
fn the_first_tick_of_a_layout_borrows_from_the_next_as_any() {
    let clock = ManualClock::at_unix_ms(Layout::TWITTER.epoch_unix_ms());
    let generator = generator(&clock, Rule::borrow(MS(10)));
    assert_eq!(generator.try_take(4096).unwrap().len(), 4096);
    assert_eq!(instant(generator.try_next_id().unwrap()), Layout::TWITTER.epoch_unix_ms() + 1);
}

#[test]
fn borrowing_counts_whole_ticks() {
    // 11 ms before the tick of the cursor, which is the second one after the clock's.
    let behind = |rule: Rule| {
        let clock = ManualClock::at_unix_ms(T0 + 20);
        let builder = Generator::builder("sonyflake".parse().unwrap()).worker(WorkerId(0)).rule(rule);
        let generator = builder.build(&clock).unwrap();
        generator.try_next_id().unwrap();
        clock.set_unix_ms(T0 + 9);
        generator.try_next_id()
    };
    assert!(behind(Rule::borrow(MS(20))).is_ok());
    assert_eq!(behind(Rule::borrow(MS(15))).unwrap_err().retry_after_ms(), None, "one whole tick");
    let chain = Rule::borrow(MS(15)).then(Rule::wait(MS(20))).unwrap();
    let wait = behind(chain).unwrap_err().retry_after_ms();
    assert_eq!(wait.map(u64::from), Some(11), "the next step decides");
}

#[test]
fn a_chain_waits_for_a_small_step_and_borrows_over_a_larger_one() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(&clock, "wait(5ms) then borrow(20ms)".parse().unwrap());
    let first = generator.try_next_id().unwrap();
    clock.set_unix_ms(T0 - 4);
    assert_eq!(generator.try_next_id().unwrap_err().retry_after_ms().map(u64::from), Some(4));
    clock.set_unix_ms(T0 - 15);
    assert!(generator.try_next_id().unwrap() > first);
    clock.set_unix_ms(T0 - 21);
    assert!(matches!(generator.try_next_id(), Err(GenerateError::ClockBehind { .. })));
}

#[test]
fn a_used_up_tick_may_be_followed_late_but_an_idle_generator_is_fresh() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(&clock, Rule::REJECT);
    assert_eq!(generator.try_take(4096).unwrap().len(), 4096);
    clock.advance_ms(3);
    assert_eq!(
        instant(generator.try_next_id().unwrap()),
        T0 + 1,
        "slept through two ticks: they can be spent"
    );
    clock.advance_ms(10);
    assert_eq!(instant(generator.try_next_id().unwrap()), T0 + 13, "10 ms later they cannot");
    clock.advance_ms(1);
    assert_eq!(instant(generator.try_next_id().unwrap()), T0 + 14, "no tick was used up: fresh at once");
}

#[test]
fn the_cursor_trails_by_four_milliseconds_and_not_by_five() {
    for (late, at) in [(5, 1), (6, 6)] {
        let clock = ManualClock::at_unix_ms(T0);
        let generator = generator(&clock, Rule::REJECT);
        assert_eq!(generator.try_take(4096).unwrap().len(), 4096);
        clock.advance_ms(late);
        assert_eq!(instant(generator.try_next_id().unwrap()), T0 + at, "after {late} ms");
    }
}

#[test]
fn a_batch_over_the_end_of_a_tick_uses_that_tick_up() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(&clock, Rule::borrow(MS(10)));
    assert_eq!(generator.try_take(4097).unwrap().len(), 4097);
    clock.advance_ms(4);
    let id = generator.try_next_id().unwrap();
    assert_eq!(
        (instant(id), id.get() % 4096),
        (T0 + 1, 1),
        "the rest of the tick it reaches into can be spent"
    );
}

#[test]
fn a_clock_that_goes_back_to_the_tick_of_the_cursor_is_not_behind() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(&clock, Rule::REJECT);
    assert_eq!(generator.try_take(4096).unwrap().len(), 4096);
    clock.set_unix_ms(T0 + 3);
    assert_eq!(instant(generator.try_next_id().unwrap()), T0 + 1);
    clock.set_unix_ms(T0 + 1);
    assert_eq!(instant(generator.try_next_id().unwrap()), T0 + 1);
    clock.set_unix_ms(T0);
    assert!(
        matches!(generator.try_next_id(), Err(GenerateError::ClockBehind { behind_ms, .. }) if behind_ms.get() == 1)
    );
}

#[test]
#[cfg_attr(miri, ignore = "thousands of ids one by one: minutes")]
fn draws_that_are_refused_take_nothing_from_the_next_tick() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(&clock, Rule::REJECT);
    for ms in 0..3 {
        for sequence in 0..4096 {
            let id = generator.try_next_id().unwrap();
            assert_eq!((instant(id), id.get() % 4096), (T0 + ms, sequence));
        }
        for _ in 0..3 {
            assert!(matches!(generator.try_next_id(), Err(GenerateError::Exhausted { .. })));
        }
        clock.advance_ms(1);
    }
}

#[test]
fn flat_out_with_a_late_sleeper_no_tick_is_lost() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = generator(&clock, Rule::REJECT);
    let mut made = 0;
    for _ in 0..100 {
        while let Ok(batch) = generator.try_take(1000) {
            made += batch.len();
        }
        clock.advance_ms(3);
    }
    while let Ok(batch) = generator.try_take(1000) {
        made += batch.len();
    }
    assert_eq!(made, 4096 * 301);
}

#[test]
fn a_tick_used_in_part_or_whole_ends_where_the_next_begins() {
    for now in [T0, T0 + 1] {
        for used in [1, 4095, 4096] {
            let clock = ManualClock::at_unix_ms(now);
            let generator = generator(&clock, Rule::REJECT);
            assert_eq!(generator.try_take(used).unwrap().len(), used);
            assert_eq!(generator.end(), Some(now + 1), "{used} of {now}");
        }
    }
}

fn leased(clock: &ManualClock, from: u64, until: u64) -> Result<Generator<&ManualClock>, BuildError> {
    let lease = Lease { worker: WorkerId(1), from_unix_ms: from, until_unix_ms: until };
    Generator::builder(Layout::TWITTER).lease(lease).rule(Rule::borrow(MS(1000))).build(clock)
}

#[test]
fn the_begin_of_a_lease_is_no_tick_to_trail() {
    let clock = ManualClock::at_unix_ms(T0 + 3);
    let generator = leased(&clock, T0, T0 + 10).unwrap();
    assert_eq!(instant(generator.try_next_id().unwrap()), T0 + 3);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of ids one by one: minutes")]
fn nothing_outside_the_lease_is_ever_used() {
    let clock = ManualClock::at_unix_ms(T0 - 100);
    let generator = leased(&clock, T0, T0 + 10).unwrap();
    let ids: Vec<Id> = generator.try_take(1_000_000).unwrap().collect();
    assert_eq!(ids.len(), 40_960, "borrowing reaches no further than the lease");
    assert_eq!((instant(ids[0]), instant(*ids.last().unwrap())), (T0, T0 + 9));
    assert_eq!(generator.try_next_id(), Err(GenerateError::LeaseEnded { until_unix_ms: T0 + 10 }));
    generator.extend_lease(T0 + 5);
    assert!(generator.try_next_id().is_err(), "a lease never shrinks");
    generator.extend_lease(T0 + 20);
    assert_eq!(instant(generator.try_next_id().unwrap()), T0 + 10);
    clock.set_unix_ms(T0 + 20);
    assert_eq!(
        generator.try_next_id(),
        Err(GenerateError::LeaseEnded { until_unix_ms: T0 + 20 }),
        "woken after the end"
    );
}

#[test]
#[cfg_attr(miri, ignore = "thousands of ids one by one: minutes")]
fn a_tick_that_two_leases_share_is_used_by_neither() {
    let game: Layout = "game".parse().unwrap();
    let clock = ManualClock::at_unix_ms(T0 + 60_000_000_000);
    let now = clock.unix_ms();
    let build = |from: u64, until: u64| {
        let lease = Lease { worker: WorkerId(1), from_unix_ms: from, until_unix_ms: until };
        Generator::builder(game).lease(lease).rule(Rule::borrow(MS(60_000))).build(&clock).unwrap()
    };
    let (first, second) = (build(now, now + 2500), build(now + 2500, now + 5000));
    let mut all = BTreeSet::new();
    for generator in [first, second] {
        for id in generator.try_take(1_000_000).unwrap() {
            assert!(all.insert(id), "{id}");
        }
    }
    assert_eq!(all.len(), 4 * 4096, "seconds 0, 1, 3 and 4");
}

#[test]
fn ending_is_for_every_thread_and_tells_what_was_used() {
    let clock = ManualClock::at_unix_ms(T0);
    let generator = leased(&clock, T0, T0 + 10_000).unwrap();
    assert_eq!(generator.try_take(4096 * 2 + 1).unwrap().len(), 8193);
    assert_eq!(generator.end(), Some(T0 + 3));
    assert_eq!(generator.end(), None);
    assert_eq!(generator.lease_until_unix_ms(), T0 + 10_000);
    generator.extend_lease(T0 + 100_000);
    assert_eq!(generator.lease_until_unix_ms(), T0 + 100_000);
    assert_eq!(generator.try_next_id(), Err(GenerateError::Ended));
    let unused = leased(&clock, T0, T0 + 10).unwrap();
    assert_eq!(unused.end(), Some(T0));
}

#[test]
fn the_one_that_follows_begins_after_the_last_timestamp_used() {
    let clock = ManualClock::at_unix_ms(T0);
    let first = generator(&clock, Rule::REJECT);
    let last = first.try_next_id().unwrap();
    let used_until = first.end().unwrap();
    // A smaller worker: its ids of the same tick would be smaller.
    let next = Generator::builder(Layout::TWITTER)
        .worker(WorkerId(0))
        .not_before_unix_ms(used_until)
        .build(&clock)
        .unwrap();
    assert!(next.try_next_id().is_err(), "its first tick has not begun");
    clock.advance_ms(1);
    assert!(next.try_next_id().unwrap() > last);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of ids one by one: minutes")]
fn the_end_of_time_is_an_error_and_never_wraps() {
    let end = Layout::TWITTER.ends_at_unix_ms();
    let clock = ManualClock::at_unix_ms(end - 1);
    let generator = generator(&clock, Rule::borrow(MS(1000)));
    let ids: Vec<Id> = generator.try_take(1_000_000).unwrap().collect();
    assert_eq!((ids.len(), ids.last().unwrap().get() >> 22), (4096, (1 << 41) - 1));
    // At the second-last instant, a tick shifted by the sequence bits would wrap to 0.
    let wrapped = Layout::TWITTER.epoch_unix_ms() + (1 << 52);
    for now in [end - 1, end, end + 1, wrapped, u64::MAX] {
        clock.set_unix_ms(now);
        assert_eq!(generator.try_next_id(), Err(GenerateError::TimestampOverflow { ended_unix_ms: end }));
        let unused = self::generator(&clock, Rule::REJECT);
        if now >= end {
            assert_eq!(unused.try_next_id(), Err(GenerateError::TimestampOverflow { ended_unix_ms: end }));
        }
    }
}

#[test]
fn the_first_ticks_after_the_epoch_are_as_fresh_as_any() {
    for ms in 0..6 {
        let clock = ManualClock::at_unix_ms(Layout::TWITTER.epoch_unix_ms() + ms);
        assert_eq!(generator(&clock, Rule::REJECT).try_next_id().unwrap().get(), ms << 22 | 3 << 12);
    }
}

#[test]
fn a_clock_before_the_epoch_is_an_error() {
    for now in [0, Layout::TWITTER.epoch_unix_ms() - 1] {
        let clock = ManualClock::at_unix_ms(now);
        let error = generator(&clock, Rule::default()).try_next_id().unwrap_err();
        let from_unix_ms = Layout::TWITTER.epoch_unix_ms();
        assert_eq!(error, GenerateError::NotBegun { from_unix_ms, now_unix_ms: now });
    }
    let clock = ManualClock::at_unix_ms(0);
    let ended = generator(&clock, Rule::default());
    ended.end().unwrap();
    assert_eq!(ended.try_next_id(), Err(GenerateError::Ended), "whatever the clock shows");
}

#[test]
fn builders_refuse_what_cannot_be() {
    let clock = ManualClock::at_unix_ms(T0);
    let leaf: Layout = "leaf".parse().unwrap();
    let error = Generator::builder(leaf).worker(WorkerId(1024)).build(&clock).unwrap_err();
    assert_eq!(error.to_string(), "worker 1024 is out of range: this layout has worker 0 to 1023");
    let error =
        Generator::builder(leaf).worker(WorkerId(0)).datacenter(DatacenterId(1)).build(&clock).unwrap_err();
    assert_eq!(error.to_string(), "datacenter 1 is out of range: this layout has datacenter 0 to 0");
    assert!(matches!(leased(&clock, T0, T0), Err(BuildError::EmptyLease { .. })));
    // No worker is a default: each process would have the same one.
    let error = Generator::builder(leaf).build(&clock).unwrap_err();
    let advice =
        "expected .worker(WorkerId(0)) to 1023, another one for each generator that runs, or .lease(lease)";
    assert_eq!(error.to_string(), format!("no worker was set: {advice}"));
    assert!(Generator::builder(leaf).build_owned(&clock).is_err());
    let without_workers: Layout = "time:41 sequence:12 epoch:2020-01-01".parse().unwrap();
    assert!(Generator::builder(without_workers).build(&clock).is_ok());
    let game: Layout = "game".parse().unwrap();
    let error =
        Generator::builder(game).worker(WorkerId(0)).rule(Rule::borrow(MS(10))).build(&clock).unwrap_err();
    assert!(error.to_string().contains("10ms") && error.to_string().contains("1s"), "{error}");
    let whole_tick = |rule| Generator::builder(game).worker(WorkerId(0)).rule(rule).build(&clock);
    assert!(whole_tick(Rule::borrow(MS(1000))).is_ok() && whole_tick(Rule::borrow(MS(0))).is_ok());
    assert!(leased(&clock, T0, T0 + 1).is_ok() && leased(&clock, T0 + 1, T0).is_err());
}

#[test]
fn threads_share_one_generator_without_duplicates_and_each_sees_ids_increase() {
    const THREADS: usize = 4;
    const EACH: usize = if cfg!(miri) { 50 } else { 60_000 };
    let generator = Generator::builder(Layout::TWITTER).worker(WorkerId(0)).build(WallClock).unwrap();
    let start = Barrier::new(THREADS);
    let mut all: Vec<Id> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    let ids: Vec<Id> = (0..EACH).map(|_| generator.next_id().unwrap()).collect();
                    assert!(ids.is_sorted_by(|a, b| a < b));
                    ids
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), THREADS * EACH);
}

#[test]
fn a_bound_without_an_end_borrows_a_day_or_to_the_end_of_the_layout_and_repeats_nothing() {
    for now in [T0, Layout::TWITTER.ends_at_unix_ms() - 50] {
        let clock = ManualClock::at_unix_ms(now);
        let builder =
            Generator::builder(Layout::TWITTER).worker(WorkerId(0)).rule(Rule::borrow(Duration::MAX));
        let generator = builder.max_behind(Duration::MAX).build(&clock).unwrap();
        let (first, second) = (generator.try_next_id().unwrap(), generator.try_next_id().unwrap());
        assert!(first < second);
        assert_eq!(generator.try_take(100_000).unwrap().len(), 100_000);
        let taken = 2 + 100_000 + generator.try_take(usize::MAX).unwrap().len();
        let ms_ahead = taken / 4096 - 1;
        assert!(ms_ahead == 86_400_000 || ms_ahead == 49, "{ms_ahead}");
    }
}

#[test]
fn a_cursor_of_63_bits_ends_one_tick_early_and_never_in_its_own_mark() {
    let layout: Layout = "time:59@1ms sequence:4 epoch:1970-01-01".parse().unwrap();
    let end = layout.ends_at_unix_ms();
    let clock = ManualClock::at_unix_ms(end - 2);
    let generator = Generator::builder(layout).worker(WorkerId(0)).build(&clock).unwrap();
    assert_eq!(generator.try_take(100).unwrap().len(), 16);
    clock.set_unix_ms(end - 1);
    assert_eq!(generator.try_next_id(), Err(GenerateError::TimestampOverflow { ended_unix_ms: end - 1 }));
    assert_eq!(generator.end(), Some(end - 1));

    let layout: Layout = "time:58@1ms generation:1 sequence:4 epoch:1970-01-01".parse().unwrap();
    let end = layout.ends_at_unix_ms();
    let lease = Lease { worker: WorkerId(0), from_unix_ms: end - 1000, until_unix_ms: end };
    let builder = Generator::builder(layout).lease(lease).rule(Rule::generation());
    let generator = builder.build(&clock).unwrap();
    let mut seen = BTreeSet::new();
    for (now, count) in [(end - 1, 1), (end - 10, 1), (end - 1, 40), (end - 2, 40)] {
        clock.set_unix_ms(now);
        for id in generator.try_take(count).into_iter().flatten() {
            let at = layout.unix_ms(layout.split(id).unwrap().timestamp);
            assert!(seen.insert(id) && (end - 1000..end).contains(&at), "{id} at {at}");
        }
    }
}

#[test]
fn a_clock_a_millisecond_back_across_a_coarse_tick_is_a_millisecond_back() {
    let game: Layout = "game".parse().unwrap();
    let second = T0 + 60_000_000_000;
    let clock = ManualClock::at_unix_ms(second);
    let generator =
        Generator::builder(game).worker(WorkerId(0)).rule(Rule::wait(MS(10))).build(&clock).unwrap();
    generator.try_next_id().unwrap();
    clock.set_unix_ms(second - 1);
    assert_eq!(generator.try_next_id().unwrap_err().retry_after_ms().map(u64::from), Some(1));
    clock.set_unix_ms(second - 11);
    assert_eq!(generator.try_next_id().unwrap_err().retry_after_ms(), None);
}

#[test]
fn a_generator_that_begins_with_the_next_tick_waits_for_it_whatever_the_rule() {
    let game: Layout = "game".parse().unwrap();
    let clock = ManualClock::at_unix_ms(T0 + 60_000_000_250);
    let builder = Generator::builder(game)
        .worker(WorkerId(0))
        .rule(Rule::REJECT)
        .not_before_unix_ms(T0 + 60_000_001_000);
    let error = builder.build(&clock).unwrap().try_next_id().unwrap_err();
    assert!(
        matches!(error, GenerateError::Exhausted { retry_after_ms } if retry_after_ms.get() == 750),
        "{error:?}"
    );
}

/// The moves of a script: shift the clock by a distance, then take some ids.
fn scripts() -> impl Strategy<Value = Vec<(i64, usize)>> {
    let steps =
        prop_oneof![4 => 0_i64..4, 2 => -30_i64..30, 1 => -5000_i64..5000, 1 => -4_000_000_i64..4_000_000];
    prop::collection::vec((steps, 0_usize..40), 1..200)
}

proptest! {
    /// Goal: no id of another worker comes from a lease. Method: worker and lease in both orders, equal or
    /// not.
    #[test]
    fn the_worker_of_a_leased_generator_is_the_lease_s(
        leased in 0_u32..32,
        by_hand in prop_oneof![(0_u32..32).prop_map(Some), Just(None)],
        equal in any::<bool>(),
        lease_first in any::<bool>(),
    ) {
        let by_hand = if equal { by_hand.map(|_| leased) } else { by_hand }.map(WorkerId);
        let lease = Lease { worker: WorkerId(leased), from_unix_ms: T0, until_unix_ms: T0 + 1 };
        let set = |builder: GeneratorBuilder| match by_hand {
            Some(worker) => builder.worker(worker),
            None => builder,
        };
        let builder = Generator::builder(Layout::TWITTER);
        let builder = if lease_first { set(builder.lease(lease)) } else { set(builder).lease(lease) };
        match (builder.build(ManualClock::at_unix_ms(T0)), by_hand.filter(|worker| *worker != lease.worker)) {
            (Ok(generator), None) => {
                let id = generator.try_next_id().unwrap();
                prop_assert_eq!(Layout::TWITTER.split(id).unwrap().worker, lease.worker);
            }
            (Err(error), Some(worker)) => {
                let text = error.to_string();
                let (leased, by_hand) = (format!("lease of worker {leased}"), format!("worker {worker} "));
                prop_assert!(text.contains(&leased) && text.contains(&by_hand), "{text}");
            }
            (built, _) => prop_assert!(false, "{by_hand:?} beside {lease:?} gave {built:?}"),
        }
    }

    #[test]
    fn under_any_clock_ids_are_unique_increasing_and_within_their_bounds(
        script in scripts(),
        rule in prop_oneof![Just("reject"), Just("wait(10ms)"), Just("borrow(50ms)"), Just("wait(3ms) then borrow(1s)")],
        layout in prop_oneof![
            Just("time:41@1ms worker:2 sequence:3 epoch:2020-01-01"),
            Just("sequence:2 worker:3 time:30@10ms epoch:2020-01-01"),
            Just("time:41@1ms epoch:2020-01-01"),
        ],
        lease_ms in 1_u64..100_000,
    ) {
        let (layout, rule): (Layout, Rule) = (layout.parse().unwrap(), rule.parse().unwrap());
        let tick_ms = u64::try_from(layout.tick().as_millis()).unwrap();
        let ahead_ms = u64::try_from(rule.max_ahead().as_millis()).unwrap();
        let clock = ManualClock::at_unix_ms(T0);
        let lease = Lease { worker: WorkerId(1), from_unix_ms: T0, until_unix_ms: T0 + lease_ms };
        let builder = Generator::builder(layout).lease(lease).rule(rule).max_behind(MS(4));
        let Ok(generator) = builder.build(&clock) else { return Ok(()) };
        let (mut seen, mut highest, mut last) = (BTreeSet::new(), T0, 0);
        for (step, count) in script {
            clock.set_unix_ms(clock.unix_ms().saturating_add_signed(step));
            let now = clock.unix_ms();
            highest = highest.max(now);
            if let Ok(batch) = generator.try_take(count) {
                for id in batch {
                    let parts = layout.split(id).unwrap();
                    let at = layout.unix_ms(parts.timestamp);
                    prop_assert!(seen.insert(id), "{id} twice");
                    let cursor = parts.timestamp.0 << 8 | u64::from(parts.sequence.0);
                    prop_assert!(cursor >= last, "out of order");
                    last = cursor;
                    prop_assert!(at >= T0 && at + tick_ms <= T0 + lease_ms, "outside the lease");
                    prop_assert!(at <= now + ahead_ms, "{at} is more than {ahead_ms} ms ahead of {now}");
                    prop_assert!(at + tick_ms + 4 + tick_ms > highest.min(now), "{at} is too far behind {now}");
                }
            }
        }
    }
}
