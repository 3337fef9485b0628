//! Records as znodes of a ZooKeeper ensemble, written by the versioned `setData`. A write before each read
//! makes the read current, since every server answers reads from its own copy, which may be old.
//!
//! Keys cannot contain `,`, so a `,` in the name of a znode always comes from this store.

mod connect;
mod error;
mod fence;
mod origin;
mod session;
pub(crate) mod wire;

use std::num::NonZeroU64;

use async_trait::async_trait;
use futures_util::future::try_join_all;

use self::connect::{ZooKeeperClient, ZooKeeperSettings};
use self::error::ZooKeeperFailure;
use self::wire::{ErrorCode, Stat};
use crate::error::{Effect, Retries};
use crate::store::SkippedRecords;
use crate::store::add;
use crate::{
    Expected, Key, OpenError, Revision, Store, StoreError, StoreErrorKind, Swap, UrlError, Versioned,
};

/// Number of records that a list reads at once.
const AT_ONCE: usize = 200;
/// The version that means "any" in a `setData`; no record may reach it.
const ANY_VERSION: i32 = -1;

/// A store in a ZooKeeper ensemble, version 3.5 or later.
///
/// The record of the key `workers/pool/7` is the znode `/snowmint/workers,pool/7`: one flat folder for the
/// part before the last `/`, with `,` for every other `/`, so that one call lists a pool and names stay
/// short.
///
/// **Revision**: the `mzxid` of the znode, the number of the transaction that last wrote it. It grows with
/// every write of the ensemble and never comes back, while a znode's `version` has only 32 bits. The
/// `setData` itself is conditional on the version, which the store looks up by the revision just before:
/// while the transaction is the same, so is the version.
///
/// **Reads**: each server answers reads from its own copy, and `sync` waits for the leader but not for a
/// quorum. So a leader that was cut off and does not know it yet may confirm an old state. Therefore
/// [`load`](Store::load) and [`list`](Store::list) first write to a separate znode (`,fence`): a later read
/// in the same session includes everything that was acknowledged before. A load costs about as much as a
/// write.
///
/// [`unix_ms`](Store::unix_ms) is the `mtime` of that write: the time of the leader.
///
/// **One ensemble**: the transaction that created `,fence`, and its time, identify the ensemble. The store
/// compares them on all hosts when it is opened, and in each new session, and refuses another ensemble: its
/// records would be a second store.
///
/// Nothing depends on the session (no ephemeral znodes, no watches), so a doubtful session is dropped and
/// replaced. A call retries for a bounded time, about 6 s for reads. A write waits 5 s for its answer; a
/// write whose connection breaks is [`StoreErrorKind::OutcomeUnknown`].
///
/// # URL
///
/// `zookeeper://USER:PASSWORD@HOST:PORT,HOST,HOST/PATH?password_file=FILE`; the default port is 2181, and the
/// default path `/snowmint`. The store creates the path, with its missing parents. With a user (scheme
/// `digest`), new znodes belong to that user only; without one, to everybody. ZooKeeper accepts any password:
/// a wrong one shows only when it refuses access to another user's znodes.
///
/// `zookeepers://` uses TLS, with `ca=FILE` for the authority to trust instead of the system's, and
/// `cert=FILE` and `key=FILE` for a client certificate. The port is the `secureClientPort` of the servers.
///
/// # Cancel safety
///
/// A dropped [`compare_and_set`](Store::compare_and_set) may still write until its session has ended.
#[derive(Debug)]
pub struct ZooKeeperStore {
    link: ZooKeeperClient,
    paths: Paths,
    name: String,
    skipped: SkippedRecords,
}

