//! Goal: texts and schemes of the real world read and write as their makers say.
//! Method: each kind of `vectors.json` is run here, run in a file that is named, or out of scope for a reason that
//! is given; a kind in none of the three lists, or in two, fails the test. Numbers from 2^63 on are ids of other
//! systems' unsigned 64 bits: every decoder must refuse their texts.

// Miri would read JSON for minutes, for arithmetic that other tests run too.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeSet;
use std::fmt::Display;

use serde_json::Value;
use snowmint::codec::alphabet::Alphabet;
use snowmint::codec::{
    CodecError, base36, base58_flickr, base62, base64_of_decimal, binary, bytes, crockford32, decimal, hex,
    zbase32,
};
use snowmint::utc::Utc;
use snowmint::{Field, Id, Layout};

type Case = fn(&Value);
type Decoder = fn(&str) -> Result<Id, CodecError>;

const RUN_HERE: &[(&str, Case)] = &[
    ("encode-base62-11", |case| both(case, base62::encode_padded, base62::decode)),
    ("encode-radix62", |case| both(case, base62::encode, base62::decode)),
    ("encode-radix36", |case| both(case, base36::encode, base36::decode)),
    ("encode-crockford32-13", |case| {
        both(case, crockford32::encode, crockford32::decode);
        if let Some(unix_ms) = case["expected"]["tsid_unix_ms"].as_u64() {
            assert_eq!(tsid_unix_ms(id(case).unwrap()), unix_ms);
        }
    }),
    ("encode-base2", |case| both(case, binary::encode, binary::decode)),
    ("encode-base58", |case| both(case, base58_flickr::encode, base58_flickr::decode)),
    ("encode-zbase32", |case| both(case, zbase32::encode, zbase32::decode)),
    ("encode-base64-of-decimal-string", |case| {
        both(case, base64_of_decimal::encode, base64_of_decimal::decode);
    }),
    ("encode-base10-20", |case| both(case, |id| base(10).encode_padded(id), |text| base(10).decode(text))),
    ("encode-base43-12", |case| both(case, |id| base(43).encode_padded(id), |text| base(43).decode(text))),
    ("encode-be-bytes", |case| {
        let id = id(case).unwrap();
        let hex = u64::from_str_radix(case["expected"]["bytes_hex"].as_str().unwrap(), 16).unwrap();
        assert_eq!(bytes::encode(id), hex.to_be_bytes());
        assert_eq!(bytes::decode(bytes::encode(id)), Ok(id));
    }),
    ("decode-base36", |case| {
        let id = base36::decode_either_case(text(case)).unwrap();
        assert_eq!(id.to_string(), case["expected"]["u64"].as_str().unwrap());
        assert_eq!(base36::encode_lower(id).as_str(), text(case));
    }),
    ("reject-radix62", |case| refused(case, &[base62::decode])),
    ("reject-base62", |case| refused(case, &[base62::decode, |text| base(62).decode(text)])),
    ("reject-radix36", |case| refused(case, &[base36::decode])),
    ("reject-base36", |case| refused(case, &[base36::decode, base36::decode_either_case])),
    ("reject-zbase32", |case| refused(case, &[zbase32::decode])),
    ("reject-base58", |case| refused(case, &[base58_flickr::decode])),
    ("reject-base43", |case| refused(case, &[|text| base(43).decode(text)])),
    ("reject-base10", |case| refused(case, &[decimal::decode, |text| base(10).decode(text)])),
    ("reject-decimal", |case| refused(case, &[decimal::decode, str::parse])),
    ("radix-width", radix_width),
    ("json", json),
    ("js-precision", js_precision),
    ("exhaustion", exhaustion),
    ("ticket", |case| both_texts(text(case), id(case).unwrap(), &decimal::encode(id(case).unwrap()))),
    ("decode-tsid", |case| {
        let (id, expected) = (id(case).unwrap(), &case["expected"]);
        assert_eq!(tsid_unix_ms(id), expected["unix_ms"].as_u64().unwrap());
        assert_eq!(id.get() & 0x3f_ffff, expected["random22"].as_u64().unwrap());
        if let Some(text) = expected["crockford13"].as_str() {
            assert_eq!((crockford32::encode(id).as_str(), crockford32::decode(text)), (text, Ok(id)));
        }
    }),
    ("decode-scru64", |case| {
        let id = base36::decode_either_case(text(case)).unwrap();
        let expected = &case["expected"];
        assert_eq!(id.to_string(), expected["u64"].as_str().unwrap());
        let scru64: Layout = "time:39@256ms sequence:24 epoch:1970-01-01".parse().unwrap();
        let parts = scru64.split(id).unwrap();
        assert_eq!(parts.timestamp.0, expected["timestamp_256ms"].as_u64().unwrap());
        assert_eq!(u64::from(parts.sequence.0), expected["node_ctr"].as_u64().unwrap());
    }),
    ("decode-sonyflake-ts-port", |case| {
        let expected = &case["expected"];
        let epoch = expected["epoch_unix_ms"].as_u64().unwrap();
        let port: Layout = format!("time:39@1ms sequence:8 worker:16 epoch:{epoch}").parse().unwrap();
        let parts = port.split(id(case).unwrap()).unwrap();
        assert_eq!(port.unix_ms(parts.timestamp), expected["unix_ms"].as_u64().unwrap());
        assert_eq!((parts.worker.0, parts.sequence.0), (2, 0));
    }),
    ("decode-ulid", schemes::decode_ulid),
    ("reject-ulid", schemes::reject_ulid),
    ("decode-uuidv7", schemes::decode_uuidv7),
];

