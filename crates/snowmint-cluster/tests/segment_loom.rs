//! Goal: no interleaving of threads draws a number twice, loses the order, misses the driver's wake-up, or
//! draws after the end. Method: loom runs every interleaving with up to three preemptions of the production
//! queue, with loom's atomics in place of the real ones, and room for two segments only, so that slots are
//! reused.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(dead_code, unreachable_pub, reason = "the queue is used in part")]

use std::num::NonZeroU64;
use std::sync::Arc;

use loom::thread;
use snowmint_store::Segment;

#[path = "../src/segment/queue.rs"]
mod queue;

/// Replaces `sync` of `src/segment.rs` in the model.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

    pub(crate) const ROOM: u64 = 2;
}

use queue::{Producer, SegmentQueue, Unused};

fn n(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

fn numbers(first: u64, count: u64) -> Segment {
    Segment::new(first, n(1), n(count)).unwrap()
}

fn put(producer: &mut Producer, first: u64, count: u64) {
    assert!(producer.room() > 0);
    producer.put(Unused { counter: 0, segment: numbers(first, count) }, 0);
}

fn open(segments: &[(u64, u64)]) -> (Arc<SegmentQueue>, Producer) {
    let (queue, mut producer) = SegmentQueue::open();
    for (first, count) in segments {
        put(&mut producer, *first, *count);
    }
    (queue, producer)
}

fn of(segment: Segment) -> impl Iterator<Item = u64> {
    segment.first()..=segment.last()
}

fn draw(queue: &SegmentQueue, count: u64) -> Vec<u64> {
    queue.draw(n(count)).into_iter().flat_map(|drawn| of(drawn.segment)).collect()
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn all_differ(mut numbers: Vec<u64>) {
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), count, "a number came twice");
}

#[test]
fn over_the_end_of_a_segment_each_number_is_drawn_once_and_in_order() {
    explore(|| {
        let (queue, _producer) = open(&[(1, 2), (11, 2)]);
        let drawer = |queue: Arc<SegmentQueue>| move || [draw(&queue, 1), draw(&queue, 2)].concat();
        let other = thread::spawn(drawer(Arc::clone(&queue)));
        let mine = drawer(Arc::clone(&queue))();
        let theirs = other.join().unwrap();
        assert!(mine.is_sorted() && theirs.is_sorted(), "{mine:?} {theirs:?}");
        let rest = draw(&queue, 9);
        all_differ([mine, theirs, rest].concat());
        assert_eq!(queue.left(), 0);
    });
}

#[test]
fn a_segment_put_while_two_draw_is_found() {
    explore(|| {
        let (queue, mut producer) = open(&[(1, 1)]);
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || [draw(&queue, 1), draw(&queue, 1)].concat())
        };
        put(&mut producer, 11, 2);
        let mine = draw(&queue, 2);
        let theirs = other.join().unwrap();
        assert!(theirs.is_sorted());
        let rest = draw(&queue, 9);
        let drawn = [mine, theirs, rest].concat();
        assert_eq!(drawn.len(), 3, "none is lost");
        all_differ(drawn);
    });
}

#[test]
fn numbers_returned_as_unused_at_the_end_are_never_drawn() {
    explore(|| {
        let (queue, _producer) = open(&[(1, 2), (11, 1)]);
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || [draw(&queue, 1), draw(&queue, 2)].concat())
        };
        let unused = queue.end();
        assert_eq!(draw(&queue, 1), [0; 0], "nothing after the end");
        let unused: Vec<u64> = unused.iter().flat_map(|unused| of(unused.segment)).collect();
        let drawn = other.join().unwrap();
        assert!(
            drawn.iter().max() < unused.iter().min() || unused.is_empty(),
            "{drawn:?} keep {unused:?} from a return"
        );
        let all = [drawn, unused].concat();
        assert_eq!(all.len(), 3, "each is drawn or returned as unused");
        all_differ(all);
    });
}

#[test]
fn the_driver_is_woken_or_sees_that_few_are_left() {
    explore(|| {
        let (queue, producer) = open(&[(1, 2), (11, 1)]);
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let drawn = [queue.draw(n(1)), queue.draw(n(1))];
                drawn.into_iter().flatten().any(|drawn| drawn.wakes_producer)
            })
        };
        let seen_by_driver = producer.wake_below(2) < 2;
        let woken = other.join().unwrap();
        assert!(woken || seen_by_driver, "one of three is left, and nobody knows");
    });
}

