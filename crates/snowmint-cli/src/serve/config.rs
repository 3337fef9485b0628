//! The flags of `snowmint serve`, each with its variable and a value that suits without being set, and their checks.
//! Nothing is opened before they have passed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use snowmint::field::Field;
use snowmint::{AnchoredClock, DatacenterId, Generator, Layout, ManualClock, Rule, Start, WorkerId};
use snowmint_cluster::{Holder, NamespaceName, NodeClock, WorkerChoice, WorkerSource, Workers};
use snowmint_server::namespace_sync::{NamespaceConfig, NamespaceFlags};
use snowmint_server::{AllowedHosts, Timeouts};

use super::logging::{Filter, Format, Log};
use crate::error::Failure;
use crate::flags::{self, Listen};

const EXAMPLES: &str = "\
Examples:
  snowmint serve
      HTTP on 127.0.0.1:8080, the Redis protocol on 127.0.0.1:6380, one
      SQLite file in ./snowmint-data. Then:
      curl 'localhost:8080/v1/ids/default?count=3'
      redis-cli -p 6380 ID.NEXT default COUNT 3
  snowmint serve --http 0.0.0.0:8080 --resp off --data /var/lib/snowmint
      For clients on other machines, HTTP alone. The file coordinates the
      nodes of this machine only: nodes on several machines need one --store.
  snowmint serve --http 127.0.0.1:8081 --resp 127.0.0.1:6381
      A second node on this machine: it shares the file, and takes another
      worker.
  snowmint serve --namespaces orders,users \\
      --layout 'time:41 worker:10 sequence:12 epoch:2026-01-01'
      A layout of your own. Each namespace is pinned to it in the store: no
      node can mint there with another one.
  snowmint serve --namespaces-file namespaces.toml
      Numbers, UUIDs and ids with a text form, each under its name: see
      `snowmint ns --help`. SIGHUP reads the file again; namespaces that were
      added with `snowmint ns add` are served without a restart.
  snowmint serve --worker 7
      This worker or none: if another node holds it, this one ends and says
      which node that is.

  snowmint serve --workers 1..8
      More ids a second than one worker has: up to eight workers while the
      load needs them.

Workers need not be configured: each node takes a lease on a free one from
the store, and after a restart prefers the one it had. SIGTERM and SIGINT
finish the requests in flight and give the lease back; a second one ends at
once. Behind a load balancer, give it --drain-delay 5s: /readyz answers 503
and requests are still served, until the balancer has noticed. SIGHUP reads
--namespaces-file again; SIGUSR1 and SIGUSR2 do nothing. After a crash the
worker comes back by itself within the window.

A store that cannot be reached is waited for, before any port opens (but see
--start-without-store). Then,
until a lease is held, /healthz answers and /readyz and ids say why not.

Exit codes: 0 ended on request; 1 the store, a port or the lease failed, or
ended by a second signal; 2 a flag or setting cannot be.";

