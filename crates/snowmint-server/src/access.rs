//! Who may do what: tokens, their rights and quotas, and the identity of a client.
//!
//! A protocol turns what a client sends into an [`Identity`] and asks it before it does anything:
//! [`Identity::may`] for a right, [`Identity::spend`] before it takes ids, and keeps what it returns once the
//! client gets them. Without tokens, every client may take and decode ids, and nobody may administer the
//! node.
//!
//! A connection keeps its identity, so that a request costs a comparison and no hash. Each request compares
//! the generation of the table as well: a token that was revoked, changed or that expired is noticed by the
//! next request of an open connection.

pub mod file;
pub(crate) mod mint_access;
mod quota;
pub mod secret;

use std::collections::HashMap;
use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use snowmint::error::Snippet;
use snowmint::inspect::Inspection;
use snowmint::utc::Utc;
use snowmint::{Clock as _, Id};
use tokio::sync::Notify;

use crate::clock::SharedClock;
use crate::mint::{InspectBy, Mint, MintError};
use crate::watched_files::WatchedFiles;
use quota::{Counted, Exceeded};
use secret::{SecretDigest, TokenName};

pub use file::{Pattern, Right, Rights, TokenRow, TokenRows};
pub use quota::{Quotas, Usage};

pub use crate::mint::Quota;

/// The scheme of the header `Authorization`.
const BEARER: &[u8] = b"bearer ";

/// All tokens of a service.
pub struct Access {
    source: TokensSource,
    files: WatchedFiles,
    clock: SharedClock,
    table: ArcSwap<Table>,
    /// Changes whenever the table changes. Comparing it is cheaper than a search.
    generation: AtomicU64,
}

/// The tokens of a file.
#[derive(Debug, Default)]
struct Table {
    tokens: HashMap<TokenName, Arc<Token>>,
    /// The file, or the lines of it, from which they were read.
    text: String,
}

/// A token of the table.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) name: TokenName,
    row: TokenRow,
    pub(crate) usage: Arc<Usage>,
}

/// Where tokens are read from.
#[derive(Clone, Debug)]
pub enum TokensSource {
    /// A file of tokens alone, as `--tokens-file` names it.
    File(PathBuf),
    /// The tables of tokens in a configuration file.
    ConfigFile {
        /// The file.
        path: PathBuf,
        /// Returns the lines of the tables of tokens in its text.
        lines: fn(&str) -> Result<String, String>,
        /// Reads the tokens in its text.
        rows: fn(&str) -> Result<TokenRows, String>,
    },
}

impl TokensSource {
    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::ConfigFile { path, .. } => path,
        }
    }

    /// Returns the flag that names the file.
    const fn flag(&self) -> &'static str {
        match self {
            Self::File(_) => "--tokens-file",
            Self::ConfigFile { .. } => "--config",
        }
    }
}

