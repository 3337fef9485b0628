//! Writes replies: appends them to the output of a connection, which is sent as a whole.
//! RESP3 differs from RESP2 only in maps, nulls and verbatim text.

use std::fmt;

/// The version of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Version {
    #[default]
    Resp2,
    Resp3,
}

/// `:123`
#[inline]
pub(super) fn integer(out: &mut Vec<u8>, value: u64) {
    header(out, b':', value);
}

/// `+text`; the text has no line breaks.
pub(super) fn simple(out: &mut Vec<u8>, text: &str) {
    out.push(b'+');
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// `$3 abc`
pub(super) fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    header(out, b'$', bytes.len() as u64);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// `$3 123`: a number as text, because clients that use floating-point numbers, such as JavaScript, would
/// lose digits.
#[inline]
pub(super) fn digits(out: &mut Vec<u8>, value: u64) {
    bulk(out, itoa::Buffer::new().format(value).as_bytes());
}

/// `*2`: the header of an array; its elements follow.
pub(super) fn array(out: &mut Vec<u8>, len: usize) {
    header(out, b'*', len as u64);
}

/// The header of a map; its keys and values follow. In RESP2 it is a flat array.
pub(super) fn map(out: &mut Vec<u8>, version: Version, pairs: usize) {
    match version {
        Version::Resp2 => array(out, pairs * 2),
        Version::Resp3 => header(out, b'%', pairs as u64),
    }
}

/// A null in place of a text.
pub(super) fn null(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(match version {
        Version::Resp2 => b"$-1\r\n",
        Version::Resp3 => b"_\r\n",
    });
}

/// A null in place of an array.
pub(super) fn null_array(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(match version {
        Version::Resp2 => b"*-1\r\n",
        Version::Resp3 => b"_\r\n",
    });
}

/// Text for people, which RESP3 marks.
pub(super) fn verbatim(out: &mut Vec<u8>, version: Version, text: &str) {
    match version {
        Version::Resp2 => bulk(out, text.as_bytes()),
        Version::Resp3 => {
            header(out, b'=', text.len() as u64 + 4);
            out.extend_from_slice(b"txt:");
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// `-PREFIX text`. Line breaks in the text become spaces, so that repeated input cannot end the line.
#[cold]
pub(super) fn error(out: &mut Vec<u8>, prefix: &str, text: impl fmt::Display) {
    out.push(b'-');
    out.extend_from_slice(prefix.as_bytes());
    out.push(b' ');
    let line = text.to_string();
    out.extend(line.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn header(out: &mut Vec<u8>, mark: u8, value: u64) {
    out.push(mark);
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn replies_of_both_versions() {
        use Version::{Resp2, Resp3};
        assert_eq!(written(|out| integer(out, 9_223_372_036_854_775_807)), ":9223372036854775807\r\n");
        assert_eq!(written(|out| digits(out, 9_223_372_036_854_775_807)), "$19\r\n9223372036854775807\r\n");
        assert_eq!(written(|out| simple(out, "OK")), "+OK\r\n");
        assert_eq!(written(|out| bulk(out, b"")), "$0\r\n\r\n");
        assert_eq!(written(|out| map(out, Resp2, 7)), "*14\r\n");
        assert_eq!(written(|out| map(out, Resp3, 7)), "%7\r\n");
        assert_eq!(written(|out| null(out, Resp2)), "$-1\r\n");
        assert_eq!(written(|out| null(out, Resp3)), "_\r\n");
        assert_eq!(written(|out| null_array(out, Resp2)), "*-1\r\n");
        assert_eq!(written(|out| verbatim(out, Resp3, "hi")), "=6\r\ntxt:hi\r\n");
        assert_eq!(written(|out| error(out, "ERR", "a\r\n+OK")), "-ERR a  +OK\r\n");
    }
}
