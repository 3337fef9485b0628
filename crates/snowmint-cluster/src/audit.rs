//! The audit log of a store: who changed what, when and from where.
//!
//! # Order of writes
//!
//! The entry of a change is written *before* the change, and a second line follows only if the change fails. So:
//!
//! - A change whose entry cannot be written does not take place. No change is unrecorded.
//! - A store that [may lose](Store::may_lose) its newest writes loses the change before it loses the entry.
//! - An entry without a failure means that the change took place, or that the process died in between. The log may name a
//!   change that did not happen; it never misses one that did.
//!
//! # Records
//!
//! The log is a ring of [`PAGES`] records, `audit/00` and so on, and a record with the number of the newest page, `audit/page`.
//! A page holds one line for each entry and grows by compare-and-set, so concurrent writers lose nothing. A full page is never
//! changed again until the ring comes round. The log holds the newest 16 pages of 48 KiB: at least 300 entries, and usually more
//! than 3,000.
//!
//! The log protects against mistakes and helps to reconstruct them. It is no evidence: all who can write to the store can also
//! rewrite the log.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Write as _};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snowmint::utc::{self, Utc};
use snowmint_store::{Expected, Key, Store, StoreError, StoreErrorKind, Swap};

use crate::SplitMix64;
use crate::identity::host_name;

/// The folder of all records of the log.
const FOLDER: &str = "audit/";
/// The record with the number of the newest page.
const NEWEST: &str = "audit/page";
/// The number of pages in the ring.
pub const PAGES: u64 = 16;
/// The largest size of a page in bytes: a record may have 64 KiB.
const PAGE_BYTES: usize = 48 << 10;
/// The version of the format of a page.
const VERSION: u32 = 1;
/// The longest name of a user or of a place, and the longest subject, in bytes.
const MAX_NAME: usize = 128;
/// The longest details and the longest reason of a failure, in bytes.
const MAX_DETAILS: usize = 512;
/// The number of times that a writer meets another one before it gives up.
const TRIES: u32 = 200;
/// The longest pause after a conflict, in milliseconds.
const PAUSE_MS: u64 = 20;
/// The wait after a write with an unknown outcome, before the page is read.
const BEFORE_LOOKING: Duration = Duration::from_millis(100);

/// A change of a store, as its author describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it was made, by the author's clock, in unix milliseconds.
    pub at_unix_ms: u64,
    /// The user or token that made it, at most 128 bytes.
    pub who: String,
    /// The host or address that it came from, at most 128 bytes.
    pub from: String,
    /// What was done.
    pub action: Action,
    /// The namespace, worker or token that it was done to; empty for the whole store.
    pub subject: String,
    /// The new settings, at most 512 bytes.
    pub details: String,
}

/// A kind of change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// A namespace was added.
    NamespaceAdd,
    /// A dropped namespace was resumed.
    NamespaceResume,
    /// A dropped namespace was restarted: its ids may repeat.
    NamespaceStartOver,
    /// The settings of a namespace were changed.
    NamespaceSet,
    /// A namespace was dropped.
    NamespaceDrop,
    /// A namespace was created above the numbers of another system.
    NamespaceImport,
    /// A worker was taken from its holder.
    WorkerRelease,
    /// The store was recovered after a restore.
    StoreRecover,
    /// A token was created.
    TokenCreate,
    /// A token was revoked.
    TokenRevoke,
    /// A token received a new secret.
    TokenRotate,
    /// A node was told to drain.
    NodeDrain,
    /// An action of a newer version, by its name.
    Other(String),
}

/// The actions that this version writes, and their names in the log.
const ACTIONS: [(Action, &str); 12] = [
    (Action::NamespaceAdd, "namespace-add"),
    (Action::NamespaceResume, "namespace-resume"),
    (Action::NamespaceStartOver, "namespace-start-over"),
    (Action::NamespaceSet, "namespace-set"),
    (Action::NamespaceDrop, "namespace-drop"),
    (Action::NamespaceImport, "namespace-import"),
    (Action::WorkerRelease, "worker-release"),
    (Action::StoreRecover, "store-recover"),
    (Action::TokenCreate, "token-create"),
    (Action::TokenRevoke, "token-revoke"),
    (Action::TokenRotate, "token-rotate"),
    (Action::NodeDrain, "node-drain"),
];

