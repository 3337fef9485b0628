//! A text is either rejected as an alphabet, or is an alphabet that writes and reads every number, by itself
//! and in a text form; a hidden id is revealed.
#![cfg_attr(fuzzing, no_main)]

use snowmint::Id;
use snowmint::codec::{Alphabet, Digits};
use snowmint::hide::Hider;

// The input: a key, a number, and an alphabet and a text separated by a blank.
snowmint_fuzz::fuzz_target!(|input: ([u8; 16], u64, &str)| {
    let (key, number, texts) = input;
    let (digits, text) = texts.split_once(' ').unwrap_or((texts, ""));
    let Ok(id) = Id::new(number >> 1) else { unreachable!("63 bits") };
    match Alphabet::new(digits) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(alphabet) => {
            assert_eq!(alphabet.decode(&alphabet.encode(id)), Ok(id));
            assert_eq!(alphabet.decode(&alphabet.encode_padded(id)), Ok(id));
            if let Ok(read) = alphabet.decode(text) {
                assert!(alphabet.encode_padded(read).ends_with(text));
            }
        }
    }
    let named = format!("alphabet={digits}").parse::<Digits>();
    assert_eq!(named.is_ok(), Alphabet::new(digits).is_ok());
    for named in [named, digits.parse()].into_iter().flatten() {
        assert_eq!(named.to_string().parse(), Ok(named.clone()));
        let written = named.encode(id);
        assert_eq!(named.decode(&written), Ok(id));
        assert!(written.bytes().all(|byte| named.writes(byte)) && written.len() <= named.width());
    }
    let hider = Hider::new(&key);
    assert_eq!(hider.reveal(hider.hide(id)), id);
});
