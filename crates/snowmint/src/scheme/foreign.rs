//! Ids of other systems that Snowmint reads but does not make: the other UUIDs, KSUID, XID, `TypeID`, TID and
//! the row ids of `CockroachDB`.

use core::fmt;

use ::uuid::{Uuid, Variant};

use super::{SchemeField, bits, uuid};
use crate::codec::Text;

/// The kind of a [`ForeignId`].
///
/// | kind | bits | text | instant |
/// |---|---|---|---|
/// | `uuid1`, `uuid6` | 128: 60 of 100 ns since 1582, 14 clock sequence, 48 node | 36 characters | yes |
/// | `uuid2`, `uuid3`, `uuid5`, `uuid8` | 128: of a local id, a hash, a hash, a vendor | 36 characters | none |
/// | `uuid` | 128: a UUID of another version or variant | 36 characters | none |
/// | `uuid-nil`, `uuid-max` | 128: all 0, all 1 | 36 characters | none |
/// | `ksuid` | 160: 32 s since 2014-05-13, 128 random | 27 base62 digits | seconds |
/// | `xid` | 96: 32 s, 24 machine, 16 process, 24 counter | 20 base32hex digits | seconds |
/// | `typeid` | 128: a UUID, mostly v7 | a prefix, `_`, 26 Crockford digits in lower case | of a v7 |
/// | `tid` | 64: 53 us, 10 clock id | 13 digits of `2-7a-z` | microseconds |
/// | `cockroach` | 63: 48 of 10 us since 2015, 15 node | decimal | 10 us |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ForeignKind {
    /// A UUID v1: time and the address of a network card.
    Uuid1,
    /// A UUID v2 of DCE security.
    Uuid2,
    /// A UUID v3: a name, hashed by MD5.
    Uuid3,
    /// A UUID v5: a name, hashed by SHA-1.
    Uuid5,
    /// A UUID v6: the fields of v1 in the order of time.
    Uuid6,
    /// A UUID v8, whose bits a vendor defines.
    Uuid8,
    /// A UUID of an unknown version, or of a variant other than that of RFC 9562.
    Uuid,
    /// The UUID of zeros.
    UuidNil,
    /// The UUID of ones.
    UuidMax,
    /// A KSUID of Segment.
    Ksuid,
    /// An XID.
    Xid,
    /// A `TypeID`: a UUID after the name of a type.
    TypeId,
    /// A timestamp identifier of the AT Protocol, on which Bluesky runs.
    Tid,
    /// A row id that `unique_rowid()` of `CockroachDB` made.
    Cockroach,
}

impl ForeignKind {
    /// Returns its name, the length of an id in bytes, the unit of the timestamp in nanoseconds, and the
    /// fields.
    const fn facts(self) -> (&'static str, usize, u64, &'static [SchemeField]) {
        match self {
            Self::Uuid1 => ("uuid1", 16, 100, UUID1),
            Self::Uuid2 => ("uuid2", 16, MS, UUID2),
            Self::Uuid3 => ("uuid3", 16, MS, UUID_OF_NAME),
            Self::Uuid5 => ("uuid5", 16, MS, UUID_OF_NAME),
            Self::Uuid6 => ("uuid6", 16, 100, UUID6),
            Self::Uuid8 => ("uuid8", 16, MS, UUID8),
            Self::Uuid => ("uuid", 16, MS, OPAQUE),
            Self::UuidNil => ("uuid-nil", 16, MS, OPAQUE),
            Self::UuidMax => ("uuid-max", 16, MS, OPAQUE),
            Self::Ksuid => ("ksuid", 20, 1000 * MS, KSUID),
            Self::Xid => ("xid", 12, 1000 * MS, XID),
            Self::TypeId => ("typeid", 16, MS, OPAQUE),
            Self::Tid => ("tid", 8, 1000, TID),
            Self::Cockroach => ("cockroach", 8, 10_000, COCKROACH),
        }
    }

    /// Returns the name of the kind.
    pub const fn name(self) -> &'static str {
        self.facts().0
    }

    /// Returns the length of an id in bytes.
    pub const fn byte_len(self) -> usize {
        self.facts().1
    }

    /// Returns the unit of the timestamp in nanoseconds.
    pub(crate) const fn tick_ns(self) -> u64 {
        self.facts().2
    }
}

