//! `snowmint layouts`: the layouts that have a name.

use serde::Serialize;
use snowmint::layout::{PRESETS, Preset};
use snowmint::{Clock as _, Layout, WallClock};

use crate::exit::Failure;
use crate::instants::date;
use crate::layout::Summary;
use crate::numbers::rate;
use crate::output::Output;

/// Columns for a name.
const NAME: usize = 18;

/// List the layouts that have a name
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "JSON, one object a line: `about` and `source`, and the members that `snowmint layout --help` lists."
)]
pub(crate) struct Args {
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let now_unix_ms = WallClock.unix_ms();
    let mut out = Output::new();
    if !args.json {
        out.line(&heading(&out))?;
    }
    for preset in PRESETS {
        if args.json {
            out.line(&json(preset, now_unix_ms)?)?;
        } else {
            entry(&mut out, preset, now_unix_ms)?;
        }
    }
    out.flush()
}

/// The name of the preset that a layout is, if it is one.
pub(crate) fn preset_name(layout: &Layout) -> Option<&'static str> {
    PRESETS.iter().find(|preset| preset.layout == *layout).map(|preset| preset.name)
}

#[derive(Serialize)]
struct Entry {
    #[serde(flatten)]
    layout: Summary,
    about: &'static str,
    source: &'static str,
}

fn json(preset: &Preset, now_unix_ms: u64) -> Result<String, Failure> {
    let layout = Summary::of(&preset.layout, now_unix_ms);
    let entry = Entry { layout, about: preset.about, source: preset.source };
    serde_json::to_string(&entry).map_err(Failure::runtime)
}

fn heading(out: &Output) -> String {
    let text = format!("{:<NAME$} {:>16}  {:<12} about", "name", "ids/s a worker", "ends");
    out.paint.faint(&text)
}

/// Two lines, since the text form alone takes most of one.
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
