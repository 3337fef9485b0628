//! How connections share the processors and the memory of a node under load.

pub(crate) mod answer_memory;
pub(crate) mod fairness;
pub(crate) mod memory_trimmer;
