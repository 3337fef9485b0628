//! Tests of the built command from outside: its arguments, its output, its exit codes. Links none of the code
//! under test.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod all_commands;
mod audit;
mod bench;
mod config;
mod every_store;
mod hide;
mod import;
mod inspect;
mod layout;
mod new;
mod ns;
mod remote;
mod serve;
mod sql;
mod store_recover;
mod support;
mod text_commands;
mod tokens;
mod workers;

use support::Sandbox;

#[test]
fn help_teaches_and_goes_to_standard_output() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.out(&["--version"]), concat!("snowmint ", env!("CARGO_PKG_VERSION"), "\n"));
    for (args, wanted) in [
        (&["--help"][..], "snowmint serve"),
        (&["serve", "--help"], "redis-cli -p 6380 ID.NEXT default COUNT 3"),
        (&["serve", "--help"], "SNOWMINT_LOG_FORMAT"),
        (&["serve", "--help"], "After a step back, --rule decides"),
        (&["new", "--help"], "can repeat ids"),
        (&["inspect", "--help"], "unix_ms"),
        (&["layout", "--help"], "safe_in_javascript"),
        (&["layouts", "--help"], "about"),
        (&["serve", "--help"], "\nAddresses:\n"),
        (&["serve", "-h"], "\nLimits and shutdown:\n"),
        (&["ns", "add", "--help"], "\nSettings that are fixed:\n"),
        (&["range", "--help"], "'1 day'"),
    ] {
        let help = sandbox.out(args);
        assert!(help.contains(wanted), "{args:?}: {help}");
        assert!(!help.contains('\x1b'), "{args:?}");
    }
}

#[test]
fn without_a_command_help_is_an_error() {
    let ran = Sandbox::new().run(&[]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("Usage: snowmint [OPTIONS] <COMMAND>"), "{}", ran.err);
}

#[test]
fn what_is_typed_wrong_is_told_in_one_line() {
    let sandbox = Sandbox::new();
    for (args, wanted) in [
        (&["serv"][..], "'serv'; tip: some similar subcommands exist: 'server', 'serve'"),
        (&["new", "--wroker", "3"], "'--wroker' found; tip: a similar argument exists: '--worker'"),
        (&["layout"], "were not provided: <SPEC|NAME>..."),
        (&["new", "--format", "base64"], "unknown text form `base64`: expected decimal, hex, base32"),
    ] {
        let error = sandbox.refused(args, 2);
        assert!(error.contains(wanted), "{error}");
    }
}
