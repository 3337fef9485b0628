//! Lists the workers of a store and their holders, and takes a worker from its holder.

use serde::{Deserialize, Serialize};
use snowmint::utc::Utc;
use snowmint::{Clock as _, WallClock};
use snowmint_cluster::audit::Action;
use snowmint_cluster::lease::Tag;
use snowmint_cluster::lease::admin::{Eviction, LeaseEntry, evict, leases, strange_keys};
use snowmint_store::Store;

use crate::clock_offset::ClockOffset;
use crate::{AdminError, Author, warnings_of_skipped};

/// Whether a worker has a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerState {
    /// A node holds it.
    Held,
    /// Its last lease has ended.
    Free,
    /// Its record is unreadable, so no node takes it.
    Unreadable,
}

impl WorkerState {
    /// Returns its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Free => "free",
            Self::Unreadable => "unreadable",
        }
    }
}

/// A worker of a store as `snowmint workers --json` and the admin API show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerView {
    /// Its pool: a layout in a datacenter.
    pub pool: String,
    /// Its number.
    pub worker: u32,
    /// The node that holds or held it; `None` if the record is unreadable.
    pub holder: Option<String>,
    /// The end of its lease, in UTC.
    pub until: Option<String>,
    /// The end of its lease, in unix milliseconds.
    pub until_unix_ms: Option<u64>,
    /// Whether it has a holder.
    pub state: WorkerState,
    /// The time until the end of its lease; negative after it.
    pub ahead_ms: Option<i64>,
}

impl WorkerView {
    fn of(entry: &LeaseEntry, now_unix_ms: u64) -> Self {
        let record = entry.record.as_ref().ok();
        let until_unix_ms = record.map(|record| record.frees_unix_ms(now_unix_ms, 1));
        Self {
            pool: entry.pool.clone(),
            worker: entry.worker.0,
            holder: record.map(|record| record.holder.to_string()),
            until: until_unix_ms.map(|until| Utc(until).to_string()),
            until_unix_ms,
            state: match record {
                None => WorkerState::Unreadable,
                Some(record) if record.is_held_at(now_unix_ms) => WorkerState::Held,
                Some(_) => WorkerState::Free,
            },
            ahead_ms: until_unix_ms.map(|until| until.cast_signed() - now_unix_ms.cast_signed()),
        }
    }
}

/// The workers of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workers {
    /// All workers that ever had a holder, by pool and number.
    pub workers: Vec<WorkerView>,
    /// The records that were skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Whether to take a worker from a node that still holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Force {
    /// Reject it.
    #[default]
    Refuse,
    /// Take it, whichever node holds it. The lease keeps its end.
    Take,
    /// Take it from this holder, and from no other: another node may hold it since somebody looked.
    TakeFrom(String),
}

impl Force {
    /// Reads it from a request.
    ///
    /// # Errors
    ///
    /// A holder without `force`.
    pub fn requested(force: bool, holder: Option<String>) -> Result<Self, AdminError> {
        match (force, holder) {
            (true, Some(holder)) => Ok(Self::TakeFrom(holder)),
            (true, None) => Ok(Self::Take),
            (false, None) => Ok(Self::Refuse),
            (false, Some(_)) => {
                Err(AdminError::setting("holder", "belongs to `force`: add it, or omit the holder"))
            }
        }
    }
}

/// The outcome of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Released {
    /// The worker was free before.
    Free {
        /// The worker.
        worker: u32,
        /// The end of its last lease, in UTC.
        ended: String,
    },
    /// It was taken from its holder.
    Taken {
        /// The worker.
        worker: u32,
        /// The holder, which uses the worker until then.
        holder: String,
        /// When the worker is free, in UTC.
        free_from: String,
    },
}

/// The outcome of a release with its warnings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseAnswer {
    /// The outcome.
    #[serde(flatten)]
    pub released: Released,
    /// The records that were skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Lists the workers of a store.
///
/// # Errors
///
/// The error of the store.
pub async fn list(store: &dyn Store) -> Result<Workers, AdminError> {
    let (entries, warnings) = entries(store).await?;
    let now_unix_ms = now_unix_ms(store).await?;
    let workers = entries.iter().map(|entry| WorkerView::of(entry, now_unix_ms)).collect();
    Ok(Workers { workers, warnings })
}

