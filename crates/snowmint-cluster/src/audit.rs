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
//! - A change whose outcome is unknown, such as a write without an answer, is logged as [`ChangeFailure::Unknown`]: it may have
//!   taken place. The same applies to a change that the store lost before it had settled ([`MadeEntries`]).
//!
//! # Records
//!
//! The log is a ring of [`PAGES`] records, `audit/00` and so on, and a record with the number of the newest page, `audit/page`.
//! A page holds one line for each entry and grows by compare-and-set, so concurrent writers lose nothing. A full page is not
//! changed again until the ring wraps around. The log holds 16 pages of 48 KiB: at least the newest 200 entries, and usually more
//! than 2,000.
//!
//! A page that replaces another one keeps some of its entries, up to a third of a page: none of the author with the most bytes in
//! the log, and fewer of authors with many entries. So one author cannot push out the entries of all others. Authors that may
//! change [some namespaces](AuthorRights::SomeNamespaces) only count as one, and their entries make room first: any number of
//! their tokens cannot push out the entries of others.
//!
//! The log helps to find mistakes and to reconstruct what happened. It is not evidence: anyone who can write to the store can
//! also rewrite the log.

mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Write as _};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snowmint::utc::Utc;
use snowmint_store::{Store, StoreError, StoreErrorKind};

use crate::NamespaceError;
use crate::identity::host_name;
use pages::{EntryTag, LogLine, Page, number, random, write};

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
/// The number of conflicts with other writers after which a writer gives up.
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
    /// The namespace, worker or token that was changed; empty for the whole store.
    pub subject: String,
    /// The new settings, at most 512 bytes.
    pub details: String,
    /// What its author may change.
    pub rights: AuthorRights,
}

/// What the author of a change may change. It decides whose entries make room for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AuthorRights {
    /// The whole store.
    #[default]
    All,
    /// Some namespaces, by a token of a node.
    SomeNamespaces,
}

impl AuthorRights {
    const fn is_all(self) -> bool {
        matches!(self, Self::All)
    }
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
    /// The log level of a node was changed.
    NodeLogLevel,
    /// An action of a newer version, by its name.
    Other(String),
}

/// The actions that this version writes, and their names in the log.
const ACTIONS: [(Action, &str); 13] = [
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
    (Action::NodeLogLevel, "node-log-level"),
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

    /// Returns whether the action's subject is a namespace.
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
    /// Why it failed, or may have; `None` if no failure was recorded.
    pub failure: Option<ChangeFailure>,
}

/// Why a change did not take place, or may not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeFailure {
    /// It was rejected: the same change never succeeds. Nothing was changed.
    Refused(String),
    /// The store failed. Nothing was changed.
    Failed(String),
    /// The change may have taken place, or may still take place.
    Unknown(String),
}

impl ChangeFailure {
    /// Returns its name: `refused`, `failed` or `unknown`. Names never change.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Returns the reason.
    pub fn why(&self) -> &str {
        let (Self::Refused(why) | Self::Failed(why) | Self::Unknown(why)) = self;
        why
    }

    /// Returns the failure of a name in the log. One of a newer version counts as unknown.
    fn named(name: &str, why: String) -> Self {
        match name {
            // Earlier versions wrote no name.
            "" | "failed" => Self::Failed(why),
            "refused" => Self::Refused(why),
            _ => Self::Unknown(why),
        }
    }
}

impl From<&StoreError> for ChangeFailure {
    fn from(error: &StoreError) -> Self {
        let why = error.to_string();
        if error.kind() == StoreErrorKind::OutcomeUnknown { Self::Unknown(why) } else { Self::Failed(why) }
    }
}

impl From<&NamespaceError> for ChangeFailure {
    fn from(error: &NamespaceError) -> Self {
        match error {
            NamespaceError::Store(error) => Self::from(error),
            NamespaceError::Unsettled { .. } => Self::Unknown(error.to_string()),
            _ => Self::Refused(error.to_string()),
        }
    }
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
    Store(StoreError),
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

impl From<StoreError> for AuditError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
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
    let line = LogLine {
        tag: EntryTag(tag),
        at: Some(Utc(entry.at_unix_ms).to_string()),
        who: cut(&entry.who, MAX_NAME),
        from: cut(&entry.from, MAX_NAME),
        action: cut(entry.action.name(), MAX_NAME),
        subject: cut(&entry.subject, MAX_NAME),
        details: cut(&entry.details, MAX_DETAILS),
        rights: Some(entry.rights).filter(|rights| !rights.is_all()),
        ..LogLine::default()
    };
    write(store, &line).await?;
    Ok(Written { tag })
}

