//! Goal: a node that restarts while the store is down resumes its saved lease up to the end, with ids above
//! those of the previous process. Its disk may fail. Method: leases on a store that can be cut off, dropped
//! without a release as if the process had died. Only their directory remains. Real files and clocks. The
//! unit tests of `saved/saver.rs` show that the instant of a death does not matter. The slowest test takes 4
//! s.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::support::cut_off_store::{CutOff, until};
use snowmint::clock::{Clock as _, WallClock};
use snowmint::{DatacenterId, Id, Layout, WorkerId};
use snowmint_cluster::lease::{Tag, admin};
use snowmint_cluster::{
    Holder, LeaseConfig, LeaseConfigError, LeaseHandle, Leases, NextIdError, ResumeError, SavedLeases,
    SavedSlotError, WorkerChoice, WorkerPool,
};
use snowmint_store::{Expected, Store, Swap};

const WINDOW: Duration = Duration::from_secs(2);

/// Waits until the previous process has released the lock.
async fn open(folder: &Path) -> SavedLeases {
    until(|| SavedLeases::open(folder, "memory: default").ok()).await
}

fn pool() -> WorkerPool {
    WorkerPool::new(Layout::TWITTER, DatacenterId(0))
}

fn holder() -> Holder {
    Holder::new("me").unwrap()
}

fn start(store: &Arc<CutOff>, saved: SavedLeases) -> Leases {
    start_with(store, LeaseConfig::new(pool(), holder()).window(WINDOW).saved(saved))
}

fn start_with(store: &Arc<CutOff>, config: LeaseConfig) -> Leases {
    let store = Arc::clone(store) as Arc<dyn Store>;
    Leases::start(store, config).unwrap()
}

async fn ids(handle: &mut LeaseHandle, count: usize) -> Vec<Id> {
    handle.take(count).await.unwrap().into_iter().flatten().collect()
}

fn instant(id: Id) -> u64 {
    Layout::TWITTER.unix_ms(Layout::TWITTER.split(id).unwrap().timestamp)
}

/// Changes the file so that it says that timestamps up to this one were used.
fn mark_at(folder: &Path, unix_ms: u64) {
    let path = folder.join("lease-1.json");
    let mut file: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    file["mark"] = unix_ms.into();
    fs::write(&path, file.to_string()).unwrap();
}

/// Takes an id, unless the machine stalled for so long that the lease has ended: it continues once the lease
/// is renewed.
fn try_id(handle: &mut LeaseHandle) -> Option<Id> {
    match handle.try_take(1) {
        Ok(mut batch) => batch.next(),
        Err(NextIdError::Refused(_) | NextIdError::NoLease { .. }) => None,
        Err(other) => panic!("{other}"),
    }
}

/// Takes ids until there are none; returns the last one and the reason.
async fn draw_to_the_end(leases: &Leases) -> (Option<Id>, String) {
    let mut handle = leases.handle();
    let mut last = None;
    let why = until(|| match handle.try_take(1) {
        Ok(mut batch) => {
            last = batch.next();
            None
        }
        Err(NextIdError::NoLease { why }) => Some(why),
        Err(NextIdError::Refused(_)) => None,
        Err(other) => panic!("{other}"),
    })
    .await;
    (last, why)
}

#[tokio::test]
async fn after_a_crash_without_the_store_it_goes_on_to_the_end_of_the_lease() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let leases = start(&store, open(folder.path()).await);
    let worker = leases.ready().await.unwrap().worker;
    let mut handle = leases.handle();
    let mut last = ids(&mut handle, 10_000).await.pop().unwrap();
    store.cut(true);
    drop((leases, handle));

    // Twice: the ids of the second process count for the third.
    for _ in 0..2 {
        let saved = open(folder.path()).await;
        let granted = saved.usable(&pool(), &holder(), instant(last)).unwrap().unwrap();
        let leases = start(&store, saved);
        let status = leases.ready().await.unwrap();
        assert_eq!((status.worker, status.until_unix_ms), (worker, Some(granted)));
        let mut handle = leases.handle();
        let made = ids(&mut handle, 1000).await;
        assert!(last < made[0] && instant(last) < instant(made[0]), "above all that may have been used");
        last = *made.last().unwrap();
    }

    let leases = start(&store, open(folder.path()).await);
    leases.ready().await.unwrap();
    let (ended, why) = draw_to_the_end(&leases).await;
    assert!(ended > Some(last));
    assert!(why.contains("the lease ended at") && why.contains("unplugged"), "{why}");
    let until_unix_ms = leases.status().until_unix_ms.unwrap();
    assert!(instant(ended.unwrap()) < until_unix_ms);
    drop(leases);
    let lapsed = open(folder.path()).await.usable(&pool(), &holder(), until_unix_ms);
    assert_eq!(lapsed, Err(ResumeError::Lapsed { until_unix_ms }));
}

