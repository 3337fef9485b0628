//! The only place that chooses between the atomics of `core` and those of loom, so that the model checker runs the production
//! code.

#[cfg(not(snowmint_loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(snowmint_loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
