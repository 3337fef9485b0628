//! A progress line on standard error, on a terminal only: the elapsed time, and the rate so far.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Run, present};
use crate::human::thousands;

const INTERVAL: Duration = Duration::from_millis(100);
/// Width of the bar in characters.
const WIDTH: u64 = 30;

pub(super) struct Progress {
    shown: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Progress {
    pub(super) fn start(run: &Run, duration: Duration) -> Self {
        if !io::stderr().is_terminal() {
            return Self { shown: None };
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, run) = (Arc::clone(&is_over), run.clone());
        let thread = std::thread::spawn(move || {
            let begin = present();
            while !over.load(Ordering::Relaxed) {
                let line = line(begin.elapsed().min(duration), duration, run.drawn.load(Ordering::Relaxed));
                // Ignored: if standard error is closed, nobody is looking.
                let _ = write!(io::stderr(), "\r\x1b[K{line}");
                std::thread::sleep(INTERVAL);
            }
            let _ = write!(io::stderr(), "\r\x1b[K");
        });
        Self { shown: Some((is_over, thread)) }
    }

    pub(super) fn stop(self) {
        if let Some((is_over, thread)) = self.shown {
            is_over.store(true, Ordering::Relaxed);
            let _ = thread.join();
        }
    }
}

fn line(passed: Duration, duration: Duration, drawn: u64) -> String {
    let (passed_ms, all_ms) = (passed.as_millis().max(1), duration.as_millis().max(1));
    let filled = (u128::from(WIDTH) * passed_ms / all_ms).min(u128::from(WIDTH));
    let filled = usize::try_from(filled).unwrap_or_default();
    let width = usize::try_from(WIDTH).unwrap_or_default();
    let bar = "█".repeat(filled) + &"░".repeat(width - filled);
    let rate = u128::from(drawn) * 1000 / passed_ms;
    format!(
        "{bar} {:.1} of {:.1} s, {} ids, {} a second",
        passed.as_secs_f64(),
        duration.as_secs_f64(),
        thousands(drawn),
        thousands(u64::try_from(rate).unwrap_or(u64::MAX))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_up() {
        let at = |ms| line(Duration::from_millis(ms), Duration::from_secs(2), 1_000_000);
        assert!(at(0).starts_with("░"), "{}", at(0));
        assert_eq!(at(1000).matches('█').count(), 15);
        assert_eq!(at(2000), format!("{} 2.0 of 2.0 s, 1,000,000 ids, 500,000 a second", "█".repeat(30)));
    }
}
