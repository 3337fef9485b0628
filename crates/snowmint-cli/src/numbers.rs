//! Whole numbers as people type them.
//!
//! Not in `flag_values.rs`, because `advice.rs` reads numbers too, and `flag_values.rs` depends on it
//! through `error.rs`.

/// Returns a number in digits, either plain or in groups of three. Shorter groups could be a decimal
/// fraction.
pub(crate) fn whole(text: &str) -> Option<u64> {
    let mut groups = text.split([',', '_']);
    let mut digits = groups.next()?.to_owned();
    let first = digits.len();
    for group in groups {
        if !(1..=3).contains(&first) || group.len() != 3 {
            return None;
        }
        digits += group;
    }
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
}
