//! `snowmint layout OLD --successor NEW`: finds a layout whose ids from a given instant on are all greater
//! than those of the old layout. So a column can move from one layout to the other and keep unique ids in
//! order of time.
//!
//! Every id of the old layout with a timestamp before the switch is below `bound`. The epoch of the new
//! layout is set so far back that its timestamp at the switch, shifted to its position, is at least `bound`:
//! the smaller ids stay unused.

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;
use snowmint::field::Field;
use snowmint::utc::{MAX_UNIX_MS, Utc};
use snowmint::{Id, Layout};

use super::preset_name;
use crate::error::Failure;
use crate::output::{Output, date, rate, tenths_of_years_left, thousands};

const MS_PER_DAY: u64 = 86_400_000;
/// Ids of all layouts are below this.
const ALL_IDS: u64 = 1 << 63;
/// The lifetime in years that `--successor auto` aims at.
const YEARS: u64 = 50;
/// The ticks that `--successor auto` tries.
const TICKS_MS: [u64; 4] = [1, 10, 100, 1000];

fn refused(why: impl Display) -> Failure {
    Failure::flag("--successor", why)
}

/// Returns the default instant of the switch: the next midnight, UTC.
pub(super) const fn next_midnight(now_unix_ms: u64) -> u64 {
    (now_unix_ms / MS_PER_DAY + 1) * MS_PER_DAY
}

/// A move from one layout to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    old: Layout,
    new: Layout,
    switch_unix_ms: u64,
    /// Every old id with a timestamp before the switch is below this; every new id from the switch on is not.
    bound: u64,
    first_new: Id,
}

/// Returns a number above every id of a layout with a timestamp before an instant.
fn bound_of(layout: &Layout, switch_unix_ms: u64) -> u64 {
    if switch_unix_ms <= layout.epoch_unix_ms() {
        return 0;
    }
    match layout.last_id_at(Utc(switch_unix_ms - 1)) {
        Some(last) => last.get() + 1,
        // The layout has ended, or its ids do not sort by time.
        None => 1 << layout.bits(),
    }
}

/// Checks that the old layout can have no ids from after the switch yet: they would reach above the bound.
pub(super) fn check_switch(old: &Layout, switch_unix_ms: u64, now_unix_ms: u64) -> Result<(), Failure> {
    if bound_of(old, switch_unix_ms) >= bound_of(old, now_unix_ms) {
        return Ok(());
    }
    Err(Failure::flag(
        "--switch",
        format!(
            "{} is in the past, and `{old}` may have ids from after it: choose a later instant, or omit --switch for the next \
             midnight",
            Utc(switch_unix_ms)
        ),
    ))
}

impl Move {
    /// Plans the move to a layout given as text, with or without its epoch.
    pub(super) fn plan(old: &Layout, spec: &str, switch_unix_ms: u64) -> Result<Self, Failure> {
        let invalid = |error: snowmint::layout::LayoutParseError| refused(error);
        let has_epoch = spec.contains("epoch:") || !spec.contains(':');
        if has_epoch {
            return Self::with_epoch(old, spec.parse().map_err(invalid)?, switch_unix_ms);
        }
        let widths: Layout = format!("{spec} epoch:1970-01-01").parse().map_err(invalid)?;
        Self::with_widths(old, &widths, switch_unix_ms)
    }

    /// Checks that a layout with its epoch follows another.
    fn with_epoch(old: &Layout, new: Layout, switch_unix_ms: u64) -> Result<Self, Failure> {
        check_order(&new)?;
        let bound = bound_of(old, switch_unix_ms);
        let switch = Utc(switch_unix_ms);
        let Some(first_new) = new.first_id_at(Utc(switch_unix_ms)) else {
            return Err(refused(format!(
                "`{new}` has timestamps from {} to {}, not at the switch {switch}: omit the epoch, so that it is computed",
                Utc(new.epoch_unix_ms()),
                Utc(new.ends_at_unix_ms() - 1)
            )));
        };
        if first_new.get() < bound {
            return Err(refused(format!(
                "`{new}` does not follow `{old}` at {switch}: its first id then is {first_new}, and old ids reach {}; omit the \
                 epoch, so that it is computed, or see `--successor auto`",
                bound - 1
            )));
        }
        Ok(Self { old: *old, new, switch_unix_ms, bound, first_new })
    }

