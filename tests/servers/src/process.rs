//! A server as a process with children of its own: started so that it dies with us, and signalled as a whole.
//! Only processes that were started here are ever signalled, each by its id.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{LazyLock, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::time::eventually;

/// A command to start, and where to send what came of it.
type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// The one thread that starts servers. The system ends a child when the *thread* that started it ends, which for the
/// thread of a test or of a pool may be long before the server is done with; this one lives as long as the process.
static STARTER: LazyLock<Mutex<mpsc::Sender<Job>>> = LazyLock::new(|| {
    let (sender, jobs) = mpsc::channel::<Job>();
    let starter = move || {
        for (mut command, answer) in jobs {
            answer.send(command.spawn()).ok();
        }
    };
    thread::Builder::new().name("start-servers".to_owned()).spawn(starter).unwrap();
    Mutex::new(sender)
});

/// Starts a command on a thread that lives as long as this process.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    let (sender, answer) = mpsc::channel();
    STARTER.lock().unwrap().send((command, sender)).unwrap();
    answer.recv().unwrap()
}

/// SIGKILL for the process and all below it; returns when none of them runs any more.
pub(crate) fn kill(child: &mut Child) {
    // Stopped first, so that it starts no others while they are collected.
    let family = stop(child);
    for pid in &family {
        signal(*pid, Signal::KILL);
    }
    child.wait().unwrap();
    // Those below are not ours to wait for, and a server that finds them alive may refuse to start.
    let gone = eventually(Duration::from_secs(20), || family.iter().all(|pid| !runs(*pid)));
    assert!(gone, "processes {family:?} go on after SIGKILL");
}

/// SIGSTOP for the process and all below it; returns when every thread of them stands still.
pub(crate) fn pause(child: &Child) {
    let family = stop(child);
    // The signal is sent, not obeyed, when the call returns: a thread on another core may answer one request more.
    let still = eventually(Duration::from_secs(20), || family.iter().all(|pid| stands_still(*pid)));
    assert!(still, "processes {family:?} go on after SIGSTOP");
}

/// SIGCONT for the process and all below it.
pub(crate) fn resume(child: &Child) {
    for pid in family(child.id()) {
        signal(pid, Signal::CONT);
    }
}

/// Stops them all from the top down, until no new ones turn up, and returns their ids.
fn stop(child: &Child) -> Vec<u32> {
    let mut stopped: Vec<u32> = Vec::new();
    loop {
        let new: Vec<u32> = family(child.id()).into_iter().filter(|pid| !stopped.contains(pid)).collect();
        if new.is_empty() {
            return stopped;
        }
        for pid in &new {
            signal(*pid, Signal::STOP);
        }
        stopped.extend(new);
    }
}

/// The process and all below it, parents first.
fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    let mut next = 0;
    while let Some(parent) = family.get(next) {
        let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let found: Vec<u32> = children
            .flat_map(|line| line.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
            .collect();
        family.extend(found);
        next += 1;
    }
    family
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process id");
    // One that has ended by itself needs no signal.
    kill_process(pid, signal).ok();
}

/// Whether no thread of the process runs: each is stopped, or gone.
fn stands_still(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|it| state(&it.path())).all(|it| matches!(it, 'T' | 'Z' | 'X'))
}

/// Whether a process runs, rather than being gone or waiting to be collected.
fn runs(pid: u32) -> bool {
    state(Path::new(&format!("/proc/{pid}"))).is_some_and(|it| !matches!(it, 'Z' | 'X'))
}

/// The letter for the state of a process or a thread, if it is there.
fn state(folder: &Path) -> Option<char> {
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    // The name in brackets may hold anything, so look behind the last bracket.
    stat.rsplit_once(") ")?.1.chars().next()
}
