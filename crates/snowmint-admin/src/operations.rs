//! The operations of operators, each said once: its method and path in the admin API, its message, its
//! result, and what it does.
//!
//! The admin API finds an operation in [`OPERATIONS`], reads its message and runs it. The command line makes
//! one, and runs it on a store or sends its message to a node.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use snowmint::error::Snippet;
use snowmint_cluster::NamespaceName;
use snowmint_cluster::audit::Action;
use snowmint_cluster::namespace::registry::Required;
use snowmint_store::Store;

use crate::audit::{self, AuditLog};
use crate::clock_offset::ClockOffset;
use crate::doctor::{self, Findings};
use crate::limits::MAX_CHANGES;
use crate::namespaces::{self, Addition, Change, Changed, NamespaceView, Namespaces, Settings, StartOver};
use crate::nearest::unknown_name;
use crate::node::{Drain, DrainState, LimitedToken, LogControl, LogLevel, NodeContext, NodeControl};
use crate::workers::{self, Force, ReleaseAnswer, Workers};
use crate::{AdminError, Author};

/// Every path of the admin API starts with it.
pub const PREFIX: &str = "/v1/admin/";
/// The default number of changes in a list of the audit log.
const CHANGES: usize = 50;
/// The store, for a token for some namespaces.
pub const OF_THIS_NODE: &str = "the store of this node";
const ABOVE: &str = "above";
const START_OVER: &str = "start_over";

/// The operations of the admin API in the order in which errors list their paths.
pub const OPERATIONS: &[OperationEntry] = &[
    OperationEntry::of::<ListNamespaces>(),
    OperationEntry::of::<ShowNamespace>(),
    OperationEntry::of::<AddNamespace>(),
    OperationEntry::of::<SetNamespace>(),
    OperationEntry::of::<DropNamespace>(),
    OperationEntry::of::<ListWorkers>(),
    OperationEntry::of::<ReleaseWorker>(),
    OperationEntry::of::<Examine>(),
    OperationEntry::of::<ShowStore>(),
    OperationEntry::of::<ShowDrain>(),
    OperationEntry::of::<BeginDrain>(),
    OperationEntry::of::<EndDrain>(),
    OperationEntry::of::<ShowLogLevel>(),
    OperationEntry::of::<SetLogLevel>(),
    OperationEntry::of::<ResetLogLevel>(),
    OperationEntry::of::<ListChanges>(),
    OperationEntry::of_fleet(OperationRoute::get("fleet")),
    OperationEntry::of_fleet(OperationRoute::get("events")),
    OperationEntry::of_fleet(OperationRoute::get("history")),
];

/// An operation of operators.
pub trait Operation: Send + Sized + 'static {
    /// Its result.
    type Answer: Reply;
    /// Its place in the admin API.
    const ROUTE: OperationRoute;

    /// Returns it as a message to a node.
    fn message(&self) -> Message {
        Message::default()
    }

    /// Reads it from the message of a client.
    ///
    /// # Errors
    ///
    /// [`AdminError`] names what is invalid.
    fn read(message: Message) -> Result<Self, AdminError>;

    /// Checks that the client of a node may run it, and completes it with what the node knows.
    ///
    /// # Errors
    ///
    /// A limit of the node or of the token.
    fn admit(&mut self, _: &NodeContext) -> Result<(), AdminError> {
        Ok(())
    }

    /// Runs it.
    ///
    /// # Errors
    ///
    /// [`AdminError`].
    fn run(self, on: Context) -> impl Future<Output = Result<Self::Answer, AdminError>> + Send;
}

/// The result of an operation.
pub trait Reply: Serialize + DeserializeOwned + Send + 'static {
    /// Adds what only the node knows, once the node has read the change.
    fn complete(&mut self, _: &dyn NodeControl) {}

    /// Returns the edition of the record, for its `ETag`.
    fn edition(&self) -> Option<u64> {
        None
    }
}

impl Reply for Changed {
    fn complete(&mut self, node: &dyn NodeControl) {
        self.served_here = Some(node.serves(&self.namespace.name));
    }

    fn edition(&self) -> Option<u64> {
        Some(self.edition)
    }
}

impl Reply for NamespaceView {
    fn edition(&self) -> Option<u64> {
        self.edition
    }
}

