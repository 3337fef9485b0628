//! `snowmint new`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;

use serde_json::Value;

use crate::support::{Sandbox, get, json};

fn ids(out: &str) -> Vec<u64> {
    out.lines().map(|line| line.parse().unwrap()).collect()
}

fn inspect(sandbox: &Sandbox, layout: &str, id: u64) -> Value {
    json(&sandbox.out(&["inspect", "--json", "--layout", layout, &id.to_string()]))
}

#[test]
fn two_runs_increase_and_keep_their_worker() {
    let sandbox = Sandbox::new();
    let first = ids(&sandbox.out(&["new", "-n", "1000"]));
    let second = ids(&sandbox.out(&["new", "-n", "1000"]));
    let all = [&first[..], &second].concat();
    assert_eq!(all.len(), 2000);
    assert!(all.is_sorted_by(|a, b| a < b));
    assert_eq!(
        inspect(&sandbox, "twitter", all[0])["worker"],
        inspect(&sandbox, "twitter", all[1999])["worker"]
    );
    assert!(sandbox.path("snowmint/snowmint.db").is_file());
}

#[test]
fn a_run_starts_where_it_is_told_to() {
    let sandbox = Sandbox::new();
    for place in [&["--store", "none", "--worker", "3"][..], &[]] {
        let sequences = |start: &[&str]| {
            let one = |_| ids(&sandbox.out(&[&["new"], place, start].concat()))[0] % 4096;
            std::array::from_fn::<u64, 3, _>(one)
        };
        let rolling = sequences(&[]);
        assert!(rolling != [0; 3] && rolling.iter().all(|it| *it < 2048 + 8), "{rolling:?}");
        assert_eq!(sequences(&["--sequence-start", "zero"]), [0; 3]);
        assert_ne!(sequences(&["--sequence-start", "random"]), [0; 3]);
        assert!(sequences(&["--sequence-start", "random(5)"]).iter().all(|it| *it < 5));
    }
}

#[test]
fn counts_end_at_both_bounds() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.out(&["new", "-n", "1"]).lines().count(), 1);
    for bad in ["0", "-1", "10000001", "1000000000", "ten", "", "1.0", "1e3", "99999999999999999999999"] {
        let told = sandbox.refused(&["new", "-n", bad], 2);
        assert!(
            told.contains(&format!("--count: invalid value \"{bad}\": expected 1 to 10,000,000")),
            "{told}"
        );
    }
    assert!(!Sandbox::new().path("snowmint").exists());
}

#[test]
fn many_ids_are_streamed_and_differ() {
    let sandbox = Sandbox::new();
    let all = ids(&sandbox.out(&["new", "-n", "200000"]));
    assert_eq!(all.len(), 200_000);
    assert!(all.is_sorted_by(|a, b| a < b));
}

/// Base62 in another order.
const SHUFFLED: &str = "alphabet=ohrfjdgPzp3T2XkNulQBFas9eJDmW7VKSC51cbUL8tRiOqIwZn406YEMyGxHAv";

#[test]
fn every_form_reads_back() {
    let sandbox = Sandbox::new();
    for form in ["dec", "decimal", "base62", "hex", "base32", "base36", "base58", "base58_flickr", SHUFFLED] {
        let made = sandbox.out(&["new", "-n", "20", "--format", form]);
        let read = sandbox.run_with_input(&["inspect", "--json", "--format", form], &made);
        assert_eq!((read.code, read.out.lines().count()), (0, 20), "{form}: {}", read.err);
        let first = json(read.out.lines().next().unwrap());
        let id = first["id"].as_str().unwrap();
        let text = made.lines().next().unwrap();
        match form {
            "hex" => assert_eq!(text, format!("{:016x}", id.parse::<u64>().unwrap())),
            "dec" | "decimal" => assert_eq!(text, id),
            "base32" => assert_eq!(text.len(), 13),
            _ => assert!(text.len() <= 13 && text != id, "{text}"),
        }
    }
}

