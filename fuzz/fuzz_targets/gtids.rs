//! GTIDs of any text are compared, and those of MySQL as its grammar says.
//! The text has two lines: the GTIDs of a server, and those that were seen before.
#![cfg_attr(fuzzing, no_main)]

use std::collections::BTreeMap;

use snowmint_store::lacking_gtids;

snowmint_fuzz::fuzz_target!(|text: &str| {
    let (has, seen) = text.split_once('\n').unwrap_or((text, ""));
    for own in [has, seen] {
        assert_eq!(lacking_gtids(own, &[own]), None, "{own:?} lacks its own GTIDs");
    }
    let both = format!("{has},{seen}");
    assert_eq!(lacking_gtids(&both, &[has, seen]), None, "{both:?} lacks a part of itself");
    if let (Some(own), Some(wanted)) = (transactions(has), transactions(seen)) {
        assert_eq!(lacking_gtids(has, &[seen]).is_some(), lacks(&own, &wanted), "{has:?} after {seen:?}");
    }
});

/// The intervals of each server and tag, in the order of the text.
type Transactions = BTreeMap<(String, String), Vec<(u64, u64)>>;

/// Returns whether a transaction of `wanted` is not in `own`. The first that is not follows one that is, or
/// begins an interval.
fn lacks(own: &Transactions, wanted: &Transactions) -> bool {
    let contains = |all: &[(u64, u64)], number| all.iter().any(|it| (it.0..=it.1).contains(&number));
    wanted.iter().any(|(origin, wanted)| {
        let own = own.get(origin).map_or(&[][..], |it| it);
        let mut may_lack =
            wanted.iter().map(|it| it.0).chain(own.iter().filter_map(|it| it.1.checked_add(1)));
        may_lack.any(|number| contains(wanted, number) && !contains(own, number))
    })
}

/// Returns the transactions of a GTID set of MySQL; `None` for any other text.
///
/// `gtid_set`: `[uuid_set[, uuid_set]...]`; `uuid_set`: `uuid:[tag:]interval[:[tag:]interval]...`; `interval`:
/// `first[-last]`. The server ignores spaces and the case of letters.
fn transactions(set: &str) -> Option<Transactions> {
    let mut all = Transactions::new();
    for of_server in set.split(',').map(str::trim).filter(|it| !it.is_empty()) {
        let mut parts = of_server.split(':').map(|it| it.trim().to_ascii_lowercase());
        let uuid = parts.next().filter(|it| is_uuid(it))?;
        let (mut tag, mut ends_with_interval) = (String::new(), false);
        for part in parts {
            if let Some(interval) = interval(&part) {
                all.entry((uuid.clone(), tag.clone())).or_default().push(interval);
                ends_with_interval = true;
            } else if is_tag(&part) && (ends_with_interval || tag.is_empty()) {
                (tag, ends_with_interval) = (part, false);
            } else {
                return None;
            }
        }
        if !ends_with_interval {
            return None;
        }
    }
    Some(all)
}

fn is_uuid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.bytes().all(|it| it == b'-' || it.is_ascii_hexdigit())
}

fn is_tag(text: &str) -> bool {
    let begins = text.starts_with(|it: char| it == '_' || it.is_ascii_lowercase());
    begins
        && text.len() <= 32
        && text.bytes().all(|it| it == b'_' || it.is_ascii_lowercase() || it.is_ascii_digit())
}

/// Returns the first and the last number of an interval.
fn interval(text: &str) -> Option<(u64, u64)> {
    let number = |text: &str| {
        let text = text.trim();
        let digits = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        digits.then(|| text.parse::<u64>().ok()).flatten().filter(|it| *it > 0)
    };
    match text.split_once('-') {
        None => number(text).map(|it| (it, it)),
        Some((first, last)) => Some((number(first)?, number(last)?)).filter(|(first, last)| first <= last),
    }
}