/// Reports that a worker is free, or takes it from its holder.
///
/// # Errors
///
/// [`AdminError::Held`] or [`AdminError::OtherHolder`] if a node holds it and `force` does not allow to take
/// it; [`AdminError`] if the worker is unknown, in several pools, unreadable, or was renewed at the same
/// time.
pub async fn release(
    store: &dyn Store,
    author: &Author,
    worker: u32,
    pool: Option<&str>,
    force: &Force,
) -> Result<ReleaseAnswer, AdminError> {
    let (entries, warnings) = entries(store).await?;
    let of_pool =
        |entry: &&LeaseEntry| pool.is_none_or(|pool| entry.pool == pool) && entry.worker.0 == worker;
    let mut found = entries.iter().filter(of_pool);
    let entry = found.next().ok_or(AdminError::UnknownWorker { worker })?;
    if let Some(other) = found.next() {
        let (one, other) = (entry.pool.clone(), other.pool.clone());
        return Err(AdminError::SeveralPools { worker, one, other });
    }
    let Ok(record) = &entry.record else {
        return Err(AdminError::UnreadableWorker { worker, pool: entry.pool.clone() });
    };
    let now_unix_ms = now_unix_ms(store).await?;
    let frees_unix_ms = record.frees_unix_ms(now_unix_ms, 1);
    let until = Utc(frees_unix_ms).to_string();
    let is_held = record.is_held_at(now_unix_ms);
    // A lease that was released in the future still shows that clock until the worker is taken.
    if !is_held && (record.until_unix_ms <= now_unix_ms || record.is_evicted()) {
        return Ok(ReleaseAnswer { released: Released::Free { worker, ended: until }, warnings });
    }
    let holder = record.holder.to_string();
    match force {
        Force::Refuse if is_held => return Err(AdminError::Held { worker, holder, until }),
        Force::TakeFrom(named) if *named != holder => {
            return Err(AdminError::OtherHolder { worker, holder, named: named.clone() });
        }
        Force::Refuse | Force::Take | Force::TakeFrom(_) => {}
    }
    let evicted = async {
        match evict(store, entry, random_tag()).await? {
            // Its lease is in the future, where the clock of its holder was.
            Some(Eviction::FreeFrom(_)) if record.granted.gap_at(now_unix_ms, 1).is_some() => Ok(now_unix_ms),
            Some(Eviction::FreeFrom(_)) => Ok(frees_unix_ms),
            _ => Err(AdminError::WorkerChanged { worker }),
        }
    };
    let subject = format!("{worker} of {}", entry.pool);
    let details = format!("from {holder}, held until {until}");
    let free_from = author.record(store, Action::WorkerRelease, subject, details, evicted).await??;
    let released = Released::Taken { worker, holder, free_from: Utc(free_from).to_string() };
    Ok(ReleaseAnswer { released, warnings })
}

/// Returns the time by which leases end: this clock's, corrected by how far it is certainly off the store's.
/// The store's own would be too coarse: etcd tells the time in whole seconds.
async fn now_unix_ms(store: &dyn Store) -> Result<u64, AdminError> {
    let offset = ClockOffset::measure(store).await?;
    let now_unix_ms = WallClock.unix_ms();
    Ok(offset.map_or(now_unix_ms, |offset| offset.of_store(now_unix_ms)))
}

/// Returns all leases, and warnings of the records that were skipped.
async fn entries(store: &dyn Store) -> Result<(Vec<LeaseEntry>, Vec<String>), AdminError> {
    let entries = leases(store).await?;
    let strange = strange_keys(store).await?.into_iter();
    let mut warnings: Vec<String> =
        strange.map(|key| format!("skipped `{key}`: its key names no worker; remove it")).collect();
    warnings.extend(warnings_of_skipped(store));
    Ok((entries, warnings))
}

/// Returns the number of workers of a pool, by the layout in its name; 1 if the layout has no worker field.
pub fn workers_of(pool: &str) -> u64 {
    let bits = pool.split(['/', '.']).find_map(|field| field.strip_prefix("worker")?.parse::<u32>().ok());
    1_u64.checked_shl(bits.unwrap_or(0)).unwrap_or(u64::MAX)
}

/// Returns a fresh tag: 128 random bits of the standard library's seeded hasher.
pub fn random_tag() -> Tag {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    let half = || u128::from(RandomState::new().build_hasher().finish());
    Tag(half() << 64 | half())
}

#[cfg(test)]
mod tests {
    use snowmint_store::{Expected, Key};

    use super::*;
    use crate::altered_store::AlteredStore;

    /// Goal: a worker is free as soon as its lease has ended, however coarse the clock of the store is. Method:
    /// a clock that may be 60 s late, and is 59 s late.
    #[tokio::test]
    async fn a_coarse_clock_of_a_store_holds_no_worker() {
        let store = AlteredStore { behind_ms: 59_000, ..AlteredStore::default() };
        let until = WallClock.unix_ms() - 1;
        let value =
            format!(r#"{{"holder":"n1","until":{until},"tag":"{}","released":true}}"#, "0".repeat(32));
        let key = Key::new("workers/time41@1ms.worker10.sequence12.1767225600000/0000000001").unwrap();
        let _ = store.compare_and_set(&key, Expected::Absent, value.as_bytes()).await.unwrap();
        assert_eq!(list(&store).await.unwrap().workers[0].state, WorkerState::Free);
    }

    #[test]
    fn the_name_of_a_pool_shows_its_workers() {
        for (pool, workers) in [
            ("workers/time41@1ms.datacenter5.worker5.sequence12.1288834974657.in0", 32),
            ("time41@1ms.worker31.sequence1.0.in0", 1 << 31),
            ("workers/time41@1ms.sequence22.0.in0", 1),
            // The key of a record that no node wrote.
            ("worker70", u64::MAX),
        ] {
            assert_eq!(workers_of(pool), workers, "{pool}");
        }
    }
}
