//! Sources of numbers outside the service's own store: `1/2 mysql://a/ids`, or a counter of another system
//! such as `leaf:mysql://db/leaf?tag=order`. Files, records and flags hold them as text, never with a
//! password or the path of a file: those are in the [logins](super::Logins) of each node.
//!
//! Two spellings of one place are recognized by their text. Two names of one server are not recognized: nodes
//! detect that their numbers overlap when they open the sources.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use snowmint::error::Snippet;
use snowmint_store::{StoreError, Visibility};

use crate::segment::{Stripe, StripeError};

/// The prefixes of URLs of other systems' counters.
const TAKEOVERS: [&str; 4] = ["leaf:", "tinyid:", "tickets:", "redis-counter:"];
/// The systems that return every number, so that a second source would repeat their numbers.
const WHOLE: [&str; 2] = ["leaf", "redis-counter"];
/// The parameter that declares that every node reaches the same server by a loopback address, and its only
/// value. It is removed before a URL is opened.
const SHARED: (&str, &str) = ("shared", "yes");
/// The parameter that names the login of each node.
pub(super) const LOGIN: &str = "login";
/// The parameters that decide which numbers a source gives, and how long they need to settle.
pub(super) const WHICH_COUNTER: [&str; 12] = [
    "tag",
    "biz_type",
    "table",
    "stub",
    "counter",
    "prefix",
    "may_lose",
    "durable",
    "wait_replicas",
    "wait_ms",
    SHARED.0,
    LOGIN,
];
/// The further parameters that a source may have: none names a file.
const TIMEOUT: &str = "timeout_ms";
/// The parameters that turn TLS on or off. With a login, they belong to the login.
const TLS: [&str; 3] = ["ssl-mode", "sslmode", "tls"];
/// The longest text, in bytes.
const MAX_LEN: usize = 512;

/// A store and the stripe of its numbers, or a counter of another system.
///
/// # Examples
///
/// ```
/// use snowmint_cluster::namespace::CounterSource;
/// let source: CounterSource = "1/2 mysql://mint@a/ids".parse()?;
/// assert_eq!(source.to_string(), "1/2 mysql://mint@a/ids");
/// assert!("mysql://root:secret@a/ids".parse::<CounterSource>().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CounterSource {
    stripe: Option<Stripe>,
    /// Without [`SHARED`].
    url: String,
    is_shared: bool,
}

/// An invalid source of numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CounterSourceError {
    /// The text is neither a URL nor a stripe and a URL.
    #[error(
        "invalid source {text}: expected a URL such as leaf:mysql://db/leaf?tag=order, or a stripe and a store such as \
         `1/2 mysql://db/ids`"
    )]
    Malformed {
        /// The text.
        text: Snippet,
    },
    /// The stripe is invalid.
    #[error(transparent)]
    Stripe(#[from] StripeError),
    /// The URL contains a password, which everyone who reads the definition would see.
    #[error(
        "the URL of a source has a password, which everybody who reads the definition would see: add login=NAME to the URL, and \
         the password to each node as that login (--logins, SNOWMINT_LOGINS, or the table [logins] of its namespace file)"
    )]
    Password,
    /// The value of `shared` is invalid.
    #[error(
        "invalid value {value} of shared in the URL of a source: expected shared=yes, which declares that every node reaches \
         the same server by this address"
    )]
    Shared {
        /// The text.
        value: Snippet,
    },
    /// The text is too long.
    #[error("invalid length {len} of a source: expected at most {MAX_LEN} bytes")]
    Length {
        /// Its length in bytes.
        len: usize,
    },
}

impl CounterSource {
    /// Returns the name of the other system, empty for a store, and the URL of the store, without
    /// `shared=yes`.
    pub(super) fn system_and_url(&self) -> (&str, &str) {
        split_takeover(&self.url)
    }

    /// Returns the name of the login that it needs.
    pub fn login(&self) -> Option<String> {
        let (_, query) = self.url.split_once('?')?;
        parameters_of(query).find(|(name, _)| *name == LOGIN).map(|(_, value)| value.to_owned())
    }

