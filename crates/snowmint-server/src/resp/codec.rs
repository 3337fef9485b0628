//! Parses bytes into commands. The parser resumes, so a command that arrives byte by byte costs no more than
//! a whole one. Only inline commands are copied, nothing recurses, and every length is checked before it is
//! used.

use std::fmt;

use crate::limits::resp::{MAX_ARGS, MAX_BULK, MAX_COMMAND, MAX_INLINE};

/// Longest line that holds a length: a sign, 18 digits, CRLF and some slack for leading zeros.
const MAX_LENGTH_LINE: usize = 32;

/// The start and the end of an argument.
type Span = (u32, u32);

/// Finds the commands in a stream of bytes.
#[derive(Debug, Default)]
pub struct Parser {
    /// The arguments found so far.
    spans: Vec<Span>,
    /// The arguments of an inline command, without their quotes.
    unquoted: Vec<u8>,
    /// The bytes of the current command that have been read.
    at: usize,
    /// The arguments of the current array that are still missing; 0 if none has begun.
    left: usize,
}

/// The outcome of [`Parser::next`].
#[derive(Debug)]
pub enum Step<'a> {
    /// The command is incomplete: call again with the same bytes and more after them.
    Incomplete,
    /// A command. Without arguments it is an empty line or array, which has no answer.
    Command {
        /// The name and the arguments.
        args: Args<'a>,
        /// The bytes of input that it takes.
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
    /// Returns the number of arguments, including the name.
    pub const fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns `true` if there is not even a name.
    pub const fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns one argument; empty if it is missing, since no command takes an empty argument.
    #[inline]
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.spans.get(index).map_or(&[], |&(start, end)| &self.bytes[start as usize..end as usize])
    }

    /// Returns the arguments from `index` on.
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

/// Input that cannot be parsed. The client gets this error and is disconnected. The texts are those of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The number of arguments is invalid or too large.
    #[error("Protocol error: invalid multibulk length")]
    MultibulkLength,
    /// The length of an argument is invalid or too large.
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    /// An argument is not a bulk string, but for example a nested array.
    #[error("Protocol error: expected '$', got '{}'", char::from(*.0).escape_default())]
    NotABulk(u8),
    /// An argument does not end after its length.
    #[error("Protocol error: expected CRLF after bulk")]
    NoCrlf,
    /// The command is too long.
    #[error("Protocol error: too big request")]
    TooBig,
    /// An inline command is too long, or has too many words.
    #[error("Protocol error: too big inline request")]
    InlineTooBig,
    /// An inline command has an unclosed quote.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
}

/// A length line.
enum Length {
    Is { value: i64, end: usize },
    Incomplete,
    Bad,
}

impl Parser {
    /// Parses the command at the start of `input`.
    ///
    /// After [`Step::Incomplete`] the next input must be the same bytes with more after them; after a
    /// command, the bytes that follow it.
    ///
    /// # Errors
    ///
    /// [`ProtocolError`]: neither the parser nor the rest of the input can be used any more.
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
        // As in Redis, a null array is an empty one.
        let args = usize::try_from(args).unwrap_or(0);
        if args > MAX_ARGS {
            return Err(ProtocolError::MultibulkLength);
        }
        self.spans.clear();
        self.left = args;
        self.at = at;
        Ok(())
    }

    /// Parses one argument; returns `false` if it is incomplete.
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

    /// Parses an inline command. `self.at` is the number of bytes already searched for its end.
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
        split(line.strip_suffix(b"\r").unwrap_or(line), &mut self.unquoted, &mut self.spans)?;
        Ok(Step::Command { args: Args { bytes: &self.unquoted, spans: &self.spans }, len: end + 1 })
    }

    /// Frees the memory of a large command.
    pub fn shrink(&mut self) {
        if self.left == 0 {
            self.spans = Vec::new();
            self.unquoted = Vec::new();
        }
    }
}

/// Converts an offset into a command. `bulk` and `line` have checked that it is at most [`MAX_COMMAND`].
#[expect(clippy::cast_possible_truncation, reason = "at most MAX_COMMAND, 2^17")]
const fn narrow(offset: usize) -> u32 {
    offset as u32
}

/// Parses the number between `at` and its CRLF.
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

/// Splits an inline command, as typed into telnet: appends its words to `words` and their positions to
/// `spans`. The words are copied, since quotes and escapes have to go.
///
/// # Source
///
/// Redis, `sdssplitargs`: a closing quote must end its word; `"` knows `\n \r \t \b \a \xHH`, `'` only `\'`.
fn split(line: &[u8], words: &mut Vec<u8>, spans: &mut Vec<Span>) -> Result<(), ProtocolError> {
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        if spans.len() == MAX_ARGS {
            return Err(ProtocolError::InlineTooBig);
        }
        let start = words.len();
        rest = word(rest, words)?.trim_ascii_start();
        spans.push((narrow(start), narrow(words.len())));
    }
    Ok(())
}

