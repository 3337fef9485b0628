//! The peers, each in the form that its own documentation recommends for the task.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ferroid::base32::Base32SnowExt as _;
use ferroid::generator::{AtomicSnowflakeGenerator, BasicSnowflakeGenerator, LockSnowflakeGenerator};
use ferroid::id::SnowflakeTwitterId;
use ferroid::time::{MonotonicClock, TWITTER_EPOCH, TimeSource};
use idgenerator::{CoreIdGenerator, IdGeneratorOptions};
use scru64::Scru64Generator;
use snowflake::SnowflakeIdGenerator;
use snowid::{SnowID, SnowIDConfig};
use tsid::TsidFactory;

use crate::groups::bulk::Fill;
use crate::groups::call::Call;
use crate::groups::saturated::{Caller, Saturated, caller};
use crate::groups::text::Conversion;
use crate::subject::Subject;

mod wide {
    ferroid::define_snowflake_id!(
        /// A sequence so long that nothing is throttled.
        Wide, u64,
        reserved: 1,
        timestamp: 41,
        machine_id: 0,
        sequence: 22
    );
}
use wide::Wide;

/// The wall clock, which users of ferroid must supply.
#[derive(Clone, Copy, Debug)]
struct Wall;

impl TimeSource<u64> for Wall {
    fn current_millis(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }
}

fn ticker() -> MonotonicClock<1> {
    MonotonicClock::with_epoch(TWITTER_EPOCH)
}

fn spin<T>(_: T) {
    std::hint::spin_loop();
}

fn pause<T>(_: T) {
    std::thread::yield_now();
}

/// Two thirds of the capacity of a sequence of 12 bits per millisecond.
const EACH_MS: u64 = 2700;

fn id_generator(sequence_bits: u8) -> CoreIdGenerator {
    let options = IdGeneratorOptions::new()
        .worker_id(1)
        .worker_id_bit_len(if sequence_bits > 20 { 1 } else { 10 })
        .seq_bit_len(sequence_bits);
    let mut generator = CoreIdGenerator::default();
    generator.init(options).expect("options in range");
    generator
}

fn snow_id(node_bits: u8) -> SnowID {
    let config = SnowIDConfig::builder().node_bits(node_bits).expect("6 to 16 bits").build();
    SnowID::with_config(1, config).expect("node 1 fits")
}

fn scru64() -> Scru64Generator {
    Scru64Generator::new("1/1".parse().expect("node 1 of 1 bit"))
}

/// One thread.
pub fn alone() -> Vec<Subject> {
    vec![
        Subject::own("ferroid basic, ticker thread", || {
            let generator = BasicSnowflakeGenerator::<Wide, _>::new(0, ticker());
            move || generator.next_id(spin).to_raw()
        }),
        Subject::own("ferroid basic, SystemTime", || {
            let generator = BasicSnowflakeGenerator::<Wide, _>::new(0, Wall);
            move || generator.next_id(spin).to_raw()
        }),
        Subject::own("ferroid atomic, ticker thread", || {
            let generator = AtomicSnowflakeGenerator::<Wide, _>::new(0, ticker());
            move || generator.next_id(spin).to_raw()
        }),
        Subject::own("ferroid atomic, SystemTime", || {
            let generator = AtomicSnowflakeGenerator::<Wide, _>::new(0, Wall);
            move || generator.next_id(spin).to_raw()
        }),
        Subject::own("ferroid lock, ticker thread", || {
            let generator = LockSnowflakeGenerator::<Wide, _>::new(0, ticker());
            move || generator.try_next_id(spin).map_or(0, |id| id.to_raw())
        }),
        Subject::own("snowflaked", || {
            let mut generator = snowflaked::Generator::new(1);
            move || generator.generate::<u64>()
        })
        .each_ms(EACH_MS),
        Subject::own("snowflaked sync", || {
            let generator = snowflaked::sync::Generator::new(1);
            move || generator.generate::<u64>()
        })
        .each_ms(EACH_MS),
        Subject::own("rs-snowflake real time", || {
            let mut generator = SnowflakeIdGenerator::new(1, 1);
            move || generator.real_time_generate()
        })
        .each_ms(EACH_MS),
        Subject::own("idgenerator", || {
            let mut generator = id_generator(21);
            move || generator.next_id()
        }),
        Subject::own("snowid", || {
            let generator = snow_id(6);
            move || generator.generate()
        }),
        Subject::own("tsid", || {
            let mut generator = TsidFactory::with_node_bits(0, 0);
            move || generator.create().number()
        }),
        Subject::own("scru64", || {
            let mut generator = scru64();
            move || generator.generate().map(scru64::Scru64Id::to_u64)
        }),
        Subject::own("uuid v7, fast-rng", || uuid::Uuid::now_v7),
        Subject::own("uuid v4, fast-rng", || uuid::Uuid::new_v4),
        Subject::own("ulid, monotonic", || {
            let mut generator = ulid::Generator::new();
            move || generator.generate().map_or(0, |id| id.0)
        }),
    ]
}

