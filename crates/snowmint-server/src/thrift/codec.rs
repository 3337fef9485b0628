//! Messages of Thrift's binary protocol, in frames or without: requests are parsed, answers written.
//!
//! Specification: <https://github.com/apache/thrift/blob/master/doc/specs/thrift-binary-protocol.md>. Both
//! forms of a message's head are read, with a version (strict) and without; an answer has the form of its
//! request.

use crate::limits::thrift::{MAX_DEPTH, MAX_MESSAGE};

/// The version of a strict head.
const VERSION: u32 = 0x8001_0000;
const STOP: u8 = 0;
const I32: u8 = 8;
const I64: u8 = 10;
const STRING: u8 = 11;
const STRUCT: u8 = 12;

/// A call of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    name: &'a [u8],
    sequence: i32,
    oneway: bool,
    strict: bool,
    framed: bool,
    /// The first argument, if it is a string.
    pub(super) user_agent: Option<&'a [u8]>,
}

impl Request<'_> {
    /// The name of the method, without the name of a multiplexed service.
    pub(super) fn method(&self) -> &[u8] {
        self.name.rsplit(|byte| *byte == b':').next().unwrap_or(self.name)
    }

    pub(super) const fn wants_answer(&self) -> bool {
        !self.oneway
    }

    /// Returns the position of the sequence number in the message.
    const fn sequence_at(&self) -> usize {
        let frame = if self.framed { 4 } else { 0 };
        frame + self.name.len() + if self.strict { 8 } else { 5 }
    }

    /// Returns the number of calls that follow this one and differ from it only in their sequence number, up
    /// to `most`. `input` begins with this call, which has `len` bytes. All of them are parsed by parsing
    /// this one.
    pub(super) fn repeats(&self, input: &[u8], len: usize, most: usize) -> usize {
        let (first, after) = input.split_at(len);
        let at = self.sequence_at();
        let is_same = |call: &&[u8]| call[..at] == first[..at] && call[at + 4..] == first[at + 4..];
        after.chunks_exact(len).take(most).take_while(is_same).count()
    }

    /// Returns one of the calls that repeat this one.
    pub(super) fn repeated(&self, call: &[u8]) -> Self {
        let sequence = call[self.sequence_at()..].first_chunk().map_or(0, |bytes| i32::from_be_bytes(*bytes));
        Self { sequence, ..*self }
    }
}

/// A message that ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The message is longer than [`MAX_MESSAGE`].
    #[error("Thrift message of {len} bytes: expected at most {MAX_MESSAGE}")]
    TooLong {
        /// Its length.
        len: u32,
    },
    /// The message is not one of Thrift's binary protocol.
    #[error("invalid Thrift message: {0}")]
    Malformed(&'static str),
}

/// Parses the request at the start of `input`. Returns it with its length; `None` if it is incomplete.
///
/// # Errors
///
/// [`CodecError`]. Nothing after it can be parsed.
pub fn parse(input: &[u8]) -> Result<Option<(Request<'_>, usize)>, CodecError> {
    let Some(head) = input.first_chunk::<4>() else { return Ok(None) };
    let head = u32::from_be_bytes(*head);
    if head >> 31 == 1 {
        // A frame is never that long: this is a strict head without a frame.
        let mut reader = Reader { rest: input };
        return match message(&mut reader, false) {
            Ok(request) => match input.len() - reader.rest.len() {
                len if len > MAX_MESSAGE => Err(too_long(len)),
                len => Ok(Some((request, len))),
            },
            Err(Stop::Short) if input.len() <= MAX_MESSAGE => Ok(None),
            Err(Stop::Short) => Err(too_long(input.len())),
            Err(Stop::Malformed(why)) => Err(CodecError::Malformed(why)),
        };
    }
    let len = head as usize;
    if len > MAX_MESSAGE {
        return Err(CodecError::TooLong { len: head });
    }
    let Some(frame) = input.get(4..4 + len) else { return Ok(None) };
    match message(&mut Reader { rest: frame }, true) {
        Ok(request) => Ok(Some((request, 4 + len))),
        Err(Stop::Short) => Err(CodecError::Malformed("it ends within a value")),
        Err(Stop::Malformed(why)) => Err(CodecError::Malformed(why)),
    }
}

