//! An answer of a ZooKeeper server is read as an independent reading of its encoding says: numbers are
//! big-endian, a frame, a value and a text begin with their length, a list with its count, and -1 means none.
#![cfg_attr(fuzzing, no_main)]

use snowmint_store::zookeeper_answers::{frame, names, value};

/// The maximum bytes of an answer.
const LONGEST: usize = 64 << 20;

snowmint_fuzz::fuzz_target!(|stream: &[u8]| {
    let mut rest = stream;
    loop {
        let wanted = number(rest).and_then(|length| usize::try_from(length).ok()).filter(|it| *it <= LONGEST);
        let wanted = wanted.and_then(|length| rest.get(4..4 + length));
        assert_eq!(frame(rest), wanted);
        let Some(answer) = wanted else { return };
        // Identifier, transaction and error.
        let fields = answer.get(16..);
        assert_eq!(names(answer), fields.and_then(all_names));
        assert_eq!(value(answer), fields.and_then(a_value));
        rest = &rest[4 + answer.len()..];
    }
});

fn number(bytes: &[u8]) -> Option<i32> {
    Some(i32::from_be_bytes(bytes.get(..4)?.try_into().unwrap()))
}

/// Returns what has its length before it, and the rest.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    match number(bytes)? {
        -1 => Some((&[], &bytes[4..])),
        length => bytes[4..].split_at_checked(usize::try_from(length).ok()?),
    }
}

fn all_names(bytes: &[u8]) -> Option<Vec<String>> {
    let (count, mut rest) = (number(bytes)?, &bytes[4..]);
    let mut names = Vec::new();
    if count < -1 {
        return None;
    }
    for _ in 0..count {
        let (name, after) = text(rest)?;
        names.push(String::from_utf8(name.to_vec()).ok()?);
        rest = after;
    }
    Some(names)
}

/// Returns a value, and the second of the numbers in the 68 bytes after it.
fn a_value(bytes: &[u8]) -> Option<(Vec<u8>, i64)> {
    let (value, state) = text(bytes)?;
    let state = state.get(..68)?;
    Some((value.to_vec(), i64::from_be_bytes(state[8..16].try_into().unwrap())))
}
