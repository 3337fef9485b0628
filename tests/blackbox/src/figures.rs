//! What a test measured: shown in its output, and kept in `target/blackbox` for whoever writes the documents.

use std::fs;

use crate::binary::workspace;

/// Shows figures and keeps them in `target/blackbox/<name>.txt`.
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
