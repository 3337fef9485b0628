//! `snowmint serve`: the service in one process, from its flags to its last released lease.
//!
//! ```text
//! flags ─▶ checked plan ─▶ store, pins ─▶ ports ─▶ lease ─▶ serve ─▶ signal ─▶ drain ─▶ release
//!          exit 2          exit 1, 2      exit 1   exit 1                               exit 0
//! ```

mod config;
mod logging;
mod without_store;

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use snowmint::field::Field;
use snowmint::utc::Utc;
use snowmint::{Clock as _, DatacenterId, Layout, Rule, Start, WallClock};
use snowmint_cluster::{
    Holder, KeeperConfig, Keepers, NamespaceError, NodeClock, Pool, SavedLeases, Workers,
};
use snowmint_server::namespace_sync::{NamespaceConfigError, SyncOptions};
use snowmint_server::{IdSource, Listeners, Mint, NamespaceSync, Settings, SharedClock};
use snowmint_store::{OpenError, Store, StoreReach};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, oneshot, watch};

pub(crate) use config::Args;

use crate::error::Failure;
use crate::flags::Listen;
use crate::{connect, human};
use config::Plan;
use without_store::LateStore;

/// Threads that serve requests. More than two gain nothing for what one node is asked, and each costs memory.
const THREADS: usize = 2;
/// Tasks that a busy thread runs before it looks which sockets are ready. With 61, as tokio has it, a client waits for 61 turns of
/// greedy ones.
const TASKS_BETWEEN_LOOKS: u32 = 8;
/// Between tries to reach a store that is not there at the start.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Between two log lines about a store that is not there, once the waits are the longest.
const SAY_AGAIN: Duration = Duration::from_mins(1);
/// How long the store may take to note that the lease is given back.
const RELEASE_PATIENCE: Duration = Duration::from_secs(3);

/// Serves until it is stopped; a failure is told in the form of the log.
pub(crate) fn start(args: Args) -> Result<(), Failure> {
    let format = args.log_format;
    run(args).map_err(|failure| format.tell(failure))
}

/// What the flags were refused for, in the form that the log would have had.
pub(crate) fn told_as_logged(outcome: Result<(), Failure>) -> Result<(), Failure> {
    outcome.map_err(|failure| logging::asked_for().tell(failure))
}

fn run(args: Args) -> Result<(), Failure> {
    let plan = Plan::check(args, WallClock.unix_ms())?;
    logging::start(&plan.log);
    for warning in &plan.warnings {
        tracing::warn!("{warning}");
    }
    // Leases, segments and the store live on this thread alone: no load of requests keeps a lease from being renewed.
    let control = Builder::new_current_thread().enable_all().build().map_err(Failure::runtime)?;
    let serving = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .event_interval(TASKS_BETWEEN_LOOKS)
        .thread_name("serve")
        .enable_all()
        .build();
    let serving = serving.map_err(Failure::runtime)?;
    let outcome = control.block_on(until_stopped(&plan, serving.handle()));
    // What is still running has nothing left to do for anybody.
    serving.shutdown_background();
    control.shutdown_background();
    outcome
}

