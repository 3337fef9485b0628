//! The file of one saved lease, in JSON: written completely or not at all, and on the disk before it counts.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use snowmint::WorkerId;
use snowmint_store::Revision;

use super::{LockedDirectory, ResumeError};
use crate::Holder;
use crate::lease::protocol::Held;
use crate::lease::record::{Tag, WorkerPool};

/// How far the clock may be behind the mark: a dead process left the mark a few seconds ahead at most.
const MAX_BEHIND_MS: u64 = 60_000;

/// The rest of a lease: the timestamps `[mark, until)` of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lease) struct SavedLease {
    pub(in crate::lease) worker: WorkerId,
    pub(in crate::lease) revision: Revision,
    pub(in crate::lease) tag: Tag,
    /// The first unused instant, in unix milliseconds.
    pub(in crate::lease) mark_unix_ms: u64,
    /// The end of the lease, in unix milliseconds.
    pub(in crate::lease) until_unix_ms: u64,
}

impl SavedLease {
    /// Checks whether a part of it is left.
    pub(super) fn check(&self, now_unix_ms: u64) -> Result<(), ResumeError> {
        let Self { mark_unix_ms, until_unix_ms, .. } = *self;
        if until_unix_ms <= now_unix_ms {
            Err(ResumeError::Lapsed { until_unix_ms })
        } else if until_unix_ms <= mark_unix_ms {
            Err(ResumeError::NothingLeft { until_unix_ms })
        } else if mark_unix_ms > now_unix_ms + MAX_BEHIND_MS {
            Err(ResumeError::ClockBehind { mark_unix_ms, now_unix_ms })
        } else {
            Ok(())
        }
    }

    /// The lease that the next process holds: the time before the mark belongs to the dead one.
    pub(in crate::lease) fn held(&self) -> Held {
        Held {
            worker: self.worker,
            revision: self.revision,
            tag: self.tag,
            from_unix_ms: self.mark_unix_ms,
            until_unix_ms: self.until_unix_ms,
        }
    }
}

/// The file of one slot of a directory.
#[derive(Clone, Debug)]
pub(in crate::lease) struct LeaseFile {
    directory: Arc<LockedDirectory>,
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    pool: String,
    worker: u32,
    holder: String,
    until: u64,
    mark: u64,
    revision: u64,
    tag: String,
    origin: String,
    folder: String,
}

impl LeaseFile {
    pub(super) fn new(directory: Arc<LockedDirectory>, slot: usize) -> Self {
        let path = directory.path.join(format!("lease-{}.json", slot + 1));
        Self { directory, path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The error for a file that is not readable.
    pub(super) fn damaged(&self, reason: String) -> ResumeError {
        ResumeError::Damaged { path: self.path.display().to_string(), reason }
    }

    /// Reads the saved lease, if it belongs to this node.
    pub(in crate::lease) fn read(
        &self,
        pool: &WorkerPool,
        holder: &Holder,
    ) -> Result<Option<SavedLease>, ResumeError> {
        let damaged = |reason: String| self.damaged(reason);
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(damaged(error.to_string())),
        };
        let wire: Wire = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        let tag = u128::from_str_radix(&wire.tag, 16).map_err(|error| damaged(format!("tag: {error}")))?;
        if wire.folder != self.directory.identity {
            return Err(ResumeError::Copied);
        }
        let same = |what, saved: String, wanted: &str| {
            let other = saved != wanted;
            if other { Err(ResumeError::Other { what, saved, wanted: wanted.to_owned() }) } else { Ok(()) }
        };
        same("pool", wire.pool, &pool.to_string())?;
        same("holder", wire.holder, holder.as_str())?;
        same("origin", wire.origin, &self.directory.origin)?;
        if wire.worker >= pool.workers() {
            return Err(damaged(format!("the layout has no worker {}", wire.worker)));
        }
        Ok(Some(SavedLease {
            worker: WorkerId(wire.worker),
            revision: Revision(wire.revision),
            tag: Tag(tag),
            mark_unix_ms: wire.mark,
            until_unix_ms: wire.until,
        }))
    }

    /// Replaces the saved lease. When it returns, the new lease is on the disk; when it fails, either one may be.
    pub(super) fn write(&self, pool: &WorkerPool, holder: &Holder, lease: &SavedLease) -> io::Result<()> {
        let wire = Wire {
            pool: pool.to_string(),
            worker: lease.worker.0,
            holder: holder.as_str().to_owned(),
            until: lease.until_unix_ms,
            mark: lease.mark_unix_ms,
            revision: lease.revision.0,
            tag: format!("{:032x}", lease.tag.0),
            origin: self.directory.origin.clone(),
            folder: self.directory.identity.clone(),
        };
        replace(&self.path, &serde_json::to_vec(&wire)?)
    }

    /// Removes the saved lease. When it returns, the removal is on the disk.
    pub(super) fn remove(&self) -> io::Result<()> {
        remove(&self.path)
    }
}

/// Replaces a whole file. When it returns, the new bytes are on the disk; when it fails, either version may be.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("json.new");
    let mut file = File::create(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    sync_directory_of(path)
}

/// Removes a file, if it exists. When it returns, the removal is on the disk.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => sync_directory_of(path),
    }
}

