//! Tests of the conformance suite: for each fault of a store, the check for that fault finds it.
//! Without these tests, a check that checks nothing would always pass.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use snowmint_store::conformance::acknowledged::{Account, Operation};
use snowmint_store::conformance::{self, Area, Checked};
use snowmint_store::{
    Expected, Key, MAX_NUMBER, MemoryStore, Revision, Store, StoreError, StoreErrorKind, Swap, Versioned,
};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    FindsWhatIsNotThere,
    InsertsOverRecords,
    IgnoresTheRevision,
    WritesInSpiteOfConflict,
    RevisionsStandStill,
    RevisionsComeBack,
    FoldsCase,
    CutsAtNul,
    ListsWithWildcards,
    ListsInAnyOrder,
    ListsAThousand,
    ForgetsWrites,
    ReadsLate,
    ChecksThenWrites,
    ChecksThenInserts,
    ConflictsForNoReason,
    Unplugged,
    KeepsNothing,
    CachesReads,
    AddsFromOne,
    AddsInFloatingPoint,
    PadsSums,
    AddsUnseen,
    TakesTextForZero,
    TrimsNumbers,
    WritesBeforeItLooks,
    Saturates,
    Wraps,
    AddsTwoAtOnce,
    AddsFromACache,
    ForgetsSums,
}

/// A memory store with one fault.
#[derive(Debug)]
struct Faulty {
    inner: MemoryStore,
    fault: Fault,
    calls: AtomicU64,
    earlier: Mutex<BTreeMap<Key, Option<Versioned>>>,
    /// Additions that the records do not show.
    unseen: MemoryStore,
    /// Numbers reserved but not yet returned: the first one, and how many.
    reserved: tokio::sync::Mutex<(u64, u64)>,
}

impl Faulty {
    fn new(inner: MemoryStore, fault: Fault) -> Self {
        let (calls, earlier, unseen) = (AtomicU64::new(0), Mutex::default(), MemoryStore::new());
        Self { inner, fault, calls, earlier, unseen, reserved: tokio::sync::Mutex::default() }
    }

    fn every(&self, nth: u64) -> bool {
        self.calls.fetch_add(1, Ordering::SeqCst) % nth == nth - 1
    }

    fn stored(&self, key: &Key) -> Key {
        if self.fault == Fault::FoldsCase {
            Key::new(key.as_str().to_lowercase()).unwrap()
        } else {
            key.clone()
        }
    }

    fn shown(&self, mut record: Versioned) -> Versioned {
        match self.fault {
            Fault::RevisionsStandStill => record.revision = Revision(1),
            Fault::CutsAtNul => record.value = record.value.split(|it| *it == 0).next().unwrap().to_vec(),
            _ => {}
        }
        record
    }

    async fn write_anyway(&self, key: &Key, value: &[u8]) -> Result<Swap, StoreError> {
        loop {
            let now = self.inner.load(key).await?;
            let now = now.map_or(Expected::Absent, |it| Expected::Revision(it.revision));
            if let done @ Swap::Done(_) = self.inner.compare_and_set(key, now, value).await? {
                return Ok(done);
            }
        }
    }

    async fn check_then_write(
        &self,
        key: &Key,
        expected: Expected,
        value: &[u8],
    ) -> Result<Swap, StoreError> {
        let now = self.inner.load(key).await?.map_or(Expected::Absent, |it| Expected::Revision(it.revision));
        // Long enough for the other writers to check as well.
        tokio::time::sleep(Duration::from_millis(1)).await;
        if now == expected { self.write_anyway(key, value).await } else { Ok(Swap::Conflict) }
    }
}

