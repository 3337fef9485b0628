//! A configuration file of `snowmint serve` is accepted, or rejected with the number of a line; so are its
//! namespaces and its tokens alone, as a reload reads them. The lines of the tables of tokens are a file with
//! the same tokens.
#![cfg_attr(fuzzing, no_main)]

use snowmint::Layout;
use snowmint_cli::config_file;
use snowmint_server::access::file;

snowmint_fuzz::fuzz_target!(|text: &str| {
    let lines = 1 + text.matches('\n').count();
    let read = config_file::ConfigFile::parse(text);
    if let Err(why) = &read {
        let line = why.strip_prefix("line ").and_then(|rest| rest.split(':').next()?.parse().ok());
        assert!(line.is_some_and(|line: usize| (1..=lines).contains(&line)), "{why}");
    }
    if let Err(error) = config_file::namespaces_in(text, &Layout::TWITTER) {
        assert!(error.line.is_none_or(|line| (1..=lines).contains(&line)), "{error}");
    }
    let tokens = config_file::tokens_in(text);
    if let (Ok(rows), Ok(tables)) = (tokens, config_file::token_lines_in(text)) {
        assert_eq!(file::parse(&tables), Ok(rows), "{tables:?}");
    }
});
