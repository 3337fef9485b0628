//! Values of flags, parsed to checked types. Each error says what is expected.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use jiff::SignedDuration;
use snowmint::error::Chain;
use snowmint::field::Field;
use snowmint::{DatacenterId, Layout, WorkerId};
use snowmint_admin::recovery::AtLeast;
use snowmint_cluster::namespace::Logins;
use snowmint_cluster::{LeaseConfig, WorkerSource};
use snowmint_store::MAX_NUMBER;

use crate::data_directory::data_directory;
use crate::error::Failure;
use crate::numbers::whole;
use crate::output::{date, thousands};

/// The default interval at which a node reads the namespaces of its store.
pub(crate) const NAMESPACES_POLL: &str = "5s";

/// Parses `--datacenter`; the layout limits it.
pub(crate) fn node_number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "expected a whole number from 0; `snowmint layout` shows the largest".to_owned())
}

/// Parses a number, with or without thousands separators, because users paste this command's output.
pub(crate) fn number(text: &str) -> Result<u64, String> {
    whole(text).filter(|number| *number <= MAX_NUMBER).ok_or_else(|| {
        format!("expected a whole number from 0 to {}, such as 1000000 or 1,000,000", thousands(MAX_NUMBER))
    })
}

/// Parses the largest number of rows to print.
pub(crate) fn rows(text: &str) -> Result<usize, String> {
    let rows = whole(text).and_then(|rows| usize::try_from(rows).ok());
    rows.ok_or_else(|| "expected a whole number, such as 50".to_owned())
}

/// Parses a worker that a command names.
pub(crate) fn worker(text: &str) -> Result<u32, String> {
    let expected = "expected the number of a worker, such as 7; see snowmint workers";
    whole(text).and_then(|number| u32::try_from(number).ok()).ok_or_else(|| expected.to_owned())
}

/// Parses a namespace and a number of it.
pub(crate) fn at_least(text: &str) -> Result<AtLeast, String> {
    // The error names both.
    let plain = text.rsplit_once('=').and_then(|(name, number)| Some(format!("{name}={}", whole(number)?)));
    plain.as_deref().unwrap_or(text).parse()
}

/// Parses `--window`. The bounds are those of the lease, checked here before a port opens.
pub(crate) fn window(text: &str) -> Result<Duration, String> {
    time(text, Duration::from_millis(500)..=Duration::from_hours(24), "from 500ms to 24h, such as 10s")
}

/// Checks the window against what the store may lose.
pub(crate) fn check_window(window: Duration, store_url: &str) -> Result<(), Failure> {
    let may_lose = snowmint_store::may_lose(store_url).map_err(|error| Failure::flag("--store", error))?;
    LeaseConfig::check_window(window, may_lose).map_err(|error| Failure::flag("--window", error))
}

/// Parses `--max-skew`.
pub(crate) fn skew(text: &str) -> Result<Duration, String> {
    time(text, Duration::ZERO..=Duration::from_hours(24), "from 0s to 24h, such as 30s")
}

/// Parses `--namespaces-poll`.
pub(crate) fn poll(text: &str) -> Result<Duration, String> {
    time(text, Duration::from_millis(100)..=Duration::from_hours(1), "from 100ms to 1h, such as 5s")
}

/// Parses `--drain-delay` and `--drain-timeout`.
pub(crate) fn drain(text: &str) -> Result<Duration, String> {
    time(text, Duration::ZERO..=Duration::from_mins(10), "from 0s to 10m, such as 5s")
}

/// Parses `--idle-timeout`; 0 means no limit.
pub(crate) fn idle_timeout(text: &str) -> Result<Duration, String> {
    let expected = "from 1s to 24h, such as 10m, or 0s for no limit";
    let idle = time(text, Duration::ZERO..=Duration::from_hours(24), expected)?;
    if idle.is_zero() || idle >= Duration::from_secs(1) { Ok(idle) } else { Err(expected_time(expected)) }
}

/// Parses `--request-timeout` and `--write-timeout`.
pub(crate) fn timeout(text: &str) -> Result<Duration, String> {
    time(text, Duration::from_millis(100)..=Duration::from_hours(1), "from 100ms to 1h, such as 30s")
}

/// Parses a time within a range; `expected` names the range.
pub(crate) fn time(text: &str, range: RangeInclusive<Duration>, expected: &str) -> Result<Duration, String> {
    long_time(text).filter(|time| range.contains(time)).ok_or_else(|| expected_time(expected))
}

