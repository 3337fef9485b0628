//! What a server has, compared with what was seen elsewhere: its transactions, and its view of a Galera
//! cluster.
//!
//! `GtidHistory` is the set of transactions that a server has, by GTID: the last one of each origin; in
//! MariaDB the numbers of a domain only grow. A server that lacks a transaction which was seen elsewhere has
//! lost writes. `GaleraView` is a server's view of its Galera cluster.

use std::collections::{BTreeMap, BTreeSet};

use crate::net::HostRefusal;
use crate::{StoreErrorKind, net};

/// The last transaction of each origin that a server has; empty if the server has no GTIDs.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct GtidHistory(BTreeMap<GtidOrigin, u64>);

/// A domain and a server of MariaDB, or the UUID of a server of MySQL and the tag of its transactions, which
/// may be empty. Each counts by itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum GtidOrigin {
    Domain(u64, u64),
    Uuid { uuid: String, tag: String },
}

impl GtidHistory {
    /// Parses lists of GTIDs: `0-1-100,0-2-105` of MariaDB, `3e11fa47-...:1-5:11-18:tag:1-2, ...` of MySQL,
    /// since 8.3 with [tags]. Other text is ignored.
    ///
    /// [tags]: https://dev.mysql.com/doc/refman/9.5/en/replication-gtids-concepts.html
    pub(super) fn parse(text: &str) -> Self {
        let mut history = Self::default();
        for list in text.split(',') {
            match list.split_once(':') {
                Some((uuid, rest)) => history.add_intervals(&uuid.trim().to_lowercase(), rest),
                None => history.add_position(list.trim()),
            }
        }
        history
    }

    /// Adds the intervals of a server of MySQL. A tag applies to those behind it.
    fn add_intervals(&mut self, uuid: &str, text: &str) {
        let mut tag = String::new();
        for part in text.split(':').map(str::trim) {
            let last = part.rsplit('-').next().unwrap_or_default().trim();
            match last.parse() {
                Ok(last) => self.add(GtidOrigin::Uuid { uuid: uuid.to_owned(), tag: tag.clone() }, last),
                Err(_) => tag = part.to_lowercase(),
            }
        }
    }

    /// Adds a position of MariaDB.
    fn add_position(&mut self, text: &str) {
        let mut numbers = text.split('-').map(str::parse);
        let parts = (numbers.next(), numbers.next(), numbers.next(), numbers.next());
        if let (Some(Ok(domain)), Some(Ok(server)), Some(Ok(number)), None) = parts {
            self.add(GtidOrigin::Domain(domain, server), number);
        }
    }

    fn add(&mut self, origin: GtidOrigin, number: u64) {
        let known = self.0.entry(origin).or_default();
        *known = number.max(*known);
    }

    /// Returns the last known transaction of an origin. A MariaDB replica without a binary log knows only the
    /// last transaction of a domain, and has all with lower numbers.
    fn has(&self, origin: &GtidOrigin) -> u64 {
        match (self.0.get(origin), origin) {
            (Some(number), _) => *number,
            (None, GtidOrigin::Domain(domain, _)) => {
                let of_domain =
                    self.0.iter().filter(|it| matches!(it.0, GtidOrigin::Domain(it, _) if it == domain));
                of_domain.map(|it| *it.1).max().unwrap_or(0)
            }
            (None, GtidOrigin::Uuid { .. }) => 0,
        }
    }
}

impl net::ServerHistory for GtidHistory {
    fn lacks(&self, seen: &Self) -> Option<String> {
        let lacking = seen.0.iter().find(|(origin, number)| self.has(origin) < **number);
        lacking.map(|(origin, number)| {
            let (has, of) = (
                self.has(origin),
                match origin {
                    GtidOrigin::Domain(domain, server) => format!("domain {domain}, server {server}"),
                    GtidOrigin::Uuid { uuid, tag } if tag.is_empty() => uuid.clone(),
                    GtidOrigin::Uuid { uuid, tag } => format!("{uuid}, tag {tag}"),
                },
            );
            format!("has transactions up to {has} of {of}, and this node has seen {number}")
        })
    }

    fn merge(&mut self, other: Self) {
        for (origin, number) in other.0 {
            self.add(origin, number);
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
            (&uuid(":1-3:7-9,\n4e11fa47-71ca-11e1-9e33-c80aa9429562:1"), &uuid(":1-5")),
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
    }

    proptest! {
        /// Goal: each server and tag counts by itself. Method: sets of MySQL's whole grammar, with intervals in
        /// any order and spaces wherever it allows them.
        #[test]
        fn the_last_transaction_of_each_server_and_tag_is_read(
            sets in vec((0..3_u8, vec((0..3_usize, vec((1..u64::MAX, 0..9_u64), 1..4)), 1..4)), 0..4),
            space in "[ \n]{0,2}",
        ) {
            let mut wanted = GtidHistory::default();
            let mut lists = Vec::new();
            for (server, tags) in sets {
                let uuid = format!("3e11fa47-71ca-11e1-9e33-c80aa942956{server}");
                let mut parts = vec![if server == 1 { uuid.to_uppercase() } else { uuid.clone() }];
                for (nth, (tag, intervals)) in tags.into_iter().enumerate() {
                    // Intervals without a tag can only be first.
                    let tag = ["", "a", "_b_2"][if nth > 0 { tag.max(1) } else { tag }];
                    if !tag.is_empty() {
                        parts.push(tag.to_owned());
                    }
                    for (first, more) in intervals {
                        let last = first.saturating_add(more);
                        parts.push(if more == 0 { first.to_string() } else { format!("{first}{space}-{space}{last}") });
                        wanted.add(GtidOrigin::Uuid { uuid: uuid.clone(), tag: tag.to_owned() }, last);
                    }
                }
                lists.push(parts.join(&format!("{space}:{space}")));
            }
            let text = lists.join(&format!("{space},{space}"));
            prop_assert_eq!(GtidHistory::parse(&text), wanted, "{}", text);
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
