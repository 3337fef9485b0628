//! A layout as `snowmint layout --json` and `GET /v1/layout` show it: its fields, its capacity, how long it
//! lasts, and warnings.

use serde::Serialize;
use snowmint::Layout;
use snowmint::field::Field;
use snowmint::layout::{PRESETS, Preset};
use snowmint::utc::{MS_PER_YEAR, Utc};

/// A layout in JSON. The order of the members is part of the format.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayoutView {
    /// The name of the preset, if it is one.
    pub name: Option<&'static str>,
    /// The text form.
    pub layout: String,
    /// A short name of exactly this layout.
    pub fingerprint: String,
    /// Bits in use.
    pub bits: u32,
    /// The fields, from the top bit down.
    pub fields: Vec<FieldView>,
    /// The unit of timestamps.
    pub tick_ms: u64,
    /// The instant of timestamp 0, in unix milliseconds.
    pub epoch_unix_ms: u64,
    /// The same in UTC.
    pub epoch_utc: String,
    /// Ids that one worker can make in a second.
    pub ids_per_second_per_worker: u64,
    /// Workers over all datacenters.
    pub workers: u64,
    /// Ids that all workers together can make in a second.
    pub ids_per_second: u128,
    /// The first millisecond with a timestamp.
    pub first_unix_ms: u64,
    /// The same in UTC.
    pub first_utc: String,
    /// The last millisecond with a timestamp.
    pub last_unix_ms: u64,
    /// The same in UTC.
    pub last_utc: String,
    /// Years from now to the end, with one decimal.
    pub years_left: f64,
    /// Whether the layout has ended.
    pub ended: bool,
    /// Whether the timestamp is on top.
    pub sorts_by_time: bool,
    /// Whether ids fit in 53 bits.
    pub safe_in_javascript: bool,
}

/// A field of a layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldView {
    /// Its name.
    pub name: &'static str,
    /// Its number of bits.
    pub bits: u32,
    /// The position of its lowest bit; 0 is the lowest bit of the id.
    pub shift: u32,
    /// Its largest value.
    pub max: u64,
}

impl LayoutView {
    /// Returns the view of a layout, at an instant in unix milliseconds.
    pub fn of(layout: &Layout, now_unix_ms: u64) -> Self {
        let field = |field: Field| FieldView {
            name: field.name(),
            bits: layout.width(field),
            shift: layout.shift(field),
            max: layout.max(field),
        };
        let last_unix_ms = layout.ends_at_unix_ms() - 1;
        let tenths = layout.left_at(now_unix_ms).as_millis() / u128::from(MS_PER_YEAR / 10);
        // At most 2^63 ms, or 2.9 billion tenths of a year: exact in an f64.
        let tenths = u32::try_from(tenths).unwrap_or(u32::MAX);
        Self {
            name: preset_name(layout),
            layout: layout.to_string(),
            fingerprint: layout.fingerprint().to_string(),
            bits: layout.bits(),
            fields: layout.fields().map(field).collect(),
            tick_ms: u64::try_from(layout.tick().as_millis()).unwrap_or(u64::MAX),
            epoch_unix_ms: layout.epoch_unix_ms(),
            epoch_utc: Utc(layout.epoch_unix_ms()).to_string(),
            ids_per_second_per_worker: layout.ids_per_second_per_worker(),
            workers: layout.workers(),
            ids_per_second: layout.ids_per_second(),
            first_unix_ms: layout.epoch_unix_ms(),
            first_utc: Utc(layout.epoch_unix_ms()).to_string(),
            last_unix_ms,
            last_utc: Utc(last_unix_ms).to_string(),
            years_left: f64::from(tenths) / 10.0,
            ended: layout.ends_at_unix_ms() <= now_unix_ms,
            sorts_by_time: layout.sorts_by_time(),
            safe_in_javascript: layout.is_safe_in_javascript(),
        }
    }
}

