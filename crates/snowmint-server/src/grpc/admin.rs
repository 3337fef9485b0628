//! The calls of `snowmint.v1.Admin`. Each request is read here and run by an [`Operator`], as over HTTP.

use bytes::Bytes;
use serde_json::{Map, Value};
use snowmint::error::Snippet;
use snowmint_cluster::NamespaceName;
use snowmint_cluster::namespace::registry::Required;
use tokio::time::{Instant, timeout_at};

use super::message::Answer;
use super::{Deadline, Failure, decode, messages};
use crate::access::{Identity, Right};
use crate::access_log;
use crate::admin::AdminError;
use crate::admin::audit::LogLine;
use crate::admin::namespaces::{Addition, Change, NamespaceView, Settings, StartOver};
use crate::admin::workers::{Force, Released, WorkerView};
use crate::limits::admin::MAX_CHANGES;
use crate::limits::grpc::MAX_PAGE;
use crate::mint::MintError;
use crate::operator::{ChangedHere, Drain, DrainState, LogLevel, Operator, Scope, authorize};
use crate::state::ServerState;
use crate::status::ErrorKind;

/// The path of every call of the service starts with it.
pub(super) const SERVICE: &str = "/snowmint.v1.Admin/";
/// The default number of changes in a list of the audit log.
const CHANGES: usize = 50;

/// Defines [`AdminMethod`].
macro_rules! methods {
    ($($name:ident),*) => {
        /// The calls of the service.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum AdminMethod {
            $($name,)*
        }

        impl AdminMethod {
            /// Returns the call of a path below [`SERVICE`].
            pub(super) fn of(name: &str) -> Result<Self, Failure> {
                match name {
                    $(stringify!($name) => Ok(Self::$name),)*
                    _ => {
                        let known = [$(stringify!($name)),*].join(", ");
                        let text = format!("unknown method {}: expected {SERVICE} with {known}", Snippet::of(name));
                        Err(Failure::new(ErrorKind::Unknown, text))
                    }
                }
            }
        }
    };
}

methods!(
    ListNamespaces,
    GetNamespace,
    AddNamespace,
    SetNamespace,
    DropNamespace,
    ListWorkers,
    ReleaseWorker,
    Doctor,
    Audit,
    GetDrain,
    SetDrain,
    GetLogLevel,
    SetLogLevel
);

impl AdminMethod {
    /// Returns whether a call of this method changes something, so that it may take place after its deadline.
    pub(super) const fn changes(self) -> bool {
        matches!(
            self,
            Self::AddNamespace
                | Self::SetNamespace
                | Self::DropNamespace
                | Self::ReleaseWorker
                | Self::SetDrain
                | Self::SetLogLevel
        )
    }
}

/// Checks that a client may administer something, before its message is read.
pub(super) fn check(identity: &Identity) -> Result<(), Failure> {
    Ok(identity.may_somewhere(Right::Admin)?)
}

/// Answers a call.
pub(super) async fn answer(
    server: &ServerState,
    method: AdminMethod,
    identity: &Identity,
    message: &Bytes,
    deadline: Deadline,
) -> Result<Answer, Failure> {
    deadline.check(Instant::now())?;
    let answering = answer_at_leisure(server, method, identity, message);
    let Some(at) = deadline.0 else { return answering.await };
    timeout_at(at, answering).await.unwrap_or_else(|_| {
        Err(if method.changes() {
            let text = "the deadline of the call has passed; the change may still take place: check the current state before \
                        you retry";
            Failure::new(ErrorKind::OutcomeUnknown, text)
        } else {
            Failure::expired()
        })
    })
}

