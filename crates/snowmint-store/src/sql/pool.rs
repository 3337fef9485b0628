//! A few connections to a database, each used by one call at a time and thrown away at the first sign of trouble.
//! Of its own rather than sqlx's, to tell for certain whether a statement was sent, and to try several hosts.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::location::Host;
use crate::network::{ASK_AGAIN, Answer, Effect, Hosts, IDLE, Mark, Refusal};

/// How many statements run at once.
const CONNECTIONS: usize = 4;

/// What makes a connection ready for statements.
pub(crate) trait Connect: Send + Sync + 'static {
    type Connection: Send;
    /// What tells how far the history of a server goes.
    type Mark: Mark + Send;

    /// Connects, sets what every session needs, and makes sure that this is a server to write to.
    fn connect(&self, host: Host) -> impl Future<Output = Connected<Self>> + Send;

    /// Whether a connection answers.
    fn answers(connection: &mut Self::Connection) -> impl Future<Output = bool> + Send;
}

/// What came of connecting to a host.
pub(crate) type Connected<D> = Answer<<D as Connect>::Connection, <D as Connect>::Mark>;

/// Why a statement failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was not sent.
    NotSent(Refusal),
    /// It was sent, and the database or the connection failed it.
    Sql(sqlx::Error),
    /// It was sent, and showed that the server is not one to use any more.
    #[cfg_attr(not(feature = "mysql"), allow(dead_code, reason = "PostgreSQL says so by an error"))]
    Refused(Refusal),
    /// It was sent, and no answer came in time.
    Late(Duration),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

/// The connections to one database.
pub(crate) struct Pool<D: Connect> {
    connect: D,
    hosts: Hosts<D::Mark>,
    limit: Duration,
    /// How much of the newest writes the database may lose.
    pub(crate) may_lose: Duration,
    permits: Semaphore,
    idle: Mutex<Vec<Idle<D::Connection>>>,
}

struct Idle<C> {
    connection: C,
    /// When it was connected.
    made: Instant,
    /// When it was last used.
    since: Instant,
}

impl<D: Connect> Pool<D> {
    pub(crate) fn new(connect: D, hosts: Vec<Host>, limit: Duration, may_lose: Duration) -> Self {
        let permits = Semaphore::new(CONNECTIONS);
        Self { connect, hosts: Hosts::new(hosts), limit, may_lose, permits, idle: Mutex::new(Vec::new()) }
    }

    /// Runs a statement. One that only reads is tried once more, on a new connection, if its own breaks.
    ///
    /// `ask` gives the connection back with the result; a dropped future drops it, half-read answers and all.
    pub(crate) async fn run<T, E, F>(
        &self,
        effect: Effect,
        ask: impl Fn(D::Connection) -> F + Send + Sync,
    ) -> Result<T, Failure>
    where
        T: Send,
        E: Into<Failure> + Send,
        F: Future<Output = (D::Connection, Result<T, E>)> + Send,
    {
        let deadline = Instant::now() + self.limit;
        let permit = self.permit(deadline).await?;
        let first = self.run_once(deadline, &ask).await;
        let answer = match first {
            Err(Failure::Sql(error)) if effect == Effect::Reads && error.as_database_error().is_none() => {
                self.run_once(deadline, &ask).await
            }
            answer => answer,
        };
        drop(permit);
        answer
    }

    async fn permit(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, Failure> {
        let permit = timeout_at(deadline, self.permits.acquire()).await;
        // The semaphore is never closed, so its own error stands for the same as a time-out.
        permit.ok().and_then(Result::ok).ok_or_else(|| Failure::NotSent(Refusal::late(self.limit)))
    }

    async fn run_once<T, E, F>(
        &self,
        deadline: Instant,
        ask: &(impl Fn(D::Connection) -> F + Send + Sync),
    ) -> Result<T, Failure>
    where
        T: Send,
        E: Into<Failure> + Send,
        F: Future<Output = (D::Connection, Result<T, E>)> + Send,
    {
        let (connection, made) = self.take(deadline).await.map_err(Failure::NotSent)?;
        match timeout_at(deadline, ask(connection)).await {
            Ok((connection, Ok(value))) => {
                self.idle().push(Idle { connection, made, since: Instant::now() });
                Ok(value)
            }
            Ok((_, Err(error))) => {
                let failure = error.into();
                if !matches!(&failure, Failure::Sql(error) if error.as_database_error().is_some()) {
                    // What broke one has most likely broken all.
                    self.idle().clear();
                }
                Err(failure)
            }
            Err(_) => {
                self.idle().clear();
                Err(Failure::Late(self.limit))
            }
        }
    }

    /// A connection that stands, and when it was made: one that was just used, or has just answered, or is new.
    async fn take(&self, deadline: Instant) -> Result<(D::Connection, Instant), Refusal> {
        // A replaced primary must be noticed before it confirms what it acknowledged after it was replaced.
        let ask_again = if self.may_lose.is_zero() { ASK_AGAIN } else { ASK_AGAIN.min(self.may_lose / 2) };
        while let Some(Idle { mut connection, made, since }) = self.next_idle() {
            if self.hosts.are_several() && made.elapsed() >= ask_again {
                continue;
            }
            let unused = since.elapsed();
            if unused < IDLE {
                return Ok((connection, made));
            }
            // Half of what is left, so that there is time for a new one.
            let half = deadline.saturating_duration_since(Instant::now()) / 2;
            let asked = timeout_at(Instant::now() + half, D::answers(&mut connection)).await;
            if asked.unwrap_or(false) {
                return Ok((connection, made));
            }
            self.idle().clear();
        }
        let made = Instant::now();
        let connection = self.hosts.connect(deadline, |host| self.connect.connect(host)).await?;
        Ok((connection, made))
    }

    /// The one that was used last.
    fn next_idle(&self) -> Option<Idle<D::Connection>> {
        self.idle().pop()
    }

    /// A panic cannot leave the list half changed, so a poisoned lock is as good as any other.
    fn idle(&self) -> MutexGuard<'_, Vec<Idle<D::Connection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
