//! One served namespace: the backend that makes its ids, the form they are written in, and its counters. A
//! request finds the namespace by name, and then uses nothing else.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use snowmint::error::Snippet;
use snowmint::generator::Batch;
use snowmint::hide::Hider;
use snowmint::inspect::Decoded;
use snowmint::{Clock as _, Id};
use snowmint_admin::namespaces::numbers_ended;
use snowmint_cluster::namespace::{Definition, InspectError, NumberSource, Scheme, TextForm};
use snowmint_cluster::segment::Run;
use snowmint_cluster::{NamespaceName, NoNumberError, SegmentStatus, Segments};

use super::error::MintError;
use super::id_pool::{IdHandles, IdPool};
use super::ids::{self, IdFormat, Ids, WideGenerator};
use crate::clock::{ServiceClock, SharedClock};
use crate::limits::{MAX_COUNT, MAX_RANGE_COUNT, MAX_WAIT};

/// Why a backend that would hide ids twice makes none. [`Backend::hidden`] never builds one.
const HIDDEN_TWICE: &str = "its ids are hidden twice";

/// A served namespace.
#[derive(Debug)]
pub struct Namespace {
    name: NamespaceName,
    definition: Definition,
    /// Why INCR may not draw from a counter: its numbers do not increase by 1. `Ok` for other schemes, which
    /// INCR rejects by their backend. Computed once, read for each command.
    steps_by_one: Result<(), &'static str>,
    form: Option<Arc<TextForm>>,
    /// The length of the longest text of an id in bytes. Computed once, read for each request.
    longest_text: usize,
    /// Earlier text forms, in which existing ids are written; `None` for ids without a text form.
    earlier_texts: Vec<Option<TextForm>>,
    backend: Backend,
    clock: ServiceClock,
    issued: Counter<u64, AtomicU64>,
}

/// Makes the ids of a namespace. Clones are cheap and share everything.
#[derive(Clone, Debug)]
pub enum Backend {
    /// 64-bit ids of a layout.
    Snowflake(Arc<IdPool>),
    /// Numbers of segments.
    Segment(Segments),
    /// Ids of 96 or 128 bits.
    Wide(Arc<WideGenerator>),
    /// Nothing, for this reason: for example, its store could not be opened yet.
    Unavailable(Arc<str>),
    /// The ids of another backend, hidden. A backend of its own, so that nothing serves these ids unhidden by
    /// accident.
    Hidden {
        /// Makes the ids.
        plain: Box<Backend>,
        /// Hides them.
        hider: Arc<Hider>,
    },
}

impl Backend {
    /// Returns the backend that makes the ids, before they are hidden: for its state, not for its ids.
    pub fn plain(&self) -> &Self {
        match self {
            Self::Hidden { plain, .. } => plain,
            plain => plain,
        }
    }

    /// Returns what hides the ids, if they are hidden.
    pub const fn hider(&self) -> Option<&Arc<Hider>> {
        match self {
            Self::Hidden { hider, .. } => Some(hider),
            _ => None,
        }
    }

    /// Returns this backend with its ids hidden.
    #[must_use]
    pub fn hidden(self, hider: Arc<Hider>) -> Self {
        match self {
            Self::Unavailable(_) | Self::Hidden { .. } => self,
            plain => Self::Hidden { plain: Box::new(plain), hider },
        }
    }
}

/// The ids that [`Namespace::try_take`] got without waiting.
#[derive(Debug)]
pub enum Taken {
    /// All of them.
    All(Ids),
    /// Only some of them: [`Namespace::wait`] gets the rest.
    Partial(PartialIds),
}

/// The ids that were available at once, and the number still missing.
#[derive(Debug)]
#[must_use = "unread ids are lost"]
pub struct PartialIds {
    first: First,
    missing: usize,
}

impl PartialIds {
    pub(super) const fn missing(&self) -> usize {
        self.missing
    }
}

#[derive(Debug)]
enum First {
    Nothing,
    Batch(Batch),
    Run(Run),
}

impl Namespace {
    /// Returns a namespace whose ids come from `backend`. `clock` gives the date for text forms with one.
    pub fn new(name: NamespaceName, definition: Definition, backend: Backend, clock: &SharedClock) -> Self {
        let form = definition.text.clone().map(Arc::new);
        Self {
            name,
            steps_by_one: steps_by_one(&definition),
            longest_text: definition.longest_text(),
            definition,
            form,
            earlier_texts: Vec::new(),
            backend,
            clock: ServiceClock(Arc::clone(clock)),
            issued: Counter::default(),
        }
    }

