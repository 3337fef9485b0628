//! A text is refused, or is a rule that prints as one.
#![cfg_attr(fuzzing, no_main)]

use snowmint::Rule;

snowmint_fuzz::fuzz_target!(|text: &str| {
    match text.parse::<Rule>() {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(rule) => assert_eq!(rule.to_string().parse(), Ok(rule)),
    }
});
