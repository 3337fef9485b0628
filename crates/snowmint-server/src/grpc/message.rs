//! Messages on the wire: a byte that says whether it is compressed, the length as four bytes, and the
//! message. A response with many ids is written while it is sent; only its length is needed first.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use hyper::body::{Body as _, Incoming};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use super::Failure;
use crate::limits::grpc::{CHUNK, MAX_MESSAGE};
use crate::limits::unread::{LONG, SMALL};
use crate::load::answer_memory::Held;
use crate::mint::Ids;
use crate::status::ErrorKind;

/// Bytes before a message.
const PREFIX: usize = 5;
/// The field `ids` of `NextResponse`.
const IDS: u32 = 1;

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The message is compressed, or has an unknown flag.
    #[error("compressed message: this server takes messages with grpc-encoding identity only")]
    Compressed,
    /// The message is longer than any request.
    #[error("message of {length} bytes: expected at most {limit}")]
    TooLong {
        /// The length of the message.
        length: u32,
        /// The limit.
        limit: usize,
    },
    /// The request ended within a message.
    #[error("incomplete message at the end of the request")]
    Incomplete,
}

/// Splits a stream of bytes, which arrives in pieces of any size, into messages.
#[derive(Debug)]
pub struct Frames {
    arrived: Bytes,
    /// The length of the longest message, in bytes.
    limit: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self::with_limit(MAX_MESSAGE)
    }
}

impl Frames {
    /// Returns a splitter for messages of at most `limit` bytes.
    pub const fn with_limit(limit: usize) -> Self {
        Self { arrived: Bytes::new(), limit }
    }

    /// Adds bytes.
    pub fn push(&mut self, bytes: Bytes) {
        if self.arrived.is_empty() {
            self.arrived = bytes;
        } else {
            let mut all = BytesMut::with_capacity(self.arrived.len() + bytes.len());
            all.extend_from_slice(&self.arrived);
            all.extend_from_slice(&bytes);
            self.arrived = all.freeze();
        }
    }

    /// Removes the next message; `None` if it has not arrived completely.
    ///
    /// # Errors
    ///
    /// [`FrameError`] if no message can be read any more.
    pub fn next_message(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(([flag, length @ ..], _)) = self.arrived.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        if *flag != 0 {
            return Err(FrameError::Compressed);
        }
        let length = u32::from_be_bytes(*length);
        let len = usize::try_from(length).unwrap_or(usize::MAX);
        if len > self.limit {
            return Err(FrameError::TooLong { length, limit: self.limit });
        }
        if self.arrived.len() < PREFIX + len {
            return Ok(None);
        }
        self.arrived.advance(PREFIX);
        Ok(Some(self.arrived.split_to(len)))
    }

    /// Checks that no part of a message is left.
    ///
    /// # Errors
    ///
    /// [`FrameError::Incomplete`].
    pub fn end(&self) -> Result<(), FrameError> {
        if self.arrived.is_empty() { Ok(()) } else { Err(FrameError::Incomplete) }
    }
}

/// Reads the messages of a call.
pub(super) struct MessageReader {
    body: Incoming,
    frames: Frames,
}

impl MessageReader {
    pub(super) const fn new(body: Incoming, limit: usize) -> Self {
        Self { body, frames: Frames::with_limit(limit) }
    }

    /// Polls for the next message; `None` after the last.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Failure>> {
        loop {
            if let Some(message) = self.frames.next_message()? {
                return Poll::Ready(Ok(Some(message)));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.frames.push(data);
                    }
                }
                // The client gets no answer, since it has reset the call.
                Some(Err(error)) => {
                    return Poll::Ready(Err(Failure::new(ErrorKind::BadRequest, error.to_string())));
                }
                None => {
                    self.frames.end()?;
                    return Poll::Ready(Ok(None));
                }
            }
        }
    }
}

/// An answer to one request.
#[derive(Debug)]
pub(crate) struct Answer {
    /// What comes before the ids, or all of a message without ids.
    head: Vec<u8>,
    /// Boxed, since most answers have one id.
    ids: Option<Box<Ids>>,
    /// The memory of an answer that is not small.
    held: Option<Arc<Held>>,
}

