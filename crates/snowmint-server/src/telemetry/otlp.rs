//! Traces of requests, for OpenTelemetry: which requests have a span, and what it says. `context` reads the
//! caller's span, `message` has the messages of OTLP, `export` sends them.
//!
//! If the caller records its spans, the request has a span, which is the child of the caller's. Only HTTP and
//! gRPC let a caller say so. Of the other requests, a share has a span. Requests without a span only cost a
//! look at their headers.

mod export;
mod message;

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use snowmint::error::Snippet;
use snowmint::random::SplitMix64;
use snowmint_admin::url_without_credentials::masked;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::telemetry::access_log::shortened;
use crate::telemetry::trace_context::Parent;
use export::{Command, Exporter};
pub(crate) use message::KeyValue;
use message::{ERROR, SERVER, Span, Status};

/// Spans that wait for the exporter. Further ones are dropped.
const QUEUE: usize = 2048;

/// Where spans go, and which requests have one.
#[derive(Clone, Debug)]
pub struct TraceSettings {
    /// The collector.
    pub endpoint: OtlpEndpoint,
    /// Headers of each request to the collector, such as an API key.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The name of this service.
    pub service_name: String,
    /// The share of requests with a span, of those whose caller has none.
    pub ratio: SampleRatio,
}

/// The address of a collector that accepts OTLP over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpEndpoint {
    is_tls: bool,
    host: String,
    port: u16,
    path: String,
}

/// The address of a collector is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid OTLP endpoint {0}: expected http://HOST:PORT or https://HOST:PORT, such as http://localhost:4318"
)]
pub struct InvalidEndpoint(Snippet);

impl FromStr for OtlpEndpoint {
    type Err = InvalidEndpoint;

    /// Parses a base URL, to which `v1/traces` is appended. A URL without a port means that of its scheme, 80
    /// or 443.
    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        let invalid = || InvalidEndpoint(Snippet::of(&masked(text)));
        let uri: Uri = text.parse().map_err(|_| invalid())?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(invalid()),
        };
        let authority = uri.authority().filter(|it| !it.as_str().contains('@')).ok_or_else(invalid)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() || uri.query().is_some() {
            return Err(invalid());
        }
        let port = match authority.port_u16() {
            Some(port) => port,
            None if authority.as_str() != authority.host() => return Err(invalid()),
            None if is_tls => 443,
            None => 80,
        };
        let path = format!("{}/v1/traces", uri.path().trim_end_matches('/'));
        Ok(Self { is_tls, host, port, path })
    }
}

impl OtlpEndpoint {
    /// Returns host and port, as a URL and the header `Host` have them.
    fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl fmt::Display for OtlpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

/// A share of requests, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampleRatio(f64);

/// The share of requests is invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("invalid ratio {0}: expected 0 to 1, such as 0.01")]
pub struct InvalidRatio(f64);

impl SampleRatio {
    /// Returns a share from 0 to 1.
    ///
    /// # Errors
    ///
    /// [`InvalidRatio`] for any other number.
    pub fn new(ratio: f64) -> Result<Self, InvalidRatio> {
        if (0.0..=1.0).contains(&ratio) { Ok(Self(ratio)) } else { Err(InvalidRatio(ratio)) }
    }

    /// Returns `true` for this share of the random numbers of [`RANDOM_BITS`].
    fn takes(self, random: u64) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 52 bits")]
        let random = random as f64;
        random < self.0 * f64::from(RANDOM_BITS).exp2()
    }
}

/// The last bits of a trace id are random. All services of a trace that sample by them make the same
/// decision.
const RANDOM_BITS: u32 = 56;

/// Returns a random number of [`RANDOM_BITS`]; `None` if the system has no randomness. It asks the system
/// once for each thread: a call for each request would cost more than most requests.
fn toss() -> Option<u64> {
    thread_local! {
        static RANDOM: Cell<Option<SplitMix64>> = const { Cell::new(None) };
    }
    let seed = || {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).ok()?;
        Some(SplitMix64::of(u64::from_ne_bytes(seed)))
    };
    let mut random = RANDOM.take().or_else(seed)?;
    let number = random.draw();
    RANDOM.set(Some(random));
    Some(number >> (u64::BITS - RANDOM_BITS))
}

/// Counts spans.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpanCounters {
    exported: Counter,
    dropped: Counter,
}

impl SpanCounters {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let counters = Self::default();
        let Self { exported, dropped } = counters.clone();
        registry.register("spans_exported", "Spans that the collector accepted", exported);
        let help = "Spans that were dropped: the collector did not accept them, or not fast enough";
        registry.register("spans_dropped", help, dropped);
        counters
    }
}

