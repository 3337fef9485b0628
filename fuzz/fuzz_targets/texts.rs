//! Every text form refuses a text, or gives an id that it writes and reads again; guessing never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use snowmint::codec::{
    base36, base58_bitcoin, base58_flickr, base62, binary, crockford32, decimal, hex, zbase32,
};
use snowmint::guess;

macro_rules! reads_back {
    ($text:expr, $($form:ident),+) => {
        $(if let Ok(id) = $form::decode($text) {
            assert_eq!($form::decode($form::encode(id).as_str()), Ok(id), stringify!($form));
        })+
    };
}

fuzz_target!(|text: &str| {
    reads_back!(
        text,
        base36,
        base58_bitcoin,
        base58_flickr,
        base62,
        binary,
        crockford32,
        decimal,
        hex,
        zbase32
    );
    for guessed in guess::of_text(text, 1_800_000_000_000) {
        assert!(!format!("{guessed:?}").is_empty());
    }
});