impl Written {
    /// Records that the change failed, or may have.
    ///
    /// # Errors
    ///
    /// [`AuditError`]: the log continues to name the change as made.
    pub async fn failed(self, store: &dyn Store, failure: &ChangeFailure) -> Result<(), AuditError> {
        let failed = match cut(failure.why(), MAX_DETAILS) {
            // An empty reason would read as no failure.
            why if why.is_empty() => failure.name().to_owned(),
            why => why,
        };
        let outcome = failure.name().to_owned();
        write(store, &LogLine { tag: EntryTag(self.tag), failed, outcome, ..LogLine::default() }).await
    }
}

/// The entries of one operation that name a change as made, taken from the pages that it wrote.
///
/// A store that [may lose](Store::may_lose) writes can take back a change after [`around`] has ended. Code that detects this
/// records it here.
#[derive(Debug, Default)]
pub struct MadeEntries(BTreeSet<u64>);

impl MadeEntries {
    /// Remembers the line that this write of a page appended.
    pub fn note(&mut self, page: &[u8]) {
        let Ok(page) = Page::read(page) else { return };
        let Some(line) =
            page.lines.lines().last().and_then(|line| serde_json::from_str::<LogLine>(line).ok())
        else {
            return;
        };
        if line.is_failure() {
            self.0.remove(&line.tag.0);
        } else {
            self.0.insert(line.tag.0);
        }
    }

    /// Records that these changes failed, or may have.
    ///
    /// # Errors
    ///
    /// [`AuditError`]: the log continues to name some of them as made.
    pub async fn failed(self, store: &dyn Store, failure: &ChangeFailure) -> Result<(), AuditError> {
        let mut first = Ok(());
        for tag in self.0 {
            let recorded = Written { tag }.failed(store, failure).await;
            first = first.and(recorded);
        }
        first
    }

    /// Returns `true` if no change was made.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
pub async fn around<T, E>(
    store: &dyn Store,
    entry: Entry,
    change: impl Future<Output = Result<T, E>>,
) -> Result<Result<T, E>, AuditError>
where
    for<'a> ChangeFailure: From<&'a E>,
{
    let written = append(store, entry).await?;
    let changed = change.await;
    if let Err(why) = &changed {
        let failure = ChangeFailure::from(why);
        warn_if_unrecorded(written.failed(store, &failure).await, &failure);
    }
    Ok(changed)
}

/// Logs that the failure of a change could not be recorded.
pub fn warn_if_unrecorded(recorded: Result<(), AuditError>, failure: &ChangeFailure) {
    if let Err(error) = recorded {
        tracing::warn!(%error, outcome = failure.name(), failure = failure.why(), "the audit log names a change as made");
    }
}

/// Lists the newest entries, newest first; unreadable records come before all entries.
///
/// The order is that of the appends, whatever the clocks of their authors.
///
/// # Errors
///
/// The store's error.
pub async fn list(store: &dyn Store, limit: usize) -> Result<Vec<Listed>, StoreError> {
    let records = store.list(FOLDER).await?;
    let (mut pages, mut listed) = (BTreeMap::new(), Vec::new());
    for (key, record) in records.iter().filter(|(key, _)| key.as_str() != NEWEST) {
        match Page::read(&record.value) {
            Ok(page) => {
                pages.insert(page.number, (key, page));
            }
            Err(why) => listed.push(Listed::Unreadable { record: key.to_string(), why }),
        }
    }
    let (mut failures, mut lines) = (BTreeMap::new(), Vec::new());
    for (key, page) in pages.values() {
        for line in page.lines.lines() {
            match serde_json::from_str::<LogLine>(line) {
                Ok(line) if line.is_failure() => {
                    failures.insert(line.tag.0, ChangeFailure::named(&line.outcome, line.failed));
                }
                Ok(line) => lines.push((line.page.unwrap_or(page.number), key, Ok(line))),
                Err(why) => lines.push((page.number, key, Err(why.to_string()))),
            }
        }
    }
    // Kept lines are older than the page that they are in.
    lines.sort_by_key(|(page, ..)| *page);
    let mut seen = BTreeSet::new();
    for (_, key, line) in lines.into_iter().rev() {
        // A write with an unknown outcome may have been repeated.
        if line.as_ref().is_ok_and(|line| !seen.insert(line.tag.0)) {
            continue;
        }
        let entry = line.and_then(|line| {
            let failure = failures.remove(&line.tag.0);
            Ok(Listed::Entry(Logged { entry: line.entry()?, failure }))
        });
        listed.push(entry.unwrap_or_else(|why| Listed::Unreadable { record: key.to_string(), why }));
    }
    listed.truncate(limit);
    Ok(listed)
}

/// Returns the name of this host, for [`Entry::from`].
pub fn this_host() -> String {
    host_name()
}

/// Returns whether the page `found` holds all lines of the page `written`, or is a newer page. A reader checks with it that no
/// failover took a line back.
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
    use snowmint_store::{Expected, Key, MemoryStore, Swap, Versioned};

