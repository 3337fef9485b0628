//! One connection to the primary, shared by all calls and replaced when it breaks. Not the connection manager
//! of the library, to know for certain whether a command was sent. At least every second the client asks all
//! hosts again, on connections that it keeps: settings change, and so does the primary.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, FromRedisValue, Pipeline, ServerError, ServerErrorKind, Value,
    from_redis_value,
};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use super::connect::RedisSettings;
use super::error::{self, RedisFailure};
use super::primary_history::PrimaryHistory;
use super::scripts::{self, ScriptCall};
use super::server_info::{self, RedisInfo};
use crate::error::Effect;
use crate::net::url::{Host, StoreUrl};
use crate::net::{HostRefusal, Hosts, IDLE, Refresher, Standing, Writable, ask_every};
use crate::{StoreError, StoreErrorKind, UrlError};

/// Number of times that one call may be sent: the script by its hash and by its source, to a node that owns
/// the slot now, and a read again when its connection breaks.
const SENDS: usize = 4;

/// A call is not sent unless all hosts were asked within this time before it began, or within less: see
/// [`ask_every`].
const ASK_EVERY: Duration = Duration::from_secs(1);
/// When several hosts are asked in the background: after this part of that time.
const AHEAD: u32 = 3;
/// How long that may take; hosts other than the primary have an eighth of it. While one is unresponsive,
/// answers get as old as two of these times, which is less than [`ASK_EVERY`]: no call waits for it.
const ASK_BESIDE: Duration = Duration::from_secs(3);
/// How often the member in use is asked for the other members of its cluster.
const LEARN_EVERY: Duration = Duration::from_secs(5);
const MEMBERS: usize = 16;
/// The looks at a sync of the file of a server that has begun, and the time before each: together a second,
/// which a healthy disk needs a small part of.
const SYNC_LOOKS: u32 = 20;
const SYNC_LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A connection to the primary.
pub(crate) struct RedisClient {
    shared: Arc<SharedClient>,
    refresher: Refresher,
    /// The URL without secrets, for logs and errors.
    pub(crate) name: String,
}

/// What calls share with the background task.
struct SharedClient {
    settings: RedisSettings,
    hosts: Hosts,
    /// Held while hosts are asked.
    turn: Mutex<()>,
    /// The primary in use. This lock and the one on `known` are never held across an await.
    primary: std::sync::Mutex<Option<PrimaryInUse>>,
    known: std::sync::Mutex<KnownHosts>,
}

struct PrimaryInUse {
    server: Connected,
    used: Instant,
    /// The time just before all hosts were asked.
    asked: Instant,
}

/// A connection to a host.
#[derive(Clone)]
struct Connected {
    connection: MultiplexedConnection,
    host: Host,
    /// Identifies the connection, so that a failure closes only the connection on which it happened, not a
    /// later one.
    number: u64,
}

/// A host that was asked, and its report.
type Report = (Connected, RedisInfo);

/// What is known about the hosts from asking them.
#[derive(Default)]
struct KnownHosts {
    /// Connections, to replicas too, whose last use got an answer.
    standing: Vec<Connected>,
    /// The number of connections opened so far.
    count: u64,
    cluster: KnownCluster,
    round: ClusterRound,
    history: PrimaryHistory,
}

/// What is known about the cluster of the hosts.
#[derive(Default)]
struct KnownCluster {
    /// Whether a member has answered.
    exists: bool,
    /// Its nodes: those of the URL may be gone, or may not have our keys.
    members: Vec<Host>,
    /// When a member named them.
    learned: Option<Instant>,
    /// The greatest epoch of an owner of our slot so far: each owner has a greater one than the owner that it
    /// replaced.
    epoch: u64,
}

/// The reports of the members that were asked this time.
#[derive(Default)]
struct ClusterRound {
    /// The owner of our slot, with its epoch.
    owner: Option<(u64, Report)>,
    /// The lines of those that accept writes and have other keys.
    elsewhere: Vec<String>,
    /// The ids of the primaries of replicas, and the longest losses by the settings of these replicas.
    losses: Vec<(String, Option<Duration>)>,
}

impl KnownHosts {
    /// Takes the connection to a host.
    fn take(&mut self, host: &Host) -> Option<Connected> {
        let at = self.standing.iter().position(|it| it.host == *host)?;
        Some(self.standing.swap_remove(at))
    }
}

