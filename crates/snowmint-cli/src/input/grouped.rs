//! One number with commas between groups of three digits, among items that commas separate.

use super::{BYTE_ORDER_MARK, Sink, give};
use crate::error::Failure;

/// Groups of the largest number of 64 bits, 18 to 20 digits.
const MOST: usize = 7;
/// Fewer groups than this are a list of small numbers, unless they stand in quotes: no id has so few digits.
const LEAST: usize = 5;

/// Pieces of one word that so far are groups of one number.
#[derive(Default)]
pub(super) struct Grouped {
    pieces: Vec<u8>,
    /// The ends of the pieces.
    ends: Vec<usize>,
}

impl Grouped {
    /// Receives a piece of a word and the byte after it: a comma, or the end of the word.
    pub(super) fn piece(
        &mut self,
        piece: &[u8],
        end: u8,
        line: u64,
        sink: &mut impl Sink,
    ) -> Result<(), Failure> {
        // A quote ends the number, whatever comes after it.
        let goes_on = end == b',' && !(self.is_quoted() && piece.ends_with(b"\""));
        if self.ends.is_empty() && !goes_on {
            return give(piece, line, sink);
        }
        if self.ends.len() == MOST || !self.is_next(piece, goes_on) {
            self.give_each(line, sink)?;
            // It may be the first group of another number.
            if !goes_on || !self.is_next(piece, goes_on) {
                return give(piece, line, sink);
            }
        }
        self.pieces.extend_from_slice(piece);
        self.ends.push(self.pieces.len());
        if goes_on {
            return Ok(());
        }
        if !self.is_number() {
            return self.give_each(line, sink);
        }
        let mut number = Vec::with_capacity(self.pieces.len() + self.ends.len());
        for group in self.groups() {
            number.extend_from_slice(group);
            number.push(b',');
        }
        number.pop();
        self.clear();
        give(&number, line, sink)
    }

    /// Returns whether a piece may be the next group.
    fn is_next(&self, piece: &[u8], goes_on: bool) -> bool {
        let first = self.ends.is_empty();
        let digits = if first { opened(piece).unwrap_or_else(|| unmarked(piece)) } else { piece };
        let digits = if goes_on { digits } else { digits.strip_suffix(b"\"").unwrap_or(digits) };
        let lengths = if first { 1..=3 } else { 3..=3 };
        lengths.contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
    }

    /// Returns whether the pieces of a whole word are one number: in quotes, or in several groups that do
    /// not increase, as numbers of a list do.
    fn is_number(&self) -> bool {
        let is_quoted = self.is_quoted();
        is_quoted == self.pieces.ends_with(b"\"")
            && (is_quoted || self.ends.len() >= LEAST && !self.is_ascending())
    }

    /// Returns whether the first group begins with a quote.
    fn is_quoted(&self) -> bool {
        self.groups().next().is_some_and(|first| opened(first).is_some())
    }

    /// Returns whether the groups increase, as numbers of a list do.
    fn is_ascending(&self) -> bool {
        self.groups().is_sorted_by(|one, next| (one.len(), one) < (next.len(), next))
    }

    fn groups(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| &self.pieces[*start..*end])
    }

    /// Passes each piece on as an item of its own.
    fn give_each(&mut self, line: u64, sink: &mut impl Sink) -> Result<(), Failure> {
        for group in self.groups() {
            give(group, line, sink)?;
        }
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        self.pieces.clear();
        self.ends.clear();
    }
}

/// Returns a piece without its opening quote; `None` if it has none.
fn opened(piece: &[u8]) -> Option<&[u8]> {
    let piece = unmarked(piece);
    piece.strip_prefix(b"=\"").or_else(|| piece.strip_prefix(b"\""))
}

fn unmarked(piece: &[u8]) -> &[u8] {
    piece.strip_prefix(BYTE_ORDER_MARK).unwrap_or(piece)
}
