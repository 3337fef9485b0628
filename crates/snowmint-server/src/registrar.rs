//! Keeps the mint in step with what is to be served: what flags and a file say, and what the store says is for all.
//! It alone changes which namespaces are served, so no two changes meet.

mod claims;
mod lost;
mod opening;
mod places;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use snowmint::{Layout, Rule, Start};
use snowmint_cluster::NamespaceName;
use snowmint_cluster::namespace::registry::{self, Again};
use snowmint_cluster::namespace::{Definition, NamespaceError, Scheme, TextForm};
use snowmint_store::{Store, StoreError};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

pub use told::{Sources, Told, ToldError};

use crate::forecast;
use crate::mint::{Creation, Maker, Mint, MintError, Namespace, Pool, Source};
use crate::settings::{ServiceClock, SharedClock};
use lost::Lost;
use opening::Opening;

/// Names that may wait to become namespaces.
const CREATIONS: usize = 64;
/// From what part of its numbers on a namespace is warned of.
const FEW_LEFT: f64 = 0.9;
/// How long numbers and leases of what is no longer served may take to be given back.
const RELEASE_WITHIN: Duration = Duration::from_secs(3);

/// Starts a source of ids for another layout, rule or sequence start than the service's own; the reason where that
/// cannot be.
pub type OpenSource<S> = Box<dyn Fn(Layout, Rule, Start) -> Result<S, String> + Send + Sync>;

/// What a registrar works with.
pub struct RegistrarConfig<S: Source> {
    /// The store of the service.
    pub store: Arc<dyn Store>,
    /// Where the node is told what to serve.
    pub sources: Sources,
    /// The rule of the service, which its own pool has.
    pub rule: Rule,
    /// Where sequences start in the service's own pool.
    pub sequence_start: Start,
    /// Starts sources for other layouts, rules and sequence starts.
    pub open_source: OpenSource<S>,
    /// How often the store is asked what is to be served.
    pub poll: Duration,
    /// Tells segments their period, and texts the day.
    pub clock: SharedClock,
}

impl<S: Source> fmt::Debug for RegistrarConfig<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistrarConfig")
            .field("sources", &self.sources)
            .field("poll", &self.poll)
            .finish_non_exhaustive()
    }
}

/// Keeps the mint in step with what is to be served.
#[derive(Debug)]
pub struct Registrar<S: Source> {
    mint: Arc<Mint<S>>,
    config: RegistrarConfig<S>,
    told: Told,
    opening: Opening,
    /// Pools of other layouts, rules and sequence starts, by their texts.
    pools: BTreeMap<String, Arc<Pool<S>>>,
    /// What was already said in the log, so that it is said once.
    complaints: BTreeSet<String>,
    lost: Lost,
    in_store: usize,
    /// What is given back at the moment.
    releasing: JoinSet<()>,
}

impl<S: Source> Registrar<S> {
    /// A registrar of what was told and pinned.
    pub fn new(mint: Arc<Mint<S>>, told: Told, config: RegistrarConfig<S>) -> Self {
        let opening = Opening::new(Arc::clone(&config.store), Arc::clone(&config.clock));
        Self {
            mint,
            told,
            opening,
            config,
            pools: BTreeMap::new(),
            complaints: BTreeSet::new(),
            lost: Lost::default(),
            in_store: 0,
            releasing: JoinSet::new(),
        }
    }

    /// Looks into the store once and serves what is to be served.
    ///
    /// # Errors
    ///
    /// The store's; nothing changed.
    pub async fn refresh(&mut self) -> Result<(), StoreError> {
        let mut wanted = self.told.wanted(&*self.config.store).await?;
        self.in_store = wanted.in_store;
        let served = self.mint.served();
        let mut next = self.without_record(&wanted).await;
        for (name, why) in &wanted.unreadable {
            self.complain(&format!("namespace {name} stays as it is, its record cannot be read: {why}"));
            next.extend(served.namespaces().iter().filter(|it| it.name().as_str() == name).cloned());
        }
        for (name, definition) in wanted.namespaces {
            let before = served.namespaces().iter().find(|it| *it.name() == name);
            if let Some(stopped) = self.found_again(before, &name, &definition) {
                next.push(stopped);
                continue;
            }
            let earlier_texts = wanted.earlier_texts.remove(&name).unwrap_or_default();
            next.push(self.follow(before, name, definition, earlier_texts).await);
        }
        if Self::differ(served.namespaces(), &next) {
            self.mint.serve(next);
            self.release(served.namespaces());
        }
        Ok(())
    }

    /// Serves what was told of the service's own layout, for a node that goes on before its store has answered. That
    /// it is pinned so is for the caller to know.
    pub async fn serve_told(&mut self) {
        let mut next = Vec::new();
        for (name, definition) in self.told.of_own_layout() {
            next.push(self.follow(None, name, definition, Vec::new()).await);
        }
        self.mint.serve(next);
    }

