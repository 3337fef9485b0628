//! A few connections to a database. Each is used by one call at a time, and closed at the first sign of
//! trouble. Not the pool of sqlx, in order to know for certain whether a statement was sent, and to try
//! several hosts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use super::failure::{self, ServerErrors, SqlFailure};
use crate::error::{Effect, random_below};
use crate::net::url::Host;
use crate::net::{
    Chosen, Confirmation, HostAnswer, HostRefusal, Hosts, IDLE, Refresher, ServerHistory, Standing, ask_every,
};
use crate::{StoreError, StoreErrorKind};

/// With several hosts, a call is sent only if all of them were asked within this time before it, or less: see
/// [`ask_every`].
const ASK_EVERY: Duration = Duration::from_secs(10);
/// Number of statements that run at once.
const CONNECTIONS: usize = 4;
/// Lifetime of a connection, less up to a fifth, so that a fleet does not reconnect all at once. A new
/// session checks the server again, and uses a new password.
const LIFETIME: Duration = Duration::from_mins(10);

/// Opens and checks connections.
pub(crate) trait Connect: Send + Sync + 'static {
    /// The setting that makes replicas confirm the commits of a server, as text for a log line.
    const CONFIRMED_BY: &str;
    type Connection: Send + 'static;
    /// The extent of a server's history.
    type History: ServerHistory + Send + 'static;

    /// Connects, prepares the session, and checks that this server accepts writes.
    fn connect(&self, host: Host) -> impl Future<Output = Connected<Self>> + Send;

    /// Whether a connection still answers.
    fn answers(connection: &mut Self::Connection) -> impl Future<Output = bool> + Send;

    /// Returns whether a failover may still lose what the server had when this connection was made.
    fn standing(_connection: &Self::Connection) -> Standing {
        Standing::Kept
    }

    /// Returns whether replicas confirm commits, if the server has reported it since the last call.
    fn confirmation(connection: &mut Self::Connection) -> Option<Confirmation>;
}

/// The result of connecting to a host.
pub(crate) type Connected<D> = HostAnswer<<D as Connect>::Connection, <D as Connect>::History>;

/// The connections to one database.
pub(crate) struct Pool<D: Connect> {
    shared: Arc<SharedPool<D>>,
    /// The URL without secrets, for logs and errors.
    pub(crate) name: String,
    /// The time span of the newest writes that the database may lose.
    pub(crate) may_lose: Duration,
    permits: Semaphore,
    refresher: Refresher,
}

/// What calls share with the background task.
struct SharedPool<D: Connect> {
    connect: D,
    hosts: Hosts<D::History>,
    limit: Duration,
    /// A call goes only to a server that was found to be the primary within this time before it.
    ask_every: Duration,
    /// Whether the user states that failovers lose nothing.
    is_kept: bool,
    state: Mutex<PoolState<D>>,
}

struct PoolState<D: Connect> {
    idle: Vec<OpenConnection<D>>,
    confirmed: LastConfirmation,
    primary: Option<Primary>,
}

/// Whether replicas have confirmed commits so far, on any server in use.
#[derive(Default)]
struct LastConfirmation(Option<Confirmation>);

impl LastConfirmation {
    /// Records what a server reported, and returns it if that has changed since replicas first confirmed
    /// commits.
    fn turn(&mut self, now: Confirmation) -> Option<Confirmation> {
        match self.0 {
            None if now == Confirmation::ByReplicas => {
                self.0 = Some(now);
                None
            }
            Some(before) if before != now => {
                self.0 = Some(now);
                Some(now)
            }
            _ => None,
        }
    }
}

/// The result of asking all hosts.
struct Primary {
    server: Option<String>,
    /// The time at which they were asked.
    asked: Instant,
}

struct OpenConnection<D: Connect> {
    connection: D::Connection,
    server: Option<String>,
    /// The time at which it is replaced.
    ends: Instant,
    /// The time at which it was last used.
    since: Instant,
    /// The server's history when the connection was made, while a failover may lose it.
    unconfirmed: Option<D::History>,
}

