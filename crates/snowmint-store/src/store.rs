//! The contract of a store, and the types of its calls: records, revisions, and one conditional write.
//!
//! The key of a record is short text in segments, which every backend can store unchanged. It is checked
//! once, when it is built, so that no store has to escape or reject anything later.

pub(crate) mod add;

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use snowmint::foreign::{Most, shown};

use crate::error::random_below;
use crate::{Identity, StoreError, Visibility};

/// The version of a record. It grows with every write of the record and is never used twice for one key.
///
/// Revisions of two keys cannot be compared. The difference between two revisions of a key may be more than
/// 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The maximum step of a revision; revisions suffice for 2^44 writes of one key.
const MAX_STEP: u64 = 1 << 20;

/// Functions for stores that do not count writes themselves.
impl Revision {
    /// Returns the difference between the revision of a write and that of the next, chosen at random.
    ///
    /// A store that returns to an older state (a failover to a lagging copy) breaks its promise. If revisions
    /// grew by 1, the next write would get the revision of a lost write, and the author of the lost write
    /// would believe that the record is its own. With random steps it meets a conflict, except with a
    /// probability of one in a million.
    pub(crate) fn random_step() -> i64 {
        (random_below(MAX_STEP) + 1).cast_signed()
    }

    /// Returns the revision in a database column, or `None` for a number that is not a valid revision.
    pub(crate) fn from_database(column: i64) -> Option<Self> {
        u64::try_from(column).ok().filter(|it| *it > 0).map(Self)
    }
}

/// A record as it was read: its value, and the revision at which it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Versioned {
    /// The bytes as they were written.
    pub value: Vec<u8>,
    /// The revision that [`Expected::Revision`] has to name to replace this value.
    pub revision: Revision,
}

/// The result of [`Store::compare_and_set`].
#[must_use = "a write that met a conflict has not happened"]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Swap {
    /// The value is written and durable, at this revision.
    Done(Revision),
    /// The record was not as expected. Nothing was written.
    Conflict,
}

/// What a writer expects of the record that it replaces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Expected {
    /// There is no such record.
    Absent,
    /// The record is at this revision.
    Revision(Revision),
}

impl Expected {
    /// Returns the revisions before and after a write, with 0 before the first; or `None` for a revision that
    /// no record can have, or that none can follow.
    pub(crate) fn before_and_after(self) -> Option<(i64, i64)> {
        let before = match self {
            Self::Absent => 0,
            Self::Revision(Revision(revision)) => i64::try_from(revision).ok().filter(|it| *it > 0)?,
        };
        Some((before, before.checked_add(Revision::random_step())?))
    }
}

