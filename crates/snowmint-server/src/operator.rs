//! Authorizes and runs the requests of the admin API: rights and limits.
//!
//! A protocol reads a request, checks its [`Scope`] with [`authorize`] before it reports anything about the request, and calls an
//! [`Operator`]. Every limit of tokens for some namespaces is here.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use snowmint::Layout;
use snowmint_admin::AdminError;
use snowmint_admin::audit::{self, Author, Log};
use snowmint_admin::doctor::{self, Findings};
use snowmint_admin::namespaces::{self, Addition, Change, Changed, NamespaceView, Namespaces, Settings};
use snowmint_admin::workers::{self, Force, Released, Workers};
use snowmint_cluster::NamespaceName;
use snowmint_cluster::audit::{Action, AuthorRights, this_host};
use snowmint_cluster::namespace::registry::{self, Required};
use snowmint_cluster::namespace::{Fields, NamespaceRecord};
use snowmint_store::Store;
use tokio::time::timeout;

use crate::access::{Identity, Right};
use crate::admin::node_admin::{TokenScope, boxed};
use crate::admin::{LogControl, NodeAdmin};
use crate::limits::admin::{MAX_NAMESPACES_OF_ALL, MAX_OWN_NAMESPACES, REFRESH_WITHIN};
use crate::mint::{Backend, MintError};
use crate::state::ServerState;

/// The settings of a hide key.
const HIDE: [&str; 2] = ["hide", "hide_check"];
/// Settings for which each new value makes every node take one more worker of the store.
const TAKES_WORKERS: [&str; 3] = ["layout", "rule", "sequence_start"];
const SOURCES: &str = "sources";

/// What a request concerns, and so which tokens may send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope<'a> {
    /// The namespaces of the token, whichever they are.
    Own,
    /// One namespace.
    Namespace(&'a NamespaceName),
    /// The whole store, or this node.
    Everything,
}

/// Checks that a client may administer what a request concerns.
pub(crate) fn authorize(identity: &Identity, scope: Scope<'_>) -> Result<(), MintError> {
    match scope {
        Scope::Own => identity.may_somewhere(Right::Admin),
        Scope::Namespace(name) => identity.may(Right::Admin, name.as_str().as_bytes()),
        Scope::Everything => identity.may_everywhere(Right::Admin),
    }
}

/// A change, and whether this node serves the namespace now. Other nodes follow within their `--namespaces-poll`.
#[derive(Debug, Serialize)]
pub(crate) struct ChangedHere {
    #[serde(flatten)]
    pub(crate) changed: Changed,
    pub(crate) served_here: bool,
}

/// The outcome of a release with its warnings.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReleaseAnswer {
    /// The outcome.
    #[serde(flatten)]
    pub released: Released,
    /// Warnings for the operator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Whether an operator has drained this node.
#[derive(Debug, Serialize)]
pub(crate) struct DrainState {
    /// The name of this node as a holder: behind a load balancer, the request may have reached any node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<String>,
    pub(crate) drained: bool,
    /// That the change is not in the audit log.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// What to do with the drain of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drain {
    Begin,
    End,
}

/// The level of the log of this node.
#[derive(Debug, Serialize, Deserialize)]
pub struct LogLevel {
    /// The name of this node as a holder: behind a load balancer, the request may have reached any node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The level in use.
    pub level: String,
    /// The level of the flags or the configuration file.
    pub configured: String,
    /// That the change is not in the audit log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The store, for a token for some namespaces.
const OF_THIS_NODE: &str = "the store of this node";

/// An authorized client, within the limits of its token.
pub(crate) struct Operator<'a> {
    server: &'a ServerState,
    node: &'a NodeAdmin,
    identity: &'a Identity,
    author: Author,
}

impl<'a> Operator<'a> {
    /// Returns the operator behind a request that was [authorized](authorize). `from` is its address.
    pub(crate) fn new(
        server: &'a ServerState,
        identity: &'a Identity,
        from: String,
    ) -> Result<Self, AdminError> {
        let node = server
            .settings
            .admin
            .as_ref()
            .ok_or(AdminError::Unsupported("this server has no store to administer"))?;
        let who = format!("token {}", identity.name().unwrap_or_default());
        let rights = match scope_of(identity) {
            TokenScope::All => AuthorRights::All,
            TokenScope::Some => AuthorRights::SomeNamespaces,
        };
        Ok(Self { server, node, identity, author: Author { who, from, rights } })
    }