impl ZooKeeperStore {
    /// Parses the URL, opens a session, and creates the store's own path if it is missing.
    ///
    /// # Errors
    ///
    /// - [`OpenError::Url`]: a mistake in the URL, or a password file that is not readable.
    /// - [`OpenError::Store`], [`StoreErrorKind::Unavailable`]: no server answers; a retry may succeed.
    /// - [`OpenError::Store`], [`StoreErrorKind::ReadOnly`]: no permission to write there.
    /// - [`OpenError::Store`], [`StoreErrorKind::SplitBrain`]: the hosts belong to two ensembles.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let ZooKeeperSettings { link, paths, name } = connect::settings(url)?;
        let store = Self { link, paths, name, skipped: SkippedRecords::default() };
        store.tell_time("open").await?;
        let one = store.link.check_ensemble().await;
        one.map_err(|failure| store.error("open", Effect::Reads, &failure))?;
        Ok(store)
    }

    fn error(&self, operation: &'static str, effect: Effect, failure: &ZooKeeperFailure) -> StoreError {
        error::store_error(&self.name, operation, effect, failure)
    }

    fn invalid(&self, operation: &'static str, found: String) -> StoreError {
        StoreError::new(StoreErrorKind::Corrupt, operation, &*self.name, found)
    }

    fn revision(&self, operation: &'static str, stat: &Stat) -> Result<Revision, StoreError> {
        let invalid = |_| {
            self.invalid(operation, format!("a znode has transaction {}, expected at least 0", stat.mzxid))
        };
        u64::try_from(stat.mzxid).map(Revision).map_err(invalid)
    }

    /// Reads these paths as they are now, or later; `None` for a missing znode.
    async fn get(
        &self,
        operation: &'static str,
        paths: Vec<String>,
    ) -> Result<Vec<Option<(Vec<u8>, Stat)>>, StoreError> {
        let read = self.link.read(|session| {
            let (paths, fence) = (paths.clone(), self.link.fence());
            async move {
                fence.pass(&session).await?;
                try_join_all(paths.iter().map(async |path| some(session.get_data(path).await))).await
            }
        });
        read.await.map_err(|failure| self.error(operation, Effect::Reads, &failure))
    }

    /// Reads a path from one server's copy, which may be old.
    async fn copy(&self, operation: &'static str, path: &str) -> Result<Option<(Vec<u8>, Stat)>, StoreError> {
        let read = self.link.read(|session| async move { some(session.get_data(path).await) });
        read.await.map_err(|failure| self.error(operation, Effect::Reads, &failure))
    }

    /// Returns the names of the children; none for a missing znode.
    async fn children(&self, operation: &'static str, path: &str) -> Result<Vec<String>, StoreError> {
        let read = self.link.read(|session| {
            let (path, fence) = (path.to_owned(), self.link.fence());
            async move {
                fence.pass(&session).await?;
                some(session.get_children(&path).await)
            }
        });
        let names = read.await.map_err(|failure| self.error(operation, Effect::Reads, &failure))?;
        Ok(names.unwrap_or_default())
    }

    /// Writes through a quorum and returns the leader's time in Unix milliseconds.
    async fn tell_time(&self, operation: &'static str) -> Result<u64, StoreError> {
        let passed = self.link.read(|session| {
            let fence = self.link.fence();
            async move { fence.pass(&session).await }
        });
        let stat = passed.await.map_err(|failure| self.error(operation, Effect::Reads, &failure))?;
        u64::try_from(stat.mtime).map_err(|_| {
            self.invalid(operation, format!("the fence has time {} ms, expected at least 0", stat.mtime))
        })
    }

    fn record(&self, operation: &'static str, found: (Vec<u8>, Stat)) -> Result<Versioned, StoreError> {
        let (value, stat) = found;
        Ok(Versioned { value, revision: self.revision(operation, &stat)? })
    }

    async fn create(&self, operation: &'static str, key: &Key, value: &[u8]) -> Result<Swap, StoreError> {
        let path = self.paths.record(key);
        for _ in 0..2 {
            let written = self.link.write(|session| {
                let (path, owner) = (&path, self.link.owner());
                async move { session.create(path, value, owner).await }
            });
            match written.await {
                Ok(stat) => return self.done(operation, &stat),
                Err(ZooKeeperFailure::Refused(ErrorCode::NodeExists)) => return Ok(Swap::Conflict),
                Err(ZooKeeperFailure::Refused(ErrorCode::NoNode)) => self.make_folder(operation, key).await?,
                Err(failure) => return Err(self.error(operation, Effect::Writes, &failure)),
            }
        }
        let vanished = "another program deletes its folder as soon as it is created; stop that program";
        Err(StoreError::new(StoreErrorKind::Other, operation, &*self.name, vanished))
    }

    async fn make_folder(&self, operation: &'static str, key: &Key) -> Result<(), StoreError> {
        let made = self.link.read(|session| {
            let (folder, owner) = (self.paths.folder(key), self.link.owner());
            async move { session.create_with_parents(&folder, owner).await }
        });
        made.await.map_err(|failure| self.error(operation, Effect::Reads, &failure))
    }

    /// Writes a record that has a given version.
    async fn replace(
        &self,
        operation: &'static str,
        path: &str,
        version: i32,
        value: &[u8],
    ) -> Result<Swap, StoreError> {
        // The next write could no longer be conditional.
        if version == ANY_VERSION || version == ANY_VERSION - 1 {
            let spent =
                "this znode was written 4,294,967,294 times, the limit of ZooKeeper; use another store";
            return Err(StoreError::new(StoreErrorKind::Full, operation, &*self.name, spent));
        }
        let written = self.link.write(|session| async move { session.set_data(path, value, version).await });
        match written.await {
            Ok(stat) => self.done(operation, &stat),
            Err(ZooKeeperFailure::Refused(ErrorCode::BadVersion | ErrorCode::NoNode)) => Ok(Swap::Conflict),
            Err(failure) => Err(self.error(operation, Effect::Writes, &failure)),
        }
    }

    /// Returns the version that a record has at a revision, or `None` if it is at another revision.
    async fn version(
        &self,
        operation: &'static str,
        path: &str,
        revision: Revision,
    ) -> Result<Option<i32>, StoreError> {
        let read = self.link.read(|session| async move { some(session.exists(path).await) });
        let stat = read.await.map_err(|failure| self.error(operation, Effect::Reads, &failure))?;
        match stat {
            Some(stat) if self.revision(operation, &stat)? == revision => return Ok(Some(stat.version)),
            // Even an old copy can show that a revision has passed.
            Some(stat) if self.revision(operation, &stat)? > revision => return Ok(None),
            // The copy is older than what the caller has seen.
            _ => {}
        }
        match self.get(operation, vec![path.to_owned()]).await?.pop().flatten() {
            Some((_, stat)) if self.revision(operation, &stat)? == revision => Ok(Some(stat.version)),
            _ => Ok(None),
        }
    }

    fn done(&self, operation: &'static str, stat: &Stat) -> Result<Swap, StoreError> {
        let invalid = |_| {
            let found =
                format!("ZooKeeper answered a write with transaction {}, expected at least 0", stat.mzxid);
            StoreError::new(StoreErrorKind::OutcomeUnknown, operation, &*self.name, found)
        };
        u64::try_from(stat.mzxid).map(|it| Swap::Done(Revision(it))).map_err(invalid)
    }
}