/// A place where leases, namespaces and counters are recorded.
///
/// # Contract
///
/// The uniqueness of ids follows from the points below and from nothing else. A backend that cannot keep one
/// of them must not exist. `conformance` checks every point that a test can observe.
///
/// 1. **One history for each key.** Calls on one key are linearizable: each takes effect at one instant
///    between call and return, in every process that uses the store. A `load` that starts after a write
///    returned `Done` sees that write or a later one, and no later `load` sees an older record than an
///    earlier one.
/// 2. **A write replaces what its writer knew.** [`Swap::Done`] means that at this instant the record was as
///    `expected`. [`Swap::Conflict`] means that at some instant of the call it was not, and that nothing was
///    written. A store never reports a conflict for any other reason.
/// 3. **Revisions do not come back.** Each write of a key has a greater revision than all earlier writes of
///    that key, even if the value is equal, so that a writer that missed many changes never takes the record
///    for unchanged.
/// 4. **Durable before `Done`.** A record that was acknowledged, or returned by `load` or `list`, survives a
///    crash of every process and a loss of power (in a replicated store: of as many servers as it tolerates).
///    There are two exceptions: [`MemoryStore`](crate::MemoryStore) lives only as long as its process, and a
///    store whose [`may_lose`](Self::may_lose) is not zero may lose, in a restart or failover, the writes
///    that it acknowledged within that time before: always the newest, never one from the middle.
/// 5. **Errors are honest.** An error other than
///    [`StoreErrorKind::OutcomeUnknown`](crate::StoreErrorKind::OutcomeUnknown) means that nothing was
///    written and nothing will be. With `OutcomeUnknown` the write may have happened, may happen later, or
///    never. A reader can find out, since values that leases write contain a tag of their writer.
/// 6. **Bytes stay bytes.** Values of 0 bytes to 64 KiB come back as they were written. Keys differ by every
///    byte, upper and lower case included, and are ordered by bytes.
/// 7. **Time is bounded.** A call on an unreachable store returns an error after some seconds. Callers add
///    their own limit.
///
/// Restoring a backup breaks points 3 and 4 from outside: the store forgets leases that nodes still hold, and
/// numbers that they received. Run `snowmint store recover` before nodes use such a store.
///
/// # Cancel safety
///
/// A future may be dropped at any await, for instance by a time-out. The store stays usable. A dropped
/// `compare_and_set` or `add` counts as `OutcomeUnknown`: its write may still happen, even after the drop.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Returns the record of a key, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// Every kind but [`StoreErrorKind::OutcomeUnknown`](crate::StoreErrorKind::OutcomeUnknown). Nothing
    /// changed, and it is safe to retry.
    async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError>;

    /// Writes `value` if the record is as `expected`, durably before it returns [`Swap::Done`].
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::OutcomeUnknown`](crate::StoreErrorKind::OutcomeUnknown) if the write may have
    /// happened: load the record before the next step. With every other kind nothing was written.
    async fn compare_and_set(&self, key: &Key, expected: Expected, value: &[u8]) -> Result<Swap, StoreError>;

    /// Returns every record whose key starts with `prefix`, in the order of the keys.
    ///
    /// The prefix is plain text without wildcards: `workers/a` also finds `workers/ab/1`, so end it with `/`
    /// to stay inside one folder. The empty text finds all records. Each record is as it was at some instant
    /// of the call; two records may be from different instants. The list omits entries that are not valid
    /// records and reports them by [`skipped`](Self::skipped).
    ///
    /// # Errors
    ///
    /// As for [`Store::load`].
    async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError>;

    /// Adds `count` to the number that a record holds, durably, and returns the number before. An absent
    /// record counts as 0. The `count` numbers that start at the returned number belong to the caller alone.
    ///
    /// The value is the number in decimal ASCII digits, from `0` to [`MAX_NUMBER`](crate::MAX_NUMBER),
    /// without sign or leading zeros. It is a record like any other: an addition is a write with a revision
    /// of its own, so [`compare_and_set`](Self::compare_and_set) and `add` can be mixed on one key.
    ///
    /// The default implementation loads and replaces the record until no other writer is faster, for some
    /// seconds at most, with short random pauses. It needs a Tokio runtime with its timer enabled. Stores
    /// with an atomic addition use that.
    ///
    /// # Errors
    ///
    /// [`OutcomeUnknown`](crate::StoreErrorKind::OutcomeUnknown) if the addition may have happened: those
    /// numbers are lost, and it is safe to retry. [`Corrupt`](crate::StoreErrorKind::Corrupt) for a record
    /// that holds no number, and [`Full`](crate::StoreErrorKind::Full) for a sum above
    /// [`MAX_NUMBER`](crate::MAX_NUMBER). With every kind but the first nothing was written.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::num::NonZeroU64;
    /// # use snowmint_store::{Key, MemoryStore, Store};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let (store, key) = (MemoryStore::new(), Key::new("counters/orders")?);
    /// let hundred = NonZeroU64::new(100).ok_or("not zero")?;
    /// assert_eq!(store.add(&key, hundred).await?, 0);
    /// assert_eq!(store.add(&key, hundred).await?, 100);
    /// assert_eq!(store.load(&key).await?.map(|record| record.value).as_deref(), Some(&b"200"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
        add::by_compare_and_set(self, key, count).await
    }

    /// Returns the store's own time in Unix milliseconds, at some instant of the call, or `None` if the store
    /// has no clock.
    ///
    /// Leases do not depend on it. A node compares its clock with it before it acquires a lease, so that a
    /// wrong clock does not use up the future timestamps of a worker.
    ///
    /// # Errors
    ///
    /// As for [`Store::load`].
    async fn unix_ms(&self) -> Result<Option<u64>, StoreError> {
        match self.inner() {
            Some(inner) => inner.unix_ms().await,
            None => Ok(None),
        }
    }

    /// Returns how far [`unix_ms`](Self::unix_ms) may be from the store's clock, either way: half a second if
    /// the clock shows whole seconds.
    fn clock_error(&self) -> Duration {
        self.inner().map_or(Duration::ZERO, Store::clock_error)
    }

    /// Returns why the last call of [`unix_ms`](Self::unix_ms) found no clock, if stores of this kind usually
    /// have one.
    fn clock_missing(&self) -> Option<String> {
        self.inner()?.clock_missing()
    }

    /// Returns the entries that lists have omitted so far, each with the reason, for operators: another
    /// program writes, or wrote, in this store's place.
    ///
    /// No node treats such a key as free: a conditional write to it conflicts.
    fn skipped(&self) -> Vec<String> {
        self.inner().map_or_else(Vec::new, Store::skipped)
    }

    /// Asks the store what an operator has to mend before calls fail, such as a quota that is half used; in
    /// full sentences, each with the server. Empty for stores that have nothing to ask for, and if no server
    /// answers.
    async fn warnings(&self) -> Vec<String> {
        match self.inner() {
            Some(inner) => inner.warnings().await,
            None => Vec::new(),
        }
    }

    /// Returns the time span of the newest acknowledged writes that this store may lose.
    ///
    /// Zero for a store that keeps point 4 of the contract. For any other store, a write may be relied on
    /// only once it has *settled*: a load or conditional write that was sent at least this long after the
    /// acknowledgement arrived still found it. Leases, segments and namespaces wait for that.
    fn may_lose(&self) -> Duration {
        self.inner().map_or(Duration::ZERO, Store::may_lose)
    }

    /// Moves the content of the store's side files into its main file, so that the file can be copied or
    /// moved alone while no process uses it. Does nothing for stores without such files.
    ///
    /// # Errors
    ///
    /// As for [`Store::load`]; [`StoreErrorKind::Unavailable`](crate::StoreErrorKind::Unavailable) if another
    /// process uses the file.
    async fn checkpoint(&self) -> Result<(), StoreError> {
        match self.inner() {
            Some(inner) => inner.checkpoint().await,
            None => Ok(()),
        }
    }

    /// Identifies the server that answered last, whatever address was used to reach it: no other server that
    /// accepts writes has the same text.
    ///
    /// `None` before the first call, and for stores whose servers all show the same records.
    fn server(&self) -> Option<String> {
        self.inner()?.server()
    }

    /// Returns which store this process uses, once its identity has settled. Does not call the store.
    ///
    /// Stores of [`open`](crate::open) have an identity, which the first call reads, or writes if it is
    /// missing. `None` before that, for stores that were opened without `open`, and after
    /// [`open_to_read`](crate::open_to_read) of a store without one.
    fn identity(&self) -> Option<Identity> {
        self.inner()?.identity()
    }

    /// Returns which processes see these records. Ids are unique among those, and only among those.
    ///
    /// The default implementation asks [`inner`](Self::inner). Without one it reads
    /// [`describe`](Self::describe), and returns [`Visibility::Network`] unless that begins with the scheme
    /// of a store of this crate.
    fn visibility(&self) -> Visibility {
        self.inner().map_or_else(|| Visibility::of_description(&self.describe()), Store::visibility)
    }

    /// Returns the kind and place of this store for logs, such as `sqlite:/var/lib/snowmint/leases.db`,
    /// without any password.
    fn describe(&self) -> String;

    /// Returns the place in full, for people who compare two nodes: also what [`describe`](Self::describe)
    /// leaves out, such as the schema of a table or the folder of a relative path.
    fn place(&self) -> String {
        self.inner().map_or_else(|| self.describe(), Store::place)
    }

    /// Returns the store that this one wraps. Methods with a default then return what that store says, except
    /// [`add`](Self::add), whose default calls this store.
    fn inner(&self) -> Option<&dyn Store> {
        None
    }
}

/// Maximum number of skipped entries to keep. An operator who looks at these finds the others.
const MOST_SKIPPED: usize = 100;

/// Entries that lists have omitted since the store was opened, each once: invalid keys, and records that
/// cannot be read.
#[derive(Debug, Default)]
pub(crate) struct SkippedRecords(Mutex<BTreeSet<String>>);

impl SkippedRecords {
    /// Records a name that a list omits, and the reason.
    pub(crate) fn note(&self, name: &(impl AsRef<[u8]> + ?Sized), why: &str) {
        // Each change is one insertion, so a panic cannot leave the set half changed.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MOST_SKIPPED {
            all.insert(format!("`{}`: {}", shown(name, Most::Name), shown(why, Most::Message)));
        }
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// The maximum length of a key in bytes.
const MAX_BYTES: usize = 200;

/// The name of a record: 1 to 200 bytes, in segments joined by `/`, each of one or more of
/// `A-Z a-z 0-9 . _ = @ : -`.
///
/// Keys order by their bytes.
///
/// # Examples
///
/// ```
/// use snowmint_store::Key;
/// let key = Key::new("workers/time41-worker10/7")?;
/// assert_eq!(key.as_str(), "workers/time41-worker10/7");
/// assert!(Key::new("workers//7").is_err());
/// # Ok::<(), snowmint_store::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(String);

