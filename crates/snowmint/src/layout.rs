//! Which bits of an id hold which field: widths in any order, the tick and the epoch.
//! A `Layout` is checked when it is built, so every existing one is valid.

mod error;
mod presets;
mod text;

use core::fmt;
use core::time::Duration;

use error::TickText;
pub use error::{LayoutError, SplitError, Widths};
pub use presets::{PRESETS, Preset};
pub use text::LayoutParseError;

use crate::field::{Field, Generation, Sequence, Timestamp};
use crate::utc::{END_OF_1970, MAX_UNIX_MS, MS_PER_YEAR, Utc, UtcDate};
use crate::{DatacenterId, Id, Parts, WorkerId};

/// Bits of an id: 63, so that it is never negative as a signed 64-bit number.
const ID_BITS: u32 = 63;
/// The maximum width of a field other than the timestamp: its values are handled as `u32`.
const FIELD_BITS: u32 = 31;

/// A layout that ends sooner than this is worth a warning: moving to another one takes a while.
const WARN_BELOW: Duration = Duration::from_millis(5 * MS_PER_YEAR);

/// Where one field sits: `width` bits, the lowest of them at `shift`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct FieldPlace {
    width: u32,
    shift: u32,
}

impl FieldPlace {
    const fn max(self) -> u64 {
        (1 << self.width) - 1
    }

    const fn read(self, id: u64) -> u64 {
        (id >> self.shift) & self.max()
    }
}

/// Which bits of an id hold which field.
///
/// ```text
/// Layout::TWITTER
/// bit 63  62 .................. 22  21 .... 17  16 .. 12  11 ........ 0
///      0  timestamp 41 (1 ms)       datacenter  worker    sequence
/// ```
///
/// Its text form is parsed and printed back: `time:41@1ms datacenter:5 worker:5 sequence:12
/// epoch:2010-11-04T01:42:54.657Z`. Fields are named from the top bit down.
///
/// # Examples
///
/// ```
/// use snowmint::{Id, Layout};
/// let layout: Layout = "time:31@1s worker:20 sequence:12 epoch:2024-01-01".parse()?;
/// assert_eq!(layout.ids_per_second_per_worker(), 4096);
/// assert_eq!("twitter".parse::<Layout>()?, Layout::TWITTER);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Indexed by `Field as usize`.
    places: [FieldPlace; 5],
    tick_ms: u64,
    epoch_unix_ms: u64,
}

impl Layout {
    /// Starts a layout; name its fields from the top bit down.
    pub const fn builder() -> LayoutBuilder {
        LayoutBuilder { order: [None; 5], tick: Duration::from_millis(1), epoch_unix_ms: None, refused: None }
    }

    const fn place(&self, field: Field) -> FieldPlace {
        self.places[field as usize]
    }

    /// Returns the number of bits of a field; 0 if the layout does not have it.
    pub const fn width(&self, field: Field) -> u32 {
        self.place(field).width
    }

    /// Returns the position of a field's lowest bit; 0 is the lowest bit of the id.
    pub const fn shift(&self, field: Field) -> u32 {
        self.place(field).shift
    }

    /// Returns the largest value of a field.
    pub const fn max(&self, field: Field) -> u64 {
        self.place(field).max()
    }

    /// Returns the fields of the layout, from the top bit down.
    pub fn fields(&self) -> impl Iterator<Item = Field> {
        let mut fields = Field::ALL;
        fields.sort_unstable_by_key(|field| core::cmp::Reverse(self.shift(*field)));
        let places = self.places;
        fields.into_iter().filter(move |field| places[*field as usize].width > 0)
    }

    /// Returns the number of bits in use, at most 63.
    pub fn bits(&self) -> u32 {
        self.places.iter().map(|place| place.width).sum()
    }

    /// Returns the unit of the timestamp, a whole number of milliseconds.
    pub const fn tick(&self) -> Duration {
        Duration::from_millis(self.tick_ms)
    }

    pub(crate) const fn tick_ms(&self) -> u64 {
        self.tick_ms
    }

    /// Returns the instant of timestamp 0, in unix milliseconds.
    pub const fn epoch_unix_ms(&self) -> u64 {
        self.epoch_unix_ms
    }