    /// Finds the latest midnight, or else the latest instant, that is a valid epoch for these widths.
    fn with_widths(old: &Layout, widths: &Layout, switch_unix_ms: u64) -> Result<Self, Failure> {
        check_order(widths)?;
        let bound = bound_of(old, switch_unix_ms);
        let tick_ms = tick_ms(widths);
        // Smaller timestamps would give ids below the bound.
        let ticks = bound.div_ceil(1 << widths.shift(Field::Timestamp));
        let used = format!(
            "the ids of `{old}` before {} reach {} of 2^63 ({})",
            Utc(switch_unix_ms),
            bound.saturating_sub(1),
            share(bound)
        );
        if bound >= ALL_IDS {
            return Err(refused(format!(
                "{used}: no greater id is left; keep the new ids in a column or table of their own, or, if `{old}` has not \
                 ended, choose an earlier --switch"
            )));
        }
        if ticks > widths.max(Field::Timestamp) {
            return Err(refused(format!(
                "{used}, and the new layout ends below: its fields need more bits, at most 63 in all; see `--successor auto`"
            )));
        }
        let latest = ticks.checked_mul(tick_ms).and_then(|before| switch_unix_ms.checked_sub(before));
        let Some(latest) = latest else {
            return Err(refused(format!(
                "{used}: the epoch of the new layout would lie before 1970; give its timestamp fewer bits, or a shorter \
                 tick; see `--successor auto`"
            )));
        };
        let midnight = latest - latest % MS_PER_DAY;
        for epoch in [midnight, latest] {
            if let Some(new) = rebuilt(widths, epoch)
                && let Ok(found) = Self::with_epoch(old, new, switch_unix_ms)
            {
                return Ok(found);
            }
        }
        Err(refused(format!("{used}: the new layout has no timestamp left at the switch")))
    }

    /// Returns moves to layouts with the nodes of the old one, one per tick: the one with the most ids per
    /// second that lasts long enough, or else the one that lasts longest.
    pub(super) fn proposals(old: &Layout, switch_unix_ms: u64) -> Result<Vec<Self>, Failure> {
        // Ids that fit a JavaScript number should still fit, if any such are left.
        if old.is_safe_in_javascript() {
            let found = Self::proposals_of(old, 53, switch_unix_ms);
            if !found.is_empty() {
                return Ok(found);
            }
        }
        let found = Self::proposals_of(old, 63, switch_unix_ms);
        if !found.is_empty() {
            return Ok(found);
        }
        let bound = bound_of(old, switch_unix_ms);
        let fields = if bound < ALL_IDS { "name the fields of another layout, or " } else { "" };
        Err(refused(format!(
            "no layout with the same nodes follows `{old}` at {}, when its ids reach {} of 2^63 ({}): {fields}keep the new \
             ids in a column or table of their own",
            Utc(switch_unix_ms),
            bound.saturating_sub(1),
            share(bound)
        )))
    }

    /// Returns such moves to layouts with this many bits.
    fn proposals_of(old: &Layout, bits: u32, switch_unix_ms: u64) -> Vec<Self> {
        let nodes: u32 = nodes_of(old).map(|(_, width)| width).sum();
        let mut found: Vec<Self> = Vec::new();
        for tick in TICKS_MS {
            let mut best: Option<Self> = None;
            for time in 1..bits - nodes {
                let (shift, old_shift) = (bits - time, old.shift(Field::Timestamp));
                // The same bits with an earlier epoch are the old layout.
                if shift == old_shift && tick == tick_ms(old) {
                    continue;
                }
                let Some(widths) = with_nodes_of(old, time, bits - nodes - time, tick) else { continue };
                if let Ok(planned) = Self::with_widths(old, &widths, switch_unix_ms)
                    && best.is_none_or(|best| planned.is_better_than(&best))
                {
                    best = Some(planned);
                }
            }
            found.extend(best);
        }
        found.sort_by_key(|it| (!it.lasts_long(), std::cmp::Reverse(it.new.ids_per_second_per_worker())));
        found
    }

    fn lasts_long(&self) -> bool {
        tenths_of_years_left(&self.new, self.switch_unix_ms) >= YEARS * 10
    }

    fn is_better_than(&self, other: &Self) -> bool {
        let key = |it: &Self| (it.lasts_long(), it.lasts_long().then(|| it.new.ids_per_second_per_worker()));
        match key(self).cmp(&key(other)) {
            std::cmp::Ordering::Equal => self.new.ends_at_unix_ms() > other.new.ends_at_unix_ms(),
            order => order.is_gt(),
        }
    }
}

fn check_order(new: &Layout) -> Result<(), Failure> {
    if new.sorts_by_time() {
        return Ok(());
    }
    Err(refused(format!(
        "the timestamp of `{new}` is not on top, so ids of all its times reach below those of the old layout"
    )))
}

