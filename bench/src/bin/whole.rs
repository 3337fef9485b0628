//! The server as a whole: time from its start to the first id, memory when idle, size of the binary.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::process::Signal;
use snowmint_bench::server::{Outcome, Scratch, Server};
use snowmint_bench::stats::{median, quantile};
use snowmint_bench::table::{Table, figure};

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

fn measure(binary: &Path, quick: bool) -> Outcome<()> {
    let scratch = Scratch::new("whole")?;
    let data = scratch.0.join("data");
    let rounds = if quick { 3 } else { 15 };

    let mut table = Table::new("The server as a whole", &["what", "measured", "aim", "met"]);
    let mut starts = |what: &str, stop: Signal, rounds: usize| -> Outcome<()> {
        let mut ms = Vec::new();
        for _ in 0..rounds {
            let (server, taken) = Server::start(binary, &data, &[])?;
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

    let (server, _) = Server::start(binary, &data, &[])?;
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