    /// Returns the same bits with another epoch. It must leave the last timestamp in range, as the start of
    /// any year does.
    #[cfg(feature = "std")]
    pub(crate) const fn with_epoch(mut self, epoch_unix_ms: u64) -> Self {
        self.epoch_unix_ms = epoch_unix_ms;
        self
    }

    /// Returns the start of a timestamp's tick, in unix milliseconds.
    pub const fn unix_ms(&self, timestamp: Timestamp) -> u64 {
        self.epoch_unix_ms.saturating_add(timestamp.0.saturating_mul(self.tick_ms))
    }

    /// Returns the timestamp of an instant; `None` before the epoch or after the last timestamp.
    pub const fn timestamp_at(&self, unix_ms: u64) -> Option<Timestamp> {
        match unix_ms.checked_sub(self.epoch_unix_ms) {
            Some(since) if since / self.tick_ms <= self.max(Field::Timestamp) => {
                Some(Timestamp(since / self.tick_ms))
            }
            _ => None,
        }
    }

    /// Returns the end of the layout, in unix milliseconds: the first instant without a timestamp.
    ///
    /// From then on generators return
    /// [`GenerateError::TimestampOverflow`](crate::GenerateError::TimestampOverflow), never a wrapped or
    /// negative id.
    pub const fn ends_at_unix_ms(&self) -> u64 {
        self.unix_ms(Timestamp(self.max(Field::Timestamp) + 1))
    }

    /// Returns the time from an instant, in unix milliseconds, to the end of the layout.
    ///
    /// The result is in whole milliseconds, and zero at and after [`ends_at_unix_ms`](Self::ends_at_unix_ms).
    /// Before the epoch it includes the time until the epoch, which has no timestamps either.
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint::Layout;
    /// use std::time::Duration;
    /// let layout: Layout = "time:31@1s worker:20 sequence:12 epoch:2024-01-01".parse()?;
    /// let epoch = layout.epoch_unix_ms();
    /// assert_eq!(layout.left_at(epoch), Duration::from_secs(1 << 31));
    /// assert_eq!(layout.left_at(epoch + 1), Duration::from_secs(1 << 31) - Duration::from_millis(1));
    /// assert_eq!(layout.left_at(layout.ends_at_unix_ms()), Duration::ZERO);
    /// # Ok::<(), snowmint::layout::LayoutParseError>(())
    /// ```
    pub const fn left_at(&self, unix_ms: u64) -> Duration {
        Duration::from_millis(self.ends_at_unix_ms().saturating_sub(unix_ms))
    }

    /// Returns a warning once the layout ends within five average Gregorian years (157,784,760 s), or has
    /// ended. It also warns of an epoch that is probably a mistake: one after the instant, and one in 1970
    /// but not at its start, as unix seconds would be.
    ///
    /// Moving to another layout takes a while, so operators want to know early. The instant is in unix
    /// milliseconds.
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint::Layout;
    /// let half_a_year_left = Layout::TWITTER.ends_at_unix_ms() - 15_778_476_000;
    /// let warning = Layout::TWITTER.expiry_warning(half_a_year_left).ok_or("it ends soon")?;
    /// assert!(warning.to_string().starts_with("the layout ends on 2080-07-10, in 0.5 years: "));
    /// assert_eq!(Layout::TWITTER.expiry_warning(1_785_542_400_000), None);
    /// let seconds = Layout::builder().timestamp(41).sequence(22).epoch_unix_ms(1_704_067_200).build().unwrap();
    /// let warning = seconds.expiry_warning(1_785_542_400_000).ok_or("it begins in 1970")?;
    /// assert!(warning.to_string().starts_with("the epoch of the layout is 1970-01-20T17:21:07.200Z: "));
    /// # Ok::<(), &str>(())
    /// ```
    pub fn expiry_warning(&self, now_unix_ms: u64) -> Option<ExpiryWarning> {
        let (left, epoch_unix_ms) = (self.left_at(now_unix_ms), self.epoch_unix_ms);
        let reason = match () {
            () if left.is_zero() => WarningReason::Ended,
            () if epoch_unix_ms > now_unix_ms => WarningReason::NotBegun,
            () if (1..END_OF_1970).contains(&epoch_unix_ms) => WarningReason::Seconds,
            () if left < WARN_BELOW => WarningReason::Ends { left },
            () => return None,
        };
        Some(ExpiryWarning { epoch_unix_ms, ends_unix_ms: self.ends_at_unix_ms(), reason })
    }

