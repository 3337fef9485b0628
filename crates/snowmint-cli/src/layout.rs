//! `snowmint layout` shows one layout or a move to another; `snowmint layouts` lists the named ones.

mod successor;

use snowmint::field::Field;
use snowmint::layout::{PRESETS, Preset};
use snowmint::utc::Utc;
use snowmint::{Clock as _, Layout, WallClock};
use snowmint_server::layout_view::{LayoutView, PresetView, preset_name};

use crate::bit_picture::Drawing;
use crate::error::Failure;
use crate::output::{self, Output, date, rate, tenths_of_years_left, thousands};

const EXAMPLES: &str = "\
Examples:
  snowmint layout twitter
  snowmint layout time:41 worker:10 sequence:12 epoch:2026-01-01
  snowmint layout 'time:31@1s worker:20 sequence:12 epoch:2024-01-01' --json
  snowmint layout twitter --successor auto
      Layouts that can follow this one: from the switch on, all their ids are
      greater than the old ones.
  snowmint layout twitter --successor 'time:42 worker:12 sequence:9' \\
      --switch 2035-01-01
      Computes the epoch of the new layout, and explains the move.

A layout names its fields from the top bit down, each with its bits:
  time:BITS@TICK   ticks since the epoch; the tick is 1ms, 10ms, 1s ...;
                   without @TICK it is 1ms
  datacenter:BITS  the high part of the node; optional
  worker:BITS      the node
  generation:BITS  changes when the clock goes back; optional
  sequence:BITS    counts ids inside one tick
  epoch:INSTANT    the instant of tick 0, such as 2026-01-01; never change it

JSON, one object:
  name, layout, fingerprint   the preset's name or null; the text form; a
                              short name of exactly this layout
  bits                        bits in use
  fields                      name, bits, shift and max of each, from the top
  tick_ms                     the unit of timestamps
  epoch_unix_ms, epoch_utc    the instant of timestamp 0
  ids_per_second_per_worker, workers, ids_per_second
  first_unix_ms, first_utc, last_unix_ms, last_utc
                              the first and last millisecond with a timestamp
  years_left, ended           from now on; whether the layout has ended
  sorts_by_time               whether the timestamp is on top
  safe_in_javascript          whether ids fit in 53 bits

JSON with --successor, one object a line: old, new, switch_unix_ms, switch_utc,
largest_old_id (before the switch), smallest_new_id (from then on), ends_unix_ms,
ends_utc, years (from the switch), workers and ids_per_second_per_worker.

Invalid layouts are rejected with a suggestion that fits; exit code 2.";

/// Show the fields, capacity and lifetime of a layout
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples, the text form and the JSON fields.")]
pub(crate) struct Args {
    /// Name (see `snowmint layouts`) or fields, as one argument or several
    #[arg(value_name = "SPEC|NAME", required = true)]
    spec: Vec<String>,
    /// Layout to move to: its fields without the epoch, which is computed; or `auto` for proposals
    #[arg(long, value_name = "SPEC|auto", help_heading = "Move to another layout")]
    successor: Option<String>,
    /// Instant of the move, not in the past: no id of the old layout has a later timestamp; default: the next
    /// midnight, UTC
    #[arg(
        long,
        value_name = "INSTANT",
        value_parser = snowmint::utc::parse,
        requires = "successor",
        help_heading = "Move to another layout"
    )]
    switch: Option<u64>,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub(crate) fn show(args: &Args) -> Result<(), Failure> {
    let layout: Layout = args.spec.join(" ").parse().map_err(Failure::usage)?;
    let now_unix_ms = WallClock.unix_ms();
    let mut out = Output::new();
    if let Some(spec) = &args.successor {
        let switch_unix_ms = args.switch.unwrap_or_else(|| successor::next_midnight(now_unix_ms));
        successor::check_switch(&layout, switch_unix_ms, now_unix_ms)?;
        let moves = match spec.as_str() {
            "auto" => successor::Move::proposals(&layout, switch_unix_ms)?,
            spec => vec![successor::Move::plan(&layout, spec, switch_unix_ms)?],
        };
        return successor::show(&mut out, &moves, args.json);
    }
    if args.json {
        out.json(&LayoutView::of(&layout, now_unix_ms))?;
    } else {
        draw(&mut out, &layout, now_unix_ms)?;
    }
    out.flush()
}

