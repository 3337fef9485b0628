//! The checks that every backend must pass, one function for each line of the contract of [`Store`].
//! They create about 10,000 new keys and delete nothing: use a store that you can discard.
//!
//! [`run`] checks a working store. [`acknowledged`] checks the guarantees that hold while a store fails; the
//! test of the backend causes the failures.

/// Fails the check unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($found:tt)+) => {
        if !$holds {
            return Err($crate::conformance::Finding(format!($($found)+)));
        }
    };
}

pub mod acknowledged;
mod checks;
mod history;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use snowmint::foreign::{Most, shown};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

pub use self::checks::{
    absent_loads_none, added_numbers_survive_reopening, adders_share_no_number, adding_begins_at_0,
    adding_mixes_with_swaps, adding_refuses_text, adding_stops_at_the_last_number, conflict_changes_nothing,
    handles_see_each_other, insert_happens_once, keys_are_apart, list_is_by_prefix, list_is_in_order,
    list_is_whole, one_of_many_inserts, records_survive_reopening, revisions_grow, swap_needs_the_revision,
    values_come_back, writers_make_one_line,
};
use crate::{Expected, Key, KeyError, Revision, Store, StoreError, Swap, Versioned};

/// Number of tasks that write at the same time.
const WRITERS: usize = 16;
/// Number of handles on the store that the tasks share: several connections, and several writers on each.
const HANDLES: usize = 4;
/// Number of times that each task writes the shared record.
const ROUNDS: usize = 25;

/// A violation of the contract.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    check: &'static str,
    found: String,
}

impl Violation {
    /// Returns the name of the check that failed, which is the name of its function.
    pub const fn check(&self) -> &'static str {
        self.check
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store violates its contract, {}: {}", self.check, self.found)
    }
}

impl std::error::Error for Violation {}

/// The violation that a check found, without the name of the check.
#[derive(Debug)]
pub struct Finding(String);

impl From<String> for Finding {
    fn from(found: String) -> Self {
        Self(found)
    }
}

impl From<StoreError> for Finding {
    fn from(error: StoreError) -> Self {
        Self(format!("a store that should work failed: {error}"))
    }
}

impl From<KeyError> for Finding {
    fn from(error: KeyError) -> Self {
        Self(format!("an invalid key in the check itself: {error}"))
    }
}

/// The result of one check.
pub type Checked = Result<(), Finding>;

/// A store, and a prefix that no other check uses.
#[derive(Clone, Debug)]
pub struct Area {
    store: Arc<dyn Store>,
    prefix: String,
}

impl Area {
    /// Returns an area with a random prefix, so that records of earlier runs do not matter.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let random = RandomState::new().build_hasher().finish();
        Self { store, prefix: format!("conformance/{random:016x}/") }
    }

    /// Returns this area on another handle to the same store.
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

    async fn add(&self, key: &Key, count: u64) -> Result<u64, StoreError> {
        let count = NonZeroU64::new(count).unwrap_or(NonZeroU64::MIN);
        self.store.add(key, count).await
    }

    /// Writes a record that nothing else writes, so that a conflict is a fault of the store.
    async fn write(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Revision, Finding> {
        match self.swap(key, expected, value).await? {
            Swap::Done(revision) => Ok(revision),
            Swap::Conflict => Err(Finding(format!("{key}: unexpected conflict, expected {expected:?}"))),
        }
    }

    /// Returns the names under a prefix, without the prefix of the area.
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
/// Each call of `open` must return a handle on the same records, with a connection of its own if the backend
/// has connections. Needs a Tokio runtime; a multi-threaded one checks more.
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
    named("adding_begins_at_0", adding_begins_at_0(&area()).await)?;
    named("adding_mixes_with_swaps", adding_mixes_with_swaps(&area()).await)?;
    named("adding_refuses_text", adding_refuses_text(&area()).await)?;
    named("adding_stops_at_the_last_number", adding_stops_at_the_last_number(&area()).await)?;
    named("adders_share_no_number", adders_share_no_number(&area(), &handles).await)?;
    drop(handles);
    named("records_survive_reopening", records_survive_reopening(&area(), &open).await)?;
    named("added_numbers_survive_reopening", added_numbers_survive_reopening(&area(), &open).await)
}

/// Names that other programs may write where a store keeps its records: not UTF-8, not keys, and hostile to
/// terminals.
const FOREIGN: [&[u8]; 5] = [
    b"conformance/\xff\xfe",
    b"conformance/a/\xe2\x82",
    b"conformance/a/what is this?",
    b"conformance/a/line\nERROR forged \x1b[31mred",
    b"conformance/b/\xe2\x80\xae7",
];

/// Checks that records of other programs do not hide those of the store, and are named without their control
/// characters.
///
/// `put` writes a record with this name into the backend, beside those of the store, and returns whether the
/// backend can hold such a name. `open` opens the store, as for [`run`].
///
/// # Errors
///
/// The [`Violation`].
pub async fn skips_foreign_names(
    open: impl AsyncFn() -> Arc<dyn Store>,
    put: impl AsyncFn(&[u8]) -> bool,
) -> Result<(), Violation> {
    named("skips_foreign_names", skips_names(open, put).await)
}

async fn skips_names(open: impl AsyncFn() -> Arc<dyn Store>, put: impl AsyncFn(&[u8]) -> bool) -> Checked {
    let area = Area::new(open().await);
    let key = area.key("ours")?;
    area.write(&key, Expected::Absent, b"ours").await?;
    let mut held = Vec::new();
    for name in FOREIGN {
        if put(name).await {
            held.push(shown(name, Most::Name));
        }
    }
    // A node that is running, and one that starts.
    for store in [Arc::clone(&area.store), open().await] {
        for prefix in ["conformance/", &area.prefix] {
            let found = store.list(prefix).await?;
            let ours = found.iter().filter(|(it, _)| *it == key).count();
            ensure!(ours == 1, "a list of {prefix:?} found {ours} records of its own beside foreign ones");
            let strange = found.iter().find(|(it, _)| held.contains(&it.as_str().into()));
            ensure!(strange.is_none(), "a list of {prefix:?} returned the foreign {strange:?}");
        }
        let skipped = store.skipped();
        // A backend may write `/` in another way.
        let one_level = |text: &str| text.replace('/', ",");
        for name in &held {
            let is_named = skipped.iter().any(|it| one_level(it).contains(&one_level(name)));
            ensure!(is_named, "{name} is not named: {skipped:?}");
        }
        ensure!(store.list("").await?.iter().any(|(it, _)| *it == key), "a list of everything lacks {key}");
        let control = skipped.iter().find(|it| it.chars().any(char::is_control));
        ensure!(control.is_none(), "a name has control characters: {control:?}");
    }
    Ok(())
}

fn named(check: &'static str, checked: Checked) -> Result<(), Violation> {
    checked.map_err(|Finding(found)| Violation { check, found })
}

/// Coordinates the writers.
struct Pace {
    /// A counter instead of a clock: it shows for certain when one call ended before another began.
    clock: AtomicU64,
    barrier: Barrier,
}

impl Pace {
    fn new() -> Self {
        Self { clock: AtomicU64::new(0), barrier: Barrier::new(WRITERS) }
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }
}

/// Waits for all tasks; a panic becomes a finding.
async fn joined<T: 'static>(mut tasks: JoinSet<Result<T, Finding>>) -> Result<Vec<T>, Finding> {
    let mut results = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        results.push(ended.map_err(|error| Finding(format!("a writer failed: {error}")))??);
    }
    Ok(results)
}
