//! A driver process: commands go to its standard input, answers come from its standard output.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// Who waits for an answer, by the id of the command; `None` when the driver has ended.
type Pending = Arc<Mutex<Option<HashMap<u64, Sender<Value>>>>>;

/// A running driver.
#[derive(Debug)]
pub struct Driver {
    child: Child,
    input: Option<ChildStdin>,
    pending: Pending,
    last_id: u64,
}

/// Why a driver gave no answer.
#[derive(Debug)]
pub enum DriverError {
    /// It cannot be started.
    Start(std::io::Error),
    /// It ended, or closed its standard output.
    Ended,
    /// It did not answer in time.
    Late(Duration),
}

impl std::fmt::Display for DriverError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Start(error) => write!(f, "the driver does not start: {error}"),
            Self::Ended => f.write_str("the driver has ended"),
            Self::Late(limit) => write!(f, "the driver did not answer within {limit:?}"),
        }
    }
}

impl std::error::Error for DriverError {}

/// The answer to one command, when it comes.
#[derive(Debug)]
pub struct Answer(Receiver<Value>);

impl Answer {
    /// Waits for the answer.
    ///
    /// # Errors
    ///
    /// If the driver ends, or sends none in this time.
    pub fn within(&self, limit: Duration) -> Result<Value, DriverError> {
        self.0.recv_timeout(limit).map_err(|error| match error {
            std::sync::mpsc::RecvTimeoutError::Timeout => DriverError::Late(limit),
            std::sync::mpsc::RecvTimeoutError::Disconnected => DriverError::Ended,
        })
    }
}

impl Driver {
    /// Starts a driver: a program and its arguments.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(command: &[String]) -> Result<Self, DriverError> {
        let missing = || DriverError::Start(std::io::ErrorKind::NotFound.into());
        let (program, args) = command.split_first().ok_or_else(missing)?;
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(DriverError::Start)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let pending: Pending = Arc::new(Mutex::new(Some(HashMap::new())));
        let waiting = Arc::clone(&pending);
        thread::spawn(move || {
            for line in output.into_iter().flat_map(|it| BufReader::new(it).lines()).map_while(Result::ok) {
                receive(&line, &waiting);
            }
            *lock(&waiting) = None;
        });
        Ok(Self { child, input, pending, last_id: 0 })
    }

    /// Sends a command; `id` is added.
    pub fn send(&mut self, mut command: Value) -> Answer {
        let (sender, receiver) = channel();
        self.last_id += 1;
        command["id"] = self.last_id.into();
        if let Some(pending) = &mut *lock(&self.pending) {
            pending.insert(self.last_id, sender);
        }
        if let Some(input) = &mut self.input {
            // If it has ended, the wait for the answer says so.
            writeln!(input, "{command}").and_then(|()| input.flush()).ok();
        }
        Answer(receiver)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.input = None;
        let ends = snowmint_test_servers::time::holds_within(Duration::from_secs(3), || {
            matches!(self.child.try_wait(), Ok(Some(_)))
        });
        if !ends {
            self.child.kill().ok();
        }
        self.child.wait().ok();
    }
}

/// Hands an answer to whoever waits for it.
fn receive(line: &str, waiting: &Pending) {
    let Ok(answer) = serde_json::from_str::<Value>(line) else {
        eprintln!("the driver wrote a line that is not JSON: {line}");
        return;
    };
    let id = answer["id"].as_u64().unwrap_or_default();
    let sender = lock(waiting).as_mut().and_then(|waiting| waiting.remove(&id));
    match sender {
        // Nobody may wait for it any more.
        Some(sender) => drop(sender.send(answer)),
        None => eprintln!("the driver answered a command that was not sent: {line}"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
