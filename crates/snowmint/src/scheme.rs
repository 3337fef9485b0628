//! Ids that are not 64-bit layouts: `ObjectId` (96 bits), UUID v4, UUID v7 and ULID (128 bits). One enum over
//! the usual crates: it parses and splits ids, and makes ids that strictly increase within a process.

mod foreign;
mod object_id;
mod ulid;
mod uuid;

use core::fmt;
use core::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use ::uuid::Uuid;
use arc_swap::{ArcSwap, Guard};

use crate::Clock;
use crate::error::Snippet;
use crate::fork::ForkMark;
use crate::utc::Utc;

pub use foreign::{ForeignId, ForeignKind};

/// A kind of id other than the 64-bit ids of a layout.
///
/// | scheme | bits | text | instant |
/// |---|---|---|---|
/// | `objectid` | 96: 32 s, 40 random, 24 counter | 24 hexadecimal digits | seconds |
/// | `uuid4` | 128: 122 random | 36 characters | none |
/// | `uuid7` | 128: 48 ms, 74 counter and random | 36 characters | milliseconds |
/// | `ulid` | 128: 48 ms, 80 random | 26 Crockford digits | milliseconds |
///
/// # Examples
///
/// ```
/// use snowmint::scheme::Scheme;
/// let id = Scheme::Ulid.parse("01ARZ3NDEKTSV4RRFFQ69G5FAV")?;
/// assert_eq!(id.unix_ms(), Some(1_469_922_850_259));
/// assert_eq!(id.to_string(), "01ARZ3NDEKTSV4RRFFQ69G5FAV");
/// # Ok::<(), snowmint::scheme::SchemeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scheme {
    /// `MongoDB`'s `ObjectId`.
    ObjectId,
    /// A random UUID, version 4 of RFC 9562.
    Uuid4,
    /// A time-ordered UUID, version 7 of RFC 9562.
    Uuid7,
    /// A ULID, with the monotonic rule of its specification.
    Ulid,
}

impl Scheme {
    /// All schemes.
    pub const ALL: [Self; 4] = [Self::ObjectId, Self::Uuid4, Self::Uuid7, Self::Ulid];

    /// Returns the scheme's name, which [`FromStr`] reads: `objectid`, `uuid4`, `uuid7`, `ulid`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ObjectId => "objectid",
            Self::Uuid4 => "uuid4",
            Self::Uuid7 => "uuid7",
            Self::Ulid => "ulid",
        }
    }

    /// Returns the length of an id in bytes: 12 or 16.
    pub const fn byte_len(self) -> usize {
        match self {
            Self::ObjectId => 12,
            Self::Uuid4 | Self::Uuid7 | Self::Ulid => 16,
        }
    }

    /// Reads an id of this scheme. It accepts letters of either case, and a UUID without hyphens, but not in
    /// braces or after `urn:uuid:`.
    ///
    /// # Errors
    ///
    /// [`SchemeError`] if the text is not such an id, or is a UUID of another version.
    pub fn parse(self, text: &str) -> Result<SchemeId, SchemeError> {
        let malformed = SchemeError::Malformed { scheme: self, text: Snippet::of(text) };
        match self {
            Self::ObjectId => object_id::parse(text).ok_or(malformed),
            Self::Uuid4 | Self::Uuid7 => uuid::parse(self, text).ok_or(malformed)?,
            Self::Ulid => ulid::parse(text).ok_or(malformed),
        }
    }

    /// Reads an id of this scheme from its bytes, highest first, as [`SchemeId::write_bytes`] writes them and
    /// as `BINARY(16)`, `uuid` and BSON columns store them.
    ///
    /// # Errors
    ///
    /// [`SchemeError::Length`] for another length than [`byte_len`](Self::byte_len), [`SchemeError::Version`]
    /// for a UUID of another version.
    ///
    /// ```
    /// use snowmint::scheme::Scheme;
    /// let id = Scheme::ObjectId.parse("507f1f77bcf86cd799439011")?;
    /// assert_eq!(Scheme::ObjectId.from_bytes(id.write_bytes(&mut [0; 16]))?, id);
    /// # Ok::<(), snowmint::scheme::SchemeError>(())
    /// ```
    pub fn from_bytes(self, bytes: &[u8]) -> Result<SchemeId, SchemeError> {
        let len = self.byte_len();
        if bytes.len() != len {
            return Err(SchemeError::Length { scheme: self, found: bytes.len() });
        }
        let mut padded = [0; 16];
        padded[16 - len..].copy_from_slice(bytes);
        let value = u128::from_be_bytes(padded);
        match self {
            Self::Uuid4 | Self::Uuid7 => uuid::of_version(self, Uuid::from_u128(value)),
            Self::ObjectId | Self::Ulid => Ok(SchemeId { scheme: self, value }),
        }
    }

    /// Makes a generator of this scheme's ids with a clock.
    ///
    /// # Errors
    ///
    /// [`SchemeGenerateError::NoRandom`] if the operating system has no randomness yet.
    pub fn generator<C: Clock>(self, clock: C) -> Result<SchemeGenerator<C>, SchemeGenerateError> {
        Ok(SchemeGenerator { scheme: self, clock, source: ArcSwap::from_pointee(SchemeSource::new(self)?) })
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Scheme {
    type Err = SchemeError;

    fn from_str(name: &str) -> Result<Self, SchemeError> {
        let named = Self::ALL.into_iter().find(|scheme| scheme.name() == name);
        named.ok_or(SchemeError::NoScheme { text: Snippet::of(name) })
    }
}

/// An id of a [`Scheme`]. Ids of one scheme compare as their bytes and their texts do.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SchemeId {
    scheme: Scheme,
    /// The number, right-aligned.
    value: u128,
}

