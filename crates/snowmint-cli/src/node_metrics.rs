//! What running nodes tell at `/metrics`: the numbers they received, how long their leases last, and what they met.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use snowmint::DatacenterId;
use snowmint_cluster::segment::Stripe;
use snowmint_cluster::{NamespaceName, Pool};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::error::Failure;

const NODE_WITHIN: Duration = Duration::from_secs(5);
const MOST_METRICS: u64 = 64 << 20;

/// The highest number that a node received from a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Received {
    pub(crate) number: u64,
    /// How many slots of its stripe the counter must have given for it.
    pub(crate) slots: u64,
}

impl Received {
    pub(crate) fn up_to(number: u64, stripe: Stripe) -> Self {
        let (index, of) = (u64::from(stripe.index()), u64::from(stripe.of()));
        Self { number, slots: number.checked_sub(index).map_or(0, |offset| offset / of + 1) }
    }

    fn and(self, other: Self) -> Self {
        Self { number: self.number.max(other.number), slots: self.slots.max(other.slots) }
    }
}

/// What the nodes told that were asked.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The highest number that one of them received, by the key of the counter in the store of the service.
    pub(crate) received: BTreeMap<String, Received>,
    /// The same of counters in the stores of sources.
    pub(crate) received_of_sources: BTreeMap<String, Received>,
    /// The highest number by namespace, of nodes that do not tell counters. Without the namespaces of which such a
    /// node told periods.
    pub(crate) highest: BTreeMap<String, u64>,
    /// The same by namespace and period, where numbers restart with each.
    pub(crate) highest_of_period: BTreeMap<String, BTreeMap<String, u64>>,
    /// The pool of each node's own layout.
    pub(crate) pools: Vec<Pool>,
    /// The latest end of a lease.
    pub(crate) until_unix_ms: u64,
}

impl Told {
    /// Takes what stands in the metrics of a node.
    ///
    /// Nodes of earlier versions tell no periods: the highest number of the current one stands for the next one too.
    pub(crate) fn take(&mut self, metrics: &str) {
        let mut with_periods = BTreeSet::new();
        let tells_counters = metrics.lines().filter(|line| self.take_counter(line).is_some()).count() > 0;
        for line in metrics.lines().filter(|_| !tells_counters) {
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
                && !tells_counters
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
                self.pools.push(Pool::new(layout, DatacenterId(datacenter)));
            }
            if let Some((_, value)) = labelled(line, "snowmint_lease_until_seconds", "worker")
                && let Ok(until) = Duration::try_from_secs_f64(value.parse().unwrap_or(0.0))
            {
                let until_unix_ms = u64::try_from(until.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
                self.until_unix_ms = self.until_unix_ms.max(until_unix_ms);
            }
        }
    }
}

impl Told {
    /// Takes the highest number of a counter, if the line tells one.
    fn take_counter(&mut self, line: &str) -> Option<()> {
        let (labels, value) = labelled(line, "snowmint_counter_numbers_highest", "counter")?;
        let (key, rest) = labels.split_once("\",source=\"")?;
        let (source, stripe) = rest.split_once("\",stripe=\"")?;
        let received = Received::up_to(value.parse().ok()?, stripe.parse().ok()?);
        let all = if source.is_empty() { &mut self.received } else { &mut self.received_of_sources };
        let known = all.entry(key.to_owned()).or_default();
        *known = known.and(received);
        Some(())
    }
}

/// The label and the value of a line such as `name{label="a"} 7`.
fn labelled<'a>(line: &'a str, name: &str, label: &str) -> Option<(&'a str, &'a str)> {
    let rest = line.strip_prefix(name)?.strip_prefix('{')?.strip_prefix(label)?.strip_prefix("=\"")?;
    rest.split_once("\"} ")
}

/// The sum of a metric over its labels; 0 where a node has none of that name.
pub(crate) fn sum_of(metrics: &str, name: &str) -> u64 {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with([' ', '{']).then(|| rest.rsplit(' ').next()?.parse::<u64>().ok())?
    });
    values.sum()
}

/// Whether a node serves a namespace.
pub(crate) fn serves(metrics: &str, name: &NamespaceName) -> bool {
    let of_name = |line: &str| {
        labelled(line, "snowmint_ids_issued_total", "namespace").is_some_and(|(it, _)| it == name.as_str())
    };
    metrics.lines().any(of_name)
}

