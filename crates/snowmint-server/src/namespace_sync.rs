//! The namespace sync: keeps the served namespaces in step with the flags, the namespace file and the store.
//! It polls the store, reloads the file, and creates namespaces on request. All changes of served namespaces
//! happen in its one task, one after the other.

mod config;
mod lost_records;
mod open_sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use snowmint::error::Chain;
use snowmint::{Layout, Rule, Start};
use snowmint_cluster::namespace::registry::{self, IfDropped, Required, Room};
use snowmint_cluster::namespace::{
    Definition, Logins, NamespaceError, NamespaceRecord, NumberSource, Scheme, SegmentScheme, TextForm,
};
use snowmint_cluster::{NamespaceName, NoNumberError, SavedLeases, SavedList};
use snowmint_store::{Store, StoreError};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};
use tracing::Instrument as _;

pub use config::{NamespaceConfig, NamespaceConfigError, NamespaceFlags, NamespaceSource};

use crate::admin::Refresher;
use crate::admin::node_admin::RefreshRequests;
use crate::clock::{ServiceClock, SharedClock};
use crate::limits::MAX_SERVED_NAMESPACES;
use crate::mint::{Backend, CreateRequest, IdPool, IdSource, Mint, MintError, Namespace, some_of};
use lost_records::{LostRecords, RecordAction};
use open_sources::{NumberClaims, OpenedSegments, SourceOpener};

/// Create requests that may wait.
const CREATE_REQUESTS: usize = 64;
/// The share of used numbers from which the log warns.
const NEARLY_USED: f64 = 0.9;
/// Time limit for releasing the numbers and leases of a namespace that is no longer served.
const RELEASE_WITHIN: Duration = Duration::from_secs(3);
/// Pause before a source that needs an operator is asked for numbers again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The first words of a log line that is repeated after the store has answered in between.
const POLL_FAILED: &str = "cannot read the namespaces from the store; they stay as they are: ";
/// The first words of a log line about namespaces that are left out.
const LEFT_OUT: &str = "the store has more namespaces than a node serves; not served: ";
/// The reason why a namespace is unavailable until its sources have answered.
const BEING_OPENED: &str = "its sources are being opened; retry in a moment";

/// Starts an id source for another layout, rule or sequence start than the service's own, or returns the
/// reason why not.
pub type OpenSource = Box<dyn Fn(Layout, Rule, Start) -> Result<Box<dyn IdSource>, String> + Send + Sync>;

/// The options of a [`NamespaceSync`].
pub struct SyncOptions {
    /// The store of the service.
    pub store: Arc<dyn Store>,
    /// The flags that configure namespaces.
    pub flags: NamespaceFlags,
    /// The rule of the service's own pool.
    pub rule: Rule,
    /// The sequence start of the service's own pool.
    pub sequence_start: Start,
    /// Starts id sources for other layouts, rules and sequence starts.
    pub open_source: OpenSource,
    /// The saved leases of a node that may start without its store.
    pub saved: Option<SavedLeases>,
    /// Interval between two polls of the store.
    pub poll: Duration,
    /// The clock for ids of 96 and 128 bits.
    pub clock: SharedClock,
    /// The wall clock, for the period of numbers and the date in text forms.
    pub wall: SharedClock,
}

impl fmt::Debug for SyncOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncOptions")
            .field("flags", &self.flags)
            .field("poll", &self.poll)
            .finish_non_exhaustive()
    }
}