impl SchemeId {
    /// Returns the scheme.
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the id as a number of 96 or 128 bits.
    pub const fn as_u128(&self) -> u128 {
        self.value
    }

    /// Writes the id as bytes, highest first: 12 for an `ObjectId`, 16 for the others.
    pub fn write_bytes<'b>(&self, buffer: &'b mut [u8; 16]) -> &'b [u8] {
        *buffer = self.value.to_be_bytes();
        &buffer[16 - self.scheme.byte_len()..]
    }

    /// Returns when the id was made, in unix milliseconds; `None` for a UUID v4. An `ObjectId` has whole
    /// seconds.
    #[expect(clippy::cast_possible_truncation, reason = "32 or 48 bits are asked for")]
    pub const fn unix_ms(&self) -> Option<u64> {
        match self.scheme {
            Scheme::ObjectId => Some(bits(self.value, 64, 32) as u64 * 1000),
            Scheme::Uuid4 => None,
            Scheme::Uuid7 | Scheme::Ulid => Some(bits(self.value, 80, 48) as u64),
        }
    }

    /// Returns the fields, from the top bit down.
    pub fn fields(&self) -> &'static [SchemeField] {
        match self.scheme {
            Scheme::ObjectId => object_id::FIELDS,
            Scheme::Uuid4 => uuid::FIELDS_V4,
            Scheme::Uuid7 => uuid::FIELDS_V7,
            Scheme::Ulid => ulid::FIELDS,
        }
    }

    /// Returns the fields with their values, from the top bit down.
    ///
    /// ```
    /// use snowmint::scheme::Scheme;
    /// let id = Scheme::ObjectId.parse("507f1f77bcf86cd799439011")?;
    /// let fields: Vec<String> = id.values().map(|(field, value)| format!("{}={}", field.name, field.show(value))).collect();
    /// assert_eq!(fields, ["timestamp=1350508407", "random=bcf86cd799", "counter=4427793"]);
    /// # Ok::<(), snowmint::scheme::SchemeError>(())
    /// ```
    pub fn values(&self) -> impl Iterator<Item = (&'static SchemeField, u128)> + use<> {
        let value = self.value;
        self.fields().iter().map(move |field| (field, bits(value, field.shift, field.width)))
    }
}

