//! How operators back up each store and restore it.

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};

use snowmint_test_servers::snowmint::third_party;
use snowmint_test_servers::{Etcd, MariaDb, Postgres, Redis, Server, ZooKeeper};
use tempfile::TempDir;

/// The way in which running nodes get to the restored store.
pub(crate) enum Nodes {
    /// The restored store has the address of the old one.
    GoOn,
    /// The nodes have to be restarted with this store.
    Start(String),
}

/// A store that is backed up and restored.
pub(crate) trait Restorable {
    /// The URL for `--store` of the nodes.
    fn url(&self) -> String;

    fn back_up(&self);

    /// Disconnects the nodes from the store.
    fn stop(&self);

    /// Restores it where no node can reach it, and returns its URL.
    fn restore_aside(&self) -> String;

    /// Moves the restored store to the address that the nodes use.
    fn put_in_place(&self) -> Nodes;

    /// Restores it in its place, and lets the nodes reach it at once.
    fn restore_under_nodes(&self) {
        self.stop();
        self.restore_aside();
        self.put_in_place();
    }
}

/// A folder for backups that the users of all servers may enter.
fn open_folder() -> TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// An SQLite file.
pub(crate) struct File {
    folder: TempDir,
}

impl File {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn sqlite3(&self, commands: &[&str]) {
        let data = self.path("snowmint.db");
        let words = [data.to_str().unwrap(), ".timeout 5000"];
        third_party::output("sqlite3", words.iter().chain(commands));
    }
}

impl Restorable for File {
    fn url(&self) -> String {
        format!("sqlite:{}", self.path("snowmint.db").display())
    }

    fn back_up(&self) {
        self.sqlite3(&[&format!(".backup {}", self.path("copy.db").display())]);
    }

    fn stop(&self) {
        fs::create_dir(self.path("old")).unwrap();
        for name in ["snowmint.db", "snowmint.db-wal", "snowmint.db-shm"] {
            fs::rename(self.path(name), self.path("old").join(name)).unwrap();
        }
    }

    fn restore_aside(&self) -> String {
        fs::copy(self.path("copy.db"), self.path("restored.db")).unwrap();
        format!("sqlite:{}", self.path("restored.db").display())
    }

    /// Nodes that have the old file open do not switch to another file of the same name.
    fn put_in_place(&self) -> Nodes {
        fs::rename(self.path("restored.db"), self.path("snowmint.db")).unwrap();
        Nodes::Start(self.url())
    }

    fn restore_under_nodes(&self) {
        self.sqlite3(&[&format!(".restore {}", self.path("copy.db").display())]);
    }
}

/// A server whose data can be copied to a folder and taken from one.
pub(crate) trait Data {
    /// The folder with its data.
    const FOLDER: &str;

    fn start() -> Self;

    fn server(&self) -> &Server;

    fn url(&self) -> String;

    fn back_up(&self, to: &Path);

    fn load(&self, from: &Path);
}

impl Data for Etcd {
    const FOLDER: &str = "data";

    fn start() -> Self {
        Self::start()
    }

    fn server(&self) -> &Server {
        self
    }

    fn url(&self) -> String {
        format!("etcd://{}", self.address())
    }

    fn back_up(&self, to: &Path) {
        let endpoints = format!("http://{}", self.address());
        etcdctl(&["--endpoints", &endpoints, "snapshot", "save", &to.display().to_string()]);
    }

    fn load(&self, from: &Path) {
        let restored = from.with_extension("data").display().to_string();
        etcdctl(&["snapshot", "restore", &from.display().to_string(), "--data-dir", &restored]);
        self.replace(Self::FOLDER, Path::new(&restored));
        self.restart();
    }
}

fn etcdctl(words: &[&str]) {
    let words = ["ETCDCTL_API=3", "etcdctl"].iter().chain(words);
    third_party::output("env", words);
}

impl Data for Postgres {
    const FOLDER: &str = "data";

    fn start() -> Self {
        Self::start()
    }

    fn server(&self) -> &Server {
        self
    }

    fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }

    fn back_up(&self, to: &Path) {
        self.back_up(to);
    }

    fn load(&self, from: &Path) {
        self.replace(Self::FOLDER, from);
        self.restart();
    }
}

impl Data for Redis {
    const FOLDER: &str = "appendonlydir";

    fn start() -> Self {
        Self::start()
    }

