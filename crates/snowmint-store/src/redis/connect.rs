//! Parses the URL into the settings of a connection: hosts, login, TLS, and the user's requirements for a
//! server.

use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use super::error;
use super::server_info::{hash_tag, slot};
use crate::UrlError;
#[cfg(feature = "tls")]
use crate::error::chain;
use crate::net::HostRefusal;
use crate::net::url::{Host, Password, StoreUrl};

const PORT: u16 = 6379;
pub(super) const PREFIX: &str = "snowmint";
const WAIT_MS: u64 = 1000;
/// The parameters of a connection.
pub(crate) const PARAMETERS: &str =
    "password_file, may_lose, wait_replicas, wait_ms, durable, ca, cert, key and timeout_ms";
/// The default of `may_lose`: 1 s of the append-only file, or of the lag of replicas.
const MAY_LOSE: Duration = Duration::from_secs(2);

/// The settings of a connection. They may contain the password, so they are never shown.
pub(super) struct RedisSettings {
    login: RedisConnectionInfo,
    password: Password,
    address: Address,
    /// The limit of a call.
    pub(super) limit: Duration,
    /// Whether to refuse a server that writes nothing to disk.
    pub(super) must_keep: bool,
    /// The loss in a failover that the user states.
    pub(super) may_lose: Duration,
    /// Number of replicas that must have each write, if any.
    pub(super) copies: Option<Copies>,
    /// The slot in which a cluster keeps the keys; `None` for calls about all keys.
    pub(super) slot: Option<u16>,
}

/// Number of replicas that must have a write, and the time to wait for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Copies {
    pub(super) wanted: u64,
    pub(super) wait_ms: u64,
}

/// How to reach a host.
enum Address {
    Plain,
    /// A template whose host is replaced, since its certificates are private to the library.
    #[cfg(feature = "tls")]
    Tls(Box<ConnectionAddr>),
}

/// Parses a URL whose scheme is known to be `redis`, `rediss`, `valkey` or `valkeys`.
pub(crate) fn location(url: &str) -> Result<StoreUrl, UrlError> {
    let location = StoreUrl::of_url(url, &["redis", "rediss", "valkey", "valkeys"], PORT)?;
    location.require_host("redis://10.0.0.7:6379")?;
    Ok(location)
}

/// Returns whether the URL asks for TLS.
fn wants_tls(location: &StoreUrl) -> bool {
    matches!(location.scheme, "rediss" | "valkeys")
}

fn database(location: &StoreUrl) -> Result<i64, UrlError> {
    match location.path.trim_start_matches('/') {
        "" => Ok(0),
        text => match text.parse() {
            Ok(number @ 0..) => Ok(number),
            _ => Err(location
                .malformed("invalid database: expected its number as the path, such as redis://10.0.0.7/0")),
        },
    }
}

/// Returns the prefix of all names. A brace in it would change the hash tag around it.
pub(super) fn prefix(location: &mut StoreUrl) -> Result<String, UrlError> {
    match location.take("prefix") {
        None => Ok(PREFIX.to_owned()),
        Some(prefix) if prefix.is_empty() || prefix.contains(['{', '}', '\n']) => {
            Err(location.malformed("invalid prefix: expected text without braces, such as snowmint"))
        }
        Some(prefix) => Ok(prefix),
    }
}

fn copies(location: &mut StoreUrl) -> Result<Option<Copies>, UrlError> {
    let wanted = location.take_number("wait_replicas", 0..=100)?.filter(|it| *it > 0);
    // 0 would wait forever.
    let wait_ms = location.take_number("wait_ms", 1..=60_000)?;
    match (wanted, wait_ms) {
        (None, Some(_)) => Err(location.malformed("wait_ms= requires wait_replicas=")),
        (wanted, wait_ms) => Ok(wanted.map(|wanted| Copies { wanted, wait_ms: wait_ms.unwrap_or(WAIT_MS) })),
    }
}

#[cfg(not(feature = "tls"))]
fn address(location: &mut StoreUrl) -> Result<Address, UrlError> {
    if wants_tls(location) {
        return Err(location.malformed("this build has no TLS: enable the feature `tls`"));
    }
    Ok(Address::Plain)
}

#[cfg(feature = "tls")]
fn address(location: &mut StoreUrl) -> Result<Address, UrlError> {
    if !wants_tls(location) {
        // Without TLS, certificates stay in the URL, and `finish` rejects them.
        return Ok(Address::Plain);
    }
    // The client leaves the choice of cryptography to the process. Ring needs neither C++ nor cmake to build.
    // If the process has already chosen a provider, that one stays.
    rustls::crypto::ring::default_provider().install_default().ok();
    let files = location.read_tls(["ca", "cert", "key"], None)?;
    let client_tls =
        files.client.map(|(cert, key)| redis::ClientTlsConfig { client_cert: cert.pem, client_key: key.pem });
    let certificates = redis::TlsCertificates { client_tls, root_cert: files.ca.map(|ca| ca.pem) };
    let client = redis::Client::build_with_tls("rediss://localhost", certificates)
        .map_err(|error| location.malformed(&chain(&error)))?;
    Ok(Address::Tls(Box::new(client.get_connection_info().addr().clone())))
}

impl RedisSettings {
    /// Takes the parameters of a connection out of a URL, and returns the name for logs too. Other parameters
    /// stay. All calls are about keys in the slot of `key`.
    pub(super) fn take(location: &mut StoreUrl, key: Option<&str>) -> Result<(Self, String), UrlError> {
        let database = database(location)?;
        let copies = copies(location)?;
        let must_keep = location.take_durable()?;
        let mut login = RedisConnectionInfo::default().set_skip_set_lib_name().set_db(database);
        if let Some(user) = location.user.take() {
            login = login.set_username(user);
        }
        let password = location.take_password()?;
        let address = address(location)?;
        let wait = copies.map_or(0, |it| it.wait_ms);
        let limit = location.take_timeout()? + Duration::from_millis(wait);
        let may_lose = location.take_may_lose(MAY_LOSE)?;
        let name = format!("{}://{}/{database}", location.scheme, location.shown_hosts());
        let slot = key.map(|key| slot(hash_tag(key).unwrap_or(key)));
        Ok((Self { login, password, address, limit, must_keep, may_lose, copies, slot }, name))
    }

    /// Returns the connection settings for a host.
    pub(super) fn connection_info(&self, host: &Host) -> Result<ConnectionInfo, HostRefusal> {
        let (name, port) = (host.name().to_owned(), host.port());
        let address = match &self.address {
            Address::Plain => ConnectionAddr::Tcp(name, port),
            #[cfg(feature = "tls")]
            Address::Tls(example) => tls_address(example, name, port),
        };
        let info = address.into_connection_info().map_err(|error| error::refusal(&error))?;
        let login = match self.password.current()? {
            Some(password) => self.login.clone().set_password(password.expose()),
            None => self.login.clone(),
        };
        Ok(info.set_redis_settings(login))
    }
}

#[cfg(feature = "tls")]
fn tls_address(example: &ConnectionAddr, host: String, port: u16) -> ConnectionAddr {
    let tls_params = match example {
        ConnectionAddr::TcpTls { tls_params, .. } => tls_params.clone(),
        _ => None,
    };
    ConnectionAddr::TcpTls { host, port, insecure: false, tls_params }
}