/// Appends the first word of `rest`, and returns the rest.
fn word<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    while let [byte, after @ ..] = rest {
        match byte {
            b'"' => return quoted(after, words),
            b'\'' => return single_quoted(after, words),
            byte if byte.is_ascii_whitespace() => return Ok(after),
            byte => {
                words.push(*byte);
                rest = after;
            }
        }
    }
    Ok(rest)
}

fn quoted<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match rest {
            [b'"', after @ ..] => return closed(after),
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                words.push(hex(*high) << 4 | hex(*low));
                after
            }
            [b'\\', escaped, after @ ..] => {
                words.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                after
            }
            [byte, after @ ..] => {
                words.push(*byte);
                after
            }
            [] => return Err(ProtocolError::Quotes),
        };
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match rest {
            [b'\'', after @ ..] => return closed(after),
            [b'\\', b'\'', after @ ..] => {
                words.push(b'\'');
                after
            }
            [byte, after @ ..] => {
                words.push(*byte);
                after
            }
            [] => return Err(ProtocolError::Quotes),
        };
    }
}

fn closed(after: &[u8]) -> Result<&[u8], ProtocolError> {
    match after.first() {
        Some(byte) if !byte.is_ascii_whitespace() => Err(ProtocolError::Quotes),
        _ => Ok(after),
    }
}

const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// For fuzzing: parses `input` once whole and once in pieces of `piece` bytes. Panics if the two differ or a
/// limit is exceeded.
pub fn check_split(input: &[u8], piece: usize) {
    let whole = commands(input, input.len().max(1));
    assert_eq!(whole, commands(input, piece.max(1)), "pieces of {piece} bytes");
}

/// The commands of a stream, and the error that ended it.
type Commands = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

