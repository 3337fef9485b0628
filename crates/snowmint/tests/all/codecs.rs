//! Goal: every text form gives each id one text and each text one id, sorts if it claims to, and handles any
//! input. Method: proptest over all 63-bit numbers, against division with 128 bits; arbitrary texts, and
//! texts that are nearly valid.

use proptest::prelude::*;
use snowmint::Id;
use snowmint::codec::{Alphabet, AlphabetError, ParseIdError, bytes, decimal, encode_scru64, hex};

struct Form {
    name: &'static str,
    encode: fn(Id) -> String,
    /// Writes the text that sorts like the number, if the form has one.
    padded: Option<fn(Id) -> String>,
    decode: fn(&str) -> Result<Id, ParseIdError>,
}

macro_rules! form {
    ($name:ident) => {
        Form {
            padded: Some(|id| Alphabet::$name.encode_padded(id).to_string()),
            ..form!($name, does_not_sort)
        }
    };
    ($name:ident, does_not_sort) => {
        Form {
            name: stringify!($name),
            encode: |id| Alphabet::$name.encode(id).to_string(),
            padded: None,
            decode: |text| Alphabet::$name.decode(text),
        }
    };
}

const FORMS: &[Form] = &[
    Form {
        name: "decimal",
        encode: |id| decimal::encode(id).to_string(),
        padded: Some(|id| decimal::encode_padded(id).to_string()),
        decode: decimal::decode,
    },
    Form {
        name: "hex",
        encode: |id| hex::encode(id).to_string(),
        padded: Some(|id| hex::encode(id).to_string()),
        decode: hex::decode,
    },
    form!(CROCKFORD32),
    form!(BASE36),
    form!(BASE36_LOWER),
    form!(BASE58_BITCOIN),
    form!(BASE58_FLICKR, does_not_sort),
    form!(BASE62),
    form!(ZBASE32, does_not_sort),
    form!(BINARY),
    Form {
        name: "base64 of decimal",
        encode: |id| decimal::encode_base64(id).to_string(),
        padded: None,
        decode: decimal::decode_base64,
    },
];

/// Numbers of every length, not only of the full length.
fn ids() -> impl Strategy<Value = Id> {
    (any::<u64>(), 1_u32..64).prop_map(|(bits, shift)| Id::new(bits >> shift).unwrap())
}

/// Alphabets of every size, in any order.
fn alphabets() -> impl Strategy<Value = String> {
    let graphic: Vec<char> = ('!'..='~').collect();
    (Just(graphic).prop_shuffle(), 2_usize..=94).prop_map(|(chars, size)| chars[..size].iter().collect())
}

