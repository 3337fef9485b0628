//! The checks that every backend has to pass, one function for each line of the contract of [`Store`].
//! They write under fresh keys, some ten thousand, and cannot delete them: give them a store to throw away.

mod history;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use self::history::{Event, Seen};
use crate::{Expected, Key, KeyError, Revision, Store, StoreError, Swap, Versioned};

/// How many tasks write at once.
const WRITERS: usize = 16;
/// How many handles on the store they share: several connections, and several writers on each.
const HANDLES: usize = 4;
/// How often each of them tries to swap the one record they all want.
const ROUNDS: usize = 25;
/// How many records the longest list has.
const MANY: usize = 10_000;

/// Where a store broke its contract.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    check: &'static str,
    found: String,
}

impl Violation {
    /// The name of the check that failed, which is the name of its function.
    pub const fn check(&self) -> &'static str {
        self.check
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store breaks its contract, {}: {}", self.check, self.found)
    }
}

impl std::error::Error for Violation {}

/// What a check found wrong, before its name is put to it.
#[derive(Debug)]
pub struct Finding(String);

impl From<String> for Finding {
    fn from(found: String) -> Self {
        Self(found)
    }
}

impl From<StoreError> for Finding {
    fn from(error: StoreError) -> Self {
        Self(format!("a store that should be up failed: {error}"))
    }
}

impl From<KeyError> for Finding {
    fn from(error: KeyError) -> Self {
        Self(format!("a bad key in the check itself: {error}"))
    }
}

/// The result of one check.
pub type Checked = Result<(), Finding>;

/// Fails the check unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($found:tt)+) => {
        if !$holds {
            return Err(Finding(format!($($found)+)));
        }
    };
}

/// A store and a corner of it that no other check uses.
#[derive(Clone, Debug)]
pub struct Area {
    store: Arc<dyn Store>,
    prefix: String,
}

