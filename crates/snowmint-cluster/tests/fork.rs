//! Goal: a forked child gets no number and no id of its parent, does not hang, gives nothing back that its
//! parent uses, and can have sources of its own. Method: a real fork with numbers in memory, or on their way;
//! the child checks and tells by its exit code. Each child has a copy of the parent's store, so only what it
//! does itself shows there. Where tokio's tasks matter, the child drives its copy of the parent's runtime,
//! which has no other threads, for a number of turns.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::future::poll_fn;
use std::num::NonZeroU64;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use snowmint::{GenerateError, Layout, WallClock};
use snowmint_cluster::NoNumberError::Forked;
use snowmint_cluster::segment::{Mode, SegmentConfig, Segments, Stripe};
use snowmint_cluster::{Holder, LeaseConfig, LeaseError, Leases, NextIdError};
use snowmint_store::{Counter, Expected, Key, MemoryStore, Segment, Store, StoreError, Swap, Versioned};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

/// Runs `child` in a forked process and returns its exit code.
#[expect(unsafe_code, reason = "forking is what is tested")]
fn exit_code_of_fork(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child leaves by `_exit`. It allocates, which glibc allows after a fork, and takes no lock
    // that another thread of the parent may have held: no thread of the parent uses what the child does.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0, "fork failed");
        if pid == 0 {
            // A hanging child fails the test.
            libc::alarm(60);
            libc::_exit(child());
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        assert!(libc::WIFEXITED(status), "the child died: {status}");
        libc::WEXITSTATUS(status)
    }
}

