//! Goal: a node that restarts while the store is down goes on under the lease it saved, above everything that the process
//! before it made, up to the end of the lease; and its disk may fail.
//! Method: keepers on a store that can be cut off, which are dropped without a release as if the process had died (nothing
//! of them is left but the folder). Real files and clocks; that no instant of a death matters is proven where the rule is
//! written, in `saved/ahead.rs`. The slowest takes 4 s.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cut_off;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cut_off::{CutOff, until};
use snowmint::{AnchoredClock, DatacenterId, Id, Layout, WorkerId};
use snowmint_cluster::lease::{Tag, directory};
use snowmint_cluster::{
    Caller, Holder, KeeperConfig, KeeperConfigError, Keepers, NoId, Pool, SavedLeases, SavedPlaceError,
    Unusable, WorkerChoice, Workers,
};
use snowmint_store::Store;

const WINDOW: Duration = Duration::from_secs(2);

/// As soon as the process before has let it go.
async fn open(folder: &Path) -> SavedLeases {
    until(|| SavedLeases::open(folder, "memory: default").ok()).await
}

fn pool() -> Pool {
    Pool::new(Layout::TWITTER, DatacenterId(0))
}

fn holder() -> Holder {
    Holder::new("me").unwrap()
}

fn start(store: &Arc<CutOff>, saved: SavedLeases) -> Keepers {
    start_with(store, KeeperConfig::new(pool(), holder()).window(WINDOW).saved(saved))
}

fn start_with(store: &Arc<CutOff>, config: KeeperConfig) -> Keepers {
    let store = Arc::clone(store) as Arc<dyn Store>;
    Keepers::start(store, config, Workers::ONE, Arc::new(AnchoredClock::new())).unwrap()
}

async fn ids(keepers: &Keepers, caller: &mut Caller, count: usize) -> Vec<Id> {
    keepers.take(caller, count).await.unwrap().into_iter().flatten().collect()
}

fn instant(id: Id) -> u64 {
    Layout::TWITTER.unix_ms(Layout::TWITTER.split(id).unwrap().timestamp)
}

/// As if timestamps up to there had been used.
fn mark_at(folder: &Path, unix_ms: u64) {
    let path = folder.join("lease-1.json");
    let mut file: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    file["mark"] = unix_ms.into();
    fs::write(&path, file.to_string()).unwrap();
}

/// Draws until there is no id any more; gives the last one and why.
async fn draw_to_the_end(keepers: &Keepers) -> (Option<Id>, String) {
    let mut caller = keepers.caller();
    let mut last = None;
    let why = until(|| match keepers.try_take(&mut caller, 1) {
        Ok(mut batch) => {
            last = batch.next();
            None
        }
        Err(NoId::NoLease { why }) => Some(why),
        Err(NoId::Refused(_)) => None,
        Err(other) => panic!("{other}"),
    })
    .await;
    (last, why)
}

#[tokio::test]
async fn after_a_crash_without_the_store_it_goes_on_to_the_end_of_the_lease() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let keepers = start(&store, open(folder.path()).await);
    let worker = keepers.ready().await.unwrap().worker;
    let mut caller = keepers.caller();
    let mut last = ids(&keepers, &mut caller, 10_000).await.pop().unwrap();
    store.cut(true);
    drop((keepers, caller));

    // Twice: what the second process makes counts for the third.
    for _ in 0..2 {
        let saved = open(folder.path()).await;
        let granted = saved.usable(&pool(), &holder(), instant(last)).unwrap().unwrap();
        let keepers = start(&store, saved);
        let status = keepers.ready().await.unwrap();
        assert_eq!((status.worker, status.until_unix_ms), (worker, Some(granted)));
        let mut caller = keepers.caller();
        let made = ids(&keepers, &mut caller, 1000).await;
        assert!(last < made[0] && instant(last) < instant(made[0]), "above all that may have been used");
        last = *made.last().unwrap();
    }

    let keepers = start(&store, open(folder.path()).await);
    keepers.ready().await.unwrap();
    let (ended, why) = draw_to_the_end(&keepers).await;
    assert!(ended > Some(last));
    assert!(why.contains("the lease ended at") && why.contains("unplugged"), "{why}");
    let until_unix_ms = keepers.status().until_unix_ms.unwrap();
    assert!(instant(ended.unwrap()) < until_unix_ms);
    drop(keepers);
    let lapsed = open(folder.path()).await.usable(&pool(), &holder(), until_unix_ms);
    assert_eq!(lapsed, Err(Unusable::Lapsed { until_unix_ms }));
}

