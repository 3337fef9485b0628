//! A disk that hangs on request: a library that is loaded into a server, and the files that make it wait.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::process::{find, run};

const LIBRARY: &str = include_str!("hanging_disk.c");
/// Writes and syncs of the server's logs wait while this file exists in its folder.
const HANG: &str = "hang";
/// Only syncs wait while this file exists.
const HANG_SYNCS: &str = "hang-syncs";

/// The disk of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    Sound,
    MayHang,
}

/// Compiles the library in the folder of a server, and returns the variables for its environment.
///
/// Panics if there is no C compiler.
pub(crate) fn variables(folder: &Path) -> [String; 3] {
    let (source, library) = (folder.join("hanging_disk.c"), folder.join("hanging_disk.so"));
    fs::write(&source, LIBRARY).unwrap();
    run(Command::new(find("cc", "gcc")).args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]));
    let path = |name: &str| folder.join(name).display().to_string();
    [
        format!("LD_PRELOAD={}", library.display()),
        format!("HANG={}", path(HANG)),
        format!("HANG_SYNCS={}", path(HANG_SYNCS)),
    ]
}

/// From now on, writes and syncs of the server's logs wait. What only reads is answered.
pub(crate) fn hang(folder: &Path) {
    fs::write(folder.join(HANG), "").unwrap();
}

/// As [`hang`], but only syncs wait: a crash of the server keeps what was written.
pub(crate) fn hang_syncs(folder: &Path) {
    fs::write(folder.join(HANG_SYNCS), "").unwrap();
}

/// Ends both.
pub(crate) fn free(folder: &Path) {
    for file in [HANG, HANG_SYNCS] {
        // Only one of them exists.
        let _ = fs::remove_file(folder.join(file));
    }
}
