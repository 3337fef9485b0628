//! The settings of the service, with their defaults. Fixed limits are in `limits.rs`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use snowmint::WallClock;
use snowmint::error::Snippet;
use snowmint_admin::node::LogControl;
use snowmint_admin::url_without_credentials::masked;
use snowmint_cluster::Holder;

use crate::access::Access;
use crate::admin::NodeAdmin;
use crate::clock::SharedClock;
use crate::limits;
use crate::store_calls::StoreCalls;
use crate::tls::Tls;

/// The settings of the service.
#[derive(Clone)]
pub struct Settings {
    /// The maximum number of connections, over all protocols.
    pub max_connections: usize,
    /// Additional connections of each protocol: see [`limits::RESERVED`]. 0 counts as 1.
    pub reserved_connections: usize,
    /// Time limits for clients.
    pub timeouts: Timeouts,
    /// The hosts that HTTP requests may be addressed to.
    pub allowed_hosts: AllowedHosts,
    /// The hosts that requests on the port for health and metrics may be addressed to.
    pub probe_hosts: AllowedHosts,
    /// The origins of web pages that may send requests over HTTP.
    pub cors_origins: CorsOrigins,
    /// TLS on every TCP port except that for health and metrics; `None` for no TLS.
    pub tls: Option<Arc<Tls>>,
    /// The tokens of clients; without them, every client may take and decode ids.
    pub access: Option<Arc<Access>>,
    /// Whether browsers get the console at `/`.
    pub console: bool,
    /// The name of the node in its store, which the console shows.
    pub holder: Option<Holder>,
    /// The store of the node, for the admin API; `None` for a server without a store.
    pub admin: Option<NodeAdmin>,
    /// The times of calls to the store, for metrics; `None` for a server without a store.
    pub store_calls: Option<Arc<StoreCalls>>,
    /// The log of the process, for the admin API; `None` if its level is fixed.
    pub log: Option<Arc<dyn LogControl>>,
    /// Where traces of requests go; `None` for no traces.
    #[cfg(feature = "otlp")]
    pub traces: Option<crate::telemetry::otlp::TraceSettings>,
    /// Time limit for requests in flight at shutdown. With traces, the remaining spans then have a second of
    /// their own.
    pub drain: Duration,
    /// How long a shutdown waits with `/readyz` answering 503, so that load balancers notice. All requests
    /// are still served.
    pub drain_delay: Duration,
    /// The node's clock, which the lease is measured by.
    pub clock: SharedClock,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_connections: limits::MAX_CONNECTIONS,
            reserved_connections: limits::RESERVED,
            timeouts: Timeouts::default(),
            allowed_hosts: AllowedHosts::Any,
            probe_hosts: AllowedHosts::Any,
            cors_origins: CorsOrigins::default(),
            tls: None,
            access: None,
            console: true,
            holder: None,
            admin: None,
            store_calls: None,
            log: None,
            #[cfg(feature = "otlp")]
            traces: None,
            drain: limits::DRAIN,
            drain_delay: Duration::ZERO,
            clock: Arc::new(WallClock),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("max_connections", &self.max_connections)
            .field("reserved_connections", &self.reserved_connections)
            .field("timeouts", &self.timeouts)
            .field("allowed_hosts", &self.allowed_hosts)
            .field("probe_hosts", &self.probe_hosts)
            .field("cors_origins", &self.cors_origins)
            .field("tls", &self.tls)
            .field("access", &self.access)
            .field("console", &self.console)
            .field("holder", &self.holder)
            .field("admin", &self.admin)
            .field("drain", &self.drain)
            .field("drain_delay", &self.drain_delay)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// Lowers the connection limit to fit into `limit` open files. Returns `false` if it fits already.
    ///
    /// Otherwise the system would reject connections before the service does, health checks among them.
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint_server::Settings;
    /// let mut settings = Settings::default();
    /// assert!(!settings.fit_open_files(1_048_576));
    /// assert!(settings.fit_open_files(1024));
    /// assert_eq!((settings.max_connections, settings.reserved_connections), (737, 51));
    /// ```
    pub fn fit_open_files(&mut self, limit: u64) -> bool {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let pools = limits::PROTOCOLS;
        let reserved = limits::RESERVED.min(limit / 4 / pools).max(1);
        let fits = limit.saturating_sub(pools * reserved + limits::OTHER_FILES).max(limit / 4).max(1);
        let lowers = self.max_connections > fits;
        self.max_connections = self.max_connections.min(fits);
        self.reserved_connections = self.reserved_connections.min(reserved);
        lowers
    }
}

/// Time limits after which a client is disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Between two requests; `None` for no limit.
    pub idle: Option<Duration>,
    /// For a request to arrive completely once it has begun; over HTTP also for the first request to begin.
    pub request: Duration,
    /// While the client reads nothing of its answer.
    pub write: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            idle: Some(limits::IDLE_TIMEOUT),
            request: limits::REQUEST_TIMEOUT,
            write: limits::WRITE_TIMEOUT,
        }
    }
}