impl Reply for Namespaces {}
impl Reply for Workers {}
impl Reply for ReleaseAnswer {}
impl Reply for Findings {}
impl Reply for AuditLog {}
impl Reply for StoreView {}
impl Reply for DrainState {}
impl Reply for LogLevel {}

/// The place of an operation in the admin API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationRoute {
    /// The method.
    pub method: &'static str,
    /// The path below [`PREFIX`], with `{namespace}` or `{worker}`.
    pub path: &'static str,
    /// The parameters of the query.
    pub query: &'static [&'static str],
    /// Whether a request has a body, a JSON object.
    pub has_body: bool,
    /// What it concerns.
    pub effect: OperationEffect,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationEffect {
    /// It reads the store.
    ReadsStore,
    /// It changes the store: it must run to its end, and succeeds once everything that it wrote has settled.
    ChangesStore,
    /// It concerns the node, and also works while the store is down.
    OnNode,
}

impl OperationRoute {
    const fn get(path: &'static str) -> Self {
        Self { method: "GET", path, query: &[], has_body: false, effect: OperationEffect::ReadsStore }
    }

    const fn change(method: &'static str, path: &'static str) -> Self {
        Self { method, effect: OperationEffect::ChangesStore, ..Self::get(path) }
    }

    const fn with_body(self) -> Self {
        Self { has_body: true, ..self }
    }

    const fn with_query(self, query: &'static [&'static str]) -> Self {
        Self { query, ..self }
    }

    const fn on_node(self) -> Self {
        Self { effect: OperationEffect::OnNode, ..self }
    }

    /// Returns the name and the value of the parameter in a path below [`PREFIX`], both empty if it has none;
    /// `None` if this is another path.
    pub fn matches<'a>(&self, path: &'a str) -> Option<(&'static str, &'a str)> {
        let (mut wanted, mut found) = (self.path.split('/'), path.split('/'));
        let mut parameter = ("", "");
        loop {
            match (wanted.next(), found.next()) {
                (None, None) => return Some(parameter),
                (Some(name), Some(value)) if name.starts_with('{') => parameter = (name, value),
                (Some(wanted), Some(found)) if wanted == found => {}
                _ => return None,
            }
        }
    }

    /// Returns path and query of a request with this message.
    pub fn target(&self, message: &Message) -> String {
        let mut target = format!("{PREFIX}{}", self.path);
        if let Some(worker) = message.worker {
            target = target.replace("{worker}", &worker.to_string());
        }
        let mut query = message.query.clone();
        if let Some(name) = &message.namespace {
            if self.query.contains(&"namespace") {
                query.insert("namespace", name.to_string());
            }
            target = target.replace("{namespace}", name.as_str());
        }
        for (nth, (name, value)) in query.iter().enumerate() {
            target.push(if nth == 0 { '?' } else { '&' });
            target.extend([*name, "="]);
            target.extend(utf8_percent_encode(value, NON_ALPHANUMERIC));
        }
        target
    }
}

/// What a request of the admin API carries.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// The namespace in its path or query.
    pub namespace: Option<NamespaceName>,
    /// The worker in its path.
    pub worker: Option<u32>,
    /// The other parameters of its query.
    pub query: BTreeMap<&'static str, String>,
    /// The condition on the record of the namespace.
    pub required: Required,
    /// The body.
    pub body: Settings,
}

impl Message {
    fn of(name: &NamespaceName) -> Self {
        Self { namespace: Some(name.clone()), ..Self::default() }
    }

    fn name(&self) -> Result<NamespaceName, AdminError> {
        self.namespace.clone().ok_or_else(|| AdminError::Request("missing namespace".to_owned()))
    }

    /// Reads the body, all of whose fields must be known.
    fn fields<T: DeserializeOwned>(self, known: &[&str]) -> Result<T, AdminError> {
        fields(self.body, known)
    }
}

fn fields<T: DeserializeOwned>(object: Settings, known: &[&str]) -> Result<T, AdminError> {
    if let Some(unknown) = object.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(AdminError::Request(unknown_name("field", unknown, known.iter().copied())));
    }
    serde_json::from_value(Value::Object(object))
        .map_err(|error| AdminError::Request(format!("invalid body: {error}")))
}

/// Where an operation runs, and for whom.
#[derive(Clone)]
pub struct Context {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Who changes it.
    pub author: Author,
    /// The node, and the limits of its client; `None` for the command line, which may do everything.
    pub node: Option<NodeContext>,
}