/// Run the service: ids over HTTP and the Redis protocol
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct Args {
    /// Where to serve HTTP: HOST:PORT, port 0 for any free one, or off
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080", value_parser = flags::listen, env = "SNOWMINT_HTTP")]
    pub(super) http: Listen,
    /// Where to serve the Redis protocol: HOST:PORT, port 0 for any free one, or off
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6380", value_parser = flags::listen, env = "SNOWMINT_RESP")]
    pub(super) resp: Listen,
    /// Where leases are recorded: sqlite:PATH, redis://, postgres://, mysql://, etcd://, zookeeper://, kubernetes:
    /// or memory:; without it the file snowmint.db in the data directory
    #[arg(long, value_name = "URL", env = "SNOWMINT_STORE")]
    pub(super) store: Option<String>,
    /// The data directory
    #[arg(long, value_name = "DIR", default_value = "./snowmint-data", env = "SNOWMINT_DATA")]
    pub(super) data: String,
    /// The layout of ids: a name (see `snowmint layouts`) or its text form (see `snowmint layout --help`)
    #[arg(long, value_name = "SPEC|NAME", default_value = "twitter", env = "SNOWMINT_LAYOUT")]
    pub(super) layout: Layout,
    /// The datacenter, where the layout has one
    #[arg(long, value_name = "N", default_value = "0", value_parser = flags::node_number, allow_negative_numbers = true, env = "SNOWMINT_DATACENTER")]
    pub(super) datacenter: u32,
    /// Require this worker: a number, `ordinal` (behind the last `-` of the host's name), `ipv4` or `ipv4:NETWORK`, such
    /// as ipv4:10.244.0.0/16 (the low bits of this host's address, as many as the worker has). Without a network, hosts
    /// of two subnets can get the same worker: with a store the second one is refused, with none nothing notices.
    /// Without this flag any worker that is free
    #[arg(long, value_name = "N", allow_negative_numbers = true, env = "SNOWMINT_WORKER")]
    pub(super) worker: Option<WorkerSource>,
    /// How many workers this node holds at once, 1 to 8: a number, or the least and the most, as in 1..8; it takes another
    /// when sequences run out for a second, and gives it back when it was not needed for three windows
    #[arg(long, value_name = "N|MIN..MAX", default_value = "1", env = "SNOWMINT_WORKERS")]
    pub(super) workers: Workers,
    /// After a restart while the store is down, go on under the lease that was saved in the data directory, up to its
    /// end; each node then needs a data directory of its own, on a local disk that is not cloned
    #[arg(long, env = "SNOWMINT_START_WITHOUT_STORE", value_parser = BoolishValueParser::new())]
    pub(super) start_without_store: bool,
    /// The namespaces that ids may be asked for, separated by commas
    #[arg(
        long,
        value_name = "NAME,...",
        default_value = "default",
        value_delimiter = ',',
        env = "SNOWMINT_NAMESPACES"
    )]
    pub(super) namespaces: Vec<NamespaceName>,
    /// A file of namespaces of every scheme (TOML; `snowmint ns --help` shows one); read again at SIGHUP
    #[arg(long, value_name = "FILE", env = "SNOWMINT_NAMESPACES_FILE")]
    pub(super) namespaces_file: Option<PathBuf>,
    /// How often the store is asked for namespaces that were added, changed or dropped
    #[arg(long, value_name = "TIME", default_value = flags::NAMESPACES_POLL, value_parser = flags::poll, env = "SNOWMINT_NAMESPACES_POLL")]
    pub(super) namespaces_poll: Duration,
    /// How far ahead a lease reaches: the store may be down for two thirds of it unnoticed, and a worker whose
    /// node crashed is free again after it
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = flags::window, env = "SNOWMINT_WINDOW")]
    pub(super) window: Duration,
    /// How far this clock may be ahead of the store's own, where the store has one, to take a lease, or to renew one after
    /// a step; over a store without a clock, which step forward is followed at once
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = flags::skew, env = "SNOWMINT_MAX_SKEW")]
    pub(super) max_skew: Duration,
    /// Which clock timestamps follow. With `anchored`, ids never stop for a clock that is stepped; choose `wall` where ids
    /// must show the wall clock's time after each step; a step forward that nothing confirms stops ids until it is put right
    /// or has lasted. No choice can repeat an id
    #[arg(long, value_name = "CLOCK", value_enum, default_value_t = ClockChoice::Anchored, env = "SNOWMINT_CLOCK")]
    pub(super) clock: ClockChoice,
    /// What to do when the clock goes back or a tick is used up: reject, wait(TIME), borrow(TIME), generation, or several
    /// joined by ` then `. The clock goes back only with `--clock wall`: see there
    #[arg(long, value_name = "RULE", default_value = "wait(10ms)", env = "SNOWMINT_RULE")]
    pub(super) rule: Rule,
    /// Where the sequence of a fresh millisecond starts: zero, random, random(N) (below N) or rolling. Not zero where ids
    /// are rare and `id % n` picks a shard: most then go to one, as they end in sequence 0. Rolling keeps ids in order;
    /// with random those of a connection increase only from one millisecond to the next
    #[arg(long, value_name = "START", default_value = "zero", env = "SNOWMINT_SEQUENCE_START")]
    pub(super) sequence_start: Start,
    /// The most client connections at once, over both protocols. When they are taken, new clients are refused; /healthz,
    /// /readyz and /metrics are still answered, on 64 connections that are kept for them. Lowered with a warning where
    /// the system allows fewer open files (ulimit -n), of which serve takes all it may have
    #[arg(long, value_name = "N", default_value = "10000", value_parser = flags::connections, env = "SNOWMINT_MAX_CONNECTIONS")]
    pub(super) max_connections: usize,
    /// Close connections on which nothing was asked for this long; 0s for never. Keep it longer than the idle timeout of
    /// load balancers and connection pools in front, so that they close first
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = flags::idle_timeout, env = "SNOWMINT_IDLE_TIMEOUT")]
    pub(super) idle_timeout: Duration,
    /// How long a request may take to arrive once it has begun: the head of an HTTP request, a whole Redis command
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = flags::timeout, env = "SNOWMINT_REQUEST_TIMEOUT")]
    pub(super) request_timeout: Duration,
    /// Close connections whose client takes nothing of its answer for this long
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = flags::timeout, env = "SNOWMINT_WRITE_TIMEOUT")]
    pub(super) write_timeout: Duration,
    /// Serve HTTP requests to these host names besides localhost and IP addresses; * for any. Checked where --http is a
    /// loopback address, against web pages that lead a name of their own to it (DNS rebinding), or where this flag is
    /// given; a reverse proxy that passes the client's Host needs it
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', env = "SNOWMINT_ALLOWED_HOSTS")]
    pub(super) allowed_hosts: Vec<String>,
    /// How long requests in flight may take to finish after SIGTERM and the drain delay, before they are cut
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = flags::drain, env = "SNOWMINT_DRAIN_TIMEOUT")]
    pub(super) drain_timeout: Duration,
    /// How long to go on serving after SIGTERM while `/readyz` answers 503, so that a load balancer notices; about 5s
    /// behind one
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = flags::drain, env = "SNOWMINT_DRAIN_DELAY")]
    pub(super) drain_delay: Duration,
    /// The name under which this node holds its lease; without it the host's name and the HTTP port
    #[arg(long, value_name = "NAME", value_parser = holder, env = "SNOWMINT_HOLDER")]
    pub(super) holder: Option<Holder>,
    /// How log lines on standard error are written
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text, env = "SNOWMINT_LOG_FORMAT")]
    pub(super) log_format: Format,
    /// What is logged: off, error, warn, info, debug or trace; also per module, as in
    /// `warn,snowmint_cluster=debug`
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "SNOWMINT_LOG")]
    pub(super) log: Filter,
}

