//! The way of a call to the store and back: what is lost, late, refused or sent twice on it.
//! What the store itself does with a call is its model's.

use snowmint_cluster::lease::protocol::{Begin, Call, Failure, Input};

use super::World;
use super::queue::{Answer, Happening};
use crate::Count;
use crate::store::{CallFault, Reply};

impl<B: Begin> World<'_, B> {
    /// Sends a call on its way; its node waits for a quarter of a window.
    pub(super) fn send(&mut self, index: usize, sent: Call) {
        self.calls += 1;
        let call = self.calls;
        self.nodes[index].pending = Some(call);
        let timeout_ms = self.scenario.window_ms / 4;
        self.after(timeout_ms, index, Happening::Answer { call, input: failed(&sent, Failure::Unknown) });
        let delay_ms = self.rng.u64(1..30);
        let fault = self.drawn_fault();
        // Refused calls are known to have done nothing.
        let unknown = !matches!(fault, None | Some(CallFault::Refused));
        self.history.figures[Count::UnknownOutcomes] += u64::from(unknown);
        let term = self.store.term();
        let request = |sent, answer| Happening::Request { call, sent, answer, term };
        match fault {
            None => self.after(delay_ms, index, request(sent, Answer::Arrives)),
            Some(CallFault::AnswerLost) => self.after(delay_ms, index, request(sent, Answer::Lost)),
            Some(CallFault::Late) => {
                let late_ms = timeout_ms + self.rng.u64(..self.scenario.window_ms * 3);
                self.after(late_ms, index, request(sent, Answer::Arrives));
            }
            Some(CallFault::Slow) => {
                let slow_ms = self.rng.u64(..timeout_ms * 2);
                self.after(slow_ms, index, request(sent, Answer::Arrives));
            }
            Some(CallFault::Refused) => {
                let input = failed(&sent, Failure::NotDone);
                self.after(delay_ms, index, Happening::Answer { call, input });
            }
            // Only the time-out comes.
            Some(CallFault::RequestLost) => {}
            Some(CallFault::SentTwice) => {
                self.after(delay_ms, index, request(sent.clone(), Answer::Lost));
                let again_ms = delay_ms + self.rng.u64(..timeout_ms);
                self.after(again_ms, index, request(sent, Answer::Arrives));
            }
        }
    }

    fn drawn_fault(&mut self) -> Option<CallFault> {
        let faulty = self.rng.u64(..1000) < self.scenario.store_faults_per_mille;
        if faulty { self.rng.choice(self.scenario.store.call_faults()).copied() } else { None }
    }

    pub(super) fn reaches_store(
        &mut self,
        index: usize,
        process: u32,
        call: u64,
        sent: Call,
        answer: Answer,
    ) {
        let unknown = failed(&sent, Failure::Unknown);
        if self.now_ms < self.store_down_until_ms {
            self.history.figures[Count::CallsWhileDown] += 1;
            // Refused, or no answer at all.
            if answer == Answer::Arrives && self.rng.bool() {
                let input = failed(&sent, Failure::NotDone);
                self.queue_for(1, index, process, Happening::Answer { call, input });
            }
            return;
        }
        let still_waiting = self.nodes[index].process == process && self.nodes[index].pending == Some(call);
        if !still_waiting && matches!(sent, Call::Swap { .. }) {
            self.history.figures[Count::LateWrites] += 1;
        }
        let reply = self.visit(index, |store, visit| store.call(visit, sent));
        if answer == Answer::Lost {
            return;
        }
        let (after_ms, happening) = match reply {
            Reply::Now(input) => (0, Happening::Answer { call, input }),
            Reply::Confirmed { after_ms, term, input } => {
                (after_ms, Happening::Confirmed { call, input, unknown, term })
            }
            Reply::Unconfirmed { after_ms } => (after_ms, Happening::Answer { call, input: unknown }),
        };
        let delay_ms = after_ms + self.rng.u64(..20);
        self.queue_for(delay_ms, index, process, happening);
    }
}

/// A call of that kind, failed.
fn failed(call: &Call, failure: Failure) -> Input {
    match call {
        Call::Look { .. } => Input::Listed(Err(failure)),
        Call::Load(_) => Input::Loaded(Err(failure)),
        Call::Swap { .. } => Input::Swapped(Err(failure)),
    }
}
