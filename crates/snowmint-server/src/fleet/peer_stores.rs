//! Compares the store of this node with those of its peers, so that nodes on two stores notice each other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use snowmint_admin::doctor::NODES;
use snowmint_admin::node_reports::{self, NodeStore};
use snowmint_store::StoreId;
use tokio::time::{Instant, sleep_until};

use crate::admin::node_admin::NodeAdmin;
use crate::limits::fleet::STORES_EVERY;
use crate::state::ServerState;
use crate::store_label::PeerTroubles;
use crate::telemetry::recurring_problem::RecurringProblem;

/// A peer that holds a worker of this node counts once it did so at this many looks in a row: a lease may
/// change hands between two nodes whose clocks differ.
const LOOKS: u32 = 2;
/// The first look waits until the leases of a fleet that starts are settled.
const FIRST_LOOK: Duration = Duration::from_secs(5);

/// The worker of a pool.
type Worker = (String, u32);

/// Asks the peers until the service ends.
pub(crate) async fn compare(server: Arc<ServerState>) -> std::convert::Infallible {
    let peers = server.settings.admin.as_ref().map(NodeAdmin::peers).unwrap_or_default();
    if peers.is_empty() {
        return std::future::pending().await;
    }
    let mut due = Instant::now() + FIRST_LOOK;
    let (mut shared, mut problem) = (Shared::default(), RecurringProblem::default());
    loop {
        sleep_until(due).await;
        due = Instant::now() + STORES_EVERY;
        let asked = stream::iter(peers.to_vec()).map(async |peer| {
            let answer = node_reports::fetch_readiness(&peer).await;
            (peer, answer)
        });
        // A peer that does not answer has no problem of its store.
        let answers = asked.buffered(NODES).filter_map(async |(peer, answer)| Some((peer, answer.ok()?.1)));
        let answers: Vec<_> = answers.collect().await;
        for (peer, store) in &answers {
            server.peers.note(peer, store);
        }
        let own = Own {
            id: server.store.identity().map(|identity| identity.id),
            instance: server.instance.as_str(),
            workers: server.workers_held(),
        };
        let troubles = shared.troubles(&own, &answers);
        report(&troubles, &mut problem);
        server.store.note_peers(troubles);
    }
}

fn report(troubles: &PeerTroubles, problem: &mut RecurringProblem) {
    let PeerTroubles { other_stores, same_workers } = troubles;
    if other_stores.is_empty() && same_workers.is_empty() {
        if let Some(times) = problem.ended() {
            tracing::info!(times, "this node and its peers use one store again");
        }
    } else if problem.occurred().is_some() {
        for trouble in other_stores.iter().chain(same_workers) {
            tracing::error!("{trouble}");
        }
    }
}

/// What a peer is compared with.
struct Own<'a> {
    id: Option<StoreId>,
    /// A peer with the same text is this node.
    instance: &'a str,
    workers: Vec<Worker>,
}

/// How often in a row each peer held each worker of this node.
#[derive(Debug, Default)]
struct Shared(BTreeMap<(String, Worker), u32>);

impl Shared {
    /// Returns what is wrong after a look at the peers.
    fn troubles(&mut self, own: &Own<'_>, answers: &[(String, NodeStore)]) -> PeerTroubles {
        let (mut troubles, mut seen) = (PeerTroubles::default(), BTreeMap::new());
        for (peer, answer) in answers {
            if answer.instance.as_deref() == Some(own.instance) {
                continue;
            }
            match (own.id, answer.id) {
                (Some(id), Some(other)) if id != other => {
                    troubles.other_stores.push(format!(
                        "peer {peer} uses another store: {other}, and this node uses {id}; both may hold one worker and make \
                         duplicates: stop one of them and correct its --store"
                    ));
                    continue;
                }
                _ => {}
            }
            for worker in answer.workers.iter().filter(|worker| own.workers.contains(worker)) {
                let key = (peer.clone(), worker.clone());
                let times = self.0.get(&key).map_or(1, |times| times + 1);
                seen.insert(key, times);
                if times >= LOOKS {
                    let (pool, worker) = worker;
                    troubles.same_workers.push(format!(
                        "peer {peer} holds worker {worker} of {pool}, as this node does: its store is a copy of this one, or lost \
                         records, and both make duplicates; stop one of them"
                    ));
                }
            }
        }
        self.0 = seen;
        troubles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(number: u32) -> Worker {
        ("pool".to_owned(), number)
    }

    fn answer(id: Option<u128>, instance: &str, workers: &[u32]) -> (String, NodeStore) {
        let workers = workers.iter().copied().map(worker).collect();
        let id = id.map(StoreId::new);
        let store = NodeStore { id, instance: Some(instance.to_owned()), workers, ..NodeStore::default() };
        (format!("{instance}:8080"), store)
    }

    /// Goal: another identity is noticed at once, and a copied store at the second look; this node in its own
    /// list of peers is no problem, nor is a node of an earlier version. Method: looks at peers of each kind.
    #[test]
    fn a_second_store_and_a_copy_are_noticed() {
        let own = Own { id: Some(StoreId::new(1)), instance: "self", workers: vec![worker(5), worker(6)] };
        let mut shared = Shared::default();
        let quiet = [
            answer(Some(1), "self", &[5, 6]),
            answer(Some(1), "healthy", &[7]),
            answer(None, "earlier", &[]),
            answer(Some(1), "silent", &[]),
        ];
        for _ in 0..3 {
            assert_eq!(shared.troubles(&own, &quiet), PeerTroubles::default());
        }
        let bad = [answer(Some(2), "other", &[5]), answer(Some(1), "copy", &[6])];
        let first = shared.troubles(&own, &bad);
        assert_eq!((first.other_stores.len(), first.same_workers.len()), (1, 0));
        let text = &first.other_stores[0];
        for part in ["peer other:8080 ", &StoreId::new(2).to_string(), &StoreId::new(1).to_string()] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let second = shared.troubles(&own, &bad);
        assert!(second.same_workers[0].starts_with("peer copy:8080 holds worker 6 of pool"), "{second:?}");
        // Once they part, the next look begins again.
        assert_eq!(shared.troubles(&own, &quiet), PeerTroubles::default());
        assert_eq!(shared.troubles(&own, &bad), first);
    }

    /// Goal: a node whose own identity is unknown so far judges nobody.
    #[test]
    fn without_an_identity_nothing_differs() {
        let own = Own { id: None, instance: "self", workers: vec![] };
        let answers = [answer(Some(2), "other", &[5])];
        assert_eq!(Shared::default().troubles(&own, &answers), PeerTroubles::default());
    }
}