proptest! {
    #[test]
    fn every_form_reads_what_it_writes(id in ids()) {
        for form in FORMS {
            let text = (form.encode)(id);
            prop_assert_eq!((form.decode)(&text), Ok(id), "{} {}", form.name, text);
            if let Some(padded) = form.padded {
                let padded = padded(id);
                prop_assert_eq!((form.decode)(&padded), Ok(id), "{} {}", form.name, &padded);
                prop_assert_eq!(padded.len(), (form.encode)(Id::MAX).len(), "{}", form.name);
            }
        }
        prop_assert_eq!(bytes::decode(bytes::encode(id)), Ok(id));
    }

    #[test]
    fn padded_forms_sort_like_the_numbers(one in ids(), other in ids()) {
        for form in FORMS {
            if let Some(padded) = form.padded {
                prop_assert_eq!(padded(one).cmp(&padded(other)), one.cmp(&other), "{}", form.name);
            }
        }
        prop_assert_eq!(bytes::encode(one).cmp(&bytes::encode(other)), one.cmp(&other));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,70}", ascii in "[0-9A-Za-z=+/]{0,30}") {
        for form in FORMS {
            for text in [&text, &ascii] {
                if let Err(error) = (form.decode)(text) {
                    prop_assert!(!error.to_string().is_empty());
                }
            }
        }
        #[cfg(feature = "std")]
        for text in [&text, &ascii] {
            let _ = snowmint::guess::of_text(text, 1_785_542_400_000);
        }
        #[cfg(feature = "schemes")]
        for scheme in snowmint::scheme::Scheme::ALL {
            let _ = (scheme.parse(&text), scheme.parse(&ascii));
        }
    }

    #[test]
    fn a_foreign_character_is_named_with_its_place(id in ids(), at in 0_usize..11, bad in "[-_ \u{e9}\u{20ac}]") {
        for form in FORMS {
            let mut text = (form.encode)(id);
            let at = at.min(text.len() - 1);
            text.replace_range(at..=at, &bad);
            let bad = bad.chars().next().unwrap();
            match (form.decode)(&text) {
                // Padding before the end is the first foreign character in base64.
                Err(ParseIdError::Foreign { character: '=', at: place, .. }) => prop_assert!(place < at),
                Err(ParseIdError::Foreign { character, at: place, .. }) => prop_assert_eq!((character, place), (bad, at)),
                Err(ParseIdError::TooLong { len, .. }) => prop_assert_eq!(len, text.len()),
                other => prop_assert!(false, "{} {text}: {other:?}", form.name),
            }
        }
    }

    #[test]
    fn numbers_that_are_no_ids_are_refused(value in 1_u64 << 63..) {
        let digits = |base: u64| {
            let all = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
            let (mut text, mut left) = (Vec::new(), value);
            while left > 0 {
                text.insert(0, all[usize::try_from(left % base).unwrap()]);
                left /= base;
            }
            String::from_utf8(text).unwrap()
        };
        let overflow = |result| matches!(result, Err(ParseIdError::Overflow { .. }));
        prop_assert!(overflow(Alphabet::BASE62.decode(&digits(62))));
        prop_assert!(overflow(Alphabet::BASE36.decode(&digits(36))));
        prop_assert!(overflow(hex::decode(&digits(16))));
        prop_assert!(overflow(bytes::decode(value.to_be_bytes())));
        prop_assert!(decimal::decode(&digits(10)).is_err());
        prop_assert!(Alphabet::BINARY.decode(&digits(2)).is_err());
    }

    #[test]
    fn any_alphabet_reads_what_it_writes(digits in alphabets(), id in ids(), other in ids()) {
        let alphabet = Alphabet::new(&digits).unwrap();
        prop_assert_eq!(alphabet.base(), digits.len() as u64);
        let (text, padded) = (alphabet.encode(id), alphabet.encode_padded(id));
        prop_assert_eq!((alphabet.decode(&text), alphabet.decode(&padded)), (Ok(id), Ok(id)));
        prop_assert_eq!(padded.len(), alphabet.len());
        prop_assert!(padded.ends_with(text.as_str()));
        let mut sorted: Vec<char> = digits.chars().collect();
        sorted.sort_unstable();
        let in_order = Alphabet::new(&sorted.into_iter().collect::<String>()).unwrap();
        let order = in_order.encode_padded(id).as_str().cmp(in_order.encode_padded(other).as_str());
        prop_assert_eq!(order, id.cmp(&other));
    }

    #[test]
    fn any_text_is_an_alphabet_or_refused(text in "\\PC{0,100}") {
        if let Ok(alphabet) = Alphabet::new(&text) {
            prop_assert_eq!(alphabet.decode(&alphabet.encode(Id::MAX)), Ok(Id::MAX));
        }
    }
}

#[test]
fn the_shuffled_alphabet_of_the_articles() {
    const SHUFFLED: &str = "ohrfjdgPzp3T2XkNulQBFas9eJDmW7VKSC51cbUL8tRiOqIwZn406YEMyGxHAv";
    let alphabet = Alphabet::new(SHUFFLED).unwrap();
    for value in [0, 1, 61, 62, 1_541_815_603_606_036_480, i64::MAX as u64] {
        let id = Id::new(value).unwrap();
        assert_eq!(alphabet.decode(&alphabet.encode(id)), Ok(id));
    }
    assert_eq!(alphabet.encode(Id::new(62).unwrap()).as_str(), "ho");
}

