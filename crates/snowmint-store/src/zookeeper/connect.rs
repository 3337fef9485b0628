//! Parses the URL of a ZooKeeper ensemble and keeps a session: opened when it is needed, dropped when it is
//! in doubt. Distinguishes failures before a call was sent from later ones: a write that fails later may have
//! happened.
//!
//! A task of its own opens a session, so that a slow one also opens if every call gives up before.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Mutex;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::Paths;
use super::error::ZooKeeperFailure;
use super::fence::Fence;
use super::origin::EnsembleOrigin;
use super::session::{SILENCE, Session};
use super::wire::Owner;
use crate::error::random_below;
use crate::net::tls::{self, DefaultRoots};
use crate::net::url::{Host, Login, StoreUrl};
use crate::net::{HostRefusal, all_of};
use crate::{StoreErrorKind, UrlError};

/// How long one server may take to open a session before the next one is tried too.
const HEAD_START: Duration = Duration::from_millis(250);
/// How long one server may take to open a session: a write, which waits for the disks of a majority.
const OPEN: Duration = Duration::from_secs(3);
/// The limit for opening a session on any of the servers.
const CONNECT: Duration = Duration::from_secs(4);
/// A task that has not opened a session for this long does not run: its runtime stands still.
const STALE: Duration = Duration::from_secs(5);
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
    servers: Arc<ZooKeeperServers>,
    session: Mutex<SessionState>,
}

/// The servers of an ensemble, and how to open a session.
struct ZooKeeperServers {
    hosts: Vec<Host>,
    /// The index of the host to try first: another one each time, so that nodes spread over the servers.
    next: AtomicUsize,
    login: Option<Login>,
    tls: Option<TlsConnector>,
    fence: Fence,
    /// The ensemble that this client used first.
    origin: OnceLock<EnsembleOrigin>,
}

enum SessionState {
    Closed,
    /// A task opens it.
    Opening {
        task: JoinHandle<Result<Session, ZooKeeperFailure>>,
        since: Instant,
    },
    Open(Session),
}

impl fmt::Debug for ZooKeeperClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperClient").field("hosts", &self.servers.hosts).finish_non_exhaustive()
    }
}

impl ZooKeeperClient {
    pub(super) fn fence(&self) -> Fence {
        self.servers.fence.clone()
    }

    /// Returns to whom new znodes belong.
    pub(super) fn owner(&self) -> Owner {
        self.servers.fence.owner
    }

    /// Makes a call that can be repeated, on another session if one fails.
    pub(super) async fn read<T, F>(&self, ask: impl Fn(Session) -> F) -> Result<T, ZooKeeperFailure>
    where
        F: Future<Output = Result<T, ZooKeeperFailure>>,
    {
        let deadline = Instant::now() + READS;
        let mut failure = ZooKeeperFailure::NoAnswer(READS);
        for _ in 0..TRIES {
            match timeout_at(deadline, self.once(READ, &ask)).await {
                Ok(Err(failed)) if failed.is_about_the_session() => failure = failed,
                Ok(settled) => return settled,
                Err(_) => break,
            }
        }
        Err(failure)
    }

    /// Sends a write, once; a session may end just before.
    pub(super) async fn write<T, F>(&self, send: impl Fn(Session) -> F) -> Result<T, ZooKeeperFailure>
    where
        F: Future<Output = Result<T, ZooKeeperFailure>>,
    {
        match self.once(WRITE, &send).await {
            Err(ZooKeeperFailure::NotSent) => self.once(WRITE, &send).await,
            settled => settled,
        }
    }

    async fn once<T, F>(&self, limit: Duration, call: &impl Fn(Session) -> F) -> Result<T, ZooKeeperFailure>
    where
        F: Future<Output = Result<T, ZooKeeperFailure>>,
    {
        let session = self.session().await?;
        let answer = timeout(limit, call(session.clone())).await;
        let answer = answer.unwrap_or(Err(ZooKeeperFailure::NoAnswer(limit)));
        if let Err(failure) = &answer
            && failure.is_about_the_session()
        {
            self.forget(&session).await;
        }
        answer
    }

