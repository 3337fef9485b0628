//! The namespaces of a running service: who keeps them in step, what starts their leases, and what makes it look again.

use std::io;
use std::sync::Arc;

use snowmint::field::Field;
use snowmint::{DatacenterId, Layout, Rule, Start, WallClock};
use snowmint_cluster::{Holder, KeeperConfig, Keepers, NodeClock, Pool, SavedLeases, Workers};
use snowmint_server::namespace_sync::SyncOptions;
use snowmint_server::{IdSource, Mint, NamespaceSync};
use snowmint_store::Store;
use tokio::sync::Notify;

use super::late_store::LateStore;
use super::plan::Plan;
use super::{FIRST_WAIT, LONGEST_WAIT};

/// What keeps the mint in step with flags, file and store.
pub(super) fn sync(
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
pub(super) async fn first_look(sync: &mut NamespaceSync, late: Option<&LateStore>) {
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
pub(super) fn reload_on_hangup() -> io::Result<Arc<Notify>> {
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
pub(super) fn reload_on_hangup() -> io::Result<Arc<Notify>> {
    Ok(Arc::new(Notify::new()))
}
