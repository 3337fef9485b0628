//! The flags of the service as a checked whole: what passes here cannot be wrong in itself.
//! Nothing is opened before that.

use std::time::Duration;

use snowmint::field::Field;
use snowmint::{DatacenterId, Generator, Layout, ManualClock, Rule, Start, WorkerId};
use snowmint_cluster::{Holder, WorkerChoice, Workers};
use snowmint_server::namespace_sync::{NamespaceConfig, NamespaceFlags};
use snowmint_server::{AllowedHosts, Timeouts};

use super::args::{Args, ClockChoice};
use super::logging::Log;
use crate::exit::Failure;
use crate::lifetime;
use crate::values::{self, Listen};

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
        let (worker, datacenter) = values::check_node(&layout, args.worker, args.datacenter)?;
        check_ports(&args.http, &args.resp)?;
        check_times(&layout, args.window, args.rule)?;
        check_workers(&layout, worker, args.workers)?;
        let namespace_flags = NamespaceFlags { names: args.namespaces, file: args.namespaces_file, layout };
        let namespaces = namespace_flags.read().map_err(|error| Failure::flag("--namespaces-file", error))?;
        values::check_data(args.store.as_deref(), &args.data)?;
        let store = values::store_url(args.store.as_deref(), &args.data);
        // Little time left is told of each namespace that is served.
        lifetime::check(&layout, now_unix_ms)?;
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