impl KnownCluster {
    /// Remembers a member that the cluster named, as the first to ask.
    fn add_member(&mut self, host: Host) {
        self.members.retain(|it| *it != host);
        self.members.insert(0, host);
        self.members.truncate(MEMBERS);
    }
}

impl ClusterRound {
    /// Returns the longest losses by the settings of the replicas of a member.
    fn losses_of(&self, info: &RedisInfo) -> Vec<Option<Duration>> {
        let Some(member) = info.member() else { return Vec::new() };
        self.losses.iter().filter(|(id, _)| id == member.id()).map(|(_, loss)| *loss).collect()
    }
}

impl RedisClient {
    /// Takes the parameters of a connection out of a URL; other parameters stay. All calls are about keys in
    /// the slot of `key`. The first call connects.
    pub(crate) fn take(location: &mut StoreUrl, key: Option<&str>) -> Result<Self, UrlError> {
        let (settings, name) = RedisSettings::take(location, key)?;
        let hosts = Hosts::new(location.hosts.clone());
        let (turn, primary) = (Mutex::default(), std::sync::Mutex::default());
        let shared = SharedClient { settings, hosts, turn, primary, known: std::sync::Mutex::default() };
        Ok(Self { shared: Arc::new(shared), refresher: Refresher::default(), name })
    }

    /// Returns the time span of its newest writes that the server may lose.
    pub(crate) fn may_lose(&self) -> Duration {
        self.shared.settings.may_lose
    }

    /// Runs a script and waits for replicas if that is required.
    pub(crate) async fn call(
        &self,
        operation: &'static str,
        effect: Effect,
        request: &ScriptCall,
    ) -> Result<Value, StoreError> {
        let copies = self.shared.settings.copies;
        let answers = self.send(effect, &|by_hash| request.pipeline(by_hash, copies)).await;
        let (answers, sent) = answers.map_err(|failure| self.error(operation, effect, failure))?;
        let mut answers = answers.into_iter();
        let (Some(answer), confirmations) = (answers.next(), answers.next()) else {
            return Err(self.error(
                operation,
                effect,
                RedisFailure::InvalidAnswer("an empty answer".to_owned()),
            ));
        };
        // A conflict or a refused addition changed nothing that could be lost. Some of these scripts end
        // before their first write, so a server that refuses writes may answer them.
        let changed = effect == Effect::Reads || !matches!(answer, Value::Int(..=0));
        if let Some(wanted) = copies.map(|it| it.wanted).filter(|_| changed) {
            confirmed(confirmations, wanted).map_err(|failure| self.error(operation, effect, failure))?;
        }
        if changed {
            self.acknowledged(sent);
        }
        Ok(answer)
    }

    /// Sends commands that change nothing, and returns their answers.
    pub(crate) async fn ask(
        &self,
        operation: &'static str,
        commands: impl Fn() -> Pipeline + Sync,
    ) -> Result<Vec<Value>, StoreError> {
        let answers = self.send(Effect::Reads, &|_| commands()).await;
        // This proves nothing about writes, which the server may refuse meanwhile.
        answers.map(|(answers, _)| answers).map_err(|failure| self.error(operation, Effect::Reads, failure))
    }

    /// Returns whether the server that was called last is a member of a cluster, and has only some of the
    /// keys.
    pub(crate) fn is_of_cluster(&self) -> bool {
        self.shared.known().cluster.exists
    }

    /// Returns all keys that match a pattern; some may occur twice.
    ///
    /// A scan that started on one server and ended on another may have missed some, and is an error.
    pub(crate) async fn scan(
        &self,
        operation: &'static str,
        pattern: &str,
    ) -> Result<ScannedKeys, StoreError> {
        let (mut cursor, mut found) = ("0".to_owned(), None::<ScannedKeys>);
        loop {
            let answers = self.ask(operation, || scripts::scan(&cursor, pattern)).await?;
            let mut answers = answers.into_iter();
            let (next, page): (String, Vec<Vec<u8>>) =
                self.parse(operation, Effect::Reads, answers.next().unwrap_or(Value::Nil))?;
            let told: String = answers.next().and_then(|it| from_redis_value(it).ok()).unwrap_or_default();
            let server =
                told.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap_or_default().trim();
            let found =
                found.get_or_insert_with(|| ScannedKeys { server: server.to_owned(), keys: Vec::new() });
            if found.server != server {
                return Err(self.moved_on(operation));
            }
            found.keys.extend(page);
            if next == "0" {
                return Ok(std::mem::take(found));
            }
            cursor = next;
        }
    }

