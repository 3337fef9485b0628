//! Goal: an id is a string in human-readable formats and a number in binary ones, or a number everywhere on
//! request; anything else is rejected. Method: JSON and a binary format, and serde's own deserializers of
//! plain values, which offer what they have.

use proptest::prelude::*;
use serde::de::IntoDeserializer;
use serde::de::value::Error;
use serde::{Deserialize, Serialize};
use snowmint::{Id, serde_as_number};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Both {
    text: Id,
    #[serde(with = "snowmint::serde_as_number")]
    number: Id,
}

fn both(value: u64) -> Both {
    Both { text: Id::new(value).unwrap(), number: Id::new(value).unwrap() }
}

proptest! {
    #[test]
    fn json_has_a_string_and_where_asked_for_a_number(value in 0..=i64::MAX as u64) {
        let text = serde_json::to_string(&both(value)).unwrap();
        prop_assert_eq!(&text, &format!(r#"{{"text":"{value}","number":{value}}}"#));
        prop_assert_eq!(serde_json::from_str::<Both>(&text).unwrap(), both(value));
    }

    #[test]
    fn a_binary_format_has_a_number(value in 0..=i64::MAX as u64) {
        let (mut bytes, mut expected) = ([0; 10], [0; 10]);
        let expected = postcard::to_slice(&value, &mut expected).unwrap();
        let bytes = postcard::to_slice(&Id::new(value).unwrap(), &mut bytes).unwrap();
        prop_assert_eq!(&*bytes, &*expected);
        prop_assert_eq!(postcard::from_bytes::<Id>(bytes).unwrap(), Id::new(value).unwrap());
    }
}

#[test]
fn in_binary_a_number_from_2_pow_63_on_is_refused() {
    let mut bytes = [0; 10];
    for (value, is_id) in [(i64::MAX as u64, true), (1 << 63, false), (u64::MAX, false)] {
        let bytes = postcard::to_slice(&value, &mut bytes).unwrap();
        assert_eq!(postcard::from_bytes::<Id>(bytes).is_ok(), is_id, "{value}");
    }
}

#[test]
fn in_json_what_is_no_id_is_refused() {
    let text = |text: &str| serde_json::from_str::<Id>(text).map_err(|error| error.to_string());
    for bad in [
        r#""invalid""#,
        r#""""#,
        r#""9223372036854775808""#,
        r#""-1""#,
        r#""1.0""#,
        "13587",
        "0",
        "1.0",
        "null",
        "true",
    ] {
        assert!(text(bad).is_err(), "{bad}");
    }
    assert!(text("13587").unwrap_err().contains("expected an id as a string of decimal digits"));

    let number = |text: &str| serde_as_number::deserialize(&mut serde_json::Deserializer::from_str(text));
    for bad in ["9223372036854775808", "18446744073709551616", "-1", "1.0", "1e3", r#""13587""#, "null"] {
        assert!(number(bad).is_err(), "{bad}");
    }
    assert_eq!(number("9223372036854775807").unwrap(), Id::MAX);
    let negative = number("-1").unwrap_err().to_string();
    assert!(negative.contains("invalid id -1: the smallest id is 0"), "{negative}");
}

/// serde buffers these values and forgets which format they came from.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Flat {
    #[serde(flatten)]
    inner: Inner,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Inner {
    id: Id,
    #[serde(with = "snowmint::serde_as_number")]
    number: Id,
    #[serde(with = "snowmint::serde_as_number::option")]
    parent: Option<Id>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
enum Tagged {
    Order(Inner),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Order(Inner),
}

fn comes_back<T: Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
    let json = serde_json::to_string(value).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&json).unwrap(), value, "{json}");
    let mut cbor = Vec::new();
    ciborium::into_writer(value, &mut cbor).unwrap();
    assert_eq!(&ciborium::from_reader::<T, _>(&*cbor).unwrap(), value);
    let pack = rmp_serde::to_vec_named(value).unwrap();
    assert_eq!(&rmp_serde::from_slice::<T>(&pack).unwrap(), value);
}

/// Goal: written ids are read back in every format, buffered or not. Method: JSON, CBOR and `MessagePack`
/// under `flatten`, `tag` and `untagged`.
#[test]
fn buffered_values_come_back_in_every_format() {
    let id = |value| Id::new(value).unwrap();
    for (value, parent) in
        [(0, None), (200, Some(id(300))), (1 << 32, Some(id(70_000))), (i64::MAX as u64, Some(Id::MAX))]
    {
        let inner = || Inner { id: id(value), number: id(value), parent };
        comes_back(&inner());
        comes_back(&Flat { inner: inner() });
        comes_back(&Tagged::Order(inner()));
        comes_back(&Untagged::Order(inner()));
    }
    let small = Inner { id: id(0), number: id(70_000), parent: Some(id(70_000)) };
    comes_back(&Flat { inner: small });
}

#[test]
fn a_bare_number_in_json_stays_rejected() {
    assert!(serde_json::from_str::<Inner>(r#"{"id":13587,"number":1,"parent":null}"#).is_err());
}

/// Formats that offer what they have, whatever is requested.
#[test]
fn a_string_is_not_taken_for_a_number_nor_a_signed_number_for_an_id() {
    let id = Id::new(13_587).unwrap();
    let number = || IntoDeserializer::<Error>::into_deserializer(13_587_u64);
    let signed = |value: i64| IntoDeserializer::<Error>::into_deserializer(value);
    let text = || IntoDeserializer::<Error>::into_deserializer("13587");
    assert!(Id::deserialize(signed(13_587)).is_err());
    // An unsigned number is what serde's buffer offers for an id that a binary format wrote.
    assert_eq!(Id::deserialize(number()), Ok(id));
    assert_eq!(Id::deserialize(text()), Ok(id));
    assert_eq!(serde_as_number::deserialize(number()), Ok(id));
    assert_eq!(serde_as_number::deserialize(signed(13_587)), Ok(id));
    assert!(
        serde_as_number::deserialize(signed(-1)).is_err() && serde_as_number::deserialize(text()).is_err()
    );
}
