//! Free ports for servers that are killed and started again on the same ones.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};

/// Below the range from which Linux takes the ports of outgoing connections (32768 on): while a server is down, no
/// client may be given its port, nor connect to itself.
const FROM: u16 = 10_240;
const COUNT: u16 = 20_000;

/// A loopback address whose port nobody listens on now. Another process may take it before it is used: a start
/// that fails for this reason tries another.
///
/// # Panics
///
/// If no free port is found.
pub fn free() -> SocketAddrV4 {
    let random = RandomState::new().build_hasher().finish();
    let start = u16::try_from(random % u64::from(COUNT)).expect("below a u16");
    (0..COUNT)
        .map(|i| SocketAddrV4::new(Ipv4Addr::LOCALHOST, FROM + (start + i) % COUNT))
        .find(|address| TcpListener::bind(address).is_ok())
        .expect("there is a free port")
}
