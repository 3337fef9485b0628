//! One connection to the primary, shared by all calls and replaced when it breaks.
//! Of its own rather than the crate's manager, to tell for certain whether a command was sent. Every second all hosts
//! are asked anew, on connections that stand: settings change, and so does who is the primary.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Pipeline, RedisError, ServerError, ServerErrorKind, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::cause;
use super::history::History;
use super::opening::{self, Settings, Told};
use crate::StoreErrorKind;
use crate::location::Host;
use crate::network::{Effect, Hosts, IDLE, Refusal, Standing, Writable};

/// How often one call may be sent: the script by its hash and by its source, to a node that it moved to, and a read
/// once more when its connection breaks.
const SENDS: usize = 4;

/// A call is not sent unless all hosts were asked in this time before it. Less than what a failover loses by the
/// default of `may_lose`: a grant that a replaced primary has acknowledged is then not confirmed by it.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How long a host that swallowed a question is not asked, while another is the primary. No longer than the others: a
/// host that was promoted while it was silent is heard of as soon as it answers again.
const SILENCE: Duration = ASK_EVERY;
/// How often a member of a cluster is asked for the others, and how many of them are remembered.
const LEARN_EVERY: Duration = Duration::from_secs(5);
const MEMBERS: usize = 16;

/// Why a call failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// It was not sent.
    NotSent(Refusal),
    /// The server refused it.
    Refused(ServerError),
    /// It was sent, and the connection broke.
    Broken(RedisError),
    /// It was sent, and no answer came in time.
    Late(Duration),
    /// It was done, and not confirmed by as many replicas as it should be.
    NotConfirmed(String),
    /// It was sent, and what came back makes no sense.
    Strange(String),
}

pub(super) struct Link {
    settings: Settings,
    hosts: Hosts,
    limit: Duration,
    state: Mutex<State>,
    /// Apart from the state, which is locked while hosts are asked; never locked across an await.
    known: std::sync::Mutex<Known>,
}

#[derive(Default)]
struct State {
    open: Option<Open>,
    /// Where a cluster says that the keys are now.
    moved_to: Option<Host>,
}

struct Open {
    server: Connected,
    used: Instant,
    asked: Instant,
}

/// A connection to a host.
#[derive(Clone)]
struct Connected {
    connection: MultiplexedConnection,
    host: Host,
    /// Its own, so that a failure closes the connection that it happened on and no later one.
    number: u64,
    in_a_cluster: bool,
}

/// A host that was asked, and what it told.
type Answer = (Connected, Told);

/// What is known of the hosts, from asking them.
#[derive(Default)]
struct Known {
    /// Connections that carried an answer last, to replicas too.
    standing: Vec<Connected>,
    /// Counts connections.
    count: u64,
    /// Those that have not answered yet.
    asking: Vec<Host>,
    /// Those that are not asked until then.
    silent: Vec<(Host, Instant)>,
    /// The nodes of the cluster, for when those of the URL are gone.
    members: Vec<Host>,
    learned: Option<Instant>,
    history: History,
}

impl Known {
    /// Notes that a host is asked, and takes out its connection.
    fn begin(&mut self, host: &Host) -> Result<Option<Connected>, Refusal> {
        if self.silent.iter().any(|(it, until)| it == host && *until > Instant::now()) {
            return Err(Refusal::new(StoreErrorKind::Unavailable, "gave no answer some seconds ago"));
        }
        self.asking.push(host.clone());
        let at = self.standing.iter().position(|it| it.host == *host);
        Ok(at.map(|at| self.standing.swap_remove(at)))
    }

    /// Notes how the question to all hosts ended: those that still think are not asked again for a while, unless
    /// the primary may be among them.
    fn end(&mut self, found: bool) {
        let until = Instant::now() + SILENCE;
        let silent = self.asking.drain(..).map(|host| (host, until));
        if found {
            self.silent.retain(|(_, until)| *until > Instant::now());
            self.silent.extend(silent);
        } else {
            drop(silent);
            self.silent.clear();
        }
    }
}

impl Link {
    pub(super) fn new(settings: Settings, hosts: Vec<Host>, limit: Duration) -> Self {
        let hosts = Hosts::new(hosts);
        Self { settings, hosts, limit, state: Mutex::default(), known: std::sync::Mutex::default() }
    }

    /// Sends commands, the first of which may be a script by its hash, and returns their answers.
    pub(super) async fn call(
        &self,
        effect: Effect,
        pipeline: &(impl Fn(bool) -> Pipeline + Sync),
    ) -> Result<Vec<Value>, Failure> {
        let deadline = Instant::now() + self.limit;
        let (mut by_hash, mut may_repeat) = (true, effect == Effect::Reads);
        let mut failure = None;
        for _ in 0..SENDS {
            let (mut connection, number) = self.connection(deadline).await.map_err(Failure::NotSent)?;
            let pipeline = pipeline(by_hash);
            let sending = connection.send_packed_commands(&pipeline, 0, pipeline.len());
            match timeout_at(deadline, sending).await {
                Err(_) => {
                    self.close(number, None).await;
                    return Err(Failure::Late(self.limit));
                }
                Ok(Err(error)) => {
                    self.close(number, None).await;
                    failure = Some(Failure::Broken(error));
                    if !may_repeat {
                        break;
                    }
                    may_repeat = false;
                }
                Ok(Ok(answers)) => match refused(answers.first()) {
                    None => return Ok(answers),
                    Some(said) => {
                        by_hash &= said.kind() != Some(ServerErrorKind::NoScript);
                        let again = self.follow(number, &said).await;
                        failure = Some(Failure::Refused(said));
                        if !again {
                            break;
                        }
                    }
                },
            }
        }
        Err(failure.unwrap_or(Failure::Late(self.limit)))
    }

