//! Renderings of the metrics, which their readers share.
//!
//! A request gets a rendering that begins after the request has arrived. Requests that arrive before it
//! begins share it, and a pause follows it, so that many scrapers cost little more than one. Readers copy a
//! rendering piece by piece: if newer renderings need the memory, old ones are discarded although clients
//! still read them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::limits::unread::{READ_RENDERING, RENDER_EVERY, RENDER_PAUSE, RENDERINGS};
use crate::load::memory_trimmer::MemoryTrimmer;

/// One rendering of the metrics.
#[derive(Debug)]
pub(crate) struct Rendering {
    /// `None` once its memory was needed.
    text: Mutex<Option<Box<str>>>,
    len: usize,
    began: Instant,
    trimmer: Arc<MemoryTrimmer>,
}

impl Rendering {
    fn new(text: String, began: Instant, trimmer: &Arc<MemoryTrimmer>) -> Arc<Self> {
        trimmer.holds(text.len());
        Arc::new(Self {
            len: text.len(),
            text: Mutex::new(Some(text.into_boxed_str())),
            began,
            trimmer: Arc::clone(trimmer),
        })
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns a copy of a piece; `None` if the rendering was dropped.
    pub(crate) fn piece(&self, from: usize, len: usize) -> Option<Vec<u8>> {
        let text = self.text();
        let bytes = text.as_ref()?.as_bytes();
        Some(bytes[from..bytes.len().min(from + len)].to_vec())
    }

    fn discard(&self) {
        if self.text().take().is_some() {
            self.trimmer.released(self.len);
        }
    }

    fn text(&self) -> MutexGuard<'_, Option<Box<str>>> {
        // A panic elsewhere leaves the text whole.
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Rendering {
    fn drop(&mut self) {
        self.discard();
    }
}

/// The outcome of a rendering.
#[derive(Debug)]
struct Rendered {
    began: Instant,
    outcome: Result<Arc<Rendering>, fmt::Error>,
}

/// The renderings in one format.
#[derive(Debug)]
pub(crate) struct Renderings {
    state: Mutex<State>,
    /// Notified by each request.
    wanted: Notify,
    last: watch::Sender<Option<Rendered>>,
    trimmer: Arc<MemoryTrimmer>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether a task renders. Requests begin and the task ends under this lock, so no request waits for a
    /// task that has ended.
    is_running: bool,
    /// The renderings, oldest first, for as long as anybody reads them.
    live: VecDeque<Weak<Rendering>>,
}

impl Renderings {
    pub(super) fn new(trimmer: &Arc<MemoryTrimmer>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            wanted: Notify::new(),
            last: watch::Sender::new(None),
            trimmer: Arc::clone(trimmer),
        })
    }

    /// Returns a rendering that begins after this call.
    pub(super) async fn next<F>(self: &Arc<Self>, render: F) -> Result<Arc<Rendering>, fmt::Error>
    where
        F: Fn() -> Result<String, fmt::Error> + Send + Sync + 'static,
    {
        let arrived = Instant::now();
        let mut last = self.last.subscribe();
        {
            let mut state = self.state();
            if !state.is_running {
                state.is_running = true;
                // A task of its own: a client that waits in line must not delay the others.
                tokio::spawn(Arc::clone(self).run(Arc::new(render)));
            }
            self.wanted.notify_one();
        }
        let rendered = last.wait_for(|last| last.as_ref().is_some_and(|it| it.began >= arrived)).await;
        // The sender is a part of `self`.
        rendered.ok().and_then(|it| Some(it.as_ref()?.outcome.clone())).unwrap_or(Err(fmt::Error))
    }

    /// Renders until nothing was requested for a while.
    async fn run<F>(self: Arc<Self>, render: Arc<F>)
    where
        F: Fn() -> Result<String, fmt::Error> + Send + Sync + 'static,
    {
        let mut not_before = Instant::now();
        loop {
            let is_wanted = timeout(RENDER_EVERY, self.wanted.notified()).await.is_ok();
            if !is_wanted && self.ends() {
                return;
            }
            sleep_until(not_before).await;
            self.make_room().await;
            // Whatever was requested until now is about this rendering.
            let _ = self.wanted.notified().now_or_never();
            let began = Instant::now();
            let render = Arc::clone(&render);
            // Metrics of thousands of namespaces take milliseconds, in which no other client of this thread
            // would be served.
            let text = tokio::task::spawn_blocking(move || render()).await;
            let outcome =
                text.unwrap_or(Err(fmt::Error)).map(|text| Rendering::new(text, began, &self.trimmer));
            if let Ok(rendering) = &outcome {
                self.state().live.push_back(Arc::downgrade(rendering));
            }
            self.last.send_replace(Some(Rendered { began, outcome }));
            let pause = began.elapsed().saturating_mul(RENDER_PAUSE).min(RENDER_EVERY);
            not_before = Instant::now() + pause;
        }
    }

