//! A slow model of a generator: it keeps every position that it returned, and derives the next answer from
//! them. It shares nothing with the library but `GenerateError`, which answers are compared by.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use snowmint::GenerateError;
use snowmint::error::Wait;

/// One step of a rule, its bound in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    Wait(u64),
    Borrow(u64),
    Generation,
}

/// The settings of a generator: instants in unix milliseconds, the rest in ticks.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) epoch_ms: u128,
    pub(crate) tick_ms: u128,
    /// The first tick without a timestamp.
    pub(crate) end: u128,
    pub(crate) sequences: u128,
    pub(crate) generations: u128,
    pub(crate) first: u128,
    pub(crate) max_behind: u128,
    pub(crate) steps: Vec<Step>,
}

/// The position of an id. Within one generation, positions are in the order in which they are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) generation: u128,
    pub(crate) tick: u128,
    pub(crate) sequence: u128,
}

/// Permission to return ids from `from` on, in ticks before `until`.
struct Granted {
    from: Position,
    until: u128,
}

/// What may be returned without another decision, as long as the clock shows the same time.
struct Open {
    now_ms: u64,
    until: u128,
}

pub(crate) struct Model {
    terms: Terms,
    used: BTreeSet<Position>,
    generation: u128,
    /// The first tick beyond the lease.
    lease_end: u128,
    /// The highest tick that the clock showed when ids were given.
    highest: u128,
    /// The tick after the last one whose last sequence was returned, since this generation was entered.
    after_full: Option<u128>,
    /// The rest of the tick that was reached, for all callers.
    tick: Option<Open>,
    /// Everything that the rule granted, for an owned generator.
    claim: Option<Open>,
    ended: bool,
}

fn positive(ms: u128) -> NonZeroU64 {
    NonZeroU64::new(u64::try_from(ms).unwrap()).expect("it is never asked to wait for nothing")
}

impl Terms {
    pub(crate) fn ms(&self, tick: u128) -> u64 {
        u64::try_from(self.epoch_ms + tick * self.tick_ms).unwrap()
    }

    /// Returns the tick of an instant; a clock past the end of the layout shows the end.
    fn tick_at(&self, unix_ms: u64) -> u128 {
        self.tick_on_clock(unix_ms).min(self.end)
    }

    fn tick_on_clock(&self, unix_ms: u64) -> u128 {
        u128::from(unix_ms).saturating_sub(self.epoch_ms) / self.tick_ms
    }

    /// Returns a bound in whole ticks; at most a day counts.
    fn borrowed(&self, bound_ms: u64) -> u128 {
        u128::from(bound_ms.min(86_400_000)) / self.tick_ms
    }

    fn max_ahead(&self) -> u128 {
        let borrowed = self.steps.iter().map(|step| match step {
            Step::Borrow(bound) => self.borrowed(*bound),
            _ => 0,
        });
        borrowed.max().unwrap_or(0)
    }
}

impl Model {
    pub(crate) fn new(terms: Terms, lease_until_ms: u64) -> Self {
        let (highest, lease_end) = (terms.first.saturating_sub(1), terms.tick_at(lease_until_ms));
        let (used, generation) = (BTreeSet::new(), 0);
        Self {
            terms,
            used,
            generation,
            lease_end,
            highest,
            after_full: None,
            tick: None,
            claim: None,
            ended: false,
        }
    }

    /// Returns up to `wanted` positions. With a rolling start, `began` is the first sequence seen.
    pub(crate) fn take(
        &mut self,
        now_ms: u64,
        wanted: usize,
        began: Option<u128>,
    ) -> Result<Vec<Position>, GenerateError> {
        self.claim = None;
        if wanted == 0 {
            return Ok(Vec::new());
        }
        if let Some(open) = &self.tick
            && open.now_ms == now_ms
        {
            let all = self.positions(self.next(), open.until, wanted);
            if all.len() == wanted {
                self.give(now_ms, &all);
                return Ok(all);
            }
        }
        let granted = self.decide(now_ms, began)?;
        let taken = self.positions(granted.from, granted.until, wanted);
        self.give(now_ms, &taken);
        // With generations, every draw needs its own decision.
        if !self.terms.steps.contains(&Step::Generation) {
            self.tick = Some(Open { now_ms, until: taken.last().unwrap().tick + 1 });
        }
        Ok(taken)
    }

