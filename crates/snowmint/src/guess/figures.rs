//! How likely a layout, an instant and the values of fields are, in bits. Estimates, tuned to published ids.

use crate::field::Field;
use crate::{Layout, Parts, utc};

/// The earliest plausible instant, 2006-01-01T00:00:00Z: no known system is older.
pub(super) const EARLIEST_UNIX_MS: u64 = 1_136_073_600_000;
/// How far ahead of `now` an instant may lie: clocks are wrong, and generators borrow.
pub(super) const YEAR_MS: u64 = utc::MS_PER_YEAR;
const DAY_MS: f64 = 86_400_000.0;
/// How much rarer an id of a wrong clock is, in bits.
#[cfg(feature = "schemes")]
const WRONG_CLOCK_BITS: f64 = 10.0;
/// The bits of the longest timestamp of milliseconds in use.
#[cfg(feature = "schemes")]
const WIDEST_TIMESTAMP: f64 = 48.0;

/// Returns how rare a layout is, in bits. Layouts not named here are rarer than those of the large services
/// and more common than ours.
pub(super) fn rarity_bits(name: &str) -> f64 {
    match name {
        "twitter" => 1.0,
        "leaf" | "discord" => 2.0,
        "linkedin" => 2.5,
        "tiktok" => 3.0,
        "sonyflake" => 3.5,
        "mastodon" => 4.0,
        "instagram" | "baidu" | "yitter" | "tsid" => 5.0,
        "pod-ip" | "game" | "js53-second" | "cosid-second" | "scru64" => 7.0,
        "icicle" | "mesh" | "ferroid-instagram" => 8.0,
        // Otherwise it would claim ids of v1's first years, which are more common.
        "sonyflake2" => 11.0,
        _ => 6.0,
    }
}

/// How the values of a layout's fields are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habits {
    /// Workers and datacenters are numbered from 0 or 1; sequences begin at 0.
    Plain,
    /// The same, but the values of one field are spread over all its bits: an address, or a partly random
    /// number.
    Scattered(Field),
    /// Twitter's own ids, or those of a port of its code.
    Twitter,
    Discord,
    /// A node that is random unless it was set, and a random sequence.
    Tsid,
    TikTok,
    LinkedIn,
}

impl Habits {
    /// Returns the habits of a preset.
    pub(super) fn of(name: &str) -> Self {
        match name {
            "sonyflake" | "sonyflake2" | "pod-ip" | "clickhouse" => Self::Scattered(Field::Worker),
            "instagram" | "ferroid-instagram" | "mastodon" | "scru64" => Self::Scattered(Field::Sequence),
            "twitter" => Self::Twitter,
            "discord" => Self::Discord,
            "tsid" => Self::Tsid,
            "tiktok" => Self::TikTok,
            "linkedin" => Self::LinkedIn,
            _ => Self::Plain,
        }
    }

    /// Returns the habits of a preset's bits under another epoch: those of its code, not of its service.
    pub(super) fn with_own_epoch(self) -> Self {
        if self == Self::Twitter { Self::Plain } else { self }
    }

    /// Returns the number of bits that describe the fields of an id, without its timestamp.
    pub(super) fn cost_of_fields(self, layout: &Layout, parts: &Parts) -> f64 {
        match self {
            Self::Plain => plain(layout, parts, None),
            Self::Scattered(field) => plain(layout, parts, Some(field)),
            Self::Twitter => {
                let of_a_port = 1.3 + plain(layout, parts, None);
                either(0.7 + twitter(parts), of_a_port)
            }
            Self::Discord => {
                let numbers = [Field::Datacenter, Field::Worker].map(|field| numbered(parts.value(field), 5));
                // Its increment counts on from millisecond to millisecond: any order of magnitude is as
                // likely.
                numbers[0] + numbers[1] + 3.2 + log2(parts.value(Field::Sequence))
            }
            Self::Tsid => {
                let worker = either(0.7 + 10.0, 1.3 + numbered(parts.value(Field::Worker), 10));
                let own = worker + f64::from(layout.width(Field::Sequence));
                // Its epoch is a round date, which others chose for the same bits.
                either(0.6 + own, 1.6 + plain(layout, parts, None))
            }
            Self::TikTok => tiktok(parts),
            Self::LinkedIn => {
                let sequence = parts.value(Field::Sequence);
                either(1.0 + 22.0, 1.0 + 10.0 + small(sequence & 0xfff, 12))
            }
        }
    }
}

