//! The client, and the ids of one namespace.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use snowmint::Id;
use snowmint::fork::ForkMark;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::buffer::{Aging, BufferedRange};
use crate::buffer_target::MAX_REQUEST;
use crate::error::{BuildError, ClientError};
use crate::fetcher::{ClientNamespace, Fetcher, Stats, lock};
use crate::refill::{self, BufferSettings, NamespaceIds};

/// A client of one or more Snowmint servers.
///
/// It is cheap to clone; all clones share connections and ids. One background thread requests ids, so callers
/// may use any async runtime or none. The thread ends when the last clone and the last [`Ids`] are dropped.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use snowmint_client::Client;
///
/// let client = Client::builder()
///     .server("https://ids-1.internal:8080")
///     .server("https://ids-2.internal:8080")
///     .token_file("/run/secrets/snowmint-token")
///     .build()?;
/// let orders = client.namespace("orders")?;
/// println!("{}", orders.next_id().await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client(Arc<ClientInner>);

#[derive(Debug)]
struct ClientInner {
    mark: ForkMark,
    fetcher: Arc<Fetcher>,
    settings: BufferSettings,
    /// Namespaces with a maximum age of their own.
    max_ages: HashMap<String, Duration>,
    background: Handle,
    stop: Arc<Notify>,
    namespaces: Mutex<HashMap<String, KnownNamespace>>,
}

/// A namespace that was requested.
#[derive(Debug)]
struct KnownNamespace {
    /// Its handles.
    shared: Weak<IdsShared>,
    /// Its failures, which outlast its handles: the next one has to respect `Retry-After` too.
    namespace: Arc<ClientNamespace>,
}

/// The ids of one namespace.
///
/// It is cheap to clone. All clones, and all handles that [`Client::namespace`] returned for this name, share
/// one buffer. Dropping the last one drops the ids in the buffer.
#[derive(Clone, Debug)]
pub struct Ids(Arc<IdsShared>);

#[derive(Debug)]
struct IdsShared {
    source: Arc<NamespaceIds>,
    task: AbortHandle,
    client: Client,
}

impl Client {
    pub(crate) fn start(
        fetcher: Fetcher,
        settings: BufferSettings,
        max_ages: HashMap<String, Duration>,
    ) -> Result<Self, BuildError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(BuildError::Thread)?;
        let (background, stop) = (runtime.handle().clone(), Arc::new(Notify::new()));
        let stopped = Arc::clone(&stop);
        thread::Builder::new()
            .name("snowmint-client".to_owned())
            .spawn(move || {
                runtime.block_on(stopped.notified());
                // Does not wait for a DNS lookup in progress.
                runtime.shutdown_background();
            })
            .map_err(BuildError::Thread)?;
        Ok(Self(Arc::new(ClientInner {
            mark: ForkMark::of_this_process(),
            fetcher: Arc::new(fetcher),
            settings,
            max_ages,
            background,
            stop,
            namespaces: Mutex::default(),
        })))
    }

    /// Returns a handle for the ids of a namespace. It sends no request yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidNamespace`](crate::ErrorKind::InvalidNamespace), or
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked) in a forked child of the process that built the
    /// client.
    pub fn namespace(&self, name: &str) -> Result<Ids, ClientError> {
        let inner = &*self.0;
        if !inner.mark.is_same_process() {
            return Err(ClientError::forked(name));
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
        if !(1..=64).contains(&name.len()) || !name.bytes().all(allowed) {
            return Err(ClientError::invalid_namespace(name));
        }
        let mut namespaces = lock(&inner.namespaces);
        if let Some(shared) = namespaces.get(name).and_then(|known| known.shared.upgrade()) {
            return Ok(Ids(shared));
        }
        let namespace = namespaces
            .get(name)
            .map_or_else(|| Arc::new(inner.fetcher.namespace(name)), |known| Arc::clone(&known.namespace));
        namespaces.retain(|_, known| known.shared.strong_count() > 0 || known.namespace.is_restricted());
        let mut settings = inner.settings.clone();
        settings.max_age = inner.max_ages.get(name).copied().unwrap_or(settings.max_age);
        let clock = Arc::clone(&inner.fetcher.clock);
        let source = Arc::new(NamespaceIds::new(Arc::clone(&namespace), inner.mark, clock, settings));
        let running = refill::run(Arc::clone(&source), Arc::clone(&inner.fetcher));
        let task = inner.background.spawn(running).abort_handle();
        let shared = Arc::new(IdsShared { source, task, client: self.clone() });
        namespaces.insert(name.to_owned(), KnownNamespace { shared: Arc::downgrade(&shared), namespace });
        Ok(Ids(shared))
    }

    /// Returns the identity of the store whose ids this client returns: the one that was set, or that the
    /// first answer named.
    pub fn store(&self) -> Option<String> {
        self.0.fetcher.store()
    }

    /// Returns the request counts so far, for metrics.
    pub fn stats(&self) -> Stats {
        self.0.fetcher.stats()
    }
}

impl Drop for ClientInner {
    fn drop(&mut self) {
        // A forked child does not have the thread, which may have held a lock during the fork.
        if self.mark.is_same_process() {
            self.stop.notify_one();
        }
    }
}

impl Drop for IdsShared {
    fn drop(&mut self) {
        if self.source.mark.is_same_process() {
            self.task.abort();
        }
    }
}