/// Returns the tick in milliseconds; every layout has a whole number.
fn tick_ms(layout: &Layout) -> u64 {
    u64::try_from(layout.tick().as_millis()).unwrap_or(u64::MAX)
}

/// Returns the fields that identify a node or a generation, from the top bit down.
fn nodes_of(layout: &Layout) -> impl Iterator<Item = (Field, u32)> {
    let fields = layout.fields().filter(|field| !matches!(field, Field::Timestamp | Field::Sequence));
    fields.map(|field| (field, layout.width(field)))
}

/// Returns a layout with the node fields of another.
fn with_nodes_of(old: &Layout, time: u32, sequence: u32, tick_ms: u64) -> Option<Layout> {
    let mut builder = Layout::builder().timestamp(time);
    for (field, width) in nodes_of(old) {
        builder = builder.field(field, width);
    }
    builder.sequence(sequence).tick(Duration::from_millis(tick_ms)).epoch_unix_ms(0).build().ok()
}

/// Returns a layout with another epoch, if its last timestamp is in range.
fn rebuilt(widths: &Layout, epoch_unix_ms: u64) -> Option<Layout> {
    let fields = widths.fields().map(|field| (field, widths.width(field)));
    let builder = fields.fold(Layout::builder(), |builder, (field, width)| builder.field(field, width));
    builder.tick(widths.tick()).epoch_unix_ms(epoch_unix_ms).build().ok()
}

/// Formats the share of all 63-bit numbers that is below a bound.
fn share(bound: u64) -> String {
    let tenths = u128::from(bound) * 1000 / u128::from(ALL_IDS);
    format!("{}.{}%", tenths / 10, tenths % 10)
}

/// A move as JSON. The order of the members is part of the format.
#[derive(Serialize)]
struct MoveJson {
    old: String,
    new: String,
    switch_unix_ms: u64,
    switch_utc: String,
    largest_old_id: Option<String>,
    smallest_new_id: Id,
    ends_unix_ms: u64,
    ends_utc: String,
    years: f64,
    workers: u64,
    ids_per_second_per_worker: u64,
}

/// Writes moves: one with its explanation, several as a list.
pub(super) fn show(out: &mut Output, moves: &[Move], json: bool) -> Result<(), Failure> {
    if json {
        for it in moves {
            // At most 2.9 billion tenths of a year: exact in an f64.
            let tenths = u32::try_from(tenths_of_years_left(&it.new, it.switch_unix_ms)).unwrap_or(u32::MAX);
            out.json(&MoveJson {
                old: it.old.to_string(),
                new: it.new.to_string(),
                switch_unix_ms: it.switch_unix_ms,
                switch_utc: Utc(it.switch_unix_ms).to_string(),
                largest_old_id: it.bound.checked_sub(1).map(|id| id.to_string()),
                smallest_new_id: it.first_new,
                ends_unix_ms: it.new.ends_at_unix_ms(),
                ends_utc: Utc(it.new.ends_at_unix_ms()).to_string(),
                years: f64::from(tenths) / 10.0,
                workers: it.new.workers(),
                ids_per_second_per_worker: it.new.ids_per_second_per_worker(),
            })?;
        }
        return out.flush();
    }
    match moves {
        [only] => explain(out, only)?,
        several => list(out, several)?,
    }
    out.flush()
}

fn named(layout: &Layout) -> String {
    preset_name(layout).map_or_else(|| layout.to_string(), |name| format!("{name}  {layout}"))
}

fn years(it: &Move) -> String {
    let tenths = tenths_of_years_left(&it.new, it.switch_unix_ms);
    format!("{}.{}", thousands(tenths / 10), tenths % 10)
}

fn list(out: &mut Output, moves: &[Move]) -> Result<(), Failure> {
    let Some(first) = moves.first() else { return Ok(()) };
    out.line(&format!("old     {}", named(&first.old)))?;
    out.line(&format!(
        "switch  {}, when its ids reach {} of 2^63",
        Utc(first.switch_unix_ms),
        share(first.bound)
    ))?;
    out.line("")?;
    let heading = format!("{:>16}  {:<10}  {:>8}  new layout", "ids/s a worker", "ends", "years");
    out.line(&out.paint.faint(&heading))?;
    for it in moves {
        out.line(&format!(
            "{:>16}  {:<10}  {:>8}  {}",
            rate(it.new.ids_per_second_per_worker()),
            date(it.new.ends_at_unix_ms().min(MAX_UNIX_MS)),
            years(it),
            it.new
        ))?;
    }
    out.line("")?;
    out.line("--successor with one of these, quoted, explains the move")
}