#[async_trait]
impl Store for ZooKeeperStore {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        let found = self.get("load", vec![self.paths.record(key)]).await?.pop().flatten();
        found.map(|it| self.record("load", it)).transpose()
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        const OPERATION: &str = "compare_and_set";
        let Expected::Revision(revision) = expected else {
            return self.create(OPERATION, key, value).await;
        };
        let path = self.paths.record(key);
        match self.version(OPERATION, &path, revision).await? {
            Some(version) => self.replace(OPERATION, &path, version, value).await,
            None => Ok(Swap::Conflict),
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        const OPERATION: &str = "list";
        let mut keys = Vec::new();
        for name in self.children(OPERATION, self.paths.base()).await? {
            let Some(folder) = folder_of_name(&name).filter(|it| may_hold(it, prefix)) else {
                continue;
            };
            for child in self.children(OPERATION, &self.paths.child(&name)).await? {
                let Some(key) = key_of_names(&folder, &child) else {
                    let why = "not a Snowmint key: another program writes under this path";
                    self.skipped.note(&format!("{name}/{child}"), why);
                    continue;
                };
                keys.push(key);
            }
        }
        keys.retain(|key| key.as_str().starts_with(prefix));
        keys.sort_unstable();
        let mut records = Vec::with_capacity(keys.len());
        for keys in keys.chunks(AT_ONCE) {
            let found = self.get(OPERATION, keys.iter().map(|key| self.paths.record(key)).collect()).await?;
            for (key, found) in keys.iter().zip(found) {
                // Only an operator deletes records.
                if let Some(found) = found {
                    records.push((key.clone(), self.record(OPERATION, found)?));
                }
            }
        }
        Ok(records)
    }

