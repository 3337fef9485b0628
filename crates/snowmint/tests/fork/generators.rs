//! Goal: a forked child gets an error, never its parent's ids, and can make a generator of its own.
//! Method: a real fork; the child checks and reports by its exit code.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use snowmint::clock::CachedClock;
use snowmint::generator::{BlockGenerator, GeneratorPool};
use snowmint::{Clock, GenerateError, Generator, Id, Layout, WallClock, WorkerId};

/// Runs `child` in a forked process and returns its exit code.
#[expect(unsafe_code, reason = "forking is what is tested")]
fn exit_code_of_fork(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child only draws ids and leaves by `_exit`; it runs no destructor and takes no lock that
    // another thread of the parent may have held.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0, "fork failed");
        if pid == 0 {
            libc::_exit(child());
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        assert!(libc::WIFEXITED(status), "the child died: {status}");
        libc::WEXITSTATUS(status)
    }
}

#[test]
fn a_child_is_refused_by_every_form_and_may_make_its_own() {
    let shared = Generator::builder(Layout::TWITTER).worker(WorkerId(0)).build(WallClock).unwrap();
    let mut owned = Generator::builder(Layout::TWITTER).worker(WorkerId(0)).build_owned(WallClock).unwrap();
    let mut block = BlockGenerator::new(&shared, NonZeroU32::new(64).unwrap());
    // In the middle of a tick, with a block begun.
    for _ in 0..100 {
        shared.next_id().unwrap();
        owned.next_id().unwrap();
        block.next_id().unwrap();
    }
    let pool = GeneratorPool::new(Layout::TWITTER);
    pool.add(Arc::new(Generator::builder(Layout::TWITTER).worker(WorkerId(1)).build(WallClock).unwrap()))
        .unwrap();
    let mut handle = pool.handle();
    handle.try_next_id().unwrap();
    let mut batch = shared.try_take(10).unwrap();
    batch.next().unwrap();
    let code = exit_code_of_fork(|| {
        let refused = shared.try_next_id() == Err(GenerateError::Forked)
            && matches!(shared.try_take(5), Err(GenerateError::Forked))
            && owned.try_next_id() == Err(GenerateError::Forked)
            && block.try_next_id() == Err(GenerateError::Forked)
            && handle.try_next_id() == Err(GenerateError::Forked)
            && batch.len() == 0
            && batch.next().is_none()
            && batch.fill(&mut [Id::MIN; 4]) == 0
            && shared.end().is_none();
        let own = Generator::builder(Layout::TWITTER)
            .worker(WorkerId(0))
            .build(WallClock)
            .is_ok_and(|own| own.try_next_id().is_ok());
        // Making its own generator does not revive the parent's.
        let still_refused = shared.try_next_id() == Err(GenerateError::Forked)
            && block.try_next_id() == Err(GenerateError::Forked);
        i32::from(!(refused && own && still_refused))
    });
    assert_eq!(code, 0);
    assert!(batch.next().is_some(), "the parent reads on");
    assert!(
        shared.next_id().is_ok() && owned.next_id().is_ok() && block.next_id().is_ok(),
        "the parent goes on"
    );
}

#[test]
fn a_grandchild_is_refused_its_parents_and_its_grandparents() {
    let eldest = Generator::builder(Layout::TWITTER).worker(WorkerId(0)).build(WallClock).unwrap();
    let code = exit_code_of_fork(|| {
        let Ok(own) = Generator::builder(Layout::TWITTER).worker(WorkerId(0)).build(WallClock) else {
            return 2;
        };
        if own.next_id().is_err() {
            return 3;
        }
        exit_code_of_fork(|| {
            let refused = own.try_next_id() == Err(GenerateError::Forked)
                && eldest.try_next_id() == Err(GenerateError::Forked);
            i32::from(!refused)
        })
    });
    assert_eq!(code, 0);
}

#[test]
fn a_cached_clock_goes_on_in_a_child_without_its_thread() {
    let mut clock = Some(CachedClock::start(WallClock).unwrap());
    let code = exit_code_of_fork(|| {
        let Some(clock) = clock.take() else { return 2 };
        let before = clock.unix_ms();
        std::thread::sleep(Duration::from_millis(5));
        // Dropped here: the child has no thread to wait for.
        i32::from(clock.unix_ms() < before + 5)
    });
    assert_eq!(code, 0);
}
