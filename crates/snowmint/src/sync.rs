//! The only place that picks between the atomics of `core` and those of loom,
//! so that the model checker runs the very code that ships.

#[cfg(not(snowmint_loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(snowmint_loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
