//! Goal: a pool of generators repeats no id, keeps each caller's ids increasing while generators are added
//! and removed, and returns an error only if no generator has an id above the caller's last. Method: scripted
//! clocks; proptest against a slow model that tries every id of the tick; threads on a real clock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use snowmint::field::{Sequence, Timestamp};
use snowmint::generator::{GeneratorPool, PoolError, PoolHandle};
use snowmint::{
    GenerateError, Generator, Id, Layout, Lease, ManualClock, Parts, Rule, Start, WallClock, WorkerId,
};

const T0: u64 = 1_700_000_000_000;
/// Four ids a tick and worker; the worker lies above the sequence.
const WORKER_FIRST: &str = "time:41@1ms worker:3 sequence:2 epoch:2020-01-01";
/// The same, but the ids of one worker lie between those of the others.
const SEQUENCE_FIRST: &str = "time:41@1ms sequence:2 worker:3 epoch:2020-01-01";

type Clock = Arc<ManualClock>;
type Pool = GeneratorPool<Clock>;

fn generator(clock: &Clock, layout: &str, worker: u32) -> Arc<Generator<Clock>> {
    let builder = Generator::builder(layout.parse().unwrap()).worker(WorkerId(worker)).rule(Rule::REJECT);
    Arc::new(builder.build(Arc::clone(clock)).unwrap())
}

fn pool(clock: &Clock, layout: &str, workers: u32) -> Pool {
    let pool = GeneratorPool::new(layout.parse().unwrap());
    for worker in 0..workers {
        pool.add(generator(clock, layout, worker)).unwrap();
    }
    pool
}

fn clock() -> Clock {
    Arc::new(ManualClock::at_unix_ms(T0))
}

/// Takes every id that is available without waiting.
fn drain(handle: &mut PoolHandle<Clock>) -> Vec<Id> {
    let mut ids = Vec::new();
    while let Ok(batch) = handle.try_take(3) {
        ids.extend(batch);
    }
    ids
}

fn parts(layout: &str, id: Id) -> Parts {
    layout.parse::<Layout>().unwrap().split(id).unwrap()
}

/// Goal: the borrowed ticks of a pool are those of all its generators, including replaced and removed ones.
#[test]
fn a_pool_remembers_the_borrowed_ticks_of_generators_that_left() {
    let clock = clock();
    let borrower = |worker: u32, from_unix_ms: u64| {
        let builder = Generator::builder(WORKER_FIRST.parse().unwrap()).worker(WorkerId(worker));
        let builder = builder.rule(Rule::borrow(Duration::from_millis(2))).not_before_unix_ms(from_unix_ms);
        Arc::new(builder.build(Arc::clone(&clock)).unwrap())
    };
    let pool: Pool = GeneratorPool::new(WORKER_FIRST.parse().unwrap());
    let (first, second) = (borrower(1, 0), borrower(2, 0));
    pool.add(Arc::clone(&first)).unwrap();
    pool.add(Arc::clone(&second)).unwrap();
    assert_eq!(pool.borrowed_ticks(), 0);
    assert_eq!(drain(&mut pool.handle()).len(), 2 * 3 * 4);
    assert_eq!(pool.borrowed_ticks(), 4);
    let used_until = first.end().unwrap();
    pool.replace(&first, borrower(1, used_until)).unwrap();
    pool.remove(&second);
    assert_eq!(pool.borrowed_ticks(), 4);
}

#[test]
fn one_caller_draws_what_all_have_in_order() {
    for seats_before in 0..3 {
        let clock = clock();
        let pool = pool(&clock, WORKER_FIRST, 3);
        // Wherever the handle starts, it gets all ids of a tick, the smallest first.
        for _ in 0..seats_before {
            let _ = pool.handle();
        }
        let mut handle = pool.handle();
        drain(&mut handle);
        let mut last = None;
        for _ in 0..50 {
            clock.advance_ms(1);
            let ids = drain(&mut handle);
            assert_eq!(ids.len(), 12, "4 ids of each of 3 workers");
            assert!(ids.is_sorted() && last < Some(ids[0]));
            last = ids.last().copied();
        }
    }
}