/// Goal: two owners never resume one saved lease. Method: a dead process left a lease, the store is down, and
/// two leases start in one directory: with a clone of its handle, and after its lock file was lost.
#[tokio::test]
async fn leases_are_saved_in_a_directory_by_one_owner_at_a_time() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    drop({
        let leases = start(&store, open(folder.path()).await);
        leases.ready().await.unwrap();
        leases
    });
    store.cut(true);
    let saved = open(folder.path()).await;
    let config = |saved| LeaseConfig::new(pool(), holder()).window(WINDOW).saved(saved);
    let try_start = |saved| {
        let store = Arc::clone(&store) as Arc<dyn Store>;
        Leases::start(store, config(saved))
    };
    let first = try_start(saved.clone()).unwrap();
    let refused = |second: Result<Leases, LeaseConfigError>| async {
        let error = match second {
            Err(error) => error,
            Ok(second) => {
                let (one, other) = tokio::join!(async { draw(&first).await }, async { draw(&second).await });
                panic!("{} of {} ids came twice", one.intersection(&other).count(), one.len());
            }
        };
        assert!(matches!(error, LeaseConfigError::Saved(SavedSlotError::Taken { .. })), "{error:?}");
        assert!(error.to_string().contains(folder.path().to_str().unwrap()), "{error}");
    };
    refused(try_start(saved.clone())).await;
    fs::remove_file(folder.path().join("leases.lock")).unwrap();
    let link = folder.path().with_extension("link");
    std::os::unix::fs::symlink(folder.path(), &link).unwrap();
    let through_link = SavedLeases::open(&link, "memory: default").unwrap();
    fs::remove_file(&link).unwrap();
    refused(try_start(through_link)).await;

    drop(first);
    let again = until(|| try_start(saved.clone()).ok()).await;
    assert!(!draw(&again).await.is_empty());
}

/// Takes some ids.
async fn draw(leases: &Leases) -> BTreeSet<Id> {
    leases.ready().await.unwrap();
    let mut handle = leases.handle();
    ids(&mut handle, 10_000).await.into_iter().collect()
}

#[tokio::test]
async fn when_the_store_is_back_the_lease_is_renewed() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let leases = start(&store, open(folder.path()).await);
    let worker = leases.ready().await.unwrap().worker;
    store.cut(true);
    drop(leases);
    let leases = start(&store, open(folder.path()).await);
    assert_eq!(leases.ready().await.unwrap().worker, worker);
    store.cut(false);
    until(|| (leases.status().renewals > 0).then_some(())).await;
    let mut handle = leases.handle();
    let mut last = None;
    let beyond = leases.status().until_unix_ms.unwrap();
    until(|| {
        let id = try_id(&mut handle)?;
        assert!(Some(id) > last);
        last = Some(id);
        (instant(id) > beyond).then_some(())
    })
    .await;
    assert_eq!((leases.status().worker, leases.status().lost), (worker, 0));
}

/// Goal: if the store is available, the node does not wait for the time that the dead process may have used.
/// Method: according to its file, the dead process used half a minute.
#[tokio::test]
async fn with_the_store_another_lease_is_taken_rather_than_waited_for() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let config = |saved| LeaseConfig::new(pool(), holder()).window(Duration::from_mins(1)).saved(saved);
    let leases = start_with(&store, config(open(folder.path()).await));
    let worker = leases.ready().await.unwrap().worker;
    let mut handle = leases.handle();
    let last = ids(&mut handle, 10).await[9];
    drop((leases, handle));
    let saved = open(folder.path()).await;
    mark_at(folder.path(), instant(last) + 30_000);
    let leases = start_with(&store, config(saved));
    let ready = tokio::time::timeout(Duration::from_secs(20), leases.ready()).await;
    assert_ne!(ready.expect("it waits for nothing").unwrap().worker, worker);
}

