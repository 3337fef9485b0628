//! The words of the command line, for decisions that are made before or beside its parser.

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
