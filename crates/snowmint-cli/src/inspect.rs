//! `snowmint inspect`: takes ids apart, drawn for people or as JSON for programs.

use std::io::{self, IsTerminal as _};

use snowmint::codec::{base62, hex};
use snowmint::guess::Guess;
use snowmint::utc::Utc;
use snowmint::{Clock as _, Id, Layout, Snippet, WallClock};
use snowmint_server::mint::Inspection;

use crate::drawing::Drawing;
use crate::exit::{Failure, tell};
use crate::form::Form;
use crate::guesses;
use crate::instants;
use crate::layouts::preset_name;
use crate::numbers::thousands;
use crate::output::Output;
use crate::tokens::each_word;

const EXAMPLES: &str = "\
Examples:
  snowmint inspect 1541815603606036480
      Without --layout and --format the likeliest reading is drawn, and what
      else it may be is listed: other layouts, other texts, UUID, ULID, ObjectId.
  snowmint inspect --layout sonyflake 500000000000000000
  snowmint inspect 01ARZ3NDEKTSV4RRFFQ69G5FAV
  snowmint new -n 3 | snowmint inspect
  snowmint inspect --format base62 1ptWyK4WgZU --json

JSON, one object a line, read by --layout (twitter if not given) and --format:
  id         the id in decimal, a string: JavaScript keeps only 53 bits
  layout     the layout it was read by, as text
  timestamp  ticks since the layout's epoch
  unix_ms    the start of that tick, in milliseconds since 1970 UTC
  utc        the same instant as text
  datacenter, worker, generation, sequence
             the other fields; only those that the layout has
  binary     all 64 bits, a blank before each field

An id that cannot be read is told on standard error and the others are
shown; the exit code is then 2.";

/// Take ids apart: draw their bits, name their fields and the instant they were made
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples and the JSON fields.")]
pub(crate) struct Args {
    /// Ids; without any they are read from standard input, separated by blanks, lines or commas
    #[arg(value_name = "ID", allow_negative_numbers = true)]
    ids: Vec<String>,
    /// The layout the ids were made with: a name (see `snowmint layouts`) or its text form; without it the likeliest
    #[arg(long, value_name = "SPEC|NAME", env = "SNOWMINT_LAYOUT")]
    layout: Option<Layout>,
    /// The form the ids are written in; without it the likeliest
    #[arg(long, value_name = "FORM", value_enum)]
    format: Option<Form>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut inspector =
        Inspector { args, out: Output::new(), now_unix_ms: WallClock.unix_ms(), shown: 0, refused: 0 };
    if args.ids.is_empty() {
        inspector.standard_input()?;
    } else {
        for text in &args.ids {
            inspector.one(text)?;
        }
    }
    inspector.out.flush()?;
    if inspector.refused > 0 { Err(Failure::Told) } else { Ok(()) }
}

struct Inspector<'a> {
    args: &'a Args,
    out: Output,
    now_unix_ms: u64,
    shown: u64,
    refused: u64,
}