async fn answer_at_leisure(
    server: &ServerState,
    method: AdminMethod,
    identity: &Identity,
    message: &Bytes,
) -> Result<Answer, Failure> {
    let allowed = |scope: Scope<'_>| -> Result<Operator<'_>, Failure> {
        authorize(identity, scope)?;
        Ok(Operator::new(server, identity, access_log::client())?)
    };
    match method {
        AdminMethod::ListNamespaces => {
            let operator = allowed(Scope::Own)?;
            list_namespaces(&operator, decode(message)?).await
        }
        AdminMethod::GetNamespace => {
            let messages::GetNamespaceRequest { name } = decode(message)?;
            let (name, operator) = of_namespace(&name, allowed)?;
            let (view, edition) = operator.namespace(name).await?;
            let namespace = Some(record(view));
            Ok(Answer::of_message(&messages::GetNamespaceResponse { namespace, edition }))
        }
        AdminMethod::AddNamespace => {
            let request: messages::AddNamespaceRequest = decode(message)?;
            let (name, operator) = of_namespace(&request.name, allowed)?;
            let required = required_to_add(&request)?;
            let start_over = request.start_over.map(|messages::StartOver { nodes }| StartOver { nodes });
            let settings = settings(request.settings.unwrap_or_default());
            let added = operator
                .add(name, Addition { settings, start_over, required, ..Addition::default() })
                .await?;
            Ok(Answer::of_message(&changed(added)))
        }
        AdminMethod::SetNamespace => {
            let request: messages::SetNamespaceRequest = decode(message)?;
            let (name, operator) = of_namespace(&request.name, allowed)?;
            let settings = settings_to_set(request.settings.unwrap_or_default(), request.remove)?;
            let required = request.edition.map_or(Required::Any, Required::Edition);
            let set = operator.set(name, Change { settings, required, ..Change::default() }).await?;
            Ok(Answer::of_message(&changed(set)))
        }
        AdminMethod::DropNamespace => {
            let messages::DropNamespaceRequest { name, edition } = decode(message)?;
            let (name, operator) = of_namespace(&name, allowed)?;
            let required = edition.map_or(Required::Any, Required::Edition);
            Ok(Answer::of_message(&changed(operator.drop_namespace(name, required).await?)))
        }
        AdminMethod::ListWorkers => {
            let operator = allowed(Scope::Everything)?;
            let messages::ListWorkersRequest {} = decode(message)?;
            let listed = operator.workers().await?;
            let workers = listed.workers.into_iter().map(worker).collect();
            Ok(Answer::of_message(&messages::ListWorkersResponse { workers, warnings: listed.warnings }))
        }
        AdminMethod::ReleaseWorker => {
            let operator = allowed(Scope::Everything)?;
            release_worker(&operator, decode(message)?).await
        }
        AdminMethod::Doctor => {
            let operator = allowed(Scope::Everything)?;
            let messages::DoctorRequest { nodes } = decode(message)?;
            let findings = operator.doctor(nodes).await?.findings.into_iter().map(|finding| {
                messages::Finding { check: finding.check.into_owned(), ok: finding.ok, text: finding.text }
            });
            Ok(Answer::of_message(&messages::DoctorResponse { findings: findings.collect() }))
        }
        AdminMethod::Audit => {
            let messages::AuditRequest { limit, namespace } = decode(message)?;
            let (namespace, operator) = match namespace {
                None => (None, allowed(Scope::Everything)?),
                Some(name) => {
                    let (name, operator) = of_namespace(&name, allowed)?;
                    (Some(name), operator)
                }
            };
            let limit = in_range("limit", limit, CHANGES, MAX_CHANGES)?;
            let log = operator.audit(limit, namespace).await?;
            let changes = log.changes.into_iter().map(audited).collect();
            Ok(Answer::of_message(&messages::AuditResponse { changes, warnings: log.warnings }))
        }
        AdminMethod::GetDrain => {
            let operator = allowed(Scope::Everything)?;
            let messages::GetDrainRequest {} = decode(message)?;
            Ok(Answer::of_message(&drain_state(operator.drained())))
        }
        AdminMethod::SetDrain => {
            let operator = allowed(Scope::Everything)?;
            let messages::SetDrainRequest { drained } = decode(message)?;
            let drained = operator.drain(if drained { Drain::Begin } else { Drain::End }).await;
            Ok(Answer::of_message(&drain_state(drained)))
        }
        AdminMethod::GetLogLevel => {
            let operator = allowed(Scope::Everything)?;
            let messages::GetLogLevelRequest {} = decode(message)?;
            Ok(Answer::of_message(&log_level(operator.log_level()?)))
        }
        AdminMethod::SetLogLevel => {
            let operator = allowed(Scope::Everything)?;
            let messages::SetLogLevelRequest { level } = decode(message)?;
            Ok(Answer::of_message(&log_level(operator.set_log_level(level.as_deref()).await?)))
        }
    }
}

