//! Watches the wall clock beside the clock of the node: follows slow corrections, reports steps.
//! To an anchored clock a step of the wall clock is a log line and a metric, not an event.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::NodeClock;
use crate::lease::LeaseStatus;

const EVERY: Duration = Duration::from_secs(1);

/// Runs until it is aborted.
pub(crate) async fn watch_wall(clock: NodeClock, status: watch::Sender<LeaseStatus>) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let report = clock.watch();
        if report.stepped_ms != 0 {
            tracing::warn!(
                stepped_ms = report.stepped_ms,
                wall_ahead_ms = report.wall_ahead_ms,
                "the wall clock was stepped; {}",
                clock.on_step()
            );
        }
        status.send_if_modified(|status| {
            status.wall_ahead_ms = report.wall_ahead_ms;
            // Several pools may watch one clock: only one of them sees a step, all of them count it.
            status.clock_steps = report.steps;
            false
        });
    }
}
