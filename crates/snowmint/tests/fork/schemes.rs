//! Goal: for every scheme, a forked child repeats no id of its parent or its siblings, and never waits for
//! them. Method: a real fork with a clock that stands still, where a copied state would repeat; the child
//! writes its ids to a pipe.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use snowmint::ManualClock;
use snowmint::scheme::{Scheme, SchemeGenerator};

fn draw(generator: &SchemeGenerator<ManualClock>) -> String {
    let ids: Vec<String> = (0..50).map(|_| generator.try_next_id().unwrap().to_string()).collect();
    ids.join("\n")
}

/// Returns what `child` returned in a forked process; nothing if it hangs.
#[expect(unsafe_code, reason = "forking is what is tested")]
fn in_a_fork(child: impl FnOnce() -> String) -> String {
    let mut ends = [0; 2];
    // SAFETY: the pipe's ends are fresh and each is owned by one `File`; the child leaves by `_exit`, so it
    // runs no destructor of the test harness.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let (mut from, mut to) = (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]));
        let pid = libc::fork();
        assert!(pid >= 0, "fork failed");
        if pid == 0 {
            libc::alarm(20);
            let wrote = to.write_all(child().as_bytes());
            libc::_exit(i32::from(wrote.is_err()));
        }
        drop(to);
        let mut text = String::new();
        from.read_to_string(&mut text).unwrap();
        assert_eq!(libc::waitpid(pid, std::ptr::null_mut(), 0), pid);
        text
    }
}

#[test]
fn a_forked_child_does_not_go_on_where_its_parent_was() {
    for scheme in Scheme::ALL {
        let generator = scheme.generator(ManualClock::at_unix_ms(1_785_542_400_123)).unwrap();
        let before = draw(&generator);
        let by_child = in_a_fork(|| draw(&generator));
        let by_parent = draw(&generator);
        assert_eq!(by_child.lines().count(), 50);
        let mut all: Vec<&str> =
            [&before, &by_child, &by_parent].into_iter().flat_map(|text| text.lines()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 150, "{scheme}");
        if scheme == Scheme::Ulid {
            // Increments of one start would be neighbours; another start is far away.
            let number = |text: &str| scheme.parse(text.lines().last().unwrap()).unwrap().as_u128();
            assert!(number(&by_child).abs_diff(number(&by_parent)) > 1 << 40);
        }
    }
}

/// With a clock that stands still, two forks of one state would make duplicates, whatever the parent does
/// next.
#[test]
fn two_children_of_one_parent_make_ids_of_their_own() {
    for scheme in Scheme::ALL {
        let generator = scheme.generator(ManualClock::at_unix_ms(1_785_542_400_123)).unwrap();
        draw(&generator);
        let (one, other) = (in_a_fork(|| draw(&generator)), in_a_fork(|| draw(&generator)));
        assert_eq!((one.lines().count(), other.lines().count()), (50, 50));
        assert!(one.lines().all(|id| other.lines().all(|another| id != another)), "{scheme}");
        if scheme == Scheme::Uuid7 {
            // A shared source of randomness would show in the bits below the counter too.
            let tail = |text: &str| scheme.parse(text).unwrap().as_u128() & u128::from(u32::MAX);
            let equal = one.lines().zip(other.lines()).filter(|(one, other)| tail(one) == tail(other));
            assert!(equal.count() < 3);
        }
    }
}

/// The threads that hold the generator's lock do not exist in the child, which would wait for them forever.
#[test]
fn a_child_forked_while_others_draw_does_not_wait_for_them() {
    for scheme in Scheme::ALL {
        let generator = scheme.generator(ManualClock::at_unix_ms(1_785_542_400_123)).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        generator.try_next_id().unwrap();
                    }
                });
            }
            let all_ended = (0..50).all(|_| in_a_fork(|| draw(&generator)).lines().count() == 50);
            done.store(true, Ordering::Relaxed);
            assert!(all_ended, "{scheme}");
        });
    }
}

/// If several threads start in a new process at once, they must all draw from the same state.
#[test]
fn the_threads_of_a_child_share_what_it_draws_from() {
    for scheme in [Scheme::ObjectId, Scheme::Uuid7, Scheme::Ulid].repeat(20) {
        let generator = scheme.generator(ManualClock::at_unix_ms(1_785_542_400_123)).unwrap();
        let by_child = in_a_fork(|| {
            let together = Barrier::new(4);
            let draw_together = || {
                together.wait();
                draw(&generator)
            };
            std::thread::scope(|scope| {
                let threads = [0; 4].map(|_| scope.spawn(draw_together));
                threads.map(|thread| thread.join().unwrap()).join("\n")
            })
        });
        // Below the counter of a v7 are 32 random bits.
        let shift = if scheme == Scheme::Uuid7 { 32 } else { 0 };
        let counter = |text| scheme.parse(text).unwrap().as_u128() >> shift;
        let mut counters: Vec<u128> = by_child.lines().map(counter).collect();
        counters.sort_unstable();
        assert_eq!(counters.len(), 200);
        assert!(counters.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{scheme}: {counters:?}");
    }
}