fn explain(out: &mut Output, it: &Move) -> Result<(), Failure> {
    let switch = Utc(it.switch_unix_ms);
    let largest = it.bound.checked_sub(1).map_or_else(|| "none".to_owned(), |id| id.to_string());
    let facts = [
        ("old", named(&it.old)),
        ("new", out.paint.bold(&named(&it.new))),
        ("switch", switch.to_string()),
        ("old ids", format!("up to {largest} before the switch, {} of 2^63", share(it.bound))),
        ("new ids", format!("from {} at the switch", it.first_new)),
        (
            "new layout",
            format!(
                "ends on {}, {} years after the switch; {} ids/s a worker, {}",
                date(it.new.ends_at_unix_ms()),
                years(it),
                rate(it.new.ids_per_second_per_worker()),
                super::workers(&it.new)
            ),
        ),
    ];
    for (name, value) in facts {
        out.line(&format!("{} {value}", out.paint.faint(&format!("{name:<11}"))))?;
    }
    for line in [
        String::new(),
        "Every new id from the switch on is greater than every old id before it, so they are unique together and sort by".to_owned(),
        "time. This holds if no old id has a timestamp at or after the switch, and no new id one before it:".to_owned(),
        "  1. Before the switch, stop the old ids: `snowmint ns drop OLD`, or stop every node. Clocks may be ahead, and ids".to_owned(),
        "     up to the end of a lease may exist: `snowmint workers` shows no lease of the old layout beyond the switch.".to_owned(),
        format!("  2. After {switch}, by the clock of every node, add a namespace and draw from it:"),
        format!("     snowmint ns add NEW --layout '{}'", it.new),
        "  3. Programs that decode ids choose the layout by the id: old below the first new id, new from it on.".to_owned(),
    ] {
        out.line(&line)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snowmint::field::{Sequence, Timestamp};
    use snowmint::{DatacenterId, Parts, WorkerId};

    use super::*;

    const SWITCH: u64 = 1_796_083_200_000; // 2026-12-01

    fn plan(old: &str, new: &str) -> Result<Move, String> {
        let old: Layout = old.parse().unwrap();
        Move::plan(&old, new, SWITCH).map_err(|error| error.to_string())
    }

    #[test]
    fn twitter_moves_to_more_workers() {
        let found = plan("twitter", "time:42 worker:12 sequence:9").unwrap();
        assert!(found.new.epoch_unix_ms().is_multiple_of(MS_PER_DAY), "{found:?}");
        assert!(found.first_new.get() >= found.bound);
        let last = Layout::TWITTER.last_id_at(Utc(SWITCH - 1)).unwrap();
        assert_eq!(found.bound, last.get() + 1);
    }

    #[test]
    fn what_does_not_follow_is_refused_with_the_reason() {
        for (old, new, wanted) in [
            ("twitter", "discord", "does not follow"),
            ("twitter", "time:41@10ms worker:10 sequence:12", "before 1970"),
            ("twitter", "time:39 worker:8 sequence:6", "ends below"),
            (
                "worker:10 time:41 sequence:12 epoch:2020-01-01",
                "time:41 worker:10 sequence:12",
                "no greater id is left",
            ),
            ("twitter", "worker:10 time:41 sequence:12", "is not on top"),
            ("twitter", "time:41 worker:10 sequence:12 epoch:2030-01-01", "not at the switch"),
            ("twitter", "time:99", "--successor: "),
        ] {
            let error = plan(old, new).unwrap_err();
            assert!(error.contains(wanted), "{old} {new}: {error}");
        }
        // An ended layout that used all bits has no successor, as baidu's default of 2024.
        let error = Move::proposals(&"baidu".parse().unwrap(), u64::MAX / 2).unwrap_err().to_string();
        assert!(error.contains("column or table of their own") && !error.contains("auto"), "{error}");
    }

    #[test]
    fn a_switch_in_the_past_is_refused_while_the_layout_lasts() {
        let old = Layout::TWITTER;
        assert!(check_switch(&old, SWITCH, SWITCH).is_ok());
        assert!(check_switch(&old, SWITCH - 1, SWITCH).unwrap_err().to_string().contains("is in the past"));
        let end = old.ends_at_unix_ms();
        assert!(check_switch(&old, end, end + MS_PER_DAY).is_ok());
        assert!(check_switch(&old, end - 1, end + MS_PER_DAY).is_err());
    }

    #[test]
    fn an_ended_layout_of_53_bits_is_followed_by_63() {
        let old: Layout = "time:40 worker:5 sequence:8 epoch:1990-01-01".parse().unwrap();
        assert!(old.is_safe_in_javascript() && old.ends_at_unix_ms() < SWITCH);
        let found = Move::proposals(&old, SWITCH).unwrap();
        assert!(found[0].lasts_long() && found.iter().all(|it| it.first_new.get() >= it.bound), "{found:?}");
    }

    #[test]
    fn proposals_keep_the_nodes_and_the_best_comes_first() {
        for name in ["twitter", "leaf", "sonyflake", "js53", "discord"] {
            let old: Layout = name.parse().unwrap();
            let Ok(found) = Move::proposals(&old, SWITCH) else { panic!("{name}") };
            assert!(found[0].lasts_long(), "{name}: {found:?}");
            for it in &found {
                assert_eq!(it.new.workers(), old.workers(), "{name}");
                assert_eq!(it.new.is_safe_in_javascript(), old.is_safe_in_javascript(), "{name}");
                assert!(it.first_new.get() >= it.bound, "{name}: {it:?}");
                // The printed text leads to the same move.
                let again = Move::plan(&old, &it.new.to_string(), SWITCH).ok();
                assert_eq!(again, Some(*it), "{name}");
            }
        }
    }

    /// Layouts with the timestamp on top or elsewhere, without an epoch.
    fn widths() -> impl Strategy<Value = Layout> {
        let order = Just(vec![Field::Datacenter, Field::Worker, Field::Sequence]).prop_shuffle();
        let tick = prop::sample::select(vec![1_u64, 10, 256, 1000, 60_000]);
        (28..44_u32, 0..6_u32, 1..16_u32, 0..12_u32, order, tick, 0..8_u8).prop_filter_map(
            "at most 63 bits",
            |(time, datacenter, worker, sequence, order, tick, below)| {
                let mut fields: Vec<_> = order
                    .into_iter()
                    .map(|field| match field {
                        Field::Datacenter => (field, datacenter),
                        Field::Worker => (field, worker),
                        _ => (field, sequence),
                    })
                    .filter(|(_, width)| *width > 0)
                    .collect();
                fields.insert(usize::from(below == 0).min(fields.len()), (Field::Timestamp, time));
                let builder =
                    fields.into_iter().fold(Layout::builder(), |it, (field, width)| it.field(field, width));
                builder.tick(Duration::from_millis(tick)).epoch_unix_ms(0).build().ok()
            },
        )
    }

    /// Returns an id of a layout at an instant, with its other fields derived from `seed`.
    fn id_at(layout: &Layout, timestamp: Timestamp, seed: u64) -> Id {
        let value =
            |field: Field, nth: u32| u32::try_from(seed.rotate_left(nth * 17) & layout.max(field)).unwrap();
        let parts = Parts {
            timestamp,
            datacenter: DatacenterId(value(Field::Datacenter, 0)),
            worker: WorkerId(value(Field::Worker, 1)),
            sequence: Sequence(value(Field::Sequence, 2)),
            ..Parts::default()
        };
        layout.compose(&parts).unwrap()
    }

    proptest! {
        /// Goal: after a move, no id is repeated or out of order. Method: any two layouts, epoch and switch;
        /// ids with any fields, the smallest and the largest, from any instant before the switch in the old
        /// layout and after it in the new.
        #[test]
        fn every_new_id_is_greater_than_every_old_one(
            old in widths(),
            new in widths(),
            epoch in 0..1_700_000_000_000_u64,
            after in 0..1_000_000_000_000_u64,
            before in 1..1_000_000_000_000_u64,
            later in 0..1_000_000_000_000_u64,
            seed in prop::sample::select(vec![0, u64::MAX, 0x1234_5678_9abc_def0]),
        ) {
            let Some(old) = rebuilt(&old, epoch) else { return Ok(()) };
            let switch = epoch + after;
            let Ok(found) = Move::with_widths(&old, &new, switch) else { return Ok(()) };
            // The last tick before the switch, and any earlier one.
            for instant in [switch.checked_sub(1), switch.checked_sub(before)].into_iter().flatten() {
                let Some(timestamp) = old.timestamp_at(instant) else { continue };
                let old_id = id_at(&old, timestamp, seed);
                prop_assert!(old_id.get() < found.bound, "{old_id} {found:?}");
                for instant in [switch, switch + later] {
                    let Some(timestamp) = found.new.timestamp_at(instant) else { continue };
                    let new_id = id_at(&found.new, timestamp, seed.rotate_left(7));
                    prop_assert!(new_id > old_id, "{old_id} {new_id} {found:?}");
                }
            }
            prop_assert!(found.new.timestamp_at(switch).is_some());
        }
    }
}
