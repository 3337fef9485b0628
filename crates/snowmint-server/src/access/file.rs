//! Reads the tokens file, in TOML, and adds, replaces or removes a row without touching the rest.
//!
//! ```toml
//! [tokens.orders-service]
//! sha256 = "…"
//! namespaces = ["orders", "users-*"]
//! rights = ["mint", "inspect"]
//! rate = "50k/s"
//! per_day = "10M"
//! expires = "2027-02-20T00:00:00Z"
//! ```
//!
//! The file holds no secret, so it may be kept with the configuration.
//!
//! # A file that was cut
//!
//! A file that is copied or written in place can be read while its end is missing. It may still be valid, and
//! a row without its end has the default rights, no quota and no expiry. Therefore the commands write a first
//! line which says that the file ends with [`LAST_LINE`], and a file with the first line and without the last
//! one is invalid.
//!
//! Files without these two lines are as valid as before, since people write them too. When a node reads one
//! again, it compares it with the file in use: `check_successor`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::Deserialize;
use snowmint::error::Snippet;
use snowmint::utc::{self, Utc};
use snowmint_admin::nearest::unknown_name;
use toml::de::{DeTable, Deserializer, Error as TomlError};
use toml::{Spanned, Value};

use super::quota::{MAX_PER_DAY, MAX_RATE, Quotas};
use super::secret::{SecretDigest, TokenName};

/// The keys of a row.
const KEYS: [&str; 8] =
    ["sha256", "previous_sha256", "previous_until", "namespaces", "rights", "rate", "per_day", "expires"];
/// The first line of a file that must end with [`LAST_LINE`].
const FIRST_LINE: &str =
    "# Tokens of Snowmint. Without the last line \"# end of tokens\" this file is incomplete.";
/// The last line of a complete file.
pub const LAST_LINE: &str = "# end of tokens";
/// Maximum length of a pattern in bytes; no name is this long.
const MAX_PATTERN: usize = 128;

/// What a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Take ids.
    Mint,
    /// Decode ids, and list namespaces.
    Inspect,
    /// Change namespaces and the node.
    Admin,
}

impl Right {
    /// Every right.
    pub const ALL: [Self; 3] = [Self::Mint, Self::Inspect, Self::Admin];

    /// Returns the name, as files and flags write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mint => "mint",
            Self::Inspect => "inspect",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for Right {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|right| right.name() == text);
        known.ok_or_else(|| format!("invalid right {}: expected mint, inspect or admin", Snippet::of(text)))
    }
}

/// The rights of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// Returns `true` if `right` is one of them.
    pub const fn has(self, right: Right) -> bool {
        self.0 & 1 << right as u8 != 0
    }

    /// Returns the rights in the order of [`Right::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.has(*right))
    }
}

/// The default: to take and decode ids.
impl Default for Rights {
    fn default() -> Self {
        [Right::Mint, Right::Inspect].into_iter().collect()
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        Self(rights.into_iter().fold(0, |all, right| all | 1 << right as u8))
    }
}

/// A pattern of namespace names, in which `*` stands for any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Returns `true` if the pattern covers this name.
    pub fn covers(&self, name: &[u8]) -> bool {
        let pattern = self.0.as_bytes();
        let (mut at, mut read) = (0, 0);
        // The last star, and the part of the name that it covers so far.
        let mut star: Option<(usize, usize)> = None;
        while read < name.len() {
            match pattern.get(at) {
                Some(b'*') => {
                    star = Some((at, read));
                    at += 1;
                }
                Some(byte) if *byte == name[read] => (at, read) = (at + 1, read + 1),
                _ => {
                    let Some((star_at, covered)) = star else { return false };
                    star = Some((star_at, covered + 1));
                    (at, read) = (star_at + 1, covered + 1);
                }
            }
        }
        pattern[at..].iter().all(|byte| *byte == b'*')
    }

    /// Returns `true` if the pattern covers every name.
    pub fn covers_all(&self) -> bool {
        self.0.bytes().all(|byte| byte == b'*')
    }

    /// Returns the pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:*".contains(&byte);
        if (1..=MAX_PATTERN).contains(&text.len()) && text.bytes().all(valid) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "invalid namespace pattern {}: expected a namespace name, in which * stands for any text, such as users-*",
            Snippet::of(text)
        ))
    }
}

