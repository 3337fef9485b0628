//! The identity of a node: the name under which it holds leases, and a worker derived from its host. Neither
//! proves ownership, because two containers may share both. Only the tag of a write does.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::sync::Arc;

use snowmint::error::Snippet;
use snowmint::field::Field;
use snowmint::{Layout, WorkerId};

/// The maximum length of a name, in bytes: every record and many log lines contain it.
const MAX_LEN: usize = 100;
/// Before the number of a lease, in the names of a node's leases from the second on.
const SLOT: char = '/';
/// Before what further leases of a node are for, in their names.
const PURPOSE: char = '~';

/// The name under which a node holds leases, such as `web-3:8080`.
///
/// After a restart a node prefers the record that bears its name, so that its worker stays the same.
///
/// Two holders are equal if their names are.
#[derive(Clone, Debug)]
pub struct Holder {
    name: String,
    /// The name of the node, if this one is for further leases of it: a configured name may look like one of
    /// those.
    node: Option<Arc<str>>,
}

/// An invalid holder's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid holder {name:?}: expected 1 to {MAX_LEN} printable ASCII characters without spaces")]
pub struct HolderError {
    /// The input.
    pub name: String,
}

impl Holder {
    /// Checks a name: 1 to 100 printable ASCII characters without spaces.
    ///
    /// # Errors
    ///
    /// [`HolderError`] for anything else.
    pub fn new(name: impl Into<String>) -> Result<Self, HolderError> {
        let name = name.into();
        let fits = (1..=MAX_LEN).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
        if fits { Ok(Self { name, node: None }) } else { Err(HolderError { name }) }
    }

    /// Returns the host's name with a suffix that distinguishes the nodes of one host, such as their port.
    ///
    /// Invalid characters become `-`; a host without a name is `unnamed`.
    pub fn of_this_host(suffix: &str) -> Self {
        let name = format!("{}:{suffix}", host_name());
        let mut name: String = name.chars().map(|c| if c.is_ascii_graphic() { c } else { '-' }).collect();
        name.truncate(MAX_LEN);
        Self { name, node: None }
    }

    /// Returns another name of the same node, such as `web-3:8080~borrow(10ms)`, for leases beside those of
    /// the first name in one pool.
    ///
    /// Use it wherever a node needs a second name. The records of both then belong to one node, which does
    /// not take one of them for the clock of another node.
    ///
    /// # Errors
    ///
    /// [`HolderError`] if both together are not a name.
    ///
    /// # Examples
    ///
    /// ```
    /// # use snowmint_cluster::Holder;
    /// let holder = Holder::new("web-3:8080")?;
    /// assert_eq!(holder.for_purpose("borrow(10ms)")?.as_str(), "web-3:8080~borrow(10ms)");
    /// # Ok::<(), snowmint_cluster::HolderError>(())
    /// ```
    pub fn for_purpose(&self, purpose: &str) -> Result<Self, HolderError> {
        let Self { name, .. } = Self::new(format!("{}{PURPOSE}{purpose}", self.name))?;
        Ok(Self { name, node: Some(self.shared_node()) })
    }

    /// Returns the name of one of the node's leases, counted from 0: `web-3:8080`, `web-3:8080/2` and so on.
    pub(crate) fn of_slot(&self, number: usize) -> Self {
        if number == 0 {
            return self.clone();
        }
        let suffix = format!("{SLOT}{}", number + 1);
        // Every character is one byte.
        let name = &self.name[..self.name.len().min(MAX_LEN - suffix.len())];
        Self { name: format!("{name}{suffix}"), node: Some(self.shared_node()) }
    }

