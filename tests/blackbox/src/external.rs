//! Clients that others wrote: redis-cli, redis-benchmark, redis-py, node-redis, ioredis, curl. One that is missing is a failure that
//! says how to install it, never a skip.

use std::ffi::OsStr;
use std::io::{ErrorKind, Write};
use std::process::{Command, Output, Stdio};

use crate::binary;

/// How each tool is installed.
const TOOLS: [(&str, &str); 18] = [
    ("haproxy", "apt-get install haproxy"),
    ("nginx", "apt-get install nginx libnginx-mod-stream"),
    ("redis-cli", "apt-get install redis-tools"),
    ("redis-benchmark", "apt-get install redis-tools"),
    ("sqlite3", "apt-get install sqlite3"),
    ("etcdctl", "apt-get install etcd-client"),
    ("pg_dump", "apt-get install postgresql-client"),
    ("psql", "apt-get install postgresql-client"),
    ("mariadb-dump", "apt-get install mariadb-client"),
    ("curl", "apt-get install curl"),
    ("python3", "apt-get install python3"),
    ("node", "apt-get install nodejs npm"),
    ("unshare", "apt-get install util-linux"),
    ("nsenter", "apt-get install util-linux"),
    ("mount", "apt-get install mount"),
    ("strip", "apt-get install binutils"),
    ("sh", "apt-get install dash"),
    ("date", "apt-get install coreutils"),
];

/// Runs a tool to its end.
///
/// # Panics
///
/// If it is not installed; the message says how to.
pub fn run(tool: &str, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    run_with_input(tool, args, "")
}

/// Runs a tool to its end, with a text on its standard input.
///
/// # Panics
///
/// If it is not installed; the message says how to.
pub fn run_with_input(tool: &str, args: impl IntoIterator<Item = impl AsRef<OsStr>>, input: &str) -> Output {
    let started = Command::new(tool)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match started {
        Err(error) if error.kind() == ErrorKind::NotFound => panic!("{}", missing(tool)),
        started => started.unwrap(),
    };
    // A tool that does not want its input may have closed it.
    child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
    child.wait_with_output().unwrap()
}

/// Runs a tool that must succeed, and returns what it wrote to its standard output.
///
/// # Panics
///
/// If it is not installed, or did not succeed.
pub fn output(tool: &str, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
    succeeded(tool, &run(tool, args))
}

/// Runs a Python script that uses redis-py, and returns what it wrote to its standard output.
///
/// # Panics
///
/// If Python or redis-py is not installed, or the script failed.
pub fn redis_py(script: &str, args: &[&str]) -> String {
    let check = run("python3", ["-c", "import redis"]);
    assert!(
        check.status.success(),
        "redis-py is missing: install it with `pip install redis`\n{}",
        String::from_utf8_lossy(&check.stderr)
    );
    let args = ["-c", script].into_iter().chain(args.iter().copied());
    output("python3", args)
}

/// Runs a script by Node.js that uses node-redis or ioredis, and returns what it wrote to its standard output.
///
/// # Panics
///
/// If Node.js or one of the two is not installed, or the script failed.
pub fn node(script: &str, args: &[&str]) -> String {
    let modules = binary::workspace().join("target/node");
    let folder = modules.display().to_string();
    assert!(
        modules.join("node_modules/redis").is_dir() && modules.join("node_modules/ioredis").is_dir(),
        "node-redis or ioredis is missing: install them with `./check tools`, or `npm install --prefix {folder} redis ioredis`"
    );
    // Modules are looked for where the process runs.
    let words = ["-c", "cd \"$0\" && exec node -e \"$@\"", &folder, script, "--"];
    output("sh", words.into_iter().chain(args.iter().copied()))
}

fn succeeded(tool: &str, output: &Output) -> String {
    assert!(output.status.success(), "{tool} failed: {}\n{}", output.status, binary::text(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What to say when a tool is not installed.
pub(crate) fn missing(tool: &str) -> String {
    let how = TOOLS.iter().find(|(name, _)| *name == tool).map_or("your package manager", |(_, how)| how);
    format!("{tool} is missing: install it with `{how}`")
}
