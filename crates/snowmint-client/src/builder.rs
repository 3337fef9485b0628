//! The builder: servers, credentials and buffer sizes.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::buffer_target::MAX_REQUEST;
use crate::client::Client;
use crate::connect::{ClientTlsFiles, connections};
use crate::error::BuildError;
use crate::fetcher::{Fetcher, OwnStore, Times};
use crate::refill::BufferSettings;
use crate::server_choice::shuffle;
use crate::wire::{ClientToken, IdServer};

/// Which server gets a request first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerOrder {
    /// A random one for each client, so that clients share the load.
    #[default]
    Shuffled,
    /// The first in the list while it works, then the next: for servers at different distances.
    AsListed,
}

/// Builds a [`Client`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing before `build`"]
pub struct ClientBuilder {
    servers: Vec<String>,
    store: Option<String>,
    order: ServerOrder,
    token: Option<Credential>,
    tls: ClientTlsFiles,
    timeout: Duration,
    hedge_after: Duration,
    max_age: Duration,
    max_ages: HashMap<String, Duration>,
    buffer: RangeInclusive<usize>,
}

#[derive(Clone)]
enum Credential {
    Text(String),
    File(PathBuf),
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credential")
    }
}

impl Client {
    /// Returns a builder without a server.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }
}

impl ClientBuilder {
    pub(crate) fn new() -> Self {
        Self {
            servers: Vec::new(),
            store: None,
            order: ServerOrder::default(),
            token: None,
            tls: ClientTlsFiles::default(),
            timeout: Duration::from_secs(5),
            hedge_after: Duration::from_millis(50),
            max_age: Duration::from_secs(1),
            max_ages: HashMap::new(),
            buffer: 0..=1_000_000,
        }
    }

    /// Adds a server by its URL, such as `http://localhost:8080`. `https://` needs the feature `tls`, which
    /// is on by default.
    ///
    /// All servers must share one store, as the nodes of one service do. The client drops ids of a server
    /// that names another store than the first answer did: see
    /// [`ErrorKind::AnotherStore`](crate::ErrorKind::AnotherStore).
    pub fn server(mut self, url: impl Into<String>) -> Self {
        self.servers.push(url.into());
        self
    }

    /// Adds servers by their URLs.
    pub fn servers<U: Into<String>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.servers.extend(urls.into_iter().map(Into::into));
        self
    }

    /// Sets the identity of the store of the servers, as `snowmint doctor` and `GET /v1/server` show it. The
    /// client then drops ids of any other store, also of the first server that answers, and ids without a
    /// store. Default: the store of the first answer.
    pub fn store(mut self, id: impl Into<String>) -> Self {
        self.store = Some(id.into());
        self
    }

    snowmint::__setters! {
        /// Sets which server gets a request first. Default: [`ServerOrder::Shuffled`].
        order: ServerOrder;
    }

    /// Sets the token that `snowmint token create` printed. The client sends it to every server; over
    /// `http://` anyone on the network path can read it.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(Credential::Text(token.into()));
        self
    }

    /// Sets a file that contains the token. The client reads it for each request, so a new token takes effect
    /// immediately.
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.token = Some(Credential::File(path.into()));
        self
    }

    /// Sets a PEM file with the certificate authorities to trust. Default: those of the system.
    #[cfg(feature = "tls")]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls.authority = Some(path.into());
        self
    }

    /// Sets PEM files with the client's certificate and key, for servers that require one.
    #[cfg(feature = "tls")]
    pub fn client_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.tls.client = Some((certificate.into(), key.into()));
        self
    }

    snowmint::__setters! {
        /// Sets how long a caller waits for ids before it gets an error: 1 ms to 1 h. Default: 5 s.
        timeout: Duration;

        /// Sets how long to wait for an answer before a second server gets the same request. Default: 50 ms;
        /// `Duration::MAX` turns hedging off. On average, at most one request in ten is hedged.
        hedge_after: Duration;

        /// Sets the maximum age of an id from the buffer, counted from its request. Default: 1 s.
        ///
        /// Older ids are dropped. If a call waits for several answers, the client drops and replaces ids that
        /// became too old in the meantime, but only once, so that the call ends. A call that waits may
        /// therefore return ids that are older by its waiting time, which [`timeout`](Self::timeout) limits.
        /// Ids of two clients sort by time only up to these ages. A longer maximum age keeps ids available
        /// through a longer outage of all servers.
        max_age: Duration;
    }

    /// Sets the maximum age for one namespace. Use `Duration::MAX` for numbers, so that none are dropped.
    pub fn namespace_max_age(mut self, namespace: impl Into<String>, max_age: Duration) -> Self {
        self.max_ages.insert(namespace.into(), max_age);
        self
    }

    snowmint::__setters! {
        /// Sets the minimum and maximum number of ids that a namespace keeps in memory. Default:
        /// `0..=1_000_000`.
        ///
        /// Within these bounds the number follows demand: enough ids for half of the maximum age, but for 1 s
        /// at most. They are lost when the process ends. With `0..=0` nothing is kept, each call is a
        /// request, and [`try_next_id`](crate::Ids::try_next_id) returns `None`.
        buffer: RangeInclusive<usize>;
    }

    /// Builds the client and starts its background thread. It sends no request.
    ///
    /// # Errors
    ///
    /// [`BuildError`] for an invalid setting, an unreadable file, or a thread that cannot start.
    pub fn build(self) -> Result<Client, BuildError> {
        let sizes = self.check()?;
        let mut servers =
            self.servers.iter().map(|url| IdServer::parse(url)).collect::<Result<Vec<_>, _>>()?;
        // Uniqueness does not depend on this seed.
        let seed = getrandom::u64().unwrap_or_default();
        if self.order == ServerOrder::Shuffled {
            shuffle(&mut servers, seed);
        }
        let token = match self.token {
            Some(Credential::Text(token)) => {
                Some(ClientToken::Fixed(ClientToken::parse(&token).ok_or(BuildError::InvalidToken)?))
            }
            Some(Credential::File(path)) => Some(ClientToken::in_file(path)),
            None => None,
        };
        let https = servers.iter().find(|server| server.has_tls).map(|server| &*server.url);
        let connections = connections(https, &self.tls)?;
        let times = Times { hedge_after: self.hedge_after, timeout: self.timeout };
        let fetcher = Fetcher::new(servers, connections, token, times, seed, self.store.map(OwnStore::set));
        let settings = BufferSettings { sizes, max_age: self.max_age, timeout: self.timeout };
        Client::start(fetcher, settings, self.max_ages)
    }

    fn check(&self) -> Result<RangeInclusive<u64>, BuildError> {
        if self.servers.is_empty() {
            return Err(BuildError::NoServer);
        }
        let invalid =
            |setting, value: String, expected| Err(BuildError::InvalidSetting { setting, value, expected });
        if !(Duration::from_millis(1)..=Duration::from_hours(1)).contains(&self.timeout) {
            return invalid("timeout", format!("{:?}", self.timeout), "1 ms to 1 h");
        }
        let ages = self.max_ages.values().chain([&self.max_age]);
        if let Some(age) = { ages }.find(|age| **age < Duration::from_millis(1)) {
            return invalid("max_age", format!("{age:?}"), "at least 1 ms");
        }
        if self.hedge_after.is_zero() {
            return invalid("hedge_after", format!("{:?}", self.hedge_after), "more than 0");
        }
        if let Some(id) = self.store.as_ref().filter(|id| !is_store_id(id)) {
            return invalid("store", format!("{id:?}"), "smst_ and 26 digits, as `snowmint doctor` shows it");
        }
        let (least, most) = (*self.buffer.start() as u64, *self.buffer.end() as u64);
        if least > most || most > MAX_REQUEST {
            return invalid("buffer", format!("{:?}", self.buffer), "a range within 0..=1000000");
        }
        Ok(least..=most)
    }
}