impl Area {
    /// A corner with a random name, so that what earlier runs left behind does not matter.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let random = RandomState::new().build_hasher().finish();
        Self { store, prefix: format!("conformance/{random:016x}/") }
    }

    /// The same corner through another handle on the store.
    #[must_use]
    pub fn through(&self, store: Arc<dyn Store>) -> Self {
        Self { store, prefix: self.prefix.clone() }
    }

    fn key(&self, name: impl fmt::Display) -> Result<Key, KeyError> {
        Key::new(format!("{}{name}", self.prefix))
    }

    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        self.store.load(key).await
    }

    async fn swap(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError> {
        self.store.compare_and_set(key, expected, value).await
    }

    /// Writes where nothing else does, so that a conflict is the store's fault.
    async fn write(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Revision, Finding> {
        match self.swap(key, expected, value).await? {
            Swap::Done(revision) => Ok(revision),
            Swap::Conflict => Err(Finding(format!("{key}: a conflict with nobody, expected {expected:?}"))),
        }
    }

    /// The names under the prefix, without the prefix of the area.
    async fn names(&self, prefix: &str) -> Result<Vec<String>, Finding> {
        let found = self.store.list(&format!("{}{prefix}", self.prefix)).await?;
        let name = |(key, _): (Key, Versioned)| match key.as_str().strip_prefix(&self.prefix) {
            Some(name) => Ok(name.to_owned()),
            None => Err(Finding(format!("list of {}{prefix} found {key}", self.prefix))),
        };
        found.into_iter().map(name).collect()
    }
}

/// Runs every check on the store that `open` opens.
///
/// Each call of `open` must give a handle on the same records, through a connection of its own where the backend has
/// connections. Needs a Tokio runtime; on one with several threads it checks more.
///
/// # Errors
///
/// The first [`Violation`].
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use snowmint_store::{MemoryStore, Store, conformance};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = MemoryStore::new();
/// conformance::run(async || Arc::new(store.clone()) as Arc<dyn Store>).await?;
/// # Ok::<(), conformance::Violation>(())
/// # }).unwrap();
/// ```
pub async fn run(open: impl AsyncFn() -> Arc<dyn Store>) -> Result<(), Violation> {
    let store = open().await;
    let area = || Area::new(Arc::clone(&store));
    named("absent_loads_none", absent_loads_none(&area()).await)?;
    named("insert_happens_once", insert_happens_once(&area()).await)?;
    named("swap_needs_the_revision", swap_needs_the_revision(&area()).await)?;
    named("conflict_changes_nothing", conflict_changes_nothing(&area()).await)?;
    named("revisions_grow", revisions_grow(&area()).await)?;
    named("keys_are_apart", keys_are_apart(&area()).await)?;
    named("values_come_back", values_come_back(&area()).await)?;
    named("list_is_by_prefix", list_is_by_prefix(&area()).await)?;
    named("list_is_in_order", list_is_in_order(&area()).await)?;
    named("list_is_whole", list_is_whole(&area()).await)?;
    let mut handles = vec![Arc::clone(&store)];
    while handles.len() < HANDLES {
        handles.push(open().await);
    }
    named("writers_make_one_line", writers_make_one_line(&area(), &handles).await)?;
    named("one_of_many_inserts", one_of_many_inserts(&area(), &handles).await)?;
    named("handles_see_each_other", handles_see_each_other(&area(), &handles).await)?;
    drop(handles);
    named("records_survive_reopening", records_survive_reopening(&area(), &open).await)
}

fn named(check: &'static str, checked: Checked) -> Result<(), Violation> {
    checked.map_err(|Finding(found)| Violation { check, found })
}

/// A key that was never written has no record, and no list finds it.
///
/// # Errors
///
/// What was found instead.
pub async fn absent_loads_none(area: &Area) -> Checked {
    let found = area.load(&area.key("absent")?).await?;
    ensure!(found.is_none(), "a key never written has {found:?}");
    let names = area.names("").await?;
    ensure!(names.is_empty(), "a prefix never written has {names:?}");
    Ok(())
}

/// A write that expects no record succeeds once.
///
/// # Errors
///
/// What was found instead.
pub async fn insert_happens_once(area: &Area) -> Checked {
    let key = area.key("record")?;
    let revision = area.write(&key, Expected::Absent, b"first").await?;
    let again = area.swap(&key, Expected::Absent, b"second").await?;
    ensure!(again == Swap::Conflict, "the second insert got {again:?}");
    let found = area.load(&key).await?;
    let first = Some(Versioned { value: b"first".to_vec(), revision });
    ensure!(found == first, "wrote {first:?}, loaded {found:?}");
    Ok(())
}

/// A write that expects a revision succeeds at that revision and at no other.
///
/// # Errors
///
/// What was found instead.
pub async fn swap_needs_the_revision(area: &Area) -> Checked {
    let key = area.key("record")?;
    let first = area.write(&key, Expected::Absent, b"0").await?;
    let second = area.write(&key, Expected::Revision(first), b"1").await?;
    let third = area.write(&key, Expected::Revision(second), b"2").await?;
    let never = [0, third.0 + 1, third.0 + 1000, i64::MAX as u64, 1 << 63, u64::MAX].map(Revision);
    for wrong in [first, second].into_iter().chain(never) {
        let got = area.swap(&key, Expected::Revision(wrong), b"lost").await?;
        ensure!(got == Swap::Conflict, "the record is at {third}, a write at {wrong} got {got:?}");
    }
    area.write(&key, Expected::Revision(third), b"3").await?;
    Ok(())
}

/// A conflict leaves the record as it was, and an absent one absent.
///
/// # Errors
///
/// What was found instead.
pub async fn conflict_changes_nothing(area: &Area) -> Checked {
    let (absent, present) = (area.key("absent")?, area.key("present")?);
    let got = area.swap(&absent, Expected::Revision(Revision(1)), b"lost").await?;
    ensure!(got == Swap::Conflict, "a write at a revision where there is no record got {got:?}");
    let found = area.load(&absent).await?;
    ensure!(found.is_none(), "a conflict made a record: {found:?}");

    let first = area.write(&present, Expected::Absent, b"0").await?;
    let second = area.write(&present, Expected::Revision(first), b"1").await?;
    let got = area.swap(&present, Expected::Revision(first), b"lost").await?;
    ensure!(got == Swap::Conflict, "a write at a stale revision got {got:?}");
    let (found, kept) = (area.load(&present).await?, Versioned { value: b"1".to_vec(), revision: second });
    ensure!(found.as_ref() == Some(&kept), "after a conflict {kept:?} is {found:?}");
    Ok(())
}

/// Every write of a key has a greater revision than the one before, also where the value is the same.
///
/// # Errors
///
/// What was found instead.
pub async fn revisions_grow(area: &Area) -> Checked {
    let (key, other) = (area.key("record")?, area.key("other")?);
    let mut at = area.write(&key, Expected::Absent, b"same").await?;
    let mut other_at = area.write(&other, Expected::Absent, b"same").await?;
    for step in 0_u8..50 {
        // Every third value differs, so that the record also comes back to a value it had before.
        let value: &[u8] = if step % 3 == 0 { b"different" } else { b"same" };
        let next = area.write(&key, Expected::Revision(at), value).await?;
        ensure!(next > at, "step {step} went from revision {at} to {next}");
        let found = area.load(&key).await?.map(|it| it.revision);
        ensure!(found == Some(next), "step {step} was acknowledged at {next} and is loaded at {found:?}");
        let stale = area.swap(&key, Expected::Revision(at), value).await?;
        ensure!(stale == Swap::Conflict, "step {step} could be made twice: {stale:?}");
        other_at = area.write(&other, Expected::Revision(other_at), value).await?;
        at = next;
    }
    Ok(())
}

/// Keys that differ in one byte, or in the case of one letter, are different records.
///
/// # Errors
///
/// What was found instead.
pub async fn keys_are_apart(area: &Area) -> Checked {
    let long = "k".repeat(200 - area.prefix.len());
    let names = ["a", "A", "a.", "a/a", "a/A", "a-a", "a_a", "a:a", "a=a", "a@a", "01", "1", "1.0", &long];
    for name in names {
        area.write(&area.key(name)?, Expected::Absent, name.as_bytes()).await?;
    }
    for name in names {
        let found = area.load(&area.key(name)?).await?.map(|it| it.value);
        ensure!(found.as_deref() == Some(name.as_bytes()), "{name} holds {found:?}");
    }
    Ok(())
}

/// Values of every length up to 64 KiB, and of every byte, come back as they were.
///
/// # Errors
///
/// What was found instead.
pub async fn values_come_back(area: &Area) -> Checked {
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let large: Vec<u8> = every_byte.iter().rev().copied().cycle().take(64 * 1024).collect();
    let values: [&[u8]; 7] = [b"", &every_byte, &large, b"\0", b"", b"a\0b\xff\xfe", b"'; --"];
    let key = area.key("record")?;
    let mut expected = Expected::Absent;
    for (nth, value) in values.into_iter().enumerate() {
        let revision = area.write(&key, expected, value).await?;
        let found = area.load(&key).await?;
        let same = found.as_ref().is_some_and(|it| it.value == value && it.revision == revision);
        let length = found.map(|it| it.value.len());
        ensure!(same, "value {nth} of {} bytes comes back with {length:?} bytes or changed", value.len());
        let listed = area.store.list(key.as_str()).await?;
        ensure!(listed.len() == 1 && listed[0].1.value == value, "value {nth} is another in a list");
        expected = Expected::Revision(revision);
    }
    Ok(())
}

/// A list holds the keys that start with the prefix, byte by byte, and no others.
///
/// # Errors
///
/// What was found instead.
pub async fn list_is_by_prefix(area: &Area) -> Checked {
    let names = [
        "workers/A/1",
        "workers/a",
        "workers/a/1",
        "workers/a/2",
        "workers/a_b/1",
        "workers/ab/1",
        "workers/axb/1",
        "workers/b/1",
        "workersa/1",
    ];
    for name in names {
        area.write(&area.key(name)?, Expected::Absent, b"").await?;
    }
    let cases: [(&str, &[&str]); 9] = [
        ("", &names),
        ("workers/a/", &["workers/a/1", "workers/a/2"]),
        ("workers/ab/", &["workers/ab/1"]),
        // `_` stands for any character in some query languages, `%` and `*` for any text.
        ("workers/a_b/", &["workers/a_b/1"]),
        ("workers/a%", &[]),
        ("workers/*", &[]),
        ("workers/A", &["workers/A/1"]),
        ("workers/a/2", &["workers/a/2"]),
        ("workers/c/", &[]),
    ];
    for (prefix, wanted) in cases {
        let found = area.names(prefix).await?;
        ensure!(found == wanted, "list of `{prefix}` is {found:?}, not {wanted:?}");
    }
    Ok(())
}

/// A list is in the order of the bytes of its keys, whatever the order in which they were written.
///
/// # Errors
///
/// What was found instead.
pub async fn list_is_in_order(area: &Area) -> Checked {
    let mut names =
        ["z", "a", "_", "Z", "A", "@", "=", ":", "9", "10", "2", "a/b", "a.b", "a-b", "a/a/z", "-"];
    for name in names {
        area.write(&area.key(name)?, Expected::Absent, b"").await?;
    }
    names.sort_unstable();
    let found = area.names("").await?;
    ensure!(found == names, "the list is {found:?}, not {names:?}");
    Ok(())
}

/// A list of 10,000 records is whole, with the value and the revision of each.
///
/// # Errors
///
/// What was found instead.
pub async fn list_is_whole(area: &Area) -> Checked {
    let mut tasks = JoinSet::new();
    for writer in 0..WRITERS {
        let area = area.clone();
        tasks.spawn(async move {
            let mut written = Vec::new();
            for nth in (writer..MANY).step_by(WRITERS) {
                let (key, value) = (area.key(format_args!("{nth:05}"))?, nth.to_string().into_bytes());
                let revision = area.write(&key, Expected::Absent, &value).await?;
                written.push((key, Versioned { value, revision }));
            }
            Ok(written)
        });
    }
    let mut written: Vec<_> = joined(tasks).await?.into_iter().flatten().collect();
    written.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let found = area.store.list(&area.prefix).await?;
    ensure!(found.len() == MANY, "{MANY} records were written, the list has {}", found.len());
    let wrong = written.iter().zip(&found).find(|(written, found)| written != found);
    ensure!(wrong.is_none(), "written and listed differ: {wrong:?}");
    Ok(())
}

/// Swaps of one record by many writers at once, and the reads between them, have one order that explains them all.
///
/// # Errors
///
/// What in the history no order explains.
pub async fn writers_make_one_line(area: &Area, handles: &[Arc<dyn Store>]) -> Checked {
    let key = area.key("record")?;
    let pace = Arc::new(Pace { clock: AtomicU64::new(0), barrier: Barrier::new(WRITERS) });
    let mut tasks = JoinSet::new();
    for (writer, store) in (0..WRITERS).zip(handles.iter().cycle()) {
        let (area, key, pace) = (area.through(Arc::clone(store)), key.clone(), Arc::clone(&pace));
        tasks.spawn(async move { write_in_turns(&area, &key, &pace, writer).await });
    }
    let events: Vec<Event> = joined(tasks).await?.into_iter().flatten().collect();
    history::check(&events)?;
    // Each swap that happened can have upset one pending swap of each other writer, not more.
    let done = events.iter().filter(|it| matches!(it.seen, Seen::Swapped { .. })).count();
    ensure!(done >= ROUNDS, "only {done} of {} swaps happened", WRITERS * ROUNDS);
    Ok(())
}

/// What keeps the writers together.
struct Pace {
    /// Counts rather than tells time, so that of two calls it is plain which ended before the other began.
    clock: AtomicU64,
    barrier: Barrier,
}

impl Pace {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }
}