    /// Returns the error for a call whose steps did not all run on one server.
    pub(super) fn moved_on(&self, operation: &'static str) -> StoreError {
        let text = "another server took over during the call; retry";
        StoreError::new(StoreErrorKind::Unavailable, operation, &*self.name, text)
    }

    pub(crate) fn parse<T: FromRedisValue>(
        &self,
        operation: &'static str,
        effect: Effect,
        value: Value,
    ) -> Result<T, StoreError> {
        from_redis_value(value)
            .map_err(|error| self.error(operation, effect, RedisFailure::InvalidAnswer(error.to_string())))
    }

    /// Turns a failed call into an error. The refusal of a demoted server is temporary if there are several,
    /// since another one may have been promoted.
    pub(super) fn error(&self, operation: &'static str, effect: Effect, failure: RedisFailure) -> StoreError {
        let is_temporary = matches!(&failure, RedisFailure::Refused(said) if error::is_about_the_server(said))
            && self.shared.are_several();
        let (kind, text) = error::meaning(effect, failure);
        let kind = if is_temporary { StoreErrorKind::Unavailable } else { kind };
        StoreError::new(kind, operation, &*self.name, text)
    }

    /// Sends commands, the first of which may be a script by its hash. Returns their answers, and the time
    /// just before a connection for them was chosen.
    async fn send(
        &self,
        effect: Effect,
        pipeline: &(impl Fn(bool) -> Pipeline + Sync),
    ) -> Result<(Vec<Value>, Instant), RedisFailure> {
        let limit = self.shared.settings.limit;
        let deadline = Instant::now() + limit;
        let (mut by_hash, mut may_repeat) = (true, effect == Effect::Reads);
        let mut failure = None;
        for _ in 0..SENDS {
            // Taken before the connection: a pause after this may outlast the primary.
            let sent = Instant::now();
            let (mut connection, number) =
                self.connection(sent, deadline).await.map_err(RedisFailure::NotSent)?;
            let pipeline = pipeline(by_hash);
            let sending = connection.send_packed_commands(&pipeline, 0, pipeline.len());
            match timeout_at(deadline, sending).await {
                Err(_) => {
                    self.shared.close(number);
                    return Err(RedisFailure::Late(limit));
                }
                Ok(Err(error)) => {
                    self.shared.close(number);
                    failure = Some(RedisFailure::Broken(error));
                    if !may_repeat {
                        break;
                    }
                    may_repeat = false;
                }
                Ok(Ok(answers)) => match refused(answers.first()) {
                    None => return Ok((answers, sent)),
                    Some(said) => {
                        by_hash &= said.kind() != Some(ServerErrorKind::NoScript);
                        let again = self.shared.follow(number, &said);
                        failure = Some(RedisFailure::Refused(said));
                        if !again {
                            break;
                        }
                    }
                },
            }
        }
        Err(failure.unwrap_or(RedisFailure::Late(limit)))
    }

    /// Returns a connection, with its number, to a server that was the primary shortly before a call began,
    /// or since.
    async fn connection(
        &self,
        began: Instant,
        deadline: Instant,
    ) -> Result<(MultiplexedConnection, u64), HostRefusal> {
        let shared = &*self.shared;
        let server = if let Some(server) = shared.stands(began, deadline).await {
            self.ask_ahead();
            server
        } else {
            let turn = timeout_at(deadline, shared.turn.lock()).await;
            let _turn = turn.map_err(|_| HostRefusal::late(shared.settings.limit))?;
            // Another call may have asked meanwhile.
            match shared.stands(began, deadline).await {
                Some(server) => server,
                None => shared.connect(deadline).await?,
            }
        };
        Ok((server.connection, server.number))
    }

    /// Records that a write sent at this time was acknowledged, and confirmed by replicas if that is
    /// required.
    fn acknowledged(&self, sent: Instant) {
        self.shared.known().history.acknowledged(sent, self.shared.settings.may_lose);
    }

