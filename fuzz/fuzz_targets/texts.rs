//! Every text form refuses a text, or gives an id that it writes and reads again, JSON too; guessing never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use snowmint::codec::{
    base36, base58_bitcoin, base58_flickr, base62, base64_of_decimal, binary, crockford32, decimal, hex,
    zbase32,
};
use snowmint::{Id, guess, serde_as_number};

macro_rules! reads_back {
    ($text:expr, $($form:ident),+) => {
        $(if let Ok(id) = $form::decode($text) {
            assert_eq!($form::decode($form::encode(id).as_str()), Ok(id), stringify!($form));
        })+
    };
}

/// An id is a string in JSON; as a number it is one only where it is asked for.
fn json_reads_back(text: &str) {
    let of_string = serde_json::from_str::<Id>(text);
    let of_number = serde_as_number::deserialize(&mut serde_json::Deserializer::from_str(text));
    assert!(of_string.is_err() || of_number.is_err(), "both a string and a number");
    if let Ok(id) = of_string {
        let written = serde_json::to_string(&id).unwrap();
        assert_eq!(serde_json::from_str::<Id>(&written).unwrap(), id);
    }
    if let Ok(id) = of_number {
        let written = serde_json::to_string(&id.get()).unwrap();
        let read = serde_as_number::deserialize(&mut serde_json::Deserializer::from_str(&written));
        assert_eq!(read.unwrap(), id);
    }
}

fuzz_target!(|text: &str| {
    reads_back!(
        text,
        base36,
        base58_bitcoin,
        base58_flickr,
        base62,
        base64_of_decimal,
        binary,
        crockford32,
        decimal,
        hex,
        zbase32
    );
    if let Ok(id) = base36::decode_either_case(text) {
        assert_eq!(base36::decode_either_case(base36::encode_lower(id).as_str()), Ok(id));
        assert_eq!(base36::decode(base36::encode(id).as_str()), Ok(id));
    }
    if let Ok(id) = base64_of_decimal::decode(text) {
        assert_eq!(base64_of_decimal::encode(id).as_str(), text, "an id has one text");
    }
    json_reads_back(text);
    for guessed in guess::of_text(text, 1_800_000_000_000) {
        assert!(!format!("{guessed:?}").is_empty());
    }
});
