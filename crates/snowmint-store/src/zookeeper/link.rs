//! The session: opened when it is needed, dropped when it is in doubt.
//! Keeps apart what failed before it was sent from what failed after: a write of the second kind may have happened.

use std::fmt;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, SessionState};

use super::cause::{Failure, is_about_the_session};
use crate::location::Login;

/// How long a session outlives its connection; nothing hangs on it.
const SESSION: Duration = Duration::from_secs(6);
/// How long one server may keep silent before its connection is given up.
const SILENCE: Duration = Duration::from_secs(2);
/// How long it may take to open a session on any of the servers.
const CONNECT: Duration = Duration::from_secs(4);
/// How long one try of a read may take.
const READ: Duration = Duration::from_secs(3);
/// How long a read may take with all its tries.
const READS: Duration = Duration::from_secs(6);
/// How often a read is tried: a connection that broke long ago is noticed only when it is used.
const TRIES: usize = 3;
/// How long a write waits for its answer.
const WRITE: Duration = Duration::from_secs(5);

/// The way to an ensemble.
pub(super) struct Link {
    hosts: String,
    login: Option<Login>,
    client: Mutex<Option<Client>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn new(hosts: String, login: Option<Login>) -> Self {
        Self { hosts, login, client: Mutex::new(None) }
    }

    pub(super) fn shown_hosts(&self) -> &str {
        &self.hosts
    }

    /// How znodes are created: they belong to the user where there is one, else to everybody.
    pub(super) fn options(&self) -> CreateOptions<'static> {
        let acls = if self.login.is_some() { Acls::creator_all() } else { Acls::anyone_all() };
        CreateMode::Persistent.with_acls(acls)
    }

    /// Asks what can be asked twice, on another session where one fails.
    pub(super) async fn read<T, F>(&self, ask: impl Fn(Client) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let deadline = Instant::now() + READS;
        let mut failure = Failure::NoAnswer(READS);
        for _ in 0..TRIES {
            match timeout_at(deadline, self.once(READ, &ask)).await {
                Ok(Err(Failure::Error(error))) if is_about_the_session(&error) => {
                    failure = Failure::Error(error);
                }
                Ok(Err(Failure::NoAnswer(waited))) => failure = Failure::NoAnswer(waited),
                Ok(settled) => return settled,
                Err(_) => break,
            }
        }
        Err(failure)
    }

    /// Sends a write, once.
    pub(super) async fn write<T, F>(&self, send: impl Fn(Client) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.once(WRITE, &send).await
    }

    async fn once<T, F>(&self, limit: Duration, call: &impl Fn(Client) -> F) -> Result<T, Failure>
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
                Err(Failure::Error(error))
            }
            Err(_) => {
                self.forget(&client).await;
                Err(Failure::NoAnswer(limit))
            }
        }
    }

    /// A session that is connected, as far as is known.
    async fn client(&self) -> Result<Client, Failure> {
        let opened = timeout(CONNECT, async {
            let mut client = self.client.lock().await;
            // The client would connect again by itself, later, and send then what is given to it now.
            if let Some(client) = client.as_ref().filter(|it| it.state() == SessionState::SyncConnected) {
                return Ok::<_, String>(client.clone());
            }
            *client = None;
            let opened = self.connect().await?;
            Ok(client.insert(opened).clone())
        });
        match opened.await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(why)) => Err(Failure::NoSession(why)),
            Err(_) => Err(Failure::NoSession(format!("no session in {} s", CONNECT.as_secs()))),
        }
    }

    async fn connect(&self) -> Result<Client, String> {
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
        connector.connect(&self.hosts).await.map_err(|error| error.to_string())
    }

    /// Drops a session, unless another call has done so already.
    async fn forget(&self, failed: &Client) {
        let mut client = self.client.lock().await;
        if client.as_ref().is_some_and(|it| it.session_id() == failed.session_id()) {
            *client = None;
        }
    }
}