impl Action {
    /// Returns its name, such as `namespace-add`. Names never change.
    pub fn name(&self) -> &str {
        match self {
            Self::Other(name) => name,
            known => ACTIONS.iter().find(|(it, _)| it == known).map_or("unknown", |(_, name)| name),
        }
    }

    /// Returns the action of a name.
    fn named(name: &str) -> Self {
        let known = ACTIONS.iter().find(|(_, it)| *it == name);
        known.map_or_else(|| Self::Other(name.to_owned()), |(action, _)| action.clone())
    }

    /// Returns whether its subject is a namespace.
    pub fn is_of_namespace(&self) -> bool {
        self.name().starts_with("namespace-")
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// A change.
    Entry(Logged),
    /// A record or line that this version cannot read.
    Unreadable {
        /// The key of the record.
        record: String,
        /// The reason.
        why: String,
    },
}

/// A change in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The change.
    pub entry: Entry,
    /// Why it failed; `None` if no failure was recorded.
    pub failed: Option<String>,
}

/// An entry that is in the log.
#[derive(Debug)]
#[must_use = "if the change fails, the log should say so"]
pub struct Written {
    tag: u64,
}

/// The log cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The store call failed.
    #[error("cannot write the audit log: {0}")]
    Store(#[from] StoreError),
    /// A record of the log is damaged, or was written by a newer version.
    #[error(
        "cannot write the audit log: unreadable record {key} in {store}: {why}; use the version that wrote it, or remove it"
    )]
    Unreadable {
        /// The key of the record.
        key: String,
        /// The store.
        store: String,
        /// The reason.
        why: String,
    },
    /// Too many others write to the log.
    #[error("cannot write the audit log in {store}: others wrote to it {TRIES} times in between; retry")]
    Busy {
        /// The store.
        store: String,
    },
}

/// Appends the entry of a change that is about to be made.
///
/// The texts are cut to their longest sizes, and control characters are replaced.
///
/// # Errors
///
/// [`AuditError`]: do not make the change.
///
/// # Cancel safety
///
/// If the future is dropped, the entry may be written.
pub async fn append(store: &dyn Store, entry: Entry) -> Result<Written, AuditError> {
    let tag = random(store)?;
    let line = Line {
        tag: Tag(tag),
        at: Some(Utc(entry.at_unix_ms).to_string()),
        who: cut(&entry.who, MAX_NAME),
        from: cut(&entry.from, MAX_NAME),
        action: cut(entry.action.name(), MAX_NAME),
        subject: cut(&entry.subject, MAX_NAME),
        details: cut(&entry.details, MAX_DETAILS),
        failed: String::new(),
    };
    write(store, &line).await?;
    Ok(Written { tag })
}

impl Written {
    /// Records that the change failed.
    ///
    /// # Errors
    ///
    /// [`AuditError`]: the log continues to name the change as made.
    pub async fn failed(self, store: &dyn Store, why: impl Display) -> Result<(), AuditError> {
        let failed = match cut(&why.to_string(), MAX_DETAILS) {
            // An empty reason would read as no failure.
            why if why.is_empty() => "failed".to_owned(),
            why => why,
        };
        write(store, &Line { tag: Tag(self.tag), failed, ..Line::default() }).await
    }
}

/// Makes a change, with its entry before it, and with its failure after it.
///
/// # Errors
///
/// [`AuditError`] if the entry cannot be written: `change` was not started. Otherwise the outcome of `change`.
///
/// # Cancel safety
///
/// If the future is dropped, the entry stays, and the change counts as made.
pub async fn around<T, E: Display>(
    store: &dyn Store,
    entry: Entry,
    change: impl Future<Output = Result<T, E>>,
) -> Result<Result<T, E>, AuditError> {
    let written = append(store, entry).await?;
    let changed = change.await;
    if let Err(why) = &changed
        && let Err(error) = written.failed(store, why).await
    {
        tracing::warn!(%error, failure = %why, "the audit log names a change that failed");
    }
    Ok(changed)
}

