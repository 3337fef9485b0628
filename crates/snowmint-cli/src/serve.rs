//! `snowmint serve`: runs the service, from its flags to the release of its lease.
//!
//! ```text
//! flags ─▶ checked plan ─▶ store, pins ─▶ ports ─▶ lease ─▶ serve ─▶ signal ─▶ drain ─▶ release
//!          exit 2          exit 1, 2      exit 1   exit 1                               exit 0
//! ```

mod args;
pub mod config_file;
pub(crate) mod logging;
pub(crate) mod misspelt_variables;
mod signals;
mod start_without_store;
mod systemd;
mod trace_flags;

use std::convert::Infallible;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use clap::Command;
use snowmint::error::Chain;
use snowmint::field::Field;
use snowmint::utc::Utc;
use snowmint::{Clock as _, DatacenterId, Layout, Rule, Start, WallClock};
use snowmint_cluster::{
    Holder, LeaseConfig, LeaseError, LeaseStatus, Leases, NamespaceError, NodeClock, SavedLeases,
    WorkerCount, WorkerPool,
};
use snowmint_server::access::warn_of_first_tokens;
use snowmint_server::admin::NodeAdmin;
use snowmint_server::namespace_sync::{NamespaceConfigError, SyncOptions};
use snowmint_server::{
    IdSource, Listener, Listeners, Mint, NamespaceSync, Settings, SharedClock, StoreCalls, ThriftListener,
    TimedStore,
};
use snowmint_store::{OpenError, Store, StoreError, StoreErrorKind, Visibility};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

pub(crate) use args::Args;

use crate::error::Failure;
use crate::flag_values::Listen;
use crate::runtime::runtime;
use crate::{open_store, output};
use args::ServePlan;
use logging::Logging;
use signals::{Reload, StopSignal};
use start_without_store::LateStore;
use systemd::Sockets;

/// Number of tasks that a busy thread runs before it polls its sockets. With 61, the default of tokio, a
/// client waits for 61 turns of greedy clients.
const TASKS_PER_POLL: u32 = 8;
/// Shortest and longest wait between attempts to reach the store at startup.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Time between two log lines about an unreachable store, once the waits are the longest.
const LOG_EVERY: Duration = Duration::from_mins(1);
/// Time for which to retry a store error that looks permanent, such as a read-only server: during a failover
/// it is temporary.
const FAILOVER_PATIENCE: Duration = Duration::from_secs(20);
/// Time limit for the store to record the release of the lease.
const RELEASE_PATIENCE: Duration = Duration::from_secs(3);

/// Serves until it is stopped. `parser` is that of all commands: it knows every variable. Reports a failure
/// in the log format.
pub(crate) fn start(args: Args, parser: &Command) -> Result<(), Failure> {
    let format = args.log_format;
    run(args, parser).map_err(|failure| format.report(failure))
}

/// Reports invalid flags in the log format that they ask for.
pub(crate) fn report_in_log_format<T>(outcome: Result<T, Failure>) -> Result<T, Failure> {
    outcome.map_err(|failure| logging::requested_format().report(failure))
}

/// Valid settings.
pub(crate) struct CheckedSettings {
    /// The number of configured namespaces.
    pub(crate) namespaces: usize,
    /// Warnings about valid settings.
    pub(crate) warnings: Vec<String>,
}

/// Checks the flags of a service that may run on another machine, without opening anything.
pub(crate) fn check(mut args: Args, now_unix_ms: u64) -> Result<CheckedSettings, Failure> {
    let of_host = args.detach_from_host()?;
    let plan = ServePlan::check(args, now_unix_ms)?;
    let of_layouts = plan.namespaces.layout_warnings(now_unix_ms);
    Ok(CheckedSettings {
        namespaces: plan.namespaces.count(),
        warnings: plan.warnings.into_iter().chain(of_layouts).chain(of_host).collect(),
    })
}

