//! `snowmint inspect`: explains ids, as a drawing for people or as JSON for programs.

use std::io::{self, BufRead, IsTerminal as _};
use std::path::PathBuf;

use snowmint::codec::{Alphabet, Digits, hex};
use snowmint::error::Snippet;
use snowmint::field::Field;
use snowmint::hide::Hider;
use snowmint::inspect::{Candidate, Decoded, Inspection};
use snowmint::scheme::SchemeId;
use snowmint::utc::Utc;
use snowmint::{Clock as _, Id, Layout, Parts, WallClock};
use snowmint_cluster::namespace::HideKeyName;

use crate::drawing::Drawing;
use crate::error::{Failure, report};
use crate::hide_key;
use crate::human::{self, Output, thousands};

const EXAMPLES: &str = "\
Examples:
  snowmint inspect 1541815603606036480
      Without --layout, draws the likeliest reading and lists the others:
      other layouts and epochs, other text forms, UUID, ULID, ObjectId, a plain
      number. The likelihoods are estimates from the fields and the age. If you
      know the layout, name it with --layout.
  snowmint inspect --layout sonyflake 500000000000000000
  snowmint inspect 01ARZ3NDEKTSV4RRFFQ69G5FAV
  snowmint new -n 3 | snowmint inspect
  snowmint inspect --format base62 1ptWyK4WgZU --json
  snowmint inspect --format base58 4aaW4SzAyQK