#[test]
fn a_tick_that_was_slept_through_is_spent_on_all_generators() {
    let clock = clock();
    let mut handle = pool(&clock, WORKER_FIRST, 3).handle();
    assert_eq!(drain(&mut handle).len(), 12);
    clock.advance_ms(2);
    let ids = drain(&mut handle);
    assert_eq!(ids.len(), 24, "the tick that passed, too");
    assert!(ids.is_sorted());
}

#[test]
fn where_the_sequence_stands_above_the_worker_several_callers_draw_what_all_have() {
    let clock = clock();
    let pool = pool(&clock, SEQUENCE_FIRST, 3);
    let mut handles: Vec<_> = (0..3).map(|_| pool.handle()).collect();
    let mut all = BTreeSet::new();
    for handle in &mut handles {
        let ids = drain(handle);
        assert!(ids.is_sorted());
        all.extend(ids);
    }
    assert_eq!(all.len(), 12);
    clock.advance_ms(1);
    assert_eq!(drain(&mut handles[0]).len(), 4, "one alone in order: what one generator has");
}

#[test]
fn callers_with_little_to_do_share_no_cursor() {
    let clock = clock();
    let pool = pool(&clock, WORKER_FIRST, 3);
    let mut handles: Vec<_> = (0..3).map(|_| pool.handle()).collect();
    for _ in 0..40 {
        clock.advance_ms(1);
        let workers: BTreeSet<_> = handles
            .iter_mut()
            .map(|handle| parts(WORKER_FIRST, handle.try_next_id().unwrap()).worker)
            .collect();
        assert_eq!(workers.len(), 3);
    }
    // After the rush they return to their own generators.
    drain(&mut handles[2]);
    for _ in 0..40 {
        clock.advance_ms(1);
        handles[2].try_next_id().unwrap();
    }
    let worker = parts(WORKER_FIRST, handles[2].try_next_id().unwrap()).worker;
    assert_eq!(worker, WorkerId(2));
}

#[test]
fn a_generator_that_comes_is_used_in_the_same_tick_and_one_that_goes_is_left() {
    let clock = clock();
    let pool = pool(&clock, WORKER_FIRST, 1);
    let mut handle = pool.handle();
    let first = drain(&mut handle);
    let second = generator(&clock, WORKER_FIRST, 5);
    pool.add(Arc::clone(&second)).unwrap();
    let more = drain(&mut handle);
    assert!(more.len() == 4 && first.last() < more.first());
    clock.advance_ms(1);
    let before = handle.try_take(6).unwrap().last();
    assert_eq!(pool.remove(&second), Some(T0 + 1), "it was used up to the tick before");
    let after = drain(&mut handle);
    assert_eq!(after.len(), 0, "worker 0 has no greater id in the tick in which 5 made one: {before:?}");
    clock.advance_ms(1);
    let after = drain(&mut handle);
    assert!(after.len() == 4 && before < Some(after[0]));
    assert_eq!(second.try_next_id(), Err(GenerateError::Ended));
}

#[test]
fn a_caller_whose_generator_is_gone_does_not_go_back_behind_its_last_id() {
    let clock = clock();
    let pool = pool(&clock, WORKER_FIRST, 2);
    let _first = pool.handle();
    let mut handle = pool.handle();
    let last = handle.try_next_id().unwrap();
    assert_eq!(parts(WORKER_FIRST, last).worker, WorkerId(1));
    pool.remove(&pool.generators()[1]);
    let error = handle.try_next_id().unwrap_err();
    assert_eq!(error.retry_after_ms().map(u64::from), Some(1), "worker 0 has a greater id in the next tick");
    clock.set_unix_ms(T0 - 60_000);
    let error = handle.try_next_id().unwrap_err();
    assert!(
        matches!(error, GenerateError::ClockBehind { behind_ms, .. } if behind_ms.get() >= 60_000),
        "{error:?}"
    );
    clock.set_unix_ms(T0 + 1);
    assert!(handle.try_next_id().unwrap() > last);
}

