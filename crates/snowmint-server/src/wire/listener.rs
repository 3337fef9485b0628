//! Opens ports: TCP addresses and Unix sockets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::telemetry::access_log::Peer;

/// An open port: a TCP address or a Unix socket. The file of a Unix socket is removed when it is dropped.
#[derive(Debug)]
pub struct Listener(Open);

#[derive(Debug)]
enum Open {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(unix::SocketFile),
}

/// A client that was just accepted.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
}

impl Socket {
    /// Returns the address of the client.
    pub(crate) fn peer(&self) -> Peer {
        match self {
            Self::Tcp(stream) => peer_of(stream).map_or(Peer::Gone, Peer::Tcp),
            #[cfg(unix)]
            Self::Unix(_) => Peer::Unix,
        }
    }
}

/// Returns the address of the client, which has an IPv4 address on a port for both families too.
pub(crate) fn peer_of(stream: &TcpStream) -> io::Result<SocketAddr> {
    let peer = stream.peer_addr()?;
    Ok(SocketAddr::new(peer.ip().to_canonical(), peer.port()))
}

/// Opens a port. `address` was given with the flag `flag`: `host:port`, where port 0 takes any free port, or
/// `unix:` and the path of a socket.
///
/// `[::]` is every address of this machine, IPv4 and IPv6. On a machine without IPv6, it is `0.0.0.0`.
///
/// A socket file that nobody listens on any more is replaced. Owner and group of the new one may connect to
/// it. While the socket is opened, a file beside it, whose name ends in `.lock`, keeps two starts from
/// replacing the same socket.
///
/// # Errors
///
/// [`BindError`] names the address, the flag, the cause and a remedy.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let taken = snowmint_server::bind("127.0.0.1:0", "--http").await?;
/// let error = snowmint_server::bind(&taken.address(), "--http").await.unwrap_err();
/// assert!(error.to_string().contains("(--http): another program uses this port"));
/// # Ok(())
/// # }
/// ```
pub async fn bind(address: &str, flag: &'static str) -> Result<Listener, BindError> {
    let opened = match address.strip_prefix(UNIX) {
        #[cfg(unix)]
        Some(path) => unix::SocketFile::open(path.as_ref()).await.map(Open::Unix),
        #[cfg(not(unix))]
        Some(_) => Err(io::ErrorKind::Unsupported.into()),
        None => match address.parse::<SocketAddr>() {
            Ok(all) if all.ip() == Ipv6Addr::UNSPECIFIED => open_for_both_families(all),
            _ => TcpListener::bind(address).await,
        }
        .map(Open::Tcp),
    };
    opened.map(Listener).map_err(|source| BindError { address: address.to_owned(), flag, source })
}

/// Clients that the system connects before they are accepted; the system lowers it to its limit.
const BACKLOG: u32 = 1024;

/// Opens `[::]` for IPv4 too, whatever the system's default is; on a system without IPv6, for IPv4 only.
fn open_for_both_families(all: SocketAddr) -> io::Result<TcpListener> {
    // The only cause that is not a cause for IPv4 too is that the system has no IPv6.
    let Ok(socket) = TcpSocket::new_v6() else {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), all.port());
        return open(TcpSocket::new_v4()?, address);
    };
    SockRef::from(&socket).set_only_v6(false)?;
    open(socket, all)
}

fn open(socket: TcpSocket, address: SocketAddr) -> io::Result<TcpListener> {
    // As `TcpListener::bind` does. On Windows, it would let two programs share a port.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The prefix of the address of a Unix socket.
const UNIX: &str = "unix:";

/// A socket that another process has opened, such as systemd. It stays open there.
impl TryFrom<std::net::TcpListener> for Listener {
    type Error = io::Error;

    /// # Errors
    ///
    /// The socket does not listen, or the error of the system.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    fn try_from(socket: std::net::TcpListener) -> io::Result<Self> {
        check_listens(&SockRef::from(&socket))?;
        TcpListener::from_std(socket).map(|listener| Self(Open::Tcp(listener)))
    }
}

/// A socket that another process has opened, such as systemd. It stays open there, and its file stays.
#[cfg(unix)]
impl TryFrom<std::os::unix::net::UnixListener> for Listener {
    type Error = io::Error;

