//! Arbitrary generators, clocks and draws.
//! Layouts are small, so that ticks are used up, leases end and time runs out within a script.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use snowmint::field::Field;
use snowmint::generator::{BuildError, GeneratorBuilder};
use snowmint::{Generator, Layout, Lease, ManualClock, Rule, Start, WorkerId};

use Field::{Generation, Sequence, Timestamp, Worker};

use super::reference::{Model, Position, Step, Terms};

const EPOCH: u64 = 1_577_836_800_000;
const WORKER: u32 = 1;

/// A layout in plain numbers, and an instant at which scripts begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    fields: &'static [(Field, u32)],
    tick_ms: u64,
    pub(crate) epoch_ms: u64,
    pub(crate) home_ms: u64,
}

const fn shape(fields: &'static [(Field, u32)], tick_ms: u64, home_ms: u64) -> Shape {
    Shape { fields, tick_ms, epoch_ms: EPOCH, home_ms: EPOCH + home_ms }
}

const DAY: u64 = 86_400_000;
const WITHOUT_GENERATIONS: [Shape; 7] = [
    shape(&[(Timestamp, 41), (Worker, 2), (Sequence, 3)], 1, DAY),
    shape(&[(Timestamp, 41), (Sequence, 2), (Worker, 3)], 1, DAY),
    shape(&[(Sequence, 2), (Worker, 3), (Timestamp, 30)], 10, DAY),
    shape(&[(Timestamp, 41), (Worker, 1)], 1, DAY),
    shape(&[(Worker, 4), (Timestamp, 30), (Sequence, 7)], 10, DAY + 7),
    // The layout's time begins and ends within a script.
    shape(&[(Timestamp, 10), (Worker, 1), (Sequence, 2)], 10, 10_180),
    // All 63 bits, up to the end of its time.
    Shape {
        fields: &[(Timestamp, 58), (Worker, 1), (Sequence, 4)],
        tick_ms: 1,
        epoch_ms: 0,
        home_ms: (1 << 58) - 60,
    },
];
const WITH_GENERATIONS: [Shape; 5] = [
    shape(&[(Timestamp, 41), (Generation, 2), (Worker, 3), (Sequence, 3)], 1, DAY),
    shape(&[(Timestamp, 41), (Worker, 3), (Generation, 1), (Sequence, 2)], 10, DAY),
    shape(&[(Sequence, 2), (Generation, 3), (Timestamp, 41), (Worker, 1)], 1, DAY),
    shape(&[(Generation, 1), (Timestamp, 10), (Worker, 1), (Sequence, 2)], 10, 10_180),
    // No bit is left for the mark of an ended generator, so the last tick is not used.
    Shape {
        fields: &[(Timestamp, 58), (Sequence, 4), (Generation, 1)],
        tick_ms: 1,
        epoch_ms: 0,
        home_ms: (1 << 58) - 60,
    },
];

impl Shape {
    fn width(&self, field: Field) -> u32 {
        self.fields.iter().find(|(name, _)| *name == field).map_or(0, |(_, width)| *width)
    }

    fn layout(&self) -> Layout {
        let named =
            self.fields.iter().fold(Layout::builder(), |builder, (name, width)| builder.field(*name, *width));
        named.tick(Duration::from_millis(self.tick_ms)).epoch_unix_ms(self.epoch_ms).build().unwrap()
    }

    pub(crate) fn sequences(&self) -> u128 {
        1 << self.width(Sequence)
    }

    fn worker(&self) -> u32 {
        if self.width(Worker) > 0 { WORKER } else { 0 }
    }

    /// The sequence field of an id.
    pub(crate) fn sequence(&self, id: u64) -> u128 {
        let mut below = u128::from(id);
        for (name, width) in self.fields.iter().rev() {
            let (value, above) = (below % (1 << width), below / (1 << width));
            if *name == Sequence {
                return value;
            }
            below = above;
        }
        0
    }

    pub(crate) fn id(&self, position: Position) -> u64 {
        let mut id = 0_u128;
        for (name, width) in self.fields {
            let value = match name {
                Timestamp => position.tick,
                Worker => self.worker().into(),
                Generation => position.generation,
                Sequence => position.sequence,
                Field::Datacenter => 0,
            };
            assert!(value < 1 << width, "{name} {value}");
            id = id * (1 << width) + value;
        }
        u64::try_from(id).unwrap()
    }
}

