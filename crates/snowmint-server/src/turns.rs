//! Turns of connections: one that has much to answer lets others run after a bound of bytes, and goes on when it is its turn.
//!
//! However many connections ask without a pause, only as many of them as there are threads are ready to run at a time. The
//! others wait in line, first come, first served. A connection whose requests are small never waits in that line, so what it
//! waits for does not grow with their number; neither does one that had a long answer a while ago.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::limits::{LONG_TURN, REST, TURN};

/// The line of the connections that have much to answer.
#[derive(Debug)]
pub(crate) struct Turns(Arc<Semaphore>);

/// What a connection has read and written in its turn. Its task alone uses it; it is atomic since tasks move between
/// threads.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    spent: AtomicUsize,
    /// Whether it lets others run, and is sure to be woken afterwards.
    passes: AtomicBool,
}

impl Turn {
    /// Adds bytes that were read or written.
    pub(crate) fn spend(&self, bytes: usize) {
        self.spent.store(self.spent().saturating_add(bytes), Ordering::Relaxed);
    }

    fn spent(&self) -> usize {
        self.spent.load(Ordering::Relaxed)
    }

    fn begin(&self) {
        self.spent.store(0, Ordering::Relaxed);
        self.passes.store(false, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.spent() >= TURN
    }

    /// Lets others run if the turn is over.
    pub(crate) async fn pass(&self) {
        if self.is_over() {
            self.passes.store(true, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    }

    /// The same where the caller is polled: pending, and woken for its next turn, if this one is over.
    pub(crate) fn poll_pass(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_over() {
            // It wakes after the sockets were looked at. A task that wakes itself runs before what arrives meanwhile.
            self.passes.store(true, Ordering::Relaxed);
            return pin!(tokio::task::yield_now()).poll(cx);
        }
        Poll::Ready(())
    }
}

impl Turns {
    /// A line in front of the threads of this runtime.
    pub(crate) fn new() -> Self {
        let threads = Handle::try_current().map_or(1, |runtime| runtime.metrics().num_workers());
        Self(Arc::new(Semaphore::new(threads)))
    }

    /// Runs a connection that counts what it does in `turn`. After a long turn it waits in line for the next one.
    pub(crate) async fn take<T>(&self, turn: &Turn, connection: impl Future<Output = T>) -> T {
        let mut connection = pin!(connection);
        let mut place = Place::None;
        let mut last_long: Option<Instant> = None;
        poll_fn(|cx| {
            if last_long.is_some_and(|ended| !matches!(place, Place::None) || ended.elapsed() < REST) {
                ready!(place.poll(&self.0, cx));
            }
            turn.begin();
            let polled = connection.as_mut().poll(cx);
            // One that waits for its client leaves the line, whatever it has spent; one that passes keeps the others back
            // until sockets were looked at.
            if !turn.passes.load(Ordering::Relaxed) {
                place = Place::None;
            }
            last_long = (turn.spent() >= LONG_TURN).then(Instant::now);
            polled
        })
        .await
    }
}

/// Where a connection stands in line.
enum Place {
    None,
    /// Boxed: most connections never wait.
    Waiting(Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>),
    /// It runs, or was the last of its place to run.
    First(#[expect(dead_code, reason = "held for its drop")] Option<OwnedSemaphorePermit>),
}

impl Place {
    /// Waits until this connection is the first in line.
    fn poll(&mut self, line: &Arc<Semaphore>, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::First(_) = self {
            // The next one in line runs first.
            *self = Self::None;
        }
        if let Self::None = self {
            if let Ok(permit) = Arc::clone(line).try_acquire_owned() {
                *self = Self::First(Some(permit));
                return Poll::Ready(());
            }
            let acquiring = Arc::clone(line).acquire_owned();
            // The line is never closed.
            *self = Self::Waiting(Box::pin(async { acquiring.await.ok() }));
        }
        if let Self::Waiting(waiting) = self {
            let permit = ready!(waiting.as_mut().poll(cx));
            *self = Self::First(permit);
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// Goal: what a connection with small requests waits for does not grow with the number of greedy ones. Method: on one
    /// thread, it counts their turns between its wake-up and its run; no time is measured.
    #[tokio::test]
    async fn a_small_request_waits_for_few_turns_of_many_greedy_connections() {
        let (turns, taken) = (Arc::new(Turns::new()), Arc::new(AtomicU64::new(0)));
        for _ in 0..200 {
            let (turns, taken) = (Arc::clone(&turns), Arc::clone(&taken));
            tokio::spawn(async move {
                let turn = Turn::default();
                let greedy = async {
                    loop {
                        turn.spend(TURN);
                        taken.fetch_add(1, Ordering::Relaxed);
                        turn.pass().await;
                    }
                };
                turns.take(&turn, greedy).await
            });
        }
        let turn = Turn::default();
        let honest = async {
            for _ in 0..1000 {
                let before = taken.load(Ordering::Relaxed);
                tokio::task::yield_now().await;
                turn.spend(100);
                let waited = taken.load(Ordering::Relaxed) - before;
                // The first turn of each is not known to be a long one.
                assert!(waited <= 2 || before < 200, "{waited} turns");
            }
        };
        turns.take(&turn, honest).await;
        assert!(taken.load(Ordering::Relaxed) > 500, "greedy connections use what is left");
    }

    /// Goal: those in line are served one after the other, all alike.
    #[tokio::test]
    async fn greedy_connections_have_equal_shares() {
        let turns = Arc::new(Turns::new());
        let taken: Vec<_> = (0..10).map(|_| Arc::new(AtomicU64::new(0))).collect();
        for taken in &taken {
            let (turns, taken) = (Arc::clone(&turns), Arc::clone(taken));
            tokio::spawn(async move {
                let turn = Turn::default();
                let greedy = async {
                    loop {
                        turn.spend(TURN);
                        taken.fetch_add(1, Ordering::Relaxed);
                        turn.pass().await;
                    }
                };
                turns.take(&turn, greedy).await
            });
        }
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        let taken: Vec<u64> = taken.iter().map(|taken| taken.load(Ordering::Relaxed)).collect();
        let (least, most) = (taken.iter().min().unwrap(), taken.iter().max().unwrap());
        assert!(*least > 10 && most - least <= 2, "{taken:?}");
    }

    /// Goal: a client that had a long answer, such as the metrics, does not wait in line for a small one a while later.
    #[tokio::test(start_paused = true)]
    async fn a_long_turn_is_forgotten_after_a_rest() {
        let turns = Turns::new();
        let first = Arc::clone(&turns.0).try_acquire_owned().unwrap();
        let (turn, (asks, mut asked)) = (Turn::default(), tokio::sync::mpsc::channel(1));
        let mut connection = pin!(turns.take(&turn, async {
            loop {
                turn.spend(LONG_TURN);
                asked.recv().await.unwrap();
            }
        }));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(connection.as_mut().poll(&mut cx).is_pending());
        asks.try_send(()).unwrap();
        assert!(connection.as_mut().poll(&mut cx).is_pending());
        assert_eq!(asks.capacity(), 0, "it waits in line");
        drop(first);
        assert!(connection.as_mut().poll(&mut cx).is_pending());
        assert_eq!(asks.capacity(), 1, "its turn");

        let _first = Arc::clone(&turns.0).try_acquire_owned().unwrap();
        tokio::time::advance(REST).await;
        asks.try_send(()).unwrap();
        assert!(connection.as_mut().poll(&mut cx).is_pending());
        assert_eq!(asks.capacity(), 1, "answered at once");
    }

    /// Goal: one that is first in line and then waits for its client keeps nobody back, and neither does one that goes.
    #[tokio::test]
    async fn a_connection_that_waits_for_its_client_leaves_the_line() {
        let turns = Arc::new(Turns::new());
        let stalled = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move {
                let turn = Turn::default();
                let stalled = async {
                    turn.spend(TURN);
                    turn.pass().await;
                    turn.spend(TURN);
                    std::future::pending::<()>().await;
                };
                turns.take(&turn, stalled).await;
            }
        });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(turns.0.available_permits(), 1);
        stalled.abort();
        let turn = Turn::default();
        let greedy = async {
            for _ in 0..10 {
                turn.spend(TURN);
                turn.pass().await;
            }
        };
        turns.take(&turn, greedy).await;
        assert_eq!(turns.0.available_permits(), 1);
    }
}
