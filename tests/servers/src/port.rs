//! Free ports for servers that are killed and started again on the same ports. A port stays reserved among
//! all our test processes until it is dropped, even while its server is down.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

/// Below the range of Linux's ports for outgoing connections (from 32768): while a server is down, no client
/// may get its port, or connect to itself.
const FROM: u16 = 10_240;
const COUNT: u16 = 20_000;

/// Ports that stay reserved for as long as this process lives.
static KEPT: Mutex<Vec<Port>> = Mutex::new(Vec::new());

/// Returns a free loopback address whose port no other test takes while this process lives.
///
/// A program that ignores our reservations may take the port before it is used: then the start tries another
/// one.
///
/// # Panics
///
/// If no port is free.
pub fn free() -> SocketAddrV4 {
    let port = Port::reserve();
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port.number());
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(port);
    address
}

/// A loopback port that no other test takes.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    /// A name that only one process can hold, and that the system frees when the process dies. Without it, a
    /// second server on one port would only get an error, which a test may not notice.
    _reservation: UnixListener,
}

impl Port {
    /// Reserves a port on which nothing listens.
    pub(crate) fn reserve() -> Self {
        let random = RandomState::new().build_hasher().finish();
        let start = u16::try_from(random % u64::from(COUNT)).expect("below a u16");
        (0..COUNT).map(|i| FROM + (start + i) % COUNT).find_map(Self::take).expect("there is a free port")
    }

    pub(crate) const fn number(&self) -> u16 {
        self.number
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }

    fn take(number: u16) -> Option<Self> {
        let name = UnixAddr::from_abstract_name(format!("snowmint-test-port-{number}")).ok()?;
        let reservation = UnixListener::bind_addr(&name).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Self { number, _reservation: reservation })
    }
}
