//! What systemd learns of the service: that it is ready, what it waits for, that it stops, and that it is alive.
//!
//! For units with `Type=notify`, with or without `WatchdogSec`. Without the variable `NOTIFY_SOCKET` nothing is sent. Source:
//! `sd_notify(3)` and `sd_watchdog_enabled(3)`.

use std::convert::Infallible;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::runtime::Handle;

/// How long a start that makes no progress is waited for, beyond its next attempt.
const PATIENCE: Duration = Duration::from_secs(30);

/// Tells what the start waits for, and that the next attempt follows after `wait`: the time limit of the start then does not end it.
pub(super) fn waits(problem: &str, wait: Duration) {
    let micros = u32::try_from((wait + PATIENCE).as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::Status(problem), NotifyState::ExtendTimeoutUsec(micros)]);
}

/// Tells that the ports are open and served, with or without a lease.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// Tells the state in a few words, for `systemctl status`.
pub(super) fn status(words: &str) {
    tell(&[NotifyState::Status(words)]);
}

pub(super) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("finishing the requests in flight")]);
}

/// Tells at half the asked interval that the service is alive: this task proves it of the thread of leases, and a task there of
/// the threads of requests. A thread that hangs ends the signs, and systemd restarts the service.
pub(super) async fn watchdog(serving: &Handle) -> Infallible {
    let mut micros = 0;
    if !sd_notify::watchdog_enabled(false, &mut micros) {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(Duration::from_micros(micros / 2)).await;
        if serving.spawn(async {}).await.is_ok() {
            tell(&[NotifyState::Watchdog]);
        }
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, states) {
        tracing::debug!(%error, "cannot notify systemd");
    }
}