    /// Returns the line of writes of the primary in use, which no other server continues; `None` in a Redis
    /// Cluster.
    pub(crate) fn line(&self) -> Option<String> {
        let known = self.shared.known();
        let line = known.history.line().filter(|_| !known.cluster.exists);
        line.map(ToOwned::to_owned)
    }

    /// Asks all hosts in the background before the last answers are too old.
    fn ask_ahead(&self) {
        let shared = &self.shared;
        let asked = || shared.primary().as_ref().map(|it| it.asked);
        if asked().is_some() && shared.are_several() {
            let refresh = || {
                let shared = Arc::clone(shared);
                async move { shared.refresh().await }
            };
            self.refresher.refresh(asked, shared.ask_every() / AHEAD, refresh);
        }
    }
}

impl SharedClient {
    /// Follows the instructions in a refusal, and returns whether to send again. A refused call had no
    /// effect.
    fn follow(&self, number: u64, said: &ServerError) -> bool {
        match said.kind() {
            Some(ServerErrorKind::NoScript) => true,
            Some(ServerErrorKind::Moved) => {
                self.close(number);
                let target = said.details().and_then(moved_to);
                let again = target.is_some();
                if let Some(target) = target {
                    self.known().cluster.add_member(target);
                }
                again
            }
            _ => {
                // It is a replica now, or about to stop: look for the primary next time.
                if error::is_about_the_server(said) {
                    self.close(number);
                }
                false
            }
        }
    }

    /// Returns whether more than one server may accept writes.
    fn are_several(&self) -> bool {
        self.hosts.are_several() || !self.known().cluster.members.is_empty()
    }

    /// How old the answers of the hosts may be when a call begins.
    fn ask_every(&self) -> Duration {
        if self.are_several() { ask_every(ASK_EVERY, self.settings.may_lose) } else { ASK_EVERY }
    }

    /// Returns the connection of the last call, if all hosts were asked shortly before a call began, or
    /// since, and it still answers.
    async fn stands(&self, began: Instant, deadline: Instant) -> Option<Connected> {
        let ask_every = self.ask_every();
        let is_fresh = |open: &&mut PrimaryInUse| began.saturating_duration_since(open.asked) < ask_every;
        let (mut server, unused) = {
            let mut primary = self.primary();
            let open = primary.as_mut().filter(is_fresh)?;
            (open.server.clone(), open.used.elapsed())
        };
        if unused >= IDLE && !answers_ping(&mut server.connection, half(deadline)).await {
            self.close(server.number);
            return None;
        }
        let mut primary = self.primary();
        let open = primary.as_mut().filter(is_fresh).filter(|it| it.server.number == server.number)?;
        open.used = Instant::now();
        Some(server)
    }

    /// Asks all hosts again. If one must not be used, the next call asks them itself before it uses any, and
    /// reports why; if none answers, the existing connection stays in use until the last answers are too old.
    async fn refresh(&self) {
        let _turn = self.turn.lock().await;
        match self.connect(Instant::now() + self.settings.limit.min(ASK_BESIDE)).await {
            Ok(_) => {}
            Err(refusal) if refusal.kind == StoreErrorKind::Unavailable => {}
            Err(_) => *self.primary() = None,
        }
    }

