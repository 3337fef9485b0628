//! Reads `/metrics` of running nodes: the numbers they received, the ends of their leases, and the faults
//! that they detected. Also `/readyz`: whether they can make ids.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use serde_json::Value;
use snowmint::DatacenterId;
use snowmint_cluster::segment::Stripe;
use snowmint_cluster::{NamespaceName, WorkerPool};
use snowmint_store::StoreId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::format::thousands;
use crate::url_without_credentials::masked;

const NODE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum bytes of the metrics of a node.
const MAX_METRICS: usize = 64 << 20;
/// The header with the identity of the store of a node.
pub const STORE_HEADER: &str = "snowmint-store";
/// The type of the problem document of a node to a client that speaks no TLS.
pub const BAD_TLS: &str = "urn:snowmint:bad-tls";
/// The form of an address.
const FORM: &str = "http://HOST:PORT";
/// The first byte of an alert of TLS.
const TLS_ALERT: u8 = 21;
/// The end of a lease. The second name is of earlier builds: without it, a recovery would miss their leases.
const LEASE_ENDS: [&str; 2] = ["snowmint_lease_until_timestamp_seconds", "snowmint_lease_until_seconds"];
/// The highest number that was received from a counter, likewise.
const HIGHEST_RECEIVED: [&str; 2] = ["snowmint_numbers_highest_received", "snowmint_counter_numbers_highest"];
/// Maximum bytes of the headers of an answer.
const MAX_HEAD: usize = 64 << 10;
/// Maximum bytes of what a node says about its readiness: with thousands of leases.
const MAX_READINESS: usize = 1 << 20;

/// The highest number that a node received from a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReceivedUpTo {
    /// The number.
    pub number: u64,
    /// The slots of its stripe that the counter must have given for it.
    pub slots: u64,
}

impl ReceivedUpTo {
    /// Returns the numbers of a stripe up to `number`.
    pub fn up_to(number: u64, stripe: Stripe) -> Self {
        let (index, of) = (u64::from(stripe.index()), u64::from(stripe.of()));
        Self { number, slots: number.checked_sub(index).map_or(0, |offset| offset / of + 1) }
    }

    fn max(self, other: Self) -> Self {
        Self { number: self.number.max(other.number), slots: self.slots.max(other.slots) }
    }
}

/// The reports of several nodes, combined.
#[derive(Debug, Default)]
pub struct NodeReports {
    /// The highest number that a node received, by the key of the counter in the store of the service.
    pub received: BTreeMap<String, ReceivedUpTo>,
    /// The same for counters in the stores of sources.
    pub received_of_sources: BTreeMap<String, ReceivedUpTo>,
    /// The highest number by namespace, from nodes that do not report counters; without namespaces for which
    /// such a node reported periods.
    pub highest: BTreeMap<String, u64>,
    /// The same by namespace and period, if numbers restart with each period.
    pub highest_of_period: BTreeMap<String, BTreeMap<String, u64>>,
    /// The pools of the layouts of the nodes.
    pub pools: Vec<WorkerPool>,
    /// The pools of the leases of the nodes, as in the store's keys.
    pub pools_of_leases: BTreeSet<String>,
    /// The latest end of a lease.
    pub until_unix_ms: u64,
}