impl fmt::Display for ForeignKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A millisecond in nanoseconds.
const MS: u64 = 1_000_000;
/// The longest prefix of a `TypeID`.
const MAX_PREFIX: usize = 63;
/// 2014-05-13T16:53:20Z, the epoch of KSUID, in seconds.
const KSUID_EPOCH: u64 = 1_400_000_000;
/// 2015-01-01T00:00:00Z, the epoch of `unique_rowid()`, in microseconds.
const COCKROACH_EPOCH_US: u64 = 1_420_070_400_000_000;
/// The time from 1582-10-15, the epoch of UUID v1, to 1970, in units of 100 ns.
const GREGORIAN_TO_UNIX: u64 = 0x01b2_1dd2_1381_4000;

const BASE62: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const BASE32HEX: &[u8] = b"0123456789abcdefghijklmnopqrstuv";
const BASE32_SORTABLE: &[u8] = b"234567abcdefghijklmnopqrstuvwxyz";
const CROCKFORD_LOWER: &[u8] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// An id of another system, which Snowmint reads but does not make.
///
/// # Examples
///
/// ```
/// use snowmint::scheme::ForeignId;
/// let id = ForeignId::of_text("0ujtsYcgvSTl8PAuAdqWYSMnLOv").ok_or("not an id")?;
/// assert_eq!((id.kind().name(), id.unix_ms()), ("ksuid", Some(1_507_608_047_000)));
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ForeignId {
    kind: ForeignKind,
    /// The bits above the lower 128, of a KSUID.
    top: u32,
    /// The number, right-aligned.
    value: u128,
    /// The prefix of a `TypeID`.
    prefix: Text<MAX_PREFIX>,
}

impl ForeignId {
    /// Reads a text as the id of the kind that its form tells; `None` if it has no such form, or is a UUID v4
    /// or v7, which [`Scheme`](super::Scheme) reads. Decimal numbers are read by
    /// [`of_row_id`](Self::of_row_id).
    pub fn of_text(text: &str) -> Option<Self> {
        match text.len() {
            _ if text.contains('_') => of_type_id(text),
            32 | 36 => of_uuid(text),
            27 => of_ksuid(text),
            20 => of_xid(text),
            13 => of_tid(text),
            _ => None,
        }
    }

    /// Reads a number as a row id of `CockroachDB`.
    pub fn of_row_id(id: crate::Id) -> Self {
        Self::new(ForeignKind::Cockroach, u128::from(id.get()))
    }

    const fn new(kind: ForeignKind, value: u128) -> Self {
        Self { kind, top: 0, value, prefix: Text::EMPTY }
    }

    /// Returns the kind.
    pub const fn kind(&self) -> ForeignKind {
        self.kind
    }

    /// Returns the bytes in hexadecimal, highest first.
    pub fn hex(&self) -> String {
        match self.kind.byte_len() {
            20 => format!("{:08x}{:032x}", self.top, self.value),
            len => format!("{:0digits$x}", self.value, digits = 2 * len),
        }
    }

    /// Returns when the id was made, in unix microseconds; `None` if it has no time, or one before 1970.
    pub const fn unix_us(&self) -> Option<u64> {
        match self.kind {
            ForeignKind::Uuid1 => {
                since_1582(self.bits(64, 12) << 48 | self.bits(80, 16) << 32 | self.bits(96, 32))
            }
            ForeignKind::Uuid6 => {
                since_1582(self.bits(96, 32) << 28 | self.bits(80, 16) << 12 | self.bits(64, 12))
            }
            ForeignKind::Ksuid => Some((self.top as u64 + KSUID_EPOCH) * 1_000_000),
            ForeignKind::Xid => Some(self.bits(64, 32) * 1_000_000),
            ForeignKind::TypeId if self.holds_uuid7() => Some(self.bits(80, 48) * 1000),
            ForeignKind::Tid => Some(self.bits(10, 53)),
            ForeignKind::Cockroach => Some(self.bits(15, 48) * 10 + COCKROACH_EPOCH_US),
            _ => None,
        }
    }

    /// Returns up to 64 bits of the number.
    #[expect(clippy::cast_possible_truncation, reason = "at most 53 bits are asked for")]
    const fn bits(&self, shift: u32, width: u32) -> u64 {
        bits(self.value, shift, width) as u64
    }

    /// Returns when the id was made, in unix milliseconds, as [`unix_us`](Self::unix_us).
    pub const fn unix_ms(&self) -> Option<u64> {
        match self.unix_us() {
            Some(us) => Some(us / 1000),
            None => None,
        }
    }

    /// Returns the prefix of a `TypeID`; empty for all others.
    pub fn prefix(&self) -> &str {
        self.prefix.as_str()
    }

