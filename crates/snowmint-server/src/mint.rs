//! The mint: who asks for ids of which namespace, how many, and what an id says. No protocol appears here.
//! Which namespaces there are may change while it serves; a request sees one state of it or the next.

mod caller;
mod counting;
mod error;
mod ids;
mod namespace;
mod pool;
mod received;
mod served;
mod source;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use snowmint::error::Snippet;
use snowmint::inspect::{Candidate, Decoded, Inspection};
use snowmint::{Clock as _, DatacenterId, Id, Layout, WallClock};
use snowmint_cluster::namespace::Definition;
use snowmint_cluster::{LeaseStatus, NamespaceName};
use tokio::sync::{mpsc, oneshot};

pub use caller::{Caller, Callers};
pub use error::{MintError, NotAnId};
pub use ids::{Ids, Minted};
pub use namespace::{Maker, Namespace, Part, Taken};
pub use pool::Pool;
pub(crate) use received::{HighestReceived, ReceivedNumbers};
pub use served::Served;
pub use source::{IdHandle, IdSource};

use crate::limits::MAX_WAIT;
use crate::settings::SharedClock;

/// Makes ids for the namespaces that are served now, and reads ids of its own layout.
#[derive(Debug)]
pub struct Mint {
    served: Arc<ArcSwap<Served>>,
    /// The workers of the service's own layout.
    pool: Arc<Pool>,
    datacenter: DatacenterId,
    slots: AtomicUsize,
    /// Namespaces that are served though the store has lost their records.
    unrecorded: ArcSwap<Vec<NamespaceName>>,
    records_lost: AtomicU64,
    received: Arc<ReceivedNumbers>,
    creator: OnceLock<mpsc::Sender<Creation>>,
}

