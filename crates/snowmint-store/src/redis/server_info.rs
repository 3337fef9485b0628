//! The report of a Redis server: its role, its line of writes, its settings, and its place in a cluster.
//! Two members may claim the same keys, since a member that is cut off from the others does not learn of a failover.
//!
//! Also which primary a store uses, and which replication histories it has left behind. Redis names the history of a primary by
//! `master_replid`; here it is a *line* of writes. A primary that is replaced without knowing it continues its line; its
//! successor starts another.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crc::{CRC_16_XMODEM, Crc};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisError, Value, from_redis_value_ref};
use tokio::time::Instant;

use super::error;
use crate::StoreErrorKind;
use crate::net::Refusal;
use crate::net::url::Host;

/// The report of a server. Cloud servers may hide parts of it, and are not refused for that.
#[derive(Clone)]
pub(super) struct ServerInfo {
    text: String,
    /// `None` outside of clusters.
    member: Option<Member>,
}

impl ServerInfo {
    /// Queries a server.
    pub(super) async fn by(connection: &mut MultiplexedConnection) -> Result<Self, Refusal> {
        let mut info = redis::pipe();
        for section in ["replication", "memory", "persistence", "cluster"] {
            info.cmd("INFO").arg(section);
        }
        let answers = connection.send_packed_commands(&info, 0, info.len()).await;
        let answers = answers.map_err(|error| error::refusal(&error))?;
        let told = answers.iter().filter_map(|answer| from_redis_value_ref::<String>(answer).ok());
        let mut told = Self { text: told.collect::<Vec<_>>().concat(), member: None };
        if told.field("cluster_enabled") == "1" {
            told.member = Some(Member::by(connection).await?);
        }
        Ok(told)
    }

    fn field(&self, name: &str) -> &str {
        let value = self.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(str::trim).unwrap_or_default()
    }

    /// Returns its view as a member of a cluster, in which each primary has other keys.
    pub(super) const fn member(&self) -> Option<&Member> {
        self.member.as_ref()
    }

    /// Returns the line of writes that it extends.
    pub(super) fn line(&self) -> Option<Line> {
        // All zeros where there is none.
        let known = |field| Some(self.field(field)).filter(|it| it.contains(|sign| sign != '0'));
        let known = |field| known(field).unwrap_or_default().to_owned();
        let number = |field| self.field(field).parse().unwrap_or_default();
        let line = Line {
            now: known("master_replid"),
            before: known("master_replid2"),
            branched: number("second_repl_offset"),
            position: number("master_repl_offset"),
        };
        (!line.now.is_empty() && self.field("role") == "master").then_some(line)
    }

    /// Returns what it has as a replica that is connected; `None` for others, and while its file may lack that.
    pub(super) fn replica(&self) -> Option<Replica> {
        let line = self.field("master_replid");
        let position = self.field("master_repl_offset").parse().ok()?;
        let is_connected = self.field("role") == "slave" && self.field("master_link_status") == "up";
        (is_connected && !line.is_empty() && !self.rewrites_its_file())
            .then(|| Replica { line: line.to_owned(), position })
    }

    /// Refuses a server whose answers may be old.
    pub(super) fn check_role(&self) -> Result<(), Refusal> {
        if self.field("role") == "slave" {
            let text = "is a read-only replica; use the primary, or name several hosts, separated by commas";
            return Err(Refusal::new(StoreErrorKind::ReadOnly, text));
        }
        if self.field("loading") == "1" {
            return Err(Refusal::new(StoreErrorKind::Unavailable, "is loading its data"));
        }
        Ok(())
    }

    /// Returns whether its file may lack what it received: a replica that has synced writes all of that to a new file, and returns after a
    /// crash with what it had before. Redis does not say whether a rewrite is that of a sync, so any counts.
    fn rewrites_its_file(&self) -> bool {
        ["aof_rewrite_in_progress", "aof_rewrite_scheduled"].iter().any(|it| self.field(it) == "1")
    }

    /// Refuses a server, which is not in use yet, that was promoted before its data was in its file.
    pub(super) fn check_file(&self, line: &Line) -> Result<(), Refusal> {
        if !line.before.is_empty() && self.rewrites_its_file() {
            let text = "was promoted, and its append-only file may lack its data until it is rewritten \
                (aof_rewrite_in_progress); wait for that";
            return Err(Refusal::new(StoreErrorKind::Unavailable, text));
        }
        Ok(())
    }

    /// Refuses a server whose settings may lose records.
    pub(super) fn check_settings(
        &self,
        must_keep: bool,
        may_lose: Duration,
        copies: u64,
    ) -> Result<(), Refusal> {
        let of_cluster = || self.member()?.complaint(may_lose, copies);
        let complaint = self.complaint(must_keep).or_else(of_cluster);
        complaint.map_or(Ok(()), |text| Err(Refusal::new(StoreErrorKind::Other, text)))
    }

    fn complaint(&self, must_keep: bool) -> Option<String> {
        let policy = self.field("maxmemory_policy");
        if policy.starts_with("allkeys-") && self.field("maxmemory") != "0" {
            return Some(format!(
                "deletes records when memory is short (maxmemory-policy {policy}), which may cause duplicates; \
                 set maxmemory-policy noeviction"
            ));
        }
        if must_keep && self.field("aof_enabled") == "0" {
            let text = "forgets records when it restarts (appendonly no), which may cause duplicates; set appendonly yes and \
                appendfsync always in its configuration file (CONFIG SET alone is lost at a restart), or accept the loss with \
                durable=no";
            return Some(text.to_owned());
        }
        None
    }
}

