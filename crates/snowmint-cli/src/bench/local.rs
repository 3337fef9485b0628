//! Draws in this process: all threads share one generator, as in a program that uses the library.

use snowmint::{Generator, Id, Layout, Rule, WallClock, WorkerId};

use super::{Lane, Run, present};
use crate::error::Failure;

/// One of this many single-id calls is measured: reading the clock costs more than a call.
const SAMPLE: u64 = 16;

/// Draws on some threads until the run is over.
pub(super) fn draw(layout: Layout, threads: usize, batch: usize, run: &Run) -> Result<Vec<Lane>, Failure> {
    let generator = Generator::builder(layout)
        .worker(WorkerId(0))
        .rule(Rule::wait(layout.tick().max(std::time::Duration::from_secs(1))))
        .build(WallClock)
        .map_err(Failure::usage)?;
    // Reading the clock is cheap compared with a batch.
    let round = if batch > 1 { 1 } else { SAMPLE };
    let lane = || {
        let mut lane = Lane::new(threads)?;
        let mut ids = vec![Id::MAX; batch];
        let mut calls: u64 = 0;
        while !run.is_over() {
            let before = lane.ids;
            for _ in 0..round {
                let is_measured = batch > 1 || calls.is_multiple_of(SAMPLE);
                calls += 1;
                let begin = is_measured.then(present);
                match generator.fill(&mut ids) {
                    Ok(filled) => {
                        if let Some(begin) = begin {
                            lane.took(begin.elapsed());
                        }
                        lane.ids += filled as u64;
                        ids[..filled].iter().for_each(|id| lane.keep(id.get()));
                    }
                    Err(error) => lane.failed("generator", &error.to_string()),
                }
            }
            run.add(lane.ids - before);
        }
        lane.requests = calls;
        Ok(lane)
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(lane)).collect();
        let ended = running.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(Failure::runtime("a thread of the bench panicked")))
        });
        ended.collect()
    })
}