/// Parses a number of ids: digits, then optionally `k`, `M` or `G` for thousands, millions or billions.
///
/// # Errors
///
/// The text is not such a number, or is not within 1 to `most`.
pub fn parse_amount(text: &str, most: u64) -> Result<NonZeroU64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1000),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let number = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let number = number.and_then(|digits| digits.parse::<u64>().ok()?.checked_mul(unit));
    let number = number.and_then(NonZeroU64::new).filter(|number| number.get() <= most);
    number.ok_or_else(|| {
        format!("invalid number {}: expected 1 to {}, such as 50k", Snippet::of(text), amount(most))
    })
}

/// Parses `--rate`: `50k/s`, or `50k`.
///
/// # Errors
///
/// As [`parse_amount`].
pub fn parse_rate(text: &str) -> Result<NonZeroU64, String> {
    parse_amount(text.strip_suffix("/s").unwrap_or(text), MAX_RATE)
}

/// Parses `--per-day`.
///
/// # Errors
///
/// As [`parse_amount`].
pub fn parse_per_day(text: &str) -> Result<NonZeroU64, String> {
    parse_amount(text, MAX_PER_DAY)
}

/// Formats 50,000 as `50k`.
pub fn amount(number: u64) -> String {
    let units = [(1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")];
    let unit = units.into_iter().find(|(unit, _)| number >= *unit && number.is_multiple_of(*unit));
    unit.map_or_else(|| number.to_string(), |(unit, name)| format!("{}{name}", number / unit))
}

/// A secret that a rotation replaced, and that is still valid for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviousSecret {
    /// Its hash.
    pub digest: SecretDigest,
    /// The end of its validity, in unix milliseconds.
    pub until_unix_ms: u64,
}

/// One row of the file: a token and what it may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// The hash of its secret.
    pub digest: SecretDigest,
    /// The previous secret, while it is still valid.
    pub previous: Option<PreviousSecret>,
    /// The namespaces that it may use.
    pub namespaces: Vec<Pattern>,
    /// What it may do with them.
    pub rights: Rights,
    /// The number of ids that it may take from one node.
    pub quotas: Quotas,
    /// The first instant at which it is not valid, in unix milliseconds.
    pub expires_unix_ms: Option<u64>,
}

impl TokenRow {
    /// Returns `true` if the token covers this namespace.
    pub fn covers(&self, namespace: &[u8]) -> bool {
        self.namespaces.iter().any(|pattern| pattern.covers(namespace))
    }

    /// Returns the row as text, with its table header.
    fn text(&self, name: &TokenName) -> String {
        let mut text = format!("[tokens.{name}]\n");
        let mut line = |key: &str, value: &str| {
            // Writing to a `String` never fails; no value has a character that TOML would escape.
            let _ = writeln!(text, "{key} = {value}");
        };
        let quoted = |value: &dyn std::fmt::Display| format!("\"{value}\"");
        let list = |values: Vec<&str>| format!("[\"{}\"]", values.join("\", \""));
        line("sha256", &quoted(&self.digest));
        if let Some(PreviousSecret { digest, until_unix_ms }) = self.previous {
            line("previous_sha256", &quoted(&digest));
            line("previous_until", &quoted(&Utc(until_unix_ms)));
        }
        line("namespaces", &list(self.namespaces.iter().map(Pattern::as_str).collect()));
        line("rights", &list(self.rights.iter().map(Right::name).collect()));
        if let Some(rate) = self.quotas.rate {
            line("rate", &quoted(&format_args!("{}/s", amount(rate.get()))));
        }
        if let Some(per_day) = self.quotas.per_day {
            line("per_day", &quoted(&amount(per_day.get())));
        }
        if let Some(expires) = self.expires_unix_ms {
            line("expires", &quoted(&Utc(expires)));
        }
        text
    }
}

/// The rows of a file, by name.
pub type TokenRows = BTreeMap<TokenName, TokenRow>;

/// Reads a tokens file.
///
/// # Errors
///
/// The error names the line, the token, the key and the reason. An unknown key is an error: with a misspelt
/// `expires`, a token would never expire.
pub fn parse(text: &str) -> Result<TokenRows, String> {
    let has_first = text.lines().next().is_some_and(|line| line.trim() == FIRST_LINE);
    if has_first && !text.lines().any(|line| line.trim() == LAST_LINE) {
        return Err(format!(
            "the file was cut: its first line says that it ends with the line \"{LAST_LINE}\", which is missing; copy the file \
             again, or remove the first line if the rest is complete"
        ));
    }
    let top = DeTable::parse(text).map_err(|error| syntax(text, &error))?.into_inner();
    if let Some(key) = top.keys().find(|key| key.get_ref() != "tokens") {
        return Err(at(text, key.span(), &unknown_name("key", key.get_ref(), ["tokens"])));
    }
    of_table(top, text)
}