/// Returns the nodes that a member of a cluster knows, those of its own shard first; none if the user may not query them.
pub(super) async fn members(connection: &mut MultiplexedConnection, asked: &Host) -> Vec<Host> {
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    let Ok(Value::Array(ranges)) = connection.send_packed_command(&slots).await else {
        return Vec::new();
    };
    let mut shards: Vec<Vec<Host>> = ranges.iter().map(|range| shard(range, asked)).collect();
    shards.sort_by_key(|hosts| !hosts.contains(asked));
    let mut members = Vec::new();
    for host in shards.into_iter().flatten() {
        if !members.contains(&host) {
            members.push(host);
        }
    }
    members
}

/// Returns the nodes of one range of slots; they follow its first and last slot.
fn shard(range: &Value, asked: &Host) -> Vec<Host> {
    let Value::Array(range) = range else {
        return Vec::new();
    };
    let node = |node: &Value| {
        let Value::Array(parts) = node else {
            return None;
        };
        let name: Option<String> = from_redis_value_ref(parts.first()?).ok()?;
        let port = from_redis_value_ref(parts.get(1)?).ok()?;
        match name.as_deref() {
            // A node without a name is at the address that was asked.
            None | Some("") => Some(Host::new(asked.name().to_owned(), port)),
            Some("?") => None,
            Some(name) => Some(Host::new(name.to_owned(), port)),
        }
    };
    range.iter().skip(2).filter_map(node).collect()
}

/// The number of slots, each of which is on one node: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>.
pub(crate) const SLOTS: u16 = 16_384;
const CRC16: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);
/// The default of Redis, for servers that hide their settings.
const NODE_TIMEOUT: Duration = Duration::from_secs(15);
/// Loss in a failover beyond what a member acknowledges while it is cut off: a heartbeat, and the time to notice.
const NOTICE: Duration = Duration::from_secs(2);

/// Returns the slot of the hashed part of a key: its hash tag, or all of it.
pub(crate) fn slot(hashed: &str) -> u16 {
    CRC16.checksum(hashed.as_bytes()) % SLOTS
}

/// Returns the part of a key in the first pair of braces, unless that is empty.
pub(crate) fn hash_tag(key: &str) -> Option<&str> {
    let (tag, _) = key.split_once('{')?.1.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// A member of a cluster, as it describes itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Member {
    /// Whether it reaches a majority of the others, and so accepts writes.
    is_up: bool,
    is_primary: bool,
    /// Its configuration epoch: of two members that claim a slot, the one with the greater epoch owns it.
    epoch: u64,
    /// The first and the last slot of each range that it claims.
    slots: Vec<(u16, u16)>,
    /// Number of its replicas, any of which may be promoted.
    replicas: usize,
    node_timeout: Duration,
    /// Time for which it accepts writes without replicas, if that is limited.
    max_lag: Option<Duration>,
}

impl Member {
    /// Queries a member. Its settings may be hidden.
    pub(super) async fn by(connection: &mut MultiplexedConnection) -> Result<Self, Refusal> {
        let mut ask = redis::pipe();
        ask.cmd("CLUSTER").arg("INFO").cmd("CLUSTER").arg("NODES");
        for setting in ["cluster-node-timeout", "min-replicas-*"] {
            ask.cmd("CONFIG").arg("GET").arg(setting);
        }
        let answers = connection.send_packed_commands(&ask, 0, ask.len()).await;
        let answers = answers.map_err(|error| error::refusal(&error))?;
        let mut answers = answers.iter();
        let (info, nodes) = (text(answers.next())?, text(answers.next())?);
        let settings = answers.filter_map(|it| from_redis_value_ref::<HashMap<String, String>>(it).ok());
        let settings: HashMap<_, _> = settings.flatten().collect();
        Self::parse(&info, &nodes, &settings).ok_or_else(|| {
            let text = "is a member of a cluster that does not say which slots it serves (CLUSTER NODES)";
            Refusal::new(StoreErrorKind::Other, text)
        })
    }