async fn write_in_turns(area: &Area, key: &Key, pace: &Pace, writer: usize) -> Result<Vec<Event>, Finding> {
    let mut events = Vec::new();
    for round in 0..ROUNDS {
        let start = pace.tick();
        let found = area.load(key).await?;
        events.push(Event { start, end: pace.tick(), seen: Seen::Read(found.clone()) });
        // In every other round all swaps come at once; in the rest they meet the reads of others.
        if round % 2 == 0 {
            pace.barrier.wait().await;
        } else {
            tokio::task::yield_now().await;
        }
        let expected = found.map_or(Expected::Absent, |it| Expected::Revision(it.revision));
        let value = format!("writer {writer} round {round}").into_bytes();
        let start = pace.tick();
        let seen = match area.swap(key, expected, &value).await? {
            Swap::Done(revision) => Seen::Swapped { expected, wrote: Versioned { value, revision } },
            Swap::Conflict => Seen::Refused { expected },
        };
        events.push(Event { start, end: pace.tick(), seen });
    }
    Ok(events)
}

/// Of many writers that create the same record at once, one does.
///
/// # Errors
///
/// What was found instead.
pub async fn one_of_many_inserts(area: &Area, handles: &[Arc<dyn Store>]) -> Checked {
    for nth in 0..20 {
        let key = area.key(nth)?;
        let barrier = Arc::new(Barrier::new(WRITERS));
        let mut tasks = JoinSet::new();
        for (writer, store) in (0..WRITERS).zip(handles.iter().cycle()) {
            let (area, key, barrier) = (area.through(Arc::clone(store)), key.clone(), Arc::clone(&barrier));
            tasks.spawn(async move {
                barrier.wait().await;
                Ok(area.swap(&key, Expected::Absent, &writer.to_be_bytes()).await?)
            });
        }
        let swaps = joined(tasks).await?;
        let done = swaps.iter().filter(|it| matches!(it, Swap::Done(_))).count();
        ensure!(done == 1, "{done} of {WRITERS} writers created the same record");
    }
    Ok(())
}