    pub(crate) const fn node(&self) -> &'a NodeAdmin {
        self.node
    }

    pub(crate) const fn identity(&self) -> &'a Identity {
        self.identity
    }

    /// Lists the namespaces that the client may know. A token for some namespaces learns nothing about other records.
    pub(crate) async fn namespaces(&self) -> Result<Namespaces, AdminError> {
        if self.scope() == TokenScope::All {
            return self
                .node
                .read(TokenScope::All, |store| boxed(async move { namespaces::list(&*store).await }))
                .await;
        }
        let identity = self.identity.clone();
        let own = move |store: Arc<dyn Store>| {
            boxed(async move { namespaces::list_some(&*store, |name| identity.sees(name.as_bytes())).await })
        };
        let namespaces = self.node.read(TokenScope::Some, own).await?;
        Ok(Namespaces { namespaces, warnings: Vec::new() })
    }

    pub(crate) async fn namespace(
        &self,
        name: NamespaceName,
    ) -> Result<(NamespaceView, Option<u64>), AdminError> {
        let get = move |store: Arc<dyn Store>| boxed(async move { namespaces::get(&*store, &name).await });
        self.node.read(self.scope(), get).await
    }

    pub(crate) async fn add(
        &self,
        name: NamespaceName,
        addition: Addition,
    ) -> Result<ChangedHere, AdminError> {
        self.check_settings(&addition.settings, Null::IsAbsent)?;
        if let Some(start_over) = &addition.start_over {
            // It may repeat ids, and makes this node send requests to the given nodes.
            self.needs_all("start_over")?;
            self.node.check_nodes(&start_over.nodes)?;
        }
        let (author, identity, scope) = (self.author.clone(), self.identity.clone(), self.scope());
        let (adding, logins) = (self.node.adding(), self.node.logins());
        let added = move |store: Arc<dyn Store>| {
            boxed(async move {
                let _one_at_a_time = adding.lock().await;
                let mut addition = Addition { logins, ..addition };
                if scope == TokenScope::Some {
                    let listed = registry::list(&*store).await?;
                    match listed.iter().find(|(known, _)| known == name.as_str()) {
                        Some((_, Ok(record))) => {
                            // `add` refuses a namespace that must be new.
                            if addition.required != Required::Absent {
                                addition.required.check(&name, Some(record))?;
                                check_resume(&identity, &name, record)?;
                                // Another record than the one checked is not resumed.
                                addition.required = Required::Edition(record.edition);
                            }
                        }
                        Some(_) => {}
                        None => check_room(&listed, &identity)?,
                    }
                }
                let shows = |other: &str| scope == TokenScope::All || identity.sees(other.as_bytes());
                namespaces::add(&*store, &author, &name, &addition, shows).await
            })
        };
        Ok(self.here(self.node.change(scope, added).await?))
    }

    pub(crate) async fn set(&self, name: NamespaceName, change: Change) -> Result<ChangedHere, AdminError> {
        self.check_settings(&change.settings, Null::Removes)?;
        if change.above.is_some() {
            return Err(only_with_store("above"));
        }
        let (author, change) = (self.author.clone(), Change { logins: self.node.logins(), ..change });
        let set = move |store: Arc<dyn Store>| {
            boxed(async move { namespaces::set(&*store, &author, &name, &change).await })
        };
        Ok(self.here(self.node.change(self.scope(), set).await?))
    }

    pub(crate) async fn drop_namespace(
        &self,
        name: NamespaceName,
        required: Required,
    ) -> Result<ChangedHere, AdminError> {
        let author = self.author.clone();
        let dropped = move |store: Arc<dyn Store>| {
            boxed(async move { namespaces::drop_namespace(&*store, &author, &name, required).await })
        };
        Ok(self.here(self.node.change(self.scope(), dropped).await?))
    }

    pub(crate) async fn workers(&self) -> Result<Workers, AdminError> {
        self.node.read(TokenScope::All, |store| boxed(async move { workers::list(&*store).await })).await
    }

    pub(crate) async fn release(
        &self,
        worker: u32,
        pool: Option<String>,
        force: Force,
    ) -> Result<ReleaseAnswer, AdminError> {
        let author = self.author.clone();
        let release = move |store: Arc<dyn Store>| {
            boxed(async move { workers::release(&*store, &author, worker, pool.as_deref(), &force).await })
        };
        let (released, warnings) = self.node.change(TokenScope::All, release).await?;
        Ok(ReleaseAnswer { released, warnings })
    }

    /// Checks the store, and these nodes; all peers if none is named.
    pub(crate) async fn doctor(&self, mut nodes: Vec<String>) -> Result<Findings, AdminError> {
        self.node.check_nodes(&nodes)?;
        if nodes.is_empty() {
            nodes = self.node.peers().to_vec();
        }
        let examine =
            move |store: Arc<dyn Store>| boxed(async move { doctor::examine(&*store, &nodes).await });
        self.node.read(TokenScope::All, examine).await
    }

    pub(crate) async fn audit(
        &self,
        limit: usize,
        namespace: Option<NamespaceName>,
    ) -> Result<Log, AdminError> {
        let list = move |store: Arc<dyn Store>| {
            boxed(async move { audit::list(&*store, limit, namespace.as_ref()).await })
        };
        self.node.read(self.scope(), list).await
    }

    pub(crate) fn drained(&self) -> DrainState {
        let drained = self.server.shutdown.is_drained();
        DrainState { holder: self.holder(), drained, warnings: Vec::new() }
    }

    /// Makes this node not ready, or ready again. It continues to serve all requests.
    pub(crate) async fn drain(&self, drain: Drain) -> DrainState {
        let details = match drain {
            Drain::Begin => {
                self.server.shutdown.drain();
                "begin"
            }
            Drain::End => {
                self.server.shutdown.end_drain();
                "end"
            }
        };
        let warnings = self.note(Action::NodeDrain, details).await;
        DrainState { warnings, ..self.drained() }
    }

    pub(crate) fn log_level(&self) -> Result<LogLevel, AdminError> {
        let log = self.log()?;
        let (level, configured) = (log.level(), log.configured());
        Ok(LogLevel { holder: self.holder(), level, configured, warnings: Vec::new() })
    }

    /// Changes the log level until the next change, reload or restart; `None` restores the configured one.
    pub(crate) async fn set_log_level(&self, level: Option<&str>) -> Result<LogLevel, AdminError> {
        self.log()?.set(level).map_err(|why| AdminError::setting("level", why))?;
        let warnings = self.note(Action::NodeLogLevel, level.unwrap_or("as configured")).await;
        Ok(LogLevel { warnings, ..self.log_level()? })
    }

    /// Returns the name of this node as a holder.
    fn holder(&self) -> Option<String> {
        self.server.settings.holder.as_ref().map(ToString::to_string)
    }

    fn log(&self) -> Result<&dyn LogControl, AdminError> {
        let log = self.server.settings.log.as_deref();
        log.ok_or(AdminError::Unsupported("the log level of this process cannot be changed while it runs"))
    }

    /// Records a change of this node in the log and the audit log. Never fails, so a node whose store is down can still be
    /// administered; returns a warning if the audit log does not have the change.
    async fn note(&self, action: Action, details: &str) -> Vec<String> {
        let Author { who, from, .. } = &self.author;
        tracing::info!(by = who, from, "{action}: {details}");
        let (author, of, details) = (self.author.clone(), action.clone(), details.to_owned());
        let node = self.holder().unwrap_or_else(this_host);
        let recorded = move |store: Arc<dyn Store>| {
            boxed(async move {
                let nothing = async { Ok::<_, AdminError>(()) };
                author.record(&*store, of, node, details, nothing).await?
            })
        };
        // The operator does not wait for a store that hangs; the entry may still be written.
        match timeout(REFRESH_WITHIN, self.node.read(TokenScope::All, recorded)).await {
            Ok(Ok(())) => Vec::new(),
            Ok(Err(error)) => {
                tracing::warn!(%error, "{action} is not in the audit log");
                // `AdminError::Audit` would add that nothing was changed.
                let why = match error {
                    AdminError::Audit(error) => error.to_string(),
                    error => error.to_string(),
                };
                vec![format!("the change was made, but is not in the audit log: {why}")]
            }
            Err(_) => {
                tracing::warn!("{action} is not in the audit log: the store did not answer in time");
                let within = REFRESH_WITHIN;
                vec![format!(
                    "the change was made, but may not be in the audit log: the store did not answer within {within:?}"
                )]
            }
        }
    }

    fn scope(&self) -> TokenScope {
        scope_of(self.identity)
    }

    fn here(&self, mut changed: Changed) -> ChangedHere {
        if self.scope() == TokenScope::Some {
            // Its path or address is not for the holder of a token for some namespaces.
            OF_THIS_NODE.clone_into(&mut changed.store);
        }
        let table = self.server.mint.table();
        let served = table.find(changed.namespace.name.as_bytes()).ok();
        let served_here = served.is_some_and(|it| !matches!(it.backend(), Backend::Unavailable(_)));
        ChangedHere { changed, served_here }
    }

    /// Rejects settings that only the command line with a store may use. From tokens for some namespaces, it also rejects
    /// settings that affect others: a client with a namespace under a hide key can reveal the ids of every other namespace with
    /// that key, and a client that names layouts can use up the workers of all.
    fn check_settings(&self, settings: &Settings, null: Null) -> Result<(), AdminError> {
        let is_set =
            |name: &&str| settings.get(*name).is_some_and(|value| null == Null::Removes || !value.is_null());
        if is_set(&SOURCES) {
            // Their URLs name files that this node would read and send, and hosts that get its passwords.
            return Err(only_with_store(SOURCES));
        }
        HIDE.into_iter().chain(TAKES_WORKERS).find(is_set).map_or(Ok(()), |setting| self.needs_all(setting))
    }

    /// Rejects a setting that only a token for all namespaces may use.
    fn needs_all(&self, setting: &'static str) -> Result<(), AdminError> {
        needs_all(self.identity, setting)
    }
}

