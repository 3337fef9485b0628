//! Who this node is: the name it holds leases under, and a worker that follows from where it runs.
//! Neither proves anything (two containers may share both); what proves ownership is the tag of a write.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use snowmint::{Field, Layout, Snippet, WorkerId};

/// Longest holder name, in bytes: it is written into every record and every log line about it.
const MAX_LEN: usize = 100;

/// The name under which a node holds leases, such as `web-3:8080`.
///
/// After a restart a node prefers the record that bears its name, so that its worker stays the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder(String);

/// Why a text is not a holder's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a holder's name: give 1 to {MAX_LEN} printable ASCII characters without blanks")]
pub struct HolderError {
    /// What was given.
    pub name: String,
}

impl Holder {
    /// Takes a name of 1 to 100 printable ASCII characters without blanks.
    ///
    /// # Errors
    ///
    /// [`HolderError`] for anything else.
    pub fn new(name: impl Into<String>) -> Result<Self, HolderError> {
        let name = name.into();
        let fits = (1..=MAX_LEN).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
        if fits { Ok(Self(name)) } else { Err(HolderError { name }) }
    }

    /// The host's name with a suffix that tells apart the nodes on one host, such as the port they listen on.
    ///
    /// Characters that a name may not have become `-`; a host without a name is `unnamed`.
    pub fn of_this_host(suffix: &str) -> Self {
        let name = format!("{}:{suffix}", host_name());
        let mut name: String = name.chars().map(|c| if c.is_ascii_graphic() { c } else { '-' }).collect();
        name.truncate(MAX_LEN);
        Self(name)
    }

    /// The name under which a node holds one of its leases, counted from 0: `web-3:8080`, `web-3:8080/2` and so on.
    pub(crate) fn of_slot(&self, number: usize) -> Self {
        if number == 0 {
            return self.clone();
        }
        let suffix = format!("/{}", number + 1);
        // One byte a character.
        let name = &self.0[..self.0.len().min(MAX_LEN - suffix.len())];
        Self(format!("{name}{suffix}"))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a fixed worker comes from.
///
/// A worker that is fixed goes through a lease as any other where there is a store: a second holder is refused with
/// the name of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerSource {
    /// Set by hand.
    Number(u32),
    /// The number after the last `-` of the host's name: what a Kubernetes `StatefulSet` calls its pods.
    Ordinal,
    /// The low bits of the host's IPv4 address.
    Ipv4,
}

/// Why no worker follows from where this node runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// Not a source of workers.
    #[error("{text} is no worker: give a number, `ordinal` (of a StatefulSet's pod) or `ipv4`")]
    NoSource {
        /// What was given.
        text: Snippet,
    },
    /// The host's name does not end in a number.
    #[error(
        "the host name {host:?} has no ordinal: a StatefulSet's pod is named like web-3; for a Deployment leave the \
         worker to the store"
    )]
    NoOrdinal {
        /// The host's name.
        host: String,
    },
    /// There is no address to take bits from. Taking 0 would give every such node the same worker.
    #[error("this host has no IPv4 address but loopback: give a number, or leave the worker to the store")]
    NoAddress,
    /// More than one address, none better than the others.
    #[error("this host has several IPv4 addresses, {first} and {second}: give the worker as a number")]
    SeveralAddresses {
        /// One of them.
        first: Ipv4Addr,
        /// Another.
        second: Ipv4Addr,
    },
    /// Two hosts of the network can have the same low bits.
    #[error(
        "the network {address}/{prefix} leaves {host_bits} bits to a host, the layout has {worker_bits} for the worker: \
         two of its hosts could have one worker; take a layout with {host_bits} worker bits, or leave the worker to \
         the store"
    )]
    NetworkTooWide {
        /// The host's address.
        address: Ipv4Addr,
        /// Bits of the network's prefix.
        prefix: u32,
        /// Bits that tell its hosts apart.
        host_bits: u32,
        /// Bits the layout has.
        worker_bits: u32,
    },
    /// The system would not tell its addresses.
    #[error("the addresses of this host cannot be read: {0}")]
    Addresses(String),
}

impl WorkerSource {
    /// The worker, by this host's name or address where it follows from those. Whether it fits the layout is for the
    /// keeper to check, except for addresses, where cutting bits off would make two workers one.
    ///
    /// # Errors
    ///
    /// [`IdentityError`] where none follows.
    pub fn worker(self, layout: &Layout) -> Result<WorkerId, IdentityError> {
        match self {
            Self::Number(number) => Ok(WorkerId(number)),
            Self::Ordinal => ordinal_of(&host_name()),
            Self::Ipv4 => {
                let (address, prefix) = only_address(&addresses()?)?;
                worker_of_address(address, prefix, layout)
            }
        }
    }
}