async fn until_stopped(plan: &Plan, serving: &Handle) -> Result<(), Failure> {
    let stop = Stop::listen().map_err(Failure::runtime)?;
    let prepared = tokio::select! {
        biased;
        () = stop.asked() => return Ok(()),
        prepared = prepare(plan, serving) => prepared?,
    };
    let Ports { listeners, shown } = prepared.ports;
    let clock = plan.clock.start();
    let mut config = KeeperConfig::new(Pool::new(plan.layout, plan.datacenter), prepared.holder.clone())
        .worker(plan.choice)
        .window(plan.window)
        .max_skew(plan.max_skew)
        .rule(plan.rule)
        .sequence_start(plan.sequence_start);
    if let Some(saved) = &prepared.saved {
        config = config.saved(saved.clone());
    }
    let keepers = Keepers::start(Arc::clone(&prepared.store), config, plan.workers, clock.clone());
    let keepers = keepers.map_err(Failure::usage)?;
    let mut settings = Settings {
        max_connections: plan.max_connections,
        timeouts: plan.timeouts,
        allowed_hosts: plan.allowed_hosts.clone(),
        clock: Arc::new(clock.clone()) as SharedClock,
        drain: plan.drain_timeout,
        drain_delay: plan.drain_delay,
        ..Settings::default()
    };
    raise_open_files(&mut settings);
    let mint = Arc::new(Mint::new([], keepers.clone(), plan.layout, plan.datacenter));
    let sync = sync(plan, &mint, prepared.store, prepared.holder, clock, prepared.saved);
    let late = prepared.late;
    let service = Service { keepers, mint: Arc::clone(&mint), sync, settings, late };
    // Boxed, as is the one inside it: it lives once and long, and need not be moved about.
    let outcome = Box::pin(serve(plan, &stop, service, listeners, &shown, serving)).await;
    mint.release(RELEASE_PATIENCE).await;
    outcome
}

/// What serves.
struct Service {
    keepers: Keepers,
    mint: Arc<Mint>,
    sync: NamespaceSync,
    settings: Settings,
    late: Option<Arc<LateStore>>,
}

/// What is there before a lease is sought.
struct Prepared {
    store: Arc<dyn Store>,
    /// The same, where it is not opened yet.
    late: Option<Arc<LateStore>>,
    saved: Option<SavedLeases>,
    ports: Ports,
    holder: Holder,
}

/// The ports, and where they are.
struct Ports {
    listeners: Listeners,
    shown: Shown,
}

/// Addresses for people: what was bound, or `off`.
struct Shown {
    http: String,
    resp: String,
}

async fn prepare(plan: &Plan, serving: &Handle) -> Result<Prepared, Failure> {
    let saved = plan.start_without_store.then(|| without_store::open_saved(plan)).transpose()?;
    let opened = match &saved {
        Some(saved) if without_store::is_usable(plan, saved) => open_soon(plan).await?,
        _ => Some(reached(|| open_and_pin(plan), "no ids until it is").await?),
    };
    let (store, late) = if let Some(store) = opened {
        (store, None)
    } else {
        let late = Arc::new(LateStore::new(without_store::shown(&plan.store)));
        (Arc::clone(&late) as Arc<dyn Store>, Some(late))
    };
    let listeners = Listeners {
        http: open_port(&plan.http, "--http", serving).await?,
        resp: open_port(&plan.resp, "--resp", serving).await?,
    };
    let shown = Shown { http: address(listeners.http.as_ref()), resp: address(listeners.resp.as_ref()) };
    let holder = plan.holder.clone().unwrap_or_else(|| holder_of(&listeners));
    Ok(Prepared { store, late, saved, ports: Ports { listeners, shown }, holder })
}

/// Why the store cannot be used yet, or at all.
enum NotYet {
    /// It is busy or down: it may be there in a moment.
    Later(String),
    Never(Failure),
}

async fn open_and_pin(plan: &Plan) -> Result<Arc<dyn Store>, NotYet> {
    let store = open(plan).await?;
    pin(plan, &*store).await?;
    Ok(store)
}

async fn open(plan: &Plan) -> Result<Arc<dyn Store>, NotYet> {
    let store = snowmint_store::open(&plan.store).await.map_err(|error| match error {
        OpenError::Store(error) if error.is_temporary() => NotYet::Later(error.to_string()),
        error => NotYet::Never(connect::open_failure(error)),
    })?;
    KeeperConfig::check_window(plan.window, store.may_lose())
        .map_err(|error| NotYet::Never(Failure::flag("--window", error)))?;
    Ok(store)
}