/// Decides which requests have a span, and passes finished spans on.
#[derive(Debug)]
pub(crate) struct Tracer {
    ratio: SampleRatio,
    commands: mpsc::Sender<Command>,
    counters: SpanCounters,
}

impl Tracer {
    /// Starts to export, on the current runtime.
    pub(crate) fn start(settings: &TraceSettings, counters: &SpanCounters) -> Self {
        let (commands, received) = mpsc::channel(QUEUE);
        tokio::spawn(Exporter::new(settings.clone(), counters.clone()).run(received));
        Self { ratio: settings.ratio, commands, counters: counters.clone() }
    }

    /// Begins the span of a request, if it has one.
    pub(crate) fn begin(&self, headers: &HeaderMap, began: Instant) -> Option<Box<ActiveSpan>> {
        match Parent::of(headers) {
            None => self.begin_root(began),
            Some(parent) if parent.is_sampled => {
                let mut span_id = [0; 8];
                getrandom::fill(&mut span_id).ok()?;
                Some(self.span(parent.trace_id, span_id, Some(parent), began))
            }
            Some(_) => None,
        }
    }

    /// Returns `true` if requests without a caller's span may have one.
    #[inline]
    pub(crate) fn samples(&self) -> bool {
        self.ratio.0 > 0.0
    }

    /// Begins the span of a request without a caller's span, if it has one.
    pub(crate) fn begin_root(&self, began: Instant) -> Option<Box<ActiveSpan>> {
        if !self.samples() {
            return None;
        }
        let tossed = toss().filter(|tossed| self.ratio.takes(*tossed))?;
        let mut random = [0; 24];
        getrandom::fill(&mut random).ok()?;
        let (mut trace_id, mut span_id) = ([0; 16], [0; 8]);
        trace_id.copy_from_slice(&random[..16]);
        span_id.copy_from_slice(&random[16..]);
        trace_id[9..].copy_from_slice(&tossed.to_be_bytes()[1..]);
        // An id of zeros is none.
        trace_id[0] |= 1;
        Some(self.span(trace_id, span_id, None, began))
    }

    fn span(
        &self,
        trace_id: [u8; 16],
        mut span_id: [u8; 8],
        parent: Option<Parent>,
        began: Instant,
    ) -> Box<ActiveSpan> {
        // An id of zeros is none.
        span_id[7] |= 1;
        Box::new(ActiveSpan {
            trace_id,
            span_id,
            parent,
            began,
            started_unix: wall_clock().saturating_sub(began.elapsed()),
            commands: self.commands.clone(),
            counters: self.counters.clone(),
        })
    }

    /// Sends the finished spans, within `patience`.
    pub(crate) async fn flush(&self, patience: Duration) {
        let (done, flushed) = oneshot::channel();
        let flushing = async {
            if self.commands.send(Command::Flush(done)).await.is_ok() {
                // It fails if the exporter has ended.
                let _ = flushed.await;
            }
        };
        if timeout(patience, flushing).await.is_err() {
            tracing::debug!("spans dropped; the collector does not answer");
        }
    }
}

/// Returns the wall clock's time since 1970: spans of other services show that of their machines.
#[expect(clippy::disallowed_methods, reason = "ids do not depend on it")]
fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The span of a request that is not answered yet.
#[derive(Debug)]
pub(crate) struct ActiveSpan {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    parent: Option<Parent>,
    began: Instant,
    /// Since 1970.
    started_unix: Duration,
    commands: mpsc::Sender<Command>,
    counters: SpanCounters,
}

/// The outcome of a request, for its span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanOutcome {
    /// It succeeded, or its client sent what cannot succeed.
    Unset,
    /// It failed here.
    Error,
}

