//! Goal: the driver of segments hands out each number once and in order, keeps callers from waiting while the
//! reserve lasts, and gives back the rest. Method: sources on a memory store behind a counter that is slow,
//! fails, or loses answers, mostly under tokio's paused time, in which an hour passes immediately; threads
//! for what threads share.

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use snowmint::ManualClock;
use snowmint_cluster::segment::{
    CountersOf, Mode, NoNumberError, Period, Reset, Run, SegmentConfig, Segments, Stripe,
};
use snowmint_store::{Counter, Expected, Key, MAX_NUMBER, MemoryStore, Store, StoreErrorKind, Swap};
use tokio::time::{Instant, sleep};

use crate::support::unsteady_counter::{Log, Losing, SteppedClock, TokioClock, Unsteady};

/// 2026-11-21T00:00:00Z.
const DAY: u64 = 1_795_219_200_000;

fn key() -> Key {
    Key::new("segments/test").unwrap()
}

fn store() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new())
}

fn unsteady(store: &Arc<MemoryStore>) -> Arc<Unsteady> {
    Arc::new(Unsteady::new(Stripe::WHOLE.counter(Arc::clone(store) as Arc<dyn Store>, key(), 1)))
}

fn start(counters: &[Arc<Unsteady>], config: SegmentConfig) -> Segments {
    let counters = counters.iter().map(|counter| Arc::clone(counter) as Arc<dyn Counter>).collect();
    Segments::start(counters, config, TokioClock::at(DAY)).unwrap()
}

fn small() -> SegmentConfig {
    SegmentConfig::new().sizes(10..=100_000).target(Duration::from_secs(1)).reserve(Duration::ZERO)
}

async fn numbers(segments: &Segments, count: usize) -> Vec<u64> {
    segments.take(count).await.unwrap().into_iter().flatten().collect()
}

async fn counted(store: &MemoryStore) -> u64 {
    let record = store.load(&key()).await.unwrap();
    record.map_or(0, |record| String::from_utf8(record.value).unwrap().parse().unwrap())
}

fn n(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

fn all_differ(mut numbers: Vec<u64>) {
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), count, "a number came twice");
}

