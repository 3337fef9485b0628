//! Shared by the fuzz targets. Without a fuzzer, each target is a program that checks the files it is given,
//! and a test here checks the seeds: both build on stable Rust.

// Lets the test below include the targets, which name this crate.
extern crate self as snowmint_fuzz;

pub use arbitrary;

use std::{env, fs, process};

/// Defines a fuzz target: a function for libFuzzer under `cargo fuzz`, otherwise a program that checks files.
#[macro_export]
macro_rules! fuzz_target {
    (|$input:ident: $type:ty| $body:block) => {
        fn check_input($input: $type) $body

        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|input: $type| check_input(input));

        /// Checks an input. Returns `false` if it has too few bytes for one.
        #[cfg(not(fuzzing))]
        pub fn check_bytes(bytes: &[u8]) -> bool {
            let input = $crate::arbitrary::Unstructured::new(bytes);
            $crate::arbitrary::Arbitrary::arbitrary_take_rest(input).map(check_input).is_ok()
        }

        #[cfg(not(fuzzing))]
        #[allow(dead_code, reason = "the test of the seeds has a main function of its own")]
        fn main() {
            $crate::check_files(check_bytes);
        }
    };
}

/// Checks the files that the command line names.
pub fn check_files(check: fn(&[u8]) -> bool) {
    for path in env::args_os().skip(1) {
        let bytes = fs::read(&path).unwrap_or_else(|error| {
            eprintln!("{}: {error}", path.display());
            process::exit(2)
        });
        println!("{}: {}", path.display(), if check(&bytes) { "passes" } else { "too short for an input" });
    }
}

#[cfg(test)]
macro_rules! targets {
    ($($name:ident $path:literal,)+) => {
        $(#[path = $path] mod $name;)+
        const TARGETS: &[(&str, fn(&[u8]) -> bool)] = &[$((stringify!($name), $name::check_bytes),)+];
    };
}

#[cfg(test)]
targets! {
    alphabet "../fuzz_targets/alphabet.rs",
    client_answer "../fuzz_targets/client_answer.rs",
    config "../fuzz_targets/config.rs",
    grpc "../fuzz_targets/grpc.rs",
    gtids "../fuzz_targets/gtids.rs",
    guess "../fuzz_targets/guess.rs",
    hide_keys "../fuzz_targets/hide_keys.rs",
    http "../fuzz_targets/http.rs",
    layout "../fuzz_targets/layout.rs",
    namespace "../fuzz_targets/namespace.rs",
    record "../fuzz_targets/record.rs",
    resp "../fuzz_targets/resp.rs",
    rule "../fuzz_targets/rule.rs",
    store_url "../fuzz_targets/store_url.rs",
    texts "../fuzz_targets/texts.rs",
    thrift "../fuzz_targets/thrift.rs",
    tokens "../fuzz_targets/tokens.rs",
    zookeeper "../fuzz_targets/zookeeper.rs",
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::TARGETS;

    /// Goal: every target passes its seeds. A target without seeds, or a folder or file without a target,
    /// fails the test.
    #[test]
    fn every_target_passes_its_seeds() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let names = |folder: &str| {
            let entries = fs::read_dir(root.join(folder)).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| {
                    Path::new(&entry.unwrap().file_name()).file_stem().unwrap().to_str().unwrap().into()
                })
                .collect();
            names.sort_unstable();
            names
        };
        let targets: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names("seeds"), targets);
        assert_eq!(names("fuzz_targets"), targets);
        for (name, check) in TARGETS {
            let seeds = fs::read_dir(root.join("seeds").join(name)).unwrap();
            let mut count = 0;
            for seed in seeds {
                let path = seed.unwrap().path();
                println!("{}", path.display());
                assert!(check(&fs::read(&path).unwrap()), "{} is too short for an input", path.display());
                count += 1;
            }
            assert!(count > 0, "{name} has no seeds");
        }
    }
}