const RUN_ELSEWHERE: &[(&str, &str)] = &[
    ("decode-snowflake", "tests/vectors.rs"),
    ("encode-snowflake", "tests/vectors.rs"),
    ("decode-sonyflake-v1", "tests/vectors.rs"),
    ("decode-yitter", "tests/vectors.rs"),
    ("decode-uid-generator", "tests/vectors.rs"),
    ("encode-instagram", "tests/vectors.rs"),
    ("decode-mastodon", "tests/vectors.rs"),
    ("must-reject-worker", "tests/vectors.rs"),
    ("ulid-monotonic-next", "src/scheme/ulid.rs"),
];

const OUT_OF_SCOPE: &[(&str, &str)] = &[
    ("decode-snowflake-friendly", "a date in a local zone: what it names depends on the reader"),
    ("encode-snowflake-friendly", "as decode-snowflake-friendly"),
    ("reject-snowflake-friendly", "as decode-snowflake-friendly"),
    ("encode-cosid-80bit-radix62", "80 bits, an id has 63"),
    ("encode-cosid-80bit-radix36", "80 bits, an id has 63"),
    ("decode-flake128", "128 bits of boundary/flake, which is no scheme here"),
    ("decode-flake128-base62", "as decode-flake128"),
    ("decode-tidb-auto-random", "a shard and a counter: without a timestamp it is no layout"),
    ("sequence", "what a generator gives under a clock script: tests/generator.rs"),
    ("sequence-yitter", "as sequence; its sequences start at 5, ours at 0 or at random"),
    ("behaviour", "a generator under a clock that goes back, and user agents of the Thrift service"),
    ("worker-collision", "how workers are given out: snowmint-cluster"),
];

fn cases() -> Vec<Value> {
    serde_json::from_str(include_str!("vectors.json")).unwrap()
}

fn text(case: &Value) -> &str {
    case["id"].as_str().unwrap()
}

/// The number of a case; `None` from 2^63 on.
fn id(case: &Value) -> Option<Id> {
    Id::new(text(case).parse().unwrap()).ok()
}

/// The first `size` characters of `0-9A-Za-z`, as an alphabet.
fn base(size: usize) -> Alphabet {
    const DIGITS: &str = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    Alphabet::new(&DIGITS[..size]).unwrap()
}

