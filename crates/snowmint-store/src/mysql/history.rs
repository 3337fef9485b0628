//! What a server has, compared with what was seen elsewhere: its transactions, and its view of a Galera
//! cluster.
//!
//! `GtidHistory` is the set of transactions that a server has, by GTID. A server that lacks a transaction
//! which was seen elsewhere has lost writes. `GaleraView` is a server's view of its Galera cluster.

use std::collections::{BTreeMap, BTreeSet};

use crate::net::HostRefusal;
use crate::{StoreErrorKind, net};

/// The transactions that a server has; empty if it has no GTIDs.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct GtidHistory {
    /// `MariaDB`: the last transaction of a domain and a server. The numbers of a domain only grow.
    positions: BTreeMap<(u64, u64), u64>,
    /// MySQL. A set may have gaps that stay: the members of a group take numbers from blocks of their own.
    sets: BTreeMap<GtidSource, Intervals>,
}

/// The UUID of a server or a group of MySQL, and the tag of its transactions, which may be empty. Each counts
/// by itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct GtidSource {
    uuid: String,
    tag: String,
}

/// A set of numbers as its intervals, first and last inclusive. They ascend, and at least one number lies
/// between any two.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Intervals(Vec<(u64, u64)>);

impl Intervals {
    fn new(mut all: Vec<(u64, u64)>) -> Self {
        all.sort_unstable();
        all.dedup_by(|next, kept| {
            let touches = next.0 <= kept.1.saturating_add(1);
            if touches {
                kept.1 = kept.1.max(next.1);
            }
            touches
        });
        Self(all)
    }

    /// Returns the first numbers that are in `others` and not here.
    fn lacks(&self, others: &Self) -> Option<(u64, u64)> {
        others.0.iter().find_map(|&(first, last)| {
            // Only the first of these can have the number `first`.
            let rest = &self.0[self.0.partition_point(|it| it.1 < first)..];
            let (from, next) = match rest {
                [(begin, end), rest @ ..] if *begin <= first => (end.checked_add(1)?, rest.first()),
                rest => (first, rest.first()),
            };
            (from <= last).then(|| (from, next.map_or(last, |it| last.min(it.0 - 1))))
        })
    }
}

impl GtidHistory {
    /// Parses lists of GTIDs: `0-1-100,0-2-105` of MariaDB, `3e11fa47-...:1-5:11-18:tag:1-2, ...` of MySQL,
    /// since 8.3 with [tags]. Other text is ignored.
    ///
    /// [tags]: https://dev.mysql.com/doc/refman/9.5/en/replication-gtids-concepts.html
    pub(super) fn parse(text: &str) -> Self {
        let (mut history, mut sets) = (Self::default(), BTreeMap::new());
        for list in text.split(',') {
            match list.split_once(':') {
                Some((uuid, rest)) => add_intervals(&mut sets, &uuid.trim().to_lowercase(), rest),
                None => history.add_position(list.trim()),
            }
        }
        history.sets = sets.into_iter().map(|(source, all)| (source, Intervals::new(all))).collect();
        history
    }

    /// Adds a position of MariaDB.
    fn add_position(&mut self, text: &str) {
        let mut numbers = text.split('-').map(str::parse);
        let parts = (numbers.next(), numbers.next(), numbers.next(), numbers.next());
        if let (Some(Ok(domain)), Some(Ok(server)), Some(Ok(number)), None) = parts {
            self.advance((domain, server), number);
        }
    }

    fn advance(&mut self, origin: (u64, u64), number: u64) {
        let known = self.positions.entry(origin).or_default();
        *known = number.max(*known);
    }

    /// Returns the last known transaction of a domain and a server. A MariaDB replica without a binary log
    /// knows only the last transaction of a domain, and has all with lower numbers.
    fn last(&self, origin: (u64, u64)) -> u64 {
        self.positions.get(&origin).copied().unwrap_or_else(|| {
            let of_domain = self.positions.iter().filter(|it| it.0.0 == origin.0);
            of_domain.map(|it| *it.1).max().unwrap_or(0)
        })
    }
}

