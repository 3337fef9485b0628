//! What goes wrong with nodes, with the store, and what operators do to leases meanwhile.
//! When it does is drawn; the seed decides all of it.

use snowmint_cluster::lease::protocol::{Begin, Call, Input, Scope, StoreTime};
use snowmint_cluster::lease::{Record, Tag};
use snowmint_store::Expected;

use super::World;
use super::queue::Happening;
use crate::Count;
use crate::store::{Reply, StoreFault};

impl<B: Begin> World<'_, B> {
    pub(super) fn fault(&mut self) {
        let wait_ms = 1 + self.rng.u64(..self.scenario.fault_every_ms * 2);
        self.after(wait_ms, 0, Happening::Fault);
        let index = self.rng.usize(..self.scenario.nodes);
        match self.rng.u8(..11) {
            0..=2 => {
                self.history.figures[Count::Crashes] += 1;
                self.restart(index);
            }
            3..=5 => self.pause(index),
            6 => self.nodes[index].wants_release = true,
            7 => self.evict(),
            _ if self.scenario.step_ms > 0 => {
                self.history.figures[Count::Steps] += 1;
                self.nodes[index].step_clock(self.scenario, &mut self.rng);
            }
            _ => {}
        }
    }

    pub(super) fn store_fault(&mut self) {
        let wait_ms = 1 + self.rng.u64(..self.scenario.store_fault_every_ms * 2);
        self.after(wait_ms, 0, Happening::StoreFault);
        self.history.figures[Count::StoreFaults] += 1;
        match self.rng.choice(self.scenario.store.own_faults()) {
            Some(StoreFault::Own) => self.visit(0, |store, visit| store.fail(visit)),
            // As often shorter than nodes can go on without it as longer.
            Some(StoreFault::Down) => {
                let lasts_ms = self.rng.u64(..self.scenario.window_ms * 3 / 2);
                self.store_down_until_ms = self.now_ms + lasts_ms;
            }
            None => {}
        }
    }

    pub(super) fn restart(&mut self, index: usize) {
        let resumed = self.nodes[index].restart(index, self.scenario, &mut self.rng);
        self.history.figures[Count::Resumed] += u64::from(resumed);
        // Some are back at once, in the millisecond in which they gave their lease back.
        let within_ms = if self.rng.bool() { 8 } else { self.scenario.window_ms };
        let wait_ms = self.rng.u64(..within_ms);
        self.after(wait_ms, index, Happening::Wake);
        self.after(wait_ms + 1, index, Happening::Draw);
    }

    /// Stops a node for up to three windows. The first thing it does after is to take ids by the clock it had
    /// read before.
    fn pause(&mut self, index: usize) {
        self.history.figures[Count::Pauses] += 1;
        let now_ms = self.now_ms;
        let lasts_ms = self.rng.u64(..self.scenario.window_ms * 3);
        let node = &mut self.nodes[index];
        node.paused_until_ms = node.paused_until_ms.max(now_ms + lasts_ms);
        let until_ms = node.paused_until_ms;
        self.now_ms = until_ms;
        self.draw(index, now_ms);
        self.now_ms = now_ms;
    }

    /// An operator takes a worker from its holder: the same end, under a tag that no node wrote.
    fn evict(&mut self) {
        let operator = self.scenario.nodes;
        let all = Call::Look { scope: Scope::Pool, time: StoreTime::Known };
        let Reply::Now(Input::Listed(Ok(listing))) =
            self.visit(operator, |store, visit| store.call(visit, all))
        else {
            return;
        };
        let Some(entry) = self.rng.choice(listing.entries) else { return };
        let Some(record) = entry.record else { return };
        let from_unix_ms = Some(record.until_unix_ms);
        let record = Record { tag: Tag(self.rng.u128(..)), from_unix_ms, ..record };
        let expected = Expected::Revision(entry.revision);
        let swap = Call::Swap { worker: entry.worker, expected, record };
        self.history.figures[Count::Evictions] += 1;
        self.visit(operator, |store, visit| store.call(visit, swap));
    }
}
