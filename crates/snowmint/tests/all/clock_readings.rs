//! Goal: a generator reads the clock once per hold, waiting callers do not spin, and they take turns.
//! Method: a clock that counts its readings, under each form of the generator.

use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use snowmint::clock::{Hold, Reading};
use snowmint::generator::{BlockGenerator, BuildError};
use snowmint::{Clock, GenerateError, Generator, Id, Layout, ManualClock, Rule, WorkerId};

const T0: u64 = 1_700_000_000_000;

/// A clock that records when it was read.
#[derive(Debug)]
struct Counted {
    clock: ManualClock,
    readings: Mutex<Vec<Instant>>,
}

impl Counted {
    fn new() -> Self {
        Self { clock: ManualClock::at_unix_ms(T0), readings: Mutex::new(Vec::new()) }
    }

    fn readings(&self) -> usize {
        self.readings.lock().unwrap().len()
    }
}

impl Clock for Counted {
    fn unix_ms(&self) -> u64 {
        self.read().unix_ms
    }

    #[expect(clippy::disallowed_methods, reason = "how long a caller sleeps is real time")]
    fn read(&self) -> Reading {
        self.readings.lock().unwrap().push(Instant::now());
        self.clock.read()
    }

    fn holds(&self, hold: Hold) -> bool {
        self.clock.holds(hold)
    }
}

fn shared(clock: &Counted) -> Result<Generator<&Counted>, BuildError> {
    Generator::builder(Layout::TWITTER).worker(WorkerId(0)).rule(Rule::REJECT).build(clock)
}

#[test]
fn a_tick_is_drawn_from_under_one_reading() {
    let clock = Counted::new();
    let generator = shared(&clock).unwrap();
    let mut block = BlockGenerator::new(&generator, NonZeroU32::new(64).unwrap());
    for tick in 1..=3 {
        for _ in 0..100 {
            generator.try_next_id().unwrap();
            assert_eq!(generator.try_take(10).unwrap().count(), 10);
            block.try_next_id().unwrap();
        }
        assert_eq!(clock.readings(), tick, "one for each tick, whoever opens it");
        clock.clock.advance_ms(1);
    }
    let mut owned = Generator::builder(Layout::TWITTER).worker(WorkerId(0)).build_owned(&clock).unwrap();
    for _ in 0..4096 {
        owned.try_next_id().unwrap();
    }
    assert_eq!(clock.readings(), 4);
}

#[test]
fn a_block_opens_the_tick_for_others() {
    let clock = Counted::new();
    let generator = shared(&clock).unwrap();
    BlockGenerator::new(&generator, NonZeroU32::new(64).unwrap()).try_next_id().unwrap();
    generator.try_next_id().unwrap();
    assert_eq!(clock.readings(), 1);
}

/// On any machine, a caller that waits 1 ms between two readings never has two readings closer than that; a
/// caller that spins does.
fn sleeps(clock: &Counted, next: impl FnOnce() -> Result<Id, GenerateError> + Send) {
    let before = clock.readings();
    std::thread::scope(|scope| {
        let waits = scope.spawn(next);
        while clock.readings() < before + 5 {
            std::thread::yield_now();
        }
        clock.clock.advance_ms(1);
        waits.join().unwrap().unwrap();
    });
    for two in clock.readings.lock().unwrap()[before..].windows(2) {
        assert!(two[1] - two[0] >= Duration::from_millis(1), "it spins");
    }
}

#[test]
fn who_waits_sleeps() {
    let clock = Counted::new();
    let generator = shared(&clock).unwrap();
    let mut block = BlockGenerator::new(&generator, NonZeroU32::new(64).unwrap());
    let mut owned = Generator::builder(Layout::TWITTER)
        .worker(WorkerId(0))
        .rule(Rule::REJECT)
        .build_owned(&clock)
        .unwrap();
    assert_eq!(generator.try_take(4096).unwrap().len(), 4096);
    sleeps(&clock, || generator.next_id());
    assert_eq!(generator.try_take(4095).unwrap().len(), 4095);
    sleeps(&clock, || block.next_id());
    assert_eq!(owned.try_take(4096).unwrap().len(), 4096);
    sleeps(&clock, || owned.next_id());
}

#[test]
fn who_waits_second_waits_longer_where_that_loses_no_id() {
    use std::cell::RefCell;
    use std::pin::pin;
    use std::task::{Context, Waker};

    for (layout, max_behind_ms, first, second) in [
        (Layout::TWITTER, 4, 1, 2),
        (Layout::TWITTER, 2, 1, 2),
        (Layout::TWITTER, 1, 1, 1),
        ("sonyflake".parse().unwrap(), 4, 10, 10),
        ("sonyflake".parse().unwrap(), 10, 10, 11),
    ] {
        let clock = ManualClock::at_unix_ms(T0);
        let builder =
            Generator::builder(layout).worker(WorkerId(0)).max_behind(Duration::from_millis(max_behind_ms));
        let generator = builder.build(&clock).unwrap();
        while generator.try_take(4096).is_ok() {}
        let waits = RefCell::new(Vec::new());
        let sleep = |time: Duration| {
            waits.borrow_mut().push(time.as_millis());
            std::future::pending()
        };
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(generator.next_id_with(sleep)).poll(&mut context).is_pending());
        let (mut one, mut other) = (pin!(generator.next_id_with(sleep)), pin!(generator.next_id_with(sleep)));
        assert!(
            one.as_mut().poll(&mut context).is_pending() && other.as_mut().poll(&mut context).is_pending()
        );
        assert_eq!(*waits.borrow(), [first, first, second], "the first one was dropped while it waited");
    }
}