fn run(mut args: Args, parser: &Command) -> Result<(), Failure> {
    let sockets = Sockets::take()?;
    args.resolve_sockets(&sockets)?;
    let plan = ServePlan::check(args, WallClock.unix_ms())?;
    let process = Process { sockets, logging: logging::start(&plan.args.log())? };
    let misspelt = misspelt_variables::warnings(parser, std::env::vars_os());
    for warning in plan.warnings.iter().chain(&misspelt) {
        tracing::warn!("{warning}");
    }
    // Leases, segments and the store run on a separate thread: no load of requests delays the renewal of a
    // lease.
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

async fn until_stopped(plan: &ServePlan, process: &Process, serving: &Handle) -> Result<(), Failure> {
    let stop = StopSignal::listen().map_err(Failure::runtime)?;
    let prepared = tokio::select! {
        biased;
        () = stop.asked() => return Ok(()),
        prepared = prepare(plan, &process.sockets, serving) => prepared?,
    };
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
        store_calls: Some(prepared.store_calls),
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
    let (ports, late) = (prepared.ports, prepared.late);
    let service =
        Service { store: Arc::clone(&store), leases, mint: Arc::clone(&mint), sync, settings, ports, late };
    // Boxed, because it is large and lives until the end.
    let outcome = Box::pin(serve(plan, &process.logging, &stop, service, serving)).await;
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
    ports: Ports,
    late: Option<Arc<LateStore>>,
}

/// The parts that are ready before the node seeks a lease.
struct Prepared {
    store: Arc<dyn Store>,
    store_calls: Arc<StoreCalls>,
    /// The same store, if it is not reachable yet.
    late: Option<Arc<LateStore>>,
    saved: Option<SavedLeases>,
    ports: Ports,
    holder: Holder,
}

/// The open ports and their addresses.
struct Ports {
    listeners: Listeners,
    shown: PortAddresses,
}

/// The bound addresses for the log. A port that is off is shown as `off` if it is open by default, and else
/// not at all.
struct PortAddresses {
    http: String,
    resp: String,
    thrift: Option<String>,
    grpc: Option<String>,
    probe: Option<String>,
}

impl PortAddresses {
    /// Logs that the ports are open, with the lease once there is one.
    fn log(&self, plan: &ServePlan, store: &dyn Store, lease: Option<&LeaseStatus>, message: &str) {
        let layout = lease.map(|_| plan.args.layout);
        tracing::info!(
            http = self.http,
            resp = self.resp,
            thrift = self.thrift,
            grpc = self.grpc,
            probe = self.probe,
            worker = lease.and_then(|lease| lease.worker).map(|worker| worker.to_string()),
            until = lease.map(|lease| display(Utc(lease.until_unix_ms.unwrap_or_default()))),
            layout = layout.map(display),
            ends = layout.map(|layout| output::date(layout.ends_at_unix_ms())),
            version = env!("CARGO_PKG_VERSION"),
            store = store.place(),
            store_id = store.identity().map(|identity| identity.id.to_string()),
            visibility = Visibility::of_url(&plan.store_url).to_string(),
            "{message}"
        );
    }
}

async fn prepare(plan: &ServePlan, sockets: &Sockets, serving: &Handle) -> Result<Prepared, Failure> {
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
    let store = TimedStore::new(store);
    let store_calls = store.calls();
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
        probe: open_port(&args.probe, "--probe").await?,
    };
    let shown = PortAddresses {
        http: address(listeners.http.as_ref()),
        resp: address(listeners.resp.as_ref()),
        thrift: listeners.thrift.as_ref().map(|thrift| address(Some(&thrift.listener))),
        grpc: listeners.grpc.as_ref().map(|grpc| address(Some(grpc))),
        probe: listeners.probe.as_ref().map(|probe| address(Some(probe))),
    };
    let holder = args.holder.clone().unwrap_or_else(|| holder_of(&listeners));
    Ok(Prepared {
        store: Arc::new(store),
        store_calls,
        late,
        saved,
        ports: Ports { listeners, shown },
        holder,
    })
}

/// The reason why an attempt to use the store failed.
enum StoreAttempt {
    /// The store is busy or down: retry.
    Retry(String),
    /// The store accepts no writes, which a failover may end: retry for [`FAILOVER_PATIENCE`].
    ReadOnly(Failure),
    Failed(Failure),
}

async fn open_and_pin(plan: &ServePlan) -> Result<Arc<dyn Store>, StoreAttempt> {
    let store = open(plan).await?;
    pin(plan, &*store).await?;
    Ok(store)
}

async fn open(plan: &ServePlan) -> Result<Arc<dyn Store>, StoreAttempt> {
    let opened = match plan.args.expect_store {
        Some(expected) => snowmint_store::open_expecting(&plan.store_url, expected).await,
        None => snowmint_store::open(&plan.store_url).await,
    };
    opened.map_err(|error| match error {
        error if error.is_temporary() => StoreAttempt::Retry(error.to_string()),
        OpenError::Store(error) if a_failover_may_end(plan, &error) => {
            StoreAttempt::ReadOnly(Failure::runtime(error))
        }
        error => StoreAttempt::Failed(open_store::open_failure(error)),
    })
}

