//! `snowmint store recover`: makes a restored store safe to use.
//!
//! A recovery raises counters above every number that may have been used since the backup, and leases beyond
//! every instant that may still be in use. This file extends the leases and writes both; how far each counter
//! must be raised is computed in `recovery.rs` of snowmint-admin.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use snowmint::field::Field;
use snowmint::utc::Utc;
use snowmint::{Clock as _, DatacenterId, WallClock};
use snowmint_admin::node_reports::{self, NodeError, NodeReports};
use snowmint_admin::recovery::{AtLeast, CounterLevels, name_of, number};
use snowmint_admin::workers::{random_tag, workers_of};
use snowmint_cluster::audit::Action;
use snowmint_cluster::lease::{Granted, Record, Tag};
use snowmint_cluster::namespace::{Scheme, registry};
use snowmint_cluster::{Holder, LeaseConfig, LeaseConfigError, WorkerPool};
use snowmint_store::{Counter as _, Expected, Key, Store, StoreCounter, StoreErrorKind, Swap};

use crate::error::{Failure, report};
use crate::flag_values;
use crate::open_store::{StoreArgs, warn_of_skipped};
use crate::output::{Output, thousands};
use crate::runtime;
use crate::target::AuthorArgs;

const EXAMPLES: &str = "\
Run it after a restore and before any node reaches the store; see \"Restore a
store\" in docs/restore.md for the whole procedure. It prints the plan;
--yes carries it out.

Counters are raised above every number that may have been used since the
backup. Set one or several of these:
  --nodes      for nodes that still run: each reports the highest number it
               received from each counter, including the next reset period
               and dropped namespaces. A stopped node reports nothing: add
               --add for it.
  --numbers-at-least orders=1200000
               the highest number in your own tables, also for a namespace
               that is newer than the backup
  --add N      raise every counter by N beyond all of the above: choose more
               than the nodes use in one backup interval
  --add 0      raise no further

Counters that the backup lacks are created if a node or --numbers-at-least
names them. A namespace that is added again then starts above them.

Every lease gets a fresh tag and ends no sooner than --window from now. Workers
without a record get one, in every pool (a layout in a datacenter) that has
records, that a node of --nodes uses, or that a namespace uses. So no node takes
a worker that another node still holds, and running nodes notice the recovery.
Set --window, or SNOWMINT_WINDOW, as for the nodes: a window that they reject is
an error here too.
Nodes may wait that long for a worker.

Examples:
  snowmint store recover --store etcd://a,b,c --nodes http://n1:8080,http://n2:8080
  snowmint store recover --data /var/lib/snowmint --add 1000000 --window 10s --yes

JSON, one object a line, in the order of the text: leases (a pool; with records,
new and until), counter (its key; with now and after, as strings), note, and at
the end store, applied and until.";

/// The largest pool for which workers without a record get one.
const MAX_POOL: u64 = 4096;
/// Number of tries to write a record that another process keeps writing.
const TRIES: usize = 20;

/// What is known about the time since the backup.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub(super) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    author: AuthorArgs,
    /// HTTP addresses of nodes that still run: http://HOST:PORT,... For nodes with TLS, the port of their
    /// --probe
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    nodes: Vec<String>,
    /// Highest number of a namespace that may have been used
    #[arg(long, value_name = "NAMESPACE=NUMBER", value_parser = flag_values::at_least)]
    numbers_at_least: Vec<AtLeast>,
    /// Margin above all known numbers, for every counter
    #[arg(long, value_name = "N", value_parser = flag_values::number, allow_negative_numbers = true)]
    add: Option<u64>,
    /// Longest lease window of any node
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = flag_values::window, env = "SNOWMINT_WINDOW")]
    window: Duration,
    /// Change the store instead of only printing the plan
    #[arg(long)]
    yes: bool,
    /// Print one JSON object per line
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    runtime()?.block_on(recover(args))
}

