//! The groups of measurements: one file per table.

pub mod alone;
pub mod bulk;
pub mod call;
pub mod pair;
pub mod saturated;
pub mod text;

/// The names that `--only` accepts.
pub const NAMES: &[&str] = &["saturated", "alone", "pair", "bulk", "call", "text"];
