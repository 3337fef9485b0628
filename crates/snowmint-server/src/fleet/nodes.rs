//! The nodes of a fleet: this one, those of `--peers`, and those whose leases are in the store.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::Serialize;
use snowmint_admin::workers::WorkerState;

use super::peers::{Peer, PeerState};
use super::{LeaseRecords, Node, WorkerRow};
use crate::known_peers::whole;
use crate::limits::fleet::NODES;

/// A node, as far as this one knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct NodeRow {
    /// Its name in the store; its address if it never said its name.
    pub(super) name: String,
    state: NodeState,
    /// Whether it is this node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    here: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// The identity of its store.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// The workers that it holds, in all pools.
    workers: Vec<u32>,
    /// Ids a second; unknown of nodes that are no peers.
    #[serde(skip_serializing_if = "Option::is_none")]
    ids_per_second: Option<u64>,
    /// Why it is not alive.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// The last sign of life of a node that is gone: its answer, or the end of its lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    seen_unix_ms: Option<u64>,
    /// Whether another node has the same name.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    namesake: bool,
    /// A text of its process alone, if it answers.
    #[serde(skip)]
    instance: Option<String>,
}

/// How a node is. What an operator must not miss comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum NodeState {
    /// It does not answer, or its lease ended without a release.
    Gone,
    /// It holds a lease that it should have renewed by now, or holds one and does not answer.
    Late,
    /// It answers that it makes no ids.
    NotReady,
    Alive,
}

/// The leases of a node in the store; the first one held is that under its bare name.
#[derive(Default)]
struct OfNode<'a> {
    held: Vec<&'a WorkerRow>,
    lapsed: Vec<&'a WorkerRow>,
}

impl OfNode<'_> {
    fn workers(&self) -> Vec<u32> {
        self.held.iter().map(|it| it.worker).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn is_late(&self) -> bool {
        self.held.iter().any(|it| it.is_overdue())
    }

    /// Returns the end of its last lease.
    fn until_unix_ms(&self) -> Option<u64> {
        self.held.iter().chain(&self.lapsed).filter_map(|it| it.until_unix_ms).max()
    }

    /// Splits the leases of one name among the nodes that have it. A node adds to its name for a further lease
    /// in a pool: leases in one pool under the bare name are those of several nodes, if each was renewed since
    /// the newest began. Otherwise the node has started again on another worker.
    fn split(self, name: &str) -> Vec<Self> {
        let is_bare = |it: &WorkerRow| it.holder.as_deref() == Some(name) && !it.is_overdue();
        let mut began: BTreeMap<&str, Option<u64>> = BTreeMap::new();
        for lease in self.held.iter().filter(|it| is_bare(it)) {
            let newest = began.entry(&lease.pool).or_default();
            *newest = (*newest).max(lease.from_unix_ms);
        }
        let is_of_one = |it: &WorkerRow| {
            let newest = began.get(&*it.pool).copied().flatten();
            is_bare(it) && Some(it.changed_unix_ms) > newest
        };
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for lease in self.held.iter().filter(|it| is_of_one(it)) {
            *counts.entry(&lease.pool).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        let Some((pool, _)) = most.filter(|(_, count)| *count > 1) else { return vec![self] };
        let (bare, others): (Vec<_>, Vec<_>) =
            self.held.iter().partition(|it| is_of_one(it) && it.pool == pool);
        let mut nodes: Vec<Self> =
            bare.into_iter().map(|it| Self { held: vec![it], lapsed: Vec::new() }).collect();
        // Which of them holds the others, nothing says.
        if let Some(first) = nodes.first_mut() {
            first.held.extend(others);
        }
        nodes
    }
}

/// The leases of each node in the store, by name.
struct OfNodes<'a>(BTreeMap<&'a str, Vec<OfNode<'a>>>);

impl<'a> OfNodes<'a> {
    /// Takes the leases of the node of this name that holds these workers.
    fn take(&mut self, name: &str, workers: &[u32]) -> OfNode<'a> {
        let Some(all) = self.0.get_mut(name) else { return OfNode::default() };
        let is_held = |it: &OfNode<'_>| it.held.first().is_some_and(|it| workers.contains(&it.worker));
        // A node that does not answer shows no workers.
        let is_any = all.len() == 1 || workers.is_empty();
        let place = all.iter().position(|it| is_any || is_held(it));
        place.map(|place| all.remove(place)).unwrap_or_default()
    }
}

