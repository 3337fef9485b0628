//! `snowmint serve`: runs the service, from its flags to the release of its lease.
//!
//! ```text
//! flags ─▶ checked plan ─▶ store, pins ─▶ ports ─▶ lease ─▶ serve ─▶ signal ─▶ drain ─▶ release
//!          exit 2          exit 1, 2      exit 1   exit 1                               exit 0
//! ```

mod args;
pub mod config_file;
mod logging;
pub(crate) mod misspelt_variables;
mod start_without_store;
mod systemd;
mod trace_flags;

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use snowmint::error::Chain;
use snowmint::field::Field;
use snowmint::utc::Utc;
use snowmint::{Clock as _, DatacenterId, Layout, Rule, Start, WallClock};
use snowmint_cluster::{
    Holder, LeaseConfig, LeaseError, Leases, NamespaceError, NodeClock, SavedLeases, WorkerCount, WorkerPool,
};
use snowmint_server::access::warn_of_first_tokens;
use snowmint_server::admin::NodeAdmin;
use snowmint_server::namespace_sync::{NamespaceConfigError, SyncOptions};
use snowmint_server::{
    IdSource, Listener, Listeners, Mint, NamespaceSync, NoeqdListener, Settings, SharedClock, ThriftListener,
};
use snowmint_store::{OpenError, Store, StoreError, StoreErrorKind, Visibility};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, oneshot, watch};

pub(crate) use args::Args;

use crate::error::Failure;
use crate::flag_values::Listen;
use crate::{log_queue, open_store, output, runtime};
use args::Plan;
use logging::Logging;
use start_without_store::LateStore;
use systemd::Sockets;

/// Number of tasks that a busy thread runs before it polls its sockets. With 61, the default of tokio, a client waits for 61
/// turns of greedy clients.
const TASKS_PER_POLL: u32 = 8;
/// Shortest and longest wait between attempts to reach the store at startup.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Time between two log lines about an unreachable store, once the waits are the longest.
const LOG_EVERY: Duration = Duration::from_mins(1);
/// Time for which to retry a store error that looks permanent, such as a read-only server: during a failover it is temporary.
const FAILOVER_PATIENCE: Duration = Duration::from_secs(20);
/// Time after the first signal in which others belong to it: `timeout` signals the process and then its group, and Ctrl-C
/// reaches both a supervisor, which passes it on, and the process itself.
const SAME_STOP: Duration = Duration::from_millis(200);
/// Time limit for the store to record the release of the lease.
const RELEASE_PATIENCE: Duration = Duration::from_secs(3);

/// Serves until it is stopped. Reports a failure in the log format.
pub(crate) fn start(args: Args) -> Result<(), Failure> {
    let format = args.log_format;
    run(args).map_err(|failure| format.report(failure))
}

/// Reports invalid flags in the log format that they ask for.
pub(crate) fn report_in_log_format<T>(outcome: Result<T, Failure>) -> Result<T, Failure> {
    outcome.map_err(|failure| logging::requested_format().report(failure))
}

/// Valid settings.
pub(crate) struct Checked {
    /// The number of configured namespaces.
    pub(crate) namespaces: usize,
    /// Warnings about valid settings.
    pub(crate) warnings: Vec<String>,
}

/// Checks the flags of a service that may run on another machine, without opening anything.
pub(crate) fn check(mut args: Args, now_unix_ms: u64) -> Result<Checked, Failure> {
    let of_host = args.detach_from_host()?;
    let plan = Plan::check(args, now_unix_ms)?;
    let of_layouts = plan.namespaces.layout_warnings(now_unix_ms);
    Ok(Checked {
        namespaces: plan.namespaces.count(),
        warnings: plan.warnings.into_iter().chain(of_layouts).chain(of_host).collect(),
    })
}

