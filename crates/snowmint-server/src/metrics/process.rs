//! What the system knows of this process, under the names that every client library of Prometheus uses.
//! What a system does not tell is left out.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Asks the system when somebody looks.
#[derive(Debug)]
pub(super) struct ProcessCollector {
    started_unix_ms: u64,
}

impl ProcessCollector {
    pub(super) const fn new(started_unix_ms: u64) -> Self {
        Self { started_unix_ms }
    }
}

impl Collector for ProcessCollector {
    #[expect(clippy::cast_precision_loss, reason = "bytes, files and milliseconds are far below 2^52")]
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let cpu = ConstCounter::new(system::cpu_seconds());
        cpu.encode(encoder.encode_descriptor(
            "process_cpu_seconds",
            "Total user and system CPU time spent in seconds",
            None,
            cpu.metric_type(),
        )?)?;
        let started = self.started_unix_ms as f64 / 1e3;
        for (name, says, value) in [
            (
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds",
                Some(started),
            ),
            (
                "process_resident_memory_bytes",
                "Resident memory size in bytes",
                system::resident_bytes().map(|it| it as f64),
            ),
            ("process_open_fds", "Number of open file descriptors", system::open_files().map(|it| it as f64)),
            (
                "process_max_fds",
                "Maximum number of open file descriptors",
                system::most_files().map(|it| it as f64),
            ),
        ] {
            let Some(value) = value else { continue };
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, says, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

#[cfg(unix)]
mod system {
    use std::fs;

    use rustix::process::{Resource, getrlimit};
    use rustix::time::{ClockId, clock_gettime};

    #[expect(clippy::cast_precision_loss, reason = "seconds and nanoseconds are far below 2^52")]
    pub(super) fn cpu_seconds() -> f64 {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    }

    pub(super) fn resident_bytes() -> Option<u64> {
        let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
        Some(pages * rustix::param::page_size() as u64)
    }

    pub(super) fn open_files() -> Option<u64> {
        // One of them is the folder that is being read.
        Some((fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1))
    }

    pub(super) fn most_files() -> Option<u64> {
        getrlimit(Resource::Nofile).current
    }
}

#[cfg(not(unix))]
mod system {
    pub(super) fn cpu_seconds() -> f64 {
        0.0
    }

    pub(super) fn resident_bytes() -> Option<u64> {
        None
    }

    pub(super) fn open_files() -> Option<u64> {
        None
    }

    pub(super) fn most_files() -> Option<u64> {
        None
    }
}