/// Keeps the served namespaces in step with the flags, the namespace file and the store.
#[derive(Debug)]
pub struct NamespaceSync {
    mint: Arc<Mint>,
    options: SyncOptions,
    config: NamespaceConfig,
    opener: SourceOpener,
    pending: PendingOpens,
    /// The claimed numbers of each namespace with several sources.
    claims: BTreeMap<NamespaceName, Arc<NumberClaims>>,
    /// Create requests that wait until the sources are open.
    waiting: Vec<CreateRequest>,
    /// Pools of other layouts, rules and sequence starts, by their texts.
    pools: BTreeMap<String, Arc<IdPool>>,
    /// Warnings that were already logged.
    warned: BTreeSet<String>,
    lost: LostRecords,
    /// The list in the data directory, as this process wrote it.
    saved_served: Option<BTreeSet<NamespaceName>>,
    /// The number of namespaces in the store.
    in_store: usize,
    /// The room of the store for further ones that every node serves.
    room: Room,
    /// Pools and segments that are being released.
    releasing: JoinSet<()>,
    refresher: Refresher,
    refreshes: RefreshRequests,
    /// The logins of this node, which change when its files are read again.
    logins: Arc<ArcSwap<Logins>>,
}

impl NamespaceSync {
    /// Returns a sync of this configuration, whose namespaces must be pinned already.
    pub fn new(mint: Arc<Mint>, config: NamespaceConfig, options: SyncOptions) -> Self {
        let received = Arc::clone(mint.received());
        let (refresher, requests) = Refresher::new();
        let mut opener = SourceOpener::new(Arc::clone(&options.store), Arc::clone(&options.wall), received);
        opener.set_logins(config.logins());
        let logins = Arc::new(ArcSwap::new(config.logins()));
        Self {
            logins,
            mint,
            options,
            config,
            opener,
            pending: PendingOpens::default(),
            claims: BTreeMap::new(),
            waiting: Vec::new(),
            pools: BTreeMap::new(),
            warned: BTreeSet::new(),
            lost: LostRecords::default(),
            saved_served: None,
            in_store: 0,
            room: Room::default(),
            releasing: JoinSet::new(),
            refresher,
            refreshes: requests,
        }
    }

    /// Returns the logins of this node, as they are now and later.
    pub fn logins(&self) -> Arc<ArcSwap<Logins>> {
        Arc::clone(&self.logins)
    }

    /// Returns a handle that makes [`run`](Self::run) poll the store at once.
    pub fn refresher(&self) -> Refresher {
        self.refresher.clone()
    }

