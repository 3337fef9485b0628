//! Sends spans to a collector in batches, in a task of its own. Requests never wait for it: spans that find
//! no room are dropped and counted, and so are those that the collector does not take after a few attempts.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use prost::Message as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::message::{ExportRequest, KeyValue, Resource, ResourceSpans, Scope, ScopeSpans, Span};
use super::{OtlpEndpoint, SpanCounters, TraceSettings};
use crate::http_client::{HttpServer, SendError, trusting};
use crate::telemetry::recurring_problem::RecurringProblem;

/// The semantic conventions whose names the attributes have. `request_record` sets most of them.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.44.0";
/// Spans of one message.
const BATCH: usize = 512;
/// How long a span waits for others.
const DELAY: Duration = Duration::from_secs(1);
/// How long the collector may take for a message.
const PATIENCE: Duration = Duration::from_secs(10);
/// The waits before further attempts.
const RETRIES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];

/// What the exporter receives.
pub(super) enum Command {
    Export(Box<Span>),
    /// Send the spans that have arrived, then report it.
    Flush(oneshot::Sender<()>),
}

type Failure = Box<dyn Error + Send + Sync>;

/// How an attempt to send failed.
enum Refusal {
    /// A later attempt may succeed.
    Temporary(Failure),
    Final(Failure),
}

pub(super) struct Exporter {
    settings: TraceSettings,
    resource: Resource,
    collector: HttpServer,
    counters: SpanCounters,
    problem: RecurringProblem,
}

impl Exporter {
    pub(super) fn new(settings: TraceSettings, counters: SpanCounters) -> Self {
        let name = KeyValue::text("service.name", &settings.service_name);
        let version = KeyValue::text("service.version", env!("CARGO_PKG_VERSION"));
        let resource = Resource { attributes: vec![name, version] };
        let OtlpEndpoint { is_tls, host, port, .. } = &settings.endpoint;
        let tls = is_tls.then(|| TlsConnector::from(Arc::new(trusting(None).with_no_client_auth())));
        let collector = HttpServer { host: host.clone(), port: *port, tls };
        Self { settings, resource, collector, counters, problem: RecurringProblem::default() }
    }

    /// Exports until all senders are gone.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        while let Some(first) = commands.recv().await {
            let (mut batch, mut flushed) = (Vec::new(), None);
            let until = Instant::now() + DELAY;
            let mut next = Some(first);
            while let Some(command) = next {
                match command {
                    Command::Export(span) => batch.push(*span),
                    Command::Flush(done) => flushed = Some(done),
                }
                if flushed.is_some() || batch.len() >= BATCH {
                    break;
                }
                next = timeout_at(until, commands.recv()).await.ok().flatten();
            }
            if !batch.is_empty() {
                self.export(batch).await;
            }
            if let Some(done) = flushed {
                // The caller may have given up.
                let _ = done.send(());
            }
        }
    }

    async fn export(&mut self, spans: Vec<Span>) {
        let count = spans.len() as u64;
        let scope = Scope { name: "snowmint".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, schema_url: SCHEMA.to_owned() }];
        let resource = Some(self.resource.clone());
        let of_this_node = ResourceSpans { resource, scope_spans, schema_url: SCHEMA.to_owned() };
        let body = Bytes::from(ExportRequest { resource_spans: vec![of_this_node] }.encode_to_vec());
        let mut waits = RETRIES.iter();
        let error = loop {
            let sent = timeout(PATIENCE, self.send(body.clone())).await;
            match (sent.unwrap_or_else(|_| Err(Refusal::Temporary("no answer in time".into()))), waits.next())
            {
                (Ok(()), _) => {
                    self.counters.exported.inc_by(count);
                    if self.problem.ended().is_some() {
                        tracing::info!("the collector accepts spans again");
                    }
                    return;
                }
                (Err(Refusal::Temporary(_)), Some(wait)) => sleep(*wait).await,
                (Err(Refusal::Temporary(error) | Refusal::Final(error)), _) => break error,
            }
        };
        self.counters.dropped.inc_by(count);
        if self.problem.occurred().is_some() {
            let endpoint = &self.settings.endpoint;
            tracing::warn!(%endpoint, %error, "cannot export spans; they are dropped and counted");
        }
    }

    async fn send(&self, body: Bytes) -> Result<(), Refusal> {
        let endpoint = &self.settings.endpoint;
        let mut request = Request::post(endpoint.path.as_str())
            .header(HOST, endpoint.authority())
            .header(CONTENT_TYPE, "application/x-protobuf");
        for (name, value) in &self.settings.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body)).map_err(|error| Refusal::Temporary(error.into()))?;
        let sent = self.collector.send(request, async |response| response.status()).await;
        let status = sent.map_err(|error| match error {
            SendError::Name(_) => Refusal::Final(error.into()),
            error => Refusal::Temporary(error.into()),
        })?;
        let refused = || Failure::from(format!("the collector answered {status}"));
        match status {
            status if status.is_success() => Ok(()),
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(Refusal::Temporary(refused())),
            _ => Err(Refusal::Final(refused())),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::telemetry::otlp::SampleRatio;

    /// Reads one request, answers it and closes. Returns the head of the request.
    async fn answer_once(listener: &TcpListener, answer: &str) -> String {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut all = Vec::new();
        loop {
            assert!(stream.read_buf(&mut all).await.unwrap() > 0, "no complete request");
            let text = String::from_utf8_lossy(&all).to_lowercase();
            let Some((head, _)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if all.len() == head.len() + 4 + length.parse::<usize>().unwrap() {
                stream.write_all(answer.as_bytes()).await.unwrap();
                return head.to_owned();
            }
        }
    }

    /// Goal: spans are sent again only if the collector did not accept them. Method: collectors that answer
    /// and close at once, as without keep-alive; the first one of the last case closes without an answer.
    #[tokio::test]
    async fn an_answer_counts_even_if_the_collector_closes_with_it() {
        for answers in [
            &["HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"][..],
            &["HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"],
            &["HTTP/1.0 200 OK\r\n\r\n"],
            &["", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"],
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let settings = TraceSettings {
                endpoint: format!("http://{address}").parse().unwrap(),
                headers: Vec::new(),
                service_name: "ids".to_owned(),
                ratio: SampleRatio::default(),
            };
            let counters = SpanCounters::default();
            let mut exporter = Exporter::new(settings, counters.clone());
            // The exporter needs each of these answers; one more request would get none.
            let collecting = async {
                for answer in answers {
                    let head = answer_once(&listener, answer).await;
                    assert!(head.contains(&format!("\r\nhost: {address}\r\n")), "{head}");
                }
            };
            tokio::join!(exporter.export(vec![Span::default()]), collecting);
            assert_eq!((counters.exported.get(), counters.dropped.get()), (1, 0), "{answers:?}");
        }
    }
}