async fn recover(args: &Args) -> Result<(), Failure> {
    flag_values::check_window(args.window, &args.store.url()?)?;
    let (mut out, store, until_unix_ms) =
        args.store.change(async |store| recover_and_record(args, store).await).await?;
    let text = if args.yes {
        // An operator may move the SQLite file without its log.
        store.checkpoint().await.map_err(Failure::runtime)?;
        format!(
            "{} may be used; the workers of the pools above are reserved until {}: start no node with another layout or \
             datacenter before then",
            store.describe(),
            Utc(until_unix_ms)
        )
    } else {
        "nothing was changed: add --yes to carry out this plan, and keep nodes away from this store until then".to_owned()
    };
    let until = Utc(until_unix_ms).to_string();
    out.line(&text, &json!({ "store": store.describe(), "applied": args.yes, "until": until }))?;
    out.out.flush()
}

/// The printed plan, as text or as JSON.
struct PrintedPlan {
    out: Output,
    json: bool,
}

impl PrintedPlan {
    fn line(&mut self, text: &str, json: &Value) -> Result<(), Failure> {
        if self.json { self.out.json(json) } else { self.out.line(text) }
    }

    /// Prints what an operator has to know about a line.
    fn note(&mut self, text: &str) -> Result<(), Failure> {
        self.line(text, &json!({ "note": text }))
    }
}

/// Applies the plan with an entry in the audit log, or only prints it.
async fn recover_and_record(
    args: &Args,
    store: Arc<dyn Store>,
) -> Result<(PrintedPlan, Arc<dyn Store>, u64), Failure> {
    if !args.yes {
        return recover_in(args, store).await;
    }
    let mut details = vec![format!("window {:?}", args.window)];
    details.extend(args.numbers_at_least.iter().map(|it| format!("{} at least {}", it.name, it.number)));
    details.extend(args.add.map(|add| format!("add {add}")));
    if !args.nodes.is_empty() {
        details.push(format!("nodes {}", args.nodes.join(",")));
    }
    let recovered = recover_in(args, Arc::clone(&store));
    args.author.author().record(&*store, Action::StoreRecover, "", details.join(", "), recovered).await?
}

/// Applies the plan, or only prints it. Returns the printed plan, the store, and the instant until which
/// workers are reserved.
async fn recover_in(
    args: &Args,
    store: Arc<dyn Store>,
) -> Result<(PrintedPlan, Arc<dyn Store>, u64), Failure> {
    let mut reports = NodeReports::default();
    for node in &args.nodes {
        let metrics = node_reports::fetch(node).await.map_err(|error| match error {
            NodeError::Address { .. } => Failure::flag("--nodes", error),
            NodeError::Node { .. } => Failure::runtime(format!(
                "{error}; it may have received the highest numbers: if it does not run, remove it from --nodes and set --add or \
                 --numbers-at-least"
            )),
        })?;
        reports.add(&metrics);
    }
    let mut counters = CounterLevels::of(&*store, &args.numbers_at_least, &reports).await?;
    counters.raise_unknown()?;
    if !counters.all.is_empty()
        && args.add.is_none()
        && args.numbers_at_least.is_empty()
        && args.nodes.is_empty()
    {
        return Err(Failure::usage(format!(
            "{} has {} counters whose numbers may have been used since the backup: set --nodes, --numbers-at-least or \
             --add; --add 0 keeps them",
            store.describe(),
            counters.all.len()
        )));
    }
    let now_unix_ms = WallClock.unix_ms();
    let window_ms = u64::try_from(args.window.as_millis()).unwrap_or(u64::MAX);
    let until_unix_ms = now_unix_ms.saturating_add(window_ms).max(reports.until_unix_ms);
    let pools = pools(&*store, &reports, args.window).await?;
    // Warn before anything is written: a write may fail at a skipped record.
    warn_of_skipped(&*store);
    let mut out = PrintedPlan { out: Output::new(), json: args.json };
    // Extend leases before counters: a retry after a failure is idempotent for leases, but raises counters
    // again.
    extend_leases(&*store, pools, until_unix_ms, args.yes, &mut out).await?;
    let mut newer = BTreeSet::new();
    for (key, counter) in &counters.all {
        let after = counter.after(args.add.unwrap_or(0));
        if args.yes {
            raise(&store, key, after).await?;
        }
        let (now, after_text) = (thousands(counter.now.unwrap_or(0)), thousands(after));
        let text = format!("counter {:<40} {now:>20} -> {after_text:>20}", key.as_str());
        // As strings: JavaScript keeps only 53 bits of a number.
        let [now, after] = [counter.now.unwrap_or(0), after].map(|number| number.to_string());
        out.line(&text, &json!({ "counter": key.as_str(), "now": now, "after": after }))?;
        if counter.now.is_none() && counter.at_least > 0 {
            newer.insert(name_of(key.as_str()));
        }
    }
    for name in newer {
        out.note(&format!(
            "{name} has counters that the backup lacks: if the namespace is missing, add it again as it was; it starts above them"
        ))?;
    }
    for note in &counters.notes {
        report("warning", note);
    }
    Ok((out, store, until_unix_ms))
}

