//! One Redis, which syncs every write to its file before it answers, and the Sentinels that watch several. A
//! replica can be promoted and a primary demoted. With certificates, a server also accepts TLS on a second
//! port.

use std::fs;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::etcd::start_all;
use crate::hanging_disk::{self, Disk};
use crate::port::Port;
use crate::server::{Server, folder, probe_redis};
use crate::time::holds_within;
use crate::{Certificates, process};

/// The settings file of a server or a Sentinel, in its folder. Sentinels write their decisions to it, and to
/// those of the servers.
const SETTINGS: &str = "redis.conf";
/// The name of the primary for the Sentinels.
const WATCHED: &str = "main";
/// Time limit for replicas, elections and failovers on a busy machine.
// A Sentinel that gets no CPU for 2 s does nothing for the next 30 s; on a busy machine this happens
// repeatedly.
const PATIENCE: Duration = Duration::from_mins(3);

/// Settings of a server that takes a minute for each key when it rewrites its file.
pub const SLOW_REWRITES: [&str; 2] = ["--rdb-key-save-delay", "60000000"];

/// A Redis server.
#[derive(Debug)]
pub struct Redis {
    server: Server,
    tls: SocketAddr,
}

impl Redis {
    /// Starts a server without a password that writes and syncs each change to its file before it answers.
    ///
    /// # Panics
    ///
    /// If `redis-server` is not installed, or with its log if it does not come up.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with more settings: `["--requirepass", "secret"]`, `["--appendfsync", "no"]`.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    pub fn with(settings: &[&str]) -> Self {
        Self::launch(settings, None)
    }

    /// Starts a server whose syncs can [hang](Self::hang_syncs).
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start), and if there is no C compiler.
    pub fn with_disk_that_hangs(settings: &[&str]) -> Self {
        Server::start(|| Self::make(settings, None, Disk::MayHang), |redis| redis.server.up())
    }

    /// From now on, no sync of the server's file ends.
    pub fn hang_syncs(&self) {
        hanging_disk::hang_syncs(self.folder());
    }

    /// Ends [`hang_syncs`](Self::hang_syncs).
    pub fn free_disk(&self) {
        hanging_disk::free(self.folder());
    }

    /// Starts a server that also accepts TLS, on [`tls_address`](Self::tls_address).
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    pub fn with_tls(certificates: &Certificates, settings: &[&str]) -> Self {
        Self::launch(settings, Some(certificates))
    }

    /// Starts a read-only replica of another server.
    ///
    /// # Panics
    ///
    /// As for [`start`](Self::start).
    pub fn replica_of(primary: &Self, settings: &[&str]) -> Self {
        let of = format!("127.0.0.1 {}", primary.port());
        Self::with(&[&["--replicaof", &of], settings].concat())
    }

    /// Sends a command and returns the answer as text, one line for each of its elements; an error is its
    /// text.
    ///
    /// # Panics
    ///
    /// If `redis-cli` is not installed.
    pub fn command(&self, command: &[&str]) -> String {
        ask(self.address(), command)
    }

    /// A field of `INFO`, such as `role`; empty if the server does not have it or is down.
    pub fn info(&self, field: &str) -> String {
        let told = self.command(&["INFO", "everything"]);
        let value = told.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.map(str::trim).unwrap_or_default().to_owned()
    }

    /// Makes this server a primary with everything that it has received, once the data is in its file.
    ///
    /// # Panics
    ///
    /// If the server refuses, or that takes more than three minutes.
    pub fn promote(&self) {
        assert!(holds_within(PATIENCE, || self.has_its_data_on_disk()), "{}", self.log());
        self.promote_at_once();
    }

    /// Makes this server a primary, whatever is in its file.
    ///
    /// # Panics
    ///
    /// If the server refuses.
    pub fn promote_at_once(&self) {
        assert_eq!(self.command(&["REPLICAOF", "NO", "ONE"]), "OK");
    }

    /// Makes this server a replica of another, whose data replaces its own. It stays one when it is
    /// restarted.
    ///
    /// # Panics
    ///
    /// If the server refuses.
    pub fn follow(&self, primary: &Self) {
        assert_eq!(self.command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]), "OK");
        // Sentinels write the role to the file only when they change it themselves.
        assert_eq!(self.command(&["CONFIG", "REWRITE"]), "OK");
    }

    /// Starts a server that was killed as a replica of another, whose data replaces its own: it is never a
    /// primary.
    ///
    /// # Panics
    ///
    /// With its log if it does not come up.
    pub fn rejoin(&self, primary: &Self) {
        self.kill9();
        let path = self.folder().join(SETTINGS);
        let settings = fs::read_to_string(&path).unwrap();
        let kept = settings.lines().filter(|line| !line.starts_with("replicaof"));
        let follows = format!("replicaof 127.0.0.1 {}", primary.port());
        write_settings(self.folder(), &kept.map(str::to_owned).chain([follows]).collect::<Vec<_>>());
        self.restart();
    }

    /// Returns `true` if the server would have its data after a kill. A replica that has synced rewrites its
    /// file first; until then, it would return with its earlier data.
    pub fn has_its_data_on_disk(&self) -> bool {
        let info = self.command(&["INFO", "persistence"]);
        let has = |line: &str| info.lines().any(|it| it.trim_end() == line);
        has("aof_rewrite_in_progress:0")
            && has("aof_rewrite_scheduled:0")
            && has("aof_last_bgrewrite_status:ok")
    }

    /// Ends a rewrite that [`SLOW_REWRITES`] made slow. If the server needs the result, it repeats the
    /// rewrite, which is then fast.
    ///
    /// # Panics
    ///
    /// If the server refuses.
    pub fn end_rewrite(&self) {
        assert_eq!(self.command(&["CONFIG", "SET", "rdb-key-save-delay", "0"]), "OK");
        for rewrite in self.rewrites() {
            kill_process(rewrite, Signal::KILL).unwrap();
        }
    }

    /// Kills the server like [`kill9`](Server::kill9), and a running rewrite, which would continue by itself.
    pub fn kill9_with_rewrite(&self) {
        let rewrites = self.rewrites();
        // Prevent a repeat of the rewrite.
        self.pause();
        for rewrite in rewrites {
            kill_process(rewrite, Signal::KILL).unwrap();
        }
        self.kill9();
    }

    /// Returns the processes of rewrites.
    fn rewrites(&self) -> Vec<Pid> {
        let parent = self.info("process_id");
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
        children.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?)).collect()
    }

    /// Saves all data in an RDB file (`BGSAVE`), and returns its path.
    ///
    /// # Panics
    ///
    /// If that takes more than three minutes.
    pub fn save(&self) -> PathBuf {
        assert_eq!(self.command(&["BGSAVE"]), "Background saving started");
        let saved = holds_within(PATIENCE, || self.info("rdb_bgsave_in_progress") == "0");
        assert!(saved && self.info("rdb_last_bgsave_status") == "ok", "{}", self.log());
        self.folder().join("dump.rdb")
    }

    /// Replaces the data of the server with an RDB file and starts it. Append-only mode is enabled
    /// afterwards: with `appendonly yes` from the start, Redis would not read the RDB file.
    ///
    /// # Panics
    ///
    /// With its log if it does not come up.
    pub fn load(&self, file: &Path) {
        self.kill9();
        fs::remove_dir_all(self.folder().join("appendonlydir")).unwrap();
        fs::copy(file, self.folder().join("dump.rdb")).unwrap();
        let settings = fs::read_to_string(self.folder().join(SETTINGS)).unwrap();
        write_settings(self.folder(), &[settings.replace("appendonly yes", "appendonly no")]);
        self.restart();
        assert_eq!(self.command(&["CONFIG", "SET", "appendonly", "yes"]), "OK");
        assert!(holds_within(PATIENCE, || self.has_its_data_on_disk()), "{}", self.log());
        write_settings(self.folder(), &[settings]);
    }

    /// Waits until this server is a replica that is connected to its primary.
    ///
    /// # Panics
    ///
    /// If that takes more than three minutes.
    pub fn wait_connected(&self) {
        let connected = holds_within(PATIENCE, || self.info("master_link_status") == "up");
        assert!(connected, "{self:?} follows nobody; its log:\n{}", self.log());
    }

    /// Waits until this server is a replica that has everything that its primary has now.
    ///
    /// # Panics
    ///
    /// If that takes more than three minutes.
    pub fn wait_synced(&self, primary: &Self) {
        self.wait_connected();
        let offset = |server: &Self, field| server.info(field).parse::<u64>().unwrap_or_default();
        let wanted = offset(primary, "master_repl_offset");
        let synced = holds_within(PATIENCE, || offset(self, "slave_repl_offset") >= wanted);
        assert!(synced, "{self:?} lags; its log:\n{}", self.log());
    }

    /// Returns the address for clients with TLS, if the server has certificates.
    pub fn tls_address(&self) -> SocketAddr {
        self.tls
    }

    fn launch(settings: &[&str], certificates: Option<&Certificates>) -> Self {
        let start = || Self::make(settings, certificates, Disk::Sound);
        Server::start(start, |redis| redis.server.up())
    }

    fn make(settings: &[&str], certificates: Option<&Certificates>, disk: Disk) -> Self {
        let program = program();
        let (port, tls) = (Port::reserve(), Port::reserve());
        let (address, tls_address) = (port.address(), tls.address());
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            format!("port {}", port.number()),
            "protected-mode no\nappendonly yes\nappendfsync always\nsave \"\"\nrepl-diskless-sync-delay 0"
                .to_owned(),
        ];
        if let Some(made) = certificates {
            lines.push(format!("tls-port {}\ntls-auth-clients no", tls.number()));
            let files = [("cert", made.certificate()), ("key", made.key()), ("ca-cert", made.authority())];
            lines.extend(files.map(|(option, path)| format!("tls-{option}-file {}", path.display())));
        }
        lines.extend(as_lines(settings));
        let folder = folder("redis");
        write_settings(folder.path(), &lines);
        let hangs = (disk == Disk::MayHang).then(|| hanging_disk::variables(folder.path()));
        let command = move || -> Command {
            let mut command = process::mortal(None, process::find_server("env", "coreutils"));
            command.args(hangs.iter().flatten()).arg(&program).arg(SETTINGS);
            command
        };
        let ready = move || probe_redis(address);
        let server = Server::new("redis", vec![port, tls], folder, command, ready);
        Self { server, tls: tls_address }
    }
}