    /// Asks all hosts which one is the primary, and continues with it.
    async fn connect(&self, deadline: Instant) -> Result<Connected, HostRefusal> {
        let from = Instant::now();
        let (mut server, told) = self.find(deadline).await?;
        let RedisSettings { must_keep, may_lose, copies, .. } = self.settings;
        let host = server.host.clone();
        let named = |refusal: HostRefusal| {
            let text = format!("{host}: {}", refusal.text);
            HostRefusal { text, ..refusal }
        };
        {
            let mut known = self.known();
            if let Some(line) = told.line() {
                if told.member().is_none() {
                    let checked = known.history.check_origin(&server.host, &line);
                    checked.map_err(|text| named(HostRefusal::new(StoreErrorKind::Unavailable, text)))?;
                }
                if must_keep && known.history.line() != Some(&line.now) {
                    told.check_file(&line).map_err(named)?;
                }
                // A member that continues the line in use but no longer owns our keys was not replaced.
                let is_alive = known
                    .history
                    .line()
                    .is_some_and(|line| known.round.elsewhere.iter().any(|it| it == line));
                if let Some(lack) = known.history.lacks(&line).filter(|_| !is_alive) {
                    return Err(HostRefusal::new(
                        StoreErrorKind::Other,
                        format!("{}: the server {lack}", server.host),
                    ));
                }
                let heard = Instant::now();
                match told.member() {
                    None => known.history.accept(&server.host, line, heard, may_lose),
                    Some(_) => known.history.accept_member(&server.host, line, heard, may_lose),
                }
            }
            if let Some(epoch) = told.member().and_then(|it| it.claims(self.settings.slot).ok()) {
                known.cluster.epoch = epoch;
            }
        }
        let copies = copies.map_or(0, |it| it.wanted);
        let losses = self.known().round.losses_of(&told);
        told.check_settings(must_keep, may_lose, copies, &losses).map_err(named)?;
        if must_keep && told.is_syncing() {
            await_sync(&mut server.connection).await.map_err(named)?;
        }
        if told.member().is_some()
            && self.known().cluster.learned.is_none_or(|it| it.elapsed() >= LEARN_EVERY)
        {
            self.learn(&mut server, deadline).await;
        }
        *self.primary() = Some(PrimaryInUse { server: server.clone(), used: Instant::now(), asked: from });
        Ok(server)
    }

    /// Asks all hosts which one is the primary, and again if the first answers name others to ask.
    async fn find(&self, deadline: Instant) -> Result<Report, HostRefusal> {
        let others = |known: &KnownHosts| -> Vec<Host> {
            known.cluster.members.iter().filter(|it| !self.hosts.all().contains(it)).cloned().collect()
        };
        let others_before = {
            let mut known = self.known();
            known.history.begin();
            others(&known)
        };
        let in_parts = self.hosts.are_several() || !others_before.is_empty();
        let until = if in_parts { Instant::now() + half(deadline) } else { deadline };
        let refusal = match self.ask(&others_before, until).await {
            // Asking again mends neither of the two.
            Err(refusal) if matches!(refusal.kind, StoreErrorKind::SplitBrain | StoreErrorKind::Other) => {
                return Err(refusal);
            }
            Err(refusal) => refusal,
            found => return found,
        };
        let are_all_asked = others(&self.known()) == others_before;
        if are_all_asked && refusal.kind == StoreErrorKind::Unavailable {
            self.learn_from_any(deadline).await;
        }
        // A server that was left out in favour of a primary that is gone may be valid now, and a member
        // without our keys knows their owner.
        let (others, again) = {
            let known = self.known();
            let others = others(&known);
            let again = in_parts && (known.history.is_gone() || !known.history.is_known());
            (others.clone(), again || others != others_before)
        };
        if again { self.ask(&others, deadline).await } else { Err(refusal) }
    }

    /// Asks the hosts of the URL and others which one is the primary, on existing connections or new ones.
    async fn ask(&self, others: &[Host], deadline: Instant) -> Result<Report, HostRefusal> {
        self.known().round = ClusterRound::default();
        let ask = |host| self.ask_one(host, deadline);
        let found = if others.is_empty() {
            self.hosts.connect(deadline, ask).await
        } else {
            let all = self.hosts.all().iter().chain(others).cloned().collect();
            Hosts::new(all).connect(deadline, ask).await
        };
        let answer = found?.connection;
        Ok(self.known().round.owner.take().map_or(answer, |(_, owner)| owner))
    }