/// The tokens cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot use {}: {why}", source_file.flag(), source_file.path().display())]
pub struct TokensError {
    /// Where they are.
    pub source_file: TokensSource,
    why: String,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Access {
    /// Reads the tokens of a file. `clock` decides when they expire.
    ///
    /// # Errors
    ///
    /// [`TokensError`] if the file cannot be read or is invalid.
    pub fn load(source: TokensSource, clock: SharedClock) -> Result<Self, TokensError> {
        let files = WatchedFiles::new(vec![source.path().to_owned()]);
        let table = ArcSwap::from_pointee(read(&source, &Table::default())?);
        Ok(Self { source, files, clock, table, generation: AtomicU64::new(0) })
    }

    /// Reads the file again at each `reload` and when it changes; never ends. If the file is invalid, or
    /// seems to have been cut, it logs the error, and the last valid tokens stay in use.
    pub async fn follow(&self, reload: &Notify) -> ! {
        let report =
            |error: &str| tracing::error!(error, "tokens not reloaded; the previous tokens stay in use");
        self.files.follow(reload, || self.reload(), report).await
    }

    async fn reload(&self) -> Result<(), String> {
        let (source, before) = (self.source.clone(), self.table.load_full());
        let file = self.source.path().display();
        // Disks may be slow, and the threads of this runtime serve clients.
        match tokio::task::spawn_blocking(move || read_again(&source, &before)).await {
            Ok(Ok(table)) => {
                let tokens = table.tokens.len();
                self.replace(table);
                if tokens == 0 {
                    tracing::warn!(%file, "tokens reloaded: the file has none, so every client is rejected");
                } else {
                    tracing::info!(%file, tokens, "tokens reloaded");
                }
                Ok(())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn replace(&self, table: Table) {
        self.table.store(Arc::new(table));
        // After the table: a reader that sees the new number also sees the new table.
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Returns the identity of a client that sent this token.
    ///
    /// # Errors
    ///
    /// [`MintError::Unauthorized`] with the reason. A wrong secret and an unknown name give the same error.
    pub fn authenticate(self: &Arc<Self>, text: &[u8]) -> Result<Identity, MintError> {
        let name = secret::name_in(text).map_err(|error| unauthorized(error.to_string()))?;
        self.identify(name, Some(SecretDigest::of(text)))
    }

    /// Returns the identity of clients that cannot send a token and use the rights of the token `name`.
    ///
    /// # Errors
    ///
    /// [`MintError::Unauthorized`] if no token has this name, or if it has expired.
    pub fn identity_of(self: &Arc<Self>, name: &TokenName) -> Result<Identity, MintError> {
        self.identify(name.as_str(), None)
    }

    fn identify(self: &Arc<Self>, name: &str, digest: Option<SecretDigest>) -> Result<Identity, MintError> {
        // Before the table: an outdated number only costs a search.
        let generation = self.generation.load(Ordering::Acquire);
        let (token, until_unix_ms) = self.find(name, digest)?;
        let held = Held { access: Arc::clone(self), token, digest, until_unix_ms, generation };
        held.check_time(self.clock.unix_ms())?;
        Ok(Identity(Kind::Token(Arc::new(held))))
    }

    /// Returns the token, and the unix millisecond until which this secret is valid; `None` if it does not
    /// expire.
    fn find(&self, name: &str, digest: Option<SecretDigest>) -> Result<(Arc<Token>, Option<u64>), MintError> {
        let table = self.table.load();
        let unknown =
            || unauthorized("invalid token: this server does not know it, or it was revoked".to_owned());
        // A name without a secret comes from a flag: the operator needs to know that the file lacks it.
        let token = table.tokens.get(name).ok_or_else(|| match digest {
            Some(_) => unknown(),
            None => unauthorized(format!("{} has no token of this name", self.source.path().display())),
        })?;
        let expires = token.row.expires_unix_ms;
        let until = match (digest, token.row.previous) {
            (None, _) => expires,
            (Some(digest), _) if digest == token.row.digest => expires,
            (Some(digest), Some(previous)) if digest == previous.digest => {
                Some(expires.map_or(previous.until_unix_ms, |expires| expires.min(previous.until_unix_ms)))
            }
            _ => return Err(unknown()),
        };
        Ok((Arc::clone(token), until))
    }

    /// Returns the tokens file if it has no tokens, so that no client can be served.
    pub fn empty_file(&self) -> Option<&Path> {
        self.table.load().tokens.is_empty().then_some(self.source.path())
    }

    /// Returns all tokens, sorted by name.
    pub(crate) fn tokens(&self) -> Vec<Arc<Token>> {
        let mut tokens: Vec<_> = self.table.load().tokens.values().cloned().collect();
        tokens.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        tokens
    }
}

#[cfg(test)]
impl Access {
    /// Tokens without a file, for unit tests.
    pub(crate) fn for_tests(rows: &str, clock: SharedClock) -> Arc<Self> {
        let table =
            ArcSwap::from_pointee(table(file::parse(rows).unwrap(), rows.to_owned(), &Table::default()));
        let (source, files) = (TokensSource::File(PathBuf::new()), WatchedFiles::new(Vec::new()));
        Arc::new(Self { source, files, clock, table, generation: AtomicU64::new(0) })
    }

    pub(crate) fn change(&self, rows: &str) {
        self.replace(table(file::parse(rows).unwrap(), rows.to_owned(), &self.table.load()));
    }
}

/// Logs a warning when a file gets its first tokens, for a service that was started without tokens; never
/// ends. The service uses them after a restart, and serves every client until then.
///
/// They are not used at once for two reasons. The first token ends the access of every client without one, so
/// a file that is saved too early would stop all of them within seconds. And only a start checks what belongs
/// to tokens: TLS on addresses that other machines reach, and the token of Thrift clients, which cannot send
/// one.
pub async fn warn_of_first_tokens(source: TokensSource, reload: &Notify) -> ! {
    let files = WatchedFiles::new(vec![source.path().to_owned()]);
    let file = source.path().display().to_string();
    let look = async || {
        let source = source.clone();
        // Disks may be slow, and the threads of this runtime serve clients.
        let found = tokio::task::spawn_blocking(move || text_of(&source)).await;
        // Other readers of the file report that it is invalid.
        match found {
            Ok(Ok((_, lines))) if !lines.trim().is_empty() => {
                Err("tokens in a file that had none".to_owned())
            }
            _ => Ok(()),
        }
    };
    let report = |_: &str| {
        tracing::warn!(
            file,
            "tokens are not in use, and clients need none: this node was started without tokens; restart it to require them"
        );
    };
    // The service may have waited for its store since it read the file.
    if look().await.is_err() {
        report("");
    }
    files.follow(reload, look, report).await
}

fn read(source: &TokensSource, before: &Table) -> Result<Table, TokensError> {
    let (text, lines) = text_of(source)?;
    let rows = match source {
        TokensSource::File(_) => file::parse(&text),
        TokensSource::ConfigFile { rows, .. } => rows(&text),
    };
    let rows = rows.map_err(|why| TokensError { source_file: source.clone(), why })?;
    Ok(table(rows, lines, before))
}

/// Reads a file that was read before, and checks that it was not cut.
fn read_again(source: &TokensSource, before: &Table) -> Result<Table, TokensError> {
    let table = read(source, before)?;
    let lost = before.tokens.keys().filter(|name| !table.tokens.contains_key(*name));
    let mut lost: Vec<_> = lost.map(TokenName::as_str).collect();
    lost.sort_unstable();
    file::check_successor(&before.text, &table.text, before.tokens.len(), &lost)
        .map_err(|why| TokensError { source_file: source.clone(), why })?;
    Ok(table)
}

/// Returns the text of a file, and those of its lines that are about tokens.
fn text_of(source: &TokensSource) -> Result<(String, String), TokensError> {
    let failed = |why: String| TokensError { source_file: source.clone(), why };
    let text = std::fs::read_to_string(source.path()).map_err(|error| {
        failed(format!("{error}; create the file with `snowmint token create --file FILE`"))
    })?;
    let lines = match source {
        TokensSource::File(_) => text.clone(),
        TokensSource::ConfigFile { lines, .. } => lines(&text).map_err(failed)?,
    };
    Ok((text, lines))
}

/// Builds the table of tokens. A token keeps its usage when the file changes.
fn table(rows: TokenRows, text: String, before: &Table) -> Table {
    let token = |(name, row): (TokenName, TokenRow)| {
        let usage = before.tokens.get(&name).map(|token| Arc::clone(&token.usage)).unwrap_or_default();
        (name.clone(), Arc::new(Token { name, row, usage }))
    };
    Table { tokens: rows.into_iter().map(token).collect(), text }
}

#[cold]
fn unauthorized(why: String) -> MintError {
    MintError::Unauthorized { why }
}

/// The client behind a request: anonymous, or the holder of a token. Clones are cheap.
#[derive(Clone)]
pub struct Identity(Kind);

#[derive(Clone)]
enum Kind {
    /// There are no tokens.
    Open,
    /// There are tokens, and the client has not sent one.
    Anonymous(Arc<Access>),
    Token(Arc<Held>),
}

/// The token that a client sent.
struct Held {
    access: Arc<Access>,
    token: Arc<Token>,
    /// `None` for clients that cannot send one.
    digest: Option<SecretDigest>,
    until_unix_ms: Option<u64>,
    generation: u64,
}

impl Held {
    fn check_time(&self, now_unix_ms: u64) -> Result<(), MintError> {
        match self.until_unix_ms {
            Some(until) if now_unix_ms >= until => Err(unauthorized(format!(
                "token `{}` expired at {}: use a new one",
                self.token.name,
                Utc(until)
            ))),
            _ => Ok(()),
        }
    }

    fn is_current(&self) -> bool {
        self.access.generation.load(Ordering::Acquire) == self.generation
    }

    #[cold]
    fn again(&self) -> Result<Identity, MintError> {
        self.access.identify(self.token.name.as_str(), self.digest)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Kind::Open => "open",
            Kind::Anonymous(_) => "anonymous",
            Kind::Token(held) => held.token.name.as_str(),
        })
    }
}

impl Identity {
    /// Returns the identity of a client that has not sent a token.
    pub fn anonymous(access: Option<&Arc<Access>>) -> Self {
        Self(access.map_or(Kind::Open, |access| Kind::Anonymous(Arc::clone(access))))
    }

    /// Returns the name of the token.
    pub fn name(&self) -> Option<&str> {
        self.token_name().map(TokenName::as_str)
    }

    pub(crate) fn token_name(&self) -> Option<&TokenName> {
        if let Kind::Token(held) = &self.0 { Some(&held.token.name) } else { None }
    }

    /// Returns `true` if there are tokens, and the client has not sent one.
    #[inline]
    pub const fn is_anonymous(&self) -> bool {
        matches!(self.0, Kind::Anonymous(_))
    }

    /// Checks that the client has sent a valid token, if there are tokens.
    ///
    /// # Errors
    ///
    /// [`MintError::Unauthorized`].
    pub fn verify(&self) -> Result<(), MintError> {
        self.with_token(|_| Ok(()), || Ok(()))
    }

    /// Looks the token up again if the tokens have changed. Without this call, every later request would look
    /// it up.
    #[inline]
    pub fn refresh(&mut self) {
        if let Kind::Token(held) = &self.0
            && !held.is_current()
            && let Ok(identity) = held.again()
        {
            *self = identity;
        }
    }

    /// Checks that the client has `right` for a namespace, whether the namespace exists or not.
    ///
    /// # Errors
    ///
    /// [`MintError::Unauthorized`] without a valid token, [`MintError::Forbidden`] if the token does not
    /// cover it.
    #[inline]
    pub fn may(&self, right: Right, namespace: &[u8]) -> Result<(), MintError> {
        match &self.0 {
            Kind::Open if right != Right::Admin => Ok(()),
            _ => self.check(right, |row| row.covers(namespace), || Some(namespace)),
        }
    }

    /// Checks that the client has `right` for at least one namespace.
    ///
    /// # Errors
    ///
    /// As [`may`](Self::may).
    pub fn may_somewhere(&self, right: Right) -> Result<(), MintError> {
        self.check(right, |_| true, || None)
    }

    /// Checks that the client has `right` for all namespaces, and so for the node.
    ///
    /// # Errors
    ///
    /// As [`may`](Self::may).
    pub fn may_everywhere(&self, right: Right) -> Result<(), MintError> {
        self.check(right, |row| row.namespaces.iter().any(Pattern::covers_all), || Some(b"*"))
    }

    fn check<'a>(
        &self,
        right: Right,
        covers: impl FnOnce(&TokenRow) -> bool,
        namespace: impl FnOnce() -> Option<&'a [u8]>,
    ) -> Result<(), MintError> {
        self.with_token(
            |held| {
                let token = &held.token;
                if token.row.rights.has(right) && covers(&token.row) {
                    Ok(())
                } else {
                    Err(forbidden(token, right, namespace()))
                }
            },
            || if right == Right::Admin { Err(no_admin()) } else { Ok(()) },
        )
    }

    /// Runs `work` with the current token.
    fn with_token<T>(
        &self,
        work: impl FnOnce(&Arc<Held>) -> Result<T, MintError>,
        open: impl FnOnce() -> Result<T, MintError>,
    ) -> Result<T, MintError> {
        match &self.0 {
            Kind::Open => open(),
            Kind::Anonymous(_) => Err(no_token()),
            Kind::Token(held) if held.is_current() => {
                if held.until_unix_ms.is_some() {
                    held.check_time(held.access.clock.unix_ms())?;
                }
                work(held)
            }
            Kind::Token(held) => match held.again()?.0 {
                Kind::Token(held) => work(&held),
                Kind::Open | Kind::Anonymous(_) => Err(no_token()),
            },
        }
    }

    /// Returns `true` if the client may know that a namespace exists.
    pub fn sees(&self, namespace: &[u8]) -> bool {
        self.with_token(|held| Ok(held.token.row.covers(namespace)), || Ok(true)).unwrap_or(false)
    }

    /// Checks that the client may take `count` ids of a namespace, and counts them towards its quotas. They
    /// are given back when the result is dropped, unless they were [kept](Spent::keep).
    ///
    /// # Errors
    ///
    /// As [`may`](Self::may), [`MintError::OverQuota`], and [`MintError::TooManyAtOnce`] if the count is
    /// above a quota.
    #[inline]
    pub fn spend(&self, namespace: &[u8], count: u64) -> Result<Spent, MintError> {
        if matches!(self.0, Kind::Open) { Ok(Spent(None)) } else { self.spend_token(namespace, count) }
    }

    fn spend_token(&self, namespace: &[u8], count: u64) -> Result<Spent, MintError> {
        self.with_token(
            |held| {
                let (token, quotas) = (&held.token, &held.token.row.quotas);
                if !token.row.rights.has(Right::Mint) || !token.row.covers(namespace) {
                    return Err(forbidden(token, Right::Mint, Some(namespace)));
                }
                if *quotas == Quotas::default() {
                    return Ok(Spent(None));
                }
                match token.usage.spend(quotas, count, held.access.clock.unix_ms()) {
                    Ok(counted) => Ok(Spent(Some(Refund { held: Arc::clone(held), counted, count }))),
                    Err(exceeded) => Err(over_quota(token, count, exceeded)),
                }
            },
            || Ok(Spent(None)),
        )
    }

    /// Returns the usage of the token, to count requests and ids.
    pub(crate) fn usage(&self) -> Option<&Arc<Usage>> {
        if let Kind::Token(held) = &self.0 { Some(&held.token.usage) } else { None }
    }

    /// Decodes an id like [`Mint::inspect`], and shows only the namespaces that the client may know.
    ///
    /// # Errors
    ///
    /// As [`Mint::inspect`] and [`may`](Self::may).
    pub fn inspect(&self, mint: &Mint, text: &[u8], by: InspectBy<'_>) -> Result<Inspection, MintError> {
        let name = if let InspectBy::Namespace(name) = by { Some(name) } else { None };
        match name {
            Some(name) => self.may(Right::Inspect, name)?,
            None => self.may_somewhere(Right::Inspect)?,
        }
        let inspected = mint.inspect_among(text, by, |known| self.sees(known));
        inspected.map_err(|error| self.unfound(mint, Right::Inspect, name.unwrap_or_default(), error))
    }

    /// Returns the ids of a time range like [`Mint::time_bounds`].
    ///
    /// # Errors
    ///
    /// As [`Mint::time_bounds`] and [`may`](Self::may).
    pub fn time_bounds(
        &self,
        mint: &Mint,
        namespace: &[u8],
        unix_ms: Range<u64>,
    ) -> Result<RangeInclusive<Id>, MintError> {
        self.may(Right::Inspect, namespace)?;
        let bounds = mint.time_bounds(namespace, unix_ms);
        bounds.map_err(|error| self.unfound(mint, Right::Inspect, namespace, error))
    }

    /// Returns the error to answer if a namespace was not found. The error lists only names that the client
    /// may know, and does not reveal whether a namespace exists that the client may not use.
    #[cold]
    pub(crate) fn unfound(&self, mint: &Mint, right: Right, name: &[u8], error: MintError) -> MintError {
        if matches!(self.0, Kind::Open) || !matches!(error, MintError::UnknownNamespace { .. }) {
            return error;
        }
        match self.may(right, name) {
            Ok(()) => mint.table().unknown_among(name, |known| self.sees(known)),
            Err(forbidden) => forbidden,
        }
    }
}

/// Ids that count towards the quotas of a token. Dropped before they are [kept](Self::keep), it gives them
/// back: whether they could not be made, or nobody waits for them any more.
#[derive(Debug)]
#[must_use = "dropped, it gives the ids back: keep it once the client gets them"]
pub struct Spent(Option<Refund>);

/// What to give back; a token without quotas needs none.
struct Refund {
    /// The token with the quotas of that time.
    held: Arc<Held>,
    counted: Counted,
    count: u64,
}

impl Spent {
    /// Keeps the ids counted: the client gets them.
    #[inline]
    pub fn keep(mut self) {
        self.0 = None;
    }

    /// Gives back all but `count` ids.
    pub fn reduce_to(&mut self, count: u64) {
        if let Some(refund) = &mut self.0
            && refund.count > count
        {
            refund.give_back(refund.count - count);
        }
    }
}

impl Drop for Spent {
    #[inline]
    fn drop(&mut self) {
        self.reduce_to(0);
    }
}

impl Refund {
    fn give_back(&mut self, count: u64) {
        let Held { token, access, .. } = &*self.held;
        token.usage.give_back(&token.row.quotas, count, self.counted, access.clock.unix_ms());
        self.count -= count;
    }
}

impl fmt::Debug for Refund {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refund")
            .field("token", &self.held.token.name)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

#[cold]
fn no_token() -> MintError {
    unauthorized("authentication required: send a token, which `snowmint token create` makes".to_owned())
}

#[cold]
fn no_admin() -> MintError {
    MintError::Forbidden {
        why: "administration requires a token with the right admin: `snowmint token create NAME --namespaces '*' --rights \
              admin --file tokens.toml`, then `snowmint serve --tokens-file tokens.toml`"
            .to_owned(),
    }
}

#[cold]
fn forbidden(token: &Token, right: Right, namespace: Option<&[u8]>) -> MintError {
    let name = &token.name;
    let right_name = right.name();
    let why = match namespace {
        _ if !token.row.rights.has(right) => format!("token `{name}` does not have the right {right_name}"),
        Some(b"*") => format!("token `{name}` does not have the right {right_name} for all namespaces (*)"),
        Some(namespace) => {
            let namespace = Snippet::of(&String::from_utf8_lossy(namespace));
            format!("token `{name}` does not cover namespace {namespace}")
        }
        None => format!("token `{name}` covers no namespace"),
    };
    let why = format!("{why}: use another token, or change its row in the tokens file");
    match namespace {
        Some(b"*") if token.row.rights.has(right) => MintError::NotForAll { why },
        _ => MintError::Forbidden { why },
    }
}

#[cold]
fn over_quota(token: &Token, count: u64, exceeded: Exceeded) -> MintError {
    let token = Snippet::of(token.name.as_str());
    match exceeded {
        Exceeded::Always(quota) => MintError::TooManyAtOnce { token, count, quota },
        Exceeded::Now(quota, retry_after) => MintError::OverQuota { token, quota, retry_after },
    }
}

/// Caches the identity of one HTTP connection, whose requests each send their token.
pub(crate) struct BearerCache {
    anonymous: Identity,
    /// The last header that was verified. The requests of a connection run in one task, so the lock is never
    /// contended.
    last: Mutex<Option<(Box<[u8]>, Identity)>>,
}

impl BearerCache {
    pub(crate) fn new(access: Option<&Arc<Access>>) -> Self {
        Self { anonymous: Identity::anonymous(access), last: Mutex::new(None) }
    }

    /// Returns the identity that a request's `Authorization` header names.
    pub(crate) fn identity(&self, headers: &HeaderMap) -> Result<Identity, MintError> {
        let Kind::Anonymous(access) = &self.anonymous.0 else { return Ok(self.anonymous.clone()) };
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let value = match (values.next(), values.next()) {
            (None, _) => return Ok(self.anonymous.clone()),
            (Some(value), None) => value.as_bytes(),
            (Some(_), Some(_)) => {
                return Err(unauthorized("repeated Authorization header: send it once".to_owned()));
            }
        };
        // The entry is replaced as a whole, so a panic elsewhere leaves it valid.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((verified, identity)) = &mut *last
            && secret::same_text(value, verified)
        {
            identity.refresh();
            return Ok(identity.clone());
        }
        let bearer =
            value.split_at_checked(BEARER.len()).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(BEARER));
        let (_, text) = bearer.ok_or_else(|| {
            unauthorized("invalid Authorization header: expected `Authorization: Bearer TOKEN`".to_owned())
        })?;
        let identity = access.authenticate(text)?;
        *last = Some((value.into(), identity.clone()));
        Ok(identity)
    }

    /// Returns the identity of a request whose token is not in a header.
    pub(crate) fn identity_of_text(&self, text: &[u8]) -> Result<Identity, MintError> {
        match &self.anonymous.0 {
            Kind::Anonymous(access) => access.authenticate(text),
            Kind::Open | Kind::Token(_) => Ok(self.anonymous.clone()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use hyper::header::HeaderValue;
    use snowmint::ManualClock;

    use super::secret::Secret;
    use super::*;
    use crate::status::ErrorKind;
    use crate::testing::START_UNIX_MS;

    /// Returns a row of a tokens file, and its secret.
    pub(crate) fn row(name: &str, rest: &str) -> (String, String) {
        let secret = Secret::generate(&TokenName::new(name).unwrap()).unwrap();
        let row = format!("[tokens.{name}]\nsha256 = '{}'\n{rest}\n", secret.digest());
        (row, secret.as_str().to_owned())
    }

    /// Returns a client that may take this many ids a day.
    pub(crate) fn limited(per_day: u64) -> Identity {
        let (rows, secret) = row("web", &format!("namespaces = ['*']\nper_day = {per_day}"));
        access(&rows).0.authenticate(secret.as_bytes()).unwrap()
    }

    fn access(rows: &str) -> (Arc<Access>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at_unix_ms(START_UNIX_MS));
        (Access::for_tests(rows, Arc::clone(&clock) as SharedClock), clock)
    }

    fn kind<T: fmt::Debug>(refused: Result<T, MintError>) -> ErrorKind {
        refused.unwrap_err().kind()
    }

    #[test]
    fn without_tokens_ids_are_open_and_administration_is_closed() {
        let open = Identity::anonymous(None);
        assert!(open.may(Right::Mint, b"a").is_ok() && open.may_somewhere(Right::Inspect).is_ok());
        assert!(open.sees(b"a") && open.spend(b"a", u64::MAX).is_ok() && open.name().is_none());
        let error = open.may(Right::Admin, b"a").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Forbidden);
        assert!(error.to_string().contains("snowmint token create"), "{error}");
        assert_eq!(kind(open.may_everywhere(Right::Admin)), ErrorKind::Forbidden);
    }

    #[test]
    fn a_token_gives_its_rights_on_its_namespaces_and_no_more() {
        let (rows, secret) = row("web", "namespaces = ['orders', 'users-*']");
        let (admin, admin_secret) = row("ops", "namespaces = ['*']\nrights = ['admin']");
        let (access, _) = access(&(rows + &admin));
        let nobody = Identity::anonymous(Some(&access));
        assert_eq!(kind(nobody.may(Right::Mint, b"orders")), ErrorKind::Unauthorized);
        assert!(nobody.is_anonymous() && !nobody.sees(b"orders"));
        let web = access.authenticate(secret.as_bytes()).unwrap();
        assert_eq!(web.name(), Some("web"));
        for (right, namespace, wanted) in [
            (Right::Mint, "orders", true),
            (Right::Inspect, "users-7", true),
            (Right::Admin, "orders", false),
            (Right::Mint, "billing", false),
        ] {
            let may = web.may(right, namespace.as_bytes());
            assert_eq!(may.is_ok(), wanted, "{right:?} {namespace}");
            assert!(wanted || kind(may) == ErrorKind::Forbidden);
        }
        assert!(web.sees(b"orders") && !web.sees(b"billing"));
        assert!(web.may_somewhere(Right::Mint).is_ok() && web.may_somewhere(Right::Admin).is_err());
        assert!(web.may_everywhere(Right::Mint).is_err());
        let ops = access.authenticate(admin_secret.as_bytes()).unwrap();
        assert!(ops.may_everywhere(Right::Admin).is_ok());
        assert_eq!(kind(ops.spend(b"orders", 1)), ErrorKind::Forbidden);
    }

    #[test]
    fn wrong_tokens_are_refused_with_the_same_answer() {
        let (rows, secret) = row("web", "namespaces = ['*']");
        let (access, _) = access(&rows);
        let other = row("web", "").1;
        let unknown = row("nobody", "").1;
        let text = |secret: &str| access.authenticate(secret.as_bytes()).unwrap_err().to_string();
        assert_eq!(text(&other), text(&unknown));
        assert!(text(&secret[..secret.len() - 1]).contains("checksum"));
        assert!(text("password").contains("smt_"));
    }

    /// Goal: an open connection notices at its next request that its token was revoked, changed or replaced.
    #[test]
    fn a_change_of_the_tokens_is_noticed_at_once() {
        let (rows, secret) = row("web", "namespaces = ['a']\nrate = 10");
        let (access, _) = access(&rows);
        let mut kept = access.authenticate(secret.as_bytes()).unwrap();
        let stale = kept.clone();
        kept.spend(b"a", 10).unwrap().keep();
        access.change(&rows.replace("'a'", "'b'"));
        for identity in [&kept, &stale] {
            assert_eq!(kind(identity.may(Right::Mint, b"a")), ErrorKind::Forbidden);
            assert!(identity.may(Right::Mint, b"b").is_ok());
            assert_eq!(kind(identity.spend(b"b", 1)), ErrorKind::OverQuota, "a reload refills nothing");
        }
        kept.refresh();
        assert!(kept.may(Right::Mint, b"b").is_ok());
        access.change("");
        kept.refresh();
        assert_eq!(kind(kept.may(Right::Mint, b"b")), ErrorKind::Unauthorized);
        access.change(&row("web", "namespaces = ['*']").0);
        assert_eq!(kind(kept.may(Right::Mint, b"b")), ErrorKind::Unauthorized, "another secret");
        access.change(&rows);
        assert!(kept.may(Right::Mint, b"a").is_ok(), "it is there again");
    }

    /// Goal: a file that was cut or emptied by mistake locks nobody out and frees nobody from a quota, and a
    /// complete one counts. Method: files that are read again.
    #[tokio::test]
    async fn a_file_that_was_cut_is_not_reloaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        let rows = ["a", "b"].map(|name| row(name, "namespaces = ['*']\nrate = 1").0).concat();
        std::fs::write(&path, &rows).unwrap();
        let clock = Arc::new(ManualClock::at_unix_ms(START_UNIX_MS));
        let access = Access::load(TokensSource::File(path.clone()), clock).unwrap();
        let reload = async |text: &str| {
            std::fs::write(&path, text).unwrap();
            access.reload().await.map_err(|error| assert!(error.contains("# end of tokens"), "{error}"))
        };
        for cut in ["", "# none\n", rows.trim_end().trim_end_matches("rate = 1")] {
            assert_eq!(reload(cut).await, Err(()), "{cut}");
            let kept = access.tokens();
            assert!(kept.len() == 2 && kept.iter().all(|it| it.row.quotas.rate.is_some()), "{cut}");
        }
        assert_eq!(reload(&row("a", "namespaces = ['*']").0).await, Err(()), "the last row lacks its rate");
        let limited = row("a", "namespaces = ['*']\nrate = 1").0;
        assert_eq!(reload(&limited).await, Ok(()), "one of two was removed");
        assert_eq!(reload(&rows).await, Ok(()));
        assert_eq!(reload("# end of tokens\n").await, Ok(()));
        assert!(access.tokens().is_empty());
    }

    #[test]
    fn tokens_expire_by_the_clock_and_a_replaced_secret_with_its_overlap() {
        let (old, old_secret) = row("web", "");
        let (new, new_secret) = row("web", "namespaces = ['*']");
        let hash = old.lines().nth(1).unwrap().replace("sha256", "previous_sha256");
        let (until, expires) = (Utc(START_UNIX_MS + 1000), Utc(START_UNIX_MS + 5000));
        let rows = format!("{new}{hash}\nprevious_until = '{until}'\nexpires = '{expires}'\n");
        let (access, clock) = access(&rows);
        let old = access.authenticate(old_secret.as_bytes()).unwrap();
        let new = access.authenticate(new_secret.as_bytes()).unwrap();
        clock.advance_ms(999);
        assert!(old.may(Right::Mint, b"a").is_ok());
        clock.advance_ms(1);
        let error = old.may(Right::Mint, b"a").unwrap_err();
        assert!(error.to_string().contains(&format!("token `web` expired at {until}")), "{error}");
        assert!(new.spend(b"a", 1).is_ok());
        clock.advance_ms(4000);
        assert_eq!(kind(new.spend(b"a", 1)), ErrorKind::Unauthorized);
        assert_eq!(kind(access.authenticate(new_secret.as_bytes())), ErrorKind::Unauthorized);
        assert_eq!(kind(access.identity_of(&TokenName::new("web").unwrap())), ErrorKind::Unauthorized);
    }

    #[test]
    fn quotas_are_shared_by_all_connections_of_a_token() {
        let (rows, secret) = row("web", "namespaces = ['*']\nrate = 100\nper_day = 150");
        let (access, clock) = access(&rows);
        let identity = || access.authenticate(secret.as_bytes()).unwrap();
        identity().spend(b"a", 60).unwrap().keep();
        let refused = identity().spend(b"b", 50).unwrap_err();
        assert_eq!(refused.retry_after().unwrap().as_millis(), 100);
        assert_eq!(kind(identity().spend(b"b", 101)), ErrorKind::BadCount);
        drop(identity().spend(b"b", 40).unwrap());
        let mut spent = identity().spend(b"b", 40).unwrap();
        spent.reduce_to(30);
        spent.keep();
        identity().spend(b"b", 10).unwrap().keep();
        clock.advance_ms(2000);
        identity().spend(b"b", 50).unwrap().keep();
        let refused = identity().spend(b"b", 1).unwrap_err();
        assert!(refused.to_string().contains("150 ids a day"), "{refused}");
        assert!(refused.retry_after().unwrap().as_secs() > 60);
    }

    #[test]
    fn a_connection_verifies_a_header_once_and_each_other_one_again() {
        let (rows, secret) = row("web", "namespaces = ['*']");
        let (access, _) = access(&rows);
        let cache = BearerCache::new(Some(&access));
        let headers = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            }
            headers
        };
        let bearer = format!("Bearer {secret}");
        let other = format!("bearer {}", row("web", "").1);
        assert!(cache.identity(&headers(&[])).unwrap().is_anonymous());
        for _ in 0..2 {
            assert_eq!(cache.identity(&headers(&[&bearer])).unwrap().name(), Some("web"));
            assert_eq!(kind(cache.identity(&headers(&[&other]))), ErrorKind::Unauthorized);
            assert!(cache.identity(&headers(&[])).unwrap().is_anonymous());
        }
        for wrong in [&[&*bearer, &*bearer][..], &["Basic d2ViOng="], &[&secret], &["Bearer "]] {
            assert_eq!(kind(cache.identity(&headers(wrong))), ErrorKind::Unauthorized, "{wrong:?}");
        }
        access.change("");
        let identity = cache.identity(&headers(&[&bearer]));
        assert_eq!(kind(identity.and_then(|it| it.may(Right::Mint, b"a"))), ErrorKind::Unauthorized);
        let open = BearerCache::new(None);
        assert!(open.identity(&headers(&["Basic x"])).unwrap().may(Right::Mint, b"a").is_ok());
    }
}
