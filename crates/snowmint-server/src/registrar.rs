//! Keeps the mint in step with what is to be served: what flags and a file say, and what the store says is for all.
//! It alone changes which namespaces are served, so no two changes meet.

mod claims;
mod lost;
mod opening;
mod pending;
mod places;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use snowmint::{Layout, Rule, Start};
use snowmint_cluster::namespace::registry::{self, Again};
use snowmint_cluster::namespace::{
    Definition, NamespaceError, NamespaceRecord, NumberSource, Scheme, SegmentScheme, TextForm,
};
use snowmint_cluster::{NamespaceName, NoNumber, SavedLeases, SavedList};
use snowmint_store::{Store, StoreError};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tracing::Instrument as _;

pub use told::{Sources, Told, ToldError};

use crate::forecast;
use crate::mint::{Creation, IdSource, Maker, Mint, MintError, Namespace, Pool};
use crate::settings::{ServiceClock, SharedClock};
use claims::Claims;
use lost::{Followed, Lost};
use opening::{Opening, Started};
use pending::{Opened, Pending};

/// Names that may wait to become namespaces.
const CREATIONS: usize = 64;
/// From what part of its numbers on a namespace is warned of.
const FEW_LEFT: f64 = 0.9;
/// How long numbers and leases of what is no longer served may take to be given back.
const RELEASE_WITHIN: Duration = Duration::from_secs(3);
/// How soon to look again whether numbers are there, where a source says that somebody has to mend something first.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How a line in the log begins that is said again once the namespaces have been followed.
const STAY: &str = "the namespaces stay as they are: ";
/// What a namespace says until its sources have answered.
const BEING_OPENED: &str = "its sources are being opened; retry in a moment";

/// Starts a source of ids for another layout, rule or sequence start than the service's own; the reason where that
/// cannot be.
pub type OpenSource = Box<dyn Fn(Layout, Rule, Start) -> Result<Box<dyn IdSource>, String> + Send + Sync>;

/// What a registrar works with.
pub struct RegistrarConfig {
    /// The store of the service.
    pub store: Arc<dyn Store>,
    /// Where the node is told what to serve.
    pub sources: Sources,
    /// The rule of the service, which its own pool has.
    pub rule: Rule,
    /// Where sequences start in the service's own pool.
    pub sequence_start: Start,
    /// Starts sources for other layouts, rules and sequence starts.
    pub open_source: OpenSource,
    /// Where leases are saved, for a node that may start without its store.
    pub saved: Option<SavedLeases>,
    /// How often the store is asked what is to be served.
    pub poll: Duration,
    /// The time in ids of 96 and 128 bits.
    pub clock: SharedClock,
    /// The wall clock: it tells numbers their period, and texts the day.
    pub wall: SharedClock,
}

impl fmt::Debug for RegistrarConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistrarConfig")
            .field("sources", &self.sources)
            .field("poll", &self.poll)
            .finish_non_exhaustive()
    }
}

/// Keeps the mint in step with what is to be served.
#[derive(Debug)]
pub struct Registrar {
    mint: Arc<Mint>,
    config: RegistrarConfig,
    told: Told,
    opening: Opening,
    pending: Pending,
    /// What the sources of each namespace may give, where it has several.
    claims: BTreeMap<NamespaceName, Arc<Claims>>,
    /// Who asked for names whose sources are being opened.
    asked: Vec<Creation>,
    /// Pools of other layouts, rules and sequence starts, by their texts.
    pools: BTreeMap<String, Arc<Pool>>,
    /// What was already said in the log, so that it is said once.
    complaints: BTreeSet<String>,
    lost: Lost,
    /// What the list on the disk names, as far as this process wrote it.
    saved_served: Option<BTreeSet<NamespaceName>>,
    in_store: usize,
    /// What is given back at the moment.
    releasing: JoinSet<()>,
}

