//! Texts of real systems are read and written as their makers say. Numbers from 2^63 on are ids of systems
//! with unsigned 64 bits: every decoder rejects their texts.

use std::fmt::Display;

use snowmint::codec::{Alphabet, ParseIdError, bytes, decimal, encode_scru64, hex};
use snowmint::field::{Sequence, Timestamp};
use snowmint::{Id, Layout, Parts, WorkerId};

use super::{Case, Kind, preset};

type Decoder = fn(&str) -> Result<Id, ParseIdError>;

pub(crate) const KINDS: &[Kind] = &[
    Kind::new("encode-base62-11", 7, |case| {
        both(case, |id| Alphabet::BASE62.encode_padded(id), |text| Alphabet::BASE62.decode(text));
    }),
    Kind::new("encode-radix62", 5, |case| {
        both(case, |id| Alphabet::BASE62.encode(id), |text| Alphabet::BASE62.decode(text));
    }),
    Kind::new("encode-radix36", 4, |case| {
        both(case, |id| Alphabet::BASE36.encode(id), |text| Alphabet::BASE36.decode(text));
    }),
    Kind::new("encode-crockford32-13", 6, |case| {
        both(case, |id| Alphabet::CROCKFORD32.encode(id), |text| Alphabet::CROCKFORD32.decode(text));
        if let Some(unix_ms) = case.get("tsid_unix_ms") {
            let tsid = preset("tsid");
            assert_eq!(tsid.unix_ms(tsid.split(case.id()).unwrap().timestamp), *unix_ms);
        }
    }),
    Kind::new("encode-base2", 2, |case| {
        both(case, |id| Alphabet::BINARY.encode(id), |text| Alphabet::BINARY.decode(text));
    }),
    Kind::new("encode-base58", 1, |case| {
        both(case, |id| Alphabet::BASE58_FLICKR.encode(id), |text| Alphabet::BASE58_FLICKR.decode(text));
    }),
    Kind::new("encode-zbase32", 1, |case| {
        both(case, |id| Alphabet::ZBASE32.encode(id), |text| Alphabet::ZBASE32.decode(text));
    }),
    Kind::new("encode-base64-of-decimal-string", 1, |case| {
        both(case, decimal::encode_base64, decimal::decode_base64);
    }),
    Kind::new("encode-base10-20", 2, |case| {
        both(case, |id| base(10).encode_padded(id), |text| base(10).decode(text));
    }),
    Kind::new("encode-base43-12", 3, |case| {
        both(case, |id| base(43).encode_padded(id), |text| base(43).decode(text));
    }),
    Kind::new("encode-be-bytes", 1, |case| {
        let number = u64::from_str_radix(case.word("bytes_hex"), 16).unwrap();
        assert_eq!(bytes::encode(case.id()), number.to_be_bytes());
        assert_eq!(bytes::decode(number.to_be_bytes()), Ok(case.id()));
    }),
    Kind::new("decode-base36", 1, |case| {
        base36_lower(case.text(), case.word("u64"));
    }),
    Kind::new("encode-cosid-80bit-radix62", 1, |case| cosid_text(case, 62)),
    Kind::new("encode-cosid-80bit-radix36", 1, |case| cosid_text(case, 36)),
    Kind::new("reject-radix62", 1, |case| refused(case, &[|text| Alphabet::BASE62.decode(text)])),
    Kind::new("reject-base62", 2, |case| {
        refused(case, &[|text| Alphabet::BASE62.decode(text), |text| base(62).decode(text)]);
    }),
    Kind::new("reject-radix36", 1, |case| refused(case, &[|text| Alphabet::BASE36.decode(text)])),
    Kind::new("reject-base36", 1, |case| {
        refused(case, &[|text| Alphabet::BASE36.decode(text), |text| Alphabet::BASE36_LOWER.decode(text)]);
    }),
    Kind::new("reject-zbase32", 3, |case| refused(case, &[|text| Alphabet::ZBASE32.decode(text)])),
    Kind::new("reject-base58", 3, |case| refused(case, &[|text| Alphabet::BASE58_FLICKR.decode(text)])),
    Kind::new("reject-base43", 1, |case| refused(case, &[|text| base(43).decode(text)])),
    Kind::new("reject-base10", 1, |case| refused(case, &[decimal::decode, |text| base(10).decode(text)])),
    Kind::new("reject-decimal", 1, |case| refused(case, &[decimal::decode, str::parse])),
    Kind::new("radix-width", 2, radix_width),
    Kind::new("json", 1, json),
    Kind::new("ticket", 1, |case| {
        assert!(case.word("scheme").contains("auto-increment"), "a number without fields");
        assert_eq!(decimal::encode(case.id()).as_str(), case.text());
    }),
];

/// The first `size` characters of `0-9A-Za-z`, as an alphabet.
fn base(size: usize) -> Alphabet {
    const DIGITS: &str = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    Alphabet::new(&DIGITS[..size]).unwrap()
}

pub(crate) fn crockford(id: Id, text: &str) {
    assert_eq!(
        (Alphabet::CROCKFORD32.encode(id).as_str(), Alphabet::CROCKFORD32.decode(text)),
        (text, Ok(id))
    );
}