    fn parse(info: &str, nodes: &str, settings: &HashMap<String, String>) -> Option<Self> {
        let nodes = || nodes.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let myself =
            nodes().find(|it| it.get(2).is_some_and(|flags| flags.split(',').any(|it| it == "myself")))?;
        let id = *myself.first()?;
        let epoch = myself.get(6)?.parse().ok()?;
        // Slots in brackets are being moved.
        let slots = myself.iter().skip(8).filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some((first.parse().ok()?, last.parse().ok()?))
        });
        let setting = |name: &str| settings.get(name).and_then(|it| it.parse::<u64>().ok());
        let least = |name| setting(name).filter(|it| *it > 0);
        Some(Self {
            is_up: !info.lines().any(|line| line.trim() == "cluster_state:fail"),
            is_primary: myself.get(2).is_some_and(|flags| flags.split(',').any(|it| it == "master")),
            epoch,
            slots: slots.collect(),
            replicas: nodes().filter(|it| it.get(3) == Some(&id)).count(),
            node_timeout: setting("cluster-node-timeout").map_or(NODE_TIMEOUT, Duration::from_millis),
            max_lag: least("min-replicas-to-write")
                .and_then(|_| least("min-replicas-max-lag"))
                .map(Duration::from_secs),
        })
    }

    /// Returns the epoch in which this primary owns a slot, or any epoch if no slot is given; otherwise the reason not to use it.
    pub(super) fn claims(&self, slot: Option<u16>) -> Result<u64, Refusal> {
        let refused = |text: &str| Err(Refusal::new(StoreErrorKind::Unavailable, text));
        if !self.is_up {
            return refused(
                "is cut off from its cluster, or some slots have no node (cluster_state fail); see `redis-cli cluster info`",
            );
        }
        if slot.is_some_and(|slot| !self.has(slot)) {
            return refused("is a member of the cluster that holds other keys");
        }
        Ok(self.epoch)
    }

    /// Returns whether it reaches the others and is a primary of other slots than this. A member that a failover replaced is not:
    /// it becomes a replica in the same step in which it loses its slots.
    pub(super) fn holds_others(&self, slot: Option<u16>) -> bool {
        self.is_up && self.is_primary && slot.is_some_and(|slot| !self.has(slot))
    }

    fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }

    /// Returns what is wrong with the loss that a user has stated, if each write waits for this many replicas.
    ///
    /// A primary that is cut off from the other members acknowledges writes until `cluster-node-timeout` has passed. The promoted
    /// replica lacks those writes.
    pub(super) fn complaint(&self, may_lose: Duration, copies: u64) -> Option<String> {
        let has_all = usize::try_from(copies).is_ok_and(|copies| copies >= self.replicas);
        let lost = self.max_lag.map_or(self.node_timeout, |lag| lag.min(self.node_timeout)) + NOTICE;
        (!has_all && may_lose < lost).then(|| {
            format!(
                "may acknowledge writes for {} ms after it is cut off from its cluster (cluster-node-timeout), which a \
                 promoted replica does not have; invalid may_lose={}ms: expected at least {}ms; or set \
                 min-replicas-to-write 1 and min-replicas-max-lag 1 on every node, and may_lose=3s",
                self.node_timeout.as_millis(),
                may_lose.as_millis(),
                lost.as_millis()
            )
        })
    }
}

/// Returns the text of an answer, or why there is none, such as a missing permission.
fn text(answer: Option<&Value>) -> Result<String, Refusal> {
    let answer = answer.unwrap_or(&Value::Nil);
    if let Value::ServerError(said) = answer {
        return Err(error::refusal(&RedisError::from(said.clone())));
    }
    String::from_redis_value_ref(answer)
        .map_err(|error| Refusal::new(StoreErrorKind::Other, error.to_string()))
}

/// Number of positions to remember within the time that the newest writes may be lost.
const SAMPLES: u32 = 8;
/// Maximum number of positions to remember, also if nothing is acknowledged.
const MOST_SAMPLES: usize = 2 * SAMPLES as usize;

/// The line of writes of one server.
///
/// Redis names a line at random at each start and each promotion, so an old name can return only with a process that has been
/// running since then.
#[derive(Clone, Default, Debug)]
pub(super) struct Line {
    /// `master_replid`.
    pub(super) now: String,
    /// `master_replid2`: the line that it continues, as after a promotion; empty if none.
    pub(super) before: String,
    /// `second_repl_offset`: the first position that it does not share with the line before.
    pub(super) branched: u64,
    /// `master_repl_offset`: its current position. A line continues the positions of the line before.
    pub(super) position: u64,
}

/// What a replica has that is connected to its primary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Replica {
    /// The line that it follows: its `master_replid`.
    pub(super) line: String,
    /// How far it has that line.
    pub(super) position: u64,
}

/// What a store knows of its primaries.
#[derive(Default, Debug)]
pub(super) struct History {
    /// The primary in use, and its line.
    primary: Option<(Host, Used)>,
    left: Vec<Used>,
    /// Whether its host has reported that it is no longer a primary.
    is_gone: bool,
    /// The replicas that have answered in this round.
    seen: Vec<(Host, Replica)>,
    /// Whether a server that continues the line in use was seen, and the two have not been one again since.
    is_doubted: bool,
}

/// A line that is or was used.
#[derive(Default, Debug)]
struct Used {
    name: String,
    /// Its positions, and the times at which they were reported.
    samples: VecDeque<(Instant, u64)>,
    /// The position that no failover may lose: the line had reached it `may_lose` before a call that it acknowledged.
    settled: Option<u64>,
    /// The hosts that were replicas of it lately.
    replicas: Vec<NotedReplica>,
}

/// A replica of the primary in use, when it was last seen connected.
#[derive(Debug)]
struct NotedReplica {
    host: Host,
    position: u64,
    seen: Instant,
}

