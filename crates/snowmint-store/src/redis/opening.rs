//! From a URL to a connection on a server that can be trusted with records.
//! A server that would lose them without a failure anywhere is refused, with what to change.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, Value, from_redis_value_ref,
};

use super::cluster::{self, Member};
use super::history::Line;
use super::link::Link;
use super::server::{Copies, Server};
use super::{Names, RedisStore, cause};
use crate::credentials::Password;
use crate::location::{Host, Location};
use crate::network::{self, Refusal};
use crate::skipped::Skipped;
use crate::{StoreErrorKind, UrlError};

const PORT: u16 = 6379;
const PREFIX: &str = "snowmint";
const WAIT_MS: u64 = 1000;
/// What may be said of a connection.
pub(crate) const PARAMETERS: &str =
    "password_file, may_lose, wait_replicas, wait_ms, durable, ca, cert, key and timeout_ms";
/// What a Redis may lose unless the URL says otherwise: a second of its log, or of what its replicas lag.
const MAY_LOSE: Duration = Duration::from_secs(2);

/// What a connection needs; may hold the password, so it is never shown.
pub(super) struct Settings {
    login: RedisConnectionInfo,
    password: Password,
    address: Address,
    /// Whether to refuse a server that writes nothing to its disk.
    must_keep: bool,
    /// What the user says that a failover may lose.
    pub(super) may_lose: Duration,
    /// How many replicas have to have each write.
    copies: u64,
    /// Where a cluster keeps the keys; `None` for a look at all keys.
    pub(super) slot: Option<u16>,
}

/// How to reach a host.
enum Address {
    Plain,
    /// As an example, in which the host is replaced: its type keeps what it needs of the certificates to itself.
    #[cfg(feature = "tls")]
    Tls(Box<ConnectionAddr>),
}

/// Takes `redis://...` or `rediss://...` of a store apart.
pub(super) fn parse(url: &str) -> Result<RedisStore, UrlError> {
    let mut location = location(url)?;
    let names = Names { prefix: prefix(&mut location)? };
    let mut server = take(&mut location, Some(&names.fence()))?;
    location.finish(&format!("prefix, {PARAMETERS}"))?;
    if names.prefix != PREFIX {
        server.name = format!("{}?prefix={}", server.name, names.prefix);
    }
    Ok(RedisStore { server, names, skipped: Skipped::default() })
}

/// Takes a URL apart whose scheme is known to be `redis` or `rediss`.
pub(crate) fn location(url: &str) -> Result<Location, UrlError> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    let scheme = if scheme == "rediss" { "rediss" } else { "redis" };
    let location = Location::parse(scheme, rest, PORT)?;
    if location.hosts.is_empty() {
        return Err(location.malformed("needs a host, such as redis://10.0.0.7:6379"));
    }
    Ok(location)
}

/// Takes out what a connection needs; other parameters are left. All calls are about keys in the slot of `key`.
pub(crate) fn take(location: &mut Location, key: Option<&str>) -> Result<Server, UrlError> {
    let database = database(location)?;
    let copies = copies(location)?;
    let must_keep = network::durable(location)? && copies.is_none();
    let mut login = RedisConnectionInfo::default().set_skip_set_lib_name().set_db(database);
    if let Some(user) = location.user.take() {
        login = login.set_username(user);
    }
    let password = location.take_password()?;
    let address = address(location)?;
    let wait = copies.map_or(0, |it| it.wait_ms);
    let limit = network::timeout(location)? + Duration::from_millis(wait);
    let may_lose = network::may_lose(location, MAY_LOSE)?;
    let name = format!("{}://{}/{database}", location.scheme, location.shown_hosts());
    let slot = key.map(|key| cluster::slot(cluster::hash_tag(key).unwrap_or(key)));
    let wanted = copies.map_or(0, |it| it.wanted);
    let settings = Settings { login, password, address, must_keep, may_lose, copies: wanted, slot };
    let link = Link::new(settings, location.hosts.clone(), limit);
    Ok(Server::new(link, copies, may_lose, name))
}

