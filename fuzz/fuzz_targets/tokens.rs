//! The text of a token and a token file are accepted or rejected, and accepted ones can be written and read again.
#![cfg_attr(fuzzing, no_main)]

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
    snowmint_server::access::file::check_file(text);
});
