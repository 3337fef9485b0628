//! `snowmint hide-key`: makes a key that hides the ids of a namespace.

use std::path::{Path, PathBuf};

use snowmint_cluster::namespace::{HideKeyName, HideKeys};

use crate::error::{Failure, report};
use crate::output::Output;
use crate::shared_file::{self, Readers};

const EXAMPLES: &str = "\
A hidden id is a number that reveals neither when the id was made, nor by which
worker, nor how many ids came before it. Every node that serves the namespace
needs its key; the store never has it. Who has the key can read every hidden id.
Without the key nobody can, and no node can continue the namespace: keep a copy.
Use a key for one namespace only: equal numbers are hidden as equal numbers.

Examples:
  snowmint hide-key orders --file hide-keys.toml
      Adds a new key to the file. If the command creates it, only its owner
      may read it; it warns if others may read an existing one.
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
    let mut out = Output::new();
    match &args.file {
        None if args.json => {
            out.json(&serde_json::json!({"name": args.name.as_str(), "key": key.clone()}))?;
        }
        None => out.line(&line(&args.name, &key))?,
        Some(path) => {
            append(path, &args.name, &key)?;
            if let Some(warning) = warning_of_readers(path, Outsiders::AllButOwner) {
                report("warning", &warning);
            }
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

/// Returns the line of a key in a file.
fn line(name: &HideKeyName, key: &str) -> String {
    format!("\"{name}\" = \"{key}\"")
}

/// Adds a key to a file. Rejects a name that the file already has: another key would hide the ids of its
/// namespace differently.
fn append(path: &Path, name: &HideKeyName, key: &str) -> Result<(), Failure> {
    shared_file::change(path, Readers::Owner, |before| {
        let invalid = |error| Failure::usage(format!("{}: {error}", path.display()));
        if HideKeys::parse(before).map_err(invalid)?.key(name).is_ok() {
            let why = format!("{} has a key {name} already: choose another name", path.display());
            return Err(Failure::usage(why));
        }
        let end = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
        Ok((format!("{before}{end}{}\n", line(name, key)), ()))
    })
}

/// The users whose access to a file of keys is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outsiders {
    /// All but the owner, for a command that makes the file.
    AllButOwner,
    /// All but the owner and the group, by which a service may read the file.
    AllButGroup,
}

/// Returns a warning if other users may read or change a file of keys, which keeps its permissions.
#[cfg(unix)]
pub(crate) fn warning_of_readers(path: &Path, outsiders: Outsiders) -> Option<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    let (theirs, remedy) = match outsiders {
        Outsiders::AllButOwner => (0o077, "600"),
        Outsiders::AllButGroup => (0o007, "o="),
    };
    let file = path.display();
    (mode & theirs != 0).then(|| {
        format!("other users may read {file} (mode {mode:o}): `chmod {remedy} {file}` keeps its keys secret")
    })
}

#[cfg(not(unix))]
pub(crate) fn warning_of_readers(_: &Path, _: Outsiders) -> Option<String> {
    None
}

/// Reads a file of hide keys.
pub(crate) fn read(path: &Path) -> Result<HideKeys, Failure> {
    let flag = |why: String| Failure::flag("--hide-keys-file", why);
    let text = std::fs::read_to_string(path)
        .map_err(|error| flag(format!("cannot read {}: {error}", path.display())))?;
    HideKeys::parse(&text).map_err(|error| flag(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Goal: two concurrent commands neither lose a key nor add one name twice, which would make the whole
    /// file invalid. Method: rounds in which eight threads add two names to one file at the same time.
    #[test]
    fn concurrent_changes_keep_one_key_of_each_name() {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..if cfg!(miri) { 1 } else { 20 } {
            let path = folder.path().join(format!("keys{round}.toml"));
            let (start, names) =
                (Barrier::new(8), ["a", "b"].map(|name| name.parse::<HideKeyName>().unwrap()));
            let add = |nth: usize| {
                start.wait();
                append(&path, &names[nth % 2], &HideKeys::new_key().unwrap()).is_ok()
            };
            let add = &add;
            let added = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8).map(|nth| scope.spawn(move || add(nth))).collect();
                threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum::<usize>()
            });
            let keys = read(&path).unwrap();
            assert!(added == 2 && names.iter().all(|name| keys.key(name).is_ok()), "round {round}: {added}");
        }
    }
}
