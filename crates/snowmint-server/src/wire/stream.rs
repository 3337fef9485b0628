//! The connection to a client: TCP, TLS over TCP, or a Unix socket. Every protocol reads and writes a
//! [`Stream`].

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use super::listener::peer_of;
use crate::limits::LINGER;
use crate::protocol::Protocol;
use crate::state::ServerState;

/// The connection to a client.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp {
        stream: TcpStream,
        /// Present until something was read; absent after a failed handshake.
        first: Option<FirstRead>,
    },
    /// Boxed: its state is 100 times larger than that of the other variants, which are more common.
    Tls(Box<TlsStream<TcpStream>>),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// A client speaks TLS to a port without it.
#[derive(Debug, thiserror::Error)]
#[error(
    "the client speaks TLS, but this port does not: set --tls-cert and --tls-key, or connect without TLS"
)]
pub(crate) struct UnexpectedTls;

/// The fatal alert `protocol_version`: TLS clients report it instead of garbage.
const ALERT: [u8; 7] = [21, 3, 1, 0, 2, 2, 70];

/// The first byte of a TLS connection: a record with a message of the handshake.
pub(crate) const HANDSHAKE_RECORD: u8 = 22;

impl Stream {
    /// Returns the address of the client; `None` over a Unix socket.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp { stream, .. } => peer_of(stream).ok(),
            Self::Tls(stream) => peer_of(stream.get_ref().0).ok(),
            #[cfg(unix)]
            Self::Unix(_) => None,
        }
    }

    /// Returns `true` if the client speaks TLS.
    pub(crate) const fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Waits until there is something to read, without a buffer.
    pub(crate) async fn readable(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp { stream, .. } => stream.readable().await,
            Self::Tls(stream) => {
                let (socket, session) = stream.get_mut();
                // A request may have arrived together with the end of the handshake.
                let state = session.process_new_packets().map_err(io::Error::other)?;
                if state.plaintext_bytes_to_read() > 0 || state.peer_has_closed() {
                    return Ok(());
                }
                socket.readable().await
            }
            #[cfg(unix)]
            Self::Unix(stream) => stream.readable().await,
        }
    }

    /// Writes what the system takes at once. TLS has to buffer, so it is always
    /// [`io::ErrorKind::WouldBlock`].
    #[inline]
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp { stream, .. } => stream.try_write(bytes),
            Self::Tls(_) => Err(io::ErrorKind::WouldBlock.into()),
            #[cfg(unix)]
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }

    /// Returns `true` if written bytes are sent by a flush only.
    #[inline]
    pub(crate) const fn needs_flush(&self) -> bool {
        self.is_tls()
    }

    /// Returns `true` if the system closes a client that reads nothing: see `Acceptor::prepare`.
    pub(crate) const fn has_write_limit(&self) -> bool {
        match self {
            #[cfg(unix)]
            Self::Unix(_) => false,
            _ => cfg!(target_os = "linux"),
        }
    }

    /// Tells a TLS client that the connection ends here. Without it, the client reports that the connection
    /// was cut.
    pub(crate) async fn close(&mut self) {
        if let Self::Tls(stream) = self {
            // The connection is dropped either way.
            let _ = timeout(LINGER, stream.shutdown()).await;
        }
    }
}

/// Recognises a client that speaks TLS to a port without it, by its first bytes.
pub(crate) struct FirstRead {
    pub(crate) server: Arc<ServerState>,
    pub(crate) protocol: Protocol,
}

impl FirstRead {
    /// Counts and logs the client, and sends it an alert.
    #[cold]
    fn refuse(&self, stream: &TcpStream) -> io::Error {
        // Closing with unread input would discard the alert. If it gets lost, the client still sees that the
        // connection ends.
        let mut ignored = [0; 2048];
        // A client that sends without end is not read to the end.
        for _ in 0..32 {
            if !stream.try_read(&mut ignored).is_ok_and(|read| read == ignored.len()) {
                break;
            }
        }
        let _ = stream.try_write(&ALERT);
        self.server.handshake_failed(self.protocol, &UnexpectedTls);
        io::Error::new(io::ErrorKind::InvalidData, UnexpectedTls)
    }
}

impl fmt::Debug for FirstRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstRead").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

/// Returns `true` for the first bytes of a TLS client. No request of any protocol begins like this.
const fn is_client_hello(bytes: &[u8]) -> bool {
    matches!(bytes, [HANDSHAKE_RECORD, 3, 0..=4, ..])
}

impl AsyncRead for Stream {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp { stream, first } => {
                let known = buffer.filled().len();
                ready!(Pin::new(&mut *stream).poll_read(cx, buffer))?;
                match first.take() {
                    Some(first) if is_client_hello(&buffer.filled()[known..]) => {
                        return Poll::Ready(Err(first.refuse(stream)));
                    }
                    _ => {}
                }
                Poll::Ready(Ok(()))
            }
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

/// Calls the same method of the stream inside.
macro_rules! delegate {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Self::Tcp { stream: $stream, .. } => $call,
            Self::Tls($stream) => $call,
            #[cfg(unix)]
            Self::Unix($stream) => $call,
        }
    };
}

impl AsyncWrite for Stream {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        delegate!(self, stream => Pin::new(stream).poll_write(cx, bytes))
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }

    #[inline]
    fn is_write_vectored(&self) -> bool {
        true
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        delegate!(self, stream => Pin::new(stream).poll_write_vectored(cx, slices))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_hello_is_told_from_requests() {
        for hello in [[22, 3, 1, 2, 0], [22, 3, 3, 0, 200]] {
            assert!(is_client_hello(&hello));
        }
        let others: [&[u8]; 6] =
            [b"", b"GET / HTTP/1.1", b"*1\r\n", b"PRI * HTTP/2.0", b"\x80\x01\0\x01", b"\0\0\0\x16\x03\x01"];
        for other in others {
            assert!(!is_client_hello(other), "{other:?}");
        }
    }
}