#[async_trait]
impl Store for Faulty {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        let found = self.inner.load(&self.stored(key)).await?.map(|it| self.shown(it));
        match self.fault {
            Fault::Unplugged => {
                Err(StoreError::new(StoreErrorKind::Unavailable, "load", self.describe(), "no"))
            }
            Fault::FindsWhatIsNotThere => {
                Ok(Some(found.unwrap_or(Versioned { value: Vec::new(), revision: Revision(0) })))
            }
            Fault::RevisionsComeBack => Ok(self.earlier.lock().unwrap().get(key).cloned().flatten()),
            // Answers one read in five with the result of the read before it.
            Fault::ReadsLate => {
                let before = self.earlier.lock().unwrap().insert(key.clone(), found.clone());
                Ok(if self.every(5) { before.flatten().or(found) } else { found })
            }
            Fault::CachesReads => {
                Ok(self.earlier.lock().unwrap().entry(key.clone()).or_insert(found).clone())
            }
            _ => Ok(found),
        }
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        let key = &self.stored(key);
        match self.fault {
            Fault::InsertsOverRecords if expected == Expected::Absent => self.write_anyway(key, value).await,
            Fault::IgnoresTheRevision if expected != Expected::Absent => self.write_anyway(key, value).await,
            Fault::ChecksThenWrites if expected != Expected::Absent => {
                self.check_then_write(key, expected, value).await
            }
            Fault::ChecksThenInserts if expected == Expected::Absent => {
                self.check_then_write(key, expected, value).await
            }
            Fault::WritesInSpiteOfConflict => {
                let swap = self.inner.compare_and_set(key, expected, value).await?;
                if swap == Swap::Conflict && expected != Expected::Absent {
                    let _ = self.write_anyway(key, value).await?;
                }
                Ok(swap)
            }
            Fault::RevisionsStandStill => {
                let now =
                    self.load(key).await?.map_or(Expected::Absent, |it| Expected::Revision(it.revision));
                if now != expected {
                    return Ok(Swap::Conflict);
                }
                let _ = self.write_anyway(key, value).await?;
                Ok(Swap::Done(Revision(1)))
            }
            Fault::RevisionsComeBack => {
                // A revision computed from the value, like an entity tag.
                let tag = Revision(value.iter().fold(1, |sum, it| sum * 31 + u64::from(*it)) % 1_000_003);
                let mut records = self.earlier.lock().unwrap();
                let now = records.get(key).cloned().flatten();
                if now.map_or(Expected::Absent, |it| Expected::Revision(it.revision)) != expected {
                    return Ok(Swap::Conflict);
                }
                records.insert(key.clone(), Some(Versioned { value: value.to_vec(), revision: tag }));
                Ok(Swap::Done(tag))
            }
            Fault::ForgetsWrites if self.every(7) => Ok(Swap::Done(Revision(1 << 40))),
            Fault::ConflictsForNoReason if self.every(20) => Ok(Swap::Conflict),
            _ => self.inner.compare_and_set(key, expected, value).await,
        }
    }

    async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
        let text = async || match self.inner.load(key).await {
            Ok(found) => {
                Ok(found.map(|it| String::from_utf8_lossy(&it.value).into_owned()).unwrap_or_default())
            }
            Err(error) => Err(error),
        };
        let held = async || text().await.map(|it| it.trim().parse::<u64>().unwrap_or(0));
        let write = async |sum: String| self.write_anyway(key, sum.as_bytes()).await;
        match self.fault {
            Fault::AddsFromOne => self.inner.add(key, count).await.map(|before| before + 1),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_precision_loss,
                clippy::cast_sign_loss,
                reason = "the fault"
            )]
            Fault::AddsInFloatingPoint => self.inner.add(key, count).await.map(|before| before as f64 as u64),
            Fault::PadsSums => {
                let before = held().await?;
                let _ = write(format!("{:03}", before + count.get())).await?;
                Ok(before)
            }
            // Like a store whose additions go to a separate place.
            Fault::AddsUnseen | Fault::ForgetsSums => self.unseen.add(key, count).await,
            Fault::TakesTextForZero if held().await? == 0 => {
                let _ = write(count.to_string()).await?;
                Ok(0)
            }
            Fault::TrimsNumbers => {
                let (number, before) = (text().await?.trim().to_owned(), held().await?);
                if before.to_string() == number {
                    let _ = write((before + count.get()).to_string()).await?;
                    return Ok(before);
                }
                self.inner.add(key, count).await
            }
            Fault::WritesBeforeItLooks => {
                let _ = write(text().await?).await?;
                self.inner.add(key, count).await
            }
            Fault::Saturates | Fault::Wraps => {
                let before = held().await?;
                let sum = before.saturating_add(count.get()).min(MAX_NUMBER);
                let sum = if self.fault == Fault::Wraps { before.wrapping_add(count.get()) } else { sum };
                let _ = write(sum.to_string()).await?;
                Ok(before)
            }
            Fault::AddsTwoAtOnce => {
                let before = held().await?;
                tokio::time::sleep(Duration::from_millis(1)).await;
                let _ = write((before + count.get()).to_string()).await?;
                Ok(before)
            }
            // Reserves ten times as many numbers and returns them from memory, per handle: none twice, but
            // out of order.
            Fault::AddsFromACache => {
                let mut reserved = self.reserved.lock().await;
                if reserved.1 < count.get() {
                    let many = count.saturating_mul(NonZeroU64::new(10).unwrap());
                    *reserved = (self.inner.add(key, many).await?, many.get());
                }
                let first = reserved.0;
                *reserved = (first + count.get(), reserved.1 - count.get());
                Ok(first)
            }
            _ => self.inner.add(key, count).await,
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        let mut found = self.inner.list(prefix).await?;
        match self.fault {
            Fault::ListsWithWildcards => {
                let all = self.inner.list("").await?;
                let fits = |key: &Key| {
                    let key = key.as_str().as_bytes();
                    key.len() >= prefix.len() && prefix.bytes().zip(key).all(|(a, b)| a == b'_' || a == *b)
                };
                found = all.into_iter().filter(|(key, _)| fits(key)).collect();
            }
            Fault::ListsInAnyOrder => found.reverse(),
            Fault::ListsAThousand => found.truncate(1000),
            _ => {}
        }
        Ok(found.into_iter().map(|(key, record)| (key, self.shown(record))).collect())
    }

    fn describe(&self) -> String {
        format!("faulty:{:?}", self.fault)
    }
}

