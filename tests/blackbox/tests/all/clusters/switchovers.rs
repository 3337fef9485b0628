//! Databases with replicas, whose primary changes: by plan, by force, and back again.
//!
//! As the product requires, the loss of a store without a synchronous replica is bounded here: it loses no
//! write that was acknowledged more than [`MAY_LOSE`] before the death of the old primary. Three rules ensure
//! that:
//! - A replica is promoted only if it had everything that the primary had at an instant at most that long
//!   before the death of the old primary. If the machine was too slow for that, the old primary is started
//!   again and no replica is promoted.
//! - By force, the old primary is dead before another accepts writes (if replicas confirm each write, it may
//!   live for another second: it can acknowledge nothing). By plan, it stops accepting writes before another
//!   starts.
//! - The failed server comes back as a replica, without its own data. A replica that crashes comes back as a
//!   replica.

use std::cell::Cell;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use snowmint_test_servers::snowmint::SplitMix64;
use snowmint_test_servers::time;
use snowmint_test_servers::{MariaDbPair, Postgres, Redis, RedisSentinels, Server};

/// `may_lose` of the stores that lose writes, and the limit of their loss.
pub(crate) const MAY_LOSE: Duration = Duration::from_secs(1);
/// The name of the only standby.
const PEER: &str = "peer";
/// Time limit for replicas to catch up; after that the switch is postponed.
const CATCH_UP: Duration = Duration::from_secs(5);
/// A long timeout, so that only the test decides when a primary is replaced.
const NEVER_DOWN: Duration = Duration::from_mins(10);

/// A way for another server to become the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Switch {
    /// The primary stops accepting writes, the replica catches up, and they change roles.
    Planned,
    /// The primary is killed.
    Forced,
    /// The replicas are killed. After some writes that only the primary has, the primary is killed too: those
    /// writes are lost.
    Losing,
    /// The replica is promoted while the primary runs; the primary is killed a moment later.
    Split,
    /// The replica is down, so that writes wait. The primary ends their waits, which shows those writes to
    /// readers. Then it is killed and the replica, which never had them, is promoted.
    Stranded,
}

/// The result of a switch.
pub(crate) enum Switched {
    /// Both servers have their new roles.
    Done,
    /// The old primary is down and has to come back as a replica.
    WithoutOld(usize),
    /// The replicas did not catch up in time: the primary is the same, although it may have been restarted.
    PutOff,
}

/// A primary and its replicas.
pub(crate) trait Replicated: Debug {
    /// All servers, always in the same order.
    fn servers(&self) -> Vec<&Server>;

    /// Which of them is the primary.
    fn primary(&self) -> usize;

    /// The store URL for a node that reaches the servers at these addresses.
    fn url(&self, hosts: &str) -> String;

    /// The switches that it supports.
    fn switches(&self) -> &'static [Switch];

    /// Prepares a server that was killed and started again for its role.
    fn returned(&self, _index: usize) {}

    /// Changes the primary. All servers are up.
    fn switch(&self, switch: Switch, random: &mut SplitMix64) -> Switched;

    /// Starts the old primary as a replica.
    fn rejoin(&self, index: usize);
}

/// A part of `may_lose`.
fn part_of_loss(random: &mut SplitMix64) -> Duration {
    MAY_LOSE.mul_f64(0.6 * random.fraction())
}

/// Two PostgreSQL, one of them a standby.
#[derive(Debug)]
pub(crate) struct PostgresPair {
    servers: [Postgres; 2],
    primary: Cell<usize>,
    synchronous: Synchronous,
}

/// Whether commits wait for the standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Synchronous {
    Yes,
    No,
}

impl PostgresPair {
    pub(crate) fn start(synchronous: Synchronous) -> Self {
        let first = Postgres::start();
        // For a standby that was down for a while. Both settings are copied with the data.
        first.set("wal_keep_size", "512MB");
        // With 5 s, the default, a standby is away for most of the time between two faults.
        first.set("wal_retrieve_retry_interval", "100ms");
        if synchronous == Synchronous::Yes {
            first.set("synchronous_standby_names", PEER);
        }
        let second = Postgres::standby_named(&first, PEER);
        Self { servers: [first, second], primary: Cell::new(0), synchronous }
    }