fn database(location: &Location) -> Result<i64, UrlError> {
    match location.path.trim_start_matches('/') {
        "" => Ok(0),
        text => match text.parse() {
            Ok(number @ 0..) => Ok(number),
            _ => Err(location.malformed("the path is the number of a database, such as redis://10.0.0.7/0")),
        },
    }
}

/// A brace in it would make another hash tag of the one around it.
fn prefix(location: &mut Location) -> Result<String, UrlError> {
    match location.take("prefix") {
        None => Ok(PREFIX.to_owned()),
        Some(prefix) if prefix.is_empty() || prefix.contains(['{', '}', '\n']) => {
            Err(location.malformed("prefix= needs a text without braces, such as snowmint"))
        }
        Some(prefix) => Ok(prefix),
    }
}

fn copies(location: &mut Location) -> Result<Option<Copies>, UrlError> {
    let wanted = network::take_number(location, "wait_replicas", 0..=100)?.filter(|it| *it > 0);
    // 0 would wait for ever.
    let wait_ms = network::take_number(location, "wait_ms", 1..=60_000)?;
    match (wanted, wait_ms) {
        (None, Some(_)) => Err(location.malformed("wait_ms= goes with wait_replicas=")),
        (wanted, wait_ms) => Ok(wanted.map(|wanted| Copies { wanted, wait_ms: wait_ms.unwrap_or(WAIT_MS) })),
    }
}

#[cfg(not(feature = "tls"))]
fn address(location: &mut Location) -> Result<Address, UrlError> {
    if location.scheme == "rediss" {
        return Err(location.malformed("this build has no TLS; build it with the feature `tls`"));
    }
    Ok(Address::Plain)
}

#[cfg(feature = "tls")]
fn address(location: &mut Location) -> Result<Address, UrlError> {
    if location.scheme != "rediss" {
        // Certificates that would not be looked at are left over, and `finish` refuses them.
        return Ok(Address::Plain);
    }
    crate::tls::provide();
    let file = |location: &mut Location, name| {
        let path = location.take_path(name);
        path.map(|path| location.read_file(name, &path)).transpose()
    };
    let root_cert = file(location, "ca")?;
    let client_tls = match (file(location, "cert")?, file(location, "key")?) {
        (None, None) => None,
        (Some(client_cert), Some(client_key)) => Some(redis::ClientTlsConfig { client_cert, client_key }),
        _ => return Err(location.malformed("cert= and key= go together")),
    };
    let certificates = redis::TlsCertificates { client_tls, root_cert };
    let client = redis::Client::build_with_tls("rediss://localhost", certificates)
        .map_err(|error| location.malformed(&network::chain(&error)))?;
    Ok(Address::Tls(Box::new(client.get_connection_info().addr().clone())))
}