#[test]
fn a_generator_is_replaced_by_the_one_that_follows_it() {
    let clock = clock();
    let pool = pool(&clock, WORKER_FIRST, 1);
    let mut handle = pool.handle();
    let last = handle.try_next_id().unwrap();
    let old = Arc::clone(&pool.generators()[0]);
    pool.replace(&old, generator(&clock, WORKER_FIRST, 7)).unwrap();
    let next = handle.try_next_id().unwrap();
    assert!(next > last && parts(WORKER_FIRST, next).worker == WorkerId(7));
    assert_eq!((old.try_next_id(), pool.generators().len()), (Err(GenerateError::Ended), 1));
}

/// Goal: a check takes no id and changes no later one, and it fails as a draw of a new handle does.
#[test]
fn a_check_takes_no_id() {
    let clock = ManualClock::at_unix_ms(T0);
    let pool = GeneratorPool::new(Layout::TWITTER);
    assert_eq!(pool.check_ready(), Err(GenerateError::Ended));
    for worker in 1..=2 {
        pool.add(Arc::new(
            Generator::builder(Layout::TWITTER).worker(WorkerId(worker)).build(&clock).unwrap(),
        ))
        .unwrap();
    }
    let mut handle = pool.handle();
    let first = handle.try_next_id().unwrap();
    for _ in 0..10_000 {
        pool.check_ready().unwrap();
    }
    assert_eq!(handle.try_next_id().unwrap().get(), first.get() + 1);
    let mut other = pool.handle();
    while handle.try_take(4096).is_ok() || other.try_take(4096).is_ok() {}
    assert!(matches!(pool.check_ready(), Err(GenerateError::Exhausted { .. })));
    assert_eq!(pool.check_ready(), pool.handle().try_take(1).map(drop));
    clock.set_unix_ms(T0 - 3_600_000);
    assert!(matches!(pool.check_ready(), Err(GenerateError::ClockBehind { .. })));
    assert_eq!(pool.check_ready(), pool.handle().try_take(1).map(drop));
}

#[test]
fn a_pool_without_generators_refuses_and_serves_once_there_is_one() {
    let clock = clock();
    let pool = pool(&clock, WORKER_FIRST, 0);
    let mut handle = pool.handle();
    assert_eq!(handle.try_next_id(), Err(GenerateError::Ended));
    assert_eq!(handle.try_take(0).unwrap().len(), 0);
    pool.add(generator(&clock, WORKER_FIRST, 1)).unwrap();
    assert_eq!(handle.try_take(0).unwrap().len(), 0);
    handle.try_next_id().unwrap();
}

#[test]
fn what_would_make_equal_ids_is_not_added() {
    let clock = clock();
    let pool = pool(&clock, WORKER_FIRST, 1);
    assert_eq!(pool.add(generator(&clock, WORKER_FIRST, 0)), Err(PoolError::SameWorker));
    let other = pool.add(generator(&clock, SEQUENCE_FIRST, 1)).unwrap_err();
    assert!(other.to_string().contains(&SEQUENCE_FIRST.parse::<Layout>().unwrap().to_string()), "{other}");
    // Consecutive leases of one worker do not conflict.
    let leased = |from_unix_ms, until_unix_ms| {
        let lease = Lease { worker: WorkerId(3), from_unix_ms, until_unix_ms };
        Arc::new(Generator::builder(*pool.layout()).lease(lease).build(Arc::clone(&clock)).unwrap())
    };
    pool.add(leased(T0, T0 + 10)).unwrap();
    pool.add(leased(T0 + 10, T0 + 20)).unwrap();
    assert_eq!(pool.add(leased(T0 + 19, T0 + 30)), Err(PoolError::SameWorker));
    pool.generators()[2].end();
    pool.add(leased(T0 + 19, T0 + 30)).unwrap();
    // The used timestamps of an ended generator conflict with those of the next, whoever ended it.
    let old = Arc::clone(&pool.generators()[0]);
    old.try_next_id().unwrap();
    let again = |not_before| {
        let builder = Generator::builder(*pool.layout()).worker(WorkerId(0)).not_before_unix_ms(not_before);
        Arc::new(builder.build(Arc::clone(&clock)).unwrap())
    };
    assert_eq!(pool.replace(&old, again(0)), Err(PoolError::SameWorker));
    pool.replace(&old, again(T0 + 1)).unwrap();
}