    use super::*;

    fn entry(subject: &str) -> Entry {
        Entry {
            at_unix_ms: 1_790_000_000_123,
            who: "alice".to_owned(),
            from: "web-3".to_owned(),
            action: Action::NamespaceAdd,
            subject: subject.to_owned(),
            details: "segment cached, all numbers".to_owned(),
            rights: AuthorRights::All,
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
        assert_eq!(listed[0], Listed::Entry(Logged { entry: entry("c"), failure: None }));
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

    fn failures(listed: &[Listed]) -> Vec<Option<ChangeFailure>> {
        let failure = |it: &'_ Listed| match it {
            Listed::Entry(Logged { failure, .. }) => failure.clone(),
            Listed::Unreadable { why, .. } => panic!("{why}"),
        };
        listed.iter().map(failure).collect()
    }

    /// Goal: a change is made only once its entry is written, and its failure is recorded: one whose outcome is unknown does not
    /// count as failed. Method: a change that succeeds, one for each failure, and a log that cannot be written.
    #[tokio::test]
    async fn a_change_has_its_entry_before_it_and_its_failure_after_it() {
        let store = MemoryStore::new();
        let change = async {
            assert_eq!(subjects(&list(&store, 9).await.unwrap()), ["a"]);
            Ok::<_, StoreError>(7)
        };
        assert_eq!(around(&store, entry("a"), change).await.unwrap().unwrap(), 7);
        let lost = |kind| async move { Err::<(), _>(StoreError::new(kind, "add", "disk", "is\nfull")) };
        for (name, kind) in [("b", StoreErrorKind::Full), ("c", StoreErrorKind::OutcomeUnknown)] {
            assert!(around(&store, entry(name), lost(kind)).await.unwrap().is_err());
        }
        let dropped = NamespaceError::Missing { name: "n".parse().unwrap(), store: "disk".to_owned() };
        assert!(around(&store, entry("d"), async { Err::<(), _>(dropped) }).await.unwrap().is_err());
        let listed = list(&store, 9).await.unwrap();
        assert_eq!(subjects(&listed), ["d", "c", "b", "a"]);
        let [Some(refused), Some(unknown), Some(failed), None] = &failures(&listed)[..] else {
            panic!("{listed:?}")
        };
        assert!(matches!(refused, ChangeFailure::Refused(why) if why.starts_with("unknown namespace n")));
        assert!(matches!(unknown, ChangeFailure::Unknown(why) if why.contains("may have happened")));
        assert!(matches!(failed, ChangeFailure::Failed(why) if why.ends_with("is\\nfull")));

        let newest = Key::new(NEWEST).unwrap();
        let pointer = store.load(&newest).await.unwrap();
        let at = pointer.map_or(Expected::Absent, |found| Expected::Revision(found.revision));
        let _ = store.compare_and_set(&newest, at, b"x").await.unwrap();
        let change = async { panic!("it was made without an entry") };
        let error = around::<(), StoreError>(&store, entry("e"), change).await.unwrap_err().to_string();
        assert!(error.contains("unreadable record audit/page in memory"), "{error}");
    }

    /// Goal: lines of earlier versions, which have no kind of failure, count as failures. Method: such a page.
    #[tokio::test]
    async fn a_failure_without_a_kind_is_a_failure() {
        let store = MemoryStore::new();
        let page =
            b"{\"audit\":1,\"page\":0}\n{\"tag\":\"1\",\"at\":\"2026-11-22T10:00:00Z\",\"who\":\"a\"}\n\
                     {\"tag\":\"1\",\"failed\":\"full\"}\n";
        let _ = store.compare_and_set(&Key::new("audit/00").unwrap(), Expected::Absent, page).await.unwrap();
        let listed = list(&store, 9).await.unwrap();
        assert_eq!(failures(&listed), [Some(ChangeFailure::Failed("full".to_owned()))]);
        assert_eq!(ChangeFailure::named("newer", String::new()).name(), "unknown");
    }

    /// Goal: one author cannot push the entries of others out of the log, however many it writes, and two cannot either. Method:
    /// some entries of several people, a failure among them, and then several rings of entries of one and two tokens.
    #[tokio::test]
    async fn one_author_does_not_push_out_the_others() {
        for tokens in [1, 2] {
            let store = MemoryStore::new();
            for number in 0..30 {
                let subject = format!("early-{number}");
                let early = Entry { who: format!("person {}", number % 3), ..entry(&subject) };
                if number == 7 {
                    let lost = StoreError::new(StoreErrorKind::OutcomeUnknown, "add", "disk", "no answer");
                    let _ = around(&store, early, async { Err::<(), _>(lost) }).await.unwrap();
                } else {
                    let _written = append(&store, early).await.unwrap();
                }
            }
            for number in 0..6000 {
                let details = "x".repeat(MAX_DETAILS);
                let who = format!("token {}", number % tokens);
                let _written = append(&store, Entry { who, details, ..entry("late") }).await.unwrap();
            }
            let records = store.list(FOLDER).await.unwrap();
            assert!(records.iter().all(|(_, record)| record.value.len() <= PAGE_BYTES));
            let listed = list(&store, usize::MAX).await.unwrap();
            let all = subjects(&listed);
            let early: Vec<_> = all.iter().filter(|it| it.starts_with("early")).cloned().collect();
            let wanted: Vec<_> = (0..30).rev().map(|number| format!("early-{number}")).collect();
            assert_eq!(early, wanted, "{tokens}: all of them, newest first");
            assert!(all.ends_with(&wanted), "{tokens}: they are the oldest");
            let at = all.iter().position(|it| it == "early-7").unwrap();
            assert!(matches!(failures(&listed)[at], Some(ChangeFailure::Unknown(_))));
            assert_eq!(failures(&listed).iter().flatten().count(), 1);
        }
    }

    /// Goal: tokens for some namespaces cannot push out the entries of those who may change the whole store, however many tokens
    /// there are. Method: many entries of an administrator, and then several rings of entries of 30 such tokens.
    #[tokio::test]
    async fn tokens_for_some_namespaces_do_not_push_out_administrators() {
        let store = MemoryStore::new();
        let details = "x".repeat(MAX_DETAILS);
        for number in 0..300 {
            let early = Entry { details: details.clone(), ..entry(&format!("early-{number}")) };
            let _written = append(&store, early).await.unwrap();
        }
        for number in 0..3000 {
            let who = format!("token {}", number % 30);
            let rights = AuthorRights::SomeNamespaces;
            let late = Entry { who, details: details.clone(), rights, ..entry("late") };
            let _written = append(&store, late).await.unwrap();
        }
        let all = subjects(&list(&store, usize::MAX).await.unwrap());
        let kept = all.iter().filter(|it| it.starts_with("early")).count();
        // A third of the four pages that they filled.
        assert!(kept >= 80, "{kept}");
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

    /// Goal: writers on several nodes lose nothing. Method: tasks that append at the same time, on two threads.
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

    /// A store that loses answers, before or after the write took place.
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

    /// Goal: records that this version cannot read are listed and never overwritten, and the log continues. Method: a page of a
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
