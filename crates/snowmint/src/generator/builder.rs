//! Builds a generator: checks that layout, worker, lease, rule and start go together.

use core::fmt;
use core::time::Duration;

use super::batch::Composer;
use super::generations::Generations;
use super::{Generator, Lease, OwnedGenerator};
use crate::cursor::{Cursor, Limits};
use crate::field::Field;
use crate::layout::LayoutError;
use crate::rule::Step;
use crate::utc::Utc;
use crate::{Clock, DatacenterId, Layout, Rule, Start, WorkerId};

/// How far the cursor may trail the clock after a tick is used up.
const DEFAULT_MAX_BEHIND: Duration = Duration::from_millis(4);

/// Builds a [`Generator`].
///
/// Without a lease, the library cannot detect a second generator: two generators that use the same worker at
/// the same time produce duplicates. The builder is therefore neither `Clone` nor `Copy`.
///
/// # Examples
///
/// ```
/// use snowmint::{Generator, Layout, Lease, ManualClock, GenerateError, WorkerId};
/// let clock = ManualClock::at_unix_ms(1_700_000_000_000);
/// let lease = Lease { worker: WorkerId(7), from_unix_ms: 1_700_000_000_000, until_unix_ms: 1_700_000_010_000 };
/// let generator = Generator::builder(Layout::TWITTER).lease(lease).build(&clock)?;
/// assert!(generator.try_next_id().is_ok());
/// clock.advance_ms(10_000);
/// assert_eq!(generator.try_next_id(), Err(GenerateError::LeaseEnded { until_unix_ms: 1_700_000_010_000 }));
/// # Ok::<(), snowmint::generator::BuildError>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct GeneratorBuilder {
    layout: Layout,
    datacenter: DatacenterId,
    /// Set by hand.
    worker: Option<WorkerId>,
    lease: Option<Lease>,
    not_before_unix_ms: u64,
    rule: Rule,
    start: Start,
    max_behind: Duration,
}

/// A generator's parts, checked.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) layout: Layout,
    pub(super) limits: Limits,
    pub(super) composer: Composer,
    pub(super) first_cursor: Cursor,
    pub(super) lease_end: Cursor,
    pub(super) rule: Rule,
}

impl GeneratorBuilder {
    pub(crate) fn new(layout: Layout) -> Self {
        Self {
            layout,
            datacenter: DatacenterId::default(),
            worker: None,
            lease: None,
            not_before_unix_ms: 0,
            rule: Rule::default(),
            start: Start::Zero,
            max_behind: DEFAULT_MAX_BEHIND,
        }
    }

    crate::__setters! {
        /// Sets the datacenter; 0 by default.
        datacenter: DatacenterId;
    }

    /// Sets the worker by hand, for example 0 in a program that runs once only. Make sure that no other
    /// generator uses it, now or later: two of one worker make the same ids.
    ///
    /// A layout with a worker field needs this or a [`lease`](Self::lease). With a [`lease`](Self::lease),
    /// [`build`](Self::build) rejects any worker other than the lease's.
    pub fn worker(mut self, worker: WorkerId) -> Self {
        self.worker = Some(worker);
        self
    }

    /// Sets the lease: the worker and the timestamps that a store granted. A lease does not contain the
    /// datacenter: set the one for which it was granted.
    pub fn lease(mut self, lease: Lease) -> Self {
        self.lease = Some(lease);
        self
    }

    crate::__setters! {
        /// Sets the earliest instant of the ids, in unix milliseconds. Pass the end of the previous
        /// generator, so that ids keep increasing.
        not_before_unix_ms: u64;

        /// Sets what to do when the clock goes back; `wait(10ms)` by default.
        rule: Rule;

        /// Sets where the sequence of a new tick starts; 0 by default.
        start: Start;

        /// Sets how far timestamps may trail the clock under full load; 4 ms by default. Below one tick it
        /// has no effect.
        ///
        /// A caller that sleeps through a tick can still use that tick's ids, so that no caller has to spin.
        max_behind: Duration;
    }

    /// Builds a generator that threads can share.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if the layout has a worker field and neither a worker nor a lease is set; for a worker
    /// or datacenter that does not fit the layout, a worker other than the lease's, an empty lease, or a rule
    /// that does not fit the layout.
    pub fn build<C: Clock>(self, clock: C) -> Result<Generator<C>, BuildError> {
        Ok(Generator::new(&self.checked()?, clock))
    }

