//! Records as hashes in Redis, each written by a script that compares and sets in one step.
//! Reads run as scripts too: only the answer of a server that accepts writes counts.

pub(crate) mod client;
pub(crate) mod connect;
mod error;
mod primary_history;
pub(crate) mod scripts;
pub(crate) mod server_info;

use std::num::NonZeroU64;
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;

use self::client::RedisClient;
use self::connect::{PARAMETERS, PREFIX};
use self::error::RedisFailure;
use self::scripts::ScriptCall;
use crate::error::Effect;
use crate::store::SkippedRecords;
use crate::store::add;
use crate::{
    Expected, Key, OpenError, Revision, Store, StoreError, StoreErrorKind, Swap, UrlError, Versioned,
};

const LIST: &str = "list";
/// Number of records that a list reads at once; at 64 KiB each they fit in the memory of both sides.
const PAGE: usize = 200;

/// Number of times that a list rebuilds its index before it gives up.
const REBUILDS: usize = 3;

/// A store in Redis, version 5 or later, or a server that speaks its protocol.
///
/// The record of the key `workers/pool/7` is the hash `{snowmint}:record:workers/pool/7` with the fields `r`,
/// its revision, and `v`, its value. The sorted set `{snowmint}:index` has the keys, `{snowmint}:count` the
/// number of keys, and `{snowmint}:fence` a count for fences. All share one hash tag, so a Redis Cluster
/// keeps them on one node. The store follows when that node changes, also to nodes that the URL does not
/// name. An index that was deleted is rebuilt.
///
/// # What Redis can lose
///
/// Redis acknowledges writes that it can lose later, always the newest. `may_lose` states how much that can
/// be; see [`Store::may_lose`]. It covers two losses:
///
/// - *A restart* loses what was not yet on disk: nothing with `appendfsync always`; up to 2 s of writes with
///   `everysec`, the default of Redis, and only if the machine fails, not the process. With `appendfsync no`,
///   or during rewrites with `no-appendfsync-on-rewrite yes`, it is about 30 s on Linux. The store refuses a
///   server whose settings lose more than `may_lose`, and one whose disk hangs: with `everysec`, Redis then
///   acknowledges without a sync. A replica that has synced rewrites its file first: until that is done, a
///   restart loses everything since before the sync.
/// - *A failover* to a replica (by Sentinel, a cluster, or a cloud) loses what the replica had not received,
///   and everything that the old primary acknowledges until it learns that it was replaced. Name all servers
///   in the URL: a node that reaches them notices a second primary within 1 s, or half of `may_lose` if that
///   is shorter. For nodes that do not, set `min-replicas-to-write` to the number of replicas and
///   `min-replicas-max-lag N` on every server: a primary without one of its replicas then refuses writes, and
///   reads of this store, after N s and a heartbeat, so `may_lose` has to be N + 2 s.
///
/// With `wait_replicas=N` every write waits until N replicas have it, and every read until N replicas have
/// everything that it saw. That reduces the loss and does not exclude it: N has to be the number of all
/// replicas, or the failover has to choose the most recent one.
///
/// # What is refused
///
/// A server is refused when it is opened, and within 1 s after a change:
///
/// - *Without an append-only file* (`appendonly no`), since it would forget everything at its next restart;
///   accepted with `durable=no`.
/// - *With an eviction policy* that may delete records (`maxmemory-policy allkeys-*` with `maxmemory`).
/// - *A replica*, since it would answer with old records. Every read starts with a write that changes
///   nothing, so a demoted primary refuses it even on an existing connection.
/// - *Two servers of the URL that both accept writes*, until one of them follows the other. A Redis Cluster
///   is exempt, and so is an old primary that comes back restarted while this store uses its successor.
/// - *A primary that was replaced* since this store was opened (by its `master_replid`), and one that does
///   not continue the primary in use, also if that one is gone. It is used if it had all that has settled: as
///   the primary in use after a restart, as a server that was a replica with all of it until the primary was
///   last seen, or if the primary in use now follows it. So servers must keep their role in their file
///   (`CONFIG REWRITE`, as Sentinel does): a replica that restarts as a primary is taken for a promoted one.
/// - *A promoted replica that rewrites its file*, until that is done. A primary in use may rewrite its file
///   at any time.
/// - *A promoted replica that lacks what has settled*: it left the primary in use before a position
///   (`master_repl_offset`) that the primary had reached `may_lose` before a call that it acknowledged.
///   Processes that start later use it.
/// - *A member of a cluster with replicas* of which one may be promoted that lacks more than `may_lose`:
///   `cluster-replica-validity-factor` plus 1.5, times `cluster-node-timeout`, plus
///   `repl-ping-replica-period`, `repl-timeout` and 3 s, with `repl-diskless-sync no`. Instead,
///   `wait_replicas` may be the number of its replicas and other connected copies, or `min-replicas-to-write`
///   with a `min-replicas-max-lag` of `may_lose` less 2 s.
/// - *A member of a cluster that is cut off* from the others (`cluster_state:fail`), or claims the keys in an
///   older configuration epoch than another member that was seen.
///
/// # Calls
///
/// A call takes at most `timeout_ms` (plus `wait_ms`), including connecting. One connection carries all
/// calls. A call is not sent unless all hosts of the URL, and the members of a cluster, were asked for their
/// role and settings in the second before it, or in half of `may_lose` if that is shorter and there are
/// several. These are asked in the background, on connections that the store keeps; after a pause the first
/// call asks them.
///
/// # URL
///
/// `redis://USER:PASSWORD@HOST:PORT,HOST/DB?NAME=VALUE&...`; the default port is 6379 and the default
/// database 0; the user may be omitted. `rediss://` is the same over TLS; `valkey://` and `valkeys://` mean
/// the same as these two. Of several hosts the store uses the primary and follows it when it changes. With
/// Sentinel, name all servers that Sentinel watches, not the Sentinels. Of a cluster name a few nodes: the
/// store remembers the others.
///
/// | parameter | meaning |
/// |---|---|
/// | `prefix` | prefix of all names; default `snowmint` |
/// | `password_file` | a file whose first line is the password; read for each connection |
/// | `may_lose` | how much of the newest writes a failover or restart may lose; default `2s`; a lease window has to be at least 3 times as long |
/// | `wait_replicas` | number of replicas that must have a write before it is acknowledged; default 0 |
/// | `wait_ms` | time to wait for them, default 1000; then a write is [`StoreErrorKind::OutcomeUnknown`] |
/// | `durable` | `no` accepts a server that writes nothing to disk |
/// | `ca` | with TLS, a PEM file with the authorities to trust instead of the system's |
/// | `cert`, `key` | with TLS, PEM files with a client certificate and its key |
/// | `timeout_ms` | the limit of a call, default 5000 |
///
/// # Cancel safety
///
/// Redis still executes a dropped [`compare_and_set`](Store::compare_and_set) that was sent.
pub struct RedisStore {
    server: RedisClient,
    names: Names,
    skipped: SkippedRecords,
}

