//! Runs one hot path N times, so that `instructions.sh` can count its instructions under callgrind.
//!
//! The clock is a manual one: a system clock would add instructions that differ between machines.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::process::ExitCode;

use snowmint::codec::{Alphabet, decimal, hex};
use snowmint::generator::{BlockGenerator, GeneratorBuilder};
use snowmint::{GenerateError, Generator, Id, Layout, ManualClock, WorkerId};

/// 2023-11-14T22:13:20Z.
const NOW: u64 = 1_700_000_000_000;

/// The name of a path, and the function that runs it N times.
type Path = (&'static str, fn(u64));

/// The hot paths. To add one, add a line, then `instructions.sh --update`.
const PATHS: &[Path] = &[
    ("shared_try_next", shared_try_next),
    ("shared_try_next_each_in_a_new_tick", shared_in_new_ticks),
    ("shared_try_next_refused", shared_refused),
    ("shared_try_take_64", |n| shared_take(n, 64)),
    ("shared_try_fill_64", |n| shared_fill::<64>(n)),
    ("shared_try_fill_4096", |n| shared_fill::<4096>(n)),
    ("owned_try_next", owned_try_next),
    ("owned_try_next_each_in_a_new_tick", owned_in_new_ticks),
    ("blocks_try_next", blocks_try_next),
    ("split", |n| each_id(n, |id| Layout::TWITTER.split(id))),
    ("compose", compose),
    ("decimal_write", |n| each_id(n, decimal::encode)),
    ("decimal_read", |n| each_text(n, decimal::encode(SAMPLE).as_str(), decimal::decode)),
    ("hex_write", |n| each_id(n, hex::encode)),
    ("hex_read", |n| each_text(n, hex::encode(SAMPLE).as_str(), hex::decode)),
    ("base62_write", |n| each_id(n, |id| Alphabet::BASE62.encode(id))),
    ("base62_read", |n| {
        each_text(n, Alphabet::BASE62.encode(SAMPLE).as_str(), |text| Alphabet::BASE62.decode(text))
    }),
    ("crockford32_write", |n| each_id(n, |id| Alphabet::CROCKFORD32.encode(id))),
    ("crockford32_read", |n| {
        each_text(n, Alphabet::CROCKFORD32.encode(SAMPLE).as_str(), |text| Alphabet::CROCKFORD32.decode(text))
    }),
];

/// 2^63 - 1: the longest text in every form.
const SAMPLE: Id = Id::MAX;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--list"] => {
            for (name, _) in PATHS {
                println!("{name}");
            }
            ExitCode::SUCCESS
        }
        [name, n] => {
            let path = PATHS.iter().find(|(path, _)| *path == name);
            let (Some((_, run)), Ok(n)) = (path, n.parse()) else {
                eprintln!("{name} {n}: not a path and a number");
                return ExitCode::from(2);
            };
            run(n);
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: instructions --list | instructions PATH N");
            ExitCode::from(2)
        }
    }
}

/// A layout whose sequence N does not use up.
fn wide() -> Layout {
    Layout::builder().timestamp(41).sequence(22).epoch_unix_ms(NOW - 1000).build().expect("63 bits")
}

const BUILDS: &str = "worker 0 fits";

fn builder() -> GeneratorBuilder {
    Generator::builder(wide()).worker(WorkerId(0))
}

fn shared_try_next(n: u64) {
    let clock = ManualClock::at_unix_ms(NOW);
    let generator = black_box(builder().build(&clock).expect(BUILDS));
    for _ in 0..n {
        let _ = black_box(generator.try_next_id());
    }
}

fn shared_in_new_ticks(n: u64) {
    let clock = ManualClock::at_unix_ms(NOW);
    let generator = black_box(builder().build(&clock).expect(BUILDS));
    for _ in 0..n {
        clock.advance_ms(1);
        let _ = black_box(generator.try_next_id());
    }
}

fn shared_refused(n: u64) {
    let clock = ManualClock::at_unix_ms(NOW);
    let generator =
        black_box(Generator::builder(Layout::TWITTER).worker(WorkerId(0)).build(&clock).expect(BUILDS));
    while generator.try_next_id().is_ok() {}
    for _ in 0..n {
        assert!(matches!(black_box(generator.try_next_id()), Err(GenerateError::Exhausted { .. })));
    }
}

fn shared_take(n: u64, size: u64) {
    let clock = ManualClock::at_unix_ms(NOW);
    let generator = black_box(builder().build(&clock).expect(BUILDS));
    for _ in 0..n / size {
        for id in generator.try_take(usize::try_from(size).unwrap_or(0)).into_iter().flatten() {
            black_box(id);
        }
    }
}

fn shared_fill<const SIZE: usize>(n: u64) {
    let clock = ManualClock::at_unix_ms(NOW);
    let generator = black_box(builder().build(&clock).expect(BUILDS));
    let mut ids = [Id::MIN; SIZE];
    for _ in 0..n / SIZE as u64 {
        assert!(generator.try_fill(black_box(&mut ids)).is_ok_and(|filled| filled == SIZE));
    }
}

fn owned_try_next(n: u64) {
    let clock = ManualClock::at_unix_ms(NOW);
    let mut generator = black_box(builder().build_owned(&clock).expect(BUILDS));
    for _ in 0..n {
        let _ = black_box(generator.try_next_id());
    }
}

fn owned_in_new_ticks(n: u64) {
    let clock = ManualClock::at_unix_ms(NOW);
    let mut generator = black_box(builder().build_owned(&clock).expect(BUILDS));
    for _ in 0..n {
        clock.advance_ms(1);
        let _ = black_box(generator.try_next_id());
    }
}

fn blocks_try_next(n: u64) {
    let clock = ManualClock::at_unix_ms(NOW);
    let generator = builder().build(&clock).expect(BUILDS);
    let mut mine = black_box(BlockGenerator::new(&generator, NonZeroU32::new(64).expect("not 0")));
    for _ in 0..n {
        let _ = black_box(mine.try_next_id());
    }
}

fn compose(n: u64) {
    let parts = Layout::TWITTER.split(SAMPLE).expect("63 bits");
    for _ in 0..n {
        let _ = black_box(Layout::TWITTER.compose(black_box(&parts)));
    }
}

fn each_id<T>(n: u64, convert: impl Fn(Id) -> T) {
    for _ in 0..n {
        black_box(convert(black_box(SAMPLE)));
    }
}

fn each_text<T>(n: u64, text: &str, read: impl Fn(&str) -> T) {
    for _ in 0..n {
        black_box(read(black_box(text)));
    }
}
