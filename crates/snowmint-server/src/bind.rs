//! Opens a port, or says in one sentence which one, what for, why not, and what to do about it.
//! Ports are opened before a lease is sought, so that a busy port costs no lease.

use std::io;

use tokio::net::TcpListener;

/// A port that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({flag}): {}", self.reason())]
pub struct BindError {
    /// The address that was asked for.
    pub address: String,
    /// The flag it came from.
    pub flag: &'static str,
    /// What the system said.
    pub source: io::Error,
}

/// Listens on `address`, a `host:port` that came from the flag `flag`; port 0 takes any free port.
///
/// # Errors
///
/// [`BindError`] names address, flag, cause and remedy.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let taken = snowmint_server::bind("127.0.0.1:0", "--http").await?;
/// let address = taken.local_addr()?.to_string();
/// let error = snowmint_server::bind(&address, "--http").await.unwrap_err();
/// assert!(error.to_string().contains("(--http): another program uses this port"));
/// # Ok(())
/// # }
/// ```
pub async fn bind(address: &str, flag: &'static str) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.map_err(|source| BindError { address: address.to_owned(), flag, source })
}

impl BindError {
    fn reason(&self) -> String {
        let Self { source, flag, .. } = self;
        match source.kind() {
            io::ErrorKind::AddrInUse => format!(
                "another program uses this port; end it, or choose another port with {flag} (port 0 takes a free one)"
            ),
            io::ErrorKind::PermissionDenied => {
                format!("not permitted; ports below 1024 need a privilege, choose a higher one with {flag}")
            }
            io::ErrorKind::AddrNotAvailable => format!(
                "no network interface has this address; give one of this machine, or 0.0.0.0 for all, with {flag}"
            ),
            io::ErrorKind::InvalidInput => format!("this is no address; write {flag} HOST:PORT"),
            _ => format!("{source}; give an address of this machine with {flag} HOST:PORT"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_cause_is_told_with_its_remedy() {
        for (address, wanted) in [
            ("192.0.2.1:80", "no network interface has this address"),
            ("127.0.0.1", "this is no address; write --resp HOST:PORT"),
            ("127.0.0.1:x", "--resp HOST:PORT"),
        ] {
            let error = bind(address, "--resp").await.unwrap_err().to_string();
            assert!(error.starts_with(&format!("cannot listen on {address} (--resp): ")), "{error}");
            assert!(error.contains(wanted), "{error}");
        }
    }
}