#[cold]
fn too_long(len: usize) -> CodecError {
    CodecError::TooLong { len: u32::try_from(len).unwrap_or(u32::MAX) }
}

fn message<'a>(reader: &mut Reader<'a>, framed: bool) -> Result<Request<'a>, Stop> {
    let first = reader.u32()?;
    let strict = first >> 31 == 1;
    let (kind, name) = if strict {
        if first & 0xffff_0000 != VERSION {
            return Err(Stop::Malformed("unknown version"));
        }
        (first.to_be_bytes()[3], reader.string()?)
    } else {
        let name = reader.take(first as usize)?;
        (reader.u8()?, name)
    };
    let sequence = i32::from_be_bytes(reader.array()?);
    let oneway = match kind {
        1 => false,
        4 => true,
        _ => return Err(Stop::Malformed("not a call")),
    };
    let mut user_agent = None;
    loop {
        let kind = reader.u8()?;
        if kind == STOP {
            break;
        }
        let field = i16::from_be_bytes(reader.array()?);
        if (kind, field) == (STRING, 1) {
            user_agent = Some(reader.string()?);
        } else {
            reader.skip(kind, MAX_DEPTH)?;
        }
    }
    Ok(Request { name, sequence, oneway, strict, framed, user_agent })
}

enum Stop {
    Short,
    Malformed(&'static str),
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Stop> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Stop::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Stop::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, Stop> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32, Stop> {
        self.array().map(u32::from_be_bytes)
    }

    fn len(&mut self) -> Result<usize, Stop> {
        match self.u32()? as usize {
            len if len > MAX_MESSAGE => Err(Stop::Malformed("a length is negative or too large")),
            len => Ok(len),
        }
    }

    fn string(&mut self) -> Result<&'a [u8], Stop> {
        let len = self.len()?;
        self.take(len)
    }

    /// Skips a value of an unknown field.
    fn skip(&mut self, kind: u8, depth: u8) -> Result<(), Stop> {
        if depth == 0 {
            return Err(Stop::Malformed("values are nested too deeply"));
        }
        match kind {
            2 | 3 => self.take(1).map(drop),
            6 => self.take(2).map(drop),
            I32 => self.take(4).map(drop),
            4 | I64 => self.take(8).map(drop),
            STRING => self.string().map(drop),
            STRUCT => loop {
                let kind = self.u8()?;
                if kind == STOP {
                    return Ok(());
                }
                self.take(2)?;
                self.skip(kind, depth - 1)?;
            },
            // Each element takes at least a byte, so the message bounds the loop.
            13 => {
                let (key, value) = (self.u8()?, self.u8()?);
                for _ in 0..self.len()? {
                    self.skip(key, depth - 1)?;
                    self.skip(value, depth - 1)?;
                }
                Ok(())
            }
            14 | 15 => {
                let element = self.u8()?;
                for _ in 0..self.len()? {
                    self.skip(element, depth - 1)?;
                }
                Ok(())
            }
            _ => Err(Stop::Malformed("unknown type of a value")),
        }
    }
}

/// The type of a `TApplicationException`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApplicationError {
    UnknownMethod = 1,
    Internal = 6,
}

/// An exception that `snowflake.thrift` declares for `get_id`, by its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Declared {
    InvalidUserAgent = 1,
    InvalidSystemClock = 2,
}

/// Answers with a number.
#[inline]
pub fn reply(out: &mut Vec<u8>, request: &Request<'_>, number: i64) {
    answer(out, request, 2, |out| {
        out.extend([I64, 0, 0]);
        out.extend(number.to_be_bytes());
    });
}

/// Answers with a `TApplicationException`, which every client raises.
pub(super) fn exception(out: &mut Vec<u8>, request: &Request<'_>, error: ApplicationError, text: &str) {
    answer(out, request, 3, |out| {
        out.extend([STRING, 0, 1]);
        string(out, text.as_bytes());
        out.extend([I32, 0, 2]);
        out.extend((error as i32).to_be_bytes());
    });
}

/// Answers with an exception of the interface.
pub(super) fn declared(out: &mut Vec<u8>, request: &Request<'_>, declared: Declared, text: &str) {
    answer(out, request, 2, |out| {
        out.extend([STRUCT, 0, declared as u8, STRING, 0, 1]);
        string(out, text.as_bytes());
        out.push(STOP);
    });
}