/// Takes the lock for a generator that has none.
fn locked<G, T>(generator: &Mutex<G>, id: impl FnOnce(&mut G) -> T) -> T {
    id(&mut generator.lock().expect("nothing panics under the lock"))
}

/// Two threads.
pub fn pair() -> Vec<Subject> {
    type Atomic = AtomicSnowflakeGenerator<Wide, MonotonicClock<1>>;
    vec![
        Subject::shared("ferroid atomic, ticker thread, spin", Atomic::new(0, ticker()), |g| g.next_id(spin)),
        Subject::shared("ferroid atomic, ticker thread, yield", Atomic::new(0, ticker()), |g| {
            g.next_id(pause)
        }),
        Subject::shared(
            "ferroid lock, ticker thread",
            LockSnowflakeGenerator::<Wide, _>::new(0, ticker()),
            |g| g.try_next_id(spin).map_or(0, |id| id.to_raw()),
        ),
        Subject::shared(
            "snowflaked sync",
            snowflaked::sync::Generator::new(1),
            snowflaked::sync::Generator::generate::<u64>,
        )
        .each_ms(EACH_MS),
        Subject::shared("idgenerator in a `Mutex`", Mutex::new(id_generator(21)), |g| {
            locked(g, CoreIdGenerator::next_id)
        }),
        Subject::shared("snowid", snow_id(6), SnowID::generate),
        Subject::shared("tsid in a `Mutex`", Mutex::new(TsidFactory::with_node_bits(0, 0)), |g| {
            locked(g, TsidFactory::create)
        }),
        Subject::shared("scru64 in a `Mutex`", Mutex::new(scru64()), |g| {
            locked(g, Scru64Generator::generate)
        }),
        Subject::own("uuid v7, fast-rng", || uuid::Uuid::now_v7),
    ]
}

/// Makes the given number of callers on one generator.
fn on_one<G: Send + Sync + 'static>(
    generator: G,
    threads: usize,
    next: impl Fn(&G) -> u64 + Copy + Send + 'static,
) -> Vec<Caller> {
    let generator = Arc::new(generator);
    let on_it = || {
        let generator = Arc::clone(&generator);
        caller(move || next(&generator))
    };
    (0..threads).map(|_| on_it()).collect()
}

fn twitter_unix_ms(id: u64) -> u64 {
    (id >> 22) + TWITTER_EPOCH.as_millis() as u64
}

