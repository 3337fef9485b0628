//! TLS with an authority of one's own, and client certificates.

use snowmint_client::{Client, ErrorKind};
use snowmint_test_servers::Certificates;
use snowmint_test_servers::snowmint::{Serve, Server};

use super::PATIENCE;

fn serve(folder: &std::path::Path, certificates: &Certificates, more: &[&std::ffi::OsStr]) -> Server {
    let server = Serve::new(folder)
        .args(["--tls-cert".as_ref(), certificates.certificate().as_os_str()])
        .args(["--tls-key".as_ref(), certificates.key().as_os_str()])
        .args(more)
        .spawn();
    server.log_with("ready: ids are served", PATIENCE);
    server
}

/// Goal: ids only from a server that the authority vouches for, and with the certificate that the server wants.
#[test]
fn ids_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, others) = (Certificates::make(), Certificates::make());
    let more = ["--tls-client-ca".as_ref(), ours.authority().as_os_str()];
    let server = serve(folder.path(), &ours, &more);
    let builder = || Client::builder().server(format!("https://localhost:{}", server.http().port()));
    let known = builder()
        .ca_file(ours.authority())
        .client_certificate(ours.client_certificate(), ours.client_key())
        .timeout(PATIENCE);
    let ids = known.build().unwrap().namespace("default").unwrap();
    assert_eq!(ids.blocking_next_ids(5000).unwrap().len(), 5000);

    let soon = std::time::Duration::from_secs(3);
    let unknown = builder().ca_file(others.authority()).timeout(soon);
    let without = builder().ca_file(ours.authority()).timeout(soon);
    let plain = Client::builder().server(format!("http://{}", server.http())).timeout(soon);
    for (builder, kind, said) in [
        (unknown, ErrorKind::Unavailable, "certificate"),
        (without, ErrorKind::Unavailable, "ertificate"),
        (plain, ErrorKind::Rejected, "https://"),
    ] {
        let error = builder.build().unwrap().namespace("default").unwrap().blocking_next_id().unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}
