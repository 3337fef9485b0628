//! What a node adds to an operation: the limits of its clients, and what only the node itself knows and does.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use snowmint::Layout;
use snowmint_cluster::NamespaceName;
use snowmint_cluster::audit::Action;
use snowmint_cluster::namespace::registry::{self, Required};
use snowmint_cluster::namespace::{Fields, Logins, NamespaceRecord};
use snowmint_store::Store;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::limits::{MAX_NAMESPACES_OF_ALL, MAX_NODES, MAX_OWN_NAMESPACES};
use crate::namespaces::{Addition, Change, SOURCES, Settings};
use crate::{AdminError, Author, node_reports};

/// The settings of a hide key.
const HIDE: [&str; 2] = ["hide", "hide_check"];
/// Settings for which each new value makes every node take one more worker of the store.
const TAKES_WORKERS: [&str; 3] = ["layout", "rule", "sequence_start"];

/// The log of a process. Operators change its level while the process runs.
pub trait LogControl: Send + Sync {
    /// Returns the number of lines that were dropped since the start, because nobody read the log in time.
    fn lines_dropped(&self) -> u64;

    /// Returns the level in use.
    fn level(&self) -> String;

    /// Returns the level that the process was configured with.
    fn configured(&self) -> String;

    /// Changes the level; `None` restores the configured one.
    ///
    /// # Errors
    ///
    /// What is wrong with the level, and what is allowed.
    fn set(&self, level: Option<&str>) -> Result<(), String>;
}

/// What to do with the drain of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// Make the node not ready.
    Begin,
    /// Make it ready again.
    End,
}

/// Whether an operator has drained a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DrainState {
    /// The name of this node as a holder: behind a load balancer, the request may have reached any node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Whether it is drained.
    pub drained: bool,
    /// That the change is not in the audit log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The level of the log of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
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

/// The node on which an operation runs.
#[async_trait]
pub trait NodeControl: Send + Sync {
    /// Returns its name as a holder.
    fn holder(&self) -> Option<String>;

    /// Returns whether it serves a namespace now. Other nodes follow within their `--namespaces-poll`.
    fn serves(&self, namespace: &str) -> bool;

    /// Returns whether an operator has drained it.
    fn is_drained(&self) -> bool;

    /// Makes it not ready, or ready again.
    fn drain(&self, drain: Drain);

    /// Returns its log, if its level can be changed.
    fn log(&self) -> Option<&dyn LogControl>;

    /// Records a change of the node in its log and in the audit log. Never fails, so a node whose store is
    /// down can still be administered; returns a warning if the audit log does not have the change.
    async fn note(&self, author: &Author, action: Action, details: &str) -> Vec<String>;
}

/// A token for some namespaces.
pub trait LimitedToken: Send + Sync {
    /// Returns its name.
    fn name(&self) -> String;

    /// Returns whether it covers a namespace.
    fn covers(&self, namespace: &str) -> bool;

    /// Returns why it may not do what needs a token for all namespaces.
    fn why_not_all(&self) -> String;
}

/// The node on which an operation runs, and the limits of its client.
#[derive(Clone)]
pub struct NodeContext {
    /// The node.
    pub node: Arc<dyn NodeControl>,
    /// The token of the client; `None` if it is for all namespaces.
    pub token: Option<Arc<dyn LimitedToken>>,
    /// The addresses of nodes that clients may make this node ask.
    pub peers: Arc<[String]>,
    /// Held from the count of the namespaces to the write of one more, so that requests at the same time
    /// exceed no limit.
    pub adding: Arc<Mutex<()>>,
    /// The logins with which this node checks the sources of namespaces.
    pub logins: Logins,
}

impl AdminError {
    /// Returns the error for a setting that needs the command line with a store.
    pub(crate) fn only_with_store(setting: &'static str) -> Self {
        let why = "not through a node, which would connect to any host that a source names: use `snowmint ns` with --store";
        Self::Forbidden { setting, why: why.to_owned() }
    }
}

impl NodeContext {
    /// Checks that clients may make this node ask these nodes. A node asks no address that only a client has
    /// named, since the node may reach hosts that the client cannot.
    ///
    /// # Errors
    ///
    /// Too many nodes, or one that is not a peer.
    pub fn check_nodes(&self, nodes: &[String]) -> Result<(), AdminError> {
        if nodes.len() > MAX_NODES {
            let why = format!("{} nodes: expected at most {MAX_NODES}", nodes.len());
            return Err(AdminError::setting("nodes", why));
        }
        for node in nodes {
            let address = node_reports::address(node).map_err(|error| AdminError::setting("nodes", error))?;
            if !self.peers.contains(&address.to_ascii_lowercase()) {
                let why = format!(
                    "{address} is not a peer of this node: add it to --peers of `snowmint serve`, or run the command with --store"
                );
                return Err(AdminError::Forbidden { setting: "nodes", why });
            }
        }
        Ok(())
    }

