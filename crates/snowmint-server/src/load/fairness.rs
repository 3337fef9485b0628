//! Fairness between connections: a turn ends after a limit of bytes, and greedy connections wait in line for
//! their next.
//!
//! However many connections send requests without a pause, only as many of them as there are threads are
//! ready to run at a time. The others wait in line, first come, first served. A connection with small
//! requests never waits in that line, nor does one that had a long answer a while ago. So their latency does
//! not grow with the number of greedy connections.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::limits::{LONG_TURN, REST, TURN};

/// The line of greedy connections.
#[derive(Debug)]
pub(crate) struct Turns(Arc<Semaphore>);

/// The bytes that a connection has read and written in its turn. Only its task uses it; it is atomic because
/// tasks move between threads.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    spent: AtomicUsize,
    /// Whether the connection has yielded and is sure to be woken.
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

    /// Lets other connections run if the turn is over.
    pub(crate) async fn pass(&self) {
        if self.is_over() {
            self.passes.store(true, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    }

    /// Polls [`pass`](Self::pass): pending if the turn is over, and then woken for the next turn.
    pub(crate) fn poll_pass(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_over() {
            // This wakes the task after the sockets were polled. A task that wakes itself runs before newly
            // arrived input.
            self.passes.store(true, Ordering::Relaxed);
            return pin!(tokio::task::yield_now()).poll(cx);
        }
        Poll::Ready(())
    }
}

impl Turns {
    /// Returns a line for the threads of this runtime.
    pub(crate) fn new() -> Self {
        let threads = Handle::try_current().map_or(1, |runtime| runtime.metrics().num_workers());
        Self(Arc::new(Semaphore::new(threads)))
    }

    /// Runs a connection that counts its bytes in `turn`. After a long turn it waits in line for the next
    /// one.
    ///
    /// The caller pins the connection: a future that is moved into another one takes twice the room, in every
    /// task.
    pub(crate) async fn take<T>(&self, turn: &Turn, mut connection: Pin<&mut impl Future<Output = T>>) -> T {
        let mut position = Position::None;
        let mut last_long: Option<Instant> = None;
        poll_fn(|cx| {
            if last_long.is_some_and(|ended| !matches!(position, Position::None) || ended.elapsed() < REST) {
                ready!(position.poll(&self.0, cx));
            }
            turn.begin();
            let polled = connection.as_mut().poll(cx);
            // A connection that waits for its client leaves the line. One that yields keeps its place until
            // the sockets were polled.
            if !turn.passes.load(Ordering::Relaxed) {
                position = Position::None;
            }
            last_long = (turn.spent() >= LONG_TURN).then(Instant::now);
            polled
        })
        .await
    }
}

/// The position of a connection in line.
enum Position {
    None,
    /// Boxed, since most connections never wait.
    Waiting(Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>),
    /// It runs, or has just run.
    First(#[expect(dead_code, reason = "held for its drop")] Option<OwnedSemaphorePermit>),
}

impl Position {
    /// Waits until this connection is first in line.
    fn poll(&mut self, line: &Arc<Semaphore>, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::First(_) = self {
            // The next in line runs first.
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

    /// Starts a connection that always uses its whole turn, and counts its turns.
    fn start_greedy(turns: &Arc<Turns>, taken: &Arc<AtomicU64>) {
        let (turns, taken) = (Arc::clone(turns), Arc::clone(taken));
        tokio::spawn(async move {
            let turn = Turn::default();
            let greedy = async {
                loop {
                    turn.spend(TURN);
                    taken.fetch_add(1, Ordering::Relaxed);
                    turn.pass().await;
                }
            };
            turns.take(&turn, pin!(greedy)).await
        });
    }

    /// Goal: the wait of a connection with small requests does not grow with the number of greedy ones.
    /// Method: on one thread, it counts their turns between its wake-up and its run; no time is measured.
    #[tokio::test]
    async fn a_small_request_waits_for_few_turns_of_many_greedy_connections() {
        let (turns, taken) = (Arc::new(Turns::new()), Arc::new(AtomicU64::new(0)));
        for _ in 0..200 {
            start_greedy(&turns, &taken);
        }
        let turn = Turn::default();
        let honest = async {
            for _ in 0..1000 {
                let before = taken.load(Ordering::Relaxed);
                tokio::task::yield_now().await;
                turn.spend(100);
                let waited = taken.load(Ordering::Relaxed) - before;
                // Nobody knows yet that the first turn of each is a long one.
                assert!(waited <= 2 || before < 200, "{waited} turns");
            }
        };
        turns.take(&turn, pin!(honest)).await;
        assert!(taken.load(Ordering::Relaxed) > 500, "greedy connections use what is left");
    }

    /// Goal: greedy connections are served in turn, with equal shares.
    #[tokio::test]
    async fn greedy_connections_have_equal_shares() {
        let turns = Arc::new(Turns::new());
        let taken: Vec<_> = (0..10).map(|_| Arc::new(AtomicU64::new(0))).collect();
        for taken in &taken {
            start_greedy(&turns, taken);
        }
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        let taken: Vec<u64> = taken.iter().map(|taken| taken.load(Ordering::Relaxed)).collect();
        let (least, most) = (taken.iter().min().unwrap(), taken.iter().max().unwrap());
        assert!(*least > 10 && most - least <= 2, "{taken:?}");
    }

    /// Goal: after a long answer, such as the metrics, and a rest, a small request does not wait in line.
    #[tokio::test(start_paused = true)]
    async fn a_long_turn_is_forgotten_after_a_rest() {
        let turns = Turns::new();
        let first = Arc::clone(&turns.0).try_acquire_owned().unwrap();
        let (turn, (asks, mut asked)) = (Turn::default(), tokio::sync::mpsc::channel(1));
        let asking = pin!(async {
            loop {
                turn.spend(LONG_TURN);
                asked.recv().await.unwrap();
            }
        });
        let mut connection = pin!(turns.take(&turn, asking));
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

    /// Goal: a connection that is first in line and then waits for its client, or ends, does not block the
    /// line.
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
                turns.take(&turn, pin!(stalled)).await;
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
        turns.take(&turn, pin!(greedy)).await;
        assert_eq!(turns.0.available_permits(), 1);
    }
}
