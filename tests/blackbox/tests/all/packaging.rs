//! The shipped files besides the binary: the Debian package, the container image, and manifests.
//! `packaging/release.sh` runs these tests on the binary that it ships, through `SNOWMINT_BIN`.

use std::path::PathBuf;

use snowmint_test_servers::snowmint::third_party::output;
use snowmint_test_servers::snowmint::{binary, workspace};

fn packaging(file: &str) -> PathBuf {
    workspace().join("packaging").join(file)
}

fn path(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

/// Goal: the package installs, its service runs as the unit's user, an upgrade keeps the administrator's
/// changes, and only a purge deletes data. Method: `dpkg` in a temporary copy of this system.
#[test]
fn the_debian_package_installs_serves_and_goes() {
    let folder = tempfile::tempdir().unwrap();
    let script = packaging("debian/build.sh");
    // Packed without compression: the debug binary is large.
    let built = output("env", ["COMPRESSION=none", path(&script), path(&binary()), path(folder.path())]);
    let said = output(path(&packaging("debian/try.sh")), [built.trim()]);
    for line in ["units verified", "installed; first id", "upgraded; next id", "removed; purged"] {
        assert!(said.contains(line), "{line}: {said}");
    }
}

/// Goal: the image contains everything that it needs, writes only to its volume, and finds its store by name.
/// Method: its file tree with `chroot`, without network except loopback.
#[test]
fn the_image_serves_as_an_ordinary_user() {
    let said = output(path(&packaging("docker/try.sh")), [path(&binary())]);
    for line in ["user 65532:65532; id ", "names resolved without", "names resolved with foreign"] {
        assert!(said.contains(line), "{line}: {said}");
    }
}

/// Goal: Kubernetes, Docker and Compose accept the manifests, and `serve` accepts their settings. Method:
/// their schemas and parsers, as `packaging/check.py` explains.
#[test]
fn manifests_are_valid() {
    let said = output("python3", [path(&packaging("check.py")), path(&binary())]);
    for name in
        ["Dockerfile", "compose.yaml", "deployment", "statefulset", "overlays/production", "overlays/tls"]
    {
        assert!(said.contains(name), "{name}: {said}");
    }
}

/// Goal: the unit gives its process few rights. Method: `systemd-analyze security`, whose scale goes from 0
/// (safest) to 100.
#[test]
fn the_unit_is_not_exposed() {
    let unit = packaging("systemd/snowmint.service");
    let args = ["security", "--offline=true", "--threshold=20", "--no-pager", path(&unit)];
    let said = output("systemd-analyze", args);
    assert!(said.contains("OK"), "{said}");
}