impl Registrar {
    /// A registrar of what was told and pinned.
    pub fn new(mint: Arc<Mint>, told: Told, config: RegistrarConfig) -> Self {
        let received = Arc::clone(mint.received());
        let opening = Opening::new(Arc::clone(&config.store), Arc::clone(&config.wall), received);
        Self {
            mint,
            told,
            opening,
            pending: Pending::default(),
            claims: BTreeMap::new(),
            asked: Vec::new(),
            config,
            pools: BTreeMap::new(),
            complaints: BTreeSet::new(),
            lost: Lost::default(),
            saved_served: None,
            in_store: 0,
            releasing: JoinSet::new(),
        }
    }

    /// Looks into the store once and serves what is to be served. Sources other than the store are opened meanwhile and
    /// after; see [`opened`](Self::opened).
    ///
    /// # Errors
    ///
    /// The store's; nothing changed.
    pub async fn refresh(&mut self) -> Result<(), StoreError> {
        let mut wanted = self.told.wanted(&*self.config.store).await?;
        for what in self.config.store.skipped() {
            self.complain(&format!("the lists of the store skip {what}"));
        }
        self.in_store = wanted.in_store;
        let served = self.mint.served();
        let mut next = self.without_record(&wanted).await;
        for (name, why) in &wanted.unreadable {
            self.complain(&format!("namespace {name} stays as it is, its record cannot be read: {why}"));
            next.extend(served.namespaces().iter().filter(|it| it.name().as_str() == name).cloned());
        }
        self.watch_claims(&wanted.records).await;
        for (name, record) in &wanted.dropped {
            if matches!(self.put_back_if_older(name, record).await, Ok(Followed::No)) {
                next.extend(served.namespaces().iter().find(|it| it.name() == name).cloned());
            }
        }
        for (name, definition) in wanted.namespaces {
            let before = served.namespaces().iter().find(|it| *it.name() == name);
            if self.is_refused(&name) {
                // What this node saw before is what others refuse: the store's record is what holds.
                self.lost.note(&name, wanted.records.get(&name));
            } else if let Some(record) = wanted.records.get(&name) {
                match self.put_back_if_older(&name, record).await {
                    Ok(Followed::Yes) => {}
                    Ok(Followed::No) => {
                        next.extend(before.cloned());
                        continue;
                    }
                    Err(error) => {
                        next.extend(before.map(|before| self.stopped(before, &error)));
                        continue;
                    }
                }
            }
            if let Some(record) = wanted.records.get(&name)
                && let Some(stopped) = self.found_again(before, &name, &definition, record)
            {
                next.push(stopped);
                continue;
            }
            let earlier_texts = wanted.earlier_texts.remove(&name).unwrap_or_default();
            next.push(self.follow(before, name, definition, earlier_texts).await);
        }
        let is_wanted = |name: &NamespaceName| next.iter().any(|it| it.name() == name);
        self.pending.keep(is_wanted);
        self.claims.retain(|name, _| is_wanted(name));
        // A list on the disk that names too much matters only to a restart without the store, within a window.
        if let Err(error) = self.save_served(&next).await {
            self.complain(&format!(
                "this node cannot save in its data directory what it may serve without the store: {error}; remove served.json \
                 there before the node starts without its store"
            ));
        }
        if Self::differ(served.namespaces(), &next) {
            self.mint.serve(next);
            self.release(served.namespaces());
        }
        Ok(())
    }

    /// Claims again what the store forgot of the numbers that sources give.
    async fn watch_claims(&self, records: &BTreeMap<NamespaceName, NamespaceRecord>) {
        for (name, claims) in &self.claims {
            if let Some(record) = records.get(name)
                && !claims.are_in(&record.numbers)
            {
                claims.claim_again().instrument(tracing::error_span!("namespace", %name)).await;
            }
        }
    }

