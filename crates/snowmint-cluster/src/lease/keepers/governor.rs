//! Starts and ends the slots of a node as `capacity` decides, and ends all of them at the end.
//! What it knows of them is shared, for whoever asks how the leases stand.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use snowmint::Clock;
use tokio::sync::{oneshot, watch};
use tokio::time::{MissedTickBehavior, interval};

use super::Workers;
use super::capacity::{Capacity, Change, Look};
use super::demand::Demand;
use crate::lease::keeper::{KeeperConfigError, LeaseStatus, Node, Slot};

/// How the leases of a node stand.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases(Arc<Mutex<Shown>>);

#[derive(Debug, Default)]
struct Shown {
    slots: Vec<watch::Receiver<LeaseStatus>>,
    /// What slots counted that are gone.
    past: LeaseStatus,
}

impl Leases {
    fn show(&self, change: impl FnOnce(&mut Shown)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn all(&self) -> Vec<LeaseStatus> {
        let shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shown.slots.iter().map(|status| status.borrow().clone()).collect()
    }

    pub(super) fn as_one(&self) -> LeaseStatus {
        let (all, past) = (self.all(), self.0.lock().unwrap_or_else(PoisonError::into_inner).past.clone());
        let mut held = all.iter().filter(|status| status.worker.is_some());
        let mut one = held.next().or(all.first()).cloned().unwrap_or_default();
        one.until_unix_ms = all.iter().filter_map(|status| status.until_unix_ms).max();
        (one.renewals, one.lost, one.store_errors) = (past.renewals, past.lost, past.store_errors);
        (one.store_forgot, one.overlaps) = (past.store_forgot, past.overlaps);
        for status in &all {
            one.add_counts(status);
        }
        // One watcher, in the first slot, looks at the clock for all.
        if let Some(first) = all.first() {
            (one.wall_ahead_ms, one.clock_steps) = (first.wall_ahead_ms, first.clock_steps);
        }
        one.clock_ahead_ms = all.iter().map(|status| status.clock_ahead_ms).max().unwrap_or_default();
        one.records_ahead_ms = all.iter().map(|status| status.records_ahead_ms).max().unwrap_or_default();
        one
    }
}

/// The slots of a node, in the order in which they were started.
pub(super) struct Governor {
    node: Node,
    workers: Workers,
    capacity: Option<(Capacity, Arc<Demand>)>,
    slots: Vec<Numbered>,
    leases: Leases,
}

struct Numbered {
    number: usize,
    slot: Slot,
    /// When it was asked to give its lease back, in unix milliseconds.
    leaving_since_unix_ms: u64,
}

impl Governor {
    pub(super) fn start(
        node: Node,
        workers: Workers,
        capacity: Option<(Capacity, Arc<Demand>)>,
    ) -> Result<Self, KeeperConfigError> {
        let leases = Leases::default();
        let mut governor = Self { node, workers, capacity, slots: Vec::new(), leases };
        for _ in 0..workers.min() {
            governor.take()?;
        }
        Ok(governor)
    }

    /// How the first lease stands; it is given back last.
    pub(super) fn first(&self) -> watch::Receiver<LeaseStatus> {
        // Started with at least one.
        let first = self.slots.first().map(|first| first.slot.status.clone());
        first.unwrap_or_else(|| watch::channel(LeaseStatus::default()).1)
    }

    pub(super) fn leases(&self) -> Leases {
        self.leases.clone()
    }

    /// Runs until it is asked to give all back, or until nobody can ask any more.
    pub(super) async fn run(mut self, mut release: oneshot::Receiver<Duration>) {
        let mut looks = interval(Capacity::look_every(self.node.settings.pool.layout()));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                asked = &mut release => {
                    // Without a release, leases are kept until they run out.
                    if let Ok(patience) = asked {
                        self.give_all_back(patience).await;
                    }
                    return;
                }
                _ = looks.tick(), if self.capacity.is_some() => self.look(),
            }
        }
    }

    fn look(&mut self) {
        let now_unix_ms = self.node.clock.unix_ms();
        self.forget_gone(now_unix_ms);
        let Some((capacity, demand)) = &mut self.capacity else { return };
        let (ids, exhausted_ticks) = demand.so_far();
        let count = |slots: usize| u32::try_from(slots).unwrap_or(u32::MAX);
        let holds = |numbered: &&Numbered| numbered.slot.status.borrow().worker.is_some();
        let held = count(self.slots.iter().filter(holds).count());
        let look = Look { now_unix_ms, ids, exhausted_ticks, held, slots: count(self.slots.len()) };
        match capacity.look(look) {
            Some(Change::Take) => {
                tracing::info!(leases = held, "sequences ran out; taking another worker");
                if let Err(error) = self.take() {
                    tracing::warn!(%error, "cannot take another worker now");
                }
            }
            Some(Change::GiveBack) => self.give_last_back(now_unix_ms),
            None => {}
        }
    }

    fn take(&mut self) -> Result<(), KeeperConfigError> {
        // Places are used again, so that names and files are.
        let free = |number: &usize| self.slots.iter().all(|slot| slot.number != *number);
        let number = (0..=self.slots.len()).find(free).unwrap_or_default();
        let slot = self.node.start(number)?;
        self.leases.show(|shown| shown.slots.push(slot.status.clone()));
        self.slots.push(Numbered { number, slot, leaving_since_unix_ms: 0 });
        Ok(())
    }

    fn give_last_back(&mut self, now_unix_ms: u64) {
        let staying = self.slots.iter_mut().filter(|numbered| !numbered.slot.is_leaving());
        let mut staying: Vec<&mut Numbered> = staying.collect();
        if staying.len() <= self.workers.min() as usize {
            return;
        }
        if let Some(last) = staying.pop() {
            tracing::info!(
                leases = staying.len(),
                "a worker was not needed for three windows; giving it back"
            );
            last.slot.give_back();
            last.leaving_since_unix_ms = now_unix_ms;
        }
    }

    fn forget_gone(&mut self, now_unix_ms: u64) {
        let window_ms = self.node.settings.window_ms;
        for Numbered { slot, leaving_since_unix_ms, .. } in &self.slots {
            if slot.is_leaving() && !slot.is_gone() && now_unix_ms > leaving_since_unix_ms + window_ms {
                slot.leave();
            }
        }
        for index in (0..self.slots.len()).rev() {
            if self.slots[index].slot.is_leaving() && self.slots[index].slot.is_gone() {
                let gone = self.slots.remove(index).slot.status;
                self.leases.show(|shown| {
                    shown.slots.remove(index);
                    shown.past.add_counts(&gone.borrow());
                });
            }
        }
    }

    async fn give_all_back(&mut self, patience: Duration) {
        for numbered in &mut self.slots {
            numbered.slot.give_back();
        }
        let until = tokio::time::Instant::now() + patience;
        for numbered in &mut self.slots {
            numbered.slot.gone(until.saturating_duration_since(tokio::time::Instant::now())).await;
        }
    }
}
