//! Greedy clients beside an honest one: they get the remaining capacity, and delay neither its requests nor
//! the lease.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use snowmint_test_servers::snowmint::http::{self, Http};
use snowmint_test_servers::snowmint::resp::command;
use snowmint_test_servers::snowmint::{self, Resp, Serve};
use snowmint_test_servers::time;

const PATIENCE: Duration = Duration::from_secs(10);
/// Long enough for a busy disk: a call of the node may take a quarter of it.
const WINDOW: Duration = Duration::from_secs(6);

/// Sends requests without a pause, and reads as fast as the server writes.
fn ask_greedily(client: &Resp, stop: &AtomicBool) {
    let requests = command(&["ID.NEXT", "random", "COUNT", "100000"]).repeat(100);
    let mut writer = client.socket().try_clone().unwrap();
    let mut reader = client.socket().try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| while !stop.load(Ordering::Relaxed) && writer.write_all(&requests).is_ok() {});
        let mut ignored = vec![0; 1 << 20];
        while !stop.load(Ordering::Relaxed) && reader.read(&mut ignored).is_ok_and(|read| read > 0) {}
        // This ends a writer that waits for buffer space.
        let _ = client.socket().shutdown(std::net::Shutdown::Both);
    });
}

/// Goal: two anonymous connections with endless pipelines delay no other client for long and do not cost the
/// node its lease. Method: for two windows an honest client sends requests over HTTP and RESP beside them; a
/// request that takes 10 s fails.
#[test]
fn greedy_pipelines_starve_neither_other_clients_nor_the_lease() {
    let folder = tempfile::tempdir().unwrap();
    snowmint::run(folder.path(), ["store", "init", "--data", "data"]);
    let added = snowmint::run(folder.path(), ["ns", "add", "random", "--scheme", "uuid4", "--data", "data"]);
    assert!(added.status.success(), "{}", snowmint::text(&added));
    let server = Serve::new(folder.path()).args(["--window", "6s"]).start();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let greedy: Vec<Resp> = (0..2).map(|_| server.client()).collect();
        for client in greedy {
            let stop = &stop;
            scope.spawn(move || ask_greedily(&client, stop));
        }
        // The threads above end even if a check below fails.
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut honest = Resp::connect(server.resp(), PATIENCE).unwrap();
            let mut http = Http::connect(server.http(), PATIENCE).unwrap();
            let (began, mut asked) = (time::now(), 0);
            while began.elapsed() < 2 * WINDOW {
                honest.next("default", 1).expect("an answer in time").expect("an id");
                assert_eq!(http.get("/healthz", "").expect("an answer in time").status, 200);
                asked += 1;
            }
            let ready = http::get(server.http(), "/readyz").unwrap();
            assert_eq!(ready.status, 200, "{}", ready.body);
            assert!(ready.json().get("trouble").is_none_or(serde_json::Value::is_null), "{}", ready.body);
            asked
        }));
        stop.store(true, Ordering::Relaxed);
        let asked = checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        assert!(asked > 0);
    });
    let log = server.log();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}
