//! Requests of noeqd's protocol are the same in whatever pieces they arrive.
#![cfg_attr(fuzzing, no_main)]

snowmint_fuzz::fuzz_target!(|input: &[u8]| {
    snowmint_server::noeqd_check_split(input);
});
