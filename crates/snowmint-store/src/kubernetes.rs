//! Records as Lease objects of a Kubernetes cluster, written by their `resourceVersion`.
//! The API server keeps them in its etcd; the store needs only four plain HTTP calls.

mod connect;
mod error;
mod lease_object;

use std::time::Duration;

use async_trait::async_trait;
use hyper::Method;

use self::connect::KubernetesClient;
use self::error::{ApiAnswer, KubernetesFailure};
use self::lease_object::{LeaseBody, LeaseList, LeaseObject};
use crate::error::Effect;
use crate::net::https::DATE_ERROR;
use crate::store::SkippedRecords;
use crate::{
    Expected, Key, OpenError, Revision, Store, StoreError, StoreErrorKind, Swap, UrlError, Versioned,
};

/// Number of objects in one page of a list.
const PAGE: usize = 500;
/// Number of times that a list starts over after the server has forgotten its beginning.
const RESTARTS: usize = 3;
const WRITE: &str = "compare_and_set";

/// A store of Lease objects (`coordination.k8s.io/v1`) in one namespace of a Kubernetes cluster.
///
/// Each record is a Lease, named `snowmint-workers-pool-7-` and a hash of the key. The annotation
/// `snowmint.dev/key` has the key. The annotation `snowmint.dev/record` has the value if it is text, else
/// `snowmint.dev/record-base64` has it. The `holder` of a JSON value is also the Lease's `holderIdentity`, so
/// `kubectl get leases -l snowmint.dev/store=snowmint` shows who holds which worker. These Leases are not
/// used for leader election, and their duration has no meaning. Do not delete them while a node runs.
///
/// **Revision**: the `resourceVersion`. The API calls it opaque; here it has to grow, so it is read as the
/// decimal number that every server with etcd uses, and anything else is an error.
///
/// **Writes**: a new record is a POST. A record is replaced by a merge PATCH that names the
/// `resourceVersion`. The server refuses it with 409 if the version differs, and with 404 if there is no
/// object; a PUT would create one, since Leases are created on update. A server does not write an object that
/// stays the same, and keeps its `resourceVersion`: the annotation `snowmint.dev/replaced` names the version
/// before, so every write changes the object.
///
/// [`unix_ms`](Store::unix_ms) is the `Date` of an answer plus half a second, since it has whole seconds:
/// [`clock_error`](Store::clock_error) is half a second.
///
/// A read is tried twice, for at most 6 s. A write waits 5 s for its answer. Within these limits, both wait
/// and try again if the server's flow control rejects them (429), as its `Retry-After` says. A refusal by a
/// server that is not ready, as while it starts, is temporary: it may not have read tokens and roles yet.
///
/// # URL
///
/// `kubernetes:NAMESPACE?NAME=VALUE&...`. In a pod, `kubernetes:` alone is enough: the server's address comes
/// from the environment; namespace, token and authority come from the files that Kubernetes mounts. Outside
/// of pods:
///
/// | parameter | meaning |
/// |---|---|
/// | `server` | `https://HOST:PORT` of the API server, or `http://` of a `kubectl proxy` |
/// | `token_file` | a file with a token; read for each call, since Kubernetes replaces tokens |
/// | `ca` | a PEM file with the authorities to trust instead of the system's |
/// | `cert`, `key` | PEM files with a client certificate and its key |
/// | `prefix` | prefix of the object names, and value of their label; default `snowmint` |
///
/// The account needs a role in the namespace with the verbs `get`, `list`, `create` and `patch` on `leases`.
///
/// # How it is tested
///
/// On every change against a small server in `tests/all/kubernetes` that implements this API with the
/// semantics of `resourceVersion`, and decodes objects as Go does. `./check kubernetes` builds real API
/// servers and runs `tests/all/kubernetes_cluster.rs` on them.
///
/// # Cancel safety
///
/// A dropped [`compare_and_set`](Store::compare_and_set) may still write if it was sent.
#[derive(Debug)]
pub struct KubernetesStore {
    link: KubernetesClient,
    prefix: String,
    /// `/apis/coordination.k8s.io/v1/namespaces/NAMESPACE/leases`
    path: String,
    name: String,
    skipped: SkippedRecords,
}

impl KubernetesStore {
    /// Parses the URL, reads the files that it names, and checks that the API server answers.
    ///
    /// # Errors
    ///
    /// - [`OpenError::Url`]: a mistake in the URL, a file that is not readable, or `kubernetes:` outside of a
    ///   pod.
    /// - [`OpenError::Store`], [`StoreErrorKind::Unavailable`]: the server does not answer; a retry may
    ///   succeed.
    /// - [`OpenError::Store`], [`StoreErrorKind::Other`]: no permission to list leases in the namespace.
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

