//! What a connection keeps between its requests: the table of namespaces that it knows, and its handles to
//! draw ids through. A table never changes: a new one replaces it, and a connection notices with one load of
//! a pointer.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Cache};
use snowmint_cluster::segment::Run;
use tokio::time::Instant;

use super::Mint;
use super::error::MintError;
use super::id_pool::IdHandles;
use super::ids::Ids;
use super::namespace::{Namespace, PartialIds};
use super::namespace_table::NamespaceTable;
use crate::limits::MAX_WAIT;

/// If a request fails after at least this time, its wait counts as failed; an earlier failure may be a
/// temporary fault.
const IN_VAIN: Duration = Duration::from_secs(1);

/// The state that one connection keeps between its requests.
pub struct ConnectionState {
    table: Cache<Arc<ArcSwap<NamespaceTable>>, Arc<NamespaceTable>>,
    /// The index of the namespace that the last request used.
    last: usize,
    handles: IdHandles,
    in_vain: InVain,
}

/// A request of the current input whose wait failed. Boxed, since it is rare.
#[derive(Default)]
struct InVain(Option<Box<Waited>>);

struct Waited {
    namespace: Box<[u8]>,
    count: u64,
    error: MintError,
}

impl InVain {
    /// Waits, unless the wait of a request for as many or fewer ids has failed.
    async fn unless<T>(
        &mut self,
        namespace: &[u8],
        count: u64,
        waiting: impl Future<Output = Result<T, MintError>>,
    ) -> Result<T, MintError> {
        if let Some(waited) = &self.0
            && *waited.namespace == *namespace
            && waited.count <= count
        {
            return Err(waited.error.clone());
        }
        let began = Instant::now();
        let answer = waiting.await;
        if let Err(error) = &answer
            && began.elapsed() >= IN_VAIN
        {
            self.0 = Some(Box::new(Waited { namespace: namespace.into(), count, error: error.clone() }));
        }
        answer
    }
}

impl fmt::Debug for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionState").field("handles", &self.handles).finish_non_exhaustive()
    }
}

impl ConnectionState {
    pub(super) fn new(table: Arc<ArcSwap<NamespaceTable>>) -> Self {
        Self { table: Cache::new(table), last: 0, handles: IdHandles::default(), in_vain: InVain::default() }
    }

    /// Finds a namespace by its name, with this connection's handles to draw ids through. Creates nothing.
    ///
    /// # Errors
    ///
    /// [`MintError::UnknownNamespace`] lists those that exist; [`MintError::BadNamespace`] if the name is
    /// invalid.
    #[inline]
    pub fn find(&mut self, name: &[u8]) -> Result<(&Arc<Namespace>, &mut IdHandles), MintError> {
        let table = self.table.load();
        let again = table.namespaces.get(self.last).is_some_and(|it| it.name().as_str().as_bytes() == name);
        if !again {
            self.last = table.position(name)?;
        }
        match table.namespaces.get(self.last) {
            Some(namespace) => Ok((namespace, &mut self.handles)),
            None => Err(table.unknown(name)),
        }
    }

    /// Returns this connection's handles.
    pub(crate) const fn handles(&mut self) -> &mut IdHandles {
        &mut self.handles
    }

    /// Records that further requests were read. Requests that were read together wait together: once the wait
    /// of one has failed for a namespace, the others are rejected at once. Otherwise a pipeline of 100
    /// requests would wait 100 times.
    #[inline]
    pub(crate) fn read_more(&mut self) {
        self.in_vain.0 = None;
    }

    /// Waits for missing ids like [`Namespace::wait`], unless the wait of a request that was read with this
    /// one has failed.
    pub(crate) async fn wait(
        &mut self,
        namespace: &Namespace,
        partial: PartialIds,
    ) -> Result<Ids, MintError> {
        let (name, missing) = (namespace.name().as_str().as_bytes(), partial.missing() as u64);
        let ids = namespace.wait(&mut self.handles, partial, MAX_WAIT);
        self.in_vain.unless(name, missing, ids).await
    }

    /// Takes numbers like [`Namespace::take_run`], with the same exception.
    pub(crate) async fn take_run(
        &mut self,
        namespace: &Namespace,
        count: NonZeroU64,
    ) -> Result<Run, MintError> {
        let name = namespace.name().as_str().as_bytes();
        self.in_vain.unless(name, count.get(), namespace.take_run(count)).await
    }

    /// Creates a namespace like [`Mint::create`], with the same exception.
    pub(crate) async fn create(
        &mut self,
        mint: &Mint,
        name: &[u8],
        unknown: MintError,
    ) -> Result<(), MintError> {
        self.in_vain.unless(name, 0, mint.create(name, unknown)).await
    }
}
