//! What `line` shares between threads.
//! Apart from it, so that the model checker can put its own atomics in their place (`tests/segment_loom.rs`).

pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};

/// How many segments a line has room for: sixteen of a reserve, and more where a counter gives fewer numbers at once
/// than it is asked for.
pub(super) const ROOM: u64 = 32;