    /// Checks that the client may add this.
    pub(crate) fn check_addition(&self, addition: &Addition) -> Result<(), AdminError> {
        // In a new namespace, `null` is no setting.
        self.check_settings(&addition.settings, |value| !value.is_null())?;
        if let Some(start_over) = &addition.start_over {
            // It may repeat ids, and makes this node send requests to the given nodes.
            self.needs_all("start_over")?;
            self.check_nodes(&start_over.nodes)?;
        }
        Ok(())
    }

    /// Checks that the client may change this.
    pub(crate) fn check_change(&self, change: &Change) -> Result<(), AdminError> {
        // To remove a setting needs the same right as to set it.
        self.check_settings(&change.settings, |_| true)
    }

    /// Rejects settings that only the command line with a store may use. From tokens for some namespaces, it
    /// also rejects settings that affect others: a client with a namespace under a hide key can reveal the
    /// ids of every other namespace with that key, and a client that names layouts can use up the workers of
    /// all.
    fn check_settings(
        &self,
        settings: &Settings,
        counts: impl Fn(&serde_json::Value) -> bool,
    ) -> Result<(), AdminError> {
        let is_set = |name: &&str| settings.get(*name).is_some_and(&counts);
        if is_set(&SOURCES) {
            // Their URLs name files that this node would read and send, and hosts that get its passwords.
            return Err(AdminError::only_with_store(SOURCES));
        }
        HIDE.into_iter().chain(TAKES_WORKERS).find(is_set).map_or(Ok(()), |setting| self.needs_all(setting))
    }

    /// Rejects a setting that only a token for all namespaces may use.
    fn needs_all(&self, setting: &'static str) -> Result<(), AdminError> {
        match &self.token {
            None => Ok(()),
            Some(token) => Err(AdminError::Forbidden { setting, why: token.why_not_all() }),
        }
    }

    /// Checks that the store has room for a namespace of the client, or that the client may resume it. Until
    /// the guard is dropped, nobody else adds one through this node.
    pub(crate) async fn begin_addition(
        &self,
        store: &dyn Store,
        name: &NamespaceName,
        addition: &mut Addition,
    ) -> Result<OwnedMutexGuard<()>, AdminError> {
        let guard = Arc::clone(&self.adding).lock_owned().await;
        let Some(token) = &self.token else { return Ok(guard) };
        let listed = registry::list(store).await?;
        match listed.iter().find(|(known, _)| known == name.as_str()) {
            // `add` refuses a namespace that must be new.
            Some((_, Ok(record))) if addition.required != Required::Absent => {
                addition.required.check(name, Some(record))?;
                self.check_resume(name, record)?;
                // Another record than the one checked is not resumed.
                addition.required = Required::Edition(record.edition);
            }
            Some(_) => {}
            None => check_room(&listed, &**token)?,
        }
        Ok(guard)
    }

    /// Checks that a token for some namespaces may resume a dropped one. It may not bring back or remove what
    /// it may not set: a layout or rule takes a worker of the store again.
    fn check_resume(&self, name: &NamespaceName, record: &NamespaceRecord) -> Result<(), AdminError> {
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
        self.needs_all(setting).map_err(|error| match error {
            AdminError::Forbidden { setting, why } => {
                let why = format!(
                    "dropped namespace {name} has this setting, so a resume must be allowed to set it: {why}"
                );
                AdminError::Forbidden { setting, why }
            }
            error => error,
        })
    }
}

/// Checks that a token for some namespaces may add one: its records are never removed, and nodes serve a
/// limited number.
fn check_room(listed: &[registry::Listed], token: &dyn LimitedToken) -> Result<(), AdminError> {
    let found = listed.iter().filter(|(known, _)| token.covers(known)).count();
    if found >= MAX_OWN_NAMESPACES {
        return Err(AdminError::TooManyOwn { token: token.name(), found });
    }
    let limit = MAX_NAMESPACES_OF_ALL;
    let is_served =
        |record: &registry::Listed| record.1.as_ref().is_ok_and(|it| it.dropped_unix_ms.is_none());
    let found = listed.iter().filter(|it| is_served(it)).count();
    if found >= limit { Err(AdminError::TooManyInAll { found, limit }) } else { Ok(()) }
}
