//! Records what this node remembers of the last hour. A task takes the samples from counters that exist
//! anyway, so no request and no id pays for it.

use std::sync::Arc;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Issued;
use crate::history::Sample;
use crate::limits::history::{EVERY, LOOKS, NAMESPACES};
use crate::state::ServerState;
use crate::store_calls::{CallTotals, StoreCalls};

/// Takes samples until the service ends.
pub(crate) async fn record(server: Arc<ServerState>) -> std::convert::Infallible {
    let mut recorder = Recorder::new(&server);
    let mut looks = interval(EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is now.
    looks.tick().await;
    loop {
        for _ in 0..LOOKS {
            looks.tick().await;
            recorder.look(&server);
        }
        let sample = recorder.sample(&server);
        server.history.add(sample);
    }
}

/// The counters at the last sample.
struct Recorder {
    at: Instant,
    issued: Issued,
    calls: CallTotals,
    failed_requests: u64,
    lease_left_ms: Option<u64>,
}

impl Recorder {
    fn new(server: &ServerState) -> Self {
        Self {
            at: Instant::now(),
            issued: Issued::of(&server.mint),
            calls: calls_of(server).map(StoreCalls::totals).unwrap_or_default(),
            failed_requests: server.metrics.failed_here(),
            lease_left_ms: None,
        }
    }

    /// Notes how long the leases last: a renewal that came late is over at the next sample.
    fn look(&mut self, server: &ServerState) {
        let now_unix_ms = server.settings.clock.unix_ms();
        let ends = server.mint.leases().into_iter().filter_map(|lease| lease.until_unix_ms);
        let left = ends.map(|until| until.saturating_sub(now_unix_ms)).min();
        self.lease_left_ms = self.lease_left_ms.into_iter().chain(left).min();
    }

    #[expect(clippy::cast_precision_loss, reason = "a plot needs no more than 52 bits")]
    fn sample(&mut self, server: &ServerState) -> Sample {
        let now = Self::new(server);
        let seconds = now.at.saturating_duration_since(self.at).as_secs_f64();
        let (ids_per_second, namespaces) = now.issued.busiest_since(&self.issued, NAMESPACES);
        let CallTotals { calls, failed, took_us } = now.calls.since(self.calls);
        // A call that ended since then counts in the next sample.
        let slowest_us = calls_of(server).map_or(0, StoreCalls::take_slowest_us).max(took_us / calls.max(1));
        let ms = |us: f64| (us / 10.0).round() / 100.0;
        let sample = Sample {
            at_unix_ms: server.settings.clock.unix_ms(),
            seconds,
            ids_per_second,
            namespaces,
            store_ms: (calls > 0).then(|| ms(took_us as f64 / calls as f64)),
            store_slowest_ms: (calls > 0).then(|| ms(slowest_us as f64)),
            lease_left_s: self.lease_left_ms.map(|left| left as f64 / 1e3),
            store_errors: failed,
            failed_requests: now.failed_requests.saturating_sub(self.failed_requests),
        };
        *self = now;
        sample
    }
}

fn calls_of(server: &ServerState) -> Option<&StoreCalls> {
    server.settings.store_calls.as_deref()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;
    use snowmint::{Clock as _, ManualClock};
    use snowmint_store::{Key, MemoryStore, Store as _};

    use super::*;
    use crate::limits::history::SAMPLES;
    use crate::protocol::Protocol;
    use crate::settings::Settings;
    use crate::status::ErrorKind;
    use crate::store_calls::TimedStore;
    use crate::testing::{self, START_UNIX_MS};

    fn json(server: &ServerState) -> Value {
        serde_json::from_slice(&server.history.json(server.settings.clock.unix_ms())).unwrap()
    }

    /// Goal: a sample has what happened since the one before, and nothing else; a late renewal is seen although
    /// it is over. Method: counters and clocks that are moved by hand between the ticks of the task.
    #[tokio::test(start_paused = true)]
    async fn a_sample_has_what_happened_since_the_one_before() {
        let clock = Arc::new(ManualClock::at_unix_ms(START_UNIX_MS));
        let store = TimedStore::new(Arc::new(MemoryStore::new()));
        let settings = Settings {
            clock: Arc::clone(&clock) as _,
            store_calls: Some(store.calls()),
            ..Settings::default()
        };
        let server = Arc::new(ServerState::new(Arc::new(testing::mint()), settings));
        let task = tokio::spawn(record(Arc::clone(&server)));
        tokio::task::yield_now().await;
        let table = server.mint.table();
        table.find(b"default").unwrap().add_issued(300);
        server.metrics.failed(Protocol::Http, ErrorKind::Busy);
        server.metrics.failed(Protocol::Http, ErrorKind::BadRequest);
        store.load(&Key::new("a").unwrap()).await.unwrap();
        let until = server.mint.status().until_unix_ms.unwrap();
        tokio::time::sleep(EVERY).await;
        // The lease nearly ends between two samples.
        clock.set_unix_ms(until - 500);
        tokio::time::sleep(EVERY).await;
        clock.set_unix_ms(START_UNIX_MS + 30_000);
        tokio::time::sleep(EVERY * (LOOKS - 2)).await;
        tokio::task::yield_now().await;
        table.find(b"default").unwrap().add_issued(60);
        tokio::time::sleep(EVERY * LOOKS).await;
        tokio::task::yield_now().await;
        let history = json(&server);
        assert_eq!((&history["every_ms"], history["samples"].as_array().unwrap().len()), (&30_000.into(), 2));
        let [first, second] = [&history["samples"][0], &history["samples"][1]];
        assert_eq!(
            (&first["at_unix_ms"], &first["seconds"]),
            (&(START_UNIX_MS + 30_000).into(), &30.0.into())
        );
        assert_eq!(first["namespaces"], serde_json::json!([["default", 10.0]]));
        assert_eq!((&first["ids_per_second"], &second["ids_per_second"]), (&10.0.into(), &2.0.into()));
        assert_eq!((&first["lease_left_s"], &first["failed_requests"]), (&0.5.into(), &1.into()));
        assert_eq!((&second["failed_requests"], &second["store_errors"]), (&0.into(), &0.into()));
        assert!(first["store_ms"].is_number() && second.get("store_ms").is_none(), "{history}");
        task.abort();
    }

    /// Goal: an hour is remembered, and no more, however long the node runs.
    #[tokio::test(start_paused = true)]
    async fn the_ring_does_not_grow() {
        let server = Arc::new(ServerState::for_tests(testing::mint()));
        let task = tokio::spawn(record(Arc::clone(&server)));
        tokio::time::sleep(Duration::from_hours(3)).await;
        let samples = json(&server)["samples"].as_array().unwrap().len();
        assert_eq!(samples, SAMPLES);
        task.abort();
    }
}