async fn pin(plan: &ServePlan, store: &dyn Store) -> Result<(), StoreAttempt> {
    let pinned = tokio::select! {
        biased;
        never = extend_start(store.may_lose()) => match never {},
        pinned = plan.namespaces.pin(store) => pinned,
    };
    pinned.map_err(|error| match error {
        NamespaceConfigError::Namespace(NamespaceError::Store(error)) if error.is_temporary() => {
            StoreAttempt::Retry(error.to_string())
        }
        NamespaceConfigError::Namespace(NamespaceError::Store(error)) if a_failover_may_end(plan, &error) => {
            StoreAttempt::ReadOnly(Failure::runtime(error))
        }
        NamespaceConfigError::Namespace(NamespaceError::Store(_) | NamespaceError::Unreadable { .. }) => {
            StoreAttempt::Failed(Failure::runtime(Chain(&error)))
        }
        error => StoreAttempt::Failed(Failure::usage(Chain(&error))),
    })
}

/// Returns whether a server may accept writes soon although this one does not. A file is read-only until
/// somebody changes that.
fn a_failover_may_end(plan: &ServePlan, error: &StoreError) -> bool {
    error.kind() == StoreErrorKind::ReadOnly && Visibility::of_url(&plan.store_url) != Visibility::Machine
}

/// Extends the start timeout of systemd while the namespaces settle. A change by another node begins that
/// wait again, so the last extension lasts beyond the next one.
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

/// Opens the store and pins the namespaces if that succeeds within a moment, plus the time that the pins take
/// to settle.
async fn open_soon(plan: &ServePlan) -> Result<Option<Arc<dyn Store>>, Failure> {
    let opened = async {
        let opening = tokio::time::timeout(open_store::MOMENT, open(plan)).await;
        let store = opening.unwrap_or_else(|_| Err(StoreAttempt::Retry("no answer in time".to_owned())))?;
        let settled = open_store::MOMENT + 2 * store.may_lose();
        let pinning = tokio::time::timeout(settled, pin(plan, &*store)).await;
        pinning.unwrap_or_else(|_| Err(StoreAttempt::Retry("no answer in time".to_owned())))?;
        Ok(store)
    };
    match opened.await {
        Ok(store) => Ok(Some(store)),
        Err(StoreAttempt::Failed(failure)) => Err(failure),
        Err(StoreAttempt::Retry(_) | StoreAttempt::ReadOnly(_)) => Ok(None),
    }
}