/// Which clock a node makes ids by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ClockChoice {
    /// The wall clock's time at the start, and boot time since, drawn towards the wall clock by 0.5 ms a second. A step of
    /// the wall clock is a log line; a node that fell behind catches up where the store or another node agrees
    Anchored,
    /// The wall clock and each of its steps. One wrong step forward takes the worker until that time, also after the clock is
    /// put right. After a step forward there are no ids for up to about a second (twice `may_lose`, if more), until the lease is
    /// renewed; after a step back --rule decides: reject (errors), wait, borrow (go on ahead of the clock) or generation
    /// (another backup worker id or sequence base, by the layout, back to the begin of this node's lease at most)
    Wall,
}

impl ClockChoice {
    /// The clock, from now on.
    pub(super) fn start(self) -> NodeClock {
        match self {
            Self::Anchored => NodeClock::from(Arc::new(AnchoredClock::new())),
            Self::Wall => NodeClock::wall(),
        }
    }
}

fn holder(text: &str) -> Result<Holder, String> {
    Holder::new(text).map_err(|error| error.to_string())
}

/// What to do, checked.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) http: Listen,
    pub(super) resp: Listen,
    pub(super) store: String,
    pub(super) data: String,
    pub(super) start_without_store: bool,
    pub(super) layout: Layout,
    pub(super) datacenter: DatacenterId,
    pub(super) choice: WorkerChoice,
    pub(super) workers: Workers,
    pub(super) namespace_flags: NamespaceFlags,
    pub(super) namespaces: NamespaceConfig,
    pub(super) poll: Duration,
    pub(super) window: Duration,
    pub(super) max_skew: Duration,
    pub(super) clock: ClockChoice,
    pub(super) rule: Rule,
    pub(super) sequence_start: Start,
    pub(super) max_connections: usize,
    pub(super) timeouts: Timeouts,
    pub(super) allowed_hosts: AllowedHosts,
    pub(super) drain_delay: Duration,
    pub(super) drain_timeout: Duration,
    pub(super) holder: Option<Holder>,
    pub(super) log: Log,
    /// What is allowed and yet worth a word in the log.
    pub(super) warnings: Vec<String>,
}