    /// Returns the smallest id of the tick that contains an instant, for `WHERE id >= ...`.
    ///
    /// Returns `None` if the instant is outside the layout's range, or if the timestamp is not the top field.
    /// The instant is a `SystemTime`, such as [`time_of`](Self::time_of) returns, or [`Utc`] for unix
    /// milliseconds.
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint::{Layout, utc::Utc};
    /// let layout: Layout = "time:31@1s worker:20 sequence:12 epoch:2024-01-01".parse()?;
    /// let (day, next) = (1_704_067_200_000, 1_704_153_600_000);
    /// let (first, last) = (layout.first_id_at(Utc(day)), layout.last_id_at(Utc(next - 1)));
    /// assert_eq!(first.map(|id| id.get()), Some(0));
    /// assert_eq!(last.map(|id| id.get()), Some((86_400 << 32) - 1));
    /// # Ok::<(), snowmint::layout::LayoutParseError>(())
    /// ```
    pub fn first_id_at(&self, time: impl Into<Utc>) -> Option<Id> {
        let Utc(unix_ms) = time.into();
        let timestamp = self.timestamp_at(unix_ms).filter(|_| self.sorts_by_time())?;
        Some(Id::from_layout(timestamp.0 << self.shift(Field::Timestamp)))
    }

    /// Returns the largest id of the tick that contains an instant, for `WHERE id <= ...`.
    ///
    /// Returns `None` if the instant is outside the layout's range, or if the timestamp is not the top field.
    /// The instant is as in [`first_id_at`](Self::first_id_at).
    pub fn last_id_at(&self, time: impl Into<Utc>) -> Option<Id> {
        let first = self.first_id_at(time)?;
        Some(Id::from_layout(first.get() | ((1 << self.shift(Field::Timestamp)) - 1)))
    }

    /// Returns whether ids of different workers sort by time, which they do if the timestamp is the top
    /// field.
    pub fn sorts_by_time(&self) -> bool {
        self.fields().next() == Some(Field::Timestamp)
    }

    /// Returns whether every id is a safe integer in JavaScript: at most 53 bits.
    pub fn is_safe_in_javascript(&self) -> bool {
        self.bits() <= 53
    }

    /// Returns the number of workers over all datacenters.
    pub const fn workers(&self) -> u64 {
        1 << (self.width(Field::Datacenter) + self.width(Field::Worker))
    }

    /// Returns the number of ids that one worker can make in a second.
    pub const fn ids_per_second_per_worker(&self) -> u64 {
        (self.max(Field::Sequence) + 1) * 1000 / self.tick_ms
    }

    /// Returns the number of ids that all workers together can make in a second.
    pub const fn ids_per_second(&self) -> u128 {
        self.ids_per_second_per_worker() as u128 * self.workers() as u128
    }

    /// Composes an id from its fields.
    ///
    /// # Errors
    ///
    /// [`LayoutError::ValueTooLarge`] for the first value that its field cannot hold.
    pub fn compose(&self, parts: &Parts) -> Result<Id, LayoutError> {
        let mut id = 0;
        for field in Field::ALL {
            let value = parts.value(field);
            self.check(field, value)?;
            id |= value << self.shift(field);
        }
        Ok(Id::from_layout(id))
    }

    /// Checks that a value fits its field.
    ///
    /// # Errors
    ///
    /// [`LayoutError::ValueTooLarge`] with the value and the limit.
    pub const fn check(&self, field: Field, value: u64) -> Result<(), LayoutError> {
        if value > self.max(field) {
            return Err(LayoutError::ValueTooLarge { field, value, max: self.max(field) });
        }
        Ok(())
    }