    /// As [`refresh`](Self::refresh); a store that does not answer is a line in the log, once.
    async fn follow_store(&mut self) {
        const STAY: &str = "the namespaces stay as they are: ";
        match self.refresh().await {
            Ok(()) => self.complaints.retain(|text| !text.starts_with(STAY)),
            Err(error) => self.complain(&format!("{STAY}{error}")),
        }
    }

    fn differ(before: &[Arc<Namespace<S>>], next: &[Arc<Namespace<S>>]) -> bool {
        before.len() != next.len()
            || !next.iter().all(|namespace| before.iter().any(|it| Arc::ptr_eq(it, namespace)))
    }

    /// The namespace as it is to be served: as before where nothing changed.
    async fn follow(
        &mut self,
        before: Option<&Arc<Namespace<S>>>,
        name: NamespaceName,
        definition: Definition,
        earlier_texts: Vec<Option<TextForm>>,
    ) -> Arc<Namespace<S>> {
        let running = before.filter(|it| !matches!(it.maker(), Maker::Missing(_)));
        if let Some(running) = running
            && *running.definition() == definition
        {
            if running.earlier_texts() == earlier_texts {
                return Arc::clone(running);
            }
            let same = running.changed(definition, running.maker().clone());
            return Arc::new(same.with_earlier_texts(earlier_texts));
        }
        let maker = match running {
            Some(running) if running.definition().scheme == definition.scheme => running.maker().clone(),
            _ => self.open(&name, &definition.scheme).await,
        };
        match (&maker, before) {
            (Maker::Missing(why), _) => {
                self.complain(&format!("namespace {name} cannot be served yet: {why}"));
            }
            (_, Some(_)) => tracing::info!(namespace = %name, now = %definition, "namespace changed"),
            (_, None) => tracing::info!(namespace = %name, %definition, "namespace served"),
        }
        self.warn_of_little_time(&name, &definition.scheme);
        let namespace = match before {
            Some(before) => before.changed(definition, maker),
            None => Namespace::new(name, definition, maker, &self.config.clock),
        };
        Arc::new(namespace.with_earlier_texts(earlier_texts))
    }

    async fn open(&mut self, name: &NamespaceName, scheme: &Scheme) -> Maker<S> {
        let opened = match scheme {
            Scheme::Snowflake { layout, rule, sequence_start } => {
                self.pool(layout, *rule, *sequence_start).map(Maker::Snowflake)
            }
            Scheme::Segment(scheme) => self.opening.segments(name, scheme).await.map(Maker::Segment),
            Scheme::Wide(scheme) => scheme
                .generator(ServiceClock(Arc::clone(&self.config.clock)))
                .map(|generator| Maker::Wide(Arc::new(generator)))
                .map_err(|error| error.to_string()),
        };
        opened.unwrap_or_else(|why| Maker::Missing(why.into()))
    }

    /// The pool of a layout under a rule with a sequence start: the service's own, or one of its own worker.
    fn pool(
        &mut self,
        layout: &Layout,
        rule: Option<Rule>,
        start: Option<Start>,
    ) -> Result<Arc<Pool<S>>, String> {
        let rule = rule.unwrap_or(self.config.rule);
        let start = start.unwrap_or(self.config.sequence_start);
        let own = (*self.mint.layout(), self.config.rule, self.config.sequence_start);
        if (*layout, rule, start) == own {
            return Ok(Arc::clone(self.mint.pool()));
        }
        let text = format!("{layout}, {rule}, {start}");
        if let Some(pool) = self.pools.get(&text) {
            return Ok(Arc::clone(pool));
        }
        let source = (self.config.open_source)(*layout, rule, start)?;
        let pool = self.mint.add_pool(source, *layout);
        self.pools.insert(text, Arc::clone(&pool));
        Ok(pool)
    }

    /// Gives back what is no longer used of what was served before.
    fn release(&mut self, before: &[Arc<Namespace<S>>]) {
        let served = self.mint.served();
        for namespace in before {
            let now = served.namespaces().iter().find(|it| it.name() == namespace.name());
            if now.is_none() {
                tracing::info!(namespace = %namespace.name(), "namespace no longer served");
            }
            let goes_on = now.is_some_and(|now| now.definition().scheme == namespace.definition().scheme);
            if let (Maker::Segment(segments), false) = (namespace.maker(), goes_on) {
                let segments = segments.clone();
                self.releasing.spawn(async move { segments.release(RELEASE_WITHIN).await });
            }
        }
        let in_use = |pool: &Arc<Pool<S>>| {
            let uses =
                |it: &Arc<Namespace<S>>| matches!(it.maker(), Maker::Snowflake(of) if Arc::ptr_eq(of, pool));
            served.namespaces().iter().any(uses)
        };
        let unused: Vec<_> =
            self.pools.iter().filter(|(_, pool)| !in_use(pool)).map(|(text, _)| text.clone()).collect();
        for text in unused {
            if let Some(pool) = self.pools.remove(&text) {
                self.releasing.spawn(async move { pool.release(RELEASE_WITHIN).await });
            }
        }
        // Those that are done already.
        while self.releasing.try_join_next().is_some() {}
    }