impl Used {
    fn new(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    /// Records the position of the line. Nothing relies on it yet, since a primary that rejects writes still increases it.
    fn note(&mut self, position: u64, heard: Instant, may_lose: Duration) {
        let is_due =
            |(last, _): &(Instant, u64)| heard.saturating_duration_since(*last) >= may_lose / SAMPLES;
        // The oldest stay, since they settle first.
        if self.samples.len() < MOST_SAMPLES && self.samples.back().is_none_or(is_due) {
            self.samples.push_back((heard, position));
        }
    }

    /// Notes the replicas of this line that were seen in a round. One that is missing in it may be down, and lacks more and more
    /// that settles; it is forgotten after half of `may_lose`, since the other half may pass until the primary dies.
    fn note_replicas(&mut self, seen: &[(Host, Replica)], heard: Instant, may_lose: Duration) {
        let is_seen = |host: &Host| seen.iter().any(|(at, _)| at == host);
        self.replicas
            .retain(|it| !is_seen(&it.host) && heard.saturating_duration_since(it.seen) < may_lose / 2);
        let of_this_line = seen.iter().filter(|(_, replica)| replica.line == self.name);
        self.replicas.extend(of_this_line.map(|(host, replica)| NotedReplica {
            host: host.clone(),
            position: replica.position,
            seen: heard,
        }));
    }

    /// Returns whether a host was a replica with all that has settled until the primary was last heard.
    fn was_on(&self, host: &Host) -> bool {
        let had_all = |it: &NotedReplica| self.settled.is_none_or(|settled| it.position >= settled);
        self.replicas.iter().any(|it| it.host == *host && had_all(it))
    }
}

impl History {
    /// Starts a round of asking all hosts.
    pub(super) fn begin(&mut self) {
        self.is_gone = false;
        self.seen.clear();
    }

    /// Records that a host is a replica, or that its port is closed. An unresponsive host may still be a primary.
    pub(super) fn not_primary(&mut self, host: &Host) {
        self.is_gone |= self.primary.as_ref().is_some_and(|(at, _)| at == host);
    }

    /// Notes what a replica has.
    pub(super) fn follows(&mut self, host: &Host, replica: Replica) {
        self.seen.retain(|(at, _)| at != host);
        self.seen.push((host.clone(), replica));
    }

    /// Returns whether a replica of the primary in use was noted.
    #[cfg(test)]
    pub(super) fn has_replica(&self) -> bool {
        self.primary.as_ref().is_some_and(|(_, used)| !used.replicas.is_empty())
    }

    /// Returns whether a primary was used, and its host has said that it is none any more.
    pub(super) const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Returns whether a primary is in use, by which others can be judged.
    pub(super) const fn is_known(&self) -> bool {
        self.primary.is_some()
    }

    /// Returns the line of the primary in use.
    pub(super) fn line(&self) -> Option<&str> {
        self.primary.as_ref().map(|(_, line)| &*line.name)
    }

    /// Returns whether a server that accepts writes may be the primary, or a second one; otherwise the reason.
    ///
    /// One that continues a line of ours may. Once there is such a server beside the primary in use, any other counts as a second
    /// one too, since nobody knows which is the right one.
    pub(super) fn judge(&mut self, host: &Host, line: &Line) -> Result<(), String> {
        let Some((at, Used { name: now, .. })) = &self.primary else {
            return Ok(());
        };
        if self.was_left(&line.now) {
            return Err(format!(
                "is a primary that another has replaced (replication id {}) and lacks later writes; make it a \
                 replica of {at}",
                line.now
            ));
        }
        self.is_doubted |= self.continues(line) && *now != line.now;
        if self.is_doubted { Ok(()) } else { self.check_origin(host, line) }
    }

    /// Refuses a primary whose line shows nothing of what it has, unless it had everything: the primary in use after a restart, a
    /// replica of the primary in use to its end, or a server that the primary in use now follows. A replica returns from a crash as
    /// a replica, so it was promoted.
    ///
    /// Any other may be an old primary that came back before it becomes a replica. That the one in use is gone, as during a
    /// restart, does not make the other one right.
    pub(super) fn check_origin(&self, host: &Host, line: &Line) -> Result<(), String> {
        let Some((at, used)) = &self.primary else {
            return Ok(());
        };
        let is_related = used.name == line.now || self.continues(line);
        let had_all =
            || at == host || (self.is_gone || self.is_doubted) && used.was_on(host) || self.is_heir(line);
        if is_related || had_all() {
            return Ok(());
        }
        Err(format!(
            "is a primary that does not continue {at} (replication id {}), so it may lack writes; start {at}, or make this \
             server a replica of the right primary; if it is the right one, restart the nodes, after `snowmint store recover` \
             if it lacks writes",
            used.name
        ))
    }

    /// Returns whether the primary in use became a replica of this one, which was a replica with all that has settled.
    ///
    /// The two may have no id in common: Redis names a line again when the first replica connects, and after an hour without any. It
    /// continues the positions. Position 0 says nothing: some servers count only while they have replicas.
    fn is_heir(&self, line: &Line) -> bool {
        let Some((at, used)) = &self.primary else {
            return false;
        };
        let had_all = match used.settled {
            Some(settled) => (1..line.branched).contains(&settled),
            // Nobody relies on anything, as at a start.
            None => self.left.iter().all(|it| it.settled.is_none()),
        };
        let is_followed = self.seen.iter().any(|(host, replica)| host == at && replica.line == line.now);
        is_followed && !line.before.is_empty() && had_all
    }

    fn was_left(&self, name: &str) -> bool {
        self.left.iter().any(|it| it.name == name)
    }

    /// Returns whether a line left one of ours.
    fn continues(&self, line: &Line) -> bool {
        self.line() == Some(&line.before) || self.was_left(&line.before)
    }