impl<D: Connect> Pool<D> {
    pub(crate) fn new(
        connect: D,
        name: String,
        hosts: Vec<Host>,
        limit: Duration,
        may_lose: Duration,
    ) -> Self {
        let ask_every = ask_every(ASK_EVERY, may_lose);
        let confirmed = LastConfirmation::default();
        let state = Mutex::new(PoolState { idle: Vec::new(), confirmed, primary: None });
        let (hosts, is_kept) = (Hosts::new(hosts), may_lose.is_zero());
        let shared = Arc::new(SharedPool { connect, hosts, limit, ask_every, is_kept, state });
        Self { shared, name, may_lose, permits: Semaphore::new(CONNECTIONS), refresher: Refresher::default() }
    }

    /// Returns the identity of the server in use; `None` before it is known.
    pub(crate) fn server(&self) -> Option<String> {
        self.shared.state().primary.as_ref().and_then(|it| it.server.clone())
    }

    /// Runs a statement. A read is retried once, on a new connection, if its connection breaks.
    ///
    /// `ask` returns the connection with its answer. A dropped future drops the connection, including
    /// half-read answers.
    pub(crate) async fn run<T, F>(
        &self,
        effect: Effect,
        ask: impl Fn(D::Connection) -> F + Send + Sync,
    ) -> Result<T, SqlFailure>
    where
        T: Send,
        F: Future<Output = Result<(T, D::Connection), SqlFailure>> + Send,
    {
        let deadline = Instant::now() + self.shared.limit;
        let permit = self.permit(deadline).await?;
        let first = self.run_once(deadline, &ask).await;
        let answer = match first {
            Err(SqlFailure::Sql(error)) if effect == Effect::Reads && error.as_database_error().is_none() => {
                self.run_once(deadline, &ask).await
            }
            answer => answer,
        };
        drop(permit);
        answer
    }

    async fn permit(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, SqlFailure> {
        let permit = timeout_at(deadline, self.permits.acquire()).await;
        // The semaphore is never closed, so its only error is the timeout.
        permit
            .ok()
            .and_then(Result::ok)
            .ok_or_else(|| SqlFailure::NotSent(HostRefusal::late(self.shared.limit)))
    }

    async fn run_once<T, F>(
        &self,
        deadline: Instant,
        ask: &(impl Fn(D::Connection) -> F + Send + Sync),
    ) -> Result<T, SqlFailure>
    where
        T: Send,
        F: Future<Output = Result<(T, D::Connection), SqlFailure>> + Send,
    {
        let shared = &*self.shared;
        let OpenConnection { connection, server, ends, unconfirmed, .. } =
            self.take(deadline).await.map_err(SqlFailure::NotSent)?;
        match timeout_at(deadline, ask(connection)).await {
            Ok(Ok((value, mut connection))) => {
                shared.note(&mut connection);
                let unconfirmed = shared.confirm(&connection, unconfirmed);
                let open = OpenConnection { connection, server, ends, since: Instant::now(), unconfirmed };
                shared.state().keep(open);
                Ok(value)
            }
            Ok(Err(failure)) => {
                if !matches!(&failure, SqlFailure::Sql(error) if error.as_database_error().is_some()) {
                    // The cause has most likely broken all connections.
                    shared.state().idle.clear();
                }
                Err(failure)
            }
            Err(_) => {
                shared.state().idle.clear();
                Err(SqlFailure::Late(shared.limit))
            }
        }
    }

    /// Returns a connection to a server that was the primary when all hosts were last asked. The connection
    /// was just used, has just answered, or is new.
    async fn take(&self, deadline: Instant) -> Result<OpenConnection<D>, HostRefusal> {
        while let Some(mut open) = self.shared.next_idle() {
            let unused = open.since.elapsed();
            if unused < IDLE {
                self.ask_ahead();
                return Ok(open);
            }
            // Half of the remaining time, so that some is left for a new connection.
            let half = deadline.saturating_duration_since(Instant::now()) / 2;
            let asked = timeout_at(Instant::now() + half, D::answers(&mut open.connection)).await;
            if asked.unwrap_or(false) {
                self.ask_ahead();
                return Ok(open);
            }
            self.shared.state().idle.clear();
        }
        self.shared.connect(deadline).await
    }

    /// Asks all hosts in the background when half of the time has passed within which it must be done.
    fn ask_ahead(&self) {
        let shared = &self.shared;
        if shared.hosts.are_several() {
            let asked = || shared.state().primary.as_ref().map(|it| it.asked);
            let refresh = || {
                let shared = Arc::clone(shared);
                async move { shared.refresh().await }
            };
            self.refresher.refresh(asked, shared.ask_every / 2, refresh);
        }
    }
}

impl<D: Connect + ServerErrors> Pool<D> {
    /// As [`run`](Self::run); a failure becomes the error of a store.
    pub(crate) async fn call<T, F>(
        &self,
        operation: &'static str,
        effect: Effect,
        ask: impl Fn(D::Connection) -> F + Send + Sync,
    ) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<(T, D::Connection), SqlFailure>> + Send,
    {
        let answer = self.run(effect, ask).await;
        answer.map_err(|failure| self.error(operation, effect, failure, |_| None))
    }