    fn old_and_new(&self) -> (&Postgres, &Postgres) {
        (&self.servers[self.primary.get()], &self.servers[1 - self.primary.get()])
    }

    fn swap(&self) -> usize {
        self.primary.replace(1 - self.primary.get())
    }

    /// Waits until the standby has everything that the primary had at an instant, and returns that instant.
    fn caught_up(&self) -> Option<Instant> {
        let (primary, _) = self.old_and_new();
        let came = time::now();
        let streams = format!(
            "SELECT count(*) FROM pg_stat_replication WHERE application_name = '{PEER}' AND state = 'streaming'"
        );
        while primary.sql(&streams) != "1" {
            // After a restart of the primary, the standby connects again only after a while.
            if came.elapsed() > CATCH_UP {
                return None;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let began = time::now();
        let position = primary.sql("SELECT pg_current_wal_insert_lsn()");
        let has = format!(
            "SELECT count(*) FROM pg_stat_replication WHERE application_name = '{PEER}' AND state = 'streaming' \
             AND flush_lsn >= '{position}'::pg_lsn"
        );
        // The end of the inserted log is flushed only with the next commit.
        primary.sql("SET synchronous_commit = local; SELECT pg_logical_emit_message(true, 'chaos', '')");
        while primary.sql(&has) != "1" {
            if began.elapsed() > CATCH_UP {
                return None;
            }
            thread::sleep(Duration::from_millis(5));
        }
        Some(began)
    }

    /// Kills the primary and promotes the standby, unless that was too late.
    fn force(&self, had_all_at: Instant) -> Switched {
        let (old, new) = self.old_and_new();
        let is_too_late = || self.synchronous == Synchronous::No && had_all_at.elapsed() > MAY_LOSE;
        if is_too_late() {
            if !new.is_running() {
                new.restart();
            }
            return Switched::PutOff;
        }
        old.kill9();
        let too_late = is_too_late();
        if !new.is_running() {
            new.restart();
        }
        if too_late {
            old.restart();
            return Switched::PutOff;
        }
        new.promote();
        Switched::WithoutOld(self.swap())
    }
}

impl Replicated for PostgresPair {
    fn servers(&self) -> Vec<&Server> {
        self.servers.iter().map(|it| &**it).collect()
    }

    fn primary(&self) -> usize {
        self.primary.get()
    }

    fn url(&self, hosts: &str) -> String {
        let may_lose = match self.synchronous {
            Synchronous::Yes => String::new(),
            Synchronous::No => format!("?may_lose={}ms", MAY_LOSE.as_millis()),
        };
        format!("postgres://postgres@{hosts}/postgres{may_lose}")
    }

    fn switches(&self) -> &'static [Switch] {
        match self.synchronous {
            Synchronous::Yes => &[Switch::Planned, Switch::Forced, Switch::Split, Switch::Stranded],
            Synchronous::No => &[Switch::Planned, Switch::Forced, Switch::Losing],
        }
    }

    fn switch(&self, switch: Switch, random: &mut SplitMix64) -> Switched {
        let Some(had_all_at) = self.caught_up() else { return Switched::PutOff };
        let (old, new) = self.old_and_new();
        match switch {
            Switch::Planned => {
                if !old.stop_fast() {
                    // The stop timed out waiting for a client or the standby: the standby may lack the newest
                    // writes.
                    old.restart();
                    return Switched::PutOff;
                }
                new.promote();
                Switched::WithoutOld(self.swap())
            }
            Switch::Forced => self.force(had_all_at),
            Switch::Losing => {
                new.kill9();
                thread::sleep(part_of_loss(random));
                self.force(had_all_at)
            }
            Switch::Split => {
                new.promote();
                thread::sleep(Duration::from_millis(random.within(0, 1000)));
                old.kill9();
                Switched::WithoutOld(self.swap())
            }
            Switch::Stranded => {
                new.kill9();
                thread::sleep(Duration::from_millis(random.within(300, 1000)));
                old.stop_fast();
                old.restart();
                thread::sleep(Duration::from_millis(random.within(300, 1000)));
                self.force(had_all_at)
            }
        }
    }

    fn rejoin(&self, index: usize) {
        self.servers[index].rejoin(&self.servers[1 - index], PEER);
    }
}

/// Two MariaDB servers; the replica confirms each commit.
#[derive(Debug)]
pub(crate) struct MariaDbs {
    pair: MariaDbPair,
    /// The port of the first server in the order of the servers.
    first: u16,
}

impl MariaDbs {
    pub(crate) fn start() -> Self {
        let pair = MariaDbPair::start();
        let first = pair.primary().port();
        Self { pair, first }
    }

