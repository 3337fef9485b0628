//! Goal: a future waits exactly as long as its error says, then returns its id, and loses none if it is
//! dropped before. Method: polled by hand under a clock that only the test moves.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use snowmint::{Clock, GenerateError, Generator, Id, Layout, ManualClock, Rule, WorkerId};

const T0: u64 = 1_700_000_000_000;

fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns the result of a future's first poll, and for how many milliseconds it wants to sleep.
pub(crate) fn poll_once<C: Clock>(
    generator: &Generator<C>,
) -> (Option<Result<Id, GenerateError>>, Option<u64>) {
    let slept = Cell::new(None);
    let sleep = |time: Duration| {
        slept.set(u64::try_from(time.as_millis()).ok());
        std::future::pending()
    };
    let answer = match poll(pin!(generator.next_id_with(sleep))) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    };
    (answer, slept.get())
}

/// A timer that fires when the test tells it to.
#[derive(Default)]
struct Timer {
    asked_ms: RefCell<Vec<u128>>,
    rings: Cell<bool>,
}

impl Timer {
    fn sleep(&self, time: Duration) -> impl Future<Output = ()> {
        self.asked_ms.borrow_mut().push(time.as_millis());
        self.rings.set(false);
        poll_fn(|_| if self.rings.get() { Poll::Ready(()) } else { Poll::Pending })
    }
}

fn tick_and_sequence(generator: &Generator<&ManualClock>, id: Id) -> (u64, u32) {
    let parts = generator.layout().split(id).unwrap();
    (generator.layout().unix_ms(parts.timestamp), parts.sequence.0)
}

/// Returns a generator with ticks of 10 ms, the first from T0 on; all ids of the first are used, 3 ms into
/// it.
fn used_up(clock: &ManualClock) -> Generator<&ManualClock> {
    let generator = Generator::builder("sonyflake".parse().unwrap())
        .worker(WorkerId(0))
        .rule(Rule::REJECT)
        .build(clock)
        .unwrap();
    assert_eq!(generator.try_take(1000).unwrap().len(), 256);
    generator
}

#[test]
fn it_sleeps_as_long_as_the_refusal_says_and_then_has_its_id() {
    let clock = ManualClock::at_unix_ms(T0 + 3);
    let (generator, timer) = (used_up(&clock), Timer::default());
    let mut next = pin!(generator.next_id_with(|time| timer.sleep(time)));
    assert!(poll(next.as_mut()).is_pending());
    assert_eq!(*timer.asked_ms.borrow(), [7]);
    clock.set_unix_ms(T0 + 10);
    assert!(poll(next.as_mut()).is_pending(), "it does not look before its timer rings");
    timer.rings.set(true);
    let Poll::Ready(Ok(id)) = poll(next) else { panic!("the tick has begun") };
    assert_eq!(tick_and_sequence(&generator, id), (T0 + 10, 0));
    assert_eq!(*timer.asked_ms.borrow(), [7], "once");
}

#[test]
fn a_timer_that_rings_early_is_set_again_to_what_is_left() {
    let clock = ManualClock::at_unix_ms(T0 + 3);
    let (generator, timer) = (used_up(&clock), Timer::default());
    let mut next = pin!(generator.next_id_with(|time| timer.sleep(time)));
    for now in [3, 5, 9] {
        clock.set_unix_ms(T0 + now);
        timer.rings.set(true);
        assert!(poll(next.as_mut()).is_pending());
    }
    assert_eq!(*timer.asked_ms.borrow(), [7, 5, 1]);
    clock.set_unix_ms(T0 + 11);
    timer.rings.set(true);
    assert!(poll(next).is_ready());
}

#[test]
fn a_future_dropped_at_any_point_loses_no_id() {
    let clock = ManualClock::at_unix_ms(T0 + 3);
    let (generator, timer) = (used_up(&clock), Timer::default());
    let sleep = |time| timer.sleep(time);
    drop(generator.next_id_with(sleep));
    assert!(poll(pin!(generator.next_id_with(sleep))).is_pending(), "dropped while it sleeps");
    {
        let mut rung = pin!(generator.next_id_with(sleep));
        assert!(poll(rung.as_mut()).is_pending());
        clock.set_unix_ms(T0 + 10);
        timer.rings.set(true);
    }
    for sequence in 0..256 {
        let Poll::Ready(Ok(id)) = poll(pin!(generator.next_id_with(sleep))) else { panic!("{sequence}") };
        assert_eq!(tick_and_sequence(&generator, id), (T0 + 10, sequence), "none is lost");
    }
    assert_eq!(*timer.asked_ms.borrow(), [7, 7], "who was dropped counts among those who wait no more");
}

#[test]
fn a_clock_that_went_back_is_waited_for_within_the_rule_and_no_longer() {
    let clock = ManualClock::at_unix_ms(T0);
    let rule = Rule::wait(Duration::from_millis(5));
    let generator = Generator::builder(Layout::TWITTER).worker(WorkerId(0)).rule(rule).build(&clock).unwrap();
    let timer = Timer::default();
    generator.try_next_id().unwrap();
    clock.set_unix_ms(T0 - 5);
    let mut next = pin!(generator.next_id_with(|time| timer.sleep(time)));
    assert!(poll(next.as_mut()).is_pending());
    assert_eq!(*timer.asked_ms.borrow(), [5]);
    clock.set_unix_ms(T0 - 6);
    timer.rings.set(true);
    assert!(
        matches!(poll(next), Poll::Ready(Err(GenerateError::ClockBehind { behind_ms, .. })) if behind_ms.get() == 6)
    );
    clock.set_unix_ms(T0);
    assert_eq!(tick_and_sequence(&generator, generator.try_next_id().unwrap()), (T0, 1));
}
