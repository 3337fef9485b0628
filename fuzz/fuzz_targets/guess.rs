//! For any text or number, at any time, the guesses are sorted, and each one is correct.
#![cfg_attr(fuzzing, no_main)]

use snowmint::Id;
use snowmint::guess::{self, Guess};
use snowmint::inspect::Inspection;
use snowmint::scheme::Scheme;

snowmint_fuzz::fuzz_target!(|input: (u64, u64, &str)| {
    let (now, number, text) = input;
    check(&guess::of_text(text, now));
    if let Some(inspection) = Inspection::of_text(text, Vec::new(), now) {
        assert_eq!(inspection.candidates().first(), Some(inspection.likeliest()));
        assert!(inspection.values().iter().any(|(name, _)| *name == "id"));
    }
    if let Ok(id) = Id::new(number) {
        check(&guess::of_id(id, now));
    }
    for scheme in Scheme::ALL {
        if let Ok(id) = scheme.parse(text) {
            assert_eq!(scheme.parse(&id.to_string()), Ok(id));
        }
    }
});

fn check(guesses: &[Guess]) {
    assert!(guesses.is_sorted_by(|one, next| one.cost_bits() <= next.cost_bits()), "NaN is in no order");
    for guess in guesses {
        assert!(!guess.name().is_empty() && !guess.form().is_empty());
        if let (Some((layout, parts)), Some(id)) = (guess.layout(), guess.id()) {
            assert_eq!(layout.compose(&parts), Ok(id));
            assert_eq!(guess.unix_ms(), Some(layout.unix_ms(parts.timestamp)));
        }
    }
}
