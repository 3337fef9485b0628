//! Goal: a forked child never returns an id of its parent's buffer, does not hang, and can build its own
//! client. The thread of a client ends with its last handle. Method: a real fork with ids in the buffer, or
//! on their way to a caller; the child reports by its exit code. The tests run one after the other in a
//! process of their own, so that no other test has a client.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::net::TcpListener;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use snowmint_client::{Client, ErrorKind};
use snowmint_test_servers::snowmint::Serve;
use snowmint_test_servers::time;

/// Held by the running test.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs `child` in a forked process and returns its exit code.
#[expect(unsafe_code, reason = "forking is what is tested")]
fn exit_code_of_fork(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child leaves by `_exit`. It allocates, which glibc allows after a fork, and takes no lock
    // that another thread of the parent may have held: that is what the test checks.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0, "fork failed");
        if pid == 0 {
            // Fails the test if the child hangs.
            libc::alarm(60);
            libc::_exit(child());
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        assert!(libc::WIFEXITED(status), "the child died: {status}");
        libc::WEXITSTATUS(status)
    }
}

/// Returns the number of client threads in this process.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("snowmint-client")).count()
}

#[test]
fn a_forked_child_gets_no_id_of_its_parent() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    await_end_of_threads();
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let url = format!("http://{}", server.http());
    let build = || Client::builder().server(&url).buffer(100..=100).max_age(Duration::MAX).build();
    let client = build().unwrap();
    let ids = client.namespace("default").unwrap();
    let last = ids.blocking_next_ids(10).unwrap()[9];
    assert!(ids.buffered() >= 50);
    let code = exit_code_of_fork(|| {
        let kind = |error: snowmint_client::ClientError| error.kind();
        let refused = ids.try_next_id().map_err(kind) == Err(ErrorKind::Forked)
            && ids.blocking_next_id().map_err(kind) == Err(ErrorKind::Forked)
            && ids.blocking_next_ids(5).map_err(kind) == Err(ErrorKind::Forked)
            && client.namespace("default").map(drop).map_err(kind) == Err(ErrorKind::Forked)
            && ids.buffered() == 0;
        ids.discard_buffered();
        let own = build().unwrap().namespace("default").unwrap();
        let works = own.blocking_next_id().is_ok_and(|id| id > last);
        // Building its own client does not revive the parent's.
        let still_refused = ids.try_next_id().map_err(kind) == Err(ErrorKind::Forked);
        drop((ids.clone(), client.clone()));
        i32::from(!refused) + 2 * i32::from(!works) + 4 * i32::from(!still_refused)
    });
    assert_eq!(code, 0);
    assert!(ids.buffered() >= 50, "the parent goes on");
    assert!(ids.blocking_next_id().unwrap() > last);

    drop(client);
    assert_eq!(threads(), 1, "the ids keep their client");
    drop(ids);
    await_end_of_threads();
}

fn await_end_of_threads() {
    time::eventually("the end of the thread", Duration::from_secs(30), || (threads() == 0).then_some(()));
}

/// Records that a future was woken.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// Goal: a call that waits during the fork returns its ids only in the parent, and does not hang in the
/// child. Method: forks once when the answer has arrived but nobody has read it, and once when no answer will
/// come.
#[test]
fn a_call_that_waits_during_a_fork_gets_no_id_in_the_child() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let ids_from = |url: String| {
        let client = Client::builder().server(url).buffer(100..=100).max_age(Duration::MAX).build().unwrap();
        client.namespace("default").unwrap()
    };
    let ids = ids_from(format!("http://{}", server.http()));
    let unanswered = ids_from(format!("http://{}", silent.local_addr().unwrap()));
    ids.blocking_next_id().unwrap();

    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    // Some come from the buffer, the others in an answer.
    let (mut answered, mut waiting) = (pin!(ids.next_ids(500)), pin!(unanswered.next_id()));
    // The server stands still, so that the answer comes after the first poll.
    server.pause();
    assert!(answered.as_mut().poll(&mut context).is_pending());
    server.resume();
    let is_woken = || woken.0.load(Ordering::Acquire).then_some(());
    time::eventually("the answer", Duration::from_secs(30), is_woken);
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    let code = exit_code_of_fork(|| {
        let forked = |error: &snowmint_client::ClientError| error.kind() == ErrorKind::Forked;
        let ids = matches!(answered.as_mut().poll(&mut context), Poll::Ready(Err(error)) if forked(&error));
        let none = matches!(waiting.as_mut().poll(&mut context), Poll::Ready(Err(error)) if forked(&error));
        i32::from(!ids) + 2 * i32::from(!none)
    });
    assert_eq!(code, 0, "1: the child got the parent's ids, 2: it waits for an answer to the parent");
    let Poll::Ready(Ok(drawn)) = answered.as_mut().poll(&mut context) else { panic!("the parent goes on") };
    assert_eq!(drawn.len(), 500);
    assert!(waiting.as_mut().poll(&mut context).is_pending(), "the parent goes on");
}