    /// # Errors
    ///
    /// The socket does not listen, or the error of the system.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    fn try_from(socket: std::os::unix::net::UnixListener) -> io::Result<Self> {
        check_listens(&SockRef::from(&socket))?;
        unix::SocketFile::of_another(socket).map(|socket| Self(Open::Unix(socket)))
    }
}

/// Checks that a socket accepts clients, and makes it ready for the runtime.
fn check_listens(socket: &SockRef<'_>) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if !socket.is_listener()? {
        let why =
            "the socket does not listen for connections: expected ListenStream= in its unit, and Accept=no";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    socket.set_nonblocking(true)
}

impl Listener {
    /// Returns the address that clients connect to: `host:port`, or `unix:` and the path of the socket.
    pub fn address(&self) -> String {
        match &self.0 {
            Open::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| "unknown".to_owned(), |it| it.to_string())
            }
            #[cfg(unix)]
            Open::Unix(socket) => format!("{UNIX}{}", socket.path().display()),
        }
    }

    /// Returns the port; a Unix socket has none.
    pub fn port(&self) -> Option<u16> {
        match &self.0 {
            Open::Tcp(listener) => listener.local_addr().ok().map(|address| address.port()),
            #[cfg(unix)]
            Open::Unix(_) => None,
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<Socket> {
        match &self.0 {
            Open::Tcp(listener) => listener.accept().await.map(|(stream, _)| Socket::Tcp(stream)),
            #[cfg(unix)]
            Open::Unix(socket) => socket.listener().accept().await.map(|(stream, _)| Socket::Unix(stream)),
        }
    }

    /// Accepts a client that the system has already connected, if there is one.
    pub(crate) fn accept_waiting(&self) -> io::Result<Socket> {
        let accepted = |listener: SockRef<'_>| {
            let (socket, _) = listener.accept()?;
            socket.set_nonblocking(true)?;
            Ok::<_, io::Error>(socket)
        };
        match &self.0 {
            Open::Tcp(listener) => {
                TcpStream::from_std(accepted(SockRef::from(listener))?.into()).map(Socket::Tcp)
            }
            #[cfg(unix)]
            Open::Unix(socket) => {
                let stream = accepted(SockRef::from(socket.listener()))?;
                tokio::net::UnixStream::from_std(stream.into()).map(Socket::Unix)
            }
        }
    }
}

#[cfg(unix)]
mod unix {
    //! A Unix socket and its file.

    use std::fs::{self, Permissions};
    use std::io;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
    use std::os::unix::net::UnixListener as StdListener;
    use std::path::{Path, PathBuf};

    use snowmint_cluster::lock_file::{AfterUse, LockFile};
    use socket2::{Domain, SockAddr, Socket, Type};
    use tokio::net::UnixListener;
    use tokio::task::spawn_blocking;

    /// Owner and group may connect.
    const MODE: u32 = 0o660;
    /// Clients that the system connects before they are accepted; the system lowers it to its limit.
    const BACKLOG: i32 = 4096;

    /// A Unix socket, whose file is removed when it is dropped. The file is removed before the socket is
    /// closed, since the open socket keeps its inode number from being reused for the file of a successor.
    #[derive(Debug)]
    pub(super) struct SocketFile {
        file: OwnFile,
        listener: UnixListener,
    }

    /// The file, with its identity: another process may have put another file there since.
    #[derive(Debug)]
    struct OwnFile {
        path: PathBuf,
        /// `None` for a file that is not removed.
        identity: Option<(u64, u64)>,
    }

    impl SocketFile {
        pub(super) async fn open(path: &Path) -> io::Result<Self> {
            // An invalid path must not create a lock file.
            let address = SockAddr::unix(path)?;
            is_there(path)?;
            // Of two servers that find the same stale file, the second would remove the live socket of the
            // first.
            let _locked = lock(path).await?;
            remove_stale(path)?;
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            socket.bind(&address)?;
            let file = OwnFile { path: path.to_owned(), identity: identity(path) };
            // Before anybody can connect.
            fs::set_permissions(path, Permissions::from_mode(MODE))?;
            socket.listen(BACKLOG)?;
            socket.set_nonblocking(true)?;
            Ok(Self { listener: UnixListener::from_std(socket.into())?, file })
        }