    const fn holds_uuid7(&self) -> bool {
        bits(self.value, 76, 4) == 7 && bits(self.value, 62, 2) == 2
    }

    /// Returns the fields, from the top bit down.
    pub fn fields(&self) -> &'static [SchemeField] {
        match self.kind {
            ForeignKind::TypeId if self.holds_uuid7() => uuid::FIELDS_V7,
            kind => kind.facts().3,
        }
    }

    /// Returns the fields with their values, from the top bit down.
    pub fn values(&self) -> impl Iterator<Item = (&'static SchemeField, u128)> + use<> {
        let (top, value) = (self.top, self.value);
        self.fields().iter().map(move |field| match (field.shift, field.width) {
            (128.., _) => (field, u128::from(top)),
            (_, 128) => (field, value),
            (shift, width) => (field, bits(value, shift, width)),
        })
    }
}

impl fmt::Display for ForeignId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ForeignKind::Ksuid => write_digits(f, BASE62, 27, self.top, self.value),
            ForeignKind::Xid => write_digits(f, BASE32HEX, 20, 0, self.value << 4),
            ForeignKind::Tid => write_digits(f, BASE32_SORTABLE, 13, 0, self.value),
            ForeignKind::Cockroach => write!(f, "{}", self.value),
            ForeignKind::TypeId => {
                write!(f, "{}_", self.prefix)?;
                write_digits(f, CROCKFORD_LOWER, 26, 0, self.value)
            }
            _ => fmt::Display::fmt(&Uuid::from_u128(self.value), f),
        }
    }
}

impl fmt::Debug for ForeignId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({self})", self.kind)
    }
}

const VERSION: SchemeField = SchemeField::number("version", 76, 4);
const VARIANT: SchemeField = SchemeField::number("variant", 62, 2);
const CLOCK_SEQ: SchemeField = SchemeField::number("clock_seq", 48, 14);
const NODE: SchemeField = SchemeField::random("node", 0, 48);

const UUID1: &[SchemeField] = &[
    SchemeField::random("time_low", 96, 32),
    SchemeField::random("time_mid", 80, 16),
    VERSION,
    SchemeField::random("time_high", 64, 12),
    VARIANT,
    CLOCK_SEQ,
    NODE,
];
const UUID2: &[SchemeField] = &[
    SchemeField::number("local_id", 96, 32),
    SchemeField::random("time_mid", 80, 16),
    VERSION,
    SchemeField::random("time_high", 64, 12),
    VARIANT,
    CLOCK_SEQ,
    NODE,
];
const UUID6: &[SchemeField] = &[
    SchemeField::random("time_high", 96, 32),
    SchemeField::random("time_mid", 80, 16),
    VERSION,
    SchemeField::random("time_low", 64, 12),
    VARIANT,
    CLOCK_SEQ,
    NODE,
];
const UUID_OF_NAME: &[SchemeField] = &[
    SchemeField::random("hash_a", 80, 48),
    VERSION,
    SchemeField::random("hash_b", 64, 12),
    VARIANT,
    SchemeField::random("hash_c", 0, 62),
];
const UUID8: &[SchemeField] = &[
    SchemeField::random("custom_a", 80, 48),
    VERSION,
    SchemeField::random("custom_b", 64, 12),
    VARIANT,
    SchemeField::random("custom_c", 0, 62),
];
const OPAQUE: &[SchemeField] = &[SchemeField::random("bits", 0, 128)];
const KSUID: &[SchemeField] =
    &[SchemeField::number("timestamp", 128, 32), SchemeField::random("payload", 0, 128)];
const XID: &[SchemeField] = &[
    SchemeField::number("timestamp", 64, 32),
    SchemeField::random("machine", 40, 24),
    SchemeField::number("process", 24, 16),
    SchemeField::number("counter", 0, 24),
];
const TID: &[SchemeField] =
    &[SchemeField::number("timestamp", 10, 54), SchemeField::number("clock_id", 0, 10)];
const COCKROACH: &[SchemeField] =
    &[SchemeField::number("timestamp", 15, 49), SchemeField::number("node", 0, 15)];

/// Returns the microseconds from 1970 to a time in units of 100 ns since 1582-10-15; `None` before 1970.
const fn since_1582(ticks: u64) -> Option<u64> {
    match ticks.checked_sub(GREGORIAN_TO_UNIX) {
        Some(ticks) => Some(ticks / 10),
        None => None,
    }
}

