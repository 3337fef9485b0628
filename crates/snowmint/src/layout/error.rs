//! Why a layout is invalid: the value, the limit, and what would fit.

use core::fmt;
use core::time::Duration;

use super::{FIELD_BITS, ID_BITS};
use crate::Id;
use crate::field::Field;
use crate::utc::{MAX_UNIX_MS, MS_PER_YEAR};

/// The maximum width of a timestamp: a tick is at least 1 ms, and instants are signed 64-bit numbers of
/// milliseconds.
pub(super) const TIMESTAMP_BITS: u32 = 62;

/// The requested widths, in bits, for the error that suggests what would fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    /// Bits of the timestamp.
    pub timestamp: u32,
    /// Bits of the datacenter.
    pub datacenter: u32,
    /// Bits of the worker.
    pub worker: u32,
    /// Bits of the generation.
    pub generation: u32,
    /// Bits of the sequence.
    pub sequence: u32,
    /// The tick, in milliseconds.
    pub tick_ms: u64,
}

impl Widths {
    pub(super) const fn total(&self) -> u32 {
        self.timestamp + self.datacenter + self.worker + self.generation + self.sequence
    }

    /// Writes ways to save `over` bits: a narrower sequence, a coarser tick, fewer workers.
    fn write_what_fits(self, f: &mut fmt::Formatter<'_>, over: u32) -> fmt::Result {
        let mut separator = "what would fit: ";
        if self.sequence > over {
            let left = self.sequence - over;
            write!(f, "{separator}sequence:{left} ({} ids a tick)", 1_u64 << left)?;
            separator = "; ";
        }
        if self.worker > over {
            let left = self.worker - over;
            write!(f, "{separator}worker:{left} ({} workers)", 1_u64 << left)?;
            separator = "; ";
        }
        if self.timestamp > over {
            let left = (self.timestamp - over).min(bits_that_last(self.tick_ms));
            let tick_ms = if years_tenths(left, self.tick_ms) < 10 { 1000 } else { self.tick_ms };
            let years = years_tenths(left, tick_ms);
            write!(f, "{separator}time:{left}@{} ({}.{} years)", TickText(tick_ms), years / 10, years % 10)?;
            separator = "; ";
        }
        // Seconds in place of milliseconds save ten bits and last 68 years.
        let others = self.datacenter + self.worker + self.generation;
        if let Some(left @ 1..) = (ID_BITS - 31).checked_sub(others) {
            let ids = 1_u64 << left.min(FIELD_BITS);
            write!(
                f,
                "{separator}time:31@1s with sequence:{} (68.0 years, {ids} ids a second)",
                left.min(FIELD_BITS)
            )?;
            separator = "; ";
        }
        if separator == "; " {
            Ok(())
        } else {
            write!(f, "take bits from several fields, they must add up to at most {ID_BITS}")
        }
    }
}

/// Returns how long a timestamp lasts, in tenths of a year.
fn years_tenths(bits: u32, tick_ms: u64) -> u128 {
    (1_u128 << bits) * u128::from(tick_ms) * 10 / u128::from(MS_PER_YEAR)
}

/// Returns the largest width of a timestamp that ends before instants do, for any epoch.
const fn bits_that_last(tick_ms: u64) -> u32 {
    match (i64::MAX as u64 - MAX_UNIX_MS).checked_div(tick_ms) {
        Some(ticks @ 1..) => ticks.ilog2(),
        _ => 0,
    }
}

/// `10ms` or `1s`.
pub(super) struct TickText(pub(super) u64);

impl fmt::Display for TickText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1000) { write!(f, "{}s", self.0 / 1000) } else { write!(f, "{}ms", self.0) }
    }
}

/// Why a layout is invalid, or why a value does not fit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// The widths add up to more than 63 bits.
    TooWide {
        /// Their sum.
        bits: u32,
        /// The requested widths.
        widths: Widths,
    },
    /// A field is too wide.
    FieldTooWide {
        /// The field.
        field: Field,
        /// Its width.
        bits: u32,
        /// The largest width.
        limit: u32,
    },
    /// A field has no bits.
    NoBits {
        /// The field.
        field: Field,
    },
    /// A field appears twice.
    Twice {
        /// The field.
        field: Field,
    },
    /// There is no timestamp.
    NoTimestamp,
    /// There is no epoch.
    NoEpoch,
    /// The epoch lies after the year 9999.
    EpochTooLate {
        /// The epoch.
        epoch_unix_ms: u64,
    },
    /// The tick is not a whole number of milliseconds, or longer than all time up to the year 9999.
    Tick {
        /// The tick.
        tick: Duration,
    },
    /// The timestamps reach beyond the last 64-bit instant.
    LastsTooLong {
        /// Bits of the timestamp.
        bits: u32,
        /// Milliseconds of a tick.
        tick_ms: u64,
    },
    /// A value does not fit its field.
    ValueTooLarge {
        /// The field.
        field: Field,
        /// The value.
        value: u64,
        /// The largest value that fits.
        max: u64,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooWide { bits, widths } => {
                let over = bits - ID_BITS;
                write!(f, "the fields add up to {bits} bits, {over} over the {ID_BITS} an id has; ")?;
                widths.write_what_fits(f, over)
            }
            Self::FieldTooWide { field: Field::Timestamp, bits, .. } => {
                write!(f, "time:{bits} is too wide: the timestamp has at most {TIMESTAMP_BITS} bits")
            }
            Self::FieldTooWide { field, bits, limit } => {
                write!(f, "{field}:{bits} is too wide: that field has at most {limit} bits")
            }
            Self::NoBits { field } => write!(f, "{field}:0 has no bits: remove the field"),
            Self::Twice { field } => write!(f, "duplicate field {field}: each field may appear once"),
            Self::NoTimestamp => f.write_str("missing timestamp: add a field such as time:41@1ms"),
            Self::NoEpoch => f.write_str(
                "missing epoch: add the instant of timestamp 0, such as epoch:2026-01-01T00:00:00Z, \
                 and never change it",
            ),
            Self::EpochTooLate { epoch_unix_ms } => {
                write!(f, "the epoch {epoch_unix_ms} ms lies after the year 9999: give unix milliseconds")
            }
            Self::Tick { tick } => {
                write!(
                    f,
                    "invalid tick {tick:?}: expected a whole number of milliseconds from 1ms to {MAX_UNIX_MS}ms"
                )
            }
            Self::LastsTooLong { bits, tick_ms } => write!(
                f,
                "time:{bits}@{tick} lasts {} years, beyond the last instant there is, {} ms after 1970 or {} years: take \
                 at most time:{}@{tick}",
                years_tenths(bits, tick_ms) / 10,
                i64::MAX,
                i64::MAX.cast_unsigned() / MS_PER_YEAR,
                bits_that_last(tick_ms),
                tick = TickText(tick_ms)
            ),
            Self::ValueTooLarge { field, value, max } => {
                write!(f, "{field} {value} is out of range: this layout has {field} 0 to {max}")
            }
        }
    }
}

impl core::error::Error for LayoutError {}

/// An id has bits above the fields of the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitError {
    /// The id.
    pub id: Id,
    /// The number of bits of the layout.
    pub bits: u32,
}

impl fmt::Display for SplitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = u64::BITS - self.id.get().leading_zeros();
        write!(f, "{} has {has} bits, but the layout has only {}: another layout made it", self.id, self.bits)
    }
}

impl core::error::Error for SplitError {}