/// Goal: two keepers never go on under one saved lease. Method: a process that died left a lease, the store is away, and
/// two keepers are started on one folder: through a clone of its handle, and after its lock file was lost.
#[tokio::test]
async fn one_keeper_at_a_time_saves_leases_in_a_folder() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    drop({
        let keepers = start(&store, open(folder.path()).await);
        keepers.ready().await.unwrap();
        keepers
    });
    store.cut(true);
    let saved = open(folder.path()).await;
    let config = |saved| KeeperConfig::new(pool(), holder()).window(WINDOW).saved(saved);
    let try_start = |saved| {
        let store = Arc::clone(&store) as Arc<dyn Store>;
        Keepers::start(store, config(saved), Workers::ONE, Arc::new(AnchoredClock::new()))
    };
    let first = try_start(saved.clone()).unwrap();
    let refused = |second: Result<Keepers, KeeperConfigError>| async {
        let error = match second {
            Err(error) => error,
            Ok(second) => {
                let (one, other) = tokio::join!(async { draw(&first).await }, async { draw(&second).await });
                panic!("{} of {} ids came twice", one.intersection(&other).count(), one.len());
            }
        };
        assert!(matches!(error, KeeperConfigError::Saved(SavedPlaceError::Taken { .. })), "{error:?}");
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

/// What it makes in a while.
async fn draw(keepers: &Keepers) -> BTreeSet<Id> {
    keepers.ready().await.unwrap();
    let mut caller = keepers.caller();
    ids(keepers, &mut caller, 10_000).await.into_iter().collect()
}

#[tokio::test]
async fn when_the_store_is_back_the_lease_is_renewed() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let keepers = start(&store, open(folder.path()).await);
    let worker = keepers.ready().await.unwrap().worker;
    store.cut(true);
    drop(keepers);
    let keepers = start(&store, open(folder.path()).await);
    assert_eq!(keepers.ready().await.unwrap().worker, worker);
    store.cut(false);
    until(|| (keepers.status().renewals > 0).then_some(())).await;
    let mut caller = keepers.caller();
    let mut last = None;
    let beyond = keepers.status().until_unix_ms.unwrap();
    until(|| {
        let mut batch = match keepers.try_take(&mut caller, 1) {
            Ok(batch) => batch,
            Err(NoId::Refused(refusal)) if refusal.retry_after_ms().is_some() => return None,
            Err(other) => panic!("no gap: {other}"),
        };
        let id = batch.next();
        assert!(id > last);
        last = id;
        id.filter(|id| instant(*id) > beyond)
    })
    .await;
    assert_eq!((keepers.status().worker, keepers.status().lost), (worker, 0));
}

/// Goal: where the store is there, nobody waits for what the dead process may have used. Method: the file is made to
/// say that this is half a minute.
#[tokio::test]
async fn with_the_store_another_lease_is_taken_rather_than_waited_for() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let config = |saved| KeeperConfig::new(pool(), holder()).window(Duration::from_mins(1)).saved(saved);
    let keepers = start_with(&store, config(open(folder.path()).await));
    let worker = keepers.ready().await.unwrap().worker;
    let mut caller = keepers.caller();
    let last = ids(&keepers, &mut caller, 10).await[9];
    drop((keepers, caller));
    let saved = open(folder.path()).await;
    mark_at(folder.path(), instant(last) + 30_000);
    let keepers = start_with(&store, config(saved));
    let ready = tokio::time::timeout(Duration::from_secs(20), keepers.ready()).await;
    assert_ne!(ready.expect("it waits for nothing").unwrap().worker, worker);
}