/// Goal: a pool repeats no id, whatever was added and removed before. Method: a worker is removed or
/// replaced, and returns for the same timestamps, for later ones, and for unused ones.
#[test]
fn what_was_removed_is_not_forgotten() {
    let clock = clock();
    let pool = pool(&clock, WORKER_FIRST, 0);
    let fresh = |worker, not_before| {
        let builder =
            Generator::builder(*pool.layout()).worker(WorkerId(worker)).not_before_unix_ms(not_before);
        Arc::new(builder.build(Arc::clone(&clock)).unwrap())
    };
    let (removed, replaced, unused) = (fresh(1, 0), fresh(2, 0), fresh(3, T0));
    for generator in [&removed, &replaced, &unused] {
        pool.add(Arc::clone(generator)).unwrap();
    }
    let mut handle = pool.handle();
    let first = drain(&mut handle);
    let used_until = pool.remove(&removed).unwrap();
    assert_eq!(pool.add(fresh(1, 0)), Err(PoolError::SameWorker));
    assert_eq!(pool.add(fresh(1, used_until - 1)), Err(PoolError::SameWorker), "a tick of it was used");
    pool.replace(&replaced, fresh(4, used_until)).unwrap();
    assert_eq!(pool.add(fresh(2, 0)), Err(PoolError::SameWorker));
    pool.remove(&unused);
    // Twice: the pool does not forget, and remembers a second generator of the worker, too.
    for ms in 0..2 {
        pool.add(fresh(1, used_until + ms)).unwrap();
        clock.advance_ms(1);
        handle.try_next_id().unwrap();
        assert_eq!(pool.add(fresh(1, 0)), Err(PoolError::SameWorker));
        let last = Arc::clone(pool.generators().last().unwrap());
        assert_eq!(pool.remove(&last), Some(used_until + ms + 1));
    }
    assert_eq!(pool.add(fresh(1, used_until + 1)), Err(PoolError::SameWorker));
    let other = GeneratorPool::new(*pool.layout());
    other.add(fresh(1, 0)).unwrap();
    assert_eq!(first.len(), 12, "{first:?}");
}

#[test]
fn where_ids_do_not_increase_a_pool_loses_none() {
    let random = ("time:41@1ms worker:3 sequence:4 epoch:2020-01-01", Start::RANDOM);
    let worker_on_top = ("worker:3 time:41@1ms sequence:4 epoch:2020-01-01", Start::Zero);
    for (layout, start) in [random, worker_on_top] {
        let clock = clock();
        let layout: Layout = layout.parse().unwrap();
        let pool = GeneratorPool::new(layout);
        for worker in 0..3 {
            let builder = Generator::builder(layout).worker(WorkerId(worker)).start(start);
            pool.add(Arc::new(builder.rule(Rule::REJECT).build(Arc::clone(&clock)).unwrap())).unwrap();
        }
        // Not the first handle: it begins with another worker and then also needs workers with smaller ids.
        pool.handle();
        let mut handle = pool.handle();
        for _ in 0..20 {
            let ids: BTreeSet<Id> = drain(&mut handle).into_iter().collect();
            assert_eq!(ids.len(), 3 * 16, "every sequence of each worker, in whatever order: {layout}");
            clock.advance_ms(1);
        }
    }
}