impl Plan {
    pub(super) fn check(args: Args, now_unix_ms: u64) -> Result<Self, Failure> {
        let layout = args.layout;
        let (worker, datacenter) = flags::check_node(&layout, args.worker, args.datacenter)?;
        check_ports(&args.http, &args.resp)?;
        check_times(&layout, args.window, args.rule)?;
        check_workers(&layout, worker, args.workers)?;
        let namespace_flags = NamespaceFlags { names: args.namespaces, file: args.namespaces_file, layout };
        let namespaces = namespace_flags.read().map_err(|error| Failure::flag("--namespaces-file", error))?;
        flags::check_data(args.store.as_deref(), &args.data)?;
        let store = flags::store_url(args.store.as_deref(), &args.data);
        // Little time left is told of each namespace that is served.
        flags::check_lifetime(&layout, now_unix_ms)?;
        let allowed_hosts = allowed_hosts(&args.http, &args.allowed_hosts)?;
        let mut warnings = Vec::new();
        if store.starts_with("memory:") {
            warnings.push(
                "--store memory: leases are forgotten when this process ends and no other process sees them: ids \
                 are unique only as long as this one runs alone"
                    .to_owned(),
            );
        }
        let outside = [&args.http, &args.resp].into_iter().find(|listen| !listen.is_loopback());
        if let (None, Some(listen)) = (&args.store, outside) {
            warnings.push(format!(
                "listening on {listen} without --store: {store} coordinates the processes of this machine only, and a node on \
                 another machine would produce duplicates; name one store for all nodes with --store, or keep to one machine"
            ));
        }
        Ok(Self {
            http: args.http,
            resp: args.resp,
            store,
            data: args.data,
            start_without_store: args.start_without_store,
            layout,
            datacenter,
            choice: worker.map_or(WorkerChoice::Any, WorkerChoice::Only),
            workers: args.workers,
            namespace_flags,
            namespaces,
            poll: args.namespaces_poll,
            window: args.window,
            max_skew: args.max_skew,
            clock: args.clock,
            rule: args.rule,
            sequence_start: args.sequence_start,
            max_connections: args.max_connections,
            timeouts: Timeouts {
                idle: Some(args.idle_timeout).filter(|idle| !idle.is_zero()),
                request: args.request_timeout,
                write: args.write_timeout,
            },
            allowed_hosts,
            drain_delay: args.drain_delay,
            drain_timeout: args.drain_timeout,
            holder: args.holder,
            log: Log { format: args.log_format, filter: args.log },
            warnings,
        })
    }
}

/// Names of other machines lead to other listeners than loopback ones, and there nobody knows which they are.
fn allowed_hosts(http: &Listen, names: &[String]) -> Result<AllowedHosts, Failure> {
    if names.is_empty() && !http.is_loopback() {
        return Ok(AllowedHosts::Any);
    }
    AllowedHosts::new(names.iter().map(String::as_str))
        .map_err(|error| Failure::flag("--allowed-hosts", error))
}

fn check_ports(http: &Listen, resp: &Listen) -> Result<(), Failure> {
    match (http, resp) {
        (Listen::Off, Listen::Off) => Err(Failure::usage(
            "--http off and --resp off leave nothing to serve: give one of them an address",
        )),
        (Listen::At { address, port }, Listen::At { address: other, .. })
            if address == other && *port != 0 =>
        {
            Err(Failure::usage(format!("--http and --resp are both {address}: give each a port of its own")))
        }
        _ => Ok(()),
    }
}

fn check_workers(layout: &Layout, worker: Option<WorkerId>, workers: Workers) -> Result<(), Failure> {
    if let (Some(worker), true) = (worker, workers.max() > 1) {
        return Err(Failure::usage(format!(
            "--worker {worker} is one worker, --workers {workers} are several: leave one of the two out"
        )));
    }
    let limit = layout.max(Field::Worker) + 1;
    if u64::from(workers.max()) > limit {
        let why =
            format!("the layout `{layout}` has {limit} workers in a datacenter: expected at most {limit}");
        return Err(Failure::flag("--workers", why));
    }
    Ok(())
}

/// What a keeper and a generator would refuse later.
fn check_times(layout: &Layout, window: Duration, rule: Rule) -> Result<(), Failure> {
    let tick = layout.tick();
    if window < tick * 3 {
        return Err(Failure::flag(
            "--window",
            format!("{window:?} is less than three ticks of {tick:?}: take at least {:?}", tick * 3),
        ));
    }
    let generator = Generator::builder(*layout).rule(rule).build(ManualClock::at_unix_ms(0));
    generator.map(|_| ()).map_err(|error| Failure::flag("--rule", error))
}
