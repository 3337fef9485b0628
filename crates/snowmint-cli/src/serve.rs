//! `snowmint serve`: the service in one process, from its flags to its last released lease.
//!
//! ```text
//! flags ─▶ checked plan ─▶ store, pins ─▶ ports ─▶ lease ─▶ serve ─▶ signal ─▶ drain ─▶ release
//!          exit 2          exit 1, 2      exit 1   exit 1                               exit 0
//! ```

mod args;
mod logging;
mod plan;
mod stop;

use std::cell::OnceCell;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use snowmint::utc::Utc;
use snowmint::{AnchoredClock, Clock as _, WallClock};
use snowmint_cluster::{Holder, Keeper, KeeperConfig, PinError, Pool};
use snowmint_server::{Listeners, Mint, Settings};
use snowmint_store::{OpenError, Store};
use tokio::net::TcpListener;
use tokio::runtime::Builder;

pub(crate) use args::Args;

use crate::exit::Failure;
use crate::values::Listen;
use crate::{instants, lease, store};
use plan::Plan;
use stop::Stop;

/// More than two gain nothing for what one node is asked, and each costs memory.
const THREADS: usize = 2;
/// Between tries to reach a store that is not there at the start.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How long the store may take to note that the lease is given back.
const RELEASE_PATIENCE: Duration = Duration::from_secs(3);

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let plan = Plan::check(args, WallClock.unix_ms())?;
    logging::start(&plan.log);
    for warning in &plan.warnings {
        tracing::warn!("{warning}");
    }
    let runtime =
        Builder::new_multi_thread().worker_threads(THREADS).enable_all().build().map_err(Failure::runtime)?;
    let outcome = runtime.block_on(until_stopped(&plan));
    // What is still running has nothing left to do for anybody.
    runtime.shutdown_background();
    outcome
}

async fn until_stopped(plan: &Plan) -> Result<(), Failure> {
    let stop = Stop::listen().map_err(Failure::runtime)?;
    let prepared = tokio::select! {
        biased;
        () = stop.asked() => return Ok(()),
        prepared = prepare(plan) => prepared?,
    };
    let Ports { listeners, shown } = prepared.ports;
    let clock = Arc::new(AnchoredClock::new());
    let config = KeeperConfig::new(Pool::new(plan.layout, plan.datacenter), prepared.holder)
        .worker(plan.choice)
        .window(plan.window)
        .max_skew(plan.max_skew)
        .rule(plan.rule);
    let keeper = Keeper::start(prepared.store, config, Arc::clone(&clock)).map_err(Failure::usage)?;
    let settings = Settings { clock, ..Settings::default() };
    let outcome = serve(plan, &stop, &keeper, listeners, settings, &shown).await;
    keeper.release(RELEASE_PATIENCE).await;
    outcome
}

/// What is there before a lease is sought.
struct Prepared {
    store: Arc<dyn Store>,
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

async fn prepare(plan: &Plan) -> Result<Prepared, Failure> {
    let store = reached(|| open_and_pin(plan)).await?;
    let listeners = Listeners {
        http: open_port(&plan.http, "--http").await?,
        resp: open_port(&plan.resp, "--resp").await?,
    };
    let shown = Shown { http: address(listeners.http.as_ref()), resp: address(listeners.resp.as_ref()) };
    let holder = plan.holder.clone().unwrap_or_else(|| holder_of(&listeners));
    Ok(Prepared { store, ports: Ports { listeners, shown }, holder })
}

/// Why the store cannot be used yet, or at all.
enum NotYet {
    /// It is busy or down: it may be there in a moment.
    Later(String),
    Never(Failure),
}

async fn open_and_pin(plan: &Plan) -> Result<Arc<dyn Store>, NotYet> {
    let store = snowmint_store::open(&plan.store).await.map_err(|error| match error {
        OpenError::Store(error) if error.is_temporary() => NotYet::Later(error.to_string()),
        error => NotYet::Never(store::failure(error)),
    })?;
    for namespace in &plan.namespaces {
        let pinned = snowmint_cluster::pin(&*store, namespace, &plan.layout).await;
        pinned.map_err(|error| match error {
            PinError::Mismatch { .. } => NotYet::Never(Failure::usage(error)),
            PinError::Store(error) if error.is_temporary() => NotYet::Later(error.to_string()),
            error => NotYet::Never(Failure::runtime(error)),
        })?;
    }
    Ok(store)
}

/// Tries until the store is there, after longer and longer waits, and says so.
async fn reached<T, F: Future<Output = Result<T, NotYet>>>(attempt: impl Fn() -> F) -> Result<T, Failure> {
    let mut wait = FIRST_WAIT;
    loop {
        match attempt().await {
            Ok(reached) => return Ok(reached),
            Err(NotYet::Never(failure)) => return Err(failure),
            Err(NotYet::Later(error)) => {
                tracing::warn!(%error, next_try_in = ?wait, "the store is not there yet: no ids until it is");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
        }
    }
}

async fn open_port(listen: &Listen, flag: &'static str) -> Result<Option<TcpListener>, Failure> {
    match listen {
        Listen::Off => Ok(None),
        Listen::At { address, .. } => {
            let opened = snowmint_server::bind(address, flag).await;
            opened.map(Some).map_err(Failure::runtime)
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
    keeper: &Keeper,
    listeners: Listeners,
    settings: Settings,
    shown: &Shown,
) -> Result<(), Failure> {
    let mut announced = pin!(announce_lease(plan, keeper, shown));
    let early = tokio::select! {
        biased;
        () = stop.asked() => return Ok(()),
        early = tokio::time::timeout(lease::MOMENT, announced.as_mut()) => early.ok().transpose()?,
    };
    if early.is_none() {
        tracing::warn!(
            http = shown.http,
            resp = shown.resp,
            "listening; ids are refused until a lease is held"
        );
    }
    let refused = OnceCell::new();
    let ends = async {
        if early.is_none()
            && let Err(failure) = unless_stopped(stop, announced).await
        {
            // Set here alone, once.
            let _ = refused.set(failure);
            return;
        }
        stop.asked().await;
    };
    let mint = Mint::new(plan.namespaces.iter().cloned(), keeper.clone(), plan.layout, plan.datacenter);
    snowmint_server::serve(Arc::new(mint), listeners, settings, ends).await;
    refused.into_inner().map_or(Ok(()), Err)
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

async fn announce_lease(plan: &Plan, keeper: &Keeper, shown: &Shown) -> Result<(), Failure> {
    let waited = lease::wait(keeper, |why| tracing::warn!("no lease yet: {why}")).await;
    let status = waited.map_err(Failure::runtime)?;
    tracing::info!(
        http = shown.http,
        resp = shown.resp,
        worker = status.worker.map(|worker| worker.0),
        until = %Utc(status.until_unix_ms.unwrap_or_default()),
        layout = %plan.layout,
        ends = instants::date(plan.layout.ends_at_unix_ms()),
        "ready: ids are served"
    );
    Ok(())
}