    /// Returns what an operator may have forgotten if a server refused this source: a login.
    pub fn missing_login(&self, refusal: &StoreError) -> Option<&'static str> {
        let text = refusal.to_string().to_ascii_lowercase();
        let is_of_login = ["password", "denied", "auth"].iter().any(|word| text.contains(word));
        (is_of_login && self.login().is_none()).then_some(
            "a source without login=NAME gets no password: if this server needs one, add login=NAME to the source, and the login \
             to each node and to the commands that open the source (--logins)",
        )
    }

    /// Returns whether a URL names a counter of another system.
    pub(super) fn is_counter_url(url: &str) -> bool {
        !split_takeover(url).0.is_empty()
    }

    /// Checks that opening it uses no file of the node, and no secret besides those of its login. Everyone
    /// who can write to the store can write sources, so they are checked again by each process that opens
    /// one.
    pub(super) fn check_safe(&self) -> Result<(), String> {
        const REMEDY: &str = "a source names no file and no secret of a node; add login=NAME to its URL, and what it needs to \
                              each node as that login (--logins, SNOWMINT_LOGINS, or the table [logins] of its namespace file)";
        if has_password(&self.url) {
            // Without its text.
            return Err(CounterSourceError::Password.to_string());
        }
        let (_, url) = self.system_and_url();
        if url.starts_with("sqlite:") {
            return Err(format!(
                "invalid source `{self}`: a source names no file of a node; use a store on the network, or omit the source"
            ));
        }
        let login = self.login();
        if url.starts_with("kubernetes:") && login.is_none() {
            return Err(format!(
                "invalid source `{self}`: it would use the account of each node's pod: {REMEDY}"
            ));
        }
        let query = url.split_once('?').map_or("", |(_, query)| query);
        for (name, _) in parameters_of(query) {
            if TLS.contains(&name) && login.is_some() {
                return Err(format!(
                    "invalid source `{self}`: with a login, `{name}` belongs to the login: move it there"
                ));
            }
            if !WHICH_COUNTER.contains(&name) && !TLS.contains(&name) && name != TIMEOUT {
                let name = Snippet::of(name);
                return Err(format!("invalid source `{self}`: unexpected parameter {name}: {REMEDY}"));
            }
        }
        Ok(())
    }

    /// Returns the stripe; a counter of another system has none.
    pub const fn stripe(&self) -> Option<Stripe> {
        self.stripe
    }

    /// Returns whether it is a counter of another system, rather than a store.
    pub fn is_takeover(&self) -> bool {
        TAKEOVERS.iter().any(|scheme| self.url.starts_with(scheme))
    }

    /// Returns whether both belong to the same system and stripe.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        self.stripe == other.stripe && split_takeover(&self.url).0 == split_takeover(&other.url).0
    }

    /// Returns whether both use the same counter with the same stripe, as far as their texts show, however it
    /// is reached.
    pub fn is_same(&self, other: &Self) -> bool {
        self == other
            || (self.stripe == other.stripe
                && CounterLocation::of(&self.url).is_same(&CounterLocation::of(&other.url)))
    }

    /// Checks that no two stripes overlap.
    pub(super) fn check_stripes(sources: &[Self]) -> Result<(), String> {
        for source in sources {
            if source.is_takeover() && source.stripe.is_some() {
                return Err(format!(
                    "{source}: a counter of another system has its own step; omit the stripe"
                ));
            }
        }
        let stores: Vec<_> = sources.iter().filter(|source| !source.is_takeover()).collect();
        if stores.len() != sources.len() && !stores.is_empty() {
            return Err("stores and counters of other systems cannot be mixed: their numbers would overlap"
                .to_owned());
        }
        let Some(of) = stores.first().map(|source| source.stripe.unwrap_or(Stripe::WHOLE).of()) else {
            return Ok(());
        };
        let mut seen = BTreeSet::new();
        for source in &stores {
            let stripe = source.stripe.unwrap_or(Stripe::WHOLE);
            if stripe.of() != of || !seen.insert(stripe.index()) {
                return Err(format!(
                    "{source}: each source needs its own stripe out of the same number of stripes, such as 1/{n} and 2/{n}",
                    n = of.max(2)
                ));
            }
        }
        Ok(())
    }

    /// Checks that no two sources return the same number, as far as their texts show, and that every node of
    /// a store with this visibility uses the same counters.
    pub(super) fn check_disjoint(sources: &[Self], visibility: Option<Visibility>) -> Result<(), String> {
        for source in sources {
            source.check_visibility(visibility)?;
            source.check_safe()?;
        }
        for (at, source) in sources.iter().enumerate() {
            let before = &sources[..at];
            if let Some(twice) =
                before.iter().find(|it| CounterLocation::of(&it.url).is(&CounterLocation::of(&source.url)))
            {
                return Err(format!("`{twice}` and `{source}` name the same counter: remove one of them"));
            }
        }
        let gives_all = |source: &&Self| WHOLE.contains(&split_takeover(&source.url).0);
        match sources.iter().find(gives_all) {
            Some(whole) if sources.len() > 1 => {
                let other = sources.iter().find(|it| *it != whole).unwrap_or(whole);
                Err(format!(
                    "`{whole}` gives every number, so `{other}` would repeat them: a namespace uses one Leaf row or one Redis \
                     counter, and no other source; add a namespace for the other"
                ))
            }
            _ => Ok(()),
        }
    }

    fn check_visibility(&self, visibility: Option<Visibility>) -> Result<(), String> {
        match (Visibility::of_url(&self.url), visibility) {
            // This build cannot open a source of an unknown scheme either; the error then names the known
            // ones.
            (Visibility::Process, _) if self.url.starts_with("memory:") => Err(format!(
                "invalid source `{self}`: each process has its own memory and forgets it when it ends, so numbers would be given \
                 twice; use a store that keeps its records, or omit the source"
            )),
            (Visibility::Machine, Some(Visibility::Network | Visibility::Loopback)) => Err(format!(
                "invalid source `{self}`: nodes on other machines may share this namespace and do not see that file, so numbers \
                 would be given twice; use a store on the network, or omit the source"
            )),
            (Visibility::Loopback, Some(Visibility::Network)) if !self.is_shared => Err(format!(
                "invalid source `{self}`: nodes on other machines share this namespace, and each would reach a server of its own, \
                 so numbers would be given twice; use an address by which every machine reaches the same server; if a proxy \
                 on every machine leads there, add the parameter shared=yes to the URL; or omit the source"
            )),
            _ => Ok(()),
        }
    }
}