fn commands(input: &[u8], piece: usize) -> Commands {
    let mut parser = Parser::default();
    let (mut start, mut found) = (0, Vec::new());
    for end in (0..input.len()).step_by(piece).map(|begin| (begin + piece).min(input.len())) {
        loop {
            match parser.next(&input[start..end]) {
                Ok(Step::Incomplete) => break,
                Ok(Step::Command { args, len }) => {
                    assert!(len > 0 && len <= MAX_COMMAND && args.len() <= MAX_ARGS, "a limit is exceeded");
                    found.push(args.from(0).map(<[u8]>::to_vec).collect());
                    start += len;
                }
                Err(error) => return (found, Some(error)),
            }
        }
        // The smallest pieces show how much a connection has to buffer.
        assert!(piece > 1 || end - start <= MAX_COMMAND, "more is buffered than a command may have");
    }
    (found, None)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(input: &[u8]) -> (Vec<Vec<String>>, Option<ProtocolError>) {
        let (found, error) = commands(input, input.len().max(1));
        let text = |arg: Vec<u8>| String::from_utf8_lossy(&arg).into_owned();
        (found.into_iter().map(|command| command.into_iter().map(text).collect()).collect(), error)
    }

    #[test]
    fn commands_of_both_forms() {
        let input =
            b"*2\r\n$7\r\nID.NEXT\r\n$7\r\ndefault\r\nPING\r\n\r\n*0\r\n*-1\r\n*1\r\n$0\r\n\r\nECHO 'a b'\nPIN";
        let (found, error) = all(input);
        assert_eq!(error, None);
        let wanted: [&[&str]; 7] =
            [&["ID.NEXT", "default"], &["PING"], &[], &[], &[], &[""], &["ECHO", "a b"]];
        assert_eq!(found, wanted);
    }

    #[test]
    fn bulks_hold_any_bytes() {
        let (found, error) = commands(b"*1\r\n$7\r\n\r\n*\0\xff$1\r\n", 1);
        assert_eq!((found, error), (vec![vec![b"\r\n*\0\xff$1".to_vec()]], None));
    }

    #[test]
    fn protocol_errors_are_those_of_redis() {
        let too_many = format!("*{}\r\n", MAX_ARGS + 1);
        let too_long = format!("*1\r\n${}\r\n", MAX_BULK + 1);
        for (input, wanted) in [
            ("*x\r\n", "Protocol error: invalid multibulk length"),
            ("*1x\r\n", "Protocol error: invalid multibulk length"),
            ("*\r\n", "Protocol error: invalid multibulk length"),
            ("*1\rx", "Protocol error: invalid multibulk length"),
            ("*99999999999999999999\r\n", "Protocol error: invalid multibulk length"),
            (&too_many, "Protocol error: invalid multibulk length"),
            ("*11111111111111111111111111111111111111", "Protocol error: invalid multibulk length"),
            ("*1\r\n*1\r\n$4\r\nPING\r\n", "Protocol error: expected '$', got '*'"),
            ("*1\r\n:1\r\n", "Protocol error: expected '$', got ':'"),
            ("*1\r\n\r\n", "Protocol error: expected '$', got '\\r'"),
            ("*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
            ("*1\r\n$4x\r\n", "Protocol error: invalid bulk length"),
            ("*1\r\n$99999999999\r\n", "Protocol error: invalid bulk length"),
            (&too_long, "Protocol error: invalid bulk length"),
            ("*1\r\n$4\r\nPINGxx", "Protocol error: expected CRLF after bulk"),
            ("ECHO \"a\r\n", "Protocol error: unbalanced quotes in request"),
        ] {
            let (found, error) = all(input.as_bytes());
            assert_eq!(error.map(|error| error.to_string()).as_deref(), Some(wanted), "{input:?}");
            assert!(found.is_empty(), "{input:?}");
            check_split(input.as_bytes(), 1);
        }
    }

    #[test]
    fn lines_and_commands_end_at_their_bounds() {
        let line = |len: usize| [vec![b'a'; len], b"\n".to_vec()].concat();
        assert_eq!(all(&line(MAX_INLINE)).1, None);
        assert_eq!(all(&line(MAX_INLINE + 1)).1, Some(ProtocolError::InlineTooBig));
        // The limit also holds without an end of line.
        assert_eq!(all(&vec![b'a'; MAX_INLINE]).1, None);
        assert_eq!(all(&vec![b'a'; MAX_INLINE + 1]).1, Some(ProtocolError::InlineTooBig));
        let bulk =
            |len: usize| [format!("${len}\r\n").into_bytes(), vec![b'a'; len], b"\r\n".to_vec()].concat();
        let command = |bulks: &[usize]| {
            let bulks: Vec<_> = bulks.iter().flat_map(|len| bulk(*len)).collect();
            [format!("*{}\r\n", 3).into_bytes(), bulks].concat()
        };
        assert_eq!(all(&command(&[MAX_BULK, MAX_BULK / 2, 1])).1, None);
        assert_eq!(all(&command(&[MAX_BULK, MAX_BULK, 1])).1, Some(ProtocolError::TooBig));
    }

    /// Goal: a command of 64 KiB that arrives byte by byte is not searched again for every byte. Method: the
    /// position of the parser must follow the input.
    #[test]
    fn a_slow_line_is_searched_once() {
        let mut parser = Parser::default();
        let line = vec![b'a'; MAX_INLINE];
        for end in 1..line.len() {
            assert!(matches!(parser.next(&line[..end]), Ok(Step::Incomplete)));
            assert_eq!(parser.at, end);
        }
    }

    /// Encodes as client libraries do.
    fn encode(commands: &[Vec<Vec<u8>>]) -> Vec<u8> {
        let mut out = Vec::new();
        for command in commands {
            out.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
            for arg in command {
                out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
                out.extend_from_slice(arg);
                out.extend_from_slice(b"\r\n");
            }
        }
        out
    }

    /// Bytes that often look like the protocol.
    fn nearly_resp() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"*1\r\n".to_vec()),
            Just(b"*2\r\n".to_vec()),
            Just(b"$4\r\nPING\r\n".to_vec()),
            Just(b"$".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b"PING 'a".to_vec()),
            Just(b"\"".to_vec()),
            Just(b"-1\r\n".to_vec()),
            Just(b"$65536\r\n".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..12),
        ];
        proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn commands_come_out_as_they_went_in(
            sent in proptest::collection::vec(
                proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..5), 0..8),
            piece in 1_usize..70,
        ) {
            let bytes = encode(&sent);
            prop_assert_eq!(commands(&bytes, piece), (sent, None));
        }

        #[test]
        fn any_bytes_in_any_pieces_give_the_same(input in nearly_resp(), piece in 1_usize..9) {
            check_split(&input, piece);
            check_split(&input, 1);
        }

        #[test]
        fn noise_never_panics(input in proptest::collection::vec(any::<u8>(), 0..300)) {
            check_split(&input, 1);
        }
    }

    fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
        let (mut words, mut spans) = (Vec::new(), Vec::new());
        split(line, &mut words, &mut spans)?;
        Ok(spans.iter().map(|&(start, end)| words[start as usize..end as usize].to_vec()).collect())
    }

    #[test]
    fn words_quotes_and_escapes() {
        for (line, wanted) in [
            (&b""[..], vec![]),
            (b"  \t ", vec![]),
            (b"PING", vec![&b"PING"[..]]),
            (b" ID.NEXT  default\tCOUNT 3 ", vec![b"ID.NEXT", b"default", b"COUNT", b"3"]),
            (b"ECHO \"a b\"", vec![b"ECHO", b"a b"]),
            (b"ECHO \"\\x41\\n\\\"\\q\\x4\"", vec![b"ECHO", b"A\n\"qx4"]),
            (b"ECHO 'a\\'b\\n'", vec![b"ECHO", b"a'b\\n"]),
            (b"ECHO \"\" ''", vec![b"ECHO", b"", b""]),
        ] {
            assert_eq!(words(line).unwrap(), wanted, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn open_quotes_and_too_many_words() {
        for line in [&b"ECHO \"a"[..], b"ECHO 'a", b"ECHO \"a\"b", b"ECHO 'a'b", b"ECHO \"a\\", b"\""] {
            assert_eq!(words(line), Err(ProtocolError::Quotes), "{}", line.escape_ascii());
        }
        assert_eq!(words(&b"a ".repeat(MAX_ARGS)).unwrap().len(), MAX_ARGS);
        assert_eq!(words(&b"a ".repeat(MAX_ARGS + 1)), Err(ProtocolError::InlineTooBig));
    }
}
