//! Which processes see the records of a store, and so are coordinated by it. The URL shows it.

use std::fmt;
use std::net::IpAddr;

use crate::url_scheme::StoreScheme;

/// The processes that see the records of a store. Ids are unique among those, and only among those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Visibility {
    /// This process alone.
    Process,
    /// The processes of one machine: a file.
    Machine,
    /// The URL names a loopback address or a Unix socket. That may be a separate server on each machine, or
    /// one server behind a proxy on each machine; the URL does not show which.
    Loopback,
    /// Every node that uses the store.
    Network,
}

impl Visibility {
    /// Returns the visibility of the store, or of the counter of another system, that a URL names.
    ///
    /// [`Process`](Self::Process) for an unknown scheme: nothing shows that any other process sees the same
    /// records.
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint_store::Visibility;
    /// assert_eq!(Visibility::of_url("sqlite:/var/lib/snowmint/leases.db"), Visibility::Machine);
    /// assert_eq!(Visibility::of_url("etcd://a,b,c"), Visibility::Network);
    /// assert_eq!(Visibility::of_url("tickets:mysql://localhost/ids"), Visibility::Loopback);
    /// ```
    pub fn of_url(url: &str) -> Self {
        Self::of_known(url).unwrap_or(Self::Process)
    }

    /// Returns the visibility of a store that nodes coordinate by, from its
    /// [description](crate::Store::describe).
    ///
    /// [`Network`](Self::Network) for an unknown scheme: nodes on other machines may use the store, so that
    /// counters in files are rejected.
    pub(crate) fn of_description(description: &str) -> Self {
        Self::of_known(description).unwrap_or(Self::Network)
    }

    fn of_known(url: &str) -> Option<Self> {
        // A counter of another system has the name of that system before the URL of its server.
        let server = || url.split_once(':').and_then(|(_, server)| StoreScheme::of_url(server));
        Some(match StoreScheme::of_url(url).or_else(server)? {
            StoreScheme::Memory => Self::Process,
            StoreScheme::Sqlite => Self::Machine,
            StoreScheme::Redis
            | StoreScheme::Postgres
            | StoreScheme::MySql
            | StoreScheme::Etcd
            | StoreScheme::ZooKeeper
            | StoreScheme::Kubernetes => {
                if leads_here(url) {
                    Self::Loopback
                } else {
                    Self::Network
                }
            }
        })
    }
}

/// Returns whether a URL names a host that is a different server on each machine.
fn leads_here(url: &str) -> bool {
    let (url, query) = url.split_once('?').unwrap_or((url, ""));
    if query.split('&').any(|parameter| parameter.starts_with("socket=")) {
        return true;
    }
    let Some((_, rest)) = url.split_once("//") else { return false };
    let authority = rest.split('/').next().unwrap_or(rest);
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    hosts.split(',').any(is_loopback)
}

/// Returns whether a host, with or without a port, is this machine. Connections to the unspecified address
/// reach it too.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, _)) => name,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    match name.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(address) => address.is_loopback() || address.is_unspecified(),
        // Only the resolver takes `127.1` for an address.
        Err(_) => name == "localhost" || name.ends_with(".localhost") || name.starts_with("127."),
    }
}

impl fmt::Display for Visibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "this process only",
            Self::Machine | Self::Loopback => "the processes of this machine that use this store",
            Self::Network => "every node that uses this store",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_address_is_visible_to_one_machine() {
        for here in [
            "mysql://localhost/ids",
            "mysql://u@LOCALHOST.:3307/ids",
            "postgres://127.8.0.1/ids",
            "etcd://[::1]:2379",
            "redis://[::ffff:127.0.0.1]:6379/0",
            "redis://0.0.0.0:6379",
            "tickets:mysql://root@127.0.0.1:3306/test?stub=a",
            "leaf:mysql://db.localhost/leaf?tag=x",
            "mysql://a,localhost/ids",
            "redis://127.1/0",
            "tinyid:mysql:///ids?biz_type=a&socket=/run/mysqld/mysqld.sock",
        ] {
            assert_eq!(Visibility::of_url(here), Visibility::Loopback, "{here}");
        }
        assert_eq!(Visibility::of_url("sqlite:/a.db"), Visibility::Machine);
        for network in [
            "mysql://db/ids",
            "mysql://localhost@db/ids",
            "mysql://a:3306,b:3306/localhost",
            "redis-counter:redis://10.0.0.1/0?counter=//localhost",
            "etcd://[fd00::1]:2379",
            "kubernetes:mint?server=https://localhost:6443",
            "zookeeper://localhost.example/x",
        ] {
            assert_eq!(Visibility::of_url(network), Visibility::Network, "{network}");
        }
        assert_eq!(Visibility::of_url("memory:"), Visibility::Process);
    }

    /// Goal: a scheme that this version does not know is trusted least: as a source it shares nothing, and as
    /// the store of the leases it may be on any machine.
    #[test]
    fn an_unknown_scheme_counts_as_the_strictest() {
        for unknown in ["mongodb://db/ids", "leases.db", "a:b:mysql://db/ids"] {
            assert_eq!(Visibility::of_url(unknown), Visibility::Process, "{unknown}");
            assert_eq!(Visibility::of_description(unknown), Visibility::Network, "{unknown}");
        }
        assert_eq!(Visibility::of_description("sqlite:a.db"), Visibility::Machine);
    }
}