        /// Returns the socket of another process, which also owns the file.
        pub(super) fn of_another(listener: StdListener) -> io::Result<Self> {
            let path = listener.local_addr()?.as_pathname().map(Path::to_owned).unwrap_or_default();
            let file = OwnFile { path, identity: None };
            Ok(Self { listener: UnixListener::from_std(listener)?, file })
        }

        pub(super) const fn listener(&self) -> &UnixListener {
            &self.listener
        }

        pub(super) fn path(&self) -> &Path {
            &self.file.path
        }
    }

    impl Drop for OwnFile {
        fn drop(&mut self) {
            if self.identity.is_some() && identity(&self.path) == self.identity {
                // The next start replaces a file that is left.
                let _ = fs::remove_file(&self.path);
            }
        }
    }

    fn identity(path: &Path) -> Option<(u64, u64)> {
        fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
    }

    /// Takes the lock on the path of a socket; `None` if the file system has no locks.
    async fn lock(socket: &Path) -> io::Result<Option<LockFile>> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let taken = spawn_blocking(move || LockFile::take(path.as_ref(), AfterUse::Remove)).await;
        match taken.map_err(io::Error::other)? {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(None),
            taken => taken.map(Some),
        }
    }

    /// Returns `true` if there is a socket, and fails if there is another file.
    fn is_there(path: &Path) -> io::Result<bool> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
            Ok(file) if file.file_type().is_socket() => Ok(true),
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }

    /// Removes the socket of a process that has ended.
    fn remove_stale(path: &Path) -> io::Result<()> {
        if !is_there(path)? {
            return Ok(());
        }
        let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        // The listener of a full socket would make the probe wait.
        probe.set_nonblocking(true)?;
        match probe.connect(&SockAddr::unix(path)?) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
            _ => Err(io::ErrorKind::AddrInUse.into()),
        }
    }
}

/// A port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({flag}): {}", self.reason())]
pub struct BindError {
    /// The requested address.
    pub address: String,
    /// The flag with the address.
    pub flag: &'static str,
    /// The error of the system.
    pub source: io::Error,
}

impl BindError {
    fn reason(&self) -> String {
        if self.address.starts_with(UNIX) { self.socket_reason() } else { self.port_reason() }
    }

    fn port_reason(&self) -> String {
        let Self { source, flag, .. } = self;
        match source.kind() {
            io::ErrorKind::AddrInUse => format!(
                "another program uses this port; stop it, or choose another port with {flag} (port 0 takes a free one)"
            ),
            io::ErrorKind::PermissionDenied => {
                format!(
                    "permission denied; ports below 1024 need privileges, choose a higher port with {flag}"
                )
            }
            io::ErrorKind::AddrNotAvailable => format!(
                "no network interface has this address; use an address of this machine, or [::] for all, with {flag}"
            ),
            io::ErrorKind::InvalidInput => format!("invalid address; expected {flag} HOST:PORT"),
            _ => format!("{source}; use an address of this machine with {flag} HOST:PORT"),
        }
    }