/// Retries an attempt, with growing waits, until it succeeds or fails permanently. Logs `problem` meanwhile.
/// Half of each wait is random, so that nodes that start together do not retry together.
async fn retry<T>(
    problem: &str,
    mut attempt: impl AsyncFnMut() -> Result<T, StoreAttempt>,
) -> Result<T, Failure> {
    let mut wait = FIRST_WAIT;
    let mut since_log = Duration::ZERO;
    let mut read_only_since = None;
    loop {
        let error = match attempt().await {
            Ok(done) => return Ok(done),
            Err(StoreAttempt::Failed(failure)) => return Err(failure),
            Err(StoreAttempt::ReadOnly(failure)) => {
                let since = *read_only_since.get_or_insert_with(tokio::time::Instant::now);
                if since.elapsed() >= FAILOVER_PATIENCE {
                    return Err(failure);
                }
                failure.to_string()
            }
            Err(StoreAttempt::Retry(error)) => {
                read_only_since = None;
                error
            }
        };
        if wait < LONGEST_WAIT || since_log >= LOG_EVERY {
            tracing::warn!(%error, next_try_in = ?wait, "{problem}");
            since_log = Duration::ZERO;
        }
        systemd::waits(problem, wait);
        let waited = wait / 2 + random_part(wait / 2);
        tokio::time::sleep(waited).await;
        since_log += waited;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Returns a random part of a wait.
fn random_part(wait: Duration) -> Duration {
    // The keys of a `RandomState` are random.
    let random = RandomState::new().build_hasher().finish();
    Duration::from_nanos(random.checked_rem(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)).unwrap_or(0))
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
    let open = || {
        let ports = [listeners.http.as_ref(), listeners.resp.as_ref(), thrift, listeners.grpc.as_ref()];
        ports.into_iter().flatten()
    };
    let port = open().find_map(Listener::port).map(|port| port.to_string());
    Holder::of_this_host(&port.or_else(|| open().next().map(Listener::address)).unwrap_or_default())
}

/// Serves as soon as the node holds a lease, or after a moment without one: then clients get an error instead
/// of no answer.
async fn serve(
    plan: &ServePlan,
    logging: &Logging,
    stop: &StopSignal,
    service: Service,
    serving: &Handle,
) -> Result<(), Failure> {
    let Service { store, leases, mint, mut sync, settings, ports: Ports { listeners, shown }, late } =
        service;
    let reload = Reload::on_hangup(logging.clone()).map_err(Failure::runtime)?;
    tokio::select! {
        biased;
        () = stop.asked() => return Ok(()),
        looked = first_look(&mut sync, late.as_deref()) => looked?,
    }
    let mut announced = pin!(announce_lease(plan, &leases, &*store, &shown));
    let soon = tokio::time::Instant::now() + open_store::MOMENT;
    let early = tokio::select! {
        biased;
        () = stop.asked() => return Ok(()),
        early = tokio::time::timeout_at(soon, announced.as_mut()) => early.ok().transpose()?,
    };
    // Sources that answer at once are ready for the first request; no source delays the start.
    let _ = tokio::time::timeout_at(soon, sync.wait_until_opened()).await;
    if early.is_none() {
        shown.log(plan, &*store, None, "listening; ids are rejected until this node holds a lease");
    }
    let (end, ends) = oneshot::channel::<()>();
    let ends = Box::pin(async {
        // A dropped sender means the same.
        let _ = ends.await;
    });
    let served = serving.spawn(snowmint_server::serve(mint, listeners, settings, ends));
    systemd::ready();
    let following = follow_changes(plan, sync, reload, serving);
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
    drop(following);
    ended.and(served.map(|_| ()))
}

/// Starts the tasks that follow the namespaces in the store, and the files of this node. They end when the
/// set is dropped.
fn follow_changes(plan: &ServePlan, sync: NamespaceSync, reload: Reload, serving: &Handle) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(sync.run(reload.namespaces));
    if let Some(tls) = plan.settings.tls.clone() {
        let renewing = async move {
            tokio::select! {
                never = tls.follow(&reload.tls) => never,
                never = tls.follow_expiry() => never,
            }
        };
        tasks.spawn_on(renewing, serving);
    }
    match (plan.settings.access.clone(), plan.first_tokens.clone()) {
        (Some(access), _) => {
            tasks.spawn_on(async move { access.follow(&reload.tokens).await }, serving);
        }
        (None, Some(first)) => {
            tasks.spawn_on(async move { warn_of_first_tokens(first, &reload.tokens).await }, serving);
        }
        (None, None) => {}
    }
    tasks
}

async fn unless_stopped(
    stop: &StopSignal,
    announced: Pin<&mut impl Future<Output = Result<(), Failure>>>,
) -> Result<(), Failure> {
    tokio::select! {
        biased;
        () = stop.asked() => Ok(()),
        announced = announced => announced,
    }
}

/// Opens the store in the background. Returns only if that fails permanently.
async fn open_late_store(plan: &ServePlan, late: Option<&LateStore>) -> Failure {
    if let Some(late) = late {
        let problem = "store unavailable; retrying: ids end with the saved lease unless it answers first";
        // The node serves: a store that stays read-only is no reason to end it.
        let attempt = async || {
            open_and_pin(plan).await.map_err(|attempt| match attempt {
                StoreAttempt::ReadOnly(failure) => StoreAttempt::Retry(failure.to_string()),
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
    plan: &ServePlan,
    leases: &Leases,
    store: &dyn Store,
    shown: &PortAddresses,
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
    shown.log(plan, store, Some(&status), "ready: ids are served");
    systemd::status("ids are served");
    Ok(())
}

/// Builds the task that keeps the mint in sync with the flags, the file and the store.
fn sync(
    plan: &ServePlan,
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

/// Waits until the store has listed its namespaces, so that none of them is rejected; without a store, serves
/// those in the flags and the file.
async fn first_look(sync: &mut NamespaceSync, late: Option<&LateStore>) -> Result<(), Failure> {
    if late.is_some() {
        sync.serve_without_store().await;
        return Ok(());
    }
    let problem = "namespaces unavailable; retrying: no ids until the store answers";
    retry(problem, async || sync.refresh().await.map_err(|error| StoreAttempt::Retry(error.to_string())))
        .await
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a server that stays read-only is reported as it is, but not before a failover had time to end;
    /// an unreachable one is asked for ever.
    #[tokio::test(start_paused = true)]
    async fn a_read_only_store_has_the_time_of_a_failover() {
        let read_only = || StoreAttempt::ReadOnly(Failure::Runtime("a replica".to_owned()));
        let down = || StoreAttempt::Retry("down".to_owned());
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
}