/// Splits a URL into the name of the other system, empty for a store, and the URL of the store.
fn split_takeover(url: &str) -> (&str, &str) {
    match url.split_once(':') {
        Some((system, rest)) if TAKEOVERS.iter().any(|it| url.starts_with(it)) => (system, rest),
        _ => ("", url),
    }
}

impl FromStr for CounterSource {
    type Err = CounterSourceError;

    fn from_str(text: &str) -> Result<Self, CounterSourceError> {
        if text.len() > MAX_LEN {
            return Err(CounterSourceError::Length { len: text.len() });
        }
        let (stripe, url) = match text.trim().split_once(' ') {
            Some((stripe, url)) => (Some(stripe.parse()?), url.trim_start()),
            None => (None, text.trim()),
        };
        if has_password(url) {
            return Err(CounterSourceError::Password);
        }
        let plain = url.bytes().all(|b| b.is_ascii_graphic());
        if !plain || !url.contains(':') {
            return Err(CounterSourceError::Malformed { text: Snippet::of(text) });
        }
        let (url, is_shared) = split_shared(url)?;
        Ok(Self { stripe, url, is_shared })
    }
}

/// Splits off the parameter [`SHARED`]; returns the URL without it, and whether it was there.
fn split_shared(url: &str) -> Result<(String, bool), CounterSourceError> {
    // In the path of a file, `?` has no meaning.
    let Some((base, query)) = url.split_once('?').filter(|_| !url.starts_with("sqlite:")) else {
        return Ok((url.to_owned(), false));
    };
    let (mut others, mut is_shared) = (Vec::new(), false);
    for parameter in query.split('&') {
        match parameter.split_once('=').unwrap_or((parameter, "")) {
            it if it == SHARED => is_shared = true,
            (name, value) if name == SHARED.0 => {
                return Err(CounterSourceError::Shared { value: Snippet::of(value) });
            }
            _ => others.push(parameter),
        }
    }
    let url = if others.is_empty() { base.to_owned() } else { format!("{base}?{}", others.join("&")) };
    Ok((url, is_shared))
}