    /// Asks whether a host accepts writes. Whether it may be used is decided once it is certain that no other
    /// host does.
    async fn ask_one(&self, host: Host, deadline: Instant) -> Result<Writable<Report, ()>, HostRefusal> {
        let standing = self.known().take(&host);
        let (server, told) = self.server(&host, standing, deadline).await?;
        let mut known = self.known();
        known.standing.push(server.clone());
        if let Some(replica) = told.replica().filter(|_| told.member().is_none()) {
            known.history.follows(&host, replica);
        }
        if let Some(member) = told.member() {
            known.cluster.exists = true;
            known.round.losses.extend(member.follows().map(|id| (id.to_owned(), member.longest_loss())));
        }
        told.check_role().inspect_err(|_| known.history.not_primary(&host))?;
        let server_now = if let Some(member) = told.member() {
            if member.holds_others(self.settings.slot) {
                known.round.elsewhere.extend(told.line().map(|it| it.now));
            }
            // A cluster itself decides who owns a slot, but a member that is cut off does not learn it.
            let epoch = member.claims(self.settings.slot)?;
            if epoch < known.cluster.epoch {
                let text = format!(
                    "owned these keys in epoch {epoch}, and another member has owned them since, in epoch {}; if the cluster was \
                     rebuilt, restart the nodes",
                    known.cluster.epoch
                );
                return Err(HostRefusal::new(StoreErrorKind::Unavailable, text));
            }
            if known.round.owner.as_ref().is_none_or(|it| it.0 < epoch) {
                known.round.owner = Some((epoch, (server.clone(), told.clone())));
            }
            None
        } else {
            let line = told.line();
            if let Some(line) = &line {
                let judged = known.history.judge(&host, line);
                judged.map_err(|text| HostRefusal::new(StoreErrorKind::Unavailable, text))?;
            }
            line.map(|it| it.now)
        };
        drop(known);
        Ok(Writable { connection: (server, told), server: server_now, history: (), standing: Standing::Kept })
    }

    /// Returns a connection to a host, and the report of its server.
    async fn server(
        &self,
        host: &Host,
        standing: Option<Connected>,
        deadline: Instant,
    ) -> Result<Report, HostRefusal> {
        if let Some(mut server) = standing {
            let told =
                timeout_at(Instant::now() + half(deadline), RedisInfo::by(&mut server.connection)).await;
            if let Some(told) = told.ok().and_then(Result::ok) {
                return Ok((server, told));
            }
        }
        let (mut server, told) = self.new_connection(host).await?;
        // It is used only if it has our keys, but it knows the member that has them.
        if told.member().is_some() && self.known().cluster.members.is_empty() {
            self.learn(&mut server, deadline).await;
            // Ask the owner of our keys too: this member may not know the owner's replicas yet.
            self.known().cluster.learned = None;
        }
        Ok((server, told))
    }

    /// Asks members of a cluster for the others until one names a new one: the owner of our keys may have
    /// joined the cluster after the last time.
    async fn learn_from_any(&self, deadline: Instant) {
        let (before, standing) = {
            let known = self.known();
            // Only a cluster names members.
            if known.cluster.members.is_empty() {
                return;
            }
            (known.cluster.members.clone(), known.standing.clone())
        };
        for mut server in standing {
            self.learn(&mut server, deadline).await;
            let cluster = &mut self.known().cluster;
            let is_new = cluster.members.iter().any(|it| !before.contains(it));
            // The one that was asked may be cut off, and its list old. The owner of our keys, once it is
            // found, names those that stay.
            let missing: Vec<Host> =
                before.iter().filter(|it| !cluster.members.contains(it)).cloned().collect();
            cluster.members.extend(missing);
            cluster.members.truncate(MEMBERS);
            cluster.learned = None;
            if is_new {
                return;
            }
        }
    }

    /// Asks a member of a cluster for the others.
    async fn learn(&self, server: &mut Connected, deadline: Instant) {
        let members = server_info::members(&mut server.connection, &server.host, self.settings.slot);
        let mut members = timeout_at(Instant::now() + half(deadline), members).await.unwrap_or_default();
        members.truncate(MEMBERS);
        let cluster = &mut self.known().cluster;
        cluster.learned = Some(Instant::now());
        if !members.is_empty() {
            cluster.members = members;
        }
    }

    async fn new_connection(&self, host: &Host) -> Result<Report, HostRefusal> {
        let info = self.settings.connection_info(host)?;
        let client = Client::open(info).map_err(|error| error::refusal(&error))?;
        // This client applies its own limits to connecting and to answers.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connected = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connected.map_err(|error| {
            if error.is_connection_refusal() {
                self.known().history.not_primary(host);
            }
            error::refusal(&error)
        })?;
        let told = RedisInfo::by(&mut connection).await?;
        let number = {
            let mut known = self.known();
            known.count += 1;
            known.count
        };
        Ok((Connected { connection, host: host.clone(), number }, told))
    }

    fn close(&self, number: u64) {
        self.primary().take_if(|it| it.server.number == number);
        self.known().standing.retain(|it| it.number != number);
    }

    /// A panic leaves nothing half changed in either lock, so a poisoned lock is safe to use.
    fn primary(&self) -> MutexGuard<'_, Option<PrimaryInUse>> {
        self.primary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, KnownHosts> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until a sync of the file of a server ends. Refuses a server whose disk hangs: with
