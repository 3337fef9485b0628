//! The records of the log: pages of lines, in a ring.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use snowmint::utc;
use snowmint_store::{Expected, Key, Swap, Versioned};
use tokio::time::sleep;

use super::*;
use snowmint::random::SplitMix64;

/// How many bytes of a page the entries kept from the replaced page may take.
const KEPT_BYTES: usize = PAGE_BYTES / 3;

/// A line of a page: a change, or the failure of one with the same tag.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct LogLine {
    pub(super) tag: EntryTag,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) who: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) from: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) action: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subject: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) details: String,
    /// What the author may change, unless it is everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rights: Option<AuthorRights>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) failed: String,
    /// The name of the failure.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) outcome: String,
    /// The page that a kept line was written to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) page: Option<u64>,
}

/// A random number that ties the failure of a change to its entry, in 16 hex digits.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(super) struct EntryTag(pub(super) u64);

impl From<EntryTag> for String {
    fn from(tag: EntryTag) -> Self {
        format!("{:016x}", tag.0)
    }
}

impl TryFrom<String> for EntryTag {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        u64::from_str_radix(&text, 16)
            .map(Self)
            .map_err(|_| format!("invalid tag {text:?}: expected hex digits"))
    }
}

impl LogLine {
    /// Returns whether the line says that a change failed.
    pub(super) const fn is_failure(&self) -> bool {
        !self.failed.is_empty()
    }

    pub(super) fn entry(self) -> Result<Entry, String> {
        let at = self.at.ok_or("missing time")?;
        let at_unix_ms = utc::parse(&at).map_err(|error| error.to_string())?;
        let action = Action::named(&self.action);
        let Self { who, from, subject, details, rights, .. } = self;
        Ok(Entry { at_unix_ms, who, from, action, subject, details, rights: rights.unwrap_or_default() })
    }
}

/// The first line of a page.
#[derive(Serialize, Deserialize)]
struct PageHeader {
    audit: u32,
    page: u64,
}

/// A page of the log.
pub(super) struct Page<'a> {
    pub(super) number: u64,
    /// One JSON object a line.
    pub(super) lines: &'a str,
}

