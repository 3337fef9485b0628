//! `snowmint doctor`: whether a store can be relied on from here, and what to look after before it hurts.

use std::time::Duration;

use serde::Serialize;
use snowmint::{Clock as _, WallClock};
use snowmint_cluster::lease::directory::{LeaseEntry, leases};
use snowmint_cluster::namespace::Scheme;
use snowmint_cluster::namespace::registry::{self, Listed};
use snowmint_store::Store;

use crate::exit::Failure;
use crate::instants;
use crate::output::Output;
use crate::workers::Place;

const EXAMPLES: &str = "\
Examples:
  snowmint doctor
      Looks at ./snowmint-data/snowmint.db.
  snowmint doctor --store sqlite:/var/lib/snowmint/snowmint.db --json

Looks at: whether the store answers and how fast; this machine's clock against
the store's, where it has one, and against what other nodes wrote; which
namespaces are pinned to which layout; how many workers are left, and for how
long each layout lasts. Nothing is written.

Exit codes: 0 all is well; 1 the store fails, or something needs looking after.";

/// A lease that reaches further ahead than this was not written by a clock that agrees with ours, unless windows are
/// that long.
const FAR_AHEAD_MS: u64 = 60_000;
/// Fewer free workers than one in so many are worth a word.
const FEW_LEFT: u64 = 8;
const YEAR_MS: u64 = 31_556_952_000;
const CALLS: usize = 5;

/// Check a store, its clock, its layouts and what is left of its workers
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// One JSON object a line: check, ok, text
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Finding {
    check: &'static str,
    ok: bool,
    text: String,
}

fn fine(check: &'static str, text: impl Into<String>) -> Finding {
    Finding { check, ok: true, text: text.into() }
}

fn worry(check: &'static str, text: impl Into<String>) -> Finding {
    Finding { check, ok: false, text: text.into() }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::runtime)?;
    let findings = runtime.block_on(async {
        let store = args.place.open().await?;
        examine(&*store).await
    })?;
    let mut out = Output::new();
    for finding in &findings {
        if args.json {
            out.line(&serde_json::to_string(finding).map_err(Failure::runtime)?)?;
        } else {
            let mark = if finding.ok { "ok     ".to_owned() } else { out.paint.alarm("LOOK   ") };
            out.line(&format!("{mark} {:<10} {}", finding.check, finding.text))?;
        }
    }
    out.flush()?;
    let worries = findings.iter().filter(|finding| !finding.ok).count();
    if worries > 0 {
        return Err(Failure::runtime(format!("{worries} of {} checks need looking after", findings.len())));
    }
    Ok(())
}

async fn examine(store: &dyn Store) -> Result<Vec<Finding>, Failure> {
    let mut findings = vec![latency(store).await?];
    let now_unix_ms = WallClock.unix_ms();
    findings.push(clock(store, now_unix_ms).await?);
    let entries = leases(store).await.map_err(Failure::runtime)?;
    findings.extend(far_ahead(&entries, now_unix_ms));
    findings.extend(unreadable(&entries));
    let namespaces = registry::list(store).await.map_err(Failure::runtime)?;
    findings.extend(namespaces.iter().filter_map(|listed| namespace(listed, now_unix_ms)));
    let mut pools: Vec<&str> = entries.iter().map(|entry| entry.pool.as_str()).collect();
    pools.dedup();
    findings.extend(pools.into_iter().map(|pool| workers_left(pool, &entries, now_unix_ms)));
    Ok(findings)
}

#[expect(clippy::disallowed_methods, reason = "how long a call takes is what is asked")]
async fn latency(store: &dyn Store) -> Result<Finding, Failure> {
    let mut slowest = Duration::ZERO;
    for _ in 0..CALLS {
        let started = std::time::Instant::now();
        store.list("namespaces/").await.map_err(Failure::runtime)?;
        slowest = slowest.max(started.elapsed());
    }
    let text = format!("{} answers; the slowest of {CALLS} calls took {slowest:.1?}", store.describe());
    Ok(if slowest < Duration::from_secs(1) { fine("store", text) } else { worry("store", text) })
}

async fn clock(store: &dyn Store, now_unix_ms: u64) -> Result<Finding, Failure> {
    let Some(store_ms) = store.unix_ms().await.map_err(Failure::runtime)? else {
        return Ok(fine("clock", "this store has no time of its own to compare with"));
    };
    let difference = now_unix_ms.cast_signed() - store_ms.cast_signed();
    let text = format!("this machine's clock is {difference} ms ahead of the store's (negative: behind)");
    Ok(if difference.abs() < 1000 { fine("clock", text) } else { worry("clock", text) })
}

/// Leases that reach further ahead than a clock like ours writes.
fn far_ahead(entries: &[LeaseEntry], now_unix_ms: u64) -> Option<Finding> {
    let furthest = entries.iter().filter_map(|entry| Some((entry, entry.record.as_ref().ok()?)));
    let (entry, record) = furthest.max_by_key(|(_, record)| record.until_unix_ms)?;
    let ahead_ms = record.until_unix_ms.saturating_sub(now_unix_ms);
    let text = format!(
        "worker {} of {} is granted to {} for {} s from now",
        entry.worker,
        entry.pool,
        record.holder,
        ahead_ms / 1000
    );
    Some(if ahead_ms > FAR_AHEAD_MS {
        worry("leases", format!("{text}: a long window, this clock is behind, or that node's was ahead"))
    } else {
        fine("leases", format!("{text}, the furthest ahead"))
    })
}

fn unreadable(entries: &[LeaseEntry]) -> Option<Finding> {
    let bad: Vec<String> = entries
        .iter()
        .filter(|entry| entry.record.is_err())
        .map(|entry| format!("worker {} of {}", entry.worker, entry.pool))
        .collect();
    (!bad.is_empty())
        .then(|| worry("records", format!("{} cannot be read and is left alone", bad.join(", "))))
}

fn namespace((name, record): &Listed, now_unix_ms: u64) -> Option<Finding> {
    let record = match record {
        Ok(record) if record.dropped_unix_ms.is_some() => return None,
        Ok(record) => record,
        Err(why) => {
            let text = format!("{name}: its record cannot be read, no node can mint there: {why}");
            return Some(worry("namespace", text));
        }
    };
    let Scheme::Snowflake { layout, .. } = &record.definition.scheme else {
        return Some(fine("namespace", format!("{name} is {}", record.definition)));
    };
    let ends = layout.ends_at_unix_ms();
    let left = instants::age(ends, now_unix_ms);
    let text = format!("{name} is pinned to `{layout}`, which ends on {} ({left})", instants::date(ends));
    Some(if ends > now_unix_ms + 5 * YEAR_MS { fine("namespace", text) } else { worry("namespace", text) })
}

fn workers_left(pool: &str, entries: &[LeaseEntry], now_unix_ms: u64) -> Finding {
    let held = entries.iter().filter(|entry| entry.pool == pool).filter(|entry| {
        // One that cannot be read is taken by nobody.
        entry.record.as_ref().map_or(true, |record| record.until_unix_ms > now_unix_ms)
    });
    let held = held.count() as u64;
    // A layout without a worker field has one.
    let workers = 1_u64 << worker_bits(pool).unwrap_or(0);
    let left = workers.saturating_sub(held);
    let text = format!("{left} of {workers} workers of {pool} are free");
    if left * FEW_LEFT >= workers { fine("workers", text) } else { worry("workers", text) }
}

/// The width of the worker field, as a pool's name tells it.
fn worker_bits(pool: &str) -> Option<u32> {
    pool.split('.').find_map(|part| part.strip_prefix("worker"))?.parse().ok()
}
