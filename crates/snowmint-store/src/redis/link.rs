//! One connection to the primary, shared by all calls and replaced when it breaks.
//! Of its own rather than the crate's manager, to tell for certain whether a command was sent.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Pipeline, RedisError, ServerError, ServerErrorKind, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::cause;
use super::opening::{self, Settings};
use crate::location::Host;
use crate::network::{Effect, Hosts, IDLE, Refusal, Writable};

/// How often one call may be sent: the script by its hash and by its source, to a node that it moved to, and a read
/// once more when its connection breaks.
const SENDS: usize = 4;

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
}

#[derive(Default)]
struct State {
    open: Option<Open>,
    /// Where a cluster says that the keys are now.
    moved_to: Option<Host>,
    /// Counts connections, so that a failure closes the one it happened on and no later one.
    count: u64,
}

struct Open {
    connection: MultiplexedConnection,
    used: Instant,
}

impl Link {
    pub(super) fn new(settings: Settings, hosts: Vec<Host>, limit: Duration) -> Self {
        Self { settings, hosts: Hosts::new(hosts), limit, state: Mutex::default() }
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

    /// A connection that stands, with its number: one that was just used, or has just answered, or is new.
    async fn connection(&self, deadline: Instant) -> Result<(MultiplexedConnection, u64), Refusal> {
        let mut state =
            timeout_at(deadline, self.state.lock()).await.map_err(|_| Refusal::late(self.limit))?;
        if let Some(mut open) = state.open.take() {
            let half = deadline.saturating_duration_since(Instant::now()) / 2;
            if open.used.elapsed() < IDLE || answers_ping(&mut open.connection, half).await {
                let connection = open.connection.clone();
                state.open = Some(Open { used: Instant::now(), ..open });
                return Ok((connection, state.count));
            }
        }
        let connection = self.connect(deadline, state.moved_to.take()).await?;
        state.count += 1;
        state.open = Some(Open { connection: connection.clone(), used: Instant::now() });
        Ok((connection, state.count))
    }

    async fn connect(
        &self,
        deadline: Instant,
        moved_to: Option<Host>,
    ) -> Result<MultiplexedConnection, Refusal> {
        let connect = async |host| {
            let client = self.settings.connection_info(&host).and_then(Client::open);
            let client = client.map_err(|error| cause::refusal(&error))?;
            // Time is kept here, for connecting and for answers.
            let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
            let connected = client.get_multiplexed_async_connection_with_config(&config).await;
            let mut connection = connected.map_err(|error| cause::refusal(&error))?;
            opening::check_server(&self.settings, &mut connection).await?;
            // Not compared: all primaries of a Redis Cluster accept writes, each for other keys.
            Ok(Writable { connection, server: None, mark: () })
        };
        if let Some(host) = moved_to {
            let half = deadline.saturating_duration_since(Instant::now()) / 2;
            let moved = Hosts::new(vec![host]).connect(Instant::now() + half, connect).await;
            if moved.is_ok() {
                return moved;
            }
        }
        self.hosts.connect(deadline, connect).await
    }

    async fn close(&self, number: u64, moved_to: Option<Host>) {
        let mut state = self.state.lock().await;
        if state.count == number {
            state.open = None;
            state.moved_to = moved_to;
        }
    }
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