fn run(mut args: Args) -> Result<(), Failure> {
    let sockets = Sockets::take()?;
    args.resolve_sockets(&sockets)?;
    let plan = Plan::check(args, WallClock.unix_ms())?;
    let process = Process { sockets, logging: logging::start(&plan.log)? };
    let misspelt = misspelt_variables::warnings(std::env::vars_os());
    for warning in plan.warnings.iter().chain(&misspelt) {
        tracing::warn!("{warning}");
    }
    // Leases, segments and the store run on a separate thread: no load of requests delays the renewal of a lease.
    let control = runtime()?;
    let serving = Builder::new_multi_thread()
        .worker_threads(plan.args.threads.get())
        .event_interval(TASKS_PER_POLL)
        .thread_name("serve")
        .enable_all()
        .build();
    let serving = serving.map_err(Failure::runtime)?;
    let outcome = control.block_on(until_stopped(&plan, &process, serving.handle()));
    // Do not wait for tasks that still run.
    serving.shutdown_background();
    control.shutdown_background();
    outcome
}

async fn until_stopped(plan: &Plan, process: &Process, serving: &Handle) -> Result<(), Failure> {
    let stop = Stop::listen().map_err(Failure::runtime)?;
    let prepared = tokio::select! {
        biased;
        () = stop.asked() => return Ok(()),
        prepared = prepare(plan, &process.sockets, serving) => prepared?,
    };
    let Ports { listeners, shown } = prepared.ports;
    let args = &plan.args;
    let clock = args.clock.start();
    let mut config = LeaseConfig::new(WorkerPool::new(args.layout, plan.datacenter), prepared.holder.clone())
        .worker_choice(plan.choice)
        .worker_count(args.workers)
        .clock(clock.clone())
        .window(args.window)
        .max_skew(args.max_skew)
        .rule(args.rule)
        .sequence_start(args.sequence_start);
    if let Some(saved) = &prepared.saved {
        config = config.saved(saved.clone());
    }
    let leases =
        Leases::start(Arc::clone(&prepared.store), config).map_err(|error| Failure::usage(Chain(&error)))?;
    let mut settings = Settings {
        clock: Arc::new(clock.clone()) as SharedClock,
        holder: Some(prepared.holder.clone()),
        log: Some(Arc::new(process.logging.clone())),
        ..plan.settings.clone()
    };
    raise_open_files(&mut settings);
    let mint = Arc::new(Mint::new([], leases.clone(), args.layout, plan.datacenter));
    let store = Arc::clone(&prepared.store);
    let sync = sync(plan, &mint, prepared.store, prepared.holder, clock, prepared.saved);
    let admin = NodeAdmin::new(Arc::clone(&store), Handle::current(), sync.refresher());
    let admin = admin.with_logins(sync.logins());
    settings.admin = Some(admin.with_peers(&args.peers).map_err(|error| Failure::flag("--peers", error))?);
    let late = prepared.late;
    let service =
        Service { store: Arc::clone(&store), leases, mint: Arc::clone(&mint), sync, settings, late };
    // Boxed, because it is large and lives until the end.
    let outcome = Box::pin(serve(plan, &process.logging, &stop, service, listeners, &shown, serving)).await;
    mint.release(RELEASE_PATIENCE).await;
    open_store::leave(&*store).await;
    outcome
}

/// The process state that exists before anything is opened.
struct Process {
    sockets: Sockets,
    logging: Logging,
}

/// The parts of a running service.
struct Service {
    store: Arc<dyn Store>,
    leases: Leases,
    mint: Arc<Mint>,
    sync: NamespaceSync,
    settings: Settings,
    late: Option<Arc<LateStore>>,
}

/// The parts that are ready before the node seeks a lease.
struct Prepared {
    store: Arc<dyn Store>,
    /// The same store, if it is not reachable yet.
    late: Option<Arc<LateStore>>,
    saved: Option<SavedLeases>,
    ports: Ports,
    holder: Holder,
}

/// The open ports and their addresses.
struct Ports {
    listeners: Listeners,
    shown: Shown,
}

/// The bound addresses for the log. A port that is off is shown as `off` if it is open by default, and else not at all.
struct Shown {
    http: String,
    resp: String,
    thrift: Option<String>,
    grpc: Option<String>,
    noeqd: Option<String>,
    probe: Option<String>,
}