    /// Returns what the only server that accepts writes lacks of what has settled; `None` if nothing is known of that.
    ///
    /// Only called once it is certain that it is the only one: until then it counts as a second primary. An unrelated line says
    /// nothing, as after a restart; see [`check_origin`](Self::check_origin).
    pub(super) fn lacks(&self, line: &Line) -> Option<String> {
        let (_, now) = self.primary.as_ref().filter(|(_, now)| now.name != line.now)?;
        let mut lines = self.left.iter().chain([now]);
        let before = lines.find(|it| it.name == line.before)?;
        let lost = |at: u64, name: &str| {
            format!(
                "has the writes of replication id {} up to {} only, and {at} of {name} was seen longer ago than may_lose: \
                 it lost writes in a failover; return to the server that has them, or run `snowmint store recover` \
                 before you restart nodes",
                line.before,
                line.branched.saturating_sub(1)
            )
        };
        match before.settled {
            Some(settled) if line.branched <= settled => return Some(lost(settled, &before.name)),
            _ => {}
        }
        // It left the line before the later lines began.
        lines.find_map(|later| Some(lost(later.settled?, &later.name)))
    }

    /// Continues with a primary that was judged and lacks nothing.
    pub(super) fn accept(&mut self, host: &Host, line: Line, heard: Instant, may_lose: Duration) {
        let mut used = match self.primary.take() {
            Some((_, used)) if used.name == line.now => used,
            before => {
                let left = |used| Used { samples: VecDeque::new(), replicas: Vec::new(), ..used };
                self.left.extend(before.map(|(_, used)| left(used)));
                Used::new(line.now)
            }
        };
        used.note(line.position, heard, may_lose);
        used.note_replicas(&self.seen, heard, may_lose);
        self.primary = Some((host.clone(), used));
        self.is_doubted = false;
    }

    /// Continues with a member of a cluster. The cluster itself decides which member is the primary, and keys that moved to
    /// another member may return to an earlier one.
    pub(super) fn accept_member(&mut self, host: &Host, line: Line, heard: Instant, may_lose: Duration) {
        self.accept(host, line, heard, may_lose);
        self.left.clear();
    }

