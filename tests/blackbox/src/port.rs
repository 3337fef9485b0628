//! Free ports for servers that are killed and started again on the same ones.
//! A port stays reserved among all our test processes for as long as this one lives, also while its server is down: an
//! answer from somebody else's server would be taken for its own.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

/// Below the range from which Linux takes the ports of outgoing connections (32768 on): while a server is down, no
/// client may be given its port, nor connect to itself.
const FROM: u16 = 10_240;
const COUNT: u16 = 20_000;

/// Names that only one process at a time can hold and that the system frees when it dies.
static RESERVATIONS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// A loopback address whose port nobody listens on now, and that no other test takes. A program that knows nothing of
/// our reservations may take it before it is used: a start that fails for this reason tries another.
///
/// # Panics
///
/// If no free port is found.
pub fn free() -> SocketAddrV4 {
    let random = RandomState::new().build_hasher().finish();
    let start = u16::try_from(random % u64::from(COUNT)).expect("below a u16");
    (0..COUNT)
        .map(|i| SocketAddrV4::new(Ipv4Addr::LOCALHOST, FROM + (start + i) % COUNT))
        .find(|address| reserve(address.port()) && TcpListener::bind(address).is_ok())
        .expect("there is a free port")
}

/// Whether the port is ours now; the servers that stores are tested against reserve theirs by the same names.
fn reserve(port: u16) -> bool {
    let name = UnixAddr::from_abstract_name(format!("snowmint-test-port-{port}"));
    let reserved = name.and_then(|name| UnixListener::bind_addr(&name));
    reserved.map(|it| RESERVATIONS.lock().unwrap_or_else(PoisonError::into_inner).push(it)).is_ok()
}
