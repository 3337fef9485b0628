//! Batches of ids of any scheme. An id is computed when it is read, so that a large batch needs little memory.
//! The text of an id is written here, so that no protocol has to know schemes.

use std::fmt::Write as _;
use std::iter::FusedIterator;
use std::sync::Arc;
use std::vec;

use snowmint::Layout;
use snowmint::generator::Batch;
use snowmint::scheme::{SchemeGenerator, SchemeId};
use snowmint_cluster::namespace::TextForm;
use snowmint_cluster::segment::{Run, RunIter};

use crate::settings::ServiceClock;

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
    /// The instant of an id that has none itself.
    pub(super) unix_ms: u64,
}

/// A batch of ids.
#[derive(Debug)]
#[must_use = "unread ids are lost"]
pub struct Ids {
    runs: Runs,
    format: IdFormat,
    len: usize,
}

#[derive(Debug)]
enum Runs {
    Snowflake { current: Option<Batch>, rest: vec::IntoIter<Batch> },
    Segment { current: Option<RunIter>, rest: vec::IntoIter<Run> },
    Wide { first: Option<SchemeId>, generator: Arc<WideGenerator> },
}

impl Ids {
    pub(super) fn snowflake(first: Option<Batch>, rest: Vec<Batch>, format: IdFormat) -> Self {
        let len = first.iter().chain(&rest).map(Batch::len).sum();
        Self { runs: Runs::Snowflake { current: first, rest: rest.into_iter() }, format, len }
    }

    pub(super) fn segment(first: Option<Run>, rest: Vec<Run>, format: IdFormat) -> Self {
        let runs: Vec<Run> = first.into_iter().chain(rest).collect();
        let len = runs.iter().map(count).sum();
        Self { runs: Runs::Segment { current: None, rest: runs.into_iter() }, format, len }
    }

    pub(super) fn wide(first: SchemeId, generator: Arc<WideGenerator>, format: IdFormat, len: usize) -> Self {
        Self { runs: Runs::Wide { first: Some(first), generator }, format, len }
    }

    /// Returns `true` if the ids are plain numbers, without a text form.
    pub const fn are_plain_numbers(&self) -> bool {
        self.format.form.is_none() && !matches!(self.runs, Runs::Wide { .. })
    }

    /// Takes the next ids that increase by one step each; `None` after the last, and for ids of 96 or 128 bits.
    pub fn next_range(&mut self) -> Option<IdRange> {
        let range = match &mut self.runs {
            Runs::Snowflake { current, rest } => loop {
                if let Some(run) = current.as_mut().and_then(Batch::next_run) {
                    break IdRange { first: run.first.get(), count: run.count, step: run.step };
                }
                *current = Some(rest.next()?);
            },
            Runs::Segment { current, rest } => {
                if let Some(first) = current.as_mut().and_then(Iterator::next) {
                    // Its run was begun by `next`.
                    IdRange { first, count: 1, step: 1 }
                } else {
                    let run = rest.next()?;
                    IdRange { first: run.first(), count: run.count().get(), step: run.step().get() }
                }
            }
            Runs::Wide { .. } => return None,
        };
        self.len = self.len.saturating_sub(usize::try_from(range.count).unwrap_or(usize::MAX));
        Some(range)
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
            (Minted::Number(number), Some(form)) => form.write_number(number, self.instant_of(number), out),
            (Minted::Wide(id), Some(form)) => form.write_id(id, id.unix_ms().unwrap_or(self.unix_ms), out),
            (Minted::Wide(id), None) => {
                let mut text = String::new();
                // Writing to a `String` never fails.
                let _ = write!(text, "{id}");
                out.extend_from_slice(text.as_bytes());
            }
        }
    }

    fn instant_of(&self, number: u64) -> u64 {
        let instant = self.layout.and_then(|layout| {
            let parts = layout.split(snowmint::Id::new(number).ok()?).ok()?;
            Some(layout.unix_ms(parts.timestamp))
        });
        instant.unwrap_or(self.unix_ms)
    }
}

impl Iterator for Ids {
    type Item = Minted;

    /// Returns the next id. Ends before [`len`](ExactSizeIterator::len) is 0 only if the system has no more randomness for
    /// ids of 96 or 128 bits.
    #[inline]
    fn next(&mut self) -> Option<Minted> {
        let next = match &mut self.runs {
            Runs::Snowflake { current, rest } => loop {
                if let Some(id) = current.as_mut().and_then(Iterator::next) {
                    break Some(Minted::Number(id.get()));
                }
                *current = Some(rest.next()?);
            },
            Runs::Segment { current, rest } => loop {
                if let Some(number) = current.as_mut().and_then(Iterator::next) {
                    break Some(Minted::Number(number));
                }
                let run = rest.next()?;
                if let Some(period) = run.period() {
                    self.format.unix_ms = period.begin_unix_ms();
                }
                *current = Some(run.into_iter());
            },
            Runs::Wide { .. } if self.len == 0 => None,
            Runs::Wide { first, generator } => {
                first.take().or_else(|| generator.try_next_id().ok()).map(Minted::Wide)
            }
        };
        if next.is_some() {
            self.len -= 1;
        }
        next
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
