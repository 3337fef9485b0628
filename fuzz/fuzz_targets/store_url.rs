//! The URL of a store is accepted or rejected, and no message contains the password in it.
#![cfg_attr(fuzzing, no_main)]

/// A text that no message contains by chance.
const PASSWORD: &str = "q7Zx0kV";
const SCHEMES: [&str; 2] = ["redis", "zookeeper"];

// `user@hosts/path?parameters`; the password is inserted after the user.
snowmint_fuzz::fuzz_target!(|input: (u8, &str)| {
    let (scheme, text) = input;
    // Skip URLs that name files: their contents are another program's input.
    if text.contains("file") || text.contains("ca") || text.contains('%') {
        return;
    }
    if let Err(error) = snowmint_store::schema(text) {
        assert!(!error.to_string().is_empty());
    }
    let scheme = SCHEMES[usize::from(scheme) % SCHEMES.len()];
    let (user, rest) = text.split_once('@').unwrap_or(("", text));
    let url = format!("{scheme}://{user}:{PASSWORD}@{rest}");
    let said = match snowmint_store::schema(&url) {
        Ok(schema) => schema,
        Err(error) => error.to_string(),
    };
    assert!(!said.contains(PASSWORD), "{url:?} gave {said:?}");
});
