//! `snowmint workers`: lists the workers of a store and their holders, and takes a worker from its holder.

use std::sync::Arc;

use serde::Serialize;
use snowmint::utc::Utc;
use snowmint::{Clock as _, WallClock};
use snowmint_cluster::audit::Action as Change;
use snowmint_cluster::lease::admin::{Eviction, LeaseEntry, evict, leases, strange_keys};
use snowmint_store::Store;

use crate::audit::Author;
use crate::connect::{StoreArgs, random_tag, warn_of_skipped};
use crate::error::{Failure, report};
use crate::human::{self, Output};

const EXAMPLES: &str = "\
Examples:
  snowmint workers
      Lists the workers of ./snowmint-data/snowmint.db: pool, worker, state
      (held or free), end of the lease, holder.
  snowmint workers release 7
      Reports whether worker 7 is free, or who holds it until when.
  snowmint workers release 7 --force
      Takes worker 7 from its holder. The lease keeps its end, because ids up
      to then may exist: the holder uses it until then and takes another
      worker, and worker 7 is free afterwards. A node started with --worker 7
      would take it again: stop that node first.

JSON, one object a line: pool, worker, holder, until, until_unix_ms, state
(held, free or unreadable) and ahead_ms (until minus now, negative when past).";

/// List workers and their holders, or take a worker from its holder
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    author: Author,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Take a worker from its holder
    Release {
        /// Number of the worker
        worker: u32,
        /// Pool of the worker, if the store has several
        #[arg(long, value_name = "POOL")]
        pool: Option<String>,
        /// Take it even if its lease has not expired
        #[arg(long)]
        force: bool,
    },
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::runtime)?;
    runtime.block_on(async {
        match &args.action {
            None => show(&entries(&*args.store.open_read_only().await?).await?, args.json),
            Some(Action::Release { worker, pool, force }) => {
                let release = async |store: Arc<dyn Store>| {
                    let entries = entries(&*store).await?;
                    release(&*store, &args.author, &entries, *worker, pool.as_deref(), *force).await
                };
                args.store.change(release).await?.flush()
            }
        }
    })
}

/// Returns all leases, and reports the records that were skipped.
async fn entries(store: &dyn Store) -> Result<Vec<LeaseEntry>, Failure> {
    let entries = leases(store).await.map_err(Failure::runtime)?;
    for key in strange_keys(store).await.map_err(Failure::runtime)? {
        report("warning", &format!("skipped `{key}`: its key names no worker; remove it"));
    }
    warn_of_skipped(store);
    Ok(entries)
}

#[derive(Serialize)]
struct Row {
    pool: String,
    worker: u32,
    holder: Option<String>,
    until: Option<String>,
    until_unix_ms: Option<u64>,
    state: &'static str,
    ahead_ms: Option<i64>,
}

impl Row {
    fn of(entry: &LeaseEntry, now_unix_ms: u64) -> Self {
        let record = entry.record.as_ref().ok();
        let until_unix_ms = record.map(|record| record.until_unix_ms);
        Self {
            pool: entry.pool.clone(),
            worker: entry.worker.0,
            holder: record.map(|record| record.holder.to_string()),
            until: until_unix_ms.map(|until| Utc(until).to_string()),
            until_unix_ms,
            state: match until_unix_ms {
                None => "unreadable",
                Some(until) if until > now_unix_ms => "held",
                Some(_) => "free",
            },
            ahead_ms: until_unix_ms.map(|until| until.cast_signed() - now_unix_ms.cast_signed()),
        }
    }
}

fn show(entries: &[LeaseEntry], json: bool) -> Result<(), Failure> {
    let now_unix_ms = WallClock.unix_ms();
    let mut out = Output::new();
    let mut pool = "";
    for entry in entries {
        let row = Row::of(entry, now_unix_ms);
        if json {
            out.line(&serde_json::to_string(&row).map_err(Failure::runtime)?)?;
            continue;
        }
        if entry.pool != pool {
            pool = &entry.pool;
            out.line(&out.paint.bold(pool))?;
            out.line(&out.paint.faint("  worker  state       until                     holder"))?;
        }
        let until = row.until_unix_ms.map_or(String::new(), |until| human::age(until, now_unix_ms));
        out.line(&format!(
            "  {:>6}  {:<10}  {:<24}  {}  {}",
            row.worker,
            row.state,
            row.until.unwrap_or_default(),
            row.holder.unwrap_or_default(),
            out.paint.faint(&until)
        ))?;
    }
    if entries.is_empty() && !json {
        out.line("no node has held a worker in this store yet")?;
    }
    out.flush()
}

async fn release(
    store: &dyn Store,
    author: &Author,
    entries: &[LeaseEntry],
    worker: u32,
    pool: Option<&str>,
    force: bool,
) -> Result<Output, Failure> {
    let of_pool =
        |entry: &&LeaseEntry| pool.is_none_or(|pool| entry.pool == pool) && entry.worker.0 == worker;
    let mut found = entries.iter().filter(of_pool);
    let Some(entry) = found.next() else {
        return Err(Failure::usage(format!(
            "unknown worker {worker}: this store has no record of it; `snowmint workers` lists all records"
        )));
    };
    if let Some(other) = found.next() {
        return Err(Failure::usage(format!(
            "worker {worker} is in several pools, {} and {}: name one with --pool",
            entry.pool, other.pool
        )));
    }
    let Ok(record) = &entry.record else {
        return Err(Failure::runtime(format!(
            "unreadable record of worker {worker} in {}: repair it by hand, or leave it; no node takes this worker",
            entry.pool
        )));
    };
    let now_unix_ms = WallClock.unix_ms();
    let mut out = Output::new();
    if record.until_unix_ms <= now_unix_ms {
        out.line(&format!("worker {worker} is free: its lease ended at {}", Utc(record.until_unix_ms)))?;
        return Ok(out);
    }
    if !force {
        return Err(Failure::runtime(format!(
            "worker {worker} is held by {} until {}, and free then unless that node renews its lease: add --force to stop \
             renewals",
            record.holder,
            Utc(record.until_unix_ms)
        )));
    }
    let evicted = async {
        match evict(store, entry, random_tag()).await.map_err(Failure::runtime)? {
            Some(Eviction::FreeFrom(until)) => Ok(until),
            _ => {
                Err(Failure::runtime(format!("worker {worker} was renewed or taken at the same time: retry")))
            }
        }
    };
    let subject = format!("{worker} of {}", entry.pool);
    let details = format!("from {}, held until {}", record.holder, Utc(record.until_unix_ms));
    let until = author.record(store, Change::WorkerRelease, subject, details, evicted).await??;
    out.line(&format!(
        "worker {worker} was taken from {}: it is free from {}, because ids up to then may exist",
        record.holder,
        Utc(until)
    ))?;
    Ok(out)
}