/// How a generator is built; instants are distances from the shape's home.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) shape: Shape,
    steps: Vec<Step>,
    lease_ms: Option<(i64, u64)>,
    not_before_ms: Option<i64>,
    max_behind_ms: u64,
}

impl Case {
    pub(crate) fn at(&self, distance_ms: i64) -> u64 {
        self.shape.home_ms.saturating_add_signed(distance_ms)
    }

    fn lease(&self) -> Option<Lease> {
        let (from, length) = self.lease_ms?;
        let from_unix_ms = self.at(from);
        let worker = WorkerId(self.shape.worker());
        Some(Lease { worker, from_unix_ms, until_unix_ms: from_unix_ms + length })
    }

    fn rule(&self) -> Rule {
        let steps = self.steps.iter().map(|step| match step {
            Step::Wait(ms) => Rule::wait(Duration::from_millis(*ms)),
            Step::Borrow(ms) => Rule::borrow(Duration::from_millis(*ms)),
            Step::Generation => Rule::generation(),
        });
        steps.reduce(|rule, next| rule.then(next).unwrap()).unwrap_or(Rule::REJECT)
    }

    /// Returns the generator's builder; `None` if a step borrows less than a tick, which must be rejected.
    pub(crate) fn builder(&self, start: Start) -> Option<GeneratorBuilder> {
        let builder = || {
            let builder = Generator::builder(self.shape.layout()).rule(self.rule()).start(start);
            let builder = builder.max_behind(Duration::from_millis(self.max_behind_ms));
            let builder = builder.not_before_unix_ms(self.not_before_ms.map_or(0, |ms| self.at(ms)));
            match self.lease() {
                Some(lease) => builder.lease(lease),
                None => builder.worker(WorkerId(self.shape.worker())),
            }
        };
        let is_less = |step: &Step| matches!(step, Step::Borrow(ms) if *ms > 0 && *ms < self.shape.tick_ms);
        if self.steps.iter().any(is_less) {
            let built = builder().build(ManualClock::at_unix_ms(0));
            assert!(matches!(built, Err(BuildError::BorrowBelowTick { .. })), "{built:?}");
            return None;
        }
        Some(builder())
    }

    pub(crate) fn model(&self) -> Model {
        let (shape, width) = (&self.shape, |field| self.shape.width(field));
        let generation_bits = if self.steps.contains(&Step::Generation) { width(Generation) } else { 0 };
        let (epoch_ms, tick_ms) = (u128::from(shape.epoch_ms), u128::from(shape.tick_ms));
        let all_ticks = 1 << width(Timestamp);
        // The position, the generation and the mark of an ended generator share 64 bits.
        let is_full = width(Timestamp) + width(Sequence) + generation_bits >= 63;
        let end = if is_full { all_ticks - 1 } else { all_ticks };
        let lease = self.lease();
        let from_ms = lease.map_or(0, |lease| lease.from_unix_ms);
        let from_ms = u128::from(from_ms.max(self.not_before_ms.map_or(0, |ms| self.at(ms))));
        let terms = Terms {
            epoch_ms,
            tick_ms,
            end,
            sequences: shape.sequences(),
            generations: 1 << generation_bits,
            first: from_ms.saturating_sub(epoch_ms).div_ceil(tick_ms).min(end),
            max_behind: u128::from(self.max_behind_ms) / tick_ms,
            steps: self.steps.clone(),
        };
        let layout_end_ms = terms.ms(all_ticks);
        Model::new(terms, lease.map_or(layout_end_ms, |lease| lease.until_unix_ms))
    }
}

