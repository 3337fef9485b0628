//! One namespace that is served: what makes its ids, how they are written, and what it counts.
//! Each request finds one by its name, and from there on asks it alone.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use snowmint::error::Snippet;
use snowmint::generator::Batch;
use snowmint::inspect::Decoded;
use snowmint::{Clock as _, Id};
use snowmint_cluster::namespace::{Definition, InspectError, NumberSource, Scheme, TextForm};
use snowmint_cluster::segment::Run;
use snowmint_cluster::{NamespaceName, NoNumber, SegmentStatus, Segments};

use super::caller::Callers;
use super::error::MintError;
use super::ids::{self, Ids, WideGenerator, Writing};
use super::pool::Pool;
use crate::limits::{MAX_COUNT, MAX_WAIT};
use crate::settings::{ServiceClock, SharedClock};

/// A namespace that is served.
#[derive(Debug)]
pub struct Namespace {
    name: NamespaceName,
    definition: Definition,
    form: Option<Arc<TextForm>>,
    /// Text forms that it had before, in which ids are written somewhere; `None` for ids without one.
    earlier_texts: Vec<Option<TextForm>>,
    maker: Maker,
    clock: ServiceClock,
    issued: Counter<u64, AtomicU64>,
}

/// What makes the ids of a namespace; cheap to clone, and clones make them together.
#[derive(Clone, Debug)]
pub enum Maker {
    /// 64-bit ids of a layout.
    Snowflake(Arc<Pool>),
    /// Numbers of segments.
    Segment(Segments),
    /// Ids of 96 or 128 bits.
    Wide(Arc<WideGenerator>),
    /// Nothing: what it needs could not be opened yet.
    Missing(Arc<str>),
}

/// What [`Namespace::try_take`] got without waiting.
#[derive(Debug)]
pub enum Taken {
    /// All of them.
    All(Ids),
    /// There were not enough: [`Namespace::wait`] gets the rest.
    Part(Part),
}

/// The ids that could be had at once, and how many are still missing.
#[derive(Debug)]
#[must_use = "ids that are not read are lost"]
pub struct Part {
    first: First,
    missing: usize,
}

#[derive(Debug)]
enum First {
    Nothing,
    Batch(Batch),
    Run(Run),
}

impl Namespace {
    /// A namespace with what makes its ids; `clock` tells the day of a text whose number does not.
    pub fn new(name: NamespaceName, definition: Definition, maker: Maker, clock: &SharedClock) -> Self {
        let form = definition.text.clone().map(Arc::new);
        Self {
            name,
            definition,
            form,
            earlier_texts: Vec::new(),
            maker,
            clock: ServiceClock(Arc::clone(clock)),
            issued: Counter::default(),
        }
    }

    /// The same namespace after its definition changed: it goes on counting.
    #[must_use]
    pub fn changed(&self, definition: Definition, maker: Maker) -> Self {
        Self {
            name: self.name.clone(),
            form: definition.text.clone().map(Arc::new),
            definition,
            earlier_texts: self.earlier_texts.clone(),
            maker,
            clock: self.clock.clone(),
            issued: self.issued.clone(),
        }
    }

    /// The next id, where ids are plain numbers; `None` when a short wait would bring one, or they are not.
    /// Never waits.
    ///
    /// # Errors
    ///
    /// [`MintError`] when waiting is no answer.
    #[inline]
    pub fn try_one(&self, callers: &mut Callers) -> Result<Option<u64>, MintError> {
        if self.form.is_some() {
            return Ok(None);
        }
        match &self.maker {
            Maker::Snowflake(pool) => match callers.of(pool).try_take(1) {
                Ok(mut batch) => Ok(batch.next().map(Id::get)),
                Err(no_id) => pool.worth_waiting(no_id, 1).map(|()| None),
            },
            Maker::Segment(segments) => match segments.try_take(1) {
                Ok(run) => Ok(Some(run.first())),
                Err(no_number) => self.worth_waiting(no_number).map(|()| None),
            },
            Maker::Wide(_) | Maker::Missing(_) => Ok(None),
        }
    }