    fn has_caught_up(&self) -> bool {
        let position = self.pair.primary().sql("SELECT @@gtid_binlog_pos");
        let wait = format!("SELECT MASTER_GTID_WAIT('{position}', {})", CATCH_UP.as_secs());
        self.pair.replica().sql(&wait) == "0"
    }
}

impl Replicated for MariaDbs {
    fn servers(&self) -> Vec<&Server> {
        let mut servers: Vec<&Server> = vec![self.pair.primary(), self.pair.replica()];
        servers.sort_by_key(|it| it.port() != self.first);
        servers
    }

    fn primary(&self) -> usize {
        usize::from(self.pair.primary().port() != self.first)
    }

    fn url(&self, hosts: &str) -> String {
        format!("mysql://root@{hosts}/test")
    }

    fn switches(&self) -> &'static [Switch] {
        &[Switch::Planned, Switch::Forced, Switch::Split, Switch::Stranded]
    }

    /// A server that was killed comes back read-only, and would commit without waiting for its replica.
    fn returned(&self, index: usize) {
        if index == self.primary() {
            self.pair.primary().sql("SET GLOBAL rpl_semi_sync_master_enabled = 1");
            // A replica states only at the beginning of a session that it confirms.
            self.pair.replica().sql("STOP SLAVE IO_THREAD; START SLAVE IO_THREAD");
            self.pair.primary().sql("SET GLOBAL read_only = 0");
        }
    }

    fn switch(&self, switch: Switch, random: &mut SplitMix64) -> Switched {
        if !self.has_caught_up() {
            return Switched::PutOff;
        }
        let old = self.primary();
        match switch {
            Switch::Planned => {
                self.pair.switch_over();
                return Switched::Done;
            }
            Switch::Split => {
                self.pair.promote_replica();
                thread::sleep(Duration::from_millis(random.within(0, 1000)));
                self.pair.replica().kill9();
            }
            Switch::Stranded => {
                self.pair.cut_replica();
                thread::sleep(Duration::from_millis(random.within(300, 1000)));
                self.pair.end_waits();
                thread::sleep(Duration::from_millis(random.within(300, 1000)));
                self.pair.fail_over();
            }
            _ => self.pair.fail_over(),
        }
        Switched::WithoutOld(old)
    }

    fn rejoin(&self, _index: usize) {
        self.pair.rejoin();
    }
}

/// Three Redis, and Sentinels that know which of them is the primary.
#[derive(Debug)]
pub(crate) struct Redises {
    servers: Vec<Redis>,
    sentinels: RedisSentinels,
    primary: Cell<usize>,
    /// The last value of [`PROBE`] that all replicas had.
    probe: Cell<u64>,
}

/// A key that shows on a promoted replica whether it kept the first rule of this file.
const PROBE: &str = "probe-of-the-test";

impl Redises {
    pub(crate) fn start() -> Self {
        let first = Redis::start();
        let replicas = [Redis::replica_of(&first, &[]), Redis::replica_of(&first, &[])];
        replicas.iter().for_each(Redis::wait_connected);
        let sentinels = RedisSentinels::start(3, &first);
        sentinels.patience(NEVER_DOWN);
        let servers = [first].into_iter().chain(replicas).collect();
        Self { servers, sentinels, primary: Cell::new(0), probe: Cell::new(0) }
    }

    fn old(&self) -> &Redis {
        &self.servers[self.primary.get()]
    }

    fn replicas(&self) -> impl Iterator<Item = &Redis> {
        self.servers.iter().enumerate().filter(|(i, _)| *i != self.primary.get()).map(|(_, it)| it)
    }