impl Context {
    fn node(&self) -> Result<&dyn NodeControl, AdminError> {
        let node = self.node.as_ref().ok_or(AdminError::Unsupported("this needs a node: add --server"))?;
        Ok(&*node.node)
    }

    /// Returns the token of a client that may know some namespaces only.
    fn own_namespaces(&self) -> Option<&dyn LimitedToken> {
        self.node.as_ref()?.token.as_deref()
    }

    /// Returns a change as the author may see it.
    fn shown(&self, changed: Changed) -> Changed {
        match self.own_namespaces() {
            None => changed,
            // The path or address of the store is not for the holder of a token for some namespaces.
            Some(_) => Changed { store: OF_THIS_NODE.to_owned(), ..changed },
        }
    }

    /// Records a change of the node, and returns a warning if the audit log does not have it.
    async fn note(&self, action: Action, details: &str) -> Result<Vec<String>, AdminError> {
        Ok(self.node()?.note(&self.author, action, details).await)
    }
}

/// An answer over HTTP.
#[derive(Debug)]
pub struct HttpAnswer {
    /// The body, or why it cannot be written.
    pub json: serde_json::Result<Vec<u8>>,
    /// The edition of the record, for its `ETag`.
    pub edition: Option<u64>,
}

/// Makes the answer of a node, once the node has read the change.
pub type Complete = Box<dyn FnOnce(&dyn NodeControl) -> HttpAnswer + Send>;
/// Runs an operation. Boxed, since its type contains the types of all stores.
pub type Run =
    Box<dyn FnOnce(Context) -> Pin<Box<dyn Future<Output = Result<Complete, AdminError>> + Send>> + Send>;

/// Reads the message of a client, within its limits.
pub type ReadOperation = fn(Message, &NodeContext) -> Result<Run, AdminError>;

/// An operation whose type is not known at compile time.
#[derive(Clone, Copy, Debug)]
pub struct OperationEntry {
    /// Its place.
    pub route: OperationRoute,
    /// Reads it within the limits of its client; `None` if the server itself answers it.
    pub read: Option<ReadOperation>,
}

impl OperationEntry {
    const fn of<O: Operation>() -> Self {
        Self { route: O::ROUTE, read: Some(read::<O>) }
    }

    const fn of_fleet(route: OperationRoute) -> Self {
        Self { route: route.on_node(), read: None }
    }
}

fn read<O: Operation>(message: Message, limits: &NodeContext) -> Result<Run, AdminError> {
    let mut operation = O::read(message)?;
    operation.admit(limits)?;
    Ok(Box::new(move |on| Box::pin(run(operation, on))))
}

async fn run<O: Operation>(operation: O, on: Context) -> Result<Complete, AdminError> {
    let mut answer = operation.run(on).await?;
    Ok(Box::new(move |node| {
        answer.complete(node);
        HttpAnswer { json: serde_json::to_vec(&answer), edition: answer.edition() }
    }))
}

/// Defines an operation whose message is empty.
macro_rules! plain {
    ($(#[$doc:meta])* $name:ident: $route:expr => $answer:ty, |$on:ident| $run:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl Operation for $name {
            type Answer = $answer;
            const ROUTE: OperationRoute = $route;

            fn read(_: Message) -> Result<Self, AdminError> {
                Ok(Self)
            }

            async fn run(self, $on: Context) -> Result<Self::Answer, AdminError> {
                $run
            }
        }
    };
}

plain! {
    /// Lists the namespaces that the author may know.
    ListNamespaces: OperationRoute::get("namespaces") => Namespaces, |on| match on.own_namespaces() {
        None => namespaces::list(&*on.store).await,
        // A token for some namespaces learns nothing about other records.
        Some(own) => {
            let namespaces = namespaces::list_some(&*on.store, |name| own.covers(name)).await?;
            Ok(Namespaces { namespaces, warnings: Vec::new() })
        }
    }
}

plain! {
    /// Lists the workers.
    ListWorkers: OperationRoute::get("workers") => Workers, |on| workers::list(&*on.store).await
}

/// A store as `snowmint store show --json` and the admin API show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreView {
    /// Its kind and place, without any password.
    pub store: String,
    /// Its identity; `None` until the first node that uses it has written one.
    pub identity: Option<String>,
    /// How long it may lose what it acknowledged, in milliseconds.
    pub may_lose_ms: u64,
    /// How far the clock of the machine is ahead of the store's at least, in milliseconds; negative if it is
    /// behind; `None` if the store has no clock.
    pub clock_ahead_ms: Option<i64>,
}