/// Raises a counter to a number of slots.
///
/// If the store may lose writes, this also writes a counter that is high enough already: a recovery may have
/// raised it a moment ago, which a failover can still take back, and [`StoreArgs::change`] checks only what
/// this command wrote.
async fn raise(store: &Arc<dyn Store>, key: &Key, slots: u64) -> Result<(), Failure> {
    let counter = StoreCounter::new(Arc::clone(store), key.clone(), 1, NonZeroU64::MIN);
    for _ in 0..TRIES {
        // Number n is slot n - 1: a counter above number n holds n slots.
        counter.raise_above(slots).await.map_err(Failure::runtime)?;
        if store.may_lose().is_zero() {
            return Ok(());
        }
        match store.load(key).await.map_err(Failure::runtime)? {
            // A counter that was never used has no record, and needs none.
            None if slots == 0 => return Ok(()),
            Some(found) if number(&found) >= Some(slots) => {
                let expected = Expected::Revision(found.revision);
                let swap = store.compare_and_set(key, expected, &found.value).await;
                if let Swap::Done(_) = swap.map_err(Failure::runtime)? {
                    return Ok(());
                }
            }
            _ => {}
        }
    }
    Err(kept_writing(key))
}

/// Returns the failure for a record that another process wrote at every try.
fn kept_writing(key: &Key) -> Failure {
    Failure::runtime(format!(
        "another process keeps writing {key}: keep nodes away from this store, then retry"
    ))
}

/// Returns the pools of the store, of the nodes, and of the layouts of namespaces in the datacenters of the
/// nodes, each with the keys of its workers that have a record. Rejects a window that no node with one of
/// these layouts can have.
async fn pools(
    store: &dyn Store,
    reports: &NodeReports,
    window: Duration,
) -> Result<BTreeMap<String, Vec<Key>>, Failure> {
    let mut pools: BTreeMap<String, Vec<Key>> = BTreeMap::new();
    for (key, _) in store.list("workers/").await.map_err(Failure::runtime)? {
        let Some((pool, _)) = key.as_str().rsplit_once('/') else { continue };
        pools.entry(pool.to_owned()).or_default().push(key);
    }
    let mut used = reports.pools.clone();
    for (_, record) in registry::list(store).await.map_err(Failure::runtime)? {
        let Ok(record) = record else { continue };
        let Scheme::Snowflake { layout, .. } = &record.definition.scheme else { continue };
        let has_datacenter = layout.width(Field::Datacenter) > 0;
        let datacenters = reports.pools.iter().filter(|_| has_datacenter).map(WorkerPool::datacenter);
        used.extend(datacenters.map(|datacenter| WorkerPool::new(*layout, datacenter)));
        if !has_datacenter {
            used.push(WorkerPool::new(*layout, DatacenterId(0)));
        }
    }
    for pool in used {
        let lease = LeaseConfig::new(pool, holder()?).window(window);
        if let Err(error @ LeaseConfigError::Window { .. }) = lease.check() {
            return Err(Failure::flag("--window", error));
        }
        pools.entry(pool.prefix().trim_end_matches('/').to_owned()).or_default();
    }
    for pool in &reports.pools_of_leases {
        pools.entry(format!("workers/{pool}")).or_default();
    }
    Ok(pools)
}