/// Why a node told nothing.
#[derive(Debug)]
pub(crate) enum Silence {
    /// It has no address.
    Address { node: String },
    /// It did not answer, or not as a node does.
    Node { node: String, why: String },
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { node } => write!(f, "invalid node {node:?}: expected http://HOST:PORT"),
            Self::Node { node, why } => write!(f, "no metrics from node {node}: {why}"),
        }
    }
}

impl Silence {
    /// As a failure that says what to do.
    pub(crate) fn with(self, advice: &str) -> Failure {
        match self {
            Self::Address { .. } => Failure::flag("--nodes", self),
            Self::Node { .. } => Failure::runtime(format!("{self}; {advice}")),
        }
    }
}

/// What a node tells at `/metrics`.
pub(crate) async fn fetch(node: &str) -> Result<String, Silence> {
    let address = node.trim_end_matches('/');
    let address = address.strip_prefix("http://").unwrap_or(address);
    if address.contains('/') || !address.contains(':') {
        return Err(Silence::Address { node: node.to_owned() });
    }
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        // Version 1.0, so that the answer comes in one piece.
        stream.write_all(format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.take(MOST_METRICS).read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let silent = |why: &dyn fmt::Display| Silence::Node { node: node.to_owned(), why: why.to_string() };
    let answer = match tokio::time::timeout(NODE_WITHIN, ask).await {
        Ok(answer) => answer.map_err(|error| silent(&error))?,
        Err(_) => return Err(silent(&"no answer within 5 s")),
    };
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.lines().next().is_some_and(|status| status.contains(" 200 ")) => {
            Ok(body.to_owned())
        }
        _ => Err(silent(&"/metrics did not answer 200")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nodes_tell_is_read() {
        let mut told = Told::default();
        // What a node tells of counters says more than what it tells of namespaces.
        told.take(
            "snowmint_numbers_highest{namespace=\"d\"} 90\n\
             snowmint_counter_numbers_highest{counter=\"segments/d/series-2\",source=\"\",stripe=\"2/3\"} 29\n\
             snowmint_counter_numbers_highest{counter=\"segments/d\",source=\"1\",stripe=\"1/1\"} 5\n",
        );
        let series =
            "snowmint_counter_numbers_highest{counter=\"segments/d/series-2\",source=\"\",stripe=\"2/3\"}";
        told.take(&format!("{series} 26\n"));
        let of = |key: &str, number, slots| BTreeMap::from([(key.to_owned(), Received { number, slots })]);
        assert_eq!(told.received, of("segments/d/series-2", 29, 10));
        assert_eq!(told.received_of_sources, of("segments/d", 5, 5));
        told.take("snowmint_numbers_highest{namespace=\"a\"} 9223372036854775807\nother 1\n");
        told.take(
            "snowmint_numbers_highest{namespace=\"a\"} 5\nsnowmint_numbers_highest{namespace=\"b\"} 7\n",
        );
        // One node tells periods, and one of an earlier version does not.
        told.take(
            "snowmint_numbers_highest{namespace=\"c\"} 90\n\
             snowmint_numbers_highest_of_period{namespace=\"c\",period=\"2026-11-21\"} 90\n\
             snowmint_numbers_highest_of_period{namespace=\"c\",period=\"2026-11-22\"} 8\n",
        );
        told.take("snowmint_numbers_highest_of_period{namespace=\"c\",period=\"2026-11-22\"} 10\n");
        let days = BTreeMap::from([("2026-11-21".to_owned(), 90), ("2026-11-22".to_owned(), 10)]);
        assert_eq!(told.highest_of_period, BTreeMap::from([("c".to_owned(), days)]));
        assert!(!told.highest.contains_key("c"));
        told.take("snowmint_numbers_highest{namespace=\"c\"} 4\n");
        assert_eq!(told.highest.remove("c"), Some(4));
        told.take("snowmint_lease_until_seconds{worker=\"3\"} 1790000000.5\n");
        let highest = BTreeMap::from([("a".to_owned(), 9_223_372_036_854_775_807), ("b".to_owned(), 7)]);
        assert_eq!((told.highest, told.until_unix_ms), (highest, 1_790_000_000_501));
        let metrics = "a_total{namespace=\"a\"} 5\na_total{namespace=\"b\"} 7\na_totals 1\nb_total 3\n";
        assert_eq!(
            (sum_of(metrics, "a_total"), sum_of(metrics, "b_total"), sum_of(metrics, "c")),
            (12, 3, 0)
        );
    }
}
