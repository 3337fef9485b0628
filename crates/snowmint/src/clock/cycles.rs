//! Boot time, and the processor's cycle counter as a deadline: until then, a clock need not be read again.
//! The counter does not measure the time. It only shows that the millisecond of the last reading has not
//! ended.
//!
//! Reading `CLOCK_REALTIME` or `CLOCK_BOOTTIME` costs about 17 ns, the counter 7 ns (x86-64, 2026). If the
//! counter's rate is not constant or it stops in sleep states, no reading holds, and every id reads the
//! clock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Hold;

/// Two readings this far apart make a rate: a reading's own jitter is then below 0.01% of it.
const CALIBRATE_OVER_NS: u64 = 20_000_000;
/// A reading that takes more cycles than this was interrupted and does not count for the rate.
const CALM_CYCLES: u64 = 20_000;
/// 100 MHz to 10 GHz: any other rate is not that of a cycle counter.
const PLAUSIBLE_PER_MS: core::ops::RangeInclusive<u64> = 100_000..=10_000_000;
const NS_PER_MS: u64 = 1_000_000;

/// Cycles per millisecond, rounded down by 0.02 % so that deadlines come early, never late; 0 while unknown.
static CYCLES_PER_MS: AtomicU64 = AtomicU64::new(0);

/// The first reading of this process, in cycles and nanoseconds of boot time.
static FIRST: OnceLock<(u64, u64)> = OnceLock::new();

/// Reads a clock in nanoseconds; returns the reading with a hold until its millisecond ends.
#[inline]
pub(super) fn hold_until_ms_ends(read: impl FnOnce() -> u64) -> (u64, Hold) {
    let before = cycles();
    let ns = read();
    let per_ms = CYCLES_PER_MS.load(Ordering::Relaxed);
    if per_ms == 0 {
        calibrate();
        return (ns, Hold::NONE);
    }
    let left_ns = NS_PER_MS - ns % NS_PER_MS;
    // From before the reading, so that a slow reading shortens the hold. 0 means no hold.
    let deadline = before.wrapping_add(per_ms * left_ns / NS_PER_MS);
    (ns, Hold(deadline.max(1)))
}

/// Returns whether the deadline lies ahead by at most a millisecond. A counter that jumped, or that of
/// another processor that is out of step, makes the distance larger.
#[inline]
pub(super) fn holds(hold: Hold) -> bool {
    hold.0.wrapping_sub(cycles()).wrapping_sub(1) < CYCLES_PER_MS.load(Ordering::Relaxed)
        && hold != Hold::NONE
}

/// Measures the rate against boot time, since the wall clock may step in between.
#[cold]
fn calibrate() {
    if !is_steady() {
        return;
    }
    let before = cycles();
    let now_ns = boot_ns();
    if cycles().wrapping_sub(before) > CALM_CYCLES {
        return;
    }
    let (first_cycles, first_ns) = *FIRST.get_or_init(|| (before, now_ns));
    let elapsed_ns = now_ns.saturating_sub(first_ns);
    if elapsed_ns >= CALIBRATE_OVER_NS {
        let per_ms =
            u128::from(before.wrapping_sub(first_cycles)) * u128::from(NS_PER_MS) / u128::from(elapsed_ns);
        let rounded_down = u64::try_from(per_ms - per_ms / 5000).unwrap_or(u64::MAX);
        if PLAUSIBLE_PER_MS.contains(&rounded_down) {
            CYCLES_PER_MS.store(rounded_down, Ordering::Relaxed);
        }
    }
}

/// Returns whether the counter runs at one rate, on all processors, through sleep states: `CPUID` leaf
/// `8000_0007H`, bit 8 of EDX.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn is_steady() -> bool {
    static STEADY: OnceLock<bool> = OnceLock::new();
    *STEADY.get_or_init(|| cpuid(0x8000_0000).eax >= 0x8000_0007 && cpuid(0x8000_0007).edx & (1 << 8) != 0)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[allow(unused_unsafe, unsafe_code, reason = "safe to call since Rust 1.94")]
fn cpuid(leaf: u32) -> core::arch::x86_64::CpuidResult {
    // SAFETY: every processor of this architecture has the instruction.
    unsafe { core::arch::x86_64::__cpuid(leaf) }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
const fn is_steady() -> bool {
    false
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
#[expect(
    unsafe_code,
    reason = "the counter halves the cost of an id: 7 ns in place of 17 ns for a clock reading"
)]
fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has RDTSC; it reads a register and touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
const fn cycles() -> u64 {
    0
}

/// Nanoseconds since the machine was started: never stepped, and on Linux the time spent suspended counts.
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) fn boot_ns() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Nanoseconds since the first call in this process, by the standard library's monotonic clock. Miri has no
/// boot time either.
#[cfg(not(all(target_os = "linux", not(miri))))]
#[expect(clippy::disallowed_methods, reason = "this type is the clock of all other code")]
pub(super) fn boot_ns() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}