    async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
        const OPERATION: &str = add::OPERATION;
        let (path, mut retries) = (self.paths.record(key), Retries::new());
        // Any copy will do: a write based on an old one is refused. Only our own refusal needs a current
        // record.
        let mut found = self.copy(OPERATION, &path).await?;
        let mut is_current = false;
        loop {
            let version = found.as_ref().map(|(_, stat)| stat.version);
            let record = found.map(|it| self.record(OPERATION, it)).transpose()?;
            let sum = add::before_and_after(self, key, record.as_ref(), count);
            if is_current || sum.is_ok() {
                let (before, after) = sum?;
                let value = after.to_string().into_bytes();
                let swap = match version {
                    None => self.create(OPERATION, key, &value).await?,
                    Some(version) => self.replace(OPERATION, &path, version, &value).await?,
                };
                if let Swap::Done(_) = swap {
                    return Ok(before);
                }
                add::pause_before_retry(&mut retries, self, key).await?;
            }
            found = self.get(OPERATION, vec![path.clone()]).await?.pop().flatten();
            is_current = true;
        }
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

/// Returns the znodes and permissions that a store of this URL needs in ZooKeeper.
pub(crate) fn schema(url: &str) -> Result<String, UrlError> {
    let paths = connect::settings(url)?.paths;
    let (base, fence, record) = (paths.base(), paths.fence(), paths.child("FOLDER,OF,THE,KEY/LAST"));
    Ok(format!(
        "# Persistent znodes, created when they are missing; for a user, with an ACL for that user alone:\n\
         {base}\n\
         {fence}   written before each read\n\
         {record}   one for each record\n\
         # Rights of the nodes on {base}: create, read and write (crw).\n"
    ))
}

/// Turns "no such znode" into `None`.
fn some<T>(found: Result<T, ZooKeeperFailure>) -> Result<Option<T>, ZooKeeperFailure> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(ZooKeeperFailure::Refused(ErrorCode::NoNode)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The paths of a store under its base, such as `/snowmint`.
#[derive(Debug)]
struct Paths {
    base: String,
}

impl Paths {
    const fn new(base: String) -> Self {
        Self { base }
    }

    /// Returns the path that contains everything.
    fn base(&self) -> &str {
        &self.base
    }

    /// Returns a znode that is not a folder of records: no key has a name that begins with `,` and a letter.
    fn fence(&self) -> String {
        self.child(",fence")
    }

    fn child(&self, name: &str) -> String {
        format!("{}/{name}", self.base)
    }

    /// Returns the znode that contains the records next to this one.
    fn folder(&self, key: &Key) -> String {
        self.child(&name(split(key).0))
    }

    fn record(&self, key: &Key) -> String {
        let (folder, last) = split(key);
        format!("{}/{}/{}", self.base, name(folder), name(last))
    }
}

/// All segments but the last, and the last.
fn split(key: &Key) -> (&str, &str) {
    key.as_str().rsplit_once('/').unwrap_or(("", key.as_str()))
}

/// Returns the name for a part of a key: `,` for each `/`, and a `,` before a part that is not allowed as a
/// name.
fn name(part: &str) -> String {
    match part {
        "" | "." | ".." => format!(",{part}"),
        _ => part.replace('/', ","),
    }
}

/// Returns the part of a key that has this name.
fn part(name: &str) -> Option<String> {
    match name.strip_prefix(',') {
        Some(part @ ("" | "." | "..")) => Some(part.to_owned()),
        Some(_) => None,
        None => Some(name.replace(',', "/")),
    }
}

/// Returns the folder with this name, without a `/` at its end; `None` if it is not a folder of records.
fn folder_of_name(name: &str) -> Option<String> {
    part(name)
}

/// Returns the key of a record from its folder and its name.
fn key_of_names(folder: &str, name: &str) -> Option<Key> {
    let last = part(name).filter(|it| !it.contains('/'))?;
    Key::new(if folder.is_empty() { last } else { format!("{folder}/{last}") }).ok()
}

/// Returns whether a folder may contain keys that start with the prefix.
fn may_hold(folder: &str, prefix: &str) -> bool {
    if folder.is_empty() {
        return !prefix.contains('/');
    }
    let folder = format!("{folder}/");
    folder.starts_with(prefix) || prefix.starts_with(&folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_path_of_its_own_and_comes_back() {
        let texts =
            ["a", "A", ".", "..", "./.", "../..", "a/.", "./a", "a/b/c", "a/b", "workers/time41@1ms:x=_-/7"];
        let paths = Paths::new("/snowmint".to_owned());
        let mut seen = std::collections::BTreeSet::new();
        for text in texts {
            let key = Key::new(text).unwrap();
            let path = paths.record(&key);
            let names: Vec<&str> = path.strip_prefix("/snowmint/").unwrap().split('/').collect();
            assert!(names.len() == 2 && names.iter().all(|it| !matches!(*it, "" | "." | "..")), "{path}");
            assert_eq!(paths.folder(&key), format!("/snowmint/{}", names[0]));
            let folder = folder_of_name(names[0]).unwrap();
            assert_eq!(key_of_names(&folder, names[1]), Some(key));
            assert!(seen.insert(path), "{text}");
        }
        assert_eq!(paths.record(&Key::new("workers/pool/7").unwrap()), "/snowmint/workers,pool/7");
        assert_eq!(folder_of_name(",fence"), None);
        assert_eq!(key_of_names("a", "b,c"), None);
    }

    #[test]
    fn a_list_looks_where_its_keys_may_be() {
        for (folder, prefix, wanted) in [
            ("", "", true),
            ("", "a", true),
            ("", "a/", false),
            ("a", "", true),
            ("a", "a", true),
            ("a", "a/", true),
            ("a", "a/b", true),
            ("a", "a/b/", true),
            ("a", "ab", false),
            ("a/b", "a/b/c", true),
            ("a/b", "a/", true),
            ("a/b", "a/c", false),
            ("a/bc", "a/b", true),
        ] {
            assert_eq!(may_hold(folder, prefix), wanted, "{folder} {prefix}");
        }
    }
}