/// Parses a time, also one in days, which have no fixed length elsewhere.
pub(crate) fn long_time(text: &str) -> Option<Duration> {
    if let Some(days) = text.strip_suffix('d') {
        let days = Some(days).filter(|days| days.bytes().all(|byte| byte.is_ascii_digit()))?;
        return days.parse::<u32>().ok().map(|days| Duration::from_hours(24) * days);
    }
    text.parse::<SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok())
}

fn expected_time(range: &str) -> String {
    format!("expected a time {range}")
}

/// Parses `--max-connections`.
pub(crate) fn connections(text: &str) -> Result<usize, String> {
    let parsed = text.parse().ok().filter(|count| (1..=1_000_000).contains(count));
    parsed.ok_or_else(|| "expected 1 to 1000000".to_owned())
}

/// The most threads of `--threads auto`: one node has no load for a third.
// 2 is not 0; otherwise this does not compile.
const MOST_AUTO_THREADS: NonZeroUsize = NonZeroUsize::new(2).unwrap();

/// Parses `--threads`.
pub(crate) fn threads(text: &str) -> Result<NonZeroUsize, String> {
    if text == "auto" {
        return Ok(auto_threads(thread::available_parallelism().map_or(1, NonZeroUsize::get)));
    }
    let parsed = text.parse().ok().filter(|count: &NonZeroUsize| count.get() <= 64);
    parsed.ok_or_else(|| "expected 1 to 64, or auto".to_owned())
}

/// Returns the number of threads for a number of CPUs.
///
/// Two threads take work from each other, which costs about 8 % more CPU time for each request. On 2 CPUs,
/// where the second one runs the clients or the system's network code, they serve no more requests than one
/// (`bench/RESULTS.md`).
fn auto_threads(cpus: usize) -> NonZeroUsize {
    NonZeroUsize::new(cpus / 2).unwrap_or(NonZeroUsize::MIN).min(MOST_AUTO_THREADS)
}

/// The prefix of a Unix socket address.
const UNIX: &str = "unix:";
/// The address of a socket that systemd opens.
const SYSTEMD: &str = "systemd";

/// The address on which one protocol listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    Off,
    /// At `host:port`, as given; port 0 means any free port.
    At {
        address: String,
        port: u16,
    },
    /// On a Unix socket.
    Unix(PathBuf),
    /// On the socket that systemd opens for this protocol.
    Systemd,
    /// On a socket that systemd has opened, at this address.
    Passed(String),
}

impl Listen {
    /// Returns the port, if it is known; 0 means any free port.
    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            Self::At { port, .. } => Some(*port),
            Self::Passed(address) if !address.starts_with(UNIX) => address.rsplit_once(':')?.1.parse().ok(),
            Self::Off | Self::Unix(_) | Self::Systemd | Self::Passed(_) => None,
        }
    }

    /// Returns `true` if it is a Unix socket, to which no web page can connect.
    pub(crate) fn is_unix(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Passed(address) => address.starts_with(UNIX),
            Self::Off | Self::At { .. } | Self::Systemd => false,
        }
    }

    /// Returns `true` if only this machine can connect. A name other than `localhost` may be any address.
    pub(crate) fn is_loopback(&self) -> bool {
        let (Self::At { address, .. } | Self::Passed(address)) = self else { return true };
        if address.starts_with(UNIX) {
            return true;
        }
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host.eq_ignore_ascii_case("localhost")
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At { address, .. } | Self::Passed(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
            Self::Systemd => f.write_str(SYSTEMD),
        }
    }
}

/// Parses `--http` and `--resp`: `host:port`, `unix:` and a path, or `off`.
pub(crate) fn listen_or_unix(text: &str) -> Result<Listen, String> {
    match text.strip_prefix(UNIX) {
        Some("") => Err("expected a path after unix:, such as unix:/run/snowmint.sock".to_owned()),
        Some(path) => Ok(Listen::Unix(path.into())),
        None => listen(text).map_err(|expected| format!("{expected}; or unix:PATH")),
    }
}

/// Parses `--thrift` and the like: `host:port` or `off`.
pub(crate) fn listen(text: &str) -> Result<Listen, String> {
    match text {
        "off" => return Ok(Listen::Off),
        SYSTEMD => return Ok(Listen::Systemd),
        _ => {}
    }
    let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    match parts {
        Some((host, port)) if is_host(host) => Ok(Listen::At { address: text.to_owned(), port }),
        _ => Err("expected HOST:PORT such as 127.0.0.1:8080, 0.0.0.0:8080 or [::1]:8080, systemd, or off"
            .to_owned()),
    }
}