    /// Turns a failed statement into an error; `advice` precedes that of the database. The refusal of a
    /// demoted server is temporary if there are several hosts, since another one may have been promoted.
    pub(crate) fn error(
        &self,
        operation: &'static str,
        effect: Effect,
        failure: SqlFailure,
        advice: impl Fn(&D::Error) -> Option<String>,
    ) -> StoreError {
        let is_temporary = failure::is_demoted::<D>(&failure) && self.shared.hosts.are_several();
        let (kind, text) = failure::meaning::<D>(failure, effect, advice);
        let kind = if is_temporary { StoreErrorKind::Unavailable } else { kind };
        StoreError::new(kind, operation, &*self.name, text)
    }
}

impl<D: Connect> PoolState<D> {
    /// Keeps a connection for the next call, unless there are enough idle ones, or another server is the
    /// primary by now: one host of a URL may be an address that moves from server to server.
    fn keep(&mut self, open: OpenConnection<D>) {
        let is_current = self.primary.as_ref().is_none_or(|it| it.server == open.server);
        if is_current && self.idle.len() < CONNECTIONS {
            self.idle.push(open);
        }
    }
}

impl<D: Connect> SharedPool<D> {
    /// Asks all hosts, and connects to the primary.
    async fn connect(&self, deadline: Instant) -> Result<OpenConnection<D>, HostRefusal> {
        let asked = Instant::now();
        let found = self.hosts.connect(deadline, |host| self.connect.connect(host)).await?;
        let Chosen { mut connection, server, unconfirmed } = found;
        self.note(&mut connection);
        {
            let mut state = self.state();
            if state.primary.as_ref().is_none_or(|it| it.asked < asked) {
                state.primary = Some(Primary { server: server.clone(), asked });
                state.idle.retain(|it| it.server == server);
            }
        }
        let less = random_below(LIFETIME.as_secs() / 5);
        let ends = asked + LIFETIME - Duration::from_secs(less);
        Ok(OpenConnection { connection, server, ends, since: Instant::now(), unconfirmed })
    }

    /// Asks all hosts again. If one must not be used, the next call asks them itself before it uses any, and
    /// reports why; if no connection was made, the existing connections stay in use for the rest of the time.
    async fn refresh(&self) {
        let found = self.connect(Instant::now() + self.limit).await;
        let mut state = self.state();
        match found {
            Ok(open) => state.keep(open),
            Err(refusal) if refusal.kind == StoreErrorKind::Unavailable => {}
            Err(_) => {
                state.idle.clear();
                state.primary = None;
            }
        }
    }

    /// Remembers the server's history at the time of the connection, once a later commit is confirmed.
    fn confirm(&self, connection: &D::Connection, unconfirmed: Option<D::History>) -> Option<D::History> {
        match unconfirmed {
            Some(history) if D::standing(connection) == Standing::Kept => {
                self.hosts.remember(history);
                None
            }
            unconfirmed => unconfirmed,
        }
    }

    /// Logs once when replicas stop confirming commits, and once when they confirm them again.
    ///
    /// A server without replicas is not refused, even as the first one that this node meets. But if replicas
    /// confirmed commits before, a failover would have lost nothing, and one from this server may.
    fn note(&self, connection: &mut D::Connection) {
        let Some(now) = D::confirmation(connection).filter(|_| self.is_kept) else { return };
        let turned = self.state().confirmed.turn(now);
        let server = self.hosts.last();
        match turned {
            None => {}
            Some(Confirmation::Nobody) => tracing::warn!(
                %server,
                "replicas no longer confirm commits: a failover from this server may lose acknowledged writes and cause \
                 duplicates; {}, or state the loss with may_lose, before you promote a replica",
                D::CONFIRMED_BY
            ),
            Some(Confirmation::ByReplicas) => tracing::info!(%server, "replicas confirm commits again"),
        }
    }