#[inline]
fn answer(out: &mut Vec<u8>, request: &Request<'_>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    if request.framed {
        out.extend([0; 4]);
    }
    if request.strict {
        out.extend((VERSION | u32::from(kind)).to_be_bytes());
        string(out, request.method());
    } else {
        string(out, request.method());
        out.push(kind);
    }
    out.extend(request.sequence.to_be_bytes());
    body(out);
    out.push(STOP);
    if request.framed {
        // An answer is a request's name and a short text.
        let len = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
        out[start..start + 4].copy_from_slice(&len.to_be_bytes());
    }
}

fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(text);
}

/// Checks, for fuzzing, that a message that arrives in pieces is parsed like one that arrives at once, and
/// that repeated calls are equal to calls that are parsed one by one.
#[doc(hidden)]
pub fn check_split(input: &[u8]) {
    let mut start = 0;
    while let Ok(Some((request, len))) = parse(&input[start..]) {
        assert!(len > 0 && start + len <= input.len());
        for end in start..start + len {
            assert_eq!(parse(&input[start..end]), Ok(None), "{end} bytes of {len}");
        }
        for (nth, call) in
            input[start..].chunks_exact(len).take(request.repeats(&input[start..], len, 9) + 1).enumerate()
        {
            assert_eq!(
                parse(&input[start + nth * len..]),
                Ok(Some((request.repeated(call), len))),
                "call {nth}"
            );
        }
        let mut out = Vec::new();
        reply(&mut out, &request, 7);
        exception(&mut out, &request, ApplicationError::Internal, "why");
        start += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(message: &[u8]) -> Vec<u8> {
        let mut framed = u32::try_from(message.len()).unwrap().to_be_bytes().to_vec();
        framed.extend(message);
        framed
    }

    /// As Apache's Python client 0.25 writes `get_id("web")`, with sequence number 5.
    const STRICT: &[u8] = b"\x80\x01\x00\x01\0\0\0\x06get_id\0\0\0\x05\x0b\0\x01\0\0\0\x03web\0";
    /// The same without a version.
    const PLAIN: &[u8] = b"\0\0\0\x06get_id\x01\0\0\0\x05\x0b\0\x01\0\0\0\x03web\0";

    #[test]
    fn a_call_is_read_in_every_form() {
        for (bytes, strict, framed) in
            [(frame(STRICT), true, true), (frame(PLAIN), false, true), (STRICT.to_vec(), true, false)]
        {
            let (request, len) = parse(&bytes).unwrap().unwrap();
            assert_eq!((request.method(), request.sequence, len), (&b"get_id"[..], 5, bytes.len()));
            assert_eq!(
                (request.strict, request.framed, request.user_agent),
                (strict, framed, Some(&b"web"[..]))
            );
            check_split(&bytes);
        }
    }

    #[test]
    fn calls_that_differ_in_their_number_alone_are_repeats() {
        for message in [frame(STRICT), frame(PLAIN), STRICT.to_vec()] {
            let five = message.iter().position(|byte| *byte == 5).unwrap();
            let numbered = |number: u8| {
                let mut message = message.clone();
                message[five] = number;
                message
            };
            let mut other = message.clone();
            let last = other.len() - 2;
            other[last] = b'B';
            let calls = [message.clone(), numbered(6), numbered(0xff), numbered(7)].concat();
            let (request, len) = parse(&calls).unwrap().unwrap();
            assert_eq!(request.repeats(&calls, len, 255), 3);
            assert_eq!(request.repeats(&calls, len, 2), 2);
            assert_eq!(request.repeats(&calls[..calls.len() - 1], len, 255), 2, "the last one is incomplete");
            assert_eq!(request.repeated(&numbered(0xff)).sequence, 0xff);
            let mixed = [message.clone(), numbered(6), other].concat();
            assert_eq!(request.repeats(&mixed, len, 255), 1, "another user agent");
            check_split(&calls);
            check_split(&mixed);
        }
    }

    #[test]
    fn answers_have_the_form_of_their_request() {
        let request = frame(STRICT);
        let (request, _) = parse(&request).unwrap().unwrap();
        let mut out = Vec::new();
        reply(&mut out, &request, 0x0102_0304_0506_0708);
        let message = b"\x80\x01\x00\x02\0\0\0\x06get_id\0\0\0\x05\x0a\0\0\x01\x02\x03\x04\x05\x06\x07\x08\0";
        assert_eq!(out, frame(message));

        let plain = frame(PLAIN);
        let (request, _) = parse(&plain).unwrap().unwrap();
        out.clear();
        exception(&mut out, &request, ApplicationError::Internal, "no");
        let message = b"\0\0\0\x06get_id\x03\0\0\0\x05\x0b\0\x01\0\0\0\x02no\x08\0\x02\0\0\0\x06\0";
        assert_eq!(out, frame(message));
        out.clear();
        declared(&mut out, &request, Declared::InvalidSystemClock, "no");
        let message = b"\0\0\0\x06get_id\x02\0\0\0\x05\x0c\0\x02\x0b\0\x01\0\0\0\x02no\0\0";
        assert_eq!(out, frame(message));
    }

    #[test]
    fn unknown_arguments_are_skipped() {
        let mut message = STRICT[..STRICT.len() - 1].to_vec();
        // A bool, a double, a struct with an i16, a map of i32 to string, a list of bytes.
        message.extend(b"\x02\0\x02\x01\x04\0\x0312345678\x0c\0\x04\x06\0\x01\0\x07\0");
        message.extend(b"\x0d\0\x05\x08\x0b\0\0\0\x01\0\0\0\x09\0\0\0\x01x\x0f\0\x06\x03\0\0\0\x02ab\0");
        let bytes = frame(&message);
        let (request, len) = parse(&bytes).unwrap().unwrap();
        assert_eq!((request.user_agent, len), (Some(&b"web"[..]), bytes.len()));
        check_split(&message);
    }

    #[test]
    fn a_multiplexed_method_is_its_last_part() {
        let bytes = frame(b"\x80\x01\x00\x01\0\0\0\x10Snowflake:get_id\0\0\0\x05\0");
        let (request, _) = parse(&bytes).unwrap().unwrap();
        assert_eq!(request.method(), b"get_id");
        let mut out = Vec::new();
        reply(&mut out, &request, 7);
        // Clients in C++ and JavaScript look for the method's own name in the answer.
        assert_eq!(out, frame(b"\x80\x01\x00\x02\0\0\0\x06get_id\0\0\0\x05\x0a\0\0\0\0\0\0\0\0\0\x07\0"));
    }

    #[test]
    fn what_is_not_a_call_ends_the_connection() {
        let malformed = |message: &[u8]| match parse(message) {
            Err(CodecError::Malformed(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(malformed(&frame(&STRICT[..STRICT.len() - 1])), "it ends within a value");
        assert_eq!(malformed(&frame(b"\x80\x02\x00\x01")), "unknown version");
        assert_eq!(malformed(&frame(b"\x80\x01\x00\x02\0\0\0\x01a\0\0\0\0")), "not a call");
        assert_eq!(malformed(b"\x80\x01\x00\x01\xff\xff\xff\xff"), "a length is negative or too large");
        let mut deep = b"\x80\x01\x00\x01\0\0\0\x01a\0\0\0\0".to_vec();
        deep.extend(b"\x0c\0\x02".repeat(100));
        assert_eq!(malformed(&frame(&deep)), "values are nested too deeply");
        assert_eq!(parse(b"GET / HTTP/1.1"), Err(CodecError::TooLong { len: u32::from_be_bytes(*b"GET ") }));
        // A set of more elements than bytes.
        let many = b"\x80\x01\x00\x01\0\0\0\x01a\0\0\0\0\x0e\0\x02\x03\0\0\x0f\xff";
        assert_eq!(malformed(&frame(many)), "it ends within a value");
    }

    #[test]
    fn a_message_that_never_ends_is_cut() {
        let mut endless = STRICT[..STRICT.len() - 1].to_vec();
        endless.extend(b"\x03\0\x02x".repeat(MAX_MESSAGE));
        assert!(matches!(parse(&endless), Err(CodecError::TooLong { .. })));
        endless.push(STOP);
        assert!(matches!(parse(&endless), Err(CodecError::TooLong { .. })), "also if it arrives at once");
        endless.truncate(MAX_MESSAGE);
        assert_eq!(parse(&endless), Ok(None));
    }
}
