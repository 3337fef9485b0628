//! Goal: under any clock, every form of the generator returns exactly the ids, or the error with its numbers,
//! that its documentation states. Method: proptest against a slow model that keeps every position it returned
//! and shares no code with the library.

mod case;
mod reference;
mod waits;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;

use case::{Case, Draw, Script, Scripted, cases, scripts, starts};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use reference::{Model, Position};
use snowmint::generator::BlockGenerator;
use snowmint::{GenerateError, Generator, Id, ManualClock, Start};

type Shared = Arc<Generator<Arc<ManualClock>>>;
type Answer = Result<Vec<u64>, GenerateError>;
type Verdict = Result<(), TestCaseError>;

/// Block sizes: within a tick, and across ticks.
const BLOCKS: [u32; 2] = [3, 11];

/// A model with its clock, and the random starts seen so far.
struct World {
    case: Case,
    start: Start,
    model: Model,
    scripted: Scripted,
    /// Where the sequence starts in each tick of a generation, if at random.
    random: BTreeMap<(u128, u128), u128>,
}

/// A block in the model. The rest of it is lost when the clock reading changes.
#[derive(Default)]
struct Block {
    left: VecDeque<Position>,
    now_ms: u64,
}

impl World {
    fn new(case: Case, start: Start) -> Self {
        let (model, scripted) = (case.model(), Scripted::new(&case));
        Self { case, start, model, scripted, random: BTreeMap::new() }
    }

    /// Returns the first sequence of this answer, if the start is rolling.
    fn began(&self, answer: &Answer) -> Option<u128> {
        let first = answer.as_ref().ok().and_then(|ids| ids.first());
        let sequence = first.map_or(0, |id| self.case.shape.sequence(*id));
        (self.start == Start::Rolling && first.is_some()).then_some(sequence)
    }

    fn take(&mut self, wanted: usize, answer: &Answer) -> Verdict {
        let expected = self.model.take(self.scripted.now(), wanted, self.began(answer));
        self.compare(answer, expected)
    }

    fn take_one_owned(&mut self, answer: &Answer) -> Verdict {
        let expected = self.model.take_one_owned(self.scripted.now(), self.began(answer));
        self.compare(answer, expected.map(|position| vec![position]))
    }

    fn take_of_block(&mut self, block: &mut Block, size: u32, answer: &Answer) -> Verdict {
        let now_ms = self.scripted.now();
        if block.now_ms != now_ms || block.left.is_empty() {
            block.left.clear();
            match self.model.take(now_ms, size as usize, self.began(answer)) {
                Ok(taken) => *block = Block { left: taken.into(), now_ms },
                Err(error) => return self.compare(answer, Err(error)),
            }
        }
        let next = block.left.pop_front().unwrap();
        self.compare(answer, Ok(vec![next]))
    }

    fn compare(&mut self, answer: &Answer, expected: Result<Vec<Position>, GenerateError>) -> Verdict {
        let expected = expected.map(|positions| self.ids(answer, &positions));
        prop_assert_eq!(answer, &expected, "at {}", self.scripted.now());
        Ok(())
    }

    /// Returns the ids of positions. If ticks start at random, the first id seen of a tick determines its
    /// start; the others wrap.
    fn ids(&mut self, answer: &Answer, positions: &[Position]) -> Vec<u64> {
        let mut ids = Vec::new();
        for (index, position) in positions.iter().enumerate() {
            let mut position = *position;
            if let (Start::Random { bound }, Ok(seen)) = (self.start, answer) {
                let sequences = self.case.shape.sequences();
                let seen = seen.get(index).map_or(0, |id| self.case.shape.sequence(*id));
                let implied = (seen + sequences - position.sequence) % sequences;
                let start = *self.random.entry((position.generation, position.tick)).or_insert(implied);
                assert!(start < u128::from(bound.get()), "a tick starts at {start}, not below {bound}");
                position.sequence = (position.sequence + start) % sequences;
            }
            ids.push(self.case.shape.id(position));
        }
        ids
    }
}

fn one(drawn: Result<Id, GenerateError>) -> Answer {
    drawn.map(|id| vec![id.get()])
}

/// Returns the ids of `fill`, which must not touch the rest of the buffer.
fn filled(count: usize, fill: impl FnOnce(&mut [Id]) -> Result<usize, GenerateError>) -> Answer {
    let mut buffer = vec![Id::MAX; count];
    let len = fill(&mut buffer)?;
    assert!(buffer[len..].iter().all(|id| *id == Id::MAX), "beyond what was filled");
    Ok(buffer[..len].iter().map(|id| id.get()).collect())
}