    /// Returns this namespace with a changed definition. Its metrics continue.
    #[must_use]
    pub fn changed(&self, definition: Definition, backend: Backend) -> Self {
        Self {
            name: self.name.clone(),
            steps_by_one: steps_by_one(&definition),
            longest_text: definition.longest_text(),
            form: definition.text.clone().map(Arc::new),
            definition,
            earlier_texts: self.earlier_texts.clone(),
            backend,
            clock: self.clock.clone(),
            issued: self.issued.clone(),
        }
    }

    /// Takes the next id as a plain number. Never waits.
    ///
    /// Returns `None` if a short wait would bring an id, or if the ids are not plain numbers or are hidden.
    ///
    /// # Errors
    ///
    /// [`MintError`] if waiting does not help.
    #[inline]
    pub fn try_one(&self, handles: &mut IdHandles) -> Result<Option<u64>, MintError> {
        if self.form.is_some() {
            return Ok(None);
        }
        match &self.backend {
            Backend::Snowflake(pool) => match handles.of(pool).try_take(1) {
                Ok(mut batch) => Ok(batch.next().map(Id::get)),
                Err(no_id) => pool.id_may_come(no_id, 1).map(|()| None),
            },
            Backend::Segment(segments) => match segments.try_take(1) {
                Ok(run) => Ok(Some(run.first())),
                Err(no_number) => self.numbers_may_come(no_number).map(|()| None),
            },
            Backend::Wide(_) | Backend::Unavailable(_) | Backend::Hidden { .. } => Ok(None),
        }
    }

    /// Takes 1 to `count` ids as plain numbers in one step, for requests that ask for one id each. Never
    /// waits.
    ///
    /// Returns `None` as [`try_one`](Self::try_one) does.
    ///
    /// # Errors
    ///
    /// As [`try_one`](Self::try_one).
    pub(crate) fn try_several(
        &self,
        handles: &mut IdHandles,
        count: usize,
    ) -> Result<Option<Ids>, MintError> {
        if self.form.is_some() {
            return Ok(None);
        }
        match &self.backend {
            Backend::Snowflake(pool) => match handles.of(pool).try_take(count) {
                Ok(batch) => Ok(Some(Ids::snowflake(Some(batch), Vec::new(), self.id_format()))),
                Err(no_id) => pool.id_may_come(no_id, 1).map(|()| None),
            },
            // Without a text form, as checked above.
            Backend::Segment(segments) => self.several_numbers(segments, count),
            Backend::Wide(_) | Backend::Unavailable(_) | Backend::Hidden { .. } => Ok(None),
        }
    }

    /// Takes plain numbers, whatever the text form.
    fn several_numbers(&self, segments: &Segments, count: usize) -> Result<Option<Ids>, MintError> {
        match segments.try_take(count) {
            Ok(run) => Ok(Some(Ids::segment(Some(run), Vec::new(), IdFormat::NUMBER))),
            Err(no_number) => self.numbers_may_come(no_number).map(|()| None),
        }
    }

    /// Takes up to `count` ids without waiting.
    ///
    /// # Errors
    ///
    /// [`MintError`]. An invalid count is rejected before any id is taken.
    pub fn try_take(&self, handles: &mut IdHandles, count: usize) -> Result<Taken, MintError> {
        self.try_take_within(handles, count, MAX_COUNT)
    }

    /// Takes up to `count` ids without waiting, to be read as ranges: up to [`MAX_RANGE_COUNT`].
    ///
    /// # Errors
    ///
    /// As [`try_take`](Self::try_take), and [`MintError::NoRanges`] if the ids are not plain numbers or are
    /// hidden.
    pub fn try_take_ranges(&self, handles: &mut IdHandles, count: usize) -> Result<Taken, MintError> {
        let why = if self.definition.scheme.hide().is_some() { Some("they are hidden") } else { None };
        if let Some(why) = why.or_else(|| self.why_no_numbers()) {
            return Err(MintError::NoRanges { name: Snippet::of(self.name.as_str()), why });
        }
        self.try_take_within(handles, count, MAX_RANGE_COUNT)
    }