impl Deref for Redis {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// Sentinels that watch a primary and promote a replica when a majority finds the primary down.
///
/// They consider a primary down after half a second without an answer.
#[derive(Debug)]
pub struct RedisSentinels {
    nodes: Vec<Server>,
}

impl RedisSentinels {
    /// Starts that many Sentinels and waits until they know each other and the replicas.
    ///
    /// # Panics
    ///
    /// If `redis-server` is not installed, or if they do not agree within a minute. Replicas have to be
    /// connected.
    pub fn start(count: usize, primary: &Redis) -> Self {
        let make = || Self { nodes: (0..count).map(|_| sentinel(primary, count / 2 + 1)).collect() };
        let sentinels = Server::start(make, |it| start_all(&it.nodes));
        let replicas = primary.info("connected_slaves");
        let others = (count - 1).to_string();
        for node in &sentinels.nodes {
            let know = holds_within(PATIENCE, || {
                let told = ask(node.address(), &["SENTINEL", "MASTER", WATCHED]);
                let lines: Vec<&str> = told.lines().collect();
                let has = |name, value: &str| lines.windows(2).any(|it| it == [name, value]);
                has("num-other-sentinels", &others) && has("num-slaves", &replicas)
            });
            assert!(know, "{node:?} does not know the others; its log:\n{}", node.log());
        }
        sentinels
    }