pub(crate) fn base36_lower(text: &str, decimal: &str) -> Id {
    let id = Alphabet::BASE36_LOWER.decode(text).unwrap();
    assert_eq!(id.to_string(), decimal);
    assert_eq!(format!("{:0>1$}", Alphabet::BASE36_LOWER.encode(id).as_str(), text.len()), text);
    if text.len() == 12 {
        assert_eq!(encode_scru64(id).unwrap().as_str(), text);
    }
    id
}

/// Writes the number as the text and reads it back; rejects the text of a number that is not an id.
fn both<T: Display>(
    case: &Case<'_>,
    encode: impl Fn(Id) -> T,
    decode: impl Fn(&str) -> Result<Id, ParseIdError>,
) {
    let text = case.word("text");
    let digits = case.get("hex").map(|digits| digits.as_str().unwrap());
    let alphabet = case.get("alphabet").map(|alphabet| alphabet.as_str().unwrap());
    let Some(id) = case.number_below_2_63() else {
        assert!(matches!(decode(text), Err(ParseIdError::Overflow { .. })), "{text}");
        return;
    };
    assert_eq!(encode(id).to_string(), text);
    assert_eq!(decode(text), Ok(id));
    if let Some(digits) = digits {
        assert_eq!((hex::encode(id).as_str(), hex::decode(digits)), (digits, Ok(id)));
    }
    // Some sources list the characters, others name a range of them.
    if let Some(alphabet) = alphabet.filter(|alphabet| !alphabet.contains('-')) {
        assert_eq!(Alphabet::new(alphabet).unwrap().decode(text), Ok(id));
    }
}

fn refused(case: &Case<'_>, decoders: &[Decoder]) {
    case.must_be_refused();
    for decode in decoders {
        assert!(decode(case.text()).is_err(), "{}", case.text());
    }
    if let Some(value) = case.get("value") {
        assert!(value.as_str().unwrap().parse::<u128>().unwrap() > u128::from(u64::MAX));
    }
}

/// `CosId`'s id of 80 bits is one text of three numbers, each as wide as its bits need. In these examples it
/// has 16, so that one layout holds it.
fn cosid_text(case: &Case<'_>, radix: usize) {
    let alphabet = base(radix);
    let bits = |member: &str| u32::try_from(case.number(member)).unwrap();
    let widths = ["timestamp_bits", "machine_bits", "sequence_bits"].map(bits);
    let [time, worker, sequence] = widths;
    let layout: Layout =
        format!("time:{time} worker:{worker} sequence:{sequence} epoch:1970-01-01").parse().unwrap();
    let mut rest = case.text();
    let mut take = |bits: u32| {
        let (digits, after) = rest.split_at(alphabet.width_of_bits(bits));
        rest = after;
        alphabet.decode(digits).unwrap().get()
    };
    let [timestamp, worker, sequence] = widths.map(&mut take);
    assert_eq!(rest, "");
    assert_eq!(
        (timestamp, worker, sequence),
        (case.number("timestamp"), case.number("machine"), case.number("sequence"))
    );
    let parts = Parts {
        timestamp: Timestamp(timestamp),
        worker: WorkerId(u32::try_from(worker).unwrap()),
        sequence: Sequence(u32::try_from(sequence).unwrap()),
        ..Parts::default()
    };
    assert_eq!(layout.split(layout.compose(&parts).unwrap()), Ok(parts));
    let write = |value: u64, bits| {
        let digits = alphabet.encode(Id::new(value).unwrap());
        format!("{:0>1$}", digits.as_str(), alphabet.width_of_bits(bits))
    };
    let written: String = [timestamp, worker, sequence]
        .into_iter()
        .zip(widths)
        .map(|(value, bits)| write(value, bits))
        .collect();
    assert_eq!(written, case.text());
}

fn radix_width(case: &Case<'_>) {
    let alphabet = base(if case.text() == "radix62" { 62 } else { 36 });
    for (bits, chars) in case.get("bits_to_chars").unwrap().as_object().unwrap() {
        assert_eq!(alphabet.width_of_bits(bits.parse().unwrap()) as u64, chars.as_u64().unwrap(), "{bits}");
    }
}

#[cfg(feature = "serde")]
fn json(case: &Case<'_>) {
    let written = case.word("json");
    assert_eq!(serde_json::to_string(&case.id()).unwrap(), written);
    assert_eq!(serde_json::from_str::<Id>(written).unwrap(), case.id());
    for bad in case.get("reject_json").unwrap().as_array().unwrap() {
        assert!(serde_json::from_str::<Id>(bad.as_str().unwrap()).is_err(), "{bad}");
    }
}

#[cfg(not(feature = "serde"))]
fn json(case: &Case<'_>) {
    case.needs_another_feature();
}

/// Goal: texts that do not fit are rejected, never truncated. Method: the texts of boundary/flake, 128 bits.
#[test]
fn ids_of_128_bits_are_refused() {
    assert!(hex::decode("00000134d4212d43109add5e0e8f0000").is_err());
    assert!(Alphabet::BASE62.decode("8HFaR8qWtRlGDHnO57").is_err());
}