impl Settings {
    /// What the client of a host needs.
    pub(super) fn connection_info(&self, host: &Host) -> Result<ConnectionInfo, Refusal> {
        let (name, port) = (host.name().to_owned(), host.port());
        let address = match &self.address {
            Address::Plain => ConnectionAddr::Tcp(name, port),
            #[cfg(feature = "tls")]
            Address::Tls(example) => tls_address(example, name, port),
        };
        let info = address.into_connection_info().map_err(|error| cause::refusal(&error))?;
        let login = match network::current(&self.password)? {
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

/// What a server tells of itself. Those of clouds may hide some of it, and are then not refused for it.
#[derive(Clone)]
pub(super) struct Told {
    text: String,
    /// `None` outside of clusters.
    member: Option<Member>,
}

impl Told {
    /// Asks a server.
    pub(super) async fn by(connection: &mut MultiplexedConnection) -> Result<Self, Refusal> {
        let mut info = redis::pipe();
        for section in ["replication", "memory", "persistence", "cluster"] {
            info.cmd("INFO").arg(section);
        }
        let answers = connection.send_packed_commands(&info, 0, info.len()).await;
        let answers = answers.map_err(|error| cause::refusal(&error))?;
        let told = answers.iter().filter_map(|answer| from_redis_value_ref::<String>(answer).ok());
        let mut told = Self { text: told.collect::<Vec<_>>().concat(), member: None };
        if told.field("cluster_enabled") == "1" {
            told.member = Some(Member::by(connection).await?);
        }
        Ok(told)
    }

    fn field(&self, name: &str) -> &str {
        let value = self.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(str::trim).unwrap_or_default()
    }

    /// What it says as one of several primaries, each of which holds other keys.
    pub(super) const fn member(&self) -> Option<&Member> {
        self.member.as_ref()
    }

    /// Which line of writes it adds to.
    pub(super) fn line(&self) -> Option<Line> {
        // All zeros where there is none.
        let known = |field| Some(self.field(field)).filter(|it| it.contains(|sign| sign != '0'));
        let known = |field| known(field).unwrap_or_default().to_owned();
        let number = |field| self.field(field).parse().unwrap_or_default();
        let line = Line {
            now: known("master_replid"),
            before: known("master_replid2"),
            branched: number("second_repl_offset"),
            position: number("master_repl_offset"),
        };
        (!line.now.is_empty() && self.field("role") == "master").then_some(line)
    }

    /// Refuses a server whose answers may be old.
    pub(super) fn check_role(&self) -> Result<(), Refusal> {
        if self.field("role") == "slave" {
            let text = "is a replica, which cannot be written; name the primary, or several hosts with commas between";
            return Err(Refusal::new(StoreErrorKind::ReadOnly, text));
        }
        if self.field("loading") == "1" {
            return Err(Refusal::new(StoreErrorKind::Unavailable, "is reading its data"));
        }
        Ok(())
    }

    /// Refuses a server that forgets records by its settings.
    pub(super) fn check_settings(&self, settings: &Settings) -> Result<(), Refusal> {
        let of_cluster = || self.member()?.complaint(settings.may_lose, settings.copies);
        let complaint = self.complaint(settings.must_keep).or_else(of_cluster);
        complaint.map_or(Ok(()), |text| Err(Refusal::new(StoreErrorKind::Other, text)))
    }

    fn complaint(&self, must_keep: bool) -> Option<String> {
        let policy = self.field("maxmemory_policy");
        if policy.starts_with("allkeys-") && self.field("maxmemory") != "0" {
            return Some(format!(
                "deletes records when its memory is short (maxmemory-policy {policy}), and two nodes may then \
                 produce duplicates; set maxmemory-policy noeviction"
            ));
        }
        if must_keep && self.field("aof_enabled") == "0" {
            let text = "forgets records when it restarts (appendonly no), and two nodes may then produce duplicates; \
                set appendonly yes and appendfsync always in its configuration file (CONFIG SET alone ends with a \
                restart), or wait_replicas=, or accept it with durable=no";
            return Some(text.to_owned());
        }
        None
    }
}

/// The nodes that a member of a cluster knows, the shard of that member first; none if it may not tell.
pub(super) async fn members(connection: &mut MultiplexedConnection, asked: &Host) -> Vec<Host> {
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    let Ok(Value::Array(ranges)) = connection.send_packed_command(&slots).await else {
        return Vec::new();
    };
    let mut shards: Vec<Vec<Host>> = ranges.iter().map(|range| shard(range, asked)).collect();
    shards.sort_by_key(|hosts| !hosts.contains(asked));
    let mut members = Vec::new();
    for host in shards.into_iter().flatten() {
        if !members.contains(&host) {
            members.push(host);
        }
    }
    members
}

/// The nodes of one range of slots, which come after its first and its last.
fn shard(range: &Value, asked: &Host) -> Vec<Host> {
    let Value::Array(range) = range else {
        return Vec::new();
    };
    let node = |node: &Value| {
        let Value::Array(parts) = node else {
            return None;
        };
        let name: Option<String> = from_redis_value_ref(parts.first()?).ok()?;
        let port = from_redis_value_ref(parts.get(1)?).ok()?;
        match name.as_deref() {
            // Where the node was asked is where it is.
            None | Some("") => Some(Host::new(asked.name().to_owned(), port)),
            Some("?") => None,
            Some(name) => Some(Host::new(name.to_owned(), port)),
        }
    };
    range.iter().skip(2).filter_map(node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_in_a_url_is_told_without_its_password() {
        let cases = [
            ("redis://", "needs a host"),
            ("redis://:hunter2@h/-1", "number of a database"),
            ("redis://:hunter2@h/db", "number of a database"),
            ("redis://:hunter2@h?prefix=a{b", "without braces"),
            ("redis://:hunter2@h?wait_replicas=x", "from 0 to 100"),
            ("redis://:hunter2@h?wait_replicas=1&wait_ms=0", "from 1 to 60000"),
            ("redis://:hunter2@h?wait_ms=5", "goes with wait_replicas="),
            ("redis://:hunter2@h?durable=maybe", "durable= is true or false"),
            ("redis://:hunter2@h?ca=/nowhere", "no parameter `ca`"),
            ("redis://h?password_file=/nowhere", "password_file /nowhere: No such file"),
            #[cfg(feature = "tls")]
            ("rediss://h?ca=/nowhere", "ca=/nowhere: No such file"),
            #[cfg(feature = "tls")]
            ("rediss://h?cert=/dev/null", "go together"),
        ];
        for (url, wanted) in cases {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains(wanted) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn a_name_for_logs_has_no_password() {
        let shown = |url| format!("{:?}", parse(url).unwrap());
        assert_eq!(shown("redis://u:hunter2@h1,h2:1"), "RedisStore(redis://h1:6379,h2:1/0)");
        assert_eq!(shown("redis://:hunter2@h/3?prefix=team"), "RedisStore(redis://h:6379/3?prefix=team)");
    }

    #[test]
    fn a_server_that_forgets_is_refused() {
        let told = |text: &str| Told { text: text.to_owned(), member: None };
        let refused = |text| told(text).complaint(true).is_some();
        assert!(!refused(""));
        assert!(!refused("role:master\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:1\r\n"));
        assert!(!refused("maxmemory:9\r\nmaxmemory_policy:volatile-lru\r\n"));
        assert!(refused("maxmemory:9\r\nmaxmemory_policy:allkeys-lru\r\n"));
        assert!(refused("aof_enabled:0\r\n"));
        assert!(told("aof_enabled:0\r\n").complaint(false).is_none());
        let role = |text| told(text).check_role().err().map(|it| it.kind);
        assert_eq!(role("role:slave\r\naof_enabled:0\r\n"), Some(StoreErrorKind::ReadOnly));
        assert_eq!(role("role:master\r\nloading:1\r\n"), Some(StoreErrorKind::Unavailable));
        assert_eq!(role("role:master\r\nloading:0\r\n"), None);
    }

    #[test]
    fn only_a_primary_has_a_line() {
        let line = |text: &str| Told { text: text.to_owned(), member: None }.line();
        let found = line(
            "role:master\r\nmaster_replid:a0\r\nmaster_replid2:b0\r\nmaster_repl_offset:9\r\nsecond_repl_offset:7\r\n",
        )
        .unwrap();
        assert_eq!((&*found.now, &*found.before, found.branched, found.position), ("a0", "b0", 7, 9));
        let first = line("role:master\r\nmaster_replid:a\r\nmaster_replid2:000\r\nsecond_repl_offset:-1\r\n")
            .unwrap();
        assert_eq!((&*first.before, first.branched), ("", 0));
        for other in
            ["role:slave\r\nmaster_replid:a\r\n", "role:master\r\nmaster_replid:\r\n", "master_replid:a\r\n"]
        {
            assert!(line(other).is_none(), "{other}");
        }
    }

    #[test]
    fn a_cluster_tells_its_nodes_in_several_ways() {
        let text = |text: &str| Value::BulkString(text.into());
        let node = |name: Value, port| {
            Value::Array(vec![name, Value::Int(port), text("id"), Value::Array(Vec::new())])
        };
        let nodes = [node(text("10.0.0.2"), 2), node(Value::Nil, 3), node(text(""), 4), node(text("?"), 5)];
        let range = Value::Array([Value::Int(0), Value::Int(99)].into_iter().chain(nodes).collect());
        let found = shard(&range, &Host::new("10.0.0.1".to_owned(), 1));
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.2:2", "10.0.0.1:3", "10.0.0.1:4"]);
        assert!(shard(&Value::Nil, &Host::new("h".to_owned(), 1)).is_empty());
    }
}