async fn prepare(plan: &Plan, sockets: &Sockets, serving: &Handle) -> Result<Prepared, Failure> {
    let args = &plan.args;
    let saved = args.start_without_store.then(|| start_without_store::open_saved(plan)).transpose()?;
    let opened = match &saved {
        Some(saved) if start_without_store::is_usable(plan, saved) => open_soon(plan).await?,
        _ => Some(
            retry("store unavailable; retrying: no ids until it answers", async || open_and_pin(plan).await)
                .await?,
        ),
    };
    let (store, late) = if let Some(store) = opened {
        (store, None)
    } else {
        let late =
            Arc::new(LateStore::new(open_store::without_credentials(&plan.store_url), args.expect_store));
        (Arc::clone(&late) as Arc<dyn Store>, Some(late))
    };
    let open_port = async |listen: &Listen, flag| open_port(listen, flag, sockets, serving).await;
    let listeners = Listeners {
        http: open_port(&args.http, "--http").await?,
        resp: open_port(&args.resp, "--resp").await?,
        thrift: open_port(&args.thrift, "--thrift").await?.map(|listener| ThriftListener {
            listener,
            namespace: plan.thrift_namespace.clone(),
            exceptions: args.thrift_exceptions.into(),
            token: args.thrift_token.clone(),
        }),
        grpc: open_port(&args.grpc, "--grpc").await?,
        noeqd: open_port(&args.noeqd, "--noeqd")
            .await?
            .map(|listener| NoeqdListener { listener, namespace: plan.noeqd_namespace.clone() }),
        probe: open_port(&args.probe, "--probe").await?,
    };
    let shown = Shown {
        http: address(listeners.http.as_ref()),
        resp: address(listeners.resp.as_ref()),
        thrift: listeners.thrift.as_ref().map(|thrift| address(Some(&thrift.listener))),
        grpc: listeners.grpc.as_ref().map(|grpc| address(Some(grpc))),
        noeqd: listeners.noeqd.as_ref().map(|noeqd| address(Some(&noeqd.listener))),
        probe: listeners.probe.as_ref().map(|probe| address(Some(probe))),
    };
    let holder = args.holder.clone().unwrap_or_else(|| holder_of(&listeners));
    Ok(Prepared { store, late, saved, ports: Ports { listeners, shown }, holder })
}

/// The reason why an attempt to use the store failed.
enum Attempt {
    /// The store is busy or down: retry.
    Retry(String),
    /// The store accepts no writes, which a failover may end: retry for [`FAILOVER_PATIENCE`].
    ReadOnly(Failure),
    Failed(Failure),
}

async fn open_and_pin(plan: &Plan) -> Result<Arc<dyn Store>, Attempt> {
    let store = open(plan).await?;
    pin(plan, &*store).await?;
    Ok(store)
}

async fn open(plan: &Plan) -> Result<Arc<dyn Store>, Attempt> {
    let opened = match plan.args.expect_store {
        Some(expected) => snowmint_store::open_expecting(&plan.store_url, expected).await,
        None => snowmint_store::open(&plan.store_url).await,
    };
    opened.map_err(|error| match error {
        error if error.is_temporary() => Attempt::Retry(error.to_string()),
        OpenError::Store(error) if a_failover_may_end(plan, &error) => {
            Attempt::ReadOnly(Failure::runtime(error))
        }
        error => Attempt::Failed(open_store::open_failure(error)),
    })
}

async fn pin(plan: &Plan, store: &dyn Store) -> Result<(), Attempt> {
    let pinned = tokio::select! {
        biased;
        never = extend_start(store.may_lose()) => match never {},
        pinned = plan.namespaces.pin(store) => pinned,
    };
    pinned.map_err(|error| match error {
        NamespaceConfigError::Namespace(NamespaceError::Store(error)) if error.is_temporary() => {
            Attempt::Retry(error.to_string())
        }
        NamespaceConfigError::Namespace(NamespaceError::Store(error)) if a_failover_may_end(plan, &error) => {
            Attempt::ReadOnly(Failure::runtime(error))
        }
        NamespaceConfigError::Namespace(NamespaceError::Store(_) | NamespaceError::Unreadable { .. }) => {
            Attempt::Failed(Failure::runtime(Chain(&error)))
        }
        error => Attempt::Failed(Failure::usage(Chain(&error))),
    })
}