/// Adds the intervals of a source of MySQL. A tag applies to those behind it. As on the server, an interval
/// that ends before it begins is empty.
fn add_intervals(sets: &mut BTreeMap<GtidSource, Vec<(u64, u64)>>, uuid: &str, text: &str) {
    let mut tag = String::new();
    for part in text.split(':').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if first <= last => {
                let source = GtidSource { uuid: uuid.to_owned(), tag: tag.clone() };
                sets.entry(source).or_default().push((first, last));
            }
            (Ok(_), Ok(_)) => {}
            _ => tag = part.to_lowercase(),
        }
    }
}

impl net::ServerHistory for GtidHistory {
    fn lacks(&self, seen: &Self) -> Option<String> {
        if let Some((&(domain, server), number)) =
            seen.positions.iter().find(|(origin, number)| self.last(**origin) < **number)
        {
            let last = self.last((domain, server));
            return Some(format!(
                "has transactions up to {last} of domain {domain}, server {server}, and this node has seen {number}"
            ));
        }
        let none = Intervals::default();
        seen.sets.iter().find_map(|(source, numbers)| {
            let (first, last) = self.sets.get(source).unwrap_or(&none).lacks(numbers)?;
            let GtidSource { uuid, tag } = source;
            let of_tag = if tag.is_empty() { String::new() } else { format!(", tag {tag}") };
            Some(format!(
                "lacks the transactions {first}-{last} of {uuid}{of_tag}, and this node has seen them"
            ))
        })
    }

    fn merge(&mut self, other: Self) {
        for (origin, number) in other.positions {
            self.advance(origin, number);
        }
        for (source, Intervals(more)) in other.sets {
            let Intervals(all) = self.sets.remove(&source).unwrap_or_default();
            self.sets.insert(source, Intervals::new([all, more].concat()));
        }
    }
}

/// Returns what a server with the GTIDs `has` lacks of the GTIDs that were seen on several servers: for the
/// fuzz target.
pub fn lacking_gtids(has: &str, seen: &[&str]) -> Option<String> {
    let mut all = GtidHistory::default();
    for text in seen {
        net::ServerHistory::merge(&mut all, GtidHistory::parse(text));
    }
    net::ServerHistory::lacks(&GtidHistory::parse(has), &all)
}

/// What a server reports about its cluster.
pub(super) const STATUS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_cluster_status', \
    'wsrep_cluster_state_uuid', 'wsrep_gcomm_uuid', 'wsrep_cluster_conf_id', 'wsrep_cluster_size', \
    'wsrep_incoming_addresses')";

/// A member's view of its cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GaleraView {
    /// The cluster that the records come from.
    state: String,
    /// The member that has this view.
    member: String,
    /// The number of this view in the cluster.
    number: String,
    size: usize,
    /// The addresses of all members, sorted. Several may be `AUTO`.
    members: Vec<String>,
}

impl GaleraView {
    /// Parses the answer to [`STATUS`]; `None` if the server belongs to no cluster that accepts writes.
    pub(super) fn parse(status: &BTreeMap<String, String>) -> Option<Self> {
        let value = |name: &str| status.get(name).map_or("", |it| it.trim());
        let state = value("wsrep_cluster_state_uuid");
        let is_member = value("wsrep_cluster_status") == "Primary" && value("wsrep_ready") == "ON";
        if !is_member || state.chars().all(|it| matches!(it, '0' | '-')) {
            return None;
        }
        let mut members: Vec<_> =
            value("wsrep_incoming_addresses").split(',').map(ToOwned::to_owned).collect();
        members.sort_unstable();
        Some(Self {
            state: state.to_owned(),
            member: value("wsrep_gcomm_uuid").to_owned(),
            number: value("wsrep_cluster_conf_id").to_owned(),
            size: value("wsrep_cluster_size").parse().ok()?,
            members,
        })
    }

    /// Returns a text that is equal for the members of one cluster, even if it was split.
    pub(super) fn server(&self) -> String {
        format!("galera {}", self.state)
    }