/// As above, but the store recovers while the node waits for the saved lease.
#[tokio::test]
async fn when_the_store_comes_back_first_another_lease_is_taken() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let config = |saved| LeaseConfig::new(pool(), holder()).window(Duration::from_mins(1)).saved(saved);
    let leases = start_with(&store, config(open(folder.path()).await));
    let worker = leases.ready().await.unwrap().worker;
    let last = ids(&mut leases.handle(), 10).await[9];
    store.cut(true);
    drop(leases);
    let saved = open(folder.path()).await;
    mark_at(folder.path(), instant(last) + 30_000);
    let leases = start_with(&store, config(saved));
    until(|| leases.status().waiting.filter(|why| why.contains("the saved lease is used from"))).await;
    store.cut(false);
    let ready = tokio::time::timeout(Duration::from_secs(20), leases.ready()).await;
    assert_ne!(ready.expect("it waits no longer").unwrap().worker, worker);
}

#[tokio::test]
async fn a_lease_that_was_given_back_is_not_saved_any_more() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let leases = start(&store, open(folder.path()).await);
    leases.ready().await.unwrap();
    let file = folder.path().join("lease-1.json");
    assert!(file.exists());
    leases.release(Duration::from_secs(5)).await;
    assert!(!file.exists());
    drop(leases);
    assert_eq!(open(folder.path()).await.usable(&pool(), &holder(), 0), Ok(None));
}

/// Goal: after a release, the slot is free for the next leases. Method: many rounds on several threads, where
/// aborted tasks end a moment later.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leases_start_in_the_slot_of_released_ones() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let saved = open(folder.path()).await;
    for _ in 0..200 {
        let leases = start(&store, saved.clone());
        leases.ready().await.unwrap();
        leases.release(Duration::from_secs(5)).await;
    }
    // The same applies to leases that were not released in time.
    store.cut(true);
    for _ in 0..20 {
        let leases = start(&store, saved.clone());
        leases.release(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn a_saved_lease_of_another_worker_than_the_one_wanted_is_left_alone() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let fixed = |worker, saved| {
        let only = WorkerChoice::Only(WorkerId(worker));
        LeaseConfig::new(pool(), holder()).window(WINDOW).worker_choice(only).saved(saved)
    };
    let leases = start_with(&store, fixed(7, open(folder.path()).await));
    assert_eq!(leases.ready().await.unwrap().worker, Some(WorkerId(7)));
    drop(leases);
    let leases = start_with(&store, fixed(8, open(folder.path()).await));
    assert_eq!(leases.ready().await.unwrap().worker, Some(WorkerId(8)));
}

#[tokio::test]
async fn where_the_lease_cannot_be_saved_ids_go_on_unsaved() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let leases = start(&store, open(folder.path()).await);
    leases.ready().await.unwrap();
    let (file, fresh) = (folder.path().join("lease-1.json"), folder.path().join("lease-1.json.new"));
    // A file cannot be written where a folder is.
    until(|| fs::create_dir(&fresh).ok()).await;
    let why = until(|| leases.status().unsaved).await;
    assert!(why.contains("lease-1.json"), "{why}");
    assert!(!file.exists(), "nobody goes on under what was saved last");
    let mut handle = leases.handle();
    let last = ids(&mut handle, 1).await[0];
    until(|| {
        let id = try_id(&mut handle)?;
        (instant(id) > instant(last) + 2 * 2000).then_some(())
    })
    .await;
    fs::remove_dir(&fresh).unwrap();
    until(|| leases.status().unsaved.is_none().then_some(())).await;
    assert!(file.exists());
}

#[tokio::test]
async fn where_the_file_can_neither_be_written_nor_removed_ids_end_where_it_says() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let data = folder.path().join("data");
    let leases = start(&store, open(&data).await);
    leases.ready().await.unwrap();
    let gone = folder.path().join("gone");
    fs::rename(&data, &gone).unwrap();
    let (last, why) = draw_to_the_end(&leases).await;
    assert!(why.contains("can neither be saved"), "{why}");
    let saved: serde_json::Value =
        serde_json::from_slice(&fs::read(gone.join("lease-1.json")).unwrap()).unwrap();
    assert!(instant(last.unwrap()) < saved["mark"].as_u64().unwrap());
    fs::rename(&gone, &data).unwrap();
    let mut handle = leases.handle();
    let next = until(|| handle.try_take(1).ok()).await.next();
    assert!(next > last);
}

