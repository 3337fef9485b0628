//! The bytes of a record are refused, or are a record that is written the same way.
#![no_main]

use libfuzzer_sys::fuzz_target;
use snowmint_cluster::lease::Record;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(record) = Record::from_bytes(bytes) {
        assert_eq!(Record::from_bytes(&record.to_bytes()).unwrap(), record);
    }
});
