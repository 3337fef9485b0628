//! Records as Lease objects of a Kubernetes cluster, written by their `resourceVersion`.
//! The API server keeps them in its etcd; four plain HTTP calls are all that is needed.

mod connect;
mod error;
mod object;

use async_trait::async_trait;
use hyper::Method;

use self::connect::Link;
use self::error::{Answer, Failure};
use self::object::{Body, Lease, LeaseList};
use crate::error::Effect;
use crate::store::SkippedRecords;
use crate::{
    Expected, Key, OpenError, Revision, Store, StoreError, StoreErrorKind, Swap, UrlError, Versioned,
};

/// How many objects a list asks for at once.
const PAGE: usize = 500;
/// How often a list that took so long that the server forgot its beginning is begun again.
const RESTARTS: usize = 3;
const WRITE: &str = "compare_and_set";

/// A store of Lease objects (`coordination.k8s.io/v1`) in one namespace of a Kubernetes cluster.
///
/// Each record is a Lease of its own: `snowmint-workers-pool-7-` and a hash of the key, which stands in the annotation
/// `snowmint.dev/key`. The value is the annotation `snowmint.dev/record` (text) or `snowmint.dev/record-base64` (the
/// rest), and where it is JSON with a `holder`, that is the Lease's `holderIdentity`, so that `kubectl get leases -l
/// snowmint.dev/store=snowmint` shows who has which worker. These are not leases as Kubernetes' leader election has
/// them: nothing here looks at their duration. Do not delete them while a node runs.
///
/// **Revision**: the `resourceVersion`. Clients should take it for opaque; here it has to grow, so it is read as the
/// decimal number that it is on every server that keeps its objects in etcd, and anything else is an error.
///
/// **Writes**: a new record is a POST. A record is replaced by a merge PATCH that names the `resourceVersion`, which the
/// server refuses with 409 where it is another and with 404 where there is no object; a PUT would create one, since
/// Leases are created on update. A server does not write an object that stays the same, and leaves it its
/// `resourceVersion`: the annotation `snowmint.dev/replaced` names the version before, so that every write is one.
///
/// [`unix_ms`](Store::unix_ms) is the `Date` of an answer, which has whole seconds: half a second is added, for an error
/// of half a second at most.
///
/// A read is tried twice, for 6 s in all. A write is sent once and waits 5 s for its answer.
///
/// # URL
///
/// `kubernetes:NAMESPACE?NAME=VALUE&...`. In a pod, `kubernetes:` alone does: the server's address comes from the
/// environment; namespace, token and authority from the files that Kubernetes mounts. Outside:
///
/// | parameter | meaning |
/// |---|---|
/// | `server` | `https://HOST:PORT` of the API server, or `http://` of a `kubectl proxy` |
/// | `token_file` | a file with a token; read anew for each call, since Kubernetes replaces tokens |
/// | `ca` | a PEM file with the authorities to trust in place of the system's |
/// | `cert`, `key` | PEM files with a client certificate and its key |
/// | `prefix` | what the names of the objects begin with and what they are labelled with; `snowmint` if not said |
///
/// The account needs a role in the namespace with the verbs `get`, `list`, `create` and `patch` on `leases`.
///
/// # How it is tested
///
/// Against a small server that speaks this API with the semantics of `resourceVersion`, in `tests/kubernetes`; no real
/// API server installs from the registries that the project builds from.
///
/// # Cancel safety
///
/// A dropped [`compare_and_set`](Store::compare_and_set) may still write if it was sent.
#[derive(Debug)]
pub struct KubernetesStore {
    link: Link,
    prefix: String,
    /// `/apis/coordination.k8s.io/v1/namespaces/NAMESPACE/leases`
    path: String,
    name: String,
    skipped: SkippedRecords,
}