fn is_host(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match address {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains([':', '/', ' ']),
    }
}

/// Checks a worker and a datacenter against the layout, each under its flag's name.
pub(crate) fn check_node(
    layout: &Layout,
    worker: Option<WorkerSource>,
    datacenter: u32,
) -> Result<(Option<WorkerId>, DatacenterId), Failure> {
    let worker = worker.map(|source| source.worker(layout)).transpose();
    let worker = worker.map_err(|error| Failure::flag("--worker", Chain(&error)))?;
    if let Some(WorkerId(worker)) = worker {
        check_field(layout, Field::Worker, "--worker", worker)?;
    }
    check_field(layout, Field::Datacenter, "--datacenter", datacenter)?;
    Ok((worker, DatacenterId(datacenter)))
}

/// Checks that a value fits its field, under its flag's name.
pub(crate) fn check_field(layout: &Layout, field: Field, flag: &str, value: u32) -> Result<(), Failure> {
    if layout.width(field) == 0 && value != 0 {
        return Err(Failure::flag(
            flag,
            format!("the layout `{layout}` has no {field} field: remove {flag} {value}"),
        ));
    }
    layout.check(field, value.into()).map_err(|error| Failure::flag(flag, format!("{error} (`{layout}`)")))
}

/// Returns the given URL, or that of the SQLite file in the data directory.
pub(crate) fn store_url(store: Option<&str>, data: Option<&str>) -> Result<String, Failure> {
    let Some(store) = store else {
        return Ok(format!("sqlite:{}/snowmint.db", data_directory(data)?.trim_end_matches('/')));
    };
    Ok(store.to_owned())
}

/// Checks that the layout has a timestamp for the current time. Returns a warning if it ends within a few
/// years.
pub(crate) fn check_lifetime(layout: &Layout, now_unix_ms: u64) -> Result<Option<String>, Failure> {
    if layout.left_at(now_unix_ms).is_zero() {
        return Err(Failure::flag(
            "--layout",
            format!(
                "layout `{layout}` ended on {}: it can still be inspected, but makes no new ids; choose another layout (see \
                 `snowmint layouts`)",
                date(layout.ends_at_unix_ms())
            ),
        ));
    }
    if now_unix_ms < layout.epoch_unix_ms() {
        return Err(Failure::flag(
            "--layout",
            format!(
                "layout `{layout}` begins on {}, after today ({}): choose an epoch in the past, or correct the clock",
                date(layout.epoch_unix_ms()),
                date(now_unix_ms)
            ),
        ));
    }
    Ok(layout.expiry_warning(now_unix_ms).map(|warning| warning.to_string()))
}