impl NodeReports {
    /// Adds the metrics of a node.
    ///
    /// Nodes of earlier versions report no periods: the highest number of the current period is also used for
    /// the next one.
    pub fn add(&mut self, metrics: &str) {
        let mut with_periods = BTreeSet::new();
        let has_counters = metrics.lines().filter(|line| self.add_counter(line).is_some()).count() > 0;
        for line in metrics.lines().filter(|_| !has_counters) {
            if let Some((labels, value)) = labelled(line, "snowmint_numbers_highest_of_period", "namespace")
                && let Some((name, period)) = labels.split_once("\",period=\"")
                && let Ok(number) = value.parse::<u64>()
            {
                with_periods.insert(name);
                let periods = self.highest_of_period.entry(name.to_owned()).or_default();
                let highest = periods.entry(period.to_owned()).or_default();
                *highest = number.max(*highest);
            }
        }
        for line in metrics.lines() {
            if let Some((name, value)) = labelled(line, "snowmint_numbers_highest", "namespace")
                && !has_counters
                && !with_periods.contains(name)
                && let Ok(number) = value.parse::<u64>()
            {
                let highest = self.highest.entry(name.to_owned()).or_default();
                *highest = number.max(*highest);
            }
            if let Some((labels, _)) = labelled(line, "snowmint_build_info", "version")
                && let Some((_, rest)) = labels.split_once("\",layout=\"")
                && let Some((layout, datacenter)) = rest.split_once("\",datacenter=\"")
                && let (Ok(layout), Ok(datacenter)) = (layout.parse(), datacenter.parse())
            {
                self.pools.push(WorkerPool::new(layout, DatacenterId(datacenter)));
            }
            if let Some((labels, value)) = either(line, LEASE_ENDS, "worker")
                && let Ok(until) = Duration::try_from_secs_f64(value.parse().unwrap_or(0.0))
            {
                // Nodes of earlier versions name no pool.
                let pool = labels.split_once("\",pool=\"").map(|(_, pool)| pool.to_owned());
                self.pools_of_leases.extend(pool);
                let until_unix_ms = u64::try_from(until.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
                self.until_unix_ms = self.until_unix_ms.max(until_unix_ms);
            }
        }
    }

    /// Adds the highest number of a counter, if the line reports one.
    fn add_counter(&mut self, line: &str) -> Option<()> {
        let (labels, value) = either(line, HIGHEST_RECEIVED, "counter")?;
        let (key, rest) = labels.split_once("\",source=\"")?;
        let (source, stripe) = rest.split_once("\",stripe=\"")?;
        let received = ReceivedUpTo::up_to(value.parse().ok()?, stripe.parse().ok()?);
        let all = if source.is_empty() { &mut self.received } else { &mut self.received_of_sources };
        let known = all.entry(key.to_owned()).or_default();
        *known = known.max(received);
        Some(())
    }
}

/// Returns the label and the value of a line such as `name{label="a"} 7`.
fn labelled<'a>(line: &'a str, name: &str, label: &str) -> Option<(&'a str, &'a str)> {
    let rest = line.strip_prefix(name)?.strip_prefix('{')?.strip_prefix(label)?.strip_prefix("=\"")?;
    rest.split_once("\"} ")
}

/// The same for a metric with two names.
fn either<'a>(line: &'a str, names: [&str; 2], label: &str) -> Option<(&'a str, &'a str)> {
    names.into_iter().find_map(|name| labelled(line, name, label))
}

/// Returns the sum of a metric over its labels; 0 if the node does not have it.
pub fn sum_of(metrics: &str, name: &str) -> u64 {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with([' ', '{']).then(|| rest.rsplit(' ').next()?.parse::<u64>().ok())?
    });
    values.sum()
}

/// Returns the identity of the store of a node; `None` if it does not report any.
pub(crate) fn store_of(metrics: &str) -> Option<StoreId> {
    metrics.lines().find_map(|line| labelled(line, "snowmint_store_info", "store")?.0.parse().ok())
}

/// Returns the leases that a node reports: pool, worker and end in unix milliseconds.
pub(crate) fn leases_of(metrics: &str) -> Vec<(String, u32, u64)> {
    let lease = |line: &str| {
        let (labels, value) = either(line, LEASE_ENDS, "worker")?;
        let (worker, pool) = labels.split_once("\",pool=\"")?;
        let until = Duration::try_from_secs_f64(value.parse().ok()?).ok()?;
        // The text is exact to less than a millisecond.
        let until_unix_ms = u64::try_from((until.as_micros() + 500) / 1000).ok()?;
        Some((pool.to_owned(), worker.parse().ok()?, until_unix_ms))
    };
    metrics.lines().filter_map(lease).collect()
}