plain! {
    /// Shows the store.
    ShowStore: OperationRoute::get("store") => StoreView, |on| Ok(StoreView {
        store: on.store.describe(),
        clock_ahead_ms: ClockOffset::measure(&*on.store).await?.map(ClockOffset::certain_ms),
        // Known once the store has answered.
        identity: on.store.identity().map(|identity| identity.id.to_string()),
        may_lose_ms: u64::try_from(on.store.may_lose().as_millis()).unwrap_or(u64::MAX),
    })
}

plain! {
    /// Shows whether the node is drained.
    ShowDrain: OperationRoute::get("drain").on_node() => DrainState, |on| Ok(drain_state(on.node()?))
}

plain! {
    /// Makes the node not ready. It continues to serve all requests.
    BeginDrain: OperationRoute::change("POST", "drain").on_node() => DrainState, |on| drain(&on, Drain::Begin, "begin").await
}

plain! {
    /// Makes the node ready again.
    EndDrain: OperationRoute::change("DELETE", "drain").on_node() => DrainState, |on| drain(&on, Drain::End, "end").await
}

plain! {
    /// Shows the log level of the node.
    ShowLogLevel: OperationRoute::get("log-level").on_node() => LogLevel, |on| log_level(on.node()?)
}

plain! {
    /// Restores the configured log level of the node.
    ResetLogLevel: OperationRoute::change("DELETE", "log-level").on_node() => LogLevel,
        |on| set_log_level(&on, None).await
}

/// Changes the log level of the node until the next change, reload or restart.
#[derive(Clone, Debug, Deserialize)]
pub struct SetLogLevel {
    /// The level.
    pub level: String,
}

impl Operation for SetLogLevel {
    type Answer = LogLevel;
    const ROUTE: OperationRoute = OperationRoute::change("PUT", "log-level").with_body().on_node();

    fn message(&self) -> Message {
        Message { body: object(json!({ "level": self.level })), ..Message::default() }
    }

    fn read(message: Message) -> Result<Self, AdminError> {
        message.fields(&["level"])
    }

    async fn run(self, on: Context) -> Result<LogLevel, AdminError> {
        set_log_level(&on, Some(&self.level)).await
    }
}

async fn set_log_level(on: &Context, level: Option<&str>) -> Result<LogLevel, AdminError> {
    log_of(on.node()?)?.set(level).map_err(|why| AdminError::setting("level", why))?;
    let warnings = on.note(Action::NodeLogLevel, level.unwrap_or("as configured")).await?;
    Ok(LogLevel { warnings, ..log_level(on.node()?)? })
}

fn log_of(node: &dyn NodeControl) -> Result<&dyn LogControl, AdminError> {
    node.log().ok_or(AdminError::Unsupported("the log level of this process cannot be changed while it runs"))
}

fn log_level(node: &dyn NodeControl) -> Result<LogLevel, AdminError> {
    let log = log_of(node)?;
    let (level, configured) = (log.level(), log.configured());
    Ok(LogLevel { holder: node.holder(), level, configured, warnings: Vec::new() })
}

async fn drain(on: &Context, what: Drain, details: &str) -> Result<DrainState, AdminError> {
    on.node()?.drain(what);
    let warnings = on.note(Action::NodeDrain, details).await?;
    Ok(DrainState { warnings, ..drain_state(on.node()?) })
}

fn drain_state(node: &dyn NodeControl) -> DrainState {
    DrainState { holder: node.holder(), drained: node.is_drained(), warnings: Vec::new() }
}

/// Shows one namespace.
#[derive(Clone, Debug)]
pub struct ShowNamespace {
    /// Its name.
    pub name: NamespaceName,
}

impl Operation for ShowNamespace {
    type Answer = NamespaceView;
    const ROUTE: OperationRoute = OperationRoute::get("namespaces/{namespace}");

    fn message(&self) -> Message {
        Message::of(&self.name)
    }

    fn read(message: Message) -> Result<Self, AdminError> {
        Ok(Self { name: message.name()? })
    }

    async fn run(self, on: Context) -> Result<NamespaceView, AdminError> {
        namespaces::get(&*on.store, &self.name).await
    }
}