    /// Records that the primary acknowledged a write that was sent at this time, with its replicas if they are required: writes
    /// that were acknowledged long enough before have settled.
    pub(super) fn acknowledged(&mut self, sent: Instant, may_lose: Duration) {
        let Some((_, used)) = &mut self.primary else {
            return;
        };
        while let Some((heard, old)) = used.samples.front().copied()
            && sent.checked_duration_since(heard).is_some_and(|before| before >= may_lose)
        {
            used.settled = used.settled.max(Some(old));
            used.samples.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "a1 127.0.0.1:1@11,,tls-port=0 myself,master - 0 0 7 connected 0-5460 9000 [93-<-b1]\n\
        b1 :2@12 master,fail? - 0 1 8 connected 5461-8999\n\
        c1 127.0.0.1:3@13 slave a1 0 1 7 connected\n";

    fn member(state: &str, settings: &[(&str, &str)]) -> Member {
        let settings =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Member::parse(&format!("cluster_state:{state}\r\ncluster_my_epoch:7\r\n"), NODES, &settings).unwrap()
    }

    #[test]
    fn a_member_tells_what_it_owns() {
        let up = member("ok", &[]);
        for slot in [None, Some(0), Some(5460), Some(9000)] {
            assert_eq!(up.claims(slot).unwrap(), 7, "{slot:?}");
        }
        for slot in [93 + 5461, 9001] {
            assert_eq!(up.claims(Some(slot)).unwrap_err().kind, StoreErrorKind::Unavailable);
        }
        for (slot, expected) in [(None, false), (Some(9000), false), (Some(9001), true)] {
            assert_eq!(up.holds_others(slot), expected, "{slot:?}");
            assert!(!member("fail", &[]).holds_others(slot), "{slot:?}");
        }
        let replica =
            NODES.replace("myself,master - 0 0 7 connected 0-5460 9000", "myself,slave b1 0 0 8 connected");
        let replica = Member::parse("cluster_state:ok", &replica, &HashMap::new()).unwrap();
        assert!(!replica.holds_others(Some(0)), "a failover replaced it");
        let down = member("fail", &[]).claims(Some(0)).unwrap_err();
        assert!(down.text.contains("cluster_state fail"), "{down:?}");
        assert_eq!(Member::parse("", "a1 :1@2 master - 0 0 7 connected", &HashMap::new()), None);
    }

    #[test]
    fn a_loss_covers_a_cut() {
        let complains = |settings: &[_], ms, copies| {
            member("ok", settings).complaint(Duration::from_millis(ms), copies).is_some()
        };
        for (settings, enough) in [
            (&[][..], 17_000),
            (&[("cluster-node-timeout", "1000")][..], 3000),
            (&[("min-replicas-to-write", "1"), ("min-replicas-max-lag", "4")], 6000),
            (&[("min-replicas-to-write", "1"), ("min-replicas-max-lag", "0")], 17_000),
            (&[("min-replicas-to-write", "0"), ("min-replicas-max-lag", "4")], 17_000),
            (&[("min-replicas-to-write", "1"), ("min-replicas-max-lag", "40")], 17_000),
        ] {
            assert!(!complains(settings, enough, 0) && complains(settings, enough - 1, 0), "{settings:?}");
        }
        assert!(!complains(&[], 0, 1), "its only replica has every write");
        let alone = Member { replicas: 0, ..member("ok", &[]) };
        assert_eq!(alone.complaint(Duration::ZERO, 0), None);
    }

    #[test]
    fn a_server_that_forgets_is_refused() {
        let told = |text: &str| ServerInfo { text: text.to_owned(), member: None };
        let refused = |text| told(text).complaint(true).is_some();
        assert!(!refused(""));
        assert!(!refused("role:master\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:1\r\n"));
        assert!(!refused("maxmemory:9\r\nmaxmemory_policy:volatile-lru\r\n"));
        assert!(refused("maxmemory:9\r\nmaxmemory_policy:allkeys-lru\r\n"));
        assert!(refused("aof_enabled:0\r\n"));
        assert!(told("aof_enabled:0\r\n").complaint(false).is_none());
        let role = |text| told(text).check_role().err().map(|it| it.kind);
        assert_eq!(role("role:slave\r\naof_enabled:0\r\n"), Some(StoreErrorKind::ReadOnly));
        assert_eq!(role("role:master\r\nloading:1\r\n"), Some(StoreErrorKind::Unavailable));
        assert_eq!(role("role:master\r\nloading:0\r\n"), None);
    }

    #[test]
    fn only_a_primary_has_a_line() {
        let line = |text: &str| ServerInfo { text: text.to_owned(), member: None }.line();
        let found = line(
            "role:master\r\nmaster_replid:a0\r\nmaster_replid2:b0\r\nmaster_repl_offset:9\r\nsecond_repl_offset:7\r\n",
        )
        .unwrap();
        assert_eq!((&*found.now, &*found.before, found.branched, found.position), ("a0", "b0", 7, 9));
        let first = line("role:master\r\nmaster_replid:a\r\nmaster_replid2:000\r\nsecond_repl_offset:-1\r\n")
            .unwrap();
        assert_eq!((&*first.before, first.branched), ("", 0));
        for other in
            ["role:slave\r\nmaster_replid:a\r\n", "role:master\r\nmaster_replid:\r\n", "master_replid:a\r\n"]
        {
            assert!(line(other).is_none(), "{other}");
        }
    }

    #[test]
    fn only_a_connected_replica_with_its_data_on_disk_tells_what_it_has() {
        let told = |text: &str| ServerInfo { text: text.to_owned(), member: None }.replica();
        let replica = "role:slave\r\nmaster_link_status:up\r\nmaster_replid:a\r\nmaster_repl_offset:9\r\n\
            aof_rewrite_in_progress:0\r\n";
        assert_eq!(told(replica), Some(Replica { line: "a".to_owned(), position: 9 }));
        for other in [
            replica.replace("slave", "master"),
            replica.replace("progress:0", "progress:1"),
            format!("{replica}aof_rewrite_scheduled:1\r\n"),
            replica.replace("up", "down"),
            replica.replace("replid:a", "replid:"),
            replica.replace("offset:9", "offset:-1"),
        ] {
            assert_eq!(told(&other), None, "{other}");
        }
    }

    #[test]
    fn a_cluster_tells_its_nodes_in_several_ways() {
        let text = |text: &str| Value::BulkString(text.into());
        let node = |name: Value, port| {
            Value::Array(vec![name, Value::Int(port), text("id"), Value::Array(Vec::new())])
        };
        let nodes = [node(text("10.0.0.2"), 2), node(Value::Nil, 3), node(text(""), 4), node(text("?"), 5)];
        let range = Value::Array([Value::Int(0), Value::Int(99)].into_iter().chain(nodes).collect());
        let found = shard(&range, &Host::new("10.0.0.1".to_owned(), 1));
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.2:2", "10.0.0.1:3", "10.0.0.1:4"]);
        assert!(shard(&Value::Nil, &Host::new("h".to_owned(), 1)).is_empty());
    }

    fn host(name: &str) -> Host {
        Host::new(name.to_owned(), 1)
    }

    fn line(now: &str, before: &str) -> Line {
        Line { now: now.to_owned(), before: before.to_owned(), ..Line::default() }
    }

    const MAY_LOSE: Duration = Duration::from_secs(2);

    fn accept(history: &mut History, at: &str, line: Line) {
        history.accept(&host(at), line, Instant::now(), MAY_LOSE);
    }

    /// Returns a line that has reached `position` and left the line before at `branched`.
    fn grown(now: &str, before: &str, branched: u64, position: u64) -> Line {
        Line { branched, position, ..line(now, before) }
    }

    /// Returns whether a server may be the primary, and uses it if so.
    fn used(history: &mut History, at: &str, now: &str, before: &str) -> bool {
        let accepted = history.judge(&host(at), &line(now, before)).is_ok();
        if accepted {
            accept(history, at, line(now, before));
        }
        accepted
    }

    /// A store that went from `a` on host A to `b` on host B, which was promoted.
    fn failed_over() -> History {
        let mut history = History::default();
        for (at, now, before) in [("A", "a", ""), ("A", "a", ""), ("B", "b", "a")] {
            history.begin();
            assert!(used(&mut history, at, now, before));
        }
        history
    }

    #[test]
    fn a_line_that_was_left_is_never_used_again() {
        let mut history = failed_over();
        let error = history.judge(&host("A"), &line("a", "")).unwrap_err();
        assert!(error.contains("another has replaced") && error.contains("replica of B:1"), "{error}");
        history.not_primary(&host("B"));
        assert!(!used(&mut history, "A", "a", ""), "not even when it is all there is");
        assert!(used(&mut history, "A", "c", "b"));
        assert!(!used(&mut history, "B", "b", "a"));
    }

    #[test]
    fn a_second_primary_is_seen_unless_it_has_nothing_to_do_with_the_first() {
        let judged =
            |history: &mut History, at, now, before| history.judge(&host(at), &line(now, before)).is_ok();
        assert!(judged(&mut History::default(), "A", "x", ""), "nobody knows which is the right one");
        let mut history = failed_over();
        assert!(!judged(&mut history, "A", "x", ""), "an old primary that was restarted");
        assert!(judged(&mut history, "B", "b", "a") && !history.is_doubted);
        assert!(judged(&mut history, "B", "x", ""), "the primary was restarted");
        assert!(judged(&mut history, "C", "c", "a"), "another has continued a line of ours");
        assert!(judged(&mut history, "D", "x", ""), "nobody knows any more");
        accept(&mut history, "B", line("b", "a"));
        assert!(!judged(&mut history, "D", "x", ""));
        assert!(judged(&mut history, "C", "c", "b"), "another was promoted");
    }

    fn replica(line: &str, position: u64) -> Replica {
        Replica { line: line.to_owned(), position }
    }

    /// Asks the primary in use, and one of its replicas.
    fn hear(history: &mut History, at: &str, line: Line, other: &str, replica: Replica) {
        history.begin();
        history.follows(&host(other), replica);
        accept(history, at, line);
    }

    /// Returns whether a server may be the primary once it is certain that it is the only one.
    fn may_be_used(history: &mut History, at: &str, line: &Line) -> bool {
        history.judge(&host(at), line).is_ok() && history.check_origin(&host(at), line).is_ok()
    }

    /// Goal: a line that shows nothing is used only where the host had everything. Method: a promotion and a restart that nobody
    /// saw, on a host that was a replica, of an old primary, and on one that was never heard of; the primary in use is gone.
    #[test]
    fn a_line_of_its_own_may_follow_a_primary_that_is_gone() {
        let stranger = line("x", "");
        let mut history = failed_over();
        history.not_primary(&host("B"));
        assert!(history.is_gone());
        for at in ["A", "C"] {
            let error = history.judge(&host(at), &stranger).unwrap_err();
            assert!(error.contains("does not continue B:1 (replication id b)"), "{at}: {error}");
        }
        assert!(may_be_used(&mut history, "B", &stranger), "a restart");

        let mut history = failed_over();
        hear(&mut history, "B", line("b", "a"), "A", replica("x", 9));
        history.not_primary(&host("B"));
        assert!(!may_be_used(&mut history, "A", &stranger), "it has not synced");
        hear(&mut history, "B", line("b", "a"), "A", replica("b", 9));
        history.not_primary(&host("B"));
        assert!(!may_be_used(&mut history, "C", &stranger));
        history.begin();
        assert!(!may_be_used(&mut history, "A", &stranger), "what was gone was asked before");
        history.not_primary(&host("A"));
        assert!(!history.is_gone() && !may_be_used(&mut history, "A", &stranger));
        history.not_primary(&host("B"));
        assert!(may_be_used(&mut history, "A", &stranger));
        accept(&mut history, "A", stranger);
        history.not_primary(&host("A"));
        assert!(!may_be_used(&mut history, "B", &line("z", "")), "it has nothing of x");
    }

    /// Goal: an old primary counts as a second primary while nobody knows the right one, and is never used. Method: a promotion
    /// that is seen beside the primary in use, and then a server that has nothing of either.
    #[test]
    fn a_line_of_its_own_is_a_second_primary_but_not_the_only_one() {
        let mut history = failed_over();
        hear(&mut history, "B", line("b", "a"), "C", replica("b", 9));
        assert!(history.judge(&host("C"), &line("c", "b")).is_ok());
        let stranger = line("x", "");
        assert!(history.judge(&host("A"), &stranger).is_ok(), "it counts");
        assert!(history.check_origin(&host("A"), &stranger).is_err());
        assert!(may_be_used(&mut history, "C", &line("d", "")), "it was promoted, and restarted since");
    }

    /// Goal: a planned switchover to a replica that connected a moment before is followed, and no server without the data. Method:
    /// the primary in use follows another, which was a replica with more and with less than has settled, or was none.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_the_primary_follows_is_used_if_it_has_everything() {
        let mut history = History::default();
        accept(&mut history, "A", grown("a", "", 0, 90));
        tokio::time::advance(MAY_LOSE).await;
        let promoted = |branched| grown("y", "z", branched, 100);
        history.not_primary(&host("A"));
        assert!(!may_be_used(&mut history, "B", &promoted(91)), "nobody follows it");
        history.follows(&host("A"), replica("y", 95));
        assert!(may_be_used(&mut history, "B", &promoted(1)), "nothing has settled");
        history.acknowledged(Instant::now(), MAY_LOSE);
        for (line, expected) in [
            (promoted(91), true),
            (promoted(90), false),
            (grown("y", "", 0, 100), false),
            (grown("x", "z", 91, 100), false),
        ] {
            assert_eq!(may_be_used(&mut history, "B", &line), expected, "{line:?}");
        }
        history.begin();
        history.not_primary(&host("A"));
        assert!(!may_be_used(&mut history, "B", &promoted(91)), "that was before");
        accept(&mut history, "A", line("x", ""));
        history.follows(&host("A"), replica("y", 95));
        assert!(!may_be_used(&mut history, "B", &promoted(91)), "what has settled before the restart counts");
    }

    /// Goal: a replica is no place for a line that shows nothing if it lacked what has settled when it was last seen. Method: a
    /// line that grows by 10, and a replica that has all, not all, and all again.
    #[tokio::test(start_paused = true)]
    async fn a_replica_that_lagged_has_not_everything() {
        let mut history = History::default();
        for (position, of_replica, expected) in [(90, 90, true), (100, 99, false), (110, 110, true)] {
            hear(&mut history, "A", grown("a", "", 0, position), "B", replica("a", of_replica));
            tokio::time::advance(MAY_LOSE).await;
            history.acknowledged(Instant::now(), MAY_LOSE);
            history.not_primary(&host("A"));
            assert_eq!(may_be_used(&mut history, "B", &line("x", "")), expected, "{position}");
        }
    }

    /// Goal: a replica that was down before the primary is no place for a line that shows nothing, though little has settled since.
    /// Method: rounds in which it is missing, up to half of `may_lose` and beyond.
    #[tokio::test(start_paused = true)]
    async fn a_replica_that_went_before_its_primary_is_not_followed() {
        let mut history = History::default();
        hear(&mut history, "A", line("a", ""), "B", replica("a", 0));
        let half = u64::try_from(MAY_LOSE.as_millis() / 2).unwrap();
        for (wait_ms, expected) in [(half - 1, true), (1, false)] {
            tokio::time::advance(Duration::from_millis(wait_ms)).await;
            history.begin();
            accept(&mut history, "A", line("a", ""));
            history.not_primary(&host("A"));
            assert_eq!(may_be_used(&mut history, "B", &line("x", "")), expected, "{wait_ms} ms later");
        }
    }

    /// Goal: what was heard while a call ran has not settled by its answer. Method: no loss is allowed, so that any time before the
    /// call is enough.
    #[tokio::test(start_paused = true)]
    async fn a_position_that_was_heard_after_a_call_began_has_not_settled() {
        let mut history = History::default();
        let sent = Instant::now();
        tokio::time::advance(Duration::from_millis(1)).await;
        history.accept(&host("A"), grown("a", "", 0, 90), Instant::now(), Duration::ZERO);
        history.acknowledged(sent, Duration::ZERO);
        assert_eq!(history.lacks(&grown("b", "a", 80, 80)), None);
        history.acknowledged(Instant::now(), Duration::ZERO);
        assert!(history.lacks(&grown("b", "a", 80, 80)).is_some());
    }

    /// Goal: a failover that lost more than it may is refused, and no other. Method: a line that grows by 10 per second, and
    /// successors that left it earlier and later; `may_lose` is 2 s.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_lost_what_has_settled_is_refused() {
        let mut history = History::default();
        for second in 0..10_u64 {
            accept(&mut history, "A", grown("a", "", 0, second * 10));
            history.acknowledged(Instant::now(), MAY_LOSE);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        // The last report said 90; the position 2 s before was 70.
        for branched in [71, 80, 91] {
            assert_eq!(history.lacks(&grown("b", "a", branched, 200)), None, "{branched}");
        }
        for branched in [1, 70] {
            let lack = history.lacks(&grown("b", "a", branched, 200)).unwrap();
            assert!(
                lack.contains("lost writes in a failover") && lack.contains("70 of a"),
                "{branched}: {lack}"
            );
        }
        assert_eq!(history.lacks(&grown("x", "", 0, 0)), None, "a restart");
        accept(&mut history, "B", grown("b", "a", 91, 91));
        // None of that has settled.
        assert_eq!(history.lacks(&grown("c", "a", 71, 71)), None);
        tokio::time::advance(Duration::from_secs(2)).await;
        accept(&mut history, "B", grown("b", "a", 91, 95));
        history.acknowledged(Instant::now(), MAY_LOSE);
        assert_eq!(history.lacks(&grown("b", "a", 91, 95)), None, "the one that is used");
        let lack = history.lacks(&grown("c", "a", 91, 300)).unwrap();
        assert!(lack.contains("id a up to 90 only, and 91 of b"), "{lack}");
        assert_eq!(history.lacks(&grown("c", "b", 92, 92)), None);
        assert!(history.lacks(&grown("c", "b", 91, 91)).is_some());
    }

    /// Goal: positions that a primary adds while it acknowledges nothing may be lost. Method: since the last call, a line grows
    /// by 10 per second through heartbeats alone, for much longer than `may_lose`.
    #[tokio::test(start_paused = true)]
    async fn only_an_acknowledged_call_settles_what_was_there() {
        let mut history = History::default();
        history.acknowledged(Instant::now(), MAY_LOSE);
        let begun = Instant::now();
        for second in 0..30_u64 {
            accept(&mut history, "A", grown("a", "", 0, second * 10));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(history.lacks(&grown("b", "a", 1, 1)), None, "nobody was promised anything");
        // The answer came late; the time at which the call was sent counts.
        history.acknowledged(begun + Duration::from_millis(4999), MAY_LOSE);
        assert!(history.lacks(&grown("b", "a", 20, 20)).is_some());
        assert_eq!(history.lacks(&grown("b", "a", 21, 21)), None);
        // Of the positions reported during the pause, the oldest ones were kept.
        assert_eq!(history.primary.as_ref().map(|(_, used)| used.samples.len()), Some(MOST_SAMPLES - 3));
        history.acknowledged(Instant::now(), MAY_LOSE);
        assert!(history.lacks(&grown("b", "a", 150, 150)).is_some());
        assert_eq!(history.lacks(&grown("b", "a", 151, 151)), None);
    }
}