/// Returns the parameters of a query, as written.
fn parameters_of(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|it| !it.is_empty()).map(|it| it.split_once('=').unwrap_or((it, "")))
}

/// Returns whether a URL has a parameter, also if its name is escaped.
pub(super) fn has_parameter(url: &str, name: &str) -> bool {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    parameters_of(query).any(|(it, _)| decoded(it) == name)
}

/// Returns whether the login has a password, or a parameter looks like one.
fn has_password(url: &str) -> bool {
    let rest = url.split_once("//").map_or(url, |(_, rest)| rest);
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let is_one =
        |name: &str| name != "password_file" && ["pass", "pwd", "secret"].iter().any(|it| name.contains(it));
    rest.rsplit_once('@').is_some_and(|(login, _)| login.contains(':'))
        || query.split('&').any(|it| is_one(&it.split('=').next().unwrap_or(it).to_ascii_lowercase()))
}

impl fmt::Display for CounterSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(stripe) = self.stripe {
            write!(f, "{stripe} ")?;
        }
        f.write_str(&self.url)?;
        if self.is_shared {
            let first = if self.url.contains('?') { '&' } else { '?' };
            write!(f, "{first}{}={}", SHARED.0, SHARED.1)?;
        }
        Ok(())
    }
}

/// The single spelling for every name and address of loopback.
const LOOPBACK: &str = "localhost";
/// The parameters that select a counter on a server, and their defaults.
const WHICH: [(&str, &str); 7] = [
    ("tag", ""),
    ("biz_type", ""),
    ("table", "Tickets64"),
    ("counter", ""),
    ("prefix", ""),
    ("socket", ""),
    ("server", ""),
];

/// The parameters that control how to connect: they do not change the location.
const HOW: [&str; 15] = [
    LOGIN,
    "password_file",
    "timeout_ms",
    "ssl-mode",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "ca",
    "cert",
    "key",
    "wait_ms",
];

/// A server and database, as the part of a URL before `?` names them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerPlace {
    scheme: String,
    user: String,
    hosts: BTreeSet<String>,
    path: String,
}

impl ServerPlace {
    pub(super) fn of(base: &str) -> Self {
        let (scheme, rest) = base.split_once(':').unwrap_or((base, ""));
        let (kind, port) = kind_and_port(scheme);
        let (authority, path) = authority_and_path(rest, port);
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let hosts = hosts.split(',').filter(|host| !host.is_empty());
        Self {
            scheme: scheme.to_owned(),
            user: decoded(login.split(':').next().unwrap_or(login)),
            hosts: hosts.map(|host| host_as_written(host, port)).collect(),
            path: database(kind, path),
        }
    }

    /// Returns its URL with this text in place of the password.
    pub(super) fn with_password(&self, password: &str) -> String {
        let Self { scheme, user, hosts, path } = self;
        if hosts.is_empty() {
            return format!("{scheme}:{path}");
        }
        let hosts = hosts.iter().map(|it| &**it).collect::<Vec<_>>().join(",");
        let password = if password.is_empty() { String::new() } else { format!(":{password}") };
        let login = if user.is_empty() && password.is_empty() { "" } else { "@" };
        format!("{scheme}://{user}{password}{login}{hosts}{path}")
    }
}

impl fmt::Display for ServerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_password(""))
    }
}