Text forms for --format: decimal (or dec), hex, base32 (Crockford), base36,
base58 (Bitcoin's order), base58_flickr, base62, and alphabet=CHARS for an
alphabet of your own. Without --format, all but the last are recognised.
A running service reads the text forms of its namespaces, see docs/protocols.md:
  curl 'localhost:8080/v1/inspect/ORD-20261121-000042?namespace=orders'

JSON, one object a line, for --layout and --format, or for the likeliest reading:
  id         the id in decimal, a string: JavaScript keeps only 53 bits
  layout     the layout as text
  timestamp  ticks since the layout's epoch
  unix_ms    the start of that tick, in milliseconds since 1970 UTC
  utc        the same instant as text
  datacenter, worker, generation, sequence
             the other fields; only those that the layout has
  binary     all 64 bits, a space before each field
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
A plain number has only `id` and `guesses`. A UUID, ULID or ObjectId has its
text as `id`, `scheme`, `unix_ms` and `utc` if it has an instant, and its fields.

Invalid ids are reported on standard error, the others are shown, and the exit
code is 2.";

/// Explain ids: draw their bits, and show their fields and the instant they were made
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples and the JSON fields.")]
pub(crate) struct Args {
    /// Ids; if there are none, reads them from standard input, separated by blanks, line ends or commas
    #[arg(value_name = "ID", allow_negative_numbers = true)]
    ids: Vec<String>,
    /// Layout of the ids: a name (see `snowmint layouts`) or a text form; default: the likeliest
    #[arg(long, value_name = "SPEC|NAME", env = "SNOWMINT_LAYOUT")]
    layout: Option<Layout>,
    /// Text form of the ids, such as hex or base58; default: the likeliest
    #[arg(long, value_name = "FORM")]
    format: Option<Digits>,
    /// Key that hides the ids, by its name in --hide-keys-file: shows the ids that they stand for
    #[arg(long, value_name = "KEY", requires = "hide_keys_file")]
    hide_key: Option<HideKeyName>,
    /// File of hide keys (see `snowmint hide-key`)
    #[arg(long, value_name = "FILE", env = "SNOWMINT_HIDE_KEYS_FILE")]
    hide_keys_file: Option<PathBuf>,
    /// Instant to measure ages from, such as 2026-11-22T08:00:00Z; default: now
    #[arg(long, value_name = "INSTANT", value_parser = snowmint::utc::parse)]
    now: Option<u64>,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let now_unix_ms = args.now.unwrap_or_else(|| WallClock.unix_ms());
    let hider = match (&args.hide_key, &args.hide_keys_file) {
        (Some(key), Some(file)) => {
            let found = hide_key::read(file)?.key(key).cloned();
            Some(found.map_err(|error| Failure::flag("--hide-key", error))?)
        }
        _ => None,
    };
    let mut inspector = Inspector { args, hider, out: Output::new(), now_unix_ms, shown: 0, refused: 0 };
    if args.ids.is_empty() {
        inspector.standard_input()?;
    } else {
        for text in &args.ids {
            inspector.one(text)?;
        }
    }
    inspector.out.flush()?;
    if inspector.refused > 0 { Err(Failure::Reported) } else { Ok(()) }
}

struct Inspector<'a> {
    args: &'a Args,
    hider: Option<Hider>,
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
                "missing ids: pass them as arguments, or on standard input as in `snowmint new | snowmint inspect`",
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
        let inspection = match self.read(text) {
            Ok(inspection) => inspection,
            Err(why) => return self.refuse(&why),
        };
        if self.args.json {
            self.out.line(&serde_json::to_string(&inspection).map_err(Failure::runtime)?)?;
        } else {
            self.draw(&inspection)?;
        }
        self.shown += 1;
        Ok(())
    }

    fn refuse(&mut self, why: &str) -> Result<(), Failure> {
        // On a terminal, the output so far comes before this error.
        self.out.flush()?;
        report("error", why);
        self.refused += 1;
        Ok(())
    }

    /// Reads a text by the given layout and form, or else as the likeliest id.
    fn read(&self, text: &str) -> Result<Inspection, String> {
        let form = self.args.format.as_ref();
        let Some(hider) = &self.hider else { return self.read_as(text, form) };
        let hidden = form.unwrap_or(&Digits::Decimal).decode(text);
        let hidden = hidden.map_err(|error| format!("invalid id {}: {error}", Snippet::of(text)))?;
        self.read_as(&hider.reveal(hidden).to_string(), Some(&Digits::Decimal))
    }

    fn read_as(&self, text: &str, form: Option<&Digits>) -> Result<Inspection, String> {
        let Some(layout) = self.args.layout else {
            let read = match form {
                Some(form) => {
                    Inspection::of_digits(text, form, self.now_unix_ms).map_err(|error| error.to_string())
                }
                None => Inspection::of_text(text, Vec::new(), self.now_unix_ms)
                    .ok_or_else(|| format!("{}{OTHER_FORMS}", why_not_decimal(text))),
            };
            return read.map_err(|why| format!("invalid id {}: {why}", Snippet::of(text)));
        };
        let hint = if form.is_none() { OTHER_FORMS } else { "" };
        let form = form.unwrap_or(&Digits::Decimal);
        let id =
            form.decode(text).map_err(|error| format!("invalid id {}: {error}{hint}", Snippet::of(text)))?;
        let decoded = Decoded::by_layout(id, layout).map_err(|error| {
            format!("invalid id {} for this layout: {error}; name another with --layout", Snippet::of(text))
        })?;
        Ok(Inspection::known(decoded, form.name()))
    }

    /// Draws the likeliest reading and lists the others.
    fn draw(&mut self, inspection: &Inspection) -> Result<(), Failure> {
        let decoded = &inspection.likeliest().decoded;
        let name = with_likelihood(&decoded.name(), inspection.likeliest().likelihood);
        match decoded {
            Decoded::Snowflake { id, layout, parts } => self.bits(*id, layout, parts, &name)?,
            Decoded::Scheme(id) => {
                self.title(&id.to_string(), &name)?;
                self.facts(scheme_facts(id, self.now_unix_ms))?;
            }
            Decoded::Number(id) => {
                self.title(&id.to_string(), &name)?;
                self.facts(texts(*id))?;
            }
            _ => self.title("", &name)?,
        }
        for other in others(inspection.candidates(), self.now_unix_ms) {
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

    fn bits(&mut self, id: Id, layout: &Layout, parts: &Parts, name: &str) -> Result<(), Failure> {
        self.title(&id.to_string(), name)?;
        let drawing = Drawing {
            layout,
            bits: |field| binary(parts.value(field), layout.width(field)),
            label: |field| thousands(parts.value(field)),
            paint: self.out.paint,
        };
        for line in drawing.lines() {
            self.out.line(&line)?;
        }
        self.facts(instant(layout, layout.unix_ms(parts.timestamp), self.now_unix_ms))?;
        self.facts(texts(id))
    }
}

/// Advice for a text that is not decimal.
const OTHER_FORMS: &str = "; name another text form with --format";

fn why_not_decimal(text: &str) -> String {
    text.parse::<Id>()
        .map_or_else(|error| error.to_string(), |_| "it matches no layout, scheme or text form".to_owned())
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
        ("local", human::local(unix_ms)),
        ("age", human::age(unix_ms, now_unix_ms)),
    ]
}