#[test]
fn json_is_one_object_a_line_with_a_string() {
    let sandbox = Sandbox::new();
    let out = sandbox.out(&["new", "-n", "3", "--json"]);
    assert_eq!(out.lines().count(), 3);
    for line in out.lines() {
        assert!(json(line)["id"].as_str().unwrap().parse::<u64>().is_ok(), "{line}");
    }
    let out = sandbox.out(&["new", "--json", "--format", "hex"]);
    assert_eq!(json(&out)["id"].as_str().unwrap().len(), 16);
    // Characters that JSON escapes.
    let out = sandbox.out(&["new", "--json", "--format", "alphabet=\"\\"]);
    assert!(json(&out)["id"].as_str().unwrap().trim_matches(['"', '\\']).is_empty(), "{out}");
}

#[test]
fn worker_and_datacenter_are_in_the_id() {
    let sandbox = Sandbox::new();
    let id = ids(&sandbox.out(&["new", "--worker", "31", "--datacenter", "7"]))[0];
    let parts = inspect(&sandbox, "twitter", id);
    assert_eq!((&parts["worker"], &parts["datacenter"]), (&Value::from(31), &Value::from(7)));
}

#[test]
fn a_node_beyond_the_layout_is_refused() {
    let sandbox = Sandbox::new();
    for (args, wanted) in [
        (
            &["--layout", "leaf", "--worker", "1024"][..],
            "--worker: worker 1024 is out of range: this layout has worker 0 to 1023",
        ),
        (&["--layout", "leaf", "--datacenter", "1"], "--datacenter: the layout"),
        (
            &["--datacenter", "32"],
            "--datacenter: datacenter 32 is out of range: this layout has datacenter 0 to 31",
        ),
        (&["--worker", "-1"], "invalid worker `-1`: expected a number"),
        (&["--worker", "4294967296"], "invalid worker `4294967296`: expected a number"),
        (&["--layout", "baidu"], "--layout: layout `time:28@1s worker:22 sequence:13"),
        (
            &["--layout", "time:41 worker:10 sequence:12 epoch:9000-01-01"],
            "begins on 9000-01-01, after today",
        ),
        (&["--store", "oracle://root:secret@host/db"], "--store: unknown store `oracle:`"),
        (&["--store", "memory:"], "--store: memory: does not outlive this command"),
    ] {
        let told = sandbox.refused(&[&["new"], args].concat(), 2);
        assert!(told.contains(wanted), "{told}");
        assert!(!told.contains("secret"), "{told}");
    }
    assert!(!sandbox.path("snowmint").exists(), "nothing is made for what is refused");
}

#[test]
fn a_store_that_fails_is_a_failure_of_the_world() {
    let sandbox = Sandbox::new();
    std::fs::write(
        sandbox.path("noise.db"),
        "this is no SQLite file, though it is long enough to be read as one".repeat(100),
    )
    .unwrap();
    let told = sandbox.refused(&["new", "--store", "sqlite:noise.db"], 1);
    assert!(told.contains("noise.db"), "{told}");
    std::fs::write(sandbox.path("file"), "").unwrap();
    sandbox.refused(&["new", "--data", "file/below"], 1);
}

#[test]
fn without_a_store_a_worker_must_be_named() {
    let sandbox = Sandbox::new();
    assert!(sandbox.refused(&["new", "--store", "none"], 2).contains("--store none needs --worker"));
    let first = ids(&sandbox.out(&["new", "--store", "none", "--worker", "3", "-n", "100"]));
    let second = ids(&sandbox.out(&["new", "--store", "none", "--worker", "3", "-n", "100"]));
    assert!([&first[..], &second].concat().is_sorted_by(|a, b| a < b));
    assert_eq!(inspect(&sandbox, "twitter", second[0])["worker"], 3);
    assert!(!sandbox.path("snowmint").exists());
}

/// Goal: two runs within one long tick do not repeat ids. Method: a tick of 1 s, twice.
#[test]
fn without_a_store_runs_in_one_tick_do_not_repeat() {
    let sandbox = Sandbox::new();
    let run =
        || ids(&sandbox.out(&["new", "--store", "none", "--worker", "3", "--layout", "game", "-n", "2"]));
    let all = [run(), run(), run()].concat();
    assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
}

