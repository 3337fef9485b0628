//! The server as a whole: from its start to the first id, its memory when idle, the size of its binary.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use snowmint_bench::stats::{median, quantile};
use snowmint_bench::table::{Table, figure};

const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(binary), quick) = (arguments.next(), arguments.next().as_deref() == Some("--quick")) else {
        eprintln!("usage: whole PATH-OF-SNOWMINT [--quick]");
        return ExitCode::from(2);
    };
    match measure(Path::new(&binary), quick) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("whole: {error}");
            ExitCode::FAILURE
        }
    }
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A directory that goes when it is dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn measure(binary: &Path, quick: bool) -> Outcome<()> {
    let scratch = Scratch(std::env::temp_dir().join(format!("snowmint-whole-{}", std::process::id())));
    fs::create_dir_all(&scratch.0)?;
    let data = scratch.0.join("data");
    let rounds = if quick { 3 } else { 15 };

    let mut table = Table::new("The server as a whole", &["what", "measured", "aim", "met"]);
    let mut starts = |what: &str, stop: Signal, rounds: usize| -> Outcome<()> {
        let mut ms = Vec::new();
        for _ in 0..rounds {
            let (server, taken) = Server::start(binary, &data)?;
            ms.push(taken.as_secs_f64() * 1e3);
            server.stop(stop)?;
        }
        let middle = median(&ms);
        let shown = format!("{} ms (slowest {} ms)", figure(middle), figure(quantile(&ms, 1.0)));
        let met = if middle < 100.0 { "yes" } else { "**no**" };
        table.row(&[format!("start to first id, {what}"), shown, "under 100 ms".into(), met.into()]);
        Ok(())
    };
    starts("no data yet", Signal::TERM, 1)?;
    starts("warm SQLite file", Signal::TERM, rounds)?;
    starts("warm SQLite file, the one before killed", Signal::KILL, rounds)?;

    let (server, _) = Server::start(binary, &data)?;
    let idle = Duration::from_secs(if quick { 1 } else { 5 });
    std::thread::sleep(Duration::from_millis(500));
    let before = server.cpu_ms()?;
    std::thread::sleep(idle);
    let cpu = (server.cpu_ms()? - before) / idle.as_secs_f64() / 10.0;
    let [rss, pss] =
        [server.kib("status", "VmRSS:")?, server.kib("smaps_rollup", "Pss:")?].map(|kib| kib / 1024.0);
    server.stop(Signal::TERM)?;
    let met = if rss < 20.0 { "yes" } else { "**no**" };
    table.row(&[
        "memory, idle: RSS (PSS)".into(),
        format!("{rss:.1} ({pss:.1}) MiB"),
        "under 20 MiB".into(),
        met.into(),
    ]);
    table.row(&["CPU, idle".into(), format!("{cpu:.2} % of a core"), "-".into(), "-".into()]);

    let mib = |path: &Path| fs::metadata(path).map(|data| data.len() as f64 / f64::from(1 << 20));
    let stripped = scratch.0.join("stripped");
    fs::copy(binary, &stripped)?;
    let size = match Command::new("strip").arg(&stripped).status() {
        Ok(status) if status.success() => {
            format!("{:.1} MiB (as built {:.1} MiB)", mib(&stripped)?, mib(binary)?)
        }
        _ => format!("as built {:.1} MiB, strip is not there", mib(binary)?),
    };
    table.row(&["binary, stripped".into(), size, "-".into(), "-".into()]);
    table.print();
    Ok(())
}

struct Server {
    child: Child,
}

impl Server {
    /// Starts a server and draws one id; the time is that from before the start to the answer.
    fn start(binary: &Path, data: &Path) -> Outcome<(Self, Duration)> {
        let (http, resp) = (free_port()?, free_port()?);
        let started = Instant::now();
        let child = Command::new(binary)
            .args(["serve", "--http", &http.to_string(), "--resp", &resp.to_string(), "--data"])
            .arg(data)
            // The same node each time, as behind a fixed port.
            .args(["--holder", "bench"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut server = Self { child };
        loop {
            if let Ok(true) = draw(resp) {
                return Ok((server, started.elapsed()));
            }
            if let Some(status) = server.child.try_wait()? {
                return Err(format!("snowmint serve ended: {status}").into());
            }
            if started.elapsed() > PATIENCE {
                return Err(format!("no id within {PATIENCE:?}").into());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn stop(mut self, signal: Signal) -> Outcome<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal)?;
        self.child.wait()?;
        Ok(())
    }

    fn proc(&self, file: &str) -> Outcome<String> {
        Ok(fs::read_to_string(format!("/proc/{}/{file}", self.child.id()))?)
    }

    fn kib(&self, file: &str, field: &str) -> Outcome<f64> {
        let text = self.proc(file)?;
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        Ok(line.and_then(|rest| rest.split_whitespace().next()).ok_or(format!("no {field}"))?.parse()?)
    }

    /// CPU time so far, all threads.
    fn cpu_ms(&self) -> Outcome<f64> {
        let mut ms = 0.0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = fs::read_to_string(task?.path().join("schedstat"))?;
            let ns: f64 = text.split_whitespace().next().ok_or("an empty schedstat")?.parse()?;
            ms += ns / 1e6;
        }
        Ok(ms)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Of one that was stopped there is nothing left to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks once for an id; `false` when the answer is an error, such as that there is no lease yet.
fn draw(resp: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(resp)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"*2\r\n$7\r\nID.NEXT\r\n$7\r\ndefault\r\n")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer.starts_with('$'))
}

fn free_port() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}
