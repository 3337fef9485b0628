//! Tells a forked child from its parent, for the cost of one load: a child that went on with its parent's
//! generators would repeat every id.
//!
//! A page marked `MADV_WIPEONFORK` holds a number that a child finds as 0, however it was forked.

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
        self.page.load(Ordering::Relaxed) == self.made_with
    }
}

#[cfg(all(feature = "std", target_os = "linux", not(miri), not(loom)))]
mod wiped_on_fork {
    use std::sync::OnceLock;

    use super::{AtomicU64, ForkMark, Ordering};

    /// Not wiped: a child counts on from its parent, so that no number of its line comes twice.
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    static PAGE: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
    /// Where the kernel has no such page: the mark never changes, and forks are not noticed.
    static UNNOTICED: AtomicU64 = AtomicU64::new(0);

    impl ForkMark {
        pub(crate) fn of_this_process() -> Self {
            let Some(page) = *PAGE.get_or_init(map_page) else {
                return Self { page: &UNNOTICED, made_with: 0 };
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

#[cfg(not(all(feature = "std", target_os = "linux", not(miri), not(loom))))]
impl ForkMark {
    /// Elsewhere forks are not noticed.
    pub(crate) fn of_this_process() -> Self {
        static NEVER_WIPED: AtomicU64 = AtomicU64::new(0);
        Self { page: &NEVER_WIPED, made_with: 0 }
    }
}