#[test]
fn each_refusal_names_the_value_the_limit_and_the_remedy() {
    let custom = Alphabet::new("ohrf").unwrap();
    let beyond = |form: &str, text: &str| {
        format!(
            "{form} id `{text}` is too large: expected at most 9223372036854775807 (2^63 - 1); check the text form"
        )
    };
    let foreign = |form: &str, character: &str, at: usize| {
        format!(
            "invalid {form} id: `{character}` at position {at} is not a digit; remove it, or choose another text form"
        )
    };
    let too_long = |form: &str, len: usize, limit: usize| {
        format!("invalid {form} id of {len} bytes: expected at most {limit} digits and nothing around them")
    };
    let spelled =
        |text: &str| format!("invalid base64-of-decimal id `{text}`: check its padding and leading zeros");
    let top = "f".repeat(32);
    for (error, words) in [
        (decimal::decode(""), "invalid decimal id: empty text, expected at least one digit".to_owned()),
        (decimal::decode("9223372036854775808"), beyond("decimal", "9223372036854775808")),
        (Alphabet::BASE62.decode("zzzzzzzzzzz"), beyond("base62", "zzzzzzzzzzz")),
        (Alphabet::BASE36.decode("ZZZZZZZZZZZZZ"), beyond("base36", "ZZZZZZZZZZZZZ")),
        (hex::decode("ffffffffffffffff"), beyond("hexadecimal", "ffffffffffffffff")),
        (hex::decode("0x8000000000000000"), beyond("hexadecimal", "0x8000000000000000")),
        (custom.decode(&top), beyond("custom-alphabet", &format!("{}…", &top[..30]))),
        (bytes::decode([0x80, 0, 0, 0, 0, 0, 0xab, 0xcd]), beyond("big-endian", "0x800000000000abcd")),
        (decimal::decode("12é"), foreign("decimal", "é", 2)),
        (Alphabet::BASE62.decode("1€2"), foreign("base62", "€", 1)),
        (decimal::decode("1\u{1b}2"), foreign("decimal", "\\u{1b}", 1)),
        (custom.decode("oh!"), foreign("custom-alphabet", "!", 2)),
        (hex::decode("12g"), foreign("hexadecimal", "g", 2)),
        (hex::decode("0x12g"), foreign("hexadecimal", "g", 4)),
        (decimal::decode("12345678901234567890"), too_long("decimal", 20, 19)),
        (hex::decode("0x11111111111111111"), too_long("hexadecimal", 19, 16)),
        (hex::decode("0x"), "invalid hexadecimal id: empty text, expected at least one digit".to_owned()),
        (
            decimal::decode_base64(""),
            "invalid base64-of-decimal id: empty text, expected at least one digit".to_owned(),
        ),
        // 9223372036854775808, 2^63.
        (
            decimal::decode_base64("OTIyMzM3MjAzNjg1NDc3NTgwOA=="),
            beyond("base64-of-decimal", "OTIyMzM3MjAzNjg1NDc3NTgwOA=="),
        ),
        (decimal::decode_base64("MTé="), foreign("base64-of-decimal", "é", 2)),
        (decimal::decode_base64("MTIzNDU=Ng=="), foreign("base64-of-decimal", "=", 7)),
        // Bytes that are not text; letters; 21 digits; nothing; `00`.
        (decimal::decode_base64("////"), spelled("////")),
        (decimal::decode_base64("YWJj"), spelled("YWJj")),
        (decimal::decode_base64(&"MTIz".repeat(7)), spelled(&"MTIz".repeat(7))),
        (decimal::decode_base64("===="), spelled("====")),
        (decimal::decode_base64("MDA="), spelled("MDA=")),
    ] {
        assert_eq!(error.unwrap_err().to_string(), words);
    }
}

#[test]
fn crockford_reads_what_people_type() {
    let id = Alphabet::CROCKFORD32.decode("01110000000AB").unwrap();
    for typed in ["o1il0ooOO00ab", "OIlLooooo00AB"] {
        assert_eq!(Alphabet::CROCKFORD32.decode(typed), Ok(id), "{typed}");
    }
    assert_eq!(Alphabet::CROCKFORD32.decode("1"), Id::new(1).map_err(|_| unreachable!()));
    for bad in ["U", "01ARZ-NDEKTSV", "FZZZZZZZZZZZZ", "8000000000000", "00000000000000"] {
        assert!(Alphabet::CROCKFORD32.decode(bad).is_err(), "{bad}");
    }
    assert_eq!(Alphabet::CROCKFORD32.decode("7ZZZZZZZZZZZZ"), Ok(Id::MAX));
}