async fn list_namespaces(
    operator: &Operator<'_>,
    request: messages::ListNamespacesRequest,
) -> Result<Answer, Failure> {
    let messages::ListNamespacesRequest { page_size, page_token } = request;
    let size = in_range("page size", page_size, MAX_PAGE, MAX_PAGE)?;
    let all = operator.namespaces().await?;
    // A page token is the last name of the previous page, which may be gone since.
    let after = all.namespaces.into_iter().filter(|it| it.name > page_token);
    let mut page: Vec<_> = after.take(size + 1).collect();
    let is_last = page.len() <= size;
    page.truncate(size);
    let next = page.last().filter(|_| !is_last).map_or_else(String::new, |last| last.name.clone());
    Ok(Answer::of_message(&messages::ListNamespacesResponse {
        namespaces: page.into_iter().map(record).collect(),
        next_page_token: next,
        warnings: all.warnings,
    }))
}

fn required_to_add(request: &messages::AddNamespaceRequest) -> Result<Required, Failure> {
    match (request.edition, request.must_be_new) {
        (None, false) => Ok(Required::Any),
        (None, true) => Ok(Required::Absent),
        (Some(edition), false) => Ok(Required::Edition(edition)),
        (Some(_), true) => Err(bad("edition and must_be_new exclude each other: omit one of them")),
    }
}

/// Returns the settings of a change; `null` removes one.
fn settings_to_set(set: messages::NamespaceSettings, remove: Vec<String>) -> Result<Settings, Failure> {
    let mut settings = settings(set);
    for removed in remove {
        if settings.insert(removed.clone(), Value::Null).is_some() {
            let text = format!("setting {} is both set and removed: omit one", Snippet::of(&removed));
            return Err(bad(text));
        }
    }
    Ok(settings)
}

async fn release_worker(
    operator: &Operator<'_>,
    request: messages::ReleaseWorkerRequest,
) -> Result<Answer, Failure> {
    let messages::ReleaseWorkerRequest { worker, pool, force, holder } = request;
    let force = Force::requested(force, holder)?;
    let answer = operator.release(worker, pool, force).await?;
    let (outcome, holder, free_from) = match answer.released {
        Released::Free { ended, .. } => ("free", String::new(), ended),
        Released::Taken { holder, free_from, .. } => ("taken", holder, free_from),
    };
    let (outcome, warnings) = (outcome.to_owned(), answer.warnings);
    Ok(Answer::of_message(&messages::ReleaseWorkerResponse { outcome, holder, free_from, warnings }))
}

fn bad(text: impl Into<String>) -> Failure {
    Failure::new(ErrorKind::BadRequest, text)
}

/// Returns the operator for a namespace. A client that may not use the name does not learn whether it is valid.
fn of_namespace<'a>(
    name: &str,
    allowed: impl FnOnce(Scope<'_>) -> Result<Operator<'a>, Failure>,
) -> Result<(NamespaceName, Operator<'a>), Failure> {
    if let Ok(name) = NamespaceName::new(name) {
        let operator = allowed(Scope::Namespace(&name))?;
        Ok((name, operator))
    } else {
        allowed(Scope::Everything)?;
        Err(MintError::BadNamespace { name: Snippet::of(name) }.into())
    }
}

