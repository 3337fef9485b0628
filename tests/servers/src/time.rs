//! The clock of the tests themselves, in one place: the workspace bans reading it anywhere else.
//! Only for measuring how long something took.

use std::time::{Duration, Instant};

/// Now, for measuring.
#[expect(clippy::disallowed_methods, reason = "tests measure the product by a clock of their own")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Asks every few milliseconds until the answer is yes; false when it never was.
pub(crate) fn eventually(patience: Duration, mut ask: impl FnMut() -> bool) -> bool {
    let started = now();
    while !ask() {
        if started.elapsed() > patience {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}
