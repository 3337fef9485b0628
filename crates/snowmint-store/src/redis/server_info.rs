//! The report of a Redis server: its role, its line of writes, its settings, and its place in a cluster. Two
//! members may claim the same keys, since a member that is cut off from the others does not learn of a
//! failover.
//!
//! Redis names the history of a primary by `master_replid`; here it is a *line* of writes. A primary that is
//! replaced without knowing it continues its line; its successor starts another.

use std::collections::HashMap;
use std::time::Duration;

use crc::{CRC_16_XMODEM, Crc};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisError, Value, from_redis_value_ref};

use super::error;
use crate::StoreErrorKind;
use crate::net::HostRefusal;
use crate::net::url::{Host, MAX_LOSS};

/// The report of a server. Cloud servers may hide parts of it, and are not refused for that.
#[derive(Clone)]
pub(super) struct RedisInfo {
    text: String,
    /// When it syncs its file.
    syncs: Syncs,
    /// `None` outside of clusters.
    member: Option<ClusterMember>,
}

impl RedisInfo {
    /// Queries a server.
    pub(super) async fn by(connection: &mut MultiplexedConnection) -> Result<Self, HostRefusal> {
        let mut info = redis::pipe();
        let sections = ["server", "replication", "memory", "persistence", "cluster"];
        for section in sections {
            info.cmd("INFO").arg(section);
        }
        for setting in [SYNC, NO_SYNC_DURING_REWRITES] {
            info.cmd("CONFIG").arg("GET").arg(setting);
        }
        let answers = connection.send_packed_commands(&info, 0, info.len()).await;
        let answers = answers.map_err(|error| error::refusal(&error))?;
        let (told, settings) = answers.split_at(sections.len().min(answers.len()));
        let told = told.iter().filter_map(|answer| from_redis_value_ref::<String>(answer).ok());
        let settings =
            settings.iter().filter_map(|it| from_redis_value_ref::<HashMap<String, String>>(it).ok());
        let syncs = Syncs::parse(&settings.flatten().collect());
        let mut told = Self { text: told.collect::<Vec<_>>().concat(), syncs, member: None };
        if told.field("cluster_enabled") == "1" {
            told.member = Some(ClusterMember::by(connection).await?);
        }
        Ok(told)
    }

    fn field(&self, name: &str) -> &str {
        let value = self.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(str::trim).unwrap_or_default()
    }

    /// Returns its view as a member of a cluster, in which each primary has other keys.
    pub(super) const fn member(&self) -> Option<&ClusterMember> {
        self.member.as_ref()
    }

    /// Returns the line of writes that it extends.
    pub(super) fn line(&self) -> Option<ReplicationLine> {
        // All zeros where there is none.
        let known = |field| Some(self.field(field)).filter(|it| it.contains(|sign| sign != '0'));
        let known = |field| known(field).unwrap_or_default().to_owned();
        let number = |field| self.field(field).parse().unwrap_or_default();
        let line = ReplicationLine {
            now: known("master_replid"),
            before: known("master_replid2"),
            branched: number("second_repl_offset"),
            position: number("master_repl_offset"),
        };
        (!line.now.is_empty() && self.field("role") == "master").then_some(line)
    }

    /// Returns what it has as a replica that is connected; `None` for others, and while its file may lack
    /// that.
    pub(super) fn replica(&self) -> Option<Replica> {
        let line = self.field("master_replid");
        let position = self.field("master_repl_offset").parse().ok()?;
        let is_connected = self.field("role") == "slave" && self.field("master_link_status") == "up";
        (is_connected && !line.is_empty() && !self.rewrites_its_file())
            .then(|| Replica { line: line.to_owned(), position })
    }

    /// Refuses a server whose answers may be old.
    pub(super) fn check_role(&self) -> Result<(), HostRefusal> {
        match self.field("role") {
            "slave" => {
                let text =
                    "is a read-only replica; use the primary, or name several hosts, separated by commas";
                return Err(HostRefusal::new(StoreErrorKind::ReadOnly, text));
            }
            "" | "master" => {}
            // `active-replica` of KeyDB.
            role => {
                let text = format!(
                    "accepts writes beside other servers that do (role {role}), which would produce duplicates; turn \
                     active-replica and multi-master off"
                );
                return Err(HostRefusal::new(StoreErrorKind::Other, text));
            }
        }
        if self.field("loading") == "1" {
            return Err(HostRefusal::new(StoreErrorKind::Unavailable, "is loading its data"));
        }
        Ok(())
    }