impl KubernetesStore {
    /// Takes the URL apart, reads the files it names, and sees whether the API server answers.
    ///
    /// # Errors
    ///
    /// - [`OpenError::Url`]: a mistake in the URL, a file it names cannot be read, or `kubernetes:` outside a pod.
    /// - [`OpenError::Store`], [`StoreErrorKind::Unavailable`]: the server does not answer; a later call may succeed.
    /// - [`OpenError::Store`], [`StoreErrorKind::Other`]: no right to list leases in the namespace.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let settings = connect::settings(url)?;
        let name = format!("kubernetes:{}?server={}", settings.namespace, settings.link.server());
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", settings.namespace);
        let store = Self {
            link: settings.link,
            prefix: settings.prefix,
            path,
            name,
            skipped: SkippedRecords::default(),
        };
        store.tell_time("open").await?;
        Ok(store)
    }

    fn error(&self, operation: &'static str, effect: Effect, failure: &Failure) -> StoreError {
        error::store_error(&self.name, operation, effect, failure)
    }

    fn strange(&self, operation: &'static str, found: impl Into<String>) -> StoreError {
        StoreError::new(StoreErrorKind::Corrupt, operation, &*self.name, found.into())
    }

    async fn get(&self, operation: &'static str, path_and_query: &str) -> Result<Answer, StoreError> {
        let answer = self.link.read(path_and_query).await;
        answer.map_err(|failure| self.error(operation, Effect::Reads, &failure))
    }

    fn refused(&self, operation: &'static str, effect: Effect, answer: &Answer) -> StoreError {
        error::refused(&self.name, operation, effect, answer)
    }

    /// The server's time in unix milliseconds, from a question that every account with a use for the store may ask.
    async fn tell_time(&self, operation: &'static str) -> Result<u64, StoreError> {
        let answer = self.get(operation, &format!("{}?limit=1&{}", self.path, self.selector())).await?;
        match answer.status {
            200 => answer
                .unix_ms()
                .ok_or_else(|| self.strange(operation, "the server tells no Date; is this an API server?")),
            _ => Err(self.refused(operation, Effect::Reads, &answer)),
        }
    }

    fn selector(&self) -> String {
        format!("labelSelector={}", connect::escape(&format!("{}={}", object::STORE, self.prefix)))
    }

    fn object_name(&self, key: &Key) -> String {
        object::object_name(&self.prefix, key)
    }

    /// Takes a Lease for a record, if it is one.
    fn record(&self, operation: &'static str, lease: Lease) -> Result<(Key, Versioned), StoreError> {
        let (key, record) = lease.into_record().map_err(|found| self.strange(operation, found))?;
        Ok((key, record))
    }

    /// One page after the other; `None` when the server no longer knows where the last one ended.
    async fn list_once(&self) -> Result<Option<Vec<Lease>>, StoreError> {
        const OPERATION: &str = "list";
        let (mut leases, mut next) = (Vec::new(), String::new());
        loop {
            let query = format!("{}?limit={PAGE}&{}{next}", self.path, self.selector());
            let answer = self.get(OPERATION, &query).await?;
            match answer.status {
                200 => {}
                410 if !next.is_empty() => return Ok(None),
                _ => return Err(self.refused(OPERATION, Effect::Reads, &answer)),
            }
            let page: LeaseList = answer.json().map_err(|found| self.strange(OPERATION, found))?;
            leases.extend(page.items);
            match page.metadata.next.filter(|it| !it.is_empty()) {
                Some(token) => next = format!("&continue={}", connect::escape(&token)),
                None => return Ok(Some(leases)),
            }
        }
    }

    fn written(&self, answer: &Answer) -> Result<Swap, StoreError> {
        let lease = answer.json::<Lease>().and_then(Lease::into_record);
        match lease {
            Ok((_, record)) => Ok(Swap::Done(record.revision)),
            Err(found) => {
                let found = format!("the server took the write and answered something else: {found}");
                Err(StoreError::new(StoreErrorKind::OutcomeUnknown, WRITE, &*self.name, found))
            }
        }
    }
}