/// As above, but the store comes back while the saved lease is waited for.
#[tokio::test]
async fn when_the_store_comes_back_first_another_lease_is_taken() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let config = |saved| KeeperConfig::new(pool(), holder()).window(Duration::from_mins(1)).saved(saved);
    let keepers = start_with(&store, config(open(folder.path()).await));
    let worker = keepers.ready().await.unwrap().worker;
    let last = ids(&keepers, &mut keepers.caller(), 10).await[9];
    store.cut(true);
    drop(keepers);
    let saved = open(folder.path()).await;
    mark_at(folder.path(), instant(last) + 30_000);
    let keepers = start_with(&store, config(saved));
    until(|| keepers.status().waiting.filter(|why| why.contains("the saved lease is used from"))).await;
    store.cut(false);
    let ready = tokio::time::timeout(Duration::from_secs(20), keepers.ready()).await;
    assert_ne!(ready.expect("it waits no longer").unwrap().worker, worker);
}

#[tokio::test]
async fn a_lease_that_was_given_back_is_not_saved_any_more() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let keepers = start(&store, open(folder.path()).await);
    keepers.ready().await.unwrap();
    let file = folder.path().join("lease-1.json");
    assert!(file.exists());
    keepers.release(Duration::from_secs(5)).await;
    assert!(!file.exists());
    drop(keepers);
    assert_eq!(open(folder.path()).await.usable(&pool(), &holder(), 0), Ok(None));
}

/// Once a release has returned, nothing of the keeper saves leases any more: the next one starts. Method: on several threads,
/// where what was aborted ends a moment later; again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_keeper_starts_in_the_place_of_one_that_was_released() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let saved = open(folder.path()).await;
    for _ in 0..200 {
        let keepers = start(&store, saved.clone());
        keepers.ready().await.unwrap();
        keepers.release(Duration::from_secs(5)).await;
    }
    // Nor does one that was left to run out.
    store.cut(true);
    for _ in 0..20 {
        let keepers = start(&store, saved.clone());
        keepers.release(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn a_saved_lease_of_another_worker_than_the_one_wanted_is_left_alone() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let fixed = |worker, saved| {
        let only = WorkerChoice::Only(WorkerId(worker));
        KeeperConfig::new(pool(), holder()).window(WINDOW).worker(only).saved(saved)
    };
    let keepers = start_with(&store, fixed(7, open(folder.path()).await));
    assert_eq!(keepers.ready().await.unwrap().worker, Some(WorkerId(7)));
    drop(keepers);
    let keepers = start_with(&store, fixed(8, open(folder.path()).await));
    assert_eq!(keepers.ready().await.unwrap().worker, Some(WorkerId(8)));
}

#[tokio::test]
async fn where_the_lease_cannot_be_saved_ids_go_on_unsaved() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let keepers = start(&store, open(folder.path()).await);
    keepers.ready().await.unwrap();
    let (file, fresh) = (folder.path().join("lease-1.json"), folder.path().join("lease-1.json.new"));
    // A file cannot be written where a folder is.
    until(|| fs::create_dir(&fresh).ok()).await;
    let why = until(|| keepers.status().unsaved).await;
    assert!(why.contains("lease-1.json"), "{why}");
    assert!(!file.exists(), "nobody goes on under what was saved last");
    let mut caller = keepers.caller();
    let last = ids(&keepers, &mut caller, 1).await[0];
    until(|| {
        let id = keepers.try_take(&mut caller, 1).expect("ids go on").next().unwrap();
        (instant(id) > instant(last) + 2 * 2000).then_some(())
    })
    .await;
    fs::remove_dir(&fresh).unwrap();
    until(|| keepers.status().unsaved.is_none().then_some(())).await;
    assert!(file.exists());
}

