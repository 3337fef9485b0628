//! The checks of lists: by prefix, in order, and whole.

use tokio::task::JoinSet;

use super::{Area, Checked, WRITERS, joined};
use crate::{Expected, Versioned};

/// How many records the longest list has.
const MANY: usize = 10_000;

/// A list holds the keys that start with the prefix, byte by byte, and no others.
///
/// # Errors
///
/// What was found instead.
pub async fn list_is_by_prefix(area: &Area) -> Checked {
    let names = [
        "workers/A/1",
        "workers/a",
        "workers/a/1",
        "workers/a/2",
        "workers/a_b/1",
        "workers/ab/1",
        "workers/axb/1",
        "workers/b/1",
        "workersa/1",
    ];
    for name in names {
        area.write(&area.key(name)?, Expected::Absent, b"").await?;
    }
    let cases: [(&str, &[&str]); 9] = [
        ("", &names),
        ("workers/a/", &["workers/a/1", "workers/a/2"]),
        ("workers/ab/", &["workers/ab/1"]),
        // `_` stands for any character in some query languages, `%` and `*` for any text.
        ("workers/a_b/", &["workers/a_b/1"]),
        ("workers/a%", &[]),
        ("workers/*", &[]),
        ("workers/A", &["workers/A/1"]),
        ("workers/a/2", &["workers/a/2"]),
        ("workers/c/", &[]),
    ];
    for (prefix, wanted) in cases {
        let found = area.names(prefix).await?;
        ensure!(found == wanted, "list of `{prefix}` is {found:?}, not {wanted:?}");
    }
    Ok(())
}

/// A list is in the order of the bytes of its keys, whatever the order in which they were written.
///
/// # Errors
///
/// What was found instead.
pub async fn list_is_in_order(area: &Area) -> Checked {
    let mut names =
        ["z", "a", "_", "Z", "A", "@", "=", ":", "9", "10", "2", "a/b", "a.b", "a-b", "a/a/z", "-"];
    for name in names {
        area.write(&area.key(name)?, Expected::Absent, b"").await?;
    }
    names.sort_unstable();
    let found = area.names("").await?;
    ensure!(found == names, "the list is {found:?}, not {names:?}");
    Ok(())
}

/// A list of 10,000 records is whole, with the value and the revision of each.
///
/// # Errors
///
/// What was found instead.
pub async fn list_is_whole(area: &Area) -> Checked {
    let mut tasks = JoinSet::new();
    for writer in 0..WRITERS {
        let area = area.clone();
        tasks.spawn(async move {
            let mut written = Vec::new();
            for nth in (writer..MANY).step_by(WRITERS) {
                let (key, value) = (area.key(format_args!("{nth:05}"))?, nth.to_string().into_bytes());
                let revision = area.write(&key, Expected::Absent, &value).await?;
                written.push((key, Versioned { value, revision }));
            }
            Ok(written)
        });
    }
    let mut written: Vec<_> = joined(tasks).await?.into_iter().flatten().collect();
    written.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let found = area.store.list(&area.prefix).await?;
    ensure!(found.len() == MANY, "{MANY} records were written, the list has {}", found.len());
    let wrong = written.iter().zip(&found).find(|(written, found)| written != found);
    ensure!(wrong.is_none(), "written and listed differ: {wrong:?}");
    Ok(())
}
