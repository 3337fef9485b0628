//! Detects forked children at the cost of one load. A child that continued with its parent's generators would
//! repeat every id.
//!
//! A page marked `MADV_WIPEONFORK` holds a number, which any forked child finds as 0. If the kernel has no
//! such page (other unix systems, some sandboxes), a `fork` handler clears the word instead; it does not
//! detect a child made by a bare system call.

use core::sync::atomic::{AtomicU64, Ordering};

/// Marks the process that made it, so that a forked child is detected.
///
/// Code that keeps unique ids in memory makes a mark next to them, and checks it before it returns one: a
/// child has the same ids in memory as its parent. Generators of this crate do that themselves.
///
/// On systems without forks, and under Miri, every process counts as the same.
///
/// # Examples
///
/// ```
/// use snowmint::fork::ForkMark;
/// let mark = ForkMark::of_this_process();
/// assert!(mark.is_same_process());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ForkMark {
    page: &'static AtomicU64,
    made_with: u64,
}

impl ForkMark {
    /// Returns whether this is the process that made the mark. Costs one load; safe from any thread.
    #[inline]
    pub fn is_same_process(self) -> bool {
        self.page.load(Ordering::Relaxed) == self.made_with
    }
}

#[cfg(all(feature = "std", unix, not(miri), not(snowmint_loom)))]
mod emptied_on_fork {
    use std::sync::OnceLock;

    use super::{AtomicU64, ForkMark, Ordering};

    /// Not cleared: a child counts on from its parent, so that no number occurs twice among its ancestors.
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    static PAGE: OnceLock<&'static AtomicU64> = OnceLock::new();
    /// Used instead of the page, and cleared by a handler.
    static WORD: AtomicU64 = AtomicU64::new(0);

    impl ForkMark {
        /// Makes a mark of this process.
        pub fn of_this_process() -> Self {
            Self::on(PAGE.get_or_init(|| map_page().unwrap_or_else(word)))
        }

        fn on(page: &'static AtomicU64) -> Self {
            let fresh = NUMBERS.fetch_add(1, Ordering::Relaxed);
            // 0 before the first generator of a new or forked process.
            let made_with = match page.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => fresh,
                Err(there) => there,
            };
            Self { page, made_with }
        }
    }

    #[cfg(target_os = "linux")]
    #[expect(unsafe_code, reason = "std cannot map a page that the kernel wipes in a forked child")]
    fn map_page() -> Option<&'static AtomicU64> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
        const LEN: usize = 4096;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh private mapping at an address of the kernel's choice overlaps nothing. It is never
        // unmapped, page-aligned, zeroed, and only ever used as one `AtomicU64`, for which all bits are
        // valid.
        unsafe {
            let page = mmap_anonymous(std::ptr::null_mut(), LEN, protection, MapFlags::PRIVATE).ok()?;
            madvise(page, LEN, Advice::LinuxWipeOnFork).ok()?;
            Some(&*page.cast::<AtomicU64>())
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn map_page() -> Option<&'static AtomicU64> {
        None
    }

    #[expect(unsafe_code, reason = "std has no way to be told of a fork")]
    fn word() -> &'static AtomicU64 {
        use core::ffi::c_int;

        type Handler = extern "C" fn();
        unsafe extern "C" {
            /// POSIX.1-2001.
            fn pthread_atfork(
                prepare: Option<Handler>,
                parent: Option<Handler>,
                child: Option<Handler>,
            ) -> c_int;
        }
        extern "C" fn empty() {
            WORD.store(0, Ordering::Relaxed);
        }
        // SAFETY: the handler stores one atomic word, which is allowed in a child of a process with many
        // threads; it lives as long as the program. Registration fails only if memory runs out; then forks
        // are not detected.
        let _ = unsafe { pthread_atfork(None, None, Some(empty)) };
        &WORD
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        #[expect(unsafe_code, reason = "forking is what is tested")]
        fn without_a_page_a_handler_empties_the_word() {
            let mark = ForkMark::on(word());
            assert!(mark.is_same_process() && ForkMark::on(&WORD).is_same_process());
            // SAFETY: the child looks at atomics and leaves by `_exit`.
            let status = unsafe {
                let child = libc::fork();
                if child == 0 {
                    let noticed = !mark.is_same_process();
                    let own = ForkMark::on(&WORD);
                    libc::_exit(i32::from(!(noticed && own.is_same_process() && !mark.is_same_process())));
                }
                let mut status = -1;
                libc::waitpid(child, &raw mut status, 0);
                status
            };
            assert_eq!(status, 0);
            assert!(mark.is_same_process(), "the parent goes on");
        }
    }
}

#[cfg(not(all(feature = "std", unix, not(miri), not(snowmint_loom))))]
impl ForkMark {
    /// Makes a mark of this process. On systems without forks, or without a way to detect them, every process
    /// counts as the same.
    pub fn of_this_process() -> Self {
        static NEVER_EMPTIED: AtomicU64 = AtomicU64::new(0);
        Self { page: &NEVER_EMPTIED, made_with: 0 }
    }
}
