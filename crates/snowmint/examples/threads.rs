//! Shares one generator among threads, each with blocks of its own: `cargo run --release --example threads`.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::thread;

use snowmint::generator::BlockGenerator;
use snowmint::{AnchoredClock, GenerateError, Generator, Id, Layout, WorkerId};

const IDS_PER_THREAD: usize = 100_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let generator = Generator::builder(Layout::TWITTER).worker(WorkerId(7)).build(AnchoredClock::new())?;
    let block_size = NonZeroU32::new(64).ok_or("a block holds at least one id")?;
    let draw = || -> Result<Vec<Id>, GenerateError> {
        let mut blocks = BlockGenerator::new(&generator, block_size);
        (0..IDS_PER_THREAD).map(|_| blocks.next_id()).collect()
    };
    let mut all = HashSet::new();
    thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
        for thread in [scope.spawn(draw), scope.spawn(draw)] {
            all.extend(thread.join().map_err(|_| "a thread panicked")??);
        }
        Ok(())
    })?;
    println!("{} ids from 2 threads, {} of them different", 2 * IDS_PER_THREAD, all.len());
    Ok(())
}
