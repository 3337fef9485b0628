//! The built `snowmint`: finds it, runs its commands, and (in the modules) starts a server under test with
//! all its faults.

pub mod chaos;
pub mod clock_and_disk;
pub mod http;
pub mod ids;
pub mod raw_clients;
pub mod resp;
pub mod server;
pub mod third_party;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub use chaos::SplitMix64;
pub use clock_and_disk::{Disk, FakeClock};
pub use ids::Ids;
pub use resp::{Reply, Resp};
pub use rustix::process::Signal;
pub use server::{Ended, Serve, Server};

/// Returns the folder of the workspace.
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this package lies two folders below the workspace").to_owned()
}

/// Returns the binary under test: `$SNOWMINT_BIN`, else the debug build of the workspace.
///
/// # Panics
///
/// If it is missing; the message says which command builds it.
pub fn binary() -> PathBuf {
    let path = std::env::var_os("SNOWMINT_BIN").map_or_else(
        || {
            let target = std::env::var_os("CARGO_TARGET_DIR")
                .map_or_else(|| workspace().join("target"), |it| workspace().join(it));
            target.join("debug/snowmint")
        },
        PathBuf::from,
    );
    assert!(
        path.is_file(),
        "{} is missing: build it with `cargo build -p snowmint-cli --all-features`, or set SNOWMINT_BIN",
        path.display()
    );
    path
}

/// Returns the binary as a command, without the caller's settings: no `SNOWMINT_*`, no terminal, no colour.
pub fn command() -> Command {
    clean(Command::new(binary()))
}

/// Removes every setting of the product from the environment of a command. Its default data directory cannot
/// be made, since all tests would share it: a test names another one, or the folder of its machine
/// ([`STATE`]).
pub fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SNOWMINT_") {
            command.env_remove(name);
        }
    }
    command.env_remove("RUST_LOG").env(STATE, "/dev/null").stdin(Stdio::null());
    command
}

/// The variable of the folder in which the default data directory is.
pub const STATE: &str = "XDG_STATE_HOME";

/// Runs the binary to its end in a folder, which also has the default data directory.
pub fn run(folder: &Path, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    command().current_dir(folder).env(STATE, folder).args(args).output().expect("the binary can be run")
}

/// Returns both outputs of a process as one text.
pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Prints figures, and writes them to `target/blackbox/<name>.txt` for the docs.
///
/// # Panics
///
/// If the file cannot be written.
pub fn publish(name: &str, figures: &str) {
    println!("== {name}\n{figures}");
    let folder = workspace().join("target/blackbox");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("{name}.txt")), format!("{figures}\n")).unwrap();
}
