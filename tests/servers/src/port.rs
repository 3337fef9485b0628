//! Free ports for servers that are killed and started again on the same ones.
//! A port stays reserved among all our test processes until it is dropped, also while its server is down.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};

/// Below the range from which Linux takes the ports of outgoing connections (32768 on): while a server is down, no
/// client may be given its port, nor connect to itself.
const FROM: u16 = 10_240;
const COUNT: u16 = 20_000;

/// A loopback port that nobody else in our tests takes.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    /// A name that only one process at a time can hold and that the system frees when it dies: two servers on one
    /// port would else be told apart only by the error of the second, which may not be noticed.
    _reservation: UnixListener,
}

impl Port {
    /// Takes a port on which nobody listens now.
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