#[test]
fn a_queue_that_restarts_while_drawn_from() {
    explore(|| {
        const DAYS: [u64; 2] = [1, 2];
        let (queue, mut producer) = SegmentQueue::open();
        let of_day = |count| Unused { counter: 0, segment: numbers(1, count) };
        producer.put(of_day(2), DAYS[0]);
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || [queue.draw(n(1)), queue.draw(n(1))])
        };
        let unused = producer.restart();
        producer.put(of_day(3), DAYS[1]);
        let mine = queue.draw(n(1)).unwrap();
        assert_eq!(mine.label, DAYS[1], "a later draw gets a number of the next period");
        let drawn: Vec<_> = other.join().unwrap().into_iter().flatten().chain([mine]).collect();
        let pairs: Vec<_> = drawn.iter().map(|drawn| (drawn.label, drawn.segment.first())).collect();
        let mut distinct = pairs.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), pairs.len(), "a number came twice in a period");
        let of_day_1 = pairs.iter().filter(|(label, _)| *label == DAYS[0]).count();
        let unused: u64 = unused.iter().map(|unused| unused.segment.count().get()).sum();
        assert_eq!(of_day_1 as u64 + unused, 2);
    });
}

#[test]
fn a_slot_reused_while_a_thread_slept_gives_it_nothing_of_another_turn() {
    explore(|| {
        let (queue, mut producer) = open(&[(1, 1), (11, 1)]);
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || draw(&queue, 1))
        };
        let mut mine = [draw(&queue, 1), draw(&queue, 1)].concat();
        // Once the first turn is left, its slot is reused.
        if producer.room() > 0 {
            put(&mut producer, 21, 2);
        }
        mine.extend(draw(&queue, 1));
        let theirs = other.join().unwrap();
        assert!(mine.is_sorted() && theirs.is_sorted(), "{mine:?} {theirs:?}");
        let rest = draw(&queue, 9);
        let all = [mine, theirs, rest].concat();
        assert!(all.iter().all(|number| [1, 11, 21, 22].contains(number)), "{all:?}");
        all_differ(all);
    });
}

#[test]
fn a_run_that_does_not_fit_leaves_what_is_left_behind_for_everybody() {
    explore(|| {
        let (queue, _producer) = open(&[(1, 3), (11, 3)]);
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || [draw(&queue, 2), draw(&queue, 1)].concat())
        };
        let run: Vec<u64> = queue.draw_whole(n(2)).into_iter().flat_map(|drawn| of(drawn.segment)).collect();
        assert!(run.len() == 2 && run[1] == run[0] + 1);
        let theirs = other.join().unwrap();
        assert!(theirs.is_sorted());
        all_differ([run, theirs].concat());
    });
}

#[test]
fn after_numbers_below_a_run_have_ended_nobody_draws_one_of_them() {
    explore(|| {
        let (queue, mut producer) = open(&[(1, 3)]);
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || [draw(&queue, 1), draw(&queue, 1)].concat())
        };
        let ended = queue.end_below(0, 10);
        assert_eq!(queue.end_below(0, 10), 0, "each is ended once");
        put(&mut producer, 21, 2);
        let mine = draw(&queue, 1);
        assert!(mine.iter().all(|number| *number >= 21), "{mine:?}");
        let theirs = other.join().unwrap();
        assert!(theirs.is_sorted(), "{theirs:?}");
        let below = theirs.iter().filter(|number| **number < 10).count() as u64;
        assert_eq!(below + ended, 3, "each is drawn or was ended: {theirs:?}");
        all_differ([mine, theirs].concat());
    });
}

#[test]
fn a_full_queue_takes_no_other_segment() {
    explore(|| {
        let (queue, mut producer) = open(&[(1, 1), (11, 1)]);
        assert_eq!(producer.room(), 0);
        producer.put(Unused { counter: 0, segment: numbers(21, 1) }, 0);
        assert_eq!([draw(&queue, 1), draw(&queue, 1), draw(&queue, 1)].concat(), [1, 11]);
        assert_eq!(producer.room(), 2);
    });
}
