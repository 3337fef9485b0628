//! `snowmint inspect`: takes ids apart, drawn for people or as JSON for programs.

use std::io::{self, IsTerminal as _};

use serde::Serialize;
use snowmint::codec::{base62, hex};
use snowmint::guess::Guess;
use snowmint::utc::Utc;
use snowmint::{Clock as _, Id, Layout, Snippet, WallClock};
use snowmint_server::mint::Inspection;

use crate::drawing::Drawing;
use crate::exit::{Failure, tell};
use crate::form::Form;
use crate::guesses::{self, Entry};
use crate::instants;
use crate::layouts::preset_name;
use crate::numbers::thousands;
use crate::output::Output;
use crate::reading::Reading;
use crate::tokens::each_word;

const EXAMPLES: &str = "\
Examples:
  snowmint inspect 1541815603606036480
      Without --layout the likeliest reading is drawn, and what else it may be
      is listed: other layouts, other texts, UUID, ULID, ObjectId, a number.
  snowmint inspect --layout sonyflake 500000000000000000
  snowmint inspect 01ARZ3NDEKTSV4RRFFQ69G5FAV
  snowmint new -n 3 | snowmint inspect
  snowmint inspect --format base62 1ptWyK4WgZU --json

JSON, one object a line, read by --layout and --format, or as the likeliest:
  id         the id in decimal, a string: JavaScript keeps only 53 bits
  layout     the layout it was read by, as text
  timestamp  ticks since the layout's epoch
  unix_ms    the start of that tick, in milliseconds since 1970 UTC
  utc        the same instant as text
  datacenter, worker, generation, sequence
             the other fields; only those that the layout has
  binary     all 64 bits, a blank before each field
  guesses    without --layout, what it may be, the likeliest first, which is
             the one that the members above read it as:
    name       a layout of `snowmint layouts`, a scheme, or `number`
    form       the text form it is read in, such as decimal or base62
    unix_ms, utc
               the instant it would have been made; not where it tells none
    cost_bits  how unlikely: each bit more is half as likely; what is a
               million times less likely than the first is left out
A plain number has only `id` and `guesses`; a UUID, ULID or ObjectId has its
text as `id`, `scheme`, `unix_ms` and `utc` if it tells an instant, and fields.

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
        let guesses = self.guesses(text);
        let reading = match guesses.first().and_then(Reading::of) {
            Some(likeliest) => likeliest,
            None => match self.read(text) {
                Ok(inspection) => Reading::Layout(inspection),
                Err(why) => return self.refuse(&why),
            },
        };
        if self.args.json {
            self.json(&reading, &guesses)?;
        } else {
            self.draw(&reading, &guesses)?;
        }
        self.shown += 1;
        Ok(())
    }

    fn refuse(&mut self, why: &str) -> Result<(), Failure> {
        // What was shown so far comes before what is told now, where both go to one terminal.
        self.out.flush()?;
        tell("error", why);
        self.refused += 1;
        Ok(())
    }

    /// What a text may be, most likely first; nothing where the layout is named, or the text is no id.
    fn guesses(&self, text: &str) -> Vec<Guess> {
        match (self.args.layout, self.args.format) {
            (Some(_), _) => Vec::new(),
            (None, None) => guesses::of_text(text, self.now_unix_ms),
            (None, Some(form)) => guesses::of_form(text, form, self.now_unix_ms),
        }
    }

    /// Draws a reading and lists what else it may be.
    fn draw(&mut self, reading: &Reading, guesses: &[Guess]) -> Result<(), Failure> {
        match reading {
            Reading::Layout(inspection) => self.bits(inspection)?,
            Reading::Scheme(id) => {
                self.title(&id.to_string(), id.scheme().name())?;
                self.facts(guesses::scheme_facts(id, self.now_unix_ms))?;
            }
            Reading::Number(id) => {
                self.title(&id.to_string(), "number")?;
                self.facts(texts(*id))?;
            }
        }
        for other in guesses::others(guesses, self.now_unix_ms) {
            let name = self.out.paint.faint("or     ");
            self.out.line(&format!("  {name} {other}"))?;
        }
        Ok(())
    }

    fn title(&mut self, id: &str, name: &str) -> Result<(), Failure> {
        self.gap()?;
        let title = format!("{}  {name}", self.out.paint.bold(id));
        self.out.line(&title)
    }

    /// An empty line between two ids.
    fn gap(&mut self) -> Result<(), Failure> {
        if self.shown > 0 { self.out.line("") } else { Ok(()) }
    }

    fn facts(&mut self, facts: impl IntoIterator<Item = (&'static str, String)>) -> Result<(), Failure> {
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

    fn json(&mut self, reading: &Reading, guesses: &[Guess]) -> Result<(), Failure> {
        let told = Told { reading, guesses: guesses::entries(guesses, self.args.format) };
        let line = serde_json::to_string(&told).map_err(Failure::runtime)?;
        self.out.line(&line)
    }

    fn bits(&mut self, inspection: &Inspection) -> Result<(), Failure> {
        let Inspection { id, layout, parts } = inspection;
        let name = preset_name(layout).map_or_else(|| layout.to_string(), str::to_owned);
        self.title(&id.to_string(), &name)?;
        let drawing = Drawing {
            layout,
            bits: |field| binary(parts.value(field), layout.width(field)),
            label: |field| thousands(parts.value(field)),
            paint: self.out.paint,
        };
        for line in drawing.lines() {
            self.out.line(&line)?;
        }
        self.facts(instant(layout, inspection.unix_ms(), self.now_unix_ms))?;
        self.facts(texts(*id))
    }
}

/// One line of JSON.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    reading: &'a Reading,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    guesses: Vec<Entry>,
}

fn binary(value: u64, width: u32) -> String {
    let width = usize::try_from(width).unwrap_or_default();
    format!("{value:0width$b}")
}

fn instant(layout: &Layout, unix_ms: u64, now_unix_ms: u64) -> [(&'static str, String); 3] {
    let tick = layout.tick();
    let precision =
        if tick.as_millis() == 1 { String::new() } else { format!(", the start of a tick of {tick:?}") };
    [
        ("utc", format!("{}{precision}", Utc(unix_ms))),
        ("local", instants::local(unix_ms)),
        ("age", instants::age(unix_ms, now_unix_ms)),
    ]
}

fn texts(id: Id) -> [(&'static str, String); 2] {
    [("hex", hex::encode(id).to_string()), ("base62", base62::encode(id).to_string())]
}