/// Reads a UUID whose version is not 4 or 7. Without hyphens, any hash looks like a UUID, so its version has
/// to be known.
fn of_uuid(text: &str) -> Option<ForeignId> {
    let uuid = Uuid::try_parse(text).ok()?;
    let of_rfc = uuid.get_variant() == Variant::RFC4122;
    let kind = match (uuid.as_u128(), uuid.get_version_num()) {
        (0, _) => ForeignKind::UuidNil,
        (u128::MAX, _) => ForeignKind::UuidMax,
        (_, 1) if of_rfc => ForeignKind::Uuid1,
        (_, 2) if of_rfc => ForeignKind::Uuid2,
        (_, 3) if of_rfc => ForeignKind::Uuid3,
        (_, 4 | 7) if of_rfc => return None,
        (_, 5) if of_rfc => ForeignKind::Uuid5,
        (_, 6) if of_rfc => ForeignKind::Uuid6,
        (_, 8) if of_rfc => ForeignKind::Uuid8,
        _ if text.len() == 36 => ForeignKind::Uuid,
        _ => return None,
    };
    Some(ForeignId::new(kind, uuid.as_u128()))
}

fn of_ksuid(text: &str) -> Option<ForeignId> {
    let (top, value) = number_of(text, BASE62)?;
    Some(ForeignId { top, ..ForeignId::new(ForeignKind::Ksuid, value) })
}

/// 20 digits hold 100 bits: the last digit has 4 zeros below the 96 bits.
fn of_xid(text: &str) -> Option<ForeignId> {
    let (_, value) = number_of(text, BASE32HEX)?;
    (value.trailing_zeros() >= 4).then(|| ForeignId::new(ForeignKind::Xid, value >> 4))
}

/// 13 digits hold 65 bits; the top two are 0.
fn of_tid(text: &str) -> Option<ForeignId> {
    let (_, value) = number_of(text, BASE32_SORTABLE)?;
    (value >> 63 == 0).then(|| ForeignId::new(ForeignKind::Tid, value))
}

/// A prefix is lower-case letters and `_`, but not at its ends.
fn of_type_id(text: &str) -> Option<ForeignId> {
    let (prefix, suffix) = text.rsplit_once('_')?;
    let is_letter = |byte: &u8| byte.is_ascii_lowercase();
    let (first, last) = (prefix.as_bytes().first()?, prefix.as_bytes().last()?);
    let is_prefix = prefix.bytes().all(|byte| is_letter(&byte) || byte == b'_');
    if prefix.len() > MAX_PREFIX || !is_prefix || !is_letter(first) || !is_letter(last) || suffix.len() != 26
    {
        return None;
    }
    // 26 digits hold 130 bits.
    let (0, value) = number_of(suffix, CROCKFORD_LOWER)? else { return None };
    Some(ForeignId {
        prefix: Text::of_ascii(prefix.as_bytes()),
        ..ForeignId::new(ForeignKind::TypeId, value)
    })
}

/// Returns the number of up to 160 bits that digits write, as its bits above the lower 128 and these.
fn number_of(text: &str, digits: &[u8]) -> Option<(u32, u128)> {
    const HALF: u32 = 64;
    let base = digits.len() as u128;
    // Limbs of 64 bits: a product of a limb and a base fits 128 bits.
    let (mut top, mut high, mut low) = (0_u128, 0_u128, 0_u128);
    for byte in text.bytes() {
        let digit = digits.iter().position(|it| *it == byte)? as u128;
        low = low * base + digit;
        high = high * base + (low >> HALF);
        top = top * base + (high >> HALF);
        (low, high) = (low & u128::from(u64::MAX), high & u128::from(u64::MAX));
        if top > u128::from(u32::MAX) {
            return None;
        }
    }
    Some((u32::try_from(top).ok()?, high << HALF | low))
}