/// Returns the kind of the store of a scheme, and its default port; 0 for stores without hosts.
fn kind_and_port(scheme: &str) -> (&str, u16) {
    let (kind, port) = snowmint_store::store_of_scheme(scheme).unwrap_or((scheme, None));
    (kind, port.unwrap_or(0))
}

/// Splits what follows the scheme, without parameters.
fn authority_and_path(rest: &str, port: u16) -> (&str, &str) {
    match rest.strip_prefix("//").filter(|_| port != 0) {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest.trim_start_matches("//")),
    }
}

fn database(kind: &str, path: &str) -> String {
    match path.trim_end_matches('/') {
        "" if kind == "redis" => "/0".to_owned(),
        path => decoded(path),
    }
}

/// The counter that a URL leads to.
#[derive(Debug)]
struct CounterLocation {
    /// The other system, if any, and the kind of store, such as `tickets mysql`.
    system: String,
    /// Hosts and ports in one spelling.
    hosts: BTreeSet<String>,
    /// The database, or the path of a file.
    path: String,
    which: Vec<String>,
    /// Hosts and parameters as written: a different text may be a different location.
    as_written: (BTreeSet<String>, BTreeSet<(String, String)>),
    /// The user, if another user may see another table: PostgreSQL first searches the schema with the user's
    /// name.
    user: String,
}

impl CounterLocation {
    fn of(url: &str) -> Self {
        let (takeover, url) = split_takeover(url);
        let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
        let (scheme, port) = kind_and_port(scheme);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = authority_and_path(rest, port);
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        // A URL with a password is rejected, but a record may have been written by hand.
        let user = if scheme == "postgres" { login.split(':').next().unwrap_or(login) } else { "" };
        let path = database(scheme, path);
        let parameters: Vec<_> = query
            .split('&')
            .filter_map(|it| it.split_once('='))
            .map(|(name, it)| (name, decoded(it)))
            .collect();
        let as_written = (
            hosts.split(',').map(|host| host_as_written(host, port)).collect(),
            parameters
                .iter()
                .filter(|(name, _)| !HOW.contains(name))
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
        );
        let which = WHICH.iter().map(|(name, unset)| {
            let given = parameters.iter().find(|(it, _)| it == name);
            given.map_or_else(|| (*unset).to_owned(), |(_, value)| value.clone())
        });
        Self {
            system: format!("{takeover} {scheme}"),
            hosts: hosts.split(',').filter(|host| !host.is_empty()).map(|host| spelled(host, port)).collect(),
            path,
            which: which.collect(),
            as_written,
            user: decoded(user),
        }
    }

    /// Returns whether both are certainly the same counter: only how it is reached may differ.
    fn is_same(&self, other: &Self) -> bool {
        self.is(other) && self.as_written == other.as_written && self.user == other.user
    }

