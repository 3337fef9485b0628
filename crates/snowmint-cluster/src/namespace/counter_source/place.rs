//! Where the URL of a source leads, as far as its text says: two spellings of one place are equal.
//! Two names of one server are not known by their text; that their numbers overlap is found when they are opened.

use std::collections::BTreeSet;
use std::net::IpAddr;

use percent_encoding::percent_decode_str;

/// Every name and address by which a host reaches itself.
const LOOPBACK: &str = "localhost";
/// The parameters that say which counter of a server it is, and what they are unless they are given. All others say how
/// to connect.
const WHICH: [(&str, &str); 7] = [
    ("tag", ""),
    ("biz_type", ""),
    ("table", "Tickets64"),
    ("counter", ""),
    ("prefix", ""),
    ("socket", ""),
    ("server", ""),
];

/// The parameters that say how to connect: whatever they are, the place is the same.
const HOW: [&str; 14] = [
    "password_file",
    "timeout_ms",
    "ssl-mode",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "ca",
    "cert",
    "key",
    "wait_ms",
];

/// Where a URL leads.
#[derive(Debug)]
pub(super) struct Place {
    /// `tickets mysql`: what is drawn from there, and how that is reached.
    system: String,
    /// Host and port in one spelling.
    hosts: BTreeSet<String>,
    /// Of a store on the network the database, of a file its path.
    path: String,
    which: Vec<String>,
    /// The same as they are written: other texts may be other places.
    as_written: (BTreeSet<String>, BTreeSet<(String, String)>),
    /// The user, where another one may see another table: PostgreSQL looks into the schema of a user's name first.
    user: String,
}

impl Place {
    pub(super) fn of(url: &str) -> Self {
        let (takeover, url) = super::split_takeover(url);
        let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
        let (scheme, port) = match scheme {
            "mysql" | "mariadb" => ("mysql", 3306),
            "postgres" | "postgresql" => ("postgres", 5432),
            "redis" | "rediss" => ("redis", 6379),
            "etcd" => (scheme, 2379),
            "zookeeper" => (scheme, 2181),
            other => (other, 0),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.strip_prefix("//").filter(|_| port != 0) {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", rest.trim_start_matches("//")),
        };
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        // A password is refused, but not by every writer of a record.
        let user = if scheme == "postgres" { login.split(':').next().unwrap_or(login) } else { "" };
        let path = match path.trim_end_matches('/') {
            "" if scheme == "redis" => "/0".to_owned(),
            path => decoded(path),
        };
        let parameters: Vec<_> = query
            .split('&')
            .filter_map(|it| it.split_once('='))
            .map(|(name, it)| (name, decoded(it)))
            .collect();
        let as_written = (
            hosts.split(',').map(|host| host_as_written(host, port)).collect(),
            parameters
                .iter()
                .filter(|(name, _)| !HOW.contains(name))
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
        );
        let which = WHICH.iter().map(|(name, unset)| {
            let given = parameters.iter().find(|(it, _)| it == name);
            given.map_or_else(|| (*unset).to_owned(), |(_, value)| value.clone())
        });
        Self {
            system: format!("{takeover} {scheme}"),
            hosts: hosts.split(',').filter(|host| !host.is_empty()).map(|host| spelled(host, port)).collect(),
            path,
            which: which.collect(),
            as_written,
            user: decoded(user),
        }
    }

    /// Whether both surely are one place, as far as their texts say: only how it is reached may differ.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.is(other) && self.as_written == other.as_written && self.user == other.user
    }

    /// Whether both name one place: one host in common is enough.
    pub(super) fn is(&self, other: &Self) -> bool {
        let meet = self.hosts.iter().any(|host| other.hosts.contains(host))
            || (self.hosts.is_empty() && other.hosts.is_empty());
        meet && self.system == other.system && self.path == other.path && self.which == other.which
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// A host and its port, without what makes no difference.
fn host_as_written(host: &str, default_port: u16) -> String {
    let host = host.to_ascii_lowercase();
    let has_port = host.rsplit_once(':').is_some_and(|(name, _)| !name.contains(':') || name.ends_with(']'));
    if has_port { host } else { format!("{host}:{default_port}") }
}

/// A host in one spelling, with its port.
fn spelled(host: &str, default_port: u16) -> String {
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, port)) => (name, port.strip_prefix(':')),
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    let port = port.and_then(|port| port.parse().ok()).unwrap_or(default_port);
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let address = name.parse::<IpAddr>().ok();
    let name = match address {
        Some(address) if address.to_canonical().is_loopback() => LOOPBACK.to_owned(),
        Some(address) => address.to_canonical().to_string(),
        None => name,
    };
    format!("{name} {port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_place_are_equal() {
        for (one, other) in [
            ("mysql://a/ids", "mysql://root@a:3306/ids/"),
            ("mysql://a/ids?timeout_ms=5&ssl-mode=REQUIRED", "mariadb://A./ids?ssl-mode=REQUIRED"),
            ("tickets:mysql://a/t", "tickets:mysql://a/t?stub=b&table=Tickets64"),
            ("tickets:mysql://a/t?table=T&stub=b", "tickets:mysql://a/t?stub=b&table=T"),
            ("redis-counter:redis://h?counter=a", "redis-counter:rediss://h:6379/0?counter=%61"),
            ("mysql://localhost/ids", "mysql://127.0.0.1/ids"),
            ("mysql://[::1]/ids", "mysql://127.9.9.9:3306/ids"),
            ("mysql://a,b/ids", "mysql://c,b/ids"),
            ("sqlite:/a.db", "sqlite:///a.db"),
        ] {
            assert!(Place::of(one).is(&Place::of(other)), "{one} and {other}");
        }
        for (one, other) in [
            ("mysql://a/ids", "mysql://b/ids"),
            ("mysql://a/ids", "mysql://a/Ids"),
            ("mysql://a:1/ids", "mysql://a:2/ids"),
            ("tickets:mysql://a/t", "tinyid:mysql://a/t"),
            ("tickets:mysql://a/t?table=A", "tickets:mysql://a/t?table=B"),
            ("tinyid:mysql://a/t?biz_type=a", "tinyid:mysql://a/t?biz_type=b"),
            ("redis://h/0?prefix=a", "redis://h/0?prefix=b"),
            ("redis://h/0", "redis://h/1"),
            ("sqlite:/a.db", "sqlite:/b.db"),
        ] {
            assert!(!Place::of(one).is(&Place::of(other)), "{one} and {other}");
        }
    }
}
