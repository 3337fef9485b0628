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

use crate::buffer::{Aging, IdRange};
use crate::builder::ClientBuilder;
use crate::error::{BuildError, ClientError};
use crate::link::{Link, Stats, lock};
use crate::pace::MAX_REQUEST;
use crate::refill::{self, Settings, Source};

/// A client of one or more Snowmint servers.
///
/// Cheap to clone; all clones share connections and ids. One background thread requests ids, so that callers may use any async
/// runtime or none. It ends when the last clone and the last [`Ids`] are dropped.
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
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    mark: ForkMark,
    link: Arc<Link>,
    settings: Settings,
    /// Namespaces whose ids may be older or younger than those of others.
    max_ages: HashMap<String, Duration>,
    background: Handle,
    stop: Arc<Notify>,
    namespaces: Mutex<HashMap<String, Weak<Shared>>>,
}

/// The ids of one namespace.
///
/// Cheap to clone; all clones share one buffer, as do all handles that [`Client::namespace`] returned for this name. Dropping the
/// last one drops the ids in the buffer.
#[derive(Clone, Debug)]
pub struct Ids(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    source: Arc<Source>,
    task: AbortHandle,
    client: Client,
}

impl Client {
    /// Returns a builder without a server.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    pub(crate) fn start(
        link: Link,
        settings: Settings,
        max_ages: HashMap<String, Duration>,
    ) -> Result<Self, BuildError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(BuildError::Thread)?;
        let (background, stop) = (runtime.handle().clone(), Arc::new(Notify::new()));
        let stopped = Arc::clone(&stop);
        thread::Builder::new()
            .name("snowmint-client".to_owned())
            .spawn(move || {
                runtime.block_on(stopped.notified());
                // A name that is just being resolved keeps nobody waiting.
                runtime.shutdown_background();
            })
            .map_err(BuildError::Thread)?;
        Ok(Self(Arc::new(Inner {
            mark: ForkMark::of_this_process(),
            link: Arc::new(link),
            settings,
            max_ages,
            background,
            stop,
            namespaces: Mutex::default(),
        })))
    }

    /// Returns the ids of a namespace. Sends no request yet.
    ///
    /// # Errors
    ///
    /// An invalid name; a forked child of the process that built the client.
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
        if let Some(shared) = namespaces.get(name).and_then(Weak::upgrade) {
            return Ok(Ids(shared));
        }
        namespaces.retain(|_, shared| shared.strong_count() > 0);
        let mut settings = inner.settings.clone();
        settings.max_age = inner.max_ages.get(name).copied().unwrap_or(settings.max_age);
        let source = Arc::new(Source::new(name, inner.mark, Arc::clone(&inner.link.clock), settings));
        let running = refill::run(Arc::clone(&source), Arc::clone(&inner.link));
        let task = inner.background.spawn(running).abort_handle();
        let shared = Arc::new(Shared { source, task, client: self.clone() });
        namespaces.insert(name.to_owned(), Arc::downgrade(&shared));
        Ok(Ids(shared))
    }

    /// Returns the numbers of requests so far, for metrics.
    pub fn stats(&self) -> Stats {
        self.0.link.stats()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A forked child does not have the thread, which may have held a lock.
        if self.mark.is_same_process() {
            self.stop.notify_one();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.source.mark.is_same_process() {
            self.task.abort();
        }
    }
}

impl Ids {
    /// Returns the next id.
    ///
    /// Takes nanoseconds while the buffer has ids. Otherwise waits for a server, up to the timeout of the client. Needs no
    /// particular runtime.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`](crate::ErrorKind) lists them and says which of them are worth a retry.
    ///
    /// # Cancel safety
    ///
    /// A dropped future loses at most the id that was about to be returned. No id is returned twice.
    #[inline]
    pub async fn next_id(&self) -> Result<Id, ClientError> {
        if let Some(id) = self.try_draw()? {
            return Ok(id);
        }
        self.first_of(self.0.source.wait(Vec::new(), 1).await?)
    }

    /// Returns the next id, and blocks the thread while it waits.
    ///
    /// For code without `async`. In async code use [`next_id`](Self::next_id), since this keeps the other tasks of the thread
    /// waiting.
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

    /// Returns the next id if the buffer has one. Never waits: if the buffer is empty, it is filled in the background. With
    /// [`buffer(0..=0)`](ClientBuilder::buffer) it never has one.
    ///
    /// # Errors
    ///
    /// A forked child of the process that built the client. The failures of servers are those of [`next_id`](Self::next_id).
    #[inline]
    pub fn try_next_id(&self) -> Result<Option<Id>, ClientError> {
        let drawn = self.try_draw()?;
        if drawn.is_none() {
            self.0.source.refill_empty();
        }
        Ok(drawn)
    }

    /// Returns `count` ids, 1 to 1,000,000: from the buffer as far as it reaches, and the others in one request.
    ///
    /// # Errors
    ///
    /// An invalid count, and those of [`next_id`](Self::next_id). Ids drawn before the error are lost.
    ///
    /// # Cancel safety
    ///
    /// A dropped future loses its ids. No id is returned twice.
    pub async fn next_ids(&self, count: usize) -> Result<Vec<Id>, ClientError> {
        let (drawn, missing) = self.draw_many(count)?;
        if missing == 0 {
            return Ok(ids_of(drawn.into_iter().map(|it| it.range), count));
        }
        Ok(ids_of(self.0.source.wait(drawn, missing).await?, count))
    }

    /// Returns `count` ids, as [`next_ids`](Self::next_ids) does, and blocks the thread while it waits.
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
        &self.0.source.namespace
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

    /// Drops the ids in the buffer, and those that were requested for it. It stays empty until the next call for an id. Does
    /// nothing in a forked child.
    ///
    /// Call it, with no other call in progress, before a snapshot of the machine or the process that may be started more than
    /// once: each copy would return the same ids from its buffer.
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
            return Err(ClientError::forked(&source.namespace));
        }
        let Some(drawn) = source.buffer.draw(1) else { return Ok(None) };
        if drawn.is_low {
            source.refill();
        }
        Ok(drawn.range.ids().next())
    }

    /// Draws up to `count` ids. Returns them, and the number of missing ones.
    fn draw_many(&self, count: usize) -> Result<(Vec<Aging>, u64), ClientError> {
        let source = &*self.0.source;
        if !source.mark.is_same_process() {
            return Err(ClientError::forked(&source.namespace));
        }
        let mut missing = count as u64;
        if !(1..=MAX_REQUEST).contains(&missing) {
            return Err(ClientError::invalid_count(&source.namespace, count, MAX_REQUEST));
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

    fn first_of(&self, ranges: Vec<IdRange>) -> Result<Id, ClientError> {
        let first = ranges.into_iter().flat_map(IdRange::ids).next();
        first.ok_or_else(|| ClientError::closed(&self.0.source.namespace))
    }
}

/// Returns the `count` ids of some ranges.
fn ids_of(ranges: impl IntoIterator<Item = IdRange>, count: usize) -> Vec<Id> {
    let mut ids = Vec::with_capacity(count);
    ids.extend(ranges.into_iter().flat_map(IdRange::ids));
    ids
}

/// Wakes a thread that blocks on a future.
struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread, also inside of a runtime. The background ends every wait by its timeout.
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