fn both_texts(expected: &str, id: Id, shown: &str) {
    assert_eq!(shown, expected, "{id}");
}

/// Writes the number as the text and reads it back; refuses the text of a number that is no id.
fn both<T: Display>(case: &Value, encode: impl Fn(Id) -> T, decode: impl Fn(&str) -> Result<Id, CodecError>) {
    let expected = case["expected"]["text"].as_str().unwrap();
    let Some(id) = id(case) else {
        assert!(matches!(decode(expected), Err(CodecError::Overflow { .. })), "{expected}");
        return;
    };
    both_texts(expected, id, &encode(id).to_string());
    assert_eq!(decode(expected), Ok(id));
    if let Some(digits) = case["expected"]["hex"].as_str() {
        assert_eq!((hex::encode(id).as_str(), hex::decode(digits)), (digits, Ok(id)));
    }
}

fn refused(case: &Value, decoders: &[Decoder]) {
    for decode in decoders {
        assert!(decode(text(case)).is_err(), "{}", text(case));
    }
}

fn tsid_unix_ms(id: Id) -> u64 {
    let tsid: Layout = "time:41@1ms worker:10 sequence:12 epoch:2020-01-01".parse().unwrap();
    tsid.unix_ms(tsid.split(id).unwrap().timestamp)
}

fn radix_width(case: &Value) {
    let alphabet = base(if text(case) == "radix62" { 62 } else { 36 });
    for (bits, chars) in case["expected"]["bits_to_chars"].as_object().unwrap() {
        assert_eq!(alphabet.width_of_bits(bits.parse().unwrap()) as u64, chars.as_u64().unwrap(), "{bits}");
    }
}

#[cfg(feature = "serde")]
fn json(case: &Value) {
    let written = case["expected"]["json"].as_str().unwrap();
    assert_eq!(serde_json::to_string(&id(case)).unwrap(), written);
    assert_eq!(serde_json::from_str::<Id>(written).unwrap(), id(case).unwrap());
    for bad in case["expected"]["reject_json"].as_array().unwrap() {
        assert!(serde_json::from_str::<Id>(bad.as_str().unwrap()).is_err(), "{bad}");
    }
}

#[cfg(not(feature = "serde"))]
fn json(_: &Value) {}

/// A number of JavaScript is a double: which ids survive in one, and that a layout says so beforehand.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the point"
)]
fn js_precision(case: &Value) {
    let (id, expected) = (id(case).unwrap(), &case["expected"]);
    let double = id.get() as f64 as u64;
    assert_eq!(double.to_string(), expected["nearest_double"].as_str().unwrap());
    assert_eq!(double == id.get(), expected["equals_id"].as_bool().unwrap());
    let wide = Layout::TWITTER.split(id).is_ok() && id.get() >> 53 != 0;
    assert_eq!(wide, !expected["safe"].as_bool().unwrap());
    assert!(!Layout::TWITTER.is_safe_in_javascript());
}

fn exhaustion(case: &Value) {
    let expected = &case["expected"];
    if let Some(first) = expected["first_unrepresentable_unix_s"].as_u64() {
        let baidu: Layout = "baidu".parse().unwrap();
        assert_eq!(baidu.ends_at_unix_ms(), first * 1000);
        assert_eq!(Utc(first * 1000).to_string(), expected["utc"].as_str().unwrap());
        return;
    }
    for (name, last) in expected.as_object().unwrap() {
        let layout: Layout = match name.as_str() {
            "twitter_epoch_41bit_last_utc" => "twitter",
            "cosid_41bit_last_utc" => "time:41 worker:10 sequence:12 epoch:1577203200000",
            "shardingsphere_2016_11_01_UTC_41bit_last_utc" => {
                "time:41 worker:10 sequence:12 epoch:2016-11-01"
            }
            // These use 64 bits with the sign: 42 of time leave 21.
            "discord_42bit_last_utc" => "time:42 worker:9 sequence:12 epoch:2015-01-01",
            "tsid_42bit_last_utc" => "time:42 worker:9 sequence:12 epoch:2020-01-01",
            "instagram_41bit_last_utc" => "time:41 worker:12 sequence:10 epoch:1314220021721",
            "sonyflake_v1_39bit_10ms_last_utc" => "sonyflake",
            other => panic!("nothing is known of {other}"),
        }
        .parse()
        .unwrap();
        let last_tick = layout.unix_ms(snowmint::Timestamp(layout.max(Field::Timestamp)));
        assert_eq!(Utc(last_tick).to_string(), last.as_str().unwrap(), "{name}");
    }
}