    /// Takes `count` ids, as many as can be had without waiting.
    ///
    /// # Errors
    ///
    /// [`MintError`]; a count out of range is refused before anything is taken.
    pub fn try_take(&self, callers: &mut Callers, count: usize) -> Result<Taken, MintError> {
        if !(1..=MAX_COUNT).contains(&count) {
            let value = Snippet::of(&count.to_string());
            return Err(MintError::BadCount { value, limit: MAX_COUNT });
        }
        let (first, got) = match &self.maker {
            Maker::Snowflake(pool) => match callers.of(pool).try_take(count) {
                Ok(batch) if batch.len() == count => {
                    return Ok(Taken::All(Ids::snowflake(Some(batch), Vec::new(), self.writing())));
                }
                Ok(batch) => {
                    let got = batch.len();
                    (First::Batch(batch), got)
                }
                Err(no_id) => {
                    pool.worth_waiting(no_id, count)?;
                    (First::Nothing, 0)
                }
            },
            Maker::Segment(segments) => match segments.try_take(count) {
                Ok(run) if ids::count(&run) == count => {
                    return Ok(Taken::All(Ids::segment(Some(run), Vec::new(), self.writing())));
                }
                Ok(run) => {
                    let got = ids::count(&run);
                    (First::Run(run), got)
                }
                Err(no_number) => {
                    self.worth_waiting(no_number)?;
                    (First::Nothing, 0)
                }
            },
            Maker::Wide(generator) => {
                let first = generator.try_next_id();
                let first = first.map_err(|error| MintError::NotReady { why: error.to_string() })?;
                let ids = Ids::wide(first, Arc::clone(generator), self.writing(), count);
                return Ok(Taken::All(ids));
            }
            Maker::Missing(why) => return Err(self.missing(why)),
        };
        Ok(Taken::Part(Part { first, missing: count - got }))
    }

    /// Waits for the ids that are missing, asleep, for as long as a request may wait.
    ///
    /// # Errors
    ///
    /// [`MintError`]; the ids of `part` are then lost, and were given to no one.
    pub async fn wait(&self, callers: &mut Callers, part: Part) -> Result<Ids, MintError> {
        let Part { first, missing } = part;
        match &self.maker {
            Maker::Snowflake(pool) => {
                let first = if let First::Batch(batch) = first { Some(batch) } else { None };
                let count = missing + first.as_ref().map_or(0, Batch::len);
                match tokio::time::timeout(MAX_WAIT, pool.take(callers.of(pool), missing)).await {
                    Ok(Ok(rest)) => Ok(Ids::snowflake(first, rest, self.writing())),
                    Ok(Err(no_id)) => Err(pool.refused(no_id, count)),
                    Err(_) => {
                        let ids_per_second = pool.layout.ids_per_second_per_worker();
                        Err(MintError::Busy { count, ids_per_second })
                    }
                }
            }
            Maker::Segment(segments) => {
                let first = if let First::Run(run) = first { Some(run) } else { None };
                let rest = self.in_time(segments.take(missing)).await?;
                Ok(Ids::segment(first, rest, self.writing()))
            }
            Maker::Wide(_) => Err(self.missing("its ids need no wait")),
            Maker::Missing(why) => Err(self.missing(why)),
        }
    }

    /// Takes `count` ids, 1 to [`MAX_COUNT`]; waits asleep where it has to.
    ///
    /// # Errors
    ///
    /// [`MintError`]; bad input changes nothing.
    ///
    /// # Cancel safety
    ///
    /// Ids that were taken when it is dropped are lost, and given to no one else.
    pub async fn take(&self, callers: &mut Callers, count: usize) -> Result<Ids, MintError> {
        match self.try_take(callers, count)? {
            Taken::All(ids) => Ok(ids),
            Taken::Part(part) => self.wait(callers, part).await,
        }
    }

