//! Parses the URL of a ZooKeeper ensemble and keeps a session: opened when it is needed, dropped when it is
//! in doubt. Distinguishes failures before a call was sent from later ones: a write that fails later may have
//! happened.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, SessionState};

use super::Paths;
use super::error::{ZooKeeperFailure, is_about_the_session};
use super::fence::{EnsembleOrigin, Fence};
use crate::UrlError;
use crate::net::url::{Login, StoreUrl};

/// How long a session outlives its connection; nothing depends on it.
const SESSION: Duration = Duration::from_secs(6);
/// How long one server may be unresponsive before its connection is dropped.
const SILENCE: Duration = Duration::from_secs(2);
/// The limit for opening a session on any of the servers.
const CONNECT: Duration = Duration::from_secs(4);
/// The limit for one try of a read.
const READ: Duration = Duration::from_secs(3);
/// The limit for a read with all its retries.
const READS: Duration = Duration::from_secs(6);
/// How often a read is tried: a broken connection is noticed only when it is used.
const TRIES: usize = 3;
/// How long a write waits for its answer.
const WRITE: Duration = Duration::from_secs(5);

/// A client of an ensemble.
pub(super) struct ZooKeeperClient {
    hosts: String,
    login: Option<Login>,
    fence: Fence,
    client: Mutex<Option<Client>>,
    /// The ensemble that this client used first.
    origin: OnceLock<EnsembleOrigin>,
}

impl fmt::Debug for ZooKeeperClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperClient").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl ZooKeeperClient {
    fn new(hosts: String, login: Option<Login>, paths: &Paths) -> Self {
        let acls = if login.is_some() { Acls::creator_all() } else { Acls::anyone_all() };
        let options = CreateMode::Persistent.with_acls(acls);
        let fence = Fence { base: paths.base().to_owned(), path: paths.fence(), options };
        Self { hosts, login, fence, client: Mutex::new(None), origin: OnceLock::new() }
    }

    pub(super) fn fence(&self) -> Fence {
        self.fence.clone()
    }

    pub(super) fn shown_hosts(&self) -> &str {
        &self.hosts
    }

    /// Returns how znodes are created: they belong to the user if there is one, else to everybody.
    pub(super) fn options(&self) -> CreateOptions<'static> {
        self.fence.options.clone()
    }

    /// Makes a call that can be repeated, on another session if one fails.
    pub(super) async fn read<T, F>(&self, ask: impl Fn(Client) -> F) -> Result<T, ZooKeeperFailure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let deadline = Instant::now() + READS;
        let mut failure = ZooKeeperFailure::NoAnswer(READS);
        for _ in 0..TRIES {
            match timeout_at(deadline, self.once(READ, &ask)).await {
                Ok(Err(ZooKeeperFailure::Error(error))) if is_about_the_session(&error) => {
                    failure = ZooKeeperFailure::Error(error);
                }
                Ok(Err(ZooKeeperFailure::NoAnswer(waited))) => failure = ZooKeeperFailure::NoAnswer(waited),
                Ok(settled) => return settled,
                Err(_) => break,
            }
        }
        Err(failure)
    }

    /// Sends a write, once.
    pub(super) async fn write<T, F>(&self, send: impl Fn(Client) -> F) -> Result<T, ZooKeeperFailure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.once(WRITE, &send).await
    }

    async fn once<T, F>(&self, limit: Duration, call: &impl Fn(Client) -> F) -> Result<T, ZooKeeperFailure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let client = self.client().await?;
        match timeout(limit, call(client.clone())).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                if is_about_the_session(&error) {
                    self.forget(&client).await;
                }
                Err(ZooKeeperFailure::Error(error))
            }
            Err(_) => {
                self.forget(&client).await;
                Err(ZooKeeperFailure::NoAnswer(limit))
            }
        }
    }

    /// Returns a session that is connected, as far as this client knows.
    async fn client(&self) -> Result<Client, ZooKeeperFailure> {
        let opened = timeout(CONNECT, async {
            let mut client = self.client.lock().await;
            // The library would reconnect later, and only then send a request that it gets now.
            if let Some(client) = client.as_ref().filter(|it| it.state() == SessionState::SyncConnected) {
                return Ok(client.clone());
            }
            *client = None;
            let (opened, origin) = self.connect(&self.hosts).await?;
            self.check_origin(&self.hosts, origin)?;
            Ok(client.insert(opened).clone())
        });
        match opened.await {
            Ok(opened) => opened,
            Err(_) => Err(ZooKeeperFailure::NoSession(format!("no session in {} s", CONNECT.as_secs()))),
        }
    }

    /// Checks that all hosts belong to one ensemble. A host that does not answer now is not checked.
    pub(super) async fn check_ensemble(&self) -> Result<(), ZooKeeperFailure> {
        let hosts: Vec<&str> = self.hosts.split(',').collect();
        let answers = join_all(hosts.iter().map(|host| timeout(SILENCE, self.connect(host)))).await;
        for (host, answer) in hosts.into_iter().zip(answers) {
            if let Ok(Ok((_, origin))) = answer {
                self.check_origin(host, origin)?;
            }
        }
        Ok(())
    }

    fn check_origin(&self, hosts: &str, origin: EnsembleOrigin) -> Result<(), ZooKeeperFailure> {
        let known = *self.origin.get_or_init(|| origin);
        if known == origin {
            return Ok(());
        }
        Err(ZooKeeperFailure::AnotherEnsemble { hosts: hosts.to_owned(), origin, known })
    }

    /// Opens a session and passes the fence of its ensemble.
    async fn connect(&self, hosts: &str) -> Result<(Client, EnsembleOrigin), ZooKeeperFailure> {
        // A session may break at once, as when servers restart one by one.
        let mut why = String::new();
        for _ in 0..TRIES {
            let client = self.open_session(hosts).await.map_err(ZooKeeperFailure::NoSession)?;
            match self.fence.pass(&client).await {
                Ok(stat) => return Ok((client, EnsembleOrigin::of(&stat))),
                Err(error) if is_about_the_session(&error) => why = error.to_string(),
                Err(error) => return Err(ZooKeeperFailure::Error(error)),
            }
        }
        // The caller's own request was not sent.
        Err(ZooKeeperFailure::NoSession(why))
    }

    async fn open_session(&self, hosts: &str) -> Result<Client, String> {
        let connector = Client::connector()
            .with_session_timeout(SESSION)
            .with_connection_timeout(SILENCE)
            .with_fail_eagerly();
        let connector = match &self.login {
            Some(login) => {
                let password = login.password().map_err(|error| error.to_string())?;
                connector.with_auth("digest", format!("{}:{}", login.user, password.expose()).as_bytes())
            }
            None => connector,
        };
        connector.connect(hosts).await.map_err(|error| error.to_string())
    }

    /// Drops a session, unless another call has done so already.
    async fn forget(&self, failed: &Client) {
        let mut client = self.client.lock().await;
        if client.as_ref().is_some_and(|it| it.session_id() == failed.session_id()) {
            *client = None;
        }
    }
}

