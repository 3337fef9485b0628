//! From keys to the paths of znodes and back.
//! A key has no `,`, so a `,` in a name is always one of ours.

use crate::Key;

/// The paths of a store under its base, such as `/snowmint`.
#[derive(Debug)]
pub(super) struct Paths {
    base: String,
}

impl Paths {
    pub(super) const fn new(base: String) -> Self {
        Self { base }
    }

    /// The path under which everything is.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Returns a znode that is no folder of records: no key has a name that begins with `,` and a letter.
    pub(super) fn fence(&self) -> String {
        self.child(",fence")
    }

    pub(super) fn child(&self, name: &str) -> String {
        format!("{}/{name}", self.base)
    }

    /// The znode that holds the records beside this one.
    pub(super) fn folder(&self, key: &Key) -> String {
        self.child(&name(split(key).0))
    }

    pub(super) fn record(&self, key: &Key) -> String {
        let (folder, last) = split(key);
        format!("{}/{}/{}", self.base, name(folder), name(last))
    }
}

/// All segments but the last, and the last.
fn split(key: &Key) -> (&str, &str) {
    key.as_str().rsplit_once('/').unwrap_or(("", key.as_str()))
}

/// Returns the name for a part of a key: `,` for each `/`, and a `,` before what is not allowed as a name.
fn name(part: &str) -> String {
    match part {
        "" | "." | ".." => format!(",{part}"),
        _ => part.replace('/', ","),
    }
}

/// Returns the part of a key that has this name.
fn part(name: &str) -> Option<String> {
    match name.strip_prefix(',') {
        Some(part @ ("" | "." | "..")) => Some(part.to_owned()),
        Some(_) => None,
        None => Some(name.replace(',', "/")),
    }
}

/// Returns the folder with this name, without a `/` at its end; `None` for what is no folder of records.
pub(super) fn folder_of_name(name: &str) -> Option<String> {
    part(name)
}

/// Returns the key of a record from its folder and its name.
pub(super) fn key_of_names(folder: &str, name: &str) -> Option<Key> {
    let last = part(name).filter(|it| !it.contains('/'))?;
    Key::new(if folder.is_empty() { last } else { format!("{folder}/{last}") }).ok()
}

/// Whether a folder may hold keys that start with the prefix.
pub(super) fn may_hold(folder: &str, prefix: &str) -> bool {
    if folder.is_empty() {
        return !prefix.contains('/');
    }
    let folder = format!("{folder}/");
    folder.starts_with(prefix) || prefix.starts_with(&folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_path_of_its_own_and_comes_back() {
        let texts =
            ["a", "A", ".", "..", "./.", "../..", "a/.", "./a", "a/b/c", "a/b", "workers/time41@1ms:x=_-/7"];
        let paths = Paths::new("/snowmint".to_owned());
        let mut seen = std::collections::BTreeSet::new();
        for text in texts {
            let key = Key::new(text).unwrap();
            let path = paths.record(&key);
            let names: Vec<&str> = path.strip_prefix("/snowmint/").unwrap().split('/').collect();
            assert!(names.len() == 2 && names.iter().all(|it| !matches!(*it, "" | "." | "..")), "{path}");
            assert_eq!(paths.folder(&key), format!("/snowmint/{}", names[0]));
            let folder = folder_of_name(names[0]).unwrap();
            assert_eq!(key_of_names(&folder, names[1]), Some(key));
            assert!(seen.insert(path), "{text}");
        }
        assert_eq!(paths.record(&Key::new("workers/pool/7").unwrap()), "/snowmint/workers,pool/7");
        assert_eq!(folder_of_name(",fence"), None);
        assert_eq!(key_of_names("a", "b,c"), None);
    }

    #[test]
    fn a_list_looks_where_its_keys_may_be() {
        for (folder, prefix, wanted) in [
            ("", "", true),
            ("", "a", true),
            ("", "a/", false),
            ("a", "", true),
            ("a", "a", true),
            ("a", "a/", true),
            ("a", "a/b", true),
            ("a", "a/b/", true),
            ("a", "ab", false),
            ("a/b", "a/b/c", true),
            ("a/b", "a/", true),
            ("a/b", "a/c", false),
            ("a/bc", "a/b", true),
        ] {
            assert_eq!(may_hold(folder, prefix), wanted, "{folder} {prefix}");
        }
    }
}