#[async_trait]
impl Store for KubernetesStore {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        const OPERATION: &str = "load";
        // Without a resourceVersion in the query the server reads from etcd, by quorum.
        let answer = self.get(OPERATION, &format!("{}/{}", self.path, self.object_name(key))).await?;
        match answer.status {
            200 => {}
            404 if answer.is_about_a_lease("NotFound") => return Ok(None),
            _ => return Err(self.refused(OPERATION, Effect::Reads, &answer)),
        }
        let lease = answer.json().map_err(|found| self.strange(OPERATION, found))?;
        let (found, record) = self.record(OPERATION, lease)?;
        if found == *key {
            return Ok(Some(record));
        }
        Err(self.strange(OPERATION, format!("{key} and {found} have the same name; use another key")))
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        let (name, body) = (self.object_name(key), Body { prefix: &self.prefix, key, value });
        let answer = match expected {
            Expected::Absent => self.link.write(Method::POST, &self.path, &body.create(&name)).await,
            // To the server, 0 means "whatever is there".
            Expected::Revision(Revision(0)) => return Ok(Swap::Conflict),
            Expected::Revision(revision) => {
                self.link
                    .write(Method::PATCH, &format!("{}/{name}", self.path), &body.replace(revision))
                    .await
            }
        };
        let answer = answer.map_err(|failure| self.error(WRITE, Effect::Writes, &failure))?;
        match (answer.status, expected) {
            (200 | 201, _) => self.written(&answer),
            // Quotas have conflicts of their own, hence the question what it is about.
            (409, Expected::Absent) if answer.is_about_a_lease("AlreadyExists") => Ok(Swap::Conflict),
            (409, Expected::Revision(_)) if answer.is_about_a_lease("Conflict") => Ok(Swap::Conflict),
            (404, Expected::Revision(_)) if answer.is_about_a_lease("NotFound") => Ok(Swap::Conflict),
            _ => Err(self.refused(WRITE, Effect::Writes, &answer)),
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        for _ in 0..RESTARTS {
            let Some(leases) = self.list_once().await? else {
                continue;
            };
            let mut records = Vec::with_capacity(leases.len());
            for lease in leases {
                // That of a server is no fault of one Lease.
                lease.revision().map_err(|found| self.strange("list", found))?;
                let name = lease.name().to_owned();
                match lease.into_record() {
                    Ok(record) => records.push(record),
                    Err(why) => self.skipped.note(&name, &why),
                }
            }
            records.retain(|(key, _)| key.as_str().starts_with(prefix));
            records.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            return Ok(records);
        }
        let slow = "each page took so long that the server forgot the one before";
        Err(StoreError::new(StoreErrorKind::Unavailable, "list", &*self.name, slow))
    }

    async fn unix_ms(&self) -> Result<Option<u64>, StoreError> {
        self.tell_time("unix_ms").await.map(Some)
    }

    fn skipped(&self) -> Vec<String> {
        self.skipped.all()
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}

/// What a store that this URL names has in Kubernetes.
pub(crate) fn schema(url: &str) -> Result<String, UrlError> {
    let (namespace, mut location) = connect::location(url)?;
    let prefix = connect::prefix(&mut location)?;
    let namespace = namespace.unwrap_or_else(|| "NAMESPACE".to_owned());
    Ok(format!(
        "# Lease objects, created with the first record: {prefix}-KEY-HASH, labelled {store}={prefix}.\n\
         # Rights of the account of the nodes, to be bound to it by a RoleBinding:\n\
         apiVersion: rbac.authorization.k8s.io/v1\n\
         kind: Role\n\
         metadata:\n\
         \x20 name: {prefix}\n\
         \x20 namespace: {namespace}\n\
         rules:\n\
         - apiGroups: [\"coordination.k8s.io\"]\n\
         \x20 resources: [\"leases\"]\n\
         \x20 verbs: [\"get\", \"list\", \"create\", \"patch\"]\n",
        store = object::STORE
    ))
}