    /// Returns the usable connection that was used last.
    fn next_idle(&self) -> Option<OpenConnection<D>> {
        let several = self.hosts.are_several();
        let mut state = self.state();
        let PoolState { idle, primary, .. } = &mut *state;
        let primary = primary.as_ref().filter(|it| it.asked.elapsed() < self.ask_every);
        let may_be_used = |open: &OpenConnection<D>| {
            open.ends > Instant::now() && (!several || primary.is_some_and(|it| it.server == open.server))
        };
        idle.retain(may_be_used);
        idle.pop()
    }

    /// A panic cannot leave the state half changed, so a poisoned lock is safe to use.
    fn state(&self) -> MutexGuard<'_, PoolState<D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tokio::time::sleep;

    use super::*;
    use crate::net::Writable;

    /// What hosts answer, and how often they were asked.
    #[derive(Clone, Default)]
    struct Hosts(Arc<Mutex<HashMap<&'static str, Says>>>, Arc<Mutex<Vec<Instant>>>);

    #[derive(Clone, Copy)]
    enum Says {
        /// It accepts writes.
        Primary,
        /// Another server at the same address accepts writes.
        Successor,
        Replica,
        Nothing,
        /// It has too many connections.
        Refuses,
    }

    impl Hosts {
        fn set(&self, host: &'static str, says: Says) {
            self.0.lock().unwrap().insert(host, says);
        }

        /// Returns how often the host `a` was asked.
        fn asked(&self) -> usize {
            self.1.lock().unwrap().len()
        }
    }

    impl Connect for Hosts {
        const CONFIRMED_BY: &str = "";
        type Connection = String;
        type History = ();

        async fn connect(&self, host: Host) -> Connected<Self> {
            if host.name() == "a" {
                self.1.lock().unwrap().push(Instant::now());
            }
            let says = self.0.lock().unwrap()[host.name()];
            match says {
                Says::Primary | Says::Successor => {
                    let name =
                        if matches!(says, Says::Primary) { host.name() } else { "its successor" }.to_owned();
                    let server = Some(name.clone());
                    Ok(Writable { connection: name, server, history: (), standing: Standing::Kept })
                }
                Says::Replica => Err(HostRefusal::new(StoreErrorKind::ReadOnly, "a replica")),
                Says::Nothing => std::future::pending().await,
                Says::Refuses => Err(HostRefusal::new(StoreErrorKind::Unavailable, "too many connections")),
            }
        }

        async fn answers(_: &mut String) -> bool {
            true
        }

        fn confirmation(_: &mut String) -> Option<Confirmation> {
            None
        }
    }

    fn pool(b: Says, may_lose: Duration) -> (Pool<Hosts>, Hosts) {
        let hosts = Hosts::default();
        hosts.set("a", Says::Primary);
        hosts.set("b", b);
        let of = ["a", "b"].map(|name| Host::new(name.to_owned(), 1)).to_vec();
        (Pool::new(hosts.clone(), String::new(), of, Duration::from_secs(5), may_lose), hosts)
    }

    /// Returns the server that answered a call, and the time that the call took.
    async fn call(pool: &Pool<Hosts>) -> (Result<String, SqlFailure>, Duration) {
        let started = Instant::now();
        let ask = async |name: String| Ok((name.clone(), name));
        (pool.run(Effect::Writes, ask).await, started.elapsed())
    }

    /// Goal: no call goes to a server unless all hosts were asked shortly before. Method: calls far apart and
    /// close together, and a second primary, which has to be noticed in that time.
    #[tokio::test(start_paused = true)]
    async fn all_hosts_are_asked_again_in_time() {
        for (may_lose, within) in [(0, 10_000), (2_000, 1_000), (60_000, 10_000)] {
            let within = Duration::from_millis(within);
            let (pool, hosts) = pool(Says::Replica, Duration::from_millis(may_lose));
            call(&pool).await.0.unwrap();
            assert_eq!(hosts.asked(), 1);
            call(&pool).await.0.unwrap();
            assert_eq!(hosts.asked(), 1, "may_lose {may_lose}: asked lately");
            sleep(within).await;
            call(&pool).await.0.unwrap();
            assert_eq!(hosts.asked(), 2, "may_lose {may_lose}: not asked for {within:?}");
            // Close together: a call is never answered later than that after the other host was promoted.
            hosts.set("b", Says::Primary);
            let promoted = Instant::now();
            while call(&pool).await.0.is_ok() {
                assert!(promoted.elapsed() < within, "may_lose {may_lose}: a replaced primary is used");
                sleep(within / 20).await;
            }
        }
    }

    /// Goal: only the first call waits for a silent host. Method: calls close together.
    #[tokio::test(start_paused = true)]
    async fn a_silent_host_delays_no_call() {
        let (pool, hosts) = pool(Says::Nothing, Duration::ZERO);
        let (answer, took) = call(&pool).await;
        assert_eq!((answer.unwrap(), took), ("a".to_owned(), Duration::from_secs(1)));
        for _ in 0..600 {
            sleep(Duration::from_millis(100)).await;
            let (answer, took) = call(&pool).await;
            assert_eq!((answer.unwrap(), took), ("a".to_owned(), Duration::ZERO));
        }
        assert!((6..=13).contains(&hosts.asked()), "asked {} times in a minute", hosts.asked());
    }

    /// Goal: a primary that accepts no new connections for a moment delays no call, and is not asked at each
    /// call. Method: calls close together; it refuses for half of the time in which hosts must be asked.
    #[tokio::test(start_paused = true)]
    async fn a_refused_connection_beside_the_calls_costs_none() {
        let (pool, hosts) = pool(Says::Replica, Duration::ZERO);
        call(&pool).await.0.unwrap();
        hosts.set("a", Says::Refuses);
        for _ in 0..99 {
            sleep(Duration::from_millis(100)).await;
            call(&pool).await.0.unwrap();
        }
        assert!((2..=4).contains(&hosts.asked()), "asked {} times in 10 s", hosts.asked());
        sleep(Duration::from_millis(100)).await;
        call(&pool).await.0.unwrap_err();
        hosts.set("a", Says::Primary);
        call(&pool).await.0.unwrap();
    }

    /// Goal: once a call has met another server behind an address, no later call goes to the old one. Method:
    /// a call to the old server that ends after that.
    #[tokio::test(start_paused = true)]
    async fn a_connection_to_a_replaced_server_is_not_kept() {
        let hosts = Hosts::default();
        hosts.set("a", Says::Primary);
        let one = vec![Host::new("a".to_owned(), 1)];
        let pool = Pool::new(hosts.clone(), String::new(), one, Duration::from_secs(5), Duration::ZERO);
        let slow = async |name: String| {
            sleep(Duration::from_secs(1)).await;
            Ok((name.clone(), name))
        };
        let meanwhile = async {
            sleep(Duration::from_millis(100)).await;
            hosts.set("a", Says::Successor);
            call(&pool).await.0.unwrap()
        };
        let (old, new) = tokio::join!(pool.run(Effect::Writes, slow), meanwhile);
        assert_eq!((&*old.unwrap(), &*new), ("a", "its successor"));
        for _ in 0..3 {
            assert_eq!(call(&pool).await.0.unwrap(), "its successor");
        }
    }

    /// Goal: each connection is replaced in the end, to use new passwords and to repeat the checks at the
    /// start of a session.
    #[tokio::test(start_paused = true)]
    async fn a_connection_has_a_lifetime() {
        let hosts = Hosts::default();
        hosts.set("a", Says::Primary);
        let one = vec![Host::new("a".to_owned(), 1)];
        let pool = Pool::new(hosts.clone(), String::new(), one, Duration::from_secs(5), Duration::ZERO);
        for _ in 0..25 {
            call(&pool).await.0.unwrap();
            sleep(Duration::from_mins(1)).await;
        }
        assert!((3..=4).contains(&hosts.asked()), "connected {} times in 25 minutes", hosts.asked());
    }
}