    /// Builds a generator for one owner.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    pub fn build_owned<C: Clock>(self, clock: C) -> Result<OwnedGenerator<C>, BuildError> {
        Ok(OwnedGenerator::new(self.build(clock)?))
    }

    fn checked(self) -> Result<Setup, BuildError> {
        let Self { layout, rule, start, .. } = self;
        layout.check(Field::Datacenter, self.datacenter.0.into())?;
        let worker = match (self.lease, self.worker) {
            (Some(Lease { worker: leased, .. }), Some(worker)) if worker != leased => {
                return Err(BuildError::OtherWorker { leased, worker });
            }
            (Some(lease), _) => lease.worker,
            (None, Some(by_hand)) => by_hand,
            (None, None) if layout.width(Field::Worker) == 0 => WorkerId::default(),
            (None, None) => return Err(BuildError::NoWorker { max: layout.max(Field::Worker) }),
        };
        layout.check(Field::Worker, worker.0.into())?;
        for step in rule.steps() {
            if let Step::Borrow(max_ahead) = step
                && !max_ahead.is_zero()
                && max_ahead < layout.tick()
            {
                return Err(BuildError::BorrowBelowTick { max_ahead, tick: layout.tick() });
            }
        }
        if rule.uses_generations() && layout.width(Field::Generation) == 0 {
            return Err(BuildError::NoGenerations);
        }
        let generation_bits = Generations::bits_of(&layout, &rule);
        let limits = Limits::new(&layout, rule, start, self.max_behind, generation_bits);
        let (from, until) = match self.lease {
            Some(Lease { from_unix_ms, until_unix_ms, .. }) if from_unix_ms >= until_unix_ms => {
                return Err(BuildError::EmptyLease { from_unix_ms, until_unix_ms });
            }
            Some(lease) => (lease.from_unix_ms, lease.until_unix_ms),
            None => (0, layout.ends_at_unix_ms()),
        };
        Ok(Setup {
            layout,
            limits,
            composer: Composer::new(&layout, self.datacenter, worker, start),
            first_cursor: limits.cursor_from(from.max(self.not_before_unix_ms)),
            lease_end: limits.cursor_until(until),
            rule,
        })
    }
}

/// Why the settings of a generator are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The worker or the datacenter does not fit the layout.
    Value(LayoutError),
    /// The layout has a worker field, and neither a worker nor a lease was set. A default would be the same
    /// in every process, so that all of them would make the same ids.
    NoWorker {
        /// The largest worker of the layout.
        max: u64,
    },
    /// The worker set by hand is not the lease's, so nothing would prevent duplicates.
    OtherWorker {
        /// The lease's worker.
        leased: WorkerId,
        /// The worker set by hand.
        worker: WorkerId,
    },
    /// The lease ends before it begins.
    EmptyLease {
        /// Its start, in unix milliseconds.
        from_unix_ms: u64,
        /// Its end, in unix milliseconds.
        until_unix_ms: u64,
    },
    /// The rule has a `generation` step, but the layout has no generation field.
    NoGenerations,
    /// The rule borrows less than one tick, which has no effect.
    BorrowBelowTick {
        /// How far it borrows.
        max_ahead: Duration,
        /// The layout's tick.
        tick: Duration,
    },
}

impl From<LayoutError> for BuildError {
    fn from(error: LayoutError) -> Self {
        Self::Value(error)
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(error) => write!(f, "{error}"),
            Self::NoWorker { max } => write!(
                f,
                "no worker was set: expected .worker(WorkerId(0)) to {max}, another one for each generator that runs, or .lease(lease)"
            ),
            Self::OtherWorker { leased, worker } => write!(
                f,
                "worker {worker} was set in addition to a lease of worker {leased}: remove it, the lease sets the worker"
            ),
            Self::EmptyLease { from_unix_ms, until_unix_ms } => {
                let (from, until) = (Utc(*from_unix_ms), Utc(*until_unix_ms));
                write!(f, "the lease is empty, from {from} to {until}: give one that ends after it begins")
            }
            Self::NoGenerations => f.write_str(
                "the rule has a `generation` step, but the layout has no generation field: add one, such as generation:2",
            ),
            Self::BorrowBelowTick { max_ahead, tick } => write!(
                f,
                "borrow({max_ahead:?}) is less than the layout's tick of {tick:?}: borrow at least one tick, or wait"
            ),
        }
    }
}

// The text is that of the inner error, which therefore is no source.
impl core::error::Error for BuildError {}