/// A code with a bit for each check that failed.
fn code<const N: usize>(checks: [bool; N]) -> i32 {
    checks.iter().enumerate().map(|(bit, holds)| i32::from(!holds) << bit).sum()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// Lets the tasks of a runtime without other threads do what they can do without waiting.
async fn many_turns() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

fn n(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

fn key() -> Key {
    Key::new("segments/test").unwrap()
}

/// The next number of the counter in the store.
async fn counted(store: &MemoryStore) -> Vec<u8> {
    store.load(&key()).await.unwrap().unwrap().value
}

/// Starts a source at the counter of a store; call it on a runtime.
fn start(store: &Arc<MemoryStore>, mode: Mode) -> Segments {
    let counter = Stripe::WHOLE.counter(Arc::clone(store) as Arc<dyn Store>, key(), 1);
    Segments::start(vec![Arc::new(counter)], SegmentConfig::new().mode(mode), WallClock).unwrap()
}

#[test]
fn a_forked_child_gets_no_number_of_its_parent() {
    let (parents, store) = (runtime(), Arc::new(MemoryStore::new()));
    let (cached, direct) = parents.block_on(async {
        let cached = start(&store, Mode::Cached);
        cached.take(10).await.unwrap();
        many_turns().await;
        (cached, start(&store, Mode::Direct))
    });
    assert!(cached.status().left >= 100);
    let last = cached.try_take(1).unwrap().last();
    let code_of_child = exit_code_of_fork(|| {
        let childs = runtime();
        let own = || childs.block_on(async { start(&store, Mode::Cached).take(1).await });
        // In this order: having one of its own brings the parent's back to life no more than before.
        code([
            cached.try_take(1) == Err(Forked) && cached.status().left == 0,
            childs.block_on(cached.take(1)) == Err(Forked),
            childs.block_on(cached.take_run(n(1))) == Err(Forked),
            childs.block_on(cached.take_run(n(1_000_000))) == Err(Forked),
            childs.block_on(direct.take(1)) == Err(Forked),
            childs.block_on(direct.ready()).is_err_and(|error| error == Forked),
            own().is_ok_and(|runs| runs[0].first() > last),
            cached.try_take(1) == Err(Forked),
        ])
    });
    assert_eq!(code_of_child, 0, "the bits of the checks that failed");
    assert_eq!(cached.try_take(1).unwrap().first(), last + 1, "the parent goes on");
}

/// Goal: a call that waited during the fork returns its numbers in the parent only, and does not hang in the
/// child. Method: forks when the answer has come and nobody has read it yet, and when no answer will come.
#[test]
fn a_call_that_waits_during_a_fork_gets_no_number_in_the_child() {
    let runtime = runtime();
    let store = Arc::new(MemoryStore::new());
    let _inside = runtime.enter();
    let direct = start(&store, Mode::Direct);
    let unanswered = Segments::start(vec![Arc::new(Silent)], SegmentConfig::new(), WallClock).unwrap();
    let (mut answered, mut waiting) = (pin!(direct.take(3)), pin!(unanswered.take(1)));
    runtime.block_on(async {
        assert!(poll_once(answered.as_mut()).await.is_pending());
        assert!(poll_once(waiting.as_mut()).await.is_pending());
        many_turns().await;
    });
    let code_of_child = exit_code_of_fork(|| {
        let numbers = runtime.block_on(poll_once(answered.as_mut()));
        let none = runtime.block_on(poll_once(waiting.as_mut()));
        code([numbers == Poll::Ready(Err(Forked)), none == Poll::Ready(Err(Forked))])
    });
    assert_eq!(
        code_of_child, 0,
        "1: the child got the parent's numbers, 2: it waits for an answer to the parent"
    );
    let Poll::Ready(Ok(runs)) = runtime.block_on(poll_once(answered.as_mut())) else {
        panic!("the parent goes on")
    };
    assert_eq!(runs.into_iter().flatten().collect::<Vec<u64>>(), [1, 2, 3]);
    assert!(runtime.block_on(poll_once(waiting.as_mut())).is_pending(), "the parent goes on");
}

/// Goal: a child gives no numbers back that its parent uses, or has given back and another node has. Method:
/// the child releases the source itself, and continues a release that its parent began.
#[test]
fn a_forked_child_gives_back_no_numbers_of_its_parent() {
    let (runtime, store) = (runtime(), Arc::new(MemoryStore::new()));
    let segments = runtime.block_on(async {
        let segments = start(&store, Mode::Cached);
        segments.take(10).await.unwrap();
        many_turns().await;
        segments
    });
    let before = runtime.block_on(counted(&store));
    let same = async || counted(&store).await == before;
    let code_of_child = exit_code_of_fork(|| {
        runtime.block_on(async {
            let released = poll_once(pin!(segments.release(Duration::from_secs(1)))).await;
            many_turns().await;
            code([same().await, released.is_ready()])
        })
    });
    assert_eq!(code_of_child, 0, "1: the child gave numbers back, 2: it waits for a task that stands still");
    let mut released = pin!(segments.release(Duration::from_secs(1)));
    let is_pending = runtime.block_on(async { poll_once(released.as_mut()).await.is_pending() });
    assert!(is_pending, "the task has been told, and has not run yet");
    let code_of_child = exit_code_of_fork(|| {
        runtime.block_on(async {
            many_turns().await;
            code([same().await])
        })
    });
    assert_eq!(code_of_child, 0, "the child continued the release");
    runtime.block_on(released);
    assert!(!runtime.block_on(same()), "the parent goes on");
}

/// Goal: a claim that is on its way during the fork is the parent's. Method: the store answers it in both
/// processes, as a shared connection or a later load could; each answer would grant the same worker for the
/// same time.
#[test]
fn a_forked_child_gets_no_lease_of_its_parent() {
    let runtime = runtime();
    let store = Arc::new(Gated::default());
    let leases = runtime.block_on(async {
        let config = LeaseConfig::new(Layout::TWITTER, Holder::new("n1").unwrap());
        let leases = Leases::start(Arc::clone(&store) as Arc<dyn Store>, config).unwrap();
        many_turns().await;
        leases
    });
    let mut handle = leases.handle();
    assert_eq!(store.waiting.load(Ordering::SeqCst), 1, "the claim");
    let code_of_child = exit_code_of_fork(|| {
        store.open();
        runtime.block_on(async {
            many_turns().await;
            let ready = poll_once(pin!(leases.ready())).await;
            let released = poll_once(pin!(leases.release(Duration::from_secs(1)))).await;
            code([
                handle.try_next_id() == Err(NextIdError::Refused(GenerateError::Forked)),
                matches!(ready, Poll::Ready(Err(LeaseError::Forked))),
                released.is_ready(),
            ])
        })
    });
    assert_eq!(code_of_child, 0, "the bits of the checks that failed");
    store.open();
    runtime.block_on(many_turns());
    assert!(handle.try_next_id().is_ok(), "the parent goes on");
}

/// A store in memory whose writes wait until it is opened.
#[derive(Debug, Default)]
struct Gated {
    store: MemoryStore,
    waiting: AtomicU64,
    is_open: AtomicBool,
    opened: Notify,
}

impl Gated {
    fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
        self.opened.notify_waiters();
    }
}

#[async_trait::async_trait]
impl Store for Gated {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        self.store.load(key).await
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        let opened = self.opened.notified();
        if !self.is_open.load(Ordering::SeqCst) {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            opened.await;
        }
        self.store.compare_and_set(key, expected, value).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        self.store.list(prefix).await
    }

    fn describe(&self) -> String {
        "gated".to_owned()
    }
}

/// A counter that never answers.
#[derive(Debug)]
struct Silent;

#[async_trait::async_trait]
impl Counter for Silent {
    async fn reserve(&self, _: NonZeroU64) -> Result<Segment, StoreError> {
        std::future::pending().await
    }

    fn describe(&self) -> String {
        "silent".to_owned()
    }
}
