//! Goal: the alerts and the dashboard in `monitoring/` read metrics that exist, and each alert fires when it
//! should and is silent otherwise. Method: `promtool`, which is Prometheus' own, and a running service.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use snowmint_test_servers::snowmint::third_party::{output, run_with_input};
use snowmint_test_servers::snowmint::{self, Serve, http};
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

/// Goal: a metric has one name everywhere, by the conventions of Prometheus, and none is undocumented.
/// Method: a service with every feature on; `promtool check metrics` judges the names, and the pages and files
/// that name metrics are compared with those that it shows.
#[test]
fn every_metric_is_documented_and_every_documented_one_is_shown() {
    let data = tempfile::tempdir().unwrap();
    let namespaces = "[namespaces.orders]\nscheme = 'segment'\n\
                      [namespaces.daily]\nscheme = 'segment'\nreset = 'daily'\ntext = '{date}-{number:6}'\n\
                      [namespaces.fast]\nscheme = 'snowflake'\nrule = 'borrow(1s)'\n";
    std::fs::write(data.path().join("ns.toml"), namespaces).unwrap();
    let rights = ["--namespaces", "*", "--file", "tokens.toml"];
    let token = snowmint::run(data.path(), ["token", "create", "ops"].into_iter().chain(rights));
    let token = String::from_utf8(token.stdout).unwrap().trim().to_owned();
    let (certificates, probe) = (Certificates::make(), port::free());
    let files = ["--namespaces-file", "ns.toml", "--tokens-file", "tokens.toml"];
    // Nobody listens there: the spans are dropped.
    let ports = ["--probe", &probe.to_string(), "--otlp-endpoint", "http://127.0.0.1:9"];
    let tls = ["--tls-cert".as_ref(), certificates.certificate(), "--tls-key".as_ref(), certificates.key()];
    let server = Serve::new(data.path()).args(files).args(ports).args(tls).spawn();
    server.log_with("ready: ids are served", Duration::from_secs(30));
    let header = format!("Authorization: Bearer {token}");
    for (namespace, count) in [("orders", 1), ("daily", 1), ("fast", 100_000)] {
        let url = format!("https://{}/v1/ids/{namespace}?count={count}", server.http());
        output("curl", ["-sS", "--fail", "--insecure", "-H", &header, "-X", "POST", "-o", "/dev/null", &url]);
    }
    let shown = http::get(probe, "/metrics").unwrap().body;
    let linted = run_with_input("promtool", ["check", "metrics"], &shown);
    assert!(linted.status.success(), "{}", snowmint::text(&linted));
    let described = shown.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let shown: BTreeSet<String> =
        described.filter(|name| name.starts_with("snowmint_")).map(str::to_owned).collect();
    assert!(shown.len() > 40, "{shown:?}");
    for page in ["docs/metrics.md", "docs/zh/metrics.md"] {
        let text = std::fs::read_to_string(folder().join("..").join(page)).unwrap();
        // Rows of the table; other words of the page are attributes of spans.
        let named = names(&text.lines().filter(|line| line.starts_with("| ")).collect::<String>());
        assert_eq!(named, shown, "{page} names the left ones, and a service shows the right ones");
    }
    for file in ["alerts.yml", "alerts_test.yml", "dashboard.json"] {
        let used = names(&std::fs::read_to_string(folder().join(file)).unwrap());
        assert!(used.len() > 10, "{file}: {used:?}");
        let unknown: Vec<_> = used.difference(&shown).collect();
        assert!(unknown.is_empty(), "{file} reads {unknown:?}, which no service shows");
    }
}

/// Goal: Grafana imports the dashboard, and each panel has a query that Prometheus accepts, and shows the nodes
/// that the variables choose. Method: `promtool` checks the queries as rules, with values for the variables.
#[test]
fn the_dashboard_can_be_imported_and_its_queries_are_valid() {
    let text = std::fs::read_to_string(folder().join("dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(dashboard["__inputs"][0]["name"], "DS_PROMETHEUS", "the import asks for the Prometheus");
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert_eq!(variables[0]["current"]["value"], "${DS_PROMETHEUS}");
    for name in ["cluster", "job", "instance", "namespace"] {
        assert!(variables.iter().any(|it| it["name"] == name && it["allValue"] == ".*"), "${name}");
    }
    let (mut rules, mut taken, mut ids) = (String::new(), BTreeSet::new(), BTreeSet::new());
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.iter().filter(|panel| panel["type"] == "row").count() >= 4, "rows");
    for panel in panels {
        let (title, place) = (&panel["title"], &panel["gridPos"]);
        assert!(ids.insert(panel["id"].as_u64()), "{title} has an id of its own");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|of| place[of].as_u64().unwrap());
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(cell) && cell.0 < 24, "{title} lies over another panel");
        }
        let targets = panel["targets"].as_array();
        assert!(targets.is_some() || panel["type"] == "row", "{title} shows something");
        let description = panel["description"].as_str().unwrap_or_default();
        assert!(!description.is_empty() || panel["type"] == "row", "{title} says what it shows");
        for target in targets.into_iter().flatten() {
            let query = target["expr"].as_str().unwrap();
            assert!(query.contains("cluster=~\"$cluster\",job=~\"$job\""), "{title}: {query}");
            let query = query.replace("$__rate_interval", "5m").replace('$', "");
            rules += &format!("  - {{record: a{}, expr: '{query}'}}\n", rules.len());
        }
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("groups:\n- name: queries\n  rules:\n{rules}")).unwrap();
    output("promtool", ["check".as_ref(), "rules".as_ref(), file.path()]);
}

/// Returns the names of the metrics in a text, without the suffixes of the samples of a histogram.
fn names(text: &str) -> BTreeSet<String> {
    let is_of_name = |at: char| at.is_ascii_lowercase() || at.is_ascii_digit() || at == '_';
    let rests = text.match_indices("snowmint_").map(|(at, _)| &text[at..]);
    let names = rests.map(|rest| rest.split(|at| !is_of_name(at)).next().unwrap_or(rest));
    let family = |name: &str| {
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|it| name.strip_suffix(it));
        of_histogram.filter(|it| it.ends_with("_seconds")).unwrap_or(name).to_owned()
    };
    names.map(family).collect()
}