async fn pin(plan: &Plan, store: &dyn Store) -> Result<(), NotYet> {
    plan.namespaces.pin(store).await.map_err(|error| match error {
        NamespaceConfigError::Namespace(NamespaceError::Store(error)) if error.is_temporary() => {
            NotYet::Later(error.to_string())
        }
        NamespaceConfigError::Namespace(NamespaceError::Store(_) | NamespaceError::Unreadable { .. }) => {
            NotYet::Never(Failure::runtime(error))
        }
        error => NotYet::Never(Failure::usage(error)),
    })
}

/// The store if it is there within a moment, and as long again as what is pinned there takes to settle.
async fn open_soon(plan: &Plan) -> Result<Option<Arc<dyn Store>>, Failure> {
    let opened = async {
        let opening = tokio::time::timeout(connect::MOMENT, open(plan)).await;
        let store = opening.unwrap_or_else(|_| Err(NotYet::Later("no answer in time".to_owned())))?;
        let settled = connect::MOMENT + 2 * store.may_lose();
        let pinning = tokio::time::timeout(settled, pin(plan, &*store)).await;
        pinning.unwrap_or_else(|_| Err(NotYet::Later("no answer in time".to_owned())))?;
        Ok(store)
    };
    match opened.await {
        Ok(store) => Ok(Some(store)),
        Err(NotYet::Never(failure)) => Err(failure),
        Err(NotYet::Later(_)) => Ok(None),
    }
}

/// Tries until the store is there, after longer and longer waits, and says so.
async fn reached<T, F: Future<Output = Result<T, NotYet>>>(
    attempt: impl Fn() -> F,
    meanwhile: &str,
) -> Result<T, Failure> {
    let mut wait = FIRST_WAIT;
    let mut unsaid = Duration::ZERO;
    loop {
        match attempt().await {
            Ok(reached) => return Ok(reached),
            Err(NotYet::Never(failure)) => return Err(failure),
            Err(NotYet::Later(error)) => {
                if wait < LONGEST_WAIT || unsaid >= SAY_AGAIN {
                    tracing::warn!(%error, next_try_in = ?wait, "the store is not there yet: {meanwhile}");
                    unsaid = Duration::ZERO;
                }
                tokio::time::sleep(wait).await;
                unsaid += wait;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
        }
    }
}

/// Opens a port on the threads that serve it, so that they alone wait for its clients.
async fn open_port(
    listen: &Listen,
    flag: &'static str,
    serving: &Handle,
) -> Result<Option<TcpListener>, Failure> {
    match listen {
        Listen::Off => Ok(None),
        Listen::At { address, .. } => {
            let address = address.clone();
            let opened = serving.spawn(async move { snowmint_server::bind(&address, flag).await }).await;
            opened.map_err(Failure::runtime)?.map(Some).map_err(Failure::runtime)
        }
    }
}

fn address(listener: Option<&TcpListener>) -> String {
    listener
        .and_then(|listener| listener.local_addr().ok())
        .map_or_else(|| "off".to_owned(), |address| address.to_string())
}

/// The host and the port that tells apart the nodes on it.
fn holder_of(listeners: &Listeners) -> Holder {
    let port = listeners.http.as_ref().or(listeners.resp.as_ref());
    let port = port.and_then(|listener| listener.local_addr().ok()).map(|address| address.port());
    Holder::of_this_host(&port.unwrap_or_default().to_string())
}

/// Serves from the moment a lease is held, or from when waiting for it takes longer than a moment: then it is
/// better to answer that there is no lease than not to answer.
async fn serve(
    plan: &Plan,
    stop: &Stop,
    service: Service,
    listeners: Listeners,
    shown: &Shown,
    serving: &Handle,
) -> Result<(), Failure> {
    let Service { keepers, mint, mut sync, settings, late } = service;
    let reload = reload_on_hangup().map_err(Failure::runtime)?;
    tokio::select! {
        biased;
        () = stop.asked() => return Ok(()),
        () = first_look(&mut sync, late.as_deref()) => {}
    }
    let mut announced = pin!(announce_lease(plan, &keepers, shown));
    let soon = tokio::time::Instant::now() + connect::MOMENT;
    let early = tokio::select! {
        biased;
        () = stop.asked() => return Ok(()),
        early = tokio::time::timeout_at(soon, announced.as_mut()) => early.ok().transpose()?,
    };
    // Sources that answer at once are served from the first request on; none is waited for longer.
    let _ = tokio::time::timeout_at(soon, sync.wait_until_opened()).await;
    if early.is_none() {
        tracing::info!(
            http = shown.http,
            resp = shown.resp,
            version = env!("CARGO_PKG_VERSION"),
            store = without_store::shown(&plan.store),
            reach = StoreReach::of_url(&plan.store).to_string(),
            "listening; ids are refused until a lease is held"
        );
    }
    let (end, ends) = oneshot::channel::<()>();
    let ends = async {
        // Dropped without a word, it means the same.
        let _ = ends.await;
    };
    let served = serving.spawn(snowmint_server::serve(mint, listeners, settings, ends));
    let following = tokio::spawn(sync.run(reload));
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
            failure = reach_late(plan, late.as_deref()) => Err(failure),
        }
    };
    // Its receiver is gone only if serving has ended already.
    let _ = end.send(());
    let served = served.await.map_err(Failure::runtime);
    following.abort();
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

