//! A text is rejected, or is a layout whose text form, fingerprint and composed ids are consistent.
#![cfg_attr(fuzzing, no_main)]

use snowmint::{Id, Layout, utc};

snowmint_fuzz::fuzz_target!(|text: &str| {
    if let Ok(ms) = utc::parse(text) {
        assert_eq!(utc::parse(&utc::Utc(ms).to_string()), Ok(ms));
    }
    match text.parse::<Layout>() {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(layout) => {
            assert_eq!(layout.to_string().parse(), Ok(layout));
            assert!(layout.bits() <= 63 && layout.ends_at_unix_ms() > layout.epoch_unix_ms());
            let largest = Id::new((1 << layout.bits()) - 1).unwrap();
            assert_eq!(layout.compose(&layout.split(largest).unwrap()), Ok(largest));
        }
    }
});