    /// Polls the store once and updates the served namespaces. Sources besides the store are opened in the
    /// background; see [`wait_until_opened`](Self::wait_until_opened).
    ///
    /// # Errors
    ///
    /// The error of the store; nothing changed.
    pub fn refresh(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.poll_once())
    }

    async fn poll_once(&mut self) -> Result<(), StoreError> {
        let served = self.mint.table();
        let mut desired = self.config.desired(&*self.options.store, &served).await?;
        for what in self.options.store.skipped() {
            self.warn_once(&format!("the lists of the store skip {what}"));
        }
        (self.in_store, self.room) = (desired.in_store, desired.room);
        self.report_left_out(std::mem::take(&mut desired.left_out));
        let mut next = self.without_record(&desired).await;
        for (name, why) in &desired.unreadable {
            self.warn_once(&format!("namespace {name} stays as it is; cannot read its record: {why}"));
            next.extend(served.namespaces().iter().filter(|it| it.name().as_str() == name).cloned());
        }
        self.restore_claims(&desired.records).await;
        for (name, record) in &desired.dropped {
            if matches!(self.put_back_if_older(name, record).await, Ok(RecordAction::Ignore)) {
                next.extend(served.get(name).cloned());
            }
        }
        for (name, definition) in desired.namespaces {
            let before = served.get(&name);
            if self.claims_conflict(&name) {
                // Another node claimed the numbers: the record of the store is valid, not the one seen
                // before.
                self.lost.note(&name, desired.records.get(&name));
            } else if let Some(record) = desired.records.get(&name) {
                match self.put_back_if_older(&name, record).await {
                    Ok(RecordAction::Follow) => {}
                    Ok(RecordAction::Ignore) => {
                        next.extend(before.cloned());
                        continue;
                    }
                    Err(error) => {
                        next.extend(before.map(|before| self.stopped(before, &error)));
                        continue;
                    }
                }
            }
            if let Some(record) = desired.records.get(&name)
                && let Some(stopped) = self.found_again(before, &name, &definition, record)
            {
                next.push(stopped);
                continue;
            }
            let earlier_texts = desired.earlier_texts.remove(&name).unwrap_or_default();
            next.push(self.follow(before, name, definition, earlier_texts).await);
        }
        let is_needed = |name: &NamespaceName| next.iter().any(|it| it.name() == name);
        self.pending.retain(is_needed);
        self.claims.retain(|name, _| is_needed(name));
        // A list with too many names matters only to a restart without the store, within a window.
        if let Err(error) = self.save_served(&next).await {
            self.warn_once(&format!(
                "cannot save the list of served namespaces: {error}; remove served.json from the data directory before this node \
                 starts without its store"
            ));
        }
        if Self::differ(served.namespaces(), &next) {
            self.mint.serve(next);
            self.release(served.namespaces());
        }
        Ok(())
    }

    /// Reports the namespaces of the store that this node leaves out because there are too many.
    fn report_left_out(&mut self, names: Vec<NamespaceName>) {
        if names.is_empty() {
            self.warned.retain(|text| !text.starts_with(LEFT_OUT));
        } else {
            self.warn_once(&format!(
                "{LEFT_OUT}{}; a node serves {MAX_SERVED_NAMESPACES} besides those of its flags and its file: drop namespaces that \
                 are not needed (`snowmint ns drop`)",
                some_of(names.iter().map(NamespaceName::as_str))
            ));
        }
        self.mint.note_left_out(names);
    }

    /// Restores claims that the store has lost.
    async fn restore_claims(&self, records: &BTreeMap<NamespaceName, NamespaceRecord>) {
        for (name, claims) in &self.claims {
            if let Some(record) = records.get(name)
                && !claims.are_in(&record.numbers)
            {
                claims.claim_again().instrument(tracing::error_span!("namespace", %name)).await;
            }
        }
    }

    /// Returns `true` if another node has claimed numbers of the sources that this node uses.
    fn claims_conflict(&self, name: &NamespaceName) -> bool {
        self.claims.get(name).is_some_and(|claims| claims.refused().is_some())
    }

    /// Waits until all sources that are being opened are open or have failed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the remaining sources are still opened and served.
    pub async fn wait_until_opened(&mut self) {
        while let Some(opened) = self.pending.next().await {
            self.serve_opened(opened);
        }
    }

    /// Replaces the backend of a namespace by the opened segments.
    fn serve_opened(&mut self, opened: Opened) {
        let Opened { name, definition, started } = opened;
        let served = self.mint.table();
        let Some(before) = served.get(&name) else { return };
        let is_unavailable = matches!(before.backend(), Backend::Unavailable(_));
        let backend = match started {
            Ok(OpenedSegments { segments, claims }) => {
                match claims {
                    Some(claims) => self.claims.insert(name.clone(), claims),
                    None => self.claims.remove(&name),
                };
                self.hidden(&definition.scheme, Backend::Segment(segments))
            }
            Err(why) if is_unavailable => Backend::Unavailable(why.into()),
            Err(why) => {
                self.warn_once(&format!("namespace {name} keeps its previous definition until its new numbers are available: {why}"));
                return;
            }
        };
        let changed = self.replaced(Some(before), name, definition, backend);
        let next = served.namespaces().iter();
        let next = next.map(|it| Arc::clone(if Arc::ptr_eq(it, before) { &changed } else { it })).collect();
        self.mint.serve(next);
        self.release(served.namespaces());
        self.answer_waiting();
    }

    /// Saves the names that this node may serve after a start without the store. Called before `next` is
    /// served.
    async fn save_served(&mut self, next: &[Arc<Namespace>]) -> io::Result<()> {
        let Some(saved) = &self.options.saved else { return Ok(()) };
        let own = |it: &&Arc<Namespace>| matches!(it.backend(), Backend::Snowflake(pool) if Arc::ptr_eq(pool, self.mint.pool()));
        let names: BTreeSet<_> = next.iter().filter(own).map(|it| it.name().clone()).collect();
        if self.saved_served.as_ref() == Some(&names) {
            return Ok(());
        }
        let (saved, list) = (saved.clone(), names.clone());
        let written = tokio::task::spawn_blocking(move || saved.save_served(&list)).await;
        // If the file was removed, the next poll writes it again.
        self.saved_served = (written.map_err(io::Error::other)?? == SavedList::Written).then_some(names);
        Ok(())
    }

    /// Serves configured namespaces of the service's own layout under a saved lease, before the store has
    /// answered: only those that this node served when the store last answered.
    pub async fn serve_without_store(&mut self) {
        let may_serve = self.options.saved.as_ref().map(SavedLeases::served).unwrap_or_default();
        let (known, unknown): (Vec<_>, Vec<_>) =
            self.config.of_own_layout().into_iter().partition(|(name, _)| may_serve.contains(name));
        for (name, _) in unknown {
            self.warn_once(&format!(
                "namespace {name} is not served until the store answers: this node did not serve it in this layout before"
            ));
        }
        let mut next = Vec::new();
        for (name, definition) in known {
            next.push(self.follow(None, name, definition, Vec::new()).await);
        }
        self.mint.serve(next);
    }

    /// Polls the store once, as [`refresh`](Self::refresh) does, and logs a failure once.
    async fn poll_store(&mut self) {
        match self.refresh().await {
            Ok(()) => self.warned.retain(|text| !text.starts_with(POLL_FAILED)),
            Err(error) => self.warn_once(&format!("{POLL_FAILED}{error}")),
        }
    }

    fn differ(before: &[Arc<Namespace>], next: &[Arc<Namespace>]) -> bool {
        before.len() != next.len()
            || !next.iter().all(|namespace| before.iter().any(|it| Arc::ptr_eq(it, namespace)))
    }

    /// Returns the namespace for a definition: the same one if nothing changed.
    async fn follow(
        &mut self,
        before: Option<&Arc<Namespace>>,
        name: NamespaceName,
        definition: Definition,
        earlier_texts: Vec<Option<TextForm>>,
    ) -> Arc<Namespace> {
        let followed = self.follow_definition(before, name, definition).await;
        if followed.earlier_texts() == earlier_texts {
            return followed;
        }
        let same = followed.changed(followed.definition().clone(), followed.backend().clone());
        Arc::new(same.with_earlier_texts(earlier_texts))
    }

    async fn follow_definition(
        &mut self,
        before: Option<&Arc<Namespace>>,
        name: NamespaceName,
        definition: Definition,
    ) -> Arc<Namespace> {
        if let Some(why) = self.claims.get(&name).and_then(|claims| claims.refused()) {
            self.claims.remove(&name);
            return self.replaced(before, name, definition, Backend::Unavailable(why.into()));
        }
        let running = before.filter(|it| !matches!(it.backend(), Backend::Unavailable(_)));
        // A zone that was found before keeps its rules, even if the database is gone.
        if let Err(why) = definition.time_zone.check()
            && running.is_none_or(|it| *it.definition() != definition)
        {
            return self.replaced(before, name, definition, Backend::Unavailable(why.to_string().into()));
        }
        if let Some(running) = running
            && running.definition().scheme == definition.scheme
            // Segments follow the dates of their zone.
            && (running.definition().time_zone == definition.time_zone || !matches!(definition.scheme, Scheme::Segment(_)))
        {
            self.pending.retain(|it| *it != name);
            if *running.definition() == definition {
                return Arc::clone(running);
            }
            let backend = running.backend().clone();
            return self.replaced(before, name, definition, backend);
        }
        if let Some(hide) = definition.scheme.hide()
            && let Err(why) = self.config.hide_keys().hider(hide)
        {
            // Nothing is opened that could not be served.
            return self.replaced(before, name, definition, Backend::Unavailable(why.to_string().into()));
        }
        if let Scheme::Segment(segment) = &definition.scheme {
            let goes_on = running.filter(|it| is_same_series(&it.definition().scheme, segment));
            if goes_on.is_some() || matches!(segment.source, NumberSource::Other(_)) {
                self.open_later(&name, &definition, segment, goes_on.is_some());
                return match before {
                    // Until then it keeps its backend, or the reason why it has none.
                    Some(before) if goes_on.is_some() || *before.definition() == definition => {
                        Arc::clone(before)
                    }
                    Some(before) => {
                        Arc::new(before.changed(definition, Backend::Unavailable(BEING_OPENED.into())))
                    }
                    None => {
                        let backend = Backend::Unavailable(BEING_OPENED.into());
                        Arc::new(Namespace::new(name, definition, backend, &self.options.wall))
                    }
                };
            }
        }
        let backend = self.open(&name, &definition).await;
        self.replaced(before, name, definition, backend)
    }

    /// Opens the segments of a namespace in the background. If it has numbers to serve until then, waits for
    /// the first new ones.
    fn open_later(
        &mut self,
        name: &NamespaceName,
        definition: &Definition,
        segment: &SegmentScheme,
        has_numbers: bool,
    ) {
        let (opener, of) = (self.opener.clone(), name.clone());
        let (wanted, segment) = (definition.clone(), segment.clone());
        self.pending.start(name, definition, || async move {
            let started = opener.segments(&of, &wanted, &segment).await?;
            while has_numbers && let Err(NoNumberError::NotReady { .. }) = started.segments.ready().await {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Ok(started)
        });
    }

    /// Returns the namespace with a new definition and backend, and logs the change.
    fn replaced(
        &mut self,
        before: Option<&Arc<Namespace>>,
        name: NamespaceName,
        definition: Definition,
        backend: Backend,
    ) -> Arc<Namespace> {
        let was_served = before.is_some_and(|it| !matches!(it.backend(), Backend::Unavailable(_)));
        match &backend {
            Backend::Unavailable(why) => {
                self.warn_once(&format!("namespace {name} is unavailable: {why}"));
            }
            _ if was_served => tracing::info!(namespace = %name, now = %definition, "namespace changed"),
            _ => tracing::info!(namespace = %name, %definition, "namespace served"),
        }
        self.warn_of_layout_end(&name, &definition.scheme);
        Arc::new(match before {
            Some(before) => before.changed(definition, backend),
            None => Namespace::new(name, definition, backend, &self.options.wall),
        })
    }

    async fn open(&mut self, name: &NamespaceName, definition: &Definition) -> Backend {
        let scheme = &definition.scheme;
        let opened = match scheme {
            Scheme::Snowflake { layout, rule, sequence_start, hide: _ } => {
                self.pool(layout, *rule, *sequence_start).map(Backend::Snowflake)
            }
            Scheme::Segment(scheme) => {
                let started = self.opener.segments(name, definition, scheme).await;
                started.map(|started| Backend::Segment(started.segments))
            }
            Scheme::Wide(scheme) => scheme
                .generator(ServiceClock(Arc::clone(&self.options.clock)))
                .map(|generator| Backend::Wide(Arc::new(generator)))
                .map_err(|error| error.to_string()),
        };
        self.hidden(scheme, opened.unwrap_or_else(|why| Backend::Unavailable(why.into())))
    }

    /// Returns the backend, with its ids hidden if the scheme hides them. Without the key, it makes no ids.
    fn hidden(&self, scheme: &Scheme, backend: Backend) -> Backend {
        let Some(hide) = scheme.hide() else { return backend };
        match self.config.hide_keys().hider(hide) {
            Ok(hider) => backend.hidden(Arc::new(hider.clone())),
            Err(why) => Backend::Unavailable(why.to_string().into()),
        }
    }

    /// Returns the pool of a layout, rule and sequence start: the service's own, or one with a worker of its
    /// own.
    fn pool(
        &mut self,
        layout: &Layout,
        rule: Option<Rule>,
        start: Option<Start>,
    ) -> Result<Arc<IdPool>, String> {
        let rule = rule.unwrap_or(self.options.rule);
        let start = start.unwrap_or(self.options.sequence_start);
        let own = (*self.mint.layout(), self.options.rule, self.options.sequence_start);
        if (*layout, rule, start) == own {
            return Ok(Arc::clone(self.mint.pool()));
        }
        let text = format!("{layout}, {rule}, {start}");
        if let Some(pool) = self.pools.get(&text) {
            return Ok(Arc::clone(pool));
        }
        let source = (self.options.open_source)(*layout, rule, start)?;
        let pool = self.mint.add_pool(source, *layout);
        self.pools.insert(text, Arc::clone(&pool));
        Ok(pool)
    }

    /// Releases the pools and segments that only the previous namespaces used.
    fn release(&mut self, before: &[Arc<Namespace>]) {
        let served = self.mint.table();
        for namespace in before {
            let now = served.get(namespace.name());
            if now.is_none() {
                tracing::info!(namespace = %namespace.name(), "namespace no longer served");
            }
            let goes_on = now.is_some_and(|now| now.definition().scheme == namespace.definition().scheme);
            if let (Backend::Segment(segments), false) = (namespace.backend().plain(), goes_on) {
                let segments = segments.clone();
                self.releasing.spawn(async move { segments.release(RELEASE_WITHIN).await });
            }
        }
        let in_use = |pool: &Arc<IdPool>| {
            let uses = |it: &Arc<Namespace>| matches!(it.backend().plain(), Backend::Snowflake(of) if Arc::ptr_eq(of, pool));
            served.namespaces().iter().any(uses)
        };
        let unused: Vec<_> =
            self.pools.iter().filter(|(_, pool)| !in_use(pool)).map(|(text, _)| text.clone()).collect();
        for text in unused {
            if let Some(pool) = self.pools.remove(&text) {
                self.releasing.spawn(async move { pool.release(RELEASE_WITHIN).await });
            }
        }
        // Remove the finished ones.
        while self.releasing.try_join_next().is_some() {}
    }

    /// Warns of a layout that ends within a few years.
    fn warn_of_layout_end(&mut self, name: &NamespaceName, scheme: &Scheme) {
        if let Scheme::Snowflake { layout, .. } = scheme
            && let Some(warning) = layout.expiry_warning(self.options.clock.unix_ms())
        {
            self.warn_once(&format!("namespace {name}: {warning}"));
        }
    }

    /// Warns of namespaces that have used nine tenths of their numbers.
    fn warn_of_few_numbers(&mut self) {
        let served = self.mint.table();
        for namespace in served.namespaces() {
            let Some(status) = namespace.segment_status().filter(|status| status.used >= NEARLY_USED) else {
                continue;
            };
            self.warn_once(&format!(
                "namespace {} has used 90 % of its numbers: raise its maximum ({}), or use another namespace",
                namespace.name(),
                status.maximum
            ));
        }
    }

    /// Polls the store, reloads the file when `reload` is notified, and creates requested namespaces, until
    /// dropped.
    pub fn run(self, reload: Arc<Notify>) -> BoxFuture<'static, ()> {
        Box::pin(self.follow_all(reload))
    }

    async fn follow_all(mut self, reload: Arc<Notify>) {
        let (sender, mut requests) = mpsc::channel(CREATE_REQUESTS);
        let mut sender = Some(sender);
        let mut polls = interval(self.options.poll);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first wait is a random part of the interval, so that nodes that start together do not poll together.
        let mut phase = Some(self.options.poll / 256 * (getrandom::u32().unwrap_or_default() >> 24));
        loop {
            // A reload may allow unknown names to become namespaces. Once set, the sender stays, and `create`
            // rejects requests that are no longer allowed.
            if self.config.auto_create().is_some()
                && let Some(sender) = sender.take()
            {
                self.mint.set_creator(sender);
            }
            tokio::select! {
                _ = polls.tick() => {
                    self.poll_store().await;
                    self.warn_of_few_numbers();
                    if let Some(phase) = phase.take() {
                        polls.reset_after(phase);
                    }
                }
                () = reload.notified() => self.reload().await,
                Some(done) = self.refreshes.recv() => {
                    self.poll_store().await;
                    // Its client may have left.
                    let _ = done.send(());
                }
                Some(opened) = self.pending.next() => self.serve_opened(opened),
                Some(request) = requests.recv() => self.create(request, &mut requests).await,
            }
        }
    }

    /// Reads the namespace file again, and applies all of it or nothing.
    async fn reload(&mut self) {
        let flags = self.options.flags.clone();
        // The disk may hang, and this thread renews the lease.
        let config = match tokio::task::spawn_blocking(move || flags.read()).await {
            Ok(Ok(config)) => config.replacing(&self.config),
            Ok(Err(error)) => {
                let error = Chain(&error);
                tracing::error!(%error, "nothing was reloaded; the namespaces stay as they are");
                return;
            }
            Err(error) => {
                tracing::error!(%error, "nothing was reloaded; the namespaces stay as they are");
                return;
            }
        };
        if let Err(error) = config.pin(&*self.options.store).await {
            let error = Chain(&error);
            tracing::error!(%error, "nothing was reloaded; the namespaces stay as they are");
            return;
        }
        self.opener.set_logins(config.logins());
        self.logins.store(config.logins());
        self.config = config;
        self.warned.clear();
        self.poll_store().await;
        tracing::info!(served = self.mint.table().namespaces().len(), "reloaded");
    }

    /// Creates all namespaces that have been requested so far, and waits once until all of them have settled.
    async fn create(&mut self, first: CreateRequest, more: &mut mpsc::Receiver<CreateRequest>) {
        let (mut next, mut made) = (Some(first), Vec::new());
        let mut written = 0;
        while let Some(request) = next {
            let is_made = made.iter().any(|it: &CreateRequest| it.name == request.name);
            match if is_made { Ok(New::There) } else { self.write(&request.name, written).await } {
                Ok(New::Served) => answer(request.done, Ok(())),
                Ok(New::There) => made.push(request),
                Ok(New::Written) => {
                    written += 1;
                    made.push(request);
                }
                Err(error) => answer(request.done, Err(error)),
            }
            next = if made.len() < CREATE_REQUESTS { more.try_recv().ok() } else { None };
        }
        if made.is_empty() {
            return;
        }
        if !self.options.store.may_lose().is_zero()
            && let Err(error) = self.config.settle(&*self.options.store).await
        {
            for CreateRequest { name, done } in made {
                let why = format!("namespace {name} has not settled: {error}");
                answer(done, Err(MintError::NotReady { why }));
            }
            return;
        }
        self.poll_store().await;
        self.waiting.extend(made);
        self.answer_waiting();
    }

    /// Writes a requested namespace into the store. `written` is the number written since the last poll.
    async fn write(&self, name: &NamespaceName, written: usize) -> Result<New, MintError> {
        // Another request created it a moment ago.
        if self.is_served(name) {
            return Ok(New::Served);
        }
        let shown = snowmint::error::Snippet::of(name.as_str());
        let Some(auto_create) = self.config.auto_create() else {
            return Err(self.mint.unknown(name));
        };
        if self.in_store + written >= auto_create.at_most {
            return Err(MintError::TooManyNamespaces { name: shown, limit: auto_create.at_most });
        }
        let room = self.room.after(written);
        let (store, definition) = (&*self.options.store, &auto_create.definition);
        match registry::add_within(store, room, name, definition, IfDropped::Refuse, Required::Any).await {
            Ok(_) => {
                tracing::info!(namespace = %name, "namespace created on request");
                Ok(New::Written)
            }
            // Another node has just created it.
            Err(NamespaceError::Exists { .. }) => Ok(New::There),
            Err(error @ NamespaceError::Store(_)) => {
                Err(MintError::NotReady { why: format!("cannot create namespace {name}: {error}") })
            }
            Err(error) => {
                tracing::info!(%error, "namespace not created");
                Err(self.mint.unknown(name))
            }
        }
    }

    /// Answers the waiting create requests, except those whose sources are still being opened.
    fn answer_waiting(&mut self) {
        for CreateRequest { name, done } in std::mem::take(&mut self.waiting) {
            if self.pending.has(&name) {
                self.waiting.push(CreateRequest { name, done });
            } else if self.is_served(&name) {
                answer(done, Ok(()));
            } else {
                answer(done, Err(self.mint.unknown(&name)));
            }
        }
    }

    fn is_served(&self, name: &NamespaceName) -> bool {
        self.mint.table().get(name).is_some()
    }

    /// Logs a warning once, not at each poll.
    fn warn_once(&mut self, text: &str) {
        if self.warned.insert(text.to_owned()) {
            tracing::warn!("{text}");
        }
    }
}

