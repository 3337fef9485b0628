//! The one place where the cryptography of TLS is chosen: ring, which needs no C++ and no cmake to build.

/// Makes ring the choice for the client of Redis, which leaves it to the process; a choice that was made before stands.
pub(crate) fn provide() {
    rustls::crypto::ring::default_provider().install_default().ok();
}