/// Returns the holder of the records of workers that had none.
fn holder() -> Result<Holder, Failure> {
    Holder::new("snowmint-store-recover").map_err(Failure::runtime)
}

/// Extends every lease to an instant.
async fn extend_leases(
    store: &dyn Store,
    pools: BTreeMap<String, Vec<Key>>,
    until_unix_ms: u64,
    yes: bool,
    out: &mut PrintedPlan,
) -> Result<(), Failure> {
    if pools.is_empty() {
        out.note(&format!(
            "leases  no records, so no worker can be reserved: start no node before {}",
            Utc(until_unix_ms)
        ))?;
    }
    for (pool, mut keys) in pools {
        let (held, workers) = (keys.len(), workers_of(&pool));
        if workers <= MAX_POOL {
            for worker in 0..workers {
                let key = Key::new(format!("{pool}/{worker:010}")).map_err(Failure::runtime)?;
                if !keys[..held].contains(&key) {
                    keys.push(key);
                }
            }
        } else {
            out.note(&format!(
                "{pool} has {workers} workers, too many to reserve those without a record: start no node before {}",
                Utc(until_unix_ms)
            ))?;
        }
        let (new, until) = (keys.len() - held, Utc(until_unix_ms).to_string());
        out.line(
            &format!(
                "leases  {pool}: {} records, {} new, until {until}",
                thousands(held as u64),
                thousands(new as u64)
            ),
            &json!({ "leases": pool, "records": held, "new": new, "until": until }),
        )?;
        if yes {
            for key in keys {
                if let Extended::Damaged(damage) = extend(store, &key, until_unix_ms).await? {
                    out.note(&format!(
                        "damaged {key}: {damage}; it was left as it is, and no node takes this worker"
                    ))?;
                }
            }
        }
    }
    Ok(())
}

/// The outcome for the record of a lease.
enum Extended {
    Written,
    /// It is unreadable and was left unchanged, for this reason: no node takes its worker.
    Damaged(String),
}

/// Returns a record that grants nothing new: a node that still holds the worker uses its lease to the end.
/// Its gaps may have been granted since the backup.
fn reserved(holder: Holder, until_unix_ms: u64, tag: Tag) -> Record {
    let (from_unix_ms, granted) = (Some(until_unix_ms), Granted::up_to(until_unix_ms));
    Record { holder, from_unix_ms, until_unix_ms, tag, granted, released: true }
}

/// Extends one lease under a fresh tag, so that its holder notices.
async fn extend(store: &dyn Store, key: &Key, until_unix_ms: u64) -> Result<Extended, Failure> {
    for _ in 0..TRIES {
        let found = match store.load(key).await {
            Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                return Ok(Extended::Damaged(error.to_string()));
            }
            found => found.map_err(Failure::runtime)?,
        };
        let tag: Tag = random_tag();
        let record = match &found {
            None => reserved(holder()?, until_unix_ms, tag),
            Some(found) => match Record::from_bytes(&found.value) {
                Err(error) => return Ok(Extended::Damaged(error.to_string())),
                Ok(record) => reserved(record.holder, until_unix_ms.max(record.granted.until_unix_ms()), tag),
            },
        };
        let expected = found.map_or(Expected::Absent, |found| Expected::Revision(found.revision));
        let swap =
            store.compare_and_set(key, expected, &record.to_bytes()).await.map_err(Failure::runtime)?;
        if let Swap::Done(_) = swap {
            return Ok(Extended::Written);
        }
    }
    Err(kept_writing(key))
}
