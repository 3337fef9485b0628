//! The shipped files besides the binary: the Debian package, the container image, and manifests.
//! `packaging/release.sh` runs these tests on the binary that it ships, through `SNOWMINT_BIN`.

use std::path::PathBuf;

use serde_json::Value;
use snowmint_test_servers::Kubernetes;
use snowmint_test_servers::snowmint::third_party::output;
use snowmint_test_servers::snowmint::{Serve, binary, workspace};
use snowmint_test_servers::time::now;

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
    for name in [
        "Dockerfile",
        "compose.yaml",
        "deployment",
        "statefulset",
        "overlays/production",
        "overlays/prometheus-operator",
        "overlays/tls",
    ] {
        assert!(said.contains(name), "{name}: {said}");
    }
}

/// Goal: a real API server accepts all manifests and the chart, from its installation to its removal. Method: dry runs
/// of each kustomization, and `helm` on a server that runs no pods.
#[test]
#[ignore = "needs a real API server: see ./check kubernetes"]
fn kubernetes_accepts_the_manifests_and_the_chart() {
    let kubernetes = Kubernetes::start();
    let monitor = kubernetes.pod_monitor();
    kubernetes.kubectl(&["apply", "--server-side", "--filename", path(&monitor)]);
    kubernetes.kubectl(&["wait", "--for=condition=Established", "--filename", path(&monitor)]);
    // The namespace of overlays/production; a dry run does not create it.
    kubernetes.kubectl(&["create", "namespace", "ids"]);
    for (folder, workload) in [
        ("deployment", "deployment.apps"),
        ("statefulset", "statefulset.apps"),
        ("overlays/production", "deployment.apps"),
        ("overlays/prometheus-operator", "podmonitor.monitoring.coreos.com"),
        ("overlays/tls", "deployment.apps"),
    ] {
        let manifests = packaging("kubernetes").join(folder);
        let args = ["apply", "--server-side", "--dry-run=server", "--kustomize", path(&manifests)];
        let said = kubernetes.kubectl(&args);
        assert!(said.contains(&format!("{workload}/snowmint serverside-applied")), "{folder}: {said}");
    }

    let chart = packaging("helm/snowmint");
    let release = ["snowmint", path(&chart), "--namespace", "ids"];
    let said = kubernetes.helm(&[&["install"][..], &release].concat());
    assert!(said.contains("http://snowmint.ids:8080/v1/ids/default"), "{said}");
    let found = |kinds: &str| kubernetes.kubectl(&["get", kinds, "--namespace", "ids", "--output", "name"]);
    assert_eq!(found("deployments,networkpolicies").lines().count(), 2);
    let verbs = kubernetes.kubectl(&[
        "get",
        "role",
        "snowmint",
        "--namespace",
        "ids",
        "--output",
        "jsonpath={.rules[*].verbs}",
    ]);
    assert_eq!(verbs, r#"["get","list","create","patch"]"#);
    let values = ["--set", "kind=StatefulSet,podMonitor.enabled=true,tls.secretName=a,tokens.secretName=b"];
    let said = kubernetes.helm(&[&["upgrade"][..], &release, &values].concat());
    assert!(said.contains("https://snowmint.ids:8080/v1/ids/default"), "{said}");
    assert_eq!(found("deployments"), "");
    assert_eq!(found("statefulsets,podmonitors").lines().count(), 2);
    kubernetes.helm(&["uninstall", "snowmint", "--namespace", "ids"]);
    assert_eq!(found("statefulsets,podmonitors,services,roles,networkpolicies"), "");
}

/// Goal: a pod of the chart serves ids with the settings and rights that the chart gives it. Method: what a kubelet
/// does: the container's environment, and a token of its account. Prints the time from `helm install` to the first id.
#[test]
#[ignore = "needs a real API server: see ./check kubernetes"]
fn a_pod_of_the_chart_on_kubernetes_has_ids() {
    let kubernetes = Kubernetes::start();
    kubernetes.kubectl(&["create", "namespace", "ids"]);
    let began = now();
    kubernetes.helm(&["install", "snowmint", path(&packaging("helm/snowmint")), "--namespace", "ids"]);
    let deployment =
        kubernetes.kubectl(&["get", "deployment", "snowmint", "--namespace", "ids", "--output", "json"]);
    let deployment: Value = serde_json::from_str(&deployment).unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "snowmint");
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    kubernetes.write_token("ids", "1h", &token);
    let mut serve = Serve::new(folder.path());
    for variable in pod["containers"][0]["env"].as_array().unwrap() {
        let name = variable["name"].as_str().unwrap();
        serve = match (name, variable["value"].as_str()) {
            // Inside of a pod, it finds these by itself.
            ("SNOWMINT_STORE", Some("kubernetes:")) => {
                serve.env(name, kubernetes.store_url("ids", &token, kubernetes.server().port()))
            }
            (_, Some(value)) => serve.env(name, value),
            (_, None) => serve.env(name, "snowmint-0"),
        };
    }
    let (_, id) = serve.start().first_id();
    println!("{id} {} ms after the chart was to be installed", began.elapsed().as_millis());
    let holder = "jsonpath={.items[*].spec.holderIdentity}";
    let leases = kubernetes.kubectl(&["get", "leases", "--namespace", "ids", "--output", holder]);
    assert!(leases.contains("snowmint-0"), "{leases}");
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