/// The name of a file is on the disk when its directory is.
#[cfg(unix)]
fn sync_directory_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

/// Other systems cannot sync a directory; their file systems order the names themselves.
#[cfg(not(unix))]
fn sync_directory_of(_path: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use snowmint::{DatacenterId, Layout};

    use super::super::SavedLeases;
    use super::*;

    const LEASE: SavedLease = SavedLease {
        worker: WorkerId(7),
        revision: Revision(12),
        tag: Tag(0xab),
        mark_unix_ms: 1_790_000_000_000,
        until_unix_ms: 1_790_000_008_000,
    };

    fn pool() -> WorkerPool {
        WorkerPool::new(Layout::TWITTER, DatacenterId(0))
    }

    fn holder(name: &str) -> Holder {
        Holder::new(name).unwrap()
    }

    #[test]
    fn a_saved_lease_reads_back_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let saved = SavedLeases::open(folder.path(), "redis://r default").unwrap();
        let file = saved.file(0);
        assert_eq!(file.read(&pool(), &holder("me")), Ok(None));
        file.write(&pool(), &holder("me"), &LEASE).unwrap();
        assert_eq!(file.read(&pool(), &holder("me")), Ok(Some(LEASE)));
        let later = SavedLease { mark_unix_ms: LEASE.mark_unix_ms + 1, ..LEASE };
        file.write(&pool(), &holder("me"), &later).unwrap();
        assert_eq!(file.read(&pool(), &holder("me")), Ok(Some(later)));
        assert_eq!(saved.file(1).read(&pool(), &holder("me")), Ok(None), "another lease of the node");
        file.remove().unwrap();
        file.remove().unwrap();
        assert_eq!(file.read(&pool(), &holder("me")), Ok(None));
    }

    #[test]
    fn the_lease_of_another_node_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let saved = SavedLeases::open(folder.path(), "redis://r default").unwrap();
        saved.file(0).write(&pool(), &holder("me"), &LEASE).unwrap();
        let other = saved.file(0).read(&pool(), &holder("you")).unwrap_err().to_string();
        assert_eq!(other, r#"its holder is "me", this node's "you""#);
        let elsewhere = WorkerPool::new(Layout::TWITTER, DatacenterId(1));
        assert!(matches!(
            saved.file(0).read(&elsewhere, &holder("me")),
            Err(ResumeError::Other { what: "pool", .. })
        ));
        drop(saved);
        let saved = SavedLeases::open(folder.path(), "redis://other default").unwrap();
        let other = saved.file(0).read(&pool(), &holder("me"));
        assert!(matches!(other, Err(ResumeError::Other { what: "origin", .. })), "{other:?}");
    }

    #[test]
    fn a_directory_belongs_to_one_process_and_a_copy_of_it_is_rejected() {
        let (folder, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let saved = SavedLeases::open(folder.path(), "o").unwrap();
        saved.file(0).write(&pool(), &holder("me"), &LEASE).unwrap();
        let second = SavedLeases::open(folder.path(), "o").unwrap_err();
        assert!(matches!(second, super::super::SavedLeasesError::InUse { .. }), "{second}");
        for name in ["lease-1.json", "leases.lock"] {
            fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
        }
        let copied = SavedLeases::open(copy.path(), "o").unwrap();
        assert_eq!(copied.file(0).read(&pool(), &holder("me")), Err(ResumeError::Copied));
    }

    #[test]
    fn a_damaged_file_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let saved = SavedLeases::open(folder.path(), "o").unwrap();
        saved.file(0).write(&pool(), &holder("me"), &LEASE).unwrap();
        let path = folder.path().join("lease-1.json");
        let good = fs::read_to_string(&path).unwrap();
        let spoilt = [
            String::new(),
            good[..good.len() / 2].to_owned(),
            good.replace(r#""worker":7"#, r#""worker":32"#),
            good.replace("0ab", "0xx"),
            good.replace(r#"{"pool""#, r#"{"more":1,"pool""#),
            good.replace(r#""mark":"#, r#""mark":-"#),
        ];
        for text in spoilt {
            assert_ne!(text, good);
            fs::write(&path, &text).unwrap();
            let read = saved.file(0).read(&pool(), &holder("me"));
            assert!(matches!(read, Err(ResumeError::Damaged { .. })), "{text}: {read:?}");
        }
    }

    #[test]
    fn the_clock_decides_what_is_left_of_a_lease() {
        let (mark, until) = (LEASE.mark_unix_ms, LEASE.until_unix_ms);
        assert_eq!(LEASE.check(mark - 2000), Ok(()), "it waits for the mark");
        assert_eq!(LEASE.check(until - 1), Ok(()));
        assert_eq!(LEASE.check(until), Err(ResumeError::Lapsed { until_unix_ms: until }));
        let back = mark - 3_600_000;
        let behind = Err(ResumeError::ClockBehind { mark_unix_ms: mark, now_unix_ms: back });
        assert_eq!(LEASE.check(back), behind);
        let used_up = SavedLease { mark_unix_ms: until, ..LEASE };
        assert_eq!(used_up.check(mark), Err(ResumeError::NothingLeft { until_unix_ms: until }));
    }
}