    /// Whether ids can be made now. Of a layout it makes one, which nobody gets: only that proves lease and clock at
    /// once.
    ///
    /// # Errors
    ///
    /// [`MintError`] says what is missing.
    pub fn check_ready(&self, callers: &mut Callers) -> Result<(), MintError> {
        match (&self.maker, &self.definition.scheme) {
            (Maker::Snowflake(pool), _) => match callers.of(pool).try_take(1) {
                Ok(_) => Ok(()),
                Err(no_id) => pool.worth_waiting(no_id, 1),
            },
            // Another database may be down, and a maximum reached, without all other namespaces being taken away.
            (Maker::Segment(segments), Scheme::Segment(scheme))
                if matches!(scheme.source, NumberSource::Own(_)) =>
            {
                let status = segments.status();
                match status.waiting {
                    Some(why) if status.left == 0 && !status.exhausted => Err(MintError::NotReady {
                        why: format!("namespace {} has no numbers left: {why}", self.name),
                    }),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// The same namespace with the text forms that it had before.
    #[must_use]
    pub fn with_earlier_texts(self, earlier_texts: Vec<Option<TextForm>>) -> Self {
        Self { earlier_texts, ..self }
    }

    /// The text forms that it had before.
    pub fn earlier_texts(&self) -> &[Option<TextForm>] {
        &self.earlier_texts
    }

    /// Takes a text of this namespace apart, in the form it has or one that it had.
    ///
    /// # Errors
    ///
    /// [`InspectError`] for what is no text of its ids.
    pub fn inspect(&self, text: &str) -> Result<(Decoded, &'static str), InspectError> {
        self.definition.inspect(text, &self.earlier_texts)
    }

    /// Its name.
    pub const fn name(&self) -> &NamespaceName {
        &self.name
    }

    /// What it is.
    pub const fn definition(&self) -> &Definition {
        &self.definition
    }

    /// What makes its ids.
    pub const fn maker(&self) -> &Maker {
        &self.maker
    }

    /// How its numbers stand, where it has segments.
    pub fn segment_status(&self) -> Option<SegmentStatus> {
        match &self.maker {
            Maker::Segment(segments) => Some(segments.status()),
            _ => None,
        }
    }

    /// Ids that were given to clients since the start.
    pub fn issued(&self) -> u64 {
        self.issued.get()
    }

    pub(crate) fn add_issued(&self, ids: u64) {
        self.issued.inc_by(ids);
    }

    fn writing(&self) -> Writing {
        let Some(form) = &self.form else {
            return Writing { form: None, layout: None, unix_ms: 0 };
        };
        let layout = if let Maker::Snowflake(pool) = &self.maker { Some(pool.layout) } else { None };
        Writing { form: Some(Arc::clone(form)), layout, unix_ms: self.clock.unix_ms() }
    }

    pub(super) async fn in_time<T>(
        &self,
        numbers: impl Future<Output = Result<T, NoNumber>>,
    ) -> Result<T, MintError> {
        match tokio::time::timeout(MAX_WAIT, numbers).await {
            Ok(Ok(numbers)) => Ok(numbers),
            Ok(Err(no_number)) => Err(self.refused(&no_number)),
            Err(_) => Err(MintError::NotReady { why: self.no_numbers("the store did not answer in time") }),
        }
    }

    #[cold]
    pub(super) fn worth_waiting(&self, no_number: NoNumber) -> Result<(), MintError> {
        match no_number {
            NoNumber::NotReady { .. } => Ok(()),
            no_number => Err(self.refused(&no_number)),
        }
    }

    #[cold]
    fn refused(&self, no_number: &NoNumber) -> MintError {
        let name = Snippet::of(self.name.as_str());
        match no_number {
            NoNumber::Exhausted { maximum } => MintError::NumbersEnded { name, maximum: *maximum },
            NoNumber::NotConsecutive { .. } => {
                MintError::NotCounting { name, why: "its numbers are more than 1 apart" }
            }
            NoNumber::RunTooLong { count, given } => MintError::RunTooLong { count: *count, given: *given },
            no_number => MintError::NotReady { why: self.no_numbers(&no_number.to_string()) },
        }
    }

    fn no_numbers(&self, why: &str) -> String {
        format!("namespace {}: {why}", self.name)
    }

    #[cold]
    pub(super) fn missing(&self, why: &str) -> MintError {
        MintError::NotReady { why: self.no_numbers(why) }
    }
}