pub(crate) fn cases() -> impl Strategy<Value = Case> {
    let bound = || prop::sample::select(vec![0, 1, 2, 5, 9, 10, 11, 15, 25, 1000, 3_600_000]);
    let plain = prop_oneof![
        4 => bound().prop_map(Step::Wait),
        4 => bound().prop_map(Step::Borrow),
        1 => Just(Step::Borrow(u64::MAX)),
    ];
    let any = prop_oneof![2 => plain.clone(), 1 => Just(Step::Generation)];
    let shaped = prop_oneof![
        (prop::sample::select(&WITHOUT_GENERATIONS[..]), prop::collection::vec(plain, 0..=4)),
        (prop::sample::select(&WITH_GENERATIONS[..]), prop::collection::vec(any, 0..=4)),
    ];
    let from = prop_oneof![Just(0_i64), -60_i64..60, -5000_i64..5000];
    let lease = prop::option::of((from, prop_oneof![1_u64..200, 1_u64..100_000]));
    let max_behind = prop_oneof![1 => Just(0_u64), 2 => Just(4), 1 => Just(15), 1 => Just(40)];
    (shaped, lease, prop::option::weighted(0.2, -30_i64..30), max_behind).prop_map(
        |((shape, steps), lease_ms, not_before_ms, max_behind_ms)| Case {
            shape,
            steps,
            lease_ms,
            not_before_ms,
            max_behind_ms,
        },
    )
}

/// What the clock does before a draw, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    By(i64),
    FromHome(i64),
    FromEpoch(i64),
    /// Sets the clock to what it showed some moves ago.
    Back(usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Draw {
    Next(usize),
    Take(usize),
    Fill(usize),
    Block {
        which: usize,
        count: usize,
    },
    /// A future that is polled once and dropped.
    Await,
    ExtendLease(i64),
    End,
}

pub(crate) type Script = Vec<(Move, Draw)>;

pub(crate) fn scripts() -> impl Strategy<Value = Script> {
    let moves = prop_oneof![
        12 => Just(Move::By(0)),
        12 => Just(Move::By(1)),
        12 => (-12_i64..12).prop_map(Move::By),
        6 => (-60_i64..60).prop_map(Move::By),
        1 => (-5000_i64..5000).prop_map(Move::By),
        1 => (-20_000_000_i64..20_000_000).prop_map(Move::By),
        10 => (-60_i64..60).prop_map(Move::FromHome),
        1 => (-20_i64..20).prop_map(Move::FromEpoch),
        10 => (1_usize..6).prop_map(Move::Back),
    ];
    let counts = || prop_oneof![4 => 0_usize..6, 4 => 0_usize..40, 1 => 0_usize..300];
    let draws = prop_oneof![
        6 => (1_usize..10).prop_map(Draw::Next),
        4 => counts().prop_map(Draw::Take),
        2 => counts().prop_map(Draw::Fill),
        4 => (0_usize..2, 1_usize..12).prop_map(|(which, count)| Draw::Block { which, count }),
        1 => Just(Draw::Await),
        1 => (-100_i64..400).prop_map(Draw::ExtendLease),
    ];
    let draws = prop_oneof![200 => draws, 1 => Just(Draw::End)];
    prop::collection::vec((moves, draws), 1..if cfg!(miri) { 20 } else { 60 })
}

pub(crate) fn starts() -> impl Strategy<Value = Start> {
    let bound = prop_oneof![1_u32..10, Just(u32::MAX)];
    prop_oneof![
        bound.prop_map(|bound| Start::Random { bound: NonZeroU32::new(bound).unwrap() }),
        Just(Start::Rolling),
    ]
}

/// The clock of a script, which remembers what it showed.
pub(crate) struct Scripted {
    pub(crate) clock: Arc<ManualClock>,
    shown: Vec<u64>,
}

impl Scripted {
    pub(crate) fn new(case: &Case) -> Self {
        Self { clock: Arc::new(ManualClock::at_unix_ms(case.at(0))), shown: vec![case.at(0)] }
    }

    pub(crate) fn now(&self) -> u64 {
        self.shown[self.shown.len() - 1]
    }

    pub(crate) fn go(&mut self, case: &Case, to: Move) {
        let now = match to {
            Move::By(ms) => self.now().saturating_add_signed(ms),
            Move::FromHome(ms) => case.at(ms),
            Move::FromEpoch(ms) => case.shape.epoch_ms.saturating_add_signed(ms),
            Move::Back(moves) => self.shown[self.shown.len().saturating_sub(moves + 1)],
        };
        self.clock.set_unix_ms(now);
        self.shown.push(now);
    }
}
