//! `snowmint new`: makes ids in this process, under a lease from the store or, with `--store none`, without
//! one.

use std::sync::Arc;
use std::time::Duration;

use snowmint::codec::Digits;
use snowmint::error::Chain;
use snowmint::generator::Batch;
use snowmint::{
    Clock as _, DatacenterId, GenerateError, Generator, Id, Layout, Rule, Start, WallClock, WorkerId,
};
use snowmint_cluster::{
    Holder, LeaseConfig, LeaseStatus, Leases, NextIdError, WorkerChoice, WorkerPool, WorkerSource,
};
use snowmint_store::Store;
use tokio::runtime::{Builder, Runtime};

use crate::error::{Failure, report};
use crate::numbers::whole;
use crate::output::{Output, thousands};
use crate::{flag_values, open_store};

const MAX_COUNT: u64 = 10_000_000;
/// Number of ids to draw and write at a time.
const AT_ONCE: usize = 8192;
/// Length of the lease: if this command is killed, its worker is free again after this time.
const WINDOW: Duration = Duration::from_secs(10);
/// Time limit for getting a lease.
const LEASE_PATIENCE: Duration = Duration::from_secs(15);
/// Time limit for the store to record the release of the lease.
const RELEASE_PATIENCE: Duration = Duration::from_secs(2);
/// Waits for a tick longer than this are reported.
const LONG_TICK: Duration = Duration::from_secs(2);
/// Pause between retries while a lease is renewed or replaced.
const PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSES: u32 = 500;

const EXAMPLES: &str = "\
Examples:
  snowmint new
  snowmint new -n 1000 --format base62
  snowmint new --format alphabet=0123456789bcdfghjkmnpqrstvwxyz
  snowmint new --layout leaf --worker 7
  snowmint new -n 5 --json
  snowmint new --store none --worker 3

With a store (by default the SQLite file in the data directory), ids are made
under a lease: a worker and a range of timestamps that the store grants to no
other process. They are unique among all ids of the same layout from that
store, even if clocks are wrong or `snowmint serve` runs on it.

With --store none nothing is recorded.
  Guaranteed:      the ids of one run are unique and increase (with a random
                   start: from one tick to the next). Later runs of the same
                   worker never repeat an id unless the machine's clock goes
                   back: each run starts in a new tick.
  Not guaranteed:  two processes that use the same worker at the same time, or
                   a clock that goes back between two runs, can repeat ids.

JSON, one object a line:
  id  the id, a string in the form that --format names";

/// Make ids
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples and what --store none does not guarantee.")]
pub(crate) struct Args {
    /// Number of ids, 1 to 10,000,000
    #[arg(short = 'n', long = "count", value_name = "N", default_value = "1", value_parser = count, allow_negative_numbers = true, help_heading = "Ids")]
    count: u64,
    /// Layout of the ids: a name (see `snowmint layouts`) or its fields
    #[arg(
        long,
        value_name = "SPEC|NAME",
        default_value = "twitter",
        env = "SNOWMINT_LAYOUT",
        help_heading = "Ids"
    )]
    layout: Layout,
    /// Require this worker: a number, `ordinal` (after the last `-` of the host name), `ipv4` or
    /// `ipv4:NETWORK`, such as ipv4:10.244.0.0/16 (the low bits of this host's address, as wide as the worker
    /// field). Without a network, hosts of two subnets can get the same worker: a store rejects the second
    /// one, --store none does not. Default: any free worker
    #[arg(long, value_name = "W", allow_negative_numbers = true, help_heading = "Ids")]
    worker: Option<WorkerSource>,
    /// Datacenter, if the layout has one
    #[arg(long, value_name = "D", default_value = "0", value_parser = flag_values::node_number, allow_negative_numbers = true, env = "SNOWMINT_DATACENTER", help_heading = "Ids")]
    datacenter: u32,
    /// Start of the sequence in each new millisecond: rolling (after the last one, in order), zero (Twitter's
    /// bits), random or random(N) (below N). With zero, each run starts with sequence 0, and `id % n` sends
    /// its first id to the same shard. With random, ids increase only from one millisecond to the next
    #[arg(
        long,
        value_name = "START",
        default_value = "rolling",
        env = "SNOWMINT_SEQUENCE_START",
        help_heading = "Ids"
    )]
    sequence_start: Start,
    /// Write ids in this text form: decimal (or dec), hex, base32 (Crockford), base36, base58 (Bitcoin's
    /// order), `base58_flickr`, base62, or alphabet=CHARS: 2 to 94 characters in any order, such as shuffled
    /// ones
    #[arg(long, value_name = "FORM", default_value = "decimal", help_heading = "Output")]
    format: Digits,
    /// Print one JSON object per line
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Store of the lease, such as sqlite:PATH, or none; default: the file snowmint.db in the data directory
    #[arg(
        long,
        value_name = "URL|none",
        env = "SNOWMINT_STORE",
        hide_env_values = true,
        help_heading = "Store"
    )]
    store: Option<String>,
    /// Data directory; default: `$XDG_STATE_HOME/snowmint`, or `~/.local/state/snowmint`; for root
    /// /var/lib/snowmint
    #[arg(long, value_name = "DIR", alias = "data-dir", env = "SNOWMINT_DATA", help_heading = "Store")]
    data: Option<String>,
}

