//! Every text form rejects a text, or reads an id that it writes back as the same text, in JSON too; guessing
//! never panics.
#![cfg_attr(fuzzing, no_main)]

use snowmint::codec::{Alphabet, decimal, hex};
use snowmint::{Id, guess, serde_as_number};

macro_rules! reads_back {
    ($text:expr, $($form:ident),+) => {
        $(if let Ok(id) = Alphabet::$form.decode($text) {
            assert_eq!(Alphabet::$form.decode(&Alphabet::$form.encode(id)), Ok(id), stringify!($form));
        })+
    };
}

/// An id is a string in JSON; it is a number only where the caller asks for one.
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

snowmint_fuzz::fuzz_target!(|text: &str| {
    reads_back!(
        text,
        BINARY,
        CROCKFORD32,
        ZBASE32,
        BASE36,
        BASE36_LOWER,
        BASE58_BITCOIN,
        BASE58_FLICKR,
        BASE62
    );
    if let Ok(id) = decimal::decode(text) {
        assert_eq!(decimal::decode(&decimal::encode(id)), Ok(id));
    }
    if let Ok(id) = hex::decode(text) {
        assert_eq!(hex::decode(&hex::encode(id)), Ok(id));
    }
    if let Ok(id) = decimal::decode_base64(text) {
        assert_eq!(decimal::encode_base64(id).as_str(), text, "an id has one text");
    }
    json_reads_back(text);
    for guessed in guess::of_text(text, 1_800_000_000_000) {
        assert!(!format!("{guessed:?}").is_empty());
    }
});
