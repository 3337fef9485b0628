//! Goal: a forked child's ids of any scheme are none of its parent's.
//! Method: a real fork at a standing clock, where a copied state would repeat; the child writes its ids to a pipe.

// Miri cannot fork.
#![cfg(all(feature = "schemes", target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;

use snowmint::ManualClock;
use snowmint::scheme::{Scheme, SchemeGenerator};

fn draw(generator: &SchemeGenerator<ManualClock>) -> String {
    let ids: Vec<String> = (0..50).map(|_| generator.try_next().unwrap().to_string()).collect();
    ids.join("\n")
}

/// What `child` gives in a forked process.
#[expect(unsafe_code, reason = "forking is what is tested")]
fn in_a_fork(child: impl FnOnce() -> String) -> String {
    let mut ends = [0; 2];
    // SAFETY: the pipe's ends are fresh and each is owned by one `File`; the child leaves by `_exit`, so it runs
    // no destructor of the test harness.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let (mut from, mut to) = (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]));
        let pid = libc::fork();
        assert!(pid >= 0, "fork failed");
        if pid == 0 {
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