/// Segments that are being opened in tasks, at most one for each namespace. A slow source delays only its own
/// namespace.
#[derive(Debug, Default)]
struct PendingOpens {
    tasks: JoinSet<(NamespaceName, Result<OpenedSegments, String>)>,
    opens: BTreeMap<NamespaceName, PendingOpen>,
}

#[derive(Debug)]
struct PendingOpen {
    definition: Definition,
    task: AbortHandle,
}

/// The outcome of one task.
#[derive(Debug)]
struct Opened {
    name: NamespaceName,
    /// The definition it was opened for, with the current text form.
    definition: Definition,
    started: Result<OpenedSegments, String>,
}

impl PendingOpens {
    /// Opens the segments of a definition, unless a task already does. Aborts a task for another scheme.
    fn start<F>(&mut self, name: &NamespaceName, definition: &Definition, open: impl FnOnce() -> F)
    where
        F: Future<Output = Result<OpenedSegments, String>> + Send + 'static,
    {
        if let Some(running) = self.opens.get_mut(name) {
            if running.definition.scheme == definition.scheme {
                running.definition = definition.clone();
                return;
            }
            running.task.abort();
        }
        let (opening, of) = (open(), name.clone());
        let task = self.tasks.spawn(async move { (of, opening.await) });
        self.opens.insert(name.clone(), PendingOpen { definition: definition.clone(), task });
    }