fn scope_of(identity: &Identity) -> TokenScope {
    if identity.may_everywhere(Right::Admin).is_ok() { TokenScope::All } else { TokenScope::Some }
}

/// What `null` means as the value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Null {
    /// The setting is not named: the request defines a namespace.
    IsAbsent,
    /// The setting is removed, which needs the same right as setting it.
    Removes,
}

fn needs_all(identity: &Identity, setting: &'static str) -> Result<(), AdminError> {
    let allowed = identity.may_everywhere(Right::Admin);
    allowed.map_err(|error| AdminError::Forbidden { setting, why: error.to_string() })
}

/// Checks that a token for some namespaces may resume a dropped one. It may not bring back or remove what it may not set: a
/// layout or rule takes a worker of the store again.
fn check_resume(
    identity: &Identity,
    name: &NamespaceName,
    record: &NamespaceRecord,
) -> Result<(), AdminError> {
    if record.dropped_unix_ms.is_none() {
        return Ok(());
    }
    let fields = Fields::from(&record.definition);
    // A new namespace without a layout has this one, so a token for some namespaces may use it.
    let has_layout = fields.layout.is_some_and(|layout| layout != Layout::TWITTER);
    let found = [
        ("hide", fields.hide.is_some()),
        ("layout", has_layout),
        ("rule", fields.rule.is_some()),
        ("sequence_start", fields.sequence_start.is_some()),
        (SOURCES, fields.sources.is_some()),
    ];
    let Some((setting, _)) = found.into_iter().find(|(_, is_set)| *is_set) else { return Ok(()) };
    needs_all(identity, setting).map_err(|error| match error {
        AdminError::Forbidden { setting, why } => {
            let why = format!(
                "dropped namespace {name} has this setting, so a resume must be allowed to set it: {why}"
            );
            AdminError::Forbidden { setting, why }
        }
        error => error,
    })
}