/// Returns whether a server may accept writes soon although this one does not. A file is read-only until somebody changes that.
fn a_failover_may_end(plan: &Plan, error: &StoreError) -> bool {
    error.kind() == StoreErrorKind::ReadOnly && Visibility::of_url(&plan.store_url) != Visibility::Machine
}

/// Extends the start timeout of systemd while the namespaces settle. A change by another node begins that wait again, so the last
/// extension lasts beyond the next one.
async fn extend_start(may_lose: Duration) -> Infallible {
    if may_lose.is_zero() {
        return std::future::pending().await;
    }
    let each = may_lose.max(LONGEST_WAIT);
    loop {
        systemd::waits("waiting until the namespaces have settled", each);
        tokio::time::sleep(each).await;
    }
}

/// Opens the store and pins the namespaces if that succeeds within a moment, plus the time that the pins take to settle.
async fn open_soon(plan: &Plan) -> Result<Option<Arc<dyn Store>>, Failure> {
    let opened = async {
        let opening = tokio::time::timeout(open_store::MOMENT, open(plan)).await;
        let store = opening.unwrap_or_else(|_| Err(Attempt::Retry("no answer in time".to_owned())))?;
        let settled = open_store::MOMENT + 2 * store.may_lose();
        let pinning = tokio::time::timeout(settled, pin(plan, &*store)).await;
        pinning.unwrap_or_else(|_| Err(Attempt::Retry("no answer in time".to_owned())))?;
        Ok(store)
    };
    match opened.await {
        Ok(store) => Ok(Some(store)),
        Err(Attempt::Failed(failure)) => Err(failure),
        Err(Attempt::Retry(_) | Attempt::ReadOnly(_)) => Ok(None),
    }
}