    fn server(&self) -> &Server {
        self
    }

    fn url(&self) -> String {
        format!("redis://{}?may_lose=500ms", self.address())
    }

    fn back_up(&self, to: &Path) {
        fs::copy(self.save(), to).unwrap();
    }

    fn load(&self, from: &Path) {
        self.load(from);
    }
}

impl Data for MariaDb {
    const FOLDER: &str = "data";

    fn start() -> Self {
        Self::start()
    }

    fn server(&self) -> &Server {
        self
    }

    fn url(&self) -> String {
        format!("mysql://root@{}/test", self.address())
    }

    fn back_up(&self, to: &Path) {
        let socket = format!("--socket={}", self.folder().join("socket").display());
        let words =
            ["--no-defaults", "--user=root", "--single-transaction", &socket, "test", "snowmint_records"];
        fs::write(to, third_party::output("mariadb-dump", words)).unwrap();
    }

    fn load(&self, from: &Path) {
        let load = "exec mariadb --no-defaults --user=root --socket=\"$0\" test < \"$1\"";
        let socket = self.folder().join("socket");
        third_party::output("sh", [Path::new("-c"), Path::new(load), &socket, from]);
    }
}

impl Data for ZooKeeper {
    const FOLDER: &str = "data";

    fn start() -> Self {
        Self::start()
    }

    fn server(&self) -> &Server {
        self
    }

    fn url(&self) -> String {
        format!("zookeeper://{}/snowmint", self.address())
    }

    /// For a running server: the write-ahead log in the folder completes the snapshot.
    fn back_up(&self, to: &Path) {
        let data = self.folder().join(Self::FOLDER);
        third_party::output("cp", [Path::new("-a"), &data, to]);
    }

    fn load(&self, from: &Path) {
        self.replace(Self::FOLDER, from);
        self.restart();
    }
}

/// A server, and a second one on which it is restored first.
pub(crate) struct Backed<S> {
    server: S,
    aside: OnceCell<S>,
    backups: TempDir,
}

impl<S: Data> Backed<S> {
    pub(crate) fn start() -> Self {
        Self { server: S::start(), aside: OnceCell::new(), backups: open_folder() }
    }

    fn backup(&self) -> PathBuf {
        self.backups.path().join("backup")
    }
}

impl<S: Data> Restorable for Backed<S> {
    fn url(&self) -> String {
        self.server.url()
    }

    fn back_up(&self) {
        self.server.back_up(&self.backup());
    }

    fn stop(&self) {
        self.server.server().kill9();
    }

    fn restore_aside(&self) -> String {
        let aside = self.aside.get_or_init(S::start);
        aside.load(&self.backup());
        aside.url()
    }

    fn put_in_place(&self) -> Nodes {
        let (server, aside) = (self.server.server(), self.aside.get().unwrap().server());
        aside.kill9();
        server.replace(S::FOLDER, &aside.folder().join(S::FOLDER));
        server.restart();
        Nodes::GoOn
    }
}

/// A dump of a PostgreSQL table, which is loaded into a new database.
pub(crate) struct Dumped {
    server: Postgres,
    aside: Postgres,
    backups: TempDir,
}

impl Dumped {
    pub(crate) fn start() -> Self {
        Self { server: Postgres::start(), aside: Postgres::start(), backups: open_folder() }
    }

    fn backup(&self) -> String {
        self.backups.path().join("backup.sql").display().to_string()
    }
}

/// Returns the arguments with which the PostgreSQL tools find a server.
fn found_at(server: &Postgres) -> [String; 2] {
    ["--dbname".to_owned(), Data::url(server)]
}

impl Restorable for Dumped {
    fn url(&self) -> String {
        Data::url(&self.server)
    }

    fn back_up(&self) {
        let words = ["--table=snowmint_records".to_owned(), format!("--file={}", self.backup())];
        third_party::output("pg_dump", words.into_iter().chain(found_at(&self.server)));
    }

    fn stop(&self) {
        self.server.kill9();
    }

    fn restore_aside(&self) -> String {
        let words = ["--quiet", "--set=ON_ERROR_STOP=1", "--file"].map(str::to_owned);
        third_party::output("psql", words.into_iter().chain([self.backup()]).chain(found_at(&self.aside)));
        Data::url(&self.aside)
    }

    fn put_in_place(&self) -> Nodes {
        Nodes::Start(Data::url(&self.aside))
    }
}
