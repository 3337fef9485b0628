//! The settings of TLS, from the files that a URL names, for stores that use rustls themselves.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::url::{PemFile, StoreUrl, TlsFiles};
use crate::UrlError;

/// The parameters of a URL.
pub(crate) const PARAMETERS: [&str; 3] = [CA, CERT, KEY];
const CA: &str = "ca";
const CERT: &str = "cert";
const KEY: &str = "key";

/// The certificate authorities to trust if a URL names none.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DefaultRoots {
    /// None: for connections without TLS.
    Nobody,
    /// Those of the system.
    System,
}

/// What to do on a system without authorities, such as a minimal container. The library's own text lists the
/// folders in which it looked.
const NO_ROOTS: &str = "this system has no certificates of authorities: install its ca-certificates, or name an authority with ca=";

/// Removes the parameters of TLS from a URL, and returns the settings with the files; `ca` replaces a missing
/// authority.
pub(crate) fn take(
    location: &mut StoreUrl,
    ca: Option<PathBuf>,
    default: DefaultRoots,
) -> Result<(ClientConfig, TlsFiles), UrlError> {
    let files = location.read_tls(PARAMETERS, ca)?;
    let config = config(&files, default).map_err(|problem| location.malformed(&problem))?;
    Ok((config, files))
}

/// Builds the settings. An error names the parameter and its file.
pub(crate) fn config(files: &TlsFiles, default: DefaultRoots) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut roots = RootCertStore::empty();
    match (&files.ca, default) {
        (Some(ca), _) => {
            for certificate in certificates(CA, ca)? {
                roots.add(certificate).map_err(|error| fault(CA, ca, &error))?;
            }
        }
        (None, DefaultRoots::System) => {
            // Systems contain a few certificates that nobody can parse.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(NO_ROOTS.to_owned());
            }
        }
        (None, DefaultRoots::Nobody) => {}
    }
    let builder = builder.with_root_certificates(roots);
    let Some((cert, key)) = &files.client else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(CERT, cert)?;
    let secret = PrivateKeyDer::from_pem_slice(&key.pem).map_err(|error| fault(KEY, key, &error))?;
    builder.with_client_auth_cert(chain, secret).map_err(|error| fault(CERT, cert, &error))
}

fn certificates(parameter: &str, file: &PemFile) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&file.pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(fault(parameter, file, &"the file has no certificate")),
        Err(error) => Err(fault(parameter, file, &error)),
    }
}

fn fault(parameter: &str, file: &PemFile, error: &dyn fmt::Display) -> String {
    format!("{parameter}={}: {error}", file.path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_its_parameter_and_its_file() {
        let empty = || PemFile { path: PathBuf::from("empty.pem"), pem: Vec::new() };
        let fault = |ca, client| config(&TlsFiles { ca, client }, DefaultRoots::System).unwrap_err();
        assert_eq!(fault(Some(empty()), None), "ca=empty.pem: the file has no certificate");
        let text = fault(None, Some((empty(), empty())));
        assert_eq!(text, "cert=empty.pem: the file has no certificate");
    }
}
