//! Asks the peers of this node whether they make ids. This notices a node that was killed, at any time: once
//! its lease has ended, the record looks like that of a node that was shut down.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use snowmint_admin::doctor::NODES;
use snowmint_admin::node_reports::{self, NodeError, NodeReadiness};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::problems::{Problem, Severity};
use crate::known_peers::KnownPeer;
use crate::limits::fleet::PEERS_EVERY;
use crate::state::ServerState;

/// A peer of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Peer {
    pub(super) address: String,
    pub(super) state: PeerState,
    /// Why it does not answer or makes no ids, or what fails meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// The identity of its store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) store: Option<String>,
    /// Whether it is this node.
    #[serde(skip)]
    pub(super) is_this_node: bool,
    /// What it said of itself when it last answered.
    #[serde(skip)]
    pub(super) name: Option<String>,
    #[serde(skip)]
    pub(super) version: Option<String>,
    #[serde(skip)]
    pub(super) instance: Option<String>,
    #[serde(skip)]
    pub(super) workers: Vec<u32>,
    #[serde(skip)]
    pub(super) ids_per_second: Option<u64>,
    #[serde(skip)]
    pub(super) seen_unix_ms: Option<u64>,
}

/// Whether a peer makes ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PeerState {
    Ready,
    NotReady,
    /// It does not answer.
    Silent,
}

impl Peer {
    async fn ask(address: String, server: &ServerState) -> Self {
        let (state, why, store) = match node_reports::fetch_readiness(&address).await {
            Ok((NodeReadiness::Ready { trouble }, store)) => (PeerState::Ready, trouble, Some(store)),
            Ok((NodeReadiness::NotReady { why }, store)) => (PeerState::NotReady, Some(why), Some(store)),
            Err(NodeError::Node { why, .. }) => (PeerState::Silent, Some(why), None),
            Err(error) => (PeerState::Silent, Some(error.to_string()), None),
        };
        if let Some(store) = &store {
            server.peers.note(&address, store);
        }
        let KnownPeer { name, version, instance, seen_unix_ms, ids_per_second, .. } =
            server.peers.get(&address);
        let store = store.unwrap_or_default();
        Self {
            state,
            why,
            store: store.id.map(|id| id.to_string()),
            is_this_node: store.instance.as_deref() == Some(server.instance.as_str()),
            name,
            version,
            instance,
            workers: store
                .workers
                .iter()
                .map(|(_, worker)| *worker)
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
            ids_per_second: ids_per_second.filter(|_| state != PeerState::Silent),
            seen_unix_ms: (seen_unix_ms > 0).then_some(seen_unix_ms),
            address,
        }
    }

    /// A peer that does not answer, for tests.
    #[cfg(test)]
    pub(super) fn silent(address: &str, name: Option<&str>) -> Self {
        Self {
            address: address.to_owned(),
            state: PeerState::Silent,
            why: Some("refused".to_owned()),
            store: None,
            is_this_node: false,
            name: name.map(str::to_owned),
            version: None,
            instance: None,
            workers: Vec::new(),
            ids_per_second: None,
            seen_unix_ms: None,
        }
    }

    /// Returns its problem, if it has one.
    pub(super) fn problem(&self) -> Option<Problem> {
        let (address, why) = (&self.address, self.why.as_ref()?);
        let (severity, what, remedy) = match self.state {
            PeerState::Ready => (Severity::Warning, format!("peer {address} makes ids, but {why}"), None),
            PeerState::NotReady => (Severity::Warning, format!("peer {address} is not ready: {why}"), None),
            PeerState::Silent => {
                let remedy = "it was killed, hangs, or is cut off from this node: see its log and start it again. If it was \
                              removed on purpose, remove it from --peers too";
                (Severity::Error, format!("peer {address} does not answer: {why}"), Some(remedy.to_owned()))
            }
        };
        Some(Problem { severity, check: Cow::Borrowed("peer"), what, remedy })
    }
}

/// What the peers last answered.
pub(super) struct Peers {
    server: Arc<ServerState>,
    addresses: Arc<[String]>,
    asking: Option<JoinHandle<Vec<Peer>>>,
    /// When they are asked again.
    due: Instant,
    last: Vec<Peer>,
}