/// Goal: with a random start, the ids of a caller increase from tick to tick, whichever generators they come
/// from. Method: one generator trails the clock because its earlier tick was used up, and the other's later
/// tick is used up.
#[test]
fn with_a_random_start_no_caller_goes_back_behind_its_last_tick() {
    let clock = clock();
    let layout: Layout = WORKER_FIRST.parse().unwrap();
    let pool = GeneratorPool::new(layout);
    for worker in 0..2 {
        let builder = Generator::builder(layout).worker(WorkerId(worker)).start(Start::RANDOM);
        pool.add(Arc::new(builder.build(Arc::clone(&clock)).unwrap())).unwrap();
    }
    let (mut handle, mut other) = (pool.handle(), pool.handle());
    assert_eq!(other.try_take(4).unwrap().len(), 4);
    clock.advance_ms(2);
    let timestamps: Vec<_> =
        drain(&mut handle).into_iter().map(|id| parts(WORKER_FIRST, id).timestamp).collect();
    assert_eq!(timestamps.len(), 8, "what both have");
    assert!(timestamps.is_sorted(), "{timestamps:?}");
}

#[test]
fn the_refusal_that_waiting_helps_is_the_one_that_is_told() {
    let clock = clock();
    let pool = pool(&clock, WORKER_FIRST, 1);
    let lease = Lease { worker: WorkerId(3), from_unix_ms: T0 - 10, until_unix_ms: T0 };
    pool.add(Arc::new(Generator::builder(*pool.layout()).lease(lease).build(Arc::clone(&clock)).unwrap()))
        .unwrap();
    let mut handle = pool.handle();
    assert_eq!(drain(&mut handle).len(), 4);
    assert!(matches!(handle.try_next_id(), Err(GenerateError::Exhausted { .. })));
    pool.remove(&pool.generators()[0]);
    assert!(matches!(handle.try_next_id(), Err(GenerateError::LeaseEnded { .. })));
}

/// Goal: none of the above depends on the scheduling of threads. Method: threads draw on the wall clock while
/// generators are added and removed; takes 0.3 s.
#[test]
#[cfg_attr(miri, ignore = "thousands of ids one by one: minutes")]
fn threads_draw_while_generators_come_and_go() {
    let layout: Layout = "time:41@1ms worker:6 sequence:6 epoch:2020-01-01".parse().unwrap();
    let pool = GeneratorPool::new(layout);
    let fresh = |worker: u32| {
        let builder = Generator::builder(layout).worker(WorkerId(worker));
        Arc::new(builder.build(WallClock).unwrap())
    };
    pool.add(fresh(0)).unwrap();
    let stop = AtomicBool::new(false);
    let all: Vec<Vec<Id>> = std::thread::scope(|scope| {
        let draw = |count: usize| {
            let (pool, stop) = (&pool, &stop);
            scope.spawn(move || {
                let mut handle = pool.handle();
                let mut ids = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    match handle.try_take(count) {
                        Ok(batch) => ids.extend(batch),
                        Err(_) => std::thread::yield_now(),
                    }
                }
                ids
            })
        };
        let threads = [1, 3, 50, 1000].map(draw);
        for worker in 1..64 {
            std::thread::sleep(Duration::from_millis(4));
            pool.add(fresh(worker)).unwrap();
            if worker % 3 != 0 {
                pool.remove(&pool.generators()[0]);
            }
        }
        stop.store(true, Ordering::Relaxed);
        threads.map(|thread| thread.join().unwrap()).into()
    });
    let mut seen: Vec<Id> = Vec::new();
    for ids in all {
        assert!(ids.windows(2).all(|two| two[0] < two[1]), "a caller's ids went back");
        assert!(!ids.is_empty());
        seen.extend(ids);
    }
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count, "an id came twice");
}

#[derive(Clone, Debug)]
enum Act {
    Draw { handle: usize, count: usize },
    Advance(u64),
    GoBack(u64),
    Add { worker: u32, lease_ms: u64 },
    Remove(usize),
    Extend { generator: usize, ms: u64 },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        10 => (0..4_usize, 1..7_usize).prop_map(|(handle, count)| Act::Draw { handle, count }),
        3 => (1..3_u64).prop_map(Act::Advance),
        1 => (1..9_u64).prop_map(Act::GoBack),
        3 => (0..8_u32, 1..30_u64).prop_map(|(worker, lease_ms)| Act::Add { worker, lease_ms }),
        1 => (0..12_usize).prop_map(Act::Remove),
        1 => (0..12_usize, 1..20_u64).prop_map(|(generator, ms)| Act::Extend { generator, ms }),
    ];
    prop::collection::vec(act, 1..150)
}