/// Returns whether a text has the form of the identity of a store.
fn is_store_id(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
    text.strip_prefix("smst_").is_some_and(|digits| digits.len() == 26 && digits.bytes().all(is_digit))
}

#[cfg(test)]
mod tests {
    use snowmint::error::Chain;

    use super::*;

    #[test]
    fn settings_are_checked() {
        let builder = || Client::builder().server("http://localhost:1");
        let cases = [
            (Client::builder(), "name one with ClientBuilder::server"),
            (builder().server("localhost:8080"), "expected http"),
            (builder().timeout(Duration::ZERO), "invalid timeout 0ns: expected 1 ms to 1 h"),
            (builder().timeout(Duration::MAX), "expected 1 ms to 1 h"),
            (builder().max_age(Duration::ZERO), "invalid max_age 0ns"),
            (builder().namespace_max_age("a", Duration::ZERO), "invalid max_age 0ns"),
            (builder().hedge_after(Duration::ZERO), "invalid hedge_after"),
            (builder().buffer(0..=1_000_001), "expected a range within 0..=1000000"),
            #[expect(clippy::reversed_empty_ranges, reason = "the mistake that is tested")]
            (builder().buffer(5..=4), "invalid buffer 5..=4"),
            (builder().token("hunter2 x"), "expected visible ASCII"),
            (builder().store("prod"), "invalid store \"prod\": expected smst_ and 26 digits"),
        ];
        for (builder, said) in cases {
            assert!(!format!("{builder:?}").contains("hunter2"));
            let error = builder.build().unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("hunter2"), "{error}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn files_for_tls_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty.pem");
        std::fs::write(&empty, "").unwrap();
        let builder = || Client::builder().server("https://localhost:1");
        let cases = [
            (builder().ca_file("/nowhere.pem"), "cannot use /nowhere.pem for TLS: ", "No such file"),
            (builder().ca_file(&empty), "empty.pem for TLS: ", "the file has no certificate"),
            (builder().client_certificate(&empty, &empty), "empty.pem for TLS: ", "no items found"),
        ];
        for (builder, what, why) in cases {
            let error = Chain(&builder.build().unwrap_err()).to_string();
            assert!(error.contains(what) && error.matches(why).count() == 1, "{error}");
        }
    }
}
