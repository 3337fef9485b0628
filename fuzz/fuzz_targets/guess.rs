//! For any text or number, at any time, the guesses are sorted, and each one is correct; in a column with
//! others too. A cell is read once: what is left of it is the same again.
#![cfg_attr(fuzzing, no_main)]

use snowmint::Id;
use snowmint::guess::{self, Column, Guess};
use snowmint::inspect::{Inspection, cell};
use snowmint::scheme::{ForeignId, Scheme};

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
    let mut column = Column::default();
    for other in [text, "867793854505943041", text] {
        column.add(&guess::of_text(other, now));
    }
    check(&column.judge(guess::of_text(text, now)));
    if let Some(id) = ForeignId::of_text(text) {
        assert!(
            id.to_string().eq_ignore_ascii_case(text) || text.len() == 32,
            "a UUID is written with hyphens"
        );
        assert_eq!(ForeignId::of_text(&id.to_string()), Some(id));
    }
    assert!(cell(text).len() <= text.len());
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