/// The faults, each with the check that has to find it.
const FAULTS: [(Fault, &str); 31] = [
    (Fault::FindsWhatIsNotThere, "absent_loads_none"),
    (Fault::Unplugged, "absent_loads_none"),
    (Fault::InsertsOverRecords, "insert_happens_once"),
    (Fault::IgnoresTheRevision, "swap_needs_the_revision"),
    (Fault::WritesInSpiteOfConflict, "conflict_changes_nothing"),
    (Fault::RevisionsStandStill, "revisions_grow"),
    (Fault::RevisionsComeBack, "revisions_grow"),
    (Fault::FoldsCase, "keys_are_apart"),
    (Fault::CutsAtNul, "values_come_back"),
    (Fault::ListsWithWildcards, "list_is_by_prefix"),
    (Fault::ListsInAnyOrder, "list_is_in_order"),
    (Fault::ListsAThousand, "list_is_whole"),
    (Fault::ReadsLate, "writers_make_one_line"),
    (Fault::ChecksThenWrites, "writers_make_one_line"),
    (Fault::ForgetsWrites, "writers_make_one_line"),
    (Fault::ConflictsForNoReason, "revisions_grow"),
    (Fault::ChecksThenInserts, "one_of_many_inserts"),
    (Fault::CachesReads, "handles_see_each_other"),
    (Fault::KeepsNothing, "records_survive_reopening"),
    (Fault::AddsFromOne, "adding_begins_at_0"),
    (Fault::AddsInFloatingPoint, "adding_begins_at_0"),
    (Fault::PadsSums, "adding_begins_at_0"),
    (Fault::AddsUnseen, "adding_mixes_with_swaps"),
    (Fault::TakesTextForZero, "adding_refuses_text"),
    (Fault::TrimsNumbers, "adding_refuses_text"),
    (Fault::WritesBeforeItLooks, "adding_refuses_text"),
    (Fault::Saturates, "adding_stops_at_the_last_number"),
    (Fault::Wraps, "adding_stops_at_the_last_number"),
    (Fault::AddsTwoAtOnce, "adders_share_no_number"),
    (Fault::AddsFromACache, "adders_share_no_number"),
    (Fault::ForgetsSums, "added_numbers_survive_reopening"),
];

