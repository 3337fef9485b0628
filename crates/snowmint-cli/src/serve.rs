//! `snowmint serve`: the service in one process, from its flags to its last released lease.
//!
//! ```text
//! flags ─▶ checked plan ─▶ store, pins ─▶ ports ─▶ lease ─▶ serve ─▶ signal ─▶ drain ─▶ release
//!          exit 2          exit 1, 2      exit 1   exit 1                               exit 0
//! ```

mod args;
mod late_store;
mod logging;
mod namespaces;
mod open_files;
mod plan;
mod saved;
mod stop;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use snowmint::utc::Utc;
use snowmint::{Clock as _, WallClock};
use snowmint_cluster::{Holder, KeeperConfig, Keepers, NamespaceError, Pool, SavedLeases};
use snowmint_server::namespace_sync::NamespaceConfigError;
use snowmint_server::{Listeners, Mint, NamespaceSync, Settings, SharedClock};
use snowmint_store::{OpenError, Store, StoreReach};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

pub(crate) use args::Args;

use crate::exit::Failure;
use crate::values::Listen;
use crate::{instants, lease, store};
use late_store::LateStore;
use plan::Plan;
use stop::Stop;

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
    open_files::fit(&mut settings);
    let mint = Arc::new(Mint::new([], keepers.clone(), plan.layout, plan.datacenter));
    let sync = namespaces::sync(plan, &mint, prepared.store, prepared.holder, clock, prepared.saved);
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
    let saved = plan.start_without_store.then(|| saved::open(plan)).transpose()?;
    let opened = match &saved {
        Some(saved) if saved::is_usable(plan, saved) => open_soon(plan).await?,
        _ => Some(reached(|| open_and_pin(plan), "no ids until it is").await?),
    };
    let (store, late) = if let Some(store) = opened {
        (store, None)
    } else {
        let late = Arc::new(LateStore::new(saved::shown(&plan.store)));
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
        error => NotYet::Never(store::failure(error)),
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
        let opening = tokio::time::timeout(lease::MOMENT, open(plan)).await;
        let store = opening.unwrap_or_else(|_| Err(NotYet::Later("no answer in time".to_owned())))?;
        let settled = lease::MOMENT + 2 * store.may_lose();
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
    let reload = namespaces::reload_on_hangup().map_err(Failure::runtime)?;
    tokio::select! {
        biased;
        () = stop.asked() => return Ok(()),
        () = namespaces::first_look(&mut sync, late.as_deref()) => {}
    }
    let mut announced = pin!(announce_lease(plan, &keepers, shown));
    let soon = tokio::time::Instant::now() + lease::MOMENT;
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
            store = saved::shown(&plan.store),
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
    let waited = lease::wait(keepers, |waited, why| {
        if waited <= lease::MOMENT {
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
        ends = instants::date(plan.layout.ends_at_unix_ms()),
        version = env!("CARGO_PKG_VERSION"),
        store = saved::shown(&plan.store),
        reach = StoreReach::of_url(&plan.store).to_string(),
        "ready: ids are served"
    );
    Ok(())
}
