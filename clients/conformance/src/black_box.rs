//! A client against real nodes that are killed and restarted while it draws: no id comes out twice, and no call fails.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use snowmint_test_servers::snowmint::{Serve, Server};
use snowmint_test_servers::{port, time};

use crate::driver::Driver;

/// Threads that draw at the same time, and how many ids each of them draws.
const THREADS: usize = 8;
const EACH: usize = 250_000;

/// Time limit for one draw of all threads.
const PATIENCE: Duration = Duration::from_mins(2);

/// What a client did while its nodes were killed.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Ids drawn.
    pub ids: usize,
    /// Kills of both nodes.
    pub kills: usize,
    /// Ids that came out more than once.
    pub duplicates: usize,
    /// Calls that failed.
    pub errors: u64,
}

/// Draws 2 million ids, or more until each of two nodes has been killed and restarted twice.
///
/// # Errors
///
/// If the driver ends, or answers with an error.
///
/// # Panics
///
/// If a node does not start.
pub fn kill_each_node_in_turn(command: &[String]) -> Result<Report, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let serve = || Serve::new(folder.path()).ports(port::free(), port::free());
    let configurations = [serve(), serve()];
    let mut nodes: Vec<Server> = configurations.iter().map(Serve::start).collect();
    let urls: Vec<_> = nodes.iter().map(|node| format!("http://{}", node.http())).collect();
    let mut driver = Driver::start(command)?;
    let opened = driver.send(json!({"op": "open", "options": {"servers": urls}})).within(PATIENCE)?;
    if let Some(error) = opened.get("error") {
        return Err(error.to_string().into());
    }
    let mut report = Report { ids: 0, kills: 0, duplicates: 0, errors: 0 };
    let mut all: Vec<u64> = Vec::new();
    while report.kills < 4 || all.len() < THREADS * EACH {
        let file = folder.path().join("ids");
        let draw =
            json!({"op": "draw", "namespace": "default", "threads": THREADS, "each": EACH, "to": file});
        let answer = driver.send(draw);
        let began = time::now();
        let drawn = loop {
            let killed = report.kills % 2;
            nodes[killed].kill();
            report.kills += 1;
            // Callers have to do without it for a while.
            let mut drawn = answer.within(Duration::from_millis(300));
            nodes[killed] = configurations[killed].start();
            if drawn.is_err() {
                drawn = answer.within(Duration::from_millis(100));
            }
            match drawn {
                Err(crate::driver::DriverError::Late(_)) if began.elapsed() < PATIENCE => {}
                drawn => break drawn?,
            }
        };
        report.errors += drawn["errors"].as_u64().ok_or_else(|| drawn.to_string())?;
        if report.errors > 0 {
            eprintln!("the first error: {}", drawn["first_error"]);
        }
        all.extend(read(&file)?);
        if drawn["drawn"].as_u64() != Some((THREADS * EACH) as u64) && report.errors == 0 {
            return Err(format!("{drawn}: expected {} ids", THREADS * EACH).into());
        }
        if report.errors > 0 {
            break;
        }
    }
    report.ids = all.len();
    all.sort_unstable();
    all.dedup();
    report.duplicates = report.ids - all.len();
    Ok(report)
}

/// Reads ids of 8 bytes each, little-endian.
fn read(file: &Path) -> std::io::Result<Vec<u64>> {
    let bytes = std::fs::read(file)?;
    let (ids, _) = bytes.as_chunks::<8>();
    Ok(ids.iter().map(|id| u64::from_le_bytes(*id)).collect())
}