/// Lists the newest entries, newest first; unreadable records come before all entries.
///
/// The order is that of the appends, whatever the clocks of their authors.
///
/// # Errors
///
/// The store's.
pub async fn list(store: &dyn Store, limit: usize) -> Result<Vec<Listed>, StoreError> {
    let (mut pages, mut listed) = (BTreeMap::new(), Vec::new());
    for (key, record) in store.list(FOLDER).await? {
        if key.as_str() == NEWEST {
            continue;
        }
        match Page::read(&record.value) {
            Ok(page) => {
                pages.insert(page.number, (key, record));
            }
            Err(why) => listed.push(Listed::Unreadable { record: key.to_string(), why }),
        }
    }
    let (mut failures, mut seen) = (BTreeMap::new(), BTreeSet::new());
    for (key, record) in pages.values().rev() {
        // Read above.
        let Ok(page) = Page::read(&record.value) else { continue };
        for line in page.lines.lines().rev() {
            if listed.len() >= limit {
                return Ok(listed);
            }
            match serde_json::from_str::<Line>(line) {
                Ok(Line { tag, failed, .. }) if !failed.is_empty() => {
                    failures.insert(tag.0, failed);
                }
                // A write with an unknown outcome may have been repeated.
                Ok(line) if !seen.insert(line.tag.0) => {}
                Ok(line) => {
                    let failed = failures.remove(&line.tag.0);
                    listed.push(
                        line.logged(failed)
                            .unwrap_or_else(|why| Listed::Unreadable { record: key.to_string(), why }),
                    );
                }
                Err(why) => {
                    let why = why.to_string();
                    listed.push(Listed::Unreadable { record: key.to_string(), why });
                }
            }
        }
    }
    listed.truncate(limit);
    Ok(listed)
}

/// Returns the name of this host, for [`Entry::from`].
pub fn this_host() -> String {
    host_name()
}

/// Returns whether the page `found` holds all lines of the page `written`, or is a newer page: what a reader checks who wants
/// to know that no failover took a line back.
pub fn follows(written: &[u8], found: &[u8]) -> bool {
    match (Page::read(written), Page::read(found)) {
        (Ok(written), Ok(found)) => {
            found.number > written.number
                || found.number == written.number && found.lines.starts_with(written.lines)
        }
        // The number of the newest page.
        _ => match (number(written), number(found)) {
            (Some(written), Some(found)) => found >= written,
            _ => false,
        },
    }
}

/// A line of a page: a change, or the failure of one with the same tag.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Line {
    tag: Tag,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    who: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    from: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    action: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    subject: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    details: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    failed: String,
}

/// A random number that ties the failure of a change to its entry, in 16 hex digits.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
struct Tag(u64);

impl From<Tag> for String {
    fn from(tag: Tag) -> Self {
        format!("{:016x}", tag.0)
    }
}

impl TryFrom<String> for Tag {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        u64::from_str_radix(&text, 16)
            .map(Self)
            .map_err(|_| format!("invalid tag {text:?}: expected hex digits"))
    }
}

impl Line {
    fn logged(self, failed: Option<String>) -> Result<Listed, String> {
        let at = self.at.ok_or("missing time")?;
        let at_unix_ms = utc::parse(&at).map_err(|error| error.to_string())?;
        let action = Action::named(&self.action);
        let Self { who, from, subject, details, .. } = self;
        Ok(Listed::Entry(Logged { entry: Entry { at_unix_ms, who, from, action, subject, details }, failed }))
    }
}

/// The first line of a page.
#[derive(Serialize, Deserialize)]
struct Header {
    audit: u32,
    page: u64,
}

/// A page as it was read.
struct Page<'a> {
    number: u64,
    /// One JSON object a line.
    lines: &'a str,
}

impl<'a> Page<'a> {
    fn read(value: &'a [u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(value).map_err(|error| error.to_string())?;
        let (header, lines) = text.split_once('\n').ok_or("its first line does not end")?;
        let header: Header = serde_json::from_str(header).map_err(|error| error.to_string())?;
        if header.audit != VERSION {
            return Err(format!(
                "it has version {} of the format, this program reads {VERSION}",
                header.audit
            ));
        }
        Ok(Self { number: header.page, lines })
    }
}