/// What a generator can still make, independent of the one under test.
struct Model {
    generator: Arc<Generator<Clock>>,
    worker: WorkerId,
    /// 0 after its removal.
    until_unix_ms: u64,
    /// Up to where it had used timestamps when it was removed.
    used_until_unix_ms: u64,
    /// The tick and the sequence of the next id.
    next: (u64, u16),
}

struct World {
    layout: Layout,
    rule: Rule,
    max_behind: Duration,
    clock: Clock,
    pool: Pool,
    models: Vec<Model>,
    handles: Vec<(PoolHandle<Clock>, Option<Id>)>,
    /// For each handle, the model that made its last id.
    makers: [Option<usize>; 4],
    seen: BTreeSet<Id>,
}

impl World {
    fn new(layout: &str, rule: Rule, max_behind: Duration) -> Self {
        let layout = layout.parse().unwrap();
        let (clock, pool) = (clock(), GeneratorPool::new(layout));
        let handles = (0..4).map(|_| (pool.handle(), None)).collect();
        let (models, makers, seen) = (Vec::new(), [None; 4], BTreeSet::new());
        Self { layout, rule, max_behind, clock, pool, models, handles, makers, seen }
    }

    fn now(&self) -> u64 {
        snowmint::Clock::unix_ms(&self.clock)
    }

    fn tick(&self, unix_ms: u64) -> u64 {
        self.layout.timestamp_at(unix_ms).unwrap().0
    }

    /// Returns the model of the generator that has a worker now, or had it last.
    fn model_of(&self, worker: WorkerId) -> Option<usize> {
        self.models.iter().rposition(|model| model.worker == worker)
    }

    /// Adds a generator. A removed worker returns only after all timestamps that it has used.
    fn add(&mut self, worker: WorkerId, lease_ms: u64) {
        let of_worker = || self.models.iter().filter(|model| model.worker == worker);
        if of_worker().any(|model| model.until_unix_ms > 0) {
            return;
        }
        let from_unix_ms = self.now();
        let used = of_worker().any(|model| from_unix_ms < model.used_until_unix_ms);
        let lease = Lease { worker, from_unix_ms, until_unix_ms: from_unix_ms + lease_ms };
        let builder =
            Generator::builder(self.layout).lease(lease).rule(self.rule).max_behind(self.max_behind);
        let generator = Arc::new(builder.build(Arc::clone(&self.clock)).unwrap());
        let added = self.pool.add(Arc::clone(&generator));
        assert_eq!(added, if used { Err(PoolError::SameWorker) } else { Ok(()) });
        if added.is_ok() {
            let (next, until_unix_ms) = ((self.tick(from_unix_ms), 0), lease.until_unix_ms);
            self.models.push(Model { generator, worker, until_unix_ms, used_until_unix_ms: 0, next });
        }
    }

    fn act(&mut self, act: &Act) -> Option<(usize, Result<Vec<Id>, GenerateError>)> {
        match *act {
            Act::Advance(ms) => self.clock.advance_ms(ms),
            Act::GoBack(ms) => self.clock.set_unix_ms(self.now() - ms),
            Act::Add { worker, lease_ms } => self.add(WorkerId(worker), lease_ms),
            Act::Remove(index) => {
                if let Some(model) = self.models.get_mut(index).filter(|model| model.until_unix_ms > 0) {
                    model.used_until_unix_ms = self.pool.remove(&model.generator).unwrap();
                    model.until_unix_ms = 0;
                }
            }
            Act::Extend { generator, ms } => {
                if let Some(model) = self.models.get_mut(generator).filter(|model| model.until_unix_ms > 0) {
                    model.until_unix_ms += ms;
                    model.generator.extend_lease(model.until_unix_ms);
                }
            }
            Act::Draw { handle, count } => {
                let drawn = self.handles[handle].0.try_take(count).map(Iterator::collect::<Vec<_>>);
                return Some((handle, drawn));
            }
        }
        None
    }