    /// Returns whether the holder of a record is this node, under any of its names.
    ///
    /// If the name of another node looks like one of them, the record counts as this node's: it then confirms
    /// no clock.
    pub(crate) fn is_same_node(&self, of_record: &Self) -> bool {
        let node = self.node();
        let is_of_node = |name: &str| {
            let rest = name.strip_prefix(node);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(PURPOSE))
        };
        let found = of_record.as_str();
        let slot = found.rsplit_once(SLOT).filter(|(_, number)| number.bytes().all(|b| b.is_ascii_digit()));
        // The name before the number of a slot was cut off if both together were too long.
        let cut = |name: &str| found.len() == MAX_LEN && node.starts_with(name);
        is_of_node(found) || slot.is_some_and(|(name, _)| is_of_node(name) || cut(name))
    }

    fn node(&self) -> &str {
        self.node.as_deref().unwrap_or(&self.name)
    }

    fn shared_node(&self) -> Arc<str> {
        self.node.clone().unwrap_or_else(|| Arc::from(self.node()))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

impl PartialEq for Holder {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Holder {}

impl Hash for Holder {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The source of a fixed worker.
///
/// With a store, a fixed worker needs a lease like any other: a second node is rejected with the name of the
/// first. Without a store, two nodes with the same worker produce duplicates, and nothing detects that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerSource {
    /// A configured number.
    Number(u32),
    /// The number after the last `-` of the host's name, as in the pods of a Kubernetes `StatefulSet`.
    Ordinal,
    /// The low bits of the host's IPv4 address, as many as the worker has. The host must have only one
    /// address, or one in this network. Hosts of two networks can share low bits; hosts of one stated network
    /// cannot.
    Ipv4(Option<Ipv4Network>),
}

/// An IPv4 network, such as `10.244.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Network {
    address: Ipv4Addr,
    prefix: u32,
}

impl Ipv4Network {
    const fn host_bits(self) -> u32 {
        32 - self.prefix
    }

    const fn mask(self) -> u32 {
        match self.prefix {
            0 => 0,
            prefix => u32::MAX << (32 - prefix),
        }
    }

    const fn holds(self, address: Ipv4Addr) -> bool {
        address.to_bits() & self.mask() == self.address.to_bits()
    }
}

impl FromStr for Ipv4Network {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let refused = || IdentityError::NoNetwork { text: Snippet::of(text) };
        let (address, prefix) = text.split_once('/').ok_or_else(refused)?;
        let address = address.parse().map_err(|_| refused())?;
        let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32).ok_or_else(refused)?;
        let network = Self { address, prefix };
        // The address of a host instead of a network is probably a mistake.
        if network.holds(address) { Ok(network) } else { Err(refused()) }
    }
}

impl fmt::Display for Ipv4Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Why no worker can be derived from the host.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The text is not a worker source.
    #[error(
        "invalid worker {text}: expected a number, `ordinal` (of a StatefulSet's pod), `ipv4` or `ipv4:NETWORK`, such as \
         ipv4:10.244.0.0/16"
    )]
    NoSource {
        /// The input.
        text: Snippet,
    },
    /// The text is not a network.
    #[error(
        "invalid network {text}: expected the first address of a network and its prefix, such as 10.244.0.0/16"
    )]
    NoNetwork {
        /// The input.
        text: Snippet,
    },
    /// The host's name does not end with a number.
    #[error(
        "the host name {host:?} has no ordinal: the pods of a StatefulSet have names like web-3; in a Deployment, let the \
         store choose the worker"
    )]
    NoOrdinal {
        /// The host's name.
        host: String,
    },
    /// The layout has no bits for a worker.
    #[error(
        "the layout `{layout}` has no worker, so an address cannot tell nodes apart: use a layout with a worker"
    )]
    NoWorkerBits {
        /// The layout.
        layout: String,
    },
    /// The host has no address. Worker 0 for every such node would produce duplicates.
    #[error(
        "this host has no IPv4 address except loopback: set a number, or let the store choose the worker"
    )]
    NoAddress,
    /// The host has no address in the stated network.
    #[error("this host has no address in {network}, it has {found}: state the network that the nodes share")]
    NotInNetwork {
        /// The network.
        network: Ipv4Network,
        /// The addresses of the host.
        found: String,
    },
    /// The host has several addresses, and none is preferable.
    #[error(
        "this host has several IPv4 addresses to choose from, {first} and {second}: state the network that the nodes share, \
         such as ipv4:10.244.0.0/16, or set the worker to a number"
    )]
    SeveralAddresses {
        /// One of them.
        first: Ipv4Addr,
        /// Another.
        second: Ipv4Addr,
    },
    /// Two hosts of the network can have the same low bits.
    #[error(
        "the network {network} has {host_bits} bits for a host, the layout has {worker_bits} for the worker: two hosts \
         could get the same worker; use a layout with {host_bits} worker bits, state a smaller network, or let the store \
         choose the worker"
    )]
    NetworkTooWide {
        /// The network.
        network: Ipv4Network,
        /// The number of bits that distinguish its hosts.
        host_bits: u32,
        /// The number of bits of the worker in the layout.
        worker_bits: u32,
    },
    /// The operating system did not list the addresses.
    #[error("cannot read the addresses of this host")]
    Addresses(#[source] Arc<io::Error>),
}