#[tokio::test]
async fn where_the_file_can_neither_be_written_nor_removed_ids_end_where_it_says() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let data = folder.path().join("data");
    let keepers = start(&store, open(&data).await);
    keepers.ready().await.unwrap();
    let gone = folder.path().join("gone");
    fs::rename(&data, &gone).unwrap();
    let (last, why) = draw_to_the_end(&keepers).await;
    assert!(why.contains("can neither be saved"), "{why}");
    let saved: serde_json::Value =
        serde_json::from_slice(&fs::read(gone.join("lease-1.json")).unwrap()).unwrap();
    assert!(instant(last.unwrap()) < saved["mark"].as_u64().unwrap());
    fs::rename(&gone, &data).unwrap();
    let mut caller = keepers.caller();
    let next = until(|| keepers.try_take(&mut caller, 1).ok()).await.next();
    assert!(next > last);
}

/// Goal: a lease that cannot be saved when it is granted is used as soon as it can be, and no other before. Method: the
/// worker is taken away while the folder is.
#[tokio::test]
async fn a_lease_granted_while_the_disk_is_away_is_used_once_it_is_back() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let data = folder.path().join("data");
    let keepers = start(&store, open(&data).await);
    let first = keepers.ready().await.unwrap().worker;
    let mut caller = keepers.caller();
    let last = ids(&keepers, &mut caller, 10).await[9];
    let gone = folder.path().join("gone");
    fs::rename(&data, &gone).unwrap();
    loop {
        let entries = directory::leases(&*store).await.unwrap();
        let evicted = directory::evict(&*store, &entries[0], Tag(1)).await.unwrap();
        if matches!(evicted, Some(directory::Eviction::FreeFrom(_))) {
            break;
        }
    }
    until(|| keepers.status().worker.is_none().then_some(())).await;
    assert_eq!((keepers.status().lost, keepers.status().until_unix_ms), (1, None));
    let refused = keepers.try_take(&mut caller, 1).unwrap_err().to_string();
    assert!(refused.contains("can neither be saved nor its file removed"), "{refused}");
    // Renewals do not make it usable either.
    let renewals = keepers.status().renewals;
    until(|| (keepers.status().renewals > renewals).then_some(())).await;
    assert!(keepers.status().worker.is_none() && keepers.try_take(&mut caller, 1).is_err());
    fs::rename(&gone, &data).unwrap();
    let next = until(|| keepers.try_take(&mut caller, 1).ok()).await.next().unwrap();
    let worker = Some(Layout::TWITTER.split(next).unwrap().worker);
    assert!(next > last && worker != first);
    // Told a moment after it is put up.
    until(|| (keepers.status().worker == worker).then_some(())).await;
}

/// Goal: whatever a keeper was doing when it is ended, nothing is made after that. Method: the disk stands still where the
/// file is a pipe that nobody reads, and the release finds the keeper between putting its generator up and saving.
#[cfg(unix)]
#[tokio::test]
async fn a_generator_that_was_just_put_up_ends_with_its_keeper() {
    let (store, folder) = (Arc::new(CutOff::default()), tempfile::tempdir().unwrap());
    let saved = open(folder.path()).await;
    let pipe = folder.path().join("lease-1.json.new");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let keepers = start(&store, saved);
    // The write that begins the lease stands still, and the next one queues behind it.
    tokio::time::sleep(Duration::from_millis(500)).await;
    fs::read(&pipe).unwrap();
    let mut caller = keepers.caller();
    let _lost = until(|| keepers.try_take(&mut caller, 1).ok()).await;
    assert_eq!(keepers.status().worker, None, "it waits for the second write");
    keepers.release(Duration::from_millis(300)).await;
    let after = keepers.try_take(&mut caller, 1);
    // Let go in any case: the test's end waits for the write.
    fs::read(&pipe).unwrap();
    assert!(matches!(after, Err(NoId::NoLease { .. })), "{after:?}");
}
