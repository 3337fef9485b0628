//! Bytes from a client, split anywhere, are the same commands, and use no more memory than the limits allow.
#![cfg_attr(fuzzing, no_main)]

snowmint_fuzz::fuzz_target!(|input: (u8, &[u8])| {
    snowmint_server::resp_codec::check_split(input.1, usize::from(input.0).max(1));
});