    /// Says in the log that a namespace's layout ends within a few years.
    fn warn_of_little_time(&mut self, name: &NamespaceName, scheme: &Scheme) {
        if let Scheme::Snowflake { layout, .. } = scheme
            && let Some(warning) = forecast::warning(layout, self.config.clock.unix_ms())
        {
            self.complain(&format!("namespace {name}: {warning}"));
        }
    }

    /// Says in the log which namespaces have used nine tenths of their numbers, each once.
    fn warn_of_few_numbers(&mut self) {
        let served = self.mint.served();
        for namespace in served.namespaces() {
            let Some(status) = namespace.segment_status().filter(|status| status.used >= FEW_LEFT) else {
                continue;
            };
            self.complain(&format!(
                "namespace {} has used nine tenths of its numbers: raise its maximum of {}, or take a new namespace",
                namespace.name(),
                status.maximum
            ));
        }
    }

    /// Follows the store, `reload`, and names that are asked for, until it is dropped.
    pub async fn run(mut self, reload: Arc<Notify>) {
        let (sender, mut creations) = mpsc::channel(CREATIONS);
        let mut sender = Some(sender);
        let mut polls = interval(self.config.poll);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Whether unknown names become namespaces may change with the file; once offered it stays so, and a
            // creation is refused where it is no longer allowed.
            if self.told.auto_create().is_some()
                && let Some(sender) = sender.take()
            {
                self.mint.create_by(sender);
            }
            tokio::select! {
                _ = polls.tick() => {
                    self.follow_store().await;
                    self.warn_of_few_numbers();
                }
                () = reload.notified() => self.reload().await,
                Some(creation) = creations.recv() => self.create(creation).await,
            }
        }
    }

    /// Reads the file again; it is taken as a whole or not at all.
    async fn reload(&mut self) {
        let told = match self.config.sources.read() {
            Ok(told) => told,
            Err(error) => {
                tracing::error!(%error, "nothing was reloaded: the namespaces stay as they were");
                return;
            }
        };
        if let Err(error) = told.pin(&*self.config.store).await {
            tracing::error!(%error, "nothing was reloaded: the namespaces stay as they were");
            return;
        }
        self.told = told;
        self.complaints.clear();
        self.follow_store().await;
        tracing::info!(served = self.mint.served().namespaces().len(), "reloaded");
    }

    async fn create(&mut self, creation: Creation) {
        let Creation { name, done } = creation;
        let created = self.try_create(&name).await;
        // Whoever asked may have left.
        let _ = done.send(created);
    }

    async fn try_create(&mut self, name: &NamespaceName) -> Result<(), MintError> {
        // Somebody else asked for it a moment ago.
        let is_served = |mint: &Mint<S>| mint.served().namespaces().iter().any(|it| it.name() == name);
        if is_served(&self.mint) {
            return Ok(());
        }
        let shown = snowmint::Snippet::of(name.as_str());
        let Some(auto_create) = self.told.auto_create() else {
            return Err(self.mint.unknown(name));
        };
        if self.in_store >= auto_create.at_most {
            return Err(MintError::TooManyNamespaces { name: shown, limit: auto_create.at_most });
        }
        match registry::add(&*self.config.store, name, &auto_create.definition, Again::Never).await {
            Ok(_) => tracing::info!(namespace = %name, "namespace made, since it was asked for"),
            // By another node, just now.
            Err(NamespaceError::Exists { .. }) => {}
            Err(error @ NamespaceError::Store(_)) => {
                return Err(MintError::NotReady { why: format!("namespace {name} cannot be made: {error}") });
            }
            Err(error) => {
                tracing::info!(%error, "namespace not made");
                return Err(self.mint.unknown(name));
            }
        }
        if !self.config.store.may_lose().is_zero()
            && let Err(error) = self.told.settle(&*self.config.store).await
        {
            return Err(MintError::NotReady { why: format!("namespace {name} is not settled: {error}") });
        }
        self.follow_store().await;
        if is_served(&self.mint) { Ok(()) } else { Err(self.mint.unknown(name)) }
    }

    /// Says something in the log that would otherwise be said at each look.
    fn complain(&mut self, text: &str) {
        if self.complaints.insert(text.to_owned()) {
            tracing::warn!("{text}");
        }
    }
}

#[cfg(test)]
mod tests;