    /// Returns whether its file may lack what it received: a replica that has synced writes all of that to a
    /// new file, and returns after a crash with what it had before. Redis does not say whether a rewrite is
    /// that of a sync, so any counts.
    fn rewrites_its_file(&self) -> bool {
        ["aof_rewrite_in_progress", "aof_rewrite_scheduled"].iter().any(|it| self.field(it) == "1")
    }

    /// Refuses a server, which is not in use yet, that was promoted before its data was in its file.
    pub(super) fn check_file(&self, line: &ReplicationLine) -> Result<(), HostRefusal> {
        if !line.before.is_empty() && self.rewrites_its_file() {
            let text = "was promoted, and its append-only file may lack its data until it is rewritten \
                (aof_rewrite_in_progress); wait for that";
            return Err(HostRefusal::new(StoreErrorKind::Unavailable, text));
        }
        Ok(())
    }

    /// Refuses a server whose settings may lose records. `losses` are the [longest
    /// losses](ClusterMember::longest_loss) by the settings of its replicas in a cluster.
    pub(super) fn check_settings(
        &self,
        must_keep: bool,
        may_lose: Duration,
        copies: u64,
        losses: &[Option<Duration>],
    ) -> Result<(), HostRefusal> {
        let of_cluster = || self.member()?.complaint(may_lose, copies, &self.connected(), losses);
        let of_syncs = || self.syncs.complaint(may_lose).filter(|_| must_keep);
        let complaint = self.complaint(must_keep).or_else(of_syncs).or_else(of_cluster);
        complaint.map_or(Ok(()), |text| Err(HostRefusal::new(StoreErrorKind::Other, text)))
    }

    /// Returns the addresses of the replicas that are connected and have received what was there before.
    /// Programs that copy the data are among them, and several may claim one address.
    fn connected(&self) -> Vec<(&str, &str)> {
        self.text.lines().filter_map(|line| online(line.trim())).collect()
    }

    /// Returns whether a sync of its file has begun and not ended.
    pub(super) fn is_syncing(&self) -> bool {
        self.field("aof_pending_bio_fsync") == "1"
    }