/// Goal: `snowmint new -n 1000000 | head -1` prints no error and releases its lease. Method: read one line,
/// close the pipe, and require the same worker again: if it were still leased, the command would wait and say
/// so.
#[test]
fn a_closed_pipe_ends_quietly() {
    let sandbox = Sandbox::new();
    let mut child = sandbox.command(&["new", "-n", "1000000", "--worker", "5"]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), String::from_utf8(ended.stderr).unwrap().as_str()), (Some(0), ""));
    let next = ids(&sandbox.out(&["new", "--worker", "5"]))[0];
    assert!(next > line.trim().parse().unwrap());
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_under_the_output_is_told() {
    let sandbox = Sandbox::new();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let ran = sandbox.command(&["new"]).stdout(full).output().unwrap();
    assert_eq!(ran.status.code(), Some(1));
    assert!(String::from_utf8(ran.stderr).unwrap().starts_with("error: cannot write to standard output: "));
}

/// Goal: all folders and shells of a machine use one store, so that nothing repeats. Method: runs at the same
/// time in two folders, with one worker, which they have to take in turn, beside a service that was started
/// in a third folder.
#[test]
fn folders_of_a_machine_share_one_store() {
    let sandbox = Sandbox::new();
    let mut server = sandbox.serve(&["--worker", "3"]);
    let folders = ["one", "two"].map(|name| sandbox.path(name));
    let run = |folder: &Path, args: &[&str]| {
        let ran = sandbox.command(args).current_dir(folder).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap()
    };
    let address = server.ready("http");
    let of_service = |_| ids(&get(&address, "/v1/ids/default?count=100000&format=text").1);
    let mut all = Vec::new();
    std::thread::scope(|scope| {
        let runs = folders.each_ref().map(|folder| {
            std::fs::create_dir(folder).unwrap();
            scope.spawn(|| ids(&run(folder, &["new", "-n", "600000", "--worker", "7"])))
        });
        all.extend((0..3).flat_map(of_service));
        all.extend(runs.into_iter().flat_map(|run| run.join().unwrap()));
    });
    let drawn = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!((drawn, all.len()), (1_500_000, 1_500_000));
    for folder in &folders {
        let workers = run(folder, &["workers", "--json"]);
        assert_eq!(workers.lines().count(), 2, "that of the service and worker 7: {workers}");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "nothing is made in the current folder");
    }
}

/// Goal: after an upgrade, data in the current folder does not silently become a second store. Method: each
/// command that uses the default, beside data of an earlier release; then with its name, with another store,
/// and with a store at the default too.
#[test]
fn data_of_an_earlier_release_is_named() {
    let sandbox = Sandbox::new();
    let default = sandbox.path("snowmint").display().to_string();
    sandbox.out(&["new", "--data", "./snowmint-data"]);
    let commands = [&["new"][..], &["serve"], &["ns", "list"], &["workers"], &["doctor"], &["store", "init"]];
    for command in commands {
        let told = sandbox.refused(command, 2);
        assert!(
            told.starts_with("error: --data: ./snowmint-data has data of an earlier release")
                && told.contains(&format!("mv ./snowmint-data/* {default}/")),
            "{told}"
        );
    }
    sandbox.out(&["new", "--data", "./snowmint-data"]);
    sandbox.out(&["new", "--store", "none", "--worker", "3"]);
    sandbox.out(&["new", "--store", "sqlite:other.db"]);
    assert!(!sandbox.path("snowmint").exists(), "no second store was made");
    sandbox.out(&["new", "--data", &default]);
    let told = sandbox.refused(&["new"], 2);
    assert!(
        told.contains("has another store: two stores can produce duplicates") && !told.contains("mv "),
        "{told}"
    );
    std::fs::remove_dir_all(sandbox.path("snowmint")).unwrap();
    std::fs::rename(sandbox.path("snowmint-data"), sandbox.path("snowmint")).unwrap();
    sandbox.out(&["new"]);
}
