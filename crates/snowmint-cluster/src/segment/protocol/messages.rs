//! What the machine is told and what it says: calls and their answers, events, and what to do next.

use std::num::NonZeroU64;

use snowmint_store::{Mark, Segment};

use super::Forgot;
use crate::segment::Unused;

/// One call to a counter; its answer is the next [`Input`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Reserve numbers.
    Reserve {
        /// At which counter, from 0.
        counter: usize,
        /// How many.
        count: NonZeroU64,
        /// After how many milliseconds to give up.
        timeout_ms: u64,
    },
    /// Look whether a reservation is still there, for a store that may lose it.
    Confirm {
        /// At which counter.
        counter: usize,
        /// The mark of the reservation.
        mark: Mark,
        /// After how many milliseconds to give up.
        timeout_ms: u64,
    },
    /// Make every number to come greater than this one.
    Raise {
        /// Which counter.
        counter: usize,
        /// The number.
        above: u64,
        /// After how many milliseconds to give up.
        timeout_ms: u64,
    },
    /// Give numbers back. The answer that it is unknown is final too: asked again, it could take back numbers that
    /// somebody else has by then.
    GiveBack {
        /// The numbers and their counter.
        unused: Unused,
        /// After how many milliseconds to give up.
        timeout_ms: u64,
    },
}

/// How a call failed. Numbers that it may have reserved are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It may go better next time.
    Failed,
    /// No answer came in time.
    TimedOut,
    /// The counter cannot give so many: fewer may do.
    Full,
}

/// What the machine is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The wait is over, it begins, or few numbers are left.
    Wake,
    /// The answer to [`Call::Reserve`].
    Reserved(Result<Segment, Failure>),
    /// The answer to [`Call::Reserve`] of a counter that may lose what it acknowledged.
    ReservedMarked {
        /// The numbers, not to be used before they have settled.
        segment: Segment,
        /// What finds the reservation again.
        mark: Mark,
        /// How long after this answer the reservation has to be there still, in milliseconds.
        settle_ms: u64,
    },
    /// The answer to [`Call::Confirm`]: whether the reservation is there.
    Confirmed(Result<bool, Failure>),
    /// The answer to [`Call::Raise`]: whether the counter can be raised.
    Raised(Result<bool, Failure>),
    /// The answer to [`Call::GiveBack`]: whether the numbers were taken back.
    GaveBack(Result<bool, Failure>),
    /// The line was ended: give back what nobody drew. At any time, also while an answer is awaited.
    Release {
        /// What nobody drew, oldest first.
        unused: Vec<Unused>,
    },
}

/// What is in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// How many numbers are left.
    pub left: u64,
    /// Whether another segment could be put in line.
    pub room: Room,
    /// How many times there was none when one was asked for, since the start.
    pub misses: u64,
    /// How many were left out since the start, as greater ones were handed out before them: they are no demand.
    pub skipped: u64,
    /// How many were handed out since the start that never were in memory: they are.
    pub beside: u64,
}

/// Whether another segment could be put in line, besides one whose numbers are on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Room {
    /// It could.
    #[default]
    Left,
    /// It could not: too many short ones are there.
    Full,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Make this call and give its answer.
    Call(Call),
    /// Go on waiting for the answer to the call before.
    Await,
    /// Give [`Input::Wake`] after this many milliseconds, not before.
    Wait(u64),
    /// Give [`Input::Wake`] when fewer numbers than this are left.
    Idle {
        /// How many are to be kept.
        keep: u64,
    },
    /// Nothing: all is given back that could be.
    Stop,
}

/// What has changed for whoever hands numbers out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Numbers were reserved: put them at the end of the line.
    Reserved {
        /// The counter they are from.
        counter: usize,
        /// The numbers.
        segment: Segment,
    },
    /// A counter's call failed after one that did not. It is left out for a while, and asked again.
    Failing {
        /// The counter.
        counter: usize,
    },
    /// A counter's call succeeded after one that did not.
    Recovered {
        /// The counter.
        counter: usize,
        /// How many calls failed.
        failures: u32,
    },
    /// Nine tenths of the numbers up to the maximum are reserved. Told once.
    NearlyExhausted {
        /// The greatest number reserved.
        highest: u64,
    },
    /// Every number up to the maximum is reserved, at every counter. Told once.
    Exhausted,
    /// A counter gave numbers that it had given before: none of them is used, and the counter is to be raised.
    WentBack {
        /// The counter.
        counter: usize,
        /// What it gave.
        segment: Segment,
        /// The greatest number received from it before.
        highest: u64,
        /// What it forgot.
        forgot: Forgot,
    },
    /// A reservation was not found once it should have settled: the store lost it, or others had pushed it out of the record
    /// by then. Its numbers are not used.
    Lost {
        /// The counter.
        counter: usize,
        /// The numbers.
        segment: Segment,
    },
    /// A counter that had gone back was raised.
    Raised {
        /// The counter.
        counter: usize,
        /// Above this number.
        above: u64,
    },
    /// A counter that went back cannot be raised: it is not asked again.
    Stuck {
        /// The counter.
        counter: usize,
        /// The greatest number received from it.
        highest: u64,
    },
    /// Numbers were given back.
    GivenBack {
        /// How many.
        count: u64,
    },
}

/// What one step of the machine comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// What changed, in order.
    pub events: Vec<Event>,
    /// What to do next.
    pub next: Next,
}