    fn socket_reason(&self) -> String {
        let Self { source, flag, .. } = self;
        match source.kind() {
            io::ErrorKind::AddrInUse => {
                format!("another program listens on this socket; stop it, or choose another path with {flag}")
            }
            io::ErrorKind::ResourceBusy => {
                format!(
                    "another process holds the lock of this socket, the file beside it that ends in .lock; stop it, or choose another path with {flag}"
                )
            }
            io::ErrorKind::AlreadyExists => {
                format!("the file exists and is not a socket; remove it, or choose another path with {flag}")
            }
            io::ErrorKind::NotFound => {
                format!("the folder does not exist; create it, or choose another path with {flag}")
            }
            io::ErrorKind::PermissionDenied => {
                format!(
                    "permission denied; choose a path with {flag} whose folder and .lock file this user may write to"
                )
            }
            io::ErrorKind::InvalidInput => {
                format!(
                    "invalid path; a socket's path has at most 107 bytes, choose a shorter one with {flag}"
                )
            }
            io::ErrorKind::Unsupported => {
                format!("this system has no Unix sockets; use {flag} HOST:PORT")
            }
            _ => format!("{source}; choose another path with {flag}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_cause_has_its_remedy() {
        for (address, wanted) in [
            ("192.0.2.1:80", "no network interface has this address"),
            ("127.0.0.1", "invalid address; expected --resp HOST:PORT"),
            ("127.0.0.1:x", "--resp HOST:PORT"),
        ] {
            let error = bind(address, "--resp").await.unwrap_err().to_string();
            assert!(error.starts_with(&format!("cannot listen on {address} (--resp): ")), "{error}");
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn each_cause_has_its_remedy_for_sockets() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "kept").unwrap();
        let taken = bind(&format!("unix:{}/taken", folder.path().display()), "--http").await.unwrap();
        let long = "x".repeat(200);
        for (name, wanted) in [
            ("taken", "another program listens on this socket"),
            ("file", "the file exists and is not a socket"),
            ("none/socket", "the folder does not exist"),
            (&long, "at most 107 bytes"),
        ] {
            let address = format!("unix:{}/{name}", folder.path().display());
            let error = bind(&address, "--http").await.unwrap_err().to_string();
            assert!(error.starts_with(&format!("cannot listen on {address} (--http): ")), "{error}");
            assert!(error.contains(wanted) && error.contains("with --http"), "{error}");
        }
        assert_eq!(std::fs::read(folder.path().join("file")).unwrap(), b"kept");
        drop(taken);
    }

    /// Goal: a crash leaves no file that stops the next start, and a server that ends removes only its own
    /// file.
    #[cfg(unix)]
    #[tokio::test]
    async fn a_socket_file_is_replaced_if_nobody_listens_and_removed_by_its_owner() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = format!("unix:{}", path.display());
        // A listener of std leaves its file, as a crash does.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let first = bind(&address, "--resp").await.unwrap();
        assert_eq!((first.address(), first.port()), (address.clone(), None));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        std::fs::remove_file(&path).unwrap();
        let second = bind(&address, "--resp").await.unwrap();
        drop(first);
        assert!(path.exists(), "it is that of the second");
        drop(second);
        assert!(!path.exists());
    }

    /// Goal: of two servers that start on one stale file, one wins, and the other does not remove its socket.
    /// Method: the first is the test, which holds the lock while it replaces the stale file.
    #[cfg(unix)]
    #[tokio::test]
    async fn two_starts_on_one_stale_socket_do_not_take_it_from_each_other() {
        use std::os::unix::net::{UnixListener, UnixStream};

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        let locked = std::fs::File::create(folder.path().join("socket.lock")).unwrap();
        locked.lock().unwrap();
        let address = format!("unix:{}", path.display());
        let mut second = std::pin::pin!(bind(&address, "--resp"));
        let waits = tokio::time::timeout(std::time::Duration::from_millis(50), second.as_mut()).await;
        assert!(waits.is_err(), "{waits:?}");
        std::fs::remove_file(&path).unwrap();
        let _first = UnixListener::bind(&path).unwrap();
        drop(locked);
        let error = second.await.unwrap_err().to_string();
        assert!(error.contains("another program listens on this socket"), "{error}");
        UnixStream::connect(&path).unwrap();
    }

    /// Goal: no other user can block a start. A lock on the folder, which every reader may take, has no
    /// effect, and no file is left for the next user. A link in the place of the lock file is not followed,
    /// and an invalid path leaves no file.
    #[cfg(unix)]
    #[tokio::test]
    async fn a_start_is_locked_by_a_file_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let locked = std::fs::File::open(folder.path()).unwrap();
        locked.lock().unwrap();
        let address = |name: &str| format!("unix:{}/{name}", folder.path().display());
        for _ in 0..2 {
            drop(bind(&address("socket"), "--resp").await.unwrap());
            assert!(!folder.path().join("socket.lock").exists());
        }
        std::os::unix::fs::symlink("target", folder.path().join("linked.lock")).unwrap();
        bind(&address("linked"), "--resp").await.unwrap_err();
        assert!(!folder.path().join("target").exists());
        std::fs::write(folder.path().join("file"), "").unwrap();
        bind(&address("file"), "--resp").await.unwrap_err();
        assert!(!folder.path().join("file.lock").exists());
    }
}