/// What one handle has written, every other handle sees at once.
///
/// # Errors
///
/// What was found instead.
pub async fn handles_see_each_other(area: &Area, handles: &[Arc<dyn Store>]) -> Checked {
    let key = area.key("record")?;
    let mut expected = Expected::Absent;
    for (nth, writer) in handles.iter().cycle().take(40).enumerate() {
        let value = nth.to_string().into_bytes();
        let revision = area.through(Arc::clone(writer)).write(&key, expected, &value).await?;
        let wrote = Some(Versioned { value, revision });
        for reader in handles {
            let found = reader.load(&key).await?;
            ensure!(found == wrote, "one handle wrote {wrote:?}, another loads {found:?}");
        }
        expected = Expected::Revision(revision);
    }
    Ok(())
}

/// Records are there, with their revisions, when the store is opened anew, and can be written from there.
///
/// # Errors
///
/// What was found instead.
pub async fn records_survive_reopening(area: &Area, open: &impl AsyncFn() -> Arc<dyn Store>) -> Checked {
    let key = area.key("record")?;
    let first = area.write(&key, Expected::Absent, b"first").await?;
    let revision = area.write(&key, Expected::Revision(first), b"second").await?;
    let kept = Some(Versioned { value: b"second".to_vec(), revision });
    let reopened = area.through(open().await);
    let found = reopened.load(&key).await?;
    ensure!(found == kept, "wrote {kept:?}, found {found:?} on reopening");
    let names = reopened.names("").await?;
    ensure!(names == ["record"], "the list on reopening is {names:?}");
    let next = reopened.write(&key, Expected::Revision(revision), b"third").await?;
    ensure!(next > revision, "revision {next} on reopening is not above {revision}");
    Ok(())
}

/// Waits for all tasks; the panic of one becomes a finding.
async fn joined<T: 'static>(mut tasks: JoinSet<Result<T, Finding>>) -> Result<Vec<T>, Finding> {
    let mut results = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        results.push(ended.map_err(|error| Finding(format!("a writer failed: {error}")))??);
    }
    Ok(results)
}