    /// Does what a refusal asks for, and says whether to send again. What was refused has not happened.
    async fn follow(&self, number: u64, said: &ServerError) -> bool {
        match said.kind() {
            Some(ServerErrorKind::NoScript) => true,
            Some(ServerErrorKind::Moved) => {
                let target = said.details().and_then(moved_to);
                let again = target.is_some();
                self.close(number, target).await;
                again
            }
            _ => {
                // A replica now, or about to end: look for the primary next time.
                if cause::is_about_the_server(said) {
                    self.close(number, None).await;
                }
                false
            }
        }
    }

    /// The line of writes that the primary in use adds to; none in a cluster.
    pub(super) fn line(&self) -> Option<String> {
        self.known().history.line().map(ToOwned::to_owned)
    }

    /// A connection that stands, with its number, to a server that was the primary when all hosts were asked last.
    async fn connection(&self, deadline: Instant) -> Result<(MultiplexedConnection, u64), Refusal> {
        let mut state =
            timeout_at(deadline, self.state.lock()).await.map_err(|_| Refusal::late(self.limit))?;
        let open = match state.open.take() {
            Some(open) if open.asked.elapsed() >= ASK_EVERY => self.ask_again(open.server, deadline).await?,
            Some(mut open) if open.used.elapsed() >= IDLE => {
                if answers_ping(&mut open.server.connection, half(deadline)).await {
                    open
                } else {
                    self.connect(None, deadline).await?
                }
            }
            Some(open) => open,
            None => self.connect(state.moved_to.take(), deadline).await?,
        };
        let found = (open.server.connection.clone(), open.server.number);
        state.open = Some(Open { used: Instant::now(), ..open });
        Ok(found)
    }

    /// Asks all hosts who is the primary; in a cluster, which decides that by itself, the one with our keys.
    async fn ask_again(&self, server: Connected, deadline: Instant) -> Result<Open, Refusal> {
        if !server.in_a_cluster {
            return self.connect(None, deadline).await;
        }
        match self.ask(&Hosts::new(vec![server.host]), Instant::now() + half(deadline)).await {
            Err(refusal) if refusal.kind == StoreErrorKind::Other => Err(refusal),
            Err(_) => self.connect(None, deadline).await,
            asked => asked,
        }
    }

    async fn connect(&self, moved_to: Option<Host>, deadline: Instant) -> Result<Open, Refusal> {
        if let Some(host) = moved_to {
            match self.ask(&Hosts::new(vec![host]), Instant::now() + half(deadline)).await {
                Err(refusal) if refusal.kind != StoreErrorKind::Other => {}
                asked => return asked,
            }
        }
        let until = if self.known().members.is_empty() { deadline } else { Instant::now() + half(deadline) };
        let refusal = match self.ask(&self.hosts, until).await {
            Err(refusal) if refusal.kind != StoreErrorKind::Other => refusal,
            asked => return asked,
        };
        let members = self.known().members.clone();
        if members.is_empty() {
            return Err(refusal);
        }
        self.ask(&Hosts::new(members), deadline).await.map_err(|other| {
            let text = format!("{}; other nodes of the cluster: {}", refusal.text, other.text);
            Refusal { text, ..refusal }
        })
    }

    /// Asks hosts who is the primary, on connections that stand or new ones.
    async fn ask(&self, hosts: &Hosts, deadline: Instant) -> Result<Open, Refusal> {
        let asked = Instant::now();
        let has_known = {
            let mut known = self.known();
            known.history.begin();
            known.history.is_known()
        };
        let in_parts = has_known && hosts.are_several();
        let until = if in_parts { Instant::now() + half(deadline) } else { deadline };
        let mut found = self.ask_all(hosts, until).await;
        // Those that were left out for the sake of a primary that is gone may have a say now.
        if in_parts && found.is_err() && self.known().history.is_gone() {
            found = self.ask_all(hosts, deadline).await;
        }
        let (server, told) = found?;
        if let Some(line) = told.line() {
            self.known().history.accept(&server.host, line);
        }
        told.check_settings(&self.settings).map_err(|refusal| {
            let text = format!("{}: {}", server.host, refusal.text);
            Refusal { text, ..refusal }
        })?;
        Ok(Open { server, used: Instant::now(), asked })
    }

