//! `snowmint convert`: writes ids in another text form, also in a pipe.

use serde::Serialize;
use snowmint::Id;
use snowmint::codec::Digits;
use snowmint::error::Snippet;

use crate::error::{Failure, report};
use crate::input::{Items, Sink, each_item, standard_input};
use crate::output::{Output, thousands};

const EXAMPLES: &str = "\
Examples:
  snowmint convert --to base62 1541815603606036480
  snowmint convert --from base62 --to hex 1ptWyK4WgZU
  snowmint new -n 1000000 | snowmint convert --to base58 > ids.txt
  snowmint convert --from alphabet=q7PzVw3 < ids.txt
  snowmint convert --to base62 --pad 7
      Pads with zeros to the width of the largest id, so that texts of
      alphabets in ASCII order sort as the ids do.

Text forms: decimal (or dec), hex, base32 (Crockford), base36, base58 (Bitcoin's
order), base58_flickr, base62, and alphabet=CHARS for an alphabet of your own.
Hex and base32 always have their full width.

Standard input has one id a line. An invalid line is reported on standard error
with its number and omitted, the others are converted, and the exit code is 2.

JSON, one object a line: text (as read), id (in decimal, a string) and
converted.";

/// Number of invalid lines that are reported one by one.
const REPORTED: u64 = 20;

/// Write ids in another text form
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples and the text forms.")]
pub(crate) struct Args {
    /// Ids; if there are none, reads them from standard input, one a line
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Text form of the ids
    #[arg(long, value_name = "FORM", default_value = "decimal", help_heading = "Text forms")]
    from: Digits,
    /// Text form to write
    #[arg(long, value_name = "FORM", default_value = "decimal", help_heading = "Text forms")]
    to: Digits,
    /// Pad with zeros to the width of the largest id
    #[arg(long, help_heading = "Text forms")]
    pad: bool,
    /// Print one JSON object per line
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.from == args.to && !args.pad && !args.json {
        return Err(Failure::usage("nothing to convert: expected --from or --to, such as --to base62"));
    }
    let width = if args.pad { args.to.width() } else { 0 };
    let mut converter =
        Converter { args, width, out: Output::new(), line: Vec::with_capacity(256), refused: 0 };
    if args.ids.is_empty() {
        let mut input = standard_input("snowmint new | snowmint convert --to base62")?;
        each_item(&mut input, Items::Lines, &mut converter)?;
    } else {
        for (text, nth) in args.ids.iter().zip(1..) {
            converter.item(text, nth)?;
        }
    }
    converter.finish()
}

struct Converter<'a> {
    args: &'a Args,
    width: usize,
    out: Output,
    line: Vec<u8>,
    refused: u64,
}

/// A converted id as JSON.
#[derive(Serialize)]
struct ConvertedId<'a> {
    text: &'a str,
    id: Id,
    converted: &'a str,
}

impl Sink for Converter<'_> {
    fn item(&mut self, text: &str, line: u64) -> Result<(), Failure> {
        let id = match self.args.from.decode(text) {
            Ok(id) => id,
            Err(error) => {
                self.refused += 1;
                if self.refused > REPORTED {
                    return Ok(());
                }
                self.out.flush()?;
                let place = if self.args.ids.is_empty() { format!("line {line}: ") } else { String::new() };
                report("error", &format!("{place}invalid id {}: {error}", Snippet::of(text)));
                return Ok(());
            }
        };
        let encoded = self.args.to.encode(id);
        self.line.clear();
        self.line.resize(self.width.saturating_sub(encoded.len()), self.args.to.zero());
        self.line.extend_from_slice(encoded.as_bytes());
        if self.args.json {
            let converted = String::from_utf8_lossy(&self.line);
            return self.out.json(&ConvertedId { text, id, converted: &converted });
        }
        self.line.push(b'\n');
        self.out.bytes(&self.line)
    }

    fn pause(&mut self) -> Result<(), Failure> {
        self.out.flush()
    }
}

impl Converter<'_> {
    fn finish(&mut self) -> Result<(), Failure> {
        self.out.flush()?;
        if let Some(more) = self.refused.checked_sub(REPORTED).filter(|more| *more > 0) {
            report("error", &format!("{} more invalid lines", thousands(more)));
        }
        if self.refused > 0 { Err(Failure::Reported) } else { Ok(()) }
    }
}
