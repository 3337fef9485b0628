//! From keys to the names of objects: DNS-1123 subdomains, which know no upper case and few signs.
//! A name is for people to read and for the hash at its end to tell apart; the key itself is in an annotation.

use crate::Key;

/// The most bytes a prefix may have, so that the name of the longest key has no more than the 253 that are allowed:
/// the prefix, 200 bytes of key, 16 of hash, two `-`.
pub(super) const LONGEST_PREFIX: usize = 35;

/// The name of the object for a key: `snowmint-workers-pool-7-af63bd4c8601b7df`.
pub(super) fn of(prefix: &str, key: &Key) -> String {
    let readable = |it: char| if it.is_ascii_alphanumeric() { it.to_ascii_lowercase() } else { '-' };
    let shown: String = key.as_str().chars().map(readable).collect();
    format!("{prefix}-{shown}-{:016x}", hash(key.as_str().as_bytes()))
}

/// 64-bit FNV-1a. Two keys with one name are found out when a record is read, so a short hash will do.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        // http://www.isthe.com/chongo/src/fnv/test_fnv.c
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn names_are_valid_and_apart() {
        let long = "K".repeat(200);
        let texts = ["a", "A", "a/a", "a-a", "a.a", "..", "@", "_", &long];
        let mut seen = std::collections::BTreeSet::new();
        for text in texts {
            let name = of(&"p".repeat(LONGEST_PREFIX), &Key::new(text).unwrap());
            assert!(name.len() <= 253, "{name}");
            assert!(name.bytes().all(|it| matches!(it, b'a'..=b'z' | b'0'..=b'9' | b'-')), "{name}");
            assert!(seen.insert(name), "{text}");
        }
    }
}
