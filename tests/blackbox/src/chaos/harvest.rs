//! What clients got: ids, how their requests ended, and when there were answers at all.
//! Each client keeps its own; they are put together at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::{Ids, time};

/// How finely it is told when there were answers.
const SLICE: Duration = Duration::from_millis(100);

/// What a client got, or several.
#[derive(Debug)]
pub struct Harvest {
    /// The ids of every answer.
    pub ids: Ids,
    /// The numbers of every answer.
    pub numbers: Ids,
    began: Instant,
    /// Answers and failures, by kind.
    said: BTreeMap<String, u64>,
    requests: u64,
    answered: u64,
    slices_with_answers: BTreeSet<u128>,
    slices: u128,
}

impl Harvest {
    /// Nothing yet; `began` is when the first client began.
    pub const fn new(began: Instant) -> Self {
        Self {
            ids: Ids::new(),
            numbers: Ids::new(),
            began,
            said: BTreeMap::new(),
            requests: 0,
            answered: 0,
            slices_with_answers: BTreeSet::new(),
            slices: 0,
        }
    }

    /// Adds what another client got.
    pub fn add(&mut self, other: Self) {
        self.ids.append(other.ids);
        self.numbers.append(other.numbers);
        for (what, count) in other.said {
            *self.said.entry(what).or_default() += count;
        }
        self.requests += other.requests;
        self.answered += other.answered;
        self.slices_with_answers.extend(other.slices_with_answers);
    }

    /// Notes a request that was answered with ids or numbers.
    pub(super) fn answered(&mut self, how: &str) {
        self.note(how);
        self.requests += 1;
        self.answered += 1;
        self.slices_with_answers.insert(slice(self.began));
    }

    /// Notes that from now on nobody asks: what is still answered does not count as time in which nodes were asked.
    pub(super) fn over(&mut self) {
        self.slices = slice(self.began);
    }

    /// Notes requests that one event left without ids.
    pub(super) fn failed(&mut self, why: &str, requests: u64) {
        self.note(why);
        self.requests += requests;
    }

    fn note(&mut self, what: &str) {
        *self.said.entry(what.to_owned()).or_default() += 1;
    }

    /// In words: how many requests were answered, in how much of the time, and how the others ended.
    pub fn shares(&self) -> String {
        let (slices, with_answers) = (self.slices, self.slices_with_answers.range(..self.slices).count());
        let mut text = format!(
            "requests answered: {} of {}; some node answered in {} of {slices} slices of {SLICE:?}",
            percent(self.answered.into(), self.requests.into()),
            self.requests,
            percent(with_answers as u128, slices),
        );
        for (what, count) in &self.said {
            let _ = write!(text, "\nclients saw: {what} {count}");
        }
        text
    }
}

fn slice(began: Instant) -> u128 {
    time::now().duration_since(began).as_millis() / SLICE.as_millis()
}

/// Rounded down, so that 100 % means all.
fn percent(part: u128, whole: u128) -> String {
    let tenths = part * 1000 / whole.max(1);
    format!("{}.{} %", tenths / 10, tenths % 10)
}