    /// Splits an id into its fields; the inverse of [`compose`](Self::compose).
    ///
    /// # Errors
    ///
    /// [`SplitError`] if the id has bits above the layout's fields: another layout made it.
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint::{Id, Layout};
    /// let parts = Layout::TWITTER.split(Id::new(1541815603606036480)?)?;
    /// assert_eq!(Layout::TWITTER.unix_ms(parts.timestamp), 1656432460105);
    /// assert_eq!((parts.datacenter.0, parts.worker.0, parts.sequence.0), (11, 26, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[expect(
        clippy::cast_possible_truncation,
        reason = "fields other than the timestamp have at most 31 bits"
    )]
    pub fn split(&self, id: Id) -> Result<Parts, SplitError> {
        let bits = self.bits();
        if id.get() >> bits != 0 {
            return Err(SplitError { id, bits });
        }
        let read = |field| self.place(field).read(id.get());
        Ok(Parts {
            timestamp: Timestamp(read(Field::Timestamp)),
            datacenter: DatacenterId(read(Field::Datacenter) as u32),
            worker: WorkerId(read(Field::Worker) as u32),
            generation: Generation(read(Field::Generation) as u32),
            sequence: Sequence(read(Field::Sequence) as u32),
        })
    }

    /// Returns when an id was made: the start of its tick.
    ///
    /// # Errors
    ///
    /// As [`split`](Self::split).
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint::{Id, Layout, utc::Utc};
    /// let time = Layout::TWITTER.time_of(Id::new(1541815603606036480)?)?;
    /// assert_eq!(Utc::from(time).to_string(), "2022-06-28T16:07:40.105Z");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "std")]
    pub fn time_of(&self, id: Id) -> Result<std::time::SystemTime, SplitError> {
        Ok(Utc(self.unix_ms(self.split(id)?.timestamp)).into())
    }

    /// Returns a short name of exactly this layout, of letters, digits and `.@=-` only: field order, widths,
    /// tick and epoch.
    ///
    /// Two layouts are equal if and only if their fingerprints are.
    pub fn fingerprint(&self) -> impl fmt::Display {
        text::Fingerprint(*self)
    }
}

/// Builds a [`Layout`]; [`build`](Self::build) checks it.
///
/// # Examples
///
/// ```
/// use snowmint::layout::LayoutError;
/// use snowmint::Layout;
/// let built = Layout::builder().timestamp(37).worker(20).sequence(16).epoch_unix_ms(0).build();
/// assert!(matches!(built, Err(LayoutError::TooWide { bits: 73, .. })));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LayoutBuilder {
    order: [Option<(Field, u32)>; 5],
    tick: Duration,
    epoch_unix_ms: Option<u64>,
    refused: Option<LayoutError>,
}

impl LayoutBuilder {
    /// Adds the timestamp, `bits` wide.
    #[must_use]
    pub const fn timestamp(self, bits: u32) -> Self {
        self.field(Field::Timestamp, bits)
    }

    /// Adds the datacenter, `bits` wide.
    #[must_use]
    pub const fn datacenter(self, bits: u32) -> Self {
        self.field(Field::Datacenter, bits)
    }

    /// Adds the worker, `bits` wide.
    #[must_use]
    pub const fn worker(self, bits: u32) -> Self {
        self.field(Field::Worker, bits)
    }

    /// Adds the generation, `bits` wide.
    #[must_use]
    pub const fn generation(self, bits: u32) -> Self {
        self.field(Field::Generation, bits)
    }

    /// Adds the sequence, `bits` wide.
    #[must_use]
    pub const fn sequence(self, bits: u32) -> Self {
        self.field(Field::Sequence, bits)
    }

    /// Adds a field below those added so far.
    #[must_use]
    pub const fn field(mut self, field: Field, bits: u32) -> Self {
        let mut i = 0;
        while i < self.order.len() {
            match self.order[i] {
                Some((earlier, _)) if earlier as u8 == field as u8 => {
                    self.refused = Some(LayoutError::Twice { field });
                    return self;
                }
                Some(_) => i += 1,
                None => {
                    self.order[i] = Some((field, bits));
                    return self;
                }
            }
        }
        self
    }

    /// Sets the unit of the timestamp, in whole milliseconds; 1 ms by default.
    #[must_use]
    pub const fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Sets the instant of timestamp 0, in unix milliseconds.
    #[must_use]
    pub const fn epoch_unix_ms(mut self, epoch_unix_ms: u64) -> Self {
        self.epoch_unix_ms = Some(epoch_unix_ms);
        self
    }