impl Ids {
    /// Returns the next id.
    ///
    /// It takes nanoseconds while the buffer has ids. Otherwise it waits for a server, up to the client's
    /// timeout. It works on any runtime.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`](crate::ErrorKind) lists them and says which ones to retry.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, at most the id that it was about to return is lost. No id is returned twice.
    #[inline]
    pub async fn next_id(&self) -> Result<Id, ClientError> {
        if let Some(id) = self.try_draw()? {
            return Ok(id);
        }
        self.first_of(self.0.source.wait(Vec::new(), 1).await?)
    }

    /// Returns the next id, blocking the thread while it waits.
    ///
    /// Use it in code without `async`. In async code use [`next_id`](Self::next_id): this method blocks the
    /// other tasks of the thread.
    ///
    /// # Errors
    ///
    /// As for [`next_id`](Self::next_id).
    #[inline]
    pub fn blocking_next_id(&self) -> Result<Id, ClientError> {
        if let Some(id) = self.try_draw()? {
            return Ok(id);
        }
        self.first_of(block_on(self.0.source.wait(Vec::new(), 1))?)
    }

    /// Returns the next id if the buffer has one. It never waits: an empty buffer is refilled in the
    /// background. With [`buffer(0..=0)`](crate::ClientBuilder::buffer) it always returns `None`.
    ///
    /// # Errors
    ///
    /// Returns an error only in a forked child of the process that built the client.
    /// [`next_id`](Self::next_id) reports server failures.
    #[inline]
    pub fn try_next_id(&self) -> Result<Option<Id>, ClientError> {
        let drawn = self.try_draw()?;
        if drawn.is_none() {
            self.0.source.refill_empty();
        }
        Ok(drawn)
    }

    /// Returns `count` ids, 1 to 1,000,000: first those in the buffer, the rest from the servers.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidCount`](crate::ErrorKind::InvalidCount), and the errors of
    /// [`next_id`](Self::next_id). Ids drawn before the error are lost.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, its ids are lost. No id is returned twice.
    pub async fn next_ids(&self, count: usize) -> Result<Vec<Id>, ClientError> {
        let (drawn, missing) = self.draw_many(count)?;
        if missing == 0 {
            return Ok(ids_of(drawn.into_iter().map(|it| it.range), count));
        }
        Ok(ids_of(self.0.source.wait(drawn, missing).await?, count))
    }

    /// Returns `count` ids like [`next_ids`](Self::next_ids), blocking the thread while it waits.
    ///
    /// # Errors
    ///
    /// As for [`next_ids`](Self::next_ids).
    pub fn blocking_next_ids(&self, count: usize) -> Result<Vec<Id>, ClientError> {
        let (drawn, missing) = self.draw_many(count)?;
        if missing == 0 {
            return Ok(ids_of(drawn.into_iter().map(|it| it.range), count));
        }
        Ok(ids_of(block_on(self.0.source.wait(drawn, missing))?, count))
    }

    /// Returns the name of the namespace.
    pub fn namespace(&self) -> &str {
        &self.0.source.namespace.name
    }

    /// Returns the client.
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// Returns the number of ids in the buffer; 0 in a forked child.
    pub fn buffered(&self) -> u64 {
        let source = &self.0.source;
        if source.mark.is_same_process() { source.buffer.level().left } else { 0 }
    }

    /// Drops the ids in the buffer, and those requested for it. The buffer stays empty until the next call
    /// for an id. In a forked child it does nothing.
    ///
    /// Call it before you take a snapshot of a machine or process that may be started more than once;
    /// otherwise each copy returns the same ids. Make sure that no other call is in progress.
    pub fn discard_buffered(&self) {
        let source = &self.0.source;
        if source.mark.is_same_process() {
            source.discard();
        }
    }

    #[inline]
    fn try_draw(&self) -> Result<Option<Id>, ClientError> {
        let source = &*self.0.source;
        if !source.mark.is_same_process() {
            return Err(ClientError::forked(&source.namespace.name));
        }
        let Some(drawn) = source.buffer.draw(1) else { return Ok(None) };
        if drawn.is_low {
            source.refill();
        }
        Ok(drawn.range.ids().next())
    }

    /// Draws up to `count` ids. Returns them and the number still missing.
    fn draw_many(&self, count: usize) -> Result<(Vec<Aging>, u64), ClientError> {
        let source = &*self.0.source;
        if !source.mark.is_same_process() {
            return Err(ClientError::forked(&source.namespace.name));
        }
        let mut missing = count as u64;
        if !(1..=MAX_REQUEST).contains(&missing) {
            return Err(ClientError::invalid_count(&source.namespace.name, count, MAX_REQUEST));
        }
        let mut ranges = Vec::new();
        while missing > 0
            && let Some(drawn) = source.buffer.draw(missing)
        {
            if drawn.is_low {
                source.refill();
            }
            missing -= drawn.range.count();
            ranges.push(drawn.into());
        }
        Ok((ranges, missing))
    }

    fn first_of(&self, ranges: Vec<BufferedRange>) -> Result<Id, ClientError> {
        let first = ranges.into_iter().flat_map(BufferedRange::ids).next();
        first.ok_or_else(|| ClientError::closed(&self.0.source.namespace.name))
    }
}

/// Returns the first `count` ids of the ranges.
fn ids_of(ranges: impl IntoIterator<Item = BufferedRange>, count: usize) -> Vec<Id> {
    let mut ids = Vec::with_capacity(count);
    ids.extend(ranges.into_iter().flat_map(BufferedRange::ids));
    ids
}

/// Wakes a thread that is blocked on a future.
struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to completion on this thread, even inside a runtime. The background thread ends every wait
/// at its timeout.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unparks(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}