/// Writes a number of 160 bits with a fixed number of digits.
fn write_digits(f: &mut fmt::Formatter<'_>, digits: &[u8], len: usize, top: u32, value: u128) -> fmt::Result {
    let base = digits.len() as u128;
    let mut limbs = [u128::from(top), value >> 64, value & u128::from(u64::MAX)];
    let mut text = [0; 27];
    for place in text[..len].iter_mut().rev() {
        let mut rest = 0;
        for limb in &mut limbs {
            let number = rest << 64 | *limb;
            (*limb, rest) = (number / base, number % base);
        }
        // The rest is below the base, which is at most 62.
        *place = digits[usize::try_from(rest).unwrap_or_default()];
    }
    f.write_str(core::str::from_utf8(&text[..len]).unwrap_or(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> ForeignId {
        ForeignId::of_text(text).unwrap_or_else(|| panic!("{text}"))
    }

    /// Goal: each kind is known by its text and writes the same text again, and its fields hold every bit.
    /// Method: published ids of each kind with their time.
    #[test]
    fn every_kind_reads_what_it_writes_and_tells_the_time() {
        for (text, kind, unix_us) in [
            ("c232ab00-9414-11ec-b3c8-9f6bdeced846", "uuid1", Some(1_645_557_742_000_000)),
            ("1ec9414c-232a-6b00-b3c8-9f6bdeced846", "uuid6", Some(1_645_557_742_000_000)),
            ("5df41881-3aed-3515-88a7-2f4a814cf09e", "uuid3", None),
            ("2ed6657d-e927-568b-95e1-2665a8aea6a2", "uuid5", None),
            ("2489e9ad-2ee2-8e00-8ec9-32d5f69181c0", "uuid8", None),
            ("000003e8-9414-21ec-b300-9f6bdeced846", "uuid2", None),
            ("c232ab00-9414-11ec-c3c8-9f6bdeced846", "uuid", None),
            ("00000000-0000-0000-0000-000000000000", "uuid-nil", None),
            ("ffffffff-ffff-ffff-ffff-ffffffffffff", "uuid-max", None),
            ("0ujtsYcgvSTl8PAuAdqWYSMnLOv", "ksuid", Some(1_507_608_047_000_000)),
            ("aWgEPTl1tmebfsQzFP4bxwgy80V", "ksuid", Some(5_694_967_295_000_000)),
            ("9m4e2mr0ui3e8a215n4g", "xid", Some(1_300_816_219_000_000)),
            ("prefix_01h2xcejqtf2nbrexx3vqjhp41", "typeid", Some(1_686_760_803_066_000)),
            ("a_b_00000000000000000000000000", "typeid", None),
            ("3laulgolrfz2f", "tid", Some(1_731_543_333_133_695)),
        ] {
            let id = read(text);
            assert_eq!((id.kind().name(), id.unix_us(), id.to_string()), (kind, unix_us, text.to_owned()));
            let widths: u32 = id.fields().iter().map(|field| field.width).sum();
            assert_eq!(widths as usize, 8 * id.kind().byte_len(), "{text}");
            assert_eq!(id.hex().len(), 2 * id.kind().byte_len(), "{text}");
            assert_eq!(id.values().count(), id.fields().len());
        }
        assert_eq!(read("0ujtsYcgvSTl8PAuAdqWYSMnLOv").hex(), "0669f7efb5a1cd34b5f99d1154fb6853345c9735");
        assert_eq!(read("9m4e2mr0ui3e8a215n4g").hex(), "4d88e15b60f486e428412dc9");
        assert_eq!(read("00000000000010008f06a139ab18f414").unix_us(), None, "its time is 1582");
        assert_eq!(read("prefix_01h2xcejqtf2nbrexx3vqjhp41").hex(), "0188bac74afa78aabc3bbd1eef28d881");
    }

    #[test]
    fn a_row_id_has_its_time_and_node() {
        // 2020-01-01T00:00:00Z, node 3.
        let ticks = (1_577_836_800_000_000 - COCKROACH_EPOCH_US) / 10;
        let id = ForeignId::of_row_id(crate::Id::new(ticks << 15 | 3).unwrap());
        assert_eq!((id.unix_ms(), id.kind().name()), (Some(1_577_836_800_000), "cockroach"));
        assert_eq!(id.values().map(|(_, value)| value).collect::<Vec<_>>(), [u128::from(ticks), 3]);
        assert_eq!(id.to_string(), (ticks << 15 | 3).to_string());
    }

    #[test]
    fn other_texts_are_of_no_kind() {
        for text in [
            "",
            "_",
            "_01h2xcejqtf2nbrexx3vqjhp41",
            "Prefix_01h2xcejqtf2nbrexx3vqjhp41",
            "prefix_81h2xcejqtf2nbrexx3vqjhp41",
            "prefix_01H2XCEJQTF2NBREXX3VQJHP41",
            "aWgEPTl1tmebfsQzFP4bxwgy80W",
            "9m4e2mr0ui3e8a215n4h",
            "9M4E2MR0UI3E8A215N4G",
            "klaulgolrfz2f",
            "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
            "919108f7-52d1-4320-9bac-f847db4148a8",
            "d41d8cd98f00b204e9800998ecf8427e",
            "éééééééééé",
        ] {
            assert!(ForeignId::of_text(text).is_none(), "{text}");
        }
    }
}
