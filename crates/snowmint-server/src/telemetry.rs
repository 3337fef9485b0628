//! What a node reports: the lines of the access log, the spans of requests, and problems
//! that recur.

pub(crate) mod access_log;
pub(crate) mod caller;
#[cfg(feature = "otlp")]
pub(crate) mod otlp;
pub(crate) mod recurring_problem;
mod trace_context;
