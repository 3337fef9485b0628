//! Snowmint's own subjects: one entry for each kind of generator, in the table of each group.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use snowmint::clock::CachedClock;
use snowmint::codec::{Alphabet, decimal, hex};
use snowmint::generator::{BlockGenerator, GeneratorBuilder};
use snowmint::{AnchoredClock, Clock, GenerateError, Generator, Id, Layout, WallClock, WorkerId};

use crate::groups::bulk::Fill;
use crate::groups::call::Call;
use crate::groups::saturated::{Caller, Saturated, caller};
use crate::groups::text::Conversion;
use crate::subject::Subject;
use crate::timing::wall_ms;

/// The shared generator on the clock that steps of the wall clock do not move: the usual choice.
pub const SHARED: &str = "snowmint shared, `AnchoredClock`";
const SHARED_WALL: &str = "snowmint shared, `WallClock`";
const SHARED_TICKER: &str = "snowmint shared, `CachedClock`";
/// The owned generator, which reads the clock for each id.
pub const OWNED: &str = "snowmint owned, `AnchoredClock`";
/// The owned generator on a tick that a background thread updates.
pub const OWNED_TICKER: &str = "snowmint owned, `CachedClock`";
/// Blocks of 64 for each thread, with a clock reading for each id.
pub const BLOCKS: &str = "snowmint blocks of 64, `AnchoredClock`";
/// Blocks of 64 for each thread on a cached tick.
pub const BLOCKS_TICKER: &str = "snowmint blocks of 64, `CachedClock`";
/// Many ids at once into a slice.
pub const BULK: &str = "snowmint `try_fill`";
/// Callers that wait on the shared generator.
pub const SATURATED: &str = "snowmint shared, `next_id`";
/// Callers that wait, each with its own blocks.
pub const SATURATED_BLOCKS: &str = "snowmint blocks of 64, `next_id`";
/// Callers that wait on the shared generator with tokio's timer.
pub const SATURATED_ASYNC: &str = "snowmint shared, `next_id_with`, tokio";

/// Returns a layout with a sequence so long that nothing is throttled, and an epoch one hour ago.
pub fn wide(sequence_bits: u32) -> Layout {
    Layout::builder()
        .timestamp(63 - sequence_bits)
        .sequence(sequence_bits)
        .epoch_unix_ms(wall_ms() - 3_600_000)
        .build()
        .expect("63 bits, and an epoch before now")
}

/// Returns a builder for the layout that is not throttled: 4,194,304 ids per millisecond.
fn wide_builder() -> GeneratorBuilder {
    Generator::builder(wide(22)).worker(WorkerId(0))
}

const BUILDS: &str = "worker 0 fits every layout";
const BLOCK: NonZeroU32 = NonZeroU32::new(64).unwrap();

fn shared<C: Clock>(clock: C) -> Generator<C> {
    wide_builder().build(clock).expect(BUILDS)
}

/// Returns the background thread for all subjects that use it; it starts with the first and never ends.
fn ticker() -> &'static CachedClock {
    static TICKER: OnceLock<CachedClock> = OnceLock::new();
    TICKER.get_or_init(|| CachedClock::start(AnchoredClock::new()).expect("a thread can be started"))
}

/// Draws until there is an id. On these layouts and clocks the first try should succeed, so each refusal is
/// counted, and [`report_refusals`] prints the count.
#[inline]
fn number(mut id: impl FnMut() -> Result<Id, GenerateError>) -> u64 {
    loop {
        match id() {
            Ok(id) => return id.get(),
            Err(refusal) => refused(refusal),
        }
    }
}

static REFUSALS: AtomicU64 = AtomicU64::new(0);

#[cold]
fn refused(refusal: GenerateError) {
    assert!(refusal.retry_after_ms().is_some(), "a generator came to its end: {refusal}");
    REFUSALS.fetch_add(1, Ordering::Relaxed);
}

/// Prints how often Snowmint generators refused an id since the last call, if they did.
pub fn report_refusals() {
    match REFUSALS.swap(0, Ordering::Relaxed) {
        0 => {}
        n => println!("\nSnowmint refused {n} times above, and was asked again at once."),
    }
}

fn owned<C: Clock + Send + 'static>(name: &'static str, clock: fn() -> C) -> Subject {
    Subject::own(name, move || {
        let mut generator = wide_builder().build_owned(clock()).expect(BUILDS);
        move || number(|| generator.try_next_id())
    })
}

fn blocks<C: Clock + Send + Sync + 'static>(name: &'static str, clock: C) -> Subject {
    let generator = Arc::new(shared(clock));
    Subject::own(name, move || {
        let mut mine = BlockGenerator::new(Arc::clone(&generator), BLOCK);
        move || number(|| mine.try_next_id())
    })
}

/// Subjects for any number of threads.
pub fn pair() -> Vec<Subject> {
    vec![
        Subject::shared(SHARED_WALL, shared(WallClock), |g| number(|| g.try_next_id())),
        Subject::shared(SHARED, shared(AnchoredClock::new()), |g| number(|| g.try_next_id())),
        Subject::shared(SHARED_TICKER, shared(ticker()), |g| number(|| g.try_next_id())),
        blocks(BLOCKS, AnchoredClock::new()),
        blocks(BLOCKS_TICKER, ticker()),
    ]
}

/// Subjects for one thread.
pub fn alone() -> Vec<Subject> {
    let mut subjects = vec![owned(OWNED, AnchoredClock::new), owned(OWNED_TICKER, ticker)];
    subjects.extend(pair());
    subjects
}

