//! The numbers that this process has received from each counter.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use snowmint_cluster::namespace::{CounterSource, NumberSource};
use snowmint_cluster::segment::{HighWaterMarks, Stripe};

/// The numbers that this process has received from each counter since it started.
///
/// They outlive the namespace. So a counter that goes back is noticed even if its namespace changed, or was
/// dropped and added again, and an operator who restores a store can read the highest number of every
/// counter.
#[derive(Debug, Default)]
pub(crate) struct ReceivedNumbers(Mutex<BTreeMap<String, ReceivedByCounter>>);

#[derive(Debug)]
struct ReceivedByCounter {
    base: String,
    source: Option<usize>,
    stripe: Stripe,
    received: HighWaterMarks,
}

/// The highest number received from a counter.
#[derive(Debug)]
pub(crate) struct HighestReceived {
    /// The key of the counter in its store.
    pub(crate) key: String,
    /// The source of its namespace, from 1; `None` for the store of the service.
    pub(crate) source: Option<usize>,
    pub(crate) stripe: Stripe,
    pub(crate) number: u64,
}

impl ReceivedNumbers {
    /// Returns the numbers received so far from each counter of a namespace.
    pub(crate) fn of(&self, base: &str, source: &NumberSource) -> Vec<HighWaterMarks> {
        let places: Vec<(String, Option<usize>, Stripe)> = match source {
            NumberSource::Own(stripe) => vec![(stripe.to_string(), None, *stripe)],
            // By position: the URL of a source may change, and a source that moves keeps its numbers.
            NumberSource::Other(sources) => {
                let place = |(nth, source): (usize, &CounterSource)| {
                    (format!("source {nth}"), Some(nth + 1), source.stripe().unwrap_or(Stripe::WHOLE))
                };
                sources.iter().enumerate().map(place).collect()
            }
        };
        // Each change is one insertion, so a panic elsewhere leaves the map consistent.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let received = |(place, source, stripe): (String, Option<usize>, Stripe)| {
            let counter = all.entry(format!("{base} {place}")).or_insert_with(|| ReceivedByCounter {
                base: base.to_owned(),
                source,
                stripe,
                received: HighWaterMarks::default(),
            });
            counter.received.clone()
        };
        places.into_iter().map(received).collect()
    }

    /// Returns the highest number of every counter that this process has received numbers from.
    pub(crate) fn highest(&self) -> Vec<HighestReceived> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |counter: &ReceivedByCounter| {
            let (base, source, stripe) = (counter.base.clone(), counter.source, counter.stripe);
            counter.received.highest_by_period().into_iter().map(move |(period, number)| {
                let key = period.map_or_else(|| base.clone(), |period| format!("{base}/{period}"));
                HighestReceived { key, source, stripe, number }
            })
        };
        all.values().flat_map(of).collect()
    }
}