    /// Checks the layout.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] with the invalid value and what would fit.
    pub const fn build(self) -> Result<Layout, LayoutError> {
        if let Some(error) = self.refused {
            return Err(error);
        }
        let tick_ms = match whole_ms(self.tick) {
            Ok(tick_ms) => tick_ms,
            Err(error) => return Err(error),
        };
        let widths = match self.checked_widths(tick_ms) {
            Ok(widths) => widths,
            Err(error) => return Err(error),
        };
        let Some(epoch_unix_ms) = self.epoch_unix_ms else {
            return Err(LayoutError::NoEpoch);
        };
        if epoch_unix_ms > MAX_UNIX_MS {
            return Err(LayoutError::EpochTooLate { epoch_unix_ms });
        }
        // Instants have 64 bits: a layout cannot last longer than they reach.
        let span = (1_u128 << widths.timestamp) * tick_ms as u128;
        if span + epoch_unix_ms as u128 > i64::MAX as u128 {
            return Err(LayoutError::LastsTooLong { bits: widths.timestamp, tick_ms });
        }
        Ok(Layout { places: self.places(widths.total()), tick_ms, epoch_unix_ms })
    }

    const fn checked_widths(&self, tick_ms: u64) -> Result<Widths, LayoutError> {
        let mut widths =
            Widths { timestamp: 0, datacenter: 0, worker: 0, generation: 0, sequence: 0, tick_ms };
        let mut i = 0;
        while i < self.order.len() {
            if let Some((field, bits)) = self.order[i] {
                if bits == 0 {
                    return Err(LayoutError::NoBits { field });
                }
                if bits > 99 || (bits > FIELD_BITS && !matches!(field, Field::Timestamp)) {
                    let limit =
                        if matches!(field, Field::Timestamp) { error::TIMESTAMP_BITS } else { FIELD_BITS };
                    return Err(LayoutError::FieldTooWide { field, bits, limit });
                }
                match field {
                    Field::Timestamp => widths.timestamp = bits,
                    Field::Datacenter => widths.datacenter = bits,
                    Field::Worker => widths.worker = bits,
                    Field::Generation => widths.generation = bits,
                    Field::Sequence => widths.sequence = bits,
                }
            }
            i += 1;
        }
        if widths.timestamp == 0 {
            return Err(LayoutError::NoTimestamp);
        }
        if widths.total() > ID_BITS {
            return Err(LayoutError::TooWide { bits: widths.total(), widths });
        }
        Ok(widths)
    }

    const fn places(&self, total: u32) -> [FieldPlace; 5] {
        let mut places = [FieldPlace { width: 0, shift: 0 }; 5];
        let mut shift = total;
        let mut i = 0;
        while i < self.order.len() {
            if let Some((field, width)) = self.order[i] {
                shift -= width;
                places[field as usize] = FieldPlace { width, shift };
            }
            i += 1;
        }
        places
    }
}

const fn whole_ms(tick: Duration) -> Result<u64, LayoutError> {
    let ms = tick.as_millis();
    if ms == 0 || !tick.subsec_nanos().is_multiple_of(1_000_000) || ms > MAX_UNIX_MS as u128 {
        return Err(LayoutError::Tick { tick });
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked against MAX_UNIX_MS")]
    Ok(ms as u64)
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Layout({self}; ends {})", Utc(self.ends_at_unix_ms()))
    }
}

/// A layout that ends within a few years, has ended, or has an unlikely epoch; see
/// [`Layout::expiry_warning`]. Its text is one line for a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiryWarning {
    epoch_unix_ms: u64,
    ends_unix_ms: u64,
    reason: WarningReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WarningReason {
    Ended,
    Ends {
        left: Duration,
    },
    NotBegun,
    /// The epoch is in unix seconds.
    Seconds,
}

impl fmt::Display for ExpiryWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (epoch, ends) = (self.epoch_unix_ms, UtcDate(self.ends_unix_ms));
        match self.reason {
            WarningReason::Ended => {
                write!(f, "the layout ended on {ends}: it has no ids left; move to another layout")
            }
            WarningReason::NotBegun => write!(
                f,
                "the layout begins on {}: it has no ids before its epoch; check the digits of the epoch, and the clock",
                UtcDate(epoch)
            ),
            WarningReason::Seconds => write!(
                f,
                "the epoch of the layout is {}: if unix seconds were meant, {}, multiply them by 1000",
                Utc(epoch),
                Utc(epoch.saturating_mul(1000))
            ),
            WarningReason::Ends { left } => {
                let tenths = left.as_millis() / u128::from(MS_PER_YEAR / 10);
                write!(
                    f,
                    "the layout ends on {ends}, in {}.{} years: it has no ids after that; plan the move to another layout",
                    tenths / 10,
                    tenths % 10
                )
            }
        }
    }
}