impl PartialOrd for SchemeId {
    /// Returns `None` for ids of different schemes.
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        (self.scheme == other.scheme).then(|| self.value.cmp(&other.value))
    }
}

impl fmt::Display for SchemeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scheme {
            Scheme::ObjectId => write!(f, "{:024x}", self.value),
            Scheme::Uuid4 | Scheme::Uuid7 => fmt::Display::fmt(&Uuid::from_u128(self.value), f),
            Scheme::Ulid => fmt::Display::fmt(&::ulid::Ulid(self.value), f),
        }
    }
}

impl fmt::Debug for SchemeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({self})", self.scheme)
    }
}

/// A field of a scheme's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemeField {
    /// Its name.
    pub name: &'static str,
    /// The position of its lowest bit, 0 for the lowest bit of the id.
    pub shift: u32,
    /// Its number of bits.
    pub width: u32,
    /// Whether its value is a number and not random bits.
    pub is_number: bool,
}

impl SchemeField {
    const fn number(name: &'static str, shift: u32, width: u32) -> Self {
        Self { name, shift, width, is_number: true }
    }

    const fn random(name: &'static str, shift: u32, width: u32) -> Self {
        Self { name, shift, width, is_number: false }
    }

    /// Formats a value of this field: numbers in decimal, random bits in hexadecimal.
    pub fn show(&self, value: u128) -> impl fmt::Display + use<> {
        ShownValue { field: *self, value }
    }
}

struct ShownValue {
    field: SchemeField,
    value: u128,
}

impl fmt::Display for ShownValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_number {
            write!(f, "{}", self.value)
        } else {
            write!(f, "{:0width$x}", self.value, width = self.field.width.div_ceil(4) as usize)
        }
    }
}

const fn bits(value: u128, shift: u32, width: u32) -> u128 {
    value >> shift & ((1 << width) - 1)
}

/// Makes ids of one [`Scheme`]. Except for UUID v4, each id is greater than the one before, whatever the
/// clock does.
///
/// Threads share it behind one short lock. It gets randomness from the operating system (for every id except
/// an `ObjectId`) and does not allocate. A forked child gets new randomness and a lock of its own, so it
/// neither continues its parent's ids nor waits for a thread of its parent; its first id allocates.
/// [`GenerateError::Forked`](crate::GenerateError::Forked) states where forks are detected. Only chance
/// separates the ids of two generators: 40 random bits for an `ObjectId`, 73 or more for the others.
///
/// # Examples
///
/// ```
/// use snowmint::{ManualClock, scheme::Scheme};
/// let generator = Scheme::Uuid7.generator(ManualClock::at_unix_ms(1_645_557_742_000))?;
/// let (first, second) = (generator.try_next_id()?, generator.try_next_id()?);
/// assert!(first < second);
/// assert!(first.to_string().starts_with("017f22e2-79b0-7"));
/// # Ok::<(), snowmint::scheme::SchemeGenerateError>(())
/// ```
#[derive(Debug)]
pub struct SchemeGenerator<C> {
    scheme: Scheme,
    clock: C,
    /// The source of this process; in a forked child, the parent's until the first id.
    source: ArcSwap<SchemeSource>,
}

impl<C: Clock> SchemeGenerator<C> {
    /// Returns the scheme.
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the next id, or the reason why there is none now.
    ///
    /// # Errors
    ///
    /// [`SchemeGenerateError`] if there is no randomness, or if the clock's time does not fit the scheme. A
    /// failed call uses up nothing, and a retry is safe.
    pub fn try_next_id(&self) -> Result<SchemeId, SchemeGenerateError> {
        let unix_ms = self.clock.unix_ms();
        let source = self.source_of_this_process()?;
        // Each change to a state is one assignment: a panic elsewhere leaves it intact.
        let mut state = source.state.lock().unwrap_or_else(PoisonError::into_inner);
        let value = match &mut *state {
            SchemeState::ObjectId(state) => state.next(unix_ms)?,
            SchemeState::Uuid4 => uuid::next_v4()?,
            SchemeState::Uuid7(state) => state.next(unix_ms)?,
            SchemeState::Ulid(state) => state.next(unix_ms)?,
        };
        Ok(SchemeId { scheme: self.scheme, value })
    }

