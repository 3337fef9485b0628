//! Nanoseconds since the machine was started: never stepped, and time spent suspended counts on Linux.

#[cfg(all(target_os = "linux", not(miri)))]
pub(super) fn boot_ns() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Since the first call of this process, by the standard library's monotonic clock; Miri has no boot time either.
#[cfg(not(all(target_os = "linux", not(miri))))]
#[expect(clippy::disallowed_methods, reason = "this is the clock that the rest is told to use")]
pub(super) fn boot_ns() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}