const PORT: u16 = 2181;
const BASE: &str = "/snowmint";

/// Parses `zookeeper://...`.
fn location(url: &str) -> Result<StoreUrl, UrlError> {
    let location = StoreUrl::of_url(url, &["zookeeper"], PORT)?;
    location.require_host("zookeeper://10.0.0.7:2181")?;
    Ok(location)
}

/// Returns the path of all records.
fn base(location: &StoreUrl) -> Result<String, UrlError> {
    if location.path.is_empty() {
        return Ok(BASE.to_owned());
    }
    let fits = |name: &str| !matches!(name, "" | "." | "..") && name.chars().all(|it| !it.is_control());
    if location.path[1..].split('/').all(fits) {
        Ok(location.path.clone())
    } else {
        Err(location.malformed("invalid path: expected names joined by `/`, none of them empty, `.` or `..`"))
    }
}

pub(super) fn settings(url: &str) -> Result<(ZooKeeperClient, Paths), UrlError> {
    let mut location = location(url)?;
    let login = location.take_login()?;
    location.finish("password_file")?;
    let base = base(&location)?;
    if login.as_ref().is_some_and(|it| it.user.contains(':')) {
        return Err(
            location.malformed("invalid user: expected a name without `:`, as ZooKeeper's `digest` requires")
        );
    }
    let paths = Paths::new(base);
    Ok((ZooKeeperClient::new(location.shown_hosts(), login, &paths), paths))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gives_hosts_and_a_path() {
        let (link, paths) = settings("zookeeper://h1,h2:1/team/a/").unwrap();
        assert_eq!((link.shown_hosts(), paths.base()), ("h1:2181,h2:1", "/team/a"));
        assert_eq!(settings("zookeeper://h").unwrap().1.base(), "/snowmint");
        assert_eq!(settings("zookeeper://h/").unwrap().1.base(), "/snowmint");
    }

    #[test]
    fn a_mistake_in_a_url_is_told() {
        let cases = [
            ("zookeeper:h1", "missing `//`"),
            ("zookeeper://", "missing host"),
            ("zookeeper://h/a//b", "none of them empty"),
            ("zookeeper://h/../b", "none of them empty"),
            ("zookeeper://h?ca=x", "unknown parameter `ca`"),
            ("zookeeper://a%3Ab:hunter2@h", "without `:`"),
        ];
        for (url, wanted) in cases {
            let error = settings(url).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(wanted) && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}