    /// Checks the promises that hold under every rule.
    fn check_promises(&mut self, handle: usize, ids: &[Id]) {
        assert!(!ids.is_empty());
        for id in ids {
            assert!(Some(*id) > self.handles[handle].1, "a caller's ids went back");
            assert!(self.seen.insert(*id), "{id} came twice");
            let Parts { worker, timestamp, .. } = self.layout.split(*id).unwrap();
            let instant = self.layout.unix_ms(timestamp);
            let maker = self.model_of(worker).unwrap();
            self.makers[handle] = Some(maker);
            let model = &self.models[maker];
            assert!(instant < model.until_unix_ms, "beyond the lease, or from one that was removed");
            let max_ahead = u64::try_from(self.rule.max_ahead().as_millis()).unwrap();
            assert!(instant <= self.now() + max_ahead, "further ahead than the rule allows");
            self.handles[handle].1 = Some(*id);
        }
    }

    /// Returns whether the model finds an id of the clock's tick above the caller's last, by trying each.
    fn has_id(&self, handle: usize) -> bool {
        let (now, last) = (self.now(), self.handles[handle].1);
        let may_skip = self.makers[handle].is_some_and(|maker| self.models[maker].until_unix_ms == 0);
        self.models.iter().filter(|model| now < model.until_unix_ms).any(|model| {
            let left = (0..4_u16).filter(|sequence| (self.tick(now), *sequence) >= model.next);
            let mut above = left.map(|sequence| {
                let timestamp = Timestamp(self.tick(now));
                let sequence = Sequence(sequence.into());
                let parts = Parts { timestamp, worker: model.worker, sequence, ..Parts::default() };
                Some(self.layout.compose(&parts).unwrap()) > last
            });
            if may_skip { above.any(|above| above) } else { above.next() == Some(true) }
        })
    }

    fn note(&mut self, ids: &[Id]) {
        for id in ids {
            let Parts { worker, timestamp, sequence, .. } = self.layout.split(*id).unwrap();
            let maker = self.model_of(worker).unwrap();
            self.models[maker].next = (timestamp.0, u16::try_from(sequence.0).unwrap() + 1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Without borrowing and without trailing, there is an id exactly when the model finds one.
    #[test]
    fn it_refuses_only_when_no_generator_has_an_id_above_the_last(
        sequence_first in any::<bool>(),
        acts in acts(),
    ) {
        let layout = if sequence_first { SEQUENCE_FIRST } else { WORKER_FIRST };
        let mut world = World::new(layout, Rule::REJECT, Duration::ZERO);
        for act in &acts {
            let expected = matches!(act, Act::Draw { handle, .. } if world.has_id(*handle));
            match world.act(act) {
                Some((handle, Ok(ids))) => {
                    prop_assert!(expected, "{act:?} gave {ids:?}");
                    world.check_promises(handle, &ids);
                    world.note(&ids);
                }
                Some((_, Err(error))) => prop_assert!(!expected, "{act:?} was refused: {error}"),
                None => {}
            }
        }
    }

    #[test]
    fn the_promises_hold_under_every_rule(
        sequence_first in any::<bool>(),
        rule in prop::sample::select(vec!["reject", "wait(5ms)", "borrow(3ms)", "wait(2ms) then borrow(6ms)"]),
        max_behind in 0..6_u64,
        acts in acts(),
    ) {
        let layout = if sequence_first { SEQUENCE_FIRST } else { WORKER_FIRST };
        let mut world = World::new(layout, rule.parse().unwrap(), Duration::from_millis(max_behind));
        for act in &acts {
            if let Some((handle, Ok(ids))) = world.act(act) {
                world.check_promises(handle, &ids);
            }
        }
    }
}