fn shared_follows_the_model(case: Case, start: Start, script: Script) -> Verdict {
    let Some(builder) = case.builder(start) else { return Ok(()) };
    let mut world = World::new(case, start);
    let shared: Shared = Arc::new(builder.build(Arc::clone(&world.scripted.clock)).unwrap());
    let mut blocks = BLOCKS.map(|size| {
        let of_library = BlockGenerator::new(Arc::clone(&shared), NonZeroU32::new(size).unwrap());
        (of_library, Block::default(), size)
    });
    for (to, draw) in script {
        world.scripted.go(&world.case, to);
        match draw {
            Draw::Next(count) => {
                for _ in 0..count {
                    world.take(1, &one(shared.try_next_id()))?;
                }
            }
            Draw::Take(count) => {
                let taken = shared.try_take(count).map(|batch| batch.map(Id::get).collect());
                world.take(count, &taken)?;
            }
            Draw::Fill(count) => world.take(count, &filled(count, |buffer| shared.try_fill(buffer)))?,
            Draw::Block { which, count } => {
                let (of_library, of_model, size) = &mut blocks[which];
                for _ in 0..count {
                    world.take_of_block(of_model, *size, &one(of_library.try_next_id()))?;
                }
            }
            Draw::Await => await_once(&mut world, &shared)?,
            Draw::ExtendLease(ms) => {
                let until_ms = world.case.at(ms);
                shared.extend_lease(until_ms);
                world.model.extend_lease(until_ms);
                prop_assert_eq!(shared.lease_until_unix_ms(), world.model.lease_until_ms());
            }
            Draw::End => prop_assert_eq!(shared.end(), world.model.end()),
        }
    }
    prop_assert_eq!(shared.end(), world.model.end());
    Ok(())
}

/// A future that is pending after one poll has requested the wait of the error, and loses nothing when
/// dropped.
fn await_once(world: &mut World, shared: &Shared) -> Verdict {
    let (answer, slept) = waits::poll_once(shared);
    if let Some(answer) = answer {
        prop_assert_eq!(slept, None);
        return world.take(1, &one(answer));
    }
    let error = world.model.take(world.scripted.now(), 1, None).expect_err("it waits");
    prop_assert_eq!(slept, Some(error.retry_after_ms().expect("waiting helps").get()));
    Ok(())
}

fn owned_follows_the_model(case: Case, start: Start, script: Script) -> Verdict {
    let Some(builder) = case.builder(start) else { return Ok(()) };
    let mut world = World::new(case, start);
    let mut owned = builder.build_owned(Arc::clone(&world.scripted.clock)).unwrap();
    for (to, draw) in script {
        world.scripted.go(&world.case, to);
        match draw {
            Draw::Next(count) | Draw::Block { count, .. } => {
                for _ in 0..count {
                    world.take_one_owned(&one(owned.try_next_id()))?;
                }
            }
            Draw::Take(count) => {
                let taken = owned.try_take(count).map(|batch| batch.map(Id::get).collect());
                world.take(count, &taken)?;
            }
            Draw::Fill(count) => world.take(count, &filled(count, |buffer| owned.try_fill(buffer)))?,
            Draw::Await => world.take_one_owned(&one(owned.try_next_id()))?,
            Draw::ExtendLease(ms) => {
                let until_ms = world.case.at(ms);
                owned.extend_lease(until_ms);
                world.model.extend_lease(until_ms);
            }
            // This consumes the generator.
            Draw::End => break,
        }
    }
    prop_assert_eq!(owned.end(), world.model.end());
    Ok(())
}

fn config() -> ProptestConfig {
    let beside_this_file = FileFailurePersistence::WithSource("proptest-regressions");
    ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 700 },
        failure_persistence: Some(Box::new(beside_this_file)),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_shared_form_and_its_blocks_give_what_the_model_says(case in cases(), script in scripts()) {
        shared_follows_the_model(case, Start::Zero, script)?;
    }

    #[test]
    fn the_owned_form_gives_what_the_model_says(case in cases(), script in scripts()) {
        owned_follows_the_model(case, Start::Zero, script)?;
    }

    /// The same number of ids in the same ticks, and the same errors; only the sequences differ, as `Start`
    /// documents.
    #[test]
    fn starts_change_nothing_but_the_sequence(case in cases(), script in scripts(), start in starts()) {
        shared_follows_the_model(case.clone(), start, script.clone())?;
        owned_follows_the_model(case, start, script)?;
    }
}
