//! The bytes of a record are rejected, or are a record that is written back as the same bytes.
#![cfg_attr(fuzzing, no_main)]

use snowmint_cluster::lease::Record;

snowmint_fuzz::fuzz_target!(|bytes: &[u8]| {
    if let Ok(record) = Record::from_bytes(bytes) {
        assert_eq!(Record::from_bytes(&record.to_bytes()).unwrap(), record);
    }
});
