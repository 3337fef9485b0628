//! A file of hide keys is accepted, or rejected with the number of a line and without showing a key. A line
//! appended to a valid file adds its key, and leaves the others unchanged.
#![cfg_attr(fuzzing, no_main)]

use snowmint_cluster::namespace::{HideKeyName, HideKeys};

snowmint_fuzz::fuzz_target!(|text: &str| {
    let keys = match HideKeys::parse(text) {
        Ok(keys) => keys,
        Err(error) => {
            let lines = 1..=text.matches('\n').count() + 1;
            assert!(error.line.is_none_or(|line| lines.contains(&line)), "{error}");
            // The error must not repeat anything that could be half of a key.
            let shown = error.to_string();
            let mut runs = shown.split(|it: char| !it.is_ascii_hexdigit());
            assert!(runs.all(|run| run.len() < 16), "{error}");
            return;
        }
    };
    let names = |keys: &HideKeys| -> Vec<HideKeyName> {
        // The names in quotes, separated by commas; a name has neither.
        let shown = format!("{keys:?}");
        let names = shown.trim_matches(['{', '}']).split(", ").filter(|name| !name.is_empty());
        names.map(|name| name.trim_matches('"').parse().expect("a name that was read")).collect()
    };
    let own = names(&keys);
    let new: HideKeyName = "appended".parse().expect("a name");
    if own.contains(&new) {
        return;
    }
    let begin = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let more = format!("{text}{begin}\"{new}\" = \"00112233445566778899aabbccddeeff\"\n");
    let more = HideKeys::parse(&more).expect("a valid file with one more key");
    for name in &own {
        assert_eq!(keys.check_value(name), more.check_value(name));
        assert!(keys.check_value(name).is_ok(), "{name}");
    }
    assert_eq!(names(&more).len(), own.len() + 1);
});
