//! `snowmint inspect`: explains ids, as a drawing or a table for people, or as JSON for programs.

mod of_namespace;
mod rows;

use std::path::PathBuf;

use snowmint::codec::{Alphabet, Digits, hex};
use snowmint::error::Snippet;
use snowmint::field::Field;
use snowmint::hide::Hider;
use snowmint::inspect::{Candidate, Column, Decoded, Inspection, cell};
use snowmint::layout::SplitError;
use snowmint::scheme::SchemeField;
use snowmint::utc::Utc;
use snowmint::{Clock as _, Id, Layout, Parts, WallClock};
use snowmint_cluster::NamespaceName;
use snowmint_cluster::namespace::HideKeyName;

use crate::bit_picture::Drawing;
use crate::error::{Failure, report};
use crate::hide_key;
use crate::input::{Items, Sink, each_item, standard_input};
use crate::output::{self, Output, thousands};
use crate::target::TargetArgs;
use of_namespace::NamespaceReader;
use rows::{GuessedRow, Rows};

const EXAMPLES: &str = "\
Examples:
  snowmint inspect 1541815603606036480
      Without --layout, draws the likeliest reading and lists the others:
      other layouts and epochs, other text forms, UUID, ULID, ObjectId, KSUID,
      XID, TypeID, TID, a plain number. The likelihoods are estimates from the
      fields and the age. If you know the layout, name it with --layout.
  snowmint inspect --layout sonyflake 500000000000000000
  snowmint inspect 01ARZ3NDEKTSV4RRFFQ69G5FAV
  snowmint new -n 3 | snowmint inspect
      Several ids are a table, a line each, and judged together: a column mostly
      has ids of one layout. --view drawing draws each of them.
  snowmint inspect --namespace orders ORD-20261121-000042
      The layout, the text form and the hide key are those of the namespace in
      the store; with --server, of a running node.
  snowmint inspect < export.csv
      Cells of a spreadsheet are read: quotes, =\"…\", thousands separators.
  cut -f1 ids.tsv | snowmint inspect --layout twitter > decoded.txt
      With --layout, and a table or --json, a pipe runs fastest.
  snowmint inspect --format base62 1ptWyK4WgZU --json
  snowmint inspect --format base58 4aaW4SzAyQK