/// Callers that wait, as each peer's documentation recommends.
pub fn saturated() -> Vec<Saturated> {
    type Atomic = AtomicSnowflakeGenerator<SnowflakeTwitterId, MonotonicClock<1>>;
    let ferroid =
        |name, make| Saturated { name, ticks_for_ever: true, for_two: true, make, unix_ms: twitter_unix_ms };
    let other =
        |name, for_two, make, unix_ms| Saturated { name, ticks_for_ever: false, for_two, make, unix_ms };
    vec![
        ferroid("ferroid atomic, spin", |threads| {
            on_one(Atomic::new(0, ticker()), threads, |g| g.next_id(spin).to_raw())
        }),
        ferroid("ferroid atomic, sleep as it advises", |threads| {
            on_one(Atomic::new(0, ticker()), threads, |g| {
                g.next_id(|ms| std::thread::sleep(Duration::from_millis(ms))).to_raw()
            })
        }),
        other(
            "snowflaked sync",
            true,
            |threads| {
                on_one(
                    snowflaked::sync::Generator::new(1),
                    threads,
                    snowflaked::sync::Generator::generate::<u64>,
                )
            },
            |id| id >> 22,
        ),
        other(
            "rs-snowflake real time",
            false,
            |_| {
                let mut generator = SnowflakeIdGenerator::new(1, 1);
                vec![caller(move || generator.real_time_generate().cast_unsigned())]
            },
            |id| id >> 22,
        ),
        other(
            "idgenerator in a `Mutex`",
            true,
            |threads| {
                on_one(Mutex::new(id_generator(12)), threads, |g| {
                    locked(g, CoreIdGenerator::next_id).cast_unsigned()
                })
            },
            |id| (id >> 22) + 1_582_136_402_000,
        ),
        other(
            "snowid, `generate`",
            true,
            |threads| on_one(snow_id(10), threads, SnowID::generate),
            |id| (id >> 22) + SnowIDConfig::default().epoch(),
        ),
    ]
}

/// Many ids at once.
pub fn bulk() -> Vec<(&'static str, Fill)> {
    let snowid = snow_id(6);
    let ferroid = BasicSnowflakeGenerator::<Wide, _>::new(0, ticker());
    vec![
        ("snowid `generate_batch`", Box::new(move |out| snowid.generate_batch(out))),
        (
            "ferroid basic, ticker thread, in a loop",
            Box::new(move |out| out.iter_mut().for_each(|slot| *slot = ferroid.next_id(spin).to_raw())),
        ),
    ]
}

/// Single calls.
pub fn call() -> Vec<Call> {
    let basic = BasicSnowflakeGenerator::<SnowflakeTwitterId, _>::new(0, ticker());
    let atomic = AtomicSnowflakeGenerator::<SnowflakeTwitterId, _>::new(0, ticker());
    let mut snowflaked = snowflaked::Generator::new(1);
    let mut rs_snowflake = SnowflakeIdGenerator::new(1, 1);
    let mut idgenerator = id_generator(12);
    let snowid = snow_id(10);
    let mut tsid = TsidFactory::with_node_bits(10, 1);
    let mut scru64 = scru64();
    let mut ulid = ulid::Generator::new();
    vec![
        Call::new("ferroid basic, ticker thread", move || basic.next_id(spin)),
        Call::new("ferroid atomic, ticker thread", move || atomic.next_id(spin)),
        Call::new("snowflaked", move || snowflaked.generate::<u64>()),
        Call::new("rs-snowflake real time", move || rs_snowflake.real_time_generate()),
        Call::new("idgenerator", move || idgenerator.next_id()),
        Call::new("snowid", move || snowid.generate()),
        Call::new("tsid", move || tsid.create()),
        Call::new("scru64", move || scru64.generate()),
        Call::new("uuid v7, fast-rng", uuid::Uuid::now_v7),
        Call::new("ulid, monotonic", move || ulid.generate().map_or(0, |id| id.0)),
    ]
}

/// Fields and texts, for peers that support them.
pub fn text() -> Vec<Conversion> {
    let extractor = snow_id(10).extract;
    let ferroid = SnowflakeTwitterId::from_raw;
    vec![
        Conversion::new("snowid decompose", |v| v, move |id| extractor.decompose(*id)),
        Conversion::new("snowid base62, write", |v| v, |id| snowid::base62::encode_array(*id)),
        Conversion::new("snowid base62, read", snowid::base62::encode, |text| {
            snowid::base62::decode(text).unwrap_or(0)
        }),
        Conversion::new("ferroid base32, write", ferroid, SnowflakeTwitterId::encode),
        Conversion::new(
            "ferroid base32, read",
            move |v| ferroid(v).encode().as_str().to_owned(),
            |text| SnowflakeTwitterId::decode(text).ok(),
        ),
        Conversion::new("itoa decimal, write", |v| v, |id| itoa::Buffer::new().format(*id).len()),
        Conversion::new("std decimal, read", |v| v.to_string(), |text| text.parse::<u64>().unwrap_or(0)),
    ]
}
