//! The clocks of the tests themselves, in one place: the workspace bans reading them anywhere else.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Now, for measuring.
#[expect(clippy::disallowed_methods, reason = "tests measure the product by a clock of their own")]
pub fn now() -> Instant {
    Instant::now()
}

/// Now, in unix milliseconds.
#[expect(clippy::disallowed_methods, reason = "tests measure the product by a clock of their own")]
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).expect("before the year 500 million")
}

/// Asks every few milliseconds until there is an answer.
///
/// # Panics
///
/// If there is none within `patience`; `what` says what was waited for.
pub fn eventually<T>(what: &str, patience: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let started = now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(started.elapsed() < patience, "waited {patience:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