impl Key {
    /// Checks a text and returns it as a key.
    ///
    /// # Errors
    ///
    /// [`KeyError`]: which rule the text breaks, and where.
    pub fn new(text: impl Into<String>) -> Result<Self, KeyError> {
        let text = text.into();
        check(&text)?;
        Ok(Self(text))
    }

    /// Returns the least text above all that begin with this prefix, also above names of other programs.
    pub(crate) fn end_of(prefix: &str) -> String {
        match prefix.char_indices().next_back() {
            // Below 0x80, so that the text stays UTF-8.
            Some((at, last)) if last < '\x7f' => {
                let next = char::from_u32(u32::from(last) + 1).unwrap_or('\x7f');
                format!("{}{next}", &prefix[..at])
            }
            // MySQL has its fences above.
            None => "~".to_owned(),
            Some(_) => format!("{prefix}\u{10ffff}"),
        }
    }

    /// Checks bytes that a store returned, which need not be UTF-8.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Result<Self, KeyError> {
        Self::new(String::from_utf8_lossy(bytes))
    }

    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether any key can begin with a text, judged by its length and characters.
    pub(crate) fn may_begin_with(prefix: &str) -> bool {
        prefix.len() <= MAX_BYTES && prefix.chars().all(|it| it == '/' || is_plain(it))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

fn check(text: &str) -> Result<(), KeyError> {
    if text.is_empty() {
        return Err(KeyError::Empty);
    }
    if text.len() > MAX_BYTES {
        return Err(KeyError::TooLong { bytes: text.len() });
    }
    let mut segment_is_empty = true;
    for (at, character) in text.char_indices() {
        match character {
            '/' if segment_is_empty => return Err(KeyError::EmptySegment { at }),
            '/' => segment_is_empty = true,
            _ if is_plain(character) => segment_is_empty = false,
            _ => return Err(KeyError::Character { at, character }),
        }
    }
    if segment_is_empty { Err(KeyError::EmptySegment { at: text.len() }) } else { Ok(()) }
}

/// Whether a character is allowed in a segment.
const fn is_plain(character: char) -> bool {
    matches!(character, 'A'..='Z' | 'a'..='z' | '0'..='9' | '.' | '_' | '=' | '@' | ':' | '-')
}

/// The reason why a text is not a valid [`Key`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is empty.
    #[error("invalid key: it is empty, expected 1 to {MAX_BYTES} bytes")]
    Empty,
    /// The text has more than 200 bytes.
    #[error("invalid key: {bytes} bytes, expected 1 to {MAX_BYTES}")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// A segment is empty: a `/` at the start, at the end, or right after another.
    #[error("invalid key: empty segment at byte {at}, expected text between any two `/`")]
    EmptySegment {
        /// The byte, from 0, at which the segment should begin.
        at: usize,
    },
    /// A character that is not allowed in a key.
    #[error("invalid key: {character:?} at byte {at}, expected A-Z a-z 0-9 . _ = @ : - and `/`")]
    Character {
        /// Its position in bytes, from 0.
        at: usize,
        /// The character.
        character: char,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreId;

    /// A store whose answer to each method with a default is not the default.
    #[derive(Debug)]
    struct Speaking;

    #[async_trait]
    impl Store for Speaking {
        async fn load(&self, _: &Key) -> Result<Option<Versioned>, StoreError> {
            Ok(None)
        }

        async fn compare_and_set(&self, _: &Key, _: Expected, _: &[u8]) -> Result<Swap, StoreError> {
            Ok(Swap::Conflict)
        }

        async fn list(&self, _: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
            Ok(Vec::new())
        }

        async fn unix_ms(&self) -> Result<Option<u64>, StoreError> {
            Ok(Some(7))
        }

        fn clock_error(&self) -> Duration {
            Duration::from_secs(1)
        }

        fn clock_missing(&self) -> Option<String> {
            Some("no clock".to_owned())
        }

        fn skipped(&self) -> Vec<String> {
            vec!["skipped".to_owned()]
        }

        async fn warnings(&self) -> Vec<String> {
            vec!["warning".to_owned()]
        }

        fn may_lose(&self) -> Duration {
            Duration::from_secs(2)
        }

        async fn checkpoint(&self) -> Result<(), StoreError> {
            Err(StoreError::new(crate::StoreErrorKind::Other, "checkpoint", "speaking", "no file"))
        }

        fn server(&self) -> Option<String> {
            Some("server".to_owned())
        }

        fn identity(&self) -> Option<Identity> {
            Some(Identity { id: StoreId::new(7), another: None })
        }

        fn visibility(&self) -> Visibility {
            Visibility::Machine
        }

        fn describe(&self) -> String {
            "speaking".to_owned()
        }

        fn place(&self) -> String {
            "place".to_owned()
        }
    }

    /// A wrapper with no more methods than it has to have.
    #[derive(Debug)]
    struct Wrapping(Speaking);

    #[async_trait]
    impl Store for Wrapping {
        async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
            self.0.load(key).await
        }

        async fn compare_and_set(&self, key: &Key, at: Expected, value: &[u8]) -> Result<Swap, StoreError> {
            self.0.compare_and_set(key, at, value).await
        }

        async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
            self.0.list(prefix).await
        }

        fn describe(&self) -> String {
            self.0.describe()
        }

        fn inner(&self) -> Option<&dyn Store> {
            Some(&self.0)
        }
    }

    /// Goal: a wrapper answers like the store in it: a forgotten `may_lose` would let nodes use what may be
    /// lost. Method: each method with a default, whose answer is not the default.
    #[tokio::test]
    async fn a_wrapper_says_what_its_store_says() {
        let (inner, wrapper) = (Speaking, Wrapping(Speaking));
        assert_eq!(wrapper.unix_ms().await.unwrap(), inner.unix_ms().await.unwrap());
        assert_eq!(wrapper.clock_error(), inner.clock_error());
        assert_eq!(wrapper.clock_missing(), inner.clock_missing());
        assert_eq!(wrapper.skipped(), inner.skipped());
        assert_eq!(wrapper.warnings().await, inner.warnings().await);
        assert_eq!(wrapper.may_lose(), inner.may_lose());
        assert!(wrapper.checkpoint().await.is_err());
        assert_eq!(wrapper.server(), inner.server());
        assert_eq!(wrapper.identity().map(|it| it.id), inner.identity().map(|it| it.id));
        assert_eq!(wrapper.visibility(), inner.visibility());
        assert_eq!(wrapper.place(), inner.place());
    }

    #[test]
    fn revisions_grow_by_a_random_step() {
        let revision = |it| Expected::Revision(Revision(it)).before_and_after();
        for none in [0, i64::MAX as u64, 1 << 63, u64::MAX] {
            assert_eq!(revision(none), None, "{none}");
        }
        let after: Vec<i64> = (0..100).map(|_| revision(7).unwrap().1).collect();
        assert!(after.iter().all(|it| (8..=7 + (1 << 20)).contains(it)), "{after:?}");
        assert!(after.iter().any(|it| *it != after[0]));
        let (before, first) = Expected::Absent.before_and_after().unwrap();
        assert!(before == 0 && first > 0);
        assert_eq!(Revision::from_database(first), Some(Revision(first.cast_unsigned())));
        assert_eq!((Revision::from_database(0), Revision::from_database(-1)), (None, None));
    }

    #[test]
    fn a_key_is_refused_for_the_rule_it_breaks() {
        let cases = [
            ("", KeyError::Empty),
            ("/", KeyError::EmptySegment { at: 0 }),
            ("/a", KeyError::EmptySegment { at: 0 }),
            ("a/", KeyError::EmptySegment { at: 2 }),
            ("a//b", KeyError::EmptySegment { at: 2 }),
            ("a b", KeyError::Character { at: 1, character: ' ' }),
            ("a%", KeyError::Character { at: 1, character: '%' }),
            ("a/é", KeyError::Character { at: 2, character: 'é' }),
            ("a\0", KeyError::Character { at: 1, character: '\0' }),
        ];
        for (text, error) in cases {
            assert_eq!(Key::new(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn the_length_is_bounded_at_200_bytes() {
        assert!(Key::new("k").is_ok());
        assert!(Key::new("k".repeat(200)).is_ok());
        assert_eq!(Key::new("k".repeat(201)), Err(KeyError::TooLong { bytes: 201 }));
    }

    #[test]
    fn every_character_of_the_set_is_taken() {
        let text = "AZ/az/09/._=@:-/..";
        assert_eq!(Key::new(text).unwrap().to_string(), text);
    }
}