    /// Loads without a lock: a lock that was held during a fork stays locked in the child.
    fn source_of_this_process(&self) -> Result<Guard<Arc<SchemeSource>>, SchemeGenerateError> {
        let found = self.source.load();
        if found.mark.is_same_process() {
            return Ok(found);
        }
        // If several threads arrive at once, all use the source of one of them.
        self.source.compare_and_swap(&found, Arc::new(SchemeSource::new(self.scheme)?));
        Ok(self.source.load())
    }
}

/// The state from which one process makes ids.
#[derive(Debug)]
struct SchemeSource {
    mark: ForkMark,
    state: Mutex<SchemeState>,
}

#[derive(Debug)]
enum SchemeState {
    ObjectId(object_id::ObjectIdState),
    Uuid4,
    Uuid7(uuid::Uuid7State),
    Ulid(ulid::UlidState),
}

impl SchemeSource {
    fn new(scheme: Scheme) -> Result<Self, SchemeGenerateError> {
        let state = match scheme {
            Scheme::ObjectId => SchemeState::ObjectId(object_id::ObjectIdState::new()?),
            Scheme::Uuid4 => SchemeState::Uuid4,
            Scheme::Uuid7 => SchemeState::Uuid7(uuid::Uuid7State::new()),
            Scheme::Ulid => SchemeState::Ulid(ulid::UlidState::new()),
        };
        Ok(Self { mark: ForkMark::of_this_process(), state: Mutex::new(state) })
    }
}

fn random<const N: usize>() -> Result<[u8; N], SchemeGenerateError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| SchemeGenerateError::NoRandom)?;
    Ok(bytes)
}

/// Why a text or bytes are not a valid id of a scheme, or a name is not one of a scheme.
///
/// It differs from [`ParseIdError`](crate::ParseIdError), which names a text form of a 64-bit
/// [`Id`](crate::Id), its digits and their positions: an id of a scheme has one text form, and has to be of
/// the right length and version instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemeError {
    /// The name of the scheme is unknown.
    NoScheme {
        /// The name.
        text: Snippet,
    },
    /// The text does not have the scheme's form.
    Malformed {
        /// The scheme.
        scheme: Scheme,
        /// The text.
        text: Snippet,
    },
    /// The length is not that of the scheme's ids.
    Length {
        /// The scheme.
        scheme: Scheme,
        /// The length, in bytes.
        found: usize,
    },
    /// A UUID of another version, or of another standard.
    Version {
        /// The scheme.
        scheme: Scheme,
        /// The version found; 0 if the variant is not that of RFC 9562.
        found: u8,
    },
}

impl fmt::Display for SchemeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoScheme { text } => {
                write!(f, "unknown scheme {text}: expected ")?;
                for (i, scheme) in Scheme::ALL.iter().enumerate() {
                    write!(f, "{}{scheme}", if i == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Self::Malformed { scheme, text } => {
                let form = match scheme {
                    Scheme::ObjectId => "expected 24 hexadecimal digits",
                    Scheme::Uuid4 | Scheme::Uuid7 => {
                        "expected 32 hexadecimal digits, with or without hyphens, and nothing around them"
                    }
                    Scheme::Ulid => "expected 26 Crockford digits, at most 7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
                };
                write!(f, "invalid {scheme} {text}: {form}")
            }
            Self::Length { scheme, found } => {
                write!(
                    f,
                    "invalid length of {found} bytes: an id of scheme {scheme} has {}",
                    scheme.byte_len()
                )
            }
            Self::Version { scheme, found: 0 } => {
                write!(f, "this UUID is not of RFC 9562, {scheme} is: its 17th digit must be 8, 9, a or b")
            }
            Self::Version { scheme, found } => {
                let wanted = if *scheme == Scheme::Uuid4 { 4 } else { 7 };
                write!(f, "this UUID has version {found}, {scheme} has version {wanted}")
            }
        }
    }
}

