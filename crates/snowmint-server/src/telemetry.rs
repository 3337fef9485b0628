//! What a node reports about single requests: the lines of the access log, and spans.

pub(crate) mod access_log;
#[cfg(feature = "otlp")]
pub(crate) mod otlp;
