//! Records what a store or a counter acknowledged while it failed, and checks the guarantees that remain.
//!
//! The test of the backend causes the failures: a full disk, a read-only server, an I/O error, a connection
//! that is cut between a statement and its answer. Whatever the failure, three guarantees hold: acknowledged
//! writes are there after reopening, no number is returned twice, and a call that fails with an error other
//! than [`OutcomeUnknown`](StoreErrorKind::OutcomeUnknown) has written nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::num::NonZeroU64;

use super::{Checked, Finding};
use crate::{Counter, Expected, Key, Revision, Store, StoreError, StoreErrorKind, Swap, Versioned, reserve};

/// A call on a store that may fail.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Reads one record.
    Load,
    /// Creates or replaces one record.
    CompareAndSet,
    /// Adds to a number.
    Add,
    /// Reads all records of the account.
    List,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 4] = [Self::Load, Self::CompareAndSet, Self::Add, Self::List];
}

/// How a call ended.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CallOutcome {
    /// The store answered.
    Acknowledged,
    /// The store refused, or the outcome is unknown.
    Failed(StoreErrorKind),
}

impl CallOutcome {
    /// Returns whether the store answered.
    pub const fn is_acknowledged(self) -> bool {
        matches!(self, Self::Acknowledged)
    }

    fn of(error: &StoreError) -> Self {
        Self::Failed(error.kind())
    }
}

/// The numbers that one counter returned, call after call.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// The next number, once it is known.
    next: Option<u64>,
    skipped: u64,
    unknown: u64,
}

impl Numbers {
    /// Returns an account of a counter at any position.
    #[must_use]
    pub const fn new() -> Self {
        Self { next: None, skipped: 0, unknown: 0 }
    }

    /// Reserves numbers as a node does, waits until the reservation has settled, and checks that no number is
    /// returned twice.
    ///
    /// # Errors
    ///
    /// A number that was returned twice.
    pub async fn reserve(
        &mut self,
        counter: &dyn Counter,
        count: NonZeroU64,
    ) -> Result<CallOutcome, Finding> {
        let reserved = match reserve(counter, count).await {
            Ok(reserved) => reserved,
            Err(error) => return Ok(self.failed(&error, count)),
        };
        match reserved.settle(counter).await {
            Ok(segment) => {
                self.given(segment.first(), segment.last() + 1)?;
                Ok(CallOutcome::Acknowledged)
            }
            Err(error) => {
                // The numbers are reserved, but nobody uses them.
                self.unknown += count.get();
                Ok(CallOutcome::of(&error))
            }
        }
    }

    /// Returns how many numbers were skipped because calls with an unknown outcome reserved them.
    ///
    /// Compare with [`unknown`](Self::unknown), except for a counter that leaves gaps by itself.
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns how many numbers the calls with an unknown outcome asked for.
    pub const fn unknown(&self) -> u64 {
        self.unknown
    }

    fn given(&mut self, first: u64, end: u64) -> Checked {
        let next = self.next.unwrap_or(first);
        ensure!(first >= next, "the numbers from {first} to {} were given twice", next.min(end) - 1);
        self.skipped += first - next;
        self.next = Some(end);
        Ok(())
    }

    fn failed(&mut self, error: &StoreError, count: NonZeroU64) -> CallOutcome {
        if error.kind() == StoreErrorKind::OutcomeUnknown {
            self.unknown += count.get();
        }
        CallOutcome::of(error)
    }
}

impl Default for Numbers {
    fn default() -> Self {
        Self::new()
    }
}

/// The possible contents of a record, as known to its only writer.
#[derive(Clone, Default, Debug)]
struct Entry {
    held: Option<Versioned>,
    /// Writes at the revision above with an unknown outcome: one of them may have happened, or may still
    /// happen.
    unsettled: Vec<Vec<u8>>,
}

impl Entry {
    fn expected(&self) -> Expected {
        self.held.as_ref().map_or(Expected::Absent, |it| Expected::Revision(it.revision))
    }

    fn wrote(&mut self, value: Vec<u8>, revision: Revision) {
        *self = Self { held: Some(Versioned { value, revision }), unsettled: Vec::new() };
    }

    /// Adopts a value that was read, if the record can hold it.
    fn read(&mut self, name: impl fmt::Display, found: Option<Versioned>) -> Checked {
        if found == self.held {
            return Ok(());
        }
        let (shown, held) = (shown(found.as_ref()), shown(self.held.as_ref()));
        match found {
            Some(found) if self.unsettled.contains(&found.value) => {
                ensure!(
                    self.held.as_ref().is_none_or(|held| found.revision > held.revision),
                    "{name}: {shown} after {held}"
                );
                self.wrote(found.value, found.revision);
                Ok(())
            }
            _ => {
                let unsettled = self.unsettled.len();
                Err(Finding(format!(
                    "{name}: {shown} was found, {held} was acknowledged, and {unsettled} writes are unsettled"
                )))
            }
        }
    }
}

/// An account of one writer's calls on a store, under keys of its own.
#[derive(Clone, Debug)]
pub struct Account {
    prefix: String,
    entries: BTreeMap<Key, Entry>,
    numbers: Numbers,
    writes: u64,
}

impl Account {
    /// Returns an empty account, under a random prefix.
    #[must_use]
    pub fn new() -> Self {
        let random = RandomState::new().build_hasher().finish();
        let numbers = Numbers { next: Some(0), ..Numbers::new() };
        Self { prefix: format!("failing/{random:016x}/"), entries: BTreeMap::new(), numbers, writes: 0 }
    }

