//! What this node remembers of the last hour, for the plots of the console: a sample every 30 s, in a ring of
//! fixed size.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::limits::history::{EVERY, LOOKS, SAMPLES};

/// The samples of this node, oldest first.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<VecDeque<Sample>>);

/// What happened since the sample before.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Sample {
    pub(crate) at_unix_ms: u64,
    /// Since the sample before.
    pub(crate) seconds: f64,
    pub(crate) ids_per_second: f64,
    /// The namespaces with the most ids, and their ids a second.
    pub(crate) namespaces: Vec<(Box<str>, f64)>,
    /// The mean and the longest time of a call to the store; `None` without calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store_slowest_ms: Option<f64>,
    /// The shortest time that a lease had left; `None` without a lease that ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease_left_s: Option<f64>,
    /// Calls to the store that failed.
    pub(crate) store_errors: u64,
    /// Requests that failed on the side of the server.
    pub(crate) failed_requests: u64,
}

/// The history of this node, as `GET /v1/admin/history` shows it.
#[derive(Debug, Serialize)]
pub(crate) struct HistoryView<'a> {
    at_unix_ms: u64,
    /// Time between two samples.
    every_ms: u64,
    samples: &'a VecDeque<Sample>,
}

impl History {
    /// Returns the samples as JSON.
    pub(crate) fn json(&self, now_unix_ms: u64) -> Vec<u8> {
        // Each change adds or removes a whole sample.
        let samples = &*self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let every_ms = u64::try_from((EVERY * LOOKS).as_millis()).unwrap_or(u64::MAX);
        // Strings and numbers always serialize.
        serde_json::to_vec(&HistoryView { at_unix_ms: now_unix_ms, every_ms, samples }).unwrap_or_default()
    }

    /// Adds a sample, in place of the oldest one if there is no room.
    pub(crate) fn add(&self, sample: Sample) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == SAMPLES {
            samples.pop_front();
        }
        samples.push_back(sample);
    }
}
