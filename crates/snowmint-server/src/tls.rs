//! TLS: certificates from files, which are loaded again when they change. The handshake is in `accept`.

mod expiry;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};
use snowmint::{Clock as _, WallClock};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::limits::PROTOCOLS;
use crate::protocol::Protocol;
use crate::telemetry::recurring_problem::RecurringProblem;
use crate::watched_files::WatchedFiles;
use expiry::ExpiryLog;

/// The flags that name the files.
const CERTIFICATE: &str = "--tls-cert";
const KEY: &str = "--tls-key";
const CLIENT_AUTHORITY: &str = "--tls-client-ca";

/// The versions of HTTP that TLS clients may choose, best first.
const HTTP_ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The files of a TLS server, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of the server, followed by those of intermediate authorities.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The authorities of client certificates. If it is set, clients must have a certificate of one of them.
    pub client_authority: Option<PathBuf>,
}

/// The TLS settings of all TCP ports, which change when the files change.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    watched: WatchedFiles,
    current: ArcSwap<Configs>,
}

#[derive(Debug)]
struct Configs {
    http: Arc<ServerConfig>,
    grpc: Arc<ServerConfig>,
    /// For protocols without a name in TLS.
    other: Arc<ServerConfig>,
    /// When the first certificate of the chain expires, if it can be read.
    expires_unix_ms: Option<u64>,
}

/// A file of certificates or keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: cannot use {}: {why}", path.display())]
pub struct TlsError {
    /// The flag that names the file.
    pub flag: &'static str,
    /// The file.
    pub path: PathBuf,
    why: String,
}

impl Tls {
    /// Loads the files.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a file cannot be read, has no certificate or key, or if the key is not that of the
    /// certificate.
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let watched = WatchedFiles::new(files.paths());
        let current = ArcSwap::from_pointee(Configs::load(&files)?);
        Ok(Self { files, watched, current })
    }

    /// Returns `true` if clients must have a certificate.
    pub const fn requires_client_certificates(&self) -> bool {
        self.files.client_authority.is_some()
    }

    /// Returns when the certificate expires, in unix milliseconds: the first one of its chain. `None` if it
    /// cannot be read.
    pub fn expires_unix_ms(&self) -> Option<u64> {
        self.current.load().expires_unix_ms
    }

    /// Loads the files again at each `reload`, and when they change; never ends. Invalid files are logged,
    /// and the last valid ones stay in use. Open connections keep the certificates that they began with.
    pub async fn follow(&self, reload: &Notify) -> ! {
        let report = |error: &str| {
            tracing::warn!(error, "TLS files not reloaded; the previous certificate stays in use");
        };
        self.watched.follow(reload, || self.reload(), report).await
    }

    /// Logs once a day that the certificate has expired, or will within 14 days; never ends.
    pub async fn follow_expiry(&self) -> ! {
        let mut log = ExpiryLog::default();
        loop {
            log.look(&self.files.certificate, self.expires_unix_ms(), WallClock.unix_ms());
            sleep(expiry::LOOK_INTERVAL).await;
        }
    }

    async fn reload(&self) -> Result<(), String> {
        let files = self.files.clone();
        let certificate = self.files.certificate.display();
        // Disks may be slow, and the threads of this runtime serve clients.
        match tokio::task::spawn_blocking(move || Configs::load(&files)).await {
            Ok(Ok(configs)) => {
                self.current.store(Arc::new(configs));
                tracing::info!(%certificate, "TLS files reloaded");
                Ok(())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(crate) fn config(&self, protocol: Protocol) -> Arc<ServerConfig> {
        let current = self.current.load();
        Arc::clone(match protocol {
            // The port for health and metrics has no TLS.
            Protocol::Http | Protocol::Probe => &current.http,
            Protocol::Grpc => &current.grpc,
            Protocol::Resp | Protocol::Thrift => &current.other,
        })
    }
}

impl Configs {
    fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let invalid_key = |why: &dyn std::fmt::Display| TlsError::new(KEY, &files.key, why);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid_key(&error))?;
        let builder = match &files.client_authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let invalid = |why: &dyn std::fmt::Display| TlsError::new(CLIENT_AUTHORITY, path, why);
                let mut roots = RootCertStore::empty();
                for certificate in certificates(CLIENT_AUTHORITY, path)? {
                    roots.add(certificate).map_err(|error| invalid(&error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().map_err(|error| invalid(&error))?)
            }
        };
        let chain = certificates(CERTIFICATE, &files.certificate)?;
        let expires_unix_ms = expiry::of_chain(&chain);
        let other = builder.with_single_cert(chain, key(&files.key)?).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => invalid_key(&format_args!(
                "the key is not that of the certificate {}; give the key that the certificate was requested with",
                files.certificate.display()
            )),
            rustls::Error::InvalidCertificate(_) => TlsError::new(CERTIFICATE, &files.certificate, &error),
            _ => invalid_key(&format_args!("{error}; expected an RSA, ECDSA or Ed25519 key")),
        })?;
        let mut http = other.clone();
        http.alpn_protocols = HTTP_ALPN.iter().map(|name| name.to_vec()).collect();
        let mut grpc = other.clone();
        // Clients require the choice of HTTP/2.
        grpc.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { http: Arc::new(http), grpc: Arc::new(grpc), other: Arc::new(other), expires_unix_ms })
    }
}

impl TlsError {
    fn new(flag: &'static str, path: &Path, why: &dyn std::fmt::Display) -> Self {
        Self { flag, path: path.to_owned(), why: why.to_string() }
    }
}

fn read(flag: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| {
        TlsError::new(flag, path, &format_args!("{error}; check the path and who may read the file"))
    })
}

fn certificates(flag: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(flag, path)?;
    let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| TlsError::new(flag, path, &format_args!("invalid PEM: {error}")))?;
    if found.is_empty() {
        let why = "no certificate; expected PEM with -----BEGIN CERTIFICATE-----";
        return Err(TlsError::new(flag, path, &why));
    }
    Ok(found)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = read(KEY, path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
        let encrypted = pem.windows(9).any(|word| word == b"ENCRYPTED");
        match error {
            _ if encrypted => TlsError::new(
                KEY,
                path,
                &"the key is encrypted; decrypt it with `openssl pkey -in FILE -out NEWFILE`",
            ),
            rustls::pki_types::pem::Error::NoItemsFound => {
                TlsError::new(KEY, path, &"no private key; expected PEM with -----BEGIN PRIVATE KEY-----")
            }
            error => TlsError::new(KEY, path, &format_args!("invalid PEM: {error}")),
        }
    })
}

impl TlsFiles {
    fn paths(&self) -> Vec<PathBuf> {
        let files = [Some(&self.certificate), Some(&self.key), self.client_authority.as_ref()];
        files.into_iter().flatten().cloned().collect()
    }
}

/// The log of failed handshakes: a line a minute at most for each protocol, since anybody on the network can
/// cause them.
#[derive(Debug, Default)]
pub(crate) struct HandshakeLog([Mutex<RecurringProblem>; PROTOCOLS]);

impl HandshakeLog {
    pub(crate) fn failed(&self, protocol: Protocol, error: &dyn Error) {
        let problem = &self.0[protocol as usize];
        let failures = problem.lock().unwrap_or_else(PoisonError::into_inner).occurred();
        if let Some(failures) = failures {
            tracing::warn!(protocol = protocol.name(), %error, failures, "TLS handshake failed");
        }
    }
}
