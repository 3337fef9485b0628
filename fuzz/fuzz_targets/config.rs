//! A configuration file of `snowmint serve` is accepted, or rejected with the number of a line. The part extracted for the
//! namespaces keeps their tables on the same lines.
#![cfg_attr(fuzzing, no_main)]

snowmint_fuzz::fuzz_target!(|text: &str| {
    snowmint_cli::check_config_file(text);
});