    /// Returns why the ids are not plain numbers; `None` if they are.
    pub(crate) const fn why_no_numbers(&self) -> Option<&'static str> {
        match (self.definition.is_plain_number(), &self.definition.text) {
            (true, _) => None,
            (false, Some(_)) => Some("they have a text form"),
            (false, None) => Some("they have more than 64 bits"),
        }
    }

    fn try_take_within(
        &self,
        handles: &mut IdHandles,
        count: usize,
        limit: usize,
    ) -> Result<Taken, MintError> {
        let taken = self.try_take_plain(handles, count, limit)?;
        Ok(match (taken, self.backend.hider()) {
            (Taken::All(ids), Some(hider)) => Taken::All(ids.hidden(Arc::clone(hider))),
            (taken, _) => taken,
        })
    }

    /// Takes ids that are not hidden yet.
    fn try_take_plain(
        &self,
        handles: &mut IdHandles,
        count: usize,
        limit: usize,
    ) -> Result<Taken, MintError> {
        if !(1..=limit).contains(&count) {
            let value = Snippet::of(&count.to_string());
            return Err(MintError::BadCount { value, limit });
        }
        let (first, got) = match self.backend.plain() {
            Backend::Snowflake(pool) if pool.is_short_for(count) => (First::Nothing, 0),
            Backend::Snowflake(pool) => match handles.of(pool).try_take(count) {
                Ok(batch) if batch.len() == count => {
                    return Ok(Taken::All(Ids::snowflake(Some(batch), Vec::new(), self.id_format())));
                }
                Ok(batch) => {
                    let got = batch.len();
                    (First::Batch(batch), got)
                }
                Err(no_id) => {
                    pool.id_may_come(no_id, count)?;
                    (First::Nothing, 0)
                }
            },
            // `wait` refuses the request as a whole, if that is true.
            Backend::Segment(segments) if segments.may_lack(count as u64) => (First::Nothing, 0),
            Backend::Segment(segments) => match segments.try_take(count) {
                Ok(run) if ids::count(&run) == count => {
                    return Ok(Taken::All(Ids::segment(Some(run), Vec::new(), self.id_format())));
                }
                Ok(run) => {
                    let got = ids::count(&run);
                    (First::Run(run), got)
                }
                Err(no_number) => {
                    self.numbers_may_come(no_number)?;
                    (First::Nothing, 0)
                }
            },
            Backend::Wide(generator) => {
                let first = generator.try_next_id();
                let first = first.map_err(|error| MintError::NotReady { why: error.to_string() })?;
                let ids = Ids::wide(first, Arc::clone(generator), self.id_format(), count);
                return Ok(Taken::All(ids));
            }
            Backend::Unavailable(why) => return Err(self.unavailable(why)),
            Backend::Hidden { .. } => return Err(self.unavailable(HIDDEN_TWICE)),
        };
        Ok(Taken::Partial(PartialIds { first, missing: count - got }))
    }

    /// Sleeps until the missing ids are available, for `within` at most.
    ///
    /// # Errors
    ///
    /// [`MintError`]. The ids in `partial` are then lost; nobody else gets them.
    pub async fn wait(
        &self,
        handles: &mut IdHandles,
        partial: PartialIds,
        within: Duration,
    ) -> Result<Ids, MintError> {
        // Boxed: otherwise every request's future has room for this wait.
        let ids = Box::pin(self.wait_plain(handles, partial, within)).await?;
        Ok(match self.backend.hider() {
            Some(hider) => ids.hidden(Arc::clone(hider)),
            None => ids,
        })
    }

    /// Waits for ids that are not hidden yet.
    async fn wait_plain(
        &self,
        handles: &mut IdHandles,
        partial: PartialIds,
        within: Duration,
    ) -> Result<Ids, MintError> {
        let PartialIds { first, missing } = partial;
        match self.backend.plain() {
            Backend::Snowflake(pool) => {
                let first = if let First::Batch(batch) = first { Some(batch) } else { None };
                let count = missing + first.as_ref().map_or(0, Batch::len);
                match tokio::time::timeout(within, pool.take(handles.of(pool), missing)).await {
                    Ok(Ok(rest)) => Ok(Ids::snowflake(first, rest, self.id_format())),
                    Ok(Err(no_id)) => Err(pool.refused(no_id, count)),
                    Err(_) => Err(self.busy(count, within)),
                }
            }
            Backend::Segment(segments) => {
                let first = if let First::Run(run) = first { Some(run) } else { None };
                let rest = self.in_time(segments.take(missing), within).await?;
                Ok(Ids::segment(first, rest, self.id_format()))
            }
            Backend::Wide(_) => Err(self.unavailable("its ids never wait")),
            Backend::Unavailable(why) => Err(self.unavailable(why)),
            Backend::Hidden { .. } => Err(self.unavailable(HIDDEN_TWICE)),
        }
    }

    /// Takes `count` ids, 1 to [`MAX_COUNT`]. Sleeps if it has to wait, for [`MAX_WAIT`] at most.
    ///
    /// # Errors
    ///
    /// [`MintError`]. Invalid input changes nothing.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the ids it took are lost; nobody else gets them.
    pub async fn take(&self, handles: &mut IdHandles, count: usize) -> Result<Ids, MintError> {
        match self.try_take(handles, count)? {
            Taken::All(ids) => Ok(ids),
            Taken::Partial(partial) => self.wait(handles, partial, MAX_WAIT).await,
        }
    }

    /// Checks that the namespace can make ids now. Makes none.
    ///
    /// # Errors
    ///
    /// [`MintError`] says what is missing.
    pub fn check_ready(&self) -> Result<(), MintError> {
        match (self.backend.plain(), &self.definition.scheme) {
            (Backend::Snowflake(pool), _) => pool.check_ready(),
            // A node stays ready if another database is down or a maximum is reached: its other namespaces
            // still work.
            (Backend::Segment(segments), Scheme::Segment(scheme))
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

    /// Returns why no numbers are reserved, while reservations fail.
    pub(crate) fn reserves_no_numbers(&self) -> Option<String> {
        let why = self.segment_status()?.waiting?;
        Some(format!("{} reserves no numbers: {why}", self.name))
    }

    /// Returns that all numbers up to the maximum are reserved, if they are.
    pub(crate) fn numbers_ended(&self) -> Option<String> {
        let status = self.segment_status()?;
        let what = if status.left == 0 { "used" } else { "reserved" };
        let ended = numbers_ended(self.name.as_str(), status.maximum, what, status.period.is_some());
        status.exhausted.then_some(ended)
    }

    /// Returns this namespace with its earlier text forms.
    #[must_use]
    pub fn with_earlier_texts(self, earlier_texts: Vec<Option<TextForm>>) -> Self {
        Self { earlier_texts, ..self }
    }

    /// Returns its earlier text forms.
    pub fn earlier_texts(&self) -> &[Option<TextForm>] {
        &self.earlier_texts
    }

    /// Decodes an id of this namespace from its text, in the current or an earlier text form.
    ///
    /// # Errors
    ///
    /// [`InspectError`] if the text is not an id of this namespace.
    pub fn inspect(&self, text: &str) -> Result<(Decoded, &'static str), InspectError> {
        self.definition.inspect(text, &self.earlier_texts, self.backend.hider().map(|hider| &**hider))
    }

    /// Returns the length of the longest text of an id in bytes.
    pub(crate) const fn longest_text(&self) -> usize {
        self.longest_text
    }

    /// Returns the name.
    pub const fn name(&self) -> &NamespaceName {
        &self.name
    }

    /// Returns the definition.
    pub const fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Returns the backend that makes the ids.
    pub const fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Returns the state of its numbers, if it has segments.
    pub fn segment_status(&self) -> Option<SegmentStatus> {
        match self.backend.plain() {
            Backend::Segment(segments) => Some(segments.status()),
            _ => None,
        }
    }

    /// Returns the number of ids given to clients since the start.
    pub fn issued(&self) -> u64 {
        self.issued.get()
    }

    pub(crate) fn add_issued(&self, ids: u64) {
        self.issued.inc_by(ids);
    }

    fn id_format(&self) -> IdFormat {
        let longest = self.longest_text;
        let Some(form) = &self.form else {
            return IdFormat { longest, ..IdFormat::NUMBER };
        };
        let layout =
            if let Backend::Snowflake(pool) = self.backend.plain() { Some(pool.layout) } else { None };
        let time_zone = self.definition.time_zone.clone();
        let local_ms = time_zone.local_ms(self.clock.unix_ms());
        IdFormat { form: Some(Arc::clone(form)), layout, time_zone, local_ms, longest }
    }

    async fn in_time<T>(
        &self,
        numbers: impl Future<Output = Result<T, NoNumberError>>,
        within: Duration,
    ) -> Result<T, MintError> {
        match tokio::time::timeout(within, numbers).await {
            Ok(Ok(numbers)) => Ok(numbers),
            Ok(Err(no_number)) => Err(self.refused(&no_number)),
            Err(_) => Err(MintError::NotReady { why: self.no_numbers("the store did not answer in time") }),
        }
    }

    /// Returns `Ok` if a short wait may bring numbers.
    #[cold]
    fn numbers_may_come(&self, no_number: NoNumberError) -> Result<(), MintError> {
        match no_number {
            NoNumberError::NotReady { .. } => Ok(()),
            no_number => Err(self.refused(&no_number)),
        }
    }

    #[cold]
    fn refused(&self, no_number: &NoNumberError) -> MintError {
        let name = Snippet::of(self.name.as_str());
        match no_number {
            NoNumberError::Exhausted { maximum } => MintError::NumbersEnded { name, maximum: *maximum },
            NoNumberError::NotConsecutive { .. } => {
                MintError::NotCounting { name, why: "its numbers are more than 1 apart" }
            }
            NoNumberError::RunTooLong { count, given } => {
                MintError::RunTooLong { count: *count, given: *given }
            }
            NoNumberError::TooFewLeft { left, maximum, .. } => {
                MintError::TooFewLeft { name, left: *left, maximum: *maximum }
            }
            no_number => MintError::NotReady { why: self.no_numbers(&no_number.to_string()) },
        }
    }

    fn no_numbers(&self, why: &str) -> String {
        format!("namespace {}: {why}", self.name)
    }

    /// Returns the error for ids that could not be made in time.
    #[cold]
    pub(crate) fn busy(&self, count: usize, within: Duration) -> MintError {
        let layout =
            if let Backend::Snowflake(pool) = self.backend.plain() { Some(pool.layout) } else { None };
        let ids_per_second = layout.map_or(0, |layout| layout.ids_per_second_per_worker());
        MintError::Busy { count, within, ids_per_second }
    }

    #[cold]
    fn unavailable(&self, why: &str) -> MintError {
        MintError::NotReady { why: self.no_numbers(why) }
    }
}

/// Namespaces as Redis counters: INCR and INCRBY need plain numbers that increase by 1.
impl Namespace {
    /// Takes `count` consecutive numbers, for Redis' INCRBY.
    ///
    /// # Errors
    ///
    /// [`MintError::NotCounting`] if the numbers are not plain, are more than 1 apart, or restart.
    ///
    /// # Cancel safety
    ///
    /// As [`take`](Self::take).
    pub async fn take_run(&self, count: NonZeroU64) -> Result<Run, MintError> {
        let segments = self.counting()?;
        self.in_time(segments.take_run(count), MAX_WAIT).await
    }

    /// Takes the next number, for Redis' INCR; `None` if there is none in memory. Never waits.
    ///
    /// # Errors
    ///
    /// As [`take_run`](Self::take_run).
    pub fn try_increment(&self) -> Result<Option<u64>, MintError> {
        match self.counting()?.try_take(1) {
            Ok(run) => Ok(Some(run.first())),
            Err(no_number) => self.numbers_may_come(no_number).map(|()| None),
        }
    }

    /// Takes the next 1 to `count` numbers in one step, for several INCR; `None` if there is none in memory.
    /// Never waits.
    ///
    /// # Errors
    ///
    /// As [`take_run`](Self::take_run).
    pub(crate) fn try_increments(&self, count: usize) -> Result<Option<Ids>, MintError> {
        self.several_numbers(self.counting()?, count)
    }

    fn counting(&self) -> Result<&Segments, MintError> {
        let refuse = |why| Err(MintError::NotCounting { name: Snippet::of(self.name().as_str()), why });
        match (self.backend(), self.steps_by_one) {
            (Backend::Unavailable(why), _) => Err(self.unavailable(why)),
            (Backend::Segment(_), Err(why)) => refuse(why),
            (Backend::Segment(segments), Ok(())) => Ok(segments),
            (Backend::Hidden { .. }, _) => refuse("its ids are hidden"),
            (Backend::Snowflake(_) | Backend::Wide(_), _) => refuse("its scheme is not segment"),
        }
    }
}

fn steps_by_one(definition: &Definition) -> Result<(), &'static str> {
    match &definition.scheme {
        Scheme::Segment(segment) => segment.counts_by_one(),
        Scheme::Snowflake { .. } | Scheme::Wide(_) => Ok(()),
    }
}
