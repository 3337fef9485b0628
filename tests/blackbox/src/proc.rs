//! What the system knows of a running process, from `/proc`.

use std::fs;

/// Resident memory of a process, in KiB.
///
/// # Panics
///
/// If the process is gone.
pub fn rss_kib(pid: u32) -> u64 {
    field(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// The most resident memory a process had since its start, in KiB.
///
/// # Panics
///
/// If the process is gone.
pub fn peak_rss_kib(pid: u32) -> u64 {
    field(&format!("/proc/{pid}/status"), "VmHWM:")
}

/// Memory of a process with its part of what it shares, in KiB.
///
/// # Panics
///
/// If the process is gone.
pub fn pss_kib(pid: u32) -> u64 {
    field(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// How many threads a process has.
///
/// # Panics
///
/// If the process is gone.
pub fn threads(pid: u32) -> u64 {
    field(&format!("/proc/{pid}/status"), "Threads:")
}

/// Whether every thread of a process is stopped by a signal.
///
/// # Panics
///
/// If the process is gone.
pub fn is_stopped(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
    tasks.flatten().all(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The name in brackets may hold anything, so look behind the last bracket.
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}

/// Whether a process holds a lock for writing on some file now.
///
/// # Panics
///
/// If the system does not tell.
pub fn holds_write_lock(pid: u32) -> bool {
    let locks = fs::read_to_string("/proc/locks").expect("the system tells its locks");
    locks.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(3) == Some(&"WRITE") && words.get(4) == Some(&pid.to_string().as_str())
    })
}

fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let line = text.lines().find(|line| line.starts_with(name));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    number.unwrap_or_else(|| panic!("{path} has no {name}"))
}