/// Opens a store that was not waited for. Returns only if that can never be.
async fn reach_late(plan: &Plan, late: Option<&LateStore>) -> Failure {
    if let Some(late) = late {
        match reached(|| open_and_pin(plan), "ids end with the saved lease, unless it is before").await {
            Ok(store) => late.arrive(store),
            Err(failure) => return failure,
        }
    }
    std::future::pending().await
}

async fn announce_lease(plan: &Plan, keepers: &Keepers, shown: &Shown) -> Result<(), Failure> {
    // A store that may lose writes makes every start wait that long: no warning yet.
    let waited = connect::wait_for_lease(keepers, |waited, why| {
        if waited <= connect::MOMENT {
            tracing::info!("no lease yet: {why}");
        } else {
            tracing::warn!("no lease yet: {why}");
        }
    });
    let waited = waited.await;
    let status = waited.map_err(Failure::runtime)?;
    tracing::info!(
        http = shown.http,
        resp = shown.resp,
        worker = status.worker.map(|worker| worker.to_string()),
        until = %Utc(status.until_unix_ms.unwrap_or_default()),
        layout = %plan.layout,
        ends = human::date(plan.layout.ends_at_unix_ms()),
        version = env!("CARGO_PKG_VERSION"),
        store = without_store::shown(&plan.store),
        reach = StoreReach::of_url(&plan.store).to_string(),
        "ready: ids are served"
    );
    Ok(())
}

/// What keeps the mint in step with flags, file and store.
fn sync(
    plan: &Plan,
    mint: &Arc<Mint>,
    store: Arc<dyn Store>,
    holder: Holder,
    clock: NodeClock,
    saved: Option<SavedLeases>,
) -> NamespaceSync {
    let (own, datacenter) = (plan.layout, plan.datacenter);
    let (window, max_skew, most) = (plan.window, plan.max_skew, plan.workers.max());
    let (leases, lease_clock) = (Arc::clone(&store), clock.clone());
    let open_source = move |layout: Layout, rule: Rule, start: Start| {
        let pool = Pool::new(layout, datacenter_in(&layout, datacenter));
        // In the pool of the service's own layout its name already holds a worker.
        let holder = if layout == own { beside(&holder, rule, start)? } else { holder.clone() };
        let config = KeeperConfig::new(pool, holder)
            .window(window)
            .max_skew(max_skew)
            .rule(rule)
            .sequence_start(start);
        let workers = Workers::new(1, most.min(pool.workers())).map_err(|error| error.to_string())?;
        Keepers::start(Arc::clone(&leases), config, workers, lease_clock.clone())
            .map(|keepers| Box::new(keepers) as Box<dyn IdSource>)
            .map_err(|error| error.to_string())
    };
    let options = SyncOptions {
        store,
        flags: plan.namespace_flags.clone(),
        rule: plan.rule,
        sequence_start: plan.sequence_start,
        open_source: Box::new(open_source),
        saved,
        poll: plan.poll,
        clock: Arc::new(clock),
        wall: Arc::new(WallClock),
    };
    NamespaceSync::new(Arc::clone(mint), plan.namespaces.clone(), options)
}