impl Answer {
    /// Returns the answer with one id.
    pub(super) fn of_id(id: u64) -> Self {
        let mut head = ids_head(1);
        head.extend_from_slice(&id.to_le_bytes());
        Self { head, ids: None, held: None }
    }

    /// Returns the answer with ids, which must be plain numbers.
    pub(super) fn of_ids(ids: Ids) -> Self {
        Self { head: ids_head(ids.len()), ids: Some(Box::new(ids)), held: None }
    }

    /// Returns the answer with any message.
    pub(super) fn of_message(message: &impl Message) -> Self {
        let mut head = prefix(message.encoded_len());
        // A vector has room for every message.
        let _ = message.encode(&mut head);
        Self { head, ids: None, held: None }
    }

    /// Returns how many bytes the answer holds for a client that does not read it; 0 if they are few.
    pub(super) fn room(&self) -> usize {
        let ids = self.ids.as_ref().map_or(0, |ids| room_of_ids(ids.len()));
        Some(self.head.len() + ids).filter(|room| *room > SMALL).unwrap_or(0)
    }

    /// Gives the answer the memory that was held for it.
    pub(super) fn holding(self, held: Option<Held>) -> Self {
        let room = self.room();
        let held = held.filter(|_| room > 0).map(|mut held| {
            held.resize(room);
            Arc::new(held)
        });
        Self { held, ..self }
    }

    /// Returns the bytes of a part of this answer.
    pub(super) fn bytes(&self, part: Vec<u8>) -> Bytes {
        match &self.held {
            Some(held) => Arc::clone(held).of(part),
            None => part.into(),
        }
    }

    /// Appends the next part, until `out` has the length of a chunk or the answer ends. Then it appends
    /// nothing.
    ///
    /// # Errors
    ///
    /// The ids ended before the announced number: the call must be reset, since the length was already sent.
    pub(super) fn write(&mut self, out: &mut Vec<u8>) -> Result<(), tonic::Status> {
        out.append(&mut self.head);
        let Some(ids) = &mut self.ids else { return Ok(()) };
        let room = CHUNK.saturating_sub(out.len()) / size_of::<u64>();
        let part = ids.len().min(room);
        if ids.write_le(out, part) < part {
            return Err(tonic::Status::internal("the ids ended early"));
        }
        if ids.len() == 0 {
            self.ids = None;
        }
        Ok(())
    }

    /// Returns `true` if all of it is written.
    pub(super) fn is_written(&self) -> bool {
        self.head.is_empty() && self.ids.is_none()
    }
}

/// Returns how many bytes an answer with this number of ids holds.
pub(super) fn room_of_ids(count: usize) -> usize {
    (count * size_of::<u64>()).min(LONG)
}

/// Returns the start of a message of this length.
fn prefix(len: usize) -> Vec<u8> {
    let mut head = Vec::with_capacity(PREFIX + len.min(CHUNK));
    head.push(0);
    // The longest message has less than a megabyte.
    head.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
    head
}

/// Returns the start of a `NextResponse` with this number of ids, up to the first id.
fn ids_head(count: usize) -> Vec<u8> {
    let bytes = (count * size_of::<u64>()) as u64;
    let len = key_len(IDS) + encoded_len_varint(bytes) + count * size_of::<u64>();
    let mut head = prefix(len);
    encode_key(IDS, WireType::LengthDelimited, &mut head);
    encode_varint(bytes, &mut head);
    head
}