/// Returns whether a node serves a namespace.
pub fn serves(metrics: &str, name: &NamespaceName) -> bool {
    let of_name = |line: &str| {
        labelled(line, "snowmint_ids_issued_total", "namespace").is_some_and(|(it, _)| it == name.as_str())
    };
    metrics.lines().any(of_name)
}

/// Why the metrics of a node are unknown.
#[derive(Debug)]
pub enum NodeError {
    /// Its address is invalid.
    Address {
        /// The address, without user and password.
        node: String,
    },
    /// It did not answer, or not as a node does.
    Node {
        /// Its address.
        node: String,
        /// What was expected: `metrics` or `readiness`.
        what: &'static str,
        /// The reason.
        why: String,
    },
}

impl std::error::Error for NodeError {}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { node } => {
                write!(f, "invalid node {node:?}: expected {FORM}")?;
                if node.starts_with("https:") {
                    f.write_str("; for a node with TLS, its --probe address")?;
                }
                Ok(())
            }
            Self::Node { node, what, why } => write!(f, "no {what} from node {node}: {why}"),
        }
    }
}

/// Returns the host and port of a node.
///
/// # Errors
///
/// [`NodeError::Address`].
pub fn address(node: &str) -> Result<&str, NodeError> {
    let address = node.trim_end_matches('/');
    let address = address.strip_prefix("http://").unwrap_or(address);
    let is_address = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]%".contains(&byte);
    if !address.contains(':') || !address.bytes().all(is_address) {
        return Err(NodeError::Address { node: masked(node) });
    }
    Ok(address)
}

/// Fetches `/metrics` of a node. It follows no redirect.
///
/// # Errors
///
/// [`NodeError`] if the address is invalid, or the node does not answer within 5 s, or not with all of its
/// metrics.
pub async fn fetch(node: &str) -> Result<String, NodeError> {
    let address = address(node)?;
    let metrics = async { metrics_in(&get(address, "/metrics", MAX_METRICS).await?) };
    metrics.await.map_err(|why| NodeError::Node { node: node.to_owned(), what: "metrics", why })
}

/// Whether a node can make ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeReadiness {
    /// It can.
    Ready {
        /// What fails meanwhile, such as the renewals of its lease.
        trouble: Option<String>,
    },
    /// It cannot, or an operator drains it.
    NotReady {
        /// The reason.
        why: String,
    },
}

/// Fetches `/readyz` of a node: whether it can make ids, and in which store. It follows no redirect.
///
/// # Errors
///
/// [`NodeError`] if the address is invalid, or the node does not answer within 5 s, or not as a node does.
pub async fn fetch_readiness(node: &str) -> Result<(NodeReadiness, NodeStore), NodeError> {
    let address = address(node)?;
    let readiness = async {
        let answer = get(address, "/readyz", MAX_READINESS).await?;
        Ok((readiness_in(&answer)?, store_in(&answer)?))
    };
    readiness.await.map_err(|why| NodeError::Node { node: node.to_owned(), what: "readiness", why })
}

/// The store of a node, and the workers that it holds there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeStore {
    /// The identity of its store; `None` if it is not known yet, and for nodes of earlier versions.
    pub id: Option<StoreId>,
    /// A text of this process alone.
    pub instance: Option<String>,
    /// The workers that it holds, each with its pool.
    pub workers: Vec<(String, u32)>,
    /// Its name in the store.
    pub name: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Ids given to clients since its start.
    pub issued: Option<u64>,
}

/// Returns the store that an answer of `/readyz` names. A node that is not ready names it in the header
/// alone.
fn store_in(answer: &[u8]) -> Result<NodeStore, String> {
    let (head, body) = parts(answer)?;
    let headers = head.split("\r\n").filter_map(|header| header.split_once(':'));
    let mut stores = headers.filter(|(name, _)| name.eq_ignore_ascii_case(STORE_HEADER));
    let id = stores.next().and_then(|(_, id)| id.trim().parse().ok());
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let worker = |lease: &Value| {
        Some((lease["pool"].as_str()?.to_owned(), u32::try_from(lease["worker"].as_u64()?).ok()?))
    };
    let workers = said["leases"].as_array().into_iter().flatten().filter_map(worker).collect();
    let text = |member: &str| said[member].as_str().map(str::to_owned);
    Ok(NodeStore {
        id,
        instance: text("instance"),
        workers,
        name: text("name"),
        version: text("version"),
        issued: said["issued"].as_u64(),
    })
}

