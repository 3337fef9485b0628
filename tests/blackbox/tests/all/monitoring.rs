//! Goal: the alerts and the dashboard in `monitoring/` read metrics that exist, and each alert fires when it
//! should and is silent otherwise. Method: `promtool`, which is Prometheus' own, and a running service.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use snowmint_test_servers::snowmint::{Serve, http};
use snowmint_test_servers::{Certificates, port};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../monitoring")
}

#[test]
fn promtool_accepts_the_alerts_and_each_fires_when_it_should() {
    for args in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        let ran = Command::new("promtool").args(args).current_dir(folder()).output().unwrap();
        let told = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
        assert!(ran.status.success(), "{args:?}: {told}");
    }
    let text = |file: &str| std::fs::read_to_string(folder().join(file)).unwrap();
    let (alerts, tests) = (text("alerts.yml"), text("alerts_test.yml"));
    let names: Vec<_> = alerts.split("- alert: ").skip(1).filter_map(|rest| rest.lines().next()).collect();
    assert!(names.len() >= 10, "{names:?}");
    for name in names {
        assert!(
            tests.contains(&format!("alertname: {name}, exp_alerts: []")),
            "{name} is silent without a cause"
        );
        assert!(tests.contains(&format!("alertname: {name}\n")), "{name} fires");
    }
}

#[test]
fn every_metric_of_the_alerts_and_the_dashboard_is_shown_by_a_service() {
    let data = tempfile::tempdir().unwrap();
    let namespaces = data.path().join("ns.toml");
    std::fs::write(&namespaces, "[namespaces.orders]\nscheme = 'segment'\n").unwrap();
    let server = Serve::new(data.path()).args([Path::new("--namespaces-file"), &namespaces]).start();
    server.take(1);
    let mut shown = server.get("/metrics").body;
    // Some metrics are shown with TLS only.
    let (certificates, probe) = (Certificates::make(), port::free());
    let tls = ["--tls-cert".as_ref(), certificates.certificate(), "--tls-key".as_ref(), certificates.key()];
    let with_tls = Serve::new(data.path()).args(tls).args(["--probe", &probe.to_string()]).spawn();
    with_tls.log_with("ready: ids are served", Duration::from_secs(30));
    shown += &http::get(probe, "/metrics").unwrap().body;
    let names = |text: &str| -> BTreeSet<String> {
        let is_of_name = |at: char| at.is_ascii_lowercase() || at.is_ascii_digit() || at == '_';
        let rests = text.match_indices("snowmint_").map(|(at, _)| &text[at..]);
        rests.map(|rest| rest.split(|at| !is_of_name(at)).next().unwrap_or(rest).to_owned()).collect()
    };
    for file in ["alerts.yml", "dashboard.json"] {
        let used = names(&std::fs::read_to_string(folder().join(file)).unwrap());
        assert!(used.len() > 10, "{file}: {used:?}");
        for name in used {
            let family = name.trim_end_matches("_bucket");
            assert!(
                shown.contains(&format!("# TYPE {family} ")),
                "{file} reads {name}, which no service shows"
            );
        }
    }
}
