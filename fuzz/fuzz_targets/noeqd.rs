//! Requests in noeqd's protocol are the same however they are split.
#![cfg_attr(fuzzing, no_main)]

snowmint_fuzz::fuzz_target!(|input: &[u8]| {
    snowmint_server::noeqd_check_split(input);
});