/// Returns the answer of a node, with its headers, and at most `max_body` bytes after them.
async fn get(address: &str, path: &str, max_body: usize) -> Result<Vec<u8>, String> {
    let request = async {
        let mut stream = TcpStream::connect(address).await?;
        // HTTP 1.0, so that the answer is not chunked.
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take((MAX_HEAD + max_body) as u64).read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    match tokio::time::timeout(NODE_TIMEOUT, request).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err("no answer within 5 s".to_owned()),
    }
}

/// Returns the head and the body of an answer.
fn parts(answer: &[u8]) -> Result<(Cow<'_, str>, &[u8]), String> {
    const END_OF_HEAD: &[u8] = b"\r\n\r\n";
    let uses_tls = || format!("this port uses TLS: name the node's --probe address, {FORM}");
    // A proxy that expects a handshake answers with an alert, a node with a problem document.
    if answer.first() == Some(&TLS_ALERT) {
        return Err(uses_tls());
    }
    let end = answer.windows(END_OF_HEAD.len()).position(|it| it == END_OF_HEAD);
    let end = end.ok_or("the answer ended within its headers: check the node, then retry")?;
    let (head, body) = (String::from_utf8_lossy(&answer[..end]), &answer[end + END_OF_HEAD.len()..]);
    let problem: Option<Value> = if code(&head) == "400" { serde_json::from_slice(body).ok() } else { None };
    if problem.is_some_and(|problem| problem["type"] == BAD_TLS) {
        return Err(uses_tls());
    }
    Ok((head, body))
}

/// Returns the status code in a status line; empty if there is none.
fn code(status: &str) -> &str {
    status.split(' ').nth(1).unwrap_or_default()
}

/// Returns the readiness in an answer.
fn readiness_in(answer: &[u8]) -> Result<NodeReadiness, String> {
    let (head, body) = parts(answer)?;
    let status = head.split("\r\n").next().unwrap_or_default();
    let said: Value = match code(status) {
        "200" | "503" => serde_json::from_slice(body)
            .map_err(|error| format!("/readyz did not answer with a JSON document: {error}"))?,
        _ => return Err(format!("/readyz answered {status:?}: expected 200 or 503")),
    };
    let text = |member: &str| said.get(member).and_then(Value::as_str).map(str::to_owned);
    Ok(match code(status) {
        "200" => NodeReadiness::Ready { trouble: text("trouble") },
        _ => {
            NodeReadiness::NotReady { why: text("detail").unwrap_or_else(|| "it gives no reason".to_owned()) }
        }
    })
}