Text forms for --format: decimal (or dec), hex, base32 (Crockford), base36,
base58 (Bitcoin's order), base58_flickr, base62, and alphabet=CHARS for an
alphabet of your own. Without --format, all but the last are recognised.
JSON, one object a line, for --layout and --format, or for the likeliest reading:
  id         the id in decimal, a string: JavaScript keeps only 53 bits
  layout     the layout as text
  timestamp  ticks since the layout's epoch
  unix_ms    the start of that tick, in milliseconds since 1970 UTC
  utc        the same instant as text
  datacenter, worker, generation, sequence
             the other fields; only those that the layout has
  binary     all 64 bits, a space before each field
  notes      that the id may be rounded or hidden, as sentences
  near_ties  only without --layout: names of readings that are nearly as likely
  guesses    only without --layout: the possible readings, the likeliest first;
             the members above are those of the first
    name       a layout of `snowmint layouts` or as text, a scheme, or `number`
    form       the text form, such as decimal or base62
    unix_ms, utc
               the instant of that reading, if it has one
    cost_bits  how unlikely: one more bit is half as likely. Readings a million
               times less likely than the first are omitted, and layouts without
               a name from a hundred times
    likelihood the estimate, 0 to 0.99 over all readings together
A plain number has only `id` and `guesses`. Other ids, such as UUIDs, have their
text as `id`, `scheme`, `unix_ms` and `utc` if they have an instant, and their
fields.

Invalid ids are reported on standard error, the others are shown, and the exit
code is 2.";

/// Explain ids: draw their bits, and show their fields and the instant they were made
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples and the JSON fields.")]
pub(crate) struct Args {
    /// Ids; if there are none, reads them from standard input, separated by blanks, line ends or commas
    #[arg(value_name = "ID", allow_negative_numbers = true)]
    ids: Vec<String>,
    #[command(flatten)]
    reading: ReadingArgs,
    #[command(flatten)]
    shown: OutputArgs,
    #[command(flatten)]
    target: TargetArgs,
}

/// The way in which ids are read.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "How to read the ids")]
struct ReadingArgs {
    /// Layout of the ids: a name (see `snowmint layouts`) or a text form; default: the likeliest
    #[arg(long, value_name = "SPEC|NAME", env = "SNOWMINT_LAYOUT")]
    layout: Option<Layout>,
    /// Text form of the ids, such as hex or base58; default: the likeliest
    #[arg(long, value_name = "FORM")]
    format: Option<Digits>,
    /// Namespace of the ids: its layout, text form and hide key are read from the store, or from --server
    #[arg(long, value_name = "NAME", conflicts_with_all = ["format", "hide_key"])]
    namespace: Option<NamespaceName>,
    /// Key that hides the ids, by its name in --hide-keys-file: shows the ids that they stand for
    #[arg(long, value_name = "KEY", requires = "hide_keys_file")]
    hide_key: Option<HideKeyName>,
    /// File of hide keys (see `snowmint hide-key`)
    #[arg(long, value_name = "FILE", env = "SNOWMINT_HIDE_KEYS_FILE")]
    hide_keys_file: Option<PathBuf>,
}

/// The way in which ids are shown.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
struct OutputArgs {
    /// Draw each id, or write a table with a line for each; default: a drawing of one id, a table of several
    #[arg(long, value_name = "VIEW", value_enum, conflicts_with = "json")]
    view: Option<InspectView>,
    /// Instant to measure ages from, such as 2026-11-22T08:00:00Z; default: now
    #[arg(long, value_name = "INSTANT", value_parser = snowmint::utc::parse)]
    now: Option<u64>,
    /// Print one JSON object per line
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// The form of the output for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum InspectView {
    /// The bits of each id, with its instant and other readings
    Drawing,
    /// A line for each id
    Table,
}

/// Number of ids that are held, so that they are judged together before the first is written.
const HELD: usize = 100;
/// Number of ids that are held even if the input pauses.
const HELD_IN_A_PAUSE: usize = 3;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let now_unix_ms = args.shown.now.unwrap_or_else(|| WallClock.unix_ms());
    let ReadingArgs { hide_key, hide_keys_file, namespace, .. } = &args.reading;
    let hider = match (hide_key, hide_keys_file) {
        (Some(key), Some(file)) => {
            let found = hide_key::read(file)?.key(key).cloned();
            Some(found.map_err(|error| Failure::flag("--hide-key", error))?)
        }
        _ => None,
    };
    let namespace = match namespace {
        Some(name) => Some(NamespaceReader::find(name, hide_keys_file.as_deref(), &args.target)?),
        None if args.target.open()?.is_node() => {
            return Err(Failure::usage("--server without --namespace: name the namespace of the ids"));
        }
        None => None,
    };
    let layout = args.reading.layout.filter(|_| namespace.is_none());
    let out = Output::new();
    let mut inspector = Inspector {
        args,
        layout,
        namespace,
        hider,
        rows: layout.map(|layout| Rows::new(layout, out.paint)),
        out,
        row: Vec::with_capacity(512),
        now_unix_ms,
        view: args.shown.view,
        column: Column::new(now_unix_ms),
        held: Vec::new(),
        shown: 0,
        refused: 0,
    };
    if args.ids.is_empty() {
        let mut input = standard_input("snowmint new | snowmint inspect")?;
        each_item(&mut input, Items::Words, &mut inspector)?;
    } else {
        for text in &args.ids {
            inspector.item(text, 1)?;
        }
    }
    inspector.finish()
}

struct Inspector<'a> {
    args: &'a Args,
    /// The layout of all ids, if it is given.
    layout: Option<Layout>,
    /// The namespace of all ids, if it is given.
    namespace: Option<NamespaceReader>,
    hider: Option<Hider>,
    /// Writes rows if the layout is known.
    rows: Option<Rows>,
    out: Output,
    /// The row in progress.
    row: Vec<u8>,
    now_unix_ms: u64,
    /// The form of the output, once it is known.
    view: Option<InspectView>,
    /// What the ids say of each other.
    column: Column,
    /// The ids that are not written yet.
    held: Vec<String>,
    shown: u64,
    refused: u64,
}