    /// Waits until the replicas have everything that the primary had at an instant not long ago, and returns
    /// that instant.
    fn caught_up(&self) -> Option<Instant> {
        let began = time::now();
        let offset = |redis: &Redis, field| redis.info(field).parse::<u64>().unwrap_or_default();
        while began.elapsed() < CATCH_UP {
            let at = time::now();
            let position = offset(self.old(), "master_repl_offset");
            let has = |it: &Redis| {
                it.info("master_link_status") == "up"
                    && offset(it, "slave_repl_offset") >= position
                    && it.has_its_data_on_disk()
            };
            // If it took long, little of the time is left in which the primary may be killed: look again.
            while at.elapsed() < MAY_LOSE / 4 {
                if self.replicas().all(has) {
                    return Some(at);
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        None
    }

    /// Lets the Sentinels promote a replica. Returns the index of the old primary.
    fn promote(&self) -> usize {
        let promoted = self.sentinels.replace(self.old());
        let is_new = |it: &Redis| it.address() == promoted;
        let new = self.servers.iter().position(is_new).expect("one of the replicas");
        // A Sentinel that has not heard of the failover would make the new primary a replica of the old one
        // again.
        self.sentinels.wait_agreed(&self.servers[new]);
        let probe = self.servers[new].command(&["GET", PROBE]);
        assert_eq!(probe, self.probe.get().to_string(), "the test broke its own rule: it lost too much");
        self.primary.replace(new)
    }

    /// Checks that a replica came back from a crash as a replica, which the product requires.
    fn check_role(&self, index: usize) {
        let role = self.servers[index].info("role");
        let is_kept = index == self.primary() || role == "slave";
        assert!(is_kept, "the test broke its own rule: a replica restarted as {role}");
    }

    fn force(&self, had_all_at: Instant) -> Switched {
        self.old().kill9();
        let too_late = had_all_at.elapsed() > MAY_LOSE;
        if too_late {
            self.old().restart();
        }
        for (index, server) in self.servers.iter().enumerate() {
            if index != self.primary() && !server.is_running() {
                server.restart();
                self.check_role(index);
            }
        }
        if too_late { Switched::PutOff } else { Switched::WithoutOld(self.promote()) }
    }
}

impl Replicated for Redises {
    fn servers(&self) -> Vec<&Server> {
        self.servers.iter().map(|it| &**it).collect()
    }

    fn primary(&self) -> usize {
        self.primary.get()
    }

    fn url(&self, hosts: &str) -> String {
        format!("redis://{hosts}?may_lose={}ms", MAY_LOSE.as_millis())
    }

    fn switches(&self) -> &'static [Switch] {
        &[Switch::Planned, Switch::Forced, Switch::Losing]
    }

    fn returned(&self, index: usize) {
        self.check_role(index);
    }

    fn switch(&self, switch: Switch, random: &mut SplitMix64) -> Switched {
        let role = self.old().info("role");
        assert_ne!(
            role,
            "slave",
            "the test broke its own rule: somebody replaced its primary {:?}",
            self.old()
        );
        let probe = self.probe.get() + 1;
        self.old().command(&["SET", PROBE, &probe.to_string()]);
        let Some(had_all_at) = self.caught_up() else { return Switched::PutOff };
        self.probe.set(probe);
        match switch {
            Switch::Planned => {
                // Sentinels let the old primary accept writes for seconds beside the new one, so it has to
                // block them itself.
                self.old().command(&["CLIENT", "PAUSE", "100000", "WRITE"]);
                if self.caught_up().is_none() {
                    self.old().command(&["CLIENT", "UNPAUSE"]);
                    return Switched::PutOff;
                }
                let old = self.promote();
                self.servers[old].follow(self.old());
                self.servers[old].command(&["CLIENT", "UNPAUSE"]);
                Switched::Done
            }
            Switch::Losing => {
                // After this crash of all, nodes follow a server only if they saw it as a replica of the
                // primary in use, and they look every half of `may_lose`.
                thread::sleep(MAY_LOSE);
                let Some(had_all_at) = self.caught_up() else { return Switched::PutOff };
                self.replicas().for_each(|it| it.kill9());
                thread::sleep(part_of_loss(random));
                self.force(had_all_at)
            }
            _ => self.force(had_all_at),
        }
    }

    fn rejoin(&self, index: usize) {
        self.servers[index].rejoin(self.old());
    }
}

/// The addresses in the form of a URL.
pub(crate) fn hosts_of(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
