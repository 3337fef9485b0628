//! Clocks, the processor's counter, CPU time and processors to pin to.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::thread::CpuSet;
use rustix::time::{ClockId, clock_gettime};

/// The counter, with nothing said about the order of what stands around it.
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

/// The counter before a piece of work: earlier work has ended, the work has not begun.
#[inline]
pub fn counter_before() -> u64 {
    fence();
    let counter = counter();
    fence();
    counter
}

/// The counter after a piece of work: the work has ended.
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

/// Nanoseconds of one step of the counter, measured over 50 ms.
pub fn counter_step_ns() -> f64 {
    let (started, from) = (Instant::now(), counter());
    while started.elapsed() < Duration::from_millis(50) {
        std::hint::spin_loop();
    }
    let (elapsed, to) = (started.elapsed(), counter());
    elapsed.as_nanos() as f64 / (to - from) as f64
}

/// A clock of the system, in nanoseconds.
#[inline]
pub fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// CPU time of this process with all its threads: what `getrusage` tells, in nanoseconds.
pub fn cpu_ns() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

/// CPU time of the whole machine since it was started, in ticks of 10 ms: all that was not idle or waiting.
pub fn machine_busy_ticks() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let fields = text.lines().next()?.split_whitespace().skip(1);
    let ticks: Vec<u64> = fields.take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    // Fields 4 and 5 are idle and waiting for I/O.
    Some(ticks.iter().sum::<u64>() - ticks.get(3)? - ticks.get(4)?)
}

/// The wall clock, in unix milliseconds.
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

/// The processors this process may run on.
pub fn processors() -> Vec<usize> {
    rustix::thread::sched_getaffinity(None)
        .map(|set| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
        .unwrap_or_default()
}

/// Keeps the calling thread on one processor; where that is refused, the thread stays free.
pub fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
