//! Where a node looks for a worker in a large pool, which a fleet cannot afford to list: at two workers, at ten, at a hundred.
//! Pure choice; what is found decides, by compare-and-set.
//!
//! A node looks first where its name leads, so that it finds its worker again after a restart, whoever else starts in the
//! same second. Nodes of one name meet there, so the hundred is a random one. While none is free all hundreds come in turn, so
//! that a worker that was given back is found wherever it is; each node takes them in an order of its own, since nodes that
//! looked at the same one would leave the others alone.

use std::collections::VecDeque;

use snowmint::WorkerId;

use super::messages::{Block, BlockSize, Scope};
use super::{Dice, Settings, WorkerChoice};
use crate::Holder;

/// The first look at a hundred is put off by up to so many milliseconds for each worker of the pool: nodes that find their pool full
/// together do not read all of it together.
const SPREAD_MS: u64 = 1;
const LONGEST_SPREAD_MS: u64 = 1_000;
/// After a worker that another node claimed at the same time, the next look is put off by up to so many milliseconds for each
/// `CROWD` workers, twice as long each time: nodes that look one after the other do not want the same worker.
const CROWD: u64 = 4;
/// So long after a hundred of which none was free comes the next, and up to half of that later.
const PAUSE_MS: u64 = 250;
/// How often that doubles: up to about 2 s, like every wait of a node without a lease.
const DOUBLINGS: u32 = 3;

/// What is looked at in this round, and when a hundred may follow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Probing {
    /// Still to be looked at, in order.
    pub(super) next: VecDeque<Scope>,
    /// Of those that were seen in this round, the worker that frees first, and when in unix milliseconds.
    pub(super) frees_first: Option<(WorkerId, u64)>,
    /// When this clock was last compared with the store's, by the steady clock.
    pub(super) compared_steady_ms: Option<u64>,
    /// Before, by the steady clock, no hundred is looked at.
    pub(super) hundred_from_steady_ms: u64,
    /// How many of them in a row had no free worker, up to [`DOUBLINGS`].
    pub(super) in_vain: u32,
    /// The one that is next, and how many further the one after it is, once there was one.
    pub(super) hundred: Option<(u32, u32)>,
    /// How often in a row another node was first.
    pub(super) snatched: u32,
}

impl Probing {
    /// Begins another round.
    pub(super) fn begin(&mut self, settings: &Settings) {
        let workers = settings.pool.workers();
        let home = |nth: u8| WorkerId(home(&settings.holder, nth, workers));
        self.next.clear();
        self.snatched = 0;
        match (settings.choice, self.frees_first.take()) {
            (WorkerChoice::Only(worker), _) => self.next.push_back(Scope::Worker(worker)),
            // None was free a moment ago.
            (WorkerChoice::Any, Some((first, _))) if self.in_vain > 0 => {
                self.next.extend([Scope::Worker(first), Scope::Worker(home(0))]);
            }
            (WorkerChoice::Any, _) => {
                self.next.extend([Scope::Worker(home(0)), Scope::Worker(home(1))]);
                if workers > BlockSize::Ten.workers() {
                    self.next.push_back(Scope::Block(Block::of(home(2), BlockSize::Ten)));
                }
            }
        }
        if let [first, second] = self.next.make_contiguous()
            && first == second
        {
            self.next.pop_back();
        }
    }

    /// The next hundred; all workers of a pool that is not larger.
    pub(super) fn next_hundred(&mut self, workers: u32, dice: &mut Dice) -> Scope {
        if workers <= BlockSize::Hundred.workers() {
            return Scope::Pool;
        }
        let blocks = workers.div_ceil(BlockSize::Hundred.workers());
        let (block, step) = self.hundred.unwrap_or_else(|| {
            let steps = 1 + below(u64::from(blocks), dice)..;
            // All are reached by steps that have no divisor in common with their number; 1 is one.
            let step = steps.into_iter().find(|step| divisor(*step, blocks) == 1).unwrap_or(1);
            (below(u64::from(blocks), dice), step)
        });
        self.hundred = Some(((block + step) % blocks, step));
        Scope::Block(Block::of(WorkerId(block * BlockSize::Hundred.workers()), BlockSize::Hundred))
    }

    /// A worker that is another's until then.
    pub(super) fn found_taken(&mut self, worker: WorkerId, until_unix_ms: u64) {
        if self.frees_first.is_none_or(|(_, first)| until_unix_ms < first) {
            self.frees_first = Some((worker, until_unix_ms));
        }
    }

    /// How long to wait before a look at a hundred, in milliseconds, but for its pause.
    pub(super) fn spread_ms(&self, workers: u32, dice: &mut Dice) -> u64 {
        match self.in_vain {
            0 => dice.below((u64::from(workers) * SPREAD_MS).min(LONGEST_SPREAD_MS)),
            _ => 0,
        }
    }

    /// Another node claimed what was to be claimed: how long to wait before the next look, in milliseconds.
    pub(super) fn snatched_ms(&mut self, workers: u32, dice: &mut Dice) -> u64 {
        let most_ms = (u64::from(workers) / CROWD).saturating_mul(1 << self.snatched.min(8));
        self.snatched = self.snatched.saturating_add(1);
        dice.below(most_ms.min(LONGEST_SPREAD_MS))
    }

    /// A look at a hundred found no free worker, or failed.
    pub(super) fn looked_in_vain(&mut self, steady_ms: u64, dice: &mut Dice) {
        let pause_ms = PAUSE_MS << self.in_vain;
        self.hundred_from_steady_ms = steady_ms + pause_ms + dice.below(pause_ms / 2);
        self.in_vain = (self.in_vain + 1).min(DOUBLINGS);
    }
}

/// A worker that follows from a name alone, on every machine and in every version.
///
/// FNV-1a, and one step of the dice that spreads it over all bits.
fn home(holder: &Holder, nth: u8, workers: u32) -> u32 {
    let hash = holder.as_str().bytes().chain([nth]).fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    below(u64::from(workers), &mut Dice::of(hash))
}

/// The greatest that two numbers have in common.
fn divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { divisor(b, a % b) }
}

fn below(bound: u64, dice: &mut Dice) -> u32 {
    // Below a number of workers, which has at most 31 bits.
    u32::try_from(dice.below(bound)).unwrap_or_default()
}