/// Adds a namespace, or resumes or restarts a dropped one.
#[derive(Clone, Debug)]
pub struct AddNamespace {
    /// Its name.
    pub name: NamespaceName,
    /// Its settings.
    pub addition: Addition,
}

impl Operation for AddNamespace {
    type Answer = Changed;
    const ROUTE: OperationRoute = OperationRoute::change("PUT", "namespaces/{namespace}").with_body();

    fn message(&self) -> Message {
        let mut body = self.addition.settings.clone();
        if let Some(start_over) = &self.addition.start_over {
            body.insert(START_OVER.to_owned(), json!(start_over));
        }
        Message { body, required: self.addition.required, ..Message::of(&self.name) }
    }

    fn read(mut message: Message) -> Result<Self, AdminError> {
        let start_over = message.body.remove(START_OVER);
        namespaces::check_names(&message.body, &[START_OVER])?;
        let start_over = match start_over {
            None | Some(Value::Null) => None,
            Some(Value::Object(object)) => Some(fields::<StartOver>(object, &["nodes"])?),
            Some(_) => {
                let why = "expected an object with the nodes that must not serve it, such as \
                           {\"nodes\": [\"http://n1:8080\"]}";
                return Err(AdminError::setting(START_OVER, why));
            }
        };
        let (name, settings, required) = (message.name()?, message.body, message.required);
        Ok(Self { name, addition: Addition { settings, start_over, required, ..Addition::default() } })
    }

    fn admit(&mut self, node: &NodeContext) -> Result<(), AdminError> {
        self.addition.logins = node.logins.clone();
        node.check_addition(&self.addition)
    }

    async fn run(mut self, on: Context) -> Result<Changed, AdminError> {
        let _one_at_a_time = match &on.node {
            Some(node) => Some(node.begin_addition(&*on.store, &self.name, &mut self.addition).await?),
            None => None,
        };
        let shows = |other: &str| on.own_namespaces().is_none_or(|own| own.covers(other));
        let added = namespaces::add(&*on.store, &on.author, &self.name, &self.addition, shows).await?;
        Ok(on.shown(added))
    }
}

/// Changes the settings of a namespace.
#[derive(Clone, Debug)]
pub struct SetNamespace {
    /// Its name.
    pub name: NamespaceName,
    /// The changed settings.
    pub change: Change,
}

impl Operation for SetNamespace {
    type Answer = Changed;
    const ROUTE: OperationRoute = OperationRoute::change("PATCH", "namespaces/{namespace}").with_body();

    fn message(&self) -> Message {
        let mut body = self.change.settings.clone();
        body.extend(self.change.above.map(|above| (ABOVE.to_owned(), above.into())));
        Message { body, required: self.change.required, ..Message::of(&self.name) }
    }

    fn read(mut message: Message) -> Result<Self, AdminError> {
        let above = message.body.remove(ABOVE);
        namespaces::check_names(&message.body, &[ABOVE])?;
        if above.is_some() {
            // Rejected whatever its value: it belongs to sources.
            return Err(AdminError::only_with_store(ABOVE));
        }
        let (name, settings, required) = (message.name()?, message.body, message.required);
        Ok(Self { name, change: Change { settings, required, ..Change::default() } })
    }

    fn admit(&mut self, node: &NodeContext) -> Result<(), AdminError> {
        self.change.logins = node.logins.clone();
        node.check_change(&self.change)
    }

    async fn run(self, on: Context) -> Result<Changed, AdminError> {
        Ok(on.shown(namespaces::set(&*on.store, &on.author, &self.name, &self.change).await?))
    }
}

/// Drops a namespace: nodes stop serving it, its record stays.
#[derive(Clone, Debug)]
pub struct DropNamespace {
    /// Its name.
    pub name: NamespaceName,
    /// The condition that its record must meet.
    pub required: Required,
}

impl Operation for DropNamespace {
    type Answer = Changed;
    const ROUTE: OperationRoute = OperationRoute::change("DELETE", "namespaces/{namespace}");

    fn message(&self) -> Message {
        Message { required: self.required, ..Message::of(&self.name) }
    }

    fn read(message: Message) -> Result<Self, AdminError> {
        Ok(Self { name: message.name()?, required: message.required })
    }