/// Returns the metrics in an answer, or why they are not all there. A missing line would leave a counter too
/// low, and a truncated line would report a smaller number.
fn metrics_in(answer: &[u8]) -> Result<String, String> {
    let (head, body) = parts(answer)?;
    let mut headers = head.split("\r\n");
    let status = headers.next().unwrap_or_default();
    if code(status) != "200" {
        return Err(format!("/metrics answered {status:?}: expected 200"));
    }
    let length = headers.filter_map(|header| header.split_once(':'));
    let mut length = length.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = match (length.next(), length.next()) {
        (Some((_, length)), None) => Some(length.trim()),
        _ => None,
    };
    // A sign is not allowed there, but `parse` accepts one.
    let length =
        length.filter(|it| it.bytes().all(|byte| byte.is_ascii_digit())).and_then(|it| it.parse().ok());
    let length: usize = length.ok_or(
        "/metrics answered without one valid content-length, so it is unknown whether all of it arrived: name the node itself, \
         not a proxy",
    )?;
    if length > MAX_METRICS {
        let (length, limit) = (thousands(length as u64), thousands(MAX_METRICS as u64));
        return Err(format!("/metrics has {length} bytes, above the limit of {limit}"));
    }
    if body.len() != length {
        let (arrived, length) = (thousands(body.len() as u64), thousands(length as u64));
        return Err(format!(
            "{arrived} bytes of /metrics arrived: expected exactly {length}; check the node, then retry"
        ));
    }
    let metrics =
        String::from_utf8(body.to_vec()).map_err(|error| format!("/metrics is not text: {error}"))?;
    if !metrics.lines().any(|line| labelled(line, "snowmint_build_info", "version").is_some()) {
        return Err(
            "/metrics are not the metrics of a Snowmint node: expected a line snowmint_build_info".to_owned()
        );
    }
    Ok(metrics)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Returns the metrics fetched from a node that sends these bytes and closes the connection.
    async fn fetched(answer: String) -> Result<String, NodeError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let node = format!("http://{}", listener.local_addr().unwrap());
        let serving = async {
            let mut stream = listener.accept().await.unwrap().0;
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        };
        tokio::join!(fetch(&node), serving).0
    }

    /// Goal: metrics that arrived in part are an error, since a missing counter would not be raised, and a
    /// number that was cut in half would be taken for a smaller one. Method: an answer that ends at each of
    /// its bytes; answers whose length is missing, unclear, or not the number of bytes that arrived; one that
    /// another program sent.
    #[tokio::test]
    async fn metrics_that_did_not_arrive_whole_are_an_error() {
        let head =
            |length: usize| format!("HTTP/1.0 200 OK\r\nDate: now\r\nCONTENT-LENGTH: {length}\r\n\r\n");
        let metrics =
            "snowmint_build_info{version=\"1\"} 1\nsnowmint_numbers_highest{namespace=\"a\"} 1234\n";
        let whole = format!("{}{metrics}", head(metrics.len()));
        assert_eq!(fetched(whole.clone()).await.unwrap(), metrics);
        for length in 0..whole.len() {
            let cut = fetched(whole[..length].to_owned()).await;
            assert!(matches!(cut, Err(NodeError::Node { .. })), "{length} bytes: {cut:?}");
        }
        let page = "<html>welcome</html>\n";
        for (answer, wanted) in [
            (format!("HTTP/1.0 200 OK\r\n\r\n{metrics}"), "without one valid content-length"),
            (
                format!("HTTP/1.0 200 OK\r\ncontent-length: +5\r\n\r\n{metrics}"),
                "without one valid content-length",
            ),
            (
                format!("HTTP/1.0 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n{metrics}"),
                "without one valid content-length",
            ),
            (format!("{}{metrics}x", head(metrics.len())), "expected exactly"),
            (format!("{}{metrics}", head(MAX_METRICS + 1)), "limit of 67,108,864"),
            (format!("{}{page}", head(page.len())), "are not the metrics of a Snowmint node"),
            ("\u{15}\u{3}\u{3}\0\u{2}\u{2}\n".to_owned(), "this port uses TLS"),
            (
                format!("HTTP/1.0 503 Busy 200 \r\ncontent-length: {}\r\n\r\n{metrics}", metrics.len()),
                "answered \"HTTP/1.0 503",
            ),
        ] {
            let error = fetched(answer.clone()).await.unwrap_err().to_string();
            assert!(error.contains(wanted), "{answer:?}: {error}");
        }
    }

    /// Goal: an address is a host and a port, and cannot add anything to the request.
    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (node, wanted) in [
            ("http://n1:8080", Some("n1:8080")),
            ("n1:8080/", Some("n1:8080")),
            ("http://[fe80::1]:80", Some("[fe80::1]:80")),
            ("n1", None),
            ("https://n1:8080", None),
            ("http://n1:8080/x", None),
            ("http://u@n1:8080", None),
            ("n1:8080\r\nx: y", None),
            ("n1:80 80", None),
        ] {
            assert_eq!(address(node).ok(), wanted, "{node:?}");
        }
        let told = address("http://u:secret@n1:8080").unwrap_err().to_string();
        assert_eq!(told, "invalid node \"http://...@n1:8080\": expected http://HOST:PORT");
    }

    #[test]
    fn metrics_of_several_nodes_are_combined() {
        let mut reports = NodeReports::default();
        // Numbers reported by counter take precedence over those by namespace.
        reports.add(
            "snowmint_numbers_highest{namespace=\"d\"} 90\n\
             snowmint_numbers_highest_received{counter=\"segments/d/series-2\",source=\"\",stripe=\"2/3\"} 29\n\
             snowmint_numbers_highest_received{counter=\"segments/d\",source=\"1\",stripe=\"1/1\"} 5\n",
        );
        let series =
            "snowmint_numbers_highest_received{counter=\"segments/d/series-2\",source=\"\",stripe=\"2/3\"}";
        reports.add(&format!("{series} 26\n"));
        // A build before the metric had its name.
        let earlier = series.replace("numbers_highest_received", "counter_numbers_highest");
        reports.add(&format!("{earlier} 32\n"));
        let of =
            |key: &str, number, slots| BTreeMap::from([(key.to_owned(), ReceivedUpTo { number, slots })]);
        assert_eq!(reports.received, of("segments/d/series-2", 32, 11));
        assert_eq!(reports.received_of_sources, of("segments/d", 5, 5));
        reports.add("snowmint_numbers_highest{namespace=\"a\"} 9223372036854775807\nother 1\n");
        reports.add(
            "snowmint_numbers_highest{namespace=\"a\"} 5\nsnowmint_numbers_highest{namespace=\"b\"} 7\n",
        );
        // One node reports periods; a node of an earlier version does not.
        reports.add(
            "snowmint_numbers_highest{namespace=\"c\"} 90\n\
             snowmint_numbers_highest_of_period{namespace=\"c\",period=\"2026-11-21\"} 90\n\
             snowmint_numbers_highest_of_period{namespace=\"c\",period=\"2026-11-22\"} 8\n",
        );
        reports.add("snowmint_numbers_highest_of_period{namespace=\"c\",period=\"2026-11-22\"} 10\n");
        let days = BTreeMap::from([("2026-11-21".to_owned(), 90), ("2026-11-22".to_owned(), 10)]);
        assert_eq!(reports.highest_of_period, BTreeMap::from([("c".to_owned(), days)]));
        assert!(!reports.highest.contains_key("c"));
        reports.add("snowmint_numbers_highest{namespace=\"c\"} 4\n");
        assert_eq!(reports.highest.remove("c"), Some(4));
        // A node of an earlier version, then one that holds leases of two layouts.
        reports.add("snowmint_lease_until_seconds{worker=\"3\"} 1789999999.5\n");
        reports.add(
            "snowmint_lease_until_timestamp_seconds{worker=\"3\",pool=\"time41@1ms.worker5.0\"} 1790000000.5\n\
             snowmint_lease_until_timestamp_seconds{worker=\"3\",pool=\"time39@1ms.worker7.0\"} 1790000000.2\n",
        );
        let pools = ["time39@1ms.worker7.0", "time41@1ms.worker5.0"].map(str::to_owned);
        assert_eq!(reports.pools_of_leases, BTreeSet::from(pools));
        let highest = BTreeMap::from([("a".to_owned(), 9_223_372_036_854_775_807), ("b".to_owned(), 7)]);
        assert_eq!((reports.highest, reports.until_unix_ms), (highest, 1_790_000_000_501));
        let metrics = "a_total{namespace=\"a\"} 5\na_total{namespace=\"b\"} 7\na_totals 1\nb_total 3\n";
        assert_eq!(
            (sum_of(metrics, "a_total"), sum_of(metrics, "b_total"), sum_of(metrics, "c")),
            (12, 3, 0)
        );
    }
}
