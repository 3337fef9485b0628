//! A text is rejected, or is a rule whose text form reads back as the same rule.
#![cfg_attr(fuzzing, no_main)]

use snowmint::Rule;

snowmint_fuzz::fuzz_target!(|text: &str| {
    match text.parse::<Rule>() {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(rule) => assert_eq!(rule.to_string().parse(), Ok(rule)),
    }
});