    /// Makes a call on the record `record`, on the counter, or on all records.
    ///
    /// # Errors
    ///
    /// The violation of the contract.
    pub async fn call(&mut self, store: &dyn Store, operation: Operation) -> Result<CallOutcome, Finding> {
        match operation {
            Operation::Load => self.load(store, "record").await,
            Operation::CompareAndSet => self.write(store, "record", 40).await,
            Operation::Add => self.add(store, NonZeroU64::MIN.saturating_add(self.writes % 7)).await,
            Operation::List => self.list(store).await,
        }
    }

    /// Writes a record with a value of at least `bytes` bytes.
    ///
    /// # Errors
    ///
    /// The violation of the contract.
    pub async fn write(
        &mut self,
        store: &dyn Store,
        name: &str,
        bytes: usize,
    ) -> Result<CallOutcome, Finding> {
        self.writes += 1;
        let value = value(self.writes, bytes);
        let key = self.key(name)?;
        let entry = self.entries.entry(key.clone()).or_default();
        match store.compare_and_set(&key, entry.expected(), &value).await {
            Ok(Swap::Done(revision)) => {
                let held = entry.held.as_ref().map(|it| it.revision);
                ensure!(Some(revision) > held, "{key}: {revision} was written after {held:?}");
                entry.wrote(value, revision);
                Ok(CallOutcome::Acknowledged)
            }
            Ok(Swap::Conflict) => {
                ensure!(!entry.unsettled.is_empty(), "{key}: unexpected conflict");
                Ok(CallOutcome::Acknowledged)
            }
            Err(error) => {
                if error.kind() == StoreErrorKind::OutcomeUnknown {
                    entry.unsettled.push(value);
                }
                Ok(CallOutcome::of(&error))
            }
        }
    }

    /// Adds to the counter.
    ///
    /// # Errors
    ///
    /// The violation of the contract.
    pub async fn add(&mut self, store: &dyn Store, count: NonZeroU64) -> Result<CallOutcome, Finding> {
        self.writes += 1;
        match store.add(&self.counter()?, count).await {
            Ok(first) => {
                self.numbers.given(first, first + count.get())?;
                let Numbers { skipped, unknown, .. } = self.numbers;
                ensure!(
                    skipped <= unknown,
                    "{skipped} numbers were skipped, calls with an unknown outcome asked for {unknown}"
                );
                Ok(CallOutcome::Acknowledged)
            }
            Err(error) => Ok(self.numbers.failed(&error, count)),
        }
    }

    /// Loads a record.
    ///
    /// # Errors
    ///
    /// The violation of the contract.
    pub async fn load(&mut self, store: &dyn Store, name: &str) -> Result<CallOutcome, Finding> {
        let key = self.key(name)?;
        match store.load(&key).await {
            Ok(found) => {
                self.entries.entry(key.clone()).or_default().read(&key, found)?;
                Ok(CallOutcome::Acknowledged)
            }
            Err(error) => read_failed(&error),
        }
    }

    /// Lists all records.
    ///
    /// # Errors
    ///
    /// The violation of the contract.
    pub async fn list(&mut self, store: &dyn Store) -> Result<CallOutcome, Finding> {
        let mut found: BTreeMap<Key, Versioned> = match store.list(&self.prefix).await {
            Ok(found) => found.into_iter().collect(),
            Err(error) => return read_failed(&error),
        };
        let counter = found.remove(&self.counter()?);
        ensure!(
            counter.is_some() || self.numbers.next == Some(0),
            "the list has no counter, although numbers were reserved"
        );
        for (key, entry) in &mut self.entries {
            entry.read(key, found.remove(key))?;
        }
        ensure!(found.is_empty(), "nobody wrote {:?}", found.keys());
        Ok(CallOutcome::Acknowledged)
    }

    /// Checks a store that has recovered or was reopened: it holds every acknowledged write and no rejected
    /// one.
    ///
    /// # Errors
    ///
    /// The violation of the contract.
    pub async fn check(&mut self, store: &dyn Store) -> Checked {
        let mut outcomes = vec![("list", self.list(store).await?)];
        outcomes.push(("add", self.add(store, NonZeroU64::MIN).await?));
        outcomes.push(("load", self.load(store, "record").await?));
        // The first write may conflict with an unsettled one; the load after it settles that.
        outcomes.push(("compare_and_set", self.write(store, "record", 40).await?));
        outcomes.push(("list", self.list(store).await?));
        for (call, outcome) in outcomes {
            ensure!(outcome.is_acknowledged(), "{call} on a store that should be up: {outcome:?}");
        }
        Ok(())
    }

    fn key(&self, name: &str) -> Result<Key, Finding> {
        Ok(Key::new(format!("{}{name}", self.prefix))?)
    }

    fn counter(&self) -> Result<Key, Finding> {
        self.key("counter")
    }
}

impl Default for Account {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns a value that no other write has and that does not compress.
fn value(nth: u64, bytes: usize) -> Vec<u8> {
    let mut value = format!("{nth} ").into_bytes();
    let mut state = nth | 1;
    while value.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        value.extend((state >> 16).to_be_bytes());
    }
    value
}

fn read_failed(error: &StoreError) -> Result<CallOutcome, Finding> {
    ensure!(error.kind() != StoreErrorKind::OutcomeUnknown, "a read failed with an unknown outcome: {error}");
    Ok(CallOutcome::of(error))
}

fn shown(record: Option<&Versioned>) -> String {
    let text = |it: &Versioned| {
        format!("{:?} at {}", String::from_utf8_lossy(&it.value[..it.value.len().min(20)]), it.revision)
    };
    record.map_or_else(|| "nothing".to_owned(), text)
}
