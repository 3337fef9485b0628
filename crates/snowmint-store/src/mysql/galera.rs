//! Members of a Galera cluster: each belongs to a view, and members of one view have the same records.
//! The state UUID tells no more than where the records come from: a cluster that was split, or started twice from one data
//! directory, has the same on both sides.

use std::collections::{BTreeMap, BTreeSet};

use super::history::History;
use crate::StoreErrorKind;
use crate::network::{self, Refusal};

/// What a server says of its cluster.
pub(super) const STATUS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_cluster_status', \
    'wsrep_cluster_state_uuid', 'wsrep_gcomm_uuid', 'wsrep_cluster_conf_id', 'wsrep_cluster_size', \
    'wsrep_incoming_addresses')";

/// A member's view of its cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct View {
    /// Where the records come from.
    state: String,
    /// The member that has this view.
    member: String,
    /// Which of the views of the cluster it is.
    number: String,
    size: usize,
    /// The addresses of all members, sorted. Several may say `AUTO`.
    members: Vec<String>,
}

impl View {
    /// Takes the answer to [`STATUS`] apart; `None` where the server belongs to no cluster that may be written.
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

    /// Equal for the members of one cluster, also where it was split.
    pub(super) fn server(&self) -> String {
        format!("galera {}", self.state)
    }

    /// Whether another member keeps what this one loses in a crash: an arbitrator counts as a member, and keeps nothing. It
    /// has no address.
    pub(super) fn is_shared(&self) -> bool {
        self.members.iter().filter(|it| !it.trim().is_empty()).count() > 1
    }
}

/// The refusal of a server that could be a member, and is none now.
pub(super) fn no_member(status: &BTreeMap<String, String>) -> Refusal {
    let value = |name: &str| status.get(name).map_or("", |it| it.trim());
    let text = format!(
        "the server is no member of a Galera cluster that accepts writes (wsrep_cluster_status is {}, wsrep_ready is {}); \
         let it join the cluster",
        value("wsrep_cluster_status"),
        value("wsrep_ready")
    );
    Refusal::new(StoreErrorKind::Unavailable, text)
}

/// How far the history of a server goes, and which cluster it belongs to.
#[derive(Default, Debug)]
pub(crate) struct Mark {
    pub(super) history: History,
    pub(super) view: Option<View>,
}

impl network::Mark for Mark {
    fn lacks(&self, seen: &Self) -> Option<String> {
        self.history.lacks(&seen.history)
    }

    fn see(&mut self, mark: Self) {
        self.history.see(mark.history);
    }

    fn parted(marks: &[&Self]) -> Option<String> {
        let views: Vec<&View> = marks.iter().filter_map(|it| it.view.as_ref()).collect();
        let first = views.first()?;
        let differ =
            |it: &&View| (&it.number, it.size, &it.members) != (&first.number, first.size, &first.members);
        let members: BTreeSet<&str> = views.iter().map(|it| &*it.member).collect();
        (views.iter().any(differ) || members.len() > first.size).then(|| {
            "each as part of a Galera cluster that was split, or started twice from one data directory, so they would \
             produce duplicates; stop all parts but one, and let their members join that one"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Mark as _;

    fn view(member: &str, number: &str, members: &str) -> Mark {
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
        Mark { history: History::default(), view: Some(View::parse(&status).unwrap()) }
    }

    #[test]
    fn members_of_one_view_are_one_cluster_and_others_are_not() {
        let parted = |marks: &[Mark]| Mark::parted(&marks.iter().collect::<Vec<_>>()).is_some();
        let (a, b) = (view("a", "2", "h1,h2"), view("b", "2", "h1,h2"));
        assert!(!parted(&[]) && !parted(&[Mark::default(), Mark::default()]));
        assert!(!parted(&[view("a", "2", "h1,h2"), a, b]));
        // A member by two names, alone.
        assert!(!parted(&[view("a", "3", "h1"), view("a", "3", "h1")]));
        for parts in [
            // Split in two, each side as many views later.
            [view("a", "3", "h1"), view("b", "3", "h2")],
            // One has not seen the change, or they are two clusters by now.
            [view("a", "2", "h1,h2"), view("b", "3", "h1,h2")],
            [view("a", "2", "h1,h2"), view("b", "2", "h1,h2,h3")],
            [view("a", "2", "h1,h2"), view("b", "2", "h3,h4")],
            // Members that do not say where they are.
            [view("a", "1", "AUTO"), view("b", "1", "AUTO")],
        ] {
            assert!(parted(&parts), "{parts:?}");
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
            View::parse(&status.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
        };
        assert!(status("ON", "Primary", STATE).is_some());
        // Without a provider, cut off, not synced yet, and states that are none.
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
