//! Which transactions a server has, by its GTIDs: a server that lacks one that was seen elsewhere has lost writes.
//! Of each origin the last transaction is known; of MariaDB also that the numbers of a domain only grow.

use std::collections::BTreeMap;

use crate::network::Mark;

/// The last transaction of each origin that a server has; empty where the server has no GTIDs.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct History(BTreeMap<Origin, u64>);

/// A domain and a server of MariaDB, or the UUID of a server of MySQL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Origin {
    Domain(u64, u64),
    Uuid(String),
}

impl History {
    /// Takes lists of GTIDs apart: `0-1-100,0-2-105` of MariaDB, `3e11fa47-...:1-5:11-18, ...` of MySQL. What is
    /// neither says nothing.
    pub(super) fn parse(text: &str) -> Self {
        let mut history = Self::default();
        for (origin, number) in text.split(',').filter_map(|it| one(it.trim())) {
            let known = history.0.entry(origin).or_default();
            *known = number.max(*known);
        }
        history
    }

    /// What there is of an origin, as far as it is known. A replica of MariaDB without a log of its own knows only the
    /// last transaction of a domain, before which it has all with lower numbers.
    fn has(&self, origin: &Origin) -> u64 {
        match (self.0.get(origin), origin) {
            (Some(number), _) => *number,
            (None, Origin::Domain(domain, _)) => {
                let of_domain =
                    self.0.iter().filter(|it| matches!(it.0, Origin::Domain(it, _) if it == domain));
                of_domain.map(|it| *it.1).max().unwrap_or(0)
            }
            (None, Origin::Uuid(_)) => 0,
        }
    }
}

impl Mark for History {
    fn lacks(&self, seen: &Self) -> Option<String> {
        let lacking = seen.0.iter().find(|(origin, number)| self.has(origin) < **number);
        lacking.map(|(origin, number)| {
            let (has, of) = (
                self.has(origin),
                match origin {
                    Origin::Domain(domain, server) => format!("domain {domain}, server {server}"),
                    Origin::Uuid(uuid) => uuid.clone(),
                },
            );
            format!("has the transactions up to {has} of {of}, and this node has seen {number}")
        })
    }

    fn see(&mut self, mark: Self) {
        for (origin, number) in mark.0 {
            let known = self.0.entry(origin).or_default();
            *known = number.max(*known);
        }
    }
}

fn one(text: &str) -> Option<(Origin, u64)> {
    if let Some((uuid, intervals)) = text.split_once(':') {
        let last = intervals.rsplit(':').find_map(|it| it.rsplit('-').next()?.trim().parse().ok())?;
        return Some((Origin::Uuid(uuid.trim().to_lowercase()), last));
    }
    let mut numbers = text.split('-').map(str::parse);
    match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
        (Some(Ok(domain)), Some(Ok(server)), Some(Ok(number)), None) => {
            Some((Origin::Domain(domain, server), number))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_lacks_a_transaction_is_told_from_one_that_has_more() {
        const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let uuid = |rest: &str| format!("{UUID}{rest}");
        let lacks = |has: &str, seen: &str| History::parse(has).lacks(&History::parse(seen));
        for (has, seen) in [
            ("", ""),
            ("0-1-5", ""),
            ("0-1-5", "0-1-5"),
            ("0-1-5,0-2-6", "0-1-5"),
            // Without a log of its own a replica knows one transaction of a domain.
            (",0-2-6", "0-1-5"),
            ("1-1-9,0-1-5", "0-1-5"),
            (&uuid(":1-6"), &uuid(":1-5")),
            (&uuid(":1-3:7-9,\n4e11fa47-71ca-11e1-9e33-c80aa9429562:1"), &uuid(":1-5")),
        ] {
            assert_eq!(lacks(has, seen), None, "{has} after {seen}");
        }
        for (has, seen) in [
            ("", "0-1-5"),
            ("0-1-4", "0-1-5"),
            // The new primary has gone on without what was lost.
            ("0-1-4,0-2-9", "0-1-5"),
            ("1-1-9", "0-1-5"),
            ("", &uuid(":1")),
            (&uuid(":1-4"), &uuid(":1-5")),
            ("4e11fa47-71ca-11e1-9e33-c80aa9429562:1-100", &uuid(":1-5")),
        ] {
            assert!(lacks(has, seen).is_some(), "{has} after {seen}");
        }
        let mut seen = History::parse("0-1-5,0-2-9");
        seen.see(History::parse("0-1-7,0-2-8,1-1-1"));
        assert_eq!(seen, History::parse("0-1-7,0-2-9,1-1-1"));
    }
}
