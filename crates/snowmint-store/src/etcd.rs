//! Records as keys of an etcd cluster, read and written by its v3 API.
//! A write is one transaction that compares the key's `mod_revision`; etcd counts it up with every write of any key.

mod connect;
mod error;
/// What `build.rs` makes of `proto/etcd.proto`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::pedantic, reason = "made by a program")]
mod wire {
    tonic::include_proto!("etcdserverpb");
}

use async_trait::async_trait;

use self::connect::Link;
use self::error::Failure;
use self::wire::compare::{CompareResult, CompareTarget, TargetUnion};
use self::wire::request_op::Request as Operation;
use crate::error::Effect;
use crate::store::SkippedRecords;
use crate::{
    Expected, Key, OpenError, Revision, Store, StoreError, StoreErrorKind, Swap, UrlError, Versioned,
};

/// How many records a list asks for at once: at 64 KiB each they fit [`connect::LARGEST_ANSWER`].
const PAGE: usize = 500;

/// A store in an etcd cluster, version 3.2 or later.
///
/// The record of the key `workers/pool/7` is the key `snowmint/workers/pool/7`, so that `etcdctl get --prefix
/// snowmint/` shows all of them. Its revision is etcd's `mod_revision`.
///
/// Reads are linearizable (never `serializable`), and so go through the leader. One connection to each member is
/// opened when it is first needed; calls go to one member and move on to the next when it fails. etcd tells no time,
/// so [`Store::unix_ms`] is `None`.
///
/// A read is tried on the members in turn for up to 6 s. A write is sent once and waits 5 s for its answer: after that
/// it is [`StoreErrorKind::OutcomeUnknown`], while a write for which no member could be connected to is
/// [`StoreErrorKind::Unavailable`].
///
/// # URL
///
/// `etcd://USER:PASSWORD@HOST:PORT,HOST,HOST?NAME=VALUE&...`, with port 2379 where none is said. `etcds://` is the same
/// over TLS.
///
/// | parameter | meaning |
/// |---|---|
/// | `prefix` | what all keys begin with, `snowmint/` if not said; a `/` at its end may be left out |
/// | `password_file` | a file whose first line is the password |
/// | `tls` | `true`: over TLS |
/// | `ca` | a PEM file with the authorities to trust in place of the system's; implies TLS |
/// | `cert`, `key` | PEM files with a client certificate and its key; imply TLS |
///
/// # Cancel safety
///
/// A dropped [`compare_and_set`](Store::compare_and_set) may still write until etcd has worked off its request.
#[derive(Debug)]
pub struct EtcdStore {
    link: Link,
    prefix: String,
    name: String,
    skipped: SkippedRecords,
}

impl EtcdStore {
    /// Takes the URL apart, reads the files it names, and sees whether the cluster answers.
    ///
    /// # Errors
    ///
    /// - [`OpenError::Url`]: a mistake in the URL, or a file it names cannot be read.
    /// - [`OpenError::Store`], [`StoreErrorKind::Unavailable`]: no member answers; a later call may succeed.
    /// - [`OpenError::Store`], [`StoreErrorKind::Other`]: wrong password, or no right to read the keys.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let (link, prefix) = connect::settings(url)?;
        let name = format!("etcd://{}/{prefix}", link.shown_hosts());
        let store = Self { link, prefix, name, skipped: SkippedRecords::default() };
        let probe = wire::RangeRequest { limit: 1, ..store.under_prefix("") };
        store.range("open", &probe).await?;
        Ok(store)
    }

    fn key(&self, key: &Key) -> Vec<u8> {
        format!("{}{key}", self.prefix).into_bytes()
    }

    /// Asks for all keys with the prefix.
    fn under_prefix(&self, prefix: &str) -> wire::RangeRequest {
        let key = format!("{}{prefix}", self.prefix).into_bytes();
        // UTF-8 has no byte 0xff, and our own prefix is not empty, so the last byte can always grow by one.
        let mut range_end = key.clone();
        if let Some(last) = range_end.last_mut() {
            *last += 1;
        }
        wire::RangeRequest { key, range_end, limit: 0 }
    }

    fn error(&self, operation: &'static str, effect: Effect, failure: &Failure) -> StoreError {
        error::store_error(&self.name, operation, effect, failure)
    }

    async fn range(
        &self,
        operation: &'static str,
        request: &wire::RangeRequest,
    ) -> Result<wire::RangeResponse, StoreError> {
        let answer = self.link.range(request).await;
        answer.map_err(|failure| self.error(operation, Effect::Reads, &failure))
    }

    async fn find(&self, operation: &'static str, key: &Key) -> Result<Option<Versioned>, StoreError> {
        let request = wire::RangeRequest { key: self.key(key), range_end: Vec::new(), limit: 0 };
        let found = self.range(operation, &request).await?.kvs.into_iter().next();
        found.map(|it| self.record(operation, it)).transpose()
    }

    fn record(&self, operation: &'static str, found: wire::KeyValue) -> Result<Versioned, StoreError> {
        let revision = self.revision(operation, found.mod_revision)?;
        Ok(Versioned { value: found.value, revision })
    }

    fn revision(&self, operation: &'static str, found: i64) -> Result<Revision, StoreError> {
        match u64::try_from(found) {
            Ok(revision) if revision > 0 => Ok(Revision(revision)),
            _ => Err(self.strange(operation, format!("etcd answers with revision {found}"))),
        }
    }

    fn strange(&self, operation: &'static str, found: String) -> StoreError {
        StoreError::new(StoreErrorKind::Corrupt, operation, &*self.name, found)
    }

    /// What a write that etcd refused for want of space has done.
    ///
    /// etcd checks its quota before it takes a write up and again after it has carried it out (`quotaApplierV3`):
    /// the write that crosses the limit is refused *and* written. Its fate is settled by the time of the answer, so
    /// a read tells.
    async fn refused_for_space(&self, key: &Key, expected: Expected, refusal: StoreError) -> StoreError {
        let unknown = |why: String| {
            StoreError::new(StoreErrorKind::OutcomeUnknown, refusal.operation(), &*self.name, why)
        };
        match self.find(refusal.operation(), key).await {
            Ok(found)
                if found.as_ref().map_or(Expected::Absent, |it| Expected::Revision(it.revision))
                    == expected =>
            {
                refusal
            }
            Ok(_) => unknown("etcd ran out of space at this write, which may have got in".to_owned()),
            Err(error) => unknown(format!("etcd ran out of space at this write, and then: {error}")),
        }
    }
}

