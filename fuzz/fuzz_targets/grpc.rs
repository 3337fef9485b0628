//! gRPC messages that arrive in pieces are the same messages, and any input is decoded or rejected.
#![cfg_attr(fuzzing, no_main)]

snowmint_fuzz::fuzz_target!(|input: &[u8]| {
    snowmint_server::grpc_message::check_split(input);
});