    /// Returns a session that is open, as far as this client knows.
    async fn session(&self) -> Result<Session, ZooKeeperFailure> {
        let opened = timeout(CONNECT, async {
            let mut session = self.session.lock().await;
            loop {
                match &mut *session {
                    SessionState::Open(open) if open.is_open() => return Ok(open.clone()),
                    SessionState::Opening { task, since }
                        if task.is_finished() || since.elapsed() < STALE =>
                    {
                        let was_finished = task.is_finished();
                        let ended = task.await;
                        *session = SessionState::Closed;
                        match result_of(ended) {
                            Ok(open) => {
                                *session = SessionState::Open(open.clone());
                                return Ok(open);
                            }
                            // A failure that nobody waited for says nothing about now, unless it is lasting.
                            Err(failure) if was_finished && failure.may_pass() => {}
                            Err(failure) => return Err(failure),
                        }
                    }
                    SessionState::Opening { .. } | SessionState::Open(_) | SessionState::Closed => {
                        let servers = Arc::clone(&self.servers);
                        let task = tokio::spawn(async move {
                            timeout(CONNECT, servers.connect_to_any()).await.unwrap_or_else(|_| Err(late()))
                        });
                        *session = SessionState::Opening { task, since: Instant::now() };
                    }
                }
            }
        });
        opened.await.unwrap_or_else(|_| Err(late()))
    }