    async fn ask_all(&self, hosts: &Hosts, deadline: Instant) -> Result<Answer, Refusal> {
        // Left by a call that was dropped.
        self.known().asking.clear();
        let found = hosts.connect(deadline, |host| self.ask_one(host, deadline)).await;
        self.known().end(found.is_ok());
        found.map(|it| it.connection)
    }

    /// Whether a host accepts writes. Whether it may be used is asked once it is certain that no other does.
    async fn ask_one(&self, host: Host, deadline: Instant) -> Result<Writable<Answer, ()>, Refusal> {
        let standing = self.known().begin(&host)?;
        let answer = self.server(&host, standing, deadline).await;
        let mut known = self.known();
        known.asking.retain(|it| *it != host);
        let (server, told) = answer?;
        known.standing.push(server.clone());
        told.check_role().inspect_err(|_| known.history.is_none(&host))?;
        let line = told.line();
        if let Some(line) = &line {
            let judged = known.history.judge(&host, line);
            judged.map_err(|text| Refusal::new(StoreErrorKind::Unavailable, text))?;
        }
        drop(known);
        let server_now = line.map(|it| it.now);
        Ok(Writable { connection: (server, told), server: server_now, mark: (), standing: Standing::Kept })
    }

    /// A connection to a host, and what the server there tells.
    async fn server(
        &self,
        host: &Host,
        standing: Option<Connected>,
        deadline: Instant,
    ) -> Result<Answer, Refusal> {
        let mut again = None;
        if let Some(mut server) = standing {
            let told = timeout_at(Instant::now() + half(deadline), Told::by(&mut server.connection)).await;
            again = told.ok().and_then(Result::ok).map(|told| (server, told));
        }
        let is_new = again.is_none();
        let (mut server, told) = match again {
            Some(again) => again,
            None => self.new_connection(host).await?,
        };
        server.in_a_cluster = told.is_in_a_cluster();
        let learn = is_new || self.known().learned.is_none_or(|it| it.elapsed() >= LEARN_EVERY);
        if learn && server.in_a_cluster {
            let mut members = opening::members(&mut server.connection, host).await;
            members.truncate(MEMBERS);
            if !members.is_empty() {
                let mut known = self.known();
                (known.members, known.learned) = (members, Some(Instant::now()));
            }
        }
        Ok((server, told))
    }

    async fn new_connection(&self, host: &Host) -> Result<Answer, Refusal> {
        let info = self.settings.connection_info(host)?;
        let client = Client::open(info).map_err(|error| cause::refusal(&error))?;
        // Time is kept here, for connecting and for answers.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connected = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connected.map_err(|error| {
            if error.is_connection_refusal() {
                self.known().history.is_none(host);
            }
            cause::refusal(&error)
        })?;
        let told = Told::by(&mut connection).await?;
        let number = {
            let mut known = self.known();
            known.count += 1;
            known.count
        };
        Ok((Connected { connection, host: host.clone(), number, in_a_cluster: false }, told))
    }

    async fn close(&self, number: u64, moved_to: Option<Host>) {
        let mut state = self.state.lock().await;
        if state.open.as_ref().is_some_and(|it| it.server.number == number) {
            state.open = None;
            state.moved_to = moved_to;
        }
        self.known().standing.retain(|it| it.number != number);
    }

    /// A panic leaves nothing half done here, so a poisoned lock is as good as any other.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Half of the time that is left.
fn half(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()) / 2
}

async fn answers_ping(connection: &mut MultiplexedConnection, limit: Duration) -> bool {
    let command = redis::cmd("PING");
    let ping = connection.send_packed_command(&command);
    matches!(timeout_at(Instant::now() + limit, ping).await, Ok(Ok(_)))
}

/// Takes `SLOT HOST:PORT` apart. A server that does not know its own name leaves the host out.
fn moved_to(details: &str) -> Option<Host> {
    let (name, port) = details.split_whitespace().nth(1)?.rsplit_once(':')?;
    (!name.is_empty()).then_some(Host::new(name.to_owned(), port.parse().ok()?))
}

/// The refusal of the first command. After it the others, which only ask about it, may fail and change nothing of it.
fn refused(first: Option<&Value>) -> Option<ServerError> {
    match first {
        Some(Value::ServerError(said)) => Some(said.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a host that was promoted while it was silent is heard of before the old primary's grants settle. Method: one
    /// that did not answer a question while another was the primary; the default of `may_lose` is 2 s.
    #[tokio::test(start_paused = true)]
    async fn a_host_that_was_silent_is_asked_again_within_half_of_what_may_be_lost() {
        let (mut known, silent) = (Known::default(), Host::new("h".to_owned(), 6379));
        assert!(known.begin(&silent).unwrap().is_none());
        known.end(true);
        let refusal = known.begin(&silent).err().map(|refusal| refusal.kind);
        assert_eq!(refusal, Some(StoreErrorKind::Unavailable), "not with every call");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(known.begin(&silent).is_ok());
        // Where no primary was found it may be that one.
        known.end(false);
        assert!(known.begin(&silent).is_ok());
    }
}