/// `appendfsync everysec`, Redis waits 2 s for the sync, and then goes on and acknowledges without it, for as
/// long as the disk hangs. A failure of the machine then loses all of that.
async fn await_sync(connection: &mut MultiplexedConnection) -> Result<(), HostRefusal> {
    for _ in 0..SYNC_LOOKS {
        sleep(SYNC_LOOK_AGAIN).await;
        if !RedisInfo::by(connection).await?.is_syncing() {
            return Ok(());
        }
    }
    let text = format!(
        "a sync of its file has not ended in {} ms (aof_pending_bio_fsync), so a failure of its machine may lose more than may_lose: \
         its disk hangs or is too slow",
        (SYNC_LOOK_AGAIN * SYNC_LOOKS).as_millis()
    );
    Err(HostRefusal::new(StoreErrorKind::Unavailable, text))
}

/// Returns half of the remaining time.
fn half(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()) / 2
}

async fn answers_ping(connection: &mut MultiplexedConnection, limit: Duration) -> bool {
    let command = redis::cmd("PING");
    let ping = connection.send_packed_command(&command);
    matches!(timeout_at(Instant::now() + limit, ping).await, Ok(Ok(_)))
}

/// Parses `SLOT HOST:PORT`. A server that does not know its own name omits the host.
fn moved_to(details: &str) -> Option<Host> {
    let (name, port) = details.split_whitespace().nth(1)?.rsplit_once(':')?;
    (!name.is_empty()).then_some(Host::new(name.to_owned(), port.parse().ok()?))
}

/// Returns the refusal of the first command. Later commands only query its effect; if they fail, it is not
/// affected.
fn refused(first: Option<&Value>) -> Option<ServerError> {
    match first {
        Some(Value::ServerError(said)) => Some(said.clone()),
        _ => None,
    }
}

/// The result of a scan of all keys of a server.
#[derive(Default)]
pub(crate) struct ScannedKeys {
    /// The run id of the server.
    pub(super) server: String,
    /// Those of another program need not be UTF-8.
    pub(crate) keys: Vec<Vec<u8>>,
}