/// Writes a line at the end of the newest page.
async fn write(store: &dyn Store, line: &Line) -> Result<(), AuditError> {
    let unreadable = |key: &Key, why: String| AuditError::Unreadable {
        key: key.to_string(),
        store: store.describe(),
        why,
    };
    let line = json(line, store)? + "\n";
    let newest = key(NEWEST, store)?;
    let mut random = SplitMix64::of(random(store)?);
    let mut skipped = 0;
    for _ in 0..TRIES {
        let pointer = store.load(&newest).await?;
        let number = match &pointer {
            None => 0,
            Some(found) => number(&found.value)
                .ok_or_else(|| unreadable(&newest, "expected the number of a page".to_owned()))?,
        };
        let key = key(&format!("{FOLDER}{:02}", number % PAGES), store)?;
        let found = store.load(&key).await?;
        let page = found.as_ref().map(|found| Page::read(&found.value)).transpose();
        let next = match &page {
            // A page of the last round, or none yet.
            Ok(None) => Some(begun(number, &line, store)?),
            Ok(Some(page)) if page.number < number => Some(begun(number, &line, store)?),
            // The write with an unknown outcome took place.
            Ok(Some(page)) if page.lines.contains(&line) => return Ok(()),
            Ok(Some(page)) if page.number == number => {
                let value = found.as_ref().map(|found| found.value.as_slice()).unwrap_or_default();
                let fits = value.len() + line.len() <= PAGE_BYTES;
                fits.then(|| [value, line.as_bytes()].concat())
            }
            // Full, damaged, or of a newer version: it stays as it is.
            Ok(Some(_)) => None,
            Err(why) if skipped > PAGES => return Err(unreadable(&key, why.clone())),
            Err(_) => {
                skipped += 1;
                None
            }
        };
        let is_line = next.is_some();
        let (key, value, at) = if let Some(value) = next {
            (&key, value, &found)
        } else {
            let newer = page.ok().flatten().map_or(0, |page| page.number);
            (&newest, newer.max(number.saturating_add(1)).to_string().into_bytes(), &pointer)
        };
        let expected = at.as_ref().map_or(Expected::Absent, |at| Expected::Revision(at.revision));
        match store.compare_and_set(key, expected, &value).await {
            Ok(Swap::Done(_)) if is_line => return Ok(()),
            Ok(Swap::Done(_)) => {}
            // Another writer was first.
            Ok(Swap::Conflict) => tokio::time::sleep(Duration::from_millis(random.below(PAUSE_MS))).await,
            Err(error) if error.kind() == StoreErrorKind::OutcomeUnknown => {
                tokio::time::sleep(BEFORE_LOOKING).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(AuditError::Busy { store: store.describe() })
}

/// Returns a page with its first line.
fn begun(number: u64, line: &str, store: &dyn Store) -> Result<Vec<u8>, AuditError> {
    let header = json(&Header { audit: VERSION, page: number }, store)?;
    Ok(format!("{header}\n{line}").into_bytes())
}

fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

fn key(text: &str, store: &dyn Store) -> Result<Key, StoreError> {
    Key::new(text).map_err(|error| StoreError::new(StoreErrorKind::Other, "key", store.describe(), error))
}

fn json(value: &impl Serialize, store: &dyn Store) -> Result<String, StoreError> {
    serde_json::to_string(value)
        .map_err(|error| StoreError::new(StoreErrorKind::Other, "entry", store.describe(), error))
}

fn random(store: &dyn Store) -> Result<u64, StoreError> {
    getrandom::u64()
        .map_err(|error| StoreError::new(StoreErrorKind::Other, "random number", store.describe(), error))
}

/// Returns a text of at most `most` bytes without control characters; `...` ends a text that was cut.
fn cut(text: &str, most: usize) -> String {
    const END: &str = "...";
    let mut clean = String::new();
    for char in text.chars().map(|char| if char.is_control() { ' ' } else { char }) {
        if clean.len() + char.len_utf8() > most {
            while clean.len() + END.len() > most {
                clean.pop();
            }
            // Writing to a `String` never fails.
            let _ = clean.write_str(END);
            break;
        }
        clean.push(char);
    }
    clean
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use async_trait::async_trait;
    use snowmint_store::{MemoryStore, Versioned};

    use super::*;

    fn entry(subject: &str) -> Entry {
        Entry {
            at_unix_ms: 1_790_000_000_123,
            who: "alice".to_owned(),
            from: "web-3".to_owned(),
            action: Action::NamespaceAdd,
            subject: subject.to_owned(),
            details: "segment cached, all numbers".to_owned(),
        }
    }

    fn subjects(listed: &[Listed]) -> Vec<String> {
        let subject = |it: &'_ Listed| match it {
            Listed::Entry(Logged { entry, .. }) => entry.subject.clone(),
            Listed::Unreadable { .. } => "?".to_owned(),
        };
        listed.iter().map(subject).collect()
    }

    #[tokio::test]
    async fn entries_are_listed_as_they_were_written_newest_first() {
        let store = MemoryStore::new();
        assert_eq!(list(&store, 9).await.unwrap(), []);
        for name in ["a", "b", "c"] {
            let _written = append(&store, entry(name)).await.unwrap();
        }
        let listed = list(&store, 2).await.unwrap();
        assert_eq!(subjects(&listed), ["c", "b"]);
        assert_eq!(listed[0], Listed::Entry(Logged { entry: entry("c"), failed: None }));
    }

    #[test]
    fn actions_keep_their_names() {
        for (action, name) in ACTIONS {
            assert_eq!((action.name(), Action::named(name)), (name, action.clone()));
        }
        let newer = Action::named("namespace-hide");
        assert_eq!((newer.name(), newer.is_of_namespace()), ("namespace-hide", true));
        assert!(!Action::WorkerRelease.is_of_namespace());
    }

    /// Goal: a change is made only once its entry is written, and its failure is recorded. Method: a change that succeeds, one
    /// that fails, and a log that cannot be written.
    #[tokio::test]
    async fn a_change_has_its_entry_before_it_and_its_failure_after_it() {
        let store = MemoryStore::new();
        let change = async {
            assert_eq!(subjects(&list(&store, 9).await.unwrap()), ["a"]);
            Ok::<_, String>(7)
        };
        assert_eq!(around(&store, entry("a"), change).await.unwrap(), Ok(7));
        let failed = around(&store, entry("b"), async { Err::<(), _>("the disk\nis full") }).await.unwrap();
        assert!(failed.is_err());
        let listed = list(&store, 9).await.unwrap();
        let failures: Vec<_> = listed
            .iter()
            .map(|it| match it {
                Listed::Entry(Logged { failed, .. }) => failed.as_deref(),
                Listed::Unreadable { .. } => Some("unreadable"),
            })
            .collect();
        assert_eq!(subjects(&listed), ["b", "a"]);
        assert_eq!(failures, [Some("the disk is full"), None]);

        let newest = Key::new(NEWEST).unwrap();
        let _ = store.compare_and_set(&newest, Expected::Absent, b"x").await.unwrap();
        let change = async { panic!("it was made without an entry") };
        let error = around::<(), String>(&store, entry("c"), change).await.unwrap_err().to_string();
        assert!(error.contains("unreadable record audit/page in memory"), "{error}");
    }

    /// Goal: the log is bounded, and the newest entries are there in their order. Method: more entries than the ring holds.
    #[tokio::test]
    async fn the_oldest_page_makes_room_for_the_newest() {
        let store = MemoryStore::new();
        let details = "x".repeat(MAX_DETAILS);
        for number in 0..1400 {
            let entry = Entry { details: details.clone(), ..entry(&number.to_string()) };
            let _written = append(&store, entry).await.unwrap();
        }
        let records = store.list(FOLDER).await.unwrap();
        assert_eq!(records.len() as u64, PAGES + 1);
        assert!(records.iter().all(|(_, record)| record.value.len() <= PAGE_BYTES));
        let listed = list(&store, usize::MAX).await.unwrap();
        let expected: Vec<_> = (0..1400).rev().take(listed.len()).map(|it: u32| it.to_string()).collect();
        assert_eq!(subjects(&listed), expected);
        assert!((1000..1400).contains(&listed.len()), "{} entries", listed.len());
    }

    /// Goal: writers on several nodes lose nothing. Method: tasks that append at once, on two threads.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn writers_at_the_same_time_lose_nothing() {
        let store = Arc::new(MemoryStore::new());
        let mut tasks = tokio::task::JoinSet::new();
        for writer in 0..8 {
            let store = Arc::clone(&store);
            tasks.spawn(async move {
                for number in 0..40 {
                    let _written = append(&*store, entry(&format!("{writer}-{number}"))).await.unwrap();
                }
            });
        }
        tasks.join_all().await;
        let listed = list(&*store, usize::MAX).await.unwrap();
        let each: BTreeSet<_> = subjects(&listed).into_iter().collect();
        assert_eq!((listed.len(), each.len()), (320, 320));
    }

    /// A store whose answers are lost, before or after the write took place.
    #[derive(Debug, Default)]
    struct Unsteady(MemoryStore, AtomicU32);

    #[async_trait]
    impl Store for Unsteady {
        async fn load(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
            self.0.load(key).await
        }

        async fn compare_and_set(&self, key: &Key, at: Expected, value: &[u8]) -> Result<Swap, StoreError> {
            let lost = || StoreError::new(StoreErrorKind::OutcomeUnknown, "write", "unsteady", "no answer");
            match self.1.fetch_add(1, Ordering::Relaxed) % 3 {
                0 => Err(lost()),
                1 => self.0.compare_and_set(key, at, value).await.and_then(|_| Err(lost())),
                _ => self.0.compare_and_set(key, at, value).await,
            }
        }

        async fn list(&self, prefix: &str) -> Result<Vec<(Key, Versioned)>, StoreError> {
            self.0.list(prefix).await
        }

        async fn add(&self, key: &Key, count: NonZeroU64) -> Result<u64, StoreError> {
            self.0.add(key, count).await
        }

        fn describe(&self) -> String {
            "unsteady".to_owned()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_was_lost_makes_no_second_entry() {
        let store = Unsteady::default();
        for number in 0..30 {
            let _written = append(&store, entry(&number.to_string())).await.unwrap();
        }
        let lines: usize = store.0.list("audit/0").await.unwrap().iter().map(|(_, it)| it.value.len()).sum();
        let listed = list(&store, usize::MAX).await.unwrap();
        assert_eq!(listed.len(), 30);
        let one = store.0.list("audit/0").await.unwrap()[0].1.value.clone();
        assert_eq!(String::from_utf8(one).unwrap().lines().count(), 31, "{lines} bytes");
    }

    /// Goal: what this version cannot read is shown and never overwritten, and the log continues beside it. Method: a page of a
    /// newer version, a damaged page, a damaged line.
    #[tokio::test]
    async fn unreadable_records_are_shown_and_kept() {
        let store = MemoryStore::new();
        let key = |number: u64| Key::new(format!("audit/{number:02}")).unwrap();
        let newer: &[u8] = b"{\"audit\":2,\"page\":0}\n";
        let damaged: &[u8] = b"\xff";
        let of_page_2: &[u8] = b"{\"audit\":1,\"page\":2}\nnot JSON\n{\"tag\":\"1\"}\n";
        for (number, value) in [(0, newer), (1, damaged), (2, of_page_2)] {
            let _ = store.compare_and_set(&key(number), Expected::Absent, value).await.unwrap();
        }
        let _written = append(&store, entry("a")).await.unwrap();
        for (number, value) in [(0, newer), (1, damaged)] {
            assert_eq!(store.load(&key(number)).await.unwrap().unwrap().value, value);
        }
        let listed = list(&store, 9).await.unwrap();
        let why = |it: &Listed| match it {
            Listed::Unreadable { record, why } => format!("{record}: {why}"),
            Listed::Entry(_) => "entry".to_owned(),
        };
        let all: Vec<_> = listed.iter().map(why).collect();
        assert!(all[0].contains("audit/00: it has version 2"), "{all:?}");
        assert!(all[1].contains("audit/01: invalid utf-8"), "{all:?}");
        assert_eq!((&*all[2], &*all[3]), ("entry", "audit/02: missing time"));
        assert!(all[4].contains("audit/02: expected"), "{all:?}");
    }

    #[tokio::test]
    async fn texts_are_cut_and_cleaned() {
        assert_eq!(cut("a\nb\u{1b}[31m", 99), "a b [31m");
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abc...");
        assert_eq!(cut(&"\u{e4}".repeat(9), 8), "\u{e4}\u{e4}...");
        let store = MemoryStore::new();
        let long = "\"".repeat(5000);
        let all = Entry { who: long.clone(), from: long.clone(), details: long.clone(), ..entry(&long) };
        let _written = append(&store, all).await.unwrap();
        let [Listed::Entry(Logged { entry, .. })] = &list(&store, 9).await.unwrap()[..] else { panic!() };
        assert_eq!((entry.who.len(), entry.details.len()), (MAX_NAME, MAX_DETAILS));
    }

    #[test]
    fn a_page_follows_if_it_has_all_lines() {
        let page =
            |number: u64, lines: &str| format!("{{\"audit\":1,\"page\":{number}}}\n{lines}").into_bytes();
        let written = page(3, "a\n");
        for (found, follow) in [
            (page(3, "a\n"), true),
            (page(3, "a\nb\n"), true),
            (page(19, "z\n"), true),
            (page(3, "b\n"), false),
            (page(2, "a\n"), false),
            (Vec::new(), false),
        ] {
            assert_eq!(follows(&written, &found), follow, "{}", found.escape_ascii());
        }
        assert!(follows(b"3", b"4") && follows(b"3", b"3") && !follows(b"3", b"2"));
    }
}