impl<'a> Page<'a> {
    pub(super) fn read(value: &'a [u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(value).map_err(|error| error.to_string())?;
        let (header, lines) = text.split_once('\n').ok_or("its first line does not end")?;
        let header: PageHeader = serde_json::from_str(header).map_err(|error| error.to_string())?;
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
pub(super) async fn write(store: &dyn Store, line: &LogLine) -> Result<(), AuditError> {
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
            Ok(None) => Some(begun(number, &line, store)?),
            // A page of the previous round.
            Ok(Some(page)) if page.number < number => {
                let kept = kept(&store.list(FOLDER).await?, page);
                Some(begun(number, &(kept + &line), store)?)
            }
            // The write with an unknown outcome took place.
            Ok(Some(page)) if page.lines.contains(&line) => return Ok(()),
            Ok(Some(page)) if page.number == number => {
                let value = found.as_ref().map(|found| found.value.as_slice()).unwrap_or_default();
                let fits = value.len() + line.len() <= PAGE_BYTES;
                fits.then(|| [value, line.as_bytes()].concat())
            }
            // The page is full, damaged, or of a newer version: it stays as it is.
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
            Ok(Swap::Conflict) => sleep(Duration::from_millis(random.below(PAUSE_MS))).await,
            Err(error) if error.kind() == StoreErrorKind::OutcomeUnknown => {
                sleep(BEFORE_LOOKING).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(AuditError::Busy { store: store.describe() })
}

/// Returns a page with its first lines.
fn begun(number: u64, lines: &str, store: &dyn Store) -> Result<Vec<u8>, AuditError> {
    let header = json(&PageHeader { audit: VERSION, page: number }, store)?;
    Ok(format!("{header}\n{lines}").into_bytes())
}

/// The rights of an author, and its name.
type Author = (AuthorRights, String);

/// Returns the author whose entries make room first: of those for some namespaces if they have more bytes together than each other
/// author.
fn heaviest(of_author: &BTreeMap<Author, usize>) -> Option<&Author> {
    let most = |rights| {
        let of_rights = of_author.iter().filter(move |((its, _), _)| *its == rights);
        of_rights.max_by_key(|(_, bytes)| **bytes)
    };
    let some: usize =
        of_author.iter().filter(|((rights, _), _)| !rights.is_all()).map(|(_, bytes)| *bytes).sum();
    match most(AuthorRights::All) {
        Some((author, bytes)) if *bytes >= some => Some(author),
        _ => most(AuthorRights::SomeNamespaces).map(|(author, _)| author),
    }
}

/// An entry of a page that is about to be replaced, and its author.
struct Keepable {
    author: Author,
    /// The line of the entry, and that of its failure.
    lines: String,
}

/// Returns the lines that the page which replaces `replaced` keeps: none of the author with the most bytes in the ring, and up to
/// [`KEPT_BYTES`] of the others. The oldest lines are dropped first: those of authors for some namespaces before others, and those
/// of the author with the most bytes before others.
fn kept(ring: &[(Key, Versioned)], replaced: &Page<'_>) -> String {
    let pages = ring.iter().filter(|(key, _)| key.as_str() != NEWEST);
    let pages: Vec<_> = pages.filter_map(|(_, record)| Page::read(&record.value).ok()).collect();
    let mut of_author: BTreeMap<Author, usize> = BTreeMap::new();
    let mut failures = BTreeMap::new();
    for page in &pages {
        for text in page.lines.lines() {
            let Ok(line) = serde_json::from_str::<LogLine>(text) else { continue };
            if line.is_failure() {
                failures.insert(line.tag.0, LogLine { page: line.page.or(Some(page.number)), ..line });
            } else {
                *of_author.entry((line.rights.unwrap_or_default(), line.who)).or_default() += text.len();
            }
        }
    }
    let Some(heaviest) = heaviest(&of_author) else { return String::new() };
    let keepable = |text: &str| {
        let line: LogLine = serde_json::from_str(text).ok().filter(|line: &LogLine| !line.is_failure())?;
        // A failure is kept with its entry: without it, the change would count as made.
        let failure = failures.get(&line.tag.0);
        let author = (line.rights.unwrap_or_default(), line.who.clone());
        let line = LogLine { page: line.page.or(Some(replaced.number)), ..line };
        let lines =
            std::iter::once(&line).chain(failure).map(|line| serde_json::to_string(line).map(|it| it + "\n"));
        let lines = lines.collect::<Result<String, _>>().ok()?;
        (author != *heaviest).then_some(Keepable { author, lines })
    };
    let mut all: Vec<_> = replaced.lines.lines().filter_map(keepable).collect();
    loop {
        let mut of_author: BTreeMap<&Author, usize> = BTreeMap::new();
        for it in &all {
            *of_author.entry(&it.author).or_default() += it.lines.len();
        }
        let bytes: usize = of_author.values().sum();
        // The order of the rights is that in which they keep their entries.
        let first = of_author.into_iter().max_by_key(|((rights, _), bytes)| (*rights, *bytes));
        let Some((first, _)) = first.filter(|_| bytes > KEPT_BYTES) else { break };
        let Some(oldest) = all.iter().position(|it| it.author == *first) else { break };
        all.remove(oldest);
    }
    all.into_iter().map(|it| it.lines).collect()
}

pub(super) fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

fn key(text: &str, store: &dyn Store) -> Result<Key, StoreError> {
    Key::new(text).map_err(|error| StoreError::new(StoreErrorKind::Other, "key", store.describe(), error))
}

fn json(value: &impl Serialize, store: &dyn Store) -> Result<String, StoreError> {
    serde_json::to_string(value)
        .map_err(|error| StoreError::new(StoreErrorKind::Other, "entry", store.describe(), error))
}

pub(super) fn random(store: &dyn Store) -> Result<u64, StoreError> {
    getrandom::u64()
        .map_err(|error| StoreError::new(StoreErrorKind::Other, "random number", store.describe(), error))
}
