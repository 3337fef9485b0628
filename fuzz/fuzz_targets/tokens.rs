//! The text of a token and a token file are accepted or rejected, and accepted ones can be written and read
//! again.
#![cfg_attr(fuzzing, no_main)]

use snowmint_server::access::file::{EditError, parse, with_changed_row, with_row, without_row};
use snowmint_server::access::secret::{SecretDigest, name_in};

snowmint_fuzz::fuzz_target!(|text: &str| {
    if let Ok(name) = name_in(text.as_bytes()) {
        assert!(text.starts_with(&format!("smt_{name}_")));
        let cut = &text[..text.len() - 1];
        assert!(name_in(cut.as_bytes()).is_err(), "{cut}");
    }
    if let Ok(digest) = text.parse::<SecretDigest>() {
        assert_eq!(digest.to_string(), text.to_ascii_lowercase());
    }
    check_file(text);
});

fn check_file(text: &str) {
    let rows = match parse(text) {
        Ok(rows) => rows,
        Err(why) => return assert!(!why.is_empty()),
    };
    let mut written = String::new();
    for (name, row) in &rows {
        written = with_row(&written, name, row).unwrap_or_else(|error| panic!("{error}"));
    }
    assert_eq!(parse(&written).as_ref(), Ok(&rows));
    let Some((name, row)) = rows.first_key_value() else { return };
    for changed in [with_changed_row(text, name, row), without_row(text, name)] {
        assert!(matches!(changed, Ok(_) | Err(EditError::ByHand(_))), "{changed:?}");
    }
}