    async fn run(self, on: Context) -> Result<Changed, AdminError> {
        let dropped = namespaces::drop_namespace(&*on.store, &on.author, &self.name, self.required);
        Ok(on.shown(dropped.await?))
    }
}

/// Takes a worker from its holder.
#[derive(Clone, Debug)]
pub struct ReleaseWorker {
    /// The worker.
    pub worker: u32,
    /// Its pool, if the store has several.
    pub pool: Option<String>,
    /// Whether to take it from a node that still holds it.
    pub force: Force,
}

impl Operation for ReleaseWorker {
    type Answer = ReleaseAnswer;
    const ROUTE: OperationRoute = OperationRoute::change("POST", "workers/{worker}/release").with_body();

    fn message(&self) -> Message {
        let mut body = json!({ "force": self.force != Force::Refuse });
        if let Force::TakeFrom(holder) = &self.force {
            body["holder"] = holder.as_str().into();
        }
        if let Some(pool) = &self.pool {
            body["pool"] = pool.as_str().into();
        }
        Message { worker: Some(self.worker), body: object(body), ..Message::default() }
    }

    fn read(message: Message) -> Result<Self, AdminError> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct ReleaseBody {
            pool: Option<String>,
            force: bool,
            holder: Option<String>,
        }
        let worker = message.worker.ok_or_else(|| AdminError::Request("missing worker".to_owned()))?;
        let ReleaseBody { pool, force, holder } = message.fields(&["pool", "force", "holder"])?;
        Ok(Self { worker, pool, force: Force::requested(force, holder)? })
    }

    async fn run(self, on: Context) -> Result<ReleaseAnswer, AdminError> {
        workers::release(&*on.store, &on.author, self.worker, self.pool.as_deref(), &self.force).await
    }
}

/// Checks the store, and nodes.
#[derive(Clone, Debug)]
pub struct Examine {
    /// The nodes. If none is named, a node checks its peers.
    pub nodes: Vec<String>,
}

impl Operation for Examine {
    type Answer = Findings;
    const ROUTE: OperationRoute = OperationRoute::get("doctor").with_query(&["nodes"]);

    fn message(&self) -> Message {
        let nodes = (!self.nodes.is_empty()).then(|| ("nodes", self.nodes.join(",")));
        Message { query: nodes.into_iter().collect(), ..Message::default() }
    }

    fn read(message: Message) -> Result<Self, AdminError> {
        let nodes = message.query.get("nodes").map_or("", String::as_str);
        let nodes = nodes.split(',').filter(|node| !node.is_empty());
        Ok(Self { nodes: nodes.map(str::to_owned).collect() })
    }

    fn admit(&mut self, node: &NodeContext) -> Result<(), AdminError> {
        node.check_nodes(&self.nodes)?;
        if self.nodes.is_empty() {
            self.nodes = node.peers.to_vec();
        }
        Ok(())
    }

    async fn run(self, on: Context) -> Result<Findings, AdminError> {
        doctor::examine(&*on.store, &self.nodes).await
    }
}

/// Lists the newest changes.
#[derive(Clone, Debug)]
pub struct ListChanges {
    /// The largest number of entries.
    pub limit: usize,
    /// Only changes of this namespace.
    pub namespace: Option<NamespaceName>,
}

impl Operation for ListChanges {
    type Answer = AuditLog;
    const ROUTE: OperationRoute = OperationRoute::get("audit").with_query(&["limit", "namespace"]);

    fn message(&self) -> Message {
        let query = BTreeMap::from([("limit", self.limit.to_string())]);
        Message { namespace: self.namespace.clone(), query, ..Message::default() }
    }

    fn read(message: Message) -> Result<Self, AdminError> {
        let limit = match message.query.get("limit") {
            None => CHANGES,
            Some(text) => {
                let number = text.parse().ok().filter(|number| (1..=MAX_CHANGES).contains(number));
                number.ok_or_else(|| {
                    let text = Snippet::of(text);
                    AdminError::Request(format!("invalid limit {text}: expected 1 to {MAX_CHANGES}"))
                })?
            }
        };
        Ok(Self { limit, namespace: message.namespace })
    }

    async fn run(self, on: Context) -> Result<AuditLog, AdminError> {
        audit::list(&*on.store, self.limit, self.namespace.as_ref()).await
    }
}

/// Returns the members of a JSON object.
fn object(value: Value) -> Settings {
    if let Value::Object(members) = value { members } else { Settings::new() }
}
