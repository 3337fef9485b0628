//! A Thrift message that arrives in pieces is the same request, and whatever comes is parsed or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    snowmint_server::thrift_codec::check_split(input);
});