/// The names by which nodes are known: a name of a node may look like that of a further lease of another one.
struct KnownNames<'a> {
    nodes: HashSet<&'a str>,
    holders: HashSet<&'a str>,
}

impl<'a> KnownNames<'a> {
    fn new(node: &'a Node, peers: &'a [Peer], leases: Option<&'a LeaseRecords>) -> Self {
        let peers = peers.iter().filter_map(|peer| peer.name.as_deref());
        let workers = leases.map_or(&[][..], |leases| &leases.workers);
        Self {
            nodes: peers.chain(node.holder.as_deref()).collect(),
            holders: workers.iter().filter_map(|worker| worker.holder.as_deref()).collect(),
        }
    }

    /// Returns the name of the node that holds a lease: it adds a number or a purpose for further ones.
    fn node_of(&self, holder: &'a str) -> &'a str {
        if self.nodes.contains(holder) {
            return holder;
        }
        let slot = holder.rsplit_once('/').filter(|(_, number)| number.bytes().all(|it| it.is_ascii_digit()));
        let name = slot.map_or(holder, |(name, _)| name);
        let name = name.split_once('~').map_or(name, |(name, _)| name);
        if self.nodes.contains(name) || self.holders.contains(name) { name } else { holder }
    }
}

/// Lists the nodes, those that are gone first, and returns how many the list leaves out.
pub(super) fn list(
    node: &Node,
    store: Option<&str>,
    peers: &[Peer],
    leases: Option<&LeaseRecords>,
) -> (Vec<NodeRow>, usize) {
    let names = KnownNames::new(node, peers, leases);
    let mut of_nodes = BTreeMap::<&str, OfNode<'_>>::new();
    for worker in leases.map_or(&[][..], |leases| &leases.workers) {
        if let (Some(holder), WorkerState::Held) = (&worker.holder, worker.state) {
            of_nodes.entry(names.node_of(holder)).or_default().held.push(worker);
        }
    }
    for worker in leases.map_or_else(Vec::new, LeaseRecords::lapsed_workers) {
        if let Some(holder) = &worker.holder {
            of_nodes.entry(names.node_of(holder)).or_default().lapsed.push(worker);
        }
    }
    let of_nodes = of_nodes.into_iter().map(|(name, of_node)| (name, of_node.split(name)));
    let mut of_nodes = OfNodes(of_nodes.collect());
    let own_address = peers.iter().find(|peer| peer.is_this_node).map(|peer| peer.address.clone());
    if let Some(name) = node.holder.as_deref() {
        let workers: Vec<u32> = node.leases.iter().map(|lease| lease.worker).collect();
        of_nodes.take(name, &workers);
    }
    let mut rows = vec![NodeRow::here(node, store, own_address)];
    // A node may be named by two addresses: the one that answers counts.
    let (answer, silent): (Vec<_>, Vec<_>) =
        peers.iter().filter(|peer| !peer.is_this_node).partition(|peer| peer.state != PeerState::Silent);
    for peer in answer.into_iter().chain(silent) {
        let name = peer.name.as_deref().unwrap_or(&peer.address);
        if !rows.iter().any(|row| row.name == name && !row.is_another_than(peer)) {
            let of_node = of_nodes.take(name, &peer.workers);
            rows.push(NodeRow::of_peer(name.to_owned(), peer, &of_node));
        }
    }
    for (name, all) in of_nodes.0 {
        rows.extend(all.iter().map(|of_node| NodeRow::of_leases(name, store, of_node)));
    }
    let mut counts: HashMap<String, usize> = HashMap::new();
    for row in &rows {
        *counts.entry(row.name.clone()).or_default() += 1;
    }
    for row in &mut rows {
        row.namesake = counts.get(&row.name).is_some_and(|count| *count > 1);
    }
    rows.sort_by_cached_key(|row| (row.state, !row.here, row.name.clone(), row.workers.clone()));
    let more = rows.len().saturating_sub(NODES);
    rows.truncate(NODES);
    (rows, more)
}

impl NodeRow {
    /// Returns whether a peer of the same name is another node. One that does not answer may have moved.
    fn is_another_than(&self, peer: &Peer) -> bool {
        let Some(instance) = peer.instance.as_ref().filter(|_| peer.state != PeerState::Silent) else {
            return false;
        };
        self.here || self.instance.as_ref().is_some_and(|own| own != instance)
    }