/// Retries an attempt, with growing waits, until it succeeds or fails permanently. Logs `problem` meanwhile.
async fn retry<T>(problem: &str, mut attempt: impl AsyncFnMut() -> Result<T, Attempt>) -> Result<T, Failure> {
    let mut wait = FIRST_WAIT;
    let mut since_log = Duration::ZERO;
    let mut read_only_since = None;
    loop {
        let error = match attempt().await {
            Ok(done) => return Ok(done),
            Err(Attempt::Failed(failure)) => return Err(failure),
            Err(Attempt::ReadOnly(failure)) => {
                let since = *read_only_since.get_or_insert_with(tokio::time::Instant::now);
                if since.elapsed() >= FAILOVER_PATIENCE {
                    return Err(failure);
                }
                failure.to_string()
            }
            Err(Attempt::Retry(error)) => {
                read_only_since = None;
                error
            }
        };
        if wait < LONGEST_WAIT || since_log >= LOG_EVERY {
            tracing::warn!(%error, next_try_in = ?wait, "{problem}");
            since_log = Duration::ZERO;
        }
        systemd::waits(problem, wait);
        tokio::time::sleep(wait).await;
        since_log += wait;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Opens a port on the threads that serve requests.
async fn open_port(
    listen: &Listen,
    flag: &'static str,
    sockets: &Sockets,
    serving: &Handle,
) -> Result<Option<Listener>, Failure> {
    match listen {
        Listen::Off => Ok(None),
        Listen::Systemd | Listen::Passed(_) => {
            let _serving = serving.enter();
            sockets.open(flag)
        }
        Listen::At { .. } | Listen::Unix(_) => {
            let address = listen.to_string();
            let opened = serving.spawn(async move { snowmint_server::bind(&address, flag).await }).await;
            opened.map_err(Failure::runtime)?.map(Some).map_err(Failure::runtime)
        }
    }
}

fn address(listener: Option<&Listener>) -> String {
    listener.map_or_else(|| "off".to_owned(), Listener::address)
}

/// Returns the default name of a node: its host and its first port, or its socket if it has no port.
fn holder_of(listeners: &Listeners) -> Holder {
    let thrift = listeners.thrift.as_ref().map(|thrift| &thrift.listener);
    let noeqd = listeners.noeqd.as_ref().map(|noeqd| &noeqd.listener);
    let open = || {
        [listeners.http.as_ref(), listeners.resp.as_ref(), thrift, listeners.grpc.as_ref(), noeqd]
            .into_iter()
            .flatten()
    };
    let port = open().find_map(Listener::port).map(|port| port.to_string());
    Holder::of_this_host(&port.or_else(|| open().next().map(Listener::address)).unwrap_or_default())
}

/// Serves as soon as the node holds a lease, or after a moment without one: then clients get an error instead of no answer.
async fn serve(
    plan: &Plan,
    logging: &Logging,
    stop: &Stop,
    service: Service,
    listeners: Listeners,
    shown: &Shown,
    serving: &Handle,
) -> Result<(), Failure> {
    let Service { store, leases, mint, mut sync, settings, late } = service;
    let reload = Reload::on_hangup(logging.clone()).map_err(Failure::runtime)?;
    tokio::select! {
        biased;
        () = stop.asked() => return Ok(()),
        looked = first_look(&mut sync, late.as_deref()) => looked?,
    }
    let mut announced = pin!(announce_lease(plan, &leases, &*store, shown));
    let soon = tokio::time::Instant::now() + open_store::MOMENT;
    let early = tokio::select! {
        biased;
        () = stop.asked() => return Ok(()),
        early = tokio::time::timeout_at(soon, announced.as_mut()) => early.ok().transpose()?,
    };
    // Sources that answer at once are ready for the first request; no source delays the start.
    let _ = tokio::time::timeout_at(soon, sync.wait_until_opened()).await;
    if early.is_none() {
        tracing::info!(
            http = shown.http,
            resp = shown.resp,
            thrift = shown.thrift,
            grpc = shown.grpc,
            noeqd = shown.noeqd,
            probe = shown.probe,
            version = env!("CARGO_PKG_VERSION"),
            store = store.place(),
            store_id = store_id(&*store),
            visibility = Visibility::of_url(&plan.store_url).to_string(),
            "listening; ids are rejected until this node holds a lease"
        );
    }
    let (end, ends) = oneshot::channel::<()>();
    let ends = Box::pin(async {
        // A dropped sender means the same.
        let _ = ends.await;
    });
    let served = serving.spawn(snowmint_server::serve(mint, listeners, settings, ends));
    systemd::ready();
    let following = tokio::spawn(sync.run(reload.namespaces));
    let renewing = plan.settings.tls.clone().map(|tls| {
        serving.spawn(async move {
            tokio::select! {
                never = tls.follow(&reload.tls) => never,
                never = tls.follow_expiry() => never,
            }
        })
    });
    let rereading = match (plan.settings.access.clone(), plan.first_tokens.clone()) {
        (Some(access), _) => Some(serving.spawn(async move { access.follow(&reload.tokens).await })),
        (None, Some(first)) => {
            Some(serving.spawn(async move { warn_of_first_tokens(first, &reload.tokens).await }))
        }
        (None, None) => None,
    };
    let ended = {
        let stopped = async {
            if early.is_none() {
                unless_stopped(stop, announced).await?;
            }
            stop.asked().await;
            Ok(())
        };
        tokio::select! {
            biased;
            ended = stopped => ended,
            failure = open_late_store(plan, late.as_deref()) => Err(failure),
            never = systemd::watchdog(serving) => match never {},
        }
    };
    systemd::stopping();
    // The receiver is gone only if serving has already ended.
    let _ = end.send(());
    let served = served.await.map_err(Failure::runtime);
    following.abort();
    for following in [renewing, rereading].into_iter().flatten() {
        following.abort();
    }
    ended.and(served.map(|_| ()))
}

async fn unless_stopped(
    stop: &Stop,
    announced: Pin<&mut impl Future<Output = Result<(), Failure>>>,
) -> Result<(), Failure> {
    tokio::select! {
        biased;
        () = stop.asked() => Ok(()),
        announced = announced => announced,
    }
}

/// Opens the store in the background. Returns only if that fails permanently.
async fn open_late_store(plan: &Plan, late: Option<&LateStore>) -> Failure {
    if let Some(late) = late {
        let problem = "store unavailable; retrying: ids end with the saved lease unless it answers first";
        // The node serves: a store that stays read-only is no reason to end it.
        let attempt = async || {
            open_and_pin(plan).await.map_err(|attempt| match attempt {
                Attempt::ReadOnly(failure) => Attempt::Retry(failure.to_string()),
                other => other,
            })
        };
        match retry(problem, attempt).await {
            Ok(store) => late.arrive(store),
            Err(failure) => return failure,
        }
    }
    std::future::pending().await
}

async fn announce_lease(
    plan: &Plan,
    leases: &Leases,
    store: &dyn Store,
    shown: &Shown,
) -> Result<(), Failure> {
    // With a store that may lose writes, every start waits that long: not yet worth a warning.
    let wait = || {
        open_store::wait_for_lease(leases, |waited, why| {
            systemd::status(&format!("no lease yet: {why}"));
            if waited <= open_store::MOMENT {
                tracing::info!("no lease yet: {why}");
            } else {
                tracing::warn!("no lease yet: {why}");
            }
        })
    };
    let mut failing_since = None;
    let status = loop {
        let asked = tokio::time::Instant::now();
        let error = match wait().await {
            Ok(status) => break status,
            Err(error) => error,
        };
        let now = tokio::time::Instant::now();
        if now - asked >= open_store::MOMENT {
            // This failure is a new one: the store answered meanwhile, or was unreachable.
            failing_since = None;
        }
        let since = *failing_since.get_or_insert(now);
        if !matches!(error, LeaseError::Store(_)) || since.elapsed() >= FAILOVER_PATIENCE {
            return Err(Failure::runtime(error));
        }
        tracing::warn!(%error, "no lease yet; retrying, since a failover of the store may end this");
        tokio::time::sleep(open_store::MOMENT).await;
    };
    tracing::info!(
        http = shown.http,
        resp = shown.resp,
        thrift = shown.thrift,
        grpc = shown.grpc,
        noeqd = shown.noeqd,
        probe = shown.probe,
        worker = status.worker.map(|worker| worker.to_string()),
        until = %Utc(status.until_unix_ms.unwrap_or_default()),
        layout = %plan.args.layout,
        ends = output::date(plan.args.layout.ends_at_unix_ms()),
        version = env!("CARGO_PKG_VERSION"),
        store = store.place(),
        store_id = store_id(store),
        visibility = Visibility::of_url(&plan.store_url).to_string(),
        "ready: ids are served"
    );
    systemd::status("ids are served");
    Ok(())
}

/// Returns the identity of a store, once it is known.
fn store_id(store: &dyn Store) -> Option<String> {
    store.identity().map(|identity| identity.id.to_string())
}

/// Builds the task that keeps the mint in sync with the flags, the file and the store.
fn sync(
    plan: &Plan,
    mint: &Arc<Mint>,
    store: Arc<dyn Store>,
    holder: Holder,
    clock: NodeClock,
    saved: Option<SavedLeases>,
) -> NamespaceSync {
    let (own, datacenter) = (plan.args.layout, plan.datacenter);
    let (window, max_skew, most) = (plan.args.window, plan.args.max_skew, plan.args.workers.max());
    let (lease_store, lease_clock) = (Arc::clone(&store), clock.clone());
    let open_source = move |layout: Layout, rule: Rule, start: Start| {
        let pool = WorkerPool::new(layout, datacenter_in(&layout, datacenter));
        // In the pool of the service's own layout, its name already holds a worker.
        let holder = if layout == own { second_holder(&holder, rule, start)? } else { holder.clone() };
        let count = WorkerCount::new(1, most.min(pool.workers())).map_err(|error| error.to_string())?;
        let config = LeaseConfig::new(pool, holder)
            .worker_count(count)
            .clock(lease_clock.clone())
            .window(window)
            .max_skew(max_skew)
            .rule(rule)
            .sequence_start(start);
        Leases::start(Arc::clone(&lease_store), config)
            .map(|leases| Box::new(leases) as Box<dyn IdSource>)
            .map_err(|error| error.to_string())
    };
    let options = SyncOptions {
        store,
        flags: plan.namespace_flags.clone(),
        rule: plan.args.rule,
        sequence_start: plan.args.sequence_start,
        open_source: Box::new(open_source),
        saved,
        poll: plan.args.namespaces_poll,
        clock: Arc::new(clock),
        wall: Arc::new(WallClock),
    };
    NamespaceSync::new(Arc::clone(mint), plan.namespaces.clone(), options)
}

/// Returns the datacenter of the service if the layout has one.
fn datacenter_in(layout: &Layout, datacenter: DatacenterId) -> DatacenterId {
    if layout.width(Field::Datacenter) > 0 { datacenter } else { DatacenterId(0) }
}

/// Returns the name that holds a second worker in the same pool. It stays the same across restarts.
fn second_holder(holder: &Holder, rule: Rule, start: Start) -> Result<Holder, String> {
    let purpose = format!("{rule}~{start}").replace(' ', "-");
    holder.for_purpose(&purpose).map_err(|error| error.to_string())
}

/// Waits until the store has listed its namespaces, so that none of them is rejected; without a store, serves those in the flags
/// and the file.
async fn first_look(sync: &mut NamespaceSync, late: Option<&LateStore>) -> Result<(), Failure> {
    if late.is_some() {
        sync.serve_without_store().await;
        return Ok(());
    }
    let problem = "namespaces unavailable; retrying: no ids until the store answers";
    retry(problem, async || sync.refresh().await.map_err(|error| Attempt::Retry(error.to_string()))).await
}

/// The files and settings that SIGHUP reloads. Systems without SIGHUP never reload.
#[derive(Debug, Default)]
struct Reload {
    namespaces: Arc<Notify>,
    tls: Arc<Notify>,
    tokens: Arc<Notify>,
}

impl Reload {
    #[cfg(unix)]
    fn on_hangup(logging: Logging) -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut hangups = signal(SignalKind::hangup())?;
        let reload = Self::default();
        let all = [&reload.namespaces, &reload.tls, &reload.tokens].map(Arc::clone);
        tokio::spawn(async move {
            while hangups.recv().await.is_some() {
                tracing::info!("SIGHUP: reloading namespaces, TLS files, tokens and log level");
                for reload in &all {
                    reload.notify_one();
                }
                // The disk may hang, and this thread renews the lease.
                let logging = logging.clone();
                let read = tokio::task::spawn_blocking(move || logging.reload()).await;
                if let Err(error) = read {
                    tracing::error!(%error, "log level not changed; the previous one stays in use");
                }
            }
        });
        Ok(reload)
    }

    #[cfg(not(unix))]
    fn on_hangup(_: Logging) -> io::Result<Self> {
        Ok(Self::default())
    }
}

/// Raises the limit of open files as far as the system allows, and lowers the connection limit to fit it.
#[cfg(unix)]
fn raise_open_files(settings: &mut Settings) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Some systems report no hard limit but have one: then the current limit stays.
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    if let Err(error) = raised {
        tracing::debug!(%error, "cannot raise the limit of open files");
    }
    let limit = if raised.is_ok() { maximum } else { current };
    let asked = settings.max_connections;
    if let Some(limit) = limit.filter(|limit| settings.fit_open_files(*limit)) {
        tracing::warn!(
            asked,
            max_connections = settings.max_connections,
            open_files = limit,
            "connection limit lowered to fit the limit of open files: raise that (ulimit -n, LimitNOFILE=), or lower \
             --max-connections"
        );
    }
}