impl WorkerSource {
    /// Returns the worker. [`LeaseConfig`](crate::LeaseConfig) checks whether it fits the layout. This method
    /// checks that only for addresses, where cutting off bits could give two hosts the same worker.
    ///
    /// # Errors
    ///
    /// [`IdentityError`] if no worker can be derived from the host.
    pub fn worker(self, layout: &Layout) -> Result<WorkerId, IdentityError> {
        match self {
            Self::Number(number) => Ok(WorkerId(number)),
            Self::Ordinal => ordinal_of(&host_name()),
            Self::Ipv4(stated) => worker_of_addresses(&addresses()?, stated, layout),
        }
    }
}

impl FromStr for WorkerSource {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        match text {
            "ordinal" => Ok(Self::Ordinal),
            "ipv4" => Ok(Self::Ipv4(None)),
            other => match other.strip_prefix("ipv4:") {
                Some(network) => Ok(Self::Ipv4(Some(network.parse()?))),
                None => other
                    .parse()
                    .map(Self::Number)
                    .map_err(|_| IdentityError::NoSource { text: Snippet::of(text) }),
            },
        }
    }
}

fn ordinal_of(host: &str) -> Result<WorkerId, IdentityError> {
    // The pod's name may be followed by a domain.
    let name = host.split('.').next().unwrap_or(host);
    let ordinal = name.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse().ok());
    ordinal.map(WorkerId).ok_or_else(|| IdentityError::NoOrdinal { host: host.to_owned() })
}

/// Returns the low bits of an address, as many as the worker has. They must differ between all hosts of the
/// network.
fn worker_of_addresses(
    addresses: &[(Ipv4Addr, u32)],
    stated: Option<Ipv4Network>,
    layout: &Layout,
) -> Result<WorkerId, IdentityError> {
    let worker_bits = layout.width(Field::Worker);
    if worker_bits == 0 {
        return Err(IdentityError::NoWorkerBits { layout: layout.to_string() });
    }
    let (address, prefix) = only_address(addresses, stated)?;
    let own = Ipv4Network { address, prefix };
    let network = stated
        .unwrap_or(Ipv4Network { address: Ipv4Addr::from_bits(address.to_bits() & own.mask()), prefix });
    let host_bits = network.host_bits();
    if host_bits > worker_bits {
        return Err(IdentityError::NetworkTooWide { network, host_bits, worker_bits });
    }
    let cut = 32_u32.saturating_sub(worker_bits);
    Ok(WorkerId(address.to_bits() << cut >> cut))
}

fn only_address(
    addresses: &[(Ipv4Addr, u32)],
    stated: Option<Ipv4Network>,
) -> Result<(Ipv4Addr, u32), IdentityError> {
    let usable = addresses.iter().filter(|(address, _)| match stated {
        Some(network) => network.holds(*address),
        None => !address.is_loopback() && !address.is_link_local(),
    });
    let mut usable = usable.copied();
    match (usable.next(), usable.next(), stated) {
        (Some(only), None, _) => Ok(only),
        (Some((first, _)), Some((second, _)), _) => Err(IdentityError::SeveralAddresses { first, second }),
        (None, _, None) => Err(IdentityError::NoAddress),
        (None, _, Some(network)) => {
            let found: Vec<_> = addresses.iter().map(|(address, _)| address.to_string()).collect();
            let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
            Err(IdentityError::NotInNetwork { network, found })
        }
    }
}

fn addresses() -> Result<Vec<(Ipv4Addr, u32)>, IdentityError> {
    let interfaces = if_addrs::get_if_addrs().map_err(|error| IdentityError::Addresses(Arc::new(error)))?;
    let ipv4 = interfaces.into_iter().filter_map(|interface| match interface.addr {
        if_addrs::IfAddr::V4(v4) => Some((v4.ip, v4.netmask.to_bits().leading_ones())),
        if_addrs::IfAddr::V6(_) => None,
    });
    Ok(ipv4.collect())
}