    /// The Sentinels, also those that are down.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// The address of the primary, according to a majority.
    pub fn primary(&self) -> Option<SocketAddr> {
        let told: Vec<SocketAddr> = self.nodes.iter().filter_map(told_primary).collect();
        let most = told.iter().max_by_key(|it| told.iter().filter(|other| other == it).count())?;
        Some(*most).filter(|it| told.iter().filter(|other| *other == it).count() > self.nodes.len() / 2)
    }

    /// Waits until a majority names another primary, which then accepts writes, and returns its address.
    ///
    /// # Panics
    ///
    /// If that takes more than three minutes.
    pub fn wait_replaced(&self, primary: &Redis) -> SocketAddr {
        let other = || self.primary().filter(|it| *it != primary.address());
        let replaced = holds_within(PATIENCE, || {
            other().is_some_and(|it| ask(it, &["ROLE"]).lines().next() == Some("master"))
        });
        let log = self.nodes.iter().map(Server::log).collect::<String>();
        other()
            .filter(|_| replaced)
            .unwrap_or_else(|| panic!("no failover from {primary:?}; the logs:\n{log}"))
    }

    /// Waits until each Sentinel names this primary. One that does not know of a failover yet would revert
    /// it.
    ///
    /// # Panics
    ///
    /// If that takes more than three minutes.
    pub fn wait_agreed(&self, primary: &Redis) {
        let name_it = || self.nodes.iter().all(|node| told_primary(node) == Some(primary.address()));
        assert!(holds_within(PATIENCE, name_it), "not all Sentinels name {primary:?}");
    }