/// Does nothing: this system has no such limit.
#[cfg(not(unix))]
fn raise_open_files(_: &mut Settings) {}

/// The signals that stop the process: the first one shuts it down in order, the second one at once.
struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Starts to listen. Before that, a signal kills the process.
    fn listen() -> io::Result<Self> {
        let mut signals = Signals::listen()?;
        let (asked, stop) = watch::channel(false);
        tokio::spawn(async move {
            let mut requests = Requests::default();
            loop {
                let signal = signals.next().await;
                match requests.of_signal_at(tokio::time::Instant::now()) {
                    Request::Stop => {
                        tracing::info!("{signal}: shutting down; a second signal exits at once");
                        asked.send_replace(true);
                    }
                    Request::Same => {}
                    Request::Exit => {
                        tracing::warn!("{signal}: exiting at once; the lease expires by itself");
                        log_queue::flush();
                        std::process::exit(1);
                    }
                }
            }
        });
        Ok(Self(stop))
    }

    /// Waits for the first signal.
    async fn asked(&self) {
        // The sender lives as long as the process.
        let _ = self.0.clone().wait_for(|asked| *asked).await;
    }
}

/// What a signal asks for.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// To stop in order.
    Stop,
    /// The same as the signal just before.
    Same,
    /// To exit at once.
    Exit,
}

