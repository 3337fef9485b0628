//! The table of `tests/README.md`: for each fault on each store, the time without ids for a client that sends
//! a request to the release binary every millisecond. To measure it again: `cargo build --release -p
//! snowmint-cli`, then `SNOWMINT_BIN=$PWD/target/release/snowmint cargo nextest run -p snowmint-blackbox
//! --run-ignored only -E 'test(fault_table)' --no-capture`.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use snowmint_test_servers::Server as StoreServer;
use snowmint_test_servers::snowmint::chaos::{Node, Offset};
use snowmint_test_servers::snowmint::{self, Serve, Server};
use snowmint_test_servers::time;

use super::coordinators::{Coordinators, Kind, Links, Trouble};
use super::observer::{Gap, Observer};

/// Within the default window of 10 s.
const SHORT: Duration = Duration::from_secs(3);
/// Beyond that window.
const LONG: Duration = Duration::from_secs(15);
/// On a busy machine a thread may wait this long for a core. A node without ids reports an error much sooner,
/// so a shorter gap without an error is not an interruption.
const NOISE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_mins(1);

const STORES: [(&str, Option<Kind>); 6] = [
    ("etcd ×3", Some(Kind::Etcd)),
    ("ZooKeeper ×3", Some(Kind::ZooKeeper)),
    ("PostgreSQL", Some(Kind::Postgres)),
    ("MariaDB", Some(Kind::MariaDb)),
    ("Redis", Some(Kind::Redis)),
    ("SQLite", None),
];

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    StoreRestarted,
    StoreDown,
    StorePaused,
    LeaderKilled,
    LeaderPaused,
    ConnectionsCut,
    CutOff,
    NodeKilled,
    NodePaused,
    SteppedAhead,
    SteppedBack,
    StartedAhead,
    StartedBehind,
}

impl Fault {
    const OF_STORES: [Self; 7] = [
        Self::StoreRestarted,
        Self::StoreDown,
        Self::StorePaused,
        Self::LeaderKilled,
        Self::LeaderPaused,
        Self::ConnectionsCut,
        Self::CutOff,
    ];
    const OF_NODES: [Self; 6] = [
        Self::NodeKilled,
        Self::NodePaused,
        Self::SteppedAhead,
        Self::SteppedBack,
        Self::StartedAhead,
        Self::StartedBehind,
    ];

    /// The fault, and its effect.
    const fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::StoreRestarted => {
                ("store killed (`kill -9`, all members), up again after 3 s", "the renewal is made up for")
            }
            Self::StoreDown => {
                ("store down for 15 s", "ids to the end of the lease, then errors until the store is back")
            }
            Self::StorePaused => ("store paused for 15 s (SIGSTOP, all members)", "the same"),
            Self::LeaderKilled => ("leader killed, down for 15 s", "another leads"),
            Self::LeaderPaused => {
                ("leader paused for 15 s", "another leads; what the old one says then is not believed")
            }
            Self::ConnectionsCut => ("the node's connections cut", "it connects again"),
            Self::CutOff => {
                ("the node cut off for 3 s: nothing gets through", "it goes on when something does")
            }
            Self::NodeKilled => (
                "node killed (`kill -9`) and started again",
                "another worker; this is the time from start to first id",
            ),
            Self::NodePaused => (
                "node paused for 15 s (SIGSTOP)",
                "errors until it holds a lease again; this is the time from SIGCONT to the first id",
            ),
            Self::SteppedAhead => {
                ("clock stepped by +1 h while it runs", "ids go on by boot time; a log line, a metric")
            }
            Self::SteppedBack => ("clock stepped by −1 h while it runs", "the same"),
            Self::StartedAhead => (
                "node killed and started with its clock +1 h",
                "refused where the store has a time of its own; else its worker's next hour is taken",
            ),
            Self::StartedBehind => {
                ("node killed and started with its clock −1 h", "a worker whose records allow it")
            }
        }
    }
}

/// Goal: the figures in the docs can be measured again. Method: for each store, one node after the other is
/// observed while a fault begins and ends. The test asserts only that ids return.
#[test]
#[ignore = "a measurement of a quarter of an hour, for the documents"]
fn fault_table() {
    let mut columns = Vec::new();
    for (name, kind) in STORES {
        let cells = of_store(kind);
        println!("{name}: {cells:?}");
        columns.push(cells);
    }
    let names = STORES.map(|(name, _)| name).join(" | ");
    let mut table = format!("| fault | what happens | {names} |\n|---|---|{}", "---|".repeat(STORES.len()));
    for (row, fault) in Fault::OF_STORES.into_iter().chain(Fault::OF_NODES).enumerate() {
        let (what, then) = fault.text();
        let cells: Vec<&str> = columns.iter().map(|column| column[row].as_str()).collect();
        let _ = write!(table, "\n| {what} | {then} | {} |", cells.join(" | "));
    }
    snowmint::publish("fault-table", &table);
}

/// The column of one store, from the first row to the last.
fn of_store(kind: Option<Kind>) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let coordinators = kind.map(Coordinators::start);
    let (folder, coordinators) = (folder.path(), coordinators.as_ref());
    let of_stores = Fault::OF_STORES.into_iter().map(|fault| store_fault(folder, coordinators, fault));
    let cells: Vec<String> = of_stores.collect();
    let of_nodes = Fault::OF_NODES.into_iter().map(|fault| node_fault(folder, coordinators, fault));
    cells.into_iter().chain(of_nodes).collect()
}