impl Sink for Inspector<'_> {
    fn item(&mut self, text: &str, _line: u64) -> Result<(), Failure> {
        if self.is_known() && (self.view.is_some() || self.args.shown.json) {
            return self.one(text);
        }
        self.held.push(text.to_owned());
        // Ids that are known need not wait for others, but one alone is drawn.
        let most = if self.is_known() { 2 } else { HELD };
        if self.held.len() >= most { self.write_held() } else { Ok(()) }
    }

    fn pause(&mut self) -> Result<(), Failure> {
        if self.held.len() >= HELD_IN_A_PAUSE {
            self.write_held()?;
        }
        self.out.flush()
    }
}

impl Inspector<'_> {
    /// Returns whether what the ids are is given.
    const fn is_known(&self) -> bool {
        self.layout.is_some() || self.namespace.is_some()
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.write_held()?;
        self.out.flush()?;
        if self.refused > 0 { Err(Failure::Reported) } else { Ok(()) }
    }

    /// Writes the ids that were held, judged together and with those before.
    fn write_held(&mut self) -> Result<(), Failure> {
        let held = std::mem::take(&mut self.held);
        if self.view.is_none() && !held.is_empty() {
            let is_one = held.len() == 1 && self.shown == 0 && self.refused == 0;
            self.view = Some(if is_one { InspectView::Drawing } else { InspectView::Table });
        }
        if !self.is_known() {
            for text in &held {
                let (text, digits) = self.column_text(text);
                self.column.add(&text, digits.as_ref());
            }
        }
        held.iter().try_for_each(|text| self.one(text))
    }

    fn one(&mut self, text: &str) -> Result<(), Failure> {
        let is_drawn = self.view == Some(InspectView::Drawing);
        if let Some(layout) = self.layout.filter(|_| !is_drawn) {
            return self.row(text, &layout);
        }
        let inspection = match self.read(text) {
            Ok(inspection) => inspection,
            Err(why) => return self.refuse(&why),
        };
        if self.args.shown.json {
            self.out.json(&inspection)?;
        } else if is_drawn {
            self.draw(&inspection)?;
        } else {
            if self.shown == 0 {
                let heading = GuessedRow::heading(self.out.paint);
                self.out.line(&heading)?;
            }
            let row = GuessedRow(&inspection).line(self.now_unix_ms);
            self.out.line(&row)?;
        }
        self.shown += 1;
        Ok(())
    }

    /// Writes an id of the known layout as a row of the table, or as JSON.
    fn row(&mut self, text: &str, layout: &Layout) -> Result<(), Failure> {
        let split = self.read_id(text).and_then(|id| match layout.split(id) {
            Ok(parts) => Ok((id, parts)),
            Err(error) => Err(not_of_layout(text, &error)),
        });
        let (id, parts) = match split {
            Ok(split) => split,
            Err(why) => return self.refuse(&why),
        };
        let Some(rows) = &mut self.rows else { return Ok(()) };
        self.row.clear();
        if self.args.shown.json {
            rows.json(id, &parts, &mut self.row);
        } else {
            if self.shown == 0 {
                rows.heading(&mut self.row);
            }
            rows.row(id, &parts, &mut self.row);
        }
        self.shown += 1;
        self.out.bytes(&self.row)
    }

    fn refuse(&mut self, why: &str) -> Result<(), Failure> {
        // On a terminal, print the output so far before this error.
        self.out.flush()?;
        report("error", why);
        self.refused += 1;
        Ok(())
    }

    /// Parses a text in the given form, and reveals the id if it is hidden.
    fn read_id(&self, text: &str) -> Result<Id, String> {
        let form = self.args.reading.format.as_ref();
        let hint = if form.is_none() && self.hider.is_none() { OTHER_FORMS } else { "" };
        let form = form.unwrap_or(&Digits::Decimal);
        // A cell of a spreadsheet is read without its quotes and separators.
        let id = form.decode(text).or_else(|error| form.decode(&cell(text)).map_err(|_| error));
        let id = id.map_err(|error| {
            let why = rounded_by_a_spreadsheet(text).unwrap_or_else(|| format!("{error}{hint}"));
            format!("invalid id {}: {why}", Snippet::of(text))
        })?;
        Ok(self.hider.as_ref().map_or(id, |hider| hider.reveal(id)))
    }

    /// Returns a text as the column reads it, and its form if it is given.
    fn column_text(&self, text: &str) -> (String, Option<Digits>) {
        let form = &self.args.reading.format;
        if form.is_none() && self.hider.is_none() {
            return (text.to_owned(), None);
        }
        match self.read_id(text) {
            Ok(id) if self.hider.is_some() => (id.to_string(), Some(Digits::Decimal)),
            Ok(id) => {
                let form = form.clone().unwrap_or(Digits::Decimal);
                (form.encode(id).to_string(), Some(form))
            }
            Err(_) => (text.to_owned(), None),
        }
    }

    /// Reads a text by the given layout, namespace and form, or else as the likeliest id.
    fn read(&self, text: &str) -> Result<Inspection, String> {
        if let Some(namespace) = &self.namespace {
            return namespace.read(text);
        }
        let form = self.args.reading.format.as_ref();
        if let Some(layout) = self.layout {
            let id = self.read_id(text)?;
            let decoded = Decoded::by_layout(id, layout).map_err(|error| not_of_layout(text, &error))?;
            return Ok(Inspection::known(decoded, form.unwrap_or(&Digits::Decimal).name()));
        }
        if form.is_some() || self.hider.is_some() {
            self.read_id(text)?;
        }
        let (read, digits) = self.column_text(text);
        let read = self.column.inspect(&read, digits.as_ref()).map_err(|error| error.to_string());
        let read = read.and_then(|read| {
            read.ok_or_else(|| {
                let not_decimal = || format!("{}{OTHER_FORMS}", why_not_decimal(text));
                rounded_by_a_spreadsheet(text).unwrap_or_else(not_decimal)
            })
        });
        read.map_err(|why| format!("invalid id {}: {why}", Snippet::of(text)))
    }

    /// Draws the likeliest reading and lists the others.
    fn draw(&mut self, inspection: &Inspection) -> Result<(), Failure> {
        let decoded = &inspection.likeliest().decoded;
        let name = with_likelihood(&decoded.name(), inspection.likeliest().likelihood);
        let near_ties = inspection.near_ties();
        let name = if near_ties.is_empty() {
            name
        } else {
            format!("{name}, nearly as likely: {}", near_ties.join(", "))
        };
        match decoded {
            Decoded::Snowflake { id, layout, parts } => self.bits(*id, layout, parts, &name)?,
            Decoded::Scheme(id) => self.wide(&id.to_string(), &name, id.values(), id.unix_ms())?,
            Decoded::Foreign(id) => self.wide(&id.to_string(), &name, id.values(), id.unix_ms())?,
            Decoded::Number(id) => {
                self.title(&id.to_string(), &name)?;
                self.facts(texts(*id))?;
            }
            _ => self.title("", &name)?,
        }
        self.facts(inspection.notes().iter().map(|note| ("note", note.clone())))?;
        for other in others(inspection.candidates(), self.now_unix_ms) {
            let name = self.out.paint.faint("or     ");
            self.out.line(&format!("  {name} {other}"))?;
        }
        Ok(())
    }

    /// Draws an id of a scheme.
    fn wide(
        &mut self,
        id: &str,
        name: &str,
        fields: impl Iterator<Item = (&'static SchemeField, u128)>,
        unix_ms: Option<u64>,
    ) -> Result<(), Failure> {
        self.title(id, name)?;
        self.facts(fields.map(|(field, value)| (field.name, field.show(value).to_string())))?;
        match unix_ms {
            Some(unix_ms) => self.facts([
                ("utc", Utc(unix_ms).to_string()),
                ("local", output::local(unix_ms)),
                ("age", output::age(unix_ms, self.now_unix_ms)),
            ]),
            None => Ok(()),
        }
    }

    fn title(&mut self, id: &str, name: &str) -> Result<(), Failure> {
        self.gap()?;
        let title = format!("{}  {name}", self.out.paint.bold(id));
        self.out.line(&title)
    }

    /// Writes an empty line between two ids.
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

    fn bits(&mut self, id: Id, layout: &Layout, parts: &Parts, name: &str) -> Result<(), Failure> {
        self.title(&id.to_string(), name)?;
        let drawing = Drawing {
            layout,
            bits: |field| binary(parts.value(field), layout.width(field)),
            label: |field| thousands(parts.value(field)),
            paint: self.out.paint,
            columns: output::columns(),
        };
        for line in drawing.lines() {
            self.out.line(&line)?;
        }
        self.facts(instant(layout, layout.unix_ms(parts.timestamp), self.now_unix_ms))?;
        self.facts(texts(id))
    }
}