    fn complaint(&self, must_keep: bool) -> Option<String> {
        let policy = self.field("maxmemory_policy");
        if policy.starts_with("allkeys-") && self.field("maxmemory") != "0" {
            return Some(format!(
                "deletes records when memory is short (maxmemory-policy {policy}), which may cause duplicates; \
                 set maxmemory-policy noeviction"
            ));
        }
        if must_keep && !self.field("dragonfly_version").is_empty() && self.field("aof_enabled") != "1" {
            let text = "keeps snapshots only, as Dragonfly has no append-only file: a restart forgets what came after the last \
                one, which may cause duplicates; use another store, or accept the loss with durable=no";
            return Some(text.to_owned());
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

const SYNC: &str = "appendfsync";
const NO_SYNC_DURING_REWRITES: &str = "no-appendfsync-on-rewrite";
/// What a failure of the machine loses with `appendfsync everysec`, as Redis documents it.
const LOST_WITH_EVERYSEC: Duration = Duration::from_secs(2);
/// What it loses if Redis never syncs: Linux writes after about this time.
const LOST_WITHOUT_SYNC: Duration = Duration::from_secs(30);

/// When a server syncs its file. A server that hides its settings is not refused for that.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Syncs {
    lost: Duration,
    /// The setting that decides.
    setting: &'static str,
    value: String,
}

impl Syncs {
    fn parse(settings: &HashMap<String, String>) -> Self {
        let value = |name| settings.get(name).map_or("", String::as_str);
        let (lost, setting) = match (value(NO_SYNC_DURING_REWRITES), value(SYNC)) {
            ("yes", _) => (LOST_WITHOUT_SYNC, NO_SYNC_DURING_REWRITES),
            (_, "no") => (LOST_WITHOUT_SYNC, SYNC),
            (_, "everysec") => (LOST_WITH_EVERYSEC, SYNC),
            _ => (Duration::ZERO, SYNC),
        };
        Self { lost, setting, value: value(setting).to_owned() }
    }

    /// Returns what is wrong with the loss that a user has stated.
    fn complaint(&self, may_lose: Duration) -> Option<String> {
        let Self { lost, setting, value } = self;
        (may_lose < *lost).then(|| {
            let remedy = if *setting == SYNC { "set appendfsync always" } else { "set no-appendfsync-on-rewrite no" };
            format!(
                "may lose {} s of its newest writes if its machine fails ({setting} {value}); invalid may_lose={}ms: expected at \
                 least {}ms; or {remedy}",
                lost.as_secs(),
                may_lose.as_millis(),
                lost.as_millis()
            )
        })
    }
}

/// The line of writes of one server.
///
/// Redis names a line at random at each start and each promotion, so an old name can return only with a
/// process that has been running since then.
#[derive(Clone, Default, Debug)]
pub(super) struct ReplicationLine {
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

/// Returns host and port of a replica from a line such as
/// `slave0:ip=10.0.0.2,port=6379,state=online,offset=1,lag=0`, if it is online.
fn online(line: &str) -> Option<(&str, &str)> {
    let (number, fields) = line.strip_prefix("slave")?.split_once(':')?;
    number.parse::<u32>().ok()?;
    let field = |name: &str| fields.split(',').find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
    (field("state") == Some("online")).then_some((field("ip")?, field("port")?))
}

/// Returns the nodes that a member of a cluster knows, those that have a slot first, then those of its own
/// shard; none if the user may not query them.
pub(super) async fn members(
    connection: &mut MultiplexedConnection,
    asked: &Host,
    slot: Option<u16>,
) -> Vec<Host> {
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    let Ok(Value::Array(ranges)) = connection.send_packed_command(&slots).await else {
        return Vec::new();
    };
    let mut shards: Vec<(bool, Vec<Host>)> =
        ranges.iter().map(|range| (slot.is_some_and(|slot| has(range, slot)), shard(range, asked))).collect();
    shards.sort_by_key(|(has_slot, hosts)| (!has_slot, !hosts.contains(asked)));
    let mut members = Vec::new();
    for host in shards.into_iter().flat_map(|(_, hosts)| hosts) {
        if !members.contains(&host) {
            members.push(host);
        }
    }
    members
}

/// Returns whether a range of slots has a slot.
fn has(range: &Value, slot: u16) -> bool {
    let Value::Array(range) = range else {
        return false;
    };
    let at = |index: usize| range.get(index).and_then(|it| from_redis_value_ref::<u16>(it).ok());
    matches!((at(0), at(1)), (Some(first), Some(last)) if (first..=last).contains(&slot))
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

/// The number of slots, each of which is on one node:
/// <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>.
pub(crate) const SLOTS: u16 = 16_384;
const CRC16: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);
/// The default of Redis, for servers that hide their settings.
const NODE_TIMEOUT: Duration = Duration::from_secs(15);
/// The default of `cluster-replica-validity-factor`.
const VALIDITY_FACTOR: u32 = 10;
/// The defaults of `repl-ping-replica-period` and `repl-timeout`, in seconds.
const PING_PERIOD: u64 = 10;
const LINK_TIMEOUT: u64 = 60;
/// Loss in a failover beyond what the settings say: a heartbeat, and the time to notice.
const NOTICE: Duration = Duration::from_secs(2);
/// What a replica may add to the age of its data by counting in whole seconds.
const ROUNDING: Duration = Duration::from_secs(1);

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
pub(super) struct ClusterMember {
    id: String,
    /// The id of the primary whose replica it is.
    follows: Option<String>,
    /// Whether it reaches a majority of the others, and so accepts writes.
    is_up: bool,
    is_primary: bool,
    /// Its configuration epoch: of two members that claim a slot, the one with the greater epoch owns it.
    epoch: u64,
    /// The first and the last slot of each range that it claims.
    slots: Vec<(u16, u16)>,
    /// The addresses of its replicas, any of which may be promoted.
    replicas: Vec<Addresses>,
    node_timeout: Duration,
    /// A replica that has not heard its primary for longer than this many `node_timeout` and a ping is not
    /// promoted; 0 if any is.
    validity_factor: u32,
    ping_period: Duration,
    /// A link that is silent for longer counts as down.
    link_timeout: Duration,
    /// Whether a full sync sends only what was there when it began (`repl-diskless-sync`), however long it
    /// takes.
    syncs_without_disk: bool,
    /// Number of replicas without which it rejects writes after some time, and that time.
    needs: Option<(usize, Duration)>,
}

impl ClusterMember {
    /// Queries a member. Its settings may be hidden.
    pub(super) async fn by(connection: &mut MultiplexedConnection) -> Result<Self, HostRefusal> {
        let mut ask = redis::pipe();
        ask.cmd("CLUSTER").arg("INFO").cmd("CLUSTER").arg("NODES");
        for setting in ["cluster-*", "min-replicas-*", "repl-*"] {
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
            HostRefusal::new(StoreErrorKind::Other, text)
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
        let has_flag =
            |node: &[&str], flag| node.get(2).is_some_and(|flags| flags.split(',').any(|it| it == flag));
        let factor = setting("cluster-replica-validity-factor").and_then(|it| u32::try_from(it).ok());
        let least_replicas = least("min-replicas-to-write").and_then(|it| usize::try_from(it).ok());
        Some(Self {
            id: id.to_owned(),
            follows: myself.get(3).filter(|it| **it != "-").map(|it| (*it).to_owned()),
            is_up: !info.lines().any(|line| line.trim() == "cluster_state:fail"),
            is_primary: has_flag(&myself, "master"),
            epoch,
            slots: slots.collect(),
            replicas: nodes()
                .filter(|it| it.get(3) == Some(&id))
                .filter_map(|it| Addresses::parse(it.get(1)?))
                .collect(),
            node_timeout: setting("cluster-node-timeout").map_or(NODE_TIMEOUT, Duration::from_millis),
            validity_factor: factor.unwrap_or(VALIDITY_FACTOR),
            ping_period: Duration::from_secs(setting("repl-ping-replica-period").unwrap_or(PING_PERIOD)),
            link_timeout: Duration::from_secs(setting("repl-timeout").unwrap_or(LINK_TIMEOUT)),
            syncs_without_disk: settings.get("repl-diskless-sync").is_some_and(|it| it == "yes"),
            needs: least_replicas.zip(least("min-replicas-max-lag").map(Duration::from_secs)),
        })
    }

    /// Returns the epoch in which this primary owns a slot, or any epoch if no slot is given; otherwise the
    /// reason not to use it.
    pub(super) fn claims(&self, slot: Option<u16>) -> Result<u64, HostRefusal> {
        let refused = |text: &str| Err(HostRefusal::new(StoreErrorKind::Unavailable, text));
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

    /// Returns whether it reaches the others and is a primary of other slots than this. A member that a
    /// failover replaced is not: it becomes a replica in the same step in which it loses its slots.
    pub(super) fn holds_others(&self, slot: Option<u16>) -> bool {
        self.is_up && self.is_primary && slot.is_some_and(|slot| !self.has(slot))
    }

    fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }

    /// Returns its id in the cluster.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the id of the primary whose replica it is.
    pub(super) fn follows(&self) -> Option<&str> {
        self.follows.as_deref()
    }

    /// Returns the number of replicas for which a write has to wait so that every one that may be promoted
    /// has it. `WAIT` and `min-replicas-to-write` count each connected replica, also one that is not in the
    /// cluster and can never be promoted.
    fn all_replicas(&self, connected: &[(&str, &str)]) -> usize {
        let is_foreign = |it: &&(&str, &str)| !self.replicas.iter().any(|replica| replica.are(**it));
        self.replicas.len() + connected.iter().filter(is_foreign).count()
    }

    /// Returns the time of which a promoted replica may lack the writes; `None` if there is no limit.
    ///
    /// A replica asks for a promotion if its link has been down for no longer than
    /// `cluster-replica-validity-factor` times `cluster-node-timeout` and `repl-ping-replica-period`, and
    /// that timeout once more for the time in which the primary was found to have failed
    /// (`clusterHandleSlaveFailover`). A silent link counts as down only from the end of `repl-timeout`. A
    /// primary that is cut off acknowledges for half of the node timeout longer: it asks each member that it
    /// has not heard for half of it, and waits for an answer for all of it. None of that covers a replica
    /// that receives writes late, or was in a full sync until just before its promotion: without a disk, it
    /// receives the writes since its beginning only after it has loaded the others.
    pub(super) fn longest_loss(&self) -> Option<Duration> {
        if self.validity_factor == 0 || self.syncs_without_disk {
            return None;
        }
        let timeouts = self.node_timeout.checked_mul(self.validity_factor)?.checked_add(self.node_timeout)?;
        let cut = self.node_timeout / 2 + self.ping_period + self.link_timeout + NOTICE + ROUNDING;
        timeouts.checked_add(cut).filter(|loss| *loss <= MAX_LOSS)
    }

    /// Returns what is wrong with the loss that a user has stated, if each write waits for this many
    /// replicas.
    fn complaint(
        &self,
        may_lose: Duration,
        copies: u64,
        connected: &[(&str, &str)],
        losses: &[Option<Duration>],
    ) -> Option<String> {
        let all = self.all_replicas(connected);
        let has_all = |copies: usize| self.replicas.is_empty() || copies >= all;
        if usize::try_from(copies).is_ok_and(has_all) {
            return None;
        }
        // It rejects writes when one of them has not answered for that time.
        let by_lag = self.needs.filter(|(replicas, _)| has_all(*replicas)).map(|(_, lag)| lag + NOTICE);
        // Each replica goes by its own settings.
        let longest: Option<Vec<_>> = losses.iter().copied().chain([self.longest_loss()]).collect();
        let longest = longest.and_then(|losses| losses.into_iter().max());
        let lost = by_lag.into_iter().chain(longest).min();
        if lost.is_some_and(|lost| may_lose >= lost) {
            return None;
        }
        let Self { node_timeout, validity_factor, ping_period, link_timeout, syncs_without_disk, .. } = self;
        let least = lost.map_or_else(
            || "no value is enough".to_owned(),
            |lost| format!("expected at least {}ms", lost.as_millis()),
        );
        Some(format!(
            "may be replaced by a replica that lacks newer writes (here cluster-node-timeout {}, cluster-replica-validity-factor \
             {validity_factor}, repl-ping-replica-period {}, repl-timeout {}, repl-diskless-sync {}); invalid may_lose={}ms: {least}; \
             or change these settings on every member, see docs/stores.md; or wait for every replica, with wait_replicas={all}",
            node_timeout.as_millis(),
            ping_period.as_secs(),
            link_timeout.as_secs(),
            if *syncs_without_disk { "yes" } else { "no" },
            may_lose.as_millis(),
        ))
    }
}

/// The host of a node of a cluster, and its ports: without and with TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Addresses {
    host: String,
    ports: Vec<String>,
}

impl Addresses {
    /// Parses `10.0.0.2:6379@16379,name,tls-port=0`.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split(',');
        let (host, port) = fields.next()?.split('@').next()?.rsplit_once(':')?;
        let other = |part: &str| {
            part.strip_prefix("tls-port=").or(part.strip_prefix("tcp-port=")).map(ToOwned::to_owned)
        };
        let ports = [port.to_owned()].into_iter().chain(fields.filter_map(other)).collect();
        Some(Self { host: host.to_owned(), ports })
    }

    fn are(&self, (host, port): (&str, &str)) -> bool {
        self.host == host && self.ports.iter().any(|it| it == port)
    }
}

/// Returns the text of an answer, or why there is none, such as a missing permission.
fn text(answer: Option<&Value>) -> Result<String, HostRefusal> {
    let answer = answer.unwrap_or(&Value::Nil);
    if let Value::ServerError(said) = answer {
        return Err(error::refusal(&RedisError::from(said.clone())));
    }
    String::from_redis_value_ref(answer)
        .map_err(|error| HostRefusal::new(StoreErrorKind::Other, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> RedisInfo {
        RedisInfo { text: text.to_owned(), syncs: Syncs::parse(&HashMap::new()), member: None }
    }

    /// Goal: servers that speak the protocol and do not keep the contract are refused.
    #[test]
    fn compatible_servers_that_lose_more_are_refused() {
        let keydb = told("role:active-replica\r\n").check_role().unwrap_err();
        assert!(keydb.kind == StoreErrorKind::Other && keydb.text.contains("active-replica"), "{keydb:?}");
        told("role:master\r\n").check_role().unwrap();
        told("").check_role().unwrap();
        // As Dragonfly reports it, and as Amazon ElastiCache does.
        let dragonfly = "redis_version:7.4.0\r\ndragonfly_version:df-v1.36.0\r\n";
        for (text, says) in
            [(dragonfly, "Dragonfly"), ("os:Amazon ElastiCache\r\naof_enabled:0\r\n", "appendonly no")]
        {
            let refusal = told(text).check_settings(true, MAX_LOSS, 0, &[]).unwrap_err();
            assert!(refusal.text.contains(says), "{refusal:?}");
            told(text).check_settings(false, MAX_LOSS, 0, &[]).unwrap();
        }
        told(&format!("{dragonfly}aof_enabled:1\r\n")).check_settings(true, MAX_LOSS, 0, &[]).unwrap();
    }

    const NODES: &str = "a1 127.0.0.1:1@11,,tls-port=0 myself,master - 0 0 7 connected 0-5460 9000 [93-<-b1]\n\
        b1 :2@12 master,fail? - 0 1 8 connected 5461-8999\n\
        c1 127.0.0.1:3@13 slave a1 0 1 7 connected\n";

    fn member(state: &str, settings: &[(&str, &str)]) -> ClusterMember {
        let settings =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ClusterMember::parse(&format!("cluster_state:{state}\r\ncluster_my_epoch:7\r\n"), NODES, &settings)
            .unwrap()
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
        let replica = ClusterMember::parse("cluster_state:ok", &replica, &HashMap::new()).unwrap();
        assert!(!replica.holds_others(Some(0)), "a failover replaced it");
        let down = member("fail", &[]).claims(Some(0)).unwrap_err();
        assert!(down.text.contains("cluster_state fail"), "{down:?}");
        assert_eq!(ClusterMember::parse("", "a1 :1@2 master - 0 0 7 connected", &HashMap::new()), None);
    }

    const REPLICA: (&str, &str) = ("127.0.0.1", "3");

    #[test]
    fn a_loss_covers_what_a_promoted_replica_lacks() {
        let complains = |settings: &[_], ms, copies| {
            member("ok", settings).complaint(Duration::from_millis(ms), copies, &[REPLICA], &[]).is_some()
        };
        let factor = |text| ("cluster-replica-validity-factor", text);
        let needs_one = |lag| [("min-replicas-to-write", "1"), ("min-replicas-max-lag", lag)];
        for (settings, enough) in [
            (&[][..], 245_500),
            (&[factor("1")][..], 110_500),
            (
                &[
                    factor("1"),
                    ("cluster-node-timeout", "5000"),
                    ("repl-ping-replica-period", "1"),
                    ("repl-timeout", "5"),
                ],
                21_500,
            ),
            (&needs_one("4"), 6000),
            (&needs_one("40"), 42_000),
            (&needs_one("400"), 245_500),
            (&needs_one("0"), 245_500),
            (&[("min-replicas-to-write", "0"), ("min-replicas-max-lag", "4")], 245_500),
        ] {
            assert!(!complains(settings, enough, 0) && complains(settings, enough - 1, 0), "{settings:?}");
        }
        assert!(!complains(&[], 0, 1), "its only replica has every write");
        assert!(complains(&[factor("0")], u64::MAX, 0), "any replica may be promoted");
        let alone = ClusterMember { replicas: Vec::new(), ..member("ok", &[]) };
        assert_eq!(alone.complaint(Duration::ZERO, 0, &[REPLICA], &[]), None);
        assert!(complains(&[("repl-diskless-sync", "yes")], u64::MAX, 0), "a full sync may take any time");
        assert!(complains(&[("cluster-node-timeout", "20000")], u64::MAX, 0), "beyond what may_lose can be");
        let tuned = member("ok", &[factor("1")]);
        for (of_replica, expected) in [(Some(110), false), (Some(300), true), (None, true)] {
            let losses = [of_replica.map(Duration::from_secs)];
            let found = tuned.complaint(Duration::from_secs(111), 0, &[REPLICA], &losses).is_some();
            assert_eq!(found, expected, "{losses:?}");
        }
    }

    /// Goal: a write that some replicas have is not taken for one that all have, since another may be
    /// promoted. Method: settings and waits for one of two replicas: both in the cluster, or one outside of
    /// it, also while the one of the cluster is gone.
    #[test]
    fn one_of_two_replicas_is_not_enough() {
        let settings = [("min-replicas-to-write", "1"), ("min-replicas-max-lag", "1")];
        let (one, other) = (member("ok", &settings), ("127.0.0.1", "9"));
        let mut two = one.clone();
        two.replicas.push(Addresses::parse("127.0.0.1:9@19,,tls-port=0").unwrap());
        let complains = |member: &ClusterMember, copies, connected: &[_]| {
            member.complaint(Duration::from_secs(3), copies, connected, &[]).is_some()
        };
        assert!(!complains(&one, 0, &[REPLICA]) && !complains(&one, 1, &[]));
        for (member, connected) in
            [(&two, &[REPLICA, other][..]), (&two, &[REPLICA]), (&one, &[REPLICA, other]), (&one, &[other])]
        {
            assert!(complains(member, 0, connected) && complains(member, 1, connected), "{connected:?}");
            assert!(!complains(member, 2, connected), "{connected:?}");
        }
        assert!(complains(&one, 2, &[REPLICA, other, other]), "two copies that claim one address");
        let needs_both = ClusterMember { needs: Some((2, Duration::from_secs(1))), ..two };
        assert!(!complains(&needs_both, 0, &[REPLICA, other]));
    }

    #[test]
    fn a_primary_tells_its_replicas() {
        let line =
            |number, port| format!("slave{number}:ip=10.0.0.2,port={port},state=online,offset=7,lag=0\r\n");
        let dump = "slave3:ip=10.0.0.3,port=0,state=wait_bgsave,offset=0,lag=0\r\n";
        let found =
            told(&(line(0, 3) + &line(1, 3) + dump + &line(2, 4) + "slaves:x\r\nslave_read_only:1\r\n"));
        assert_eq!(found.connected(), [("10.0.0.2", "3"), ("10.0.0.2", "3"), ("10.0.0.2", "4")]);
        let addresses = Addresses::parse("::1:6379@16379,name,tls-port=6380,shard-id=a").unwrap();
        assert!(addresses.are(("::1", "6379")) && addresses.are(("::1", "6380")));
        assert!(!addresses.are(("::1", "6381")) && !addresses.are(("::2", "6379")));
    }

    /// Goal: the nodes that have our keys come first, since there may be more than a store asks. Method: an
    /// answer with another range before ours, asked of a host that the cluster knows by another name.
    #[test]
    fn the_range_of_a_slot_is_known() {
        let range = Value::Array(vec![Value::Int(5), Value::Int(9)]);
        assert!(has(&range, 5) && has(&range, 9) && !has(&range, 4) && !has(&range, 10));
        assert!(!has(&Value::Nil, 5));
    }

    /// Goal: `may_lose` covers what the server acknowledges before it syncs.
    #[test]
    fn a_server_that_syncs_later_than_stated_is_refused() {
        for (settings, least) in [
            (&[][..], 0),
            (&[(SYNC, "always")], 0),
            (&[(SYNC, "everysec")], 2000),
            (&[(SYNC, "no")], 30_000),
            (&[(SYNC, "always"), (NO_SYNC_DURING_REWRITES, "no")], 0),
            (&[(SYNC, "always"), (NO_SYNC_DURING_REWRITES, "yes")], 30_000),
            (&[(SYNC, "everysec"), (NO_SYNC_DURING_REWRITES, "yes")], 30_000),
        ] {
            let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let syncs = Syncs::parse(&settings.collect());
            assert_eq!(syncs.complaint(Duration::from_millis(least)), None, "{syncs:?}");
            let less = least.checked_sub(1).map(Duration::from_millis);
            assert!(less.is_none_or(|less| syncs.complaint(less).is_some()), "{syncs:?}");
        }
    }

    #[test]
    fn a_server_that_forgets_is_refused() {
        let told = |text: &str| RedisInfo {
            text: text.to_owned(),
            syncs: Syncs::parse(&HashMap::new()),
            member: None,
        };
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
        let line = |text: &str| told(text).line();
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
        let replica = "role:slave\r\nmaster_link_status:up\r\nmaster_replid:a\r\nmaster_repl_offset:9\r\n\
            aof_rewrite_in_progress:0\r\n";
        assert_eq!(told(replica).replica(), Some(Replica { line: "a".to_owned(), position: 9 }));
        for other in [
            replica.replace("slave", "master"),
            replica.replace("progress:0", "progress:1"),
            format!("{replica}aof_rewrite_scheduled:1\r\n"),
            replica.replace("up", "down"),
            replica.replace("replid:a", "replid:"),
            replica.replace("offset:9", "offset:-1"),
        ] {
            assert_eq!(told(&other).replica(), None, "{other}");
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
}