/// The signals so far: until when others belong to the first one.
#[derive(Default)]
struct Requests(Option<tokio::time::Instant>);

impl Requests {
    fn of_signal_at(&mut self, now: tokio::time::Instant) -> Request {
        match self.0 {
            None => {
                self.0 = Some(now + SAME_STOP);
                Request::Stop
            }
            Some(same_until) if now < same_until => Request::Same,
            Some(_) => Request::Exit,
        }
    }
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        // Without a handler, these signals would kill the process. A handler stays installed after its drop.
        for ignored in [SignalKind::hangup(), SignalKind::user_defined1(), SignalKind::user_defined2()] {
            drop(signal(ignored)?);
        }
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> &'static str {
        // If the handler cannot be installed, the system ends the process, as requested.
        let _ = tokio::signal::ctrl_c().await;
        "Ctrl-C"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a server that stays read-only is reported as it is, but not before a failover had time to end; an unreachable one
    /// is asked for ever.
    #[tokio::test(start_paused = true)]
    async fn a_read_only_store_has_the_time_of_a_failover() {
        let read_only = || Attempt::ReadOnly(Failure::Runtime("a replica".to_owned()));
        let down = || Attempt::Retry("down".to_owned());
        let began = tokio::time::Instant::now();
        let ended: Result<(), _> = retry("", async || Err(read_only())).await;
        assert_eq!(ended.unwrap_err().to_string(), "a replica");
        let took = began.elapsed();
        assert!(took >= FAILOVER_PATIENCE && took < FAILOVER_PATIENCE + LONGEST_WAIT, "{took:?}");

        let mut asked = 0;
        let mut in_turns = async || {
            asked += 1;
            match asked {
                100 => Ok(asked),
                even if even % 2 == 0 => Err(down()),
                _ => Err(read_only()),
            }
        };
        assert_eq!(retry("", &mut in_turns).await.ok(), Some(100));
    }

    /// `timeout` sends two signals at once, a supervisor and a terminal one each: they stop in order. A later one exits.
    #[test]
    fn signals_that_arrive_together_are_one() {
        let first = tokio::time::Instant::now();
        let mut requests = Requests::default();
        for (after_ms, request) in [
            (0, Request::Stop),
            (0, Request::Same),
            (199, Request::Same),
            (200, Request::Exit),
            (60_000, Request::Exit),
        ] {
            assert_eq!(requests.of_signal_at(first + Duration::from_millis(after_ms)), request, "{after_ms}");
        }
    }
}
