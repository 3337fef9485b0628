//! A Thrift message that arrives in pieces is the same request, and any input is parsed or rejected.
#![cfg_attr(fuzzing, no_main)]

snowmint_fuzz::fuzz_target!(|input: &[u8]| {
    snowmint_server::thrift_codec::check_split(input);
});
