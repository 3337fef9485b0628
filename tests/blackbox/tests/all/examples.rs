//! The examples in other languages, started as their READMEs say: real frameworks, stock clients. The Rust
//! example has its own test.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use snowmint_test_servers::snowmint::third_party::{output, run};
use snowmint_test_servers::snowmint::{Serve, Server, workspace};
use snowmint_test_servers::{Postgres, port, time};

struct Example {
    child: Child,
    url: String,
}

impl Drop for Example {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Example {
    /// Starts a program in the folder of its example, and waits for the port that is the last argument.
    fn start(folder: &str, program: &[&str], server: &Server) -> Self {
        let port = port::free().port().to_string();
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).current_dir(workspace().join("examples").join(folder));
        if program[0] == "python3" {
            command.args(["--port", &port]);
        }
        let child = command
            .env("PORT", &port)
            .env("SNOWMINT_URL", format!("redis://{}", server.resp()))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let example = Self { child, url: format!("http://127.0.0.1:{port}/orders") };
        time::eventually("the example listens", Duration::from_mins(1), || {
            let asked = run("curl", ["-s", "-o", "/dev/null", &example.url]);
            asked.status.success().then_some(())
        });
        example
    }

    fn post(&self, body: &str) -> Value {
        let sent = ["-sf", "-H", "content-type: application/json", "-d", body, &self.url];
        serde_json::from_str(&output("curl", sent)).unwrap()
    }

    fn find(&self, id: &str) -> Value {
        serde_json::from_str(&output("curl", ["-sf", &format!("{}/{id}", self.url)])).unwrap()
    }

    fn status_without_mint(&self, body: &str) -> String {
        let status = ["-s", "-o", "/dev/null", "-w", "%{http_code}"];
        let sent = ["-H", "content-type: application/json", "-d", body, &self.url];
        output("curl", [&status[..], &sent[..]].concat())
    }
}

/// Goal: the `FastAPI` example gives orders ids that increase, reads them back, and answers 503 without the
/// service.
#[test]
fn fastapi() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let program = ["python3", "-m", "uvicorn", "--log-level", "warning", "app:app"];
    let example = Example::start("fastapi", &program, &server);
    let mut last = 0;
    for _ in 0..5 {
        let order = example.post("[\"apple\", \"pear\"]");
        let id: u64 = order["id"].as_str().unwrap().parse().unwrap();
        assert!(id > last, "{id} after {last}");
        last = id;
        let lines: Vec<_> =
            order["lines"].as_array().unwrap().iter().map(|it| it["line"].as_str().unwrap()).collect();
        assert!(lines.len() == 2 && lines[0] < lines[1], "{order}");
        let found = example.find(&id.to_string());
        assert!(
            found["made_at"].as_str().unwrap().ends_with('Z') && found["lines"] == order["lines"],
            "{found}"
        );
    }
    server.stop();
    assert_eq!(example.status_without_mint("[\"apple\"]"), "503");
}

/// Goal: the Node.js example keeps every digit of an id, and answers 503 without the service.
#[test]
fn node() {
    let folder = tempfile::tempdir().unwrap();
    let modules = workspace().join("target/node/node_modules");
    assert!(modules.join("redis").is_dir(), "node-redis is missing: install it with `./check tools`");
    // A copy next to its modules, as `npm install` leaves it.
    let copy = folder.path().join("node");
    std::fs::create_dir(&copy).unwrap();
    for file in ["app.js", "package.json"] {
        std::fs::copy(workspace().join("examples/node").join(file), copy.join(file)).unwrap();
    }
    std::os::unix::fs::symlink(&modules, copy.join("node_modules")).unwrap();
    let server = Serve::new(folder.path()).start();
    let example = Example::start(path(&copy), &["node", "app.js"], &server);
    let order = example.post("{}");
    let id = order["id"].as_str().unwrap();
    assert!(id.parse::<u64>().unwrap() > 1 << 53, "{id} has more digits than a number of JavaScript keeps");
    let found = example.find(id);
    assert_eq!(found["id"], order["id"]);
    assert_eq!(found["even"], id.parse::<u64>().unwrap() % 2 == 0, "{found}");
    assert!(found["madeAt"].as_str().unwrap().ends_with('Z'), "{found}");
    server.stop();
    assert_eq!(example.status_without_mint("{}"), "503");
}

/// Goal: the queue gives each job to one worker, oldest first, and its functions read the time in the ids of
/// the service.
#[test]
fn job_queue() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::new(folder.path()).start();
    let postgres = Postgres::start();
    postgres.sql(&std::fs::read_to_string(workspace().join("examples/job-queue/queue.sql")).unwrap());
    let before = time::unix_ms();
    let ids = server.take(5);
    for id in ids.iter().rev() {
        postgres.sql(&format!("INSERT INTO jobs (id, work) VALUES ({id}, 'job {id}')"));
    }
    let taken: Vec<_> =
        (0..6).map(|nth| postgres.sql(&format!("SELECT id FROM job_take('worker-{nth}')"))).collect();
    let wanted: Vec<_> = ids.iter().map(ToString::to_string).chain([String::new()]).collect();
    assert_eq!(taken, wanted, "oldest first, each once, then none");
    let first = ids[0];
    let made_at: u64 = postgres
        .sql(&format!("SELECT extract(epoch FROM job_time({first})) * 1000"))
        .split('.')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(made_at.abs_diff(before) < 60_000, "{made_at} and {before}");
    assert_eq!(postgres.sql(&format!("SELECT job_first_id(job_time({first})) = ({first} >> 22) << 22")), "t");
    assert_eq!(
        postgres.sql("SELECT count(*) FROM jobs WHERE id >= job_first_id(now() - interval '1 hour')"),
        "5"
    );
    assert_eq!(
        postgres.sql("SELECT count(*) FROM jobs WHERE id >= job_first_id(now() + interval '1 hour')"),
        "0"
    );
    assert_eq!(postgres.sql("SELECT lag IS NULL FROM jobs_lag"), "t", "nothing waits");
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