impl ActiveSpan {
    /// Ends the span, and passes it on if there is room.
    pub(crate) fn end(&self, name: &str, attributes: Vec<KeyValue>, outcome: SpanOutcome) {
        let nanos = |since: Duration| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let parent = self.parent.as_ref();
        let span = Span {
            trace_id: self.trace_id.to_vec(),
            span_id: self.span_id.to_vec(),
            trace_state: parent.map(|parent| parent.state.clone()).unwrap_or_default(),
            parent_span_id: parent.map(|parent| parent.span_id.to_vec()).unwrap_or_default(),
            name: shortened(name).into_owned(),
            kind: SERVER,
            start_time_unix_nano: nanos(self.started_unix),
            end_time_unix_nano: nanos(self.started_unix + self.began.elapsed()),
            attributes,
            status: (outcome == SpanOutcome::Error).then_some(Status { code: ERROR }),
        };
        if self.commands.try_send(Command::Export(Box::new(span))).is_err() {
            self.counters.dropped.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_no_password() {
        let told = "http://u:secret@h:4318".parse::<OtlpEndpoint>().unwrap_err().to_string();
        assert!(
            told.contains("`http://...@h:4318`: expected http://HOST:PORT") && !told.contains("secret"),
            "{told}"
        );
    }

    fn tracer(ratio: f64) -> (Tracer, mpsc::Receiver<Command>) {
        let (commands, received) = mpsc::channel(2);
        (
            Tracer { ratio: SampleRatio::new(ratio).unwrap(), commands, counters: SpanCounters::default() },
            received,
        )
    }

    fn headers(flags: &str) -> HeaderMap {
        let parent = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
        HeaderMap::from_iter([(HeaderName::from_static("traceparent"), parent.parse().unwrap())])
    }

    #[test]
    fn the_caller_decides_and_otherwise_the_ratio() {
        let sampled = |ratio: f64, headers: &HeaderMap| {
            let (tracer, _received) = tracer(ratio);
            (0..2000).filter(|_| tracer.begin(headers, Instant::now()).is_some()).count()
        };
        for ratio in [0.0, 0.5, 1.0] {
            assert_eq!(sampled(ratio, &headers("01")), 2000, "{ratio}");
            assert_eq!(sampled(ratio, &headers("00")), 0, "{ratio}");
        }
        let none = HeaderMap::new();
        assert_eq!((sampled(0.0, &none), sampled(1.0, &none)), (0, 2000));
        // Of 2,000 tosses, fewer than 600 or more than 1,400 never happen.
        assert!((600..1400).contains(&sampled(0.5, &none)));
    }

    /// Goal: a service that samples the same trace by the same ratio makes the same decision. Method: the
    /// last bits of each sampled id.
    #[test]
    fn the_last_bits_of_a_trace_id_decided() {
        let (tracer, _received) = tracer(0.25);
        let spans: Vec<_> = (0..400).filter_map(|_| tracer.begin_root(Instant::now())).collect();
        let mut trace_ids: Vec<_> = spans.iter().map(|span| u128::from_be_bytes(span.trace_id)).collect();
        assert!(!trace_ids.is_empty() && trace_ids.iter().all(|id| id & ((1 << 56) - 1) < 1 << 54));
        trace_ids.sort_unstable();
        trace_ids.dedup();
        assert_eq!(trace_ids.len(), spans.len());
    }

    /// Goal: a request never waits: without room a span is dropped and counted. Long texts take no more room.
    #[test]
    fn spans_without_room_are_dropped_and_counted() {
        let (tracer, mut received) = tracer(0.0);
        for dropped in [0, 0, 1, 2] {
            let span = tracer.begin(&headers("01"), Instant::now()).unwrap();
            let long = "é".repeat(8 * 1024);
            span.end(&long, vec![KeyValue::text("path", &long)], SpanOutcome::Unset);
            assert_eq!(tracer.counters.dropped.get(), dropped);
        }
        let Ok(Command::Export(span)) = received.try_recv() else { panic!("no span") };
        assert_eq!((span.trace_id[0], &*span.parent_span_id), (0x4b, &headers_span()[..]));
        assert!(span.span_id.len() == 8 && span.span_id != span.parent_span_id);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano && span.status.is_none());
        let short = format!("{}… (16384 bytes)", "é".repeat(100));
        assert_eq!(span.name, short);
        assert_eq!(span.attributes, [KeyValue::text("path", &"é".repeat(8 * 1024))]);
    }

    fn headers_span() -> [u8; 8] {
        [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]
    }

    #[test]
    fn endpoints_and_ratios_are_checked() {
        for (text, wanted) in [
            ("http://localhost:4318", "http://localhost:4318/v1/traces"),
            ("http://localhost", "http://localhost:80/v1/traces"),
            ("https://otel.example.com", "https://otel.example.com:443/v1/traces"),
            ("https://[::1]/base", "https://[::1]:443/base/v1/traces"),
            ("https://otel.example.com:443/base/", "https://otel.example.com:443/base/v1/traces"),
            ("http://[::1]:4318/", "http://[::1]:4318/v1/traces"),
        ] {
            assert_eq!(text.parse::<OtlpEndpoint>().unwrap().to_string(), wanted);
        }
        for text in [
            "",
            "localhost:4318",
            "grpc://a:1",
            "http://",
            "http://u:p@a:1",
            "http://a:1/?x=1",
            "http://a:x",
            "http://a:65536",
        ] {
            let error = text.parse::<OtlpEndpoint>().unwrap_err().to_string();
            assert!(error.contains("expected http://HOST:PORT"), "{error}");
        }
        for ratio in [-0.1, 1.1, f64::NAN] {
            assert!(SampleRatio::new(ratio).is_err(), "{ratio}");
        }
    }
}
