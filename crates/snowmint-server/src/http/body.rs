//! Bodies: small ones whole, many ids in pieces that are made when the socket takes them.
//! A hundred thousand ids are two megabytes of text; a client that reads slowly must not make us hold them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use crate::http::accept::Form;
use crate::limits::http::{CHUNK, WHOLE_BODY_IDS};
use crate::mint::Ids;

/// Longest text of one id with what stands around it: a text form with 26 characters of an id, quotes and a comma.
const MAX_ID_TEXT: usize = 128;
/// The same of a plain number.
const MAX_NUMBER_TEXT: usize = 22;

/// The body of an answer.
#[derive(Debug)]
pub(super) enum Body {
    /// All of it, or nothing any more.
    Whole(Option<Bytes>),
    /// Ids that are still to be written.
    Ids(Box<Pieces>),
}

/// Ids on their way.
#[derive(Debug)]
pub(super) struct Pieces {
    ids: Ids,
    form: Form,
    begun: bool,
    ended: bool,
    /// Longest text of one of them.
    longest: usize,
}

impl Body {
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()).filter(|bytes| !bytes.is_empty()))
    }

    /// The ids in the form that was asked for.
    pub(super) fn ids(ids: Ids, form: Form) -> io::Result<Self> {
        let few = ids.len() <= WHOLE_BODY_IDS;
        let longest = if ids.are_plain_numbers() { MAX_NUMBER_TEXT } else { MAX_ID_TEXT };
        let mut pieces = Pieces { ids, form, begun: false, ended: false, longest };
        if few {
            // One more before the first id, two that `piece` keeps free behind the last.
            let room = (pieces.ids.len() + 3) * longest;
            return pieces.piece(room).map(Self::whole);
        }
        Ok(Self::Ids(Box::new(pieces)))
    }
}

impl Pieces {
    /// The next piece: as many ids as are sure to fit into `room` bytes.
    fn piece(&mut self, room: usize) -> io::Result<Vec<u8>> {
        let mut out = Vec::with_capacity(room);
        if !self.begun && self.form == Form::Json {
            out.extend_from_slice(b"{\"ids\":[");
        }
        while out.len() + 2 * self.longest <= room || self.ids.len() == 0 {
            let Some(id) = self.ids.next() else {
                self.ended = true;
                break;
            };
            let first = !std::mem::replace(&mut self.begun, true);
            match self.form {
                Form::Json => {
                    out.extend_from_slice(if first { b"\"" } else { b",\"" });
                    self.ids.write(id, &mut out);
                    out.push(b'"');
                }
                Form::Text => {
                    self.ids.write(id, &mut out);
                    out.push(b'\n');
                }
            }
        }
        if self.ended && self.ids.len() > 0 {
            return Err(io::Error::other("the system gave no more random bits"));
        }
        if self.ended && self.form == Form::Json {
            out.extend_from_slice(b"]}");
        }
        Ok(out)
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(match self.get_mut() {
            Self::Whole(bytes) => bytes.take().map(|bytes| Ok(Frame::data(bytes))),
            Self::Ids(pieces) if pieces.ended => None,
            Self::Ids(pieces) => Some(pieces.piece(CHUNK).map(|piece| Frame::data(piece.into()))),
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Ids(pieces) => pieces.ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Ids(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use hyper::body::Body as _;

    use super::*;
    use crate::testing;

    async fn text(body: Body) -> String {
        String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    async fn ids(count: usize) -> Ids {
        let mut caller = testing::mint().caller();
        let (namespace, callers) = caller.find(b"default").unwrap();
        namespace.take(callers, count).await.unwrap()
    }

    /// Goal: the same document whether whole or in pieces, at both sides of the bound between them.
    #[tokio::test]
    async fn every_count_gives_one_well_formed_document() {
        for count in [1, 2, WHOLE_BODY_IDS, WHOLE_BODY_IDS + 1, 5000] {
            let body = Body::ids(ids(count).await, Form::Json).unwrap();
            assert_eq!(body.size_hint().exact().is_some(), count <= WHOLE_BODY_IDS);
            let document: serde_json::Value = serde_json::from_str(&text(body).await).unwrap();
            let listed = document["ids"].as_array().unwrap();
            assert_eq!(listed.len(), count);
            assert!(
                listed.iter().all(serde_json::Value::is_string),
                "a number would lose digits in JavaScript"
            );

            let lines = text(Body::ids(ids(count).await, Form::Text).unwrap()).await;
            assert!(lines.ends_with('\n'));
            let lines: Vec<u64> = lines.lines().map(|line| line.parse().unwrap()).collect();
            assert_eq!(lines.len(), count);
            assert!(lines.is_sorted_by(|a, b| a < b));
        }
    }

    #[tokio::test]
    async fn no_piece_is_larger_than_its_bound() {
        let mut body = Body::ids(ids(5000).await, Form::Json).unwrap();
        let mut pieces = 0;
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(!piece.is_empty() && piece.len() <= CHUNK);
            pieces += 1;
        }
        assert!(pieces > 5000 * 21 / CHUNK);
    }
}
