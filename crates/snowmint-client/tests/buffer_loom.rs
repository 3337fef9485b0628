//! Goal: no interleaving of threads draws an id twice, or loses one that is young enough. Method: loom runs
//! every interleaving with up to three preemptions of the production buffer, with loom's atomics and lock in
//! place of the real ones.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(dead_code, unreachable_pub, reason = "the buffer is used in part")]

use std::sync::Arc;

use loom::thread;
use snowmint::{Id, ManualClock};

#[path = "../src/buffer.rs"]
mod buffer;

/// Replaces `sync` of `src/lib.rs` in the model.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

use buffer::{BufferedRange, IdBuffer};

type TestBuffer = Arc<IdBuffer<Arc<ManualClock>>>;

fn range(first: u64, count: u64) -> BufferedRange {
    BufferedRange::new(first, count, 1).unwrap()
}

fn buffer() -> TestBuffer {
    Arc::new(IdBuffer::new(Arc::new(ManualClock::at_unix_ms(1000))))
}

fn draw(buffer: &TestBuffer, count: u64) -> Vec<u64> {
    buffer.draw(count).into_iter().flat_map(|drawn| drawn.range.ids()).map(Id::get).collect()
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Checks that there are no duplicates, and returns the number of ids.
fn count_distinct(mut ids: Vec<u64>) -> usize {
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "an id came twice: {ids:?}");
    count
}

/// Uses three ranges, so that a thread that sleeps finds its slot reused for another range.
#[test]
fn over_the_ends_of_ranges_each_id_is_drawn_once_and_in_order() {
    explore(|| {
        let buffer = buffer();
        buffer.put([range(1, 1), range(11, 1), range(21, 1)], u64::MAX);
        let drawer = |buffer: TestBuffer| move || [draw(&buffer, 1), draw(&buffer, 1)].concat();
        let other = thread::spawn(drawer(Arc::clone(&buffer)));
        let mine = drawer(Arc::clone(&buffer))();
        let theirs = other.join().unwrap();
        assert!(mine.is_sorted() && theirs.is_sorted(), "{mine:?} {theirs:?}");
        assert_eq!(count_distinct([mine, theirs].concat()), 3);
        assert_eq!((buffer.level().drawn, buffer.level().left), (3, 0));
    });
}

#[test]
fn while_ids_are_put_each_is_drawn_once() {
    explore(|| {
        let buffer = buffer();
        buffer.put([range(1, 2)], u64::MAX);
        let (drawing, putting) = (Arc::clone(&buffer), Arc::clone(&buffer));
        let drawer = thread::spawn(move || [draw(&drawing, 2), draw(&drawing, 2)].concat());
        let putter = thread::spawn(move || putting.put([range(11, 2), range(21, 1)], u64::MAX));
        let mine = draw(&buffer, 1);
        let theirs = drawer.join().unwrap();
        putter.join().unwrap();
        let rest = std::iter::repeat_with(|| draw(&buffer, 9)).take_while(|ids| !ids.is_empty());
        assert_eq!(count_distinct([mine, theirs, rest.flatten().collect()].concat()), 5);
    });
}

#[test]
fn what_was_cleared_is_not_drawn_and_nothing_twice() {
    explore(|| {
        let buffer = buffer();
        buffer.put([range(1, 2), range(11, 1)], u64::MAX);
        let drawing = Arc::clone(&buffer);
        let drawer = thread::spawn(move || [draw(&drawing, 1), draw(&drawing, 1)].concat());
        buffer.clear();
        buffer.put([range(21, 1)], u64::MAX);
        let mine = draw(&buffer, 1);
        assert!(mine.iter().all(|id| *id == 21), "{mine:?} after the buffer was cleared");
        let theirs = drawer.join().unwrap();
        let drawn = count_distinct([mine, theirs, draw(&buffer, 9)].concat());
        assert_eq!(buffer.level().drawn, drawn as u64);
    });
}