/// Reads the table of a file that was parsed, or the table `tokens` of a larger file. `text` is the whole
/// file: errors name its lines.
///
/// # Errors
///
/// As for [`parse`].
pub fn of_table(table: DeTable<'_>, text: &str) -> Result<TokenRows, String> {
    let at = |span: Span, why: &str| at(text, span, why);
    let File { tokens } = File::deserialize(Deserializer::from(Spanned::new(0..text.len(), table)))
        .map_err(|error| syntax(text, &error))?;
    let mut rows = TokenRows::new();
    for (spanned, values) in tokens {
        let name =
            TokenName::new(spanned.get_ref()).map_err(|error| at(spanned.span(), &error.to_string()))?;
        let mut fields = BTreeMap::new();
        for (key, value) in values {
            let span = key.span();
            let Some(known) = KEYS.into_iter().find(|known| known == key.get_ref()) else {
                let why = format!("token `{name}`: {}", unknown_name("key", key.get_ref(), KEYS));
                return Err(at(span, &why));
            };
            fields.insert(known, (span, value));
        }
        let row = row(fields).map_err(|(span, why)| {
            at(span.unwrap_or_else(|| spanned.span()), &format!("token `{name}`: {why}"))
        })?;
        rows.insert(name, row);
    }
    Ok(rows)
}

/// Returns an error at a place in a file.
fn at(text: &str, span: Span, why: &str) -> String {
    format!("line {}: {why}", 1 + text[..span.start.min(text.len())].matches('\n').count())
}

fn syntax(text: &str, error: &TomlError) -> String {
    error.span().map_or_else(|| error.message().to_owned(), |span| at(text, span, error.message()))
}

/// Checks a text that replaces another one, both valid, by which tokens and keys it lacks: a file that was
/// cut, or emptied by mistake, must neither reject clients nor free them from their quotas. A text that ends
/// with [`LAST_LINE`] is complete, whatever it lacks.
///
/// # Errors
///
/// What the text lacks, and how to confirm that.
pub(super) fn check_successor(before: &str, text: &str, known: usize, lost: &[&str]) -> Result<(), String> {
    if text.lines().rfind(|line| !line.trim().is_empty()).is_some_and(|line| line.trim() == LAST_LINE) {
        return Ok(());
    }
    // What follows in the file in use. A comment says nothing: there may be one within a table.
    let next = |rest: &str| {
        let mut lines = rest.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.next().is_some_and(|line| !line.starts_with('['))
    };
    let why = match (before.strip_prefix(text), lost) {
        // Not at the end of a table, which is where a person would cut it.
        (Some(rest), _) if next(rest) => {
            "its text is that of the file in use, but ends within a table".to_owned()
        }
        (_, [first, ..]) if lost.len() * 2 > known => {
            format!("it lacks {} of {known} tokens, such as `{first}`", lost.len())
        }
        _ => match key_lost_at_the_end(before, text) {
            Some((name, key)) => format!("its last table, of token `{name}`, lacks the key `{key}`"),
            None => return Ok(()),
        },
    };
    Err(format!(
        "the file may have been cut: {why}; if it is complete, end it with the line \"{LAST_LINE}\", as `snowmint token` does"
    ))
}

/// Returns a key that the last table of a text lacks, although the file in use has it, with the name of the
/// token.
fn key_lost_at_the_end(before: &str, text: &str) -> Option<(String, String)> {
    // Both are valid.
    let tables = |text| toml::from_str(text).map_or_else(|_| BTreeMap::new(), |File { tokens }| tokens);
    let (name, row) = tables(text).into_iter().max_by_key(|(name, _)| name.span().start)?;
    let before = tables(before).remove(&name)?;
    let lost = before.into_keys().find(|key| !row.contains_key(key))?;
    Some((name.into_inner(), lost.into_inner()))
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    tokens: BTreeMap<Spanned<String>, BTreeMap<Spanned<String>, Value>>,
}

type Span = std::ops::Range<usize>;
type Fields = BTreeMap<&'static str, (Span, Value)>;
/// The reason, and where in the file if one value is wrong.
type FieldError = (Option<Span>, String);