fn texts(id: Id) -> [(&'static str, String); 2] {
    [("hex", hex::encode(id).to_string()), ("base62", Alphabet::BASE62.encode(id).to_string())]
}

/// How many other readings get a line.
const OTHERS: usize = 4;
/// How many of them may differ only in their epochs.
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

/// Returns whether the time and the sequence of two readings use the same bits of the id.
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

/// Formats `twitter, 61% likely`, or the name alone if nothing was guessed.
fn with_likelihood(name: &str, likelihood: Option<f64>) -> String {
    likelihood.map_or_else(|| name.to_owned(), |share| format!("{name}, {} likely", percent(share)))
}

/// Formats whole percents, but never 0.
fn percent(share: f64) -> String {
    if share < 0.01 { "under 1%".to_owned() } else { format!("{:.0}%", share * 100.0) }
}

/// Formats a candidate; its text form only if it differs from that of the first.
fn candidate_line(candidate: &Candidate, first_form: &str, now_unix_ms: u64) -> String {
    let name = candidate.decoded.name();
    let same = candidate.form == first_form || candidate.form == name;
    let form = if same { String::new() } else { format!(", read as {}", candidate.form) };
    let instant = match candidate.decoded.unix_ms() {
        Some(unix_ms) => format!(": {} ({})", Utc(unix_ms), human::age(unix_ms, now_unix_ms)),
        None => String::new(),
    };
    with_likelihood(&format!("{name}{form}{instant}"), candidate.likelihood)
}

/// Returns the fields of an id of another scheme, such as a UUID.
fn scheme_facts(id: &SchemeId, now_unix_ms: u64) -> Vec<(&'static str, String)> {
    let mut facts: Vec<_> =
        id.values().map(|(field, value)| (field.name, field.show(value).to_string())).collect();
    if let Some(unix_ms) = id.unix_ms() {
        facts.push(("utc", Utc(unix_ms).to_string()));
        facts.push(("local", human::local(unix_ms)));
        facts.push(("age", human::age(unix_ms, now_unix_ms)));
    }
    facts
}

/// Longer than an id in any form. Longer words are cut, so that memory is bounded.
const MAX_LEN: usize = 64;

/// Calls `each` with every word, separated by blanks, line ends or commas, and `pause` before it waits for more input.
fn each_word<E>(
    input: &mut impl BufRead,
    mut pause: impl FnMut() -> Result<(), E>,
    mut each: impl FnMut(&str) -> Result<(), E>,
) -> Result<io::Result<()>, E> {
    let mut word = Vec::with_capacity(MAX_LEN);
    loop {
        pause()?;
        let room = match input.fill_buf() {
            Ok(room) => room,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Ok(Err(error)),
        };
        let read = room.len();
        for &byte in room {
            if byte.is_ascii_whitespace() || byte == b',' {
                finish_word(&mut word, &mut each)?;
            } else if word.len() < MAX_LEN {
                word.push(byte);
            }
        }
        if read == 0 {
            finish_word(&mut word, &mut each)?;
            return Ok(Ok(()));
        }
        input.consume(read);
    }
}

fn finish_word<E>(word: &mut Vec<u8>, each: &mut impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
    if !word.is_empty() {
        each(&String::from_utf8_lossy(word))?;
        word.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::io::BufReader;

    fn words(input: &[u8], room: usize) -> Vec<String> {
        let mut words = Vec::new();
        let mut input = BufReader::with_capacity(room, input);
        let read = each_word::<Infallible>(
            &mut input,
            || Ok(()),
            |word| {
                words.push(word.to_owned());
                Ok(())
            },
        );
        read.unwrap().unwrap();
        words
    }

    #[test]
    fn words_survive_every_split_of_the_input() {
        for room in 1..12 {
            assert_eq!(words(b" 12, 34\r\n\n56,,7\t8", room), ["12", "34", "56", "7", "8"]);
        }
        assert!(words(b" \n,", 4).is_empty());
    }

    #[test]
    fn an_endless_word_is_cut() {
        let long = vec![b'9'; 100_000];
        assert_eq!(words(&long, 4096), ["9".repeat(MAX_LEN)]);
    }
}