/// The datacenter of the service, where a layout has one.
fn datacenter_in(layout: &Layout, datacenter: DatacenterId) -> DatacenterId {
    if layout.width(Field::Datacenter) > 0 { datacenter } else { DatacenterId(0) }
}

/// The name under which another worker of the same pool is held, the same after each start.
fn beside(holder: &Holder, rule: Rule, start: Start) -> Result<Holder, String> {
    let name = format!("{holder}~{rule}~{start}").replace(' ', "-");
    Holder::new(name).map_err(|error| error.to_string())
}

/// Looks until the store has answered once, so that no namespace is refused that is there; without it, serves what
/// was told.
async fn first_look(sync: &mut NamespaceSync, late: Option<&LateStore>) {
    if late.is_some() {
        sync.serve_without_store().await;
        return;
    }
    let mut wait = FIRST_WAIT;
    while let Err(error) = sync.refresh().await {
        tracing::warn!(%error, next_try_in = ?wait, "the namespaces are not known yet: no ids until they are");
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Notified by each SIGHUP.
#[cfg(unix)]
fn reload_on_hangup() -> io::Result<Arc<Notify>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangups = signal(SignalKind::hangup())?;
    let reload = Arc::new(Notify::new());
    let notify = Arc::clone(&reload);
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            tracing::info!("SIGHUP: reloading the namespaces");
            notify.notify_one();
        }
    });
    Ok(reload)
}

/// Nothing asks for it where there are no signals.
#[cfg(not(unix))]
fn reload_on_hangup() -> io::Result<Arc<Notify>> {
    Ok(Arc::new(Notify::new()))
}

/// Takes all the open files that the system lets this process have, and no more connections than fit into them.
#[cfg(unix)]
fn raise_open_files(settings: &mut Settings) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Some systems name no hard limit and have one: what was there goes on.
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
            "connection limit lowered to the open files that the system allows: raise them (ulimit -n, LimitNOFILE=), or \
             lower --max-connections"
        );
    }
}

/// Nothing to ask for.
#[cfg(not(unix))]
fn raise_open_files(_: &mut Settings) {}

/// Hears of the signals that ask a process to end.
struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Listens from here on; before, a signal ends the process.
    fn listen() -> io::Result<Self> {
        let mut signals = Signals::listen()?;
        let (asked, stop) = watch::channel(false);
        tokio::spawn(async move {
            let first = signals.next().await;
            tracing::info!("{first}: ending; a second signal ends at once");
            asked.send_replace(true);
            let second = signals.next().await;
            tracing::warn!("{second}: ended at once; the lease runs out by itself");
            std::process::exit(1);
        });
        Ok(Self(stop))
    }

    /// Returns once a signal has come.
    async fn asked(&self) {
        // The sender lives as long as the process.
        let _ = self.0.clone().wait_for(|asked| *asked).await;
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
        // Nobody means the end by these, and the system would take them for it. A handler stays, heard or not.
        for harmless in [SignalKind::hangup(), SignalKind::user_defined1(), SignalKind::user_defined2()] {
            drop(signal(harmless)?);
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
        // Without a handler the system's own ends the process, which is what was asked for.
        let _ = tokio::signal::ctrl_c().await;
        "Ctrl-C"
    }
}