    fn error(&self, operation: &'static str, effect: Effect, failure: &KubernetesFailure) -> StoreError {
        error::store_error(&self.name, operation, effect, failure)
    }

    fn invalid(&self, operation: &'static str, found: impl Into<String>) -> StoreError {
        StoreError::new(StoreErrorKind::Corrupt, operation, &*self.name, found.into())
    }

    async fn get(&self, operation: &'static str, path_and_query: &str) -> Result<ApiAnswer, StoreError> {
        let answer = self.link.read(path_and_query).await;
        answer.map_err(|failure| self.error(operation, Effect::Reads, &failure))
    }

    fn refused(&self, operation: &'static str, effect: Effect, answer: &ApiAnswer) -> StoreError {
        error::refused(&self.name, operation, effect, answer)
    }

    /// Returns the server's time in Unix milliseconds, from a call that every account of a store may make.
    async fn tell_time(&self, operation: &'static str) -> Result<u64, StoreError> {
        let answer = self.get(operation, &format!("{}?limit=1&{}", self.path, self.selector())).await?;
        match answer.status {
            200 => answer.unix_ms().ok_or_else(|| {
                self.invalid(operation, "the answer has no Date; check that this is an API server")
            }),
            _ => Err(self.refused(operation, Effect::Reads, &answer)),
        }
    }

    fn selector(&self) -> String {
        format!("labelSelector={}", connect::escape(&format!("{}={}", lease_object::STORE, self.prefix)))
    }

    fn object_name(&self, key: &Key) -> String {
        lease_object::object_name(&self.prefix, key)
    }

    /// Returns the key and the record in a Lease, or an error if it holds none.
    fn record(&self, operation: &'static str, lease: LeaseObject) -> Result<(Key, Versioned), StoreError> {
        let (key, record) = lease.into_record().map_err(|found| self.invalid(operation, found))?;
        Ok((key, record))
    }

    /// Reads one page after the other. Returns `None` if the server has forgotten where the last one ended.
    async fn list_once(&self) -> Result<Option<Vec<LeaseObject>>, StoreError> {
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
            let page: LeaseList = answer.json().map_err(|found| self.invalid(OPERATION, found))?;
            leases.extend(page.items);
            match page.metadata.next.filter(|it| !it.is_empty()) {
                Some(token) => next = format!("&continue={}", connect::escape(&token)),
                None => return Ok(Some(leases)),
            }
        }
    }

    fn written(&self, answer: &ApiAnswer) -> Result<Swap, StoreError> {
        let lease = answer.json::<LeaseObject>().and_then(LeaseObject::into_record);
        match lease {
            Ok((_, record)) => Ok(Swap::Done(record.revision)),
            Err(found) => {
                let found = format!("the server accepted the write, with an invalid answer: {found}");
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
        let lease = answer.json().map_err(|found| self.invalid(OPERATION, found))?;
        let (found, record) = self.record(OPERATION, lease)?;
        if found == *key {
            return Ok(Some(record));
        }
        Err(self.invalid(OPERATION, format!("{key} and {found} have the same object name; use another key")))
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        let (name, body) = (self.object_name(key), LeaseBody { prefix: &self.prefix, key, value });
        let answer = match expected {
            Expected::Absent => self.link.write(Method::POST, &self.path, &body.create(&name)).await,
            // The server reads 0 as "any version".
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
            // Quotas cause conflicts too, so check that this one is about a Lease.
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
                // An invalid version is a fault of the server, not of one Lease.
                lease.revision().map_err(|found| self.invalid("list", found))?;
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
        let slow = "each page took so long that the server forgot the one before; retry";
        Err(StoreError::new(StoreErrorKind::Unavailable, "list", &*self.name, slow))
    }

    async fn unix_ms(&self) -> Result<Option<u64>, StoreError> {
        self.tell_time("unix_ms").await.map(Some)
    }

    fn clock_error(&self) -> Duration {
        DATE_ERROR
    }

    fn skipped(&self) -> Vec<String> {
        self.skipped.all()
    }

    fn describe(&self) -> String {
        self.name.clone()
    }

    fn place(&self) -> String {
        format!("{}&prefix={}", self.name, self.prefix)
    }
}

/// Returns the objects and permissions that a store of this URL needs in Kubernetes.
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
        store = lease_object::STORE
    ))
}