impl Inspector<'_> {
    fn standard_input(&mut self) -> Result<(), Failure> {
        let input = io::stdin();
        if input.is_terminal() {
            return Err(Failure::usage(
                "no ids: give them as arguments, or on standard input as in `snowmint new | snowmint inspect`",
            ));
        }
        let inspector = std::cell::RefCell::new(self);
        let read = each_word(
            &mut input.lock(),
            || inspector.borrow_mut().out.flush(),
            |word| inspector.borrow_mut().one(word),
        );
        read?.map_err(|error| Failure::runtime(format!("cannot read standard input: {error}")))
    }

    fn one(&mut self, text: &str) -> Result<(), Failure> {
        if self.args.layout.is_none() && self.args.format.is_none() && !self.args.json {
            let guesses = guesses::likely(text, self.now_unix_ms);
            if self.guessed(text, &guesses)? {
                self.shown += 1;
                return Ok(());
            }
        }
        match self.read(text) {
            Ok(inspection) if self.args.json => self.json(&inspection)?,
            Ok(inspection) => self.draw(&inspection)?,
            Err(why) => {
                // What was shown so far comes before what is told now, where both go to one terminal.
                self.out.flush()?;
                tell("error", &why);
                self.refused += 1;
                return Ok(());
            }
        }
        self.shown += 1;
        Ok(())
    }

    /// Draws the likeliest reading and lists the others; `false` where nothing is likely.
    fn guessed(&mut self, text: &str, guesses: &[Guess]) -> Result<bool, Failure> {
        let Some(first) = guesses.first() else { return Ok(false) };
        if let (Some((preset, parts)), Some(id)) = (first.layout(), first.id()) {
            self.draw(&Inspection { id, layout: preset.layout, parts })?;
        } else if let Some(facts) = guesses::scheme_facts(first, self.now_unix_ms) {
            self.gap()?;
            self.out.line(&format!("{}  {}", self.out.paint.bold(text), first.name()))?;
            self.facts(facts)?;
        } else {
            return Ok(false);
        }
        for other in guesses::others(guesses, self.now_unix_ms) {
            let name = self.out.paint.faint("or     ");
            self.out.line(&format!("  {name} {other}"))?;
        }
        Ok(true)
    }

    /// An empty line between two ids.
    fn gap(&mut self) -> Result<(), Failure> {
        if self.shown > 0 { self.out.line("") } else { Ok(()) }
    }

    fn facts(&mut self, facts: impl IntoIterator<Item = (String, String)>) -> Result<(), Failure> {
        for (name, value) in facts {
            let name = self.out.paint.faint(&format!("{name:<7}"));
            self.out.line(&format!("  {name} {value}"))?;
        }
        Ok(())
    }

    fn read(&self, text: &str) -> Result<Inspection, String> {
        let layout = self.args.layout.unwrap_or(Layout::TWITTER);
        let format = self.args.format.unwrap_or(Form::Dec);
        let id = format.read(text).map_err(|error| {
            let hint = if format == Form::Dec { "; for ids in base62 or hex add --format" } else { "" };
            format!("{} is not an id: {error}{hint}", Snippet::of(text))
        })?;
        let parts = layout.split(id).map_err(|error| {
            format!("{} is not an id of this layout: {error}; name it with --layout", Snippet::of(text))
        })?;
        Ok(Inspection { id, layout, parts })
    }

    fn json(&mut self, inspection: &Inspection) -> Result<(), Failure> {
        let line = serde_json::to_string(inspection).map_err(Failure::runtime)?;
        self.out.line(&line)
    }

    fn draw(&mut self, inspection: &Inspection) -> Result<(), Failure> {
        let Inspection { id, layout, parts } = inspection;
        self.gap()?;
        let name = preset_name(layout).map_or_else(|| layout.to_string(), str::to_owned);
        let title = format!("{}  {}", self.out.paint.bold(&id.to_string()), name);
        self.out.line(&title)?;
        let drawing = Drawing {
            layout,
            bits: |field| binary(parts.value(field), layout.width(field)),
            label: |field| thousands(parts.value(field)),
            paint: self.out.paint,
        };
        for line in drawing.lines() {
            self.out.line(&line)?;
        }
        let facts = facts(*id, layout, inspection.unix_ms(), self.now_unix_ms);
        self.facts(facts.map(|(name, value)| (name.to_owned(), value)))
    }
}

fn binary(value: u64, width: u32) -> String {
    let width = usize::try_from(width).unwrap_or_default();
    format!("{value:0width$b}")
}

fn facts(id: Id, layout: &Layout, unix_ms: u64, now_unix_ms: u64) -> [(&'static str, String); 5] {
    let tick = layout.tick();
    let precision =
        if tick.as_millis() == 1 { String::new() } else { format!(", the start of a tick of {tick:?}") };
    [
        ("utc", format!("{}{precision}", Utc(unix_ms))),
        ("local", instants::local(unix_ms)),
        ("age", instants::age(unix_ms, now_unix_ms)),
        ("hex", hex::encode(id).to_string()),
        ("base62", base62::encode(id).to_string()),
    ]
}
