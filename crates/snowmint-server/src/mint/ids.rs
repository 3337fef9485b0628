//! Batches of ids of any scheme. An id is computed when it is read, so that a large batch needs little
//! memory. The text of an id is written here, so that no protocol has to know schemes.

use std::fmt::Write as _;
use std::iter::FusedIterator;
use std::sync::Arc;
use std::vec;

use snowmint::generator::Batch;
use snowmint::hide::Hider;
use snowmint::scheme::{SchemeGenerator, SchemeId};
use snowmint::{Id, Layout};
use snowmint_cluster::namespace::{TextForm, TimeZone};
use snowmint_cluster::segment::Run;

use super::write_numbers::Entry;
use crate::clock::ServiceClock;

/// The generator of ids of 96 or 128 bits.
pub(crate) type WideGenerator = SchemeGenerator<ServiceClock>;

/// An id of any scheme.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Minted {
    /// A 64-bit id, or a number of a segment.
    Number(u64),
    /// An id of 96 or 128 bits.
    Wide(SchemeId),
}

/// Ids that increase by one step each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The smallest id.
    pub first: u64,
    /// The number of ids, at least 1.
    pub count: u64,
    /// The distance from one id to the next.
    pub step: u64,
}

/// The form in which the ids of a namespace are written.
#[derive(Clone, Debug)]
pub(super) struct IdFormat {
    /// `None` for plain numbers, or the scheme's own text.
    pub(super) form: Option<Arc<TextForm>>,
    /// Decodes the instant of a number; `None` if numbers have no instant.
    pub(super) layout: Option<Layout>,
    /// The time zone of dates.
    pub(super) time_zone: TimeZone,
    /// The instant of an id that has none itself, in [local milliseconds](TimeZone::local_ms).
    pub(super) local_ms: u64,
    /// The length of the longest text in bytes.
    pub(super) longest: usize,
}

impl IdFormat {
    /// Plain numbers, up to 2^63 - 1.
    pub(super) const NUMBER: Self =
        Self { form: None, layout: None, time_zone: TimeZone::UTC, local_ms: 0, longest: 19 };
}

/// A batch of ids.
#[derive(Debug)]
#[must_use = "unread ids are lost"]
pub struct Ids {
    /// The plain numbers that come next: reading one is an addition.
    range: IdRange,
    /// What follows the range.
    rest: Rest,
    format: IdFormat,
    len: usize,
}

#[derive(Debug)]
enum Rest {
    Snowflake { current: Option<Batch>, rest: vec::IntoIter<Batch> },
    Segment(vec::IntoIter<Run>),
    Wide { first: Option<SchemeId>, generator: Arc<WideGenerator> },
    Hidden { plain: Box<Ids>, hider: Arc<Hider> },
}

impl IdRange {
    const EMPTY: Self = Self { first: 0, count: 0, step: 1 };

    /// Removes the first numbers, at most `most`.
    #[inline]
    fn split_off(&mut self, most: u64) -> Self {
        let count = self.count.min(most);
        let taken = Self { count, ..*self };
        // The number after the last one may not exist, and is then never read.
        self.first = self.first.wrapping_add(self.step.wrapping_mul(count));
        self.count -= count;
        taken
    }
}

impl Ids {
    pub(super) fn snowflake(first: Option<Batch>, rest: Vec<Batch>, format: IdFormat) -> Self {
        let len = first.iter().chain(&rest).map(Batch::len).sum();
        let rest = Rest::Snowflake { current: first, rest: rest.into_iter() };
        Self { range: IdRange::EMPTY, rest, format, len }
    }

    pub(super) fn segment(first: Option<Run>, rest: Vec<Run>, format: IdFormat) -> Self {
        let runs: Vec<Run> = first.into_iter().chain(rest).collect();
        let len = runs.iter().map(count).sum();
        Self { range: IdRange::EMPTY, rest: Rest::Segment(runs.into_iter()), format, len }
    }

    pub(super) fn wide(first: SchemeId, generator: Arc<WideGenerator>, format: IdFormat, len: usize) -> Self {
        let rest = Rest::Wide { first: Some(first), generator };
        Self { range: IdRange::EMPTY, rest, format, len }
    }

    /// Hides these ids, which must be numbers.
    pub(super) fn hidden(self, hider: Arc<Hider>) -> Self {
        // The instant of an id is not in its hidden number, and no text form of hidden ids has a date.
        let format = IdFormat { layout: None, ..self.format.clone() };
        let (range, len) = (IdRange::EMPTY, self.len);
        Self { range, rest: Rest::Hidden { plain: Box::new(self), hider }, format, len }
    }

    /// Returns `true` if the ids are plain numbers, without a text form.
    pub const fn are_plain_numbers(&self) -> bool {
        self.format.form.is_none() && !matches!(self.rest, Rest::Wide { .. })
    }

    /// Returns the length of the longest text in bytes.
    pub const fn longest_text(&self) -> usize {
        self.format.longest
    }

    /// Takes the next ids that increase by one step each; `None` after the last, and for ids of 96 or 128
    /// bits.
    pub fn next_range(&mut self) -> Option<IdRange> {
        self.next_range_within(usize::MAX)
    }

