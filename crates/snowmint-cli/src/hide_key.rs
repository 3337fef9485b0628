//! `snowmint hide-key`: makes a key that hides the ids of a namespace.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use snowmint_cluster::namespace::{HideKeyName, HideKeys};

use crate::error::Failure;
use crate::human::Output;

const EXAMPLES: &str = "\
A hidden id is a number that reveals neither when the id was made, nor by which
worker, nor how many ids came before it. Every node that serves the namespace
needs its key; the store never has it. Who has the key can read every hidden id.
Without the key nobody can, and no node can continue the namespace: keep a copy.
Use a key for one namespace only: equal numbers are hidden as equal numbers.

Examples:
  snowmint hide-key orders --file hide-keys.toml
      Appends a new key to the file, which only its owner may read.
  snowmint ns add orders --scheme segment --hide orders \\
      --hide-keys-file hide-keys.toml
  snowmint serve --hide-keys-file hide-keys.toml
  snowmint inspect --hide-keys-file hide-keys.toml --hide-key orders 4816190322
  snowmint hide-key orders
      Prints a line for such a file.

A file of keys is TOML, one line for each: NAME = \"32 hex digits\".";

/// Make a key that hides the ids of a namespace
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct Args {
    /// Name of the key: 1 to 64 letters, digits, `.`, `_`, `-` or `:`
    name: HideKeyName,
    /// File to append the key to, created if it is missing; default: print the line
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print one JSON object: name and key, or with --file name and file
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let key = HideKeys::new_key().map_err(Failure::runtime)?;
    let line = format!("\"{}\" = \"{key}\"", args.name);
    let mut out = Output::new();
    match &args.file {
        None if args.json => {
            out.json(&serde_json::json!({"name": args.name.as_str(), "key": key.clone()}))?;
        }
        None => out.line(&line)?,
        Some(path) => {
            append(path, &args.name, &line)?;
            if args.json {
                let file = path.display().to_string();
                out.json(&serde_json::json!({"name": args.name.as_str(), "file": file}))?;
                return out.flush();
            }
            out.line(&format!("added key {} to {}: keep a copy", args.name, path.display()))?;
        }
    }
    out.flush()
}

/// Appends a key to a file. Rejects a name that the file already has: another key would hide the ids of its namespace
/// differently.
fn append(path: &Path, name: &HideKeyName, line: &str) -> Result<(), Failure> {
    let before = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| unwritten(path, &error))?,
    };
    let invalid = |error| Failure::usage(format!("{}: {error}", path.display()));
    if HideKeys::parse(&before).map_err(invalid)?.key(name).is_ok() {
        let why = format!("{} has a key {name} already: choose another name", path.display());
        return Err(Failure::usage(why));
    }
    let begin = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(path).and_then(|mut file| {
        file.write_all(format!("{begin}{line}\n").as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| unwritten(path, &error))
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::runtime(format!("cannot write {}: {error}", path.display()))
}

/// Reads a file of hide keys.
pub(crate) fn read(path: &Path) -> Result<HideKeys, Failure> {
    let flag = |why: String| Failure::flag("--hide-keys-file", why);
    let text = std::fs::read_to_string(path)
        .map_err(|error| flag(format!("cannot read {}: {error}", path.display())))?;
    HideKeys::parse(&text).map_err(|error| flag(format!("{}: {error}", path.display())))
}