/// Returns the name of this host.
#[cfg(unix)]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the name of this host.
#[cfg(not(unix))]
pub fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "unnamed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a node's own records confirm no clock, and those of others do. Method: the names of four nodes,
    /// each for its first and a further lease, of the first and of another purpose; and what the store has of
    /// each.
    #[test]
    fn a_node_agrees_with_no_record_of_its_own() {
        let holder = |name: &str| Holder::new(name).unwrap();
        // A name as long as it may be, and one that looks like another's second lease.
        let long = "l".repeat(MAX_LEN);
        let nodes = ["n1", "n10", "team/pod-1", "team/pod-2", "team/1", "a~b", &long].map(holder);
        let names_of = |node: &Holder| {
            let mut names = vec![node.clone()];
            names.extend(node.for_purpose("borrow(10ms)-then-wait(5ms)~random(1/2)"));
            let slots: Vec<_> =
                names.iter().flat_map(|name| [1, 7].map(|number| name.of_slot(number))).collect();
            names.extend(slots);
            names
        };
        for node in &nodes {
            for other in &nodes {
                for own in names_of(node) {
                    for found in names_of(other) {
                        // As it comes from the store.
                        let found = holder(found.as_str());
                        assert_eq!(own.is_same_node(&found), node == other, "{own}: {found}");
                    }
                }
            }
        }
        assert_eq!(holder("n1").of_slot(1), holder("n1/2"), "what a record shows");
    }

    #[test]
    fn ordinals_are_what_stands_behind_the_last_dash() {
        assert_eq!(ordinal_of("web-3").unwrap(), WorkerId(3));
        assert_eq!(ordinal_of("my-web-12.web.default.svc").unwrap(), WorkerId(12));
        for bad in ["web", "web-", "web-x", "web-3-", "web-7f9c6d5b8-x2x1z", ""] {
            assert!(ordinal_of(bad).is_err(), "{bad}");
        }
    }

    const LEAF: &str = "time:41 worker:10 sequence:12 epoch:2026-01-01";

    fn worker(text: &str, addresses: &[([u8; 4], u32)], layout: &str) -> Result<u32, IdentityError> {
        let WorkerSource::Ipv4(stated) = text.parse()? else { panic!("{text}") };
        let addresses: Vec<_> = addresses.iter().map(|(it, prefix)| (Ipv4Addr::from(*it), *prefix)).collect();
        worker_of_addresses(&addresses, stated, &layout.parse().unwrap()).map(|worker| worker.0)
    }

    /// Goal: the worker gets as many low bits as it has, whatever the interface's prefix. Method: pods of two
    /// nodes with the addresses that Kubernetes assigns: a network per node, or a /32 per pod.
    #[test]
    fn an_address_gives_as_many_low_bits_as_the_worker_has() {
        let [one, two] = [[10, 244, 1, 5], [10, 244, 2, 5]];
        for prefix in [24, 32] {
            assert_eq!(worker("ipv4", &[(one, prefix)], LEAF).unwrap(), 0x105);
            assert_eq!(worker("ipv4", &[(two, prefix)], LEAF).unwrap(), 0x205);
        }
        assert_eq!(worker("ipv4", &[([10, 1, 2, 3], 8)], "pod-ip").unwrap(), 0x01_02_03);
        assert_eq!(worker("ipv4:10.244.0.0/22", &[(one, 24)], LEAF).unwrap(), 0x105);
        let wide = "time:31@1s worker:31 sequence:1 epoch:2026-01-01";
        assert_eq!(worker("ipv4:10.0.0.0/8", &[(one, 24)], wide).unwrap(), 0x0af4_0105);
    }

    /// Goal: in every accepted network, each address has its own worker. Method: all addresses of small
    /// networks.
    #[test]
    fn no_two_addresses_of_a_stated_network_share_a_worker() {
        for (text, prefix) in
            [("ipv4:10.244.0.0/22", 22), ("ipv4:10.244.3.0/24", 24), ("ipv4:10.0.0.8/31", 31)]
        {
            let network: Ipv4Network = text.trim_start_matches("ipv4:").parse().unwrap();
            let workers: std::collections::BTreeSet<_> = (0..1_u32 << (32 - prefix))
                .map(|host| (network.address.to_bits() | host).to_be_bytes())
                .map(|address| worker(text, &[(address, 32)], LEAF).unwrap())
                .collect();
            assert_eq!(workers.len(), 1 << (32 - prefix), "{text}");
        }
    }

    #[test]
    fn a_network_that_cannot_tell_hosts_apart_is_refused_with_the_figures() {
        let address = [10, 244, 1, 5];
        for (text, prefix) in [("ipv4:10.244.0.0/16", 24), ("ipv4", 16)] {
            let refused = worker(text, &[(address, prefix)], LEAF).unwrap_err().to_string();
            for word in
                ["10.244.0.0/16", "16 bits for a host", "10 for the worker", "a layout with 16 worker bits"]
            {
                assert!(refused.contains(word), "{text}: {refused}");
            }
        }
        let none = "time:41 sequence:12 epoch:2026-01-01";
        assert!(matches!(worker("ipv4", &[(address, 24)], none), Err(IdentityError::NoWorkerBits { .. })));
    }

    #[test]
    fn the_stated_network_picks_the_interface() {
        let (lo, pod, host) = (([127, 0, 0, 1], 8), ([10, 244, 1, 5], 24), ([192, 168, 7, 9], 24));
        assert!(matches!(worker("ipv4", &[lo], LEAF), Err(IdentityError::NoAddress)));
        assert_eq!(worker("ipv4", &[lo, pod], LEAF).unwrap(), 0x105);
        let several = worker("ipv4", &[lo, pod, host], LEAF).unwrap_err().to_string();
        assert!(several.contains("10.244.1.5 and 192.168.7.9: state the network"), "{several}");
        assert_eq!(worker("ipv4:192.168.7.0/24", &[lo, pod, host], LEAF).unwrap(), 0x309);
        let outside = worker("ipv4:10.9.0.0/24", &[lo, pod], LEAF).unwrap_err().to_string();
        assert!(outside.contains("no address in 10.9.0.0/24, it has 127.0.0.1, 10.244.1.5"), "{outside}");
        assert_eq!(worker("ipv4:127.0.0.0/24", &[lo, pod], LEAF).unwrap(), 1, "where it is stated");
    }

    #[test]
    fn sources_read_from_text() {
        assert_eq!("7".parse::<WorkerSource>().unwrap(), WorkerSource::Number(7));
        assert_eq!("ordinal".parse::<WorkerSource>().unwrap(), WorkerSource::Ordinal);
        assert_eq!("ipv4".parse::<WorkerSource>().unwrap(), WorkerSource::Ipv4(None));
        let network = "10.244.0.0/16".parse::<Ipv4Network>().unwrap();
        assert_eq!("ipv4:10.244.0.0/16".parse::<WorkerSource>().unwrap(), WorkerSource::Ipv4(Some(network)));
        for bad in [
            "",
            "-1",
            "seven",
            "ip",
            "4294967296",
            "ipv4:",
            "ipv4:10.244.0.0",
            "ipv4:10.244.0.0/33",
            "ipv4:10.244.1.5/16",
            "ipv4:10.244/16",
            "ipv4:::/0",
        ] {
            assert!(bad.parse::<WorkerSource>().is_err(), "{bad}");
        }
    }

    #[test]
    fn each_lease_of_a_node_has_a_name_of_its_own() {
        let node = Holder::new("web-3:8080").unwrap();
        assert_eq!(node.of_slot(0), node);
        assert_eq!(node.of_slot(1).as_str(), "web-3:8080/2");
        let long = Holder::new("x".repeat(100)).unwrap();
        assert!(Holder::new(long.of_slot(7).as_str()).is_ok_and(|name| name != long));
    }

    #[test]
    fn names_are_bounded_and_printable() {
        assert_eq!(Holder::new("web-3:8080").unwrap().as_str(), "web-3:8080");
        for bad in ["", "two words", "tab\t", "ümlaut", &"x".repeat(101)] {
            assert!(Holder::new(bad).is_err(), "{bad:?}");
        }
        let here = Holder::of_this_host("80 80");
        assert!(here.as_str().ends_with(":80-80"), "{here}");
        assert!(Holder::new(here.as_str()).is_ok());
    }
}