    /// Takes the next ids that increase by one step each, at most `most`.
    fn next_range_within(&mut self, most: usize) -> Option<IdRange> {
        if self.range.count == 0 && !self.begin_range() {
            return None;
        }
        let taken = self.range.split_off(most as u64);
        // Both are parts of a request, whose count is a `usize`.
        self.len = self.len.saturating_sub(usize::try_from(taken.count).unwrap_or(usize::MAX));
        Some(taken)
    }

    /// Begins the next range of plain numbers. Returns `false` after the last.
    fn begin_range(&mut self) -> bool {
        self.range = match &mut self.rest {
            Rest::Snowflake { current, rest } => loop {
                if let Some(run) = current.as_mut().and_then(Batch::next_run) {
                    break IdRange { first: run.first.get(), count: run.count, step: run.step };
                }
                let Some(next) = rest.next() else { return false };
                *current = Some(next);
            },
            Rest::Segment(rest) => {
                let Some(run) = rest.next() else { return false };
                if let Some(period) = run.period() {
                    // A period is a date, whatever its zone.
                    self.format.local_ms = period.begin_unix_ms();
                }
                IdRange { first: run.first(), count: run.count().get(), step: run.step().get() }
            }
            // Hidden numbers follow no order: each is a range of its own.
            Rest::Hidden { plain, hider } => {
                let Some(Minted::Number(number)) = plain.next() else { return false };
                let Ok(id) = Id::new(number) else { return false };
                IdRange { first: hider.hide(id).get(), count: 1, step: 1 }
            }
            Rest::Wide { .. } => return false,
        };
        true
    }

    /// Appends the next plain numbers as decimal text, at most `most`. Returns their number: 0 after the
    /// last, and for other ids.
    pub(crate) fn write_numbers(&mut self, out: &mut Vec<u8>, most: usize, entry: Entry) -> usize {
        if !self.are_plain_numbers() {
            return 0;
        }
        let mut written = 0;
        while written < most
            && let Some(IdRange { first, count, step }) = self.next_range_within(most - written)
        {
            entry.write_all(out, first, count, step);
            written += usize::try_from(count).unwrap_or(usize::MAX);
        }
        written
    }

    /// Appends the next plain numbers as eight bytes each, the lowest first, at most `most`. Returns their
    /// number: 0 after the last, and for other ids.
    pub(crate) fn write_le(&mut self, out: &mut Vec<u8>, most: usize) -> usize {
        let mut written = 0;
        while written < most
            && let Some(IdRange { first, count, step }) = self.next_range_within(most - written)
        {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            let (begin, mut number) = (out.len(), first);
            out.resize(begin + count * size_of::<u64>(), 0);
            for bytes in out[begin..].as_chunks_mut().0 {
                *bytes = number.to_le_bytes();
                number = number.wrapping_add(step);
            }
            written += count;
        }
        written
    }

    /// Appends the text of `id`, which must be the one that was read last.
    pub fn write(&self, id: Minted, out: &mut Vec<u8>) {
        self.format.write(id, out);
    }
}

impl IdFormat {
    pub(super) fn write(&self, id: Minted, out: &mut Vec<u8>) {
        match (id, &self.form) {
            (Minted::Number(number), None) => {
                out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            }
            (Minted::Number(number), Some(form)) => form.write_number(number, self.local_ms_of(number), out),
            (Minted::Wide(id), Some(form)) => {
                let local_ms = id.unix_ms().map_or(self.local_ms, |unix_ms| self.time_zone.local_ms(unix_ms));
                form.write_id(id, local_ms, out);
            }
            (Minted::Wide(id), None) => {
                let mut text = String::new();
                // Writing to a `String` never fails.
                let _ = write!(text, "{id}");
                out.extend_from_slice(text.as_bytes());
            }
        }
    }

    fn local_ms_of(&self, number: u64) -> u64 {
        let instant = self.layout.and_then(|layout| {
            let parts = layout.split(Id::new(number).ok()?).ok()?;
            Some(self.time_zone.local_ms(layout.unix_ms(parts.timestamp)))
        });
        instant.unwrap_or(self.local_ms)
    }
}

impl Iterator for Ids {
    type Item = Minted;

    /// Returns the next id. Ends before [`len`](ExactSizeIterator::len) is 0 only if the system has no more
    /// randomness for ids of 96 or 128 bits.
    #[inline]
    fn next(&mut self) -> Option<Minted> {
        if let Rest::Wide { first, generator } = &mut self.rest {
            self.len.checked_sub(1)?;
            let id = first.take().or_else(|| generator.try_next_id().ok())?;
            self.len -= 1;
            return Some(Minted::Wide(id));
        }
        let one = self.next_range_within(1)?;
        Some(Minted::Number(one.first))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }
}

impl ExactSizeIterator for Ids {}
impl FusedIterator for Ids {}

/// Returns the length of a run, which is at most the maximum count of a request.
pub(super) fn count(run: &Run) -> usize {
    usize::try_from(run.count().get()).unwrap_or(usize::MAX)
}
