//! Listeners on every address of hosts with IPv4, IPv6 or both, each in a network namespace.

use snowmint_test_servers::snowmint::binary;
use snowmint_test_servers::snowmint::third_party::output;

const HOST: &str = include_str!("listeners/host.py");

/// Serves `[::]` on a host of this kind; returns what its clients see.
fn served_on(kind: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (binary, folder) = (binary().display().to_string(), folder.path().display().to_string());
    output("unshare", ["-rn", "python3", "-c", HOST, kind, &binary, &folder])
}

/// Goal: `[::]`, as in the image and the manifests, serves every host, and shows clients of IPv4 by their IPv4
/// address. Method: hosts whose sockets for IPv6 exclude IPv4 by default, without IPv6 addresses, without IPv6 in
/// the kernel, and without IPv4.
#[test]
fn every_kind_of_host_serves_all_its_addresses() {
    let both = "127.0.0.1: from 127.0.0.1\n::1: from [::1]\nlistens on [::]:8080\n";
    for (kind, wanted) in [
        ("both", both),
        ("apart by default", both),
        ("without IPv6 addresses", "127.0.0.1: from 127.0.0.1\n::1: EADDRNOTAVAIL\nlistens on [::]:8080\n"),
        ("without IPv6", "127.0.0.1: from 127.0.0.1\n::1: EAFNOSUPPORT\nlistens on 0.0.0.0:8080\n"),
        ("without IPv4", "127.0.0.1: ENETUNREACH\n::1: from [::1]\nlistens on [::]:8080\n"),
    ] {
        assert_eq!(served_on(kind), wanted, "a host {kind}");
    }
}