async fn check(name: &str, handles: &[Arc<dyn Store>], open: impl AsyncFn() -> Arc<dyn Store>) -> Checked {
    let area = &Area::new(Arc::clone(&handles[0]));
    match name {
        "absent_loads_none" => conformance::absent_loads_none(area).await,
        "insert_happens_once" => conformance::insert_happens_once(area).await,
        "swap_needs_the_revision" => conformance::swap_needs_the_revision(area).await,
        "conflict_changes_nothing" => conformance::conflict_changes_nothing(area).await,
        "revisions_grow" => conformance::revisions_grow(area).await,
        "keys_are_apart" => conformance::keys_are_apart(area).await,
        "values_come_back" => conformance::values_come_back(area).await,
        "list_is_by_prefix" => conformance::list_is_by_prefix(area).await,
        "list_is_in_order" => conformance::list_is_in_order(area).await,
        "list_is_whole" => conformance::list_is_whole(area).await,
        "writers_make_one_line" => conformance::writers_make_one_line(area, handles).await,
        "one_of_many_inserts" => conformance::one_of_many_inserts(area, handles).await,
        "handles_see_each_other" => conformance::handles_see_each_other(area, handles).await,
        "records_survive_reopening" => conformance::records_survive_reopening(area, &open).await,
        "adding_begins_at_0" => conformance::adding_begins_at_0(area).await,
        "adding_mixes_with_swaps" => conformance::adding_mixes_with_swaps(area).await,
        "adding_refuses_text" => conformance::adding_refuses_text(area).await,
        "adding_stops_at_the_last_number" => conformance::adding_stops_at_the_last_number(area).await,
        "adders_share_no_number" => conformance::adders_share_no_number(area, handles).await,
        "added_numbers_survive_reopening" => conformance::added_numbers_survive_reopening(area, &open).await,
        _ => panic!("no check {name}"),
    }
}

/// Four handles on shared records, and the records that a fifth would find.
fn faulty(fault: Fault) -> (Vec<Arc<dyn Store>>, impl AsyncFn() -> Arc<dyn Store>) {
    let shared = MemoryStore::new();
    let handle = move |inner| Arc::new(Faulty::new(inner, fault)) as Arc<dyn Store>;
    let handles = (0..4).map(|_| handle(shared.clone())).collect();
    let reopened = if fault == Fault::KeepsNothing { MemoryStore::new() } else { shared };
    (handles, async move || handle(reopened.clone()))
}

/// Goal: each check can fail. Method: a store with one fault, that check alone, and the text of its finding.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_fault_is_found_by_its_check() {
    for (fault, name) in FAULTS {
        let (handles, open) = faulty(fault);
        let found = check(name, &handles, open).await.expect_err(&format!("{name} did not find {fault:?}"));
        println!("{fault:?}: {found:?}");
    }
}

/// Goal: the suite contains every check. Method: the whole suite on each faulty store.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_whole_suite_finds_every_fault() {
    for (fault, _) in FAULTS {
        let (handles, open) = faulty(fault);
        let opened = AtomicUsize::new(0);
        let suite = conformance::run(async || match handles.get(opened.fetch_add(1, Ordering::SeqCst)) {
            Some(handle) => Arc::clone(handle),
            None => open().await,
        });
        let violation = suite.await.expect_err(&format!("the suite did not find {fault:?}"));
        println!("{fault:?}: {violation}");
    }
}

/// The lie of a store that fails.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Lie {
    /// Answers before the commit, which fails.
    GivesNumbersUncommitted,
    AcknowledgesWritesUncommitted,
    /// Reports that nothing was written, although it was.
    RefusesNumbersItTook,
    RefusesWritesItMade,
    /// Returns data that was never written, or no longer returns data that was.
    ShowsWritesItRefused,
    HidesWrites,
    CallsReadsUnknown,
    /// None: every call fails with an unknown outcome, after its write or before it.
    None,
}

const LIES: [Lie; 7] = [
    Lie::GivesNumbersUncommitted,
    Lie::AcknowledgesWritesUncommitted,
    Lie::RefusesNumbersItTook,
    Lie::RefusesWritesItMade,
    Lie::ShowsWritesItRefused,
    Lie::HidesWrites,
    Lie::CallsReadsUnknown,
];

