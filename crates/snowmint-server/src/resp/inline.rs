//! Plain lines, as typed into telnet: words, with the quotes and escapes of `redis-cli`.
//! Not the hot path: the words are copied, for quotes and escapes do not stand in them as sent.

use crate::limits::resp::MAX_ARGS;
use crate::resp::codec::{ProtocolError, Span, narrow};

/// Splits a line into words: appends them to `words`, and says in `spans` where each one is.
///
/// # Source
///
/// Redis, `sdssplitargs`: a closing quote must end its word; `"` knows `\n \r \t \b \a \xHH`, `'` only `\'`.
pub(super) fn split(line: &[u8], words: &mut Vec<u8>, spans: &mut Vec<Span>) -> Result<(), ProtocolError> {
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

/// Appends the first word of `rest`, and returns what follows it.
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

#[cfg(test)]
mod tests {
    use super::*;

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