/// By what an id is taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectBy<'a> {
    /// By whatever it may be an id of, those of the served namespaces first.
    Anything,
    /// By the text form and the scheme of the namespace of this name.
    Namespace(&'a [u8]),
    /// By the layout of this name or text.
    Layout(&'a [u8]),
}

/// A name that was asked for and is no namespace yet, and who waits for it.
#[derive(Debug)]
pub struct Creation {
    /// The name.
    pub name: NamespaceName,
    /// Hears whether it is one now.
    pub done: oneshot::Sender<Result<(), MintError>>,
}

impl Mint {
    /// A mint of these namespaces, which the caller has pinned to `layout`.
    pub fn new(
        namespaces: impl IntoIterator<Item = NamespaceName>,
        source: impl IdSource,
        layout: Layout,
        datacenter: DatacenterId,
    ) -> Self {
        let pool = Arc::new(Pool::new(Box::new(source), layout, 0));
        let wall: SharedClock = Arc::new(WallClock);
        let namespace = |name| {
            let maker = Maker::Snowflake(Arc::clone(&pool));
            Arc::new(Namespace::new(name, Definition::snowflake(layout), maker, &wall))
        };
        let served = Served::new(namespaces.into_iter().map(namespace).collect());
        Self {
            served: Arc::new(ArcSwap::from_pointee(served)),
            pool,
            datacenter,
            slots: AtomicUsize::new(1),
            unrecorded: ArcSwap::default(),
            records_lost: AtomicU64::new(0),
            received: Arc::default(),
            creator: OnceLock::new(),
        }
    }

    /// The state of a new connection.
    pub fn caller(&self) -> Caller {
        Caller::new(Arc::clone(&self.served))
    }

    /// Serves these namespaces and no others from now on; what is asked for at this moment may still go to those
    /// before.
    pub fn serve(&self, namespaces: Vec<Arc<Namespace>>) {
        self.served.store(Arc::new(Served::new(namespaces)));
    }

    /// The namespaces that are served now.
    pub fn served(&self) -> Arc<Served> {
        self.served.load_full()
    }

    /// Notes which namespaces are served though the store has lost their records, and how many records it lost since.
    pub(crate) fn note_unrecorded(&self, names: Vec<NamespaceName>, newly_lost: u64) {
        self.unrecorded.store(Arc::new(names));
        self.records_lost.fetch_add(newly_lost, Ordering::Relaxed);
    }

    /// Namespaces that are served though the store has lost their records.
    pub fn unrecorded(&self) -> Arc<Vec<NamespaceName>> {
        self.unrecorded.load_full()
    }

    /// Records of served namespaces that the store has lost since the start.
    pub fn records_lost(&self) -> u64 {
        self.records_lost.load(Ordering::Relaxed)
    }

    /// What this process received, by counter.
    pub(crate) const fn received(&self) -> &Arc<ReceivedNumbers> {
        &self.received
    }

    /// What keeps this node from going on for ever as it does now, though it makes ids; `None` where all is well.
    pub fn trouble(&self) -> Option<String> {
        let unrecorded = self.unrecorded();
        let names: Vec<_> = unrecorded.iter().map(NamespaceName::as_str).collect();
        let lost = (!names.is_empty()).then(|| {
            format!("the store has lost the records of namespaces that are served: {}", names.join(", "))
        });
        let served = self.served();
        let missing = served.namespaces().iter().filter(|it| matches!(it.maker(), Maker::Missing(_)));
        let missing: Vec<_> = missing.map(|it| it.name().as_str()).collect();
        let missing = (!missing.is_empty())
            .then(|| format!("namespaces that cannot be served, the log says why: {}", missing.join(", ")));
        let trouble: Vec<_> = self.status().trouble.into_iter().chain(lost).chain(missing).collect();
        (!trouble.is_empty()).then(|| trouble.join("; "))
    }

    /// A pool of another layout, for namespaces that are to be served.
    pub fn add_pool(&self, source: Box<dyn IdSource>, layout: Layout) -> Arc<Pool> {
        // Only that no two are equal matters.
        Arc::new(Pool::new(source, layout, self.slots.fetch_add(1, Ordering::Relaxed)))
    }

    /// The pool of the service's own layout.
    pub const fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// From now on `creations` hears of names that are asked for and are no namespaces; until then they are refused.
    pub fn create_by(&self, creations: mpsc::Sender<Creation>) {
        // Set once, by whoever looks after the namespaces.
        let _ = self.creator.set(creations);
    }

    /// Makes a namespace of a name that was asked for, where that is allowed.
    ///
    /// # Errors
    ///
    /// `unknown` where it is not, or why not.
    pub async fn create(&self, name: &[u8], unknown: MintError) -> Result<(), MintError> {
        let name = std::str::from_utf8(name).ok().and_then(|name| NamespaceName::new(name).ok());
        let (Some(creator), Some(name), MintError::UnknownNamespace { .. }) =
            (self.creator.get(), name, &unknown)
        else {
            return Err(unknown);
        };
        let (done, heard) = oneshot::channel();
        let asked = async {
            creator.send(Creation { name, done }).await.ok()?;
            heard.await.ok()
        };
        match tokio::time::timeout(MAX_WAIT, asked).await {
            Ok(Some(created)) => created,
            Ok(None) => Err(unknown),
            Err(_) => Err(MintError::NotReady { why: "the store did not answer in time".to_owned() }),
        }
    }

    /// The error for a name that is no namespace.
    pub(crate) fn unknown(&self, name: &NamespaceName) -> MintError {
        self.served().unknown(name.as_str().as_bytes())
    }

    /// Whether a name that is no namespace may become one.
    pub fn creates(&self) -> bool {
        self.creator.get().is_some_and(|creator| !creator.is_closed())
    }

    /// Whether ids can be made now, of every namespace that depends on the store of the service.
    ///
    /// # Errors
    ///
    /// [`MintError`] says what is missing.
    pub fn check_ready(&self) -> Result<(), MintError> {
        let mut caller = self.caller();
        let served = self.served();
        served.namespaces.iter().try_for_each(|namespace| namespace.check_ready(caller.callers()))
    }

    /// Takes an id apart, in any text form and scheme of the namespace, or as whatever it may be.
    ///
    /// # Errors
    ///
    /// [`MintError::BadId`] and [`MintError::NotOfNamespace`] for what is no such id, [`MintError::BadLayout`] for what is no
    /// layout, [`MintError::UnknownNamespace`]. No namespace is ever made by this.
    pub fn inspect(&self, text: &[u8], by: InspectBy<'_>) -> Result<Inspection, MintError> {
        let text = String::from_utf8_lossy(text);
        let bad = |why: NotAnId| MintError::BadId { text: Snippet::of(&text), why };
        match by {
            InspectBy::Anything => {
                let now_unix_ms = WallClock.unix_ms();
                let inspection = Inspection::of_text(&text, self.candidates(&text, now_unix_ms), now_unix_ms);
                inspection
                    .ok_or_else(|| bad(text.parse::<Id>().map_or_else(NotAnId::Text, |_| NotAnId::Nothing)))
            }
            InspectBy::Namespace(name) => {
                let served = self.served();
                let namespace = &served.namespaces[served.position(name)?];
                match namespace.inspect(&text) {
                    Ok((decoded, form)) => Ok(Inspection::known(decoded, form)),
                    Err(why) => {
                        let name = Snippet::of(namespace.name().as_str());
                        Err(MintError::NotOfNamespace { text: Snippet::of(&text), name, why })
                    }
                }
            }
            InspectBy::Layout(layout) => {
                let layout = String::from_utf8_lossy(layout);
                let layout: Layout = layout.parse().map_err(|why| MintError::BadLayout {
                    layout: Snippet::of(&layout),
                    why: Box::new(why),
                })?;
                let id: Id = text.parse().map_err(|error| bad(NotAnId::Text(error)))?;
                let decoded = Decoded::by_layout(id, layout).map_err(|error| bad(error.into()))?;
                Ok(Inspection::known(decoded, "decimal"))
            }
        }
    }

    /// What a text is to each namespace that is served.
    fn candidates(&self, text: &str, now_unix_ms: u64) -> Vec<Candidate> {
        let served = self.served();
        let read = |namespace: &Arc<Namespace>| {
            let (decoded, form) = namespace.inspect(text).ok()?;
            Some(Candidate::of_namespace(namespace.name().as_str(), decoded, form, now_unix_ms))
        };
        served.namespaces.iter().filter_map(read).collect()
    }

    /// The layout of the service.
    pub fn layout(&self) -> &Layout {
        &self.pool.layout
    }

    /// The datacenter that is written into every id.
    pub const fn datacenter(&self) -> DatacenterId {
        self.datacenter
    }

    /// How the lease of the service's own layout stands.
    pub fn status(&self) -> LeaseStatus {
        self.pool.source.status()
    }

    /// How each lease of the service's own layout stands.
    pub fn leases(&self) -> Vec<LeaseStatus> {
        self.pool.source.leases()
    }

    /// Makes no more ids; gives leases back, and numbers that nobody drew, within `patience`.
    pub async fn release(&self, patience: Duration) {
        let served = self.served();
        self.serve(Vec::new());
        let mut pools = vec![Arc::clone(&self.pool)];
        let mut tasks = tokio::task::JoinSet::new();
        for namespace in served.namespaces() {
            match namespace.maker() {
                Maker::Segment(segments) => {
                    let segments = segments.clone();
                    tasks.spawn(async move { segments.release(patience).await });
                }
                Maker::Snowflake(pool) if pools.iter().all(|it| it.slot != pool.slot) => {
                    pools.push(Arc::clone(pool));
                }
                _ => {}
            }
        }
        for pool in pools {
            tasks.spawn(async move { pool.source.release(patience).await });
        }
        tasks.join_all().await;
    }
}

#[cfg(test)]
mod tests;
