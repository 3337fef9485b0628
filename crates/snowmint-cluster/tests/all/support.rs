//! Stores and counters that fail on demand.

pub(crate) mod cut_off_store;
pub(crate) mod unsteady_counter;
