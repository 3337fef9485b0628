//! The bytes of a record are refused, or are a record that is written the same way.
#![cfg_attr(fuzzing, no_main)]

use snowmint_cluster::lease::Record;

snowmint_fuzz::fuzz_target!(|bytes: &[u8]| {
    if let Ok(record) = Record::from_bytes(bytes) {
        assert_eq!(Record::from_bytes(&record.to_bytes()).unwrap(), record);
    }
});
