//! TLS with a private certificate authority, and client certificates.

use snowmint_client::{Client, ErrorKind, ServerOrder};
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

/// Goal: ids come only from a server that the authority has certified, and with the client certificate that
/// the server requires.
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

    let unknown = builder().ca_file(others.authority()).timeout(PATIENCE);
    let without = builder().ca_file(ours.authority()).timeout(PATIENCE);
    let plain = Client::builder().server(format!("http://{}", server.http())).timeout(PATIENCE);
    for (builder, kind, said) in [
        (unknown, ErrorKind::InvalidCertificate, "; check the certificates"),
        (without, ErrorKind::InvalidCertificate, "; check the certificates of"),
        (plain, ErrorKind::Rejected, "https://"),
    ] {
        let client = builder.build().unwrap();
        let error = client.namespace("default").unwrap().blocking_next_id().unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(said) && !error.is_temporary(), "{error}");
        if said != "; check the certificates of" {
            // The server may close the connection before its rejection of the client's certificate arrives.
            assert_eq!(client.stats().requests, 1, "a retry would fail the same way");
        }
    }
}

/// Goal: a server with an invalid certificate is skipped while another one has a valid certificate. Method:
/// two servers, each with its own authority, of which the client knows one.
#[test]
fn an_invalid_certificate_fails_over() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let certificates = [Certificates::make(), Certificates::make()];
    let [invalid, valid] = [0, 1].map(|it| serve(folders[it].path(), &certificates[it], &[]));
    let url = |server: &Server| format!("https://localhost:{}", server.http().port());
    let builder = Client::builder().server(url(&invalid)).server(url(&valid));
    let builder = builder.order(ServerOrder::AsListed).ca_file(certificates[1].authority());
    let client = builder.timeout(PATIENCE).build().unwrap();
    assert_eq!(client.namespace("default").unwrap().blocking_next_ids(100).unwrap().len(), 100);
    assert!(client.stats().failed >= 1, "the first server was asked");
}