    fn here(node: &Node, store: Option<&str>, address: Option<String>) -> Self {
        let why =
            if node.drained { Some("an operator has drained it".to_owned()) } else { node.unready.clone() };
        let workers: BTreeSet<u32> = node.leases.iter().map(|lease| lease.worker).collect();
        Self {
            name: node.holder.clone().unwrap_or_else(|| "this node".to_owned()),
            state: if node.ready { NodeState::Alive } else { NodeState::NotReady },
            here: true,
            address,
            store: store.map(str::to_owned),
            version: Some(node.version.to_owned()),
            workers: workers.into_iter().collect(),
            ids_per_second: node.ids_per_second.map(whole),
            why: why.filter(|_| !node.ready),
            seen_unix_ms: None,
            namesake: false,
            instance: None,
        }
    }

    fn of_peer(name: String, peer: &Peer, of_node: &OfNode<'_>) -> Self {
        let lives_on = !of_node.held.is_empty() && !of_node.is_late();
        let (state, why) = match peer.state {
            PeerState::Ready if of_node.is_late() => (NodeState::Late, Some(late(of_node))),
            PeerState::Ready => (NodeState::Alive, peer.why.clone()),
            PeerState::NotReady => (NodeState::NotReady, peer.why.clone()),
            PeerState::Silent if lives_on => {
                let why = peer.why.as_deref().unwrap_or("no answer");
                (NodeState::Late, Some(format!("it renews its lease, but does not answer this node: {why}")))
            }
            PeerState::Silent => (NodeState::Gone, peer.why.clone()),
        };
        Self {
            name,
            state,
            here: false,
            address: Some(peer.address.clone()),
            store: peer.store.clone(),
            version: peer.version.clone(),
            workers: if of_node.held.is_empty() { peer.workers.clone() } else { of_node.workers() },
            ids_per_second: peer.ids_per_second,
            why,
            seen_unix_ms: peer.seen_unix_ms.filter(|_| peer.state == PeerState::Silent),
            namesake: false,
            instance: peer.instance.clone(),
        }
    }

    fn of_leases(name: &str, store: Option<&str>, of_node: &OfNode<'_>) -> Self {
        let (state, why) = if of_node.held.is_empty() {
            (NodeState::Gone, Some("its lease ended without a release".to_owned()))
        } else if of_node.is_late() {
            (NodeState::Late, Some(late(of_node)))
        } else {
            (NodeState::Alive, None)
        };
        Self {
            name: name.to_owned(),
            state,
            here: false,
            address: None,
            store: store.map(str::to_owned),
            version: None,
            workers: of_node.workers(),
            ids_per_second: None,
            why,
            seen_unix_ms: of_node.until_unix_ms().filter(|_| state == NodeState::Gone),
            namesake: false,
            instance: None,
        }
    }
}

fn late(of_node: &OfNode<'_>) -> String {
    let all: Vec<u32> = of_node.held.iter().filter(|it| it.is_overdue()).map(|it| it.worker).collect();
    let all: Vec<String> = all.iter().map(u32::to_string).collect();
    format!("it has not renewed the lease of worker {} in time", all.join(", "))
}