#[async_trait]
impl Store for EtcdStore {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        self.find("load", key).await
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        const OPERATION: &str = "compare_and_set";
        let Some(before) = mod_revision(expected) else {
            return Ok(Swap::Conflict);
        };
        match self.link.transact(&transaction(self.key(key), before, value)).await {
            Ok(answer) if !answer.succeeded => Ok(Swap::Conflict),
            Ok(answer) => {
                let after = answer.header.unwrap_or_default().revision;
                let strange = |_| error::written_without_revision(&self.name, OPERATION, after);
                Ok(Swap::Done(self.revision(OPERATION, after).map_err(strange)?))
            }
            Err(failure) => {
                let error = self.error(OPERATION, Effect::Writes, &failure);
                if error.kind() != StoreErrorKind::Full {
                    return Err(error);
                }
                Err(self.refused_for_space(key, expected, error).await)
            }
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        const OPERATION: &str = "list";
        let limit = i64::try_from(PAGE).unwrap_or(i64::MAX);
        let mut request = wire::RangeRequest { limit, ..self.under_prefix(prefix) };
        let mut records = Vec::new();
        loop {
            let page = self.range(OPERATION, &request).await?;
            if let (true, Some(last)) = (page.more, page.kvs.last()) {
                // The least key above the last one. Nothing is deleted, so pages of different instants fit together.
                request.key.clone_from(&last.key);
                request.key.push(0);
            }
            for found in page.kvs {
                let key = str::from_utf8(&found.key).ok().and_then(|it| it.strip_prefix(&self.prefix));
                let Some(key) = key.and_then(|it| Key::new(it).ok()) else {
                    let found = String::from_utf8_lossy(&found.key);
                    self.skipped.note(
                        &found,
                        "it is no key of Snowmint, so another program writes under this prefix",
                    );
                    continue;
                };
                records.push((key, self.record(OPERATION, found)?));
            }
            if !page.more {
                return Ok(records);
            }
        }
    }

    fn skipped(&self) -> Vec<String> {
        self.skipped.all()
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}

/// What a store that this URL names has in etcd.
pub(crate) fn schema(url: &str) -> Result<String, UrlError> {
    let (_, prefix) = connect::settings(url)?;
    Ok(format!(
        "# Keys, created with the first record; none expires:\n\
         {prefix}KEY\n\
         # Rights of the user of the nodes:\n\
         etcdctl role add snowmint\n\
         etcdctl role grant-permission snowmint readwrite --prefix=true {prefix}\n\
         etcdctl user grant-role USER snowmint\n"
    ))
}

/// What etcd has to find; 0 is its word for "no such key".
///
/// `None` for a revision that no record here can have.
fn mod_revision(expected: Expected) -> Option<i64> {
    match expected {
        Expected::Absent => Some(0),
        Expected::Revision(Revision(revision)) => i64::try_from(revision).ok().filter(|it| *it > 0),
    }
}

fn transaction(key: Vec<u8>, before: i64, value: &[u8]) -> wire::TxnRequest {
    let compare = wire::Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: key.clone(),
        target_union: Some(TargetUnion::ModRevision(before)),
    };
    let put = Operation::RequestPut(wire::PutRequest { key, value: value.to_vec() });
    wire::TxnRequest { compare: vec![compare], success: vec![wire::RequestOp { request: Some(put) }] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_that_no_record_can_have_is_never_compared() {
        let revision = |it| mod_revision(Expected::Revision(Revision(it)));
        assert_eq!(mod_revision(Expected::Absent), Some(0));
        assert_eq!(revision(1), Some(1));
        assert_eq!(revision(i64::MAX as u64), Some(i64::MAX));
        // 0 would be taken for "absent".
        for none in [0, 1 << 63, u64::MAX] {
            assert_eq!(revision(none), None, "{none}");
        }
    }
}