/// A memory store that fails at every third call, and lies about it.
#[derive(Debug)]
struct Failing {
    inner: MemoryStore,
    lie: Lie,
    calls: AtomicU64,
    refused: Mutex<Option<Vec<u8>>>,
}

impl Failing {
    fn error(kind: StoreErrorKind) -> StoreError {
        StoreError::new(kind, "call", "failing:", "the disk is full")
    }

    /// Fails every third time, alternately before and after the write.
    fn turn(&self) -> Option<bool> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        call.is_multiple_of(3).then_some(call.is_multiple_of(2))
    }
}

#[async_trait]
impl Store for Failing {
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        let mut found = self.inner.load(key).await?;
        match self.lie {
            Lie::CallsReadsUnknown if self.turn().is_some() => {
                return Err(Self::error(StoreErrorKind::OutcomeUnknown));
            }
            Lie::HidesWrites if self.turn().is_some() => return Ok(None),
            Lie::ShowsWritesItRefused => {
                if let (Some(record), Some(refused)) = (&mut found, self.refused.lock().unwrap().clone()) {
                    record.value = refused;
                }
            }
            _ => {}
        }
        Ok(found)
    }

    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        let Some(written) = self.turn() else {
            return self.inner.compare_and_set(key, expected, value).await;
        };
        match self.lie {
            Lie::AcknowledgesWritesUncommitted => Ok(Swap::Done(Revision(1 << 40))),
            Lie::RefusesWritesItMade => {
                let _ = self.inner.compare_and_set(key, expected, value).await?;
                Err(Self::error(StoreErrorKind::Full))
            }
            Lie::ShowsWritesItRefused => {
                *self.refused.lock().unwrap() = Some(value.to_vec());
                Err(Self::error(StoreErrorKind::Full))
            }
            _ => {
                if written {
                    let _ = self.inner.compare_and_set(key, expected, value).await?;
                }
                Err(Self::error(StoreErrorKind::OutcomeUnknown))
            }
        }
    }

    async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
        let Some(written) = self.turn() else { return self.inner.add(key, count).await };
        match self.lie {
            Lie::GivesNumbersUncommitted => {
                let held = self.inner.load(key).await?.map(|it| String::from_utf8(it.value).unwrap());
                Ok(held.map_or(0, |it| it.parse().unwrap()))
            }
            Lie::RefusesNumbersItTook => {
                self.inner.add(key, count).await?;
                Err(Self::error(StoreErrorKind::Full))
            }
            _ => {
                if written {
                    self.inner.add(key, count).await?;
                }
                Err(Self::error(StoreErrorKind::OutcomeUnknown))
            }
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
        self.inner.list(prefix).await
    }

    fn describe(&self) -> String {
        format!("failing:{:?}", self.lie)
    }
}

async fn account_for(lie: Lie) -> Checked {
    let inner = MemoryStore::new();
    let (calls, refused) = (AtomicU64::new(0), Mutex::default());
    let failing = Failing { inner: inner.clone(), lie, calls, refused };
    let mut account = Account::new();
    for _ in 0..20 {
        for operation in Operation::ALL {
            let _ = account.call(&failing, operation).await?;
        }
        account.check(&inner).await?;
    }
    Ok(())
}

/// Goal: an account finds every lie of a store that fails, and no lie in one that only fails. Method: one lie
/// each.
#[tokio::test]
async fn an_account_finds_every_lie() {
    account_for(Lie::None).await.unwrap();
    for lie in LIES {
        let found = account_for(lie).await.expect_err(&format!("no account found {lie:?}"));
        println!("{lie:?}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_memory_store_keeps_the_contract() {
    let store = MemoryStore::new();
    conformance::run(async || Arc::new(store.clone()) as Arc<dyn Store>).await.unwrap();
}

#[tokio::test]
async fn clones_of_a_memory_store_share_records_and_new_stores_do_not() {
    let store = MemoryStore::new();
    let key = Key::new("a").unwrap();
    let _ = store.compare_and_set(&key, Expected::Absent, b"value").await.unwrap();
    assert_eq!(store.clone().load(&key).await.unwrap().unwrap().value, b"value");
    assert_eq!(MemoryStore::new().load(&key).await.unwrap(), None);
    assert_eq!(store.describe(), "memory:");
}