impl Peers {
    pub(super) fn new(server: Arc<ServerState>, addresses: Arc<[String]>) -> Self {
        Self { server, addresses, asking: None, due: Instant::now(), last: Vec::new() }
    }

    /// Asks all peers if it is time, and waits for their answers until `until`. Later answers are taken at
    /// the next call.
    pub(super) async fn update(&mut self, until: Instant) {
        if self.asking.is_none() && (self.addresses.is_empty() || Instant::now() < self.due) {
            return;
        }
        let asking = self.asking.get_or_insert_with(|| {
            self.due = Instant::now() + PEERS_EVERY;
            let (addresses, server) = (Arc::clone(&self.addresses), Arc::clone(&self.server));
            tokio::spawn(async move {
                let asked = stream::iter(addresses.to_vec()).map(|address| Peer::ask(address, &server));
                asked.buffered(NODES).collect().await
            })
        });
        if let Ok(answers) = timeout_at(until, asking).await {
            self.asking = None;
            self.last = answers.unwrap_or_default();
        }
    }

    pub(super) fn last(&self) -> &[Peer] {
        &self.last
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing;

    fn server() -> Arc<ServerState> {
        Arc::new(ServerState::for_tests(testing::mint()))
    }

    /// Returns the address of a node that gives one answer.
    async fn answering(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let mut client = listener.accept().await.unwrap().0;
            let _ = client.read(&mut [0; 512]).await.unwrap();
            client.write_all(answer.as_bytes()).await.unwrap();
        });
        address
    }

    /// Goal: a peer that was killed is an error, one that makes no ids is named with its reason, and a
    /// healthy one is no problem. Method: nodes that answer so, and a port that nobody listens on.
    #[tokio::test]
    async fn each_state_of_a_peer_is_named() {
        let ready = answering("HTTP/1.0 200 OK\r\n\r\n{\"ready\":true}").await;
        let troubled =
            answering("HTTP/1.0 200 OK\r\n\r\n{\"ready\":true,\"trouble\":\"a call failed\"}").await;
        let unready = answering("HTTP/1.0 503 -\r\n\r\n{\"detail\":\"no lease\"}").await;
        let killed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
        let addresses = [&ready, &troubled, &unready, &killed].map(String::clone);
        let mut peers = Peers::new(server(), addresses.into());
        peers.update(Instant::now() + Duration::from_mins(1)).await;
        let states: Vec<_> = peers.last().iter().map(|peer| (&peer.address, peer.state)).collect();
        let wanted = [
            (&ready, PeerState::Ready),
            (&troubled, PeerState::Ready),
            (&unready, PeerState::NotReady),
            (&killed, PeerState::Silent),
        ];
        assert_eq!(states, wanted);
        let problems: Vec<_> = peers.last().iter().filter_map(Peer::problem).collect();
        let shown: Vec<_> = problems.iter().map(|it| (it.severity, &*it.what)).collect();
        assert_eq!(shown[0], (Severity::Warning, &*format!("peer {troubled} makes ids, but a call failed")));
        assert_eq!(shown[1], (Severity::Warning, &*format!("peer {unready} is not ready: no lease")));
        let (severity, what) = shown[2];
        assert_eq!(severity, Severity::Error);
        assert!(what.starts_with(&format!("peer {killed} does not answer: ")), "{what}");
        assert_eq!(shown.len(), 3);
    }

    /// Goal: a peer that hangs delays no state, and is not asked twice at a time. Method: a peer that accepts
    /// and stays silent.
    #[tokio::test(start_paused = true)]
    async fn a_hanging_peer_delays_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peers = Peers::new(server(), [listener.local_addr().unwrap().to_string()].into());
        let began = Instant::now();
        peers.update(began + Duration::from_millis(500)).await;
        assert_eq!((began.elapsed(), peers.last().len()), (Duration::from_millis(500), 0));
        peers.update(began + Duration::from_mins(1)).await;
        assert_eq!((peers.last()[0].state, peers.due), (PeerState::Silent, began + PEERS_EVERY));
    }
}