/// The names of the keys in Redis.
struct Names {
    prefix: String,
}

impl Names {
    /// Returns the keys that a write of a record needs.
    fn of_record(&self, key: &str) -> Vec<String> {
        vec![self.fence(), self.record(key), self.index(), self.count()]
    }

    /// Returns the keys that a call about the index needs.
    fn of_index(&self) -> Vec<String> {
        vec![self.fence(), self.index(), self.count()]
    }

    fn record(&self, key: &str) -> String {
        format!("{{{}}}:record:{key}", self.prefix)
    }

    fn index(&self) -> String {
        format!("{{{}}}:index", self.prefix)
    }

    /// Returns the key of the number of index entries, which shows if the index was deleted.
    fn count(&self) -> String {
        format!("{{{}}}:count", self.prefix)
    }

    /// Returns the key of the fence. It holds only a counter, for writes that prove that a server accepts
    /// writes.
    fn fence(&self) -> String {
        format!("{{{}}}:fence", self.prefix)
    }
}

impl RedisStore {
    /// Parses the URL, connects, and checks that this server keeps records.
    ///
    /// Needs a Tokio runtime with its I/O and timer enabled. Creates nothing.
    ///
    /// # Errors
    ///
    /// - [`OpenError::Url`]: a mistake in the URL, or a file that is not readable.
    /// - [`OpenError::Store`], [`StoreErrorKind::Unavailable`]: no server is reachable; a retry may succeed.
    /// - [`OpenError::Store`], [`StoreErrorKind::ReadOnly`]: only replicas were found.
    /// - [`OpenError::Store`], [`StoreErrorKind::SplitBrain`]: two servers accept writes.
    /// - [`OpenError::Store`], [`StoreErrorKind::Other`]: wrong password, an untrusted certificate, or a
    ///   server that would forget records.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let store = Self::parse(url)?;
        store.server.call("open", Effect::Reads, &ScriptCall::probe(&store.names)).await?;
        Ok(store)
    }

    /// Parses `redis://...` or `rediss://...` of a store.
    fn parse(url: &str) -> Result<Self, UrlError> {
        let mut location = connect::location(url)?;
        let names = Names { prefix: connect::prefix(&mut location)? };
        let mut server = RedisClient::take(&mut location, Some(&names.fence()))?;
        location.finish(&format!("prefix, {PARAMETERS}"))?;
        if names.prefix != PREFIX {
            server.name = format!("{}?prefix={}", server.name, names.prefix);
        }
        Ok(Self { server, names, skipped: SkippedRecords::default() })
    }

    /// Adds in one script. Returns `None` if the record holds no number, or a number that is too large.
    async fn add_once(&self, key: &Key, addend: i64) -> Result<Option<u64>, StoreError> {
        let request = ScriptCall::add(&self.names, key.as_str(), Revision::random_step(), addend);
        match self.server.call(add::OPERATION, Effect::Writes, &request).await? {
            Value::Int(0) => Ok(None),
            before => self.server.parse(add::OPERATION, Effect::Writes, before).map(Some),
        }
    }

    /// Builds a record from its fields; without both there is no record.
    fn record(&self, operation: &'static str, fields: Fields) -> Result<Option<Versioned>, StoreError> {
        let (revision, value) = match fields {
            (None, None) => return Ok(None),
            (Some(revision), Some(value)) => (revision, value),
            _ => return Err(self.invalid(operation, "a record lacks one of its fields")),
        };
        let number = str::from_utf8(&revision).ok().and_then(|it| it.parse().ok());
        match number.and_then(Revision::from_database) {
            Some(revision) => Ok(Some(Versioned { value, revision })),
            None => Err(self.invalid(operation, "a record has a revision that is not a number")),
        }
    }

    fn invalid(&self, operation: &'static str, found: &str) -> StoreError {
        let text =
            format!("{found}: another program writes under the prefix `{}`; stop it", self.names.prefix);
        StoreError::new(StoreErrorKind::Corrupt, operation, &*self.server.name, text)
    }

    /// Returns at most [`PAGE`] keys, from `from` (inclusive) or after it, up to `to` (exclusive). Those of
    /// another program need not be UTF-8.
    async fn keys(&self, from: &[u8], to: &str) -> Result<Vec<Vec<u8>>, StoreError> {
        let request = ScriptCall::keys(&self.names, from, to, PAGE);
        for _ in 0..=REBUILDS {
            match self.server.call(LIST, Effect::Reads, &request).await? {
                Value::Int(0) => self.rebuild_index().await?,
                found => return self.server.parse(LIST, Effect::Reads, found),
            }
        }
        let text = format!("another program keeps deleting the key {}; stop it", self.names.index());
        Err(StoreError::new(StoreErrorKind::Unavailable, LIST, &*self.server.name, text))
    }

    /// Returns the key of an index entry, and records an invalid one as skipped.
    fn key(&self, name: &[u8]) -> Option<Key> {
        let key = Key::of_bytes(name).map_err(|error| self.invalid(LIST, &error.to_string()));
        key.map_err(|error| {
            let record = [self.names.record("").as_bytes(), name].concat();
            self.skipped.note(&record, &error.to_string());
        })
        .ok()
    }

    /// Rebuilds the index from the records.
    async fn rebuild_index(&self) -> Result<(), StoreError> {
        let records = self.names.record("");
        let found = self.server.scan(LIST, &format!("{}*", scripts::literal(&records))).await?;
        let keys = found.keys.iter().filter_map(|it| it.strip_prefix(records.as_bytes()));
        let request = ScriptCall::index(&self.names, &found.server, keys);
        // The script is idempotent, like a read.
        match self.server.call(LIST, Effect::Reads, &request).await? {
            Value::Int(0) => Err(self.server.moved_on(LIST)),
            _ => Ok(()),
        }
    }
}