fn twitter_unix_ms(id: u64) -> u64 {
    let parts = Id::new(id).ok().and_then(|id| Layout::TWITTER.split(id).ok());
    parts.map_or(0, |parts| Layout::TWITTER.unix_ms(parts.timestamp))
}

fn twitter() -> GeneratorBuilder {
    Generator::builder(Layout::TWITTER).worker(WorkerId(0))
}

/// Callers that wait.
pub fn saturated() -> Vec<Saturated> {
    fn of_one(threads: usize, caller: impl Fn(Arc<Generator<AnchoredClock>>) -> Caller) -> Vec<Caller> {
        let generator = Arc::new(twitter().build(AnchoredClock::new()).expect(BUILDS));
        (0..threads).map(|_| caller(Arc::clone(&generator))).collect()
    }
    let subject = |name, for_two, make| Saturated {
        name,
        ticks_for_ever: false,
        for_two,
        make,
        unix_ms: twitter_unix_ms,
    };
    vec![
        subject(SATURATED, true, |threads| {
            of_one(threads, |generator| caller(move || number(|| generator.next_id())))
        }),
        subject(SATURATED_BLOCKS, true, |threads| {
            of_one(threads, |generator| {
                let mut mine = BlockGenerator::new(generator, BLOCK);
                caller(move || number(|| mine.next_id()))
            })
        }),
        subject("snowmint owned, `next_id`", false, |_| {
            let mut generator = twitter().build_owned(AnchoredClock::new()).expect(BUILDS);
            vec![caller(move || number(|| generator.next_id()))]
        }),
        subject(SATURATED_ASYNC, true, |threads| {
            of_one(threads, |generator| {
                Box::new(move |progress| {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                    runtime.expect("a runtime can be built").block_on(async {
                        while let Ok(id) = generator.next_id_with(tokio::time::sleep).await
                            && progress.note(id.get())
                        {}
                    });
                })
            })
        }),
    ]
}

/// Many ids at once.
pub fn bulk() -> Vec<(&'static str, Fill)> {
    let generator =
        Generator::builder(wide(27)).worker(WorkerId(0)).build(AnchoredClock::new()).expect(BUILDS);
    let fill = move |out: &mut [u64]| {
        // SAFETY: an `Id` is a transparent `u64`, and only ids are written to the slice, which are valid
        // numbers.
        let out = unsafe { &mut *(std::ptr::from_mut(out) as *mut [Id]) };
        let mut filled = 0;
        while filled < out.len() {
            match generator.try_fill(&mut out[filled..]) {
                Ok(ids) => filled += ids,
                Err(refusal) => refused(refusal),
            }
        }
    };
    vec![(BULK, Box::new(fill))]
}

/// Single calls.
pub fn call() -> Vec<Call> {
    let (wall, anchored, cached) = (shared(WallClock), shared(AnchoredClock::new()), shared(ticker()));
    let mut owned = wide_builder().build_owned(AnchoredClock::new()).expect(BUILDS);
    vec![
        Call::new(SHARED_WALL, move || number(|| wall.try_next_id())),
        Call::new(SHARED, move || number(|| anchored.try_next_id())),
        Call::new(SHARED_TICKER, move || number(|| cached.try_next_id())),
        Call::new(OWNED, move || number(|| owned.try_next_id())),
    ]
}

/// Every conversion that must stay under 10 ns and must not allocate, by name.
pub const CONVERSIONS: &[&str] = &[
    "snowmint split",
    "snowmint compose",
    "snowmint decimal, write",
    "snowmint decimal, read",
    "snowmint hex, write",
    "snowmint hex, read",
    "snowmint base62, write",
    "snowmint base62, read",
    "snowmint crockford32, write",
    "snowmint crockford32, read",
];

fn id(value: u64) -> Id {
    Id::new(value).expect("inputs have 63 bits")
}

/// Fields and texts.
pub fn text() -> Vec<Conversion> {
    let layout = Layout::TWITTER;
    let parts = move |value| layout.split(id(value)).expect("63 bits are the layout's");
    vec![
        Conversion::new(CONVERSIONS[0], id, move |id| layout.split(*id)),
        Conversion::new(CONVERSIONS[1], parts, move |parts| layout.compose(parts)),
        Conversion::new(CONVERSIONS[2], id, |id| decimal::encode(*id)),
        Conversion::new(CONVERSIONS[3], |v| decimal::encode(id(v)).to_string(), |text| decimal::decode(text)),
        Conversion::new(CONVERSIONS[4], id, |id| hex::encode(*id)),
        Conversion::new(CONVERSIONS[5], |v| hex::encode(id(v)).to_string(), |text| hex::decode(text)),
        Conversion::new(CONVERSIONS[6], id, |id| Alphabet::BASE62.encode(*id)),
        Conversion::new(
            CONVERSIONS[7],
            |v| Alphabet::BASE62.encode(id(v)).to_string(),
            |text| Alphabet::BASE62.decode(text),
        ),
        Conversion::new(CONVERSIONS[8], id, |id| Alphabet::CROCKFORD32.encode(*id)),
        Conversion::new(
            CONVERSIONS[9],
            |v| Alphabet::CROCKFORD32.encode(id(v)).to_string(),
            |text| Alphabet::CROCKFORD32.decode(text),
        ),
        Conversion::new("snowmint base62, write, as `&str`", id, |id| {
            Alphabet::BASE62.encode(*id).as_str().len()
        }),
        Conversion::new("snowmint `to_string`", id, ToString::to_string),
    ]
}