    /// Whether another has claimed numbers that the sources of a namespace give here.
    fn is_refused(&self, name: &NamespaceName) -> bool {
        self.claims.get(name).is_some_and(|claims| claims.refused().is_some())
    }

    /// Waits until all sources that are being opened are there or have failed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost: those that are not there yet are served once they are.
    pub async fn opened(&mut self) {
        while let Some(opened) = self.pending.next().await {
            self.serve_opened(opened);
        }
    }

    /// Serves what was opened in place of what the namespace had.
    fn serve_opened(&mut self, opened: Opened) {
        let Opened { name, definition, started } = opened;
        let served = self.mint.served();
        let Some(before) = served.namespaces().iter().find(|it| *it.name() == name) else { return };
        let is_missing = matches!(before.maker(), Maker::Missing(_));
        let maker = match started {
            Ok(Started { segments, claims }) => {
                match claims {
                    Some(claims) => self.claims.insert(name.clone(), claims),
                    None => self.claims.remove(&name),
                };
                Maker::Segment(segments)
            }
            Err(why) if is_missing => Maker::Missing(why.into()),
            Err(why) => {
                self.complain(&format!("namespace {name} goes on as it was, its change waits: {why}"));
                return;
            }
        };
        let changed = self.replaced(Some(before), name, definition, maker);
        let next = served.namespaces().iter();
        let next = next.map(|it| Arc::clone(if Arc::ptr_eq(it, before) { &changed } else { it })).collect();
        self.mint.serve(next);
        self.release(served.namespaces());
        self.answer_asked();
    }

    /// Notes what this node may serve under its saved leases if it starts without the store, before it serves `next`.
    async fn save_served(&mut self, next: &[Arc<Namespace>]) -> io::Result<()> {
        let Some(saved) = &self.config.saved else { return Ok(()) };
        let own = |it: &&Arc<Namespace>| matches!(it.maker(), Maker::Snowflake(pool) if Arc::ptr_eq(pool, self.mint.pool()));
        let names: BTreeSet<_> = next.iter().filter(own).map(|it| it.name().clone()).collect();
        if self.saved_served.as_ref() == Some(&names) {
            return Ok(());
        }
        let (saved, list) = (saved.clone(), names.clone());
        let written = tokio::task::spawn_blocking(move || saved.save_served(&list)).await;
        // Removed, it is written again at the next look.
        self.saved_served = (written.map_err(io::Error::other)?? == SavedList::Written).then_some(names);
        Ok(())
    }

    /// Serves what was told of the service's own layout, for a node that goes on under a saved lease before its store has
    /// answered: only what it served under it when the store last answered.
    pub async fn serve_told(&mut self) {
        let may_serve = self.config.saved.as_ref().map(SavedLeases::served).unwrap_or_default();
        let (told, unknown): (Vec<_>, Vec<_>) =
            self.told.of_own_layout().into_iter().partition(|(name, _)| may_serve.contains(name));
        for (name, _) in unknown {
            self.complain(&format!(
                "namespace {name} is not served until the store answers: this node did not serve it in this layout when the \
                 store last did"
            ));
        }
        let mut next = Vec::new();
        for (name, definition) in told {
            next.push(self.follow(None, name, definition, Vec::new()).await);
        }
        self.mint.serve(next);
    }

    /// As [`refresh`](Self::refresh); a store that does not answer is a line in the log, once.
    async fn follow_store(&mut self) {
        match self.refresh().await {
            Ok(()) => self.complaints.retain(|text| !text.starts_with(STAY)),
            Err(error) => self.complain(&format!("{STAY}{error}")),
        }
    }

    fn differ(before: &[Arc<Namespace>], next: &[Arc<Namespace>]) -> bool {
        before.len() != next.len()
            || !next.iter().all(|namespace| before.iter().any(|it| Arc::ptr_eq(it, namespace)))
    }