pub(crate) fn only_with_store(setting: &'static str) -> AdminError {
    let why = "not through a node, which would connect to any host that a source names: use `snowmint ns` with --store";
    AdminError::Forbidden { setting, why: why.to_owned() }
}

/// Checks that a token for some namespaces may add one: its records are never removed, and nodes serve a limited number.
fn check_room(listed: &[registry::Listed], identity: &Identity) -> Result<(), AdminError> {
    let found = listed.iter().filter(|(known, _)| identity.sees(known.as_bytes())).count();
    if found >= MAX_OWN_NAMESPACES {
        let token = identity.name().unwrap_or_default().to_owned();
        return Err(AdminError::TooManyOwn { token, found });
    }
    let limit = MAX_NAMESPACES_OF_ALL;
    let is_served =
        |record: &registry::Listed| record.1.as_ref().is_ok_and(|it| it.dropped_unix_ms.is_none());
    let found = listed.iter().filter(|it| is_served(it)).count();
    if found >= limit { Err(AdminError::TooManyInAll { found, limit }) } else { Ok(()) }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::num::NonZeroU64;

    use serde_json::{Value, json};
    use snowmint_admin::AdminErrorKind;
    use snowmint_cluster::namespace::Definition;
    use snowmint_cluster::namespace::registry::IfDropped;
    use snowmint_store::{Expected, Key, MemoryStore, StoreError, Swap, Versioned};
    use tokio::runtime::Handle;

    use super::*;
    use crate::access::Access;
    use crate::access::tests::row;
    use crate::admin::Refresher;
    use crate::settings::Settings as ServerSettings;
    use crate::testing::{START_UNIX_MS, mint};

    /// A server, a token for all namespaces, and one for `a-*`.
    pub(crate) fn server(store: Arc<MemoryStore>) -> (ServerState, [Identity; 2]) {
        server_over(store)
    }

    fn server_over(store: Arc<dyn Store>) -> (ServerState, [Identity; 2]) {
        let (all, all_secret) = row("ops", "namespaces = ['*']\nrights = ['admin']");
        let (some, some_secret) = row("team-a", "namespaces = ['a-*']\nrights = ['admin']");
        let clock = Arc::new(snowmint::ManualClock::at_unix_ms(START_UNIX_MS));
        let access = Access::for_tests(&(all + &some), clock);
        let identities =
            [all_secret, some_secret].map(|secret| access.authenticate(secret.as_bytes()).unwrap());
        // Nothing answers the refresher, as during a shutdown.
        let admin = NodeAdmin::new(store, Handle::current(), Refresher::new().0);
        let admin = admin.with_peers(&["http://N1:8080".to_owned()]).unwrap();
        let settings =
            ServerSettings { access: Some(access), admin: Some(admin), ..ServerSettings::default() };
        (ServerState::new(Arc::new(mint()), settings), identities)
    }

    pub(crate) fn addition(settings: Value) -> Addition {
        let Value::Object(settings) = settings else { panic!("no object: {settings}") };
        Addition { settings, ..Addition::default() }
    }

    pub(crate) fn name(text: &str) -> NamespaceName {
        NamespaceName::new(text).unwrap()
    }

    /// Goal: a token for some namespaces cannot use the hide key of others, which would reveal their ids, and cannot use up the
    /// workers of the store. No token can make a node open a source.
    #[tokio::test]
    async fn settings_that_reach_beyond_a_namespace_are_rejected() {
        let (server, [ops, team]) = server(Arc::default());
        let operator = |identity| Operator::new(&server, identity, "10.0.0.9".to_owned()).unwrap();
        for (setting, body, is_for_all) in [
            ("hide", json!({"scheme": "segment", "hide": "billing"}), true),
            ("hide", json!({"hide": "billing", "hide_check": "0011223344556677"}), true),
            ("hide_check", json!({"hide_check": "0011223344556677"}), true),
            ("sources", json!({"sources": ["1/1 sqlite:/etc/x"]}), false),
            ("layout", json!({"layout": "js53"}), true),
            ("rule", json!({"scheme": "snowflake", "rule": "reject"}), true),
            ("sequence_start", json!({"sequence_start": "random(7)"}), true),
        ] {
            let Addition { settings, .. } = addition(body.clone());
            let rejected = operator(&team).check_settings(&settings, Null::IsAbsent).unwrap_err();
            assert_eq!(
                (rejected.kind(), rejected.setting_name()),
                (AdminErrorKind::Forbidden, Some(setting)),
                "{body}"
            );
            assert_eq!(
                operator(&ops).check_settings(&settings, Null::IsAbsent).is_ok(),
                is_for_all,
                "{body}"
            );
        }
        // A new namespace may have them as `null`.
        let Addition { settings, .. } =
            addition(json!({"scheme": "segment", "hide": null, "sources": null, "layout": null}));
        operator(&team).check_settings(&settings, Null::IsAbsent).unwrap();
    }

    /// Goal: a token for some namespaces cannot resume a dropped namespace with settings that it may not set, whether it keeps or
    /// leaves out these settings. Method: each setting, set by another token before the drop.
    #[tokio::test]
    async fn a_resume_needs_the_right_to_each_setting() {
        let (server, [ops, team]) = server(Arc::default());
        let operator = |identity| Operator::new(&server, identity, "10.0.0.9".to_owned()).unwrap();
        for (of, settings, wanted) in [
            ("a-plain", json!({"scheme": "snowflake"}), None),
            ("a-segment", json!({"scheme": "segment", "maximum": 9}), None),
            ("a-layout", json!({"layout": "sonyflake"}), Some("layout")),
            ("a-rule", json!({"scheme": "snowflake", "rule": "reject"}), Some("rule")),
            ("a-start", json!({"scheme": "snowflake", "sequence_start": "random"}), Some("sequence_start")),
        ] {
            operator(&ops).add(name(of), addition(settings)).await.unwrap();
            let dropped = operator(&team).drop_namespace(name(of), Required::Any).await.unwrap().changed;
            let Some(setting) = wanted else {
                operator(&team).add(name(of), addition(json!({}))).await.unwrap();
                continue;
            };
            for settings in [json!({}), json!({"scheme": "snowflake"}), json!({setting: null})] {
                for required in [Required::Any, Required::Present, Required::Edition(dropped.edition)] {
                    let resume = Addition { required, ..addition(settings.clone()) };
                    let refused = operator(&team).add(name(of), resume).await.unwrap_err();
                    assert_eq!(refused.setting_name(), Some(setting), "{of} {settings}: {refused}");
                    assert!(refused.to_string().contains(&format!("dropped namespace {of}")), "{refused}");
                }
            }
            operator(&ops).add(name(of), addition(json!({}))).await.unwrap();
        }
    }

    /// Goal: a node asks only addresses that its operator configured, whatever a request names, and no more than the limit.
    #[tokio::test]
    async fn only_peers_are_asked() {
        let (server, [ops, _]) = server(Arc::default());
        let operator = Operator::new(&server, &ops, "10.0.0.9".to_owned()).unwrap();
        for (nodes, kind) in [
            (vec!["http://n1:8080"], None),
            (vec!["n1:8080/"; 64], None),
            (vec!["n1:8080"; 65], Some(AdminErrorKind::BadRequest)),
            (vec!["http://n1:8081"], Some(AdminErrorKind::Forbidden)),
            (vec!["n1:8080", "http://169.254.169.254:80"], Some(AdminErrorKind::Forbidden)),
            (vec!["http://n1"], Some(AdminErrorKind::BadRequest)),
        ] {
            let nodes: Vec<_> = nodes.into_iter().map(str::to_owned).collect();
            let checked = operator.node.check_nodes(&nodes);
            assert_eq!(checked.as_ref().err().map(AdminError::kind), kind, "{nodes:?}: {checked:?}");
            if let Some(kind) = kind {
                assert_eq!(operator.doctor(nodes.clone()).await.unwrap_err().kind(), kind);
                let start_over = Some(namespaces::StartOver { nodes });
                let over = Addition { start_over, ..Addition::default() };
                assert_eq!(operator.add(name("n"), over).await.unwrap_err().kind(), kind);
            }
        }
    }

    /// Goal: a token for some namespaces cannot fill the store, whose records stay forever. Method: as many records as the token
    /// may have, and as many namespaces as a store may have.
    #[tokio::test]
    async fn a_token_for_some_namespaces_has_a_limit_of_them() {
        let definition = Definition::snowflake(Layout::TWITTER);
        for (prefix, count, words) in [
            ("a", MAX_OWN_NAMESPACES, "1000 records of namespaces in the patterns of token `team-a`"),
            ("b", MAX_NAMESPACES_OF_ALL, "9000 namespaces in the store"),
        ] {
            let store = Arc::new(MemoryStore::new());
            for number in 1..count {
                let name = name(&format!("{prefix}-{number}"));
                let room = registry::Room::default();
                let added =
                    registry::add_within(&*store, room, &name, &definition, IfDropped::Refuse, Required::Any);
                added.await.unwrap();
            }
            let (server, [ops, team]) = server(Arc::clone(&store));
            let operator = |identity| Operator::new(&server, identity, "10.0.0.9".to_owned()).unwrap();
            let segment = || addition(json!({"scheme": "segment"}));
            operator(&team).add(name("a-last"), segment()).await.unwrap();
            let full = operator(&team).add(name("a-more"), segment()).await.unwrap_err();
            assert_eq!(full.kind(), AdminErrorKind::TooManyNamespaces);
            assert!(full.to_string().starts_with(words), "{full}");
            // A drop frees no room, but the token may resume its own namespaces.
            operator(&team).drop_namespace(name("a-last"), Required::Any).await.unwrap();
            if prefix == "a" {
                let full = operator(&team).add(name("a-more"), segment()).await.unwrap_err();
                assert_eq!(full.kind(), AdminErrorKind::TooManyNamespaces);
            }
            operator(&team).add(name("a-last"), addition(json!({}))).await.unwrap();
            operator(&ops).add(name("a-more"), segment()).await.unwrap();
        }
    }

    /// A store that lets other tasks run between a count and the next write.
    #[derive(Debug, Default)]
    struct Slow(MemoryStore);

    #[async_trait::async_trait]
    impl Store for Slow {
        async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
            self.0.load(key).await
        }

        async fn compare_and_set(&self, key: &Key, at: Expected, value: &[u8]) -> Result<Swap, StoreError> {
            self.0.compare_and_set(key, at, value).await
        }

        async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
            let listed = self.0.list(prefix).await;
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            listed
        }

        async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
            self.0.add(key, count).await
        }

        fn describe(&self) -> String {
            self.0.describe()
        }
    }

    /// Goal: requests at the same time exceed no limit together. Method: they begin while one more namespace is allowed, on a store
    /// that is slow to list.
    #[tokio::test]
    async fn requests_at_the_same_time_exceed_no_limit() {
        let (store, definition) = (Arc::new(Slow::default()), Definition::snowflake(Layout::TWITTER));
        for number in 1..MAX_OWN_NAMESPACES {
            let (name, room) = (name(&format!("a-{number}")), registry::Room::default());
            let added =
                registry::add_within(&store.0, room, &name, &definition, IfDropped::Refuse, Required::Any);
            added.await.unwrap();
        }
        let (server, [_, team]) = server_over(store);
        let operator = Operator::new(&server, &team, "10.0.0.9".to_owned()).unwrap();
        let add =
            |nth: u32| operator.add(name(&format!("a-more-{nth}")), addition(json!({"scheme": "segment"})));
        let added = futures_util::future::join_all((0..4).map(add)).await;
        assert_eq!(added.iter().filter(|it| it.is_ok()).count(), 1, "{added:?}");
    }

    /// Goal: a token for some namespaces learns nothing about other records. Method: unreadable records of others, in each list.
    #[tokio::test]
    async fn a_token_for_some_namespaces_sees_no_other_records() {
        let store = Arc::new(MemoryStore::new());
        for key in ["namespaces/secret-plan", "audit/03"] {
            let _ = store.compare_and_set(&Key::new(key).unwrap(), Expected::Absent, b"{").await.unwrap();
        }
        let (server, [ops, team]) = server(Arc::clone(&store));
        let operator = |identity| Operator::new(&server, identity, "10.0.0.9".to_owned()).unwrap();
        let segment = || addition(json!({"scheme": "segment"}));
        let added = operator(&team).add(name("a-1"), segment()).await.unwrap().changed;
        let dropped = operator(&team).drop_namespace(name("a-1"), Required::Any).await.unwrap().changed;
        assert_eq!([added.store, dropped.store], [OF_THIS_NODE; 2], "it may be a path");
        assert_eq!(operator(&ops).add(name("b-1"), segment()).await.unwrap().changed.store, store.describe());
        let seen = async |identity| {
            let operator = operator(identity);
            let listed = operator.namespaces().await.unwrap();
            let log = operator.audit(100, Some(name("a-1"))).await.unwrap();
            serde_json::to_string(&(listed, log)).unwrap()
        };
        assert!(seen(&ops).await.contains("secret-plan"));
        let own = seen(&team).await;
        assert!(own.contains("a-1") && !own.contains("secret") && !own.contains("audit/"), "{own}");
        let log = serde_json::to_string(&operator(&ops).audit(100, None).await.unwrap()).unwrap();
        assert!(log.contains("audit/03"), "{log}");
    }
}
