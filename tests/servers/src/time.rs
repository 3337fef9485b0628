//! The tests' own clocks, in one place: clippy rejects clock readings elsewhere.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Returns the current time, for measuring.
#[expect(clippy::disallowed_methods, reason = "tests measure the product by a clock of their own")]
pub fn now() -> Instant {
    Instant::now()
}

/// Returns the current time in Unix milliseconds.
#[expect(clippy::disallowed_methods, reason = "tests measure the product by a clock of their own")]
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).expect("before the year 500 million")
}

/// Waits until the last minute of a UTC day is over, because daily limits of ids reset at its end.
pub fn wait_at_midnight() {
    let left = 86_400_000 - unix_ms() % 86_400_000;
    if left < 60_000 {
        std::thread::sleep(Duration::from_millis(left));
    }
}

/// Repeats a call until it returns an answer.
///
/// # Panics
///
/// If there is none within `patience`; `what` says what the test waits for.
pub fn eventually<T>(what: &str, patience: Duration, ask: impl FnMut() -> Option<T>) -> T {
    within(patience, ask).unwrap_or_else(|| panic!("not within {patience:?}: {what}"))
}

/// Repeats a call until it returns true; returns false if the time is up first.
pub fn holds_within(patience: Duration, mut ask: impl FnMut() -> bool) -> bool {
    within(patience, || ask().then_some(())).is_some()
}

fn within<T>(patience: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let started = now();
    loop {
        let asked = now();
        match ask() {
            None if started.elapsed() < patience => std::thread::sleep(pause(asked.elapsed())),
            answer => return answer,
        }
    }
}

/// Pause after a call that took this long. Many calls start a client program: without a pause, they take the
/// CPU from the server that is starting.
fn pause(asked: Duration) -> Duration {
    (asked * 4).clamp(Duration::from_millis(5), Duration::from_millis(50))
}