/// A layout with warnings for its designer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayoutAdvice {
    /// The layout.
    #[serde(flatten)]
    pub view: LayoutView,
    /// Properties that may surprise users; empty if there are none.
    pub warnings: Vec<String>,
}

impl LayoutAdvice {
    /// Returns the advice for a layout, at an instant in unix milliseconds.
    pub fn of(layout: &Layout, now_unix_ms: u64) -> Self {
        Self { view: LayoutView::of(layout, now_unix_ms), warnings: warnings(layout, now_unix_ms) }
    }
}

/// A layout with a name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PresetView {
    /// The layout.
    #[serde(flatten)]
    pub view: LayoutView,
    /// Who uses it, in a line.
    pub about: &'static str,
    /// Where its figures come from.
    pub source: &'static str,
}

impl PresetView {
    /// Returns the view of a preset, at an instant in unix milliseconds.
    pub fn of(preset: &Preset, now_unix_ms: u64) -> Self {
        let view = LayoutView::of(&preset.layout, now_unix_ms);
        Self { view, about: preset.about, source: preset.source }
    }

    /// Returns the views of all presets.
    pub fn all(now_unix_ms: u64) -> Vec<Self> {
        PRESETS.iter().map(|preset| Self::of(preset, now_unix_ms)).collect()
    }
}

/// Returns the name of a layout, if it has one.
pub fn preset_name(layout: &Layout) -> Option<&'static str> {
    PRESETS.iter().find(|preset| preset.layout == *layout).map(|preset| preset.name)
}

fn warnings(layout: &Layout, now_unix_ms: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(warning) = layout.expiry_warning(now_unix_ms) {
        warnings.push(warning.to_string());
    }
    if !layout.sorts_by_time() {
        warnings.push("the timestamp is not on top: ids of different workers do not sort by time".to_owned());
    }
    if layout.workers() == 1 {
        warnings.push("there is one worker: only one node can make ids at a time".to_owned());
    }
    if layout.ids_per_second_per_worker() < 100 {
        let rate = layout.ids_per_second_per_worker();
        let rate = if rate == 0 { "less than 1".to_owned() } else { rate.to_string() };
        warnings.push(format!(
            "a worker makes {rate} ids a second at most: use more sequence bits or a shorter tick"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each property of a layout that may surprise users has a warning, and a usual layout has none.
    #[test]
    fn warnings_name_what_surprises() {
        let now = 1_795_300_000_000; // 2026-11
        for (layout, wanted) in [
            ("twitter", &[][..]),
            ("baidu", &["the layout ended on 2024-11-2"]),
            (
                "time:41 worker:10 sequence:12 epoch:2030-01-01",
                &["begins on 2030-01-01: it has no ids before"],
            ),
            ("worker:10 time:41 sequence:12 epoch:2026-01-01", &["the timestamp is not on top"]),
            ("time:50 sequence:5 epoch:2026-01-01", &["there is one worker"]),
            (
                "time:40@10s worker:10 sequence:8 epoch:2026-01-01",
                &["a worker makes 25 ids a second at most"],
            ),
            ("time:40@10s worker:10 sequence:3 epoch:2026-01-01", &["makes less than 1 ids a second"]),
        ] {
            let found = warnings(&layout.parse().unwrap(), now);
            assert_eq!(found.len(), wanted.len(), "{layout}: {found:?}");
            for (found, wanted) in found.iter().zip(wanted) {
                assert!(found.contains(wanted), "{layout}: {found}");
            }
        }
    }

    #[test]
    fn a_view_has_the_members_of_the_format_in_their_order() {
        let view = LayoutView::of(&Layout::TWITTER, 1_795_300_000_000);
        let text = serde_json::to_string(&view).unwrap();
        assert!(text.starts_with("{\"name\":\"twitter\",\"layout\":\"time:41@1ms "), "{text}");
        let advice = serde_json::to_value(LayoutAdvice::of(&Layout::TWITTER, 1_795_300_000_000)).unwrap();
        assert_eq!((&advice["bits"], &advice["warnings"]), (&63.into(), &serde_json::json!([])));
    }
}