fn store_fault(folder: &Path, coordinators: Option<&Coordinators>, fault: Fault) -> String {
    let Some(coordinators) = coordinators else {
        let server = Serve::new(folder).start();
        return match fault {
            Fault::StorePaused => interruption(&server, || {
                let mut holder = hold_write_lock(folder);
                thread::sleep(LONG);
                holder.kill().unwrap();
                holder.wait().unwrap();
            }),
            _ => "–".to_owned(),
        };
    };
    let leader = coordinators.leader();
    if leader.is_none() && matches!(fault, Fault::LeaderKilled | Fault::LeaderPaused) {
        return "–".to_owned();
    }
    let links = Links::to(coordinators);
    let server = Serve::new(folder).args(["--store", links.url()]).start();
    let all = coordinators.servers();
    let leader = leader.map_or(all[0], |it| all[it]);
    let each = |act: fn(&StoreServer)| {
        for it in &all {
            act(it);
        }
    };
    interruption(&server, || match fault {
        Fault::StoreRestarted | Fault::StoreDown => {
            each(StoreServer::kill9);
            thread::sleep(if fault == Fault::StoreDown { LONG } else { SHORT });
            each(StoreServer::restart_without_waiting);
            each(StoreServer::wait_ready);
        }
        Fault::StorePaused => {
            each(StoreServer::pause);
            thread::sleep(LONG);
            each(StoreServer::resume);
        }
        Fault::LeaderKilled => {
            leader.kill9();
            thread::sleep(LONG);
            leader.restart();
        }
        Fault::LeaderPaused => {
            leader.pause();
            thread::sleep(LONG);
            leader.resume();
        }
        Fault::ConnectionsCut => links.strike(Trouble::Cut),
        _ => {
            links.strike(Trouble::Frozen);
            thread::sleep(SHORT);
            links.heal(Trouble::Frozen);
        }
    })
}

/// A process that holds a write transaction on the node's file until it is killed.
fn hold_write_lock(folder: &Path) -> Child {
    let script = "import sqlite3, sys, time\n\
                  it = sqlite3.connect(sys.argv[1], timeout=10, isolation_level=None)\n\
                  it.execute('BEGIN IMMEDIATE')\n\
                  print('held', flush=True)\n\
                  time.sleep(60)";
    let file = folder.join("data/snowmint.db");
    let mut python = Command::new("python3");
    let mut child = python.args(["-c", script]).arg(file).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 4];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    child
}

fn node_fault(folder: &Path, coordinators: Option<&Coordinators>, fault: Fault) -> String {
    let links = coordinators.map(Links::to);
    let serve = Serve::new(folder);
    let serve = links.iter().fold(serve, |serve, links| serve.args(["--store", links.url()]));
    let mut node = Node::start(folder, &serve);
    match fault {
        Fault::NodeKilled => started_again(&mut node, Offset::None),
        Fault::StartedAhead => started_again(&mut node, Offset::Ahead),
        Fault::StartedBehind => started_again(&mut node, Offset::Behind),
        Fault::NodePaused => {
            let observer = Observer::start(node.server().resp());
            thread::sleep(SHORT);
            node.pause(LONG);
            thread::sleep(LONG);
            let resumed = time::now();
            node.server().resume();
            await_renewal(node.server());
            in_words(observer.longest().ended.saturating_duration_since(resumed))
        }
        _ => {
            let observer = Observer::start(node.server().resp());
            thread::sleep(SHORT);
            node.step_to(if fault == Fault::SteppedAhead { Offset::Ahead } else { Offset::Behind });
            await_renewal(node.server());
            await_renewal(node.server());
            assert!(node.steps_seen() > 0, "the node did not see its clock jump");
            cell(&observer.longest(), None)
        }
    }
}

/// The time from the start of a node that was killed to its first id, or the reason why there is none.
fn started_again(node: &mut Node, offset: Offset) -> String {
    node.server().take(1000);
    node.kill_and_restart(&[], offset);
    let limit = time::now() + LONG;
    loop {
        if let Some((after, _)) = node.server().ask_once() {
            return in_words(after);
        }
        if node.server().log().contains("ahead of the store's") {
            return "refused".to_owned();
        }
        assert!(time::now() < limit, "no id and no word why:\n{}", node.server().log());
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the time without ids because of the fault that `strike` begins and ends.
fn interruption(server: &Server, strike: impl FnOnce()) -> String {
    let observer = Observer::start(server.resp());
    await_renewal(server);
    strike();
    let healed = time::now();
    await_renewal(server);
    cell(&observer.longest(), Some(healed))
}

/// Waits until the store has confirmed the lease once more.
fn await_renewal(server: &Server) {
    let renewals = || server.metric("snowmint_lease_renewals_total");
    let before = renewals();
    time::eventually("a renewal", PATIENCE, || (renewals() > before).then_some(()));
}

fn cell(gap: &Gap, healed: Option<Instant>) -> String {
    if gap.heard.is_empty() && gap.length() < NOISE {
        return "none".to_owned();
    }
    let mut text = in_words(gap.length());
    if let Some(error) = gap.error() {
        let _ = write!(text, ", `{error}`");
    }
    let after = healed.map(|healed| gap.ended.saturating_duration_since(healed));
    if let Some(after) = after.filter(|it| !it.is_zero()) {
        let _ = write!(text, "; ids {} after it is back", in_words(after));
    }
    text
}

fn in_words(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis().max(1))
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}
