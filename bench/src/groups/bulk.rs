//! Ids into `&mut [u64]`, in the cache and beyond it: ns per id compared with a fill with a constant.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::settings::Settings;
use crate::stats::{Figures, median, median_ratio};
use crate::table::{Table, figure};

/// Fills a slice with ids.
pub type Fill = Box<dyn FnMut(&mut [u64])>;

/// The upper bound of the speed.
pub const CONSTANT: &str = "fill with a constant";

const SIZES: [(&str, usize); 3] = [("4 Ki", 1 << 12), ("128 Ki", 1 << 17), ("16 Mi", 1 << 24)];

/// Measures, prints and records the figures.
pub fn run(settings: &Settings, figures: &mut Figures, measured: Vec<(&'static str, Fill)>) {
    let constant: Fill = Box::new(|out| out.fill(black_box(0x1234_5678)));
    let mut subjects = vec![(CONSTANT, constant)];
    subjects.extend(measured);
    subjects.retain(|(name, _)| *name == CONSTANT || settings.wants(name));

    // Written once, so that no page fault happens later.
    let mut memory = vec![1_u64; SIZES[2].1];
    let rounds = if settings.quick { 2 } else { 15 };
    let mut ns = vec![[const { Vec::new() }; 3]; subjects.len()];
    for _ in 0..rounds {
        for (size, (_, ids)) in SIZES.iter().enumerate() {
            for ((_, fill), ns) in subjects.iter_mut().zip(&mut ns) {
                ns[size].push(time(fill, &mut memory[..*ids]));
            }
        }
    }

    let columns = ["subject", "4 Ki ids", "x", "128 Ki ids", "x", "16 Mi ids", "x"];
    let mut table = Table::new("Bulk into `&mut [u64]`: ns an id, and times a constant fill", &columns);
    for (i, (name, _)) in subjects.iter().enumerate() {
        let mut cells = [const { String::new() }; 7];
        cells[0] = (*name).into();
        for (size, (label, _)) in SIZES.iter().enumerate() {
            let ratio = median_ratio(&ns[i][size], &ns[0][size]);
            figures.note("bulk", name, label, ratio);
            cells[1 + 2 * size] = figure(median(&ns[i][size]));
            cells[2 + 2 * size] = format!("{ratio:.2}");
        }
        table.row(&cells);
    }
    table.print();
}

/// Returns the nanoseconds per id, over at least 2 ms, or over one pass if that takes longer.
fn time(fill: &mut Fill, out: &mut [u64]) -> f64 {
    let started = Instant::now();
    let mut passes = 0;
    while started.elapsed() < Duration::from_millis(2) {
        // Several small passes between two readings of the clock.
        for _ in 0..(1 << 14) / out.len().min(1 << 14) {
            fill(black_box(out));
            passes += 1;
        }
    }
    started.elapsed().as_nanos() as f64 / (passes * out.len()) as f64
}