impl FromStr for WorkerSource {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        match text {
            "ordinal" => Ok(Self::Ordinal),
            "ipv4" => Ok(Self::Ipv4),
            number => {
                let text = Snippet::of(text);
                number.parse().map(Self::Number).map_err(|_| IdentityError::NoSource { text })
            }
        }
    }
}

fn ordinal_of(host: &str) -> Result<WorkerId, IdentityError> {
    // A pod's name may be followed by its domain.
    let name = host.split('.').next().unwrap_or(host);
    let ordinal = name.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse().ok());
    ordinal.map(WorkerId).ok_or_else(|| IdentityError::NoOrdinal { host: host.to_owned() })
}

/// The low bits of an address that the network's prefix leaves to its hosts.
fn worker_of_address(address: Ipv4Addr, prefix: u32, layout: &Layout) -> Result<WorkerId, IdentityError> {
    let host_bits = 32 - prefix.min(32);
    let worker_bits = layout.width(Field::Worker);
    if host_bits > worker_bits {
        return Err(IdentityError::NetworkTooWide { address, prefix, host_bits, worker_bits });
    }
    let mask = (1_u64 << host_bits) - 1;
    // At most 32 bits of a 32-bit number.
    Ok(WorkerId(u32::try_from(u64::from(address.to_bits()) & mask).unwrap_or(u32::MAX)))
}

fn only_address(addresses: &[(Ipv4Addr, u32)]) -> Result<(Ipv4Addr, u32), IdentityError> {
    let mut usable =
        addresses.iter().filter(|(address, _)| !address.is_loopback() && !address.is_link_local());
    let Some(first) = usable.next() else { return Err(IdentityError::NoAddress) };
    match usable.next() {
        Some(second) => Err(IdentityError::SeveralAddresses { first: first.0, second: second.0 }),
        None => Ok(*first),
    }
}

fn addresses() -> Result<Vec<(Ipv4Addr, u32)>, IdentityError> {
    let interfaces = if_addrs::get_if_addrs().map_err(|error| IdentityError::Addresses(error.to_string()))?;
    let ipv4 = interfaces.into_iter().filter_map(|interface| match interface.addr {
        if_addrs::IfAddr::V4(v4) => Some((v4.ip, v4.netmask.to_bits().count_ones())),
        if_addrs::IfAddr::V6(_) => None,
    });
    Ok(ipv4.collect())
}

#[cfg(unix)]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "unnamed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals_are_what_stands_behind_the_last_dash() {
        assert_eq!(ordinal_of("web-3"), Ok(WorkerId(3)));
        assert_eq!(ordinal_of("my-web-12.web.default.svc"), Ok(WorkerId(12)));
        for bad in ["web", "web-", "web-x", "web-3-", "web-7f9c6d5b8-x2x1z", ""] {
            assert!(ordinal_of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_address_gives_its_low_bits_only_where_they_tell_hosts_apart() {
        let pod_ip: Layout = "pod-ip".parse().unwrap();
        let address = Ipv4Addr::new(10, 1, 2, 3);
        assert_eq!(worker_of_address(address, 8, &pod_ip), Ok(WorkerId(0x01_02_03)));
        assert_eq!(worker_of_address(address, 24, &pod_ip), Ok(WorkerId(3)));
        let refused = worker_of_address(address, 7, &pod_ip).unwrap_err().to_string();
        assert!(refused.contains("25 bits") && refused.contains("24 for the worker"), "{refused}");
        let leaf: Layout = "leaf".parse().unwrap();
        assert!(
            worker_of_address(address, 16, &leaf).is_err() && worker_of_address(address, 22, &leaf).is_ok()
        );
    }

    #[test]
    fn no_address_and_several_are_errors() {
        let (lo, a, b) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(only_address(&[(lo, 8)]), Err(IdentityError::NoAddress));
        assert_eq!(only_address(&[(lo, 8), (a, 24)]), Ok((a, 24)));
        assert!(matches!(only_address(&[(a, 24), (b, 24)]), Err(IdentityError::SeveralAddresses { .. })));
    }

    #[test]
    fn sources_read_from_text() {
        assert_eq!("7".parse(), Ok(WorkerSource::Number(7)));
        assert_eq!("ordinal".parse(), Ok(WorkerSource::Ordinal));
        for bad in ["", "-1", "seven", "ip", "4294967296"] {
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
