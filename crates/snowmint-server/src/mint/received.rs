//! What this process received from each counter, for as long as it lives.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use snowmint_cluster::namespace::{CounterSource, NumberSource};
use snowmint_cluster::segment::{Received, Stripe};

/// What was received, by counter: a counter that goes back while its namespace changes, or is dropped and added again, is
/// noticed; and an operator who restores the store can ask for it, whatever became of the namespace.
#[derive(Debug, Default)]
pub(crate) struct ReceivedNumbers(Mutex<BTreeMap<String, Kept>>);

#[derive(Debug)]
struct Kept {
    base: String,
    source: Option<usize>,
    stripe: Stripe,
    received: Received,
}

/// The highest number that was received from a counter.
#[derive(Debug)]
pub(crate) struct HighestReceived {
    /// The key of the counter in its store.
    pub(crate) key: String,
    /// Which source of its namespace the counter is in, from 1; `None` for the store of the service.
    pub(crate) source: Option<usize>,
    pub(crate) stripe: Stripe,
    pub(crate) number: u64,
}

impl ReceivedNumbers {
    /// What was received so far from each counter of a namespace.
    pub(crate) fn of(&self, base: &str, source: &NumberSource) -> Vec<Received> {
        let places: Vec<(String, Option<usize>, Stripe)> = match source {
            NumberSource::Own(stripe) => vec![(stripe.to_string(), None, *stripe)],
            // By their places: how one is reached may change, and one that moves takes its numbers along.
            NumberSource::Other(sources) => {
                let place = |(nth, source): (usize, &CounterSource)| {
                    (format!("source {nth}"), Some(nth + 1), source.stripe().unwrap_or(Stripe::WHOLE))
                };
                sources.iter().enumerate().map(place).collect()
            }
        };
        // Each change is one insertion: a panic elsewhere leaves the map whole.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let received = |(place, source, stripe): (String, Option<usize>, Stripe)| {
            let kept = all.entry(format!("{base} {place}")).or_insert_with(|| Kept {
                base: base.to_owned(),
                source,
                stripe,
                received: Received::default(),
            });
            kept.received.clone()
        };
        places.into_iter().map(received).collect()
    }

    /// The highest number of every counter that numbers were received from.
    pub(crate) fn highest(&self) -> Vec<HighestReceived> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |kept: &Kept| {
            let (base, source, stripe) = (kept.base.clone(), kept.source, kept.stripe);
            kept.received.highest_by_period().into_iter().map(move |(period, number)| {
                let key = period.map_or_else(|| base.clone(), |period| format!("{base}/{period}"));
                HighestReceived { key, source, stripe, number }
            })
        };
        all.values().flat_map(of).collect()
    }
}
