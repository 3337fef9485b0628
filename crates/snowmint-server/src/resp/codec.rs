//! Bytes to commands: resumable, so that a command arriving byte by byte costs no more than one that is whole.
//! Nothing is copied but plain lines, nothing recurses, and every length is bounded before it is believed.

use std::fmt;

use crate::limits::resp::{MAX_ARGS, MAX_BULK, MAX_COMMAND, MAX_INLINE};
use crate::resp::inline;

/// Longest line that holds a length: a sign, 18 digits, CRLF and some slack for leading zeros.
const MAX_LENGTH_LINE: usize = 32;

/// Where an argument starts and ends.
pub(super) type Span = (u32, u32);

/// Finds the commands in a stream of bytes.
#[derive(Debug, Default)]
pub struct Parser {
    /// The arguments found so far.
    spans: Vec<Span>,
    /// The arguments of a plain line, without their quotes.
    unquoted: Vec<u8>,
    /// How far the current command has been read.
    at: usize,
    /// Arguments of the current array that are still to come; 0 when none has begun.
    left: usize,
}

/// What there is at the start of the input.
#[derive(Debug)]
pub enum Step<'a> {
    /// Not yet a whole command: call again with more input behind the same bytes.
    Incomplete,
    /// A command of `len` bytes of input. Without arguments it is an empty line or array, to be passed over.
    Command {
        /// Its name and arguments.
        args: Args<'a>,
        /// How many bytes of the input it takes.
        len: usize,
    },
}

/// The name and the arguments of a command.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// How many there are, the name included.
    pub const fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is not even a name.
    pub const fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// One of them; empty where there is none, which no command takes for anything else.
    #[inline]
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.spans.get(index).map_or(&[], |&(start, end)| &self.bytes[start as usize..end as usize])
    }

    /// Those from `index` on.
    pub fn from(&self, index: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.spans.iter().skip(index).map(move |&(start, end)| &bytes[start as usize..end as usize])
    }
}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.from(0).map(String::from_utf8_lossy)).finish()
    }
}

/// Input after which nothing can be understood any more: the client is told, and disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The number of arguments is no number, or too large.
    #[error("Protocol error: invalid multibulk length")]
    MultibulkLength,
    /// The length of an argument is no number, or too large.
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    /// An argument that is not a bulk string: a nested array, for one.
    #[error("Protocol error: expected '$', got '{}'", char::from(*.0).escape_default())]
    NotABulk(u8),
    /// An argument does not end where its length says.
    #[error("Protocol error: expected CRLF after bulk")]
    NoCrlf,
    /// The arguments together are too long.
    #[error("Protocol error: too big request")]
    TooBig,
    /// A plain line that is too long, or of too many words.
    #[error("Protocol error: too big inline request")]
    InlineTooBig,
    /// A plain line whose quotes do not close.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
}

/// A length line, read or not yet there.
enum Length {
    Is { value: i64, end: usize },
    Incomplete,
    Bad,
}

impl Parser {
    /// Reads the command at the start of `input`.
    ///
    /// After [`Step::Incomplete`] the next call must see the same bytes with more behind them; after a command
    /// it must see what follows it.
    ///
    /// # Errors
    ///
    /// [`ProtocolError`]: this parser and its input are of no further use.
    #[inline]
    pub fn next<'a>(&'a mut self, input: &'a [u8]) -> Result<Step<'a>, ProtocolError> {
        if self.left == 0 {
            match input.first() {
                None => return Ok(Step::Incomplete),
                Some(b'*') => match length(input, 1) {
                    Length::Incomplete => return Ok(Step::Incomplete),
                    Length::Is { value, end } => self.begin(value, end)?,
                    Length::Bad => return Err(ProtocolError::MultibulkLength),
                },
                Some(_) => return self.line(input),
            }
        }
        while self.left > 0 {
            if !self.bulk(input)? {
                return Ok(Step::Incomplete);
            }
        }
        let len = std::mem::take(&mut self.at);
        Ok(Step::Command { args: Args { bytes: input, spans: &self.spans }, len })
    }

    fn begin(&mut self, args: i64, at: usize) -> Result<(), ProtocolError> {
        // Redis passes over a null array as over an empty one.
        let args = usize::try_from(args).unwrap_or(0);
        if args > MAX_ARGS {
            return Err(ProtocolError::MultibulkLength);
        }
        self.spans.clear();
        self.left = args;
        self.at = at;
        Ok(())
    }