/// Checks, for fuzzing, that messages are the same if they arrive in two pieces, and decodes them as each
/// request.
///
/// # Panics
///
/// If they differ.
#[doc(hidden)]
pub fn check_split(input: &[u8]) {
    use super::messages::{InspectRequest, NamespacesRequest, NextRequest, TimeBoundsRequest};

    fn read(frames: &mut Frames, messages: &mut Vec<Bytes>) -> Result<(), FrameError> {
        while let Some(message) = frames.next_message()? {
            messages.push(message);
        }
        Ok(())
    }
    let (at, input) = input.split_first().map_or((0, input), |(at, input)| (usize::from(*at), input));
    let (mut whole, mut of_whole) = (Frames::default(), Vec::new());
    whole.push(Bytes::copy_from_slice(input));
    let read_whole = read(&mut whole, &mut of_whole);
    let (mut split, mut of_split) = (Frames::default(), Vec::new());
    let (first, second) = input.split_at(at.min(input.len()));
    split.push(Bytes::copy_from_slice(first));
    let read_split = read(&mut split, &mut of_split).and_then(|()| {
        split.push(Bytes::copy_from_slice(second));
        read(&mut split, &mut of_split)
    });
    assert_eq!((read_whole, &of_whole), (read_split, &of_split));
    for message in of_whole {
        assert!(message.len() <= MAX_MESSAGE);
        if let Ok(request) = NextRequest::decode(message.clone()) {
            let again = NextRequest::decode(request.encode_to_vec().as_slice());
            assert_eq!(again.as_ref(), Ok(&request));
        }
        drop(InspectRequest::decode(message.clone()));
        drop(TimeBoundsRequest::decode(message.clone()));
        drop(NamespacesRequest::decode(message));
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::NextResponse;
    use super::*;
    use crate::testing::mint;

    fn written(mut answer: Answer) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let mut chunk = Vec::new();
            answer.write(&mut chunk).unwrap();
            assert!(chunk.len() <= CHUNK || answer.is_written());
            if chunk.is_empty() {
                assert!(answer.is_written());
                return all;
            }
            all.extend(chunk);
        }
    }

    fn message(bytes: Vec<u8>) -> Bytes {
        let (flag, length) = (bytes[0], u32::from_be_bytes(bytes[1..5].try_into().unwrap()));
        assert_eq!((flag, length as usize), (0, bytes.len() - 5));
        Bytes::from(bytes).slice(5..)
    }

    /// Goal: the code that writes messages by hand matches the generated code.
    #[tokio::test]
    async fn ids_are_written_as_the_generated_message() {
        for count in [1, 15, 16, 2047, 2048, 2049, 100_000] {
            let mint = mint();
            let mut connection = mint.connection_state();
            let (namespace, handles) = connection.find(b"default").unwrap();
            let ids = namespace.take(handles, count).await.unwrap();
            let bytes = message(written(Answer::of_ids(ids)));
            let response = NextResponse::decode(bytes.clone()).unwrap();
            assert_eq!(response.ids.len(), count);
            assert!(response.ids.is_sorted_by(|one, next| one < next));
            assert_eq!(response.encode_to_vec(), bytes);
            assert_eq!(written(Answer::of_message(&response))[5..], bytes);
        }
        let response = NextResponse { ids: vec![7 << 55], ..NextResponse::default() };
        assert_eq!(message(written(Answer::of_id(7 << 55))), response.encode_to_vec());
    }

    #[test]
    fn messages_in_pieces_and_errors() {
        let mut frames = Frames::default();
        for byte in b"\0\0\0\0\x02ab\0\0\0\0\0\0\0" {
            frames.push(Bytes::copy_from_slice(&[*byte]));
        }
        assert_eq!(frames.next_message().unwrap().as_deref(), Some(&b"ab"[..]));
        assert_eq!(frames.next_message().unwrap().as_deref(), Some(&b""[..]));
        assert_eq!((frames.next_message(), frames.end()), (Ok(None), Err(FrameError::Incomplete)));
        for (bytes, error) in [
            (&b"\x01\0\0\0\0"[..], FrameError::Compressed),
            (b"\0\0\0\x10\x01", FrameError::TooLong { length: 4097, limit: MAX_MESSAGE }),
            (b"\0\xff\xff\xff\xff", FrameError::TooLong { length: u32::MAX, limit: MAX_MESSAGE }),
        ] {
            let mut frames = Frames::default();
            frames.push(Bytes::from_static(bytes));
            assert_eq!(frames.next_message(), Err(error));
        }
        check_split(b"\x06\0\0\0\0\x02\x0a\0\0\0\0\0\0");
    }
}