    /// Ends the task and drops the last rendering, unless one was requested.
    fn ends(&self) -> bool {
        let mut state = self.state();
        if self.wanted.notified().now_or_never().is_some() {
            return false;
        }
        state.is_running = false;
        self.last.send_replace(None);
        true
    }

    /// Waits until another rendering fits, and discards the oldest ones once their clients had enough time.
    async fn make_room(&self) {
        while let Some(until) = self.try_make_room() {
            // A client may end earlier.
            sleep_until(until.min(Instant::now() + Duration::from_millis(100))).await;
        }
    }

    /// Discards renderings that are old enough. Returns when the next one is, if another rendering does not
    /// fit yet.
    fn try_make_room(&self) -> Option<Instant> {
        let mut state = self.state();
        state.live.retain(|it| it.strong_count() > 0);
        loop {
            let live: Vec<_> = state.live.iter().filter_map(Weak::upgrade).collect();
            // The next one is about as large as the last.
            let needed = live.iter().chain(live.last()).map(|it| it.len).sum::<usize>();
            let oldest = live.first().filter(|_| live.len() > 1 && needed > RENDERINGS)?;
            let until = oldest.began + READ_RENDERING;
            if until > Instant::now() {
                return Some(until);
            }
            tracing::debug!("rendering of the metrics discarded; a client reads it too slowly");
            oldest.discard();
            state.live.pop_front();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the state valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn renderings() -> (Arc<Renderings>, Arc<AtomicUsize>) {
        (Renderings::new(&Arc::default()), Arc::default())
    }

    /// Requests a rendering, a moment after everything else.
    async fn next(of: &Arc<Renderings>, count: &Arc<AtomicUsize>, len: usize) -> Arc<Rendering> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let count = Arc::clone(count);
        let render = move || {
            let nth = count.fetch_add(1, Ordering::Relaxed);
            Ok(format!("{nth}{}", " ".repeat(len)))
        };
        of.next(render).await.unwrap()
    }

    /// Goal: requests at the same time share one rendering, a later one gets a newer one, and none is kept
    /// when nobody asks.
    #[tokio::test(start_paused = true)]
    async fn requests_share_a_rendering() {
        let (renderings, count) = renderings();
        let all = futures_util::future::join_all((0..50).map(|_| next(&renderings, &count, 1))).await;
        assert!(all.iter().all(|it| Arc::ptr_eq(it, &all[0])));
        assert_eq!(count.load(Ordering::Relaxed), 1);
        let later = next(&renderings, &count, 1).await;
        assert_eq!((later.piece(0, 1).unwrap(), count.load(Ordering::Relaxed)), (b"1".to_vec(), 2));
        let dropped = Arc::downgrade(&later);
        drop((all, later));
        tokio::time::sleep(2 * RENDER_EVERY).await;
        assert!(dropped.upgrade().is_none() && !renderings.state().is_running);
        assert_eq!(next(&renderings, &count, 1).await.piece(0, 1).unwrap(), b"2");
    }

    /// Goal: clients that hold old renderings keep a bounded number of them, each for long enough, and new
    /// ones are still made.
    #[tokio::test(start_paused = true)]
    async fn renderings_that_nobody_reads_are_discarded() {
        const LEN: usize = RENDERINGS / 4 - 10;
        let (renderings, count) = renderings();
        let mut held: Vec<Arc<Rendering>> = Vec::new();
        for _ in 0..20 {
            let asked = Instant::now();
            held.push(next(&renderings, &count, LEN).await);
            assert!(asked.elapsed() <= READ_RENDERING + RENDER_EVERY, "{:?}", asked.elapsed());
            let alive = held.iter().filter(|it| it.piece(0, 1).is_some());
            assert!(alive.clone().count() <= 4);
            assert!(held.iter().all(|it| it.piece(0, 1).is_some() || it.began.elapsed() >= READ_RENDERING));
            // As with a client that comes back after everybody has left.
            if held.len().is_multiple_of(5) {
                tokio::time::sleep(2 * RENDER_EVERY).await;
            }
        }
        assert!(held[0].piece(0, 1).is_none() && held[19].piece(0, 2).unwrap() == b"19");
    }

    #[tokio::test]
    async fn a_failed_rendering_fails_its_requests_only() {
        let (renderings, count) = renderings();
        let render = move || match count.fetch_add(1, Ordering::Relaxed) {
            0 => Err(fmt::Error),
            1 => panic!("as in a collector"),
            _ => Ok("metrics".to_owned()),
        };
        let render = Arc::new(render);
        for is_ok in [false, false, true] {
            let render = Arc::clone(&render);
            assert_eq!(renderings.next(move || render()).await.is_ok(), is_ok);
        }
    }
}