fn not_of_layout(text: &str, error: &SplitError) -> String {
    format!("invalid id {} for this layout: {error}; name another with --layout", Snippet::of(text))
}

/// Advice for a text that is not decimal.
const OTHER_FORMS: &str = "; name another text form with --format";

fn why_not_decimal(text: &str) -> String {
    text.parse::<Id>()
        .map_or_else(|error| error.to_string(), |_| "it matches no layout, scheme or text form".to_owned())
}

/// Returns why a number such as `1.54182E+18` is no id; `None` for other texts.
fn rounded_by_a_spreadsheet(text: &str) -> Option<String> {
    let text = cell(text);
    let (digits, exponent) = text.split_once(['e', 'E'])?;
    let is_number = digits.contains(['.', ',']) && exponent.starts_with('+') && exponent.len() > 1;
    let is_digits =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','));
    (is_number && is_digits(digits) && is_digits(&exponent[1..])).then(|| {
        "a spreadsheet kept only its first digits: format the column as text before the import, and export again"
            .to_owned()
    })
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
        ("local", output::local(unix_ms)),
        ("age", output::age(unix_ms, now_unix_ms)),
    ]
}

fn texts(id: Id) -> [(&'static str, String); 2] {
    [("hex", hex::encode(id).to_string()), ("base62", Alphabet::BASE62.encode(id).to_string())]
}

/// Number of other readings that get a line.
const OTHERS: usize = 4;
/// Number of these that may differ only in their epochs.
const OF_SAME_BITS: usize = 3;

/// Returns a line for each of the likeliest candidates after the first, and one for the rest.
fn others(candidates: &[Candidate], now_unix_ms: u64) -> Vec<String> {
    let Some((first, rest)) = candidates.split_first() else { return Vec::new() };
    let mut shown: Vec<&Candidate> = Vec::new();
    for candidate in rest {
        if shown.iter().filter(|other| have_same_bits(other, candidate)).count() < OF_SAME_BITS {
            shown.push(candidate);
        }
    }
    shown.truncate(OTHERS);
    let lines = shown.iter().map(|candidate| candidate_line(candidate, first.form, now_unix_ms));
    lines.chain(unshown(rest, &shown)).collect()
}

/// Returns a line for the other readings, if they are likely enough together.
fn unshown(rest: &[Candidate], shown: &[&Candidate]) -> Option<String> {
    let sum = |share: f64, candidate: &Candidate| share + candidate.likelihood.unwrap_or_default();
    let share = rest.iter().fold(0.0, sum) - shown.iter().copied().fold(0.0, sum);
    let count = rest.len() - shown.len();
    (share >= 0.01).then(|| with_likelihood(&format!("{count} more, see --json"), Some(share)))
}

/// Returns whether the timestamp and the sequence of two readings use the same bits of the id.
fn have_same_bits(one: &Candidate, other: &Candidate) -> bool {
    let bits = |layout: &Layout| {
        [Field::Timestamp, Field::Sequence].map(|field| (layout.shift(field), layout.width(field)))
    };
    match (&one.decoded, &other.decoded) {
        (Decoded::Snowflake { layout: one, .. }, Decoded::Snowflake { layout: other, .. }) => {
            bits(one) == bits(other) && one.tick() == other.tick()
        }
        _ => false,
    }
}

/// Formats `twitter, 61% likely`, or only the name if nothing was guessed.
fn with_likelihood(name: &str, likelihood: Option<f64>) -> String {
    likelihood.map_or_else(|| name.to_owned(), |share| format!("{name}, {} likely", percent(share)))
}

/// Formats whole percents, but never 0.
fn percent(share: f64) -> String {
    if share < 0.01 { "under 1%".to_owned() } else { format!("{:.0}%", share * 100.0) }
}

/// Formats a candidate. Includes its text form only if it differs from that of the first candidate.
fn candidate_line(candidate: &Candidate, first_form: &str, now_unix_ms: u64) -> String {
    let name = candidate.decoded.name();
    let same = candidate.form == first_form || candidate.form == name;
    let form = if same { String::new() } else { format!(", read as {}", candidate.form) };
    let instant = match candidate.decoded.unix_ms() {
        Some(unix_ms) => format!(": {} ({})", Utc(unix_ms), output::age(unix_ms, now_unix_ms)),
        None => String::new(),
    };
    with_likelihood(&format!("{name}{form}{instant}"), candidate.likelihood)
}