    /// Changes how long a primary may be silent before the Sentinels consider it down.
    ///
    /// # Panics
    ///
    /// If a Sentinel refuses.
    pub fn patience(&self, silence: Duration) {
        let ms = silence.as_millis().to_string();
        for node in &self.nodes {
            let told = ask(node.address(), &["SENTINEL", "SET", WATCHED, "down-after-milliseconds", &ms]);
            assert_eq!(told, "OK");
        }
    }

    /// Makes the Sentinels fail over, whether the primary is alive or not, and returns the new one.
    ///
    /// # Panics
    ///
    /// If that takes more than three minutes.
    pub fn replace(&self, primary: &Redis) -> SocketAddr {
        let asked = self.nodes[0].address();
        let replaced = holds_within(PATIENCE, || {
            // Ask again only if no failover runs and none has happened: a repeated order would replace the
            // new primary while it accepts writes. One answer tells both. They also refuse if they have not
            // heard from a replica for a moment.
            let told = ask(asked, &["SENTINEL", "MASTER", WATCHED]);
            let lines: Vec<&str> = told.lines().collect();
            let value = |name: &str| lines.windows(2).find(|it| it[0] == name).map_or("", |it| it[1]);
            let is_idle = !value("flags").contains("failover_in_progress");
            if is_idle && value("port") == primary.port().to_string() {
                ask(asked, &["SENTINEL", "FAILOVER", WATCHED]);
            }
            holds_within(Duration::from_secs(1), || self.primary().is_some_and(|it| it != primary.address()))
        });
        assert!(replaced, "no failover from {primary:?}");
        self.wait_replaced(primary)
    }
}

fn told_primary(node: &Server) -> Option<SocketAddr> {
    let told = ask(node.address(), &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", WATCHED]);
    let (host, port) = told.split_once('\n')?;
    format!("{host}:{port}").parse().ok()
}

fn sentinel(primary: &Redis, quorum: usize) -> Server {
    let program = program();
    let (port, folder) = (Port::reserve(), folder("sentinel"));
    let lines = [
        format!("bind 127.0.0.1\nport {}\nprotected-mode no", port.number()),
        format!("sentinel monitor {WATCHED} 127.0.0.1 {} {quorum}", primary.port()),
        format!("sentinel down-after-milliseconds {WATCHED} 500\nsentinel failover-timeout {WATCHED} 5000"),
    ];
    write_settings(folder.path(), &lines);
    let command = move || {
        let mut command = process::mortal(None, &program);
        command.args([SETTINGS, "--sentinel"]);
        command
    };
    let address = port.address();
    Server::new("redis-sentinel", vec![port], folder, command, move || probe_redis(address))
}

/// The program of the server, also of a Sentinel.
fn program() -> PathBuf {
    let name = if process::is_replaced_by("valkey") { "valkey-server" } else { "redis-server" };
    process::find_server(name, name)
}

/// Sends a command with `redis-cli`, without the product.
fn ask(address: SocketAddr, command: &[&str]) -> String {
    let mut cli = Command::new(process::find("redis-cli", "redis-tools"));
    cli.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]).args(command);
    String::from_utf8_lossy(&cli.output().unwrap().stdout).trim_end().to_owned()
}

fn write_settings(folder: &Path, lines: &[String]) {
    fs::write(folder.join(SETTINGS), lines.join("\n") + "\n").unwrap();
}

/// Turns `--name value value` into lines of a settings file.
fn as_lines(settings: &[&str]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in settings {
        match (word.strip_prefix("--"), lines.last_mut()) {
            (None, Some(line)) if word.is_empty() => line.push_str(" \"\""),
            (None, Some(line)) => {
                line.push(' ');
                line.push_str(word);
            }
            (name, _) => lines.push(name.unwrap_or(word).to_owned()),
        }
    }
    lines
}