    /// Returns whether another member keeps what this one loses in a crash. An arbitrator counts as a member
    /// but keeps no data; it has no address.
    pub(super) fn is_shared(&self) -> bool {
        self.members.iter().filter(|it| !it.trim().is_empty()).count() > 1
    }
}

/// Returns the refusal of a server that could be a member but is not one now.
pub(super) fn no_member(status: &BTreeMap<String, String>) -> HostRefusal {
    let value = |name: &str| status.get(name).map_or("", |it| it.trim());
    let text = format!(
        "the server is not in a Galera cluster that accepts writes (wsrep_cluster_status {}, wsrep_ready {}); let it join \
         the cluster",
        value("wsrep_cluster_status"),
        value("wsrep_ready")
    );
    HostRefusal::new(StoreErrorKind::Unavailable, text)
}

/// The extent of a server's history, and its cluster.
#[derive(Default, Debug)]
pub(crate) struct ClusterHistory {
    pub(super) history: GtidHistory,
    pub(super) view: Option<GaleraView>,
}

impl net::ServerHistory for ClusterHistory {
    fn lacks(&self, seen: &Self) -> Option<String> {
        self.history.lacks(&seen.history)
    }

    fn merge(&mut self, other: Self) {
        self.history.merge(other.history);
    }

    fn split(histories: &[&Self]) -> Option<String> {
        let views: Vec<&GaleraView> = histories.iter().filter_map(|it| it.view.as_ref()).collect();
        let first = views.first()?;
        let differ = |it: &&GaleraView| {
            (&it.number, it.size, &it.members) != (&first.number, first.size, &first.members)
        };
        let members: BTreeSet<&str> = views.iter().map(|it| &*it.member).collect();
        (views.iter().any(differ) || members.len() > first.size).then(|| {
            "each as part of a Galera cluster that was split, or started twice from one data directory, and would \
             produce duplicates; stop all parts but one, and let their members join it"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::net::ServerHistory as _;

    #[test]
    fn a_server_that_lacks_a_transaction_is_told_from_one_that_has_more() {
        const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let uuid = |rest: &str| format!("{UUID}{rest}");
        let lacks = |has: &str, seen: &str| GtidHistory::parse(has).lacks(&GtidHistory::parse(seen));
        for (has, seen) in [
            ("", ""),
            ("0-1-5", ""),
            ("0-1-5", "0-1-5"),
            ("0-1-5,0-2-6", "0-1-5"),
            // A replica without a binary log knows one transaction of a domain.
            (",0-2-6", "0-1-5"),
            ("1-1-9,0-1-5", "0-1-5"),
            (&uuid(":1-6"), &uuid(":1-5")),
            (&uuid(":1-9,\n4e11fa47-71ca-11e1-9e33-c80aa9429562:1"), &uuid(":1-5")),
            (&uuid(":7-9:1-3:4-6"), &uuid(":2:4-8")),
            (&uuid(":1-900:1000001-1000050"), &uuid(":1-900:1000001-1000050")),
            // A tag has numbers of its own.
            (&uuid(":1-9531:backup:1-2"), &uuid(":1-9531")),
            (&uuid(":1-9531:backup:1-2:9:zz:1"), &uuid(":1-9531:zz:1:Backup:9")),
        ] {
            assert_eq!(lacks(has, seen), None, "{has} after {seen}");
        }
        for (has, seen) in [
            ("", "0-1-5"),
            ("0-1-4", "0-1-5"),
            // The new primary has continued without the lost transactions.
            ("0-1-4,0-2-9", "0-1-5"),
            ("1-1-9", "0-1-5"),
            ("", &uuid(":1")),
            (&uuid(":1-4"), &uuid(":1-5")),
            ("4e11fa47-71ca-11e1-9e33-c80aa9429562:1-100", &uuid(":1-5")),
            (&uuid(":1-3:7-9"), &uuid(":1-5")),
            // A failover in a group, whose members have blocks of their own, that loses the end of one.
            (&uuid(":1-700:1000001-1000050"), &uuid(":1-900:1000001-1000050")),
            (&uuid(":1-700:1000001-1000050:2000001"), &uuid(":1-900:1000001-1000050")),
            (&uuid(":5-1"), &uuid(":3")),
            // A failover to a replica that lacks 200 acknowledged transactions.
            (&uuid(":1-9331:backup:1-2"), &uuid(":1-9531:backup:1-2")),
            (&uuid(":1-9331:backup:1-2"), &uuid(":1-9531")),
            (&uuid(":1-9531:backup:1"), &uuid(":1-9531:backup:1-2")),
            (&uuid(":1-9531"), &uuid(":1-9531:backup:1-2")),
            (&uuid(":a:1-9"), &uuid(":b:1-9")),
        ] {
            assert!(lacks(has, seen).is_some(), "{has} after {seen}");
        }
        let mut seen = GtidHistory::parse("0-1-5,0-2-9");
        seen.merge(GtidHistory::parse("0-1-7,0-2-8,1-1-1"));
        assert_eq!(seen, GtidHistory::parse("0-1-7,0-2-9,1-1-1"));
        for (has, first) in [(":1-4:8-20", "5-7"), (":1-9", "10-10"), (":3-20", "1-2"), ("", "1-10")] {
            let lack = lacks(&uuid(has), &uuid(":1-10")).unwrap();
            assert!(lack.starts_with(&format!("lacks the transactions {first} of {UUID}, and")), "{lack}");
        }
    }

    proptest! {
        /// Goal: what is lacking is the difference of two sets, each server and tag by itself. Method: MySQL's
        /// whole grammar, with intervals in any order and spaces wherever it allows them, against sets of single
        /// transactions; several sets that were seen one after the other.
        #[test]
        fn a_server_lacks_the_difference_of_sets(
            sets in vec(vec((0..3_u8, vec((0..3_usize, vec((1..40_u64, 0..9_u64), 1..6)), 1..4)), 0..4), 2..4),
            space in "[ \n]{0,2}",
        ) {
            let mut all = Vec::new();
            for set in sets {
                let (mut single, mut lists) = (BTreeSet::new(), Vec::new());
                for (server, tags) in set {
                    let uuid = format!("3e11fa47-71ca-11e1-9e33-c80aa942956{server}");
                    let mut parts = vec![if server == 1 { uuid.to_uppercase() } else { uuid }];
                    for (nth, (tag, intervals)) in tags.into_iter().enumerate() {
                        // Intervals without a tag can only be first.
                        let tag = ["", "a", "_b_2"][if nth > 0 { tag.max(1) } else { tag }];
                        if !tag.is_empty() {
                            parts.push(tag.to_owned());
                        }
                        for (first, more) in intervals {
                            let last = first + more;
                            parts.push(if more == 0 { first.to_string() } else { format!("{first}{space}-{space}{last}") });
                            single.extend((first..=last).map(|number| (server, tag, number)));
                        }
                    }
                    lists.push(parts.join(&format!("{space}:{space}")));
                }
                all.push((lists.join(&format!("{space},{space}")), single));
            }
            let (has, own) = all.remove(0);
            let seen: Vec<&str> = all.iter().map(|it| &*it.0).collect();
            let lacks = all.iter().any(|it| !it.1.is_subset(&own));
            prop_assert_eq!(lacking_gtids(&has, &seen).is_some(), lacks, "{} after {:?}", has, seen);
        }

        /// Goal: the numbers that a server is said to lack are the first of the difference, up to the last
        /// number that there can be.
        #[test]
        fn the_first_numbers_that_are_lacking_are_told(
            has in vec((0..30_u64, 0..5_u64), 0..6), seen in vec((0..30_u64, 0..5_u64), 0..6), from in prop::bool::ANY,
        ) {
            let start = if from { u64::MAX - 30 } else { 0 };
            let set = |all: &[(u64, u64)]| -> (Intervals, BTreeSet<u64>) {
                let all: Vec<_> = all.iter().map(|it| (start + it.0, (start + it.0).saturating_add(it.1))).collect();
                (Intervals::new(all.clone()), all.iter().flat_map(|it| it.0..=it.1).collect())
            };
            let ((has, own), (seen, wanted)) = (set(&has), set(&seen));
            let lacking: Vec<u64> = wanted.difference(&own).copied().collect();
            let run = lacking.iter().zip(0..).take_while(|(number, nth)| **number - lacking[0] == *nth);
            let first = run.last().map(|(last, _)| (lacking[0], *last));
            prop_assert_eq!(has.lacks(&seen), first, "{:?} after {:?}", has, seen);
        }

        #[test]
        fn any_text_is_read(text in ".{0,40}") {
            GtidHistory::parse(&text);
        }
    }

    fn view(member: &str, number: &str, members: &str) -> ClusterHistory {
        let size = members.split(',').count().to_string();
        let status = [
            ("wsrep_ready", "ON"),
            ("wsrep_cluster_status", "Primary"),
            ("wsrep_cluster_state_uuid", "b26b38ce-e653-11f1-96df-eb8d1aa50f0e"),
            ("wsrep_gcomm_uuid", member),
            ("wsrep_cluster_conf_id", number),
            ("wsrep_cluster_size", &size),
            ("wsrep_incoming_addresses", members),
        ];
        let status = status.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        ClusterHistory { history: GtidHistory::default(), view: Some(GaleraView::parse(&status).unwrap()) }
    }

    #[test]
    fn members_of_one_view_are_one_cluster_and_others_are_not() {
        let split = |histories: &[ClusterHistory]| {
            ClusterHistory::split(&histories.iter().collect::<Vec<_>>()).is_some()
        };
        let (a, b) = (view("a", "2", "h1,h2"), view("b", "2", "h1,h2"));
        assert!(!split(&[]) && !split(&[ClusterHistory::default(), ClusterHistory::default()]));
        assert!(!split(&[view("a", "2", "h1,h2"), a, b]));
        // One member under two names, alone.
        assert!(!split(&[view("a", "3", "h1"), view("a", "3", "h1")]));
        for parts in [
            // Split in two; each side has changed its view equally often.
            [view("a", "3", "h1"), view("b", "3", "h2")],
            // One member has not seen the change, or they are two clusters by now.
            [view("a", "2", "h1,h2"), view("b", "3", "h1,h2")],
            [view("a", "2", "h1,h2"), view("b", "2", "h1,h2,h3")],
            [view("a", "2", "h1,h2"), view("b", "2", "h3,h4")],
            // Members that do not show their addresses.
            [view("a", "1", "AUTO"), view("b", "1", "AUTO")],
        ] {
            assert!(split(&parts), "{parts:?}");
        }
    }

    #[test]
    fn an_arbitrator_keeps_nothing() {
        let is_shared = |members: &str| view("a", "2", members).view.unwrap().is_shared();
        assert!(is_shared("h1,h2") && is_shared("AUTO,AUTO") && is_shared(",h1,h2"));
        assert!(!is_shared("h1,") && !is_shared(",h1") && !is_shared("h1"));
    }

    #[test]
    fn only_a_member_has_a_view() {
        const STATE: &str = "b26b38ce-e653-11f1-96df-eb8d1aa50f0e";
        let status = |ready: &str, of: &str, state: &str| {
            let status = [
                ("wsrep_ready", ready),
                ("wsrep_cluster_status", of),
                ("wsrep_cluster_state_uuid", state),
                ("wsrep_cluster_size", "1"),
            ];
            GaleraView::parse(&status.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
        };
        assert!(status("ON", "Primary", STATE).is_some());
        // Without a provider, cut off, not synced yet, and invalid states.
        for (ready, of, state) in [
            ("OFF", "Disconnected", ""),
            ("OFF", "non-Primary", STATE),
            ("OFF", "Primary", STATE),
            ("ON", "non-Primary", STATE),
            ("ON", "Primary", ""),
            ("ON", "Primary", "00000000-0000-0000-0000-000000000000"),
        ] {
            assert_eq!(status(ready, of, state), None, "{ready} {of} {state}");
        }
    }
}