/// Checks that the answer to `WAIT` reports enough replicas.
fn confirmed(answer: Option<Value>, wanted: u64) -> Result<(), RedisFailure> {
    match answer.map(from_redis_value::<u64>) {
        Some(Ok(found)) if found >= wanted => Ok(()),
        Some(Ok(found)) => Err(RedisFailure::NotConfirmed(format!(
            "{found} replicas have confirmed this, wait_replicas requires {wanted}"
        ))),
        Some(Err(error)) => {
            Err(RedisFailure::NotConfirmed(format!("Redis did not wait for replicas: {error}")))
        }
        None => Err(RedisFailure::NotConfirmed("Redis did not wait for replicas".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use snowmint_test_servers::Redis;

    use super::super::connect;
    use super::*;

    fn link(servers: &[&Redis], parameters: &str) -> RedisClient {
        let hosts: Vec<_> = servers.iter().map(|it| it.address().to_string()).collect();
        let mut location = connect::location(&format!("redis://{}?{parameters}", hosts.join(","))).unwrap();
        RedisClient::take(&mut location, None).unwrap()
    }

    /// The end of a time in which a busy machine does anything.
    fn soon() -> Instant {
        Instant::now() + Duration::from_mins(1)
    }

    fn pair() -> (Redis, Redis) {
        let primary = Redis::start();
        let replica = Redis::replica_of(&primary, &[]);
        replica.wait_synced(&primary);
        (primary, replica)
    }

    /// A primary and a replica, and a link on which all has settled that was there when the replica was last
    /// seen.
    async fn settled_pair() -> (Redis, Redis, RedisClient) {
        let (first, second) = pair();
        let link = link(&[&first, &second], "may_lose=0");
        // A busy machine may not answer in time.
        let until = soon();
        while !link.shared.known().history.has_replica() {
            assert!(Instant::now() < until, "the replica is not noted");
            link.shared.connect(soon()).await.unwrap();
        }
        link.acknowledged(Instant::now());
        second.wait_synced(&first);
        (first, second, link)
    }

    /// Goal: a replica that had all that has settled is used after a promotion that nobody saw. Method: it is
    /// promoted and restarted between two times that the hosts are asked, so that its replication id says
    /// nothing.
    #[tokio::test]
    async fn a_promotion_that_nobody_saw_is_followed_where_everything_was() {
        let (first, second, link) = settled_pair().await;
        first.kill9();
        second.promote();
        assert_eq!(second.command(&["CONFIG", "REWRITE"]), "OK");
        second.kill9();
        second.restart();
        let server = link.shared.connect(soon()).await.map_err(|it| it.text).unwrap();
        assert_eq!(server.host.port(), second.port());
    }

    /// Goal: a replica that crashed with its primary is used if it is promoted. Method: it returns as a
    /// replica, asked once, with an id of its own; so does the old primary, which follows it.
    #[tokio::test]
    async fn a_replica_that_crashed_with_its_primary_is_followed() {
        let (first, second, link) = settled_pair().await;
        second.kill9();
        first.kill9();
        second.restart();
        let error = link.shared.connect(soon()).await.err().expect("no primary").text;
        assert!(error.contains("is a read-only replica"), "{error}");
        second.promote();
        first.rejoin(&second);
        first.wait_connected();
        let server = link.shared.connect(soon()).await.map_err(|it| it.text).unwrap();
        assert_eq!(server.host.port(), second.port());
    }

    /// Goal: a call relies on no answer of the hosts that is older than half of `may_lose`, so that a
    /// replaced primary confirms no grant which its successor lacks. Method: a stopped clock, and several
    /// values; a single host has no successor.
    #[tokio::test]
    async fn no_call_relies_on_answers_older_than_half_of_may_lose() {
        let (first, second) = pair();
        for (hosts, may_lose, within) in [
            (&[&first, &second][..], "500ms", 250),
            (&[&first, &second], "1s", 500),
            (&[&first, &second], "2s", 1000),
            (&[&first, &second], "10s", 1000),
            (&[&first, &second], "0", 1000),
            (&[&first], "500ms", 1000),
        ] {
            let link = link(hosts, &format!("may_lose={may_lose}"));
            link.shared.connect(soon()).await.unwrap();
            tokio::time::pause();
            let asked = Instant::now();
            let stands = async |began| {
                if let Some(open) = &mut *link.shared.primary() {
                    // Just used: it is not probed.
                    (open.asked, open.used) = (asked, Instant::now());
                }
                link.shared.stands(began, soon()).await.is_some()
            };
            for (ms, expected) in [(within - 1, true), (1, false)] {
                tokio::time::advance(Duration::from_millis(ms)).await;
                assert_eq!(
                    stands(Instant::now()).await,
                    expected,
                    "{may_lose}, {} hosts, {ms} ms more",
                    hosts.len()
                );
            }
            assert!(stands(asked).await, "{may_lose}: a call that waited until the hosts had answered");
            tokio::time::resume();
        }
    }

    /// Goal: a host that did not answer is asked again the next time, since it may be promoted as soon as it
    /// answers. Method: a replica that hangs, and is promoted after that.
    #[tokio::test]
    async fn a_host_that_was_silent_is_asked_the_next_time() {
        let (first, second) = pair();
        let link = link(&[&first, &second], "");
        second.pause();
        link.shared.connect(soon()).await.unwrap();
        second.resume();
        second.promote();
        let error = link.shared.connect(soon()).await.err().expect("the second primary is not asked").text;
        assert!(error.contains("both accept writes"), "{error}");
    }

    /// Goal: a member that a cluster redirected to is asked until it answers, not just once. Method:
    /// redirections, without the permission to list all members.
    #[test]
    fn a_member_that_a_cluster_named_is_remembered() {
        let host = |port| Host::new("h".to_owned(), port);
        let mut cluster = KnownCluster::default();
        for port in [1, 2, 1] {
            cluster.add_member(host(port));
        }
        assert_eq!(cluster.members, [host(1), host(2)]);
        for port in 1..=100 {
            cluster.add_member(host(port));
        }
        assert_eq!((cluster.members.len(), &cluster.members[0]), (MEMBERS, &host(100)));
    }
}