impl core::error::Error for SchemeError {}

/// Why a generator of a scheme returns no id now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemeGenerateError {
    /// The operating system provides no randomness.
    NoRandom,
    /// The random bits of this millisecond are used up; the next millisecond has new ones.
    Exhausted,
    /// The scheme has no timestamp for the clock's time.
    TimestampOverflow {
        /// The scheme.
        scheme: Scheme,
        /// The clock's time, in unix milliseconds.
        now_unix_ms: u64,
        /// The first instant without a timestamp, in unix milliseconds.
        ends_unix_ms: u64,
    },
}

impl fmt::Display for SchemeGenerateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoRandom => {
                f.write_str("the operating system provides no randomness: retry once it has started up")
            }
            Self::Exhausted => {
                f.write_str("the random bits of this millisecond are used up: retry in the next one")
            }
            Self::TimestampOverflow { scheme, now_unix_ms, ends_unix_ms } => write!(
                f,
                "the clock shows {}, and the time of {scheme} ends at {}: correct the clock",
                Utc(now_unix_ms),
                Utc(ends_unix_ms)
            ),
        }
    }
}

impl core::error::Error for SchemeGenerateError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;

    const NOW: u64 = 1_785_542_400_123;

    #[test]
    fn every_scheme_makes_what_it_reads_and_tells_the_time() {
        for scheme in Scheme::ALL {
            assert_eq!(scheme.name().parse(), Ok(scheme));
            let generator = scheme.generator(ManualClock::at_unix_ms(NOW)).unwrap();
            let id = generator.try_next_id().unwrap();
            assert_eq!(scheme.parse(&id.to_string()), Ok(id));
            assert_eq!(scheme.parse(&id.to_string().to_uppercase()), Ok(id));
            assert_eq!(id.write_bytes(&mut [0; 16]).len(), scheme.byte_len());
            let expected = match scheme {
                Scheme::ObjectId => Some(NOW / 1000 * 1000),
                Scheme::Uuid4 => None,
                _ => Some(NOW),
            };
            assert_eq!(id.unix_ms(), expected);
            let joined = id.values().fold(0, |sum, (field, value)| sum | value << field.shift);
            assert_eq!(joined, id.as_u128(), "the fields of {scheme} hold every bit");
            for other in Scheme::ALL.into_iter().filter(|other| *other != scheme) {
                assert!(other.parse(&id.to_string()).is_err(), "{id} read as {other}");
            }
        }
    }

    #[test]
    fn ids_read_back_from_their_bytes_and_nothing_else_does() {
        for scheme in Scheme::ALL {
            let id = scheme.generator(ManualClock::at_unix_ms(NOW)).unwrap().try_next_id().unwrap();
            let mut buffer = [0; 16];
            let bytes = id.write_bytes(&mut buffer);
            assert_eq!(scheme.from_bytes(bytes), Ok(id));
            let length = |found| Err(SchemeError::Length { scheme, found });
            assert_eq!(scheme.from_bytes(&bytes[1..]), length(scheme.byte_len() - 1));
            assert_eq!(scheme.from_bytes(&[0; 17]), length(17));
        }
        let version = |scheme, found| Err(SchemeError::Version { scheme, found });
        assert_eq!(Scheme::Uuid7.from_bytes(&[0; 16]), version(Scheme::Uuid7, 0));
        let v4 = Scheme::Uuid4.parse("919108f7-52d1-4320-9bac-f847db4148a8").unwrap();
        assert_eq!(Scheme::Uuid7.from_bytes(v4.write_bytes(&mut [0; 16])), version(Scheme::Uuid7, 4));
    }

    #[test]
    fn uuids_are_read_with_hyphens_or_without_and_in_no_other_form() {
        let text = "919108f7-52d1-4320-9bac-f847db4148a8";
        assert_eq!(Scheme::Uuid4.parse(text), Scheme::Uuid4.parse(&text.replace('-', "")));
        for other in [format!("{{{text}}}"), format!("urn:uuid:{text}"), format!(" {text}")] {
            assert!(matches!(Scheme::Uuid4.parse(&other), Err(SchemeError::Malformed { .. })), "{other}");
        }
    }

    #[test]
    fn ids_increase_while_the_clock_stands_goes_on_and_goes_back() {
        for scheme in [Scheme::ObjectId, Scheme::Uuid7, Scheme::Ulid] {
            let clock = ManualClock::at_unix_ms(NOW);
            let generator = scheme.generator(&clock).unwrap();
            let mut last = generator.try_next_id().unwrap();
            for step in [0, 0, 1, 0, 999, 0, -5, -100_000, 0, 100_004, 5000, 0] {
                clock.set_unix_ms(clock.unix_ms().wrapping_add_signed(step));
                for _ in 0..if cfg!(miri) { 3 } else { 100 } {
                    let id = generator.try_next_id().unwrap();
                    assert!(id > last && id.to_string() > last.to_string(), "{id} after {last}");
                    last = id;
                }
            }
        }
    }

    #[test]
    fn threads_share_a_generator() {
        let each = if cfg!(miri) { 20 } else { 2000 };
        for scheme in Scheme::ALL {
            let generator = scheme.generator(ManualClock::at_unix_ms(NOW)).unwrap();
            let draw = || (0..each).map(|_| generator.try_next_id().unwrap().as_u128()).collect::<Vec<_>>();
            let mut all = std::thread::scope(|scope| {
                let threads = [0; 3].map(|_| scope.spawn(draw));
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 3 * each);
        }
    }

    #[test]
    fn a_clock_beyond_the_schemes_time_is_refused() {
        for (scheme, ends) in [
            (Scheme::ObjectId, 4_294_967_296_000),
            (Scheme::Uuid7, 281_474_976_710_656),
            (Scheme::Ulid, 281_474_976_710_656),
        ] {
            let clock = ManualClock::at_unix_ms(0);
            let generator = scheme.generator(&clock).unwrap();
            // Bits that a shift would drop, for each number of bits below the timestamp.
            let wrapped = [32, 40, 48, 54].map(|bits| ((1 << bits) + 5) * 1000);
            let far = [ends, ends + 5000, u64::MAX].into_iter().chain(wrapped).filter(|ms| *ms >= ends);
            for now_unix_ms in far {
                clock.set_unix_ms(now_unix_ms);
                let refused =
                    SchemeGenerateError::TimestampOverflow { scheme, now_unix_ms, ends_unix_ms: ends };
                assert_eq!(generator.try_next_id(), Err(refused));
            }
            clock.set_unix_ms(ends - 1);
            let last = generator.try_next_id().unwrap();
            assert_eq!(last.unix_ms().map(|ms| ms / 1000), Some((ends - 1) / 1000), "nothing was used up");
        }
    }

    #[test]
    fn what_is_no_id_is_refused_with_the_remedy() {
        for (scheme, text, words) in [
            (Scheme::ObjectId, "507f1f77bcf86cd79943901", "24 hexadecimal digits"),
            (Scheme::ObjectId, "507f1f77bcf86cd79943901g", "24 hexadecimal digits"),
            (Scheme::ObjectId, "+07f1f77bcf86cd799439011", "24 hexadecimal digits"),
            (Scheme::Uuid4, "", "32 hexadecimal digits"),
            (Scheme::Uuid4, "017F22E2-79B0-7CC3-98C4-DC0C0C07398F", "has version 7, uuid4 has version 4"),
            (Scheme::Uuid7, "017F22E2-79B0-7CC3-18C4-DC0C0C07398F", "17th digit"),
            (Scheme::Ulid, "80000000000000000000000000", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"),
            (Scheme::Ulid, "01ARZ3NDEKTSV4RRFFQ69G5FAU", "26 Crockford digits"),
        ] {
            let error = scheme.parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let error = "guid".parse::<Scheme>().unwrap_err().to_string();
        assert_eq!(error, "unknown scheme `guid`: expected objectid, uuid4, uuid7, ulid");
    }
}
