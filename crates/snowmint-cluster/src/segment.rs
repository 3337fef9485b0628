//! Number segments: ranges of plain numbers, reserved from a counter before any number of them is used.
//! `protocol` decides, without I/O; `segments` asks the counters and hands numbers out.

pub mod combine;
mod line;
mod period;
pub mod protocol;
mod run;
mod segments;
mod stripe;
mod sync;

pub use line::Unused;
pub use period::{Period, Reset, ResetError};
pub use run::{Run, RunIter};
pub use segments::{
    CountersOf, Mode, NoNumber, Received, SegmentConfig, SegmentConfigError, SegmentStatus, Segments,
};
pub use stripe::{Stripe, StripeError};