/// Draws one number every millisecond; returns the numbers, and how many times there was none.
async fn draw_for(segments: &Segments, time: Duration) -> (Vec<u64>, u64) {
    let (mut drawn, mut none) = (Vec::new(), 0);
    let end = Instant::now() + time;
    while Instant::now() < end {
        sleep(Duration::from_millis(1)).await;
        match segments.try_take(1) {
            Ok(run) => drawn.push(run.first()),
            Err(_) => none += 1,
        }
    }
    (drawn, none)
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_slow_store_nor_through_an_outage_that_the_reserve_outlasts() {
    let counter = unsteady(&store());
    counter.answers_after(Duration::from_millis(50));
    let config = small().reserve(Duration::from_secs(20));
    let segments = start(&[Arc::clone(&counter)], config);
    segments.ready().await.unwrap();
    // A new source does not know the demand yet.
    let (mut drawn, _) = draw_for(&segments, Duration::from_secs(5)).await;
    for _ in 0..2 {
        let (more, none) = draw_for(&segments, Duration::from_secs(30)).await;
        assert_eq!(none, 0, "with the store");
        drawn.extend(more);
        assert!(segments.status().lasts.unwrap() >= Duration::from_secs(19), "{:?}", segments.status());
        counter.fails_with(Some(StoreErrorKind::Unavailable));
        let (more, none) = draw_for(&segments, Duration::from_secs(19)).await;
        assert_eq!(none, 0, "without the store: {:?}", segments.status());
        drawn.extend(more);
        counter.fails_with(None);
    }
    assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]), "numbers grow");
    draw_for(&segments, Duration::from_secs(5)).await;
    let status = segments.status();
    assert!(status.store_errors > 0 && status.waiting.is_none(), "{status:?}");
    assert!((900..=1100).contains(&status.demand_per_second), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn when_the_reserve_is_over_it_says_why_and_goes_on_once_the_store_is_back() {
    let counter = unsteady(&store());
    let segments = start(&[Arc::clone(&counter)], small());
    let before = numbers(&segments, 5).await;
    counter.fails_with(Some(StoreErrorKind::Unavailable));
    let why = loop {
        match segments.take(100).await {
            Ok(_) => {}
            Err(NoNumberError::NotReady { why }) => break why,
            Err(other) => panic!("{other}"),
        }
    };
    assert!(why.contains("unplugged"), "{why}");
    assert_eq!(segments.status().waiting, Some(why));
    counter.fails_with(None);
    let after = numbers(&segments, 5).await;
    assert!(after[0] > before[4]);
    assert_eq!(segments.status().waiting, None);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_somebody_has_to_repair_is_reported_at_once() {
    let counter = unsteady(&store());
    counter.fails_with(Some(StoreErrorKind::ReadOnly));
    let segments = start(&[Arc::clone(&counter)], small().patience(Duration::from_hours(1)));
    let begin = Instant::now();
    assert!(matches!(segments.ready().await, Err(NoNumberError::NotReady { .. })));
    assert!(matches!(segments.take(1).await, Err(NoNumberError::NotReady { .. })));
    assert!(begin.elapsed() < Duration::from_mins(1));
    counter.fails_with(None);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(numbers(&segments, 1).await, [1], "and it goes on once that is done");
}

#[tokio::test(start_paused = true)]
async fn numbers_whose_answer_was_lost_are_nobodys() {
    let store = store();
    let counter = unsteady(&store);
    counter.loses_every(2);
    let segments = start(&[Arc::clone(&counter)], small());
    let mut drawn = Vec::new();
    while drawn.len() < 5000 {
        drawn.extend(numbers(&segments, 7).await);
    }
    assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]), "each once, and growing");
    assert!(counted(&store).await > drawn.len() as u64 + segments.status().left, "some were lost");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_given_up_and_one_that_is_slow_is_waited_for() {
    let counter = unsteady(&store());
    counter.answers_after(Duration::from_secs(3));
    let segments = start(&[Arc::clone(&counter)], small().patience(Duration::from_mins(1)));
    assert_eq!(numbers(&segments, 3).await.len(), 3, "an answer that takes 3 s is waited for");
    counter.answers_after(Duration::from_hours(1));
    while segments.take(10).await.is_ok() {}
    counter.answers_after(Duration::ZERO);
    assert_eq!(numbers(&segments, 3).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_restart_after_a_release_wastes_nothing_and_after_a_crash_what_was_in_memory() {
    let store = store();
    let mut last = 0;
    for _ in 0..20 {
        let segments = start(&[unsteady(&store)], small());
        let drawn = numbers(&segments, 37).await;
        assert_eq!(drawn, (last + 1..=last + 37).collect::<Vec<u64>>(), "no gap over a restart");
        last += 37;
        segments.release(Duration::from_secs(5)).await;
        assert_eq!(segments.try_take(1), Err(NoNumberError::Stopped));
        assert_eq!(segments.take(1).await, Err(NoNumberError::Stopped));
        assert_eq!(segments.take_run(n(2)).await, Err(NoNumberError::Stopped));
        assert_eq!(counted(&store).await, last);
    }
    let segments = start(&[unsteady(&store)], small());
    numbers(&segments, 1).await;
    drop(segments);
    let segments = start(&[unsteady(&store)], small());
    let first = numbers(&segments, 1).await[0];
    assert!(first > last + 1 && first <= last + 40, "two small segments at most: {first} after {last}");
}

#[tokio::test(start_paused = true)]
async fn what_somebody_reserved_after_is_not_given_back() {
    let store = store();
    let [first, second] = [start(&[unsteady(&store)], small()), start(&[unsteady(&store)], small())];
    let mut drawn = numbers(&first, 3).await;
    drawn.extend(numbers(&second, 3).await);
    let reserved = counted(&store).await;
    first.release(Duration::from_secs(5)).await;
    second.release(Duration::from_secs(5)).await;
    assert!(counted(&store).await < reserved, "the one that reserved last gives back");
    let third = start(&[unsteady(&store)], small());
    drawn.extend(numbers(&third, 500).await);
    all_differ(drawn);
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_answer_is_lost_gives_nothing_back_twice() {
    let store = store();
    let counter = unsteady(&store);
    let segments = start(&[Arc::clone(&counter)], small());
    let mut drawn = numbers(&segments, 3).await;
    counter.loses_every(1);
    segments.release(Duration::from_mins(1)).await;
    let others = start(&[unsteady(&store)], small());
    drawn.extend(numbers(&others, 500).await);
    all_differ(drawn);
}

#[tokio::test(start_paused = true)]
async fn a_segment_that_comes_after_a_release_is_given_back_too() {
    let store = store();
    let counter = unsteady(&store);
    let segments = start(&[Arc::clone(&counter)], small());
    counter.answers_after(Duration::from_millis(500));
    let drawn = numbers(&segments, 15).await;
    // Until the next call is in flight.
    let calls = counter.calls();
    while counter.calls() == calls {
        sleep(Duration::from_millis(1)).await;
    }
    let begin = Instant::now();
    segments.release(Duration::from_mins(1)).await;
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert_eq!(segments.try_take(1), Err(NoNumberError::Stopped));
    assert_eq!(counted(&store).await, drawn.len() as u64);
}

#[tokio::test(start_paused = true)]
async fn a_release_does_not_wait_longer_than_its_patience() {
    let counter = unsteady(&store());
    let segments = start(&[Arc::clone(&counter)], small());
    numbers(&segments, 1).await;
    counter.answers_after(Duration::from_hours(1));
    let begin = Instant::now();
    segments.release(Duration::from_millis(500)).await;
    assert!(begin.elapsed() <= Duration::from_secs(1));
    assert_eq!(segments.try_take(1), Err(NoNumberError::Stopped));
}

#[tokio::test(start_paused = true)]
async fn direct_numbers_grow_over_sources_and_callers_share_calls() {
    let counter = unsteady(&store());
    counter.answers_after(Duration::from_millis(50));
    let config = || SegmentConfig::new().mode(Mode::Direct);
    let sources = [start(&[Arc::clone(&counter)], config()), start(&[Arc::clone(&counter)], config())];
    assert!(matches!(sources[0].try_take(1), Err(NoNumberError::NotReady { why }) if why.contains("direct")));
    let highest = Arc::new(AtomicU64::new(0));
    let mut callers = Vec::new();
    for caller in 0..40 {
        let (segments, highest) = (sources[caller % 2].clone(), Arc::clone(&highest));
        callers.push(tokio::spawn(async move {
            let mut drawn = Vec::new();
            for round in 0..50 {
                let before = highest.load(Ordering::SeqCst);
                let runs = segments.take(1 + (caller + round) % 3).await.unwrap();
                let numbers: Vec<u64> = runs.into_iter().flatten().collect();
                assert!(numbers[0] > before, "greater than all that was returned before");
                highest.fetch_max(*numbers.last().unwrap(), Ordering::SeqCst);
                drawn.extend(numbers);
                sleep(Duration::from_millis(3 * caller as u64)).await;
            }
            drawn
        }));
    }
    let mut all = Vec::new();
    for caller in callers {
        all.extend(caller.await.unwrap());
    }
    let calls = counter.calls();
    assert!(calls < 1000, "2000 requests of 40 callers shared {calls} calls");
    assert_eq!(all.len() as u64, *all.iter().max().unwrap(), "and no number is lost");
    all_differ(all);
}

#[tokio::test(start_paused = true)]
async fn direct_callers_hear_why_there_is_no_number_and_get_none_late() {
    let counter = unsteady(&store());
    counter.fails_with(Some(StoreErrorKind::Unavailable));
    let config = SegmentConfig::new().mode(Mode::Direct).patience(Duration::from_secs(2));
    let segments = start(&[Arc::clone(&counter)], config);
    let begin = Instant::now();
    let none = segments.take(1).await.unwrap_err();
    assert!(matches!(&none, NoNumberError::NotReady { why } if why.contains("unplugged")), "{none}");
    assert_eq!(begin.elapsed().as_secs(), 2);
    counter.fails_with(None);
    assert_eq!(numbers(&segments, 3).await, [1, 2, 3], "callers that went are forgotten");
    assert_eq!(segments.status().highest, 3);
}

#[tokio::test(start_paused = true)]
async fn with_two_stripes_one_may_fail_and_nobody_notices() {
    let counters: Vec<Arc<Unsteady>> = (1..=2)
        .map(|index| {
            let stripe = Stripe::new(index, 2).unwrap();
            Arc::new(Unsteady::new(stripe.counter(store() as Arc<dyn Store>, key(), 1)))
        })
        .collect();
    let segments = start(&counters, small());
    let mut drawn = numbers(&segments, 1000).await;
    for dead in [0, 1, 0] {
        counters[dead].fails_with(Some(StoreErrorKind::Unavailable));
        for _ in 0..500 {
            drawn.extend(numbers(&segments, 10).await);
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(segments.status().counters_failing, 1);
        counters[dead].fails_with(None);
        for _ in 0..500 {
            drawn.extend(numbers(&segments, 10).await);
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(segments.status().counters_failing, 0, "asked again, and back");
    }
    let odd = drawn.iter().filter(|number| *number % 2 == 1).count();
    assert!(odd > drawn.len() / 10 && odd < drawn.len() * 9 / 10, "both are used: {odd} of {}", drawn.len());
    all_differ(drawn);
    let refused = segments.take_run(n(2)).await.unwrap_err();
    assert_eq!(refused, NoNumberError::NotConsecutive { count: 2, step: 2 });
    assert_eq!(segments.take_run(n(1)).await.unwrap().count(), n(1));
    counters[0].answers_after(Duration::from_hours(1));
    for _ in 0..100 {
        numbers(&segments, 1000).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_is_consecutive_from_memory_or_from_the_counter() {
    let counter = unsteady(&store());
    let segments = start(&[Arc::clone(&counter)], small());
    segments.ready().await.unwrap();
    let mut drawn = Vec::new();
    let mut add = |run: Run, count: u64| {
        assert_eq!((run.count(), run.step()), (n(count), n(1)));
        drawn.extend(run);
    };
    for count in [3, 3, 3, 3, 10, 9, 7, 2000, 1, 5] {
        add(segments.take_run(n(count)).await.unwrap(), count);
        for run in segments.take(2).await.unwrap() {
            add(run, run.count().get());
        }
    }
    all_differ(drawn);
    let calls = counter.calls();
    for _ in 0..1000 {
        let _ = segments.take_run(n(9)).await.unwrap();
    }
    assert!(counter.calls() < calls + 100, "runs shorter than a segment come from memory");
}

#[tokio::test(start_paused = true)]
async fn the_maximum_is_the_last_number_and_its_error_says_so() {
    for mode in [Mode::Cached, Mode::Direct] {
        let store = store();
        let config = small().mode(mode).first(1001).maximum(2000);
        let segments = start(&[unsteady(&store)], config);
        let mut drawn = Vec::new();
        let end = loop {
            match segments.take(7).await {
                Ok(runs) => drawn.extend(runs.into_iter().flatten()),
                Err(end) => break end,
            }
        };
        assert_eq!(end, NoNumberError::TooFewLeft { count: 7, left: 6, maximum: 2000 });
        // The request that could not be served in full has taken none.
        drawn.extend(numbers(&segments, 6).await);
        assert_eq!(drawn, (1001..=2000).collect::<Vec<u64>>(), "{mode:?}");
        let end = segments.take(7).await.unwrap_err();
        assert_eq!(end, NoNumberError::Exhausted { maximum: 2000 });
        assert!(end.to_string().contains("2000"));
        let status = segments.status();
        assert_eq!((status.highest, status.left), (2000, 0), "{status:?}");
        assert!(status.used >= 1.0);
        let reserved = counted(&store).await;
        for _ in 0..100 {
            assert_eq!(segments.take(1).await, Err(NoNumberError::Exhausted { maximum: 2000 }));
        }
        assert_eq!(counted(&store).await, reserved, "the counter does not run on");
    }
}

/// Goal: a request for more numbers than are left changes nothing, whichever node gets it. Method: two nodes;
/// one knows nothing of what the other has drawn.
#[tokio::test(start_paused = true)]
async fn a_request_for_more_than_is_left_takes_nothing() {
    for mode in [Mode::Cached, Mode::Direct] {
        for consecutive in [false, true] {
            let store = store();
            let config = || SegmentConfig::new().mode(mode).sizes(10..=100).maximum(99_999);
            let node = || start(&[unsteady(&store)], config());
            let first = node();
            let mut drawn = numbers(&first, 3).await;
            if mode == Mode::Direct {
                drawn.extend(first.take_run(n(50_000)).await.unwrap());
            }
            let second = node();
            second.ready().await.unwrap();
            let before = counted(&store).await;
            for too_many in [100_000, 99_999] {
                let refused = if consecutive {
                    second.take_run(n(too_many)).await.map(|run| vec![run])
                } else {
                    second.take(usize::try_from(too_many).unwrap()).await
                };
                let error = refused.unwrap_err();
                assert!(
                    matches!(error, NoNumberError::TooFewLeft { left: 1.., maximum: 99_999, .. }),
                    "{mode:?}: {error}"
                );
            }
            // In cached mode, a refill may come meanwhile.
            assert!(counted(&store).await <= before + 200, "{mode:?}");
            drawn.extend(numbers(&second, 1).await);
            drawn.extend(numbers(&first, 1).await);
            all_differ(drawn);
        }
    }
}

/// Goal: a run that would cross the first number begins at it.
#[tokio::test(start_paused = true)]
async fn the_first_run_begins_at_the_first_number() {
    let segments = start(&[unsteady(&store())], small().mode(Mode::Direct).first(1000));
    for first in [1000, 3000] {
        let run = segments.take_run(n(2000)).await.unwrap();
        assert_eq!((run.first(), run.count()), (first, n(2000)));
    }
}

/// Goal: a node that noticed that the counter went back, and stops, does not wind it back to what it had
/// reserved before: other nodes have reserved those numbers since. Method: the record is set to 0 under a
/// node with many numbers in memory.
#[tokio::test(start_paused = true)]
async fn a_node_gives_back_nothing_from_before_the_counter_went_back() {
    let store = store();
    let first = start(&[unsteady(&store)], SegmentConfig::new().sizes(100..=100));
    numbers(&first, 50).await;
    sleep(Duration::from_secs(1)).await;
    assert!(counted(&store).await >= 500, "enough that the counter is raised below it");
    let record = store.load(&key()).await.unwrap().unwrap();
    let set = store.compare_and_set(&key(), Expected::Revision(record.revision), b"0").await.unwrap();
    assert!(matches!(set, Swap::Done(_)));
    let direct = || start(&[unsteady(&store)], SegmentConfig::new().mode(Mode::Direct));
    let mut drawn = direct().take_run(n(300)).await.unwrap().into_iter().collect::<Vec<_>>();
    numbers(&first, 150).await;
    sleep(Duration::from_secs(1)).await;
    let raised = counted(&store).await;
    first.release(Duration::from_secs(1)).await;
    assert!(counted(&store).await < raised, "what was reserved after that is given back");
    drawn.extend(direct().take_run(n(300)).await.unwrap());
    all_differ(drawn);
}

#[tokio::test(start_paused = true)]
async fn numbers_end_before_they_would_turn_negative() {
    let store = store();
    let start_at = |first: u64| {
        Arc::new(Unsteady::new(Stripe::WHOLE.counter(Arc::clone(&store) as Arc<dyn Store>, key(), first)))
    };
    let segments = start(&[start_at(MAX_NUMBER - 24)], small());
    let mut drawn = Vec::new();
    while let Ok(runs) = segments.take(1).await {
        drawn.extend(runs.into_iter().flatten());
    }
    assert_eq!(drawn, (MAX_NUMBER - 24..=MAX_NUMBER).collect::<Vec<u64>>());
    assert_eq!(segments.try_take(1), Err(NoNumberError::Exhausted { maximum: MAX_NUMBER }));
}

/// The counters of each period, on one store that can be cut off.
fn counters_of(store: &Arc<MemoryStore>, down: &Arc<AtomicBool>) -> CountersOf {
    let (store, down) = (Arc::clone(store), Arc::clone(down));
    Arc::new(move |period: Period| {
        let key = Key::new(format!("segments/test/{period}")).unwrap();
        let counter = Stripe::WHOLE.counter(Arc::clone(&store) as Arc<dyn Store>, key, 1);
        vec![Arc::new(Unsteady::new(counter).down_while(Arc::clone(&down))) as Arc<dyn Counter>]
    })
}

#[tokio::test(start_paused = true)]
async fn numbers_restart_each_day_without_a_wait_and_nodes_with_other_clocks_never_mix() {
    let store = store();
    let down = Arc::new(AtomicBool::new(false));
    for mode in [Mode::Cached, Mode::Direct] {
        // 5 minutes before midnight; one node is 20 s behind the other.
        let sources = [0, 20_000].map(|behind_ms| {
            let clock = TokioClock::at(DAY + 86_100_000 - behind_ms);
            let config = small().mode(mode).reserve(Duration::from_mins(1));
            Segments::start_periodic(Reset::Daily, counters_of(&store, &down), config, clock).unwrap()
        });
        let (mut seen, mut last) = (HashSet::new(), [None, None]);
        for second in 0..600 {
            sleep(Duration::from_secs(1)).await;
            // The store is down at midnight: the numbers that were reserved ahead are used.
            down.store(mode == Mode::Cached && (295..330).contains(&second), Ordering::SeqCst);
            for (source, last) in sources.iter().zip(&mut last) {
                let run = source.take(1).await.unwrap()[0];
                let drawn = (run.period().unwrap().to_string(), run.first());
                assert!(last.as_ref() < Some(&drawn), "period and number grow: {drawn:?} after {last:?}");
                *last = Some(drawn.clone());
                assert!(seen.insert(drawn), "a number came twice in a period");
            }
        }
        let of = |day: &str| seen.iter().filter(|(period, _)| period == day).count();
        assert_eq!(of("2026-11-21") + of("2026-11-22"), 1200, "{mode:?}");
        assert!(of("2026-11-21").abs_diff(620) < 10, "{mode:?}: {}", of("2026-11-21"));
        for source in sources {
            assert_eq!(source.status().period.unwrap().to_string(), "2026-11-22");
            source.release(Duration::from_secs(1)).await;
        }
    }
}

/// Goal: the highest number of the next period is known while numbers are reserved ahead, and that of the
/// previous period after it ended. Method: a node from 90 s before midnight until after it, which draws
/// nothing of the next day.
#[tokio::test(start_paused = true)]
async fn the_highest_number_of_each_period_is_known() {
    let store = store();
    let clock = TokioClock::at(DAY + 86_400_000 - 90_000);
    let of = counters_of(&store, &Arc::default());
    let config = small().sizes(10..=10).reserve(Duration::ZERO);
    let node = Segments::start_periodic(Reset::Daily, of, config, clock).unwrap();
    let known = || {
        let status = node.status();
        status.highest_by_period.iter().map(|(day, highest)| (day.to_string(), *highest)).collect::<Vec<_>>()
    };
    let counted = async |day: &str| {
        let record = store.load(&Key::new(format!("segments/test/{day}")).unwrap()).await.unwrap();
        record.map_or(0, |record| String::from_utf8(record.value).unwrap().parse().unwrap())
    };
    let [today, tomorrow] = ["2026-11-21", "2026-11-22"].map(str::to_owned);
    numbers(&node, 15).await;
    sleep(Duration::from_secs(1)).await;
    let highest = counted(&today).await;
    assert!(highest >= 15);
    assert_eq!(known(), [(today.clone(), highest)]);
    sleep(Duration::from_secs(80)).await;
    let ahead = counted(&tomorrow).await;
    assert!(ahead > 0, "nothing was reserved ahead");
    assert_eq!(known(), [(today.clone(), highest), (tomorrow.clone(), ahead)]);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(node.status().period.unwrap().to_string(), tomorrow);
    // The numbers of the ended day that nobody drew were given back.
    assert_eq!(
        known(),
        [(today.clone(), counted(&today).await), (tomorrow.clone(), counted(&tomorrow).await)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_day_that_ends_gives_back_what_it_has_left() {
    let store = store();
    let down = Arc::new(AtomicBool::new(false));
    let clock = TokioClock::at(DAY + 86_399_000);
    let segments =
        Segments::start_periodic(Reset::Daily, counters_of(&store, &down), small(), clock).unwrap();
    numbers(&segments, 3).await;
    sleep(Duration::from_secs(5)).await;
    let record = store.load(&Key::new("segments/test/2026-11-21").unwrap()).await.unwrap().unwrap();
    assert_eq!(record.value, b"3");
    assert_eq!(numbers(&segments, 1).await, [1]);
}

/// Goal: a period ends at its boundary. Method: a clock that is moved over midnight while no time passes for
/// the task; then time that passes while nobody draws.
#[tokio::test(start_paused = true)]
async fn no_number_of_a_period_is_given_after_its_end() {
    const BEFORE_MS: u64 = 300;
    let down = Arc::new(AtomicBool::new(false));
    let clock = Arc::new(ManualClock::at_unix_ms(DAY + 86_400_000 - BEFORE_MS));
    let of = counters_of(&store(), &down);
    let segments = Segments::start_periodic(Reset::Daily, of, small(), Arc::clone(&clock)).unwrap();
    let day = |run: &Run| run.period().unwrap().to_string();
    let first = segments.take(3).await.unwrap();
    assert_eq!(day(&first[0]), "2026-11-21");
    let begun = Instant::now();
    clock.advance_ms(BEFORE_MS);
    assert!(segments.try_take(1).is_err(), "a number of yesterday at midnight");
    let next = segments.take(1).await.unwrap()[0];
    assert_eq!((day(&next), next.first()), ("2026-11-22".to_owned(), 1));
    assert_eq!(day(&segments.take_run(n(2)).await.unwrap()), "2026-11-22");
    assert_eq!(begun.elapsed(), Duration::ZERO, "nobody waited for the task to look");

    let clock = TokioClock::at(DAY + 86_400_000 - BEFORE_MS);
    let of = counters_of(&store(), &down);
    let segments = Segments::start_periodic(Reset::Daily, of, small(), clock).unwrap();
    segments.take(1).await.unwrap();
    sleep(Duration::from_millis(BEFORE_MS + 1)).await;
    assert_eq!(segments.status().period.unwrap().to_string(), "2026-11-22");
}

#[tokio::test]
async fn what_cannot_work_is_refused_before_the_store_is_asked() {
    let refused = |counters: usize, config: SegmentConfig| {
        let store = store();
        let counters = (0..counters).map(|_| unsteady(&store) as Arc<dyn Counter>).collect();
        Segments::start(counters, config, TokioClock::at(DAY)).unwrap_err().to_string()
    };
    let config = SegmentConfig::new;
    for (counters, config, words) in [
        (0, config(), "missing counter"),
        (2, config().mode(Mode::Direct), "expected 1, as"),
        (1, config().sizes(0..=10), "0 to 10"),
        (1, config().sizes(RangeInclusive::new(11, 10)), "11 to 10"),
        (1, config().sizes(1..=(1 << 40) + 1), "1099511627777"),
        (1, config().target(Duration::from_millis(9)), "9ms"),
        (1, config().reserve(Duration::from_secs(86_401)), "86401s"),
        (1, config().maximum(MAX_NUMBER + 1), "9223372036854775808"),
        (1, config().first(11).maximum(10), "11 to 10"),
        (1, config().patience(Duration::from_secs(3601)), "3601s"),
    ] {
        let text = refused(counters, config);
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn threads_draw_each_number_once_and_in_the_order_of_time() {
    const THREADS: usize = 4;
    const EACH: usize = 200_000;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let _guard = runtime.enter();
    let config = SegmentConfig::new().sizes(50..=5000).reserve(Duration::ZERO);
    let segments = start(&[unsteady(&store())], config);
    let highest = AtomicU64::new(0);
    let draw = |thread: usize| {
        let mut drawn = Vec::with_capacity(EACH);
        while drawn.len() < EACH {
            let before = highest.load(Ordering::SeqCst);
            match segments.try_take(1 + (thread + drawn.len()) % 3) {
                Ok(run) => {
                    assert!(run.first() > before, "{} after {before}", run.first());
                    highest.fetch_max(run.last(), Ordering::SeqCst);
                    drawn.extend(run);
                }
                Err(NoNumberError::NotReady { .. }) => std::thread::yield_now(),
                Err(other) => panic!("{other}"),
            }
        }
        drawn
    };
    let all: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || draw(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(segments.status().refills > 100, "{:?}", segments.status());
    all_differ(all);
}

#[test]
fn a_release_while_threads_draw_ends_all_and_loses_nothing() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let store = store();
    for _ in 0..50 {
        let begin = runtime.block_on(counted(&store));
        let segments = {
            let _guard = runtime.enter();
            start(&[unsteady(&store)], SegmentConfig::new().sizes(50..=5000).reserve(Duration::ZERO))
        };
        let drawn_some = AtomicU64::new(0);
        let draw = || {
            let mut drawn: Vec<u64> = Vec::new();
            loop {
                match segments.try_take(1) {
                    Ok(run) => drawn.extend(run),
                    Err(NoNumberError::Stopped) => return drawn,
                    Err(_) => std::thread::yield_now(),
                }
                drawn_some.fetch_add(1, Ordering::Relaxed);
            }
        };
        let mut all: Vec<u64> = std::thread::scope(|scope| {
            let threads = [scope.spawn(draw), scope.spawn(draw)];
            while drawn_some.load(Ordering::Relaxed) < 2000 {
                std::thread::yield_now();
            }
            runtime.block_on(segments.release(Duration::from_secs(30)));
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        all.sort_unstable();
        let end = runtime.block_on(counted(&store));
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "a number came twice");
        // Threads draw from a long queue of short segments: a thread that slept through all of it may lose a
        // few.
        let lost = end - begin - all.len() as u64;
        assert!(
            all.last() <= Some(&end) && lost <= 10,
            "{lost} of {} are neither drawn nor given back",
            end - begin
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_one_line_in_the_log_and_its_end_another() {
    let log = Log::default();
    let _guard = log.capture();
    let counter = unsteady(&store());
    let segments = start(&[Arc::clone(&counter)], small().maximum(100_000));
    numbers(&segments, 100).await;
    counter.fails_with(Some(StoreErrorKind::Unavailable));
    while segments.take(100).await.is_ok() {}
    sleep(Duration::from_mins(10)).await;
    counter.fails_with(None);
    numbers(&segments, 100).await;
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(
        lines[0].contains("WARN") && lines[0].contains("unplugged") && lines[1].contains("INFO"),
        "{lines:#?}"
    );
    while segments.take(1000).await.is_ok() {}
    let lines = log.lines();
    assert_eq!(lines.len(), 4, "{lines:#?}");
    assert!(lines[2].contains("nine tenths") && lines[3].contains("is reserved"), "{lines:#?}");
}

/// Goal: the log does not say that numbers are used before any is drawn. Method: a maximum that is below the
/// first segment.
#[tokio::test(start_paused = true)]
async fn numbers_in_memory_are_not_reported_as_used() {
    let log = Log::default();
    let _guard = log.capture();
    let segments = start(&[unsteady(&store())], small().maximum(5));
    sleep(Duration::from_mins(1)).await;
    let lines = log.lines();
    assert!(!lines.is_empty() && lines.iter().all(|line| !line.contains("used")), "{lines:#?}");
    assert!(
        lines.iter().any(|line| line.contains("every number up to the maximum is reserved")),
        "{lines:#?}"
    );
    assert_eq!(numbers(&segments, 5).await.len(), 5);
}

/// Goal: nodes that start together with a `start` share the numbers from there, and no segment is larger than
/// allowed.
#[tokio::test(start_paused = true)]
async fn a_start_is_reached_by_raising_so_that_no_node_takes_more_than_a_segment() {
    for mode in [Mode::Cached, Mode::Direct] {
        let store = store();
        let config = SegmentConfig::new().mode(mode).sizes(100..=1000).first(500_000).maximum(520_000);
        let counters: Vec<_> = (0..3).map(|_| unsteady(&store)).collect();
        for counter in &counters {
            counter.answers_after(Duration::from_millis(5));
        }
        let nodes: Vec<_> =
            counters.iter().map(|counter| start(&[Arc::clone(counter)], config.clone())).collect();
        let mut all = Vec::new();
        for _ in 0..1000 {
            for node in &nodes {
                all.extend(numbers(node, 1).await);
            }
        }
        assert!(
            all.iter().all(|number| (500_000..510_000).contains(number)),
            "{mode:?}: {:?}",
            all.iter().max()
        );
        all_differ(all);
        assert!(counted(&store).await < 510_000, "{mode:?}: {}", counted(&store).await);
    }
}

async fn set_back(store: &MemoryStore, slots: u64) {
    let record = store.load(&key()).await.unwrap().unwrap();
    let expected = Expected::Revision(record.revision);
    let swap = store.compare_and_set(&key(), expected, slots.to_string().as_bytes()).await.unwrap();
    assert!(matches!(swap, Swap::Done(_)));
}

/// Goal: a counter that went back while a node uses it is detected before any number is repeated, by every
/// way to draw. Method: the record is set back again and again, between draws from memory, by runs and
/// directly.
#[tokio::test(start_paused = true)]
async fn a_counter_that_went_back_gives_no_number_again_and_is_raised() {
    for mode in [Mode::Cached, Mode::Direct] {
        let log = Log::default();
        let _captured = log.capture();
        let store = store();
        let segments = start(&[unsteady(&store)], small().sizes(10..=50).mode(mode));
        let mut all = Vec::new();
        for round in 0..10 {
            let before = counted(&store).await;
            for count in [1, 30, 7, 200] {
                all.extend(numbers(&segments, count).await);
                all.extend(segments.take_run(n(150)).await.unwrap());
            }
            set_back(&store, before / 2 + round).await;
            for count in [300, 5] {
                all.extend(segments.take_run(n(150)).await.unwrap());
                all.extend(numbers(&segments, count).await);
            }
        }
        all_differ(all);
        let status = segments.status();
        assert!(status.refused >= 10, "{mode:?}: {status:?}");
        assert!(status.waiting.is_none(), "{mode:?}: {status:?}");
        let logged = |words: &str| log.lines().iter().filter(|line| line.contains(words)).count();
        assert!(
            logged("ERROR") >= 10 && logged("returned numbers that it had returned before") >= 10,
            "{log:?}"
        );
        assert!(logged("counter raised above") >= 10, "{log:?}");
    }
}

const MAY_LOSE: Duration = Duration::from_secs(2);

fn losing(store: &Arc<MemoryStore>) -> Arc<Unsteady> {
    let counter = Stripe::WHOLE.counter(Arc::clone(store) as Arc<dyn Store>, key(), 1);
    Arc::new(Unsteady::new(counter).may_lose(MAY_LOSE))
}

#[tokio::test(start_paused = true)]
async fn numbers_of_a_store_that_may_lose_them_are_used_once_they_have_settled() {
    let store = store();
    let segments = start(&[losing(&store)], small().reserve(Duration::from_secs(10)));
    let began = Instant::now();
    assert!(segments.try_take(1).is_err());
    let first = numbers(&segments, 1).await;
    assert_eq!((&first[..], began.elapsed() >= MAY_LOSE), (&[1][..], true), "{:?}", began.elapsed());
    let began = Instant::now();
    let run = segments.take_run(n(5000)).await.unwrap();
    assert!(run.count() == n(5000) && began.elapsed() >= MAY_LOSE, "a long run settles too");
    // Numbers are reserved ahead, so nobody waits for that.
    let (_, _) = draw_for(&segments, Duration::from_secs(10)).await;
    let (drawn, none) = draw_for(&segments, Duration::from_mins(1)).await;
    assert_eq!((drawn.len(), none), (60_000, 0), "{:?}", segments.status());
}

/// Goal: callers wait for numbers that settle, also after a failure that only somebody could mend. Method: a
/// store that was read-only accepts a reservation, which settles for 2 s.
#[tokio::test(start_paused = true)]
async fn callers_wait_for_numbers_that_settle_after_a_failure() {
    let counter = losing(&store());
    counter.fails_with(Some(StoreErrorKind::ReadOnly));
    let segments = start(&[Arc::clone(&counter)], small().patience(Duration::from_hours(1)));
    assert!(segments.ready().await.is_err());
    counter.fails_with(None);
    while segments.status().failure.is_some() {
        sleep(Duration::from_millis(10)).await;
    }
    let began = Instant::now();
    assert_eq!(segments.take(1).await.unwrap().len(), 1);
    assert!(
        began.elapsed() > MAY_LOSE / 2,
        "the failure ended before the numbers had settled: {:?}",
        began.elapsed()
    );
}

/// Goal: additions that a store lost are never used. Method: the store goes back to its state before them
/// while they settle, including the claims, and another node draws.
#[tokio::test(start_paused = true)]
async fn numbers_that_the_store_lost_before_they_settled_are_used_by_nobody_else() {
    let store = store();
    let segments = start(&[losing(&store)], small());
    sleep(MAY_LOSE / 2).await;
    // The failover: the record of the counter and the claims are empty, as they were before.
    set_back(&store, 0).await;
    let claims = Key::new("claims/segments/test").unwrap();
    let record = store.load(&claims).await.unwrap().unwrap();
    let swap = store.compare_and_set(&claims, Expected::Revision(record.revision), b"0").await.unwrap();
    assert!(matches!(swap, Swap::Done(_)));
    let other = start(&[losing(&store)], small());
    let mut all = numbers(&other, 25).await;
    assert_eq!(all[0], 1);
    all.extend(numbers(&segments, 25).await);
    all_differ(all);
    assert!(segments.status().refused > 0, "{:?}", segments.status());
}

#[tokio::test]
async fn direct_numbers_need_a_store_that_keeps_what_it_acknowledged() {
    let counters: Vec<Arc<dyn Counter>> = vec![losing(&store())];
    let direct = small().mode(Mode::Direct);
    let error = Segments::start(counters, direct, TokioClock::at(DAY)).unwrap_err().to_string();
    assert!(error.contains("direct mode needs a store that keeps") && error.contains("2s"), "{error}");
}

/// A node of a counter in a store that may lose writes.
fn start_on(store: &Arc<Losing>, config: SegmentConfig) -> Segments {
    let counter = Stripe::WHOLE.counter(Arc::clone(store) as Arc<dyn Store>, key(), 1);
    Segments::start(vec![Arc::new(counter)], config, TokioClock::at(DAY)).unwrap()
}

/// Goal: however many reservations of one counter settle at a time, none is wrongly taken for lost, and none
/// is lost unnoticed. Method: nodes whose segments are tiny, more of them than one record has room for; then
/// failovers.
#[tokio::test(start_paused = true)]
async fn many_small_reservations_settle_and_what_a_failover_loses_is_used_by_nobody() {
    let store = Losing::up_to(MAY_LOSE);
    let config = SegmentConfig::new().sizes(1..=1).reserve(Duration::from_secs(2));
    let log = Log::default();
    let _captured = log.capture();
    let nodes: Vec<Segments> = (0..80).map(|_| start_on(&store, config.clone())).collect();
    let mut all = Vec::new();
    let draw_for = async |all: &mut Vec<u64>, time: Duration| {
        let end = Instant::now() + time;
        while Instant::now() < end {
            sleep(Duration::from_millis(100)).await;
            for node in &nodes {
                while let Ok(run) = node.try_take(1) {
                    all.extend(run);
                }
            }
        }
    };
    draw_for(&mut all, Duration::from_secs(8)).await;
    assert!(all.len() > 500, "{}", all.len());
    for node in &nodes {
        assert_eq!(node.status().refused, 0, "none was taken for lost: {:?}", node.status());
    }
    let held_back = log.lines().iter().filter(|line| line.contains("have not settled (may_lose=2s)")).count();
    assert!(held_back > 0, "some are held back, and reported");
    for round in 0..2 {
        store.fail_over(MAY_LOSE / (1 + round % 2)).await;
        draw_for(&mut all, Duration::from_millis(2500)).await;
    }
    let refused: u64 = nodes.iter().map(|node| node.status().refused).sum();
    assert!(refused > 0, "the failovers lost reservations");
    all_differ(all);
}

/// Goal: the log distinguishes a loss that affects nothing from one that may. Method: a store loses what it
/// may, then more.
#[tokio::test(start_paused = true)]
async fn a_loss_of_what_had_not_settled_is_a_warning_and_any_other_an_error() {
    let (log, store) = (Log::default(), Losing::up_to(MAY_LOSE));
    let _captured = log.capture();
    let node = start_on(&store, small().reserve(Duration::from_secs(4)));
    let logged = |words: &str| log.lines().iter().filter(|line| line.contains(words)).count();
    let mut all = numbers(&node, 10).await;
    all.extend(draw_for(&node, Duration::from_secs(20)).await.0);
    for _ in 0..3 {
        store.fail_over(MAY_LOSE).await;
        all.extend(draw_for(&node, Duration::from_secs(10)).await.0);
    }
    assert!(logged("no id is affected; the counter is raised") > 0, "{log:?}");
    assert!(logged("ERROR") == 0 && logged("restored") == 0, "{log:?}");
    store.fail_over(Duration::from_secs(15)).await;
    all.extend(draw_for(&node, Duration::from_secs(20)).await.0);
    assert!(logged("ERROR") > 0 && logged("snowmint store recover") > 0, "{log:?}");
    all_differ(all);
}

/// Goal: on one node numbers increase, whatever part of them comes from memory and from the counter. Method:
/// runs longer and shorter than the segments in memory, mixed with single numbers, and many long ones.
#[tokio::test(start_paused = true)]
async fn numbers_of_a_node_grow_also_after_a_long_run() {
    for may_lose in [Duration::ZERO, MAY_LOSE] {
        let node = start_on(&Losing::up_to(may_lose), small());
        let mut last = 0;
        for count in [1, 7000, 1, 3, 200, 1, 40, 9, 60, 5000, 2, 1] {
            let run = node.take_run(n(count)).await.unwrap();
            assert!(run.first() > last, "{count} from {} on after {last}", run.first());
            let one = numbers(&node, 1).await[0];
            assert!(one > run.last(), "{one} after {}", run.last());
            last = one;
        }
    }
    let store = store();
    let node = start(&[unsteady(&store)], small().reserve(Duration::from_secs(30)));
    for _ in 0..200 {
        assert_eq!(node.take_run(n(1000)).await.unwrap().count(), n(1000));
        numbers(&node, 1).await;
        sleep(Duration::from_millis(100)).await;
    }
    let lost = counted(&store).await - 200_200 - node.status().left;
    assert!(lost < 60_000, "segments grow until runs come from memory: {lost} lost, {:?}", node.status());
}

/// Goal: a clock that goes back over the start of a period repeats no number, and raises no false alarm.
/// Method: steps back and forth over midnight, and over more periods than are remembered.
#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_over_periods_gives_no_number_again_and_no_alarm() {
    const DAY_MS: u64 = 86_400_000;
    for mode in [Mode::Cached, Mode::Direct] {
        let (log, store, down) = (Log::default(), store(), Arc::default());
        let _captured = log.capture();
        let clock = SteppedClock::at(DAY);
        let config = small().mode(mode);
        let node = Segments::start_periodic(Reset::Daily, counters_of(&store, &down), config, clock.clone())
            .unwrap();
        let mut seen = HashSet::new();
        let days = [0, 1, 0, 1, 2, 0, 20, 1, 0, 20, 5, 0];
        for day in days {
            clock.is_ahead_by(day * DAY_MS);
            sleep(Duration::from_secs(3)).await;
            for count in [3, 40, 1] {
                for run in node.take(count).await.unwrap() {
                    let period = run.period().unwrap();
                    assert_eq!(period.begin_unix_ms(), DAY + day * DAY_MS);
                    for number in run {
                        assert!(seen.insert((period, number)), "{number} of {period} came twice");
                    }
                }
            }
            let run = node.take_run(n(500)).await.unwrap();
            let period = run.period().unwrap();
            assert!(run.into_iter().all(|number| seen.insert((period, number))), "{mode:?}");
            // Wait until numbers are in memory when the clock steps.
            sleep(Duration::from_millis(100)).await;
        }
        let alarms: Vec<_> =
            log.lines().into_iter().filter(|line| line.contains("WARN") || line.contains("ERROR")).collect();
        assert!(alarms.is_empty() && node.status().refused == 0, "{mode:?}: {alarms:#?}");
    }
}

/// Goal: the current period continues while the first numbers of the next one are pending. Method: the next
/// day's counter hangs.
#[tokio::test(start_paused = true)]
async fn a_slow_reservation_for_the_next_period_keeps_nobody_waiting() {
    let (store, down) = (store(), Arc::default());
    let of_now = counters_of(&store, &down);
    let hanging = Arc::clone(&store);
    let counters_of: CountersOf = Arc::new(move |period: Period| {
        if period.begin_unix_ms() == DAY {
            return of_now(period);
        }
        let key = Key::new(format!("segments/test/{period}")).unwrap();
        let counter = Unsteady::new(Stripe::WHOLE.counter(Arc::clone(&hanging) as Arc<dyn Store>, key, 1));
        counter.answers_after(Duration::from_mins(10));
        vec![Arc::new(counter)]
    });
    let clock = TokioClock::at(DAY + 86_400_000 - 90_000);
    let node = Segments::start_periodic(Reset::Daily, counters_of, small().sizes(10..=300), clock).unwrap();
    node.ready().await.unwrap();
    // Until the segment size fits the demand.
    draw_for(&node, Duration::from_secs(20)).await;
    let (drawn, misses) = draw_for(&node, Duration::from_secs(69)).await;
    assert_eq!((drawn.len(), misses), (69_000, 0), "{:?}", node.status());
}