    /// Returns the next position of an owned generator, which keeps everything that was granted.
    pub(crate) fn take_one_owned(
        &mut self,
        now_ms: u64,
        began: Option<u128>,
    ) -> Result<Position, GenerateError> {
        if let Some(open) = &self.claim
            && open.now_ms == now_ms
            && self.next().tick < open.until
        {
            let next = self.next();
            self.give(now_ms, &[next]);
            return Ok(next);
        }
        self.claim = None;
        let granted = self.decide(now_ms, began)?;
        self.give(now_ms, &[granted.from]);
        self.claim = Some(Open { now_ms, until: granted.until });
        Ok(granted.from)
    }

    pub(crate) fn extend_lease(&mut self, until_ms: u64) {
        self.lease_end = self.lease_end.max(self.terms.tick_at(until_ms));
    }

    pub(crate) fn lease_until_ms(&self) -> u64 {
        self.terms.ms(self.lease_end)
    }

    /// Returns the first instant after every returned timestamp.
    pub(crate) fn end(&mut self) -> Option<u64> {
        if self.ended {
            return None;
        }
        self.ended = true;
        (self.tick, self.claim) = (None, None);
        let last = self.used.iter().map(|position| position.tick + 1).max();
        Some(self.terms.ms(last.unwrap_or(self.terms.first)))
    }

    /// Returns the position after the last one returned in this generation.
    fn next(&self) -> Position {
        let first = Position { generation: self.generation, tick: 0, sequence: 0 };
        let beyond = Position { generation: self.generation + 1, ..first };
        match self.used.range(first..beyond).next_back() {
            Some(last) => self.after(*last),
            None => Position { tick: self.terms.first, ..first },
        }
    }

    fn after(&self, last: Position) -> Position {
        if last.sequence + 1 == self.terms.sequences {
            Position { tick: last.tick + 1, sequence: 0, ..last }
        } else {
            Position { sequence: last.sequence + 1, ..last }
        }
    }

    fn positions(&self, from: Position, until: u128, wanted: usize) -> Vec<Position> {
        let mut positions = Vec::new();
        let mut position = from;
        while positions.len() < wanted && position.tick < until {
            positions.push(position);
            position = self.after(position);
        }
        positions
    }

    fn decide(&self, now_ms: u64, began: Option<u128>) -> Result<Granted, GenerateError> {
        let terms = &self.terms;
        if self.ended {
            return Err(GenerateError::Ended);
        }
        if u128::from(now_ms) < terms.epoch_ms {
            return Err(GenerateError::NotBegun { from_unix_ms: terms.ms(0), now_unix_ms: now_ms });
        }
        let now = terms.tick_at(now_ms);
        let next = self.next();
        let may_trail = match self.after_full {
            Some(after) => terms.tick_on_clock(now_ms) <= after + terms.max_behind,
            None => false,
        };
        let is_used = next.tick == now && next.sequence > 0;
        let from = if next.tick > now || is_used || may_trail {
            next
        } else {
            Position { tick: now, sequence: self.fresh_sequence(next.sequence, began), ..next }
        };
        if from.tick >= self.lease_end {
            if from.tick >= terms.end {
                return Err(GenerateError::TimestampOverflow { ended_unix_ms: terms.ms(terms.end) });
            }
            return Err(GenerateError::LeaseEnded { until_unix_ms: terms.ms(self.lease_end) });
        }
        let until = self.lease_end.min(now + terms.max_ahead() + 1);
        if from.tick > now {
            if self.highest > now {
                return self.decide_behind(now_ms, now, from, until);
            }
            self.within_reach(now_ms, now, from)?;
        } else if self.highest > now {
            return Ok(Granted { from, until: until.min(now + 1) });
        }
        Ok(Granted { from, until })
    }