/// The revision and the value of a record.
type Fields = (Option<Vec<u8>>, Option<Vec<u8>>);

#[async_trait]
impl Store for RedisStore {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        const OPERATION: &str = "load";
        let request = ScriptCall::records(&self.names, [key.as_str()]);
        let found = self.server.call(OPERATION, Effect::Reads, &request).await?;
        let [fields]: [Fields; 1] = self.server.parse(OPERATION, Effect::Reads, found)?;
        self.record(OPERATION, fields)
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        let Some((before, after)) = expected.before_and_after() else {
            return Ok(Swap::Conflict);
        };
        let request = ScriptCall::swap(&self.names, key.as_str(), before, after, value);
        match self.server.call("compare_and_set", Effect::Writes, &request).await? {
            Value::Int(0) => Ok(Swap::Conflict),
            Value::Int(1) => Ok(Swap::Done(Revision(after.cast_unsigned()))),
            other => {
                let failure =
                    RedisFailure::InvalidAnswer(format!("the script answered {other:?}, expected 0 or 1"));
                Err(self.server.error("compare_and_set", Effect::Writes, failure))
            }
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        let mut found = Vec::new();
        if !Key::may_begin_with(prefix) {
            return Ok(found);
        }
        let to = format!("({}", Key::end_of(prefix));
        let mut names = self.keys(format!("[{prefix}").as_bytes(), &to).await?;
        while let Some(last) = names.last() {
            let next = [b"(", &**last].concat();
            let whole = names.len() < PAGE;
            let keys: Vec<Key> = names.iter().filter_map(|name| self.key(name)).collect();
            let request = ScriptCall::records(&self.names, keys.iter().map(Key::as_str));
            let records = self.server.call(LIST, Effect::Reads, &request).await?;
            let records: Vec<Fields> = self.server.parse(LIST, Effect::Reads, records)?;
            for (key, fields) in keys.into_iter().zip(records) {
                match self.record(LIST, fields) {
                    // The script writes the index before the record.
                    Ok(record) => found.extend(record.map(|record| (key, record))),
                    Err(error) => self.skipped.note(&self.names.record(key.as_str()), &error.to_string()),
                }
            }
            if whole {
                break;
            }
            names = self.keys(&next, &to).await?;
        }
        Ok(found)
    }