    /// Returns whether both may be the same counter: one common host is enough.
    fn is(&self, other: &Self) -> bool {
        let meet = self.hosts.iter().any(|host| other.hosts.contains(host))
            || (self.hosts.is_empty() && other.hosts.is_empty());
        meet && self.system == other.system && self.path == other.path && self.which == other.which
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Returns a host and its port, in lower case and with the port written out.
fn host_as_written(host: &str, default_port: u16) -> String {
    let host = host.to_ascii_lowercase();
    let has_port = host.rsplit_once(':').is_some_and(|(name, _)| !name.contains(':') || name.ends_with(']'));
    if has_port { host } else { format!("{host}:{default_port}") }
}

/// Returns a host and its port in one spelling.
fn spelled(host: &str, default_port: u16) -> String {
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, port)) => (name, port.strip_prefix(':')),
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    let port = port.and_then(|port| port.parse().ok()).unwrap_or(default_port);
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let address = name.parse::<IpAddr>().ok();
    let name = match address {
        Some(address) if address.to_canonical().is_loopback() => LOOPBACK.to_owned(),
        Some(address) => address.to_canonical().to_string(),
        None => name,
    };
    format!("{name} {port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(texts: &[&str]) -> Vec<CounterSource> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn texts_are_read_and_written() {
        for text in ["leaf:mysql://u@h/leaf?tag=order", "1/2 mysql://u@h/ids", "sqlite:/a/b.db"] {
            assert_eq!(text.parse::<CounterSource>().unwrap().to_string(), text);
        }
        // `shared` is kept in the text, and removed from the URL that is opened.
        for (text, url) in [
            ("1/2 mysql://localhost/ids?shared=yes", "mysql://localhost/ids"),
            ("leaf:mysql://[::1]/l?tag=a&shared=yes", "leaf:mysql://[::1]/l?tag=a"),
        ] {
            let source: CounterSource = text.parse().unwrap();
            assert_eq!((source.to_string(), &*source.url), (text.to_owned(), url));
        }
        let [shared, plain] =
            &sources(&["leaf:mysql://localhost/l?shared=yes&tag=a", "leaf:mysql://localhost/l?tag=a"])[..]
        else {
            panic!("two sources");
        };
        assert!(shared.is_same(plain) && shared != plain, "an existing record may add it");
        for (bad, words) in [
            ("", "invalid source"),
            ("orders", "invalid source"),
            ("3/2 mysql://h/ids", "invalid stripe 3/2"),
            ("mysql://localhost/ids?shared=no", "expected shared=yes"),
            ("mysql://u:hunter2@h/ids", "login=NAME"),
            ("leaf:mysql://u:hunter2@h/ids?tag=a", "--logins"),
            ("redis-counter:redis://:hunter2@h/0?counter=a", "--logins"),
            ("1/2 postgres://u@h/ids?sslmode=require&Password=hunter2", "--logins"),
        ] {
            let error = bad.parse::<CounterSource>().unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("hunter2"), "{bad}: {error}");
        }
    }

    #[test]
    fn stripes_must_not_overlap() {
        for good in [
            &["1/2 mysql://a/ids", "2/2 mysql://b/ids"][..],
            &["mysql://a/ids"],
            &["2/3 mysql://a/ids"],
            &["tickets:mysql://a/t", "tickets:mysql://b/t"],
        ] {
            assert_eq!(CounterSource::check_stripes(&sources(good)), Ok(()), "{good:?}");
        }
        for bad in [
            &["1/2 mysql://a/ids", "1/2 mysql://b/ids"][..],
            &["1/2 mysql://a/ids", "2/3 mysql://b/ids"],
            &["mysql://a/ids", "mysql://b/ids"],
            &["1/2 tickets:mysql://a/t"],
            &["tickets:mysql://a/t", "2/2 mysql://b/ids"],
        ] {
            assert!(CounterSource::check_stripes(&sources(bad)).is_err(), "{bad:?}");
        }
    }

    /// Goal: every set of sources that could return a number twice is rejected, and each error names what
    /// overlaps. Method: sets, and words of their errors.
    #[test]
    fn sources_must_not_overlap() {
        use Visibility::{Loopback, Machine, Network};
        let check =
            |texts: &[&str], visibility| CounterSource::check_disjoint(&sources(texts), Some(visibility));
        for (good, visibility) in [
            (&["leaf:mysql://a/l?tag=x"][..], Network),
            (&["redis-counter:redis://a/0?counter=x"], Network),
            (&["tickets:mysql://a/t", "tickets:mysql://b/t"], Network),
            (&["tinyid:mysql://a/t?biz_type=x", "tinyid:mysql://b/t?biz_type=x"], Network),
            (&["1/2 mysql://a/ids", "2/2 mysql://b/ids"], Network),
            (&["tickets:mysql://localhost/t", "tickets:mysql://localhost:3307/t"], Machine),
            (&["tickets:mysql://localhost/t"], Loopback),
            (&["tickets:mysql://localhost/t?shared=yes", "tickets:mysql://b/t"], Network),
        ] {
            assert_eq!(check(good, visibility), Ok(()), "{good:?}");
        }
        for (bad, visibility, words) in [
            (
                &["redis-counter:redis://a/0?counter=x", "redis-counter:redis://a/0?counter=y"][..],
                Network,
                &["counter=x` gives every number", "counter=y"][..],
            ),
            (&["leaf:mysql://a/l?tag=x", "leaf:mysql://b/l?tag=x"], Network, &["//a/l", "//b/l"]),
            (
                &["tickets:mysql://a/t", "leaf:mysql://b/l?tag=x"],
                Network,
                &["//b/l?tag=x` gives every number"],
            ),
            (
                &["tickets:mysql://a/t", "tickets:mysql://a:3306/t?stub=a"],
                Network,
                &["name the same counter"],
            ),
            (&["1/2 mysql://a/ids", "2/2 mysql://u@a/ids"], Network, &["name the same counter"]),
            (&["memory:"], Machine, &["forgets"]),
            (&["1/2 memory:", "2/2 mysql://a/ids"], Network, &["`1/2 memory:`"]),
            (&["sqlite:/a.db"], Network, &["do not see that file", "a store on the network"]),
            // A proxy on each machine may lead to the same server.
            (&["sqlite:/a.db"], Loopback, &["do not see that file"]),
            (&["sqlite:/a.db"], Machine, &["names no file of a node"]),
            (
                &["1/2 mysql://a/ids?password_file=/proc/self/environ"],
                Network,
                &["unexpected parameter `password_file`", "login=NAME", "--logins"],
            ),
            (
                &["tickets:mysql://localhost/t"],
                Network,
                &["a server of its own", "every machine reaches the same server", "shared=yes"],
            ),
            (&["sqlite:/a.db?shared=yes"], Network, &["do not see that file"]),
            (&["1/2 mysql://a/i", "2/2 mysql://127.0.0.1:3307/i"], Network, &["`2/2 mysql://127"]),
            (&["leaf:mysql://h/l?tag=a&socket=/run/mysqld.sock"], Network, &["a server of its own"]),
        ] {
            let error = check(bad, visibility).unwrap_err();
            assert!(words.iter().all(|word| error.contains(word)), "{bad:?}: {error}");
        }
    }

    #[test]
    fn spellings_of_one_place_are_equal() {
        for (one, other) in [
            ("mysql://a/ids", "mysql://root@a:3306/ids/"),
            ("mysql://a/ids?timeout_ms=5&ssl-mode=REQUIRED", "mariadb://A./ids?ssl-mode=REQUIRED"),
            ("tickets:mysql://a/t", "tickets:mysql://a/t?stub=b&table=Tickets64"),
            ("tickets:mysql://a/t?table=T&stub=b", "tickets:mysql://a/t?stub=b&table=T"),
            ("redis-counter:redis://h?counter=a", "redis-counter:rediss://h:6379/0?counter=%61"),
            ("redis-counter:redis://h?counter=a", "redis-counter:valkeys://h?counter=a"),
            ("etcd://h", "etcds://h:2379"),
            ("mysql://localhost/ids", "mysql://127.0.0.1/ids"),
            ("mysql://[::1]/ids", "mysql://127.9.9.9:3306/ids"),
            ("mysql://a,b/ids", "mysql://c,b/ids"),
            ("sqlite:/a.db", "sqlite:///a.db"),
        ] {
            assert!(CounterLocation::of(one).is(&CounterLocation::of(other)), "{one} and {other}");
        }
        for (one, other) in [
            ("mysql://a/ids", "mysql://b/ids"),
            ("mysql://a/ids", "mysql://a/Ids"),
            ("mysql://a:1/ids", "mysql://a:2/ids"),
            ("tickets:mysql://a/t", "tinyid:mysql://a/t"),
            ("tickets:mysql://a/t?table=A", "tickets:mysql://a/t?table=B"),
            ("tinyid:mysql://a/t?biz_type=a", "tinyid:mysql://a/t?biz_type=b"),
            ("redis://h/0?prefix=a", "redis://h/0?prefix=b"),
            ("redis://h/0", "redis://h/1"),
            ("sqlite:/a.db", "sqlite:/b.db"),
        ] {
            assert!(!CounterLocation::of(one).is(&CounterLocation::of(other)), "{one} and {other}");
        }
    }
}