    /// The namespace as it is to be served: as before where nothing changed.
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
        let same = followed.changed(followed.definition().clone(), followed.maker().clone());
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
            return self.replaced(before, name, definition, Maker::Missing(why.into()));
        }
        let running = before.filter(|it| !matches!(it.maker(), Maker::Missing(_)));
        if let Some(running) = running
            && running.definition().scheme == definition.scheme
        {
            self.pending.keep(|it| *it != name);
            if *running.definition() == definition {
                return Arc::clone(running);
            }
            let maker = running.maker().clone();
            return self.replaced(before, name, definition, maker);
        }
        if let Scheme::Segment(segment) = &definition.scheme {
            let goes_on = running.filter(|it| is_same_series(&it.definition().scheme, segment));
            if goes_on.is_some() || matches!(segment.source, NumberSource::Other(_)) {
                self.open_later(&name, &definition, segment, goes_on.is_some());
                return match before {
                    // What it has goes on until then, and so does what was said of it.
                    Some(before) if goes_on.is_some() || *before.definition() == definition => {
                        Arc::clone(before)
                    }
                    Some(before) => Arc::new(before.changed(definition, Maker::Missing(BEING_OPENED.into()))),
                    None => {
                        let maker = Maker::Missing(BEING_OPENED.into());
                        Arc::new(Namespace::new(name, definition, maker, &self.config.wall))
                    }
                };
            }
        }
        let maker = self.open(&name, &definition.scheme).await;
        self.replaced(before, name, definition, maker)
    }

    /// Opens what a namespace draws from, and waits for its first numbers where others are handed out until then.
    fn open_later(
        &mut self,
        name: &NamespaceName,
        definition: &Definition,
        segment: &SegmentScheme,
        others_are_there: bool,
    ) {
        let (opening, of, segment) = (self.opening.clone(), name.clone(), segment.clone());
        self.pending.want(name, definition, || async move {
            let started = opening.segments(&of, &segment).await?;
            while others_are_there && let Err(NoNumber::NotReady { .. }) = started.segments.ready().await {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            Ok(started)
        });
    }

    /// The namespace with what makes its ids now.
    fn replaced(
        &mut self,
        before: Option<&Arc<Namespace>>,
        name: NamespaceName,
        definition: Definition,
        maker: Maker,
    ) -> Arc<Namespace> {
        let was_served = before.is_some_and(|it| !matches!(it.maker(), Maker::Missing(_)));
        match &maker {
            Maker::Missing(why) => {
                self.complain(&format!("namespace {name} cannot be served yet: {why}"));
            }
            _ if was_served => tracing::info!(namespace = %name, now = %definition, "namespace changed"),
            _ => tracing::info!(namespace = %name, %definition, "namespace served"),
        }
        self.warn_of_little_time(&name, &definition.scheme);
        Arc::new(match before {
            Some(before) => before.changed(definition, maker),
            None => Namespace::new(name, definition, maker, &self.config.wall),
        })
    }

    async fn open(&mut self, name: &NamespaceName, scheme: &Scheme) -> Maker {
        let opened = match scheme {
            Scheme::Snowflake { layout, rule, sequence_start } => {
                self.pool(layout, *rule, *sequence_start).map(Maker::Snowflake)
            }
            Scheme::Segment(scheme) => {
                let started = self.opening.segments(name, scheme).await;
                started.map(|started| Maker::Segment(started.segments))
            }
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
    ) -> Result<Arc<Pool>, String> {
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
    fn release(&mut self, before: &[Arc<Namespace>]) {
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
        let in_use = |pool: &Arc<Pool>| {
            let uses =
                |it: &Arc<Namespace>| matches!(it.maker(), Maker::Snowflake(of) if Arc::ptr_eq(of, pool));
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
                Some(opened) = self.pending.next() => self.serve_opened(opened),
                Some(creation) = creations.recv() => self.create(creation, &mut creations).await,
            }
        }
    }

    /// Reads the file again; it is taken as a whole or not at all.
    async fn reload(&mut self) {
        let told = match self.config.sources.read() {
            Ok(told) => told.in_place_of(&self.told),
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

    /// Makes all namespaces that are asked for by now, and waits once until all of them have settled.
    async fn create(&mut self, first: Creation, more: &mut mpsc::Receiver<Creation>) {
        let (mut next, mut made) = (Some(first), Vec::new());
        let mut written = 0;
        while let Some(creation) = next {
            let is_made = made.iter().any(|it: &Creation| it.name == creation.name);
            match if is_made { Ok(New::There) } else { self.write(&creation.name, written).await } {
                Ok(New::Served) => answer(creation.done, Ok(())),
                Ok(New::There) => made.push(creation),
                Ok(New::Written) => {
                    written += 1;
                    made.push(creation);
                }
                Err(error) => answer(creation.done, Err(error)),
            }
            next = if made.len() < CREATIONS { more.try_recv().ok() } else { None };
        }
        if made.is_empty() {
            return;
        }
        if !self.config.store.may_lose().is_zero()
            && let Err(error) = self.told.settle(&*self.config.store).await
        {
            for Creation { name, done } in made {
                let why = format!("namespace {name} is not settled: {error}");
                answer(done, Err(MintError::NotReady { why }));
            }
            return;
        }
        self.follow_store().await;
        self.asked.extend(made);
        self.answer_asked();
    }

    /// Writes a namespace that is asked for into the store; `written` were written since the last look.
    async fn write(&self, name: &NamespaceName, written: usize) -> Result<New, MintError> {
        // Somebody else asked for it a moment ago.
        if self.is_served(name) {
            return Ok(New::Served);
        }
        let shown = snowmint::error::Snippet::of(name.as_str());
        let Some(auto_create) = self.told.auto_create() else {
            return Err(self.mint.unknown(name));
        };
        if self.in_store + written >= auto_create.at_most {
            return Err(MintError::TooManyNamespaces { name: shown, limit: auto_create.at_most });
        }
        match registry::add(&*self.config.store, name, &auto_create.definition, Again::Never).await {
            Ok(_) => {
                tracing::info!(namespace = %name, "namespace made, since it was asked for");
                Ok(New::Written)
            }
            // By another node, just now.
            Err(NamespaceError::Exists { .. }) => Ok(New::There),
            Err(error @ NamespaceError::Store(_)) => {
                Err(MintError::NotReady { why: format!("namespace {name} cannot be made: {error}") })
            }
            Err(error) => {
                tracing::info!(%error, "namespace not made");
                Err(self.mint.unknown(name))
            }
        }
    }

    /// Answers those whose names are served, or are not after the last look; the others wait for their sources.
    fn answer_asked(&mut self) {
        for Creation { name, done } in std::mem::take(&mut self.asked) {
            if self.pending.has(&name) {
                self.asked.push(Creation { name, done });
            } else if self.is_served(&name) {
                answer(done, Ok(()));
            } else {
                answer(done, Err(self.mint.unknown(&name)));
            }
        }
    }

    fn is_served(&self, name: &NamespaceName) -> bool {
        self.mint.served().namespaces().iter().any(|it| it.name() == name)
    }

    /// Says something in the log that would otherwise be said at each look.
    fn complain(&mut self, text: &str) {
        if self.complaints.insert(text.to_owned()) {
            tracing::warn!("{text}");
        }
    }
}

/// What came of a name that was asked for.
enum New {
    Served,
    Written,
    There,
}

fn answer(done: oneshot::Sender<Result<(), MintError>>, created: Result<(), MintError>) {
    // Whoever asked may have left.
    let _ = done.send(created);
}

/// Whether numbers of the one go on in the other.
fn is_same_series(before: &Scheme, after: &SegmentScheme) -> bool {
    matches!(before, Scheme::Segment(before) if before.series == after.series && before.reset == after.reset)
}

#[cfg(test)]
mod tests;