#[cfg(feature = "schemes")]
mod schemes {
    use serde_json::Value;
    use snowmint::scheme::Scheme;

    fn value_of(id: &snowmint::scheme::SchemeId, name: &str) -> u128 {
        id.values().find(|(field, _)| field.name == name).unwrap().1
    }

    pub(crate) fn decode_ulid(case: &Value) {
        let (text, expected) = (super::text(case), &case["expected"]);
        let id = Scheme::Ulid.parse(text).unwrap();
        assert_eq!(id.unix_ms(), expected["unix_ms"].as_u64());
        assert_eq!(value_of(&id, "random").to_string(), expected["random"].as_str().unwrap());
        assert_eq!(format!("{:032x}", id.as_u128()), expected["u128_hex"].as_str().unwrap());
        assert_eq!(id.to_string(), text);
        assert_eq!(Scheme::Ulid.parse(&text.to_lowercase()), Ok(id));
    }

    pub(crate) fn reject_ulid(case: &Value) {
        assert!(Scheme::Ulid.parse(super::text(case)).is_err());
    }

    pub(crate) fn decode_uuidv7(case: &Value) {
        let (text, expected) = (super::text(case), &case["expected"]);
        let id = Scheme::Uuid7.parse(text).unwrap();
        assert_eq!(id.unix_ms(), expected["unix_ts_ms"].as_u64());
        for (name, bits) in [("rand_a", "rand_a"), ("rand_b", "rand_b")] {
            assert_eq!(format!("{:X}", value_of(&id, name)), expected[bits].as_str().unwrap());
        }
        for name in ["version", "variant"] {
            assert_eq!(value_of(&id, name), u128::from(expected[name].as_u64().unwrap()));
        }
        assert_eq!(id.to_string().to_uppercase(), text);
    }
}

#[cfg(not(feature = "schemes"))]
mod schemes {
    use serde_json::Value;

    pub(crate) fn decode_ulid(_: &Value) {}
    pub(crate) fn reject_ulid(_: &Value) {}
    pub(crate) fn decode_uuidv7(_: &Value) {}
}

#[test]
fn every_case_of_every_kind_that_is_run_here() {
    for (kind, run) in RUN_HERE {
        let cases: Vec<Value> = cases().into_iter().filter(|case| case["kind"] == *kind).collect();
        assert!(!cases.is_empty(), "no case of kind {kind}");
        cases.iter().for_each(run);
    }
}

#[test]
fn every_kind_is_run_or_out_of_scope() {
    let here = RUN_HERE.iter().map(|(kind, _)| *kind);
    let rest = RUN_ELSEWHERE.iter().chain(OUT_OF_SCOPE).map(|(kind, _)| *kind);
    let mut listed = BTreeSet::new();
    for kind in here.chain(rest) {
        assert!(listed.insert(kind.to_owned()), "{kind} is listed twice");
    }
    let there: BTreeSet<String> =
        cases().iter().map(|case| case["kind"].as_str().unwrap().to_owned()).collect();
    assert_eq!(there, listed, "kinds of vectors.json, and kinds in the three lists");
    for (kind, file) in RUN_ELSEWHERE {
        let source = std::fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(source.contains(&format!("\"{kind}\"")), "{file} does not run {kind}");
    }
}