fn in_range(what: &str, given: u32, default: usize, most: usize) -> Result<usize, Failure> {
    match usize::try_from(given) {
        Ok(0) => Ok(default),
        Ok(number) if number <= most => Ok(number),
        _ => Err(bad(format!("invalid {what} {given}: expected 1 to {most}"))),
    }
}

/// Defines the conversions between the message and the form of a namespace file, in both directions.
macro_rules! settings {
    (texts: $($text:ident),*; numbers: $($number:ident),*) => {
        /// Returns the settings that a message has.
        fn settings(message: messages::NamespaceSettings) -> Settings {
            let mut settings = Map::new();
            let mut set = |name: &str, value: Option<Value>| {
                if let Some(value) = value {
                    settings.insert(name.to_owned(), value);
                }
            };
            $(set(stringify!($text), message.$text.map(Value::from));)*
            $(set(stringify!($number), message.$number.map(Value::from));)*
            // An operator rejects them with the reason.
            set("sources", (!message.sources.is_empty()).then(|| Value::from(message.sources)));
            settings
        }

        /// Returns the message with these settings.
        fn settings_message(settings: &Settings) -> messages::NamespaceSettings {
            let text = |name: &str| settings.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
            let number = |name: &str| settings.get(name).and_then(Value::as_u64);
            let sources = settings.get("sources").and_then(Value::as_array).into_iter().flatten();
            messages::NamespaceSettings {
                $($text: text(stringify!($text)),)*
                $($number: number(stringify!($number)),)*
                sources: sources.filter_map(|it| it.as_str().map(ToOwned::to_owned)).collect(),
            }
        }
    };
}

settings!(
    texts: scheme, layout, rule, sequence_start, mode, stripe, reset, text, time_zone, hide, hide_check, description, owner;
    numbers: start, maximum, size_min, size_max, series
);

fn record(view: NamespaceView) -> messages::NamespaceRecord {
    // Settings are always an object.
    let settings = view.settings.and_then(|fields| match serde_json::to_value(fields) {
        Ok(Value::Object(settings)) => Some(settings_message(&settings)),
        _ => None,
    });
    messages::NamespaceRecord {
        name: view.name,
        state: view.state.as_str().to_owned(),
        dropped: view.dropped,
        reserved_to: view.reserved_to,
        unreadable: view.unreadable,
        settings,
    }
}

fn changed(ChangedHere { changed, served_here }: ChangedHere) -> messages::NamespaceChange {
    messages::NamespaceChange {
        namespace: Some(record(changed.namespace)),
        store: changed.store,
        edition: changed.edition,
        resumed_above: changed.resumed_above,
        warnings: changed.warnings,
        served_here,
    }
}

fn drain_state(DrainState { holder, drained, warnings }: DrainState) -> messages::DrainState {
    messages::DrainState { drained, warnings, holder }
}

fn log_level(LogLevel { holder, level, configured, warnings }: LogLevel) -> messages::LogLevel {
    messages::LogLevel { level, configured, warnings, holder }
}

fn worker(view: WorkerView) -> messages::Worker {
    messages::Worker {
        pool: view.pool,
        worker: view.worker,
        state: view.state.as_str().to_owned(),
        holder: view.holder,
        until_unix_ms: view.until_unix_ms,
    }
}