    async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
        add::in_one_step(self, key, count, |addend| self.add_once(key, addend)).await
    }

    async fn unix_ms(&self) -> Result<Option<u64>, StoreError> {
        const OPERATION: &str = "unix_ms";
        let answers = self.server.ask(OPERATION, scripts::time).await?;
        let [(seconds, micros)]: [(u64, u64); 1] =
            self.server.parse(OPERATION, Effect::Reads, Value::Array(answers))?;
        Ok(Some(seconds * 1000 + micros / 1000))
    }

    fn may_lose(&self) -> Duration {
        self.server.may_lose()
    }

    fn skipped(&self) -> Vec<String> {
        self.skipped.all()
    }

    fn server(&self) -> Option<String> {
        self.server.line()
    }

    fn describe(&self) -> String {
        self.server.name.clone()
    }
}

impl std::fmt::Debug for RedisStore {
    /// Omits the settings, which contain a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RedisStore({})", self.server.name)
    }
}

/// Returns the `may_lose` of a URL without connecting.
pub(crate) fn may_lose(url: &str) -> Result<Duration, UrlError> {
    RedisStore::parse(url).map(|store| store.server.may_lose())
}

/// Returns the keys and permissions that a store of this URL needs.
pub(crate) fn schema(url: &str) -> Result<String, UrlError> {
    let names = RedisStore::parse(url)?.names;
    let (record, index, count, fence) = (names.record("KEY"), names.index(), names.count(), names.fence());
    let tag = format!("{{{}}}:*", names.prefix);
    Ok(format!(
        "# Keys, created with the first record; none expires:\n\
         {record}   a hash with the fields r (revision) and v (value)\n\
         {index}   a sorted set of all keys\n\
         {count}   a hash with the field n, the number of keys\n\
         {fence}   a counter\n\
         # Rights of the user of the nodes:\n\
         ACL SETUSER ... on >... resetkeys ~{tag} +eval +evalsha +hget +hmget +hset +hincrby +zadd +zcard +zrangebylex \
         +setrange +persist +incr +scan +wait +time +ping +info +select +cluster|slots +cluster|info +cluster|nodes +config|get\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_in_a_url_is_told_without_its_password() {
        let cases = [
            ("redis://", "missing host"),
            ("redis://:hunter2@h/-1", "invalid database"),
            ("redis://:hunter2@h/db", "invalid database"),
            ("redis://:hunter2@h?prefix=a{b", "without braces"),
            ("redis://:hunter2@h?wait_replicas=x", "expected 0 to 100"),
            ("redis://:hunter2@h?wait_replicas=1&wait_ms=0", "expected 1 to 60000"),
            ("redis://:hunter2@h?wait_ms=5", "requires wait_replicas="),
            ("redis://:hunter2@h?durable=maybe", "invalid durable"),
            ("redis://:hunter2@h?ca=/nowhere", "unknown parameter `ca`"),
            ("redis://h?password_file=/nowhere", "password_file /nowhere: No such file"),
            #[cfg(feature = "tls")]
            ("rediss://h?ca=/nowhere", "ca=/nowhere: No such file"),
            #[cfg(feature = "tls")]
            ("rediss://h?cert=/dev/null", "require each other"),
            ("valkey://h?ca=/nowhere", "unknown parameter `ca`"),
            #[cfg(feature = "tls")]
            ("valkeys://h?ca=/nowhere", "ca=/nowhere: No such file"),
        ];
        for (url, wanted) in cases {
            let error = RedisStore::parse(url).unwrap_err().to_string();
            assert!(error.contains(wanted) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn a_name_for_logs_has_no_password() {
        let shown = |url| format!("{:?}", RedisStore::parse(url).unwrap());
        assert_eq!(shown("redis://u:hunter2@h1,h2:1"), "RedisStore(redis://h1:6379,h2:1/0)");
        assert_eq!(shown("redis://:hunter2@h/3?prefix=team"), "RedisStore(redis://h:6379/3?prefix=team)");
        assert_eq!(shown("valkey://:hunter2@h"), "RedisStore(valkey://h:6379/0)");
    }
}