/// Reads `--logins`. Not a parser of the flag: its error would repeat a password.
pub(crate) fn logins(texts: &[String]) -> Result<Logins, Failure> {
    texts.join(" ").parse().map_err(|error| Failure::flag("--logins", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_half_of_the_cpus_up_to_two() {
        for (cpus, expected) in [(1, 1), (2, 1), (3, 1), (4, 2), (64, 2)] {
            assert_eq!(auto_threads(cpus).get(), expected, "{cpus} CPUs");
        }
        for (text, expected) in
            [("1", Some(1)), ("64", Some(64)), ("65", None), ("0", None), ("-1", None), ("", None)]
        {
            assert_eq!(threads(text).ok().map(NonZeroUsize::get), expected, "{text:?}");
        }
        assert!(threads("auto").is_ok_and(|auto| auto.get() <= 2));
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        assert_eq!(listen("off"), Ok(Listen::Off));
        for good in ["127.0.0.1:8080", "0.0.0.0:0", "localhost:1", "[::1]:65535", "[::]:80"] {
            assert!(matches!(listen(good), Ok(Listen::At { .. })), "{good}");
        }
        for bad in [
            "",
            "8080",
            ":8080",
            "localhost",
            "localhost:",
            "127.0.0.1:65536",
            "::1:80",
            "[x]:80",
            "OFF",
            "http://h:80",
        ] {
            assert!(listen(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn loopback_is_told_from_all_else() {
        for (text, is_loopback) in [
            ("off", true),
            ("127.0.0.1:80", true),
            ("127.8.0.1:80", true),
            ("[::1]:80", true),
            ("localhost:80", true),
            ("0.0.0.0:80", false),
            ("[::]:80", false),
            ("10.1.2.3:80", false),
            ("web-1:80", false),
        ] {
            assert_eq!(listen(text).unwrap().is_loopback(), is_loopback, "{text}");
        }
    }

    #[test]
    fn unix_sockets_have_a_path_and_serve_this_machine() {
        let socket = listen_or_unix("unix:/run/a.sock").unwrap();
        assert_eq!(socket, Listen::Unix("/run/a.sock".into()));
        assert!(socket.is_loopback() && socket.to_string() == "unix:/run/a.sock");
        assert!(listen_or_unix("unix:").unwrap_err().contains("expected a path"));
        assert!(listen_or_unix("/run/a.sock").unwrap_err().contains("or unix:PATH"));
        assert!(listen("unix:/run/a.sock").is_err(), "Thrift has none");
        for (passed, is_loopback, port) in
            [("127.0.0.1:80", true, Some(80)), ("[::]:80", false, Some(80)), ("unix:/run/a.sock", true, None)]
        {
            let passed = Listen::Passed(passed.to_owned());
            assert_eq!((passed.is_loopback(), passed.port()), (is_loopback, port), "{passed}");
        }
        assert_eq!(listen_or_unix("systemd"), Ok(Listen::Systemd));
    }

    /// Goal: a number can be pasted as this command prints it, and nothing is read as another number.
    #[test]
    fn numbers_have_separators_or_none() {
        for (text, wanted) in [
            ("0", 0),
            ("007", 7),
            ("1000000", 1_000_000),
            ("1,000", 1000),
            ("10,001", 10_001),
            ("1_000_000", 1_000_000),
            (&thousands(MAX_NUMBER), MAX_NUMBER),
        ] {
            assert_eq!(number(text), Ok(wanted), "{text}");
        }
        for bad in [
            "", "1e6", "1,5", "1,0000", "1000,000", ",000", "1,", "1.000", "+5", "-5", " 5", "5 ", "0x10",
            "٣",
        ] {
            let why = number(bad).unwrap_err();
            assert!(why.contains("from 0 to 9,") && why.contains("1,000,000"), "{bad}: {why}");
        }
        assert!(number(&(MAX_NUMBER + 1).to_string()).is_err());
        assert_eq!(worker("7"), Ok(7));
        for bad in ["abc", "", "4294967296", "-1"] {
            assert!(worker(bad).unwrap_err().contains("such as 7; see snowmint workers"), "{bad}");
        }
        let orders = at_least("orders=1,200,000").unwrap();
        assert_eq!((&*orders.name, orders.number), ("orders", 1_200_000));
        assert!(at_least("orders=1,2").unwrap_err().contains("expected NAMESPACE=NUMBER"));
    }

    #[test]
    fn windows_end_at_both_bounds() {
        for (text, ms) in [("500ms", 500), ("10s", 10_000), ("1m", 60_000), ("24h", 86_400_000)] {
            assert_eq!(window(text), Ok(Duration::from_millis(ms)));
        }
        for bad in ["", "10", "499ms", "86401s", "-10s", "s", "ten"] {
            assert!(window(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_data_directory_holds_the_file() {
        assert_eq!(store_url(None, Some("./d/")).unwrap(), "sqlite:./d/snowmint.db");
        assert_eq!(store_url(Some("memory:"), Some("")).unwrap(), "memory:", "the directory is not used");
    }

    #[test]
    fn only_what_has_timestamps_now_is_accepted() {
        let layout: Layout = "time:31@1s worker:20 sequence:12 epoch:2024-01-01".parse().unwrap();
        let (begins, ends) = (layout.epoch_unix_ms(), layout.ends_at_unix_ms());
        assert!(check_lifetime(&layout, begins - 1).is_err());
        assert_eq!(check_lifetime(&layout, begins).unwrap(), None);
        // 5 average Gregorian years.
        assert_eq!(check_lifetime(&layout, ends - 157_784_760_000).unwrap(), None);
        assert!(check_lifetime(&layout, ends - 157_784_760_000 + 1).unwrap().is_some());
        let warning = check_lifetime(&layout, ends - 1).unwrap().unwrap();
        assert!(warning.contains("2092-01-19, in 0.0 years"), "{warning}");
        assert!(matches!(check_lifetime(&layout, ends), Err(Failure::Usage(_))));
    }
}