    /// Applies the first step that covers the distance from the clock to the highest tick shown, or to the
    /// next id if that is lower.
    fn decide_behind(
        &self,
        now_ms: u64,
        now: u128,
        from: Position,
        until: u128,
    ) -> Result<Granted, GenerateError> {
        let was_at = self.highest.min(from.tick);
        let behind_ms = positive(u128::from(self.terms.ms(was_at) - now_ms));
        for step in &self.terms.steps {
            match step {
                Step::Generation => {
                    if let Some(generation) = self.generation_before(now) {
                        return Ok(Granted { from: Position { generation, tick: now, sequence: 0 }, until });
                    }
                }
                Step::Wait(bound) => {
                    if behind_ms.get() <= *bound {
                        return Err(GenerateError::ClockBehind { behind_ms, wait: Wait::UntilCaughtUp });
                    }
                }
                Step::Borrow(bound) => {
                    if was_at - now <= self.terms.borrowed(*bound) {
                        self.within_reach(now_ms, now, from)?;
                        return Ok(Granted { from, until });
                    }
                }
            }
        }
        Err(GenerateError::ClockBehind { behind_ms, wait: Wait::Refused })
    }

    /// Checks that the position is no further ahead of the clock than the longest borrow of the rule.
    fn within_reach(&self, now_ms: u64, now: u128, from: Position) -> Result<(), GenerateError> {
        let max_ahead = self.terms.max_ahead();
        if from.tick > now + max_ahead {
            let wait = self.terms.ms(from.tick - max_ahead) - now_ms;
            return Err(GenerateError::Exhausted { retry_after_ms: positive(wait.into()) });
        }
        Ok(())
    }

    /// Returns another generation that was not used at or after a tick.
    fn generation_before(&self, tick: u128) -> Option<u128> {
        let is_before = |generation| {
            let same = Position { generation, tick, sequence: 0 };
            let beyond = Position { generation: generation + 1, tick: 0, sequence: 0 };
            tick >= self.terms.first && self.used.range(same..beyond).next().is_none()
        };
        (0..self.terms.generations)
            .find(|generation| *generation != self.generation && is_before(*generation))
    }

    /// Returns where a tick begins that does not follow a full one: at 0, or at the sequence seen, if a
    /// rolling start allows it.
    fn fresh_sequence(&self, stopped: u128, began: Option<u128>) -> u128 {
        let Some(began) = began else { return 0 };
        if stopped == 0 {
            let half = (self.terms.sequences - 1) / 2;
            assert!(began <= half, "it began at {began}, in the upper half");
            return began;
        }
        let from = if stopped <= (self.terms.sequences - 1) / 2 { stopped } else { 0 };
        let widest_gap = if self.terms.sequences < 64 { 0 } else { 7 };
        assert!((from..=from + widest_gap).contains(&began), "it stopped at {stopped} and began at {began}");
        began
    }

    /// Records the returned positions, and checks that they keep the promises.
    fn give(&mut self, now_ms: u64, positions: &[Position]) {
        let now = self.terms.tick_at(now_ms);
        for position in positions {
            let tick = position.tick;
            assert!(self.used.insert(*position), "{position:?} twice");
            assert!(self.terms.first <= tick && tick < self.lease_end, "{position:?} outside the lease");
            assert!(tick <= now + self.terms.max_ahead(), "{position:?} too far ahead of {now}");
            let on_clock = self.terms.tick_on_clock(now_ms);
            assert!(on_clock <= tick + self.terms.max_behind, "{position:?} too far behind {on_clock}");
            if position.generation != self.generation {
                self.generation = position.generation;
                self.highest = now;
                self.after_full = None;
            }
            self.highest = self.highest.max(now);
            if position.sequence + 1 == self.terms.sequences {
                self.after_full = Some(tick + 1);
            }
        }
    }
}