#[test]
fn case_matters_where_the_form_says_so() {
    assert_eq!(Alphabet::BASE36.decode("1Y2P0IJ32E8E7"), Ok(Id::MAX));
    assert!(matches!(
        Alphabet::BASE36.decode("1y2P0IJ32E8E7"),
        Err(ParseIdError::Foreign { character: 'y', at: 1, .. })
    ));
    assert_eq!(Alphabet::BASE36_LOWER.decode("1y2P0IJ32E8e7"), Ok(Id::MAX));
    assert_eq!(hex::decode("0x7FFFffffFFFFffff"), Ok(Id::MAX));
    assert_ne!(Alphabet::BASE62.decode("a"), Alphabet::BASE62.decode("A"));
}

#[test]
fn base64_has_one_text_for_an_id() {
    assert_eq!(decimal::encode_base64(Id::new(0).unwrap()).as_str(), "MA==");
    assert_eq!(decimal::encode_base64(Id::MAX).as_str(), "OTIyMzM3MjAzNjg1NDc3NTgwNw==");
    for bad in ["", "MA", "MA=", "MB==", "MA===", "MDA=", "=MA=", "M", "ODkwMzk5NDA3MDAwNzg0ODk2ODkwMzk5"] {
        assert!(decimal::decode_base64(bad).is_err(), "{bad}");
    }
}

#[test]
fn error_types_are_small() {
    assert!(size_of::<ParseIdError>() <= 40 && size_of::<AlphabetError>() <= 32);
    #[cfg(feature = "schemes")]
    assert!(
        size_of::<snowmint::scheme::SchemeError>() <= 40
            && size_of::<snowmint::scheme::SchemeGenerateError>() <= 24
    );
}

/// Goal: equal texts are equal values, however they were made. Method: the same characters from a padded form
/// and from one without leading zeros, whose unused bytes differ.
#[test]
fn texts_compare_order_and_hash_by_their_characters_alone() {
    use std::collections::HashSet;
    let wide = Id::MAX;
    let (padded, plain) = (Alphabet::BASE62.encode_padded(wide), Alphabet::BASE62.encode(wide));
    assert_eq!(padded, plain);
    let dashes = Alphabet::new("-0123456789").unwrap();
    let digits = Alphabet::new("0123456789-").unwrap();
    // One character each, after different padding.
    let (one, other) = (dashes.encode(Id::new(1).unwrap()), digits.encode(Id::new(0).unwrap()));
    assert_eq!((one.as_str(), other.as_str()), ("0", "0"));
    assert_eq!(one, other);
    assert_eq!(one.cmp(&other), std::cmp::Ordering::Equal);
    assert_eq!(HashSet::from([one, other]).len(), 1);
    assert!(decimal::encode(Id::new(9).unwrap()) > decimal::encode(Id::new(10).unwrap()), "as texts order");
}

#[test]
fn scru64_has_twelve_digits_and_refuses_what_needs_more() {
    let most = 36_u64.pow(12) - 1;
    assert_eq!(encode_scru64(Id::new(most).unwrap()).unwrap().as_str(), "zzzzzzzzzzzz");
    assert_eq!(encode_scru64(Id::new(0).unwrap()).unwrap().as_str(), "000000000000");
    for value in [most + 1, i64::MAX as u64] {
        let error = encode_scru64(Id::new(value).unwrap()).unwrap_err();
        assert!(matches!(error, ParseIdError::Overflow { .. }), "{error}");
    }
}

#[test]
#[should_panic = "invalid number of bits: expected 0 to 127"]
fn a_width_of_128_bits_is_refused() {
    let _ = Alphabet::new("01").unwrap().width_of_bits(128);
}
