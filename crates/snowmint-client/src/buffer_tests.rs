//! Tests of the buffer. They are in a file of their own because the loom tests compile `buffer.rs` with other
//! atomics.

use std::sync::Arc;

use snowmint::{Clock, Id, ManualClock};

use crate::buffer::{BufferedRange, IdBuffer, Level};

fn range(first: u64, count: u64) -> BufferedRange {
    BufferedRange::new(first, count, 1).unwrap()
}

fn buffer() -> IdBuffer<Arc<ManualClock>> {
    IdBuffer::new(Arc::new(ManualClock::at_unix_ms(1000)))
}

fn draw_all(buffer: &IdBuffer<Arc<ManualClock>>, count: u64) -> Vec<u64> {
    let draws = std::iter::from_fn(|| buffer.draw(count));
    draws.flat_map(|drawn| drawn.range.ids().map(Id::get).collect::<Vec<_>>()).collect()
}

#[test]
fn a_range_is_checked_as_a_whole() {
    let most = i64::MAX.cast_unsigned();
    for (first, count, step) in [(0, 1, 0), (most, 1, 0), (most, 1, u64::MAX), (most - 4, 3, 2)] {
        let ids = BufferedRange::new(first, count, step).unwrap().ids().count();
        assert_eq!(ids as u64, count);
    }
    let rejected = [
        (1, 0, 1),
        (1, 2, 0),
        (most, 2, 1),
        (most + 1, 1, 1),
        (u64::MAX, 1, 1),
        (u64::MAX, 2, 1),
        (1, 3, u64::MAX / 2 + 1),
        (1, 2, most),
        (0, BufferedRange::MAX_COUNT + 1, 1),
    ];
    for (first, count, step) in rejected {
        assert_eq!(BufferedRange::new(first, count, step), None, "{first} {count} {step}");
    }
}

#[test]
fn ids_come_once_and_in_order() {
    for count in [1, 2, 3, 100] {
        let buffer = buffer();
        assert!(draw_all(&buffer, count).is_empty());
        buffer.put([range(10, 3), BufferedRange::new(20, 4, 5).unwrap()], u64::MAX);
        assert_eq!(draw_all(&buffer, count), [10, 11, 12, 20, 25, 30, 35]);
        buffer.put([range(50, 1)], u64::MAX);
        assert_eq!(draw_all(&buffer, count), [50]);
        assert_eq!(buffer.level(), Level { left: 0, drawn: 8, is_low: false });
    }
}

#[test]
fn old_ids_are_dropped() {
    let buffer = buffer();
    buffer.put([range(1, 2), range(10, 2)], 1500);
    buffer.put([range(20, 2)], 1600);
    assert_eq!(buffer.draw(1).unwrap().range, range(1, 1));
    buffer.clock().advance_ms(499);
    assert_eq!(buffer.draw(1).unwrap().range, range(2, 1));
    assert_eq!(buffer.draw(1).unwrap().range, range(10, 1));
    buffer.clock().advance_ms(1);
    assert_eq!(buffer.level().left, 2);
    assert_eq!(buffer.draw(1).unwrap().range, range(20, 1));
    buffer.clock().advance_ms(100);
    assert_eq!(buffer.draw(1), None);
    assert_eq!(buffer.level(), Level { left: 0, drawn: 4, is_low: false });
}

#[test]
fn a_cleared_buffer_gives_nothing_of_before() {
    let buffer = buffer();
    buffer.put([range(1, 5), range(10, 5)], u64::MAX);
    buffer.draw(2).unwrap();
    buffer.clear();
    assert!(draw_all(&buffer, 1).is_empty());
    assert_eq!(buffer.level(), Level { left: 0, drawn: 2, is_low: false });
    buffer.put([range(20, 1)], u64::MAX);
    assert_eq!(draw_all(&buffer, 1), [20]);
}

#[test]
fn the_draw_that_leaves_few_ids_says_so_once() {
    for (ranges, count) in
        [(vec![range(0, 10)], 1), (vec![range(0, 3), range(10, 3), range(20, 4)], 1), (vec![range(0, 10)], 3)]
    {
        let buffer = buffer();
        buffer.set_low(5);
        buffer.put(ranges, u64::MAX);
        let mut left = 10;
        while let Some(drawn) = buffer.draw(count) {
            let before = left;
            left -= drawn.range.count();
            // In the middle of a range, or at the first draw from a range that begins below the mark.
            if drawn.is_low {
                assert!(left < 5, "{left} left");
            }
            assert!(drawn.is_low || !(before >= 5 && left < 5), "from {before} to {left}");
            assert_eq!(buffer.level().is_low, left < 5);
        }
    }
    let never_low = buffer();
    never_low.put([range(0, 10)], u64::MAX);
    assert!(std::iter::from_fn(|| never_low.draw(1)).all(|drawn| !drawn.is_low));
}

/// Goal: threads that draw while ids are put and dropped get each id at most once. Method: many small ranges,
/// real threads.
#[test]
fn threads_draw_each_id_once() {
    const RANGES: u64 = 20_000;
    let buffer = buffer();
    let mut all = std::thread::scope(|scope| {
        let drawers: Vec<_> = (1..=3)
            .map(|count| {
                let buffer = &buffer;
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    while mine.last() != Some(&u64::MAX) {
                        match buffer.draw(count) {
                            Some(drawn) => mine.extend(drawn.range.ids().map(Id::get)),
                            None if buffer.clock().unix_ms() > 1000 + RANGES => mine.push(u64::MAX),
                            None => std::thread::yield_now(),
                        }
                    }
                    mine.pop();
                    mine
                })
            })
            .collect();
        for nth in 0..RANGES {
            buffer.put([range(nth * 10, 1 + nth % 7)], 1000 + nth + 40);
            buffer.clock().advance_ms(1);
            if nth % 1000 == 999 {
                buffer.clear();
            }
        }
        buffer.clock().advance_ms(1);
        drawers.into_iter().flat_map(|drawer| drawer.join().unwrap()).collect::<Vec<_>>()
    });
    let count = all.len();
    assert_eq!(buffer.level().drawn, count as u64);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
}
