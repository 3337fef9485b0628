//! The way of lines to standard error while `serve` runs: a queue of bounded size, and a thread that writes.
//!
//! If the reader of standard error stops, each write to a full pipe waits without end. Threads that serve
//! clients or renew leases must not wait for that, nor must the end of the process. So they only put lines
//! into the queue. A line that finds the queue full is dropped and counted.
//!
//! The writers of other crates limit the queue by lines, not by bytes, write each line by a system call of
//! its own, and report a failed flush to the very output that is stuck.

use std::borrow::Cow;
use std::io::{self, Write};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

/// Maximum bytes of the lines that wait. As many may be with the writer.
const ROOM: usize = 4 << 20;
/// Room beyond that for the lines of a command that ends: the last words of a process.
const RESERVE: usize = 64 << 10;
/// The part of it for the lines about requests: a flood of requests must not push out the lines about the
/// node.
const ROOM_FOR_REQUESTS: usize = ROOM / 4 * 3;
/// Wait between two attempts to write to an output that somebody made non-blocking, and that is full.
const RETRY: Duration = Duration::from_millis(10);
/// Time for which the end of the process waits for the reader of standard error.
const PATIENCE: Duration = Duration::from_secs(1);

/// The target of the lines about requests.
pub(crate) const ACCESS: &str = "snowmint::access";

/// The queue of this process.
static STARTED: OnceLock<Arc<LogQueue>> = OnceLock::new();

/// Lines on their way to an output.
#[derive(Debug, Default)]
pub(crate) struct LogQueue {
    state: Mutex<QueueState>,
    filled: Condvar,
    written: Condvar,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Whole lines, in order.
    waiting: Vec<u8>,
    is_writing: bool,
}

impl QueueState {
    const fn is_done(&self) -> bool {
        self.waiting.is_empty() && !self.is_writing
    }
}

/// Returns the queue to standard error, and starts its thread if it does not run yet.
///
/// # Errors
///
/// The system starts no thread.
pub(crate) fn start() -> io::Result<Arc<LogQueue>> {
    let queue = Arc::clone(STARTED.get_or_init(Arc::default));
    let writer = Arc::clone(&queue);
    // From here on only this thread writes to standard error: the lock of `stderr` would make others wait as
    // the pipe does.
    thread::Builder::new().name("log".to_owned()).spawn(move || {
        writer.write_to(io::stderr(), |lines| {
            tracing::warn!(lines, "log lines were dropped: the reader of standard error was too slow");
        });
    })?;
    Ok(queue)
}

/// Writes a line to standard error: through the queue if it was started, else at once.
pub(crate) fn write_line(line: &str) {
    match STARTED.get() {
        Some(queue) => queue.push(format!("{line}\n").as_bytes(), ROOM + RESERVE),
        // If standard error is closed, nobody is listening.
        None => drop(writeln!(io::stderr(), "{line}")),
    }
}

/// Waits until all lines are written, but not longer than a second: the process ends although nobody reads.
pub(crate) fn flush() {
    if let Some(queue) = STARTED.get() {
        queue.flush(PATIENCE);
    }
}

