//! Authorizes the requests of the admin API, and runs their operations on this node.
//!
//! HTTP checks the [`AdminScope`] of a request with [`authorize`] before it reports anything about the
//! request, and runs the operation by an [`Operator`]. The limits of tokens for some namespaces are those of
//! [`NodeContext`].

use std::sync::Arc;

use async_trait::async_trait;
use snowmint_admin::node::{Drain, LimitedToken, LogControl, NodeContext, NodeControl};
use snowmint_admin::operations::{Context, OperationEffect};
use snowmint_admin::{AdminError, Author};
use snowmint_cluster::NamespaceName;
use snowmint_cluster::audit::{Action, AuthorRights, this_host};
use snowmint_store::Store;
use tokio::time::timeout;

use crate::access::{Identity, Right};
use crate::admin::NodeAdmin;
use crate::admin::node_admin::{StoreOperation, TokenScope, boxed};
use crate::limits::admin::REFRESH_WITHIN;
use crate::mint::{Backend, MintError};
use crate::state::ServerState;

/// What a request concerns, and so which tokens may send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdminScope<'a> {
    /// The namespaces of the token, whichever they are.
    Own,
    /// One namespace.
    Namespace(&'a NamespaceName),
    /// The whole store, or this node.
    Everything,
}

/// Checks that a client may administer what a request concerns.
pub(crate) fn authorize(identity: &Identity, scope: AdminScope<'_>) -> Result<(), MintError> {
    match scope {
        AdminScope::Own => identity.may_somewhere(Right::Admin),
        AdminScope::Namespace(name) => identity.may(Right::Admin, name.as_str().as_bytes()),
        AdminScope::Everything => identity.may_everywhere(Right::Admin),
    }
}

/// An authorized client, within the limits of its token.
pub(crate) struct Operator<'a> {
    server: &'a Arc<ServerState>,
    admin: &'a NodeAdmin,
    identity: &'a Identity,
    author: Author,
}

impl<'a> Operator<'a> {
    /// Returns the operator behind a request that was [authorized](authorize). `from` is its address.
    pub(crate) fn new(
        server: &'a Arc<ServerState>,
        identity: &'a Identity,
        from: String,
    ) -> Result<Self, AdminError> {
        let admin = server
            .settings
            .admin
            .as_ref()
            .ok_or(AdminError::Unsupported("this server has no store to administer"))?;
        let who = format!("token {}", identity.name().unwrap_or_default());
        let rights = match scope_of(identity) {
            TokenScope::All => AuthorRights::All,
            TokenScope::Some => AuthorRights::SomeNamespaces,
        };
        Ok(Self { server, admin, identity, author: Author { who, from, rights } })
    }

    pub(crate) const fn admin(&self) -> &'a NodeAdmin {
        self.admin
    }

    pub(crate) const fn identity(&self) -> &'a Identity {
        self.identity
    }

    /// Returns what limits the operations of this client.
    pub(crate) fn limits(&self) -> NodeContext {
        let token: Option<Arc<dyn LimitedToken>> = match scope_of(self.identity) {
            TokenScope::All => None,
            TokenScope::Some => Some(Arc::new(self.identity.clone())),
        };
        self.admin.context(Arc::clone(self.server) as _, token)
    }

    /// Runs an operation that was admitted within these limits.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        effect: OperationEffect,
        limits: NodeContext,
        run: impl FnOnce(Context) -> StoreOperation<T>,
    ) -> Result<T, AdminError> {
        let (author, node) = (self.author.clone(), Some(limits));
        let run = move |store: Arc<dyn Store>| run(Context { store, author, node });
        match effect {
            OperationEffect::ReadsStore => self.admin.read(scope_of(self.identity), run).await,
            OperationEffect::ChangesStore => self.admin.change(scope_of(self.identity), run).await,
            OperationEffect::OnNode => run(self.admin.store()).await,
        }
    }
}

fn scope_of(identity: &Identity) -> TokenScope {
    if identity.may_everywhere(Right::Admin).is_ok() { TokenScope::All } else { TokenScope::Some }
}

impl LimitedToken for Identity {
    fn name(&self) -> String {
        Self::name(self).unwrap_or_default().to_owned()
    }

    fn covers(&self, namespace: &str) -> bool {
        self.sees(namespace.as_bytes())
    }

    fn why_not_all(&self) -> String {
        let allowed = self.may_everywhere(Right::Admin);
        allowed.err().map_or_else(String::new, |error| error.to_string())
    }
}