fn row(mut fields: Fields) -> Result<TokenRow, FieldError> {
    let digest = take(&mut fields, "sha256", digest)?.ok_or_else(|| missing("sha256"))?;
    let previous = take(&mut fields, "previous_sha256", self::digest)?;
    let until = take(&mut fields, "previous_until", instant)?;
    let previous = match (previous, until) {
        (Some(digest), Some(until_unix_ms)) => Some(PreviousSecret { digest, until_unix_ms }),
        (None, None) => None,
        (Some(_), None) => return Err(missing("previous_until")),
        (None, Some(_)) => return Err(missing("previous_sha256")),
    };
    let namespaces = take(&mut fields, "namespaces", list)?.ok_or_else(|| missing("namespaces"))?;
    let rights = take(&mut fields, "rights", list::<Right>)?;
    let rate = take(&mut fields, "rate", |value| parse_rate(&number_or_text(value)?))?;
    let per_day = take(&mut fields, "per_day", |value| parse_per_day(&number_or_text(value)?))?;
    let expires_unix_ms = take(&mut fields, "expires", instant)?;
    let rights = rights.map_or_else(Rights::default, |rights| rights.into_iter().collect());
    Ok(TokenRow { digest, previous, namespaces, rights, quotas: Quotas { rate, per_day }, expires_unix_ms })
}

fn missing(key: &str) -> FieldError {
    let example = match key {
        "namespaces" => "; expected a list of names or patterns, such as [\"orders\", \"users-*\"]",
        "sha256" => "; `snowmint token create` writes it",
        _ => "",
    };
    (None, format!("missing key `{key}`{example}"))
}

fn take<T>(
    fields: &mut Fields,
    key: &'static str,
    parse: impl FnOnce(&Value) -> Result<T, String>,
) -> Result<Option<T>, FieldError> {
    let Some((span, value)) = fields.remove(key) else { return Ok(None) };
    parse(&value).map(Some).map_err(|why| (Some(span), format!("invalid value of `{key}`: {why}")))
}

fn text_of(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("expected a text, not a value of type {}", value.type_str()))
}

fn digest(value: &Value) -> Result<SecretDigest, String> {
    text_of(value)?.parse().map_err(|error: super::secret::DigestError| error.to_string())
}

fn instant(value: &Value) -> Result<u64, String> {
    let text = match value {
        Value::Datetime(instant) => instant.to_string(),
        value => text_of(value)?.to_owned(),
    };
    utc::parse(&text).map_err(|error| error.to_string())
}

fn number_or_text(value: &Value) -> Result<String, String> {
    match value {
        Value::Integer(number) => Ok(number.to_string()),
        value => text_of(value).map(str::to_owned),
    }
}

/// Parses a list that must not be empty.
fn list<T: FromStr<Err = String>>(value: &Value) -> Result<Vec<T>, String> {
    let values = value.as_array().filter(|values| !values.is_empty());
    let values = values.ok_or_else(|| "expected a list of texts that is not empty".to_owned())?;
    values.iter().map(|value| text_of(value)?.parse()).collect()
}

/// Why a file was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The file was invalid before the change.
    #[error("{0}")]
    Invalid(String),
    /// A token of this name exists.
    #[error(
        "token `{0}` exists: choose another name, or replace its secret with `snowmint token rotate {0}`"
    )]
    Exists(TokenName),
    /// No token has this name.
    #[error("unknown token `{name}`: the file has {known}")]
    Unknown {
        /// The name.
        name: TokenName,
        /// The names that exist, as text.
        known: String,
    },
    /// The file is valid, but does not have the form that these commands write.
    #[error("token `{0}` is not in a table of its own, [tokens.{0}]: change the file by hand")]
    ByHand(TokenName),
}

/// Returns the text with a row added at its end.
///
/// # Errors
///
/// [`EditError`]: the file is invalid, or has a token of this name.
pub fn with_row(text: &str, name: &TokenName, row: &TokenRow) -> Result<String, EditError> {
    let mut rows = parse(text).map_err(EditError::Invalid)?;
    if rows.insert(name.clone(), row.clone()).is_some() {
        return Err(EditError::Exists(name.clone()));
    }
    let mut changed = unmarked(text).trim_end().to_owned();
    if !changed.is_empty() {
        changed.push_str("\n\n");
    }
    changed.push_str(&row.text(name));
    checked(&changed, &rows, name)
}

/// Returns the text with the row of this name replaced. Comments inside the row are lost.
///
/// # Errors
///
/// [`EditError`]: the file is invalid, or has no such table.
pub fn with_changed_row(text: &str, name: &TokenName, row: &TokenRow) -> Result<String, EditError> {
    let mut rows = parse(text).map_err(EditError::Invalid)?;
    existing(&rows, name)?;
    rows.insert(name.clone(), row.clone());
    let text = unmarked(text);
    let (before, after) = around(&text, name)?;
    let gap = if after.is_empty() { "" } else { "\n" };
    checked(&format!("{before}{}{gap}{after}", row.text(name)), &rows, name)
}

