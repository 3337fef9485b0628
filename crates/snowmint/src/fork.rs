//! Tells a forked child from its parent, for the cost of one load: a child that went on with its parent's
//! generators would repeat every id.
//!
//! A page marked `MADV_WIPEONFORK` holds a number that a child finds as 0, however it was forked. Where there is no such
//! page, other systems and some sandboxes, the process id is asked for each time.

use core::sync::atomic::{AtomicU64, Ordering};

/// The number that the page held when a generator was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForkMark {
    page: &'static AtomicU64,
    made_with: u64,
}

impl ForkMark {
    /// Whether this is still the process in which the mark was made.
    #[inline]
    pub(crate) fn is_same_process(self) -> bool {
        self.page.load(Ordering::Relaxed) == self.made_with || self.is_same_process_id()
    }
}

#[cfg(all(feature = "std", unix, not(miri), not(loom)))]
mod by_process_id {
    use super::{AtomicU64, ForkMark};

    /// Beside the id in the mark; no page ever holds it.
    const BY_PROCESS_ID: u64 = 1 << 63;
    static NO_PAGE: AtomicU64 = AtomicU64::new(0);

    impl ForkMark {
        /// A mark without a page: it costs a system call each time it is looked at.
        pub(super) fn of_process_id(id: u32) -> Self {
            Self { page: &NO_PAGE, made_with: BY_PROCESS_ID | u64::from(id) }
        }

        #[cold]
        pub(super) fn is_same_process_id(self) -> bool {
            self.made_with == BY_PROCESS_ID | u64::from(std::process::id())
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn without_a_page_the_process_id_tells() {
            let id = std::process::id();
            assert!(ForkMark::of_process_id(id).is_same_process());
            assert!(!ForkMark::of_process_id(id + 1).is_same_process());
        }
    }
}

#[cfg(not(all(feature = "std", unix, not(miri), not(loom))))]
impl ForkMark {
    const fn is_same_process_id(self) -> bool {
        false
    }
}

#[cfg(all(feature = "std", target_os = "linux", not(miri), not(loom)))]
mod wiped_on_fork {
    use std::sync::OnceLock;

    use super::{AtomicU64, ForkMark, Ordering};

    /// Not wiped: a child counts on from its parent, so that no number of its line comes twice.
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    static PAGE: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();

    impl ForkMark {
        pub(crate) fn of_this_process() -> Self {
            let Some(page) = *PAGE.get_or_init(map_page) else {
                return Self::of_process_id(std::process::id());
            };
            let fresh = NUMBERS.fetch_add(1, Ordering::Relaxed);
            // 0 before the first generator of a process, be it born or forked.
            let made_with = match page.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => fresh,
                Err(there) => there,
            };
            Self { page, made_with }
        }
    }

    #[expect(unsafe_code, reason = "std cannot map a page that the kernel wipes in a forked child")]
    fn map_page() -> Option<&'static AtomicU64> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
        const LEN: usize = 4096;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh private mapping at an address of the kernel's choice overlaps nothing. It is never
        // unmapped, page-aligned, zeroed, and only ever used as one `AtomicU64`, for which all bits are valid.
        unsafe {
            let page = mmap_anonymous(std::ptr::null_mut(), LEN, protection, MapFlags::PRIVATE).ok()?;
            madvise(page, LEN, Advice::LinuxWipeOnFork).ok()?;
            Some(&*page.cast::<AtomicU64>())
        }
    }
}

#[cfg(all(feature = "std", unix, not(target_os = "linux"), not(miri), not(loom)))]
impl ForkMark {
    pub(crate) fn of_this_process() -> Self {
        Self::of_process_id(std::process::id())
    }
}

#[cfg(not(all(feature = "std", unix, not(miri), not(loom))))]
impl ForkMark {
    /// Without a system that forks, or without one to ask, there is nothing to notice.
    pub(crate) fn of_this_process() -> Self {
        static NEVER_WIPED: AtomicU64 = AtomicU64::new(0);
        Self { page: &NEVER_WIPED, made_with: 0 }
    }
}