fn plain(layout: &Layout, parts: &Parts, scattered: Option<Field>) -> f64 {
    let fields = layout.fields().filter(|field| *field != Field::Timestamp);
    let cost = |field: Field| match field {
        _ if scattered == Some(field) => f64::from(layout.width(field)),
        Field::Datacenter | Field::Worker => numbered(parts.value(field), layout.width(field)),
        _ => small(parts.value(field), layout.width(field)),
    };
    fields.map(cost).sum()
}

/// Twitter has few datacenters, which use all their workers, and seldom makes many ids in a millisecond.
fn twitter(parts: &Parts) -> f64 {
    let datacenter = match parts.value(Field::Datacenter) {
        10 | 11 => 1.3,
        1 | 13 | 14 => 5.0,
        _ => 9.0,
    };
    datacenter + 5.0 + (2.0 * log2(parts.value(Field::Sequence)) + 0.7).min(18.0)
}

/// The low 32 bits of `TikTok`: 10 of milliseconds, 8 with a small counter, 6 with one of few types, 8 of a
/// machine.
fn tiktok(parts: &Parts) -> f64 {
    let sequence = parts.value(Field::Sequence);
    let (ms, counter, kind) = (sequence >> 14, sequence >> 6 & 0xff, sequence & 0x3f);
    let ms = if ms < 1000 { 10.0 } else { 16.0 };
    let kind = match kind {
        13 => 1.0,
        0 | 4 | 6 | 11 => 4.0,
        _ => 9.0,
    };
    ms + small(counter, 8) + kind + numbered(parts.value(Field::Worker), 8)
}

/// Returns the cost of a value that is mostly small, of a field of some bits.
pub(super) fn small(value: u64, width: u32) -> f64 {
    (2.0 * log2(value) + 1.0).min(f64::from(width) + 1.0)
}

/// Returns the cost of a number that was given to a generator: people begin at 0 or at 1.
pub(super) fn numbered(value: u64, width: u32) -> f64 {
    if value <= 1 { 2.0 } else { small(value, width) }
}

/// Returns the cost of what can be described in two ways.
fn either(one: f64, other: f64) -> f64 {
    -((-one).exp2() + (-other).exp2()).log2()
}

/// Returns -log2 of the probability that an id inspected now was made in the tick of an instant; `None` if
/// the instant is not plausible.
#[expect(clippy::cast_precision_loss, reason = "a ranking needs a few digits")]
pub(super) fn cost_of_instant(instant: u64, epoch: u64, tick_ms: f64, now_unix_ms: u64) -> Option<f64> {
    let (from, to) = (epoch.max(EARLIEST_UNIX_MS), now_unix_ms.saturating_add(YEAR_MS));
    if !(from..=to).contains(&instant) {
        return None;
    }
    // Distances in ms have a log-uniform distribution between this and the bound.
    let least = tick_ms.max(1000.0);
    let log_even = |distance: f64, bound: f64| 1.0 / ((distance + least) * (bound / least + 1.0).ln());
    let distance = instant.abs_diff(now_unix_ms) as f64;
    let per_ms = if instant > now_unix_ms {
        log_even(distance, YEAR_MS as f64) / 64.0
    } else {
        let fresh = if distance <= 30.0 * DAY_MS { log_even(distance, 30.0 * DAY_MS) } else { 0.0 };
        // More ids are made each year: soon after an epoch there are few, and many wrong guesses.
        let since_epoch = (now_unix_ms - from) as f64 + tick_ms;
        let archived = 2.0 * ((instant - from) as f64 + tick_ms) / (since_epoch * since_epoch);
        f64::midpoint(fresh, archived)
    };
    Some(-(per_ms * tick_ms).log2())
}

/// Returns the cost of the instant of an id whose text alone tells its kind: of a wrong clock too.
#[cfg(feature = "schemes")]
pub(super) fn cost_of_any_instant(instant: u64, tick_ms: f64, now_unix_ms: u64) -> f64 {
    let wrong_clock = WRONG_CLOCK_BITS + WIDEST_TIMESTAMP - tick_ms.log2();
    cost_of_instant(instant, 0, tick_ms, now_unix_ms).unwrap_or(wrong_clock)
}

/// Returns log2, slightly raised for small numbers so that it is defined for 0.
#[expect(clippy::cast_precision_loss, reason = "a ranking needs a few digits")]
pub(super) fn log2(value: u64) -> f64 {
    (value as f64 + 1.0).log2()
}
