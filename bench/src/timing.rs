//! Clocks, the CPU's time stamp counter, CPU time, and pinning of threads.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::thread::CpuSet;
use rustix::time::{ClockId, clock_gettime};

/// Reads the counter, without ordering relative to the code around it.
#[inline]
pub fn counter() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has the instruction.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        nanos(ClockId::Monotonic)
    }
}

/// Reads the counter before a piece of work: earlier work has ended, and the work has not begun.
#[inline]
pub fn counter_before() -> u64 {
    fence();
    let counter = counter();
    fence();
    counter
}

/// Reads the counter after a piece of work has ended.
#[inline]
pub fn counter_after() -> u64 {
    counter_before()
}

#[inline]
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: part of SSE2, which every x86-64 processor has.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
}

/// Returns the nanoseconds of one counter step, measured over 50 ms.
pub fn counter_step_ns() -> f64 {
    let (started, from) = (Instant::now(), counter());
    while started.elapsed() < Duration::from_millis(50) {
        std::hint::spin_loop();
    }
    let (elapsed, to) = (started.elapsed(), counter());
    elapsed.as_nanos() as f64 / (to - from) as f64
}

/// Reads a system clock, in nanoseconds.
#[inline]
pub fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Returns the CPU time of all threads of this process, in nanoseconds.
pub fn cpu_ns() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

/// Returns the CPU time of the whole machine since boot, in ticks of 10 ms, without idle time and waits for
/// I/O.
pub fn machine_busy_ticks() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let fields = text.lines().next()?.split_whitespace().skip(1);
    let ticks: Vec<u64> = fields.take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    // Fields 4 and 5 are idle and waiting for I/O.
    Some(ticks.iter().sum::<u64>() - ticks.get(3)? - ticks.get(4)?)
}

/// Returns the wall clock, in Unix milliseconds.
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs() * 1000 + u64::from(since.subsec_millis())
}

/// Spins until the wall clock shows another millisecond.
pub fn wait_for_next_ms() {
    let from = wall_ms();
    while wall_ms() == from {
        std::hint::spin_loop();
    }
}

/// Returns the processors that this process may use.
pub fn processors() -> Vec<usize> {
    rustix::thread::sched_getaffinity(None)
        .map(|set| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
        .unwrap_or_default()
}

/// Pins the calling thread to one processor; if the system refuses, the thread stays unpinned.
pub fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