/// Goal: a lease that cannot be saved when it is granted is used as soon as it can be saved. Method: the node
/// loses its worker while the directory is missing.
#[tokio::test]
async fn a_lease_granted_while_the_disk_is_away_is_used_once_it_is_back() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let data = folder.path().join("data");
    let leases = start(&store, open(&data).await);
    let first = leases.ready().await.unwrap().worker;
    let mut handle = leases.handle();
    let last = ids(&mut handle, 10).await[9];
    let gone = folder.path().join("gone");
    fs::rename(&data, &gone).unwrap();
    loop {
        let entries = admin::leases(&*store).await.unwrap();
        let evicted = admin::evict(&*store, &entries[0], Tag(1)).await.unwrap();
        if matches!(evicted, Some(admin::Eviction::FreeFrom(_))) {
            break;
        }
    }
    until(|| leases.status().worker.is_none().then_some(())).await;
    assert_eq!((leases.status().lost, leases.status().until_unix_ms), (1, None));
    let refused = handle.try_take(1).unwrap_err().to_string();
    assert!(refused.contains("can neither be saved nor its file removed"), "{refused}");
    // Renewals do not make it usable either.
    let renewals = leases.status().renewals;
    until(|| (leases.status().renewals > renewals).then_some(())).await;
    assert!(leases.status().worker.is_none() && handle.try_take(1).is_err());
    fs::rename(&gone, &data).unwrap();
    let next = until(|| handle.try_take(1).ok()).await.next().unwrap();
    let worker = Some(Layout::TWITTER.split(next).unwrap().worker);
    assert!(next > last && worker != first);
    // The status changes a moment after the lease is usable.
    until(|| (leases.status().worker == worker).then_some(())).await;
}

/// Goal: after a release no id is made, whatever the task was doing. Method: the disk hangs, because the file
/// is a pipe that nobody reads, and the release arrives after the generator was started and before the lease
/// was saved.
#[cfg(unix)]
#[tokio::test]
async fn a_generator_that_was_just_started_ends_with_its_lease() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let saved = open(folder.path()).await;
    let pipe = folder.path().join("lease-1.json.new");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let leases = start(&store, saved);
    // The first write of the lease hangs, and the next one queues behind it.
    tokio::time::sleep(Duration::from_millis(500)).await;
    fs::read(&pipe).unwrap();
    let mut handle = leases.handle();
    let _lost = until(|| handle.try_take(1).ok()).await;
    assert_eq!(leases.status().worker, None, "it waits for the second write");
    leases.release(Duration::from_millis(300)).await;
    let after = handle.try_take(1);
    // Let the write end in any case: the test waits for it.
    fs::read(&pipe).unwrap();
    assert!(matches!(after, Err(NextIdError::NoLease { .. })), "{after:?}");
}

/// Goal: a node that saves its leases keeps making ids over the end of a gap. Method: the record of a clean
/// stop whose clock was 4 s ahead: the lease in the gap is not saved, and its renewals leave the gap.
#[tokio::test]
async fn ids_go_on_where_a_gap_ends() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(CutOff::default());
    let (key, now) = (pool().key(WorkerId(5)).unwrap(), WallClock.unix_ms());
    let ahead = now + 4000;
    let record = format!(
        r#"{{"holder":"me","from":{ahead},"until":{ahead},"tag":"1","unused":[[{},{ahead}]],"released":true}}"#,
        now - 60_000
    );
    let written = store.compare_and_set(&key, Expected::Absent, record.as_bytes()).await.unwrap();
    assert!(matches!(written, Swap::Done(_)));
    let only = WorkerChoice::Only(WorkerId(5));
    let saved = open(folder.path()).await;
    let leases = start_with(
        &store,
        LeaseConfig::new(pool(), holder()).window(WINDOW).worker_choice(only).saved(saved),
    );
    leases.ready().await.unwrap();
    let mut handle = leases.handle();
    let first = instant(ids(&mut handle, 1).await[0]);
    assert!(first < ahead, "{first} is in the gap, which ends at {ahead}");
    until(|| try_id(&mut handle).filter(|id| instant(*id) > ahead + 1000)).await;
}