/// Returns the text without the row of this name.
///
/// # Errors
///
/// [`EditError`]: the file is invalid, or has no such table.
pub fn without_row(text: &str, name: &TokenName) -> Result<String, EditError> {
    let mut rows = parse(text).map_err(EditError::Invalid)?;
    existing(&rows, name)?;
    rows.remove(name);
    let text = unmarked(text);
    let (before, after) = around(&text, name)?;
    checked(&format!("{before}{after}"), &rows, name)
}

/// Returns the row of this name.
///
/// # Errors
///
/// [`EditError::Unknown`] lists the names that exist.
pub fn existing<'a>(rows: &'a TokenRows, name: &TokenName) -> Result<&'a TokenRow, EditError> {
    rows.get(name).ok_or_else(|| {
        let known = rows.keys().map(TokenName::as_str).collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { "none".to_owned() } else { known };
        EditError::Unknown { name: name.clone(), known }
    })
}

/// Returns the text before and after the table of a token. Comments between two tables belong to the second
/// one.
fn around<'a>(text: &'a str, name: &TokenName) -> Result<(&'a str, &'a str), EditError> {
    let head = format!("[tokens.{name}]");
    let is_head = |line: &str| line.split('#').next().is_some_and(|line| line.trim() == head);
    let mut starts = vec![0];
    starts.extend(text.match_indices('\n').map(|(at, _)| at + 1));
    let lines: Vec<(usize, &str)> =
        starts.iter().map(|start| (*start, text[*start..].lines().next().unwrap_or_default())).collect();
    let first = lines.iter().position(|(_, line)| is_head(line));
    let first = first.ok_or_else(|| EditError::ByHand(name.clone()))?;
    let next = lines[first + 1..].iter().position(|(_, line)| line.trim_start().starts_with('['));
    let end = next.map_or(text.len(), |next| {
        let mut next = first + 1 + next;
        while lines[next - 1].1.trim_start().starts_with('#') {
            next -= 1;
        }
        lines[next].0
    });
    Ok((&text[..lines[first].0], &text[end..]))
}

/// Returns the text without its first and last line, if they are those of a complete file.
fn unmarked(text: &str) -> String {
    text.split_inclusive('\n').filter(|line| ![FIRST_LINE, LAST_LINE].contains(&line.trim())).collect()
}