fn count(text: &str) -> Result<u64, String> {
    whole(text)
        .filter(|count| (1..=MAX_COUNT).contains(count))
        .ok_or_else(|| format!("expected 1 to {}", thousands(MAX_COUNT)))
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (worker, datacenter) = flag_values::check_node(&args.layout, args.worker, args.datacenter)?;
    let now_unix_ms = WallClock.unix_ms();
    if let Some(warning) = flag_values::check_lifetime(&args.layout, now_unix_ms)? {
        report("warning", &warning);
    }
    match args.store.as_deref() {
        Some("none") => {
            if args.worker == Some(WorkerSource::Ipv4(None)) {
                report(
                    "warning",
                    "--worker ipv4 --store none: hosts of two subnets can get the same worker and produce duplicates; name \
                     the network that all hosts share, such as ipv4:10.244.0.0/16, or set a store",
                );
            }
            unleased(args, worker, datacenter, now_unix_ms)
        }
        Some(store) if store.starts_with("memory:") => Err(Failure::flag(
            "--store",
            "memory: does not outlive this command, so the next run could repeat its ids: use sqlite:PATH, or none with \
             --worker",
        )),
        store => leased(args, worker, datacenter, &flag_values::store_url(store, args.data.as_deref())?),
    }
}

fn unleased(
    args: &Args,
    worker: Option<WorkerId>,
    datacenter: DatacenterId,
    now_unix_ms: u64,
) -> Result<(), Failure> {
    let Some(worker) = worker else {
        return Err(Failure::usage(
            "--store none needs --worker: name a worker that no other process uses; see --help for the guarantees",
        ));
    };
    let layout = args.layout;
    // An earlier run may have made the same ids in the current tick.
    let next_tick_unix_ms = now_unix_ms + 1;
    if layout.tick() > LONG_TICK {
        report("waiting", &format!("ids start with the next tick of {:?}", layout.tick()));
    }
    let rule = Rule::wait(layout.tick().max(Duration::from_millis(10)));
    let generator = Generator::builder(layout)
        .worker(worker)
        .datacenter(datacenter)
        .rule(rule)
        .start(args.sequence_start)
        .not_before_unix_ms(next_tick_unix_ms)
        .build(WallClock)
        .map_err(Failure::usage)?;
    write_ids(args, |count| generator.try_take(count).map_err(NextIdError::Refused))
}

/// Makes ids under a lease. Another thread renews it, even if the reader of the output is slow.
fn leased(args: &Args, worker: Option<WorkerId>, datacenter: DatacenterId, url: &str) -> Result<(), Failure> {
    let runtime =
        Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(Failure::runtime)?;
    let (store, leases, patience) = runtime.block_on(async {
        let store = open_store::open(url).await?;
        let (leases, patience) = start(args, worker, datacenter, Arc::clone(&store))?;
        Ok::<_, Failure>((store, leases, patience))
    })?;
    let written = ready(&runtime, &leases, patience).and_then(|status| {
        warn_of_records_ahead(&status);
        let mut handle = leases.handle();
        write_ids(args, |count| handle.try_take(count))
    });
    runtime.block_on(async {
        leases.release(RELEASE_PATIENCE).await;
        open_store::leave(&*store).await;
    });
    written
}

