//! The words of the command line, for decisions that are made before or beside its parser.

use clap::ColorChoice;

/// The names of `serve`.
pub(crate) const SERVE: [&str; 4] = ["serve", "server", "start", "run"];

/// Returns the words of the command line, the program first. In a word that is not UTF-8, such as the name of
/// a file, other characters replace those bytes.
pub(crate) fn words() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Returns whether the command line has a flag.
pub(crate) fn has_flag(flag: &str) -> bool {
    words()
        .iter()
        .any(|word| word.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))
}

/// Returns the colour of help, which is printed before `--color` is parsed.
pub(crate) fn colour_of_help() -> ColorChoice {
    let words = words();
    let named = words.iter().enumerate().rev().find_map(|(at, word)| {
        let rest = word.strip_prefix("--color").or_else(|| word.strip_prefix("--colour"))?;
        if rest.is_empty() { words.get(at + 1).map(String::as_str) } else { rest.strip_prefix('=') }
    });
    match named {
        Some("always") => ColorChoice::Always,
        Some("never") => ColorChoice::Never,
        _ => ColorChoice::Auto,
    }
}
