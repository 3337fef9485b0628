//! Futures that belong to the process that made them.
//!
//! A forked child has a copy of each waiting call and of each task. If it went on with them, it could get the
//! same answers as its parent, and give back numbers that its parent uses.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use snowmint::fork::ForkMark;
use tokio::task::JoinHandle;

/// Awaits a future in the process of the mark. In a forked child the result is `None`, and the future is not
/// polled.
pub(crate) async fn unless_forked<F: Future>(mark: ForkMark, mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(
        |context| {
            if mark.is_same_process() { future.as_mut().poll(context).map(Some) } else { Poll::Ready(None) }
        },
    )
    .await
}

/// Returns a future that runs in this process only: in a forked child it stands still.
///
/// It does not end there, because what it holds, such as connections that the parent shares, would then be
/// closed.
pub(crate) fn in_this_process<F: Future>(future: F) -> impl Future<Output = F::Output> {
    // Now, not at the first poll: that may be the child's.
    let mark = ForkMark::of_this_process();
    let mut future = Box::pin(future);
    poll_fn(move |context| if mark.is_same_process() { future.as_mut().poll(context) } else { Poll::Pending })
}

/// Spawns a task that runs in this process only. Use this for every task that holds numbers, or the right to
/// make ids.
pub(crate) fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(in_this_process(task))
}
