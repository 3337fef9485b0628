//! Goal: the clock is read once while a reading holds, nobody spins while waiting, and those who wait take turns.
//! Method: a clock that counts its readings, under each form of the generator.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use snowmint::{
    AnchoredClock, BlockGenerator, BuildError, Clock, Generator, Hold, Id, Layout, ManualClock, Reading,
    Refusal, Rule,
};

const T0: u64 = 1_700_000_000_000;

#[derive(Debug)]
struct Counted {
    clock: ManualClock,
    readings: AtomicU64,
}

impl Counted {
    fn new() -> Self {
        Self { clock: ManualClock::at_unix_ms(T0), readings: AtomicU64::new(0) }
    }

    fn readings(&self) -> u64 {
        self.readings.load(Ordering::SeqCst)
    }
}

impl Clock for Counted {
    fn unix_ms(&self) -> u64 {
        self.read().unix_ms
    }

    fn read(&self) -> Reading {
        self.readings.fetch_add(1, Ordering::SeqCst);
        self.clock.read()
    }

    fn holds(&self, hold: Hold) -> bool {
        self.clock.holds(hold)
    }
}

fn shared(clock: &Counted) -> Result<Generator<&Counted>, BuildError> {
    Generator::builder(Layout::TWITTER).rule(Rule::REJECT).build(clock)
}

#[test]
fn a_tick_is_drawn_from_under_one_reading() {
    let clock = Counted::new();
    let generator = shared(&clock).unwrap();
    let mut block = BlockGenerator::new(&generator, NonZeroU32::new(64).unwrap());
    for tick in 1..=3 {
        for _ in 0..100 {
            generator.try_next().unwrap();
            assert_eq!(generator.try_take(10).unwrap().count(), 10);
            block.try_next().unwrap();
        }
        assert_eq!(clock.readings(), tick, "one for each tick, whoever opens it");
        clock.clock.advance_ms(1);
    }
    let mut owned = Generator::builder(Layout::TWITTER).build_owned(&clock).unwrap();
    for _ in 0..4096 {
        owned.try_next().unwrap();
    }
    assert_eq!(clock.readings(), 4);
}

#[test]
fn a_block_opens_the_tick_for_others() {
    let clock = Counted::new();
    let generator = shared(&clock).unwrap();
    BlockGenerator::new(&generator, NonZeroU32::new(64).unwrap()).try_next().unwrap();
    generator.try_next().unwrap();
    assert_eq!(clock.readings(), 1);
}

/// Five readings of one caller that waits a millisecond between two of them take four milliseconds at least, on
/// any machine; one that spins has them in a moment.
fn sleeps(clock: &Counted, next: impl FnOnce() -> Result<Id, Refusal> + Send) {
    let time = AnchoredClock::new();
    let (began_ms, before) = (time.unix_ms(), clock.readings());
    std::thread::scope(|scope| {
        let waits = scope.spawn(next);
        while clock.readings() < before + 5 {
            std::thread::yield_now();
        }
        assert!(time.unix_ms() - began_ms >= 3, "it spins");
        clock.clock.advance_ms(1);
        waits.join().unwrap().unwrap();
    });
}

#[test]
fn who_waits_sleeps() {
    let clock = Counted::new();
    let generator = shared(&clock).unwrap();
    let mut block = BlockGenerator::new(&generator, NonZeroU32::new(64).unwrap());
    let mut owned = Generator::builder(Layout::TWITTER).rule(Rule::REJECT).build_owned(&clock).unwrap();
    assert_eq!(generator.try_take(4096).unwrap().len(), 4096);
    sleeps(&clock, || generator.next());
    assert_eq!(generator.try_take(4095).unwrap().len(), 4095);
    sleeps(&clock, || block.next());
    assert_eq!(owned.try_take(4096).unwrap().len(), 4096);
    sleeps(&clock, || owned.next());
}

#[cfg(feature = "async")]
#[test]
fn who_waits_second_waits_longer_where_that_loses_no_id() {
    use std::cell::RefCell;
    use std::pin::pin;
    use std::task::{Context, Waker};
    use std::time::Duration;

    for (layout, max_behind_ms, first, second) in [
        (Layout::TWITTER, 4, 1, 2),
        (Layout::TWITTER, 2, 1, 2),
        (Layout::TWITTER, 1, 1, 1),
        ("sonyflake".parse().unwrap(), 4, 10, 10),
        ("sonyflake".parse().unwrap(), 10, 10, 11),
    ] {
        let clock = ManualClock::at_unix_ms(T0);
        let builder = Generator::builder(layout).max_behind(Duration::from_millis(max_behind_ms));
        let generator = builder.build(&clock).unwrap();
        while generator.try_take(4096).is_ok() {}
        let waits = RefCell::new(Vec::new());
        let sleep = |time: Duration| {
            waits.borrow_mut().push(time.as_millis());
            std::future::pending()
        };
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(generator.next_with(sleep)).poll(&mut context).is_pending());
        let (mut one, mut other) = (pin!(generator.next_with(sleep)), pin!(generator.next_with(sleep)));
        assert!(
            one.as_mut().poll(&mut context).is_pending() && other.as_mut().poll(&mut context).is_pending()
        );
        assert_eq!(*waits.borrow(), [first, first, second], "the first one was dropped while it waited");
    }
}