/// Returns the changed text as a complete file, if it parses to the wanted rows. It may not, if the file was
/// written in a form that these commands do not write.
fn checked(changed: &str, wanted: &TokenRows, name: &TokenName) -> Result<String, EditError> {
    let rows = changed.trim_start_matches(['\r', '\n']).trim_end();
    let gap = if rows.is_empty() { "" } else { "\n\n" };
    let changed = format!("{FIRST_LINE}\n\n{rows}{gap}{LAST_LINE}\n");
    match parse(&changed) {
        Ok(rows) if rows == *wanted => Ok(changed),
        _ => Err(EditError::ByHand(name.clone())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::secret::Secret;
    use super::*;

    const HASH: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn name(text: &str) -> TokenName {
        TokenName::new(text).unwrap()
    }

    /// Checks that a tokens file is rejected with a reason, or that its rows are the same after they are
    /// written and read.
    fn check_file(text: &str) {
        let rows = match parse(text) {
            Ok(rows) => rows,
            Err(why) => return assert!(!why.is_empty()),
        };
        let mut written = String::new();
        for (name, row) in &rows {
            written = with_row(&written, name, row).unwrap();
        }
        assert_eq!(parse(&written).as_ref(), Ok(&rows));
        let Some((name, row)) = rows.first_key_value() else { return };
        for changed in [with_changed_row(text, name, row), without_row(text, name)] {
            assert!(matches!(changed, Ok(_) | Err(EditError::ByHand(_))), "{changed:?}");
        }
    }

    fn simple(of: &str) -> TokenRow {
        TokenRow {
            digest: Secret::generate(&name(of)).unwrap().digest(),
            previous: None,
            namespaces: vec!["orders".parse().unwrap()],
            rights: Rights::default(),
            quotas: Quotas::default(),
            expires_unix_ms: None,
        }
    }

    #[test]
    fn every_key_is_read() {
        let rows = parse(&format!(
            "[tokens.web]\nsha256 = '{HASH}'\nprevious_sha256 = '{HASH}'\nprevious_until = 2027-01-01T00:00:00Z\n\
             namespaces = ['orders', 'users-*']\nrights = ['admin']\nrate = '50k/s'\nper_day = 7\nexpires = '2027-01-02'\n\
             [tokens.b]\nsha256 = '{HASH}'\nnamespaces = ['*']\nrate = 5\n"
        ))
        .unwrap();
        let web = &rows[&name("web")];
        assert_eq!(web.digest.to_string(), HASH);
        assert_eq!(web.previous.unwrap().until_unix_ms, 1_798_761_600_000);
        assert_eq!(web.expires_unix_ms, Some(1_798_848_000_000));
        assert_eq!((web.quotas.rate.unwrap().get(), web.quotas.per_day.unwrap().get()), (50_000, 7));
        assert_eq!(web.rights.iter().collect::<Vec<_>>(), [Right::Admin]);
        assert!(web.covers(b"orders") && web.covers(b"users-7") && !web.covers(b"users"));
        let other = &rows[&name("b")];
        assert_eq!(other.rights.iter().collect::<Vec<_>>(), [Right::Mint, Right::Inspect]);
        assert!(other.namespaces[0].covers_all() && other.expires_unix_ms.is_none());
        assert_eq!(parse(""), Ok(TokenRows::new()));
    }

    #[test]
    fn errors_name_the_line_the_token_the_key_and_the_remedy() {
        let row = |rest: &str| format!("[tokens.a]\nsha256 = '{HASH}'\nnamespaces = ['*']\n{rest}");
        for (text, wanted) in [
            ("\n[token.a]".to_owned(), "line 2: unknown key `token`: did you mean `tokens`?"),
            (row("rat = 5"), "line 4: token `a`: unknown key `rat`: did you mean `rate`?"),
            (row("zzz = 5"), "line 4: token `a`: unknown key `zzz`: expected sha256, "),
            (
                row("rate = 'x'"),
                "line 4: token `a`: invalid value of `rate`: invalid number `x`: expected 1 to 1G",
            ),
            (row("rate = 0"), "expected 1 to 1G, such as 50k"),
            (row("rate = -5"), "expected 1 to 1G"),
            (row("rate = '2G/s'"), "expected 1 to 1G"),
            (row("per_day = true"), "expected a text, not a value of type boolean"),
            (
                row("rights = []"),
                "line 4: token `a`: invalid value of `rights`: expected a list of texts that is not empty",
            ),
            (row("rights = ['mnt']"), "invalid right `mnt`: expected mint, inspect or admin"),
            (row("expires = 'soon'"), "line 4: token `a`: invalid value of `expires`: "),
            (row("previous_until = '2027-01-01'"), "line 1: token `a`: missing key `previous_sha256`"),
            (row("rate = 1\nrate = 2"), "line 5: "),
            (
                "[tokens.a]\nnamespaces = ['*']".to_owned(),
                "line 1: token `a`: missing key `sha256`; `snowmint token create`",
            ),
            (format!("[tokens.a]\nsha256 = '{HASH}'"), "missing key `namespaces`; expected a list of names"),
            ("[tokens.a]\nsha256 = 'x'".to_owned(), "expected 64 hexadecimal digits"),
            (
                format!("[tokens.a]\nsha256 = '{HASH}'\nnamespaces = ['a b']"),
                "invalid namespace pattern `a b`",
            ),
            ("[tokens.a_b]".to_owned(), "line 1: invalid token name `a_b`"),
            ("tokens = 5".to_owned(), "line 1: "),
            ("[tokens".to_owned(), "line 1: "),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn patterns_cover_whole_names() {
        for (pattern, yes, no) in [
            ("orders", &["orders"][..], &["order", "orders2", "Orders", ""][..]),
            ("*", &["", "a", "a-b"], &[]),
            ("users-*", &["users-", "users-1"], &["users", "xusers-1"]),
            ("*-eu", &["a-eu", "-eu", "-eu-eu"], &["eu", "a-eu1"]),
            ("a*b*c", &["abc", "axbxc", "abbcc", "a1b2b3c"], &["ab", "acb", "abcd"]),
            ("**", &["", "x"], &[]),
        ] {
            let pattern: Pattern = pattern.parse().unwrap();
            assert!(yes.iter().all(|name| pattern.covers(name.as_bytes())), "{pattern:?}");
            assert!(!no.iter().any(|name| pattern.covers(name.as_bytes())), "{pattern:?}");
        }
        for bad in ["", "a b", "ä", "a?", "\"", &"a".repeat(129)] {
            assert!(bad.parse::<Pattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn amounts_have_units() {
        for (text, number) in
            [("1", 1), ("50k", 50_000), ("50K", 50_000), ("10M", 10_000_000), ("1G", MAX_RATE)]
        {
            assert_eq!(parse_rate(text).unwrap().get(), number, "{text}");
            assert_eq!(parse_rate(&format!("{text}/s")).unwrap().get(), number, "{text}");
            assert_eq!(parse_rate(&amount(number)).unwrap().get(), number, "{text}");
        }
        for bad in ["", "k", "0", "0k", "-1", "1.5k", "1 k", "50k/m", "99999999999999999999", "20000000000G"]
        {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_per_day("1000G").unwrap().get(), MAX_PER_DAY);
        assert!(parse_per_day("1001G").is_err());
    }

    /// Goal: a command changes its own row only. Method: comments, order and other rows stay byte for byte.
    #[test]
    fn changes_keep_the_rest_of_the_file() {
        let text = format!(
            "# Ours.\n\n# The shop.\n[tokens.web] # why\nsha256 = '{HASH}'\nnamespaces = [\n  'a',\n]\n\n# Billing.\n\
             [tokens.b]\nsha256 = '{HASH}'\nnamespaces = ['b'] # one\n"
        );
        let (web, b, c) = (name("web"), name("b"), name("c"));
        let added = with_row(&text, &c, &simple("c")).unwrap();
        let complete = |text: &str| format!("{FIRST_LINE}\n\n{}\n\n{LAST_LINE}\n", text.trim_end());
        assert!(
            added.starts_with(complete(&text).trim_end_matches(['\n']).trim_end_matches(LAST_LINE))
                && added.contains("\n\n[tokens.c]\nsha256 = \"")
                && added.ends_with(&format!("\n\n{LAST_LINE}\n")),
            "{added}"
        );
        assert_eq!(with_row(&text, &b, &simple("b")), Err(EditError::Exists(b.clone())));
        let without = without_row(&text, &web).unwrap();
        let rest = "\n\n# Ours.\n\n# The shop.\n# Billing.\n[tokens.b]\n";
        assert!(without.starts_with(&format!("{FIRST_LINE}{rest}")), "{without}");
        assert_eq!(without_row(&added, &c).unwrap(), complete(&text));
        let changed = with_changed_row(&text, &web, &simple("web")).unwrap();
        let start = format!("{FIRST_LINE}\n\n# Ours.\n\n# The shop.\n[tokens.web]\nsha256 = \"");
        assert!(changed.starts_with(&start), "{changed}");
        assert!(
            changed.ends_with("\n\n# Billing.\n[tokens.b]\nsha256 = '".to_owned().as_str())
                || changed.contains("# one")
        );
        assert_eq!(parse(&changed).unwrap()[&web].namespaces[0].as_str(), "orders");
        let unknown = without_row(&text, &c).unwrap_err().to_string();
        assert!(unknown.contains("unknown token `c`: the file has b, web"), "{unknown}");
    }

    /// Goal: no part of a file that a command wrote passes for the whole, and only the last line makes a file
    /// complete that people wrote. Method: every cut of both.
    #[test]
    fn a_file_that_was_cut_is_refused() {
        let (a, b) = (name("a"), name("b"));
        let limited = TokenRow {
            rights: [Right::Admin].into_iter().collect(),
            quotas: Quotas { rate: NonZeroU64::new(5), per_day: None },
            ..simple("a")
        };
        let written = with_row(&with_row("", &a, &limited).unwrap(), &b, &limited).unwrap();
        let rows = parse(&written).unwrap();
        for end in FIRST_LINE.len()..written.trim_end().len() {
            let cut = parse(&written[..end]).unwrap_err();
            assert!(cut.contains("the file was cut") && cut.contains(LAST_LINE), "{end}: {cut}");
            assert!(matches!(without_row(&written[..end], &a), Err(EditError::Invalid(_))), "{end}");
        }
        // Editors add rows below the last line, and commands move it.
        let edited = format!("{written}\n{}", limited.text(&name("c")));
        assert_eq!(parse(&edited).unwrap().len(), 3);
        let again = with_changed_row(&edited, &a, &limited).unwrap();
        assert!(again.ends_with(&format!("\n\n{LAST_LINE}\n")) && again.matches(LAST_LINE).count() == 2);

        let by_hand = unmarked(&written).trim().to_owned() + "\n";
        // The second was edited before it was cut.
        for text in [by_hand.clone(), format!("# Edited.\n{by_hand}")] {
            for end in 0..text.len() {
                let cut = &text[..end];
                let Ok(left) = parse(cut) else { continue };
                let lost: Vec<_> =
                    rows.keys().filter(|it| !left.contains_key(*it)).map(TokenName::as_str).collect();
                let checked = check_successor(&by_hand, cut, rows.len(), &lost);
                let is_whole = left.iter().all(|(name, row)| rows[name] == *row);
                assert!(checked.is_err() || (is_whole && lost.len() <= 1), "{end}: {left:?}");
            }
        }
        let lost = ["a", "b"];
        let why = check_successor(&by_hand, "", 2, &lost).unwrap_err();
        assert!(why.contains("may have been cut") && why.contains(LAST_LINE), "{why}");
        let why = check_successor(&by_hand, "# None.\n", 3, &lost).unwrap_err();
        assert!(why.contains("it lacks 2 of 3 tokens, such as `a`"), "{why}");
        for (text, known) in [("# None.\n", 4), ("# end of tokens", 2), ("# end of tokens \n\n", 2)] {
            assert_eq!(check_successor(&by_hand, text, known, &lost), Ok(()), "{text:?}");
        }
        assert_eq!(check_successor(&by_hand, &by_hand, 2, &[]), Ok(()));
    }

    #[test]
    fn other_forms_are_left_to_people() {
        let inline = format!("tokens.a = {{ sha256 = '{HASH}', namespaces = ['*'] }}\n");
        assert_eq!(without_row(&inline, &name("a")), Err(EditError::ByHand(name("a"))));
        let quoted = format!("[tokens.'a']\nsha256 = '{HASH}'\nnamespaces = ['*']\n");
        assert_eq!(without_row(&quoted, &name("a")), Err(EditError::ByHand(name("a"))));
        assert!(matches!(with_row("x = 1", &name("a"), &simple("a")), Err(EditError::Invalid(_))));
    }

    fn any_row() -> impl Strategy<Value = TokenRow> {
        let digest = "[0-9a-f]{64}".prop_map(|text| text.parse::<SecretDigest>().unwrap());
        let until = 0_u64..utc::MAX_UNIX_MS;
        let previous = proptest::option::of((digest.clone(), until.clone()));
        let patterns = proptest::collection::vec("[a-zA-Z0-9._:*-]{1,64}", 1..5);
        let rights = proptest::sample::subsequence(Right::ALL.to_vec(), 1..=3);
        let quotas = (proptest::option::of(1..=MAX_RATE), proptest::option::of(1..=MAX_PER_DAY));
        (digest, previous, patterns, rights, quotas, proptest::option::of(until)).prop_map(
            |(digest, previous, patterns, rights, (rate, per_day), expires_unix_ms)| TokenRow {
                digest,
                previous: previous.map(|(digest, until_unix_ms)| PreviousSecret { digest, until_unix_ms }),
                namespaces: patterns.iter().map(|pattern| pattern.parse().unwrap()).collect(),
                rights: rights.into_iter().collect(),
                quotas: Quotas {
                    rate: rate.and_then(NonZeroU64::new),
                    per_day: per_day.and_then(NonZeroU64::new),
                },
                expires_unix_ms,
            },
        )
    }

    proptest! {
        /// Goal: rows are the same after they are written and read, and a change of one row keeps the others.
        /// Method: random rows that are added, changed and removed one after the other.
        #[test]
        fn rows_are_written_and_read_again(
            rows in proptest::collection::btree_map("[a-zA-Z0-9-]{1,64}", any_row(), 1..6),
            other in any_row(),
        ) {
            let rows: TokenRows = rows.into_iter().map(|(text, row)| (name(&text), row)).collect();
            let mut text = String::new();
            for (name, row) in &rows {
                text = with_row(&text, name, row).unwrap();
            }
            prop_assert_eq!(&parse(&text).unwrap(), &rows);
            for name in rows.keys() {
                let changed = parse(&with_changed_row(&text, name, &other).unwrap()).unwrap();
                prop_assert_eq!(&changed[name], &other);
                let mut left = rows.clone();
                left.remove(name);
                prop_assert_eq!(parse(&without_row(&text, name).unwrap()).unwrap(), left);
            }
            check_file(&text);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "(\\[tokens\\.[a-z\"']{1,3}\\]\n|[a-z]+ = ['\"]?[a-z0-9]*['\"]?\n|#.*\n){0,8}") {
            check_file(&text);
        }
    }

    /// Goal: a cut before a comment within a table is seen as one. Method: a token whose quota follows the
    /// comment.
    #[test]
    fn a_comment_does_not_end_a_table() {
        let before =
            "[tokens.a]\nsha256 = 'x'\nnamespaces = ['*']\n# five a second\nrate = 5\n# end\n[tokens.b]\n";
        let check = |until: &str| check_successor(before, &before[..before.find(until).unwrap()], 2, &[]);
        assert!(check("# five").is_err() && check("rate").is_err());
        assert_eq!((check("# end"), check("[tokens.b]")), (Ok(()), Ok(())));
    }
}