fn audited(line: LogLine) -> messages::AuditedChange {
    match line {
        LogLine::Entry {
            at_unix_ms,
            who,
            from,
            action,
            subject,
            details,
            outcome,
            failed,
            possibly_made,
            ..
        } => messages::AuditedChange {
            at_unix_ms,
            who,
            from,
            action,
            subject,
            details,
            outcome: outcome.as_str().to_owned(),
            why: failed.or(possibly_made).unwrap_or_default(),
        },
        LogLine::Unreadable { record, unreadable } => messages::AuditedChange {
            subject: record,
            outcome: "unreadable".to_owned(),
            why: unreadable,
            ..messages::AuditedChange::default()
        },
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Self {
        Self { kind: error.kind(), retry_after: error.retry_after(), text: error.answer() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use snowmint::Layout;
    use snowmint_cluster::namespace::Fields;

    use super::*;
    use crate::operator::tests::{addition, name, server};

    /// Goal: a token for some namespaces cannot remove a setting that it may not set. Method: `remove` of settings that the
    /// operator of the store has set.
    #[tokio::test]
    async fn what_a_restricted_token_may_not_set_it_may_not_remove() {
        let (server, [ops, team]) = server(Arc::default());
        let operator = Operator::new(&server, &ops, "10.0.0.9".to_owned()).unwrap();
        let settings = json!({"scheme": "snowflake", "rule": "reject", "sequence_start": "random"});
        operator.add(name("a-1"), addition(settings)).await.unwrap();
        for (identity, setting, kind) in [
            (&team, "rule", Some(ErrorKind::Forbidden)),
            (&team, "sequence_start", Some(ErrorKind::Forbidden)),
            (&team, "description", None),
            (&ops, "rule", None),
        ] {
            let name = "a-1".to_owned();
            let remove = vec![setting.to_owned()];
            let request = messages::SetNamespaceRequest { name, remove, ..Default::default() };
            let message = Bytes::from(prost::Message::encode_to_vec(&request));
            let method = AdminMethod::SetNamespace;
            let answered = answer(&server, method, identity, &message, Deadline(None)).await;
            assert_eq!(answered.err().map(|failure| failure.kind), kind, "{setting}");
        }
    }

    /// Goal: a change of this node is made although the audit log cannot be written, and the answer says so. Method: a store
    /// whose record of the newest page is unreadable.
    #[tokio::test]
    async fn a_drain_without_an_entry_has_a_warning() {
        use snowmint_store::{Expected, Key, MemoryStore, Store as _};
        for is_broken in [false, true] {
            let store = Arc::new(MemoryStore::new());
            if is_broken {
                let page = Key::new("audit/page").unwrap();
                let _ = store.compare_and_set(&page, Expected::Absent, b"{").await.unwrap();
            }
            let (server, [ops, _]) = server(store);
            let message =
                Bytes::from(prost::Message::encode_to_vec(&messages::SetDrainRequest { drained: true }));
            answer(&server, AdminMethod::SetDrain, &ops, &message, Deadline(None)).await.unwrap();
            assert!(server.shutdown.is_drained());
            let operator = Operator::new(&server, &ops, "10.0.0.9".to_owned()).unwrap();
            let state = drain_state(operator.drain(Drain::End).await);
            assert_eq!(
                (state.drained, state.warnings.is_empty()),
                (false, !is_broken),
                "{:?}",
                state.warnings
            );
        }
    }

    /// Goal: a message has every setting, as a number or text like the file. Method: a value with every field, converted both
    /// ways, which no longer compiles if a field is added.
    #[test]
    fn a_message_has_every_setting() {
        let all = Fields {
            scheme: "segment".to_owned(),
            layout: Some(Layout::TWITTER),
            rule: "reject".parse().ok(),
            sequence_start: "zero".parse().ok(),
            mode: "cached".parse().ok(),
            stripe: "1/2".parse().ok(),
            sources: Some(vec!["1/1 sqlite:x".parse().unwrap()]),
            start: Some(1),
            maximum: Some(9),
            reset: "daily".parse().ok(),
            size_min: Some(1),
            size_max: Some(2),
            series: Some(1),
            text: "{number}".parse().ok(),
            time_zone: "Asia/Shanghai".parse().ok(),
            hide: "public".parse().ok(),
            hide_check: "0011223344556677".parse().ok(),
            description: Some("orders".to_owned()),
            owner: Some("team-web".to_owned()),
        };
        let Value::Object(all) = serde_json::to_value(all).unwrap() else { panic!("no object") };
        assert_eq!(settings(settings_message(&all)), all);
    }
}
