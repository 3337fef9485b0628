//! A configuration file of `snowmint serve` is read, or refused with one of its lines; what is left of it for the namespaces has
//! their tables, on the lines that they had.
#![cfg_attr(fuzzing, no_main)]

snowmint_fuzz::fuzz_target!(|text: &str| {
    snowmint_cli::check_config_file(text);
});