#[async_trait]
impl NodeControl for ServerState {
    fn holder(&self) -> Option<String> {
        self.settings.holder.as_ref().map(ToString::to_string)
    }

    fn serves(&self, namespace: &str) -> bool {
        let table = self.mint.table();
        let served = table.find(namespace.as_bytes());
        served.is_ok_and(|it| !matches!(it.backend(), Backend::Unavailable(_)))
    }

    fn is_drained(&self) -> bool {
        self.shutdown.is_drained()
    }

    fn drain(&self, drain: Drain) {
        match drain {
            Drain::Begin => self.shutdown.drain(),
            Drain::End => self.shutdown.end_drain(),
        }
    }

    fn log(&self) -> Option<&dyn LogControl> {
        self.settings.log.as_deref()
    }

    async fn note(&self, author: &Author, action: Action, details: &str) -> Vec<String> {
        let Author { who, from, .. } = author;
        tracing::info!(by = who, from, "{action}: {details}");
        let Some(admin) = &self.settings.admin else {
            return vec![
                "the change was made, but is not in the audit log: this server has no store".to_owned(),
            ];
        };
        let (author, of, details) = (author.clone(), action.clone(), details.to_owned());
        let node = self.holder().unwrap_or_else(this_host);
        let recorded = move |store: Arc<dyn Store>| {
            boxed(async move {
                let nothing = async { Ok::<_, AdminError>(()) };
                author.record(&*store, of, node, details, nothing).await?
            })
        };
        // The operator does not wait for a store that hangs; the entry may still be written.
        match timeout(REFRESH_WITHIN, admin.read(TokenScope::All, recorded)).await {
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
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use serde_json::{Value, json};
    use snowmint::Layout;
    use snowmint_admin::AdminErrorKind;
    use snowmint_admin::limits::{MAX_NAMESPACES_OF_ALL, MAX_OWN_NAMESPACES};
    use snowmint_admin::namespaces::{Addition, Changed, StartOver};
    use snowmint_admin::operations::{
        AddNamespace, BeginDrain, DropNamespace, EndDrain, Examine, ListChanges, ListNamespaces,
        OF_THIS_NODE, Operation,
    };
    use snowmint_cluster::namespace::Definition;
    use snowmint_cluster::namespace::registry::{self, IfDropped, Required};
    use snowmint_store::{Expected, Key, MemoryStore, StoreError, Swap, Versioned};
    use tokio::runtime::Handle;

    use super::*;
    use crate::access::Access;
    use crate::access::tests::row;
    use crate::admin::Refresher;
    use crate::settings::Settings as ServerSettings;
    use crate::testing::{START_UNIX_MS, mint};

    impl Operator<'_> {
        /// Runs an operation as its request does.
        async fn ask<O: Operation>(&self, mut operation: O) -> Result<O::Answer, AdminError> {
            let limits = self.limits();
            operation.admit(&limits)?;
            self.run(O::ROUTE.effect, limits, |on| boxed(operation.run(on))).await
        }

        async fn add(&self, name: NamespaceName, addition: Addition) -> Result<Changed, AdminError> {
            self.ask(AddNamespace { name, addition }).await
        }

        async fn drop_namespace(
            &self,
            name: NamespaceName,
            required: Required,
        ) -> Result<Changed, AdminError> {
            self.ask(DropNamespace { name, required }).await
        }
    }

    /// A server, a token for all namespaces, and one for `a-*`.
    fn server(store: Arc<MemoryStore>) -> (Arc<ServerState>, [Identity; 2]) {
        server_over(store)
    }

    fn server_over(store: Arc<dyn Store>) -> (Arc<ServerState>, [Identity; 2]) {
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
        (Arc::new(ServerState::new(Arc::new(mint()), settings)), identities)
    }

    fn addition(settings: Value) -> Addition {
        let Value::Object(settings) = settings else { panic!("no object: {settings}") };
        Addition { settings, ..Addition::default() }
    }

    fn name(text: &str) -> NamespaceName {
        NamespaceName::new(text).unwrap()
    }

    /// Goal: a token for some namespaces cannot use the hide key of others, which would reveal their ids, and
    /// cannot use up the workers of the store. No token can make a node open a source.
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
            let admitted = |identity| {
                let (name, addition) = (name("a-n"), addition(body.clone()));
                AddNamespace { name, addition }.admit(&operator(identity).limits())
            };
            let rejected = admitted(&team).unwrap_err();
            assert_eq!(
                (rejected.kind(), rejected.setting_name()),
                (AdminErrorKind::Forbidden, Some(setting)),
                "{body}"
            );
            assert_eq!(admitted(&ops).is_ok(), is_for_all, "{body}");
        }
        // A new namespace may have them as `null`.
        let addition = addition(json!({"scheme": "segment", "hide": null, "sources": null, "layout": null}));
        AddNamespace { name: name("a-n"), addition }.admit(&operator(&team).limits()).unwrap();
    }

    /// Goal: a token for some namespaces cannot resume a dropped namespace with settings that it may not set,
    /// whether it keeps or leaves out these settings. Method: each setting, set by another token before the
    /// drop.
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
            let dropped = operator(&team).drop_namespace(name(of), Required::Any).await.unwrap();
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

    /// Goal: a drain takes place even if the audit log cannot have it, and its answer says so. Method: an audit
    /// log that is readable, and one that is not.
    #[tokio::test]
    async fn a_drain_without_an_entry_has_a_warning() {
        for is_broken in [false, true] {
            let store = Arc::new(MemoryStore::new());
            if is_broken {
                let page = Key::new("audit/page").unwrap();
                assert!(matches!(
                    store.compare_and_set(&page, Expected::Absent, b"{").await,
                    Ok(Swap::Done(_))
                ));
            }
            let (server, [ops, _]) = server(store);
            let operator = Operator::new(&server, &ops, "10.0.0.9".to_owned()).unwrap();
            let begun = operator.ask(BeginDrain).await.unwrap();
            assert_eq!(
                (begun.drained, begun.warnings.is_empty()),
                (true, !is_broken),
                "{:?}",
                begun.warnings
            );
            let ended = operator.ask(EndDrain).await.unwrap();
            assert_eq!(
                (ended.drained, ended.warnings.is_empty()),
                (false, !is_broken),
                "{:?}",
                ended.warnings
            );
        }
    }

    /// Goal: a node asks only addresses that its operator configured, whatever a request names, and no more
    /// than the limit.
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
            let checked = operator.limits().check_nodes(&nodes);
            assert_eq!(checked.as_ref().err().map(AdminError::kind), kind, "{nodes:?}: {checked:?}");
            if let Some(kind) = kind {
                assert_eq!(operator.ask(Examine { nodes: nodes.clone() }).await.unwrap_err().kind(), kind);
                let start_over = Some(StartOver { nodes });
                let over = Addition { start_over, ..Addition::default() };
                assert_eq!(operator.add(name("n"), over).await.unwrap_err().kind(), kind);
            }
        }
    }

    /// Goal: a token for some namespaces cannot fill the store, whose records stay forever. Method: as many
    /// records as the token may have, and as many namespaces as a store may have.
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

    /// Goal: requests at the same time exceed no limit together. Method: they begin while one more namespace
    /// is allowed, on a store that is slow to list.
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

    /// Goal: a token for some namespaces learns nothing about other records. Method: unreadable records of
    /// others, in each list.
    #[tokio::test]
    async fn a_token_for_some_namespaces_sees_no_other_records() {
        let store = Arc::new(MemoryStore::new());
        for key in ["namespaces/secret-plan", "audit/03"] {
            let _ = store.compare_and_set(&Key::new(key).unwrap(), Expected::Absent, b"{").await.unwrap();
        }
        let (server, [ops, team]) = server(Arc::clone(&store));
        let operator = |identity| Operator::new(&server, identity, "10.0.0.9".to_owned()).unwrap();
        let segment = || addition(json!({"scheme": "segment"}));
        let added = operator(&team).add(name("a-1"), segment()).await.unwrap();
        let dropped = operator(&team).drop_namespace(name("a-1"), Required::Any).await.unwrap();
        assert_eq!([added.store, dropped.store], [OF_THIS_NODE; 2], "it may be a path");
        assert_eq!(operator(&ops).add(name("b-1"), segment()).await.unwrap().store, store.describe());
        let seen = async |identity| {
            let operator = operator(identity);
            let listed = operator.ask(ListNamespaces).await.unwrap();
            let log = operator.ask(ListChanges { limit: 100, namespace: Some(name("a-1")) }).await.unwrap();
            serde_json::to_string(&(listed, log)).unwrap()
        };
        assert!(seen(&ops).await.contains("secret-plan"));
        let own = seen(&team).await;
        assert!(own.contains("a-1") && !own.contains("secret") && !own.contains("audit/"), "{own}");
        let log = serde_json::to_string(
            &operator(&ops).ask(ListChanges { limit: 100, namespace: None }).await.unwrap(),
        )
        .unwrap();
        assert!(log.contains("audit/03"), "{log}");
    }
}
