//! Small disks that fill up: what is left of them is taken by a file, and given back.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Takes the room on a disk.
pub(crate) struct Ballast(PathBuf);

impl Ballast {
    /// Leaves that much room on the disk of a folder.
    pub(crate) fn leaving(folder: &Path, bytes: u64) -> Self {
        let path = folder.join("ballast");
        let mut file = File::create(&path).unwrap();
        fill(&mut file);
        let length = file.metadata().unwrap().len();
        file.set_len(length.saturating_sub(bytes)).unwrap();
        Self(path)
    }

    /// Takes what room there is again.
    pub(crate) fn grow(&self) {
        fill(&mut OpenOptions::new().append(true).open(&self.0).unwrap());
    }

    /// Gives all room back.
    pub(crate) fn remove(self) {
        std::fs::remove_file(self.0).unwrap();
    }
}

fn fill(file: &mut File) {
    for block in [1 << 20, 4096, 1] {
        let block = vec![0; block];
        loop {
            match file.write_all(&block) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}