fn draw(out: &mut Output, layout: &Layout, now_unix_ms: u64) -> Result<(), Failure> {
    let paint = out.paint;
    let text = paint.bold(&layout.to_string());
    out.line(&preset_name(layout).map_or_else(|| text.clone(), |name| format!("{name}  {text}")))?;
    let drawing = Drawing {
        layout,
        bits: |field: Field| {
            let initial = &field.name()[..1];
            initial.repeat(usize::try_from(layout.width(field)).unwrap_or_default())
        },
        label: |field| format!("0 to {}", thousands(layout.max(field))),
        paint,
        columns: output::columns(),
    };
    for line in drawing.lines() {
        out.line(&line)?;
    }
    for (name, value) in facts(layout, now_unix_ms) {
        out.line(&format!("  {} {value}", paint.faint(&format!("{name:<18}"))))?;
    }
    Ok(())
}

fn facts(layout: &Layout, now_unix_ms: u64) -> [(&'static str, String); 8] {
    [
        ("tick", format!("{:?}", layout.tick())),
        (
            "ids a second",
            format!(
                "{} a worker, {} in all ({})",
                rate(layout.ids_per_second_per_worker()),
                rate(layout.ids_per_second()),
                workers(layout)
            ),
        ),
        ("first instant", Utc(layout.epoch_unix_ms()).to_string()),
        ("last instant", Utc(last_unix_ms(layout)).to_string()),
        ("years left", years_left(layout, now_unix_ms)),
        (
            "sorts by time",
            if layout.sorts_by_time() {
                "yes, the timestamp is on top".to_owned()
            } else {
                "no, the timestamp is not on top: ids of different workers do not sort by time".to_owned()
            },
        ),
        (
            "safe in JavaScript",
            if layout.is_safe_in_javascript() {
                format!("yes, {} of the 53 bits that a number has", layout.bits())
            } else {
                format!("no, {} bits and a number has 53: send ids as strings", layout.bits())
            },
        ),
        ("fingerprint", layout.fingerprint().to_string()),
    ]
}

/// Formats `1,024 workers`. A datacenter has only its share of them.
fn workers(layout: &Layout) -> String {
    let all = layout.workers();
    let count = format!("{} worker{}", thousands(all), if all == 1 { "" } else { "s" });
    match layout.max(Field::Datacenter) {
        0 => count,
        last => format!(
            "{count}: {} in each of {} datacenters",
            thousands(layout.max(Field::Worker) + 1),
            thousands(last + 1)
        ),
    }
}

fn years_left(layout: &Layout, now_unix_ms: u64) -> String {
    if layout.ends_at_unix_ms() <= now_unix_ms {
        return format!("none, it ended on {}", date(layout.ends_at_unix_ms()));
    }
    let tenths = tenths_of_years_left(layout, now_unix_ms);
    format!("{}.{}", thousands(tenths / 10), tenths % 10)
}

const fn last_unix_ms(layout: &Layout) -> u64 {
    layout.ends_at_unix_ms() - 1
}

/// Width of the column of names.
const NAME: usize = 18;

/// List the named layouts
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "JSON, one object a line: `about` and `source`, and the members that `snowmint layout --help` lists."
)]
pub(crate) struct ListArgs {
    /// Print one JSON object per line
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub(crate) fn list(args: &ListArgs) -> Result<(), Failure> {
    let now_unix_ms = WallClock.unix_ms();
    let mut out = Output::new();
    if !args.json {
        out.line(&heading(&out))?;
    }
    for preset in PRESETS {
        if args.json {
            let view = PresetView::of(preset, now_unix_ms);
            out.json(&view)?;
        } else {
            entry(&mut out, preset, now_unix_ms)?;
        }
    }
    out.flush()
}

fn heading(out: &Output) -> String {
    let text = format!("{:<NAME$} {:>16}  {:<12} about", "name", "ids/s a worker", "ends");
    out.paint.faint(&text)
}

/// Prints a preset on two lines: the text form alone fills most of one line.
fn entry(out: &mut Output, preset: &Preset, now_unix_ms: u64) -> Result<(), Failure> {
    let paint = out.paint;
    let layout = &preset.layout;
    let ends = date(layout.ends_at_unix_ms());
    let ended = layout.ends_at_unix_ms() <= now_unix_ms;
    let ends = if ended { paint.alarm(&format!("{ends:<12}")) } else { format!("{ends:<12}") };
    let mark = if ended { paint.alarm("ENDED: ") } else { String::new() };
    let name = paint.bold(&format!("{:<NAME$}", preset.name));
    let rate = rate(layout.ids_per_second_per_worker());
    out.line(&format!("{name} {rate:>16}  {ends} {mark}{}", preset.about))?;
    out.line(&format!("{:<NAME$} {}", "", paint.faint(&layout.to_string())))
}