    /// Aborts the tasks of namespaces that are not needed any more.
    fn retain(&mut self, is_needed: impl Fn(&NamespaceName) -> bool) {
        self.opens.retain(|name, open| {
            let keep = is_needed(name);
            if !keep {
                open.task.abort();
            }
            keep
        });
    }

    /// Returns `true` if the segments of this namespace are being opened.
    fn has(&self, name: &NamespaceName) -> bool {
        self.opens.contains_key(name)
    }

    /// Waits for the next outcome; `None` if no task runs.
    ///
    /// # Cancel safety
    ///
    /// No outcome is lost.
    async fn next(&mut self) -> Option<Opened> {
        loop {
            let (id, name, started) = match self.tasks.join_next_with_id().await? {
                Ok((id, (name, started))) => (id, name, started),
                Err(error) => {
                    // An aborted task is not needed any more; the next poll starts a panicked one again.
                    self.opens.retain(|_, open| open.task.id() != error.id());
                    continue;
                }
            };
            if self.opens.get(&name).is_some_and(|open| open.task.id() == id)
                && let Some(PendingOpen { definition, .. }) = self.opens.remove(&name)
            {
                return Some(Opened { name, definition, started });
            }
        }
    }
}

/// The outcome of a create request.
enum New {
    Served,
    Written,
    There,
}

fn answer(done: oneshot::Sender<Result<(), MintError>>, created: Result<(), MintError>) {
    // The requester may have left.
    let _ = done.send(created);
}

/// Returns `true` if both draw the same series of numbers.
fn is_same_series(before: &Scheme, after: &SegmentScheme) -> bool {
    matches!(before, Scheme::Segment(before) if before.series == after.series && before.reset == after.reset)
}

#[cfg(test)]
mod tests;