impl LogQueue {
    /// Returns the number of lines that were dropped since the start.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns the lines that wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> String {
        String::from_utf8_lossy(&self.state().waiting).into_owned()
    }

    /// Adds a line, unless more than `room` bytes would wait then.
    fn push(&self, line: &[u8], room: usize) {
        let mut state = self.state();
        if state.waiting.len().saturating_add(line.len()) > room {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.waiting.extend_from_slice(line);
        drop(state);
        self.filled.notify_one();
    }

    /// Waits until all lines are written, for `within` at most. Returns whether they are.
    fn flush(&self, within: Duration) -> bool {
        let state = self.state();
        let waited = self.written.wait_timeout_while(state, within, |state| !state.is_done());
        waited.unwrap_or_else(PoisonError::into_inner).0.is_done()
    }

    /// Writes the lines as they come; never ends. Reports how many were dropped once it has caught up.
    fn write_to(&self, mut out: impl Write, report: impl Fn(u64)) -> ! {
        let (mut lines, mut reported) = (Vec::new(), 0);
        loop {
            let state = self.filled.wait_while(self.state(), |state| state.waiting.is_empty());
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            mem::swap(&mut state.waiting, &mut lines);
            state.is_writing = true;
            drop(state);
            let is_written = self.write(&mut out, &lines);
            lines.clear();
            let mut state = self.state();
            state.is_writing = false;
            let is_done = state.is_done();
            drop(state);
            let dropped = self.dropped();
            if is_written && is_done && dropped > reported {
                report(dropped - reported);
                reported = dropped;
            }
            self.written.notify_all();
        }
    }

    /// Writes lines. Counts as dropped what the output refuses.
    fn write(&self, out: &mut impl Write, mut lines: &[u8]) -> bool {
        while !lines.is_empty() {
            match out.write(lines) {
                Ok(written) if written > 0 => lines = &lines[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(RETRY),
                _ => {
                    let rest = lines.split_inclusive(|byte| *byte == b'\n').count();
                    self.dropped.fetch_add(rest as u64, Ordering::Relaxed);
                    return false;
                }
            }
        }
        true
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        // Whole lines are added at once, so a panic elsewhere leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a line as it may be written.
pub(crate) type CleanLine = fn(&str) -> Cow<'_, str>;

/// Makes the writers of the subscriber, which writes a line at once.
pub(crate) struct Lines {
    pub(crate) queue: Arc<LogQueue>,
    pub(crate) clean: CleanLine,
}

/// Takes one line.
pub(crate) struct LineWriter<'a> {
    lines: &'a Lines,
    room: usize,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = LineWriter<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        LineWriter { lines: self, room: ROOM }
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> Self::Writer {
        let room = if about.target() == ACCESS { ROOM_FOR_REQUESTS } else { ROOM };
        LineWriter { lines: self, room }
    }
}

impl Write for LineWriter<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let body = text.strip_suffix('\n').unwrap_or(&text);
        let clean = format!("{}{}", (self.lines.clean)(body), &text[body.len()..]);
        self.lines.queue.push(clean.as_bytes(), self.room);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    /// An output whose reader takes one write when the test says so.
    struct Pipe {
        taken: Receiver<()>,
        sent: Sender<Vec<u8>>,
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.taken.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.sent.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn queue() -> (Arc<LogQueue>, Sender<()>, Receiver<Vec<u8>>, Receiver<u64>) {
        let queue = Arc::new(LogQueue::default());
        let ((take, taken), (sent, out), (report, reports)) = (channel(), channel(), channel());
        let writer = Arc::clone(&queue);
        thread::spawn(move || writer.write_to(Pipe { taken, sent }, |lines| report.send(lines).unwrap()));
        (queue, take, out, reports)
    }

    /// Goal: with a reader that has stopped, lines are dropped and counted, nobody waits, and what was kept
    /// comes whole and in order once it reads. Method: a reader that the test controls, and room for two
    /// lines.
    #[test]
    fn lines_are_dropped_while_nobody_reads() {
        let (queue, take, out, reports) = queue();
        queue.push(b"first\n", 12);
        // The writer has taken it, and waits for the reader.
        while !queue.state().is_writing {
            thread::yield_now();
        }
        for line in [b"line1\n", b"line2\n", b"line3\n", b"line4\n"] {
            queue.push(line, 12);
        }
        assert_eq!(queue.dropped(), 2);
        assert!(!queue.flush(Duration::from_millis(1)));
        take.send(()).unwrap();
        take.send(()).unwrap();
        assert!(queue.flush(LONG));
        let written: Vec<_> = out.try_iter().collect();
        assert_eq!(written, [&b"first\n"[..], b"line1\nline2\n"]);
        assert_eq!(reports.recv_timeout(LONG), Ok(2));
        queue.push(b"line5\n", 12);
        take.send(()).unwrap();
        assert!(queue.flush(LONG));
        assert_eq!(out.recv_timeout(LONG).unwrap(), b"line5\n");
        assert!(reports.try_recv().is_err(), "reported once");
    }

    /// Goal: lines about requests leave room for the others.
    #[test]
    fn a_flood_of_requests_leaves_room_for_the_node() {
        let (queue, _take, _out, _reports) = queue();
        queue.push(b"\n", ROOM);
        while !queue.state().is_writing {
            thread::yield_now();
        }
        let lines = Lines { queue: Arc::clone(&queue), clean: |line| line.into() };
        let line = vec![b'a'; 1 << 16];
        let mut access = LineWriter { lines: &lines, room: ROOM_FOR_REQUESTS };
        for _ in 0..=ROOM / line.len() {
            access.write_all(&line).unwrap();
        }
        let dropped = queue.dropped();
        assert!(dropped > 0);
        lines.make_writer().write_all(&line).unwrap();
        assert_eq!(queue.dropped(), dropped);
    }

    #[test]
    fn lines_for_a_closed_output_are_counted() {
        let (queue, take, _out, _reports) = queue();
        drop(take);
        queue.push(b"a\nb\n", ROOM);
        assert!(queue.flush(LONG));
        assert_eq!(queue.dropped(), 2);
    }
}