fn start(
    args: &Args,
    worker: Option<WorkerId>,
    datacenter: DatacenterId,
    store: Arc<dyn Store>,
) -> Result<(Leases, Duration), Failure> {
    // A claim may be used only once the store can no longer lose it.
    let patience = LEASE_PATIENCE + store.may_lose();
    let choice = worker.map_or(WorkerChoice::Any, WorkerChoice::Only);
    let config = LeaseConfig::new(WorkerPool::new(args.layout, datacenter), Holder::of_this_host("cli"))
        .worker_choice(choice)
        .sequence_start(args.sequence_start)
        .window(WINDOW.max(args.layout.tick() * 3).max(store.may_lose() * 3));
    let leases = Leases::start(store, config).map_err(|error| Failure::usage(Chain(&error)))?;
    Ok((leases, patience))
}

fn ready(runtime: &Runtime, leases: &Leases, patience: Duration) -> Result<LeaseStatus, Failure> {
    let waiting = open_store::wait_for_lease(leases, |_, why| report("waiting for a lease", why));
    match runtime.block_on(async { tokio::time::timeout(patience, waiting).await }) {
        Ok(settled) => settled.map_err(Failure::runtime),
        Err(_) => Err(Failure::runtime(format!(
            "no lease within {patience:?}: {}",
            open_store::why_no_lease(leases)
        ))),
    }
}

fn warn_of_records_ahead(status: &LeaseStatus) {
    if status.records_ahead_ms > 0 {
        let ahead = format!(
            "records in the store are {} ms ahead of this clock: this clock is behind, or another node's clock was ahead; \
             ids are still unique",
            thousands(status.records_ahead_ms)
        );
        report("warning", &ahead);
    }
}

fn write_ids(args: &Args, mut take: impl FnMut(usize) -> Result<Batch, NextIdError>) -> Result<(), Failure> {
    let mut out = Output::new();
    let mut line = Vec::with_capacity(64);
    let mut missing = args.count;
    while missing > 0 {
        let wanted = usize::try_from(missing).unwrap_or(AT_ONCE).min(AT_ONCE);
        let batch = take_or_wait(&mut take, wanted)?;
        missing -= batch.len() as u64;
        for id in batch {
            write_line(args, id, &mut line);
            out.bytes(&line)?;
        }
    }
    out.flush()
}

fn write_line(args: &Args, id: Id, line: &mut Vec<u8>) {
    line.clear();
    if args.json {
        line.extend_from_slice(b"{\"id\":\"");
        for byte in args.format.encode(id).bytes() {
            // The characters of an alphabet may include these.
            if matches!(byte, b'"' | b'\\') {
                line.push(b'\\');
            }
            line.push(byte);
        }
        line.extend_from_slice(b"\"}\n");
    } else {
        line.extend_from_slice(args.format.encode(id).as_bytes());
        line.push(b'\n');
    }
}

/// Draws ids. Waits for the next tick, or for a new lease if this process was stopped and its lease has
/// expired.
fn take_or_wait(
    mut take: impl FnMut(usize) -> Result<Batch, NextIdError>,
    wanted: usize,
) -> Result<Batch, Failure> {
    let mut pauses = 0;
    loop {
        let no_id = match take(wanted) {
            Ok(batch) => return Ok(batch),
            Err(no_id) => no_id,
        };
        let pause = match &no_id {
            NextIdError::Refused(GenerateError::Ended | GenerateError::LeaseEnded { .. })
            | NextIdError::NoLease { .. }
                if pauses < MAX_PAUSES =>
            {
                pauses += 1;
                Some(PAUSE)
            }
            NextIdError::Refused(refusal) => {
                refusal.retry_after_ms().map(|ms| Duration::from_millis(ms.get()))
            }
            _ => None,
        };
        let Some(pause) = pause else {
            return Err(Failure::runtime(no_id));
        };
        std::thread::sleep(pause);
    }
}