    /// Checks that all hosts belong to one ensemble. A host that does not answer now is not checked.
    pub(super) async fn check_ensemble(&self) -> Result<(), ZooKeeperFailure> {
        let servers = &self.servers;
        for answer in join_all(servers.hosts.iter().map(|host| servers.connect(host, SILENCE))).await {
            if let Err(failure @ ZooKeeperFailure::AnotherEnsemble { .. }) = answer {
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Drops a session, unless another call has done so already.
    async fn forget(&self, failed: &Session) {
        let mut session = self.session.lock().await;
        if matches!(&*session, SessionState::Open(session) if session.is_same(failed)) {
            *session = SessionState::Closed;
        }
    }
}

impl ZooKeeperServers {
    /// Opens a session on the first server that grants one. Each further server gets its turn when the one
    /// before has failed, or shortly after, so that an unresponsive one costs little time.
    async fn connect_to_any(&self) -> Result<Session, ZooKeeperFailure> {
        let (count, first) = (self.hosts.len(), self.next.fetch_add(1, Ordering::Relaxed));
        let mut hosts = (0..count).map(|nth| &self.hosts[(first.wrapping_add(nth)) % count]);
        let (mut trying, mut refusals) = (FuturesUnordered::new(), Vec::with_capacity(count));
        loop {
            trying.extend(hosts.next().map(|host| self.connect(host, OPEN)));
            match timeout(HEAD_START, trying.next()).await {
                Ok(Some(Err(ZooKeeperFailure::NoSession(refusal)))) => refusals.push(refusal),
                Ok(Some(settled)) => return settled,
                Ok(None) => return Err(ZooKeeperFailure::NoSession(all_of(&refusals))),
                Err(_) => {}
            }
        }
    }

    /// Opens a session with a server that belongs to the ensemble, and passes the fence.
    async fn connect(&self, host: &Host, limit: Duration) -> Result<Session, ZooKeeperFailure> {
        let open = async {
            // A session may break at once, as when servers restart one by one.
            for _ in 1..TRIES {
                match self.open(host).await {
                    Err(failure) if failure.is_about_the_session() => {}
                    settled => return settled,
                }
            }
            self.open(host).await
        };
        let refused = |refusal: HostRefusal| {
            let text = format!("{host}: {}", refusal.text);
            ZooKeeperFailure::NoSession(HostRefusal { text, ..refusal })
        };
        match timeout(limit, open).await {
            Err(_) => Err(refused(HostRefusal::late(limit))),
            Ok(Err(ZooKeeperFailure::NoSession(refusal))) => Err(refused(refusal)),
            // The caller's own request was not sent.
            Ok(Err(failure)) if failure.is_about_the_session() => {
                Err(refused(HostRefusal::new(StoreErrorKind::Unavailable, failure.to_string())))
            }
            Ok(settled) => settled,
        }
    }

    async fn open(&self, host: &Host) -> Result<Session, ZooKeeperFailure> {
        let session = Session::open(host, self.tls.as_ref(), self.login.as_ref()).await;
        let session = session.map_err(ZooKeeperFailure::NoSession)?;
        let origin = EnsembleOrigin::of(&self.fence.pass(&session).await?);
        let known = *self.origin.get_or_init(|| origin);
        if known == origin {
            Ok(session)
        } else {
            Err(ZooKeeperFailure::AnotherEnsemble { host: host.to_string(), origin, known })
        }
    }
}

/// Returns what a task returned, and panics if it did.
fn result_of<T>(ended: Result<Result<T, ZooKeeperFailure>, JoinError>) -> Result<T, ZooKeeperFailure> {
    ended.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        // Its runtime has ended.
        Err(_) => Err(late()),
    })
}

fn late() -> ZooKeeperFailure {
    ZooKeeperFailure::NoSession(HostRefusal::late(CONNECT))
}

const PORT: u16 = 2181;
const BASE: &str = "/snowmint";

/// Parses `zookeeper://...` or `zookeepers://...`.
fn location(url: &str) -> Result<StoreUrl, UrlError> {
    let location = StoreUrl::of_url(url, &["zookeeper", "zookeepers"], PORT)?;
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

/// What a URL says.
#[derive(Debug)]
pub(super) struct ZooKeeperSettings {
    pub(super) link: ZooKeeperClient,
    pub(super) paths: Paths,
    /// The URL without secrets, for logs and errors.
    pub(super) name: String,
}

pub(super) fn settings(url: &str) -> Result<ZooKeeperSettings, UrlError> {
    let mut location = location(url)?;
    let login = location.take_login()?;
    let tls = if location.scheme == "zookeepers" {
        let (config, _) = tls::take(&mut location, None, DefaultRoots::System)?;
        location.finish("password_file, ca, cert and key")?;
        Some(TlsConnector::from(Arc::new(config)))
    } else {
        location.finish("password_file; zookeepers:// has ca, cert and key too")?;
        None
    };
    if login.as_ref().is_some_and(|it| it.user.contains(':')) {
        return Err(
            location.malformed("invalid user: expected a name without `:`, as ZooKeeper's `digest` requires")
        );
    }
    let paths = Paths::new(base(&location)?);
    let name = format!("{}://{}{}", location.scheme, location.shown_hosts(), paths.base());
    let owner = if login.is_some() { Owner::Creator } else { Owner::Everybody };
    let fence = Fence { path: paths.fence(), owner };
    let first = usize::try_from(random_below(location.hosts.len() as u64)).unwrap_or(0);
    let servers = ZooKeeperServers {
        hosts: location.hosts,
        next: AtomicUsize::new(first),
        login,
        tls,
        fence,
        origin: OnceLock::new(),
    };
    let link = ZooKeeperClient { servers: Arc::new(servers), session: Mutex::new(SessionState::Closed) };
    Ok(ZooKeeperSettings { link, paths, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gives_hosts_and_a_path() {
        let found = settings("zookeeper://h1,h2:1/team/a/").unwrap();
        assert_eq!((&*found.name, found.paths.base()), ("zookeeper://h1:2181,h2:1/team/a", "/team/a"));
        for (url, name) in [
            ("zookeeper://h", "zookeeper://h:2181/snowmint"),
            ("zookeeper://u:hunter2@h/", "zookeeper://h:2181/snowmint"),
            ("zookeepers://h:2281", "zookeepers://h:2281/snowmint"),
        ] {
            assert_eq!(settings(url).unwrap().name, name);
        }
    }

    #[test]
    fn a_mistake_in_a_url_is_told() {
        let cases = [
            ("zookeeper:h1", "missing `//`"),
            ("zookeeper://", "missing host"),
            ("zookeeper://h/a//b", "none of them empty"),
            ("zookeeper://h/../b", "none of them empty"),
            ("zookeeper://h?ca=x", "unknown parameter `ca`: expected password_file; zookeepers:// has"),
            ("zookeepers://h?ca=/nowhere", "ca=/nowhere: No such file"),
            ("zookeepers://h?cert=x", "cert= and key= require each other"),
            ("zookeeper://a%3Ab:hunter2@h", "without `:`"),
        ];
        for (url, wanted) in cases {
            let error = settings(url).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(wanted) && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}