    /// Reads one argument; `false` when it is not there yet.
    #[inline]
    fn bulk(&mut self, input: &[u8]) -> Result<bool, ProtocolError> {
        match input.get(self.at) {
            None => return Ok(false),
            Some(b'$') => {}
            Some(&other) => return Err(ProtocolError::NotABulk(other)),
        }
        let (value, start) = match length(input, self.at + 1) {
            Length::Is { value, end } => (value, end),
            Length::Incomplete => return Ok(false),
            Length::Bad => return Err(ProtocolError::BulkLength),
        };
        let len =
            usize::try_from(value).ok().filter(|len| *len <= MAX_BULK).ok_or(ProtocolError::BulkLength)?;
        let end = start + len;
        if end + 2 > MAX_COMMAND {
            return Err(ProtocolError::TooBig);
        }
        let Some(terminator) = input.get(end..end + 2) else {
            return Ok(false);
        };
        if terminator != b"\r\n" {
            return Err(ProtocolError::NoCrlf);
        }
        self.spans.push((narrow(start), narrow(end)));
        self.at = end + 2;
        self.left -= 1;
        Ok(true)
    }

    /// Reads a plain line; `at` says how far it has been searched for its end.
    fn line<'a>(&'a mut self, input: &'a [u8]) -> Result<Step<'a>, ProtocolError> {
        let end = input[self.at..].iter().position(|byte| *byte == b'\n').map(|found| self.at + found);
        if end.unwrap_or(input.len()) > MAX_INLINE {
            return Err(ProtocolError::InlineTooBig);
        }
        let Some(end) = end else {
            self.at = input.len();
            return Ok(Step::Incomplete);
        };
        self.at = 0;
        self.spans.clear();
        self.unquoted.clear();
        let line = &input[..end];
        inline::split(line.strip_suffix(b"\r").unwrap_or(line), &mut self.unquoted, &mut self.spans)?;
        Ok(Step::Command { args: Args { bytes: &self.unquoted, spans: &self.spans }, len: end + 1 })
    }

    /// Gives back what an unusually large command needed.
    pub fn shrink(&mut self) {
        if self.left == 0 {
            self.spans = Vec::new();
            self.unquoted = Vec::new();
        }
    }
}

/// Offsets into a command: bounded by [`MAX_COMMAND`], which `bulk` and `line` have checked.
#[expect(clippy::cast_possible_truncation, reason = "at most MAX_COMMAND, 2^17")]
pub(super) const fn narrow(offset: usize) -> u32 {
    offset as u32
}

/// Reads a number up to its CRLF, from `at` on.
#[inline]
fn length(input: &[u8], at: usize) -> Length {
    let rest = &input[at..];
    // Nearly every length has one digit.
    if let [digit @ b'0'..=b'9', b'\r', b'\n', ..] = rest {
        return Length::Is { value: i64::from(digit - b'0'), end: at + 3 };
    }
    long_length(rest, at)
}

fn long_length(rest: &[u8], at: usize) -> Length {
    let line = &rest[..rest.len().min(MAX_LENGTH_LINE)];
    let Some(end) = line.iter().position(|byte| *byte == b'\r') else {
        return if rest.len() >= MAX_LENGTH_LINE { Length::Bad } else { Length::Incomplete };
    };
    match rest.get(end + 1) {
        None => return Length::Incomplete,
        Some(b'\n') => {}
        Some(_) => return Length::Bad,
    }
    let (digits, sign) = match line[..end].strip_prefix(b"-") {
        Some(digits) => (digits, -1),
        None => (&line[..end], 1),
    };
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return Length::Bad;
    }
    let value = digits.iter().fold(0, |n, digit| n * 10 + i64::from(digit - b'0'));
    Length::Is { value: sign * value, end: at + end + 2 }
}

/// For fuzzing: reads `input` once whole and once in pieces of `piece` bytes, and panics where the two differ
/// or a bound does not hold.
pub fn check_split(input: &[u8], piece: usize) {
    let whole = commands(input, input.len().max(1));
    assert_eq!(whole, commands(input, piece.max(1)), "pieces of {piece} bytes");
}

/// What a stream holds: its commands, then the error that ended it, if one did.
type Commands = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

fn commands(input: &[u8], piece: usize) -> Commands {
    let mut parser = Parser::default();
    let (mut start, mut found) = (0, Vec::new());
    for end in (0..input.len()).step_by(piece).map(|begin| (begin + piece).min(input.len())) {
        loop {
            match parser.next(&input[start..end]) {
                Ok(Step::Incomplete) => break,
                Ok(Step::Command { args, len }) => {
                    assert!(len > 0 && len <= MAX_COMMAND && args.len() <= MAX_ARGS, "a bound does not hold");
                    found.push(args.from(0).map(<[u8]>::to_vec).collect());
                    start += len;
                }
                Err(error) => return (found, Some(error)),
            }
        }
        // The smallest pieces show what a connection would have to keep.
        assert!(piece > 1 || end - start <= MAX_COMMAND, "more is held than a command may have");
    }
    (found, None)
}

#[cfg(test)]
mod tests;