/// The hosts that HTTP requests may be addressed to.
///
/// A name that an attacker owns may resolve to this machine (DNS rebinding). A page of the attacker could
/// then read what is served only to this machine. The browser still sends the name, which is checked against
/// these hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedHosts {
    /// Any host: for listeners that other machines use.
    Any,
    /// `localhost`, names below it, IP addresses, and these names.
    Names(Vec<String>),
    /// `localhost`, names below it, loopback addresses, and these names and addresses: for listeners on
    /// loopback.
    ///
    /// Others lead here too, such as `0.0.0.0`. Requests to them do not say that a page of another site sent
    /// them, since browsers trust only the addresses above.
    Loopback(Vec<String>),
}

/// A text is not a host name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid host name `{0}`: expected a name without port, such as ids.example.com, an address, or * for any"
)]
pub struct HostError(String);

impl AllowedHosts {
    /// Returns these names and addresses, besides those of this machine; `*` stands for any.
    ///
    /// # Errors
    ///
    /// [`HostError`] if a text is not a host name.
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint_server::AllowedHosts;
    /// let hosts = AllowedHosts::new(["ids.example.com"]).unwrap();
    /// assert!(hosts.allow("IDS.example.com.") && hosts.allow("192.0.2.1") && !hosts.allow("evil.example"));
    /// let hosts = hosts.on_loopback();
    /// assert!(hosts.allow("ids.example.com") && hosts.allow("127.0.0.1") && !hosts.allow("192.0.2.1"));
    /// assert_eq!(AllowedHosts::new(["*"]).unwrap(), AllowedHosts::Any);
    /// assert!(AllowedHosts::new(["http://ids"]).is_err());
    /// ```
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, HostError> {
        let mut known = Vec::new();
        for name in names {
            if name == "*" {
                return Ok(Self::Any);
            }
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            known.push(match address_of(name) {
                Some(address) => address.to_string(),
                None if !name.is_empty() && name.bytes().all(is_name) => bare(name),
                None => return Err(HostError(Snippet::of(name).as_str().to_owned())),
            });
        }
        Ok(Self::Names(known))
    }

    /// Returns these hosts for a listener on loopback: without the addresses of other interfaces.
    #[must_use]
    pub fn on_loopback(self) -> Self {
        match self {
            Self::Names(names) => Self::Loopback(names),
            other => other,
        }
    }

    /// Returns `true` if requests may be addressed to `host`, which has no port.
    pub fn allow(&self, host: &str) -> bool {
        let (names, is_loopback) = match self {
            Self::Any => return true,
            Self::Names(names) => (names, false),
            Self::Loopback(names) => (names, true),
        };
        if let Some(address) = address_of(host) {
            // An attacker cannot rebind an address.
            return !is_loopback || address.is_loopback() || names.contains(&address.to_string());
        }
        // Not `localhost.`, which not every browser trusts.
        let exact = host.to_ascii_lowercase();
        exact.is_empty()
            || exact == "localhost"
            || exact.ends_with(".localhost")
            || names.contains(&bare(host))
    }
}

/// Returns the address that a host is; IPv6 may be in brackets.
fn address_of(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => host.parse().ok(),
    }
}

fn bare(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// The origins of web pages that may send requests from a browser, and read the answers; by default none.
///
/// Each is named. There is no `*`: a page of any site could use up ids of a service that the browser of a
/// visitor can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorsOrigins(Vec<String>);

/// A text is not the origin of a web page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid origin `{0}`: expected scheme, host and port as a browser sends them, such as https://app.example.com; list each one"
)]
pub struct OriginError(String);

impl CorsOrigins {
    /// Returns these origins.
    ///
    /// # Errors
    ///
    /// [`OriginError`] if a text is not an origin.
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint_server::CorsOrigins;
    /// let origins = CorsOrigins::new(["https://app.example.com", "http://localhost:3000"]).unwrap();
    /// assert!(origins.allow("https://app.example.com") && !origins.allow("http://app.example.com"));
    /// assert!(CorsOrigins::new(["*"]).is_err() && CorsOrigins::new(["https://app.example.com/"]).is_err());
    /// ```
    pub fn new<'a>(origins: impl IntoIterator<Item = &'a str>) -> Result<Self, OriginError> {
        let checked = origins.into_iter().map(|origin| {
            let is_origin = origin.split_once("://").is_some_and(|(scheme, host)| {
                let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
                let is_host = |byte: u8| is_scheme(byte) || matches!(byte, b'_' | b':' | b'[' | b']');
                !scheme.is_empty()
                    && scheme.bytes().all(is_scheme)
                    && !host.is_empty()
                    && host.bytes().all(is_host)
            });
            // Browsers send lower case.
            let text = origin.to_ascii_lowercase();
            if is_origin {
                Ok(text)
            } else {
                Err(OriginError(Snippet::of(&masked(origin)).as_str().to_owned()))
            }
        });
        checked.collect::<Result<_, _>>().map(Self)
    }

    /// Returns `true` if pages of this origin may send requests.
    pub fn allow(&self, origin: &str) -> bool {
        self.0.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
    }

    /// Returns `true` if no page may send requests.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
